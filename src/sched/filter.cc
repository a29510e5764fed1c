// SPDX-License-Identifier: Apache-2.0

#include "sched/filter.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "sched/grant.h"

namespace hami::sched {
namespace {

constexpr std::size_t kMaxShapes = 64;
constexpr std::size_t kMostPreempted = 64;  // nodes with pods that could go are looked at, in the order of the request

// Names differ in their last characters more than in their first.
bool Contains(std::span<const std::string_view> names, std::string_view wanted) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return name.size() == wanted.size() && (name.empty() || name.back() == wanted.back()) && name == wanted;
  });
}

Decision Error(std::string text) {
  Decision decision;
  decision.outcome = Outcome::kError;
  decision.error = std::move(text);
  return decision;
}

// What nobody could read again, which would close the node (device::DecodeGrant).
bool TooLong(const device::Allocation& allocation) {
  std::size_t shares = 0;
  std::size_t containers = 0;
  for (const auto& [vendor, grant] : allocation.grants) {
    containers = std::max(containers, grant.size());
    for (const device::ContainerGrant& container : grant) shares += container.size();
  }
  return std::max(shares, containers) > device::kMostShares;
}

}  // namespace

std::optional<Filter::Question> Filter::MakeQuestion(const device::Pod& pod, Decision& decision) {
  base::Result<Plan> plan = MakePlan(pod, vendors_, defaults_);
  if (!plan) {
    decision = Error(plan.error().message);
    return std::nullopt;
  }
  if (plan->empty()) {
    decision.outcome = Outcome::kNotOurs;
    return std::nullopt;
  }
  Question question;
  question.plan = std::move(*plan);
  question.room = Room(pod, question.plan);
  question.key = question.plan.shape;
  if (learns_ || question.plan.Fragments()) workload_.See(pod.uid, question.plan);
  if (question.plan.Fragments()) {
    question.key.append("w").append(std::to_string(workload_.Current().version));
  }
  for (const QuotaRoom& room : question.room) {
    const auto text = [](const std::optional<std::int64_t>& left) { return left ? std::to_string(*left) : "-"; };
    question.key += base::Concat({"|", text(room.memory), ",", text(room.cores)});
  }
  return question;
}

Filter::Filter(const Ledger& ledger, const device::Vendors& vendors, PolicyDefaults defaults, const HostBooks& hosts)
    : ledger_(ledger),
      vendors_(vendors),
      defaults_(std::move(defaults)),
      hosts_(hosts),
      learns_(defaults_.node == kFragmentation || defaults_.device == kFragmentation) {}

void Filter::Learn(const device::Pod& pod) {
  const base::Result<Plan> plan = MakePlan(pod, vendors_, defaults_);
  if (plan && !plan->empty()) workload_.See(pod.uid, *plan);
}

const HostBooks& Filter::NoHosts() {
  static const HostBooks none;
  return none;
}

// The most that the pod could be charged fits: then no card can be refused for the quota, and pods of namespaces with
// and without one share their verdicts.
bool Filter::QuotaCanMatter(const Plan& plan, int vendor, const QuotaRoom& room) const {
  std::int64_t memory = 0;
  std::int64_t cores = 0;
  for (const ContainerPlan& container : plan.containers) {
    for (const Ask& ask : container.asks) {
      if (ask.vendor != vendor) continue;
      const bool known = ask.request.memory > 0 && !ledger_.seen_mig();
      const device::MiB each = known ? ask.request.memory : std::max(ask.request.memory, ledger_.largest_card());
      const std::int64_t most_cores = std::max(ask.request.cores, ledger_.largest_profile_cores());
      memory += std::min(each * ask.request.count, kMostAsked);
      cores += std::min(most_cores * ask.request.count, kMostAsked);
    }
  }
  return !room.Admits(memory, cores);
}

std::vector<QuotaRoom> Filter::Room(const device::Pod& pod, const Plan& plan) const {
  std::vector<QuotaRoom> rooms(vendors_.size());
  bool matters = false;
  for (std::size_t v = 0; v < vendors_.size(); ++v) {
    const int vendor = static_cast<int>(v);
    if (!plan.Asks(vendor)) continue;
    const QuotaRoom room = ledger_.quotas().Room(pod.ns, pod.traits, vendor);
    if (!room.limited() || !QuotaCanMatter(plan, vendor, room)) continue;
    rooms[v] = room;
    matters = true;
  }
  if (!matters) rooms.clear();
  return rooms;
}

ShapeIndex& Filter::Current(const Question& question) {
  const auto found = by_key_.find(question.key);
  if (found != by_key_.end()) {
    shapes_.splice(shapes_.begin(), shapes_, found->second);
  } else {
    if (shapes_.size() >= kMaxShapes) {
      by_key_.erase(shapes_.back().key);
      shapes_.pop_back();
    }
    shapes_.push_front({question.key, ShapeIndex(question.plan.spread_nodes)});
    by_key_.emplace(shapes_.front().key, shapes_.begin());
    ++counters_.shapes_built;
  }
  ShapeIndex& index = shapes_.front().index;
  const FragmentView view = View();
  counters_.nodes_asked += index.Refresh(
      ledger_, [&](const Node& node) { return Evaluate(node, question.plan, vendors_, question.room, &view); });
  return index;
}

void Filter::Place(const device::Pod& pod, const Question& question, const Node& node, device::UnixSeconds now,
                   Decision& decision) const {
  Placement placement;
  const FragmentView view = View();
  const Verdict verdict = Evaluate(node, question.plan, vendors_, question.room, &view, &placement);
  if (!verdict.fits) {
    decision = Error("the books of node " + node.name() + " changed during the decision");
    return;
  }
  decision.outcome = Outcome::kPlaced;
  decision.node = node.name();
  decision.score = verdict.score;
  decision.allocation = MakeAllocation(node, question.plan, vendors_, placement);
  if (TooLong(decision.allocation)) {
    decision = Error(base::Concat(
        {"the pod has more than ", std::to_string(device::kMostShares), " containers, or asks for more shares"}));
    return;
  }
  decision.annotations = MakeAnnotations(pod, node, question.plan, decision.allocation, vendors_, now);
}

std::vector<NodeScore> Filter::Best(const ShapeIndex& index, std::span<const std::string_view> names,
                                    std::span<const NodeId> guessed, std::size_t most) const {
  std::vector<std::size_t> fits;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const NodeId id = guessed[i];
    if (id != kNoNode && index.fits(id) && ledger_.node(id).name() == names[i]) fits.push_back(i);
  }
  const auto better = [&](std::size_t a, std::size_t b) {
    return index.Beats(guessed[a], names[a], guessed[b], names[b]);
  };
  std::sort(fits.begin(), fits.end(), better);
  fits.erase(std::unique(fits.begin(), fits.end(), [&](std::size_t a, std::size_t b) { return names[a] == names[b]; }),
             fits.end());
  if (fits.size() > most) fits.resize(most);
  std::vector<NodeScore> best;
  best.reserve(fits.size());
  for (const std::size_t i : fits) best.push_back({std::string(names[i]), index.score(guessed[i])});
  return best;
}

Decision Filter::Decide(const device::Pod& pod, std::span<const std::string_view> names, const FilterOptions& options) {
  Decision decision;
  decision.candidates = names.size();
  const std::optional<Question> question = MakeQuestion(pod, decision);
  if (!question) return decision;
  ++counters_.decisions;
  const ShapeIndex& index = Current(*question);

  // Where most nodes are named, the best of all is nearly always among them, and one name is found sooner in the
  // request than all of its names in the books.
  const NodeId favourite = names.size() < ledger_.node_count() / 2 ? kNoNode : index.Best();
  if (!options.explain && options.offer == 0 && favourite != kNoNode &&
      Contains(names, ledger_.node(favourite).name())) {
    Place(pod, *question, ledger_.node(favourite), options.now, decision);
    return decision;
  }

  const std::vector<NodeId> guessed = ledger_.Guess(names);
  NodeId best = kNoNode;
  std::string_view best_name;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const NodeId id = guessed[i];
    if (id == kNoNode || !index.fits(id)) continue;
    if (best != kNoNode && !index.Beats(id, names[i], best, best_name)) continue;
    if (ledger_.node(id).name() != names[i]) continue;  // nobody's name
    best = id;
    best_name = names[i];
  }
  if (options.offer > 0) decision.offered = Best(index, names, guessed, options.offer);
  if (best == kNoNode || options.explain) {
    const std::vector<NodeId> ids = ledger_.FindAll(names);
    ++round_;
    seen_.resize(ledger_.node_ids(), 0);
    decision.candidates = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const NodeId id = ids[i];
      if (id != kNoNode && std::exchange(seen_[id], round_) == round_) continue;  // named twice
      ++decision.candidates;
      if (id == kNoNode) {
        decision.failures.push_back({std::string(names[i]), device::kNodeUnregistered});
      } else if (index.fits(id)) {
        decision.fits.push_back({std::string(names[i]), index.score(id)});
      } else {
        decision.failures.push_back({std::string(names[i]), index.reason(id)});
      }
    }
    SortFits(decision.fits, question->plan.spread_nodes);
  }
  if (best == kNoNode) {
    decision.outcome = Outcome::kNoFit;
  } else {
    Place(pod, *question, ledger_.node(best), options.now, decision);
  }
  return decision;
}

std::optional<Victims> Filter::FindVictims(const device::Pod& pod, std::span<const std::string_view> names,
                                           const Spared& spared, std::span<const PodRecord* const> gone) {
  Decision none;
  const std::optional<Question> question = MakeQuestion(pod, none);
  if (!question) return std::nullopt;
  const FragmentView view = View();
  const Preemptor preemptor{question->plan, question->room, &view, pod.priority};
  std::optional<Victims> best;
  std::size_t found = 0;
  for (const NodeId id : ledger_.FindAll(names)) {
    if (id == kNoNode || !ledger_.node(id).registered() || !ledger_.node(id).readable()) continue;
    std::optional<Victims> victims = FewestVictims(ledger_, id, vendors_, preemptor, gone, spared);
    if (!victims) continue;
    if (!best || CostsLess(*victims, *best)) best = std::move(victims);
    if (++found >= kMostPreempted) break;
  }
  return best;
}

Decision Filter::DecideAny(const device::Pod& pod, const FilterOptions& options) {
  Decision decision;
  const std::optional<Question> question = MakeQuestion(pod, decision);
  if (!question) return decision;
  const ShapeIndex& index = Current(*question);
  const NodeId best = index.Best();
  if (best == kNoNode || options.explain) {
    std::vector<std::string_view> names;
    for (NodeId id = 0; id < ledger_.node_ids(); ++id) {
      if (ledger_.exists(id)) names.emplace_back(ledger_.node(id).name());
    }
    return Decide(pod, names, options);
  }
  ++counters_.decisions;
  decision.candidates = ledger_.node_count();
  Place(pod, *question, ledger_.node(best), options.now, decision);
  return decision;
}

}  // namespace hami::sched
