//! Which kinds of object a snapshot has, and which fields of each: what evac's readers read, and what a scheduler and the controllers of pods go by.
//! Environment, commands, images, user data, addresses and secrets are on no list here, and may not come onto one.

use std::sync::LazyLock;

use evac_core::cluster::names;
use evac_core::drain::{ownership, record};
use evac_core::failover::fencing;
use evac_core::tenants;
use serde_json::{Value, json};

use super::allow::Allowed;
use crate::call::{self, CLAIMS};
use crate::kubevirt::project::STEERING;
use crate::project::{HEARTBEAT, MIRROR};

/// A kind of object in a snapshot.
#[derive(Debug)]
pub struct SnapshotKind {
    /// What it is called in the snapshot and by people: the plural.
    pub name: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
    /// Where its objects are listed, and which of them.
    pub path: &'static str,
    pub query: &'static str,
    /// Without it there is nothing to answer.
    pub is_essential: bool,
    /// What an answer from a snapshot without it would miss.
    pub misses: &'static str,
    annotations: &'static [&'static [&'static str]],
    fields: &'static [Paths],
}

/// Fields, and the path to them.
type Paths = (&'static str, &'static [&'static str]);

const METADATA: Paths = (
    "metadata.",
    &[
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "labels{}",
        "finalizers[]",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences[].apiVersion",
        "ownerReferences[].kind",
        "ownerReferences[].name",
        "ownerReferences[].uid",
        "ownerReferences[].controller",
        "ownerReferences[].blockOwnerDeletion",
    ],
);

const CONDITIONS: Paths = (
    "status.conditions[].",
    &["type", "status", "reason", "message", "lastProbeTime", "lastTransitionTime", "lastHeartbeatTime"],
);

const POD_SPEC: &[&str] = &[
    "nodeName",
    "schedulerName",
    "nodeSelector{}",
    "affinity*",
    "tolerations*",
    "topologySpreadConstraints*",
    "resourceClaims[].name",
    "schedulingGates[].name",
    "readinessGates[].conditionType",
    "priority",
    "priorityClassName",
    "overhead{}",
    "resources.requests{}",
    "resourceClaims[].name",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "hostNetwork",
    "containers[].name",
    "containers[].resources.requests{}",
    "containers[].ports[].containerPort",
    "containers[].ports[].hostPort",
    "containers[].ports[].hostIP",
    "containers[].ports[].protocol",
    "initContainers[].name",
    "initContainers[].restartPolicy",
    "initContainers[].resources.requests{}",
    "volumes[].name",
    "volumes[].emptyDir!",
    "volumes[].persistentVolumeClaim.claimName",
];

const TEMPLATE: &[Paths] =
    &[("spec.template.metadata.", &["name", "generateName", "labels{}"]), ("spec.template.spec.", POD_SPEC)];

const INSTANCE_SPEC: &[&str] = &[
    "evictionStrategy",
    "terminationGracePeriodSeconds",
    "nodeSelector{}",
    "affinity*",
    "tolerations*",
    "topologySpreadConstraints*",
    "schedulerName",
    "priorityClassName",
    "architecture",
    "domain.cpu.model",
    "domain.cpu.cores",
    "domain.cpu.sockets",
    "domain.cpu.threads",
    "domain.memory.guest",
    "domain.resources.requests{}",
    "volumes[].name",
    "volumes[].persistentVolumeClaim.claimName",
    "volumes[].dataVolume.name",
];

const SCALE: Paths = ("", &["spec.replicas", "spec.selector*", "status.replicas", "status.readyReplicas"]);

/// How simulated nodes are told to treat containers, in seconds and short words; see the sandbox.
const OF_CONTAINERS: &[&str] = &[
    "evac.dev/start-seconds",
    "evac.dev/init-seconds",
    "evac.dev/ready-after-seconds",
    "evac.dev/stop-seconds",
    "evac.dev/run-seconds",
    "evac.dev/exit-code",
    "evac.dev/fail",
];

/// The same for guests.
const OF_GUESTS: &[&str] = &[
    "evac.dev/boot-seconds",
    "evac.dev/shutdown-seconds",
    "evac.dev/dirty-rate",
    "evac.dev/migration-seconds",
    "evac.dev/migration-fails",
    "evac.dev/ignores-acpi",
    "evac.dev/guest-agent",
];

const OF_INSTANCES: &[&str] = &[
    names::EVICTION_SOURCE,
    tenants::DEADLINE,
    tenants::CAPK_DEADLINE,
    tenants::TIMEOUT,
    tenants::POLICY,
    tenants::PROGRESS,
];

const OF_PODS: &[&str] = &[MIRROR, names::DOMAIN, names::EVICTION_IN_PROGRESS, names::MIGRATION_JOB_NAME];

const LEASE: &[Paths] = &[
    METADATA,
    ("spec.", &["holderIdentity", "acquireTime", "renewTime", "leaseDurationSeconds", "leaseTransitions"]),
];

const MAINTENANCE: &[Paths] = &[METADATA, ("", &["spec.nodeName", "status.phase"])];

/// The ConfigMap in which old releases of KubeVirt have their settings.
pub const LEGACY_SETTINGS: &str = "kubevirt-config";

/// All kinds, owners before what they own.
pub static KINDS: &[SnapshotKind] = &[
    SnapshotKind {
        name: "namespaces",
        api_version: "v1",
        kind: "Namespace",
        path: "/api/v1/namespaces",
        query: "",
        is_essential: false,
        misses: "namespaces that are being deleted",
        annotations: &[],
        fields: &[METADATA, ("", &["status.phase"])],
    },
    SnapshotKind {
        name: "resourcequotas",
        api_version: "v1",
        kind: "ResourceQuota",
        path: "/api/v1/resourcequotas",
        query: "",
        is_essential: false,
        misses: "quotas that keep a guest from a second pod while it moves",
        annotations: &[],
        fields: &[
            METADATA,
            ("", &["spec.hard{}", "spec.scopes[]", "spec.scopeSelector*", "status.hard{}", "status.used{}"]),
        ],
    },
    SnapshotKind {
        name: "priorityclasses",
        api_version: "scheduling.k8s.io/v1",
        kind: "PriorityClass",
        path: "/apis/scheduling.k8s.io/v1/priorityclasses",
        query: "",
        is_essential: false,
        misses: "which pods go before others",
        annotations: &[],
        fields: &[METADATA, ("", &["value", "globalDefault", "preemptionPolicy"])],
    },
    SnapshotKind {
        name: "nodes",
        api_version: "v1",
        kind: "Node",
        path: "/api/v1/nodes",
        query: "",
        is_essential: true,
        misses: "everything",
        annotations: &[&[HEARTBEAT, ownership::ANNOTATION, fencing::ANNOTATION]],
        fields: &[
            METADATA,
            CONDITIONS,
            ("", &["spec.unschedulable", "spec.taints*"]),
            ("status.", &["allocatable{}", "capacity{}", "nodeInfo.bootID", "volumesAttached[].name"]),
        ],
    },
    SnapshotKind {
        name: "kubevirts",
        api_version: "kubevirt.io/v1",
        kind: "KubeVirt",
        path: "/apis/kubevirt.io/v1/kubevirts",
        query: "",
        is_essential: false,
        misses: "the limits for migrations, the default eviction strategy and the key of the drain taint, where they are not KubeVirt's defaults",
        annotations: &[],
        fields: &[
            METADATA,
            ("", &["status.phase", "status.observedKubeVirtVersion", "spec.configuration.evictionStrategy"]),
            ("spec.configuration.migrations.", MIGRATIONS),
        ],
    },
    SnapshotKind {
        name: "hyperconvergeds",
        api_version: "hco.kubevirt.io/v1beta1",
        kind: "HyperConverged",
        path: "/apis/hco.kubevirt.io/v1beta1/hyperconvergeds",
        query: "",
        is_essential: false,
        misses: "the default eviction strategy, where the product sets one",
        annotations: &[],
        fields: &[METADATA, ("spec.", &["evictionStrategy", "virtualization.evictionStrategy"])],
    },
    SnapshotKind {
        name: "virtualmachineinstancereplicasets",
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachineInstanceReplicaSet",
        path: "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets",
        query: "",
        is_essential: false,
        misses: "whether guests of replica sets come back elsewhere",
        annotations: &[],
        fields: &[
            METADATA,
            CONDITIONS,
            SCALE,
            ("", &["spec.paused", "status.labelSelector"]),
            ("spec.template.metadata.", &["name", "generateName", "labels{}"]),
            ("spec.template.spec.", INSTANCE_SPEC),
        ],
    },
    SnapshotKind {
        name: "virtualmachines",
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachine",
        path: "/apis/kubevirt.io/v1/virtualmachines",
        query: "",
        is_essential: false,
        misses: "whether guests that are shut down come back",
        annotations: &[&[tenants::CORDONED]],
        fields: &[
            METADATA,
            ("spec.", &["running", "runStrategy"]),
            ("spec.template.metadata.", &["labels{}"]),
            ("spec.template.spec.", INSTANCE_SPEC),
            (
                "status.",
                &[
                    "created",
                    "ready",
                    "printableStatus",
                    "runStrategy",
                    "stateChangeRequests[].action",
                    "stateChangeRequests[].uid",
                    "stateChangeRequests[].data.paused",
                    "startFailure.consecutiveFailCount",
                    "startFailure.lastFailedVMIUID",
                    "startFailure.retryAfterTimestamp",
                    "conditions[].type",
                    "conditions[].status",
                    "conditions[].reason",
                    "conditions[].lastTransitionTime",
                ],
            ),
        ],
    },
    SnapshotKind {
        name: "virtualmachineinstances",
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachineInstance",
        path: "/apis/kubevirt.io/v1/virtualmachineinstances",
        query: "",
        is_essential: false,
        misses: "how each guest may leave its node",
        annotations: &[OF_INSTANCES, OF_GUESTS, OF_CONTAINERS],
        fields: &[
            METADATA,
            CONDITIONS,
            ("spec.", INSTANCE_SPEC),
            (
                "status.",
                &[
                    "phase",
                    "nodeName",
                    "evacuationNodeName",
                    "activePods{}",
                    "memory.guestCurrent",
                    "memory.guestAtBoot",
                    "migrationMethod",
                    "changedBlockTracking.backupStatus.backupName",
                    "changedBlockTracking.backupStatus.endTimestamp",
                    "changedBlockTracking.backupStatus.completed",
                    "changedBlockTracking.backupStatus.failed",
                    "phaseTransitionTimestamps[].phase",
                    "phaseTransitionTimestamps[].phaseTransitionTimestamp",
                ],
            ),
            ("status.migrationState.", MIGRATION_STATE),
        ],
    },
    SnapshotKind {
        name: "virtualmachineinstancemigrations",
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachineInstanceMigration",
        path: "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
        query: "",
        is_essential: false,
        misses: "migrations that are under way or have failed",
        annotations: &[STEERING],
        fields: &[
            METADATA,
            CONDITIONS,
            ("", &["spec.vmiName", "spec.priority", "spec.addedNodeSelector{}", "status.phase"]),
            (
                "status.",
                &[
                    "phaseTransitionTimestamps[].phase",
                    "phaseTransitionTimestamps[].phaseTransitionTimestamp",
                ],
            ),
            ("status.migrationState.", MIGRATION_STATE),
        ],
    },
    SnapshotKind {
        name: LEGACY_SETTINGS,
        api_version: "v1",
        kind: "ConfigMap",
        path: "/api/v1/namespaces/kubevirt/configmaps",
        query: "fieldSelector=metadata.name%3Dkubevirt-config",
        is_essential: false,
        misses: "the limits for migrations, where they are set as releases before v0.48 had them",
        annotations: &[],
        fields: &[METADATA],
    },
    SnapshotKind {
        name: "replicasets",
        api_version: "apps/v1",
        kind: "ReplicaSet",
        path: "/apis/apps/v1/replicasets",
        query: "",
        is_essential: false,
        misses: "what starts evicted pods again",
        annotations: &[],
        fields: &[METADATA, SCALE, TEMPLATE[0], TEMPLATE[1]],
    },
    SnapshotKind {
        name: "replicationcontrollers",
        api_version: "v1",
        kind: "ReplicationController",
        path: "/api/v1/replicationcontrollers",
        query: "",
        is_essential: false,
        misses: "what starts evicted pods again",
        annotations: &[],
        fields: &[METADATA, SCALE, TEMPLATE[0], TEMPLATE[1]],
    },
    SnapshotKind {
        name: "statefulsets",
        api_version: "apps/v1",
        kind: "StatefulSet",
        path: "/apis/apps/v1/statefulsets",
        query: "",
        is_essential: false,
        misses: "what starts evicted pods again",
        annotations: &[],
        fields: &[
            METADATA,
            SCALE,
            ("", &["spec.serviceName", "spec.podManagementPolicy"]),
            TEMPLATE[0],
            TEMPLATE[1],
        ],
    },
    SnapshotKind {
        name: "daemonsets",
        api_version: "apps/v1",
        kind: "DaemonSet",
        path: "/apis/apps/v1/daemonsets",
        query: "",
        is_essential: false,
        misses: "whether the DaemonSets of pods are still there",
        annotations: &[],
        fields: &[METADATA, ("", &["spec.selector*"]), TEMPLATE[0], TEMPLATE[1]],
    },
    SnapshotKind {
        name: "jobs",
        api_version: "batch/v1",
        kind: "Job",
        path: "/apis/batch/v1/jobs",
        query: "",
        is_essential: false,
        misses: "what starts evicted pods again",
        annotations: &[],
        fields: &[
            METADATA,
            ("spec.", &["parallelism", "completions", "backoffLimit", "suspend", "selector*"]),
            ("status.", &["active", "succeeded", "failed"]),
            TEMPLATE[0],
            TEMPLATE[1],
        ],
    },
    SnapshotKind {
        name: "poddisruptionbudgets",
        api_version: "policy/v1",
        kind: "PodDisruptionBudget",
        path: "/apis/policy/v1/poddisruptionbudgets",
        query: "",
        is_essential: false,
        misses: "which evictions would be refused by a disruption budget",
        annotations: &[],
        fields: &[
            METADATA,
            CONDITIONS,
            ("spec.", &["minAvailable", "maxUnavailable", "selector*", "unhealthyPodEvictionPolicy"]),
            (
                "status.",
                &[
                    "observedGeneration",
                    "disruptionsAllowed",
                    "currentHealthy",
                    "desiredHealthy",
                    "expectedPods",
                    "disruptedPods{}",
                ],
            ),
        ],
    },
    SnapshotKind {
        name: "pods",
        api_version: "v1",
        kind: "Pod",
        path: "/api/v1/pods",
        query: "",
        is_essential: true,
        misses: "everything",
        annotations: &[OF_PODS, OF_CONTAINERS],
        fields: &[
            METADATA,
            CONDITIONS,
            ("spec.", POD_SPEC),
            (
                "status.",
                &[
                    "phase",
                    "startTime",
                    "containerStatuses[].name",
                    "containerStatuses[].ready",
                    "containerStatuses[].state.running!",
                ],
            ),
        ],
    },
    SnapshotKind {
        name: "claims of drains",
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        path: CLAIMS.0,
        query: CLAIMS.1,
        is_essential: false,
        misses: "drains that are under way",
        annotations: &[&[
            call::LEASE_ANNOTATION,
            call::ASKED_ANNOTATION,
            call::ANSWERED_ANNOTATION,
            record::ANNOTATION,
        ]],
        fields: LEASE,
    },
    SnapshotKind {
        name: "leases of maintenances",
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        path: "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases",
        query: "",
        is_essential: false,
        misses: "nodes that a maintenance or a remediation holds",
        annotations: &[],
        fields: LEASE,
    },
    SnapshotKind {
        name: "nodemaintenances.nodemaintenance.medik8s.io",
        api_version: "nodemaintenance.medik8s.io/v1beta1",
        kind: "NodeMaintenance",
        path: "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances",
        query: "",
        is_essential: false,
        misses: "maintenances that are wanted",
        annotations: &[],
        fields: MAINTENANCE,
    },
    SnapshotKind {
        name: "nodemaintenances.kubevirt.io",
        api_version: "kubevirt.io/v1alpha1",
        kind: "NodeMaintenance",
        path: "/apis/kubevirt.io/v1alpha1/nodemaintenances",
        query: "",
        is_essential: false,
        misses: "maintenances that are wanted",
        annotations: &[],
        fields: MAINTENANCE,
    },
];

const MIGRATION_STATE: &[&str] = &[
    "migrationUid",
    "sourceNode",
    "sourcePod",
    "targetNode",
    "targetPod",
    "startTimestamp",
    "endTimestamp",
    "completed",
    "failed",
    "abortRequested",
    "failureReason",
];

/// The settings for migrations: limits, times and the key of a taint.
const MIGRATIONS: &[&str] = &[
    "nodeDrainTaintKey",
    "parallelMigrationsPerCluster",
    "parallelOutboundMigrationsPerNode",
    "completionTimeoutPerGiB",
    "progressTimeout",
    "utilityVolumesTimeout",
    "allowAutoConverge",
    "allowPostCopy",
    "allowWorkloadDisruption",
    "unsafeMigrationOverride",
    "bandwidthPerMigration",
    "maxDowntimeMs",
];

static ALLOWED: LazyLock<Vec<Allowed>> = LazyLock::new(|| {
    let fields = |kind: &SnapshotKind| {
        let mut allowed = Allowed::default();
        for (prefix, paths) in kind.fields {
            allowed.add(prefix, paths.iter().copied());
        }
        allowed
    };
    KINDS.iter().map(fields).collect()
});

impl SnapshotKind {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// What of an object of this kind goes into a snapshot.
    pub fn reduce(&self, object: &Value) -> Value {
        let position = KINDS.iter().position(|kind| kind.name == self.name);
        let allowed = position.and_then(|position| ALLOWED.get(position));
        let mut kept = allowed.map(|allowed| allowed.reduce(object)).unwrap_or_default();
        kept["apiVersion"] = json!(self.api_version);
        kept["kind"] = json!(self.kind);
        // Their names have dots, so they are on a list of their own.
        let said =
            |name: &&str| Some(((*name).to_owned(), object["metadata"]["annotations"].get(*name)?.clone()));
        let annotations: serde_json::Map<String, Value> = self
            .annotations
            .iter()
            .copied()
            .flatten()
            .filter_map(said)
            .filter(|(_, value)| value.is_string())
            .collect();
        if !annotations.is_empty() {
            kept["metadata"]["annotations"] = Value::Object(annotations);
        }
        if self.name == LEGACY_SETTINGS {
            kept["data"] = json!({"migrations": legacy(object).to_string()});
        }
        kept
    }

    /// Whether it has to be read at all, by how many objects of other kinds there are: none of a kind that is not served.
    pub fn is_needed(&self, count: impl Fn(&str) -> Option<usize>) -> bool {
        match self.name {
            LEGACY_SETTINGS => {
                count("virtualmachineinstances").is_some() && count("kubevirts").unwrap_or(0) == 0
            }
            _ => true,
        }
    }
}

/// The settings for migrations in the old ConfigMap, where they are YAML in a text.
fn legacy(object: &Value) -> Value {
    let text = object["data"]["migrations"].as_str().unwrap_or_default();
    let mut allowed = Allowed::default();
    allowed.add("", MIGRATIONS.iter().copied());
    allowed.reduce(&serde_saphyr::from_str(text).unwrap_or(Value::Null))
}
