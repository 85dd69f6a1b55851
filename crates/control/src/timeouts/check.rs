//! Finds all mistakes in the administrator's settings at once.

use std::collections::BTreeSet;
use std::fmt;

use super::{ENTRIES_MAX, FirstPackets, FlowClass, IP, Lease, Lifetime, Paper, Timeouts};

/// The longest timeout in seconds that a person can intend; the fields of a flow-mod have room for
/// more.
const TIMEOUT_MAX_S: u16 = 18 * 3600;

/// Maximum number of ports of one class, in one direction.
pub const PORTS_MAX: usize = 8;

/// Maximum number of entries of one pair for its services, for IPv4 and IPv6 together.
pub const RULES_MAX: usize = 64;

/// Maximum number of classes with a rank in the order of entries.
const RANKS_MAX: usize = 255;

/// One mistake, by the names of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position of the class in its list; `None` for a mistake outside classes.
    pub class: Option<usize>,
    /// The name of the setting.
    pub field: &'static str,
    /// The mistake and its remedy.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Some(at) => write!(f, "class {}: {}: {}", at + 1, self.field, self.text),
            None => write!(f, "{}: {}", self.field, self.text),
        }
    }
}

impl Timeouts {
    /// Finds all mistakes, in the order of the fields.
    ///
    /// # Errors
    /// At least one mistake: then none of the settings may be used.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems(Vec::new());
        problems.lifetime(None, self.default);
        let is_limit = |max: &u32| (1..=ENTRIES_MAX).contains(max);
        if let Some(max) = self.table_entries_max.filter(|max| !is_limit(max)) {
            let text = format!("is {max}; it must be a number from 1 to {ENTRIES_MAX}");
            problems.add(None, "table_entries_max", text);
        }
        for (dpid, max) in self.switches.iter().filter(|(_, max)| !is_limit(max)) {
            let text = format!("{dpid} is {max}; it must be a number from 1 to {ENTRIES_MAX}");
            problems.add(None, "switches", text);
        }
        let mut names = BTreeSet::new();
        let mut rules = 0;
        for (at, class) in self.classes.iter().enumerate() {
            if !names.insert(&class.name) {
                let text = format!("'{}' is the name of a class before it", class.name);
                problems.add(Some(at), "name", text);
            }
            problems.class(at, class);
            problems.first_packets(at, class, self.first_packets);
            problems.service(at, class, &mut rules);
        }
        let ranks = self.ranked().count();
        if ranks > RANKS_MAX {
            let text = format!(
                "{ranks} classes have a place in the order of entries; there must be no more than \
                 {RANKS_MAX} up to the last that forbids by IP address, and of services"
            );
            problems.add(None, "class", text);
        }
        if problems.0.is_empty() {
            Ok(())
        } else {
            Err(problems.0)
        }
    }

    /// Finds settings that are allowed but cannot be intended: classes without packets, since an
    /// earlier class has all of theirs.
    pub fn doubts(&self) -> Vec<Problem> {
        let mut doubts = Vec::new();
        for (at, class) in self.classes.iter().enumerate() {
            let mut before = self.classes[..at].iter();
            if let Some(earlier) = before.find(|earlier| earlier.covers(class)) {
                let text = format!(
                    "'{}' never applies: every packet of it is of class '{}' before it",
                    class.name, earlier.name
                );
                let class = Some(at);
                doubts.push(Problem {
                    class,
                    field: "name",
                    text,
                });
            }
        }
        doubts
    }
}

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, class: Option<usize>, field: &'static str, text: String) {
        self.0.push(Problem { class, field, text });
    }

    fn class(&mut self, at: usize, class: &FlowClass) {
        if class.name.is_empty() {
            self.add(Some(at), "name", "is empty; it must be a name".to_owned());
        }
        if class.src.is_none() && class.dst.is_none() && class.service.is_none() {
            let text = "names neither src nor dst nor proto; for all pairs set it in [timeouts]";
            self.add(Some(at), "src", text.to_owned());
        }
        if class.forbid && (class.lifetime.is_some() || class.first_packets.is_some()) {
            let text = "what is forbidden has no policy and no first_packets; leave them out";
            self.add(Some(at), "forbid", text.to_owned());
        }
        if let Some(lifetime) = class.lifetime {
            self.lifetime(Some(at), lifetime);
        }
    }

    /// Checks a service. `rules` counts the rules of the classes before it.
    fn service(&mut self, at: usize, class: &FlowClass, rules: &mut usize) {
        let Some(service) = &class.service else {
            return;
        };
        let lists = [
            ("src_port", &service.src_ports),
            ("dst_port", &service.dst_ports),
        ];
        let mut is_right = true;
        for (field, ports) in lists.into_iter().filter(|(_, ports)| !ports.is_empty()) {
            let problem = if !service.proto.has_ports() {
                "is of tcp, udp or sctp only; proto is another".to_owned()
            } else if ports.contains(&0) {
                "is 0; it must be a number from 1 to 65535".to_owned()
            } else if ports.len() > PORTS_MAX {
                let count = ports.len();
                format!("has {count} ports; there must be no more than {PORTS_MAX}")
            } else {
                continue;
            };
            is_right = false;
            self.add(Some(at), field, problem);
        }
        if class.first_packets.is_some() {
            let text = "is for all packets of a pair; leave it out where proto is given";
            self.add(Some(at), "first_packets", text.to_owned());
        }
        if is_right {
            let before = *rules;
            *rules += service.rules(0, &IP).len();
            if before <= RULES_MAX && *rules > RULES_MAX {
                let text = format!(
                    "needs {} entries of a pair, and classes before it {before}; there must be no \
                     more than {RULES_MAX}",
                    *rules - before
                );
                self.add(Some(at), "proto", text);
            }
        }
    }

    /// Checks the treatment of first packets: reporting entries match packets to a host, from any
    /// sender.
    fn first_packets(&mut self, at: usize, class: &FlowClass, of_all: FirstPackets) {
        let asked = class.first_packets.unwrap_or(of_all);
        if asked != of_all && [asked, of_all].contains(&FirstPackets::Report) {
            let text = "'report' is for all or for none; leave first_packets out here, or write \
                        another one in [timeouts]";
            self.add(Some(at), "first_packets", text.to_owned());
        }
    }

    fn lifetime(&mut self, class: Option<usize>, lifetime: Lifetime) {
        match lifetime {
            Lifetime::Fixed { idle_s, hard_s } => {
                self.ordered(class, "idle_s", idle_s, "hard_s", hard_s);
            }
            Lifetime::Paper(paper) => self.paper(class, paper),
            Lifetime::Lease(lease) => self.lease(class, lease),
        }
    }

    fn paper(&mut self, class: Option<usize>, paper: Paper) {
        for (field, value) in [("base_s", paper.base_s), ("idle_s", paper.idle_s)] {
            self.within(class, field, value, 1, TIMEOUT_MAX_S);
        }
        self.within(
            class,
            "raised_s",
            paper.raised_s,
            paper.base_s,
            TIMEOUT_MAX_S,
        );
        self.within(class, "cpu_percent", paper.cpu_percent, 1, u16::MAX);
    }

    fn lease(&mut self, class: Option<usize>, lease: Lease) {
        self.within(class, "idle_min_s", lease.idle_min_s, 1, TIMEOUT_MAX_S);
        self.within(
            class,
            "idle_max_s",
            lease.idle_max_s,
            lease.idle_min_s,
            TIMEOUT_MAX_S,
        );
        if let Some(lease_s) = lease.lease_s {
            self.within(class, "lease_s", lease_s, 3, TIMEOUT_MAX_S);
            self.within(
                class,
                "lease_max_s",
                lease.lease_max_s,
                lease_s,
                TIMEOUT_MAX_S,
            );
        }
        if lease.renewals_max == 0 {
            let text = "is 0; it must be at least 1".to_owned();
            self.add(class, "renewals_max", text);
        }
    }

    fn within(
        &mut self,
        class: Option<usize>,
        field: &'static str,
        value: u16,
        min: u16,
        max: u16,
    ) {
        if !(min..=max.max(min)).contains(&value) {
            let text = format!("is {value}; it must be a number from {min} to {max}");
            self.add(class, field, text);
        }
    }

    /// Checks the order of two timeouts: an idle timeout above the hard one never takes effect. 0
    /// means no timeout.
    fn ordered(
        &mut self,
        class: Option<usize>,
        idle: &'static str,
        idle_s: u16,
        hard: &'static str,
        hard_s: u16,
    ) {
        if hard_s != 0 && idle_s > hard_s {
            let text = format!("is {idle_s}; it must not be above {hard}, which is {hard_s}");
            self.add(class, idle, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::HostName;
    use super::*;

    fn class(name: &str) -> FlowClass {
        FlowClass {
            name: name.to_owned(),
            src: Some("10.0.0.1".parse::<HostName>().unwrap()),
            dst: None,
            service: None,
            lifetime: None,
            first_packets: None,
            forbid: false,
            priority: false,
        }
    }

    #[test]
    fn what_is_there_by_default_is_right() {
        let lifetimes = [
            Lifetime::Paper(Paper::default()),
            Lifetime::Lease(Lease::default()),
        ];
        for default in lifetimes {
            let timeouts = Timeouts {
                default,
                ..Timeouts::default()
            };
            assert_eq!(timeouts.validate(), Ok(()));
        }
        assert_eq!(Timeouts::default().validate(), Ok(()));
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let mut nobody = class("nobody");
        nobody.src = None;
        let mut barred = class("nobody");
        barred.forbid = true;
        barred.lifetime = Some(Lifetime::Lease(Lease {
            lease_s: Some(0),
            renewals_max: 0,
            ..Lease::default()
        }));
        let timeouts = Timeouts {
            default: Lifetime::Fixed {
                idle_s: 5,
                hard_s: 2,
            },
            classes: vec![nobody, barred],
            table_entries_max: Some(0),
            switches: [(openflow::DatapathId(7), 0)].into(),
            ..Timeouts::default()
        };
        let problems = timeouts.validate().unwrap_err();
        let places: Vec<_> = problems.iter().map(|p| (p.class, p.field)).collect();
        assert_eq!(
            places,
            [
                (None, "idle_s"),
                (None, "table_entries_max"),
                (None, "switches"),
                (Some(0), "src"),
                (Some(1), "name"),
                (Some(1), "forbid"),
                (Some(1), "lease_s"),
                (Some(1), "renewals_max"),
            ]
        );
        assert_eq!(
            problems[0].to_string(),
            "idle_s: is 5; it must not be above hard_s, which is 2"
        );
    }

    #[test]
    fn no_class_reports_by_itself_or_is_left_out() {
        use FirstPackets::{Controller, PreInstall, Report};
        for (of_all, of_class, is_right) in [
            (PreInstall, Report, false),
            (Report, Controller, false),
            (Report, Report, true),
            (PreInstall, Controller, true),
        ] {
            let mut class = class("one");
            class.first_packets = Some(of_class);
            let timeouts = Timeouts {
                first_packets: of_all,
                classes: vec![class],
                ..Timeouts::default()
            };
            let problems = timeouts.validate().err().unwrap_or_default();
            let fields: Vec<_> = problems.iter().map(|p| (p.class, p.field)).collect();
            let wrong = [(Some(0), "first_packets")];
            assert_eq!(fields, if is_right { &[][..] } else { &wrong });
        }
    }

    /// Each rule, broken by as little as possible.
    #[test]
    fn every_rule_holds_by_itself() {
        let lease = |change: fn(&mut Lease)| {
            let mut lease = Lease::default();
            change(&mut lease);
            Lifetime::Lease(lease)
        };
        let paper = |change: fn(&mut Paper)| {
            let mut paper = Paper::default();
            change(&mut paper);
            Lifetime::Paper(paper)
        };
        let fixed = |idle_s, hard_s| Lifetime::Fixed { idle_s, hard_s };
        for (default, wrong) in [
            (fixed(5, 5), None),
            (fixed(5, 0), None),
            (fixed(6, 5), Some("idle_s")),
            (paper(|p| p.base_s = 0), Some("base_s")),
            (paper(|p| p.idle_s = 0), Some("idle_s")),
            (paper(|p| p.idle_s = TIMEOUT_MAX_S + 1), Some("idle_s")),
            (paper(|p| p.raised_s = p.base_s), None),
            (paper(|p| p.raised_s = p.base_s - 1), Some("raised_s")),
            (paper(|p| p.raised_s = TIMEOUT_MAX_S + 1), Some("raised_s")),
            (paper(|p| p.cpu_percent = 0), Some("cpu_percent")),
            (lease(|l| l.idle_min_s = 0), Some("idle_min_s")),
            (lease(|l| l.idle_max_s = l.idle_min_s), None),
            (
                lease(|l| l.idle_max_s = l.idle_min_s - 1),
                Some("idle_max_s"),
            ),
            (
                lease(|l| l.idle_max_s = TIMEOUT_MAX_S + 1),
                Some("idle_max_s"),
            ),
            (lease(|l| l.lease_s = Some(3)), None),
            (lease(|l| l.lease_s = Some(2)), Some("lease_s")),
            (
                lease(|l| l.lease_s = Some(l.lease_max_s + 1)),
                Some("lease_max_s"),
            ),
            (lease(|l| l.renewals_max = 0), Some("renewals_max")),
        ] {
            let fields = |timeouts: &Timeouts| -> Vec<_> {
                let problems = timeouts.validate().err().unwrap_or_default();
                problems.iter().map(|p| (p.class, p.field)).collect()
            };
            let of_all = Timeouts {
                default,
                ..Timeouts::default()
            };
            let expected = Vec::from_iter(wrong.map(|field| (None, field)));
            assert_eq!(fields(&of_all), expected, "{default:?}");
            let of_class = Timeouts {
                classes: vec![FlowClass {
                    lifetime: Some(default),
                    ..class("one")
                }],
                ..Timeouts::default()
            };
            let expected = Vec::from_iter(wrong.map(|field| (Some(0), field)));
            assert_eq!(fields(&of_class), expected, "{default:?} of a class");
        }
    }

    #[test]
    fn a_class_has_a_name_and_what_is_forbidden_nothing_else() {
        let forbidden = FlowClass {
            forbid: true,
            ..class("one")
        };
        for (class, wrong) in [
            (forbidden.clone(), None),
            (class(""), Some("name")),
            (
                FlowClass {
                    first_packets: Some(FirstPackets::PreInstall),
                    ..forbidden
                },
                Some("forbid"),
            ),
            (
                FlowClass {
                    src: None,
                    dst: Some("10.0.0.1".parse::<HostName>().unwrap()),
                    ..class("one")
                },
                None,
            ),
        ] {
            let timeouts = Timeouts {
                classes: vec![class.clone()],
                ..Timeouts::default()
            };
            let problems = timeouts.validate().err().unwrap_or_default();
            let fields: Vec<_> = problems.iter().map(|p| p.field).collect();
            assert_eq!(fields, Vec::from_iter(wrong), "{class:?}");
        }
    }

    #[test]
    fn a_table_has_at_least_one_entry_and_not_more_than_can_be() {
        for (max, is_right) in [(1, true), (ENTRIES_MAX, true), (0, false)]
            .into_iter()
            .chain([(ENTRIES_MAX + 1, false)])
        {
            let of_all = Timeouts {
                table_entries_max: Some(max),
                ..Timeouts::default()
            };
            let of_one = Timeouts {
                switches: [(openflow::DatapathId(7), max)].into(),
                ..Timeouts::default()
            };
            for timeouts in [of_all, of_one] {
                assert_eq!(timeouts.validate().is_ok(), is_right, "{max}");
            }
        }
    }

    #[test]
    fn a_class_that_never_applies_is_told() {
        let class = |name: &str, src: &str, dst: Option<&str>| FlowClass {
            src: Some(src.parse().unwrap()),
            dst: dst.map(|dst| dst.parse().unwrap()),
            ..class(name)
        };
        let timeouts = Timeouts {
            classes: vec![
                class("server", "10.0.0.0/16", Some("10.9.0.1")),
                class("site", "10.0.0.0/16", None),
                class("floor", "10.0.3.0/24", Some("10.9.0.2")),
                class("other", "10.1.0.0/24", None),
                class("host", "10.1.0.9", None),
            ],
            ..Timeouts::default()
        };
        let doubts = timeouts.doubts();
        let told: Vec<_> = doubts
            .iter()
            .map(|doubt| (doubt.class, &doubt.text[..]))
            .collect();
        let text = |of: &str, by: &str| {
            format!("'{of}' never applies: every packet of it is of class '{by}' before it")
        };
        assert_eq!(
            told,
            [
                (Some(2), &text("floor", "site")[..]),
                (Some(4), &text("host", "other")[..]),
            ]
        );
    }

    fn service(name: &str, proto: &str, src_ports: &[u16], dst_ports: &[u16]) -> FlowClass {
        let service = super::super::Service {
            proto: proto.parse().unwrap(),
            src_ports: src_ports.to_vec(),
            dst_ports: dst_ports.to_vec(),
        };
        FlowClass {
            service: Some(service),
            ..class(name)
        }
    }

    #[test]
    fn what_is_wrong_with_services_is_told_with_the_rest() {
        let many: Vec<u16> = (1..=8).collect();
        let mut own = service("own", "tcp", &[], &[22]);
        own.first_packets = Some(FirstPackets::Controller);
        let mut any = service("any", "udp", &[], &[53]);
        any.src = None;
        let classes = vec![
            any,
            service("ping", "icmp", &[], &[7]),
            service("none", "tcp", &[0], &[]),
            service("long", "udp", &[], &(1..=9).collect::<Vec<u16>>()),
            own,
            service("square", "tcp", &many, &many[..4]),
            service("last", "tcp", &[], &[9]),
        ];
        let timeouts = Timeouts {
            classes,
            ..Timeouts::default()
        };
        let problems = timeouts.validate().unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "class 2: dst_port: is of tcp, udp or sctp only; proto is another",
                "class 3: src_port: is 0; it must be a number from 1 to 65535",
                "class 4: dst_port: has 9 ports; there must be no more than 8",
                "class 5: first_packets: is for all packets of a pair; leave it out where proto is \
                 given",
                "class 6: proto: needs 64 entries of a pair, and classes before it 4; there must \
                 be no more than 64",
            ]
        );
    }

    #[test]
    fn a_service_is_covered_by_one_with_all_its_ports() {
        let never = |classes: Vec<FlowClass>| {
            let timeouts = Timeouts {
                classes,
                ..Timeouts::default()
            };
            timeouts.doubts().len()
        };
        let ssh = || service("ssh", "tcp", &[], &[22]);
        assert_eq!(never(vec![service("two", "tcp", &[], &[22, 23]), ssh()]), 1);
        assert_eq!(never(vec![service("all", "tcp", &[], &[]), ssh()]), 1);
        assert_eq!(never(vec![class("pair"), ssh()]), 1);
        assert_eq!(never(vec![ssh(), service("all", "tcp", &[], &[])]), 0);
        assert_eq!(never(vec![ssh(), class("pair")]), 0);
        assert_eq!(never(vec![service("udp", "udp", &[], &[]), ssh()]), 0);
        assert_eq!(never(vec![service("from", "tcp", &[9], &[22]), ssh()]), 0);
    }

    #[test]
    fn a_raised_timeout_is_not_below_the_base() {
        let paper = Paper {
            base_s: 3,
            ..Paper::default()
        };
        let timeouts = Timeouts {
            default: Lifetime::Paper(paper),
            ..Timeouts::default()
        };
        let problems = timeouts.validate().unwrap_err();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "raised_s");
    }
}
