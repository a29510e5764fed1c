// SPDX-License-Identifier: Apache-2.0

#include "cluster/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "cluster/yaml.h"

namespace hami::cluster {
namespace {

namespace json = base::json;
using testing::HasSubstr;

constexpr const char* kDocument = R"({"schema":1,"nodes":[
  {"name":"empty","readable":true,"lock":null,"pods":[],"cards":[{"uuid":"GPU-2","index":0,"type":"T4","mode":"",
   "healthy":false,"cordoned":false,"usable":false,"memory_mib":16384,"cores":100,"shares":10,"used_memory_mib":0,
   "used_cores":0,"used_shares":0}]},
  {"name":"full","readable":true,"lock":{"since":"1970-01-01T00:10:00Z","namespace":"team","pod":"q"},
   "cards":[{"uuid":"GPU-1","index":0,"type":"T4","mode":"hami-core","healthy":true,"cordoned":false,"usable":true,
   "memory_mib":16384,"cores":100,"shares":10,"used_memory_mib":8192,"used_cores":30,"used_shares":1}],
   "pods":[{"namespace":"team","name":"q","state":"bound","shares":[{"card":0,"memory_mib":8192,"cores":30}]}]}],
  "waiting":[{"namespace":"team","name":"big","since":940,"tries":3,"reasons":[
   {"reason":"1/1 CardInsufficientMemory","count":11,"nodes":["a","b","c","d","e","f","g","h","i"]}]}],
  "quotas":[{"namespace":"team","resource":"limits.nvidia.com/gpumem","used":8192,"limit":16384}]})";

std::string Show(View view, const std::string& pod = "", const std::string& ns = "") {
  const Look look{view, ns, pod};
  const auto selected = Select(*base::ParseJson(kDocument), look);
  if (!selected) return selected.error().message;
  return base::Join(Lines(*selected, look, 1000, {}), "\n");
}

TEST(ClusterViews, TopHasTheSumAndTheFullestFirst) {
  const std::string text = Show(View::kTop);
  EXPECT_THAT(text, HasSubstr("2 nodes, 2 cards (1 not usable), memory 8 GiB of 32 GiB given (25 %), cores 15 %, 1 "
                              "pods, 1 wait"));
  EXPECT_LT(text.find("\nfull"), text.find("\nempty"));
}

TEST(ClusterViews, EachViewShowsWhatItIsAbout) {
  EXPECT_THAT(Show(View::kNodes), HasSubstr("1 cards not usable"));
  EXPECT_THAT(Show(View::kCards), HasSubstr("unhealthy"));
  EXPECT_THAT(Show(View::kPods), HasSubstr("CardInsufficientMemory"));
  EXPECT_THAT(Show(View::kPods, "", "other"), HasSubstr("no pod has a GPU"));
  EXPECT_THAT(Show(View::kLocks), HasSubstr("team/q"));
  EXPECT_THAT(Show(View::kLocks), HasSubstr("6m40s"));
  EXPECT_THAT(Show(View::kQuotas), HasSubstr("16384"));
}

TEST(ClusterViews, NodesComeByWhatTheirNumbersCount) {
  const auto document = base::ParseJson(R"({"nodes":[{"name":"node-10"},{"name":"node-2"},{"name":"node-1"}]})");
  const Look look{View::kNodes, "", ""};
  const std::string text = base::Join(Lines(*Select(*document, look), look, 1000, {}), "\n");
  EXPECT_LT(text.find("node-1 "), text.find("node-2"));
  EXPECT_LT(text.find("node-2"), text.find("node-10"));
}

TEST(ClusterViews, WhySaysWhatEveryNodeAnswered) {
  const std::string text = Show(View::kWhy, "team/big");
  EXPECT_THAT(text, HasSubstr("team/big waits for 1m00s"));
  EXPECT_THAT(text, HasSubstr("11  1/1 CardInsufficientMemory  a, b, c, d, e, f, g, h +3"));
  EXPECT_EQ(Show(View::kWhy, "big", "team"), text);
  EXPECT_THAT(Show(View::kWhy, "q"), HasSubstr("team/q is bound on full: 1 cards, 8 GiB, 30 % of cores"));
  EXPECT_THAT(Show(View::kWhy, "other/big"), HasSubstr("no pod other/big"));
}

TEST(ClusterViews, YamlIsReadAsItWasMeant) {
  EXPECT_EQ(Yaml(*base::ParseJson(R"({"a":"yes","b":[1,{"c":null}],"d":[],"e":{}})")),
            "\"a\": \"yes\"\n\"b\":\n  - 1\n  -\n    \"c\": null\n\"d\": []\n\"e\": {}\n");
}

std::string Refused(const std::vector<std::string>& words) {
  const auto parsed = ParseOptions(words);
  const Message* message = std::get_if<Message>(&parsed);
  if (message == nullptr) return "(accepted)";
  EXPECT_EQ(message->exit_status, 2);
  return message->text;
}

TEST(ClusterOptions, AMistakeIsAnsweredWithWhatIsMeant) {
  EXPECT_THAT(Refused({}), HasSubstr("top, nodes, cards"));
  EXPECT_THAT(Refused({"node"}), HasSubstr("did you mean nodes?"));
  EXPECT_THAT(Refused({"why"}), HasSubstr("NAMESPACE/NAME"));
  EXPECT_THAT(Refused({"top", "x"}), HasSubstr("one word too many"));
  EXPECT_THAT(Refused({"top", "--output", "xml"}), HasSubstr("yaml"));
  const auto good = ParseOptions({"why", "p", "-n", "team", "-o", "yaml", "--watch"});
  ASSERT_TRUE(std::holds_alternative<Options>(good));
  EXPECT_EQ(std::get<Options>(good).look.pod, "p");
  EXPECT_EQ(std::get<Options>(good).output, Output::kYaml);
}

}  // namespace
}  // namespace hami::cluster
