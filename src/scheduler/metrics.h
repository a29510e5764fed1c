// SPDX-License-Identifier: Apache-2.0
//
// What /metrics says: the cluster's cards, pods and quotas under HAMi's names (and, if wanted, its older ones),
// computed at scrape time, and what this program did, under names of its own with the prefix `hami_scheduler_`. A
// scrape copies a few nodes at a time out of the books, so that no decision waits for it longer than that.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/exposition.h"
#include "net/http.h"
#include "sched/ledger.h"

namespace hami::scheduler {

// Calls its argument with the books locked.
using ReadLedger = std::function<void(const std::function<void(const sched::Ledger&)>&)>;

// A copy of what the metrics of the cluster are made of.
struct Picture {
  struct Card {
    std::string uuid;
    std::string type;
    std::string index;
    device::MiB memory = 0;
    int cores = 0;
    device::CardState used;
    bool mig = false;
  };
  struct PodShare {
    std::string uuid;
    device::MiB memory = 0;
    std::int64_t cores = 0;
  };
  struct Pod {
    std::string ns;
    std::string name;
    std::vector<PodShare> shares;
    std::vector<device::MigReservation> instances;  // realised ones
  };
  struct Node {
    std::string name;
    std::vector<Card> cards;
    std::vector<Pod> pods;
  };
  std::vector<Node> nodes;  // in no order
  std::vector<sched::QuotaBooks::Line> quotas;
};
Picture TakePicture(const ReadLedger& read);

// One number of the program at the time of the scrape.
struct Reading {
  std::string_view name;  // those of one name stand together
  base::Exposition::Type type;
  std::string_view help;
  std::string_view label;  // one label at most; empty: none
  std::string_view label_value;
  double value = 0;
};

// Thread-safe.
class Metrics {
 public:
  struct Sources {
    ReadLedger ledger;
    std::function<std::vector<Reading>()> readings;  // may be empty
    bool legacy = false;
  };
  explicit Metrics(Sources sources);
  ~Metrics();

  void ObserveFilter(double seconds);
  void ObserveBind(double seconds);
  // RESULT: "patched", "unchanged", "denied", "unreadable", "busy".
  void CountAdmission(std::string_view result);

  // The whole answer to a scrape.
  void Write(net::BodyWriter& out) const;

 private:
  struct Instruments;
  void WriteInstruments(base::Exposition& out) const;
  const Sources sources_;
  const std::unique_ptr<Instruments> instruments_;
};

}  // namespace hami::scheduler
