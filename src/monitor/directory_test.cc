// SPDX-License-Identifier: Apache-2.0

#include "monitor/directory.h"

#include <gtest/gtest.h>

namespace hami::monitor {
namespace {

constexpr const char* kUid = "3f6c1d0e-6c1b-4d63-9d0f-6a3a0a1b2c3d";

TEST(Directory, GivenAPodsContainer_ThenTheNameSplitsAtTheFirstUnderscore) {
  EXPECT_EQ(ParseContainerName(std::string(kUid) + "_main"), (ContainerName{kUid, "main"}));
  EXPECT_EQ(ParseContainerName("0123456789abcdef0123456789abcdef_init-1"),
            (ContainerName{"0123456789abcdef0123456789abcdef", "init-1"}))
      << "mirror pods have hashes";
}

TEST(Directory, GivenWhatIsNoContainer_ThenItIsRefused) {
  for (const std::string name : {"", "_", "a_", "_a", "plain", "uid_a_b", "uid_Main", "../x_main", "uid_ma in",
                                 "u.d_main", "uid_\xff", ".removed-1"}) {
    EXPECT_FALSE(ParseContainerName(name)) << name;
  }
  EXPECT_FALSE(ParseContainerName("uid_" + std::string(64, 'a')));
  EXPECT_FALSE(ParseContainerName(std::string(129, 'a') + "_main"));
}

TEST(Directory, GivenALink_ThenItMayOnlyLeadToAShare) {
  EXPECT_TRUE(IsShareTarget("../shares/7f3a-2"));
  for (const char* target : {"", "..", "../shares/", "../shares/..", "../shares/.x", "../shares/a/b", "/etc",
                             "../../etc", "../containers/x", "shares/a"}) {
    EXPECT_FALSE(IsShareTarget(target)) << target;
  }
}

TEST(Directory, GivenFileNames_ThenOnlyCachesCount) {
  EXPECT_TRUE(IsCacheName("8d0f.cache"));
  EXPECT_FALSE(IsCacheName(".cache"));
  EXPECT_FALSE(IsCacheName("x.cache.bak"));
  EXPECT_FALSE(IsCacheName("libvgpu.so"));
}

}  // namespace
}  // namespace hami::monitor
