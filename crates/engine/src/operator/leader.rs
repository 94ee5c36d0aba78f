//! Holds the lease of the leader, or waits for it, and opens and shuts the gate for writes accordingly.

use evac_api::call::{self, FIELD_MANAGER, MERGE_PATCH};
use evac_api::kubevirt::request;
use evac_api::{Call, wire};
use evac_core::Lease;
use evac_core::leadership::{self, DURATION, LeaseAction, ObservedLease};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::gate::Gate;
use crate::http::{Http, HttpError, parse};
use crate::watch::{Report, Source, list};

use super::feeds::forever;

/// A candidate for leadership, and the gate that is open while it leads.
pub struct Candidate {
    gate: Gate,
    resign: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Candidate {
    /// Runs for leadership as `me`, which no other candidate may be called.
    pub fn run(http: Http, me: impl Into<String>) -> Self {
        Self::run_behind(Gate::shut(), http, me)
    }

    /// The same, for a gate that was there before.
    pub fn run_behind(gate: Gate, http: Http, me: impl Into<String>) -> Self {
        let (resign, resigned) = oneshot::channel();
        let state = State { http, me: me.into(), gate: gate.clone(), observed: None, tried: None };
        Self { gate, resign: Some(resign), task: tokio::spawn(state.run(resigned)) }
    }

    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Lets what is under way come to its end, then gives the lease back, so that another goes on at once.
    pub async fn hand_over(mut self) {
        self.gate.lock().await;
        if let Some(resign) = self.resign.take() {
            let _ = resign.send(());
        }
        // A panic of the task has been reported by the runtime already.
        let _ = (&mut self.task).await;
    }

    /// Ends it without a word, as a crash would.
    pub fn halt(&self) {
        self.task.abort();
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn leases(home: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", call::escape(home))
}

struct State {
    http: Http,
    me: String,
    gate: Gate,
    observed: Option<ObservedLease>,
    /// When the last attempt failed.
    tried: Option<Timestamp>,
}

impl State {
    async fn run(mut self, mut resigned: oneshot::Receiver<()>) {
        let (sender, mut inbox) = mpsc::unbounded_channel::<Report<wire::Lease>>();
        let mut watching = JoinSet::new();
        let source = self.source();
        let http = self.http.clone();
        watching.spawn(forever(
            http,
            source,
            sender,
            |report| report,
            |lease: &wire::Lease| lease.metadata.resource_version.clone(),
        ));
        // Without a first look a free lease cannot be told from a taken one.
        let mut looked = false;
        let clock = self.http.clock();
        loop {
            let mut until = Timestamp::MAX;
            if looked {
                let next = leadership::decide(&self.me, self.observed.as_ref(), self.tried, clock.now());
                let LeaseAction::Wait { until: later } = next else {
                    self.write().await;
                    continue;
                };
                until = later;
            }
            tokio::select! {
                biased;
                _ = &mut resigned => break,
                report = inbox.recv() => match report {
                    Some(report) => looked |= self.take(report),
                    None => break,
                },
                () = clock.sleep_until(until) => {}
            }
        }
        self.release().await;
    }

    /// Whether it said how things stand.
    fn take(&mut self, report: Report<wire::Lease>) -> bool {
        let now = self.http.clock().now();
        match report {
            Report::Listed(list, _) => {
                ObservedLease::replace(&mut self.observed, list.into_iter().next().map(Lease::from), now);
            }
            Report::Seen(lease) => ObservedLease::update(&mut self.observed, Some(lease.into()), now),
            Report::Gone(_) => ObservedLease::update(&mut self.observed, None, now),
            Report::Failed { error, .. } => {
                tracing::warn!(%error, "the lease of the leader cannot be read");
                return false;
            }
        }
        self.close_unless_held();
        true
    }

    /// Who does not hold the lease does not write.
    fn close_unless_held(&self) {
        if !self.is_mine() {
            self.gate.close();
        }
    }

    fn is_mine(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.lease.holder == self.me)
    }

    /// Writes our name; the version that was seen decides between several who try.
    async fn write(&mut self) {
        let sent = self.http.clock().now();
        // What is written is for others to read; what is measured goes by `sent`.
        let answer = self.http.send(&self.claim(self.http.clock().calendar())).await;
        match answer.and_then(|answer| parse::<wire::Lease>(&answer)) {
            Ok(lease) => {
                let lease = Lease::from(lease);
                let led = self.is_mine();
                self.tried = None;
                // The version proves that nobody wrote in between, so it is known since it was sent.
                ObservedLease::update(&mut self.observed, Some(lease), sent);
                self.gate.open_until(leadership::writes_until(sent), self.http.clock().now());
                if !led {
                    tracing::info!(me = %self.me, "leads");
                }
            }
            Err(error) => {
                self.tried = Some(self.http.clock().now());
                tracing::debug!(%error, "the lease of the leader could not be written");
                if matches!(error, HttpError::Status { status: 404 | 409, .. }) {
                    self.look_again().await;
                }
            }
        }
    }

    /// The one lease, asked for in the one way for which there is a right.
    fn source(&self) -> Source {
        let query = call::named(leadership::NAME);
        Source { path: leases(self.http.home()).into(), query, page: 0 }
    }

    async fn look_again(&mut self) {
        match list::<wire::Lease, _>(&self.http, &self.source(), Some).await {
            Ok((leases, _)) => {
                let lease = leases.into_iter().next().map(Lease::from);
                ObservedLease::replace(&mut self.observed, lease, self.http.clock().now());
                self.close_unless_held();
            }
            Err(error) => tracing::debug!(%error, "the lease of the leader cannot be read"),
        }
    }

    fn claim(&self, now: Timestamp) -> Call {
        let time = format!("{now:.6}");
        let mut spec = json!({
            "holderIdentity": self.me,
            "leaseDurationSeconds": DURATION.as_secs(),
            "renewTime": time,
        });
        let Some(observed) = &self.observed else {
            spec["acquireTime"] = json!(time);
            spec["leaseTransitions"] = json!(0);
            let body = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": leadership::NAME, "namespace": self.http.home()},
                "spec": spec,
            });
            return request::create(&leases(self.http.home()), &body);
        };
        if observed.lease.holder != self.me {
            spec["acquireTime"] = json!(time);
            spec["leaseTransitions"] = json!(observed.lease.transitions + 1);
        }
        self.patch(observed, &spec)
    }

    fn patch(&self, observed: &ObservedLease, spec: &serde_json::Value) -> Call {
        let body = json!({"metadata": {"resourceVersion": observed.lease.resource_version}, "spec": spec});
        let path =
            format!("{}?fieldManager={FIELD_MANAGER}", call::lease_path(&leadership::key(self.http.home())));
        request::send("PATCH", path, MERGE_PATCH, &body)
    }

    async fn release(&self) {
        let Some(observed) = self.observed.as_ref().filter(|_| self.is_mine()) else { return };
        let call = self.patch(observed, &json!({"holderIdentity": null, "leaseDurationSeconds": 1}));
        match self.http.send(&call).await {
            Ok(answer) if answer.is_success() => tracing::info!(me = %self.me, "gave the lease back"),
            // Somebody else has it, or it lapses by itself.
            other => tracing::debug!(?other, "the lease could not be given back"),
        }
    }
}
