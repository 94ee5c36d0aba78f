//! Room in a budget that nobody asked for.
//!
//! A watcher that has no part in the drain notes what the budget allows and when; the server's audit log says from when to
//! when each eviction was under way. Whenever the budget allows more than is under way, and more evictions are to come,
//! somebody could have asked and did not. The sum of those times is what a drain is slower than its budget.

use jiff::Timestamp;
use serde_json::Value;

/// What the budget allows from this moment on.
pub struct Room {
    pub at: Timestamp,
    pub allowed: u64,
}

/// One eviction, as the server saw it.
pub struct Request {
    began: Timestamp,
    ended: Timestamp,
}

impl Request {
    pub fn of(event: &Value) -> Option<Self> {
        let time = |name: &str| event[name].as_str()?.parse().ok();
        Some(Self { began: time("requestReceivedTimestamp")?, ended: time("stageTimestamp")? })
    }

    pub fn milliseconds(&self) -> f64 {
        self.ended.duration_since(self.began).as_secs_f64() * 1000.0
    }
}

/// Seconds between the first and the last request in which the budget had more room than was asked for.
pub fn unused(room: &[Room], requests: &[Request]) -> f64 {
    let (Some(first), Some(last)) =
        (requests.iter().map(|r| r.began).min(), requests.iter().map(|r| r.began).max())
    else {
        return 0.0;
    };
    let mut moments: Vec<Timestamp> = room.iter().map(|r| r.at).collect();
    moments.extend(requests.iter().flat_map(|r| [r.began, r.ended]));
    moments.retain(|at| (first..=last).contains(at));
    moments.sort();
    let idle = moments.windows(2).filter(|pair| {
        let at = pair[0];
        let allowed = room.iter().rev().find(|room| room.at <= at).map_or(0, |room| room.allowed);
        let under_way = requests.iter().filter(|r| r.began <= at && at < r.ended).count();
        allowed > under_way as u64
    });
    idle.map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: i64) -> Timestamp {
        Timestamp::from_millisecond(tenths * 100).unwrap()
    }

    #[test]
    fn only_room_that_was_seen_and_not_asked_for_counts() {
        let room = [(0, 1), (2, 0), (20, 1), (26, 0)];
        let room: Vec<Room> = room.into_iter().map(|(t, allowed)| Room { at: at(t), allowed }).collect();
        let requests = [(1, 2), (25, 27)];
        let requests: Vec<Request> =
            requests.into_iter().map(|(from, to)| Request { began: at(from), ended: at(to) }).collect();
        let seconds = unused(&room, &requests);
        assert!(
            (seconds - 0.5).abs() < 1e-9,
            "the budget had room at 2.0 s, the request came at 2.5 s: {seconds}"
        );
    }
}
