// SPDX-License-Identifier: Apache-2.0
//
// A machine whose GPUs can be divided, in memory: the driver with the rules of an H100, and a journal that survives its
// writer. Every call can be made to kill the caller, before or after it took effect.

#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "plugin/mig_keeper.h"

namespace hami::plugin {

// What kill -9 is to a test of MIG instances.
struct MigKilled {};

inline nvml::MigProfile TestProfile(unsigned id, const char* name, unsigned slices, unsigned most, unsigned sms,
                                    std::uint64_t memory, unsigned size, std::vector<unsigned> starts) {
  nvml::MigProfile profile{id, name, slices, most, sms, memory, {}};
  for (const unsigned start : starts) profile.places.push_back({start, size});
  return profile;
}

inline std::vector<nvml::MigProfile> H100Profiles() {
  return {TestProfile(19, "1g.10gb", 1, 7, 16, 9984, 1, {0, 1, 2, 3, 4, 5, 6}),
          TestProfile(20, "1g.10gb+me", 1, 1, 16, 9984, 1, {0, 1, 2, 3, 4, 5, 6}),
          TestProfile(15, "1g.20gb", 1, 4, 26, 20096, 2, {0, 2, 4, 6}),
          TestProfile(14, "2g.20gb", 2, 3, 32, 20096, 2, {0, 2, 4}),
          TestProfile(9, "3g.40gb", 3, 2, 60, 40448, 4, {0, 4}),
          TestProfile(5, "4g.40gb", 4, 1, 64, 40448, 4, {0}),
          TestProfile(0, "7g.80gb", 7, 1, 132, 80896, 8, {0})};
}

class MigWorld : public MigDriver, public MigJournal {
 public:
  // What is true.
  std::map<std::string, std::vector<nvml::GpuInstance>> gpus;
  std::set<std::pair<std::string, unsigned>> used;  // by a process: (GPU, GPU instance)
  std::string disk = EncodeMigJournal({});

  // How it behaves.
  int kill_at = -1;         // the call that kills; counted down
  bool kill_after = false;  // only once it took effect
  bool refuse_gpu = false;  // no GPU instance can be made
  bool refuse_compute = false;
  bool refuse_save = false;
  bool silent = false;        // the driver does not answer
  bool others_saved = false;  // another plugin replaced DISK
  int calls = 0;

  // One that is not ours.
  nvml::GpuInstance& AddForeign(const std::string& gpu, unsigned profile, nvml::MigPlace place) {
    auto& list = gpus[gpu];
    list.push_back({next_id_++, profile, place, {{0, base::Concat({"MIG-foreign-", std::to_string(place.start)})}}});
    return list.back();
  }
  std::size_t Count(const std::string& gpu) { return gpus[gpu].size(); }
  MigEntries Journal() { return DecodeMigJournal(disk).value(); }

  base::Result<nvml::MigLayout> Layout(const std::string& gpu) override {
    if (silent || !gpus.contains(gpu)) return base::Fail("the driver does not answer");
    return nvml::MigLayout{H100Profiles(), gpus.at(gpu)};
  }
  base::Result<bool> InUse(const std::string& gpu, unsigned instance) override {
    return used.contains({gpu, instance});
  }
  base::Result<unsigned> CreateGpuInstance(const std::string& gpu, unsigned profile_id, nvml::MigPlace place) override {
    const Step step(*this);
    auto& list = gpus.at(gpu);
    if (refuse_gpu) return base::Fail("insufficient resources");
    for (const nvml::GpuInstance& other : list) {
      const bool overlap =
          place.start < other.place.start + other.place.size && other.place.start < place.start + place.size;
      if (overlap) return base::Fail("insufficient resources");
    }
    list.push_back({next_id_++, profile_id, place, {}});
    const unsigned id = list.back().id;
    step.Done();
    return id;
  }
  base::Result<nvml::ComputeInstance> CreateComputeInstance(const std::string& gpu, unsigned instance) override {
    const Step step(*this);
    if (refuse_compute) return base::Fail("insufficient resources");
    nvml::GpuInstance& at = At(gpu, instance);
    // The same profile at the same place of the same GPU has the same name.
    at.compute.push_back(
        {0, base::Concat({"MIG-", gpu, "-", std::to_string(at.profile_id), "-", std::to_string(at.place.start)})});
    step.Done();
    return at.compute.back();
  }
  base::Status DestroyComputeInstance(const std::string& gpu, unsigned instance, unsigned compute) override {
    const Step step(*this);
    if (used.contains({gpu, instance})) return base::Fail("in use");
    std::erase_if(At(gpu, instance).compute, [&](const auto& one) { return one.id == compute; });
    step.Done();
    return {};
  }
  base::Status DestroyGpuInstance(const std::string& gpu, unsigned instance) override {
    const Step step(*this);
    if (!At(gpu, instance).compute.empty()) return base::Fail("in use");
    std::erase_if(gpus.at(gpu), [&](const auto& one) { return one.id == instance; });
    step.Done();
    return {};
  }

  base::Result<MigEntries> Load() override {
    others_saved = false;
    return DecodeMigJournal(disk);
  }
  bool Changed() override { return others_saved; }
  base::Status Save(const MigEntries& entries) override {
    const Step step(*this);
    if (refuse_save) return base::Fail("no space left");
    disk = EncodeMigJournal(entries);
    step.Done();
    return {};
  }

 private:
  class Step {
   public:
    explicit Step(MigWorld& world) {
      ++world.calls;
      due_ = world.kill_at >= 0 && world.kill_at-- == 0;
      if (due_ && !world.kill_after) throw MigKilled();
    }
    void Done() const {
      if (due_) throw MigKilled();
    }

   private:
    bool due_ = false;
  };

  nvml::GpuInstance& At(const std::string& gpu, unsigned instance) {
    auto& list = gpus.at(gpu);
    return *std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.id == instance; });
  }

  unsigned next_id_ = 1;
};

}  // namespace hami::plugin
