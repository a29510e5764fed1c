// SPDX-License-Identifier: Apache-2.0
//
// cuLink*: puts the kernels and globals of several images together. The result is a cubin that describes them and loads
// like any other. Nothing is compiled, so a symbol that no input defines is not missed. Object files and archives of
// host code, which hold images among other things, and NVVM are not read: CUDA_ERROR_NOT_SUPPORTED.

#include <memory>
#include <mutex>
#include <unordered_map>

#include "simgpu/driver/image_source.h"
#include "simgpu/driver/jit_options.h"
#include "simgpu/driver/module.h"
#include "simgpu/image/cubin_writer.h"

namespace simgpu {
namespace {

struct Link {
  std::mutex lock;
  JitOptions options;
  Target target;
  Image image;
  bool any = false;
  bool complete = false;
  std::vector<std::byte> cubin;  // the caller's until the link is destroyed
};
using LinkRef = std::shared_ptr<Link>;

struct Links {
  std::mutex lock;
  std::unordered_map<const void*, LinkRef> live;
};

Links& TheLinks() {
  static Links& links = *new Links;
  return links;
}

LinkRef FindLink(CUlinkState state) {
  Links& links = TheLinks();
  const std::lock_guard<std::mutex> guard(links.lock);
  const auto found = links.live.find(static_cast<const void*>(state));
  return found == links.live.end() ? nullptr : found->second;
}

CUresult Create(unsigned count, CUjit_option* options, void** values, CUlinkState* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  auto link = std::make_shared<Link>();
  SIMGPU_TRY(link->options.Read(count, options, values));
  const int asked = link->options.target();
  link->target.compute_capability = asked != 0 ? asked : ComputeCapability(*ctx->device);
  *out = reinterpret_cast<CUlinkState>(link.get());
  Links& links = TheLinks();
  const std::lock_guard<std::mutex> guard(links.lock);
  links.live.emplace(link.get(), std::move(link));
  return CUDA_SUCCESS;
}

bool FitsType(CUjitInputType type, const ImageParts& parts) {
  const ImageKind kind = DetectKind(parts.front());
  switch (type) {
    case CU_JIT_INPUT_CUBIN:
      return kind == ImageKind::kElf;
    case CU_JIT_INPUT_PTX:
      return kind == ImageKind::kPtx || kind == ImageKind::kSimgpuText;
    case CU_JIT_INPUT_FATBINARY:
      return kind == ImageKind::kFatbin;
    default:
      return false;
  }
}

CUresult AddParts(Link& link, CUjitInputType type, const ImageParts& parts, const char* name) {
  if (type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_JIT_INPUT_CUBIN && type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) {
    return type == CU_JIT_INPUT_NVVM ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard<std::mutex> guard(link.lock);
  if (link.complete) return CUDA_ERROR_INVALID_VALUE;
  std::string log;
  std::shared_ptr<const Image> image;
  CUresult added = type == CU_JIT_INPUT_PTX ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
  if (FitsType(type, parts)) added = ParseParts(parts, link.target, &image, &log);
  if (added != CUDA_SUCCESS) {
    if (log.empty()) log = "not an image of the given type";
    link.options.Report("", std::string(name != nullptr ? name : "input") + ": " + log);
    return added;
  }
  MergeImage(Image(*image), &link.image);
  link.any = true;
  return CUDA_SUCCESS;
}

CUresult AddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name, unsigned count,
                 CUjit_option* options, void** values) {
  const LinkRef link = FindLink(state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  JitOptions of_input;
  SIMGPU_TRY(of_input.Read(count, options, values));
  ImageParts parts;
  SIMGPU_TRY(CopyImage(data, size, &parts));
  return AddParts(*link, type, parts, name);
}

CUresult AddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned count, CUjit_option* options,
                 void** values) {
  const LinkRef link = FindLink(state);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  JitOptions of_input;
  SIMGPU_TRY(of_input.Read(count, options, values));
  ImageParts parts;
  SIMGPU_TRY(ReadImageFile(path, &parts));
  return AddParts(*link, type, parts, path);
}

CUresult Complete(Link& link, void** cubin, size_t* size) {
  const std::lock_guard<std::mutex> guard(link.lock);
  if (!link.any) return CUDA_ERROR_INVALID_IMAGE;
  if (!link.complete) {
    link.image.compute_capability = link.target.compute_capability;
    link.cubin = WriteCubin(link.image);
    if (link.cubin.empty()) return CUDA_ERROR_INVALID_IMAGE;
    link.complete = true;
  }
  link.options.Report("", "");
  *cubin = link.cubin.data();
  if (size != nullptr) *size = link.cubin.size();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult CUDAAPI cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                              CUlinkState* stateOut) {
  SIMGPU_ENTER(cuLinkCreate);
  return Create(numOptions, options, optionValues, stateOut);
}

CUresult CUDAAPI cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                                 CUlinkState* stateOut) {
  SIMGPU_ENTER(cuLinkCreate_v2);
  return Create(numOptions, options, optionValues, stateOut);
}

CUresult CUDAAPI cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                               unsigned int numOptions, CUjit_option* options, void** optionValues) {
  SIMGPU_ENTER(cuLinkAddData);
  return AddData(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult CUDAAPI cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                                  unsigned int numOptions, CUjit_option* options, void** optionValues) {
  SIMGPU_ENTER(cuLinkAddData_v2);
  return AddData(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult CUDAAPI cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                               CUjit_option* options, void** optionValues) {
  SIMGPU_ENTER(cuLinkAddFile);
  return AddFile(state, type, path, numOptions, options, optionValues);
}

CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                                  CUjit_option* options, void** optionValues) {
  SIMGPU_ENTER(cuLinkAddFile_v2);
  return AddFile(state, type, path, numOptions, options, optionValues);
}

CUresult CUDAAPI cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  SIMGPU_ENTER(cuLinkComplete);
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LinkRef link = FindLink(state);
  return link ? Complete(*link, cubinOut, sizeOut) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState state) {
  SIMGPU_ENTER(cuLinkDestroy);
  Links& links = TheLinks();
  const std::lock_guard<std::mutex> guard(links.lock);
  return links.live.erase(static_cast<const void*>(state)) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // extern "C"
