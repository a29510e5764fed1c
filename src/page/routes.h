// SPDX-License-Identifier: Apache-2.0
//
// The page's HTTP surface: the files of the page, which hold no data, and GET /v1/state and /v1/use, which do.
// Everything is read-only and goes out with headers that let a browser load nothing from elsewhere and show it in no
// frame. Without tokens only those are answered that name this machine's loopback as the host: a site that points its
// own name at it reads nothing.

#pragma once

#include <functional>
#include <string>

#include "net/server.h"
#include "page/access.h"
#include "page/live.h"

namespace hami::page {

struct PageOptions {
  // Asks each reader for a token; without it every reader is let in.
  std::function<Access(const std::string* authorization)> check;
  bool loopback_only = false;  // the Host header must name the loopback
};

struct PageAnswers {
  std::function<std::string(const Ask& ask, const std::function<bool()>& abandoned)> state;
  std::function<std::string(const std::string& node)> use;  // empty: it is not asked for
};

net::Handler PageRoutes(PageAnswers answers, PageOptions options);

// The node of GET /v1/use?node=NAME.
base::Result<std::string> ParseUseAsk(std::string_view target);

// Whether a Host header names the machine that it is read on: localhost, 127.…, [::1], with any port.
bool NamesLoopback(std::string_view host);

}  // namespace hami::page
