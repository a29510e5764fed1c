// SPDX-License-Identifier: Apache-2.0
//
// Structures of NVML. Each struct with a `version` field has its version word beside it; a caller sets the word, and a
// library refuses one it does not know. nvml_layout.inc holds the layouts to their numbers.
#pragma once

#include "abi/nvml_types.h"

// clang-format off

// Identity
struct nvmlPciInfo_t { char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE]; unsigned domain, bus, device,
  pciDeviceId,
  pciSubSystemId; char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]; };
struct nvmlPciInfoExt_v1_t { unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
  char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]; };
using nvmlPciInfoExt_t = nvmlPciInfoExt_v1_t;
#define nvmlPciInfoExt_v1 NVML_STRUCT_VERSION(PciInfoExt, 1)
union nvmlUUIDValue_t { char str[NVML_DEVICE_UUID_ASCII_LEN]; unsigned char bytes[NVML_DEVICE_UUID_BINARY_LEN]; };
struct nvmlUUID_v1_t { unsigned version, type; nvmlUUIDValue_t value; };
using nvmlUUID_t = nvmlUUID_v1_t;
#define nvmlUUID_v1 NVML_STRUCT_VERSION(UUID, 1)
struct nvmlPdi_v1_t { unsigned version; unsigned long long value; };
using nvmlPdi_t = nvmlPdi_v1_t;
#define nvmlPdi_v1 NVML_STRUCT_VERSION(Pdi, 1)
struct nvmlPlatformInfo_v2_t { unsigned version; unsigned char ibGuid[16], chassisSerialNumber[16], slotNumber,
  trayIndex,
  hostId, peerType, moduleId; };
using nvmlPlatformInfo_t = nvmlPlatformInfo_v2_t;
#define nvmlPlatformInfo_v2 NVML_STRUCT_VERSION(PlatformInfo, 2)
struct nvmlSystemDriverBranchInfo_v1_t { unsigned version; char branch[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE]; };
using nvmlSystemDriverBranchInfo_t = nvmlSystemDriverBranchInfo_v1_t;
#define nvmlSystemDriverBranchInfo_v1 NVML_STRUCT_VERSION(SystemDriverBranchInfo, 1)
struct nvmlExcludedDeviceInfo_t { nvmlPciInfo_t pciInfo; char uuid[NVML_DEVICE_UUID_BUFFER_SIZE]; };
struct nvmlBridgeChipInfo_t { nvmlBridgeChipType_t type; unsigned fwVersion; };
struct nvmlBridgeChipHierarchy_t { unsigned char bridgeCount;
  nvmlBridgeChipInfo_t bridgeChipInfo[NVML_MAX_PHYSICAL_BRIDGE]; };
struct nvmlDeviceAttributes_t { unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
  sharedEncoderCount, sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
  unsigned long long memorySizeMB; };
struct nvmlC2cModeInfo_v1_t { unsigned isC2cEnabled; };
struct nvmlDeviceAddressingMode_v1_t { unsigned version, value; };
using nvmlDeviceAddressingMode_t = nvmlDeviceAddressingMode_v1_t;
#define nvmlDeviceAddressingMode_v1 NVML_STRUCT_VERSION(DeviceAddressingMode, 1)
struct nvmlDeviceCapabilities_v1_t { unsigned version, capMask; };
using nvmlDeviceCapabilities_t = nvmlDeviceCapabilities_v1_t;
#define nvmlDeviceCapabilities_v1 NVML_STRUCT_VERSION(DeviceCapabilities, 1)

// Memory, utilisation, processes
struct nvmlMemory_t { unsigned long long total, free, used; };
struct nvmlMemory_v2_t { unsigned version; unsigned long long total, reserved, free, used; };
#define nvmlMemory_v2 NVML_STRUCT_VERSION(Memory, 2)
struct nvmlBAR1Memory_t { unsigned long long bar1Total, bar1Free, bar1Used; };
struct nvmlUtilization_t { unsigned gpu, memory; };
struct nvmlProcessInfo_v1_t { unsigned pid; unsigned long long usedGpuMemory; };
struct nvmlProcessInfo_v2_t { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId,
  computeInstanceId; };
using nvmlProcessInfo_t = nvmlProcessInfo_v2_t;
struct nvmlProcessDetail_v1_t { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId,
  computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory; };
struct nvmlProcessDetailList_v1_t { unsigned version, mode, numProcArrayEntries; nvmlProcessDetail_v1_t* procArray; };
using nvmlProcessDetailList_t = nvmlProcessDetailList_v1_t;
#define nvmlProcessDetailList_v1 NVML_STRUCT_VERSION(ProcessDetailList, 1)
struct nvmlProcessUtilizationSample_t { unsigned pid; unsigned long long timeStamp; unsigned smUtil, memUtil, encUtil,
  decUtil; };
struct nvmlProcessUtilizationInfo_v1_t { unsigned long long timeStamp; unsigned pid, smUtil, memUtil, encUtil, decUtil,
  jpgUtil, ofaUtil; };
struct nvmlProcessesUtilizationInfo_v1_t { unsigned version, processSamplesCount; unsigned long long lastSeenTimeStamp;
  nvmlProcessUtilizationInfo_v1_t* procUtilArray; };
using nvmlProcessesUtilizationInfo_t = nvmlProcessesUtilizationInfo_v1_t;
#define nvmlProcessesUtilizationInfo_v1 NVML_STRUCT_VERSION(ProcessesUtilizationInfo, 1)
struct nvmlAccountingStats_t { unsigned gpuUtilization, memoryUtilization; unsigned long long maxMemoryUsage, time,
  startTime; unsigned isRunning, reserved[5]; };
struct nvmlAccountingStats_v2_t { unsigned pid, isRunning, gpuUtilization, memoryUtilization;
  unsigned long long maxMemoryUsage; unsigned sampleCount; unsigned long long sumGpuUtil, sumFbUtil, time, startTime; };
union nvmlValue_t { double dVal; int siVal; unsigned uiVal; unsigned long ulVal; unsigned long long ullVal;
  long long sllVal; unsigned short usVal; };
struct nvmlSample_t { unsigned long long timeStamp; nvmlValue_t sampleValue; };
struct nvmlFieldValue_t { unsigned fieldId, scopeId; long long timestamp, latencyUsec; nvmlValueType_t valueType;
  nvmlReturn_t nvmlReturn; nvmlValue_t value; };
struct nvmlEncoderSessionInfo_t { unsigned sessionId, pid; nvmlVgpuInstance_t vgpuInstance; nvmlEncoderType_t codecType;
  unsigned hResolution, vResolution, averageFps, averageLatency; };
struct nvmlFBCStats_t { unsigned sessionsCount, averageFPS, averageLatency; };

// Errors and repairs
struct nvmlEccErrorCounts_t { unsigned long long l1Cache, l2Cache, deviceMemory, registerFile; };
struct nvmlEccSramErrorStatus_v1_t { unsigned version; unsigned long long aggregateUncParity, aggregateUncSecDed,
  aggregateCor, volatileUncParity, volatileUncSecDed, volatileCor, aggregateUncBucketL2, aggregateUncBucketSm,
  aggregateUncBucketPcie, aggregateUncBucketMcu, aggregateUncBucketOther; unsigned bThresholdExceeded; };
using nvmlEccSramErrorStatus_t = nvmlEccSramErrorStatus_v1_t;
#define nvmlEccSramErrorStatus_v1 NVML_STRUCT_VERSION(EccSramErrorStatus, 1)
struct nvmlRowRemapperHistogramValues_t { unsigned max, high, partial, low, none; };
struct nvmlRemappedRowsInfo_v2_t { unsigned corrActiveRemaps, corrInactiveRemaps, uncActiveRemaps, uncInactiveRemaps,
  bPending, bFailureOccurred; };
struct nvmlRepairStatus_v1_t { unsigned version, bChannelRepairPending, bTpcRepairPending; };
using nvmlRepairStatus_t = nvmlRepairStatus_v1_t;
#define nvmlRepairStatus_v1 NVML_STRUCT_VERSION(RepairStatus, 1)

// Clocks, power, temperature, fans
struct nvmlViolationTime_t { unsigned long long referenceTime, violationTime; };
struct nvmlGpuThermalSettings_t {
  struct Sensor { nvmlThermalController_t controller; int defaultMinTemp, defaultMaxTemp, currentTemp;
    nvmlThermalTarget_t target; };
  unsigned count;
  Sensor sensor[NVML_MAX_THERMAL_SENSORS_PER_GPU];
};
struct nvmlTemperature_v1_t { unsigned version; nvmlTemperatureSensors_t sensorType; int temperature; };
using nvmlTemperature_t = nvmlTemperature_v1_t;
#define nvmlTemperature_v1 NVML_STRUCT_VERSION(Temperature, 1)
struct nvmlMarginTemperature_v1_t { unsigned version; int marginTemperature; };
using nvmlMarginTemperature_t = nvmlMarginTemperature_v1_t;
#define nvmlMarginTemperature_v1 NVML_STRUCT_VERSION(MarginTemperature, 1)
struct nvmlCoolerInfo_v1_t { unsigned version, index; nvmlCoolerControl_t signalType; nvmlCoolerTarget_t target; };
using nvmlCoolerInfo_t = nvmlCoolerInfo_v1_t;
#define nvmlCoolerInfo_v1 NVML_STRUCT_VERSION(CoolerInfo, 1)
struct nvmlFanSpeedInfo_v1_t { unsigned version, fan, speed; };
using nvmlFanSpeedInfo_t = nvmlFanSpeedInfo_v1_t;
#define nvmlFanSpeedInfo_v1 NVML_STRUCT_VERSION(FanSpeedInfo, 1)
struct nvmlClockOffset_v1_t { unsigned version; nvmlClockType_t type; nvmlPstates_t pstate; int clockOffsetMHz,
  minClockOffsetMHz, maxClockOffsetMHz; };
using nvmlClockOffset_t = nvmlClockOffset_v1_t;
#define nvmlClockOffset_v1 NVML_STRUCT_VERSION(ClockOffset, 1)
struct nvmlClkMonFaultInfo_t { unsigned clkApiDomain, clkDomainFaultMask; };
struct nvmlClkMonStatus_t { unsigned bGlobalStatus, clkMonListSize; nvmlClkMonFaultInfo_t clkMonList[32]; };
struct nvmlDevicePerfModes_v1_t { unsigned version; char str[NVML_PERF_MODES_BUFFER_SIZE]; };
using nvmlDevicePerfModes_t = nvmlDevicePerfModes_v1_t;
#define nvmlDevicePerfModes_v1 NVML_STRUCT_VERSION(DevicePerfModes, 1)
struct nvmlDeviceCurrentClockFreqs_v1_t { unsigned version; char str[NVML_PERF_MODES_BUFFER_SIZE]; };
using nvmlDeviceCurrentClockFreqs_t = nvmlDeviceCurrentClockFreqs_v1_t;
#define nvmlDeviceCurrentClockFreqs_v1 NVML_STRUCT_VERSION(DeviceCurrentClockFreqs, 1)
struct nvmlGpuDynamicPstatesInfo_t {
  struct Domain { unsigned bIsPresent, percentage, incThreshold, decThreshold; };
  unsigned flags;
  Domain utilization[NVML_MAX_GPU_UTILIZATIONS];
};
struct nvmlPowerValue_v2_t { unsigned version; nvmlPowerScopeType_t powerScope; unsigned powerValueMw; };
#define nvmlPowerValue_v2 NVML_STRUCT_VERSION(PowerValue, 2)
struct nvmlDramEncryptionInfo_v1_t { unsigned version; nvmlEnableState_t encryptionState; };
using nvmlDramEncryptionInfo_t = nvmlDramEncryptionInfo_v1_t;
#define nvmlDramEncryptionInfo_v1 NVML_STRUCT_VERSION(DramEncryptionInfo, 1)

// Links and fabric
struct nvmlNvLinkUtilizationControl_t { nvmlNvLinkUtilizationCountUnits_t units;
  nvmlNvLinkUtilizationCountPktTypes_t pktfilter; };
struct nvmlNvLinkPowerThres_t { unsigned lowPwrThreshold; };
struct nvmlNvlinkSupportedBwModes_v1_t { unsigned version; unsigned char bwModes[23], totalBwModes; };
using nvmlNvlinkSupportedBwModes_t = nvmlNvlinkSupportedBwModes_v1_t;
#define nvmlNvlinkSupportedBwModes_v1 NVML_STRUCT_VERSION(NvlinkSupportedBwModes, 1)
struct nvmlNvlinkGetBwMode_v1_t { unsigned version, bIsBest; unsigned char bwMode; };
using nvmlNvlinkGetBwMode_t = nvmlNvlinkGetBwMode_v1_t;
#define nvmlNvlinkGetBwMode_v1 NVML_STRUCT_VERSION(NvlinkGetBwMode, 1)
struct nvmlNvlinkSetBwMode_v1_t { unsigned version, bSetBest; unsigned char bwMode; };
using nvmlNvlinkSetBwMode_t = nvmlNvlinkSetBwMode_v1_t;
#define nvmlNvlinkSetBwMode_v1 NVML_STRUCT_VERSION(NvlinkSetBwMode, 1)
struct nvmlGpuFabricInfo_t { unsigned char clusterUuid[NVML_GPU_FABRIC_UUID_LEN]; nvmlReturn_t status;
  unsigned cliqueId;
  nvmlGpuFabricState_t state; };
struct nvmlGpuFabricInfo_v2_t { unsigned version; unsigned char clusterUuid[NVML_GPU_FABRIC_UUID_LEN];
  nvmlReturn_t status;
  unsigned cliqueId; nvmlGpuFabricState_t state; unsigned healthMask; };
#define nvmlGpuFabricInfo_v2 NVML_STRUCT_VERSION(GpuFabricInfo, 2)
struct nvmlGpuFabricInfo_v3_t { unsigned version; unsigned char clusterUuid[NVML_GPU_FABRIC_UUID_LEN];
  nvmlReturn_t status;
  unsigned cliqueId; nvmlGpuFabricState_t state; unsigned healthMask; unsigned char healthSummary; };
#define nvmlGpuFabricInfo_v3 NVML_STRUCT_VERSION(GpuFabricInfo, 3)
using nvmlGpuFabricInfoV_t = nvmlGpuFabricInfo_v3_t;  // 12.x: _v2; the version word says which one a caller has

// MIG
struct nvmlGpuInstancePlacement_t { unsigned start, size; };
struct nvmlComputeInstancePlacement_t { unsigned start, size; };
struct nvmlGpuInstanceProfileInfo_t { unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount,
  copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount; unsigned long long memorySizeMB; };
struct nvmlGpuInstanceProfileInfo_v2_t { unsigned version, id, isP2pSupported, sliceCount, instanceCount,
  multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE]; };
#define nvmlGpuInstanceProfileInfo_v2 NVML_STRUCT_VERSION(GpuInstanceProfileInfo, 2)
struct nvmlGpuInstanceProfileInfo_v3_t { unsigned version, id, sliceCount, instanceCount, multiprocessorCount,
  copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount; unsigned long long memorySizeMB;
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE]; unsigned capabilities; };
#define nvmlGpuInstanceProfileInfo_v3 NVML_STRUCT_VERSION(GpuInstanceProfileInfo, 3)
struct nvmlGpuInstanceInfo_t { nvmlDevice_t device; unsigned id, profileId; nvmlGpuInstancePlacement_t placement; };
struct nvmlComputeInstanceProfileInfo_t { unsigned id, sliceCount, instanceCount, multiprocessorCount,
  sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount; };
struct nvmlComputeInstanceProfileInfo_v2_t { unsigned version, id, sliceCount, instanceCount, multiprocessorCount,
  sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE]; };
#define nvmlComputeInstanceProfileInfo_v2 NVML_STRUCT_VERSION(ComputeInstanceProfileInfo, 2)
struct nvmlComputeInstanceProfileInfo_v3_t { unsigned version, id, sliceCount, instanceCount, multiprocessorCount,
  sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE]; unsigned capabilities; };
#define nvmlComputeInstanceProfileInfo_v3 NVML_STRUCT_VERSION(ComputeInstanceProfileInfo, 3)
struct nvmlComputeInstanceInfo_t { nvmlDevice_t device; nvmlGpuInstance_t gpuInstance; unsigned id, profileId;
  nvmlComputeInstancePlacement_t placement; };

// Events
struct nvmlEventData_t { nvmlDevice_t device; unsigned long long eventType, eventData; unsigned gpuInstanceId,
  computeInstanceId; };
struct nvmlSystemEventSetCreateRequest_v1_t { unsigned version; nvmlSystemEventSet_t set; };
using nvmlSystemEventSetCreateRequest_t = nvmlSystemEventSetCreateRequest_v1_t;
#define nvmlSystemEventSetCreateRequest_v1 NVML_STRUCT_VERSION(SystemEventSetCreateRequest, 1)
struct nvmlSystemEventSetFreeRequest_v1_t { unsigned version; nvmlSystemEventSet_t set; };
using nvmlSystemEventSetFreeRequest_t = nvmlSystemEventSetFreeRequest_v1_t;
#define nvmlSystemEventSetFreeRequest_v1 NVML_STRUCT_VERSION(SystemEventSetFreeRequest, 1)
struct nvmlSystemRegisterEventRequest_v1_t { unsigned version; unsigned long long eventTypes; nvmlSystemEventSet_t set;
  };
using nvmlSystemRegisterEventRequest_t = nvmlSystemRegisterEventRequest_v1_t;
#define nvmlSystemRegisterEventRequest_v1 NVML_STRUCT_VERSION(SystemRegisterEventRequest, 1)
struct nvmlSystemEventData_v1_t { unsigned long long eventType; unsigned gpuId; };
struct nvmlSystemEventSetWaitRequest_v1_t { unsigned version, timeoutms; nvmlSystemEventSet_t set;
  nvmlSystemEventData_v1_t* data; unsigned dataSize, numEvent; };
using nvmlSystemEventSetWaitRequest_t = nvmlSystemEventSetWaitRequest_v1_t;
#define nvmlSystemEventSetWaitRequest_v1 NVML_STRUCT_VERSION(SystemEventSetWaitRequest, 1)

// Units (S-class enclosures) and their neighbours
struct nvmlHwbcEntry_t { unsigned hwbcId; char firmwareVersion[32]; };
struct nvmlLedState_t { char cause[256]; nvmlLedColor_t color; };
struct nvmlUnitInfo_t { char name[96], id[96], serial[96], firmwareVersion[96]; };
struct nvmlPSUInfo_t { char state[256]; unsigned current, voltage, power; };
struct nvmlUnitFanInfo_t { unsigned speed; nvmlFanState_t state; };
struct nvmlUnitFanSpeeds_t { nvmlUnitFanInfo_t fans[24]; unsigned count; };
struct nvmlGpmSupport_t { unsigned version, isSupportedDevice; };

// clang-format on
