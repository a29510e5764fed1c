// SPDX-License-Identifier: Apache-2.0

#include "cluster/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cluster/tables.h"
#include "kube/testing/fake_apiserver.h"
#include "page/routes.h"
#include "test/integration/objects.h"

namespace hami::cluster {
namespace {

namespace json = base::json;
using testing::HasSubstr;

class ClusterDocument : public testing::Test {
 protected:
  ClusterDocument() {
    std::string pattern = testing::TempDir() + "/hami-cluster-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    source_.kubeconfig =
        Write("kubeconfig", testcluster::Kubeconfig("http://127.0.0.1:" + std::to_string(api_.port())));
  }
  ~ClusterDocument() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  std::string Show(View view, const std::string& pod = "") const {
    const auto document = Fetch(source_);
    if (!document) return document.error().message + "\n" + document.error().hint;
    const Look look{view, "", pod};
    const auto selected = Select(*document, look);
    return selected ? json::serialize(*selected) : selected.error().message;
  }

  kube::FakeApiServer api_;
  std::string folder_;
  Source source_;
};

TEST_F(ClusterDocument, IsMadeOfWhatTheApiServerLists) {
  json::value node = testcluster::GpuNode("node-1", 2);
  node.at("metadata").at("annotations").as_object()["hami.io/mutex.lock"] = "2026-01-01T00:00:00Z,default,train";
  api_.Put(kube::kNodes, node);
  api_.Put(kube::kPods, testcluster::PendingPod("large", 30000, 30));
  api_.Put(kube::kPods, testcluster::PendingPod("small", 3000, 30));
  json::value bound = testcluster::PendingPod("train", 4000, 20);
  bound.at("metadata").as_object()["annotations"] = json::object{
      {"hami.io/vgpu-node", "node-1"}, {"hami.io/vgpu-devices-allocated", "node-1-gpu-0,NVIDIA,4000,20:;"}};
  bound.at("spec").as_object()["nodeName"] = "node-1";
  api_.Put(kube::kPods, bound);

  EXPECT_THAT(Show(View::kNodes), HasSubstr(R"("used_memory_mib":4000)"));
  EXPECT_THAT(Show(View::kPods), HasSubstr(R"("name":"train","state":"bound","node":"node-1")"));
  EXPECT_THAT(Show(View::kWhy, "large"), HasSubstr("2/2 CardInsufficientMemory"));
  EXPECT_THAT(Show(View::kWhy, "small"), HasSubstr("fits"));
  EXPECT_THAT(Show(View::kLocks), HasSubstr(R"("pod":"train")"));
}

TEST_F(ClusterDocument, AServerIsAskedInItsPlace) {
  const page::PageOptions open;
  auto server = net::Server::Start({}, page::PageRoutes({[](const auto&, const auto&) {
                                                           page::Snapshot snapshot;
                                                           snapshot.nodes.emplace_back().name = "from-the-page";
                                                           return page::Document(snapshot, "1", 1);
                                                         },
                                                         {}},
                                                        open));
  source_.server = "http://127.0.0.1:" + std::to_string((*server)->port());
  EXPECT_THAT(Show(View::kNodes), HasSubstr("from-the-page"));
  (*server)->Stop(std::chrono::milliseconds(1));
  EXPECT_THAT(Show(View::kNodes), HasSubstr("port-forward"));
}

TEST_F(ClusterDocument, AReaderWithoutATokenIsToldSo) {
  page::PageOptions closed;
  closed.check = [](const std::string* given) {
    return given != nullptr && *given == "Bearer good" ? page::Access::kAllowed : page::Access::kNoToken;
  };
  auto server = net::Server::Start(
      {}, page::PageRoutes({[](const auto&, const auto&) { return page::Document({}, "1", 1); }, {}}, closed));
  source_.server = "http://127.0.0.1:" + std::to_string((*server)->port());
  EXPECT_THAT(Show(View::kNodes), HasSubstr("--token-file"));
  source_.token_file = Write("token", "good\n");
  EXPECT_EQ(Show(View::kNodes), "[]");
}

TEST_F(ClusterDocument, WhatIsNoPageIsRefused) {
  auto server = net::Server::Start({}, [](const net::Request&) { return net::Response{200, {}, "[1]", {}}; });
  source_.server = "http://127.0.0.1:" + std::to_string((*server)->port());
  EXPECT_THAT(Show(View::kNodes), HasSubstr("no hami-scheduler's page"));
}

}  // namespace
}  // namespace hami::cluster
