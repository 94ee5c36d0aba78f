//! What an operator does where KubeVirt's own control plane is at work: which roles it takes on, what it may install, under which name it
//! is found, and what is said of that when it starts.

use super::roles::{Role, Roles};
pub use crate::cluster::settings::Upstream;
use crate::reasons::{KubeVirtReason, Reason};

/// The Service of KubeVirt's API server. The role machines answers in its place, so it goes by its name.
pub const VIRT_API: &str = "virt-api";
/// The Service of an operator that leaves machines to KubeVirt, or has nothing to do with them.
pub const SERVICE: &str = "evac";

impl Upstream {
    /// Whether virt-operator looks after this cluster, whether it is done already or not.
    pub fn is_in_charge(&self) -> bool {
        !matches!(self.phase.as_str(), "" | "Deleted")
    }

    /// `KubeVirt v1.8.0 (phase Deployed)`
    fn name(&self) -> String {
        let version = if self.version.is_empty() { String::new() } else { format!(" {}", self.version) };
        format!("KubeVirt{version} (phase {})", self.phase)
    }
}

/// The minor versions that the tests run beside, as `(major, minor)`.
const TESTED: &[(u32, u32)] = &[(1, 7), (1, 8)];
/// The same in words.
const TESTED_WORDS: &str = "v1.7 and v1.8";

/// What is to be said of KubeVirt before its guests are moved.
pub fn notes(upstream: &Upstream) -> Vec<Reason> {
    let mut notes = Vec::new();
    if upstream.is_in_charge() && upstream.phase != "Deployed" {
        notes.push(KubeVirtReason::KubeVirtNotDeployed { phase: upstream.phase.clone() }.into());
    }
    // Where virt-operator says no version there is nothing to compare.
    if !upstream.version.is_empty() && !minor(&upstream.version).is_some_and(|found| TESTED.contains(&found))
    {
        let (version, tested) = (upstream.version.clone(), TESTED_WORDS);
        notes.push(KubeVirtReason::KubeVirtUntested { version, tested }.into());
    }
    notes
}

/// Reads `v1.8.0`, `1.8.0-beta.0`, …
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// How an operator starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// What it takes on.
    pub roles: Roles,
    /// The kinds of virtual machines are ours to define.
    pub defines_machines: bool,
    /// The Service that leads to the operator, unless another name is given.
    pub service: &'static str,
    /// What is said of KubeVirt when it starts.
    pub said: Option<String>,
    /// What will go wrong if it stays as it was asked for.
    pub warning: Option<String>,
}

/// Arranges the roles that were asked for, or those that fit. The sentence of an error says why they cannot be taken on.
pub fn arrange(asked: Option<&Roles>, upstream: &Upstream) -> Result<Arrangement, String> {
    let beside = upstream.is_in_charge();
    let roles = match asked {
        Some(roles) => roles.clone(),
        None if beside => Roles::all().beside_kubevirt(),
        None => Roles::all(),
    };
    let twice: Vec<Role> = Role::KUBEVIRT.into_iter().filter(|role| roles.has(*role)).collect();
    let mut arrangement = Arrangement {
        service: if roles.has(Role::Machines) { VIRT_API } else { SERVICE },
        defines_machines: !beside && !twice.is_empty(),
        said: None,
        warning: None,
        roles,
    };
    if !beside {
        return Ok(arrangement);
    }
    if twice.is_empty() {
        arrangement.said = Some(format!(
            "beside {}, which does its own part: {}",
            upstream.name(),
            Roles::of(Role::KUBEVIRT)
        ));
        return Ok(arrangement);
    }
    let rest = arrangement.roles.clone().beside_kubevirt();
    let twice = Roles::of(twice);
    // Two control planes would each make a launcher for a new instance, and its guest would run twice.
    if arrangement.roles.has(Role::Machines) {
        return Err(format!(
            "{} runs the machines of this cluster; with the role machines beside it guests could run twice. Leave out what it does \
             itself (--roles {rest}), or remove KubeVirt first",
            upstream.name()
        ));
    }
    arrangement.warning = Some(format!(
        "{} does {twice} itself, so that is done twice here; leave it out: --roles {rest}",
        upstream.name()
    ));
    Ok(arrangement)
}

/// What to do about an object of this kind and name that is needed, is there already, and is not evac's.
pub fn foreign(kind: &str, name: &str) -> String {
    let rest = Roles::all().beside_kubevirt();
    let way_out = match kind {
        "Service" => "give the operator's own another name with --service-name".to_owned(),
        _ if name.starts_with(VIRT_API) || name.ends_with(SUBRESOURCES) => {
            format!(
                "another control plane of virtual machines runs here, so leave its part to it: --roles {rest}"
            )
        }
        _ => "remove it if it is not needed".to_owned(),
    };
    format!("{kind} {name} is there already and is not evac's; {way_out}")
}

const SUBRESOURCES: &str = ".subresources.kubevirt.io";

/// What an operator that is asked by no API server has to say of that.
pub fn unasked(roles: &Roles, upstream: &Upstream) -> Option<String> {
    if roles.has(Role::Machines) && !upstream.virt_api {
        return Some("reviews nothing, and machines cannot be started by command; give --listen".to_owned());
    }
    let kinds = [(Role::Maintenance, "NodeMaintenance"), (Role::Failover, "FailoverPolicy")];
    let unreviewed: Vec<&str> =
        kinds.into_iter().filter(|(role, _)| roles.has(*role)).map(|(_, kind)| kind).collect();
    if unreviewed.is_empty() {
        return None;
    }
    let power =
        if upstream.virt_api { " (machines are started and stopped by KubeVirt's virt-api)" } else { "" };
    Some(format!("objects of kind {} are not reviewed; give --listen{power}", unreviewed.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(phase: &str) -> Upstream {
        Upstream { phase: phase.into(), version: "v1.8.0".into(), virt_api: true }
    }

    fn roles(text: &str) -> Roles {
        text.parse().unwrap()
    }

    #[test]
    fn without_kubevirt_everything_is_ours_and_goes_by_the_name_of_virt_api() {
        let alone = arrange(None, &Upstream::default()).unwrap();
        assert_eq!(alone.roles, Roles::all());
        assert!(alone.defines_machines);
        assert_eq!((alone.service, alone.said, alone.warning), ("virt-api", None, None));
        let upkeep = arrange(Some(&roles("maintenance")), &Upstream::default()).unwrap();
        assert_eq!((upkeep.defines_machines, upkeep.service), (false, "evac"), "it needs no machines");
    }

    #[test]
    fn beside_kubevirt_its_part_is_left_to_it_whatever_phase_it_is_in() {
        for phase in ["Deploying", "Deployed", "Deleting"] {
            let beside = arrange(None, &upstream(phase)).unwrap();
            assert_eq!(beside.roles.to_string(), "tenants,maintenance", "{phase}");
            assert_eq!((beside.defines_machines, beside.service), (false, "evac"), "{phase}");
            let said = format!(
                "beside KubeVirt v1.8.0 (phase {phase}), which does its own part: machines,evacuation,budget"
            );
            assert_eq!((beside.said, beside.warning), (Some(said), None));
        }
        assert_eq!(arrange(None, &upstream("Deleted")).unwrap().roles, Roles::all());
    }

    #[test]
    fn a_second_control_plane_of_machines_is_refused_and_other_work_done_twice_is_warned_of() {
        assert_eq!(
            arrange(Some(&Roles::all()), &upstream("Deployed")).unwrap_err(),
            "KubeVirt v1.8.0 (phase Deployed) runs the machines of this cluster; with the role machines beside it guests could run \
             twice. Leave out what it does itself (--roles tenants,maintenance), or remove KubeVirt first"
        );
        let forced = arrange(Some(&roles("budget,maintenance")), &upstream("Deployed")).unwrap();
        assert_eq!(forced.roles, roles("budget,maintenance"), "what is asked for is done");
        assert_eq!(
            forced.warning.as_deref(),
            Some(
                "KubeVirt v1.8.0 (phase Deployed) does budget itself, so that is done twice here; leave it out: --roles maintenance"
            )
        );
        assert!(!forced.defines_machines);
    }

    #[test]
    fn a_drain_is_told_of_a_kubevirt_that_is_not_ready_or_not_known() {
        let codes = |phase: &str, version: &str| -> Vec<&str> {
            let upstream = Upstream { phase: phase.into(), version: version.into(), virt_api: false };
            notes(&upstream).iter().map(Reason::code).collect()
        };
        assert!(
            codes("Deployed", "v1.7.0").is_empty()
                && codes("Deployed", "v1.8.3").is_empty()
                && codes("", "").is_empty()
        );
        assert!(codes("Deployed", "v1.8.0-beta.0-12-gabc").is_empty());
        assert_eq!(codes("Deploying", "v1.8.0"), ["KubeVirtNotDeployed"]);
        assert_eq!(codes("Deployed", "v2.1.0"), ["KubeVirtUntested"]);
        assert_eq!(codes("Deleting", "devel"), ["KubeVirtNotDeployed", "KubeVirtUntested"]);
        let said = notes(&upstream("Deploying"))[0].message();
        assert!(said.contains("virt-operator says Deploying") && said.contains("virt-controller"), "{said}");
    }

    #[test]
    fn what_is_somebody_elses_is_named_with_the_way_out() {
        let said = [
            foreign("Service", "evac"),
            foreign("ValidatingWebhookConfiguration", "virt-api-validator"),
            foreign("APIService", "v1.subresources.kubevirt.io"),
            foreign("ValidatingWebhookConfiguration", "evac-maintenance"),
        ];
        assert_eq!(
            said[0],
            "Service evac is there already and is not evac's; give the operator's own another name with --service-name"
        );
        assert!(said[1].ends_with("leave its part to it: --roles tenants,maintenance"), "{}", said[1]);
        assert!(said[2].contains("another control plane"), "{}", said[2]);
        assert!(!said[3].contains("another control plane"), "{}", said[3]);
    }

    #[test]
    fn nobody_is_told_that_machines_cannot_be_started_where_a_virt_api_is() {
        let said = |roles: &str, virt_api| {
            unasked(&roles.parse().unwrap(), &Upstream { virt_api, ..Upstream::default() })
                .unwrap_or_default()
        };
        assert!(said("all", false).contains("machines cannot be started by command; give --listen"));
        assert_eq!(
            said("tenants,maintenance", true),
            "objects of kind NodeMaintenance are not reviewed; give --listen (machines are started and stopped by KubeVirt's virt-api)"
        );
        assert!(!said("all", true).contains("cannot be started"));
        assert_eq!(said("tenants", true), "");
    }
}
