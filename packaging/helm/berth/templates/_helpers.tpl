{{- define "berth.labels" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "berth.pullSecrets" -}}
{{- if .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range .Values.imagePullSecrets }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "berth.webhook" -}}
admissionReviewVersions: [v1, v1beta1]
# Nothing is changed by it.
sideEffects: None
matchPolicy: Equivalent
failurePolicy: {{ .Values.webhook.failurePolicy }}
timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
clientConfig:
  service: {name: {{ .Release.Name }}-placer, namespace: {{ .Release.Namespace }}, path: /validate, port: 443}
  {{- if .Values.tls.caBundle }}
  caBundle: {{ .Values.tls.caBundle }}
  {{- end }}
namespaceSelector:
  matchExpressions:
    # The cluster's own parts, and the placer itself, are made whatever becomes of it. The API server labels namespaces so from 1.21 on.
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {{ .Release.Namespace }}]}
    - {key: berth.dev/unchecked, operator: DoesNotExist}
{{- end }}

{{- /* Whether the pod at this path has an annotation of ours or names our resource, in CEL. */}}
{{- define "berth.asks" -}}
has({{ . }}.metadata) && has({{ . }}.metadata.annotations) && {{ . }}.metadata.annotations.exists(name, name.startsWith('berth.dev/')) || {{ . }}.spec.containers.exists(one, has(one.resources) && (has(one.resources.limits) && 'berth.dev/gpu' in one.resources.limits || has(one.resources.requests) && 'berth.dev/gpu' in one.resources.requests)) || has({{ . }}.spec.initContainers) && {{ . }}.spec.initContainers.exists(one, has(one.resources) && (has(one.resources.limits) && 'berth.dev/gpu' in one.resources.limits || has(one.resources.requests) && 'berth.dev/gpu' in one.resources.requests))
{{- end }}
