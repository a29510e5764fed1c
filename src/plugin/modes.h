// SPDX-License-Identifier: Apache-2.0
//
// What the modes mig and mps do to this node's GPUs, and which mode is in force. Owns the MIG instances that are ours,
// the MPS control daemons, and the memory of the mode. Refuses a change of the mode while something uses the GPUs.

#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "nvml/nvml.h"
#include "plugin/allocator.h"
#include "plugin/cdi.h"
#include "plugin/compute_mode.h"
#include "plugin/inventory.h"
#include "plugin/mig_driver.h"
#include "plugin/mig_keeper.h"
#include "plugin/mode_keeper.h"
#include "plugin/mps_mode.h"
#include "plugin/node_state.h"
#include "plugin/options.h"

namespace hami::plugin {

struct ModesHooks {
  std::function<CardBoard::Snapshot()> cards;
  std::function<void(const NodeEvent& event)> on_event;
  std::function<void(OperatingMode mode)> on_mode;     // in force from now on
  std::function<void(Troubles troubles)> on_troubles;  // of GPUs that MPS does not serve
};

class Modes {
 public:
  // OPTIONS must outlive it. HOOKS are called from Look and from threads of its own, not before the first Look.
  Modes(const Options& options, const nvml::LoadOptions& load, ModesHooks hooks);

  // What earlier lives left on the GPUs.
  base::Status Start();
  // No hook is called after it. Daemons and instances stay.
  void Stop() { mps_.Stop(); }

  // The mode of the configuration, once nothing stands in its way. True when it does not hold yet.
  bool Look(Allocator& allocator);

  OperatingMode in_force() const { return keeper_.in_force(); }
  MigKeeper& mig() { return mig_; }
  MpsMode& mps() { return mps_; }

 private:
  base::Status Enter(OperatingMode mode);
  base::Status Leave(OperatingMode mode);
  std::vector<std::string> Users(std::vector<std::string> users, const Exclusion& excluded);
  MpsHooks HooksOfMps();
  void TellTroubles();

  const ModesHooks hooks_;
  NvmlMigDriver mig_driver_;
  DiskMigJournal mig_journal_;
  MigKeeper mig_;
  std::mutex troubles_mutex_;
  Troubles troubles_;  // as they were told
  MpsMode mps_;
  const bool exclusive_;  // wanted in mode mps
  ComputeModes compute_modes_;
  ModeKeeper keeper_;
  const Records* records_ = nullptr;  // of the look that goes on
  std::string told_;                  // refusal or trouble
};

// The MIG devices that containers may be given by their CDI names.
std::vector<CdiInstance> CdiInstancesOf(const MigEntries& entries, const Cards& cards, const std::string& minors);

// The text of OPTIONS' file of MIG capabilities; empty when there is none.
std::string ReadMigMinors(const Options& options);

}  // namespace hami::plugin
