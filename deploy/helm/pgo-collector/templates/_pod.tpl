{{/* The pod of a collector, as a StatefulSet and a Deployment have it; all that differs is where its data folder is. */}}
{{- define "pgo-collector.pod" -}}
{{- $labels := list . "pgo-collector" }}
{{- $shared := include "pgo-collector.shared" . -}}
metadata:
  labels:
    {{- include "pgo-collector.labels" $labels | nindent 4 }}
  {{- if not .Values.serviceMonitor.enabled }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: "8080"
  {{- end }}
spec:
  automountServiceAccountToken: false
  {{- include "pgo-collector.account" . | nindent 2 }}
  # The collector finishes the requests that have begun; see PGOF_BODY_TIMEOUT.
  terminationGracePeriodSeconds: 90
  {{- include "pgo-collector.placement" (list . .Values) | nindent 2 }}
  {{- if $shared }}
  # On different nodes and in different zones, as far as there is room.
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels:
          {{- include "pgo-collector.selector" $labels | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- include "pgo-collector.user" . | nindent 2 }}
  containers:
    - name: collector
      {{- include "pgo-collector.image" (list . .Values.image) | nindent 6 }}
      env:
        {{- range $name, $value := .Values.settings }}
        - name: {{ $name }}
          value: {{ $value | quote }}
        {{- end }}
        {{- if $shared }}
        - name: PGOF_SESSION_SECRET_FILE
          value: /secret/session_secret
        {{- end }}
        {{- if .Values.service.grpcPort }}
        - name: PGOF_GRPC_ADDRESS
          value: ":4317"
        {{- end }}
        {{- with .Values.ingress.path }}
        - name: PGOF_ROOT_PATH
          value: {{ . }}
        {{- end }}
        {{- with .Values.catalog.secret }}
        - name: PGOF_CATALOG
          valueFrom:
            secretKeyRef:
              name: {{ . }}
              key: url
        {{- end }}
        {{- with .Values.bucket.url }}
        - name: PGOF_STORAGE
          value: {{ . | quote }}
        {{- end }}
        {{- with include "pgo-collector.dask" . }}
        - name: PGOF_BULK
          value: {{ . | quote }}
        {{- end }}
        {{- include "pgo-collector.bucket" . | nindent 8 }}
      {{- include "pgo-collector.bucketKeys" . | nindent 6 }}
      ports:
        - name: http
          containerPort: 8080
        {{- if .Values.service.grpcPort }}
        - name: grpc
          containerPort: 4317
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 2
        # Rebuilding the catalog from millions of blobs takes long.
        failureThreshold: 900
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        timeoutSeconds: 5
        failureThreshold: 6
      {{- if $shared }}
      # One that can't reach the catalog or the bucket gets no requests while others can. A single collector has no such
      # probe: it says itself what is wrong, which is more than a refused connection says.
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 5
        # It answers after 5 seconds at the latest.
        timeoutSeconds: 8
        failureThreshold: 3
      # Proxies learn meanwhile that it ends, and send no more requests.
      lifecycle:
        preStop:
          sleep:
            seconds: 5
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      {{- include "pgo-collector.rights" . | nindent 6 }}
      volumeMounts:
        - name: data
          mountPath: /data
        - name: keys
          mountPath: /secret
          readOnly: true
  volumes:
    - name: keys
      secret:
        secretName: {{ .Values.keys.secret }}
        defaultMode: 0440
    {{- if $shared }}
    # Each collector's own, and disposable.
    - name: data
      emptyDir:
        sizeLimit: {{ .Values.storage.size }}
    {{- end }}
{{- end }}
