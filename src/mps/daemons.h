// SPDX-License-Identifier: Apache-2.0
//
// The control daemons of all GPUs of a machine under the supervision of one thread, which looks at each of them every
// second. A daemon is started when it is first wanted, and outlives this object: the next one finds it again.
// Thread-safe. Refuses nothing; what goes wrong is the state of that GPU's daemon, and a notice.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "mps/control.h"

namespace hami::mps {

struct DaemonsOptions {
  std::string program;
  std::string folder;  // of all daemons; each has one of its own in it
  std::chrono::milliseconds every{1'000};
  std::chrono::milliseconds answer_within{3'000};
  Rules rules = {};
  // Called on the supervising thread, without a lock.
  std::function<void(const std::string& uuid, const Notice& notice)> on_notice = {};
  std::function<void()> on_change = {};  // whether some daemon serves
};

class Daemons {
 public:
  explicit Daemons(DaemonsOptions options);
  ~Daemons();  // the daemons go on
  Daemons(const Daemons&) = delete;
  Daemons& operator=(const Daemons&) = delete;

  void Want(const std::string& uuid, const Limits& limits);
  // The same, without lowering what others were promised.
  void WantAtLeast(const std::string& uuid, Limits limits);
  // Ends the daemons of an earlier process that nothing has wanted since.
  void EndOthers();
  // Ends all daemons, those of an earlier process too.
  void WantNone();
  bool AllStopped() const;
  // Nothing is looked at, and no callback comes, any more. The daemons go on.
  void Stop();

  // Until the daemon of UUID, which is wanted, serves clients. An error says why it does not.
  base::Status Await(const std::string& uuid, std::chrono::milliseconds within) const;

  std::map<std::string, Memory> Look() const;
  std::string PipeOf(const std::string& uuid) const { return PlaceOf(uuid).Pipe(); }

 private:
  struct Entry {
    Wanted wanted;
    Memory memory;
    bool looked_at = false;  // until then nobody knows whether it runs
  };
  static bool IsStopped(const Entry& entry) {
    return !entry.wanted.running && entry.looked_at && entry.memory.state == State::kStopped;
  }
  void FindOthersLocked();
  void WantLocked(const std::string& uuid, const Limits& limits);
  Place PlaceOf(const std::string& uuid) const { return {options_.program, uuid, options_.folder + "/" + uuid}; }
  void Run();
  void TendAll();
  void TendOne(const std::string& uuid);

  const DaemonsOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stopping_ = false;
  bool poked_ = false;
  std::map<std::string, Entry> entries_;
  std::thread thread_;
};

}  // namespace hami::mps
