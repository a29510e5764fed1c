// SPDX-License-Identifier: Apache-2.0
//
// Iluvatar: each chip of the configuration is a vendor of its own, told by its common word.

#include "base/strings.h"
#include "device/json_edit.h"
#include "device/quantity.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

constexpr std::int64_t kMemoryUnit = 256;  // MiB

class IluvatarVendor final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  // Several cards are whole ones. The variable is spelled as Iluvatar's libraries read it.
  base::Result<bool> Mutate(base::json::object& object, PodDraft& pod, Warnings& warnings) const override {
    const auto uses = PlainVendor::Mutate(object, pod, warnings);
    HAMI_TRY(uses);
    if (!*uses) return false;
    const Container container = ReadContainer(object);
    const auto count = ParseQuantity(TextAt(container.limits, spec().count_resource));
    if (count && count->value > 1 && count->value <= kMostAsked && !spec().core_resource.empty()) {
      SetQuantity(object, "limits", spec().core_resource, std::to_string(count->value * kWholeCard));
    }
    SetEnv(object, "SOL_CONTINER_NAME", container.name);
    return true;
  }

 private:
  static constexpr std::int64_t kMostAsked = 1'000'000;
};

}  // namespace

void AddIluvatar(const OtherSections& config, Vendors& out) {
  for (const Section& chip : Section(config, "iluvatars").Members()) {
    const std::string word = chip.Text("commonWord");
    if (word.empty()) continue;
    PlainSpec spec{.key = word,
                   .count_resource = chip.Text("resourceCountName"),
                   .memory_resource = chip.Text("resourceMemoryName"),
                   .core_resource = chip.Text("resourceCoreName"),
                   .memory_unit = kMemoryUnit,
                   .registered = base::Concat({kHamiDomain, "node-", word, "-register"}),
                   .legacy_register = true,
                   .handshake = base::Concat({kHamiDomain, "node-handshake-", word}),
                   .clears_handshake = false,
                   .use_uuid = {base::Concat({kHamiDomain, "use-", word, "-uuid"})},
                   .avoid_uuid = {base::Concat({kHamiDomain, "no-use-", word, "-uuid"})}};
    spec.GrantAs(word);
    AddNamed(std::make_unique<IluvatarVendor>(std::move(spec)), out);
  }
}

}  // namespace hami::device
