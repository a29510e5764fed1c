// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "simgpu/driver/mem.h"
#include "simgpu/driver/module.h"

namespace simgpu {
namespace {

// What a kernel whose image does not tell its registers (PTX) is taken to use.
constexpr std::uint32_t kDefaultRegisters = 32;
constexpr std::uint32_t kWarp = 32;
// Hardware hands registers to warps in units of 256, and to four warps at a time.
constexpr std::uint32_t kRegisterUnit = 256;
constexpr std::uint32_t kWarpUnit = 4;
constexpr std::uint32_t kSharedUnit = 128;

std::uint32_t RoundUp(std::uint32_t value, std::uint32_t unit) { return (value + unit - 1) / unit * unit; }

std::uint32_t RegistersOf(const KernelInfo& info) { return info.registers != 0 ? info.registers : kDefaultRegisters; }

std::uint32_t WarpsByRegisters(const KernelInfo& info, std::uint32_t registers) {
  const std::uint32_t per_warp = RoundUp(RegistersOf(info) * kWarp, kRegisterUnit);
  return registers / per_warp / kWarpUnit * kWarpUnit;
}

std::uint32_t MaxThreads(const KernelInfo& info, const DeviceSpec& spec) {
  std::uint32_t threads = std::min(spec.max_threads_per_block, WarpsByRegisters(info, spec.regs_per_block) * kWarp);
  if (info.max_threads != 0) threads = std::min(threads, info.max_threads);
  return threads;
}

// What the program set, on the function or on the library's kernel that it came from; kUnset otherwise.
int Setting(const Kernel& kernel, const Device& device, int attribute) {
  const auto index = static_cast<std::size_t>(attribute);
  const bool of_library = kernel.context == nullptr;
  if (!of_library) {
    const int own = kernel.settings.values[index].load(std::memory_order_relaxed);
    if (own != kUnset || !kernel.parent) return own;
  }
  const Kernel& holder = of_library ? kernel : *kernel.parent;
  const auto ordinal = static_cast<std::size_t>(device.ordinal);
  return holder.device_settings[ordinal].values[index].load(std::memory_order_relaxed);
}

int SettingOr(const Kernel& kernel, const Device& device, int attribute, int otherwise) {
  const int set = Setting(kernel, device, attribute);
  return set == kUnset ? otherwise : set;
}

std::uint32_t MaxDynamicShared(const Kernel& kernel, const Device& device) {
  const std::uint32_t plain = device.spec->shared_per_block;
  const std::uint32_t rest = plain - std::min(plain, kernel.info->static_shared);
  return static_cast<std::uint32_t>(
      SettingOr(kernel, device, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(rest)));
}

std::uint32_t RequiredCluster(const Kernel& kernel, const Device& device, std::size_t axis) {
  if (kernel.info->required_cluster[axis] != 0) return kernel.info->required_cluster[axis];
  const int attribute = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + static_cast<int>(axis);
  return static_cast<std::uint32_t>(SettingOr(kernel, device, attribute, 0));
}

// The device a kernel's questions are about: its context's, or the first for a library's kernel.
const Device& DeviceOf(const Kernel& kernel) {
  return kernel.context != nullptr ? *kernel.context->device : *FindDevice(0);
}

std::uint64_t ConstantBytes(const Image& image) {
  std::uint64_t bytes = 0;
  for (const GlobalInfo& global : image.globals) {
    if (global.space == GlobalInfo::Space::kConstant) bytes += global.size;
  }
  return std::min<std::uint64_t>(bytes, INT_MAX);
}

std::uint64_t SaturatingMultiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

CUresult PackFromExtra(const KernelInfo& info, void** extra, std::vector<std::byte>* out) {
  const void* buffer = nullptr;
  std::size_t size = 0;
  bool sized = false;
  for (std::size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      if (extra[i + 1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(&size, extra[i + 1], sizeof size);
      sized = true;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const std::size_t needed = info.params.empty() ? 0 : info.params.back().offset + info.params.back().size;
  if (needed == 0) return CUDA_SUCCESS;
  if (buffer == nullptr || !sized || size < needed) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out->data(), buffer, needed);
  return CUDA_SUCCESS;
}

}  // namespace

KernelRef FromHandle(CUfunction handle) { return Registry::Get().Find(static_cast<const void*>(handle)); }
const KernelInfo& InfoOf(const Kernel& kernel) { return *kernel.info; }
Context* ContextOf(const Kernel& kernel) { return kernel.context; }
CUfunction HandleOf(const Kernel& kernel) { return reinterpret_cast<CUfunction>(const_cast<Kernel*>(&kernel)); }

CUresult KernelForLaunch(CUfunction handle, Context& ctx, KernelRef* out) {
  KernelRef kernel = FromHandle(handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel->context == nullptr) {
    const LibraryRef library = kernel->library.lock();
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    ModuleRef module;
    SIMGPU_TRY(ModuleOf(library, ctx, &module));
    const auto found = module->kernels.find(kernel->info->name);
    // The image chosen for this device may lack what another device's has.
    if (found == module->kernels.end()) return CUDA_ERROR_NOT_FOUND;
    *out = Registry::Get().FunctionOf(module, *found->second);
    return CUDA_SUCCESS;
  }
  const Context& home = *kernel->context;
  const bool green = home.kind == ContextKind::kGreen || ctx.kind == ContextKind::kGreen;
  if (&home != &ctx && !(green && home.device == ctx.device)) return CUDA_ERROR_INVALID_HANDLE;
  *out = std::move(kernel);
  return CUDA_SUCCESS;
}

KernelLimits LimitsOf(const Kernel& kernel) {
  const Device& device = DeviceOf(kernel);
  KernelLimits limits;
  limits.max_threads_per_block = MaxThreads(*kernel.info, *device.spec);
  limits.registers = RegistersOf(*kernel.info);
  limits.static_shared = kernel.info->static_shared;
  limits.max_dynamic_shared = MaxDynamicShared(kernel, device);
  for (std::size_t axis = 0; axis < 3; ++axis) limits.required_cluster[axis] = RequiredCluster(kernel, device, axis);
  limits.non_portable_cluster = SettingOr(kernel, device, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0) != 0;
  return limits;
}

CUresult GetKernelAttribute(const Kernel& kernel, CUfunction_attribute attribute, int* value) {
  return GetKernelAttribute(kernel, DeviceOf(kernel), attribute, value);
}

CUresult GetKernelAttribute(const Kernel& kernel, const Device& device, CUfunction_attribute attribute, int* value) {
  const KernelInfo& info = *kernel.info;
  const int capability = ComputeCapability(device);
  const int built_for = kernel.image->compute_capability != 0 ? kernel.image->compute_capability : capability;
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(MaxThreads(info, *device.spec));
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.static_shared);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = static_cast<int>(ConstantBytes(*kernel.image));
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(RegistersOf(info));
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = built_for;
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      // PTX becomes code of the device itself.
      *value = kernel.image->kind == ImageKind::kPtx ? capability : built_for;
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(MaxDynamicShared(kernel, device));
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = SettingOr(kernel, device, attribute, -1);
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = info.required_cluster[0] != 0 ? 1 : 0;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
      const auto axis = static_cast<std::size_t>(attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
      *value = static_cast<int>(RequiredCluster(kernel, device, axis));
      break;
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = SettingOr(kernel, device, attribute, 0);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult SetKernelAttribute(const Kernel& kernel, KernelSettings& settings, const Device& device,
                            CUfunction_attribute attribute, int value) {
  const DeviceSpec& spec = *device.spec;
  const std::uint32_t room =
      spec.shared_per_block_optin - std::min(spec.shared_per_block_optin, kernel.info->static_shared);
  bool good = false;
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      good = value >= 0 && static_cast<std::uint32_t>(value) <= room;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      good = value >= -1 && value <= 100;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      // What the compiler fixed can not be changed.
      if (kernel.info->required_cluster[0] != 0) return CUDA_ERROR_NOT_PERMITTED;
      good = value >= 0;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      good = value == 0 || value == 1;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      good = value >= 0 && value <= 2;
      break;
    default:
      break;
  }
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  settings.values[static_cast<std::size_t>(attribute)].store(value, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

int MaxBlocksPerSm(const Kernel& kernel, int threads_per_block, std::size_t dynamic_shared) {
  const Device& device = DeviceOf(kernel);
  const DeviceSpec& spec = *device.spec;
  const KernelInfo& info = *kernel.info;
  if (threads_per_block <= 0 || static_cast<std::uint32_t>(threads_per_block) > MaxThreads(info, spec)) return 0;
  if (dynamic_shared + info.static_shared > spec.shared_per_block_optin) return 0;
  const std::uint32_t warps = RoundUp(static_cast<std::uint32_t>(threads_per_block), kWarp) / kWarp;
  std::uint32_t blocks = std::min(spec.max_blocks_per_sm, spec.max_threads_per_sm / kWarp / warps);
  blocks = std::min(blocks, WarpsByRegisters(info, spec.regs_per_sm) / warps);
  const std::uint32_t shared = RoundUp(
      static_cast<std::uint32_t>(dynamic_shared) + info.static_shared + spec.shared_reserved_per_block, kSharedUnit);
  if (shared != 0) blocks = std::min(blocks, spec.shared_per_sm / shared);
  return static_cast<int>(blocks);
}

CUresult PackParams(const KernelInfo& info, void** kernel_params, void** extra, std::vector<std::byte>* out) {
  if (kernel_params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  out->assign(info.param_bytes, std::byte{0});
  if (extra != nullptr) return PackFromExtra(info, extra, out);
  if (info.params.empty()) return CUDA_SUCCESS;
  if (kernel_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    if (kernel_params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out->data() + info.params[i].offset, kernel_params[i], info.params[i].size);
  }
  return CUDA_SUCCESS;
}

std::uint64_t ParamU64(const KernelInfo& info, const std::vector<std::byte>& packed, std::size_t index) {
  if (index >= info.params.size()) return 0;
  const ParamInfo& param = info.params[index];
  if (param.offset > packed.size() || packed.size() - param.offset < param.size) return 0;
  std::uint64_t value = 0;
  std::memcpy(&value, packed.data() + param.offset, std::min<std::size_t>(param.size, sizeof value));
  return value;
}

std::uint64_t KernelCost(const KernelInfo& info, const std::vector<std::byte>& packed, std::uint64_t blocks,
                         std::uint64_t default_block_nanos) {
  switch (info.cost.kind) {
    case CostModel::Kind::kTotal:
      return info.cost.sm_nanos;
    case CostModel::Kind::kPerBlock:
      return SaturatingMultiply(info.cost.sm_nanos, blocks);
    case CostModel::Kind::kParamTotal:
      return ParamU64(info, packed, info.cost.param);
    case CostModel::Kind::kParamPerBlock:
      return SaturatingMultiply(ParamU64(info, packed, info.cost.param), blocks);
    case CostModel::Kind::kMachineDefault:
      break;
  }
  return SaturatingMultiply(default_block_nanos, blocks);
}

CUresult RunHostAction(const KernelInfo& info, const std::vector<std::byte>& packed) {
  if (info.action == HostAction::kNone) return CUDA_SUCCESS;
  const CUdeviceptr dst = ParamU64(info, packed, 0);
  const std::uint64_t second = ParamU64(info, packed, 1);
  const std::uint64_t third = ParamU64(info, packed, 2);
  auto* target = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(dst));
  switch (info.action) {
    case HostAction::kFill:
      if (second == 0) return CUDA_SUCCESS;
      if (!IsDeviceRange(dst, second)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::memset(target, static_cast<int>(third & 0xff), second);
      break;
    case HostAction::kCopy:
      if (third == 0) return CUDA_SUCCESS;
      if (!IsDeviceRange(dst, third) || !IsDeviceRange(second, third)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::memmove(target, reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(second)), third);
      break;
    case HostAction::kAdd: {
      std::uint64_t bytes = 0;
      if (second == 0) return CUDA_SUCCESS;
      if (__builtin_mul_overflow(second, sizeof(std::uint32_t), &bytes) || !IsDeviceRange(dst, bytes)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
      }
      for (std::uint64_t i = 0; i < second; ++i) {
        std::uint32_t element = 0;
        std::memcpy(&element, target + i * sizeof element, sizeof element);
        element += static_cast<std::uint32_t>(third);
        std::memcpy(target + i * sizeof element, &element, sizeof element);
      }
      break;
    }
    case HostAction::kNone:
      break;
  }
  return CUDA_SUCCESS;
}

LegacyLaunch LegacyLaunchOf(const Kernel& kernel) {
  const std::lock_guard<std::mutex> guard(kernel.legacy_lock);
  LegacyLaunch launch = kernel.legacy;
  if (launch.params.size() < kernel.info->param_bytes) launch.params.resize(kernel.info->param_bytes);
  return launch;
}

CUresult GetParamInfo(const KernelInfo& info, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (index >= info.params.size() || offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.params[index].offset;
  if (size != nullptr) *size = info.params[index].size;
  return CUDA_SUCCESS;
}

}  // namespace simgpu
