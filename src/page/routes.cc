// SPDX-License-Identifier: Apache-2.0

#include "page/routes.h"

#include <memory>

#include "base/strings.h"
#include "net/gzip.h"
#include "net/url.h"
#include "page/assets.h"

namespace hami::page {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

constexpr std::size_t kMostNodeName = 253;

net::Response Guarded(net::Response response, const char* cache) {
  for (const auto& [name, value] :
       {std::pair{"Content-Security-Policy", kPolicy}, std::pair{"X-Content-Type-Options", "nosniff"},
        std::pair{"X-Frame-Options", "DENY"}, std::pair{"Referrer-Policy", "no-referrer"},
        std::pair{"Cross-Origin-Resource-Policy", "same-origin"},
        std::pair{"Cross-Origin-Opener-Policy", "same-origin"}, std::pair{"Cache-Control", cache}}) {
    response.headers.emplace_back(name, value);
  }
  return response;
}

net::Response Complaint(int status, std::string text) {
  return Guarded({status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(text), {}}, "no-store");
}

net::Response Refused(Access access) {
  if (access == Access::kForbidden) {
    return Complaint(403,
                     "this user may not read the page; bind it to a ClusterRole with get on the nonResourceURL "
                     "/v1/state\n");
  }
  if (access == Access::kUnreachable) {
    net::Response response = Complaint(503, "the API server cannot be asked about the token; try again\n");
    response.headers.emplace_back("Retry-After", "2");
    return response;
  }
  net::Response response =
      Complaint(401, access == Access::kNoToken ? "a bearer token is needed, e.g. of `kubectl create token`\n"
                                                : "the API server does not know this token, or it has expired\n");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

base::Result<std::string> State(const PageAnswers& answers, const net::Request& request) {
  const auto ask = ParseAsk(request.target);
  if (!ask) return tl::unexpected(ask.error());
  return answers.state(*ask, request.abandoned);
}

base::Result<std::string> Use(const PageAnswers& answers, const net::Request& request) {
  const auto node = ParseUseAsk(request.target);
  if (!node) return tl::unexpected(node.error());
  if (!answers.use) return std::string("{\"schema\":1,\"asked\":false}\n");
  return answers.use(*node);
}

}  // namespace

bool NamesLoopback(std::string_view host) {
  std::string name = base::ToLower(host);
  const std::size_t colon = name.rfind(':');
  if (colon != std::string::npos && name.find(']', colon) == std::string::npos) name.resize(colon);
  if (name == "localhost" || name == "[::1]") return true;
  // 127.0.0.0/8 in numbers alone: 127.0.0.1.example.org is somebody's name.
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string::npos;
}

base::Result<std::string> ParseUseAsk(std::string_view target) {
  const net::Query pairs = net::ParseQuery(target);
  if (pairs.size() != 1 || pairs.front().first != "node" || pairs.front().second.empty() ||
      pairs.front().second.size() > kMostNodeName) {
    return base::Fail("the query is not node=NAME");
  }
  return pairs.front().second;
}

net::Handler PageRoutes(PageAnswers answers, PageOptions options) {
  struct Room {
    PageAnswers answers;
    PageOptions options;
  };
  const auto room = std::make_shared<const Room>(Room{std::move(answers), std::move(options)});
  return [room](const net::Request& request) {
    const std::string* host = request.headers.Find("Host");
    if (room->options.loopback_only && (host == nullptr || !NamesLoopback(*host))) {
      return Complaint(421, "this page is for the machine it runs on: open it as http://localhost\n");
    }
    if (request.method != "GET" && request.method != "HEAD") {
      net::Response response = Complaint(405, "the page is read-only: use GET\n");
      response.headers.emplace_back("Allow", "GET, HEAD");
      return response;
    }
    const std::string_view path = net::PathOf(request.target);
    if (path != "/v1/state" && path != "/v1/use") {
      const Asset* asset = FindAsset(path == "/" ? "/index.html" : path);
      if (asset == nullptr) return Complaint(404, "here are the page (/), GET /v1/state and GET /v1/use\n");
      net::Response file{200, {{"Content-Type", std::string(asset->type)}}, std::string(asset->text), {}};
      return net::Compressed(request, Guarded(std::move(file), "no-cache"));
    }
    if (room->options.check) {
      const Access access = room->options.check(request.headers.Find("Authorization"));
      if (access != Access::kAllowed) return Refused(access);
    }
    const auto body = path == "/v1/use" ? Use(room->answers, request) : State(room->answers, request);
    if (!body) {
      return Complaint(400, body.error().message + (body.error().hint.empty() ? "" : "; " + body.error().hint) + "\n");
    }
    net::Response data{200, {{"Content-Type", "application/json"}}, *body, {}};
    return net::Compressed(request, Guarded(std::move(data), "no-store"));
  };
}

}  // namespace hami::page
