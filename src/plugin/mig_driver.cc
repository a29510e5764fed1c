// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_driver.h"

#include <algorithm>

#include "base/files.h"
#include "base/strings.h"
#include "base/watched_file.h"
#include "plugin/own_file.h"

namespace hami::plugin {

using base::Concat;
using base::Result;
using base::Status;

namespace {
constexpr std::size_t kMostJournalBytes = 4 << 20;
}

template <typename Ask>
auto NvmlMigDriver::With(const Ask& ask) {
  using Answer = decltype(ask(*library_));
  const std::scoped_lock lock(mutex_);
  if (!library_) {
    auto library = nvml::Library::Load(load_);
    if (!library) return Answer(tl::unexpected(library.error()));
    library_ = *std::move(library);
  }
  Answer answer = ask(*library_);
  if (!answer) library_.reset();
  return answer;
}

Result<nvml::MigLayout> NvmlMigDriver::Layout(const std::string& gpu) {
  return With([&](const nvml::Library& library) { return library.ReadMigLayout(gpu); });
}

Result<std::vector<nvml::Process>> NvmlMigDriver::Processes(const std::string& gpu) {
  return With([&](const nvml::Library& library) -> Result<std::vector<nvml::Process>> {
    auto processes = library.ReadProcesses(gpu);
    if (!processes) return base::Fail("the driver does not list the processes of " + gpu);
    return *std::move(processes);
  });
}

Result<bool> NvmlMigDriver::InUse(const std::string& gpu, unsigned gpu_instance) {
  const auto processes = Processes(gpu);
  if (!processes) return tl::unexpected(processes.error());
  return std::any_of(processes->begin(), processes->end(),
                     [&](const nvml::Process& process) { return process.gpu_instance == gpu_instance; });
}

Result<unsigned> NvmlMigDriver::CreateGpuInstance(const std::string& gpu, unsigned profile_id, nvml::MigPlace place) {
  return With([&](const nvml::Library& library) { return library.CreateGpuInstance(gpu, profile_id, place); });
}

Result<nvml::ComputeInstance> NvmlMigDriver::CreateComputeInstance(const std::string& gpu, unsigned gpu_instance) {
  return With([&](const nvml::Library& library) { return library.CreateComputeInstance(gpu, gpu_instance); });
}

Status NvmlMigDriver::DestroyComputeInstance(const std::string& gpu, unsigned gpu_instance, unsigned compute) {
  return With([&](const nvml::Library& lib) { return lib.DestroyComputeInstance(gpu, gpu_instance, compute); });
}

Status NvmlMigDriver::DestroyGpuInstance(const std::string& gpu, unsigned gpu_instance) {
  return With([&](const nvml::Library& library) { return library.DestroyGpuInstance(gpu, gpu_instance); });
}

Result<std::vector<nvml::Device>> NvmlMigDriver::Gpus() {
  return With([&](const nvml::Library& library) { return library.ReadDevices(); });
}

Result<nvml::MigMode> NvmlMigDriver::SetMigMode(const std::string& gpu, bool on) {
  return With([&](const nvml::Library& library) { return library.SetMigMode(gpu, on); });
}

Status NvmlMigDriver::SetComputeMode(const std::string& gpu, nvml::ComputeMode mode) {
  return With([&](const nvml::Library& library) { return library.SetComputeMode(gpu, mode); });
}

bool DiskMigJournal::Changed() { return !stamp_.empty() && base::FileStamp(path_) != stamp_; }

Result<MigEntries> DiskMigJournal::Load() {
  stamp_ = base::FileStamp(path_);
  const auto text = ReadOwnFile(path_, kMostJournalBytes);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return MigEntries();
  auto entries = DecodeMigJournal(**text);
  if (!entries) {
    return base::Fail(Concat({path_, ": ", entries.error().message}),
                      "it says which MIG instances are ours; drain the node, remove them and then the file");
  }
  return entries;
}

Status DiskMigJournal::Save(const MigEntries& entries) {
  HAMI_TRY(base::MakeFolders(path_.substr(0, path_.rfind('/')), 0755));
  HAMI_TRY(base::ReplaceFile(path_, EncodeMigJournal(entries), 0600));
  stamp_ = base::FileStamp(path_);
  return {};
}

}  // namespace hami::plugin
