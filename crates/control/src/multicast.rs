//! Multicast snooping (RFC 4541): learns from hosts' messages which ports receive which group.
//!
//! [`Membership`] handles the IGMP, MLD and PIM messages of each VLAN. It sends nothing itself: its
//! outputs report which port joins or leaves a group, where routers are, and which queries to send.
//! [`openflow::packet::membership`] reads and writes the frames.
//!
//! A membership covers all sources. An IGMPv3 or MLDv2 record with sources joins the group,
//! whatever the sources are, and `INCLUDE {}` leaves it; RFC 4541 (2.1.2) allows this. A host may
//! leave its last source with a `BLOCK` record, so the port is queried, as after a leave.
//!
//! Hosts may send anything. Messages at one port never end a membership of another port:
//! - A leave, a version or a router at one port affects that port alone.
//! - Queries from other queriers lengthen timers, and never shorten them. A query that asks for a
//!   longer silence than [`Config::silence_max`] is refused.
//! - A general query keeps all memberships of its VLAN until hosts have had the time to answer. So
//!   no membership ends because a querier leaves, is new, or has odd times.
//! - Room is shared by ports: see [`Config`].
//!
//! The contract is the same as for the other state machines: call a `handle_*` or
//! [`Membership::due`], drain [`Membership::poll_output`], then wait for input or for
//! [`Membership::next_due`]. The caller forwards received queries to all ports of the VLAN, and
//! reports to router ports alone.

mod querier;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{Duration, Instant};
use openflow::packet::membership::{ExtendedQuery, Heard, Message, Query, Record, RecordKind};

use crate::Location;
use crate::vlan::VlanId;

use querier::Network;
pub use querier::{Querier, QuerierAddresses};

/// Time for a query and its answers to pass through the network.
const TRANSIT: Duration = Duration::from_secs(1);

/// Timers (RFC 3376, 8, and RFC 3810, 9) and bounds.
///
/// Beyond a bound, new groups are refused and counted; existing groups stay. Ports share the room:
/// a port gets no new group once its groups amount to a quarter of the room left. So a port that
/// asks for every group leaves room for later ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of queries or answers of which one is assumed to arrive.
    pub robustness: u8,
    /// Time between general queries.
    pub query_interval: Duration,
    /// Time that hosts have to answer a general query.
    pub response_interval: Duration,
    /// Time that hosts have to answer a query for one group, and time between two such queries.
    pub last_member_interval: Duration,
    /// The number of queries after a leave.
    pub last_member_count: u8,
    /// Whether a leave ends the membership of its port at once: right where each port has one host.
    pub is_fast_leave: bool,
    /// Whether queries use IGMPv3 and MLDv2; otherwise they use IGMPv2 and MLDv1. Hosts of older
    /// versions understand either.
    pub is_extended: bool,
    /// The longest silence that a querier or router may ask for.
    pub silence_max: Duration,
    /// Groups of one port, in all its VLANs.
    pub groups_per_port_max: usize,
    /// Groups of one VLAN.
    pub groups_per_vlan_max: usize,
    /// Groups of all VLANs.
    pub groups_max: usize,
    /// Memberships of all ports.
    pub memberships_max: usize,
    /// Router ports of all VLANs; a port of two VLANs counts twice.
    pub router_ports_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            robustness: 2,
            query_interval: Duration::from_secs(125),
            response_interval: Duration::from_secs(10),
            last_member_interval: Duration::from_secs(1),
            last_member_count: 2,
            is_fast_leave: false,
            is_extended: true,
            silence_max: Duration::from_secs(2 * 3600),
            groups_per_port_max: 1024,
            groups_per_vlan_max: 4096,
            groups_max: 8192,
            memberships_max: 65_536,
            router_ports_max: 65_536,
        }
    }
}

impl Config {
    /// The time from the last report to the end of a membership: the group membership interval (RFC
    /// 3376, 8.4).
    pub fn membership_interval(&self) -> Duration {
        self.query_interval * u32::from(self.robustness) + self.response_interval
    }

    /// The time from a leave to the end of the membership if no host answers (RFC 3376, 8.8.1).
    pub fn last_member_time(&self) -> Duration {
        self.last_member_interval * u32::from(self.last_member_count)
    }
}

/// The address family. Each family has its own queriers and routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::Ipv4, Family::Ipv6];

    pub fn new(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        }
    }

    fn unspecified(self) -> IpAddr {
        match self {
            Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// An action for the caller, or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Output {
    /// The port now receives the group because of a host.
    Joined {
        vlan: VlanId,
        group: IpAddr,
        at: Location,
    },
    /// The port no longer has a host that wants the group. A router port receives it nevertheless.
    Left {
        vlan: VlanId,
        group: IpAddr,
        at: Location,
    },
    /// A router is behind the port: it receives all groups of the family.
    RouterFound {
        vlan: VlanId,
        family: Family,
        at: Location,
    },
    /// No router is behind the port any more.
    RouterLost {
        vlan: VlanId,
        family: Family,
        at: Location,
    },
    /// A query for the hosts of one port, or of all ports of the VLAN. A query for one port is not
    /// sent to a router port. From `0.0.0.0`, it elects no querier anywhere else either. IPv6 has
    /// no such address.
    Ask {
        vlan: VlanId,
        to: Option<Location>,
        query: Query,
    },
}

/// Counters of refused groups, records, routers and queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Groups of a port that already has its maximum of groups.
    pub beyond_port: u64,
    /// Groups for which the VLAN, or the machine, had no room left.
    pub beyond_room: u64,
    /// Group records after the first ones of a report.
    pub records: u64,
    /// Queries and hellos of routers for which there was no room.
    pub routers: u64,
    /// Queries whose times are beyond [`Config::silence_max`].
    pub queries: u64,
}

/// Reports whether the members of a group are tracked. All ports receive the link-local groups,
/// 224.0.0.0/24 (RFC 4541, 2.1.2) and ff02::/16, and groups of smaller scope. RFC 4541 (3) would
/// let a switch prune ff02::/16 except ff02::1. But each host has a group of its own there, through
/// which neighbours ask for its address. Tracking these takes many groups, and a lost group cuts
/// the host off.
pub fn is_tracked(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group.octets()[..3] != [224, 0, 0],
        IpAddr::V6(group) => {
            let [first, scope, ..] = group.octets();
            first == 0xff && scope & 0xf > 2
        }
    }
}

type GroupKey = (VlanId, IpAddr);
type NetworkKey = (VlanId, Family);

/// The members of all groups.
#[derive(Debug)]
pub struct Membership {
    config: Config,
    groups: BTreeMap<GroupKey, BTreeMap<Location, Member>>,
    /// The number of groups of each VLAN.
    vlan_groups: BTreeMap<VlanId, usize>,
    membership_count: usize,
    /// The time at which each router port ends, unless its router sends again.
    routers: BTreeMap<NetworkKey, BTreeMap<Location, Instant>>,
    router_count: usize,
    networks: BTreeMap<NetworkKey, Network>,
    ports: BTreeMap<Location, Port>,
    /// Exactly one entry for each time in the other fields.
    timers: BTreeSet<(Instant, Timer)>,
    outputs: VecDeque<Output>,
    refused: Refused,
}

/// A port's membership in a group.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The end of the membership, unless a host reports again or the VLAN is held.
    until: Instant,
    /// Until this time, the port may have a host that does not answer queries for one group.
    igmp1_until: Option<Instant>,
    /// After a leave: the queries still to send, and the time of the next one.
    asking: Option<(u8, Instant)>,
}

/// The groups and the routers of a port.
#[derive(Debug, Default)]
struct Port {
    groups: BTreeSet<GroupKey>,
    routers: BTreeSet<NetworkKey>,
}

/// Events with a set time. At equal times the end of a querier goes first: it makes another
/// querier, which holds memberships.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    OtherQuerier(NetworkKey),
    OwnQuery(NetworkKey),
    Held(NetworkKey),
    Ask(GroupKey, Location),
    Member(GroupKey, Location),
    Router(NetworkKey, Location),
}

impl Membership {
    pub fn new(config: Config) -> Membership {
        Membership {
            config,
            groups: BTreeMap::new(),
            vlan_groups: BTreeMap::new(),
            membership_count: 0,
            routers: BTreeMap::new(),
            router_count: 0,
            networks: BTreeMap::new(),
            ports: BTreeMap::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            refused: Refused::default(),
        }
    }

    /// Handles a message received at a port that is a member of the VLAN.
    pub fn handle_message(&mut self, now: Instant, vlan: VlanId, at: Location, heard: &Heard) {
        self.due(now);
        match &heard.message {
            Message::Query(query) => self.query(now, vlan, at, heard.from, query),
            Message::Join { group, is_igmp1 } => self.join(now, (vlan, *group), at, *is_igmp1),
            Message::Leave { group } => self.leave(now, (vlan, *group), at, true),
            Message::Records { records, beyond } => {
                self.refused.records += u64::from(*beyond);
                for record in records {
                    self.record(now, vlan, at, record);
                }
            }
            // A router that announces its departure may not be the only router behind its port.
            Message::PimHello { hold } if hold.is_zero() => {}
            Message::PimHello { hold } => {
                let until = now + (*hold).min(self.config.silence_max);
                self.router((vlan, Family::new(heard.from)), at, until);
            }
        }
    }

    /// Forgets a port that has disappeared, or that now connects to another switch.
    pub fn handle_port_gone(&mut self, now: Instant, at: Location) {
        self.due(now);
        let Some(port) = self.ports.get(&at) else {
            return;
        };
        let (groups, routers) = (port.groups.clone(), port.routers.clone());
        groups.into_iter().for_each(|key| self.remove(key, at));
        for key in routers {
            self.remove_router(now, key, at);
        }
    }

    /// Forgets the memberships and routers of a VLAN's former ports.
    pub fn handle_vlan_ports(
        &mut self,
        now: Instant,
        vlan: VlanId,
        is_member: impl Fn(Location) -> bool,
    ) {
        self.due(now);
        let gone = |port: &(&Location, &Port)| !is_member(*port.0);
        let (mut groups, mut routers) = (Vec::new(), Vec::new());
        for (at, port) in self.ports.iter().filter(gone) {
            let of_vlan = port.groups.iter().filter(|key| key.0 == vlan);
            groups.extend(of_vlan.map(|key| (*key, *at)));
            let of_vlan = port.routers.iter().filter(|key| key.0 == vlan);
            routers.extend(of_vlan.map(|key| (*key, *at)));
        }
        groups
            .into_iter()
            .for_each(|(key, at)| self.remove(key, at));
        for (key, at) in routers {
            self.remove_router(now, key, at);
        }
    }

    /// Handles all timers that are due by now.
    pub fn due(&mut self, now: Instant) {
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            match timer {
                Timer::OtherQuerier(key) => self.other_querier_ends(now, key),
                Timer::OwnQuery(key) => self.own_query(now, key),
                Timer::Held(key) => self.hold_ends(now, key),
                Timer::Ask(key, at) => self.ask(now, key, at),
                Timer::Member(key, at) => self.member_ends(now, key, at),
                Timer::Router(key, at) => self.drop_router(key, at),
            }
        }
    }

    /// The earliest time at which [`Membership::due`] has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next output, in the order in which things happened.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The ports with hosts that want a group.
    pub fn members(&self, vlan: VlanId, group: IpAddr) -> impl Iterator<Item = Location> + '_ {
        let members = self.groups.get(&(vlan, group)).into_iter();
        members.flat_map(|members| members.keys().copied())
    }

    /// The ports with routers.
    pub fn routers(&self, vlan: VlanId, family: Family) -> impl Iterator<Item = Location> + '_ {
        let routers = self.routers.get(&(vlan, family)).into_iter();
        routers.flat_map(|routers| routers.keys().copied())
    }

    /// The ports that receive a group: its members and the routers.
    pub fn receivers(&self, vlan: VlanId, group: IpAddr) -> BTreeSet<Location> {
        let members = self.members(vlan, group);
        members
            .chain(self.routers(vlan, Family::new(group)))
            .collect()
    }

    /// All groups with members.
    pub fn groups(&self) -> impl Iterator<Item = (VlanId, IpAddr)> + '_ {
        self.groups.keys().copied()
    }

    pub fn refused(&self) -> Refused {
        self.refused
    }

    fn record(&mut self, now: Instant, vlan: VlanId, at: Location, record: &Record) {
        use RecordKind as Kind;
        let key = (vlan, record.group);
        match (record.kind, record.source_count) {
            (Kind::IsInclude | Kind::ToInclude, 0) => self.leave(now, key, at, true),
            (Kind::Allow, 0) => {}
            (Kind::Block, _) => self.leave(now, key, at, false),
            _ => self.join(now, key, at, false),
        }
    }

    fn join(&mut self, now: Instant, key: GroupKey, at: Location, is_igmp1: bool) {
        if !is_tracked(key.1) {
            return;
        }
        let before = self.groups.get(&key).and_then(|it| it.get(&at)).copied();
        if before.is_none() && !self.has_room(key, at) {
            return;
        }
        let until = now + self.membership_interval((key.0, Family::new(key.1)));
        let igmp1_until = before.and_then(|it| it.igmp1_until);
        let member = Member {
            until,
            igmp1_until: if is_igmp1 { Some(until) } else { igmp1_until },
            asking: None,
        };
        match before {
            Some(before) => self.stop_timers(key, at, &before),
            None => {
                let port = self.ports.entry(at).or_default();
                port.groups.insert(key);
                self.membership_count += 1;
                let (vlan, group) = key;
                self.outputs.push_back(Output::Joined { vlan, group, at });
            }
        }
        let vlan_groups = &mut self.vlan_groups;
        let members = self.groups.entry(key).or_insert_with(|| {
            *vlan_groups.entry(key.0).or_default() += 1;
            BTreeMap::new()
        });
        members.insert(at, member);
        self.timers.insert((until, Timer::Member(key, at)));
    }

    /// Reports whether a port may become a member of one more group, and counts it if not.
    fn has_room(&mut self, (vlan, group): GroupKey, at: Location) -> bool {
        let config = &self.config;
        let held = self.ports.get(&at).map_or(0, |port| port.groups.len());
        if held >= config.groups_per_port_max {
            self.refused.beyond_port += 1;
            return false;
        }
        let mut room = config.memberships_max.saturating_sub(self.membership_count);
        if !self.groups.contains_key(&(vlan, group)) {
            let of_vlan = self.vlan_groups.get(&vlan).copied().unwrap_or_default();
            room = room
                .min(config.groups_max.saturating_sub(self.groups.len()))
                .min(config.groups_per_vlan_max.saturating_sub(of_vlan));
        }
        let has_room = is_shared(held, room);
        self.refused.beyond_room += u64::from(!has_room);
        has_room
    }

    /// Handles a host's leave by querying the other hosts of the port. `is_whole` if the host wants
    /// nothing of the group: then no query is needed where each port has one host.
    fn leave(&mut self, now: Instant, key: GroupKey, at: Location, is_whole: bool) {
        // A router port receives the group anyway.
        if self.is_router(key, at) {
            return;
        }
        let Some(member) = self.groups.get(&key).and_then(|it| it.get(&at)).copied() else {
            return;
        };
        if member.igmp1_until.is_some_and(|until| until > now) {
            return;
        }
        if is_whole && self.config.is_fast_leave {
            return self.remove(key, at);
        }
        if member.asking.is_some() {
            return;
        }
        self.stop_timers(key, at, &member);
        let until = now + self.config.last_member_time();
        let asking = Some((self.config.last_member_count, now));
        self.set_member(
            key,
            at,
            Member {
                until,
                asking,
                ..member
            },
        );
        self.due(now);
    }

    fn is_router(&self, (vlan, group): GroupKey, at: Location) -> bool {
        let routers = self.routers.get(&(vlan, Family::new(group)));
        routers.is_some_and(|routers| routers.contains_key(&at))
    }

    /// Asks the hosts of a port whether they are members of a group.
    fn ask(&mut self, now: Instant, key: GroupKey, at: Location) {
        let member = self.groups.get_mut(&key).and_then(|it| it.get_mut(&at));
        let Some((left, next)) = member.and_then(|it| it.asking.as_mut()) else {
            return;
        };
        (*left, *next) = (
            left.saturating_sub(1),
            now + self.config.last_member_interval,
        );
        if *left > 0 {
            self.timers.insert((*next, Timer::Ask(key, at)));
        }
        // The port may have become a router port. Its router must not take us for a querier.
        if self.is_router(key, at) {
            return;
        }
        let (vlan, group) = key;
        let query = self.own_words(group, self.config.last_member_interval);
        let to = Some(at);
        self.outputs.push_back(Output::Ask { vlan, to, query });
    }

    fn member_ends(&mut self, now: Instant, key: GroupKey, at: Location) {
        let Some(member) = self.groups.get(&key).and_then(|it| it.get(&at)).copied() else {
            return;
        };
        let network = self.networks.get(&(key.0, Family::new(key.1)));
        let held = network.and_then(|it| it.held_until);
        // Hosts that were queried for this group have had their time to answer.
        match held.filter(|held| *held > now && member.asking.is_none()) {
            Some(until) => self.set_member(key, at, Member { until, ..member }),
            None => self.remove(key, at),
        }
    }

    /// Replaces a member whose timers are stopped.
    fn set_member(&mut self, key: GroupKey, at: Location, member: Member) {
        self.timers.insert((member.until, Timer::Member(key, at)));
        if let Some((1.., next)) = member.asking {
            self.timers.insert((next, Timer::Ask(key, at)));
        }
        self.groups.entry(key).or_default().insert(at, member);
    }

    fn stop_timers(&mut self, key: GroupKey, at: Location, member: &Member) {
        self.timers.remove(&(member.until, Timer::Member(key, at)));
        if let Some((_, next)) = member.asking {
            self.timers.remove(&(next, Timer::Ask(key, at)));
        }
    }

    fn remove(&mut self, key: GroupKey, at: Location) {
        let Some(members) = self.groups.get_mut(&key) else {
            return;
        };
        let Some(member) = members.remove(&at) else {
            return;
        };
        let (vlan, group) = key;
        if members.is_empty() {
            self.groups.remove(&key);
            if let Some(count) = self.vlan_groups.get_mut(&vlan) {
                *count -= 1;
                if *count == 0 {
                    self.vlan_groups.remove(&vlan);
                }
            }
        }
        self.membership_count -= 1;
        self.stop_timers(key, at, &member);
        self.change_port(at, |port| port.groups.remove(&key));
        self.outputs.push_back(Output::Left { vlan, group, at });
    }

    /// Notes a router behind a port, until this time at least. Returns false if there is no room.
    fn router(&mut self, key: NetworkKey, at: Location, until: Instant) -> bool {
        let before = self.routers.get(&key).and_then(|it| it.get(&at)).copied();
        let until = before.map_or(until, |before| before.max(until));
        match before {
            Some(before) => drop(self.timers.remove(&(before, Timer::Router(key, at)))),
            None => {
                let held = self.ports.get(&at).map_or(0, |port| port.routers.len());
                let room = self.config.router_ports_max;
                if !is_shared(held, room.saturating_sub(self.router_count)) {
                    self.refused.routers += 1;
                    return false;
                }
                self.ports.entry(at).or_default().routers.insert(key);
                self.router_count += 1;
                let (vlan, family) = key;
                self.outputs
                    .push_back(Output::RouterFound { vlan, family, at });
            }
        }
        self.timers.insert((until, Timer::Router(key, at)));
        self.routers.entry(key).or_default().insert(at, until);
        true
    }

    /// Forgets a router port, and its querier.
    fn remove_router(&mut self, now: Instant, key: NetworkKey, at: Location) {
        self.querier_is_gone(now, key, at);
        self.drop_router(key, at);
    }

    fn drop_router(&mut self, key: NetworkKey, at: Location) {
        let Some(routers) = self.routers.get_mut(&key) else {
            return;
        };
        let Some(until) = routers.remove(&at) else {
            return;
        };
        if routers.is_empty() {
            self.routers.remove(&key);
        }
        self.router_count -= 1;
        self.timers.remove(&(until, Timer::Router(key, at)));
        self.change_port(at, |port| port.routers.remove(&key));
        let (vlan, family) = key;
        self.outputs
            .push_back(Output::RouterLost { vlan, family, at });
    }

    /// Removes something from a port, and forgets the port when nothing is left.
    fn change_port(&mut self, at: Location, take: impl FnOnce(&mut Port) -> bool) {
        if let Some(port) = self.ports.get_mut(&at) {
            take(port);
            if port.groups.is_empty() && port.routers.is_empty() {
                self.ports.remove(&at);
            }
        }
    }

    /// Builds our own query, for one group or for all.
    fn own_words(&self, group: IpAddr, response_max: Duration) -> Query {
        let config = &self.config;
        let extended = ExtendedQuery {
            suppress: false,
            // RFC 3376, 4.1.6: 0 stands for a number that does not fit in three bits.
            robustness: Some(config.robustness).filter(|it| *it < 8).unwrap_or(0),
            interval: config.query_interval,
            source_count: 0,
        };
        Query {
            group,
            response_max,
            extended: config.is_extended.then_some(extended),
        }
    }
}

/// Reports whether a port that has `held` items may have one more of the `room` left.
fn is_shared(held: usize, room: usize) -> bool {
    held * 4 < room
}

#[cfg(test)]
mod tests;
