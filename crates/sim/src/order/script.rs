//! Random messages of every kind, on several channels, in 1.0 and in 1.3.

use bytes::Bytes;
use openflow::message::{
    FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason, PacketIn,
    PacketInReason, PacketOut,
};
use openflow::packet::build::{self, Host};
use openflow::{
    Action, BufferId, Cookie, Field, Frame, MacAddr, Match, Message, MessageKind, PortNo, TableId,
    Version, Xid, encode,
};
use sched::{Direction, Order, class_of};

use clock::SplitMix64;

/// Flows of one channel and direction.
pub(super) const FLOWS: u16 = 256;

/// The messages that a message may not overtake, as known to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Fence,
    State,
    /// A state message, in keyed mode, that concerns more than one pair of addresses.
    Wide,
    /// A flow-mod, in keyed mode, with the addresses that it names: their kind, Ethernet or IP, and
    /// which pair.
    Keyed {
        is_ip: bool,
        key: u16,
    },
    Flow(u16),
    Exchange,
    Free,
}

/// The kind of messages sent, and the order by which they are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Every kind of message, half of them packets.
    Strict,
    /// The same towards the controller. Towards the switch, half are flow-mods for one pair of
    /// addresses each, and every message belongs to one of four domains of barriers.
    Keyed,
    /// Towards the switch, flow-mods for one pair of addresses each, with a barrier after every
    /// `barrier_every` of them; echoes in the other direction.
    FlowMods { barrier_every: Option<u32> },
}

/// The domain of a message is in the highest bits of its xid, its number in the rest.
pub const DOMAIN_SHIFT: u32 = 30;
pub const DOMAINS: u8 = 4;

/// A message with its rank in the order and its domain of barriers.
pub(super) struct Made {
    pub frame: Frame,
    pub rank: Rank,
    pub domain: u8,
}

/// Makes the messages of one channel in one direction. The xid of a message is its number, and in
/// keyed mode its domain.
#[derive(Debug)]
pub(super) struct Script {
    direction: Direction,
    version: Version,
    traffic: Traffic,
    random: SplitMix64,
    number: u32,
}

impl Script {
    pub fn new(direction: Direction, version: Version, traffic: Traffic, seed: u64) -> Script {
        Script {
            direction,
            version,
            traffic,
            random: SplitMix64::new(seed),
            number: 0,
        }
    }

    pub fn next(&mut self) -> Made {
        let number = self.number;
        self.number += 1;
        let is_keyed = self.direction == Direction::ToSwitch && self.traffic != Traffic::Strict;
        let ((frame, rank), domain) = match self.traffic {
            _ if number == 0 => {
                let hello = self.bare(MessageKind::Hello, number, 0);
                ((hello, Rank::Fence), 0)
            }
            Traffic::FlowMods { barrier_every } => (self.plain(number, barrier_every), 0),
            _ if is_keyed => {
                let domain = self.below(u64::from(DOMAINS)) as u8;
                let number = number | u32::from(domain) << DOMAIN_SHIFT;
                (self.next_keyed(number), domain)
            }
            _ => (self.next_strict(number), 0),
        };
        let rank = match rank {
            Rank::State if is_keyed => Rank::Wide,
            rank => rank,
        };
        Made {
            frame,
            rank,
            domain,
        }
    }

    fn plain(&mut self, number: u32, barrier_every: Option<u32>) -> (Frame, Rank) {
        match (self.direction, barrier_every) {
            (Direction::ToController, _) => {
                (self.bare(MessageKind::EchoRequest, number, 0), Rank::Free)
            }
            (Direction::ToSwitch, Some(n)) if number.is_multiple_of(n.saturating_add(1)) => (
                self.bare(MessageKind::BarrierRequest, number, 0),
                Rank::Fence,
            ),
            (Direction::ToSwitch, _) => self.keyed(number, false),
        }
    }

    fn next_keyed(&mut self, number: u32) -> (Frame, Rank) {
        match self.below(64) {
            0..24 => self.packet_out(number),
            24..60 => {
                let is_ip = self.below(50) == 0;
                self.keyed(number, is_ip)
            }
            60 => (self.unkeyed(number), Rank::Wide),
            _ => self.next_strict(number),
        }
    }

    /// A flow-mod about one pair of addresses, whatever its other fields.
    fn keyed(&mut self, number: u32, is_ip: bool) -> (Frame, Rank) {
        let key = self.below(u64::from(FLOWS)) as u16;
        let mut flow_mod = FlowMod::add(100, pair_match(is_ip, key), Vec::new());
        flow_mod.command = match self.below(4) {
            0 => FlowModCommand::Modify,
            1 => FlowModCommand::ModifyStrict,
            _ => FlowModCommand::Add,
        };
        flow_mod.priority = self.below(4) as u16;
        if self.below(2) == 0 {
            let port = 1 + self.below(8) as u32;
            flow_mod.r#match = flow_mod.r#match.with_in_port(PortNo(port));
        }
        let message = Message::FlowMod(flow_mod);
        let rank = Rank::Keyed { is_ip, key };
        (self.encoded(number, &message), rank)
    }

    /// A flow-mod about more than one pair of addresses, or about what others have left.
    fn unkeyed(&mut self, number: u32) -> Frame {
        let key = self.below(u64::from(FLOWS)) as u16;
        let mut flow_mod = FlowMod::add(100, pair_match(false, key), Vec::new());
        match self.below(5) {
            0 => flow_mod.command = FlowModCommand::Delete,
            1 => flow_mod.command = FlowModCommand::DeleteStrict,
            2 => flow_mod.flags = FlowModFlags::CHECK_OVERLAP,
            3 => flow_mod.buffer_id = Some(BufferId(7)),
            _ => {
                let mac = u128::from(key) + 1;
                flow_mod.r#match = Match::any().with(Field::EthDst, mac);
            }
        }
        self.encoded(number, &Message::FlowMod(flow_mod))
    }

    fn next_strict(&mut self, number: u32) -> (Frame, Rank) {
        match (self.below(16), self.direction) {
            (0..8, _) => self.packet(number),
            (8..11, Direction::ToSwitch) => (self.flow_mod(number), Rank::State),
            (8..10, Direction::ToController) => (self.flow_removed(number), Rank::State),
            _ => self.other(number),
        }
    }

    fn packet(&mut self, number: u32) -> (Frame, Rank) {
        let flow = self.below(u64::from(FLOWS)) as u16;
        let len = 60 + self.below(200) as usize;
        let data = packet(flow, len);
        let in_port = PortNo(1 + u32::from(flow % 8));
        if self.direction == Direction::ToController {
            let message = Message::PacketIn(PacketIn {
                buffer_id: None,
                total_len: data.len() as u16,
                reason: PacketInReason::NO_MATCH,
                table_id: TableId(0),
                // OpenFlow 1.0 has no cookie here: all ones.
                cookie: match self.version {
                    Version::V10 => Cookie(u64::MAX),
                    _ => Cookie(0),
                },
                r#match: Match::any().with_in_port(in_port),
                data,
            });
            return (self.encoded(number, &message), Rank::Flow(flow));
        }
        // Some packets wait in the switch's buffer, and some go through its tables: they follow its
        // state.
        let how = self.below(10);
        self.packet_out_of(number, flow, how, data)
    }

    /// A packet-out that stands alone.
    fn packet_out(&mut self, number: u32) -> (Frame, Rank) {
        const STANDS_ALONE: u64 = 2;
        let flow = self.below(u64::from(FLOWS)) as u16;
        let len = 60 + self.below(200) as usize;
        self.packet_out_of(number, flow, STANDS_ALONE, packet(flow, len))
    }

    fn packet_out_of(&self, number: u32, flow: u16, how: u64, data: Bytes) -> (Frame, Rank) {
        let in_port = PortNo(1 + u32::from(flow % 8));
        let (buffer_id, data) = match how {
            0 => (Some(BufferId(7)), Bytes::new()),
            _ => (None, data),
        };
        let port = if how == 1 { PortNo::TABLE } else { PortNo(2) };
        let message = Message::PacketOut(PacketOut {
            buffer_id,
            in_port,
            actions: vec![Action::Output { port, max_len: 0 }],
            data,
            pipeline: Default::default(),
        });
        let rank = if how < 2 {
            Rank::State
        } else {
            Rank::Flow(flow)
        };
        (self.encoded(number, &message), rank)
    }

    fn flow_mod(&mut self, number: u32) -> Frame {
        let flow = self.below(u64::from(FLOWS)) as u16;
        let command = match self.below(3) {
            0 => FlowModCommand::Delete,
            _ => FlowModCommand::Add,
        };
        let mut flow_mod = FlowMod::add(100, flow_match(flow), Vec::new());
        flow_mod.command = command;
        let message = Message::FlowMod(flow_mod);
        self.encoded(number, &message)
    }

    fn flow_removed(&mut self, number: u32) -> Frame {
        let flow = self.below(u64::from(FLOWS)) as u16;
        let message = Message::FlowRemoved(FlowRemoved {
            cookie: Cookie(0),
            priority: 100,
            reason: FlowRemovedReason::IDLE_TIMEOUT,
            table_id: TableId(0),
            duration_sec: 1,
            duration_nsec: 0,
            idle_timeout: 1,
            hard_timeout: 0,
            packet_count: 1,
            byte_count: 100,
            r#match: flow_match(flow),
            stats: Vec::new(),
        });
        self.encoded(number, &message)
    }

    /// A message of any other kind in this direction. Only its type matters; the relays do not read
    /// its body.
    fn other(&mut self, number: u32) -> (Frame, Rank) {
        use MessageKind as K;
        const TO_SWITCH: [MessageKind; 18] = [
            K::EchoRequest,
            K::EchoReply,
            K::Error,
            K::Experimenter,
            K::FeaturesRequest,
            K::GetConfigRequest,
            K::SetConfig,
            K::GroupMod,
            K::PortMod,
            K::TableMod,
            K::MultipartRequest,
            K::BarrierRequest,
            K::QueueGetConfigRequest,
            K::RoleRequest,
            K::GetAsyncRequest,
            K::SetAsync,
            K::MeterMod,
            K::Unknown,
        ];
        const TO_CONTROLLER: [MessageKind; 13] = [
            K::EchoRequest,
            K::EchoReply,
            K::Error,
            K::Experimenter,
            K::FeaturesReply,
            K::GetConfigReply,
            K::PortStatus,
            K::MultipartReply,
            K::BarrierReply,
            K::QueueGetConfigReply,
            K::RoleReply,
            K::GetAsyncReply,
            K::Unknown,
        ];
        loop {
            let kind = match self.direction {
                Direction::ToSwitch => TO_SWITCH[self.below(18) as usize],
                Direction::ToController => TO_CONTROLLER[self.below(13) as usize],
            };
            if kind != K::Unknown && kind.to_wire(self.version.wire()).is_none() {
                continue; // Not in this version.
            }
            let len = self.below(200) as usize & !7;
            let rank = match class_of(kind).order {
                Order::Fence => Rank::Fence,
                Order::State => Rank::State,
                Order::Exchange => Rank::Exchange,
                Order::Free => Rank::Free,
                Order::Flow => unreachable!("packets are made elsewhere"),
            };
            return (self.bare(kind, number, len), rank);
        }
    }

    fn bare(&self, kind: MessageKind, number: u32, body: usize) -> Frame {
        const NO_SUCH_TYPE: u8 = 200;
        let version = self.version.wire();
        let mut bytes = vec![0; 8 + body];
        bytes[0] = version;
        bytes[1] = kind.to_wire(version).unwrap_or(NO_SUCH_TYPE);
        bytes[2..4].copy_from_slice(&((8 + body) as u16).to_be_bytes());
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        Frame::new(bytes.into()).expect("a header with its length")
    }

    fn encoded(&self, number: u32, message: &Message) -> Frame {
        encode(self.version, Xid(number), message).expect("1.0 and 1.3 have these messages")
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next() % n
    }
}

/// The UDP ports of a flow. Every eighth flow is to the port that the example maps prefer.
fn ports(flow: u16) -> (u16, u16) {
    (
        1024 + flow,
        if flow.is_multiple_of(8) {
            20_000
        } else {
            30_000
        },
    )
}

fn packet(flow: u16, len: usize) -> Bytes {
    let host = |n: u8| Host::new(MacAddr([2, 0, 0, 0, 0, n]), [10, 0, 0, n].into());
    build::udp(host(1), host(2), ports(flow), &vec![0; len]).into()
}

/// A packet between no two of these is of two keys.
fn pair_match(is_ip: bool, key: u16) -> Match {
    let (src, dst) = (u128::from(key) + 1, u128::from(key / 4) + 0x8000);
    match is_ip {
        true => Match::any()
            .with(Field::EthType, 0x0800u16)
            .with(Field::Ipv4Src, src)
            .with(Field::Ipv4Dst, dst),
        false => Match::any()
            .with(Field::EthDst, dst)
            .with(Field::EthSrc, src),
    }
}

fn flow_match(flow: u16) -> Match {
    let (src, dst) = ports(flow);
    Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::IpProto, 17u8)
        .with(Field::UdpSrc, src)
        .with(Field::UdpDst, dst)
}
