//! Ports belong to the switch: a guest changes only which packets it gets itself.

use openflow::message::{
    PacketIn, PacketInReason, Port, PortConfig, PortMod, PortReason, PortStatus,
};

use super::*;

fn set(port: u32, config: u32, mask: u32) -> PortMod {
    PortMod {
        port_no: PortNo(port),
        hw_addr: plain_port(PortNo(port)).hw_addr,
        config: PortConfig(config),
        mask: PortConfig(mask),
        advertise: 0,
        properties: Vec::new(),
    }
}

impl Bench {
    fn port_config(&mut self, guest: usize, port: u32) -> u32 {
        let replies = self.send(guest, &ask(RequestBody::PortDesc(PortNo::ANY)));
        let ports: Vec<Port> = replies
            .into_iter()
            .flat_map(|reply| match reply {
                Message::MultipartReply(reply) => match reply.body {
                    ReplyBody::PortDesc(ports) => ports,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        let found = ports.iter().find(|it| it.port_no == PortNo(port));
        found.expect("it is the guest's").config.0
    }

    /// The number of packets of a port that a guest gets by an entry.
    fn packets_of(&mut self, guest: usize, port: u32, row: &FlowStats) -> usize {
        let (_, number) = of_cookie(row.cookie).unwrap();
        let packet = PacketIn {
            buffer_id: None,
            total_len: 60,
            reason: PacketInReason::ACTION,
            table_id: row.table_id,
            cookie: row.cookie,
            r#match: Match::any().with_in_port(PortNo(port)),
            data: tcp(80),
        };
        let before = self.replies[guest].len();
        self.guests[guest].handle_packet_in(self.now, number, packet);
        self.settle();
        self.replies[guest].len() - before
    }
}

#[test]
fn a_guest_turns_off_its_own_packets_of_a_port_and_nothing_else() {
    let ports = &["in_port=1", "in_port=2"];
    let mut bench = Bench::new(&[guest(0, ports), guest(1, ports)]);
    let silent = PortConfig::NO_PACKET_IN.0;
    let all: Vec<Port> = bench.switch.ports().cloned().collect();
    use ErrorKind as E;
    let wrong = PortMod {
        hw_addr: plain_port(PortNo(2)).hw_addr,
        ..set(1, silent, silent)
    };
    for (asked, error) in [
        (set(3, silent, silent), E::PORT_MOD_BAD_PORT),
        (set(1, 1, 1), E::PORT_MOD_EPERM),
        (set(1, silent | 1, silent | 1), E::PORT_MOD_EPERM),
        (wrong, E::PORT_MOD_BAD_HW_ADDR),
    ] {
        let replies = bench.send(0, &Message::PortMod(asked));
        assert_eq!(error_of(&replies), Some(error));
        assert_eq!(bench.port_config(0, 1), 0);
    }
    // A change without effect is no mistake.
    assert_eq!(bench.send(0, &Message::PortMod(set(1, 0, 1))), []);
    for guest in [0, 1] {
        bench.add(guest, 0, "", "controller");
        bench.add(guest, 1, "tcp,tp_dst=80", "controller");
    }
    let replies = bench.send(0, &Message::PortMod(set(1, silent, silent)));
    let [Message::PortStatus(status)] = &replies[..] else {
        panic!("{replies:?}");
    };
    let said = (status.reason, status.port.config.0);
    assert_eq!(said, (PortReason::MODIFY, silent));
    assert_eq!(
        (bench.port_config(0, 1), bench.port_config(0, 2)),
        (silent, 0)
    );
    assert_eq!(bench.port_config(1, 1), 0, "the other guest's is as before");
    let held: Vec<Port> = bench.switch.ports().cloned().collect();
    assert_eq!(held, all, "and the switch's");
    // Only packets that no entry of the guest's matches are left out.
    for (guest, miss, other) in [(0, 0, 1), (1, 1, 1)] {
        for row in bench.held(Some(guest)) {
            let guest = usize::from(guest);
            let is_miss = !row.r#match.fields.iter().any(|field| {
                matches!(field, openflow::MatchField::Basic { field, .. }
                    if *field == openflow::Field::TcpDst)
            });
            let wanted = if is_miss { miss } else { other };
            assert_eq!(bench.packets_of(guest, 1, &row), wanted, "{row:?}");
            assert_eq!(bench.packets_of(guest, 2, &row), 1, "{row:?}");
        }
    }
    bench.replies[0].clear();
    bench.guests[0].handle_port_status(&PortStatus {
        reason: PortReason::MODIFY,
        port: plain_port(PortNo(1)),
    });
    bench.settle();
    let Some((_, Message::PortStatus(status))) = bench.replies[0].last() else {
        panic!("a report");
    };
    assert_eq!(status.port.config.0, silent);
    bench.send(0, &Message::PortMod(set(1, 0, silent)));
    assert_eq!(bench.port_config(0, 1), 0);
}
