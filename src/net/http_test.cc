// SPDX-License-Identifier: Apache-2.0

#include "net/http.h"

#include <gtest/gtest.h>

namespace hami::net {
namespace {

// Feeds TEXT in pieces of SIZE, keeping what was not taken, as connections do.
template <typename Parser>
Status FeedInPieces(Parser& parser, std::string_view text, std::size_t size, std::string* body = nullptr) {
  std::string unread;
  while (!text.empty() && !parser.done()) {
    unread += text.substr(0, size);
    text.remove_prefix(std::min(size, text.size()));
    auto taken = parser.Feed(unread);
    if (!taken) return tl::unexpected(taken.error());
    unread.erase(0, *taken);
    if constexpr (std::is_same_v<Parser, ResponseParser>) {
      if (body != nullptr && parser.head_done()) *body += parser.TakeBody();
    }
  }
  return {};
}

TEST(RequestParser, GivenARequestInPiecesOfAnySizeWhenFedThenItIsWhole) {
  for (std::size_t size = 1; size < 80; ++size) {
    RequestParser parser({});
    ASSERT_TRUE(FeedInPieces(parser, "POST /filter?x=1 HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\n\r\nhello", size));
    ASSERT_TRUE(parser.done()) << size;
    EXPECT_TRUE(parser.keep_alive());
    const Request request = parser.Take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/filter?x=1");
    EXPECT_EQ(request.body, "hello");
    ASSERT_NE(request.headers.Find("HOST"), nullptr);
    EXPECT_EQ(*request.headers.Find("HOST"), "a");
  }
}

TEST(RequestParser, GivenTwoRequestsInOnePieceWhenFedThenOnlyTheFirstIsTaken) {
  const std::string first = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  RequestParser parser({});
  const auto taken = parser.Feed(first + "GET /second HTTP/1.1\r\n");
  ASSERT_TRUE(taken);
  EXPECT_EQ(*taken, first.size());
  EXPECT_TRUE(parser.done());
}

TEST(RequestParser, GivenMoreThanTheLimitsWhenFedThenTooLarge) {
  RequestParser body({1024, 4});
  const auto large = FeedInPieces(body, "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 100);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().cause, Cause::kTooLarge);
  RequestParser chunked({1024, 4});
  EXPECT_FALSE(FeedInPieces(chunked, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 100));
  RequestParser head({64, 4});
  const auto long_head = FeedInPieces(head, "GET / HTTP/1.1\r\nA: " + std::string(100, 'a') + "\r\n\r\n", 10);
  ASSERT_FALSE(long_head);
  EXPECT_EQ(long_head.error().cause, Cause::kTooLarge);
}

TEST(RequestParser, GivenBothLengthAndChunkedWhenFedThenItIsRefused) {
  // The classic way to make two parties disagree about where a request ends.
  RequestParser parser({});
  EXPECT_FALSE(
      FeedInPieces(parser, "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200));
}

TEST(ResponseParser, GivenAChunkedBodyInPiecesOfAnySizeWhenFedThenTheBodyIsWhole) {
  for (std::size_t size = 1; size < 90; ++size) {
    ResponseParser parser({}, false);
    std::string body;
    ASSERT_TRUE(FeedInPieces(parser,
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "5;ext=1\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\n\r\n",
                             size, &body));
    EXPECT_TRUE(parser.done()) << size;
    EXPECT_EQ(body, "hello world");
  }
}

// Beast's assertions, which a release has not, hold as well.
TEST(ResponseParser, GivenALastChunkAloneInPiecesWhenFedThenItIsTheEnd) {
  for (const std::string_view end : {"0\r\n\r\n", "0\r\nAb: c\r\n\r\n", "3\r\n0\r\n\r\n0\r\n\r\n"}) {
    for (std::size_t size = 1; size < 20; ++size) {
      ResponseParser parser({}, false);
      std::string body;
      const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
      ASSERT_TRUE(FeedInPieces(parser, head + std::string(end), size, &body));
      EXPECT_TRUE(parser.done()) << end << size;
      EXPECT_EQ(body, end.starts_with('3') ? "0\r\n" : "");
    }
  }
}

TEST(ResponseParser, GivenAnInterimAnswerWhenFedThenTheFinalOneCounts) {
  ResponseParser parser({}, false);
  std::string body;
  ASSERT_TRUE(FeedInPieces(parser, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
                           7, &body));
  EXPECT_EQ(parser.status(), 201);
  EXPECT_EQ(body, "ok");
}

TEST(ResponseParser, GivenNoLengthWhenTheConnectionEndsThenTheBodyIsComplete) {
  ResponseParser parser({}, false);
  std::string body;
  ASSERT_TRUE(FeedInPieces(parser, "HTTP/1.1 200 OK\r\n\r\nall of it", 5, &body));
  EXPECT_FALSE(parser.done());
  EXPECT_TRUE(parser.Finish());
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(body, "all of it");
}

TEST(ResponseParser, GivenALengthWhenTheConnectionEndsEarlyThenItIsAnError) {
  ResponseParser parser({}, false);
  ASSERT_TRUE(FeedInPieces(parser, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", 100));
  const auto end = parser.Finish();
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().cause, Cause::kClosed);
}

TEST(ResponseParser, GivenAnAnswerToHeadWhenItNamesALengthThenNoBodyIsAwaited) {
  ResponseParser parser({}, true);
  ASSERT_TRUE(FeedInPieces(parser, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", 100));
  EXPECT_TRUE(parser.done());
}

TEST(ResponseHead, GivenLineBreaksInAValueWhenWrittenThenTheyCanNotAddAHeader) {
  const Response response{200, {{"X-Name", "a\r\nSet-Cookie: b"}, {"X\r\nSet-Cookie", "b"}}, "", {}};
  const std::string head = ResponseHead(response, false, true);
  EXPECT_EQ(head.find("\r\nSet-Cookie"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 0\r\n"), std::string::npos);
}

}  // namespace
}  // namespace hami::net
