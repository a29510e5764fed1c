// SPDX-License-Identifier: Apache-2.0
//
// The MIG instances of this node that are ours: made where a reservation says, kept while a container has them, removed
// when none has and no process is left. Invariant, whenever the process dies: an instance that we made is in the
// journal, as an intent at least. Refuses to touch any instance that is not. What is wanted again at the same place, of
// the same profile, is taken over as it is.

#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/time.h"
#include "nvml/nvml.h"
#include "plugin/mig_journal.h"

namespace hami::plugin {

// The driver, as far as dividing GPUs goes. An interface, so that the keeper can be killed at every one of these calls.
class MigDriver {
 public:
  virtual ~MigDriver() = default;
  virtual base::Result<nvml::MigLayout> Layout(const std::string& gpu) = 0;
  // Whether a process uses the instance.
  virtual base::Result<bool> InUse(const std::string& gpu, unsigned gpu_instance) = 0;
  virtual base::Result<unsigned> CreateGpuInstance(const std::string& gpu, unsigned profile_id,
                                                   nvml::MigPlace place) = 0;
  virtual base::Result<nvml::ComputeInstance> CreateComputeInstance(const std::string& gpu, unsigned gpu_instance) = 0;
  virtual base::Status DestroyComputeInstance(const std::string& gpu, unsigned gpu_instance, unsigned compute) = 0;
  virtual base::Status DestroyGpuInstance(const std::string& gpu, unsigned gpu_instance) = 0;
};

// The journal on disk, like RecordKeeper.
class MigJournal {
 public:
  virtual ~MigJournal() = default;
  virtual base::Result<MigEntries> Load() = 0;
  // Whether another process saved since the last Load or Save.
  virtual bool Changed() = 0;
  // When it returns well, the entries survive a power failure.
  virtual base::Status Save(const MigEntries& entries) = 0;
};

class MigKeeper {
 public:
  // The pod that has an entry's instance; nothing: it is free.
  using Holders = std::function<std::optional<PodKey>(const MigEntry& entry)>;

  // Both must outlive the keeper.
  MigKeeper(MigDriver& driver, MigJournal& journal) : driver_(driver), journal_(journal) {}

  // Reads the journal. Must succeed before anything else is called.
  base::Status Start();

  // WANTED of one container, made exactly there: the same with the identities of the instances. All of them or none. An
  // instance that is free and still in use is waited for until UNTIL. Asked again it answers the same.
  base::Result<std::vector<device::MigReservation>> Realise(const PodKey& owner,
                                                            std::vector<device::MigReservation> wanted,
                                                            const Holders& holders, net::Deadline until);

  // Removes what nobody holds, and makes again what is held and gone, as after a restart of the machine. True when
  // something is left to do soon.
  bool Tend(const Holders& holders);

  MigEntries entries() const;

 private:
  enum class Removal { kGone, kBusy };
  using Reservation = device::MigReservation;

  // All with mutex_ held.
  base::Status Reload();
  base::Status RealiseOne(const PodKey& owner, Reservation& want, const Holders& holders, net::Deadline until);
  base::Status MakeRoom(const PodKey& owner, const Reservation& want, const Holders& holders, net::Deadline until);
  base::Status TakeOver(MigEntry& entry, const PodKey& owner, Reservation& want);
  base::Status Make(MigEntry entry, unsigned profile_id);
  base::Status MakeInstance(MigEntry& entry, unsigned profile_id);
  base::Result<Removal> Remove(const MigEntry& entry);
  base::Result<Removal> RemoveWaiting(const MigEntry& entry, net::Deadline until);
  base::Status Forget(const MigEntry& entry);
  bool TendOne(const MigEntry& entry, bool held);
  void Complain(const std::string& trouble);
  void Use(MigEntries entries);

  MigDriver& driver_;
  MigJournal& journal_;
  std::mutex mutex_;
  // Written with both held: a look at the entries does not wait for the driver.
  mutable std::mutex entries_mutex_;
  MigEntries entries_;
  std::set<std::string> troubles_;  // as they were told
};

// Instances of LAYOUT, of GPU, that are no entry's.
std::vector<nvml::MigPlace> ForeignPlaces(const nvml::MigLayout& layout, const std::string& gpu,
                                          const MigEntries& entries);

}  // namespace hami::plugin
