// SPDX-License-Identifier: Apache-2.0
//
// /debug/pprof/ for `go tool pprof`: CPU profiles of this process and the names of its functions. What only Go's
// runtime has is answered with 501. Stops early when the client has gone or the program ends.

#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/result.h"
#include "net/cancel.h"
#include "net/http.h"

namespace hami::scheduler {

inline constexpr std::string_view kPprofPath = "/debug/pprof/";

// Samples for SPAN, or until ENOUGH.
using TakeProfile =
    std::function<base::Result<std::string>(std::chrono::seconds span, const std::function<bool()>& enough)>;

// TAKE: an error when no profile can be taken here at all; it is what /profile answers then. STOPPING outlives what is
// returned. For paths that begin with kPprofPath.
std::function<net::Response(const net::Request&)> PprofRoutes(base::Result<TakeProfile> take,
                                                              const net::Canceller& stopping);

}  // namespace hami::scheduler
