//! Durations and points in time as expressions write them.

use std::fmt::Write as _;

/// Units of a duration in nanoseconds, the longer names first.
const UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// `1h30m`, `-1.5s`, `300ms`: in nanoseconds.
pub fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let size = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(size)?)?;
        let mut place = size;
        for digit in fraction.chars() {
            let digit = i128::from(digit.to_digit(10)?);
            place /= 10;
            total = total.checked_add(digit * place)?;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// In seconds, with as many digits as there are.
pub fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let mut text = format!("{sign}{}", nanos / 1_000_000_000);
    let fraction = nanos % 1_000_000_000;
    if fraction > 0 {
        let _ = write!(text, ".{fraction:09}");
        text.truncate(text.trim_end_matches('0').len());
    }
    text.push('s');
    text
}

/// A point in time with its zone, as in the API.
pub fn timestamp(text: &str) -> Option<jiff::Timestamp> {
    // The parser knows more forms than the API: a date, a `T`, a time and a zone must stand there.
    let bytes = text.as_bytes();
    let zone = text.ends_with('Z') || bytes.len() > 6 && matches!(bytes[bytes.len() - 6], b'+' | b'-');
    let formed = bytes.len() >= 20 && bytes[10] == b'T' && bytes[13] == b':' && bytes[16] == b':' && zone;
    formed.then(|| text.parse().ok()).flatten()
}

/// The first moment of a day.
pub fn date(text: &str) -> Option<jiff::Timestamp> {
    (text.len() == 10).then(|| timestamp(&format!("{text}T00:00:00Z"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1h30m", Some("5400s"))]
    #[case("-1.5s", Some("-1.5s"))]
    #[case("300ms", Some("0.3s"))]
    #[case("1m1ns", Some("60.000000001s"))]
    #[case("0", Some("0s"))]
    #[case("", None)]
    #[case("5", None)]
    #[case("5d", None)]
    #[case("1..5s", None)]
    #[case("999999999999h", None)]
    fn durations_are_read_and_shown(#[case] text: &str, #[case] shown: Option<&str>) {
        assert_eq!(duration(text).map(duration_text).as_deref(), shown);
    }

    #[rstest]
    #[case("2026-11-15T12:00:00Z", true)]
    #[case("2026-11-15T12:00:00.5+02:00", true)]
    #[case("2026-11-15", false)]
    #[case("2026-11-15 12:00:00Z", false)]
    #[case("2026-11-15T12:00:00", false)]
    #[case("ä026-11-15T12:00:0ö", false)]
    fn times_have_one_form(#[case] text: &str, #[case] good: bool) {
        assert_eq!(timestamp(text).is_some(), good);
    }
}
