//! A plan for programs: one document, described in `docs/planning.md`.

use evac_api::snapshot::Gap;
use evac_core::plan::{Plan, Survey};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The name and version of the document of a plan.
const PLAN: &str = "evac.dev/plan/v1";
/// The same of a survey of all nodes.
const SURVEY: &str = "evac.dev/plan-all/v1";

pub fn plan(plan: &Plan, unread: &[Gap], now: Timestamp) -> Value {
    let mut document = json!(plan);
    document["schema"] = json!(PLAN);
    document["kind"] = json!("Plan");
    document["drainable"] = json!(plan.is_drainable());
    document["missing"] = json!(unread);
    document["room"]["message"] = json!(plan.room.sentence());
    for (at, node) in plan.nodes.iter().enumerate() {
        for (pod_at, pod) in node.pods.iter().enumerate() {
            document["nodes"][at]["pods"][pod_at]["message"] = json!(pod.forecast.sentence(now));
        }
    }
    document
}

pub fn survey(survey: &Survey, unread: &[Gap]) -> Value {
    let mut document = json!(survey);
    document["schema"] = json!(SURVEY);
    document["kind"] = json!("Survey");
    document["drainable"] = json!(survey.is_drainable());
    document["missing"] = json!(unread);
    for (at, node) in survey.nodes.iter().enumerate() {
        for (reason_at, one) in node.in_the_way.iter().enumerate() {
            document["nodes"][at]["inTheWay"][reason_at]["message"] = json!(one.reason.message());
        }
    }
    document
}

pub fn yaml(document: &Value) -> String {
    serde_saphyr::to_string(document).unwrap_or_else(|_| document.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use evac_api::kubevirt::wire as kubevirt;
    use evac_api::places::PlacesReader;
    use evac_api::{Project, wire};
    use evac_core::cluster::index::ListedAt;
    use evac_core::machines::Kind;
    use evac_core::plan::Planner;
    use evac_core::{Index, Policy, VmVisibility};

    use super::*;

    /// A node with a guest that moves, and another one with room for it.
    fn index() -> Index {
        let (mut index, mut reader) = (Index::new(), PlacesReader::new(None));
        let nodes = ["a", "b"].map(|name| {
            json!({"metadata": {"name": name, "uid": name}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}})
        });
        for node in &nodes {
            reader.node(serde_json::from_value(node.clone()).unwrap());
        }
        let nodes = nodes.map(|node| serde_json::from_value::<wire::Node>(node).unwrap().seen());
        index.reset(Kind::Node, nodes.to_vec(), &ListedAt::default());
        let pod = json!({
            "metadata": {"name": "virt-launcher-db", "namespace": "d", "uid": "p",
                "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "i"},
                "annotations": {"kubevirt.io/domain": "db"},
                "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "db", "uid": "i", "controller": true}]},
            "spec": {"nodeName": "a", "containers": [{"name": "compute", "resources": {"requests": {"memory": "2Gi"}}}]},
            "status": {"phase": "Running"},
        });
        reader.pod(serde_json::from_value(pod.clone()).unwrap());
        index.apply(serde_json::from_value::<wire::Pod>(pod).unwrap().seen());
        let vmi = json!({
            "metadata": {"name": "db", "namespace": "d", "uid": "i"},
            "spec": {"evictionStrategy": "LiveMigrate", "domain": {"memory": {"guest": "2Gi"}}},
            "status": {"phase": "Running", "nodeName": "a", "conditions": [{"type": "LiveMigratable", "status": "True"}]},
        });
        index.apply(serde_json::from_value::<kubevirt::VirtualMachineInstance>(vmi).unwrap().seen());
        index.reset_budgets(Vec::new(), &ListedAt::default());
        index.set_vm_visibility(VmVisibility::Readable);
        index.set_places(reader.finish());
        index
    }

    fn fields(of: &Value) -> BTreeSet<&str> {
        of.as_object().unwrap().keys().map(String::as_str).collect()
    }

    fn named(names: &str) -> BTreeSet<&str> {
        names.split(' ').collect()
    }

    #[test]
    fn the_fields_of_a_plan_are_those_that_the_page_names() {
        let index = index();
        let policy = Policy::default();
        let made = Planner::new(&index, &policy, Timestamp::UNIX_EPOCH).plan(&["a".to_owned()]);
        let unread = Gap::new("daemonsets", "much", "no".into());
        let document = plan(&made, &[unread], Timestamp::UNIX_EPOCH);
        assert_eq!(document["schema"], "evac.dev/plan/v1");
        assert_eq!(
            fields(&document),
            named("atOnce drainable expected kind missing moves nodes room schema takes waves")
        );
        assert_eq!(fields(&document["missing"][0]), named("message misses what"));
        assert_eq!(
            fields(&document["room"]),
            named("message notRestarted podsWithoutPlace short spareMemory withoutPlace")
        );
        let node = &document["nodes"][0];
        assert_eq!(
            fields(node),
            named("atOnce budgets dependsOn expected moves node pods remarks takes waves")
        );
        assert_eq!(fields(&node["takes"]), named("atLeast atMost basis unknown"));
        let pod = &node["pods"][0];
        assert_eq!(
            fields(pod),
            named("afterwards fate instance message owner pod prospect reasons remedy takes target uid")
        );
        assert_eq!(pod["target"], json!({"node": "b", "sure": "certain", "notJudged": []}));
        assert_eq!((&pod["afterwards"], &pod["remedy"]), (&json!({"state": "moved"}), &Value::Null));
    }

    #[test]
    fn the_fields_of_a_survey_are_those_that_the_page_names() {
        let index = index();
        let policy = Policy::default();
        let made = Planner::new(&index, &policy, Timestamp::UNIX_EPOCH).survey();
        let document = survey(&made, &[]);
        assert_eq!(document["schema"], "evac.dev/plan-all/v1");
        assert_eq!(fields(&document), named("drainable kind missing nodes schema"));
        let node = document["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "a").unwrap();
        assert_eq!(
            fields(node),
            named("blocked inTheWay machines moves node pods spareMemory takes verdict")
        );
        assert_eq!((&node["verdict"], &node["machines"]), (&json!("drainable"), &json!(1)));
    }
}
