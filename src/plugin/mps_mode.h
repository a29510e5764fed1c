// SPDX-License-Identifier: Apache-2.0
//
// Mode mps on this node: a control daemon for each GPU from its first container on, what that container is given of it,
// and which GPUs must not be given out because their daemon does not serve. Thread-safe. Refuses a container on several
// GPUs: a program can be the client of one daemon only.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "mps/daemons.h"
#include "plugin/inventory.h"
#include "plugin/options.h"
#include "plugin/record.h"
#include "plugin/response.h"

namespace hami::plugin {

struct MpsHooks {
  std::function<void(const std::string& uuid, const mps::Notice& notice)> on_notice;
  std::function<void()> on_change;  // of Troubles
};

class MpsMode {
 public:
  MpsMode(const Options& options, MpsHooks hooks);

  // The GPUs that RECORDS share have their daemons; those of an earlier life that none shares end. An error: there is
  // no control program, and no GPU of CARDS is served.
  base::Status Enter(const Cards& cards, const Records& records);
  // An error while some daemon has not ended.
  base::Status Leave();

  // The daemon that RECORD's container is a client of serves within a few seconds.
  base::Result<MpsShare> Serve(const Record& record, const Cards& cards);

  // GPUs of which no share can be given out, and why.
  Troubles CurrentTroubles() const;
  // Processes on the GPUs that are the daemons' own.
  std::set<int> Servers() const;
  std::map<std::string, mps::Memory> Look() const;

  // No hook is called after it. The daemons go on.
  void Stop();

 private:
  mps::Daemons& Get();

  const Options& options_;
  const MpsHooks hooks_;
  mutable std::mutex mutex_;
  std::unique_ptr<mps::Daemons> daemons_;  // made when they are first needed, and stays
  Troubles unserved_;                      // for want of a control program
};

// The clients' limits that the daemon of each card in RECORDS has to allow: the highest of its containers'.
std::map<std::string, mps::Limits> DaemonLimits(const Records& records, const Cards& cards);

std::string RenderMpsMetrics(const std::string& node, const std::map<std::string, mps::Memory>& daemons);

}  // namespace hami::plugin
