// SPDX-License-Identifier: Apache-2.0
//
// The page at work in hami-scheduler: what of the books is shown, what the nodes' monitors say of use, and the
// listener. Reads the books and changes nothing; a reader costs decisions no more than a scrape of the metrics does,
// and has neither their threads nor their connections. A port that is taken ends the start only where the port was
// asked for.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "kube/client.h"
#include "net/cancel.h"
#include "net/server.h"
#include "page/live.h"
#include "page/sampler.h"
#include "page/use_history.h"
#include "page/waiting.h"
#include "scheduler/books.h"
#include "scheduler/events.h"
#include "scheduler/options.h"

namespace hami::scheduler {

class PageService {
 public:
  static constexpr std::size_t kConnections = 64;

  struct Needs {
    const Books& books;
    kube::Client& client;
    Time& time;
    std::function<bool()> leads;
    std::function<bool()> complete;
    const net::Canceller& stop;  // ends every wait
  };
  // EPOCH: of this start, unlike any other's.
  PageService(const Options& options, std::string epoch, Needs needs);
  ~PageService();
  PageService(const PageService&) = delete;
  PageService& operator=(const PageService&) = delete;

  // Of the pods that wait: what was decided, and that one waits no more.
  void Decided(const PodName& pod, const sched::Decision& decision);
  void Settled(std::string_view uid) { waiting_.Gone(uid); }

  base::Status Start();
  void Stop();

 private:
  page::Snapshot Take();

  const Options& options_;
  const Needs needs_;
  page::Waiting waiting_;
  page::Live live_;
  page::UseHistory use_;
  page::Sampler sampler_;
  std::unique_ptr<net::Server> server_;
};

}  // namespace hami::scheduler
