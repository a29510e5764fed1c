// SPDX-License-Identifier: Apache-2.0
//
// The demo's stage: a temporary folder with a simulated machine and a state folder of its own, and the programs started
// there through `hami run`, each in a process group of its own. The destructor kills and removes
// everything. If the demo itself is killed with SIGKILL, the kernel kills its programs; only its temporary folder
// stays.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace hami::cli {

// One program to be shown.
struct Role {
  std::string name;
  std::string guest;                   // file name of the program
  std::vector<std::string> arguments;  // of the program
  std::uint64_t limit_bytes = 0;
  std::string purpose;  // for the reader
};

struct Actor {
  Role role;
  pid_t pid = -1;                               // of `hami run`, and of the process group
  std::optional<int> wait_status;               // once it has ended
  std::map<std::string, std::uint64_t> report;  // what the program said it saw; read when it has ended
  std::string complaints;                       // its stderr
};

class Stage {
 public:
  // GPUS as in SIMGPU. Sets this process's environment to the stage's.
  static base::Result<Stage> Build(const std::string& gpus);
  Stage(Stage&& other) noexcept;
  Stage& operator=(Stage&&) = delete;
  ~Stage();

  base::Status Start(const Role& role);
  // Notices who has ended. True while anybody plays.
  bool Observe();
  // SIGKILL to every process of every actor.
  void KillAll();

  const std::vector<Actor>& actors() const { return actors_; }
  // Whose process PID is (by its group, so also of one that the library does not know): index into actors().
  std::optional<std::size_t> ActorOf(pid_t pid) const;
  std::string StateFolder() const { return folder_ + "/state"; }
  const std::string& nvml_path() const { return nvml_path_; }

 private:
  Stage() = default;
  void ReadOutcome(Actor& actor) const;

  std::string folder_;
  std::string hami_;
  std::string guests_;
  std::string nvml_path_;
  std::vector<Actor> actors_;
};

}  // namespace hami::cli
