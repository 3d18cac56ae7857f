{{/* What all is called: the release's name, with the chart's unless that is in it. A StatefulSet's has 52 characters at most. */}}
{{- define "pgo-collector.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 43 | trimSuffix "-" }}
{{- end }}

{{/* The labels by which pods of a part are found; called with a list of the context and the part. */}}
{{- define "pgo-collector.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
{{- end }}

{{/* All labels of a part; called in the same way. */}}
{{- define "pgo-collector.labels" -}}
{{- $context := index . 0 -}}
{{ include "pgo-collector.selector" . }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $context.Chart.Name $context.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image; called with a list of the context and the values of the image. */}}
{{- define "pgo-collector.image" -}}
{{- $context := index . 0 }}{{ $image := index . 1 -}}
image: {{ printf "%s:%s" $image.repository (default $context.Chart.AppVersion $image.tag) | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{/* What chooses nodes, and the secrets for images; called with a list of the context and the values of the part. */}}
{{- define "pgo-collector.placement" -}}
{{- $context := index . 0 }}{{ $part := index . 1 }}
{{- with $context.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The collector, as others in the cluster call it. */}}
{{- define "pgo-collector.url" -}}
http://{{ include "pgo-collector.name" . }}.{{ .Release.Namespace }}:{{ .Values.service.port }}
{{- end }}

{{/* "true" if all that counts is outside of the pods, so that there may be several collectors; "" if not. */}}
{{- define "pgo-collector.shared" -}}
{{- $shared := and .Values.catalog.secret .Values.bucket.url }}
{{- if and (gt (int .Values.replicas) 1) (not $shared) }}
{{- fail "replicas: several collectors need one catalog and one bucket: set catalog.secret and bucket.url, or replicas to 1" }}
{{- end }}
{{- if $shared }}true{{ end }}
{{- end }}

{{/* The scheduler of Dask, if collectors use one. */}}
{{- define "pgo-collector.dask" -}}
{{- if and .Values.dask.enabled .Values.dask.address }}
{{- fail "dask.address: it is of a cluster of your own; leave it empty, or set dask.enabled to false" }}
{{- end }}
{{- if .Values.dask.enabled }}
{{- if not .Values.bucket.url }}
{{- fail "dask.enabled: the workers read profiles from the bucket; set bucket.url" }}
{{- end }}dask://{{ include "pgo-collector.name" . }}-dask.{{ .Release.Namespace }}:8786
{{- else }}{{ .Values.dask.address }}{{ end }}
{{- end }}

{{/* What finds the bucket and has its keys, for a container that reads or writes it: its rest of `env`, and `envFrom`. */}}
{{- define "pgo-collector.bucket" -}}
{{- range $name, $value := .Values.bucket.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- define "pgo-collector.bucketKeys" -}}
{{- with .Values.bucket.secret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end }}

{{/* The account of the pods that use the bucket: it may have a role of the cloud. */}}
{{- define "pgo-collector.account" -}}
{{- with .Values.serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
{{- end }}

{{/* Which user runs in a pod, and what its containers may do. */}}
{{- define "pgo-collector.user" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}
{{- define "pgo-collector.rights" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}

{{/* The rule of a network policy for asking the cluster's DNS. */}}
{{- define "pgo-collector.names" -}}
- to:
    - namespaceSelector: {}
  ports:
    - protocol: UDP
      port: 53
    - protocol: TCP
      port: 53
{{- end }}

{{/* Annotations of the ingress, which ingress-nginx reads and others ignore. */}}
{{- define "pgo-collector.routing" -}}
{{- if include "pgo-collector.shared" . -}}
nginx.ingress.kubernetes.io/upstream-hash-by: "$arg_service"
nginx.ingress.kubernetes.io/proxy-next-upstream: "error timeout non_idempotent"
nginx.ingress.kubernetes.io/proxy-next-upstream-tries: "3"
{{- end }}
{{- end }}
