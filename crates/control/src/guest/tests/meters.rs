//! The meters of guests, in the switch that two of them share.

use openflow::message::{
    FlowModFlags, FlowRemovedReason, GroupMod, GroupModCommand, GroupType, MeterBand,
    MeterBandKind, MeterFlags, MeterMod, MeterModCommand,
};
use openflow::multipart::{MeterConfig, MeterFeatures, MeterStats};
use openflow::{Field, MeterId};

use super::super::meters::METERS_MAX;
use super::*;

pub(super) fn band(rate: u32) -> MeterBand {
    MeterBand {
        rate,
        burst_size: 0,
        kind: MeterBandKind::Drop,
    }
}

fn meter(command: MeterModCommand, id: u32, bands: Vec<MeterBand>) -> MeterMod {
    MeterMod {
        command,
        flags: MeterFlags::KBPS,
        meter_id: MeterId(id),
        bands,
    }
}

fn add(id: u32, rate: u32) -> Message {
    Message::MeterMod(meter(MeterModCommand::Add, id, vec![band(rate)]))
}

fn delete(id: MeterId) -> Message {
    Message::MeterMod(meter(MeterModCommand::Delete, id.0, Vec::new()))
}

/// An entry whose packets pass a meter.
fn metered(priority: u16, id: u32, actions: &str) -> Message {
    let mut entry = FlowMod::add(priority, Match::any(), parse_actions(actions).unwrap());
    entry.instructions.push(Instruction::Meter(MeterId(id)));
    Message::FlowMod(entry)
}

impl Bench {
    fn question(&mut self, guest: usize, body: RequestBody) -> Result<ReplyBody, ErrorKind> {
        let replies = self.send(guest, &ask(body));
        match &replies[..] {
            [Message::MultipartReply(reply)] => Ok(reply.body.clone()),
            [Message::Error(error)] => Err(error.kind),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn meters(&mut self, guest: usize) -> Vec<MeterConfig> {
        match self.question(guest, RequestBody::MeterConfig(MeterId::ALL)) {
            Ok(ReplyBody::MeterConfig(meters)) => meters,
            other => panic!("{other:?}"),
        }
    }

    fn meter_stats(&mut self, guest: usize, id: MeterId) -> Result<Vec<MeterStats>, ErrorKind> {
        match self.question(guest, RequestBody::Meter(id))? {
            ReplyBody::Meter(meters) => Ok(meters),
            other => panic!("{other:?}"),
        }
    }

    fn meter_numbers(&self) -> Vec<u32> {
        self.switch.meters().map(|meter| meter.meter_id.0).collect()
    }
}

#[test]
fn guests_have_meters_of_the_same_numbers_and_none_has_anothers() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let guests = [guest(0, &["in_port=1"]), guest(1, &["in_port=2"])];
        let mut bench = Bench::speaking(version, &guests);
        // Somebody else's, of the guests' own number.
        bench.switch.apply(bench.now, &add(7, 1)).unwrap();
        for guest in 0..2 {
            let mine = add(7, 100 + guest as u32);
            assert_eq!(error_of(&bench.send(guest, &mine)), None);
            assert_eq!(error_of(&bench.send(guest, &add(8, 5))), None);
            let entry = metered(5, 7, "in_port");
            assert_eq!(error_of(&bench.send(guest, &entry)), None);
        }
        assert_eq!(bench.meter_numbers(), [7, 0xa000, 0xa001, 0xa100, 0xa101]);
        // Packets pass the guest's own, and the rest of its entry.
        for port in [1, 2] {
            let _ = bench.switch.process(bench.now, PortNo(port), &tcp(80));
        }
        for guest in 0..2 {
            let found = bench.meters(guest);
            let stated = (found[0].meter_id, &found[0].bands[..]);
            assert_eq!(stated, (MeterId(7), &[band(100 + guest as u32)][..]));
            let stats = bench.meter_stats(guest, MeterId::ALL).unwrap();
            let counts = |it: &MeterStats| (it.meter_id.0, it.packet_in_count, it.flow_count);
            let counts: Vec<_> = stats.iter().map(counts).collect();
            assert_eq!(counts, [(7, 1, 1), (8, 0, 0)], "{version}");
            assert_eq!(bench.meter_stats(guest, MeterId(8)).unwrap().len(), 1);
            let rows = bench.read(guest);
            let instructions = [
                Instruction::ApplyActions(parse_actions("in_port").unwrap()),
                Instruction::Meter(MeterId(7)),
            ];
            assert_eq!(rows[0].instructions, instructions);
        }
        let unknown = Err(ErrorKind::METER_UNKNOWN_METER);
        assert_eq!(bench.meter_stats(0, MeterId(9)), unknown);
        // One guest deletes all: its entries go with its meters, and nothing of the other's.
        let others = sorted(&bench.held(Some(1)));
        let Message::FlowMod(mut entry) = metered(9, 7, "drop") else {
            unreachable!();
        };
        entry.flags = FlowModFlags::SEND_FLOW_REM;
        bench.send(0, &Message::FlowMod(entry));
        let replies = bench.send(0, &delete(MeterId::ALL));
        let [Message::FlowRemoved(removed)] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert_eq!(removed.reason, FlowRemovedReason::DELETE);
        assert_eq!((bench.meters(0), bench.held(Some(0))), (vec![], vec![]));
        assert_eq!(bench.meter_numbers(), [7, 0xa100, 0xa101]);
        assert_eq!(sorted(&bench.held(Some(1))), others);
        assert_eq!(bench.meter_stats(0, MeterId::ALL), Ok(vec![]));
    }
}

#[test]
fn what_is_no_meter_of_a_guest_gets_its_error() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"])]);
    use ErrorKind as E;
    use MeterModCommand as C;
    let others = MeterBand {
        kind: MeterBandKind::Experimenter {
            experimenter: 9,
            data: Bytes::new(),
        },
        ..band(1)
    };
    let of = |command, id, bands| Message::MeterMod(meter(command, id, bands));
    // A meter of somebody else, with a number that the guest could guess.
    bench.switch.apply(bench.now, &add(0xa000, 1)).unwrap();
    bench.switch.apply(bench.now, &add(0xa100, 1)).unwrap();
    for (message, error) in [
        (of(C::Modify, 1, vec![band(1)]), E::METER_UNKNOWN_METER),
        (of(C::Add, 0, vec![band(1)]), E::METER_INVALID),
        (of(C::Add, MeterId::ALL.0, vec![band(1)]), E::METER_INVALID),
        (of(C::Add, 1, vec![band(1); 17]), E::METER_OUT_OF_BANDS),
        (of(C::Add, 1, vec![others]), E::METER_BAD_BAND),
        (metered(1, 1, "drop"), E::METER_UNKNOWN_METER),
        (metered(1, 0xa100, "drop"), E::METER_UNKNOWN_METER),
        (of(C::Modify, 0xa100, vec![]), E::METER_UNKNOWN_METER),
    ] {
        let replies = bench.send(0, &message);
        assert_eq!(error_of(&replies), Some(error), "{message:?}");
    }
    // Deleting what is not there is no mistake, and deletes nothing of others'.
    for id in [MeterId(9), MeterId(0xa100), MeterId::ALL] {
        assert_eq!(error_of(&bench.send(0, &delete(id))), None);
    }
    assert_eq!(bench.meter_numbers(), [0xa000, 0xa100]);
    assert_eq!(bench.held(Some(0)), []);
    bench
        .switch
        .apply(bench.now, &delete(MeterId::ALL))
        .unwrap();
    for id in 0..METERS_MAX as u32 {
        assert_eq!(error_of(&bench.send(0, &add(100 + id, 1))), None, "{id}");
    }
    let error = error_of(&bench.send(0, &add(1000, 1)));
    assert_eq!(error, Some(E::METER_OUT_OF_METERS));
    assert_eq!(bench.guests[0].size(), 2 * METERS_MAX);
    // Numbers are reused, but never those of existing meters.
    for _ in 0..600 {
        bench.send(0, &delete(MeterId(130)));
        assert_eq!(error_of(&bench.send(0, &add(130, 1))), None);
    }
    let numbers = bench.meter_numbers();
    assert_eq!(numbers.len(), METERS_MAX);
    assert!(numbers.iter().all(|id| (0xa000..0xa0ff).contains(id)));
    // All guests together have no room left.
    bench.send(0, &delete(MeterId::ALL));
    bench.replies[0].clear();
    let frame = encode(Version::V13, Xid(5), &add(1, 1)).unwrap();
    let now = bench.now;
    bench.guests[0].handle_frame(now, &frame, false);
    bench.settle();
    let [(_, Message::Error(error))] = &bench.replies[0][..] else {
        panic!("{:?}", bench.replies[0]);
    };
    assert_eq!(error.kind, E::METER_OUT_OF_METERS);
    assert_eq!(bench.meter_numbers(), []);
}

#[test]
fn a_switch_with_few_meters_has_none_for_a_guest() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"]), guest(1, &["in_port=2"])]);
    let told = |max_meter| MeterFeatures {
        max_meter,
        band_types: 0xe,
        capabilities: 0xf,
        max_bands: 200,
        max_color: 3,
        features: Some(1),
    };
    let of = |bench: &mut Bench, guest, answer| {
        let replies = bench.answer(guest, RequestBody::MeterFeatures, answer);
        match &replies[..] {
            [Message::MultipartReply(reply)] => match &reply.body {
                ReplyBody::MeterFeatures(features) => *features,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    for (guest, max, count) in [
        (0, 262_144, 64),
        (0, 0x9fff, 0),
        (0, 0xa000, 1),
        (0, 0xa00f, 16),
        (1, 0xa0ff, 0),
        (1, 0xa100, 1),
        (0, 8, 0),
    ] {
        let whole = Answer::Whole(vec![ReplyBody::MeterFeatures(told(max))]);
        let shown = of(&mut bench, guest, whole);
        let (types, bands) = if count > 0 { (6, 16) } else { (0, 0) };
        let said = (shown.max_meter, shown.band_types, shown.max_bands);
        assert_eq!(said, (count, types, bands), "{max}");
        assert_eq!(shown.features, None);
    }
    let refused = Answer::Refused(ErrorKind::BAD_MULTIPART);
    assert_eq!(of(&mut bench, 0, refused).max_meter, 0);
    // The errors of such switches for a number that is beyond theirs, or for any meter at all.
    for said in [
        ErrorKind::METER_INVALID,
        ErrorKind::METER_OUT_OF_METERS,
        ErrorKind::BAD_TYPE,
    ] {
        let frame = encode(Version::V13, Xid(5), &add(1, 1)).unwrap();
        let now = bench.now;
        let machine = &mut bench.guests[0];
        machine.handle_frame(now, &frame, true);
        let Some(Output::Meter(ticket, _)) = machine.poll_output() else {
            panic!("the switch is sent a meter");
        };
        machine.handle_refused(now, ticket, said);
        bench.settle();
        let last = bench.replies[0].pop().map(|(_, message)| message);
        let error = error_of(&last.into_iter().collect::<Vec<_>>());
        assert_eq!(error, Some(ErrorKind::METER_OUT_OF_METERS));
        assert_eq!(bench.meters(0), []);
    }
}

#[test]
fn meters_that_others_delete_or_change_are_set_again_before_their_entries() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"]), guest(1, &["in_port=2"])]);
    bench.send(0, &add(1, 100));
    bench.send(0, &metered(5, 1, "in_port"));
    bench.read_rows(0);
    let wanted: Vec<MeterConfig> = bench.switch.meters().collect();
    let by_hand = |bench: &mut Bench, message: Message| {
        bench.now += Duration::from_secs(1);
        let now = bench.now;
        bench.switch.apply(now, &message).unwrap()
    };
    // Deleted, and a switch of 1.4 or later reports the entry.
    let gone = by_hand(&mut bench, delete(MeterId::ALL));
    let [Message::FlowRemoved(removed)] = &gone[..] else {
        panic!("{gone:?}");
    };
    let removed = openflow::message::FlowRemoved {
        reason: FlowRemovedReason::METER_DELETE,
        ..removed.clone()
    };
    bench.report(&[Message::FlowRemoved(removed)]);
    bench.settle();
    assert_eq!(bench.switch.meters().collect::<Vec<_>>(), wanted);
    assert_eq!(bench.held(Some(0)).len(), 1);
    // Deleted without a report.
    by_hand(&mut bench, delete(MeterId::ALL));
    bench.read_rows(0);
    assert_eq!(bench.switch.meters().collect::<Vec<_>>(), wanted);
    assert_eq!(bench.held(Some(0)).len(), 1);
    // Changed; and a meter that nobody has stated, and another guest's.
    bench.read_rows(0);
    let of = |command, id| Message::MeterMod(meter(command, id, vec![band(9)]));
    by_hand(&mut bench, of(MeterModCommand::Modify, 0xa000));
    by_hand(&mut bench, of(MeterModCommand::Add, 0xa0f0));
    by_hand(&mut bench, of(MeterModCommand::Add, 0xa1f0));
    by_hand(&mut bench, of(MeterModCommand::Add, 0x9fff));
    bench.read_rows(0);
    assert_eq!(bench.meter_numbers(), [0x9fff, 0xa000, 0xa1f0]);
    assert_eq!(bench.switch.meters().nth(1), wanted.first().cloned());
    // The other guest's machine reports that it has no such meter.
    bench.read_rows(1);
    assert_eq!(bench.meter_numbers(), [0x9fff, 0xa000]);
    // Another guest's meter of the same number is not taken for this guest's.
    bench.send(1, &add(1, 7));
    by_hand(&mut bench, delete(MeterId(0xa000)));
    bench.read_rows(0);
    assert_eq!(bench.meter_numbers(), [0x9fff, 0xa000, 0xa100]);
}

#[test]
fn meters_come_back_with_their_switch_and_go_with_their_guest() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"])]);
    bench.send(0, &add(1, 100));
    bench.send(0, &metered(5, 1, "in_port"));
    let (rows, meters) = (sorted(&bench.held(Some(0))), bench.meter_numbers());
    bench.guests[0].handle_switch_down();
    bench.switch = Bench::new(&[]).switch;
    bench.read_rows(0);
    assert_eq!(sorted(&bench.held(Some(0))), rows);
    assert_eq!(bench.meter_numbers(), meters);
    // Another process of ours, which knows of no meters: the guest waits for the switch's report.
    let config = Arc::new(Guest {
        is_kept: false,
        ..(*guest(0, &["in_port=1"])).clone()
    });
    bench.guests[0] = Machine::new(0, DPID, 254, config);
    let (held, now) = (bench.held(Some(0)), bench.now);
    let _ = bench.guests[0].handle_rows(now, now, held);
    let machine = &mut bench.guests[0];
    let (Some(Output::Ask(groups, _)), Some(Output::Ask(meters, _))) =
        (machine.poll_output(), machine.poll_output())
    else {
        panic!("the switch is asked");
    };
    machine.handle_answer(now, groups, Answer::Whole(Vec::new()));
    assert!(machine.is_behind());
    let found = ReplyBody::MeterConfig(bench.switch.meters().collect());
    machine.handle_answer(now, meters, Answer::Whole(vec![found]));
    bench.settle();
    assert!(!bench.guests[0].is_behind());
    assert_eq!(
        (bench.meter_numbers(), bench.held(Some(0))),
        (vec![], vec![])
    );
    // A guest whose entries are deleted when its connection ends.
    bench.guests[0].handle_connected();
    let hello = openflow::hello::Hello::offering(&[Version::V13]);
    bench.send(0, &Message::Hello(hello));
    bench.send(0, &add(1, 100));
    bench.send(0, &metered(5, 1, "in_port"));
    assert_eq!(bench.meter_numbers().len(), 1);
    bench.guests[0].handle_disconnected();
    bench.settle();
    assert_eq!(
        (bench.meter_numbers(), bench.held(Some(0))),
        (vec![], vec![])
    );
    assert_eq!(bench.guests[0].size(), 0);
}

#[test]
fn a_meter_that_the_switch_refuses_is_what_it_was() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    bench.send(0, &add(1, 100));
    let change = meter(MeterModCommand::Modify, 1, vec![band(7)]);
    let frame = encode(Version::V13, Xid(5), &Message::MeterMod(change)).unwrap();
    let now = bench.now;
    let machine = &mut bench.guests[0];
    // Two in a row, both refused.
    let mut tickets = Vec::new();
    for _ in 0..2 {
        machine.handle_frame(now, &frame, true);
        let Some(Output::Meter(ticket, _)) = machine.poll_output() else {
            panic!("the switch is sent a meter");
        };
        tickets.push(ticket);
    }
    for ticket in tickets {
        machine.handle_refused(now, ticket, ErrorKind::METER_BAD_RATE);
    }
    bench.settle();
    let errors = bench.replies[0].iter().rev().take(2);
    let errors: Vec<Message> = errors.map(|(_, message)| message.clone()).collect();
    assert_eq!(error_of(&errors), Some(ErrorKind::METER_BAD_RATE));
    assert_eq!(bench.meters(0)[0].bands, [band(100)]);
}

/// In 1.5 a meter is the first of the actions, wherever it stands among the instructions.
#[test]
fn a_meter_is_an_instruction_or_an_action() {
    let apply = |words: &str| Instruction::ApplyActions(parse_actions(words).unwrap());
    let meter = Instruction::Meter(MeterId(9));
    let set = Match::any().with(Field::EthDst, 1u8).fields.remove(0);
    let metered = |then: &[Action]| {
        let actions = [&[Action::Meter(MeterId(9))], then].concat();
        Instruction::ApplyActions(actions)
    };
    let goto = Instruction::GotoTable(TableId(11));
    for (stated, sent) in [
        (vec![apply("output:1")], vec![apply("output:1")]),
        (vec![meter.clone()], vec![metered(&[])]),
        (
            vec![goto.clone(), meter.clone()],
            vec![metered(&[]), goto.clone()],
        ),
        (
            vec![
                Instruction::ApplyActions(vec![Action::SetField(set.clone())]),
                meter.clone(),
                goto.clone(),
            ],
            vec![metered(&[Action::SetField(set)]), goto],
        ),
    ] {
        for version in [Version::V13, Version::V14] {
            let mut same = stated.clone();
            in_version(version, &mut same);
            assert_eq!(same, stated);
        }
        let mut found = stated.clone();
        in_version(Version::V15, &mut found);
        assert_eq!(found, sent);
    }
}

/// A guest's numbers belong to nobody else, however many meters a switch has.
#[test]
fn a_number_names_its_guest_and_is_no_other_kinds() {
    use super::super::meters::{of_meter, switch_id};
    use crate::flows::parts::PartId;
    use crate::qos::plan::is_our_meter;
    for (guest, number) in [(0, 0), (15, 0xff), (3, 7)] {
        let id = switch_id(guest, number);
        assert_eq!(of_meter(id), Some((guest, number)));
        assert!(!PartId::Meter(id).is_given());
        for max in [8, 0x5000, 0x9fff, 0xa000, 262_144, u32::MAX] {
            let is_there = id.0 <= max;
            assert!(!(is_there && is_our_meter(id, max)), "{id:?} {max}");
        }
    }
    for id in [0, 7, 0x9fff, 0xb000, 0x1_a000] {
        assert_eq!(of_meter(MeterId(id)), None);
    }
}

/// The guest deletes a meter or a group while a change of its entry is under way, which the switch
/// refuses. The switch deletes the entry with the meter or group, and so does the guest.
#[test]
fn what_a_refused_change_brings_back_is_gone_where_its_meter_or_group_is() {
    use FlowModCommand as F;
    let group = |command| {
        Message::GroupMod(GroupMod::new(
            command,
            GroupType::All,
            GroupId(3),
            Vec::new(),
        ))
    };
    let by_meter = (add(7, 100), metered(5, 7, "output:1"), delete(MeterId(7)));
    let grouped = FlowMod::add(5, Match::any(), vec![Action::Group(GroupId(3))]);
    let (made, gone) = (group(GroupModCommand::Add), group(GroupModCommand::Delete));
    let by_group = (made, Message::FlowMod(grouped), gone);
    for (made, entry, gone) in [by_meter, by_group] {
        for command in [F::ModifyStrict, F::Add] {
            let mut bench = Bench::new(&[guest(0, &[])]);
            let Message::FlowMod(mut entry) = entry.clone() else {
                unreachable!();
            };
            entry.flags = FlowModFlags::SEND_FLOW_REM;
            entry.cookie = Cookie(5);
            assert_eq!(error_of(&bench.send(0, &made)), None);
            assert_eq!(error_of(&bench.send(0, &Message::FlowMod(entry))), None);
            let mut change = FlowMod::add(5, Match::any(), parse_actions("output:2").unwrap());
            change.command = command;
            let mut outputs = Vec::new();
            for message in [&Message::FlowMod(change), &gone] {
                let frame = encode(Version::V13, Xid(9), message).unwrap();
                bench.guests[0].handle_frame(bench.now, &frame, true);
                outputs.extend(std::iter::from_fn(|| bench.guests[0].poll_output()));
            }
            let sent = outputs.into_iter().filter_map(|output| match output {
                Output::Change(Some(ticket), _) => Some((ticket, None)),
                Output::Meter(ticket, it) => Some((ticket, Some(Message::MeterMod(*it)))),
                Output::Group(ticket, it) => Some((ticket, Some(Message::GroupMod(*it)))),
                _ => None,
            });
            let [(refused, None), (_, Some(deleted))] = &sent.collect::<Vec<_>>()[..] else {
                panic!("a change, and the end of what it led to");
            };
            let error = ErrorKind::FLOW_MOD_TABLE_FULL;
            bench.guests[0].handle_refused(bench.now, *refused, error);
            let reports = bench.switch_takes(deleted.clone()).unwrap();
            bench.report(&reports);
            bench.settle();
            let what = format!("{command:?}, {deleted:?}");
            assert_eq!(
                (bench.read(0), bench.held(Some(0))),
                (vec![], vec![]),
                "{what}"
            );
            let removed = bench.replies[0]
                .iter()
                .filter_map(|(_, reply)| match reply {
                    Message::FlowRemoved(removed) => Some(removed.cookie),
                    _ => None,
                });
            assert_eq!(removed.collect::<Vec<_>>(), [Cookie(5)], "{what}");
        }
    }
}
