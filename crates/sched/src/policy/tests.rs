use openflow::Field;
use proptest::prelude::*;

use super::*;

/// The three examples of the published scheme, as they are printed.
pub(crate) const EXAMPLES: [&str; 3] = [
    "\
Rule #1: traffic_type=1, action=queue_id:0 
Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1  
Rule #3: traffic_type=2, action=queue_id:2 
Rule #4: traffic_type=3, action=queue_id:3 
",
    "\
Rule #1: traffic_type=1, action=dscp:CS7 
Rule #2: traffic_type=2, action=dscp:CS6 
Rule #3: traffic_type=3, action=dscp:CS5 
Rule #4: traffic_type=4, action=dscp:copy 
",
    "\
Rule #1: traffic_type=1, action=dscp:CS7 
Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=dscp:CS6 
Rule #3: traffic_type=2, action=dscp:CS5 
Rule #4: traffic_type=3, action=dscp:CS4 
Rule #5: traffic_type=4, action=dscp:copy 
",
];

#[test]
fn the_published_examples_load_as_printed() {
    let load = |text: &str| PolicyMap::parse(text).unwrap().0;
    let [one, two, three] = EXAMPLES.map(load);
    let actions = |map: &PolicyMap| map.rules.iter().map(|r| r.action).collect::<Vec<_>>();
    assert_eq!(actions(&one), [0, 1, 2, 3].map(Action::Queue));
    assert_eq!(one.scheduling.queues.len(), 4);
    assert_eq!(one.default, Action::Queue(3), "the lowest");
    let udp = Match::any()
        .with(Field::IpProto, 17u8)
        .with(Field::UdpDst, 20000u16);
    assert_eq!(one.rules[1].fields, udp);
    assert_eq!(three.rules[1].fields, udp);
    let (cs, copy) = (Action::Dscp, Action::DscpCopy);
    assert_eq!(actions(&two), [cs(56), cs(48), cs(40), copy]);
    assert_eq!(actions(&three), [cs(56), cs(48), cs(40), cs(32), copy]);
    assert_eq!(three.default, Action::Dscp(0));
    assert_eq!(three.scheduling.queues.len(), DSCP_QUEUES);
    assert_eq!(three.dscp_queue[46], three.dscp_queue[40], "EF is with CS5");
    let weights: Vec<u16> = three.scheduling.queues.iter().map(|q| q.weight).collect();
    assert_eq!(weights, [8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn shipped_maps_and_no_map_read_back() {
    for map in [PolicyMap::none(), PolicyMap::auster(), PolicyMap::paper()] {
        let (read, _) = PolicyMap::parse(&map.to_text()).unwrap();
        assert_eq!(read, map);
        assert_eq!(read.digest(), map.digest());
    }
    assert_ne!(PolicyMap::auster().digest(), PolicyMap::paper().digest());
    let (nothing, problems) = PolicyMap::parse("# a comment\n\n").unwrap();
    assert_eq!((nothing, problems), (PolicyMap::none(), Vec::new()));
}

/// Reads `text` and gives its problems, errors or not.
fn problems(text: &str) -> Vec<Problem> {
    match PolicyMap::parse(text) {
        Ok((_, warnings)) => warnings,
        Err(problems) => problems,
    }
}

/// A map that is right except for `lines`.
fn with(lines: &str) -> String {
    format!("Default: action=queue_id:1\n{lines}\n")
}

/// Each error and warning: its code, the lines after a first one, and the position and field that
/// it reports.
const CASES: &[(Code, &str, (usize, usize), &str)] = &[
    (
        Code::Syntax,
        "Rool #1: traffic_type=1, action=queue_id:0",
        (2, 1),
        "Rool #1",
    ),
    (Code::Syntax, "nonsense", (2, 1), "nonsense"),
    (
        Code::Syntax,
        "Rule #1: traffic_type=1, queue, action=queue_id:0",
        (2, 26),
        "queue",
    ),
    (
        Code::Syntax,
        "Rule #1: traffic_type=1,, action=queue_id:0",
        (2, 25),
        "",
    ),
    (
        Code::Syntax,
        "Rule #0: traffic_type=1, action=queue_id:0",
        (2, 1),
        "Rule",
    ),
    (
        Code::Syntax,
        "Rule #1: xid=1, xid=2, action=queue_id:0",
        (2, 17),
        "xid",
    ),
    (
        Code::Syntax,
        "Rule #1: ip_proto=6, nw_proto=6, action=queue_id:0",
        (2, 22),
        "nw_proto",
    ),
    (
        Code::Syntax,
        "Default: action=queue_id:0",
        (2, 1),
        "Default",
    ),
    (Code::Syntax, "Profile: mine", (2, 10), "Profile"),
    (Code::Syntax, "Generation: new", (2, 13), "Generation"),
    (
        Code::UnknownField,
        "Rule #1: udp_dest=1, action=queue_id:0",
        (2, 10),
        "udp_dest",
    ),
    (
        Code::UnknownField,
        "Rule #1: tp_dst=1, action=queue_id:0",
        (2, 10),
        "tp_dst",
    ),
    (Code::UnknownField, "Queue #1: colour=1", (2, 11), "colour"),
    (Code::UnknownField, "Scheduler: speed=1", (2, 12), "speed"),
    (
        Code::TrafficType,
        "Rule #1: traffic_type=5, action=queue_id:0",
        (2, 23),
        "traffic_type",
    ),
    (
        Code::TrafficType,
        "Rule #1: traffic_type=0, action=queue_id:0",
        (2, 23),
        "traffic_type",
    ),
    (
        Code::DuplicateId,
        "Rule #1: traffic_type=1, action=queue_id:0\nRule #1: traffic_type=2, action=queue_id:0",
        (3, 1),
        "Rule",
    ),
    (
        Code::DuplicateId,
        "Queue #1: weight=1\nQueue #1: weight=1",
        (3, 1),
        "Queue",
    ),
    (
        Code::Value,
        "Rule #1: udp_dst=65536, action=queue_id:0",
        (2, 18),
        "udp_dst",
    ),
    (
        Code::Value,
        "Rule #1: ip_proto=17/0x0f, action=queue_id:0",
        (2, 19),
        "ip_proto",
    ),
    (
        Code::Value,
        "Rule #1: ipv4_src=10.0.0.1/8, action=queue_id:0",
        (2, 19),
        "ipv4_src",
    ),
    (
        Code::Value,
        "Rule #1: udp_dst=7/0x1fff0, action=queue_id:0",
        (2, 18),
        "udp_dst",
    ),
    (
        Code::Value,
        "Rule #1: udp_dst=0/0, action=queue_id:0",
        (2, 18),
        "udp_dst",
    ),
    (
        Code::Value,
        "Rule #1: vlan_vid=100, action=queue_id:0",
        (2, 19),
        "vlan_vid",
    ),
    (
        Code::Value,
        "Rule #1: eth_dst=1:2, action=queue_id:0",
        (2, 18),
        "eth_dst",
    ),
    (
        Code::Value,
        "Rule #1: xid=3/2, action=queue_id:0",
        (2, 14),
        "xid",
    ),
    (
        Code::Value,
        "Rule #1: msg=packet, action=queue_id:0",
        (2, 14),
        "msg",
    ),
    (
        Code::Value,
        "Rule #1: dir=left, action=queue_id:0",
        (2, 14),
        "dir",
    ),
    (
        Code::Value,
        "Rule #1: domain=256, action=queue_id:0",
        (2, 17),
        "domain",
    ),
    (Code::Value, "Scheduler: algo=lottery", (2, 17), "algo"),
    (Code::Value, "Queue #1: deadline=soon", (2, 20), "deadline"),
    (Code::Value, "Queue #1: min_rate=5", (2, 20), "min_rate"),
    (
        Code::Contradiction,
        "Rule #1: ip_proto=6, udp_dst=53, action=queue_id:0",
        (2, 22),
        "udp_dst",
    ),
    (
        Code::Contradiction,
        "Rule #1: ipv4_src=10.0.0.1, ipv6_dst=::1, action=queue_id:0",
        (2, 29),
        "ipv6_dst",
    ),
    (
        Code::Contradiction,
        "Rule #1: eth_type=0x0806, tcp_dst=80, action=queue_id:0",
        (2, 27),
        "tcp_dst",
    ),
    (
        Code::Contradiction,
        "Rule #1: vlan_vid=0, vlan_pcp=3, action=queue_id:0",
        (2, 22),
        "vlan_pcp",
    ),
    (
        Code::NoPacket,
        "Rule #1: traffic_type=1, udp_dst=5, action=queue_id:0",
        (2, 26),
        "udp_dst",
    ),
    (
        Code::NoPacket,
        "Rule #1: traffic_type=3, msg=port_status, udp_dst=5, action=queue_id:0",
        (2, 43),
        "udp_dst",
    ),
    (
        Code::QueueId,
        "Rule #1: traffic_type=1, action=queue_id:16",
        (2, 33),
        "queue_id",
    ),
    (
        Code::QueueId,
        "Rule #1: traffic_type=1, action=queue_id:2\nQueue #1: weight=1",
        (2, 26),
        "action",
    ),
    (
        Code::QueueId,
        "Scheduler: queues=2\nDscp: CS1=2",
        (3, 7),
        "Queue",
    ),
    (Code::QueueId, "Queue #16: weight=1", (2, 1), "Queue"),
    (
        Code::Dscp,
        "Rule #1: traffic_type=1, action=dscp:64",
        (2, 33),
        "action",
    ),
    (
        Code::Dscp,
        "Rule #1: traffic_type=1, action=dscp:CS8",
        (2, 33),
        "action",
    ),
    (Code::Dscp, "Dscp: AF50=1", (2, 7), "Dscp"),
    (
        Code::NothingToCopy,
        "Rule #1: traffic_type=1, action=dscp:copy",
        (2, 26),
        "action",
    ),
    (Code::Action, "Rule #1: traffic_type=1", (2, 1), "Rule"),
    (
        Code::Action,
        "Rule #1: action=queue_id:0, action=dscp:CS1",
        (2, 29),
        "action",
    ),
    (Code::Action, "Rule #1: action=drop", (2, 17), "action"),
    (
        Code::Action,
        "Rule #1: action=queue_id:1+dscp:copy",
        (2, 17),
        "action",
    ),
    (Code::Rate, "Queue #1: weight=0", (2, 18), "weight"),
    (Code::Rate, "Queue #1: weight=-4", (2, 18), "weight"),
    (Code::Rate, "Queue #1: min_rate=0mbit", (2, 20), "min_rate"),
    (
        Code::Rate,
        "Scheduler: link_rate=10mbit\nQueue #0: min_rate=8mbit\nQueue #1: min_rate=3mbit",
        (4, 11),
        "min_rate",
    ),
    (
        Code::Unreachable,
        "Rule #1: traffic_type=2, action=queue_id:0\nRule #2: traffic_type=2, udp_dst=5, \
         action=queue_id:1",
        (3, 1),
        "Rule",
    ),
    (
        Code::Unreachable,
        "Rule #1: ip_proto=17, action=queue_id:0\nRule #2: udp_dst=5, action=queue_id:1",
        (3, 1),
        "Rule",
    ),
    (
        Code::Unreachable,
        "Rule #1: traffic_type=2, ipv4_dst=10.0.0.0/8, action=queue_id:0\n\
         Rule #2: traffic_type=2, ipv4_dst=10.1.0.0/16, action=queue_id:1",
        (3, 1),
        "Rule",
    ),
    (
        Code::DataOutranks,
        "Rule #1: traffic_type=3, action=dscp:CS5\nRule #2: traffic_type=4, action=dscp:copy",
        (3, 26),
        "action",
    ),
    (
        Code::DataOutranks,
        "Rule #1: traffic_type=3, action=dscp:CS4\nRule #2: traffic_type=4, action=dscp:AF41",
        (3, 26),
        "action",
    ),
    (
        Code::NetworkControl,
        "Rule #1: traffic_type=1, action=dscp:CS7",
        (2, 26),
        "action",
    ),
    (Code::Starvation, "Scheduler: algo=strict", (2, 1), "algo"),
    (
        Code::SessionBelow,
        "Rule #1: traffic_type=1, action=queue_id:1\nRule #2: traffic_type=2, action=queue_id:0",
        (2, 26),
        "action",
    ),
    (
        Code::PartlyShadowed,
        "Rule #1: udp_dst=5, action=queue_id:0\nRule #2: ipv4_src=10.0.0.1, action=queue_id:1",
        (3, 1),
        "Rule",
    ),
];

#[test]
fn each_error_and_warning_has_its_place_its_field_and_what_would_be_right() {
    for (code, lines, (line, column), field) in CASES {
        let found = problems(&with(lines));
        let here: Vec<_> = found.iter().filter(|p| p.code == *code).collect();
        assert_eq!(here.len(), 1, "{code} of {lines}: {found:?}");
        let at = Position {
            line: *line,
            column: *column,
        };
        assert_eq!(
            (here[0].at, here[0].field.as_str()),
            (at, *field),
            "{lines}"
        );
        assert!(!here[0].what.is_empty() && !here[0].wanted.is_empty());
        let is_usable = PolicyMap::parse(&with(lines)).is_ok();
        assert_eq!(is_usable, !code.is_error(), "{lines}");
        let others = found
            .iter()
            .filter(|p| p.code != *code && p.code.is_error());
        assert_eq!(others.count(), 0, "one mistake, one error: {found:?}");
    }
}

#[test]
fn every_code_has_a_case() {
    // These codes are not about one text alone; each has a test of its own.
    let elsewhere = [
        Code::TooManyRules,
        Code::NoRule,
        Code::Carrier,
        Code::Generation,
        Code::Digest,
    ];
    for code in Code::ALL {
        let has_case = CASES.iter().any(|(of, ..)| of == code);
        assert_ne!(has_case, elsewhere.contains(code), "{code}");
    }
}

#[test]
fn a_map_has_64_rules_and_no_more() {
    let rules = |count: usize| -> String {
        (1..=count)
            .map(|n| format!("Rule #{n}: traffic_type=2, udp_dst={n}, action=queue_id:0\n"))
            .collect()
    };
    assert_eq!(problems(&with(&rules(64))), []);
    let found = problems(&with(&rules(66)));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].code, found[0].at.line), (Code::TooManyRules, 66));
}

#[test]
fn a_type_without_rule_needs_a_default() {
    let found = problems("Rule #1: traffic_type=2, action=queue_id:0");
    let codes: Vec<Code> = found.iter().map(|p| p.code).collect();
    assert_eq!(codes, [Code::NoRule; 2], "types 1 and 3: {found:?}");
    assert!(found[0].what.contains("traffic_type=1"));
    assert_eq!(problems("Rule #1: action=queue_id:0"), []);
}

#[test]
fn a_map_is_held_against_where_it_is_to_be_used() {
    let text = "Generation: 7\nRule #1: action=dscp:CS3\n";
    let map = PolicyMap::parse(text).unwrap().0;
    let read = |against| PolicyMap::parse_against(text, &against);
    let code = |result: Result<(PolicyMap, Vec<Problem>), Vec<Problem>>| match result {
        Ok((_, problems)) => (true, problems.iter().map(|p| p.code).collect::<Vec<_>>()),
        Err(problems) => (false, problems.iter().map(|p| p.code).collect()),
    };
    let after = |generation| Against {
        generation: Some(generation),
        ..Against::default()
    };
    assert_eq!(code(read(after(6))), (true, vec![]));
    assert_eq!(code(read(after(7))), (false, vec![Code::Generation]));
    let announced = |digest| Against {
        digest: Some(digest),
        ..Against::default()
    };
    assert_eq!(code(read(announced(map.digest()))), (true, vec![]));
    let other = PolicyMap::paper().digest();
    assert_eq!(code(read(announced(other))), (false, vec![Code::Digest]));
    let queues_only = Against {
        queues_only: true,
        ..Against::default()
    };
    assert_eq!(code(read(queues_only)), (true, vec![Code::Carrier]));
    let empty = PolicyMap::parse_against("", &after(7)).unwrap_err();
    assert_eq!(empty[0].at, Position { line: 1, column: 1 });
}

#[test]
fn all_mistakes_are_told_together_in_the_order_of_the_text() {
    let text = "\
Profile: mine
Rule #1: traffic_type=9, udp_dst=70000, action=queue_id:99
Rule #1: traffic_type=2
Queue #0: weight=0";
    let found = problems(text);
    let codes: Vec<(usize, &str)> = found.iter().map(|p| (p.at.line, p.code.name())).collect();
    assert_eq!(
        codes,
        [
            (1, "E01"),
            (2, "E03"),
            (2, "E06"),
            (2, "E09"),
            (3, "E05"),
            (3, "E12"),
            (4, "E16")
        ]
    );
}

#[test]
fn names_of_1_0_mean_the_same_fields() {
    let fields = |line: &str| {
        let text = format!("Rule #1: {line}, action=queue_id:0");
        PolicyMap::parse(&text).unwrap().0.rules[0].fields.clone()
    };
    assert_eq!(
        fields("nw_proto=17, tp_dst=20000"),
        fields("ip_proto=17, udp_dst=20000")
    );
    assert_eq!(
        fields("tp_src=80, dl_type=0x0800, nw_proto=6, nw_src=10.0.0.0/255.0.0.0"),
        fields("tcp_src=80, eth_type=0x800, ip_proto=6, ipv4_src=10.0.0.0/8")
    );
    assert_eq!(
        fields("dl_type=0x806, nw_proto=1, nw_dst=10.0.0.1"),
        fields("eth_type=2054, arp_op=1, arp_tpa=10.0.0.1")
    );
    assert_eq!(fields("dl_vlan=100"), fields("vlan_vid=0x1064"));
    assert_eq!(fields("nw_tos=184"), fields("ip_dscp=46"));
}

prop_compose! {
    fn field_sets()(
        kind in 0..7, port in any::<u16>(), address in any::<u32>(), len in 1u32..=32,
    ) -> Match {
        let mask = u32::MAX << (32 - len);
        let any = Match::any();
        match kind {
            0 => any,
            1 => any.with(Field::IpProto, 17u8).with(Field::UdpDst, port),
            2 => any.with(Field::TcpSrc, port),
            3 if len == 32 => any.with(Field::Ipv4Dst, address),
            3 => any.with_masked(Field::Ipv4Dst, address & mask, mask),
            4 => any.with(Field::EthSrc, u64::from(address)).with(Field::InPort, u32::from(port)),
            5 => any.with(Field::Ipv6Src, u128::from(address) << 64).with(Field::IpDscp, port & 63),
            _ => any
                .with_masked(Field::UdpSrc, port & 0xff00, 0xff00u16)
                .with(Field::VlanVid, 0x1007u16),
        }
    }
}

prop_compose! {
    fn queue_configs()(
        weight in 1u16.., rate in proptest::option::of(1u64..1 << 40), ms in 1u64..5000,
        nanos in 1u64..1 << 40, messages_max in 1usize..100_000, bytes_max in 1usize..1 << 30,
    ) -> QueueConfig {
        QueueConfig {
            weight,
            min_rate: rate,
            deadline: Duration::from_millis(ms),
            messages_max,
            bytes_max,
            age_max: Duration::from_nanos(nanos),
        }
    }
}

fn actions(queues: u8) -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..queues).prop_map(Action::Queue),
        (0u8..64).prop_map(Action::Dscp),
        (0..queues, 0u8..64).prop_map(|(queue, dscp)| Action::Both(queue, dscp)),
    ]
}

prop_compose! {
    fn rules(queues: u8)(
        fields in field_sets(), action in actions(queues), domain in 0u8..4,
        traffic in 1usize..4, dpid in proptest::option::of(1u64..9), up in any::<Option<bool>>(),
        mask in prop_oneof![Just(u32::MAX), any::<u32>()],
    ) -> Rule {
        Rule {
            id: 0,
            traffic: TrafficType::ALL.get(traffic).copied().filter(|_| traffic != 2),
            message: (dpid == Some(3)).then_some(MessageKind::FlowMod),
            direction: up.map(|up| if up { Direction::ToController } else { Direction::ToSwitch }),
            datapath: dpid.map(DatapathId),
            fields,
            xid: Some((0, mask | 0xff)),
            domain,
            action,
        }
    }
}

prop_compose! {
    fn maps()(queues in proptest::collection::vec(queue_configs(), 1..=QUEUES_MAX))(
        rules in proptest::collection::vec(rules(queues.len() as u8), 0..20),
        default in actions(queues.len() as u8),
        dscp in proptest::collection::vec(0..queues.len() as u8, 64),
        algorithm in 0..7usize,
        (generation, is_paper, bytes_hard, free) in
            (any::<u64>(), any::<bool>(), 1usize..1 << 32, any::<bool>()),
        queues in Just(queues),
    ) -> PolicyMap {
        let mut rules = rules;
        for (at, rule) in rules.iter_mut().enumerate() {
            rule.id = at as u16 * 3 + 1;
            // No rule shadows another.
            rule.xid = rule.xid.map(|(_, mask)| (at as u32, mask));
        }
        PolicyMap {
            generation,
            profile: if is_paper { Profile::Paper } else { Profile::Auster },
            rules,
            default,
            dscp_queue: dscp.try_into().unwrap(),
            link_rate: None,
            scheduling: Scheduling {
                algorithm: Algorithm::ALL[algorithm],
                queues,
                bytes_hard,
                packet_out_free: free,
            },
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back(map in maps()) {
        let text = map.to_text();
        let (read, _) = PolicyMap::parse(&text).map_err(|problems| {
            TestCaseError::fail(format!("{problems:?}\n{text}"))
        })?;
        prop_assert_eq!(&read, &map, "{}", text);
        prop_assert_eq!(read.to_text(), text);
    }

    #[test]
    fn no_text_is_too_much(
        text in "(Rule #[0-9]:|Queue #[0-9]:|Dscp:|Scheduler:|[a-z_=:,#/ 0-9]{0,12}|\n|é)*",
    ) {
        for problem in problems(&text) {
            prop_assert!(problem.at.line <= text.lines().count().max(1), "{problem}");
        }
    }
}
