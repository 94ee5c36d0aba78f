//! Where the guests go that are moved: each in turn gets the best place that is left, the largest first, as a drain goes about it.
//!
//! A guest that has to be near to others waits until these have their places. What finds no place says why, and whether that can change.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::board::{Board, Seat, Seating, Short};
use crate::cluster::fact::{Key, Pod};
use crate::cluster::index::Index;
use crate::cluster::place::ONE;
use crate::drain::assess::{Assessment, Fate, Verdict};
use crate::drain::forecast::{Prospect, held, silence};
use crate::drain::migrations;
use crate::reasons::{GuestReason, MigrationReason};

/// Where a guest would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The node.
    pub node: String,
    /// How sure that is.
    pub sure: Sure,
}

/// How sure it is where something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Sure {
    /// Only this node would take it, or it is on its way there.
    Certain,
    /// The scheduler likes it best of those that would take it, as far as can be seen.
    Likely,
}

/// Where guests may go, and what they have taken so far.
#[derive(Debug)]
pub struct Moves<'b, 'a> {
    /// None where other nodes were not looked at.
    board: Option<&'b mut Board<'a>>,
    /// What guests that move take of other nodes.
    pub seating: Seating,
}

impl<'b, 'a> Moves<'b, 'a> {
    /// None has moved off these nodes yet.
    pub fn of(board: Option<&'b mut Board<'a>>, nodes: &[String]) -> Self {
        let closed = nodes.iter().map(String::as_str);
        let seating = board.as_ref().map(|board| board.seating(closed)).unwrap_or_default();
        Self { board, seating }
    }

    /// Gives a pod a place; see [`Board::seat`].
    pub fn seat(&mut self, pod: &Key, is_moved: bool) -> Seat {
        self.board.as_mut().map_or(Seat::Unlooked, |board| board.seat(&mut self.seating, pod, is_moved))
    }
}

impl Moves<'_, '_> {
    /// Bytes of memory that are free on all other nodes that take new pods; see [`Board::spare`].
    pub fn spare_memory(&mut self) -> Option<u64> {
        let milli = self.board.as_mut()?.spare(&self.seating, "memory")?;
        u64::try_from(milli / ONE).ok()
    }

    /// What is missing for a pod; see [`Board::short`].
    pub fn short(&mut self, pod: &Key) -> Option<Short> {
        self.board.as_mut()?.short(&self.seating, pod)
    }
}

/// Guests that are to be moved, the largest first, as a drain goes about it. Says where they go.
pub(super) fn judge_moves(
    moves: &mut Moves<'_, '_>,
    index: &Index,
    assessments: &[Assessment],
    prospects: &mut BTreeMap<Key, Prospect>,
) -> BTreeMap<Key, Target> {
    let mut guests = Vec::new();
    for verdict in assessments.iter().flat_map(|assessment| assessment.of_fate(Fate::Migrate)) {
        if let Some(pod) = index.pod(&verdict.pod).filter(|pod| pod.deletion.is_none()) {
            let memory = index.instance_of(pod).map_or(0, |instance| instance.memory);
            guests.push((Reverse(memory), pod, verdict));
        }
    }
    guests.sort_by(|a, b| (a.0, &a.1.key).cmp(&(b.0, &b.1.key)));
    let mut targets = BTreeMap::new();
    let mut for_others = Vec::new();
    for (_, pod, verdict) in guests {
        match judge_move(moves, index, pod, verdict) {
            Judged::As(prospect, target) => {
                prospects.insert(pod.key.clone(), prospect);
                targets.extend(target.map(|target| (pod.key.clone(), target)));
            }
            Judged::WaitsForOthers => for_others.push((pod, verdict)),
        }
    }
    // Once others have moved, those may follow that have to be near to them.
    loop {
        let waiting = for_others.len();
        for_others.retain(|(pod, verdict)| match judge_move(moves, index, pod, verdict) {
            Judged::As(prospect, target) => {
                prospects.insert(pod.key.clone(), prospect);
                targets.extend(target.map(|target| (pod.key.clone(), target)));
                false
            }
            Judged::WaitsForOthers => true,
        });
        if for_others.len() == waiting {
            break;
        }
    }
    for (pod, verdict) in for_others {
        prospects.insert(pod.key.clone(), moves.nowhere(pod, verdict));
    }
    targets
}

enum Judged {
    As(Prospect, Option<Target>),
    WaitsForOthers,
}

fn judge_move(moves: &mut Moves<'_, '_>, index: &Index, pod: &Pod, verdict: &Verdict) -> Judged {
    let instance = verdict.instance.clone().unwrap_or_else(|| pod.key.clone());
    if let Some(reason) = silence(index, pod.node_name()) {
        return Judged::As(Prospect::Waits { reason }, None);
    }
    if let Some(migration) = migrations::unfinished(index, &instance) {
        let account = index.instance(&instance).and_then(|instance| instance.account_of(migration));
        let goes_to = account.map(|state| state.target_node.clone()).filter(|node| !node.is_empty());
        let target = goes_to.map(|node| Target { node, sure: Sure::Certain });
        return Judged::As(Prospect::Migrates, target);
    }
    if let Some(other) =
        index.instance(&instance).and_then(|instance| migrations::left_over(index, instance, pod))
    {
        let reason = MigrationReason::VmPodLeft { migration: None, node: other.node_name().to_owned() };
        return Judged::As(held(reason.into()), None);
    }
    match moves.seat(&pod.key, true) {
        Seat::Unlooked => Judged::As(
            Prospect::Unknown {
                why: format!("whether another node takes virtual machine {instance} was not looked at"),
            },
            None,
        ),
        Seat::Nowhere => Judged::As(moves.nowhere(pod, verdict), None),
        Seat::Taken => Judged::As(
            Prospect::Unknown {
                why: format!(
                    "other guests may take the room on other nodes that virtual machine {instance} needs"
                ),
            },
            None,
        ),
        Seat::Company => Judged::WaitsForOthers,
        Seat::On { node, only } => {
            let sure = if only { Sure::Certain } else { Sure::Likely };
            Judged::As(Prospect::Migrates, Some(Target { node, sure }))
        }
    }
}

impl Moves<'_, '_> {
    /// Says of a guest why no other node takes it, and whether that can change.
    fn nowhere(&mut self, pod: &Pod, verdict: &Verdict) -> Prospect {
        let instance = verdict.instance.clone().unwrap_or_else(|| pod.key.clone());
        let Some(board) = self.board.as_mut() else { return Prospect::Migrates };
        let never = board.never(&pod.key, pod.node_name());
        let lasting = never.is_some();
        let why = never.unwrap_or_else(|| board.why_nowhere(&pod.key, &self.seating));
        held(GuestReason::VmFitsNowhere { instance: String::from(&instance.name), why, lasting }.into())
    }
}
