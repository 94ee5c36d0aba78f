//! A share as a bar.

/// Full only when all is done, and not empty when something is.
pub fn bar(done: usize, total: usize, columns: usize) -> String {
    let full = (done.min(total) * columns).checked_div(total).unwrap_or(0);
    let full = if done > 0 { full.max(1) } else { full };
    "█".repeat(full) + &"░".repeat(columns.saturating_sub(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_when_all_is_done_and_shows_the_first_step() {
        assert_eq!(bar(0, 50, 4), "░░░░");
        assert_eq!(bar(1, 50, 4), "█░░░");
        assert_eq!(bar(49, 50, 4), "███░");
        assert_eq!(bar(50, 50, 4), "████");
        assert_eq!(bar(0, 0, 4), "░░░░");
    }
}
