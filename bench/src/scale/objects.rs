//! The objects of a large cluster at rest: nothing in them gives an operator a reason to write.
//!
//! Their fields and sizes are about those that KubeVirt, kubelets and controllers write, with the account of who manages which field. That
//! makes up a third of an object and is of no use to an operator, but it has to be read all the same.

use evac_api::kubevirt::render;
use evac_core::machines::names;
use evac_core::{Key, Uid};
use serde_json::{Map, Value, json};

const WHEN: &str = "2026-11-01T08:30:00Z";
const NAMESPACES: usize = 200;
const ZONES: usize = 3;
const IMAGES: usize = 25;
const FEATURES: usize = 60;

fn namespace_of(number: usize) -> String {
    format!("team-{}", number % NAMESPACES)
}

pub fn namespaces() -> impl Iterator<Item = Value> {
    (0..NAMESPACES).map(|number| {
        let name = namespace_of(number);
        let mut namespace = object("v1", "Namespace", "", &name, &uid(6, number));
        namespace["metadata"]["labels"] = json!({"kubernetes.io/metadata.name": name});
        namespace["spec"] = json!({"finalizers": ["kubernetes"]});
        namespace["status"] = json!({"phase": "Active"});
        namespace
    })
}

fn node_of(number: usize, nodes: usize) -> String {
    format!("node-{}", number % nodes)
}

fn object(version: &str, kind: &str, namespace: &str, name: &str, uid: &str) -> Value {
    let mut metadata = json!({"name": name, "uid": uid, "creationTimestamp": WHEN, "generation": 1});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata})
}

/// As random uids look, but the same in every run.
fn uid(kind: usize, number: usize) -> String {
    let mixed = (((kind as u64) << 40) | number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed ^ (mixed >> 29);
    format!(
        "{:08x}-{:04x}-4{kind:03x}-8{:03x}-{number:012x}",
        mixed >> 32,
        (mixed >> 16) & 0xffff,
        mixed & 0xfff
    )
}

/// Adds who manages which field: one manager of what is wanted, one of what is.
fn managed(mut object: Value, wants: &str, tells: &str) -> Value {
    let metadata: Map<String, Value> = object["metadata"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| {
            matches!(key.as_str(), "labels" | "annotations" | "ownerReferences" | "finalizers")
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let wanted = fields(&json!({"metadata": metadata, "spec": object["spec"]}));
    let told = fields(&json!({"status": object["status"]}));
    let version = object["apiVersion"].clone();
    let entry = |manager: &str, fields: Value| {
        json!({
            "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": manager,
            "operation": "Update", "time": WHEN,
        })
    };
    let mut status = entry(tells, told);
    status["subresource"] = json!("status");
    object["metadata"]["managedFields"] = json!([entry(wants, wanted), status]);
    object
}

/// The names of all fields, as the server keeps them.
fn fields(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| (format!("f:{key}"), fields(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(list) => {
            let keyed = list.iter().filter_map(|item| {
                let key = ["type", "name", "uid", "key"].into_iter().find(|key| item[*key].is_string())?;
                let mut of_item = fields(item);
                of_item["."] = json!({});
                Some((format!("k:{{\"{key}\":{}}}", item[key]), of_item))
            });
            keyed.collect::<Map<_, _>>().into()
        }
        _ => json!({}),
    }
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": null,
        "lastTransitionTime": WHEN,
    })
}

pub fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let mut labels: Map<String, Value> = [
        ("beta.kubernetes.io/arch", "amd64".to_owned()),
        ("kubernetes.io/arch", "amd64".to_owned()),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/hostname", name.clone()),
        ("node-role.kubernetes.io/worker", String::new()),
        ("topology.kubernetes.io/region", "north".to_owned()),
        ("topology.kubernetes.io/zone", format!("north-{}", number % ZONES)),
        ("node.kubernetes.io/instance-type", "metal-64".to_owned()),
        (names::SCHEDULABLE, "true".to_owned()),
        ("cpumanager", "false".to_owned()),
        ("host-model-cpu.node.kubevirt.io/Skylake-Server-IBRS", "true".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.into()))
    .collect();
    labels
        .extend((0..FEATURES).map(|n| (format!("cpu-feature.node.kubevirt.io/feature-{n}"), "true".into())));
    let mut node = object("v1", "Node", "", &name, &uid(1, number));
    node["metadata"]["labels"] = labels.into();
    node["metadata"]["annotations"] = json!({
        "kubevirt.io/heartbeat": WHEN, "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "csi.volume.kubernetes.io/nodeid": format!("{{\"storage.example.com\":\"{name}\"}}"),
    });
    node["spec"] = json!({
        "podCIDR": "10.4.0.0/24", "podCIDRs": ["10.4.0.0/24"], "providerID": format!("metal://rack/{name}"),
    });
    let room = json!({
        "cpu": "64", "memory": "527956Mi", "pods": "250", "ephemeral-storage": "958608Mi", "hugepages-1Gi": "0",
        "hugepages-2Mi": "0", "devices.kubevirt.io/kvm": "1k", "devices.kubevirt.io/tun": "1k",
        "devices.kubevirt.io/vhost-net": "1k",
    });
    let images: Vec<Value> = (0..IMAGES)
        .map(|n| {
            let image = format!("registry.example.com/platform/component-{n}");
            json!({"names": [format!("{image}@sha256:{n:064x}"), format!("{image}:v1.2.{n}")], "sizeBytes": 90_000_000 + n})
        })
        .collect();
    node["status"] = json!({
        "addresses": [
            {"type": "InternalIP", "address": format!("10.0.{}.{}", number / 250, number % 250 + 1)},
            {"type": "Hostname", "address": name},
        ],
        "capacity": room, "allocatable": room, "images": images,
        "conditions": [
            {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory",
             "message": "kubelet has sufficient memory available", "lastHeartbeatTime": WHEN, "lastTransitionTime": WHEN},
            {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure",
             "message": "kubelet has no disk pressure", "lastHeartbeatTime": WHEN, "lastTransitionTime": WHEN},
            {"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID",
             "message": "kubelet has sufficient PID available", "lastHeartbeatTime": WHEN, "lastTransitionTime": WHEN},
            {"type": "Ready", "status": "True", "reason": "KubeletReady",
             "message": "kubelet is posting ready status", "lastHeartbeatTime": WHEN, "lastTransitionTime": WHEN},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.12.0", "osImage": "Linux",
            "containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.37.1", "kubeProxyVersion": "v1.37.1",
            "machineID": uid(7, number), "systemUUID": uid(8, number), "bootID": uid(9, number),
        },
    });
    managed(node, "kubelet", "kubelet")
}

pub fn lease(number: usize) -> Value {
    let name = format!("node-{number}");
    let mut lease = object("coordination.k8s.io/v1", "Lease", "kube-node-lease", &name, &uid(2, number));
    lease["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid(1, number)}]);
    lease["spec"] = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-11-01T08:30:00.000000Z"});
    lease
}

/// Every twentieth guest must be moved and has a budget of its own.
pub fn is_guarded(number: usize) -> bool {
    number.is_multiple_of(20)
}

fn instance_name(number: usize) -> String {
    format!("vm-{number}")
}

fn launcher_name(number: usize) -> String {
    format!("virt-launcher-vm-{number}-{:05x}", number * 7919 % 0xf_ffff)
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", 64 + number / 62_500, number / 250 % 250, number % 250 + 1)
}

pub fn instance(number: usize, nodes: usize) -> Value {
    let (name, node) = (instance_name(number), node_of(number, nodes));
    let mut vmi =
        object("kubevirt.io/v1", "VirtualMachineInstance", &namespace_of(number), &name, &uid(3, number));
    vmi["metadata"]["finalizers"] = json!([names::INSTANCE_FINALIZER]);
    vmi["metadata"]["labels"] = json!({
        names::NODE_NAME: node, "app": format!("service-{}", number % 500), "kubevirt.io/domain": name,
        "kubevirt.io/size": "medium", "vm.kubevirt.io/name": name,
    });
    vmi["metadata"]["annotations"] = json!({
        "kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1",
        "vm.kubevirt.io/flavor": "medium", "vm.kubevirt.io/os": "linux", "vm.kubevirt.io/workload": "server",
    });
    vmi["spec"] = json!({
        "architecture": "amd64",
        "evictionStrategy": if is_guarded(number) { "LiveMigrate" } else { "None" },
        "terminationGracePeriodSeconds": 180,
        "domain": {
            "cpu": {"cores": 2, "maxSockets": 8, "model": "host-model", "sockets": 1, "threads": 1},
            "devices": {
                "disks": [
                    {"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}},
                    {"name": "cloudinit", "disk": {"bus": "virtio"}},
                ],
                "interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:01", "masquerade": {}, "model": "virtio"}],
                "rng": {},
            },
            "features": {"acpi": {"enabled": true}},
            "firmware": {"serial": uid(10, number), "uuid": uid(11, number)},
            "machine": {"type": "pc-q35-rhel9.4.0"},
            "memory": {"guest": "4Gi", "maxGuest": "16Gi"},
            "resources": {"requests": {"memory": "4Gi"}},
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "dataVolume": {"name": format!("{name}-root")}},
            {"name": "cloudinit", "cloudInitNoCloud": {"secretRef": {"name": format!("{name}-cloudinit")}}},
        ],
    });
    let entered = ["Pending", "Scheduling", "Scheduled", "Running"]
        .map(|phase| json!({"phase": phase, "phaseTransitionTimestamp": WHEN}));
    vmi["status"] = json!({
        "activePods": {uid(4, number): node},
        "conditions": [
            {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": WHEN},
            condition("LiveMigratable", "", ""),
            condition("StorageLiveMigratable", "", ""),
            condition("AgentConnected", "", ""),
        ],
        "currentCPUTopology": {"cores": 2, "sockets": 1, "threads": 1},
        "guestOSInfo": {"id": "linux", "kernelRelease": "6.12.0", "machine": "x86_64", "name": "Linux", "prettyName": "Linux 10", "version": "10"},
        "interfaces": [{
            "infoSource": "domain, guest-agent", "interfaceName": "eth0", "ipAddress": address(number),
            "ipAddresses": [address(number)], "linkState": "up", "mac": "02:00:00:00:00:01", "name": "default",
            "podInterfaceName": "eth0", "queueCount": 1,
        }],
        "launcherContainerImageVersion": "registry.example.com/kubevirt/virt-launcher:v1.7.0",
        "machine": {"type": "pc-q35-rhel9.4.0"},
        "memory": {"guestAtBoot": "4Gi", "guestCurrent": "4Gi", "guestRequested": "4Gi"},
        "migrationMethod": "BlockMigration", "migrationTransport": "Unix", "nodeName": node, "phase": "Running",
        "phaseTransitionTimestamps": entered,
        "qosClass": "Burstable", "runtimeUser": 107, "selinuxContext": "none", "virtualMachineRevisionName": format!("revision-start-vm-{}-1", uid(12, number)),
        "volumeStatus": [
            {"name": "root", "target": "vda", "persistentVolumeClaimInfo": {
                "accessModes": ["ReadWriteMany"], "capacity": {"storage": "30Gi"}, "claimName": format!("{name}-root"),
                "filesystemOverhead": "0.055", "requests": {"storage": "30Gi"}, "volumeMode": "Block"}},
            {"name": "cloudinit", "size": 1_048_576, "target": "vdb"},
        ],
    });
    managed(vmi, "virt-controller", "virt-handler")
}

pub fn launcher(number: usize, nodes: usize) -> Value {
    let (vm, node) = (instance_name(number), node_of(number, nodes));
    let mut pod = object("v1", "Pod", &namespace_of(number), &launcher_name(number), &uid(4, number));
    pod["metadata"]["labels"] = json!({
        names::APP: "virt-launcher", names::CREATED_BY: uid(3, number), "app": format!("service-{}", number % 500),
        "kubevirt.io/domain": vm, "kubevirt.io/size": "medium", "vm.kubevirt.io/name": vm, "vmi.kubevirt.io/id": vm,
    });
    pod["metadata"]["annotations"] = json!({
        names::DOMAIN: vm, "kubectl.kubernetes.io/default-container": "compute",
        "kubevirt.io/migrationTransportUnix": "true", names::REQUEST_EVICT_ONLY: "",
        "post.hook.backup.velero.io/command": format!("[\"/usr/bin/virt-freezer\", \"--unfreeze\", \"--name\", \"{vm}\"]"),
        "post.hook.backup.velero.io/container": "compute",
        "pre.hook.backup.velero.io/command": format!("[\"/usr/bin/virt-freezer\", \"--freeze\", \"--name\", \"{vm}\"]"),
        "pre.hook.backup.velero.io/container": "compute",
        "vm.kubevirt.io/flavor": "medium", "vm.kubevirt.io/os": "linux", "vm.kubevirt.io/workload": "server",
    });
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vm, "uid": uid(3, number),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let image = "registry.example.com/kubevirt/virt-launcher:v1.7.0";
    let mounts: Vec<Value> =
        ["private", "public", "sockets", "container-disks", "libvirt-runtime", "hotplug-disks"]
            .into_iter()
            .map(|name| json!({"name": name, "mountPath": format!("/var/run/kubevirt-{name}")}))
            .collect();
    let volumes: Vec<Value> = [
        "private",
        "public",
        "sockets",
        "virt-bin-share-dir",
        "libvirt-runtime",
        "ephemeral-disks",
        "container-disks",
        "hotplug-disks",
    ]
    .into_iter()
    .map(|name| json!({"name": name, "emptyDir": {}}))
    .chain([json!({"name": "root", "persistentVolumeClaim": {"claimName": format!("{vm}-root")}})])
    .collect();
    pod["spec"] = json!({
        "automountServiceAccountToken": false, "enableServiceLinks": false, "dnsPolicy": "ClusterFirst", "hostname": vm,
        "nodeName": node, "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Never",
        "schedulerName": "default-scheduler", "serviceAccount": "default", "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 210,
        "nodeSelector": {names::SCHEDULABLE: "true", "kubernetes.io/arch": "amd64", "machine-type.node.kubevirt.io/pc-q35-rhel9.4.0": "true"},
        "readinessGates": [{"conditionType": names::UNPAUSED_GATE}],
        "securityContext": {"fsGroup": 107, "runAsGroup": 107, "runAsNonRoot": true, "runAsUser": 107},
        "tolerations": tolerations(),
        "containers": [{
            "name": "compute", "image": image, "imagePullPolicy": "IfNotPresent",
            "command": [
                "/usr/bin/virt-launcher-monitor", "--qemu-timeout", "282s", "--name", vm, "--uid", uid(3, number), "--namespace",
                namespace_of(number), "--kubevirt-share-dir", "/var/run/kubevirt", "--ephemeral-disk-dir",
                "/var/run/kubevirt-ephemeral-disks", "--container-disk-dir", "/var/run/kubevirt/container-disks",
                "--grace-period-seconds", "195", "--hook-sidecars", "0", "--ovmf-path", "/usr/share/OVMF", "--run-as-nonroot",
            ],
            "env": [
                {"name": "XDG_CACHE_HOME", "value": "/var/run/kubevirt-private"},
                {"name": "XDG_CONFIG_HOME", "value": "/var/run/kubevirt-private"},
                {"name": "XDG_RUNTIME_DIR", "value": "/var/run"},
                {"name": "VIRT_LAUNCHER_LOG_VERBOSITY", "value": "2"},
                {"name": "SHARED_FILESYSTEM_PATHS", "value": ""},
                {"name": "STANDALONE_VMI", "value": ""},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            ],
            "resources": {
                "limits": {"devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1", "devices.kubevirt.io/vhost-net": "1"},
                "requests": {"cpu": "200m", "ephemeral-storage": "50M", "memory": "4559Mi", "devices.kubevirt.io/kvm": "1",
                    "devices.kubevirt.io/tun": "1", "devices.kubevirt.io/vhost-net": "1"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
                "runAsGroup": 107, "runAsNonRoot": true, "runAsUser": 107,
            },
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeDevices": [{"devicePath": "/dev/root", "name": "root"}], "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    pod["status"] = pod_status(number, "compute", image);
    let gate = json!({"type": names::UNPAUSED_GATE, "status": "True", "reason": "NotPaused", "message": "the virtual machine is not paused",
        "lastProbeTime": WHEN, "lastTransitionTime": WHEN});
    if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
        conditions.push(gate);
    }
    managed(pod, "virt-controller", "kubelet")
}

fn tolerations() -> Value {
    let five_minutes = |key: &str| {
        json!({
            "effect": "NoExecute", "key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
            "tolerationSeconds": 300,
        })
    };
    json!([five_minutes("not-ready"), five_minutes("unreachable")])
}

fn pod_status(number: usize, container: &str, image: &str) -> Value {
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(
            |kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": WHEN}),
        );
    json!({
        "phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": address(number), "podIPs": [{"ip": address(number)}], "startTime": WHEN,
        "conditions": conditions,
        "containerStatuses": [{
            "containerID": format!("containerd://{number:064x}"), "image": image,
            "imageID": format!("{image}@sha256:{:064x}", 7), "lastState": {}, "name": container, "ready": true,
            "restartCount": 0, "started": true, "state": {"running": {"startedAt": WHEN}},
        }],
    })
}

/// A pod of a Deployment.
pub fn pod(number: usize, nodes: usize) -> Value {
    let app = format!("app-{}", number / 10);
    let mut pod = object(
        "v1",
        "Pod",
        &namespace_of(number / 10),
        &format!("{app}-7d9c5b8f6d-{number:05}"),
        &uid(5, number),
    );
    pod["metadata"]["generateName"] = json!(format!("{app}-7d9c5b8f6d-"));
    pod["metadata"]["labels"] = json!({"app": app, "pod-template-hash": "7d9c5b8f6d", "tier": "backend"});
    pod["metadata"]["annotations"] = json!({"prometheus.io/port": "8080", "prometheus.io/scrape": "true"});
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-7d9c5b8f6d"), "uid": uid(13, number / 10),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let image = "registry.example.com/apps/backend:2.4.1";
    pod["spec"] = json!({
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": node_of(number, nodes),
        "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {}, "serviceAccount": "default",
        "serviceAccountName": "default", "terminationGracePeriodSeconds": 30, "tolerations": tolerations(),
        "containers": [{
            "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "DATABASE", "value": "postgres.data.svc"}],
            "livenessProbe": {"failureThreshold": 3, "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
            "readinessProbe": {"failureThreshold": 3, "httpGet": {"path": "/readyz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access", "readOnly": true}],
        }],
        "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
        ]}}],
    });
    pod["status"] = pod_status(number, "main", image);
    managed(pod, "kube-controller-manager", "kubelet")
}

/// The budget of a guest, as the operator writes it.
pub fn guard(number: usize) -> Value {
    let uid = Uid::from(uid(3, number));
    let instance = Key::new(namespace_of(number), instance_name(number));
    let name = names::budget(&instance.name, &uid.text());
    budget_at_rest(render::budget(&instance, &uid, &name), 14, number)
}

/// The budget of an application.
pub fn budget(number: usize) -> Value {
    let app = format!("app-{number}");
    let mut budget = object("policy/v1", "PodDisruptionBudget", &namespace_of(number), &app, "");
    budget["spec"] = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}});
    budget_at_rest(budget, 15, number)
}

fn budget_at_rest(mut budget: Value, kind: usize, number: usize) -> Value {
    budget["metadata"]["uid"] = json!(uid(kind, number));
    budget["metadata"]["creationTimestamp"] = json!(WHEN);
    budget["metadata"]["generation"] = json!(1);
    budget["status"] = json!({
        "currentHealthy": 10, "desiredHealthy": 9, "disruptionsAllowed": 1, "expectedPods": 10, "observedGeneration": 1,
        "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
            "lastTransitionTime": WHEN, "observedGeneration": 1}],
    });
    managed(budget, "evac", "kube-controller-manager")
}
