//! The server's audit log: who asked for what.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use evac_clock::Clock;
use serde_json::Value;

/// No request about guests for so long: every controller has come to rest. The garbage collector tries again later and later what it does not know yet.
const QUIET: Duration = Duration::from_secs(45);

pub struct Audit {
    pub path: PathBuf,
}

impl Audit {
    /// How many lines there are by now.
    pub fn lines(&self) -> Result<usize> {
        Ok(fs::read_to_string(&self.path)?.lines().count())
    }

    fn events(&self, lines: Range<usize>) -> Result<Vec<Value>> {
        let text = fs::read_to_string(&self.path)?;
        let lines = text.lines().take(lines.end).skip(lines.start);
        Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Finished requests and begun watches.
    pub fn requests(&self, lines: Range<usize>) -> Result<Vec<Value>> {
        let mut events = self.events(lines)?;
        events.retain(|event| {
            event["stage"] == if event["verb"] == "watch" { "ResponseStarted" } else { "ResponseComplete" }
        });
        Ok(events)
    }

    /// Waits until the guests have booted and the garbage collector, which looks for new kinds every half minute, has found theirs and verified
    /// what they own. In a cluster that is not seconds old none of that falls into a drain.
    pub async fn settle(&self) -> Result<()> {
        let collector = |event: &Value| {
            event["verb"] == "watch"
                && event["objectRef"]["resource"] == "virtualmachineinstances"
                && event["userAgent"]
                    .as_str()
                    .is_some_and(|agent| agent.starts_with("kube-controller-manager"))
        };
        let mut seen = 0;
        loop {
            Clock::real().sleep(QUIET).await;
            let events = self.events(0..usize::MAX)?;
            let about_guests =
                events.iter().filter(|event| event["objectRef"]["apiGroup"] == "kubevirt.io").count();
            if about_guests == seen && events.iter().any(collector) {
                return Ok(());
            }
            seen = about_guests;
        }
    }
}
