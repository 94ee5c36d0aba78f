//! Starts the real kube-apiserver, if the machine has one.

use std::io::Write as _;
use std::process::Stdio;

use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::arm::Arm;

/// A running control plane. It ends with this value, because its standard input closes.
pub struct Real {
    pub arm: Arm,
    _process: Child,
    _dir: tempfile::TempDir,
}

/// Usually a server forgets the past only every five minutes, and answers from its cache even longer.
const FORGETFUL: &[&str] =
    &["--apiserver-flag=--etcd-compaction-interval=2s", "--apiserver-flag=--watch-cache-sizes=configmaps#0"];

/// Starts one if it is needed.
pub async fn start_if(needed: bool, forgetful: bool) -> Option<Real> {
    if needed { start(forgetful).await } else { None }
}

/// `None` when no program is named, which is said loudly.
async fn start(forgetful: bool) -> Option<Real> {
    let Ok(program) = std::env::var("EVAC_KUBERNETES") else {
        if !forgetful {
            skipped();
        }
        return None;
    };
    let dir = tempfile::tempdir().expect("a directory for the control plane");
    let mut process = Command::new(&program)
        .arg("up")
        .arg("--dir")
        .arg(dir.path())
        .args(["--no-scheduler", "--no-controller-manager", "--exit-on-stdin-close"])
        .args(if forgetful { FORGETFUL } else { &[] })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
    let file = loop {
        let line = lines.next_line().await.ok().flatten().expect("the control plane did not start");
        if let Some(file) = line.strip_prefix("ready: export KUBECONFIG=") {
            break file.to_owned();
        }
    };
    let config = Kubeconfig::read_from(file).expect("its kubeconfig");
    let mut admin = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .expect("its kubeconfig");
    // What the server says is compared, not what becomes of it after some tries.
    admin.default_retry = false;
    let mut nobody = admin.clone();
    nobody.auth_info = kube::config::AuthInfo::default();
    let client = |config| kube::Client::try_from(config).expect("a client");
    let arm = Arm::Real { admin: client(admin), nobody: client(nobody) };
    Some(Real { arm, _process: process, _dir: dir })
}

fn skipped() {
    let line = "skipped: conformance on a real API server (EVAC_KUBERNETES is not set; cargo xtask test builds \
                it when Go is installed)\n";
    super::tell(line);
    if let Some(file) = std::env::var_os("EVAC_SKIPPED") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
        // The line on stderr says it in any case.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
