// SPDX-License-Identifier: Apache-2.0
// Processes that start together. Each says how far it is by files in GUEST_FOLDER, and goes on when the test says so.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "test/preload/guest.h"

namespace guest {
namespace {

std::string InFolder(const std::string& name) { return std::string(std::getenv("GUEST_FOLDER")) + "/" + name; }

void Say(const std::string& name) { close(open(InFolder(name).c_str(), O_CREAT | O_WRONLY, 0600)); }

void Await(const std::string& name) {
  for (int waits = 0; access(InFolder(name).c_str(), F_OK) != 0; ++waits) {
    EXPECT(waits < 60'000);
    usleep(1000);
  }
}

// NAME: makes its context together with others.
SCENARIO(start_beside) {
  const std::string& name = arguments.at(0);
  OK(cuInit(0));
  Say(name + ".up");
  Await("go");
  Begin();
  Say(name + ".made");
  Await("end");
}

// NAME BYTES: makes its context together with others, and asks for memory when all have theirs, or others are about to
// start. Whether it got it is a file's name.
SCENARIO(start_and_ask) {
  const std::string& name = arguments.at(0);
  OK(cuInit(0));
  Say(name + ".up");
  Await("go");
  Begin();
  Say(name + ".made");
  Await("ask");
  CUdeviceptr block = 0;
  const CUresult result = cuMemAlloc_v2(&block, std::strtoull(arguments.at(1).c_str(), nullptr, 10));
  if (result == CUDA_SUCCESS) Say(name + ".got");
  Say(name + (result == CUDA_ERROR_OUT_OF_MEMORY ? ".refused" : ".done"));
  Await("end");
}

// NAME BYTES: takes them and gives them back, again and again.
SCENARIO(start_and_churn) {
  const std::string& name = arguments.at(0);
  Begin();
  Say(name + ".made");
  while (access(InFolder("end").c_str(), F_OK) != 0) {
    CUdeviceptr block = 0;
    OK(cuMemAlloc_v2(&block, std::strtoull(arguments.at(1).c_str(), nullptr, 10)));
    OK(cuMemFree_v2(block));
  }
}

// NAME: loads a module and gives it back.
SCENARIO(start_and_unload) {
  const std::string& name = arguments.at(0);
  Begin();
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, "simgpu-image 1\ncode 64K\nkernel spin\n  cost total 1us\nglobal room 1M\n"));
  OK(cuModuleUnload(module));
  Say(name + ".made");
  Await("end");
}

// PATH: closes its descriptors as a daemon does; its data gets the number of stderr.
SCENARIO(daemon_closes_all) {
  for (int fd = 0; fd < 3; ++fd) close(fd);
  for (int fd = 0; fd < 3; ++fd) {
    if (open(fd == 2 ? arguments.at(0).c_str() : "/dev/null", O_CREAT | O_WRONLY | O_APPEND, 0600) != fd) _exit(3);
  }
  if (write(2, "data", 4) != 4) _exit(4);
  Begin();
  _exit(0);
}

}  // namespace
}  // namespace guest
