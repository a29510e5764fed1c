// SPDX-License-Identifier: Apache-2.0

#include "device/pod.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "device/testing/pod.h"

namespace hami::device {
namespace {

TEST(ReadPod, GivenWhatContainersSayOfShares_ThenKeptAndNoOtherEnvironment) {
  const auto pod = ReadPod(R"({
    "metadata": {"name": "p"},
    "spec": {"securityContext": {"runAsUser": 7}, "hostUsers": false,
      "initContainers": [{"name": "i"}],
      "containers": [{"name": "c", "securityContext": {"runAsUser": 8}, "env": [
        {"name": "CUDA_DISABLE_CONTROL", "value": "true"}, {"name": "CUDA_TASK_PRIORITY", "value": "1"},
        {"name": "CUDA_TASK_PRIORITY", "value": "0"}, {"name": "CUDA_OVERSUBSCRIBE", "valueFrom": {}},
        {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}, {"name": "HOME", "value": "/"}, 5]}]}})");
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->init_containers.at(0).terms, (StringMap{{"hostUsers", "false"}, {"runAsUser", "7"}}));
  EXPECT_EQ(pod->containers.at(0).terms, (StringMap{{"CUDA_DISABLE_CONTROL", "true"},
                                                    {"CUDA_OVERSUBSCRIBE", ""},
                                                    {"CUDA_TASK_PRIORITY", "0"},
                                                    {"GPU_CORE_UTILIZATION_POLICY", "force"},
                                                    {"hostUsers", "false"},
                                                    {"runAsUser", "8"}}));
  EXPECT_TRUE(ReadPod(R"({"spec": {"containers": [{"env": {}}]}})")->containers.at(0).terms.empty());
}

TEST(ReadPod, GivenWhatIsNoPod_ThenItIsRefused) {
  for (const char* text : {"", "5", "[]", "null", "{", R"({"metadata":{"name":}})", R"({} {})"}) {
    EXPECT_FALSE(ReadPod(text)) << text;
  }
}

TEST(TakePod, GivenFieldsThatAreNotWanted_ThenTheOthersAreReadAsBefore) {
  constexpr std::string_view kText = R"({
    "metadata": {"name": "p", "resourceVersion": "7", "annotations": {"a": "1", "b": "2", "c": "3"}},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": {"x": 1}}}]}})";
  const std::string_view wanted[] = {"b", "d"};
  base::JsonCursor cursor(kText);
  PodObject object;
  ASSERT_TRUE(TakePod(cursor, {.resources = false, .annotations = wanted}, object));
  EXPECT_TRUE(cursor.AtEnd());
  EXPECT_EQ(object.version, "7");
  EXPECT_EQ(object.pod.annotations, (StringMap{{"b", "2"}}));
  EXPECT_EQ(object.pod.node_name, "n");
  EXPECT_EQ(object.pod.containers.at(0).name, "c");
  EXPECT_TRUE(object.pod.containers.at(0).limits.empty());
}

// Texts that are nearly pods: each value is of its kind, mostly, and each member may be there twice, or not at all.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::string Pod() {
    return Object({{"metadata", [this] { return Metadata(); }},
                   {"spec", [this] { return Spec(); }},
                   {"status", [this] { return Status(); }},
                   {"kind", [this] { return String(); }}});
  }
  std::string Broken(std::string text) {
    if (text.empty() || Pick(3) != 0) return text;
    const std::size_t at = Pick(text.size());
    if (Pick(4) == 0) return text.substr(0, at);
    text[at] = Pick(4) == 0 ? static_cast<char>(Pick(256)) : "{}[]\",:\\ u\n01-"[Pick(14)];
    return text;
  }

 private:
  using Make = std::function<std::string()>;
  struct Member {
    const char* key;
    Make make;
  };

  std::size_t Pick(std::size_t count) { return random_() % count; }
  std::string Any(std::initializer_list<const char*> some) { return some.begin()[Pick(some.size())]; }
  std::string Blank() { return Pick(9) == 0 ? Any({" ", "\n", "\t\r"}) : ""; }
  std::string Word() {
    if (Pick(300) == 0) return Any({"01", "nul"});
    return Any({"0", "-0", "7", "-12", "9223372036854775807", "-9223372036854775809", "18446744073709551615",
                "18446744073709551616", "1.5", "1e3", "0e0", "0.0", "true", "false", "null"});
  }
  std::string String() {
    return Any({R"("")", R"("a")", R"("Always")", R"("\u0041lways")", R"("Succeeded")", R"("F\u0061iled")", R"("é")",
                R"("\ud83d\ude00")", R"("\n\"x\\")", R"("CUDA_TASK_PRIORITY")", R"("CUDA_DISABLE_CONTROL")", R"("1")",
                R"("a text that is longer than what a string holds by itself")"});
  }
  std::string Other() {
    switch (Pick(4)) {
      case 0:
        return "{\"name\":" + String() + "}";
      case 1:
        return "[" + Word() + "]";
      default:
        return Word();
    }
  }
  // What is not of its kind now and then.
  std::string Mostly(const Make& make) { return Pick(12) == 0 ? Other() : make(); }

  std::string Object(std::initializer_list<Member> members) {
    std::string text = "{";
    for (std::size_t i = 0, count = Pick(3 * members.size() + 1); i < count; ++i) {
      const Member& member = members.begin()[Pick(members.size())];
      if (text.size() > 1) text += ',';
      text += Blank() + Key(member.key) + Blank() + ':' + Blank() + Mostly(member.make) + Blank();
    }
    return text += '}';
  }
  // Now and then with its first letter as an escape.
  std::string Key(std::string_view key) {
    if (Pick(9) != 0) return '"' + std::string(key) + '"';
    constexpr char kDigits[] = "0123456789abcdef";
    const auto first = static_cast<unsigned char>(key[0]);
    return std::string("\"\\u00") + kDigits[first / 16] + kDigits[first % 16] + std::string(key.substr(1)) + '"';
  }
  std::string List(const Make& make) {
    std::string text = "[";
    for (std::size_t i = 0, count = Pick(4); i < count; ++i) text += (i == 0 ? "" : ",") + Mostly(make);
    return text += ']';
  }
  Make AnyString() {
    return [this] { return String(); };
  }
  Make Map() {
    return [this] {
      const Make value = [this] { return Pick(2) == 0 ? String() : Word(); };
      return Object({{"a", value}, {"nvidia.com/gpu", value}, {"cpu", value}, {"memory", value}});
    };
  }
  Make User() {
    return [this] {
      return Object({{"runAsUser", [this] { return Word(); }}, {"fsGroup", [this] { return Word(); }}});
    };
  }

  std::string Metadata() {
    return Object({{"name", AnyString()},
                   {"namespace", AnyString()},
                   {"uid", AnyString()},
                   {"resourceVersion", AnyString()},
                   {"annotations", Map()},
                   {"labels", [this] {
                      return Object({{"scheduling.x-k8s.io/pod-group", AnyString()}});
                    }}});
  }
  Make Name() {
    return [this] { return Any({R"("a")", R"("a")", R"("b")"}); };
  }
  std::string Container() {
    const Make variable = [this] { return Object({{"name", AnyString()}, {"value", AnyString()}}); };
    return Object({{"name", Name()},
                   {"resources",
                    [this] {
                      return Object({{"limits", Map()}, {"requests", Map()}});
                    }},
                   {"env", [this, variable] { return List(variable); }},
                   {"securityContext", User()},
                   {"restartPolicy", Policy()},
                   {"restartPolicyRules", [this] { return Pick(100) != 0 ? "[]" : "[7]"; }}});
  }
  // Mostly one that starts nothing anew.
  Make Policy() {
    return [this] { return Pick(100) != 0 ? R"("Never")" : Any({R"("Always")", R"("\u004ever")", R"("")"}); };
  }
  std::string Affinity() {
    const Make term = [this] {
      return Object(
          {{"namespaces", [this] { return List([this] { return String(); }); }}, {"namespaceSelector", [this] {
                                                                                    return Any({"null", "{}"});
                                                                                  }}});
    };
    const Make weighted = [this, term] { return Object({{"podAffinityTerm", term}, {"weight", AnyString()}}); };
    const Make terms = [this, term, weighted] {
      return Object({{"requiredDuringSchedulingIgnoredDuringExecution", [this, term] { return List(term); }},
                     {"preferredDuringSchedulingIgnoredDuringExecution", [this, weighted] { return List(weighted); }}});
    };
    return Object({{"podAffinity", terms}, {"podAntiAffinity", terms}});
  }
  std::string Spec() {
    const Make containers = [this] { return List([this] { return Container(); }); };
    return Object({{"nodeName", AnyString()},
                   {"containers", containers},
                   {"initContainers", containers},
                   {"securityContext", User()},
                   {"hostUsers", [this] { return Word(); }},
                   {"restartPolicy", Policy()},
                   {"priorityClassName", AnyString()},
                   {"activeDeadlineSeconds", [this] { return Word(); }},
                   {"affinity", [this] { return Affinity(); }},
                   {"resources",
                    [this] {
                      return Object({{"limits", Map()}, {"requests", Map()}});
                    }},
                   {"priority", [this] { return Word(); }},
                   {"preemptionPolicy", Policy()},
                   {"workloadRef",
                    [this] {
                      return Object({{"name", AnyString()}, {"podGroup", AnyString()}});
                    }},
                   {"schedulingGroup", [this] {
                      return Object({{"podGroupName", AnyString()}});
                    }}});
  }
  std::string Status() {
    const Make ended = [this] {
      return Object({{"exitCode", [this] { return Any({"0", "0", "0", "0", "0", "0", "-0", "1"}); }}});
    };
    const Make state = [this, ended] { return Object({{"terminated", ended}}); };
    const Make status = [this, state] { return Object({{"name", Name()}, {"state", state}}); };
    const Make condition = [this] {
      return Object({{"type",
                      [this] {
                        return Any({R"("PodScheduled")", R"("Ready")"});
                      }},
                     {"status",
                      [this] {
                        return Any({R"("False")", R"("True")", "null"});
                      }},
                     {"reason", AnyString()},
                     {"message", AnyString()},
                     {"lastTransitionTime", AnyString()}});
    };
    return Object({{"phase", AnyString()},
                   {"conditions", [this, condition] { return List(condition); }},
                   {"qosClass",
                    [this] {
                      return Any({R"("BestEffort")", R"("Burstable")", R"("")"});
                    }},
                   {"initContainerStatuses", [this, status] { return List(status); }}});
  }

  std::minstd_rand random_;
};

TEST(TakePod, GivenAnyTextThenAPodIsWhatAParserMakesOfIt) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kSeeds = 4'000;  // of 3 ms each
#else
  constexpr int kSeeds = 20'000;
#endif
  int refused = 0;
  int done = 0;
  int crossing = 0;
  int best_effort = 0;
  int without_node = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Generator generator(static_cast<unsigned>(seed));
    const std::string text = generator.Broken(generator.Pod());
    ASSERT_TRUE(testing::ReadAlike(text)) << text;
    const auto pod = testing::PodByCursor(text);
    refused += pod ? 0 : 1;
    done += pod && pod->pod.init_done ? 1 : 0;
    crossing += pod && pod->pod.traits.cross_namespace ? 1 : 0;
    best_effort += pod && pod->pod.traits.best_effort ? 1 : 0;
    without_node += pod && pod->refusal != 0 ? 1 : 0;
  }
  EXPECT_GT(refused, kSeeds / 10);
  EXPECT_LT(refused, kSeeds * 6 / 10);
  EXPECT_GT(done, kSeeds / 400);
  EXPECT_GT(crossing, kSeeds / 20);
  EXPECT_GT(best_effort, kSeeds / 20);
  EXPECT_GT(without_node, kSeeds / 200);
}

TEST(TakePod, GivenNoObjectThenAPodIsWhatAParserMakesOfIt) {
  for (const char* text : {"3", R"("a%")", "[]", "null", "true", "{}", R"({"spec":3})", R"({"spec":[]})", ""}) {
    EXPECT_TRUE(testing::ReadAlike(text)) << text;
  }
}

TEST(TakePod, GivenDeepTextsThenTheSameDepthIsTooDeep) {
  for (std::size_t depth = 55; depth < 70; ++depth) {
    for (const std::string& begin : {std::string(R"({"metadata":{"x":)"), std::string(R"({"spec":{"containers":[)")}) {
      const std::string end = begin.ends_with('[') ? "]}}" : "}}";
      EXPECT_TRUE(testing::ReadAlike(begin + std::string(depth, '[') + std::string(depth, ']') + end)) << depth;
    }
  }
}

}  // namespace
}  // namespace hami::device
