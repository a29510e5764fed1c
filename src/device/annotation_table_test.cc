// SPDX-License-Identifier: Apache-2.0
//
// The table against the code that uses the keys, the policy for the time without a webhook, and the documentation.

#include "device/annotation_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace hami::device {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool IsTestFile(const std::string& name) {
  for (const char* word : {"_test.cc", "_fuzz.cc", "_bench.cc"}) {
    if (EndsWith(name, word)) return true;
  }
  return false;
}

// What stands in TEXT between quotes and is a key of ours.
void TakeKeys(std::string_view text, std::set<std::string>& keys) {
  constexpr std::string_view kOfKeys = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  for (const std::string_view domain : {"\"hami.io/", "\"hami-cpp/", "\"nvidia.com/"}) {
    for (std::size_t at = text.find(domain); at != text.npos; at = text.find(domain, at + 1)) {
      const std::size_t end = std::min(text.find_first_not_of(kOfKeys, at + domain.size()), text.size());
      const bool whole = end > at + domain.size() && end < text.size() && text[end] == '"';
      if (whole) keys.emplace(text.substr(at + 1, end - at - 1));
    }
  }
}

// Every literal of the product that is a key of ours, without the fuzzers' and tests' own.
std::set<std::string> KeysInCode() {
  std::set<std::string> keys;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HAMI_SOURCE) / "src")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().parent_path().filename() == "testing") continue;
    if ((!EndsWith(name, ".cc") && !EndsWith(name, ".h")) || IsTestFile(name)) continue;
    TakeKeys(TextOf(entry.path()), keys);
  }
  return keys;
}

bool InTable(const std::string& key) {
  const auto table = AnnotationTable();
  return std::any_of(table.begin(), table.end(), [&](const KeyRule& rule) { return rule.key == key; });
}

TEST(AnnotationTableTest, HoldsEveryKeyOfTheCode) {
  // Names of resources, a domain of seals, and a test's world that no program is linked with.
  const std::set<std::string> others = {"nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage",
                                        "nvidia.com/gpucores", "nvidia.com/priority", "hami-cpp/grant-seal/v1",
                                        // Beginnings of keys and of resources.
                                        "hami.io/vgpu", "hami.io/bind", "nvidia.com/mig-"};
  int found = 0;
  for (const std::string& key : KeysInCode()) {
    if (others.count(key) > 0) continue;
    EXPECT_TRUE(InTable(key)) << key << " is used by the code and stands in no row of annotation_table.cc";
    ++found;
  }
  EXPECT_GT(found, 20) << "the search finds keys at all";
}

TEST(AnnotationTableTest, WhatIsOursIsGuardedAndWhatUsersAskForIsNot) {
  for (const char* key :
       {"hami.io/vgpu-node", "hami.io/vgpu-devices-allocated", "hami.io/dcu-devices-to-allocate", "hami.io/bind-phase",
        "hami-cpp/grant-seal", "hami.io/of-a-later-version", "hami-cpp/x", "huawei.com/Ascend910B4", "predicate-time",
        "enflame.com/gcu-assigned-minor", "mthreads.com/gpu-index", "AWS_NEURON_IDS", "CAMBRICON_DSMLU_PROFILE"}) {
    EXPECT_TRUE(IsGuarded(key, Carrier::kPod)) << key;
  }
  for (const char* key :
       {"hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy", "nvidia.com/use-gpuuuid", "hami-cpp/resize",
        "hami.io/webhook", "hami.io/use-Ascend910B-uuid", "team/hami.io", "hami.io", "hami-cpp", "huawei.com/vnpu-mode",
        "metax-tech.com/sgpu-qos-policy", "amd.com/use-gpu-uuid", "huawei.com/Ascend910"}) {
    EXPECT_FALSE(IsGuarded(key, Carrier::kPod)) << key;
  }
  EXPECT_TRUE(IsGuarded("hami.io/node-nvidia-register", Carrier::kNode));
  EXPECT_TRUE(IsGuarded("hami.io/mutex.lock", Carrier::kNode));
  EXPECT_FALSE(IsGuarded("hami.io/device-cordon", Carrier::kNode));
  EXPECT_TRUE(IsGuarded("hami.io/device-cordon", Carrier::kPod)) << "an operator's word for nodes is none on a pod";
}

// `| key | who | text |`, each once under its carrier and as the table has it; and nowhere else in the documentation.
TEST(AnnotationTableTest, IsTheOneOfTheDocumentation) {
  const std::string text = TextOf(fs::path(HAMI_SOURCE) / "docs/reference/annotations.md");
  const std::string prose = TextOf(fs::path(HAMI_SOURCE) / "docs/operate/security.md");
  const auto section = [&](const std::string& title) {
    const std::size_t begin = text.find("\n## " + title + "\n");
    EXPECT_NE(begin, std::string::npos) << title;
    return begin == std::string::npos ? "" : text.substr(begin, text.find("\n## ", begin + 1) - begin);
  };
  const std::string tenants = section("Pods: the tenant's");
  const std::string results = section("Pods: results");
  const std::string nodes = section("Nodes");
  const std::string lease = section("The lease");
  std::size_t rows = 0;
  for (const KeyRule& rule : AnnotationTable()) {
    const bool tenant = rule.author == Author::kTenant;
    const std::string& own =
        rule.carrier == Carrier::kPod ? (tenant ? tenants : results) : (rule.carrier == Carrier::kNode ? nodes : lease);
    const std::string begin = "| `" + std::string(rule.key) + "` | ";
    const std::string row = begin + std::string(NameOf(rule.author)) + " | " + std::string(rule.text) + " |";
    EXPECT_NE(own.find(row), std::string::npos) << "docs/reference/annotations.md lacks this row:\n" << row;
    EXPECT_EQ(prose.find(begin), std::string::npos) << "docs/operate/security.md repeats the row of " << rule.key;
    ++rows;
  }
  std::size_t all = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all += line.starts_with("| `") ? 1U : 0U;
  EXPECT_EQ(all, rows) << "docs/reference/annotations.md has rows that the table has not";
}

// The policy names what is not guarded of our domains, what is of others, and nothing else.
TEST(AnnotationTableTest, IsTheOneOfTheAdmissionPolicy) {
  const std::string text = TextOf(fs::path(HAMI_SOURCE) / "deploy/policy/hami-annotations.yaml");
  for (const KeyRule& rule : AnnotationTable()) {
    if (rule.carrier == Carrier::kLease) continue;
    const std::string key(rule.key);
    const bool ours = key.substr(0, 8) == "hami.io/" || key.substr(0, 9) == "hami-cpp/";
    const bool open = rule.author == Author::kTenant || rule.author == Author::kOperator;
    const std::size_t star = key.find('*');
    if (star != std::string::npos && !open) continue;
    const std::string head = "'" + key.substr(0, star) + "'";
    EXPECT_EQ(text.find(head) != std::string::npos, ours == open) << key;
    if (star == std::string::npos || !ours || !open) continue;
    EXPECT_NE(text.find("'" + key.substr(star + 1) + "'"), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace hami::device
