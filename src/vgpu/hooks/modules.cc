// SPDX-License-Identifier: Apache-2.0
//
// What loads code and globals, or makes a context's own memory grow: measured, and undone where it does not fit.

#include "vgpu/memory/modules.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/pacer/pacer.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

// `undo` takes `out` back; what the caller finds in *out afterwards is what was there before.
template <typename Handle, typename Load, typename Undo>
CUresult Watched(Handle* out, Load load, Undo undo) {
  if (!Active() || out == nullptr) return load();
  const Handle before = *out;
  LoadWatch watch;
  const CUresult result = load();
  if (result != CUDA_SUCCESS || watch.Fits()) return result;
  undo(*out);
  watch.Undone();
  *out = before;
  Refused(watch.device(), 0);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Load>
CUresult Module(CUmodule* out, Load load) {
  return Watched(out, load, [](CUmodule module) { real::cuModuleUnload(module); });
}

template <typename Load>
CUresult WatchedLibrary(CUlibrary* out, Load load) {
  return Watched(out, load, [](CUlibrary library) { real::cuLibraryUnload(library); });
}

template <typename Unload>
CUresult Unloaded(Unload unload) {
  if (!Active()) return unload();
  MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = unload();
  if (result == CUDA_SUCCESS) ForgetGuesses();
  ContextRef context;
  if (result == CUDA_SUCCESS && CurrentContext(&context)) SettleModules(context.device, &measure_lock);
  return result;
}

template <typename Use>
CUresult FirstUse(Use use) {
  if (!Active()) return use();
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = use();
  NoteFirstUse();
  return result;
}

}  // namespace

HAMI_EXPORT CUresult cuModuleLoad(CUmodule* out, const char* path) {
  return Module(out, [&] { return real::cuModuleLoad(out, path); });
}

HAMI_EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return Module(out, [&] { return real::cuModuleLoadData(out, image); });
}

HAMI_EXPORT CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, CUjit_option* options,
                                        void** values) {
  return Module(out, [&] { return real::cuModuleLoadDataEx(out, image, count, options, values); });
}

HAMI_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return Module(out, [&] { return real::cuModuleLoadFatBinary(out, image); });
}

HAMI_EXPORT CUresult cuModuleUnload(CUmodule module) {
  return Unloaded([&] { return real::cuModuleUnload(module); });
}

HAMI_EXPORT CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* jit, void** jit_values,
                                       unsigned jit_count, CUlibraryOption* options, void** values, unsigned count) {
  return WatchedLibrary(
      out, [&] { return real::cuLibraryLoadData(out, code, jit, jit_values, jit_count, options, values, count); });
}

HAMI_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* jit, void** jit_values,
                                           unsigned jit_count, CUlibraryOption* options, void** values,
                                           unsigned count) {
  return WatchedLibrary(
      out, [&] { return real::cuLibraryLoadFromFile(out, path, jit, jit_values, jit_count, options, values, count); });
}

HAMI_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  return Unloaded([&] { return real::cuLibraryUnload(library); });
}

// The first look at a part of a module or library may load it.
HAMI_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return FirstUse([&] { return real::cuModuleGetFunction(out, module, name); });
}

HAMI_EXPORT CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return FirstUse([&] { return real::cuLibraryGetKernel(out, library, name); });
}

HAMI_EXPORT CUresult cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  return FirstUse([&] { return real::cuLibraryGetModule(out, library); });
}

HAMI_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* out, size_t* bytes, CUlibrary library, const char* name) {
  return FirstUse([&] { return real::cuLibraryGetGlobal(out, bytes, library, name); });
}

HAMI_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr* out, size_t* bytes, CUlibrary library, const char* name) {
  return FirstUse([&] { return real::cuLibraryGetManaged(out, bytes, library, name); });
}

HAMI_EXPORT CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  return FirstUse([&] { return real::cuKernelGetFunction(out, kernel); });
}

HAMI_EXPORT CUresult cuFuncLoad(CUfunction function) {
  return FirstUse([&] { return real::cuFuncLoad(function); });
}

// Stack, heap and queue sizes are the context's memory. What does not fit is set back.
HAMI_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  if (!Active()) return real::cuCtxSetLimit(limit, value);
  const Locked locked(ContextLimitLock());
  size_t before = 0;
  if (real::cuCtxGetLimit(&before, limit) != CUDA_SUCCESS) return real::cuCtxSetLimit(limit, value);
  const CUresult result = Watched(
      &value, [&] { return real::cuCtxSetLimit(limit, value); }, [&](size_t) { real::cuCtxSetLimit(limit, before); });
  return result == CUDA_SUCCESS && value < before ? Unloaded([result] { return result; }) : result;
}
