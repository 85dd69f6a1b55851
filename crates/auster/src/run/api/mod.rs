//! The REST API of `auster run --api`, and beside it the dashboard (`page`) and the paths of Ryu's
//! applications (`ryu`).
//!
//! Handlers are sequential: they ask the controller's thread, which answers between two messages of
//! switches. What they change goes through [`Intent`], whole or not at all. The document
//! `/openapi.json` is made from the code, and a committed copy shows each change of it.

mod ask;
mod cluster;
mod events;
mod flows;
mod health;
mod hosts;
mod intent;
mod live;
mod network;
mod page;
mod problem;
mod qos;
mod query;
mod rates;
mod reads;
mod ryu;
mod server;
mod state;
mod stream;
mod topology;
mod trace;
mod verify;

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::{Json, Router};
use control::clustered::Clustered;
use driver::Driver;
use driver::databases::Views;
use net::clock::Clock;
use net::transport::bind_unix;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::ApiAddress;
use crate::run::intent::Intent;
use crate::run::metrics::{self, Metrics};
use crate::run::qos::Held;
use crate::run::qos::tree::Node;
use cli::failure::Failure;
use problem::Problem;
pub use reads::Reads;
pub use server::Duplex;

/// The state that handlers share.
#[derive(Clone)]
pub struct Api {
    pub driver: Arc<Driver<Clustered>>,
    pub clock: Clock,
    pub held: Arc<Held>,
    pub views: watch::Receiver<Views>,
    pub metrics: Metrics,
    /// Where all changes go.
    pub intent: Arc<Intent>,
    /// The state that readers share.
    pub reads: Arc<Reads>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "auster run",
        description = "Queues, services, policies and circuits of an OpenFlow network, and what \
                       its switches count. Rates are written as tc does (`100mbit`), ports as \
                       switch and number (`1:2`), hosts by Ethernet or IP address.",
        version = "1",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "qos", description = "What is asked of the data path. What the configuration says \
                                      is shown and not changed here."),
        (name = "network", description = "Switches, links, hosts and paths, what they count, and \
                                          what happens to them."),
        (name = "process", description = "Whether auster does its work."),
    )
)]
struct Document;

impl Api {
    /// Serves in a task of its own; the address with the port that was given out. `names` are those
    /// that clients may know it by, beside its addresses.
    pub async fn serve(
        self,
        at: &ApiAddress,
        names: &[String],
    ) -> Result<(ApiAddress, JoinHandle<()>), Failure> {
        let failed = |error| Failure::network(format!("API at {at}: {error}"));
        let (listener, at) = match at {
            ApiAddress::Ip(at) => {
                let listener = TcpListener::bind(at).await.map_err(failed)?;
                let at = listener.local_addr().map_err(failed)?;
                (server::Listener::Tcp(listener), ApiAddress::Ip(at))
            }
            ApiAddress::Unix(path) => {
                let listener = bind_unix(path).map_err(failed)?;
                (server::Listener::Unix(listener), at.clone())
            }
        };
        Ok((at, server::serve(listener, self.router(), names)))
    }

    pub fn router(self) -> Router {
        let (router, document) = documented();
        let ryu = ryu::router();
        let metrics = self.metrics.clone();
        let counted = move || async move {
            let kind = (header::CONTENT_TYPE, metrics::CONTENT_TYPE);
            ([kind], metrics.exposition().await)
        };
        let router = router.merge(ryu).with_state(self);
        let document = Arc::new(document);
        let told = move || async move { Json((*document).clone()) };
        router
            .route("/openapi.json", get(told))
            .route("/metrics", get(counted))
            .merge(page::router())
            .fallback(unknown)
            .method_not_allowed_fallback(no_method)
    }
}

fn documented() -> (Router<Api>, Value) {
    let (router, document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(qos::router())
        .merge(state::router())
        .merge(verify::router())
        .merge(trace::router())
        .merge(intent::router())
        .merge(network::router())
        .merge(flows::router())
        .merge(cluster::router())
        .merge(topology::router())
        .merge(hosts::router())
        .merge(events::router())
        .merge(live::router())
        .merge(health::router())
        .split_for_parts();
    let document = serde_json::to_value(document).expect("a document is JSON");
    (router, document)
}

async fn unknown(request: Request) -> Problem {
    let detail = format!("there is nothing at {}", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn no_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    let detail = format!("{method} does nothing at {path}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// A body that is JSON, and where each part of it is.
pub struct Body(pub Node);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Body, Problem> {
        let value = json(request).await?;
        let value = value.ok_or_else(|| {
            let detail = "the body is empty; it must be a JSON document";
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?;
        Ok(Body(Node::of_json(&value)))
    }
}

/// The body as JSON, `None` without one. The content type is not checked: curl sends that of a
/// form.
async fn json(request: Request) -> Result<Option<Value>, Problem> {
    json_within(request, server::BODY_BYTES_MAX).await
}

async fn json_within(request: Request, bytes_max: usize) -> Result<Option<Value>, Problem> {
    let bytes = axum::body::to_bytes(request.into_body(), bytes_max).await;
    let bytes = bytes.map_err(|_| {
        let detail = format!("more than {bytes_max} bytes, or cut short");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    })?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let value = serde_json::from_slice(&bytes).map_err(|error| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the body is no JSON: {error}"),
        )
    })?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests;
