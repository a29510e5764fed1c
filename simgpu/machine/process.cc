// SPDX-License-Identifier: Apache-2.0
//
// The process table: who is there, who died, and what that frees.
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "simgpu/machine/life_line.h"
#include "simgpu/machine/local.h"
#include "simgpu/machine/state.h"

namespace simgpu {
namespace {

constexpr Nanos kThoroughEvery = 5'000'000;  // reading /proc for every process costs; a plain look does it this often

struct LocalPage {
  std::atomic<std::uint32_t> lock;
  std::atomic<std::int32_t> slot_plus_one;
  std::atomic<std::int32_t> pid;  // only where the kernel can not wipe: then the pid tells a child
};

struct Local {
  LocalPage* page;
  bool wiped;
};

const Local& GetLocal() {
  static const Local* const local = [] {
    void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) std::abort();  // not even one page: nothing can work
    return new Local{static_cast<LocalPage*>(page), madvise(page, 4096, MADV_WIPEONFORK) == 0};
  }();
  return *local;
}

LocalPage& Page() {
  const Local& local = GetLocal();
  if (!local.wiped) {
    const std::int32_t pid = getpid();
    if (local.page->pid.exchange(pid) != pid) {
      local.page->lock = 0;
      local.page->slot_plus_one = 0;
    }
  }
  return *local.page;
}

struct StatLine {
  char state = 0;
  long threads = 0;
  std::uint64_t start = 0, stack = 0;
};

// Fields 3, 20, 22 and 28 of /proc/<pid>/stat; the name in field 2 may hold anything, so count from its last ')'.
bool ReadStat(std::int32_t pid, StatLine* out) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ' || at[2] == 0) return false;
  out->state = at[2];
  at += 3;
  for (int field = 4; field <= 28 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at == nullptr) break;
    ++at;
    if (field == 20) out->threads = std::strtol(at, nullptr, 10);
    if (field == 22) out->start = std::strtoull(at, nullptr, 10);
    if (field == 28) out->stack = std::strtoull(at, nullptr, 10);
  }
  return true;
}

std::uint64_t PidNamespace() {
  struct stat st = {};
  return stat("/proc/self/ns/pid", &st) == 0 ? static_cast<std::uint64_t>(st.st_ino) : 0;
}

std::uint64_t ImageId() {
  std::uint64_t id = 0;
  const auto* random = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (random != nullptr) std::memcpy(&id, random, sizeof id);
  return id;
}

bool ProcessAlive(const ProcessSlot& slot, bool thorough) {
  if (kill(slot.pid, 0) != 0 && errno == ESRCH) return false;
  if (!thorough) return true;
  StatLine line;
  if (!ReadStat(slot.pid, &line)) return slot.start_time == 0;  // without /proc kill() has to do
  if (slot.start_time != 0 && line.start != slot.start_time) return false;
  // A leader that is a zombie while other threads run is alive.
  if ((line.state == 'Z' || line.state == 'X' || line.state == 'x') && line.threads <= 1) return false;
  // Another program runs in the process now (exec): the driver's file was closed, what it held is gone.
  return slot.stack == 0 || line.stack == 0 || slot.stack == line.stack;
}

// Takes away everything that a slot holds but its name.
void CleanSlot(State& state, int index) {
  ProcessSlot& slot = state.process[index];
  for (std::uint32_t i = 0; i < state.shared_used; ++i) {
    state.shared[i].holders[index / 64] &= ~(std::uint64_t{1} << (index % 64));
  }
  for (std::uint32_t dev = 0; dev < state.device_count; ++dev) {
    AcquireArbiter(state, static_cast<int>(dev));
    HarvestLocked(state, static_cast<int>(dev));
    state.device[dev].arbiter.RemoveOwner(index);
    if (slot.device[dev].touched != 0) std::memset(&slot.device[dev], 0, sizeof slot.device[dev]);
    ReleaseArbiter(state, static_cast<int>(dev));
  }
}

}  // namespace

LocalLock::LocalLock() {
  LocalPage& page = Page();
  while (page.lock.exchange(1, std::memory_order_acquire) != 0) {
    const timespec pause = {0, 50'000};
    nanosleep(&pause, nullptr);
  }
}
LocalLock::~LocalLock() { Page().lock.store(0, std::memory_order_release); }

int OwnSlotLocked(State& state) {
  LocalPage& page = Page();
  const std::int32_t known = page.slot_plus_one.load(std::memory_order_acquire);
  if (known > 0) return known - 1;
  const int slot = AttachProcess(state);
  page.slot_plus_one.store(slot + 1, std::memory_order_release);
  return slot;
}

int OwnSlot(State& state) {
  const std::int32_t known = Page().slot_plus_one.load(std::memory_order_acquire);
  if (known > 0) return known - 1;
  StateLock lock(&state);
  return OwnSlotLocked(state);
}

int FindSlot(const State& state, int pid) {
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    const ProcessSlot& slot = state.process[i];
    if (slot.live != 0 && (slot.pid == pid || slot.host_pid == pid)) return static_cast<int>(i);
  }
  return -1;
}

int StoppedProcess(const State& state, int tid) {
  StatLine line;
  if (tid <= 0 || !ReadStat(tid, &line) || line.state != 'T') return 0;
  const std::uint64_t ns = PidNamespace();
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    const ProcessSlot& slot = state.process[i];
    if (slot.live == 0 || slot.pid_namespace != ns || slot.pid == getpid()) continue;
    char task[64];
    std::snprintf(task, sizeof task, "/proc/%d/task/%d", static_cast<int>(slot.pid), tid);
    if (access(task, F_OK) == 0) return slot.pid;
  }
  return 0;
}

int AttachProcess(State& state) {
  const std::int32_t pid = getpid();
  const std::uint64_t ns = PidNamespace(), image = ImageId();
  StatLine line;
  const bool have_stat = ReadStat(pid, &line);
  int free_slot = -1;
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    const ProcessSlot& slot = state.process[i];
    if (slot.live != 0 && slot.pid == pid && slot.pid_namespace == ns) {
      // The other library of this process, or a forerunner with the same pid.
      if (slot.image == image && slot.start_time == line.start) return static_cast<int>(i);
      FreeSlot(state, static_cast<int>(i));
    }
    if (slot.live == 0 && free_slot < 0) free_slot = static_cast<int>(i);
  }
  if (free_slot < 0 && state.slots_used == Machine::kMaxProcesses) {
    ReapLocked(state, true);
    for (std::uint32_t i = 0; i < state.slots_used && free_slot < 0; ++i) {
      if (state.process[i].live == 0) free_slot = static_cast<int>(i);
    }
    if (free_slot < 0) return -1;
  }
  if (free_slot < 0) free_slot = static_cast<int>(state.slots_used++);
  CleanSlot(state, free_slot);  // whoever freed it may have died over it
  ProcessSlot& slot = state.process[free_slot];
  slot.pid = pid;
  const char* offset = std::getenv("SIMGPU_PID_OFFSET");
  slot.host_pid = pid + (offset != nullptr && *offset != 0 ? static_cast<std::int32_t>(std::strtol(offset, nullptr, 10))
                                                           : state.options.pid_offset);
  slot.start_time = have_stat ? line.start : 0;
  slot.stack = have_stat ? line.stack : 0;
  slot.pid_namespace = ns;
  slot.image = image;
  slot.life_line = HoldLifeLine(free_slot) ? 1 : 0;
  for (std::uint32_t dev = 0; dev < state.device_count; ++dev) {
    slot.device[dev].gpu_instance = slot.device[dev].compute_instance = -1;
  }
  slot.live = 1;
  return free_slot;
}

void FreeSlot(State& state, int index) {
  state.process[index].live = 0;  // first: whoever finds this job half done, after our death, recounts without it
  CleanSlot(state, index);
  Recount(state);
}

void ReapLocked(State& state, bool thorough) {
  const int own = Page().slot_plus_one.load(std::memory_order_acquire) - 1;
  std::uint64_t ns = 0;  // read when there is another process than this one
  const std::int32_t self = getpid();
  if (!thorough) {
    timespec ts = {};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    const Nanos now = ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
    if (now - state.last_full_reap > kThoroughEvery) {
      thorough = true;
      state.last_full_reap = now;
    }
  }
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    const ProcessSlot& slot = state.process[i];
    const int index = static_cast<int>(i);
    if (slot.live == 0 || index == own) continue;
    if (ns == 0) ns = PidNamespace();
    bool alive = true;
    if (slot.pid_namespace != ns) {
      alive = !thorough || slot.life_line == 0 || LifeLineHeld(index);
    } else if (slot.pid != self) {
      alive = ProcessAlive(slot, thorough);
    }
    if (!alive) FreeSlot(state, index);
  }
}

void Machine::Reap() {
  if (!ok()) return;
  StateLock lock(state_);
  ReapLocked(*state_, true);
}

std::size_t Machine::Processes(int dev, ProcessUsage* out, std::size_t room) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  ReapLocked(*state_, false);
  std::size_t found = 0;
  for (std::uint32_t i = 0; i < state_->slots_used; ++i) {
    const ProcessSlot& slot = state_->process[i];
    const ProcessDevice& device = slot.device[dev];
    ProcessUsage usage = {};
    for (int use = 0; use < kUses; ++use) usage.used[use] = device.used[use] + device.shared[use];
    if (slot.live == 0 || (device.contexts == 0 && usage.total() == 0)) continue;
    usage.slot = static_cast<int>(i);
    usage.pid = slot.pid;
    usage.host_pid = slot.host_pid;
    usage.contexts = device.contexts;
    usage.mps = device.mps != 0;
    usage.gpu_instance = device.gpu_instance;
    usage.compute_instance = device.compute_instance;
    if (found < room) out[found] = usage;
    ++found;
  }
  return found;
}

}  // namespace simgpu
