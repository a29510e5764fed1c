// SPDX-License-Identifier: Apache-2.0
//
// The keys of the configuration language: which there are, what values they take and where they go. Every refusal says
// what would be right. Options, profiles and devices are in config_values.cc, changes in config_changes.cc.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "simgpu/machine/config.h"

namespace simgpu {

// One text from its parts.
inline std::string Text(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text.append(part);
  return text;
}

// A refusal: VALUE is none of KEY's, and RIGHT would be.
inline std::string Bad(std::string_view key, std::string_view value, std::string_view right) {
  return Text({"'", value, "' is no value of ", key, "; ", right});
}
inline std::string Range(std::uint64_t low, std::uint64_t high) {
  return Text({"write a whole number from ", std::to_string(low), " to ", std::to_string(high)});
}
// The names of a table's rows.
template <typename Table>
std::string Names(const Table& table) {
  std::string names;
  for (const auto& row : table) names.append(names.empty() ? "" : ", ").append(row.name);
  return names;
}

// Digits only (or 0x and hexadecimal digits), within [low, high].
bool ParseUnsigned(std::string_view text, std::uint64_t low, std::uint64_t high, std::uint64_t* out);

bool SetOption(std::string_view key, std::string_view value, Options* options, std::string* why);
bool SetDeviceField(std::string_view key, std::string_view value, DeviceSpec* spec, std::string* why);

// The keys of a Profile are options (for all devices) and fields of a device alike.
bool IsProfileKey(std::string_view key);
bool SetProfileField(std::string_view key, std::string_view value, Profile* profile, std::string* why);

bool StartChange(std::string_view verb, Change* change);
bool SetChangeField(std::string_view key, std::string_view value, Change* change, std::string* why);
// Whether what a statement needs was said.
bool FinishChange(const Change& change, std::string* why);

}  // namespace simgpu
