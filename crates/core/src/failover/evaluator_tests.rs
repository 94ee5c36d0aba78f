use rstest::rstest;

use super::*;
use crate::cluster::fact::{Amount, CLOCK_SKEW, Health, Key, Uid};
use crate::cluster::selector::Selector;
use crate::drain::quorum::{EtcdGuard, EtcdMember};
use crate::failover::fencing::{Fenced, How};
use crate::failover::policy::{Agent, Brake};
use crate::failover::suspect::testing::{lease, ready, silent};
use crate::failover::suspect::{FencedState, SHUT_DOWN};
use crate::testing::at;

const DUE: i64 = 50 + 300;

fn agent() -> Agent {
    Agent {
        command: "fence_x".into(),
        options: BTreeMap::new(),
        node_options: BTreeMap::new(),
        secret: None,
        timeout: SignedDuration::from_secs(60),
        tries: 3,
    }
}

fn policy(name: &str) -> FailoverPolicy {
    FailoverPolicy {
        name: name.into(),
        uid: Uid(format!("uid-{name}").into()),
        generation: 1,
        selector: Selector::parse("role=worker").unwrap(),
        not_ready_for: SignedDuration::from_secs(300),
        proof: AcceptedProof::Agent(agent()),
        brake: Brake::MaxUnhealthy(Amount::Count(1)),
        storm_cooldown: None,
        pause: Vec::new(),
        storm: Storm::None,
    }
}

/// Workers `n1` to `n<total>`, of which the first `down` are silent since second 0, and one node that is no worker.
struct Cluster {
    nodes: BTreeMap<String, Suspect>,
    silences: BTreeMap<String, Silence>,
    policies: BTreeMap<String, Result<FailoverPolicy, PolicyError>>,
    leases: BTreeMap<String, Lease>,
    leases_unread: Option<String>,
    etcd_unread: Option<String>,
    active: BTreeSet<String>,
    resting: BTreeMap<String, Timestamp>,
    left: BTreeMap<String, String>,
    evaluator: PolicyEvaluator,
}

impl Cluster {
    fn new(total: usize, down: usize, policy: FailoverPolicy) -> Self {
        let mut nodes = BTreeMap::new();
        for i in 1..=total {
            let name = format!("n{i}");
            let mut node = if i <= down { silent(&name) } else { ready(&name, at(0)) };
            node.node.labels.insert("role".into(), "worker".into());
            nodes.insert(name, node);
        }
        nodes.insert("other".into(), ready("other", at(0)));
        let mut silences = BTreeMap::new();
        for (name, node) in &nodes {
            // All of this was seen when it happened.
            let silence: &mut Silence = silences.entry(name.clone()).or_default();
            silence.see(node, at(50));
        }
        let mut evaluator = PolicyEvaluator::default();
        // Fact without a gap for long.
        for second in (-200..=5000).step_by(10) {
            evaluator.contact.renewed(at(second));
        }
        Self {
            nodes,
            silences,
            policies: [(policy.name.clone(), Ok(policy))].into(),
            leases: BTreeMap::new(),
            leases_unread: None,
            etcd_unread: None,
            active: BTreeSet::new(),
            resting: BTreeMap::new(),
            left: BTreeMap::new(),
            evaluator,
        }
    }

    /// A member on each node of the control plane, as the pods would show it.
    fn etcd(&self) -> Result<Etcd, String> {
        if let Some(why) = &self.etcd_unread {
            return Err(why.clone());
        }
        let plane = self.nodes.values().filter(|node| is_control_plane(&node.node));
        let members =
            plane.map(|node| EtcdMember { node: node.node.name.clone(), healthy: node.is_ready() }).collect();
        Ok(Etcd { members, guard: EtcdGuard::NotUsed })
    }

    fn control_plane(&mut self, names: &[&str]) {
        for name in names {
            let labels = &mut self.nodes.get_mut(*name).unwrap().node.labels;
            labels.insert("node-role.kubernetes.io/control-plane".into(), "".into());
        }
    }

    fn mark(&mut self, node: &str, owner: &str) {
        let node = &mut self.nodes.get_mut(node).unwrap().node;
        let mark = crate::drain::ownership::new_mark(
            node,
            owner,
            &crate::drain::ownership::NodeChanges::default(),
            at(0),
        );
        node.mark = Some(MarkState::Valid(Box::new(mark)));
    }

    fn judge(&mut self, second: i64) -> (Vec<PolicyEvaluation>, Option<Timestamp>) {
        let etcd = self.etcd();
        let snapshot = ClusterSnapshot {
            nodes: &self.nodes,
            silences: &self.silences,
            policies: &self.policies,
            leases: &self.leases,
            leases_unread: self.leases_unread.as_deref(),
            unread: None,
            etcd: etcd.as_ref().map_err(String::as_str),
            active: &self.active,
            resting: &self.resting,
            left: &self.left,
            owner: "operator",
        };
        self.evaluator.judge(&snapshot, at(second))
    }

    fn verdict(&mut self, second: i64, node: &str) -> NodeVerdict {
        let (evaluations, _) = self.judge(second);
        let mut all = evaluations.into_iter().flat_map(|evaluation| evaluation.nodes);
        all.find(|(name, _)| name == node).expect("a verdict").1
    }

    fn code(&mut self, second: i64, node: &str) -> &'static str {
        match self.verdict(second, node) {
            NodeVerdict::Act => "Act",
            NodeVerdict::Hold(hold) => hold.code(),
        }
    }

    fn set(&mut self, node: &str, health: Health, since: i64) {
        self.change(node, since, |node| {
            node.node.health = health;
            node.node.health_since = Some(at(since));
        });
    }

    /// Changes a node, which is seen at this second.
    fn change(&mut self, node: &str, second: i64, change: impl FnOnce(&mut Suspect)) {
        let suspect = self.nodes.get_mut(node).unwrap();
        change(suspect);
        self.silences.get_mut(node).unwrap().see(suspect, at(second));
    }
}

#[test]
fn d01_a_node_is_failed_over_when_its_time_is_up_and_not_before() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    assert_eq!(
        cluster.verdict(DUE - 1, "n1"),
        NodeVerdict::Hold(Hold::Waiting { until: at(DUE), missing: None })
    );
    assert_eq!(cluster.judge(DUE - 1).1, Some(at(DUE)), "looks again in time");
    assert_eq!(cluster.verdict(DUE, "n1"), NodeVerdict::Act);
}

#[test]
fn d02_below_the_brake_nothing_is_done_and_the_numbers_are_right() {
    let mut cluster = Cluster::new(4, 2, policy("p"));
    let (evaluations, _) = cluster.judge(DUE);
    let evaluation = &evaluations[0];
    assert_eq!((evaluation.observed, evaluation.healthy, evaluation.needed), (4, 2, 3));
    for (_, verdict) in &evaluation.nodes {
        assert_eq!(*verdict, NodeVerdict::Hold(Hold::Brake { healthy: 2, needed: 3 }));
    }
    assert_eq!(evaluation.nodes.len(), 2);
}

#[test]
fn a_node_under_failover_counts_as_down_even_when_it_says_ready() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    cluster.active.insert("n2".into());
    assert_eq!(cluster.code(DUE, "n1"), "Brake");
}

#[test]
fn d03_d07_a_flapping_node_begins_anew_each_time() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    for round in 0..20 {
        let down = round * 310;
        cluster.set("n1", Health::Unknown, down);
        assert_eq!(cluster.code(down + 299, "n1"), "Waiting");
        cluster.set("n1", Health::Ready, down + 299);
        assert!(cluster.judge(down + 305).0[0].nodes.is_empty());
    }
    cluster.set("n1", Health::Unknown, 4000);
    assert_eq!(cluster.code(4100, "n1"), "Waiting");
    cluster.set("n1", Health::NotReady, 4200);
    assert_eq!(cluster.code(4499, "n1"), "Waiting", "its kubelet has spoken at 4200");
}

#[test]
fn d04_of_two_policies_for_one_node_the_first_by_name_acts() {
    let mut cluster = Cluster::new(4, 1, policy("b"));
    cluster.policies.insert("a".into(), Ok(policy("a")));
    let (evaluations, _) = cluster.judge(DUE);
    let acting: Vec<(&str, usize)> =
        evaluations.iter().map(|evaluation| (evaluation.policy.as_str(), evaluation.nodes.len())).collect();
    assert_eq!(acting, [("a", 1), ("b", 0)]);
}

#[test]
fn d05_d06_a_maintenance_lease_of_somebody_else_is_respected_while_it_is_valid() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    let lease = Lease {
        key: Key::new("medik8s-leases", "node-n1"),
        uid: crate::cluster::fact::Uid("lease".into()),
        holder: "node-maintenance".into(),
        renewed: Some(at(300)),
        duration_seconds: 100,
        resource_version: "1".into(),
        transitions: 0,
        asked: None,
        answered: None,
        record: None,
    };
    cluster.leases.insert("n1".into(), lease);
    assert_eq!(cluster.code(DUE, "n1"), "Leased");
    let end = 400 + CLOCK_SKEW.as_secs();
    assert_eq!(cluster.judge(DUE).1, Some(at(end)), "looks again when it ends");
    assert_eq!(cluster.code(end - 1, "n1"), "Leased", "its holder's clock may be late");
    assert_eq!(cluster.code(end, "n1"), "Act");
    cluster.leases.get_mut("n1").unwrap().renewed = Some(at(end + 7));
    assert_eq!(cluster.code(end, "n1"), "Leased", "its holder's clock is ahead");
}

#[test]
fn leases_that_cannot_be_read_are_not_leases_that_nobody_holds() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    cluster.leases_unread = Some("leases is forbidden".into());
    assert_eq!(cluster.code(DUE - 1, "n1"), "Waiting");
    let NodeVerdict::Hold(hold) = cluster.verdict(DUE, "n1") else { panic!("nobody knows whose it is") };
    assert_eq!(hold.code(), "Unknown");
    assert!(hold.words(at(DUE)).ends_with("cannot be read: leases is forbidden"), "{}", hold.words(at(DUE)));
    cluster.leases_unread = None;
    assert_eq!(cluster.code(DUE, "n1"), "Act");
}

#[rstest]
#[case("true", "Excluded", 0)]
#[case("false", "Act", 0)]
#[case("", "Act", 1)]
#[case("maybe", "Act", 0)]
fn d10_the_label_to_exclude_a_node_means_true_only(
    #[case] value: &str,
    #[case] code: &str,
    #[case] odd: usize,
) {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    cluster.nodes.get_mut("n1").unwrap().node.labels.insert(EXCLUDE.into(), value.into());
    assert_eq!(cluster.code(DUE, "n1"), code);
    assert_eq!(cluster.judge(DUE).0[0].odd_labels.len(), odd);
}

#[test]
fn an_excluded_node_still_counts_as_down() {
    let mut cluster = Cluster::new(4, 2, policy("p"));
    cluster.nodes.get_mut("n2").unwrap().node.labels.insert(EXCLUDE.into(), "true".into());
    assert_eq!(cluster.code(DUE, "n1"), "Brake");
}

#[test]
fn d12_nodes_of_the_control_plane_go_one_by_one() {
    let mut many = policy("p");
    many.brake = Brake::MaxUnhealthy(Amount::Count(3));
    let mut cluster = Cluster::new(8, 3, many);
    cluster.control_plane(&["n1", "n2", "n4", "n5", "n6"]);
    assert_eq!(cluster.code(DUE, "n1"), "Act");
    assert_eq!(cluster.verdict(DUE, "n2"), NodeVerdict::Hold(Hold::ControlPlane { other: "n1".into() }));
    assert_eq!(cluster.code(DUE, "n3"), "Act", "workers do not wait for them");
    cluster.active.insert("n2".into());
    assert_eq!(cluster.code(DUE, "n1"), "ControlPlane", "the one that was begun comes first");
}

/// Two policies that each look after one node of a control plane of five; the first `down` of it are silent.
fn two_policies(down: usize) -> Cluster {
    let mut cluster = Cluster::new(5, down, policy("a"));
    for (name, label) in [("a", "n1"), ("b", "n2")] {
        let mut one = policy(name);
        one.selector = Selector::parse(&format!("machine={label}")).unwrap();
        cluster.policies.insert(name.into(), Ok(one));
        cluster.nodes.get_mut(label).unwrap().node.labels.insert("machine".into(), label.into());
    }
    cluster.control_plane(&["n1", "n2", "n3", "n4", "n5"]);
    cluster
}

#[test]
fn two_policies_do_not_each_take_a_node_of_the_control_plane_in_one_judgement() {
    let mut cluster = two_policies(2);
    assert_eq!(cluster.code(DUE, "n1"), "Act");
    assert_eq!(cluster.verdict(DUE, "n2"), NodeVerdict::Hold(Hold::ControlPlane { other: "n1".into() }));
    cluster.active.insert("n1".into());
    assert_eq!(cluster.code(DUE, "n2"), "ControlPlane", "while the first is under way");
    cluster.active.clear();
    cluster.mark("n1", "operator");
    cluster.nodes.get_mut("n1").unwrap().node.labels.insert(EXCLUDE.into(), "true".into());
    assert_eq!(cluster.code(DUE, "n2"), "Act", "the first is over, and three of five are left");
}

#[test]
fn failed_failing_and_maintained_members_of_etcd_count_together_for_all_policies() {
    let two_left = Hold::Quorum(Shortage::TooFew { left: 2, all: 5, needed: 3 });
    let mut cluster = two_policies(1);
    cluster.mark("n3", "node-maintenance");
    assert_eq!(cluster.code(DUE, "n1"), "Act", "three are left");
    cluster.mark("n4", "kim");
    assert_eq!(cluster.verdict(DUE, "n1"), NodeVerdict::Hold(two_left.clone()));
    // A third one failed, whom no policy looks after.
    let mut cluster = two_policies(1);
    cluster.mark("n3", "node-maintenance");
    cluster.set("n5", Health::Unknown, 0);
    assert_eq!(cluster.verdict(DUE, "n1"), NodeVerdict::Hold(two_left.clone()));
    // Others say by a lease what they do.
    let mut cluster = two_policies(2);
    let lease = Lease {
        key: Key::new("medik8s-leases", "node-n3"),
        uid: crate::cluster::fact::Uid("lease".into()),
        holder: "node-maintenance".into(),
        renewed: Some(at(DUE)),
        duration_seconds: 100,
        resource_version: "1".into(),
        transitions: 0,
        asked: None,
        answered: None,
        record: None,
    };
    cluster.leases.insert("n3".into(), lease);
    assert_eq!(cluster.verdict(DUE, "n1"), NodeVerdict::Hold(two_left));
    assert_eq!(cluster.code(DUE + 100 + CLOCK_SKEW.as_secs(), "n1"), "Act");
}

#[test]
fn a_release_that_was_cut_off_is_finished_whatever_the_quorum() {
    let mut cluster = two_policies(1);
    cluster.etcd_unread = Some("pods is forbidden".into());
    let node = cluster.nodes.get_mut("n1").unwrap();
    let mut record = Fenced::new(node, How::Agent { program: "fence_x".into() }, "operator", at(DUE));
    record.released = true;
    node.node.life.fenced = Some(FencedState::Valid(Box::new(record)));
    node.node.taints.push(crate::failover::suspect::out_of_service());
    assert_eq!(cluster.code(DUE + 10, "n1"), "Act", "the machine is off already");
    cluster.nodes.get_mut("n1").unwrap().lease = Some(lease("n1", at(DUE + 20)));
    assert_eq!(cluster.code(DUE + 30, "n1"), "Quorum", "it lives");
}

#[test]
fn members_of_etcd_that_are_not_known_hold_the_control_plane_and_nobody_else() {
    let mut cluster = two_policies(1);
    cluster.etcd_unread = Some("pods is forbidden".into());
    let NodeVerdict::Hold(hold) = cluster.verdict(DUE, "n1") else { panic!("nobody knows") };
    assert_eq!(hold.code(), "Quorum");
    assert!(hold.words(at(DUE)).ends_with("could not be found out: pods is forbidden"));
    let mut workers = Cluster::new(4, 1, policy("p"));
    workers.etcd_unread = Some("pods is forbidden".into());
    assert_eq!(workers.code(DUE, "n1"), "Act");
}

#[test]
fn d14_a_paused_policy_begins_nothing() {
    let mut paused = policy("p");
    paused.pause = vec!["upgrade".into()];
    let mut cluster = Cluster::new(4, 1, paused);
    assert_eq!(cluster.verdict(DUE, "n1"), NodeVerdict::Hold(Hold::Paused { why: "upgrade".into() }));
}

#[test]
fn d15_after_a_storm_nothing_new_is_begun_until_it_has_cooled_down() {
    let mut stormy = policy("p");
    stormy.storm_cooldown = Some(SignedDuration::from_secs(600));
    let mut cluster = Cluster::new(4, 2, stormy);
    assert_eq!(cluster.judge(400).0[0].storm, Storm::Active { since: at(400) });
    cluster.set("n2", Health::Ready, 500);
    assert_eq!(cluster.judge(500).0[0].storm, Storm::Cooling { until: at(1100) });
    assert_eq!(cluster.code(1099, "n1"), "Storm");
    // A second storm while it cools down begins the time anew.
    cluster.set("n2", Health::Unknown, 1000);
    assert_eq!(cluster.judge(1000).0[0].storm, Storm::Active { since: at(1000) });
    cluster.set("n2", Health::Ready, 1050);
    assert_eq!(cluster.judge(1050).0[0].storm, Storm::Cooling { until: at(1650) });
    assert_eq!(cluster.code(1649, "n1"), "Storm");
    assert_eq!(cluster.code(1650, "n1"), "Act");
}

#[test]
fn an_operator_that_starts_anew_remembers_the_storm_from_the_status() {
    let mut stormy = policy("p");
    stormy.storm_cooldown = Some(SignedDuration::from_secs(600));
    stormy.storm = Storm::Cooling { until: at(1000) };
    let mut cluster = Cluster::new(4, 1, stormy);
    assert_eq!(cluster.code(999, "n1"), "Storm");
    assert_eq!(cluster.code(1000, "n1"), "Act");
}

#[test]
fn when_nobody_renews_a_lease_it_is_not_the_nodes_that_failed() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    cluster.evaluator.contact = ClusterContact::default();
    assert_eq!(cluster.code(DUE, "n1"), "Blind", "nothing was seen yet");
    for second in (0..=300).step_by(10) {
        cluster.evaluator.contact.renewed(at(second));
    }
    assert_eq!(cluster.code(DUE, "n1"), "Blind", "the last sign is 50 seconds old");
    // The API server is back: the others get the time to report before anybody's silence counts.
    cluster.evaluator.contact.renewed(at(400));
    assert_eq!(cluster.verdict(401, "n1"), NodeVerdict::Hold(Hold::Settling { until: at(460) }));
    for second in (410..=460).step_by(10) {
        cluster.evaluator.contact.renewed(at(second));
    }
    assert_eq!(cluster.code(460, "n1"), "Act");
}

#[test]
fn a_node_that_somebody_drains_is_theirs() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    let node = &mut cluster.nodes.get_mut("n1").unwrap().node;
    let mark = crate::drain::ownership::new_mark(
        node,
        "kim",
        &crate::drain::ownership::NodeChanges::default(),
        at(0),
    );
    node.mark = Some(MarkState::Valid(Box::new(mark)));
    assert_eq!(cluster.code(DUE, "n1"), "Drained");
    let node = &mut cluster.nodes.get_mut("n1").unwrap().node;
    let mark = crate::drain::ownership::DrainMark {
        owner: "operator".into(),
        ..crate::drain::ownership::new_mark(
            node,
            "operator",
            &crate::drain::ownership::NodeChanges::default(),
            at(0),
        )
    };
    node.mark = Some(MarkState::Valid(Box::new(mark)));
    assert_eq!(cluster.code(DUE, "n1"), "Act", "our own mark");
}

#[test]
fn a_failover_that_did_not_succeed_rests() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    cluster.resting.insert("n1".into(), at(DUE + 60));
    assert_eq!(cluster.code(DUE, "n1"), "Resting");
    assert_eq!(cluster.code(DUE + 60, "n1"), "Act");
}

#[test]
fn a_policy_that_matches_every_node_or_no_label_is_refused() {
    let mut cluster = Cluster::new(3, 1, policy("p"));
    cluster.nodes.remove("other");
    assert_eq!(cluster.judge(DUE).0[0].error, Some(PolicyError::EveryNode { total: 3 }));
    assert!(cluster.judge(DUE).0[0].nodes.is_empty());
    let mut all = policy("p");
    all.selector = Selector::everything();
    let mut cluster = Cluster::new(3, 1, all);
    assert_eq!(cluster.judge(DUE).0[0].error, Some(PolicyError::NoSelector));
}

#[test]
fn what_was_failed_over_is_not_failed_over_again_unless_it_was_cut_off() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    let node = cluster.nodes.get_mut("n1").unwrap();
    let mut record = Fenced::new(node, How::Agent { program: "fence_x".into() }, "operator", at(DUE));
    record.released = true;
    node.node.life.fenced = Some(FencedState::Valid(Box::new(record)));
    node.node.taints.push(crate::failover::suspect::out_of_service());
    assert_eq!(cluster.code(DUE + 10, "n1"), "Act", "the taint is still there");
    cluster.nodes.get_mut("n1").unwrap().node.taints.clear();
    assert_eq!(cluster.verdict(DUE + 10, "n1"), NodeVerdict::Hold(Hold::FailedOver));
    cluster.left.insert("n1".into(), "vm default/a finds no place".into());
    let NodeVerdict::Hold(hold) = cluster.verdict(DUE + 10, "n1") else { panic!("it is over") };
    assert_eq!(hold.code(), "FailedOver");
    assert!(hold.words(at(DUE)).contains("not everyone had returned: vm default/a finds no place"));
    cluster.nodes.get_mut("n1").unwrap().lease = Some(lease("n1", at(DUE + 20)));
    assert_eq!(cluster.code(DUE + 30, "n1"), "Act", "it lived after that and fell silent again");
}

#[test]
fn every_hold_has_a_sentence() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    let NodeVerdict::Hold(hold) = cluster.verdict(DUE - 74, "n1") else { panic!("waits") };
    assert_eq!(
        hold.words(at(DUE - 74)),
        "will be failed over at 2026-01-01T00:05:50Z unless it returns (in 1m14s)"
    );
}

#[test]
fn before_its_time_is_up_a_node_is_promised_nothing_that_would_not_be_done() {
    let said = |change: &dyn Fn(&mut FailoverPolicy), down: usize| {
        let mut policy = policy("p");
        change(&mut policy);
        let mut cluster = Cluster::new(4, down, policy);
        let NodeVerdict::Hold(hold) = cluster.verdict(DUE - 74, "n1") else { panic!("waits") };
        assert_eq!(hold.code(), "Waiting");
        hold.words(at(DUE - 74))
    };
    let but = "is due at 2026-01-01T00:05:50Z unless it returns (in 1m14s), but as things are nothing would be done then: it ";
    assert_eq!(
        said(&|policy| policy.proof = AcceptedProof::Statement, 1),
        format!(
            "{but}has failed and is not proven to be off: state it with evac failover NODE --fenced-by NAME --reason TEXT"
        )
    );
    let provider = said(&|policy| policy.proof = AcceptedProof::Provider, 1);
    assert!(provider.contains("its provider does not say that it is shut down"), "{provider}");
    let paused = said(&|policy| policy.pause = vec!["upgrade".into()], 1);
    assert_eq!(paused, format!("{but}is left alone: the policy is paused (upgrade)"));
    let braked = said(&|_| {}, 2);
    assert!(braked.contains("only 2 nodes are healthy, and the policy wants 3"), "{braked}");
    let assumed =
        said(&|policy| policy.proof = AcceptedProof::Time { after: SignedDuration::from_secs(600) }, 1);
    assert_eq!(assumed, "will be failed over at 2026-01-01T00:10:50Z unless it returns (in 6m14s)");
}

#[test]
fn without_a_way_to_proof_a_node_is_not_even_begun() {
    let mut stated = policy("p");
    stated.proof = AcceptedProof::Statement;
    let mut cluster = Cluster::new(4, 1, stated);
    assert_eq!(cluster.code(DUE, "n1"), "AwaitingProof");
    let node = cluster.nodes.get_mut("n1").unwrap();
    let how = How::Statement { by: "kim".into(), reason: "off".into() };
    let record = Fenced::new(node, how, "kim", at(300));
    node.node.life.fenced = Some(FencedState::Valid(Box::new(record)));
    assert_eq!(cluster.code(DUE, "n1"), "Act");
    cluster.nodes.get_mut("n1").unwrap().lease = Some(lease("n1", at(310)));
    assert_eq!(cluster.code(DUE, "n1"), "AwaitingProof", "seen alive after the statement");
}

#[test]
fn the_provider_and_time_are_waited_for() {
    let mut provided = policy("p");
    provided.proof = AcceptedProof::Provider;
    let mut cluster = Cluster::new(4, 1, provided);
    assert_eq!(cluster.code(DUE, "n1"), "AwaitingProof");
    cluster.nodes.get_mut("n1").unwrap().node.taints.push(crate::testing::taint(SHUT_DOWN, "NoSchedule"));
    assert_eq!(cluster.code(DUE, "n1"), "Act");
    let mut assumed = policy("p");
    assumed.proof = AcceptedProof::Time { after: SignedDuration::from_secs(600) };
    let mut cluster = Cluster::new(4, 1, assumed);
    assert_eq!(
        cluster.verdict(DUE, "n1"),
        NodeVerdict::Hold(Hold::Waiting { until: at(650), missing: None })
    );
    assert_eq!(cluster.code(650, "n1"), "Act");
}

#[test]
fn a_node_with_a_slow_clock_is_not_ready_for_as_long_as_we_have_seen_it() {
    let mut cluster = Cluster::new(4, 0, policy("p"));
    // It falls ill at second 1000 and dates that ten minutes back.
    cluster.change("n1", 1000, |node| {
        node.node.health = Health::NotReady;
        node.node.health_since = Some(at(400));
    });
    assert_eq!(
        cluster.verdict(1000, "n1"),
        NodeVerdict::Hold(Hold::Waiting { until: at(1300), missing: None })
    );
    assert_eq!(cluster.code(1299, "n1"), "Waiting");
    assert_eq!(cluster.code(1300, "n1"), "Act");
}

#[test]
fn an_operator_that_has_just_begun_to_look_waits_as_long_as_the_policy_says() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    let silence = cluster.silences.get_mut("n1").unwrap();
    *silence = Silence::default();
    silence.see(&cluster.nodes["n1"], at(2000));
    assert_eq!(
        cluster.verdict(2000, "n1"),
        NodeVerdict::Hold(Hold::Waiting { until: at(2300), missing: None })
    );
    assert_eq!(cluster.code(2300, "n1"), "Act");
}

#[test]
fn a_node_whose_clock_is_slow_is_never_taken_for_silent_while_it_renews_its_lease() {
    let mut assumed = policy("p");
    assumed.proof = AcceptedProof::Time { after: SignedDuration::from_secs(300) };
    let mut cluster = Cluster::new(4, 0, assumed);
    cluster.change("n1", 1000, |node| node.node.health = Health::NotReady);
    for second in (1000..4000).step_by(10) {
        cluster.change("n1", second, |node| node.lease = Some(lease("n1", at(second - 600))));
        assert_eq!(cluster.code(second, "n1"), "Waiting", "at {second}");
    }
}

#[test]
fn an_agent_that_switched_off_another_machine_is_not_called_again_for_this_policy() {
    let mut cluster = Cluster::new(4, 1, policy("p"));
    let node = cluster.nodes.get_mut("n1").unwrap();
    let how = How::Agent { program: "fence_x".into() };
    let mut record = Fenced::new(node, how, "operator", at(DUE));
    record.policy = Some(policy("p").reference());
    node.node.life.fenced = Some(FencedState::Valid(Box::new(record)));
    cluster.change("n1", DUE + 10, |node| node.lease = Some(lease("n1", at(-400))));
    let later = DUE + 100_000;
    for second in (0..=later).step_by(10) {
        cluster.evaluator.contact.renewed(at(second));
    }
    let NodeVerdict::Hold(hold) = cluster.verdict(later, "n1") else { panic!("it is not called again") };
    assert_eq!(hold, Hold::WrongMachine { sign: Sign::Lease });
    assert!(hold.words(at(later)).contains("the machine behind this agent is not this node"));
    let mut corrected = policy("p");
    corrected.generation += 1;
    cluster.policies.insert("p".into(), Ok(corrected));
    assert_eq!(cluster.code(later, "n1"), "Act", "the policy is another now");
    cluster.policies.insert("p".into(), Ok(policy("p")));
    cluster.nodes.get_mut("n1").unwrap().node.life.fenced = None;
    assert_eq!(cluster.code(later, "n1"), "Act", "a person took the record away");
}
