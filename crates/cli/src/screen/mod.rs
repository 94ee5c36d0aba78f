//! A drain on a terminal: a row per node, the machines that are being moved, and what the others wait for.
//!
//! What scrolls by above is the same as without a terminal; the rows below only show the moment. [`view`] is what is known, [`layout`] is how it is shown,
//! and `live.rs` draws it.

mod bar;
mod layout;
mod machine;
mod summary;
mod time_left;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evac_clock::Clock;
use evac_core::drain::step::Event;
use jiff::Timestamp;

use self::view::View;
use crate::live::Live;

pub struct Screen {
    view: Arc<Mutex<View>>,
    live: Live,
}

impl Screen {
    pub fn begin(clock: Clock) -> Self {
        let view = Arc::new(Mutex::new(View::default()));
        let shown = view.clone();
        let live =
            Live::begin(move |columns, rows| layout::layout(&locked(&shown), clock.now(), columns, rows));
        Self { view, live }
    }

    pub fn show(&mut self, at: Timestamp, event: &Event) {
        locked(&self.view).take(at, event);
        self.live.refresh();
    }

    /// Takes the rows away. What became of the pods, in one line, if there were any.
    pub fn end(self) -> Option<String> {
        let Self { view, live } = self;
        drop(live);
        summary::summary(&locked(&view))
    }
}

fn locked(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}
