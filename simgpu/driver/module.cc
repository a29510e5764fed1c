// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/module.h"

#include <cstring>

#include "simgpu/driver/engine.h"
#include "simgpu/driver/mem.h"

namespace simgpu {
namespace {

template <typename Map>
typename Map::mapped_type FindIn(const Map& map, const void* handle) {
  const auto found = map.find(handle);
  return found == map.end() ? nullptr : found->second;
}

template <typename Map>
typename Map::mapped_type TakeFrom(Map* map, const void* handle) {
  const auto found = map->find(handle);
  if (found == map->end()) return nullptr;
  auto taken = std::move(found->second);
  map->erase(found);
  return taken;
}

// The initial bytes of a variable, zeros behind them.
void Initialise(CUdeviceptr address, const GlobalInfo& global, int machine) {
  auto* bytes = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  if (!global.init.empty()) std::memcpy(bytes, global.init.data(), global.init.size());
  FillOp rest;
  rest.dst = bytes + global.init.size();
  rest.width = static_cast<std::size_t>(global.size) - global.init.size();
  rest.machine = static_cast<std::int16_t>(machine);
  if (rest.width != 0) FillNow(rest);
}

CUresult PlaceVariable(Context& ctx, const GlobalInfo& global, Variable* out) {
  *out = Variable{0, global.size, false, &ctx};
  if (global.size == 0) return CUDA_SUCCESS;
  SIMGPU_TRY(AllocDevice(ctx, static_cast<std::size_t>(global.size), MemKind::kModule, &out->address));
  Initialise(out->address, global, ctx.machine());
  return CUDA_SUCCESS;
}

}  // namespace

Registry& Registry::Get() {
  static Registry& registry = *new Registry;
  return registry;
}

ModuleRef Registry::Find(CUmodule handle) {
  const std::lock_guard<std::mutex> guard(lock_);
  return FindIn(modules_, handle);
}

LibraryRef Registry::Find(CUlibrary handle) {
  const std::lock_guard<std::mutex> guard(lock_);
  return FindIn(libraries_, handle);
}

KernelRef Registry::Find(const void* kernel) {
  const std::lock_guard<std::mutex> guard(lock_);
  return FindIn(kernels_, kernel);
}

void Registry::Add(ModuleRef module) {
  const std::lock_guard<std::mutex> guard(lock_);
  const void* handle = module.get();
  modules_.emplace(handle, std::move(module));
}

void Registry::Add(LibraryRef library) {
  const std::lock_guard<std::mutex> guard(lock_);
  const void* handle = library.get();
  libraries_.emplace(handle, std::move(library));
}

void Registry::Forget(const Module& module) {
  for (const auto& [info, kernel] : module.functions) kernels_.erase(kernel.get());
}

ModuleRef Registry::Remove(CUmodule handle) {
  const std::lock_guard<std::mutex> guard(lock_);
  ModuleRef module = TakeFrom(&modules_, handle);
  if (module) Forget(*module);
  return module;
}

LibraryRef Registry::Remove(CUlibrary handle) {
  const std::lock_guard<std::mutex> guard(lock_);
  LibraryRef library = TakeFrom(&libraries_, handle);
  if (!library) return nullptr;
  for (const auto& [info, kernel] : library->kernels) kernels_.erase(kernel.get());
  return library;
}

std::vector<ModuleRef> Registry::RemoveOf(const Context& ctx) {
  const std::lock_guard<std::mutex> guard(lock_);
  std::vector<ModuleRef> removed;
  for (const auto& [handle, library] : libraries_) {
    std::erase_if(library->managed, [&](const auto& entry) { return entry.second.context == &ctx; });
  }
  for (auto entry = modules_.begin(); entry != modules_.end();) {
    ModuleRef& module = entry->second;
    if (module->context != &ctx) {
      ++entry;
      continue;
    }
    Forget(*module);
    if (const LibraryRef library = module->library.lock()) library->modules.erase(module->context);
    removed.push_back(std::move(module));
    entry = modules_.erase(entry);
  }
  return removed;
}

KernelRef Registry::FunctionOf(const ModuleRef& module, const KernelInfo& info) {
  const LibraryRef library = module->library.lock();
  KernelRef parent;
  if (library) {
    const auto known = library->names.find(info.name);
    if (known != library->names.end()) parent = KernelOf(library, *known->second);
  }
  const std::lock_guard<std::mutex> guard(lock_);
  std::shared_ptr<Kernel>& function = module->functions[&info];
  if (!function) {
    function = std::make_shared<Kernel>();
    function->image = module->image;
    function->info = &info;
    function->context = module->context;
    function->module = module;
    function->library = library;
    function->parent = std::move(parent);
    kernels_.emplace(function.get(), function);
  }
  return function;
}

KernelRef Registry::KernelOf(const LibraryRef& library, const KernelInfo& info) {
  const std::lock_guard<std::mutex> guard(lock_);
  std::shared_ptr<Kernel>& kernel = library->kernels[&info];
  if (!kernel) {
    kernel = std::make_shared<Kernel>();
    kernel->image = library->image;
    kernel->info = &info;
    kernel->library = library;
    kernels_.emplace(kernel.get(), kernel);
  }
  return kernel;
}

CUresult Instantiate(Context& ctx, std::shared_ptr<const Image> image, const LibraryRef& library, ModuleRef* out) {
  auto module = std::make_shared<Module>();
  module->image = std::move(image);
  module->context = &ctx;
  module->library = library;
  CUresult result = CUDA_SUCCESS;
  if (module->image->code_bytes != 0) {
    result = AllocDevice(ctx, static_cast<std::size_t>(module->image->code_bytes), MemKind::kModule, &module->code);
  }
  for (const GlobalInfo& global : module->image->globals) {
    if (result != CUDA_SUCCESS) break;
    Variable variable;
    if (global.space != GlobalInfo::Space::kManaged) {
      result = PlaceVariable(ctx, global, &variable);
    } else {
      result = library ? ManagedLocked(*library, &ctx, global, &variable) : AllocManagedIn(ctx, global, &variable);
    }
    if (result == CUDA_SUCCESS) module->variables.emplace(global.name, variable);
  }
  if (result != CUDA_SUCCESS) {
    Dismantle(*module);
    return result;
  }
  for (const KernelInfo& kernel : module->image->kernels) module->kernels.emplace(kernel.name, &kernel);
  *out = std::move(module);
  return CUDA_SUCCESS;
}

void Dismantle(const Module& module) {
  const bool of_library = !module.library.expired();
  // Memory that the context's end has taken already is no error.
  if (module.code != 0) static_cast<void>(FreeDevice(module.code));
  for (const auto& [name, variable] : module.variables) {
    if (variable.address == 0 || (variable.managed && of_library)) continue;
    if (variable.managed) {
      FreeManaged(variable);
    } else {
      static_cast<void>(FreeDevice(variable.address));
    }
  }
}

CUresult AllocManagedIn(Context& ctx, const GlobalInfo& global, Variable* out) {
  *out = Variable{0, global.size, true, &ctx};
  if (global.size == 0) return CUDA_SUCCESS;
  const CUresult result = AllocManaged(ctx, static_cast<std::size_t>(global.size), CU_MEM_ATTACH_GLOBAL, &out->address);
  if (result == CUDA_SUCCESS) Initialise(out->address, global, -1);
  return result;
}

void FreeManaged(const Variable& variable) {
  if (variable.address == 0 || !variable.context->alive.load(std::memory_order_acquire)) return;
  DrainContext(*variable.context);
  FreeManaged(variable.address);
}

void ReleaseModulesOf(Context& ctx) {
  for (const ModuleRef& module : Registry::Get().RemoveOf(ctx)) Dismantle(*module);
}

}  // namespace simgpu
