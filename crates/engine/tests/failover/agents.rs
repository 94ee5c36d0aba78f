//! Fence agents as programs: a stand-in with the convention of the fence-agents family, run for real and in real time.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use evac_clock::Clock;
use evac_core::failover::Attempts;
use evac_engine::failover::{Agent, Environment, Fence, PowerError, PowerSwitch, fence_by};

const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/failover/fence_standin");

fn fence(dir: &Path, mode: &str, timeout: Duration, tries: u32) -> Fence {
    let dir = dir.to_str().unwrap();
    let options = [("mode", mode), ("dir", dir), ("password", "hunter2")];
    let agent = Agent {
        program: STAND_IN.into(),
        options: options.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        confidential: BTreeSet::new(),
        environment: Environment::Bare,
        timeout,
        clock: Clock::real(),
    };
    Fence { pause: Duration::from_millis(10), ..fence_by(agent, tries) }
}

const PATIENT: Duration = Duration::from_secs(60);

/// What came of it, and every failure on the way. Nothing speaks against any try.
async fn run(fence: &Fence) -> (Result<(), PowerError>, Vec<String>) {
    let mut heard = Vec::new();
    let mut attempts = Attempts::new(fence.tries);
    loop {
        let Err(error) = fence.once("n1").await else { return (Ok(()), heard) };
        heard.push(error.to_string());
        let Some(next) = attempts.after_failure(error.is_final()) else { return (Err(error), heard) };
        attempts = next;
        Clock::real().sleep(fence.pause).await;
    }
}

fn asked(dir: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(dir.join("n1.log")).unwrap();
    log.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn d24_an_agent_switches_off_and_then_sees_the_machine_off() {
    let dir = tempfile::tempdir().unwrap();
    let (end, heard) = run(&fence(dir.path(), "good", PATIENT, 3)).await;
    assert_eq!((end, heard), (Ok(()), vec![]));
    assert_eq!(asked(dir.path()), ["off", "status"]);
    assert!(dir.path().join("n1.off").exists());
}

#[tokio::test]
async fn d24_an_agent_that_fails_is_tried_again_and_its_words_are_shown_without_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let (end, heard) = run(&fence(dir.path(), "broken", PATIENT, 3)).await;
    let Err(PowerError::Failed { action: "off", code: 1, .. }) = &end else { panic!("{end:?}") };
    assert_eq!(asked(dir.path()), ["off", "off", "off"]);
    assert_eq!(heard.len(), 3);
    assert!(
        heard[0].ends_with("exit code 1: Unable to connect or login to the controller with password ***"),
        "{heard:?}"
    );
}

#[tokio::test]
async fn d24_an_agent_that_hangs_is_killed_with_everything_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let fence = fence(dir.path(), "hanging", Duration::from_millis(500), 1);
    let (end, _) = run(&fence).await;
    assert!(matches!(end, Err(PowerError::Hung { action: "off", .. })), "{end:?}");
    let pids = std::fs::read_to_string(dir.path().join("n1.pids")).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "the agent and what it started");
    let ended = async {
        while pids.iter().any(|pid| lives(pid)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("both are gone");
}

#[tokio::test]
async fn d24_a_failover_that_is_stopped_takes_its_agent_along() {
    let dir = tempfile::tempdir().unwrap();
    let fence = fence(dir.path(), "hanging", PATIENT, 1);
    let pids = dir.path().join("n1.pids");
    {
        let running = run(&fence);
        tokio::pin!(running);
        let begun = async {
            while std::fs::read_to_string(&pids).map_or(0, |text| text.split_whitespace().count()) < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut running => panic!("it hangs"),
            () = begun => {}
        }
        // Nobody waits for it any more.
    }
    let pids = std::fs::read_to_string(pids).unwrap();
    let ended = async {
        while pids.split_whitespace().any(lives) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("all of it is gone");
}

/// Whether a process is there and has not ended; one that nobody has buried yet has ended.
fn lives(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[tokio::test]
async fn an_agent_that_lied_is_not_believed_until_the_machine_is_seen_off() {
    let dir = tempfile::tempdir().unwrap();
    let (end, heard) = run(&fence(dir.path(), "liar", PATIENT, 3)).await;
    assert_eq!(end, Ok(()));
    assert_eq!(heard.len(), 1);
    assert!(heard[0].contains("but action=status says that it is on"), "{heard:?}");
    assert_eq!(asked(dir.path()), ["off", "status", "off", "status"]);
}

#[tokio::test]
async fn an_agent_that_keeps_lying_is_no_proof() {
    let dir = tempfile::tempdir().unwrap();
    let (end, _) = run(&fence(dir.path(), "liar-for-ever", PATIENT, 2)).await;
    assert!(matches!(end, Err(PowerError::StillOn { .. })), "{end:?}");
}

#[tokio::test]
async fn an_agent_that_talks_without_end_does_not_fill_memory_or_block() {
    let dir = tempfile::tempdir().unwrap();
    let (end, _) = run(&fence(dir.path(), "chatty", PATIENT, 1)).await;
    assert_eq!(end, Ok(()));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_and_not_tried_again() {
    let agent = Agent {
        program: "/nowhere/fence_x".into(),
        options: std::collections::BTreeMap::new(),
        confidential: BTreeSet::new(),
        environment: Environment::Bare,
        timeout: PATIENT,
        clock: Clock::real(),
    };
    assert_eq!(agent.name(), "fence_x");
    let (end, heard) = run(&fence_by(agent, 5)).await;
    assert!(matches!(end, Err(PowerError::Missing { .. })), "{end:?}");
    assert_eq!(heard.len(), 1);
}
