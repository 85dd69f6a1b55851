use proptest::prelude::*;

use super::*;

const START: Instant = Instant(1_000_000_000);

fn config(system: u8, is_active: bool) -> Config {
    Config {
        system: MacAddr([2, 0, 0, 0, 0, system]),
        key: u16::from(system),
        is_active,
        is_fast: true,
    }
}

/// Two ends, and cables between the ports of the same number that lose, repeat and delay messages.
struct Pair {
    ends: [Lacp; 2],
    now: Instant,
    /// Messages under way: the time, end and port of their arrival.
    wire: Vec<(Instant, usize, u16, Pdu)>,
    /// The messages that each end's port has sent.
    sent: BTreeMap<(usize, u16), Vec<Instant>>,
    random: clock::SplitMix64,
    /// Messages in a thousand that are lost, and that arrive twice.
    faults: (u64, u64),
    delay_ms: u64,
    cut: BTreeSet<u16>,
    problems: Vec<Output>,
}

impl Pair {
    fn new(configs: [Config; 2], ports: u16, seed: u64) -> Pair {
        let mut pair = Pair {
            ends: configs.map(|config| Lacp::new(config, 1..=ports)),
            now: START,
            wire: Vec::new(),
            sent: BTreeMap::new(),
            random: clock::SplitMix64::new(seed),
            faults: (0, 0),
            delay_ms: 1,
            cut: BTreeSet::new(),
            problems: Vec::new(),
        };
        for port in 1..=ports {
            for end in &mut pair.ends {
                end.set_up(START, port, true);
            }
        }
        pair.drain();
        pair
    }

    fn drain(&mut self) {
        for at in 0..2 {
            while let Some(output) = self.ends[at].poll_output() {
                match output {
                    Output::Send { port, pdu } => self.send(at, port, pdu),
                    Output::Changed => {}
                    problem => self.problems.push(problem),
                }
            }
        }
    }

    fn send(&mut self, from: usize, port: u16, pdu: Pdu) {
        self.sent.entry((from, port)).or_default().push(self.now);
        let (lost, twice) = self.faults;
        if self.cut.contains(&port) || self.random.next() % 1000 < lost {
            return;
        }
        let copies = 1 + usize::from(self.random.next() % 1000 < twice);
        for _ in 0..copies {
            let delay = 1 + self.random.next() % self.delay_ms;
            let due = self.now + Duration::from_millis(delay);
            self.wire.push((due, 1 - from, port, pdu));
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timers = self.ends.iter().filter_map(Lacp::next_due);
            let next = timers.chain(self.wire.iter().map(|it| it.0)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.now;
            let ready = self.wire.extract_if(.., |it| it.0 <= now);
            for (_, to, port, pdu) in ready.collect::<Vec<_>>() {
                self.ends[to].handle_pdu(now, port, &pdu);
            }
            for end in &mut self.ends {
                end.due(now);
            }
            self.drain();
        }
        self.now = end;
    }

    fn active(&self) -> [[BTreeSet<u16>; 2]; 2] {
        [0, 1].map(|at| [self.ends[at].collecting(), self.ends[at].distributing()])
    }
}

fn all(ports: std::ops::RangeInclusive<u16>) -> BTreeSet<u16> {
    ports.collect()
}

#[test]
fn two_ends_agree_at_once_unless_both_wait() {
    for (active, agrees) in [
        ([true, true], true),
        ([true, false], true),
        ([false; 2], false),
    ] {
        let mut pair = Pair::new([config(1, active[0]), config(2, active[1])], 3, 1);
        pair.run(Duration::from_millis(1500));
        let wanted = if agrees { all(1..=3) } else { BTreeSet::new() };
        for found in pair.active().iter().flatten() {
            assert_eq!(*found, wanted, "{active:?}");
        }
    }
}

#[test]
fn a_silent_port_leaves_after_three_seconds_and_comes_back() {
    let mut pair = Pair::new([config(1, true), config(2, true)], 2, 1);
    pair.run(Duration::from_secs(5));
    pair.cut.insert(2);
    pair.run(Duration::from_millis(1900));
    assert_eq!(pair.ends[0].distributing(), all(1..=2), "not yet");
    pair.run(Duration::from_millis(1200));
    for found in pair.active().iter().flatten() {
        assert_eq!(*found, all(1..=1));
    }
    pair.cut.clear();
    pair.run(Duration::from_millis(1500));
    for found in pair.active().iter().flatten() {
        assert_eq!(*found, all(1..=2));
    }
}

#[test]
fn a_port_that_goes_down_leaves_at_once() {
    let mut pair = Pair::new([config(1, true), config(2, true)], 2, 1);
    pair.run(Duration::from_secs(2));
    pair.ends[0].set_up(pair.now, 1, false);
    assert_eq!(pair.ends[0].collecting(), all(2..=2));
    assert_eq!(pair.ends[0].poll_output(), Some(Output::Changed));
}

/// A port with another partner stays out; its partner is the bond's once the first partner has
/// gone.
#[test]
fn a_port_with_another_partner_is_not_attached() {
    let mut pair = Pair::new([config(1, true), config(2, true)], 2, 1);
    pair.run(Duration::from_secs(2));
    let stranger = End {
        system: MacAddr([2, 9, 9, 9, 9, 9]),
        state: State(0x3f),
        ..End::default()
    };
    let end = &mut pair.ends[0];
    let own = end.ports.get(&2).expect("a port").actor((&end.config, 2));
    let pdu = Pdu {
        actor: stranger,
        partner: own,
    };
    for _ in 0..2 {
        end.handle_pdu(pair.now, 2, &pdu);
    }
    assert_eq!(end.collecting(), all(1..=1));
    let heard = Partner::of(&stranger);
    let outputs: Vec<Output> = std::iter::from_fn(|| end.poll_output()).collect();
    let told = outputs
        .iter()
        .filter(|it| matches!(it, Output::OtherPartner { .. }));
    let wanted = Output::OtherPartner { port: 2, heard };
    assert_eq!(told.collect::<Vec<_>>(), [&wanted], "once: {outputs:?}");
    end.set_up(pair.now, 1, false);
    end.handle_pdu(pair.now, 2, &pdu);
    assert_eq!(end.partner(), Some(heard), "the first partner has gone");
}

#[test]
fn a_cable_from_one_port_to_another_is_a_loop() {
    let mut pair = Pair::new([config(1, true), config(1, true)], 2, 1);
    pair.run(Duration::from_secs(4));
    for found in pair.active().iter().flatten() {
        assert_eq!(*found, BTreeSet::new());
    }
    assert!(pair.problems.contains(&Output::Loop { port: 1 }));
}

/// Messages that alternate between two contents arrive as often as a stranger likes.
#[test]
fn a_port_hears_and_sends_a_few_messages_a_second() {
    let mut end = Lacp::new(config(1, true), [1]);
    end.set_up(START, 1, true);
    let mut sent = 0;
    for n in 0..1000 {
        let now = START + Duration::from_millis(n);
        let actor = End {
            system: MacAddr([2, 9, 9, 9, 9, n as u8]),
            state: State(0x3f),
            ..End::default()
        };
        let partner = End::default();
        end.handle_pdu(now, 1, &Pdu { actor, partner });
        end.due(now);
        let outputs = std::iter::from_fn(|| end.poll_output());
        sent += outputs
            .filter(|it| matches!(it, Output::Send { .. }))
            .count();
    }
    assert!(sent <= 6, "a burst of three, and three more: {sent}");
    assert!(end.dropped >= 1000 - 20, "{}", end.dropped);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was lost, repeated or reordered: when the cables are whole, both ends use the same
    /// ports, namely all ports with whole cables.
    #[test]
    fn two_ends_converge_on_the_same_ports(
        seed in any::<u64>(),
        actives in (any::<bool>(), any::<bool>()),
        fasts in (any::<bool>(), any::<bool>()),
        ports in 1u16..5,
        lost in 0u64..900,
        flaps in proptest::collection::vec((1u16..5, any::<bool>(), 0u64..4000), 0..8),
    ) {
        prop_assume!(actives.0 || actives.1);
        let mut configs = [config(1, actives.0), config(2, actives.1)];
        (configs[0].is_fast, configs[1].is_fast) = fasts;
        let mut pair = Pair::new(configs, ports, seed);
        pair.faults = (lost, 300);
        pair.delay_ms = 700;
        for (port, is_up, wait) in flaps {
            let now = pair.now;
            // A pulled cable is down at both ends.
            for end in &mut pair.ends {
                end.set_up(now, port, is_up);
            }
            pair.drain();
            pair.run(Duration::from_millis(wait));
        }
        pair.faults = (0, 0);
        pair.delay_ms = 1;
        pair.run(Duration::from_secs(100));
        let is_up = |port: &u16| pair.ends[0].ports[port].receive != Receive::Disabled;
        let wanted: BTreeSet<u16> = (1..=ports).filter(is_up).collect();
        for found in pair.active().iter().flatten() {
            prop_assert_eq!(found, &wanted);
        }
        for times in pair.sent.values() {
            for few in times.windows(SENT_PER_S as usize * 2 + 1) {
                prop_assert!(few[few.len() - 1].since(few[0]) >= Duration::from_secs(1));
            }
        }
    }

    /// Whatever messages arrive, the ports in use are a part of the ports that are up.
    #[test]
    fn strangers_cannot_make_use_of_a_port_that_is_down(
        pdus in proptest::collection::vec((1u16..4, any::<[u8; 4]>(), 0u64..3000), 0..60),
    ) {
        let mut end = Lacp::new(config(1, false), 1..=2);
        end.set_up(START, 1, true);
        let mut now = START;
        for (port, [system, key, state, of_us], wait) in pdus {
            now += Duration::from_millis(wait);
            end.due(now);
            let actor = End {
                system: MacAddr([2, 0, 0, 0, 0, system % 3]),
                key: u16::from(key % 2),
                state: State(state),
                ..End::default()
            };
            let own = end.ports[&1].actor((&end.config, 1));
            let partner = if of_us % 2 == 0 { own } else { End::default() };
            end.handle_pdu(now, port, &Pdu { actor, partner });
            prop_assert!(end.collecting().is_subset(&all(1..=1)));
            prop_assert!(end.distributing().is_subset(&end.collecting()));
            while end.poll_output().is_some() {}
        }
    }
}

/// Restarts the process behind one end, with the state of its switch.
fn restart(pair: &mut Pair, ports: std::ops::RangeInclusive<u16>) {
    let mut end = Lacp::new(pair.ends[0].config, all(ports.clone()));
    for port in ports {
        end.adopt(pair.now, port, true);
    }
    pair.ends[0] = end;
    pair.sent.clear();
    pair.drain();
}

#[test]
fn a_restart_that_adopts_breaks_nothing() {
    for active in [[true, true], [true, false], [false, true]] {
        let mut pair = Pair::new([config(1, active[0]), config(2, active[1])], 2, 1);
        pair.run(Duration::from_secs(5));
        pair.run(Duration::from_millis(500));
        restart(&mut pair, 1..=2);
        assert!(
            pair.sent.is_empty(),
            "{active:?}: nothing before it has heard"
        );
        for _ in 0..1000 {
            pair.run(Duration::from_millis(10));
            for found in pair.active().iter().flatten() {
                assert_eq!(*found, all(1..=2), "{active:?} at {:?}", pair.now);
            }
        }
        assert_eq!(pair.ends[0].partner().map(|it| it.key), Some(2));
        assert!(pair.ends[0].ports().all(|port| port.partner.is_some()));
        assert_eq!(pair.problems, []);
    }
}

/// A process that ends half a second before a partner's timeout is over leaves the partner only
/// that half.
#[test]
fn a_partner_waits_its_whole_timeout_after_a_refresh() {
    for is_refreshed in [true, false] {
        let mut pair = Pair::new([config(1, true), config(2, true)], 2, 1);
        pair.run(Duration::from_millis(5900));
        if is_refreshed {
            pair.ends[0].refresh(pair.now);
            pair.drain();
        }
        for (_, to, port, pdu) in std::mem::take(&mut pair.wire) {
            pair.ends[to].handle_pdu(pair.now, port, &pdu);
        }
        let mut silent = Duration::ZERO;
        while pair.ends[1].distributing() == all(1..=2) {
            silent += Duration::from_millis(10);
            pair.now += Duration::from_millis(10);
            let now = pair.now;
            pair.ends[1].due(now);
            while pair.ends[1].poll_output().is_some() {}
        }
        let whole = Duration::from_secs(3);
        assert_eq!(silent >= whole, is_refreshed, "{silent:?}");
    }
}

#[test]
fn an_adopted_port_that_hears_nobody_ends_after_the_timeout() {
    for (is_fast, before, after) in [(true, 2900, 200), (false, 89_900, 200)] {
        let ours = Config {
            is_fast,
            ..config(1, true)
        };
        let mut pair = Pair::new([ours, config(2, true)], 2, 1);
        pair.run(Duration::from_secs(5));
        pair.cut = all(1..=2);
        pair.wire.clear();
        restart(&mut pair, 1..=2);
        pair.run(Duration::from_millis(before));
        assert_eq!(pair.ends[0].distributing(), all(1..=2), "fast: {is_fast}");
        assert!(!pair.sent.contains_key(&(0, 1)));
        pair.run(Duration::from_millis(after));
        assert_eq!(
            pair.ends[0].collecting(),
            BTreeSet::new(),
            "fast: {is_fast}"
        );
        pair.cut.clear();
        pair.run(Duration::from_secs(4));
        assert_eq!(pair.ends[0].distributing(), all(1..=2), "it agrees anew");
    }
}

#[test]
fn an_adopted_port_leaves_with_a_partner_that_has_left_or_is_another() {
    let mut pair = Pair::new([config(1, true), config(2, true)], 3, 1);
    pair.run(Duration::from_secs(5));
    restart(&mut pair, 1..=3);
    let ours = actor(&pair.ends[0]);
    let heard = |key, state: State| Pdu {
        actor: End {
            system: MacAddr([2, 0, 0, 0, 0, key]),
            key: u16::from(key),
            state,
            ..End::default()
        },
        partner: ours,
    };
    let synced = [
        State::ACTIVITY,
        State::AGGREGATION,
        State::SYNCHRONIZATION,
        State::COLLECTING,
    ];
    let synced = synced
        .into_iter()
        .fold(State::default(), |all, bit| all.with(bit, true));
    let now = pair.now;
    let end = &mut pair.ends[0];
    end.handle_pdu(now, 1, &heard(2, synced));
    end.handle_pdu(
        now,
        2,
        &heard(2, synced.with(State::SYNCHRONIZATION, false)),
    );
    end.handle_pdu(now, 3, &heard(3, synced));
    assert!(!end.collecting().contains(&2), "out of step");
    assert!(!end.collecting().contains(&3), "another device");
    assert!(
        std::iter::from_fn(|| end.poll_output())
            .any(|it| matches!(it, Output::OtherPartner { port: 3, .. }))
    );
}

/// The first port of an end, as a partner knows it.
fn actor(end: &Lacp) -> End {
    end.ports[&1].actor((&end.config, 1))
}

#[test]
fn only_a_port_that_has_just_come_up_adopts() {
    let mut end = Lacp::new(config(1, true), 1..=2);
    end.set_up(START, 1, true);
    end.adopt(START, 1, true);
    end.adopt(START, 2, false);
    assert_eq!(
        (end.collecting(), end.distributing()),
        (all(2..=2), BTreeSet::new())
    );
    end.set_up(START, 2, false);
    assert_eq!(end.collecting(), BTreeSet::new());
}
