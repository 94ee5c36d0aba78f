//! Which tasks an operator takes on.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One task; its word stands in `--roles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Instances, machines, replica sets and migrations.
    Machines,
    /// Marks and the drain taint become migrations.
    Evacuation,
    /// A disruption budget for each guest that must not be shut down.
    Budget,
    /// Nodes of tenant clusters are drained before the machines under them go.
    Tenants,
    /// NodeMaintenance objects.
    Maintenance,
    /// Failed nodes are failed over by policies. It switches machines off, so it is taken on only where it is named.
    Failover,
}

impl Role {
    /// Those that `all` means.
    pub const ALL: [Self; 5] =
        [Self::Machines, Self::Evacuation, Self::Budget, Self::Tenants, Self::Maintenance];
    /// Those that `all` does not include.
    pub const NAMED_ONLY: [Self; 1] = [Self::Failover];
    /// What KubeVirt's own control plane does.
    pub const KUBEVIRT: [Self; 3] = [Self::Machines, Self::Evacuation, Self::Budget];

    /// Each of them, whether `all` includes it or not.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::NAMED_ONLY)
    }

    /// The word in `--roles`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Evacuation => "evacuation",
            Self::Budget => "budget",
            Self::Tenants => "tenants",
            Self::Maintenance => "maintenance",
            Self::Failover => "failover",
        }
    }
}

/// `all`, `none`, or names separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// Those that `all` means, without the ones that have to be named.
    pub fn all() -> Self {
        Self(Role::ALL.into())
    }

    /// Exactly these.
    pub fn of(roles: impl IntoIterator<Item = Role>) -> Self {
        Self(roles.into_iter().collect())
    }

    /// None: an operator that does nothing.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Whether this one is taken on.
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These beside a KubeVirt that is deployed already: what it does itself is left to it.
    #[must_use]
    pub fn beside_kubevirt(self) -> Self {
        Self(self.0.into_iter().filter(|role| !Role::KUBEVIRT.contains(role)).collect())
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::all()),
            "none" | "" => return Ok(Self::none()),
            _ => {}
        }
        let known = || Role::ALL.into_iter().chain(Role::NAMED_ONLY);
        let role = |word: &str| {
            if word.trim() == "all" {
                return Ok(Role::ALL.to_vec());
            }
            known().find(|role| role.word() == word.trim()).map(|role| vec![role]).ok_or_else(|| {
                let known: Vec<&str> = known().map(Role::word).collect();
                format!(
                    "there is no role '{}'; give all, none, or of these: {}",
                    word.trim(),
                    known.join(", ")
                )
            })
        };
        let chosen = text.split(',').map(role).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(chosen.into_iter().flatten().collect()))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let words: Vec<&str> = self.0.iter().map(|role| role.word()).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_named_one_by_one_or_all_or_none() {
        assert!("all".parse::<Roles>().unwrap().has(Role::Budget));
        assert!("none".parse::<Roles>().unwrap().is_empty());
        assert_eq!("budget,machines".parse::<Roles>().unwrap().to_string(), "machines,budget");
        assert_eq!(Roles::all().beside_kubevirt().to_string(), "tenants,maintenance");
        assert!(!Roles::all().has(Role::Failover), "it switches machines off");
        assert!("all,failover".parse::<Roles>().unwrap().has(Role::Failover));
        let said = "machines,cooking".parse::<Roles>().unwrap_err();
        assert_eq!(
            said,
            "there is no role 'cooking'; give all, none, or of these: machines, evacuation, budget, tenants, maintenance, \
             failover"
        );
    }
}
