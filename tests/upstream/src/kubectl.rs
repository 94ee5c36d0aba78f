//! What an administrator does with kubectl.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::kubernetes;

/// The administrator's kubeconfig with the token of an account instead.
pub async fn account(kubeconfig: &Path, namespace: &str, name: &str) -> PathBuf {
    let token = kubectl(kubeconfig, &["create", "token", "-n", namespace, name, "--duration=3h"]).await;
    let token = String::from_utf8(token.stdout).unwrap();
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.split_once("token: ") {
            Some((before, _)) => format!("{before}token: {}", token.trim()),
            None => line.to_owned(),
        })
        .collect();
    let path = kubeconfig.with_file_name(format!("{name}.kubeconfig"));
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// Applies objects as kubectl does, with every field known to the server.
pub async fn apply(kubeconfig: &Path, words: &[&str], objects: &[u8]) {
    let mut child = command(kubeconfig)
        .args(["apply", "--server-side", "--validate=strict", "-f", "-"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(objects).await.unwrap();
    assert!(child.wait().await.unwrap().success(), "what is installed is accepted");
}

pub async fn kubectl(kubeconfig: &Path, words: &[&str]) -> Output {
    let output = try_kubectl(kubeconfig, words).await;
    assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Whatever comes of it.
pub async fn try_kubectl(kubeconfig: &Path, words: &[&str]) -> Output {
    command(kubeconfig).args(words).output().await.unwrap()
}

fn command(kubeconfig: &Path) -> Command {
    let program = kubernetes::program().expect("EVAC_KUBERNETES").with_file_name("kubectl");
    let mut command = Command::new(program);
    command.env("KUBECONFIG", kubeconfig).env("HOME", kubeconfig.parent().unwrap_or(kubeconfig));
    command
}
