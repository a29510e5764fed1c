// SPDX-License-Identifier: Apache-2.0

#include "plugin/common_areas.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/strings.h"
#include "region/common_area.h"

namespace hami::plugin {
namespace {

using base::Concat;

constexpr int kBacklog = 64;
// A container that asks all the time costs this thread a few per cent of a core, and other cards nothing.
constexpr int kAtOnce = 16;
constexpr std::chrono::milliseconds kBetween(5);

// The folder is named after the card, so the name must be one.
bool IsName(const std::string& card) {
  return !card.empty() && card.size() < region::kUuidBytes && std::all_of(card.begin(), card.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
  });
}

base::Result<base::Fd> MakeMemory() {
  base::Fd memory(::memfd_create("hami-gpu-time", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::uint64_t magic = region::kCommonMagic;
  if (!memory || ::ftruncate(memory.get(), sizeof(region::CommonArea)) != 0 ||
      ::pwrite(memory.get(), &magic, sizeof magic, 0) != sizeof magic ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return base::FailErrno("can not make memory that GPU users share");
  }
  return memory;
}

// Listens at PATH once everything about it is right. Names of sockets are short, so it is bound by way of its folder.
base::Result<base::Fd> ListenAt(const std::string& folder) {
  const auto opened = base::Open(folder, O_PATH | O_DIRECTORY);
  if (!opened) return tl::unexpected(opened.error());
  const std::string fresh = Concat({"/proc/self/fd/", std::to_string(opened->get()), "/area.new"});
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", fresh.c_str());
  ::unlinkat(opened->get(), "area.new", 0);
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::fchmodat(opened->get(), "area.new", 0666, 0) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::renameat(opened->get(), "area.new", opened->get(), "area") != 0) {
    return base::FailErrno(Concat({"can not listen at ", folder, "/area"}));
  }
  return socket;
}

// To whoever asks next. False when nobody does.
bool GiveNext(int socket, int memory) {
  const base::Fd asking(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!asking) return false;
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  // Whoever is gone again is no matter.
  (void)::sendmsg(asking.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

}  // namespace

CommonAreas::~CommonAreas() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

base::Status CommonAreas::Start() {
  poll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  stop_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (!poll_ || !stop_ || ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0) {
    return base::FailErrno("can not wait for GPU users");
  }
  thread_ = std::thread([this] { HandOut(); });
  return {};
}

base::Result<CommonAreas::Area> CommonAreas::Make(const std::string& card) const {
  if (!IsName(card)) return base::Fail(base::Printable(card) + " can not be the name of a folder");
  const std::string folder = FolderOf(folder_, card);
  HAMI_TRY(base::MakeFolders(folder, 0755));
  auto memory = MakeMemory();
  if (!memory) return tl::unexpected(memory.error());
  auto socket = ListenAt(folder);
  if (!socket) return tl::unexpected(socket.error());
  return Area{*std::move(memory), *std::move(socket)};
}

base::Status CommonAreas::Offer(const std::vector<std::string>& cards) {
  const std::lock_guard lock(mutex_);
  base::Status outcome;
  for (const std::string& card : cards) {
    if (areas_.contains(card)) continue;
    auto made = Make(card);
    if (!made) {
      outcome = tl::unexpected(made.error());
      continue;
    }
    Area& area = areas_.emplace(card, *std::move(made)).first->second;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &area;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, area.socket.get(), &event) != 0) {
      outcome = base::FailErrno("can not wait for the users of " + card);
      areas_.erase(card);
    }
  }
  return outcome;
}

std::set<std::string> CommonAreas::Cards() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> cards;
  for (const auto& [card, area] : areas_) cards.insert(card);
  return cards;
}

void CommonAreas::HandOut() {
  while (true) {
    std::array<epoll_event, 16> events{};
    const int ready = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      const auto* area = static_cast<const Area*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (area == nullptr) return;
      for (int given = 0; given < kAtOnce && GiveNext(area->socket.get(), area->memory.get()); ++given) {
      }
    }
    // Level-triggered: whoever is still waiting is seen again.
    std::this_thread::sleep_for(kBetween);
  }
}

}  // namespace hami::plugin
