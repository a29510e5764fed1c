// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets that never block: listen, connect and wait, each under a deadline and, where given, a Canceller. All
// descriptors are non-blocking and close-on-exec.

#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "net/cancel.h"
#include "net/error.h"
#include "net/time.h"

namespace hami::net {

// Waits for poll(2) EVENTS on FD. Readiness wins over cancellation, so that what already arrived is still read.
Status WaitReady(int fd, short events, Deadline deadline, const Canceller* canceller = nullptr);

// HOST is a numeric address or a name; empty means every interface. Port 0 lets the system choose.
Result<base::Fd> Listen(const std::string& host, std::uint16_t port);
Result<std::uint16_t> LocalPort(int fd);

// Tries every address of HOST in turn. Looking up a name happens on a thread of its own, because the resolver of the C
// library knows no deadline.
Result<base::Fd> Connect(const std::string& host, std::uint16_t port, Deadline deadline,
                         const Canceller* canceller = nullptr);

bool IsNumericAddress(const std::string& host);

}  // namespace hami::net
