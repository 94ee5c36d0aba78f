//! How far guests have been copied: read from the node agent, told, and never in the way.

use std::time::Duration;

use evac_core::drain::step::Event;
use evac_core::drain::transfer::Copied;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Bench, Told};
use crate::is_drained;
use crate::wire::Fault;

const READINGS: &str = "/proxy/metrics";

/// A cluster on whose nodes KubeVirt's agents run in pods, as they do in a real one.
async fn with_agents(nodes: usize) -> Bench {
    let bench = Bench::start(nodes).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}});
    bench.cluster.create("/api/v1/namespaces", &namespace).await;
    let agents = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "virt-handler"},
        "spec": {
            "selector": {"matchLabels": {"kubevirt.io": "virt-handler"}},
            "template": {
                "metadata": {"labels": {"kubevirt.io": "virt-handler"}},
                "spec": {"containers": [{"name": "virt-handler", "image": "example/virt-handler:1"}]},
            },
        },
    });
    let path = "/apis/apps/v1/namespaces/kubevirt/daemonsets";
    let (code, body) = bench.cluster.create(path, &agents).await;
    assert_eq!(code, 201, "{body}");
    let ready = move |set: &Value| set["status"]["numberReady"] == nodes;
    bench.cluster.until(&format!("{path}/virt-handler"), ready).await;
    bench
}

fn annotated(annotations: Value) -> impl FnOnce(&mut Value) {
    move |vm| {
        for (key, value) in annotations.as_object().unwrap() {
            vm["spec"]["template"]["metadata"]["annotations"][key] = value.clone();
        }
    }
}

async fn drained(bench: &Bench, measure: Option<Duration>) -> Told {
    let mut request = bench.request();
    request.policy.ignore_daemonsets = true;
    request.policy.measure = measure;
    let told = bench.drain(request).await;
    assert!(is_drained(told.end()), "{:?} {:#?}", told.end(), told.events);
    told
}

const EVERY_FIVE: Option<Duration> = Some(Duration::from_secs(5));

fn copies(told: &Told) -> Vec<(u32, Copied)> {
    let copied = |event: &Event| match event {
        Event::Copying { attempt, copied, .. } => Some((*attempt, *copied)),
        _ => None,
    };
    told.events.iter().filter_map(|(_, event)| copied(event)).collect()
}

fn ended(told: &Told) -> Timestamp {
    told.events.last().unwrap().0
}

/// How many of the ranges that were told came true, and how many there were.
fn ranges(told: &Told) -> (usize, usize) {
    let (mut right, mut all) = (0, 0);
    for (at, event) in &told.events {
        if let Event::Outlook { at_least_seconds: Some(least), at_most_seconds: Some(most), .. } = event {
            let left = ended(told).duration_since(*at).as_secs_f64();
            all += 1;
            right += usize::from(*least as f64 <= left && left <= *most as f64);
        }
    }
    (right, all)
}

/// Between two copies of small guests more time passes than in a copy: targets are scheduled and started, slots change hands.
#[tokio::test(start_paused = true)]
async fn the_time_left_of_many_small_guests_comes_true() {
    let bench = with_agents(3).await;
    for n in 0..30 {
        bench.machine(&format!("vm-{n}"), "Always", |_| {}).await;
    }
    let told = drained(&bench, EVERY_FIVE).await;
    let (right, all) = ranges(&told);
    let said: Vec<_> = told
        .events
        .iter()
        .filter_map(|(at, event)| match event {
            Event::Outlook { at_least_seconds, at_most_seconds, .. } => {
                Some((ended(&told).duration_since(*at).as_secs_f64(), *at_least_seconds, *at_most_seconds))
            }
            _ => None,
        })
        .collect();
    assert!(all >= 8 && right * 10 >= all * 9, "{right} of {all}: {said:?}");
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_a_guest_is_told_in_bytes_and_with_a_time_that_comes_true() {
    let bench = with_agents(2).await;
    bench.machine("a", "Always", annotated(json!({"evac.dev/migration-seconds": "30"}))).await;
    let told = drained(&bench, EVERY_FIVE).await;
    let copies = copies(&told);
    assert!(copies.len() >= 5, "{:#?}", told.events);
    for pair in copies.windows(2) {
        let (before, after) = (&pair[0].1, &pair[1].1);
        assert!(after.share > before.share && after.remaining_bytes < before.remaining_bytes, "{pair:?}");
    }
    let (attempt, last) = copies.last().unwrap();
    assert_eq!((*attempt, last.converging), (1, Some(true)));
    assert!(last.share.percent() > 70, "{last:?}");
    let memory = last.total_bytes.unwrap();
    assert!((last.processed_bytes + last.remaining_bytes).abs_diff(memory) <= 2, "{last:?}");
    assert!(last.bytes_per_second.unwrap().abs_diff(memory / 30) <= 1, "{last:?}");

    let (right, all) = ranges(&told);
    assert!(all >= 5 && right == all, "{right} of {all}: {:#?}", told.events);
    let readings = bench.wire.count(READINGS);
    assert!((5..=7).contains(&readings), "{readings}");
}

#[tokio::test(start_paused = true)]
async fn a_new_migration_is_a_new_attempt_with_a_share_of_its_own() {
    let bench = with_agents(2).await;
    let behaviour = json!({"evac.dev/migration-seconds": "16", "evac.dev/migration-fails": "1"});
    bench.machine("a", "Always", annotated(behaviour)).await;
    let told = drained(&bench, EVERY_FIVE).await;
    let copies = copies(&told);
    let of = |attempt: u32| copies.iter().filter(move |one| one.0 == attempt).map(|one| one.1.share);
    assert!(of(1).count() >= 3 && of(2).count() >= 3, "{:#?}", told.events);
    assert!(of(1).is_sorted() && of(2).is_sorted());
    assert!(of(2).next() < of(1).next_back(), "{copies:?}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_changes_faster_than_it_is_copied_is_named_as_such() {
    let bench = with_agents(2).await;
    let busy = |vm: &mut Value| {
        annotated(json!({"evac.dev/dirty-rate": "2000"}))(vm);
        vm["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] = json!("20Gi");
    };
    bench.machine("a", "Always", busy).await;
    let mut request = bench.request();
    request.policy.ignore_daemonsets = true;
    request.policy.measure = EVERY_FIVE;
    request.policy.timeout = Some(Duration::from_secs(60));
    let told = bench.drain(request).await;
    let copies = copies(&told);
    assert_eq!(copies.last().unwrap().1.converging, Some(false), "{copies:?}");
    assert!(copies.iter().map(|one| one.1.share).is_sorted());
    let (_, ranges) = ranges(&told);
    assert_eq!(ranges, 0, "nobody knows when it ends: {:#?}", told.events);
}

/// What cannot be read changes nothing about the drain: neither what is told of it nor how long it takes.
#[tokio::test(start_paused = true)]
async fn a_drain_goes_the_same_way_whatever_becomes_of_the_readings() {
    let hanging = || Fault::Crash { after: false, died: CancellationToken::new() };
    let table: [(&str, Option<Fault>, usize); 6] = [
        ("not asked", None, 0),
        ("403", Some(Fault::forbidden("pods/proxy")), 1),
        ("404", Some(Fault::status(404, "NotFound", "not found")), 1),
        ("503", Some(Fault::status(503, "ServiceUnavailable", "no agent")), 4),
        ("garbage", Some(Fault::Answer(200, json!("{{{{ 12"))), 4),
        ("no answer", Some(hanging()), 2),
    ];
    let mut usual = None;
    for (name, fault, readings) in table {
        let bench = with_agents(2).await;
        bench.machine("a", "Always", annotated(json!({"evac.dev/migration-seconds": "20"}))).await;
        let measure = EVERY_FIVE.filter(|_| fault.is_some());
        bench.wire.fail(move |_, path| fault.clone().filter(|_| path.contains(READINGS)));
        let told = drained(&bench, measure).await;
        assert_eq!(bench.wire.count(READINGS), readings, "{name}");
        let story: Vec<Value> = told.events.iter().map(|(_, event)| json!(event)["type"].clone()).collect();
        let took = ended(&told).duration_since(told.began);
        let (usual_story, usual_took) = usual.get_or_insert((story.clone(), took));
        assert_eq!(story, *usual_story, "{name}");
        assert!((took - *usual_took).abs().as_secs() < 1, "{name}: {took} and not {usual_took}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_agents_in_pods_nothing_is_asked() {
    let bench = Bench::start(2).await;
    bench.machine("a", "Always", annotated(json!({"evac.dev/migration-seconds": "20"}))).await;
    let told = drained(&bench, EVERY_FIVE).await;
    assert_eq!((copies(&told).len(), bench.wire.count(READINGS)), (0, 0));
}
