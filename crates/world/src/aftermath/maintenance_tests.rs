use serde_json::{Value, json};

use super::maintenance::untrue;
use super::rules::Picture;

/// Node n1 under a maintenance that is at work: two of four pods have left.
fn picture() -> Picture {
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
        })
    };
    Picture {
        nodes: vec![json!({
            "metadata": {"name": "n1", "annotations": {"evac.dev/drain": "{\"owner\":\"node-maintenance@evac-2\"}"}},
            "spec": {
                "unschedulable": true,
                "taints": [{"key": "kubevirt.io/drain"}, {"key": "medik8s.io/drain"}],
            },
        })],
        pods: vec![pod("a"), pod("b")],
        maintenances: vec![json!({
            "metadata": {"name": "fans"},
            "spec": {"nodeName": "n1"},
            "status": {
                "phase": "Running", "drainProgress": 50, "evictionPods": 4, "totalpods": 5,
                "pendingPods": ["a", "b"],
                "pendingPodsRefs": [{"namespace": "default", "name": "a"}, {"namespace": "default", "name": "b"}],
                "blockers": [{"object": "pod default/a", "message": "is held", "code": "X"}],
                "lastError": "pod default/a: is held",
                "estimatedEnd": {"latest": "2026-01-01T00:00:00Z"},
            },
        })],
        ..Picture::default()
    }
}

fn empty() -> Picture {
    let mut picture = picture();
    picture.pods.clear();
    picture.maintenances[0]["status"] = json!({
        "phase": "Succeeded", "drainProgress": 100, "evictionPods": 4, "totalpods": 5,
        "conditions": [{"type": "Drained", "status": "True"}],
    });
    picture
}

/// What is found when this is changed in a picture of which all is true.
fn found(mut picture: Picture, change: impl FnOnce(&mut Picture)) -> Vec<String> {
    assert_eq!(untrue(&picture), [""; 0]);
    change(&mut picture);
    untrue(&picture)
}

fn status(picture: &mut Picture) -> &mut Value {
    &mut picture.maintenances[0]["status"]
}

#[test]
fn a_node_that_is_called_empty_is_empty_and_cordoned() {
    let pods = picture().pods;
    let wrong = found(empty(), |seen| seen.pods.push(pods[0].clone()));
    assert_eq!(wrong, ["maintenance fans: has emptied node \"n1\", and pod default/a is on it"]);
    let wrong = found(empty(), |seen| seen.nodes[0]["spec"]["unschedulable"] = json!(false));
    assert_eq!(wrong, ["maintenance fans: has begun on node \"n1\", which is not cordoned"]);
    let wrong = found(empty(), |seen| seen.nodes.clear());
    assert_eq!(wrong, ["maintenance fans: has begun on node \"n1\", which is not there"]);
}

#[test]
fn what_has_succeeded_says_nothing_else() {
    for (field, value) in [
        ("drainProgress", json!(99)),
        ("conditions", json!([])),
        ("estimatedEnd", json!({"latest": "2026-01-01T00:00:00Z"})),
        ("lastError", json!("x")),
        ("pendingPods", json!(["a"])),
        ("blockers", json!([{"object": "cluster"}])),
    ] {
        let wrong = found(empty(), |seen| status(seen)[field] = value);
        assert!(wrong.len() == 1 && wrong[0].contains("is Succeeded, and"), "{field}: {wrong:?}");
    }
}

#[test]
fn a_node_that_is_emptied_is_cordoned_and_tainted() {
    let wrong = found(picture(), |seen| seen.nodes[0]["spec"]["unschedulable"] = json!(false));
    assert_eq!(wrong, ["maintenance fans: has begun on node \"n1\", which is not cordoned"]);
    let wrong =
        found(picture(), |seen| seen.nodes[0]["spec"]["taints"] = json!([{"key": "kubevirt.io/drain"}]));
    assert_eq!(wrong, ["maintenance fans: has begun on node \"n1\", which lacks the taint medik8s.io/drain"]);
}

#[test]
fn the_pods_that_are_named_are_those_on_the_node() {
    let wrong = found(picture(), |seen| seen.pods[1]["metadata"]["name"] = json!("c"));
    assert_eq!(
        wrong,
        [
            "maintenance fans: waits for pod default/b, which need not leave node \"n1\"",
            "maintenance fans: does not name pod default/c, which has to leave",
        ]
    );
    let wrong = found(picture(), |seen| status(seen)["pendingPods"] = json!(["a"]));
    assert_eq!(wrong, ["maintenance fans: lists its pods in two ways that differ"]);
    let stays = json!([{"kind": "DaemonSet", "uid": "d"}]);
    let wrong = found(picture(), |seen| {
        seen.pods[1]["metadata"]["ownerReferences"] = stays;
        status(seen)["drainProgress"] = json!(75);
    });
    assert_eq!(wrong, ["maintenance fans: waits for pod default/b, which need not leave node \"n1\""]);
}

#[test]
fn a_drain_with_nothing_left_to_do_is_not_running() {
    let wrong = found(picture(), |seen| {
        seen.pods.clear();
        let status = status(seen);
        for field in ["pendingPods", "pendingPodsRefs", "blockers"] {
            status[field] = json!([]);
        }
        (status["lastError"], status["drainProgress"]) = (json!(""), json!(99));
    });
    assert_eq!(wrong, ["maintenance fans: is Running, and nothing is left on node \"n1\""]);
}

#[test]
fn progress_is_what_has_left() {
    for (field, value) in
        [("drainProgress", 49), ("drainProgress", 100), ("evictionPods", 1), ("evictionPods", 5)]
    {
        let wrong = found(picture(), |seen| status(seen)[field] = json!(value));
        assert!(wrong.len() == 1 && wrong[0].ends_with("pods, and 2 are left"), "{field} {value}: {wrong:?}");
    }
    assert_eq!(
        found(picture(), |seen| status(seen)["drainProgress"] = json!(75)),
        [""; 0],
        "it never runs backwards"
    );
    let drained = json!([{"type": "Drained", "status": "True"}]);
    let wrong = found(picture(), |seen| status(seen)["conditions"] = drained);
    assert_eq!(wrong, ["maintenance fans: is Running and Drained"]);
}

#[test]
fn a_blocker_is_on_the_node_and_the_first_is_the_error() {
    let gone = json!([{"object": "pod default/x", "message": "is held"}]);
    let wrong = found(picture(), |seen| {
        (status(seen)["blockers"], status(seen)["lastError"]) = (gone, json!("pod default/x: is held"));
    });
    assert_eq!(wrong, ["maintenance fans: is held up by pod default/x, which need not leave"]);
    let wrong = found(picture(), |seen| status(seen)["lastError"] = json!(""));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    let wrong = found(picture(), |seen| status(seen)["blockers"] = json!([]));
    assert!(wrong.len() == 1 && wrong[0].contains("has the error"), "an error without a blocker: {wrong:?}");
}

#[test]
fn who_waits_says_for_what_and_promises_nothing() {
    let waiting = || {
        let mut seen = picture();
        *status(&mut seen) = json!({
            "phase": "Running", "lastError": "the lease is away",
            "conditions": [{"type": "Waiting", "status": "True"}],
        });
        seen.nodes[0]["spec"] = json!({});
        seen
    };
    let wrong = found(waiting(), |seen| status(seen)["lastError"] = json!(""));
    assert!(wrong.len() == 1 && wrong[0].contains("does not say for what"), "{wrong:?}");
    let wrong = found(waiting(), |seen| status(seen)["estimatedEnd"] = json!({}));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn who_cannot_read_does_not_say_how_far_it_is() {
    let blind = || {
        let mut seen = picture();
        *status(&mut seen) =
            json!({"phase": "Running", "conditions": [{"type": "Unread", "status": "True"}]});
        seen
    };
    let wrong = found(blind(), |seen| status(seen)["drainProgress"] = json!(50));
    assert_eq!(wrong, ["maintenance fans: cannot read its node, and says how far it is"]);
}

#[test]
fn a_failure_says_why_and_a_node_that_is_there_is_found() {
    let failed = || {
        let mut seen = picture();
        *status(&mut seen) = json!({"phase": "Failed", "lastError": "the lease is lost"});
        seen
    };
    let wrong = found(failed(), |seen| status(seen)["lastError"] = json!(""));
    assert_eq!(wrong, ["maintenance fans: is Failed, and does not say why"]);
    let wrong = found(failed(), |seen| status(seen)["lastError"] = json!("nodes \"n1\" not found"));
    assert_eq!(wrong, ["maintenance fans: has not found node \"n1\", which is there"]);
    let wrong = found(failed(), |seen| status(seen)["estimatedEnd"] = json!({}));
    assert_eq!(wrong, ["maintenance fans: is Failed, and foretells its end"]);
}

#[test]
fn the_mark_of_a_maintenance_goes_with_its_object() {
    let wrong = found(picture(), |seen| seen.maintenances.clear());
    assert_eq!(
        wrong,
        ["node n1: carries the mark of node-maintenance@evac-2, and no NodeMaintenance is about it"]
    );
    let kim = "{\"owner\":\"kim@desk\"}";
    let wrong = found(picture(), |seen| {
        seen.maintenances.clear();
        seen.nodes[0]["metadata"]["annotations"]["evac.dev/drain"] = json!(kim);
    });
    assert_eq!(wrong, [""; 0], "a drain needs no object");
}
