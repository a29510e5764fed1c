// SPDX-License-Identifier: Apache-2.0

#include "plugin/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/strings.h"

namespace hami::plugin {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

base::Result<Start> Read(const Words& words, const Variables& variables = {}, const std::string& file = {}) {
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found != variables.end()) return found->second;
    return name == "NODE_NAME" ? std::optional<std::string>("node-1") : std::nullopt;
  };
  const auto read = [&](const std::string& path) -> base::Result<std::string> {
    if (path != "config.yaml") return base::Fail(path + ": no such file");
    return file;
  };
  return ReadOptions(words, environment, read);
}

Options Given(const Words& words, const Variables& variables = {}, const std::string& file = {}) {
  const auto start = Read(words, variables, file);
  EXPECT_TRUE(start) << (start ? "" : start.error().message);
  return start ? start->options : Options{};
}

std::string ErrorOf(const Words& words, const Variables& variables = {}, const std::string& file = {}) {
  const auto start = Read(words, variables, file);
  return start ? "" : start.error().message;
}

TEST(OptionsTest, GivenNothingButTheNode_WhenRead_ThenTheDefaultsAreHamis) {
  const Options options = Given({});
  EXPECT_EQ(options.node_name, "node-1");
  EXPECT_EQ(options.kubelet_socket, "/var/lib/kubelet/device-plugins/kubelet.sock");
  EXPECT_TRUE(options.fail_on_init_error);
  EXPECT_THAT(options.list_strategies, ElementsAre(ListStrategy::kEnvvar));
  EXPECT_EQ(options.id_strategy, IdStrategy::kUuid);
  EXPECT_EQ(options.cdi_annotation_prefix, "cdi.k8s.io/");
  EXPECT_EQ(options.cdi_hook_path, "/usr/bin/nvidia-ctk");
  EXPECT_EQ(options.driver_root_in_container, "/driver-root");
  EXPECT_EQ(options.dev_root, "/");
  EXPECT_FALSE(options.topology_score);
}

TEST(OptionsTest, GivenTheChartsCommandLine_WhenRead_ThenItIsUnderstood) {
  const Options options = Given({"--config-file=config.yaml", "--mig-strategy=none", "--disable-core-limit=false",
                                 "-v=4", "--logging-format=json"},
                                {{"HOOK_PATH", "/usr/local"},
                                 {"DEVICE_LIST_STRATEGY", "envvar"},
                                 {"PASS_DEVICE_SPECS", "true"},
                                 {"NVIDIA_DRIVER_ROOT", "/run/nvidia/driver"},
                                 {"ENABLE_TOPOLOGY_SCORE", "true"},
                                 {"NVIDIA_MIG_MONITOR_DEVICES", "all"}},
                                "nvidia: {deviceSplitCount: 10}\n");
  EXPECT_EQ(options.verbosity, 4);
  EXPECT_EQ(options.log_style, base::LogStyle::kJson);
  EXPECT_TRUE(options.pass_device_specs);
  EXPECT_TRUE(options.topology_score);
  EXPECT_EQ(options.driver_root, "/run/nvidia/driver");
  EXPECT_EQ(options.dev_root, "/run/nvidia/driver");
  EXPECT_EQ(options.disable_core_limit, false);
  EXPECT_EQ(Given({"--mig-strategy=", "--disable-core-limit="}).mig_strategy, MigStrategy::kNone);
}

TEST(OptionsTest, WhenAllThreeSourcesDiffer_ThenFlagsBeatEnvironmentBeatsFile) {
  const std::string file =
      "flags:\n  failOnInitError: false\n  nvidiaDriverRoot: /file\n  gdsEnabled: true\n"
      "  plugin:\n    deviceIDStrategy: index\n    deviceListStrategy: cdi-cri\n";
  const Words use = {"--config-file", "config.yaml"};
  EXPECT_EQ(Given(use, {}, file).driver_root, "/file");
  EXPECT_EQ(Given(use, {{"NVIDIA_DRIVER_ROOT", "/env"}}, file).driver_root, "/env");
  EXPECT_EQ(Given({"--config-file=config.yaml", "--nvidia-driver-root=/flag"}, {{"NVIDIA_DRIVER_ROOT", "/env"}}, file)
                .driver_root,
            "/flag");
  const Options options = Given(use, {}, file);
  EXPECT_FALSE(options.fail_on_init_error);
  EXPECT_TRUE(options.gds);
  EXPECT_EQ(options.id_strategy, IdStrategy::kIndex);
  EXPECT_THAT(options.list_strategies, ElementsAre(ListStrategy::kCdiCri));
}

TEST(OptionsTest, GivenLists_ThenHigherSourceReplacesLowerAndRepeatsAddUp) {
  EXPECT_THAT(Given({"--device-list-strategy=envvar,cdi-cri"}).list_strategies,
              ElementsAre(ListStrategy::kEnvvar, ListStrategy::kCdiCri));
  EXPECT_THAT(Given({"--device-list-strategy=volume-mounts", "--device-list-strategy=cdi-annotations"},
                    {{"DEVICE_LIST_STRATEGY", "envvar"}})
                  .list_strategies,
              ElementsAre(ListStrategy::kVolumeMounts, ListStrategy::kCdiAnnotations));
  const std::string file = "flags: {plugin: {deviceListStrategy: [envvar, volume-mounts]}}\n";
  EXPECT_THAT(Given({"--config-file=config.yaml"}, {}, file).list_strategies,
              ElementsAre(ListStrategy::kEnvvar, ListStrategy::kVolumeMounts));
}

// What HAMi 2.10 and NVIDIA's plugin read, by flag and by variable.
struct Spelling {
  const char* flag;
  const char* variable;
  const char* value;
  bool (*set)(const Options& options);
};
const Spelling kSpellings[] = {
    {"kubelet-socket", "KUBELET_SOCKET", "/k", [](const Options& o) { return o.kubelet_socket == "/k"; }},
    {"hook-path", "HOOK_PATH", "/h", [](const Options& o) { return o.hook_path == "/h"; }},
    {"fail-on-init-error", "FAIL_ON_INIT_ERROR", "false", [](const Options& o) { return !o.fail_on_init_error; }},
    {"topology-score", "ENABLE_TOPOLOGY_SCORE", "true", [](const Options& o) { return o.topology_score; }},
    {"disable-health-checks", "DP_DISABLE_HEALTHCHECKS", "48,74",
     [](const Options& o) { return o.disable_health_checks == "48,74"; }},
    {"enable-health-checks", "DP_ENABLE_HEALTHCHECKS", "13",
     [](const Options& o) { return o.enable_health_checks == "13"; }},
    {"device-list-strategy", "DEVICE_LIST_STRATEGY", "cdi-cri",
     [](const Options& o) { return o.list_strategies == std::vector{ListStrategy::kCdiCri}; }},
    {"device-id-strategy", "DEVICE_ID_STRATEGY", "index",
     [](const Options& o) { return o.id_strategy == IdStrategy::kIndex; }},
    {"pass-device-specs", "PASS_DEVICE_SPECS", "true", [](const Options& o) { return o.pass_device_specs; }},
    {"nvidia-driver-root", "NVIDIA_DRIVER_ROOT", "/r",
     [](const Options& o) { return o.driver_root == "/r" && o.dev_root == "/r"; }},
    {"dev-root", "NVIDIA_DEV_ROOT", "/d", [](const Options& o) { return o.driver_root == "/" && o.dev_root == "/d"; }},
    {"driver-root-ctr-path", "DRIVER_ROOT_CTR_PATH", "/c",
     [](const Options& o) { return o.driver_root_in_container == "/c"; }},
    {"cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX", "p/",
     [](const Options& o) { return o.cdi_annotation_prefix == "p/"; }},
    {"nvidia-cdi-hook-path", "NVIDIA_CDI_HOOK_PATH", "/x", [](const Options& o) { return o.cdi_hook_path == "/x"; }},
    {"gdrcopy-enabled", "GDRCOPY_ENABLED", "true", [](const Options& o) { return o.gdrcopy && !o.gds && !o.mofed; }},
    {"gds-enabled", "GDS_ENABLED", "true", [](const Options& o) { return o.gds && !o.gdrcopy && !o.mofed; }},
    {"mofed-enabled", "MOFED_ENABLED", "true", [](const Options& o) { return o.mofed && !o.gdrcopy && !o.gds; }},
    {"imex-channel-ids", "IMEX_CHANNEL_IDS", "0", [](const Options& o) { return o.imex_channels == std::vector{0}; }},
    {"imex-required", "IMEX_REQUIRED", "true", [](const Options& o) { return o.imex_required; }},
    {"device-split-count", "DEVICE_SPLIT_COUNT", "4", [](const Options& o) { return o.split_count == 4; }},
    {"device-memory-scaling", "DEVICE_MEMORY_SCALING", "1.5",
     [](const Options& o) { return o.memory_scaling == 1.5 && !o.core_scaling; }},
    {"device-cores-scaling", "DEVICE_CORES_SCALING", "2",
     [](const Options& o) { return o.core_scaling == 2 && !o.memory_scaling; }},
    {"disable-core-limit", "DISABLE_CORE_LIMIT", "true", [](const Options& o) { return o.disable_core_limit == true; }},
    {"resource-name", "RESOURCE_NAME", "nvidia.com/gpu",
     [](const Options& o) { return o.resource_name == "nvidia.com/gpu"; }},
};

TEST(OptionsTest, GivenEveryHamiFlag_WhenItOrItsVariableIsSet_ThenOptionHasIt) {
  for (const Spelling& one : kSpellings) {
    EXPECT_TRUE(one.set(Given({base::Concat({"--", one.flag, "=", one.value})}))) << one.flag;
    EXPECT_TRUE(one.set(Given({}, {{one.variable, one.value}}))) << one.variable;
    EXPECT_FALSE(one.set(Given({}))) << one.flag << ": by itself";
    EXPECT_THAT(HelpText(), HasSubstr(base::Concat({"--", one.flag})));
    EXPECT_THAT(HelpText(), HasSubstr(one.variable)) << one.flag;
  }
}

TEST(OptionsTest, GivenAliases_WhenUsed_ThenTheyMeanTheSame) {
  EXPECT_EQ(Given({}, {{"NodeName", "old"}, {"NODE_NAME", ""}}).node_name, "old");
  EXPECT_EQ(Given({}, {{"NodeName", "old"}, {"NODE_NAME", "new"}}).node_name, "new");
  EXPECT_EQ(Given({"--nvidia-dev-root=/d"}).dev_root, "/d");
  EXPECT_EQ(Given({"--container-driver-root=/c"}).driver_root_in_container, "/c");
  EXPECT_EQ(Given({"--nvidia-ctk-path=/x"}).cdi_hook_path, "/x");
  EXPECT_EQ(Given({}, {{"NVIDIA_CTK_PATH", "/x"}}).cdi_hook_path, "/x");
}

TEST(OptionsTest, GivenAnEmptyVariable_WhenRead_ThenItIsNotSet) {
  EXPECT_TRUE(Given({}, {{"FAIL_ON_INIT_ERROR", ""}}).fail_on_init_error);
  EXPECT_TRUE(Given({"--kubelet-socket="}).kubelet_socket.empty());
}

TEST(OptionsTest, GivenFlagsThatHamiNeverRead_WhenGiven_ThenTheyCount) {
  const Options options = Given({"--device-split-count=4", "--device-memory-scaling=1.5", "--device-cores-scaling=2",
                                 "--disable-core-limit=true", "--resource-name=nvidia.com/gpu", "--node-name=n2"});
  EXPECT_EQ(options.split_count, 4);
  EXPECT_EQ(options.memory_scaling, 1.5);
  EXPECT_EQ(options.core_scaling, 2);
  EXPECT_EQ(options.disable_core_limit, true);
  EXPECT_EQ(options.resource_name, "nvidia.com/gpu");
  EXPECT_EQ(options.node_name, "n2");
  EXPECT_EQ(Given({}, {{"ALLOCATE_TIMEOUT", "5"}}).allocate_seconds, 5);
  EXPECT_EQ(Given({}).allocate_seconds, 10);
}

TEST(OptionsTest, GivenNothing_WhenRead_ThenCommonAreaIsOnAndCanBeTurnedOff) {
  EXPECT_TRUE(Given({}).common_area);
  EXPECT_EQ(Given({}).mps_control, "nvidia-cuda-mps-control");
  EXPECT_EQ(Given({}, {{"MPS_CONTROL", "/x"}, {"MPS_ROOT", "/y"}}).mps_root, "/y");
  EXPECT_EQ(Given({"--mps-control=/x", "--mps-root=/y"}).mps_control, "/x");
  EXPECT_FALSE(Given({"--common-area=false"}).common_area);
  EXPECT_FALSE(Given({}, {{"COMMON_AREA", "false"}}).common_area);
}

TEST(OptionsTest, SchedulersAndKeys_AreRead) {
  EXPECT_THAT(Given({}).scheduler_names, ElementsAre("hami-scheduler"));
  EXPECT_THAT(Given({"--scheduler-name=a,b-*"}).scheduler_names, ElementsAre("a", "b-*"));
  EXPECT_THAT(Given({}, {{"SCHEDULER_NAME", "c"}}).scheduler_names, ElementsAre("c"));
  EXPECT_EQ(Given({}, {{"HAMI_GRANT_KEY_FILE", "/keys"}}).grant_key_file, "/keys");
}

TEST(OptionsTest, GivenDisableControlIn_ThenAllNamespacesMayUnlessSomeOrNone) {
  EXPECT_THAT(Given({}).disable_control_in, ElementsAre("*"));
  EXPECT_THAT(Given({"--disable-control-in=kube-*,admins"}).disable_control_in, ElementsAre("kube-*", "admins"));
  EXPECT_THAT(Given({}, {{"DISABLE_CONTROL_IN", "admins"}}).disable_control_in, ElementsAre("admins"));
  EXPECT_TRUE(Given({"--disable-control-in="}, {{"DISABLE_CONTROL_IN", "admins"}}).disable_control_in.empty());
}

TEST(OptionsTest, MigStrategy_IsReadFromFlagVariableAndFile) {
  EXPECT_EQ(Given({}).mig_strategy, MigStrategy::kNone);
  EXPECT_EQ(Given({"--mig-strategy=single"}, {{"MIG_STRATEGY", "mixed"}}).mig_strategy, MigStrategy::kSingle);
  EXPECT_EQ(Given({}, {{"MIG_STRATEGY", "mixed"}}).mig_strategy, MigStrategy::kMixed);
  const auto start = Read({"--config-file=config.yaml"}, {}, "flags: {migStrategy: mixed}\n");
  ASSERT_TRUE(start);
  EXPECT_EQ(start->options.mig_strategy, MigStrategy::kMixed);
}

TEST(OptionsTest, GivenWhatCanNotBeHonoured_WhenGiven_ThenItIsRefusedByName) {
  EXPECT_THAT(ErrorOf({"--mig-strategy=both"}), StartsWith("--mig-strategy=both: must be none, single or mixed"));
  EXPECT_THAT(ErrorOf({"--device-discovery-strategy=tegra"}), HasSubstr("Tegra"));
  EXPECT_THAT(ErrorOf({"--imex-channel-ids=0,1"}), HasSubstr("imex-channel-ids"));
  EXPECT_THAT(ErrorOf({"--device-split-count=0"}), HasSubstr("1 to 256"));
  EXPECT_THAT(ErrorOf({"--device-memory-scaling=-1"}), HasSubstr("device-memory-scaling"));
  EXPECT_THAT(ErrorOf({"--device-list-strategy=envar"}), HasSubstr("envar"));
  EXPECT_THAT(ErrorOf({"--allocate-timeout=0"}), HasSubstr("allocate-timeout"));
  EXPECT_THAT(ErrorOf({"--metrics-bind-address=bad"}), HasSubstr("metrics-bind-address=bad: no port"));
  EXPECT_THAT(ErrorOf({"--metrics-bind-address=:99999"}), HasSubstr("metrics-bind-address"));
  for (const char* flag : {"hook-path", "kubelet-socket", "pod-resources-socket", "nvidia-driver-root", "dev-root"}) {
    EXPECT_THAT(ErrorOf({base::Concat({"--", flag, "=relative"})}),
                HasSubstr(base::Concat({"--", flag, " must be an absolute path"})));
  }
  EXPECT_THAT(ErrorOf({"--hook-path="}), HasSubstr("absolute"));
  EXPECT_THAT(ErrorOf({}, {{"MIG_STRATEGY", "both"}}), StartsWith("environment variable MIG_STRATEGY: "));
  EXPECT_THAT(ErrorOf({"--no-such-flag"}), HasSubstr("--no-such-flag"));
  EXPECT_THAT(ErrorOf({"serve"}), HasSubstr("serve"));
  EXPECT_THAT(ErrorOf({"--config-file=missing.yaml"}), HasSubstr("missing.yaml"));
  EXPECT_THAT(ErrorOf({}, {{"NODE_NAME", ""}}), HasSubstr("name of this node"));
}

TEST(OptionsTest, GivenMistypedHealthChecks_ThenFlagFailsAndVariableWarns) {
  EXPECT_THAT(ErrorOf({"--disable-health-checks=xid"}), StartsWith("--disable-health-checks=xid: "));
  EXPECT_THAT(ErrorOf({"--disable-health-checks=xid"}), HasSubstr("all, xids or the number of an XID"));
  EXPECT_THAT(ErrorOf({"--disable-health-checks=48,-62"}), HasSubstr("-62"));
  EXPECT_THAT(ErrorOf({"--enable-health-checks=xids"}), HasSubstr("all or the number of an XID"));
  const auto warnings = [](const Words& words, const Variables& variables) {
    const auto start = Read(words, variables);
    EXPECT_TRUE(start) << (start ? "" : start.error().message);
    return start ? start->warnings : Words{};
  };
  EXPECT_THAT(warnings({}, {{"DP_DISABLE_HEALTHCHECKS", "48,foo"}, {"DP_ENABLE_HEALTHCHECKS", "xids"}}),
              ElementsAre(AllOf(HasSubstr("DP_DISABLE_HEALTHCHECKS"), HasSubstr("foo")),
                          AllOf(HasSubstr("DP_ENABLE_HEALTHCHECKS"), HasSubstr("xids"))));
  EXPECT_EQ(Given({}, {{"DP_DISABLE_HEALTHCHECKS", "48,foo"}}).disable_health_checks, "48,foo");
  EXPECT_THAT(warnings({"--disable-health-checks= ALL, 48,", "--enable-health-checks=all,13"},
                       {{"DP_DISABLE_HEALTHCHECKS", "Xids,74"}, {"DP_ENABLE_HEALTHCHECKS", " 48 "}}),
              IsEmpty());
}

TEST(OptionsTest, GivenResourceNameAgainstFile_WhenRead_ThenFlagsAreAtFault) {
  const std::string file = "nvidia: {resourceCountName: vendor.io/gpu}\n";
  EXPECT_THAT(ErrorOf({"--config-file=config.yaml", "--resource-name=vendor.io/gup"}, {}, file),
              HasSubstr("contradicts resourceCountName, which is vendor.io/gpu"));
  EXPECT_EQ(ErrorOf({"--config-file=config.yaml", "--resource-name=vendor.io/gpu"}, {}, file), "");
  EXPECT_THAT(ErrorOf({}, {{"RESOURCE_NAME", "vendor.io/gpu"}}), HasSubstr("which is nvidia.com/gpu"));
  EXPECT_EQ(ErrorOf({"--config-file=config.yaml", "--resource-name=a.io/b"}, {}, "nvidia: {unknown: 1}\n"), "")
      << "what is wrong with the file is for those to say who read it";
}

TEST(OptionsTest, GivenMistakesInTheFile_WhenRead_ThenFileLineAndKeyAreNamed) {
  const Words use = {"--config-file=config.yaml"};
  EXPECT_THAT(ErrorOf(use, {}, "flags:\n  failOnIntiError: false\n"),
              StartsWith("config.yaml:2: flags.failOnIntiError: unknown key; did you mean failOnInitError?"));
  EXPECT_THAT(ErrorOf(use, {}, "sharing:\n  timeSlicing: {}\n"), HasSubstr("deviceSplitCount"));
  EXPECT_THAT(ErrorOf(use, {}, "version: v2\n"), StartsWith("config.yaml:1: version: must be v1"));
  EXPECT_THAT(ErrorOf(use, {}, "flags: {migStrategy: both}\n"), HasSubstr("flags.migStrategy"));
  EXPECT_THAT(ErrorOf(use, {}, "flags: [\n"), StartsWith("config.yaml:"));
  const auto start =
      Read(use, {}, "version: v1\nresources: {gpus: []}\nflags: {gfd: {oneshot: false}}\nimex: {channelIDs: [0]}\n");
  ASSERT_TRUE(start);
  EXPECT_EQ(start->warnings.size(), 2U);
  EXPECT_THAT(start->options.imex_channels, ElementsAre(0));
}

TEST(OptionsTest, GivenEmptyAddressOrSocket_WhenRead_ThenServiceIsNotUsed) {
  const auto start = Read({"--metrics-bind-address=", "--kubelet-socket=", "--pod-resources-socket="}, {}, "");
  ASSERT_TRUE(start);
  EXPECT_FALSE(start->options.metrics_address);
  EXPECT_EQ(start->options.kubelet_socket + start->options.pod_resources_socket, "");
  const auto other = Read({"--metrics-bind-address=[::1]:9"}, {}, "");
  ASSERT_TRUE(other && other->options.metrics_address);
  EXPECT_EQ(other->options.metrics_address->host, "::1");
  EXPECT_EQ(other->options.metrics_address->port, 9);
}

TEST(OptionsTest, GivenHelpOrVersion_WhenRead_ThenNothingElseIsNeeded) {
  EXPECT_EQ(Read({"--help", "--nonsense"}, {{"NODE_NAME", ""}})->action, Start::Action::kHelp);
  EXPECT_EQ(Read({"version"}, {{"NODE_NAME", ""}})->action, Start::Action::kVersion);
  for (const char* word : {"--help", "--version"}) EXPECT_TRUE(Read({word}, {{"MIG_STRATEGY", "both"}})) << word;
  EXPECT_THAT(HelpText(), HasSubstr("--device-list-strategy"));
  for (const char* word : {"[DP_DISABLE_HEALTHCHECKS]", "--version", "HAMI_LIBVGPU", "~/.kube/config", "/readyz",
                           "SIGHUP", "Exit status"}) {
    EXPECT_THAT(HelpText(), HasSubstr(word));
  }
}

}  // namespace
}  // namespace hami::plugin
