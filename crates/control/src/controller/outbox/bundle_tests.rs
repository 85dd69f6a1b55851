//! Switches that refuse, ignore and lose bundles at random: they end with the expected entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, SplitMix64};
use openflow::message::{
    BundleAdd, BundleCommand, BundleControl, ErrorMessage, FlowMod, FlowModCommand,
};
use openflow::{
    Cookie, DatapathId, ErrorKind, Frame, Match, Message, MessageKind, PortNo, Version, Xid,
    decode, encode,
};
use proptest::prelude::*;

use crate::ConnectionId;
use crate::controller::config::ControllerConfig;
use crate::controller::entries::delete_of;
use crate::pipeline::PATH_TABLE;
use crate::requests::Requests;

use super::bundle::MEMBERS_MAX;
use super::{ControllerOutput, Event, Outbox, Request};

const SWITCH: DatapathId = DatapathId(1);

/// The switch refuses an entry of this priority, in a bundle and alone.
const REFUSED: u16 = 7;

/// The entries of the switch: cookies by priority.
type Held = BTreeMap<u16, u64>;

/// A change of one entry: its new cookie, or `None` to delete it.
type Edit = (u16, Option<u64>);

#[derive(Clone, Debug)]
enum Op {
    /// Edits that are one change. `asks_at`: a request is made after this number of them.
    Change {
        edits: Vec<Edit>,
        asks_at: usize,
    },
    Alone(Edit),
    Ask,
    /// The switch receives this number of messages.
    Deliver(usize),
    Lose,
}

/// The reaction of a switch to a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Takes,
    RefusesOpen,
    IgnoresOpen,
    /// It refuses a message of the bundle that it cannot carry out, and carries out the others.
    RefusesMember,
    /// It has room in a bundle for one message, and carries it out.
    HasNoRoom,
    /// It refuses the commit if it cannot carry out one of the messages, as Open vSwitch does.
    Checks,
    RefusesCommit,
    IgnoresCommit,
    /// It never answers again.
    Dies,
}

const HABITS: [Habit; 9] = [
    Habit::Takes,
    Habit::RefusesOpen,
    Habit::IgnoresOpen,
    Habit::RefusesMember,
    Habit::HasNoRoom,
    Habit::Checks,
    Habit::RefusesCommit,
    Habit::IgnoresCommit,
    Habit::Dies,
];

const VERSIONS: [Version; 4] = [Version::V10, Version::V13, Version::V14, Version::V15];

struct Peer {
    version: Version,
    held: Held,
    habits: VecDeque<Habit>,
    habit: Habit,
    open: Option<(u32, Vec<(Xid, FlowMod)>)>,
    is_dead: bool,
    /// The entries of the switch at each barrier.
    at_barriers: BTreeMap<Xid, Held>,
    /// The number of times that each message was carried out.
    done: BTreeMap<Xid, usize>,
    commits: usize,
    opens: usize,
}

fn edit(flow_mod: &FlowMod, held: &mut Held) -> Result<(), ErrorKind> {
    match flow_mod.command {
        FlowModCommand::Add if flow_mod.priority == REFUSED => {
            return Err(ErrorKind::FLOW_MOD_TABLE_FULL);
        }
        FlowModCommand::Add => held.insert(flow_mod.priority, flow_mod.cookie.0),
        _ => held.remove(&flow_mod.priority),
    };
    Ok(())
}

impl Peer {
    /// Receives a message, and returns its answers.
    fn hear(&mut self, frame: &Frame) -> Vec<(Xid, Message)> {
        if self.is_dead {
            return Vec::new();
        }
        let xid = frame.xid();
        let error = |kind| {
            let error = ErrorMessage::new(kind, frame.bytes().slice(..8));
            vec![(xid, Message::Error(error))]
        };
        match decode(frame).expect("a message") {
            Message::BarrierRequest => {
                self.at_barriers.insert(xid, self.held.clone());
                vec![(xid, Message::BarrierReply)]
            }
            Message::FlowMod(flow_mod) => match edit(&flow_mod, &mut self.held) {
                Ok(()) => {
                    *self.done.entry(xid).or_default() += 1;
                    Vec::new()
                }
                Err(kind) => error(kind),
            },
            Message::BundleAdd(BundleAdd {
                bundle_id, message, ..
            }) => {
                let Message::FlowMod(flow_mod) = *message else {
                    panic!("{message:?} in a bundle");
                };
                let Some((id, members)) = self.open.as_mut() else {
                    return match self.habit {
                        Habit::RefusesOpen => error(ErrorKind::BAD_EXPERIMENTER),
                        _ => Vec::new(),
                    };
                };
                assert_eq!(*id, bundle_id);
                let is_refused = edit(&flow_mod, &mut Held::new()).is_err();
                if self.habit == Habit::RefusesMember && is_refused {
                    return error(ErrorKind::FLOW_MOD_TABLE_FULL);
                }
                if self.habit == Habit::HasNoRoom && !members.is_empty() {
                    return error(ErrorKind { ty: 17, code: 11 });
                }
                members.push((xid, flow_mod));
                Vec::new()
            }
            Message::BundleControl(control) => self.control(xid, control, error),
            other => panic!("{other:?}"),
        }
    }

    fn control(
        &mut self,
        xid: Xid,
        control: BundleControl,
        error: impl Fn(ErrorKind) -> Vec<(Xid, Message)>,
    ) -> Vec<(Xid, Message)> {
        let reply = |command| {
            let control = BundleControl {
                command,
                ..control.clone()
            };
            vec![(xid, Message::BundleControl(control))]
        };
        if control.command == BundleCommand::OpenRequest {
            assert!(self.open.is_none(), "a bundle in another one");
            self.opens += 1;
            self.habit = self.habits.pop_front().unwrap_or(Habit::Checks);
            return match self.habit {
                Habit::RefusesOpen => error(ErrorKind::BAD_EXPERIMENTER),
                Habit::IgnoresOpen => Vec::new(),
                _ => {
                    self.open = Some((control.bundle_id, Vec::new()));
                    reply(BundleCommand::OpenReply)
                }
            };
        }
        assert_eq!(control.command, BundleCommand::CommitRequest);
        let Some((id, members)) = self.open.take() else {
            return match self.habit {
                Habit::RefusesOpen => error(ErrorKind::BAD_EXPERIMENTER),
                _ => Vec::new(),
            };
        };
        assert_eq!(id, control.bundle_id);
        let failed = match self.version {
            Version::V13 => ErrorKind::BAD_EXPERIMENTER_TYPE,
            _ => ErrorKind::BUNDLE_MSG_FAILED,
        };
        let drops = [Habit::RefusesMember, Habit::HasNoRoom].contains(&self.habit);
        assert!(members.len() > 1 || drops);
        match self.habit {
            Habit::RefusesCommit => return error(failed),
            Habit::IgnoresCommit => return Vec::new(),
            Habit::Dies => {
                self.is_dead = true;
                // Some dead switches have carried the bundle out, some have not.
                if id % 2 == 0 {
                    return Vec::new();
                }
            }
            _ => {}
        }
        let mut held = self.held.clone();
        for (member, flow_mod) in &members {
            if let Err(kind) = edit(flow_mod, &mut held) {
                if self.is_dead {
                    return Vec::new();
                }
                let one = ErrorMessage::new(kind, bytes::Bytes::new());
                let mut both = vec![(*member, Message::Error(one))];
                both.extend(error(failed));
                return both;
            }
        }
        self.held = held;
        self.commits += 1;
        for (member, _) in &members {
            *self.done.entry(*member).or_default() += 1;
        }
        match self.is_dead {
            true => Vec::new(),
            false => reply(BundleCommand::CommitReply),
        }
    }
}

struct Bench {
    outbox: Outbox,
    peer: Peer,
    wire: VecDeque<Frame>,
    /// The entries that the switch should have in the end.
    wanted: Held,
    /// The entries that the switch should have at each request.
    expected: BTreeMap<Xid, Held>,
    /// Messages that the switch will refuse, and those whose errors were received.
    to_refuse: BTreeSet<Xid>,
    refused: Vec<Xid>,
    sent: BTreeSet<Xid>,
    /// Updates that wait, with the messages that the switch must have carried out when they
    /// continue.
    updates: BTreeMap<u64, BTreeSet<Xid>>,
    reports: usize,
    connection: u64,
}

impl Bench {
    fn new(version: Version, habits: Vec<Habit>) -> Bench {
        let config = ControllerConfig {
            has_bundles: true,
            ..ControllerConfig::default()
        };
        let mut bench = Bench {
            outbox: Outbox::new(&config, 1, SplitMix64::new(1)),
            peer: Peer {
                version,
                held: Held::new(),
                habits: habits.into(),
                habit: Habit::Takes,
                open: None,
                is_dead: false,
                at_barriers: BTreeMap::new(),
                done: BTreeMap::new(),
                commits: 0,
                opens: 0,
            },
            wire: VecDeque::new(),
            wanted: Held::new(),
            expected: BTreeMap::new(),
            to_refuse: BTreeSet::new(),
            refused: Vec::new(),
            sent: BTreeSet::new(),
            updates: BTreeMap::new(),
            reports: 0,
            connection: 0,
        };
        bench.connect();
        bench
    }

    fn connect(&mut self) {
        self.connection += 1;
        let connection = ConnectionId(self.connection);
        let limits = ControllerConfig::default().requests;
        let requests = || Requests::new(limits, 1);
        let version = self.peer.version;
        self.outbox.open(SWITCH, (connection, version), requests);
    }

    fn edit(&mut self, (priority, cookie): Edit) {
        let flow_mod = match cookie {
            Some(cookie) => FlowMod {
                command: FlowModCommand::Add,
                cookie: Cookie(cookie),
                instructions: Vec::new(),
                ..delete_of(PATH_TABLE, priority, &Match::any().with_in_port(PortNo(1)))
            },
            None => delete_of(PATH_TABLE, priority, &Match::any().with_in_port(PortNo(1))),
        };
        let xid = self.outbox.flow_mod(SWITCH, flow_mod).expect("sayable");
        if priority == REFUSED && cookie.is_some() {
            self.to_refuse.insert(xid);
            return;
        }
        self.sent.insert(xid);
        match cookie {
            Some(cookie) => self.wanted.insert(priority, cookie),
            None => self.wanted.remove(&priority),
        };
    }

    fn ask(&mut self) {
        let message = Message::BarrierRequest;
        let now = self.outbox.now;
        let asked = self.outbox.request(now, SWITCH, Request::Static, &message);
        self.expected
            .insert(asked.expect("room"), self.wanted.clone());
    }

    /// Makes an update wait for all messages sent.
    fn wait(&mut self, update: u64) {
        if self.outbox.wait_for(SWITCH, update, false) {
            self.updates.insert(update, self.sent.clone());
        }
    }

    fn flush(&mut self) {
        self.outbox.flush();
        while let Some(output) = self.outbox.pop() {
            match output {
                ControllerOutput::Send { frame, .. } => self.wire.push_back(frame),
                ControllerOutput::Event(Event::BundleRefused { .. }) => self.reports += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Ends a barrier as the controller does.
    fn barrier(&mut self, xid: Xid, is_taken: bool) -> bool {
        let Some(passed) = self.outbox.finish_barrier(SWITCH, xid) else {
            return false;
        };
        for update in passed {
            let before = self.updates.remove(&update).expect("it waits");
            let mut before = before.iter();
            assert!(!is_taken || before.all(|xid| self.peer.done.contains_key(xid)));
        }
        if self.outbox.handle_bundle_fence(SWITCH, xid, is_taken) {
            self.lose();
        }
        self.outbox.touch(SWITCH);
        true
    }

    fn answer(&mut self, xid: Xid, message: &Message) {
        match message {
            Message::BarrierReply => {
                if !self.barrier(xid, true) {
                    let request = self.outbox.finish_request_barrier(SWITCH, xid);
                    assert_eq!(request, Some(Request::Static));
                    let expected = self.expected.remove(&xid);
                    assert_eq!(self.peer.at_barriers.get(&xid), expected.as_ref());
                }
            }
            Message::Error(error) => {
                if !self.outbox.handle_bundle_error(SWITCH, xid, error) {
                    self.refused.push(xid);
                }
            }
            Message::BundleControl(control) => {
                let refused = self.outbox.handle_bundle(SWITCH, xid, control);
                let refused = refused.expect("it waits");
                for (xid, error) in &refused {
                    let named = Frame::new(error.data.clone()).expect("a message");
                    assert_eq!((named.kind(), named.xid()), (MessageKind::FlowMod, *xid));
                }
                self.refused.extend(refused.into_keys());
            }
            other => panic!("{other:?}"),
        }
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.wire.pop_front() else {
                return;
            };
            for (xid, message) in self.peer.hear(&frame) {
                // As on the wire.
                let frame = encode(self.peer.version, xid, &message).expect("sayable");
                let message = decode(&frame).expect("a message");
                self.answer(xid, &message);
            }
            self.flush();
        }
    }

    /// The connection ends; the switch reconnects and its entries are compared.
    fn lose(&mut self) {
        self.wire.clear();
        self.outbox.handle_down(SWITCH);
        self.outbox.end_requests(SWITCH);
        let waiting = self.outbox.drop_pipe(SWITCH).expect("a channel");
        for update in waiting {
            self.updates.remove(&update);
        }
        self.expected.clear();
        (self.peer.open, self.peer.is_dead) = (None, false);
        (self.sent, self.to_refuse) = Default::default();
        self.refused.clear();
        self.connect();
        let wanted = std::mem::take(&mut self.wanted);
        self.wanted = self.peer.held.clone();
        let gone = self.peer.held.clone().into_keys();
        let gone: Vec<u16> = gone.filter(|key| !wanted.contains_key(key)).collect();
        self.outbox.begin_change();
        for (key, cookie) in wanted {
            if self.peer.held.get(&key) != Some(&cookie) {
                self.edit((key, Some(cookie)));
            }
        }
        for key in gone {
            self.edit((key, None));
        }
        self.outbox.end_change();
    }

    fn step(&mut self, op: Op, number: u64) {
        match op {
            Op::Change { edits, asks_at } => {
                self.outbox.begin_change();
                for (at, edit) in edits.into_iter().enumerate() {
                    if at == asks_at {
                        self.ask();
                    }
                    // Changes may be nested.
                    self.outbox.begin_change();
                    self.edit(edit);
                    self.outbox.end_change();
                }
                self.outbox.end_change();
                self.wait(number);
            }
            Op::Alone(edit) => {
                self.edit(edit);
                self.wait(number);
            }
            Op::Ask => self.ask(),
            Op::Deliver(count) => self.deliver(count),
            Op::Lose => self.lose(),
        }
        self.flush();
    }

    /// Everything arrives. Whatever is unanswered then is late.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.deliver(usize::MAX);
            let now = self.outbox.now + Duration::from_secs(11);
            self.outbox.now = now;
            let Some(xid) = self.outbox.late_barrier(now, SWITCH) else {
                break;
            };
            self.barrier(xid, false);
            self.flush();
        }
        assert!(self.wire.is_empty());
        assert_eq!(self.peer.held, self.wanted);
        assert!(self.updates.is_empty(), "an update waits for ever");
        assert!(self.expected.is_empty(), "a request waits for ever");
        let pipe = &self.outbox.channels[&SWITCH].pipe;
        assert_eq!(pipe.backlog(), 0);
        assert!(pipe.bundle.is_none() && pipe.change.is_empty());
        for xid in &self.sent {
            assert_eq!(self.peer.done.get(xid), Some(&1), "{xid:?}");
        }
        let refused: BTreeSet<Xid> = self.refused.iter().copied().collect();
        assert_eq!(refused.len(), self.refused.len(), "an error came twice");
        assert_eq!(refused, self.to_refuse);
    }
}

fn edit_of_one() -> impl Strategy<Value = Edit> {
    (1..20u16, prop::option::weighted(0.7, 1..100u64))
}

fn op() -> impl Strategy<Value = Op> {
    let edits = prop::collection::vec(edit_of_one(), 0..12);
    let change = (edits, 0..30usize);
    prop_oneof![
        4 => change.prop_map(|(edits, asks_at)| Op::Change { edits, asks_at }),
        2 => edit_of_one().prop_map(Op::Alone),
        1 => Just(Op::Ask),
        4 => (1..12usize).prop_map(Op::Deliver),
        1 => Just(Op::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Each message is carried out once and in order, whatever happens to bundles, and each error
    /// reaches its message.
    #[test]
    fn a_switch_holds_what_it_should_whatever_it_does_with_bundles(
        ops in prop::collection::vec(op(), 1..40),
        habits in prop::collection::vec(prop::sample::select(&HABITS[..]), 0..12),
        version in prop::sample::select(&VERSIONS[..]),
    ) {
        let mut bench = Bench::new(version, habits);
        for (number, op) in ops.into_iter().enumerate() {
            bench.step(op, number as u64);
        }
        bench.settle();
        prop_assert!(version > Version::V10 || bench.peer.opens == 0);
    }
}

fn many(count: u16, cookie: u64) -> Op {
    let edits = (0..count).map(|n| (100 + n, Some(cookie))).collect();
    Op::Change {
        edits,
        asks_at: usize::MAX,
    }
}

/// No half of it is ever visible: at each barrier the switch has the old entries, or the new ones.
#[test]
fn a_large_change_is_one_bundle_beyond_the_window() {
    let mut bench = Bench::new(Version::V13, Vec::new());
    bench.step(many(MEMBERS_MAX as u16, 1), 0);
    bench.step(many(MEMBERS_MAX as u16, 2), 1);
    bench.settle();
    assert_eq!((bench.peer.opens, bench.peer.commits), (2, 2));
    for held in bench.peer.at_barriers.values() {
        let cookies: BTreeSet<u64> = held.values().copied().collect();
        assert!(cookies.len() < 2, "old and new entries");
        assert!(held.is_empty() || held.len() == MEMBERS_MAX);
    }
    assert_eq!(bench.outbox.counters.bundles_committed, 2);
}

#[test]
fn a_change_beyond_the_greatest_bundle_is_several() {
    let mut bench = Bench::new(Version::V13, Vec::new());
    bench.step(many(MEMBERS_MAX as u16 + 2, 1), 0);
    bench.settle();
    assert_eq!((bench.peer.opens, bench.peer.commits), (2, 2));
}

#[test]
fn a_switch_without_bundles_is_asked_once_on_a_connection() {
    for habit in [Habit::RefusesOpen, Habit::IgnoresOpen] {
        let mut bench = Bench::new(Version::V13, vec![habit]);
        for cookie in 1..4 {
            bench.step(many(3, cookie), cookie);
            bench.deliver(usize::MAX);
        }
        bench.settle();
        assert_eq!((bench.peer.opens, bench.reports), (1, 1));
        bench.step(Op::Lose, 9);
        bench.step(many(3, 9), 10);
        bench.settle();
        assert_eq!((bench.peer.opens, bench.peer.commits), (2, 1));
    }
}

#[test]
fn a_switch_that_died_over_a_commit_gets_no_bundle_again() {
    for before in 0..2 {
        let mut habits = vec![Habit::Takes; before];
        habits.push(Habit::Dies);
        let mut bench = Bench::new(Version::V13, habits);
        for cookie in 1..5 {
            bench.step(many(3, cookie), cookie);
            bench.settle();
        }
        assert_eq!(bench.peer.opens, before + 1);
        assert_eq!(bench.connection, 2, "it connects anew");
    }
}

/// The switch may close whenever it receives a bundle: every second connection uses none.
#[test]
fn a_connection_that_ended_during_a_bundle_is_followed_by_one_without() {
    let mut bench = Bench::new(Version::V13, Vec::new());
    bench.step(many(3, 1), 0);
    bench.step(Op::Deliver(1), 1);
    assert_eq!(bench.peer.opens, 1);
    bench.step(Op::Lose, 2);
    bench.step(many(3, 2), 3);
    bench.settle();
    assert_eq!((bench.peer.opens, bench.peer.commits), (1, 0));
    bench.step(Op::Lose, 4);
    bench.step(many(3, 3), 5);
    bench.settle();
    assert_eq!((bench.peer.opens, bench.peer.commits), (2, 1));
}

#[test]
fn a_refused_bundle_is_reported_once_and_the_next_is_tried() {
    let habits = vec![Habit::RefusesCommit, Habit::IgnoresCommit, Habit::Takes];
    let mut bench = Bench::new(Version::V14, habits);
    for cookie in 1..4 {
        bench.step(many(3, cookie), cookie);
        bench.settle();
    }
    assert_eq!((bench.peer.opens, bench.peer.commits), (3, 1));
    assert_eq!(bench.reports, 1);
    let counters = bench.outbox.counters;
    assert_eq!(
        (counters.bundles_committed, counters.bundles_refused),
        (1, 2)
    );
}

#[test]
fn one_message_alone_is_no_bundle_and_none_is_when_bundles_are_off() {
    let mut bench = Bench::new(Version::V13, Vec::new());
    bench.step(many(1, 1), 0);
    bench.outbox.set_bundles(false);
    bench.step(many(3, 2), 1);
    bench.settle();
    assert_eq!(bench.peer.opens, 0);
}
