//! The application for all switches: discovery, hosts, paths and the flow entries that carry them.

use std::collections::VecDeque;
use std::fmt;

use openflow::multipart::Description;
use openflow::time::{Duration, Instant};
use openflow::{DatapathId, Frame, MacAddr, PortNo, Version};

use crate::ConnectionId;
use crate::session::SwitchUp;

/// How flow entries come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// An entry per pair of hosts and hop when their first packet comes; idle ones expire.
    #[default]
    Reactive,
    /// An entry per host on every switch as soon as the host is known.
    Proactive,
    /// Between switches as proactive, at the edge as reactive: one flow-mod per new pair.
    Hybrid,
}

#[derive(Clone, Debug)]
pub struct ControllerConfig {
    pub mode: Mode,
    /// Of reactive entries; 0 for never.
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// Between two LLDP frames to the same port. A link is gone after three of them.
    pub lldp_interval: Duration,
    /// A new port neither learns nor is flooded to for this long, so that discovery is first.
    pub port_hold: Duration,
    /// How long the links and paths of a switch outlive its connection.
    pub switch_grace: Duration,
    pub switch_count_max: usize,
    pub host_count_max: usize,
    pub path_count_max: usize,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        ControllerConfig {
            mode: Mode::Reactive,
            idle_timeout_s: 60,
            hard_timeout_s: 0,
            lldp_interval: Duration::from_secs(1),
            port_hold: Duration::from_millis(600),
            switch_grace: Duration::from_secs(5),
            switch_count_max: 10_000,
            host_count_max: 65_536,
            path_count_max: 262_144,
        }
    }
}

/// What the transport proved about a peer; all unknown on plain TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The datapath id its certificate is bound to.
    pub dpid: Option<DatapathId>,
    pub role: PeerRole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerRole {
    #[default]
    Unknown,
    Switch,
    Controller,
}

#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// Close the connection; nothing of it reached the application.
    Refused(RefusedReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// A live connection has this datapath id. It stays, and is probed.
    DuplicateDatapath {
        dpid: DatapathId,
    },
    /// The certificate is bound to another switch.
    IdentityMismatch {
        dpid: DatapathId,
        certified: DatapathId,
    },
    /// The certificate is a controller's.
    NotASwitch,
    /// An auxiliary connection; only main ones are served.
    Auxiliary,
    TooManySwitches,
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusedReason::DuplicateDatapath { dpid } => {
                write!(f, "{dpid} is connected already; the older connection stays")
            }
            RefusedReason::IdentityMismatch { dpid, certified } => {
                write!(f, "says it is {dpid}, but its certificate is {certified}'s")
            }
            RefusedReason::NotASwitch => f.write_str("its certificate is a controller's"),
            RefusedReason::Auxiliary => f.write_str("auxiliary connections are not served"),
            RefusedReason::TooManySwitches => f.write_str("the limit of switches is reached"),
        }
    }
}

#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerOutput {
    Send {
        connection: ConnectionId,
        frame: Frame,
    },
    Close {
        connection: ConnectionId,
        reason: RefusedReason,
    },
    /// Call `Session::handle_probe`: somebody else claims this connection's datapath id.
    Probe { connection: ConnectionId },
    /// For logs and status; nothing depends on it.
    Event(Event),
}

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub dpid: DatapathId,
    pub port: PortNo,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dpid, self.port)
    }
}

/// What happened, for people and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SwitchUp {
        dpid: DatapathId,
        version: Version,
    },
    SwitchDown {
        dpid: DatapathId,
    },
    /// Its grace is over: links and paths through it are gone.
    SwitchLost {
        dpid: DatapathId,
    },
    PortUp(Location),
    PortDown(Location),
    LinkUp {
        from: Location,
        to: Location,
    },
    LinkDown {
        from: Location,
        to: Location,
    },
    HostLearned {
        mac: MacAddr,
        at: Location,
    },
    HostMoved {
        mac: MacAddr,
        from: Location,
        to: Location,
    },
    /// Flow entries of an earlier life of the switch or the controller were compared.
    Reconciled {
        dpid: DatapathId,
        kept: usize,
        added: usize,
        deleted: usize,
    },
    Alarm(Alarm),
}

/// Something that only a fault or an attack explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    DuplicateDatapath {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// LLDP that claims to be ours and is not, or not fresh.
    LldpForged {
        at: Location,
        why: &'static str,
    },
    /// A host that is alive elsewhere.
    HostSpoofed {
        mac: MacAddr,
        home: Location,
        at: Location,
    },
    HostMovesTooOften {
        mac: MacAddr,
    },
    HostTableFull,
    FlowTableFull {
        dpid: DatapathId,
    },
    FlowModRefused {
        dpid: DatapathId,
        error: openflow::ErrorKind,
    },
}

/// A switch, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchView {
    pub dpid: DatapathId,
    /// `None` while it is disconnected and in its grace.
    pub connection: Option<ConnectionId>,
    pub version: Version,
    pub port_count: usize,
    pub flow_count: usize,
    pub up_since: Instant,
    pub description: Option<Description>,
}

/// A directed link. Paths use it only when its reverse is there too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkView {
    pub from: Location,
    pub to: Location,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    pub mac: MacAddr,
    pub at: Location,
    pub ips: Vec<std::net::IpAddr>,
}

pub struct Controller {
    config: ControllerConfig,
    outputs: VecDeque<ControllerOutput>,
}

impl Controller {
    /// `seed` is the only randomness: LLDP key, epoch and nonces, cookie generation, jitter. Give
    /// it from the operating system's generator.
    pub fn new(config: ControllerConfig, seed: [u8; 32]) -> Controller {
        let _ = seed;
        Controller {
            config,
            outputs: VecDeque::new(),
        }
    }

    /// A switch is up. A second connection of a live datapath id is refused and the first probed,
    /// unless `peer` proves by certificate that it is that switch: then the older one is closed.
    pub fn handle_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        let _ = (now, connection, up, peer);
        Admission::Admitted
    }

    pub fn handle_frame(&mut self, now: Instant, connection: ConnectionId, frame: Frame) {
        let _ = (now, connection, frame, &self.config);
    }

    pub fn handle_down(&mut self, now: Instant, connection: ConnectionId) {
        let _ = (now, connection);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    pub fn poll_output(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }

    /// By datapath id.
    pub fn switches(&self) -> Vec<SwitchView> {
        Vec::new()
    }

    pub fn links(&self) -> Vec<LinkView> {
        Vec::new()
    }

    pub fn hosts(&self) -> Vec<HostView> {
        Vec::new()
    }
}
