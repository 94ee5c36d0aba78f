//! What a plan costs in a large cluster: of one node once the cluster is read, and of each node by itself.
//!
//! The objects are those of `scale`; every guest is to be moved, they have eight sizes, and nodes have the labels that a copy asks for. Nothing is sent: the
//! objects are taken in as they would be from a list, and what is measured begins after that, on one core.

use std::time::Instant;

use anyhow::{Result, ensure};
use evac_api::kubevirt::wire as kubevirt;
use evac_api::places::{self, PlacesReader};
use evac_api::{Project, wire};
use evac_core::cluster::index::ListedAt;
use evac_core::cluster::pool::Pool;
use evac_core::machines::Kind;
use evac_core::plan::Planner;
use evac_core::{Fact, Index, Policy, VmVisibility};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::process::peak_kib;
use crate::scale::objects;

/// Mebibytes that the launchers of guests ask for.
const SIZES: [usize; 8] = [2300, 4559, 6700, 8800, 13_000, 17_300, 25_800, 34_200];
/// What launchers and copies of guests like their host ask of nodes, besides what all nodes of these clusters have.
const LABELS: [&str; 2] = [
    "cpu-model-migration.node.kubevirt.io/Skylake-Server-IBRS",
    "machine-type.node.kubevirt.io/pc-q35-rhel9.4.0",
];
const GUESTS_ON_A_NODE: usize = 20;
/// A plan of one node is made of each of so many nodes.
const SAMPLES: usize = 1000;

pub fn run(guests: usize) -> Result<()> {
    let nodes = guests / GUESTS_ON_A_NODE;
    let began = now();
    let index = filled(guests, nodes)?;
    println!(
        "{nodes} nodes, {guests} machines, {} other pods: taken in within {:.1} s",
        guests / 2,
        began.elapsed().as_secs_f64()
    );
    let policy = Policy { ignore_daemonsets: true, delete_emptydir_data: true, ..Policy::default() };
    let began = now();
    let mut planner = Planner::new(&index, &policy, Timestamp::UNIX_EPOCH);
    println!("arranged within {:.1} ms", millis(began));
    let mut took: Vec<f64> = (0..SAMPLES.min(nodes))
        .map(|number| {
            let name = format!("node-{}", number * nodes / SAMPLES.min(nodes));
            let began = now();
            let plan = planner.plan(&[name]);
            assert_eq!(plan.moves, GUESTS_ON_A_NODE, "{:?}", plan.room);
            millis(began)
        })
        .collect();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "plan of one node: median {:.2} ms, p99 {:.2} ms (goal 10), most {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    let began = now();
    let survey = Planner::new(&index, &policy, Timestamp::UNIX_EPOCH).survey();
    ensure!(survey.nodes.len() == nodes, "each node has a line");
    println!("plan --all: {:.2} s (goal 2)", began.elapsed().as_secs_f64());
    if let Some(peak) = peak_kib(std::process::id()) {
        println!("peak of memory, with the cluster in it: {} MiB (goal 256)", peak / 1024);
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the wall")]
fn now() -> Instant {
    Instant::now()
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// Takes objects in as a list of them would be.
fn facts<W: Project + DeserializeOwned>(
    pool: &mut Pool,
    objects: impl Iterator<Item = Value>,
) -> Result<Vec<Fact>> {
    objects
        .map(|object| {
            let mut fact = serde_json::from_value::<W>(object)?.seen();
            pool.share(&mut fact);
            Ok(fact)
        })
        .collect()
}

fn filled(guests: usize, nodes: usize) -> Result<Index> {
    let (mut index, mut pool, mut reader) = (Index::new(), Pool::new(), PlacesReader::new(None));
    let at = ListedAt::default();
    let mut all = Vec::new();
    for number in 0..nodes {
        let mut node = objects::node(number);
        let labels = &mut node["metadata"]["labels"];
        for label in LABELS {
            labels[label] = json!("true");
        }
        reader.node(serde_json::from_value::<places::Node>(node.clone())?);
        all.push(node);
    }
    index.reset(Kind::Node, facts::<wire::Node>(&mut pool, all.into_iter())?, &at);
    for number in 0..guests {
        let mut pod = objects::launcher(number, nodes);
        let memory = format!("{}Mi", SIZES[number / nodes % SIZES.len()]);
        pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!(memory);
        reader.pod(serde_json::from_value::<places::Pod>(pod.clone())?);
        for fact in facts::<wire::Pod>(&mut pool, std::iter::once(pod))? {
            index.apply(fact);
        }
    }
    for number in 0..guests / 2 {
        let pod = objects::pod(number, nodes);
        reader.pod(serde_json::from_value::<places::Pod>(pod.clone())?);
        for fact in facts::<wire::Pod>(&mut pool, std::iter::once(pod))? {
            index.apply(fact);
        }
    }
    let instances = (0..guests).map(|number| {
        let mut vmi = objects::instance(number, nodes);
        vmi["spec"]["evictionStrategy"] = json!("LiveMigrate");
        vmi
    });
    for fact in facts::<kubevirt::VirtualMachineInstance>(&mut pool, instances)? {
        index.apply(fact);
    }
    let budgets = (0..guests).filter(|number| objects::is_guarded(*number)).map(objects::guard);
    let budgets = budgets.chain((0..guests / 20).map(objects::budget));
    index.reset(Kind::Budget, facts::<wire::Budget>(&mut pool, budgets)?, &at);
    index.set_vm_visibility(VmVisibility::Readable);
    let mut places = reader.finish();
    let like_host = index.launchers().map(|pod| (&pod.key, pod.node_name()));
    places.keep_host_models(like_host);
    index.set_places(places);
    Ok(index)
}
