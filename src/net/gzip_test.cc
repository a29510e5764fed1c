// SPDX-License-Identifier: Apache-2.0

#include "net/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "net/client.h"
#include "net/server.h"

namespace hami::net {
namespace {

// As many bytes as 1,000 nodes' metrics have, alike and not the same.
std::string LargePage() {
  std::string page;
  for (int i = 0; page.size() < (4U << 20U); ++i) page += "hami_metric{node=\"node-" + std::to_string(i) + "\"} 1\n";
  return page;
}

std::string Unzipped(const std::string& text) {
  z_stream stream{};
  if (::inflateInit2(&stream, 15 + 16) != Z_OK) return "(no zlib)";
  std::string out(64U << 20U, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int done = ::inflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::inflateEnd(&stream);
  return done == Z_STREAM_END ? out : "(not whole)";
}

class GzipTest : public testing::Test {
 protected:
  // Of /stream in pieces, of /body at once, of /small a few bytes.
  GzipTest() {
    auto server = Server::Start({}, [this](const Request& request) {
      Response response;
      if (request.target == "/small") {
        response.body = "ok\n";
      } else if (request.target == "/body") {
        response.body = page_;
      } else {
        response.stream = [this](BodyWriter& out) {
          for (std::size_t at = 0; at < page_.size(); at += 100'000) out.Write(page_.substr(at, 100'000));
        };
      }
      return Compressed(request, std::move(response));
    });
    server_ = *std::move(server);
    client_ = *Client::Make(*ParseUrl("http://127.0.0.1:" + std::to_string(server_->port())), {});
  }
  Response Get(const std::string& target, const std::string& accept, const std::string& method = "GET") {
    Call call;
    call.method = method;
    call.target = target;
    if (!accept.empty()) call.headers = {{"Accept-Encoding", accept}};
    auto response = client_->Send(call);
    EXPECT_TRUE(response) << response.error().message;
    return response ? *std::move(response) : Response{};
  }
  static bool IsZipped(const Response& response) { return response.headers.Find("Content-Encoding") != nullptr; }

  const std::string page_ = LargePage();
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(GzipTest, AClientThatAcceptsItGetsTheSamePageInFewerBytes) {
  for (const char* target : {"/stream", "/body"}) {
    const Response response = Get(target, "deflate, gzip;q=0.5");
    ASSERT_TRUE(IsZipped(response)) << target;
    EXPECT_EQ(*response.headers.Find("Content-Encoding"), "gzip");
    EXPECT_LT(response.body.size(), page_.size() / 5) << target;
    EXPECT_TRUE(Unzipped(response.body) == page_) << target;
  }
}

TEST_F(GzipTest, AClientThatDoesNotAskGetsItAsItIs) {
  for (const char* accept : {"", "identity", "gzip;q=0", "br"}) {
    const Response response = Get("/stream", accept);
    EXPECT_FALSE(IsZipped(response)) << accept;
    EXPECT_TRUE(response.body == page_) << accept;
    EXPECT_NE(response.headers.Find("Vary"), nullptr);
  }
}

TEST_F(GzipTest, WhatIsSmallGoesOutAsItIs) {
  const Response response = Get("/small", "gzip");
  EXPECT_FALSE(IsZipped(response));
  EXPECT_EQ(response.body, "ok\n");
  EXPECT_FALSE(IsZipped(Get("/stream", "gzip", "HEAD")));
}

TEST(AcceptEncoding, IsReadAsTheStandardSays) {
  for (const char* yes :
       {"gzip", "GZIP", "x-gzip", "*", "br, gzip;q=1.0", "gzip;q=0.001", " gzip ; q=0.2", "*;q=0.1"}) {
    EXPECT_TRUE(AcceptsGzip(yes)) << yes;
  }
  for (const char* no : {"", "identity", "gzip;q=0", "gzip;q=0.000", "*;q=0", "gzip;q=0, *", "gzipped", ",;q="}) {
    EXPECT_FALSE(AcceptsGzip(no)) << no;
  }
}

}  // namespace
}  // namespace hami::net
