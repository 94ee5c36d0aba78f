//! What became of the pods of a drain, in one line. Only what was seen is counted.

use super::layout::number_of;
use super::view::{Gone, View};

/// Nothing where no pod had to leave.
pub fn summary(view: &View) -> Option<String> {
    let Gone { total, .. } = view.nodes.iter().fold(view.ended_pods, |sum, node| sum + node.all());
    let tally = view.tally;
    let left = [
        (tally.moved, "moved"),
        (tally.shut_down, "shut down"),
        (tally.evicted, "evicted"),
        (tally.deleted, "deleted"),
        (tally.by_others, "gone without this drain"),
    ];
    let gone: usize = left.iter().map(|(count, _)| count).sum();
    let mut parts: Vec<String> =
        left.iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!("{count} {how}")).collect();
    if total > gone {
        parts.push(format!("{} still there", total - gone));
    }
    (!parts.is_empty()).then(|| {
        format!("{}: {}, in {}", number_of(total.max(gone), "pod"), parts.join(", "), took(view.seconds()))
    })
}

/// `19.7 s`, `5 min 12 s`, `2 h 05 min`.
fn took(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 59.95 => format!("{seconds:.1} s"),
        ..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Tally;
    use super::*;

    #[test]
    fn what_left_is_counted_by_how_it_left_and_what_did_not_is_named() {
        let tally = Tally { moved: 30, shut_down: 4, evicted: 15, ..Tally::default() };
        let ended_pods = Gone { gone: 49, total: 49 };
        let view = View { ended_pods, tally, ..View::default() };
        assert_eq!(summary(&view).as_deref(), Some("49 pods: 30 moved, 4 shut down, 15 evicted, in 0.0 s"));
        let tally = Tally { by_others: 1, ..Tally::default() };
        let view = View { tally, ended_pods: Gone { gone: 1, total: 3 }, ..View::default() };
        assert_eq!(
            summary(&view).as_deref(),
            Some("3 pods: 1 gone without this drain, 2 still there, in 0.0 s")
        );
        let view = View { ended_pods: Gone { gone: 0, total: 1 }, ..View::default() };
        assert_eq!(summary(&view).as_deref(), Some("1 pod: 1 still there, in 0.0 s"));
        assert_eq!(summary(&View::default()), None, "no pod had to leave");
    }

    #[test]
    fn the_time_it_took_is_said_with_as_much_as_matters() {
        for (seconds, words) in [
            (0.04, "0.0 s"),
            (19.72, "19.7 s"),
            (59.94, "59.9 s"),
            (59.96, "1 min 00 s"),
            (312.4, "5 min 12 s"),
            (7500.0, "2 h 05 min"),
        ] {
            assert_eq!(took(seconds), words);
        }
    }
}
