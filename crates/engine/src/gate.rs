//! Lets writes pass only while this process may act.
//!
//! Reading and deciding go on behind a closed gate, so a follower knows as much as the leader. The gate shuts by itself when its
//! time has come, without anybody having to notice in time, and a write that passed it gets no longer than what was left.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// How often it was opened after having been shut.
    opened: watch::Sender<u64>,
    under_way: watch::Sender<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Always,
    Until(Timestamp),
    Shut,
    /// Shut for good.
    Locked,
}

/// A write that is under way.
pub struct Pass {
    /// How long it may take; without end where there is no other who could act.
    pub left: Option<Duration>,
    shared: Arc<Shared>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.under_way.send_modify(|count| *count -= 1);
    }
}

impl Gate {
    fn new(state: State) -> Self {
        let shared = Shared {
            state: Mutex::new(state),
            opened: watch::Sender::new(0),
            under_way: watch::Sender::new(0),
        };
        Self(Arc::new(shared))
    }

    pub fn always_open() -> Self {
        Self::new(State::Always)
    }

    pub fn shut() -> Self {
        Self::new(State::Shut)
    }

    fn state(&self) -> State {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) -> State {
        let mut current = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *current;
        if before != State::Locked {
            *current = state;
        }
        before
    }

    pub fn is_open(&self, now: Timestamp) -> bool {
        match self.state() {
            State::Always => true,
            State::Until(until) => now < until,
            State::Shut | State::Locked => false,
        }
    }

    pub fn open_until(&self, until: Timestamp, now: Timestamp) {
        let was_open = matches!(self.set(State::Until(until)), State::Until(before) if now < before);
        if !was_open {
            self.0.opened.send_modify(|count| *count += 1);
        }
    }

    /// Opens it for good, where there is no other who could act.
    pub fn open(&self) {
        if self.set(State::Always) != State::Always {
            self.0.opened.send_modify(|count| *count += 1);
        }
    }

    pub fn close(&self) {
        self.set(State::Shut);
    }

    /// Shuts it for good and waits for what had passed it.
    pub async fn lock(&self) {
        self.set(State::Locked);
        let mut under_way = self.0.under_way.subscribe();
        // The sender lives as long as this gate.
        let _ = under_way.wait_for(|count| *count == 0).await;
    }

    /// Reports each time it is opened.
    pub fn openings(&self) -> watch::Receiver<u64> {
        self.0.opened.subscribe()
    }

    /// Permission for one write, if it may be made now.
    pub fn pass(&self, now: Timestamp) -> Option<Pass> {
        // Counted before looking: whoever locks the gate waits for it or is seen.
        self.0.under_way.send_modify(|count| *count += 1);
        let mut pass = Pass { left: None, shared: self.0.clone() };
        match self.state() {
            State::Always => Some(pass),
            State::Until(until) if now < until => {
                pass.left = Duration::try_from(until.duration_since(now)).ok();
                Some(pass)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn it_shuts_by_itself_and_tells_when_it_is_opened_again() {
        let gate = Gate::shut();
        let openings = gate.openings();
        assert!(gate.pass(at(0)).is_none());
        gate.open_until(at(10), at(0));
        assert_eq!(gate.pass(at(4)).unwrap().left, Some(Duration::from_secs(6)));
        assert!(gate.pass(at(10)).is_none());
        gate.open_until(at(15), at(5));
        assert_eq!(*openings.borrow(), 1, "it was open all the time");
        gate.open_until(at(30), at(20));
        assert_eq!(*openings.borrow(), 2);
    }

    #[tokio::test]
    async fn whoever_locks_it_waits_for_what_is_under_way() {
        let gate = Gate::always_open();
        let pass = gate.pass(at(0)).unwrap();
        let locking = tokio::spawn({
            let gate = gate.clone();
            async move { gate.lock().await }
        });
        while gate.is_open(at(0)) {
            tokio::task::yield_now().await;
        }
        assert!(gate.pass(at(0)).is_none());
        assert!(!locking.is_finished());
        drop(pass);
        locking.await.unwrap();
        gate.open_until(at(10), at(0));
        assert!(!gate.is_open(at(1)), "it stays shut");
    }
}
