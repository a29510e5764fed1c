// SPDX-License-Identifier: Apache-2.0
//
// The section of one vendor in device-config.yaml, after ParseDeviceConfig has judged it: names, numbers and flags by
// key, absent ones as their default. And who reads which.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/config.h"
#include "device/vendor.h"

namespace hami::device {

class Section {
 public:
  Section(const OtherSections& all, std::string path) : all_(&all), path_(std::move(path)) {}

  std::string Text(std::string_view key) const;
  std::int64_t Integer(std::string_view key, std::int64_t otherwise = 0) const;
  bool Flag(std::string_view key) const;
  Section Inner(std::string_view key) const { return {*all_, path_ + "." + std::string(key)}; }
  // The members of a list, which is the section itself.
  std::vector<Section> Members() const;

 private:
  bool empty() const;
  const OtherSections* all_;
  std::string path_;
};

// Each adds what its section configures; a vendor whose count has no name is asked for by no pod, and not added.
void AddAmd(const OtherSections& config, Vendors& out);
void AddAscend(const OtherSections& config, Vendors& out);
void AddBiren(const OtherSections& config, Vendors& out);
void AddCambricon(const OtherSections& config, Vendors& out);
void AddEnflame(const OtherSections& config, Vendors& out);
void AddHygon(const OtherSections& config, Vendors& out);
void AddIluvatar(const OtherSections& config, Vendors& out);
void AddKunlun(const OtherSections& config, Vendors& out);
void AddMetax(const OtherSections& config, Vendors& out);
void AddMthreads(const OtherSections& config, Vendors& out);
void AddNeuron(const OtherSections& config, Vendors& out);
void AddVastai(const OtherSections& config, Vendors& out);

// Adds VENDOR if pods can ask for it.
void AddNamed(std::unique_ptr<const Vendor> vendor, Vendors& out);

// The multi-chip vendors are off in HAMi unless a flag names them.
struct VendorSwitches {
  bool ascend = false;
  bool iluvatar = false;
};

// NVIDIA first, then the others by name.
Vendors MakeVendors(const DeviceConfig& config, const VendorSwitches& switches);

// Which vendor a pod's request is for must be plain, and a node's books know 64 of them at most.
inline constexpr std::size_t kMostVendors = 64;
base::Status CheckVendors(const Vendors& vendors);

}  // namespace hami::device
