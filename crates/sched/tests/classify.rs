//! Messages of every version against the three maps of the published scheme, and against rules on
//! everything that a rule can ask for.

use bytes::Bytes;
use openflow::{DatapathId, Frame, Message, PortNo, Version, Xid, encode, text};
use sched::{Binding, Classifier, Direction, Miss, PolicyMap, TrafficType};

const UP: Direction = Direction::ToController;
const DOWN: Direction = Direction::ToSwitch;

const EXAMPLES: [&str; 3] = [
    "Rule #1: traffic_type=1, action=queue_id:0
     Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1
     Rule #3: traffic_type=2, action=queue_id:2
     Rule #4: traffic_type=3, action=queue_id:3",
    "Rule #1: traffic_type=1, action=dscp:CS7
     Rule #2: traffic_type=2, action=dscp:CS6
     Rule #3: traffic_type=3, action=dscp:CS5
     Rule #4: traffic_type=4, action=dscp:copy",
    "Rule #1: traffic_type=1, action=dscp:CS7
     Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=dscp:CS6
     Rule #3: traffic_type=2, action=dscp:CS5
     Rule #4: traffic_type=3, action=dscp:CS4
     Rule #5: traffic_type=4, action=dscp:copy",
];

fn map(text: &str) -> PolicyMap {
    PolicyMap::parse(text).unwrap().0
}

fn frame(version: u8, type_byte: u8, parts: &[&[u8]]) -> Frame {
    let body = parts.concat();
    let mut bytes = vec![version, type_byte];
    bytes.extend_from_slice(&((8 + body.len()) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 7]);
    bytes.extend_from_slice(&body);
    Frame::new(Bytes::from(bytes)).unwrap()
}

/// A data packet: Ethernet, IPv4 with `dscp`, and the ports of `proto`.
fn ipv4(proto: u8, dscp: u8, src: u16, dst: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend_from_slice(&[0x45, dscp << 2 | 1, 0, 40, 0, 0, 0, 0, 64, proto, 0, 0]);
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend_from_slice(&src.to_be_bytes());
    packet.extend_from_slice(&dst.to_be_bytes());
    packet.extend_from_slice(&[0; 16]);
    packet
}

fn udp(dst: u16) -> Vec<u8> {
    ipv4(17, 0, 5000, dst)
}

fn udp6(dst: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    packet.extend_from_slice(&[0x6b, 0x80, 0, 0, 0, 8, 17, 64]);
    packet.extend_from_slice(&[0xfe; 32]);
    packet.extend_from_slice(&[0x13, 0x88]);
    packet.extend_from_slice(&dst.to_be_bytes());
    packet.extend_from_slice(&[0, 8, 0, 0]);
    packet
}

fn tagged(packet: &[u8]) -> Vec<u8> {
    [&packet[..12], &[0x81, 0, 0x60, 100], &packet[12..]].concat()
}

fn fragment(packet: &[u8]) -> Vec<u8> {
    let mut later = packet.to_vec();
    later[21] = 2;
    later
}

fn arp() -> Vec<u8> {
    let mut packet = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6];
    packet.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    packet.extend_from_slice(&[0; 20]);
    packet
}

/// Port 7 and a tunnel id of 9, padded to 8.
const MATCH: &[u8] = &[
    0, 1, 0, 24, 0x80, 0, 0, 4, 0, 0, 0, 7, 0x80, 0, 76, 8, 0, 0, 0, 0, 0, 0, 0, 9,
];

fn packet_in(version: u8, packet: &[u8]) -> Frame {
    let none = [0xff; 4];
    match version {
        1 => frame(1, 10, &[&none, &[0, 60, 0, 7, 0, 0], packet]),
        2 => frame(
            2,
            10,
            &[&none, &[0, 0, 0, 7], &[0; 4], &[0, 60, 0, 0], packet],
        ),
        3 => frame(3, 10, &[&none, &[0, 60, 0, 0], MATCH, &[0; 2], packet]),
        _ => {
            let head = [&none[..], &[0, 60, 0, 0], &[0; 8]].concat();
            frame(version, 10, &[&head, MATCH, &[0; 2], packet])
        }
    }
}

/// To port 2.
fn packet_out(version: u8, packet: &[u8]) -> Frame {
    packet_out_to(version, 2, packet)
}

fn packet_out_to(version: u8, port: u32, packet: &[u8]) -> Frame {
    let none = [0xff; 4];
    let action = [&[0, 0, 0, 16][..], &port.to_be_bytes(), &[0; 8]].concat();
    match version {
        1 => {
            let port = (port as u16).to_be_bytes();
            let action = [&[0, 0, 0, 8][..], &port, &[0; 2]].concat();
            frame(1, 13, &[&none, &[0, 7, 0, 8], &action, packet])
        }
        2..=5 => {
            let head = [&none[..], &[0, 0, 0, 7, 0, 16], &[0; 6]].concat();
            frame(version, 13, &[&head, &action, packet])
        }
        _ => frame(6, 13, &[&none, &[0, 16, 0, 0], MATCH, &action, packet]),
    }
}

fn flow_mod(version: Version, flow: &str) -> Frame {
    let flow_mod = text::parse_flow_mod(flow).unwrap();
    encode(version, Xid(7), &Message::FlowMod(flow_mod)).unwrap()
}

/// The same bytes under another version: FLOW_MOD is alike from 1.2 on.
fn under(version: u8, frame: &Frame) -> Frame {
    let mut bytes = frame.bytes().to_vec();
    bytes[0] = version;
    Frame::new(bytes.into()).unwrap()
}

/// The match of a 1.3 FLOW_MOD as a FLOW_REMOVED reports it.
fn flow_removed(version: u8, flow: &str) -> Frame {
    let of = flow_mod(Version::V13, flow);
    let r#match = &of.body()[40..];
    let before = if version == 6 { 16 } else { 40 };
    frame(version, 11, &[&vec![0; before], r#match])
}

fn bundled(message: &Frame) -> Frame {
    frame(6, 34, &[&[0; 8], message.bytes()])
}

fn port_status(version: u8, reason: u8, state: u32) -> Frame {
    let (name, port_len) = if version == 1 { (36, 52) } else { (44, 72) };
    let mut body = vec![0; port_len + 4];
    body[0] = reason;
    body[name..name + 4].copy_from_slice(&state.to_be_bytes());
    frame(version, 12, &[&body])
}

const TARGET: &str = "udp,tp_dst=20000,actions=output:1";
const OTHER: &str = "udp,tp_dst=53,actions=output:1";

/// 40 messages, and the number of the rule that takes each in examples 1, 2 and 3.
fn messages() -> Vec<(&'static str, Frame, Direction, [usize; 3])> {
    let target13 = flow_mod(Version::V13, TARGET);
    let other13 = flow_mod(Version::V13, OTHER);
    let session = [1, 1, 1];
    let target = [2, 2, 2];
    let setup = [3, 2, 3];
    let rest = [4, 3, 4];
    vec![
        ("hello 1.0", frame(1, 0, &[]), UP, session),
        ("hello 1.3", frame(4, 0, &[]), DOWN, session),
        ("echo request 1.5", frame(6, 2, &[]), DOWN, session),
        ("echo reply 1.1", frame(2, 3, &[]), UP, session),
        ("error 1.3", frame(4, 1, &[&[0, 1, 0, 6]]), UP, session),
        ("vendor 1.0", frame(1, 4, &[&[0; 8]]), DOWN, session),
        ("features request 1.2", frame(3, 5, &[]), DOWN, session),
        ("set config 1.0", frame(1, 9, &[&[0; 4]]), DOWN, session),
        ("get config reply 1.4", frame(5, 8, &[&[0; 4]]), UP, session),
        ("role request 1.3", frame(4, 24, &[&[0; 16]]), DOWN, session),
        ("set async 1.4", frame(5, 28, &[]), DOWN, session),
        ("link down 1.0", port_status(1, 2, 1), UP, session),
        ("port gone 1.3", port_status(4, 1, 0), UP, session),
        ("packet-in 1.0", packet_in(1, &udp(20000)), UP, target),
        ("packet-in 1.1", packet_in(2, &udp(20000)), UP, target),
        ("packet-in 1.2", packet_in(3, &udp(20000)), UP, target),
        (
            "packet-in 1.3, tagged",
            packet_in(4, &tagged(&udp(20000))),
            UP,
            target,
        ),
        (
            "packet-in 1.4, IPv6",
            packet_in(5, &udp6(20000)),
            UP,
            target,
        ),
        ("packet-in 1.5", packet_in(6, &udp(20000)), UP, target),
        ("packet-in of DNS", packet_in(4, &udp(53)), UP, setup),
        (
            "packet-in of TCP",
            packet_in(4, &ipv4(6, 0, 1, 20000)),
            UP,
            setup,
        ),
        ("packet-in of ARP", packet_in(1, &arp()), UP, setup),
        (
            "packet-in of a fragment",
            packet_in(4, &fragment(&udp(20000))),
            UP,
            setup,
        ),
        (
            "packet-in cut short",
            packet_in(4, &udp(20000)[..36]),
            UP,
            setup,
        ),
        ("packet-out 1.0", packet_out(1, &udp(20000)), DOWN, target),
        ("packet-out 1.3", packet_out(4, &udp(20000)), DOWN, target),
        ("packet-out 1.5", packet_out(6, &udp6(20000)), DOWN, target),
        ("packet-out of ARP", packet_out(4, &arp()), DOWN, setup),
        ("flow-mod 1.3", target13.clone(), DOWN, target),
        ("flow-mod 1.0", flow_mod(Version::V10, TARGET), DOWN, target),
        ("flow-mod 1.4", under(5, &target13), DOWN, target),
        ("flow-mod of DNS", other13.clone(), DOWN, setup),
        (
            "flow-mod of everything",
            flow_mod(Version::V13, "actions=drop"),
            DOWN,
            setup,
        ),
        ("group-mod 1.3", frame(4, 15, &[&[0; 8]]), DOWN, setup),
        ("barrier request 1.0", frame(1, 18, &[]), DOWN, setup),
        (
            "member of a bundle",
            bundled(&under(6, &target13)),
            DOWN,
            target,
        ),
        ("flow-removed 1.3", flow_removed(4, TARGET), UP, rest),
        ("multipart reply 1.3", frame(4, 19, &[&[0; 8]]), UP, rest),
        ("link up 1.4", port_status(5, 2, 4), UP, rest),
        ("no such type", frame(4, 99, &[]), DOWN, rest),
    ]
}

#[test]
fn forty_messages_get_the_rule_and_the_queue_or_code_point_of_each_example() {
    let expected = |example: usize, rule: usize| match example {
        0 => ([0, 1, 2, 3][rule - 1], None),
        1 => ([0, 1, 2][rule - 1], Some([56, 48, 40][rule - 1])),
        _ => ([0, 1, 2, 3][rule - 1], Some([56, 48, 40, 32][rule - 1])),
    };
    let messages = messages();
    assert_eq!(messages.len(), 40);
    for (example, text) in EXAMPLES.iter().enumerate() {
        let classifier = Classifier::new(&map(text));
        for (name, frame, direction, rules) in &messages {
            let verdict = classifier.classify(frame, *direction, 3, None);
            let rule = rules[example];
            let what = format!("{name} under example {}", example + 1);
            assert_eq!(verdict.rule, Some(rule - 1), "{what}");
            let got = (verdict.tag.queue, verdict.tag.dscp);
            assert_eq!(got, expected(example, rule), "{what}");
            assert_eq!(verdict.tag.bytes as usize, frame.len());
            let is_packet_in = name.starts_with("packet-in");
            assert_eq!(verdict.tag.shed.is_some(), is_packet_in, "{what}");
            assert_eq!(verdict.tag.port, if is_packet_in { 7 } else { 0 }, "{what}");
        }
    }
}

#[test]
fn data_packets_keep_their_code_point() {
    let [one, two, three] = EXAMPLES.map(|text| Classifier::new(&map(text)));
    let port = PortNo(1);
    for (packet, dscp, queue) in [
        (ipv4(17, 46, 1, 2), 46, 2),
        (ipv4(6, 0, 1, 2), 0, 7),
        (tagged(&ipv4(6, 10, 1, 2)), 10, 6),
        (udp6(1), 46, 2),
        (arp(), 0, 7),
    ] {
        assert_eq!(one.classify_data(port, &packet).rule, None);
        assert_eq!(one.classify_data(port, &packet).queue, 3, "the default");
        for (classifier, rule) in [(&two, 3), (&three, 4)] {
            let verdict = classifier.classify_data(port, &packet);
            assert_eq!(
                (verdict.rule, verdict.dscp, verdict.queue),
                (Some(rule), Some(dscp), queue)
            );
        }
    }
}

#[test]
fn the_published_types_are_those_of_the_paper() {
    let paper = Classifier::new(&map(&format!("Profile: paper\n{}", EXAMPLES[0])));
    let housekeeping = [
        "role request 1.3",
        "set async 1.4",
        "link down 1.0",
        "port gone 1.3",
        "barrier request 1.0",
        "member of a bundle",
    ];
    for (name, frame, direction, rules) in messages() {
        let rule = if housekeeping.contains(&name) {
            4
        } else {
            rules[0]
        };
        let verdict = paper.classify(&frame, direction, 0, None);
        assert_eq!(verdict.rule, Some(rule - 1), "{name}");
    }
}

/// The rule of `text` that takes `frame`, by number; 0 is the default.
fn taken(text: &str, frame: &Frame, direction: Direction) -> u16 {
    let map = map(&format!("{text}\nDefault: action=queue_id:0"));
    let verdict = Classifier::new(&map).classify(frame, direction, 0, Some(DatapathId(5)));
    verdict.rule.map_or(0, |rule| map.rules[rule].id)
}

#[test]
fn a_flow_is_taken_if_all_its_packets_would_be() {
    let rule = "Rule #1: ipv4_dst=10.1.0.0/16, action=queue_id:1";
    let is_taken = |version, flow: &str| {
        taken(
            rule,
            &flow_mod(version, &format!("{flow},actions=drop")),
            DOWN,
        ) == 1
    };
    for version in [Version::V10, Version::V13] {
        assert!(is_taken(version, "ip,nw_dst=10.1.2.3"));
        assert!(is_taken(version, "tcp,nw_dst=10.1.2.0/24"));
        assert!(is_taken(version, "ip,nw_dst=10.1.0.0/16"));
        assert!(
            !is_taken(version, "ip,nw_dst=10.0.0.0/8"),
            "{version}: wider"
        );
        assert!(!is_taken(version, "ip,nw_dst=10.2.0.0/16"));
        assert!(!is_taken(version, "ip"));
    }
    for version in [4, 5, 6] {
        let removed = flow_removed(version, "tcp,nw_dst=10.1.2.3,actions=drop");
        assert_eq!(taken(rule, &removed, UP), 1, "{version}");
    }
    // A field that a flow leaves open is not the zero that a rule may ask for.
    let zeros = "Rule #1: ipv4_dst=10.0.0.0/16, action=queue_id:1";
    for version in [Version::V10, Version::V13] {
        let wider = flow_mod(version, "ip,nw_dst=10.0.0.0/8,actions=drop");
        assert_eq!(taken(zeros, &wider, DOWN), 0, "{version}");
        let within = flow_mod(version, "ip,nw_dst=10.0.7.0/24,actions=drop");
        assert_eq!(taken(zeros, &within, DOWN), 1, "{version}");
    }
    let rule = "Rule #1: vlan_vid=0x1064, vlan_pcp=3, action=queue_id:1";
    for version in [Version::V10, Version::V13] {
        let both = flow_mod(version, "dl_vlan=100,dl_vlan_pcp=3,actions=drop");
        assert_eq!(taken(rule, &both, DOWN), 1, "{version}");
        let one = flow_mod(version, "dl_vlan=100,actions=drop");
        assert_eq!(taken(rule, &one, DOWN), 0, "{version}");
    }
    let rule = "Rule #1: arp_op=1, arp_tpa=10.0.0.7, action=queue_id:1";
    for version in [Version::V10, Version::V13] {
        let flow = flow_mod(version, "arp,arp_op=1,arp_tpa=10.0.0.7,actions=drop");
        assert_eq!(taken(rule, &flow, DOWN), 1, "{version}");
    }
}

/// The fixed match of 1.1, in which a one in a mask means that anything goes.
#[test]
fn a_flow_of_1_1_is_read_as_well() {
    let mut r#match = vec![0; 88];
    r#match[..4].copy_from_slice(&[0, 0, 0, 88]);
    // All fields are wildcards but dl_type and nw_proto.
    r#match[8..12].copy_from_slice(&(0x3ffu32 & !(1 << 3 | 1 << 5)).to_be_bytes());
    for mask in [18..24, 30..36, 80..88] {
        r#match[mask].fill(0xff);
    }
    r#match[40..42].copy_from_slice(&[8, 0]);
    r#match[43] = 17;
    r#match[48..52].fill(0xff);
    r#match[52..60].copy_from_slice(&[10, 1, 2, 0, 0, 0, 0, 255]);
    let frame = frame(2, 14, &[&[0; 40], &r#match]);
    let rule = |fields: &str| format!("Rule #1: {fields}, action=queue_id:1");
    assert_eq!(taken(&rule("ipv4_dst=10.1.0.0/16"), &frame, DOWN), 1);
    assert_eq!(taken(&rule("ip_proto=17"), &frame, DOWN), 1);
    assert_eq!(taken(&rule("ipv4_dst=10.1.2.3"), &frame, DOWN), 0);
    assert_eq!(taken(&rule("ipv4_src=10.1.2.3"), &frame, DOWN), 0);
    assert_eq!(taken(&rule("eth_src=02:00:00:00:00:01"), &frame, DOWN), 0);
    assert_eq!(taken(&rule("udp_dst=1"), &frame, DOWN), 0);
}

#[test]
fn rules_may_ask_for_what_stands_beside_the_packet() {
    let packet_in = packet_in(4, &udp(20000));
    let rule = |asked: &str| format!("Rule #1: {asked}, action=queue_id:1");
    for (asked, is_asked_for) in [
        ("in_port=7", true),
        ("in_port=8", false),
        ("tunnel_id=9", true),
        ("tunnel_id=8/0xf", false),
        ("xid=7", true),
        ("xid=0/1", false),
        ("xid=1/1", true),
        ("dir=up", true),
        ("dir=down", false),
        ("dpid=5", true),
        ("dpid=6", false),
        ("msg=packet_in", true),
        ("msg=packet_out", false),
        ("eth_dst=02:00:00:00:00:09", true),
        ("ip_ecn=1", true),
        ("ip_dscp=1", false),
        ("ipv4_src=10.0.0.0/31", true),
        ("ipv6_src=::1", false),
        ("traffic_type=any", true),
    ] {
        let taken = taken(&rule(asked), &packet_in, UP);
        assert_eq!(taken == 1, is_asked_for, "{asked}");
    }
    let scoped = "Rule #1: xid=0x70000000/0xf0000000, domain=7, action=queue_id:1";
    let classifier = Classifier::new(&map(&format!("{scoped}\nDefault: action=queue_id:0")));
    let barrier = frame(4, 20, &[]).with_xid(Xid(0x7000_0001));
    assert_eq!(classifier.classify(&barrier, DOWN, 0, None).tag.domain, 7);
    let other = barrier.with_xid(Xid(1));
    assert_eq!(classifier.classify(&other, DOWN, 0, None).tag.domain, 0);
}

#[test]
fn the_first_rule_that_matches_wins() {
    let rules = "Rule #1: traffic_type=2, udp_dst=53, action=queue_id:1
                 Rule #2: udp_dst=20000, ipv4_src=10.0.0.1, action=queue_id:2
                 Rule #3: udp_dst=20000, action=queue_id:3";
    assert_eq!(taken(rules, &packet_in(4, &udp(20000)), UP), 2);
    assert_eq!(taken(rules, &packet_in(4, &udp6(20000)), UP), 3);
    assert_eq!(taken(rules, &packet_in(4, &udp(1)), UP), 0);
}

#[test]
fn what_a_message_may_not_overtake_follows_from_what_it_is() {
    let ordered = Classifier::new(&PolicyMap::auster());
    let mut map = PolicyMap::auster();
    map.scheduling.packet_out_free = true;
    let free = Classifier::new(&map);
    let binding = |classifier: &Classifier, frame: &Frame, way| {
        classifier.classify(frame, way, 0, None).tag.binding
    };
    let udp = udp(20000);
    for version in 1..=6 {
        let Binding::Flow { key, after_state } =
            binding(&ordered, &packet_out(version, &udp), DOWN)
        else {
            panic!("a packet-out of {version} has a flow");
        };
        assert!(after_state, "{version}");
        let overtaking = Binding::Flow {
            key,
            after_state: false,
        };
        assert_eq!(binding(&free, &packet_out(version, &udp), DOWN), overtaking);
        let through_tables = packet_out_to(version, PortNo::TABLE.0, &udp);
        assert_eq!(
            binding(&free, &through_tables, DOWN),
            Binding::State,
            "{version}"
        );
        let mut buffered = packet_out(version, &udp).bytes().to_vec();
        buffered[8..12].copy_from_slice(&[0, 0, 0, 9]);
        let buffered = Frame::new(buffered.into()).unwrap();
        assert_eq!(binding(&free, &buffered, DOWN), Binding::State, "{version}");
        // It comes in by the same port, so it is the same flow.
        assert_eq!(binding(&free, &packet_in(version, &udp), UP), overtaking);
    }
    let group = [0, 22, 0, 8, 0, 0, 0, 1];
    let head = [&[0xff; 4][..], &[0, 0, 0, 7, 0, 8], &[0; 6]].concat();
    let to_group = frame(4, 13, &[&head, &group, &udp]);
    assert_eq!(binding(&free, &to_group, DOWN), Binding::State);
    let resubmit = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 1, 0, 1, 0, 0, 0, 0];
    let head = [&[0xff; 4][..], &[0, 0, 0, 7, 0, 16], &[0; 6]].concat();
    let resubmitted = frame(4, 13, &[&head, &resubmit, &udp]);
    assert_eq!(binding(&free, &resubmitted, DOWN), Binding::State);
    assert_eq!(binding(&free, &packet_in(4, &udp), DOWN), Binding::Fence);
    assert_eq!(binding(&free, &frame(4, 20, &[]), DOWN), Binding::Fence);
    let onf = |ty: u32| {
        let ids = [0x4f4e_4600, ty].map(u32::to_be_bytes);
        frame(4, 4, &[ids.as_flattened(), &[0, 0, 0, 1, 0, 4, 0, 1]])
    };
    assert_eq!(binding(&free, &onf(2300), DOWN), Binding::Fence, "a bundle");
    assert_eq!(binding(&free, &onf(2301), DOWN), Binding::State, "its part");
    for version in [5, 6] {
        let control = frame(version, 33, &[&[0, 0, 0, 1, 0, 4, 0, 1]]);
        assert_eq!(binding(&free, &control, DOWN), Binding::Fence);
        let status = frame(version, 31, &[&[0; 16]]);
        assert_eq!(binding(&free, &status, UP), Binding::State);
    }
    assert_eq!(binding(&free, &frame(4, 2, &[]), UP), Binding::Free);
    assert_eq!(binding(&free, &frame(4, 18, &[]), DOWN), Binding::Exchange);
}

#[test]
fn an_explanation_is_the_verdict_and_names_what_failed() {
    let map = map(EXAMPLES[0]);
    let classifier = Classifier::new(&map);
    for (name, frame, direction, _) in messages() {
        let explained = classifier.explain(&frame, direction, None);
        assert_eq!(
            explained.verdict,
            classifier.classify(&frame, direction, 0, None),
            "{name}"
        );
        let before = explained.verdict.rule.unwrap_or(map.rules.len());
        assert_eq!(explained.misses.len(), before, "{name}");
    }
    let explained = classifier.explain(&packet_in(4, &udp(53)), UP, None);
    assert_eq!(explained.verdict.traffic, TrafficType::FlowSetup);
    let field = openflow::Field::UdpDst;
    let found = Some(53);
    assert_eq!(
        explained.misses,
        [Miss::Traffic, Miss::Packet { field, found }]
    );
}

#[test]
fn messages_cut_at_every_length_are_classified_all_the_same() {
    let everything = "Rule #1: in_port=1, eth_src=1:2:3:4:5:6, vlan_pcp=1, action=queue_id:1
        Rule #2: ipv4_src=1.2.3.4, tcp_dst=80, action=queue_id:1
        Rule #3: ipv6_src=::1, icmpv6_type=1, action=dscp:copy
        Rule #4: mpls_label=1, action=queue_id:1
        Default: action=dscp:copy";
    let text = everything.replace("1:2:3:4:5:6", "01:02:03:04:05:06");
    let classifier = Classifier::new(&map(&text));
    for (_, message, ..) in messages() {
        for len in 8..message.len() {
            for version in 1..=7 {
                let mut bytes = message.bytes()[..len].to_vec();
                bytes[0] = version;
                bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                let cut = Frame::new(bytes.into()).unwrap();
                for direction in [UP, DOWN] {
                    let verdict = classifier.classify(&cut, direction, 0, None);
                    assert_eq!(verdict.tag.bytes as usize, len);
                }
            }
        }
    }
}
