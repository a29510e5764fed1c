// SPDX-License-Identifier: Apache-2.0

#include "mps/supervision.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace hami::mps {
namespace {

using base::Concat;

void Enter(Memory& memory, State state, std::string trouble, Millis now) {
  if (memory.state != state) memory.since = now;
  memory.state = state;
  memory.trouble = std::move(trouble);
}

Millis WaitAfter(int failures, const Rules& rules) {
  if (failures <= 1) return 0;
  Millis wait = rules.first_wait;
  for (int i = 2; i < failures && wait < rules.longest_wait; ++i) wait *= 2;
  return std::min(wait, rules.longest_wait);
}

// It served, or was to, and does not any more.
void Fall(Decision& decision, const std::string& why, Millis now, const Rules& rules) {
  Memory& memory = decision.memory;
  const std::size_t clients = CountClients(memory.servers);
  if (memory.state == State::kRunning && now - memory.since >= rules.settled) memory.failures = 0;
  ++memory.failures;
  memory.next_start = now + WaitAfter(memory.failures, rules);
  memory.silent_since = -1;
  memory.told = false;
  memory.servers.clear();
  Enter(memory, State::kDown, why, now);
  std::string message = "the MPS control daemon is down: " + why;
  if (clients > 0) message += Concat({"; clients at the last look: ", std::to_string(clients)});
  decision.notices.push_back({true, "MpsDaemonDown", message});
}

std::string PidsText(const std::vector<Server>& servers) {
  std::vector<std::string> pids;
  for (const Server& server : servers) {
    for (const int client : server.clients) pids.push_back(std::to_string(client));
  }
  return base::Join(pids, ", ");
}

// Servers that had clients and are gone took those clients with them.
void NoteLostServers(Decision& decision, const std::vector<Server>& now_there) {
  for (const Server& before : decision.memory.servers) {
    const bool stays =
        std::any_of(now_there.begin(), now_there.end(), [&](const Server& server) { return server.pid == before.pid; });
    if (stays || before.clients.empty()) continue;
    ++decision.memory.faults;
    decision.notices.push_back(
        {true, "MpsServerLost",
         Concat({"the MPS server ", std::to_string(before.pid), " ended and its ",
                 std::to_string(before.clients.size()), " clients with it: ", PidsText({before})})});
  }
}

void JudgeAnswer(Decision& decision, const Wanted& wanted, const Seen& seen, Millis now, const Rules& rules) {
  Memory& memory = decision.memory;
  memory.silent_since = -1;
  NoteLostServers(decision, seen.servers);
  memory.servers = seen.servers;
  const bool faulted = std::any_of(seen.servers.begin(), seen.servers.end(),
                                   [](const Server& server) { return server.status == ServerStatus::kFault; });
  if (faulted) {
    const std::string why =
        "a fatal fault of one client ended the work of all; it serves again when they have ended: " +
        PidsText(seen.servers);
    if (memory.state != State::kFaulted) {
      ++memory.faults;
      decision.notices.push_back({true, "MpsServerFault", "MPS: " + why});
    }
    Enter(memory, State::kFaulted, why, now);
    return;
  }
  if (!memory.told || memory.limits != wanted.limits) {
    decision.action = Action::kConfigure;
    memory.told = true;
    memory.limits = wanted.limits;
  }
  if (memory.state == State::kRunning) {
    if (memory.failures > 0 && now - memory.since >= rules.settled) memory.failures = 0;
    return;
  }
  if (memory.state == State::kFaulted || memory.failures > 0) {
    decision.notices.push_back({false, "MpsDaemonServes", "MPS serves clients again"});
  }
  Enter(memory, State::kRunning, {}, now);
}

void JudgeSilence(Decision& decision, const Seen& seen, Millis now, const Rules& rules) {
  Memory& memory = decision.memory;
  if (memory.silent_since < 0) memory.silent_since = now;
  const Millis since = memory.state == State::kStarting ? memory.since : memory.silent_since;
  if (now - since < rules.patience) return;
  decision.action = Action::kKill;
  Fall(decision,
       Concat({"it did not answer for ", std::to_string((now - since) / 1000), " s", seen.trouble.empty() ? "" : ": ",
               seen.trouble}),
       now, rules);
}

void JudgeUnwanted(Decision& decision, const Seen& seen, Millis now, const Rules& rules) {
  Memory& memory = decision.memory;
  if (!seen.process && !seen.answers) {
    const std::uint64_t restarts = memory.restarts;
    const std::uint64_t faults = memory.faults;
    const bool was_stopped = memory.state == State::kStopped;
    const Millis since = memory.since;
    memory = Memory{};
    memory.since = was_stopped ? since : now;
    memory.restarts = restarts;
    memory.faults = faults;
    return;
  }
  // One that an earlier process left behind.
  if (memory.state == State::kStopped) Enter(memory, seen.answers ? State::kRunning : State::kStarting, {}, now);
  // Its end is asked for at every look, and forced after the patience.
  if (memory.silent_since < 0) memory.silent_since = now;
  decision.action = now - memory.silent_since >= rules.patience ? Action::kKill : Action::kQuit;
}

}  // namespace

const char* StateName(State state) {
  switch (state) {
    case State::kStopped:
      return "stopped";
    case State::kStarting:
      return "starting";
    case State::kRunning:
      return "running";
    case State::kFaulted:
      return "faulted";
    default:
      return "down";
  }
}

std::size_t CountClients(const std::vector<Server>& servers) {
  std::size_t count = 0;
  for (const Server& server : servers) count += server.clients.size();
  return count;
}

Decision Decide(const Wanted& wanted, const Seen& seen, const Memory& memory, Millis now, const Rules& rules) {
  Decision decision;
  decision.memory = memory;
  if (!wanted.running) {
    JudgeUnwanted(decision, seen, now, rules);
    return decision;
  }
  if (seen.answers) {
    JudgeAnswer(decision, wanted, seen, now, rules);
    return decision;
  }
  if (seen.process) {
    // Adopted, or being stopped when it was wanted again: it gets the patience of one that starts.
    if (decision.memory.state == State::kStopped) Enter(decision.memory, State::kStarting, "it is starting", now);
    JudgeSilence(decision, seen, now, rules);
    return decision;
  }
  const bool served =
      memory.state == State::kStarting || memory.state == State::kRunning || memory.state == State::kFaulted;
  if (served) {
    Fall(decision, memory.state == State::kStarting && !seen.trouble.empty() ? seen.trouble : "its process ended", now,
         rules);
  }
  if (now < decision.memory.next_start) return decision;
  decision.action = Action::kStart;
  if (decision.memory.state == State::kDown) ++decision.memory.restarts;
  decision.memory.told = false;
  decision.memory.silent_since = -1;
  const std::string why = decision.memory.state == State::kDown ? decision.memory.trouble : "it is starting";
  decision.memory.since = now;
  decision.memory.state = State::kStarting;
  decision.memory.trouble = why;
  return decision;
}

}  // namespace hami::mps
