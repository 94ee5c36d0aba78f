//! KubeVirt's objects: what is read of them, what is rendered from them, and the definitions of their kinds.

pub mod crds;
pub mod launcher;
pub mod project;
pub mod render;
pub mod request;
pub mod review;
pub mod settings;
pub mod wire;

pub const GROUP: &str = "kubevirt.io";
pub const VERSION: &str = "v1";
pub const API_VERSION: &str = "kubevirt.io/v1";
/// Every version of the group that is served.
pub const VERSIONS: &[&str] = &["v1", "v1alpha3"];
/// Where the cluster's settings and the ledger of migrations live.
pub const NAMESPACE: &str = "kubevirt";
