//! The accept loop of every server in this program: the embedded API server, the operator's HTTPS server and its probes.
//!
//! ```text
//!   listen ─▶ accept ─▶ converse (one task per connection)
//!               │
//!               └─ stop: no more are accepted, conversations are told, close() waits for them
//! ```

use std::time::Duration;

use evac_clock::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pause when nothing can be accepted. Usually there are too many open files; some close soon.
const NO_MORE_FILES: Duration = Duration::from_millis(50);

/// A listener that is being served.
#[derive(Debug)]
pub struct Listening {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Listening {
    /// Starts to accept. `converse` is given each connection and the word to end; `None` turns the connection away.
    pub fn start<F>(
        listener: TcpListener,
        clock: Clock,
        converse: impl Fn(TcpStream, CancellationToken) -> Option<F> + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, clock, converse, stop.clone(), tasks.clone()));
        Self { stop, tasks }
    }

    /// Stops listening and tells conversations to end; does not wait for them.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops listening, and waits until all conversations have ended.
    pub async fn close(&self) {
        self.stop();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept<F>(
    listener: TcpListener,
    clock: Clock,
    converse: impl Fn(TcpStream, CancellationToken) -> Option<F>,
    stop: CancellationToken,
    tasks: TaskTracker,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    clock.sleep(NO_MORE_FILES).await;
                    continue;
                }
            },
        };
        // Small answers go out at once; waiting for more would cost every request 40 ms.
        let _ = stream.set_nodelay(true);
        if let Some(conversation) = converse(stream, stop.clone()) {
            tasks.spawn(conversation);
        } else {
            tracing::debug!("a connection was refused: there are too many");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Greets the first two and says goodbye when it has to end.
    async fn polite() -> (Listening, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Arc::new(AtomicUsize::new(2));
        let listening = Listening::start(listener, Clock::real(), move |mut stream, stop| {
            let place = places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            place.ok()?;
            Some(async move {
                stream.write_all(b"hello ").await.unwrap();
                stop.cancelled().await;
                stream.write_all(b"goodbye").await.unwrap();
            })
        });
        (listening, address)
    }

    #[tokio::test]
    async fn each_connection_is_served_and_told_to_end_and_close_waits_for_it() {
        let (listening, address) = polite().await;
        let mut one = TcpStream::connect(address).await.unwrap();
        let mut two = TcpStream::connect(address).await.unwrap();
        for stream in [&mut one, &mut two] {
            let mut hello = [0; 6];
            stream.read_exact(&mut hello).await.unwrap();
            assert_eq!(&hello, b"hello ");
        }
        listening.close().await;
        for mut stream in [one, two] {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "goodbye");
        }
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    }

    #[tokio::test]
    async fn who_is_turned_away_gets_nothing_and_others_are_served() {
        let (listening, address) = polite().await;
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(TcpStream::connect(address).await.unwrap());
        }
        let mut nothing = String::new();
        streams[2].read_to_string(&mut nothing).await.unwrap();
        assert_eq!(nothing, "");
        listening.close().await;
    }
}
