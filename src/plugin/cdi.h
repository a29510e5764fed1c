// SPDX-License-Identifier: Apache-2.0
//
// Container Device Interface specifications of this node: one per class of device, written for runtimes that inject
// devices by name. Making the text is pure; finding what is on the node and writing the files is apart. A file changes
// by rename, so a runtime never reads half of one.

#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plugin/inventory.h"
#include "plugin/options.h"

namespace hami::plugin {

inline constexpr const char* kCdiVendor = "k8s.device-plugin.nvidia.com";
inline constexpr const char* kCdiFolder = "/var/run/cdi";

// "k8s.device-plugin.nvidia.com/gpu=GPU-…".
std::string CdiName(std::string_view device_class, std::string_view id);

// A file that a container gets to see at the same place.
struct CdiFile {
  std::string host_path;
  std::string container_path;
  bool operator==(const CdiFile&) const = default;
};

// What the driver's installation on this node offers to containers.
struct DriverFiles {
  std::vector<std::string> control_nodes;  // /dev/nvidiactl, …
  std::vector<CdiFile> libraries;          // libcuda.so.580.95.05, …
  std::vector<CdiFile> programs;           // nvidia-smi, …
  std::vector<std::string> gds_nodes, gdrcopy_nodes, mofed_nodes;
  bool operator==(const DriverFiles&) const = default;
};

struct CdiSpec {
  std::string device_class;  // gpu, imex-channel, gdrcopy, gds, mofed
  std::string text;
  std::string FileName() const;
};

// A MIG device, with the nodes that let a container use it.
struct CdiInstance {
  std::string uuid;
  std::vector<std::string> nodes;
  std::string index{};  // "0:1"; empty: it goes by its UUID alone
};

// The specifications for CARDS, and for INSTANCES of them. A class without a device, or a mode without a device node,
// has none.
std::vector<CdiSpec> MakeCdiSpecs(const Cards& cards, const DriverFiles& files, const Options& options,
                                  const std::vector<CdiInstance>& instances = {});

// Looks below OPTIONS.driver_root_in_container (the driver's root as mounted here), or below driver_root when that
// is not there. The driver's version is that of its libcuda.so.<version>; without one, libcuda.so.1 and
// libnvidia-ml.so.1 themselves are taken.
DriverFiles FindDriverFiles(const Options& options);

// Of the IMEX channels that are wanted, those that have a device node.
std::vector<int> PresentImexChannels(const Options& options);
std::string ImexChannelNode(int channel);

// Writes what differs into FOLDER and removes classes of ours that are no more.
base::Status WriteCdiSpecs(const std::vector<CdiSpec>& specs, const std::string& folder);

// The specifications on disk, kept as the node is: kernel modules come late, and files go.
class CdiFolder {
 public:
  CdiFolder(const Options& options, std::string path) : options_(options), path_(std::move(path)) {}
  // Nothing to do where no container is told of devices in this way, and while the GPUs are not known. Thread-safe.
  void Refresh(const Cards& cards);
  // Before the first Refresh: the MIG devices that containers may be given.
  void UseInstances(std::function<std::vector<CdiInstance>(const Cards& cards)> instances) {
    instances_ = std::move(instances);
  }
  const std::string& path() const { return path_; }

 private:
  const Options& options_;
  const std::string path_;
  std::function<std::vector<CdiInstance>(const Cards& cards)> instances_;
  std::mutex mutex_;
  std::string trouble_;  // as it was told
};

// The modes (gdrcopy, gds, mofed) with a specification in FOLDER.
std::vector<std::string> CdiModesOf(const std::string& folder);

}  // namespace hami::plugin
