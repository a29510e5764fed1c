// SPDX-License-Identifier: Apache-2.0
//
// By which proxy the API server is reached: a kubeconfig's proxy-url, else HTTPS_PROXY and NO_PROXY of the environment,
// read as Go's programs read them.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/client.h"
#include "net/url.h"

namespace hami::kube {

// "http://[user:password@]host[:port]". Refused: proxies that are spoken to over TLS or SOCKS. PLACE begins the error.
base::Result<net::Proxy> ReadProxy(std::string text, const std::string& place);

// Whether LIST (NO_PROXY) keeps HOST from the proxy: "*", names with their subdomains, `.domain`, addresses, CIDR
// blocks, each of the first three with a port or without. localhost and loopback addresses never go by one.
bool GoesDirectly(const net::Url& server, std::string_view list);

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Nothing: SERVER is reached directly.
base::Result<std::optional<net::Proxy>> ProxyOfEnvironment(const net::Url& server, const Environment& environment);

}  // namespace hami::kube
