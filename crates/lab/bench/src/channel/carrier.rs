//! Connections across the link for each method: from a bound listener to an outlet per agent and
//! tasks that read.

use std::any::Any;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use net::method::{Method as Address, Protocol};
use net::tls::Security;
use nix::sys::socket::{setsockopt, sockopt};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::{AckFrequencyConfig, Endpoint, EndpointConfig, TransportConfig, VarInt};
use quinn_proto::RandomConnectionIdGenerator;
use relay::{Config, Kind, SessionId};
use rustls_pki_types::ServerName;
use sched::Direction;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tunnel::{End, EndConfig, Hub, OPENFLOW, Target};

use super::condition::Cell;
use super::end::Inbox;
use super::floor::FloorConfig;
use super::method::{Carrier, Congestion, Quic, Relay, Streams, Tcp};
use super::outlet::{Hold, Lane, Outlet, lane};

/// The two ends' addresses on the link. The switch's end dials, as switches do.
pub const SWITCH_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const CONTROLLER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The namespaces are the bench's own, so a fixed port is free.
const PORT: u16 = 6653;
const RELAY_PORT: u16 = 6654;
const ALPN: &[u8] = b"auster-bench/1";
/// More streams than any cell has messages in flight. The default of 100 would stall the method
/// with a stream per message.
const STREAMS_MAX: u32 = 100_000;

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The terms of an end: its cell, its direction and its security.
#[derive(Clone)]
pub struct Terms {
    pub cell: Arc<Cell>,
    /// The direction in which this end sends.
    pub sends: Direction,
    pub security: Security,
}

/// An end that listens, or the end that will dial.
pub enum Bound {
    Dialler,
    Tcp(TcpListener),
    Quic(Endpoint),
    Relay { hub: Arc<Hub>, target: TcpListener },
}

/// An end that can send and has running readers.
pub struct Channel {
    /// One per agent.
    pub outlets: Vec<Outlet>,
    /// Readers and drivers; they end with the channel.
    pub tasks: JoinSet<()>,
    /// Values that close connections when they are dropped.
    pub keep: Vec<Box<dyn Any + Send>>,
}

impl Terms {
    fn listens(&self) -> bool {
        self.sends == Direction::ToSwitch
    }

    fn receives(&self) -> Direction {
        match self.sends {
            Direction::ToSwitch => Direction::ToController,
            Direction::ToController => Direction::ToSwitch,
        }
    }

    /// Starts to listen, on the end that listens.
    pub async fn bind(&self) -> Result<Bound, Problem> {
        if !self.listens() {
            return Ok(Bound::Dialler);
        }
        let local = SocketAddr::from((CONTROLLER_ADDRESS, PORT));
        Ok(match self.cell.method.carrier {
            Carrier::Tcp(_) => {
                let socket = self.socket()?;
                socket.bind(local)?;
                Bound::Tcp(socket.listen(1024)?)
            }
            Carrier::Quic(quic) => {
                let mut config =
                    net::quic::server_config(&self.security, &[ALPN]).ok_or("no certificates")?;
                config.transport_config(Arc::new(self.transport_config(&quic)));
                Bound::Quic(endpoint(local, Some(config), quic.is_thin.then_some(4))?)
            }
            Carrier::Relay(relay) => {
                let target = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await?;
                let dial = address(&format!("tcp:127.0.0.1:{PORT}"));
                let config = EndConfig {
                    session: session(relay, relay::Side::Controller),
                    targets: [(OPENFLOW.to_owned(), Target::Dial(dial))].into(),
                    target_security: Security::plain(),
                    scheduling: scheduling(relay),
                };
                let listen = address(&format!("pquic:{RELAY_PORT}:{CONTROLLER_ADDRESS}"));
                let hub = Hub::bind(&listen, &self.security, config, Vec::new()).await?;
                Bound::Relay { hub, target }
            }
        })
    }

    /// Connects, or waits until the other end has connected.
    pub async fn connect(&self, bound: Bound, inbox: &Arc<Inbox>) -> Result<Channel, Problem> {
        let mut channel = Channel {
            outlets: Vec::new(),
            tasks: JoinSet::new(),
            keep: Vec::new(),
        };
        let lanes = match (self.cell.method.carrier, bound) {
            (Carrier::Tcp(tcp), bound) => self.connect_tcp(tcp, bound, &mut channel, inbox).await?,
            (Carrier::Quic(quic), bound) => {
                let connection = self.connect_quic(&quic, bound, &mut channel).await?;
                let from = (connection.clone(), self.receives(), inbox.clone());
                channel.tasks.spawn(accept_streams(from.0, from.1, from.2));
                let count = match quic.streams {
                    Streams::PerAgent => self.cell.agents,
                    Streams::RoundRobin(count) => count,
                    Streams::PerMessage => {
                        channel.outlets.extend(
                            (0..self.cell.agents).map(|_| Outlet::PerMessage(connection.clone())),
                        );
                        return Ok(channel);
                    }
                };
                let mut lanes = Vec::new();
                for _ in 0..count {
                    lanes.push(lane(connection.open_uni().await?));
                }
                lanes
            }
            (Carrier::Relay(relay), bound) => {
                let lanes = self.connect_relay(relay, bound, &mut channel, inbox);
                // The relay itself applies the window.
                let lanes = lanes.await?.into_iter().map(Outlet::Lane);
                channel.outlets.extend(lanes);
                return Ok(channel);
            }
        };
        self.make_outlets(lanes, &mut channel);
        Ok(channel)
    }

    fn make_outlets(&self, lanes: Vec<Lane>, channel: &mut Channel) {
        let agents = self.cell.agents;
        let window = std::time::Duration::from_millis(self.cell.method.window_ms);
        if let Carrier::Quic(Quic {
            streams: Streams::RoundRobin(_),
            ..
        }) = self.cell.method.carrier
        {
            // Agents start on different streams; otherwise they would meet on every stream.
            channel
                .outlets
                .extend((0..agents).map(|agent| Outlet::RoundRobin {
                    next: agent * lanes.len() / agents,
                    lanes: lanes.clone(),
                }));
        } else if window.is_zero() {
            let lanes = (0..agents).map(|agent| lanes[agent % lanes.len()].clone());
            channel.outlets.extend(lanes.map(Outlet::Lane));
        } else {
            // Each connection has its own window.
            let per_hold = lanes.len() / self.cell.method.connections(agents);
            let holds: Vec<Arc<Hold>> = lanes
                .chunks(per_hold)
                .map(|lanes| Hold::new(window, lanes.to_vec()))
                .collect();
            for agent in 0..agents {
                let lane = agent % lanes.len();
                channel.outlets.push(Outlet::Held {
                    hold: holds[lane / per_hold].clone(),
                    lane: lane % per_hold,
                });
            }
            for hold in holds {
                channel.tasks.spawn(async move {
                    if let Err(error) = hold.run().await {
                        tracing::warn!("the window's writer: {error}");
                    }
                });
            }
        }
    }

    async fn connect_tcp(
        &self,
        tcp: Tcp,
        bound: Bound,
        channel: &mut Channel,
        inbox: &Arc<Inbox>,
    ) -> Result<Vec<Lane>, Problem> {
        let mut lanes = Vec::new();
        for _ in 0..self.cell.method.connections(self.cell.agents) {
            let stream = match &bound {
                Bound::Tcp(listener) => listener.accept().await?.0,
                _ => {
                    let to = SocketAddr::from((CONTROLLER_ADDRESS, PORT));
                    self.socket()?.connect(to).await?
                }
            };
            stream.set_nodelay(tcp.nodelay)?;
            let halves = if !tcp.is_tls {
                split(stream)
            } else if self.listens() {
                let config = self
                    .security
                    .server_config(&[ALPN])
                    .ok_or("no certificates")?;
                split(TlsAcceptor::from(Arc::new(config)).accept(stream).await?)
            } else {
                let config = self
                    .security
                    .client_config(&[ALPN])
                    .ok_or("no certificates")?;
                let name = ServerName::from(std::net::IpAddr::from(CONTROLLER_ADDRESS));
                let connector = TlsConnector::from(Arc::new(config));
                split(connector.connect(name, stream).await?)
            };
            let from = (halves.0, self.receives(), inbox.clone());
            channel.tasks.spawn(receive(from.0, from.1, from.2));
            lanes.push(lane(halves.1));
        }
        channel.keep.push(Box::new(bound));
        Ok(lanes)
    }

    async fn connect_quic(
        &self,
        quic: &Quic,
        bound: Bound,
        channel: &mut Channel,
    ) -> Result<quinn::Connection, Problem> {
        let (endpoint, connection) = match bound {
            Bound::Quic(endpoint) => {
                let incoming = endpoint.accept().await.ok_or("the endpoint is closed")?;
                (endpoint, incoming.await?)
            }
            _ => {
                let mut config =
                    net::quic::client_config(&self.security, &[ALPN]).ok_or("no certificates")?;
                config.transport_config(Arc::new(self.transport_config(quic)));
                let local = SocketAddr::from((SWITCH_ADDRESS, 0));
                let endpoint = endpoint(local, None, quic.is_thin.then_some(0))?;
                let to = SocketAddr::from((CONTROLLER_ADDRESS, PORT));
                let name = CONTROLLER_ADDRESS.to_string();
                let connection = endpoint.connect_with(config, to, &name)?.await?;
                (endpoint, connection)
            }
        };
        channel.keep.push(Box::new((endpoint, connection.clone())));
        Ok(connection)
    }

    /// Each agent has a TCP connection over loopback to the relay beside it; the relays are the
    /// product's own, in this process.
    async fn connect_relay(
        &self,
        relay: Relay,
        bound: Bound,
        channel: &mut Channel,
        inbox: &Arc<Inbox>,
    ) -> Result<Vec<Lane>, Problem> {
        let mut agents = Vec::new();
        if let Bound::Relay { hub, target } = bound {
            let serving = hub.clone();
            channel.tasks.spawn(async move { serving.run().await });
            for _ in 0..self.cell.agents {
                agents.push(target.accept().await?.0);
            }
            channel.keep.push(Box::new(hub));
        } else {
            let config = EndConfig {
                session: session(relay, relay::Side::Switch),
                targets: Default::default(),
                target_security: Security::plain(),
                scheduling: scheduling(relay),
            };
            let end = End::new(config, SessionId(tunnel::random()), "controller");
            let to = address(&format!("quic:{CONTROLLER_ADDRESS}:{RELAY_PORT}"));
            let (dialling, security) = (end.clone(), self.security.clone());
            channel.tasks.spawn(async move {
                let error = tunnel::switch(&dialling, &[to], &security).await;
                tracing::warn!("the relay gave up: {error}");
            });
            let local = address("ptcp:0:127.0.0.1");
            let limits = net::transport::Limits::default();
            let mut listener =
                net::transport::Listener::bind(&local, &Security::plain(), limits).await?;
            let Address::Listen(_, _, port) = *listener.local() else {
                return Err("a TCP listener has a port".into());
            };
            for _ in 0..self.cell.agents {
                agents.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
                end.adopt(OPENFLOW, listener.accept().await);
            }
            channel.keep.push(Box::new(end));
        }
        let mut lanes = Vec::new();
        for stream in agents {
            stream.set_nodelay(true)?;
            let (reader, writer) = split(stream);
            let from = (reader, self.receives(), inbox.clone());
            channel.tasks.spawn(receive(from.0, from.1, from.2));
            lanes.push(lane(writer));
        }
        Ok(lanes)
    }

    /// Creates a TCP socket with the method's congestion control. Accepted connections inherit it.
    fn socket(&self) -> Result<TcpSocket, Problem> {
        let name = match self.cell.method.congestion {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        };
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(name))
            .map_err(|error| format!("this kernel has no {name} ({error}): modprobe tcp_{name}"))?;
        Ok(socket)
    }

    /// Returns quinn's defaults, except for the number of streams and the method's settings.
    fn transport_config(&self, quic: &Quic) -> TransportConfig {
        let mut config = TransportConfig::default();
        config.max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MAX));
        if quic.is_thin {
            let mut ack = AckFrequencyConfig::default();
            ack.ack_eliciting_threshold(VarInt::from_u32(10))
                .max_ack_delay(Some(std::time::Duration::from_millis(25)));
            config.ack_frequency_config(Some(ack));
        }
        let factory: Arc<dyn ControllerFactory + Send + Sync> =
            match (self.cell.method.congestion, quic.window_floor_bytes) {
                (Congestion::Bbr, _) => Arc::new(BbrConfig::default()),
                (Congestion::Cubic, None) => Arc::new(CubicConfig::default()),
                (Congestion::Cubic, Some(floor_bytes)) => Arc::new(FloorConfig { floor_bytes }),
            };
        config.congestion_controller_factory(factory);
        config
    }
}

fn session(relay: Relay, side: relay::Side) -> Config {
    let mut config = Config::new(side);
    config.copied.set(Kind::Packet, relay.is_doubled);
    config
}

fn scheduling(relay: Relay) -> tunnel::Scheduling {
    let mut scheduling = tunnel::Scheduling::default();
    let window = std::time::Duration::from_micros(relay.window_us);
    scheduling.coalescing.set(Kind::Packet, window);
    scheduling
}

fn endpoint(
    local: SocketAddr,
    server: Option<quinn::ServerConfig>,
    connection_id_bytes: Option<usize>,
) -> io::Result<Endpoint> {
    let mut config = EndpointConfig::default();
    if let Some(bytes) = connection_id_bytes {
        config.cid_generator(move || Box::new(RandomConnectionIdGenerator::new(bytes)));
    }
    let socket = net::quic::bind_socket(local)?;
    Endpoint::new(config, server, socket, Arc::new(quinn::TokioRuntime))
}

fn address(text: &str) -> Address {
    Address::parse(text, Protocol::OpenFlow).expect("our own words are a method")
}

type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

fn split(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Halves {
    let (reader, writer) = tokio::io::split(stream);
    (Box::new(reader), Box::new(writer))
}

/// Reads whole messages off one byte stream until it ends.
async fn receive(mut reader: impl AsyncRead + Unpin, direction: Direction, inbox: Arc<Inbox>) {
    if let Err(error) = inbox.read(&mut reader, direction).await {
        inbox.note(&error);
    }
}

async fn accept_streams(connection: quinn::Connection, direction: Direction, inbox: Arc<Inbox>) {
    let mut readers = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept_uni() => match stream {
                Ok(stream) => {
                    readers.spawn(receive(stream, direction, inbox.clone()));
                }
                Err(error) => return inbox.note(&error),
            },
            Some(_) = readers.join_next(), if !readers.is_empty() => {}
        }
    }
}
