// SPDX-License-Identifier: Apache-2.0
//
// Modules and libraries: what an image becomes once it is loaded. A module lives in one context and holds its code and
// globals there as device memory; a library belongs to no context and becomes a module in each one that uses it, on
// first use. Handles are addresses of objects found in a registry; an unknown one is CUDA_ERROR_INVALID_HANDLE.
//
// Locks: the registry's lock is innermost (nothing is called while it is held); a library's load lock is outermost, so
// that two threads that use it first do not both pay for its memory.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "simgpu/driver/core.h"
#include "simgpu/driver/image_source.h"
#include "simgpu/driver/kernel.h"

namespace simgpu {

struct Library;
struct Module;

// Attributes of CU_FUNC_ATTRIBUTE_* that a program may set; kUnset means what the image says.
inline constexpr int kUnset = INT_MIN;
inline constexpr int kAttributeCount = 16;
struct KernelSettings {
  std::array<std::atomic<int>, kAttributeCount> values;
  KernelSettings() {
    for (auto& value : values) value.store(kUnset, std::memory_order_relaxed);
  }
};

// A CUfunction (context and module set) or a CUkernel (library set only). Immutable but for settings and legacy state.
struct Kernel {
  std::shared_ptr<const Image> image;  // holds `info`
  const KernelInfo* info = nullptr;
  Context* context = nullptr;
  std::weak_ptr<Module> module;
  std::weak_ptr<Library> library;

  mutable KernelSettings settings;
  // CUkernel: settings for each device. A function of a library falls back to those of its kernel.
  mutable std::array<KernelSettings, kMaxDevices> device_settings;
  KernelRef parent;

  mutable std::mutex legacy_lock;
  mutable LegacyLaunch legacy;
};

struct Variable {
  CUdeviceptr address = 0;
  std::uint64_t size = 0;
  bool managed = false;
  Context* context = nullptr;  // whose end takes the memory along
};

struct Module {
  std::shared_ptr<const Image> image;
  Context* context = nullptr;
  std::weak_ptr<Library> library;  // set: unloaded with it, not by itself
  CUdeviceptr code = 0;
  // Keys point into `image`. Only `functions` changes after loading, under the registry's lock.
  std::unordered_map<std::string_view, Variable> variables;
  std::unordered_map<std::string_view, const KernelInfo*> kernels;
  std::unordered_map<const KernelInfo*, std::shared_ptr<Kernel>> functions;
};

struct Library {
  ImageParts parts;
  std::mutex load_lock;
  // Under the registry's lock:
  std::map<int, std::shared_ptr<const Image>> images;  // by the compute capability they were chosen for
  std::shared_ptr<const Image> image;                  // whose kernels are enumerated
  std::unordered_map<std::string_view, const KernelInfo*> names;
  std::unordered_map<const KernelInfo*, std::shared_ptr<Kernel>> kernels;
  std::unordered_map<Context*, std::shared_ptr<Module>> modules;
  std::unordered_map<std::string_view, Variable> managed;  // one for all contexts
  // Under the load lock: primary context kept alive for managed variables that were asked for without a context.
  const Device* kept = nullptr;
  std::uint64_t kept_life = 0;
};

using ModuleRef = std::shared_ptr<Module>;
using LibraryRef = std::shared_ptr<Library>;

inline int ComputeCapability(const Device& device) {
  return static_cast<int>(device.spec->cc_major * 10 + device.spec->cc_minor);
}

// The live objects of the process, by handle.
class Registry {
 public:
  static Registry& Get();

  ModuleRef Find(CUmodule handle);
  LibraryRef Find(CUlibrary handle);
  KernelRef Find(const void* kernel);

  void Add(ModuleRef module);
  void Add(LibraryRef library);
  // The one holder of the handle gets it; null for whoever comes second.
  ModuleRef Remove(CUmodule handle);
  LibraryRef Remove(CUlibrary handle);
  // All modules of a context, which libraries forget, too.
  std::vector<ModuleRef> RemoveOf(const Context& ctx);

  // The handle of a kernel, made when first asked for.
  KernelRef FunctionOf(const ModuleRef& module, const KernelInfo& info);
  KernelRef KernelOf(const LibraryRef& library, const KernelInfo& info);

  std::mutex& lock() { return lock_; }

 private:
  void Forget(const Module& module);

  std::mutex lock_;
  std::unordered_map<const void*, ModuleRef> modules_;
  std::unordered_map<const void*, LibraryRef> libraries_;
  std::unordered_map<const void*, std::shared_ptr<Kernel>> kernels_;
};

inline CUmodule HandleOf(const Module& module) { return reinterpret_cast<CUmodule>(const_cast<Module*>(&module)); }
inline CUlibrary HandleOf(const Library& library) {
  return reinterpret_cast<CUlibrary>(const_cast<Library*>(&library));
}

// Puts code and globals of `image` into `ctx`. With a library, its load lock is held: managed variables are the
// library's.
CUresult Instantiate(Context& ctx, std::shared_ptr<const Image> image, const LibraryRef& library, ModuleRef* out);
// Gives back what Instantiate took.
void Dismantle(const Module& module);

// The module of a library in `ctx`, loaded now if it was not yet.
CUresult ModuleOf(const LibraryRef& library, Context& ctx, ModuleRef* out);
// A managed variable of a library, made now if it was not yet; no context is needed.
CUresult ManagedOf(const LibraryRef& library, const GlobalInfo& global, Variable* out);
// The same with the load lock held. `ctx` may be null.
CUresult ManagedLocked(Library& library, Context* ctx, const GlobalInfo& global, Variable* out);

CUresult AllocManagedIn(Context& ctx, const GlobalInfo& global, Variable* out);
void FreeManaged(const Variable& variable);

CUresult GetParamInfo(const KernelInfo& info, std::size_t index, std::size_t* offset, std::size_t* size);
CUresult SetKernelAttribute(const Kernel& kernel, KernelSettings& settings, const Device& device,
                            CUfunction_attribute attribute, int value);
// As GetKernelAttribute, for a device: what a library's kernel answers.
CUresult GetKernelAttribute(const Kernel& kernel, const Device& device, CUfunction_attribute attribute, int* value);

}  // namespace simgpu
