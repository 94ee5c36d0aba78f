//! Virtual machines on the embedded server: kinds, operator, admission and the API to start and stop them, all in this process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evac_api::kubevirt::{NAMESPACE, crds, review};
use evac_apiserver::reply::Reply;
use evac_apiserver::server::Api;
use evac_core::machines::{Role, Roles};
use evac_engine::operator::publish::Reviews;
use evac_engine::operator::{Operator, Reviewer, Settings, Who, install, power, tenants};
use evac_engine::{Http, HttpError};
use futures::future::BoxFuture;
use http::Request;
use serde_json::Value;

/// Installs what machines need and runs their control plane on `client`.
pub async fn machines(api: &Arc<Api>, client: kube::Client, roles: Roles) -> Result<Operator, HttpError> {
    let http = Http::new(client, api.clock, Duration::ZERO);
    install::kinds(&http).await?;
    // The sandbox stands for a whole cluster, with the product whose settings machines follow.
    install::define(&http, &[crds::hyperconverged()]).await?;
    if roles.has(Role::Failover) {
        install::policies(&http).await?;
    }
    let operator = Operator::start_set(http.clone(), roles.clone(), local());
    answer_reviews(api, &http, &operator);
    answer_power(api, &http, &operator);
    install::reviews(&http, Reviews::of(&roles)).await?;
    Ok(operator)
}

/// The embedded server is on this machine, and so may tenants be.
pub fn local() -> Settings {
    let tenants = tenants::Settings { loopback: true, ..tenants::Settings::default() };
    Settings { tenants, ..Settings::default() }
}

/// The embedded server has no service network; reviews reach us by function call.
fn answer_reviews(api: &Arc<Api>, http: &Http, operator: &Operator) {
    let reviewer = Reviewer::new(http.clone(), operator.view());
    for path in Reviewer::paths() {
        let reviewer = reviewer.clone();
        let handler = move |review: Value| -> BoxFuture<'static, Result<Value, String>> {
            let reviewer = reviewer.clone();
            Box::pin(async move { reviewer.review(Who::ApiServer, path, &review).await })
        };
        api.webhooks().register(NAMESPACE, review::SERVICE, path, Arc::new(handler));
    }
}

fn answer_power(api: &Arc<Api>, http: &Http, operator: &Operator) {
    for version in power::VERSIONS {
        let (http, config) = (http.clone(), operator.config());
        let handler = move |request: Request<Bytes>| -> BoxFuture<'static, Reply> {
            let (http, config) = (http.clone(), config.borrow().clone());
            Box::pin(async move {
                let path = request.uri().path();
                let reply =
                    power::answer(&http, &config, request.method().as_str(), path, request.body()).await;
                match reply.body {
                    Some(body) => Reply::json(reply.code, &body),
                    None => Reply::text(reply.code, Bytes::new()),
                }
            })
        };
        api.aggregate(power::GROUP, version, Arc::new(handler));
        api.announce(power::GROUP, version, power::resources());
    }
}
