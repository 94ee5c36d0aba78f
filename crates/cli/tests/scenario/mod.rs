//! Scenarios: text files that a newcomer can read, run against a cluster.
//!
//! ```text
//! # A line of the story.
//! nodes 3
//! machines                         with the control plane of virtual machines
//! tenant 2                         with a second cluster, whose nodes worker-1, … are machines of the first
//! in tenant apply …                the step in that cluster: apply, until, check, patch, post, delete or kubelet
//! operator restart                 the operator ends and another begins
//! only on a real server            not on the sandbox
//! beside kubevirt: always          also beside KubeVirt's own control plane; `both releases`, `on demand` (EVAC_ALL=1),
//!                                  `on demand with the newest release` (the one before lacks what it needs) or
//! beside kubevirt: no, because …   not; scenarios about machines have to say
//! without kubevirt until …         the step only where KubeVirt's own control plane does not run
//! covers: evac drain, role tenants what it shows there, for the table in docs/kubevirt.md
//! unrest REASON                    at the end it is not checked that everything said is true; see `aftermath.rs`
//! apply <<END                      objects, as kubectl apply would
//! …YAML…
//! END
//! until PATH POINTER == VALUE      waits (by watch) until a field of an object has a value
//! until PATH POINTER != VALUE      … or another value
//! until PATH POINTER absent        … or is not there; an object that is gone has no fields
//! until PATH?SELECTOR count == N   waits until a collection has N objects
//! until post PATH JSON refused     asks until the answer is no, such as for a webhook to be in force (use dryRun);
//! until delete PATH refused        likewise; `accepted` in place of `refused` asks until it is yes
//! check …                          the same, now
//! patch PATH JSON                  merge patch; `delete PATH`, `post PATH JSON` likewise
//! remember NAME PATH POINTER       keeps a field of an object; later `$NAME` stands for it in paths, bodies and values
//! kubelet node-1 stop              switches the kubelet of a node off; `start` switches it on
//! power node-1 off                 the machine under a node loses its power; `on` starts it anew
//! $ evac drain node-1              runs a command and waits for it. What a dry run and an explanation say of a drain is asked for before, and compared
//! unforeseen WHY                   the next drain meets what nobody can know before, such as a webhook: nothing is compared
//! $ kubectl, $ virtctl             the real programs; `$ oc adm drain` is read as `kubectl drain`
//! $ NAME="value" kubectl …         with a variable in its environment
//! > line of stdout                 exactly these lines; `*` matches within a line
//! >~ line of stdout                neighbours of this kind may come in any order
//! > ...                            any lines
//! ! line of stderr                 must occur on stderr, in this order; other lines may stand between
//! !5s line of stderr               … at most so long after the command began
//! exit 3                           how it ended; 0 when not said
//! start d evac drain node-1        starts a command in the background
//! signal d INT                     sends it a signal
//! join d                           waits for it; expectations as for `$`
//! ```
//!
//! In objects and bodies `$hook` is the address of an admission webhook and `$ca` whom to trust about it (`$hook/deny/403`
//! says no with that code); `$home` is the namespace of the operator, `$folder` one on this machine for files of the scenario; `$now` is the time, also with a shift: `$now-90s`; `$tenant` is the kubeconfig of the tenant, in base64.

mod aftermath;
#[allow(dead_code, reason = "only `scenarios.rs` runs them beside KubeVirt")]
pub mod beside;
mod cluster;
mod foretold;
#[path = "../../../apiserver/tests/conformance/hook.rs"]
mod hook;
pub mod installed;
mod parse;
mod run;

pub use cluster::{Arm, Cluster};
pub use parse::Scenario;
pub use run::run;
