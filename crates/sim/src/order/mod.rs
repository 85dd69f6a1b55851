//! Random messages through a scheduler and a network that delays, loses and interleaves, under
//! virtual time: does anything come out in an order that OpenFlow does not allow?
//!
//! [`Experiment::run`] makes the messages, carries them, and judges each as it comes out. Equal
//! arguments give the same run, instant by instant; [`Report::digest`] shows it. Each protection
//! can be removed, to show that the judge detects the violations that it prevents.

mod law;
mod pair;
mod script;

use bytes::BytesMut;
use clock::{Duration, Fnv1a, Instant, SplitMix64};
use openflow::{Frame, Version};
use relay::OrderMode;
use sched::policy::{PolicyMap, Rule};
use sched::{Binding, Classifier, Direction, Scheduler};

use crate::channel::{Arrivals, EventQueue, Source};
use law::Judge;
use pair::Pair;
use script::{DOMAIN_SHIFT, DOMAINS, Script};

pub use script::Traffic;

/// The messages of an experiment, and the carrier and network that they cross.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The number of messages of all channels in both directions.
    pub messages: u64,
    pub traffic: Traffic,
    /// Number of connections, alternately of OpenFlow 1.3 and 1.0.
    pub channels: u16,
    pub map: PolicyMap,
    pub carrier: Carrier,
    pub network: Network,
    pub relay: RelayTerms,
    /// Load offered to each direction of the network, as a share of its rate, in bursts.
    pub load: f64,
}

/// The settings of a relay pair that flags can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayTerms {
    /// Maximum number of bytes under way or held, per channel and direction.
    pub window_bytes: usize,
    /// Whether every message is sent a second time by datagram.
    pub is_copied: bool,
    pub order: OrderMode,
}

impl Default for RelayTerms {
    fn default() -> RelayTerms {
        RelayTerms {
            window_bytes: 4 << 20,
            is_copied: false,
            order: OrderMode::Strict,
        }
    }
}

/// The carrier of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Two relay sessions, with one stream for each lane.
    RelayPair,
    /// Two relay sessions, with messages taken off the streams as they arrive: nothing holds them
    /// back.
    RelayPairUnheld,
    /// The scheduler and a wire: messages come out in the scheduler's order.
    Scheduler,
    /// A scheduler for which no message is bound to another, and a wire.
    SchedulerUnbound,
}

/// The path between the two ends, in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    pub rate_bps: u64,
    pub delay: Duration,
    /// The largest extra delay, evenly distributed from zero to this, and drawn for each packet.
    pub jitter: Duration,
    /// Chance that a packet is lost, in millionths. Its stream sends it again after `resend`.
    pub loss_ppm: u32,
    pub resend: Duration,
    /// When the connection breaks, to be resumed soon after. Only between relays.
    pub breaks: Breaks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaks {
    Never,
    /// A break after each period of this length, while there are messages to send.
    Every(Duration),
    /// This number of breaks, spread evenly over the messages as they are made.
    Times(u64),
}

/// The result of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub sent: u64,
    pub delivered: u64,
    /// Packet-ins that the schedulers shed, by their own count.
    pub shed: u64,
    /// Messages that came out against the law, changed or twice, and the first few of them.
    pub violations: u64,
    pub examples: Vec<String>,
    /// Messages that may not be shed and did not come out.
    pub lost: u64,
    /// Messages that came out after a later one, which is the purpose of scheduling.
    pub overtaken: u64,
    pub breaks: u64,
    /// Whether messages stopped coming out though there were more to send.
    pub is_deadlocked: bool,
    pub virtual_time: Duration,
    /// The sum, over all messages to the switch, of the time from a message's arrival at its relay
    /// until the other relay hands it over.
    pub delay: Duration,
    pub delayed: u64,
    /// A digest of the messages that came out, with the place and time of each.
    pub digest: u64,
}

impl Report {
    /// The mean delay of a message to the switch.
    pub fn mean_delay(&self) -> Duration {
        let nanos = self.delay.as_nanos() / u128::from(self.delayed.max(1));
        Duration::from_nanos(nanos as u64)
    }
}

/// `map` with the domains that messages have in keyed mode, by xid.
pub fn with_domains(mut map: PolicyMap) -> PolicyMap {
    let mask = !0 << DOMAIN_SHIFT;
    let mut rules = Vec::new();
    for domain in 1..DOMAINS {
        for rule in &map.rules {
            rules.push(Rule {
                id: 1 + rules.len() as u16,
                direction: Some(Direction::ToSwitch),
                xid: Some((u32::from(domain) << DOMAIN_SHIFT, mask)),
                domain,
                ..rule.clone()
            });
        }
    }
    for rule in &map.rules {
        rules.push(Rule {
            id: 1 + rules.len() as u16,
            ..rule.clone()
        });
    }
    map.rules = rules;
    map
}

const EXAMPLES_MAX: usize = 5;
/// Mean bytes of a message that a script makes, to turn a load into a rate.
const MEAN_MESSAGE_BYTES: f64 = 170.0;

impl Experiment {
    /// Messages a second in each direction at a load of 1.
    pub fn per_second_at_full_load(rate_bps: u64) -> f64 {
        rate_bps as f64 / 8.0 / MEAN_MESSAGE_BYTES
    }

    pub fn run(&self, seed: u64) -> Report {
        match self.carrier {
            Carrier::RelayPair => Pair::new(self, seed, true).run(),
            Carrier::RelayPairUnheld => Pair::new(self, seed, false).run(),
            Carrier::Scheduler => self.run_scheduler(seed, true),
            Carrier::SchedulerUnbound => self.run_scheduler(seed, false),
        }
    }

    /// Runs both directions, one after the other: they share nothing.
    fn run_scheduler(&self, seed: u64, is_bound: bool) -> Report {
        let mut report = Report::default();
        let mut seeds = SplitMix64::new(seed);
        for direction in DIRECTIONS {
            let talks = self.talks(direction, &mut seeds);
            Wire::new(self, direction, talks, is_bound).run(&mut report);
        }
        report
    }

    /// The sequence of messages of each channel in one direction.
    fn talks(&self, direction: Direction, seeds: &mut SplitMix64) -> Vec<Talk> {
        let count = u64::from(self.channels.max(1)) * 2;
        let per_second = Experiment::per_second_at_full_load(self.network.rate_bps);
        let per_second = per_second * self.load * 2.0 / count as f64;
        let arrivals = match self.traffic {
            Traffic::FlowMods { .. } => Arrivals::Poisson,
            Traffic::Strict | Traffic::Keyed => Arrivals::Bursts {
                on: Duration::from_millis(20),
                off: Duration::from_millis(20),
            },
        };
        let talk = |n: u64| Talk {
            script: Script::new(
                direction,
                if n.is_multiple_of(2) {
                    Version::V13
                } else {
                    Version::V10
                },
                self.traffic,
                seeds.next(),
            ),
            judge: Judge::new(direction),
            source: Source::new(arrivals, per_second, seeds.next()).expect("a load above zero"),
            left: self.messages / count
                + u64::from(direction == Direction::ToSwitch && n == 0) * (self.messages % count),
            unread: BytesMut::new(),
            came: Vec::new(),
        };
        (0..count / 2).map(talk).collect()
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::ToController, Direction::ToSwitch];

/// One channel in one direction.
#[derive(Debug)]
struct Talk {
    script: Script,
    judge: Judge,
    source: Source,
    left: u64,
    /// Bytes made that the session has not taken yet.
    unread: BytesMut,
    /// Time at which each message was made, by number.
    came: Vec<Instant>,
}

impl Talk {
    fn next(&mut self, now: Instant) -> Option<Frame> {
        self.left = self.left.checked_sub(1)?;
        let made = self.script.next();
        self.judge.handle_sent(&made);
        self.came.push(now);
        Some(made.frame)
    }

    /// Time since a message of this talk was made.
    fn age(&self, now: Instant, frame: &Frame) -> Duration {
        let number = frame.xid().0 & ((1 << DOMAIN_SHIFT) - 1);
        let came = self.came.get(number as usize);
        came.map_or(Duration::ZERO, |came| now.since(*came))
    }
}

impl Report {
    fn judge(&mut self, now: Instant, channel: u64, judge: &mut Judge, frame: &Frame) {
        let words = [now.0, channel, u64::from(frame.xid().0)];
        let bytes = words.map(u64::to_be_bytes).concat();
        self.digest = self.digest.rotate_left(1) ^ Fnv1a::of(&bytes);
        self.virtual_time = self.virtual_time.max(now.since(Instant::START));
        if let Err(broken) = judge.handle_delivered(frame) {
            self.violations += 1;
            if self.examples.len() < EXAMPLES_MAX {
                self.examples.push(format!("channel {channel}: {broken}"));
            }
        }
    }

    fn conclude(&mut self, talk: &Talk) {
        let judge = &talk.judge;
        self.sent += judge.delivered + judge.missing();
        self.delivered += judge.delivered;
        self.lost += judge.lost();
        self.overtaken += judge.overtaken;
    }
}

/// A scheduler and a wire in one direction.
struct Wire<'a> {
    rate_bps: u64,
    classifier: Classifier,
    scheduler: Scheduler<Frame>,
    direction: Direction,
    is_bound: bool,
    talks: Vec<Talk>,
    map: &'a PolicyMap,
}

enum Step {
    Talk(usize),
    WireFree,
}

impl<'a> Wire<'a> {
    fn new(
        experiment: &'a Experiment,
        direction: Direction,
        talks: Vec<Talk>,
        is_bound: bool,
    ) -> Wire<'a> {
        let map = &experiment.map;
        Wire {
            rate_bps: experiment.network.rate_bps,
            classifier: Classifier::new(map),
            scheduler: Scheduler::new(direction, &map.scheduling),
            direction,
            is_bound,
            talks,
            map,
        }
    }

    fn run(mut self, report: &mut Report) {
        let mut events = EventQueue::default();
        for (n, talk) in self.talks.iter_mut().enumerate() {
            events.push(talk.source.next(), Step::Talk(n));
        }
        let (mut is_busy, mut number) = (false, 0);
        while let Some((now, step)) = events.pop() {
            match step {
                Step::WireFree => is_busy = false,
                // Above its bound the scheduler accepts nothing; the source tries again.
                Step::Talk(n) if !self.scheduler.has_room() => {
                    events.push(now + Duration::from_millis(1), Step::Talk(n));
                }
                Step::Talk(n) => {
                    if let Some(frame) = self.talks[n].next(now) {
                        number += 1;
                        self.push(now, n, number, frame);
                        events.push(self.talks[n].source.next().max(now), Step::Talk(n));
                    }
                }
            }
            report.shed += std::iter::from_fn(|| self.scheduler.poll_shed()).count() as u64;
            if is_busy {
                continue;
            }
            if let Some((tag, frame)) = self.scheduler.pop(now) {
                is_busy = true;
                let talk = &mut self.talks[tag.channel as usize];
                report.judge(now, tag.channel, &mut talk.judge, &frame);
                let nanos = frame.len() as u64 * 8 * 1_000_000_000 / self.rate_bps;
                events.push(now + Duration::from_nanos(nanos), Step::WireFree);
            }
        }
        report.lost += self.scheduler.len() as u64;
        self.talks.iter().for_each(|talk| report.conclude(talk));
    }

    fn push(&mut self, now: Instant, channel: usize, number: u64, frame: Frame) {
        debug_assert!(!self.map.scheduling.queues.is_empty());
        let verdict = self
            .classifier
            .classify(&frame, self.direction, channel as u64, None);
        let mut tag = verdict.tag;
        if !self.is_bound {
            tag.binding = Binding::Flow {
                key: number,
                after_state: false,
            };
        }
        self.scheduler.push(now, tag, frame);
    }
}
