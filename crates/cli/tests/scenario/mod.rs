//! Scenarios: text files that a newcomer can read, run against a cluster.
//!
//! ```text
//! # A line of the story.
//! nodes 3
//! apply <<END                      objects, as kubectl apply would
//! …YAML…
//! END
//! until PATH POINTER == VALUE      waits (by watch) until a field of an object has a value
//! until PATH POINTER absent        … or is not there; an object that is gone has no fields
//! until PATH?SELECTOR count == N   waits until a collection has N objects
//! check …                          the same, now
//! patch PATH JSON                  merge patch; `delete PATH`, `post PATH JSON` likewise
//! $ evac drain node-1              runs a command and waits for it
//! > line of stdout                 exactly these lines; `*` matches within a line
//! >~ line of stdout                neighbours of this kind may come in any order
//! > ...                            any lines
//! ! line of stderr                 must occur on stderr, in this order; other lines may stand between
//! exit 3                           how it ended; 0 when not said
//! start d evac drain node-1        starts a command in the background
//! signal d INT                     sends it a signal
//! join d                           waits for it; expectations as for `$`
//! ```

mod cluster;
mod parse;
mod run;

pub use cluster::{Arm, Cluster};
pub use parse::Scenario;
pub use run::run;
