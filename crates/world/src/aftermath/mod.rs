//! Whether what a cluster says of itself is what its kubelets and hypervisors know.
//!
//! Every test of machines ends with this: a status that nobody corrects any more is a lie, however it came about. It is not asked whether
//! everything has finished: a guest that is being copied is to be called migrating, one that starts is to be called starting. What is
//! on its way to be said is waited for, by watching.

mod maintenance;
#[cfg(test)]
mod maintenance_tests;
mod rules;
#[cfg(test)]
mod tests;

use std::time::Duration;

use evac_clock::Clock;
use futures::stream::{FuturesUnordered, StreamExt, select_all};
use futures::{AsyncBufReadExt, TryStreamExt};
use serde_json::Value;

pub use self::rules::{Picture, untrue};
use crate::World;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";
const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const MIGRATIONS: &str = "/apis/kubevirt.io/v1/virtualmachineinstancemigrations";
const MAINTENANCES: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
const FIRST_MAINTENANCES: &str = "/apis/kubevirt.io/v1alpha1/nodemaintenances";

/// What the server has, and where to watch on from.
async fn list(client: &kube::Client, path: &str) -> Result<Option<(Vec<Value>, String)>, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(mut list) => {
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
            let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
            Ok(Some((items.unwrap_or_default(), version)))
        }
        // A kind that is not installed.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// All that is said in a cluster, and the watches to open to hear of more.
pub async fn picture(client: &kube::Client) -> Result<(Picture, Vec<String>), kube::Error> {
    let mut watches = Vec::new();
    let mut all = Vec::new();
    for path in [NODES, PODS, MACHINES, INSTANCES, MIGRATIONS, MAINTENANCES, FIRST_MAINTENANCES] {
        let found = list(client, path).await?;
        if let Some((_, version)) = &found {
            watches.push(format!("{path}?watch=1&resourceVersion={version}"));
        }
        all.push(found.map(|(items, _)| items).unwrap_or_default());
    }
    let mut all = all.into_iter();
    let mut next = || all.next().unwrap_or_default();
    let picture = Picture {
        nodes: next(),
        pods: next(),
        machines: next(),
        instances: next(),
        migrations: next(),
        maintenances: next().into_iter().chain(next()).collect(),
    };
    Ok((picture, watches))
}

/// What is still untrue when nothing more is said about it, or a limit is reached. Nothing if all is well.
pub async fn at_rest(
    world: &World,
    client: &kube::Client,
    clock: Clock,
    limit: Duration,
) -> Result<Vec<String>, kube::Error> {
    let end = clock.now().checked_add(limit).unwrap_or(jiff::Timestamp::MAX);
    let mut was_true = false;
    loop {
        let (picture, watches) = picture(client).await?;
        let wrong = untrue(&world.truth().await, &picture);
        if wrong.is_empty() && was_true {
            return Ok(wrong);
        }
        was_true = wrong.is_empty();
        if was_true {
            // It may have been true by chance, just before something else was written.
            world.idle().await;
            continue;
        }
        if clock.now() >= end {
            return Ok(wrong);
        }
        tokio::select! {
            biased;
            heard = next_event(client, &watches) => heard?,
            () = clock.sleep_until(end) => {}
        }
    }
}

/// Waits for the next change of anything.
async fn next_event(client: &kube::Client, watches: &[String]) -> Result<(), kube::Error> {
    let mut opening: FuturesUnordered<_> = watches
        .iter()
        .map(|path| async move {
            let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            client.request_stream(request).await
        })
        .collect();
    let mut streams = Vec::new();
    while let Some(opened) = opening.next().await {
        streams.push(Box::pin(opened?.lines().into_stream()));
    }
    // The end of a watch is as good a reason to look again as an event.
    let _ = select_all(streams).next().await;
    Ok(())
}
