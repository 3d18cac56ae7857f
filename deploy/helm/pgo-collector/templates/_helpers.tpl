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
