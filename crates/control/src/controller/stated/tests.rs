//! Static entries alone, with the answers of a switch while more than one change is under way.

use clock::SplitMix64;
use openflow::message::{FlowMod, FlowRemovedReason};
use openflow::multipart::ReplyBody;
use openflow::text::{parse_actions, parse_match};

use crate::ConnectionId;
use crate::controller::ControllerConfig;
use crate::pipeline::PATH_TABLE;
use crate::requests::Requests;

use super::*;

pub(super) const SWITCH: DatapathId = DatapathId(1);

pub(super) struct Setup {
    pub(super) stated: StaticEntries,
    pub(super) outbox: Outbox,
}

pub(super) fn name(name: &str) -> FlowName {
    FlowName::new("ann", name)
}

pub(super) fn entry(matching: &str, actions: &str, hard_timeout_s: u16) -> StaticEntry {
    StaticEntry {
        dpid: SWITCH,
        r#match: parse_match(matching).expect("a match"),
        actions: parse_actions(actions).expect("actions"),
        hard_timeout_s,
        ..StaticEntry::default()
    }
}

/// A switch's report of an entry.
pub(super) fn row(sent: &FlowMod) -> FlowStats {
    FlowStats {
        table_id: sent.table_id,
        duration_sec: 0,
        duration_nsec: 0,
        priority: sent.priority,
        idle_timeout: sent.idle_timeout,
        hard_timeout: sent.hard_timeout,
        flags: sent.flags,
        cookie: sent.cookie,
        packet_count: 0,
        byte_count: 0,
        r#match: sent.r#match.clone(),
        instructions: sent.instructions.clone(),
        importance: 0,
        stats: Vec::new(),
    }
}

/// A switch's report that somebody has deleted an entry.
pub(super) fn removed(sent: &FlowMod) -> FlowRemoved {
    FlowRemoved {
        cookie: sent.cookie,
        priority: sent.priority,
        reason: FlowRemovedReason::DELETE,
        table_id: sent.table_id,
        duration_sec: 0,
        duration_nsec: 0,
        idle_timeout: sent.idle_timeout,
        hard_timeout: sent.hard_timeout,
        packet_count: 0,
        byte_count: 0,
        r#match: sent.r#match.clone(),
        stats: Vec::new(),
    }
}

impl Setup {
    /// Creates a switch whose entries have been compared.
    pub(super) fn new() -> Setup {
        Setup::speaking(Version::V13)
    }

    pub(super) fn speaking(version: Version) -> Setup {
        let config = ControllerConfig::default();
        let mut setup = Setup {
            stated: StaticEntries::new(FlowLimits::BESIDE),
            outbox: Outbox::new(&config, 1, SplitMix64::new(1)),
        };
        let requests = || Requests::new(config.requests, 1);
        let channel = (ConnectionId(1), version);
        setup.outbox.open(SWITCH, channel, requests);
        let (stated, outbox) = (&mut setup.stated, &mut setup.outbox);
        stated.reconcile(SWITCH, false, &mut Vec::new(), outbox);
        setup
    }

    pub(super) fn put(&mut self, of: &str, entry: &StaticEntry) {
        let edit = FlowEdit::Put(name(of), Box::new(entry.clone()));
        self.stated.edit(vec![edit], &mut self.outbox);
    }

    pub(super) fn sleep(&mut self, s: u64) {
        self.outbox.now += Duration::from_secs(s);
    }

    /// Uses up the owner's rate for now.
    pub(super) fn exhaust(&mut self) {
        let now = self.outbox.now;
        let mut budget = Budget::new(now, 200, 1);
        assert!(budget.take(now));
        self.stated.owner("ann", now).budget = budget;
    }

    /// The xid of the entry that was sent last.
    pub(super) fn xid(&self, entry: &StaticEntry) -> Xid {
        let held = self.stated.switches[&SWITCH].places[&entry.key()]
            .held
            .as_ref();
        held.and_then(|held| held.xid).expect("it was sent")
    }

    fn refuse(&mut self, xid: Xid) {
        self.refuse_as(xid, ErrorKind::FLOW_MOD_TABLE_FULL);
    }

    pub(super) fn refuse_as(&mut self, xid: Xid, error: ErrorKind) {
        let outbox = &mut self.outbox;
        self.stated.handle_refused(SWITCH, (xid, error), outbox);
    }

    pub(super) fn state(&self, of: &str) -> Option<FlowState> {
        let entry = self.stated.wanted.get(&name(of))?;
        Some(self.stated.view(&name(of), entry).state)
    }

    fn is_refused(&self, of: &str) -> bool {
        matches!(self.state(of), Some(FlowState::Refused(_)))
    }

    /// Makes the switch report these rows at a reading.
    pub(super) fn read(&mut self, rows: Vec<FlowStats>) {
        self.sleep(1);
        let (stated, outbox) = (&mut self.stated, &mut self.outbox);
        let switch = stated.switches.get_mut(&SWITCH).expect("a switch");
        switch.asked_at = Some(outbox.now);
        stated.handle_rows(SWITCH, vec![ReplyBody::Flow(rows)], outbox);
    }
}

#[test]
fn an_entry_is_not_refused_for_an_earlier_one_of_its_place() {
    let mut setup = Setup::new();
    let (bad, good) = (entry("ip", "output:1", 0), entry("ip", "output:2", 0));
    // A barrier is under way while both are sent.
    setup.put("other", &entry("arp", "drop", 0));
    setup.put("one", &bad);
    let first = setup.xid(&bad);
    setup.put("one", &good);
    setup.stated.handle_confirmed(SWITCH, &mut setup.outbox);
    setup.refuse(first);
    assert_eq!(setup.state("one"), Some(FlowState::Sent));
    setup.stated.handle_confirmed(SWITCH, &mut setup.outbox);
    assert_eq!(setup.state("one"), Some(FlowState::InUse));
    // Its own refusal counts.
    setup.put("one", &bad);
    setup.refuse(setup.xid(&bad));
    assert!(setup.is_refused("one"));
}

#[test]
fn an_entry_that_waits_is_sent_though_the_one_before_it_is_refused() {
    let mut setup = Setup::new();
    let (bad, good) = (entry("ip", "output:1", 0), entry("ip", "output:2", 0));
    setup.put("one", &bad);
    let first = setup.xid(&bad);
    setup.exhaust();
    setup.put("one", &good);
    setup.refuse(first);
    assert!(!setup.is_refused("one"));
    setup.sleep(1);
    setup.stated.advance(&mut setup.outbox);
    assert_ne!(setup.xid(&good), first);
}

#[test]
fn an_entry_with_a_timeout_lives_until_it_is_missing() {
    let mut setup = Setup::new();
    let short = entry("ip", "output:1", 30);
    setup.put("one", &short);
    let sent = setup.xid(&short);
    // The switch has its own form for the entry.
    let mut odd = row(&short.to_add(Version::V13, 1));
    odd.instructions.push(Instruction::GotoTable(PATH_TABLE));
    for _ in 0..3 {
        setup.read(vec![odd.clone()]);
        assert_eq!(setup.state("one"), Some(FlowState::InUse));
    }
    assert_eq!(setup.xid(&short), sent, "its time does not begin anew");
    // The next entry of its name waits for its owner's rate.
    setup.exhaust();
    let longer = entry("ip", "output:1", 60);
    setup.put("one", &longer);
    setup.read(vec![row(&short.to_add(Version::V13, 1))]);
    assert_ne!(setup.xid(&longer), sent);
    setup.read(vec![row(&longer.to_add(Version::V13, 1))]);
    assert_eq!(setup.state("one"), Some(FlowState::InUse));
    setup.read(Vec::new());
    assert_eq!(setup.state("one"), None);
}

/// Neither if the next entry still waits for its owner's rate, nor if it was sent since then.
#[test]
fn the_end_of_an_earlier_form_is_not_that_of_the_next() {
    let mut setup = Setup::new();
    let [first, next] = ["output:1", "output:2"].map(|actions| entry("ip", actions, 30));
    setup.put("one", &first);
    let end = |setup: &mut Setup, lived_s: u32| {
        let removed = FlowRemoved {
            reason: FlowRemovedReason::HARD_TIMEOUT,
            duration_sec: lived_s,
            ..removed(&first.to_add(Version::V13, 1))
        };
        let outbox = &mut setup.outbox;
        setup.stated.handle_removed(SWITCH, &removed, outbox);
    };
    setup.sleep(31);
    setup.exhaust();
    setup.put("one", &next);
    end(&mut setup, 30);
    assert_eq!(setup.state("one"), Some(FlowState::Sent));
    setup.sleep(1);
    setup.stated.advance(&mut setup.outbox);
    setup.xid(&next);
    setup.sleep(31);
    end(&mut setup, 62);
    assert_eq!(setup.state("one"), Some(FlowState::Sent));
    end(&mut setup, 30);
    assert_eq!(setup.state("one"), None);
}

#[test]
fn nothing_is_kept_of_a_switch_that_no_entry_names_any_more() {
    let mut setup = Setup::new();
    let absent = StaticEntry {
        dpid: DatapathId(2),
        ..entry("ip", "output:1", 0)
    };
    setup.put("one", &absent);
    assert!(setup.stated.switches.contains_key(&absent.dpid));
    let edits = vec![FlowEdit::Delete(name("one"))];
    setup.stated.edit(edits, &mut setup.outbox);
    assert!(setup.stated.switches.keys().eq([&SWITCH]));
}

/// First the burst, and then a few each second.
#[test]
fn a_switch_that_loses_its_entries_all_the_time_is_mended_at_a_rate() {
    let mut setup = Setup::new();
    let one = entry("ip", "output:1", 0);
    setup.put("one", &one);
    let removed = removed(&one.to_add(Version::V13, 1));
    let lose = |setup: &mut Setup, count: usize| {
        let mut mended = 0;
        for _ in 0..count {
            // The owner's rate is no limit here.
            let now = setup.outbox.now;
            setup.stated.owner("ann", now).budget = Budget::new(now, 200, 1);
            let before = setup.xid(&one);
            let outbox = &mut setup.outbox;
            setup.stated.handle_removed(SWITCH, &removed, outbox);
            mended += usize::from(setup.xid(&one) != before);
        }
        mended
    };
    assert_eq!(
        lose(&mut setup, MENDED_AT_ONCE as usize + 10),
        MENDED_AT_ONCE as usize
    );
    // Nor are the others mended by a reading, until there is budget.
    let before = setup.xid(&one);
    setup.stated.switches.get_mut(&SWITCH).expect("it").mending =
        Some(Budget::new(setup.outbox.now, 0, 0));
    setup.read(Vec::new());
    assert_eq!(setup.xid(&one), before);
    setup.stated.switches.get_mut(&SWITCH).expect("it").mending = None;
    setup.read(Vec::new());
    assert_ne!(setup.xid(&one), before);
}

#[test]
fn switches_take_turns_and_deletions_come_last() {
    let mut waiting = Waiting::default();
    let key = |priority| FlowKey {
        priority,
        ..FlowKey::default()
    };
    let [one, two] = [1, 2].map(DatapathId);
    waiting.insert(one, Work::Empty(key(1)));
    waiting.insert(one, Work::Set(key(2)));
    waiting.insert(two, Work::Empty(key(3)));
    let mut taken = Vec::new();
    while let Some((dpid, Work::Set(key) | Work::Empty(key))) = waiting.first() {
        waiting.pop_first();
        taken.push((dpid, key.priority));
        // The first switch changes all the time.
        if taken.len() == 1 {
            waiting.insert(one, Work::Set(key));
        }
    }
    assert_eq!(taken, [(one, 2), (two, 3), (one, 2), (one, 1)]);
    assert!(waiting.is_empty());
}
