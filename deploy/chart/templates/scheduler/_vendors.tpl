{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The sections of device-config.yaml beside NVIDIA's, with HAMi's names of values. */ -}}
{{- define "hami.otherVendors" -}}
cambricon:
  resourceCountName: {{ .Values.mluResourceName }}
  resourceMemoryName: {{ .Values.mluResourceMem }}
  resourceCoreName: {{ .Values.mluResourceCores }}
hygon:
  resourceCountName: {{ .Values.dcuResourceName }}
  resourceMemoryName: {{ .Values.dcuResourceMem }}
  resourceCoreName: {{ .Values.dcuResourceCores }}
  memoryFactor: 1
metax:
  resourceCountName: metax-tech.com/gpu
  resourceVCountName: {{ .Values.metaxResourceName }}
  resourceVMemoryName: {{ .Values.metaxResourceMem }}
  resourceVCoreName: {{ .Values.metaxResourceCore }}
  sgpuTopologyAware: {{ .Values.metaxsGPUTopologyAware }}
enflame:
  resourceNameGCU: enflame.com/gcu
  resourceNameDRSGCU: {{ .Values.enflameResourceNameDRSGCU }}
  resourceNameGCUMemory: {{ .Values.enflameResourceNameGCUMemory }}
  resourceNameGCUCore: {{ .Values.enflameResourceNameGCUCore }}
mthreads:
  resourceCountName: mthreads.com/vgpu
  resourceMemoryName: mthreads.com/sgpu-memory
  resourceCoreName: mthreads.com/sgpu-core
kunlun:
  resourceCountName: {{ .Values.kunlunResourceName }}
  resourceVCountName: {{ .Values.kunlunResourceVCountName }}
  resourceVMemoryName: {{ .Values.kunlunResourceVMemoryName }}
awsneuron:
  resourceCountName: aws.amazon.com/neuron
  resourceCoreName: aws.amazon.com/neuroncore
amd:
  resourceCountName: amd.com/gpu
  resourceMemoryName: amd.com/gpumem
  resourceCoreName: amd.com/gpucores
vastai:
  resourceCountName: {{ .Values.vastaiResourceName }}
biren:
  resourceCountName: {{ .Values.birenResourceName }}
{{- if .Values.devices.iluvatar.enabled }}
iluvatars:
- {chipName: MR-V100, commonWord: MR-V100, resourceCountName: iluvatar.ai/MR-V100-vgpu, resourceMemoryName: iluvatar.ai/MR-V100.vMem, resourceCoreName: iluvatar.ai/MR-V100.vCore}
- {chipName: MR-V50, commonWord: MR-V50, resourceCountName: iluvatar.ai/MR-V50-vgpu, resourceMemoryName: iluvatar.ai/MR-V50.vMem, resourceCoreName: iluvatar.ai/MR-V50.vCore}
- {chipName: BI-V150, commonWord: BI-V150, resourceCountName: iluvatar.ai/BI-V150-vgpu, resourceMemoryName: iluvatar.ai/BI-V150.vMem, resourceCoreName: iluvatar.ai/BI-V150.vCore}
- {chipName: BI-V100, commonWord: BI-V100, resourceCountName: iluvatar.ai/BI-V100-vgpu, resourceMemoryName: iluvatar.ai/BI-V100.vMem, resourceCoreName: iluvatar.ai/BI-V100.vCore}
{{- end }}
{{- if .Values.devices.ascend.enabled }}
vnpus:
  hamiVnpuCore: false
  configs:
  - chipName: 910A
    commonWord: Ascend910A
    resourceName: huawei.com/Ascend910A
    resourceMemoryName: huawei.com/Ascend910A-memory
    resourceCoreName: huawei.com/Ascend910A-core
    memoryAllocatable: 32768
    memoryCapacity: 32768
    memoryFactor: 1
    aiCore: 30
    templates:
    - {name: vir02, memory: 2184, aiCore: 2}
    - {name: vir04, memory: 4369, aiCore: 4}
    - {name: vir08, memory: 8738, aiCore: 8}
    - {name: vir16, memory: 17476, aiCore: 16}
  - chipName: 910B2
    commonWord: Ascend910B2
    resourceName: huawei.com/Ascend910B2
    resourceMemoryName: huawei.com/Ascend910B2-memory
    resourceCoreName: huawei.com/Ascend910B2-core
    memoryAllocatable: 65536
    memoryCapacity: 65536
    memoryFactor: 1
    aiCore: 24
    aiCPU: 6
    templates:
    - {name: vir03_1c_8g, memory: 8192, aiCore: 3, aiCPU: 1}
    - {name: vir06_1c_16g, memory: 16384, aiCore: 6, aiCPU: 1}
    - {name: vir12_3c_32g, memory: 32768, aiCore: 12, aiCPU: 3}
  - chipName: 910B3
    commonWord: Ascend910B3
    resourceName: huawei.com/Ascend910B3
    resourceMemoryName: huawei.com/Ascend910B3-memory
    resourceCoreName: huawei.com/Ascend910B3-core
    memoryAllocatable: 65536
    memoryCapacity: 65536
    memoryFactor: 1
    aiCore: 20
    aiCPU: 7
    templates:
    - {name: vir05_1c_16g, memory: 16384, aiCore: 5, aiCPU: 1}
    - {name: vir10_3c_32g, memory: 32768, aiCore: 10, aiCPU: 3}
  - chipName: 910B4-1
    commonWord: Ascend910B4-1
    resourceName: huawei.com/Ascend910B4-1
    resourceMemoryName: huawei.com/Ascend910B4-1-memory
    resourceCoreName: huawei.com/Ascend910B4-1-core
    memoryAllocatable: 65536
    memoryCapacity: 65536
    memoryFactor: 1
    aiCore: 20
    aiCPU: 7
    templates:
    - {name: vir05_1c_16g, memory: 16384, aiCore: 5, aiCPU: 1}
    - {name: vir10_3c_32g, memory: 32768, aiCore: 10, aiCPU: 3}
  - chipName: 910B4
    commonWord: Ascend910B4
    resourceName: huawei.com/Ascend910B4
    resourceMemoryName: huawei.com/Ascend910B4-memory
    resourceCoreName: huawei.com/Ascend910B4-core
    memoryAllocatable: 32768
    memoryCapacity: 32768
    memoryFactor: 1
    aiCore: 20
    aiCPU: 7
    templates:
    - {name: vir05_1c_8g, memory: 8192, aiCore: 5, aiCPU: 1}
    - {name: vir10_3c_16g, memory: 16384, aiCore: 10, aiCPU: 3}
  - chipName: 310P3
    commonWord: Ascend310P
    resourceName: huawei.com/Ascend310P
    resourceMemoryName: huawei.com/Ascend310P-memory
    resourceCoreName: huawei.com/Ascend310P-core
    memoryAllocatable: 21527
    memoryCapacity: 24576
    memoryFactor: 1
    aiCore: 8
    aiCPU: 7
    templates:
    - {name: vir01, memory: 3072, aiCore: 1, aiCPU: 1}
    - {name: vir02, memory: 6144, aiCore: 2, aiCPU: 2}
    - {name: vir04, memory: 12288, aiCore: 4, aiCPU: 4}
  - chipName: Ascend910
    commonWord: Ascend910C
    resourceName: huawei.com/Ascend910C
    resourceMemoryName: huawei.com/Ascend910C-memory
    resourceCoreName: huawei.com/Ascend910C-core
    memoryAllocatable: 65536
    memoryCapacity: 65536
    aiCore: 20
    aiCPU: 7
    superPod: true
    templates:
    - {name: vir05_1c_16g, memory: 16384, aiCore: 5, aiCPU: 1}
    - {name: vir10_3c_32g, memory: 32768, aiCore: 10, aiCPU: 3}
{{- end }}
{{- end -}}
{{- /* Every resource that device-config.yaml names, for kube-scheduler. */ -}}
{{- define "hami.managedResources" -}}
{{- $config := include "hami.deviceConfig" . | fromYaml -}}
{{- $sections := concat (values $config) (get $config "iluvatars" | default list) (get (get $config "vnpus" | default dict) "configs" | default list) -}}
{{- $names := list .Values.resourceName .Values.resourceMem .Values.resourceMemPercentage .Values.resourceCores .Values.resourcePriority -}}
{{- range $section := $sections -}}
{{- if kindIs "map" $section -}}
{{- range $key, $name := $section -}}
{{- if and (hasPrefix "resource" $key) (kindIs "string" $name) $name -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | toYaml -}}
{{- end -}}
