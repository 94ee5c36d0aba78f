//! Continue tokens of chunked lists: where to go on, and at which revision.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::schema::decode::{self, Media};
use crate::status::ApiError;
use crate::store::Key;

/// Tokens may carry bits beyond their last byte.
const TOLERANT: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

fn illegal(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(length) => length.saturating_sub(1),
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Token {
    v: String,
    /// `-1`: the chunks need not be of one revision.
    rv: i64,
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// `None` when the caller agreed to chunks of different revisions.
    pub revision: Option<u64>,
    pub from: Key,
}

impl Continuation {
    pub fn encode(&self) -> String {
        let token = Token {
            v: VERSION.into(),
            rv: self.revision.map_or(-1, |r| r as i64),
            start: self.from.as_str().to_owned(),
        };
        // A struct of two strings and a number always has a JSON form.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    pub fn decode(text: &str) -> Result<Self, ApiError> {
        let invalid = |why: &str| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = TOLERANT.decode(text).map_err(|e| invalid(&illegal(&e)))?;
        let (value, _) = decode::free_document(&bytes, Media::Json).map_err(|e| invalid(&e.to_string()))?;
        let token: Token = serde_json::from_value(value).map_err(|e| invalid(&e.to_string()))?;
        if token.v != VERSION {
            return Err(invalid(&format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        Ok(Self { revision: u64::try_from(token.rv).ok(), from: Key::from_text(&token.start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_way_to_the_client_and_back() {
        let there = Continuation { revision: Some(42), from: Key::new("ns", "web-3") };
        assert_eq!(Continuation::decode(&there.encode()).unwrap(), there);
    }

    #[test]
    fn a_token_that_was_not_made_here_is_refused() {
        assert_eq!(Continuation::decode("not a token").unwrap_err().code, 400);
    }
}
