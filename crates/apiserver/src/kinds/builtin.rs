//! The list of built-in kinds: the profile of this server.

use std::borrow::Cow;

use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, apps::v1 as apps, authentication::v1 as authn,
    authorization::v1 as authz, batch::v1 as batch, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events_v1, lifecycle::v1alpha1 as lifecycle_v1alpha1,
    policy::v1 as policy_v1, rbac::v1 as rbac_v1, resource::v1 as resource_v1, scheduling::v1 as scheduling,
    storage::v1 as storage_v1,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource, SubResourceScope};

use super::{
    ALL_VERBS, CREATE, CREATE_ONLY, Generation, Kind, NO_COLLECTION_DELETE, READ_WRITE, Strategy,
    Subresource, Text, UPDATE, admission, cluster, definition, events, lifecycle, pod, policy, rbac, service,
    storage, workloads,
};
use crate::schema::builtin::Types;

trait Scope {
    const NAMESPACED: bool;
}
impl Scope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}
impl Scope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}
impl Scope for SubResourceScope {
    const NAMESPACED: bool = true;
}

/// A spec whose changes are counted, and no status.
const SPEC_ONLY: Strategy = Strategy { generation: Generation::Fields(&["spec"]), ..Strategy::PLAIN };

fn kind<T>(types: &mut Types, strategy: Strategy) -> Kind
where
    T: Resource + schemars::JsonSchema,
    T::Scope: Scope,
{
    let mut kind = Kind {
        group: Cow::Borrowed(T::GROUP),
        version: Cow::Borrowed(T::VERSION),
        kind: Cow::Borrowed(T::KIND),
        list_kind: Cow::Owned(format!("{}List", T::KIND)),
        plural: Cow::Borrowed(T::URL_PATH_SEGMENT),
        singular: Cow::Owned(T::KIND.to_lowercase()),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: T::Scope::NAMESPACED,
        verbs: ALL_VERBS,
        subresources: Vec::new(),
        schema: types.load::<T>(),
        storage: (Cow::Borrowed(T::GROUP), Cow::Borrowed(T::URL_PATH_SEGMENT)),
        strategy,
        custom: None,
    };
    if strategy.has_status {
        kind = kind.sub("status", READ_WRITE);
    }
    kind
}

impl Kind {
    fn short(mut self, names: &[&'static str]) -> Self {
        self.short_names = names.iter().map(|n| Text::Borrowed(n)).collect();
        self
    }

    fn category(mut self, name: &'static str) -> Self {
        self.categories.push(Text::Borrowed(name));
        self
    }

    fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    /// A subresource whose body is the object itself.
    fn sub(mut self, name: &'static str, verbs: &'static [&'static str]) -> Self {
        let (group, version, kind) = (self.group.clone(), self.version.clone(), self.kind.clone());
        self.subresources.push(Subresource { name: Text::Borrowed(name), group, version, kind, verbs });
        self
    }

    /// A subresource with a body of its own.
    fn sub_of(
        mut self,
        name: &'static str,
        (group, version, kind): (&'static str, &'static str, &'static str),
        verbs: &'static [&'static str],
    ) -> Self {
        self.subresources.push(Subresource {
            name: Text::Borrowed(name),
            group: Text::Borrowed(group),
            version: Text::Borrowed(version),
            kind: Text::Borrowed(kind),
            verbs,
        });
        self
    }

    fn scale(self) -> Self {
        self.sub_of("scale", ("autoscaling", "v1", "Scale"), READ_WRITE)
    }
}

pub(super) fn all() -> Vec<Kind> {
    let mut types = Types::new();
    let t = &mut types;
    let mut kinds = core_kinds(t);
    kinds.extend(workload_kinds(t));
    kinds.extend(cluster_kinds(t));
    kinds.extend(review_kinds(t));
    kinds
}

fn core_kinds(t: &mut Types) -> Vec<Kind> {
    vec![
        kind::<core::Namespace>(t, cluster::NAMESPACE)
            .short(&["ns"])
            .verbs(NO_COLLECTION_DELETE)
            .sub("finalize", &[UPDATE]),
        kind::<core::Node>(t, cluster::NODE).short(&["no"]),
        kind::<core::Pod>(t, pod::POD)
            .short(&["po"])
            .category("all")
            .sub_of("binding", ("", "v1", "Binding"), &[CREATE])
            .sub("ephemeralcontainers", READ_WRITE)
            .sub_of("eviction", ("policy", "v1", "Eviction"), &[CREATE])
            .sub("resize", READ_WRITE),
        kind::<core::Binding>(t, Strategy { has_status: false, ..Strategy::PLAIN }).verbs(CREATE_ONLY),
        kind::<core::PodTemplate>(t, workloads::POD_TEMPLATE),
        kind::<core::ReplicationController>(t, workloads::REPLICATION_CONTROLLER)
            .short(&["rc"])
            .category("all")
            .scale(),
        kind::<core::Service>(t, service::SERVICE).short(&["svc"]).category("all"),
        kind::<core::Endpoints>(t, service::ENDPOINTS).short(&["ep"]),
        kind::<core::ConfigMap>(t, cluster::CONFIG_MAP).short(&["cm"]),
        kind::<core::Secret>(t, cluster::SECRET),
        kind::<core::ServiceAccount>(t, cluster::SERVICE_ACCOUNT).short(&["sa"]).sub_of(
            "token",
            ("authentication.k8s.io", "v1", "TokenRequest"),
            &[CREATE],
        ),
        kind::<core::Event>(t, events::CORE).short(&["ev"]),
        kind::<core::PersistentVolume>(t, storage::PERSISTENT_VOLUME).short(&["pv"]),
        kind::<core::PersistentVolumeClaim>(t, storage::PERSISTENT_VOLUME_CLAIM).short(&["pvc"]),
        kind::<core::ResourceQuota>(t, cluster::RESOURCE_QUOTA).short(&["quota"]),
        kind::<core::LimitRange>(t, cluster::LIMIT_RANGE).short(&["limits"]),
        Kind {
            storage: (Text::Borrowed(""), Text::Borrowed("events")),
            ..kind::<events_v1::Event>(t, events::V1).short(&["ev"])
        },
    ]
}

fn workload_kinds(t: &mut Types) -> Vec<Kind> {
    vec![
        kind::<apps::Deployment>(t, workloads::DEPLOYMENT).short(&["deploy"]).category("all").scale(),
        kind::<apps::ReplicaSet>(t, workloads::REPLICA_SET).short(&["rs"]).category("all").scale(),
        kind::<apps::DaemonSet>(t, workloads::DAEMON_SET).short(&["ds"]).category("all"),
        kind::<apps::StatefulSet>(t, workloads::STATEFUL_SET).short(&["sts"]).category("all").scale(),
        kind::<apps::ControllerRevision>(t, workloads::CONTROLLER_REVISION),
        kind::<batch::Job>(t, workloads::JOB).category("all"),
        kind::<batch::CronJob>(t, workloads::CRON_JOB).short(&["cj"]).category("all"),
        kind::<policy_v1::PodDisruptionBudget>(t, policy::POD_DISRUPTION_BUDGET).short(&["pdb"]),
        kind::<coordination::Lease>(t, policy::LEASE),
        kind::<scheduling::PriorityClass>(t, policy::PRIORITY_CLASS).short(&["pc"]),
        kind::<lifecycle_v1alpha1::EvictionRequest>(t, lifecycle::EVICTION_REQUEST),
        kind::<lifecycle_v1alpha1::Eviction>(t, lifecycle::EVICTION),
    ]
}

fn cluster_kinds(t: &mut Types) -> Vec<Kind> {
    vec![
        kind::<discovery::EndpointSlice>(t, service::ENDPOINT_SLICE),
        kind::<rbac_v1::Role>(t, rbac::ROLE),
        kind::<rbac_v1::ClusterRole>(t, rbac::ROLE),
        kind::<rbac_v1::RoleBinding>(t, rbac::ROLE_BINDING),
        kind::<rbac_v1::ClusterRoleBinding>(t, rbac::CLUSTER_ROLE_BINDING),
        kind::<storage_v1::StorageClass>(t, storage::STORAGE_CLASS).short(&["sc"]),
        kind::<storage_v1::VolumeAttachment>(t, storage::VOLUME_ATTACHMENT),
        kind::<storage_v1::CSINode>(t, storage::CSI_NODE),
        kind::<storage_v1::CSIDriver>(t, storage::CSI_DRIVER),
        kind::<storage_v1::CSIStorageCapacity>(t, storage::CSI_STORAGE_CAPACITY),
        // Can be listed, not written; see `rest::profile`.
        kind::<resource_v1::DeviceClass>(t, SPEC_ONLY),
        kind::<resource_v1::DeviceTaintRule>(t, Strategy::SPEC_AND_STATUS),
        kind::<resource_v1::ResourceClaim>(
            t,
            Strategy { generation: Generation::None, ..Strategy::SPEC_AND_STATUS },
        ),
        kind::<resource_v1::ResourceClaimTemplate>(t, Strategy::PLAIN),
        kind::<resource_v1::ResourceSlice>(t, SPEC_ONLY),
        kind::<admissionregistration::ValidatingWebhookConfiguration>(t, admission::VALIDATING)
            .category("api-extensions"),
        kind::<admissionregistration::MutatingWebhookConfiguration>(t, admission::MUTATING)
            .category("api-extensions"),
        kind::<admissionregistration::ValidatingAdmissionPolicy>(t, admission::POLICY)
            .category("api-extensions"),
        kind::<admissionregistration::ValidatingAdmissionPolicyBinding>(t, admission::POLICY_BINDING)
            .category("api-extensions"),
        kind::<apiextensions::CustomResourceDefinition>(t, definition::DEFINITION)
            .short(&["crd", "crds"])
            .category("api-extensions"),
        kind::<apiregistration::APIService>(t, definition::API_SERVICE).category("api-extensions"),
    ]
}

fn review_kinds(t: &mut Types) -> Vec<Kind> {
    let review = Strategy { has_status: false, ..Strategy::PLAIN };
    vec![
        kind::<authn::TokenReview>(t, review).verbs(CREATE_ONLY),
        kind::<authn::SelfSubjectReview>(t, review).verbs(CREATE_ONLY),
        kind::<authz::SubjectAccessReview>(t, review).verbs(CREATE_ONLY),
        kind::<authz::SelfSubjectAccessReview>(t, review).verbs(CREATE_ONLY),
        kind::<authz::SelfSubjectRulesReview>(t, review).verbs(CREATE_ONLY),
        kind::<authz::LocalSubjectAccessReview>(t, review).verbs(CREATE_ONLY),
    ]
}
