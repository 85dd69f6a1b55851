//! Which entry a packet meets, and what a miss does.

use proptest::prelude::*;

use super::*;

#[test]
fn the_matching_entry_of_highest_priority_decides() {
    let mut s = Switch::with_ports(1..=4);
    add(&mut s, FlowMod::add(1, Match::any(), vec![out(2)]));
    add(&mut s, FlowMod::add(10, to_ip(2), vec![out(3)]));
    add(
        &mut s,
        FlowMod::add(5, to_ip(2).with(Field::IpProto, 17u8), vec![out(4)]),
    );
    assert_eq!(ports(&s, 2), [3]);
    assert_eq!(ports(&s, 9), [2]);
}

#[test]
fn a_miss_drops_in_1_3_and_asks_in_1_0() {
    let mut s = Switch::with_ports(1..=2);
    assert_eq!(s.process(at(0), P1, &udp(2, 53)), []);
    assert_eq!(s.drops(DropReason::TableMiss), 1);

    let mut v10 = Switch::new(SwitchOptions {
        version: Version::V10,
        ..Default::default()
    });
    let _ = v10.set_port(at(0), plain_port(P1));
    let outputs = v10.process(at(0), P1, &udp(2, 53));
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (p.reason, p.r#match.in_port()),
        (PacketInReason::NO_MATCH, Some(P1))
    );
}

#[test]
fn a_table_miss_entry_gives_its_reason_table_and_cookie() {
    let mut s = Switch::with_ports(1..=2);
    let goto = vec![Instruction::GotoTable(TableId(7))];
    add(
        &mut s,
        FlowMod {
            instructions: goto,
            ..FlowMod::add(1, Match::any(), vec![])
        },
    );
    let miss = FlowMod::add(0, Match::any(), vec![Action::controller()]);
    add(
        &mut s,
        FlowMod {
            table_id: TableId(7),
            cookie: Cookie(0xc0),
            ..miss
        },
    );
    let packet = udp(2, 53);
    let outputs = s.process(at(0), P1, &packet);
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (p.reason, p.table_id),
        (PacketInReason::NO_MATCH, TableId(7))
    );
    assert_eq!((p.cookie, p.buffer_id), (Cookie(0xc0), None));
    assert_eq!(
        (&p.data[..], p.total_len),
        (&packet[..], packet.len() as u16)
    );
    let asked = FlowMod::add(3, Match::any(), vec![Action::controller()]);
    add(&mut s, asked);
    let outputs = s.process(at(0), P1, &packet);
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(p.reason, PacketInReason::ACTION);
}

#[test]
fn masks_and_absent_fields_are_honoured() {
    let mut s = Switch::with_ports(1..=3);
    let net = Match::any().with(Field::EthType, 0x0800u16).with_masked(
        Field::Ipv4Dst,
        0x0a00_0000u32,
        0xffff_fff8u32,
    );
    add(&mut s, FlowMod::add(5, net, vec![out(2)]));
    assert_eq!(ports(&s, 7), [2]);
    assert_eq!(ports(&s, 8), []);
    let untagged = Match::any().with(Field::VlanVid, 0u16);
    let tagged = Match::any().with_masked(Field::VlanVid, 0x1000u16, 0x1000u16);
    add(&mut s, FlowMod::add(1, untagged, vec![out(3)]));
    add(&mut s, FlowMod::add(9, tagged, vec![out(2)]));
    assert_eq!(ports(&s, 8), [3]);
    assert_eq!(
        s.ports_of(P1, &build::tagged(&udp(8, 1), 5, 0)),
        [PortNo(2)]
    );
}

#[test]
fn asking_counts_nothing() {
    let mut s = Switch::with_ports(1..=2);
    add(&mut s, FlowMod::add(10, to_ip(2), vec![out(2)]));
    assert_eq!(ports(&s, 2), [2]);
    assert_eq!(s.entries().next().map(|e| e.packet_count), Some(0));
}

/// A few values per field, so that matches overlap and hit.
fn a_match() -> impl Strategy<Value = Match> {
    let mask = prop::sample::select(vec![0u32, 0xffff_fffe, 0xffff_fffc, 0xffff_ffff]);
    let addresses = (
        prop::option::of(0u32..6),
        mask,
        prop::option::of(0u16..3),
        prop::option::of(1u32..3),
    );
    addresses.prop_map(|(dst, mask, port, in_port)| {
        let mut m = Match::any()
            .with(Field::EthType, 0x0800u16)
            .with(Field::IpProto, 17u8);
        if let Some(dst) = dst {
            m = m.with_masked(Field::Ipv4Dst, (0x0a00_0000 | dst) & mask, mask);
        }
        if let Some(port) = port {
            m = m.with(Field::UdpDst, port);
        }
        if let Some(in_port) = in_port {
            m = m.with_in_port(PortNo(in_port));
        }
        m
    })
}

proptest! {
    /// Compares the lookup by kinds of match with the definition: of all matching entries, the
    /// oldest of those with the highest priority. The cookie identifies the entry.
    #[test]
    fn lookup_agrees_with_trying_every_entry(
        mods in prop::collection::vec((a_match(), 0u16..4, prop::bool::weighted(0.2)), 1..40),
        packets in prop::collection::vec((0u8..6, 0u16..3, 1u32..3), 20),
    ) {
        let mut s = Switch::with_ports(1..=3);
        for (n, (m, priority, deletes)) in mods.into_iter().enumerate() {
            let command = if deletes { FlowModCommand::Delete } else { FlowModCommand::Add };
            let cookie = Cookie(n as u64);
            let flow = FlowMod::add(priority, m, vec![Action::controller()]);
            add(&mut s, FlowMod { command, cookie, ..flow });
        }
        for (dst, port, in_port) in packets {
            let frame = udp(dst, port);
            let fields = PacketFields::parse(PortNo(in_port), &frame);
            let matching = s.entries().filter(|e| fields.matches(&e.r#match));
            let naive = matching.min_by_key(|e| std::cmp::Reverse(e.priority));
            let got = match s.output_of(PortNo(in_port), &frame).as_slice() {
                [Output::Controller(p)] => Some(p.cookie),
                _ => None,
            };
            prop_assert_eq!(got, naive.map(|e| e.cookie));
        }
    }

    #[test]
    fn no_packet_and_no_rewriting_panics(
        frame in prop::collection::vec(any::<u8>(), 0..120),
        kind in 0usize..5,
        field in 0usize..40,
        value: u128,
    ) {
        let kind = [0x0800, 0x86dd, 0x0806, 0x8847, 0x8100][kind];
        let frame = build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), kind, &frame);
        let field = crate::match_fields::FIELDS[field].field;
        let mut packet = super::actions::Packet::new(P1, frame.into());
        packet.set_field(field, value & field.ones());
        for action in [
            Action::DecNwTtl, Action::DecMplsTtl, Action::PushMpls(0x8847), Action::SetMplsTtl(3),
            Action::PopMpls(0x0800), Action::SetVlanVid(3), Action::PopVlan, Action::SetTpSrc(1),
            Action::SetNwTos(4),
        ] {
            let _ = packet.rewrite(&action);
        }
    }
}
