//! The lifetimes of flow entries: the administrator's settings.
//!
//! A [`Lifetime`] sets the timeouts of an entry, and the work before the entry ends. [`Timeouts`]
//! gives one lifetime to all pairs of hosts and others to the pairs that a [`FlowClass`] names; the
//! first class that matches a pair is its class. Infrastructure entries and routes towards one host
//! have no timeouts and no class: they live as long as the switch and the host.

pub mod budget;
mod check;
mod class;
pub mod delays;
mod guards;
pub mod keeper;
pub mod leases;

use std::collections::BTreeMap;
use std::str::FromStr;

use clock::Duration;
use openflow::{DatapathId, MacAddr};

use crate::entry::{Family, Rule, proto};

pub use check::{PORTS_MAX, Problem, RULES_MAX};
pub use class::{FlowClass, HostName, Prefix, Proto, Service};

/// A table size above this counts as unknown.
pub const ENTRIES_MAX: u32 = 1_000_000;

const IP: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// The rules for ARP and neighbour discovery. They stay allowed where a service is allowed and all
/// else is forbidden.
const RESOLUTION: [Rule; 3] = {
    const ARP: Rule = Rule {
        rank: u8::MAX,
        family: Family::Arp,
        proto: 0,
        src_port: 0,
        dst_port: 0,
    };
    const fn discovery(its_type: u16) -> Rule {
        Rule {
            family: Family::Ipv6,
            proto: proto::ICMPV6,
            src_port: its_type,
            ..ARP
        }
    }
    [ARP, discovery(135), discovery(136)]
};

/// The administrator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The lifetime of pairs without a class, and of classes without a lifetime of their own.
    pub default: Lifetime,
    pub first_packets: FirstPackets,
    /// The classes; the first that matches a pair is its class.
    pub classes: Vec<FlowClass>,
    /// The table size of switches that do not report one, in entries.
    pub table_entries_max: Option<u32>,
    /// Table sizes of single switches. They take precedence over the switch's report.
    pub switches: BTreeMap<DatapathId, u32>,
    pub load: Load,
}

/// The measure of the controller's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// CPU use of the controller's process, over all its threads, in per cent of one core.
    #[default]
    Process,
    /// CPU use by all programs, on the cores that the controller may run on.
    Cores,
}

/// The life of an entry from its first packet to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The same timeouts at every hop, always; 0 means none.
    Fixed {
        idle_s: u16,
        hard_s: u16,
    },
    Paper(Paper),
    Lease(Lease),
}

/// The paper's rule: a hard timeout at the ingress, raised while the controller is busy, and an
/// idle timeout at the other hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// Hard timeout at the ingress.
    pub base_s: u16,
    /// Hard timeout of priority flows at the ingress while the load is above `cpu_percent`.
    pub raised_s: u16,
    /// A threshold of the controller's [`Load`].
    pub cpu_percent: u16,
    /// Idle timeout at the other hops.
    pub idle_s: u16,
}

/// Entries live as long as packets arrive, within the room of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The idle timeout while there is room.
    pub idle_max_s: u16,
    /// The minimum idle timeout when the table fills.
    pub idle_min_s: u16,
    /// Hard timeout after which a flow needs a new permission; active flows are renewed before it.
    pub lease_s: Option<u16>,
    /// The maximum to which leases are lengthened when there are more renewals than allowed.
    pub lease_max_s: u16,
    /// Renewals per second, over all switches.
    pub renewals_max: u32,
}

/// The method that keeps later packets from overtaking the packets sent before the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FirstPackets {
    /// None: each packet goes through the controller until the entry exists.
    Controller,
    /// Sets the entries of two hosts when one asks for the other's address, before the answer.
    #[default]
    PreInstall,
    /// Switches forward packets to a known host and report them.
    Report,
    /// Holds the first packets until the entries exist, and sends them in order.
    Hold,
}

impl Timeouts {
    /// Settings with the same timeouts for all pairs, as in other controllers.
    pub fn fixed(idle_s: u16, hard_s: u16) -> Timeouts {
        Timeouts {
            default: Lifetime::Fixed { idle_s, hard_s },
            first_packets: FirstPackets::Controller,
            classes: Vec::new(),
            table_entries_max: None,
            switches: BTreeMap::new(),
            load: Load::default(),
        }
    }

    /// The class of a pair, for packets that belong to none of its services. `has_ip` tests whether
    /// a host has an address within a prefix.
    pub fn class_of(
        &self,
        src: MacAddr,
        dst: MacAddr,
        has_ip: impl Fn(MacAddr, Prefix) -> bool,
    ) -> Option<&FlowClass> {
        let mut classes = self.classes.iter().filter(|class| class.service.is_none());
        classes.find(|class| class.is_of(src, dst, &has_ip))
    }

    /// The rules of a pair in classes before its own, each with whether it forbids packets. Covers
    /// only `families`, unless packets are forbidden: a ban must hold for unknown addresses too.
    /// Empty if all packets are forbidden.
    pub fn rules_of(
        &self,
        src: MacAddr,
        dst: MacAddr,
        has_ip: impl Fn(MacAddr, Prefix) -> bool,
        families: &[Family],
    ) -> Vec<(Rule, bool)> {
        let mut services = Vec::new();
        let mut excepted = Vec::new();
        let mut ranks = self.ranked().map(|(at, _)| at).enumerate().peekable();
        let mut is_barred = false;
        for (at, class) in self.classes.iter().enumerate() {
            let rank = ranks.next_if(|(_, ranked)| *ranked == at);
            let rank = rank.map_or(0, |(rank, _)| rank as u8);
            if !class.is_of(src, dst, &has_ip) {
                continue;
            }
            match &class.service {
                Some(service) => services.push((rank, service, class.forbid)),
                None => {
                    is_barred = class.forbid;
                    if self.is_guarded_after(at) {
                        excepted = guards::whole(rank, &IP);
                    }
                    break;
                }
            }
        }
        let forbids = is_barred || services.iter().any(|(.., forbid)| *forbid);
        let families = if forbids { &IP } else { families };
        let rules = services.iter().flat_map(|(rank, service, forbid)| {
            let rules = service.rules(*rank, families).into_iter();
            rules.map(|rule| (rule, *forbid))
        });
        let excepted = excepted.into_iter().map(|rule| (rule, false));
        let mut rules: Vec<(Rule, bool)> = rules.chain(excepted).collect();
        if is_barred {
            match rules.iter().any(|(_, forbid)| !forbid) {
                true => rules.extend(RESOLUTION.map(|rule| (rule, false))),
                false => rules.clear(),
            }
        }
        rules
    }

    /// Whether some pairs have rules beside their own entry.
    pub fn has_rules(&self) -> bool {
        self.ranked().next().is_some()
    }

    /// The class of a rule; none for the rules of address resolution.
    pub fn class_of_rule(&self, rule: Rule) -> Option<&FlowClass> {
        let class = self.ranked().nth(usize::from(rule.rank));
        class.map(|(_, class)| class)
    }

    /// Whether some pair can have this rule.
    pub fn has_rule(&self, rule: Rule) -> bool {
        let Some(class) = self.class_of_rule(rule) else {
            return RESOLUTION.contains(&rule);
        };
        match &class.service {
            Some(service) => service.rules(rule.rank, &IP).contains(&rule),
            None => self.excepts(rule) && guards::whole(rule.rank, &IP).contains(&rule),
        }
    }

    /// Whether the controller decides on each of a host's pairs: a class names the host, or all
    /// hosts.
    pub fn names(&self, mac: MacAddr, has_ip: impl Fn(MacAddr, Prefix) -> bool) -> bool {
        self.classes.iter().any(|class| {
            let mut names = [class.src, class.dst].into_iter().flatten().peekable();
            names.peek().is_none() || names.any(|name| name.is_of(mac, &has_ip))
        })
    }

    /// Whether classes name hosts by IP address.
    pub fn names_ips(&self) -> bool {
        let names = self.classes.iter().flat_map(|class| [class.src, class.dst]);
        names
            .flatten()
            .any(|name| !matches!(name, HostName::Mac(_)))
    }

    /// The lifetimes in use.
    fn lifetimes(&self) -> impl Iterator<Item = Lifetime> {
        let classes = self.classes.iter().filter_map(|class| class.lifetime);
        std::iter::once(self.default).chain(classes)
    }

    fn leases(&self) -> impl Iterator<Item = Lease> {
        self.lifetimes().filter_map(|lifetime| match lifetime {
            Lifetime::Lease(lease) => Some(lease),
            _ => None,
        })
    }

    /// Whether single entries must be examined, however empty the tables are.
    pub fn reads_flows(&self) -> bool {
        let is_paper = |lifetime| matches!(lifetime, Lifetime::Paper(_));
        self.lease_min_s().is_some() || self.lifetimes().any(is_paper)
    }

    /// The shortest lease.
    pub fn lease_min_s(&self) -> Option<u16> {
        self.leases().filter_map(|lease| lease.lease_s).min()
    }

    /// Renewals per second, if there is anything to renew.
    pub fn renewals_max(&self) -> Option<u32> {
        let renewing = self.leases().filter(|lease| lease.lease_s.is_some());
        renewing.map(|lease| lease.renewals_max).max()
    }

    /// Whether the paper's rule raises the timeouts of a class. It raises those of priority flows,
    /// or all timeouts if no class has priority.
    pub fn raises(&self, class: Option<&FlowClass>) -> bool {
        class.is_some_and(|class| class.priority) || !self.classes.iter().any(|c| c.priority)
    }

    /// The time between two samples of the controller's load; `None` if nothing depends on the
    /// load. In the paper, it is the smallest timeout in use.
    pub fn sample_interval(&self) -> Option<Duration> {
        let of = |lifetime| match lifetime {
            Lifetime::Fixed { .. } => None,
            Lifetime::Paper(paper) => Some(paper.base_s.min(paper.raised_s).min(paper.idle_s)),
            Lifetime::Lease(_) => Some(1),
        };
        let least_s = self.lifetimes().filter_map(of).min()?;
        Some(Duration::from_secs(u64::from(least_s.max(1))))
    }

    pub fn lifetime(&self, class: Option<&FlowClass>) -> Lifetime {
        class.and_then(|c| c.lifetime).unwrap_or(self.default)
    }

    pub fn first_packets(&self, class: Option<&FlowClass>) -> FirstPackets {
        class
            .and_then(|c| c.first_packets)
            .unwrap_or(self.first_packets)
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            default: Lifetime::Lease(Lease::default()),
            first_packets: FirstPackets::PreInstall,
            ..Timeouts::fixed(0, 0)
        }
    }
}

impl Lifetime {
    /// Whether the lifetime follows the load and the room in the table.
    pub fn is_adaptive(self) -> bool {
        !matches!(self, Lifetime::Fixed { .. })
    }

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Lifetime::Fixed { .. } => "fixed",
            Lifetime::Paper(_) => "paper",
            Lifetime::Lease(_) => "lease",
        }
    }
}

impl Default for Paper {
    fn default() -> Paper {
        Paper {
            base_s: 1,
            raised_s: 2,
            cpu_percent: 75,
            idle_s: 1,
        }
    }
}

impl Default for Lease {
    fn default() -> Lease {
        Lease {
            idle_max_s: 60,
            idle_min_s: 1,
            lease_s: None,
            lease_max_s: 300,
            renewals_max: 1000,
        }
    }
}

impl FirstPackets {
    pub const ALL: [FirstPackets; 4] = [
        FirstPackets::Controller,
        FirstPackets::PreInstall,
        FirstPackets::Report,
        FirstPackets::Hold,
    ];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            FirstPackets::Controller => "controller",
            FirstPackets::PreInstall => "preinstall",
            FirstPackets::Report => "report",
            FirstPackets::Hold => "hold",
        }
    }
}

impl FromStr for FirstPackets {
    type Err = String;

    fn from_str(text: &str) -> Result<FirstPackets, String> {
        let found = FirstPackets::ALL.into_iter().find(|f| f.name() == text);
        found.ok_or_else(|| {
            let known = FirstPackets::ALL.map(FirstPackets::name).join(", ");
            format!("'{text}' is none of {known}")
        })
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        match text {
            "process" => Ok(Load::Process),
            "cores" => Ok(Load::Cores),
            _ => Err(format!("'{text}' is none of process, cores")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

    fn class(name: &str, src: Option<&str>, dst: Option<&str>) -> FlowClass {
        let host = |text: &str| text.parse().unwrap();
        FlowClass {
            name: name.to_owned(),
            src: src.map(host),
            dst: dst.map(host),
            service: None,
            lifetime: None,
            first_packets: None,
            forbid: false,
            priority: false,
        }
    }

    #[test]
    fn the_first_class_that_fits_in_its_direction_is_the_pairs() {
        let timeouts = Timeouts {
            classes: vec![
                class("ab", Some("02:00:00:00:00:0a"), Some("10.0.0.2")),
                class("from a", Some("02:00:00:00:00:0a"), None),
            ],
            ..Timeouts::default()
        };
        let two = "10.0.0.2".parse::<IpAddr>().unwrap();
        let has_ip = |mac, prefix: Prefix| mac == B && prefix.contains(two);
        let name = |src, dst| {
            let class = timeouts.class_of(src, dst, has_ip);
            class.map(|class| class.name.as_str())
        };
        assert_eq!(name(A, B), Some("ab"));
        assert_eq!(name(A, A), Some("from a"));
        assert_eq!(name(B, A), None);
        assert!(timeouts.names(A, has_ip) && timeouts.names(B, has_ip));
        assert!(!timeouts.names(B, |_, _| false));
    }

    #[test]
    fn a_network_is_every_host_that_has_an_address_in_it() {
        let timeouts = Timeouts {
            classes: vec![
                class("four", Some("10.0.0.0/24"), Some("10.0.1.0/24")),
                class("six", None, Some("2001:db8::/64")),
            ],
            ..Timeouts::default()
        };
        let ips = [(A, "10.0.0.7"), (B, "10.0.1.9"), (B, "2001:db8::9")];
        let ips = ips.map(|(mac, ip)| (mac, ip.parse::<IpAddr>().unwrap()));
        let has_ip = |mac, prefix: Prefix| {
            let mut its = ips.iter().filter(|(of, _)| *of == mac);
            its.any(|(_, ip)| prefix.contains(*ip))
        };
        let name = |src, dst| {
            let class = timeouts.class_of(src, dst, has_ip);
            class.map(|class| class.name.as_str())
        };
        assert_eq!(name(A, B), Some("four"));
        assert_eq!(name(B, B), Some("six"), "from another network");
        assert_eq!(name(B, A), None);
        assert!(timeouts.names(A, has_ip) && timeouts.names(B, has_ip));
        assert!(!timeouts.names(MacAddr([2; 6]), has_ip));
    }

    fn service(name: &str, text: &str, dst_ports: &[u16], forbid: bool) -> FlowClass {
        let service = Service {
            proto: text.parse().unwrap(),
            src_ports: Vec::new(),
            dst_ports: dst_ports.to_vec(),
        };
        FlowClass {
            service: Some(service),
            forbid,
            ..class(name, None, None)
        }
    }

    fn of(classes: Vec<FlowClass>) -> Timeouts {
        Timeouts {
            classes,
            ..Timeouts::default()
        }
    }

    fn rules(timeouts: &Timeouts, src: MacAddr, dst: MacAddr) -> Vec<(u8, Family, u8, u16, bool)> {
        let rules = timeouts.rules_of(src, dst, |_, _| false, &[Family::Ipv4]);
        let rules = rules.into_iter();
        rules
            .map(|(rule, forbid)| {
                let port = rule.src_port.max(rule.dst_port);
                (rule.rank, rule.family, rule.proto, port, forbid)
            })
            .collect()
    }

    #[test]
    fn a_pairs_services_are_those_before_its_own_class() {
        use Family::Ipv4;
        let timeouts = of(vec![
            service("ssh", "tcp", &[22, 2222], false),
            class("ab", Some("02:00:00:00:00:0a"), Some("02:00:00:00:00:0b")),
            service("ping", "icmp", &[], false),
        ]);
        assert_eq!(
            rules(&timeouts, A, B),
            [(0, Ipv4, 6, 22, false), (0, Ipv4, 6, 2222, false)]
        );
        let back = rules(&timeouts, B, A);
        assert_eq!(back[2..], [(1, Ipv4, 1, 0, false)]);
        let class = timeouts.class_of(A, B, |_, _| false);
        assert_eq!(class.map(|class| &class.name[..]), Some("ab"));
        assert!(timeouts.names(A, |_, _| false), "all hosts are named");
    }

    /// Forbidden packets are forbidden in both families, whatever addresses are known, and earlier
    /// rules apply to both as well.
    #[test]
    fn where_something_is_forbidden_both_families_are_looked_at() {
        use Family::{Ipv4, Ipv6};
        let timeouts = of(vec![
            service("web", "tcp", &[443], false),
            service("rest", "tcp", &[], true),
        ]);
        assert_eq!(
            rules(&timeouts, A, B),
            [
                (0, Ipv4, 6, 443, false),
                (0, Ipv6, 6, 443, false),
                (1, Ipv4, 6, 0, true),
                (1, Ipv6, 6, 0, true),
            ]
        );
    }

    #[test]
    fn where_all_else_is_forbidden_addresses_are_resolved_all_the_same() {
        use Family::{Arp, Ipv4, Ipv6};
        let mut barred = class("none", Some("02:00:00:00:00:0a"), None);
        barred.forbid = true;
        let mut classes = vec![service("ping", "icmp", &[], false), barred.clone()];
        assert_eq!(
            rules(&of(classes.clone()), A, B),
            [
                (0, Ipv4, 1, 0, false),
                (0, Ipv6, 58, 128, false),
                (0, Ipv6, 58, 129, false),
                (255, Arp, 0, 0, false),
                (255, Ipv6, 58, 135, false),
                (255, Ipv6, 58, 136, false),
            ]
        );
        let timeouts = of(classes.clone());
        for (rule, _) in timeouts.rules_of(A, B, |_, _| false, &[]) {
            assert!(timeouts.has_rule(rule), "{rule:?}");
            let other = Rule { rank: 1, ..rule };
            assert!(!timeouts.has_rule(other), "{other:?}");
        }
        classes[0].forbid = true;
        assert_eq!(
            rules(&of(classes), A, B),
            [],
            "nothing is left to tell apart"
        );
    }
}
