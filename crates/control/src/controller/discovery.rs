//! Discovery: sends LLDP out of every port and judges the LLDP that comes in.
//!
//! An LLDP frame counts as lost only when it should have arrived: its own switch has answered a
//! barrier that was sent after it, and the switch at the other end has answered one that was sent
//! after that answer. So a switch, a relay, a machine or a controller that stops loses no frames,
//! and its silence breaks no link. The controller asks for a barrier only where LLDP is late and
//! where a port comes up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant};
use openflow::message::PacketIn;
use openflow::{DatapathId, MacAddr, Message};

use crate::lldp::LldpError;

use super::links::{Heard, Removed};
use super::outbox::Request;
use super::port_state::{Ends, MEMORY, PortRole};
use super::ports::Cause;
use super::switch::SwitchPort;
use super::{Alarm, Controller, Event, LinkPolicy, Location, Mode, Timer};

/// Lost LLDP frames in a row that end a link. At 30 % loss that happens to a link once in two days.
const LOST_MAX: usize = 10;

/// LLDP frames per interval while some are missing, so that ten lost frames take about three
/// intervals.
const SENDS_WHILE_LATE: u32 = 5;

/// LLDP frames per interval while a port is held, so that lost frames do not make a link an edge.
pub(super) const SENDS_WHILE_HELD: u32 = 5;

/// Minimum time between two LLDP frames of one port.
const SEND_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Maximum time from packet-out to packet-in, where the control paths are not late themselves.
/// Hosts that relay LLDP are detected by the hosts seen at their ports, not by time.
const NONCE_AGE_MAX: Duration = Duration::from_secs(2);

/// Frames in a row that bring back a link that fell silent. A link that loses nine of ten frames
/// stays away, and does not come and go all the time.
const IN_A_ROW: u32 = 3;

/// How long LLDP must pass a port that had hosts, while no host speaks there, before it is a link.
const HOLD_DOWN: Duration = Duration::from_secs(30);

/// LLDP and barriers of one switch.
#[derive(Default)]
pub(super) struct Pulse {
    /// When the outstanding barrier was asked for.
    asked: Option<Instant>,
    /// Whether another one is wanted after its answer.
    is_wanted_again: bool,
    /// When barriers were asked for and answered, the latest last.
    answers: VecDeque<(Instant, Instant)>,
    /// Barriers in a row that were not answered although the session lives.
    unanswered: u32,
}

const ANSWERS_MAX: usize = 16;

/// A barrier of every switch: after it, every LLDP frame that went out before has arrived at the
/// other end, or is lost. One round at a time serves all ports that wait for one.
#[derive(Default)]
pub(super) struct Round {
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

impl Pulse {
    /// The switch has carried out everything that was sent until this time.
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

    /// Frames sent by this switch until this time would have been heard at `other` if they had
    /// arrived.
    fn heard_until(&self, other: &Pulse) -> Option<Instant> {
        let known = other.done_until();
        let mut answers = self.answers.iter().rev();
        let answer = answers.find(|(_, answered)| *answered <= known);
        answer.map(|(asked, _)| *asked)
    }

    /// The time that the switch took for its last answer.
    fn round_trip(&self) -> Option<Duration> {
        self.answers
            .back()
            .map(|(asked, answered)| answered.since(*asked))
    }

    fn handle_answer(&mut self, now: Instant, asked: Instant) {
        if self.answers.len() == ANSWERS_MAX {
            self.answers.pop_front();
        }
        self.answers.push_back((asked, now));
        self.unanswered = 0;
    }

    /// Forgets the requests of a session that has ended.
    pub(super) fn handle_down(&mut self) {
        self.asked = None;
        self.is_wanted_again = false;
        self.unanswered = 0;
    }
}

impl Controller {
    pub(super) fn lldp_due(&mut self, now: Instant, at: Location) {
        if self.links.end_doubt(now, at) {
            self.routes_soon(now);
        }
        let connected = self.is_connected(at.dpid);
        let is_edge = self.is_stated_edge(at);
        let Some(port) = self.port(at) else {
            return;
        };
        if !port.state.is_up() || port.lldp_due > now || !connected || is_edge {
            return;
        }
        let is_fresh = port.state.is_fresh();
        let last = port.lldp_sent_at;
        self.forget_lost(now, at);
        let late: Vec<Location> = self
            .links
            .proofs_from(at)
            .filter(|(_, proof)| !proof.is_link || last.is_some_and(|last| proof.heard < last))
            .map(|(to, _)| to)
            .filter(|to| self.is_connected(to.dpid))
            .collect();
        let interval = self.config.lldp_interval;
        let next = if is_fresh {
            self.config.port_hold / SENDS_WHILE_HELD
        } else if !late.is_empty() {
            interval / SENDS_WHILE_LATE
        } else {
            // 90 to 110 %, so that the ports of a network do not send in step.
            let jitter = self.outbox.random() % 100;
            interval * (900 + 2 * jitter as u32) / 1000
        };
        let due = now + next.max(SEND_INTERVAL_MIN.min(interval));
        if let Some(port) = self.port_mut(at) {
            port.lldp_due = due;
        }
        self.outbox.timer(due, Timer::Lldp(at));
        // A switch that does not answer is not sent more: it would have to catch up later.
        let asked = self.pulse(at.dpid).and_then(|pulse| pulse.asked);
        if asked.is_some_and(|asked| now.since(asked) >= interval) {
            return;
        }
        self.send_lldp(now, at);
        let is_held = self
            .port(at)
            .is_some_and(|p| is_fresh && p.held_sent_at.is_some());
        if is_held || !late.is_empty() {
            self.ask_pulse(now, at.dpid);
        }
        for to in late {
            self.ask_pulse(now, to.dpid);
        }
    }

    fn send_lldp(&mut self, now: Instant, at: Location) {
        let Some(port) = self.port_mut(at) else {
            return;
        };
        let (hw_addr, mut outstanding) = (port.hw_addr, std::mem::take(&mut port.outstanding));
        port.lldp_sent_at = Some(now);
        port.lldp_sent_held += 1;
        if port.lldp_sent_held == SENDS_WHILE_HELD {
            port.held_sent_at = Some(now);
        }
        let frame = self.prover.frame(now, at, hw_addr, &mut outstanding);
        if let Some(port) = self.port_mut(at) {
            port.outstanding = outstanding;
        }
        self.outbox.counters.lldp_sent += 1;
        self.outbox.packet_out(at.dpid, &[at.port], &frame);
    }

    /// Sends the next LLDP out of `at` now.
    fn lldp_now(&mut self, now: Instant, at: Location) {
        if let Some(port) = self.port_mut(at) {
            port.lldp_due = now;
            self.outbox.timer(now, Timer::Lldp(at));
        }
    }

    fn pulse(&self, dpid: DatapathId) -> Option<&Pulse> {
        self.switches.get(&dpid).map(|switch| &switch.pulse)
    }

    /// Asks a switch for a barrier, if none is under way.
    fn ask_pulse(&mut self, now: Instant, dpid: DatapathId) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        if switch.pulse.asked.is_some() {
            switch.pulse.is_wanted_again = true;
            return;
        }
        let request = Request::Pulse { asked: now };
        if self
            .outbox
            .request(now, dpid, request, &Message::BarrierRequest)
            .is_some()
            && let Some(switch) = self.switches.get_mut(&dpid)
        {
            switch.pulse.asked = Some(now);
            switch.pulse.is_wanted_again = false;
        }
    }

    pub(super) fn pulse_answered(&mut self, now: Instant, dpid: DatapathId, asked: Instant) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        switch.pulse.handle_answer(now, asked);
        switch.pulse.asked = None;
        if std::mem::take(&mut switch.pulse.is_wanted_again) {
            self.ask_pulse(now, dpid);
        }
        if self.round.started.is_some_and(|started| asked >= started) {
            self.round_answered(now, dpid);
        }
        self.settle_ports(now, dpid);
    }

    /// Notes that a switch has answered, or will not.
    pub(super) fn round_answered(&mut self, now: Instant, dpid: DatapathId) {
        self.round.waiting.remove(&dpid);
        if let Some(started) = self.round.started.filter(|_| self.round.waiting.is_empty()) {
            self.round.started = None;
            let wanted = self
                .round
                .wanted
                .extract_if(.., |_, since| *since <= started);
            let ready: Vec<DatapathId> = wanted.map(|(dpid, _)| dpid).collect();
            self.heard_everywhere = self.heard_everywhere.max(started);
            for dpid in ready {
                self.settle_ports(now, dpid);
            }
            self.next_round(now);
        }
    }

    /// Begins a round if one is wanted and none is under way.
    pub(super) fn next_round(&mut self, now: Instant) {
        // A barrier that takes this long was not asked of every switch: there were too many
        // requests.
        let timeout = self.config.requests.timeout;
        let is_under_way = |started: Instant| now.since(started) < timeout;
        if self.round.started.is_some_and(is_under_way) || self.round.wanted.is_empty() {
            return;
        }
        if now < self.round.due {
            return self.outbox.timer(self.round.due, Timer::Round);
        }
        let connected = self.switches.values().filter(|s| s.connection.is_some());
        let connected: BTreeSet<DatapathId> = connected.map(|s| s.dpid).collect();
        if connected.is_empty() {
            return;
        }
        self.round.due = now + ROUND_INTERVAL * connected.len() as u32;
        self.round.started = Some(now);
        self.round.waiting.clone_from(&connected);
        for dpid in connected {
            self.ask_pulse(now, dpid);
        }
    }

    /// Handles a barrier without an answer: the session has ended, or it lives and the timeout of
    /// requests has passed. A switch that leaves two unanswered answers none: a session that is
    /// silent for that long ends.
    pub(super) fn pulse_unanswered(&mut self, now: Instant, dpid: DatapathId, asked: Instant) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        if switch.connection.is_none() {
            switch.pulse.handle_down();
            return self.round_answered(now, dpid);
        }
        switch.pulse.unanswered += 1;
        if switch.pulse.unanswered >= 2 {
            return self.pulse_answered(now, dpid, asked);
        }
        switch.pulse.asked = None;
        self.ask_pulse(now, dpid);
        self.round_answered(now, dpid);
    }

    /// Frames that left the one switch until this time would have been heard at the other.
    fn heard_until(&self, from: DatapathId, to: DatapathId) -> Option<Instant> {
        self.pulse(from)?.heard_until(self.pulse(to)?)
    }

    /// Removes links and claims of a port whose LLDP is certainly lost.
    fn forget_lost(&mut self, now: Instant, from: Location) {
        let Some(port) = self.port(from) else {
            return;
        };
        let up_since = |dpid| {
            let switch = self.switches.get(&dpid);
            let up = switch.filter(|switch| switch.connection.is_some());
            up.map(|switch| switch.up_since)
        };
        let is_lost = |to: Location, heard: Instant| {
            // Frames under way when a session ended went with it.
            let sessions = up_since(from.dpid).zip(up_since(to.dpid));
            let until = self.heard_until(from.dpid, to.dpid);
            sessions.zip(until).is_some_and(|((a, b), until)| {
                port.outstanding.count(heard.max(a).max(b), until) >= LOST_MAX
            })
        };
        let proofs = self.links.proofs_from(from);
        let gone = proofs.filter(|(to, proof)| is_lost(*to, proof.heard));
        let gone: Vec<_> = gone.map(|(to, _)| (from, to)).collect();
        if !gone.is_empty() {
            let removed = self.links.remove(&gone);
            self.links_lost(now, removed, Cause::Unknown, &[]);
        }
    }

    /// Handles the removal of links and claims, with `moved` hosts that were thought to be there:
    /// the consequences for ports and paths.
    pub(super) fn links_lost(
        &mut self,
        now: Instant,
        removed: Removed,
        cause: Cause,
        moved: &[MacAddr],
    ) {
        for end in removed.claims.iter().flat_map(|(from, to)| [*from, *to]) {
            self.claim_lost(now, end);
        }
        for (from, to) in removed.links {
            self.outbox.event(Event::LinkDown { from, to });
        }
        self.mend_paths(now, cause, moved);
        self.refresh_routes(now);
        self.topology_soon(now);
    }

    /// Gives discovery another chance at a port that lost its claim: the other end may be another
    /// switch.
    fn claim_lost(&mut self, now: Instant, at: Location) {
        let hold = self.config.port_hold;
        let is_left = self.links.ends(at) == Ends::default();
        let Some(port) = self
            .port_mut(at)
            .filter(|port| is_left && port.state.is_up())
        else {
            return;
        };
        if !port.state.was_link() {
            port.state.handle_claim_lost();
            port.hold(now, hold);
            self.lldp_now(now, at);
            self.outbox.timer(now + hold, Timer::HoldOver(at.dpid));
        }
    }

    pub(super) fn handle_lldp(&mut self, now: Instant, to: Location, packet_in: &PacketIn) {
        let Some(port) = self.port_mut(to) else {
            return;
        };
        if !port.lldp_budget.take(now) {
            self.outbox.counters.lldp_limited += 1;
            return;
        }
        match self.believe(now, to, &packet_in.data) {
            Ok((from, heard)) => {
                self.outbox.counters.lldp_accepted += 1;
                self.passes(now, from, to, heard);
            }
            Err(LldpError::NotOurs) => self.outbox.counters.lldp_foreign += 1,
            Err(LldpError::Late) => self.outbox.counters.lldp_late += 1,
            Err(LldpError::Forged(why)) => {
                self.outbox.counters.lldp_refused += 1;
                self.outbox
                    .alarm_once(now, Alarm::LldpForged { at: to, why });
            }
        }
    }

    /// The port that sent the frame, if everything about the frame is valid.
    fn believe(
        &mut self,
        now: Instant,
        to: Location,
        data: &[u8],
    ) -> Result<(Location, Heard), LldpError> {
        let proven = self.prover.read(data)?;
        let from = proven.from;
        let before = self.links.proof(from, to).map(|proof| proof.heard);
        let heard_until = self.heard_until(from.dpid, to.dpid);
        let excess = self.excess(from.dpid, to.dpid);
        let is_up = |at| self.port(at).is_some_and(|port| port.state.is_up());
        let are_up = is_up(from) && is_up(to);
        if from == to {
            return Err(LldpError::NotOurs);
        }
        // The frame is proven to be ours, so the port has gone since.
        let sender = self.port_mut(from).ok_or(LldpError::Late)?;
        let sent_at = sender.outstanding.take(proven.nonce)?;
        let age = now.since(sent_at);
        // A frame that a silent control path has kept is as good as when it was sent. A frame that
        // comes after it should have arrived was kept elsewhere.
        let is_overdue = heard_until.is_some_and(|until| until >= sent_at);
        // A port that was last reported down: its LLDP or its status is late.
        if (age > NONCE_AGE_MAX && is_overdue) || !are_up {
            return Err(LldpError::Late);
        }
        let is_next = before.is_some_and(|before| sender.outstanding.count(before, sent_at) == 0);
        let excess = excess.map(|of_paths| age.saturating_sub(of_paths));
        Ok((
            from,
            Heard {
                sent_at,
                is_next,
                excess,
            },
        ))
    }

    /// The time that LLDP from the one to the other spends on the control paths: half a round trip
    /// of each.
    fn excess(&self, from: DatapathId, to: DatapathId) -> Option<Duration> {
        let of = |dpid| self.pulse(dpid).and_then(Pulse::round_trip);
        Some((of(from)? + of(to)?) / 2)
    }

    /// Notes that LLDP passes from one port to another. From now on neither is an edge. Whether
    /// they are ends of a link is decided separately.
    fn passes(&mut self, now: Instant, from: Location, to: Location, heard: Heard) {
        for end in [from, to] {
            if self.is_stated_edge(end) {
                self.outbox.counters.lldp_refused += 1;
                let why = "over a port that is stated to be an edge";
                return self
                    .outbox
                    .alarm_once(now, Alarm::LldpForged { at: to, why });
            }
        }
        let is_new = self.links.proof(from, to).is_none();
        let proof = *self.links.note(now, (from, to), heard);
        if proof.is_link {
            return;
        }
        if is_new {
            // The other direction is wanted as well, and the next frame of this one soon.
            self.lldp_now(now, from);
            if self.links.proof(to, from).is_none() {
                self.lldp_now(now, to);
            }
        }
        if self.config.links == LinkPolicy::Enforce && !self.administered.says_link(from, to) {
            self.outbox.counters.lldp_refused += 1;
            return self
                .outbox
                .alarm_once(now, Alarm::LinkNotStated { from, to });
        }
        // Entries of an earlier process may name hosts at these ports.
        let is_read = |dpid| self.switches.get(&dpid).is_some_and(|s| s.synced);
        if !is_read(from.dpid) || !is_read(to.dpid) {
            return;
        }
        let had_hosts = self.had_hosts(now, from, to);
        if had_hosts && now.since(proof.quiet_since) < HOLD_DOWN {
            self.outbox.counters.lldp_refused += 1;
            let why = "relayed over a port with hosts";
            return self
                .outbox
                .alarm_once(now, Alarm::LldpForged { at: to, why });
        }
        let state = |at| self.port(at).map(|port| &port.state);
        let was_link = [from, to].map(|at| state(at).is_some_and(|state| state.was_link()));
        let is_silent = was_link.contains(&true) && !self.links.is_link(to, from);
        if is_silent && proof.in_a_row < IN_A_ROW {
            return;
        }
        if had_hosts && self.have_flows(from, to) {
            // Its hosts speak, according to the entries.
            self.links.disturb(now, from);
            return;
        }
        if had_hosts {
            let excess = proof.excess;
            self.outbox
                .alarm_once(now, Alarm::EdgeBecameLink { from, to, excess });
            // Two hosts that forward LLDP look the same.
            if !self.administered.says_link(from, to) {
                self.links.doubt([from, to], now + MEMORY);
            }
        }
        self.link_up(now, from, to);
    }

    /// Whether either port had hosts at a time when the other port could not have let them through.
    fn had_hosts(&self, now: Instant, from: Location, to: Location) -> bool {
        let past = |at| self.port(at).map(|port| port.state.past());
        let (Some(a), Some(b)) = (past(from), past(to)) else {
            return false;
        };
        a.speaks_against(now, &b) || b.speaks_against(now, &a)
    }

    /// Whether flows enter the network at either port.
    fn have_flows(&self, a: Location, b: Location) -> bool {
        let mut first = self.paths.hops().filter_map(|(_, hops)| hops.first());
        first.any(|hop| hop.entrance() == a || hop.entrance() == b)
    }

    fn link_up(&mut self, now: Instant, from: Location, to: Location) {
        self.links.establish(from, to);
        self.outbox.event(Event::LinkUp { from, to });
        for end in [from, to] {
            if let Some(port) = self.port_mut(end) {
                port.state.handle_link();
            }
            self.evict_hosts(now, end);
        }
        self.mend_paths(now, Cause::Unknown, &[]);
        if self.links.has_doubts() && self.config.mode != Mode::Hybrid {
            self.drain_paths(now);
        }
        self.routes_soon(now);
        self.adopt_soon(now);
    }

    /// Makes edges of ports whose hold is over and whose LLDP certainly went out without an answer.
    pub(super) fn settle_ports(&mut self, now: Instant, dpid: DatapathId) {
        let Some(switch) = self.switches.get(&dpid).filter(|switch| switch.synced) else {
            return;
        };
        let waits = |port: &SwitchPort| port.state.is_fresh() && port.held_until <= now;
        let ports = switch
            .ports
            .iter()
            .filter(|(_, port)| port.state.is_fresh());
        // When the LLDP of its hold was certainly sent, and when the controller learned that.
        let sent = ports.filter_map(|(no, port)| {
            let known = switch.pulse.done_by(port.held_sent_at?)?;
            Some((Location { dpid, port: *no }, known, waits(port)))
        });
        let sent: Vec<(Location, Instant, bool)> = sent.collect();
        let mut is_any = false;
        for (at, known, is_over) in sent {
            if self.role(now, at) != PortRole::Held {
                continue;
            }
            if known > self.heard_everywhere {
                let wanted = self.round.wanted.entry(dpid).or_insert(known);
                *wanted = known.max(*wanted);
            } else if let Some(port) = self.port_mut(at).filter(|_| is_over) {
                port.state.settle(now);
                is_any = true;
            }
        }
        if is_any {
            self.hold_over(now);
        }
        self.next_round(now);
    }
}
