// SPDX-License-Identifier: Apache-2.0
//
// Admission of one container: what is implied is written out, so that the scheduler, the plugin and the user see the
// same request.

#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "device/amount.h"
#include "device/annotations.h"
#include "device/json_edit.h"
#include "device/quantity.h"
#include "device/vendors/nvidia.h"

namespace hami::device {
namespace {

using base::Fail;
using base::Result;
using base::Status;
namespace json = base::json;

constexpr std::int64_t kWholeCard = 100;  // percent
constexpr std::int64_t kMostCores = std::numeric_limits<std::int32_t>::max();

bool Limits(const Container& container, const std::string& resource) {
  return !resource.empty() && container.limits.contains(resource);
}

Status CheckPercent(const Container& container, const std::string& resource) {
  const std::string* text = container.Resource(resource);
  if (text == nullptr || ReadCount(*text, kWholeCard)) return {};
  return Fail(base::Concat({"invalid ", resource, " value ", base::Printable(*text), " in container ", container.name,
                            ": must be an integer between 0 and 100"}));
}

// Of what ParseRequest refuses there is nothing to write out, and nothing to say here.
bool IsZero(const std::string* text) {
  const auto quantity = text == nullptr ? Result<Quantity>(Quantity{1}) : ParseQuantity(*text);
  return quantity && quantity->value == 0;
}

// Whoever asks for whole cards gets them to himself.
bool ImpliesAllCores(const Container& container, const NvidiaConfig& config) {
  if (config.core_resource.empty() || container.Resource(config.core_resource) != nullptr) return false;
  if (config.memory_resource.empty()) return true;
  const std::string* percent = container.Resource(config.memory_percent_resource);
  if (percent != nullptr) return ReadCount(*percent, kWholeCard).value_or(0) == kWholeCard;
  return container.Resource(config.memory_resource) == nullptr;
}

// Bytes become the plain number that every reader of the pod takes for the same: HAMi's own programs, too.
void WriteMemoryOut(json::object& object, const Container& container, const NvidiaConfig& config, Warnings& warnings) {
  const std::string& resource = config.memory_resource;
  const std::string* text = container.Resource(resource);
  const auto memory = text == nullptr ? Result<Memory>(Memory{}) : ReadMemory(*text, config.memory_factor, kMostOfCard);
  if (!memory || !memory->from_bytes) return;
  warnings.push_back(base::Concat({"container ", container.name, ": ", resource, " ", *text, " is taken as ",
                                   std::to_string(memory->mib), " MiB"}));
  const std::int64_t factor = std::max<std::int64_t>(config.memory_factor, 1);
  if (memory->mib % factor != 0) return;
  const std::string plain = std::to_string(memory->mib / factor);
  if (TextAt(container.limits, resource) == *text) SetQuantity(object, "limits", resource, plain);
  if (TextAt(container.requests, resource) == *text) SetQuantity(object, "requests", resource, plain);
}

// What a container that uses the vendor's devices asks, and does not get as it is written.
class Remarks {
 public:
  Remarks(const Container& container, const NvidiaConfig& config, Warnings& warnings)
      : container_(container), config_(config), warnings_(warnings) {}

  void Say() const {
    const std::string* memory = container_.Resource(config_.memory_resource);
    const std::string* percent = container_.Resource(config_.memory_percent_resource);
    if (IsZero(memory)) Say(config_.memory_resource, " 0 is taken as not given");
    if (IsZero(percent)) Say(config_.memory_percent_resource, " 0 is taken as not given");
    if (memory != nullptr && !IsZero(memory) && percent != nullptr && !IsZero(percent)) {
      Say(config_.memory_percent_resource, " does not count beside " + config_.memory_resource);
    }
    const std::string* cores = container_.Resource(config_.core_resource);
    if (cores != nullptr && ReadCount(*cores, kMostCores).value_or(0) > kWholeCard) {
      Say(config_.core_resource, " " + *cores + " is taken as 100, which is a whole GPU");
    }
    Suggest();
  }
  // Of a container that asks for no device.
  void SayUnused() const {
    for (const std::string* resource :
         {&config_.memory_resource, &config_.memory_percent_resource, &config_.core_resource}) {
      if (container_.Resource(*resource) != nullptr) {
        Say(*resource, " gives nothing: no " + config_.count_resource + " is asked");
      }
    }
    Suggest();
  }

 private:
  void Say(const std::string& resource, const std::string& what) const {
    warnings_.push_back(base::Concat({"container ", container_.name, ": ", resource, what}));
  }
  void Suggest() const {
    const std::vector<std::string> known = {config_.count_resource, config_.memory_resource,
                                            config_.memory_percent_resource, config_.core_resource,
                                            config_.priority_resource};
    for (const auto& [resource, amount] : container_.limits) {
      if (const auto meant = Misspelt(resource, known)) Say(resource, " gives nothing: " + *meant + " may be meant");
    }
  }

  const Container& container_;
  const NvidiaConfig& config_;
  Warnings& warnings_;
};

}  // namespace

Result<bool> NvidiaVendor::Mutate(json::object& object, PodDraft& pod, Warnings& warnings) const {
  const Container container = ReadContainer(object);
  HAMI_TRY(CheckPercent(container, config_.memory_percent_resource));
  if (Limits(container, config_.priority_resource)) {
    const auto priority = ParseQuantity(container.limits.find(config_.priority_resource)->second);
    if (priority) SetEnv(object, "CUDA_TASK_PRIORITY", std::to_string(priority->value));
  }
  if (!config_.core_policy.empty() && config_.core_policy != "default") {
    SetEnv(object, "GPU_CORE_UTILIZATION_POLICY", config_.core_policy);
  }
  const std::string* count = container.Resource(config_.count_resource);
  bool uses = count != nullptr && !IsZero(count);
  if (count == nullptr && config_.default_count > 0 && !config_.count_resource.empty()) {
    uses = Limits(container, config_.memory_resource) || Limits(container, config_.memory_percent_resource) ||
           Limits(container, config_.core_resource);
    if (uses) SetQuantity(object, "limits", config_.count_resource, std::to_string(config_.default_count));
  }
  const Remarks remarks(container, config_, warnings);
  if (!uses) {
    remarks.SayUnused();
    if (config_.overwrite_env) SetEnv(object, "NVIDIA_VISIBLE_DEVICES", "none");
    return false;
  }
  remarks.Say();
  WriteMemoryOut(object, container, config_, warnings);
  if (ImpliesAllCores(container, config_)) SetQuantity(object, "limits", config_.core_resource, "100");
  if (!config_.runtime_class.empty()) {
    const auto chosen = base::GetString(pod.spec, "runtimeClassName");
    if (!chosen || chosen->empty()) pod.spec["runtimeClassName"] = config_.runtime_class;
  }
  return true;
}

void NvidiaVendor::Remark(const StringMap& annotations, Warnings& warnings) const {
  const auto say = [&](const std::string& key, const std::string& what) {
    warnings.push_back(base::Concat({"annotation ", key, what}));
  };
  for (const auto& [key, text] : annotations) {
    if (key == config_.count_resource || key == config_.memory_resource || key == config_.memory_percent_resource ||
        key == config_.core_resource || key == config_.priority_resource) {
      say(key, " gives nothing: it counts in resources.limits of a container");
    } else if (const auto meant = Misspelt(key, {kUseType, kAvoidType, kUseUuid, kAvoidUuid, kNumaBind, kMode})) {
      say(key, " says nothing: " + *meant + " may be meant");
    }
  }
  const std::string* bind = Find(annotations, kNumaBind);
  if (bind != nullptr && !ParseBool(*bind)) say(kNumaBind, " " + *bind + " is neither true nor false: taken as false");
}

}  // namespace hami::device
