// SPDX-License-Identifier: Apache-2.0

#include "base/signals.h"

#include <pthread.h>

#include <cstring>
#include <string>

#include "base/log.h"

namespace hami::base {

sigset_t BlockSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

int WaitForEnd(const sigset_t& signals, const std::function<void()>& on_hangup) {
  while (true) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    if (signal == SIGHUP) {
      ReopenLog();
      on_hangup();
    } else if (signal == SIGUSR1 || signal == SIGUSR2) {
      LogInfo(std::string("signal ignored: ") + ::strsignal(signal));
    } else {
      return signal;
    }
  }
}

}  // namespace hami::base
