use std::net::Ipv4Addr;

use openflow::message::PacketOut;
use openflow::packet::build::{Host, arp_request, ethernet, udp};
use openflow::{BufferId, Cookie, Version};
use proptest::prelude::*;

use super::*;

const NOW: Instant = Instant::START;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn host(n: u8) -> Host {
    Host::new(MacAddr([2, 0, 0, 0, 0, n]), Ipv4Addr::new(10, 0, 0, n))
}

/// Packet `n` of a flow from host 1 to another host.
fn packet(flow: u8, n: u32) -> Vec<u8> {
    udp(host(1), host(10 + flow), (5, 6), &n.to_be_bytes())
}

fn packet_in(version: Version, data: Vec<u8>) -> Frame {
    packet_in_of(version, TableId(0), data)
}

fn packet_in_of(version: Version, table_id: TableId, data: Vec<u8>) -> Frame {
    let message = PacketIn {
        table_id,
        cookie: Cookie(u64::MAX),
        ..PacketIn::new(PortNo(1), data.into())
    };
    encode(version, Xid(0), &Message::PacketIn(message)).unwrap()
}

fn entry(version: Version, flow: u8, actions: Vec<Action>) -> Frame {
    let to = Match::any()
        .with_in_port(PortNo(1))
        .with_eth_dst(host(10 + flow).mac);
    let message = Message::FlowMod(FlowMod::add(10, to, actions));
    encode(version, Xid(7), &message).unwrap()
}

fn sent_on(version: Version, data: Vec<u8>) -> Frame {
    let message = PacketOut::new(
        PortNo::CONTROLLER,
        vec![Action::output(PortNo(2))],
        data.into(),
    );
    let in_port = match version {
        Version::V10 => PortNo::ANY,
        _ => PortNo::CONTROLLER,
    };
    let message = PacketOut { in_port, ..message };
    encode(version, Xid(8), &Message::PacketOut(message)).unwrap()
}

fn out() -> Vec<Action> {
    vec![Action::output(PortNo(2))]
}

/// Flow and number of a packet.
fn named(data: &[u8]) -> (u8, u32) {
    let number = data[42..46].iter().fold(0, |n, b| n << 8 | u32::from(*b));
    (data[5] - 10, number)
}

fn ups(hold: &mut Hold) -> Vec<(u8, u32)> {
    let mut found = Vec::new();
    while let Some(frame) = hold.poll_up() {
        match decode(&frame).unwrap() {
            Message::PacketIn(message) => found.push(named(&message.data)),
            other => panic!("{other:?}"),
        }
    }
    found
}

/// The packets of packet-outs, and `None` for an entry.
fn downs(hold: &mut Hold) -> Vec<Option<(u8, u32)>> {
    let mut found = Vec::new();
    while let Some(frame) = hold.poll_down() {
        match decode(&frame).unwrap() {
            Message::PacketOut(message) => found.push(Some(named(&message.data))),
            Message::FlowMod(_) => found.push(None),
            other => panic!("{other:?}"),
        }
    }
    found
}

/// An entry decides only about packets that missed its own table.
#[test]
fn an_entry_of_another_table_releases_nothing() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    for n in 0..3 {
        let data = packet(0, n);
        hold.handle_up(NOW, packet_in_of(version, TableId(5), data));
    }
    assert_eq!(ups(&mut hold), [(0, 0)]);
    hold.handle_down(NOW, [entry(version, 0, out())]);
    assert_eq!(downs(&mut hold), [None]);
    assert_eq!(hold.held_count(), 2);
    let Ok(Message::FlowMod(own)) = decode(&entry(version, 0, out())) else {
        panic!("it is an entry");
    };
    let own = Message::FlowMod(FlowMod {
        table_id: TableId(5),
        ..own
    });
    hold.handle_down(NOW, [encode(version, Xid(7), &own).unwrap()]);
    assert_eq!(downs(&mut hold), [Some((0, 1)), Some((0, 2)), None]);
    hold.handle_up(NOW, packet_in_of(version, TableId(5), packet(0, 3)));
    assert_eq!(downs(&mut hold), [Some((0, 3))]);
    hold.handle_up(NOW, packet_in_of(version, TableId(6), packet(0, 4)));
    assert_eq!(ups(&mut hold), [(0, 4)], "it has missed another table");
}

#[test]
fn what_waits_goes_before_the_entry_and_what_still_comes_after_it() {
    for version in [Version::V10, Version::V13] {
        let mut hold = Hold::new(HoldLimits::default());
        for n in 0..4 {
            hold.handle_up(NOW, packet_in(version, packet(0, n)));
        }
        assert_eq!(ups(&mut hold), [(0, 0)], "the first alone");
        assert_eq!(hold.held_count(), 3);
        hold.handle_down(NOW, [sent_on(version, packet(0, 0))]);
        assert_eq!(downs(&mut hold), [Some((0, 0))]);
        hold.handle_down(NOW, [entry(version, 0, out())]);
        let expected = [Some((0, 1)), Some((0, 2)), Some((0, 3)), None];
        assert_eq!(downs(&mut hold), expected);
        hold.handle_up(NOW + ms(1), packet_in(version, packet(0, 4)));
        assert_eq!(downs(&mut hold), [Some((0, 4))]);
        assert_eq!(ups(&mut hold), []);
        let counters = hold.counters();
        assert_eq!((counters.released, counters.followed), (3, 1));
        // The relay has forgotten the entry: the next packet is a first one again.
        hold.handle_up(NOW + ENTRY_SETTLES, packet_in(version, packet(0, 5)));
        assert_eq!(ups(&mut hold), [(0, 5)]);
    }
}

#[test]
fn packet_outs_have_the_entrys_actions_and_the_packets_port() {
    let mut hold = Hold::new(HoldLimits::default());
    let version = Version::V13;
    hold.handle_up(NOW, packet_in(version, packet(0, 0)));
    hold.handle_up(NOW, packet_in(version, packet(0, 1)));
    let actions = vec![Action::output(PortNo(3)), Action::output(PortNo(4))];
    hold.handle_down(NOW, [entry(version, 0, actions.clone())]);
    let Message::PacketOut(message) = decode(&hold.poll_down().unwrap()).unwrap() else {
        panic!("no packet-out");
    };
    assert_eq!(message.actions, actions);
    assert_eq!(message.in_port, PortNo(1));
    assert_eq!(message.data[..], packet(0, 1));
}

/// Some controllers add the flow before they send the packet.
#[test]
fn the_first_is_first_even_if_its_entry_comes_before_it() {
    let mut hold = Hold::new(HoldLimits::default());
    let version = Version::V13;
    for n in 0..3 {
        hold.handle_up(NOW, packet_in(version, packet(0, n)));
    }
    let answer = [entry(version, 0, out()), sent_on(version, packet(0, 0))];
    hold.handle_down(NOW, answer);
    let expected = [Some((0, 0)), Some((0, 1)), Some((0, 2)), None];
    assert_eq!(downs(&mut hold), expected);
    // But not across a barrier.
    for n in 0..2 {
        hold.handle_up(NOW, packet_in(version, packet(1, n)));
    }
    let barrier = encode(version, Xid(9), &Message::BarrierRequest).unwrap();
    let packet_out = sent_on(version, packet(1, 0));
    hold.handle_down(NOW, [entry(version, 1, out()), barrier, packet_out]);
    let kinds: Vec<MessageKind> = std::iter::from_fn(|| hold.poll_down())
        .map(|f| f.kind())
        .collect();
    use MessageKind::{BarrierRequest, FlowMod, PacketOut};
    assert_eq!(kinds, [PacketOut, FlowMod, BarrierRequest, PacketOut]);
}

#[test]
fn without_an_entry_what_waits_goes_up_in_its_order() {
    let version = Version::V13;
    // The limit is the wait for any answer, or the wait for an entry after a packet-out.
    for (is_answered, wait) in [(false, ms(200)), (true, ENTRY_WAIT)] {
        let mut hold = Hold::new(HoldLimits::default());
        for n in 0..4 {
            hold.handle_up(NOW, packet_in(version, packet(0, n)));
        }
        if is_answered {
            hold.handle_down(NOW, [sent_on(version, packet(0, 0))]);
        }
        assert_eq!(ups(&mut hold), [(0, 0)]);
        assert_eq!(hold.poll_timeout(), Some(NOW + wait));
        hold.handle_timeout(NOW + (wait - ms(1)));
        assert_eq!(ups(&mut hold), []);
        hold.handle_timeout(NOW + wait);
        hold.handle_up(NOW + wait, packet_in(version, packet(0, 4)));
        assert_eq!(ups(&mut hold), [(0, 1), (0, 2), (0, 3), (0, 4)]);
        assert_eq!(hold.counters().timed_out, 3);
        assert_eq!(hold.held_count(), 0);
        hold.handle_timeout(NOW + ms(2000));
        assert_eq!(
            (hold.poll_timeout(), hold.flows.len()),
            (None, 0),
            "nothing is left"
        );
    }
}

#[test]
fn beyond_each_bound_all_goes_up_and_is_counted() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    for n in 0..70 {
        hold.handle_up(NOW, packet_in(version, packet(0, n)));
    }
    let expected: Vec<(u8, u32)> = (0..70).map(|n| (0, n)).collect();
    assert_eq!(ups(&mut hold), expected);
    assert_eq!(hold.counters().overflowed, 64);

    // 60 kB each: eighteen are more than a megabyte.
    let mut hold = Hold::new(HoldLimits::default());
    let large = |flow, n: u32| {
        let mut data = packet(flow, n);
        data.resize(60_000, 0);
        data
    };
    for n in 0..10 {
        for flow in 0..2 {
            hold.handle_up(NOW, packet_in(version, large(flow, n)));
        }
    }
    let went_up = ups(&mut hold);
    assert!(hold.held_bytes <= 1 << 20);
    for flow in 0..2 {
        let of_flow: Vec<u32> = went_up
            .iter()
            .filter(|p| p.0 == flow)
            .map(|p| p.1)
            .collect();
        assert!(of_flow.is_sorted(), "{of_flow:?}");
    }
    assert!(hold.counters().overflowed > 0 && went_up.len() + hold.held_count() == 20);

    let mut hold = Hold::new(HoldLimits {
        flows_max: 3,
        ..HoldLimits::default()
    });
    for flow in 0..5 {
        hold.handle_up(NOW, packet_in(version, packet(flow, 0)));
        hold.handle_up(NOW, packet_in(version, packet(flow, 1)));
    }
    assert_eq!(ups(&mut hold).len(), 3 + 2 * 2);
    assert_eq!(hold.counters().flows_refused, 4);
}

/// Bytes that no longer wait free their room, however their packets left.
#[test]
fn what_is_held_no_more_counts_no_more() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    let large = |n: u32| {
        let mut data = packet(0, n);
        data.resize(60_000, 0);
        data
    };
    for round in 0..10 {
        let now = NOW + ms(5000) * round;
        for n in 0..10 {
            hold.handle_up(now, packet_in(version, large(n)));
        }
        assert_eq!(hold.held_count(), 9, "round {round}");
        match round % 2 {
            0 => hold.handle_down(now, [entry(version, 0, out())]),
            _ => hold.handle_timeout(now + ms(200)),
        }
        assert_eq!((hold.held_count(), hold.held_bytes), (0, 0));
        hold.handle_timeout(now + ms(4000));
    }
    assert_eq!(hold.counters().overflowed, 0);
}

/// Packets of a flow that was given up go to the controller for a second.
#[test]
fn after_a_flow_was_given_up_nothing_of_it_waits_for_a_second() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    for n in 0..2 {
        hold.handle_up(NOW, packet_in(version, packet(0, n)));
    }
    let over = NOW + ms(200);
    hold.handle_timeout(over);
    for n in 2..5 {
        hold.handle_up(over + ms(999), packet_in(version, packet(0, n)));
    }
    assert_eq!((ups(&mut hold).len(), hold.held_count()), (5, 0));
    hold.handle_up(over + GIVEN_UP, packet_in(version, packet(0, 5)));
    hold.handle_up(over + GIVEN_UP, packet_in(version, packet(0, 6)));
    assert_eq!(ups(&mut hold), [(0, 5)]);
    assert_eq!(hold.held_count(), 1);
}

#[test]
fn entries_on_their_way_are_remembered_to_a_bound() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    for _ in 0..ON_THEIR_WAY_MAX + 10 {
        hold.handle_down(NOW, [entry(version, 0, out())]);
    }
    assert_eq!(hold.on_their_way.len(), ON_THEIR_WAY_MAX);
}

/// Neighbour discovery, like ARP, is no flow: a host that waits for it sends no packet that could
/// overtake.
#[test]
fn resolutions_of_addresses_do_not_wait() {
    let version = Version::V13;
    let of_kind = |kind: u8| {
        let header = [&[0x60, 0, 0, 0, 0, 24, 58, 255][..], &[0xfe; 32]].concat();
        let message = [&[kind, 0, 0, 0][..], &[0; 20]].concat();
        let (src, dst) = (host(1).mac, host(2).mac);
        packet_in(
            version,
            ethernet(src, dst, 0x86dd, &[header, message].concat()),
        )
    };
    for (kind, waits) in [(128, true), (133, false), (135, false), (136, false)] {
        let mut hold = Hold::new(HoldLimits::default());
        for _ in 0..2 {
            hold.handle_up(NOW, of_kind(kind));
        }
        assert_eq!(hold.held_count(), usize::from(waits), "type {kind}");
    }
}

#[test]
fn what_cannot_wait_overtakes_nothing() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    for n in 0..3 {
        hold.handle_up(NOW, packet_in(version, packet(0, n)));
    }
    let Message::PacketIn(mut kept) = decode(&packet_in(version, packet(0, 3))).unwrap() else {
        panic!("a packet-in");
    };
    kept.buffer_id = Some(BufferId(5));
    let frame = encode(version, Xid(0), &Message::PacketIn(kept)).unwrap();
    hold.handle_up(NOW, frame);
    assert_eq!(ups(&mut hold), [(0, 0), (0, 1), (0, 2), (0, 3)]);
}

#[test]
fn other_messages_pass_as_they_are() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    let arp = packet_in(version, arp_request(host(1), host(2).ip));
    let barrier = encode(version, Xid(9), &Message::BarrierReply).unwrap();
    for frame in [&arp, &arp, &barrier] {
        hold.handle_up(NOW, frame.clone());
        assert_eq!(hold.poll_up().as_ref(), Some(frame));
    }
    let barrier = encode(version, Xid(9), &Message::BarrierRequest).unwrap();
    let miss = FlowMod::add(0, Match::any(), vec![Action::controller()]);
    let miss = encode(version, Xid(9), &Message::FlowMod(miss)).unwrap();
    hold.handle_up(NOW, packet_in(version, packet(0, 0)));
    hold.handle_up(NOW, packet_in(version, packet(0, 1)));
    for frame in [barrier, miss] {
        hold.handle_down(NOW, [frame.clone()]);
        assert_eq!(hold.poll_down(), Some(frame));
        assert_eq!(hold.poll_down(), None, "no answer to what waits");
    }
    assert_eq!(hold.held_count(), 1);
}

#[test]
fn what_the_entry_does_not_take_goes_up_and_what_it_drops_is_dropped() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    let with_dscp = |n| {
        let mut data = packet(0, n);
        data[15] = 46 << 2;
        data
    };
    hold.handle_up(NOW, packet_in(version, packet(0, 0)));
    hold.handle_up(NOW, packet_in(version, with_dscp(1)));
    hold.handle_up(NOW, packet_in(version, packet(0, 2)));
    let best_effort = Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::IpDscp, 0u8);
    let message = Message::FlowMod(FlowMod::add(10, best_effort, out()));
    hold.handle_down(NOW, [encode(version, Xid(7), &message).unwrap()]);
    assert_eq!(ups(&mut hold), [(0, 0), (0, 1)]);
    assert_eq!(downs(&mut hold), [Some((0, 2)), None]);

    let mut hold = Hold::new(HoldLimits::default());
    for n in 0..3 {
        hold.handle_up(NOW, packet_in(version, packet(1, n)));
    }
    hold.handle_down(NOW, [entry(version, 1, Vec::new())]);
    let Message::PacketOut(first) = decode(&hold.poll_down().unwrap()).unwrap() else {
        panic!("no packet-out");
    };
    assert_eq!(first.actions, []);
}

/// An entry that was set for another flow, or before any packet asked.
#[test]
fn a_packet_that_misses_an_entry_on_its_way_follows_it() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    hold.handle_down(NOW, [entry(version, 0, out())]);
    assert_eq!(downs(&mut hold), [None]);
    hold.handle_up(NOW + ms(17), packet_in(version, packet(0, 0)));
    assert_eq!(downs(&mut hold), [Some((0, 0))]);
    assert_eq!(ups(&mut hold), []);
    // Much later the packet is not there, whatever was sent.
    hold.handle_up(NOW + ENTRY_SETTLES, packet_in(version, packet(0, 1)));
    assert_eq!(ups(&mut hold), [(0, 1)]);
}

/// A deletion may remove the entry by which packets are sent on.
#[test]
fn after_a_deletion_nothing_is_sent_on_by_an_entry() {
    let version = Version::V13;
    let mut hold = Hold::new(HoldLimits::default());
    hold.handle_up(NOW, packet_in(version, packet(0, 0)));
    hold.handle_down(NOW, [entry(version, 0, out())]);
    let delete = FlowMod {
        command: FlowModCommand::Delete,
        ..FlowMod::add(0, Match::any(), Vec::new())
    };
    let delete = encode(version, Xid(7), &Message::FlowMod(delete)).unwrap();
    hold.handle_down(NOW, [delete]);
    hold.handle_up(NOW, packet_in(version, packet(0, 1)));
    hold.handle_up(NOW, packet_in(version, packet(0, 2)));
    assert_eq!(ups(&mut hold), [(0, 0), (0, 1)], "asked for anew");
}

/// How a controller answers a packet-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    /// The packet, then its entry.
    PacketFirst,
    EntryFirst,
    /// The controller sends the packet at another switch, and the entry here when others have
    /// confirmed theirs.
    Elsewhere,
    PacketAlone,
    Nothing,
}

/// A switch with a relay beside it and a distant controller.
struct World {
    hold: Hold,
    answers: Answers,
    delay: Duration,
    /// Time between an entry's arrival at the switch and the first packet that finds it.
    activation: Duration,
    queue: BTreeMap<(Instant, u64), Happens>,
    queued: u64,
    active: [Option<Instant>; 4],
    has_entry: [bool; 4],
    delivered: Vec<(u8, u32)>,
    went_up: Vec<(u8, u32)>,
}

enum Happens {
    Sent(u8, u32),
    AtController(Frame),
    FromController(Vec<Frame>),
    Elsewhere(u8, u32),
}

impl World {
    fn at(&mut self, at: Instant, happens: Happens) {
        self.queued += 1;
        self.queue.insert((at, self.queued), happens);
    }

    fn run(&mut self) {
        loop {
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            let due = self.hold.poll_timeout();
            let now = match (next, due) {
                (None, None) => return,
                (next, due) => next.into_iter().chain(due).min().unwrap(),
            };
            if due.is_some_and(|due| due <= now) && next.is_none_or(|next| next > now) {
                self.hold.handle_timeout(now);
            } else if let Some((_, happens)) = self.queue.pop_first() {
                self.handle(now, happens);
            }
            self.drain(now);
        }
    }

    fn handle(&mut self, now: Instant, happens: Happens) {
        match happens {
            Happens::Sent(flow, n) => {
                if self.active[usize::from(flow)].is_some_and(|at| at <= now) {
                    self.delivered.push((flow, n));
                } else {
                    let frame = packet_in(Version::V13, packet(flow, n));
                    self.hold.handle_up(now, frame);
                }
            }
            Happens::AtController(frame) => self.answer(now, &frame),
            Happens::FromController(frames) => self.hold.handle_down(now, frames),
            Happens::Elsewhere(flow, n) => self.delivered.push((flow, n)),
        }
    }

    fn answer(&mut self, now: Instant, frame: &Frame) {
        let Message::PacketIn(message) = decode(frame).unwrap() else {
            panic!("{frame:?}");
        };
        let (flow, n) = named(&message.data);
        let has_entry = std::mem::replace(&mut self.has_entry[usize::from(flow)], true);
        let packet = sent_on(Version::V13, message.data.to_vec());
        let entry = entry(Version::V13, flow, out());
        let here = now + self.delay;
        match self.answers {
            Answers::Nothing => {}
            Answers::Elsewhere => {
                self.at(here, Happens::Elsewhere(flow, n));
                if !has_entry {
                    let confirmed = here + self.delay * 2;
                    self.at(confirmed, Happens::FromController(vec![entry]));
                }
            }
            Answers::PacketFirst if !has_entry => {
                self.at(here, Happens::FromController(vec![packet, entry]));
            }
            Answers::EntryFirst if !has_entry => {
                self.at(here, Happens::FromController(vec![entry, packet]));
            }
            _ => self.at(here, Happens::FromController(vec![packet])),
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(frame) = self.hold.poll_up() {
            let Message::PacketIn(message) = decode(&frame).unwrap() else {
                panic!("{frame:?}");
            };
            self.went_up.push(named(&message.data));
            self.at(now + self.delay, Happens::AtController(frame));
        }
        while let Some(frame) = self.hold.poll_down() {
            match decode(&frame).unwrap() {
                Message::PacketOut(message) => self.delivered.push(named(&message.data)),
                Message::FlowMod(message) => {
                    let flow = (0..4).find(|flow| {
                        let packet = packet(*flow, 0);
                        PacketFields::parse(PortNo(1), &packet).matches(&message.r#match)
                    });
                    self.active[usize::from(flow.unwrap())] = Some(now + self.activation);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn of_flow(packets: &[(u8, u32)], flow: u8) -> Vec<u32> {
    let of = packets.iter().filter(|packet| packet.0 == flow);
    of.map(|packet| packet.1).collect()
}

proptest! {
    /// Every packet is delivered once and each flow in its order, whatever arrives when and however
    /// the controller answers. Where there are entries, one packet of each flow goes up.
    #[test]
    fn every_flow_keeps_its_order(
        arrivals in prop::collection::vec((0u8..4, 0u64..4000), 1..120),
        delay_us in 100u64..40_000,
        activation_us in 0u64..17_000,
        answers in prop::sample::select(vec![
            Answers::PacketFirst,
            Answers::EntryFirst,
            Answers::Elsewhere,
            Answers::PacketAlone,
            Answers::Nothing,
        ]),
    ) {
        let mut world = World {
            hold: Hold::new(HoldLimits::default()),
            answers,
            delay: Duration::from_micros(delay_us),
            activation: Duration::from_micros(activation_us),
            queue: BTreeMap::new(),
            queued: 0,
            active: [None; 4],
            has_entry: [false; 4],
            delivered: Vec::new(),
            went_up: Vec::new(),
        };
        let mut at = NOW;
        let mut counts = [0; 4];
        for (flow, gap_us) in arrivals {
            at += Duration::from_micros(gap_us);
            let count = &mut counts[usize::from(flow)];
            world.at(at, Happens::Sent(flow, *count));
            *count += 1;
        }
        world.run();
        let has_entries = !matches!(answers, Answers::PacketAlone | Answers::Nothing);
        // At most 64 frames of a flow wait: more would go up, which the other tests cover.
        prop_assume!(world.hold.counters().overflowed == 0);
        for flow in 0..4 {
            let sent: Vec<u32> = (0..counts[usize::from(flow)]).collect();
            let went_up = of_flow(&world.went_up, flow);
            prop_assert!(went_up.is_sorted(), "{:?}", went_up);
            if has_entries {
                prop_assert_eq!(of_flow(&world.delivered, flow), &sent[..]);
                prop_assert_eq!(went_up.len(), sent.len().min(1));
            } else if answers == Answers::PacketAlone {
                prop_assert_eq!(of_flow(&world.delivered, flow), &sent[..]);
            } else {
                prop_assert_eq!(went_up, sent);
            }
        }
        prop_assert_eq!(world.hold.held_count(), 0);
    }
}
