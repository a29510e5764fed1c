// SPDX-License-Identifier: Apache-2.0
//
// stress_guest MODE NAME=NUMBER…: the program that runs under libvgpu.so.
//
//   live    threads of random work between barriers, until its rounds are over or the board says stop
//   serve   forks a `live` for each number that arrives on its socket; never touches CUDA itself
//   start   waits for the board's go, then attaches, allocates, frees and ends
//   seen    prints what cuMemGetInfo says is used beyond its own context
//   victim  allocates and frees up to the limit until told to stop, and says what it may say about that (hostile files)
#include <linux/futex.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/simgpu.h"
#include "test/stress/actor.h"
#include "test/stress/audit.h"

namespace stress {
namespace {

using Arguments = std::map<std::string, uint64_t>;

uint64_t Get(const Arguments& arguments, const char* name, uint64_t otherwise = 0) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? otherwise : found->second;
}

Board* BoardOf(const Arguments& arguments) {
  const auto found = arguments.find("board");
  return found == arguments.end() ? nullptr : MapBoard(static_cast<int>(found->second));
}

void Nap() {
  const timespec nap{0, 200'000};
  nanosleep(&nap, nullptr);
}

[[noreturn]] void Quit(const char* what, CUresult result) {
  std::fprintf(stderr, "FAILED process %d: %s: %d\n", getpid(), what, static_cast<int>(result));
  std::_Exit(1);
}

uint64_t Used() {
  size_t free = 0;
  size_t total = 0;
  const CUresult result = cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) Quit("cuMemGetInfo", result);
  return total - free;
}

// A container that is full has no room for another context: greedy ones wait for it, others must get it at once.
CUcontext Primary(bool patient) {
  CUcontext context = nullptr;
  CUresult result = cuInit(0);
  if (result != CUDA_SUCCESS) Quit("cuInit", result);
  for (int attempt = 0; attempt < 25'000; ++attempt) {
    result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !patient) break;
    Nap();
  }
  if (result != CUDA_SUCCESS) Quit("cuDevicePrimaryCtxRetain", result);
  if ((result = cuCtxSetCurrent(context)) != CUDA_SUCCESS) Quit("cuCtxSetCurrent", result);
  return context;
}

Options OptionsOf(const Arguments& arguments, Board* board) {
  Options options;
  options.seed = Get(arguments, "seed", 1);
  options.quota = Get(arguments, "quota");
  options.limit = Get(arguments, "limit");
  options.watch = Get(arguments, "watch");
  options.largest = Get(arguments, "largest", 48 * kMiB);
  options.context_bytes = Get(arguments, "context", 8 * kMiB);
  options.audit = Get(arguments, "audit") != 0;
  options.exact = Get(arguments, "exact") != 0;
  options.measured = Get(arguments, "measured") != 0;
  options.contexts = Get(arguments, "contexts") != 0;
  options.arrays = Get(arguments, "arrays") != 0;
  options.fork = Get(arguments, "fork") != 0;
  options.import = Get(arguments, "import") != 0;
  options.board = board;
  options.wire = static_cast<int>(Get(arguments, "wire"));
  if (board != nullptr) options.cell = &board->cells[Get(arguments, "cell")];
  return options;
}

// The leader of a process speaks for it at the barrier of all processes.
class Rounds {
 public:
  Rounds(const Arguments& arguments, CUcontext context, Board* board)
      : arguments_(arguments),
        context_(context),
        board_(board),
        threads_(static_cast<std::ptrdiff_t>(Get(arguments, "threads", 1))),
        gate_(threads_) {}

  void Run() {
    std::vector<std::thread> others;
    for (std::ptrdiff_t i = 1; i < threads_; ++i) others.emplace_back([this, i] { Thread(static_cast<uint64_t>(i)); });
    Thread(0);
    for (std::thread& other : others) other.join();
  }

 private:
  void Thread(uint64_t number) {
    if (number != 0 && cuCtxSetCurrent(context_) != CUDA_SUCCESS) Quit("cuCtxSetCurrent", CUDA_ERROR_UNKNOWN);
    Options options = OptionsOf(arguments_, board_);
    options.seed = options.seed * 1000 + number;
    options.context = context_;
    options.quota /= static_cast<uint64_t>(threads_);
    Actor actor(options);
    const uint64_t rounds = Get(arguments_, "rounds", 4);
    const uint64_t steps = Get(arguments_, "steps", 200);
    Meet(number, actor);  // nobody starts to fill the container before all have a context
    for (uint64_t round = 0; round < rounds && !stopped_; ++round) {
      for (uint64_t step = 0; step < steps; ++step) {
        if (board_ != nullptr && board_->pause.load(std::memory_order_relaxed) != 0) break;
        actor.Step();
      }
      Meet(number, actor);
    }
    actor.End();
    Meet(number, actor);
  }

  // Everybody stops; the leader waits until the driver has compared the books.
  void Meet(uint64_t number, Actor& actor) {
    actor.Settle();
    gate_.arrive_and_wait();
    if (number == 0 && board_ != nullptr) {
      actor.Settle();
      Cell& cell = board_->cells[Get(arguments_, "cell")];
      cell.seen_used = Used();
      const uint32_t generation = board_->generation;
      cell.reached = generation + 1;
      while (board_->generation == generation && getppid() != 1) Nap();
      stopped_ = board_->stop != 0;
    }
    gate_.arrive_and_wait();
    if (board_ != nullptr && board_->failed != 0) {
      actor.Dump();
      gate_.arrive_and_wait();
      std::_Exit(1);
    }
    actor.Forget();
  }

  const Arguments& arguments_;
  CUcontext context_;
  Board* board_;
  std::ptrdiff_t threads_;
  std::barrier<> gate_;
  bool stopped_ = false;  // written between the gates
};

void Live(const Arguments& arguments) {
  Board* const board = BoardOf(arguments);
  if (board != nullptr) board->cells[Get(arguments, "cell")].pid = getpid();
  const CUcontext context = Primary(Get(arguments, "quota") == 0);
  if (Get(arguments, "audit") != 0) BeginAudit(std::getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), board);
  Rounds(arguments, context, board).Run();
  const CUresult result = cuDevicePrimaryCtxRelease_v2(0);
  if (result != CUDA_SUCCESS) Quit("cuDevicePrimaryCtxRelease", result);
  if (simgpu_process_bytes(0, 0) != 0) Quit("memory is left at the end", CUDA_ERROR_UNKNOWN);
}

struct Order {
  uint64_t cell;
  uint64_t seed;
};

void Serve(Arguments arguments) {
  signal(SIGCHLD, SIG_IGN);  // the children are nobody's zombies
  const auto socket = static_cast<int>(Get(arguments, "socket"));
  Order order{};
  while (recv(socket, &order, sizeof order, 0) == static_cast<ssize_t>(sizeof order)) {
    const pid_t child = fork();
    if (child == 0) {
      close(socket);
      arguments["cell"] = order.cell;
      arguments["seed"] = order.seed;
      Live(arguments);
      std::_Exit(0);
    }
    const int64_t answer = child;
    if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof answer)) break;
  }
}

void Start(const Arguments& arguments) {
  Board* const board = BoardOf(arguments);
  board->cells[0].calls.fetch_add(1);
  while (board->go == 0) syscall(SYS_futex, &board->go, FUTEX_WAIT, 0, nullptr, nullptr, 0);  // without a cost
  Primary(false);
  CUdeviceptr block = 0;
  CUresult result = cuMemAlloc_v2(&block, kMiB);
  if (result != CUDA_SUCCESS) Quit("cuMemAlloc", result);
  if ((result = cuMemFree_v2(block)) != CUDA_SUCCESS) Quit("cuMemFree", result);
}

void Seen() {
  Primary(true);
  std::printf("%llu\n", static_cast<unsigned long long>(Used() - simgpu_process_bytes(0, 0)));
}

// Up to the limit and back, for as long as the board does not say stop. cells[0].calls counts full rounds,
// cells[0].seen_used is the most the driver ever gave, cells[0].longest_ns the longest call.
void Victim(const Arguments& arguments) {
  Board* const board = BoardOf(arguments);
  Cell& cell = board->cells[0];
  cell.pid = getpid();
  Primary(false);
  const auto timed = [&](auto call) {
    timespec from{};
    timespec to{};
    clock_gettime(CLOCK_MONOTONIC, &from);
    const CUresult result = call();
    clock_gettime(CLOCK_MONOTONIC, &to);
    const int64_t took = (to.tv_sec - from.tv_sec) * 1'000'000'000 + (to.tv_nsec - from.tv_nsec);
    if (static_cast<uint64_t>(took) > cell.longest_ns) cell.longest_ns = static_cast<uint64_t>(took);
    return result;
  };
  while (board->stop == 0) {
    std::vector<CUdeviceptr> blocks;
    CUdeviceptr block = 0;
    while (blocks.size() < 4096 && board->stop == 0 &&
           timed([&] { return cuMemAlloc_v2(&block, 16 * kMiB); }) == CUDA_SUCCESS) {
      blocks.push_back(block);
      const uint64_t truth = simgpu_process_bytes(0, 0);
      if (truth > cell.seen_used) cell.seen_used = truth;
    }
    size_t free = 0;
    size_t total = 0;
    timed([&] { return cuMemGetInfo_v2(&free, &total); });
    for (const CUdeviceptr b : blocks) {
      if (timed([&] { return cuMemFree_v2(b); }) != CUDA_SUCCESS) Quit("cuMemFree", CUDA_ERROR_UNKNOWN);
    }
    cell.imported = blocks.size();
    cell.calls.fetch_add(1);
  }
}

}  // namespace
}  // namespace stress

int main(int argc, char** argv) {
  stress::Arguments arguments;
  for (int i = 2; i < argc; ++i) {
    const char* const is = std::strchr(argv[i], '=');
    if (is == nullptr) return 2;
    arguments[std::string(argv[i], static_cast<size_t>(is - argv[i]))] = std::strtoull(is + 1, nullptr, 10);
  }
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "live") {
    stress::Live(arguments);
  } else if (mode == "serve") {
    stress::Serve(arguments);
  } else if (mode == "start") {
    stress::Start(arguments);
  } else if (mode == "seen") {
    stress::Seen();
  } else if (mode == "victim") {
    stress::Victim(arguments);
  } else {
    return 2;
  }
  return 0;
}
