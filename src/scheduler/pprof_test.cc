// SPDX-License-Identifier: Apache-2.0

#include "scheduler/pprof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <future>

#include "scheduler/cpu_profile.h"

namespace hami::scheduler {
namespace {

using testing::HasSubstr;
using testing::Not;

net::Request Ask(std::string target, std::string method = "GET", std::string body = "") {
  return {std::move(method), std::move(target), {}, std::move(body), [] { return false; }};
}

std::string Hex(const void* address) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "0x%zx", reinterpret_cast<std::size_t>(address));
  return text.data();
}

class Pprof : public testing::Test {
 protected:
  net::Canceller stopping_;
  std::vector<std::chrono::seconds> spans_;
  std::function<net::Response(const net::Request&)> routes_ =
      PprofRoutes(TakeProfile([this](std::chrono::seconds span, const std::function<bool()>& enough) {
                    spans_.push_back(span);
                    return base::Result<std::string>(enough() ? "cut short" : "whole");
                  }),
                  stopping_);
};

TEST_F(Pprof, AProfileLastsAsLongAsAsked) {
  const net::Response response = routes_(Ask("/debug/pprof/profile?seconds=7"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "whole");
  EXPECT_EQ(*response.headers.Find("Content-Type"), "application/octet-stream");
  EXPECT_EQ(routes_(Ask("/debug/pprof/profile")).status, 200);
  EXPECT_EQ(routes_(Ask("/debug/pprof/profile?seconds=300")).status, 200);
  EXPECT_EQ(spans_, (std::vector{std::chrono::seconds(7), std::chrono::seconds(30), std::chrono::seconds(300)}));
}

TEST_F(Pprof, ASpanWithoutBoundsIsRefused) {
  for (const char* seconds : {"0", "-1", "301", "99999999999999999999", "5s", "", "1.5"}) {
    const net::Response response = routes_(Ask("/debug/pprof/profile?seconds=" + std::string(seconds)));
    EXPECT_EQ(response.status, 400) << seconds;
    EXPECT_THAT(response.body, HasSubstr("from 1 to 300")) << seconds;
  }
  EXPECT_TRUE(spans_.empty());
}

TEST_F(Pprof, AProfileEndsWithItsClientAndWithTheProgram) {
  net::Request gone = Ask("/debug/pprof/profile");
  gone.abandoned = [] { return true; };
  EXPECT_EQ(routes_(gone).body, "cut short");
  EXPECT_EQ(routes_(Ask("/debug/pprof/profile")).body, "whole");
  stopping_.Cancel();
  EXPECT_EQ(routes_(Ask("/debug/pprof/profile")).body, "cut short");
}

TEST_F(Pprof, OneProfileIsTakenAtATime) {
  std::promise<void> begun;
  std::promise<void> end;
  const auto routes = PprofRoutes(TakeProfile([&](std::chrono::seconds, const std::function<bool()>&) {
                                    begun.set_value();
                                    end.get_future().wait();
                                    return base::Result<std::string>("first");
                                  }),
                                  stopping_);
  auto first = std::async(std::launch::async, [&] { return routes(Ask("/debug/pprof/profile")); });
  begun.get_future().wait();
  const net::Response second = routes(Ask("/debug/pprof/profile"));
  EXPECT_EQ(second.status, 409);
  EXPECT_THAT(second.body, HasSubstr("already"));
  end.set_value();
  EXPECT_EQ(first.get().body, "first");
}

TEST_F(Pprof, WithoutTheProfilerTheAnswerSaysWhatToInstall) {
  const auto routes = PprofRoutes(base::Fail("no library", "install it"), stopping_);
  const net::Response response = routes(Ask("/debug/pprof/profile"));
  EXPECT_EQ(response.status, 501);
  EXPECT_EQ(response.body, "no library\ninstall it\n");
  EXPECT_EQ(routes(Ask("/debug/pprof/cmdline")).status, 200);
}

TEST_F(Pprof, AProfileThatFailsIsAnError) {
  const auto routes = PprofRoutes(TakeProfile([](std::chrono::seconds, const std::function<bool()>&) {
                                    return base::Result<std::string>(base::Fail("SIGPROF is taken"));
                                  }),
                                  stopping_);
  EXPECT_EQ(routes(Ask("/debug/pprof/profile")).status, 500);
  EXPECT_EQ(routes(Ask("/debug/pprof/profile")).body, "SIGPROF is taken\n");
}

TEST_F(Pprof, WhatOnlyGoHasIsNamedAsThat) {
  for (const char* name : {"trace?seconds=1", "heap", "goroutine?debug=2", "allocs", "block", "mutex"}) {
    const net::Response response = routes_(Ask("/debug/pprof/" + std::string(name)));
    EXPECT_EQ(response.status, 501) << name;
    EXPECT_THAT(response.body, HasSubstr("only Go's runtime")) << name;
  }
  EXPECT_EQ(routes_(Ask("/debug/pprof/nothing")).status, 404);
  EXPECT_EQ(routes_(Ask("/debug/pprof/")).status, 200);
  EXPECT_THAT(routes_(Ask("/debug/pprof/")).body, HasSubstr("go tool pprof"));
}

TEST_F(Pprof, OtherMethodsAreRefused) {
  for (const char* name : {"", "profile", "cmdline", "trace"}) {
    EXPECT_EQ(routes_(Ask("/debug/pprof/" + std::string(name), "POST")).status, 405) << name;
    EXPECT_EQ(routes_(Ask("/debug/pprof/" + std::string(name), "HEAD")).status, 405) << name;
  }
  EXPECT_EQ(*routes_(Ask("/debug/pprof/symbol", "DELETE")).headers.Find("Allow"), "GET, POST");
  EXPECT_TRUE(spans_.empty());
}

TEST_F(Pprof, TheCommandLineHasItsWordsApart) {
  const std::string words = routes_(Ask("/debug/pprof/cmdline")).body;
  EXPECT_THAT(words.substr(0, words.find('\0')), HasSubstr("scheduler_shell_test"));
  EXPECT_FALSE(words.ends_with('\0'));
}

TEST_F(Pprof, AddressesAreNamed) {
  const std::string here = Hex(reinterpret_cast<const void*>(&PprofRoutes));
  const std::string libc = Hex(reinterpret_cast<const void*>(&std::snprintf));
  const std::string line = here + " _ZN4hami9scheduler11PprofRoutes";
  for (const net::Request& request : {Ask("/debug/pprof/symbol", "POST", here + "+" + libc + "+0x1"),
                                      Ask("/debug/pprof/symbol?" + here + "+" + libc + "+0x1")}) {
    const net::Response response = routes_(request);
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(response.body, testing::StartsWith("num_symbols: 1\n"));
    EXPECT_THAT(response.body, HasSubstr(line));
    EXPECT_THAT(response.body, HasSubstr(libc + " "));
    EXPECT_THAT(response.body, Not(HasSubstr("0x1 ")));
  }
  // What clients ask first: are there names at all?
  EXPECT_EQ(routes_(Ask("/debug/pprof/symbol")).body, "num_symbols: 1\n");
  EXPECT_EQ(routes_(Ask("/debug/pprof/symbol", "POST", "0x1+what")).status, 400);
  EXPECT_EQ(routes_(Ask("/debug/pprof/symbol", "POST", "0x10000000000000000")).status, 400);
  std::string many;
  for (int i = 0; i < 100'001; ++i) many += "+0";
  EXPECT_EQ(routes_(Ask("/debug/pprof/symbol", "POST", many)).status, 413);
}

}  // namespace
}  // namespace hami::scheduler
