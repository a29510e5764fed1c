// SPDX-License-Identifier: Apache-2.0

#include "device/grant_seal.h"

#include <gtest/gtest.h>

#include "device/annotations.h"

namespace hami::device {
namespace {

constexpr const char* kKey = "000102030405060708090a0b0c0d0e0f";
constexpr const char* kOther = "ffffffffffffffffffffffffffffffff";
constexpr const char* kAllocated = "hami.io/vgpu-devices-allocated";

GrantKeys Keys(const std::string& text) { return GrantKeys::Parse(text, "keys").value(); }

StringMap Granted() { return {{kAllocated, "GPU-a,NVIDIA,1000,10:;"}, {kAssignedNode, "n"}}; }

StringMap Sealed(const GrantKeys& keys) {
  StringMap annotations = Granted();
  annotations[kGrantSeal] = keys.Seal(SealedText("u", "n", annotations));
  return annotations;
}

TEST(GrantSealTest, ProvesItsPodNodeAndGrantAndNothingElse) {
  const GrantKeys keys = Keys(kKey);
  StringMap annotations = Sealed(keys);
  EXPECT_TRUE(IsSealed(&keys, "u", "n", annotations));
  EXPECT_FALSE(IsSealed(nullptr, "u", "n", annotations));
  EXPECT_FALSE(IsSealed(&keys, "v", "n", annotations));
  EXPECT_FALSE(IsSealed(&keys, "u", "m", annotations));
  annotations["hami.io/vgpu-devices-to-allocate"] = ";";  // served
  annotations[kBindPhase] = kPhaseSuccess;
  EXPECT_TRUE(IsSealed(&keys, "u", "n", annotations));
  annotations[kAllocated] = "GPU-a,NVIDIA,2000,10:;";
  EXPECT_FALSE(IsSealed(&keys, "u", "n", annotations));
  annotations.erase(kAllocated);
  EXPECT_FALSE(IsSealed(&keys, "u", "n", annotations));
}

TEST(GrantSealTest, AnotherVendorsGrantIsPartOfWhatIsSealed) {
  const GrantKeys keys = Keys(kKey);
  StringMap annotations = Sealed(keys);
  annotations["hami.io/dcu-devices-allocated"] = "DCU-0,DCU,1000,10:;";
  EXPECT_FALSE(IsSealed(&keys, "u", "n", annotations));
}

TEST(GrantSealTest, PlacesOfMigInstancesAreSealedAndTheirIdentitiesAreNot) {
  const GrantKeys keys = Keys(kKey);
  StringMap annotations = Granted();
  annotations[kMigAllocations] =
      R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.10gb","placement":{"start":2,"size":1}}])";
  annotations[kGrantSeal] = keys.Seal(SealedText("u", "n", annotations));
  annotations[kMigAllocations] =
      R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.10gb","placement":{"start":2,"size":1},)"
      R"("migUUID":"MIG-1","gpuInstanceID":7,"computeInstanceID":0}])";
  EXPECT_TRUE(IsSealed(&keys, "u", "n", annotations));
  annotations[kMigAllocations] =
      R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"7g.80gb","placement":{"start":0,"size":8}}])";
  EXPECT_FALSE(IsSealed(&keys, "u", "n", annotations));
}

TEST(GrantSealTest, FieldsDoNotRunIntoEachOther) {
  EXPECT_NE(SealedText("ab", "c", {}), SealedText("a", "bc", {}));
  EXPECT_NE(SealedText("u", "n", {{kAllocated, "a"}}), SealedText("u", "n", {{kAllocated, ""}}));
  EXPECT_NE(SealedText("u", "n", {{kAllocated, "a"}}), SealedText("u", "n", {}));
}

TEST(GrantSealTest, IsHmacSha256) {
  // RFC 4231, test case 2 has a short key; case 1 has one of 20 bytes.
  const GrantKeys keys = Keys("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b");
  EXPECT_EQ(keys.Seal("Hi There"), "v1:b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(GrantSealTest, TheFirstKeySignsAndAllVerify) {
  const GrantKeys old_keys = Keys(kKey);
  const GrantKeys rotated = Keys(std::string(kOther) + "\n" + kKey + "\n");
  EXPECT_TRUE(rotated.Verify("t", old_keys.Seal("t")));
  EXPECT_FALSE(old_keys.Verify("t", rotated.Seal("t")));
  EXPECT_TRUE(rotated.Verify("t", rotated.Seal("t")));
  EXPECT_FALSE(Keys(kOther).Verify("t", old_keys.Seal("t")));
  for (const char* bad : {"", "v1:", "v2:00", "v1:zz", "v1"}) EXPECT_FALSE(rotated.Verify("t", bad));
}

TEST(GrantSealTest, KeysAreHexOrBase64) {
  // The same 16 bytes both ways.
  EXPECT_TRUE(
      Keys("AAECAwQFBgcICQoLDA0ODw==").Verify("t", Keys(std::string("# new\n\n  ") + kKey + " \r\n").Seal("t")));
  EXPECT_TRUE(Keys("000102030405060708090A0B0C0D0E0F").Verify("t", Keys(kKey).Seal("t")));
}

TEST(GrantSealTest, WhatIsNoKeyIsRefusedWithLineAndRemedy) {
  const auto refused = [](const std::string& text, const std::string& says) {
    const auto keys = GrantKeys::Parse(text, "/keys");
    ASSERT_FALSE(keys) << text;
    EXPECT_EQ(keys.error().message, says);
    EXPECT_NE(keys.error().hint.find("openssl rand -hex 32"), std::string::npos);
  };
  refused("", "/keys has no key");
  refused("# none\n\n", "/keys has no key");
  refused(std::string(kKey) + "\n0001\n", "/keys:2: a key of 2 bytes is too short");
  refused("no key!", "/keys:1: this is neither hex nor base64");
  refused("====", "/keys:1: this is neither hex nor base64");
  EXPECT_FALSE(GrantKeys::Parse(std::string(17 * 33, '\n'), "k"));
  std::string many;
  for (int i = 0; i < 17; ++i) many += std::string(kKey) + "\n";
  EXPECT_EQ(GrantKeys::Parse(many, "/keys").error().message, "/keys:17: more than 16 keys");
}

TEST(GrantSealTest, WhatIsLeftToHandOutIsARemainder) {
  const char* whole = "a,NVIDIA,1,2:b,NVIDIA,1,2:;;c,NVIDIA,1,2:;";
  EXPECT_TRUE(IsRemainderOf(whole, whole));
  EXPECT_TRUE(IsRemainderOf(";;c,NVIDIA,1,2:;", whole));
  EXPECT_TRUE(IsRemainderOf(";", whole));
  EXPECT_TRUE(IsRemainderOf("", whole));
  EXPECT_FALSE(IsRemainderOf("a,NVIDIA,1,2:;;c,NVIDIA,1,2:;", whole));
  EXPECT_FALSE(IsRemainderOf("c,NVIDIA,1,2:;;;", whole));
  EXPECT_FALSE(IsRemainderOf(";;;c,NVIDIA,1,2:;", whole));
  EXPECT_FALSE(IsRemainderOf("nonsense", whole));
}

TEST(GrantSealTest, KeyringKeepsTheNewestGoodKeys) {
  base::Result<std::optional<std::string>> next = std::optional<std::string>(kKey);
  const auto made = GrantKeyring::Make([&] { return std::exchange(next, std::optional<std::string>()); }, "/keys");
  ASSERT_TRUE(made);
  GrantKeyring& ring = **made;
  const std::string seal = ring.Get()->Seal("t");
  next = std::optional<std::string>("nonsense");
  EXPECT_TRUE(ring.Get()->Verify("t", seal));
  next = base::Fail("gone");
  EXPECT_TRUE(ring.Get()->Verify("t", seal));
  next = std::optional<std::string>(kOther);
  EXPECT_FALSE(ring.Get()->Verify("t", seal));
}

TEST(GrantSealTest, KeyringWithoutKeysIsNotMade) {
  const auto looks = [](base::Result<std::optional<std::string>> look) {
    return static_cast<bool>(GrantKeyring::Make([look] { return look; }, "/keys"));
  };
  EXPECT_FALSE(looks(base::Fail("gone")));
  EXPECT_FALSE(looks(std::optional<std::string>("")));
  EXPECT_FALSE(looks(std::optional<std::string>()));
}

}  // namespace
}  // namespace hami::device
