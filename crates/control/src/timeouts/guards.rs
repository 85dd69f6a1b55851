//! Packets forbidden by IP address, judged by their own fields and not by their hosts.
//!
//! A class with `forbid` that names an IP address or a network is a *guard*: entries on every
//! switch drop the packets from or to those addresses, whoever sends them, before any entry of a
//! pair. An earlier class that allows some of these packets takes precedence: its pairs have
//! entries of their own above the guard, and its packets without an entry go to the controller. ARP
//! and neighbour discovery are judged by their hosts alone; neighbour discovery that the guard
//! would drop goes to the controller.

use openflow::packet::PacketFields;
use openflow::{Field, MacAddr, Match, Version};

use super::{FlowClass, HostName, Prefix, Timeouts};
use crate::entry::{Family, Guard, GuardPlace, Rule, proto};

const NEIGHBOUR_DISCOVERY: [u16; 2] = [135, 136];

/// The packets from or to some hosts, by the packets' own fields.
#[derive(Clone, Copy, Default)]
struct Region {
    src: End,
    dst: End,
}

#[derive(Clone, Copy, Default)]
struct End {
    mac: Option<MacAddr>,
    net: Option<Prefix>,
}

impl End {
    fn of(name: Option<HostName>) -> End {
        let mut end = End::default();
        match name {
            None => {}
            Some(HostName::Mac(mac)) => end.mac = Some(mac),
            Some(HostName::Ip(ip)) => end.net = Some(Prefix::host(ip)),
            Some(HostName::Net(net)) => end.net = Some(net),
        }
        end
    }

    /// The common part; `None` if no packet is in both.
    fn and(self, other: End) -> Option<End> {
        let mac = match (self.mac, other.mac) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let net = match (self.net, other.net) {
            (Some(a), Some(b)) if a.covers(b) => Some(b),
            (Some(a), Some(b)) if b.covers(a) => Some(a),
            (Some(_), Some(_)) => return None,
            (a, b) => a.or(b),
        };
        Some(End { mac, net })
    }
}

impl Region {
    fn of(class: &FlowClass) -> Region {
        Region {
            src: End::of(class.src),
            dst: End::of(class.dst),
        }
    }

    fn and(self, other: Region) -> Option<Region> {
        let src = self.src.and(other.src)?;
        let dst = self.dst.and(other.dst)?;
        let region = Region { src, dst };
        region.families().next().is_some().then_some(region)
    }

    /// The families of the region: both if it names no IP address, and none if it names one of
    /// each.
    fn families(self) -> impl Iterator<Item = Family> {
        let nets = [self.src.net, self.dst.net];
        [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .filter(move |family| {
                let mut nets = nets.into_iter().flatten();
                nets.all(|net| net.ip().is_ipv4() == (*family == Family::Ipv4))
            })
    }

    fn to_match(self, rule: Rule) -> Match {
        let mut m = Match::any();
        if let Some(mac) = self.dst.mac {
            m = m.with_eth_dst(mac);
        }
        if let Some(mac) = self.src.mac {
            m = m.with_eth_src(mac);
        }
        m = rule.narrow(m);
        let fields = match rule.family {
            Family::Ipv6 => (Field::Ipv6Src, Field::Ipv6Dst),
            _ => (Field::Ipv4Src, Field::Ipv4Dst),
        };
        for (field, net) in [(fields.0, self.src.net), (fields.1, self.dst.net)] {
            m = match net {
                Some(net) => net.narrow(m, field),
                None => m,
            };
        }
        m
    }
}

impl Prefix {
    fn narrow(self, m: Match, field: Field) -> Match {
        let value = match self.ip() {
            std::net::IpAddr::V4(ip) => u128::from(u32::from(ip)),
            std::net::IpAddr::V6(ip) => ip.into(),
        };
        let rest = (field.ones().count_ones()).saturating_sub(u32::from(self.bits()));
        match (self.bits(), rest) {
            (0, _) => m,
            (_, 0) => m.with(field, value),
            (_, rest) => m.with_masked(field, value, field.ones() >> rest << rest),
        }
    }
}

impl FlowClass {
    /// Whether the class forbids packets by their IP addresses.
    fn is_guard(&self) -> bool {
        let is_ip = |name: HostName| !matches!(name, HostName::Mac(_));
        self.forbid && [self.src, self.dst].into_iter().flatten().any(is_ip)
    }

    fn rules_within(&self, rank: u8, region: Region) -> Vec<Rule> {
        let families: Vec<Family> = region.families().collect();
        match &self.service {
            Some(service) => service.rules(rank, &families),
            None => whole(rank, &families),
        }
    }
}

/// The rules for all packets of these families.
pub(super) fn whole(rank: u8, families: &[Family]) -> Vec<Rule> {
    let rule = |family: &Family| Rule {
        rank,
        family: *family,
        proto: 0,
        src_port: 0,
        dst_port: 0,
    };
    families.iter().map(rule).collect()
}

impl Timeouts {
    /// Whether any packets are forbidden by IP address.
    pub fn has_guards(&self) -> bool {
        self.classes.iter().any(FlowClass::is_guard)
    }

    /// Whether any packets are forbidden by IPv6 address, which OpenFlow 1.0 cannot match.
    pub fn guards_ipv6(&self) -> bool {
        let guards = self.classes.iter().filter(|class| class.is_guard());
        guards
            .flat_map(|class| Region::of(class).families().collect::<Vec<_>>())
            .any(|family| family == Family::Ipv6)
    }

    fn last_guard(&self) -> Option<usize> {
        self.classes.iter().rposition(FlowClass::is_guard)
    }

    /// Classes with a rank among a pair's entries: classes with a service, and all classes up to
    /// the last guard. The ranks are in the order of the classes.
    pub(super) fn ranked(&self) -> impl Iterator<Item = (usize, &FlowClass)> {
        let last = self.last_guard();
        let classes = self.classes.iter().enumerate();
        classes.filter(move |(at, class)| {
            class.service.is_some() || last.is_some_and(|last| *at <= last)
        })
    }

    /// Whether a later guard would drop packets that the class allows.
    pub(super) fn is_guarded_after(&self, at: usize) -> bool {
        let class = &self.classes[at];
        let mut later = self.classes[at + 1..].iter().filter(|c| c.is_guard());
        !class.forbid && later.any(|guard| meets(class, guard))
    }

    /// Whether a later guard would drop packets that the class of a rule allows.
    pub fn excepts(&self, rule: Rule) -> bool {
        let class = self.ranked().nth(usize::from(rule.rank));
        class.is_some_and(|(at, _)| self.is_guarded_after(at))
    }

    /// The rank of the first guard that matches a packet; `Some(None)` if no class before the guard
    /// allows any of its packets. Hosts are judged separately, and so are ARP and neighbour
    /// discovery.
    pub fn guard_of(&self, fields: &PacketFields) -> Option<Option<u8>> {
        const ICMPV6: u128 = proto::ICMPV6 as u128;
        let kind = fields.get(Field::Icmpv6Type);
        let is_discovery = fields.get(Field::IpProto) == Some(ICMPV6)
            && NEIGHBOUR_DISCOVERY
                .map(|kind| Some(u128::from(kind)))
                .contains(&kind);
        if is_discovery || !self.has_guards() {
            return None;
        }
        let ranked = self.ranked().enumerate();
        let mut guards = ranked.filter(|(_, (_, class))| class.is_guard());
        let is_of = |class: &FlowClass| {
            let region = Region::of(class);
            let mut rules = class.rules_within(0, region).into_iter();
            rules.any(|rule| fields.matches(&region.to_match(rule)))
        };
        let (rank, (at, _)) = guards.find(|(_, (_, class))| is_of(class))?;
        let is_first = !self.has_exception(at);
        Some((!is_first).then_some(rank as u8))
    }

    /// Whether a class before this guard allows some of its packets.
    fn has_exception(&self, at: usize) -> bool {
        let guard = &self.classes[at];
        let mut before = self.classes[..at].iter().filter(|class| !class.forbid);
        before.any(|class| meets(class, guard))
    }

    /// The guard entries for every switch of a version, whatever hosts it has.
    pub fn guards(&self, version: Version) -> Vec<Guard> {
        let mut guards: Vec<Guard> = Vec::new();
        let mut add = |place: GuardPlace, r#match: Match| {
            let guard = Guard::new(place, r#match);
            if !guards.contains(&guard) {
                guards.push(guard);
            }
        };
        let can_say = |rule: &Rule| version != Version::V10 || rule.family != Family::Ipv6;
        for (rank, (at, class)) in self.ranked().enumerate() {
            let rank = rank as u8;
            if !class.is_guard() {
                continue;
            }
            let region = Region::of(class);
            let is_first = !self.has_exception(at);
            let rank_of = (!is_first).then_some(rank);
            let rules = class.rules_within(rank, region);
            for rule in rules.iter().copied().filter(can_say) {
                add(GuardPlace::Drop(rank_of), region.to_match(rule));
                let discovery = NEIGHBOUR_DISCOVERY.map(|kind| Rule {
                    proto: proto::ICMPV6,
                    src_port: kind,
                    ..rule
                });
                let is_of_it = |other: &Rule| rule.family == Family::Ipv6 && rule.covers(*other);
                for other in discovery.iter().filter(|other| is_of_it(other)) {
                    add(GuardPlace::Look(rank_of), region.to_match(*other));
                }
            }
            let before = self.ranked().enumerate().take(usize::from(rank));
            for (other_rank, (_, other)) in before.filter(|(_, (_, class))| !class.forbid) {
                let Some(common) = region.and(Region::of(other)) else {
                    continue;
                };
                let theirs = other.rules_within(other_rank as u8, common);
                let of_both = theirs
                    .into_iter()
                    .filter(|rule| rules.iter().any(|its| its.overlaps(*rule)));
                for rule in of_both.filter(can_say) {
                    let place = GuardPlace::Judge(other_rank as u8);
                    add(place, common.to_match(rule));
                }
            }
        }
        if guards.is_empty() && !self.has_guards() {
            return guards;
        }
        // A switch cannot see the addresses behind a second tag.
        for tag in [0x8100u16, 0x88a8] {
            let tagged = Match::any().with(Field::EthType, tag);
            guards.push(Guard::new(GuardPlace::Drop(None), tagged));
        }
        if version == Version::V10 && self.guards_ipv6() {
            let all = Match::any().with(Field::EthType, 0x86ddu16);
            guards.push(Guard::new(GuardPlace::Judge(u8::MAX), all));
        }
        guards
    }
}

/// Whether a packet can match both classes.
fn meets(class: &FlowClass, guard: &FlowClass) -> bool {
    let Some(common) = Region::of(class).and(Region::of(guard)) else {
        return false;
    };
    let (its, others) = (class.rules_within(0, common), guard.rules_within(0, common));
    its.iter()
        .any(|rule| others.iter().any(|other| rule.overlaps(*other)))
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;
    use openflow::packet::build::{Host, tcp_syn, udp, udp6};

    use super::*;
    use crate::timeouts::{Proto, Service};

    fn class(src: &str, dst: &str, forbid: bool) -> FlowClass {
        let name = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        FlowClass {
            name: format!("{src} to {dst}"),
            src: name(src),
            dst: name(dst),
            service: None,
            lifetime: None,
            first_packets: None,
            forbid,
            priority: false,
        }
    }

    fn timeouts(classes: Vec<FlowClass>) -> Timeouts {
        Timeouts {
            classes,
            ..Timeouts::fixed(60, 0)
        }
    }

    fn host(n: u8, ip: &str) -> Host {
        Host {
            ip: ip.parse().unwrap(),
            ..Host::numbered(n)
        }
    }

    fn fields(frame: &[u8]) -> PacketFields {
        PacketFields::parse(PortNo(1), frame)
    }

    /// The action of a switch with these guards alone: drops (true), sends to the controller
    /// (false), or neither.
    fn verdict(guards: &[Guard], frame: &[u8]) -> Option<bool> {
        let its = guards.iter().filter(|g| fields(frame).matches(&g.r#match));
        let first = its.max_by_key(|guard| guard.place.priority())?;
        Some(matches!(first.place, GuardPlace::Drop(_)))
    }

    #[test]
    fn a_guard_drops_by_the_packets_own_addresses() {
        let timeouts = timeouts(vec![
            class("10.0.9.0/24", "", true),
            class("", "2001:db8::/64", true),
        ]);
        let guards = timeouts.guards(Version::V13);
        let from_it = udp(host(1, "10.0.9.5"), host(2, "10.0.0.2"), (1, 2), &[]);
        let to_it = udp(host(1, "10.0.0.5"), host(2, "10.0.9.2"), (1, 2), &[]);
        let macs = (Host::numbered(1).mac, Host::numbered(2).mac);
        let six = |from: &str, to: &str| {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            udp6((macs.0, from), (macs.1, to), (1, 2), &[])
        };
        let to_six = six("2001:db9::1", "2001:db8::1");
        let from_six = six("2001:db8::1", "2001:db9::1");
        for (frame, bars) in [
            (&from_it, true),
            (&to_it, false),
            (&to_six, true),
            (&from_six, false),
        ] {
            assert_eq!(verdict(&guards, frame), bars.then_some(true));
            assert_eq!(timeouts.guard_of(&fields(frame)).is_some(), bars);
        }
        assert!(timeouts.guards_ipv6());
        let of_1_0 = timeouts.guards(Version::V10);
        assert_eq!(verdict(&of_1_0, &to_six), Some(false), "judged one by one");
        assert_eq!(verdict(&of_1_0, &from_it), Some(true));
    }

    /// Packets that an earlier class allows are not dropped, and others are.
    #[test]
    fn an_earlier_class_comes_before_a_guard() {
        let mut ssh = class("10.0.9.0/24", "10.0.0.2", false);
        ssh.service = Some(Service {
            proto: Proto::TCP,
            src_ports: Vec::new(),
            dst_ports: vec![22],
        });
        let timeouts = timeouts(vec![
            class("10.0.5.1", "", false),
            ssh,
            class("10.0.0.0/16", "", true),
        ]);
        let guards = timeouts.guards(Version::V13);
        let to = host(2, "10.0.0.2");
        let from = |ip| host(1, ip);
        for (frame, wanted) in [
            (udp(from("10.0.5.1"), to, (1, 2), &[]), Some(false)),
            (udp(from("10.0.5.2"), to, (1, 2), &[]), Some(true)),
            (tcp_syn(from("10.0.9.1"), to, (1, 22)), Some(false)),
            (tcp_syn(from("10.0.9.1"), to, (1, 23)), Some(true)),
            (tcp_syn(from("10.1.9.1"), to, (1, 23)), None),
        ] {
            assert_eq!(verdict(&guards, &frame), wanted, "{:?}", fields(&frame));
        }
    }

    #[test]
    fn nothing_is_guarded_where_nothing_is_forbidden_by_address() {
        let by_mac = class("02:00:00:00:00:01", "", true);
        let timeouts = timeouts(vec![by_mac, class("10.0.0.1", "", false)]);
        assert_eq!(timeouts.guards(Version::V13), []);
        assert!(!timeouts.has_guards());
    }
}
