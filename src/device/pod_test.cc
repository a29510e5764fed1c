// SPDX-License-Identifier: Apache-2.0

#include "device/pod.h"

#include <gtest/gtest.h>

namespace hami::device {
namespace {

TEST(ReadPod, GivenWhatContainersSayOfTheirShares_ThenItIsKeptAndNothingElseOfTheirEnvironment) {
  const auto pod = ReadPod(*base::ParseJson(R"({
    "metadata": {"name": "p"},
    "spec": {"securityContext": {"runAsUser": 7}, "hostUsers": false,
      "initContainers": [{"name": "i"}],
      "containers": [{"name": "c", "securityContext": {"runAsUser": 8}, "env": [
        {"name": "CUDA_DISABLE_CONTROL", "value": "true"}, {"name": "CUDA_TASK_PRIORITY", "value": "1"},
        {"name": "CUDA_TASK_PRIORITY", "value": "0"}, {"name": "CUDA_OVERSUBSCRIBE", "valueFrom": {}},
        {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}, {"name": "HOME", "value": "/"}, 5]}]}})"));
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->init_containers.at(0).terms, (StringMap{{"hostUsers", "false"}, {"runAsUser", "7"}}));
  EXPECT_EQ(pod->containers.at(0).terms, (StringMap{{"CUDA_DISABLE_CONTROL", "true"},
                                                    {"CUDA_OVERSUBSCRIBE", ""},
                                                    {"CUDA_TASK_PRIORITY", "0"},
                                                    {"GPU_CORE_UTILIZATION_POLICY", "force"},
                                                    {"hostUsers", "false"},
                                                    {"runAsUser", "8"}}));
  EXPECT_TRUE(ReadPod(*base::ParseJson(R"({"spec": {"containers": [{"env": {}}]}})"))->containers.at(0).terms.empty());
}

}  // namespace
}  // namespace hami::device
