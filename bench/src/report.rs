//! Numbers of repeated rounds.

/// The median; half of the rounds are better, half are worse.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// `median (min–max)`.
pub fn spread(values: &[f64]) -> String {
    spread_to(values, 1)
}

/// The same with so many decimals.
pub fn spread_to(values: &[f64], decimals: usize) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.decimals$} ({low:.decimals$}–{high:.decimals$})", median(values))
}
