//! The end next to the switches: it dials the other relay, and dials again.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use control::relay::wire::Control;
use control::relay::{CARRIERS_MAX, WireError};
use openflow::time::Instant;
use tokio::sync::mpsc;
use tokio::time::{self, timeout};

use super::carriers::Joined;
use super::end::{End, State};
use super::link::{self, Greeted, LinkError};
use super::over_tls::{self, Ended, GreetedTls};
use super::{peer_name, relay_name, transport_config};
use crate::method::{Method, Transport};
use crate::quic;
use crate::tls::Security;
use crate::transport::{self, TransportError, resolve};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// One attempt a second at most: the price is a packet, the gain that a relay which comes back is
/// found at once.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(1500);
/// One unanswered handshake may be the other relay's restart, or a busy machine.
const UNANSWERED_MAX: u32 = 2;
/// While TLS carries the session, UDP is tried again so often.
const UDP_RETRY: Duration = Duration::from_secs(30);

/// Keeps `end` connected to the relay at `method`, a `quic:` one, for as long as it is polled.
/// Returns only when that can never work.
pub async fn switch(end: &Arc<End>, method: &Method, security: &Security) -> TransportError {
    let config = match quic::client_config(security, &[quic::ALPN_RELAY]) {
        Some(mut config) => {
            config.transport_config(Arc::new(transport_config(&end.config.scheduling)));
            config
        }
        None => return TransportError::no_credentials(method),
    };
    let dialler = Dialler {
        end,
        method,
        security,
        config: &config,
    };
    let mut backoff = BACKOFF_MIN;
    let mut was_refused = String::new();
    let mut unanswered = 0;
    loop {
        let (joins, joined) = mpsc::channel(CARRIERS_MAX);
        match dialler.dial(joined).await {
            Ok(greeted) => {
                backoff = BACKOFF_MIN;
                unanswered = 0;
                was_refused.clear();
                let resumed = greeted.resumed;
                tracing::info!(relay = %method, resumed, "connected");
                let error = tokio::select! {
                    error = link::run(end, greeted) => error,
                    never = dialler.follow_map(joins) => match never {},
                };
                tracing::warn!(relay = %method, "disconnected: {error}");
            }
            Err(DialError::Never(error)) => return error,
            Err(DialError::Unanswered) if unanswered + 1 < UNANSWERED_MAX => unanswered += 1,
            Err(DialError::Unanswered) => {
                // UDP may be blocked on the way; then TCP to the same port may not be.
                match dialler.dial_tls().await {
                    Ok(greeted) => {
                        backoff = BACKOFF_MIN;
                        was_refused.clear();
                        let resumed = greeted.resumed;
                        tracing::warn!(
                            relay = %method, resumed,
                            "connected by TLS: no answer by QUIC, which is tried again every {} s",
                            UDP_RETRY.as_secs()
                        );
                        let why = tokio::select! {
                            ended = over_tls::run(end, greeted) => match ended {
                                Ended::Broken(error) => error.to_string(),
                                Ended::Stopped => "the other relay was stopped".to_owned(),
                            },
                            () = dialler.await_udp() => "QUIC is answered again".to_owned(),
                        };
                        end.leave_tls();
                        tracing::warn!(relay = %method, "disconnected: {why}");
                    }
                    Err(problem) => {
                        let problem = format!("no relay answers there by QUIC; by TLS: {problem}");
                        if problem != was_refused {
                            tracing::warn!("{method}: {problem}");
                            was_refused = problem;
                        }
                    }
                }
            }
            Err(DialError::Failed(problem)) => {
                // Once per reason: it is tried every second.
                if problem != was_refused {
                    tracing::warn!("{method}: {problem}");
                    was_refused = problem;
                }
            }
        }
        time::sleep(jittered(backoff, end.now())).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

enum DialError {
    Never(TransportError),
    /// Nothing came back.
    Unanswered,
    Failed(String),
}

impl std::fmt::Display for DialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DialError::Never(error) => write!(f, "{error}"),
            DialError::Unanswered => f.write_str("no relay answers there"),
            DialError::Failed(problem) => f.write_str(problem),
        }
    }
}

/// Dials the other relay for one session, again and again.
struct Dialler<'a> {
    end: &'a Arc<End>,
    method: &'a Method,
    security: &'a Security,
    config: &'a quinn::ClientConfig,
}

impl Dialler<'_> {
    /// All connections that the session is to have.
    async fn dial(&self, joins: mpsc::Receiver<Joined>) -> Result<Greeted, DialError> {
        let code_points = self.end.carriers();
        let (connection, marks) = self.connect(code_points.code_points()[0]).await?;
        let greeted = greet(self.end, connection, marks, joins);
        let mut greeted = answered(timeout(link::SETTINGS_TIMEOUT, greeted).await)?;
        let points = greeted.carriers.code_points();
        let to = greeted.connection.remote_address();
        greeted.marks.set(to, points[0]);
        for dscp in &points[1..] {
            greeted.further.push(self.join(*dscp).await?);
        }
        Ok(greeted)
    }

    /// One more connection of the session.
    async fn join(&self, dscp: u8) -> Result<Joined, DialError> {
        let (connection, marks) = self.connect(dscp).await?;
        let session = self.end.with(|session| session.id());
        let ours = Control::Join { session, dscp };
        let joined = async {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(&ours.encode()).await?;
            if link::read_first(&mut recv, &mut BytesMut::new()).await? != ours {
                return Err(WireError("an answer to another join").into());
            }
            Ok((send, recv))
        };
        let (send, recv) = answered(timeout(link::SETTINGS_TIMEOUT, joined).await)?;
        Ok(Joined {
            connection,
            marks,
            dscp,
            send,
            recv,
        })
    }

    async fn connect(&self, dscp: u8) -> Result<(quinn::Connection, quic::Marks), DialError> {
        let method = self.method;
        let Method::Dial(Transport::Quic, host, port) = method else {
            return Err(DialError::Never(TransportError::local(
                method,
                "relays connect by quic:HOST[:PORT]",
            )));
        };
        let address = resolve(method, host, *port).await.map_err(|e| failed(&e))?[0];
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let name = crate::transport::server_name(host)
            .map_err(|problem| DialError::Never(TransportError::local(method, problem)))?;
        let scheduling = &self.end.config.scheduling;
        let (endpoint, marks) = scheduling
            .endpoint(local, None, dscp)
            .map_err(|e| failed(&e))?;
        let connecting = endpoint
            .connect_with(self.config.clone(), address, &name.to_str())
            .map_err(|e| failed(&e))?;
        match timeout(HANDSHAKE_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok((connection, marks)),
            // The connection's own idle timeout comes first where this machine stalls meanwhile.
            Ok(Err(error)) if error != quinn::ConnectionError::TimedOut => Err(failed(&error)),
            Ok(Err(_)) | Err(_) => Err(DialError::Unanswered),
        }
    }

    /// The one connection in the place of all.
    async fn dial_tls(&self) -> Result<GreetedTls, String> {
        let Method::Dial(Transport::Quic, host, port) = self.method else {
            return Err("relays connect by quic:HOST[:PORT]".to_owned());
        };
        let method = Method::Dial(Transport::Tls, host.clone(), *port);
        let greeted = async {
            let connected = transport::connect(&method, self.security).await;
            let mut connection = connected.map_err(|error| error.to_string())?;
            let end = self.end;
            let ours = end.with(|session| session.settings(session.is_resumable()));
            let mut buf = BytesMut::new();
            let peer = async {
                over_tls::say(&mut connection, &ours).await?;
                over_tls::hear(&mut connection, &mut buf).await
            };
            let peer = peer.await.map_err(|error| error.to_string())?;
            if peer.session != ours.session {
                return Err("an answer for another session".to_owned());
            }
            let name = relay_name(connection.peer.name.clone());
            end.with_state(|state| state.peer = name);
            Ok(GreetedTls {
                carriers: end.settle(&ours, &peer),
                resumed: ours.resumed && peer.resumed,
                connection,
                buf,
                peer,
            })
        };
        let late = |_| "no settings in time".to_owned();
        timeout(HANDSHAKE_TIMEOUT, greeted).await.map_err(late)?
    }

    /// Returns once a handshake by QUIC succeeds.
    async fn await_udp(&self) {
        loop {
            time::sleep(UDP_RETRY).await;
            if let Ok((connection, _)) = self.connect(0).await {
                return connection.close(0u32.into(), b"only asked");
            }
        }
    }

    /// While there is a connection: opens and leaves further ones as the map in use asks for.
    async fn follow_map(&self, joins: mpsc::Sender<Joined>) -> Infallible {
        loop {
            self.end.mapped.notified().await;
            let mut backoff = BACKOFF_MIN;
            let mut was_told = false;
            let mut done = Vec::new();
            loop {
                let missing = self.end.with_state(State::leave_surplus);
                let Some(dscp) = missing.into_iter().find(|dscp| !done.contains(dscp)) else {
                    break;
                };
                match self.join(dscp).await {
                    Ok(joined) => {
                        // Not taken if the first connection has just ended.
                        let _ = joins.send(joined).await;
                        done.push(dscp);
                        tracing::info!(relay = %self.method, dscp, "one more connection");
                    }
                    // What is of that class goes with the next below meanwhile.
                    Err(problem) => {
                        if !std::mem::replace(&mut was_told, true) {
                            tracing::warn!("{}: code point {dscp}: {problem}", self.method);
                        }
                        time::sleep(jittered(backoff, self.end.now())).await;
                        backoff = (backoff * 2).min(BACKOFF_MAX);
                    }
                }
            }
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> DialError {
    DialError::Failed(error.to_string())
}

fn answered<T>(answer: Result<Result<T, LinkError>, time::error::Elapsed>) -> Result<T, DialError> {
    let unanswered = |_| DialError::Failed("the relay does not answer".to_owned());
    answer.map_err(unanswered)?.map_err(|e| failed(&e))
}

async fn greet(
    end: &Arc<End>,
    connection: quinn::Connection,
    marks: quic::Marks,
    joins: mpsc::Receiver<Joined>,
) -> Result<Greeted, LinkError> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let ours = end.with(|session| session.settings(session.is_resumable()));
    send.write_all(&Control::Settings(ours.clone()).encode())
        .await?;
    let mut buf = BytesMut::new();
    let Control::Settings(peer) = link::read_first(&mut recv, &mut buf).await? else {
        return Err(WireError("something before the settings").into());
    };
    if peer.session != ours.session {
        return Err(WireError("an answer for another session").into());
    }
    let carriers = end.settle(&ours, &peer);
    let resumed = ours.resumed && peer.resumed;
    let name = peer_name(&connection);
    end.with_state(|state| state.peer = name);
    Ok(Greeted {
        connection,
        marks,
        further: Vec::new(),
        joins,
        carriers,
        send,
        recv,
        buf,
        peer,
        resumed,
    })
}

/// A fifth more or less, so that many relays do not come back in step.
fn jittered(pause: Duration, now: Instant) -> Duration {
    let fifth = pause.as_nanos() as u64 / 5;
    pause - Duration::from_nanos(fifth) + Duration::from_nanos(now.as_nanos() % (2 * fifth).max(1))
}
