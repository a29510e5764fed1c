// SPDX-License-Identifier: Apache-2.0

#include <iostream>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/commands.h"

namespace {

struct Dispatch {
  int operator()(const hami::cli::RunOptions& options) const { return hami::cli::Run(options); }
  int operator()(const hami::cli::SetOptions& options) const { return hami::cli::Set(options); }
  int operator()(const hami::cli::PsOptions& options) const { return hami::cli::Ps(options); }
  int operator()(const hami::cli::SmiOptions& options) const { return hami::cli::Smi(options); }
  int operator()(const hami::cli::SimOptions& options) const { return hami::cli::Sim(options); }
  int operator()(const hami::cli::Message& message) const {
    (message.exit_status == 0 ? std::cout : std::cerr) << message.text << std::flush;
    return message.exit_status;
  }
};

}  // namespace

int main(int argc, char** argv) {
  hami::base::StartLog("hami");
  const hami::cli::Options options = hami::cli::ParseOptions({argv + (argc > 0 ? 1 : 0), argv + argc});
  const int status = std::visit(Dispatch{}, options);
  if (std::cout.flush()) return status;
  hami::base::LogError("can not write to standard output");
  if (status != 0) return status;
  return std::holds_alternative<hami::cli::RunOptions>(options) ? hami::cli::kRunFailed : hami::cli::kFailed;
}
