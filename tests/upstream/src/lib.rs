//! The real programs beside which evac is tested and measured: a Kubernetes control plane and KubeVirt's own.
//!
//! Only tests and benchmarks depend on this. They are told where the programs are by `EVAC_KUBERNETES`, `EVAC_KUBEVIRT`
//! and, for the release before the newest, `EVAC_KUBEVIRT_PREVIOUS`;
//! see `tests/kubernetes` and `tests/kubevirt`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test or a benchmark whose cluster does not start should say where, and end"
)]

pub mod kubectl;
pub mod kubernetes;
pub mod kubevirt;
pub mod ready;
