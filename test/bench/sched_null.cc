// SPDX-License-Identifier: Apache-2.0

#include "test/bench/sched_null.h"

#include <unistd.h>

#include <iostream>

#include "base/json.h"
#include "kube/client.h"
#include "net/server.h"
#include "net/url.h"

namespace hami::bench {
namespace {

namespace json = base::json;

// By looking and not by reading: parsing the request would already be more than nothing.
std::string FirstName(const std::string& body) {
  constexpr std::string_view kBefore = R"("NodeNames":[")";
  const std::size_t at = body.rfind(kBefore);
  if (at == std::string::npos) return {};
  const std::size_t from = at + kBefore.size();
  return body.substr(from, body.find('"', from) - from);
}

net::Response Answer(kube::Client& client, const net::Request& request) {
  net::Response response{200, {{"Content-Type", "application/json"}}, "", {}};
  if (request.target == "/filter") {
    response.body = R"({"NodeNames":[")" + FirstName(request.body) + R"("],"Error":""})";
    return response;
  }
  const auto parsed = base::ParseJson(request.body);
  if (!parsed || !parsed->is_object()) return {400, {}, "", {}};
  const json::object& bind = parsed->get_object();
  const auto text = [&](const char* key) { return base::GetString(bind, key).value_or(""); };
  const auto bound = client.Bind(text("PodNamespace"), text("PodName"), text("PodUID"), text("Node"));
  response.body = json::serialize(json::object{{"Error", bound ? "" : bound.error().message}});
  return response;
}

}  // namespace

int RunNullExtender(const std::string& api_server, const std::string& certificate, const std::string& key) {
  const auto url = net::ParseUrl(api_server);
  if (!url) return 2;
  kube::Config config;
  config.server = *url;
  const auto client = kube::Client::Make(config);
  net::ServerOptions options;
  options.tls = net::TlsFiles{certificate, key};
  if (!client) return 1;
  const auto server =
      net::Server::Start(options, [&](const net::Request& request) { return Answer(**client, request); });
  if (!server) return 1;
  std::cerr << "null extender on port " << (*server)->port() << std::endl;
  while (true) ::pause();
}

}  // namespace hami::bench
