//! Holds a flow's first packets beside the switch, so that later ones do not overtake them.
//!
//! A flow is the packet-ins with the same port, table and addresses. The first packet-in goes to
//! the controller and the others wait here, in order. When an entry that matches the first packet
//! arrives, the relay sends the waiting packets in packet-outs with the entry's actions. Then it
//! hands the entry to the switch. Packets that the switch has sent up in the meantime follow by the
//! same path. So the packets after the first detour only through this relay and not through the
//! controller. When the entry becomes active, only packets on that short detour are in flight.
//!
//! A packet-out alone decides about one packet and not about the next. After a packet-out the relay
//! waits [`ENTRY_WAIT`] for an entry, and then sends the waiting packets up as usual. It also sends
//! them up, in order, when they have waited too long or are too many. The relay drops packets only
//! if their entry has no actions.
//!
//! Other messages pass waiting packet-ins, as if the switch had been slower to send these.

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

/// The limits of holding.
#[derive(Clone, Copy, Debug)]
pub struct HoldLimits {
    /// Maximum number of frames of one flow.
    pub frames_max: usize,
    /// Maximum bytes of all flows, packet-ins with their headers.
    pub bytes_max: usize,
    /// Maximum time that a flow waits for its entry.
    pub wait: Duration,
    /// Maximum number of flows that wait; packets of further flows are not held.
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

/// Time to wait for the entry after the controller has forwarded the packet; controllers that send
/// both do so at once.
pub const ENTRY_WAIT: Duration = Duration::from_millis(20);

/// Time until an entry in the switch is active (Open vSwitch: up to 17 ms). Until then, packets
/// that miss the entry are sent from here.
const ENTRY_SETTLES: Duration = Duration::from_millis(50);

/// Maximum number of entries remembered until they are active. Older entries beyond this number
/// serve only the packets of their own flow.
const ON_THEIR_WAY_MAX: usize = 256;

/// Time for which packets of a flow are not held after the flow was given up.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// The xid of packet-outs that are made here.
const XID: Xid = Xid(0x686f_6c64);

/// Counters of packets, or of flows where stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldCounters {
    /// Flows whose first packet went to the controller.
    pub flows: u64,
    pub held: u64,
    /// Packets sent with the actions of the entry that arrived for them.
    pub released: u64,
    /// Packets sent by the same path because they missed an entry that was on its way.
    pub followed: u64,
    /// Packets sent up because the entry for their flow does not match them.
    pub not_taken: u64,
    /// Packets sent up because no entry arrived in time.
    pub timed_out: u64,
    /// Packets sent up because there were too many, or because a packet that could not wait
    /// followed them.
    pub overflowed: u64,
    /// Flows not held because too many flows were held.
    pub flows_refused: u64,
}

impl HoldCounters {
    /// Adds the counts of one connection from `before` to `after`.
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

/// The held packets of one connection of a switch. Frames in both directions pass through it.
pub struct Hold {
    limits: HoldLimits,
    flows: BTreeMap<FlowKey, Flow>,
    /// Deadlines, checked when due. A flow whose deadline has moved also has its old deadline here.
    deadlines: BTreeSet<(Instant, FlowKey)>,
    asked_count: usize,
    held_bytes: usize,
    /// Entries handed to the switch a moment ago, the latest last.
    on_their_way: VecDeque<PendingEntry>,
    up: VecDeque<Frame>,
    down: VecDeque<Frame>,
    counters: HoldCounters,
}

/// Packets that must not overtake each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowKey {
    /// The table whose entries the packets missed.
    table: TableId,
    in_port: PortNo,
    src: MacAddr,
    dst: MacAddr,
    vlan: u16,
    /// IP addresses, protocol and ports; 0 where there are none.
    tuple: [u128; 5],
}

enum Flow {
    /// The first packet was sent to the controller.
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

struct PendingEntry {
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

/// The treatment of packets that an entry matches.
enum Verdict {
    Actions(Vec<Action>),
    /// A treatment that a packet-out cannot express.
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

    /// Handles a message from the switch.
    pub fn handle_up(&mut self, now: Instant, frame: Frame) {
        let Some((key, packet_in)) = read(&frame) else {
            return self.up.push_back(frame);
        };
        let is_whole = packet_in.buffer_id.is_none()
            && packet_in.data.len() >= usize::from(packet_in.total_len);
        if !is_whole {
            // The relay cannot send this packet itself, and the packet must not overtake the
            // waiting ones.
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

    /// Handles messages from the controller that arrived together.
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

    /// Returns the next message for the controller.
    pub fn poll_up(&mut self) -> Option<Frame> {
        self.up.pop_front()
    }

    /// Returns the next message for the switch.
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

    /// The number of waiting frames.
    pub fn held_count(&self) -> usize {
        let waiting = self.flows.values().map(|flow| match flow {
            Flow::Asked(asked) => asked.waiting.len(),
            Flow::Set { .. } | Flow::GivenUp { .. } => 0,
        });
        waiting.sum()
    }

    /// The packet-out for a packet that the switch sent up although the packet's entry has been
    /// handed to the switch. The packet-out carries the entry's actions. Treated as a first packet,
    /// the packet would be overtaken.
    fn late_for(&self, now: Instant, packet_in: &PacketIn, frame: &Frame) -> Option<Frame> {
        let fields = fields(packet_in);
        let is_here =
            |late: &&PendingEntry| late.until > now && late.entry.table_id == packet_in.table_id;
        let recent = self.on_their_way.iter().filter(is_here);
        let taking = recent.filter(|late| fields.matches(&late.entry.r#match));
        let entry = &taking.max_by_key(|late| late.entry.priority)?.entry;
        match verdict(entry)? {
            Verdict::Actions(actions) => packet_out(frame, packet_in, &actions),
            Verdict::Unsayable => None,
        }
    }

    /// Handles the first packet of a flow.
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

    /// Sends the waiting packets up, in order, and for a while also those that follow.
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

    /// Handles a flow-mod. `behind`: the messages that arrived with it.
    fn handle_flow_mod(&mut self, now: Instant, frame: Frame, behind: &mut VecDeque<Frame>) {
        let Ok(Message::FlowMod(flow_mod)) = decode(&frame) else {
            return self.down.push_back(frame);
        };
        if flow_mod.command != FlowModCommand::Add {
            // From now on, another entry may decide where packets are sent.
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
        let here = self
            .flows
            .iter()
            .filter(|(key, _)| key.table == flow_mod.table_id);
        let taken = here.filter(|(_, flow)| takes(flow));
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
        self.on_their_way.push_back(PendingEntry {
            until: now + ENTRY_SETTLES,
            entry: flow_mod,
        });
    }

    /// Sends the first packet before its entry: some controllers send the entry first.
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
    /// Copies the packet's own bytes, so that those read with it can be freed.
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

/// Reads a packet-in whose packet belongs to a flow: IP, to one host, and not address resolution.
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
        table: packet_in.table_id,
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

/// The verdict of a flow-mod; `None` if the flow-mod does not answer a packet-in, because it does
/// not decide where packets go.
fn verdict(flow_mod: &FlowMod) -> Option<Verdict> {
    let to_controller = |action: &Action| match action {
        Action::Output { port, .. } => *port == PortNo::CONTROLLER,
        _ => false,
    };
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

/// Whether the treatment of a packet depends on entries or groups, which may have arrived before
/// it.
fn asks_tables(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Output { port, .. } => *port == PortNo::TABLE,
        Action::Group(_) => true,
        _ => false,
    })
}

/// A packet-out with the packet and these actions; `None` if no message of the version can encode
/// it.
fn packet_out(frame: &Frame, packet_in: &PacketIn, actions: &[Action]) -> Option<Frame> {
    let version = frame.version()?;
    let message = PacketOut::new(
        packet_in.r#match.in_port()?,
        actions.to_vec(),
        packet_in.data.clone(),
    );
    encode(version, XID, &Message::PacketOut(message)).ok()
}
