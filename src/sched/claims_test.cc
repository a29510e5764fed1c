// SPDX-License-Identifier: Apache-2.0
//
// The fuzzer of claims (claims_fuzz.cc) with inputs that chance builds out of what hostile tenants write: every result
// key at once, good texts, bad ones, and good ones that were bent. HAMI_CLAIM_INPUTS: how many.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

class Inputs {
 public:
  std::string Next() {
    std::string text;
    for (int steps = 1 + Below(6); steps > 0; --steps) text += Step();
    return text;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  const char* Any(std::initializer_list<const char*> some) {
    return some.begin()[Below(static_cast<int>(some.size()))];
  }

  std::string Step() {
    std::string step(1, static_cast<char>('@' + Below(64)));
    step += Bent(Grant()) + "\t" + Any({"a", "a", "a", "b", "", "-"}) + "\t" + Bent(Places()) + "\t";
    step += Any({"0", "1700000000", "-", "-1", "99999999999999999999"});
    step += std::string("\t") + Any({"allocating", "success", "failed", "", "-"}) + "\t" + Any({"v1:00", "-", ""});
    step += "\t" + Grant() + "\t" + Any({"0", "-", "soon"}) + "\n";
    return step;
  }
  std::string Card() { return Any({"a-0", "a-1", "a-2", "b-0", "gone", ""}); }
  std::string Grant() {
    if (Below(8) == 0) return Any({"", "-", ";", "nonsense", ":;:;", ";;;;"});
    std::string text;
    for (int containers = 1 + Below(3); containers > 0; --containers) {
      for (int shares = Below(4); shares > 0; --shares) {
        text += Card() + ",NVIDIA," + Any({"0", "1", "3000", "16000", "999999999", "9223372036854775807", "-5"}) + "," +
                Any({"0", "20", "100", "2147483647", "-1"}) + ":";
      }
      text += ";";
    }
    return text;
  }
  std::string Places() {
    if (Below(3) > 0) return Any({"-", "", "[]", "{}", "[7]"});
    std::string text = "[";
    for (int places = 1 + Below(3); places > 0; --places) {
      text += R"({"containerIndex":)" + std::string(Any({"0", "1", "7"})) + R"(,"deviceIndex":)" +
              Any({"0", "1", "9"}) + R"(,"gpuUUID":")" + Card() + R"(","profile":"1g","placement":{"start":0,"size":)" +
              Any({"1", "0", "8"}) + "}}" + (places > 1 ? "," : "]");
    }
    return text;
  }
  std::string Bent(std::string text) {
    if (Below(4) > 0 || text.empty()) return text;
    const auto at = static_cast<std::size_t>(Below(static_cast<int>(text.size())));
    switch (Below(3)) {
      case 0:
        return text.erase(at, 1);
      case 1:
        text[at] = static_cast<char>(' ' + Below(95));
        return text;
      default:
        return text.substr(0, at);
    }
  }

  std::mt19937_64 random_{1};
};

TEST(ClaimsTest, HostileAnnotationsCostNobodyAnything) {
  const char* asked = std::getenv("HAMI_CLAIM_INPUTS");
#if defined(__SANITIZE_ADDRESS__)
  constexpr long kInputs = 20'000;  // of 1 ms each; the fuzzer has more
#else
  constexpr long kInputs = 100'000;
#endif
  const long count = asked == nullptr ? kInputs : std::atol(asked);
  Inputs inputs;
  for (long i = 0; i < count; ++i) {
    const std::string text = inputs.Next();
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  std::cout << count << " inputs\n";
}

}  // namespace
