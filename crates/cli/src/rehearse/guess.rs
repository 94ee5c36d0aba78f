//! What no snapshot can tell: how busy guests are, and how long pods and guests take to stop. The first run takes the middle of what is usual for all of
//! them; each further run draws every number anew, and so shows how much depends on them.

use evac_world::random::between;
use serde_json::Value;

use super::objects::key;

/// MiB of memory that a guest changes in a second: a guest that idles, and one at full work.
const DIRTY: Range = Range { low: 5.0, middle: 50.0, high: 500.0 };
/// Seconds that a pod or a guest needs to stop, if its grace period is longer than that.
const STOP: Range = Range { low: 0.5, middle: 3.0, high: 20.0 };

struct Range {
    low: f64,
    middle: f64,
    high: f64,
}

impl Range {
    /// The middle, or a number in between; a tenth of the middle is as likely as ten times as much.
    fn draw(&self, seed: u64, entity: &str) -> f64 {
        if seed <= 1 {
            return self.middle;
        }
        between(seed, entity, self.low.ln(), self.high.ln()).exp()
    }
}

fn note(object: &mut Value, name: &str, number: f64) {
    let notes = &mut object["metadata"]["annotations"];
    // A sandbox says itself what its guests do.
    if notes[name].is_null() {
        notes[name] = Value::String(format!("{number:.1}"));
    }
}

/// How a guest behaves in this run.
pub fn guest(instance: &mut Value, seed: u64) {
    let name = key(instance);
    note(instance, "evac.dev/dirty-rate", DIRTY.draw(seed, &format!("writes of {name}")));
    note(instance, "evac.dev/shutdown-seconds", STOP.draw(seed, &format!("shutdown of {name}")));
}

/// How long a pod takes to stop in this run.
pub fn pod(pod: &mut Value, seed: u64) {
    let name = key(pod);
    note(pod, "evac.dev/stop-seconds", STOP.draw(seed, &format!("stop of {name}")));
}

/// The sentences about it, for people.
pub fn assumptions() -> Vec<String> {
    let range = |range: &Range, unit: &str| {
        format!("{} {unit} in the first run, {} to {} in others", range.middle, range.low, range.high)
    };
    vec![
        format!("guests change {}", range(&DIRTY, "MiB of memory in a second")),
        format!("pods and guests stop within {}", range(&STOP, "s")),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rate(seed: u64) -> f64 {
        let mut instance = json!({"metadata": {"name": "a", "namespace": "d"}});
        guest(&mut instance, seed);
        instance["metadata"]["annotations"]["evac.dev/dirty-rate"].as_str().unwrap().parse().unwrap()
    }

    #[test]
    fn the_first_run_takes_the_middle_and_others_draw_within_the_bounds() {
        assert!((rate(1) - DIRTY.middle).abs() < 0.1);
        let rates: Vec<f64> = (2..40).map(rate).collect();
        assert!(rates.iter().all(|rate| (DIRTY.low..=DIRTY.high).contains(rate)), "{rates:?}");
        assert!(rates.iter().any(|rate| *rate < 20.0) && rates.iter().any(|rate| *rate > 100.0), "{rates:?}");
        assert!((rate(7) - rate(7)).abs() < f64::EPSILON, "a seed is repeatable");
    }

    #[test]
    fn what_an_object_says_itself_counts() {
        let mut instance = json!({"metadata": {"name": "a", "annotations": {"evac.dev/dirty-rate": "9"}}});
        guest(&mut instance, 5);
        assert_eq!(instance["metadata"]["annotations"]["evac.dev/dirty-rate"], "9");
    }
}
