use proptest::prelude::*;

use super::*;
use crate::build::at;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

fn place(pod: &str, node: &str) -> Place {
    Place { pod: Key::new("ns", pod), pod_uid: format!("{pod}-uid"), node: node.to_owned() }
}

fn machine(name: &str, disks: &[&str]) -> Machine {
    Machine {
        key: Key::new("ns", name),
        uid: format!("{name}-uid"),
        disks: disks.iter().map(ToString::to_string).collect(),
    }
}

fn with_guests(count: usize) -> Hypervisor {
    let mut hypervisor = Hypervisor::new(GIB);
    for i in 0..count {
        hypervisor.start(
            place(&format!("pod{i}"), "n1"),
            machine(&format!("vm{i}"), &[&format!("disk{i}")]),
            Plan { memory: 10.0 * GIB, ..Plan::default() },
            at(0),
        );
    }
    hypervisor.advance(at(10));
    hypervisor
}

fn quiet() -> Terms {
    Terms { memory: 10.0 * GIB, ..Terms::default() }
}

fn state(hypervisor: &Hypervisor, pod: &str) -> State {
    hypervisor.domain(&format!("{pod}-uid")).unwrap().guest.state
}

#[test]
fn a_guest_moves_with_its_disks_and_is_never_in_two_places() {
    let mut h = with_guests(1);
    assert!(h.begin_move("m", "pod0-uid", place("target", "n2"), quiet(), at(10)));
    h.advance(at(19));
    assert_eq!(h.writers("disk0").collect::<Vec<_>>(), ["ns/pod0 on n1"]);
    h.advance(at(20));
    assert_eq!(state(&h, "pod0"), State::Off { at: at(20), how: End::Migrated });
    assert_eq!(state(&h, "target"), State::Running);
    assert_eq!(h.writers("disk0").collect::<Vec<_>>(), ["ns/target on n2"]);
    assert!(h.violations().is_empty());
}

#[test]
fn two_migrations_from_one_node_share_its_network() {
    let mut h = with_guests(2);
    h.begin_move("a", "pod0-uid", place("t0", "n2"), quiet(), at(10));
    h.advance(at(15));
    h.begin_move("b", "pod1-uid", place("t1", "n3"), quiet(), at(15));
    // 5 GiB are done; the other 5 take 10 s at half speed. Then the second has 5 GiB left at full speed.
    h.advance(at(24));
    assert!(h.moving("pod0-uid").unwrap().transfer.active());
    h.advance(at(25));
    assert!(!h.moving("pod0-uid").unwrap().transfer.active());
    assert_eq!(h.next("pod1-uid"), Some(at(30)));
    h.advance(at(30));
    assert_eq!(h.moving("pod1-uid").unwrap().transfer.outcome, Some(Outcome::Done));
}

#[test]
fn who_is_leaving_is_told_with_how_far_it_is() {
    let mut h = with_guests(2);
    let busy = Terms { dirty_rate: 0.1 * GIB, ..quiet() };
    h.begin_move("a", "pod0-uid", place("t0", "n2"), busy, at(10));
    let found = h.leaving("n1", at(14));
    let expected = Leaving {
        machine: Key::new("ns", "vm0"),
        total: 10.0 * GIB,
        sent: 4.0 * GIB,
        remaining: 6.0 * GIB,
        rate: GIB,
        dirty_rate: 0.1 * GIB,
    };
    assert_eq!(found, [expected]);
    assert_eq!(h.leaving("n2", at(14)), []);
    h.advance(at(40));
    assert_eq!(h.leaving("n1", at(40)), []);
}

#[test]
fn how_often_one_looks_does_not_change_what_happens() {
    let run = |every: i64| {
        let mut h = with_guests(2);
        let busy = Terms { dirty_rate: 0.4 * GIB, ..quiet() };
        h.begin_move("a", "pod0-uid", place("t0", "n2"), busy.clone(), at(10));
        h.begin_move("b", "pod1-uid", place("t1", "n2"), busy, at(10));
        let mut t = 10;
        while t < 400 {
            t += every;
            h.advance(at(t));
        }
        (state(&h, "pod0"), state(&h, "pod1"))
    };
    assert_eq!(run(1), run(390));
}

#[test]
fn an_aborted_migration_leaves_the_guest_where_it_was() {
    let mut h = with_guests(1);
    h.begin_move("m", "pod0-uid", place("t", "n2"), quiet(), at(10));
    assert!(h.abort_move("pod0-uid", at(15)));
    h.advance(at(100));
    assert_eq!(state(&h, "pod0"), State::Running);
    assert!(h.domain("t-uid").is_none());
    assert!(!h.abort_move("pod0-uid", at(101)));
}

#[test]
fn a_target_that_dies_fails_the_migration_and_a_source_that_dies_takes_the_guest() {
    let mut h = with_guests(2);
    h.begin_move("m", "pod0-uid", place("t", "n2"), quiet(), at(10));
    h.power_off("n2", at(12));
    assert!(matches!(h.moving("pod0-uid").unwrap().transfer.outcome, Some(Outcome::Failed(_))));
    assert_eq!(state(&h, "pod0"), State::Running);
    h.begin_move("m", "pod1-uid", place("u", "n3"), quiet(), at(13));
    h.power_off("n1", at(14));
    assert_eq!(state(&h, "pod1"), State::Off { at: at(14), how: End::Lost });
    h.advance(at(100));
    assert!(h.domain("u-uid").is_none());
}

#[test]
fn starting_a_machine_elsewhere_while_it_still_runs_is_a_violation() {
    let mut h = with_guests(1);
    h.start(place("second", "n2"), machine("vm0", &["disk0"]), Plan::default(), at(20));
    let texts: Vec<String> = h.violations().iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("disk disk0 has 2 writers: ns/pod0 on n1, ns/second on n2"), "{texts:?}");
    assert!(texts[1].contains("ns/vm0 runs in 2 places"), "{texts:?}");
}

#[test]
fn starting_it_elsewhere_after_the_power_was_cut_is_none() {
    let mut h = with_guests(1);
    h.power_off("n1", at(15));
    h.start(place("second", "n2"), machine("vm0", &["disk0"]), Plan::default(), at(20));
    assert!(h.violations().is_empty());
}

#[test]
fn what_changed_is_told_once() {
    let mut h = with_guests(1);
    h.take_touched();
    h.shut_down("pod0-uid", 30.0, at(20));
    assert_eq!(h.take_touched().len(), 1);
    h.advance(at(23));
    let touched = h.take_touched();
    assert_eq!(touched.into_iter().next(), Some((Key::new("ns", "vm0"), Key::new("ns", "pod0"))));
    assert!(h.take_touched().is_empty());
}

#[test]
fn a_source_that_dies_in_post_copy_takes_the_guest_on_the_target_along() {
    let mut h = with_guests(1);
    let terms = Terms {
        dirty_rate: 2.0 * GIB,
        post_copy: true,
        may_disrupt: true,
        completion_limit: Some(5.0),
        ..quiet()
    };
    h.begin_move("m", "pod0-uid", place("t", "n2"), terms, at(10));
    h.advance(at(16));
    assert_eq!(state(&h, "t"), State::Running);
    assert!(!h.abort_move("pod0-uid", at(16)));
    h.power_off("n1", at(17));
    assert_eq!(state(&h, "t"), State::Off { at: at(17), how: End::Crashed });
}

#[test]
fn a_node_that_is_cut_off_keeps_its_guests_and_loses_its_migrations() {
    let mut h = with_guests(2);
    h.begin_move("a", "pod0-uid", place("t", "n2"), quiet(), at(10));
    h.cut_off("n2", at(12));
    assert!(matches!(h.moving("pod0-uid").unwrap().transfer.outcome, Some(Outcome::Failed(_))));
    h.begin_move("b", "pod1-uid", place("u", "n3"), quiet(), at(12));
    h.cut_off("n1", at(14));
    h.advance(at(200));
    assert!(h.domain("t-uid").is_none() && h.domain("u-uid").is_none());
    assert_eq!((state(&h, "pod0"), state(&h, "pod1")), (State::Running, State::Running));
}

#[derive(Debug, Clone)]
enum Deed {
    Wait(i64),
    Move(usize, usize),
    Abort(usize),
    CutOff(usize),
    ShutDown(usize),
    LosePod(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (1_i64..20).prop_map(Deed::Wait),
        (0_usize..3, 1_usize..4).prop_map(|(guest, node)| Deed::Move(guest, node)),
        (0_usize..3).prop_map(Deed::Abort),
        (1_usize..4).prop_map(Deed::CutOff),
        (0_usize..3).prop_map(Deed::ShutDown),
        (0_usize..3).prop_map(Deed::LosePod),
    ]
}

proptest! {
    /// Whatever is done to three machines that were started once each: none ever runs in two places, and what
    /// is over stays over.
    #[test]
    fn no_order_of_deeds_makes_a_machine_run_twice(
        deeds in prop::collection::vec(deed(), 1..60),
        post_copy in any::<bool>(),
        dirty in 0.0_f64..2.0,
    ) {
        let mut h = with_guests(3);
        let mut now = 10;
        for (number, deed) in deeds.into_iter().enumerate() {
            let home = |h: &Hypervisor, guest: usize| {
                let key = Key::new("ns", format!("vm{guest}"));
                h.of_machine(&key).find(|d| d.guest.on()).map(|d| d.place.pod_uid.clone())
            };
            match deed {
                Deed::Wait(seconds) => now += seconds,
                Deed::Move(guest, node) => {
                    let terms = Terms {
                        dirty_rate: dirty * GIB,
                        post_copy,
                        may_disrupt: post_copy,
                        completion_limit: Some(25.0),
                        ..quiet()
                    };
                    if let Some(source) = home(&h, guest) {
                        let target = place(&format!("t{number}"), &format!("n{node}"));
                        h.begin_move(&number.to_string(), &source, target, terms, at(now));
                    }
                }
                Deed::Abort(guest) => {
                    if let Some(source) = home(&h, guest) {
                        h.abort_move(&source, at(now));
                    }
                }
                Deed::CutOff(node) => h.cut_off(&format!("n{node}"), at(now)),
                Deed::ShutDown(guest) => {
                    if let Some(pod) = home(&h, guest) {
                        h.shut_down(&pod, 30.0, at(now));
                    }
                }
                Deed::LosePod(guest) => {
                    if let Some(pod) = home(&h, guest) {
                        h.pod_gone(&pod, at(now));
                    }
                }
            }
            h.advance(at(now));
            for guest in 0..3 {
                let key = Key::new("ns", format!("vm{guest}"));
                let places = h.of_machine(&key).filter(|d| d.guest.on()).count();
                prop_assert!(places <= 1);
                prop_assert_eq!(h.writers(&format!("disk{guest}")).count(), places);
            }
            prop_assert!(h.violations().is_empty());
        }
    }
}
