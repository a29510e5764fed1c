// SPDX-License-Identifier: Apache-2.0
//
// The real ones behind MigKeeper: NVML, and the journal in a file. Owns a session of NVML of its own, made when it is
// needed and made anew after it failed.

#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "plugin/mig_keeper.h"

namespace hami::plugin {

class NvmlMigDriver final : public MigDriver {
 public:
  explicit NvmlMigDriver(nvml::LoadOptions load) : load_(std::move(load)) {}
  base::Result<nvml::MigLayout> Layout(const std::string& gpu) override;
  base::Result<bool> InUse(const std::string& gpu, unsigned gpu_instance) override;
  base::Result<unsigned> CreateGpuInstance(const std::string& gpu, unsigned profile_id, nvml::MigPlace place) override;
  base::Result<nvml::ComputeInstance> CreateComputeInstance(const std::string& gpu, unsigned gpu_instance) override;
  base::Status DestroyComputeInstance(const std::string& gpu, unsigned gpu_instance, unsigned compute) override;
  base::Status DestroyGpuInstance(const std::string& gpu, unsigned gpu_instance) override;

  base::Result<std::vector<nvml::Device>> Gpus();
  base::Result<nvml::MigMode> SetMigMode(const std::string& gpu, bool on);
  base::Status SetComputeMode(const std::string& gpu, nvml::ComputeMode mode);
  // Processes on GPU, in any instance of it or in none.
  base::Result<std::vector<nvml::Process>> Processes(const std::string& gpu);

 private:
  // What ASK says of a session; another session next time when that is an error.
  template <typename Ask>
  auto With(const Ask& ask);

  const nvml::LoadOptions load_;
  std::mutex mutex_;
  std::optional<nvml::Library> library_;
};

class DiskMigJournal final : public MigJournal {
 public:
  explicit DiskMigJournal(std::string path) : path_(std::move(path)) {}
  // No file: no instances. A file that cannot be read whole is an error and stays as it is.
  base::Result<MigEntries> Load() override;
  bool Changed() override;
  base::Status Save(const MigEntries& entries) override;

 private:
  const std::string path_;
  std::string stamp_;  // of the file as it was read or written
};

}  // namespace hami::plugin
