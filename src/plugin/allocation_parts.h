// SPDX-License-Identifier: Apache-2.0
//
// What an allocation touches outside of itself: the cluster, the disk, the kubelet's own book. Interfaces, so that the
// allocator can be driven through every order of events and killed at every one of these calls.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/error.h"
#include "net/time.h"
#include "plugin/pod_view.h"
#include "plugin/record.h"
#include "plugin/resolve.h"
#include "plugin/response.h"
#include "plugin/settle.h"

namespace hami::plugin {

// The API server, as far as allocations go. Calls that ask it end by their deadline.
class Cluster {
 public:
  virtual ~Cluster() = default;
  // From the watches: what was known last. No call.
  virtual std::vector<PodPtr> Pods() = 0;
  virtual std::optional<std::string> Lock() = 0;  // the node lock's text
  // False until the first lists are in: then what is absent may only not have been seen.
  virtual bool Synced() = 0;
  // Whether the watch has shown that the pod with this uid is no more. What was listed before may still name it.
  virtual bool IsGone(const std::string& uid) = 0;
  // How often any of that changed so far. AwaitChange returns when it is another number than SEEN: false, it still is
  // the same at the deadline.
  virtual std::uint64_t Changes() = 0;
  virtual bool AwaitChange(std::uint64_t seen, net::Deadline deadline) = 0;

  virtual kube::Result<std::vector<PodPtr>> ListPods(net::Deadline deadline) = 0;
  // Nothing when there is no such pod.
  virtual kube::Result<PodPtr> GetPod(const std::string& ns, const std::string& name, net::Deadline deadline) = 0;
  // Changes annotations of exactly this pod: one of the same name and another uid is kConflict.
  virtual kube::Status PatchPod(const PodKey& pod, const device::StringMap& annotations, net::Deadline deadline) = 0;
  // Takes the lock away if its text is still VALUE. Succeeds when it is another or none, and never otherwise.
  virtual kube::Status ReleaseLock(const std::string& value, net::Deadline deadline) = 0;
  // Never blocks.
  virtual void Warn(const PodKey& pod, std::string_view reason, std::string_view message) = 0;
};

// The records on disk.
class RecordKeeper {
 public:
  virtual ~RecordKeeper() = default;
  virtual base::Result<Records> Load() = 0;
  // Whether another process saved since the last Load or Save: two plugins overlap while one takes over.
  virtual bool Changed() = 0;
  // When it returns well, the records survive a power failure. Refused when Changed.
  virtual base::Status Save(const Records& records) = 0;
};

// What a region says from its first moment on. The region wins over the container's environment, so it has to say what
// that says.
struct RegionSettings {
  std::vector<DeviceLimit> limits;
  int priority = 1;
  CorePolicy core_policy = CorePolicy::kDefault;
  bool oversubscribe = false;
  std::optional<std::uint32_t> runs_as;  // user id of the container, where it is certain
};

// The folders that containers get their region in. Every call is idempotent.
class ShareFolders {
 public:
  virtual ~ShareFolders() = default;
  // Whether the folder is there, with its region.
  virtual bool Has(const Record& record) = 0;
  // The folder, empty but for the region.
  virtual base::Status Make(const Record& record, const RegionSettings& settings) = 0;
  // Gives the folder the name of its container; it is still found where it was made.
  virtual base::Status Link(const Record& record) = 0;
  // The folder, and the name that leads to it.
  virtual void Remove(const Record& record) = 0;
  // What a death left behind: folders of ours that no record names.
  virtual void RemoveAllBut(const Records& records) = 0;
};

// The kubelet's pod-resources.
class KubeletBook {
 public:
  virtual ~KubeletBook() = default;
  virtual base::Result<Holdings> List(net::Deadline deadline) = 0;
};

}  // namespace hami::plugin
