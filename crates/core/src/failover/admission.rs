//! What is refused when a policy is written. The operator acts for it with its own rights, so the user who writes one must have them, too.

use super::policy::{FailoverPolicy, PolicyError, Proof};
use crate::machines::admission::Denial;

fn forbidden(message: String) -> Denial {
    Denial { code: 403, message, causes: Vec::new() }
}

/// What is wrong with a policy, whichever user writes it. `home` is the operator's namespace.
pub fn content(policy: &Result<FailoverPolicy, PolicyError>, home: &str) -> Option<Denial> {
    let checked = match policy {
        Ok(FailoverPolicy { proof: Proof::Agent(agent), .. }) => {
            agent.check(home).map_err(|error| error.to_string())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    checked.err().map(forbidden)
}

/// `lacking` is what the user who writes it may not do, if anything: a verb and a resource.
pub fn author(user: &str, policy: &str, lacking: Option<&str>) -> Option<Denial> {
    let lacking = lacking?;
    Some(forbidden(format!(
        "user \"{user}\" may not write failover policy {policy}, because the operator would act for it, and that needs the right to \
         {lacking}"
    )))
}
