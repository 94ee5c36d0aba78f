//! What a role needs to have something carried out beside the loop: tasks, and the way back into the one inbox.

use tokio::task::JoinSet;

use super::feeds::Sender;

pub(super) struct Spawner<'a> {
    pub sender: &'a Sender,
    pub tasks: &'a mut JoinSet<()>,
}
