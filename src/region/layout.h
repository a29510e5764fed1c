// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a region file: HAMi's shared region v1.2 (offsets 0 … 2 008 952), the offsets of the older v0 form, and
// the private area that this project appends behind it. Plain data only; who may write what, and when, is region.h's
// and ledger.h's business. Nothing in the wire part may ever move: other programs map the same file, so every offset
// is asserted here. Access goes through Load/Store below because other processes write at the same time.

#pragma once

#include <cstddef>
#include <cstdint>

namespace hami::region {

inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxSlots = 1024;
inline constexpr size_t kUuidBytes = 96;
inline constexpr int32_t kMagic = 19920718;
inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 2;

inline constexpr size_t kRegionBytes = 2'008'952;
inline constexpr size_t kRegionFileBytes = kRegionBytes + 1;  // HAMi-core writes one NUL byte behind the struct

// The form that upstream wrote for one month in 2026, with the fields in another order but the same version words.
inline constexpr size_t kInterimRegionBytes = 2'008'984;
inline constexpr size_t kInterimFileBytes = kInterimRegionBytes + 1;

// slot.status
inline constexpr int32_t kStatusFree = 0;
inline constexpr int32_t kStatusRunning = 1;
inline constexpr int32_t kStatusSuspended = 2;

// A glibc sem_t as bytes. Only its first word, the value, means the same in every glibc; the rest says whether anybody
// may be waiting. See semaphore.h.
struct WireSemaphore {
  uint32_t value;
  uint32_t rest[7];
};

struct DeviceMemory {
  uint64_t context;
  uint64_t module;
  uint64_t data;
  uint64_t offset;
  uint64_t total;
  uint64_t unused[3];
};

struct DeviceUtilization {
  uint64_t decoder;
  uint64_t encoder;
  uint64_t sm;
  uint64_t unused[3];
};

struct Slot {
  int32_t pid;
  int32_t host_pid;
  DeviceMemory used[kMaxDevices];
  uint64_t monitor_used[kMaxDevices];
  DeviceUtilization utilization[kMaxDevices];
  int32_t status;
  int32_t padding;
  uint64_t seqlock;
  uint64_t start_time;  // HAMi's unused[0]; /proc/<pid>/stat field 22. Ours only
  uint64_t token;       // HAMi's unused[1]; see TokenBelongsTo. Ours only
};

struct Region {
  int32_t magic;
  uint32_t major_version;
  uint32_t minor_version;
  int32_t sm_init_flag;
  uint64_t owner_pid;
  WireSemaphore sem;
  uint64_t device_count;
  char uuids[kMaxDevices][kUuidBytes];
  uint64_t limit[kMaxDevices];
  uint64_t sm_limit[kMaxDevices];
  Slot slots[kMaxSlots];
  int32_t slot_count;  // proc_num: a high-water mark here, a count in HAMi-core, which compacts
  int32_t utilization_switch;
  int32_t recent_kernel;
  int32_t priority;
  uint64_t last_kernel_time;
  WireSemaphore sem_postinit;
};

static_assert(sizeof(WireSemaphore) == 32 && sizeof(DeviceMemory) == 64 && sizeof(DeviceUtilization) == 48);
static_assert(offsetof(DeviceMemory, context) == 0 && offsetof(DeviceMemory, module) == 8);
static_assert(offsetof(DeviceMemory, data) == 16 && offsetof(DeviceMemory, offset) == 24);
static_assert(offsetof(DeviceMemory, total) == 32 && offsetof(DeviceMemory, unused) == 40);
static_assert(offsetof(DeviceUtilization, decoder) == 0 && offsetof(DeviceUtilization, encoder) == 8);
static_assert(offsetof(DeviceUtilization, sm) == 16 && offsetof(DeviceUtilization, unused) == 24);
static_assert(sizeof(Slot) == 1960 && alignof(Slot) == 8);
static_assert(offsetof(Slot, pid) == 0 && offsetof(Slot, host_pid) == 4 && offsetof(Slot, used) == 8);
static_assert(offsetof(Slot, monitor_used) == 1032 && offsetof(Slot, utilization) == 1160);
static_assert(offsetof(Slot, status) == 1928 && offsetof(Slot, padding) == 1932 && offsetof(Slot, seqlock) == 1936);
static_assert(offsetof(Slot, start_time) == 1944 && offsetof(Slot, token) == 1952);
static_assert(sizeof(Region) == kRegionBytes && alignof(Region) == 8);
static_assert(offsetof(Region, magic) == 0 && offsetof(Region, major_version) == 4);
static_assert(offsetof(Region, minor_version) == 8 && offsetof(Region, sm_init_flag) == 12);
static_assert(offsetof(Region, owner_pid) == 16 && offsetof(Region, sem) == 24 && offsetof(Region, device_count) == 56);
static_assert(offsetof(Region, uuids) == 64 && offsetof(Region, limit) == 1600 && offsetof(Region, sm_limit) == 1728);
static_assert(offsetof(Region, slots) == 1856 && offsetof(Region, slot_count) == 2'008'896);
static_assert(offsetof(Region, utilization_switch) == 2'008'900 && offsetof(Region, recent_kernel) == 2'008'904);
static_assert(offsetof(Region, priority) == 2'008'908 && offsetof(Region, last_kernel_time) == 2'008'912);
static_assert(offsetof(Region, sem_postinit) == 2'008'920);

// ---------------------------------------------------------------------------------------------------------------------
// v0 (April 2024): no version words, smaller slots. Only ever read.

struct MemoryV0 {
  uint64_t context, module, data, offset, total;
};
struct UtilizationV0 {
  uint64_t decoder, encoder, sm;
};
struct SlotV0 {
  int32_t pid;
  int32_t host_pid;
  MemoryV0 used[kMaxDevices];
  uint64_t monitor_used[kMaxDevices];
  UtilizationV0 utilization[kMaxDevices];
  int32_t status;
  int32_t padding;
};
struct RegionV0 {
  int32_t magic;
  int32_t sm_init_flag;
  uint32_t owner_pid;
  uint32_t padding;
  WireSemaphore sem;
  uint64_t device_count;
  char uuids[kMaxDevices][kUuidBytes];
  uint64_t limit[kMaxDevices];
  uint64_t sm_limit[kMaxDevices];
  SlotV0 slots[kMaxSlots];
  int32_t slot_count;
  int32_t utilization_switch;
  int32_t recent_kernel;
  int32_t priority;
};
inline constexpr size_t kRegionV0Bytes = 1'197'896;
static_assert(sizeof(RegionV0) == kRegionV0Bytes && sizeof(SlotV0) == 1168);
static_assert(offsetof(RegionV0, owner_pid) == 8 && offsetof(RegionV0, sem) == 16);
static_assert(offsetof(RegionV0, device_count) == 48 && offsetof(RegionV0, uuids) == 56);
static_assert(offsetof(RegionV0, limit) == 1592 && offsetof(RegionV0, sm_limit) == 1720);
static_assert(offsetof(RegionV0, slots) == 1848 && offsetof(RegionV0, slot_count) == 1'197'880);
static_assert(offsetof(RegionV0, utilization_switch) == 1'197'884 && offsetof(RegionV0, recent_kernel) == 1'197'888);
static_assert(offsetof(RegionV0, priority) == 1'197'892);
static_assert(offsetof(SlotV0, used) == 8 && offsetof(SlotV0, monitor_used) == 648);
static_assert(offsetof(SlotV0, utilization) == 776 && offsetof(SlotV0, status) == 1160);

// ---------------------------------------------------------------------------------------------------------------------
// The private area: what HAMi-core never sees. Page aligned, behind the byte that HAMi-core clobbers.

inline constexpr size_t kPrivateOffset = 2'011'136;
inline constexpr uint64_t kPrivateMagic = 0x3176'7270'494d'4148;  // "HAMIprv1", little endian
inline constexpr uint32_t kPrivateVersion = 1;
inline constexpr size_t kShareNameBytes = 64;

// A file at this path in a container: its CUDA_DISABLE_CONTROL does not count. What is mounted can be neither removed
// nor renamed, but any folder around it can, except for the root folder.
inline constexpr char kControlSign[] = "/.hami-cpp-control";

// A file of this name beside the library or the life line says what the share may have, where the environment does not.
inline constexpr char kShareFile[] = "share.env";

// PrivateMeta.flags
inline constexpr uint32_t kFlagFixedDevices = 1;   // NVML enumerates only the uuids of the region
inline constexpr uint32_t kFlagOversubscribe = 2;  // allocations past the physical memory may spill to the host

struct PrivateDevice {
  uint64_t charged;         // sum of used[d].total over the slots that carry a token, and of what heirs have to claim
  uint64_t peak;            // the largest sum ever charged, since the file was created
  uint64_t refusals;        // requests of programs that were refused because they did not fit
  uint64_t physical_bytes;  // total memory of the device, 0 = not known yet
  uint64_t context_bytes;   // what a context was last seen to cost, 0 = not known yet
  uint64_t pool_steps[2];   // in which the driver grows pools for blocks below and from 32 MiB on, 0 = not known yet
  uint64_t graph_steps;     // the same for the memory of graphs
};

// What an observer may want to know: only ever counted up, by whichever process it happens to.
struct PrivateTally {
  uint64_t throttled_ns;   // how long threads waited for GPU time, summed over the threads
  uint64_t spilled_bytes;  // handed out as host memory because the device was full
  // No tally: the blocks in which the driver takes plain memory from the device, 0 = not known yet.
  uint64_t block_bytes;
  uint64_t reserved[5];
};

// What a process says about itself; valid for the slot that carries the same token.
struct PrivateSlot {
  uint64_t token;
  uint64_t start_time;
  uint64_t pid_namespace;  // inode of /proc/self/ns/pid, 0 = not known
  int32_t pid;
  uint32_t reserved0;
  int64_t attached_at;  // unix seconds
  char command[16];     // as in /proc/self/comm
  uint64_t life;        // number of the process's life line, 0 = it has none
};

// What the creator says about the whole container (or `hami run`); written once, before the magic.
struct PrivateMeta {
  char share_name[kShareNameBytes];
  int32_t creator_pid;  // 0 = nobody waits for this share
  uint32_t flags;
  uint64_t creator_start_time;
  int64_t created_at;  // unix seconds
  int32_t policy;      // GPU_CORE_UTILIZATION_POLICY: 0 default, 1 force, 2 disable
  int32_t priority;    // as asked for; Region.priority is the live one
  uint64_t reserved[12];
};

// One process's hold on memory that several processes of the container share; see holds.h.
struct PrivateHold {
  uint64_t object;  // number of the memory
  uint64_t holder;  // token
  uint64_t bytes;
  uint32_t uses;   // the holder's; it alone changes them
  uint16_t slot;   // where the holder's slot was once seen
  uint8_t device;  // region index
  uint8_t state;   // kHold…; written last
};
inline constexpr uint8_t kHoldFree = 0;
inline constexpr uint8_t kHoldGuest = 1;  // another holder pays
inline constexpr uint8_t kHoldPayer = 2;  // the bytes are in the holder's slot
inline constexpr uint8_t kHoldHeir = 3;   // they will be, as soon as the holder looks; until then they are in no slot
inline constexpr uint32_t kMaxHolds = 1982;

struct PrivateHolds {
  uint64_t mark;         // by which descriptors of this region's memory are known, 0 = not chosen yet; never changes
  uint64_t last_object;  // number given last
  uint32_t top;          // from here on all entries are free, and perhaps without room on the disk
  uint32_t heirs;        // how many there are
  uint64_t reserved[5];
  PrivateHold entries[kMaxHolds];
};

struct PrivateArea {
  uint64_t magic;  // written last
  uint32_t version;
  uint32_t bytes;
  uint64_t next_token;    // number of the next token, never reused
  int64_t last_sweep;     // CLOCK_MONOTONIC ns of the last look for dead slots
  uint32_t foreign_seen;  // 1 once a library without tokens has opened the file; never cleared
  uint32_t sem_intent;    // 1 while Region.sem changes hands under the lock
  uint64_t lock_steals;   // how often the lock was taken from a dead owner
  uint32_t attach_turn;   // counts attachers that have finished; the next ones sleep on it
  uint32_t reserved0;
  alignas(64) uint64_t lock;  // see lock.h; alone in its cache line
  uint64_t reserved1[7];
  PrivateMeta meta;
  PrivateDevice devices[kMaxDevices];
  PrivateSlot slots[kMaxSlots];
  alignas(64) uint8_t gpu_time[1024];  // room for the ledger of GPU time
  PrivateTally tallies[kMaxDevices];   // on the same page, which the creator provides
  PrivateHolds holds;                  // its head, too
};

static_assert(kPrivateOffset % 4096 == 0 && kPrivateOffset > kRegionFileBytes);
static_assert(offsetof(PrivateDevice, context_bytes) == 32 && offsetof(PrivateDevice, pool_steps) == 40 &&
              offsetof(PrivateDevice, graph_steps) == 56);
static_assert(sizeof(PrivateDevice) == 64 && sizeof(PrivateSlot) == 64 && sizeof(PrivateMeta) == 192);
static_assert(offsetof(PrivateArea, lock) == 64 && offsetof(PrivateArea, meta) == 128);
static_assert(offsetof(PrivateArea, devices) == 320 && offsetof(PrivateArea, slots) == 1344);
static_assert(sizeof(PrivateTally) == 64 && offsetof(PrivateArea, gpu_time) == 66'880);
static_assert(offsetof(PrivateArea, tallies) == 67'904 && sizeof(PrivateArea) == 132'416);
static_assert(sizeof(PrivateHold) == 32 && offsetof(PrivateHold, uses) == 24 && offsetof(PrivateHold, slot) == 28);
static_assert(offsetof(PrivateArea, holds) == 68'928 && offsetof(PrivateHolds, entries) == 64);
static_assert((kPrivateOffset + offsetof(PrivateArea, gpu_time) - 1) / 4096 ==
              (kPrivateOffset + offsetof(PrivateArea, holds) + 63) / 4096);

inline constexpr size_t kFileBytes = (kPrivateOffset + sizeof(PrivateArea) + 4095) / 4096 * 4096;
static_assert(kFileBytes == 2'146'304);

// POSIX record locks, far behind the data.
inline constexpr int64_t kPostInitLockByte = 0x4000'0000;  // upstream's place for the post-init lock
inline constexpr int64_t kSlotLockByte = 0x5000'0000;      // + slot index: held while the slot's process lives
inline constexpr int64_t kAttachLockByte = kSlotLockByte + kMaxSlots;
// Some bytes from there on are attachers', too (lock.h).
// + a number that is never given twice: the life line of a process (process.h), a lock of an open file.
inline constexpr int64_t kLifeLockByte = int64_t{1} << 44;

// A token is (number << 22) | pid. A slot whose token does not carry its own pid was written over by a library that
// knows no tokens, so the token is a leftover and the slot counts as foreign.
inline constexpr int kTokenPidBits = 22;
inline constexpr uint64_t kTokenNumberMask = (uint64_t{1} << 42) - 1;
constexpr uint64_t MakeToken(uint64_t number, int32_t pid) {
  return ((number & kTokenNumberMask) << kTokenPidBits) |
         (static_cast<uint64_t>(pid) & ((uint64_t{1} << kTokenPidBits) - 1));
}
constexpr bool TokenBelongsTo(uint64_t token, int32_t pid) {
  return pid > 0 && token >> kTokenPidBits != 0 &&
         (token & ((uint64_t{1} << kTokenPidBits) - 1)) == static_cast<uint64_t>(pid);
}

// Every word of the file may change under us, so every access is a single atomic one.
template <typename T>
T Load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
template <typename T>
void Store(T& word, decltype(T{} + T{}) value) {
  __atomic_store_n(&word, static_cast<T>(value), __ATOMIC_RELEASE);
}

}  // namespace hami::region
