// SPDX-License-Identifier: Apache-2.0

#include "plugin/resolve.h"

#include <algorithm>
#include <tuple>

#include "base/strings.h"
#include "device/annotations.h"
#include "plugin/slots.h"

namespace hami::plugin {
namespace {

bool Owns(const std::optional<LockOwner>& lock, const PodView& pod) {
  return lock && lock->ns == pod.ns && lock->name == pod.name;
}

std::vector<std::string> DevicesOf(const device::ContainerGrant& grant) {
  std::vector<std::string> devices;
  for (const device::Share& share : grant) devices.push_back(share.uuid);
  return Sorted(std::move(devices));
}

// Whether one of POD's containers of that kind was given one of SLOTS.
bool Holds(const Records& records, const PodView& pod, const std::vector<std::string>& slots, bool init) {
  return std::any_of(records.begin(), records.end(), [&](const Record& record) {
    const auto index = static_cast<std::size_t>(record.container);
    const bool is_init = index < pod.containers.size() && pod.containers[index].init;
    return !record.owed && record.owner.uid == pod.uid && is_init == init && Overlap(record.slots, slots);
  });
}

bool PartlyServed(const Records& records, const PodView& pod) {
  return std::any_of(records.begin(), records.end(),
                     [&](const Record& record) { return !record.owed && record.owner.uid == pod.uid; });
}

bool AssumedOwner(const Records& records, const PodView& pod) {
  return std::any_of(records.begin(), records.end(),
                     [&](const Record& record) { return record.assumed && record.owner.uid == pod.uid; });
}

// Those bound longest ago first; the rest of the order only makes the answer the same every time.
bool Earlier(const Choice& a, const Choice& b) {
  const auto rank = [](const Choice& c) {
    return std::tie(c.pod->deleting, c.pod->bind_time, c.pod->ns, c.pod->name, c.pod->uid);
  };
  return rank(a) < rank(b);
}

const Choice* FindChoice(const std::vector<Choice>& candidates, const auto& fits) {
  const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const Choice& c) { return fits(*c.pod); });
  return found == candidates.end() ? nullptr : &*found;
}

// Of the first candidate's like, the one whose GPUs the kubelet counts.
const Choice& BestOfOldest(const std::vector<Choice>& candidates, const std::vector<std::string>& slots) {
  const Choice& oldest = candidates.front();
  const std::vector<std::string> devices = CardsOfSlots(slots);
  for (const Choice& candidate : candidates) {
    if (DevicesOf(candidate.grant) == devices && candidate.pod->deleting == oldest.pod->deleting &&
        Alike(*candidate.pod, *oldest.pod)) {
      return candidate;
    }
  }
  return oldest;
}

const PodView* AliveOwner(const Record& record, const Situation& situation) {
  for (const PodPtr& pod : situation.pods) {
    if (pod->uid == record.owner.uid) return pod->Ended() ? nullptr : pod.get();
  }
  return nullptr;
}

bool KubeletKnows(const PodView& pod, std::string_view container, const Holdings& holdings) {
  return std::any_of(holdings.begin(), holdings.end(), [&](const Holding& holding) {
    return holding.ns == pod.ns && holding.pod == pod.name && (container.empty() || holding.container == container);
  });
}

// A container that runs and of which the kubelet knows nothing, so that it will ask for it. What it holds for init
// containers it does not tell; it asks for them before it asks for the others of their pod.
bool IsForgotten(const Record& record, const PodView& pod, const Situation& situation, const Records& records) {
  if (pod.Pending() || situation.told_again.contains({pod.uid, record.container})) return false;
  const auto index = static_cast<std::size_t>(record.container);
  const bool init = index < pod.containers.size() && pod.containers[index].init;
  if (!init) return !KubeletKnows(pod, record.container_name, *situation.holdings);
  const bool alone = std::all_of(records.begin(), records.end(), [&](const Record& other) {
    const auto row = static_cast<std::size_t>(other.container);
    return other.owner.uid != pod.uid || (row < pod.containers.size() && pod.containers[row].init);
  });
  return !alone && !KubeletKnows(pod, {}, *situation.holdings);
}

// What was recorded for a container that the kubelet asks for once more.
const Record* AskedAgain(const std::vector<std::string>& slots, std::size_t size, const Situation& situation,
                         const Records& records) {
  for (const Record& record : records) {
    if (!record.owed && !slots.empty() && record.slots == slots && AliveOwner(record, situation) != nullptr) {
      return &record;
    }
  }
  if (!situation.holdings) return nullptr;
  const Record* first = nullptr;
  const auto rank = [&](const Record& record) {
    return std::tuple(AliveOwner(record, situation)->bound_at, record.owner.uid, record.container);
  };
  for (const Record& record : records) {
    const PodView* pod = record.owed || record.grant.size() != size ? nullptr : AliveOwner(record, situation);
    if (pod == nullptr || !IsForgotten(record, *pod, situation, records)) continue;
    if (first == nullptr || rank(record) < rank(*first)) first = &record;
  }
  return first;
}

// Whether A came to this node before B, as far as is known. The kubelet admits pods in the order in which it is told of
// them, and is told as our watch is.
bool CameBefore(const PodView& a, const PodView& b) {
  if (a.arrival != 0 && b.arrival != 0 && a.arrival != b.arrival) return a.arrival < b.arrival;
  return a.bound_at != 0 && b.bound_at != 0 && a.bound_at < b.bound_at;
}

// The pods that may be asking.
struct Queue {
  std::vector<Choice> in_flight;
  std::vector<Stranger> strangers;
};

Queue WhoMayAsk(const Situation& situation, const Records& records) {
  Queue queue;
  const OriginInput origin{situation.rules, situation.cards.get(), &situation.pods, &records, situation.now};
  for (const PodPtr& pod : situation.pods) {
    const bool owns_lock = Owns(situation.lock, *pod);
    auto next = NextOf(pod, records, situation.node, owns_lock);
    const bool recorded = next && FindRecord(records, pod->uid, next->container) != nullptr;
    const bool judged = situation.rules != nullptr && situation.cards != nullptr && !recorded;
    std::string why = next && judged ? Distrust(*pod, owns_lock, origin) : "";
    if (next && why.empty()) {
      queue.in_flight.push_back(*std::move(next));
      continue;
    }
    if (!judged || situation.passed.contains(pod->uid) || HasRecords(records, pod->uid)) continue;
    if (pod->node != situation.node || !pod->Pending() || pod->admitted || !pod->grant_error.empty()) continue;
    const std::vector<int> counts = CountsOf(*pod, VendorOf(situation.cards->settings));
    const auto first = std::find_if(counts.begin(), counts.end(), [](int count) { return count > 0; });
    if (first == counts.end()) continue;
    if (!next) why = "it has no grant that is still to be given";
    queue.strangers.push_back({pod, static_cast<std::size_t>(*first), std::move(why)});
  }
  return queue;
}

// The one of SIZE that came first.
const Stranger* FirstStranger(const std::vector<Stranger>& strangers, std::size_t size) {
  const Stranger* first = nullptr;
  for (const Stranger& stranger : strangers) {
    if (stranger.size != size) continue;
    if (first == nullptr || CameBefore(*stranger.pod, *first->pod)) first = &stranger;
  }
  return first;
}

std::string WhyNone(std::size_t size, const std::vector<Choice>& in_flight, const std::string& node) {
  if (in_flight.empty()) return "no pod is on its way to node " + node + " with devices still to be given";
  std::vector<std::string> others;
  for (const Choice& choice : in_flight) {
    others.push_back(choice.pod->FullName() + " (next: " + std::to_string(choice.grant.size()) + ")");
  }
  return base::Concat({"no pod on its way to node ", node, " is to be given ", std::to_string(size),
                       " device(s) next; in flight: ", base::Join(others, ", ")});
}

std::vector<std::tuple<device::MiB, int>> Sizes(const device::ContainerGrant& grant) {
  std::vector<std::tuple<device::MiB, int>> sizes;
  for (const device::Share& share : grant) sizes.emplace_back(share.memory, share.cores);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

bool Interchangeable(const device::PodGrant& a, const device::PodGrant& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& left, const auto& right) { return Sizes(left) == Sizes(right); });
}

bool Alike(const PodView& a, const PodView& b) {
  if (!Interchangeable(a.allocated, b.allocated)) return false;
  for (std::size_t i = 0; i < a.allocated.size(); ++i) {
    if (a.allocated[i].empty()) continue;  // who has no share may say what it likes
    if (i >= a.containers.size() || i >= b.containers.size()) return false;
    const ContainerView& left = a.containers[i];
    ContainerView right = b.containers[i];
    right.name = left.name;
    if (left != right || (left.control_disabled && a.ns != b.ns)) return false;
  }
  return true;
}

std::optional<Choice> NextOf(const PodPtr& pod, const Records& records, const std::string& node, bool owns_lock) {
  if (pod->node != node || !pod->Pending() || !pod->grant_error.empty()) return std::nullopt;
  if (pod->bind_phase == device::kPhaseFailed) return std::nullopt;
  if (!pod->assigned_node.empty() && pod->assigned_node != node) return std::nullopt;
  // Rows that are owed, and rows of the annotation that no record speaks of.
  const auto count = static_cast<int>(std::max(pod->to_allocate.size(), pod->allocated.size()));
  for (int i = 0; i < count; ++i) {
    if (const Record* record = FindRecord(records, pod->uid, i)) {
      if (record->owed) return Choice{pod, i, record->grant, record->mig};
      continue;
    }
    const bool in_flight =
        pod->bind_phase == device::kPhaseAllocating || (owns_lock && pod->bind_phase == device::kPhaseSuccess);
    const auto row = static_cast<std::size_t>(i);
    if (!in_flight || row >= pod->to_allocate.size() || pod->to_allocate[row].empty()) continue;
    return Choice{pod, i, pod->to_allocate[row], ReservationsOf(*pod, i)};
  }
  return std::nullopt;
}

Resolution Resolve(std::span<const std::string> slots, std::size_t size, const Situation& situation,
                   const Records& records) {
  const std::vector<std::string> key = Sorted({slots.begin(), slots.end()});
  const auto [in_flight, strangers] = WhoMayAsk(situation, records);
  std::vector<Choice> candidates;
  // Slots go from an init container to a later one, but never from one app container to another: there the kubelet
  // repeats itself, or means another pod.
  std::copy_if(in_flight.begin(), in_flight.end(), std::back_inserter(candidates), [&](const Choice& choice) {
    return choice.grant.size() == size && !Holds(records, *choice.pod, key, false);
  });
  std::sort(candidates.begin(), candidates.end(), Earlier);

  const Stranger* stranger = FirstStranger(strangers, size);
  Resolution resolution;
  if (const Choice* holder = FindChoice(candidates, [&](const PodView& p) { return Holds(records, p, key, true); })) {
    resolution.choice = *holder;
    resolution.choice->continues = true;
    resolution.choice->assumed = AssumedOwner(records, *holder->pod);
  } else if (const Choice* owner = FindChoice(candidates, [&](const PodView& p) { return Owns(situation.lock, p); })) {
    resolution.choice = *owner;
  } else if (const Choice* partly =
                 FindChoice(candidates, [&](const PodView& p) { return PartlyServed(records, p); })) {
    resolution.choice = *partly;
    resolution.choice->continues = true;
    resolution.choice->assumed = AssumedOwner(records, *partly->pod);
  } else if (!candidates.empty()) {
    resolution.choice = BestOfOldest(candidates, key);
    resolution.choice->assumed = situation.concurrent || candidates.size() > 1;
  } else if (stranger != nullptr) {
    resolution.stranger = *stranger;
  } else if (const Record* again = AskedAgain(key, size, situation, records)) {
    resolution.recorded = again;
  } else {
    resolution.why = WhyNone(size, in_flight, situation.node);
  }
  if (stranger != nullptr && resolution.choice && !resolution.choice->continues) {
    // The kubelet will tell which of the two it was.
    resolution.choice->assumed = resolution.choice->assumed || situation.concurrent;
    if (CameBefore(*stranger->pod, *resolution.choice->pod)) {
      resolution.choice.reset();
      resolution.stranger = *stranger;
    }
  }
  if (resolution.choice) {
    // One that the watch does not show yet is no other: nobody is sent here together with pods that he is unlike.
    resolution.choice->alike = std::all_of(candidates.begin(), candidates.end(), [&](const Choice& candidate) {
      return Alike(*candidate.pod, *resolution.choice->pod);
    });
  }
  return resolution;
}

}  // namespace hami::plugin
