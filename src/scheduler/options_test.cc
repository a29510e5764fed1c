// SPDX-License-Identifier: Apache-2.0

#include "scheduler/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace hami::scheduler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Pair;

using Variables = std::map<std::string, std::string>;

std::variant<Options, Message> Parse(std::vector<std::string> words, const Variables& variables = {}) {
  return ParseOptions(words, [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Options Good(std::vector<std::string> words, const Variables& variables = {}) {
  words.emplace_back("--device-config-file=/device-config.yaml");
  auto parsed = Parse(std::move(words), variables);
  if (const Message* message = std::get_if<Message>(&parsed)) ADD_FAILURE() << message->text;
  return std::holds_alternative<Options>(parsed) ? std::get<Options>(parsed) : Options();
}

std::string Refused(const std::vector<std::string>& words, const Variables& variables = {}) {
  const auto parsed = Parse(words, variables);
  const Message* message = std::get_if<Message>(&parsed);
  if (message == nullptr) return "(accepted)";
  EXPECT_EQ(message->exit_status, kUsage);
  return message->text;
}

TEST(SchedulerOptions, DefaultsAreThoseOfHami) {
  const Options options = Good({});
  EXPECT_EQ(options.http.host, "127.0.0.1");
  EXPECT_EQ(options.http.port, 8080);
  EXPECT_EQ(options.metrics.host, "");
  EXPECT_EQ(options.metrics.port, 9395);
  EXPECT_EQ(options.node_policy, "binpack");
  EXPECT_EQ(options.device_policy, "spread");
  EXPECT_TRUE(options.overwrite_default_scheduler);
  EXPECT_EQ(options.lock_timeout, std::chrono::minutes(5));
  EXPECT_EQ(options.lock_retry_timeout, std::chrono::seconds(28));
  EXPECT_FALSE(options.leader_elect);
  EXPECT_FALSE(options.legacy_metrics);
  EXPECT_THAT(options.warnings, IsEmpty());
}

TEST(SchedulerOptions, KubeSchedulerChoosesWhereItIsTold) {
  EXPECT_FALSE(Good({}).prioritize);
  EXPECT_FALSE(Good({"--extender-mode=filter"}).prioritize);
  EXPECT_TRUE(Good({"--extender-mode=prioritize"}).prioritize);
  EXPECT_THAT(Refused({"--extender-mode=both"}), HasSubstr("'both' is not filter or prioritize"));
}

TEST(SchedulerOptions, NobodyGoesForOthersUnlessItIsWanted) {
  EXPECT_FALSE(Good({}).preemption);
  EXPECT_TRUE(Good({"--preemption"}).preemption);
  EXPECT_EQ(Good({}).workload_file, "");
  EXPECT_EQ(Good({"--workload-file=/w.csv"}).workload_file, "/w.csv");
}

TEST(SchedulerOptions, WritersAreTheServiceAccountsOfTheChartUnlessNamed) {
  EXPECT_THAT(Good({}).trusted_writers, ElementsAre("system:serviceaccount:kube-system:hami-*"));
  EXPECT_THAT(Good({}, {{"POD_NAMESPACE", "gpu"}}).trusted_writers, ElementsAre("system:serviceaccount:gpu:hami-*"));
  EXPECT_THAT(
      Good({"--trusted-writers=a, system:b:*", "--trusted-writers=c"}, {{"POD_NAMESPACE", "gpu"}}).trusted_writers,
      ElementsAre("a", "system:b:*", "c"));
  for (const char* bad : {"a,,b", "*", "a*b", " "}) {
    EXPECT_THAT(Refused({std::string("--trusted-writers=") + bad}), HasSubstr("no user's name")) << bad;
  }
}

TEST(SchedulerOptions, KeysOfGrantsAreAFileOfTheFlagOrTheEnvironment) {
  EXPECT_EQ(Good({}).grant_key_file, "");
  EXPECT_TRUE(Good({}).trust_unsealed);
  EXPECT_EQ(Good({}, {{"HAMI_GRANT_KEY_FILE", "/keys"}}).grant_key_file, "/keys");
  EXPECT_EQ(Good({"--grant-key-file=/other"}, {{"HAMI_GRANT_KEY_FILE", "/keys"}}).grant_key_file, "/other");
  EXPECT_FALSE(Good({"--grant-key-file=/keys", "--trust-unsealed=false"}).trust_unsealed);
  EXPECT_THAT(Refused({"--device-config-file=/c", "--trust-unsealed=false"}), HasSubstr("--grant-key-file"));
}

TEST(SchedulerOptions, TheCommandLineOfTheChartIsUnderstood) {
  const Options options = Good({"--scheduler-name=hami-scheduler",
                                "--kube-qps=100",
                                "--kube-burst=200",
                                "--http_bind=0.0.0.0:443",
                                "--cert_file=/tls/tls.crt",
                                "--key_file=/tls/tls.key",
                                "--metrics-bind-address=:9395",
                                "--node-scheduler-policy=spread",
                                "--gpu-scheduler-policy=numa,binpack",
                                "--force-overwrite-default-scheduler=false",
                                "--node-label-selector=gpu=on,zone=a",
                                "--leader-elect=true",
                                "--leader-elect-resource-name=hami-scheduler",
                                "--leader-elect-resource-namespace=kube-system",
                                "--legacy-metrics=true",
                                "-v=4",
                                "--logging-format=json",
                                "--kube-timeout",
                                "20",
                                "--node-lock-timeout=2m",
                                "--node-lock-retry-timeout=0"});
  EXPECT_EQ(options.scheduler_name, "hami-scheduler");
  EXPECT_EQ(options.kube_qps, 100);
  EXPECT_EQ(options.kube_burst, 200);
  EXPECT_EQ(options.kube_timeout, std::chrono::seconds(20));
  EXPECT_EQ(options.http.port, 443);
  EXPECT_EQ(options.cert_file, "/tls/tls.crt");
  EXPECT_EQ(options.key_file, "/tls/tls.key");
  EXPECT_EQ(options.node_policy, "spread");
  EXPECT_EQ(options.device_policy, "numa,binpack");
  EXPECT_FALSE(options.overwrite_default_scheduler);
  EXPECT_THAT(options.node_selector, ElementsAre(Pair("gpu", "on"), Pair("zone", "a")));
  EXPECT_TRUE(options.leader_elect);
  EXPECT_EQ(options.lease_name, "hami-scheduler");
  EXPECT_EQ(options.lease_namespace, "kube-system");
  EXPECT_TRUE(options.legacy_metrics);
  EXPECT_EQ(options.verbosity, 4);
  EXPECT_EQ(options.log_style, base::LogStyle::kJson);
  EXPECT_EQ(options.lock_timeout, std::chrono::minutes(2));
  EXPECT_EQ(options.lock_retry_timeout, std::chrono::milliseconds(0));
  EXPECT_THAT(options.warnings, IsEmpty());
}

TEST(SchedulerOptions, FlagsThatDecideNothingAreAcceptedWithAWarningEach) {
  const Options options =
      Good({"--default-mem=5000", "--cambricon-mlu-name", "cambricon.com/vmlu", "--sgpu-topology-aware", "--debug",
            "--logtostderr=true", "--stderrthreshold", "ERROR"});
  EXPECT_THAT(options.warnings, ElementsAre(HasSubstr("--default-mem"), HasSubstr("--cambricon-mlu-name"),
                                            HasSubstr("--sgpu-topology-aware"), HasSubstr("--debug")));
}

TEST(SchedulerOptions, MultiChipVendorsAreOffUnlessNamed) {
  EXPECT_FALSE(Good({}).vendors.ascend || Good({}).vendors.iluvatar);
  const Options options = Good({"--enable-ascend=true", "--enable-iluvatar"});
  EXPECT_TRUE(options.vendors.ascend && options.vendors.iluvatar);
  EXPECT_THAT(options.warnings, IsEmpty());
}

TEST(SchedulerOptions, ProfilesAreTakenOnlyWhenAsked) {
  EXPECT_FALSE(Good({}).profiling);
  EXPECT_TRUE(Good({"--profiling"}).profiling);
  EXPECT_THAT(Good({"--profiling"}).warnings, IsEmpty());
}

// Manifests that were written for HAMi start this program: no flag of its scheduler is unknown.
TEST(SchedulerOptions, EveryFlagOfHamisSchedulerIsAccepted) {
  const char* const with_value[] = {"--http_bind=:80",
                                    "--cert_file=a",
                                    "--key_file=b",
                                    "--scheduler-name=s",
                                    "--node-scheduler-policy=spread",
                                    "--gpu-scheduler-policy=binpack",
                                    "--metrics-bind-address=:1",
                                    "--node-label-selector=a=b",
                                    "--kube-qps=5",
                                    "--kube-burst=10",
                                    "--kube-timeout=0",
                                    "--profiling",
                                    "--node-lock-timeout=5m",
                                    "--node-lock-retry-timeout=28s",
                                    "--force-overwrite-default-scheduler",
                                    "--leader-elect=false",
                                    "--leader-elect-resource-name=a",
                                    "--leader-elect-resource-namespace=b",
                                    "--legacy-metrics",
                                    "--debug",
                                    "--enable-ascend",
                                    "--enable-iluvatar",
                                    "--v=2",
                                    "--logtostderr",
                                    "--alsologtostderr",
                                    "--vmodule=a=1",
                                    "--log_dir=a",
                                    "--log_file=a",
                                    "--log_file_max_size=1",
                                    "--log_backtrace_at=a:1",
                                    "--stderrthreshold=2",
                                    "--add_dir_header",
                                    "--one_output",
                                    "--skip_headers",
                                    "--skip_log_headers",
                                    "--default-mem=0",
                                    "--default-cores=0",
                                    "--default-gpu=1"};
  for (const char* word : with_value) {
    const Options options = Good({"--cert_file=a", "--key_file=b", word});
    EXPECT_EQ(options.cert_file, "a") << word;
  }
  for (const char* name : {"cambricon-mlu-name",
                           "cambricon-mlu-memory",
                           "cambricon-mlu-cores",
                           "dcu-name",
                           "dcu-memory",
                           "dcu-cores",
                           "mthreads-name",
                           "mthreads-memory",
                           "mthreads-cores",
                           "metax-name",
                           "metax-vcount",
                           "metax-vcore",
                           "metax-vmemory",
                           "sgpu-topology-aware",
                           "kunlun-name",
                           "kunlun-vcount",
                           "kunlun-vmemory",
                           "enflame-gcu-resource-name",
                           "enflame-drs-gcu-resource-name",
                           "enflame-vgcu-resource-name",
                           "enflame-vgcu-legacy-resource-name",
                           "enflame-vgcu-percentage-resource-name",
                           "enflame-gcu-memory-resource-name",
                           "enflame-gcu-core-resource-name"}) {
    EXPECT_THAT(Good({"--" + std::string(name) + "=true"}).warnings, ElementsAre(HasSubstr(name)));
  }
}

TEST(SchedulerOptions, TheLockTimeoutIsTheFlagThenTheEnvironmentThenTheDefault) {
  const Variables variables{{"HAMI_NODELOCK_EXPIRE", "90s"}};
  EXPECT_EQ(Good({}, variables).lock_timeout, std::chrono::seconds(90));
  EXPECT_EQ(Good({"--node-lock-timeout=5m"}, variables).lock_timeout, std::chrono::minutes(5));
  EXPECT_EQ(Good({}, {{"HAMI_NODELOCK_EXPIRE", ""}}).lock_timeout, std::chrono::minutes(5));
  EXPECT_THAT(Refused({"--device-config-file=x"}, {{"HAMI_NODELOCK_EXPIRE", "soon"}}),
              HasSubstr("HAMI_NODELOCK_EXPIRE=soon: not a duration"));
}

TEST(SchedulerOptions, ThePodWeRunInComesFromTheEnvironment) {
  const Options options = Good({}, {{"POD_NAME", "hami-0"}, {"POD_NAMESPACE", "kube-system"}});
  EXPECT_EQ(options.pod_name, "hami-0");
  EXPECT_EQ(options.pod_namespace, "kube-system");
}

TEST(SchedulerOptions, WhatCanNotWorkIsRefusedWithItsRemedy) {
  EXPECT_THAT(Refused({}), HasSubstr("mount the ConfigMap"));
  EXPECT_THAT(Refused({"--device-config-file="}), HasSubstr("--device-config-file is missing"));
  const std::string file = "--device-config-file=x";
  EXPECT_THAT(Refused({file, "--cert_file=a"}), HasSubstr("--cert_file without --key_file"));
  EXPECT_THAT(Refused({file, "--key_file=a"}), HasSubstr("--key_file without --cert_file"));
  EXPECT_THAT(Refused({file, "--leader-elect"}), HasSubstr("--leader-elect-resource-name"));
  EXPECT_THAT(Refused({file, "--http_bind=80"}), HasSubstr("--http_bind=80: no port"));
  EXPECT_THAT(Refused({file, "--node-label-selector=gpu"}), HasSubstr("'gpu' is not KEY=VALUE"));
  EXPECT_THAT(Refused({file, "--node-label-selector=gpu!=on"}), HasSubstr("'gpu!=on' is not KEY=VALUE"));
  EXPECT_THAT(Refused({file, "--node-label-selector=a=b,gpu==on"}), HasSubstr("'gpu==on' is not KEY=VALUE"));
  EXPECT_THAT(Refused({file, "--node-lock-timeout=5"}), HasSubstr("28s, 5m or 1h30m"));
  EXPECT_THAT(Refused({file, "--kube-timeout=-1"}), HasSubstr("from 0 to 3600"));
  EXPECT_THAT(Refused({file, "--kube-qps=nan"}), HasSubstr("not a number"));
  EXPECT_THAT(Refused({file, "--nod-scheduler-policy=x"}), HasSubstr("did you mean --node-scheduler-policy?"));
  EXPECT_THAT(Refused({file, "serve"}), HasSubstr("'serve' is no command"));
}

// As in HAMi a word that is no policy means the default; it is hardly what was meant.
TEST(SchedulerOptions, WhatIsHardlyMeantStartsWithAWarning) {
  EXPECT_THAT(
      Good({"--node-scheduler-policy=binpak"}).warnings,
      ElementsAre("--node-scheduler-policy=binpak is neither binpack, spread nor fragmentation, and means binpack"));
  EXPECT_THAT(Good({"--gpu-scheduler-policy=topology"}).warnings,
              ElementsAre("--gpu-scheduler-policy: 'topology' is no policy, and means spread"));
  EXPECT_THAT(Good({"--gpu-scheduler-policy=numa, binpac"}).warnings,
              ElementsAre("--gpu-scheduler-policy: ' binpac' is no policy, and is left out"));
  EXPECT_THAT(Good({"--node-lock-timeout=0"}).warnings, ElementsAre(HasSubstr("makes every lock void")));
  for (const char* policy : {"binpack", "spread", "topology-aware", "mutex", "numa", "numa,binpack"}) {
    EXPECT_THAT(Good({"--gpu-scheduler-policy", policy}).warnings, IsEmpty()) << policy;
  }
}

TEST(SchedulerOptions, VersionAndHelpEndWellWithoutAnyOtherFlag) {
  const auto version = Parse({"version"});
  EXPECT_EQ(std::get<Message>(version).exit_status, 0);
  EXPECT_EQ(std::get<Message>(version).text, VersionLine() + "\n");
  EXPECT_THAT(VersionLine(), MatchesRegex("hami-scheduler [0-9.]+ \\([^ ]+, [^ ]+\\)"));
  EXPECT_EQ(std::get<Message>(Parse({"--version", "--leader-elect"})).text, VersionLine() + "\n");
  EXPECT_THAT(Refused({"version", "x"}), HasSubstr("'x' is one word too many"));
  EXPECT_THAT(Refused({"x", "version"}), HasSubstr("'x' is no command"));
  const auto help = Parse({"--help"});
  EXPECT_EQ(std::get<Message>(help).exit_status, 0);
  for (const char* word : {"--http_bind", "--device-config-file", "HAMI_NODELOCK_EXPIRE", "Exit status"}) {
    EXPECT_THAT(std::get<Message>(help).text, HasSubstr(word));
  }
}

TEST(PageFlags, OnTheLoopbackNobodyIsAskedAndBeyondItEveryReader) {
  const Options standard = Good({});
  ASSERT_TRUE(standard.page);
  EXPECT_EQ(standard.page->host, "127.0.0.1");
  EXPECT_FALSE(standard.page_given);
  EXPECT_FALSE(standard.page_tokens);
  const Options open = Good({"--page-bind-address=:9396"});
  EXPECT_TRUE(open.page_given);
  EXPECT_TRUE(open.page_tokens);
  EXPECT_THAT(open.warnings, testing::Contains(HasSubstr("plain text")));
  EXPECT_TRUE(Good({"--page-auth=token"}).page_tokens);
  const Options none = Good({"--page-bind-address=0.0.0.0:1", "--page-auth=none"});
  EXPECT_FALSE(none.page_tokens);
  EXPECT_THAT(none.warnings, testing::Contains(HasSubstr("who runs what")));
  EXPECT_FALSE(Good({"--page-bind-address="}).page);
  EXPECT_FALSE(standard.page_monitors);
  const Options asking = Good({"--page-monitors=kube-system/hami-monitor", "--page-sample-interval=30s"});
  ASSERT_TRUE(asking.page_monitors);
  EXPECT_EQ(asking.page_monitors->ns, "kube-system");
  EXPECT_EQ(asking.page_monitors->name, "hami-monitor");
  EXPECT_EQ(asking.page_sample_interval, std::chrono::seconds(30));
  for (const char* bad : {"--page-monitors=hami-monitor", "--page-monitors=a/b/c", "--page-monitors=/b",
                          "--page-sample-interval=1ms", "--page-sample-interval=1h"}) {
    EXPECT_THAT(Refused({bad}), HasSubstr("--page-")) << bad;
  }
}

}  // namespace
}  // namespace hami::scheduler
