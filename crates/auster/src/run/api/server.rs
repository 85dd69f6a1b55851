//! HTTP/1.1 for a few clients: everything that one of them can make grow has a bound.
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | connections | [`CONNECTIONS_MAX`] | others wait to be accepted |
//! | a connection | [`CONNECTION_MAX`] | it is closed |
//! | the head of a request, and its time | [`HEAD_BYTES_MAX`], [`HEAD_MAX`] | the connection is closed |
//! | a body | [`BODY_BYTES_MAX`] | 413 |
//! | a request, from its head to its answer | [`REQUEST_MAX`] | 503 |

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::problem::Problem;

const CONNECTIONS_MAX: usize = 64;
const CONNECTION_MAX: Duration = Duration::from_secs(300);
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEAD_MAX: Duration = Duration::from_secs(10);
pub const BODY_BYTES_MAX: usize = 1 << 20;
const REQUEST_MAX: Duration = Duration::from_secs(20);
/// After an error of accept, such as too many open files.
const REST: Duration = Duration::from_millis(50);

/// Serves until the task is aborted, which closes its connections too.
pub fn serve(listener: TcpListener, router: Router) -> JoinHandle<()> {
    let is_local = listener
        .local_addr()
        .is_ok_and(|at: SocketAddr| at.ip().is_loopback());
    let router = guarded(router, is_local);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut served = JoinSet::new();
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("API: a connection is not accepted: {error}");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            let service = TowerToHyperService::new(router.clone());
            served.spawn(async move {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_MAX)
                    .max_buf_size(HEAD_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), service);
                if let Ok(Err(error)) = timeout(CONNECTION_MAX, connection).await {
                    tracing::debug!("API: {peer}: {error}");
                }
                drop(place);
            });
            while served.try_join_next().is_some() {}
        }
    })
}

/// What holds for every request.
pub fn guarded(router: Router, is_local: bool) -> Router {
    router
        .layer(from_fn(in_time))
        .layer(from_fn(move |request: Request, next: Next| async move {
            match foreign(&request, is_local) {
                Some(problem) => problem.into_response(),
                None => next.run(request).await,
            }
        }))
}

async fn in_time(request: Request, next: Next) -> Response {
    match timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::busy().into_response(),
    }
}

/// A browser sends what any page asks it to. A page of another origin changes nothing here, and a name
/// that somebody has pointed at this machine is not believed where only this machine is served.
fn foreign(request: &Request, is_local: bool) -> Option<Problem> {
    let text = |name| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap_or("?"))
    };
    let host = text(header::HOST);
    if let Some(host) = host.filter(|host| is_local && !is_loopback(host)) {
        let detail = format!("Host is {host}; this address is served as localhost only");
        return Some(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let origin = text(header::ORIGIN).filter(|_| changes)?;
    let of_origin = origin.split_once("://").map(|(_, host)| host);
    if of_origin.is_some() && of_origin == host {
        return None;
    }
    let detail = format!("a page of {origin} changes nothing here");
    Some(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/v1/services");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn other_pages_change_nothing_and_other_names_are_not_believed() {
        let local = ("host", "localhost:8080");
        for (method, headers, is_local, is_let_in) in [
            ("PUT", vec![local], true, true),
            ("PUT", vec![("host", "127.0.0.1:8080")], true, true),
            ("PUT", vec![("host", "[::1]:8080")], true, true),
            ("GET", vec![("host", "evil.example:8080")], true, false),
            ("GET", vec![("host", "controller.example")], false, true),
            (
                "PUT",
                vec![local, ("origin", "http://evil.example")],
                true,
                false,
            ),
            (
                "PUT",
                vec![local, ("origin", "http://localhost:8080")],
                true,
                true,
            ),
            ("PUT", vec![local, ("origin", "null")], true, false),
            (
                "GET",
                vec![local, ("origin", "http://evil.example")],
                true,
                true,
            ),
        ] {
            let request = request(method, &headers);
            let is_foreign = foreign(&request, is_local).is_some();
            assert_eq!(!is_foreign, is_let_in, "{method} {headers:?} {is_local}");
        }
    }
}
