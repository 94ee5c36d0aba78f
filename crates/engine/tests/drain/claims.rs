//! The lease beside the mark: who is alive, who was killed, who goes on.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use evac_api::Call;
use evac_core::drain::claim::{Life, life_of};
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::reasons::OwnerReason;
use evac_core::{DryRun, Fact, Reason};
use evac_engine::{Http, life};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Told};
use crate::is_drained;
use crate::wire::Fault;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/evac-drain-node-1";

/// The lease that somebody holds; without a holder it is only a record.
async fn lease(bench: &Bench) -> Option<Value> {
    let lease = bench.admin.read::<Value>(&Call::get(LEASE)).await.ok();
    lease.filter(|lease| lease["spec"].get("holderIdentity").is_some())
}

fn notes(told: &Told) -> Vec<&'static str> {
    told.events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Noted { reason, .. } => Some(reason.code()),
            _ => None,
        })
        .collect()
}

/// A node whose only pod is protected for good; a drain of it waits until it is told otherwise.
async fn blocked() -> Bench {
    let bench = Bench::start(1).await;
    bench.pod("strict", |_| {}).await;
    bench.budget("web", "web", json!({"minAvailable": 1})).await;
    bench
}

fn patient(bench: &Bench, owner: &str, instance: &str) -> evac_engine::DrainRequest {
    let mut request = bench.request(&["node-1"]);
    request.owner = owner.into();
    request.instance = Some(instance.into());
    request.policy.settle = Duration::from_secs(3600);
    request
}

/// Lets a drain work for a while and then kills it.
async fn killed_after(bench: &Bench, request: evac_engine::DrainRequest, seconds: u64) {
    tokio::select! {
        _ = bench.drain(request) => panic!("it should still be waiting"),
        () = bench.clock.sleep(Duration::from_secs(seconds)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_drain_holds_a_lease_answers_questions_and_removes_it_at_the_end() {
    let bench = blocked().await;
    let stop = CancellationToken::new();
    let (told, ()) = tokio::join!(bench.drain_until(patient(&bench, "ann", "box:1"), stop.clone()), async {
        bench.clock.sleep(Duration::from_secs(2)).await;
        let first = lease(&bench).await.expect("a lease");
        assert_eq!(first["spec"]["holderIdentity"], "ann/box:1");
        assert_eq!(first["metadata"]["ownerReferences"][0]["name"], "node-1");
        bench.clock.sleep(Duration::from_secs(300)).await;
        let later = lease(&bench).await.expect("a lease");
        assert_eq!(first, later, "nobody asked");
        let heard = life::ask(&bench.admin, "node-1").await;
        assert_eq!(word(&bench, heard), "alive");
        let answered = lease(&bench).await.expect("a lease");
        assert_ne!(first["spec"]["renewTime"], answered["spec"]["renewTime"]);
        assert_eq!(first["spec"]["acquireTime"], answered["spec"]["acquireTime"]);
        stop.cancel();
    });
    assert!(matches!(told.end(), End::Stopped { .. }), "{:?}", told.end());
    assert!(lease(&bench).await.is_none());
    // Written, answered, removed: however long a drain lasts.
    assert_eq!(leases_written(&bench), 3, "{:?}", bench.wire.requests());
}

fn leases_written(bench: &Bench) -> usize {
    let requests = bench.wire.requests();
    requests.iter().filter(|line| line.contains("/leases") && !line.starts_with("GET")).count()
}

/// What the drain of the node is taken for.
fn word(bench: &Bench, claim: Option<Fact>) -> &'static str {
    let Some(Fact::Lease(lease)) = claim else { return "unclaimed" };
    match life_of(&lease, bench.clock.now()) {
        Life::Unclaimed => "unclaimed",
        Life::Alive { .. } => "alive",
        Life::Unheard { .. } => "unheard",
        Life::Dead { .. } => "dead",
    }
}

#[tokio::test(start_paused = true)]
async fn a_living_drainer_is_named_with_its_host_and_a_killed_one_is_taken_over_within_seconds() {
    let bench = blocked().await;
    let before = bench.node("node-1").await;
    let refused = tokio::select! {
        _ = bench.drain(patient(&bench, "ann", "box:1")) => panic!("it should still be waiting"),
        refused = async {
            bench.clock.sleep(Duration::from_secs(1000)).await;
            bench.drain(patient(&bench, "bob", "lab:2")).await
        } => refused,
    };
    let End::Refused { reason } = refused.end() else { panic!("{:?}", refused.end()) };
    assert!(
        matches!(reason, Reason::Owner(OwnerReason::OwnedByEvac { owner, instance: Some(run), seen: Some(_), .. }) if owner == "ann" && run == "box:1"),
        "{reason:?}"
    );
    assert!(reason.message().contains("ann (box:1) since 2026"), "{}", reason.message());
    assert!(refused.took < 1.0, "{}", refused.took);
    assert!(notes(&refused).is_empty(), "{:?}", notes(&refused));

    // The answer was good for a moment.
    bench.clock.sleep(Duration::from_secs(20)).await;
    let stop = CancellationToken::new();
    let (told, ()) = tokio::join!(bench.drain_until(patient(&bench, "bob", "lab:2"), stop.clone()), async {
        bench.clock.sleep(Duration::from_secs(12)).await;
        let held = lease(&bench).await.expect("a lease");
        assert_eq!(held["spec"]["holderIdentity"], "bob/lab:2");
        assert_eq!(held["spec"]["leaseTransitions"], 1);
        stop.cancel();
    });
    assert_eq!(notes(&told), ["Unanswered", "Abandoned"]);
    assert!(lease(&bench).await.is_none());
    evac_engine::nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    assert_eq!(bench.node("node-1").await.unschedulable, before.unschedulable);
}

#[tokio::test(start_paused = true)]
async fn a_killed_drain_is_found_dead_by_whoever_asks_and_stays_so() {
    let bench = blocked().await;
    killed_after(&bench, patient(&bench, "ann", "box:1"), 10).await;
    let read = life::read(&bench.admin, "node-1").await;
    assert_eq!(word(&bench, read), "unheard", "nobody has asked");
    let began = bench.clock.now();
    let asked = life::ask(&bench.admin, "node-1").await;
    assert_eq!(word(&bench, asked), "dead");
    assert_eq!(bench.clock.now().duration_since(began).as_secs(), 10);
    let read = life::read(&bench.admin, "node-1").await;
    assert_eq!(word(&bench, read), "dead", "those who may not ask see it too");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_ask_or_not_hear_the_answer_takes_nobody_for_dead() {
    for (method, watched) in [("PATCH", false), ("GET", true)] {
        let bench = blocked().await;
        killed_after(&bench, patient(&bench, "ann", "box:1"), 10).await;
        bench.wire.fail(move |asked, path| {
            let hit = asked == method && path.contains("/leases") && path.contains("watch=true") == watched;
            hit.then(|| Fault::forbidden("leases"))
        });
        let asked = life::ask(&bench.http, "node-1").await;
        assert_eq!(word(&bench, asked), "unheard", "{method}");
        let refused = bench.drain(patient(&bench, "bob", "lab:2")).await;
        assert!(
            matches!(refused.end(), End::Refused { reason: Reason::Owner(OwnerReason::OwnedByEvac { .. }) }),
            "{method}: {:?}",
            refused.end()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_leases_a_drain_renews_its_own_so_that_others_see_it_alive() {
    let bench = blocked().await;
    bench.wire.fail(|method, path| {
        let watches = method == "GET" && path.contains("/leases") && path.contains("managed-by");
        watches.then(|| Fault::forbidden("leases"))
    });
    killed_after(&bench, patient(&bench, "ann", "box:1"), 300).await;
    let writes = leases_written(&bench);
    assert!((9..=12).contains(&writes), "{writes} signs of life in five minutes");
    let read = life::ask(&bench.admin, "node-1").await;
    assert_eq!(word(&bench, read), "alive", "without being asked");
    bench.clock.sleep(Duration::from_secs(90)).await;
    let read = life::ask(&bench.admin, "node-1").await;
    assert_eq!(word(&bench, read), "dead");
}

#[tokio::test(start_paused = true)]
async fn the_same_owner_goes_on_at_once_after_a_kill_and_an_older_run_that_lives_ends() {
    let bench = blocked().await;
    killed_after(&bench, patient(&bench, "ann", "box:1"), 10).await;
    let stop = CancellationToken::new();
    let (second, third) =
        tokio::join!(bench.drain_until(patient(&bench, "ann", "box:2"), stop.clone()), async {
            bench.clock.sleep(Duration::from_secs(5)).await;
            let third = bench.drain_until(patient(&bench, "ann", "box:3"), stop.clone());
            let (third, ()) = tokio::join!(third, async {
                bench.clock.sleep(Duration::from_secs(60)).await;
                stop.cancel();
            });
            third
        });
    assert_eq!(notes(&second), ["Continued"]);
    assert_eq!(
        *second.end(),
        End::Refused { reason: Reason::Owner(OwnerReason::ContinuedElsewhere { instance: "box:3".into() }) }
    );
    assert!(second.took < 6.0, "it notices at once: {}", second.took);
    assert!(matches!(third.end(), End::Stopped { .. }), "{:?}", third.end());
    assert!(lease(&bench).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_write_leases_the_drain_goes_on_and_says_so_once() {
    let bench = Bench::start(2).await;
    bench.pod("a", |_| {}).await;
    bench.wire.fail(|method, path| {
        (method == "POST" && path.contains("/leases")).then(|| Fault::forbidden("leases"))
    });
    let told = bench.drain(bench.request(&["node-1", "node-2"])).await;
    assert!(is_drained(told.end()), "{:?}", told.end());
    assert_eq!(notes(&told), ["LeaseUnavailable"]);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_tried_again_and_not_for_ever() {
    for (failures, left_behind) in [(2, false), (9, true)] {
        let bench = Bench::start(1).await;
        let mut failed = 0;
        bench.wire.fail(move |method, path| {
            (method == "PATCH" && path.contains("/leases/") && failed < failures).then(|| {
                failed += 1;
                Fault::status(500, "", "etcdserver: request timed out")
            })
        });
        let told = bench.drain(bench.request(&["node-1"])).await;
        assert!(is_drained(told.end()), "{:?}", told.end());
        assert_eq!(lease(&bench).await.is_some(), left_behind);
        // Pauses of half a second, one and two.
        assert!(told.took < if left_behind { 4.0 } else { 2.0 }, "{}", told.took);
    }
}

#[tokio::test(start_paused = true)]
async fn a_trial_and_a_refused_drain_write_no_lease() {
    let bench = Bench::start(1).await;
    bench.pod("bare", |pod| pod["metadata"]["ownerReferences"] = json!([])).await;
    bench.drain(bench.request(&["node-1"])).await;
    let mut trial = bench.request(&["node-1"]);
    trial.policy.dry_run = DryRun::Server;
    trial.policy.force = true;
    bench.drain(trial).await;
    assert_eq!(bench.wire.count("evac-drain"), 0);
    assert_eq!(bench.wire.count("POST /apis/coordination"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_somebody_else_removes_the_lease_too() {
    let bench = blocked().await;
    let (told, ()) = tokio::join!(bench.drain(patient(&bench, "ann", "box:1")), async {
        bench.clock.sleep(Duration::from_secs(5)).await;
        evac_engine::nodes::undo(&bench.admin, "node-1", false, false).await.unwrap();
    });
    assert_eq!(*told.end(), End::Refused { reason: Reason::Owner(OwnerReason::CancelledElsewhere) });
    assert!(lease(&bench).await.is_none());
}

/// By how many seconds a written time is ahead of the steady one.
fn ahead(bench: &Bench, written: &Value) -> i64 {
    let written: jiff::Timestamp = written.as_str().unwrap().parse().unwrap();
    written.duration_since(bench.clock.now()).as_secs()
}

#[tokio::test(start_paused = true)]
async fn what_a_drain_writes_follows_a_step_of_the_systems_clock_and_it_answers_through_one() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    for (first, then) in [(1800, 0), (-1800, 0), (0, 1800), (0, -1800)] {
        SECONDS.store(first, Ordering::Relaxed);
        let mut bench = blocked().await;
        bench.http = bench.stepped(&SECONDS);
        let stop = CancellationToken::new();
        let (told, ()) =
            tokio::join!(bench.drain_until(patient(&bench, "ann", "box:1"), stop.clone()), async {
                bench.clock.sleep(Duration::from_secs(2)).await;
                let node: Value = bench.admin.read(&Call::get("/api/v1/nodes/node-1")).await.unwrap();
                let mark = node["metadata"]["annotations"]["evac.dev/drain"].as_str().unwrap();
                let mark: Value = serde_json::from_str(mark).unwrap();
                assert_eq!(ahead(&bench, &mark["since"]), first - 2, "the mark after a step of {first} s");
                let written = lease(&bench).await.expect("a lease");
                assert_eq!(ahead(&bench, &written["spec"]["renewTime"]), first - 2, "the lease");
                SECONDS.store(then, Ordering::Relaxed);
                bench.clock.sleep(Duration::from_secs(60)).await;
                // From the same machine, after the same step.
                let heard = life::ask(&bench.http, "node-1").await;
                let Some(Fact::Lease(lease)) = heard else { panic!("no lease") };
                let now = bench.http.clock().calendar();
                assert!(matches!(life_of(&lease, now), Life::Alive { .. }), "{first} {then}: {lease:?}");
                stop.cancel();
            });
        assert!(matches!(told.end(), End::Stopped { .. }), "{:?}", told.end());
        assert!(lease(&bench).await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_systems_clock_makes_no_drain_take_over_a_living_one() {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    for step in [1800, -1800] {
        SECONDS.store(0, Ordering::Relaxed);
        let bench = blocked().await;
        // It lives and does not get through to the lease for a while.
        bench.wire.fail(|method, path| {
            (method == "PUT" || method == "PATCH")
                .then_some(path)
                .filter(|path| path.contains("/leases/evac-drain"))
                .map(|_| Fault::Slow(6))
        });
        let ann = bench.drain(patient(&bench, "ann", "box:1"));
        let bob = async {
            bench.clock.sleep(Duration::from_secs(30)).await;
            let http = Http::new(bench.admin_client(), bench.clock.stepped_by(&SECONDS), Duration::ZERO);
            let (request, mut silent) = (patient(&bench, "bob", "lab:2"), |_: jiff::Timestamp, _: &Event| {});
            let drain = evac_engine::drain(http, request, CancellationToken::new(), &mut silent);
            let (ends, ()) = tokio::join!(drain, async {
                bench.clock.sleep(Duration::from_secs(2)).await;
                SECONDS.store(step, Ordering::Relaxed);
            });
            ends.unwrap()
        };
        let ends = tokio::select! {
            _ = ann => panic!("it should still be waiting"),
            ends = bob => ends,
        };
        assert!(
            matches!(&ends[0].1, End::Refused { reason: Reason::Owner(OwnerReason::OwnedByEvac { .. }) }),
            "a step of {step} s: {:?}",
            ends[0].1
        );
    }
}
