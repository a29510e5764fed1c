// SPDX-License-Identifier: Apache-2.0
#include "test/stress/audit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "region/layout.h"
#include "simgpu/simgpu.h"

namespace stress {
namespace {

const hami::region::PrivateArea* g_area = nullptr;
const Board* g_board = nullptr;
thread_local uint64_t t_shortfall = 0;

// Whoever takes memory away from the driver lowers the count afterwards, so while the books stand still the count can
// only be above them.
void Look(int device, uint64_t used) {
  const bool blind = g_board->blind != 0;
  const uint64_t counted = __atomic_load_n(&g_area->devices[device].charged, __ATOMIC_SEQ_CST);
  if (blind || g_board->blind != 0 || counted >= used) return;
  t_shortfall = std::max(t_shortfall, used - counted);
}

// Now and then the driver takes its time between letting an address go and giving its bytes back, so that what counts
// on the one for the other is found out.
void Dawdle(int, uint64_t) {
  thread_local uint32_t given = 0;
  constexpr timespec kNap{0, 200'000};
  if (++given % 16 == 0) nanosleep(&kNap, nullptr);
}

}  // namespace

void BeginAudit(const char* region, const Board* board) {
  // Never closed: that would end the library's record locks on the file.
  const int fd = open(region, O_RDONLY | O_CLOEXEC);
  void* const at = fd < 0 ? MAP_FAILED : mmap(nullptr, hami::region::kFileBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) std::abort();
  g_area =
      reinterpret_cast<const hami::region::PrivateArea*>(static_cast<const char*>(at) + hami::region::kPrivateOffset);
  g_board = board;
  simgpu_look_at_books(&Look, &Dawdle);
}

uint64_t TakeShortfall() {
  const uint64_t shortfall = t_shortfall;
  t_shortfall = 0;
  return shortfall;
}

}  // namespace stress
