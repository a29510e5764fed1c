// SPDX-License-Identifier: Apache-2.0
//
// The loop of the monitor, one round at a time: reads the regions of the node's containers, gives feedback, applies
// changed limits, removes what is left of pods that are gone, and leaves a picture of all that for whoever asks. One
// thread runs the rounds; Last may be called from any. Time, pods, GPUs and events come in from outside; the decisions
// are feedback.h's, resize.h's and gc.h's.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kube/recorder.h"
#include "monitor/feedback.h"
#include "monitor/folder.h"
#include "monitor/picture.h"
#include "monitor/pods.h"
#include "monitor/resized.h"

namespace hami::monitor {

struct Now {
  WallTime wall;
  std::chrono::steady_clock::time_point steady;
};

class Monitor {
 public:
  struct Config {
    std::string node;
    std::string hook_path;
    std::chrono::milliseconds tick{1000};
    std::chrono::seconds resync{300};
    bool feedback = true;
    bool resize = true;
  };
  struct Outside {
    std::function<Pods()> pods;
    std::function<std::shared_ptr<const GpusPicture>()> gpus;
    std::function<void(const kube::Pod& pod, kube::EventType type, std::string_view reason, std::string_view message)>
        tell;
  };
  Monitor(Config config, Outside outside);

  void Tick(const Now& now);
  // Never null.
  std::shared_ptr<const Picture> Last() const;
  // Leaves the regions as if there had been no monitor: nobody stopped, every limit in force.
  void Release();

 private:
  struct Sighting {
    const Entry* entry = nullptr;
    const PodFacts* pod = nullptr;
    std::size_t position = 0;  // of the container in the pod
    Reading reading;
  };
  // What is remembered of one container from round to round.
  struct Memory {
    bool blocked = false;
    double blocked_seconds = 0;
    std::string resize;  // state, as shown
    std::string told;    // what the last event said
    std::uint64_t round = 0;
  };

  std::vector<Sighting> LookAt(const std::vector<Entry>& entries, const PodsByUid& pods, const GpusPicture& gpus);
  void NoteNameless(const std::vector<Sighting>& sightings);
  void GiveFeedback(std::vector<Sighting>& sightings, const GpusPicture& gpus, const Now& now);
  void Carry(const Sighting& sighting, const Orders& orders);
  void Resize(std::vector<Sighting>& sightings);
  void ResizeOne(const Sighting& sighting, Memory& memory);
  // False when they could not be written.
  bool ApplyLimits(const Sighting& sighting, const ResizePlan& plan, Memory& memory);
  void KeepResized(const std::vector<Entry>& entries);
  void Note(const base::Status& written);
  void Tell(const Sighting& sighting, Memory& memory, kube::EventType type, std::string_view reason,
            const std::string& message);
  void CollectGarbage(const std::vector<Entry>& entries, const PodsByUid& pods, bool pods_known, const Now& now);
  bool Removable(const Entry& entry, std::chrono::seconds unwanted_for, const Now& now);
  void Publish(const std::vector<Sighting>& sightings, const PodsByUid& pods, bool pods_known);
  void Forget();
  Memory& Remember(const std::string& name);
  void Count(region::Status status, const std::string& name);
  void Complain(const std::string& message);

  const Config config_;
  const Outside outside_;
  Folder folder_;
  Feedback feedback_;
  Resized resized_;                                   // limits other than the grant's may be in force
  std::unordered_map<std::string, Memory> memories_;  // by the entry's name
  std::unordered_map<std::string, std::chrono::steady_clock::time_point> unwanted_;
  std::uint64_t round_ = 0;
  std::optional<std::chrono::steady_clock::time_point> before_;  // when the last round began that had a list
  std::string complaint_;
  bool told_nameless_ = false;
  SelfPicture self_;

  mutable std::mutex mutex_;
  std::shared_ptr<const Picture> last_;
};

}  // namespace hami::monitor
