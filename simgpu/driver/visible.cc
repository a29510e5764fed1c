// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/visible.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

namespace simgpu {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The whole GPU, or its first compute instance when it is in MIG mode.
std::optional<Selected> Default(const std::vector<Candidate>& gpus, int machine) {
  const Candidate& gpu = gpus[static_cast<std::size_t>(machine)];
  if (!gpu.mig_enabled) return Selected{machine, -1};
  if (gpu.instances.empty()) return std::nullopt;
  return Selected{machine, 0};
}

// A prefix names a GPU when it fits exactly one.
std::optional<Selected> ByUuid(const std::vector<Candidate>& gpus, std::string_view prefix) {
  std::optional<Selected> found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!std::string_view(gpus[i].uuid).starts_with(prefix)) continue;
    if (found) return std::nullopt;
    found = Default(gpus, static_cast<int>(i));
    if (!found) return std::nullopt;
  }
  return found;
}

// "MIG-GPU-<uuid>/<gi>/<ci>", the name of drivers before R470.
std::optional<Selected> ByOldMigName(const std::vector<Candidate>& gpus, std::string_view name) {
  name.remove_prefix(std::string_view("MIG-").size());
  const std::size_t first = name.find('/');
  const std::size_t second = first == name.npos ? name.npos : name.find('/', first + 1);
  if (second == name.npos) return std::nullopt;
  const auto gi = Number(name.substr(first + 1, second - first - 1));
  const auto ci = Number(name.substr(second + 1));
  for (std::size_t i = 0; i < gpus.size() && gi && ci; ++i) {
    if (gpus[i].uuid != name.substr(0, first)) continue;
    for (std::size_t k = 0; k < gpus[i].instances.size(); ++k) {
      if (gpus[i].instances[k].gpu_instance == *gi && gpus[i].instances[k].compute_instance == *ci) {
        return Selected{static_cast<int>(i), static_cast<int>(k)};
      }
    }
  }
  return std::nullopt;
}

std::optional<Selected> ByMigName(const std::vector<Candidate>& gpus, std::string_view name) {
  if (name.starts_with("MIG-GPU-")) return ByOldMigName(gpus, name);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t k = 0; k < gpus[i].instances.size(); ++k) {
      if (gpus[i].instances[k].uuid == name) return Selected{static_cast<int>(i), static_cast<int>(k)};
    }
  }
  return std::nullopt;
}

std::optional<Selected> Find(const std::vector<Candidate>& gpus, const std::vector<int>& order,
                             std::string_view entry) {
  if (entry.starts_with("MIG-")) return ByMigName(gpus, entry);
  if (entry.starts_with("GPU-")) return ByUuid(gpus, entry);
  const auto index = Number(entry);
  if (!index || *index < 0 || static_cast<std::size_t>(*index) >= order.size()) return std::nullopt;
  return Default(gpus, order[static_cast<std::size_t>(*index)]);
}

}  // namespace

std::vector<Selected> SelectDevices(const std::vector<Candidate>& gpus, const char* visible, bool pci_order) {
  std::vector<int> order(gpus.size());
  std::iota(order.begin(), order.end(), 0);
  if (!pci_order) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return gpus[static_cast<std::size_t>(a)].speed > gpus[static_cast<std::size_t>(b)].speed;
    });
  }

  std::vector<Selected> selected;
  if (visible == nullptr) {
    for (const int machine : order) {
      if (const auto device = Default(gpus, machine)) selected.push_back(*device);
    }
    return selected;
  }
  std::string_view rest(visible);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const auto device = Find(gpus, order, Trim(rest.substr(0, comma)));
    if (!device) break;
    const bool twice = std::any_of(selected.begin(), selected.end(),
                                   [&](const Selected& other) { return other.machine == device->machine; });
    if (twice) return {};
    selected.push_back(*device);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
  }
  return selected;
}

}  // namespace simgpu
