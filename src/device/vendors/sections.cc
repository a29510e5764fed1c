// SPDX-License-Identifier: Apache-2.0

#include "device/vendors/sections.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/strings.h"
#include "device/vendors/nvidia.h"

namespace hami::device {

std::string Section::Text(std::string_view key) const {
  const auto found = all_->find(base::Concat({path_, ".", key}));
  return found == all_->end() ? std::string() : found->second;
}

std::int64_t Section::Integer(std::string_view key, std::int64_t otherwise) const {
  std::string text = Text(key);
  std::erase(text, '_');
  return text.empty() ? otherwise : std::strtoll(text.c_str(), nullptr, 0);
}

bool Section::Flag(std::string_view key) const {
  const std::string text = base::ToLower(Text(key));
  return text == "true" || text == "yes" || text == "on" || text == "y" || text == "t" || text == "1";
}

bool Section::empty() const {
  const auto first = all_->lower_bound(path_);
  return first == all_->end() || !first->first.starts_with(path_);
}

std::vector<Section> Section::Members() const {
  std::vector<Section> members;
  for (;;) {
    Section next(*all_, base::Concat({path_, "[", std::to_string(members.size()), "]"}));
    if (next.empty()) return members;
    members.push_back(std::move(next));
  }
}

void AddNamed(std::unique_ptr<const Vendor> vendor, Vendors& out) {
  if (!vendor->resources().empty()) out.push_back(std::move(vendor));
}

Vendors MakeVendors(const DeviceConfig& config, const VendorSwitches& switches) {
  Vendors vendors;
  vendors.push_back(std::make_unique<NvidiaVendor>(config.nvidia));
  AddAmd(config.others, vendors);
  if (switches.ascend) AddAscend(config.others, vendors);
  AddBiren(config.others, vendors);
  AddCambricon(config.others, vendors);
  AddEnflame(config.others, vendors);
  AddHygon(config.others, vendors);
  if (switches.iluvatar) AddIluvatar(config.others, vendors);
  AddKunlun(config.others, vendors);
  AddMetax(config.others, vendors);
  AddMthreads(config.others, vendors);
  AddNeuron(config.others, vendors);
  AddVastai(config.others, vendors);
  return vendors;
}

base::Status CheckVendors(const Vendors& vendors) {
  if (vendors.size() > kMostVendors) {
    return base::Fail(base::Concat({std::to_string(vendors.size()), " kinds of devices are configured, and at most ",
                                    std::to_string(kMostVendors), " can be told apart"}),
                      "remove the sections of chips that the cluster does not have");
  }
  std::map<std::string_view, std::string_view> owners;
  for (const auto& vendor : vendors) {
    if (vendor->count_resource().empty()) continue;
    const auto [owner, is_new] = owners.emplace(vendor->count_resource(), vendor->key());
    if (is_new) continue;
    return base::Fail(base::Concat({owner->second, " and ", vendor->key(), " are both asked for by ", owner->first}),
                      "give each its own resource name");
  }
  return {};
}

}  // namespace hami::device
