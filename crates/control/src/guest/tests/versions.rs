//! Switches of later versions, as 1.3 shows them.

use openflow::message::{
    FlowRemoved, FlowRemovedReason, OpticalPort, PacketIn, PacketInReason, Port, PortProperty,
    PortReason, PortStatsProperty, PortStatus, Property,
};
use openflow::multipart::{PortStats, QueueStats};
use openflow::{Field, MatchField, QueueId};

use super::*;

fn property() -> Property {
    Property {
        property: 0xffff,
        data: Bytes::from_static(&[0, 0, 0, 9, 0, 0, 0, 1]),
    }
}

fn later_port(number: u32) -> Port {
    let optical = OpticalPort {
        supported: 1,
        tx_lambda: [1; 3],
        rx_lambda: [1; 3],
        tx_power: [1; 2],
    };
    Port {
        properties: vec![
            PortProperty::Optical(optical),
            PortProperty::Other(property()),
        ],
        ..plain_port(PortNo(number))
    }
}

impl Bench {
    /// Answers a guest's next request in place of the switch.
    pub(super) fn answer(
        &mut self,
        guest: usize,
        asked: RequestBody,
        answer: Answer,
    ) -> Vec<Message> {
        let before = self.replies[guest].len();
        let frame = encode(Version::V13, Xid(5), &ask(asked)).unwrap();
        let machine = &mut self.guests[guest];
        machine.handle_frame(self.now, &frame, true);
        let Some(Output::Ask(ticket, _)) = machine.poll_output() else {
            panic!("the switch is asked");
        };
        machine.handle_answer(self.now, ticket, answer);
        self.settle();
        let new = self.replies[guest][before..].iter();
        new.map(|(_, message)| message.clone()).collect()
    }
}

/// Parts that 1.3 cannot express are left out, and the rest is sent: a message that could not be
/// written would be lost.
#[test]
fn what_a_later_version_adds_is_left_out() {
    let mut bench = Bench::speaking(Version::V15, &[guest(0, &["in_port=1"])]);
    bench.add(0, 3, "tcp", "controller");
    let row = bench.held(Some(0)).remove(0);
    let (_, number) = of_cookie(row.cookie).unwrap();
    let known = Match::any()
        .with_in_port(PortNo(1))
        .with(Field::TunnelId, 7u8);
    let packet = PacketIn {
        buffer_id: None,
        total_len: 60,
        // OFPR_GROUP of 1.4.
        reason: PacketInReason(4),
        table_id: row.table_id,
        cookie: row.cookie,
        r#match: known
            .clone()
            .with(Field::PacketType, 0u8)
            .with(Field::ActsetOutput, 1u8),
        data: tcp(80),
    };
    bench.guests[0].handle_packet_in(bench.now, number, packet);
    bench.guests[0].handle_port_status(&PortStatus {
        reason: PortReason::MODIFY,
        port: later_port(1),
    });
    bench.settle();
    let [
        (_, Message::PacketIn(packet)),
        (_, Message::PortStatus(status)),
    ] = &bench.replies[0][..]
    else {
        panic!("{:?}", bench.replies[0]);
    };
    assert_eq!(packet.reason, PacketInReason::ACTION);
    assert_eq!(packet.r#match, known);
    assert_eq!(status.port, plain_port(PortNo(1)));

    let port_stats = PortStats {
        port_no: PortNo(1),
        rx_packets: 1,
        tx_packets: 2,
        rx_bytes: 3,
        tx_bytes: 4,
        rx_dropped: 5,
        tx_dropped: 6,
        rx_errors: 7,
        tx_errors: 8,
        rx_frame_err: 9,
        rx_over_err: 10,
        rx_crc_err: 11,
        collisions: 12,
        duration_sec: 13,
        duration_nsec: 14,
        properties: Vec::new(),
    };
    let queue_stats = QueueStats {
        port_no: PortNo(1),
        queue_id: QueueId(2),
        tx_bytes: 3,
        tx_packets: 4,
        tx_errors: 5,
        duration_sec: 6,
        duration_nsec: 7,
        properties: Vec::new(),
    };
    let of_switch = |later: bool| {
        let port = PortStats {
            properties: match later {
                true => vec![PortStatsProperty::Other(property())],
                false => Vec::new(),
            },
            ..port_stats.clone()
        };
        let queue = QueueStats {
            properties: match later {
                true => vec![property()],
                false => Vec::new(),
            },
            ..queue_stats.clone()
        };
        let desc = match later {
            true => later_port(1),
            false => plain_port(PortNo(1)),
        };
        [
            ReplyBody::PortDesc(vec![desc]),
            ReplyBody::PortStats(vec![port]),
            ReplyBody::Queue(vec![queue]),
        ]
    };
    let (any, all) = (PortNo::ANY, QueueId::ALL);
    let asked = [
        RequestBody::PortDesc(any),
        RequestBody::PortStats(any),
        RequestBody::Queue {
            port: any,
            queue: all,
        },
    ];
    for ((asked, body), shown) in { asked }
        .into_iter()
        .zip(of_switch(true))
        .zip(of_switch(false))
    {
        let replies = bench.answer(0, asked, Answer::Whole(vec![body]));
        let [Message::MultipartReply(reply)] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert_eq!(reply.body, shown);
    }
}

/// All ones mean that a switch of 1.5 does not count, and 1.3 reports this in the same form.
#[test]
fn counts_that_a_switch_does_not_say_stay_unsaid() {
    let mut bench = Bench::speaking(Version::V15, &[guest(0, &["in_port=1"])]);
    let entry = FlowMod {
        idle_timeout: 5,
        flags: openflow::message::FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(3, Match::any(), vec![Action::output(PortNo(1))])
    };
    bench.send(0, &Message::FlowMod(entry));
    let row = bench.held(Some(0)).remove(0);
    let removed = FlowRemoved {
        cookie: row.cookie,
        priority: row.priority,
        reason: FlowRemovedReason::IDLE_TIMEOUT,
        table_id: row.table_id,
        duration_sec: u32::MAX,
        duration_nsec: u32::MAX,
        idle_timeout: 5,
        hard_timeout: 0,
        packet_count: u64::MAX,
        byte_count: u64::MAX,
        r#match: row.r#match.clone(),
        stats: Vec::new(),
    };
    bench.report(&[Message::FlowRemoved(removed)]);
    bench.settle();
    let Some((_, Message::FlowRemoved(told))) = bench.replies[0].last() else {
        panic!("{:?}", bench.replies[0]);
    };
    assert_eq!((told.packet_count, told.byte_count), (u64::MAX, u64::MAX));
    assert_eq!((told.priority, told.duration_sec), (3, 0));
}

/// Errors of a later version become the nearest error of 1.3; errors of 1.3 stay.
#[test]
fn a_guest_gets_errors_of_its_version() {
    use ErrorKind as E;
    let of = |ty, code| E { ty, code };
    for (said, told) in [
        (E::FLOW_MOD_TABLE_FULL, E::FLOW_MOD_TABLE_FULL),
        (E::GROUP_BAD_WATCH, E::GROUP_BAD_WATCH),
        (E::INST_DUP_INST, E::UNSUP_INST),
        // OFPBAC_BAD_SET_MASK of 1.5, OFPFMFC_BAD_PRIORITY of 1.4, OFPGMFC_BUCKET_EXISTS of 1.5.
        (of(2, 16), E::ACTION_BAD_ARGUMENT),
        // OFPBAC_BAD_METER of 1.5.
        (of(2, 17), E::METER_UNKNOWN_METER),
        (of(5, 9), E::FLOW_MOD_UNKNOWN),
        (of(6, 15), E::GROUP_INVALID),
        (E::PROPERTY_BAD_TYPE, E::REQUEST_EPERM),
        (of(0xffff, 2), E::REQUEST_EPERM),
    ] {
        let mut bench = Bench::speaking(Version::V15, &[guest(0, &["in_port=1"])]);
        let asked = RequestBody::PortStats(PortNo::ANY);
        let replies = bench.answer(0, asked, Answer::Refused(said));
        assert_eq!(error_of(&replies), Some(told), "{said:?}");
    }
}

/// A guest's own messages are of 1.3, whatever version the switch speaks: fields that only the
/// switch's version has are refused.
#[test]
fn a_guest_has_the_fields_of_its_own_version() {
    let mut bench = Bench::speaking(Version::V15, &[guest(0, &["in_port=1"])]);
    // OXM_OF_TCP_FLAGS of 1.5, which 1.3 does not know.
    let flags = MatchField::Other {
        header: 0x8000_5402,
        payload: Bytes::from_static(&[0, 2]),
    };
    let fields = parse_match("tcp").unwrap().fields;
    let matching = Match {
        fields: fields.into_iter().chain([flags]).collect(),
    };
    let entry = FlowMod::add(3, matching, vec![Action::output(PortNo(1))]);
    let replies = bench.send(0, &Message::FlowMod(entry));
    assert_eq!(error_of(&replies), Some(ErrorKind::MATCH_BAD_FIELD));
    assert_eq!(bench.held(Some(0)), []);
}
