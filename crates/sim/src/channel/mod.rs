//! The control channel of one switch as a discrete-event model, with the production classifier and
//! scheduler at both ends.
//!
//! ```text
//!  target ┐                                                        ┌ delay
//!  cross  ┼ switch: classifier, scheduler, FIFO below, wire ─────▶ │ controller
//!         │                                                        │
//!  sink   ◀ ───── wire, FIFO below, scheduler, classifier: ────────┴ cross
//! ```
//!
//! The target makes a packet-in for each of its packets and waits for the packet-out: a
//! transaction. A transaction whose message is lost starts again after the retry time, as in the
//! published model (over a real channel nothing is sent twice). Cross traffic from its own sources
//! loads either direction. Time and seed are arguments, so equal arguments give equal outcomes.

mod arrivals;
pub(crate) mod event;
mod line;
mod traffic;

use clock::{Duration, Instant, SplitMix64};
use openflow::PortNo;
use sched::classify::DataVerdict;
use sched::policy::PolicyMap;
use sched::{Binding, Classifier, Direction, Tag};

pub use arrivals::Arrivals;
pub use event::EventQueue;
pub use line::{LineSetup, LineTally};
pub use traffic::{HEADER_BYTES, MESSAGE_BYTES, Traffic};

pub(crate) use arrivals::Source;
use line::{Line, Message, Owner};
use traffic::{Pool, Sending};

/// The simulated channel and its load.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policy map of both ends.
    pub map: PolicyMap,
    pub line: LineSetup,
    /// Time the controller takes for an answer. `controller_jitter` adds a uniformly random share
    /// of itself. Without jitter, answers keep step with the wire: in a run, either all or none of
    /// them would find the queue full.
    pub controller: Duration,
    pub controller_jitter: Duration,
    /// Time the model charges a packet-in for its classification.
    pub classification: Duration,
    pub target: Target,
    pub cross: Vec<Cross>,
    pub retry: Retry,
    /// Whether the controller answers the target. If not, a transaction is done when its packet-in
    /// arrives.
    pub is_answered: bool,
    /// Time during which transactions begin.
    pub duration: Duration,
    /// Maximum time after that for transactions still under way.
    pub drain: Duration,
}

/// The flows whose delay is measured. Every packet misses the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    pub udp_dst: u16,
    pub per_second: f64,
    pub arrivals: Arrivals,
}

/// A source of other traffic in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cross {
    pub direction: Direction,
    pub traffic: Traffic,
    pub per_second: f64,
    pub arrivals: Arrivals,
}

/// Time after which a transaction without an answer is tried again, and the number of retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    pub after: Duration,
    pub times: u8,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Transactions begun, done with the first attempt, done, and given up after all attempts. The
    /// others were under way when the run ended.
    pub begun: u64,
    pub done_at_once: u64,
    pub done: u64,
    pub given_up: u64,
    /// Messages of the target sent by switch and controller, retries included, and those lost.
    pub messages: u64,
    pub messages_lost: u64,
    /// Delay of each completed transaction, from its first packet-in to the packet-out.
    pub delays_ns: Vec<u64>,
    /// Time to the controller of each first packet-in that arrived.
    pub one_way_ns: Vec<u64>,
    /// Messages offered and lost, for each cross source.
    pub cross: Vec<(u64, u64)>,
    /// Counts of the line to the controller and of the line to the switch.
    pub lines: [LineTally; 2],
    /// Time at which the run ended.
    pub virtual_time: Duration,
}

impl Setup {
    /// The number of 220-byte messages per second that fills the line.
    pub fn capacity_per_second(&self) -> f64 {
        self.line.rate_bps as f64 / (8 * MESSAGE_BYTES) as f64
    }

    pub fn run(&self, seed: u64) -> Outcome {
        let mut run = Run::new(self, seed);
        let begin_until = Instant::START + self.duration;
        let end = begin_until + self.drain;
        while let Some((now, event)) = run.events.pop() {
            let is_over = now > begin_until;
            if now > end || is_over && run.open == 0 {
                break;
            }
            match event {
                Event::Target if is_over => {}
                event => run.handle(now, event),
            }
            run.outcome.virtual_time = now.since(Instant::START);
        }
        run.outcome.lines = run.lines.map(|line| line.tally);
        run.outcome
    }
}

/// The channel of the target's switch, and the one that stands for the channel of data packets.
const CHANNEL: u64 = 1;
const DATA_CHANNEL: u64 = 2;
/// The in-ports of target packets and of data packets.
const TARGET_PORT: u32 = 1;
const CROSS_PORT: u32 = 2;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next packet of the target.
    Target,
    /// The next message of a cross source.
    Cross(u8),
    /// A message is classified and goes to its line.
    Offer {
        to_switch: bool,
        owner: Owner,
    },
    /// The wire of a line has sent a message.
    Sent {
        to_switch: bool,
    },
    PacketIn {
        transaction: u32,
        attempt: u8,
    },
    PacketOut {
        transaction: u32,
        attempt: u8,
    },
    Retry {
        transaction: u32,
        attempt: u8,
    },
}

struct Run<'a> {
    setup: &'a Setup,
    events: EventQueue<Event>,
    classifier: Classifier,
    lines: [Line; 2],
    target: Option<Source>,
    target_pools: [Pool; 2],
    cross: Vec<CrossSource>,
    transactions: Vec<Transaction>,
    /// Transactions that are neither done nor given up.
    open: usize,
    lost: Vec<Owner>,
    jitter: SplitMix64,
    outcome: Outcome,
}

struct CrossSource {
    source: Option<Source>,
    direction: Direction,
    pool: Pool,
}

struct Transaction {
    begun: Instant,
    /// Done or given up.
    is_closed: bool,
}

const DIRECTIONS: [Direction; 2] = [Direction::ToController, Direction::ToSwitch];

impl<'a> Run<'a> {
    fn new(setup: &'a Setup, seed: u64) -> Run<'a> {
        let mut seeds = SplitMix64::new(seed);
        let target = &setup.target;
        let source = Source::new(target.arrivals, target.per_second, seeds.next());
        let of_target = Traffic::Packets {
            udp_dst: target.udp_dst,
            in_port: TARGET_PORT,
        };
        let cross = setup.cross.iter().map(|cross| CrossSource {
            source: Source::new(cross.arrivals, cross.per_second, seeds.next()),
            direction: cross.direction,
            pool: Pool::new(cross.traffic, cross.direction),
        });
        let mut run = Run {
            setup,
            events: EventQueue::default(),
            classifier: Classifier::new(&setup.map),
            lines: DIRECTIONS.map(|d| Line::new(d, setup.line, &setup.map.scheduling)),
            target: source,
            target_pools: DIRECTIONS.map(|direction| Pool::new(of_target, direction)),
            cross: cross.collect(),
            transactions: Vec::new(),
            open: 0,
            lost: Vec::new(),
            jitter: SplitMix64::new(seeds.next()),
            outcome: Outcome {
                cross: vec![(0, 0); setup.cross.len()],
                ..Outcome::default()
            },
        };
        run.schedule_target();
        (0..setup.cross.len()).for_each(|n| run.schedule_cross(n as u8));
        run
    }

    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Target => {
                self.schedule_target();
                let transaction = self.transactions.len() as u32;
                self.outcome.begun += 1;
                self.open += 1;
                self.transactions.push(Transaction {
                    begun: now,
                    is_closed: false,
                });
                self.attempt(now, transaction, 0);
            }
            Event::Cross(n) => {
                self.schedule_cross(n);
                let to_switch = self.cross[usize::from(n)].direction == Direction::ToSwitch;
                self.offer(now, to_switch, Owner::Cross(n));
            }
            Event::Offer { to_switch, owner } => self.offer(now, to_switch, owner),
            Event::Sent { to_switch } => self.handle_sent(now, to_switch),
            Event::PacketIn {
                transaction,
                attempt,
            } => self.handle_packet_in(now, transaction, attempt),
            Event::PacketOut {
                transaction,
                attempt,
            } => self.handle_done(now, transaction, attempt),
            Event::Retry {
                transaction,
                attempt,
            } => {
                let state = &mut self.transactions[transaction as usize];
                if state.is_closed {
                    return;
                }
                if attempt < self.setup.retry.times {
                    return self.attempt(now, transaction, attempt + 1);
                }
                state.is_closed = true;
                self.outcome.given_up += 1;
                self.open -= 1;
            }
        }
    }

    fn schedule_target(&mut self) {
        if let Some(source) = &mut self.target {
            self.events.push(source.next(), Event::Target);
        }
    }

    fn schedule_cross(&mut self, n: u8) {
        if let Some(source) = &mut self.cross[usize::from(n)].source {
            self.events.push(source.next(), Event::Cross(n));
        }
    }

    fn attempt(&mut self, now: Instant, transaction: u32, attempt: u8) {
        let owner = Owner::Target {
            transaction,
            attempt,
        };
        let offer = Event::Offer {
            to_switch: false,
            owner,
        };
        let retry = Event::Retry {
            transaction,
            attempt,
        };
        self.events.push(now + self.setup.classification, offer);
        self.events.push(now + self.setup.retry.after, retry);
    }

    /// Classifies a message of `owner` and gives it to its line.
    fn offer(&mut self, now: Instant, to_switch: bool, owner: Owner) {
        let direction = DIRECTIONS[usize::from(to_switch)];
        let sending = match owner {
            Owner::Target { .. } => {
                self.outcome.messages += 1;
                self.target_pools[usize::from(to_switch)].next()
            }
            Owner::Cross(n) => {
                self.outcome.cross[usize::from(n)].0 += 1;
                self.cross[usize::from(n)].pool.next()
            }
        };
        let tag = match sending {
            Sending::Message(frame) => Tag {
                bytes: (frame.len() + HEADER_BYTES) as u32,
                ..self
                    .classifier
                    .classify(frame, direction, CHANNEL, None)
                    .tag
            },
            Sending::Packet(packet) => {
                let verdict = self.classifier.classify_data(PortNo(CROSS_PORT), packet);
                data_tag(&verdict, packet.len() as u32)
            }
        };
        let message = Message {
            wire_bytes: tag.bytes,
            owner,
            entered: now,
        };
        self.lines[usize::from(to_switch)].offer(now, tag, message, &mut self.lost);
        self.start(now, to_switch);
    }

    fn start(&mut self, now: Instant, to_switch: bool) {
        if let Some(sent_at) = self.lines[usize::from(to_switch)].start(now, &mut self.lost) {
            self.events.push(sent_at, Event::Sent { to_switch });
        }
        for owner in self.lost.drain(..) {
            match owner {
                Owner::Target { .. } => self.outcome.messages_lost += 1,
                Owner::Cross(n) => self.outcome.cross[usize::from(n)].1 += 1,
            }
        }
    }

    fn handle_sent(&mut self, now: Instant, to_switch: bool) {
        let (arrives, message) = self.lines[usize::from(to_switch)].finish(now);
        if let Owner::Target {
            transaction,
            attempt,
        } = message.owner
        {
            let event = match to_switch {
                false => Event::PacketIn {
                    transaction,
                    attempt,
                },
                true => Event::PacketOut {
                    transaction,
                    attempt,
                },
            };
            self.events.push(arrives, event);
        }
        self.start(now, to_switch);
    }

    fn handle_packet_in(&mut self, now: Instant, transaction: u32, attempt: u8) {
        if attempt == 0 {
            let begun = self.transactions[transaction as usize].begun;
            self.outcome
                .one_way_ns
                .push(now.since(begun).as_nanos() as u64);
        }
        if !self.setup.is_answered {
            return self.handle_done(now, transaction, attempt);
        }
        let owner = Owner::Target {
            transaction,
            attempt,
        };
        let answer = Event::Offer {
            to_switch: true,
            owner,
        };
        let jitter = self.setup.controller_jitter.as_nanos() as u64;
        let jitter = Duration::from_nanos(self.jitter.next() % (jitter + 1));
        self.events
            .push(now + self.setup.controller + jitter, answer);
    }

    fn handle_done(&mut self, now: Instant, transaction: u32, attempt: u8) {
        let transaction = &mut self.transactions[transaction as usize];
        if std::mem::replace(&mut transaction.is_closed, true) {
            return;
        }
        self.open -= 1;
        let delay = now.since(transaction.begun);
        self.outcome.delays_ns.push(delay.as_nanos() as u64);
        self.outcome.done += 1;
        self.outcome.done_at_once += u64::from(attempt == 0);
    }
}

/// The tag of a data packet for a scheduler.
fn data_tag(verdict: &DataVerdict, bytes: u32) -> Tag {
    Tag {
        queue: verdict.queue,
        dscp: verdict.dscp,
        binding: Binding::Free,
        domain: 0,
        channel: DATA_CHANNEL,
        port: CROSS_PORT,
        bytes,
        shed: None,
    }
}
