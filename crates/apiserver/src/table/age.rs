//! Durations as kubectl shows them: two units at most, coarser the longer it lasts.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// `5m30s`, `3h`, `2d4h`, `1y20d`.
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// Time since a timestamp of an object; `<unknown>` when it is not set.
pub(crate) fn since(timestamp: Option<&Value>, now: Timestamp) -> String {
    match parse(timestamp) {
        Some(at) => human_duration(now.duration_since(at)),
        None => "<unknown>".to_owned(),
    }
}

pub(crate) fn parse(timestamp: Option<&Value>) -> Option<Timestamp> {
    timestamp.and_then(Value::as_str).and_then(|t| t.parse().ok())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(-5, "<invalid>")]
    #[case(-1, "0s")]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(330, "5m30s")]
    #[case(599, "9m59s")]
    #[case(600, "10m")]
    #[case(179 * 60, "179m")]
    #[case(3 * 3600, "3h")]
    #[case(3 * 3600 + 120, "3h2m")]
    #[case(8 * 3600 + 120, "8h")]
    #[case(47 * 3600, "47h")]
    #[case(48 * 3600, "2d")]
    #[case(50 * 3600, "2d2h")]
    #[case(8 * 86_400, "8d")]
    #[case(729 * 86_400, "729d")]
    #[case(730 * 86_400, "2y")]
    #[case(750 * 86_400, "2y20d")]
    #[case(3000 * 86_400, "8y")]
    fn durations_are_shown_as_kubectl_shows_them(#[case] seconds: i64, #[case] wanted: &str) {
        assert_eq!(human_duration(SignedDuration::from_secs(seconds)), wanted);
    }
}
