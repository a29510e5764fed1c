// SPDX-License-Identifier: Apache-2.0
//
// Admission of one container: what is implied is written out, so that the scheduler, the plugin and the user see the
// same request.

#include "base/strings.h"
#include "device/json_edit.h"
#include "device/quantity.h"
#include "device/vendors/nvidia.h"

namespace hami::device {
namespace {

using base::Fail;
using base::Result;
using base::Status;
namespace json = base::json;

Container Read(const json::object& object) {
  Container container;
  container.name = base::GetString(object, "name").value_or("");
  const json::value* resources = object.if_contains("resources");
  if (resources == nullptr || !resources->is_object()) return container;
  const auto fill = [&](const char* key, StringMap& out) {
    const json::value* map = resources->get_object().if_contains(key);
    if (map == nullptr || !map->is_object()) return;
    for (const json::key_value_pair& pair : map->get_object()) {
      out.emplace(std::string(pair.key().data(), pair.key().size()), QuantityText(pair.value()));
    }
  };
  fill("limits", container.limits);
  fill("requests", container.requests);
  return container;
}

bool Limits(const Container& container, const std::string& resource) {
  return !resource.empty() && container.limits.contains(resource);
}

Status CheckPercent(const Container& container, const std::string& resource) {
  const std::string* text = container.Resource(resource);
  if (text == nullptr) return {};
  const auto percent = QuantityAsInt64(*text);
  if (percent && *percent >= 0 && *percent <= 100) return {};
  return Fail(base::Concat({"invalid ", resource, " value ", base::Printable(*text), " in container ", container.name,
                            ": must be an integer between 0 and 100"}));
}

// Whoever asks for whole cards gets them to himself.
bool ImpliesAllCores(const Container& container, const NvidiaConfig& config) {
  if (config.core_resource.empty() || container.Resource(config.core_resource) != nullptr) return false;
  if (config.memory_resource.empty()) return true;
  const std::string* percent = container.Resource(config.memory_percent_resource);
  if (percent != nullptr) return QuantityAsInt64(*percent) == 100;
  return container.Resource(config.memory_resource) == nullptr;
}

}  // namespace

Result<bool> NvidiaVendor::Mutate(json::object& object, json::object& pod_spec) const {
  const Container container = Read(object);
  HAMI_TRY(CheckPercent(container, config_.memory_percent_resource));
  if (Limits(container, config_.priority_resource)) {
    const auto priority = ParseQuantity(container.limits.find(config_.priority_resource)->second);
    if (priority) SetEnv(object, "CUDA_TASK_PRIORITY", std::to_string(priority->value));
  }
  if (!config_.core_policy.empty() && config_.core_policy != "default") {
    SetEnv(object, "GPU_CORE_UTILIZATION_POLICY", config_.core_policy);
  }
  bool uses = container.Resource(config_.count_resource) != nullptr;
  if (!uses && config_.default_count > 0 && !config_.count_resource.empty()) {
    uses = Limits(container, config_.memory_resource) || Limits(container, config_.memory_percent_resource) ||
           Limits(container, config_.core_resource);
    if (uses) SetLimit(object, config_.count_resource, std::to_string(config_.default_count));
  }
  if (!uses) {
    if (config_.overwrite_env) SetEnv(object, "NVIDIA_VISIBLE_DEVICES", "none");
    return false;
  }
  if (ImpliesAllCores(container, config_)) SetLimit(object, config_.core_resource, "100");
  if (!config_.runtime_class.empty()) {
    const auto chosen = base::GetString(pod_spec, "runtimeClassName");
    if (!chosen || chosen->empty()) pod_spec["runtimeClassName"] = config_.runtime_class;
  }
  return true;
}

}  // namespace hami::device
