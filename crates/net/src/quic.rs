//! QUIC endpoints with certificates on both sides.
//!
//! The application protocol (ALPN) names what a connection carries. [`ALPN_STREAM`] is one OpenFlow
//! or OVSDB byte stream, on the first bidirectional stream, which the dialling side opens.
//! [`ALPN_RELAY`] is the tunnel between two relays. There is no early data, so nobody can replay
//! southbound messages, unless both relays ask for it: see `tunnel::early`.

mod dialling;
mod udp;
mod westwood;
mod window;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, ConnectionError, Endpoint, EndpointConfig,
    MtuDiscoveryConfig, Runtime, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use quinn_proto::RandomConnectionIdGenerator;
use socket2::{Domain, Protocol, Socket, Type};

use crate::pace::Pace;
use crate::tls::Security;
use crate::transport::Refusal;

pub use dialling::Heard;
pub use udp::Marks;
pub use westwood::WestwoodConfig;
pub use window::{LineCongestion, bound_unsent};

/// One byte stream: the meaning of `quic:` as a connection method.
pub const ALPN_STREAM: &[u8] = b"auster-of/1";
/// The tunnel between two relays.
pub const ALPN_RELAY: &[u8] = b"auster-relay/1";

/// A peer that is silent for this long counts as dead.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// The keep-alive interval: three tries within the idle timeout.
pub const KEEP_ALIVE: Duration = Duration::from_millis(900);
/// The bytes that the peer may have in flight to us on one stream, and on all of a connection.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Sent but not acknowledged bytes that a connection keeps.
pub const SEND_WINDOW_BYTES: u64 = 1 << 20;
/// Room for a burst of a busy peer while this task waits for a core, or for the first datagrams of
/// 1,000 peers that dial at once. The kernel's default is 208 KiB, room for 90 of these datagrams.
const SOCKET_BUFFER_BYTES: usize = 2 << 20;

/// Packets that the peer may leave unacknowledged, for [`ACK_DELAY_MAX`] at most.
/// QUIC's own rule, one acknowledgement for two packets, costs 25 bytes of a message of 220.
pub const ACK_THRESHOLD: u32 = 10;
/// The longest delay of an acknowledgement. A probe for a lost last packet waits this long too, so
/// the delay is short. Quinn cannot set it for each connection of a listener; otherwise the delay
/// on a long path would be longer.
pub const ACK_DELAY_MAX: Duration = Duration::from_millis(5);
/// A gap is reported at once, so that lost packets are sent again a round trip later.
const ACK_GAP: u32 = 1;
/// The part of a round trip after which a packet before an arrived one counts as lost. RFC 9002
/// (6.1.2) recommends 9/8. Paths of the southbound hardly reorder, and three later packets are
/// proof anyway.
const LOSS_TIME_THRESHOLD: f32 = 17.0 / 16.0;
/// The step of path MTU discovery. Quinn first tries the largest packet, 1452 bytes, and then
/// packets smaller by this step. It seldom needs more than one probe. Its own step of 20 takes six
/// probes, 8 kB each way for messages of 220 bytes.
const MTU_STEP_BYTES: u16 = 127;
/// The length of a listener's connection ids. It distinguishes its connections by their ids, and
/// keeps about eight for each.
const LISTENER_ID_BYTES: usize = 4;
/// The dialling side has a socket for each connection, so its connection id needs no bytes.
const DIALLER_ID_BYTES: usize = 0;

/// The listening side under `alpn`; `None` without certificates.
pub fn server_config(security: &Security, alpn: &[&[u8]]) -> Option<ServerConfig> {
    let tls = security.server_config(alpn)?;
    let tls = QuicServerConfig::try_from(tls).expect("the provider has TLS 1.3's initial suite");
    Some(listens_by(tls))
}

/// The listening side with the given TLS.
pub fn listens_by(tls: QuicServerConfig) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(Arc::new(transport_config()));
    config.max_incoming(1024);
    config
}

/// The dialling side under `alpn`; `None` without certificates.
pub fn client_config(security: &Security, alpn: &[&[u8]]) -> Option<ClientConfig> {
    let tls = security.client_config(alpn)?;
    let tls = QuicClientConfig::try_from(tls).expect("the provider has TLS 1.3's initial suite");
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport_config()));
    Some(config)
}

/// The reason of a failed handshake, and its text.
pub fn refusal(error: &ConnectionError) -> (Refusal, String) {
    const UNTRUSTED: &str = "invalid peer certificate: ";
    let (refusal, words) = match error {
        ConnectionError::TransportError(refused) if refused.reason.starts_with(UNTRUSTED) => {
            (Refusal::Certificate, refused.reason.clone())
        }
        error => (Refusal::Handshake, error.to_string()),
    };
    // The library writes our own text in Rust's debug form, also to the peer.
    let ours = words.split_once("invalid peer certificate: Other(OtherError(");
    let ours = ours.and_then(|(before, ours)| Some((before, ours.strip_suffix("))")?)));
    let words = ours.map_or(words.clone(), |(before, ours)| format!("{before}{ours}"));
    (refusal, words)
}

/// The transport settings of all our QUIC connections; a tunnel widens the stream limits.
pub fn transport_config() -> TransportConfig {
    let mut config = TransportConfig::default();
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_THRESHOLD))
        .max_ack_delay(Some(ACK_DELAY_MAX))
        .reordering_threshold(VarInt::from_u32(ACK_GAP));
    let mut probes = MtuDiscoveryConfig::default();
    probes.minimum_change(MTU_STEP_BYTES);
    config
        .time_threshold(LOSS_TIME_THRESHOLD)
        .mtu_discovery_config(Some(probes))
        .ack_frequency_config(Some(acks))
        // Fewer acknowledgements starve a window of two packets; this controller's window is wider
        // where that matters.
        .congestion_controller_factory(Arc::new(WestwoodConfig))
        .max_idle_timeout(Some(
            IDLE_TIMEOUT
                .try_into()
                .expect("fits a QUIC variable integer"),
        ))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .send_window(SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None);
    config
}

/// A UDP socket with room for a burst, not yet connected to anything.
pub fn bind_socket(local: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A process that may not exceed net.core.rmem_max is silently granted only that much.
    if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    }
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}

/// Opens an endpoint like [`endpoint`], below a scheduler: few datagrams wait. Each has code point
/// `dscp`, or the code point that the marks have for its destination. `pace` counts each datagram.
pub fn line_endpoint(
    local: SocketAddr,
    server: Option<ServerConfig>,
    dscp: u8,
    pace: Option<Arc<Pace>>,
) -> io::Result<(Endpoint, Marks)> {
    let marks = Marks::default();
    let socket = line_socket(bind_socket(local)?, dscp, pace, &marks)?;
    let endpoint = Endpoint::new_with_abstract_socket(
        endpoint_config(server.is_some()),
        server,
        socket,
        Arc::new(TokioRuntime),
    )?;
    Ok((endpoint, marks))
}

fn line_socket(
    socket: std::net::UdpSocket,
    dscp: u8,
    pace: Option<Arc<Pace>>,
    marks: &Marks,
) -> io::Result<Arc<udp::MarkingSocket>> {
    socket.set_nonblocking(true)?;
    let socket = udp::MarkingSocket::new(socket, dscp, pace, marks.clone())?;
    Ok(Arc::new(socket))
}

/// The code points and the pace of a [`line_endpoint`].
pub struct Marking {
    pub dscp: u8,
    pub pace: Option<Arc<Pace>>,
    pub marks: Marks,
}

/// Opens an endpoint on `local` that dials once, below a scheduler if `marking` is given.
pub fn dialling_endpoint(
    local: SocketAddr,
    marking: Option<Marking>,
) -> io::Result<(Endpoint, Heard)> {
    let heard = Heard::default();
    let socket = bind_socket(local)?;
    let socket = dialling::DiallingSocket::new(socket, heard.clone(), |socket| match marking {
        None => TokioRuntime.wrap_udp_socket(socket),
        Some(Marking { dscp, pace, marks }) => Ok(line_socket(socket, dscp, pace, &marks)?),
    })?;
    let endpoint = Endpoint::new_with_abstract_socket(
        endpoint_config(false),
        None,
        socket,
        Arc::new(TokioRuntime),
    )?;
    Ok((endpoint, heard))
}

/// Opens an endpoint on `local`. Without `server`, the endpoint never accepts and dials once: all
/// received datagrams are for that connection.
pub fn endpoint(local: SocketAddr, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = bind_socket(local)?;
    Endpoint::new(
        endpoint_config(server.is_some()),
        server,
        socket,
        Arc::new(TokioRuntime),
    )
}

fn endpoint_config(listens: bool) -> EndpointConfig {
    let bytes = match listens {
        true => LISTENER_ID_BYTES,
        false => DIALLER_ID_BYTES,
    };
    let mut config = EndpointConfig::default();
    config.cid_generator(move || Box::new(RandomConnectionIdGenerator::new(bytes)));
    config
}
