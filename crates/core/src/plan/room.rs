//! Whether the other nodes have room for what leaves, in one sentence.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::board::{Seat, Short};
use crate::cluster::fact::Key;
use crate::cluster::index::Index;
use crate::drain::assess::Fate;
use crate::drain::forecast::{Forecast, Prospect};
use crate::drain::moves::Moves;
use crate::reasons::{GuestReason, Reason};

/// The room on the other nodes, by requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// Bytes of memory that are free on all other nodes that take new pods, once everything that finds a place has one; none where they were not looked at.
    pub spare_memory: Option<u64>,
    /// Guests that are to move and find no place.
    pub without_place: Vec<Key>,
    /// What the node that comes closest lacks for the one of them that lacks most; none where no rule but room is against it, or room is not.
    pub short: Option<Short>,
    /// Guests that are shut down and find no place to start again.
    pub not_restarted: Vec<Key>,
    /// Other pods whose replacements find no place.
    pub pods_without_place: usize,
}

impl Room {
    pub(super) fn of(
        moves: &mut Moves<'_, '_>,
        index: &Index,
        forecasts: &[Forecast],
        restarts: &BTreeMap<Key, Seat>,
    ) -> Self {
        let mut room = Self { spare_memory: moves.spare_memory(), ..Self::default() };
        for pod in forecasts.iter().flat_map(|forecast| &forecast.pods) {
            let fits_nowhere = match &pod.prospect {
                Prospect::Waits { reason } | Prospect::Never { reason } => {
                    matches!(reason, Reason::Guest(GuestReason::VmFitsNowhere { .. }))
                }
                Prospect::Unknown { .. } => pod.target.is_none() && pod.fate == Fate::Migrate,
                _ => false,
            };
            if fits_nowhere && index.places().is_some_and(|places| places.wants.contains_key(&pod.pod)) {
                room.without_place.push(pod.instance.clone().unwrap_or_else(|| pod.pod.clone()));
                let short = moves.short(&pod.pod);
                if short.as_ref().map(|short| short.milli) > room.short.as_ref().map(|short| short.milli) {
                    room.short = short;
                }
            }
            if let Some(Seat::Nowhere | Seat::Taken | Seat::Company) = restarts.get(&pod.pod) {
                match &pod.instance {
                    Some(instance) => room.not_restarted.push(instance.clone()),
                    None => room.pods_without_place += 1,
                }
            }
        }
        room
    }

    /// All of it in one sentence.
    pub fn sentence(&self) -> String {
        let machines =
            |count: usize| if count == 1 { "1 machine has".into() } else { format!("{count} machines have") };
        if !self.without_place.is_empty() {
            let short = self
                .short
                .as_ref()
                .map_or(String::new(), |short| format!(": one node would need {short} more"));
            return format!("{} no place{short}", machines(self.without_place.len()));
        }
        let mut rest = Vec::new();
        if !self.not_restarted.is_empty() {
            rest.push(format!("{} no place to start again", machines(self.not_restarted.len())));
        }
        match self.pods_without_place {
            0 => {}
            1 => rest.push("the replacement of 1 pod has no place".into()),
            more => rest.push(format!("the replacements of {more} pods have no place")),
        }
        let rest = if rest.is_empty() { String::new() } else { format!("; {}", rest.join("; ")) };
        match self.spare_memory {
            Some(bytes) if rest.is_empty() => {
                format!("fits with {} of memory to spare by requests", bytes_text(bytes))
            }
            Some(bytes) => format!("{} of memory to spare by requests{rest}", bytes_text(bytes)),
            None => "whether there is room was not looked at".into(),
        }
    }
}

/// Bytes in the largest unit of which there is at least one.
pub fn bytes_text(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| bytes >= *size) else {
        return format!("{bytes} B");
    };
    let amount = bytes as f64 / size as f64;
    if amount < 10.0 && !bytes.is_multiple_of(size) {
        format!("{amount:.1} {unit}")
    } else {
        format!("{amount:.0} {unit}")
    }
}

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = u64::try_from(self.milli.div_euclid(1000) + i128::from(self.milli.rem_euclid(1000) > 0))
            .unwrap_or(0);
        match self.resource.as_str() {
            "memory" => f.write_str(&bytes_text(whole)),
            "cpu" => write!(f, "{}m of cpu", self.milli),
            "pods" => write!(f, "room for {whole} {}", if whole == 1 { "pod" } else { "pods" }),
            other => write!(f, "{whole} of {other}"),
        }
    }
}
