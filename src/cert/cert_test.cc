// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cert/command.h"
#include "kube/base64.h"
#include "kube/testing/fake_apiserver.h"
#include "kube/timestamp.h"
#include "net/client.h"
#include "net/server.h"

namespace hami::cert {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
namespace json = base::json;

constexpr auto kDay = std::chrono::hours(24);
constexpr kube::Resource kSecrets{"v1", "secrets", "Secret"};
constexpr kube::Resource kWebhooks{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations",
                                   "MutatingWebhookConfiguration", false};

WallTime Now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

Options Usual() {
  Options options;
  options.place = {"gpu", "tls", "hook"};
  options.service = "scheduler";
  options.times = {std::chrono::seconds(5), std::chrono::seconds(0)};
  return options;
}

Issued Made(WallTime now = Now(), int days = 365) { return *Issue(Usual().wanted().names, now, days * kDay); }

std::string JudgeError(const Issued& issued, const std::string& authorities, const std::string& name, WallTime now) {
  const auto end = Judge({issued.certificate, issued.key}, authorities, {name}, now);
  return end ? "" : end.error().message;
}

TEST(Certificate, WhatIsIssuedIsGoodForItsNamesUntilItsEnd) {
  const WallTime now = Now();
  const Issued one = *Issue({"a.b.svc", "10.0.0.1"}, now, 10 * kDay);
  EXPECT_EQ(JudgeError(one, one.authority, "a.b.svc", now), "");
  EXPECT_EQ(JudgeError(one, one.authority, "10.0.0.1", now), "");
  EXPECT_EQ(JudgeError(one, one.authority, "a.b.svc", now + 10 * kDay - std::chrono::hours(1)), "");
  EXPECT_NE(JudgeError(one, one.authority, "a.b.svc", now + 10 * kDay + std::chrono::hours(1)), "");
  EXPECT_THAT(JudgeError(one, one.authority, "c.b.svc", now), HasSubstr("not for c.b.svc"));
  EXPECT_THAT(JudgeError(one, one.authority, "10.0.0.2", now), HasSubstr("not for 10.0.0.2"));
}

TEST(Certificate, AnotherKeyAnotherAuthorityOrNoPemIsRefused) {
  const Issued one = Made();
  const Issued two = Made();
  EXPECT_THAT(JudgeError(one, two.authority, "scheduler.gpu.svc", Now()), HasSubstr("no authority vouches"));
  EXPECT_THAT(JudgeError({one.authority, one.certificate, two.key}, one.authority, "scheduler.gpu.svc", Now()),
              HasSubstr("its key"));
  EXPECT_THAT(JudgeError({"", "rubbish", one.key}, one.authority, "scheduler.gpu.svc", Now()), HasSubstr("not PEM"));
  EXPECT_THAT(JudgeError({"", "", ""}, one.authority, "scheduler.gpu.svc", Now()), HasSubstr("none"));
}

TEST(Certificate, NamesThatWouldBeReadAsMoreThanANameAreRefused) {
  for (const char* name : {"", "a,IP:1.2.3.4", "a\nb", "*.svc", "a b"})
    EXPECT_FALSE(Issue({name}, Now(), kDay)) << name;
  EXPECT_FALSE(Issue({}, Now(), kDay));
}

TEST(Certificate, OneThatIsToHaveNoEndIsGood) {
  using namespace std::chrono;
  const WallTime now = Now(), end = sys_days(year(9999) / 12 / 31) + hours(23);
  const Issued one = *Issue(Usual().wanted().names, now, duration_cast<hours>(end - now));
  const auto kept = Keep({{one.certificate, one.key}, one.authority}, Usual().wanted(), now);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(kube::FormatTime(*kept).substr(0, 10), "9999-12-31");
}

TEST(Plan, ACertificateIsKeptUntilItsEndComesNear) {
  const WallTime now = Now();
  const Issued one = Made(now, 100);
  Wanted wanted = Usual().wanted();
  wanted.renew_before = 30 * kDay;
  const Found found{{one.certificate, one.key}, one.authority};
  EXPECT_TRUE(Keep(found, wanted, now));
  EXPECT_TRUE(Keep(found, wanted, now + 69 * kDay));
  EXPECT_FALSE(Keep(found, wanted, now + 71 * kDay));
  wanted.names.emplace_back("10.0.0.1");
  EXPECT_FALSE(Keep(found, wanted, now));
  EXPECT_FALSE(Keep({}, wanted, now));
}

TEST(Plan, ABundleKeepsTheAuthoritiesThatMayStillServe) {
  const WallTime now = Now();
  const std::string a = Made().authority, b = Made().authority, c = Made().authority, d = Made().authority;
  EXPECT_EQ(NextBundle("", a, now), a);
  EXPECT_EQ(NextBundle(a, a, now), std::nullopt);
  EXPECT_EQ(NextBundle(a, b, now), b + a);
  EXPECT_EQ(NextBundle("\n", a, now), a) << "what charts write for want of a bundle";
  EXPECT_THAT(ReadAuthorities(*NextBundle(c + b + a, d, now), now), SizeIs(3));
  EXPECT_EQ(NextBundle(Made(now - 400 * kDay, 365).authority, a, now), a) << "one that is over goes";
}

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    server_.Put(kSecrets, {{"metadata", {{"name", "tls"}, {"namespace", "gpu"}}}, {"type", "Opaque"}});
    PutWebhook();
  }
  void PutWebhook(int hooks = 1) {
    json::array list;
    for (int i = 0; i < hooks; ++i)
      list.push_back({{"name", "vgpu.hami.io"}, {"clientConfig", {{"url", "https://x"}}}});
    server_.Put(kWebhooks, {{"metadata", {{"name", "hook"}}}, {"webhooks", list}});
  }
  base::Result<Outcome> Ensure(const Options& options = Usual()) {
    Keeper keeper(*client_, options.place, options.times, stop_);
    return keeper.Ensure(options.wanted());
  }
  std::string CheckError(const Options& options = Usual()) {
    Keeper keeper(*client_, options.place, options.times, stop_);
    const auto end = keeper.Check(options.wanted());
    return end ? "" : end.error().message;
  }
  std::string InSecret(const std::string& key) {
    return *kube::Base64Decode(server_.Get(kSecrets, "gpu", "tls")->at("data").at(key).as_string());
  }
  std::string Bundle(std::size_t hook = 0) {
    const auto object = server_.Get(kWebhooks, "", "hook");
    return *kube::Base64Decode(object->at("webhooks").as_array()[hook].at("clientConfig").at("caBundle").as_string());
  }

  kube::FakeApiServer server_;
  std::unique_ptr<kube::Client> client_ = *kube::Client::Make(server_.config(), {});
  net::Canceller stop_;
};

TEST_F(KeeperTest, AnEmptySecretGetsACertificateThatTheWebhookTrusts) {
  EXPECT_THAT(CheckError(), HasSubstr("there is none"));
  const auto outcome = Ensure();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_TRUE(outcome->issued && outcome->bundled);
  EXPECT_EQ(CheckError(), "");
  EXPECT_EQ(Bundle(), InSecret("ca.crt"));
  EXPECT_TRUE(Judge({InSecret("tls.crt"), InSecret("tls.key")}, Bundle(), {"scheduler.gpu.svc"}, Now()));
}

TEST_F(KeeperTest, ASecondRunWritesNothing) {
  ASSERT_TRUE(Ensure());
  const auto writes = server_.Asked("PATCH");
  const auto outcome = Ensure();
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->issued || outcome->bundled);
  EXPECT_EQ(server_.Asked("PATCH"), writes);
}

TEST_F(KeeperTest, ItAsksForGetAndPatchAlone) {
  ASSERT_TRUE(Ensure());
  EXPECT_EQ(server_.Permissions(),
            (std::set<std::string>{"get secrets", "patch secrets", "get mutatingwebhookconfigurations",
                                   "patch mutatingwebhookconfigurations"}));
}

TEST_F(KeeperTest, ARenewalKeepsTheOldAuthorityInTheBundle) {
  ASSERT_TRUE(Ensure());
  const std::string before = InSecret("ca.crt");
  Options shorter = Usual();
  shorter.days = 800;
  shorter.renew_before_days = 700;
  const auto outcome = Ensure(shorter);
  ASSERT_TRUE(outcome && outcome->issued);
  EXPECT_THAT(outcome->reason, HasSubstr("days"));
  EXPECT_NE(InSecret("ca.crt"), before);
  EXPECT_EQ(Bundle(), InSecret("ca.crt") + before);
}

TEST_F(KeeperTest, TheBundleIsWrittenBeforeTheSecret) {
  ASSERT_TRUE(Ensure());
  const std::string before = InSecret("tls.crt");
  Options shorter = Usual();
  shorter.days = 800;
  shorter.renew_before_days = 700;
  shorter.times.wait = std::chrono::seconds(0);
  server_.Add({.method = "PATCH", .path_part = "/secrets/", .status = 403});
  ASSERT_FALSE(Ensure(shorter));
  EXPECT_EQ(InSecret("tls.crt"), before);
  EXPECT_THAT(ReadAuthorities(Bundle(), Now()), SizeIs(2)) << "the new one waits for its certificate";
  EXPECT_EQ(CheckError(), "") << "and what is served is trusted";
}

TEST_F(KeeperTest, AWebhookThatComesLaterIsWaitedFor) {
  ASSERT_TRUE(server_.Remove(kWebhooks, "", "hook"));
  Options options = Usual();
  options.times.wait = std::chrono::seconds(0);
  const auto without = Ensure(options);
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().hint, HasSubstr("gpu/tls"));
  const std::string served = InSecret("tls.crt");
  PutWebhook();
  const auto with = Ensure();
  ASSERT_TRUE(with);
  EXPECT_TRUE(with->bundled);
  EXPECT_EQ(InSecret("tls.crt"), served);
  EXPECT_EQ(CheckError(), "");
}

TEST_F(KeeperTest, EveryHookOfTheConfigurationGetsTheBundle) {
  PutWebhook(2);
  ASSERT_TRUE(Ensure());
  EXPECT_EQ(Bundle(1), InSecret("ca.crt"));
}

TEST_F(KeeperTest, WhatAnotherOneChangedMeanwhileIsReadAgain) {
  server_.Add({.method = "PATCH", .path_part = "/secrets/", .status = 409});
  const auto outcome = Ensure();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(CheckError(), "");
}

TEST_F(KeeperTest, ABundleThatWasLostIsWrittenAnew) {
  ASSERT_TRUE(Ensure());
  PutWebhook();
  EXPECT_THAT(CheckError(), HasSubstr("no authority vouches"));
  const auto outcome = Ensure();
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->bundled && !outcome->issued);
  EXPECT_EQ(CheckError(), "");
}

std::string Refused(const std::vector<std::string>& arguments) {
  const auto parsed = ParseOptions(arguments);
  const auto* message = std::get_if<Message>(&parsed);
  return message != nullptr && message->exit_status == 2 ? message->text : "";
}

TEST(CertOptions, MistakesNameTheFlagAndHelpTeaches) {
  const std::vector<std::string> good = {"-n", "gpu", "--service=s", "--secret=t", "--webhook=w"};
  EXPECT_TRUE(std::holds_alternative<Options>(ParseOptions(good)));
  EXPECT_THAT(Refused({}), HasSubstr("--namespace is missing"));
  EXPECT_THAT(Refused({"-n", "gpu", "--service=s", "--secret=t"}), HasSubstr("--webhook is missing"));
  auto never = good;
  never.insert(never.end(), {"--days=30", "--renew-before=30"});
  EXPECT_THAT(Refused(never), HasSubstr("--renew-before 30 is not less than --days 30"));
  EXPECT_THAT(Refused({"--sercive=x"}), HasSubstr("--service"));
  const auto help = ParseOptions({"--help"});
  ASSERT_TRUE(std::holds_alternative<Message>(help));
  EXPECT_THAT(std::get<Message>(help).text, HasSubstr("--renew-before"));
}

}  // namespace
}  // namespace hami::cert
