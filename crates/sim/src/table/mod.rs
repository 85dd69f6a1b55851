//! One switch with a flow table that is too small, under policies that are compared on one trace.
//!
//! Packets come from `trace`. A packet without an entry goes to the controller and returns in a
//! packet-out; the controller's answer takes effect after a round trip. `lease` is the code that
//! runs in production ([`control::timeouts`]). The model's switch is a table with exact timeouts; a
//! real switch checks them once a second or less often.

mod controller;
mod switch;
mod trace;

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use control::timeouts::budget::{POLL_MIN, high_mark};

use self::controller::{Command, Controller, Message};
use self::switch::Table;
use self::trace::Shape;
use crate::channel::event::EventQueue;

pub use self::controller::{Counts, Policy};
pub use self::trace::{Packet, Trace, Traffic};

/// The setup of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub policy: Policy,
    /// Maximum number of entries in the table.
    pub capacity: u32,
    pub traffic: Traffic,
    /// Delay in one direction between switch and controller.
    pub delay: Duration,
    pub duration: Duration,
    /// The number of flows after which no other flow begins.
    pub flows_max: u32,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub flows: u64,
    /// Packets as the trace resolves them.
    pub packets: u64,
    /// Flows between their first packet and their last, on average over the measured time.
    pub alive_mean: f64,
    /// Packets without an entry: a packet-in each.
    pub misses: u64,
    /// The number of misses of flows that had an entry before.
    pub misses_again: u64,
    /// Entries set, and set again; renewals are not counted.
    pub adds: u64,
    pub deletes: u64,
    pub expired: u64,
    pub table_full: u64,
    /// Packets lost with a refused flow-mod.
    pub lost: u64,
    /// Entries evicted, by the controller or the switch.
    pub evicted: u64,
    /// The number of evicted entries whose flow was active: the flow sent before and after the
    /// eviction, both within its last gap, and while the entry would still have existed.
    pub evicted_active: u64,
    /// Likewise, where more entries were in use than fit; not counted in the field above.
    pub evicted_pausing: u64,
    pub evicted_pausing_active: u64,
    pub occupancy_max: u32,
    /// Mean occupancy after the first quarter of the time.
    pub occupancy_mean: f64,
    /// The largest number of new entries between two reads.
    pub adds_per_read_max: u32,
    pub counts: Counts,
    /// Entries at the end of each second.
    pub by_second: Vec<u32>,
}

/// An entry by its flow, or by its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u32);

impl Key {
    const COARSE: u32 = 1 << 31;

    /// The key of a coarse entry: flows to a destination arrive by `entrances` ports, and each port
    /// has its own entry.
    fn coarse(flow: Key, destination: u16, entrances: u16) -> Key {
        let entrance = (flow.0 >> 8) % u32::from(entrances.clamp(1, Key::ENTRANCES_MAX));
        Key(Key::COARSE | entrance << 16 | u32::from(destination))
    }

    const ENTRANCES_MAX: u16 = 1 << 14;

    fn is_coarse(self) -> bool {
        self.0 & Key::COARSE != 0
    }
}

impl Setup {
    /// The mean duration of all flows of a campus, those of one packet included.
    pub fn mean_duration() -> Duration {
        Shape::mean_duration(1, 200_000)
    }

    pub fn run(&self, seed: u64) -> Outcome {
        let mut run = Run::new(self, seed);
        let end = Instant::START + self.duration;
        while let Some((at, next)) = run.next().filter(|(at, _)| *at < end) {
            run.advance(at);
            run.step(next);
        }
        run.advance(end);
        run.finish()
    }
}

/// The bound that `lease` keeps: nine tenths, and the entries added between two reads.
pub fn occupancy_bound(capacity: u32, outcome: &Outcome) -> u32 {
    high_mark(capacity) + outcome.adds_per_read_max
}

struct Run {
    now: Instant,
    delay: Duration,
    duration: Duration,
    trace: Trace,
    table: Table,
    controller: Controller,
    /// Messages under way.
    messages: EventQueue<Delivery>,
    flows: BTreeMap<u32, Flow>,
    outcome: Outcome,
    adds_since_read: u32,
    /// Entries and flows, each times nanoseconds.
    occupancy_ns: u128,
    alive_ns: u128,
    notifies: bool,
    entrances: u16,
}

enum Delivery {
    ToController(Message),
    ToSwitch(Command),
}

/// The judge's knowledge of a flow that has not ended.
#[derive(Clone, Copy)]
struct Flow {
    sent: Instant,
    gap: Option<Duration>,
    had_entry: bool,
    evicted: Option<Eviction>,
}

/// An eviction. The flow's next packet shows whether the flow was active.
#[derive(Clone, Copy)]
struct Eviction {
    /// The flow was active if it sends again by then.
    until: Instant,
    is_pausing: bool,
}

/// The kind of the next event. Events at the same time are taken in this order.
enum EventKind {
    Expiry,
    Message,
    Timeout,
    Packet,
}

impl Run {
    fn new(setup: &Setup, seed: u64) -> Run {
        let is_lru = setup.policy == Policy::Lru;
        Run {
            now: Instant::START,
            delay: setup.delay,
            duration: setup.duration,
            trace: Trace::new(setup.traffic, seed, setup.flows_max),
            table: Table::new(setup.capacity, is_lru),
            controller: Controller::new(setup.policy, setup.capacity),
            messages: EventQueue::default(),
            flows: BTreeMap::new(),
            outcome: Outcome::default(),
            adds_since_read: 0,
            occupancy_ns: 0,
            alive_ns: 0,
            notifies: matches!(setup.policy, Policy::Lease { .. }),
            entrances: setup.policy.entrances(),
        }
    }

    fn next(&mut self) -> Option<(Instant, EventKind)> {
        let now = self.now;
        let candidates = [
            self.table.next_expiry().map(|at| (at, EventKind::Expiry)),
            self.messages.next_at().map(|at| (at, EventKind::Message)),
            (self.controller.next_timeout(now)).map(|at| (at.max(now), EventKind::Timeout)),
            self.trace.next_at().map(|at| (at, EventKind::Packet)),
        ];
        candidates.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Advances the time, with the table as it is.
    fn advance(&mut self, to: Instant) {
        let second = |at: Instant| at.as_nanos() / 1_000_000_000;
        for _ in second(self.now)..second(to) {
            self.outcome.by_second.push(self.table.len() as u32);
        }
        let from = self.now.max(Instant::START + self.duration / 4);
        let passed = u128::from(to.since(from).as_nanos() as u64);
        self.occupancy_ns += passed * self.table.len() as u128;
        self.alive_ns += passed * self.flows.len() as u128;
        self.now = to;
    }

    fn step(&mut self, next: EventKind) {
        let mut commands = Vec::new();
        match next {
            EventKind::Expiry => {
                let expired = self.table.expire();
                self.outcome.expired += u64::from(expired.is_some());
                if let Some(key) = expired.filter(|_| self.notifies) {
                    self.send(Delivery::ToController(Message::Removed(key)));
                }
            }
            EventKind::Message => match self.messages.pop() {
                Some((_, Delivery::ToController(message))) => {
                    self.controller.handle(self.now, message, &mut commands);
                }
                Some((_, Delivery::ToSwitch(command))) => self.obey(command),
                None => {}
            },
            EventKind::Timeout => self.controller.handle_timeout(self.now, &mut commands),
            EventKind::Packet => {
                if let Some(packet) = self.trace.step() {
                    self.handle_packet(packet);
                }
            }
        }
        for command in commands {
            self.send(Delivery::ToSwitch(command));
        }
    }

    fn send(&mut self, what: Delivery) {
        self.messages.push(self.now + self.delay, what);
    }

    fn handle_packet(&mut self, packet: Packet) {
        let now = self.now;
        self.outcome.packets += 1;
        self.outcome.flows += u64::from(packet.is_first);
        let flow = self.flows.entry(packet.flow).or_insert(Flow {
            sent: now,
            gap: None,
            had_entry: false,
            evicted: None,
        });
        if !packet.is_first {
            flow.gap = Some(now.since(flow.sent));
        }
        flow.sent = now;
        let evicted = flow.evicted.take();
        if let Some(eviction) = evicted.filter(|e| now <= e.until) {
            match eviction.is_pausing {
                true => self.outcome.evicted_pausing_active += 1,
                false => self.outcome.evicted_active += 1,
            }
        }
        let key = Key(packet.flow);
        let coarse = Key::coarse(key, packet.destination, self.entrances);
        let is_hit = self.table.hit(now, key) || self.table.hit(now, coarse);
        if !is_hit {
            self.outcome.misses += 1;
            self.outcome.misses_again += u64::from(flow.had_entry);
        }
        if packet.is_last {
            self.flows.remove(&packet.flow);
        }
        if !is_hit {
            let destination = packet.destination;
            self.send(Delivery::ToController(Message::PacketIn {
                key,
                destination,
            }));
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add {
                key,
                idle_s,
                hard_s,
                has_packet,
            } => self.add(key, idle_s, hard_s, has_packet),
            Command::Evict(key) | Command::EvictPausing(key) => {
                self.outcome.deletes += 1;
                if let Some(ends) = self.table.delete(key) {
                    let is_pausing = matches!(command, Command::EvictPausing(_));
                    self.judge_eviction(key, ends, is_pausing);
                }
            }
            Command::Replace(key) => {
                self.outcome.deletes += 1;
                self.table.delete(key);
            }
            Command::ReadCount => {
                self.adds_since_read = 0;
                let count = self.table.len() as u32;
                self.send(Delivery::ToController(Message::Count(count)));
            }
            Command::ReadRows => {
                self.adds_since_read = 0;
                let rows = self.table.rows(self.now);
                self.send(Delivery::ToController(Message::Rows(rows)));
            }
        }
    }

    fn add(&mut self, key: Key, idle_s: u16, hard_s: u16, has_packet: bool) {
        let before = self.table.len();
        self.outcome.adds += 1;
        match self.table.add(self.now, key, idle_s, hard_s) {
            Err(switch::TableFull) => {
                self.outcome.table_full += 1;
                self.outcome.lost += u64::from(has_packet);
            }
            Ok(evicted) => {
                if let Some(flow) = self.flows.get_mut(&key.0) {
                    flow.had_entry = true;
                }
                if let Some((evicted, ends)) = evicted {
                    self.judge_eviction(evicted, ends, false);
                }
            }
        }
        let entries = self.table.len();
        self.adds_since_read += u32::from(entries > before);
        let outcome = &mut self.outcome;
        outcome.adds_per_read_max = outcome.adds_per_read_max.max(self.adds_since_read);
        outcome.occupancy_max = outcome.occupancy_max.max(entries as u32);
    }

    /// Judges an eviction. A flow of one packet so far has no gap; then it is as active as a read
    /// can show.
    fn judge_eviction(&mut self, key: Key, ends: Instant, is_pausing: bool) {
        match is_pausing {
            true => self.outcome.evicted_pausing += 1,
            false => self.outcome.evicted += 1,
        }
        let Some(flow) = self.flows.get_mut(&key.0) else {
            return;
        };
        let gap = flow.gap.unwrap_or(POLL_MIN);
        let is_within = self.now.since(flow.sent) <= gap;
        flow.evicted = is_within.then_some(Eviction {
            until: ends.min(self.now + gap),
            is_pausing,
        });
    }

    fn finish(self) -> Outcome {
        let measured_ns = (self.duration - self.duration / 4).as_nanos();
        let mean = |sum: u128| sum as f64 / measured_ns as f64;
        let counts = self.controller.counts;
        Outcome {
            alive_mean: mean(self.alive_ns),
            occupancy_mean: mean(self.occupancy_ns),
            adds: self.outcome.adds - counts.renewals.min(self.outcome.adds),
            counts,
            ..self.outcome
        }
    }
}
