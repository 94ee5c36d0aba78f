//! When something will be over, from how it went so far.

use std::time::Duration;

use jiff::Timestamp;

/// How long the rest takes, as a range, because pods do not leave at an even pace: from as fast as now to half as fast. Nothing before
/// there is a pace to speak of, or when nothing moves.
pub fn forecast(
    began: Timestamp,
    now: Timestamp,
    gone: usize,
    moving: usize,
) -> Option<(Duration, Duration)> {
    let passed = now.duration_since(began).as_secs_f64();
    if moving == 0 || gone < 3 || passed <= 0.0 {
        return None;
    }
    let best = Duration::try_from_secs_f64(passed / gone as f64 * moving as f64).ok()?;
    Some((best, best.saturating_mul(2)))
}
