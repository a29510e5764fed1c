// SPDX-License-Identifier: Apache-2.0
//
// For tests: a datagram between two processes, and a descriptor with it.
#pragma once

#include <sys/socket.h>

#include <cstring>

namespace handover {

// None goes along when `fd` is negative. The sender's stays open.
template <typename T>
bool Send(int wire, const T& what, int fd, int flags = 0) {
  T copy = what;
  iovec data{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(wire, &message, flags | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof copy);
}

// False at the end of the wire, and, with MSG_DONTWAIT, while nothing is there. `*fd` is -1 when none came along.
template <typename T>
bool Receive(int wire, T* what, int* fd, int flags = 0) {
  iovec data{what, sizeof *what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  *fd = -1;
  if (recvmsg(wire, &message, flags | MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *what)) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return true;
}

}  // namespace handover
