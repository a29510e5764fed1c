// SPDX-License-Identifier: Apache-2.0

#include "base/watch.h"

#include <poll.h>

#include <csignal>
#include <ctime>

namespace hami::base {

bool ReaderIsGone(int fd) {
  pollfd asked{fd, 0, 0};
  return ::poll(&asked, 1, 0) == 1 && (asked.revents & (POLLERR | POLLHUP)) != 0;
}

void Repeat(double interval_seconds, const std::function<bool()>& show) {
  sigset_t watched;
  sigset_t before;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched, number);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  // A reader that goes away must show as a failed write, not as a death with the cursor hidden.
  struct sigaction ignore {};
  struct sigaction pipe_before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &pipe_before);
  const auto whole = static_cast<time_t>(interval_seconds);
  const auto nanoseconds = static_cast<long>((interval_seconds - static_cast<double>(whole)) * 1e9);
  const timespec interval{whole, nanoseconds};
  // -1 is a time-out, or an interruption by some other signal (a resized window): look again either way.
  while (show() && ::sigtimedwait(&watched, nullptr, &interval) < 0) {
  }
  ::sigaction(SIGPIPE, &pipe_before, nullptr);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace hami::base
