// SPDX-License-Identifier: Apache-2.0

#include "plugin/node_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ConfigTexts Texts(std::optional<std::string> device, std::optional<std::string> node = std::nullopt) {
  return {"device.yaml", std::move(device), "config.json", std::move(node)};
}

Options OfNode(const std::string& name) {
  Options options;
  options.node_name = name;
  return options;
}

std::string ErrorOf(const ConfigTexts& texts, const Options& options = OfNode("n")) {
  const auto config = ParseNodeConfig(texts, options);
  return config ? "" : config.error().message;
}

NodeSettings For(const std::string& node_text, const std::string& node, const Labels& labels = {}) {
  const auto config = ParseNodeConfig(Texts(std::nullopt, node_text), {});
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  return config ? SettingsFor(*config, node, labels) : NodeSettings{};
}

TEST(NodeConfigTest, GivenNoFiles_WhenParsed_ThenTheModeIsHamiCoreNotNothing) {
  const auto config = ParseNodeConfig(Texts(std::nullopt), {});
  ASSERT_TRUE(config);
  const NodeSettings settings = SettingsFor(*config, "n", {});
  EXPECT_EQ(settings, NodeSettings{});
  EXPECT_STREQ(ModeName(settings.mode), "hami-core");
  EXPECT_EQ(settings.resource_name, "nvidia.com/gpu");
}

TEST(NodeConfigTest, GivenDeviceConfig_WhenKeysAreMissing_ThenTheirDefaultsCount) {
  const auto config = ParseNodeConfig(
      Texts("nvidia:\n  resourceCountName: example.com/gpu\n  deviceMemoryScaling: 1.8\n  libCudaLogLevel: 4\n"
            "  disableCoreLimit: true\n  enableNumaTopology: true\n"),
      {});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->defaults.resource_name, "example.com/gpu");
  EXPECT_EQ(config->defaults.split_count, 10);
  EXPECT_EQ(config->defaults.memory_scaling, 1.8);
  EXPECT_EQ(config->defaults.core_scaling, 1);
  EXPECT_EQ(config->defaults.log_level, "4");
  EXPECT_TRUE(config->defaults.disable_core_limit);
  EXPECT_TRUE(config->defaults.numa_topology);
}

TEST(NodeConfigTest, GivenBothKindsOfSection_WhenParsed_ThenFlagsAreLeftToOthers) {
  EXPECT_EQ(ErrorOf(Texts("version: v1\nflags:\n  failOnInitError: false\nnvidia:\n  deviceSplitCount: 3\n")), "");
  EXPECT_EQ(ErrorOf(Texts("version: v1\nflags: {}\n")), "");
}

TEST(NodeConfigTest, GivenWholeEntry_WhenItNamesNode_ThenItOverridesFieldByField) {
  const std::string text = R"({"nodeconfig": [
    {"name": "other", "devicesplitcount": 99},
    {"name": "m5-cloudinfra-online02", "operatingmode": "mps", "devicesplitcount": 5, "devicememoryscaling": 1.8,
     "devicecorescaling": 2, "preconfigureddevicememory": 16384, "libcudaloglevel": "3", "enablenumatopology": true,
     "migstrategy": "none", "filterdevices": {"uuid": ["GPU-a"], "index": [0, 3]},
     "enablegetpreferredallocation": true}]})";
  const NodeSettings settings = For(text, "m5-cloudinfra-online02");
  EXPECT_EQ(settings.mode, OperatingMode::kMps);
  EXPECT_EQ(settings.split_count, 5);
  EXPECT_EQ(settings.memory_scaling, 1.8);
  EXPECT_EQ(settings.core_scaling, 2);
  EXPECT_EQ(settings.preconfigured_memory, 16384);
  EXPECT_EQ(settings.log_level, "3");
  EXPECT_TRUE(settings.numa_topology);
  EXPECT_TRUE(settings.align_allocation);
  EXPECT_THAT(settings.excluded.uuids, ElementsAre("GPU-a"));
  EXPECT_THAT(settings.excluded.indices, ElementsAre(0, 3));
  EXPECT_EQ(For(text, "m5-cloudinfra-online03"), NodeSettings{});
  EXPECT_EQ(For(text, "other").log_level, "1");
}

TEST(NodeConfigTest, GivenNullFields_WhenParsed_ThenTheyOverrideNothing) {
  EXPECT_EQ(
      For(R"({"nodeconfig":[{"name":"n","operatingmode":null,"devicesplitcount":null,"filterdevices":null}]})", "n"),
      NodeSettings{});
}

TEST(NodeConfigTest, GivenSeveralMatches_ThenExactBeatsSelectorBeatsPattern) {
  const std::string text = R"({"nodeconfig": [
    {"name": "*", "devicesplitcount": 1},
    {"name": "gpu-?", "devicesplitcount": 2},
    {"selector": "pool=train,!spare", "devicesplitcount": 3},
    {"name": "gpu-9", "devicesplitcount": 4}]})";
  EXPECT_EQ(For(text, "gpu-9", {{"pool", "train"}}).split_count, 4);
  EXPECT_EQ(For(text, "gpu-8", {{"pool", "train"}}).split_count, 3);
  EXPECT_EQ(For(text, "gpu-8", {{"pool", "train"}, {"spare", ""}}).split_count, 1);  // the first pattern in the file
  const auto config = ParseNodeConfig(Texts(std::nullopt, text), {});
  EXPECT_TRUE(config->NeedsLabels());
}

TEST(NodeConfigTest, GivenMistakes_WhenParsed_ThenTheErrorNamesFileLineAndKey) {
  EXPECT_THAT(ErrorOf(Texts(std::nullopt, "{\"nodeconfig\": [\n {\"name\": \"n\",\n  \"devicesplitcout\": 3}]}")),
              StartsWith("config.json:3: nodeconfig[0].devicesplitcout: unknown key; did you mean devicesplitcount?"));
  EXPECT_THAT(ErrorOf(Texts(std::nullopt, R"({"nodeconfig":[{"name":"n","devicesplitcount":0}]})")),
              StartsWith("config.json:1: nodeconfig[0].devicesplitcount: must be from 1 to 256"));
  EXPECT_THAT(ErrorOf(Texts("nvidia:\n  deviceSpiltCount: 3\n")), StartsWith("device.yaml:2: nvidia.deviceSpiltCount"));
  EXPECT_EQ(ErrorOf(Texts(std::nullopt, "{\"nodeconfig\": [\n {\n  \"nmae\": \"n\", \"devicesplitcount\": 3}]}")),
            "config.json:3: nodeconfig[0].nmae: unknown key; did you mean name?");
  EXPECT_EQ(ErrorOf(Texts(std::nullopt, "{\"nodeconfig\": [\n {\"devicesplitcount\": 3}]}")),
            "config.json:2: nodeconfig[0].name: either name or selector says which nodes are meant");
  EXPECT_EQ(ErrorOf(Texts(std::nullopt, "{\"nodeconfig\": []}\n---\n{\"nodeconfig\": []}")),
            "config.json:3: a second document, which nobody would read");
}

// Each node judges its own entry, found by name, selector or pattern.
TEST(NodeConfigTest, MistakeOfAnotherNode_IsNotOurs) {
  const std::string text = R"({"nodeconfig": [{"name": "a", "operatingmode": "fast"}, {"name": "b", "nonsense": 1},
    {"selector": "pool=mig", "migstrategy": "both"}, {"name": "c-*", "devicesplitcount": 0},
    {"name": "n", "devicesplitcount": 3}]})";
  EXPECT_EQ(ErrorOf(Texts(std::nullopt, text)), "");
  EXPECT_THAT(ErrorOf(Texts(std::nullopt, text), OfNode("a")), HasSubstr("nodeconfig[0].operatingmode: must be"));
  EXPECT_THAT(ErrorOf(Texts(std::nullopt, text), OfNode("b")), HasSubstr("nodeconfig[1].nonsense: unknown key"));
  const auto config = ParseNodeConfig(Texts(std::nullopt, text), OfNode("d"));
  ASSERT_TRUE(config);
  EXPECT_EQ(MistakeFor(*config, "n", {}), "");
  EXPECT_EQ(MistakeFor(*config, "d", {}), "");
  EXPECT_THAT(MistakeFor(*config, "d", {{"pool", "mig"}}), HasSubstr("nodeconfig[2].migstrategy: must be none"));
  EXPECT_THAT(MistakeFor(*config, "c-1", {}), HasSubstr("nodeconfig[3].devicesplitcount"));
}

TEST(NodeConfigTest, MigStrategy_IsTheFlagsOrTheEntrys) {
  const std::string text = R"({"nodeconfig": [{"name": "a", "migstrategy": "single"}, {"name": "b", "migstrategy": ""},
    {"name": "c", "operatingmode": "mig"}, {"name": "d", "migstrategy": "none"}]})";
  Options options;
  options.mig_strategy = MigStrategy::kMixed;
  const auto config = ParseNodeConfig(Texts(std::nullopt, text), options);
  ASSERT_TRUE(config);
  EXPECT_EQ(SettingsFor(*config, "a", {}).Strategy(), MigStrategy::kSingle);
  EXPECT_EQ(SettingsFor(*config, "b", {}).Strategy(), MigStrategy::kMixed);
  EXPECT_EQ(SettingsFor(*config, "c", {}).Strategy(), MigStrategy::kNone) << "this mode divides GPUs itself";
  EXPECT_EQ(SettingsFor(*config, "d", {}).Strategy(), MigStrategy::kNone);
}

TEST(NodeConfigTest, EmptyLogLevel_IsNoVariable) {
  EXPECT_EQ(ParseNodeConfig(Texts("nvidia:\n  libCudaLogLevel: \"\"\n"), {})->defaults.log_level, "");
  EXPECT_EQ(ParseNodeConfig(Texts("nvidia:\n  libCudaLogLevel: 3\n"), {})->defaults.log_level, "3");
  EXPECT_NE(ErrorOf(Texts("nvidia:\n  libCudaLogLevel: loud\n")), "");
}

// Requests are read as the scheduler reads them: by the same file, and by HAMi's names where there is none.
TEST(NodeConfigTest, Requests_AreReadByTheSchedulersNames) {
  EXPECT_EQ(ParseNodeConfig(Texts(std::nullopt), {})->defaults.requests.memory_resource, "nvidia.com/gpumem");
  const auto config = ParseNodeConfig(Texts("nvidia:\n  resourceCountName: a/b\n  resourceMemoryName: a/m\n"), {});
  EXPECT_EQ(config->defaults.requests.count_resource, "a/b");
  EXPECT_EQ(config->defaults.requests.memory_resource, "a/m");
}

TEST(NodeConfigTest, GivenDefaultsOutOfRange_ThenErrorNamesFileLineAndKey) {
  EXPECT_EQ(ErrorOf(Texts("# ours\nnvidia:\n  deviceSplitCount: 1000\n")),
            "device.yaml:3: nvidia.deviceSplitCount: must be from 1 to 256");
  for (const char* line : {"deviceMemoryScaling: 0", "deviceCoreScaling: 101", "preConfiguredDeviceMemory: 99999999999",
                           "libCudaLogLevel: 9"}) {
    EXPECT_THAT(ErrorOf(Texts(std::string("nvidia:\n  resourceCountName: a/b\n  ") + line + "\n")),
                StartsWith("device.yaml:3: nvidia."));
  }
}

TEST(NodeConfigTest, GivenValuesOutOfRange_WhenParsed_ThenEachIsRefused) {
  for (const char* field :
       {R"("devicememoryscaling":0)", R"("devicememoryscaling":-1)", R"("devicecorescaling":101)",
        R"("devicesplitcount":257)", R"("preconfigureddevicememory":-1)", R"("libcudaloglevel":"9")",
        R"("operatingmode":"fast")", R"("migstrategy":"both")", R"("migstrategy":"mixed","operatingmode":"mig")",
        R"("operatingmode":"mps","migstrategy":"single")", R"("filterdevices":{"index":[-1]})",
        R"("filterdevices":{"uid":["x"]})", R"("devicememoryscaling":".nan")", R"("selector":"a in b")",
        R"("enablenumatopology":"perhaps")"}) {
    EXPECT_NE(ErrorOf(Texts(std::nullopt, R"({"nodeconfig":[{"name":"n",)" + std::string(field) + "}]}")), "") << field;
  }
  for (const char* text : {R"({"nodeconfig":[{}]})", R"({"nodeconfig":[{"name":"n","selector":"a"}]})",
                           R"({"nodeconfig":[{"name":"n"},{"name":"n"}]})", R"({"nodeconfig":[{"selector":"a in b"}]})",
                           R"({"nodeconfig":{}})", R"({"nodes":[]})", "{", "[1]"}) {
    EXPECT_NE(ErrorOf(Texts(std::nullopt, text)), "") << text;
  }
}

TEST(NodeConfigTest, GivenFlagsForWhatTheFileSays_WhenBothSpeak_ThenFlagsWin) {
  Options options;
  options.split_count = 3;
  options.memory_scaling = 2;
  const auto config = ParseNodeConfig(Texts("nvidia:\n  deviceSplitCount: 20\n  deviceMemoryScaling: 4\n"), options);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->defaults.split_count, 3);
  EXPECT_EQ(config->defaults.memory_scaling, 2);
}

TEST(NodeConfigTest, GivenFlagFalse_WhenFileDisablesCoreLimits_ThenTheyStayOff) {
  Options options;
  options.disable_core_limit = false;
  EXPECT_TRUE(ParseNodeConfig(Texts("nvidia:\n  disableCoreLimit: true\n"), options)->defaults.disable_core_limit);
  options.disable_core_limit = true;
  EXPECT_TRUE(ParseNodeConfig(Texts(std::nullopt), options)->defaults.disable_core_limit);
}

TEST(NodeConfigTest, GivenAnotherResourceNameAsFlag_WhenParsed_ThenItIsRefused) {
  Options options;
  options.resource_name = "nvidia.com/gpu";
  EXPECT_EQ(ErrorOf(Texts(std::nullopt), options), "");
  EXPECT_THAT(ErrorOf(Texts("nvidia:\n  resourceCountName: a.b/gpu\n"), options), HasSubstr("contradicts"));
}

TEST(NodeConfigTest, GivenConfigFileGone_WhenLoaded_ThenItIsAnErrorNotDefaults) {
  Options options;
  options.config_file = "/nowhere/device-config.yaml";
  EXPECT_FALSE(LoadConfigTexts(options));
  options.config_file.clear();
  options.node_config_file = "/nowhere/config.json";
  const auto texts = LoadConfigTexts(options);
  ASSERT_TRUE(texts);
  EXPECT_FALSE(texts->device_text || texts->node_text);
}

TEST(NodeSelectorTest, GivenPatterns_WhenMatched_ThenStarsAndMarksMeanWhatTheyDo) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("a*c*e", "abcde"));
  EXPECT_TRUE(MatchesPattern("gpu-??", "gpu-01"));
  EXPECT_FALSE(MatchesPattern("gpu-?", "gpu-01"));
  EXPECT_FALSE(MatchesPattern("a*b", "ac"));
  EXPECT_FALSE(MatchesPattern("", "a"));
  EXPECT_TRUE(MatchesPattern("a*ab", "aaab"));
}

TEST(NodeSelectorTest, GivenSelectors_WhenMatched_ThenAllTermsHold) {
  const Labels labels = {{"a", "1"}, {"b", ""}};
  for (const char* text : {"a=1", "a==1", "a!=2", "c!=1", "b", "!c", "b=", " a = 1 , !c "}) {
    const auto selector = LabelSelector::Parse(text);
    ASSERT_TRUE(selector) << text;
    EXPECT_TRUE(selector->Matches(labels)) << text;
  }
  for (const char* text : {"a=2", "a!=1", "c", "!a", "c=1", "a=1,c"}) {
    const auto selector = LabelSelector::Parse(text);
    ASSERT_TRUE(selector) << text;
    EXPECT_FALSE(selector->Matches(labels)) << text;
  }
  for (const char* text : {"", ",", "a in b", "=1", "a=b=c", "!", "a b"})
    EXPECT_FALSE(LabelSelector::Parse(text)) << text;
}

}  // namespace
}  // namespace hami::plugin
