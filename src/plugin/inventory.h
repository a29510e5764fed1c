// SPDX-License-Identifier: Apache-2.0
//
// The GPUs that this node offers, as plain data: what the kubelet is told in slots (slots.h), what the scheduler is
// told in MiB and percent. MakeCards decides from what the driver says and what the configuration wants; CardBoard
// holds the latest cards for whoever needs them. State, not events: who looks sees everything that is true now, however
// late it comes.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/types.h"
#include "nvml/nvml.h"
#include "plugin/node_config.h"

namespace hami::plugin {

// What a card is that is a MIG device which was there before (mig_static.h).
struct MigPart {
  std::string gpu_uuid;
  std::string profile;  // "1g.10gb"
  unsigned index = 0;   // among the MIG devices of its GPU
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
  bool operator==(const MigPart&) const = default;
};

struct Card {
  std::string uuid;
  unsigned index = 0;  // the driver's; of a MIG device its GPU's
  std::string name;    // the driver's
  std::string type;    // as registered: with "NVIDIA-" in front unless NAME begins with NVIDIA
  std::string bus_id;  // "0000:3b:00.0"; empty when unknown
  std::optional<int> numa_node;
  std::optional<unsigned> minor;  // of /dev/nvidia<minor>
  std::optional<nvml::ComputeCapability> compute_capability;
  device::MiB physical_memory = 0;
  device::MiB memory = 0;                        // offered: scaled
  int cores = 0;                                 // offered, percent: scaled
  int slots = 0;                                 // how many containers may share it
  std::vector<device::MigProfile> mig_profiles;  // that it can be divided into, in mode mig
  std::optional<MigPart> part;                   // absent: it is a GPU
  bool healthy = true;
  std::string trouble;  // why it is not, for people

  bool operator==(const Card& other) const;
};

// A MIG instance that is out of order, in mode mig. Its place is not offered even where it has been removed since.
struct SickInstance {
  std::string uuid;
  std::string gpu_uuid;
  std::string profile;  // empty: unknown
  nvml::MigPlace place;
  std::string trouble;
  bool operator==(const SickInstance&) const = default;
};

// A state of the node's GPUs. Cards in the order of PCI bus id, then UUID: the order in which CUDA numbers them with
// CUDA_DEVICE_ORDER=PCI_BUS_ID, and the same every time.
struct Cards {
  std::uint64_t generation = 0;  // rises with every change
  bool ready = false;            // the driver was read at least once
  NodeSettings settings;
  std::vector<Card> cards;
  std::vector<Card> parts;  // MIG devices that the kubelet counts by their profiles, and no scheduler places
  std::vector<SickInstance> sick;
  std::vector<std::string> left_out;  // GPUs that are not offered, a line each with the reason

  const Card* Find(std::string_view uuid) const;
};

// Which cards are out of order, and why.
using Troubles = std::map<std::string, std::string, std::less<>>;

// Places that MIG instances take which are not ours, by GPU.
using ForeignInstances = std::map<std::string, std::vector<nvml::MigPlace>>;

// DEVICES that answer, or did once (see node_state.h). One that is filtered or whose memory size nobody knows is left
// out, with a line in LEFT_OUT.
std::vector<Card> MakeCards(const std::vector<nvml::Device>& devices, const NodeSettings& settings,
                            const Troubles& troubles, std::vector<std::string>* left_out = nullptr,
                            const ForeignInstances& foreign = {}, const std::vector<SickInstance>& sick = {});

// The driver's number of it: "1", or "1:0" of a MIG device.
std::string IndexOf(const Card& card);

// What DEVICE, or a MIG device of it, is by the driver; nothing that is offered.
Card BareCard(const nvml::Device& device, const std::string& uuid, const std::string& name);

// By PCI bus id, then by instance, then by UUID.
void SortCards(std::vector<Card>& cards);

bool IsExcluded(const nvml::Device& device, const Exclusion& excluded);

// The latest cards. Thread-safe.
class CardBoard {
 public:
  using Snapshot = std::shared_ptr<const Cards>;
  using Listener = std::function<void()>;

  CardBoard();

  Snapshot Current() const;
  // Numbers CARDS and tells the listeners, unless nothing differs from what is there.
  bool Publish(Cards cards);

  // Stops listening when it is destroyed; LISTENER is not called any more after that.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&&) noexcept = default;
    Subscription& operator=(Subscription&&) noexcept = default;
    ~Subscription() = default;

   private:
    friend class CardBoard;
    std::shared_ptr<void> hold_;
  };
  // LISTENER is called on the publishing thread after every change, one call at a time; it must be short and must not
  // call the board's Publish or Subscribe. It is not called for the state that is already there.
  [[nodiscard]] Subscription Subscribe(Listener listener);

 private:
  struct Listeners;
  mutable std::mutex mutex_;
  Snapshot current_;
  const std::shared_ptr<Listeners> listeners_;
};

}  // namespace hami::plugin
