//! Routing entries at the switch where packets come in: one for each sender and address, or for
//! each sender and network behind a next hop.
//!
//! The entry does a router's work (one hop less, new Ethernet addresses) and then forwards the
//! packet like any other of the target's VLAN. The controller keeps a [`Flows`] of the entries it
//! has set, since no field of an entry names its target: when the target moves, the controller
//! finds its entries here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::message::{ErrorMessage, FlowMod, FlowModCommand, FlowModFlags, FlowRemoved};
use openflow::multipart::FlowStats;
use openflow::{
    Action, Cookie, DatapathId, ErrorKind, Field, Instruction, MacAddr, Match, MatchField, PortNo,
};

use crate::Location;
use crate::entry::{COOKIE_PREFIX, COOKIE_PREFIX_MASK, EntryKind, generation, is_earlier};
use crate::fabric::form::Place;
use crate::fabric::{Exit, form};
use crate::timeouts::Prefix;
use crate::vlan::{self, Form, HostKey};

use super::Hop;

/// The priority: above the entries of pairs, and below those that forbid packets or watch hosts.
const PRIORITY_ROUTED: u16 = 2300;

/// An entry ends after this many seconds without a packet.
const IDLE_TIMEOUT_S: u16 = 60;
/// An entry ends after this many seconds in any case, so that its next packet is judged again.
const HARD_TIMEOUT_S: u16 = 600;
/// The time by which a switch has ended an entry, whatever its clock.
const ENDED_AFTER: Duration = Duration::from_secs(660);

/// Maximum number of entries of all switches, of one switch, and of one port. Packets of further
/// flows go through the controller.
pub const FLOWS_MAX: usize = 262_144;
pub const FLOWS_PER_SWITCH_MAX: usize = 32_768;
pub const FLOWS_PER_PORT_MAX: usize = 8_192;

/// Minimum time before an entry is sent again for packets that were already under way.
const REPEAT_INTERVAL: Duration = Duration::from_millis(500);

const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;

/// The identity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// The port where its packets come in.
    pub at: Location,
    /// The VLAN id in the packets' tags.
    pub tag: Option<u16>,
    pub src: MacAddr,
    /// The Ethernet address of the gateway to which the packets are sent.
    pub gateway: MacAddr,
    /// The destination addresses of the packets.
    pub to: Prefix,
}

/// The path of an entry's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender.
    pub from: HostKey,
    pub hop: Hop,
    /// The host that owns the address of the next hop.
    pub target: HostKey,
    /// The gateway's address in the target's VLAN.
    pub gateway: MacAddr,
    /// The exit; `IN_PORT` is the port where the packets come in.
    pub exit: Exit,
    /// The form of the target's VLAN at the port of the exit.
    pub form: Form,
}

impl FlowKey {
    /// The first key of a port, in key order.
    fn first(at: Location) -> FlowKey {
        FlowKey {
            at,
            tag: None,
            src: MacAddr::default(),
            gateway: MacAddr::default(),
            to: Prefix::of(IpAddr::V4(0.into()), 0),
        }
    }

    fn to_match(self) -> Match {
        let m = Match::any().with_in_port(self.at.port);
        let m = m.with_eth_dst(self.gateway).with_eth_src(self.src);
        let (eth_type, field, first) = match self.to.ip() {
            IpAddr::V4(ip) => (ETH_TYPE_IPV4, Field::Ipv4Dst, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => (ETH_TYPE_IPV6, Field::Ipv6Dst, u128::from(ip)),
        };
        let m = m.with(Field::EthType, eth_type);
        let hosts = field.ones().checked_shr(self.to.bits().into()).unwrap_or(0);
        let m = match self.to.bits() {
            0 => m,
            _ if hosts == 0 => m.with(field, first),
            _ => m.with_masked(field, first, field.ones() & !hosts),
        };
        vlan::with_tag(m, self.tag)
    }

    /// Reads the match of an entry at a switch; `None` if no entry here has it.
    pub fn from_match(dpid: DatapathId, m: &Match) -> Option<FlowKey> {
        let field = match m.exact(Field::EthType)? as u16 {
            ETH_TYPE_IPV4 => Field::Ipv4Dst,
            ETH_TYPE_IPV6 => Field::Ipv6Dst,
            _ => return None,
        };
        let (first, mask) = m.get(field).unwrap_or((0, 0));
        let ip = match field {
            Field::Ipv4Dst => IpAddr::V4((first as u32).into()),
            _ => IpAddr::V6(first.into()),
        };
        let to = Prefix::of(ip, mask.count_ones() as u8);
        let mac = |field| Some(MacAddr::from_u64(m.exact(field)? as u64));
        let vid = m.exact(Field::VlanVid)? as u16;
        let port = m.in_port()?;
        Some(FlowKey {
            at: Location { dpid, port },
            tag: (vid != 0).then_some(vid & 0xfff),
            src: mac(Field::EthSrc)?,
            gateway: mac(Field::EthDst)?,
            to,
        })
    }

    /// The message that deletes the entry, and no other entry.
    pub fn to_delete(self) -> FlowMod {
        FlowMod {
            command: FlowModCommand::DeleteStrict,
            cookie: COOKIE_PREFIX,
            cookie_mask: COOKIE_PREFIX_MASK,
            instructions: Vec::new(),
            ..FlowMod::add(PRIORITY_ROUTED, self.to_match(), Vec::new())
        }
    }
}

impl Flow {
    /// The message that sets the entry. `label_tag`: the EtherType of the fabric's tag.
    pub fn to_add(&self, key: FlowKey, label_tag: u16, generation: u16) -> FlowMod {
        FlowMod {
            cookie: EntryKind::Routed.cookie(generation),
            idle_timeout: IDLE_TIMEOUT_S,
            hard_timeout: HARD_TIMEOUT_S,
            flags: FlowModFlags::SEND_FLOW_REM,
            ..FlowMod::add(
                PRIORITY_ROUTED,
                key.to_match(),
                self.actions(key, label_tag),
            )
        }
    }

    /// Whether an entry reported by a switch is the one set for this flow.
    pub fn is_row(&self, key: FlowKey, label_tag: u16, row: &FlowStats) -> bool {
        let own = self.to_add(key, label_tag, 0);
        let place = |m: &FlowMod| Place::of_entry(m.table_id, m.priority, &m.r#match);
        let is_like = (row.idle_timeout, row.hard_timeout) == (IDLE_TIMEOUT_S, HARD_TIMEOUT_S);
        is_like
            && place(&own) == Place::of_entry(row.table_id, row.priority, &row.r#match)
            && own.instructions == row.instructions
    }

    /// Reads the target of an entry and the exit towards it.
    pub fn read_way(row: &FlowStats) -> Option<(MacAddr, Exit)> {
        let [Instruction::ApplyActions(actions)] = &row.instructions[..] else {
            return None;
        };
        let [_, _, Action::SetField(MatchField::Basic { value, .. }), ..] = &actions[..] else {
            return None;
        };
        let exit = match actions.last()? {
            Action::Group(id) => Exit::Egress(form::label_of(*id)?),
            Action::Output { port, .. } => Exit::Port(*port),
            _ => return None,
        };
        Some((MacAddr::from_u64(*value as u64), exit))
    }

    /// The TTL is decremented first: a packet with no hops left goes to the controller unchanged.
    fn actions(&self, key: FlowKey, label_tag: u16) -> Vec<Action> {
        let mut actions = vec![
            Action::DecNwTtl,
            set(Field::EthSrc, self.gateway),
            set(Field::EthDst, self.target.mac),
        ];
        match self.exit {
            Exit::Egress(label) => {
                actions.extend(key.tag.map(|_| Action::PopVlan));
                actions.extend(form::ingress_actions(label_tag, label));
            }
            Exit::Port(port) => {
                actions.extend(vlan::output(key.tag, self.hop.vlan, self.form, port));
            }
        }
        actions
    }
}

fn set(field: Field, mac: MacAddr) -> Action {
    Action::SetField(MatchField::exact(field, mac.to_u64().into()))
}

/// Whether an error refuses a routing entry. The error repeats the beginning of the message.
pub fn is_refused(error: &ErrorMessage) -> bool {
    const FLOW_MOD: u8 = 14;
    const COOKIE: std::ops::Range<usize> = 8..16;
    let cookie = error.data.get(COOKIE).and_then(|it| it.try_into().ok());
    let cookie = Cookie(cookie.map_or(0, u64::from_be_bytes));
    // A port or a group may have been removed meanwhile.
    let is_passing = [
        ErrorKind::FLOW_MOD_TABLE_FULL,
        ErrorKind::ACTION_BAD_OUT_PORT,
        ErrorKind::ACTION_BAD_OUT_GROUP,
    ];
    error.data.get(1) == Some(&FLOW_MOD)
        && EntryKind::of(cookie) == Some(EntryKind::Routed)
        && !is_passing.contains(&error.kind)
}

struct Record {
    flow: Flow,
    sent_at: Instant,
    /// The generation in its cookie.
    generation: u16,
}

/// The entries that switches may have.
#[derive(Default)]
pub struct Flows {
    records: BTreeMap<FlowKey, Record>,
    /// The keys of the entries by their sender and target, and by their next hop.
    by_host: BTreeMap<HostKey, BTreeSet<FlowKey>>,
    by_hop: BTreeMap<Hop, BTreeSet<FlowKey>>,
    /// The keys in the order in which the entries were sent.
    by_age: BTreeSet<(Instant, FlowKey)>,
    ports: BTreeMap<Location, usize>,
    switches: BTreeMap<DatapathId, usize>,
}

impl Flows {
    /// Records an entry. Returns whether to send it: not if there is no room, nor if it was sent a
    /// moment ago.
    pub fn set(&mut self, now: Instant, (key, flow): (FlowKey, Flow), generation: u16) -> bool {
        self.forget_ended(now);
        if let Some(record) = self.records.get(&key) {
            let is_same = record.flow == flow;
            if is_same && now.since(record.sent_at) < REPEAT_INTERVAL {
                return false;
            }
            self.remove(key);
        }
        self.note((key, flow), (now, generation))
    }

    /// Records an entry found on a switch, perhaps of an earlier process. Returns whether it stays.
    pub fn adopt(&mut self, (key, flow): (FlowKey, Flow), sent: (Instant, u16)) -> bool {
        match self.records.get(&key) {
            Some(record) => record.flow == flow,
            None => self.note((key, flow), sent),
        }
    }

    fn note(
        &mut self,
        (key, flow): (FlowKey, Flow),
        (sent_at, generation): (Instant, u16),
    ) -> bool {
        if !self.has_room(key.at) {
            return false;
        }
        let record = Record {
            flow,
            sent_at,
            generation,
        };
        self.records.insert(key, record);
        for host in [flow.from, flow.target] {
            self.by_host.entry(host).or_default().insert(key);
        }
        self.by_hop.entry(flow.hop).or_default().insert(key);
        self.by_age.insert((sent_at, key));
        *self.ports.entry(key.at).or_default() += 1;
        *self.switches.entry(key.at.dpid).or_default() += 1;
        true
    }

    fn has_room(&self, at: Location) -> bool {
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        self.records.len() < FLOWS_MAX
            && of(self.ports.get(&at)) < FLOWS_PER_PORT_MAX
            && of(self.switches.get(&at.dpid)) < FLOWS_PER_SWITCH_MAX
    }

    /// Forgets the entries that have timed out, in case the switch's report has not arrived.
    fn forget_ended(&mut self, now: Instant) {
        while let Some((sent_at, key)) = self.by_age.first().copied()
            && now.since(sent_at) >= ENDED_AFTER
        {
            self.remove(key);
        }
    }

    /// Forgets an entry that a switch reports as ended, unless the report is about an earlier entry
    /// with the same key.
    pub fn handle_removed(&mut self, now: Instant, key: FlowKey, removed: &FlowRemoved) {
        let record = self.records.get(&key);
        let record = record.filter(|it| it.generation == generation(removed.cookie));
        let timeouts = (IDLE_TIMEOUT_S, HARD_TIMEOUT_S);
        if record.is_some_and(|it| !is_earlier(removed, Some(now.since(it.sent_at)), timeouts)) {
            self.remove(key);
        }
    }

    /// Forgets an entry.
    pub fn remove(&mut self, key: FlowKey) -> Option<Flow> {
        let Record { flow, sent_at, .. } = self.records.remove(&key)?;
        for host in [flow.from, flow.target] {
            take(&mut self.by_host, host, key);
        }
        take(&mut self.by_hop, flow.hop, key);
        self.by_age.remove(&(sent_at, key));
        lower(&mut self.ports, key.at);
        lower(&mut self.switches, key.at.dpid);
        Some(flow)
    }

    /// The entries from and to a host.
    pub fn of_host(&self, host: HostKey) -> Vec<FlowKey> {
        let keys = self.by_host.get(&host);
        keys.map_or(Vec::new(), |keys| keys.iter().copied().collect())
    }

    /// The entries over a next hop whose target is a host other than `owner`.
    pub fn astray(&self, hop: Hop, owner: Option<MacAddr>) -> Vec<FlowKey> {
        let keys = self.by_hop.get(&hop).into_iter().flatten();
        let is_astray = |key: &&FlowKey| {
            let record = self.records.get(key);
            record.is_some_and(|record| Some(record.flow.target.mac) != owner)
        };
        keys.filter(is_astray).copied().collect()
    }

    /// The entries that match packets of a port.
    pub fn of_port(&self, at: Location) -> Vec<FlowKey> {
        let keys = self.records.range(FlowKey::first(at)..);
        let keys = keys.map(|(key, _)| *key);
        keys.take_while(|key| key.at == at).collect()
    }

    pub fn all(&self) -> impl Iterator<Item = (FlowKey, &Flow)> {
        self.records
            .iter()
            .map(|(key, record)| (*key, &record.flow))
    }

    /// The entries of a switch.
    pub fn of_switch(&self, dpid: DatapathId) -> Vec<FlowKey> {
        let port = PortNo(0);
        let first = FlowKey::first(Location { dpid, port });
        let keys = self.records.range(first..).map(|(key, _)| *key);
        keys.take_while(|key| key.at.dpid == dpid).collect()
    }

    /// Forgets the entries of a switch, which has lost them or is about to.
    pub fn forget_switch(&mut self, dpid: DatapathId) {
        for key in self.of_switch(dpid) {
            self.remove(key);
        }
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Removes an entry from an index.
fn take<K: Ord>(index: &mut BTreeMap<K, BTreeSet<FlowKey>>, of: K, key: FlowKey) {
    if let Some(keys) = index.get_mut(&of) {
        keys.remove(&key);
        if keys.is_empty() {
            index.remove(&of);
        }
    }
}

fn lower<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
