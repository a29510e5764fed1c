// SPDX-License-Identifier: Apache-2.0
//
// Where a Reflector gets its objects from: a list and the changes since. In production the API server; in tests
// anything that behaves as badly as one.

#pragma once

#include <string>

#include "kube/client.h"

namespace hami::kube {

class ListWatcher {
 public:
  virtual ~ListWatcher() = default;
  virtual Result<std::string> List(const ListSink& sink, const net::Canceller& stop) = 0;
  virtual Status Watch(const std::string& resource_version, std::chrono::seconds timeout, const OnWatchEvent& on_event,
                       const net::Canceller& stop) = 0;
  // For every later watch. A source that has nothing to save by it need not ask.
  virtual void SetKnown(const AlreadyKnown& /*known*/) {}
};

class ApiListWatcher : public ListWatcher {
 public:
  // CLIENT must outlive this. Empty NS: all namespaces. PARTS and READ as in CallContext.
  ApiListWatcher(Client& client, const Resource& resource, std::string ns = {}, Selection selection = {},
                 std::uint32_t page = 500, base::Parts parts = {}, ReadObject read = {})
      : client_(client),
        resource_(resource),
        ns_(std::move(ns)),
        selection_(std::move(selection)),
        page_(page),
        parts_(parts),
        read_(std::move(read)) {}

  Result<std::string> List(const ListSink& sink, const net::Canceller& stop) override {
    return client_.List(resource_, ns_, {selection_, page_}, sink, {&stop, {}, parts_, read_});
  }
  Status Watch(const std::string& resource_version, std::chrono::seconds timeout, const OnWatchEvent& on_event,
               const net::Canceller& stop) override {
    return client_.Watch(resource_, ns_, {selection_, resource_version, timeout, known_}, on_event,
                         {&stop, {}, parts_, read_});
  }
  void SetKnown(const AlreadyKnown& known) override { known_ = known; }

 private:
  Client& client_;
  const Resource resource_;
  const std::string ns_;
  const Selection selection_;
  const std::uint32_t page_;
  const base::Parts parts_;
  const ReadObject read_;
  AlreadyKnown known_;
};

}  // namespace hami::kube
