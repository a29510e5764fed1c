// SPDX-License-Identifier: Apache-2.0

#include "cli/plan.h"

#include <algorithm>
#include <numeric>

namespace hami::cli {
namespace {

using base::FormatBytes;

std::uint64_t SaturatingSum(std::uint64_t a, std::uint64_t b) { return a > ~b ? ~std::uint64_t{0} : a + b; }

struct Fit {
  Grant grant;
  std::string obstacle;  // empty: it fits
};

// "3 GiB", and in bytes too where rounding would make two different figures look alike.
std::string Versus(std::uint64_t wanted, std::uint64_t available) {
  if (FormatBytes(wanted) != FormatBytes(available)) {
    return FormatBytes(wanted) + " asked for, " + FormatBytes(available) + " free";
  }
  return std::to_string(wanted) + " bytes asked for, " + std::to_string(available) + " free";
}

std::uint64_t WantedBytes(const Device& device, const Room& room, const Request& request) {
  if (!request.memory) return request.oversubscribe ? device.total_bytes : room.free_bytes;
  return BytesOf(*request.memory, device.total_bytes);
}

Fit TryDevice(const Device& device, const Room& room, const Request& request) {
  Fit fit;
  fit.grant.uuid = device.uuid;
  fit.grant.cores = request.cores;
  fit.grant.burst = request.burst;
  if (!device.trouble.empty()) {
    fit.obstacle = device.trouble;
    return fit;
  }
  const std::uint64_t wanted = WantedBytes(device, room, request);
  fit.grant.limit_bytes = wanted;
  fit.grant.reserved_bytes = std::min(wanted, room.free_bytes);
  if (wanted == 0) {
    fit.obstacle = "no memory is free";
  } else if (wanted > room.free_bytes && !request.oversubscribe) {
    fit.obstacle = Versus(wanted, room.free_bytes);
  } else if (request.cores > room.free_cores) {
    fit.obstacle =
        std::to_string(request.cores) + " % of the cores asked for, " + std::to_string(room.free_cores) + " % free";
  }
  return fit;
}

// Indices of the devices that the request names, or the reason why it can not be understood.
struct Selection {
  std::vector<std::size_t> devices;
  std::string refusal;
};

// A GPU that does not answer may not have told its UUID either, and then be the one that NAME means.
std::string UnknownGpu(const std::vector<Device>& devices, const std::string& name) {
  std::string silent;
  std::size_t count = 0;
  for (const Device& device : devices) {
    if (!device.uuid.empty()) continue;
    silent += (count++ == 0 ? "GPU " : " and GPU ") + std::to_string(device.index);
  }
  if (count == 0) return "there is no GPU '" + name + "' on this machine";
  return "there is no GPU '" + name + "' among those that answer; " + silent +
         (count == 1 ? " does not answer and may be it" : " do not answer and may be it");
}

Selection SelectNamed(const std::vector<Device>& devices, const std::vector<std::string>& names) {
  Selection selection;
  for (const std::string& name : names) {
    std::vector<std::size_t> matches;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].uuid == name) {
        matches = {i};
        break;
      }
      if (devices[i].uuid.starts_with(name)) matches.push_back(i);
    }
    if (matches.empty()) return {{}, UnknownGpu(devices, name)};
    if (matches.size() > 1) return {{}, "'" + name + "' is the beginning of more than one GPU's name"};
    const bool twice = std::count(selection.devices.begin(), selection.devices.end(), matches.front()) > 0;
    if (twice) return {{}, "GPU '" + name + "' is named twice"};
    selection.devices.push_back(matches.front());
  }
  if (selection.devices.empty()) return {{}, "no GPU is named"};
  return selection;
}

Plan PlanNamed(const std::vector<Device>& devices, std::vector<Room> rooms, const std::vector<std::string>& names,
               const Request& request) {
  Plan plan;
  plan.rooms = std::move(rooms);
  const Selection selection = SelectNamed(devices, names);
  plan.refusal = selection.refusal;
  if (!plan.refusal.empty()) return plan;
  for (const std::size_t i : selection.devices) {
    Fit fit = TryDevice(devices[i], plan.rooms[i], request);
    plan.rooms[i].obstacle = fit.obstacle;
    if (!fit.obstacle.empty()) plan.refusal = "the GPU asked for has no room for this";
    plan.grants.push_back(std::move(fit.grant));
  }
  if (plan.refusal.empty()) return plan;
  plan.grants.clear();
  for (std::size_t i = 0; i < plan.rooms.size(); ++i) {
    const bool named = std::count(selection.devices.begin(), selection.devices.end(), i) > 0;
    if (!named && plan.rooms[i].obstacle.empty()) plan.rooms[i].obstacle = "not asked for";
  }
  return plan;
}

Plan PlanAny(const std::vector<Device>& devices, std::vector<Room> rooms, unsigned count, const Request& request) {
  Plan plan;
  plan.rooms = std::move(rooms);
  if (count == 0) {
    plan.refusal = "at least one GPU must be asked for";
    return plan;
  }
  if (count > devices.size()) {
    plan.refusal = std::to_string(count) + " GPUs asked for, this machine has " + std::to_string(devices.size());
    return plan;
  }
  std::vector<std::size_t> order(devices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const std::uint64_t free_a = plan.rooms[a].free_bytes;
    const std::uint64_t free_b = plan.rooms[b].free_bytes;
    return request.policy == Policy::kSpread ? free_a > free_b : free_a < free_b;
  });
  for (const std::size_t i : order) {
    Fit fit = TryDevice(devices[i], plan.rooms[i], request);
    plan.rooms[i].obstacle = fit.obstacle;
    if (fit.obstacle.empty() && plan.grants.size() < count) plan.grants.push_back(std::move(fit.grant));
  }
  if (plan.grants.size() < count) {
    const std::size_t fitting = plan.grants.size();
    plan.grants.clear();
    plan.refusal = fitting == 0 ? "no GPU has room for this"
                                : std::to_string(count) + " GPUs asked for, only " + std::to_string(fitting) +
                                      " with room for this";
  }
  return plan;
}

}  // namespace

std::uint64_t BytesOf(const base::Portion& memory, std::uint64_t total) {
  if (const auto* bytes = std::get_if<base::Bytes>(&memory)) return base::Count(*bytes);
  // Divided first so that nothing overflows.
  return total / base::kMiB * std::get<base::Percent>(memory).value / 100 * base::kMiB;
}

std::vector<Room> CountRoom(const std::vector<Device>& devices, const std::vector<Holder>& holders) {
  std::vector<Room> rooms;
  for (const Device& device : devices) {
    Room room;
    room.index = device.index;
    room.uuid = device.uuid;
    room.obstacle = device.trouble;
    std::uint64_t taken = device.outside_bytes;
    unsigned cores = 0;
    for (const Holder& holder : holders) {
      bool here = false;
      for (const Grant& grant : holder.grants) {
        if (grant.uuid != device.uuid) continue;
        taken = SaturatingSum(taken, grant.reserved_bytes);
        cores = std::min(100u, cores + std::min(100u, grant.cores));
        here = true;
      }
      if (here) ++room.shares;
    }
    if (device.trouble.empty()) {
      room.free_bytes = device.total_bytes - std::min(device.total_bytes, taken);
      room.free_cores = 100 - cores;
    } else {
      room.free_cores = 0;
    }
    rooms.push_back(std::move(room));
  }
  return rooms;
}

Plan MakePlan(const std::vector<Device>& devices, const std::vector<Holder>& holders, const Request& request) {
  std::vector<Room> rooms = CountRoom(devices, holders);
  if (const auto* names = std::get_if<std::vector<std::string>>(&request.gpus)) {
    return PlanNamed(devices, std::move(rooms), *names, request);
  }
  return PlanAny(devices, std::move(rooms), std::get<AnyGpus>(request.gpus).count, request);
}

}  // namespace hami::cli
