// SPDX-License-Identifier: Apache-2.0
//
// One measurement of a scheduler: a cluster of so many nodes and running pods in an in-memory API server, an extender
// beside it, and a driver that behaves like kube-scheduler (one Filter at a time, bindings beside it) and like the
// kubelet (a bound pod is taken over by its plugin at once). The extender is hami-scheduler, or nothing but a binding.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "kube/testing/fake_apiserver.h"
#include "test/integration/child.h"

namespace hami::bench {

struct CellOptions {
  int nodes = 100;
  int running = 0;
  int pods = 2000;        // placed per phase, at most
  int binders = 4;        // bindings at once
  int seconds = 30;       // a phase ends after this long, however many pods were placed
  bool locks = false;     // nodes whose plugin needs HAMi's node lock
  bool mixed = false;     // every vendor is configured, and each fourth node with its running pods is AMD's
  std::string scheduler;  // path of the program
  std::string self;       // our own, for the null extender
  std::string folder;     // for files
};

struct Phase {
  std::size_t names = 0;  // in a Filter request
  int placed = 0;
  int failed = 0;
  std::string first_failure;
  double per_second = 0;    // pods placed
  double alone_p50_ms = 0;  // of Filter with nothing beside it
  double alone_p99_ms = 0;
  double filter_p50_ms = 0;  // with bindings beside it
  double filter_p99_ms = 0;
  double cpu_ms = 0;   // of the extender, per pod
  double calls = 0;    // of the API server, per pod
  double rss_mib = 0;  // of the extender, afterwards
};

class Cell {
 public:
  explicit Cell(CellOptions options);
  ~Cell();

  // Starts the extender and waits until it has read the cluster and is quiet.
  base::Status StartScheduler();
  base::Status StartNull();
  void StopExtender() { child_.reset(); }

  // Names as kube-scheduler samples them (EVERY false), or all of them.
  base::Result<Phase> Place(bool every);
  std::size_t NamesOf(bool every) const;
  // The first line of each of these metrics in one scrape; 0 where there is none.
  std::vector<double> Metrics(const std::vector<std::string>& names) const;
  double rss_mib(const char* field = "VmRSS:") const;

 private:
  struct Run;
  base::Status WaitUntilQuiet();
  double CpuMs() const;
  std::string Scrape() const;
  void FilterAll(Run& run);
  void BindAll(Run& run);
  bool IsAmd(int node) const { return options_.mixed && node % 4 == 3; }
  void Plugin(const base::json::value& pod, const std::string& node);

  const CellOptions options_;
  kube::FakeApiServer api_;
  std::vector<std::string> names_;
  std::unique_ptr<testcluster::Child> child_;
  std::string main_port_, metrics_port_;
  std::size_t window_ = 0;  // where the next sample of names begins
  int serial_ = 0;          // of pods
};

}  // namespace hami::bench
