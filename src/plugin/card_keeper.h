// SPDX-License-Identifier: Apache-2.0
//
// The shell around NodeState: reads the driver every few seconds and at once after trouble, listens for XIDs, reloads
// the configuration, and publishes what follows. Owns the NVML session and three threads. A driver that does not answer
// blocks only the thread that asks; after a while the GPUs count as unhealthy, and the session is made anew when it
// answers again. Never ends the process.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nvml/nvml.h"
#include "plugin/inventory.h"
#include "plugin/mig_journal.h"
#include "plugin/node_config.h"
#include "plugin/node_state.h"
#include "plugin/options.h"
#include "plugin/registration.h"

namespace hami::plugin {

struct KeeperTimes {
  std::chrono::milliseconds reading{10'000};  // between looks at the GPUs
  std::chrono::milliseconds topology{30'000};
  std::chrono::milliseconds config{30'000};      // between looks at configuration files of which nothing is heard
  std::chrono::milliseconds deaf{2'000};         // the same where nothing can be heard
  std::chrono::milliseconds retry_first{2'000};  // without a driver
  std::chrono::milliseconds retry_most{60'000};
  std::chrono::milliseconds silence{20'000};  // a look that takes longer means that the driver does not answer
  std::chrono::milliseconds xid_slice{250};   // how long one wait for XIDs lasts, and stopping takes
  std::chrono::milliseconds stop_grace{3'000};
};

struct KeeperHooks {
  // Called with a lock held, on whichever thread found the news: short, and without calling back.
  // Before anybody is told of CARDS.
  std::function<void(const Cards& cards)> before_cards;
  std::function<void(const Registration& registration)> on_registration;
  std::function<void(const NodeEvent& event)> on_event;
  // The MIG instances that are ours. Empty: none are.
  std::function<MigEntries()> own_instances;
  std::function<UnixSeconds()> clock;  // default: the system's
};

class CardKeeper {
 public:
  // BOARD must outlive this.
  CardKeeper(Options options, CardBoard& board, KeeperHooks hooks, KeeperTimes times = {}, nvml::LoadOptions load = {},
             HealthRules rules = {});
  ~CardKeeper();
  CardKeeper(const CardKeeper&) = delete;
  CardKeeper& operator=(const CardKeeper&) = delete;

  // Reads the configuration, and the driver if there is one. An error is what must keep the plugin from starting: a bad
  // configuration, or no driver where that was to be fatal. A driver that hangs is waited for until INTERRUPTED, which
  // is asked several times a second, says that this is to end, too.
  base::Status Start(const std::function<bool()>& interrupted = {});
  void Stop();

  // From the registrar's watch.
  void SeeNode(const Labels& labels, const device::StringMap& annotations);
  // The mode that is in force from now on.
  void UseMode(OperatingMode mode);
  void SeeMps(Troubles troubles);
  // Whether several pods at once are safe here; part of the registration.
  void AllowConcurrentAllocate(bool allowed);

  // The driver was read and the node seen.
  bool ready() const;

 private:
  struct Core;
  base::Status AwaitFirstLook(const std::function<bool()>& interrupted);

  const std::shared_ptr<Core> core_;
  std::vector<std::thread> threads_;
};

}  // namespace hami::plugin
