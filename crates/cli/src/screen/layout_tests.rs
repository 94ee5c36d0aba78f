//! What is seen of a drain on terminals of three sizes.

use evac_core::drain::run::{Blocker, End};
use evac_core::drain::step::Event;
use evac_core::drain::transfer::Share;
use evac_core::reasons::{BudgetReason, GuestReason};
use evac_core::{Assessment, Fate, Proof, Uid, Verdict};

use super::*;

const GIB: u64 = 1 << 30;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn pod(name: &str) -> Key {
    Key::new("shop", name)
}

fn launcher(name: &str) -> Key {
    Key::new("lab", format!("virt-launcher-{name}-x2x4z"))
}

fn vm(name: &str) -> Key {
    Key::new("lab", name)
}

fn planned(node: &str, vms: &[&str], pods: &[String]) -> Event {
    let verdict =
        |pod: Key, fate, instance| Verdict { pod, uid: Uid::from("u"), fate, reasons: Vec::new(), instance };
    let guests = vms.iter().map(|name| verdict(launcher(name), Fate::Migrate, Some(vm(name))));
    let others = pods.iter().map(|name| verdict(pod(name), Fate::Evict, None));
    let stays = verdict(Key::new("kube-system", "agent"), Fate::Leave, None);
    let verdicts = guests.chain(others).chain([stays]).collect();
    Event::Planned { node: node.into(), assessment: Assessment { node: node.into(), verdicts } }
}

fn in_phase(node: &str, name: &str, phase: &str) -> Event {
    let (migration, phase) = ("m".into(), phase.into());
    Event::MovePhase { instance: vm(name), pod: launcher(name), node: node.into(), migration, phase }
}

fn copying(node: &str, name: &str, percent: u64) -> Event {
    let copied = Copied {
        processed_bytes: 5 * GIB * percent / 100,
        remaining_bytes: 5 * GIB * (100 - percent) / 100,
        total_bytes: Some(5 * GIB),
        bytes_per_second: Some(310 << 20),
        dirty_bytes_per_second: None,
        share: Share::of(percent, 100 - percent),
        converging: None,
    };
    let (instance, migration) = (vm(name), "m".into());
    Event::Copying { instance, pod: launcher(name), node: node.into(), migration, attempt: 1, copied }
}

fn asked(node: &str, name: &str) -> Event {
    Event::Evicting { pod: pod(name), node: node.into(), attempt: 1, deleting: false, finished: false }
}

fn waiting(node: &str, pods: Vec<Key>, reason: impl Into<Reason>) -> Event {
    let mut pods = pods.into_iter();
    let blocker = Blocker { pod: pods.next().unwrap(), owner: None, reason: reason.into(), since: at(0) };
    Event::Waiting { node: node.into(), blocker, also: pods.collect() }
}

/// A busy node after 20 seconds.
fn busy() -> View {
    let node = "worker-3";
    let vms = ["billing", "gpu-7", "ledger", "mail", "search", "wiki"];
    let names: Vec<String> = (1..=24).map(|number| format!("web-{number}")).collect();
    let mut view = View::default();
    view.take(at(0), &planned(node, &vms, &names));
    view.take(at(1), &asked(node, "web-1"));
    view.take(at(4), &asked(node, "web-2"));
    view.take(at(6), &asked(node, "web-3"));
    for name in ["billing", "ledger", "wiki"] {
        view.take(at(7), &in_phase(node, name, "Pending"));
    }
    view.take(at(8), &in_phase(node, "mail", "Running"));
    view.take(at(9), &in_phase(node, "search", "TargetReady"));
    view.take(at(10), &copying(node, "mail", 62));
    let left = Event::Left { pod: pod("web-3"), node: node.into(), by_us: true, deleting: false };
    view.take(at(12), &left);
    view.take(at(12), &Event::Progress { node: node.into(), left: 29, total: 30, vms_left: 6, vms_total: 6 });
    let budget = BudgetReason::BudgetExhausted { budget: Key::new("shop", "web"), needs: 22, has: 22 };
    view.take(at(12), &waiting(node, (4..=15).map(|number| pod(&format!("web-{number}"))).collect(), budget));
    let cause = "it has a host device".to_owned();
    view.take(
        at(12),
        &waiting(
            node,
            vec![launcher("gpu-7")],
            GuestReason::VmStuck {
                instance: "gpu-7".into(),
                cause: "HostDeviceNotLiveMigratable".into(),
                message: cause,
            },
        ),
    );
    let (at_least_seconds, at_most_seconds) = (Some(180), Some(300));
    let outlook =
        Event::Outlook { node: node.into(), guests: 6, at_least_seconds, at_most_seconds, unknown: None };
    view.take(at(15), &outlook);
    view
}

/// Twelve nodes, the first of them empty.
fn many() -> View {
    let mut view = View::default();
    for number in 1..=12 {
        let node = format!("node-{number}");
        let vms = [format!("a-{number}"), format!("b-{number}")];
        let vms: Vec<&str> = vms.iter().map(String::as_str).collect();
        view.take(at(0), &planned(&node, &vms, &[format!("p-{number}"), format!("q-{number}")]));
        view.take(at(1), &asked(&node, &format!("p-{number}")));
        view.take(at(1), &in_phase(&node, vms[0], "Running"));
    }
    let end = End::Drained { proof: Proof::Yes };
    view.take(
        at(2),
        &Event::Progress { node: "node-1".into(), left: 0, total: 4, vms_left: 0, vms_total: 2 },
    );
    view.take(at(2), &Event::Ended { node: "node-1".into(), end });
    let budget =
        BudgetReason::BudgetNever { budget: Key::new("shop", "q"), rule: "maxUnavailable is 0".into() };
    view.take(at(4), &waiting("node-2", (2..=4).map(|number| pod(&format!("q-{number}"))).collect(), budget));
    view
}

fn seen(view: &View, columns: usize, height: usize) -> String {
    let rows = layout(view, at(20), columns, height);
    rows.iter().flat_map(|row| [row.text.as_str(), "\n"]).collect()
}

#[track_caller]
fn is(seen: &str, expected: &str) {
    assert!(seen == expected, "seen:\n{seen}\nexpected:\n{expected}");
}

#[test]
fn one_node_at_40_columns() {
    is(&seen(&busy(), 40, 20), include_str!("snapshots/busy-40x20.txt"));
}

#[test]
fn one_node_at_80_columns() {
    is(&seen(&busy(), 80, 24), include_str!("snapshots/busy-80x24.txt"));
}

#[test]
fn the_page_about_drains_shows_the_view_as_it_is() {
    let page = include_str!("../../../../docs/drain.md");
    assert!(
        page.contains(&format!("```\n{}```\n", seen(&busy(), 80, 24))),
        "docs/drain.md shows another view"
    );
}

#[test]
fn one_node_at_200_columns() {
    is(&seen(&busy(), 200, 50), include_str!("snapshots/busy-200x50.txt"));
}

#[test]
fn many_nodes_at_40_columns() {
    is(&seen(&many(), 40, 20), include_str!("snapshots/many-40x20.txt"));
}

#[test]
fn many_nodes_at_80_columns() {
    is(&seen(&many(), 80, 24), include_str!("snapshots/many-80x24.txt"));
}

#[test]
fn many_nodes_at_200_columns() {
    is(&seen(&many(), 200, 50), include_str!("snapshots/many-200x50.txt"));
}

#[test]
fn nothing_is_wider_or_higher_than_the_terminal() {
    for view in [busy(), many()] {
        for columns in 1..120 {
            for height in 1..60 {
                let rows = layout(&view, at(20), columns, height);
                assert!(rows.len() <= height.saturating_sub(1).max(1), "{columns}x{height}: {}", rows.len());
                let wide = rows.iter().find(|row| width(&row.text) > columns);
                assert_eq!(wide, None, "{columns}x{height}");
            }
        }
    }
}

#[test]
fn what_is_in_the_way_is_seen_on_the_smallest_terminal_that_has_room_for_it() {
    assert!(seen(&busy(), 80, 8).contains("in the way: lab/gpu-7"), "{}", seen(&busy(), 80, 8));
}

#[test]
fn a_name_from_the_cluster_cannot_draw() {
    let mut view = View::default();
    view.take(at(0), &planned("n", &[], &["a".into()]));
    let rule = BudgetReason::BudgetRefused { message: "\u{1b}[2J\nnode/n drained".into() };
    view.take(at(1), &waiting("n", vec![pod("a\u{1b}[H")], rule));
    let seen = seen(&view, 80, 24);
    assert!(!seen.contains('\u{1b}') && seen.lines().count() == 4, "{seen:?}");
}

#[test]
fn when_nothing_is_drained_nothing_is_shown() {
    let mut view = View::default();
    assert_eq!(layout(&view, at(0), 80, 24), []);
    view.take(at(0), &planned("n", &[], &["a".into()]));
    let end = End::Drained { proof: Proof::Yes };
    view.take(at(1), &Event::Ended { node: "n".into(), end });
    assert_eq!(layout(&view, at(1), 80, 24), []);
}
