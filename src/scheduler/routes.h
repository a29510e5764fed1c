// SPDX-License-Identifier: Apache-2.0
//
// The HTTP surface of hami-scheduler: which path and method reaches what, and what everything else is told. Knows no
// decision. An extender's error travels in its answer's body with status 200, as kube-scheduler expects.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "net/server.h"
#include "scheduler/admission.h"
#include "scheduler/extender.h"

namespace hami::scheduler {

// What requests of TARGET may carry: whoever reaches the port can send them.
net::BodyLimit BodyLimitOf(std::string_view target);
// The room of all large requests together: two of the largest.
inline constexpr std::uint64_t kLargeBodiesBytes = 512U << 20U;

struct Endpoints {
  std::function<Reply(std::string_view body, const Abandoned& abandoned)> filter;
  std::function<Reply(std::string_view body, const Abandoned& abandoned)> bind;
  std::function<Reply(std::string_view body)> prioritize;
  std::function<Reply(std::string_view body)> preempt;
  std::function<AdmissionAnswer(std::string_view body)> review;
  std::function<std::string()> readiness;  // one line for /readyz
  // Everything below /debug/pprof/; without it there is nothing there.
  std::function<net::Response(const net::Request& request)> pprof;
};

// What people read.
net::Response Text(int status, std::string body);
// 405: it is ALLOWED here.
net::Response WrongMethod(const char* allowed);

net::Handler MainRoutes(Endpoints endpoints);

// /metrics, streamed by WRITE so that the text of a large cluster is never in memory as a whole.
net::Handler MetricsRoutes(std::function<void(net::BodyWriter&)> write);

}  // namespace hami::scheduler
