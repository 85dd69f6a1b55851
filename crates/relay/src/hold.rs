//! Holding first packets beside the switch, so that none of a flow is overtaken by those behind it.
//!
//! Of the packet-ins of one flow, that is of one port and the same addresses, the first goes to the
//! controller and the others wait here, in their order. When the entry comes that takes the first,
//! what waits is sent by packet-outs with the entry's actions, then the entry is handed to the switch,
//! and what the switch has sent up meanwhile follows it the same way. So the detour of the packets
//! behind the first is the way to this relay and not the way to the controller, and the entry becomes
//! active when none is on it but those of that short way.
//!
//! A packet-out alone says what becomes of one packet and not of the next: after it an entry is
//! awaited for [`ENTRY_WAIT`] more, and then what waits goes up as it would have. It goes up, in its
//! order, as well when it has waited for too long or is too much. Nothing is dropped here but what an
//! entry without actions drops.
//!
//! Packet-ins that wait are as if the switch had been slower to send them: other messages pass.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant};
use openflow::message::{FlowMod, FlowModCommand, PacketIn, PacketOut};
use openflow::packet::PacketFields;
use openflow::{
    Action, Field, Frame, Instruction, MacAddr, Match, Message, MessageKind, PortNo, TableId, Xid,
    decode, encode,
};

/// What may be held.
#[derive(Clone, Copy, Debug)]
pub struct HoldLimits {
    /// Frames of one flow.
    pub frames_max: usize,
    /// Bytes of all flows, packet-ins with their headers.
    pub bytes_max: usize,
    /// How long a flow waits for its entry.
    pub wait: Duration,
    /// Flows that wait; of one more nothing is held.
    pub flows_max: usize,
}

impl Default for HoldLimits {
    fn default() -> HoldLimits {
        HoldLimits {
            frames_max: 64,
            bytes_max: 1 << 20,
            wait: Duration::from_millis(200),
            flows_max: 1024,
        }
    }
}

/// For the entry of a packet that the controller has sent on; those that send both do so at once.
pub const ENTRY_WAIT: Duration = Duration::from_millis(20);

/// An entry that was handed to the switch may not be active for so long (Open vSwitch: up to 17 ms),
/// and what misses it meanwhile is sent from here.
const ENTRY_SETTLES: Duration = Duration::from_millis(50);

/// Entries that are remembered for so long; of older ones beyond that only their own flow's packets
/// are sent by them.
const ON_THEIR_WAY_MAX: usize = 256;

/// After a flow was given up it goes up as if it were not held.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// Of packet-outs that are made here.
const XID: Xid = Xid(0x686f_6c64);

/// Packets, or flows where it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldCounters {
    /// Flows of which the first packet went to the controller.
    pub flows: u64,
    pub held: u64,
    /// Sent with the actions of the entry that came for them.
    pub released: u64,
    /// The same, having missed that entry while it was on its way.
    pub followed: u64,
    /// Not taken by the entry that came for their flow: sent up.
    pub not_taken: u64,
    /// No entry came in time: sent up.
    pub timed_out: u64,
    /// There were too many, or what could not wait came behind them: sent up.
    pub overflowed: u64,
    /// Flows that were not held because too many were.
    pub flows_refused: u64,
}

impl HoldCounters {
    /// What one connection has counted from `before` to `after`.
    pub fn add_since(&mut self, before: &HoldCounters, after: &HoldCounters) {
        self.flows += after.flows - before.flows;
        self.held += after.held - before.held;
        self.released += after.released - before.released;
        self.followed += after.followed - before.followed;
        self.not_taken += after.not_taken - before.not_taken;
        self.timed_out += after.timed_out - before.timed_out;
        self.overflowed += after.overflowed - before.overflowed;
        self.flows_refused += after.flows_refused - before.flows_refused;
    }
}

/// For one connection of a switch. Frames in both directions go through it.
pub struct Hold {
    limits: HoldLimits,
    flows: BTreeMap<FlowKey, Flow>,
    /// Looked at when due: a flow that is on another one by then has left it behind.
    deadlines: BTreeSet<(Instant, FlowKey)>,
    asked_count: usize,
    held_bytes: usize,
    /// Entries handed to the switch a moment ago, the latest last.
    on_their_way: VecDeque<OnItsWay>,
    up: VecDeque<Frame>,
    down: VecDeque<Frame>,
    counters: HoldCounters,
}

/// Packets that must not overtake each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowKey {
    in_port: PortNo,
    src: MacAddr,
    dst: MacAddr,
    vlan: u16,
    /// IP addresses, protocol and ports; 0 where there are none.
    tuple: [u128; 5],
}

enum Flow {
    /// The first is with the controller.
    Asked(Asked),
    /// The entry has been handed to the switch.
    Set {
        until: Instant,
        r#match: Match,
        actions: Vec<Action>,
    },
    /// Nothing is held.
    GivenUp { until: Instant },
}

struct OnItsWay {
    until: Instant,
    entry: FlowMod,
}

struct Asked {
    due: Instant,
    first: PacketIn,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    frame: Frame,
    packet_in: PacketIn,
}

/// What becomes of packets that an entry takes.
enum Verdict {
    Actions(Vec<Action>),
    /// More than a packet-out can do.
    Unsayable,
}

impl Hold {
    pub fn new(limits: HoldLimits) -> Hold {
        Hold {
            limits,
            flows: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            asked_count: 0,
            held_bytes: 0,
            on_their_way: VecDeque::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            counters: HoldCounters::default(),
        }
    }

    /// A message of the switch.
    pub fn handle_up(&mut self, now: Instant, frame: Frame) {
        let Some((key, packet_in)) = read(&frame) else {
            return self.up.push_back(frame);
        };
        let is_whole = packet_in.buffer_id.is_none()
            && packet_in.data.len() >= usize::from(packet_in.total_len);
        if !is_whole {
            // It cannot be sent from here, and must not overtake what waits.
            self.give_up(now, &key, |counters| &mut counters.overflowed);
            return self.up.push_back(frame);
        }
        match self.flows.get_mut(&key) {
            Some(Flow::Asked(asked)) => {
                let len = frame.len();
                let is_full = asked.waiting.len() >= self.limits.frames_max
                    || self.held_bytes + len > self.limits.bytes_max;
                if is_full {
                    self.give_up(now, &key, |counters| &mut counters.overflowed);
                    return self.up.push_back(frame);
                }
                self.held_bytes += len;
                self.counters.held += 1;
                asked.waiting.push_back(Waiting::copy(&frame, packet_in));
            }
            Some(Flow::Set {
                until,
                r#match,
                actions,
            }) if *until > now && fields(&packet_in).matches(r#match) => {
                let out = packet_out(&frame, &packet_in, actions);
                self.counters.followed += u64::from(out.is_some());
                match out {
                    Some(out) => self.down.push_back(out),
                    None => self.up.push_back(frame),
                }
            }
            Some(Flow::GivenUp { until } | Flow::Set { until, .. }) if *until > now => {
                self.up.push_back(frame);
            }
            _ => match self.late_for(now, &packet_in, &frame) {
                Some(out) => {
                    self.counters.followed += 1;
                    self.down.push_back(out);
                }
                None => self.ask(now, key, frame, packet_in),
            },
        }
    }

    /// Messages of the controller, as they came in one piece.
    pub fn handle_down(&mut self, now: Instant, frames: impl IntoIterator<Item = Frame>) {
        let mut frames: VecDeque<Frame> = frames.into_iter().collect();
        while let Some(frame) = frames.pop_front() {
            match frame.kind() {
                MessageKind::PacketOut if self.asked_count > 0 => {
                    if let Ok(Message::PacketOut(message)) = decode(&frame) {
                        self.handle_packet_out(now, &message);
                    }
                    self.down.push_back(frame);
                }
                MessageKind::FlowMod => self.handle_flow_mod(now, frame, &mut frames),
                _ => self.down.push_back(frame),
            }
        }
    }

    /// What is for the controller.
    pub fn poll_up(&mut self) -> Option<Frame> {
        self.up.pop_front()
    }

    /// What is for the switch.
    pub fn poll_down(&mut self) -> Option<Frame> {
        self.down.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((due, _)) = self.deadlines.first()
            && *due <= now
        {
            let Some((due, key)) = self.deadlines.pop_first() else {
                return;
            };
            match self.flows.get(&key) {
                Some(Flow::Asked(asked)) if asked.due == due => {
                    self.give_up(now, &key, |counters| &mut counters.timed_out);
                }
                Some(Flow::Set { until, .. } | Flow::GivenUp { until }) if *until <= now => {
                    self.flows.remove(&key);
                }
                _ => {}
            }
        }
    }

    pub fn counters(&self) -> HoldCounters {
        self.counters
    }

    /// Frames that wait.
    pub fn held_count(&self) -> usize {
        let waiting = self.flows.values().map(|flow| match flow {
            Flow::Asked(asked) => asked.waiting.len(),
            Flow::Set { .. } | Flow::GivenUp { .. } => 0,
        });
        waiting.sum()
    }

    /// Of a packet that came up although its entry has been handed to the switch: it does what the
    /// entry says. As a first one it would be overtaken.
    fn late_for(&self, now: Instant, packet_in: &PacketIn, frame: &Frame) -> Option<Frame> {
        let fields = fields(packet_in);
        let recent = self.on_their_way.iter().filter(|late| late.until > now);
        let taking = recent.filter(|late| fields.matches(&late.entry.r#match));
        let entry = &taking.max_by_key(|late| late.entry.priority)?.entry;
        match verdict(entry)? {
            Verdict::Actions(actions) => packet_out(frame, packet_in, &actions),
            Verdict::Unsayable => None,
        }
    }

    /// The first of a flow.
    fn ask(&mut self, now: Instant, key: FlowKey, frame: Frame, first: PacketIn) {
        if self.flows.len() >= self.limits.flows_max && !self.flows.contains_key(&key) {
            self.counters.flows_refused += 1;
            return self.up.push_back(frame);
        }
        self.counters.flows += 1;
        self.asked_count += 1;
        let due = now + self.limits.wait;
        let asked = Asked {
            due,
            first: Waiting::copy(&frame, first).packet_in,
            waiting: VecDeque::new(),
        };
        self.flows.insert(key.clone(), Flow::Asked(asked));
        self.deadlines.insert((due, key));
        self.up.push_back(frame);
    }

    /// What waits goes up, in its order, and so does what follows for a while.
    fn give_up(
        &mut self,
        now: Instant,
        key: &FlowKey,
        counter: impl Fn(&mut HoldCounters) -> &mut u64,
    ) {
        let Some(asked) = self.take_asked(key) else {
            return;
        };
        *counter(&mut self.counters) += asked.waiting.len() as u64;
        let had_waiting = !asked.waiting.is_empty();
        self.up.extend(asked.waiting.into_iter().map(|w| w.frame));
        if had_waiting {
            let until = now + GIVEN_UP;
            self.settle(key.clone(), until, Flow::GivenUp { until });
        }
    }

    fn take_asked(&mut self, key: &FlowKey) -> Option<Asked> {
        if !matches!(self.flows.get(key), Some(Flow::Asked(_))) {
            return None;
        }
        let Some(Flow::Asked(asked)) = self.flows.remove(key) else {
            return None;
        };
        self.asked_count -= 1;
        self.held_bytes -= asked.waiting.iter().map(|w| w.frame.len()).sum::<usize>();
        Some(asked)
    }

    fn settle(&mut self, key: FlowKey, until: Instant, flow: Flow) {
        self.flows.insert(key.clone(), flow);
        self.deadlines.insert((until, key));
    }

    fn handle_packet_out(&mut self, now: Instant, message: &PacketOut) {
        let Some(key) = self.flow_of(message) else {
            return;
        };
        let until = now + ENTRY_WAIT;
        if let Some(Flow::Asked(asked)) = self.flows.get_mut(&key)
            && until < asked.due
        {
            asked.due = until;
            self.deadlines.insert((until, key));
        }
    }

    /// The flow whose first packet this is.
    fn flow_of(&self, message: &PacketOut) -> Option<FlowKey> {
        let is_first = |flow: &Flow| match flow {
            Flow::Asked(asked) => !message.data.is_empty() && asked.first.data == message.data,
            Flow::Set { .. } | Flow::GivenUp { .. } => false,
        };
        let found = self.flows.iter().find(|(_, flow)| is_first(flow));
        found.map(|(key, _)| key.clone())
    }

    /// `behind`: what came with it.
    fn handle_flow_mod(&mut self, now: Instant, frame: Frame, behind: &mut VecDeque<Frame>) {
        let Ok(Message::FlowMod(flow_mod)) = decode(&frame) else {
            return self.down.push_back(frame);
        };
        if flow_mod.command != FlowModCommand::Add {
            // An entry that a packet was sent by may be another one from now on.
            self.flows
                .retain(|_, flow| !matches!(flow, Flow::Set { .. }));
            self.on_their_way.clear();
            return self.down.push_back(frame);
        }
        let Some(verdict) = verdict(&flow_mod) else {
            return self.down.push_back(frame);
        };
        let takes = |flow: &Flow| match flow {
            Flow::Asked(asked) => fields(&asked.first).matches(&flow_mod.r#match),
            Flow::Set { .. } | Flow::GivenUp { .. } => false,
        };
        let taken = self.flows.iter().filter(|(_, flow)| takes(flow));
        let taken: Vec<FlowKey> = taken.map(|(key, _)| key.clone()).collect();
        for key in taken {
            match &verdict {
                Verdict::Actions(actions) => {
                    self.send_first(&key, behind);
                    self.release(now, key, &flow_mod.r#match, actions);
                }
                Verdict::Unsayable => self.give_up(now, &key, |counters| &mut counters.not_taken),
            }
        }
        self.down.push_back(frame);
        if self.on_their_way.len() >= ON_THEIR_WAY_MAX {
            self.on_their_way.pop_front();
        }
        self.on_their_way.push_back(OnItsWay {
            until: now + ENTRY_SETTLES,
            entry: flow_mod,
        });
    }

    /// Some controllers send the entry before the packet that asked for it: it must be first.
    fn send_first(&mut self, key: &FlowKey, behind: &mut VecDeque<Frame>) {
        let Some(Flow::Asked(asked)) = self.flows.get(key) else {
            return;
        };
        for at in 0..behind.len() {
            match behind[at].kind() {
                MessageKind::PacketOut => {}
                MessageKind::FlowMod => continue,
                _ => return,
            }
            let is_first = matches!(decode(&behind[at]),
                Ok(Message::PacketOut(out))
                    if out.data == asked.first.data && !asks_tables(&out.actions));
            if is_first {
                self.down.extend(behind.remove(at));
                return;
            }
        }
    }

    fn release(&mut self, now: Instant, key: FlowKey, r#match: &Match, actions: &[Action]) {
        let Some(asked) = self.take_asked(&key) else {
            return;
        };
        for Waiting { frame, packet_in } in asked.waiting {
            let is_taken = fields(&packet_in).matches(r#match);
            let out = is_taken.then(|| packet_out(&frame, &packet_in, actions));
            match out.flatten() {
                Some(out) => {
                    self.counters.released += 1;
                    self.down.push_back(out);
                }
                None => {
                    self.counters.not_taken += 1;
                    self.up.push_back(frame);
                }
            }
        }
        let until = now + ENTRY_SETTLES;
        let set = Flow::Set {
            until,
            r#match: r#match.clone(),
            actions: actions.to_vec(),
        };
        self.settle(key, until, set);
    }
}

impl Waiting {
    /// With bytes of its own, not those of all that was read with it.
    fn copy(frame: &Frame, mut packet_in: PacketIn) -> Waiting {
        let frame = Frame::new(bytes::Bytes::copy_from_slice(frame.bytes()));
        let frame = frame.expect("as long as it was");
        let at = frame.len() - packet_in.data.len();
        packet_in.data = frame.bytes().slice(at..);
        Waiting { frame, packet_in }
    }
}

fn fields(packet_in: &PacketIn) -> PacketFields {
    let in_port = packet_in.r#match.in_port().unwrap_or(PortNo::ANY);
    PacketFields::parse(in_port, &packet_in.data)
}

/// A packet-in whose packet is of a flow: IP, to one host, and no resolution of addresses.
fn read(frame: &Frame) -> Option<(FlowKey, PacketIn)> {
    use Field as F;
    const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u128> = 133..=137;
    if frame.kind() != MessageKind::PacketIn {
        return None;
    }
    let Ok(Message::PacketIn(packet_in)) = decode(frame) else {
        return None;
    };
    let in_port = packet_in.r#match.in_port()?;
    let fields = fields(&packet_in);
    let (src, dst) = (fields.eth_src()?, fields.eth_dst()?);
    let kind = fields.get(F::Icmpv6Type);
    let resolves = kind.is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(&kind));
    if dst.is_multicast() || fields.ip_proto().is_none() || resolves {
        return None;
    }
    let first = |of: &[Field]| of.iter().find_map(|field| fields.get(*field)).unwrap_or(0);
    let key = FlowKey {
        in_port,
        src,
        dst,
        vlan: fields.vlan_id().map_or(0, |id| id + 1),
        tuple: [
            first(&[F::Ipv4Src, F::Ipv6Src]),
            first(&[F::Ipv4Dst, F::Ipv6Dst]),
            fields.value(F::IpProto),
            first(&[F::TcpSrc, F::UdpSrc, F::SctpSrc]),
            first(&[F::TcpDst, F::UdpDst, F::SctpDst]),
        ],
    };
    Some((key, packet_in))
}

/// `None` if it is no answer to a packet-in: it does not say where packets go.
fn verdict(flow_mod: &FlowMod) -> Option<Verdict> {
    let to_controller = |action: &Action| matches!(action, Action::Output { port, .. } if *port == PortNo::CONTROLLER);
    if flow_mod.table_id != TableId(0) {
        return None;
    }
    Some(match &flow_mod.instructions[..] {
        [] => Verdict::Actions(Vec::new()),
        [Instruction::ApplyActions(actions) | Instruction::WriteActions(actions)] => {
            if actions.iter().any(to_controller) {
                return None;
            }
            Verdict::Actions(actions.clone())
        }
        _ => Verdict::Unsayable,
    })
}

/// Whether what becomes of a packet depends on entries or groups, which may have come before it.
fn asks_tables(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Output { port, .. } => *port == PortNo::TABLE,
        Action::Group(_) => true,
        _ => false,
    })
}

/// The packet once more, with these actions; `None` if no message of the version can say that.
fn packet_out(frame: &Frame, packet_in: &PacketIn, actions: &[Action]) -> Option<Frame> {
    let version = frame.version()?;
    let message = PacketOut {
        buffer_id: None,
        in_port: packet_in.r#match.in_port()?,
        actions: actions.to_vec(),
        data: packet_in.data.clone(),
    };
    encode(version, XID, &Message::PacketOut(message)).ok()
}
