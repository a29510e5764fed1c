// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of this machine as the NVIDIA management library tells them, as plain data. Library owns the loaded library:
// it is initialised once and shut down at the end; every method may be called from any thread and, on a GPU that fell
// off the bus, may block for as long as the driver does. Refuses to guess: what the library lacks, does not support or
// fails to answer is an absent optional, never a zero. GPUs are named by UUID, because indices move and handles go
// stale.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace hami::nvml {

struct LoadOptions {
  std::string library;         // path of libnvidia-ml.so.1; empty: wherever the dynamic linker finds it
  std::string sysfs = "/sys";  // where a GPU's NUMA node is read
};

struct System {
  std::string driver_version;
  std::string cuda_version;  // "12.9"
};

// How a GPU answered when it was asked who it is.
enum class Condition {
  kAnswers,
  kLost,           // fell off the bus
  kResetRequired,  // answers nothing until it is reset
  kFails,          // any other error
};

struct Memory {
  std::uint64_t total = 0;  // bytes, the driver's reserve included
  std::uint64_t used = 0;   // the reserve included
  std::uint64_t free = 0;
  std::optional<std::uint64_t> reserved;  // what the driver keeps for itself
};

struct MigMode {
  bool current = false;
  bool pending = false;  // after the next reset
};

struct MigDevice {
  unsigned index = 0;  // among the GPU's MIG devices; may have holes
  std::string uuid;
  std::string name;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
  std::optional<Memory> memory;
};

// The memory slices [start, start + size) of a GPU.
struct MigPlace {
  unsigned start = 0;
  unsigned size = 0;
  bool operator==(const MigPlace&) const = default;
};

// A kind of GPU instance that a GPU can be divided into.
struct MigProfile {
  unsigned id = 0;
  std::string name;             // "1g.10gb+me"
  unsigned slices = 0;          // of compute
  unsigned most_instances = 0;  // that may live at once
  unsigned multiprocessors = 0;
  std::uint64_t memory_mib = 0;
  std::vector<MigPlace> places;
  bool operator==(const MigProfile&) const = default;
};

struct ComputeInstance {
  unsigned id = 0;
  std::string uuid;  // "MIG-…", of the MIG device that it is
  bool operator==(const ComputeInstance&) const = default;
};

struct GpuInstance {
  unsigned id = 0;
  unsigned profile_id = 0;
  MigPlace place;
  std::vector<ComputeInstance> compute;
  bool operator==(const GpuInstance&) const = default;
};

// How a GPU can be divided, and how it is.
struct MigLayout {
  std::vector<MigProfile> profiles;
  std::vector<GpuInstance> instances;
  bool operator==(const MigLayout&) const = default;
};

enum class ComputeMode { kDefault, kExclusiveThread, kProhibited, kExclusiveProcess };

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

// One place in the driver's enumeration. Where CONDITION is not kAnswers, only what the GPU still said is filled in:
// perhaps nothing but INDEX.
struct Device {
  unsigned index = 0;
  Condition condition = Condition::kAnswers;
  std::string trouble;  // the driver's words when it does not answer
  std::string uuid;
  std::string name;
  std::string bus_id;             // as in sysfs: "0000:3b:00.0"; empty when unknown
  std::optional<unsigned> minor;  // of /dev/nvidia<minor>
  std::optional<int> numa_node;
  std::optional<Memory> memory;  // absent where CPU and GPU share one memory
  std::optional<ComputeCapability> compute_capability;
  std::optional<ComputeMode> compute_mode;
  std::optional<MigMode> mig_mode;
  std::vector<MigDevice> mig_devices;
  std::optional<MigLayout> mig_layout;  // where it was asked for: see ReadMigLayout
};

struct EccCounts {
  std::optional<std::uint64_t> corrected_volatile;  // since the driver was loaded
  std::optional<std::uint64_t> uncorrected_volatile;
  std::optional<std::uint64_t> corrected_aggregate;  // of the board's life
  std::optional<std::uint64_t> uncorrected_aggregate;
};

struct RemappedRows {
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  bool pending = false;  // a reset will remap
  bool failed = false;   // there was no spare row
};

// What tells whether a GPU can be trusted with work.
struct HealthSigns {
  Condition condition = Condition::kAnswers;
  std::string trouble;
  std::optional<RemappedRows> remapped;
  std::optional<bool> retirement_pending;  // pages wait for a reset to be retired
  std::optional<unsigned> retired_pages;
  EccCounts ecc;
};

struct PcieLink {
  std::optional<unsigned> generation;
  std::optional<unsigned> width;
  std::optional<unsigned> max_generation;
  std::optional<unsigned> max_width;
  std::optional<unsigned> replays;
};

// One look at the gauges of a GPU.
struct Telemetry {
  Condition condition = Condition::kAnswers;
  std::optional<Memory> memory;
  std::optional<unsigned> gpu_percent;
  std::optional<unsigned> memory_percent;  // of the memory controller
  std::optional<unsigned> encoder_percent;
  std::optional<unsigned> decoder_percent;
  std::optional<unsigned> temperature_celsius;
  std::optional<unsigned> memory_temperature_celsius;
  std::optional<unsigned> power_milliwatts;
  std::optional<unsigned> power_limit_milliwatts;
  std::optional<std::uint64_t> energy_millijoules;  // since the driver was loaded
  std::optional<unsigned> fan_percent;
  std::optional<unsigned> sm_clock_mhz;
  std::optional<unsigned> memory_clock_mhz;
  std::optional<unsigned> max_sm_clock_mhz;
  std::optional<unsigned> performance_state;      // 0 is fastest
  std::optional<std::uint64_t> throttle_reasons;  // NVML's mask
  PcieLink pcie;
  HealthSigns health;
};

struct PcieThroughput {
  std::optional<unsigned> transmit_kib_per_second;
  std::optional<unsigned> receive_kib_per_second;
};

enum class ProcessKind { kCompute, kGraphics, kMps };

struct Process {
  pid_t pid = 0;  // as the driver sees it: the host's, if this program shares the host's pid namespace
  ProcessKind kind = ProcessKind::kCompute;
  std::optional<std::uint64_t> bytes;
  std::optional<unsigned> gpu_instance;  // of a MIG device
  std::optional<unsigned> compute_instance;
};

struct ProcessUtilization {
  pid_t pid = 0;
  std::uint64_t microseconds = 0;  // time stamp of the sample
  unsigned sm_percent = 0;
  unsigned memory_percent = 0;
  unsigned encoder_percent = 0;
  unsigned decoder_percent = 0;
};

// From near to far.
enum class Ancestor { kSameBoard, kOneSwitch, kManySwitches, kHostBridge, kNumaNode, kSystem };

enum class LinkPeer { kUnknown, kGpu, kSwitch, kOther };

struct NvLink {
  unsigned number = 0;
  bool up = false;
  LinkPeer peer = LinkPeer::kUnknown;
  std::string peer_bus_id;  // empty when unknown
};

struct Topology {
  struct Gpu {
    std::string uuid;
    std::string bus_id;
    std::vector<NvLink> links;  // those the board has
  };
  std::vector<Gpu> gpus;
  // gpus × gpus, row by row; absent on the diagonal and where the driver does not say.
  std::vector<std::optional<Ancestor>> ancestors;
};

inline constexpr unsigned kAnyInstance = 0xffffffff;

struct XidEvent {
  std::string uuid;  // empty: of a GPU that was not registered
  std::uint64_t code = 0;
  unsigned gpu_instance = kAnyInstance;
  unsigned compute_instance = kAnyInstance;
};

struct Functions;

// The driver's reports of trouble. Sees what happens after Register. One thread may wait while another registers.
class XidWatch {
 public:
  explicit XidWatch(std::shared_ptr<const Functions> functions, void* set);
  ~XidWatch();
  XidWatch(const XidWatch&) = delete;
  XidWatch& operator=(const XidWatch&) = delete;

  // False when this GPU reports nothing of the kind.
  base::Result<bool> Register(const std::string& uuid);
  // The next event, or nothing within MILLISECONDS. An error means the watch has to be made anew.
  base::Result<std::optional<XidEvent>> Wait(unsigned milliseconds);

 private:
  const std::shared_ptr<const Functions> functions_;
  void* const set_;
  std::mutex mutex_;
  std::map<void*, std::string> uuids_;  // by handle
};

class Library {
 public:
  static base::Result<Library> Load(const LoadOptions& options = {});
  Library(Library&&) noexcept;
  Library& operator=(Library&&) noexcept;
  ~Library();

  System ReadSystem() const;
  // In the driver's order, each index once. An error means the session is dead: load the library again.
  base::Result<std::vector<Device>> ReadDevices() const;

  Telemetry Sample(const std::string& uuid) const;
  HealthSigns ReadHealth(const std::string& uuid) const;
  std::optional<Memory> ReadMemory(const std::string& uuid) const;
  // Measures for some 20 ms each direction.
  PcieThroughput MeasurePcie(const std::string& uuid) const;
  // NVLinks with their state; empty for a board without any.
  std::vector<NvLink> ReadNvLinks(const std::string& uuid) const;
  Topology ReadTopology(const std::vector<Device>& devices) const;

  // Nothing when the driver does not list processes of this GPU, which is not the same as none.
  std::optional<std::vector<Process>> ReadProcesses(const std::string& uuid) const;
  // Samples newer than SINCE, the newest per process. Nothing when not supported.
  std::optional<std::vector<ProcessUtilization>> ReadProcessUtilization(const std::string& uuid,
                                                                        std::uint64_t since_microseconds) const;

  base::Result<std::unique_ptr<XidWatch>> WatchXids() const;

  // Needs root.
  base::Status SetComputeMode(const std::string& uuid, ComputeMode mode) const;

  // What a GPU in MIG mode can be divided into, and its instances.
  base::Result<MigLayout> ReadMigLayout(const std::string& uuid) const;
  // The mode after the request: pending while it waits for a reset.
  base::Result<MigMode> SetMigMode(const std::string& uuid, bool on) const;
  // Exactly there, or an error. Returns the instance's id.
  base::Result<unsigned> CreateGpuInstance(const std::string& uuid, unsigned profile_id, MigPlace place) const;
  // One that takes all of the GPU instance.
  base::Result<ComputeInstance> CreateComputeInstance(const std::string& uuid, unsigned gpu_instance) const;
  // Of one that a process uses, and of a GPU instance with compute instances: an error.
  base::Status DestroyComputeInstance(const std::string& uuid, unsigned gpu_instance, unsigned compute_instance) const;
  base::Status DestroyGpuInstance(const std::string& uuid, unsigned gpu_instance) const;

 private:
  explicit Library(std::shared_ptr<const Functions> functions, std::string sysfs);
  std::shared_ptr<const Functions> functions_;
  std::string sysfs_;
};

// One name per GPU that the kernel's driver knows, from a folder like this; nothing where there is none. NVML lists
// what was there when its session began: when this has changed, only a new session sees it.
inline constexpr const char* kProcGpus = "/proc/driver/nvidia/gpus";
std::optional<std::set<std::string>> KernelGpus(const std::string& proc_gpus);

// "00000000:3B:00.0" → "0000:3b:00.0", the form of sysfs. What is not such an address comes back as it is.
std::string SysfsBusId(const std::string& text);

}  // namespace hami::nvml
