// SPDX-License-Identifier: Apache-2.0

#include "kube/proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/strings.h"
#include "kube/base64.h"

namespace hami::kube {
namespace {

// The bytes of an address, IPv4 as it is mapped into IPv6, so that both compare.
using Address = std::array<std::uint8_t, 16>;
constexpr int kBits = 128;
constexpr int kBitsBeforeIpv4 = 96;

std::optional<Address> ReadAddress(const std::string& text) {
  Address address{};
  if (inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return address;
  address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (inet_pton(AF_INET, text.c_str(), &address[12]) == 1) return address;
  return std::nullopt;
}

bool IsLoopback(const Address& address) {
  const auto v4 = ReadAddress("127.0.0.0");
  const auto v6 = ReadAddress("::1");
  return address == *v6 || std::equal(address.begin(), address.begin() + 13, v4->begin());
}

bool InBlock(const Address& address, const std::string& block) {
  const std::size_t slash = block.find('/');
  const auto base = ReadAddress(block.substr(0, slash));
  const auto digits = base::ParseNumber(std::string_view(block).substr(slash + 1));
  if (!base || !digits) return false;
  const bool v4 = block.find(':') == std::string::npos;
  if (*digits > static_cast<std::uint64_t>(v4 ? kBits - kBitsBeforeIpv4 : kBits)) return false;
  const int bits = static_cast<int>(*digits) + (v4 ? kBitsBeforeIpv4 : 0);
  for (int i = 0; i < bits; ++i) {
    const int mask = 0x80 >> (i % 8);
    const auto byte = static_cast<std::size_t>(i / 8);
    if ((address[byte] & mask) != ((*base)[byte] & mask)) return false;
  }
  return true;
}

// Takes ":PORT" off ENTRY. False: it names another port than SERVER's.
bool TakePort(std::string& entry, std::uint16_t port) {
  const bool bracketed = entry.front() == '[';
  const std::size_t colon = entry.rfind(':');
  const bool has_port = colon != std::string::npos && (bracketed ? entry[colon - 1] == ']' : entry.find(':') == colon);
  if (has_port) {
    const auto number = base::ParseNumber(std::string_view(entry).substr(colon + 1));
    if (!number || *number != port) return false;
    entry.resize(colon);
  }
  if (bracketed && entry.size() > 2 && entry.back() == ']') entry = entry.substr(1, entry.size() - 2);
  return true;
}

bool Matches(std::string entry, const std::string& host, const std::optional<Address>& address, std::uint16_t port) {
  if (entry == "*") return true;
  if (entry.find('/') != std::string::npos) return address && InBlock(*address, entry);
  if (!TakePort(entry, port) || entry.empty()) return false;
  if (address) return ReadAddress(entry) == address;
  if (entry.starts_with("*.")) entry.erase(0, 1);
  if (entry.front() == '.') return host.size() > entry.size() && host.ends_with(entry);
  return host == entry || host.ends_with("." + entry);
}

}  // namespace

base::Result<net::Proxy> ReadProxy(std::string text, const std::string& place) {
  const std::size_t scheme = text.find("://");
  if (scheme == std::string::npos || base::ToLower(text.substr(0, scheme)) != "http") {
    return base::Fail(
        place + "only proxies that are spoken to over http are supported",
        "name an HTTP proxy like http://proxy.example:3128; what goes through it is encrypted all the same");
  }
  net::Proxy proxy;
  const std::size_t begin = scheme + 3;
  if (const std::size_t at = text.find('@'); at != std::string::npos && at < text.find('/', begin)) {
    const auto user = net::PercentDecode(text.substr(begin, at - begin));
    if (!user) return base::Fail(place + "its user and password are not percent-encoded as they should be");
    proxy.authorization = "Basic " + Base64Encode(user->find(':') == std::string::npos ? *user + ":" : *user);
    text.erase(begin, at + 1 - begin);
  }
  auto url = net::ParseUrl(text);
  if (!url) return base::Fail(place + url.error().message);
  proxy.url = *std::move(url);
  return proxy;
}

bool GoesDirectly(const net::Url& server, std::string_view list) {
  const std::string host = base::ToLower(server.host);
  const auto address = ReadAddress(host);
  if (host == "localhost" || (address && IsLoopback(*address))) return true;
  for (const std::string& part : base::Split(std::string(list), ',')) {
    std::string entry = base::ToLower(base::Trim(part));
    if (!entry.empty() && Matches(std::move(entry), host, address, server.port)) return true;
  }
  return false;
}

base::Result<std::optional<net::Proxy>> ProxyOfEnvironment(const net::Url& server, const Environment& environment) {
  // In this order, as Go's programs.
  const auto first = [&](std::initializer_list<const char*> names) -> std::pair<std::string, std::string> {
    for (const char* name : names) {
      std::string value = environment(name).value_or("");
      if (!value.empty()) return {name, std::move(value)};
    }
    return {};
  };
  auto [name, text] = server.tls ? first({"HTTPS_PROXY", "https_proxy"}) : first({"HTTP_PROXY", "http_proxy"});
  if (text.empty() || GoesDirectly(server, first({"NO_PROXY", "no_proxy"}).second)) return std::nullopt;
  if (text.find("://") == std::string::npos) text.insert(0, "http://");
  auto proxy = ReadProxy(std::move(text), name + ": ");
  if (!proxy) return tl::unexpected(proxy.error());
  return *std::move(proxy);
}

}  // namespace hami::kube
