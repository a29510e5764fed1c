// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/elf_lookup.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

namespace hami::vgpu {
namespace {

TEST(FindInLibc, GivenDlsym_ThenItIsOneThatLooksUp) {
  void* const found = FindInLibc("dlsym");
  ASSERT_NE(found, nullptr);
  const auto look_up = reinterpret_cast<void* (*)(void*, const char*)>(found);
  EXPECT_EQ(look_up(RTLD_DEFAULT, "dl_iterate_phdr"), dlsym(RTLD_DEFAULT, "dl_iterate_phdr"));
}

TEST(FindInLibc, GivenDlvsym_ThenFoundInTheCLibrary) {
  Dl_info info;
  void* const found = FindInLibc("dlvsym");
  ASSERT_NE(found, nullptr);
  ASSERT_NE(dladdr(found, &info), 0);
  EXPECT_NE(std::strstr(info.dli_fname, "libc"), nullptr) << info.dli_fname;
}

TEST(FindInLibc, GivenUnknownName_ThenNull) { EXPECT_EQ(FindInLibc("no_such_function_anywhere"), nullptr); }

}  // namespace
}  // namespace hami::vgpu
