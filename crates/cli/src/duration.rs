//! Durations as kubectl's flags write them: `90s`, `1h30m`, `1.5h`, `0`.

use std::time::Duration;

/// Reads a duration with units; a bare `0` is allowed.
pub fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("'{text}' is not a duration such as 30s, 5m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(format!("'{text}' is negative"));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(invalid()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = &rest[unit_end..];
    }
    Ok(total)
}

/// Like [`parse`], but a bare number counts seconds, as `--request-timeout` allows.
pub fn parse_lenient(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("0", 0.0)]
    #[case("0s", 0.0)]
    #[case("90s", 90.0)]
    #[case("1h30m", 5400.0)]
    #[case("1.5h", 5400.0)]
    #[case("250ms", 0.25)]
    fn durations_read_as_in_kubectl(#[case] text: &str, #[case] seconds: f64) {
        assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)));
    }

    #[rstest::rstest]
    #[case("")]
    #[case("5")]
    #[case("-5s")]
    #[case("5 s")]
    #[case("s")]
    #[case("5x")]
    fn nonsense_and_negative_durations_are_refused(#[case] text: &str) {
        assert!(parse(text).is_err());
    }
}
