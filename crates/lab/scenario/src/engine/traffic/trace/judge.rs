//! Judges the packets of a run and the entries of their flows. The evidence is the packets sent,
//! the arrivals, and the messages on the control link. All times are of one clock.

use std::collections::BTreeMap;

use super::wire::{Event, Pair, What};
use control::timeouts::budget::POLL_MIN;

/// A packet that was sent; the packet's number is its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub flow: u32,
    pub at_ns: u64,
}

/// The evidence from a run.
pub struct Evidence<'a> {
    pub sent: &'a [Packet],
    /// Addresses by flow.
    pub pairs: &'a [Pair],
    /// Marks by packet number; a packet beyond the end has not arrived.
    pub arrived: &'a [bool],
    pub asked: &'a [bool],
    /// In the order of time.
    pub events: &'a [Event],
    /// The switch evicts entries, and reports no eviction if the protocol has no such report.
    pub evicts: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Packets that were sent to the controller.
    pub misses: u64,
    pub lost: u64,
    /// Lost packets that had been sent to the controller.
    pub lost_asked: u64,
    /// Entries set where no entry was known.
    pub entries_set: u64,
    /// Entries removed by the controller, but not because they had expired elsewhere.
    pub evicted: u64,
    /// Evictions of active flows. The flow sent a packet within its last gap before the eviction,
    /// and another within the same time after the eviction, while the entry would still have been
    /// present; and the later packet had no entry.
    pub evicted_active: u64,
    /// The same for entries evicted by the switch, as far as the switch reports them or a packet
    /// missed an entry before its expiry.
    pub put_out: u64,
    pub put_out_active: u64,
    /// Packets without an entry, of flows that had an entry and sent within their last gap.
    pub lapsed: u64,
}

/// The time after which an entry that was set counts as present.
const ACTIVE_AFTER_NS: u64 = 500_000_000;
const SECOND_NS: u64 = 1_000_000_000;

pub fn judge(seen: &Evidence) -> Judged {
    let is = |marks: &[bool], number: usize| marks.get(number).copied().unwrap_or(false);
    let mut judged = Judged::default();
    for number in 0..seen.sent.len() {
        let is_asked = is(seen.asked, number);
        let is_lost = !is(seen.arrived, number);
        judged.misses += u64::from(is_asked);
        judged.lost += u64::from(is_lost);
        judged.lost_asked += u64::from(is_lost && is_asked);
    }
    let by_pair: BTreeMap<Pair, u32> = seen.pairs.iter().copied().zip(0..).collect();
    let of_event = |event: &Event| by_pair.get(&event.pair).copied();
    let flows = seen.pairs.len();
    let packets = Groups::of(flows, seen.sent.iter().map(|packet| Some(packet.flow)));
    let events = Groups::of(flows, seen.events.iter().map(of_event));
    for flow in 0..flows {
        let mut life = Life::default();
        let mut events = events.of_group(flow).map(|at| seen.events[at]).peekable();
        for number in packets.of_group(flow) {
            let at_ns = seen.sent[number].at_ns;
            while let Some(event) = events.next_if(|event| event.at_ns <= at_ns) {
                life.handle_event(event, &mut judged);
            }
            let is_asked = is(seen.asked, number);
            if is_asked && seen.evicts {
                life.handle_missing(at_ns, &mut judged);
            }
            life.handle_packet(at_ns, is_asked, &mut judged);
        }
        events.for_each(|event| life.handle_event(event, &mut judged));
    }
    judged
}

/// The places of things, in order, by the group of each.
struct Groups {
    starts: Vec<usize>,
    places: Vec<u32>,
}

impl Groups {
    fn of(groups: usize, of: impl Iterator<Item = Option<u32>> + Clone) -> Groups {
        let known = || {
            of.clone()
                .flatten()
                .filter(|group| (*group as usize) < groups)
        };
        let mut starts = vec![0; groups + 1];
        known().for_each(|group| starts[group as usize + 1] += 1);
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut places = vec![0; starts[groups]];
        for (place, group) in of.enumerate() {
            if let Some(next) = group.and_then(|group| next[..groups].get_mut(group as usize)) {
                places[*next] = place as u32;
                *next += 1;
            }
        }
        Groups { starts, places }
    }

    fn of_group(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        let places = &self.places[self.starts[group]..self.starts[group + 1]];
        places.iter().map(|place| *place as usize)
    }
}

/// One flow and its entry, over time.
#[derive(Default)]
struct Life {
    entry: Option<Entry>,
    /// The time when the flow's first entry was set.
    known_since_ns: Option<u64>,
    sent_ns: Option<u64>,
    gap_ns: Option<u64>,
    taken: Option<Taken>,
    /// When the controller last removed the flow's entry.
    deleted_ns: Option<u64>,
}

#[derive(Clone, Copy)]
struct Entry {
    set_ns: u64,
    idle_s: u16,
    hard_s: u16,
}

/// A removed entry. The flow was active if it misses the entry by `until_ns`.
struct Taken {
    until_ns: u64,
    by_switch: bool,
}

impl Life {
    fn handle_event(&mut self, event: Event, judged: &mut Judged) {
        let at_ns = event.at_ns;
        match event.what {
            What::Set { idle_s, hard_s } => {
                judged.entries_set += u64::from(self.entry.is_none());
                self.known_since_ns.get_or_insert(at_ns);
                self.entry = Some(Entry {
                    set_ns: at_ns,
                    idle_s,
                    hard_s,
                });
            }
            What::Expired => self.entry = None,
            // The switch confirms the controller's request, sometimes after the next entry has been
            // sent.
            What::Gone if self.was_deleted(at_ns) => {}
            What::Deleted | What::Gone => {
                let by_switch = event.what == What::Gone;
                if !by_switch {
                    self.deleted_ns = Some(at_ns);
                }
                // Counted once for all switches on the path.
                let Some(entry) = self.entry.take() else {
                    return;
                };
                match by_switch {
                    true => judged.put_out += 1,
                    false => judged.evicted += 1,
                }
                let (Some(sent_ns), gap_ns) = (self.sent_ns, self.gap_ns()) else {
                    return;
                };
                if at_ns.saturating_sub(sent_ns) <= gap_ns {
                    self.taken = Some(Taken {
                        until_ns: entry.ends_ns(sent_ns).min(at_ns + gap_ns),
                        by_switch,
                    });
                }
            }
        }
    }

    /// Handles a packet without an entry. An entry that should be present has been evicted.
    fn handle_missing(&mut self, at_ns: u64, judged: &mut Judged) {
        let sent_ns = self.sent_ns.unwrap_or(at_ns);
        let is_due = |entry: &Entry| {
            let since_ns = entry.set_ns + ACTIVE_AFTER_NS;
            (since_ns..=entry.ends_ns(sent_ns)).contains(&at_ns)
        };
        if self.entry.as_ref().is_some_and(is_due) {
            self.entry = None;
            judged.put_out += 1;
            judged.put_out_active += u64::from(at_ns - sent_ns <= self.gap_ns());
        }
    }

    fn handle_packet(&mut self, at_ns: u64, is_asked: bool, judged: &mut Judged) {
        let taken = self.taken.take();
        if let Some(taken) = taken.filter(|t| is_asked && at_ns <= t.until_ns) {
            match taken.by_switch {
                true => judged.put_out_active += 1,
                false => judged.evicted_active += 1,
            }
        }
        let had_one = self.known_since_ns;
        let had_one = had_one.is_some_and(|since| since + ACTIVE_AFTER_NS <= at_ns);
        let passed_ns = self.sent_ns.map(|sent_ns| at_ns.saturating_sub(sent_ns));
        let is_within = self
            .gap_ns
            .zip(passed_ns)
            .is_some_and(|(gap, passed)| passed <= gap);
        judged.lapsed += u64::from(is_asked && had_one && is_within);
        self.gap_ns = passed_ns;
        self.sent_ns = Some(at_ns);
    }

    fn was_deleted(&self, at_ns: u64) -> bool {
        self.deleted_ns
            .is_some_and(|deleted_ns| at_ns - deleted_ns < SECOND_NS)
    }

    /// The last gap. A flow of one packet so far has no gap and is as active as a read can show.
    fn gap_ns(&self) -> u64 {
        self.gap_ns.unwrap_or(POLL_MIN.as_nanos() as u64)
    }
}

impl Entry {
    /// The time when the entry expires if no further packet arrives.
    fn ends_ns(&self, sent_ns: u64) -> u64 {
        let after = |since_ns: u64, timeout_s: u16| match timeout_s {
            0 => u64::MAX,
            s => since_ns + u64::from(s) * SECOND_NS,
        };
        let idle = after(sent_ns.max(self.set_ns), self.idle_s);
        idle.min(after(self.set_ns, self.hard_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PAIRS: [Pair; 2] = [
        Pair {
            source: 1,
            destination: 0,
        },
        Pair {
            source: 2,
            destination: 0,
        },
    ];

    /// Packets as `(flow, ms)`, events as `(ms, flow, what)`.
    fn judged(sent: &[(u32, u64)], asked: &[usize], events: &[(u64, usize, What)]) -> Judged {
        let packet = |(flow, ms): &(u32, u64)| Packet {
            flow: *flow,
            at_ns: ms * MS,
        };
        let event = |(ms, flow, what): &(u64, usize, What)| Event {
            at_ns: ms * MS,
            pair: PAIRS[*flow],
            what: *what,
        };
        let sent: Vec<Packet> = sent.iter().map(packet).collect();
        let events: Vec<Event> = events.iter().map(event).collect();
        let asked: Vec<bool> = (0..sent.len()).map(|n| asked.contains(&n)).collect();
        judge(&Evidence {
            sent: &sent,
            pairs: &PAIRS,
            arrived: &vec![true; sent.len()],
            asked: &asked,
            events: &events,
            evicts: false,
        })
    }

    fn set(idle_s: u16) -> What {
        What::Set { idle_s, hard_s: 0 }
    }

    /// A packet every 200 ms until 800 ms. The first and the last are sent to the controller.
    const SENT: [(u32, u64); 5] = [(0, 0), (0, 200), (0, 400), (0, 600), (0, 800)];

    #[test]
    fn a_flow_that_goes_on_was_active_and_others_were_not() {
        let of = |deleted_ms, last_ms, asked: &[usize], idle_s| {
            let mut sent = SENT;
            sent[4].1 = last_ms;
            let events = [(1, 0, set(idle_s)), (deleted_ms, 0, What::Deleted)];
            let found = judged(&sent, asked, &events);
            assert_eq!(found.evicted, 1);
            found.evicted_active
        };
        assert_eq!(of(700, 800, &[0, 4], 10), 1);
        assert_eq!(of(700, 800, &[0], 10), 0, "it had another entry");
        assert_eq!(of(700, 901, &[0, 4], 10), 0, "longer silent than ever");
        assert_eq!(of(790, 980, &[0, 4], 10), 1);
        assert_eq!(of(801, 990, &[0, 4], 10), 0, "silent by then, too");
        assert_eq!(of(601, 800, &[0, 4], 1), 1);
        assert_eq!(of(900, 800, &[0, 4], 10), 0, "after the last");
    }

    #[test]
    fn what_would_have_ended_by_itself_is_not_missed() {
        let sent = [(0, 0), (0, 2000), (0, 4100)];
        let events = |idle_s| [(1, 0, set(idle_s)), (2900, 0, What::Deleted)];
        assert_eq!(judged(&sent, &[0, 2], &events(3)).evicted_active, 1);
        assert_eq!(judged(&sent, &[0, 2], &events(2)).evicted_active, 0);
        let hard = What::Set {
            idle_s: 0,
            hard_s: 3,
        };
        let events = [(1, 0, hard), (2900, 0, What::Deleted)];
        assert_eq!(judged(&sent, &[0, 2], &events).evicted_active, 0);
    }

    #[test]
    fn an_entry_goes_once_and_is_told_by_whom() {
        // The switch confirms the removal, and the rest of the path is removed after it.
        let events = [
            (1, 0, set(10)),
            (300, 0, What::Deleted),
            (301, 0, What::Gone),
            (302, 0, What::Deleted),
            (303, 0, set(10)),
            (304, 0, What::Gone),
            (310, 0, What::Expired),
            (500, 1, What::Deleted),
        ];
        let found = judged(&SENT, &[0, 2], &events);
        assert_eq!((found.entries_set, found.evicted, found.put_out), (2, 1, 0));
        assert_eq!((found.evicted_active, found.put_out_active), (1, 0));
        let events = [(1, 0, set(10)), (500, 0, What::Gone)];
        let found = judged(&SENT, &[0, 3], &events);
        assert_eq!((found.evicted, found.put_out), (0, 1));
        assert_eq!((found.evicted_active, found.put_out_active), (0, 1));
    }

    #[test]
    fn an_active_flow_without_an_entry_has_lapsed_whatever_the_reason() {
        let events = [(1, 0, set(10))];
        assert_eq!(
            judged(&SENT, &[0, 1, 3], &events).lapsed,
            1,
            "one is too early"
        );
        assert_eq!(
            judged(&SENT, &[0, 1, 3], &[]).lapsed,
            0,
            "there never was one"
        );
        let sent = [(0, 0), (0, 200), (0, 1000)];
        assert_eq!(judged(&sent, &[0, 2], &events).lapsed, 0, "it paused");
    }

    #[test]
    fn an_entry_that_a_switch_puts_out_is_missed_before_its_time() {
        let put_out = |sent: &[(u32, u64)], asked: [bool; 5], evicts, idle_s| {
            let packet = |(flow, ms): &(u32, u64)| Packet {
                flow: *flow,
                at_ns: ms * MS,
            };
            let sent: Vec<Packet> = sent.iter().map(packet).collect();
            let event = Event {
                at_ns: MS,
                pair: PAIRS[0],
                what: set(idle_s),
            };
            let found = judge(&Evidence {
                sent: &sent,
                pairs: &PAIRS,
                arrived: &[true; 5],
                asked: &asked,
                events: &[event],
                evicts,
            });
            (found.put_out, found.put_out_active)
        };
        let asked = [true, false, false, true, false];
        assert_eq!(put_out(&SENT, asked, true, 10), (1, 1));
        assert_eq!(put_out(&SENT, asked, false, 10), (0, 0));
        let early = [true, true, false, false, false];
        assert_eq!(put_out(&SENT, early, true, 10), (0, 0), "not yet there");
        let paused = [(0, 0), (0, 200), (0, 400), (0, 1500), (0, 1700)];
        assert_eq!(put_out(&paused, asked, true, 10), (1, 0));
        assert_eq!(put_out(&paused, asked, true, 1), (0, 0), "it was over");
    }

    #[test]
    fn packets_are_counted_by_number_and_flows_kept_apart() {
        let sent = [(1, 0), (0, 1), (1, 2), (0, 3)].map(|(flow, ms)| Packet {
            flow,
            at_ns: ms * MS,
        });
        let found = judge(&Evidence {
            sent: &sent,
            pairs: &PAIRS,
            // The last packet is beyond the marks.
            arrived: &[true, false, true],
            asked: &[true, true],
            events: &[],
            evicts: true,
        });
        assert_eq!((found.misses, found.lost, found.lost_asked), (2, 2, 1));
        let groups = Groups::of(2, [Some(1), None, Some(0), Some(1), Some(9)].into_iter());
        let of = |group| groups.of_group(group).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec![2], vec![0, 3]));
    }
}
