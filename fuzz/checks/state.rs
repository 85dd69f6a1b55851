//! A controller process with its sessions and edges, two honest switches, and two hostile ones that
//! say anything: replies, errors, port changes, entries and statistics of any cookie and match, and
//! connections under any datapath id and version. In between an operator uses the API and time
//! passes.
//!
//! Checks that nothing panics, that every bound holds, that each input leads to a bounded number of
//! messages, and that hostile input changes nothing that the controller knows of the honest
//! switches. In the end the hostile switches leave. Then the honest switches must hold the entries
//! that the controller wants there, their links must be known and their hosts must reach each
//! other.
//!
//! The first two bytes say which controller it is. Then one operation after the other; an input
//! that ends within an operation is as if zeros followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use bytes::Bytes;
use clock::{Duration, Instant};
use control::ConnectionId;
use control::access::{Access, Acl, Rule};
use control::controller::{ControllerConfig, Drained, HostView, LinkView, Location, Mode};
use control::entry::{COOKIE_PREFIX, Entry, EntryKey, EntryKind};
use control::mirror::{Direction, Mirror, Mirrors};
use control::pipeline::Numbering;
use control::qos::flow::Matching;
use control::qos::{
    Circuit, Exceeding, Meter, On, Policy, Proto, Qos, QueuesBy, Rate, Service, Treatment,
};
use control::timeouts::{FirstPackets, HostName, Lease, Lifetime, Paper, Timeouts};
use control::topology::{Place, Topology};
use openflow::hello::Hello;
use openflow::message::{
    ErrorMessage, FlowModFlags, FlowRemoved, FlowRemovedReason, MultipartReply, PacketIn,
    PacketInReason, Port, PortConfig, PortReason, PortState, PortStatus, SwitchFeatures,
};
use openflow::multipart::{
    FlowStats, FlowStatsRequest, MeterFeatures, ReplyBody, RequestBody, TableStats, TableStatsV10,
};
use openflow::packet::build::{self, Host as Address};
use openflow::table::{Output, Switch, SwitchOptions, plain_port};
use openflow::{
    Action, BufferId, Cookie, DatapathId, ErrorKind, Field, Frame, Instruction, MacAddr, Match,
    Message, MessageKind, PortNo, TableId, Version, Xid, decode, encode,
};
use sched::PolicyMap;
use sim::host::Host;
use sim::process::{Process, ProcessConfig, ProcessOutput};

/// The most messages, packets and deadlines that an operation may lead to.
const CONSEQUENCES_MAX: usize = 60_000;
/// Requests that a hostile switch remembers, to answer them later.
const REQUESTS_KEPT: usize = 8;

const HOST_COUNT_MAX: usize = 48;
const PATH_COUNT_MAX: usize = 64;
const SWITCH_COUNT_MAX: usize = 5;
/// The number of entries that a switch's table holds.
const ENTRIES_MAX: usize = 400;
const PORT_COUNT_MAX: usize = 4096;
/// A few for each pair of hosts.
const ENTRY_COUNT_MAX: usize = 4096;
const HELD_MAX: usize = 4096;
const REQUESTS_MAX: usize = 4 * 4096;
const TIMERS_MAX: usize = 6 * PORT_COUNT_MAX;

/// Honest switch and port of each host.
const PLACES: [(usize, u32); 3] = [(0, 1), (0, 2), (1, 1)];

const HONEST: [usize; 2] = [0, 1];
const HOSTILE: [usize; 2] = [2, 3];

pub fn check(data: &[u8]) {
    if let Err(why) = run(data) {
        panic!("{why}");
    }
}

/// Carries the operations out. How many there were, or what is wrong.
pub fn run(data: &[u8]) -> Result<u64, String> {
    let mut input = Input(data);
    let mut world = World::new(&mut input);
    world.start()?;
    let mut count = 0;
    while !input.0.is_empty() {
        let op = input.u8();
        world.operation(op, &mut input)?;
        world.bounds()?;
        count += 1;
    }
    world.finish()?;
    Ok(count)
}

/// Bytes, and zeros after them.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.u8()) % from.len()]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u8()).collect()
    }

    /// A hardware address of an honest host, of a hostile one, or of none.
    fn mac(&mut self) -> MacAddr {
        match self.u8() % 16 {
            n @ 0..=9 => MacAddr([2, 0, 0, 0, 0, n + 1]),
            10 => MacAddr([0; 6]),
            11 => MacAddr::BROADCAST,
            12 => MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]),
            13 => MacAddr([0x33, 0x33, 0, 0, 0, 1]),
            _ => MacAddr([2, 0, 0, 0, 7, self.u8()]),
        }
    }

    fn port(&mut self) -> PortNo {
        const NUMBERS: [PortNo; 8] = [
            PortNo(0),
            PortNo(0x1_0001),
            PortNo(0x1_0001),
            PortNo::MAX,
            PortNo::IN_PORT,
            PortNo::CONTROLLER,
            PortNo::LOCAL,
            PortNo::ANY,
        ];
        match self.u8() % 16 {
            n @ 0..=5 => PortNo(u32::from(n) + 1),
            n @ 6..=13 => NUMBERS[usize::from(n) - 6],
            _ => PortNo(self.u32()),
        }
    }

    fn cookie(&mut self) -> Cookie {
        match self.u8() % 8 {
            0 => Cookie(u64::from(self.u32()) << 32 | u64::from(self.u32())),
            1 => Cookie(COOKIE_PREFIX.0 | u64::from(self.u32())),
            _ => {
                let kind = u64::from(self.u8() % 12);
                Cookie(COOKIE_PREFIX.0 | u64::from(self.u8()) << 16 | kind << 8)
            }
        }
    }

    fn priority(&mut self) -> u16 {
        match self.u8() % 8 {
            0 => self.u16(),
            1 => 3000 - u16::from(self.u8()) * 2,
            n => [2000, 1999, 1500, 1000, 500, 0xffff][usize::from(n) - 2],
        }
    }

    /// The shape that entries of ours have as a rule, or any.
    fn r#match(&mut self) -> Match {
        let mut m = Match::any();
        let fields = self.u8();
        if fields & 1 == 0 {
            m = m.with_in_port(self.port());
        }
        if fields & 2 == 0 {
            m = m.with_eth_dst(self.mac());
        }
        if fields & 4 == 0 {
            m = m.with_eth_src(self.mac());
        }
        if fields & 8 == 8 {
            m = m.with(
                Field::EthType,
                self.pick(&[0x0800u16, 0x0806, 0x86dd, 0x88cc]),
            );
        }
        if fields & 0x18 == 0x18 {
            let proto = self.pick(&[1u8, 6, 17, 58, 132, 50]);
            m = m.with(Field::IpProto, proto);
            let ports = match proto {
                1 => Some((Field::Icmpv4Type, Field::Icmpv4Code)),
                6 => Some((Field::TcpSrc, Field::TcpDst)),
                17 => Some((Field::UdpSrc, Field::UdpDst)),
                _ => None,
            };
            if let Some((src, dst)) = ports {
                let value = |n: u8| u128::from(n);
                m = m.with(src, value(self.u8())).with(dst, value(self.u8()));
            }
        }
        if fields & 0xe0 == 0xe0 {
            m = m.with_masked(Field::EthDst, self.u16(), self.u16());
        }
        m
    }

    fn instructions(&mut self) -> Vec<Instruction> {
        let action = |input: &mut Self| match input.u8() % 8 {
            0 => Action::controller(),
            1 => Action::Output {
                port: PortNo::CONTROLLER,
                max_len: input.u16(),
            },
            _ => Action::output(input.port()),
        };
        let count = [1, 1, 1, 1, 0, 2][usize::from(self.u8() % 6)];
        let actions: Vec<Action> = (0..count).map(|_| action(self)).collect();
        match self.u8() % 8 {
            0 => Vec::new(),
            1 => vec![
                Instruction::WriteActions(actions),
                Instruction::GotoTable(TableId(self.u8() % 4)),
            ],
            2 => vec![Instruction::WriteActions(actions)],
            _ => vec![Instruction::ApplyActions(actions)],
        }
    }

    /// A row of flow statistics in the shape of our entries, or in any shape.
    fn row(&mut self) -> FlowStats {
        let mut row = self.any_row();
        if self.flag() {
            let (kind, priority) = [
                (2, 2000),
                (2, 1999),
                (3, 1000),
                (4, 2000),
                (5, 2000),
                (6, 500),
                (7, 1500),
                (8, 3000),
                (9, 2999),
            ][usize::from(self.u8() % 9)];
            let port = |input: &mut Self| PortNo(u32::from(input.u8() % 6) + 1);
            let mut m = Match::any().with_eth_dst(self.mac());
            if kind != 3 && kind != 6 {
                m = m.with_in_port(port(self));
            }
            if ![3, 6, 7].contains(&kind) {
                m = m.with_eth_src(self.mac());
            }
            if kind > 7 {
                m = m.with(Field::EthType, 0x0800u16).with(Field::IpProto, 17u8);
            }
            let mut actions = vec![Action::output(port(self))];
            if kind == 6 {
                actions.push(Action::Output {
                    port: PortNo::CONTROLLER,
                    max_len: 128,
                });
            }
            row = FlowStats {
                table_id: TableId(0),
                priority,
                cookie: Cookie(COOKIE_PREFIX.0 | kind << 8),
                r#match: m,
                instructions: vec![Instruction::ApplyActions(actions)],
                ..row
            };
        }
        row
    }

    fn any_row(&mut self) -> FlowStats {
        FlowStats {
            table_id: TableId(self.pick(&[0, 0, 0, 1, 255])),
            duration_sec: self.u8().into(),
            duration_nsec: 0,
            priority: self.priority(),
            idle_timeout: self.pick(&[0, 1, 60, 0xffff]),
            hard_timeout: self.pick(&[0, 1, 60, 0xffff]),
            flags: match self.flag() {
                true => FlowModFlags::SEND_FLOW_REM,
                false => FlowModFlags::empty(),
            },
            cookie: self.cookie(),
            packet_count: self.pick(&[0, 1, u64::MAX]),
            byte_count: self.pick(&[0, 1, u64::MAX]),
            r#match: self.r#match(),
            instructions: self.instructions(),
            importance: 0,
            stats: Vec::new(),
        }
    }

    fn reply(&mut self) -> ReplyBody {
        match self.u8() % 8 {
            0 => {
                let table = |input: &mut Self| TableStats {
                    table_id: TableId(input.u8()),
                    active_count: input.u32(),
                    lookup_count: 0,
                    matched_count: 0,
                    v10: input.flag().then(|| TableStatsV10 {
                        name: Bytes::new(),
                        wildcards: 0,
                        max_entries: input.u32(),
                        features: Bytes::new(),
                    }),
                };
                ReplyBody::Table((0..self.u8() % 3).map(|_| table(self)).collect())
            }
            1 => ReplyBody::MeterFeatures(MeterFeatures {
                max_meter: self.u32(),
                band_types: self.u32(),
                capabilities: self.u32(),
                max_bands: self.u8(),
                max_color: self.u8(),
                features: None,
            }),
            2 => ReplyBody::PortDesc((0..self.u8() % 3).map(|_| any_port(self)).collect()),
            3 => ReplyBody::Other {
                kind: self.u16(),
                body: Bytes::from(self.bytes(8)),
            },
            _ => ReplyBody::Flow((0..self.u8() % 5).map(|_| self.row()).collect()),
        }
    }

    /// A packet that a host could send, or none.
    fn packet(&mut self) -> Vec<u8> {
        let host = |input: &mut Self| {
            let (mac, ip) = (input.mac(), [10, 0, 0, input.u8() % 16]);
            Address { mac, ip: ip.into() }
        };
        let (from, to) = (host(self), host(self));
        match self.u8() % 8 {
            0 => build::arp_request(from, to.ip),
            1 => {
                let [from, to] = [from, to].map(|host| (host.mac, host.ip.to_ipv6_mapped()));
                match self.u8() % 4 {
                    0 => build::neighbour_advertisement(from, self.flag()),
                    1 => build::neighbour_answer(from, to, self.flag()),
                    _ => build::neighbour_solicitation(from, to.1),
                }
            }
            2 => build::arp_reply(from, to),
            3 => build::udp(from, to, (self.u16(), self.u16()), &[0; 8]),
            4 => build::tcp_syn(from, to, (self.u16(), self.u16())),
            5 => build::tagged(&build::arp_request(from, to.ip), self.u16() & 0xfff, 0),
            6 => build::ethernet(from.mac, to.mac, self.u16(), &self.bytes(4)),
            _ => {
                let len = usize::from(self.u8() % 64);
                self.bytes(len)
            }
        }
    }

    fn timeouts(&mut self) -> Timeouts {
        let (a, b) = (u16::from(self.u8()), u16::from(self.u8()));
        Timeouts {
            default: match self.u8() % 4 {
                0 => Lifetime::Paper(Paper {
                    base_s: a.max(1),
                    raised_s: a.max(1) + b,
                    cpu_percent: 50,
                    idle_s: b.max(1),
                }),
                1 => Lifetime::Lease(Lease {
                    idle_max_s: a.max(2),
                    idle_min_s: 1,
                    lease_s: Some(a.max(10)),
                    lease_max_s: a.max(10) + b,
                    renewals_max: 100,
                }),
                _ => Lifetime::Fixed {
                    idle_s: a,
                    hard_s: b,
                },
            },
            first_packets: self.pick(&[
                FirstPackets::Controller,
                FirstPackets::PreInstall,
                FirstPackets::Report,
            ]),
            table_entries_max: self.flag().then(|| u32::from(self.u8()) + 1),
            ..Timeouts::fixed(60, 0)
        }
    }

    fn location(&mut self) -> Location {
        Location::new(DatapathId(u64::from(self.u8() % 5) + 1), self.port())
    }

    fn host_name(&mut self) -> HostName {
        match self.flag() {
            true => HostName::Mac(self.mac()),
            false => HostName::Ip(IpAddr::from([10, 0, 0, self.u8() % 6])),
        }
    }

    fn qos(&mut self) -> Qos {
        let service = Service {
            name: "s".to_owned(),
            proto: self.pick(&[None, Some(Proto::Udp), Some(Proto::Tcp), Some(Proto::Icmp)]),
            ..Service::default()
        };
        let policy = |input: &mut Self, n: u8| Policy {
            name: format!("p{n}"),
            service: "s".to_owned(),
            priority: u16::from(input.u8()),
            treatment: match input.u8() % 3 {
                0 => Treatment {
                    drop: true,
                    ..Treatment::default()
                },
                1 => Treatment {
                    mark: Some(input.u8() % 64),
                    ..Treatment::default()
                },
                _ => Treatment {
                    meter: Some(Meter {
                        rate: Rate::mbit(1 + u64::from(input.u8())),
                        burst_bytes: None,
                        exceeding: Exceeding::Drop,
                    }),
                    ..Treatment::default()
                },
            },
            on: match input.u8() % 4 {
                0 => On::Everywhere,
                1 => On::Ports([input.location()].into()),
                2 => On::Switches([input.location().dpid].into()),
                _ => On::Path {
                    from: input.host_name(),
                    to: input.host_name(),
                },
            },
        };
        let circuit = |input: &mut Self, n: u8| Circuit {
            name: format!("c{n}"),
            from: input.host_name(),
            to: input.host_name(),
            service: None,
            rate: Some(Rate::mbit(1 + u64::from(input.u8()))),
            queue: None,
            priority: u16::from(input.u8()),
            dscp: None,
            admission: input.flag(),
            both: input.flag(),
        };
        Qos {
            services: vec![service],
            policies: (0..self.u8() % 3).map(|n| policy(self, n)).collect(),
            circuits: (0..self.u8() % 3).map(|n| circuit(self, n)).collect(),
            ..Qos::default()
        }
    }
}

fn any_port(input: &mut Input<'_>) -> Port {
    let bits = input.u8();
    Port {
        hw_addr: input.mac(),
        config: PortConfig(u32::from(bits & 7 == 7)),
        state: PortState(u32::from(bits >> 3 & 3)),
        ..plain_port(input.port())
    }
}

/// The requests that a hostile switch answers by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    All,
    NoBarrier,
    NoStatistics,
    None,
}

struct Peer {
    switch: Switch,
    version: Version,
    connection: Option<ConnectionId>,
    answers: Answers,
    /// The latest, oldest first.
    requests: VecDeque<Xid>,
    cables: BTreeMap<PortNo, End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Port(usize, PortNo),
    Host(usize),
}

enum Consequence {
    ToProcess(ConnectionId, Frame),
    ToPeer(ConnectionId, Frame),
    Packet(End, Bytes),
}

struct World {
    now: Instant,
    process: Process,
    peers: Vec<Peer>,
    hosts: Vec<Host>,
    connections: u64,
    waiting: VecDeque<Consequence>,
    /// Entries that have ended by their timeouts without a message to the controller.
    ended: BTreeSet<(usize, EntryKey)>,
    /// LLDP frames that hostile switches were ordered to send.
    lldp: Vec<Bytes>,
    /// The numbers of the honest switches' tables.
    access: Numbering,
}

/// Access lists that let everything pass but a DHCP server's answers.
fn guarded() -> Access {
    let all = Rule {
        name: String::new(),
        matching: Matching::any(),
        allows: true,
        mirror: None,
    };
    let port =
        |(peer, port): (usize, u32)| Location::new(DatapathId(peer as u64 + 1), PortNo(port));
    Access {
        acls: vec![Acl {
            name: "all".to_owned(),
            rules: vec![all],
        }],
        ports: PLACES.map(|place| (port(place), vec![0])).into(),
        dhcp_servers: Some(BTreeSet::new()),
        ..Access::default()
    }
}

/// Mirrors of the hostile switches, whose entries are read for copies.
fn mirrored() -> Mirrors {
    Mirrors::new(HOSTILE.map(|peer| Mirror {
        name: "watch".to_owned(),
        dpid: DatapathId(peer as u64 + 1),
        from: [PortNo(1), PortNo(3)].into(),
        direction: Direction::Both,
        to: PortNo(2),
    }))
}

/// The controller's knowledge of the honest switches.
#[derive(Debug, PartialEq)]
struct Known {
    switches: Vec<(DatapathId, Option<ConnectionId>, Version, usize, Instant)>,
    links: Vec<LinkView>,
    hosts: Vec<(MacAddr, Location)>,
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let (a, b) = (input.u8(), input.u8());
        let mut controller = ControllerConfig {
            mode: [Mode::Reactive, Mode::Proactive, Mode::Hybrid][usize::from(a % 3)],
            switch_count_max: SWITCH_COUNT_MAX,
            host_count_max: HOST_COUNT_MAX,
            hosts_per_port_max: 16,
            path_count_max: PATH_COUNT_MAX,
            policy: (a & 0x80 != 0).then(PolicyMap::auster),
            ..ControllerConfig::default()
        };
        if a & 0x40 != 0 {
            controller.requests.waiting_max = 8;
            controller.requests.reply_parts_max = 3;
        }
        let access = match b & 2 != 0 && a >> 3 & 3 == 0 {
            true => Numbering::Access,
            false => Numbering::Plain,
        };
        if access == Numbering::Access {
            controller.access = guarded();
            controller.mirrors = mirrored();
        }
        if b & 1 == 1 {
            controller.timeouts = Timeouts::fixed(u16::from(b >> 4), 0);
        }
        let config = ProcessConfig {
            controller,
            ..ProcessConfig::default()
        };
        let peer = |n: usize| {
            let version = match a >> 3 & 1 << n {
                0 => Version::V13,
                _ => Version::V10,
            };
            let mut peer = Peer {
                switch: new_switch(DatapathId(n as u64 + 1), version),
                version,
                connection: None,
                answers: Answers::All,
                requests: VecDeque::new(),
                cables: BTreeMap::new(),
            };
            for port in 1..=4 {
                let _ = peer
                    .switch
                    .set_port(Instant::START, plain_port(PortNo(port)));
            }
            peer
        };
        let mut world = World {
            now: Instant::START,
            process: Process::new(config, u64::from(b)),
            peers: (0..4).map(peer).collect(),
            hosts: (1..=3).map(Host::numbered).collect(),
            connections: 0,
            waiting: VecDeque::new(),
            ended: BTreeSet::new(),
            lldp: Vec::new(),
            access,
        };
        let port = |peer: usize, port: u32| End::Port(peer, PortNo(port));
        for (a, b) in [
            (port(0, 1), End::Host(0)),
            (port(0, 2), End::Host(1)),
            (port(1, 1), End::Host(2)),
            (port(0, 3), port(1, 3)),
            (port(0, 4), port(1, 4)),
            (port(2, 3), port(3, 3)),
        ] {
            for (from, to) in [(a, b), (b, a)] {
                if let End::Port(peer, number) = from {
                    world.peers[peer].cables.insert(number, to);
                }
            }
        }
        world
    }

    fn start(&mut self) -> Result<(), String> {
        for peer in 0..self.peers.len() {
            self.connect(peer);
            self.settle()?;
        }
        self.pass(Duration::from_secs(3))?;
        for host in 0..self.hosts.len() {
            self.ping(host, (host + 1) % 3, 0);
            self.settle()?;
        }
        self.pass(Duration::from_secs(1))?;
        self.agrees("at the start")
    }

    fn operation(&mut self, op: u8, input: &mut Input<'_>) -> Result<(), String> {
        match op % 32 {
            0..=3 => {
                let times = [0, 1, 10, 100, 250, 600, 1000, 2000, 5000];
                let time = Duration::from_millis(input.pick(&times));
                self.pass(time)
            }
            4 => {
                let (from, to) = (input.u8() % 3, input.u8() % 3);
                self.ping(from.into(), to.into(), input.u16() | 1);
                self.settle()
            }
            5 => self.disturb_honest(input),
            6..=8 => self.operate(input),
            _ => {
                let known = self.known();
                let peer = input.pick(&HOSTILE);
                self.attack(op % 32, peer, input);
                self.settle()?;
                match self.known() {
                    now if self.is_kept(&known, &now) => Ok(()),
                    now => Err(format!("hostile input changed {known:?} to {now:?}")),
                }
            }
        }
    }

    /// Disturbs an honest switch.
    fn disturb_honest(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        let peer = input.pick(&HONEST);
        match input.u8() % 4 {
            0 => {
                self.hang_up(peer);
                self.connect(peer);
            }
            1 => {
                let (port, up) = (PortNo(u32::from(input.u8() % 4) + 1), input.flag());
                self.set_link(peer, port, up);
            }
            2 => {
                self.set_link(0, PortNo(3), false);
                self.settle()?;
                self.set_link(0, PortNo(3), true);
            }
            _ => {
                let from = input.pick(&[1, 2]);
                let packet = input.packet();
                self.receive(End::Port(peer, PortNo(from)), packet.into());
            }
        }
        self.settle()
    }

    /// Runs a request of an operator.
    fn operate(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        let now = self.now;
        let what = input.u8() % 12;
        self.process.ask(now, |controller| match what {
            0 => controller.set_drained(
                now,
                Drained {
                    switches: (0..input.u8() % 2).map(|_| input.location().dpid).collect(),
                    links: (0..input.u8() % 3).map(|_| input.location()).collect(),
                    wait: Duration::from_secs(u64::from(input.u8() % 3)),
                },
            ),
            1 => controller.set_timeouts(now, input.timeouts()),
            2 => {
                let links = [(input.location(), input.location())];
                let ip = Some(IpAddr::from([10, 0, 0, input.u8() % 6]));
                let hosts = [(
                    input.mac(),
                    Place {
                        at: input.location(),
                        ip,
                    },
                )];
                let topology = Topology::new([], &links[..usize::from(input.u8() % 2)], &hosts);
                let _ = controller.set_topology(now, topology.ok());
            }
            3 => controller.set_policy(&match input.flag() {
                true => PolicyMap::auster(),
                false => PolicyMap::paper(),
            }),
            4 | 5 => drop(controller.set_qos(now, input.qos())),
            6 => drop(controller.set_qos(now, Qos::default())),
            7 => {
                let dpid = input.location().dpid;
                let body = match input.u8() % 4 {
                    0 => RequestBody::Flow(FlowStatsRequest::all()),
                    1 => RequestBody::Table,
                    2 => RequestBody::MeterFeatures,
                    _ => RequestBody::PortStats(PortNo::ANY),
                };
                if let Ok(id) = controller.ask_switch(now, dpid, body)
                    && input.flag()
                {
                    controller.drop_question(id);
                }
            }
            8 => {
                let (dpid, limit) = (input.location().dpid, u32::from(input.u8()));
                controller.set_table_limit(now, dpid, (limit > 9).then_some(limit));
            }
            9 => {
                let by = input.pick(&[QueuesBy::SetQueue, QueuesBy::CodePoint, QueuesBy::Nobody]);
                let rates = BTreeMap::from([(input.port(), Rate::mbit(100))]);
                controller.set_queues_by(now, input.location().dpid, by, rates);
            }
            10 => controller.handle_load(now, f64::from(input.u8())),
            _ => {
                controller.read_qos_counts(now);
                let _ = (controller.qos_report(), controller.verify_report(now, now));
                let _ = (
                    controller.wanted_queues(),
                    controller.topology_differences(),
                );
                let _ = (controller.timeouts_view(), controller.qos_network());
            }
        });
        self.settle()
    }

    /// Runs an attack of a hostile switch.
    fn attack(&mut self, op: u8, peer: usize, input: &mut Input<'_>) {
        match op {
            9 => {
                let bits = input.u8();
                let dpid = match bits & 7 {
                    // The same switch, by another version.
                    0 | 7 => self.peers[peer].switch.features().datapath_id,
                    n => DatapathId(n.into()),
                };
                let version = match bits & 8 {
                    0 => Version::V13,
                    _ => Version::V10,
                };
                self.hang_up(peer);
                self.become_switch(peer, dpid, version);
                self.connect(peer);
            }
            10 => self.hang_up(peer),
            11 => self.connect(peer),
            12 => {
                let answers = [
                    Answers::All,
                    Answers::NoBarrier,
                    Answers::NoStatistics,
                    Answers::None,
                ];
                self.peers[peer].answers = input.pick(&answers);
            }
            13 | 14 => {
                let (reason, port) = (PortReason(input.u8() % 4), any_port(input));
                // It is there when the switch connects again.
                if reason != PortReason::DELETE && self.peers[peer].switch.ports().count() < 64 {
                    let _ = self.peers[peer].switch.set_port(self.now, port.clone());
                }
                self.say(
                    peer,
                    Xid(0),
                    &Message::PortStatus(PortStatus { reason, port }),
                );
            }
            15 => {
                let (first, count) = (u32::from(input.u16()), 1u32 << (input.u8() % 13));
                for number in 0..count {
                    let (reason, port) = (PortReason::ADD, plain_port(PortNo(first + number)));
                    self.say(
                        peer,
                        Xid(0),
                        &Message::PortStatus(PortStatus { reason, port }),
                    );
                }
            }
            16..=18 => {
                let (in_port, packet) = (self.port_of(peer, input), input.packet());
                self.packet_in(peer, in_port, packet.into(), input);
            }
            19 => {
                let frame = match self.lldp.len() {
                    0 => return,
                    len => self.lldp[usize::from(input.u8()) % len].clone(),
                };
                let mut frame = frame.to_vec();
                if input.flag() {
                    let at = usize::from(input.u8()) % frame.len();
                    frame[at] ^= input.u8();
                }
                let in_port = self.port_of(peer, input);
                self.packet_in(peer, in_port, frame.into(), input);
            }
            20 => {
                let row = input.row();
                let removed = FlowRemoved {
                    cookie: row.cookie,
                    priority: row.priority,
                    reason: FlowRemovedReason(input.u8() % 5),
                    table_id: row.table_id,
                    duration_sec: input.u32(),
                    duration_nsec: 0,
                    idle_timeout: row.idle_timeout,
                    hard_timeout: row.hard_timeout,
                    packet_count: row.packet_count,
                    byte_count: row.byte_count,
                    r#match: row.r#match,
                    stats: Vec::new(),
                };
                self.say(peer, Xid(0), &Message::FlowRemoved(removed));
            }
            21..=23 => {
                let (xid, more) = (self.xid(peer, input), input.u8().is_multiple_of(8));
                let body = input.reply();
                self.say(
                    peer,
                    xid,
                    &Message::MultipartReply(MultipartReply { more, body }),
                );
            }
            24 | 25 => {
                let xid = self.xid(peer, input);
                let kind = ErrorKind {
                    ty: u16::from(input.u8() % 16),
                    code: u16::from(input.u8() % 16),
                };
                let data = Bytes::from(input.bytes(4));
                let error = ErrorMessage::new(kind, data);
                self.say(peer, xid, &Message::Error(error));
            }
            26 => {
                let xid = self.xid(peer, input);
                self.say(peer, xid, &Message::BarrierReply);
            }
            27 | 28 => {
                // Somebody else sets an entry in it.
                let row = input.row();
                let flow_mod = openflow::message::FlowMod {
                    cookie: row.cookie,
                    table_id: row.table_id,
                    idle_timeout: row.idle_timeout,
                    hard_timeout: row.hard_timeout,
                    instructions: row.instructions,
                    ..openflow::message::FlowMod::add(row.priority, row.r#match, Vec::new())
                };
                let _ = self.peers[peer]
                    .switch
                    .apply(self.now, &Message::FlowMod(flow_mod));
                if input.flag() {
                    self.hang_up(peer);
                    self.connect(peer);
                }
            }
            29 => {
                let kind = input.u8() % 4;
                let xid = self.xid(peer, input);
                let features = SwitchFeatures {
                    datapath_id: DatapathId(u64::from(input.u8() % 6)),
                    ..self.peers[peer].switch.features()
                };
                self.say(
                    peer,
                    xid,
                    &match kind {
                        0 => Message::FeaturesReply(features),
                        1 => Message::EchoReply(Bytes::from(input.bytes(4))),
                        2 => Message::EchoRequest(Bytes::from(input.bytes(4))),
                        _ => Message::Hello(Hello::offering(&[self.peers[peer].version])),
                    },
                );
            }
            // Any bytes.
            _ => {
                let len = usize::from(input.u8() % 48);
                let (version, kind, xid) = (
                    input.pick(&[4, 1, 4, 1, 5, 0]),
                    input.u8() % 32,
                    self.xid(peer, input),
                );
                let mut frame = vec![version, kind, 0, 8 + len as u8];
                frame.extend(xid.0.to_be_bytes());
                frame.extend(input.bytes(len));
                if let (Some(connection), Ok(frame)) =
                    (self.peers[peer].connection, Frame::new(frame.into()))
                {
                    self.waiting
                        .push_back(Consequence::ToProcess(connection, frame));
                }
            }
        }
    }

    /// The transaction id of a request that the switch has received, as a rule.
    fn xid(&mut self, peer: usize, input: &mut Input<'_>) -> Xid {
        let requests = &self.peers[peer].requests;
        match usize::from(input.u8()) % (REQUESTS_KEPT + 1) {
            REQUESTS_KEPT => Xid(input.u32()),
            n => requests.iter().rev().nth(n).copied().unwrap_or(Xid(0)),
        }
    }

    /// One of its own, as a rule.
    fn port_of(&mut self, peer: usize, input: &mut Input<'_>) -> PortNo {
        let n = usize::from(input.u8());
        let ports = self.peers[peer].switch.ports().map(|port| port.port_no);
        let ports: Vec<PortNo> = ports.collect();
        match n % 4 {
            0 => input.port(),
            _ => ports
                .get(n / 4 % ports.len().max(1))
                .copied()
                .unwrap_or(PortNo(1)),
        }
    }

    fn packet_in(&mut self, peer: usize, in_port: PortNo, data: Bytes, input: &mut Input<'_>) {
        let bits = input.u8();
        let packet_in = PacketIn {
            buffer_id: (bits & 7 == 7).then(|| BufferId(input.u32())),
            total_len: data.len() as u16 + u16::from(bits & 0x38 == 0x38),
            reason: PacketInReason(input.pick(&[0, 0, 1, 0xfe])),
            table_id: TableId(0),
            cookie: match bits & 0x40 {
                0 => Cookie(u64::MAX),
                _ => input.cookie(),
            },
            r#match: Match::any().with_in_port(in_port),
            data,
        };
        self.say(peer, Xid(0), &Message::PacketIn(packet_in));
    }

    fn connect(&mut self, peer: usize) {
        if self.peers[peer].connection.is_some() {
            return;
        }
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.peers[peer].connection = Some(connection);
        self.process.handle_accept(self.now, connection);
        let hello = Hello::offering(&[self.peers[peer].version]);
        self.say(peer, Xid(1), &Message::Hello(hello));
    }

    fn hang_up(&mut self, peer: usize) {
        if let Some(connection) = self.peers[peer].connection.take() {
            self.process.handle_down(self.now, connection);
        }
    }

    /// Another datapath id or version; its ports and entries stay if it is the same switch.
    fn become_switch(&mut self, peer: usize, dpid: DatapathId, version: Version) {
        let mut next = new_switch(dpid, version);
        for port in self.peers[peer].switch.ports() {
            if version != Version::V10 || port.port_no.0 < 0xff00 {
                let _ = next.set_port(self.now, port.clone());
            }
        }
        self.peers[peer].switch = next;
        self.peers[peer].version = version;
    }

    fn set_link(&mut self, peer: usize, port: PortNo, up: bool) {
        let mut ends = vec![(peer, port)];
        if let Some(End::Port(peer, port)) = self.peers[peer].cables.get(&port) {
            ends.push((*peer, *port));
        }
        for (peer, port) in ends {
            if let Some(status) = self.peers[peer].switch.set_link(port, up) {
                self.say(peer, Xid(0), &status);
            }
        }
    }

    fn ping(&mut self, from: usize, to: usize, seq: u16) {
        let ip = self.hosts[to].address.ip;
        for frame in self.hosts[from].ping(ip, seq) {
            self.carry(End::Host(from), frame.into());
        }
    }

    fn say(&mut self, peer: usize, xid: Xid, message: &Message) {
        let Some(connection) = self.peers[peer].connection else {
            return;
        };
        // What its version cannot say is left out.
        if let Ok(frame) = encode(self.peers[peer].version, xid, message) {
            self.waiting
                .push_back(Consequence::ToProcess(connection, frame));
        }
    }

    fn carry(&mut self, from: End, data: Bytes) {
        let to = match from {
            End::Port(peer, port) => self.peers[peer].cables.get(&port).copied(),
            End::Host(host) => {
                let place = PLACES[host];
                Some(End::Port(place.0, PortNo(place.1)))
            }
        };
        if let Some(to) = to {
            self.waiting.push_back(Consequence::Packet(to, data));
        }
    }

    fn receive(&mut self, at: End, data: Bytes) {
        match at {
            End::Host(host) => {
                for frame in self.hosts[host].handle_frame(&data) {
                    self.carry(End::Host(host), frame.into());
                }
            }
            End::Port(peer, port) => {
                let outputs = self.peers[peer].switch.process(self.now, port, &data);
                self.emit(peer, outputs);
            }
        }
    }

    fn emit(&mut self, peer: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Controller(packet_in) => {
                    self.say(peer, Xid(0), &Message::PacketIn(packet_in));
                }
                Output::Port { port, packet, .. } => {
                    if HOSTILE.contains(&peer) && packet.get(12..14) == Some(&[0x88, 0xcc]) {
                        self.lldp.truncate(15);
                        self.lldp.insert(0, packet.clone());
                    }
                    self.carry(End::Port(peer, port), packet);
                }
            }
        }
    }

    /// Until nothing moves any more.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..CONSEQUENCES_MAX {
            while let Some(output) = self.process.poll_output() {
                match output {
                    ProcessOutput::Send(connection, frame) => {
                        self.waiting
                            .push_back(Consequence::ToPeer(connection, frame));
                    }
                    ProcessOutput::Close(connection) => {
                        let closed = self.peers.iter_mut().enumerate();
                        for (at, peer) in closed.filter(|(_, p)| p.connection == Some(connection)) {
                            peer.connection = None;
                            if HONEST.contains(&at) {
                                return Err(format!("honest switch {at} was disconnected"));
                            }
                        }
                    }
                }
            }
            match self.waiting.pop_front() {
                None => return Ok(()),
                Some(Consequence::ToProcess(connection, frame)) => {
                    self.process.handle_frame(self.now, connection, frame);
                }
                Some(Consequence::ToPeer(connection, frame)) => self.hear(connection, &frame)?,
                Some(Consequence::Packet(to, data)) => self.receive(to, data),
            }
        }
        Err(format!(
            "more than {CONSEQUENCES_MAX} consequences of one input"
        ))
    }

    /// A message of the controller at its switch.
    fn hear(&mut self, connection: ConnectionId, frame: &Frame) -> Result<(), String> {
        let found = self
            .peers
            .iter()
            .position(|p| p.connection == Some(connection));
        let Some(at) = found else {
            return Ok(());
        };
        let message = decode(frame).map_err(|error| format!("sent {frame:?}: {error:?}"))?;
        if let Message::FlowMod(flow_mod) = &message
            && let Some(key) = EntryKey::from_match(flow_mod.priority, &flow_mod.r#match)
        {
            self.ended.remove(&(at, key));
        }
        let peer = &mut self.peers[at];
        let is_statistics =
            frame.kind() == MessageKind::MultipartRequest && peer.connection.is_some();
        if is_statistics || frame.kind() == MessageKind::BarrierRequest {
            peer.requests.push_back(frame.xid());
            if peer.requests.len() > REQUESTS_KEPT {
                peer.requests.pop_front();
            }
            let is_up = self
                .process
                .session(connection)
                .is_some_and(|session| session.is_up());
            match peer.answers {
                Answers::None | Answers::NoStatistics if is_statistics && is_up => return Ok(()),
                Answers::None | Answers::NoBarrier if !is_statistics => return Ok(()),
                _ => {}
            }
        }
        let result = match &message {
            Message::PacketOut(m) => match peer.switch.packet_out(self.now, m) {
                Ok(outputs) => {
                    self.emit(at, outputs);
                    Ok(Vec::new())
                }
                Err(kind) => Err(kind),
            },
            Message::Error(_) => Ok(Vec::new()),
            message => peer.switch.apply(self.now, message),
        };
        match result {
            Ok(replies) => {
                for reply in replies {
                    let xid = match &reply {
                        Message::FlowRemoved(_) | Message::PortStatus(_) => Xid(0),
                        _ => frame.xid(),
                    };
                    self.say(at, xid, &reply);
                }
            }
            Err(kind) => {
                let data = frame.bytes().slice(..frame.len().min(64));
                let error = ErrorMessage::new(kind, data);
                self.say(at, frame.xid(), &Message::Error(error));
            }
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        for _ in 0..CONSEQUENCES_MAX {
            let switches = self
                .peers
                .iter()
                .filter_map(|peer| peer.switch.poll_timeout());
            let due = switches
                .map(|(due, _)| due)
                .chain(self.process.poll_timeout())
                .min();
            let Some(due) = due.filter(|due| *due <= end) else {
                self.now = end;
                return Ok(());
            };
            self.now = self.now.max(due);
            self.process.handle_timeout(self.now);
            for peer in 0..self.peers.len() {
                let due = self.peers[peer].switch.poll_timeout();
                if due.is_none_or(|(at, _)| at > self.now) {
                    continue;
                }
                let before = self.silent(peer);
                for message in self.peers[peer].switch.handle_timeout(self.now) {
                    self.say(peer, Xid(0), &message);
                }
                let left = self.silent(peer);
                let ended = before.difference(&left).map(|key| (peer, *key));
                self.ended.extend(ended);
            }
            self.settle()?;
        }
        Err(format!(
            "more than {CONSEQUENCES_MAX} deadlines in {time:?}"
        ))
    }

    /// Entries of paths whose end a switch does not report.
    fn silent(&self, peer: usize) -> BTreeSet<EntryKey> {
        let entries = self.peers[peer].switch.entries();
        let rows = entries.map(|entry| self.access.read(entry.stats(self.now)));
        let entries = rows.filter_map(|row| Entry::from_stats(&row));
        let silent = entries.filter(|entry| entry.kind == EntryKind::Pair && !entry.notify);
        silent.map(|entry| entry.key).collect()
    }

    fn known(&self) -> Known {
        let controller = &self.process.controller;
        let is_honest = |at: &Location| at.dpid.0 <= HONEST.len() as u64;
        let is_host = |mac: MacAddr| self.hosts.iter().any(|host| host.address.mac == mac);
        let switches = controller.switches().into_iter();
        let switches = switches.filter(|s| s.dpid.0 <= HONEST.len() as u64);
        let hosts = controller.hosts().into_iter();
        let hosts = hosts.filter(|host| is_honest(&host.at) && is_host(host.mac));
        let links = controller.links().into_iter();
        Known {
            switches: switches
                .map(|s| (s.dpid, s.connection, s.version, s.port_count, s.up_since))
                .collect(),
            links: links
                .filter(|link| is_honest(&link.from) || is_honest(&link.to))
                .collect(),
            hosts: hosts.map(|HostView { mac, at, .. }| (mac, at)).collect(),
        }
    }

    /// Whether the same is known of the honest switches as before, but for hosts where they really
    /// are. A new port waits until all switches have answered a barrier, and the packets of its
    /// hosts wait with it: they are heard when a hostile switch answers at last, or goes.
    fn is_kept(&self, before: &Known, now: &Known) -> bool {
        let is_true = |(mac, at): &&(MacAddr, Location)| {
            let hosts = self.hosts.iter().zip(PLACES);
            let mut places = hosts.filter(|(host, _)| host.address.mac == *mac);
            let real = |(peer, port): (usize, u32)| (DatapathId(peer as u64 + 1), PortNo(port));
            places.any(|(_, place)| real(place) == (at.dpid, at.port))
        };
        let new = now.hosts.iter().filter(|host| !before.hosts.contains(host));
        before.switches == now.switches
            && before.links == now.links
            && before.hosts.iter().all(|host| now.hosts.contains(host))
            && new.into_iter().all(|host| is_true(&host))
    }

    fn bounds(&mut self) -> Result<(), String> {
        let controller = &self.process.controller;
        let switches = controller.switches();
        let sizes = controller.sizes();
        let entries = |dpid| controller.entries(dpid).count();
        let ports = switches.iter().map(|switch| switch.port_count).max();
        let entries = switches.iter().map(|switch| entries(switch.dpid)).max();
        for (what, count, max) in [
            ("hosts", controller.host_count(), HOST_COUNT_MAX),
            ("paths", controller.path_count(), PATH_COUNT_MAX),
            ("switches", switches.len(), SWITCH_COUNT_MAX),
            ("ports of a switch", ports.unwrap_or(0), PORT_COUNT_MAX),
            ("entries of a switch", entries.unwrap_or(0), ENTRY_COUNT_MAX),
            ("packets that are held", sizes.held_packets, HELD_MAX),
            ("requests", sizes.requests, REQUESTS_MAX),
            ("timers", sizes.timers, TIMERS_MAX),
        ] {
            if count > max {
                return Err(format!("{count} {what}, {max} are allowed"));
            }
        }
        self.process.events.clear();
        Ok(())
    }

    /// The hostile switches go, the operator asks for nothing, and all is as it should be.
    fn finish(&mut self) -> Result<(), String> {
        for peer in HOSTILE {
            self.hang_up(peer);
        }
        for peer in HONEST {
            for port in 1..=4 {
                self.set_link(peer, PortNo(port), true);
            }
        }
        let now = self.now;
        self.process.ask(now, |controller| {
            controller.set_drained(now, Drained::default());
            let _ = controller.set_topology(now, None);
            let _ = controller.set_qos(now, Qos::default());
            controller.set_timeouts(now, Timeouts::fixed(60, 0));
            for dpid in 1..=5 {
                controller.set_table_limit(now, DatapathId(dpid), None);
            }
        });
        self.settle()?;
        self.pass(Duration::from_secs(15))?;
        for host in &mut self.hosts {
            // What hostile hosts have said of addresses is the hosts' to believe.
            host.forget_addresses();
        }
        for round in 0..2 {
            for host in 0..self.hosts.len() {
                self.ping(host, (host + 1) % 3, 2 * round);
                self.settle()?;
            }
            self.pass(Duration::from_secs(5))?;
        }
        for host in &mut self.hosts {
            host.pongs.clear();
        }
        for host in 0..self.hosts.len() {
            self.ping(host, (host + 1) % 3, 8);
            self.settle()?;
        }
        self.pass(Duration::from_secs(3))?;
        self.agrees("in the end")?;
        for (at, host) in self.hosts.iter().enumerate() {
            let to = self.hosts[(at + 1) % 3].address.ip;
            if !host.pongs.contains_key(&(to, 8)) {
                return Err(format!("in the end host {at} hears nothing of {to}"));
            }
        }
        Ok(())
    }

    /// Links are known, hosts are where they are, and each honest switch holds what is wanted
    /// there.
    fn agrees(&self, when: &str) -> Result<(), String> {
        let controller = &self.process.controller;
        let at = |peer: usize, port| Location::new(DatapathId(peer as u64 + 1), port);
        let found: BTreeSet<(Location, Location)> = controller
            .links()
            .into_iter()
            .map(|link| (link.from, link.to))
            .collect();
        for port in [3, 4].map(PortNo) {
            for (from, to) in [(at(0, port), at(1, port)), (at(1, port), at(0, port))] {
                if !found.contains(&(from, to)) {
                    return Err(format!("{when} no link from {from} to {to}: {found:?}"));
                }
            }
        }
        for peer in HONEST {
            let dpid = DatapathId(peer as u64 + 1);
            let told = |entry: &Entry| {
                !matches!(
                    entry.kind,
                    EntryKind::Local | EntryKind::Barred | EntryKind::Infrastructure
                )
            };
            let shape = |entry: Entry| (entry.key, entry.out);
            let wanted = controller.entries(dpid);
            if let Some(entry) = wanted.into_iter().find(|entry| entry.key.is_successor()) {
                return Err(format!(
                    "{when} {dpid} is to hold {entry:?}, and no path waits"
                ));
            }
            let wanted: BTreeSet<_> = controller.entries(dpid).filter(told).map(shape).collect();
            let entries = self.peers[peer].switch.entries();
            let rows = entries.map(|entry| self.access.read(entry.stats(self.now)));
            let held = rows.filter_map(|row| Entry::from_stats(&row));
            let held: BTreeSet<_> = held.filter(told).map(shape).collect();
            // The entries of a path past its first switch may end before the first one, whose end
            // is heard: by the paper's rule they do. The next packet has them set again.
            let is_fault = |(key, _): &&(EntryKey, PortNo)| !self.ended.contains(&(peer, *key));
            let missing: Vec<_> = wanted.difference(&held).filter(is_fault).collect();
            let extra: Vec<_> = held.difference(&wanted).collect();
            if !missing.is_empty() || !extra.is_empty() {
                return Err(format!("{when} {dpid} lacks {missing:?} and has {extra:?}"));
            }
        }
        Ok(())
    }
}

fn new_switch(dpid: DatapathId, version: Version) -> Switch {
    Switch::new(SwitchOptions {
        version,
        datapath_id: dpid,
        n_tables: 12,
        entries_max: ENTRIES_MAX,
        ..SwitchOptions::default()
    })
}
