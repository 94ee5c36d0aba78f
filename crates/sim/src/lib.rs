//! Deterministic fault simulation: a cluster with evac's own operators and drains in it, in one thread and in virtual time, under faults that a seed
//! decides, watched by oracles that stand outside of every controller.
//!
//! ```text
//!   seed ─▶ plan of faults ─┐
//!                           ▼
//!   scenario ─▶ stage ─▶ processes: operators, `evac drain` ──▶ line (faults) ──▶ embedded server ──▶ store
//!                  ▲        simulated world, people ────────────────────────────▶        │             │
//!                  │                                                                     │      every commit
//!                  └── end state, rest ◀── time ◀────────────────────────────────────────┘             ▼
//!                                                                              oracles ─▶ violations, log ─▶ hash
//! ```
//!
//! Nothing here looks into evac: what it does is seen as requests on its line ([`line`]) and as commits of the store ([`oracle`]). The product knows
//! nothing of this crate.

pub mod book;
pub mod draw;
pub mod explore;
pub mod fault;
pub mod fuzz;
pub mod line;
pub mod mode;
pub mod mutant;
pub mod oracle;
pub mod plan;
pub mod power;
pub mod process;
pub mod run;
pub mod scenario;
pub mod stage;
pub mod tally;
