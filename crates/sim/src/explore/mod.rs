//! Protocols that are small enough to be explored completely: every order of what can happen to a few actors, with processes that die, requests that
//! are lost, answers that are lost, and requests that are carried out late or twice.
//!
//! The decisions are those of the core itself: the same functions that the operator and the command line call. What stands around them here, the
//! server that compares versions and the network, is a few lines for each protocol. A [`Flaw`] is planted between the two: facts are shown otherwise, or an
//! action is carried out otherwise. So the core has no switch for it, and what is tried is the core as it is.
//!
//! ```text
//!   facts ──(flaw)──▶ decision of the core ──▶ action ──(flaw)──▶ network ──▶ server, which compares versions
//!     ▲                                                                              │
//!     └──────────────────────────────────────────────────────────────────────────────┘
//! ```

#![allow(clippy::print_stdout, reason = "what a command prints")]

mod cluster;
mod drains;
mod fencing;
mod give_back;
mod leadership;
mod search;

use anyhow::{Result, anyhow, bail};
pub use search::{Explored, Protocol, search};

/// A search that needs more states than this is not small any more.
pub const MOST: usize = 500_000;

/// A bug that the protocol could have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flaw {
    pub name: &'static str,
    pub words: &'static str,
}

/// A protocol that is explored.
pub struct Subject {
    pub name: &'static str,
    pub about: &'static str,
    pub flaws: &'static [Flaw],
    /// Explores it, with a flaw of this name if one is given.
    pub explore: fn(Option<&'static str>) -> Explored,
}

/// All of them.
pub const ALL: [Subject; 4] = [drains::SUBJECT, give_back::SUBJECT, leadership::SUBJECT, fencing::SUBJECT];

/// Explores protocols, prints what came of each, and says whether all is as it should be: nothing is broken, and each flaw breaks something.
pub fn tell(protocol: Option<&str>, flaw: Option<&str>) -> Result<bool> {
    let wanted: Vec<&Subject> = match protocol {
        Some(name) => vec![named(name).ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
            anyhow!("there is no protocol '{name}'; there are {}", names.join(", "))
        })?],
        None => const { &ALL }.iter().collect(),
    };
    let mut right = true;
    for subject in wanted {
        let flaws: Vec<&'static str> = subject
            .flaws
            .iter()
            .map(|one| one.name)
            .filter(|name| flaw.is_none_or(|flaw| flaw == *name))
            .collect();
        if let (Some(flaw), []) = (flaw, &flaws[..]) {
            bail!("{} has no flaw '{flaw}'", subject.name);
        }
        if flaw.is_none() {
            let explored = (subject.explore)(None);
            right &= explored.complete;
            println!("{:<12} {explored}", subject.name);
            tell_history(&explored);
        }
        for name in flaws {
            let explored = (subject.explore)(Some(name));
            right &= explored.broken.is_some();
            println!("{:<12} {name}: {explored}", subject.name);
            if flaw.is_some() {
                tell_history(&explored);
            }
        }
    }
    Ok(right)
}

fn tell_history(explored: &Explored) {
    for step in explored.broken.iter().flat_map(|(_, history)| history) {
        println!("  {step}");
    }
}

pub fn named(name: &str) -> Option<&'static Subject> {
    const { &ALL }.iter().find(|one| one.name == name)
}

const fn flaw(name: &'static str, words: &'static str) -> Flaw {
    Flaw { name, words }
}

/// Seconds since every history began.
fn at(seconds: i64) -> jiff::Timestamp {
    const BEGINNING: i64 = 1_767_225_600;
    jiff::Timestamp::from_second(BEGINNING + seconds).unwrap_or(jiff::Timestamp::MAX)
}
