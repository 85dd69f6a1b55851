//! Messages that concern neither entries nor groups: statistics, packet-out, roles.

use super::*;

#[test]
fn what_a_1_0_switch_says_can_be_said_in_1_0() {
    let mut s = Switch::new(SwitchOptions {
        version: Version::V10,
        n_tables: 2,
        ..Default::default()
    });
    let mut said = vec![s.set_port(at(0), plain_port(P1))];
    let entry = FlowMod {
        cookie: Cookie(7),
        hard_timeout: 2,
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(1, Match::any(), vec![Action::controller()])
    };
    add(&mut s, entry);
    for output in s.process(at(0), P1, &udp(2, 53)) {
        match output {
            Output::Controller(p) => said.push(Message::PacketIn(p)),
            other => panic!("{other:?}"),
        }
    }
    said.extend(s.apply(at(1), &Message::FeaturesRequest).unwrap());
    for body in [
        RequestBody::Desc,
        RequestBody::Flow(FlowStatsRequest::all()),
        RequestBody::Aggregate(FlowStatsRequest::all()),
        RequestBody::Table,
        RequestBody::PortStats(PortNo::ANY),
    ] {
        let request = MultipartRequest { more: false, body };
        said.extend(
            s.apply(at(1_500), &Message::MultipartRequest(request))
                .unwrap(),
        );
    }
    said.extend(s.set_link(P1, false));
    said.extend(s.handle_timeout(at(2_000)));
    assert_eq!(said.len(), 10);
    for message in said {
        let frame = crate::encode(Version::V10, crate::Xid(1), &message);
        assert!(frame.is_ok(), "{frame:?} for {message:?}");
    }
}

#[test]
fn statistics_say_what_was_counted() {
    let mut s = Switch::with_ports(1..=2);
    add(
        &mut s,
        FlowMod {
            cookie: Cookie(3),
            ..FlowMod::add(1, to_ip(2), vec![out(2)])
        },
    );
    add(&mut s, FlowMod::add(1, to_ip(3), vec![out(1)]));
    let packet = udp(2, 53);
    let _ = s.process(at(0), P1, &packet);
    let _ = s.process(at(0), P1, &udp(9, 53));

    let asked = FlowStatsRequest {
        out_port: PortNo(2),
        ..FlowStatsRequest::all()
    };
    let ReplyBody::Flow(flows) = ask_one(&mut s, RequestBody::Flow(asked)) else {
        panic!()
    };
    assert_eq!(flows.len(), 1);
    assert_eq!((flows[0].cookie, flows[0].packet_count), (Cookie(3), 1));
    assert_eq!(
        (flows[0].duration_sec, flows[0].duration_nsec),
        (2, 500_000_000)
    );
    let all = RequestBody::Aggregate(FlowStatsRequest::all());
    let ReplyBody::Aggregate(sum) = ask_one(&mut s, all) else {
        panic!()
    };
    assert_eq!((sum.flow_count, sum.byte_count), (2, packet.len() as u64));
    let ReplyBody::PortStats(p) = ask_one(&mut s, RequestBody::PortStats(PortNo(2))) else {
        panic!()
    };
    assert_eq!((p[0].tx_packets, p[0].rx_packets), (1, 0));

    let request = MultipartRequest {
        more: false,
        body: RequestBody::Table,
    };
    let tables = s.apply(at(0), &Message::MultipartRequest(request)).unwrap();
    assert_eq!(tables.len(), 254usize.div_ceil(64), "in parts");
    let Message::MultipartReply(first) = &tables[0] else {
        panic!()
    };
    let ReplyBody::Table(list) = &first.body else {
        panic!()
    };
    assert!(first.more);
    assert_eq!(
        (
            list[0].lookup_count,
            list[0].matched_count,
            list[0].active_count
        ),
        (2, 1, 2)
    );
}

/// Floodlight sets a table-miss entry only in a table that names OUTPUT for it.
#[test]
fn a_table_says_that_a_miss_may_be_output() {
    let mut s = Switch::new(SwitchOptions {
        n_tables: 2,
        ..Default::default()
    });
    let asked = RequestBody::TableFeatures(Vec::new());
    let ReplyBody::TableFeatures(tables) = ask_one(&mut s, asked) else {
        panic!()
    };
    let says = |miss: bool| {
        move |property: &TableFeatureProperty| match property {
            TableFeatureProperty::ApplyActions { miss: of, ids } => {
                *of == miss && ids.iter().any(|action| action.id == 0)
            }
            _ => false,
        }
    };
    let numbers: Vec<u8> = tables.iter().map(|table| table.table_id.0).collect();
    assert_eq!(numbers, [0, 1]);
    for table in tables {
        assert!(table.properties.iter().any(says(false)), "{table:?}");
        assert!(table.properties.iter().any(says(true)), "{table:?}");
    }
}

#[test]
fn a_packet_out_does_its_actions_or_goes_through_the_tables() {
    let mut s = Switch::with_ports(1..=3);
    add(
        &mut s,
        FlowMod::add(1, Match::any().with_in_port(P1), vec![out(3)]),
    );
    let send =
        |in_port, port| PacketOut::new(in_port, vec![Action::output(port)], udp(2, 1).into());
    let sent = |s: &mut Switch, m: PacketOut| match s.packet_out(at(0), &m).unwrap().as_slice() {
        [Output::Port { port, .. }] => Some(port.0),
        _ => None,
    };
    assert_eq!(sent(&mut s, send(PortNo::CONTROLLER, PortNo(2))), Some(2));
    assert_eq!(sent(&mut s, send(P1, PortNo::TABLE)), Some(3));
    assert_eq!(sent(&mut s, send(PortNo::CONTROLLER, PortNo::TABLE)), None);
    let buffered = PacketOut {
        buffer_id: Some(crate::BufferId(1)),
        ..send(P1, PortNo(2))
    };
    assert_eq!(
        s.packet_out(at(0), &buffered),
        Err(ErrorKind::BUFFER_UNKNOWN)
    );
}

#[test]
fn an_older_generation_is_stale() {
    let mut s = Switch::with_ports([]);
    let ask = |role, generation_id| Message::RoleRequest(RoleMessage::new(role, generation_id));
    s.apply(at(0), &ask(Role::Primary, 5)).unwrap();
    assert_eq!(
        s.apply(at(0), &ask(Role::Primary, 4)),
        Err(ErrorKind::ROLE_STALE)
    );
    let reply = s.apply(at(0), &ask(Role::NoChange, 0)).unwrap();
    let told = RoleMessage::new(Role::Primary, 5);
    assert_eq!(reply, [Message::RoleReply(told)]);
}
