// SPDX-License-Identifier: Apache-2.0
//
// How a process comes to the machine: one file, made by whoever comes first under a file lock that the kernel drops
// when its holder dies; `ready` is written last, so a creator that was killed half-way leaves nothing that counts.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string>

#include "simgpu/machine/config.h"
#include "simgpu/machine/life_line.h"
#include "simgpu/machine/local.h"
#include "simgpu/machine/machine.h"
#include "simgpu/machine/state.h"

namespace simgpu {
namespace {

constexpr off_t kMaxConfigBytes = 1 << 20;

std::uint64_t Fnv(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

struct Wish {
  std::string simgpu, profile, config_path, config_text, state_path, description;
  bool any = false;  // nothing was said: whatever machine the file holds will do
  std::uint64_t hash = 0;
};

std::string EnvText(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool ReadConfig(const std::string& path, std::string* text, std::string* error) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st = {};
  if (fd < 0 || fstat(fd, &st) != 0) {
    *error = path + ": " + std::strerror(errno) + " (named by SIMGPU_CONFIG)";
    if (fd >= 0) close(fd);
    return false;
  }
  if (!S_ISREG(st.st_mode) || st.st_size > kMaxConfigBytes) {
    *error = path + ": not a regular file of at most 1 MiB (named by SIMGPU_CONFIG)";
    close(fd);
    return false;
  }
  char buffer[4096];
  ssize_t n = 0;
  while ((n = read(fd, buffer, sizeof buffer)) > 0) text->append(buffer, static_cast<std::size_t>(n));
  close(fd);
  if (n < 0) *error = path + ": " + std::strerror(errno);
  return n == 0;
}

// What AttachProcess will read.
bool CheckPidOffset(std::string* error) {
  const std::string text = EnvText("SIMGPU_PID_OFFSET");
  char* end = nullptr;
  errno = 0;
  const long offset = std::strtol(text.c_str(), &end, 10);
  if (*end == '\0' && errno == 0 && offset >= INT32_MIN && offset <= INT32_MAX) return true;
  *error = "SIMGPU_PID_OFFSET=" + text + ": not a whole number of 32 bits";
  return false;
}

bool ReadWish(Wish* wish, std::string* error) {
  if (!CheckPidOffset(error)) return false;
  wish->simgpu = EnvText("SIMGPU");
  wish->profile = EnvText("SIMGPU_PROFILE");
  wish->config_path = EnvText("SIMGPU_CONFIG");
  if (!wish->config_path.empty() && !ReadConfig(wish->config_path, &wish->config_text, error)) return false;
  wish->hash = Fnv(Fnv(0xcbf29ce484222325u, wish->simgpu) * 31, wish->config_text);
  if (!wish->profile.empty()) wish->hash = Fnv(wish->hash * 31, wish->profile);
  wish->state_path = EnvText("SIMGPU_STATE");
  wish->any = wish->simgpu.empty() && wish->config_path.empty() && !wish->state_path.empty();
  if (wish->state_path.empty()) {
    char name[80];
    // A simgpu of another make gets a machine of its own instead of one that it can not read.
    const std::string make = std::to_string(kStateVersion) + "." + std::to_string(sizeof(State));
    std::snprintf(name, sizeof name, "/dev/shm/simgpu-%u-%016llx", static_cast<unsigned>(geteuid()),
                  static_cast<unsigned long long>(Fnv(wish->hash, make)));
    wish->state_path = name;
  }
  wish->description.append("SIMGPU=").append(wish->simgpu.empty() ? "(unset)" : wish->simgpu);
  if (!wish->profile.empty()) wish->description.append(" SIMGPU_PROFILE=").append(wish->profile);
  if (!wish->config_path.empty()) wish->description.append(" SIMGPU_CONFIG=").append(wish->config_path);
  return true;
}

// A lock of this open file, not of the process: two libraries in one process exclude each other too. Bounded, so that a
// copy of the descriptor in somebody's forked child can not hang us for ever.
bool LockFile(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_len = 1;  // the bytes behind are other locks (life_line.h)
  for (int tries = 0; tries < 10'000; ++tries) {
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return false;
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

// Said aloud: the mapping keeps the open file alive, and with it the lock, after the descriptor was closed.
void UnlockFile(int fd) {
  struct flock lock = {};
  lock.l_type = F_UNLCK;
  lock.l_len = 1;
  fcntl(fd, F_OFD_SETLK, &lock);
}

void Build(State* state, const Plan& plan, const Wish& wish) {
  state->magic = kStateMagic;
  state->version = kStateVersion;
  state->bytes = sizeof(State);
  state->config_hash = wish.hash;
  std::snprintf(state->description, sizeof state->description, "%s", wish.description.c_str());
  state->device_count = static_cast<std::uint32_t>(plan.device_count);
  state->options = plan.options;
  for (int i = 0; i < plan.device_count; ++i) state->spec[i] = plan.device[i];
  InitRobustMutex(&state->mutex);
  for (int i = 0; i < plan.device_count; ++i) {
    DeviceState& device = state->device[i];
    InitRobustMutex(&device.arbiter_mutex);
    device.arbiter.timing = TimingOf(plan.device[i].profile);
  }
  state->random = plan.options.seed * 2 + 1;
  state->next_shared = 1;
  for (const Change& change : plan.changes) ApplyChange(*state, change);
  __atomic_store_n(&state->ready, 1u, __ATOMIC_RELEASE);
}

bool CheckFile(int fd, const Wish& wish, struct stat* st, std::string* error) {
  if (fstat(fd, st) != 0) {
    *error = wish.state_path + ": " + std::strerror(errno);
    return false;
  }
  if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || (st->st_mode & 077) != 0) {
    *error = wish.state_path + ": not a private file of this user (it must be regular, mode 0600); set SIMGPU_STATE";
    return false;
  }
  return true;
}

// What is used as an index must be one, whatever happened to the file.
bool Sound(const State& state) {
  if (state.device_count < 1 || state.device_count > kMaxDevices || state.slots_used > Machine::kMaxProcesses ||
      state.shared_used > kMaxShared || state.fault_count.load() > kMaxFaults || state.delayed_count > kEventRing) {
    return false;
  }
  for (std::uint32_t i = 0; i < state.shared_used; ++i) {
    const SharedRecord& record = state.shared[i];
    if (record.id == 0) continue;
    if (record.dev < 0 || record.dev >= static_cast<std::int32_t>(state.device_count) || record.use >= kUses ||
        record.payer < -1 || record.payer >= Machine::kMaxProcesses) {
      return false;
    }
  }
  return true;
}

// Maps the file that is locked and open; builds the machine in it when it holds none.
State* MapState(int fd, const Wish& wish, std::string* error) {
  struct stat st = {};
  if (!CheckFile(fd, wish, &st, error)) return nullptr;
  bool fresh = st.st_size == 0;
  if (!fresh) {
    struct {
      std::uint64_t magic;
      std::uint32_t version, ready;
      std::uint64_t bytes;
    } head = {};
    if (pread(fd, &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) || head.ready == 0) {
      // Only an unfinished machine may be built over: bytes that are not ours are not ours to erase.
      if (head.magic != 0 && head.magic != kStateMagic) {
        *error = wish.state_path + ": not a simgpu state file; set SIMGPU_STATE to another path";
        return nullptr;
      }
      fresh = true;
    } else if (head.magic != kStateMagic || head.version != kStateVersion || head.bytes != sizeof(State) ||
               st.st_size != static_cast<off_t>(sizeof(State))) {
      *error = wish.state_path +
               ": made by another version of simgpu, or not a state file; remove it when no process "
               "uses it, or set SIMGPU_STATE to another path";
      return nullptr;
    }
  }
  Plan* plan = nullptr;
  if (fresh) {
    plan = new Plan;  // too large for a small thread's stack
    if (!MakePlan(wish.simgpu, wish.config_text, wish.config_path, plan, error, wish.profile)) {
      delete plan;
      return nullptr;
    }
    if (ftruncate(fd, 0) != 0 || ftruncate(fd, static_cast<off_t>(sizeof(State))) != 0) {
      *error = wish.state_path + ": " + std::strerror(errno);
      delete plan;
      return nullptr;
    }
  }
  void* const map = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) {
    *error = wish.state_path + ": mmap: " + std::strerror(errno);
    delete plan;
    return nullptr;
  }
  State* const state = static_cast<State*>(map);
  if (fresh) {
    Build(state, *plan, wish);
    delete plan;
  } else if (!Sound(*state)) {
    *error = wish.state_path + ": a state file that something else wrote to; remove it when no process uses it";
    munmap(map, sizeof(State));
    return nullptr;
  } else if (!wish.any && state->config_hash != wish.hash) {
    *error = wish.state_path + ": holds a machine made from " + state->description + "; this process asks for " +
             wish.description +
             " (or the file changed). Set SIMGPU_STATE to another path, or remove the file when no "
             "process uses it";
    munmap(map, sizeof(State));
    return nullptr;
  }
  return state;
}

State* OpenState(std::string* error) {
  Wish wish;
  if (!ReadWish(&wish, error)) return nullptr;
  const int fd = open(wish.state_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) {
    *error = wish.state_path + ": " + std::strerror(errno) + "; set SIMGPU_STATE to a path that can be written";
    return nullptr;
  }
  State* state = nullptr;
  if (!LockFile(fd)) {
    *error = wish.state_path + ": another process holds the file's lock and does not let go";
  } else {
    state = MapState(fd, wish, error);
    UnlockFile(fd);
  }
  close(fd);
  SetLifeLineFile(wish.state_path);
  return state;
}

}  // namespace

struct MachineAccess {
  static Machine* Make() {
    Machine* const machine = new Machine;
    machine->state_ = OpenState(&machine->error_);
    if (machine->state_ == nullptr) std::fprintf(stderr, "simgpu: %s\n", machine->error_.c_str());
    return machine;
  }
};

Machine& Machine::Get() {
  static std::atomic<Machine*> instance{nullptr};
  Machine* machine = instance.load(std::memory_order_acquire);
  if (machine != nullptr) return *machine;
  LocalLock lock;
  machine = instance.load(std::memory_order_acquire);
  if (machine == nullptr) {
    machine = MachineAccess::Make();
    instance.store(machine, std::memory_order_release);
  }
  return *machine;
}

int Machine::device_count() const { return ok() ? static_cast<int>(state_->device_count) : 0; }

const DeviceSpec& Machine::spec(int dev) const {
  static const DeviceSpec* const kNone = new DeviceSpec{};
  return dev >= 0 && dev < device_count() ? state_->spec[dev] : *kNone;
}

const Options& Machine::options() const {
  static const Options* const kNone = new Options{};
  return ok() ? state_->options : *kNone;
}

int Machine::slot() {
  if (!ok()) return -1;
  return OwnSlot(*state_);
}

}  // namespace simgpu
