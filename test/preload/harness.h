// SPDX-License-Identifier: Apache-2.0
//
// Runs guest programs under the library on a simulated GPU that nobody else uses: each test has its own machine, region
// file and folder, all gone with it. A guest says what is wrong on stderr and by its exit status.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace preload {

using Environment = std::map<std::string, std::string>;

struct Outcome {
  int status = -1;  // as from waitpid
  std::string out;
  std::string err;
  bool ok() const { return status == 0; }
};

class Preload : public testing::Test {
 protected:
  Preload();
  ~Preload() override;

  // Runs `preload_guest scenario arguments…` to its end.
  Outcome Run(std::vector<std::string> arguments, const Environment& extra = {});
  Outcome RunProgram(const std::string& program, std::vector<std::string> arguments, const Environment& extra = {});
  // Starts one and goes on. Wait collects it.
  pid_t Start(std::vector<std::string> arguments, const Environment& extra = {});
  int Wait(pid_t pid);

  // Expects the scenario to succeed, once in `tries_` times.
  void Pass(const std::vector<std::string>& arguments, const Environment& extra = {});

  const std::string& folder() const { return folder_; }
  std::string region() const { return folder_ + "/region.cache"; }
  std::string machine() const { return folder_ + "/machine"; }

  // More than one where a host that has no processor for the guest can fail it, and where what is wrong with the
  // library fails it each time.
  int tries_ = 1;

  // What every run of this test gets; a value of "-" removes a name.
  Environment environment_;

 private:
  std::string folder_;
};

}  // namespace preload
