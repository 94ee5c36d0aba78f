//! What all callers of the HTTPS server together may cost, so that it stays below the memory of the pod.
//!
//! Callers of whom nothing is known have a share of their own: whatever they send, an API server finds room. What is counted: connections with
//! their buffers and headers, the bytes of bodies while they are read, and what bodies become when they are parsed, which can be
//! a hundred times their size. A connection that was never used by the API server makes way for a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evac_api::install::MEMORY_LIMIT;
use evac_clock::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Open connections.
pub(super) const CONNECTIONS: usize = 64;
/// Requests at the same time on one of them.
pub(super) const STREAMS: u32 = 32;
/// The headers of one request.
pub(super) const HEADER_BYTES: u32 = 16 * 1024;
pub(super) const HEADERS: usize = 100;
/// What a client may send before it is read.
pub(super) const WINDOW: u32 = 64 * 1024;
/// What TLS keeps of a connection.
const TLS: usize = 48 * KIB;

/// A review holds an object twice; the API server takes objects of up to 3 MiB.
pub(super) const REVIEW_LIMIT: usize = 8 * MIB;
/// What is read of a review that the API server did not send, and of a command.
pub(super) const SMALL_LIMIT: usize = 64 * KIB;

/// How much is read at the same time, and how much it may become.
struct Share {
    bodies: usize,
    parsed: usize,
    /// How long a request waits for room, and then for its body.
    wait: Duration,
    body: Duration,
}

const SERVER: Share = Share {
    bodies: 32 * MIB,
    parsed: 128 * MIB,
    wait: Duration::from_secs(5),
    body: Duration::from_secs(10),
};
const STRANGERS: Share =
    Share { bodies: MIB, parsed: 16 * MIB, wait: Duration::ZERO, body: Duration::from_secs(5) };

const _: () = {
    let streams = STREAMS as usize * HEADER_BYTES as usize;
    let connections = CONNECTIONS * (streams + 2 * WINDOW as usize + TLS);
    let bodies = SERVER.bodies + SERVER.parsed + STRANGERS.bodies + STRANGERS.parsed;
    // The other half is for what the operator knows of the cluster.
    assert!(connections + bodies <= MEMORY_LIMIT / 2);
};

/// Who is asking, as far as it can be known before the body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    ApiServer,
    Stranger,
}

/// Why there is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// There will be soon.
    Busy,
    /// There never is for something of this kind.
    TooLarge,
}

struct Pool {
    share: Share,
    bodies: Arc<Semaphore>,
    parsed: Arc<Semaphore>,
}

impl Pool {
    fn new(share: Share) -> Self {
        let kib = |bytes: usize| Arc::new(Semaphore::new(bytes / KIB));
        Self { bodies: kib(share.bodies), parsed: kib(share.parsed), share }
    }
}

pub(super) struct Budget {
    server: Pool,
    strangers: Pool,
    clock: Clock,
}

/// Room that is held until this is dropped.
#[derive(Debug)]
pub(super) struct Room(#[allow(dead_code, reason = "held, never looked at")] OwnedSemaphorePermit);

impl Budget {
    pub(super) fn new(clock: Clock) -> Self {
        Self { server: Pool::new(SERVER), strangers: Pool::new(STRANGERS), clock }
    }

    fn pool(&self, who: Who) -> &Pool {
        match who {
            Who::ApiServer => &self.server,
            Who::Stranger => &self.strangers,
        }
    }

    /// Within this time a body has to arrive.
    pub(super) fn patience(&self, who: Who) -> Duration {
        self.pool(who).share.body
    }

    /// Room for a body of this size, all of it before anything is read: two halves of two bodies would wait for each other.
    pub(super) async fn body(&self, who: Who, bytes: usize) -> Result<Room, NoRoom> {
        let pool = self.pool(who);
        self.room(&pool.bodies, pool.share.bodies, pool.share.wait, bytes).await
    }

    /// Room for what a body becomes when it is parsed.
    pub(super) async fn parsed(&self, who: Who, body: &[u8]) -> Result<Room, NoRoom> {
        let pool = self.pool(who);
        self.room(&pool.parsed, pool.share.parsed, pool.share.wait, parsed_size(body)).await
    }

    async fn room(
        &self,
        semaphore: &Arc<Semaphore>,
        all: usize,
        wait: Duration,
        bytes: usize,
    ) -> Result<Room, NoRoom> {
        let permits = bytes.div_ceil(KIB).max(1);
        let Ok(permits) = u32::try_from(permits) else { return Err(NoRoom::TooLarge) };
        if bytes > all {
            return Err(NoRoom::TooLarge);
        }
        if let Ok(permit) = semaphore.clone().try_acquire_many_owned(permits) {
            return Ok(Room(permit));
        }
        if wait.is_zero() {
            return Err(NoRoom::Busy);
        }
        tokio::select! {
            biased;
            permit = semaphore.clone().acquire_many_owned(permits) => permit.map(Room).map_err(|_| NoRoom::Busy),
            () = self.clock.sleep(wait) => Err(NoRoom::Busy),
        }
    }

    /// How many bytes of bodies there is still room for; for tests.
    #[cfg(test)]
    fn left(&self, who: Who) -> usize {
        self.pool(who).bodies.available_permits() * KIB
    }
}

/// The most memory that JSON takes when it is parsed into values. Signs in strings are counted as well, so it is never less.
pub(super) fn parsed_size(body: &[u8]) -> usize {
    /// A value in a list that has just grown, and a map with one entry.
    const VALUE: usize = 64;
    const MAP: usize = 1024;
    let mut size = body.len();
    for (at, byte) in body.iter().enumerate() {
        size += match byte {
            b'{' if body.get(at + 1) != Some(&b'}') => MAP,
            b'[' | b',' | b':' | b'{' => VALUE,
            _ => 0,
        };
    }
    size
}

/// The connections that are open.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// In the order in which they came.
    all: BTreeMap<u64, Connection>,
}

struct Connection {
    cut: CancellationToken,
    /// The API server has used it.
    proven: bool,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection. If all are taken the oldest of those that the API server never used is cut; `None` if
    /// it used them all.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Place> {
        let mut open = self.open();
        if open.all.len() >= CONNECTIONS {
            let oldest = open.all.iter().find(|(_, one)| !one.proven).map(|(id, _)| *id)?;
            if let Some(one) = open.all.remove(&oldest) {
                one.cut.cancel();
            }
        }
        open.next += 1;
        let (id, cut) = (open.next, CancellationToken::new());
        open.all.insert(id, Connection { cut: cut.clone(), proven: false });
        Some(Place { id, cut, connections: self.clone() })
    }
}

/// A connection's place among the others.
pub(super) struct Place {
    id: u64,
    pub(super) cut: CancellationToken,
    connections: Arc<Connections>,
}

impl Place {
    /// The API server uses it.
    pub(super) fn prove(&self) {
        if let Some(one) = self.connections.open().all.get_mut(&self.id) {
            one.proven = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whatever_strangers_hold_the_api_server_finds_room() {
        let budget = Budget::new(Clock::real());
        let mut held = Vec::new();
        while let Ok(room) = budget.body(Who::Stranger, SMALL_LIMIT).await {
            held.push(room);
        }
        assert_eq!(held.len(), STRANGERS.bodies / SMALL_LIMIT);
        assert_eq!(budget.left(Who::Stranger), 0);
        assert!(budget.body(Who::ApiServer, REVIEW_LIMIT).await.is_ok());
        held.pop();
        assert!(
            budget.body(Who::Stranger, SMALL_LIMIT).await.is_ok(),
            "room that is given back is used again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_waits_a_little_for_room_and_what_can_never_fit_is_said_at_once() {
        let budget = Budget::new(Clock::real());
        let held = budget.body(Who::ApiServer, SERVER.bodies).await.unwrap();
        assert_eq!(budget.body(Who::ApiServer, 1).await.unwrap_err(), NoRoom::Busy);
        assert_eq!(budget.body(Who::ApiServer, SERVER.bodies + 1).await.unwrap_err(), NoRoom::TooLarge);
        let (room, ()) = tokio::join!(budget.body(Who::ApiServer, 1), async { drop(held) });
        assert!(room.is_ok());
        let bomb = b"{\"\":0},".repeat(200_000);
        assert_eq!(budget.parsed(Who::ApiServer, &bomb).await.unwrap_err(), NoRoom::TooLarge);
    }

    #[test]
    fn the_estimate_of_parsed_json_counts_what_takes_memory() {
        assert!(parsed_size(&b"0,".repeat(1000)) >= 1000 * 32);
        assert!(parsed_size(&b"{\"\":0},".repeat(1000)) >= 1000 * 640);
        let usual = serde_json::json!({"metadata": {"name": "a", "managedFields": {"f:x": {}, "f:y": {}}}});
        assert!(parsed_size(usual.to_string().as_bytes()) < 8 * KIB);
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_oldest_that_the_api_server_never_used() {
        let connections = Arc::new(Connections::default());
        let mut places: Vec<Place> = (0..CONNECTIONS).map(|_| connections.admit().unwrap()).collect();
        places[0].prove();
        let new = connections.admit().unwrap();
        assert!(
            !places[0].cut.is_cancelled() && places[1].cut.is_cancelled() && !places[2].cut.is_cancelled()
        );
        assert_eq!(connections.open().all.len(), CONNECTIONS);
        places.remove(1);
        assert_eq!(connections.open().all.len(), CONNECTIONS, "one that was cut is not counted twice");
        for place in places.iter().chain([&new]) {
            place.prove();
        }
        assert!(connections.admit().is_none(), "the API server's own are never cut");
        drop(new);
        assert!(connections.admit().is_some());
    }
}
