//! The operator as the cluster sees it: the HTTPS server, open, and published.

use std::net::SocketAddr;

use thiserror::Error;
use tokio::task::JoinSet;

use super::index_reader::IndexReader;
use super::publish::{self, Advertise, Place, PublishError, Reviews};
use super::serve::{ServeError, Server};
use crate::http::Http;

#[derive(Debug, Error)]
pub enum FrontError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("{why}; what was written meanwhile could not be removed: {left}")]
    Left { why: PublishError, left: String },
}

/// Where to listen, and how to be found.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub listen: SocketAddr,
    /// What fits the address if it is not said.
    pub advertise: Option<Advertise>,
    pub service: String,
    pub reviews: Reviews,
}

impl Wanted {
    /// The operator as the cluster is told of it, once it listens on this address.
    fn place(&self, http: &Http, address: SocketAddr) -> Place {
        Place {
            advertise: self.advertise.clone().unwrap_or_else(|| Advertise::for_address(address)),
            namespace: http.home().to_owned(),
            service: self.service.clone(),
            port: address.port(),
            reviews: self.reviews,
        }
    }
}

/// A server that the cluster knows of.
pub struct Front {
    server: Server,
    pub place: Place,
    _keeping: JoinSet<()>,
}

impl Front {
    /// Finds out whether the server can be published, without writing anything.
    pub async fn look(http: &Http, wanted: &Wanted) -> Result<(), FrontError> {
        Ok(publish::look(http, &wanted.place(http, wanted.listen)).await?)
    }

    /// Opens the server, waits until it has certificates, and tells the cluster. Where that fails nothing stays behind.
    pub async fn open(http: &Http, view: IndexReader, wanted: &Wanted) -> Result<Self, FrontError> {
        let asked = wanted.place(http, wanted.listen);
        let before = publish::before(http, &asked).await?;
        let names = asked.advertise.names(&wanted.service, http.home());
        let server = Server::open(http, view, wanted.listen, names).await?;
        let place = wanted.place(http, server.address);
        let mut identity = server.identity();
        if let Err(why) = publish::publish(http, &place, &mut identity).await {
            // First the server, which keeps the certificates.
            server.close().await;
            let left = publish::take_back(http, &place, &before).await;
            return Err(if left.is_empty() {
                why.into()
            } else {
                FrontError::Left { why, left: left.join(", ") }
            });
        }
        let mut keeping = JoinSet::new();
        keeping.spawn(publish::keep(http.clone(), place.clone(), identity));
        Ok(Self { server, place, _keeping: keeping })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Says what is still missing to answer everything.
    pub fn waiting(&self) -> super::health::Waiting {
        self.server.waiting()
    }

    /// Lets answers that are under way go out, and closes. What was published stays: other replicas may answer.
    pub async fn close(self) {
        self.server.close().await;
    }
}
