// SPDX-License-Identifier: Apache-2.0
//
// hami-scheduler put together: client, books and what feeds them, the two listeners. Start fails only on what an
// operator has to repair (configuration, certificates, addresses in use); an API server that can not be reached is
// waited for. Stop answers what has begun, and then ends everything in the reverse order.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "scheduler/options.h"

namespace hami::scheduler {

class Program {
 public:
  // HOST: this machine's name, as it begins a lease's holder identity.
  static base::Result<std::unique_ptr<Program>> Start(const Options& options, const std::string& host);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Stop();

 private:
  class Parts;
  explicit Program(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hami::scheduler
