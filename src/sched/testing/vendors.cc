// SPDX-License-Identifier: Apache-2.0

#include "sched/testing/vendors.h"

#include <array>

#include "base/json.h"
#include "device/register_codec.h"

namespace hami::sched::testing {
namespace {

namespace json = base::json;

struct Kind {
  const char* annotation;  // that registers its cards; null: the capacity does
  const char* type;
  device::MiB memory;
  int cores;
  bool legacy;
  const char* custom;  // the name of the group that a card is in
  const char* count;   // what pods ask for
  const char* share;   // and what they ask of it; null: nothing
  const char* percent;
  int largest;  // amount of SHARE that a card may have
};

constexpr std::array<Kind, 16> kKinds = {{
    {"hami.io/node-amd-register", "AMD Instinct", 65536, 304, false, nullptr, "amd.com/gpu", "amd.com/gpumem",
     "amd.com/gpucores", 65536},
    {"hami.io/node-biren-register", "Biren-106", 32768, 100, false, nullptr, "birentech.com/gpu", nullptr, nullptr, 0},
    {"hami.io/node-va-register", "Vastai-VA10", 32768, 100, false, "AIC", "vastaitech.com/va", nullptr, nullptr, 0},
    {"hami.io/node-dcu-register", "DCU-Z100", 16384, 100, true, nullptr, "hygon.com/dcunum", "hygon.com/dcumem",
     "hygon.com/dcucores", 16384},
    {"hami.io/node-MR-V100-register", "Iluvatar MR-V100", 32768, 100, true, nullptr, "iluvatar.ai/MR-V100-vgpu",
     "iluvatar.ai/MR-V100.vMem", "iluvatar.ai/MR-V100.vCore", 128},
    {"hami.io/node-register-xpu", "KUNLUN-XPU", 98304, 100, false, nullptr, "kunlunxin.com/vxpu",
     "kunlunxin.com/vxpu-memory", nullptr, 98304},
    {"hami.io/node-register-Ascend910B4", "Ascend910B4", 32768, 20, false, "NetworkID", "huawei.com/Ascend910B4",
     "huawei.com/Ascend910B4-memory", nullptr, 32768},
    {"hami.io/node-register-Ascend910C", "Ascend910C", 65536, 20, false, "NetworkID", "huawei.com/Ascend910C", nullptr,
     nullptr, 0},
    {nullptr, "enflame.com/gcu", 0, 0, false, nullptr, "enflame.com/gcu", nullptr, nullptr, 0},
    {nullptr, "kunlunxin.com/xpu", 0, 0, false, nullptr, "kunlunxin.com/xpu", nullptr, nullptr, 0},
    {nullptr, "metax-tech.com/gpu", 0, 0, false, nullptr, "metax-tech.com/gpu", nullptr, nullptr, 0},
    {nullptr, "aws.amazon.com/neuron", 0, 0, false, nullptr, "aws.amazon.com/neuron", nullptr, nullptr, 0},
    {nullptr, "cambricon.com/vmlu", 0, 0, false, nullptr, "cambricon.com/vmlu", "cambricon.com/mlu.smlu.vmemory",
     "cambricon.com/mlu.smlu.vcore", 64},
    {nullptr, "mthreads.com/vgpu", 0, 0, false, nullptr, "mthreads.com/vgpu", "mthreads.com/sgpu-memory",
     "mthreads.com/sgpu-core", 96},
    {"metax-tech.com/node-gpu-devices", "", 0, 0, false, nullptr, "metax-tech.com/sgpu", "metax-tech.com/vmemory",
     "metax-tech.com/vcore", 64},
    {"enflame.com/gcu-drs-capacity", "", 0, 0, false, nullptr, "enflame.com/drs-gcu", nullptr, nullptr, 0},
}};

json::array SharesOf(int count, const Chance& below) {
  json::array cards;
  for (int i = 0; i < count; ++i) {
    cards.push_back({{"uuid", "M" + std::to_string(i)},
                     {"totalDevCount", 1 + below(4)},
                     {"totalCompute", 100},
                     {"totalVRam", 65536},
                     {"healthy", below(8) > 0},
                     {"linkZone", below(3)}});
  }
  return cards;
}

json::object SlicesOf(int count) {
  json::array devices;
  for (int i = 0; i < count; ++i) devices.push_back({{"index", i}, {"minor", i}, {"capacity", 6}});
  return {{"devices", devices}, {"profiles", {{"1g.8gb", "0"}, {"3g.20gb", "1"}, {"6g.40gb", "2"}}}};
}

}  // namespace

int NodeKinds() { return static_cast<int>(kKinds.size()); }

void AddCards(SimulatedNode& node, int kind, const Chance& below) {
  const Kind& of = kKinds[static_cast<std::size_t>(kind)];
  const int count = 1 + below(8);
  const std::string type = of.type;
  if (of.annotation == nullptr) {
    node.capacity[type] = std::to_string(count);
    if (type == "aws.amazon.com/neuron") node.capacity["aws.amazon.com/neuroncore"] = std::to_string(2 * count);
    if (of.percent == nullptr) return;
    const int cores = type == "mthreads.com/vgpu" ? 16 : 100;
    node.capacity[of.percent] = std::to_string(cores * count);
    node.capacity[of.share] = std::to_string(of.largest * count);
    return;
  }
  if (type.empty()) {
    const bool slices = std::string_view(of.annotation).starts_with("enflame");
    node.annotations[of.annotation] =
        slices ? json::serialize(SlicesOf(count)) : json::serialize(SharesOf(count, below));
    return;
  }
  std::vector<device::Device> devices;
  for (int i = 0; i < count; ++i) {
    device::Device card = Card(type + std::to_string(i), of.memory, i % 2);
    card.index = i;
    card.type = type;
    card.cores = of.cores;
    card.count = 1 + below(5);
    card.healthy = below(8) > 0;
    if (of.custom != nullptr) {
      card.custom_info = json::serialize(json::object{{"DeviceStrategy", "die"}, {of.custom, below(3)}});
    }
    devices.push_back(card);
  }
  node.annotations[of.annotation] =
      of.legacy ? device::EncodeRegisterLegacy(devices) : device::EncodeRegisterJson(devices);
  node.capacity[of.count] = std::to_string(count);
}

SimulatedNode AnyNode(const std::string& name, const Chance& below) {
  SimulatedNode node{name, {}};
  node.instance_type = below(2) == 0 ? "inf2.48xlarge" : "trn1.32xlarge";
  for (int kinds = 1 + below(3); kinds > 0; --kinds) AddCards(node, below(NodeKinds()), below);
  return node;
}

VendorAsk AnyAsk(const Chance& below) {
  const Kind& of = kKinds[static_cast<std::size_t>(below(NodeKinds()))];
  VendorAsk ask;
  ask.container.name = "main";
  constexpr std::array<int, 5> kCounts = {1, 1, 2, 3, 4};
  const int count = kCounts[static_cast<std::size_t>(below(5))];
  const std::string name = of.count;
  ask.container.limits[name] = std::to_string(count);
  const bool slices = name == "enflame.com/drs-gcu";
  ask.cards = slices ? 1 : count;
  if (of.share != nullptr && below(3) > 0) ask.container.limits[of.share] = std::to_string(1 + below(of.largest));
  if (of.percent != nullptr && below(2) > 0) ask.container.limits[of.percent] = std::to_string(1 + below(100));
  if (name == "aws.amazon.com/neuron" && below(2) == 0) {
    ask.container.limits = {{"aws.amazon.com/neuroncore", std::to_string(1 + below(2))}};
    ask.cards = 1;
  }
  if (name == "metax-tech.com/sgpu") {
    constexpr std::array<const char*, 3> kWords = {"best-effort", "fixed-share", "burst-share"};
    if (below(2) == 0) ask.annotations["metax-tech.com/sgpu-qos-policy"] = kWords[static_cast<std::size_t>(below(3))];
    if (below(3) == 0) ask.annotations["metax-tech.com/sgpu-app-class"] = below(2) == 0 ? "online" : "offline";
  }
  if (name == "huawei.com/Ascend910B4" && below(2) == 0) {
    ask.annotations["huawei.com/vnpu-mode"] = "hami-core";
    ask.container.limits["huawei.com/Ascend910B4-core"] = std::to_string(below(101));
  }
  if (below(4) == 0) ask.annotations["hami.io/gpu-scheduler-policy"] = "mutex";
  return ask;
}

}  // namespace hami::sched::testing
