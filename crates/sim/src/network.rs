//! The network: an event queue over switches, hosts, links, control channels and one controller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use bytes::Bytes;
use clock::{Duration, Instant, SplitMix64};
use control::ConnectionId;
use control::access::Access;
use control::bond::{Bonds, Bpdu};
use control::controller::{Controller, ControllerConfig, Drained, Event, Location};
use control::mirror::Mirrors;
use control::routing::Gateways;
use control::timeouts::Timeouts;
use control::vlan::Vlans;
use openflow::hello::Hello;
use openflow::message::{ErrorMessage, PortState};
use openflow::table::{Output, Switch, SwitchOptions, plain_port};
use openflow::{DatapathId, Frame, Message, MessageKind, PortNo, Version, Xid, decode, encode};
use relay::hold::{Hold, HoldLimits};

use crate::cache::FlowCache;
use crate::host::Host;
use crate::process::{Process, ProcessConfig, ProcessOutput};

#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub process: ProcessConfig,
    pub version: Version,
    /// Delay in one direction, between a switch and the controller.
    pub control_delay: Duration,
    /// Delay in one direction, over a link.
    pub link_delay: Duration,
    /// Time after a table change during which a switch still forwards packets of a cached flow as
    /// before, even after a barrier reply. Unless this is zero, switches report themselves as Open
    /// vSwitch.
    pub activation_delay: Duration,
    /// Whether a relay beside each switch holds first packets.
    pub hold: bool,
    /// Loss of data packets, in millionths.
    pub loss_ppm: u32,
    /// Time that a switch waits before it reconnects.
    pub reconnect_delay: Duration,
    /// Maximum number of entries in a switch's table.
    pub entries_max: usize,
    /// Number of tables of a switch. The switch describes each table at length.
    pub n_tables: u8,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        NetworkConfig {
            process: ProcessConfig::default(),
            version: Version::V13,
            control_delay: Duration::from_micros(200),
            link_delay: Duration::from_micros(20),
            activation_delay: Duration::ZERO,
            hold: false,
            loss_ppm: 0,
            reconnect_delay: Duration::from_millis(100),
            entries_max: SwitchOptions::default().entries_max,
            n_tables: SwitchOptions::default().n_tables,
        }
    }
}

/// A network whose process runs a controller with this configuration.
impl From<ControllerConfig> for NetworkConfig {
    fn from(controller: ControllerConfig) -> NetworkConfig {
        NetworkConfig {
            process: ProcessConfig {
                controller,
                ..ProcessConfig::default()
            },
            ..NetworkConfig::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwitchId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub usize);

pub struct Network {
    config: NetworkConfig,
    now: Instant,
    random: SplitMix64,
    queue: BTreeMap<(Instant, u64), Happening>,
    queued: u64,
    switches: Vec<Node>,
    hosts: Vec<(Host, End)>,
    links: Vec<Link>,
    process: Option<Process>,
    connections: u64,
    /// The time for which the process is queued, so that it is not queued twice. Each switch has
    /// the same.
    process_due: Option<Instant>,
    trace: u64,
    /// Loss of LLDP frames alone, in millionths.
    lldp_loss_ppm: u32,
    /// Arrival time of the last message that was sent with an earlier delay.
    control_busy_until: Instant,
    /// Stopped processes, and the events that wait for each.
    stopped: BTreeSet<Part>,
    waiting: VecDeque<(Part, Happening)>,
    /// Data packets carried by links, to detect a storm.
    pub carried: u64,
    /// Packets that arrived at the same port a second time, without the controller.
    pub circled: u64,
}

/// A process that can be stopped and continued, as by SIGSTOP and SIGCONT. Messages to a stopped
/// process wait in its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Controller,
    /// A switch's agent and datapath.
    Switch(SwitchId),
    /// The relay between a switch and the controller.
    Relay(SwitchId),
}

/// Maximum number of packets that wait for a stopped switch; further packets are lost.
const WAITING_PACKETS_MAX: usize = 500;

struct Node {
    switch: Switch,
    version: Version,
    connection: Option<ConnectionId>,
    next_port: u32,
    ends: BTreeMap<PortNo, LinkId>,
    /// OpenFlow messages received, by type byte.
    heard: BTreeMap<u8, u64>,
    due: Option<Instant>,
    /// Extra delay of the control channel towards this switch, beyond the common delay.
    away: Duration,
    errors: Vec<openflow::ErrorKind>,
    /// Whether the switch answers no barrier.
    is_mute: bool,
    cache: FlowCache,
    hold: Option<Hold>,
    hold_due: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Switch(SwitchId, PortNo),
    Host(HostId),
    Nowhere,
}

struct Link {
    ends: [End; 2],
    up: bool,
    /// Whether the cable loses everything while both ports stay up.
    dark: bool,
    /// The cable's own delay, where it differs from the network's.
    delay: Option<Duration>,
    /// Loss of every packet, in millionths.
    loss_ppm: u32,
    /// Length of the longest frame that the cable carries; longer frames are lost.
    longest: usize,
    /// The frames that the cable has carried, with their senders, if they are kept.
    tap: Option<Vec<(End, Bytes)>>,
}

impl Link {
    fn between(ends: [End; 2]) -> Link {
        Link {
            ends,
            up: true,
            dark: false,
            delay: None,
            loss_ppm: 0,
            longest: usize::MAX,
            tap: None,
        }
    }
}

/// The switches and in-ports that a packet has passed since a host or the controller sent it.
type Trail = Vec<(SwitchId, PortNo)>;

enum Happening {
    Packet {
        to: End,
        data: Bytes,
        trail: Trail,
    },
    ToController {
        connection: ConnectionId,
        frame: Frame,
    },
    ToSwitch {
        connection: ConnectionId,
        switch: SwitchId,
        frame: Frame,
    },
    /// The datapath looks its flows up again.
    Revalidate {
        switch: SwitchId,
    },
    Connect {
        switch: SwitchId,
    },
    Closed {
        connection: ConnectionId,
        switch: SwitchId,
    },
    ProcessTimer,
    SwitchTimer {
        switch: SwitchId,
    },
    HoldTimer {
        switch: SwitchId,
    },
    Datagram {
        from: HostId,
        to: HostId,
        number: u64,
    },
}

impl Network {
    pub fn new(config: NetworkConfig, seed: u64) -> Network {
        let process = Process::new(config.process.clone(), seed);
        Network {
            config,
            now: Instant::START,
            random: SplitMix64::new(seed),
            queue: BTreeMap::new(),
            queued: 0,
            switches: Vec::new(),
            hosts: Vec::new(),
            links: Vec::new(),
            process: Some(process),
            connections: 0,
            process_due: None,
            trace: 0xcbf2_9ce4_8422_2325,
            lldp_loss_ppm: 0,
            control_busy_until: Instant::START,
            stopped: BTreeSet::new(),
            waiting: VecDeque::new(),
            carried: 0,
            circled: 0,
        }
    }

    /// Adds a switch that connects at once. Datapath ids count from 1.
    pub fn add_switch(&mut self) -> SwitchId {
        let dpid = DatapathId(self.switches.len() as u64 + 1);
        self.add_switch_as(dpid)
    }

    pub fn add_switch_as(&mut self, dpid: DatapathId) -> SwitchId {
        self.add_switch_of(dpid, self.config.entries_max)
    }

    /// Adds a switch with a table of the given size.
    pub fn add_switch_of(&mut self, dpid: DatapathId, entries_max: usize) -> SwitchId {
        self.add_switch_with(dpid, |options| options.entries_max = entries_max)
    }

    /// Adds a switch with the given options.
    pub fn add_switch_with(
        &mut self,
        dpid: DatapathId,
        change: impl FnOnce(&mut SwitchOptions),
    ) -> SwitchId {
        let id = SwitchId(self.switches.len());
        let mut options = SwitchOptions {
            version: self.config.version,
            datapath_id: dpid,
            entries_max: self.config.entries_max,
            n_tables: self.config.n_tables,
            hardware: match self.config.activation_delay.is_zero() {
                true => SwitchOptions::default().hardware,
                false => "Open vSwitch",
            },
            ..SwitchOptions::default()
        };
        change(&mut options);
        self.switches.push(Node {
            switch: Switch::new(options),
            version: self.config.version,
            connection: None,
            next_port: 1,
            ends: BTreeMap::new(),
            heard: BTreeMap::new(),
            due: None,
            away: Duration::ZERO,
            errors: Vec::new(),
            is_mute: false,
            cache: FlowCache::new(self.config.activation_delay),
            hold: self.config.hold.then(|| Hold::new(HoldLimits::default())),
            hold_due: None,
        });
        self.after(self.config.control_delay, Happening::Connect { switch: id });
        id
    }

    /// Adds a cable between two switches, on new ports.
    pub fn link(&mut self, a: SwitchId, b: SwitchId) -> LinkId {
        let id = LinkId(self.links.len());
        let a = self.new_port(a, id);
        let b = self.new_port(b, id);
        self.links.push(Link::between([a, b]));
        id
    }

    /// Adds a host on a new port.
    pub fn add_host(&mut self, at: SwitchId) -> HostId {
        let id = HostId(self.hosts.len());
        let link = LinkId(self.links.len());
        let end = self.new_port(at, link);
        self.links.push(Link::between([end, End::Host(id)]));
        self.hosts.push((Host::numbered(id.0 as u16 + 1), end));
        id
    }

    /// Adds a port with nothing connected to it yet.
    pub fn add_port(&mut self, at: SwitchId) -> PortNo {
        let link = LinkId(self.links.len());
        let end = self.new_port(at, link);
        self.links.push(Link::between([end, End::Nowhere]));
        match end {
            End::Switch(_, port) => port,
            _ => PortNo::ANY,
        }
    }

    fn new_port(&mut self, at: SwitchId, link: LinkId) -> End {
        let node = &mut self.switches[at.0];
        let port = PortNo(node.next_port);
        node.next_port += 1;
        node.ends.insert(port, link);
        let status = node.switch.set_port(self.now, plain_port(port));
        self.say(at, Xid(0), &status);
        End::Switch(at, port)
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// A hash of everything that happened, with its time.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    pub fn switch(&self, id: SwitchId) -> &Switch {
        &self.switches[id.0].switch
    }

    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0].0
    }

    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0].0
    }

    pub fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.hosts.len()).map(HostId)
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the controller runs")
    }

    /// Runs an operator's question on the controller and returns the answer.
    pub fn ask<R>(&mut self, question: impl FnOnce(&mut Controller, Instant) -> R) -> R {
        let now = self.now;
        let process = self.process.as_mut().expect("the controller runs");
        let answer = process.ask(now, |controller| question(controller, now));
        self.drain_process();
        answer
    }

    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.process().events.iter().map(|(_, event)| event)
    }

    /// The number of messages of one type that a switch has received.
    pub fn heard(&self, id: SwitchId, type_byte: u8) -> u64 {
        self.switches[id.0]
            .heard
            .get(&type_byte)
            .copied()
            .unwrap_or(0)
    }

    pub fn errors(&self) -> impl Iterator<Item = openflow::ErrorKind> + '_ {
        self.switches
            .iter()
            .flat_map(|node| node.errors.iter().copied())
    }

    /// The location at which a host is plugged in.
    pub fn place(&self, id: HostId) -> Location {
        match self.hosts[id.0].1 {
            End::Switch(switch, port) => self.location(switch, port),
            _ => unreachable!("a host is at a switch"),
        }
    }

    pub fn location(&self, id: SwitchId, port: PortNo) -> Location {
        let dpid = self.switches[id.0].switch.features().datapath_id;
        Location { dpid, port }
    }

    pub fn connection(&self, id: SwitchId) -> Option<ConnectionId> {
        self.switches[id.0].connection
    }

    pub fn ping(&mut self, from: HostId, to: HostId, seq: u16) {
        let ip = self.hosts[to.0].0.address.ip;
        let frames = self.hosts[from.0].0.ping(ip, seq);
        self.send_from_host(from, frames);
    }

    /// Sends `count` datagrams, one each `interval`. The numbers in their payloads count up from
    /// `first`.
    pub fn stream(&mut self, from: HostId, to: HostId, first: u64, count: u64, interval: Duration) {
        for n in 0..count {
            let number = first + n;
            self.after(
                interval * n as u32,
                Happening::Datagram { from, to, number },
            );
        }
    }

    /// Pings an address, whichever host has it.
    pub fn ping_address(&mut self, from: HostId, to: Ipv4Addr, seq: u16) {
        let frames = self.hosts[from.0].0.ping(to, seq);
        self.send_from_host(from, frames);
    }

    /// Sends any bytes from a host's end of its cable.
    pub fn inject(&mut self, from: HostId, frame: Vec<u8>) {
        self.carry(End::Host(from), frame.into(), Trail::new());
    }

    /// Keeps the frames that a cable carries from now on, and forgets earlier frames.
    pub fn tap(&mut self, id: LinkId) {
        self.links[id.0].tap = Some(Vec::new());
    }

    /// The frames received at a switch's end of a tapped cable, and the frames sent there.
    pub fn tapped(&self, id: LinkId, at: Location) -> [Vec<Bytes>; 2] {
        let is_out = |from: &End| match from {
            End::Switch(switch, port) => self.location(*switch, *port) == at,
            End::Host(_) | End::Nowhere => false,
        };
        let frames = self.links[id.0].tap.iter().flatten();
        let of = |wanted: bool| {
            let some = frames.clone().filter(|(from, _)| is_out(from) == wanted);
            some.map(|(_, data)| data.clone()).collect()
        };
        [of(false), of(true)]
    }

    /// Delivers any bytes to a switch's port.
    pub fn inject_at(&mut self, switch: SwitchId, port: PortNo, frame: Vec<u8>) {
        let to = End::Switch(switch, port);
        self.after(
            Duration::ZERO,
            Happening::Packet {
                to,
                data: frame.into(),
                trail: Trail::new(),
            },
        );
    }

    /// Changes a switch's tables on behalf of someone other than the controller.
    pub fn apply(&mut self, switch: SwitchId, message: &Message) {
        let applied = self.switches[switch.0].switch.apply(self.now, message);
        let reports = applied.unwrap_or_else(|error| panic!("{message:?}: {error}"));
        for report in reports {
            self.say(switch, Xid(0), &report);
        }
        self.revalidate_later(switch);
    }

    /// Plugs a cable in or unplugs it; both ports notice.
    pub fn set_link(&mut self, id: LinkId, up: bool) {
        self.links[id.0].up = up;
        for end in self.links[id.0].ends {
            if let End::Switch(switch, port) = end
                && let Some(status) = self.switches[switch.0].switch.set_link(port, up)
            {
                self.say(switch, Xid(0), &status);
            }
        }
    }

    /// Sets whether a cable carries nothing while both ports stay up.
    pub fn set_dark(&mut self, id: LinkId, dark: bool) {
        self.links[id.0].dark = dark;
    }

    /// Sets whether a cable is live. A cable that is not live carries nothing, and its switches
    /// notice, as with BFD between them.
    pub fn set_live(&mut self, id: LinkId, live: bool) {
        self.set_dark(id, !live);
        for end in self.links[id.0].ends {
            let End::Switch(switch, number) = end else {
                continue;
            };
            let node = &mut self.switches[switch.0].switch;
            let port = node.ports().find(|port| port.port_no == number);
            if let Some(mut port) = port.cloned() {
                let others = port.state.0 & !PortState::LIVE.0;
                port.state = PortState(others | if live { PortState::LIVE.0 } else { 0 });
                let status = node.set_port(self.now, port);
                self.say(switch, Xid(0), &status);
            }
        }
    }

    /// Sets the delay of this cable in one direction.
    pub fn set_delay(&mut self, id: LinkId, delay: Duration) {
        self.links[id.0].delay = Some(delay);
    }

    /// Sets the loss of this cable, in millionths, in either direction.
    pub fn set_loss(&mut self, id: LinkId, ppm: u32) {
        self.links[id.0].loss_ppm = ppm;
    }

    /// Sets the length of the longest frame that this cable carries.
    pub fn set_longest(&mut self, id: LinkId, bytes: usize) {
        self.links[id.0].longest = bytes;
    }

    /// Sets the loss of LLDP frames on all cables, in millionths.
    pub fn set_lldp_loss(&mut self, ppm: u32) {
        self.lldp_loss_ppm = ppm;
    }

    /// Sets how much longer messages to one switch take than messages to others. Set it before the
    /// switch connects.
    pub fn set_away(&mut self, switch: SwitchId, delay: Duration) {
        self.switches[switch.0].away = delay;
    }

    /// Sets the delay of all control channels in one direction, for messages sent from now on. They
    /// do not overtake earlier messages.
    pub fn set_control_delay(&mut self, delay: Duration) {
        self.control_busy_until = self.now + self.control_delay();
        self.config.control_delay = delay;
    }

    fn control_delay(&self) -> Duration {
        let busy = self.control_busy_until.since(self.now);
        self.config.control_delay.max(busy)
    }

    /// Stops a process: it receives and sends nothing until it is continued.
    pub fn stop(&mut self, part: Part) {
        self.stopped.insert(part);
    }

    /// Continues a process: the events that wait for it happen at once, in their order. The
    /// controller checks its deadlines first, which is the worst it can do.
    pub fn cont(&mut self, part: Part) {
        self.stopped.remove(&part);
        if part == Part::Controller
            && let Some(process) = &mut self.process
        {
            self.process_due = None;
            process.handle_timeout(self.now);
            self.drain_process();
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (ready, rest): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(|(of, _)| *of == part);
        self.waiting = rest;
        for (_, happening) in ready {
            self.after(Duration::ZERO, happening);
        }
    }

    /// Returns the stopped process that this event would have to reach.
    fn stopped_by(&self, happening: &Happening) -> Option<Part> {
        let relay = |connection: &ConnectionId| {
            let mut nodes = self.switches.iter();
            let at = nodes.position(|node| node.connection == Some(*connection));
            at.map(|at| Part::Relay(SwitchId(at)))
        };
        let parts = match happening {
            Happening::ToController { connection, .. } => {
                [relay(connection), Some(Part::Controller)]
            }
            Happening::ProcessTimer => [None, Some(Part::Controller)],
            Happening::ToSwitch { switch, .. } => {
                [Some(Part::Relay(*switch)), Some(Part::Switch(*switch))]
            }
            Happening::Packet {
                to: End::Switch(switch, _),
                ..
            }
            | Happening::Revalidate { switch }
            | Happening::Closed { switch, .. }
            | Happening::SwitchTimer { switch }
            | Happening::HoldTimer { switch } => [None, Some(Part::Switch(*switch))],
            Happening::Connect { switch } => [Some(Part::Switch(*switch)), Some(Part::Controller)],
            Happening::Packet { .. } | Happening::Datagram { .. } => [None, None],
        };
        let mut parts = parts.into_iter().flatten();
        parts.find(|part| self.stopped.contains(part))
    }

    fn wait(&mut self, part: Part, happening: Happening) {
        if let Happening::Packet { .. } = happening {
            let is_packet = |(of, waiting): &&(Part, Happening)| {
                *of == part && matches!(waiting, Happening::Packet { .. })
            };
            if self.waiting.iter().filter(is_packet).count() >= WAITING_PACKETS_MAX {
                return;
            }
        }
        self.waiting.push_back((part, happening));
    }

    /// Drains parts of the network: they carry no traffic that has another path.
    pub fn set_drained(&mut self, drained: Drained) {
        if let Some(process) = &mut self.process {
            process.controller.set_drained(self.now, drained);
        }
        self.drain_process();
    }

    /// The ports of a cable between switches.
    pub fn link_ends(&self, id: LinkId) -> Vec<Location> {
        let ends = self.links[id.0].ends.iter();
        let at = ends.filter_map(|end| match end {
            End::Switch(switch, port) => Some(self.location(*switch, *port)),
            End::Host(_) | End::Nowhere => None,
        });
        at.collect()
    }

    /// Sets the VLANs of the running process and of later processes.
    pub fn set_vlans(&mut self, vlans: Vlans) {
        self.config.process.controller.vlans = vlans.clone();
        self.tell_controller(|controller, now| controller.set_vlans(now, vlans));
    }

    /// Sets the access lists and bindings of the running process and of later processes. If some
    /// switches cannot hold them, returns these switches and changes nothing.
    pub fn set_access(&mut self, access: Access) -> Result<(), Vec<DatapathId>> {
        let (now, mut answer) = (self.now, Ok(()));
        if let Some(process) = &mut self.process {
            answer = process.controller.set_access(now, access.clone());
        }
        if answer.is_ok() {
            self.config.process.controller.access = access;
        }
        self.drain_process();
        answer
    }

    /// Sets the bonds and the effects of spanning trees for the running process and later
    /// processes.
    pub fn set_bonds(&mut self, bonds: Bonds, bpdus: BTreeMap<Location, Bpdu>) {
        self.config.process.controller.bonds = bonds.clone();
        self.config.process.controller.bpdus = bpdus.clone();
        self.tell_controller(|controller, now| controller.set_bonds(now, bonds, bpdus));
    }

    /// Sets the ports that a crowd of new hosts closes, for the running process and later
    /// processes.
    pub fn set_crowd_guards(&mut self, ports: BTreeSet<Location>) {
        self.config.process.controller.crowd_guards = ports.clone();
        self.tell_controller(|controller, now| controller.set_crowd_guards(now, ports));
    }

    /// Sets the mirrors of the running process and of later processes.
    pub fn set_mirrors(&mut self, mirrors: Mirrors) {
        self.config.process.controller.mirrors = mirrors.clone();
        self.tell_controller(|controller, now| controller.set_mirrors(now, mirrors));
    }

    /// Sets the gateways of the running process and of later processes.
    pub fn set_gateways(&mut self, gateways: Gateways) {
        self.config.process.controller.gateways = gateways.clone();
        self.tell_controller(|controller, now| controller.set_gateways(now, gateways));
    }

    /// Sets the timeouts of the running process.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        if let Some(process) = &mut self.process {
            process.controller.set_timeouts(self.now, timeouts);
        }
        self.drain_process();
    }

    /// Makes a switch answer no barrier from now on.
    pub fn set_mute(&mut self, switch: SwitchId) {
        self.switches[switch.0].is_mute = true;
    }

    /// Sets [`NetworkConfig::activation_delay`] for one switch.
    pub fn set_activation_delay(&mut self, switch: SwitchId, delay: Duration) {
        self.switches[switch.0].cache.set_delay(delay);
    }

    /// Has a host ask for another host's address, and send nothing else.
    pub fn resolve(&mut self, from: HostId, to: HostId) {
        let ip = self.hosts[to.0].0.address.ip;
        let frame = self.hosts[from.0].0.resolve(ip);
        self.send_from_host(from, vec![frame]);
    }

    /// Has a host ask for another host's IPv6 address, if both have one.
    pub fn solicit(&mut self, from: HostId, to: HostId) {
        let ip = self.hosts[to.0].0.ip6;
        let frame = ip.and_then(|ip| self.hosts[from.0].0.solicit(ip));
        self.send_from_host(from, frame.into_iter().collect());
    }

    /// The cable of a host.
    pub fn link_of(&self, host: HostId) -> LinkId {
        match self.hosts[host.0].1 {
            End::Switch(switch, port) => self.switches[switch.0].ends[&port],
            _ => unreachable!("a host is at a switch"),
        }
    }

    /// Plugs a host in at a new port of `to`. The old port goes down if `unplug`.
    pub fn move_host(&mut self, host: HostId, to: SwitchId, unplug: bool) {
        let old = self.link_of(host);
        self.links[old.0].ends[1] = End::Nowhere;
        if unplug {
            self.set_link(old, false);
        }
        let link = LinkId(self.links.len());
        let end = self.new_port(to, link);
        self.links.push(Link::between([end, End::Host(host)]));
        self.hosts[host.0].1 = end;
    }

    /// Runs a command on the controller, as an administrator or the process around it does.
    pub fn tell_controller(&mut self, tell: impl FnOnce(&mut Controller, Instant)) {
        if let Some(process) = &mut self.process {
            tell(&mut process.controller, self.now);
            process.handle_timeout(self.now);
            self.drain_process();
        }
    }

    /// Ends the process; switches continue with the entries they have.
    pub fn kill_controller(&mut self) {
        self.process = None;
        for node in &mut self.switches {
            node.connection = None;
        }
    }

    /// Stops the process. Messages already under way to these switches still arrive, at once.
    pub fn kill_controller_after(&mut self, reached: &[SwitchId]) {
        let is_it = |happening: &Happening| match happening {
            Happening::ToSwitch { switch, .. } => reached.contains(switch),
            _ => false,
        };
        let on_its_way = self.queue.extract_if(.., |_, happening| is_it(happening));
        for (_, happening) in on_its_way.collect::<Vec<_>>() {
            self.handle(happening);
        }
        self.kill_controller();
    }

    /// Starts a new process; the switches connect to it one after the other.
    pub fn start_controller(&mut self, seed: u64) {
        self.process = Some(Process::new(self.config.process.clone(), seed));
        self.process_due = None;
        for at in 0..self.switches.len() {
            let switch = SwitchId(at);
            let wait = self.config.reconnect_delay * (at as u32 + 1);
            self.after(wait, Happening::Connect { switch });
        }
    }

    /// Breaks a switch's channel; the switch reconnects after its delay.
    pub fn disconnect(&mut self, switch: SwitchId) {
        if let Some(connection) = self.switches[switch.0].connection.take() {
            if let Some(process) = &mut self.process {
                process.handle_down(self.now, connection);
            }
            self.after(self.config.reconnect_delay, Happening::Connect { switch });
            self.drain_process();
        }
    }

    /// Sends any message from a switch's agent.
    pub fn say(&mut self, switch: SwitchId, xid: Xid, message: &Message) {
        let node = &self.switches[switch.0];
        let Some(connection) = node.connection else {
            return;
        };
        let frame = encode(node.version, xid, message).expect("a model switch's message");
        match &mut self.switches[switch.0].hold {
            Some(hold) => {
                hold.handle_up(self.now, frame);
                self.drain_hold(switch);
            }
            None => self.say_frame(connection, frame),
        }
    }

    pub fn say_frame(&mut self, connection: ConnectionId, frame: Frame) {
        let delay = self.control_delay();
        self.after(delay, Happening::ToController { connection, frame });
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    pub fn run_until(&mut self, end: Instant) {
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= end
        {
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            self.handle(happening);
        }
        self.now = end;
    }

    /// Runs until switches have received `count` more messages of these types, or until `end`.
    /// Returns whether the count was reached.
    pub fn run_until_heard(&mut self, types: &[u8], count: u64, end: Instant) -> bool {
        let heard = |network: &Network| -> u64 {
            let nodes = network.switches.iter();
            let of = nodes.flat_map(|node| types.iter().filter_map(|t| node.heard.get(t)));
            of.sum()
        };
        let wanted = heard(self) + count;
        while heard(self) < wanted {
            let Some(entry) = self
                .queue
                .first_entry()
                .filter(|entry| entry.key().0 <= end)
            else {
                self.now = end;
                return false;
            };
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            self.handle(happening);
        }
        true
    }

    fn after(&mut self, delay: Duration, happening: Happening) {
        self.queued += 1;
        self.queue
            .insert((self.now + delay, self.queued), happening);
    }

    fn handle(&mut self, happening: Happening) {
        if let Some(part) = self.stopped_by(&happening) {
            return self.wait(part, happening);
        }
        match happening {
            Happening::Packet { to, data, trail } => {
                self.note(1, &data);
                self.handle_packet(to, data, trail);
            }
            Happening::ToController { connection, frame } => {
                self.note(2, frame.bytes());
                if let Some(process) = &mut self.process {
                    process.handle_frame(self.now, connection, frame);
                }
                self.drain_process();
            }
            Happening::ToSwitch {
                connection,
                switch,
                frame,
            } => {
                if self.switches[switch.0].connection == Some(connection) {
                    self.note(3, frame.bytes());
                    match &mut self.switches[switch.0].hold {
                        Some(hold) => {
                            hold.handle_down(self.now, [frame]);
                            self.drain_hold(switch);
                        }
                        None => self.handle_at_switch(switch, &frame),
                    }
                }
            }
            Happening::Revalidate { switch } => {
                let node = &mut self.switches[switch.0];
                node.cache.handle_timeout(self.now, &node.switch);
            }
            Happening::Connect { switch } => self.connect(switch),
            Happening::Closed { connection, switch } => {
                let node = &mut self.switches[switch.0];
                if node.connection == Some(connection) {
                    node.connection = None;
                    self.after(self.config.reconnect_delay, Happening::Connect { switch });
                }
            }
            Happening::ProcessTimer => {
                if self.process_due == Some(self.now)
                    && let Some(process) = &mut self.process
                {
                    self.process_due = None;
                    process.handle_timeout(self.now);
                    self.drain_process();
                }
            }
            Happening::SwitchTimer { switch } => {
                let node = &mut self.switches[switch.0];
                node.due = None;
                for message in node.switch.handle_timeout(self.now) {
                    self.say(switch, Xid(0), &message);
                }
                self.revalidate_later(switch);
                self.watch_switch(switch);
            }
            Happening::HoldTimer { switch } => {
                let node = &mut self.switches[switch.0];
                node.hold_due = None;
                if let Some(hold) = &mut node.hold {
                    hold.handle_timeout(self.now);
                }
                self.drain_hold(switch);
            }
            Happening::Datagram { from, to, number } => {
                let ip = self.hosts[to.0].0.address.ip;
                let frames = self.hosts[from.0].0.datagram(ip, number);
                self.send_from_host(from, frames);
            }
        }
    }

    fn connect(&mut self, switch: SwitchId) {
        if self.process.is_none() || self.switches[switch.0].connection.is_some() {
            return;
        }
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.switches[switch.0].connection = Some(connection);
        if let Some(process) = &mut self.process {
            process.handle_accept(self.now, connection);
        }
        let hello = Hello::offering(&[self.switches[switch.0].version]);
        self.say(switch, Xid(1), &Message::Hello(hello));
        self.drain_process();
    }

    fn drain_process(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        process.drain(self.now);
        let mut outputs = Vec::new();
        while let Some(output) = process.poll_output() {
            outputs.push(output);
        }
        let due = process.poll_timeout();
        let delay = self.control_delay();
        for output in outputs {
            let (ProcessOutput::Send(connection, _) | ProcessOutput::Close(connection)) = &output;
            let connection = *connection;
            let at = self
                .switches
                .iter()
                .position(|n| n.connection == Some(connection));
            let Some(switch) = at.map(SwitchId) else {
                continue;
            };
            let delay = delay + self.switches[switch.0].away;
            match output {
                ProcessOutput::Send(connection, frame) => {
                    self.after(
                        delay,
                        Happening::ToSwitch {
                            connection,
                            switch,
                            frame,
                        },
                    );
                }
                ProcessOutput::Close(connection) => {
                    self.after(delay, Happening::Closed { connection, switch });
                }
            }
        }
        if let Some(due) = due.map(|due| due.max(self.now))
            && self.process_due.is_none_or(|set| due < set)
        {
            self.process_due = Some(due);
            self.after(due - self.now, Happening::ProcessTimer);
        }
    }

    /// Forwards the frames that the relay beside a switch has ready, and sets its next timer.
    fn drain_hold(&mut self, id: SwitchId) {
        let Some(connection) = self.switches[id.0].connection else {
            return;
        };
        while let Some(hold) = &mut self.switches[id.0].hold {
            if let Some(frame) = hold.poll_up() {
                self.say_frame(connection, frame);
            } else if let Some(frame) = hold.poll_down() {
                self.handle_at_switch(id, &frame);
            } else {
                break;
            }
        }
        let node = &mut self.switches[id.0];
        if let Some(due) = node.hold.as_ref().and_then(Hold::poll_timeout)
            && node.hold_due.is_none_or(|set| due < set)
        {
            node.hold_due = Some(due);
            let wait = due.since(self.now);
            self.after(wait, Happening::HoldTimer { switch: id });
        }
    }

    /// Schedules another lookup of the flows of a switch whose table may have changed.
    fn revalidate_later(&mut self, switch: SwitchId) {
        if let Some(delay) = self.switches[switch.0].cache.handle_change(self.now) {
            self.after(delay, Happening::Revalidate { switch });
        }
    }

    fn handle_at_switch(&mut self, id: SwitchId, frame: &Frame) {
        let node = &mut self.switches[id.0];
        if frame.kind() == MessageKind::BarrierRequest && node.is_mute {
            return;
        }
        *node.heard.entry(frame.type_byte()).or_default() += 1;
        let message = decode(frame).expect("the controller sends what can be read");
        let result = match &message {
            Message::PacketOut(m) => match node.switch.packet_out(self.now, m) {
                Ok(outputs) => {
                    self.emit(id, outputs, &Trail::new());
                    Ok(Vec::new())
                }
                Err(kind) => Err(kind),
            },
            Message::Error(_) => Ok(Vec::new()),
            message => node.switch.apply(self.now, message),
        };
        match result {
            Ok(replies) => {
                for reply in replies {
                    let xid = match &reply {
                        Message::FlowRemoved(_) | Message::PortStatus(_) => Xid(0),
                        _ => frame.xid(),
                    };
                    self.say(id, xid, &reply);
                }
            }
            Err(kind) => {
                self.switches[id.0].errors.push(kind);
                let data = frame.bytes().slice(..frame.len().min(64));
                let error = ErrorMessage::new(kind, data);
                self.say(id, frame.xid(), &Message::Error(error));
            }
        }
        if frame.kind() == MessageKind::FlowMod {
            self.revalidate_later(id);
        }
        self.watch_switch(id);
    }

    fn watch_switch(&mut self, switch: SwitchId) {
        let node = &mut self.switches[switch.0];
        if let Some((due, _)) = node.switch.poll_timeout()
            && node.due.is_none_or(|set| due < set)
        {
            node.due = Some(due);
            let delay = due - self.now;
            self.after(delay, Happening::SwitchTimer { switch });
        }
    }

    fn handle_packet(&mut self, to: End, data: Bytes, mut trail: Trail) {
        match to {
            End::Switch(id, port) => {
                self.circled += u64::from(trail.contains(&(id, port)));
                trail.push((id, port));
                let node = &mut self.switches[id.0];
                let outputs = node.cache.process(self.now, &mut node.switch, port, &data);
                self.emit(id, outputs, &trail);
            }
            End::Host(id) => {
                let host = &mut self.hosts[id.0].0;
                let before = host.received;
                let answers = host.handle_frame(&data);
                if host.received > before {
                    host.passed = trail.len();
                }
                self.send_from_host(id, answers);
            }
            End::Nowhere => {}
        }
    }

    fn emit(&mut self, id: SwitchId, outputs: Vec<Output>, trail: &Trail) {
        for output in outputs {
            match output {
                Output::Controller(packet_in) => {
                    self.say(id, Xid(0), &Message::PacketIn(packet_in));
                }
                Output::Port { port, packet, .. } => {
                    self.carry(End::Switch(id, port), packet, trail.clone());
                }
            }
        }
    }

    fn send_from_host(&mut self, id: HostId, frames: Vec<Vec<u8>>) {
        for frame in frames {
            let frame = self.hosts[id.0].0.sent(frame);
            self.carry(End::Host(id), frame.into(), Trail::new());
        }
    }

    fn carry(&mut self, from: End, data: Bytes, trail: Trail) {
        let link = match from {
            End::Switch(id, port) => self.switches[id.0].ends.get(&port).copied(),
            End::Host(id) => Some(self.link_of(id)),
            End::Nowhere => None,
        };
        let Some(link) = link
            .map(|id| &mut self.links[id.0])
            .filter(|l| l.up && !l.dark && data.len() <= l.longest)
        else {
            return;
        };
        if let Some(tap) = &mut link.tap {
            tap.push((from, data.clone()));
        }
        let delay = link.delay;
        let link_loss_ppm = link.loss_ppm;
        let to = if link.ends[0] == from {
            link.ends[1]
        } else {
            link.ends[0]
        };
        self.carried += 1;
        let is_lldp = data.get(12..14) == Some(&[0x88, 0xcc]);
        let lldp_loss_ppm = if is_lldp { self.lldp_loss_ppm } else { 0 };
        for ppm in [self.config.loss_ppm, link_loss_ppm, lldp_loss_ppm] {
            if ppm > 0 && self.random.next() % 1_000_000 < u64::from(ppm) {
                return;
            }
        }
        let delay = delay.unwrap_or(self.config.link_delay);
        self.after(delay, Happening::Packet { to, data, trail });
    }

    /// Adds an event to the trace, eight bytes at a time.
    fn note(&mut self, kind: u8, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        let mut last = [kind; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().copied().chain([last]);
        for word in [self.now.as_nanos()]
            .into_iter()
            .chain(words.map(u64::from_le_bytes))
        {
            self.trace = (self.trace ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(23);
        }
    }
}
