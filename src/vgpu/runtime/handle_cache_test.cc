// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/handle_cache.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

const void* Handle(uintptr_t number) { return reinterpret_cast<const void*>(number); }

TEST(HandleCache, GivenNothing_ThenNothingIsThere) {
  const HandleCache places;
  EXPECT_FALSE(places.Has(Handle(0x1000), 0));
  EXPECT_FALSE(places.Has(nullptr, 0)) << "an empty entry is no handle";
}

TEST(HandleCache, GivenAHandle_ThenItIsThereUntilTheEpochMovesOn) {
  HandleCache places;
  places.Add(Handle(0x1000), 7);
  EXPECT_TRUE(places.Has(Handle(0x1000), 7));
  EXPECT_FALSE(places.Has(Handle(0x1008), 7));
  EXPECT_FALSE(places.Has(Handle(0x1000), 8));
  EXPECT_FALSE(places.Has(Handle(0x1000), 6)) << "another thread may read an older one later";
}

TEST(HandleCache, GivenAHandleOfALaterEpoch_ThenTheEarlierOnesAreGone) {
  HandleCache places;
  for (uintptr_t i = 1; i <= 100; ++i) places.Add(Handle(i * 0x40), 7);
  places.Add(Handle(0x10000), 8);
  for (uintptr_t i = 1; i <= 100; ++i) EXPECT_FALSE(places.Has(Handle(i * 0x40), 8)) << i;
  EXPECT_TRUE(places.Has(Handle(0x10000), 8));
}

TEST(HandleCache, GivenMoreThanItHolds_ThenLastIsThereAndNoneTakenForAnother) {
  HandleCache places;
  for (uintptr_t i = 1; i <= 100; ++i) {
    places.Add(Handle(i * 0x40), 7);
    EXPECT_TRUE(places.Has(Handle(i * 0x40), 7));
    EXPECT_FALSE(places.Has(Handle((i + 1) * 0x40), 7));
  }
  places.Clear();
  for (uintptr_t i = 1; i <= 100; ++i) EXPECT_FALSE(places.Has(Handle(i * 0x40), 7));
}

}  // namespace
}  // namespace hami::vgpu
