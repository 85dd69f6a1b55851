//! The relay's sockets: many local connections over one QUIC connection between two ends.
//!
//! [`End`] drives one [`relay::Session`] with tasks that read and write local sockets. While there
//! is a connection, it also runs one task per lane and direction. [`switch`] dials the other relay
//! and redials it; [`Hub`] accepts such connections and has an `End` for each switch. [`Direct`] is
//! the other kind of relay: it carries each connection over a separate one.
//!
//! The session makes all decisions, under one lock that is never held across a wait.

mod carriers;
mod coalesce;
mod copies;
mod datagrams;
mod direct;
mod early;
mod end;
mod hold;
mod hub;
mod link;
mod local;
mod over_tls;
mod path;
mod policy;
mod switch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use openflow::DatapathId;
use quinn::{IdleTimeout, TransportConfig, VarInt};
use relay::{ChannelStatus, Config, LineStatus, OrderMode, PerKind, PolicyStatus};
use sched::PolicyMap;
use tokio::sync::mpsc;

use net::Pace;
use net::method::{Method, UdpMethod};
use net::quic;
use net::tls::Security;
use net::transport::{Connection, Refusal, TransportKind};

pub use coalesce::WindowCounters;
pub use copies::CopyStatus;
pub use datagrams::{DatagramListener, DatagramStatus, Dropped, LocalPeer};
pub use direct::{Direct, Pushed};
pub use early::{EarlyStatus, StrayStatus};
pub use end::End;
pub use hold::Holder;
pub use hub::{Hub, TurnStatus};
pub use switch::switch;

/// Silence after which a connection is given up and dialled again. It is short because a false
/// alarm costs only a reconnection: the channels resume.
pub const LINK_IDLE_TIMEOUT: Duration = Duration::from_millis(1000);
const LINK_KEEP_ALIVE: Duration = Duration::from_millis(300);
/// Round trip time assumed until the path is measured; a third of it is the first retransmission of
/// a handshake.
const LINK_INITIAL_RTT: Duration = Duration::from_millis(100);
/// Maximum number of streams, for all lanes of all channels together.
const STREAMS_MAX: u32 = 65_536;
/// Number of streams granted to a new connection; it gets more as they are used. Quinn makes an
/// entry for each stream. All entries together took 5 ms and 3 MiB at either end of each handshake.
const STREAMS_MIN: u32 = 256;
/// Sessions bound the data that they keep per channel, so this window only keeps one burst in
/// flight.
const LINK_WINDOW_BYTES: u32 = 16 << 20;

/// Maximum size of the copies received and not yet read; beyond it, copies are lost.
const COPIES_UNREAD_BYTES_MAX: usize = 256 << 10;
/// Maximum size of the copies that wait for the congestion window. QUIC sends datagrams before
/// streams: more copies would delay the records that they duplicate.
const COPIES_UNSENT_BYTES_MAX: usize = 4 << 10;

/// Name of the agent whose channels carry OpenFlow.
pub const OPENFLOW: &str = "openflow";
/// Name of the agent that speaks OVSDB.
pub const OVSDB: &str = relay::OVSDB;

/// The target of channels that the other end has opened.
#[derive(Clone, Debug)]
pub enum Target {
    /// Dialled once per channel. `{name}` in a path is the other relay's name.
    Dial(Method),
    /// Passed to a receiver in this process.
    Hand(mpsc::Sender<Connection>),
    /// A UDP address, for agents that speak UDP. Each peer of the other end has its own sending
    /// socket.
    Datagrams(UdpMethod),
}

/// The configuration of both kinds of end.
#[derive(Clone, Debug)]
pub struct EndConfig {
    pub session: Config,
    /// The targets, by agent.
    pub targets: BTreeMap<String, Target>,
    /// The security of targets that are `ssl:` or `quic:`.
    pub target_security: Security,
    pub scheduling: Scheduling,
}

/// The scheduling of messages over the limited link.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    /// The policy map. Without one, messages are sent in order of arrival, and nothing is shed.
    pub policy: Option<Arc<PolicyMap>>,
    /// Limits the sent bytes, headers included, to a rate.
    pub pace: Option<Arc<Pace>>,
    /// Rate that the path is known to carry for us, in bytes per second. QUIC's window does not
    /// fall below the size that this rate needs.
    pub guaranteed_bytes: Option<u64>,
    /// Experimenter number of the messages that carry policy maps where there is no QUIC; the
    /// default is ours.
    pub experimenter: Option<u32>,
    /// Time that messages of each kind may wait to share a packet, where there is no policy.
    pub coalescing: PerKind<Duration>,
}

/// Status and counters of one end.
#[derive(Clone, Debug)]
pub struct EndStatus {
    /// The other relay, as its certificate names it.
    pub peer: String,
    pub address: Option<String>,
    /// The present transport of the session: `Quic`, `Tls` where UDP does not get through, or
    /// nothing.
    pub transport: Option<TransportKind>,
    pub is_up: bool,
    /// Connections made by TLS because QUIC was not answered.
    pub fallbacks: u64,
    /// Handshakes with relays that this end dials, refused by either side.
    pub refused: BTreeMap<Refusal, u64>,
    /// The method by which the other relay was dialled, at the switch's end.
    pub relay: Option<String>,
    /// Times that a relay was reached by a different method than the one before.
    pub failovers: u64,
    /// Sessions begun: the first, and each one begun because no relay knew the session before it.
    pub sessions: u64,
    /// The order of changes of the switch's state. Without QUIC it is strict.
    pub order: OrderMode,
    /// Connections after the first: resumptions and restarts of the other end.
    pub reconnects: u64,
    pub resumptions: u64,
    /// Connections between the ends: one, or one for each code point. The first has the control
    /// stream.
    pub connections: Vec<ConnectionStatus>,
    pub channels: Vec<ChannelStatus>,
    /// Number of closed channels.
    pub closed: u64,
    /// The queues, where there is a policy map.
    pub line: Option<LineStatus>,
    /// The policy map shared with the other end.
    pub policy: Option<PolicyStatus>,
    pub windows: WindowCounters,
    pub copies: CopyStatus,
    pub datagrams: DatagramStatus,
    pub early: EarlyStatus,
    /// Messages about policy maps that were wrong, unknown, or not the sender's to send.
    pub policy_faults: u64,
    /// Channels closed because a switch reported a datapath other than the one that its relay's
    /// certificate names.
    pub datapaths_refused: u64,
}

/// Counters of one QUIC connection between two ends.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionStatus {
    /// The code point with which this end marks the connection, where it schedules.
    pub code_point: u8,
    pub rtt: Duration,
    pub lost_packets: u64,
}

impl EndStatus {
    /// The round trip time of the connection with the control stream.
    pub fn rtt(&self) -> Option<Duration> {
        self.connections.first().map(|connection| connection.rtt)
    }

    /// The lost packets of all present connections.
    pub fn lost_packets(&self) -> u64 {
        self.connections.iter().map(|c| c.lost_packets).sum()
    }
}

/// Returns bytes that nobody can guess, for example for a session id.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let provider = net::tls::provider();
    provider
        .secure_random
        .fill(&mut bytes)
        .expect("the system has random numbers");
    bytes
}

impl Scheduling {
    /// Makes a listener whose socket suits its traffic, and marks packets with `dscp` where
    /// messages are scheduled.
    fn listening(
        &self,
        local: SocketAddr,
        server: quinn::ServerConfig,
        dscp: u8,
    ) -> std::io::Result<(quinn::Endpoint, quic::Marks)> {
        match &self.policy {
            None => Ok((quic::endpoint(local, Some(server))?, quic::Marks::default())),
            Some(_) => quic::line_endpoint(local, Some(server), dscp, self.pace.clone()),
        }
    }

    /// Makes the same kind of endpoint for the dialling side.
    fn dialling(
        &self,
        local: SocketAddr,
        dscp: u8,
    ) -> std::io::Result<(quinn::Endpoint, quic::Marks, quic::Heard)> {
        let marks = quic::Marks::default();
        let marking = self.marking(dscp, &marks);
        let (endpoint, heard) = quic::dialling_endpoint(local, marking)?;
        Ok((endpoint, marks, heard))
    }

    fn marking(&self, dscp: u8, marks: &quic::Marks) -> Option<quic::Marking> {
        self.policy.as_ref().map(|_| quic::Marking {
            dscp,
            pace: self.pace.clone(),
            marks: marks.clone(),
        })
    }
}

fn transport_config(scheduling: &Scheduling) -> TransportConfig {
    let mut config = quic::transport_config();
    if scheduling.policy.is_some() || scheduling.guaranteed_bytes.is_some() {
        config.congestion_controller_factory(Arc::new(quic::LineCongestion {
            guaranteed_bytes: scheduling.guaranteed_bytes,
            is_paced: scheduling.pace.is_some(),
        }));
    }
    let idle = IdleTimeout::try_from(LINK_IDLE_TIMEOUT).expect("fits a QUIC variable integer");
    config
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(LINK_KEEP_ALIVE))
        .initial_rtt(LINK_INITIAL_RTT)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MIN))
        .datagram_receive_buffer_size(Some(COPIES_UNREAD_BYTES_MAX))
        .datagram_send_buffer_size(COPIES_UNSENT_BYTES_MAX)
        .receive_window(VarInt::from_u32(LINK_WINDOW_BYTES));
    config
}

/// Returns the peer's name from its certificate, fit for a file name; `unnamed` if there is none.
fn peer_name(connection: &quinn::Connection) -> String {
    use rustls_pki_types::CertificateDer;
    let chain = connection
        .peer_identity()
        .and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    relay_name(net::tls::common_name(
        chain.as_ref().map(|chain| &chain[..]),
    ))
}

/// Returns the only datapath that the peer's certificate lets it speak for.
fn peer_datapath(connection: &quinn::Connection) -> Option<DatapathId> {
    let chain = early::chain_of(connection);
    net::tls::peer_identity(Some(&chain)).datapath_id
}

fn relay_name(common_name: Option<String>) -> String {
    let name = common_name.map(|name| file_name(&name));
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unnamed".to_owned())
}

fn file_name(name: &str) -> String {
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    name.chars()
        .map(fit)
        .take(64)
        .collect::<String>()
        .trim_start_matches('.')
        .to_owned()
}
