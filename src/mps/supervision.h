// SPDX-License-Identifier: Apache-2.0
//
// What is to be done about one GPU's control daemon: a pure function from what is wanted, what one look at it showed
// and what is remembered, to one action and the new memory. Time is an argument, in milliseconds of a clock that does
// not jump.
//
//     Stopped ──wanted──► Starting ──answers──► Running ◄──clients gone── Faulted
//        ▲                   ▲  │ no answer        │  └──a client's fault───►┘
//        └──not wanted       │  ▼                  ▼ ended, or silent too long
//                            └─ Down ◄─────────────┘          (the wait before the next start doubles)
//
// A daemon that is Down, Faulted, or still Starting takes no new client: its GPU must not be given out. Refuses to act
// on a single unanswered question: a daemon under load may be slow.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/replies.h"

namespace hami::mps {

using Millis = std::int64_t;

// What the daemon holds clients to that bring no limit of their own, or a higher one.
struct Limits {
  int percent = 100;             // of the SMs
  std::uint64_t memory_mib = 0;  // 0: none
  bool operator==(const Limits&) const = default;
};

struct Wanted {
  bool running = false;
  Limits limits;
  bool operator==(const Wanted&) const = default;
};

struct Server {
  int pid = 0;
  ServerStatus status = ServerStatus::kActive;
  std::vector<int> clients;
  bool operator==(const Server&) const = default;
};

// One look at a daemon.
struct Seen {
  bool process = false;  // its process lives
  bool answers = false;
  std::vector<Server> servers;
  std::string trouble;  // why it does not answer
};

enum class State { kStopped, kStarting, kRunning, kFaulted, kDown };
const char* StateName(State state);

struct Rules {
  Millis patience = 10'000;   // with a daemon that does not answer
  Millis first_wait = 1'000;  // before the second restart in a row; the first one is at once
  Millis longest_wait = 60'000;
  Millis settled = 60'000;  // a daemon that ran for so long starts from the first wait again
};

struct Memory {
  State state = State::kStopped;
  std::string trouble;       // why clients are not served; empty: they are, or none is wanted
  Millis since = 0;          // of the state
  Millis silent_since = -1;  // the first unanswered question; -1: the last was answered
  Millis next_start = 0;
  int failures = 0;   // in a row
  bool told = false;  // `limits` are in force
  Limits limits;
  std::vector<Server> servers;  // at the last answer
  // Since the supervision began.
  std::uint64_t restarts = 0;
  std::uint64_t faults = 0;
};

enum class Action { kNone, kStart, kConfigure, kQuit, kKill };

// News for people.
struct Notice {
  bool warning = false;
  std::string reason;
  std::string message;
};

struct Decision {
  Action action = Action::kNone;
  Memory memory;
  std::vector<Notice> notices;
};

Decision Decide(const Wanted& wanted, const Seen& seen, const Memory& memory, Millis now, const Rules& rules = {});

// Whether new clients are served.
inline bool Serves(const Memory& memory) { return memory.state == State::kRunning; }

std::size_t CountClients(const std::vector<Server>& servers);

}  // namespace hami::mps
