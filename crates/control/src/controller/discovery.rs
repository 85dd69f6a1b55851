//! Discovery: sends LLDP out of every port and judges the LLDP that comes in.
//!
//! An LLDP frame counts as lost only when it should have arrived: the sending switch has answered a
//! barrier sent after the frame, and the switch at the other end has answered a barrier sent after
//! that answer. So when a switch, a relay, a machine or a controller stops, no frames count as
//! lost, and its silence breaks no link. The controller asks for a barrier only where LLDP is late
//! and where a port comes up.

mod pace;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Budget, Duration, Instant};
use openflow::message::{Port, PortState as PortBits};
use openflow::{DatapathId, Message, PortNo};

use crate::Location;
use crate::lldp::{self, LldpError, Outstanding, Prover};

use super::config::ControllerConfig;
use super::event::Alarm;
use super::known::Link;
use super::links::{Heard, Removed};
use super::network::Network;
use super::outbox::{Outbox, Request, Timer};
use super::port_state::{Ends, MEMORY, Pasts, PortRole, PortState};
use pace::Pace;

/// Lost LLDP frames in a row that end a link. At 30 % loss that happens to a link once in two days.
const LOST_MAX: usize = 10;

/// LLDP frames per interval while some are missing, so that ten lost frames take about three
/// intervals.
const SENDS_WHILE_LATE: u32 = 5;

/// LLDP frames per interval while a port is held, so that lost frames do not make a link an edge.
const SENDS_WHILE_HELD: u32 = 5;

/// The number of LLDP frames of a port for each full-size frame, while full-size frames arrive.
const WIDE_EVERY: u32 = 8;

/// Minimum time between two LLDP frames of one port.
const SEND_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Maximum time from packet-out to packet-in, where the control paths are not late themselves.
/// Hosts that relay LLDP are detected by the hosts seen at their ports, not by time.
const NONCE_AGE_MAX: Duration = Duration::from_secs(2);

/// Frames in a row that bring back a link that fell silent. A link that loses nine of ten frames
/// stays down, and does not flap.
const IN_A_ROW: u32 = 3;

/// How long LLDP must pass a port that had hosts, while no host sends there, before it is a link.
const HOLD_DOWN: Duration = Duration::from_secs(30);

/// How long edges and links known from another controller may wait for their switches to connect.
const EXPECTED_FOR: Duration = Duration::from_secs(10);

/// A location that sorts before every port.
const FIRST: Location = Location::new(DatapathId(0), PortNo(0));

const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// LLDP frames of all switches: 20,000 a second. When a large network comes up, all ports are held
/// at once, and unpaced frames would be shed where they arrive.
const PACE: Pace = Pace::new(100, Duration::from_millis(5));

/// The interval of LLDP for each port that exists: 10,000 frames a second in a large network, so
/// that half of the turns are left to ports that come up and links that are late.
const INTERVAL_PER_PORT: Duration = Duration::from_micros(100);

/// LLDP is sent at multiples of this time only, so that a large network wakes the controller 200
/// times a second and not for each frame.
const SLOT_NS: u64 = 5_000_000;

/// LLDP frames of one switch: 4,000 a second, so that a switch with many ports that come and go
/// takes no more than a fifth of the turns.
const SWITCH_PACE: Pace = Pace::new(100, Duration::from_millis(25));

pub(super) struct Discovery {
    prover: Prover,
    /// Time between two LLDP frames to the same port, while none is missing.
    interval: Duration,
    /// The EtherType of the fabric's tag: with it, full-size frames show whether links carry it.
    tag: Option<u16>,
    /// How long a new port neither learns nor is flooded to.
    port_hold: Duration,
    request_timeout: Duration,
    pulses: BTreeMap<DatapathId, Pulse>,
    ports: BTreeMap<Location, ProbedPort>,
    past: Pasts,
    pace: Pace,
    round: Round,
    /// Ports that another controller knew as edges a moment ago, of switches about to connect.
    expected: BTreeMap<DatapathId, (Instant, BTreeSet<PortNo>)>,
    /// Links that the other controller knew, and the time until which they are expected.
    expected_links: (Instant, BTreeSet<Link>),
    /// All LLDP that was certainly sent before this time has arrived or is lost.
    heard_everywhere: Instant,
}

/// LLDP of one port, and the damping of its changes.
struct ProbedPort {
    /// The earliest end of discovery's first chance.
    held_until: Instant,
    lldp_due: Instant,
    /// The turns that the due frame has, and the time of the last of them.
    turns: (Turns, Instant),
    lldp_sent_at: Option<Instant>,
    /// LLDP frames since the hold began, and when there were enough of them.
    lldp_sent_held: u32,
    held_sent_at: Option<Instant>,
    outstanding: Outstanding,
    /// Full-size frames. Each was sent at the time of a small one.
    wide: Outstanding,
    wide_count: u32,
    lldp_budget: Budget,
    changed_at: Instant,
    /// The latest state, not applied yet because the port flaps; `Some(None)` is a deletion.
    pending: Option<Option<Port>>,
}

/// A property of a link that LLDP has shown.
pub(super) enum Shown {
    /// It is up from now on.
    Link(Location, Location),
    /// It drops full-size frames with a tag, and did not before.
    Narrow(Location, Location),
    /// It carries such frames in both directions, and was not known to.
    Wide,
}

/// The turns of an LLDP frame that is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    None,
    /// One among the frames of its switch.
    Switch,
    /// One among all frames as well.
    All,
}

/// A port whose LLDP is due.
pub(super) struct Due {
    is_fresh: bool,
    last: Option<Instant>,
}

/// LLDP and barriers of one switch.
struct Pulse {
    pace: Pace,
    /// When the oldest outstanding barrier was asked for, and the latest.
    asked: Option<Instant>,
    asked_last: Instant,
    /// Whether another barrier is wanted after the answer.
    is_wanted_again: bool,
    /// When barriers were asked for and answered, the latest last.
    answers: VecDeque<(Instant, Instant)>,
    /// Barriers in a row that were not answered although the session lives.
    unanswered: u32,
}

const ANSWERS_MAX: usize = 16;

/// Time after which a barrier without an answer is requested again. A switch that has lost a
/// barrier, or its answer, must not hold up its own ports, nor a round of all switches. cbench
/// loses messages for a tenth of a second every 1.1 s: an interval of a second would hit that time
/// again and again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// A barrier of every switch: after the round, every LLDP frame sent before it has arrived at the
/// other end, or is lost. One round at a time serves all ports that wait for one.
#[derive(Default)]
struct Round {
    /// When the round under way began, and the switches that have not answered.
    started: Option<Instant>,
    waiting: BTreeSet<DatapathId>,
    /// Switches with ports that wait for a round that begins no earlier than this.
    wanted: BTreeMap<DatapathId, Instant>,
    /// The earliest start of the next round.
    due: Instant,
}

/// Time between the starts of two rounds, for each switch that exists.
const ROUND_INTERVAL: Duration = Duration::from_micros(20);

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse {
            pace: SWITCH_PACE,
            asked: None,
            asked_last: Instant::START,
            is_wanted_again: false,
            answers: VecDeque::new(),
            unanswered: 0,
        }
    }
}

impl Pulse {
    /// The time until which the switch has carried out all messages sent to it.
    fn done_until(&self) -> Instant {
        self.answers
            .back()
            .map_or(Instant::START, |(asked, _)| *asked)
    }

    /// When the controller learned that the switch had carried out everything sent until `sent`.
    fn done_by(&self, sent: Instant) -> Option<Instant> {
        let mut answers = self.answers.iter();
        let answer = answers.find(|(asked, _)| *asked >= sent);
        answer.map(|(_, answered)| *answered)
    }

    /// The time until which frames sent by this switch would have been reported by `other` if they
    /// had arrived.
    fn heard_until(&self, other: &Pulse) -> Option<Instant> {
        let known = other.done_until();
        let mut answers = self.answers.iter().rev();
        let answer = answers.find(|(_, answered)| *answered <= known);
        answer.map(|(asked, _)| *asked)
    }

    /// Whether a barrier is outstanding, and none was answered for `interval`.
    fn is_silent(&self, now: Instant, interval: Duration) -> bool {
        let answered = self.answers.back().map(|(_, answered)| *answered);
        let since = self
            .asked
            .map(|asked| answered.map_or(asked, |at| at.max(asked)));
        since.is_some_and(|since| now.since(since) >= interval)
    }

    /// The time that the switch took for its last answer.
    fn round_trip(&self) -> Option<Duration> {
        self.answers
            .back()
            .map(|(asked, answered)| answered.since(*asked))
    }

    /// Notes an answer, which also counts as the answer to earlier barriers.
    fn handle_answer(&mut self, now: Instant, asked: Instant) {
        if asked < self.done_until() {
            return;
        }
        self.asked = (asked < self.asked_last).then_some(self.asked_last);
        if self.answers.len() == ANSWERS_MAX {
            self.answers.pop_front();
        }
        self.answers.push_back((asked, now));
        self.unanswered = 0;
    }

    /// Forgets the requests of a session that has ended.
    fn handle_down(&mut self) {
        self.asked = None;
        self.is_wanted_again = false;
        self.unanswered = 0;
    }
}

impl ProbedPort {
    fn new(now: Instant) -> ProbedPort {
        ProbedPort {
            held_until: now,
            lldp_due: now,
            turns: (Turns::None, now),
            lldp_sent_at: None,
            lldp_sent_held: 0,
            held_sent_at: None,
            outstanding: Outstanding::default(),
            wide: Outstanding::default(),
            wide_count: 0,
            lldp_budget: Budget::new(now, 20, 40),
            changed_at: now,
            pending: None,
        }
    }

    /// Begins discovery's first chance.
    fn hold(&mut self, now: Instant, hold: Duration) {
        self.held_until = now + hold;
        self.lldp_sent_held = 0;
        self.held_sent_at = None;
    }
}

impl Discovery {
    pub(super) fn new(config: &ControllerConfig, prover: Prover) -> Discovery {
        Discovery {
            prover,
            interval: config.lldp_interval,
            tag: config.fabric.map(|fabric| fabric.tag),
            port_hold: config.port_hold,
            request_timeout: config.requests.timeout,
            pulses: BTreeMap::new(),
            ports: BTreeMap::new(),
            past: Pasts::default(),
            pace: PACE,
            round: Round::default(),
            expected: BTreeMap::new(),
            expected_links: (Instant::START, BTreeSet::new()),
            heard_everywhere: Instant::START,
        }
    }

    /// Applies new times. Returns the ports whose LLDP is now due sooner, with the new due time.
    pub(super) fn set_times(
        &mut self,
        now: Instant,
        config: &ControllerConfig,
    ) -> Vec<(Location, Instant)> {
        self.port_hold = config.port_hold;
        let is_shorter = config.lldp_interval < self.interval;
        self.interval = config.lldp_interval;
        if !is_shorter {
            return Vec::new();
        }
        let due = now + self.interval;
        let later = self
            .ports
            .iter_mut()
            .filter(|(_, port)| port.lldp_due > due);
        let sooner = later.map(|(at, port)| {
            port.lldp_due = due;
            (*at, due)
        });
        sooner.collect()
    }

    pub(super) fn handle_up(&mut self, dpid: DatapathId) {
        self.pulses.entry(dpid).or_default();
    }

    /// Forgets a switch. Returns whether there was one.
    pub(super) fn forget(&mut self, now: Instant, net: &mut Network, dpid: DatapathId) -> bool {
        let Some(switch) = net.forget(dpid) else {
            return false;
        };
        self.pulses.remove(&dpid);
        self.expected.remove(&dpid);
        for (port, known) in switch.ports {
            let at = Location { dpid, port };
            self.ports.remove(&at);
            self.past.note(now, at, known.state.past());
        }
        true
    }

    /// Whether a port's LLDP is due.
    pub(super) fn due(&self, net: &Network, now: Instant, at: Location) -> Option<Due> {
        let connected = net.is_connected(at.dpid);
        let is_edge = net.is_stated_edge(at);
        let (known, port) = (net.port(at)?, self.ports.get(&at)?);
        if !known.state.is_up() || port.lldp_due > now || !connected || is_edge {
            return None;
        }
        Some(Due {
            is_fresh: known.state.is_fresh(),
            last: port.lldp_sent_at,
        })
    }

    /// Takes the turns of a port's LLDP that is due. Returns whether all have come; if not, the
    /// port's timer fires again at the next turn.
    pub(super) fn has_turn(&mut self, now: Instant, at: Location, outbox: &mut Outbox) -> bool {
        let (Some(port), Some(pulse)) = (self.ports.get_mut(&at), self.pulses.get_mut(&at.dpid))
        else {
            return false;
        };
        loop {
            let (turns, comes) = port.turns;
            if comes > now {
                return false;
            }
            port.turns = match turns {
                Turns::None => (Turns::Switch, pulse.pace.turn(now)),
                Turns::Switch => (Turns::All, self.pace.turn(now)),
                Turns::All => {
                    port.turns = (Turns::None, now);
                    return true;
                }
            };
            if port.turns.1 > now {
                outbox.timer(port.turns.1, Timer::Lldp(at));
            }
        }
    }

    /// Sends a port's LLDP that is due, and asks for the barriers that show whether it was lost.
    pub(super) fn send_due(
        &mut self,
        net: &Network,
        now: Instant,
        (at, due): (Location, Due),
        outbox: &mut Outbox,
    ) {
        let Due { is_fresh, last } = due;
        let late: Vec<Location> = net
            .links
            .proofs_from(at)
            .filter(|(_, proof)| !proof.is_link || last.is_some_and(|last| proof.heard < last))
            .map(|(to, _)| to)
            .filter(|to| net.is_connected(to.dpid))
            .collect();
        let interval = self
            .interval
            .max(INTERVAL_PER_PORT * self.ports.len() as u32);
        let next = if is_fresh {
            self.port_hold / SENDS_WHILE_HELD
        } else if !late.is_empty() {
            interval / SENDS_WHILE_LATE
        } else {
            // 90 to 110 %, so that the switches of a network do not send in step. The ports of one
            // switch do: one write takes all of their frames.
            let jitter = clock::mix(at.dpid.0 ^ clock::mix(now.0)) % 100;
            interval * (900 + 2 * jitter as u32) / 1000
        };
        let due = now + next.max(SEND_INTERVAL_MIN.min(interval));
        let due = Instant(due.as_nanos().next_multiple_of(SLOT_NS));
        if let Some(port) = self.ports.get_mut(&at) {
            port.lldp_due = due;
        }
        outbox.timer(due, Timer::Lldp(at));
        // A switch that does not answer gets no more frames: it would have to catch up later.
        let pulse = self.pulses.get(&at.dpid);
        if pulse.is_some_and(|pulse| pulse.is_silent(now, interval)) {
            if pulse.is_some_and(|pulse| now.since(pulse.asked_last) >= ASK_AGAIN) {
                self.ask_pulse(now, at.dpid, outbox);
            }
            return;
        }
        self.send_lldp(net, now, at, outbox);
        let port = self.ports.get(&at);
        let is_held = port.is_some_and(|p| is_fresh && p.held_sent_at.is_some());
        if is_held || !late.is_empty() {
            self.ask_pulse(now, at.dpid, outbox);
        }
        for to in late {
            self.ask_pulse(now, to.dpid, outbox);
        }
    }

    fn send_lldp(&mut self, net: &Network, now: Instant, at: Location, outbox: &mut Outbox) {
        let (Some(known), Some(port)) = (net.port(at), self.ports.get_mut(&at)) else {
            return;
        };
        port.lldp_sent_at = Some(now);
        port.lldp_sent_held += 1;
        if port.lldp_sent_held == SENDS_WHILE_HELD {
            port.held_sent_at = Some(now);
        }
        // Only switches are sent frames larger than usual LLDP.
        let (mut is_link, mut is_known) = (false, true);
        for (_, proof) in net.links.proofs_from(at) {
            is_link = true;
            is_known &= proof.is_wide;
        }
        if let Some(tag) = self.tag.filter(|_| is_link) {
            port.wide_count += 1;
            if !is_known || port.wide_count.is_multiple_of(WIDE_EVERY) {
                let frame = self.prover.frame(now, at, known.hw_addr, &mut port.wide);
                outbox.packet_out(at.dpid, &[at.port], &lldp::widen(frame, tag));
            }
        }
        // The small frame is sent last, so that a new link is known to carry full-size frames.
        let outstanding = &mut port.outstanding;
        let frame = self.prover.frame(now, at, known.hw_addr, outstanding);
        outbox.counters.lldp_sent += 1;
        outbox.packet_out(at.dpid, &[at.port], &frame);
    }

    /// Sends the next LLDP out of `at` now.
    fn lldp_now(&mut self, now: Instant, at: Location, outbox: &mut Outbox) {
        if let Some(port) = self.ports.get_mut(&at) {
            port.lldp_due = now;
            outbox.timer(now, Timer::Lldp(at));
        }
    }

    /// Sends the next LLDP soon out of a port that may be an end of an unknown link.
    pub(super) fn probe(&mut self, now: Instant, at: Location, outbox: &mut Outbox) {
        let Some(port) = self.ports.get_mut(&at) else {
            return;
        };
        let last = port.lldp_sent_at;
        let due = last.map_or(now, |last| now.max(last + SEND_INTERVAL_MIN));
        if due < port.lldp_due {
            port.lldp_due = due;
            outbox.timer(due, Timer::Lldp(at));
        }
    }

    /// Sends LLDP out of all ports of a switch that are up: links that outlived its connection need
    /// a confirmation.
    pub(super) fn confirm_links(
        &mut self,
        net: &Network,
        now: Instant,
        dpid: DatapathId,
        outbox: &mut Outbox,
    ) {
        let ports = net.switch(dpid).into_iter().flat_map(|s| &s.ports);
        for (port, _) in ports.filter(|(_, known)| known.state.is_up()) {
            self.lldp_now(now, Location { dpid, port: *port }, outbox);
        }
    }

    /// Asks a switch for a barrier, if none was asked for just now.
    fn ask_pulse(&mut self, now: Instant, dpid: DatapathId, outbox: &mut Outbox) {
        let Some(pulse) = self.pulses.get_mut(&dpid) else {
            return;
        };
        if pulse.asked.is_some() && now.since(pulse.asked_last) < ASK_AGAIN {
            pulse.is_wanted_again = true;
            return;
        }
        let request = Request::Pulse { asked: now };
        let asked = outbox.request(now, dpid, request, &Message::BarrierRequest);
        if asked.is_some() {
            pulse.asked.get_or_insert(now);
            pulse.asked_last = now;
            pulse.is_wanted_again = false;
        }
    }

    /// Notes that a switch has answered a barrier. Returns whether there is such a switch.
    pub(super) fn pulse_answered(
        &mut self,
        now: Instant,
        (dpid, asked): (DatapathId, Instant),
        outbox: &mut Outbox,
    ) -> bool {
        let Some(pulse) = self.pulses.get_mut(&dpid) else {
            return false;
        };
        pulse.handle_answer(now, asked);
        if std::mem::take(&mut pulse.is_wanted_again) {
            self.ask_pulse(now, dpid, outbox);
        }
        true
    }

    /// Notes a barrier without an answer: the session has ended, or it lives and the request
    /// timeout has passed. Returns whether the barrier counts as answered. A switch that leaves two
    /// barriers unanswered answers no barriers: a session that is silent for that long ends.
    pub(super) fn pulse_unanswered(
        &mut self,
        net: &Network,
        now: Instant,
        (dpid, asked): (DatapathId, Instant),
        outbox: &mut Outbox,
    ) -> Option<bool> {
        let pulse = self.pulses.get_mut(&dpid)?;
        if !net.is_connected(dpid) {
            pulse.handle_down();
            return Some(false);
        }
        if pulse.asked != Some(asked) {
            return None;
        }
        pulse.unanswered += 1;
        if pulse.unanswered >= 2 {
            return Some(true);
        }
        pulse.asked = None;
        self.ask_pulse(now, dpid, outbox);
        Some(false)
    }

    /// Whether a barrier requested at this time belongs to the round under way.
    pub(super) fn is_of_round(&self, asked: Instant) -> bool {
        self.round.started.is_some_and(|started| asked >= started)
    }

    /// Notes that a switch has answered, or will not. Returns the switches with ports that waited
    /// for the round, if it is over.
    pub(super) fn round_answered(&mut self, dpid: DatapathId) -> Option<Vec<DatapathId>> {
        let round = &mut self.round;
        round.waiting.remove(&dpid);
        let started = round.started.filter(|_| round.waiting.is_empty())?;
        round.started = None;
        let wanted = round.wanted.extract_if(.., |_, since| *since <= started);
        let ready: Vec<DatapathId> = wanted.map(|(dpid, _)| dpid).collect();
        self.heard_everywhere = self.heard_everywhere.max(started);
        Some(ready)
    }

    /// Begins a round if one is wanted and none is under way.
    pub(super) fn next_round(&mut self, net: &Network, now: Instant, outbox: &mut Outbox) {
        // A round that takes this long did not ask every switch: there were too many requests.
        let is_under_way = |started: Instant| now.since(started) < self.request_timeout;
        if self.round.started.is_some_and(is_under_way) || self.round.wanted.is_empty() {
            return;
        }
        if now < self.round.due {
            return outbox.timer(self.round.due, Timer::Round);
        }
        let connected: BTreeSet<DatapathId> = net.connected().map(|s| s.dpid).collect();
        if connected.is_empty() {
            return;
        }
        self.round.due = now + ROUND_INTERVAL * connected.len() as u32;
        self.round.started = Some(now);
        self.round.waiting.clone_from(&connected);
        for dpid in connected {
            self.ask_pulse(now, dpid, outbox);
        }
    }

    /// The time until which frames sent by one switch would have been reported by the other.
    fn heard_until(&self, from: DatapathId, to: DatapathId) -> Option<Instant> {
        self.pulses.get(&from)?.heard_until(self.pulses.get(&to)?)
    }

    /// Removes links and claims of a port whose LLDP is certainly lost.
    pub(super) fn remove_lost(&self, net: &mut Network, from: Location) -> Option<Removed> {
        let port = self.ports.get(&from)?;
        let up_since = |dpid| {
            let switch = net.switch(dpid);
            let up = switch.filter(|switch| switch.connection.is_some());
            up.map(|switch| switch.up_since)
        };
        let is_lost = |to: Location, heard: Instant| {
            // Frames under way when a session ended were lost with it.
            let sessions = up_since(from.dpid).zip(up_since(to.dpid));
            let until = self.heard_until(from.dpid, to.dpid);
            sessions.zip(until).is_some_and(|((a, b), until)| {
                port.outstanding.count(heard.max(a).max(b), until) >= LOST_MAX
            })
        };
        let proofs = net.links.proofs_from(from);
        let gone = proofs.filter(|(to, proof)| is_lost(*to, proof.heard));
        let gone: Vec<_> = gone.map(|(to, _)| (from, to)).collect();
        (!gone.is_empty()).then(|| net.links.remove(&gone))
    }

    /// Gives discovery another chance at a port that lost its claim: the other end may be another
    /// switch.
    pub(super) fn claim_lost(
        &mut self,
        net: &mut Network,
        now: Instant,
        at: Location,
        outbox: &mut Outbox,
    ) {
        let hold = self.port_hold;
        let is_left = net.links.ends(at) == Ends::default();
        let known = net.port_mut(at);
        let Some(known) = known.filter(|known| is_left && known.state.is_up()) else {
            return;
        };
        if !known.state.was_link() {
            known.state.handle_claim_lost();
            if let Some(port) = self.ports.get_mut(&at) {
                port.hold(now, hold);
            }
            self.lldp_now(now, at, outbox);
            outbox.timer(now + hold, Timer::HoldOver(at.dpid));
        }
    }

    /// Handles received LLDP of `len` bytes. `have_flows`: whether flows enter the network at
    /// either port. Returns the property of a link that the frame shows.
    pub(super) fn handle_lldp(
        &mut self,
        net: &mut Network,
        now: Instant,
        (to, data, len): (Location, &[u8], usize),
        have_flows: impl Fn(Location, Location) -> bool,
        outbox: &mut Outbox,
    ) -> Option<Shown> {
        let port = self.ports.get_mut(&to)?;
        if !port.lldp_budget.take(now) {
            outbox.counters.lldp_limited += 1;
            return None;
        }
        let read = match len >= lldp::WIDE_LEN {
            true => self.read_wide(net, to, data),
            false => {
                let believed = self.believe(net, now, to, data);
                believed.map(|(from, heard)| {
                    let was_narrow = net.links.is_narrow(from, to);
                    let is_up = self.passes(net, now, ((from, to), heard), have_flows, outbox);
                    let is_narrow = net.links.is_narrow(from, to);
                    match is_up {
                        true => Some(Shown::Link(from, to)),
                        false => (is_narrow && !was_narrow).then_some(Shown::Narrow(from, to)),
                    }
                })
            }
        };
        match read {
            Ok(shown) => {
                outbox.counters.lldp_accepted += 1;
                return shown;
            }
            Err(LldpError::NotOurs) => outbox.counters.lldp_foreign += 1,
            Err(LldpError::Late) => outbox.counters.lldp_late += 1,
            Err(LldpError::Forged(why)) => {
                outbox.counters.lldp_refused += 1;
                outbox.alarm_once(now, Alarm::LldpForged { at: to, why });
            }
        }
        None
    }

    /// Reads a full-size frame, which shows only that the link carries such frames.
    fn read_wide(
        &mut self,
        net: &mut Network,
        to: Location,
        data: &[u8],
    ) -> Result<Option<Shown>, LldpError> {
        let proven = self.prover.read(data)?;
        let sender = self.ports.get_mut(&proven.from).ok_or(LldpError::Late)?;
        sender.wide.take(proven.nonce)?;
        let is_wide = net.links.note_wide(proven.from, to);
        let is_usable = net.links.peer(proven.from) == Some(to);
        Ok((is_wide && is_usable).then_some(Shown::Wide))
    }

    /// The port that sent the frame, if everything about the frame is valid.
    fn believe(
        &mut self,
        net: &Network,
        now: Instant,
        to: Location,
        data: &[u8],
    ) -> Result<(Location, Heard), LldpError> {
        let proven = self.prover.read(data)?;
        let from = proven.from;
        let before = net.links.proof(from, to).map(|proof| proof.heard);
        let heard_until = self.heard_until(from.dpid, to.dpid);
        let excess = self.excess(from.dpid, to.dpid);
        let are_up = net.is_up(from) && net.is_up(to);
        if from == to {
            return Err(LldpError::NotOurs);
        }
        // The frame is proven to be ours, so its port has been removed since.
        let sender = self.ports.get_mut(&from).ok_or(LldpError::Late)?;
        let sent_at = sender.outstanding.take(proven.nonce)?;
        let age = now.since(sent_at);
        // A frame delayed by a silent control path is as good as when it was sent. A frame that
        // arrives later than it should have was delayed elsewhere.
        let is_overdue = heard_until.is_some_and(|until| until >= sent_at);
        // A port that was last reported down: its LLDP or its status is late.
        if (age > NONCE_AGE_MAX && is_overdue) || !are_up {
            return Err(LldpError::Late);
        }
        let is_wide_lost = before.is_some_and(|before| sender.wide.has(before));
        let is_next = before.is_some_and(|before| sender.outstanding.count(before, sent_at) == 0);
        let excess = excess.map(|of_paths| age.saturating_sub(of_paths));
        Ok((
            from,
            Heard {
                sent_at,
                is_next,
                is_wide_lost,
                excess,
            },
        ))
    }

    /// The time that LLDP from one switch to the other spends on the control paths: half a round
    /// trip of each.
    fn excess(&self, from: DatapathId, to: DatapathId) -> Option<Duration> {
        let of = |dpid| self.pulses.get(&dpid).and_then(Pulse::round_trip);
        Some((of(from)? + of(to)?) / 2)
    }

    /// Notes that LLDP passes from one port to another. From now on neither is an edge. Returns
    /// whether they are ends of a link from now on.
    fn passes(
        &mut self,
        net: &mut Network,
        now: Instant,
        ((from, to), heard): ((Location, Location), Heard),
        have_flows: impl Fn(Location, Location) -> bool,
        outbox: &mut Outbox,
    ) -> bool {
        let ends = [(from, to), (to, from)];
        let stated = ends
            .into_iter()
            .find_map(|(at, to)| Some((at, to, net.edge_setting(at)?)));
        if let Some((at, to, setting)) = stated {
            outbox.counters.lldp_refused += 1;
            outbox.alarm_once(now, Alarm::PortIsLink { at, to, setting });
            return false;
        }
        let is_new = net.links.proof(from, to).is_none();
        let proof = *net.links.note(now, (from, to), heard);
        if proof.is_link {
            return false;
        }
        if is_new {
            // LLDP is wanted in the other direction as well, and the next frame of this direction
            // soon.
            self.lldp_now(now, from, outbox);
            if net.links.proof(to, from).is_none() {
                self.lldp_now(now, to, outbox);
            }
        }
        if net.enforces_links() && !net.says_link(from, to) {
            outbox.counters.lldp_refused += 1;
            outbox.alarm_once(now, Alarm::LinkNotStated { from, to });
            return false;
        }
        // Entries of an earlier process may name hosts at these ports.
        if !net.is_synced(from.dpid) || !net.is_synced(to.dpid) {
            return false;
        }
        let had_hosts = had_hosts(net, now, from, to);
        if had_hosts && now.since(proof.quiet_since) < HOLD_DOWN {
            outbox.counters.lldp_refused += 1;
            let why = "relayed over a port with hosts";
            outbox.alarm_once(now, Alarm::LldpForged { at: to, why });
            return false;
        }
        let state = |at| net.port(at).map(|port| &port.state);
        let was_link = [from, to].map(|at| state(at).is_some_and(|state| state.was_link()));
        let is_silent = was_link.contains(&true) && !net.links.is_link(to, from);
        if is_silent && proof.in_a_row < IN_A_ROW {
            return false;
        }
        if had_hosts && have_flows(from, to) {
            // The port's hosts send packets, according to the entries.
            net.links.disturb(now, from);
            return false;
        }
        if had_hosts {
            let excess = proof.excess;
            outbox.alarm_once(now, Alarm::EdgeBecameLink { from, to, excess });
            // Two hosts that forward LLDP look the same.
            if !net.says_link(from, to) {
                net.links.doubt([from, to], now + MEMORY);
            }
        }
        true
    }

    /// Notes that a port is an end of a link from now on.
    pub(super) fn handle_link(&self, net: &mut Network, end: Location) {
        if let Some(port) = net.port_mut(end) {
            port.state.handle_link();
        }
    }

    /// Treats ports of a switch that is about to connect as edges without a hold: the switch's
    /// former controller knew them as edges.
    pub(super) fn expect_edges(&mut self, now: Instant, dpid: DatapathId, ports: BTreeSet<PortNo>) {
        self.expected.insert(dpid, (now + EXPECTED_FOR, ports));
    }

    /// Forgets what was expected at a port: another switch may be behind it by now.
    pub(super) fn expect_nothing(&mut self, at: Location) {
        if let Some((_, ports)) = self.expected.get_mut(&at.dpid) {
            ports.remove(&at.port);
        }
        let expected = &mut self.expected_links.1;
        let from_here = expected.range((at, FIRST)..);
        let from_here = from_here.take_while(|(from, _)| *from == at);
        let gone: Vec<Link> = from_here.copied().collect();
        for (from, to) in gone {
            expected.remove(&(from, to));
            expected.remove(&(to, from));
        }
    }

    /// Treats links of switches that are about to connect as links before LLDP has shown them: the
    /// switches' former controller knew them.
    pub(super) fn expect_links(&mut self, now: Instant, links: BTreeSet<Link>) {
        self.expected_links = (now + EXPECTED_FOR, links);
    }

    /// The expected links at a switch that are links from now on: both switches have reported their
    /// entries, both ports are up, and neither hosts nor the administrator contradict them. A link
    /// that is known in one direction only is left to LLDP.
    pub(super) fn settle_links(
        &mut self,
        net: &mut Network,
        now: Instant,
        dpid: DatapathId,
    ) -> Vec<Link> {
        let (until, expected) = &mut self.expected_links;
        if now >= *until {
            expected.clear();
        }
        let here = Location { dpid, ..FIRST };
        let from_here = expected.range((here, FIRST)..);
        let from_here = from_here.take_while(|(from, _)| from.dpid == dpid);
        let pairs = from_here.filter(|(from, to)| expected.contains(&(*to, *from)));
        let is_ready = |(_, to): &&Link| net.is_synced(to.dpid);
        let ready: Vec<Link> = pairs.filter(is_ready).copied().collect();
        let mut links = Vec::new();
        for (from, to) in ready {
            if !expected.remove(&(from, to)) {
                continue;
            }
            expected.remove(&(to, from));
            let is_free = |end| {
                let role = net.role_of_port(end);
                role == PortRole::Held && !net.is_stated_edge(end)
            };
            let is_stated = !net.enforces_links() || net.says_link(from, to);
            if is_stated && is_free(from) && is_free(to) && !had_hosts(net, now, from, to) {
                links.extend([(from, to), (to, from)]);
            }
        }
        let heard = Heard {
            sent_at: now,
            is_next: false,
            is_wide_lost: false,
            excess: None,
        };
        for link in &links {
            net.links.note(now, *link, heard);
        }
        links
    }

    /// Makes edges of ports whose hold is over and whose LLDP certainly went out without an answer.
    /// Returns whether there are any.
    pub(super) fn settle_ports(
        &mut self,
        net: &mut Network,
        now: Instant,
        dpid: DatapathId,
    ) -> bool {
        let mut is_any = false;
        let expected = self.expected.remove(&dpid);
        let expected = expected.filter(|(until, _)| now < *until);
        for port in expected.map_or(BTreeSet::new(), |(_, ports)| ports) {
            let at = Location { dpid, port };
            if net.role_of_port(at) == PortRole::Held
                && let Some(port) = net.port_mut(at)
            {
                port.state.settle(now);
                is_any = true;
            }
        }
        let (Some(switch), Some(pulse)) = (net.switch(dpid), self.pulses.get(&dpid)) else {
            return is_any;
        };
        let ports = switch
            .ports
            .iter()
            .filter(|(_, known)| known.state.is_fresh());
        // When the LLDP of its hold was certainly sent, and when the controller learned that.
        let sent = ports.filter_map(|(no, _)| {
            let at = Location { dpid, port: *no };
            let port = self.ports.get(&at)?;
            let known = pulse.done_by(port.held_sent_at?)?;
            Some((at, known, port.held_until <= now))
        });
        let sent: Vec<(Location, Instant, bool)> = sent.collect();
        for (at, known, is_over) in sent {
            if net.role_of_port(at) != PortRole::Held {
                continue;
            }
            if known > self.heard_everywhere {
                let wanted = self.round.wanted.entry(dpid).or_insert(known);
                *wanted = known.max(*wanted);
            } else if let Some(port) = net.port_mut(at).filter(|_| is_over) {
                port.state.settle(now);
                is_any = true;
            }
        }
        is_any
    }

    /// Takes a port's new state. Returns it if it is to be applied now; a state that comes too soon
    /// after the last change waits.
    pub(super) fn damp(
        &mut self,
        now: Instant,
        at: Location,
        state: Option<Port>,
        outbox: &mut Outbox,
    ) -> Option<Option<Port>> {
        let Some(port) = self.ports.get_mut(&at) else {
            return Some(state);
        };
        let calm = port.pending.is_none() && now.since(port.changed_at) >= CHANGE_INTERVAL;
        if calm {
            return Some(state);
        }
        let due = port.changed_at + CHANGE_INTERVAL;
        let first = port.pending.replace(state).is_none();
        if first {
            outbox.timer(due, Timer::PortChange(at));
        }
        None
    }

    /// Takes a port's state that has waited.
    pub(super) fn take_pending(&mut self, at: Location) -> Option<Option<Port>> {
        self.ports.get_mut(&at)?.pending.take()
    }

    /// Applies a port's state, or its deletion. Returns whether it is up, if that has changed.
    pub(super) fn apply_port(
        &mut self,
        net: &mut Network,
        now: Instant,
        (at, state): (Location, Option<&Port>),
    ) -> Option<bool> {
        let was_up = net.is_up(at);
        let is_live = state.is_some_and(|port| port.state.contains(PortBits::LIVE));
        // A switch that monitors a link, for example by BFD, detects its failure before LLDP does.
        let was_live = net.port(at).is_some_and(|port| port.state.was_live());
        let is_dead = was_live && !is_live && net.is_end(at);
        let is_up = state.is_some_and(Port::is_up) && !is_dead;
        if let Some(state) = state {
            let past = &mut self.past;
            let fresh = || PortState::new(past.recall(at));
            let known = net.set_port(at, state, fresh)?;
            let fresh = || ProbedPort::new(now);
            let port = self.ports.entry(at).or_insert_with(fresh);
            port.pending = None;
            if is_live {
                known.state.handle_live();
            }
            if is_up && !was_up {
                known.state.handle_up();
                port.changed_at = now;
                port.lldp_due = now;
                port.turns = (Turns::None, now);
                port.hold(now, self.port_hold);
            } else if !is_up {
                port.changed_at = if was_up { now } else { port.changed_at };
                known.state.handle_down(now);
            }
        } else if let Some(mut known) = net.remove_port(at) {
            self.ports.remove(&at);
            known.state.handle_down(now);
            self.past.note(now, at, known.state.past());
        }
        (is_up != was_up).then_some(is_up)
    }
}

/// Whether either port had hosts at a time when the other port could not have let them through.
fn had_hosts(net: &Network, now: Instant, from: Location, to: Location) -> bool {
    let past = |at| net.port(at).map(|port| port.state.past());
    let (Some(a), Some(b)) = (past(from), past(to)) else {
        return false;
    };
    a.speaks_against(now, &b) || b.speaks_against(now, &a)
}
