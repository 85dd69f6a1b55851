//! The REST API of `auster run --api`, with the dashboard (`page`) and the paths of Ryu's
//! applications (`ryu`).
//!
//! Handlers are sequential: they ask the controller's thread, which answers between two messages of
//! switches. Their changes go through [`Intent`], whole or not at all. The document `/openapi.json`
//! is made from the code, and a committed copy shows each change of the document.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]
// The macros panic when they cannot write, and wait when nobody reads: see `cli::output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
mod ask;
mod audit;
mod cluster;
mod compressed;
mod counters;
mod departures;
mod described;
mod entries;
mod events;
pub mod exposition;
pub mod feed;
mod flows;
mod health;
mod hosts;
mod intent;
pub mod kinds;
mod layout;
mod listener;
mod live;
mod logins;
pub mod metrics;
mod network;
mod pace;
mod packets;
mod page;
mod parts;
mod problem;
pub mod process;
mod qos;
mod query;
mod rates;
mod reads;
mod relays;
pub mod report;
pub mod rings;
mod ryu;
mod server;
mod state;
mod stream;
mod tapped;
mod taps;
mod topology;
mod trace;
mod unique;
mod verify;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::metrics::Metrics;
use ::cluster::intent::Intent;
use access::Access;
use cli::failure::Failure;
use config::api::ApiAddress;
use config::qos::Held;
use config::qos::tree::Node;
pub use listener::Duplex;
use listener::Listener;
pub use pace::Paces;
use problem::Problem;
pub use reads::Reads;
use server::Names;

/// Locks, even if a thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state that handlers share.
#[derive(Clone)]
pub struct Api {
    pub driver: Arc<Driver<Clustered>>,
    pub clock: Clock,
    pub held: Arc<Held>,
    pub views: watch::Receiver<Views>,
    pub metrics: Metrics,
    /// The destination of all changes.
    pub intent: Arc<Intent>,
    /// The state that readers share.
    pub reads: Arc<Reads>,
    pub paces: Arc<Paces>,
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
        (name = "flows", description = "Static entries, which owners state in the words of \
                                        ovs-ofctl."),
        (name = "network", description = "Switches, links, hosts and paths, what they count, and \
                                          what happens to them."),
        (name = "applications", description = "Packets that applications see and send."),
        (name = "process", description = "Whether auster does its work."),
    ),
    components(schemas(Problem)),
)]
struct Document;

impl Api {
    /// Prepares the API, which serves nobody yet: see [`Served::bind`]. Requests are answered on
    /// `runtime`.
    pub fn with_users(self, access: &Arc<Access>, runtime: Handle) -> Served {
        Served::new(self.router(), access.clone(), runtime)
    }

    pub fn router(self) -> Router {
        let (router, document) = documented();
        let ryu = ryu::router();
        let metrics = self.metrics.clone();
        let counted = move || async move {
            let kind = (header::CONTENT_TYPE, exposition::CONTENT_TYPE);
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

/// Routes and their users, at addresses that may change.
pub struct Served {
    router: Router,
    names: Names,
    access: Arc<Access>,
    runtime: Handle,
    open: Vec<Open>,
}

struct Open {
    stated: ApiAddress,
    task: JoinHandle<()>,
    closing: Arc<Notify>,
}

/// An address that is bound and serves nobody yet.
pub struct Bound {
    stated: ApiAddress,
    local: ApiAddress,
    listener: Listener,
}

impl Served {
    fn new(router: Router, access: Arc<Access>, runtime: Handle) -> Served {
        let names = Names::default();
        let router = server::guarded(router, names.clone());
        Served {
            router: access.clone().guard(router),
            names,
            access,
            runtime,
            open: Vec::new(),
        }
    }

    /// Sets the further names by which clients may call the API.
    pub fn set_names(&self, names: &[String]) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names.to_vec();
    }

    /// Binds the addresses that are not served yet.
    pub async fn bind(&self, wanted: &[ApiAddress]) -> Result<Vec<Bound>, Vec<Failure>> {
        let (mut bound, mut failures) = (Vec::new(), Vec::new());
        for at in wanted {
            if self.open.iter().any(|open| open.stated == *at) {
                continue;
            }
            match bind(at, &self.access).await {
                Ok((local, listener)) => bound.push(Bound {
                    stated: at.clone(),
                    local,
                    listener,
                }),
                Err(failure) => failures.push(failure),
            }
        }
        match failures.is_empty() {
            true => Ok(bound),
            false => Err(failures),
        }
    }

    /// Serves each address in its own task. Returns the addresses with the ports assigned to them.
    pub fn serve(&mut self, bound: Vec<Bound>) -> Vec<ApiAddress> {
        let _there = self.runtime.enter();
        let serve = |bound: Bound| {
            let closing = Arc::new(Notify::new());
            let router = self.router.clone();
            let task = server::serve(bound.listener, router, closing.clone());
            self.open.push(Open {
                stated: bound.stated,
                task,
                closing,
            });
            bound.local
        };
        bound.into_iter().map(serve).collect()
    }

    /// Closes all addresses but these. Requests that are under way are answered.
    pub fn close_but(&mut self, wanted: &[ApiAddress]) {
        let is_gone = |open: &mut Open| !wanted.contains(&open.stated);
        for open in self.open.extract_if(.., is_gone) {
            open.closing.notify_one();
            if let ApiAddress::Unix(path) = &open.stated {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Closes all addresses, and ends all requests under way.
    pub fn stop(self) {
        for open in self.open {
            open.task.abort();
            if let ApiAddress::Unix(path) = &open.stated {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Metrics alone, with the same bounds and users.
pub fn metrics_alone<F>(
    access: &Arc<Access>,
    exposition: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Served
where
    F: Future<Output = String> + Send + 'static,
{
    let counted = move || {
        let exposition = exposition();
        let kind = (header::CONTENT_TYPE, exposition::CONTENT_TYPE);
        async move { ([kind], exposition.await) }
    };
    let router = Router::new()
        .route("/metrics", get(counted))
        .fallback(unknown)
        .method_not_allowed_fallback(no_method);
    Served::new(router, access.clone(), Handle::current())
}

async fn bind(at: &ApiAddress, access: &Access) -> Result<(ApiAddress, Listener), Failure> {
    let failed = |error| Failure::network(format!("API at {at}: {error}"));
    match at {
        ApiAddress::Ip(at) => {
            let listener = match net::passed::take(*at) {
                Some(passed) => TcpListener::from_std(passed),
                None => TcpListener::bind(at).await,
            };
            let listener = listener.map_err(failed)?;
            let at = ApiAddress::Ip(listener.local_addr().map_err(failed)?);
            Ok(match access.tls() {
                Some(tls) => (at, Listener::Tls(listener, tls.clone())),
                None => (at, Listener::Tcp(listener)),
            })
        }
        ApiAddress::Unix(path) => {
            let listener = bind_unix(path).map_err(failed)?;
            Ok((at.clone(), Listener::Unix(listener)))
        }
    }
}

fn documented() -> (Router<Api>, Value) {
    let (router, document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(access::who))
        .routes(routes!(access::reload))
        .merge(qos::router())
        .merge(state::router())
        .merge(verify::router())
        .merge(trace::router())
        .merge(intent::router())
        .merge(layout::router())
        .merge(network::router())
        .merge(flows::router())
        .merge(entries::router())
        .merge(parts::router())
        .merge(cluster::router())
        .merge(relays::router())
        .merge(topology::router())
        .merge(hosts::router())
        .merge(events::router())
        .merge(live::router())
        .merge(taps::router())
        .merge(tapped::router())
        .merge(packets::router())
        .merge(health::router())
        .split_for_parts();
    let mut document = serde_json::to_value(document).expect("a document is JSON");
    described::complete(&mut document);
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

/// A JSON body, with the place of each part.
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

/// The body as JSON, `None` without one. The content type is not checked: curl sends the content
/// type of a form.
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
    let value = unique::from_slice(&bytes).map_err(|error| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the body is no JSON: {error}"),
        )
    })?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests;
