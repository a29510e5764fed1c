// SPDX-License-Identifier: Apache-2.0
//
// Functions of NVML that a simulated library implements and that a device plugin or a monitor calls, every version
// under its exported name. vGPU, confidential computing, GRID licences, PRM registers, power profiles and NVLink
// encryption are left out: a library that lacks their declarations still exports them by name from nvml_api.inc.
#pragma once

#include "abi/nvml_declare.h"

// clang-format off
extern "C" {

// The library and the system
HAMI_NVML(nvmlInit, void);
HAMI_NVML(nvmlInit_v2, void);
HAMI_NVML(nvmlInitWithFlags, unsigned flags);
HAMI_NVML(nvmlShutdown, void);
const char* nvmlErrorString(nvmlReturn_t code);
HAMI_NVML(nvmlSystemGetDriverVersion, char* text, unsigned length);
HAMI_NVML(nvmlSystemGetDriverBranch, nvmlSystemDriverBranchInfo_t* info, unsigned length);
HAMI_NVML(nvmlSystemGetNVMLVersion, char* text, unsigned length);
HAMI_NVML(nvmlSystemGetCudaDriverVersion, int* version);
HAMI_NVML(nvmlSystemGetCudaDriverVersion_v2, int* version);
HAMI_NVML(nvmlSystemGetProcessName, unsigned pid, char* name, unsigned length);
HAMI_NVML(nvmlSystemGetHicVersion, unsigned* count, nvmlHwbcEntry_t* entries);
HAMI_NVML(nvmlSystemGetTopologyGpuSet, unsigned cpu, unsigned* count, nvmlDevice_t* devices);
HAMI_NVML(nvmlSystemGetNvlinkBwMode, unsigned* mode);
HAMI_NVML(nvmlSystemSetNvlinkBwMode, unsigned mode);
HAMI_NVML(nvmlSystemEventSetCreate, nvmlSystemEventSetCreateRequest_t* request);
HAMI_NVML(nvmlSystemEventSetFree, nvmlSystemEventSetFreeRequest_t* request);
HAMI_NVML(nvmlSystemRegisterEvents, nvmlSystemRegisterEventRequest_t* request);
HAMI_NVML(nvmlSystemEventSetWait, nvmlSystemEventSetWaitRequest_t* request);
HAMI_NVML(nvmlGetExcludedDeviceCount, unsigned* count);
HAMI_NVML(nvmlGetExcludedDeviceInfoByIndex, unsigned index, nvmlExcludedDeviceInfo_t* info);

// Finding devices
HAMI_NVML(nvmlDeviceGetCount, unsigned* count);
HAMI_NVML(nvmlDeviceGetCount_v2, unsigned* count);
HAMI_NVML(nvmlDeviceGetHandleByIndex, unsigned index, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceGetHandleByIndex_v2, unsigned index, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceGetHandleBySerial, const char* serial, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceGetHandleByUUID, const char* uuid, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceGetHandleByUUIDV, const nvmlUUID_t* uuid, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceGetHandleByPciBusId, const char* bus_id, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceGetHandleByPciBusId_v2, const char* bus_id, nvmlDevice_t* device);
HAMI_NVML(nvmlDeviceDiscoverGpus, nvmlPciInfo_t* pci);
HAMI_NVML(nvmlDeviceRemoveGpu, nvmlPciInfo_t* pci);
HAMI_NVML(nvmlDeviceRemoveGpu_v2, nvmlPciInfo_t* pci, nvmlDetachGpuState_t gpu, nvmlPcieLinkState_t link);
HAMI_NVML(nvmlDeviceModifyDrainState, nvmlPciInfo_t* pci, nvmlEnableState_t state);
HAMI_NVML(nvmlDeviceQueryDrainState, nvmlPciInfo_t* pci, nvmlEnableState_t* state);

// Identity
HAMI_NVML_DEVICE(GetIndex, unsigned* index);
HAMI_NVML_DEVICE(GetName, char* name, unsigned length);
HAMI_NVML_DEVICE(GetBrand, nvmlBrandType_t* brand);
HAMI_NVML_DEVICE(GetUUID, char* uuid, unsigned length);
HAMI_NVML_DEVICE(GetSerial, char* serial, unsigned length);
HAMI_NVML_DEVICE(GetModuleId, unsigned* id);
HAMI_NVML_DEVICE(GetMinorNumber, unsigned* minor);
HAMI_NVML_DEVICE(GetNumaNodeId, unsigned* node);
HAMI_NVML_DEVICE(GetBoardId, unsigned* id);
HAMI_NVML_DEVICE(GetBoardPartNumber, char* text, unsigned length);
HAMI_NVML_DEVICE(GetMultiGpuBoard, unsigned* multi);
HAMI_NVML_DEVICE(GetInforomVersion, nvmlInforomObject_t object, char* text, unsigned length);
HAMI_NVML_DEVICE(GetInforomImageVersion, char* text, unsigned length);
HAMI_NVML_DEVICE(GetInforomConfigurationChecksum, unsigned* checksum);
HAMI_NVML(nvmlDeviceValidateInforom, nvmlDevice_t device);
HAMI_NVML_DEVICE(GetVbiosVersion, char* text, unsigned length);
HAMI_NVML_DEVICE(GetBridgeChipInfo, nvmlBridgeChipHierarchy_t* info);
HAMI_NVML_DEVICE(GetPlatformInfo, nvmlPlatformInfo_t* info);
HAMI_NVML_DEVICE(GetArchitecture, nvmlDeviceArchitecture_t* arch);
HAMI_NVML_DEVICE(GetCudaComputeCapability, int* major, int* minor);
HAMI_NVML_DEVICE(GetNumGpuCores, unsigned* cores);
HAMI_NVML_DEVICE(GetAttributes, nvmlDeviceAttributes_t* attributes);
HAMI_NVML_DEVICE(GetAttributes_v2, nvmlDeviceAttributes_t* attributes);
HAMI_NVML_DEVICE(GetCapabilities, nvmlDeviceCapabilities_t* capabilities);
HAMI_NVML_DEVICE(GetC2cModeInfoV, nvmlC2cModeInfo_v1_t* info);
HAMI_NVML_DEVICE(GetGspFirmwareVersion, char* text);
HAMI_NVML_DEVICE(GetGspFirmwareMode, unsigned* enabled, unsigned* by_default);
HAMI_NVML_DEVICE(GetIrqNum, unsigned* irq);
HAMI_NVML_DEVICE(GetPgpuMetadataString, char* text, unsigned* length);
HAMI_NVML_DEVICE(GetVirtualizationMode, nvmlGpuVirtualizationMode_t* mode);
HAMI_NVML_DEVICE(SetVirtualizationMode, nvmlGpuVirtualizationMode_t mode);
HAMI_NVML_DEVICE(GetHostVgpuMode, nvmlHostVgpuMode_t* mode);

// Modes
HAMI_NVML_DEVICE(GetPersistenceMode, nvmlEnableState_t* mode);
HAMI_NVML_DEVICE(SetPersistenceMode, nvmlEnableState_t mode);
HAMI_NVML_DEVICE(GetComputeMode, nvmlComputeMode_t* mode);
HAMI_NVML_DEVICE(SetComputeMode, nvmlComputeMode_t mode);
HAMI_NVML_DEVICE(GetDisplayMode, nvmlEnableState_t* mode);
HAMI_NVML_DEVICE(GetDisplayActive, nvmlEnableState_t* active);
HAMI_NVML_DEVICE(GetDriverModel, nvmlDriverModel_t* current, nvmlDriverModel_t* pending);
HAMI_NVML_DEVICE(GetDriverModel_v2, nvmlDriverModel_t* current, nvmlDriverModel_t* pending);
HAMI_NVML_DEVICE(SetDriverModel, nvmlDriverModel_t model, unsigned flags);
HAMI_NVML_DEVICE(GetGpuOperationMode, nvmlGpuOperationMode_t* current, nvmlGpuOperationMode_t* pending);
HAMI_NVML_DEVICE(SetGpuOperationMode, nvmlGpuOperationMode_t mode);
HAMI_NVML_DEVICE(GetAPIRestriction, nvmlRestrictedAPI_t api, nvmlEnableState_t* restricted);
HAMI_NVML_DEVICE(SetAPIRestriction, nvmlRestrictedAPI_t api, nvmlEnableState_t restricted);
HAMI_NVML_DEVICE(GetDramEncryptionMode, nvmlDramEncryptionInfo_t* current, nvmlDramEncryptionInfo_t* pending);
HAMI_NVML_DEVICE(SetDramEncryptionMode, const nvmlDramEncryptionInfo_t* mode);

// PCI and NUMA
HAMI_NVML_DEVICE(GetPciInfo, nvmlPciInfo_t* pci);
HAMI_NVML_DEVICE(GetPciInfo_v2, nvmlPciInfo_t* pci);
HAMI_NVML_DEVICE(GetPciInfo_v3, nvmlPciInfo_t* pci);
HAMI_NVML_DEVICE(GetPciInfoExt, nvmlPciInfoExt_t* pci);
HAMI_NVML_DEVICE(GetBusType, nvmlBusType_t* type);
HAMI_NVML_DEVICE(GetMaxPcieLinkGeneration, unsigned* generation);
HAMI_NVML_DEVICE(GetGpuMaxPcieLinkGeneration, unsigned* generation);
HAMI_NVML_DEVICE(GetMaxPcieLinkWidth, unsigned* width);
HAMI_NVML_DEVICE(GetCurrPcieLinkGeneration, unsigned* generation);
HAMI_NVML_DEVICE(GetCurrPcieLinkWidth, unsigned* width);
HAMI_NVML_DEVICE(GetPcieLinkMaxSpeed, unsigned* speed);
HAMI_NVML_DEVICE(GetPcieSpeed, unsigned* mbps);
HAMI_NVML_DEVICE(GetPcieThroughput, nvmlPcieUtilCounter_t counter, unsigned* kilobytes_per_second);
HAMI_NVML_DEVICE(GetPcieReplayCounter, unsigned* count);
HAMI_NVML_DEVICE(GetCpuAffinity, unsigned words, unsigned long* set);
HAMI_NVML_DEVICE(GetCpuAffinityWithinScope, unsigned words, unsigned long* set, nvmlAffinityScope_t scope);
HAMI_NVML_DEVICE(GetMemoryAffinity, unsigned words, unsigned long* set, nvmlAffinityScope_t scope);
HAMI_NVML(nvmlDeviceSetCpuAffinity, nvmlDevice_t device);
HAMI_NVML(nvmlDeviceClearCpuAffinity, nvmlDevice_t device);
HAMI_NVML_DEVICE(GetTopologyCommonAncestor, nvmlDevice_t other, nvmlGpuTopologyLevel_t* level);
HAMI_NVML_DEVICE(GetTopologyNearestGpus, nvmlGpuTopologyLevel_t level, unsigned* count, nvmlDevice_t* devices);
HAMI_NVML_DEVICE(GetP2PStatus, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t* status);
HAMI_NVML_DEVICE(OnSameBoard, nvmlDevice_t other, int* same);

// Memory, utilisation, processes
HAMI_NVML_DEVICE(GetMemoryInfo, nvmlMemory_t* memory);
HAMI_NVML_DEVICE(GetMemoryInfo_v2, nvmlMemory_v2_t* memory);
HAMI_NVML_DEVICE(GetBAR1MemoryInfo, nvmlBAR1Memory_t* memory);
HAMI_NVML_DEVICE(GetMemoryBusWidth, unsigned* bits);
HAMI_NVML_DEVICE(GetUtilizationRates, nvmlUtilization_t* rates);
HAMI_NVML_DEVICE(GetEncoderUtilization, unsigned* percent, unsigned* period_us);
HAMI_NVML_DEVICE(GetDecoderUtilization, unsigned* percent, unsigned* period_us);
HAMI_NVML_DEVICE(GetJpgUtilization, unsigned* percent, unsigned* period_us);
HAMI_NVML_DEVICE(GetOfaUtilization, unsigned* percent, unsigned* period_us);
HAMI_NVML_DEVICE(GetEncoderCapacity, nvmlEncoderType_t type, unsigned* capacity);
HAMI_NVML_DEVICE(GetEncoderStats, unsigned* sessions, unsigned* fps, unsigned* latency);
HAMI_NVML_DEVICE(GetEncoderSessions, unsigned* count, nvmlEncoderSessionInfo_t* sessions);
HAMI_NVML_DEVICE(GetFBCStats, nvmlFBCStats_t* stats);
HAMI_NVML_DEVICE(GetSamples, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t* value_type,
                 unsigned* count, nvmlSample_t* samples);
HAMI_NVML_DEVICE(GetFieldValues, int count, nvmlFieldValue_t* values);
HAMI_NVML_DEVICE(ClearFieldValues, int count, nvmlFieldValue_t* values);
HAMI_NVML_DEVICE(GetComputeRunningProcesses, unsigned* count, nvmlProcessInfo_v1_t* infos);
HAMI_NVML_DEVICE(GetComputeRunningProcesses_v2, unsigned* count, nvmlProcessInfo_v2_t* infos);
HAMI_NVML_DEVICE(GetComputeRunningProcesses_v3, unsigned* count, nvmlProcessInfo_t* infos);
HAMI_NVML_DEVICE(GetGraphicsRunningProcesses, unsigned* count, nvmlProcessInfo_v1_t* infos);
HAMI_NVML_DEVICE(GetGraphicsRunningProcesses_v2, unsigned* count, nvmlProcessInfo_v2_t* infos);
HAMI_NVML_DEVICE(GetGraphicsRunningProcesses_v3, unsigned* count, nvmlProcessInfo_t* infos);
HAMI_NVML_DEVICE(GetMPSComputeRunningProcesses, unsigned* count, nvmlProcessInfo_v1_t* infos);
HAMI_NVML_DEVICE(GetMPSComputeRunningProcesses_v2, unsigned* count, nvmlProcessInfo_v2_t* infos);
HAMI_NVML_DEVICE(GetMPSComputeRunningProcesses_v3, unsigned* count, nvmlProcessInfo_t* infos);
HAMI_NVML_DEVICE(GetRunningProcessDetailList, nvmlProcessDetailList_t* list);
HAMI_NVML_DEVICE(GetProcessUtilization, nvmlProcessUtilizationSample_t* samples, unsigned* count,
                 unsigned long long since);
HAMI_NVML_DEVICE(GetProcessesUtilizationInfo, nvmlProcessesUtilizationInfo_t* info);
HAMI_NVML_DEVICE(GetAccountingMode, nvmlEnableState_t* mode);
HAMI_NVML_DEVICE(SetAccountingMode, nvmlEnableState_t mode);
HAMI_NVML_DEVICE(GetAccountingStats, unsigned pid, nvmlAccountingStats_t* stats);
HAMI_NVML_DEVICE(GetAccountingPids, unsigned* count, unsigned* pids);
HAMI_NVML_DEVICE(GetAccountingBufferSize, unsigned* size);
HAMI_NVML(nvmlDeviceClearAccountingPids, nvmlDevice_t device);

// Memory errors
HAMI_NVML_DEVICE(GetEccMode, nvmlEnableState_t* current, nvmlEnableState_t* pending);
HAMI_NVML_DEVICE(GetDefaultEccMode, nvmlEnableState_t* mode);
HAMI_NVML_DEVICE(SetEccMode, nvmlEnableState_t mode);
HAMI_NVML_DEVICE(GetTotalEccErrors, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                 unsigned long long* count);
HAMI_NVML_DEVICE(GetDetailedEccErrors, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                 nvmlEccErrorCounts_t* counts);
HAMI_NVML_DEVICE(GetMemoryErrorCounter, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                 nvmlMemoryLocation_t location, unsigned long long* count);
HAMI_NVML_DEVICE(GetSramEccErrorStatus, nvmlEccSramErrorStatus_t* status);
HAMI_NVML_DEVICE(ClearEccErrorCounts, nvmlEccCounterType_t counter);
HAMI_NVML_DEVICE(GetRetiredPages, nvmlPageRetirementCause_t cause, unsigned* count, unsigned long long* addresses);
HAMI_NVML_DEVICE(GetRetiredPages_v2, nvmlPageRetirementCause_t cause, unsigned* count, unsigned long long* addresses,
                 unsigned long long* times);
HAMI_NVML_DEVICE(GetRetiredPagesPendingStatus, nvmlEnableState_t* pending);
HAMI_NVML_DEVICE(GetRemappedRows, unsigned* correctable, unsigned* uncorrectable, unsigned* pending, unsigned* failure);
HAMI_NVML_DEVICE(GetRowRemapperHistogram, nvmlRowRemapperHistogramValues_t* histogram);

// Clocks and performance
HAMI_NVML_DEVICE(GetClockInfo, nvmlClockType_t type, unsigned* mhz);
HAMI_NVML_DEVICE(GetMaxClockInfo, nvmlClockType_t type, unsigned* mhz);
HAMI_NVML_DEVICE(GetClock, nvmlClockType_t type, nvmlClockId_t id, unsigned* mhz);
HAMI_NVML_DEVICE(GetMaxCustomerBoostClock, nvmlClockType_t type, unsigned* mhz);
HAMI_NVML_DEVICE(GetApplicationsClock, nvmlClockType_t type, unsigned* mhz);
HAMI_NVML_DEVICE(GetDefaultApplicationsClock, nvmlClockType_t type, unsigned* mhz);
HAMI_NVML_DEVICE(SetApplicationsClocks, unsigned memory_mhz, unsigned graphics_mhz);
HAMI_NVML(nvmlDeviceResetApplicationsClocks, nvmlDevice_t device);
HAMI_NVML_DEVICE(GetSupportedMemoryClocks, unsigned* count, unsigned* mhz);
HAMI_NVML_DEVICE(GetSupportedGraphicsClocks, unsigned memory_mhz, unsigned* count, unsigned* mhz);
HAMI_NVML_DEVICE(SetGpuLockedClocks, unsigned min_mhz, unsigned max_mhz);
HAMI_NVML(nvmlDeviceResetGpuLockedClocks, nvmlDevice_t device);
HAMI_NVML_DEVICE(SetMemoryLockedClocks, unsigned min_mhz, unsigned max_mhz);
HAMI_NVML(nvmlDeviceResetMemoryLockedClocks, nvmlDevice_t device);
HAMI_NVML_DEVICE(GetClockOffsets, nvmlClockOffset_t* offset);
HAMI_NVML_DEVICE(SetClockOffsets, nvmlClockOffset_t* offset);
HAMI_NVML_DEVICE(GetGpcClkVfOffset, int* offset);
HAMI_NVML_DEVICE(SetGpcClkVfOffset, int offset);
HAMI_NVML_DEVICE(GetGpcClkMinMaxVfOffset, int* least, int* most);
HAMI_NVML_DEVICE(GetMemClkVfOffset, int* offset);
HAMI_NVML_DEVICE(SetMemClkVfOffset, int offset);
HAMI_NVML_DEVICE(GetMemClkMinMaxVfOffset, int* least, int* most);
HAMI_NVML_DEVICE(GetMinMaxClockOfPState, nvmlClockType_t type, nvmlPstates_t pstate, unsigned* least, unsigned* most);
HAMI_NVML_DEVICE(GetAutoBoostedClocksEnabled, nvmlEnableState_t* enabled, nvmlEnableState_t* by_default);
HAMI_NVML_DEVICE(SetAutoBoostedClocksEnabled, nvmlEnableState_t enabled);
HAMI_NVML_DEVICE(SetDefaultAutoBoostedClocksEnabled, nvmlEnableState_t enabled, unsigned flags);
HAMI_NVML_DEVICE(GetAdaptiveClockInfoStatus, unsigned* status);
HAMI_NVML_DEVICE(GetClkMonStatus, nvmlClkMonStatus_t* status);
HAMI_NVML_DEVICE(GetCurrentClocksEventReasons, unsigned long long* reasons);
HAMI_NVML_DEVICE(GetCurrentClocksThrottleReasons, unsigned long long* reasons);
HAMI_NVML_DEVICE(GetSupportedClocksEventReasons, unsigned long long* reasons);
HAMI_NVML_DEVICE(GetSupportedClocksThrottleReasons, unsigned long long* reasons);
HAMI_NVML_DEVICE(GetCurrentClockFreqs, nvmlDeviceCurrentClockFreqs_t* freqs);
HAMI_NVML_DEVICE(GetPerformanceState, nvmlPstates_t* pstate);
HAMI_NVML_DEVICE(GetPowerState, nvmlPstates_t* pstate);
HAMI_NVML_DEVICE(GetSupportedPerformanceStates, nvmlPstates_t* pstates, unsigned bytes);
HAMI_NVML_DEVICE(GetDynamicPstatesInfo, nvmlGpuDynamicPstatesInfo_t* info);
HAMI_NVML_DEVICE(GetPerformanceModes, nvmlDevicePerfModes_t* modes);
HAMI_NVML_DEVICE(GetViolationStatus, nvmlPerfPolicyType_t policy, nvmlViolationTime_t* time);

// Power, temperature, fans
HAMI_NVML_DEVICE(GetPowerUsage, unsigned* milliwatts);
HAMI_NVML_DEVICE(GetTotalEnergyConsumption, unsigned long long* millijoules);
HAMI_NVML_DEVICE(GetPowerManagementMode, nvmlEnableState_t* mode);
HAMI_NVML_DEVICE(GetPowerManagementLimit, unsigned* milliwatts);
HAMI_NVML_DEVICE(GetPowerManagementDefaultLimit, unsigned* milliwatts);
HAMI_NVML_DEVICE(GetPowerManagementLimitConstraints, unsigned* least, unsigned* most);
HAMI_NVML_DEVICE(SetPowerManagementLimit, unsigned milliwatts);
HAMI_NVML_DEVICE(SetPowerManagementLimit_v2, nvmlPowerValue_v2_t* value);
HAMI_NVML_DEVICE(GetEnforcedPowerLimit, unsigned* milliwatts);
HAMI_NVML_DEVICE(GetPowerSource, nvmlPowerSource_t* source);
HAMI_NVML_DEVICE(GetLastBBXFlushTime, unsigned long long* time, unsigned long* duration_us);
HAMI_NVML_DEVICE(GetTemperature, nvmlTemperatureSensors_t sensor, unsigned* celsius);
HAMI_NVML_DEVICE(GetTemperatureV, nvmlTemperature_t* temperature);
HAMI_NVML_DEVICE(GetMarginTemperature, nvmlMarginTemperature_t* margin);
HAMI_NVML_DEVICE(GetTemperatureThreshold, nvmlTemperatureThresholds_t threshold, unsigned* celsius);
HAMI_NVML_DEVICE(SetTemperatureThreshold, nvmlTemperatureThresholds_t threshold, int* celsius);
HAMI_NVML_DEVICE(GetThermalSettings, unsigned sensor, nvmlGpuThermalSettings_t* settings);
HAMI_NVML_DEVICE(GetCoolerInfo, nvmlCoolerInfo_t* info);
HAMI_NVML_DEVICE(GetNumFans, unsigned* count);
HAMI_NVML_DEVICE(GetFanSpeed, unsigned* percent);
HAMI_NVML_DEVICE(GetFanSpeed_v2, unsigned fan, unsigned* percent);
HAMI_NVML_DEVICE(GetFanSpeedRPM, nvmlFanSpeedInfo_t* info);
HAMI_NVML_DEVICE(GetTargetFanSpeed, unsigned fan, unsigned* percent);
HAMI_NVML_DEVICE(GetMinMaxFanSpeed, unsigned* least, unsigned* most);
HAMI_NVML_DEVICE(SetFanSpeed_v2, unsigned fan, unsigned percent);
HAMI_NVML_DEVICE(SetDefaultFanSpeed_v2, unsigned fan);
HAMI_NVML_DEVICE(GetFanControlPolicy_v2, unsigned fan, nvmlFanControlPolicy_t* policy);
HAMI_NVML_DEVICE(SetFanControlPolicy, unsigned fan, nvmlFanControlPolicy_t policy);

// NVLink and fabric
HAMI_NVML_DEVICE(GetNvLinkState, unsigned link, nvmlEnableState_t* active);
HAMI_NVML_DEVICE(GetNvLinkVersion, unsigned link, unsigned* version);
HAMI_NVML_DEVICE(GetNvLinkCapability, unsigned link, nvmlNvLinkCapability_t capability, unsigned* value);
HAMI_NVML_DEVICE(GetNvLinkRemotePciInfo, unsigned link, nvmlPciInfo_t* pci);
HAMI_NVML_DEVICE(GetNvLinkRemotePciInfo_v2, unsigned link, nvmlPciInfo_t* pci);
HAMI_NVML_DEVICE(GetNvLinkRemoteDeviceType, unsigned link, nvmlIntNvLinkDeviceType_t* type);
HAMI_NVML_DEVICE(GetNvLinkErrorCounter, unsigned link, nvmlNvLinkErrorCounter_t counter, unsigned long long* count);
HAMI_NVML_DEVICE(ResetNvLinkErrorCounters, unsigned link);
HAMI_NVML_DEVICE(GetNvLinkUtilizationControl, unsigned link, unsigned counter, nvmlNvLinkUtilizationControl_t* control);
HAMI_NVML_DEVICE(SetNvLinkUtilizationControl, unsigned link, unsigned counter, nvmlNvLinkUtilizationControl_t* control,
                 unsigned reset);
HAMI_NVML_DEVICE(GetNvLinkUtilizationCounter, unsigned link, unsigned counter, unsigned long long* rx,
                 unsigned long long* tx);
HAMI_NVML_DEVICE(FreezeNvLinkUtilizationCounter, unsigned link, unsigned counter, nvmlEnableState_t freeze);
HAMI_NVML_DEVICE(ResetNvLinkUtilizationCounter, unsigned link, unsigned counter);
HAMI_NVML_DEVICE(SetNvLinkDeviceLowPowerThreshold, nvmlNvLinkPowerThres_t* threshold);
HAMI_NVML_DEVICE(GetNvlinkSupportedBwModes, nvmlNvlinkSupportedBwModes_t* modes);
HAMI_NVML_DEVICE(GetNvlinkBwMode, nvmlNvlinkGetBwMode_t* mode);
HAMI_NVML_DEVICE(SetNvlinkBwMode, nvmlNvlinkSetBwMode_t* mode);
HAMI_NVML_DEVICE(GetGpuFabricInfo, nvmlGpuFabricInfo_t* info);
HAMI_NVML_DEVICE(GetGpuFabricInfoV, nvmlGpuFabricInfoV_t* info);

// MIG
HAMI_NVML_DEVICE(GetMigMode, unsigned* current, unsigned* pending);
HAMI_NVML_DEVICE(SetMigMode, unsigned mode, nvmlReturn_t* activation);
HAMI_NVML_DEVICE(IsMigDeviceHandle, unsigned* is_mig);
HAMI_NVML_DEVICE(GetMaxMigDeviceCount, unsigned* count);
HAMI_NVML_DEVICE(GetMigDeviceHandleByIndex, unsigned index, nvmlDevice_t* mig);
HAMI_NVML_DEVICE(GetDeviceHandleFromMigDeviceHandle, nvmlDevice_t* parent);
HAMI_NVML_DEVICE(GetGpuInstanceId, unsigned* id);
HAMI_NVML_DEVICE(GetComputeInstanceId, unsigned* id);
HAMI_NVML_DEVICE(GetGpuInstanceProfileInfo, unsigned profile, nvmlGpuInstanceProfileInfo_t* info);
HAMI_NVML_DEVICE(GetGpuInstanceProfileInfoV, unsigned profile, nvmlGpuInstanceProfileInfo_v2_t* info);
HAMI_NVML_DEVICE(GetGpuInstancePossiblePlacements, unsigned profile_id, nvmlGpuInstancePlacement_t* list,
                 unsigned* count);
HAMI_NVML_DEVICE(GetGpuInstancePossiblePlacements_v2, unsigned profile_id, nvmlGpuInstancePlacement_t* list,
                 unsigned* count);
HAMI_NVML_DEVICE(GetGpuInstanceRemainingCapacity, unsigned profile_id, unsigned* count);
HAMI_NVML_DEVICE(CreateGpuInstance, unsigned profile_id, nvmlGpuInstance_t* instance);
HAMI_NVML_DEVICE(CreateGpuInstanceWithPlacement, unsigned profile_id, const nvmlGpuInstancePlacement_t* placement,
                 nvmlGpuInstance_t* instance);
HAMI_NVML_DEVICE(GetGpuInstances, unsigned profile_id, nvmlGpuInstance_t* list, unsigned* count);
HAMI_NVML_DEVICE(GetGpuInstanceById, unsigned id, nvmlGpuInstance_t* instance);
HAMI_NVML(nvmlGpuInstanceDestroy, nvmlGpuInstance_t instance);
HAMI_NVML(nvmlGpuInstanceGetInfo, nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t* info);
HAMI_NVML(nvmlGpuInstanceGetComputeInstanceProfileInfo, nvmlGpuInstance_t instance, unsigned profile, unsigned engine,
          nvmlComputeInstanceProfileInfo_t* info);
HAMI_NVML(nvmlGpuInstanceGetComputeInstanceProfileInfoV, nvmlGpuInstance_t instance, unsigned profile, unsigned engine,
          nvmlComputeInstanceProfileInfo_v2_t* info);
HAMI_NVML(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, nvmlGpuInstance_t instance, unsigned profile_id,
          unsigned* count);
HAMI_NVML(nvmlGpuInstanceGetComputeInstancePossiblePlacements, nvmlGpuInstance_t instance, unsigned profile_id,
          nvmlComputeInstancePlacement_t* list, unsigned* count);
HAMI_NVML(nvmlGpuInstanceCreateComputeInstance, nvmlGpuInstance_t instance, unsigned profile_id,
          nvmlComputeInstance_t* compute);
HAMI_NVML(nvmlGpuInstanceCreateComputeInstanceWithPlacement, nvmlGpuInstance_t instance, unsigned profile_id,
          const nvmlComputeInstancePlacement_t* placement, nvmlComputeInstance_t* compute);
HAMI_NVML(nvmlGpuInstanceGetComputeInstances, nvmlGpuInstance_t instance, unsigned profile_id,
          nvmlComputeInstance_t* list,
          unsigned* count);
HAMI_NVML(nvmlGpuInstanceGetComputeInstanceById, nvmlGpuInstance_t instance, unsigned id,
          nvmlComputeInstance_t* compute);
HAMI_NVML(nvmlComputeInstanceDestroy, nvmlComputeInstance_t compute);
HAMI_NVML(nvmlComputeInstanceGetInfo, nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t* info);
HAMI_NVML(nvmlComputeInstanceGetInfo_v2, nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t* info);

// Events
HAMI_NVML(nvmlEventSetCreate, nvmlEventSet_t* set);
HAMI_NVML(nvmlEventSetFree, nvmlEventSet_t set);
HAMI_NVML(nvmlEventSetWait, nvmlEventSet_t set, nvmlEventData_t* data, unsigned timeout_ms);
HAMI_NVML(nvmlEventSetWait_v2, nvmlEventSet_t set, nvmlEventData_t* data, unsigned timeout_ms);
HAMI_NVML_DEVICE(RegisterEvents, unsigned long long types, nvmlEventSet_t set);
HAMI_NVML_DEVICE(GetSupportedEventTypes, unsigned long long* types);

// GPU performance metrics: only the question whether there are any
HAMI_NVML(nvmlGpmQueryDeviceSupport, nvmlDevice_t device, nvmlGpmSupport_t* support);
HAMI_NVML(nvmlGpmQueryIfStreamingEnabled, nvmlDevice_t device, unsigned* enabled);

// Units
HAMI_NVML(nvmlUnitGetCount, unsigned* count);
HAMI_NVML(nvmlUnitGetHandleByIndex, unsigned index, nvmlUnit_t* unit);
HAMI_NVML(nvmlUnitGetUnitInfo, nvmlUnit_t unit, nvmlUnitInfo_t* info);
HAMI_NVML(nvmlUnitGetLedState, nvmlUnit_t unit, nvmlLedState_t* state);
HAMI_NVML(nvmlUnitSetLedState, nvmlUnit_t unit, nvmlLedColor_t color);
HAMI_NVML(nvmlUnitGetPsuInfo, nvmlUnit_t unit, nvmlPSUInfo_t* info);
HAMI_NVML(nvmlUnitGetTemperature, nvmlUnit_t unit, unsigned type, unsigned* celsius);
HAMI_NVML(nvmlUnitGetFanSpeedInfo, nvmlUnit_t unit, nvmlUnitFanSpeeds_t* speeds);
HAMI_NVML(nvmlUnitGetDevices, nvmlUnit_t unit, unsigned* count, nvmlDevice_t* devices);

// What only NVML 13 has types for
#if NVML_API_VERSION >= 13
HAMI_NVML_DEVICE(GetAddressingMode, nvmlDeviceAddressingMode_t* mode);
HAMI_NVML_DEVICE(GetPdi, nvmlPdi_t* pdi);
HAMI_NVML_DEVICE(GetRepairStatus, nvmlRepairStatus_t* status);
HAMI_NVML_DEVICE(GetRemappedRows_v2, nvmlRemappedRowsInfo_v2_t* info);
HAMI_NVML_DEVICE(GetAccountingStats_v2, nvmlAccountingStats_v2_t* stats);
HAMI_NVML_DEVICE(GetGpuInstanceProfileInfoByIdV, unsigned profile_id, nvmlGpuInstanceProfileInfo_v2_t* info);
#endif

}  // extern "C"
// clang-format on
