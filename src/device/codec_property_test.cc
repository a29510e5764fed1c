// SPDX-License-Identifier: Apache-2.0
//
// Whatever is written into an annotation is read back as it was: decode(encode(x)) = x for every x that can be written.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "device/allocation_codec.h"
#include "device/handshake.h"
#include "device/register_codec.h"

namespace hami::device {
namespace {

// The same cases every time; RC_PARAMS="max_success=100000" in the environment looks further.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=20261122 max_success=2000", 0);

int Number() { return *rc::gen::oneOf(rc::gen::inRange(0, 200), rc::gen::inRange(0, 2147483647)); }
int Signed() { return *rc::gen::oneOf(rc::gen::just(0), rc::gen::arbitrary<int>()); }

// Any text, with every character that means something to JSON.
std::string AnyText() {
  return *rc::gen::container<std::string>(rc::gen::elementOf(std::string("aZ09 _-.,:;/\\\"'{}[]\n\t\x7f")));
}
// As names of cards are: without what separates them.
std::string Name() {
  return *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::elementOf(std::string("aZ09 _-./\\\"()"))));
}

template <typename Make>
auto Several(Make make) {
  std::vector<decltype(make())> list;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) list.push_back(make());
  return list;
}

MigPlacement AnyPlacement() { return {Number(), Number()}; }

MigProfile AnyProfile() { return {AnyText(), Number(), Number(), Number(), Several(AnyPlacement)}; }

Device LegacyCard() {
  Device device;
  device.uuid = Name();
  device.index = Number();
  device.count = Number();
  device.memory = Number();
  device.cores = Number();
  device.type = Name();
  device.numa = Signed();
  device.mode = Name();
  device.healthy = *rc::gen::arbitrary<bool>();
  return device;
}

Device AnyCard() {
  Device device = LegacyCard();
  device.uuid += AnyText();
  device.type = AnyText();
  device.mode = AnyText();
  device.mig_profiles = Several(AnyProfile);
  device.vendor = AnyText();
  if (*rc::gen::arbitrary<bool>()) device.custom_info = R"({"NetworkID":)" + std::to_string(Signed()) + "}";
  return device;
}

TEST(CodecProperty, GivenAnyCards_WhenRegisteredAndRead_ThenSameOrNotNameable) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Device> cards = Several(AnyCard);
    const auto nameable = [](const Device& card) { return card.uuid.find_first_of(",:;") == std::string::npos; };
    RC_ASSERT(DecodeRegisterJson(EncodeRegisterJson(cards)).has_value() ==
              std::all_of(cards.begin(), cards.end(), nameable));
    for (Device& card : cards) std::erase_if(card.uuid, [](char c) { return c == ',' || c == ':' || c == ';'; });
    const auto read = DecodeRegisterJson(EncodeRegisterJson(cards));
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == cards);
  }));
}

TEST(CodecProperty, GivenAnyCards_WhenRegisteredTheOldWayAndRead_ThenTheSame) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Device> cards = Several(LegacyCard);
    cards.push_back(LegacyCard());  // an empty list has no text of its own
    const auto read = DecodeRegisterLegacy(EncodeRegisterLegacy(cards));
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == cards);
  }));
}

TEST(CodecProperty, GivenAnyPairScores_WhenWrittenAndRead_ThenTheyAreTheSame) {
  EXPECT_TRUE(rc::check([] {
    PairScores scores;
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      auto& peers = scores[AnyText()];
      for (int j = *rc::gen::inRange(0, 4); j > 0; --j) peers[AnyText()] = Signed();
    }
    const auto read = DecodePairScores(EncodePairScores(scores));
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == scores);
  }));
}

TEST(CodecProperty, GivenAnyGrant_WhenWrittenAndRead_ThenItIsTheSame) {
  EXPECT_TRUE(rc::check([] {
    const PodGrant grant = Several([] { return Several([] { return Share{Name(), Name(), Number(), Number()}; }); });
    const auto read = DecodeGrant(EncodeGrant(grant));
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == grant);
  }));
}

TEST(CodecProperty, GivenAnyReservations_WhenWrittenAndRead_ThenTheyAreTheSame) {
  EXPECT_TRUE(rc::check([] {
    std::vector<MigReservation> list;
    std::set<std::pair<int, int>> places;  // one for each device of a container
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      MigReservation one{Number(), Number(), Name(), Name(), {Number(), 1 + Number() / 2}, "", -1, -1};
      if (*rc::gen::arbitrary<bool>()) {
        one.mig_uuid = Name();
        one.gpu_instance = Number();
        one.compute_instance = Number();
      }
      if (places.emplace(one.container, one.device).second) list.push_back(one);
    }
    const auto read = DecodeReservations(EncodeReservations(list));
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == list);
  }));
}

TEST(CodecProperty, GivenAnyMomentAndZone_WhenHandshakeIsReadBack_ThenSameMoment) {
  EXPECT_TRUE(rc::check([] {
    const LocalClock clock{*rc::gen::inRange<std::int64_t>(0, 253'402'200'000), *rc::gen::inRange(-50'400, 50'401)};
    RC_ASSERT(ParseRequesting(RequestingText(clock), clock.utc_offset_seconds) == clock.now);
  }));
}

}  // namespace
}  // namespace hami::device
