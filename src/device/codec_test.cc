// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/allocation_codec.h"
#include "device/register_codec.h"
#include "device/vendors/nvidia.h"

namespace hami::device {
namespace {

Device FullDevice() {
  Device device;
  device.uuid = "GPU-1";
  device.index = 3;
  device.count = 10;
  device.memory = 40960;
  device.cores = 100;
  device.type = "NVIDIA-A100";
  device.numa = -1;
  device.mode = "mig";
  device.healthy = true;
  device.mig_profiles = {{"1g.5gb", 4864, 15, 1, {{0, 1}, {6, 1}}}};
  device.vendor = "NVIDIA";
  device.custom_info = R"({"NetworkID":7})";
  return device;
}

TEST(RegisterJson, GivenEveryField_WhenEncodedAndDecoded_ThenNothingIsLost) {
  const std::vector<Device> devices = {FullDevice()};
  const auto decoded = DecodeRegisterJson(EncodeRegisterJson(devices));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, devices);
}

TEST(RegisterJson, GivenThePluginsForm_ThenKeysComeInItsOrderWithoutZeroes) {
  Device device;
  device.uuid = "GPU-1";
  device.count = 10;
  device.memory = 16384;
  device.cores = 100;
  device.type = "NVIDIA-Tesla T4";
  device.mode = "hami-core";
  device.healthy = true;
  EXPECT_EQ(EncodeRegisterJson({device}),
            R"([{"id":"GPU-1","count":10,"devmem":16384,"devcore":100,"type":"NVIDIA-Tesla T4",)"
            R"("mode":"hami-core","health":true}])");
}

TEST(RegisterJson, GivenAbsentHealth_ThenTheCardIsUnhealthy) {
  const auto decoded = DecodeRegisterJson(R"([{"id":"GPU-1"}])");
  ASSERT_TRUE(decoded);
  EXPECT_FALSE(decoded->at(0).healthy);
}

TEST(RegisterJson, GivenHostileText_ThenItIsRefusedWithTheFieldsName) {
  const auto error = [](const char* text) { return DecodeRegisterJson(text).error().message; };
  EXPECT_EQ(error(R"([{"id":"a","devmem":-1}])"), "device: devmem must be a whole number that is not negative");
  EXPECT_EQ(error(R"([{"id":"a","count":99999999999}])"), "device: count must be a whole number that is not negative");
  EXPECT_EQ(error(R"([{"id":"a","numa":"x"}])"), "device: numa must be a whole number");
  EXPECT_EQ(error(R"([{"id":7}])"), "device: id must be a string");
  EXPECT_EQ(error(R"([{"count":1}])"), "device: id is missing");
  // What would break the grant that names it.
  EXPECT_EQ(error(R"([{"id":"a;b"}])"), "device: id \"a;b\" has a comma, colon or semicolon in it");
  EXPECT_NE(error(R"([{"id":"a,b"}])"), "");
  EXPECT_NE(error(R"([{"id":"a:b"}])"), "");
  EXPECT_EQ(error(R"({"id":"a"})"), "register annotation: not a list");
  EXPECT_EQ(error("[1]"), "register annotation: not a list of objects");
  EXPECT_THAT(error("["), ::testing::HasSubstr("not valid JSON"));
}

TEST(RegisterLegacy, GivenNineFields_WhenEncodedAndDecoded_ThenNothingIsLost) {
  Device device = FullDevice();
  device.mig_profiles.clear();
  device.vendor.clear();
  device.custom_info.clear();
  const std::string text = EncodeRegisterLegacy({device, device});
  EXPECT_EQ(text.substr(0, text.size() / 2), "GPU-1,10,40960,100,NVIDIA-A100,-1,true,3,mig:");
  const auto decoded = DecodeRegisterLegacy(text);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, (std::vector<Device>{device, device}));
}

TEST(RegisterLegacy, GivenSevenFields_ThenIndexIsZeroAndModeHamiCore) {
  const auto decoded = DecodeRegisterLegacy("DCU-0,4,32768,100,DCU-Z100,1,false:");
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->at(0).index, 0);
  EXPECT_EQ(decoded->at(0).mode, "hami-core");
  EXPECT_EQ(decoded->at(0).count, 4);
  EXPECT_FALSE(decoded->at(0).healthy);
}

TEST(RegisterLegacy, GivenBrokenText_ThenTheErrorIsTheOneOfTheProtocol) {
  const auto error = [](const char* text) { return DecodeRegisterLegacy(text).error().message; };
  EXPECT_EQ(error("a,1,2,3,t,0,true"), "node annotation missing device separator");
  EXPECT_EQ(error("nonsense:"), "malformed node annotation segment: \"nonsense\"");
  EXPECT_EQ(error("a,1,2:"), "unexpected field count 3 in node annotation");
  EXPECT_EQ(error("a,1,2,3,t,0,true,1:"), "unexpected field count 8 in node annotation");
  EXPECT_THAT(error("a,x,2,3,t,0,true:"), ::testing::StartsWith("invalid count field: "));
  EXPECT_THAT(error("a,1,x,3,t,0,true:"), ::testing::StartsWith("invalid memory field: "));
  EXPECT_THAT(error("a,1,2,x,t,0,true:"), ::testing::StartsWith("invalid core field: "));
  EXPECT_THAT(error("a,1,2,3,t,x,true:"), ::testing::StartsWith("invalid numa field: "));
  EXPECT_THAT(error("a,1,2,3,t,0,yes:"), ::testing::StartsWith("invalid health field: "));
  EXPECT_THAT(error("a,1,2,3,t,0,true,x,m:"), ::testing::StartsWith("invalid index field: "));
  EXPECT_EQ(error("a,1,2,3,t,0,true,-2,m:"), "index field must not be negative: -2");
}

TEST(PairScores, GivenScores_WhenEncodedAndDecoded_ThenNothingIsLost) {
  const PairScores scores = {{"A", {{"B", 100}, {"C", 10}}}, {"B", {{"A", 100}}}, {"C", {}}};
  const auto decoded = DecodePairScores(EncodePairScores(scores));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, scores);
}

TEST(Grant, GivenAnIdleInitContainer_ThenItsRowIsEmpty) {
  const PodGrant grant = {{}, {{"GPU-A", "NVIDIA", 2500, 25}}};
  EXPECT_EQ(EncodeGrant(grant), ";GPU-A,NVIDIA,2500,25:;");
  EXPECT_EQ(*DecodeGrant(";GPU-A,NVIDIA,2500,25:;"), grant);
}

TEST(Grant, GivenSeveralShapes_WhenEncodedAndDecoded_ThenNothingIsLost) {
  for (const PodGrant& grant :
       std::vector<PodGrant>{{}, {{}}, {{}, {}, {}}, {{{"a", "t", 1, 2}, {"b", "t", 0, 0}}, {}}}) {
    EXPECT_EQ(*DecodeGrant(EncodeGrant(grant)), grant) << EncodeGrant(grant);
  }
}

TEST(Grant, GivenMoreSharesThanAPodHas_ThenItIsRefused) {
  const auto repeat = [](std::string_view text, std::size_t times) {
    std::string all;
    for (std::size_t i = 0; i < times; ++i) all += text;
    return all;
  };
  EXPECT_EQ(DecodeGrant(repeat("a,t,1,1:", kMostShares) + ";")->front().size(), kMostShares);
  EXPECT_EQ(DecodeGrant(repeat(";", kMostShares))->size(), kMostShares);
  EXPECT_EQ(DecodeGrant(repeat("a,t,1,1:", kMostShares + 1) + ";").error().message,
            "grant: 1 containers and 2049 shares, more than the 2048 of a pod");
  EXPECT_FALSE(DecodeGrant(repeat(";", kMostShares + 1)));
}

TEST(Grant, GivenMissingFields_ThenTheErrorIsTheOneOfTheProtocol) {
  EXPECT_EQ(DecodeGrant("GPU-A,NVIDIA,100:;").error().message,
            "pod annotation format error, missing fields, do not use nodeName in task spec");
  EXPECT_FALSE(DecodeGrant("GPU-A,NVIDIA,x,1:;"));
  EXPECT_FALSE(DecodeGrant("GPU-A,NVIDIA,1,-1:;"));
}

TEST(Reservations, GivenRealAndPlanned_WhenEncodedAndDecoded_ThenNothingIsLost) {
  const std::vector<MigReservation> list = {{0, 0, "GPU-A", "1g.5gb", {6, 1}, "MIG-1", 3, 0},
                                            {0, 1, "GPU-A", "1g.5gb", {5, 1}, "", -1, -1}};
  const auto decoded = DecodeReservations(EncodeReservations(list));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, list);
}

TEST(Reservations, GivenWhatNoSchedulerWrites_ThenItIsRefused) {
  for (
      const char* text :
      {R"([{"containerIndex":-1,"gpuUUID":"a","profile":"p","placement":{"size":1}}])",
       R"([{"gpuUUID":"","profile":"p","placement":{"size":1}}])", R"([{"gpuUUID":"a","placement":{"size":1}}])",
       R"([{"gpuUUID":"a","profile":"p","placement":{"start":1}}])", R"([{"gpuUUID":"a","profile":"p"}])",
       R"([{"gpuUUID":"a","profile":"p","placement":{"size":1},"migUUID":"m"}])",
       R"([{"gpuUUID":"a","profile":"p","placement":{"size":1},"gpuInstanceID":1,"computeInstanceID":1}])",
       R"([{"gpuUUID":"a","profile":"p","placement":{"size":1}},{"gpuUUID":"b","profile":"p","placement":{"size":1}}])",
       "nonsense"}) {
    EXPECT_FALSE(DecodeReservations(text)) << text;
  }
}

TEST(Register, GivenMoreCardsThanAnyMachineHas_ThenItIsRefused) {
  std::vector<Device> devices(kMostCards, FullDevice());
  EXPECT_TRUE(DecodeRegisterJson(EncodeRegisterJson(devices)));
  for (Device& device : devices) device.mig_profiles.clear();
  EXPECT_TRUE(DecodeRegisterLegacy(EncodeRegisterLegacy(devices)));
  devices.push_back(devices.back());
  const char* error = "register annotation: more than 256 cards";
  EXPECT_EQ(DecodeRegisterJson(EncodeRegisterJson(devices)).error().message, error);
  EXPECT_EQ(DecodeRegisterLegacy(EncodeRegisterLegacy(devices)).error().message, error);
}

TEST(NvidiaNode, GivenNoScoreOfAnyPair_WhenRead_ThenThereIsNoTableOfThem) {
  const NvidiaVendor vendor((NvidiaConfig()));
  std::vector<Device> devices(2, FullDevice());
  devices[1].uuid = "GPU-2";
  StringMap annotations = {{"hami.io/node-nvidia-register", EncodeRegisterJson(devices)}};
  for (const char* scores : {"[]", R"([{"uuid":"other","score":{"GPU-1":3}}])"}) {
    annotations["hami.io/node-nvidia-score"] = scores;
    const auto cards = vendor.ReadNode({"n", annotations, {}, {}});
    ASSERT_TRUE(cards);
    EXPECT_EQ(cards->devices.size(), 2U);
    EXPECT_TRUE(cards->pair_scores.empty()) << scores;
  }
  annotations["hami.io/node-nvidia-score"] =
      R"([{"uuid":"GPU-1","score":{"GPU-2":3}},{"uuid":"GPU-2","score":{"GPU-1":3}}])";
  EXPECT_EQ(vendor.ReadNode({"n", annotations, {}, {}})->pair_scores, (std::vector<std::int32_t>{0, 3, 3, 0}));
}

}  // namespace
}  // namespace hami::device
