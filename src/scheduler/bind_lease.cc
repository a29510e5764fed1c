// SPDX-License-Identifier: Apache-2.0

#include "scheduler/bind_lease.h"

#include <limits>
#include <utility>

#include "base/log.h"
#include "base/strings.h"

namespace hami::scheduler {
namespace {

constexpr int kMostTurns = 4;  // of one tick, when others write at the same time
constexpr std::size_t kRevokesATick = 500;
constexpr Millis kForever = std::numeric_limits<Millis>::max();

// Who is at the lease beside SELF and lives.
bool OthersLive(const Members& members, const LeaseInput& input) {
  for (const auto& [writer, beat] : members) {
    if (writer != input.self && input.dead.count(writer) == 0) return true;
  }
  return false;
}

}  // namespace

std::optional<Members> ParseMembers(std::string_view text) {
  Members members;
  if (text.empty()) return members;
  for (const std::string& part : base::Split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) return std::nullopt;
    if (!members.emplace(part.substr(0, equals), part.substr(equals + 1)).second) return std::nullopt;
  }
  return members;
}

std::string FormatMembers(const Members& members) {
  std::string text;
  for (const auto& [writer, beat] : members) text += base::Concat({text.empty() ? "" : ",", writer, "=", beat});
  return text;
}

LeaseStep NextLease(const LeaseInput& input) {
  const LeaseView& lease = input.lease;
  // A text that nobody wrote who knows how: its writers, if any, are found dead or write anew.
  Members members = ParseMembers(lease.members).value_or(Members{});
  const bool mine = lease.holder == input.self;
  LeaseStep step;
  step.next = lease;
  if (!input.wants) {
    step.writes = members.erase(input.self) > 0 || mine;
    if (mine && !input.drained) {
      members[input.self] = input.beat;  // not dead, only not done
    } else if (mine) {
      step.next.holder.clear();
    }
    step.next.members = FormatMembers(members);
    return step;
  }
  step.writes = true;
  const bool others = OthersLive(members, input);
  std::erase_if(members, [&](const auto& member) { return input.dead.count(member.first) > 0; });
  members[input.self] = input.beat;
  step.next.members = FormatMembers(members);
  if (!mine && !lease.holder.empty()) {
    if (input.dead.count(lease.holder) == 0) return step;
    step.next.holder = input.self;
    step.next.unclean = true;
  } else if (lease.unclean && !(mine && input.cleaned)) {
    step.next.holder = input.self;
  } else if (!mine || !others || input.drained) {
    step.next.unclean = false;
    step.next.holder = others ? std::string() : input.self;
    step.mode = others ? BindMode::kTickets : BindMode::kAlone;
  }
  return step;
}

BindLease::BindLease(Api& api, Time& time, Needs needs, BindLeaseOptions options)
    : api_(api), time_(time), needs_(std::move(needs)), options_(std::move(options)) {
  if (options_.enabled) return;
  term_ = {BindMode::kTickets, ++terms_, {}};
  valid_until_ = kForever;
}

void BindLease::Tick() {
  if (!options_.enabled) return;
  for (int turn = 0; turn < kMostTurns; ++turn) {
    if (Turn()) return;
  }
}

// True: enough for this tick.
bool BindLease::Turn() {
  if (!lease_ && !Read()) return true;
  if (lease_->holder != options_.writer) {
    cleaned_ = false;
    to_revoke_.reset();
  } else if (lease_->unclean && !cleaned_) {
    Clean();
  }
  const LeaseStep step = Decide();
  if (!step.writes) {
    EndTerm();
    lease_.reset();
    return true;
  }
  LeaseView next = step.next;
  const bool moves = next.holder != lease_->holder;
  if (moves) ++next.transitions;
  const Millis sent = time_.Steady();
  kube::Result<LeaseView> written = api_.WriteLease(next);
  if (!written) {
    const kube::Reason reason = written.error().reason;
    const bool gone = reason == kube::Reason::kNotFound && !next.version.empty();
    lease_.reset();
    if (reason == kube::Reason::kConflict || reason == kube::Reason::kAlreadyExists || gone) return false;
    Refused(written.error());
    return true;
  }
  known_ = true;
  forbidden_since_.reset();
  complaint_.clear();
  lease_ = *std::move(written);
  Enter(step.mode, sent);
  if (moves) Tell(step.mode);
  if (lease_->holder == options_.writer && lease_->unclean) return !moves;
  // Others write as well: it is read again.
  if (step.mode == BindMode::kNobody) lease_.reset();
  return true;
}

void BindLease::Tell(BindMode mode) const {
  if (mode == BindMode::kTickets) {
    base::LogInfo("another scheduler binds pods, too: every binding writes a ticket on its node");
  } else if (mode == BindMode::kAlone) {
    base::LogInfo("no other scheduler binds pods: no tickets are needed on nodes");
  } else if (lease_->unclean) {
    base::LogInfo(
        "the scheduler that bound pods alone is gone: pods without a node are marked, so that what it may "
        "still bind is refused");
  }
}

LeaseStep BindLease::Decide() {
  LeaseInput input;
  input.lease = *lease_;
  input.self = options_.writer;
  input.beat = std::to_string(++beats_);
  input.wants = !leaving_ && needs_.wants();
  input.cleaned = cleaned_;
  input.dead = Dead(time_.Steady());
  const LeaseStep step = NextLease(input);
  if (step.mode == BindMode::kAlone) return step;
  // Whoever is to give it up posts nothing from now on; then it shows whether something is on its way.
  {
    const std::scoped_lock lock(mutex_);
    if (term_.mode == BindMode::kAlone) term_ = {};
  }
  input.drained = Drained();
  return NextLease(input);
}

bool BindLease::Read() {
  kube::Result<LeaseView> read = api_.GetLease();
  if (!read && read.error().reason != kube::Reason::kNotFound) {
    Refused(read.error());
    return false;
  }
  if (read) known_ = true;
  lease_ = read ? *std::move(read) : LeaseView{};
  {
    const std::scoped_lock lock(mutex_);
    const bool same = lease_->uid == term_uid_ && lease_->transitions == term_transitions_;
    if (!same) term_ = {};
  }
  Observe(time_.Steady());
  return true;
}

void BindLease::Refused(const kube::Error& error) {
  const Millis now = time_.Steady();
  SayOnce(base::Concat({"the lease that says who binds: ", error.message}));
  const bool no_right = error.reason == kube::Reason::kForbidden || error.reason == kube::Reason::kNotFound;
  if (!no_right) {
    forbidden_since_.reset();
    return;
  }
  if (!forbidden_since_) forbidden_since_ = now;
  if (now - *forbidden_since_ < (known_ ? options_.forbidden_later : options_.forbidden_first)) return;
  if (term().mode == BindMode::kTickets) return;
  EndTerm();
  if (!Drained()) return;
  base::LogWarning(
      base::Concat({"every binding writes a ticket on its node, because the lease of those who bind can "
                    "not be had (rights: get, create, patch): ",
                    error.message}));
  const std::scoped_lock lock(mutex_);
  term_ = {BindMode::kTickets, ++terms_, {}};
  valid_until_ = kForever;
}

void BindLease::SayOnce(std::string complaint) {
  if (complaint == complaint_) return;
  base::LogWarning(complaint);
  complaint_ = std::move(complaint);
}

void BindLease::Observe(Millis now) {
  Members members = ParseMembers(lease_->members).value_or(Members{});
  if (!lease_->holder.empty()) members.emplace(lease_->holder, "");
  std::erase_if(seen_, [&](const auto& seen) { return members.count(seen.first) == 0; });
  for (const auto& [writer, beat] : members) {
    const auto [seen, is_new] = seen_.try_emplace(writer, Seen{beat, now});
    if (!is_new && seen->second.beat != beat) seen->second = {beat, now};
  }
}

std::set<std::string> BindLease::Dead(Millis now) const {
  std::set<std::string> dead;
  for (const auto& [writer, seen] : seen_) {
    if (writer != options_.writer && now - seen.since >= options_.patience) dead.insert(writer);
  }
  return dead;
}

void BindLease::Enter(BindMode mode, Millis sent) {
  {
    const std::scoped_lock lock(mutex_);
    if (term_.mode != mode || mode == BindMode::kNobody) {
      term_ = {};
    } else {
      valid_until_ = sent + options_.hold;
    }
    if (term_.mode == mode) return;
  }
  const kube::Result<Versions> heads = api_.Heads();
  if (!heads) return;  // the next tick tries again
  const std::scoped_lock lock(mutex_);
  term_ = {mode, ++terms_, *heads};
  term_uid_ = lease_->uid;
  term_transitions_ = lease_->transitions;
  valid_until_ = sent + options_.hold;
}

void BindLease::EndTerm() {
  const std::scoped_lock lock(mutex_);
  term_ = {};
}

// What a dead holder posted and nobody has seen arrive finds its pod changed. Pods that come later it never saw. A pod
// that can not be changed (a policy of the cluster forbids it) does not keep the others waiting for ever: the server
// gives a request up after a minute, so after more than that nothing is on its way.
void BindLease::Clean() {
  if (!to_revoke_) {
    kube::Result<std::vector<Owner>> unbound = api_.Unbound();
    if (!unbound) return SayOnce("pods without a node can not be listed: " + unbound.error().message);
    to_revoke_ = *std::move(unbound);
    cleaning_since_ = time_.Steady();
  }
  std::vector<Owner> refused;
  // Our own beat has to go on meanwhile, however slow the server is.
  const Millis begin = time_.Steady();
  const auto has_time = [&] { return time_.Steady() - begin < options_.beat; };
  for (std::size_t i = 0; i < kRevokesATick && !to_revoke_->empty() && has_time(); ++i) {
    const Owner pod = std::move(to_revoke_->back());
    to_revoke_->pop_back();
    const kube::Status revoked = needs_.revoke(pod);
    if (revoked || revoked.error().reason == kube::Reason::kNotFound) continue;
    SayOnce(base::Concat({"pod ", pod.ns, "/", pod.name, " can not be marked: ", revoked.error().message}));
    refused.push_back(pod);
  }
  to_revoke_->insert(to_revoke_->begin(), refused.begin(), refused.end());
  cleaned_ = to_revoke_->empty() || time_.Steady() - cleaning_since_ >= options_.longest_request;
}

bool BindLease::Drained() const {
  {
    const std::scoped_lock lock(mutex_);
    if (posting_ > 0) return false;
  }
  return !needs_.unsettled();
}

BindTerm BindLease::term() const {
  const std::scoped_lock lock(mutex_);
  return time_.Steady() < valid_until_ ? term_ : BindTerm{};
}

bool BindLease::CaughtUp(const BindTerm& term) const {
  if (term.from.pods == 0 && term.from.nodes == 0) return true;
  const Versions reached = needs_.reached();
  return reached.pods >= term.from.pods && reached.nodes >= term.from.nodes;
}

bool BindLease::MayPost(const BindTerm& term, bool ticketed) const {
  const std::scoped_lock lock(mutex_);
  if (time_.Steady() >= valid_until_ || term_.mode == BindMode::kNobody) return false;
  return ticketed || (term_.mode == BindMode::kAlone && term_.number == term.number);
}

void BindLease::Run(const net::Canceller& stop) {
  do {
    Tick();
  } while (!stop.SleepUntil(net::After(std::chrono::milliseconds(options_.beat))));
  leaving_ = true;
  Tick();
}

BindLease::Posting::Posting(BindLease& lease, const BindTerm& term, bool ticketed)
    : lease_(lease), term_(term), ticketed_(ticketed) {
  const std::scoped_lock lock(lease_.mutex_);
  ++lease_.posting_;
}

BindLease::Posting::~Posting() {
  const std::scoped_lock lock(lease_.mutex_);
  --lease_.posting_;
}

bool BindLease::Posting::may() const { return lease_.MayPost(term_, ticketed_); }

}  // namespace hami::scheduler
