//! Bearer tokens: who has been given one, and until when it counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};

use jiff::Timestamp;

use crate::identity::Identity;

/// Bearer tokens and whom they stand for.
#[derive(Default)]
pub struct Credentials {
    tokens: RwLock<BTreeMap<String, (Identity, Option<Timestamp>)>>,
}

impl Credentials {
    /// A new secret token for somebody, without an end.
    pub fn grant(&self, identity: Identity) -> Result<String, String> {
        self.add(identity, None)
    }

    /// A new secret token with an end.
    pub fn issue(&self, identity: Identity, until: Timestamp) -> Result<String, String> {
        self.add(identity, Some(until))
    }

    fn add(&self, identity: Identity, until: Option<Timestamp>) -> Result<String, String> {
        let token = secret()?;
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(token.clone(), (identity, until));
        Ok(token)
    }

    pub fn holder(&self, token: &str, now: Timestamp) -> Option<Identity> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let (identity, until) = tokens.get(token)?;
        until.is_none_or(|until| now < until).then(|| identity.clone())
    }
}

/// 128 bits nobody can guess. Never from the seed of the simulation.
fn secret() -> Result<String, String> {
    let mut bytes = [0u8; 16];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| "no randomness available".to_owned())?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_never_repeat() {
        let (a, b) = (secret().unwrap(), secret().unwrap());
        assert_eq!(a.len(), 32);
        assert_ne!(a, b);
    }
}
