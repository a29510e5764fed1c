// SPDX-License-Identifier: Apache-2.0
//
// The simulated computer: GPUs whose memory books, time, faults, events and utilisation live in one shared file, so
// that every process that loads the simulated driver meets the same hardware. Invariants: a device's books equal the
// sum over its live processes and shared objects, at every moment, also after a SIGKILL; nothing is charged beyond the
// device's capacity; what a dead process held is free as soon as anybody looks.
// Refuses: a state file of another user, version or configuration (one line on stderr, and a machine of 0 devices).
//
// All functions may be called from any thread and after static destructors; none throws. `dev` is an ordinal in
// [0, device_count()); other values are answered with 0 or false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "simgpu/machine/arbiter.h"
#include "simgpu/machine/spec.h"

namespace simgpu {

struct State;  // state.h: the shared file

// What memory is used for, as libvgpu and NVML tell it apart.
enum class Use : std::uint32_t { kContext, kModule, kData };
inline constexpr int kUses = 3;

// What was busy. kSm: at least one kernel ran; kMemory: a copy or fill ran.
enum class Busy : std::uint32_t { kSm, kMemory };
inline constexpr int kBusyKinds = 2;

// A piece of device memory that several processes hold (exported VMM handle, IPC memory). 0 is no object.
using SharedId = std::uint64_t;

struct Event {
  std::uint64_t sequence;
  int dev;
  std::uint64_t type;                            // nvmlEventType*
  std::uint64_t data;                            // XID for critical errors
  std::uint32_t gpu_instance, compute_instance;  // 0xffffffff: not about an instance
  Nanos when;
};

// One process as a device's books know it.
struct ProcessUsage {
  int slot;
  std::int32_t pid;       // as the process sees itself
  std::int32_t host_pid;  // as the host sees it: what NVML shows
  std::uint64_t used[kUses];
  std::uint32_t contexts;
  bool mps;                            // a client of MPS
  int gpu_instance, compute_instance;  // -1: uses the whole device
  std::uint64_t total() const { return used[0] + used[1] + used[2]; }
};

// Utilisation in whole percent over one finished sample period.
struct UtilSample {
  Nanos when;  // end of the period
  std::uint32_t sm, memory, encoder, decoder;
};

struct MigInstance {
  int gpu_instance, compute_instance;  // compute_instance -1: the GPU instance itself
  std::uint32_t profile;               // index into DeviceSpec::mig
  std::uint32_t start, size;           // placement in memory slices (GI) or compute slices (CI)
  std::uint32_t compute_slices;
  std::uint32_t sm_count;
  std::uint64_t memory_bytes;
  std::uint8_t uuid[16];
};

enum class MigError { kOk, kUnsupported, kInvalid, kNotFound, kInUse, kNoRoom, kModeOff };

class Machine {
 public:
  // Attaches to, or creates, the machine of this environment. Never fails: without a usable machine ok() is false and
  // device_count() 0. After a fork the child gets its own process slot at its first call.
  static Machine& Get();

  bool ok() const { return state_ != nullptr; }
  const std::string& error() const { return error_; }

  int device_count() const;
  const DeviceSpec& spec(int dev) const;
  const Options& options() const;

  // --- Memory books --------------------------------------------------------------------------------------------
  // Charge refuses what does not fit into the device (or into the MIG instance this process uses), after it freed
  // what dead processes held. Refund of more than this process holds is cut to what it holds.
  [[nodiscard]] bool Charge(int dev, std::uint64_t bytes, Use use);
  void Refund(int dev, std::uint64_t bytes, Use use);
  // What this process is shown of its own doings; others keep theirs. `grown`: the device's sum, each time this process
  // has made it larger, while nobody can change it; it may ask the machine nothing. `giving`: before this process makes
  // it smaller, without a lock. Null for nothing.
  struct BooksLook {
    void (*grown)(int dev, std::uint64_t used);
    void (*giving)(int dev, std::uint64_t bytes);
  };
  void LookAtBooks(const BooksLook& look);
  std::uint64_t TotalBytes(int dev);  // capacity for this process: the device's, or its MIG instance's
  std::uint64_t FreeBytes(int dev);
  std::uint64_t UsedBytes(int dev);                  // whole device, without the reserved part
  std::uint64_t ProcessBytes(int dev, int pid = 0);  // 0: this process
  std::uint64_t ProcessBytes(int dev, Use use, int pid = 0);

  // Contexts of this process on a device: NVML lists a process that has one.
  void AddContext(int dev);
  void DropContext(int dev);

  // --- Shared objects ------------------------------------------------------------------------------------------
  // Alive, and charged once, while at least one holder process lives. A process is a holder once however often it asks
  // (count references locally). ShareCharged turns bytes that this process has charged into an object, totals
  // unchanged.
  [[nodiscard]] SharedId CreateShared(int dev, std::uint64_t bytes, Use use);
  [[nodiscard]] SharedId ShareCharged(int dev, std::uint64_t bytes, Use use);
  [[nodiscard]] bool AddHolder(SharedId id);
  void DropHolder(SharedId id);
  int Holders(SharedId id);

  // --- Processes -----------------------------------------------------------------------------------------------
  int slot();   // this process's slot: the arbiter's client number
  void Reap();  // frees what dead processes held; queries do it themselves
  std::size_t Processes(int dev, ProcessUsage* out, std::size_t room);  // returns how many there are
  static constexpr int kMaxProcesses = 2048;

  // --- Time ----------------------------------------------------------------------------------------------------
  Nanos Now();                  // CLOCK_MONOTONIC, or the shared counter
  void SleepUntil(Nanos when);  // the virtual clock jumps there
  void Advance(Nanos by);       // virtual clock only
  ArbiterState& arbiter(int dev);
  // Lock of a device's arbiter; repairs the arbiter when the previous owner died. Call nothing else of the machine but
  // Now and slot while holding it (the books' lock comes first).
  void LockArbiter(int dev);
  void UnlockArbiter(int dev);

  // --- Utilisation ---------------------------------------------------------------------------------------------
  // Busy::kSm is taken from the arbiter's grants (at every UnlockArbiter and query): nobody reports it. Copies are
  // reported with AddBusy(kMemory), in any order, an interval once. Intervals of several processes may overlap; the
  // device's figure is capped at 100 %.
  void AddBusy(int dev, Nanos start, Nanos end, Busy kind);
  std::uint64_t BusyNanos(int dev, Busy kind = Busy::kSm, int pid = 0);  // exact; pid 0: all processes, dead ones too
  UtilSample DeviceUtil(int dev);                                        // the newest sample old enough to be seen
  // Samples of one process (slot) newer than `after`, oldest first; returns how many were stored.
  std::size_t ProcessUtil(int dev, int slot, Nanos after, UtilSample* out, std::size_t room);
  std::size_t DeviceUtilHistory(int dev, Nanos after, UtilSample* out, std::size_t room);

  // --- Faults and events ---------------------------------------------------------------------------------------
  // To be asked at the top of every API call: 0, or the error code that a fault asks for. May sleep (slow calls).
  int FaultFor(const char* function, int dev = -1);
  bool Lost(int dev) const;
  // FaultFor is 0 whatever is called: a cheap look, for functions that cost a program some ns.
  bool NothingInjected() const;
  // Applies statements of the configuration grammar (fault, clear, xid, lost, recover, set, link) to the running
  // machine. False, with a message that teaches, when the text is wrong; then nothing was applied.
  bool Inject(const char* text, std::string* error);
  std::uint64_t EventSequence() const;
  // The first event newer than `*after` whose type is in mask[dev]; waits up to `timeout_ms`.
  bool WaitEvent(std::uint64_t* after, const std::uint64_t (&mask)[kMaxDevices], std::uint32_t timeout_ms, Event* out);

  // --- Values that a test may set (NVML shows them; nullopt-like: false = not set) ------------------------------
  enum class Value : std::uint32_t {
    kTemperature,
    kPowerMilliwatt,
    kPowerLimitMilliwatt,
    kFanPercent,
    kSmClock,
    kMemClock,
    kEncoderUtil,
    kDecoderUtil,
    kPersistence,
    kComputeMode,
    kEccCorrected,
    kEccUncorrected,
    kRemappedCorrectable,
    kRemappedUncorrectable,
    kRemappedPending,
    kRemappedFailure,
    kClockReasons,
    kPcieGen,
    kPcieWidth,
    kPcieReplays,
    kEccMode,
    kAccounting,
    kCount
  };
  bool GetValue(int dev, Value value, std::uint64_t* out) const;
  void SetValue(int dev, Value value, std::uint64_t v);
  bool LinkUp(int dev, int link) const;

  // --- MIG -----------------------------------------------------------------------------------------------------
  bool MigEnabled(int dev) const;
  bool MigPending(int dev) const;
  MigError SetMigMode(int dev, bool on);
  MigError CreateGpuInstance(int dev, std::uint32_t profile, int start /* -1: any */, MigInstance* out);
  MigError DestroyGpuInstance(int dev, int gpu_instance);
  MigError CreateComputeInstance(int dev, int gpu_instance, std::uint32_t compute_slices, int start /* -1: any */,
                                 MigInstance* out);
  MigError DestroyComputeInstance(int dev, int gpu_instance, int compute_instance);
  std::size_t GpuInstances(int dev, MigInstance* out, std::size_t room);
  std::size_t ComputeInstances(int dev, int gpu_instance, MigInstance* out, std::size_t room);
  std::uint32_t FreePlacements(int dev, std::uint32_t profile, std::uint32_t* starts /* room kMaxMigPlacements */);
  std::uint64_t InstanceUsedBytes(int dev, int gpu_instance);
  // This process runs inside a compute instance from now on: Charge and FreeBytes then mean the instance's memory.
  bool UseInstance(int dev, int gpu_instance, int compute_instance);

  // --- MPS -----------------------------------------------------------------------------------------------------
  // This process is a client from now on, and takes no more than PINNED bytes of the device; 0: no limit.
  void JoinMps(int dev, std::uint64_t pinned);

  State* state() { return state_; }

 private:
  Machine() = default;
  friend struct MachineAccess;

  State* state_ = nullptr;
  std::string error_;
};

// "GPU-xxxxxxxx-xxxx-…" / "MIG-…"; out has room for 41 bytes.
void FormatUuid(const char* prefix, const std::uint8_t (&uuid)[16], char* out);

}  // namespace simgpu
