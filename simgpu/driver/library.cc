// SPDX-License-Identifier: Apache-2.0
// Libraries: cuLibrary* and what a library does on first use in a context.

#include "simgpu/driver/engine.h"
#include "simgpu/driver/jit_options.h"
#include "simgpu/driver/module.h"

namespace simgpu {
namespace {

// The part of the library for one capability, parsed once. The registry's lock is not held.
CUresult ImageFor(Library& library, int capability, std::shared_ptr<const Image>* out, std::string* log) {
  {
    const std::lock_guard<std::mutex> guard(Registry::Get().lock());
    const auto found = library.images.find(capability);
    if (found != library.images.end()) {
      *out = found->second;
      return CUDA_SUCCESS;
    }
  }
  SIMGPU_TRY(ParseParts(library.parts, Target{capability}, out, log));
  const std::lock_guard<std::mutex> guard(Registry::Get().lock());
  // Another thread may have been first; its image is the one that handles point into.
  *out = library.images.emplace(capability, *out).first->second;
  return CUDA_SUCCESS;
}

// A library is loaded when one device of the process can run it: the current one, or else any.
CUresult ChooseImage(Library& library, std::string* log) {
  const Context* current = CurrentContext();
  std::shared_ptr<const Image> image;
  CUresult result = CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (current != nullptr) result = ImageFor(library, ComputeCapability(*current->device), &image, log);
  for (int i = 0; i < DeviceCount() && result == CUDA_ERROR_NO_BINARY_FOR_GPU; ++i) {
    result = ImageFor(library, ComputeCapability(*FindDevice(i)), &image, log);
  }
  SIMGPU_TRY(result);
  for (const KernelInfo& kernel : image->kernels) library.names.emplace(kernel.name, &kernel);
  library.image = std::move(image);
  return CUDA_SUCCESS;
}

CUresult LoadLibrary(ImageParts&& parts, JitOptions* options, CUlibrary* out) {
  auto library = std::make_shared<Library>();
  library->parts = std::move(parts);
  std::string log;
  const CUresult chosen = ChooseImage(*library, &log);
  options->Report("", log);
  SIMGPU_TRY(chosen);
  *out = HandleOf(*library);
  Registry::Get().Add(std::move(library));
  return CUDA_SUCCESS;
}

// The known library options say how the caller keeps the image; it is copied here in any case.
CUresult CheckLibraryOptions(unsigned count, const CUlibraryOption* options) {
  if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE &&
        options[i] != CU_LIBRARY_BINARY_IS_PRESERVED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult FindLibrary(CUlibrary handle, LibraryRef* out) {
  *out = Registry::Get().Find(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void Answer(const Variable& variable, CUdeviceptr* dptr, size_t* bytes) {
  if (dptr != nullptr) *dptr = variable.address;
  if (bytes != nullptr) *bytes = static_cast<std::size_t>(variable.size);
}

}  // namespace

CUresult ModuleOf(const LibraryRef& library, Context& ctx, ModuleRef* out) {
  const std::lock_guard<std::mutex> load(library->load_lock);
  {
    const std::lock_guard<std::mutex> guard(Registry::Get().lock());
    const auto found = library->modules.find(&ctx);
    if (found != library->modules.end()) {
      *out = found->second;
      return CUDA_SUCCESS;
    }
  }
  std::shared_ptr<const Image> image;
  SIMGPU_TRY(ImageFor(*library, ComputeCapability(*ctx.device), &image, nullptr));
  SIMGPU_TRY(Instantiate(ctx, std::move(image), library, out));
  Registry::Get().Add(*out);
  {
    const std::lock_guard<std::mutex> guard(Registry::Get().lock());
    library->modules.emplace(&ctx, *out);
  }
  // A context that ended meanwhile has forgotten its modules already, but not this one.
  if (!ctx.alive.load(std::memory_order_acquire)) {
    ReleaseModulesOf(ctx);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

CUresult ManagedOf(const LibraryRef& library, const GlobalInfo& global, Variable* out) {
  const std::lock_guard<std::mutex> load(library->load_lock);
  Context* current = CurrentContext();
  const bool usable = current != nullptr && current->alive.load(std::memory_order_acquire);
  return ManagedLocked(*library, usable ? current : nullptr, global, out);
}

CUresult ManagedLocked(Library& library, Context* ctx, const GlobalInfo& global, Variable* out) {
  {
    const std::lock_guard<std::mutex> guard(Registry::Get().lock());
    const auto found = library.managed.find(global.name);
    if (found != library.managed.end()) {
      *out = found->second;
      return CUDA_SUCCESS;
    }
  }
  if (ctx == nullptr) {
    // Memory has to be somebody's: the first device's primary context, kept until the library goes.
    const Device* device = FindDevice(0);
    if (device == nullptr) return CUDA_ERROR_NO_DEVICE;
    if (library.kept == nullptr || !PrimaryLives(device->ordinal, library.kept_life)) {
      SIMGPU_TRY(RetainPrimary(device->ordinal, &ctx, &library.kept_life));
      library.kept = device;
    }
    ctx = PrimaryContext(device->ordinal);
  }
  SIMGPU_TRY(AllocManagedIn(*ctx, global, out));
  const std::lock_guard<std::mutex> guard(Registry::Get().lock());
  library.managed.emplace(global.name, *out);
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                   void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                   void** libraryOptionValues, unsigned int numLibraryOptions) {
  SIMGPU_ENTER(cuLibraryLoadData);
  static_cast<void>(libraryOptionValues);
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  SIMGPU_TRY(jit.Read(numJitOptions, jitOptions, jitOptionsValues));
  SIMGPU_TRY(CheckLibraryOptions(numLibraryOptions, libraryOptions));
  ImageParts parts;
  SIMGPU_TRY(CopyImage(code, &parts));
  return LoadLibrary(std::move(parts), &jit, library);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                                       void** jitOptionsValues, unsigned int numJitOptions,
                                       CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                       unsigned int numLibraryOptions) {
  SIMGPU_ENTER(cuLibraryLoadFromFile);
  static_cast<void>(libraryOptionValues);
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  SIMGPU_TRY(jit.Read(numJitOptions, jitOptions, jitOptionsValues));
  SIMGPU_TRY(CheckLibraryOptions(numLibraryOptions, libraryOptions));
  ImageParts parts;
  SIMGPU_TRY(ReadImageFile(fileName, &parts));
  return LoadLibrary(std::move(parts), &jit, library);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary handle) {
  SIMGPU_ENTER(cuLibraryUnload);
  const LibraryRef library = Registry::Get().Remove(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard<std::mutex> load(library->load_lock);
  std::vector<ModuleRef> modules;
  std::vector<Variable> managed;
  {
    const std::lock_guard<std::mutex> guard(Registry::Get().lock());
    for (const auto& [ctx, module] : library->modules) modules.push_back(module);
    for (const auto& [name, variable] : library->managed) managed.push_back(variable);
    library->modules.clear();
    library->managed.clear();
  }
  for (const ModuleRef& module : modules) {
    // Whoever takes it out of the registry gives its memory back: this thread or the context's end.
    if (module->context->alive.load(std::memory_order_acquire)) DrainContext(*module->context);
    if (const ModuleRef taken = Registry::Get().Remove(HandleOf(*module))) Dismantle(*taken);
  }
  for (const Variable& variable : managed) FreeManaged(variable);
  if (library->kept != nullptr) ReleasePrimary(library->kept->ordinal, library->kept_life);
  library->kept = nullptr;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  SIMGPU_ENTER(cuLibraryGetKernel);
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(library, &found));
  const auto info = found->names.find(name);
  if (info == found->names.end()) return CUDA_ERROR_NOT_FOUND;
  *pKernel = reinterpret_cast<CUkernel>(HandleOf(*Registry::Get().KernelOf(found, *info->second)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  SIMGPU_ENTER(cuLibraryGetKernelCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(lib, &found));
  *count = static_cast<unsigned>(found->image->kernels.size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  SIMGPU_ENTER(cuLibraryEnumerateKernels);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(lib, &found));
  const std::vector<KernelInfo>& all = found->image->kernels;
  for (std::size_t i = 0; i < all.size() && i < numKernels; ++i) {
    kernels[i] = reinterpret_cast<CUkernel>(HandleOf(*Registry::Get().KernelOf(found, all[i])));
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  SIMGPU_ENTER(cuLibraryGetModule);
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(library, &found));
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  ModuleRef module;
  SIMGPU_TRY(ModuleOf(found, *ctx, &module));
  *pMod = HandleOf(*module);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  SIMGPU_ENTER(cuLibraryGetGlobal);
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(library, &found));
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  ModuleRef module;
  SIMGPU_TRY(ModuleOf(found, *ctx, &module));
  const auto variable = module->variables.find(name);
  if (variable == module->variables.end()) return CUDA_ERROR_NOT_FOUND;
  Answer(variable->second, dptr, bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  SIMGPU_ENTER(cuLibraryGetManaged);
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(library, &found));
  const GlobalInfo* global = found->image->FindGlobal(name);
  if (global == nullptr || global->space != GlobalInfo::Space::kManaged) return CUDA_ERROR_NOT_FOUND;
  Variable variable;
  SIMGPU_TRY(ManagedOf(found, *global, &variable));
  Answer(variable, dptr, bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  SIMGPU_ENTER(cuLibraryGetUnifiedFunction);
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryRef found;
  SIMGPU_TRY(FindLibrary(library, &found));
  return CUDA_ERROR_NOT_FOUND;  // no image that is read here declares a function that host code could call
}

}  // extern "C"
