// SPDX-License-Identifier: Apache-2.0
//
// A node of its own for each test: a simulated 2×H100, an API server, the folder that containers are given, the built
// hami-monitor beside them, and guests that run under libvgpu.so as containers would. Whatever runs at the end of a
// test is killed.

#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "kube/testing/fake_apiserver.h"
#include "net/client.h"

namespace hami::test {

struct Process {
  pid_t pid = -1;
  base::Fd input;  // its stdin; closing it ends a guest
  std::string out_path;
  std::string err_path;

  std::string out() const;
  std::string err() const;
};

class Node : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  using Environment = std::map<std::string, std::string>;
  Process Start(const std::vector<std::string>& words, const Environment& environment);
  // Exit status, or 128 + signal.
  int Wait(const Process& process);

  // Starts the monitor and waits until it serves, and until it is ready.
  void StartServing(const std::vector<std::string>& flags = {});
  void StartMonitor(const std::vector<std::string>& flags = {});
  Process StartMonitorOnly(const std::vector<std::string>& flags, const Environment& more = {});
  net::Response Get(const std::string& target);
  // The value of the series whose name and labels contain all of PARTS.
  std::optional<double> Metric(const std::vector<std::string>& parts);

  // A pod with one container "main" that was granted MIB and CORES of GPU 0.
  void AddPod(const std::string& name, int mib, int cores, const std::string& node = "node-1");
  void Annotate(const std::string& pod, const std::string& key, const std::string& value);
  // A program in that container, with the environment that a device plugin gives it, and MORE.
  Process StartGuest(const std::string& pod, const std::vector<std::string>& arguments, int mib, int cores,
                     const Environment& more = {});
  std::string ContainerFolder(const std::string& pod) const;

  // Looks again until CONDITION holds; false after a generous while.
  static bool Eventually(const std::function<bool()>& condition);

  std::string folder_;
  const std::string uuid_ = "GPU-5ef1b8a0-0000-4000-8000-000000000001";  // of GPU 0
  std::unique_ptr<kube::FakeApiServer> api_;
  Process monitor_;

 private:
  Environment Machine() const;
  std::vector<pid_t> running_;
  int started_ = 0;
  std::unique_ptr<net::Client> http_;
};

}  // namespace hami::test
