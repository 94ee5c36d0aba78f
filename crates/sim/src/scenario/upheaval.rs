//! What happens to the cluster itself while evac works: its history is compacted, and nodes are cut off for a while.

use std::sync::Arc;
use std::time::Duration;

use crate::draw;
use crate::stage::Stage;

/// Forgets the past now and then, as etcd does every five minutes: who was not listening has to read everything again.
pub fn compact(stage: &Arc<Stage>) {
    let stage = stage.clone();
    tokio::spawn(async move {
        for number in 0_u32.. {
            let pause = draw::between(stage.seed, &["compaction", &number.to_string()], 2_000, 30_000);
            stage.pass(Duration::from_millis(pause)).await;
            if stage.field.calm() {
                return;
            }
            stage.happens("compaction", number as usize, "F2");
            stage.api.store.compact(stage.api.store.revision());
        }
    });
}

/// Cuts nodes off, one after the other, for shorter and longer than the control plane waits before it calls them unknown. What runs on them goes on.
pub fn flap(stage: &Arc<Stage>, nodes: usize) {
    let stage = stage.clone();
    tokio::spawn(async move {
        for number in 0_u32.. {
            let name = number.to_string();
            let draw = |what: &str, low: u64, high: u64| {
                draw::between(stage.seed, &["flap", &name, what], low, high)
            };
            stage.pass(Duration::from_millis(draw("pause", 5_000, 60_000))).await;
            if stage.field.calm() {
                return;
            }
            let node = format!("node-{}", draw("node", 1, nodes as u64 + 1));
            stage.happens(&node, number as usize, "F14");
            stage.world.kubelet(&node).stop();
            stage.pass(Duration::from_millis(draw("away", 3_000, 75_000))).await;
            stage.world.kubelet(&node).start();
        }
    });
}
