// SPDX-License-Identifier: Apache-2.0

#include "scheduler/metrics.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/build_info.h"

#if defined(__aarch64__)
#define HAMI_ARCHITECTURE "arm64"
#else
#define HAMI_ARCHITECTURE "amd64"
#endif

namespace hami::scheduler {
namespace {

constexpr double kMiB = 1048576;
// Nodes that are copied out of the books in one go.
constexpr sched::NodeId kNodesAtOnce = 16;
constexpr auto kGauge = base::Exposition::Type::kGauge;
constexpr base::Exposition::Label kZone{"zone", "vGPU"};
constexpr std::array<std::string_view, 5> kAdmissionResults = {"busy", "denied", "patched", "unchanged", "unreadable"};

Picture::Pod CopyPod(const sched::PodRecord& record) {
  Picture::Pod pod{record.ns, record.name, {}, {}};
  pod.shares.reserve(record.charge.cards.size());
  for (const sched::PodCharge& charge : record.charge.cards) {
    pod.shares.push_back({charge.uuid, charge.memory, charge.percent});
  }
  for (const device::MigReservation& reservation : record.allocation.reservations) {
    if (reservation.Realised()) pod.instances.push_back(reservation);
  }
  return pod;
}

Picture::Node CopyNode(const sched::Ledger& ledger, const sched::Node& node) {
  Picture::Node copy{node.name(), {}, {}};
  copy.cards.reserve(node.devices().size());
  for (std::size_t i = 0; i < node.devices().size(); ++i) {
    const device::Device& device = node.devices()[i];
    const device::Vendor& vendor = *ledger.vendors()[static_cast<std::size_t>(node.vendor_of(i))];
    device::CardState used = node.used()[i];
    used.cores = vendor.CorePercent(device, used.cores);
    copy.cards.push_back({device.uuid, device.type, std::to_string(device.index), device.memory,
                          static_cast<int>(vendor.CorePercent(device, device.cores)), used, device.IsMig()});
  }
  copy.pods.reserve(node.pods.size());
  for (const sched::PodId id : node.pods) copy.pods.push_back(CopyPod(ledger.pod(id)));
  return copy;
}

// Walks the picture once per metric: the format wants the lines of a metric together.
class ClusterWriter {
 public:
  ClusterWriter(base::Exposition& out, const Picture& picture) : out_(out), picture_(picture) {}

  void WriteAll() {
    Cards("hami_gpu_memory_limit_bytes", "Device memory of a card", kTyped,
          [](const Picture::Card& card) { return static_cast<double>(card.memory) * kMiB; });
    Cards("hami_gpu_core_limit_ratio", "Cores of a card in percent", kTyped,
          [](const Picture::Card& card) { return card.cores; });
    Cards("hami_gpu_memory_allocated_bytes", "Device memory of a card that pods hold", kTyped | kCores, UsedBytes);
    Cards("hami_gpu_shared_count", "Shares of a card that pods hold", kTyped,
          [](const Picture::Card& card) { return card.used.slots; });
    Cards("hami_gpu_core_allocated_ratio", "Cores of a card that pods hold, in percent", kTyped,
          [](const Picture::Card& card) { return card.used.cores; });
    Cards("hami_node_gpu_overview", "Device memory of a card that pods hold, with the card's sizes",
          kTyped | kCores | kMemory, UsedBytes);
    Ratios("hami_node_gpu_memory_allocated_ratio", "Part of a card's device memory that pods hold", kTyped);
    MigInstances();
    Quotas();
    Shares("hami_vgpu_memory_allocated_bytes", "Device memory of a card that a pod holds", kNewShare,
           [](const Picture::PodShare& share) { return static_cast<double>(share.memory) * kMiB; });
    Shares("hami_vgpu_core_allocated_ratio", "Cores of a card that a pod holds, in percent", kNewShare,
           [](const Picture::PodShare& share) { return share.cores; });
  }

  void WriteLegacy() {
    names_ = kOldCard;
    Cards("GPUDeviceMemoryLimit", "Device memory of a card in bytes", kTyped,
          [](const Picture::Card& card) { return static_cast<double>(card.memory) * kMiB; });
    Cards("GPUDeviceCoreLimit", "Cores of a card in percent", kTyped,
          [](const Picture::Card& card) { return card.cores; });
    Cards("GPUDeviceMemoryAllocated", "Device memory of a card that pods hold, in bytes", kTyped | kCores, UsedBytes);
    Cards("GPUDeviceSharedNum", "Shares of a card that pods hold", kTyped,
          [](const Picture::Card& card) { return card.used.slots; });
    Cards("GPUDeviceCoreAllocated", "Cores of a card that pods hold, in percent", kTyped,
          [](const Picture::Card& card) { return card.used.cores; });
    Cards("nodeGPUOverview", "Device memory of a card that pods hold, with the card's sizes", kTyped | kCores | kMemory,
          UsedBytes);
    Ratios("nodeGPUMemoryPercentage", "Part of a card's device memory that pods hold", 0);
    LegacyMigInstances();
    LegacyQuotas();
    Shares("vGPUMemoryAllocated", "Device memory of a card that a pod holds, in bytes", kOldShare,
           [](const Picture::PodShare& share) { return static_cast<double>(share.memory) * kMiB; });
    Shares("vGPUCoreAllocated", "Cores of a card that a pod holds, in percent", kOldShare,
           [](const Picture::PodShare& share) { return share.cores; });
  }

 private:
  // What a card's line names beside node, uuid and index.
  enum : unsigned { kTyped = 1, kCores = 2, kMemory = 4 };
  struct CardNames {
    std::string_view node, uuid, index, type, cores, memory;
  };
  struct ShareNames {
    std::string_view ns, node, pod, container, uuid;
  };
  static constexpr CardNames kNewCard{"node",        "device_uuid",  "device_index",
                                      "device_type", "device_cores", "device_memory_limit"};
  static constexpr CardNames kOldCard{"nodeid",     "deviceuuid",  "deviceidx",
                                      "devicetype", "devicecores", "devicememorylimit"};
  static constexpr ShareNames kNewShare{"namespace", "node", "pod", "container_index", "device_uuid"};
  static constexpr ShareNames kOldShare{"podnamespace", "nodename", "podname", "containeridx", "deviceuuid"};

  static double UsedBytes(const Picture::Card& card) { return static_cast<double>(card.used.memory) * kMiB; }

  void CardLine(const Picture::Node& node, const Picture::Card& card, unsigned more, double value) {
    const auto line = [&](std::initializer_list<base::Exposition::Label> extra) {
      out_.Line({kZone, {names_.node, node.name}, {names_.uuid, card.uuid}, {names_.index, card.index}}, value, extra);
    };
    const std::string cores = std::to_string(card.used.cores);
    const std::string memory = std::to_string(card.memory);
    if ((more & kMemory) != 0) {
      line({{names_.type, card.type}, {names_.cores, cores}, {names_.memory, memory}});
    } else if ((more & kCores) != 0) {
      line({{names_.type, card.type}, {names_.cores, cores}});
    } else if ((more & kTyped) != 0) {
      line({{names_.type, card.type}});
    } else {
      line({});
    }
  }

  template <typename Value>
  void Cards(std::string_view name, std::string_view help, unsigned more, Value value) {
    out_.Family(name, kGauge, help);
    for (const Picture::Node& node : picture_.nodes) {
      for (const Picture::Card& card : node.cards) CardLine(node, card, more, static_cast<double>(value(card)));
    }
  }

  void Ratios(std::string_view name, std::string_view help, unsigned more) {
    out_.Family(name, kGauge, help);
    for (const Picture::Node& node : picture_.nodes) {
      for (const Picture::Card& card : node.cards) {
        if (card.memory <= 0) continue;
        CardLine(node, card, more, static_cast<double>(card.used.memory) / static_cast<double>(card.memory));
      }
    }
  }

  template <typename Value>
  void Shares(std::string_view name, std::string_view help, const ShareNames& names, Value value) {
    out_.Family(name, kGauge, help);
    for (const Picture::Node& node : picture_.nodes) {
      for (const Picture::Pod& pod : node.pods) {
        for (const Picture::PodShare& share : pod.shares) {
          // Usage is one number per pod and card, so that there is only container 0.
          out_.Line({kZone,
                     {names.ns, pod.ns},
                     {names.node, node.name},
                     {names.pod, pod.name},
                     {names.container, "0"},
                     {names.uuid, share.uuid}},
                    static_cast<double>(value(share)));
        }
      }
    }
  }

  template <typename Visit>
  void ForEachInstance(Visit visit) {
    for (const Picture::Node& node : picture_.nodes) {
      for (const Picture::Pod& pod : node.pods) {
        for (const device::MigReservation& instance : pod.instances) {
          for (const Picture::Card& card : node.cards) {
            if (card.mig && card.uuid == instance.gpu_uuid) visit(node, card, instance);
          }
        }
      }
    }
  }

  void MigInstances() {
    out_.Family("hami_node_gpu_mig_instance_info", kGauge, "A MIG instance that a pod uses");
    ForEachInstance([&](const auto& node, const auto& card, const device::MigReservation& instance) {
      out_.Line({kZone,
                 {"node", node.name},
                 {"device_uuid", card.uuid},
                 {"device_index", card.index},
                 {"mig_uuid", instance.mig_uuid},
                 {"profile", instance.profile},
                 {"gpu_instance_id", std::to_string(instance.gpu_instance)},
                 {"compute_instance_id", std::to_string(instance.compute_instance)},
                 {"placement_start", std::to_string(instance.placement.start)},
                 {"placement_size", std::to_string(instance.placement.size)}},
                1);
    });
  }

  void LegacyMigInstances() {
    out_.Family("nodeGPUMigInstance", kGauge, "A MIG instance that a pod uses");
    ForEachInstance([&](const auto& node, const auto& card, const device::MigReservation& instance) {
      out_.Line({kZone,
                 {"nodeid", node.name},
                 {"deviceuuid", card.uuid},
                 {"deviceidx", card.index},
                 {"migname", instance.profile + "-" + std::to_string(instance.gpu_instance)}},
                1);
    });
  }

  void Quotas() {
    out_.Family("hami_resource_quota_used", kGauge, "What a namespace holds of a resource that a quota may limit");
    for (const sched::QuotaBooks::Line& line : picture_.quotas) {
      out_.Line({kZone,
                 {"namespace", line.ns},
                 {"quota_name", line.resource},
                 {"limit", std::to_string(line.limit.value_or(0))}},
                static_cast<double>(line.used));
    }
    out_.Family("hami_resource_quota_limit", kGauge, "The smallest limit of a namespace's quotas, as written there");
    for (const sched::QuotaBooks::Line& line : picture_.quotas) {
      if (!line.limit) continue;
      out_.Line({kZone, {"namespace", line.ns}, {"quota_name", line.resource}}, static_cast<double>(*line.limit));
    }
  }

  void LegacyQuotas() {
    out_.Family("QuotaUsed", kGauge, "What a namespace holds of a resource that a quota may limit");
    for (const sched::QuotaBooks::Line& line : picture_.quotas) {
      out_.Line({kZone,
                 {"quotanamespace", line.ns},
                 {"quotaName", line.resource},
                 {"limit", std::to_string(line.limit.value_or(0))}},
                static_cast<double>(line.used));
    }
  }

  base::Exposition& out_;
  const Picture& picture_;
  CardNames names_ = kNewCard;
};

void WriteBuild(base::Exposition& out) {
  out.Family("hami_build_info", kGauge, "What this program was built from");
  out.Line({{"version", base::kBuildInfo.version},
            {"revision", base::kBuildInfo.revision},
            {"build_date", base::kBuildInfo.date},
            {"go_version", ""},
            {"compiler", __VERSION__},
            {"platform", "linux/" HAMI_ARCHITECTURE}},
           1);
}

void WriteReadings(base::Exposition& out, const std::vector<Reading>& readings) {
  std::string_view name;
  for (const Reading& reading : readings) {
    if (reading.name != name) out.Family(reading.name, reading.type, reading.help);
    name = reading.name;
    if (reading.label.empty()) {
      out.Line({kZone}, reading.value);
    } else {
      out.Line({kZone, {reading.label, reading.label_value}}, reading.value);
    }
  }
}

}  // namespace

Picture TakePicture(const ReadLedger& read) {
  Picture picture;
  sched::NodeId from = 0;
  for (bool more = true; more;) {
    read([&](const sched::Ledger& ledger) {
      if (from == 0) {
        picture.nodes.reserve(ledger.node_count());
        picture.quotas = ledger.quotas().Lines();
      }
      // Every node is taken at one moment, the cluster over some.
      const sched::NodeId to = std::min(ledger.node_ids(), from + kNodesAtOnce);
      for (; from < to; ++from) {
        if (ledger.exists(from) && ledger.node(from).registered()) {
          picture.nodes.push_back(CopyNode(ledger, ledger.node(from)));
        }
      }
      more = from < ledger.node_ids();
    });
  }
  return picture;
}

struct Metrics::Instruments {
  static std::vector<double> Seconds() {
    return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30};
  }
  base::Histogram filter{Seconds()};
  base::Histogram bind{Seconds()};
  std::array<std::atomic<std::uint64_t>, kAdmissionResults.size()> admissions{};
};

Metrics::Metrics(Sources sources) : sources_(std::move(sources)), instruments_(std::make_unique<Instruments>()) {}
Metrics::~Metrics() = default;

void Metrics::ObserveFilter(double seconds) { instruments_->filter.Observe(seconds); }
void Metrics::ObserveBind(double seconds) { instruments_->bind.Observe(seconds); }
void Metrics::CountAdmission(std::string_view result) {
  const auto found = std::find(kAdmissionResults.begin(), kAdmissionResults.end(), result);
  if (found == kAdmissionResults.end()) return;
  instruments_->admissions[static_cast<std::size_t>(found - kAdmissionResults.begin())].fetch_add(1);
}

void Metrics::WriteInstruments(base::Exposition& out) const {
  const base::LabelText zone{kZone};
  out.Family("hami_scheduler_filter_duration_seconds", base::Exposition::Type::kHistogram,
             "Time from a whole /filter request to its answer");
  out.Sample(zone, instruments_->filter);
  out.Family("hami_scheduler_bind_duration_seconds", base::Exposition::Type::kHistogram,
             "Time from a whole /bind request to its answer");
  out.Sample(zone, instruments_->bind);
  out.Family("hami_scheduler_admissions_total", base::Exposition::Type::kCounter, "Answers of /webhook");
  for (std::size_t i = 0; i < kAdmissionResults.size(); ++i) {
    out.Line({kZone, {"result", kAdmissionResults[i]}}, static_cast<double>(instruments_->admissions[i].load()));
  }
}

void Metrics::Write(net::BodyWriter& out) const {
  base::Exposition text([&out](std::string_view piece) { return out.Write(piece); });
  WriteBuild(text);
  {
    const Picture picture = TakePicture(sources_.ledger);
    ClusterWriter cluster(text, picture);
    cluster.WriteAll();
    if (sources_.legacy) cluster.WriteLegacy();
  }
  if (sources_.readings) WriteReadings(text, sources_.readings());
  WriteInstruments(text);
}

}  // namespace hami::scheduler
