// SPDX-License-Identifier: Apache-2.0

#include "scheduler/pprof.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <mutex>
#include <optional>

#include "base/fd.h"
#include "base/strings.h"
#include "net/url.h"
#include "scheduler/cpu_profile.h"
#include "scheduler/routes.h"

namespace hami::scheduler {
namespace {

constexpr int kUsualSeconds = 30;
constexpr int kMostSeconds = 300;
constexpr std::size_t kMostArgumentBytes = 1U << 20U;
constexpr std::size_t kMostAddresses = 100'000;

constexpr const char* kIndex =
    "/debug/pprof/\n"
    "\n"
    "profile   CPU time of all threads, for ?seconds=30: go tool pprof http://THIS/debug/pprof/profile?seconds=5\n"
    "symbol    names of the functions at addresses (POST 0x1+0x2), which go tool pprof asks for by itself\n"
    "cmdline   the command line\n"
    "\n"
    "Not here, because only Go's runtime has them: trace, heap, allocs, goroutine, threadcreate, block, mutex.\n";

bool IsOfGoOnly(std::string_view name) {
  constexpr std::array<std::string_view, 7> kGo = {"trace",        "heap",  "allocs", "goroutine",
                                                   "threadcreate", "block", "mutex"};
  return std::find(kGo.begin(), kGo.end(), name) != kGo.end();
}

std::optional<std::chrono::seconds> SecondsOf(const net::Request& request) {
  int seconds = kUsualSeconds;
  for (const auto& [key, value] : net::ParseQuery(request.target)) {
    if (key != "seconds") continue;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, seconds);
    if (read.ec != std::errc() || read.ptr != end || seconds < 1 || seconds > kMostSeconds) return std::nullopt;
  }
  return std::chrono::seconds(seconds);
}

// "0x1+0x2": a line for each, in the form of Go's and gperftools' servers.
net::Response Symbols(const net::Request& request) {
  const std::size_t question = request.target.find('?');
  const std::string asked = request.method == "POST"        ? request.body
                            : question == std::string::npos ? std::string()
                                                            : request.target.substr(question + 1);
  std::string text = "num_symbols: 1\n";  // any number but 0: there are names
  std::size_t count = 0;
  for (const std::string& part : base::Split(asked, '+')) {
    std::string_view digits = base::Trim(part);
    if (digits.empty()) continue;
    if (++count > kMostAddresses) return Text(413, "more addresses than any profile has\n");
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    std::uintptr_t address = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), address, 16);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) {
      return Text(400, "addresses are hexadecimal and joined by +, like 0x1+0x2\n");
    }
    const std::string name = FunctionAt(address);
    if (!name.empty()) text += base::Concat({"0x", digits, " ", name, "\n"});
  }
  return Text(200, std::move(text));
}

net::Response CommandLine() {
  auto words = base::ReadFile("/proc/self/cmdline", kMostArgumentBytes);
  if (!words) return Text(500, words.error().message + "\n");
  if (words->ends_with('\0')) words->pop_back();
  return Text(200, *std::move(words));
}

class Routes {
 public:
  Routes(base::Result<TakeProfile> take, const net::Canceller& stopping)
      : take_(std::move(take)), stopping_(stopping) {}

  net::Response Answer(const net::Request& request) {
    const std::string_view name = net::PathOf(request.target).substr(kPprofPath.size());
    if (name == "symbol" && request.method == "POST") return Symbols(request);
    if (request.method != "GET") return WrongMethod(name == "symbol" ? "GET, POST" : "GET");
    if (name.empty()) return Text(200, kIndex);
    if (name == "profile") return Profile(request);
    if (name == "symbol") return Symbols(request);
    if (name == "cmdline") return CommandLine();
    if (!IsOfGoOnly(name)) return Text(404, kIndex);
    return Text(501, base::Concat({"there is no ", name, " here: only Go's runtime has one\n\n", kIndex}));
  }

 private:
  net::Response Profile(const net::Request& request) {
    const auto span = SecondsOf(request);
    if (!span) return Text(400, "seconds is a whole number from 1 to " + std::to_string(kMostSeconds) + "\n");
    if (!take_) return Text(501, take_.error().message + "\n" + take_.error().hint + "\n");
    const std::unique_lock one(one_, std::try_to_lock);
    if (!one) return Text(409, "a profile is being taken already; try again when it has ended\n");
    auto profile = (*take_)(*span, [&] { return stopping_.cancelled() || request.abandoned(); });
    if (!profile) return Text(500, profile.error().message + "\n");
    return {200,
            {{"Content-Type", "application/octet-stream"}, {"Content-Disposition", "attachment; filename=\"profile\""}},
            *std::move(profile),
            {}};
  }

  const base::Result<TakeProfile> take_;
  const net::Canceller& stopping_;
  std::mutex one_;
};

}  // namespace

std::function<net::Response(const net::Request&)> PprofRoutes(base::Result<TakeProfile> take,
                                                              const net::Canceller& stopping) {
  return [routes = std::make_shared<Routes>(std::move(take), stopping)](const net::Request& request) {
    return routes->Answer(request);
  };
}

}  // namespace hami::scheduler
