// SPDX-License-Identifier: Apache-2.0
//
// Amounts in all spellings, in every resource of a vendor and in quotas, against an arithmetic of its own in exact
// fractions: what is granted is never more than was plainly asked and never above the card, and what is written is
// never taken for nothing. HAMI_AMOUNTS=10000000 in the environment looks further, HAMI_AMOUNTS_SEED=2 elsewhere.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstdlib>
#include <random>

#include "sched/evaluate.h"
#include "sched/testing/samples.h"
#include "sched/webhook.h"

namespace hami::sched {
namespace {

using Exact = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

constexpr const char* kSuffixes[] = {"",   "",   "",   "",    "n",   "u",   "m",   "k",   "M",
                                     "G",  "T",  "P",  "E",   "Ki",  "Mi",  "Gi",  "Ti",  "Pi",
                                     "Ei", "e3", "E3", "e-3", "e+6", "e12", "e30", "e-30"};
constexpr const char* kNumbers[] = {"0",
                                    "1",
                                    "2",
                                    "3",
                                    "10",
                                    "16",
                                    "100",
                                    "101",
                                    "150",
                                    "1000",
                                    "4096",
                                    "16384",
                                    "16385",
                                    "16777215",
                                    "16777216",
                                    "1048576",
                                    "0.5",
                                    "1.5",
                                    "1.0",
                                    "0.25",
                                    "20000000",
                                    "2147483647",
                                    "2147483648",
                                    "4294967296",
                                    "1.25",
                                    "00016",
                                    ".5",
                                    "5.",
                                    "0.001",
                                    "999999999",
                                    "1000000000",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "340282366920938463463374607431768211456"};
constexpr const char* kNonsense[] = {"",   "?",  "-1",  "-0",    "+5",   "1Ki ", " 1", "1gi",  "1K",
                                     "e3", "1e", "--1", "1.2.3", "0x10", "1,5",  "Gi", "16 Gi"};

struct Spelling {
  std::string text;
  std::optional<Exact> number;  // nothing: no quantity
  bool binary = false;
};

Integer Power(int base, int exponent) {
  Integer power = 1;
  for (int i = 0; i < exponent; ++i) power *= base;
  return power;
}

Exact FactorOf(std::string_view suffix, bool& binary) {
  constexpr std::string_view kDecimal = "kMGTPE";
  constexpr std::string_view kBinary = "KMGTPE";
  constexpr std::string_view kSmall = "mun";
  binary = suffix.size() == 2 && suffix[1] == 'i';
  if (suffix.empty()) return 1;
  if (binary) return Exact(Power(1024, static_cast<int>(kBinary.find(suffix[0])) + 1));
  if (suffix.size() > 1) {
    const int exponent = std::atoi(std::string(suffix.substr(1)).c_str());
    return exponent < 0 ? Exact(1, Power(10, -exponent)) : Exact(Power(10, exponent));
  }
  if (const auto at = kDecimal.find(suffix[0]); at != std::string_view::npos) {
    return Exact(Power(1000, static_cast<int>(at) + 1));
  }
  return Exact(1, Power(1000, static_cast<int>(kSmall.find(suffix[0])) + 1));
}

Exact DecimalOf(std::string_view digits) {
  Integer mantissa = 0;
  int places = 0;
  bool point = false;
  for (const char c : digits) {
    if (c == '.') {
      point = true;
      continue;
    }
    mantissa = mantissa * 10 + (c - '0');
    places += point ? 1 : 0;
  }
  return Exact(mantissa, Power(10, places));
}

class Spellings {
 public:
  explicit Spellings(unsigned seed) : random_(seed) {}
  std::size_t Below(std::size_t n) { return random_() % n; }

  Spelling Next() {
    if (Below(16) == 0) return Odd(kNonsense[Below(std::size(kNonsense))]);
    std::string number = kNumbers[Below(std::size(kNumbers))];
    if (Below(3) == 0) number = std::to_string(Below(3) == 0 ? random_() : Below(40'000));
    if (Below(8) == 0) number += "." + std::to_string(Below(1000));
    if (std::count(number.begin(), number.end(), '.') > 1) return Odd(number + "Mi");
    const std::string suffix = kSuffixes[Below(std::size(kSuffixes))];
    Spelling spelling{number + suffix, std::nullopt, false};
    const Exact factor = FactorOf(suffix, spelling.binary);
    spelling.number = DecimalOf(number) * factor;
    return spelling;
  }

 private:
  static Spelling Odd(const std::string& text) {
    if (text == "-0") return {text, Exact(0), false};
    if (text == "+5") return {text, Exact(5), false};
    if (text == "-1") return {text, Exact(-1), false};
    return {text, std::nullopt, false};
  }
  std::minstd_rand random_;
};

// MiB that a text plainly asks for, at most; nothing where it says nothing that could be.
Exact PlainMiB(const Spelling& spelling, std::int64_t factor) {
  return spelling.binary ? *spelling.number / Exact(1 << 20) : *spelling.number * Exact(factor);
}

class Amounts : public ::testing::Test {
 protected:
  static constexpr device::MiB kCard = 16384;

  void Round(Spellings& dice, bool admission) {
    const Spelling count = dice.Below(2) == 0 ? Spelling{"1", Exact(1), false} : dice.Next();
    const bool has[] = {dice.Below(4) != 0, dice.Below(3) == 0, dice.Below(3) == 0};
    const Spelling memory = dice.Next();
    const Spelling percent = dice.Next();
    const Spelling cores = dice.Next();
    device::Container container;
    container.name = "c";
    container.limits["nvidia.com/gpu"] = count.text;
    if (has[0]) container.limits["nvidia.com/gpumem"] = memory.text;
    if (has[1]) container.limits["nvidia.com/gpumem-percentage"] = percent.text;
    if (has[2]) container.limits["nvidia.com/gpucores"] = cores.text;
    SCOPED_TRACE(count.text + " of " + (has[0] ? memory.text : "-") + ", " + (has[1] ? percent.text : "-") + " %, " +
                 (has[2] ? cores.text : "-") + " cores");
    device::Pod pod = testing::PodOf("p", container);
    if (admission) Admitted(pod);
    const auto plan = MakePlan(pod, vendors_, {});
    const bool zero = count.number && *count.number == 0;
    if (!plan) {
      ++refused_;
      ASSERT_FALSE(plan.error().message.empty());
      return;
    }
    ASSERT_EQ(plan->empty(), zero) << "what is written is never taken for nothing";
    if (zero) return;
    ++asked_;
    Placement placement;
    if (!Evaluate(*node_, *plan, vendors_, {}, nullptr, &placement).fits) return;
    ++placed_;
    ASSERT_EQ(placement.size(), 1U);
    ASSERT_EQ(Exact(placement[0].picks.size()), *count.number);
    for (const device::Pick& pick : placement[0].picks) {
      ASSERT_LE(pick.memory, kCard);
      ASSERT_GE(pick.memory, 0);
      ASSERT_LE(pick.cores, 100);
      const bool memory_given = has[0] && *memory.number != 0;
      if (memory_given) {
        ASSERT_LE(Exact(pick.memory), PlainMiB(memory, factor_));
        ASSERT_GT(pick.memory, 0);
      }
      if (!memory_given && has[1] && *percent.number != 0) {
        ASSERT_LE(Exact(pick.memory), *percent.number * Exact(kCard) / 100);
      }
      ASSERT_LE(Exact(pick.cores), has[2] ? *cores.number : Exact(pick.cores));
    }
  }

  // As the webhook would have it: admission refuses what a decision refuses, and never gives it another meaning.
  void Admitted(device::Pod& pod) {
    base::json::object limits;
    for (const auto& [resource, text] : pod.containers[0].limits) limits[resource] = text;
    const base::json::value document{
        {"spec", {{"containers", {{{"name", "c"}, {"resources", {{"limits", limits}}}}}}}}};
    const auto before = MakePlan(pod, vendors_, {});
    const Admission admission = Admit(document, {"hami-scheduler", true}, vendors_,
                                      [&](const auto& traits) { return quotas_.Rooms("default", traits); });
    if (!before) {
      ASSERT_FALSE(admission.allowed);
    }
    for (const auto& operation : admission.patch) {
      const auto& change = operation.as_object();
      const std::string path = change.at("path").as_string().c_str();
      if (path.find("gpumem") == std::string::npos || path.find("percentage") != std::string::npos) continue;
      pod.containers[0].limits["nvidia.com/gpumem"] = change.at("value").as_string().c_str();
    }
    if (admission.patch.empty() || !before) return;
    const auto after = MakePlan(pod, vendors_, {});
    ASSERT_TRUE(after);
    ASSERT_EQ(after->containers[0].asks.empty(), before->containers[0].asks.empty());
    if (!after->empty()) {
      ASSERT_EQ(after->containers[0].asks[0].request, before->containers[0].asks[0].request);
    }
  }

  void Quota(Spellings& dice) {
    const Spelling memory = dice.Next();
    SCOPED_TRACE(memory.text);
    quotas_.Set("limited", "q",
                {{"limits.nvidia.com/gpumem", memory.text}, {"limits.nvidia.com/gpucores", memory.text}});
    const QuotaRoom room = quotas_.Room("limited", {}, 0);
    ASSERT_TRUE(room.memory && room.cores) << "a limit that was meant never becomes none";
    ASSERT_GE(*room.memory, 0);
    const bool read = memory.number && *memory.number >= 0;
    ASSERT_LE(Exact(*room.memory), read ? PlainMiB(memory, factor_) : Exact(0));
    ASSERT_LE(Exact(*room.cores), read ? *memory.number : Exact(0));
  }

  void Run(std::int64_t factor, unsigned seed) {
    factor_ = factor;
    device::NvidiaConfig config = testing::DefaultNvidia();
    config.memory_factor = factor;
    vendors_ = testing::NvidiaOnly(config);
    node_ = std::make_unique<Node>("a", 1);
    node_->SetCards(0, testing::Cards("a", 4, kCard), vendors_);
    const char* wanted = std::getenv("HAMI_AMOUNTS");
    const long inputs = wanted == nullptr ? 100'000 : std::atol(wanted);
    const char* other = std::getenv("HAMI_AMOUNTS_SEED");
    Spellings dice(seed + (other == nullptr ? 0U : static_cast<unsigned>(std::atol(other))));
    for (long i = 0; i < inputs && !HasFatalFailure(); ++i) {
      if (i % 8 == 7) {
        Quota(dice);
      } else {
        Round(dice, i % 8 == 3);
      }
    }
    std::printf("%ld inputs: %ld refused, %ld asked, %ld placed\n", inputs, refused_, asked_, placed_);
    EXPECT_GT(placed_, inputs / 50);
    EXPECT_GT(refused_, inputs / 50);
  }

  std::int64_t factor_ = 1;
  device::Vendors vendors_;
  std::unique_ptr<Node> node_;
  QuotaBooks quotas_{vendors_};
  long refused_ = 0;
  long asked_ = 0;
  long placed_ = 0;
};

TEST_F(Amounts, AGrantIsNeverMoreThanWasPlainlyAsked) { Run(1, 20261126); }
TEST_F(Amounts, NorWithAFactor) { Run(256, 7); }

}  // namespace
}  // namespace hami::sched
