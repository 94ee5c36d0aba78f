//! What the process counts about itself, for Prometheus. `docs/metrics.md` says what each name means; a test compares the two.
//!
//! What happens is counted where it happens. What *is* (queues, phases) is asked from the loop when somebody looks, so that
//! nobody pays for numbers that nobody reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watch {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Object {
    kind: &'static str,
}

/// Subjects of the loop by what they wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Changed, and not looked at yet.
    pub touched: usize,
    /// Their actions are being carried out.
    pub acting: usize,
    /// Refused a moment ago.
    pub resting: usize,
    /// To be looked at when their time has come.
    pub scheduled: usize,
}

impl Queues {
    /// Takes another role into account.
    pub fn add(&mut self, other: Self) {
        self.touched += other.touched;
        self.acting += other.acting;
        self.resting += other.resting;
        self.scheduled += other.scheduled;
    }
}

/// Counters of one process; clones count together.
#[derive(Clone)]
pub struct Metrics(Arc<Books>);

struct Books {
    registry: Registry,
    requests: Family<Request, Counter>,
    actions: Family<Action, Counter>,
    watch_restarts: Family<Watch, Counter>,
    queue: Family<Queue, Gauge>,
    leader: Gauge,
    migrations: Gauge,
    maintenances: Family<Phase, Gauge>,
    blockers: Family<Code, Gauge>,
    statuses: Family<Object, Counter>,
    turns: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// A turn of the loop is a matter of microseconds; more than a second means that the process is starved.
const TURNS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("evac");
        let requests = Family::default();
        registry.register("requests", "Requests to the API server by verb and code", requests.clone());
        let actions = Family::default();
        registry.register("actions", "Wanted changes by kind and what became of them", actions.clone());
        let watch_restarts = Family::default();
        registry.register(
            "watch_restarts",
            "Watches that broke or lapsed, by resource",
            watch_restarts.clone(),
        );
        let queue = Family::default();
        registry.register("queue", "Objects under the operator's care by what they wait for", queue.clone());
        let leader = Gauge::default();
        registry.register("leader", "1 while this process may act, 0 while it follows", leader.clone());
        let migrations = Gauge::default();
        registry.register("migrations", "Migrations under way", migrations.clone());
        let maintenances = Family::default();
        registry.register("maintenances", "NodeMaintenance objects by phase", maintenances.clone());
        let blockers = Family::default();
        registry.register("blockers", "What keeps nodes from being empty, by code", blockers.clone());
        let statuses = Family::default();
        registry.register(
            "status_failures",
            "Statuses that could not be written, by the kind of the object",
            statuses.clone(),
        );
        let turns = Histogram::new(TURNS);
        registry.register(
            "loop_duration_seconds",
            "From news arriving to every decision about it made",
            turns.clone(),
        );
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program", build);
        Self(Arc::new(Books {
            registry,
            requests,
            actions,
            watch_restarts,
            queue,
            leader,
            migrations,
            maintenances,
            blockers,
            statuses,
            turns,
        }))
    }

    /// A request was answered; without a code it got none.
    pub fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.0.requests.get_or_create(&Request { verb, code }).inc();
    }

    pub fn action(&self, kind: &'static str, outcome: &'static str) {
        self.0.actions.get_or_create(&Action { kind, outcome }).inc();
    }

    /// What an object should say of itself was not taken by the server. It is tried again.
    pub fn status_unwritten(&self, kind: &'static str) {
        self.0.statuses.get_or_create(&Object { kind }).inc();
    }

    /// A watch has to begin anew; `path` is that of the collection.
    pub fn watch_restart(&self, path: &str) {
        let resource = path.rsplit('/').next().unwrap_or(path).to_owned();
        self.0.watch_restarts.get_or_create(&Watch { resource }).inc();
    }

    /// News was taken in and decided upon.
    pub fn turn(&self, took: Duration) {
        self.0.turns.observe(took.as_secs_f64());
    }

    pub fn queues(&self, queues: Queues) {
        let Queues { touched, acting, resting, scheduled } = queues;
        for (state, count) in
            [("touched", touched), ("acting", acting), ("resting", resting), ("scheduled", scheduled)]
        {
            self.0.queue.get_or_create(&Queue { state }).set(count as i64);
        }
    }

    pub fn leader(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    pub fn migrations(&self, under_way: usize) {
        self.0.migrations.set(under_way as i64);
    }

    /// How many maintenances are in each phase; phases that are left out have none.
    pub fn maintenances(&self, by_phase: &BTreeMap<String, usize>) {
        self.0.maintenances.clear();
        for (phase, count) in by_phase {
            self.0.maintenances.get_or_create(&Phase { phase: phase.clone() }).set(*count as i64);
        }
    }

    /// How many things are in the way of maintenances, by the stable code of the reason.
    pub fn blockers(&self, by_code: &BTreeMap<String, usize>) {
        self.0.blockers.clear();
        for (code, count) in by_code {
            self.0.blockers.get_or_create(&Code { code: code.clone() }).set(*count as i64);
        }
    }

    /// Everything in the text format of OpenMetrics, in an order that does not change.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.0.registry);
        sorted(&text)
    }
}

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Samples of one metric come in the order of a hash map; people and tests want them in one order. Buckets keep theirs.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut samples: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') || line.contains("_bucket{") {
            samples.sort_unstable();
            lines.append(&mut samples);
            lines.push(line);
        } else {
            samples.push(line);
        }
    }
    lines.append(&mut samples);
    lines.join("\n") + "\n"
}

/// The word of the API for a method. Lists count as `get`, watches are counted by those who open them.
pub(crate) fn verb(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts one of everything.
    fn busy() -> Metrics {
        let metrics = Metrics::new();
        metrics.request("patch", Some(200));
        metrics.request("patch", Some(409));
        metrics.request("patch", Some(409));
        metrics.request("get", None);
        metrics.action("delete", "done");
        metrics.watch_restart("/api/v1/pods");
        metrics.turn(Duration::from_millis(2));
        metrics.queues(Queues { touched: 1, ..Queues::default() });
        metrics.leader(true);
        metrics.migrations(3);
        metrics.maintenances(&BTreeMap::from([("Running".to_owned(), 2)]));
        metrics.status_unwritten("FailoverPolicy");
        metrics.blockers(&BTreeMap::from([("BudgetExhausted".to_owned(), 1)]));
        metrics
    }

    #[test]
    fn the_page_says_what_was_counted_in_one_order() {
        let text = busy().render();
        for line in [
            r#"evac_requests_total{verb="get",code="none"} 1"#,
            r#"evac_requests_total{verb="patch",code="409"} 2"#,
            r#"evac_actions_total{kind="delete",outcome="done"} 1"#,
            r#"evac_watch_restarts_total{resource="pods"} 1"#,
            r#"evac_queue{state="touched"} 1"#,
            "evac_leader 1",
            "evac_migrations 3",
            r#"evac_maintenances{phase="Running"} 2"#,
            r#"evac_blockers{code="BudgetExhausted"} 1"#,
            r#"evac_status_failures_total{kind="FailoverPolicy"} 1"#,
            "evac_loop_duration_seconds_count 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
        assert_eq!(text, busy().render());
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_phase_that_nobody_is_in_any_more_is_not_shown() {
        let metrics = busy();
        metrics.maintenances(&BTreeMap::new());
        assert!(!metrics.render().contains("Running"));
    }

    #[test]
    fn the_documents_name_exactly_what_is_there() {
        let document = include_str!("../../../docs/metrics.md");
        let text = busy().render();
        let mut there: Vec<(String, String)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|line| line.split_once(' '))
            .map(|(name, kind)| (sample_name(name, kind), kind.to_owned()))
            .collect();
        let mut described: Vec<(String, String)> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `evac_"))
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                (format!("evac_{}", cells[0].trim_end_matches('`')), cells[1].to_owned())
            })
            .collect();
        there.sort();
        described.sort();
        assert_eq!(there, described);
    }

    /// The name under which a metric is asked for.
    fn sample_name(name: &str, kind: &str) -> String {
        match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        }
    }
}
