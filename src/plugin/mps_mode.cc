// SPDX-License-Identifier: Apache-2.0

#include "plugin/mps_mode.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/exposition.h"
#include "base/files.h"
#include "base/strings.h"

namespace hami::plugin {
namespace {

using base::Concat;

// A daemon takes about a second to start; the kubelet admits no other pod meanwhile.
constexpr std::chrono::milliseconds kServeWithin{8'000};
constexpr const char* kShared = "/dev/shm";

// What clients and their daemon must have in common as /dev/shm. In a pod that is a folder which the pod's manifest
// mounts there; outside of one it is the machine's own.
base::Result<std::string> SharedMemoryFolder(const std::string& root) {
  const std::string folder = root + "/shm";
  HAMI_TRY(base::MakeFolders(folder, 0755));
  constexpr mode_t kForAll = 01777;
  if (::chmod(folder.c_str(), kForAll) != 0) return base::FailErrno("chmod " + folder);
  struct stat here = {};
  struct stat mounted = {};
  if (::stat(folder.c_str(), &here) != 0) return base::FailErrno(folder);
  if (::stat(kShared, &mounted) != 0) return base::FailErrno(kShared);
  return here.st_dev == mounted.st_dev && here.st_ino == mounted.st_ino ? folder : std::string(kShared);
}

bool HasFallen(const mps::Memory& memory) {
  return memory.state == mps::State::kDown || memory.state == mps::State::kFaulted ||
         (memory.state == mps::State::kStarting && memory.failures > 0);
}

}  // namespace

MpsMode::MpsMode(const Options& options, MpsHooks hooks) : options_(options), hooks_(std::move(hooks)) {}

mps::Daemons& MpsMode::Get() {
  const std::scoped_lock lock(mutex_);
  if (daemons_ == nullptr) {
    mps::DaemonsOptions with;
    with.program = options_.mps_control;
    with.folder = options_.mps_root;
    with.on_notice = hooks_.on_notice;
    with.on_change = hooks_.on_change;
    daemons_ = std::make_unique<mps::Daemons>(std::move(with));
  }
  return *daemons_;
}

base::Status MpsMode::Enter(const Cards& cards, const Records& records) {
  const auto program = mps::FindProgram(options_.mps_control);
  {
    const std::scoped_lock lock(mutex_);
    unserved_.clear();
    if (!program) {
      for (const Card& card : cards.cards) unserved_[card.uuid] = "MPS: " + program.error().message;
    }
  }
  if (!program) return tl::unexpected(program.error());
  for (const auto& [uuid, limits] : DaemonLimits(records, cards)) Get().Want(uuid, limits);
  Get().EndOthers();
  return {};
}

base::Status MpsMode::Leave() {
  Get().WantNone();
  return Get().AllStopped() ? base::Status() : base::Status(base::Fail("its MPS control daemons are still ending"));
}

base::Result<MpsShare> MpsMode::Serve(const Record& record, const Cards& cards) {
  const auto limits = LimitsOf(record.grant, cards);
  if (!limits) return tl::unexpected(limits.error());
  if (limits->size() != 1) {
    return base::Fail(Concat({"the container has ", std::to_string(limits->size()),
                              " GPUs, and on a node in mode mps it can be the client of one"}),
                      "ask for one GPU, or for nvidia.com/vgpu-mode: hami-core");
  }
  const std::string& uuid = limits->front().uuid;
  if (const auto program = mps::FindProgram(options_.mps_control); !program) return tl::unexpected(program.error());
  for (const auto& [wanted, most] : DaemonLimits({record}, cards)) Get().WantAtLeast(wanted, most);
  HAMI_TRY(Get().Await(uuid, kServeWithin));
  auto shared = SharedMemoryFolder(options_.mps_root);
  if (!shared) return tl::unexpected(shared.error());
  return MpsShare{Get().PipeOf(uuid), *std::move(shared)};
}

Troubles MpsMode::CurrentTroubles() const {
  const auto daemons = Look();
  const std::scoped_lock lock(mutex_);
  Troubles troubles = unserved_;
  for (const auto& [uuid, memory] : daemons) {
    if (HasFallen(memory)) troubles[uuid] = "MPS: " + memory.trouble;
  }
  return troubles;
}

std::set<int> MpsMode::Servers() const {
  std::set<int> pids;
  for (const auto& [uuid, memory] : Look()) {
    for (const mps::Server& server : memory.servers) pids.insert(server.pid);
  }
  return pids;
}

void MpsMode::Stop() {
  mps::Daemons* daemons = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    daemons = daemons_.get();
  }
  if (daemons != nullptr) daemons->Stop();
}

std::map<std::string, mps::Memory> MpsMode::Look() const {
  const std::scoped_lock lock(mutex_);
  return daemons_ == nullptr ? std::map<std::string, mps::Memory>() : daemons_->Look();
}

std::map<std::string, mps::Limits> DaemonLimits(const Records& records, const Cards& cards) {
  std::map<std::string, mps::Limits> all;
  for (const Record& record : records) {
    for (const device::Share& share : record.grant) {
      const Card* card = cards.Find(share.uuid);
      if (card == nullptr) continue;
      const int percent = share.cores > 0 ? std::min(share.cores, 100) : 100;
      const auto memory = static_cast<std::uint64_t>(std::min(share.memory, card->physical_memory));
      auto [entry, first] = all.try_emplace(share.uuid, mps::Limits{percent, memory});
      if (first) continue;
      entry->second.percent = std::max(entry->second.percent, percent);
      entry->second.memory_mib = std::max(entry->second.memory_mib, memory);
    }
  }
  return all;
}

std::string RenderMpsMetrics(const std::string& node, const std::map<std::string, mps::Memory>& daemons) {
  if (daemons.empty()) return {};
  using Type = base::Exposition::Type;
  base::Exposition page;
  const auto family = [&](const char* name, Type type, const char* help, const auto& value) {
    page.Family(name, type, help);
    for (const auto& [uuid, memory] : daemons) {
      page.Sample(base::LabelText{{"node", node}, {"device_uuid", uuid}}, std::uint64_t{value(memory)});
    }
  };
  page.Family("hami_mps_daemon_state", Type::kGauge, "1 for the state that the GPU's MPS control daemon is in");
  for (const auto& [uuid, memory] : daemons) {
    page.Sample(base::LabelText{{"node", node}, {"device_uuid", uuid}, {"state", mps::StateName(memory.state)}},
                std::uint64_t{1});
  }
  family("hami_mps_clients", Type::kGauge, "clients of the GPU's MPS servers",
         [](const mps::Memory& memory) { return mps::CountClients(memory.servers); });
  family("hami_mps_daemon_restarts_total", Type::kCounter, "starts of a control daemon that had ended",
         [](const mps::Memory& memory) { return memory.restarts; });
  family("hami_mps_server_faults_total", Type::kCounter, "times that one client's end was the end of all",
         [](const mps::Memory& memory) { return memory.faults; });
  return page.Take();
}

}  // namespace hami::plugin
