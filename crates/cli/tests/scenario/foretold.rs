//! What is foretold of a drain, compared with what it then does.
//!
//! Before each `$ evac drain …` of a scenario the same command runs as `--dry-run=client -o json`, and `evac explain NODE -o json` with the same flags for
//! pods. The two have to agree; and when the drain has ended, each pod has to be where it was said to be, and the exit code has to be the one that was
//! said, as far as it was said to be known. Estimates of the time left that a drain prints are compared with the time that it took.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::Cluster;
use super::run::{finish, objects, spawn};

/// What was said of the nodes of one drain.
#[derive(Debug)]
pub struct Foretold {
    nodes: Vec<Node>,
    exit: Option<i32>,
    has_timeout: bool,
}

#[derive(Debug)]
struct Node {
    name: String,
    /// `drained`, `blocked`, `notStarted` or `unknown`; or how the trial itself ended, such as `refused`.
    expected: String,
    pods: Vec<Pod>,
}

#[derive(Debug, Clone, PartialEq)]
struct Pod {
    key: String,
    uid: String,
    prospect: String,
    instance: Option<String>,
    codes: Vec<String>,
}

/// Flags of drain that explain takes, too.
const SHARED: &[&str] = &[
    "--force",
    "--ignore-daemonsets",
    "--delete-emptydir-data",
    "--delete-local-data",
    "--pod-selector",
    "--grace-period",
    "--disable-eviction",
    "--skip-wait-for-delete-timeout",
    "--allow-shutdown",
    "--critical-last",
    "--as",
    "--kubeconfig",
    "--context",
];
/// Flags that have their value in the next word, unless it is joined by `=`.
const WITH_VALUE: &[&str] = &[
    "--pod-selector",
    "--grace-period",
    "--skip-wait-for-delete-timeout",
    "--timeout",
    "--owner",
    "--parallel",
    "--chunk-size",
    "--output",
    "-o",
    "--selector",
    "-l",
    "--as",
    "--kubeconfig",
    "--context",
];

/// A command line of drain, taken apart.
struct Drain {
    /// What stands before the verb.
    program: Vec<String>,
    nodes: Vec<String>,
    flags: Vec<Vec<String>>,
}

impl Drain {
    fn of(words: &[String]) -> Option<Self> {
        let at = words.iter().position(|word| !word.contains('='))?;
        let is_drain = words[at] == "evac" && words.get(at + 1).is_some_and(|verb| verb == "drain");
        if !is_drain || words.iter().any(|word| word.starts_with("--dry-run") || word == "--help") {
            return None;
        }
        let (mut nodes, mut flags) = (Vec::new(), Vec::new());
        let mut rest = words[at + 2..].iter();
        while let Some(word) = rest.next() {
            if !word.starts_with('-') {
                nodes.push(word.clone());
            } else if WITH_VALUE.contains(&word.as_str()) {
                flags.push([Some(word), rest.next()].into_iter().flatten().cloned().collect());
            } else {
                flags.push(vec![word.clone()]);
            }
        }
        Some(Self { program: words[..=at].to_vec(), nodes, flags })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|words| words[0].split('=').next() == Some(flag))
    }

    fn trial(&self) -> Vec<String> {
        let kept =
            self.flags.iter().filter(|words| !matches!(words[0].split('=').next(), Some("-o" | "--output")));
        let mut words = self.program.clone();
        words.push("drain".into());
        words.extend(self.nodes.iter().cloned());
        words.extend(kept.flatten().cloned());
        words.extend(["--dry-run=client", "-o", "json"].map(str::to_owned));
        words
    }

    fn explanation(&self) -> Option<Vec<String>> {
        let [node] = self.nodes.as_slice() else { return None };
        let shared =
            |words: &&Vec<String>| words[0].split('=').next().is_some_and(|flag| SHARED.contains(&flag));
        let mut words = self.program.clone();
        words.extend(["explain".to_owned(), node.clone()]);
        words.extend(self.flags.iter().filter(shared).flatten().cloned());
        words.extend(["-o", "json"].map(str::to_owned));
        Some(words)
    }
}

fn pods(forecast: &Value) -> Vec<Pod> {
    let key = |value: &Value| {
        let part = |name: &str| value[name].as_str().unwrap_or_default();
        format!("{}/{}", part("namespace"), part("name"))
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = forecast["pods"].as_array().into_iter().flatten();
    list.map(|pod| Pod {
        key: key(&pod["pod"]),
        uid: text(&pod["uid"]),
        prospect: text(&pod["prospect"]),
        instance: pod["instance"].is_object().then(|| key(&pod["instance"])),
        codes: pod["reasons"].as_array().into_iter().flatten().map(|reason| text(&reason["code"])).collect(),
    })
    .collect()
}

/// Asks for a forecast, if this is a drain.
pub async fn ask(words: &[String], cluster: &Cluster) -> Result<Option<Foretold>, String> {
    let Some(drain) = Drain::of(words) else { return Ok(None) };
    let mut last = String::new();
    // A cluster in motion may look different a moment later; one at rest does not.
    for _ in 0..3 {
        let trial = finish(spawn(&drain.trial(), cluster)?).await?;
        let mut nodes = Vec::new();
        for line in trial.stdout.lines() {
            let event: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
            let node = || event["node"].as_str().unwrap_or_default().to_owned();
            match event["type"].as_str() {
                Some("forecast") => {
                    let expected = event["expected"].as_str().unwrap_or_default().to_owned();
                    nodes.push(Node { name: node(), expected, pods: pods(&event) });
                }
                Some("ended") if !nodes.iter().any(|known: &Node| known.name == node()) => {
                    let expected = event["end"].as_str().unwrap_or_default().to_owned();
                    nodes.push(Node { name: node(), expected, pods: Vec::new() });
                }
                _ => {}
            }
        }
        let foretold = Foretold { nodes, exit: trial.status.code(), has_timeout: drain.has("--timeout") };
        let explained = foretold.nodes.first().filter(|node| !node.pods.is_empty()).zip(drain.explanation());
        let Some((node, command)) = explained else { return Ok(Some(foretold)) };
        let explanation = finish(spawn(&command, cluster)?).await?;
        let mut said: Value = serde_json::from_str(&explanation.stdout)
            .map_err(|e| format!("explain: {e}: {}", explanation.stdout))?;
        // A trial does not read the pods that a selector leaves out.
        if let Some(pods) = said["pods"].as_array_mut() {
            let is_left_out = |reason: &Value| reason["code"] == "NotSelected";
            pods.retain(|pod| !pod["reasons"].as_array().is_some_and(|all| all.iter().any(is_left_out)));
        }
        if pods(&said) == node.pods && said["expected"] == node.expected.as_str() {
            return Ok(Some(foretold));
        }
        last = format!("explain says {:#}\nand the trial says {node:#?}", said["pods"]);
    }
    Err(format!("explain and the trial of the drain disagree: {last}"))
}

impl Foretold {
    /// The exit codes that agree with what was said.
    fn exits(&self) -> Vec<i32> {
        let any = |what: &str| self.nodes.iter().any(|node| node.expected == what);
        // How long pods take to stop is not foretold.
        let late = self.has_timeout.then_some(4);
        if self.nodes.is_empty() {
            self.exit.into_iter().collect()
        } else if any("failed") {
            vec![1]
        } else if any("refused") {
            vec![5]
        } else if any("notStarted") {
            vec![3]
        } else if any("blocked") {
            [Some(3), late].into_iter().flatten().collect()
        } else if any("unknown") {
            vec![0, 3, 4]
        } else {
            [Some(0), late].into_iter().flatten().collect()
        }
    }

    /// What of it did not come true.
    pub async fn compare(&self, exit: Option<i32>, cluster: &Cluster) -> Result<(), String> {
        let allowed = self.exits();
        if exit.is_none_or(|exit| !allowed.contains(&exit)) {
            return Err(format!("foretold to end with one of {allowed:?}, ended with {exit:?}: {self:#?}"));
        }
        for node in &self.nodes {
            let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", node.name);
            let now: BTreeMap<String, Value> = objects(&cluster.client, &path)
                .await?
                .into_iter()
                .map(|pod| (pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), pod))
                .collect();
            for pod in &node.pods {
                let found = now.get(&pod.uid);
                if let Some(wrong) = contradiction(pod, node, found, exit) {
                    return Err(format!("foretold of {}: {}, but {wrong}", pod.key, pod.prospect));
                }
                if pod.prospect == "migrates" && exit == Some(0) {
                    still_runs_elsewhere(pod, &node.name, cluster).await?;
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with a pod after the drain, by what was said of it before.
fn contradiction(pod: &Pod, node: &Node, found: Option<&Value>, exit: Option<i32>) -> Option<&'static str> {
    let runs = found.is_some_and(|pod| {
        pod["metadata"]["deletionTimestamp"].is_null()
            && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    });
    let begun = node.expected != "notStarted" && node.expected != "refused";
    let over = exit == Some(0) || (exit == Some(3) && node.expected == "blocked");
    let of_its_own = pod.codes.iter().any(|code| matches!(code.as_str(), "Finished" | "SkippedDeleting"));
    match pod.prospect.as_str() {
        "leavesNow" | "migrates" if begun && over && runs => Some("it is still there"),
        "leavesNow" | "migrates" if !begun && found.is_none() => {
            Some("it is gone, though nothing should have begun")
        }
        "turn" | "leaving" | "handedOver" | "waits" | "unknown" if exit == Some(0) && runs => {
            Some("it is still there, and the node counts as drained")
        }
        "never" | "refused" if !runs => Some("it is gone"),
        "stays" if found.is_none() && !of_its_own => Some("it is gone"),
        _ => None,
    }
}

/// A guest that was to be moved has not been started anew: if its instance is there, it runs, and not here.
async fn still_runs_elsewhere(pod: &Pod, node: &str, cluster: &Cluster) -> Result<(), String> {
    let Some((namespace, name)) = pod.instance.as_deref().and_then(|key| key.split_once('/')) else {
        return Ok(());
    };
    let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}");
    match objects(&cluster.client, &path).await?.first() {
        Some(vmi) if vmi["status"]["nodeName"] == node => {
            Err(format!("foretold of vmi {name}: migrates, but it is on {node}"))
        }
        _ => Ok(()),
    }
}

/// Compares each estimate of the time left that a drain printed (`-o json`) with when its last guest arrived.
///
/// A range is meant to hold nine times of ten, so one in ten may miss, and one of a few. Times are printed in whole seconds.
pub fn estimates(stdout: &str) -> Result<(), String> {
    let events: Vec<Value> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let at = |event: &Value| event["time"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let (mut told, mut missed) = (0, Vec::new());
    for end in of("ended").filter(|end| end["end"] == "drained") {
        let here = |event: &&Value| event["node"] == end["node"];
        let Some(over) = of("moved").filter(here).filter_map(at).max() else { continue };
        for outlook in of("outlook").filter(here) {
            let range = (outlook["atLeastSeconds"].as_u64(), outlook["atMostSeconds"].as_u64());
            let ((Some(least), most), Some(then)) = (range, at(outlook)) else { continue };
            if outlook["guests"] == 0 || then > over {
                continue;
            }
            told += 1;
            let took = over.duration_since(then).as_secs_f64();
            let (least, most) = (least as f64 - 1.0, most.map_or(f64::INFINITY, |most| most as f64 + 1.0));
            if !(least..=most).contains(&took) {
                missed.push(format!("{outlook} took {took:.1} s"));
            }
        }
    }
    let may_miss = (told / 10).max(1);
    if missed.len() > may_miss {
        return Err(format!(
            "{} of {told} estimates of the time left did not hold: {missed:#?}",
            missed.len()
        ));
    }
    Ok(())
}
