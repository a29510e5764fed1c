{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "hami.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "hami.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "hami.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "hami.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "hami.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "hami.scheduler" -}}{{ include "hami.fullname" . }}-scheduler{{- end -}}
{{- define "hami.plugin" -}}{{ include "hami.fullname" . }}-device-plugin{{- end -}}
{{/* Does the page show what is used? It needs monitors to ask. */}}
{{- define "hami.pageUse" -}}
{{- and .Values.scheduler.page.use .Values.devicePlugin.enabled .Values.devicePlugin.monitor.enabled -}}
{{- end -}}
{{- define "hami.monitor" -}}{{ include "hami.fullname" . }}-monitor{{- end -}}
{{- define "hami.cert" -}}{{ include "hami.fullname" . }}-cert{{- end -}}
{{- define "hami.tls" -}}
{{- default (printf "%s-tls" (include "hami.scheduler" .)) .Values.scheduler.admissionWebhook.existingSecret -}}
{{- end -}}

{{/* cert-manager, command (`hami cert`), hand, or none without a webhook. */}}
{{- define "hami.certificates" -}}
{{- if not .Values.scheduler.admissionWebhook.enabled -}}none
{{- else if .Values.scheduler.admissionWebhook.existingSecret -}}hand
{{- else if .Values.scheduler.certManager.enabled -}}cert-manager
{{- else if .Values.scheduler.patch.enabled -}}command
{{- else -}}
{{- fail "the webhook has no certificate: scheduler.patch.enabled (hami cert), scheduler.certManager.enabled, or scheduler.admissionWebhook.existingSecret and caBundle" -}}
{{- end -}}
{{- end -}}

{{- define "hami.selector" -}}
app.kubernetes.io/name: {{ include "hami.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "hami.labels" -}}
{{ include "hami.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.global.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of an object: (dict "root" . "component" C "name" N); "cluster" true: it has no namespace. */}}
{{- define "hami.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ default (include "hami.namespace" .root) .namespace }}
{{- end }}
labels:
  {{- include "hami.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with mergeOverwrite (dict) .root.Values.global.annotations (default (dict) .annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (list . GIVEN OURS HAMIS): what was given, else HAMi's default under compat.hamiDefaults, else ours. As YAML. */}}
{{- define "hami.choose" -}}
{{- $root := index . 0 -}}
{{- $given := index . 1 -}}
{{- if not (kindIs "invalid" $given) -}}{{ toYaml $given }}
{{- else if $root.Values.compat.hamiDefaults -}}{{ toYaml (index . 3) }}
{{- else -}}{{ toYaml (index . 2) }}
{{- end -}}
{{- end -}}

{{/* Whose annotations are believed, divided by BETWEEN: (dict "root" . "between" ","). */}}
{{- define "hami.writers" -}}
{{- $names := list (include "hami.fullname" .root) -}}
{{- with .root.Values.compat.besideRelease -}}
{{- $names = append $names (contains "hami" . | ternary . (printf "%s-hami" .)) -}}
{{- end -}}
{{- $writers := list -}}
{{- range $names }}{{ $writers = append $writers (printf "system:serviceaccount:%s:%s-*" (include "hami.namespace" $.root) .) }}{{ end -}}
{{- join .between $writers -}}
{{- end -}}

{{/* The admission policy that came with the chart (policy/ is a link to deploy/policy), for this release; or nothing. */}}
{{- define "hami.policy" -}}
{{- if and (eq (include "hami.choose" (list . .Values.annotationPolicy.enabled true false)) "true") (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}
{{- $writers := include "hami.writers" (dict "root" . "between" "', '") -}}
{{- range $path, $_ := .Files.Glob "policy/*.yaml" }}
---
{{ $.Files.Get $path | replace "system:serviceaccount:kube-system:hami-*" $writers | replace "hami-annotations" (printf "%s-annotations" (include "hami.fullname" $)) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* An image of this project: (dict "root" . "image" IMAGE). */}}
{{- define "hami.image" -}}
{{- $tag := default (default .root.Chart.AppVersion .root.Values.global.imageTag) .image.tag -}}
{{- if hasSuffix "projecthami/hami" .image.repository -}}
{{- fail (printf "image.repository %s is HAMi's image, which has none of this chart's programs: leave it out, or name a copy of hami-cpp/hami" .image.repository) -}}
{{- end -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}:{{ $tag }}
{{- end -}}

{{- define "hami.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- $registry := include "hami.choose" (list . $image.registry "registry.k8s.io" "registry.cn-hangzhou.aliyuncs.com") -}}
{{- $repository := include "hami.choose" (list . $image.repository "kube-scheduler" "google_containers/kube-scheduler") -}}
{{- $registry = default $registry .Values.global.imageRegistry -}}
{{- $version := regexFind "^v?[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $repository }}:{{ default $version $image.tag }}
{{- end -}}

{{/* (dict "root" . "images" (list IMAGE...)) */}}
{{- define "hami.pullSecrets" -}}
{{- $names := list -}}
{{- range .root.Values.global.imagePullSecrets }}{{ $names = append $names (kindIs "map" . | ternary (get (kindIs "map" . | ternary . (dict)) "name") .) }}{{ end -}}
{{- range .images }}{{ range .pullSecrets }}{{ $names = append $names (kindIs "map" . | ternary (get (kindIs "map" . | ternary . (dict)) "name") .) }}{{ end }}{{ end -}}
{{- with uniq $names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Environment given as a map (HAMi's default) or as a list (HAMi's template). */}}
{{- define "hami.extraEnvs" -}}
{{- if kindIs "map" . }}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- else if . }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* As that user. */}}
{{- define "hami.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Root in its container, because the kubelet's folders are root's and a container's folder is its user's. */}}
{{- define "hami.rootOfNode" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsUser: 0
capabilities:
  drop: [ALL]
  add:
    {{- toYaml . | nindent 4 }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Where the library is in containers and on the node; HAMi lets the two differ, and then nothing is limited. */}}
{{- define "hami.checkPaths" -}}
{{- $wanted := printf "%s/vgpu" (trimSuffix "/" .Values.global.gpuHookPath) -}}
{{- if ne (trimSuffix "/" .Values.devicePlugin.libPath) $wanted -}}
{{- fail (printf "devicePlugin.libPath is %s and must be global.gpuHookPath/vgpu, %s: elsewhere containers would not find the library" .Values.devicePlugin.libPath $wanted) -}}
{{- end -}}
{{- if ne (trimSuffix "/" .Values.devicePlugin.monitor.ctrPath) (printf "%s/containers" $wanted) -}}
{{- fail (printf "devicePlugin.monitor.ctrPath is %s and must be global.gpuHookPath/vgpu/containers, %s/containers: elsewhere the monitor would see no container" .Values.devicePlugin.monitor.ctrPath $wanted) -}}
{{- end -}}
{{- end -}}

{{/* Which nodes get plugin and monitor. */}}
{{- define "hami.nodePlacement" -}}
{{- if .Values.devicePlugin.nodeFeatureDiscovery }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        {{- range $key := list "feature.node.kubernetes.io/pci-10de.present" "feature.node.kubernetes.io/pci-0300_10de.present" "feature.node.kubernetes.io/pci-0302_10de.present" "nvidia.com/gpu.present" }}
        - matchExpressions:
            - {key: {{ $key }}, operator: In, values: ["true"]}
        {{- end }}
        {{- with .Values.devicePlugin.nvidiaNodeSelector }}
        - matchExpressions:
            {{- range $key, $value := . }}
            - {key: {{ $key }}, operator: In, values: [{{ $value | quote }}]}
            {{- end }}
        {{- end }}
{{- else if .Values.devicePlugin.nvidiaNodeSelector }}
nodeSelector:
  {{- toYaml .Values.devicePlugin.nvidiaNodeSelector | nindent 2 }}
{{- end }}
tolerations:
  {{- include "hami.choose" (list . .Values.devicePlugin.tolerations (list (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule")) (list)) | nindent 2 }}
{{- end -}}

{{/* Of what containers read: a change of any of it starts the pods anew. */}}
{{- define "hami.nodeConfigSum" -}}
{{- with .Values.devicePlugin.nodeConfiguration.externalConfigName -}}
{{- $found := lookup "v1" "ConfigMap" (include "hami.namespace" $) . -}}
{{- printf "%s %s" . (toJson (get (default (dict) $found) "data")) | sha256sum -}}
{{- else -}}
{{- .Values.devicePlugin.nodeConfiguration.config | sha256sum -}}
{{- end -}}
{{- end -}}
