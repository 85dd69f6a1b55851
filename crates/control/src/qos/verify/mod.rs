//! Decides whether packets get the treatment that entries of policies and circuits name: the queue,
//! the meter, the mark.
//!
//! No switch reports this. Open vSwitch's userspace datapath accepts `set_queue`, counts the
//! entry's packets, and sends every packet through queue 0 without an error. So the counters of
//! entries are compared with the counters of queues and meters, under the present traffic.
//!
//! Each kind of counter has its own delay. So the window of queue counters encloses the window of
//! entry counters on both sides: the packets that entries counted passed the queues within it.
//!
//! | counters | maximum delay |
//! | --- | --- |
//! | of entries | [`FLOWS_LATE`] |
//! | of meters, and of queues that the switch itself has | nothing |
//! | of queues in the kernel beside the switch | [`KEPT_LATE`] |
//!
//! A counter that goes back has restarted, and the window restarts with it. Limits of the proof:
//! other traffic in a queue counts towards it. For a mark, only the use of its entry is known, not
//! the packet that left; where the code point chooses the queue, the queue proves the mark.

mod claim;
mod series;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use clock::{Duration, Instant};
use openflow::{MeterId, PortNo};

use super::QueuesBy;
pub use claim::{Claim, Wants};
use series::Series;
pub use series::{Came, Counter, Readings};

/// Open vSwitch's delay of flow counts: half a second at most without load (`max-revalidator`).
pub const FLOWS_LATE: Duration = Duration::from_secs(1);
/// The delay of queue counts beside a switch: their keeper reads them every five seconds, and
/// writes them into the database.
pub const KEPT_LATE: Duration = Duration::from_secs(6);
/// The window of a regular check: in a longer window, the surplus at its ends matters less.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of readings of one switch's entries; the oldest is dropped.
const POINTS_MAX: usize = 64;
/// Time for which readings are kept: a window and the delays at its ends.
const KEPT: Duration = Duration::from_secs(90);
/// Fewer expected packets than this prove nothing: neighbours are resolved in another queue.
const FEW: u64 = 10;
/// A queue with less than one in this number of its entries' packets counts as empty: single
/// packets of other traffic have the same code point.
const SHARE_MIN: u128 = 10;
/// Above one in this number of packets, all count as arrived: some packets may be lost before the
/// port.
const SHARE_WHOLE: u128 = 2;

const NO_DATABASE: &str = "nobody reaches the database of the switch";

/// Whether a demand took effect. Worse effects compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The demand's entries counted nothing.
    NoTraffic,
    /// At least half of the counted packets arrived.
    Yes,
    Unknown,
    /// Between a tenth and half of them arrived.
    Partly,
    /// Less than a tenth arrived.
    No,
}

impl Effect {
    /// The effect, from the packets that entries counted and those that arrived where they were
    /// sent.
    pub fn of(counted: u64, came: u64) -> Effect {
        let (counted, came) = (u128::from(counted), u128::from(came));
        match counted {
            0 => Effect::NoTraffic,
            _ if came * SHARE_MIN < counted => Effect::No,
            _ if came * SHARE_WHOLE < counted => Effect::Partly,
            _ => Effect::Yes,
        }
    }

    /// The name, for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Effect::NoTraffic => "no traffic",
            Effect::Yes => "yes",
            Effect::Unknown => "unknown",
            Effect::Partly => "partly",
            Effect::No => "no",
        }
    }

    fn is_short(self) -> bool {
        matches!(self, Effect::No | Effect::Partly)
    }
}

/// The state of a port's queues, made beside a switch whose datapath ignores `set_queue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// No maker of queues has reported so far.
    Nobody,
    /// Failed, with the reason.
    Failed(String),
    /// The queues are made, without counts.
    Silent,
    Counts(BTreeMap<u32, Came>),
}

/// The recent counters of one switch.
#[derive(Clone, Debug)]
pub struct Watch {
    claims: Vec<Claim>,
    /// The group of each claim: claims that share queues are judged together.
    groups: Vec<usize>,
    points: VecDeque<(Instant, Vec<u64>)>,
    told: Series,
    kept: Series,
    /// The state of each port's queues, and since when.
    beside: BTreeMap<PortNo, (Beside, Instant)>,
}

/// The judgement of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub claim: Claim,
    /// Packets that the claim's entries counted.
    pub counted: u64,
    pub queue: Option<QueueVerdict>,
    pub meter: Option<MeterVerdict>,
    pub mark: Option<MarkProof>,
    /// The worst effect found.
    pub effect: Effect,
    pub why: Option<String>,
    /// The length of the window.
    pub window: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueVerdict {
    /// Packets counted by all entries that name the queue.
    pub expected: u64,
    /// Packets that the queue got, including those that it dropped for lack of room.
    pub got: u64,
    pub dropped: u64,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterVerdict {
    pub packets: u64,
    pub dropped: u64,
    pub effect: Effect,
}

/// The proof that packets get their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkProof {
    /// The code point has chosen the packets' queue.
    Queue,
    /// The entry that writes the mark counted the packets. The packets that left are not seen.
    Entry,
}

/// Two readings of entries, by their places.
#[derive(Clone, Copy)]
struct Window {
    first: usize,
    last: usize,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            claims: Vec::new(),
            groups: Vec::new(),
            points: VecDeque::new(),
            told: Series::new(Duration::ZERO),
            kept: Series::new(KEPT_LATE),
            beside: BTreeMap::new(),
        }
    }
}

impl Watch {
    /// Records the counts of entries, by their claims.
    pub fn note_entries(&mut self, now: Instant, counted: BTreeMap<Claim, u64>) {
        if !self.claims.iter().eq(counted.keys()) {
            self.claims = counted.keys().cloned().collect();
            self.groups = claim::groups(&self.claims);
            self.points.clear();
        }
        let counts: Vec<u64> = counted.into_values().collect();
        let last = self.points.back();
        if last.is_some_and(|(_, last)| counts.iter().zip(last).any(|(new, old)| new < old)) {
            self.points.clear();
        }
        self.points.push_back((now, counts));
        let is_old = |(at, _): &(Instant, Vec<u64>)| *at + KEPT < now;
        while self.points.len() > POINTS_MAX || self.points.front().is_some_and(is_old) {
            self.points.pop_front();
        }
    }

    /// Records the switch's report of its meters and queues.
    pub fn note_told(&mut self, now: Instant, readings: Readings) {
        self.told.note(now, readings);
    }

    /// Records the state of queues beside the switch.
    pub fn note_beside(&mut self, now: Instant, ports: BTreeMap<PortNo, Beside>) {
        let counts = ports.iter().filter_map(|(port, beside)| match beside {
            Beside::Counts(counts) => Some((*port, counts)),
            _ => None,
        });
        let readings = counts.flat_map(|(port, counts)| {
            let of = move |(queue, came): (&u32, &Came)| (Counter::Queue(port, *queue), *came);
            counts.iter().map(of)
        });
        let readings: Readings = readings.collect();
        let before = std::mem::take(&mut self.beside);
        let is_as_before = |port: &PortNo, new: &Beside| {
            let old = before.get(port).map(|(old, _)| std::mem::discriminant(old));
            old == Some(std::mem::discriminant(new))
        };
        // Counts from before this maker of the queues are not comparable.
        if !ports.iter().all(|(port, new)| is_as_before(port, new)) {
            self.kept.clear();
        }
        self.kept.note(now, readings);
        for (port, new) in ports {
            let since = before.get(&port).map(|(_, since)| *since);
            let since = since.filter(|_| is_as_before(&port, &new)).unwrap_or(now);
            self.beside.insert(port, (new, since));
        }
    }

    /// Notes that counters have restarted: earlier counts are not comparable.
    pub fn restart(&mut self) {
        self.points.clear();
        self.told.clear();
    }

    /// The verdict on each claim from the readings since `from`, within a [`WINDOW`] at most.
    pub fn judge(&self, now: Instant, from: Instant, by: QueuesBy) -> Vec<Verdict> {
        let series = match by {
            QueuesBy::SetQueue => Some(&self.told),
            QueuesBy::CodePoint => Some(&self.kept),
            QueuesBy::Nobody => None,
        };
        let judging = Judging {
            watch: self,
            now,
            by,
            any: self.window(now, from, None),
            queues: series.and_then(|series| {
                let window = self.window(now, from, Some(series))?;
                Some((series, window))
            }),
            meters: self
                .window(now, from, Some(&self.told))
                .map(|window| Meters::of(self, window, now)),
        };
        let places = 0..self.claims.len();
        let groups = judging.groups();
        places
            .map(|place| judging.verdict(place, &groups))
            .collect()
    }

    /// The longest window, ending as late as possible.
    fn window(&self, now: Instant, from: Instant, series: Option<&Series>) -> Option<Window> {
        let at = |place: &usize| self.at(*place);
        let ends = |place: &usize| series.is_none_or(|s| s.after(at(place), now).is_some());
        let last = (0..self.points.len()).rev().find(ends)?;
        let starts = |place: &usize| {
            let is_within = at(place) >= from && at(place) + WINDOW >= at(&last);
            is_within && series.is_none_or(|s| s.before(at(place)).is_some())
        };
        let first = (0..last).find(starts)?;
        Some(Window { first, last })
    }

    fn at(&self, point: usize) -> Instant {
        self.points[point].0
    }

    /// The growth of a claim's counter.
    fn grown(&self, window: Window, place: usize) -> u64 {
        let count = |point: usize| self.points[point].1[place];
        count(window.last).saturating_sub(count(window.first))
    }
}

/// The facts common to all claims of a switch.
struct Judging<'a> {
    watch: &'a Watch,
    now: Instant,
    by: QueuesBy,
    any: Option<Window>,
    queues: Option<(&'a Series, Window)>,
    meters: Option<Meters>,
}

/// The packets that reached meters in a window, and the packets counted by the entries that name
/// the meters.
struct Meters {
    window: Window,
    met: Readings,
    counted: BTreeMap<MeterId, u64>,
}

impl Meters {
    fn of(watch: &Watch, window: Window, now: Instant) -> Meters {
        let mut counted: BTreeMap<MeterId, u64> = BTreeMap::new();
        for (place, claim) in watch.claims.iter().enumerate() {
            if let Some(meter) = claim.meter {
                let of = counted.entry(meter).or_default();
                *of = of.saturating_add(watch.grown(window, place));
            }
        }
        let (from, to) = (watch.at(window.first), watch.at(window.last));
        let met = watch.told.grown(from, to, now);
        Meters {
            window,
            met,
            counted,
        }
    }

    /// The share of a meter's drops that falls on entries with this count: these packets reach no
    /// queue.
    fn dropped(&self, meter: MeterId, counted: u64) -> u64 {
        let dropped = self
            .met
            .get(&Counter::Meter(meter))
            .map_or(0, |met| met.dropped);
        let all = self.counted.get(&meter).copied().unwrap_or(0).max(1);
        let part = u128::from(dropped) * u128::from(counted) / u128::from(all);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

/// Claims that share queues, and these queues.
#[derive(Clone, Debug, Default)]
struct Group {
    expected: u64,
    queues: BTreeSet<(PortNo, u32)>,
    got: Came,
    /// Packets of all queues of these ports, and of their queue 0.
    anything: u64,
    zero: u64,
    /// Whether the group's entries may also have sent packets to ports without any of its queues.
    is_open: bool,
}

impl Judging<'_> {
    fn groups(&self) -> BTreeMap<usize, Group> {
        let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
        let Some((series, window)) = self.queues else {
            return groups;
        };
        let meters = Meters::of(self.watch, window, self.now);
        for (place, claim) in self.watch.claims.iter().enumerate() {
            if !claim.queues.is_empty() {
                let group = groups.entry(self.watch.groups[place]).or_default();
                let counted = self.watch.grown(window, place);
                let dropped = claim
                    .meter
                    .map_or(0, |meter| meters.dropped(meter, counted));
                group.expected = group
                    .expected
                    .saturating_add(counted.saturating_sub(dropped));
                group.queues.extend(&claim.queues);
                group.is_open |= claim.is_open;
            }
        }
        let (from, to) = (self.watch.at(window.first), self.watch.at(window.last));
        let grown = series.grown(from, to, self.now);
        for group in groups.values_mut() {
            let ports: BTreeSet<PortNo> = group.queues.iter().map(|(port, _)| *port).collect();
            for (counter, came) in &grown {
                let Counter::Queue(port, queue) = counter else {
                    continue;
                };
                if !ports.contains(port) {
                    continue;
                }
                group.anything = group.anything.saturating_add(came.all());
                if group.queues.contains(&(*port, *queue)) {
                    group.got.packets = group.got.packets.saturating_add(came.packets);
                    group.got.dropped = group.got.dropped.saturating_add(came.dropped);
                } else if *queue == 0 {
                    group.zero = group.zero.saturating_add(came.all());
                }
            }
        }
        groups
    }

    fn verdict(&self, place: usize, groups: &BTreeMap<usize, Group>) -> Verdict {
        let watch = self.watch;
        let claim = watch.claims[place].clone();
        let by_queues = (!claim.queues.is_empty()).then_some(self.queues).flatten();
        let window = by_queues.map(|(_, window)| window);
        let by_meter = self.meters.as_ref().filter(|_| claim.meter.is_some());
        let by_meter = by_meter.map(|meters| meters.window);
        let window = window.or(by_meter).or(self.any);
        let mut verdict = Verdict {
            counted: window.map_or(0, |window| watch.grown(window, place)),
            window: window.map_or(Duration::ZERO, |window| {
                watch.at(window.last) - watch.at(window.first)
            }),
            queue: None,
            meter: None,
            mark: None,
            effect: Effect::Unknown,
            why: None,
            claim,
        };
        if window.is_none() {
            verdict.why = Some("its counters have not been read for long enough".to_owned());
            return verdict;
        }
        if verdict.counted == 0 {
            verdict.effect = Effect::NoTraffic;
            return verdict;
        }
        verdict.effect = Effect::Yes;
        self.judge_queue(&mut verdict, groups.get(&watch.groups[place]));
        self.judge_meter(&mut verdict);
        if verdict.claim.mark.is_some() {
            let is_queue = |queue: QueueVerdict| queue.effect == Effect::Yes;
            let is_proved = verdict.claim.is_by_mark && verdict.queue.is_some_and(is_queue);
            verdict.mark = Some(match is_proved {
                true => MarkProof::Queue,
                false => MarkProof::Entry,
            });
        }
        verdict
    }

    fn judge_queue(&self, verdict: &mut Verdict, group: Option<&Group>) {
        if verdict.claim.lacks_queue {
            let why = match self.by {
                QueuesBy::Nobody => NO_DATABASE,
                _ => "its port has no queue for it",
            };
            return verdict.add(Effect::Unknown, why);
        }
        if verdict.claim.queues.is_empty() {
            return;
        }
        if let Some((effect, why)) = self.without_counters(verdict) {
            return verdict.add(effect, &why);
        }
        let Some(group) = group else {
            return verdict.add(
                Effect::Unknown,
                "the counters of its queue have not been read for long enough",
            );
        };
        let got = group.got.all();
        let found = Effect::of(group.expected, got);
        let mut queue = QueueVerdict {
            expected: group.expected,
            got,
            dropped: group.got.dropped,
            effect: found,
        };
        let mut why = String::new();
        if found.is_short() {
            let names: BTreeSet<u32> = group.queues.iter().map(|(_, queue)| *queue).collect();
            let names: Vec<String> = names.iter().map(u32::to_string).collect();
            let (names, expected) = (names.join(", "), group.expected);
            let _ = write!(why, "queue {names} got {got} of {expected} packets");
            if group.anything == 0 {
                queue.effect = Effect::Unknown;
                why.push_str(", and nothing at all was counted at the port");
            } else if group.expected < FEW {
                queue.effect = Effect::Unknown;
                why.push_str(", which is too few to tell");
            } else if group.is_open {
                queue.effect = Effect::Unknown;
                why.push_str("; the others may have left by ports without it");
            } else if group.zero > 0 {
                let _ = write!(why, ", queue 0 got {}", group.zero);
            }
        }
        verdict.queue = Some(queue);
        verdict.add(queue.effect, &why);
    }

    /// The verdict on a queue without counters.
    fn without_counters(&self, verdict: &Verdict) -> Option<(Effect, String)> {
        let ports = verdict.claim.queues.iter().map(|(port, _)| *port);
        match self.by {
            QueuesBy::Nobody => Some((Effect::Unknown, NO_DATABASE.to_owned())),
            QueuesBy::SetQueue => {
                let why = "the switch tells of no queues";
                let is_silent = !self.watch.told.has_queues();
                is_silent.then(|| (Effect::Unknown, why.to_owned()))
            }
            QueuesBy::CodePoint => ports.filter_map(|port| self.beside(port)).max(),
        }
    }

    fn beside(&self, port: PortNo) -> Option<(Effect, String)> {
        let Some((beside, since)) = self.watch.beside.get(&port) else {
            return Some((
                Effect::Unknown,
                format!("the database has said nothing of port {port}"),
            ));
        };
        let why = match beside {
            Beside::Counts(_) => return None,
            Beside::Silent => {
                let why = "its queues are made, and what keeps them tells no counters";
                return Some((Effect::Unknown, why.to_owned()));
            }
            Beside::Nobody => {
                "nobody beside the switch makes its queues (auster queues keep), and \
                               the userspace datapath has none: all is in queue 0"
                    .to_owned()
            }
            Beside::Failed(problem) => format!("its queues are not made: {problem}"),
        };
        let first = self.any.map(|window| self.watch.at(window.first));
        match first.is_some_and(|first| *since <= first) {
            true => Some((Effect::No, why)),
            false => Some((Effect::Unknown, why)),
        }
    }

    fn judge_meter(&self, verdict: &mut Verdict) {
        let Some(meter) = verdict.claim.meter else {
            return;
        };
        let Some(meters) = &self.meters else {
            return verdict.add(Effect::Unknown, "the switch tells no counters of its meter");
        };
        let Some(met) = meters.met.get(&Counter::Meter(meter)) else {
            return verdict.add(Effect::No, "the switch has no such meter");
        };
        let expected = meters.counted.get(&meter).copied().unwrap_or(0);
        let effect = Effect::of(expected, met.packets);
        verdict.meter = Some(MeterVerdict {
            packets: met.packets,
            dropped: met.dropped,
            effect,
        });
        let why = match effect.is_short() {
            true => format!("its meter met {} of {expected} packets", met.packets),
            false => String::new(),
        };
        verdict.add(effect, &why);
    }
}

impl Verdict {
    fn add(&mut self, effect: Effect, why: &str) {
        self.effect = self.effect.max(effect);
        if !why.is_empty() {
            self.why = Some(match self.why.take() {
                Some(before) => format!("{before}; {why}"),
                None => why.to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
