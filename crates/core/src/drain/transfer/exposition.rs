//! Reads the metrics of KubeVirt's node agent: the lines about migrations, and nothing else.
//!
//! Names have changed between releases, labels may be missing, and one answer can hold several samples of a guest, each with its time.
//! What cannot be understood is passed over.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Sample;
use crate::cluster::fact::Key;

const PREFIX: &str = "kubevirt_vmi_migration_";

/// Which number of a sample a metric is.
#[derive(Debug, Clone, Copy)]
enum Field {
    Processed,
    Remaining,
    Total,
    Rate,
    /// The name the rate had in earlier releases.
    OldRate,
    DirtyRate,
}

fn field(name: &str) -> Option<Field> {
    Some(match name.strip_prefix(PREFIX)? {
        "data_processed_bytes" => Field::Processed,
        "data_remaining_bytes" => Field::Remaining,
        "data_total_bytes" | "data_bytes_total" => Field::Total,
        "memory_transfer_rate_bytes" => Field::Rate,
        "disk_transfer_rate_bytes" => Field::OldRate,
        "dirty_memory_rate_bytes" => Field::DirtyRate,
        _ => return None,
    })
}

/// A sample that may still lack what makes it one.
#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    processed: Option<u64>,
    remaining: Option<u64>,
    total: Option<u64>,
    rate: Option<u64>,
    old_rate: Option<u64>,
    dirty_rate: Option<u64>,
}

impl Partial {
    fn set(&mut self, field: Field, value: u64) {
        let place = match field {
            Field::Processed => &mut self.processed,
            Field::Remaining => &mut self.remaining,
            Field::Total => &mut self.total,
            Field::Rate => &mut self.rate,
            Field::OldRate => &mut self.old_rate,
            Field::DirtyRate => &mut self.dirty_rate,
        };
        *place = Some(value);
    }

    fn complete(self, at: Option<Timestamp>) -> Option<Sample> {
        let (processed, remaining) = (self.processed?, self.remaining?);
        // An agent that has not begun to count says nothing.
        (processed > 0 || remaining > 0).then_some(Sample {
            at,
            processed,
            remaining,
            total: self.total,
            rate: self.rate.or(self.old_rate).filter(|rate| *rate > 0),
            dirty_rate: self.dirty_rate,
        })
    }
}

/// The newest sample of each guest in the answer of a node agent.
pub fn parse(text: &str) -> BTreeMap<Key, Sample> {
    let mut partials: BTreeMap<(Key, Option<Timestamp>), Partial> = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some((guest, at, field, value)) = line_of(line) {
            partials.entry((guest, at)).or_default().set(field, value);
        }
    }
    // In the order of time: whatever comes later replaces what was before.
    partials.into_iter().filter_map(|((guest, at), partial)| Some((guest, partial.complete(at)?))).collect()
}

fn line_of(line: &str) -> Option<(Key, Option<Timestamp>, Field, u64)> {
    let (name, rest) = line.split_once('{')?;
    let field = field(name.trim_end())?;
    let (labels, rest) = labels(rest)?;
    let mut words = rest.split_whitespace();
    let value = number(words.next()?)?;
    let at = match words.next() {
        Some(millis) => Some(Timestamp::from_millisecond(millis.parse().ok()?).ok()?),
        None => None,
    };
    let label = |name: &str| labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let guest = Key::new(label("namespace")?, label("name")?);
    (!guest.namespace.is_empty() && !guest.name.is_empty()).then_some((guest, at, field, value))
}

/// A count of bytes. Agents write floating point numbers; what is not a count is nothing.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be within range")]
fn number(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    (value.is_finite() && (0.0..1e18).contains(&value)).then_some(value as u64)
}

/// The labels after an opening brace, and what follows the closing one.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((found, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = quoted(rest.trim_start())?;
        found.push((name.trim().to_owned(), value));
        text = rest;
    }
}

/// A value in quotes, with its escapes undone, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}
