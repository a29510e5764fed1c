// SPDX-License-Identifier: Apache-2.0

#include "kube/resource.h"

#include "net/url.h"

namespace hami::kube {
namespace {

constexpr std::size_t kUsualPathBytes = 128;

}  // namespace

std::string PathTo(const Resource& resource, std::string_view ns, std::string_view name, std::string_view subresource) {
  const bool core = resource.group_version.find('/') == std::string_view::npos;
  std::string path;
  path.reserve(kUsualPathBytes);
  path.append(core ? "/api/" : "/apis/").append(resource.group_version);
  // Names come from outside; encoded, none can climb to another path.
  if (resource.namespaced && !ns.empty()) net::AppendPercentEncoded(path.append("/namespaces/"), ns);
  path.append("/").append(resource.plural);
  if (!name.empty()) net::AppendPercentEncoded(path.append("/"), name);
  if (!subresource.empty()) net::AppendPercentEncoded(path.append("/"), subresource);
  return path;
}

}  // namespace hami::kube
