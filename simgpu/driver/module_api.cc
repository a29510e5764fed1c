// SPDX-License-Identifier: Apache-2.0
// cuModule*.

#include <cstdlib>
#include <string_view>

#include "simgpu/driver/engine.h"
#include "simgpu/driver/jit_options.h"
#include "simgpu/driver/module.h"

namespace simgpu {
namespace {

CUresult LoadModule(const ImageParts& parts, JitOptions* options, CUmodule* out) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  std::shared_ptr<const Image> image;
  std::string log;
  const CUresult parsed = ParseParts(parts, Target{ComputeCapability(*ctx->device)}, &image, &log);
  if (options != nullptr) options->Report("", log);
  SIMGPU_TRY(parsed);
  ModuleRef module;
  SIMGPU_TRY(Instantiate(*ctx, std::move(image), nullptr, &module));
  *out = HandleOf(*module);
  Registry::Get().Add(std::move(module));
  return CUDA_SUCCESS;
}

CUresult LoadModuleData(CUmodule* out, const void* image, JitOptions* options) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ImageParts parts;
  SIMGPU_TRY(CopyImage(image, &parts));
  return LoadModule(parts, options, out);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
  SIMGPU_ENTER(cuModuleLoad);
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ImageParts parts;
  SIMGPU_TRY(ReadImageFile(fname, &parts));
  return LoadModule(parts, nullptr, module);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  SIMGPU_ENTER(cuModuleLoadData);
  return LoadModuleData(module, image, nullptr);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions, CUjit_option* options,
                                    void** optionValues) {
  SIMGPU_ENTER(cuModuleLoadDataEx);
  JitOptions jit;
  SIMGPU_TRY(jit.Read(numOptions, options, optionValues));
  return LoadModuleData(module, image, &jit);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  SIMGPU_ENTER(cuModuleLoadFatBinary);
  return LoadModuleData(module, fatCubin, nullptr);
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
  SIMGPU_ENTER(cuModuleUnload);
  const ModuleRef found = Registry::Get().Find(hmod);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (!found->library.expired()) return CUDA_ERROR_NOT_PERMITTED;
  // Kernels in flight may still use its memory.
  DrainContext(*found->context);
  const ModuleRef module = Registry::Get().Remove(hmod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  Dismantle(*module);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIMGPU_ENTER(cuModuleGetLoadingMode);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* asked = std::getenv("CUDA_MODULE_LOADING");
  const bool eager = asked != nullptr && std::string_view(asked) == "EAGER";
  *mode = eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  SIMGPU_ENTER(cuModuleGetFunction);
  if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ModuleRef module = Registry::Get().Find(hmod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->kernels.find(name);
  if (found == module->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *hfunc = HandleOf(*Registry::Get().FunctionOf(module, *found->second));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  SIMGPU_ENTER(cuModuleGetFunctionCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ModuleRef module = Registry::Get().Find(mod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->image->kernels.size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  SIMGPU_ENTER(cuModuleEnumerateFunctions);
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ModuleRef module = Registry::Get().Find(mod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const std::vector<KernelInfo>& kernels = module->image->kernels;
  for (std::size_t i = 0; i < kernels.size() && i < numFunctions; ++i) {
    functions[i] = HandleOf(*Registry::Get().FunctionOf(module, kernels[i]));
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  SIMGPU_ENTER(cuModuleGetGlobal_v2);
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const ModuleRef module = Registry::Get().Find(hmod);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->variables.find(name);
  if (found == module->variables.end()) return CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = found->second.address;
  if (bytes != nullptr) *bytes = static_cast<std::size_t>(found->second.size);
  return CUDA_SUCCESS;
}

}  // extern "C"
