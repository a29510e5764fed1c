// SPDX-License-Identifier: Apache-2.0

#include "monitor/use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::monitor {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kMiB = 1U << 20U;

ContainerPicture Container(const std::string& pod) {
  ContainerPicture container;
  container.ns = "team";
  container.pod = pod;
  container.container = "main";
  DeviceUse use;
  use.uuid = "GPU-1";
  use.used = 1500 * kMiB + 1;
  use.limit = 3000 * kMiB;
  use.sm_limit = 30;
  use.sm_percent = 27;
  container.region.devices = {use};
  return container;
}

TEST(UseOf, SharesAreSaidInMiBAndPercentAsFarAsTheyAreKnown) {
  Picture picture;
  picture.node = "node-1";
  ContainerPicture free = Container("free");
  free.region.devices[0].limit = 0;
  free.region.devices[0].sm_limit = 0;
  free.region.devices[0].nameless = 1;
  picture.containers = {Container("train"), free};
  const device::UseReport report = UseOf(picture);
  EXPECT_EQ(report.node, "node-1");
  EXPECT_THAT(report.shares,
              ElementsAre(device::ShareUse{"team", "train", "main", "GPU-1", 1500, 3000, 30, 27},
                          device::ShareUse{"team", "free", "main", "GPU-1", 1500, 0, 100, std::nullopt}));
}

TEST(UseOf, WhatIsNotKnownIsNotSaid) {
  Picture picture;
  ContainerPicture broken = Container("broken");
  broken.problem = "corrupt";
  ContainerPicture awaited = Container("awaited");
  awaited.awaited = true;
  ContainerPicture forged = Container("forged");
  forged.region.devices[0].uuid = kUnknownUuid;
  forged.region.devices.emplace_back();
  picture.containers = {broken, awaited, forged};
  EXPECT_TRUE(UseOf(picture).shares.empty());
}

TEST(UseOf, AReportOfAnyPictureCanBeRead) {
  Picture picture;
  picture.node = "node-1";
  ContainerPicture wild = Container("wild");
  wild.region.devices[0].used = ~std::uint64_t{0};
  wild.region.devices[0].sm_percent = ~std::uint64_t{0};
  picture.containers.assign(device::kMostUseShares + 1, wild);
  const auto read = device::ReadUse(device::WriteUse(UseOf(picture)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->shares.size(), device::kMostUseShares);
  EXPECT_EQ(read->shares[0].used, device::kMostUseMiB);
}

}  // namespace
}  // namespace hami::monitor
