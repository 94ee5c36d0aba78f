//! The operator as the cluster sees it: the HTTPS server, open, and published.

use std::net::SocketAddr;

use thiserror::Error;
use tokio::task::JoinSet;

use super::publish::{self, Advertise, Place, PublishError, Reviews};
use super::serve::{ServeError, Server};
use super::view::View;
use crate::http::Http;

#[derive(Debug, Error)]
pub enum FrontError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Publish(#[from] PublishError),
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

/// A server that the cluster knows of.
pub struct Front {
    server: Server,
    pub place: Place,
    _keeping: JoinSet<()>,
}

impl Front {
    /// Opens the server, waits until it has certificates, and tells the cluster.
    pub async fn open(http: &Http, view: View, wanted: &Wanted) -> Result<Self, FrontError> {
        let named = wanted.advertise.clone().unwrap_or_else(|| Advertise::for_address(wanted.listen));
        let server =
            Server::open(http, view, wanted.listen, named.names(&wanted.service, http.home())).await?;
        let advertise = wanted.advertise.clone().unwrap_or_else(|| Advertise::for_address(server.address));
        let place = Place {
            advertise,
            namespace: http.home().to_owned(),
            service: wanted.service.clone(),
            port: server.address.port(),
            reviews: wanted.reviews,
        };
        let mut identity = server.identity();
        publish::publish(http, &place, &mut identity).await?;
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
