use proptest::prelude::*;

use crate::packet::build;

use super::*;

const HEADER_LEN: usize = 14;

fn sender(n: u8) -> Sender {
    Sender {
        mac: MacAddr([2, 0, 0, 0, 0, n]),
        ipv4: Ipv4Addr::new(10, 0, 0, n),
        ipv6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n.into()),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|it| !it.is_ascii_whitespace())
        .collect();
    let digit = |it: u8| char::from(it).to_digit(16).expect("a digit") as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn message(frame: &[u8]) -> Message {
    let heard = read(frame).expect("valid").expect("about membership");
    heard.message
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Recomputes the checksums of an IPv4 header and of its IGMP message.
fn mend(mut frame: Vec<u8>) -> Vec<u8> {
    let header_len = usize::from(frame[HEADER_LEN] & 0xf) * 4;
    let packet = &mut frame[HEADER_LEN..];
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..header_len]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let igmp = &mut packet[header_len..];
    igmp[2..4].fill(0);
    let sum = checksum(&[igmp]);
    igmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Returns `frame` with these bytes at `at`, and corrects its checksums.
fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    mend(frame)
}

fn join(group: &str, is_igmp1: bool) -> Message {
    let group = ip(group);
    Message::Join { group, is_igmp1 }
}

fn records(records: &[(RecordKind, &str, u16)]) -> Message {
    let record = |(kind, group, source_count): &(RecordKind, &str, u16)| Record {
        kind: *kind,
        group: ip(group),
        source_count: *source_count,
    };
    Message::Records {
        records: records.iter().map(record).collect(),
        beyond: 0,
    }
}

fn query(group: &str, response_s: u64, extended: Option<(u8, u64)>) -> Message {
    Message::Query(Query {
        group: ip(group),
        response_max: Duration::from_secs(response_s),
        extended: extended.map(|(robustness, interval_s)| ExtendedQuery {
            suppress: false,
            robustness,
            interval: Duration::from_secs(interval_s),
            source_count: 0,
        }),
    })
}

/// Frames of Linux 6.1: of a host on a veth pair with each version forced, and of the querier in
/// its bridge.
#[test]
fn linux_hosts_and_queriers_are_heard() {
    use RecordKind as Kind;
    const IGMP: &str = "020000000001 0800 46c0";
    const MLD: &str = "020000000001 86dd 60000000 00";
    const FE80_1: &str = "fe80000000000000000000fffe000001";
    const ALERT: &str = "3a00050200000100";
    let linux_1 = "fe80::ff:fe00:1";
    let igmp = |to: &str, rest: &str| hex(&format!("{to} {IGMP} {rest}"));
    let mld = |to: &str, len: &str, to_ip: &str, rest: &str| {
        hex(&format!(
            "{to} {MLD}{len} 0001 {FE80_1} {to_ip} {ALERT} {rest}"
        ))
    };
    let ff05 = "ff050000000000000000000000001234";
    let all = "01005e000016";
    let cases: [(&str, Vec<u8>, &str, Message); 11] = [
        (
            "IGMPv3 join",
            igmp(
                all,
                "0028000040000102f9f80a000001e0000016940400002200e8f90000000104000000ef010203",
            ),
            "10.0.0.1",
            records(&[(Kind::ToExclude, "239.1.2.3", 0)]),
        ),
        (
            "IGMPv3 leave",
            igmp(
                all,
                "0028000040000102f9f80a000001e0000016940400002200e9f90000000103000000ef010203",
            ),
            "10.0.0.1",
            records(&[(Kind::ToInclude, "239.1.2.3", 0)]),
        ),
        (
            "IGMPv3 leave of the only source",
            igmp(
                all,
                "002c000040000102f9f40a000001e0000016940400002200e3ef0000 \
                 000106000001e80102030a000009",
            ),
            "10.0.0.1",
            records(&[(Kind::Block, "232.1.2.3", 1)]),
        ),
        (
            "IGMPv2 report",
            igmp(
                "01005e010203",
                "0020000040000102e9120a000001ef010203940400001600f8faef010203",
            ),
            "10.0.0.1",
            join("239.1.2.3", false),
        ),
        (
            "IGMPv2 leave",
            igmp(
                "01005e000002",
                "0020000040000102fa140a000001e0000002940400001700f7faef010203",
            ),
            "10.0.0.1",
            Message::Leave {
                group: ip("239.1.2.3"),
            },
        ),
        (
            "IGMPv1 report",
            igmp(
                "01005e010203",
                "0020000040000102e9120a000001ef010203940400001200fcfaef010203",
            ),
            "10.0.0.1",
            join("239.1.2.3", true),
        ),
        (
            "MLDv2 join",
            mld(
                "333300000016",
                "24",
                "ff020000000000000000000000000016",
                &format!("8f005ed30000000104000000 {ff05}"),
            ),
            linux_1,
            records(&[(Kind::ToExclude, "ff05::1234", 0)]),
        ),
        (
            "MLDv1 report",
            mld(
                "333300001234",
                "20",
                ff05,
                &format!("83005cb700000000 {ff05}"),
            ),
            linux_1,
            join("ff05::1234", false),
        ),
        (
            "MLDv1 done",
            mld(
                "333300000002",
                "20",
                "ff020000000000000000000000000002",
                &format!("84006dec00000000 {ff05}"),
            ),
            linux_1,
            Message::Leave {
                group: ip("ff05::1234"),
            },
        ),
        (
            "IGMPv3 query",
            hex(
                "01005e000001 020000000003 0800 46c00024000040000102fa0f0a000003e0000001 94040000 \
                 1164ec1e00000000027d0000",
            ),
            "10.0.0.3",
            query("0.0.0.0", 10, Some((2, 125))),
        ),
        (
            "MLDv1 report of a host without an address",
            hex("3333ff000001 020000000001 86dd 6000000000200001 \
                 00000000000000000000000000000000 ff0200000000000000000001ff000001 \
                 3a00050200000100 830080a100000000 ff0200000000000000000001ff000001"),
            "::",
            join("ff02::1:ff00:1", false),
        ),
    ];
    for (what, frame, from, wanted) in cases {
        let heard = read(&frame).expect(what).expect(what);
        assert_eq!((heard.from, heard.tag), (ip(from), None), "{what}");
        assert_eq!(heard.message, wanted, "{what}");
        let tagged = read(&build::tagged(&frame, 7, 3)).expect(what);
        let wanted = Heard {
            tag: Some(7),
            ..heard
        };
        assert_eq!(tagged, Some(wanted), "{what}");
    }
}

/// Linux's own queries, byte for byte, except for the fragment field of the IPv4 header.
#[test]
fn our_queries_are_those_of_linux() {
    let us = Sender {
        mac: MacAddr([2, 0, 0, 0, 0, 3]),
        ipv4: Ipv4Addr::new(10, 0, 0, 3),
        ipv6: "fe80::ff:fe00:3".parse().expect("an address"),
    };
    let cases = [
        (
            query("0.0.0.0", 10, None),
            "01005e000001 020000000003 0800 46c00020000040000102fa130a000003e0000001 94040000 \
             1164ee9b00000000",
        ),
        (
            query("0.0.0.0", 10, Some((2, 125))),
            "01005e000001 020000000003 0800 46c00024000040000102fa0f0a000003e0000001 94040000 \
             1164ec1e00000000027d0000",
        ),
        (
            query("::", 10, None),
            "333300000001 020000000003 86dd 6000000000200001 \
             fe80000000000000000000fffe000003 ff020000000000000000000000000001 3a00050200000100 \
             82005a152710000000000000000000000000000000000000",
        ),
        (
            query("::", 10, Some((2, 125))),
            "333300000001 020000000003 86dd 6000000000240001 \
             fe80000000000000000000fffe000003 ff020000000000000000000000000001 3a00050200000100 \
             820057942710000000000000000000000000000000000000027d0000",
        ),
    ];
    for (wanted, linux) in cases {
        let mut linux = hex(linux);
        assert_eq!(message(&linux), wanted);
        let Message::Query(query) = wanted else {
            unreachable!("all are queries");
        };
        if query.group.is_ipv4() {
            linux = with(&linux, HEADER_LEN + 6, &[0, 0]);
        }
        assert_eq!(query.frame(us), linux, "{query:?}");
    }
}

/// The examples and limits of RFC 3376, 4.1.1, and RFC 3810, 5.1.3.
#[test]
fn times_are_linear_and_then_floating() {
    assert_eq!(floating::<4>(127), 127);
    assert_eq!(floating::<4>(128), 128);
    assert_eq!(floating::<4>(0b1000_0001), 136);
    assert_eq!(floating::<4>(255), 31_744);
    assert_eq!(floating::<12>(32_767), 32_767);
    assert_eq!(floating::<12>(32_768), 32_768);
    assert_eq!(floating::<12>(u16::MAX), 8_387_584);
    for number in 0..=u8::MAX.into() {
        assert_eq!(write::code::<4>(floating::<4>(number)), number);
    }
    for number in 0..=u16::MAX {
        assert_eq!(write::code::<12>(floating::<12>(number)), number);
    }
    let rounded = (0..40_000).map(|value| floating::<4>(write::code::<4>(value)));
    assert!(rounded.zip(0..).all(|(rounded, value)| rounded <= value));
}

#[test]
fn what_is_not_about_membership_is_nothing() {
    let udp = build::udp(
        build::Host::numbered(1),
        build::Host::numbered(2),
        (1, 2),
        b"?",
    );
    let solicitation = build::neighbour_solicitation(
        (sender(1).mac, sender(1).ipv6),
        "fe80::2".parse().expect("an address"),
    );
    let leave = build::group_leave(sender(1), ip("239.1.2.3"));
    // DVMRP, PIMv1, multicast traceroute, multicast router discovery.
    let others = [0x13, 0x14, 0x1e, 0x1f, 0x30].map(|kind| with(&leave, 38, &[kind]));
    let twice = build::tagged(&build::tagged(&leave, 1, 0), 2, 0);
    let pim_join = {
        let mut frame = build::pim_hello(sender(1), false, 105);
        frame[34] = 0x23;
        frame
    };
    let all = [udp, solicitation, twice, pim_join, Vec::new()];
    for frame in all.into_iter().chain(others) {
        assert_eq!(read(&frame), Ok(None), "{frame:02x?}");
    }
}

#[test]
fn messages_that_are_wrong_are_refused() {
    let group = "239.1.2.3";
    let v2 = build::group_join(sender(1), ip(group));
    let v3 = build::group_report(
        sender(1),
        &[(RecordKind::IsInclude, ip(group), &[ip("10.0.0.9")])],
    );
    let Message::Query(general) = query("0.0.0.0", 10, Some((2, 125))) else {
        unreachable!("it is a query");
    };
    let specific = Query {
        group: ip(group),
        ..general
    };
    let (general, specific) = (general.frame(sender(1)), specific.frame(sender(1)));
    let cases = [
        ("no multicast group", with(&v2, 42, &[10]), Refusal::Group),
        ("TTL of 2", with(&v2, 22, &[2]), Refusal::HopLimit),
        ("from a group", with(&v2, 26, &[224]), Refusal::Source),
        ("from loopback", with(&v2, 26, &[127]), Refusal::Source),
        ("to one host", with(&v2, 30, &[10]), Refusal::Destination),
        ("more fragments", with(&v2, 20, &[0x20]), Refusal::Fragment),
        ("later fragment", with(&v2, 21, &[1]), Refusal::Fragment),
        (
            "Ethernet of another",
            with(&v2, 5, &[9]),
            Refusal::Destination,
        ),
        ("sent by a group", with(&v2, 6, &[3]), Refusal::Source),
        ("IP length", with(&v2, 17, &[200]), Refusal::Length),
        ("two sources", with(&v3, 49, &[2]), Refusal::Length),
        ("two records", with(&v3, 45, &[2]), Refusal::Length),
        ("auxiliary data", with(&v3, 47, &[1]), Refusal::Length),
        ("group of a record", with(&v3, 50, &[10]), Refusal::Group),
        ("a source of all", with(&general, 49, &[1]), Refusal::Length),
        (
            "for another group",
            with(&specific, 45, &[9]),
            Refusal::Destination,
        ),
        ("for a host", with(&specific, 42, &[10]), Refusal::Group),
    ];
    for (what, frame, wanted) in cases {
        assert_eq!(read(&frame), Err(wanted), "{what}");
    }
    // Lengths that no version has (RFC 3376, 7.1), in a packet that is as long.
    for len in 0..=12 {
        let mut frame = general[..38 + len].to_vec();
        frame.resize(38 + len.max(4), 0);
        let frame = with(&frame, 16, &((24 + len.max(4)) as u16).to_be_bytes());
        let is_valid = len == 8 || len == 12;
        assert_eq!(read(&frame).is_ok_and(|it| it.is_some()), is_valid, "{len}");
    }
}

#[test]
fn mld_needs_a_link_local_sender_and_an_alert() {
    let group = ip("ff05::1234");
    let report = build::group_join(sender(1), group);
    let abroad = Sender {
        ipv6: "2001:db8::1".parse().expect("an address"),
        ..sender(1)
    };
    let nobody = Sender {
        ipv6: Ipv6Addr::UNSPECIFIED,
        ..sender(1)
    };
    assert_eq!(
        read(&build::group_join(abroad, group)),
        Err(Refusal::Source)
    );
    let Message::Query(general) = query("::", 10, None) else {
        unreachable!("it is a query");
    };
    assert_eq!(
        message(&build::group_join(nobody, group)),
        join("ff05::1234", false)
    );
    assert_eq!(read(&general.frame(nobody)), Err(Refusal::Source));
    // The checksum does not include the option.
    let without = |at: usize, bytes: &[u8]| {
        let mut frame = report.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        read(&frame)
    };
    let alert = HEADER_LEN + 42;
    assert!(without(alert, &[5, 2, 0, 0]).is_ok_and(|it| it.is_some()));
    assert_eq!(without(alert, &[5, 2, 0, 1]), Err(Refusal::Options));
    assert_eq!(
        without(alert, &[1, 4, 0, 0]),
        Err(Refusal::Options),
        "padding"
    );
    assert_eq!(without(alert, &[0x85]), Err(Refusal::Options), "unknown");
    assert_eq!(without(alert, &[5, 9]), Err(Refusal::Length));
    assert_eq!(read(&report[..report.len() - 1]), Err(Refusal::Length));
    let mut direct = report[..HEADER_LEN + 40].to_vec();
    direct.extend(&report[HEADER_LEN + 48..]);
    direct[HEADER_LEN + 5] -= 8;
    direct[HEADER_LEN + 6] = IP_ICMPV6;
    assert_eq!(read(&direct), Err(Refusal::Options), "no extension header");
}

#[test]
fn a_pim_router_says_for_how_long_it_is_there() {
    for is_ipv6 in [false, true] {
        let hold = |seconds| match message(&build::pim_hello(sender(1), is_ipv6, seconds)) {
            Message::PimHello { hold } => hold,
            other => panic!("{other:?}"),
        };
        assert_eq!(hold(105), Duration::from_secs(105));
        assert_eq!(hold(0), Duration::ZERO);
        assert_eq!(hold(u16::MAX), Duration::MAX);
    }
    let hello = build::pim_hello(sender(1), false, 9);
    let mut other_option = hello.clone();
    // No option has a hold time: RFC 7761, 4.9.2 has a default.
    other_option[34 + 5] = 20;
    other_option[36..38].fill(0);
    let sum = checksum(&[&other_option[34..]]);
    other_option[36..38].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        message(&other_option),
        Message::PimHello {
            hold: PIM_HOLD_DEFAULT
        }
    );
    // An option that is longer than the message.
    let mut cut = other_option;
    cut[34 + 7] = 200;
    cut[36..38].fill(0);
    let sum = checksum(&[&cut[34..]]);
    cut[36..38].copy_from_slice(&sum.to_be_bytes());
    assert!(read(&cut).is_ok_and(|it| it.is_some()), "nothing follows");
}

#[test]
fn records_beyond_the_bound_are_counted() {
    let group = |n: usize| IpAddr::from([239, 1, (n >> 8) as u8, n as u8]);
    let all: Vec<_> = (0..300)
        .map(|n| (RecordKind::IsExclude, group(n), &[][..]))
        .collect();
    let Message::Records { records, beyond } = message(&build::group_report(sender(1), &all))
    else {
        panic!("no report");
    };
    assert_eq!((records.len(), beyond), (RECORDS_MAX, 44));
    assert!(records.iter().zip(0..).all(|(it, n)| it.group == group(n)));
    // A count of records that are not there.
    let one = build::group_report(sender(1), &all[..1]);
    assert_eq!(read(&with(&one, 44, &[0xff, 0xff])), Err(Refusal::Length));
    // An unknown kind is left out.
    let unknown = with(&build::group_report(sender(1), &all[..2]), 46, &[7]);
    let Message::Records { records, .. } = message(&unknown) else {
        panic!("no report");
    };
    assert_eq!(
        records.iter().map(|it| it.group).collect::<Vec<_>>(),
        [group(1)]
    );
}

fn group() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0xe000_0000..0xf000_0000u32).prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits | 0xff << 120).into()),
    ]
}

fn general() -> impl Strategy<Value = IpAddr> {
    prop_oneof![Just(ip("0.0.0.0")), Just(ip("::"))]
}

fn kinds() -> impl Strategy<Value = RecordKind> {
    (0..6usize).prop_map(|at| RecordKind::ALL[at])
}

/// A query whose times have exact codes on the wire.
fn queries() -> impl Strategy<Value = Query> {
    let extended = (any::<bool>(), 0..8u8, 0..256u16);
    let extended = extended.prop_map(|(suppress, robustness, interval)| ExtendedQuery {
        suppress,
        robustness,
        interval: Duration::from_secs(floating::<4>(interval)),
        source_count: 0,
    });
    let group = prop_oneof![group(), general()];
    let all = (group, 1..=u16::MAX, proptest::option::of(extended));
    all.prop_map(|(group, code, extended)| Query {
        group,
        response_max: Duration::from_millis(match (group.is_ipv4(), extended) {
            (true, None) => 100 * u64::from(code % 255 + 1),
            (true, Some(_)) => 100 * floating::<4>(code % 255 + 1),
            (false, None) => code.into(),
            (false, Some(_)) => floating::<12>(code),
        }),
        extended,
    })
}

/// A frame and its message.
fn messages() -> impl Strategy<Value = (Vec<u8>, Message)> {
    let us = sender(1);
    let report = |groups: Vec<(IpAddr, RecordKind, u16)>| {
        let is_ipv4 = groups.first().is_none_or(|(group, ..)| group.is_ipv4());
        let groups: Vec<_> = groups
            .into_iter()
            .filter(|(group, ..)| group.is_ipv4() == is_ipv4)
            .collect();
        let source = if is_ipv4 {
            ip("10.0.0.9")
        } else {
            ip("2001:db8::9")
        };
        let sources = [source; 8];
        let written: Vec<_> = groups
            .iter()
            .map(|(group, kind, count)| (*kind, *group, &sources[..usize::from(*count)]))
            .collect();
        let record = |(group, kind, source_count)| Record {
            kind,
            group,
            source_count,
        };
        let message = Message::Records {
            records: groups.iter().copied().map(record).collect(),
            beyond: 0,
        };
        (build::group_report(sender(1), &written), message)
    };
    let groups = proptest::collection::vec((group(), kinds(), 0..8u16), 0..20);
    prop_oneof![
        queries().prop_map(move |query| (query.frame(us), Message::Query(query))),
        group().prop_map(move |group| {
            let is_igmp1 = false;
            (
                build::group_join(us, group),
                Message::Join { group, is_igmp1 },
            )
        }),
        group().prop_map(move |group| (build::group_leave(us, group), Message::Leave { group })),
        groups.prop_map(report),
        (any::<bool>(), 0..u16::MAX).prop_map(move |(is_ipv6, seconds)| {
            let hold = Duration::from_secs(seconds.into());
            let frame = build::pim_hello(us, is_ipv6, seconds);
            (frame, Message::PimHello { hold })
        }),
    ]
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(
        (frame, written) in messages(),
        tag in proptest::option::of(0..4096u16),
        padding in 0..40usize,
    ) {
        let mut frame = match tag {
            Some(tag) => build::tagged(&frame, tag, 0),
            None => frame,
        };
        frame.extend(vec![0xaa; padding]);
        let heard = read(&frame).expect("valid").expect("about membership");
        prop_assert_eq!(heard.message, written);
        prop_assert_eq!((heard.tag, heard.eth_src), (tag, sender(1).mac));
    }

    /// Times without a code become shorter, and a query keeps its version.
    #[test]
    fn any_query_can_be_sent(
        group in prop_oneof![group(), general()],
        millis: u64,
        seconds: u64,
        is_extended: bool,
    ) {
        let query = Query {
            group,
            response_max: Duration::from_millis(millis),
            extended: is_extended.then_some(ExtendedQuery {
                suppress: false,
                robustness: 2,
                interval: Duration::from_secs(seconds),
                source_count: 0,
            }),
        };
        let Message::Query(read) = message(&query.frame(sender(1))) else {
            panic!("no query");
        };
        prop_assert_eq!(read.group, group);
        prop_assert!(read.response_max <= query.response_max.max(Duration::from_millis(100)));
        prop_assert!(!read.response_max.is_zero());
        let interval = |query: Query| query.extended.map(|it| it.interval);
        prop_assert!(interval(read) <= interval(query));
        prop_assert_eq!(read.extended.is_some(), is_extended);
    }

    /// Only bits that no checksum and no rule covers can differ: the sender's Ethernet address, the
    /// traffic class and label of IPv6, and the padding in its options.
    #[test]
    fn a_bit_that_flips_is_noticed((frame, written) in messages(), bit: prop::sample::Index) {
        let bit = bit.index(frame.len() * 8);
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 0x80 >> (bit % 8);
        let is_ipv4 = frame[12..14] == ETH_IPV4.to_be_bytes();
        let Ok(Some(heard)) = read(&flipped) else {
            return Ok(());
        };
        let uncovered = [6..12, 14..18, 54..62];
        let (ethernet, ipv6) = uncovered.split_at(1);
        let place = bit / 8;
        let may_be = ethernet[0].contains(&place)
            || !is_ipv4 && ipv6.iter().any(|part| part.contains(&place));
        prop_assert!(may_be, "bit {bit}: {heard:?}");
        prop_assert_eq!(heard.message, written);
    }

    #[test]
    fn a_message_that_is_cut_is_never_read_as_a_whole(
        (frame, _) in messages(),
        cut: prop::sample::Index,
    ) {
        let cut = cut.index(frame.len());
        prop_assert!(!matches!(read(&frame[..cut]), Ok(Some(_))));
    }

    /// Random bytes seldom have the right checksums, so the test sets them.
    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0..6usize,
        (mut frame, _) in messages(),
        at: prop::sample::Index,
    ) {
        let _ = read(&bytes);
        let from = at.index(frame.len());
        let count = bytes.len().min(frame.len() - from).min(4);
        frame[from..from + count].copy_from_slice(&bytes[..count]);
        let _ = read(&frame);
        let kinds = [IGMP_QUERY, IGMP2_REPORT, IGMP3_REPORT, MLD_QUERY, MLD2_REPORT, PIM_HELLO];
        let mut message = vec![kinds[kind], 0, 0, 0];
        message.extend(&bytes);
        let packet = match kind {
            0..3 => IpPacket::igmp(sender(1), ALL_NODES.into()),
            _ => IpPacket::mld(sender(1), ALL_NODES_IPV6.into()),
        };
        if let Ok(Some(Heard { message: Message::Records { records, .. }, .. })) =
            read(&frame_of(packet, message))
        {
            prop_assert!(records.len() <= RECORDS_MAX);
            prop_assert!(records.capacity() <= RECORDS_MAX);
        }
    }
}
