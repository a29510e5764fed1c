// SPDX-License-Identifier: Apache-2.0
//
// Store<T>: the typed objects of one collection, kept by a Reflector, read by any thread. Objects are immutable and
// shared: a reader holds what it took for as long as it likes. An object that READ refuses is absent.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "kube/reflector.h"

namespace hami::kube {

template <typename T>
class Store : public Handler {
 public:
  using Ptr = std::shared_ptr<const T>;
  using Read = std::function<Result<T>(const json::value&)>;
  // BEFORE is null for a new object, AFTER for one that is gone. On the reflector's thread.
  using OnStored = std::function<void(const Ptr& before, const Ptr& after)>;

  explicit Store(Read read, OnStored on_stored = {}) : read_(std::move(read)), on_stored_(std::move(on_stored)) {}

  Ptr Get(std::string_view ns, std::string_view name) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(KeyOf(ns, name));
    return found == objects_.end() ? nullptr : found->second;
  }
  std::vector<Ptr> All() const {
    const std::shared_lock lock(mutex_);
    std::vector<Ptr> all;
    all.reserve(objects_.size());
    for (const auto& [key, object] : objects_) all.push_back(object);
    return all;
  }
  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return objects_.size();
  }

  void OnChange(const Change& change) override {
    Ptr after;
    if (change.type != ChangeType::kDeleted) {
      auto read = read_(*change.object);
      if (read) {
        after = std::make_shared<const T>(*std::move(read));
      } else {
        base::LogWarning("an object is left out: " + read.error().message);
      }
    }
    Ptr before;
    {
      const std::unique_lock lock(mutex_);
      const std::string key = KeyOf(change.ns, change.name);
      if (const auto found = objects_.find(key); found != objects_.end()) before = found->second;
      if (after) {
        objects_[key] = after;
      } else {
        objects_.erase(key);
      }
    }
    if (on_stored_ && (before || after)) on_stored_(before, after);
  }

 private:
  static std::string KeyOf(std::string_view ns, std::string_view name) {
    return std::string(ns).append("/").append(name);
  }

  const Read read_;
  const OnStored on_stored_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, Ptr> objects_;
};

}  // namespace hami::kube
