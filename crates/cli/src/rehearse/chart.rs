//! A run as rows of bars over time, for every picture of it.

use evac_core::drain::run::End;
use jiff::Timestamp;

use super::run::Ran;

/// What a bar stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The work on a node that ended drained, or not.
    Drained,
    NotDrained,
    /// A guest waits for its turn.
    Waits,
    Copied,
    CopyFailed,
    /// A pod ends.
    Stops,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Seconds from the beginning.
    pub from: f64,
    pub to: f64,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub label: String,
    /// The row of a node; the rows of what leaves it follow.
    pub is_node: bool,
    pub bars: Vec<Bar>,
    /// What is to be said at the end of the row.
    pub note: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub rows: Vec<Row>,
    pub seconds: f64,
}

impl Chart {
    pub fn of(run: &Ran) -> Self {
        let since = |at: Timestamp| at.duration_since(run.began).as_secs_f64().max(0.0);
        let until = |at: Option<Timestamp>| since(at.unwrap_or(run.over));
        let mut rows = Vec::new();
        for (node, at, end) in &run.ends {
            let what = if matches!(end, End::Drained { .. }) { What::Drained } else { What::NotDrained };
            let bars = vec![Bar { from: 0.0, to: since(*at), what }];
            rows.push(Row { label: node.clone(), is_node: true, bars, note: word(end).to_owned() });
            for one in run.record.moves().into_iter().filter(|one| one.from == *node) {
                let begun = one.begun.map_or_else(|| until(one.ended), since);
                let what =
                    if one.ended.is_some() && !one.succeeded { What::CopyFailed } else { What::Copied };
                let mut bars = vec![Bar { from: since(one.asked), to: begun, what: What::Waits }];
                bars.push(Bar { from: begun, to: until(one.ended), what });
                bars.retain(|bar| bar.to > bar.from);
                let note = match (&one.to, one.succeeded) {
                    (Some(to), true) => format!("to {to}"),
                    (Some(to), false) => format!("not to {to}"),
                    (None, _) => "no place".to_owned(),
                };
                rows.push(Row { label: one.guest, is_node: false, bars, note });
            }
            for one in run.record.leaves().into_iter().filter(|one| one.node == *node) {
                let bars = vec![Bar { from: since(one.asked), to: until(one.gone), what: What::Stops }];
                let note = if one.gone.is_some() { "ended" } else { "still there" };
                rows.push(Row { label: one.pod, is_node: false, bars, note: note.to_owned() });
            }
        }
        let last = rows.iter().flat_map(|row| &row.bars).map(|bar| bar.to).fold(1.0, f64::max);
        Self { rows, seconds: last }
    }

    /// Where the axis has its marks: about six of them, at round numbers.
    pub fn marks(&self) -> Vec<f64> {
        const STEPS: [f64; 13] =
            [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0];
        let step = STEPS.into_iter().find(|step| self.seconds / step <= 8.0).unwrap_or(86400.0);
        let count = (self.seconds / step).floor() as usize;
        (0..=count).map(|number| number as f64 * step).collect()
    }
}

/// How the work on a node ended, in a word or two.
pub fn word(end: &End) -> &'static str {
    match end {
        End::Drained { .. } => "drained",
        End::Rehearsed { .. } => "rehearsed",
        End::NotStarted { .. } => "not begun",
        End::Blocked { .. } => "blocked",
        End::TimedOut { .. } => "not ended",
        End::Failed { .. } => "failed",
        End::Refused { .. } => "refused",
        End::Stopped { .. } => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_not_many() {
        for seconds in [0.5, 7.0, 61.0, 599.0, 4000.0, 90_000.0] {
            let marks = Chart { rows: Vec::new(), seconds }.marks();
            assert!(!marks.is_empty() && marks.len() <= 9, "{seconds}: {marks:?}");
            assert!(marks.iter().all(|mark| *mark <= seconds), "{seconds}: {marks:?}");
        }
    }
}
