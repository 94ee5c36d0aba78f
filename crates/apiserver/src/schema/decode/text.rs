//! From request bytes to a value: JSON and YAML, and the words for what is no document at all.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::SchemaRef;
use super::walk::Walk;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    Json,
    Yaml,
}

/// Walks a body along a type.
pub(super) fn read<'s>(
    body: &[u8],
    media: Media,
    schema: &'s SchemaRef,
    walk: &mut Walk<'s>,
) -> Result<Value, String> {
    match media {
        Media::Json => {
            let mut reader = serde_json::Deserializer::from_slice(body);
            let value = walk.over(schema, &mut reader).map_err(|error| syntax(&error, body))?;
            reader.end().map_err(|error| syntax(&error, body))?;
            Ok(value)
        }
        Media::Yaml => {
            let (value, duplicate) = yaml(body)?;
            let value = walk.over(schema, value).map_err(|error| error.to_string())?;
            if let Some(duplicate) = duplicate {
                walk.strict.insert(0, duplicate);
            }
            Ok(value)
        }
    }
}

/// A YAML document, and the complaint about a key that was given twice.
pub(super) fn yaml(body: &[u8]) -> Result<(Value, Option<String>), String> {
    use serde_saphyr::options::DuplicateKeyPolicy;
    let text = std::str::from_utf8(body).map_err(|e| format!("error converting YAML to JSON: yaml: {e}"))?;
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    match serde_saphyr::from_str_with_options::<Value>(text, options.clone()) {
        Ok(value) => Ok((value, None)),
        Err(strict) => {
            options.duplicate_keys = DuplicateKeyPolicy::LastWins;
            let value = serde_saphyr::from_str_with_options::<Value>(text, options)
                .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))?;
            Ok((value, Some(format!("yaml: unmarshal errors:\n  {strict}"))))
        }
    }
}

/// The complaint about text that is no JSON.
fn syntax(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() || error.is_syntax() { super::go_json::complaint(body) } else { error.to_string() }
}

/// The beginning of a body, for the complaint that it is not recognised.
pub fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let shown = &body[..body.len().min(SHOWN)];
    let text = if body[0] == b'{' {
        String::from_utf8_lossy(shown).into_owned()
    } else {
        shown.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if body.len() > SHOWN { text + " ..." } else { text }
}
