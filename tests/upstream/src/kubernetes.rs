//! A real Kubernetes control plane without nodes: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The real control plane, if this machine could build it.
pub fn program() -> Option<PathBuf> {
    std::env::var_os("EVAC_KUBERNETES").map(PathBuf::from)
}

/// A node that a test creates without a kubelet is new for as long as the test runs: after the usual minute the node lifecycle controller would call it
/// unreachable, and how a test ends must not depend on how fast the machine is.
const NEW_NODES: &str = "--controller-manager-flag=--node-startup-grace-period=1h";

/// Starts it with these arguments, its data beside the kubeconfig, and waits until it is ready.
pub async fn start(kubeconfig: &Path, arguments: &[&OsStr]) -> Child {
    let mut child = Command::new(program().expect("EVAC_KUBERNETES"))
        .args(["up", NEW_NODES])
        .args(arguments)
        .args(["--exit-on-stdin-close", "--dir"])
        .arg(kubeconfig.with_file_name("kubernetes"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the real control plane starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.starts_with("ready:") {
            return child;
        }
    }
    panic!("the real control plane ended before it was ready");
}

/// How a client reaches the server.
pub async fn config(kubeconfig: &Path) -> kube::Config {
    let read = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.unwrap()
}
