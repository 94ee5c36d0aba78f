use super::*;
use crate::cluster::fact::PodPhase;
use crate::cluster::fact::{Fact, Node};
use crate::machines::MigrationState;
use crate::machines::testing::*;

fn run(seen: &[&dyn Fn() -> crate::cluster::fact::Fact], name: &str) -> Decision {
    decide(&view(seen.iter().map(|one| one())), &Key::new("default", name), now())
}

macro_rules! decide_on {
    ($name:expr, $($fact:expr),+) => {
        run(&[$(&|| (&$fact).known()),+], $name)
    };
}

#[test]
fn a_new_instance_is_accepted_with_finalizer_and_the_clusters_strategy() {
    let mut vmi = instance("a", Phase::Unset);
    vmi.finalizers.clear();
    vmi.eviction_strategy = None;
    let mut index = view([(&vmi).known()]);
    index.config.eviction_strategy = Some("LiveMigrate".into());
    let decision = decide(&index, &vmi.key, now());
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(text(fields, &["status", "phase"]), Some("Pending"));
    assert_eq!(text(fields, &["spec", "evictionStrategy"]), Some("LiveMigrate"));
    assert_eq!(fields.get(&["metadata", "finalizers"]), Some(&Tree::texts([names::INSTANCE_FINALIZER])));
}

#[test]
fn a_pending_instance_gets_one_launcher_whose_name_follows_from_its_identity() {
    let vmi = instance("a", Phase::Pending);
    let expected = names::launcher("a", "uid-a", None);
    let decision = decide_on!("a", vmi);
    let names: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Own(Own::CreateLauncher { name, job: None, .. }) => Some(name.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(names, [expected]);
}

#[test]
fn phases_follow_the_pod_up_to_the_hand_over() {
    let pending = instance("a", Phase::Pending);
    let unbound = launcher(&pending, "");
    let decision = decide_on!("a", pending, unbound);
    assert_eq!(text(patches(&decision, Kind::Instance)[0], &["status", "phase"]), Some("Scheduling"));

    let scheduling = instance("a", Phase::Scheduling);
    let decision = decide_on!("a", scheduling, unbound);
    assert!(patches(&decision, Kind::Instance)[0].get(&["status", "phase"]).is_none());

    let bound = launcher(&scheduling, "n7");
    let decision = decide_on!("a", scheduling, bound);
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(text(fields, &["status", "phase"]), Some("Scheduled"));
    assert_eq!(text(fields, &["status", "nodeName"]), Some("n7"));
    assert_eq!(text(fields, &["metadata", "labels", names::NODE_NAME]), Some("n7"));
}

#[test]
fn x21_a_guest_without_a_pod_has_failed() {
    for phase in [Phase::Scheduled, Phase::Running, Phase::Scheduling] {
        let vmi = instance("a", phase);
        let decision = decide_on!("a", vmi);
        assert_eq!(
            text(patches(&decision, Kind::Instance)[0], &["status", "phase"]),
            Some("Failed"),
            "{phase:?}"
        );
    }
}

#[test]
fn a_finished_plain_instance_stays_as_it_is() {
    let mut vmi = instance("a", Phase::Succeeded);
    vmi.conditions =
        vec![Condition::new("Ready", false, "PodNotExists", "virt-launcher pod has not yet been scheduled")];
    assert_eq!(decide_on!("a", vmi), Decision::nothing());
}

#[test]
fn a_terminating_pod_makes_the_instance_not_ready_while_the_guest_runs() {
    let vmi = instance("a", Phase::Running);
    let mut pod = launcher(&vmi, "n1");
    pod.deletion = Some(crate::cluster::fact::Deletion { ends: now(), grace_seconds: 30 });
    let decision = decide_on!("a", vmi, pod);
    let fields = patches(&decision, Kind::Instance)[0];
    assert!(fields.get(&["status", "phase"]).is_none());
    let Some(Tree::List(list)) = fields.get(&["status", "conditions"]) else { panic!("no conditions") };
    assert_eq!(text(&list[0], &["reason"]), Some("PodTerminating"));
}

#[test]
fn a_deleted_instance_takes_its_pods_along_and_goes_when_they_are_gone() {
    let mut vmi = instance("a", Phase::Running);
    vmi.deleting = true;
    let pod = launcher(&vmi, "n1");
    let decision = decide_on!("a", vmi, pod);
    assert_eq!(deletes(&decision, Kind::Pod), std::slice::from_ref(&pod.key.name));

    let mut over = vmi.clone();
    over.phase = Phase::Succeeded;
    let mut ended = pod.clone();
    ended.phase = PodPhase::Succeeded;
    ended.deletion = Some(crate::cluster::fact::Deletion { ends: now(), grace_seconds: 30 });
    let decision = decide_on!("a", over, ended);
    assert!(patches(&decision, Kind::Instance)[0].get(&["metadata", "finalizers"]).is_none());

    let decision = decide_on!("a", over);
    let fields = patches(&decision, Kind::Instance)[0];
    assert_eq!(fields.get(&["metadata", "finalizers"]), Some(&Tree::List(Vec::new())));
}

#[test]
fn v18_to_v22_a_marked_instance_and_its_launcher_say_so_until_it_is_unmarked() {
    let mut vmi = instance("a", Phase::Running);
    vmi.evacuation_node = Some("n1".into());
    let pod = launcher(&vmi, "n1");
    let decision = decide_on!("a", vmi, pod);
    let Some(Tree::List(list)) = patches(&decision, Kind::Instance)[0].get(&["status", "conditions"]) else {
        panic!("no conditions")
    };
    assert!(list.iter().any(|condition| text(condition, &["type"]) == Some("EvictionRequested")));
    let fields = patches(&decision, Kind::Pod)[0];
    assert_eq!(text(fields, &["metadata", "annotations", names::EVICTION_IN_PROGRESS]), Some("true"));

    vmi.evacuation_node = None;
    vmi.conditions = vec![Condition::new("EvictionRequested", true, "EvictionRequested", "")];
    let mut marked = pod.clone();
    marked.guest().eviction_marked = true;
    let decision = decide_on!("a", vmi, marked);
    let Some(Tree::List(list)) = patches(&decision, Kind::Instance)[0].get(&["status", "conditions"]) else {
        panic!("no conditions")
    };
    assert!(!list.iter().any(|condition| text(condition, &["type"]) == Some("EvictionRequested")));
    let fields = patches(&decision, Kind::Pod)[0];
    assert_eq!(fields.get(&["metadata", "annotations", names::EVICTION_IN_PROGRESS]), Some(&Tree::null()));
}

#[test]
fn a_guest_that_arrives_is_unmarked_when_the_node_agents_have_written_their_last() {
    let mut vmi = instance("a", Phase::Running);
    vmi.conditions = vec![Condition::new("EvictionRequested", true, "EvictionRequested", "")];
    let pod = launcher(&vmi, "n1");
    let says = |vmi: &Instance| {
        let decision = decide_on!("a", vmi, pod);
        let changes = patches(&decision, Kind::Instance);
        let Some(Tree::List(list)) = changes.iter().find_map(|one| one.get(&["status", "conditions"])) else {
            panic!("no conditions")
        };
        list.iter().any(|condition| text(condition, &["type"]) == Some("EvictionRequested"))
    };
    let arrived = MigrationState { started: true, ended: true, ..MigrationState::default() };
    vmi.migration = Some(Box::new(arrived.clone()));
    assert!(says(&vmi), "their last write is under way");
    vmi.migration = Some(Box::new(MigrationState { completed: true, ..arrived }));
    assert!(!says(&vmi));
}

#[test]
fn a_paused_guest_is_said_on_its_pod() {
    let mut vmi = instance("a", Phase::Running);
    vmi.conditions = vec![Condition::new("Paused", true, "PausedByUser", "")];
    let pod = launcher(&vmi, "n1");
    let decision = decide_on!("a", vmi, pod);
    assert_eq!(part_of(&decision, Kind::Pod), Some(Part::Status));
}

#[test]
fn the_target_of_a_migration_is_not_taken_for_the_current_launcher() {
    let vmi = instance("a", Phase::Running);
    let source = launcher(&vmi, "n1");
    let job = migration("m", &vmi, crate::machines::MigrationPhase::Scheduling);
    let mut target = target(&vmi, &job, "n2");
    target.created = Some(later(60));
    assert_eq!(current(&vmi, &[&source, &target]).map(|pod| &pod.key), Some(&source.key));
}

/// A guest that went from n1 to n2 and back: its first launcher, which has completed, and the one it lives in now.
fn after_a_round_trip() -> (Instance, Pod, Pod) {
    let mut vmi = instance("a", Phase::Running);
    let mut first = launcher(&vmi, "n1");
    first.phase = PodPhase::Succeeded;
    first.guest().up = false;
    let back = migration("back", &vmi, crate::machines::MigrationPhase::Succeeded);
    let mut home = target(&vmi, &back, "n1");
    home.created = Some(later(60));
    vmi.migration = Some(Box::new(MigrationState {
        uid: back.uid.to_string(),
        source_node: "n2".into(),
        source_pod: "launcher-on-n2".into(),
        target_node: "n1".into(),
        target_pod: home.key.name.to_string(),
        started: true,
        ended: true,
        completed: true,
        ..MigrationState::default()
    }));
    (vmi, first, home)
}

fn phase_of(decision: &Decision) -> Option<&str> {
    patches(decision, Kind::Instance).iter().find_map(|fields| text(fields, &["status", "phase"]))
}

#[test]
fn a_guest_that_loses_its_launcher_has_failed_although_one_that_it_left_is_still_on_its_node() {
    let (vmi, first, home) = after_a_round_trip();
    let decision = decide_on!("a", vmi, first, home);
    assert_eq!(phase_of(&decision), None);
    let decision = decide_on!("a", vmi, first);
    assert_eq!(phase_of(&decision), Some("Failed"), "the live one went with the node");
}

#[test]
fn a_failed_move_does_not_make_an_earlier_launcher_the_current_one() {
    let (mut vmi, first, home) = after_a_round_trip();
    vmi.migration = Some(Box::new(MigrationState {
        uid: "away".into(),
        source_node: "n1".into(),
        source_pod: home.key.name.to_string(),
        target_node: "n3".into(),
        target_pod: "launcher-on-n3".into(),
        started: true,
        ended: true,
        completed: true,
        failed: true,
        ..MigrationState::default()
    }));
    assert_eq!(current(&vmi, &[&first, &home]).map(|pod| &pod.key), Some(&home.key));
    assert_eq!(current(&vmi, &[&first]), None);
}

#[test]
fn a_launcher_that_ends_under_its_guest_stays_current_until_the_node_agent_has_said_how_it_ended() {
    let vmi = instance("a", Phase::Running);
    let mut pod = launcher(&vmi, "n1");
    pod.phase = PodPhase::Succeeded;
    pod.guest().up = false;
    assert_eq!(phase_of(&decide_on!("a", vmi, pod)), None, "it may have been shut down in good order");
    let (vmi, first, mut home) = after_a_round_trip();
    home.phase = PodPhase::Succeeded;
    home.guest().up = false;
    assert_eq!(current(&vmi, &[&first, &home]).map(|pod| &pod.key), Some(&home.key));
    assert_eq!(phase_of(&decide_on!("a", vmi, first, home)), None);
}

#[test]
fn a_guest_whose_launcher_ended_on_a_node_that_is_out_of_service_has_failed_because_no_agent_will_say_more() {
    let vmi = instance("a", Phase::Running);
    let mut pod = launcher(&vmi, "n1");
    pod.phase = PodPhase::Succeeded;
    pod.guest().up = false;
    let mut host = crate::testing::node("n1");
    let decided = |host: &Node, pod: &Pod| {
        let host = Fact::Node(Box::new(host.clone()));
        let index = view([(&vmi).known(), pod.known(), host]);
        phase_of(&decide(&index, &vmi.key, now())).map(str::to_owned)
    };
    assert_eq!(decided(&host, &pod), None);
    host.taints.push(crate::failover::suspect::out_of_service());
    assert_eq!(decided(&host, &pod).as_deref(), Some("Failed"));
    let runs = launcher(&vmi, "n1");
    assert_eq!(decided(&host, &runs), None, "its pod has to go first");
}

#[test]
fn a_second_look_at_the_same_state_wants_nothing() {
    let vmi = instance("a", Phase::Running);
    let pod = launcher(&vmi, "n1");
    let mut settled = vmi.clone();
    settled.active_pods = [(pod.uid.0.clone(), "n1".to_owned())].into();
    settled.conditions = vec![Condition::new("Ready", true, "", "")];
    assert_eq!(decide_on!("a", settled, pod), Decision::nothing());
}

#[test]
fn a_guest_that_has_arrived_stays_ready_while_only_our_mark_is_missing_on_its_new_pod() {
    let mut vmi = instance("a", Phase::Running);
    vmi.conditions = vec![Condition::new("Ready", true, "", "")];
    let gate =
        |kind: &str| format!("corresponding condition of pod readiness gate \"{kind}\" does not exist.");
    let ready_in = |vmi: &Instance, message: &str, marks: &[Condition]| {
        let mut pod = launcher(vmi, "n1");
        pod.guest().conditions = vec![Condition::new("Ready", false, "ReadinessGatesNotReady", message)];
        pod.guest().conditions.extend_from_slice(marks);
        super::ready(vmi, Some(&pod)).status.clone()
    };
    let ours = gate(names::UNPAUSED_GATE);
    assert_eq!(ready_in(&vmi, &ours, &[]), "True");
    assert_eq!(ready_in(&vmi, &format!("{ours}, {}", gate("example.com/balancer")), &[]), "False");
    assert_eq!(ready_in(&vmi, &gate("example.com/balancer"), &[]), "False");
    let paused = Condition::new(names::UNPAUSED_GATE, false, "Paused", "");
    assert_eq!(ready_in(&vmi, &ours, &[paused]), "False");
    vmi.conditions = vec![Condition::new("Ready", false, "GuestNotRunning", "")];
    assert_eq!(ready_in(&vmi, &ours, &[]), "False", "one that was not ready has to become it");
}
