// SPDX-License-Identifier: Apache-2.0
//
// The commands of `hami`. Each carries out one set of options, prints its result to stdout and its complaints to
// stderr, and returns the exit status.

#pragma once

#include "cli/options.h"

namespace hami::cli {

int Run(const RunOptions& options);
int Set(const SetOptions& options);
int Ps(const PsOptions& options);
int Smi(const SmiOptions& options);
int Sim(const SimOptions& options);
int Config(const ConfigOptions& options);
int Cluster(const ClusterOptions& options);

}  // namespace hami::cli
