//! Reads a cluster for a snapshot: each kind with one list, of which nothing is kept but what may be in a snapshot.

use evac_api::Call;
use evac_api::snapshot::header::{FORMAT, VERSION};
use evac_api::snapshot::{Cluster, Header, KINDS, KindState, Reading, SnapshotKind};
use evac_api::wire::Named;
use serde_json::Value;
use thiserror::Error;

use crate::http::{Http, HttpError};
use crate::watch::{Source, list};

/// A snapshot that is not in a file yet.
#[derive(Debug)]
pub struct Captured {
    pub header: Header,
    /// One object each, in the order of the header's kinds.
    pub lines: Vec<String>,
}

/// Why there is no snapshot.
#[derive(Debug, Error)]
#[error("could not read {what}")]
pub struct CaptureError {
    pub what: &'static str,
    #[source]
    pub source: HttpError,
}

/// Reads a cluster. What may not be read is noted, unless there is no answer without it; a server that fails ends it.
pub async fn capture(http: &Http, version: &str) -> Result<Captured, CaptureError> {
    let captured = http.clock().calendar();
    let cluster = cluster(http).await?;
    let mut kinds: Vec<KindState> = Vec::new();
    let mut lines = Vec::new();
    for kind in KINDS {
        let count = |name: &str| {
            let known = kinds.iter().find(|one| one.kind == name)?;
            if let Reading::Read { objects, .. } = known.state { Some(objects) } else { None }
        };
        let state =
            if kind.is_needed(count) { read(http, kind, &mut lines).await? } else { Reading::NotNeeded };
        kinds.push(KindState { kind: kind.name.to_owned(), state });
    }
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        evac: version.to_owned(),
        captured,
        cluster,
        kinds,
    };
    Ok(Captured { header, lines })
}

async fn cluster(http: &Http) -> Result<Cluster, CaptureError> {
    match http.read_patiently::<Named>(&Call::get("/api/v1/namespaces/kube-system")).await {
        Ok(namespace) => Ok(Cluster::Uid(namespace.metadata.uid)),
        Err(error) if error.is_forbidden() || error.is_not_found() => Ok(Cluster::Unknown(error.to_string())),
        Err(source) => Err(CaptureError { what: "the namespace kube-system", source }),
    }
}

async fn read(
    http: &Http,
    kind: &'static SnapshotKind,
    lines: &mut Vec<String>,
) -> Result<Reading, CaptureError> {
    let source = Source { path: kind.path.into(), query: kind.query.to_owned(), page: 500 };
    match list(http, &source, |object: Value| Some(kind.reduce(&object).to_string())).await {
        Ok((found, resource_version)) => {
            let objects = found.len();
            lines.extend(found);
            Ok(Reading::Read { objects, resource_version })
        }
        Err(error) if !kind.is_essential && error.is_not_found() => Ok(Reading::NotServed),
        Err(error) if !kind.is_essential && error.is_forbidden() => {
            Ok(Reading::Unread { why: error.to_string() })
        }
        Err(source) => Err(CaptureError { what: kind.name, source }),
    }
}
