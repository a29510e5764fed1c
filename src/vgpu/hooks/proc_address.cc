// SPDX-License-Identifier: Apache-2.0
#include "vgpu/hooks/proc_address.h"

#include "vgpu/loader/driver.h"
#include "vgpu/loader/libc.h"
#include "vgpu/runtime/settings.h"

namespace hami::vgpu {
namespace {

constexpr uint64_t kPerThreadStream = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

// What the name means at this version: the newest meaning that is not newer, of the flavour asked for if it has one.
const Variant* ByRule(const VariantRange& range, int version, uint64_t flags) {
  const bool per_thread = (flags & kPerThreadStream) != 0;
  const Variant* best = nullptr;
  for (const Variant* v = range.first; v != range.last; ++v) {
    const bool plain = v->flavour == Flavour::PLAIN;
    if (v->since > version || (!plain && !per_thread)) continue;
    const bool same_age_better_flavour = best != nullptr && v->since == best->since && !plain;
    if (best == nullptr || v->since > best->since || same_age_better_flavour) best = v;
  }
  return best;
}

}  // namespace

void* ReplaceAddress(const char* name, void* driver_answer, int version, uint64_t flags) {
  if (name == nullptr || driver_answer == nullptr || ControlDisabled()) return driver_answer;
  const VariantRange range = FindVariants(name);
  if (range.first == range.last) {
    const Sym sym = FindHook(name);  // the full symbol was asked for
    return sym != Sym::kNone && DriverSymbolCached(sym) == driver_answer ? HookAddress(sym) : driver_answer;
  }
  for (const Variant* v = range.first; v != range.last; ++v) {
    if (v->sym != Sym::kNone && DriverSymbolCached(v->sym) == driver_answer) return HookAddress(v->sym);
  }
  Dl_info info;
  if (libc::Locate(driver_answer, &info) != 0 && info.dli_saddr == driver_answer && info.dli_sname != nullptr) {
    // Exported under another name: an older or a newer version, which may have a replacement of its own.
    const Sym sym = FindHook(info.dli_sname);
    return sym != Sym::kNone ? HookAddress(sym) : driver_answer;
  }
  const Variant* const meant = ByRule(range, version, flags);
  return meant != nullptr && meant->sym != Sym::kNone ? HookAddress(meant->sym) : driver_answer;
}

}  // namespace hami::vgpu
