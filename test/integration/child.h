// SPDX-License-Identifier: Apache-2.0
//
// A program under test in a process of its own, with an environment of its own and its stderr in a file. It does not
// outlive the object that holds it.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hami::testcluster {

class Child {
 public:
  using Variables = std::map<std::string, std::string>;

  // WORDS with the program's path first; what it writes goes to LOG.
  Child(const std::vector<std::string>& words, const Variables& environment, std::string log);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // What it has written so far.
  std::string Log() const;
  void Signal(int signal) const;
  bool running();
  // 128 + signal when it was killed; nothing when it still runs at the end of SPAN.
  std::optional<int> Wait(std::chrono::milliseconds span);
  // The text between BEFORE and the next of AFTER in the log, as soon as it is there; empty: the program ended, or did
  // not say it within a while.
  std::string Said(const std::string& before, const std::string& after);

 private:
  pid_t pid_ = -1;
  const std::string log_;
  std::optional<int> exit_status_;
};

}  // namespace hami::testcluster
