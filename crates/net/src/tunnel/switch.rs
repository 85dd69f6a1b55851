//! The end next to the switches: it dials the other relay, and dials again.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use control::relay::wire::Control;
use control::relay::{SessionId, WireError};
use openflow::time::Instant;
use tokio::time::{self, timeout};

use super::end::End;
use super::link::{self, Greeted, LinkError};
use super::{peer_name, transport_config};
use crate::method::{Method, Transport};
use crate::quic;
use crate::tls::Security;
use crate::transport::{TransportError, resolve};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// One attempt a second at most: the price is a packet, the gain that a relay which comes back is
/// found at once.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(1500);

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
    let mut backoff = BACKOFF_MIN;
    let mut was_refused = String::new();
    loop {
        match dial(end, method, &config).await {
            Ok(greeted) => {
                backoff = BACKOFF_MIN;
                was_refused.clear();
                let resumed = greeted.resumed;
                tracing::info!(relay = %method, resumed, "connected");
                let error = link::run(end, greeted).await;
                tracing::warn!(relay = %method, "disconnected: {error}");
            }
            Err(DialError::Never(error)) => return error,
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
    Failed(String),
}

async fn dial(
    end: &Arc<End>,
    method: &Method,
    config: &quinn::ClientConfig,
) -> Result<Greeted, DialError> {
    let Method::Dial(Transport::Quic, host, port) = method else {
        return Err(DialError::Never(TransportError::local(
            method,
            "relays connect by quic:HOST[:PORT]",
        )));
    };
    let failed = |error: &dyn std::fmt::Display| DialError::Failed(error.to_string());
    let address = resolve(method, host, *port).await.map_err(|e| failed(&e))?[0];
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let name = crate::transport::server_name(host)
        .map_err(|problem| DialError::Never(TransportError::local(method, problem)))?;
    let connect = async |dscp: u8| {
        let scheduling = &end.config.scheduling;
        let (endpoint, marks) = scheduling
            .endpoint(local, None, dscp)
            .map_err(|e| failed(&e))?;
        let connecting = endpoint
            .connect_with(config.clone(), address, &name.to_str())
            .map_err(|e| failed(&e))?;
        match timeout(HANDSHAKE_TIMEOUT, connecting).await {
            Ok(connection) => connection.map(|c| (c, marks)).map_err(|e| failed(&e)),
            Err(_) => Err(DialError::Failed("no relay answers there".to_owned())),
        }
    };
    let unanswered = || DialError::Failed("the relay does not answer".to_owned());
    let (connection, marks) = connect(end.carriers().code_points()[0]).await?;
    let greeted = timeout(link::SETTINGS_TIMEOUT, greet(end, connection)).await;
    let mut greeted = greeted.map_err(|_| unanswered())?.map_err(|e| failed(&e))?;
    let points = greeted.carriers.code_points();
    marks.set(address, points[0]);
    for dscp in &points[1..] {
        let (connection, _) = connect(*dscp).await?;
        let joined = join(&connection, greeted.peer.session, *dscp);
        let joined = timeout(link::SETTINGS_TIMEOUT, joined).await;
        joined.map_err(|_| unanswered())?.map_err(|e| failed(&e))?;
        greeted.further.push(connection);
    }
    Ok(greeted)
}

/// Makes `connection` one more of `session`.
async fn join(
    connection: &quinn::Connection,
    session: SessionId,
    dscp: u8,
) -> Result<(), LinkError> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let ours = Control::Join { session, dscp };
    send.write_all(&ours.encode()).await?;
    if link::read_first(&mut recv, &mut BytesMut::new()).await? != ours {
        return Err(WireError("an answer to another join").into());
    }
    Ok(())
}

async fn greet(end: &Arc<End>, connection: quinn::Connection) -> Result<Greeted, LinkError> {
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
        further: Vec::new(),
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
