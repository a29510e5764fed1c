// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/testing/mig_world.h"

namespace hami::plugin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr const char* kH100 = "NVIDIA H100 80GB HBM3";
constexpr device::MiB kH100Memory = 81559;

std::vector<std::string> NamesOf(const MigOffer& offer) {
  std::vector<std::string> names;
  for (const auto& profile : offer.profiles) names.push_back(profile.name);
  return names;
}

const device::MigProfile& Profile(const MigOffer& offer, std::string_view name) {
  return *std::find_if(offer.profiles.begin(), offer.profiles.end(), [&](const auto& p) { return p.name == name; });
}

TEST(MigOffer, NoAllowList_EveryProfileAsTheDriverHasIt) {
  const MigOffer offer = OfferOf({H100Profiles(), {}}, kH100, kH100Memory, {}, {});
  EXPECT_THAT(offer.profiles, SizeIs(7));
  EXPECT_EQ(offer.count, 7);
  EXPECT_EQ(Profile(offer, "1g.10gb").cores, 13) << "16 of 132 SMs, rounded up";
  EXPECT_EQ(Profile(offer, "7g.80gb").cores, 100);
  EXPECT_EQ(Profile(offer, "3g.40gb").memory, 40448);
  EXPECT_THAT(Profile(offer, "1g.10gb").placements, SizeIs(7));
  EXPECT_THAT(Profile(offer, "1g.10gb+me").placements, SizeIs(1)) << "one may live at once";
}

TEST(MigOffer, AllowList_OnlyItsProfilesOfItsModel) {
  const std::vector<device::MigAllowance> list = {{{"A100-SXM4-80GB"}, {"7g.80gb"}},
                                                  {{"H100-PCIE-80GB", "H100-SXM5-80GB"}, {"1g.10gb", "7g.80gb"}}};
  const MigOffer offer = OfferOf({H100Profiles(), {}}, kH100, kH100Memory, list, {});
  EXPECT_THAT(NamesOf(offer), ElementsAre("1g.10gb", "7g.80gb"));
  EXPECT_THAT(OfferOf({H100Profiles(), {}}, "NVIDIA B300", 280000, list, {}).trouble, HasSubstr("NVIDIA B300"));
  const MigOffer all = OfferOf({H100Profiles(), {}}, kH100, kH100Memory, {{{"H100"}, {"auto"}}}, {});
  EXPECT_THAT(all.profiles, SizeIs(7));
}

TEST(MigOffer, ForeignInstance_ItsPlacesAreNotOffered) {
  const MigOffer offer = OfferOf({H100Profiles(), {}}, kH100, kH100Memory, {}, {{4, 2}});
  EXPECT_THAT(Profile(offer, "1g.10gb").placements, SizeIs(5));
  ASSERT_THAT(Profile(offer, "3g.40gb").placements, SizeIs(1));
  EXPECT_EQ(Profile(offer, "3g.40gb").placements[0].start, 0);
  EXPECT_THAT(NamesOf(offer), testing::Not(testing::Contains("7g.80gb")));
  EXPECT_THAT(OfferOf({H100Profiles(), {}}, kH100, kH100Memory, {}, {{0, 8}}).trouble, HasSubstr("not ours"));
}

TEST(MigModel, ChartsNames_MeanTheDriversNames) {
  EXPECT_TRUE(IsModel("H100-SXM5-80GB", kH100, kH100Memory));
  EXPECT_TRUE(IsModel("A100-80GB-PCIe", "NVIDIA A100 80GB PCIe", 81920));
  EXPECT_TRUE(IsModel("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 40960));
  EXPECT_TRUE(IsModel("H100-PCIE-94GB", "NVIDIA H100 NVL", 95830));
  EXPECT_TRUE(IsModel("H200-SXM5", "NVIDIA H200", 143771));
  EXPECT_TRUE(IsModel("RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887));
  EXPECT_FALSE(IsModel("H20", "NVIDIA H200", 143771));
  EXPECT_FALSE(IsModel("B200", "NVIDIA GB200", 189471));
  EXPECT_FALSE(IsModel("A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", 81920));
  EXPECT_FALSE(IsModel("H100-PCIE-94GB", "NVIDIA H100 PCIe", 81559));
  EXPECT_FALSE(IsModel("", kH100, kH100Memory));
}

TEST(MigModel, ProfileNames_DifferByRoundingAlone) {
  EXPECT_TRUE(IsProfile("7g.79gb", "7g.80gb"));
  EXPECT_FALSE(IsProfile("1g.10gb", "1g.10gb+me"));
  EXPECT_FALSE(IsProfile("1g.10gb", "1g.20gb"));
  EXPECT_FALSE(IsProfile("2g.20gb", "1g.20gb"));
  EXPECT_TRUE(IsProfile("1g.24gb+gfx", "1g.24gb+gfx"));
}

}  // namespace
}  // namespace hami::plugin
