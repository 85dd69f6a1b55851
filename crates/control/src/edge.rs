//! The part of the controller beside each connection: it answers packet-ins whose sender and
//! destination are known to be behind ports of the same switch.
//!
//! The [`Controller`](crate::controller::Controller) alone decides where a host is, and informs the
//! edge. Therefore an edge needs no lock and no requests, and every thread can run one at the same
//! time. In the fabric an edge also answers for hosts of other switches, whose egresses it reads
//! from [`Places`], and answers questions for known addresses (`resolve.rs`). An edge leaves every
//! uncertain packet to the controller: LLDP, other ARP, other multicasts, packets with VLAN tags,
//! truncated packets, unknown hosts. Every five seconds an edge shows the controller one answered
//! packet of each port, which proves that the port's hosts are alive.
//!
//! An answer forwards the packet itself and then sets an entry for the packets that follow. The
//! edge remembers only the kind in the cookie of its entries ([`EntryKind::Local`]): when a port
//! goes or a host leaves, it deletes its entries by their match. OpenFlow 1.0 has no cookie mask.
//! There, the edge also deletes entries of other owners within the same match: from that port or
//! host, or to it.

pub(crate) mod resolve;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use clock::{Duration, Instant, mix};
use openflow::message::{FlowMod, FlowModCommand, PacketInReason};
use openflow::{
    BufferId, Cookie, Frame, GroupId, MacAddr, Match, Message, PortNo, Version, Xid, encode,
};

use crate::bond;
use crate::entry::{COOKIE_PREFIX_MASK, Entry, EntryKind, may_keep_ipv4_flow};
use crate::fabric::addresses::Addresses;
use crate::fabric::places::Places;
use crate::fabric::{Exit, Labels};
use crate::mac_table::MacTable;
use crate::pipeline::Numbering;
use crate::requests::EDGE_XID;
use crate::vlan::{self, Form, HostKey, PortVlans, VlanId};
use resolve::Shown;
use wire::{Answer, Crossing, Templates};

/// Minimum time before an entry is sent again for the same pair: packets of a burst that were under
/// way are only forwarded. The controller's paths use the same interval.
const REPEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Number of recent pairs remembered; a newer pair in the same slot replaces an older pair.
const RECENT_PAIRS: usize = 64;

/// Time between two packet-ins of a port that are shown to the controller. The controller's one
/// thread spends most of its time on them at 10,000 switches. Important packets (ARP, hosts whose
/// place is in question) reach the controller anyway.
pub(crate) const SHOW_INTERVAL: Duration = Duration::from_secs(5);

/// The first port number in 1.0 that is not an ordinary port.
const PORTS_V10: u32 = 0xff00;

/// Maximum number of hosts of a closed port, in 1.0, whose entries are deleted one by one.
const NAMED_HOSTS_MAX: usize = 256;

/// Decisions of the controller, in the order in which it made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeUpdate {
    /// The edge may answer from now on; it knows no hosts yet. Sent when the switch is admitted.
    Start(EdgeConfig),
    /// The edge answers nothing any more, until it is started again: another controller controls
    /// the switch.
    Stop,
    /// The edge answers packet-ins of this port.
    Open(PortNo),
    /// Closes a port: the edge deletes its entries from and to the port, also the entries of an
    /// earlier edge. `hosts` were behind the port.
    Close { port: PortNo, hosts: Vec<MacAddr> },
    /// A host is behind an open port.
    Host { host: HostKey, port: PortNo },
    /// The controller handles the host's packets again; the host's entries stay.
    Watch(HostKey),
    /// The host has left: the edge deletes its entries.
    Forget(HostKey),
    /// The host is no longer where the entries to it forward packets: the edge deletes them.
    Stale(HostKey),
    /// The VLANs of the switch's ports; ports that are not named are outside all VLANs.
    Vlans(BTreeMap<PortNo, PortVlans>),
    /// The ports of the switch's bonds.
    Bonds(BTreeMap<PortNo, BondPort>),
    /// The ports whose outgoing packets go to other ports as well.
    Mirrors(BTreeMap<PortNo, Vec<PortNo>>),
    /// The switch's table is full: until then the edge only forwards packets and sets no entries.
    Pause(Instant),
    /// The number of entries that the edge may set until the next grant: the controller learns of
    /// them only when it reads the table's statistics. Unlimited without a grant.
    Grant(u32),
    /// Whether entries set from now on send packets on to policies.
    LeadOn(bool),
    /// The timeouts of entries set from now on.
    Timeouts { idle_s: u16, hard_s: u16 },
    /// Sets an entry before any packet asks for it: the source is here, behind an open port, and
    /// the destination here or behind an egress.
    Install {
        now: Instant,
        in_port: PortNo,
        src: MacAddr,
        dst: MacAddr,
        exit: Exit,
    },
    /// Forwards a packet that the controller has handled, between two such hosts.
    Deliver(Box<Deliver>),
    /// The switch is in the fabric, or another egress is reachable.
    Fabric(FabricView),
}

/// A port of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondPort {
    /// Where hosts behind the bond are.
    pub place: PortNo,
    /// Whether packets may enter by this port.
    pub is_open: bool,
}

/// The fabric as one edge sees it.
#[derive(Clone, Debug)]
pub struct FabricView {
    /// The network outside all VLANs.
    pub untagged: DomainView,
    pub vlans: Arc<BTreeMap<VlanId, DomainView>>,
    /// Whether the entry of a pair is set before one host learns the other's address.
    pub presets: bool,
    /// The egresses reachable from this switch.
    pub reach: Labels,
    /// The EtherType of the tag.
    pub tag: u16,
}

/// Where the hosts of one VLAN are, and the owners of its addresses.
#[derive(Clone, Debug)]
pub struct DomainView {
    pub places: Arc<Places>,
    pub addresses: Arc<Addresses>,
}

impl PartialEq for DomainView {
    fn eq(&self, other: &DomainView) -> bool {
        Arc::ptr_eq(&self.places, &other.places) && Arc::ptr_eq(&self.addresses, &other.addresses)
    }
}

impl Eq for DomainView {}

impl PartialEq for FabricView {
    fn eq(&self, other: &FabricView) -> bool {
        let is_same_table = self.untagged == other.untagged && self.vlans == other.vlans;
        let is_like = (self.presets, self.tag) == (other.presets, other.tag);
        is_same_table && is_like && self.reach == other.reach
    }
}

impl Eq for FabricView {}

/// The entries that closing a port deletes in OpenFlow 1.0, which cannot name an entry's owner.
pub(crate) struct Closed {
    port: PortNo,
    /// `None`: all entries of the port.
    hosts: Option<BTreeSet<MacAddr>>,
}

impl Closed {
    pub(crate) fn new(port: PortNo, hosts: &[MacAddr]) -> Closed {
        let is_named = hosts.len() <= NAMED_HOSTS_MAX;
        Closed {
            port,
            hosts: is_named.then(|| hosts.iter().copied().collect()),
        }
    }

    fn is_named(&self) -> bool {
        self.hosts.is_some()
    }

    pub(crate) fn deletes(&self, entry: &Entry) -> bool {
        let is_of_host = |mac: Option<MacAddr>| match &self.hosts {
            None => true,
            Some(hosts) => mac.is_some_and(|mac| hosts.contains(&mac)),
        };
        let key = &entry.key;
        let is_from_it = key.in_port == Some(self.port) && is_of_host(key.eth_src);
        let is_to_it = entry.out == self.port && is_of_host(key.eth_dst);
        is_from_it || is_to_it
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeConfig {
    pub version: Version,
    /// A part of the cookie of its entries.
    pub generation: u16,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// The seed of its hash table.
    pub seed: u64,
    /// The numbers of the switch's tables.
    pub numbering: Numbering,
}

/// A packet from a host behind an open port to a host behind another, or behind an egress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub now: Instant,
    pub in_port: PortNo,
    pub vlan: VlanId,
    pub src: MacAddr,
    pub dst: MacAddr,
    pub exit: Exit,
    /// The buffer in which the switch keeps the packet; without one, `data` is whole.
    pub buffer_id: Option<BufferId>,
    pub data: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Packet-ins that the edge has answered.
    pub packet_ins: u64,
    /// Answered packet-ins that were questions for an address.
    pub questions: u64,
    pub flow_mods: u64,
    pub packet_outs: u64,
    /// Packets forwarded without an entry because the grant was used up.
    pub entries_withheld: u64,
    /// Packets dropped because no message of the version can carry them back.
    pub packet_outs_too_long: u64,
}

/// The outcome of a packet-in at the edge.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Left to the controller: the packet-in passes through the session.
    Left,
    Answered,
    /// Answered; the controller must see [`shown`] all the same.
    Show,
}

/// The reason of packet-ins from which the controller learns without an answer. OpenFlow does not
/// use this number.
pub(crate) const SHOWN: PacketInReason = PacketInReason(0xfe);

/// The port of a packet-in whose packet is from one host to another; `None` for any other, such as
/// LLDP, ARP and broadcasts.
pub(crate) fn port_of_plain(version: Version, packet_in: &[u8]) -> Option<PortNo> {
    let packet = wire::read_packet_in(version, packet_in)?;
    wire::may_send_on(&packet, false).then_some(packet.in_port)
}

/// Returns a packet-in for the controller to learn from: the same message with another reason.
pub fn shown(packet_in: &[u8]) -> Frame {
    let mut bytes = BytesMut::from(packet_in);
    wire::set_reason(&mut bytes, SHOWN);
    Frame::new(bytes.freeze()).expect("as long as it was")
}

/// One switch's edge. The default edge answers no packet-ins.
#[derive(Default)]
pub struct Edge {
    started: Option<Box<Started>>,
}

struct Started {
    config: EdgeConfig,
    templates: Templates,
    leads_on: bool,
    fabric: Option<FabricView>,
    /// The port of each host outside of VLANs, by the port's index in `ports`.
    hosts: MacTable<PortIndex>,
    vlans: Members,
    bonds: BTreeMap<PortNo, BondPort>,
    mirrors: BTreeMap<PortNo, Vec<PortNo>>,
    ports: Vec<Port>,
    by_number: BTreeMap<PortNo, PortIndex>,
    /// The port of the last packet: packets of a port arrive one after another.
    last: (PortNo, PortIndex),
    recent: Box<[Recent; RECENT_PAIRS]>,
    paused_until: Instant,
    /// Entries that the edge may still set.
    granted: u32,
    /// Whether the grant is used up, so that the controller must be shown a packet.
    is_spent: bool,
    /// Whether the controller has been shown a packet since then: it may grant more.
    is_spent_shown: bool,
    xid: u32,
    shown: Shown,
    counters: EdgeCounters,
}

type PortIndex = u16;

struct Port {
    number: PortNo,
    is_open: bool,
    /// When the controller last saw a packet-in of this port.
    shown_at: Option<Instant>,
}

/// A pair whose entry was sent. All zeros means none.
#[derive(Clone, Copy, Default)]
struct Recent {
    pair: u64,
    at: Instant,
}

impl Edge {
    /// Applies a decision of the controller. Appends the resulting messages to the switch to `out`.
    pub fn handle_update(&mut self, update: EdgeUpdate, out: &mut BytesMut) {
        if let EdgeUpdate::Start(config) = update {
            self.started = Some(Box::new(Started::new(config)));
        } else if matches!(update, EdgeUpdate::Stop) {
            self.started = None;
        } else if let Some(edge) = &mut self.started {
            edge.handle_update(update, out);
        }
    }

    /// Handles one whole PACKET_IN, header included, of the connection's version. Appends whole
    /// messages to `out` if it can answer, and otherwise nothing.
    #[inline]
    pub fn handle_packet_in(&mut self, now: Instant, frame: &[u8], out: &mut BytesMut) -> Verdict {
        let edge = self.started.as_mut();
        let verdict = edge.and_then(|edge| edge.handle_packet_in(now, frame, out));
        verdict.unwrap_or(Verdict::Left)
    }

    /// Prefetches the hosts of a packet-in that [`Edge::handle_packet_in`] will handle some
    /// messages later. With a hundred thousand hosts, an answer mostly waits for memory; prefetched
    /// memory has arrived by then.
    #[inline]
    pub fn look_ahead(&self, packet_in: &[u8]) {
        if let Some(edge) = &self.started
            && let Some((src, dst)) = wire::addresses(edge.config.version, packet_in)
        {
            edge.hosts.prefetch(src);
            edge.hosts.prefetch(dst);
        }
    }

    /// Number of hosts that the edge knows.
    pub fn host_count(&self) -> usize {
        let edge = self.started.as_ref();
        edge.map_or(0, |edge| edge.hosts.len() + edge.vlans.host_count())
    }

    pub fn counters(&self) -> EdgeCounters {
        let edge = self.started.as_ref();
        edge.map_or(EdgeCounters::default(), |edge| edge.counters)
    }
}

/// The VLANs of a switch's ports, and their hosts.
#[derive(Default)]
struct Members {
    ports: BTreeMap<PortNo, PortVlans>,
    hosts: BTreeMap<VlanId, MacTable<PortIndex>>,
}

impl Members {
    /// Begins without hosts: the controller names again the hosts whose ports have not changed.
    fn new(ports: BTreeMap<PortNo, PortVlans>, seed: u64) -> Members {
        let vlans = ports.values().flat_map(PortVlans::all);
        let hosts = vlans.map(|vlan| (vlan, MacTable::new(seed ^ u64::from(vlan.number()))));
        let hosts = hosts.collect();
        Members { ports, hosts }
    }

    fn is_on(&self) -> bool {
        !self.ports.is_empty()
    }

    fn host_count(&self) -> usize {
        self.hosts.values().map(MacTable::len).sum()
    }

    /// The VLAN of a packet; `None` if its port is not a member, or its tag gives a priority only:
    /// the controller checks whether another tag follows.
    fn classify(&self, in_port: PortNo, data: &[u8]) -> Option<VlanId> {
        match self.ports.get(&in_port) {
            Some(port) => {
                let tag = vlan::tag_of(data);
                port.classify(tag).filter(|_| tag != Some(0))
            }
            None => Some(VlanId::NONE),
        }
    }
}

impl FabricView {
    #[inline]
    fn domain(&self, vlan: VlanId) -> Option<&DomainView> {
        match vlan.is_none() {
            true => Some(&self.untagged),
            false => self.vlans.get(&vlan),
        }
    }
}

impl Started {
    fn new(config: EdgeConfig) -> Started {
        Started {
            templates: Templates::new(&config, false, None),
            leads_on: false,
            fabric: None,
            hosts: MacTable::new(config.seed),
            vlans: Members::default(),
            bonds: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            ports: Vec::new(),
            by_number: BTreeMap::new(),
            last: (PortNo::ANY, 0),
            recent: Box::new([Recent::default(); RECENT_PAIRS]),
            paused_until: Instant::START,
            granted: u32::MAX,
            is_spent: false,
            is_spent_shown: false,
            xid: 0,
            shown: Shown::new(),
            counters: EdgeCounters::default(),
            config,
        }
    }

    fn handle_update(&mut self, update: EdgeUpdate, out: &mut BytesMut) {
        match update {
            EdgeUpdate::Start(_) | EdgeUpdate::Stop => {}
            EdgeUpdate::Open(number) => self.open(number),
            EdgeUpdate::Close { port, hosts } => self.close(port, hosts, out),
            EdgeUpdate::Host { host, port } => {
                let index = self.open_port(port);
                if let Some((hosts, index)) = self.hosts_mut(host.vlan).zip(index) {
                    hosts.insert(host.mac, index);
                }
            }
            EdgeUpdate::Watch(host) => self.remove(host),
            EdgeUpdate::Forget(host) => {
                self.remove(host);
                self.forget_pairs();
                self.delete(Match::any().with_eth_src(host.mac), PortNo::ANY, out);
                self.delete(Match::any().with_eth_dst(host.mac), PortNo::ANY, out);
            }
            EdgeUpdate::Stale(host) => {
                self.forget_pairs();
                self.delete(Match::any().with_eth_dst(host.mac), PortNo::ANY, out);
            }
            EdgeUpdate::Vlans(ports) => self.vlans = Members::new(ports, self.config.seed),
            EdgeUpdate::Bonds(bonds) => {
                (self.bonds, self.last) = (bonds, (PortNo::ANY, 0));
                self.renew_templates();
            }
            EdgeUpdate::Mirrors(mirrors) => {
                self.mirrors = mirrors;
                self.renew_templates();
            }
            EdgeUpdate::Timeouts { idle_s, hard_s } => {
                self.config.idle_timeout_s = idle_s;
                self.config.hard_timeout_s = hard_s;
                self.renew_templates();
            }
            EdgeUpdate::LeadOn(leads_on) => {
                self.leads_on = leads_on;
                self.renew_templates();
            }
            EdgeUpdate::Pause(until) => self.paused_until = until,
            EdgeUpdate::Grant(count) => {
                (self.granted, self.is_spent, self.is_spent_shown) = (count, false, false);
            }
            EdgeUpdate::Fabric(view) => {
                self.fabric = Some(view);
                self.renew_templates();
            }
            EdgeUpdate::Install {
                now,
                in_port,
                src,
                dst,
                exit,
            } => {
                if !self.has_words_for(in_port) || !self.has_words_to_go(exit) {
                    return;
                }
                for in_port in self.inlets(in_port) {
                    let answer = Answer {
                        in_port,
                        src,
                        dst,
                        exit,
                        buffer_id: None,
                        data: &[],
                        is_copy: true,
                        crossing: None,
                    };
                    self.answer(now, &answer, out);
                }
            }
            EdgeUpdate::Deliver(packet) => {
                if !self.has_words_for(packet.in_port) || !self.has_words_to_go(packet.exit) {
                    return;
                }
                let index = self.inlet(packet.in_port);
                // The controller has seen the packet; but ARP shows nothing about IPv4.
                let says = may_keep_ipv4_flow(&packet.data);
                let index = index.filter(|_| says);
                if let Some(port) = index.and_then(|at| self.ports.get_mut(usize::from(at))) {
                    port.shown_at = Some(packet.now);
                }
                let crossing = self.crossing(packet.in_port, &packet.data, packet.exit);
                // The port may be in another VLAN since.
                if crossing.map_or(VlanId::NONE, |crossing| crossing.vlan) != packet.vlan {
                    return;
                }
                let answer = Answer {
                    in_port: packet.in_port,
                    src: packet.src,
                    dst: packet.dst,
                    exit: packet.exit,
                    buffer_id: packet.buffer_id,
                    data: &packet.data,
                    is_copy: false,
                    crossing,
                };
                self.answer(packet.now, &answer, out);
            }
        }
    }

    fn renew_templates(&mut self) {
        let tag = self.fabric.as_ref().map(|fabric| fabric.tag);
        self.templates = Templates::new(&self.config, self.leads_on, tag);
        let places = self.bonds.values().map(|port| port.place);
        self.templates.set_bonds(places.collect());
        self.templates.set_mirrors(self.mirrors.clone());
    }

    /// The ports by which packets from a place enter.
    fn inlets(&self, place: PortNo) -> Vec<PortNo> {
        let of_place = self.bonds.iter().filter(|(_, port)| port.place == place);
        let open = of_place.clone().filter(|(_, port)| port.is_open);
        match of_place.count() {
            0 => vec![place],
            _ => open.map(|(number, _)| *number).collect(),
        }
    }

    /// The open port, or the place of its bond, to which packets received on `in_port` belong.
    #[inline]
    fn inlet(&mut self, in_port: PortNo) -> Option<PortIndex> {
        if self.bonds.is_empty() {
            return self.open_port(in_port);
        }
        match self.bonds.get(&in_port).copied() {
            None => self.open_port(in_port),
            Some(port) if port.is_open => self.open_port(port.place),
            Some(_) => None,
        }
    }

    #[inline]
    fn handle_packet_in(
        &mut self,
        now: Instant,
        frame: &[u8],
        out: &mut BytesMut,
    ) -> Option<Verdict> {
        let packet = wire::read_packet_in(self.config.version, frame)?;
        let vlan = match self.vlans.is_on() {
            true => self.vlans.classify(packet.in_port, packet.data)?,
            false => VlanId::NONE,
        };
        if !wire::may_send_on(&packet, !vlan.is_none()) {
            return self.answer_question(now, vlan, &packet, out);
        }
        let index = self.inlet(packet.in_port)?;
        if self.hosts(vlan)?.get(packet.src)? != index {
            return None;
        }
        let exit = self.exit(index, vlan, packet.dst)?;
        let crossing = match vlan.is_none() {
            true => None,
            false => Some(self.crossing(packet.in_port, packet.data, exit)?),
        };
        let answer = Answer {
            exit,
            crossing,
            ..packet
        };
        self.answer(now, &answer, out);
        self.counters.packet_ins += 1;
        // An answer to a question for an address may have used up the last entry of the grant.
        let is_spent_now = self.is_spent && !self.is_spent_shown;
        self.is_spent_shown = self.is_spent;
        let shown_at = &mut self.ports[usize::from(index)].shown_at;
        if !is_spent_now && shown_at.is_some_and(|at| now.since(at) < SHOW_INTERVAL) {
            return Some(Verdict::Answered);
        }
        *shown_at = Some(now);
        Some(Verdict::Show)
    }

    /// The exit from a port to a host that is not behind the same port.
    #[inline]
    fn exit(&self, from: PortIndex, vlan: VlanId, dst: MacAddr) -> Option<Exit> {
        match self.hosts(vlan)?.get(dst) {
            Some(to) if to == from => None,
            Some(to) => Some(Exit::Port(self.ports[usize::from(to)].number)),
            None => self.exit_to_egress(vlan, dst),
        }
    }

    /// The hosts of a VLAN, or the hosts outside all VLANs.
    #[inline]
    fn hosts(&self, vlan: VlanId) -> Option<&MacTable<PortIndex>> {
        match vlan.is_none() {
            true => Some(&self.hosts),
            false => self.vlans.hosts.get(&vlan),
        }
    }

    fn hosts_mut(&mut self, vlan: VlanId) -> Option<&mut MacTable<PortIndex>> {
        match vlan.is_none() {
            true => Some(&mut self.hosts),
            false => self.vlans.hosts.get_mut(&vlan),
        }
    }

    fn remove(&mut self, host: HostKey) {
        if let Some(hosts) = self.hosts_mut(host.vlan) {
            hosts.remove(host.mac);
        }
    }

    /// The change of a packet from one port of a VLAN to another; `None` at a port outside all
    /// VLANs.
    fn crossing(&self, in_port: PortNo, data: &[u8], exit: Exit) -> Option<Crossing> {
        let tag = vlan::tag_of(data);
        let vlan = self.vlans.ports.get(&in_port)?.classify(tag)?;
        let form = match exit {
            Exit::Port(port) => self.vlans.ports.get(&port)?.form(vlan)?,
            // The egress sets the packet's form.
            Exit::Egress(_) => Form::Untagged,
        };
        Some(Crossing { vlan, tag, form })
    }

    /// The exit to a host of another switch. Packets sent on to policies take no labels.
    #[inline]
    fn exit_to_egress(&self, vlan: VlanId, dst: MacAddr) -> Option<Exit> {
        let fabric = self.fabric.as_ref().filter(|_| !self.leads_on)?;
        let label = fabric.domain(vlan)?.places.get(dst)?;
        fabric.reach.contains(label).then_some(Exit::Egress(label))
    }

    /// Sends the packet first and then the entry, so that no later packet overtakes the first.
    /// Sends only the entry if there is no packet, or if the packet was forwarded already.
    fn answer(&mut self, now: Instant, answer: &Answer<'_>, out: &mut BytesMut) {
        let with_entry = now >= self.paused_until && self.may_add() && self.is_new(now, answer);
        // An entry that names the packet's buffer also forwards that packet.
        let by_entry = with_entry && answer.buffer_id.is_some();
        if !by_entry && !answer.is_copy {
            let xid = self.next_xid();
            if self.templates.packet_out(xid, answer, out) {
                self.counters.packet_outs += 1;
            } else {
                self.counters.packet_outs_too_long += 1;
            }
        }
        if with_entry {
            let xid = self.next_xid();
            self.templates.flow_mod(xid, answer, out);
            self.counters.flow_mods += 1;
            // `u32::MAX` means no limit and is not counted down.
            self.granted -= u32::from(self.granted < u32::MAX);
        }
    }

    fn may_add(&mut self) -> bool {
        let is_spent = self.granted == 0;
        self.is_spent |= is_spent;
        self.counters.entries_withheld += u64::from(is_spent);
        !is_spent
    }

    fn is_new(&mut self, now: Instant, answer: &Answer<'_>) -> bool {
        let vlan = answer.crossing.map_or(0, |crossing| crossing.vlan.number());
        let key = mix(answer.src.to_u64() ^ u64::from(answer.in_port.0) << 48)
            ^ u64::from(vlan) << 48
            ^ answer.dst.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let recent = &mut self.recent[mix(key) as usize % RECENT_PAIRS];
        let pair = key | 1;
        if recent.pair == pair && now.since(recent.at) < REPEAT_INTERVAL {
            return false;
        }
        *recent = Recent { pair, at: now };
        true
    }

    /// Whether this version can encode a port: 1.0 has 16 bits for it.
    fn has_words_for(&self, port: PortNo) -> bool {
        self.config.version != Version::V10 || port.0 < PORTS_V10
    }

    /// Whether the edge can encode this exit: labels need 1.3 and a tag.
    fn has_words_to_go(&self, exit: Exit) -> bool {
        match exit {
            Exit::Port(port) => self.has_words_for(port),
            Exit::Egress(_) => self.fabric.is_some() && self.config.version != Version::V10,
        }
    }

    fn open(&mut self, number: PortNo) {
        if !self.has_words_for(number) {
            return;
        }
        if let Some(index) = self.by_number.get(&number) {
            self.ports[usize::from(*index)].is_open = true;
            return;
        }
        let port = Port {
            number,
            is_open: true,
            shown_at: None,
        };
        // A closed port has no hosts, so its index is free.
        let free = self.ports.iter().position(|port| !port.is_open);
        let at = free.unwrap_or(self.ports.len());
        let Ok(index) = PortIndex::try_from(at) else {
            return;
        };
        if let Some(old) = self.ports.get_mut(at) {
            self.by_number.remove(&old.number);
            *old = port;
        } else {
            self.ports.push(port);
        }
        self.last = (PortNo::ANY, 0);
        self.by_number.insert(number, index);
    }

    fn close(&mut self, number: PortNo, hosts: Vec<MacAddr>, out: &mut BytesMut) {
        if let Some(index) = self.open_port(number) {
            self.hosts.retain(|_, at| *at != index);
            for hosts in self.vlans.hosts.values_mut() {
                hosts.retain(|_, at| *at != index);
            }
            self.ports[usize::from(index)].is_open = false;
            self.last = (PortNo::ANY, 0);
        }
        self.forget_pairs();
        if self.bonds.values().any(|port| port.place == number) {
            return self.delete_of_bond(number, out);
        }
        let from_port = Match::any().with_in_port(number);
        let closed = Closed::new(number, &hosts);
        if self.config.version == Version::V10 && closed.is_named() {
            for mac in hosts {
                self.delete(from_port.clone().with_eth_src(mac), PortNo::ANY, out);
                self.delete(Match::any().with_eth_dst(mac), number, out);
            }
        } else {
            self.delete(from_port, PortNo::ANY, out);
            self.delete(Match::any(), number, out);
        }
    }

    /// Deletes the entries from all ports of a bond, and to its group.
    fn delete_of_bond(&mut self, place: PortNo, out: &mut BytesMut) {
        let of_place = self.bonds.iter().filter(|(_, port)| port.place == place);
        for in_port in of_place.map(|(number, _)| *number).collect::<Vec<_>>() {
            let from_port = Match::any().with_in_port(in_port);
            self.delete(from_port, PortNo::ANY, out);
        }
        self.delete_to(Match::any(), (PortNo::ANY, bond::group(place)), out);
    }

    /// Deletes every entry of the edge within `r#match` that outputs to `out_port`.
    fn delete(&mut self, r#match: Match, out_port: PortNo, out: &mut BytesMut) {
        self.delete_to(r#match, (out_port, GroupId::ANY), out);
    }

    /// Deletes entries like `delete`, also by the group to which they output.
    fn delete_to(
        &mut self,
        r#match: Match,
        (out_port, out_group): (PortNo, GroupId),
        out: &mut BytesMut,
    ) {
        let mut flow_mod = FlowMod {
            out_group,
            command: FlowModCommand::Delete,
            cookie: EntryKind::Local.cookie(0),
            cookie_mask: Cookie(COOKIE_PREFIX_MASK.0 | 0xff00),
            out_port,
            instructions: Vec::new(),
            ..FlowMod::add(0, r#match, Vec::new())
        };
        if self.config.version == Version::V10 {
            flow_mod.cookie_mask = Cookie(0);
        }
        self.config.numbering.translate_flow_mod(&mut flow_mod);
        let xid = self.next_xid();
        let message = Message::FlowMod(flow_mod);
        // A port of an earlier connection may have a number that this version cannot encode. Then
        // no entry of this switch can name the port either.
        if let Ok(frame) = encode(self.config.version, Xid(xid), &message) {
            self.counters.flow_mods += 1;
            out.extend_from_slice(frame.bytes());
        }
    }

    /// Forgets the pairs whose entries were sent a moment ago: they have been deleted, and may be
    /// sent again.
    fn forget_pairs(&mut self) {
        *self.recent = [Recent::default(); RECENT_PAIRS];
    }

    #[inline]
    fn open_port(&mut self, number: PortNo) -> Option<PortIndex> {
        if self.last.0 == number {
            return Some(self.last.1);
        }
        let index = *self.by_number.get(&number)?;
        if !self.ports[usize::from(index)].is_open {
            return None;
        }
        self.last = (number, index);
        Some(index)
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        EDGE_XID | self.xid & (EDGE_XID - 1)
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketIn;
    use openflow::{TableId, decode};

    use super::*;

    const NOW: Instant = Instant::START;
    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

    /// Two hosts behind ports 1 and 2.
    fn edge(version: Version) -> Edge {
        let mut edge = Edge::default();
        let config = EdgeConfig {
            version,
            generation: 3,
            idle_timeout_s: 60,
            hard_timeout_s: 0,
            seed: 5,
            numbering: Numbering::Plain,
        };
        let updates = [
            EdgeUpdate::Start(config),
            EdgeUpdate::Open(PortNo(1)),
            EdgeUpdate::Open(PortNo(2)),
            EdgeUpdate::Host {
                host: HostKey::untagged(A),
                port: PortNo(1),
            },
            EdgeUpdate::Host {
                host: HostKey::untagged(B),
                port: PortNo(2),
            },
        ];
        assert!(said(&mut edge, updates).is_empty());
        edge
    }

    fn close(port: u32, hosts: &[MacAddr]) -> EdgeUpdate {
        let (port, hosts) = (PortNo(port), hosts.to_vec());
        EdgeUpdate::Close { port, hosts }
    }

    fn said(edge: &mut Edge, updates: impl IntoIterator<Item = EdgeUpdate>) -> Vec<Message> {
        let mut out = BytesMut::new();
        for update in updates {
            edge.handle_update(update, &mut out);
        }
        messages(out)
    }

    /// The edge's answer to a packet-in, if any.
    fn asked(
        edge: &mut Edge,
        now: Instant,
        src: MacAddr,
        dst: MacAddr,
        port: u32,
        buffer_id: Option<BufferId>,
    ) -> Option<Vec<Message>> {
        let version = edge.started.as_ref().unwrap().config.version;
        let frame = packet_in(version, src, dst, port, buffer_id);
        let mut out = BytesMut::new();
        let is_answered = edge.handle_packet_in(now, frame.bytes(), &mut out) != Verdict::Left;
        assert!(is_answered || out.is_empty());
        is_answered.then(|| messages(out))
    }

    fn packet_in(
        version: Version,
        src: MacAddr,
        dst: MacAddr,
        port: u32,
        buffer_id: Option<BufferId>,
    ) -> Frame {
        let message = Message::PacketIn(PacketIn {
            buffer_id,
            total_len: 20,
            reason: PacketInReason::NO_MATCH,
            table_id: TableId(0),
            cookie: Cookie(u64::MAX),
            r#match: Match::any().with_in_port(PortNo(port)),
            data: [&dst.0[..], &src.0, &[8, 0, 1, 2, 3, 4, 5, 6]]
                .concat()
                .into(),
        });
        encode(version, Xid(1), &message).unwrap()
    }

    fn messages(mut out: BytesMut) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(frame) = Frame::split_from(&mut out).unwrap() {
            assert_eq!(frame.xid().0 & 0xc000_0000, EDGE_XID);
            messages.push(decode(&frame).unwrap());
        }
        assert!(out.is_empty());
        messages
    }

    fn kinds(messages: &[Message]) -> Vec<&'static str> {
        let kind = |message: &Message| match message {
            Message::FlowMod(FlowMod {
                command: FlowModCommand::Add,
                ..
            }) => "add",
            Message::FlowMod(_) => "delete",
            Message::PacketOut(_) => "packet-out",
            _ => "other",
        };
        messages.iter().map(kind).collect()
    }

    #[test]
    fn a_packet_is_sent_on_and_then_gets_its_entry_once() {
        for version in [Version::V10, Version::V13] {
            let mut edge = edge(version);
            let first = asked(&mut edge, NOW, A, B, 1, None).unwrap();
            assert_eq!(kinds(&first), ["packet-out", "add"]);
            let again = asked(&mut edge, NOW, A, B, 1, None).unwrap();
            assert_eq!(kinds(&again), ["packet-out"], "the entry is under way");
            let back = asked(&mut edge, NOW, B, A, 2, None).unwrap();
            assert_eq!(kinds(&back), ["packet-out", "add"]);
            let later = NOW + REPEAT_INTERVAL;
            let missed = asked(&mut edge, later, A, B, 1, None).unwrap();
            assert_eq!(kinds(&missed), ["packet-out", "add"], "it went missing");
        }
    }

    /// The switch has forwarded the packet: forwarding it again would be a duplicate.
    #[test]
    fn a_copy_gets_its_entry_and_is_not_sent() {
        let mut edge = edge(Version::V13);
        for buffer_id in [None, Some(BufferId(7))] {
            let frame = packet_in(Version::V13, A, B, 1, buffer_id);
            let Ok(Message::PacketIn(mut copy)) = decode(&frame) else {
                panic!("a packet-in");
            };
            copy.cookie = EntryKind::Report.cookie(77);
            copy.total_len = 1500;
            let frame = encode(Version::V13, Xid(1), &Message::PacketIn(copy)).unwrap();
            for expected in [&["add"][..], &[]] {
                let mut out = BytesMut::new();
                let verdict = edge.handle_packet_in(NOW, frame.bytes(), &mut out);
                assert_ne!(verdict, Verdict::Left);
                let said = messages(out);
                assert_eq!(kinds(&said), expected);
                let names_buffer =
                    |m: &Message| matches!(m, Message::FlowMod(m) if m.buffer_id.is_some());
                assert!(!said.iter().any(names_buffer));
            }
            edge = self::edge(Version::V13);
        }
    }

    #[test]
    fn an_entry_for_a_buffered_packet_sends_it_too() {
        let mut edge = edge(Version::V10);
        let first = asked(&mut edge, NOW, A, B, 1, Some(BufferId(7))).unwrap();
        assert_eq!(kinds(&first), ["add"]);
        assert!(matches!(&first[0], Message::FlowMod(m) if m.buffer_id == Some(BufferId(7))));
        let again = asked(&mut edge, NOW, A, B, 1, Some(BufferId(8))).unwrap();
        assert!(matches!(&again[..], [Message::PacketOut(m)] if m.buffer_id == Some(BufferId(8))));
    }

    #[test]
    fn whatever_it_was_not_told_is_the_controllers() {
        let mut edge = edge(Version::V13);
        let stranger = MacAddr([2, 0, 0, 0, 0, 0xc]);
        assert_eq!(asked(&mut edge, NOW, A, stranger, 1, None), None);
        assert_eq!(asked(&mut edge, NOW, stranger, B, 1, None), None);
        assert_eq!(asked(&mut edge, NOW, A, B, 2, None), None, "not from there");
        assert_eq!(asked(&mut edge, NOW, A, B, 3, None), None, "no such port");
        assert_eq!(asked(&mut edge, NOW, A, MacAddr::BROADCAST, 1, None), None);
        said(
            &mut edge,
            [EdgeUpdate::Host {
                host: HostKey::untagged(B),
                port: PortNo(1),
            }],
        );
        assert_eq!(
            asked(&mut edge, NOW, A, B, 1, None),
            None,
            "both are behind one port"
        );
        said(
            &mut edge,
            [EdgeUpdate::Host {
                host: HostKey::untagged(B),
                port: PortNo(9),
            }],
        );
        assert_eq!(
            asked(&mut edge, NOW, B, A, 9, None),
            None,
            "not an open port"
        );
        assert_eq!(edge.counters(), EdgeCounters::default());
    }

    #[test]
    fn the_controller_is_shown_a_packet_of_each_port_now_and_then() {
        for version in [Version::V10, Version::V13] {
            let mut edge = edge(version);
            let frame = packet_in(version, A, B, 1, None);
            let mut seen = Vec::new();
            for n in 0..3000u32 {
                let now = NOW + SHOW_INTERVAL / 1000 * n;
                let verdict = edge.handle_packet_in(now, frame.bytes(), &mut BytesMut::new());
                assert_ne!(verdict, Verdict::Left, "and every one is answered here");
                if verdict == Verdict::Show {
                    seen.push(n);
                }
            }
            assert_eq!(seen, [0, 1000, 2000]);
            let (Ok(Message::PacketIn(mut as_shown)), Ok(Message::PacketIn(original))) =
                (decode(&shown(frame.bytes())), decode(&frame))
            else {
                panic!("still a packet-in");
            };
            assert_eq!(as_shown.reason, SHOWN);
            as_shown.reason = original.reason;
            assert_eq!(as_shown, original);
        }
    }

    /// A packet that the controller delivered need not be shown; but ARP and IPv6 show nothing
    /// about IPv4.
    #[test]
    fn a_packet_that_the_controller_has_delivered_stands_for_the_next_of_its_kind() {
        for (eth_type, verdict) in [
            ([0x08, 0x00], Verdict::Answered),
            ([0x08, 0x06], Verdict::Show),
            ([0x86, 0xdd], Verdict::Show),
        ] {
            let mut edge = edge(Version::V13);
            let data = [&B.0[..], &A.0, &eth_type, &[0; 46]].concat().into();
            let deliver = EdgeUpdate::Deliver(Box::new(Deliver {
                vlan: VlanId::NONE,
                now: NOW,
                in_port: PortNo(1),
                src: A,
                dst: B,
                exit: Exit::Port(PortNo(2)),
                buffer_id: None,
                data,
            }));
            said(&mut edge, [deliver]);
            let frame = packet_in(Version::V13, A, B, 1, None);
            let next = edge.handle_packet_in(NOW, frame.bytes(), &mut BytesMut::new());
            assert_eq!(next, verdict, "{eth_type:x?}");
        }
    }

    #[test]
    fn a_port_that_closes_takes_its_entries_and_hosts_with_it() {
        let mut edge = edge(Version::V13);
        let deletes = said(&mut edge, [close(2, &[B])]);
        let [Message::FlowMod(from), Message::FlowMod(to)] = &deletes[..] else {
            panic!("{deletes:?}");
        };
        assert_eq!(from.r#match, Match::any().with_in_port(PortNo(2)));
        assert_eq!((&to.r#match, to.out_port), (&Match::any(), PortNo(2)));
        for delete in [from, to] {
            assert_eq!(delete.command, FlowModCommand::Delete);
            assert_eq!(delete.cookie, EntryKind::Local.cookie(0));
            assert_eq!(delete.cookie_mask, Cookie(0xffff_ffff_0000_ff00));
        }
        assert_eq!(asked(&mut edge, NOW, A, B, 1, None), None);
        assert_eq!(edge.host_count(), 1);
        // Another port takes its index, without any host of the old port.
        said(&mut edge, [EdgeUpdate::Open(PortNo(5))]);
        assert_eq!(asked(&mut edge, NOW, B, A, 5, None), None);
        assert_eq!(asked(&mut edge, NOW, B, A, 2, None), None);
    }

    #[test]
    fn in_1_0_a_closing_port_names_its_hosts_as_long_as_they_are_few() {
        let mut edge = edge(Version::V10);
        let deletes = said(&mut edge, [close(2, &[B])]);
        let found = deletes.iter().map(|m| match m {
            Message::FlowMod(m) => (m.r#match.clone(), m.out_port),
            other => panic!("{other:?}"),
        });
        let found: Vec<_> = found.collect();
        let from = Match::any().with_in_port(PortNo(2)).with_eth_src(B);
        let to = Match::any().with_eth_dst(B);
        assert_eq!(found, [(from, PortNo::ANY), (to, PortNo(2))]);
    }

    #[test]
    fn a_host_that_left_takes_its_entries_with_it_and_one_in_question_does_not() {
        let mut edge = edge(Version::V13);
        assert!(said(&mut edge, [EdgeUpdate::Watch(HostKey::untagged(B))]).is_empty());
        assert_eq!(asked(&mut edge, NOW, A, B, 1, None), None);
        said(
            &mut edge,
            [EdgeUpdate::Host {
                host: HostKey::untagged(B),
                port: PortNo(2),
            }],
        );
        assert!(asked(&mut edge, NOW, A, B, 1, None).is_some());
        let deletes = said(&mut edge, [EdgeUpdate::Forget(HostKey::untagged(B))]);
        assert_eq!(kinds(&deletes), ["delete", "delete"]);
        assert_eq!(asked(&mut edge, NOW, A, B, 1, None), None);
        // The pair's entry was sent a moment ago, but it has been deleted since.
        said(
            &mut edge,
            [EdgeUpdate::Host {
                host: HostKey::untagged(B),
                port: PortNo(2),
            }],
        );
        let answer = asked(&mut edge, NOW, A, B, 1, None).unwrap();
        assert_eq!(kinds(&answer), ["packet-out", "add"]);
    }

    #[test]
    fn other_timeouts_are_those_of_the_entries_that_follow() {
        let mut edge = edge(Version::V13);
        let (idle_s, hard_s) = (5, 9);
        said(&mut edge, [EdgeUpdate::Timeouts { idle_s, hard_s }]);
        let answer = asked(&mut edge, NOW, A, B, 1, None).unwrap();
        let Message::FlowMod(entry) = &answer[1] else {
            panic!("no entry: {answer:?}");
        };
        assert_eq!((entry.idle_timeout, entry.hard_timeout), (5, 9));
    }

    /// A third pair's packet is still forwarded, and shown once; the next grant restarts the count.
    #[test]
    fn no_more_entries_are_made_than_were_granted() {
        let mut edge = edge(Version::V13);
        said(&mut edge, [EdgeUpdate::Grant(1)]);
        let pairs = [(A, B, 1), (B, A, 2)];
        let ask = |edge: &mut Edge, at, (src, dst, port)| {
            let frame = packet_in(Version::V13, src, dst, port, None);
            let mut out = BytesMut::new();
            let verdict = edge.handle_packet_in(at, frame.bytes(), &mut out);
            (verdict, kinds(&messages(out)).len())
        };
        // Each port's first packet is shown anyway.
        assert_eq!(pairs.map(|pair| ask(&mut edge, NOW, pair).1), [2, 1]);
        let later = NOW + REPEAT_INTERVAL;
        let answered = (Verdict::Answered, 1);
        assert_eq!(pairs.map(|pair| ask(&mut edge, later, pair)), [answered; 2]);
        assert_eq!(edge.counters().entries_withheld, 3);
        said(&mut edge, [EdgeUpdate::Grant(1)]);
        let shown = [(Verdict::Answered, 2), (Verdict::Show, 1)];
        assert_eq!(pairs.map(|pair| ask(&mut edge, later, pair)), shown);
        assert_eq!(ask(&mut edge, later, (B, A, 2)), answered, "shown once");
        said(&mut edge, [EdgeUpdate::Grant(u32::MAX)]);
        let later = later + REPEAT_INTERVAL;
        assert_eq!(pairs.map(|pair| ask(&mut edge, later, pair).1), [2, 2]);
    }

    #[test]
    fn a_full_table_gets_no_more_entries_for_a_while() {
        let mut edge = edge(Version::V13);
        let until = NOW + Duration::from_millis(700);
        said(&mut edge, [EdgeUpdate::Pause(until)]);
        let answer = asked(&mut edge, NOW, A, B, 1, None).unwrap();
        assert_eq!(kinds(&answer), ["packet-out"]);
        let answer = asked(&mut edge, until, A, B, 1, None).unwrap();
        assert_eq!(kinds(&answer), ["packet-out", "add"]);
    }

    /// A switch reconnects in another version within its grace: its former ports may have numbers
    /// that this version cannot encode.
    #[test]
    fn a_port_that_the_version_cannot_name_is_passed_over() {
        let mut edge = edge(Version::V10);
        for hosts in [&[][..], &[A]] {
            assert!(said(&mut edge, [close(0x1_0001, hosts)]).is_empty());
        }
        let deliver = |in_port, out_port| {
            EdgeUpdate::Deliver(Box::new(Deliver {
                vlan: VlanId::NONE,
                now: NOW,
                in_port: PortNo(in_port),
                src: A,
                dst: B,
                exit: Exit::Port(PortNo(out_port)),
                buffer_id: None,
                data: Bytes::from_static(&[0; 20]),
            }))
        };
        // Truncated to 16 bits, the number would name another port.
        for (in_port, out_port) in [(1, 0x1_0002), (0x1_0001, 2)] {
            assert!(said(&mut edge, [deliver(in_port, out_port)]).is_empty());
        }
        let host = EdgeUpdate::Host {
            host: HostKey::untagged(A),
            port: PortNo(0x1_0001),
        };
        assert!(said(&mut edge, [EdgeUpdate::Open(PortNo(0x1_0001)), host]).is_empty());
        assert!(asked(&mut edge, NOW, A, B, 1, None).is_some());
    }
}
