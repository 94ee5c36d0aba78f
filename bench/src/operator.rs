//! `evac operator` as a program of its own: started, asked whether it is ready, measured, told to end.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::cluster::Cluster;
use crate::process::cpu;

/// How often an operator is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(20);

pub struct Operator {
    child: Child,
    health: SocketAddr,
}

impl Operator {
    pub fn start(evac: &Path, kubeconfig: &str, log: File, arguments: &[&str]) -> Result<Self> {
        // A port that was free a moment ago.
        let health = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(evac)
            .arg("operator")
            .args(arguments)
            .args(["--health", &health.to_string()])
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", evac.display()))?;
        Ok(Self { child, health })
    }

    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the operator has ended")
    }

    pub fn cpu(&self) -> Result<Duration> {
        cpu(self.pid()?).context("the operator has ended")
    }

    /// Waits until its readiness probe is content: every role has seen the cluster.
    pub async fn ready(&mut self) -> Result<()> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the operator ended before it was ready: {status}");
            }
            // Refused while it does not listen yet.
            if self.probe().await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(());
            }
            Clock::real().sleep(ASK_EVERY).await;
        }
    }

    async fn probe(&self) -> Result<String> {
        let mut stream = TcpStream::connect(self.health).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: operator\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Waits until it is ready and acts.
    pub async fn leads(&mut self, cluster: &Cluster) -> Result<()> {
        self.ready().await?;
        cluster
            .until("/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases", |all| {
                all.get("evac-operator")
                    .and_then(|lease| lease["spec"]["holderIdentity"].as_str())
                    .is_some_and(|holder| !holder.is_empty())
            })
            .await
    }

    /// Lets it hand over its lease, so that the next one need not wait.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.pid()?.to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        self.child.wait().await?;
        Ok(())
    }
}
