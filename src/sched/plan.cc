// SPDX-License-Identifier: Apache-2.0

#include "sched/plan.h"

#include <algorithm>

#include "base/strings.h"
#include "device/annotations.h"

namespace hami::sched {
namespace {

using base::Result;

Result<ContainerPlan> PlanContainer(const device::Container& container, Role role, const device::Vendors& vendors) {
  ContainerPlan plan;
  plan.role = role;
  for (std::size_t i = 0; i < vendors.size(); ++i) {
    const auto request = vendors[i]->ParseRequest(container);
    HAMI_TRY(request);
    if (*request) plan.asks.push_back({static_cast<int>(i), **request});
  }
  return plan;
}

// Numbers are closed by ';' and lists by '|', texts carry their length: no two shapes read the same.
class ShapeText {
 public:
  void Number(std::int64_t number) {
    text_ += std::to_string(number);
    text_ += ';';
  }
  void Text(std::string_view text) {
    Number(static_cast<std::int64_t>(text.size()));
    text_ += text;
  }
  void List(const std::vector<std::string>& list) {
    for (const std::string& item : list) Text(item);
    text_ += '|';
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// Amounts of CPU and memory that are within a quarter of each other share a verdict: they only shift a score.
std::int64_t HostStep(std::int64_t amount) {
  std::int64_t step = 1;
  while (step < amount) step += std::max<std::int64_t>(step / 4, 1);
  return amount <= 0 ? 0 : step;
}

std::string ShapeOf(const Plan& plan, std::string_view device_policy) {
  ShapeText shape;
  shape.Text(device_policy);
  shape.Number(plan.spread_nodes ? 1 : 0);
  if (plan.Fragments()) {
    shape.Number(plan.fragment_nodes ? 1 : 0);
    shape.Number(HostStep(plan.host.cpu));
    shape.Number(HostStep(plan.host.memory));
  }
  shape.Number(plan.weights.slot);
  shape.Number(plan.weights.core);
  shape.Number(plan.weights.memory);
  for (const ContainerPlan& container : plan.containers) {
    shape.Number(static_cast<std::int64_t>(container.role));
    shape.Number(static_cast<std::int64_t>(container.asks.size()));
    for (const Ask& ask : container.asks) {
      shape.Number(ask.vendor);
      shape.Number(ask.request.count);
      shape.Number(ask.request.memory);
      shape.Number(ask.request.memory_percent);
      shape.Number(ask.request.cores);
    }
  }
  for (const device::CardRules& rules : plan.rules) {
    if (rules == device::CardRules{}) {
      shape.Number(-1);
      continue;
    }
    shape.List(rules.use_types);
    shape.List(rules.avoid_types);
    shape.List(rules.use_uuids);
    shape.List(rules.avoid_uuids);
    shape.Number(rules.numa_bind ? 1 : 0);
    shape.Text(rules.mode);
    for (const auto& [word, text] : rules.words) {
      shape.Text(word);
      shape.Text(text);
    }
  }
  return shape.Take();
}

std::string_view Chosen(const device::StringMap& annotations, const char* key, const std::string& fallback) {
  const std::string* text = device::Find(annotations, key);
  return text == nullptr || text->empty() ? std::string_view(fallback) : std::string_view(*text);
}

}  // namespace

bool Plan::Asks(int vendor) const {
  return std::any_of(containers.begin(), containers.end(), [&](const ContainerPlan& container) {
    return std::any_of(container.asks.begin(), container.asks.end(),
                       [&](const Ask& ask) { return ask.vendor == vendor; });
  });
}

bool Plan::Fragments() const {
  return fragment_nodes ||
         std::any_of(policies.begin(), policies.end(), [](const DevicePolicy& policy) { return policy.fragmentation; });
}

bool Plan::empty() const {
  return std::all_of(containers.begin(), containers.end(),
                     [](const ContainerPlan& container) { return container.asks.empty(); });
}

Result<std::vector<ContainerPlan>> PlanContainers(const device::Pod& pod, const device::Vendors& vendors) {
  std::vector<ContainerPlan> plans;
  plans.reserve(pod.init_containers.size() + pod.containers.size());
  for (const device::InitContainer& container : pod.init_containers) {
    auto plan = PlanContainer(container, container.sidecar ? Role::kSidecar : Role::kInit, vendors);
    HAMI_TRY(plan);
    plans.push_back(*std::move(plan));
  }
  for (const device::Container& container : pod.containers) {
    auto plan = PlanContainer(container, Role::kApp, vendors);
    HAMI_TRY(plan);
    plans.push_back(*std::move(plan));
  }
  return plans;
}

Result<Plan> MakePlan(const device::Pod& pod, const device::Vendors& vendors, const PolicyDefaults& defaults) {
  Plan plan;
  auto containers = PlanContainers(pod, vendors);
  HAMI_TRY(containers);
  plan.containers = *std::move(containers);
  if (plan.empty()) return plan;

  const std::string* text = device::Find(pod.annotations, device::kScoringWeights);
  if (text != nullptr && !text->empty()) {
    const Result<device::ScoringWeights> weights = device::ParseScoringWeights(*text);
    HAMI_TRY(weights);
    plan.weights = *weights;
  }
  const std::string_view node_policy = Chosen(pod.annotations, device::kNodePolicy, defaults.node);
  plan.spread_nodes = SpreadsNodes(node_policy);
  plan.fragment_nodes = node_policy == kFragmentation;
  plan.host = HostRequest(pod);
  const std::string_view device_policy = Chosen(pod.annotations, device::kDevicePolicy, defaults.device);
  for (std::size_t v = 0; v < vendors.size(); ++v) {
    const bool asked = plan.Asks(static_cast<int>(v));
    plan.rules.push_back(asked ? vendors[v]->ParseRules(pod.annotations) : device::CardRules{});
    plan.marks.push_back(asked ? vendors[v]->MarksOf(pod.annotations) : device::Marks{0});
    plan.policies.push_back(asked ? ParseDevicePolicy(device_policy, plan.rules.back().numa_bind) : DevicePolicy{});
  }
  plan.shape = ShapeOf(plan, device_policy);
  return plan;
}

}  // namespace hami::sched
