// SPDX-License-Identifier: Apache-2.0
// Clients of MPS: side by side, within their limits, and together in misfortune.
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class MpsTest : public TimedTest {
 protected:
  void SetUp() override {
    TimedTest::SetUp();
    setenv("CUDA_MPS_PIPE_DIRECTORY", (folder_ + "/pipe").c_str(), 1);
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  }
  void TearDown() override {
    if (daemon_ > 0) {
      kill(daemon_, SIGKILL);
      waitpid(daemon_, nullptr, 0);
    }
    TimedTest::TearDown();
  }

  void StartDaemon(const char* devices = nullptr) {
    daemon_ = fork();
    if (daemon_ == 0) {
      if (devices != nullptr) setenv("CUDA_VISIBLE_DEVICES", devices, 1);
      execl(SIMGPU_MPS_CONTROL, SIMGPU_MPS_CONTROL, "-f", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 500 && Tell("get_server_list").empty() && !up_; ++i) usleep(10'000);
    ASSERT_TRUE(up_);
  }

  // What the daemon answers.
  std::string Tell(const std::string& command) {
    const std::string line = "echo '" + command + "' | " SIMGPU_MPS_CONTROL " 2>/dev/null";
    FILE* out = popen(line.c_str(), "r");
    std::string text;
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, out) != nullptr) text += buffer;
    up_ = pclose(out) == 0;
    return text;
  }
  std::vector<int> Numbers(const std::string& command) {
    std::istringstream in(Tell(command));
    std::vector<int> all;
    for (int number = 0; in >> number;) all.push_back(number);
    return all;
  }
  static void Percent(const char* percent) { setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent, 1); }

  pid_t daemon_ = 0;
  bool up_ = false;
};

// A client that has joined, and does what it is told: a kernel, a fault, or an allocation.
class Client {
 public:
  enum class Do { kCheck, kFault, kEnd };

  Client()
      : child_([this] {
          CUcontext ctx = nullptr;
          CUresult joined = cuInit(0);
          if (joined == CUDA_SUCCESS) joined = cuDevicePrimaryCtxRetain(&ctx, 0);
          if (joined == CUDA_SUCCESS) joined = cuCtxSetCurrent(ctx);
          out_.Send(static_cast<int>(joined));
          for (;;) {
            switch (in_.Receive<Do>()) {
              case Do::kCheck:
                out_.Send(static_cast<int>(cuCtxSynchronize()));
                break;
              case Do::kFault:
                out_.Send(static_cast<int>(Fault()));
                break;
              case Do::kEnd:
                return;
            }
          }
        }),
        joined_(out_.Receive<int>()) {}
  ~Client() { End(); }

  int joined() const { return joined_; }
  int Ask(Do what) {
    in_.Send(what);
    return out_.Receive<int>();
  }
  void End() {
    if (!ended_) in_.Send(Do::kEnd);
    ended_ = true;
    EXPECT_EQ(child_.Join(), 0);
  }

 private:
  // A kernel that writes where no memory is.
  static CUresult Fault() {
    const Gpu gpu;
    std::uint64_t nowhere = 64;
    std::uint64_t bytes = 64;
    std::uint8_t value = 1;
    void* params[] = {&nowhere, &bytes, &value};
    EXPECT_OK(cuLaunchKernel(gpu.Function("fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
    return cuCtxSynchronize();
  }

  Pipe in_;
  Pipe out_;
  Child child_;
  int joined_ = 0;
  bool ended_ = false;
};

TEST_F(MpsTest, WithoutADaemonAProgramRunsWithoutMps) {
  Percent("25");
  RunWithContext([] {
    int value = -1;
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0));
    EXPECT_EQ(value, 0);
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_EQ(value, kSms);
  });
}

TEST_F(MpsTest, AClientSeesItsPartOfTheSms) {
  StartDaemon();
  Percent("25");
  RunWithContext([] {
    int value = -1;
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0));
    EXPECT_EQ(value, 1);
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_EQ(value, kSms / 4);
  });
  Tell("set_default_active_thread_percentage 10");
  const std::vector<int> servers = Numbers("get_server_list");
  ASSERT_EQ(servers.size(), 1U);
  Tell("set_active_thread_percentage " + std::to_string(servers[0]) + " 10");
  RunWithContext([] {
    int value = -1;
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_EQ(value, kSms / 10) << "a client can lower the server's share and not raise it";
  });
}

// Launches a kernel that fills the GPU for 20 ms, when all others have, and tells how long it took.
class Worker {
 public:
  Worker()
      : child_([this] {
          CUcontext ctx = nullptr;
          EXPECT_OK(cuInit(0));
          EXPECT_OK(cuDevicePrimaryCtxRetain(&ctx, 0));
          EXPECT_OK(cuCtxSetCurrent(ctx));
          const Gpu gpu;
          CUstream s = NewStream();
          CUevent start = Mark(s);
          EXPECT_OK(gpu.Launch(s, 20 * kMilli));
          CUevent end = Mark(s);
          out_.Send(std::int64_t{0});
          in_.Receive<int>();
          EXPECT_OK(cuCtxSynchronize());
          out_.Send(Between(start, end));
          in_.Receive<int>();
        }) {
    out_.Receive<std::int64_t>();
  }
  std::int64_t Took() {
    in_.Send(1);
    return out_.Receive<std::int64_t>();
  }
  void End() { in_.Send(1); }

 private:
  Pipe in_;
  Pipe out_;
  Child child_;
};

TEST_F(MpsTest, FourQuartersRunSideBySideAtAQuartersSpeed) {
  StartDaemon();
  Percent("25");
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(std::make_unique<Worker>());
  for (auto& worker : workers) EXPECT_EQ(worker->Took(), 80 * kMilli);
  Run([] { EXPECT_LT(simgpu_now_ns(), 100 * kMilli) << "taking turns they would take 320 ms together"; });
  for (auto& worker : workers) worker->End();
}

TEST_F(MpsTest, TwoWholesShareWhatThereIs) {
  StartDaemon();
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 2; ++i) workers.push_back(std::make_unique<Worker>());
  std::int64_t longest = 0;
  for (auto& worker : workers) longest = std::max(longest, worker->Took());
  EXPECT_GE(longest, 38 * kMilli);
  for (auto& worker : workers) worker->End();
}

TEST_F(MpsTest, MemoryBeyondTheLimitIsRefused) {
  StartDaemon();
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=256M", 1);
  RunWithContext([] {
    CUdeviceptr most = 0;
    CUdeviceptr more = 0;
    EXPECT_OK(cuMemAlloc_v2(&most, 256 * kMiB - kContext));
    EXPECT_EQ(cuMemAlloc_v2(&more, 512), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cuMemFree_v2(most));
    EXPECT_OK(cuMemAlloc_v2(&more, 512));
  });
}

TEST_F(MpsTest, TheServersMemoryLimitHoldsForWhoBringsNone) {
  StartDaemon();
  Tell("set_default_device_pinned_mem_limit 0 128M");
  EXPECT_EQ(Tell("get_default_device_pinned_mem_limit 0"), "128M\n");
  for (const char* own : {"", "0=512M"}) {
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", own, 1);
    RunWithContext([] {
      CUdeviceptr p = 0;
      EXPECT_EQ(cuMemAlloc_v2(&p, 65 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_OK(cuMemAlloc_v2(&p, 63 * kMiB));
    });
  }
}

TEST_F(MpsTest, AFaultOfOneIsTheEndOfAll) {
  StartDaemon();
  Client first;
  Client second;
  ASSERT_EQ(first.joined(), CUDA_SUCCESS);
  ASSERT_EQ(second.joined(), CUDA_SUCCESS);
  EXPECT_EQ(second.Ask(Client::Do::kCheck), CUDA_SUCCESS);
  const std::vector<int> servers = Numbers("get_server_list");
  ASSERT_EQ(servers.size(), 1U);
  EXPECT_EQ(Numbers("get_client_list " + std::to_string(servers[0])).size(), 2U);
  EXPECT_EQ(first.Ask(Client::Do::kFault), CUDA_ERROR_ILLEGAL_ADDRESS);
  for (int i = 0; i < 100 && second.Ask(Client::Do::kCheck) == CUDA_SUCCESS; ++i) usleep(10'000);
  EXPECT_EQ(second.Ask(Client::Do::kCheck), CUDA_ERROR_MPS_CLIENT_TERMINATED);
  EXPECT_EQ(Tell("get_server_status " + std::to_string(servers[0])), "FAULT\n");
  {
    Client third;
    EXPECT_EQ(third.joined(), CUDA_ERROR_MPS_SERVER_NOT_READY);
  }
  first.End();
  second.End();
  for (int i = 0; i < 100 && Tell("get_server_status " + std::to_string(servers[0])) == "FAULT\n"; ++i) usleep(10'000);
  Client fourth;
  EXPECT_EQ(fourth.joined(), CUDA_SUCCESS);
}

TEST_F(MpsTest, AServerThatIsKilledTakesItsClientsAlong) {
  StartDaemon();
  Client client;
  ASSERT_EQ(client.joined(), CUDA_SUCCESS);
  const std::vector<int> servers = Numbers("get_server_list");
  ASSERT_EQ(servers.size(), 1U);
  kill(servers[0], SIGKILL);
  for (int i = 0; i < 100 && client.Ask(Client::Do::kCheck) == CUDA_SUCCESS; ++i) usleep(10'000);
  EXPECT_EQ(client.Ask(Client::Do::kCheck), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_TRUE(Numbers("get_server_list").empty());
  Client next;
  EXPECT_EQ(next.joined(), CUDA_SUCCESS) << "the daemon starts another server";
}

TEST_F(MpsTest, TheFortyNinthClientIsRefused) {
  StartDaemon();
  std::vector<std::unique_ptr<Client>> clients;
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "", 1);
  std::ofstream(folder_ + "/config", std::ios::app) << "option context_mib=1\n";
  for (int i = 0; i < 48; ++i) {
    clients.push_back(std::make_unique<Client>());
    ASSERT_EQ(clients.back()->joined(), CUDA_SUCCESS) << i;
  }
  Client late;
  EXPECT_EQ(late.joined(), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
}

TEST_F(MpsTest, OnlyTheDaemonsDevicesAreSeen) {
  Pipe names;
  Run([&] {
    CUuuid uuid{};
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetUuid_v2(&uuid, 1));
    names.Send(uuid);
  });
  const auto second = names.Receive<CUuuid>();
  StartDaemon("1");
  Run([&] {
    int count = 0;
    CUuuid uuid{};
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 1);
    EXPECT_OK(cuDeviceGetUuid_v2(&uuid, 0));
    EXPECT_EQ(std::memcmp(&uuid, &second, sizeof uuid), 0);
  });
}

TEST_F(MpsTest, ExclusiveProcessLetsClientsInAndNobodyElse) {
  Child machine([] {
    char error[256] = "";
    EXPECT_EQ(simgpu_inject("set device=0 compute_mode=3", error, sizeof error), 1) << error;
  });
  machine.Join();
  StartDaemon();
  Client first;
  Client second;
  EXPECT_EQ(first.joined(), CUDA_SUCCESS);
  EXPECT_EQ(second.joined(), CUDA_SUCCESS);
  const std::string pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
  setenv("CUDA_MPS_PIPE_DIRECTORY", (folder_ + "/nowhere").c_str(), 1);
  {
    Client stranger;
    EXPECT_EQ(stranger.joined(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  }
  first.End();
  second.End();
  Client alone;
  EXPECT_EQ(alone.joined(), CUDA_SUCCESS);
  setenv("CUDA_MPS_PIPE_DIRECTORY", pipe.c_str(), 1);
  Client late;
  EXPECT_EQ(late.joined(), CUDA_ERROR_DEVICE_UNAVAILABLE) << "a program without MPS has the GPU";
}

TEST_F(MpsTest, AForkedChildIsNoClient) {
  StartDaemon();
  Client client;
  const std::vector<int> servers = Numbers("get_server_list");
  ASSERT_EQ(servers.size(), 1U);
  const auto clients = [&] { return Numbers("get_client_list " + std::to_string(servers[0])).size(); };
  EXPECT_EQ(clients(), 1U);
  Pipe in;
  Pipe out;
  Child parent([&] {
    EXPECT_OK(cuInit(0));
    if (fork() == 0) {
      in.Receive<int>();
      _exit(0);
    }
    out.Send(1);
  });
  out.Receive<int>();
  parent.Join();
  for (int i = 0; i < 100 && clients() != 1; ++i) usleep(10'000);
  EXPECT_EQ(clients(), 1U) << "the child of a client that ended keeps no place";
  in.Send(1);
}

}  // namespace
}  // namespace simgpu::testing
