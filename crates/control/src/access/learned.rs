//! Addresses that hosts have from a DHCP server. The ports of [`Access::by_dhcp`] are bound to
//! these addresses.
//!
//! A host sends a request at its port, and a server answers from a trusted port. The two messages
//! together bind the host's Ethernet address to its IP address at the host's port, until the lease
//! is over. Until then the address stays with its holder, whatever servers answer to other hosts.
//!
//! [`Access::by_dhcp`]: super::Access::by_dhcp

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::packet::dhcp::{Kind, Message};
use openflow::packet::ip::is_host;

use super::Binding;
use crate::Location;
use crate::vlan::VlanId;

/// The maximum number of hosts that one port learns.
pub const LEARNED_MAX: usize = 16;
/// The maximum number of hosts of one port with an unanswered request.
const ASKING_MAX: usize = 16;
/// A server answers within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The longest lease that is noted. Servers send the largest number for a lease without end.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// An entry set by an earlier process is valid for this time, because its end is not known.
const ADOPTED: Duration = Duration::from_secs(24 * 3600);

/// A host's unanswered request.
#[derive(Clone, Copy, Debug)]
struct Asking {
    vlan: VlanId,
    xid: u32,
    until: Instant,
}

/// The address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub vlan: VlanId,
    pub ip: Ipv4Addr,
    pub until: Instant,
    /// Whether an earlier process learned the lease, so that its end is not known. A server's
    /// answer takes precedence.
    pub is_adopted: bool,
}

/// The consequence of a server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The answer is not for a host that has asked, or gives no address.
    Nothing,
    /// The hosts of these ports have changed.
    Changed(BTreeSet<Location>),
    /// The host at this port gets no binding: its address belongs to another host until a later
    /// time.
    Taken {
        at: Location,
        ip: Ipv4Addr,
        holder: MacAddr,
    },
    /// The host at this port gets no binding: the port has as many as it may.
    Full { at: Location },
}

/// The addresses of all hosts at ports that are bound by DHCP.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    asking: BTreeMap<Location, BTreeMap<MacAddr, Asking>>,
    /// One for each VLAN, because a host may have an address in each VLAN of a trunk.
    leases: BTreeMap<Location, BTreeMap<(VlanId, MacAddr), Lease>>,
    holders: BTreeMap<(VlanId, Ipv4Addr), (Location, MacAddr)>,
}

impl Learned {
    /// Handles a client's message from the Ethernet address `src`. Returns whether the message may
    /// be forwarded: it must name its sender as the client, and release no address but the sender's
    /// own. A released address is forgotten.
    pub fn handle_request(
        &mut self,
        now: Instant,
        (vlan, at): (VlanId, Location),
        src: MacAddr,
        message: &Message,
    ) -> bool {
        if message.client != src || message.kind.is_of_server() {
            return false;
        }
        if message.kind == Kind::Release {
            let lease = self.lease(at, (vlan, src));
            let is_own = lease.is_some_and(|lease| lease.ip == message.client_ip);
            if is_own {
                self.remove(at, (vlan, src));
            }
            return is_own;
        }
        if matches!(message.kind, Kind::Discover | Kind::Request) {
            let of_port = self.asking.entry(at).or_default();
            of_port.retain(|_, asking| asking.until > now);
            if of_port.len() >= ASKING_MAX && !of_port.contains_key(&src) {
                let oldest = of_port.iter().min_by_key(|(_, asking)| asking.until);
                if let Some(mac) = oldest.map(|(mac, _)| *mac) {
                    of_port.remove(&mac);
                }
            }
            let asking = Asking {
                vlan,
                xid: message.xid,
                until: now + ANSWER_WITHIN,
            };
            of_port.insert(src, asking);
        }
        true
    }

    /// Handles a server's answer in a VLAN. `place`: the location of the client, if known.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        vlan: VlanId,
        place: Option<Location>,
        message: &Message,
    ) -> Answered {
        let client = message.client;
        let Some(at) = place else {
            return Answered::Nothing;
        };
        let asking = self
            .asking
            .get(&at)
            .and_then(|of_port| of_port.get(&client));
        let has_asked = asking.is_some_and(|asking| {
            asking.vlan == vlan && asking.xid == message.xid && asking.until > now
        });
        if !has_asked || !matches!(message.kind, Kind::Ack | Kind::Nak) {
            return Answered::Nothing;
        }
        // A request has one answer: others may have sent requests in its name from elsewhere.
        if let Some(of_port) = self.asking.get_mut(&at) {
            of_port.remove(&client);
        }
        match message.kind {
            Kind::Ack => self.bind(now, (vlan, at), message),
            _ if self.remove(at, (vlan, client)) => Answered::Changed([at].into()),
            _ => Answered::Nothing,
        }
    }

    fn lease(&self, at: Location, host: (VlanId, MacAddr)) -> Option<&Lease> {
        self.leases.get(&at)?.get(&host)
    }

    fn bind(
        &mut self,
        now: Instant,
        (vlan, at): (VlanId, Location),
        message: &Message,
    ) -> Answered {
        let (mac, ip) = (message.client, message.your_ip);
        // The answer to a host that only requests other parameters has no lease time.
        let time = message.lease_s.map(|s| Duration::from_secs(s.into()));
        let Some(time) = time.filter(|_| is_host(ip.into())) else {
            return Answered::Nothing;
        };
        let lease = Lease {
            vlan,
            ip,
            until: now + time.min(LONGEST),
            is_adopted: false,
        };
        if let Some((place, holder)) = self.holders.get(&(vlan, ip)).copied() {
            let held = self.lease(place, (vlan, holder));
            let is_over = held.is_none_or(|held| held.is_adopted || held.until <= now);
            if holder != mac && !is_over {
                return Answered::Taken { at, ip, holder };
            }
            if place == at && holder == mac {
                self.insert(at, mac, lease);
                return Answered::Nothing;
            }
        }
        let mut changed = BTreeSet::new();
        let of_port = self.leases.get(&at).into_iter().flatten();
        let is_there = self.lease(at, (vlan, mac)).is_some();
        if !is_there && of_port.clone().count() >= LEARNED_MAX {
            let mut adopted = of_port.filter(|(_, lease)| lease.is_adopted);
            let Some(host) = adopted.next().map(|(host, _)| *host) else {
                return Answered::Full { at };
            };
            self.remove(at, host);
        }
        if let Some((place, holder)) = self.holders.get(&(vlan, ip)).copied() {
            self.remove(place, (vlan, holder));
            changed.insert(place);
        }
        // A host that has moved has left its earlier port.
        let places = self.leases.keys().copied();
        let has_it = |place: &Location| self.lease(*place, (vlan, mac)).is_some();
        let elsewhere: Vec<Location> = places.filter(|place| *place != at).filter(has_it).collect();
        for place in elsewhere {
            self.remove(place, (vlan, mac));
            changed.insert(place);
        }
        self.insert(at, mac, lease);
        changed.insert(at);
        Answered::Changed(changed)
    }

    fn insert(&mut self, at: Location, mac: MacAddr, lease: Lease) {
        let host = (lease.vlan, mac);
        self.remove(at, host);
        self.holders.insert((lease.vlan, lease.ip), (at, mac));
        self.leases.entry(at).or_default().insert(host, lease);
    }

    fn remove(&mut self, at: Location, host: (VlanId, MacAddr)) -> bool {
        let Some(of_port) = self.leases.get_mut(&at) else {
            return false;
        };
        let lease = of_port.remove(&host);
        if of_port.is_empty() {
            self.leases.remove(&at);
        }
        if let Some(lease) = lease {
            self.holders.remove(&(lease.vlan, lease.ip));
        }
        lease.is_some()
    }

    /// Takes over from a switch's entry a host's address that an earlier process has learned.
    /// Returns whether the address is new.
    pub fn adopt(
        &mut self,
        now: Instant,
        (vlan, at): (VlanId, Location),
        (mac, ip): (MacAddr, Ipv4Addr),
    ) -> bool {
        let of_port = self.leases.get(&at);
        let is_full = of_port.is_some_and(|of_port| of_port.len() >= LEARNED_MAX);
        let is_there = self.lease(at, (vlan, mac)).is_some();
        let is_taken = self.holders.contains_key(&(vlan, ip));
        if is_full || is_there || is_taken || !is_host(ip.into()) {
            return false;
        }
        let lease = Lease {
            vlan,
            ip,
            until: now + ADOPTED,
            is_adopted: true,
        };
        self.insert(at, mac, lease);
        true
    }

    /// Forgets the addresses whose lease is over. Returns the ports of their hosts.
    pub fn forget_over(&mut self, now: Instant) -> BTreeSet<Location> {
        let mut changed = BTreeSet::new();
        let over = self.leases.iter().flat_map(|(at, of_port)| {
            let over = of_port.iter().filter(|(_, lease)| lease.until <= now);
            over.map(|(host, _)| (*at, *host))
        });
        let over: Vec<(Location, (VlanId, MacAddr))> = over.collect();
        for (at, host) in over {
            self.remove(at, host);
            changed.insert(at);
        }
        changed
    }

    /// Forgets everything about a port.
    pub fn forget_port(&mut self, at: Location) {
        self.asking.remove(&at);
        let of_port = self.leases.remove(&at).into_iter().flatten();
        for (_, lease) in of_port {
            self.holders.remove(&(lease.vlan, lease.ip));
        }
    }

    /// Forgets everything about ports that no longer learn.
    pub fn retain(&mut self, ports: &BTreeSet<Location>) {
        self.asking.retain(|at, _| ports.contains(at));
        self.leases.retain(|at, _| ports.contains(at));
        self.holders.retain(|_, (at, _)| ports.contains(at));
    }

    /// The hosts of a port.
    pub fn of_port(&self, at: Location) -> impl Iterator<Item = Binding> {
        let mut hosts: BTreeMap<MacAddr, BTreeSet<IpAddr>> = BTreeMap::new();
        for ((_, mac), lease) in self.leases.get(&at).into_iter().flatten() {
            hosts.entry(*mac).or_default().insert(lease.ip.into());
        }
        hosts.into_iter().map(|(mac, ips)| Binding { mac, ips })
    }

    /// The addresses of all hosts, by port.
    pub fn all(&self) -> impl Iterator<Item = (Location, MacAddr, Lease)> {
        self.leases.iter().flat_map(|(at, of_port)| {
            let leases = of_port.iter();
            leases.map(|((_, mac), lease)| (*at, *mac, *lease))
        })
    }
}

#[cfg(test)]
mod tests {
    use openflow::{DatapathId, PortNo};
    use proptest::prelude::*;

    use super::*;

    fn at(port: u32) -> Location {
        Location {
            dpid: DatapathId(1),
            port: PortNo(port),
        }
    }

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    fn ip(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n)
    }

    fn message(kind: Kind, client: u8, address: u8) -> Message {
        let is_of_server = kind.is_of_server();
        Message {
            kind,
            xid: u32::from(client),
            client: mac(client),
            client_ip: if is_of_server { ip(0) } else { ip(address) },
            your_ip: if is_of_server { ip(address) } else { ip(0) },
            lease_s: is_of_server.then_some(100),
        }
    }

    const VLAN: VlanId = VlanId::NONE;

    fn secs(n: u64) -> Instant {
        Instant::START + Duration::from_secs(n)
    }

    /// A host asks at a port, and a server answers.
    fn lease(learned: &mut Learned, now: Instant, port: u32, client: u8, address: u8) -> Answered {
        let asks = message(Kind::Request, client, 0);
        let place = (VLAN, at(port));
        assert!(learned.handle_request(now, place, mac(client), &asks));
        let answer = message(Kind::Ack, client, address);
        learned.handle_answer(now, VLAN, Some(at(port)), &answer)
    }

    fn hosts(learned: &Learned, port: u32) -> Vec<(MacAddr, Ipv4Addr)> {
        let all = learned.all().filter(|(place, ..)| *place == at(port));
        all.map(|(_, mac, lease)| (mac, lease.ip)).collect()
    }

    #[test]
    fn a_question_and_its_answer_bind_a_host_until_its_time_is_over() {
        let mut learned = Learned::default();
        let changed = Answered::Changed([at(1)].into());
        assert_eq!(lease(&mut learned, secs(0), 1, 7, 70), changed);
        assert_eq!(hosts(&learned, 1), [(mac(7), ip(70))]);
        assert_eq!(lease(&mut learned, secs(60), 1, 7, 70), Answered::Nothing);
        assert!(learned.forget_over(secs(159)).is_empty());
        assert_eq!(learned.forget_over(secs(160)), [at(1)].into());
        assert_eq!(hosts(&learned, 1), []);
    }

    #[test]
    fn answers_that_nobody_has_asked_for_bind_nobody() {
        let mut learned = Learned::default();
        let place = (VLAN, at(1));
        let asks = message(Kind::Request, 7, 0);
        assert!(learned.handle_request(secs(0), place, mac(7), &asks));
        let answer = message(Kind::Ack, 7, 70);
        let other_xid = Message { xid: 1, ..answer };
        let no_address = Message {
            your_ip: Ipv4Addr::UNSPECIFIED,
            ..answer
        };
        let no_time = Message {
            lease_s: None,
            ..answer
        };
        let offer = message(Kind::Offer, 7, 70);
        for answer in [
            other_xid,
            no_address,
            no_time,
            offer,
            message(Kind::Ack, 8, 70),
        ] {
            let found = learned.handle_answer(secs(1), VLAN, Some(at(1)), &answer);
            assert_eq!(found, Answered::Nothing, "{answer:?}");
        }
        let other = VlanId::new(10).expect("an id");
        for (now, vlan, place) in [
            (1, VLAN, None),
            (1, VLAN, Some(at(2))),
            (1, other, Some(at(1))),
            (61, VLAN, Some(at(1))),
        ] {
            let found = learned.handle_answer(secs(now), vlan, place, &answer);
            assert_eq!(found, Answered::Nothing, "{now} {vlan:?} {place:?}");
        }
        assert_eq!(learned.all().count(), 0);
    }

    #[test]
    fn nobody_speaks_for_another_host() {
        let mut learned = Learned::default();
        lease(&mut learned, secs(0), 1, 7, 70);
        for (kind, port, client, address) in [
            (Kind::Request, 2, 7, 0),
            (Kind::Release, 2, 7, 70),
            (Kind::Release, 1, 7, 70),
        ] {
            let message = message(kind, client, address);
            let place = (VLAN, at(port));
            assert!(!learned.handle_request(secs(1), place, mac(9), &message));
        }
        let release = message(Kind::Release, 9, 70);
        assert!(!learned.handle_request(secs(1), (VLAN, at(2)), mac(9), &release));
        assert_eq!(hosts(&learned, 1), [(mac(7), ip(70))]);
        let release = message(Kind::Release, 7, 70);
        assert!(learned.handle_request(secs(1), (VLAN, at(1)), mac(7), &release));
        assert_eq!(hosts(&learned, 1), []);
    }

    #[test]
    fn an_address_is_its_holders_until_its_time_is_over() {
        let mut learned = Learned::default();
        lease(&mut learned, secs(0), 1, 7, 70);
        let taken = Answered::Taken {
            at: at(2),
            ip: ip(70),
            holder: mac(7),
        };
        assert_eq!(lease(&mut learned, secs(99), 2, 8, 70), taken);
        let changed = Answered::Changed([at(1), at(2)].into());
        assert_eq!(lease(&mut learned, secs(100), 2, 8, 70), changed);
        assert_eq!(hosts(&learned, 2), [(mac(8), ip(70))]);
        // The host itself moves, with this address or another.
        assert_eq!(lease(&mut learned, secs(110), 1, 8, 70), changed);
        assert_eq!(lease(&mut learned, secs(120), 2, 8, 71), changed);
        assert_eq!(hosts(&learned, 2), [(mac(8), ip(71))]);
        assert_eq!(hosts(&learned, 1), []);
    }

    #[test]
    fn a_question_has_one_answer() {
        let mut learned = Learned::default();
        lease(&mut learned, secs(0), 1, 7, 70);
        for kind in [Kind::Nak, Kind::Ack] {
            let again = message(kind, 7, 71);
            let found = learned.handle_answer(secs(1), VLAN, Some(at(1)), &again);
            assert_eq!(found, Answered::Nothing, "{kind:?}");
        }
        assert_eq!(hosts(&learned, 1), [(mac(7), ip(70))]);
    }

    #[test]
    fn what_an_earlier_process_has_learned_gives_way_to_a_server() {
        let mut learned = Learned::default();
        for n in 0..20 {
            let is_news = learned.adopt(secs(0), (VLAN, at(1)), (mac(n), ip(100 + n)));
            assert_eq!(is_news, usize::from(n) < LEARNED_MAX);
        }
        // An address that is another host's by now, and a host for which there was no room.
        let changed = Answered::Changed([at(1), at(2)].into());
        assert_eq!(lease(&mut learned, secs(1), 2, 30, 100), changed);
        let changed = Answered::Changed([at(1)].into());
        for n in 40..56 {
            assert_eq!(lease(&mut learned, secs(1), 1, n, n), changed);
        }
        assert_eq!(hosts(&learned, 1).len(), LEARNED_MAX);
        let full = Answered::Full { at: at(1) };
        assert_eq!(lease(&mut learned, secs(1), 1, 60, 60), full);
    }

    #[test]
    fn a_host_of_a_trunk_has_an_address_in_each_vlan() {
        let mut learned = Learned::default();
        let other = VlanId::new(10).expect("an id");
        lease(&mut learned, secs(0), 1, 7, 70);
        let asks = message(Kind::Request, 7, 0);
        assert!(learned.handle_request(secs(0), (other, at(1)), mac(7), &asks));
        let answer = message(Kind::Ack, 7, 71);
        learned.handle_answer(secs(0), other, Some(at(1)), &answer);
        let bound: Vec<Binding> = learned.of_port(at(1)).collect();
        let ips = [ip(70), ip(71)].map(IpAddr::from).into();
        assert_eq!(bound, [Binding { mac: mac(7), ips }]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Asks(u32, u8),
        Answer(Kind, u8, u8, u32),
        Release(u32, u8, u8),
        Adopt(u32, u8, u8),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (port, client, address) = (1u32..4, 0u8..40, 1u8..40);
        let kind = prop_oneof![Just(Kind::Ack), Just(Kind::Nak)];
        prop_oneof![
            (port.clone(), client.clone()).prop_map(|(p, c)| Step::Asks(p, c)),
            (kind, client.clone(), address.clone(), port.clone())
                .prop_map(|(k, c, a, p)| Step::Answer(k, c, a, p)),
            (port.clone(), client.clone(), address.clone())
                .prop_map(|(p, c, a)| Step::Release(p, c, a)),
            (port, client, address).prop_map(|(p, c, a)| Step::Adopt(p, c, a)),
            (0u64..60).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Whatever messages arrive: an address has one holder, a port has no more hosts than
        /// allowed, and a port that is not named as changed has not changed.
        #[test]
        fn addresses_have_one_holder_and_ports_are_bounded(
            steps in prop::collection::vec(step(), 0..400),
        ) {
            let (mut learned, mut now) = (Learned::default(), secs(0));
            for step in steps {
                let before: Vec<_> = (1..4).map(|port| hosts(&learned, port)).collect();
                let mut changed = BTreeSet::new();
                match step {
                    Step::Asks(port, client) => {
                        let asks = message(Kind::Request, client, 0);
                        learned.handle_request(now, (VLAN, at(port)), mac(client), &asks);
                    }
                    Step::Answer(kind, client, address, port) => {
                        let answer = message(kind, client, address);
                        let answered = learned.handle_answer(now, VLAN, Some(at(port)), &answer);
                        if let Answered::Changed(ports) = answered {
                            changed = ports;
                        }
                    }
                    Step::Release(port, client, address) => {
                        let release = message(Kind::Release, client, address);
                        let place = (VLAN, at(port));
                        if learned.handle_request(now, place, mac(client), &release) {
                            changed.insert(at(port));
                        }
                    }
                    Step::Adopt(port, client, address) => {
                        if learned.adopt(now, (VLAN, at(port)), (mac(client), ip(address))) {
                            changed.insert(at(port));
                        }
                    }
                    Step::Wait(s) => {
                        now += Duration::from_secs(s);
                        changed = learned.forget_over(now);
                    }
                }
                let mut owned = BTreeSet::new();
                for (port, before) in (1..4).zip(before) {
                    let hosts = hosts(&learned, port);
                    prop_assert!(hosts.len() <= LEARNED_MAX);
                    prop_assert!(changed.contains(&at(port)) || hosts == before);
                    for (_, ip) in hosts {
                        prop_assert!(owned.insert(ip), "{ip} has two holders");
                    }
                }
                prop_assert_eq!(owned.len(), learned.holders.len());
                prop_assert!(learned.asking.values().all(|all| all.len() <= ASKING_MAX));
            }
        }
    }
}
