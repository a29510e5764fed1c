// SPDX-License-Identifier: Apache-2.0
//
// Texture and surface objects. Kernels compute nothing, so an object is what it was made from, checked as the driver
// checks it: a program with a bad pitch or a stale array learns it here and not on a real GPU. Objects own no memory
// and die with the context they were made in.

#include <mutex>
#include <unordered_map>

#include "simgpu/driver/array.h"
#include "simgpu/driver/core.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

// What the device attributes of the same names say.
constexpr std::size_t kTextureAlignment = 512;
constexpr std::size_t kTexturePitchAlignment = 32;

struct Object {
  const Context* ctx = nullptr;
  bool surface = false;
  bool has_view = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
};

struct Objects {
  std::mutex lock;
  std::unordered_map<unsigned long long, Object> live;
  unsigned long long last = 0;  // handles are not reused, so a stale one is told from a live one
};

Objects& TheObjects() {
  static Objects& objects = *new Objects;
  return objects;
}

using ObjectLock = std::lock_guard<std::mutex>;

CUresult TexelBytes(CUarray_format format, unsigned channels, std::size_t* out) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = 1;
  desc.Format = format;
  desc.NumChannels = channels;
  ArrayLayout layout;
  SIMGPU_TRY(LayOut(desc, &layout));
  *out = layout.element;
  return CUDA_SUCCESS;
}

CUresult CheckLinear(const CUDA_RESOURCE_DESC::Linear& linear) {
  std::size_t texel = 0;
  SIMGPU_TRY(TexelBytes(linear.format, linear.numChannels, &texel));
  const bool good = linear.devPtr % kTextureAlignment == 0 && linear.sizeInBytes >= texel &&
                    IsDeviceRange(linear.devPtr, linear.sizeInBytes);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckPitch2D(const CUDA_RESOURCE_DESC::Pitch2D& plane) {
  std::size_t texel = 0;
  SIMGPU_TRY(TexelBytes(plane.format, plane.numChannels, &texel));
  if (plane.width == 0 || plane.height == 0 || plane.width > plane.pitchInBytes / texel) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (plane.devPtr % kTextureAlignment != 0 || plane.pitchInBytes % kTexturePitchAlignment != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::size_t bytes = 0;  // the last row may end before its pitch does
  if (__builtin_mul_overflow(plane.height - 1, plane.pitchInBytes, &bytes) ||
      __builtin_add_overflow(bytes, plane.width * texel, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return IsDeviceRange(plane.devPtr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckResource(const CUDA_RESOURCE_DESC& desc, bool surface) {
  if (desc.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  ArrayView array;
  switch (desc.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (!FindArray(desc.res.array.hArray, &array)) return CUDA_ERROR_INVALID_HANDLE;
      if (surface && (array.flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (surface) return CUDA_ERROR_INVALID_VALUE;
      return IsMipmap(desc.res.mipmap.hMipmappedArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_LINEAR:
      return surface ? CUDA_ERROR_INVALID_VALUE : CheckLinear(desc.res.linear);
    case CU_RESOURCE_TYPE_PITCH2D:
      return surface ? CUDA_ERROR_INVALID_VALUE : CheckPitch2D(desc.res.pitch2D);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Create(unsigned long long* out, const CUDA_RESOURCE_DESC* resource, Object made) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckResource(*resource, made.surface));
  made.ctx = ctx;
  made.resource = *resource;
  const ObjectLock guard(TheObjects().lock);
  *out = ++TheObjects().last;
  TheObjects().live.emplace(*out, made);
  return CUDA_SUCCESS;
}

CUresult Remove(unsigned long long handle, bool surface) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  const ObjectLock guard(TheObjects().lock);
  const auto found = TheObjects().live.find(handle);
  if (found == TheObjects().live.end() || found->second.surface != surface) return CUDA_ERROR_INVALID_VALUE;
  TheObjects().live.erase(found);
  return CUDA_SUCCESS;
}

// Copies the part of the object that `pick` names.
template <typename Part>
CUresult Tell(Part* out, unsigned long long handle, bool surface, Part Object::*pick) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ObjectLock guard(TheObjects().lock);
  const auto found = TheObjects().live.find(handle);
  if (found == TheObjects().live.end() || found->second.surface != surface) return CUDA_ERROR_INVALID_VALUE;
  *out = found->second.*pick;
  return CUDA_SUCCESS;
}

}  // namespace

void ReleaseTexturesOf(const Context& ctx) {
  const ObjectLock guard(TheObjects().lock);
  std::erase_if(TheObjects().live, [&](const auto& entry) { return entry.second.ctx == &ctx; });
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
                           const CUDA_RESOURCE_VIEW_DESC* view) {
  SIMGPU_ENTER(cuTexObjectCreate);
  if (resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool array =
      resource->resType == CU_RESOURCE_TYPE_ARRAY || resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (view != nullptr && !array) return CUDA_ERROR_INVALID_VALUE;
  Object made;
  made.texture = *texture;
  made.has_view = view != nullptr;
  if (view != nullptr) made.view = *view;
  return Create(out, resource, made);
}

CUresult cuTexObjectDestroy(CUtexObject object) {
  SIMGPU_ENTER(cuTexObjectDestroy);
  return Remove(object, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject object) {
  SIMGPU_ENTER(cuTexObjectGetResourceDesc);
  return Tell(out, object, false, &Object::resource);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject object) {
  SIMGPU_ENTER(cuTexObjectGetTextureDesc);
  return Tell(out, object, false, &Object::texture);
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject object) {
  SIMGPU_ENTER(cuTexObjectGetResourceViewDesc);
  bool has_view = false;
  SIMGPU_TRY(Tell(&has_view, object, false, &Object::has_view));
  return has_view ? Tell(out, object, false, &Object::view) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
  SIMGPU_ENTER(cuSurfObjectCreate);
  Object made;
  made.surface = true;
  return Create(out, resource, made);
}

CUresult cuSurfObjectDestroy(CUsurfObject object) {
  SIMGPU_ENTER(cuSurfObjectDestroy);
  return Remove(object, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject object) {
  SIMGPU_ENTER(cuSurfObjectGetResourceDesc);
  return Tell(out, object, true, &Object::resource);
}
