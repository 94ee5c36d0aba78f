//! Which faults a run has: points, which hit one request of one actor, and storms, which hit requests by chance while they last.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::book::Class;
use crate::draw;
use crate::fault::Kind;
use crate::mutant::Bug;

/// One fault at one request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub actor: String,
    pub request: usize,
    pub kind: Kind,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}#{}", self.kind, self.actor, self.request)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no fault such as lost@operator-1#17");
        let (kind, place) = text.split_once('@').ok_or_else(wrong)?;
        let (actor, request) = place.rsplit_once('#').ok_or_else(wrong)?;
        Ok(Self {
            actor: actor.to_owned(),
            request: request.parse().map_err(|_| wrong())?,
            kind: kind.parse()?,
        })
    }
}

/// A fault that hits requests by chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Storm {
    pub kind: Kind,
    /// The share of the requests that it fits.
    pub rate: f64,
    /// Since faults may begin.
    pub from: Duration,
    pub until: Duration,
}

/// The faults of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub points: Vec<Point>,
    pub storms: Vec<Storm>,
    /// How many seconds the calendars of actors are off, at most: each actor has its own offset, and some are stepped midway.
    pub skew: u64,
    /// People edit, restart and delete what is not evac's.
    pub people: bool,
    /// The history is compacted again and again.
    pub compacts: bool,
    /// Nodes are cut off for a while.
    pub flaps: bool,
    /// A bug that evac does not have.
    pub bug: Option<Bug>,
}

impl Plan {
    pub fn at_points(points: Vec<Point>) -> Self {
        Self { points, ..Self::default() }
    }

    /// Reads a file of faults. Each line is a storm (`lost 0.1 0..60`: the fault, its rate, and from which to which second), a point
    /// (`lost@operator-1#17`), `skew 240`, `people`, `compacts` or `flaps`. What stands after a `#` at the beginning of a line is for people.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            plan.take(line).map_err(|why| format!("line {}: {why}", number + 1))?;
        }
        Ok(plan)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["people"] => self.people = true,
            ["compacts"] => self.compacts = true,
            ["flaps"] => self.flaps = true,
            ["skew", seconds] => {
                let wrong = |_| format!("'{seconds}' is no number of seconds");
                self.skew = seconds.parse().map_err(wrong)?;
            }
            [point] if point.contains('@') => self.points.push(point.parse()?),
            [kind, rate, window] => {
                let kind = kind.parse()?;
                let share = rate.parse::<f64>().ok().filter(|rate| (0.0..=1.0).contains(rate));
                let rate = share.ok_or_else(|| format!("the rate '{rate}' is not a number from 0 to 1"))?;
                let span = window
                    .split_once("..")
                    .and_then(|(from, until)| Some((from.parse::<u32>().ok()?, until.parse::<u32>().ok()?)));
                let (from, until) =
                    span.ok_or_else(|| format!("'{window}' is no window of seconds such as 0..60"))?;
                if until < from {
                    return Err(format!("the window {window} ends before it begins"));
                }
                let second = |second: u32| Duration::from_secs(u64::from(second));
                self.storms.push(Storm { kind, rate, from: second(from), until: second(until) });
            }
            _ => {
                return Err(format!(
                    "'{line}' is neither a storm such as 'lost 0.1 0..60' nor a point such as 'lost@operator-1#17'"
                ));
            }
        }
        Ok(())
    }

    /// A storm of faults that the seed picks, with rates that it picks.
    pub fn storm(seed: u64, window: Duration) -> Self {
        let mut storms = Vec::new();
        for kind in crate::fault::ALL {
            let name = ["storm", kind.word()];
            // Some of all faults in each run: with all of them nothing ever goes far enough.
            if draw::share(seed, &name) > 0.35 {
                continue;
            }
            let often = draw::share(seed, &["rate", kind.word()]);
            // What kills or stops a process is rare; what delays it may be common.
            let most = match kind {
                Kind::DiesBefore | Kind::DiesAfter | Kind::Frozen => 0.03,
                Kind::Late | Kind::Silent => 0.05,
                _ => 0.25,
            };
            storms.push(Storm { kind, rate: most * often * often, from: Duration::ZERO, until: window });
        }
        let skew = if draw::share(seed, &["skew"]) < 0.3 { 240 } else { 0 };
        let often = |what: &str| draw::share(seed, &[what]);
        Self {
            storms,
            skew,
            people: often("people") < 0.5,
            compacts: often("compacts") < 0.3,
            flaps: often("flaps") < 0.25,
            ..Self::default()
        }
    }

    /// What happens to a request. Of several faults the first one that is due happens.
    pub fn at(&self, seed: u64, actor: &str, request: usize, class: Class, since: Duration) -> Option<Kind> {
        let point = self.points.iter().find(|one| one.request == request && one.actor == actor);
        if let Some(point) = point {
            return point.kind.fits(class).then_some(point.kind);
        }
        let number = request.to_string();
        let hit = |storm: &&Storm| {
            storm.kind.fits(class)
                && since >= storm.from
                && since < storm.until
                && draw::share(seed, &[actor, &number, storm.kind.word()]) < storm.rate
        };
        self.storms.iter().find(hit).map(|storm| storm.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_written_as_it_is_read() {
        let text = "dies-after@operator-1#17";
        assert_eq!(text.parse::<Point>().map(|point| point.to_string()), Ok(text.to_owned()));
        for wrong in ["lost", "lost@a", "lost@a#x", "lots@a#1"] {
            assert!(wrong.parse::<Point>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_of_faults_is_read_line_by_line() {
        let plan = Plan::read("# faults\nlost 0.5 0..60\n\nfrozen@operator-1#3\nskew 30\npeople\n").unwrap();
        assert_eq!((plan.storms.len(), plan.points.len(), plan.skew, plan.people), (1, 1, 30, true));
        assert_eq!(plan.storms[0].until, Duration::from_secs(60));
    }

    #[test]
    fn a_wrong_line_is_named_in_one_sentence() {
        for (text, said) in [
            ("lost 0.1 0..60\nlots 0.1 0..60", "line 2: there is no fault 'lots'; there are "),
            ("lost 1.5 0..60", "line 1: the rate '1.5' is not a number from 0 to 1"),
            ("lost NaN 0..60", "line 1: the rate 'NaN' is not a number from 0 to 1"),
            ("\nlost 0.1 60..10", "line 2: the window 60..10 ends before it begins"),
            ("lost 0.1 soon", "line 1: 'soon' is no window of seconds such as 0..60"),
            ("lost", "line 1: 'lost' is neither a storm"),
            ("skew much", "line 1: 'much' is no number of seconds"),
            ("lost@operator-1", "line 1: 'lost@operator-1' is no fault such as"),
        ] {
            let error = Plan::read(text).unwrap_err();
            assert!(error.starts_with(said) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_storm_ends_with_its_window() {
        let plan = Plan {
            storms: vec![Storm {
                kind: Kind::Lost,
                rate: 1.0,
                from: Duration::from_secs(1),
                until: Duration::from_secs(2),
            }],
            ..Plan::default()
        };
        let at = |millis| plan.at(1, "a", 0, Class::Write, Duration::from_millis(millis));
        assert_eq!((at(999), at(1000), at(1999), at(2000)), (None, Some(Kind::Lost), Some(Kind::Lost), None));
        assert_eq!(plan.at(1, "a", 0, Class::Read, Duration::from_millis(1500)), None, "it is about writes");
    }
}
