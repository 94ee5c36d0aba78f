//! The search: every state that can be reached, each looked at once, the nearest first.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::{self, Debug, Write as _};

use ring::digest::{SHA256, digest};

/// A protocol of a few actors whose decisions are the real ones.
pub trait Protocol {
    /// Everything that decides what can happen next.
    type State: Clone + Debug;
    /// One thing that can happen.
    type Move: Clone + Debug;

    fn begin(&self) -> Self::State;

    /// What can happen now; nothing where the history is at its end.
    fn moves(&self, state: &Self::State) -> Vec<Self::Move>;

    fn go(&self, state: &mut Self::State, next: &Self::Move);

    /// What must not be, and is.
    fn broken(&self, state: &Self::State) -> Option<String>;
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explored {
    /// States that differ from each other.
    pub states: usize,
    /// Ways from one state to another.
    pub transitions: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// Nothing is left to be looked at.
    pub complete: bool,
    /// What is broken, and the shortest history that leads there.
    pub broken: Option<(String, Vec<String>)>,
}

impl Explored {
    /// Both together; what is broken in the other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            states: self.states + other.states,
            transitions: self.transitions + other.transitions,
            depth: self.depth.max(other.depth),
            complete: self.complete && other.complete,
            broken: other.broken,
        }
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, depth, .. } = self;
        write!(f, "{states} states, {transitions} transitions, {depth} deep: ")?;
        match &self.broken {
            Some((words, history)) => write!(f, "{words}, after {} steps", history.len()),
            None if self.complete => f.write_str("nothing is broken"),
            None => f.write_str("cut off, nothing is broken so far"),
        }
    }
}

/// How a state was reached for the first time.
struct Way<M> {
    from: usize,
    by: Option<M>,
    depth: usize,
}

/// Looks at every state, until one is broken or there are more than `most`.
pub fn search<P: Protocol>(protocol: &P, most: usize) -> Explored {
    let first = protocol.begin();
    let mut text = String::new();
    let mut known = BTreeSet::from([identity(&first, &mut text)]);
    let mut ways = vec![Way { from: 0, by: None, depth: 0 }];
    let mut queue = VecDeque::from([(0, first)]);
    let mut explored = Explored { states: 1, transitions: 0, depth: 0, complete: true, broken: None };
    while let Some((number, state)) = queue.pop_front() {
        if let Some(words) = protocol.broken(&state) {
            explored.broken = Some((words, history(&ways, number)));
            explored.complete = false;
            break;
        }
        let depth = ways.get(number).map_or(0, |way| way.depth) + 1;
        for next in protocol.moves(&state) {
            let mut after = state.clone();
            protocol.go(&mut after, &next);
            explored.transitions += 1;
            if !known.insert(identity(&after, &mut text)) {
                continue;
            }
            if known.len() > most {
                explored.complete = false;
                return explored;
            }
            explored.depth = depth;
            explored.states = known.len();
            queue.push_back((ways.len(), after));
            ways.push(Way { from: number, by: Some(next), depth });
        }
    }
    explored
}

/// Two states with the same words are the same: what the types of the core show of themselves is all that they are.
fn identity(state: &impl Debug, text: &mut String) -> [u8; 16] {
    text.clear();
    // Writing into a text cannot fail.
    let _ = write!(text, "{state:?}");
    let whole = digest(&SHA256, text.as_bytes());
    let mut short = [0; 16];
    short.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
    short
}

fn history<M: Debug>(ways: &[Way<M>], mut number: usize) -> Vec<String> {
    let mut history = Vec::new();
    while let Some(Way { from, by: Some(by), .. }) = ways.get(number) {
        history.push(format!("{by:?}"));
        number = *from;
    }
    history.reverse();
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that may not meet at three.
    struct Counters(u8);

    impl Protocol for Counters {
        type State = (u8, u8);
        type Move = &'static str;

        fn begin(&self) -> (u8, u8) {
            (0, 0)
        }

        fn moves(&self, state: &(u8, u8)) -> Vec<&'static str> {
            let left = (state.0 < self.0).then_some("left");
            left.into_iter().chain((state.1 < self.0).then_some("right")).collect()
        }

        fn go(&self, state: &mut (u8, u8), next: &&'static str) {
            if *next == "left" { state.0 += 1 } else { state.1 += 1 }
        }

        fn broken(&self, state: &(u8, u8)) -> Option<String> {
            (*state == (3, 3)).then(|| "they meet".into())
        }
    }

    #[test]
    fn every_state_is_looked_at_once_and_the_shortest_history_is_told() {
        let explored = search(&Counters(2), 100);
        assert_eq!((explored.states, explored.transitions, explored.depth), (9, 12, 4));
        assert!(explored.complete && explored.broken.is_none());
        let (words, history) = search(&Counters(4), 100).broken.unwrap();
        assert_eq!((&*words, history.len()), ("they meet", 6));
    }

    #[test]
    fn a_search_that_is_cut_off_says_so() {
        let explored = search(&Counters(9), 20);
        assert!(!explored.complete && explored.broken.is_none());
    }
}
