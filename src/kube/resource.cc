// SPDX-License-Identifier: Apache-2.0

#include "kube/resource.h"

#include "net/url.h"

namespace hami::kube {

std::string PathTo(const Resource& resource, std::string_view ns, std::string_view name, std::string_view subresource) {
  const bool core = resource.group_version.find('/') == std::string_view::npos;
  std::string path = core ? "/api/" : "/apis/";
  path += resource.group_version;
  // Names come from outside; encoded, none can climb to another path.
  if (resource.namespaced && !ns.empty()) path += "/namespaces/" + net::PercentEncode(ns);
  path += "/";
  path += resource.plural;
  if (!name.empty()) path += "/" + net::PercentEncode(name);
  if (!subresource.empty()) path += "/" + net::PercentEncode(subresource);
  return path;
}

}  // namespace hami::kube
