// SPDX-License-Identifier: Apache-2.0

#include "scheduler/cache.h"

#include <gtest/gtest.h>

#include <random>

#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;

// Pods of all sorts, as an API server tells them.
class Pods {
 public:
  json::value Next() {
    json::object metadata{{"name", "p" + std::to_string(serial_)},
                          {"namespace", Any({"a", "b"})},
                          {"uid", "u" + std::to_string(serial_++)},
                          {"resourceVersion", "7"},
                          {"labels", {{"name", "no"}}},
                          {"managedFields", json::array{{{"fieldsV1", {{"f:metadata", {{"f:name", "x"}}}}}}}}};
    json::object annotations{{"note", "said \"so\""}};
    if (Often()) annotations["hami.io/vgpu-node"] = Any({"n", "m", ""});
    if (Often()) annotations["hami.io/vgpu-time"] = Any({"1790000000", "soon"});
    if (Often()) annotations["hami.io/bind-phase"] = Any({"allocating", "success", "failed"});
    if (Often()) annotations["hami.io/bind-time"] = "1790000001";
    if (Often())
      annotations["hami.io/vgpu-devices-allocated"] =
          Any({"n-0,NVIDIA,100,5:;", "n-0,NVIDIA,1,1:;m-1,NVIDIA,2,2:;", "n-0,", ""});
    if (Seldom())
      annotations["hami.io/vgpu-mig-allocations"] =
          Any({"[]", "no list", R"([{"gpuUUID":"n-0","profile":"1g","placement":{"start":0,"size":1}}])"});
    if (Often()) metadata["annotations"] = annotations;
    json::object spec{{"containers", Containers()}, {"priority", 0}};
    if (Often()) spec["nodeName"] = Any({"n", "m"});
    if (Seldom()) spec["hostUsers"] = Often();
    if (Seldom()) spec["securityContext"] = {{"runAsUser", 1000}, {"fsGroup", 1}};
    if (Seldom()) spec["initContainers"] = Containers();
    if (Often()) spec["restartPolicy"] = "Never";
    json::object status{{"phase", Any({"Pending", "Running", "Succeeded"})}};
    if (Often()) {
      const json::value ended = {{"terminated", {{"exitCode", Often() ? 0 : 1}, {"reason", "x"}}}};
      status["initContainerStatuses"] = json::array{{{"name", "c0"}, {"state", ended}, {"image", "i"}}};
    }
    return {{"kind", "Pod"}, {"metadata", metadata}, {"spec", spec}, {"status", status}};
  }

 private:
  bool Often() { return random_() % 4 != 0; }
  bool Seldom() { return random_() % 4 == 0; }
  const char* Any(std::initializer_list<const char*> some) { return some.begin()[random_() % some.size()]; }
  json::array Containers() {
    json::array all;
    for (std::size_t i = 0, count = 1 + random_() % 2; i < count; ++i) {
      json::object one{{"name", "c" + std::to_string(i)}, {"resources", {{"limits", {{"nvidia.com/gpu", 1}}}}}};
      if (Seldom()) one["restartPolicy"] = "Always";
      if (Seldom()) one["securityContext"] = {{"runAsUser", 5}};
      if (Often()) {
        one["env"] = json::array{
            {{"name", Any({"CUDA_TASK_PRIORITY", "CUDA_DISABLE_CONTROL", "PATH"})}, {"value", Any({"1", "0"})}}};
      }
      all.push_back(std::move(one));
    }
    return all;
  }

  std::minstd_rand random_{11};
  int serial_ = 0;
};

// What the books keep of the pod.
std::string Kept(const Books& books, const std::string& uid) {
  return books.Read([&](const State& state) {
    const sched::PodRecord* record = state.ledger.FindPod(uid);
    if (record == nullptr) return std::string("nothing");
    std::string text = record->ns + "/" + record->name + " on " + state.ledger.node(record->node).name();
    text += record->bound ? " bound" : "";
    text += record->init_done ? " init done" : "";
    text += record->unreadable ? " unreadable" : "";
    text += " until " + std::to_string(record->deadline) + " roles";
    for (const sched::Role role : record->roles) text += " " + std::to_string(static_cast<int>(role));
    for (const auto& card : record->charge.cards) {
      text += " " + card.uuid + ":" + std::to_string(card.memory) + ":" + std::to_string(card.cores);
    }
    text += " reserved " + std::to_string(record->allocation.reservations.size());
    for (const auto& [name, node] : state.nodes()) {
      const auto entry = node.in_flight.find(uid);
      if (entry == node.in_flight.end()) continue;
      text +=
          " in flight on " + name + " as " + entry->second.shape.text + " since " + std::to_string(entry->second.since);
    }
    return text;
  });
}

TEST(BookedPod, GivenAnyPodWhenOnlyWhatIsBookedIsReadThenTheBooksAreTheSame) {
  Books whole(sched::testing::NvidiaOnly(), {});
  Books parts(sched::testing::NvidiaOnly(), {});
  const BookedPod booked(parts.vendors());
  Pods pods;
  int charged = 0;
  for (int round = 0; round < 8000; ++round) {
    const json::value pod = pods.Next();
    const std::string text = json::serialize(pod);
    base::JsonCursor cursor(text);
    device::PodObject some;
    const auto told = ReadPods(booked.fields(), some)(cursor, {});
    ASSERT_TRUE(told);
    for (const char* field : {"name", "namespace", "uid", "resourceVersion"}) {
      EXPECT_EQ(told->at("metadata").at(field), pod.at("metadata").at(field));
    }
    whole.Locked([&](State& state) { state.PodSeen(*device::ReadPod(text), 1'700'000'000); });
    parts.Locked([&](State& state) { state.PodSeen(some.pod, 1'700'000'000); });
    const std::string uid(pod.at("metadata").at("uid").as_string());
    const std::string kept = Kept(whole, uid);
    ASSERT_EQ(Kept(parts, uid), kept) << json::serialize(pod);
    charged += kept.find(" in flight") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(charged, 100);
}

}  // namespace
}  // namespace hami::scheduler
