// SPDX-License-Identifier: Apache-2.0

#include "sched/workload_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/strings.h"

namespace hami::sched {
namespace {

constexpr double kMostWeight = 1e9;
constexpr std::size_t kMostClasses = 256;  // each costs every decision

enum class Kind { kWeight, kRequest, kLimit, kAnnotation };
struct Column {
  std::string name;
  Kind kind = Kind::kWeight;
};

bool IsResource(const device::Vendors& vendors, std::string_view name) {
  return std::any_of(vendors.begin(), vendors.end(), [&](const auto& vendor) {
    const std::vector<std::string_view> resources = vendor->resources();
    return vendor->count_resource() == name || std::find(resources.begin(), resources.end(), name) != resources.end();
  });
}

base::Result<std::vector<Column>> ReadHeader(std::string_view line, const device::Vendors& vendors) {
  std::vector<Column> columns;
  for (const std::string& part : base::Split(std::string(line), ',')) {
    const std::string name(base::Trim(part));
    if (name == "weight") {
      columns.push_back({name, Kind::kWeight});
    } else if (name == "cpu" || name == "memory") {
      columns.push_back({name, Kind::kRequest});
    } else if (IsResource(vendors, name)) {
      columns.push_back({name, Kind::kLimit});
    } else if (name.find('/') != std::string::npos) {
      columns.push_back({name, Kind::kAnnotation});
    } else {
      return base::Fail("column '" + base::Printable(name) + "' is no resource and no annotation",
                        "Columns are weight, cpu, memory, resources as pods ask for them, and annotations of pods.");
    }
  }
  return columns;
}

base::Status TakeWeight(std::string_view text, double& weight) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), weight);
  const bool good = read.ec == std::errc() && read.ptr == text.data() + text.size() && std::isfinite(weight) &&
                    weight > 0 && weight <= kMostWeight;
  return good ? base::Status() : base::Fail("weight '" + base::Printable(text) + "' is no number above 0");
}

base::Status TakeLine(std::string_view line, const std::vector<Column>& columns, const device::Vendors& vendors,
                      std::vector<RequestClass>& classes) {
  const std::vector<std::string> values = base::Split(std::string(line), ',');
  if (values.size() != columns.size()) {
    return base::Fail(
        base::Concat({std::to_string(values.size()), " values for ", std::to_string(columns.size()), " columns"}),
        "In an annotation, | divides the words of a list.");
  }
  device::Pod pod;
  device::Container& container = pod.containers.emplace_back();
  double weight = 1;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::string value(base::Trim(values[i]));
    if (value.empty()) continue;
    const std::string& name = columns[i].name;
    switch (columns[i].kind) {
      case Kind::kWeight:
        HAMI_TRY(TakeWeight(value, weight));
        break;
      case Kind::kRequest:
        container.requests[name] = value;
        break;
      case Kind::kLimit:
        container.limits[name] = value;
        break;
      case Kind::kAnnotation:
        std::replace(value.begin(), value.end(), '|', ',');
        pod.annotations[name] = value;
    }
  }
  const auto plan = MakePlan(pod, vendors, {});
  HAMI_TRY(plan);
  if (plan->empty()) return base::Fail("it asks for no device");
  for (RequestClass& one : ClassesOf(*plan)) {
    one.weight = weight;
    classes.push_back(std::move(one));
  }
  return {};
}

}  // namespace

base::Result<std::vector<RequestClass>> ReadWorkload(std::string_view text, const std::string& file,
                                                     const device::Vendors& vendors) {
  std::vector<Column> columns;
  std::vector<RequestClass> classes;
  std::size_t number = 0;
  for (const std::string& whole : base::Split(std::string(text), '\n')) {
    ++number;
    const std::string_view line = base::Trim(whole);
    if (line.empty() || line.front() == '#') continue;
    const auto at = [&](const base::Error& error) {
      return base::Fail(base::Concat({file, ":", std::to_string(number), ": ", error.message}), error.hint);
    };
    if (columns.empty()) {
      auto header = ReadHeader(line, vendors);
      if (!header) return at(header.error());
      columns = *std::move(header);
      continue;
    }
    if (const base::Status taken = TakeLine(line, columns, vendors, classes); !taken) return at(taken.error());
    if (classes.size() > kMostClasses) {
      return at({base::Concat({"more than ", std::to_string(kMostClasses), " classes"}), "Leave out the rarest."});
    }
  }
  if (classes.empty())
    return base::Fail(file + ": no class of pods is in it", "`hami-scheduler --help` names the form.");
  return classes;
}

}  // namespace hami::sched
