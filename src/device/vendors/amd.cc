// SPDX-License-Identifier: Apache-2.0
//
// AMD: parts of a GPU by memory and by percent of its compute units. A card counts its units itself; what is granted is
// units, what is asked and counted in quotas and metrics is percent.

#include <algorithm>
#include <cstdint>

#include "base/strings.h"
#include "device/json_edit.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

class AmdVendor final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  base::Result<bool> Mutate(base::json::object& object, PodDraft& pod, Warnings& warnings) const override {
    const Container container = ReadContainer(object);
    HAMI_TRY(ParseRequest(container));
    const auto named = [&](const std::string& resource) {
      return !resource.empty() && container.limits.contains(resource);
    };
    if (named(spec().count_resource)) return PlainVendor::Mutate(object, pod, warnings);
    return named(spec().memory_resource) || named(spec().core_resource);
  }

  int MostCores(const Device& card, int asked) const override {
    return static_cast<int>(std::max<std::int64_t>(std::int64_t{card.cores} * asked / kWholeCard, 1));
  }

  std::int64_t CorePercent(const Device& card, std::int64_t cores) const override {
    return card.cores <= 0 ? cores : (cores * kWholeCard + card.cores - 1) / card.cores;
  }

  std::optional<Want> WantOf(const Device& card, const Request& request, const CardRules& rules) const override {
    std::optional<Want> want = PlainVendor::WantOf(card, request, rules);
    want->cores = MostCores(card, request.cores);
    return want;
  }
};

}  // namespace

void AddAmd(const OtherSections& config, Vendors& out) {
  const Section section(config, "amd");
  PlainSpec spec{.key = "AMD",
                 .count_resource = section.Text("resourceCountName"),
                 .memory_resource = section.Text("resourceMemoryName"),
                 .core_resource = section.Text("resourceCoreName"),
                 .default_cores = kWholeCard,
                 .least_cores = 1,
                 .most_cores = kWholeCard,
                 .exclusive = false,
                 .limits_only = true,
                 .registered = base::Concat({kHamiDomain, "node-amd-register"}),
                 .needs_capacity = true,
                 .keeps_type = true,
                 .use_type = "amd.com/use-gputype",
                 .avoid_type = "amd.com/nouse-gputype",
                 .use_uuid = {"amd.com/use-gpu-uuid"},
                 .avoid_uuid = {"amd.com/nouse-gpu-uuid"}};
  spec.GrantAs("amd");
  AddNamed(std::make_unique<AmdVendor>(std::move(spec)), out);
}

}  // namespace hami::device
