// SPDX-License-Identifier: Apache-2.0
//
// Many pods in flight on one node, in every order: binds, admissions, watches that lag, kubelet's repetitions,
// deletions, ends, deaths of the agent at every call. A scheduler and a kubelet in memory drive the allocator; what the
// containers were answered is compared with what the annotations say.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "base/log.h"
#include "device/annotations.h"
#include "plugin/preferred.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

constexpr int kCards = 3;
constexpr int kSlotsPerCard = 6;
constexpr device::MiB kCardMemory = 60000;

// What a container was told it has: GPU → MiB.
using MemoryByCard = std::map<std::string, device::MiB>;

MemoryByCard ReadLimits(const Response& response) {
  MemoryByCard given;
  for (const std::string& entry : base::Split(response.environment.at("HAMI_DEVICE_LIMITS"), ',')) {
    const std::size_t equals = entry.find('=');
    given[entry.substr(0, equals)] = std::stoll(entry.substr(equals + 1));
  }
  return given;
}

MemoryByCard Sum(const device::ContainerGrant& grant) {
  MemoryByCard sum;
  for (const device::Share& share : grant) sum[share.uuid] += share.memory;
  return sum;
}

// The sizes of a pod's containers: how many cards, and MiB of each.
struct Shape {
  std::vector<int> counts;
  device::MiB memory;
};

class Node {
 public:
  Node(unsigned seed, bool concurrent) : random_(seed), concurrent_(concurrent) {
    Cards cards = MakeTestCards(kCards, kSlotsPerCard);
    for (Card& card : cards.cards) {
      card.memory = card.physical_memory = kCardMemory;
      for (int i = 0; i < kSlotsPerCard; ++i) free_.insert(SlotId(card.uuid, i));
    }
    cards_ = cards;
    world_.lagging = true;
    Live();
  }

  World& world() { return world_; }
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  // The scheduler: places by what the annotations say, binds only where the rule lets it.
  void Bind(const Shape& shape) {
    if (unsettled_) return;
    device::PodGrant grant;
    std::map<std::string, device::MiB> extra;
    std::map<std::string, int> slots;
    for (const int count : shape.counts) {
      auto& row = grant.emplace_back();
      const int first = static_cast<int>(random_() % kCards);
      for (int i = 0; i < kCards && static_cast<int>(row.size()) < count; ++i) {
        const int card = (first + i) % kCards;
        const std::string uuid = CardName(card);
        if (Charged(uuid).first + extra[uuid] + shape.memory > kCardMemory) continue;
        if (Charged(uuid).second + slots[uuid] >= kSlotsPerCard) continue;
        extra[uuid] += shape.memory;
        ++slots[uuid];
        row.push_back(ShareOf(card, shape.memory, 100 / kSlotsPerCard));
      }
      if (static_cast<int>(row.size()) < count) return;  // no room
    }
    PodView pod = BoundPod("p" + std::to_string(next_pod_++), grant, world_.now);
    if (!MayBind(pod)) return;
    waiting_.push_back(pod.uid);
    base::LogDebug("bind " + pod.name + " " + device::EncodeGrant(pod.allocated));
    world_.Add(std::move(pod));
    for (const Card& card : cards_.cards) {
      EXPECT_LE(Charged(card.uuid).second, kSlotsPerCard) << card.uuid << Dump();
    }
  }

  // The kubelet admits one pod, whichever it likes: all containers, or none.
  void Admit() {
    if (waiting_.empty()) return;
    const std::size_t index = random_() % waiting_.size();
    const std::string uid = waiting_[index];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
    const PodView pod = world_.api.at(uid);
    base::LogDebug("admit " + pod.name);
    const Holdings before = world_.holdings;
    for (const ContainerView& container : pod.containers) {
      const auto row = static_cast<std::size_t>(&container - pod.containers.data());
      const auto slots = PickSlots(pod.allocated[row].size());
      const auto response = AllocateOnce(slots);
      if (!response) {
        RefusePod(uid, before);
        return;
      }
      world_.Hold(pod.name, container.name, slots);
      for (const std::string& slot : slots) free_.erase(slot);
      given_[uid][static_cast<int>(row)] = ReadLimits(*response);
      if (Chance(5)) AskAgain(slots, *response);
      if (Chance(20)) Tend();
    }
    // The kubelet dies before it wrote down what it gave, and admits the pod from the start.
    if (Chance(5)) {
      base::LogDebug("the kubelet forgets " + pod.name);
      Release(uid);
      waiting_.push_back(uid);
      return;
    }
    world_.api.at(uid).status_phase = "Running";
    running_.insert(uid);
  }

  // Somebody deletes a pod on its way, or a running one ends.
  void Delete() {
    if (waiting_.empty()) return;
    const std::size_t index = random_() % waiting_.size();
    base::LogDebug("delete " + waiting_[index]);
    world_.api.erase(waiting_[index]);
    given_.erase(waiting_[index]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
    Unsettle();
  }
  void End() {
    if (running_.empty()) return;
    auto it = running_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % running_.size()));
    const std::string uid = *it;
    running_.erase(it);
    base::LogDebug("end " + uid);
    world_.api.at(uid).status_phase = Chance(50) ? "Succeeded" : "Failed";
    Release(uid);
    given_.erase(uid);
    Unsettle();
  }

  void Tend() {
    if (allocator_ == nullptr) Live();
    try {
      allocator_->Tend();
      unsettled_ = unsettled_ && !delivered_;
    } catch (const Killed&) {
      Live();
      Unsettle();
    }
  }
  void Deliver() {
    world_.Deliver();
    delivered_ = true;
  }

  // Nothing is under way any more and everybody had time to look.
  void Settle() {
    world_.kill_at = -1;
    for (int i = 0; i < 4; ++i) {
      Deliver();
      Tend();
      world_.now += kRecordGrace;
    }
    Deliver();
  }

  void ArmKill() {
    world_.kill_at = static_cast<int>(random_() % 8);
    world_.kill_after = Chance(50);
  }

  // Every container that runs holds what the books say, no card is given away twice, every pod has its outcome.
  void Check(const std::string& when) {
    std::map<std::string, device::MiB> used;
    for (const std::string& uid : running_) {
      const PodView& pod = world_.api.at(uid);
      for (const auto& [row, given] : given_.at(uid)) {
        EXPECT_EQ(Sum(pod.allocated.at(static_cast<std::size_t>(row))), given) << when << ": books of " << pod.name;
        for (const auto& [uuid, memory] : given) used[uuid] += memory;
      }
      EXPECT_EQ(pod.bind_phase, device::kPhaseSuccess) << when << ": outcome of " << pod.name;
    }
    for (const auto& [uuid, memory] : used) EXPECT_LE(memory, kCardMemory) << when << ": " << uuid;
    for (const auto& [uid, pod] : world_.api) {
      if (pod.status_phase == "Failed") {
        EXPECT_NE(pod.bind_phase, device::kPhaseAllocating) << when << ": " << pod.name;
      }
    }
    for (const auto& [slots, owner] : world_.links) EXPECT_TRUE(world_.folders.contains(owner)) << when;
  }

  // Whoever is on its way gets its grant: none was lost.
  void AdmitEverybody() {
    while (!waiting_.empty()) {
      const std::size_t before = waiting_.size();
      strict_ = true;
      Admit();
      strict_ = false;
      if (waiting_.size() >= before) Deliver();
    }
  }

  // Bound or running: what the scheduler thinks is in use.
  std::pair<device::MiB, int> Charged(const std::string& uuid) const {
    std::pair<device::MiB, int> sum;
    for (const auto& [uid, pod] : world_.api) {
      if (pod.Ended()) continue;
      for (const auto& row : pod.allocated) {
        for (const device::Share& share : row) {
          if (share.uuid != uuid) continue;
          sum.first += share.memory;
          ++sum.second;
        }
      }
    }
    return sum;
  }

  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return running_.size(); }
  int exchanges_seen() const { return mismatches_; }

 private:
  void Unsettle() {
    unsettled_ = true;
    delivered_ = false;
  }

  void Live() { allocator_ = world_.NewAllocator(concurrent_, cards_); }

  bool MayBind(const PodView& pod) const {
    return std::all_of(waiting_.begin(), waiting_.end(), [&](const std::string& uid) {
      const PodView& other = world_.api.at(uid);
      if (!concurrent_) return false;
      if (Interchangeable(pod.allocated, other.allocated)) return true;
      if (pod.allocated.size() != other.allocated.size()) return false;
      for (std::size_t i = 0; i < pod.allocated.size(); ++i) {
        if (pod.allocated[i].size() == other.allocated[i].size()) return false;
      }
      return true;
    });
  }

  // With or without the agent's advice.
  std::vector<std::string> PickSlots(std::size_t size) {
    std::vector<std::string> available(free_.begin(), free_.end());
    std::shuffle(available.begin(), available.end(), random_);
    std::vector<std::string> advice;
    if (Chance(70)) {
      try {
        advice = allocator_->Prefer({available, {}, size});
      } catch (const Killed&) {
        Live();
        Unsettle();
      }
    }
    for (const std::string& slot : available) {
      if (advice.size() == size) break;
      if (std::find(advice.begin(), advice.end(), slot) == advice.end()) advice.push_back(slot);
    }
    return advice;
  }

  std::optional<Response> AllocateOnce(const std::vector<std::string>& slots) {
    try {
      auto response = allocator_->Allocate(slots);
      if (response) return *response;
      // With nobody dying there is always somebody to give to.
      EXPECT_FALSE(strict_) << response.error().message;
      if (world_.kill_at < 0 && !died_) ADD_FAILURE() << "refused: " << response.error().message << Dump();
    } catch (const Killed&) {
      died_ = true;
      Live();
      Unsettle();
    }
    return std::nullopt;
  }

  // The call was repeated before anything else happened: the kubelet must hear the same. With several pods on their way
  // nobody could tell it from the call of another pod.
  void AskAgain(const std::vector<std::string>& slots, const Response& first) {
    if (concurrent_ || !waiting_.empty()) return;
    const auto again = AllocateOnce(slots);
    if (again && !died_) {
      EXPECT_EQ(*again, first);
    }
  }

  // UnexpectedAdmissionError: final for this pod.
  void RefusePod(const std::string& uid, const Holdings& before) {
    for (const Holding& holding : world_.holdings) {
      if (std::find(before.begin(), before.end(), holding) != before.end()) continue;
      free_.insert(holding.slots.begin(), holding.slots.end());
    }
    world_.holdings = before;
    world_.api.at(uid).status_phase = "Failed";
    given_.erase(uid);
    died_ = false;
    Unsettle();
  }

  void Release(const std::string& uid) {
    const std::string& name = world_.api.at(uid).name;
    std::erase_if(world_.holdings, [&](const Holding& holding) {
      if (holding.pod != name) return false;
      free_.insert(holding.slots.begin(), holding.slots.end());
      return true;
    });
  }

  std::string Dump() const {
    std::string text = "\n" + std::to_string(free_.size()) + " slots free";
    for (const auto& [uid, pod] : world_.api) {
      text += base::Concat({"\n", pod.name, " ", pod.status_phase, " ", pod.bind_phase, " allocated=",
                            device::EncodeGrant(pod.allocated), " to-allocate=", device::EncodeGrant(pod.to_allocate)});
    }
    for (const Holding& holding : world_.holdings) {
      text += base::Concat({"\n", holding.pod, "/", holding.container, " holds ", base::Join(holding.slots, ",")});
    }
    return text + "\n" + world_.disk;
  }

  std::mt19937 random_;
  const bool concurrent_;
  World world_;
  Cards cards_;
  std::unique_ptr<Allocator> allocator_;
  std::set<std::string> free_;
  std::vector<std::string> waiting_;  // bound, not yet admitted
  std::set<std::string> running_;
  std::map<std::string, std::map<int, MemoryByCard>> given_;  // by uid and container
  int next_pod_ = 0;
  int mismatches_ = 0;
  bool unsettled_ = false;  // what a pod that went was assumed to hold may be another's: nothing is bound meanwhile
  bool delivered_ = false;
  bool died_ = false;
  bool strict_ = false;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {{{1}, 10000}, {{1, 1}, 5000}, {{2}, 10000}, {{2, 1}, 5000}};
  return shapes;
}

void RunDay(unsigned seed, bool concurrent, bool deadly) {
  base::StartLog("test", std::getenv("HAMI_TEST_TRACE") != nullptr ? base::LogLevel::kDebug : base::LogLevel::kOff);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Node node(seed, concurrent);
  std::mt19937 random(seed + 1);
  for (int step = 0; step < 120; ++step) {
    const Shape& shape = Shapes()[(seed + (node.Chance(20) ? random() : 0)) % Shapes().size()];
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        node.Bind(shape);
        break;
      case 3:
      case 4:
        if (deadly && node.Chance(25)) node.ArmKill();
        node.Admit();
        node.world().kill_at = -1;
        break;
      case 5:
        node.Chance(50) ? node.Delete() : node.End();
        break;
      case 6:
        if (deadly && node.Chance(25)) node.ArmKill();
        node.Tend();
        node.world().kill_at = -1;
        break;
      default:
        node.Deliver();
        break;
    }
    node.world().now += static_cast<std::int64_t>(random() % 3);
    if (step % 12 == 11) {
      node.Settle();
      node.Check("seed " + std::to_string(seed) + " step " + std::to_string(step));
      if (::testing::Test::HasFailure()) return;
    }
  }
  node.AdmitEverybody();
  node.Settle();
  node.Check("seed " + std::to_string(seed) + " at the end");
}

TEST(InterleavingTest, GivenPodsInFlight_WhenInAnyOrder_ThenBooksMatchContainers) {
  for (unsigned seed = 1; seed <= 300 && !HasFailure(); ++seed) RunDay(seed, true, false);
}

TEST(InterleavingTest, GivenDeathsAtAnyCall_WhenBack_ThenNoGrantIsGivenTwiceOrLost) {
  for (unsigned seed = 1; seed <= 300 && !HasFailure(); ++seed) RunDay(seed, true, true);
}

TEST(InterleavingTest, GivenOnePodInFlight_WhenAgentDies_ThenOldProtocolHolds) {
  for (unsigned seed = 1; seed <= 100 && !HasFailure(); ++seed) RunDay(seed, false, true);
}

// The same three pods, admitted last to first; the agent dies at call K, for every K there is.
TEST(InterleavingTest, GivenThreeLikePods_WhenAgentDiesAtAnyCall_ThenBooksAreRight) {
  for (const bool after : {false, true}) {
    for (int kill = 0; kill < 40; ++kill) {
      Node node(7, true);
      for (int i = 0; i < 3; ++i) node.Bind(Shapes()[0]);
      ASSERT_EQ(node.waiting(), 3u);
      node.Deliver();
      node.world().kill_at = kill;
      node.world().kill_after = after;
      for (int i = 0; i < 3; ++i) {
        node.Admit();
        node.Tend();
        node.Deliver();
      }
      const bool died = node.world().kill_at < 0;
      node.world().kill_at = -1;
      node.Settle();
      node.AdmitEverybody();
      node.Settle();
      node.Check("kill " + std::to_string(kill));
      if (!died) break;  // there are no more calls than this
      ASSERT_LT(kill, 39) << "the loop must have seen every call";
    }
  }
}

}  // namespace
}  // namespace hami::plugin
