// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/event_ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "simgpu/driver/ipc.h"

namespace simgpu {
namespace {

constexpr std::size_t kEvents = 16384;
constexpr std::size_t kBytes = kEvents * sizeof(SharedEvent);

SharedEvent* MapEvents(int fd) {
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<SharedEvent*>(mapped);
}

// This process' own.
struct Own {
  int fd = -1;
  SharedEvent* events = nullptr;
  std::size_t used = 0;
  std::vector<SharedEvent*> free;
  std::uint64_t next_id = 1;
};

Own& TheOwn() {
  static Own& own = *new Own;
  return own;
}

// Another process'.
struct Foreign {
  int pid;
  std::uint64_t start_time;
  SharedEvent* events;
};

struct Foreigners {
  std::mutex lock;
  std::vector<Foreign> known;
};

Foreigners& TheForeigners() {
  static Foreigners& foreigners = *new Foreigners;
  return foreigners;
}

SharedEvent* EventsOf(const Ticket& ticket) {
  Foreigners& foreigners = TheForeigners();
  const std::lock_guard<std::mutex> guard(foreigners.lock);
  for (const Foreign& one : foreigners.known) {
    if (one.pid == ticket.pid && one.start_time == ticket.start_time) return one.events;
  }
  Ticket whole = ticket;
  whole.offset = 0;
  whole.size = kBytes;
  const int fd = OpenFile(whole);
  if (fd < 0) return nullptr;
  SharedEvent* const events = MapEvents(fd);
  close(fd);
  if (events != nullptr) foreigners.known.push_back({ticket.pid, ticket.start_time, events});
  return events;
}

bool CreateOwn(Own& own) {
  own.fd = memfd_create("simgpu-events", MFD_CLOEXEC);
  if (own.fd < 0) return false;
  if (ftruncate(own.fd, kBytes) == 0) own.events = MapEvents(own.fd);
  if (own.events != nullptr) return true;
  close(own.fd);
  own.fd = -1;
  return false;
}

}  // namespace

SharedEvent* NewSharedEvent() {
  Own& own = TheOwn();
  if (own.events == nullptr && !CreateOwn(own)) return nullptr;
  SharedEvent* event = nullptr;
  if (!own.free.empty()) {
    event = own.free.back();
    own.free.pop_back();
  } else if (own.used < kEvents) {
    event = own.events + own.used++;
  } else {
    return nullptr;
  }
  event->before.store(event->recorded.load());
  event->reached.store(event->recorded.load());
  event->id.store(own.next_id++);
  return event;
}

void FreeSharedEvent(SharedEvent* event) {
  event->id.store(0);
  TheOwn().free.push_back(event);
}

void ExportEvent(const SharedEvent& event, int machine, CUipcEventHandle* out) {
  const Own& own = TheOwn();
  Ticket ticket = NewTicket(kTicketEvent);
  ticket.offset = static_cast<std::uint64_t>(&event - own.events) * sizeof event;
  ticket.size = sizeof event;
  ticket.id = event.id.load();
  ticket.fd = own.fd;
  ticket.machine = machine;
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &ticket, sizeof ticket);
}

CUresult ImportEvent(const CUipcEventHandle& handle, SharedEvent** out) {
  Ticket ticket{};
  std::memcpy(&ticket, &handle, sizeof ticket);
  if (!IsTicket(ticket, kTicketEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (ticket.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (ticket.offset >= kBytes || ticket.offset % sizeof(SharedEvent) != 0) return CUDA_ERROR_INVALID_HANDLE;
  SharedEvent* const events = EventsOf(ticket);
  if (events == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = events + ticket.offset / sizeof(SharedEvent);
  return ticket.id != 0 && (*out)->id.load() == ticket.id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace simgpu
