//! The measured switch: our own Open vSwitch, reached over every transport at once, or the user's
//! switch, with two interfaces of this machine at two of its ports.
//!
//! Our own switch is a lab of one bridge and two hosts. The bridge stays connected over all
//! transports, as if to several controllers, and packet-ins go to one of them at a time. All
//! transports therefore share the same ports, hosts and table. (A bridge per transport was tried:
//! the first bridge's data path took 0.03 ms more than the others', whatever its transport.) Over
//! QUIC, which Open vSwitch does not speak, the bridge connects to `auster relay switch` beside it;
//! the relay's other end is in this process.

use cli::program;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use net::method::Method;
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Connection, Limits, Listener, connect};
use relay::{Config, Side};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tunnel::{EndConfig, Hub, OPENFLOW, Target};

use super::lane::{Ends, Lane, listening};
use super::tap::Tap;
use crate::certificates;
use auster::channel::Channel;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::netns;
use testbed::network::{CONTROLLER, CONTROLLER_ADDRESS, Network, Options, SWITCHES};
use testbed::plane::{Transport, identity, make_certificates, set_ssl, wait_for_listener};
use testbed::topology::Topology;

const TCP_PORT: u16 = 6653;
const TLS_PORT: u16 = 6654;
const QUIC_PORT: u16 = 6655;
/// Time limit for Open vSwitch to connect: it dials within a second, and its first attempt may be
/// too early.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// The maximum number of connections from the relay that wait for their turn.
const HANDED_MAX: usize = 16;

/// Lanes, and the resources that must live as long as they do.
pub struct Subject {
    pub lanes: Vec<Lane>,
    _doors: Vec<Door>,
    /// Removed when dropped.
    _network: Option<Network>,
}

/// The end at which a switch's connections arrive.
enum Door {
    Stream(Box<Listener>),
    Relay(mpsc::Receiver<Connection>),
}

impl Door {
    async fn accept(&mut self) -> Option<Connection> {
        match self {
            Door::Stream(listener) => Some(listener.accept().await),
            Door::Relay(channels) => channels.recv().await,
        }
    }
}

/// Makes the lab and connects its switch over each of the transports.
pub fn own(runtime: &Runtime, transports: &[Transport], token: u32) -> Result<Subject, Failure> {
    let mut topology = Topology::new("bench switch");
    let switch = topology.add_switch();
    topology.add_host(switch);
    topology.add_host(switch);
    let mut network = Network::start(topology, "auster bench", &Options::default())?;
    let pki = network.dir().join("pki");
    let mut security = Security::default();
    if transports
        .iter()
        .any(|transport| *transport != Transport::Tcp)
    {
        make_certificates(&pki)?;
        security = load_security(&pki)?;
    }
    let open_doors = || {
        // Sockets stay in the namespace in which they were made.
        let doors = transports
            .iter()
            .map(|t| runtime.block_on(open_door(*t, &security)));
        Ok(doors.collect::<Result<Vec<Door>, Failure>>())
    };
    let within = netns::within(&network.namespace(CONTROLLER), open_doors);
    let mut doors = within.map_err(Failure::machine)??;
    point_bridge(&mut network, transports, &pki)?;

    let mut channels = Vec::new();
    for (transport, door) in transports.iter().zip(&mut doors) {
        let is_alone = transports.len() == 1;
        let opened = runtime
            .block_on(async { tokio::time::timeout(CONNECT_MAX, open(door, is_alone)).await });
        let Ok(Some(channel)) = opened else {
            let name = transport.scheme();
            let why = network.casualty();
            let why = why.unwrap_or_else(|| network.last_words("ovs-vswitchd.log"));
            return Err(Failure::machine(format!(
                "Open vSwitch did not connect over {name}: {why}"
            )));
        };
        channels.push(channel);
    }
    let hosts = [0, 1].map(|host| network.namespace(&network.topology.hosts[host].name));
    let lanes = runtime.block_on(find_lanes(transports, channels, &hosts, token))?;
    Ok(Subject {
        lanes,
        _doors: doors,
        _network: Some(network),
    })
}

/// Waits for a connection of our own switch that stays open. Open vSwitch gives up a connection
/// that receives no HELLO within a second, and reconnects. This happens while other transports have
/// their turn.
async fn open(door: &mut Door, is_alone: bool) -> Option<Channel> {
    loop {
        let connection = door.accept().await?;
        let opened = async {
            let mut channel = Channel::open(connection).await?;
            if !is_alone {
                channel.carry_out(vec![listening(false)]).await?;
            }
            Ok::<Channel, Failure>(channel)
        };
        match opened.await {
            Ok(channel) => return Some(channel),
            Err(failure) => tracing::info!("{failure:?}; waiting for the next connection"),
        }
    }
}

/// Joins the channels of our own switch with its hosts. If there are several, packet-ins are off
/// for all of them afterwards.
async fn find_lanes(
    transports: &[Transport],
    mut channels: Vec<Channel>,
    hosts: &[String; 2],
    token: u32,
) -> Result<Vec<Lane>, Failure> {
    let open = |host: &String| Tap::open(Some(host), "eth0", token).map_err(Failure::machine);
    let taps = (open(&hosts[0])?, open(&hosts[1])?);
    let first = &mut channels[0];
    first.carry_out(vec![listening(true)]).await?;
    let ends = Rc::new(Ends::find(first, taps, (&hosts[0], &hosts[1]), token).await?);
    if transports.len() > 1 {
        first.carry_out(vec![listening(false)]).await?;
    }
    let mut lanes = Vec::new();
    for (number, (transport, channel)) in (0..).zip(transports.iter().zip(channels)) {
        lanes.push(Lane::new(transport.scheme(), channel, ends.clone(), number).await?);
    }
    Ok(lanes)
}

/// Connects the user's switch: it dials us, or we dial it.
pub async fn foreign(
    method: &Method,
    security: &Security,
    interfaces: (&str, &str),
    token: u32,
    interrupt: &Interrupt,
    say: impl Fn(&str),
) -> Result<Subject, Failure> {
    // Report a wrong interface before waiting for a switch.
    let open = |device: &str| {
        Tap::open(None, device, token).map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => Failure::machine(format!(
                "{device}: probes are raw packets and need root: sudo"
            )),
            _ => Failure::usage(e),
        })
    };
    let taps = (open(interfaces.0)?, open(interfaces.1)?);
    let mut doors = Vec::new();
    let connection = if method.is_passive() {
        let listener = Listener::bind(method, security, Limits::default()).await;
        let mut listener = listener.map_err(Failure::network)?;
        say(&format!("Waiting for the switch on {}", listener.local()));
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            () = interrupt.wait() => {
                return Err(Failure::negative("interrupted before a switch connected"));
            }
        };
        doors.push(Door::Stream(Box::new(listener)));
        connection
    } else {
        connect(method, security).await.map_err(Failure::network)?
    };
    let transport = connection.peer.transport.name();
    let mut channel = Channel::open(connection).await?;
    let ends = Ends::find(&mut channel, taps, interfaces, token).await?;
    let lane = Lane::new(transport, channel, Rc::new(ends), 0).await?;
    Ok(Subject {
        lanes: vec![lane],
        _doors: doors,
        _network: None,
    })
}

async fn open_door(transport: Transport, security: &Security) -> Result<Door, Failure> {
    let method = match transport {
        Transport::Tcp => format!("ptcp:{TCP_PORT}:{CONTROLLER_ADDRESS}"),
        Transport::Tls => format!("pssl:{TLS_PORT}:{CONTROLLER_ADDRESS}"),
        Transport::Quic => format!("pquic:{QUIC_PORT}:{CONTROLLER_ADDRESS}"),
    };
    let method: Method = method.parse().map_err(Failure::machine)?;
    if transport != Transport::Quic {
        let listener = Listener::bind(&method, security, Limits::default()).await;
        let listener = listener.map(Box::new);
        return listener.map(Door::Stream).map_err(Failure::network);
    }
    let (hand, channels) = mpsc::channel(HANDED_MAX);
    let config = EndConfig {
        session: Config::new(Side::Controller),
        targets: BTreeMap::from([(OPENFLOW.to_owned(), Target::Hand(hand))]),
        target_security: security.clone(),
        scheduling: tunnel::Scheduling::default(),
    };
    let hub = Hub::bind(&method, security, config, Vec::new())
        .await
        .map_err(Failure::network)?;
    tokio::spawn(async move { hub.run().await });
    Ok(Door::Relay(channels))
}

fn load_security(pki: &Path) -> Result<Security, Failure> {
    let files = CredentialFiles {
        private_key: pki.join("controller-privkey.pem"),
        certificate: pki.join("controller-cert.pem"),
        ca: pki.join("switchca/cacert.pem"),
        crl: None,
    };
    certificates::security(&files, Role::Switch)
}

/// Sets the bridge's controllers. The relay is started first.
fn point_bridge(
    network: &mut Network,
    transports: &[Transport],
    pki: &Path,
) -> Result<(), Failure> {
    if transports.contains(&Transport::Tls) {
        set_ssl(network, pki)?;
    }
    if transports.contains(&Transport::Quic) {
        let log = network.open_log("relay-switch.log")?;
        network.spawn(
            "relay-switch",
            Some(SWITCHES),
            program::auster()?,
            |command| {
                let listen = format!("ptcp:{TCP_PORT}:127.0.0.1");
                let dial = format!("quic:{CONTROLLER_ADDRESS}:{QUIC_PORT}");
                command.args(["relay", "switch", "--openflow", &listen, "--connect", &dial]);
                command.stderr(log);
                identity(command, pki, "switch");
            },
        )?;
        wait_for_listener(network, SWITCHES, TCP_PORT, "relay-switch.log")?;
    }
    let targets = transports.iter().map(|transport| match transport {
        Transport::Tcp => format!("tcp:{CONTROLLER_ADDRESS}:{TCP_PORT}"),
        Transport::Tls => format!("ssl:{CONTROLLER_ADDRESS}:{TLS_PORT}"),
        Transport::Quic => format!("tcp:127.0.0.1:{TCP_PORT}"),
    });
    let mut words: Vec<String> = Vec::new();
    let mut ids = Vec::new();
    for (n, target) in targets.enumerate() {
        // No inactivity probe: a channel is not read while another has its turn.
        let line = format!(
            "-- --id=@c{n} create controller target=\"{target}\" max_backoff=1000 \
             inactivity_probe=0 connection_mode=out-of-band"
        );
        words.extend(line.split_whitespace().map(str::to_owned));
        ids.push(format!("@c{n}"));
    }
    let controllers = format!("controller={}", ids.join(","));
    words.extend(["--", "set", "bridge", "s1", &controllers].map(str::to_owned));
    network.vsctl(&words).map(drop)
}
