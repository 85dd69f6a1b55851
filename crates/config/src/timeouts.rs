//! The `[timeouts]` section: how long flow entries live, and for whom.

use std::ops::Range;

use control::timeouts::{
    ENTRIES_MAX, FirstPackets, FlowClass, HostName, Lease, Lifetime, Paper, Problem, Proto,
    Service, Timeouts,
};
use openflow::DatapathId;
use toml::de::{DeTable, DeValue};

use super::fields::Fields;

const EVERYWHERE: [&str; 2] = ["policy", "first_packets"];
const SECTION: [&str; 4] = ["table_entries_max", "switches", "load", "class"];
const CLASS: [&str; 8] = [
    "name", "src", "dst", "proto", "src_port", "dst_port", "forbid", "priority",
];
const FIXED: [&str; 2] = ["idle_s", "hard_s"];
const PAPER: [&str; 4] = ["base_s", "raised_s", "cpu_percent", "idle_s"];
const LEASE: [&str; 5] = [
    "idle_max_s",
    "idle_min_s",
    "lease_s",
    "lease_max_s",
    "renewals_max",
];

/// The range of a two-byte field of a flow-mod.
const SECONDS: std::ops::RangeInclusive<u64> = 0..=65_535;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Fixed,
    Paper,
    Lease,
}

impl Policy {
    const ALL: [(&str, Policy); 3] = [
        ("lease", Policy::Lease),
        ("paper", Policy::Paper),
        ("fixed", Policy::Fixed),
    ];

    fn of(lifetime: Lifetime) -> Policy {
        match lifetime {
            Lifetime::Fixed { .. } => Policy::Fixed,
            Lifetime::Paper(_) => Policy::Paper,
            Lifetime::Lease(_) => Policy::Lease,
        }
    }

    fn parse(text: &str) -> Result<Policy, String> {
        let found = Policy::ALL.into_iter().find(|(name, _)| *name == text);
        found
            .map(|(_, policy)| policy)
            .ok_or_else(|| format!("'{text}' is none of lease, paper, fixed"))
    }

    fn name(self) -> &'static str {
        let found = Policy::ALL.into_iter().find(|(_, policy)| *policy == self);
        found.map_or("", |(name, _)| name)
    }

    fn settings(self) -> &'static [&'static str] {
        match self {
            Policy::Fixed => &FIXED,
            Policy::Paper => &PAPER,
            Policy::Lease => &LEASE,
        }
    }
}

/// Reads the section into `timeouts`, and keeps its default where the section has no value.
pub fn read<'a>(timeouts: &mut Timeouts, fields: &mut Fields<'a>, table: &DeTable<'a>) {
    let known: Vec<&str> = EVERYWHERE
        .into_iter()
        .chain(SECTION)
        .chain(every_setting())
        .collect();
    fields.only(table, "timeouts", &known);
    if let Some(lifetime) = lifetime(fields, table, timeouts.default) {
        timeouts.default = lifetime;
    }
    if let Some(first_packets) = first_packets(fields, table) {
        timeouts.first_packets = first_packets;
    }
    if let Some(load) = fields.parsed(table, "load", "process", str::parse) {
        timeouts.load = load;
    }
    let limits = 1..=u64::from(ENTRIES_MAX);
    let entries = fields.integer(table, "table_entries_max", limits.clone());
    timeouts.table_entries_max = entries.and_then(|n| u32::try_from(n).ok());
    if let Some(switches) = fields.table(table, "switches") {
        for (key, _) in switches.iter() {
            let name: &str = key.get_ref();
            let max = fields.integer(switches, name, limits.clone());
            match name.parse::<DatapathId>() {
                Ok(dpid) => {
                    let max = max.and_then(|n| u32::try_from(n).ok());
                    timeouts.switches.extend(max.map(|max| (dpid, max)));
                }
                Err(problem) => fields.problem(&key.span(), format!("switches: {problem}")),
            }
        }
    }
    let classes = fields.tables(table, "class");
    for class in &classes {
        let class = read_class(fields, class, timeouts.default);
        timeouts.classes.push(class);
    }
    for doubt in timeouts.doubts() {
        let at = place(table, &classes, &doubt);
        fields.doubt(&at, format!("{} {}", doubt.field, doubt.text));
    }
    let has_lifetime = lifetime_key(table).is_some();
    let is_here = |problem: &Problem| {
        // [controller] has set the lifetime, and its mistakes are reported there.
        problem.class.is_some() || has_lifetime || !every_setting().any(|key| key == problem.field)
    };
    let problems = timeouts.validate().err().unwrap_or_default();
    for problem in problems.into_iter().filter(is_here) {
        // A wrongly named host has its own report.
        let class = problem.class.and_then(|at| classes.get(at));
        let is_named =
            |class: &&&DeTable<'_>| ["src", "dst"].iter().any(|key| class.contains_key(*key));
        if problem.field == "src" && class.filter(is_named).is_some() {
            continue;
        }
        let at = place(table, &classes, &problem);
        fields.problem(&at, format!("{} {}", problem.field, problem.text));
    }
}

fn read_class(fields: &mut Fields<'_>, table: &DeTable<'_>, default: Lifetime) -> FlowClass {
    let known: Vec<&str> = CLASS
        .into_iter()
        .chain(EVERYWHERE)
        .chain(every_setting())
        .collect();
    fields.only(table, "timeouts.class", &known);
    let mut host = |key| fields.parsed(table, key, "10.0.0.1", str::parse::<HostName>);
    let (src, dst) = (host("src"), host("dst"));
    FlowClass {
        name: fields.string(table, "name", "voice").unwrap_or_default(),
        src,
        dst,
        service: service(fields, table),
        lifetime: lifetime(fields, table, default),
        first_packets: first_packets(fields, table),
        forbid: fields.bool(table, "forbid").unwrap_or(false),
        priority: fields.bool(table, "priority").unwrap_or(false),
    }
}

fn service(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Option<Service> {
    let is_number = |value: &toml::Spanned<DeValue<'_>>| value.get_ref().is_integer();
    let proto = match table.get("proto") {
        Some(value) if is_number(value) => {
            let number = fields.integer(table, "proto", 1..=255);
            number.and_then(|n| u8::try_from(n).ok()).map(Proto::Number)
        }
        _ => fields.parsed(table, "proto", "tcp", str::parse),
    };
    let mut ports = |key: &str| -> Vec<u16> {
        if let Some(value) = table.get(key).filter(|_| !table.contains_key("proto")) {
            let problem = format!("{key} needs proto, one of tcp, udp, sctp");
            fields.problem(&value.span(), problem);
        }
        let ports = fields.integers(table, key, 1..=65_535);
        ports
            .into_iter()
            .filter_map(|n| u16::try_from(n).ok())
            .collect()
    };
    let (src_ports, dst_ports) = (ports("src_port"), ports("dst_port"));
    proto.map(|proto| Service {
        proto,
        src_ports,
        dst_ports,
    })
}

fn every_setting() -> impl Iterator<Item = &'static str> {
    let all = FIXED.into_iter().chain(PAPER).chain(LEASE);
    // Each name once: the report of an unknown key lists them.
    let mut told = Vec::new();
    all.filter(move |name| {
        let is_new = !told.contains(name);
        told.push(*name);
        is_new
    })
}

/// The key of the section that says how long entries live, if there is one.
pub fn lifetime_key(table: &DeTable<'_>) -> Option<&'static str> {
    let mut keys = ["policy"].into_iter().chain(every_setting());
    keys.find(|key| table.contains_key(*key))
}

fn first_packets(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Option<FirstPackets> {
    fields.parsed(table, "first_packets", "preinstall", str::parse)
}

/// The lifetime of entries in the table, if the table states one. Without a policy, the settings
/// are those of the policy of `default`.
fn lifetime(fields: &mut Fields<'_>, table: &DeTable<'_>, default: Lifetime) -> Option<Lifetime> {
    let named = fields.parsed(table, "policy", "lease", Policy::parse);
    if named.is_none() && table.contains_key("policy") {
        // Whichever policy was meant: a value that none can have is wrong.
        let _ = (
            fixed(fields, table),
            paper(fields, table),
            lease(fields, table),
        );
        return None;
    }
    let policy = named.unwrap_or(Policy::of(default));
    let mut is_said = named.is_some();
    for (key, _) in table.iter() {
        let name: &str = key.get_ref();
        if policy.settings().contains(&name) {
            is_said = true;
        } else if every_setting().any(|setting| setting == name) {
            let (policy, its) = (policy.name(), policy.settings().join(", "));
            let problem = format!("{name} is no setting of policy {policy}; its are: {its}");
            fields.problem(&key.span(), problem);
        }
    }
    is_said.then(|| match policy {
        Policy::Fixed => fixed(fields, table),
        Policy::Paper => paper(fields, table),
        Policy::Lease => lease(fields, table),
    })
}

fn seconds(fields: &mut Fields<'_>, table: &DeTable<'_>, key: &str) -> Option<u16> {
    let found = fields.integer(table, key, SECONDS);
    found.and_then(|n| u16::try_from(n).ok())
}

/// The fixed lifetime. The default idle timeout is the usual one, or the hard timeout if that is
/// less.
fn fixed(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Lifetime {
    let hard_s = seconds(fields, table, "hard_s").unwrap_or(0);
    let usual_s = match hard_s {
        0 => super::settings::IDLE_TIMEOUT_S,
        hard_s => super::settings::IDLE_TIMEOUT_S.min(hard_s),
    };
    let idle_s = seconds(fields, table, "idle_s").unwrap_or(usual_s);
    Lifetime::Fixed { idle_s, hard_s }
}

fn paper(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Lifetime {
    let usual = Paper::default();
    let mut field = |key, usual| seconds(fields, table, key).unwrap_or(usual);
    Lifetime::Paper(Paper {
        base_s: field("base_s", usual.base_s),
        raised_s: field("raised_s", usual.raised_s),
        cpu_percent: field("cpu_percent", usual.cpu_percent),
        idle_s: field("idle_s", usual.idle_s),
    })
}

fn lease(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Lifetime {
    let usual = Lease::default();
    let renewals = fields.integer(table, "renewals_max", 0..=1_000_000);
    let mut field = |key| seconds(fields, table, key);
    Lifetime::Lease(Lease {
        idle_max_s: field("idle_max_s").unwrap_or(usual.idle_max_s),
        idle_min_s: field("idle_min_s").unwrap_or(usual.idle_min_s),
        lease_s: field("lease_s"),
        lease_max_s: field("lease_max_s").unwrap_or(usual.lease_max_s),
        renewals_max: renewals
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(usual.renewals_max),
    })
}

/// The place of the field that a problem is about, or of the first field of its section or class if
/// the field is left out.
fn place(table: &DeTable<'_>, classes: &[&DeTable<'_>], problem: &Problem) -> Range<usize> {
    let place = match problem.class {
        Some(at) => classes.get(at).copied().unwrap_or(table),
        None => table,
    };
    let given = place.get(problem.field).map(toml::Spanned::span);
    let first = || {
        place
            .iter()
            .map(|(key, _)| key.span())
            .min_by_key(|at| at.start)
    };
    given.or_else(first).unwrap_or(0..0)
}

#[cfg(test)]
mod tests {
    use control::timeouts::Load;

    use super::*;
    use crate::fields::without_columns;

    fn parse(text: &str) -> Result<Timeouts, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let mut timeouts = Timeouts::default();
        let table = fields.table(&root, "timeouts").expect("a section");
        read(&mut timeouts, &mut fields, table);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| timeouts)
    }

    #[test]
    fn everything_is_read() {
        let timeouts = parse(
            r#"
            [timeouts]
            policy = "lease"
            lease_s = 10
            idle_max_s = 30
            first_packets = "hold"
            load = "cores"
            table_entries_max = 2000
            switches = { "0000000000000007" = 100 }

            [[timeouts.class]]
            name = "voice"
            src = "10.0.0.1"
            dst = "02:00:00:00:00:02"
            policy = "paper"
            raised_s = 4
            priority = true

            [[timeouts.class]]
            name = "barred"
            src = "10.0.9.0/24"
            forbid = true
            "#,
        )
        .unwrap();
        let lease = Lease {
            lease_s: Some(10),
            idle_max_s: 30,
            ..Lease::default()
        };
        assert_eq!(timeouts.default, Lifetime::Lease(lease));
        assert_eq!(timeouts.first_packets, FirstPackets::Hold);
        assert_eq!(timeouts.table_entries_max, Some(2000));
        assert_eq!(timeouts.load, Load::Cores);
        assert_eq!(timeouts.switches, [(DatapathId(7), 100)].into());
        let [voice, barred] = &timeouts.classes[..] else {
            panic!("two classes: {timeouts:?}");
        };
        let paper = Paper {
            raised_s: 4,
            ..Paper::default()
        };
        assert_eq!(voice.lifetime, Some(Lifetime::Paper(paper)));
        assert!(voice.priority && !voice.forbid);
        assert_eq!(barred.lifetime, None);
        assert!(barred.forbid && barred.dst.is_none());
        assert_eq!(barred.src, Some("10.0.9.0/24".parse().unwrap()));
    }

    #[test]
    fn services_are_read() {
        let timeouts = parse(
            "[[timeouts.class]]\n\
             name = \"ssh\"\n\
             src = \"10.0.0.0/8\"\n\
             proto = \"tcp\"\n\
             dst_port = [22, 2222]\n\
             [[timeouts.class]]\n\
             name = \"answers\"\n\
             proto = 17\n\
             src_port = 53\n\
             forbid = true\n",
        )
        .unwrap();
        let [ssh, answers] = &timeouts.classes[..] else {
            panic!("two classes: {timeouts:?}");
        };
        let of = |proto, src_ports: &[u16], dst_ports: &[u16]| Service {
            proto,
            src_ports: src_ports.to_vec(),
            dst_ports: dst_ports.to_vec(),
        };
        assert_eq!(ssh.service, Some(of(Proto::TCP, &[], &[22, 2222])));
        assert_eq!(answers.service, Some(of(Proto::UDP, &[53], &[])));
        assert!(answers.forbid && answers.src.is_none());
    }

    #[test]
    fn mistakes_of_services_are_told_with_line_and_field() {
        let problems = parse(
            "[[timeouts.class]]\n\
             name = \"a\"\n\
             src = \"10.0.0.1\"\n\
             dst_port = 22\n\
             [[timeouts.class]]\n\
             name = \"b\"\n\
             proto = \"quic\"\n\
             dst_port = [0, 65536]\n\
             [[timeouts.class]]\n\
             name = \"c\"\n\
             proto = 256\n\
             src_port = \"ssh\"\n\
             [[timeouts.class]]\n\
             name = \"d\"\n\
             proto = \"icmp\"\n\
             dst_port = 22\n\
             [[timeouts.class]]\n\
             name = \"e\"\n\
             proto = \"udp\"\n\
             dst_port = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n",
        )
        .unwrap_err();
        let expected = [
            (4, "dst_port needs proto, one of tcp, udp, sctp"),
            (
                7,
                "proto: 'quic' is none of tcp, udp, icmp, sctp, nor a number",
            ),
            (8, "dst_port is 0; it must be a number from 1 to 65535"),
            (8, "dst_port is 65536; it must be a number from 1 to 65535"),
            (11, "proto is 256; it must be a number from 1 to 255"),
            (
                12,
                "src_port is \"ssh\"; it must be a number from 1 to 65535",
            ),
            (16, "dst_port is of tcp, udp or sctp only; proto is another"),
            (20, "dst_port has 9 ports; there must be no more than 8"),
        ];
        let told = |line: usize| {
            let start = format!("net.toml:{line}: ");
            problems.iter().filter(move |p| p.starts_with(&start))
        };
        for (line, text) in expected {
            let whole = format!("net.toml:{line}: {text}");
            assert!(
                told(line).any(|p| p.starts_with(&whole)),
                "{whole}\n{problems:#?}"
            );
        }
    }

    #[test]
    fn a_class_that_never_applies_is_told_with_its_line_and_taken() {
        let text = "[[timeouts.class]]\nname = \"all\"\nsrc = \"10.0.0.0/8\"\n\
                    [[timeouts.class]]\nsrc = \"10.1.0.1\"\nname = \"one\"\nforbid = true\n";
        let (mut fields, root) = Fields::parse(text);
        let mut timeouts = Timeouts::default();
        let table = fields.table(&root, "timeouts").expect("a section");
        read(&mut timeouts, &mut fields, table);
        assert_eq!(
            without_columns(fields.doubts("net.toml")),
            [
                "net.toml:6: name 'one' never applies: every packet of it is of class 'all' before \
                 it"
            ]
        );
        assert_eq!(fields.finish("net.toml"), Ok(()));
        assert_eq!(timeouts.classes.len(), 2);
    }

    #[test]
    fn a_hard_timeout_alone_has_an_idle_one_within_it() {
        let of = |text: &str| parse(&format!("[timeouts]\npolicy = \"fixed\"\n{text}")).unwrap();
        assert_eq!(of("hard_s = 5").default, Timeouts::fixed(5, 5).default);
        assert_eq!(of("idle_s = 9").default, Timeouts::fixed(9, 0).default);
    }

    #[test]
    fn all_mistakes_are_told_with_line_and_field() {
        let problems = parse(
            "[timeouts]\n\
             policy = \"fixed\"\n\
             idle_s = 9\n\
             hard_s = 5\n\
             table_entries_max = 0\n\
             lease_s = 4\n\
             switches = { \"zz\" = 5 }\n\
             [[timeouts.class]]\n\
             name = \"a\"\n\
             policy = \"quick\"\n\
             [[timeouts.class]]\n\
             name = \"a\"\n\
             src = \"h1\"\n\
             dst = \"10.0.0.2/24\"\n\
             policy = \"lease\"\n\
             lease_s = 0\n\
             idle_max_s = -3\n\
             speed = 1\n",
        )
        .unwrap_err();
        let expected = [
            (3, "idle_s is 9; it must not be above hard_s, which is 5"),
            (5, "table_entries_max is 0; it must be a number from 1"),
            (
                6,
                "lease_s is no setting of policy fixed; its are: idle_s, hard_s",
            ),
            (7, "switches: "),
            (9, "src names neither src nor dst nor proto"),
            (10, "policy: 'quick' is none of lease, paper, fixed"),
            (12, "name 'a' is the name of a class before it"),
            (13, "src: 'h1' is no address"),
            (
                14,
                "dst: '10.0.0.2/24' has bits past its length; the network is 10.0.0.0/24",
            ),
            (16, "lease_s is 0; it must be a number from 3"),
            (17, "idle_max_s is -3; it must be a number from 0"),
            (18, "'speed' is not known in [timeouts.class]"),
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, (line, text)) in problems.iter().zip(expected) {
            let expected = format!("net.toml:{line}: {text}");
            assert!(problem.starts_with(&expected), "{problem}\n{expected}");
        }
    }
}
