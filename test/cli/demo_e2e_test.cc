// SPDX-License-Identifier: Apache-2.0
//
// The demo as a judge: it must see when nothing keeps the limits.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <link.h>

#include "harness.h"

namespace hami::e2e {
namespace {

using testing::HasSubstr;

using Demo = Machine;

TEST_F(Demo, GivenLibraryKeepsNoLimit_WhenShown_ThenVerdictAndStatusSaySo) {
  void* const harmless = ::dlopen("libm.so.6", RTLD_NOW);
  ASSERT_NE(harmless, nullptr) << ::dlerror();
  const link_map* map = nullptr;
  ASSERT_EQ(::dlinfo(harmless, RTLD_DI_LINKMAP, &map), 0);
  environment_["HAMI_LIBVGPU"] = map->l_name;
  const Outcome outcome = Hami({"sim", "--", HAMI_DEMO});
  EXPECT_EQ(outcome.exit_status(), 1) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bytes over the limit in the GPU's account"));
  EXPECT_THAT(outcome.out, HasSubstr("cuda_total was"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("No limit was exceeded")));
  ::dlclose(harmless);
}

TEST_F(Demo, GivenHelp_WhenAsked_ThenToldAndNothingElse) {
  const Outcome help = Hami({"sim", "--", HAMI_DEMO, "--help"});
  EXPECT_EQ(help.exit_status(), 0);
  EXPECT_THAT(help.out, testing::StartsWith("Usage: hami-demo"));
  EXPECT_EQ(Hami({"sim", "--", HAMI_DEMO, "--fast"}).exit_status(), 2);
}

TEST_F(Demo, GivenNoRoomForTheHelp_WhenAsked_ThenTheStatusTells) {
  const Outcome outcome = Hami({"sim", "--", "sh", "-c", HAMI_DEMO " --help >/dev/full"});
  EXPECT_EQ(outcome.exit_status(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("can not write"));
}

}  // namespace
}  // namespace hami::e2e
