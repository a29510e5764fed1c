// SPDX-License-Identifier: Apache-2.0

#include "plugin/resource_servers.h"

#include <algorithm>
#include <utility>

#include "plugin/mig_static.h"

namespace hami::plugin {

ResourceServers::ResourceServers(ServingOptions shares, KubeletBackend backend, AllocateParts allocate_parts)
    : options_(std::move(shares)),
      backend_(std::move(backend)),
      allocate_parts_(std::move(allocate_parts)),
      shares_(options_, backend_) {}

std::unique_ptr<Serving> ResourceServers::MakeParts(const std::string& resource) const {
  ServingOptions options = options_;
  options.resource_name = [resource] { return resource; };
  options.preferred_allocation = [] { return false; };
  KubeletBackend backend = backend_;
  backend.allocate = allocate_parts_;
  backend.prefer = [](const PreferredRequest& request) { return request.must_include; };
  backend.slots = [resource](const Cards& cards) { return ListParts(cards, resource); };
  return std::make_unique<Serving>(std::move(options), std::move(backend));
}

void ResourceServers::Start(std::function<void(const base::Error&)> on_give_up) {
  on_give_up_ = std::move(on_give_up);
  {
    const std::scoped_lock lock(mutex_);
    serves_ = true;
  }
  shares_.Start(on_give_up_);
  Follow(*backend_.board->Current());
}

void ResourceServers::Stop() {
  std::map<std::string, std::unique_ptr<Serving>> ended;
  {
    const std::scoped_lock lock(mutex_);
    serves_ = false;
    ended.swap(parts_);
  }
  shares_.Stop();
  for (const auto& [resource, serving] : ended) serving->Stop();
}

void ResourceServers::Restart() {
  shares_.Restart();
  const std::scoped_lock lock(mutex_);
  for (const auto& [resource, serving] : parts_) serving->Restart();
}

void ResourceServers::Look() {
  shares_.Look();
  const std::scoped_lock lock(mutex_);
  for (const auto& [resource, serving] : parts_) serving->Look();
}

void ResourceServers::Follow(const Cards& cards) {
  std::vector<std::unique_ptr<Serving>> ended;
  {
    const std::scoped_lock lock(mutex_);
    if (!serves_ || !cards.ready) return;
    const std::vector<std::string> resources = ResourcesOf(cards.parts);
    for (auto part = parts_.begin(); part != parts_.end();) {
      if (std::binary_search(resources.begin(), resources.end(), part->first)) {
        ++part;
        continue;
      }
      ended.push_back(std::move(part->second));
      part = parts_.erase(part);
    }
    for (const std::string& resource : resources) {
      std::unique_ptr<Serving>& serving = parts_[resource];
      if (serving != nullptr) continue;
      serving = MakeParts(resource);
      serving->Start(on_give_up_);
    }
  }
  ended.clear();  // waits for their threads
}

bool ResourceServers::registered() const {
  const std::scoped_lock lock(mutex_);
  return shares_.registered() &&
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part.second->registered(); });
}

std::string ResourceServers::trouble() const {
  const std::scoped_lock lock(mutex_);
  std::string trouble = shares_.trouble();
  for (const auto& [resource, serving] : parts_) {
    if (trouble.empty()) trouble = serving->trouble();
  }
  return trouble;
}

}  // namespace hami::plugin
