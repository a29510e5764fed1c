// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/entry_points.h"

#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <set>
#include <string>

namespace simgpu {
namespace {

// The symbol that a look-up leads to; "unknown" and "too old" for the two refusals.
std::string Found(std::string_view name, int version, bool per_thread) {
  static const std::map<void (*)(), std::string_view>& symbols = *[] {
    auto* all = new std::map<void (*)(), std::string_view>;
    for (const EntryPoint& entry : EntryPoints()) all->emplace(entry.address, entry.symbol);
    return all;
  }();
  void (*address)() = nullptr;
  switch (FindEntryPoint(name, version, per_thread, &address)) {
    case Lookup::kUnknownName:
      return address == nullptr ? "unknown" : "unknown, but an address";
    case Lookup::kVersionTooOld:
      return address == nullptr ? "too old" : "too old, but an address";
    case Lookup::kFound:
      break;
  }
  return std::string(symbols.at(address));
}

// Versions of one name, as the list has them: since -> symbol, and symbol -> per-thread twin.
struct Versions {
  std::map<int, std::string> plain;
  std::map<std::string, std::pair<int, std::string>> twin;
};

std::map<std::string, Versions> VersionsByName() {
  std::map<std::string, Versions> names;
  for (const EntryPoint& entry : EntryPoints()) {
    Versions& versions = names[std::string(entry.asked_as)];
    if (entry.flavour == Flavour::kPlain) {
      versions.plain[entry.since] = entry.symbol;
    } else {
      const std::string symbol(entry.symbol);
      versions.twin[symbol.substr(0, symbol.size() - 5)] = {entry.since, symbol};
    }
  }
  return names;
}

std::string Expected(const Versions& versions, int version, bool per_thread) {
  auto after = versions.plain.upper_bound(version);
  if (after == versions.plain.begin()) return "too old";
  const std::string symbol = std::prev(after)->second;
  if (!per_thread) return symbol;
  const auto twin = versions.twin.find(symbol);
  return twin != versions.twin.end() && twin->second.first <= version ? twin->second.second : symbol;
}

TEST(EntryPoints, GivenEveryRowWhenAskedAroundItsVersionThenTheRuleHolds) {
  int checks = 0;
  for (const auto& [name, versions] : VersionsByName()) {
    std::set<int> boundaries = {0, 13990};
    for (const auto& [since, symbol] : versions.plain) boundaries.insert({since - 1, since, since + 1});
    for (const auto& [symbol, twin] : versions.twin) boundaries.insert({twin.first - 1, twin.first, twin.first + 1});
    for (const int version : boundaries) {
      for (const bool per_thread : {false, true}) {
        EXPECT_EQ(Found(name, version, per_thread), Expected(versions, version, per_thread))
            << name << " " << version << " " << per_thread;
        ++checks;
      }
    }
  }
  EXPECT_GT(checks, 4000);
}

TEST(EntryPoints, GivenEveryTwin_ThenItBelongsToPlainSymbolOfSameName) {
  for (const auto& [name, versions] : VersionsByName()) {
    std::set<std::string> plain;
    for (const auto& [since, symbol] : versions.plain) plain.insert(symbol);
    for (const auto& [symbol, twin] : versions.twin) EXPECT_TRUE(plain.contains(symbol)) << twin.second;
  }
}

struct Case {
  const char* name;
  int version;
  bool per_thread;
  const char* symbol;
};

TEST(EntryPoints, GivenWhatRuntimesAskForOnPurpose_ThenTheyGetThatVersion) {
  const Case cases[] = {
      {"cuDevicePrimaryCtxRelease", 7000, false, "cuDevicePrimaryCtxRelease"},
      {"cuDevicePrimaryCtxRelease", 11000, false, "cuDevicePrimaryCtxRelease_v2"},
      {"cuDeviceGetUuid", 9020, false, "cuDeviceGetUuid"},
      {"cuDeviceGetUuid", 11040, false, "cuDeviceGetUuid_v2"},
      {"cuCtxGetDevice", 2000, false, "cuCtxGetDevice"},
      {"cuCtxGetDevice", 13000, false, "cuCtxGetDevice_v2"},
      {"cuCtxSynchronize", 12090, false, "cuCtxSynchronize"},
      {"cuCtxSynchronize", 13000, false, "cuCtxSynchronize_v2"},
      {"cuCtxCreate", 3020, false, "cuCtxCreate_v2"},
      {"cuLinkCreate", 5050, false, "cuLinkCreate"},
      {"cuLinkCreate", 6050, false, "cuLinkCreate_v2"},
      {"cuMemAdvise", 8000, false, "cuMemAdvise"},
      {"cuMemPrefetchAsync", 12020, true, "cuMemPrefetchAsync_v2_ptsz"},
      {"cuGraphInstantiate", 10000, false, "cuGraphInstantiate"},
      {"cuGraphInstantiate", 11000, false, "cuGraphInstantiate_v2"},
      {"cuGraphInstantiate", 12000, false, "cuGraphInstantiateWithFlags"},
      {"cuGraphInstantiateWithFlags", 11040, false, "cuGraphInstantiateWithFlags"},
      {"cuStreamGetCaptureInfo", 10010, false, "cuStreamGetCaptureInfo"},
      {"cuStreamGetCaptureInfo", 11030, true, "cuStreamGetCaptureInfo_v2_ptsz"},
      {"cuStreamGetCaptureInfo", 12030, false, "cuStreamGetCaptureInfo_v3"},
      {"cuEventElapsedTime", 12070, false, "cuEventElapsedTime"},
      {"cuEventElapsedTime", 12080, false, "cuEventElapsedTime_v2"},
      {"cuMemcpyHtoD", 12000, true, "cuMemcpyHtoD_v2_ptds"},
      {"cuMemcpyHtoD", 6050, true, "cuMemcpyHtoD_v2"},
      {"cuMemAlloc", 12000, true, "cuMemAlloc_v2"},
      {"cuGetProcAddress", 11030, false, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, false, "cuGetProcAddress_v2"},
      {"cuInit", 1000, false, "too old"},
      {"cuLibraryLoadData", 11080, false, "too old"},
      {"", 0, false, "unknown"},
      {"cuInit_v2", 12000, false, "unknown"},
      {"cuGLGetDevices", 12000, false, "unknown"},
  };
  for (const Case& c : cases) EXPECT_EQ(Found(c.name, c.version, c.per_thread), c.symbol) << c.name << c.version;
}

}  // namespace
}  // namespace simgpu
