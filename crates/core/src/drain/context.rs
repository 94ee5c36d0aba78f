//! What a drain is judged by and what stays the same during one [`step`](crate::drain::step::step): the arguments that travel together.

use jiff::Timestamp;

use crate::cluster::index::Index;
use crate::drain::assess::Assessment;
use crate::drain::budget::Charges;
use crate::drain::policy::Policy;

/// The cluster, the options and the time of one step.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub index: &'a Index,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

/// The same for one node that is being emptied.
#[derive(Clone, Copy)]
pub(crate) struct NodeContext<'a> {
    pub context: Context<'a>,
    pub assessment: &'a Assessment,
    /// What budgets have given to evictions that their status did not show yet when the step began.
    pub charges: &'a Charges,
    /// When the drain of the node began.
    pub since: Timestamp,
}
