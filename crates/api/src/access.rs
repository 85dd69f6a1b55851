//! The rights of API users. Every request passes here first. Its token, its certificate or the user
//! at the other end of the Unix socket identifies its user, who has a [`Role`].
//!
//! Without tokens and without a CA for clients, the API is served to this machine alone (see
//! `stated`), and everyone on this machine may do everything.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Router;
use axum::extract::{Extension, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use control::histogram::Histogram;
use net::clock::Clock;
use net::tls::{Expiry, ServerSecurity, role_marks};
use nix::unistd::getuid;
use serde::Serialize;
use tokio::sync::{Notify, oneshot, watch};
use utoipa::ToSchema;

use super::audit::Audit;
use super::listener::Peer;
use super::logins::{Logins, Reason};
use super::page;
use super::problem::Problem;
use crate::report::Report;
use cli::failure::Failure;
use config::api::{ALPN, Stated};
use config::tokens::{Role, TOKEN_BYTES_MAX, Tokens};

/// Paths served to everybody, as the files of the page are: they reveal nothing about the network.
/// The page asks for its token itself.
const PUBLIC: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];
/// Paths at which a POST is a question too, as from Ryu's clients. Other paths of Ryu change
/// switches.
const QUESTIONS: [&str; 2] = ["/stats/flow/", "/stats/aggregateflow/"];
/// Paths with the contents of packets, for users who may change the network.
const TAPS: &str = "/v1/taps/";
const PACKETS: &str = "/packets";
/// Paths that require [`Role::Admin`].
const FOR_ADMINS: &[&str] = &["/v1/reload"];

/// A user, as `/v1/access` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Who {
    /// The proof: `token`, `certificate` or `uid`; `local` where the API asks for nothing.
    pub kind: &'static str,
    #[schema(example = "grafana")]
    pub name: String,
    /// `read`, `operate` or `admin`.
    #[schema(value_type = String, example = "read")]
    #[serde(serialize_with = "as_text")]
    pub role: Role,
}

fn as_text<S: serde::Serializer>(role: &Role, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(role)
}

/// The users of the API, and the outcome of their requests.
pub struct Access {
    tokens: Option<RwLock<Tokens>>,
    tls: Option<Arc<ServerSecurity>>,
    believes_certificates: bool,
    pub audit: Option<Audit>,
    pub logins: Logins,
    /// Notified when a user asks for a reload, as by SIGHUP.
    pub reload: Notify,
    /// Requests that wait for the report of a reload.
    asking: Mutex<Vec<oneshot::Sender<Report>>>,
    /// Counts the reloads of tokens and certificates.
    users: watch::Sender<u64>,
    /// The times from the head of a request to its answer.
    times: Mutex<Histogram>,
    clock: Clock,
}

impl Access {
    /// Reads the files that the configuration names. The failure lists all of their mistakes.
    pub fn load(stated: &Stated, clock: Clock) -> Result<Access, Failure> {
        let tokens = stated.tokens.as_deref().map(Tokens::load).transpose();
        let tls = stated.tls.as_ref();
        let tls = tls
            .map(|files| ServerSecurity::load(files, ALPN))
            .transpose();
        let tls = tls.map_err(Failure::from);
        let audit = stated.audit.as_deref().map(Audit::open).transpose();
        let (tokens, tls, audit) = all(tokens, tls, audit)?;
        Ok(Access {
            tokens: tokens.map(RwLock::new),
            tls: tls.map(Arc::new),
            believes_certificates: stated.tls.as_ref().is_some_and(|tls| tls.ca.is_some()),
            audit,
            logins: Logins::default(),
            reload: Notify::new(),
            asking: Mutex::default(),
            users: watch::Sender::new(0),
            times: Mutex::default(),
            clock,
        })
    }

    /// Reads the file of tokens again, and returns their number. `None` where there are no tokens.
    pub fn reload_tokens(&self, stated: &Stated) -> Result<Option<usize>, Failure> {
        let (Some(held), Some(path)) = (&self.tokens, &stated.tokens) else {
            return Ok(None);
        };
        let tokens = Tokens::load(path)?;
        let count = tokens.entries().len();
        *held.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        self.users.send_modify(|count| *count += 1);
        Ok(Some(count))
    }

    /// Reads the certificates again. Returns whether there are any.
    pub fn reload_tls(&self, stated: &Stated) -> Result<bool, Failure> {
        let (Some(held), Some(files)) = (&self.tls, &stated.tls) else {
            return Ok(false);
        };
        held.reload(files, ALPN)?;
        self.users.send_modify(|count| *count += 1);
        Ok(true)
    }

    /// Takes the requests that wait for the report of the reload that begins now.
    pub fn take_asking(&self) -> Vec<oneshot::Sender<Report>> {
        std::mem::take(&mut *self.asking.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes with each reload of tokens and certificates: a user may have lost all rights.
    pub fn users(&self) -> watch::Receiver<u64> {
        self.users.subscribe()
    }

    pub fn tls(&self) -> Option<&Arc<ServerSecurity>> {
        self.tls.as_ref()
    }

    pub fn expiries(&self) -> Vec<Expiry> {
        self.tls
            .as_ref()
            .map(|tls| tls.expiries())
            .unwrap_or_default()
    }

    /// Adds the check to all routes.
    pub fn guard(self: Arc<Access>, router: Router) -> Router {
        router.layer(from_fn(move |request: Request, next: Next| {
            let access = self.clone();
            async move {
                let mut request = request;
                request.extensions_mut().insert(access.clone());
                access.pass(request, next).await
            }
        }))
    }

    pub fn times(&self) -> Histogram {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, mut request: Request, next: Next) -> Response {
        let began = self.clock.now();
        let needed = needed(&request);
        let is_change = needed.is_some_and(|role| role > Role::Read);
        let found = match self.identify(&request) {
            Err(_) if needed.is_none() => Ok(None),
            found => found.map(Some),
        };
        let who = found.as_ref().ok().cloned().flatten();
        let record = match &self.audit {
            Some(audit) if is_change => {
                let source = request.extensions().get::<Peer>().map(|peer| peer.source);
                let is_limited = who.is_none()
                    && source.is_some_and(|source| self.logins.has_filled_audit(began, source));
                if is_limited {
                    audit.skip();
                }
                (!is_limited).then(|| audit.begin(&mut request, who.as_ref()))
            }
            _ => None,
        };
        let response = match found.and_then(|who| permit(who, needed)) {
            Ok(who) => {
                who.map(|who| request.extensions_mut().insert(who));
                next.run(request).await
            }
            Err(refused) => {
                self.logins.count(refused.reason);
                refused.into_response()
            }
        };
        if let Some(record) = record {
            record.end(response.status());
        }
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.handle(self.clock.now().since(began));
        response
    }

    fn has_users(&self) -> bool {
        self.tokens.is_some() || self.believes_certificates
    }

    fn identify(&self, request: &Request) -> Result<Who, Refused> {
        let peer = request.extensions().get::<Peer>();
        if let Some(who) = self.by_token(request, peer)? {
            return Ok(who);
        }
        let shown = peer.filter(|peer| self.believes_certificates && !peer.chain.is_empty());
        if let Some(peer) = shown {
            self.judge(peer)?;
            return by_certificate(&peer.chain[0]);
        }
        match peer.and_then(|peer| peer.uid) {
            Some(uid) if uid == 0 || uid == getuid().as_raw() => {
                return Ok(Who::new("uid", uid.to_string(), Role::Admin));
            }
            Some(uid) if !self.has_users() => {
                let detail = format!("uid {uid} is neither root nor the user who runs auster");
                return Err(Refused::new(Reason::Role, StatusCode::FORBIDDEN, detail));
            }
            _ => {}
        }
        match self.has_users() {
            false => Ok(Who::new("local", "local", Role::Admin)),
            true => Err(Refused::new(
                Reason::Nobody,
                StatusCode::UNAUTHORIZED,
                self.advice(),
            )),
        }
    }

    /// Refuses a certificate that was valid when its connection began but is no longer valid.
    fn judge(&self, peer: &Peer) -> Result<(), Refused> {
        let judged = self
            .tls
            .as_ref()
            .map(|tls| tls.judge(&peer.chain, peer.generation));
        judged.unwrap_or(Ok(())).map_err(|problem| {
            let detail = format!("the certificate is good no more: {problem}");
            Refused::new(Reason::Wrong, StatusCode::UNAUTHORIZED, detail)
        })
    }

    fn advice(&self) -> &'static str {
        match (self.tokens.is_some(), self.believes_certificates) {
            (true, true) => "send a token (Authorization: Bearer TOKEN) or show a certificate",
            (true, false) => "send a token: Authorization: Bearer TOKEN",
            (false, _) => "show a certificate of a user of this API",
        }
    }

    /// The owner of the token; `None` without a token, or if the API has no tokens.
    fn by_token(&self, request: &Request, peer: Option<&Peer>) -> Result<Option<Who>, Refused> {
        let Some(tokens) = &self.tokens else {
            return Ok(None);
        };
        let mut headers = request.headers().get_all(header::AUTHORIZATION).iter();
        let Some(first) = headers.next() else {
            return Ok(None);
        };
        let is_alone = headers.next().is_none();
        let token = bearer(first).filter(|_| is_alone);
        let tokens = tokens.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = token.and_then(|token| tokens.owner(token)) {
            return Ok(Some(Who::new("token", &entry.name, entry.role)));
        }
        let source = peer.map(|peer| peer.source);
        let now = self.clock.now();
        if source.is_some_and(|source| self.logins.is_limited(now, source)) {
            let detail = "too many wrong tokens from your address; try again in a second";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Refused::new(Reason::Limited, status, detail));
        }
        let from = peer.map_or("nowhere", |peer| &peer.from);
        tracing::warn!("API: {from}: a wrong token");
        let detail = "the token is nobody's, or was taken away";
        Err(Refused::new(
            Reason::Wrong,
            StatusCode::UNAUTHORIZED,
            detail,
        ))
    }
}

/// The values of three reads, or all of their failures.
fn all<A, B, C>(
    a: Result<A, Failure>,
    b: Result<B, Failure>,
    c: Result<C, Failure>,
) -> Result<(A, B, C), Failure> {
    match (a, b, c) {
        (Ok(a), Ok(b), Ok(c)) => Ok((a, b, c)),
        (a, b, c) => {
            let failures = [a.err(), b.err(), c.err()];
            let mut failures: Vec<Failure> = failures.into_iter().flatten().collect();
            if failures.len() == 1 {
                return Err(failures.remove(0));
            }
            let messages: Vec<&str> = failures.iter().map(Failure::message).collect();
            Err(Failure::usage(messages.join("; ")))
        }
    }
}

impl Who {
    fn new(kind: &'static str, name: impl Into<String>, role: Role) -> Who {
        let name = name.into();
        Who { kind, name, role }
    }
}

/// The role that a request requires; `None` if everybody may send it.
fn needed(request: &Request) -> Option<Role> {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_public(is_read, path) {
        return None;
    }
    if FOR_ADMINS.contains(&path) {
        return Some(Role::Admin);
    }
    if path.starts_with(TAPS) && path.ends_with(PACKETS) {
        return Some(Role::Operate);
    }
    let is_question = *request.method() == Method::POST
        && QUESTIONS.iter().any(|question| path.starts_with(question));
    Some(match is_read || is_question {
        true => Role::Read,
        false => Role::Operate,
    })
}

/// Whether a path is open to everybody.
pub fn is_public(is_read: bool, path: &str) -> bool {
    is_read && (PUBLIC.contains(&path) || page::serves(path))
}

fn permit(who: Option<Who>, needed: Option<Role>) -> Result<Option<Who>, Refused> {
    match (&who, needed) {
        (Some(who), Some(needed)) if who.role < needed => {
            let Who { kind, name, role } = who;
            let detail = format!("this takes the role {needed}; {kind} {name} has {role}");
            Err(Refused::new(Reason::Role, StatusCode::FORBIDDEN, detail))
        }
        _ => Ok(who),
    }
}

/// The token of a header, whatever the case of its scheme (RFC 9110).
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    let is_token = scheme.eq_ignore_ascii_case("bearer") && token.len() <= TOKEN_BYTES_MAX;
    is_token.then_some(token)
}

/// The user of a certificate that chains to the CA, so its statements about its owner are true.
fn by_certificate(certificate: &[u8]) -> Result<Who, Refused> {
    let marks = role_marks(certificate).unwrap_or_default();
    let role = match &marks[..] {
        [mark] => Role::of_mark(mark),
        _ => None,
    };
    let name = net::tls::common_name(Some(&[certificate.into()]));
    let name = name.unwrap_or_else(|| "?".to_owned());
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    match role {
        Some(role) => Ok(Who::new("certificate", name, role)),
        None => {
            let detail = format!(
                "the certificate of {name} names no role here; it takes urn:auster:role:reader, \
                 operator or admin (auster pki operator)"
            );
            Err(Refused::new(Reason::Role, StatusCode::FORBIDDEN, detail))
        }
    }
}

/// A request refused because of its sender.
struct Refused {
    reason: Reason,
    status: StatusCode,
    detail: String,
}

impl Refused {
    fn new(reason: Reason, status: StatusCode, detail: impl Into<String>) -> Refused {
        Refused {
            reason,
            status,
            detail: detail.into(),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = Problem::new(self.status, self.detail).into_response();
        let headers = response.headers_mut();
        let challenge = match self.reason {
            Reason::Nobody => Some("Bearer realm=\"auster\""),
            Reason::Wrong => Some("Bearer realm=\"auster\", error=\"invalid_token\""),
            Reason::Limited | Reason::Role => None,
        };
        if let Some(challenge) = challenge {
            let value = HeaderValue::from_static(challenge);
            headers.insert(header::WWW_AUTHENTICATE, value);
        }
        if self.reason == Reason::Limited {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            // Each further try costs another connection.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The user who asks, and the role.
#[utoipa::path(get, path = "/v1/access", tag = "network", operation_id = "get_access",
    responses((status = 200, body = Who)))]
pub async fn who(who: Option<Extension<Who>>) -> axum::Json<Who> {
    let who = who.map(|Extension(who)| who);
    axum::Json(who.unwrap_or_else(|| Who::new("local", "local", Role::Admin)))
}

/// Reads the configuration again, as SIGHUP does, and reports what has changed.
#[utoipa::path(post, path = "/v1/reload", tag = "network", operation_id = "reload",
    responses(
        (status = 200, description = "The configuration is in use", body = Report),
        (status = 422, description = "It has mistakes, and nothing has changed", body = Report),
    ))]
pub async fn reload(access: Option<Extension<Arc<Access>>>) -> Response {
    let busy = || Problem::busy().into_response();
    let Some(Extension(access)) = access else {
        return busy();
    };
    let (asking, answer) = oneshot::channel();
    let waiting = &access.asking;
    waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(asking);
    access.reload.notify_one();
    let Ok(report) = answer.await else {
        return busy();
    };
    let status = match report.applied {
        true => StatusCode::OK,
        false => StatusCode::UNPROCESSABLE_ENTITY,
    };
    (status, axum::Json(report)).into_response()
}
