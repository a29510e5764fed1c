// SPDX-License-Identifier: Apache-2.0

#include "scheduler/routes.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/strings.h"
#include "net/gzip.h"
#include "net/url.h"
#include "scheduler/options.h"
#include "scheduler/pprof.h"

namespace hami::scheduler {

net::BodyLimit BodyLimitOf(std::string_view target) {
  const std::string_view path = net::PathOf(target);
  // A simulation carries whole Node objects, thousands of them.
  if (path == "/filter" || path == "/prioritize" || path == "/preempt") {
    return {256U << 20U,
            "nodeCacheCapable: true in kube-scheduler's extender configuration sends names instead of nodes"};
  }
  // What etcd keeps of an object is 1.5 MiB, and Go writes a character of it in six at most.
  if (path == "/webhook") return {16U << 20U, "no pod that the API server can store needs more"};
  if (path.starts_with(kPprofPath)) return {4U << 20U, "ask for fewer addresses at once"};
  // The names of a pod and of a node have 253 characters at most.
  return {64U << 10U, "nothing that is understood here needs more"};
}

net::Response Text(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body), {}};
}

net::Response WrongMethod(const char* allowed) {
  net::Response response = Text(405, std::string("use ") + allowed + "\n");
  response.headers.emplace_back("Allow", allowed);
  return response;
}

namespace {

net::Response Json(int status, std::string body) {
  net::Response response{status, {}, std::move(body), {}};
  response.headers.emplace_back("Content-Type", "application/json");
  return response;
}

// With Retry-After the API server's client asks again by itself.
net::Response Busy(std::string text) {
  net::Response response = Text(503, std::move(text));
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

bool IsJson(const net::Request& request) {
  const std::string* type = request.headers.Find("Content-Type");
  if (type == nullptr) return true;
  const std::string_view essence = std::string_view(*type).substr(0, type->find(';'));
  return base::ToLower(base::Trim(essence)) == "application/json";
}

net::Response Post(const Endpoints& endpoints, std::string_view path, const net::Request& request) {
  if (request.method != "POST") return WrongMethod("POST");
  if (path == "/webhook") {
    if (!IsJson(request)) return Text(415, "an AdmissionReview comes as application/json\n");
    AdmissionAnswer answer = endpoints.review(request.body);
    if (answer.http_status == 503) return Busy(std::move(answer.body));
    return Json(answer.http_status, std::move(answer.body));
  }
  const auto ask = [&]() -> Reply {
    if (path == "/prioritize") return endpoints.prioritize(request.body);
    if (path == "/preempt") return endpoints.preempt(request.body);
    return (path == "/filter" ? endpoints.filter : endpoints.bind)(request.body, request.abandoned);
  };
  Reply reply = ask();
  return reply.status == 200 ? Json(200, std::move(reply.body)) : Text(reply.status, std::move(reply.body));
}

net::Response Get(const Endpoints& endpoints, std::string_view path, const net::Request& request) {
  if (request.method != "GET" && request.method != "HEAD") return WrongMethod("GET");
  if (path == "/healthz") return {200, {}, "", {}};
  if (path == "/readyz") return Text(200, endpoints.readiness());
  return Text(200, VersionLine() + "\n");
}

}  // namespace

net::Handler MainRoutes(Endpoints endpoints) {
  return [endpoints = std::make_shared<const Endpoints>(std::move(endpoints))](const net::Request& request) {
    const std::string_view path = net::PathOf(request.target);
    static constexpr std::array<std::string_view, 5> kPosts = {"/filter", "/prioritize", "/preempt", "/bind",
                                                               "/webhook"};
    if (std::find(kPosts.begin(), kPosts.end(), path) != kPosts.end()) return Post(*endpoints, path, request);
    if (path == "/healthz" || path == "/readyz" || path == "/version") return Get(*endpoints, path, request);
    if (endpoints->pprof && path.starts_with(kPprofPath)) return endpoints->pprof(request);
    return Text(404,
                "here are POST /filter, /prioritize, /preempt, /bind, /webhook and GET /healthz, /readyz, /version\n");
  };
}

net::Handler MetricsRoutes(std::function<void(net::BodyWriter&)> write) {
  return [write = std::move(write)](const net::Request& request) {
    if (net::PathOf(request.target) != "/metrics") return Text(404, "here is GET /metrics\n");
    if (request.method != "GET" && request.method != "HEAD") return WrongMethod("GET");
    net::Response response{200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, "", {}};
    response.stream = write;
    return net::Compressed(request, std::move(response));
  };
}

}  // namespace hami::scheduler
