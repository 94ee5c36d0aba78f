//! People and other programs who do what they do while evac works: they label, taint and annotate nodes, and delete pods of applications.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::common::{NODES, PODS, taint};
use crate::draw;
use crate::stage::Stage;

/// What people write on nodes begins with this, so that it is known to be theirs.
pub const THEIRS: &str = "people.example.com/";

/// Starts them. They end with the faults.
pub fn begin(stage: &Arc<Stage>, nodes: usize) {
    let stage = stage.clone();
    tokio::spawn(async move {
        for step in 0_u32.. {
            let name = step.to_string();
            let pause = draw::between(stage.seed, &["people", &name, "pause"], 1_000, 12_000);
            stage.pass(Duration::from_millis(pause)).await;
            if stage.field.calm() {
                return;
            }
            // What a person fails to do is not done; evac must not depend on it.
            if let Err(error) = act(&stage, &name, nodes).await {
                stage.book.note(&format!("a person gives up: {error:#}"));
            }
        }
    });
}

async fn act(stage: &Stage, step: &str, nodes: usize) -> Result<()> {
    let draw =
        |what: &str, high: usize| draw::between(stage.seed, &["people", step, what], 0, high as u64) as usize;
    let path = format!("{NODES}/node-{}", 1 + draw("node", nodes));
    match draw("what", 5) {
        0 => {
            let labels = json!({format!("{THEIRS}rack"): draw("value", 9).to_string()});
            stage.patch(&path, &json!({"metadata": {"labels": labels}})).await?;
        }
        1 => {
            let said = json!({format!("{THEIRS}note"): draw("value", 9).to_string()});
            stage.patch(&path, &json!({"metadata": {"annotations": said}})).await?;
        }
        2 => {
            let key = format!("{THEIRS}careful-{}", draw("value", 3));
            taint(stage, &path, &key, Some("PreferNoSchedule")).await?;
        }
        _ => {
            let pods = stage.items(PODS).await?;
            let apps: Vec<&Value> =
                pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == "web").collect();
            if let Some(pod) = draw::one_of(stage.seed, &["people", step, "pod"], &apps) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                // It may be gone already.
                stage.try_send("DELETE", &format!("{PODS}/{name}"), "application/json", &json!({})).await?;
            }
        }
    }
    Ok(())
}
