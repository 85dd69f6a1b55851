//! The flow entries auster makes: their shape, their cookie, and the way to and from the wire.
//!
//! Every entry carries a cookie that says it is auster's, so that a controller that restarts finds
//! its entries again and leaves everybody else's alone:
//!
//! ```text
//! 63            32 31        16 15     8 7      0
//! | "aust"         | generation |  kind  |   0   |
//! ```

use openflow::message::{FlowMod, FlowModCommand, FlowModFlags};
use openflow::multipart::{FlowStats, FlowStatsRequest};
use openflow::{Action, Cookie, Field, Instruction, MacAddr, Match, MatchField, PortNo};

/// "aust" in the upper half of every cookie of ours.
pub const COOKIE_PREFIX: Cookie = Cookie(0x6175_7374_0000_0000);
pub const COOKIE_PREFIX_MASK: Cookie = Cookie(0xffff_ffff_0000_0000);

pub(crate) const ETH_TYPE_LLDP: u16 = 0x88cc;

const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_IPV6: u16 = 0x86dd;

const PRIORITY_LLDP: u16 = 0xffff;
const PRIORITY_PAIR: u16 = 2000;
const PRIORITY_SUCCESSOR: u16 = 1999;
const PRIORITY_COARSE: u16 = 1500;
const PRIORITY_DESTINATION: u16 = 1000;
const PRIORITY_REPORT: u16 = 500;

/// Of a packet that is reported: its headers, of every kind that is read.
const REPORT_BYTES: u16 = 128;

/// What an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Table-miss and LLDP: there as long as the switch is ours.
    Infrastructure = 1,
    /// One hop of a path between two hosts.
    Pair = 2,
    /// Towards one host, from anywhere.
    Destination = 3,
    /// Between two hosts of one switch, set by its edge; nobody keeps a record of it.
    Local = 4,
    /// Between two hosts that are not to hear each other: drops.
    Barred = 5,
    /// Towards one host, from anywhere, with the beginning of each packet to the controller.
    Report = 6,
    /// Towards one host from whoever comes in by a link, in place of entries between two.
    Coarse = 7,
}

impl EntryKind {
    pub fn cookie(self, generation: u16) -> Cookie {
        Cookie(COOKIE_PREFIX.0 | u64::from(generation) << 16 | (self as u64) << 8)
    }

    /// Whether it leads towards one host, and stands as long as the host's place is known.
    pub(crate) fn is_route(self) -> bool {
        matches!(self, EntryKind::Destination | EntryKind::Report)
    }

    /// Of an entry of ours.
    pub fn of(cookie: Cookie) -> Option<EntryKind> {
        Some(match cookie.0 >> 8 & 0xff {
            1 => EntryKind::Infrastructure,
            2 => EntryKind::Pair,
            3 => EntryKind::Destination,
            4 => EntryKind::Local,
            5 => EntryKind::Barred,
            6 => EntryKind::Report,
            7 => EntryKind::Coarse,
            _ => return None,
        })
    }
}

/// What identifies an entry in a switch: its priority and match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    pub priority: u16,
    pub in_port: Option<PortNo>,
    pub eth_src: Option<MacAddr>,
    pub eth_dst: Option<MacAddr>,
    pub eth_type: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: EntryKey,
    pub kind: EntryKind,
    /// Where the packet goes; `CONTROLLER` in infrastructure, `ANY` where it is dropped.
    pub out: PortNo,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// Whether the switch tells when the entry goes.
    pub notify: bool,
}

impl EntryKey {
    const ANY: EntryKey = EntryKey {
        priority: 0,
        in_port: None,
        eth_src: None,
        eth_dst: None,
        eth_type: None,
    };

    pub fn pair(in_port: PortNo, src: MacAddr, dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_PAIR,
            in_port: Some(in_port),
            eth_src: Some(src),
            eth_dst: Some(dst),
            eth_type: None,
        }
    }

    /// Of the entry that takes over when a pair's entry goes: the same match, one below.
    pub fn successor(self) -> EntryKey {
        EntryKey {
            priority: PRIORITY_SUCCESSOR,
            ..self
        }
    }

    pub fn is_successor(self) -> bool {
        self.priority == PRIORITY_SUCCESSOR
    }

    /// Towards `dst`, from `in_port` only or from every port.
    pub fn destination(in_port: Option<PortNo>, dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_DESTINATION,
            in_port,
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    /// Towards `dst` by one port, for the pairs that have no entry of their own.
    pub fn coarse(in_port: PortNo, dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_COARSE,
            in_port: Some(in_port),
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    pub(crate) fn is_coarse(self) -> bool {
        self.priority == PRIORITY_COARSE
    }

    /// Towards `dst`, from every port that has no better entry.
    pub fn report(dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_REPORT,
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    pub fn to_match(self) -> Match {
        let mut m = Match::any();
        if let Some(port) = self.in_port {
            m = m.with_in_port(port);
        }
        if let Some(dst) = self.eth_dst {
            m = m.with_eth_dst(dst);
        }
        if let Some(src) = self.eth_src {
            m = m.with_eth_src(src);
        }
        if let Some(eth_type) = self.eth_type {
            m = m.with(Field::EthType, eth_type);
        }
        m
    }

    /// `None` if the match says something that no entry of ours does.
    pub fn from_match(priority: u16, m: &Match) -> Option<EntryKey> {
        let mut key = EntryKey {
            priority,
            ..EntryKey::ANY
        };
        for field in &m.fields {
            let MatchField::Basic { field, value, mask } = field else {
                return None;
            };
            if mask.is_some_and(|mask| mask != field.ones()) {
                return None;
            }
            match field {
                Field::InPort => key.in_port = Some(PortNo(*value as u32)),
                Field::EthSrc => key.eth_src = Some(MacAddr::from_u64(*value as u64)),
                Field::EthDst => key.eth_dst = Some(MacAddr::from_u64(*value as u64)),
                Field::EthType => key.eth_type = Some(*value as u16),
                _ => return None,
            }
        }
        Some(key)
    }

    /// Takes this entry out, and no other. 1.3 compares the cookie too, so that somebody else's
    /// entry of the same match stays; 1.0 knows no cookie masks and trusts the match.
    pub fn to_delete(self) -> FlowMod {
        FlowMod {
            command: FlowModCommand::DeleteStrict,
            cookie: COOKIE_PREFIX,
            cookie_mask: COOKIE_PREFIX_MASK,
            instructions: Vec::new(),
            ..FlowMod::add(self.priority, self.to_match(), Vec::new())
        }
    }
}

impl Entry {
    /// What every switch of ours has: LLDP and whatever nothing else matches go to the controller.
    pub fn infrastructure() -> [Entry; 2] {
        let to_controller = |key| Entry {
            key,
            kind: EntryKind::Infrastructure,
            out: PortNo::CONTROLLER,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            notify: false,
        };
        let lldp = EntryKey {
            priority: PRIORITY_LLDP,
            eth_type: Some(ETH_TYPE_LLDP),
            ..EntryKey::ANY
        };
        [to_controller(EntryKey::ANY), to_controller(lldp)]
    }

    pub fn to_add(self, generation: u16) -> FlowMod {
        let actions = match (self.kind, self.out) {
            (EntryKind::Report, port) => vec![Action::output(port), REPORT],
            (EntryKind::Barred, _) => Vec::new(),
            (_, PortNo::CONTROLLER) => vec![Action::controller()],
            (_, port) => vec![Action::output(port)],
        };
        let flags = if self.notify {
            FlowModFlags::SEND_FLOW_REM
        } else {
            FlowModFlags::empty()
        };
        FlowMod {
            cookie: self.kind.cookie(generation),
            idle_timeout: self.idle_timeout_s,
            hard_timeout: self.hard_timeout_s,
            flags,
            ..FlowMod::add(self.key.priority, self.key.to_match(), actions)
        }
    }

    /// Reads an entry that [`Entry::to_add`] once made; `None` if it has another shape.
    pub fn from_stats(stats: &FlowStats) -> Option<Entry> {
        let kind = EntryKind::of(stats.cookie)?;
        let actions: &[Action] = match &stats.instructions[..] {
            [Instruction::ApplyActions(actions)] => actions,
            // Without actions some switches leave out the instruction as well.
            [] => &[],
            _ => return None,
        };
        let port = match (kind, actions) {
            (EntryKind::Report, [Action::Output { port, .. }, REPORT]) => *port,
            (EntryKind::Barred, []) => PortNo::ANY,
            (EntryKind::Report | EntryKind::Barred, _) => return None,
            (_, [Action::Output { port, .. }]) => *port,
            _ => return None,
        };
        let key = EntryKey::from_match(stats.priority, &stats.r#match)?;
        let well_formed = match kind {
            EntryKind::Infrastructure => port == PortNo::CONTROLLER,
            EntryKind::Pair | EntryKind::Local | EntryKind::Barred => {
                key.in_port.is_some() && key.eth_src.is_some() && key.eth_dst.is_some()
            }
            EntryKind::Destination | EntryKind::Report => key.eth_dst.is_some(),
            EntryKind::Coarse => key.eth_dst.is_some_and(|dst| {
                key.in_port
                    .is_some_and(|port| key == EntryKey::coarse(port, dst))
            }),
        };
        (well_formed && stats.table_id.0 == 0).then_some(Entry {
            key,
            kind,
            out: port,
            idle_timeout_s: stats.idle_timeout,
            hard_timeout_s: stats.hard_timeout,
            notify: stats.flags.contains(FlowModFlags::SEND_FLOW_REM),
        })
    }
}

const REPORT: Action = Action::Output {
    port: PortNo::CONTROLLER,
    max_len: REPORT_BYTES,
};

/// Whether a packet-in is a copy of a packet that the switch has sent on. Switches of 1.0 do not say
/// which entry it was, and are given none of this kind.
pub(crate) fn is_report(cookie: Cookie) -> bool {
    const MASK: u64 = COOKIE_PREFIX_MASK.0 | 0xff00;
    cookie.0 & MASK == EntryKind::Report.cookie(0).0
}

pub fn is_ours(cookie: Cookie) -> bool {
    cookie.0 & COOKIE_PREFIX_MASK.0 == COOKIE_PREFIX.0
}

/// Whether a flow that the datapath keeps of this packet could match IPv4 packets as well: a flow is
/// of one Ethernet type. Of a tag nobody knows what is looked at.
pub(crate) fn may_keep_ipv4_flow(packet: &[u8]) -> bool {
    const OTHERS: [u16; 3] = [ETH_TYPE_ARP, ETH_TYPE_IPV6, ETH_TYPE_LLDP];
    let eth_type = packet.get(12..14).map(|b| u16::from_be_bytes([b[0], b[1]]));
    !eth_type.is_some_and(|eth_type| OTHERS.contains(&eth_type))
}

/// Everything a reconciliation must see: our entries, and the two places of infrastructure that
/// somebody else may have taken. 1.0 has no cookie in its request, so both versions ask for all.
pub(crate) fn ask_for_entries() -> FlowStatsRequest {
    FlowStatsRequest::all()
}
