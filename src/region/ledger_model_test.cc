// SPDX-License-Identifier: Apache-2.0
//
// The ledger against the simplest thing that could be right: a map from (attachment, device, kind) to bytes, and a list
// of who holds what is shared. Random sequences over several attachments of one process; after each step answers and
// sums must agree.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "region/testing/region.h"

namespace hami::region {
namespace {

constexpr int kAttachments = 3;
constexpr uint32_t kDevices = 2;

struct Hold {
  uint64_t object = 0;  // 0: nobody's
  int who = 0;
  uint32_t device = 0;
  uint64_t bytes = 0;
  uint32_t uses = 0;
  bool pays = false;
};

struct Model {
  std::vector<Hold> holds;
  std::array<std::array<std::array<uint64_t, kKinds>, kDevices>, kAttachments> held = {};
  std::array<uint64_t, kDevices> limit = {};
  std::array<uint64_t, kDevices> peak = {};

  uint64_t Sum(uint32_t device) const {
    uint64_t sum = 0;
    for (const auto& one : held) {
      for (const uint64_t bytes : one[device]) sum += bytes;
    }
    return sum;
  }
  Status Add(int who, uint32_t device, uint64_t bytes, int kind, bool checked) {
    const uint64_t sum = Sum(device);
    const bool wraps = bytes > UINT64_MAX - sum;
    if (wraps || (checked && limit[device] != 0 && sum + bytes > limit[device])) return Status::kOverLimit;
    held[static_cast<size_t>(who)][device][static_cast<size_t>(kind)] += bytes;
    peak[device] = std::max(peak[device], sum + bytes);
    return Status::kOk;
  }
  Status Take(int who, uint32_t device, uint64_t bytes, int kind, int to) {
    uint64_t& from = held[static_cast<size_t>(who)][device][static_cast<size_t>(kind)];
    const uint64_t moved = std::min(bytes, from);
    from -= moved;
    if (to >= 0) held[static_cast<size_t>(who)][device][static_cast<size_t>(to)] += moved;
    return moved == bytes ? Status::kOk : Status::kClamped;
  }

  Hold* Find(uint64_t object, int who) {
    for (Hold& hold : holds) {
      if (hold.object == object && (who < 0 || hold.who == who)) return &hold;
    }
    return nullptr;
  }
  void Begin(const Hold& hold) {
    Hold* const hole = Find(0, -1);
    if (hole != nullptr) {
      *hole = hold;
    } else {
      holds.push_back(hold);
    }
  }
  bool Join(uint64_t object, int who, uint32_t* device) {
    Hold* hold = Find(object, who);
    if (hold != nullptr) {
      ++hold->uses;
    } else {
      hold = Find(object, -1);
      if (hold == nullptr) return false;
      Begin({object, who, hold->device, hold->bytes, 1, false});
    }
    *device = Find(object, who)->device;
    return true;
  }
  void End(Hold* hold) {
    const Hold ended = *hold;
    *hold = {};
    if (ended.pays) {
      held[static_cast<size_t>(ended.who)][ended.device][2] -= ended.bytes;
      Hold* const heir = Find(ended.object, -1);
      if (heir != nullptr) {
        heir->pays = true;
        held[static_cast<size_t>(heir->who)][ended.device][2] += ended.bytes;
      }
    }
    while (!holds.empty() && holds.back().object == 0) holds.pop_back();
  }
  bool Leave(uint64_t object, int who) {
    Hold* const hold = Find(object, who);
    if (hold != nullptr && --hold->uses == 0) End(hold);
    return hold != nullptr;
  }
  void Detach(int who) {
    for (size_t i = 0; i < holds.size(); ++i) {
      if (holds[i].object != 0 && holds[i].who == who) End(&holds[i]);
    }
    held[static_cast<size_t>(who)] = {};
  }
  // Data that is not shared.
  uint64_t Free(int who, uint32_t device) const {
    uint64_t bytes = held[static_cast<size_t>(who)][device][2];
    for (const Hold& hold : holds) {
      if (hold.object != 0 && hold.who == who && hold.device == device && hold.pays) bytes -= hold.bytes;
    }
    return bytes;
  }
};

void Agree(const Model& model, const std::array<Attached, kAttachments>& real) {
  for (uint32_t device = 0; device < kDevices; ++device) {
    const uint64_t sum = model.Sum(device);
    const uint64_t limit = model.limit[device];
    for (int who = 0; who < kAttachments; ++who) {
      const Attachment& attachment = real[static_cast<size_t>(who)];
      if (attachment.region == nullptr) continue;
      RC_ASSERT(Used(attachment, device) == sum);
      RC_ASSERT(FreeUnderLimit(attachment, device) == (limit == 0 ? UINT64_MAX : sum < limit ? limit - sum : 0));
      RC_ASSERT(Peak(attachment, device) == model.peak[device]);
      for (int kind = 0; kind < kKinds; ++kind) {
        RC_ASSERT(OwnUsed(attachment, device, static_cast<Kind>(kind)) ==
                  model.held[static_cast<size_t>(who)][device][static_cast<size_t>(kind)]);
      }
    }
  }
}

uint64_t AnyBytes() {
  return *rc::gen::weightedOneOf<uint64_t>(
      {{20, rc::gen::inRange<uint64_t>(0, 600)}, {1, rc::gen::inRange<uint64_t>(UINT64_MAX - 1000, UINT64_MAX)}});
}

RC_GTEST_PROP(LedgerModel, GivenAnySequence_WhenApplied_ThenLedgerAndModelAgree, ()) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Model model;
  Config config;
  for (uint32_t device = 0; device < kDevices; ++device) {
    model.limit[device] = *rc::gen::element<uint64_t>(0, 1, 1000, UINT64_MAX);
    config.devices[device].memory_limit = model.limit[device];
  }
  RC_ASSERT(Create(path.c_str(), config) == Status::kOk);
  std::array<Attached, kAttachments> real;
  for (Attached& attachment : real) RC_ASSERT(Attach(&attachment, path.c_str(), config) == Status::kOk);
  uint64_t objects = 0;
  const int steps = *rc::gen::inRange(1, 120);
  for (int step = 0; step < steps; ++step) {
    const int who = *rc::gen::inRange(0, kAttachments);
    Attached& attachment = real[static_cast<size_t>(who)];
    const uint32_t device = *rc::gen::inRange<uint32_t>(0, kDevices);
    const int kind = *rc::gen::inRange(0, kKinds);
    // What is shared is not given back by other ways.
    const auto any_of_kind = [&] {
      const uint64_t bytes = AnyBytes();
      return static_cast<Kind>(kind) == Kind::kData ? std::min(bytes, model.Free(who, device)) : bytes;
    };
    const uint64_t object = *rc::gen::inRange<uint64_t>(0, objects + 2);
    switch (*rc::gen::inRange(0, 18)) {
      case 0:
        RC_ASSERT(Sweep(&attachment) == 0);
        break;
      case 1: {
        Detach(&attachment);
        model.Detach(who);
        RC_ASSERT(Attach(&attachment, path.c_str(), config) == Status::kOk);
        break;
      }
      case 2: {
        model.limit[device] = *rc::gen::inRange<uint64_t>(0, 2000);
        attachment.region->limit[device] = model.limit[device];
        break;
      }
      case 3: {
        const uint64_t bytes = AnyBytes();
        RC_ASSERT(Charge(&attachment, device, bytes, static_cast<Kind>(kind)) ==
                  model.Add(who, device, bytes, kind, false));
        break;
      }
      case 4:
      case 5: {
        const uint64_t bytes = any_of_kind();
        const int to = *rc::gen::inRange(0, kKinds);
        RC_ASSERT(Transfer(&attachment, device, bytes, static_cast<Kind>(kind), static_cast<Kind>(to)) ==
                  model.Take(who, device, bytes, kind, to));
        break;
      }
      case 6:
      case 7:
      case 8: {
        const uint64_t bytes = any_of_kind();
        RC_ASSERT(Refund(&attachment, device, bytes, static_cast<Kind>(kind)) ==
                  model.Take(who, device, bytes, kind, -1));
        break;
      }
      case 9:
      case 10: {
        const uint64_t bytes = std::min(AnyBytes(), model.Free(who, device));
        RC_ASSERT(Share(&attachment, device, bytes) == ++objects);
        model.Begin({objects, who, device, bytes, 1, true});
        break;
      }
      case 11:
      case 12:
      case 13: {
        uint32_t wanted = 99;
        uint32_t got = 99;
        RC_ASSERT(Join(&attachment, object, &got) == (object != 0 && model.Join(object, who, &wanted)));
        RC_ASSERT(got == wanted);
        break;
      }
      case 14:
      case 15:
        RC_ASSERT(Leave(&attachment, object) == (object != 0 && model.Leave(object, who)));
        break;
      default: {
        const uint64_t bytes = AnyBytes();
        RC_ASSERT(Reserve(&attachment, device, bytes, static_cast<Kind>(kind)) ==
                  model.Add(who, device, bytes, kind, true));
      }
    }
    for (Attached& one : real) ClaimHeritage(&one);
    Agree(model, real);
    RC_ASSERT(real[0].area->holds.top == model.holds.size());
  }
}

}  // namespace
}  // namespace hami::region
