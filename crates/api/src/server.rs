//! HTTP/1.1 for a few clients: everything that a client can make grow has a bound.
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | connections | [`CONNECTIONS_MAX`] | the longest idle one is closed (1) |
//! | connections of a source | [`CONNECTIONS_PER_SOURCE_MAX`] | its own longest idle one is (2) |
//! | a handshake of TLS | 5 s (`listener`) | the connection is closed |
//! | a connection, and its idle time | [`CONNECTION_MAX`], [`HEAD_MAX`] | it is closed (3) |
//! | a request's head, and its time | [`HEAD_BYTES_MAX`], [`HEAD_MAX`] | the connection is closed |
//! | a body | [`BODY_BYTES_MAX`] | 413 |
//! | a request, from its head to its answer | [`REQUEST_MAX`] | 503 |
//!
//! (1) It must be idle for a second at least, or for 50 ms if it has never asked. If none is, new
//! connections wait to be accepted. (2) If none is idle, the new connection is closed. (3) A
//! connection with a stream is busy, and stays for as long as the stream does: see
//! [`super::stream`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{timeout, timeout_at};

use super::compressed::compress;
use super::listener::{Listener, Peer, Source};
use super::problem::Problem;

const CONNECTIONS_MAX: usize = 64;
/// The time for which connections may continue after their listener has closed.
const CLOSE_MAX: Duration = Duration::from_secs(3);
/// Connections from this machine are not counted: it may run a proxy with all its clients behind
/// it.
const CONNECTIONS_PER_SOURCE_MAX: usize = 8;
const CONNECTION_MAX: Duration = Duration::from_secs(300);
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEAD_MAX: Duration = Duration::from_secs(10);
pub const BODY_BYTES_MAX: usize = 1 << 20;
pub const REQUEST_MAX: Duration = Duration::from_secs(20);
/// The idle time before a connection gives way to another: its request may be on the path.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// The same for a connection that has never asked for anything.
const SILENT_MIN: Duration = Duration::from_millis(50);
/// The pause after an error of accept, such as too many open files.
const REST: Duration = Duration::from_millis(50);

/// Serves until the task is aborted, which closes its connections too.
pub fn serve(listener: Listener, router: Router, closing: Arc<Notify>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let places = Arc::new(Places::default());
        let mut served = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = closing.notified() => break,
            };
            let (accepted, mut peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("API: a connection is not accepted: {error}");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            let Some(number) = places.admit(peer.source).await else {
                let from = &peer.from;
                tracing::info!("API: {from}: closed, its address has all the connections it may");
                continue;
            };
            let routes = TowerToHyperService::new(router.clone());
            let connected = Connected::new(places.clone(), number);
            let of_it = connected.clone();
            let place = Place {
                places: places.clone(),
                number,
            };
            let handle = served.spawn(async move {
                let from = peer.from.clone();
                let stream = match accepted.shake(&mut peer).await {
                    Ok(stream) => stream,
                    Err(error) => return tracing::debug!("API: {from}: {error}"),
                };
                let service = service_fn(move |mut request: hyper::Request<Incoming>| {
                    let busy = Busy::new(of_it.0.places.clone(), number);
                    request.extensions_mut().insert(of_it.clone());
                    request.extensions_mut().insert(peer.clone());
                    let answer = routes.call(request);
                    async move {
                        let answer = answer.await;
                        drop(busy);
                        answer
                    }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_MAX)
                    .max_buf_size(HEAD_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    ended = connection => if let Err(error) = ended {
                        tracing::debug!("API: {from}: {error}");
                    },
                    () = connected.over(CONNECTION_MAX) => {}
                }
                drop(place);
            });
            places.runs_as(number, handle);
            while served.try_join_next().is_some() {}
        }
        drop(listener);
        let ended = async { while served.join_next().await.is_some() {} };
        let _ = timeout(CLOSE_MAX, ended).await;
    })
}

/// Further names by which clients may call the API.
pub type Names = Arc<RwLock<Vec<String>>>;

/// The open connections.
#[derive(Default)]
struct Places {
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    next: u64,
    by_number: BTreeMap<u64, Client>,
}

/// A connection.
struct Client {
    source: Source,
    /// `None` while a request is answered, or a stream is read.
    idle_since: Option<Instant>,
    /// Requests that are answered, and streams.
    busy: u32,
    has_asked: bool,
    handle: Option<AbortHandle>,
}

impl Client {
    /// The time from which the connection may be closed for another; `None` while a request is
    /// answered.
    fn gives_way_at(&self) -> Option<Instant> {
        let least = if self.has_asked { IDLE_MIN } else { SILENT_MIN };
        Some(self.idle_since? + least)
    }
}

/// The decision about a new connection.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Taken(u64),
    /// The source has reached its bound, and all of its connections are busy.
    Refused,
    /// No connection may be closed for it, or none before this time.
    Full(Option<Instant>),
}

impl Taken {
    fn admit(&mut self, now: Instant, source: Source) -> Admission {
        let of_it = |client: &Client| client.source == source;
        let count = self
            .by_number
            .values()
            .filter(|client| of_it(client))
            .count();
        let is_at_bound = source != Source::ThisMachine && count >= CONNECTIONS_PER_SOURCE_MAX;
        if is_at_bound && !self.close_idle(now, of_it) {
            return Admission::Refused;
        }
        if self.by_number.len() >= CONNECTIONS_MAX && !self.close_idle(now, |_| true) {
            let due = self.by_number.values().filter_map(Client::gives_way_at);
            return Admission::Full(due.min());
        }
        let number = self.next;
        self.next += 1;
        let client = Client {
            source,
            idle_since: Some(now),
            busy: 0,
            has_asked: false,
            handle: None,
        };
        self.by_number.insert(number, client);
        Admission::Taken(number)
    }

    /// Closes the longest idle connection among these. Returns whether there was one.
    fn close_idle(&mut self, now: Instant, among: impl Fn(&Client) -> bool) -> bool {
        let idle = self.by_number.iter().filter(|(_, client)| among(client));
        let may_go = |client: &Client| client.gives_way_at().is_some_and(|at| at <= now);
        let idle = idle.filter(|(_, client)| may_go(client));
        let idle = idle.filter_map(|(number, client)| Some((client.idle_since?, *number)));
        let Some((_, number)) = idle.min() else {
            return false;
        };
        let client = self.by_number.remove(&number);
        if let Some(handle) = client.and_then(|client| client.handle) {
            handle.abort();
        }
        true
    }
}

impl Places {
    /// Waits for room for a new connection, and returns its number; `None` if it is to be closed.
    async fn admit(&self, source: Source) -> Option<u64> {
        loop {
            let freed = self.freed.notified();
            let admission = self.lock().admit(Instant::now(), source);
            match admission {
                Admission::Taken(number) => return Some(number),
                Admission::Refused => return None,
                Admission::Full(None) => freed.await,
                Admission::Full(Some(then)) => drop(timeout_at(then.into(), freed).await),
            }
        }
    }

    fn runs_as(&self, number: u64, handle: AbortHandle) {
        if let Some(client) = self.lock().by_number.get_mut(&number) {
            client.handle = Some(handle);
        }
    }

    fn set_busy(&self, number: u64, is_busy: bool) {
        if let Some(client) = self.lock().by_number.get_mut(&number) {
            client.busy = match is_busy {
                true => client.busy.saturating_add(1),
                false => client.busy.saturating_sub(1),
            };
            client.idle_since = (client.busy == 0).then(Instant::now);
            client.has_asked = true;
        }
        if !is_busy {
            self.freed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by a connection for as long as it is open.
struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_number.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// The connection over which a request was received.
#[derive(Clone)]
pub struct Connected(Arc<Connection>);

struct Connection {
    places: Arc<Places>,
    number: u64,
    streams: AtomicUsize,
    closing: Notify,
}

/// Held by a stream: its connection is busy, and stays open whatever its age.
pub struct Held {
    of: Connected,
    _busy: Busy,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connected {
    fn new(places: Arc<Places>, number: u64) -> Connected {
        Connected(Arc::new(Connection {
            places,
            number,
            streams: AtomicUsize::new(0),
            closing: Notify::new(),
        }))
    }

    pub fn hold(&self) -> Held {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        Held {
            of: self.clone(),
            _busy: Busy::new(self.0.places.clone(), self.0.number),
        }
    }

    /// Ends the connection, even with data left to write.
    pub fn close(&self) {
        self.0.closing.notify_one();
    }

    /// Waits for the end of the connection's time, which never comes during a stream, or until it
    /// is closed.
    async fn over(&self, time: Duration) {
        while timeout(time, self.0.closing.notified()).await.is_err() {
            if self.0.streams.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

/// Held by a request while it is answered.
struct Busy {
    places: Arc<Places>,
    number: u64,
}

impl Busy {
    fn new(places: Arc<Places>, number: u64) -> Busy {
        places.set_busy(number, true);
        Busy { places, number }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.places.set_busy(self.number, false);
    }
}

/// Adds the checks that every request must pass, and compression.
pub fn guarded(router: Router, names: Names) -> Router {
    router
        .layer(from_fn(compress))
        .layer(from_fn(in_time))
        .layer(from_fn(move |request: Request, next: Next| {
            let names = names.clone();
            async move {
                let at = request.extensions().get::<Peer>().and_then(|peer| peer.at);
                let found = {
                    let names = names.read().unwrap_or_else(PoisonError::into_inner);
                    foreign(&request, at, &names)
                };
                match found {
                    Some(problem) => problem.into_response(),
                    None => next.run(request).await,
                }
            }
        }))
}

async fn in_time(request: Request, next: Next) -> Response {
    let is_safe = request.method().is_safe();
    match timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) if is_safe => Problem::busy().into_response(),
        // A change continues without its client.
        Err(_) => {
            let detail = "it takes its time, and is still under way; GET what has become of it";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
        }
    }
}

/// Refuses requests from foreign pages and for unknown names: a browser sends what any page asks
/// for. A page of another origin changes nothing here. A foreign name pointed at us (DNS rebinding)
/// makes us that page's own origin, so only names by which we are known are accepted.
fn foreign(request: &Request, at: Option<IpAddr>, names: &[String]) -> Option<Problem> {
    // All of several values must be right: a proxy between us may have read another one.
    let texts = |name| {
        let values = request.headers().get_all(name).iter();
        values.map(|value| value.to_str().unwrap_or("?"))
    };
    // A target that names a host takes precedence over the header (RFC 9112).
    let of_target = request.uri().authority().map(Authority::as_str);
    let mut hosts = texts(header::HOST).chain(of_target);
    if let Some(host) = hosts.find(|host| !is_known(host, at, names)) {
        let detail = format!(
            "Host is {host}, a name that this API is not known by; ask for localhost or the \
             address it is served at, or start auster run with --api-host {}",
            without_port(host)
        );
        return Some(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let host = texts(header::HOST).next();
    let is_foreign = |origin: &&str| {
        let of_origin = origin.split_once("://").map(|(_, host)| host);
        of_origin.is_none() || of_origin != host
    };
    let origin = texts(header::ORIGIN).filter(|_| changes).find(is_foreign)?;
    let detail = format!("a page of {origin} changes nothing here");
    Some(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn is_known(host: &str, at: Option<IpAddr>, names: &[String]) -> bool {
    let name = without_port(host);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_here = |ip: IpAddr| {
        let ip = ip.to_canonical();
        ip.is_loopback() || at.is_some_and(|at| at.to_canonical() == ip)
    };
    name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| {
            let known = known.trim_start_matches('[').trim_end_matches(']');
            known.eq_ignore_ascii_case(bare.trim_end_matches('.'))
        })
        || bare.parse().is_ok_and(is_here)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
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
        let names = ["Controller.example".to_owned()];
        let at = Some("192.0.2.1".parse().unwrap());
        let local = ("host", "localhost:8080");
        let evil = ("origin", "http://evil.example");
        for (method, headers, is_let_in) in [
            ("PUT", vec![local], true),
            ("PUT", vec![("host", "127.0.0.1:8080")], true),
            ("PUT", vec![("host", "[::1]:8080")], true),
            ("PUT", vec![("host", "192.0.2.1:8080")], true),
            ("PUT", vec![("host", "192.0.2.1")], true),
            ("GET", vec![("host", "192.0.2.2:8080")], false),
            ("GET", vec![("host", "[2001:db8::1]:8080")], false),
            ("GET", vec![("host", "evil.example:8080")], false),
            ("GET", vec![("host", "localhost.evil.example")], false),
            ("GET", vec![("host", "evil.example:localhost")], false),
            ("GET", vec![("host", "controller.example:8080")], true),
            ("GET", vec![("host", "controller.example.")], true),
            ("GET", vec![("host", "x.controller.example")], false),
            ("GET", vec![], true),
            ("PUT", vec![local, evil], false),
            (
                "PUT",
                vec![local, ("origin", "http://localhost:8080")],
                true,
            ),
            ("PUT", vec![local, ("origin", "null")], false),
            ("GET", vec![local, evil], true),
            ("GET", vec![local, ("host", "evil.example")], false),
            (
                "PUT",
                vec![local, ("origin", "http://localhost:8080"), evil],
                false,
            ),
        ] {
            let request = request(method, &headers);
            let is_foreign = foreign(&request, at, &names).is_some();
            assert_eq!(!is_foreign, is_let_in, "{method} {headers:?}");
        }
    }

    fn source(n: u8) -> Source {
        Source::of(IpAddr::from([192, 0, 2, n]))
    }

    #[test]
    fn a_source_has_eight_and_its_idle_ones_give_way() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        let later = now + IDLE_MIN;
        for number in 0..8 {
            assert_eq!(taken.admit(now, source(1)), Admission::Taken(number));
        }
        taken.by_number.get_mut(&0).unwrap().idle_since = None;
        assert_eq!(taken.admit(now, source(1)), Admission::Refused, "too soon");
        assert_eq!(taken.admit(later, source(1)), Admission::Taken(8));
        assert!(taken.by_number.contains_key(&0), "it is busy");
        assert!(!taken.by_number.contains_key(&1), "idle for longest");
        let clients = taken.by_number.values_mut();
        clients.for_each(|client| client.idle_since = None);
        assert_eq!(taken.admit(later, source(1)), Admission::Refused);
        assert_eq!(taken.admit(later, source(2)), Admission::Taken(9));
    }

    #[test]
    fn when_all_are_taken_the_idle_ones_give_way_and_the_busy_ones_do_not() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        let us = Source::of(IpAddr::from([127, 0, 0, 1]));
        for _ in 0..CONNECTIONS_MAX {
            taken.admit(now, us);
        }
        let later = now + SILENT_MIN;
        assert_eq!(taken.admit(now, source(1)), Admission::Full(Some(later)));
        assert_eq!(taken.admit(later, source(1)), Admission::Taken(64));
        assert_eq!(taken.by_number.len(), CONNECTIONS_MAX);
        assert!(!taken.by_number.contains_key(&0));
        let clients = taken.by_number.values_mut();
        clients.for_each(|client| client.has_asked = true);
        let much_later = now + IDLE_MIN;
        assert_eq!(
            taken.admit(later, source(1)),
            Admission::Full(Some(much_later))
        );
        let clients = taken.by_number.values_mut();
        clients.for_each(|client| client.idle_since = None);
        assert_eq!(taken.admit(later, source(1)), Admission::Full(None));
        assert_eq!(taken.by_number.len(), CONNECTIONS_MAX);
    }

    #[tokio::test]
    async fn a_connection_with_a_stream_is_busy_and_its_time_does_not_end() {
        let places = Arc::new(Places::default());
        let us = Source::of(IpAddr::from([127, 0, 0, 1]));
        let number = places.admit(us).await.unwrap();
        let is_busy = || places.lock().by_number[&number].idle_since.is_none();
        let connected = Connected::new(places.clone(), number);
        let request = Busy::new(places.clone(), number);
        let held = connected.hold();
        drop(request);
        assert!(
            is_busy(),
            "the stream goes on behind the head of its answer"
        );
        let over = connected.over(Duration::from_millis(1));
        assert!(timeout(Duration::from_millis(60), over).await.is_err());
        drop(held);
        assert!(!is_busy());
        connected.over(Duration::from_millis(1)).await;
        // The connection of a reader that was cut off is closed, whatever its time.
        let _held = connected.hold();
        connected.close();
        connected.over(Duration::from_secs(3600)).await;
    }
}
