// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA: fractions of a GPU by memory and cores, whole GPUs, MIG instances made on demand, NVLink topology. Follows
// HAMi 2.10 in what a request means and in which card it gets.

#pragma once

#include "device/config.h"
#include "device/vendor.h"

namespace hami::device {

// Which cards a pod accepts.
inline constexpr const char* kUseType = "nvidia.com/use-gputype";
inline constexpr const char* kAvoidType = "nvidia.com/nouse-gputype";
inline constexpr const char* kUseUuid = "nvidia.com/use-gpuuuid";
inline constexpr const char* kAvoidUuid = "nvidia.com/nouse-gpuuuid";
inline constexpr const char* kNumaBind = "nvidia.com/numa-bind";
inline constexpr const char* kMode = "nvidia.com/vgpu-mode";

class NvidiaVendor final : public Vendor {
 public:
  explicit NvidiaVendor(NvidiaConfig config) : config_(std::move(config)) {}

  std::string_view key() const override { return "NVIDIA"; }
  std::string_view to_allocate_annotation() const override { return "hami.io/vgpu-devices-to-allocate"; }
  std::string_view allocated_annotation() const override { return "hami.io/vgpu-devices-allocated"; }
  std::string_view register_annotation() const override { return "hami.io/node-nvidia-register"; }
  std::string_view handshake_annotation() const override { return "hami.io/node-handshake"; }
  std::string_view count_resource() const override { return config_.count_resource; }
  bool may_do_without_lock() const override { return true; }
  QuotaResources quota_resources() const override;
  std::vector<std::string_view> resources() const override;

  base::Result<std::optional<Request>> ParseRequest(const Container& container) const override;
  std::optional<Request> MostOf(const Container& container) const override;
  CardRules ParseRules(const StringMap& annotations) const override;
  base::Result<NodeCards> ReadNode(const NodeFacts& node) const override;
  FitResult Fit(const FitInput& input) const override;
  bool MaySharePhysicalCards(const FitInput& input) const override;
  base::Result<bool> Mutate(base::json::object& container, PodDraft& pod, Warnings& warnings) const override;
  void Remark(const StringMap& annotations, Warnings& warnings) const override;

 private:
  NvidiaConfig config_;
};

// The resources of HAMi's own device-config.yaml, where there is none.
NvidiaConfig HamisNames();

}  // namespace hami::device
