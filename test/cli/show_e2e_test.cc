// SPDX-License-Identifier: Apache-2.0
//
// hami ps and hami smi: what is shown, and how a watch ends.

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "harness.h"

namespace hami::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Showing : public Machine {
 protected:
  // A guest that holds 500 MiB until the test ends.
  void StartHolder() {
    const Process holder =
        Start({"run", "--mem", "3g", "--name", "holder", "--", HAMI_GUESTS "/guest_steady", "1000", "500", "10"});
    ASSERT_TRUE(Eventually([&] {
      const auto document = Json({"ps", "--output", "json"});
      const auto& shares = document.at("shares").as_array();
      return shares.size() == 1 &&
             shares.at(0).at("devices").at(0).at("used_bytes").to_number<std::uint64_t>() >= 500 << 20;
    })) << Wait(holder).err;
  }
};

TEST_F(Showing, GivenRunningShare_WhenPs_ThenShareAndProcess) {
  StartHolder();
  const Outcome table = Hami({"ps"});
  EXPECT_EQ(table.exit_status(), 0);
  EXPECT_THAT(table.out, ContainsRegex("holder +0 +3 GiB +[0-9.]+ MiB .* running "));
  EXPECT_THAT(table.out, HasSubstr("guest_steady"));
  EXPECT_THAT(table.out, Not(HasSubstr("\x1b["))) << "no colours in a pipe";
  const auto share = Json({"ps", "-o", "json"}).at("shares").at(0);
  EXPECT_EQ(share.at("processes").as_array().size(), 1u);
  EXPECT_EQ(share.at("devices").at(0).at("limit_bytes").to_number<std::uint64_t>(), 3ULL << 30);
}

TEST_F(Showing, GivenRunningShare_WhenSmi_ThenGpusWithTheShareInside) {
  StartHolder();
  const Outcome table = Hami({"smi"});
  EXPECT_EQ(table.exit_status(), 0);
  EXPECT_THAT(table.out, ContainsRegex("GPU 0  .*H100"));
  EXPECT_THAT(table.out, HasSubstr("GPU 1  "));
  EXPECT_THAT(table.out, ContainsRegex("  holder +[#.]+ .* 3 GiB "));
  const auto gpus = Json({"smi", "-o", "json"}).at("gpus").as_array();
  EXPECT_EQ(gpus.at(0).at("outside_bytes").to_number<std::uint64_t>(), 0u) << "the guest belongs to a share";
}

TEST_F(Showing, GivenNoRoomForTheAnswer_WhenAsked_ThenTheStatusTells) {
  const std::string program = HAMI_PROGRAM;
  for (const std::string question :
       {"--help", "--version", "ps", "smi", "smi -o json", "run --dry-run --mem 1g -- true"}) {
    const Outcome outcome = Hami({"sim", "--", "sh", "-c", program + " " + question + " >/dev/full"});
    EXPECT_NE(outcome.exit_status(), 0) << question;
    EXPECT_THAT(outcome.err, HasSubstr("can not write")) << question;
  }
}

TEST_F(Showing, GivenWatch_WhenInterrupted_ThenFramesAndStatusZero) {
  for (const int number : {SIGINT, SIGTERM}) {
    const Process watch = Start({"ps", "--watch", "--interval", "0.1", "--output", "json"});
    ASSERT_TRUE(Eventually([&] {
      const std::string output = Output(watch);
      return std::count(output.begin(), output.end(), '\n') >= 3;
    }));
    ASSERT_EQ(::kill(watch.pid, number), 0);
    const Outcome outcome = Wait(watch);
    EXPECT_EQ(outcome.exit_status(), 0);
    EXPECT_TRUE(base::ParseJson(outcome.out.substr(0, outcome.out.find('\n')))) << "one document per line";
  }
}

// hami ps --watch | head -1
TEST_F(Showing, WatchWhoseReaderLeaves_ThenItEndsQuietly) {
  for (const char* output : {"table", "json"}) {
    const std::string line = std::string(HAMI_PROGRAM) + " ps --watch --interval 0.1 --output " + output +
                             "; echo $? > " + folder_ + "/status";
    const Outcome outcome = Hami({"sim", "--", "sh", "-c", "(" + line + ") | head -1"});
    EXPECT_THAT(outcome.err, IsEmpty()) << output;
    ASSERT_TRUE(Eventually([&] { return base::ReadFile(folder_ + "/status", 10).value_or("") == "0\n"; })) << output;
    ::unlink((folder_ + "/status").c_str());
  }
}

}  // namespace
}  // namespace hami::e2e
