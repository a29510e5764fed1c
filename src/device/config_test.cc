// SPDX-License-Identifier: Apache-2.0

#include "device/config.h"

#include <gtest/gtest.h>

namespace hami::device {
namespace {

// The sections and keys of HAMi 2.10's file, with values of every kind.
constexpr const char* kEverySection = R"(
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceMemoryPercentageName: nvidia.com/gpumem-percentage
  resourceCoreName: nvidia.com/gpucores
  resourcePriorityName: nvidia.com/priority
  overwriteEnv: false
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  preConfiguredDeviceMemory: 0
  memoryFactor: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1.5
  deviceCoreScaling: 1
  enableNumaTopology: false
  disableCoreLimit: false
  gpuCorePolicy: default
  libCudaLogLevel: 1
  runtimeClassName: ""
  migProfileAllowlist:
  - models: [ "A30" ]
    profiles: [ "1g.6gb", "2g.12gb", "4g.24gb" ]
cambricon: {resourceCountName: cambricon.com/vmlu, resourceMemoryName: m, resourceCoreName: c}
hygon: {resourceCountName: hygon.com/dcunum, resourceMemoryName: m, resourceCoreName: c, memoryFactor: 1}
metax:
  resourceCountName: metax-tech.com/gpu
  resourceVCountName: metax-tech.com/sgpu
  resourceVMemoryName: metax-tech.com/vmemory
  resourceVCoreName: metax-tech.com/vcore
  sgpuTopologyAware: false
enflame:
  resourceNameGCU: enflame.com/gcu
  resourceNameDRSGCU: enflame.com/drs-gcu
  resourceNameGCUMemory: enflame.com/gcu-memory
  resourceNameGCUCore: enflame.com/gcu-core
  resourceNameVGCU: enflame.com/vgcu
  resourceNameVGCUPercentage: enflame.com/vgcu-percentage
mthreads: {resourceCountName: mthreads.com/vgpu, resourceMemoryName: m, resourceCoreName: c, memoryPerCard: [96]}
iluvatars:
- {chipName: MR-V100, commonWord: MR-V100, resourceCountName: n, resourceMemoryName: m, resourceCoreName: c}
- {chipName: BI-V150, commonWord: BI-V150, resourceCountName: n, resourceMemoryName: m, resourceCoreName: c}
kunlun: {resourceCountName: kunlunxin.com/xpu, resourceVCountName: kunlunxin.com/vxpu, resourceVMemoryName: m}
awsneuron: {resourceCountName: aws.amazon.com/neuron, resourceCoreName: aws.amazon.com/neuroncore}
amd: {resourceCountName: amd.com/gpu, resourceCoreName: amd.com/gpucores, resourceMemoryName: amd.com/gpumem}
vastai: {resourceCountName: vastaitech.com/va}
biren: {resourceCountName: birentech.com/gpu}
vnpus:
  hamiVnpuCore: false
  configs:
  - chipName: 910B2
    commonWord: Ascend910B2
    resourceName: huawei.com/Ascend910B2
    resourceMemoryName: huawei.com/Ascend910B2-memory
    resourceCoreName: huawei.com/Ascend910B2-core
    memoryAllocatable: 65536
    memoryCapacity: 65536
    memoryFactor: 1
    aiCore: 24
    aiCPU: 6
    runtimeClassName: ""
    overwriteEnv: false
    superPod: true
    templates:
    - {name: vir03_1c_8g, memory: 8192, aiCore: 3, aiCPU: 1}
)";

std::string ErrorOf(const char* text) {
  const auto config = ParseDeviceConfig(text, "f.yaml");
  return config ? "(none)" : config.error().message;
}

TEST(DeviceConfig, GivenEverySectionOfTheOldFile_ThenItLoads) {
  const auto config = ParseDeviceConfig(kEverySection, "f.yaml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->nvidia.count_resource, "nvidia.com/gpu");
  EXPECT_EQ(config->nvidia.memory_scaling, 1.5);
  ASSERT_EQ(config->nvidia.mig_allowlist.size(), 1U);
  EXPECT_EQ(config->nvidia.mig_allowlist[0].profiles.size(), 3U);
  EXPECT_EQ(config->others.at("biren.resourceCountName"), "birentech.com/gpu");
  EXPECT_EQ(config->others.at("iluvatars[1].chipName"), "BI-V150");
  EXPECT_EQ(config->others.at("vnpus.configs[0].aiCore"), "24");
}

TEST(DeviceConfig, GivenTheOlderGeometries_ThenTheirProfilesAreAllowed) {
  const auto config = ParseDeviceConfig(R"(
nvidia:
  knownMigGeometries:
  - models: [ "A30" ]
    allowedGeometries:
    -
      - name: 1g.6gb
        core: 25
        memory: 6144
        count: 4
    -
      - {name: 2g.12gb, core: 50, memory: 12288, count: 2}
)",
                                        "f.yaml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->nvidia.mig_allowlist[0].profiles, (std::vector<std::string>{"1g.6gb", "2g.12gb"}));
}

TEST(DeviceConfig, GivenAWrongKey_ThenTheErrorNamesFileLineAndKey) {
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCuntName: x\n"),
            "f.yaml:2: nvidia.resourceCuntName: unknown key; did you mean resourceCountName?");
  EXPECT_EQ(ErrorOf("nvidia:\n  nvidia.memoryFactor: 1\n"),
            "f.yaml:2: nvidia.nvidia.memoryFactor: unknown key; did you mean memoryFactor?");
  EXPECT_EQ(ErrorOf("nvidia:\n  defaultMemory: 0\nqqqqqqqqqqqq: {}\n"), "f.yaml:3: qqqqqqqqqqqq: unknown key");
  EXPECT_EQ(ErrorOf("nvidia:\n  defaultMemory: 0\n  defaultMemory: 1\n"),
            "f.yaml:3: nvidia.defaultMemory: is given twice");
  EXPECT_EQ(ErrorOf("nvidia:\n  defaultMemory: many\n"), "f.yaml:2: nvidia.defaultMemory: must be a whole number");
  EXPECT_EQ(ErrorOf("nvidia:\n  overwriteEnv: perhaps\n"), "f.yaml:2: nvidia.overwriteEnv: must be true or false");
  EXPECT_EQ(ErrorOf("nvidia:\n  memoryFactor: -1\n"), "f.yaml:2: nvidia.memoryFactor: must not be negative");
  for (const char* key : {"defaultMemory", "defaultCores", "defaultGPUNum"}) {
    const std::string text = std::string("nvidia:\n  ") + key + ": 2147483648\n";
    EXPECT_EQ(ErrorOf(text.c_str()), std::string("f.yaml:2: nvidia.") + key + ": is too large: at most 2147483647");
  }
  EXPECT_EQ(ErrorOf("nvidia:\n  gpuCorePolicy: forse\n"),
            "f.yaml:2: nvidia.gpuCorePolicy: must be default, force or disable");
  EXPECT_EQ(ErrorOf("nvidia: [1]\n"), "f.yaml:1: nvidia: must be a mapping");
  EXPECT_EQ(ErrorOf("vnpus:\n- chipName: 910A\n"), "f.yaml:2: vnpus: must be a mapping");
  EXPECT_EQ(ErrorOf("amd:\n  resourceNam: x\n"), "f.yaml:2: amd.resourceNam: unknown key");
}

TEST(DeviceConfig, GivenWrongTypeOfOtherVendor_ThenErrorNamesFileLineAndKey) {
  EXPECT_EQ(ErrorOf("amd:\n  resourceCountName: [amd.com/gpu]\n"), "f.yaml:2: amd.resourceCountName: must be a text");
  EXPECT_EQ(ErrorOf("biren:\n  resourceCountName: {a: b}\n"), "f.yaml:2: biren.resourceCountName: must be a text");
  EXPECT_EQ(ErrorOf("hygon:\n  memoryFactor: many\n"), "f.yaml:2: hygon.memoryFactor: must be a whole number");
  EXPECT_EQ(ErrorOf("metax:\n  sgpuTopologyAware: perhaps\n"),
            "f.yaml:2: metax.sgpuTopologyAware: must be true or false");
  EXPECT_EQ(ErrorOf("iluvatars:\n- chipName: []\n"), "f.yaml:2: iluvatars[0].chipName: must be a text");
  EXPECT_EQ(ErrorOf("vnpus:\n  configs:\n  - aiCore: '24'\n"),
            "f.yaml:3: vnpus.configs[0].aiCore: must be a whole number");
  EXPECT_EQ(ErrorOf("vnpus:\n  configs:\n  - templates:\n    - memory: 8Gi\n"),
            "f.yaml:4: vnpus.configs[0].templates[0].memory: must be a whole number");
  EXPECT_EQ(ErrorOf("mthreads:\n  resourceCountName:\nvnpus:\n  hamiVnpuCore: yes\n  configs:\n"
                    "  - {chipName: 910, superPod: off, runtimeClassName: ''}\n"),
            "(none)")
      << "as Go's YAML reads them";
}

// As yaml.v2 2.4.0 decodes them into an int32, an int64 and a bool.
TEST(DeviceConfig, GivenValueOfOtherVendor_ThenExactlyWhatGoTakesPasses) {
  struct Case {
    const char* key;
    std::vector<const char*> taken;
    std::vector<const char*> refused;
  };
  const Case cases[] = {
      {"hygon: {memoryFactor: ",
       {"1",          "1.0",         "2.5",          "1e3",   "1E3",   "1.",        ".5",       "-.5",   "+.5",
        "+1",         "-1",          "-0",           "0x10",  "0X10",  "-0x10",     "+0x10",    "010",   "08",
        "0o10",       "0O7",         "0b11",         "-0b11", "1_000", "1_",        "0x_1",     "1_0.0", ".5_0",
        "2147483647", "-2147483648", "2147483647.5", "~",     "",      "!!int '1'", "!!float 1"},
       {"'1'",   "\"1\"", "'1.0'", "''",   "2147483648", "2147483648.0", "-2147483649", "true", "many",
        "8Gi",   "1e",    "0x1p3", "0x",   "_1",         ".e1",          ".",           "-",    ".inf",
        "-.inf", ".nan",  "1e400", "1:30", "2001-01-01", "!!str 1",      "!!int 1.0",   "[1]",  "{a: 1}"}},
      {"vnpus: {configs: [{memoryCapacity: ",
       {"65536", "9223372036854775807", "-9223372036854775808", "1e18"},
       {"9223372036854775808", "99999999999999999999", "1e19", "'65536'"}},
      {"metax: {sgpuTopologyAware: ",
       {"true", "True", "TRUE", "yes", "on", "y", "Y", "YES", "false", "off", "Off", "no", "n", "~", "",
        "!!bool 'true'"},
       {"'true'", "\"yes\"", "'on'", "tRue", "oN", "1", "0", "1.0", "''", "perhaps", "[true]", "!!str true"}}};
  for (const Case& one : cases) {
    const std::string_view key = one.key;
    std::string closing;
    for (const char c : key) {
      if (c == '{' || c == '[') closing.insert(closing.begin(), c == '{' ? '}' : ']');
    }
    const auto error = [&](const char* value) {
      return ErrorOf(("biren: {resourceCountName: b}\n" + std::string(key) + value + closing + "\n").c_str());
    };
    for (const char* value : one.taken) EXPECT_EQ(error(value), "(none)") << key << value;
    for (const char* value : one.refused) EXPECT_NE(error(value), "(none)") << key << value;
  }
}

TEST(DeviceConfig, GivenNamesThatNoContainerCanAskFor_ThenTheyAreRefused) {
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: nvidia.com/gpu\n  resourceMemoryName: nvidia.com/gpu\n"),
            "f.yaml:3: nvidia.resourceMemoryName: the same name as resourceCountName");
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: nvidia.com/ gpu\n"),
            "f.yaml:2: nvidia.resourceCountName: not the name of a resource (like nvidia.com/gpu): nvidia.com/ gpu");
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: ''\n  resourceCoreName: ''\n"), "(none)") << "as in HAMi: not used";
}

TEST(DeviceConfig, GivenASecondDocument_ThenItIsRefused) {
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: a/b\n---\nnvidia:\n  resourceCountName: c/d\n"),
            "f.yaml:4: a second document, which nobody would read");
  EXPECT_EQ(ErrorOf("---\nnvidia:\n  resourceCountName: a/b\n"), "(none)");
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: a/b\n---\n# as templates leave it behind\n"), "(none)");
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: a/b\n...\n"), "(none)");
}

TEST(DeviceConfig, GivenNoYaml_ThenItIsRefusedAtOnce) {
  for (const char* text : {",", ",Eacd!=e", "--- ,\n", "\n, a: b\n"}) {
    EXPECT_EQ(ErrorOf(text).substr(0, 7), "f.yaml:") << text;
  }
  EXPECT_EQ(ErrorOf("nvidia:\n  resourceCountName: a/b\n--- ,\n"), "f.yaml:3: not YAML from here on");
}

TEST(DeviceConfig, GivenABadAllowlist_ThenItIsRefused) {
  EXPECT_EQ(ErrorOf("nvidia:\n  migProfileAllowlist:\n  - modls: [A100]\n    profiles: [\"1g.5gb\"]\n"),
            "f.yaml:3: nvidia.migProfileAllowlist[0].modls: unknown key; did you mean models?");
  EXPECT_EQ(ErrorOf("nvidia:\n  migProfileAllowlist:\n  - profiles: [\"1g.5gb\"]\n"),
            "f.yaml:3: nvidia.migProfileAllowlist[0].models: must name at least one model");
  EXPECT_EQ(ErrorOf("nvidia:\n  migProfileAllowlist:\n  - models: [A]\n    profiles: [small]\n"),
            "f.yaml:4: nvidia.migProfileAllowlist[0].profiles: not a MIG profile (like 1g.10gb): small");
}

TEST(DeviceConfig, GivenNothing_ThenItIsRefused) {
  EXPECT_EQ(ErrorOf(""), "f.yaml: all configurations are empty");
  EXPECT_EQ(ErrorOf("{}"), "f.yaml: all configurations are empty");
  EXPECT_EQ(ErrorOf("nvidia:\n  a: [\n").substr(0, 7), "f.yaml:");
}

}  // namespace
}  // namespace hami::device
