// SPDX-License-Identifier: Apache-2.0
// Device memory as a measured profile has it: in the steps in which it was measured, with the figures of the H200.
#include <vector>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class BlocksTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    setenv("SIMGPU_PROFILE", "h200", 1);
    std::ofstream(folder_ + "/config") << "gpus 1xH200\noption clock=virtual\n";
  }
};

// What the books grew by since the last look, in MiB.
std::int64_t Step() {
  static std::uint64_t last = 0;
  const std::uint64_t now = simgpu_used_bytes(0);
  const std::int64_t grown = static_cast<std::int64_t>(now) - static_cast<std::int64_t>(last);
  last = now;
  EXPECT_EQ(grown % static_cast<std::int64_t>(kMiB), 0);
  return grown / static_cast<std::int64_t>(kMiB);
}

CUdeviceptr Plain(std::size_t size) {
  CUdeviceptr p = 0;
  EXPECT_OK(cuMemAlloc_v2(&p, size));
  return p;
}

TEST_F(BlocksTest, GivenPlainMemory_ThenSmallOnesShareABlock) {
  RunWithContext([] {
    EXPECT_EQ(Step(), 518);
    std::vector<CUdeviceptr> all{Plain(1)};
    EXPECT_EQ(Step(), 2);
    for (int i = 0; i < 8; ++i) all.push_back(Plain(100'000));
    EXPECT_EQ(Step(), 0);
    all.push_back(Plain(kMiB + 1));
    EXPECT_EQ(Step(), 0);
    all.push_back(Plain(2 * kMiB + 1));
    EXPECT_EQ(Step(), 4);
    all.push_back(Plain(100 * kMiB));
    EXPECT_EQ(Step(), 100);
    for (const CUdeviceptr p : all) EXPECT_OK(cuMemFree_v2(p));
    EXPECT_EQ(Step(), -106);
  });
}

TEST_F(BlocksTest, GivenAPool_ThenItGrowsIn32MiBAndGivesAllBack) {
  RunWithContext([] {
    Step();
    CUstream s = nullptr;
    ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(Step(), 2);
    std::vector<CUdeviceptr> all;
    const std::pair<std::size_t, int> steps[] = {{1, 32},         {kMiB, 0},        {30 * kMiB, 0},
                                                 {33 * kMiB, 64}, {100 * kMiB, 96}, {1000 * kMiB, 992}};
    for (const auto& [size, grown] : steps) {
      all.push_back(0);
      ASSERT_OK(cuMemAllocAsync(&all.back(), size, s));
      EXPECT_OK(cuStreamSynchronize(s));
      EXPECT_EQ(Step(), grown) << size;
    }
    for (const CUdeviceptr p : all) EXPECT_OK(cuMemFreeAsync(p, s));
    EXPECT_EQ(Step(), 0);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(Step(), -1184);
  });
}

TEST_F(BlocksTest, GivenStreamsLocalMemoryAndLimits_ThenTheContextGrows) {
  RunWithContext([] {
    Step();
    CUstream s = nullptr;
    for (int i = 0; i < 64; ++i) EXPECT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(Step(), 34);
    CUmodule module = nullptr;
    CUfunction local = nullptr;
    ASSERT_OK(cuModuleLoadData(&module, "simgpu-image 1\nkernel k\n  local 16384\n"));
    ASSERT_OK(cuModuleGetFunction(&local, module, "k"));
    Step();
    EXPECT_OK(cuLaunchKernel(local, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
    EXPECT_EQ(Step(), 3960);
    EXPECT_OK(cuLaunchKernel(local, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
    EXPECT_EQ(Step(), 0);
    CUfunction allocates = nullptr;
    ASSERT_OK(cuModuleLoadData(&module, "simgpu-image 1\nkernel k\n  allocates\n"));
    ASSERT_OK(cuModuleGetFunction(&allocates, module, "k"));
    Step();
    EXPECT_OK(cuLaunchKernel(allocates, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
    EXPECT_EQ(Step(), 10);
    EXPECT_OK(cuLaunchKernel(allocates, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
    EXPECT_EQ(Step(), 0);
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 32 << 10));
    EXPECT_EQ(Step(), 4224);
    CUcontext second = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&second, 0, 0));
    EXPECT_EQ(Step(), 518);
    EXPECT_OK(cuCtxDestroy_v2(second));
    EXPECT_EQ(Step(), -518);
  });
  Run([] { EXPECT_EQ(Used(), 0u); });
}

TEST_F(BlocksTest, GivenAGraphOf1000Nodes_ThenItTakesABlock) {
  RunWithContext([] {
    CUgraph graph = nullptr;
    ASSERT_OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 1000; ++i) {
      CUgraphNode node = nullptr;
      ASSERT_OK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    }
    CUgraphExec exec = nullptr;
    Step();
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_EQ(Step(), 2);
    EXPECT_OK(cuGraphLaunch(exec, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(Step(), 0);
    EXPECT_OK(cuGraphExecDestroy(exec));
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_EQ(Step(), 0);
  });
  Run([] { EXPECT_EQ(Used(), 0u); });
}

// A block belongs to whoever is in it, whatever the order of what comes and goes; at the end nothing is left.
TEST_F(BlocksTest, GivenManySizesInAnyOrder_ThenTheBooksAreWhatTheBlocksTake) {
  RunWithContext([] {
    const std::uint64_t before = Used();
    std::vector<CUdeviceptr> live;
    std::uint64_t state = 1, bytes = 0;
    const auto random = [&state] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
    for (int i = 0; i < 20'000; ++i) {
      if (live.size() > 300 || (!live.empty() && random() % 2 == 0)) {
        const std::size_t at = random() % live.size();
        EXPECT_OK(cuMemFree_v2(live[at]));
        live[at] = live.back();
        live.pop_back();
      } else {
        bytes = std::size_t{1} << random() % 23;
        live.push_back(Plain(1 + random() % bytes));
      }
      ASSERT_EQ((Used() - before) % (2 * kMiB), 0u);
    }
    for (const CUdeviceptr p : live) EXPECT_OK(cuMemFree_v2(p));
    EXPECT_EQ(Used(), before);
  });
}

}  // namespace
}  // namespace simgpu::testing
