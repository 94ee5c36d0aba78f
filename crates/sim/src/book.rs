//! What happened in a run: the log and its hash, who writes at the moment, requests, faults, and what must never have happened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evac_apiserver::store::Change;
use evac_clock::Clock;
use jiff::Timestamp;
use ring::digest::{Context, SHA256};

use crate::oracle::is_evac;
use crate::plan::Point;

/// Who is meant by commits that no line claims: the simulated kubelets, controllers and hypervisors.
pub const WORLD: &str = "world";

/// One thing that must not happen, and did.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The invariant, such as `I5`, or `end` for a wrong end state.
    pub rule: &'static str,
    /// Milliseconds since the run began.
    pub at: i64,
    pub words: String,
}

/// A request of a process, as the sweeps need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub actor: String,
    /// The how-manieth request of this actor since faults may begin.
    pub number: usize,
    pub class: Class,
    pub words: String,
}

/// Nobody has a reason to send so many requests in so many milliseconds in clusters as small as these.
const HASTE: (usize, i64) = (400, 10_000);

/// What faults can be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Read,
    Write,
    Watch,
}

/// Everything that is written down. Cheap to clone; all clones are one book.
#[derive(Clone)]
pub struct Book(Arc<Shared>);

struct Shared {
    clock: Clock,
    began: Timestamp,
    pages: Mutex<Pages>,
}

struct Pages {
    hash: Context,
    author: Option<Arc<str>>,
    commits: u64,
    /// Commits of evac, apart from leases and events.
    stirrings: u64,
    /// By actor, since faults may begin.
    requests: BTreeMap<String, usize>,
    asked: Vec<Asked>,
    /// When each actor has sent its last requests.
    recent: BTreeMap<String, VecDeque<i64>>,
    activated: Vec<Point>,
    happened: BTreeMap<&'static str, u64>,
    violations: Vec<Violation>,
    trace: Option<Vec<String>>,
}

impl Book {
    /// An empty book. With `trace` each line is kept for people.
    pub fn new(clock: Clock, trace: bool) -> Self {
        let pages = Pages {
            hash: Context::new(&SHA256),
            author: None,
            commits: 0,
            stirrings: 0,
            requests: BTreeMap::new(),
            asked: Vec::new(),
            recent: BTreeMap::new(),
            activated: Vec::new(),
            happened: BTreeMap::new(),
            violations: Vec::new(),
            trace: trace.then(Vec::new),
        };
        Self(Arc::new(Shared { clock, began: clock.now(), pages: Mutex::new(pages) }))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the run began.
    pub fn millis(&self) -> i64 {
        self.0.clock.now().duration_since(self.0.began).as_millis() as i64
    }

    /// Writes a line that two runs of a seed must have in common.
    pub fn note(&self, words: &str) {
        let at = self.millis();
        self.pages().line(at, words);
    }

    /// Who writes from here on, until it is put back. Requests are carried out in one poll, so this is exact.
    pub fn author(&self, name: Option<Arc<str>>) -> Option<Arc<str>> {
        std::mem::replace(&mut self.pages().author, name)
    }

    pub fn writing(&self) -> Arc<str> {
        self.pages().author.clone().unwrap_or_else(|| WORLD.into())
    }

    pub fn commit(&self, resource: &str, change: &Change) {
        let at = self.millis();
        let mut pages = self.pages();
        pages.commits += 1;
        pages.hash.update(&change.object.json);
        let author = pages.author.clone();
        let author = author.as_deref().unwrap_or(WORLD);
        if is_evac(author) && !resource.starts_with("leases") && !resource.starts_with("events") {
            pages.stirrings += 1;
        }
        pages.line(at, &format!("{author} {:?} {resource} {}", change.kind, change.key.as_str()));
    }

    /// Counts a request, and gives its number.
    pub fn request(&self, actor: &str, class: Class, words: &str) -> usize {
        let at = self.millis();
        let mut pages = self.pages();
        let count = pages.requests.entry(actor.to_owned()).or_default();
        let number = *count;
        *count += 1;
        pages.asked.push(Asked { actor: actor.to_owned(), number, class, words: words.to_owned() });
        pages.line(at, &format!("{actor} #{number} {words}"));
        let recent = pages.recent.entry(actor.to_owned()).or_default();
        recent.push_back(at);
        while recent.front().is_some_and(|first| at - first > HASTE.1) {
            recent.pop_front();
        }
        let hasty = recent.len() > HASTE.0;
        drop(pages);
        if hasty {
            self.violate(
                "I14",
                format!("{actor} sends more than {} requests in {} s", HASTE.0, HASTE.1 / 1000),
            );
        }
        number
    }

    /// Faults may begin: requests are numbered from here.
    pub fn begin(&self) {
        let mut pages = self.pages();
        pages.requests.clear();
        pages.asked.clear();
    }

    pub fn activate(&self, point: Point) {
        let at = self.millis();
        let mut pages = self.pages();
        pages.line(at, &format!("FAULT {point}"));
        pages.activated.push(point);
    }

    /// How many faults have hit writes of this actor whose path has this part.
    pub fn faults_at(&self, actor: &str, part: &str) -> usize {
        let pages = self.pages();
        let hit = |point: &&Point| {
            let about = |one: &&Asked| one.actor == actor && one.number == point.request;
            point.actor == actor
                && pages
                    .asked
                    .iter()
                    .find(about)
                    .is_some_and(|one| one.class == Class::Write && one.words.contains(part))
        };
        pages.activated.iter().filter(hit).count()
    }

    /// A fault that is not about a request.
    pub fn happen(&self, words: &str, class: &'static str) {
        let at = self.millis();
        let mut pages = self.pages();
        pages.line(at, &format!("FAULT {words}"));
        *pages.happened.entry(class).or_default() += 1;
    }

    pub fn violate(&self, rule: &'static str, words: String) {
        let at = self.millis();
        let mut pages = self.pages();
        pages.line(at, &format!("VIOLATION {rule}: {words}"));
        // The same again, seen at the next commit, says nothing new.
        if !pages.violations.iter().any(|one| one.rule == rule && one.words == words) {
            pages.violations.push(Violation { rule, at, words });
        }
    }

    /// How often evac has changed something so far, apart from leases and events.
    pub fn stirrings(&self) -> u64 {
        self.pages().stirrings
    }

    /// Ends the log.
    pub fn close(&self) -> Closed {
        let mut pages = self.pages();
        let pages = &mut *pages;
        let digest = pages.hash.clone().finish();
        let mut by_class = std::mem::take(&mut pages.happened);
        for point in &pages.activated {
            *by_class.entry(point.kind.class()).or_default() += 1;
        }
        Closed {
            hash: format!("{:016x}", first(digest.as_ref())),
            commits: pages.commits,
            requests: pages.asked.len() as u64,
            asked: std::mem::take(&mut pages.asked),
            activated: std::mem::take(&mut pages.activated),
            by_class,
            violations: std::mem::take(&mut pages.violations),
            trace: pages.trace.take().unwrap_or_default(),
        }
    }
}

impl Pages {
    fn line(&mut self, at: i64, words: &str) {
        let line = format!("{:>9.3} {words}", at as f64 / 1000.0);
        self.hash.update(line.as_bytes());
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }
}

/// The first eight bytes as a number.
fn first(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// A finished log.
#[derive(Debug, Clone)]
pub struct Closed {
    /// The first 64 bits of the SHA-256 of every line and of every object that was written.
    pub hash: String,
    pub commits: u64,
    pub requests: u64,
    pub asked: Vec<Asked>,
    pub activated: Vec<Point>,
    pub by_class: BTreeMap<&'static str, u64>,
    pub violations: Vec<Violation>,
    pub trace: Vec<String>,
}
