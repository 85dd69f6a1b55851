//! Groups and meters alone, with the answers of a switch.

use openflow::message::FlowRemovedReason;
use openflow::multipart::{GroupDesc, MeterConfig, ReplyBody};
use openflow::text::{parse_actions, parse_group_of, parse_meter_of};
use openflow::{Action, GroupId, MeterId};

use crate::flows::parts::{PartKind, PartMod, PartName};

use super::tests::{SWITCH, Setup, entry, name, removed, row};
use super::*;

fn group(number: u32, words: &str) -> StaticPart {
    StaticPart {
        dpid: SWITCH,
        add: PartMod::Group(parse_group_of(GroupId(number), words).expect("a group")),
        is_numbered: true,
        words: words.to_owned(),
    }
}

fn meter(number: u32, words: &str) -> StaticPart {
    StaticPart {
        add: PartMod::Meter(parse_meter_of(MeterId(number), words).expect("a meter")),
        ..group(number, "type=all")
    }
}

fn named(part: &StaticPart) -> PartName {
    PartName {
        kind: part.id().kind(),
        of: name("part"),
    }
}

impl Setup {
    fn put_part(&mut self, part: &StaticPart) {
        let edit = PartEdit::Put(named(part), Box::new(part.clone()));
        let now = self.outbox.now;
        self.stated.stage_parts(vec![edit], now);
        self.stated.edit(Vec::new(), &mut self.outbox);
    }

    fn delete_part(&mut self, part: &StaticPart) {
        let now = self.outbox.now;
        let edits = vec![PartEdit::Delete(named(part))];
        self.stated.stage_parts(edits, now);
        self.stated.edit(Vec::new(), &mut self.outbox);
    }

    /// The last message sent to the switch for a group or meter.
    fn part_xid(&self, part: &StaticPart) -> Option<Xid> {
        let spots = &self.stated.switches[&SWITCH];
        let spots = spots.fresh.iter().chain(&spots.fenced);
        let its = spots.filter(|(_, spot)| **spot == Spot::Part(part.id()));
        its.map(|(xid, _)| *xid).max()
    }

    fn refuse_part(&mut self, part: &StaticPart, error: ErrorKind) {
        let xid = self.part_xid(part).expect("it was sent");
        let outbox = &mut self.outbox;
        assert!(self.stated.handle_refused(SWITCH, (xid, error), outbox));
    }

    fn confirm(&mut self) {
        // One barrier may have been under way while the last one was sent.
        for _ in 0..2 {
            self.stated.handle_confirmed(SWITCH, &mut self.outbox);
        }
    }

    fn part_state(&self, part: &StaticPart) -> FlowState {
        self.stated.part_view(&named(part), part).state
    }

    /// Makes the switch report these groups at a reading.
    fn read_groups(&mut self, groups: &[&StaticPart]) {
        self.sleep(1);
        let now = self.outbox.now;
        let switch = self.stated.switches.get_mut(&SWITCH).expect("a switch");
        switch.parts_read.note_asked(PartKind::Group, now);
        let groups = groups.iter().filter_map(|part| match &part.add {
            PartMod::Group(group) => Some(GroupDesc {
                group_type: group.group_type,
                group_id: group.group_id,
                buckets: group.buckets.clone(),
                properties: Vec::new(),
            }),
            PartMod::Meter(_) => None,
        });
        let bodies = vec![ReplyBody::GroupDesc(groups.collect())];
        let (request, outbox) = (Request::StaticGroups, &mut self.outbox);
        self.stated
            .handle_parts(SWITCH, request, Some(bodies), outbox);
    }

    fn reconnect(&mut self) {
        self.stated.handle_down(SWITCH);
        let (stated, outbox) = (&mut self.stated, &mut self.outbox);
        stated.reconcile(SWITCH, true, &mut Vec::new(), outbox);
    }
}

#[test]
fn a_refused_group_keeps_its_entries_out_until_it_is_another_one() {
    let mut setup = Setup::new();
    let (bad, good) = (group(7, "type=select"), group(7, "type=all"));
    setup.put_part(&bad);
    let led = entry("ip", "group:7", 0);
    setup.put("one", &led);
    let first = setup.xid(&led);
    setup.refuse_part(&bad, ErrorKind::GROUP_BAD_TYPE);
    setup.refuse_as(first, ErrorKind::ACTION_BAD_OUT_GROUP);
    assert!(matches!(setup.part_state(&bad), FlowState::Refused(_)));
    let why = setup.state("one");
    let Some(FlowState::Refused(why)) = why else {
        panic!("{why:?}");
    };
    assert!(why.starts_with("group ann/part: "), "{why}");
    setup.put_part(&good);
    assert_ne!(setup.xid(&led), first, "it is sent again");
    setup.confirm();
    assert_eq!(setup.part_state(&good), FlowState::InUse);
    assert_eq!(setup.state("one"), Some(FlowState::InUse));
}

/// Somebody else has set or deleted the meter.
#[test]
fn what_is_there_is_modified_and_what_is_gone_is_added() {
    let (exists, unknown) = (ErrorKind::METER_EXISTS, ErrorKind::METER_UNKNOWN_METER);
    let mut setup = Setup::new();
    let one = meter(3, "kbps,band=type=drop,rate=10");
    setup.put_part(&one);
    let first = setup.part_xid(&one);
    setup.refuse_part(&one, exists);
    assert!(setup.part_xid(&one) > first);
    setup.confirm();
    assert_eq!(setup.part_state(&one), FlowState::InUse);
    let two = meter(3, "kbps,band=type=drop,rate=20");
    setup.put_part(&two);
    setup.refuse_part(&two, unknown);
    setup.confirm();
    assert_eq!(setup.part_state(&two), FlowState::InUse);
    // A switch that reports both errors is not asked forever.
    setup.put_part(&one);
    for error in [unknown, exists, unknown] {
        setup.refuse_part(&one, error);
    }
    setup.refuse_part(&one, exists);
    assert!(matches!(setup.part_state(&one), FlowState::Refused(_)));
}

#[test]
fn a_group_that_is_missing_or_another_is_set_again() {
    let mut setup = Setup::new();
    let one = group(7, "type=all,bucket=output:1");
    setup.put_part(&one);
    setup.confirm();
    setup.read_groups(&[&one]);
    assert_eq!(setup.part_xid(&one), None, "it is as it should be");
    let other = group(7, "type=all,bucket=output:2");
    setup.read_groups(&[&other]);
    assert!(setup.part_xid(&one).is_some());
    setup.confirm();
    // The switch has its own form for the group.
    setup.read_groups(&[&other]);
    assert_eq!(setup.part_xid(&one), None);
    let led = entry("ip", "group:7", 0);
    setup.put("one", &led);
    let first = setup.xid(&led);
    setup.confirm();
    setup.stated.forget_held(SWITCH, &led.key());
    setup.read_groups(&[]);
    assert!(setup.part_xid(&one).is_some());
    assert_ne!(setup.xid(&led), first, "it leads there");
}

/// Open vSwitch reports a burst for a meter that states none.
#[test]
fn a_meter_is_not_set_again_for_a_burst_of_the_switchs() {
    let mut setup = Setup::new();
    let one = meter(3, "kbps,band=type=drop,rate=10");
    setup.put_part(&one);
    setup.confirm();
    let read = |setup: &mut Setup, burst_size: u32, rate: u32| {
        setup.sleep(1);
        let now = setup.outbox.now;
        let switch = setup.stated.switches.get_mut(&SWITCH).expect("a switch");
        switch.parts_read.note_asked(PartKind::Meter, now);
        let PartMod::Meter(mut add) = one.add.clone() else {
            panic!("a meter");
        };
        (add.bands[0].burst_size, add.bands[0].rate) = (burst_size, rate);
        let body = ReplyBody::MeterConfig(vec![MeterConfig {
            flags: add.flags,
            meter_id: add.meter_id,
            bands: add.bands,
        }]);
        let (request, outbox) = (Request::StaticMeters, &mut setup.outbox);
        setup
            .stated
            .handle_parts(SWITCH, request, Some(vec![body]), outbox);
        setup.part_xid(&one)
    };
    assert_eq!(read(&mut setup, 10, 10), None);
    assert!(read(&mut setup, 10, 20).is_some());
}

#[test]
fn a_group_that_was_to_go_when_the_connection_ended_goes_later() {
    let mut setup = Setup::new();
    let one = group(7, "type=all");
    setup.put_part(&one);
    setup.exhaust();
    setup.delete_part(&one);
    setup.reconnect();
    setup.sleep(1);
    setup.read_groups(&[&one]);
    let emptied = |setup: &Setup| {
        let switch = &setup.stated.switches[&SWITCH];
        switch
            .fresh
            .values()
            .chain(switch.fenced.values())
            .any(|spot| *spot == Spot::Gone(one.id()))
    };
    assert!(!emptied(&setup), "meters are not known yet");
    let outbox = &mut setup.outbox;
    setup
        .stated
        .handle_unanswered(SWITCH, Request::StaticMeters, outbox);
    assert!(emptied(&setup));
    // The deletion may not have arrived.
    setup.reconnect();
    assert!(!setup.stated.switches[&SWITCH].parts.is_empty());
    let outbox = &mut setup.outbox;
    for request in [Request::StaticGroups, Request::StaticMeters] {
        setup.stated.handle_unanswered(SWITCH, request, outbox);
    }
    assert!(emptied(&setup));
    setup.confirm();
    assert!(setup.stated.switches[&SWITCH].parts.is_empty());
}

#[test]
fn an_entry_waits_until_the_groups_of_a_switch_are_known() {
    let mut setup = Setup::new();
    let (one, led) = (group(7, "type=all"), entry("ip", "group:7", 0));
    setup.put_part(&one);
    setup.put("one", &led);
    setup.confirm();
    setup.reconnect();
    let is_held = |setup: &Setup| {
        let place = &setup.stated.switches[&SWITCH].places[&led.key()];
        place.held.is_some()
    };
    assert!(!is_held(&setup));
    setup.read_groups(&[&one]);
    let outbox = &mut setup.outbox;
    setup
        .stated
        .handle_unanswered(SWITCH, Request::StaticMeters, outbox);
    assert!(is_held(&setup));
    assert_eq!(setup.part_xid(&one), None, "it was there");
}

/// In 1.5 a meter is the first of the actions.
#[test]
fn an_entry_with_a_meter_is_in_use_in_the_words_of_the_switch() {
    let metered = StaticEntry {
        meter: Some(MeterId(7)),
        ..entry("ip", "output:1", 0)
    };
    let actions = parse_actions("output:1").expect("actions");
    let by_action = [&[Action::Meter(MeterId(7))][..], &actions].concat();
    let by_instruction = vec![
        Instruction::Meter(MeterId(7)),
        Instruction::ApplyActions(actions),
    ];
    for (version, instructions) in [
        (Version::V13, by_instruction.clone()),
        (Version::V14, by_instruction),
        (Version::V15, vec![Instruction::ApplyActions(by_action)]),
    ] {
        let mut setup = Setup::speaking(version);
        setup.put_part(&meter(7, "kbps,band=type=drop,rate=10"));
        setup.put("one", &metered);
        setup.xid(&metered);
        let sent = metered.to_add(version, 1);
        assert_eq!(sent.instructions, instructions, "{version}");
        setup.read(vec![row(&sent)]);
        assert_eq!(setup.state("one"), Some(FlowState::InUse), "{version}");
    }
}

/// Somebody else deletes the meter: the report of its entry's end gives the reason in the form of
/// its version.
#[test]
fn a_meter_is_set_again_when_its_entry_went_with_it() {
    for (version, reason) in [
        (Version::V13, FlowRemovedReason::DELETE),
        (Version::V15, FlowRemovedReason::METER_DELETE),
    ] {
        let mut setup = Setup::speaking(version);
        let slow = meter(7, "kbps,band=type=drop,rate=10");
        setup.put_part(&slow);
        let metered = StaticEntry {
            meter: Some(MeterId(7)),
            ..entry("ip", "output:1", 0)
        };
        setup.put("one", &metered);
        let first = (setup.part_xid(&slow), setup.xid(&metered));
        setup.confirm();
        setup.sleep(1);
        let gone = FlowRemoved {
            reason,
            ..removed(&metered.to_add(version, 1))
        };
        setup
            .stated
            .handle_removed(SWITCH, &gone, &mut setup.outbox);
        let again = (setup.part_xid(&slow), setup.xid(&metered));
        assert!(again.0 > first.0 && again.1 > first.1, "{version}");
        assert!(again.0 < Some(again.1), "the meter comes first");
    }
}

#[test]
fn groups_and_meters_come_before_entries_and_go_after_them() {
    let id = PartKind::Group.id(1);
    let key = FlowKey::default();
    let mut all = vec![
        Work::DropPart(id),
        Work::Empty(key.clone()),
        Work::SetPart(PartKind::Meter.id(1)),
        Work::Set(key),
    ];
    all.sort();
    let is_it = matches!(
        all[..],
        [
            Work::SetPart(_),
            Work::Set(_),
            Work::Empty(_),
            Work::DropPart(_)
        ]
    );
    assert!(is_it, "{all:?}");
}
