// SPDX-License-Identifier: Apache-2.0
//
// Answers in gzip for clients that accept it. A body is compressed as it comes, so that a large page is never in memory
// as a whole. Refuses nothing: what is small, or for a client that does not ask, goes out as it is.

#pragma once

#include <string_view>

#include "net/http.h"

namespace hami::net {

// Does the value of an Accept-Encoding header allow gzip? `gzip;q=0` does not; `*` does.
bool AcceptsGzip(std::string_view accept_encoding);

// RESPONSE to REQUEST, compressed where the client accepts it and it is worth it. Says in any case that the answer
// depends on the client, for caches between.
Response Compressed(const Request& request, Response response);

}  // namespace hami::net
