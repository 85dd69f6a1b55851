{{- define "auster.mistakes" -}}
{{- $n := int .Values.replicas -}}
{{- if and (gt $n 1) (not .Values.cluster.etcd) -}}
{{- fail (printf "replicas is %d: several members need an etcd in cluster.etcd" $n) -}}
{{- end -}}
{{- if not (or .Values.tls.secret .Values.insecure) -}}
{{- fail "tls.secret is empty: name the Secret with the certificates of auster pki, or set insecure=true" -}}
{{- end -}}
{{- if and .Values.insecure .Values.tls.secret -}}
{{- fail "insecure is true and tls.secret is set: choose one" -}}
{{- end -}}
{{- end -}}

{{- define "auster.labels" -}}
app.kubernetes.io/name: auster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
