//! How many migrations a drain asks for, and when.
//!
//! Those that can run are asked for at once. As many again wait in line, so that a slot does not lie idle until a drain has heard
//! that it is free; these have time.
//!
//! KubeVirt's own migration controller is handed one after another, and none to wait in line. It creates no target pod before it has seen the one it created
//! last, and what it cannot begin with it looks at again only after one to five seconds, whatever becomes free meanwhile; what arrives when a slot is free it begins with at once.

use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::index::Index;
use crate::drain::run::after;
use crate::drain::step::Step;
use crate::machines::names;

/// How long migrations that could not begin yet are put off.
const ASK_AHEAD: Duration = Duration::from_millis(500);

/// How many more migrations a node may have: twice what can run at once, less those that are not over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Those that could run now.
    pub pressing: usize,
    pub in_all: usize,
}

impl Room {
    pub const ENDLESS: Self = Self { pressing: usize::MAX, in_all: usize::MAX };

    pub fn of(index: &Index, node: &str) -> Self {
        if index.config.upstream.is_in_charge() {
            return Self::beside_kubevirt(index, node);
        }
        let limit = index.config.at_once_from_a_node();
        let from_here = index
            .unfinished()
            .filter(|one| index.instance(&one.instance).is_some_and(|instance| instance.node == node));
        let (mut all, mut under_way) = (0, 0);
        for one in from_here {
            all += 1;
            under_way += usize::from(one.phase.is_under_way());
        }
        // What runs shows how many may: settings can change, and others may know better ones.
        let at_once = limit.max(under_way);
        Self { pressing: at_once.saturating_sub(all), in_all: (at_once + limit).saturating_sub(all) }
    }

    /// What others have waiting in line does not count: virt-controller begins with what arrives when a slot is free.
    fn beside_kubevirt(index: &Index, node: &str) -> Self {
        let (mut all, mut from_here, mut unbegun) = (0, 0, 0);
        for one in index.unfinished() {
            if one.phase.is_under_way() {
                let source = index.instance(&one.instance).map(|instance| instance.node.as_str());
                all += 1;
                from_here += usize::from(source == Some(node));
            } else {
                unbegun += usize::from(one.annotations.contains_key(names::DRAIN));
            }
        }
        let config = &index.config;
        let free = (config.parallel_outbound_per_node as usize)
            .saturating_sub(from_here)
            .min((config.parallel_per_cluster as usize).saturating_sub(all));
        let now = free.min(1_usize.saturating_sub(unbegun));
        Self { pressing: now, in_all: now }
    }

    pub fn less(self, asked: usize) -> Self {
        Self { pressing: self.pressing.saturating_sub(asked), in_all: self.in_all.saturating_sub(asked) }
    }

    pub fn at_most(self, limit: usize) -> Self {
        Self { pressing: self.pressing.min(limit), in_all: self.in_all.min(limit) }
    }

    /// Those that only wait in line are asked for a moment later: when one move ends the next begins, and that must not be held up. Keeps in `ask_ahead_at`
    /// when that is.
    pub fn now(
        self,
        ask_ahead_at: &mut Option<Timestamp>,
        wanted: usize,
        now: Timestamp,
        step: &mut Step,
    ) -> usize {
        if self.in_all <= self.pressing || wanted <= self.pressing {
            *ask_ahead_at = None;
            return self.in_all;
        }
        let at = *ask_ahead_at.get_or_insert_with(|| after(now, ASK_AHEAD));
        if at <= now {
            *ask_ahead_at = None;
            return self.in_all;
        }
        step.look_at(at);
        self.pressing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn what_can_run_is_asked_for_now_and_what_waits_in_line_a_moment_later() {
        let mut ask_ahead_at = None;
        let mut ask = |pressing, in_all, wanted, now| {
            let mut step = Step::default();
            let room = Room { pressing, in_all }.now(&mut ask_ahead_at, wanted, at(now), &mut step);
            (room, step.look_again)
        };
        assert_eq!(ask(2, 4, 2, 0), (4, None), "nobody would wait in line");
        assert_eq!(ask(2, 4, 9, 0), (2, Some(at(500))));
        assert_eq!(ask(0, 2, 7, 499), (0, Some(at(500))));
        assert_eq!(ask(1, 3, 7, 499), (1, Some(at(500))), "a slot that is free is not kept waiting");
        assert_eq!(ask(0, 2, 6, 500), (2, None));
        assert_eq!(ask(0, 1, 4, 900), (0, Some(at(1400))), "each time anew");
    }
}
