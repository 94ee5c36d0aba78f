//! The pods of the operator, and what stands around them.

use serde_json::{Value, json};

use super::Plan;

/// Selects the operator's pods, whatever the installation is called.
pub const APP: (&str, &str) = ("app.kubernetes.io/name", "evac-operator");
const HTTPS: u16 = 8443;
const PROBES: u16 = 8080;
/// Nobody in particular, and not root.
const USER: u32 = 65532;

/// What the pod may use at most. The HTTPS server and the visits to tenants each stay below a share of it.
pub const MEMORY_LIMIT: usize = 512 << 20;

/// Two pods, so that one can lead on while the node of the other is serviced.
pub fn deployment(plan: &Plan) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": plan.labels()},
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": {APP.0: APP.1}},
            // The new one is there before the old one goes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "labels": plan.labels(),
                    "annotations": {"kubectl.kubernetes.io/default-container": "operator"},
                },
                "spec": pod(plan),
            },
        },
    })
}

fn pod(plan: &Plan) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "probes"}, "periodSeconds": 10, "timeoutSeconds": 3});
    let mut liveness = probe("/healthz");
    liveness["failureThreshold"] = json!(6);
    let mut readiness = probe("/readyz");
    readiness["periodSeconds"] = json!(5);
    let tolerate = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
    json!({
        "serviceAccountName": plan.name,
        "automountServiceAccountToken": true,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "operator",
            "image": plan.image,
            "imagePullPolicy": "IfNotPresent",
            "args": [
                "operator",
                format!("--roles={}", plan.roles_argument),
                format!("--listen=0.0.0.0:{HTTPS}"),
                format!("--health=0.0.0.0:{PROBES}"),
                format!("--service-name={}", plan.name),
                "--log-format=json",
            ],
            "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
            "ports": [
                {"name": "https", "containerPort": HTTPS, "protocol": "TCP"},
                {"name": "probes", "containerPort": PROBES, "protocol": "TCP"},
            ],
            "livenessProbe": liveness,
            "readinessProbe": readiness,
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": format!("{}Mi", MEMORY_LIMIT >> 20)}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        }],
        "affinity": {
            // Workers are serviced more often than the nodes of the control plane.
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 10,
                "preference": {"matchExpressions": [
                    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
                ]},
            }]},
            // A wish only: on a cluster of one node both run there.
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {APP.0: APP.1}},
                },
            }]},
        },
        "tolerations": [
            tolerate("node-role.kubernetes.io/control-plane"),
            tolerate("node-role.kubernetes.io/master"),
            tolerate("node-role.kubernetes.io/infra"),
        ],
    })
}

/// How the API server and Prometheus find the pods.
pub fn service(plan: &Plan) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": plan.labels(),
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": PROBES.to_string(),
                "prometheus.io/path": "/metrics",
            },
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {APP.0: APP.1},
            "ports": [
                {"name": "https", "port": 443, "targetPort": HTTPS, "protocol": "TCP"},
                {"name": "metrics", "port": PROBES, "targetPort": PROBES, "protocol": "TCP"},
            ],
        },
    })
}

/// One at a time. A number of pods that have to stay would keep a single replica on its node for ever.
pub fn budget(plan: &Plan) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": plan.labels()},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {APP.0: APP.1}},
            // One that is not ready protects nothing.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}

/// Asked on two ports; asks the API server, and names. API servers are no pods, so they cannot be selected, only their ports.
pub fn network_policy(plan: &Plan) -> Value {
    let tcp = |port: u16| json!({"port": port, "protocol": "TCP"});
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": plan.labels()},
        "spec": {
            "podSelector": {"matchLabels": {APP.0: APP.1}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [tcp(HTTPS), tcp(PROBES)]}],
            "egress": [
                {"ports": [tcp(443), tcp(6443)]},
                {"ports": [tcp(53), {"port": 53, "protocol": "UDP"}]},
            ],
        },
    })
}
