//! What does not change while a drain is looked over: the arguments that travel together.

use jiff::Timestamp;

use crate::cluster::index::Index;
use crate::drain::assess::Assessment;
use crate::drain::budget::Charges;
use crate::drain::policy::Policy;

/// One look at everything that is known.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub index: &'a Index,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

/// One look at a node that is being emptied.
#[derive(Clone, Copy)]
pub(crate) struct NodeLook<'a> {
    pub look: Look<'a>,
    pub assessment: &'a Assessment,
    /// What budgets have given to evictions that their status did not show yet when the look began.
    pub charges: &'a Charges,
    /// When the drain of the node began.
    pub since: Timestamp,
}
