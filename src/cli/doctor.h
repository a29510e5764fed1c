// SPDX-License-Identifier: Apache-2.0
//
// `hami doctor`: what is wrong with this machine, or with `hami doctor cluster` with a cluster, and what to do about
// it. Looks, and changes nothing but the folder of shares, which every command makes.

#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/options.h"
#include "cluster/doctor.h"
#include "cluster/document.h"

namespace hami::cli {

struct DoctorOptions {
  bool cluster = false;
  cluster::Source source;
  std::string kubelet_folder = "/var/lib/kubelet/device-plugins";
  Output output = Output::kTable;
};

// ARGUMENTS without the program's name and the word `doctor`.
std::variant<DoctorOptions, Message> ParseDoctor(const std::vector<std::string>& arguments);

std::vector<cluster::Finding> ExamineMachine(const DoctorOptions& options);

int DoctorMain(const std::vector<std::string>& arguments);

}  // namespace hami::cli
