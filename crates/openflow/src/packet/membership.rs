//! Messages about membership in multicast groups, as a snooping switch reads them: IGMPv1, v2 and
//! v3 (RFC 1112, 2236, 3376), MLDv1 and v2 (RFC 2710, 3810), and PIM hellos (RFC 7761), which
//! reveal a multicast router.
//!
//! Hosts send these messages, so nothing in them is trusted unchecked. [`read`] checks lengths,
//! checksums, the hop limit, and all addresses. It allocates room for [`RECORDS_MAX`] group records
//! at most, and keeps no source address. [`Query::frame`] writes the queries of a querier.

mod write;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::Duration;

use crate::types::MacAddr;

use super::{ETH_IPV4, ETH_IPV6, ETH_VLAN, IP_ICMPV6, nd, number};

pub use write::Sender;
pub(crate) use write::{IpPacket, frame_of};

/// Maximum number of group records read from one report. A frame of 1,500 bytes has at most 183
/// (IGMPv3) or 72 (MLDv2). [`Message::Records`] counts the records beyond the maximum.
pub const RECORDS_MAX: usize = 256;

/// The response time of an IGMPv1 query, which states none (RFC 3376, 7.2.1).
pub const IGMP1_RESPONSE: Duration = Duration::from_secs(10);

pub(crate) const IP_IGMP: u8 = 2;
pub(crate) const IP_PIM: u8 = 103;
const IP_HOP_BY_HOP: u8 = 0;

/// Types of IGMP messages (RFC 3376, 4).
pub(crate) const IGMP_QUERY: u8 = 0x11;
pub(crate) const IGMP1_REPORT: u8 = 0x12;
pub(crate) const IGMP2_REPORT: u8 = 0x16;
pub(crate) const IGMP2_LEAVE: u8 = 0x17;
pub(crate) const IGMP3_REPORT: u8 = 0x22;

/// Types of MLD messages, which are types of ICMPv6 (RFC 3810, 5).
pub(crate) const MLD_QUERY: u8 = 130;
pub(crate) const MLD1_REPORT: u8 = 131;
pub(crate) const MLD1_DONE: u8 = 132;
pub(crate) const MLD2_REPORT: u8 = 143;

/// Version 2 and type 0 of PIM: a hello.
pub(crate) const PIM_HELLO: u8 = 0x20;
/// The option with a hello's hold time (RFC 7761, 4.9.2), and the hold time without the option.
pub(crate) const PIM_HOLD: u16 = 1;
const PIM_HOLD_DEFAULT: Duration = Duration::from_secs(105);

/// The hosts and routers of one link.
pub(crate) const ALL_NODES: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
pub(crate) const ALL_NODES_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The IPv6 option that makes routers look at a packet (RFC 2711), and its value for MLD.
pub(crate) const ROUTER_ALERT: u8 = 5;
pub(crate) const ROUTER_ALERT_MLD: [u8; 2] = [0, 0];

/// A message, with the sender as stated in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The VLAN id in the frame's 802.1Q tag, if it has one: 0 gives a priority only.
    pub tag: Option<u16>,
    /// Ethernet address of the sender.
    pub eth_src: MacAddr,
    /// IP address of the sender. A host without an address yet sends reports from `0.0.0.0` or
    /// `::`.
    pub from: IpAddr,
    /// The message.
    pub message: Message,
}

/// A message about membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router, or a switch in its place, asks for members.
    Query(Query),
    /// A host is a member: IGMPv1 and v2 report, MLDv1 report (RFC 2236, 3; RFC 2710, 4).
    Join {
        /// The group.
        group: IpAddr,
        /// `true` for an IGMPv1 host, which neither reports that it leaves nor answers queries for
        /// one group.
        is_igmp1: bool,
    },
    /// A host has left: IGMPv2 leave, MLDv1 done (RFC 2236, 3; RFC 2710, 4).
    Leave {
        /// The group.
        group: IpAddr,
    },
    /// A host's state, or changes of that state: IGMPv3 and MLDv2 report (RFC 3376, 4.2; RFC 3810,
    /// 5.2). Records of unknown kinds are left out (RFC 3376, 4.2.12).
    Records {
        /// The first [`RECORDS_MAX`] records of the report.
        records: Vec<Record>,
        /// The number of records after them, which were not read.
        beyond: u16,
    },
    /// A multicast router is present (RFC 7761, 4.9.2).
    PimHello {
        /// Time until the router times out without another hello: zero if it leaves now,
        /// [`Duration::MAX`] if it never times out.
        hold: Duration,
    },
}

/// A query for members (RFC 3376, 4.1; RFC 3810, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The group, or the unspecified address of its family for a general query.
    pub group: IpAddr,
    /// Time within which hosts answer. Times on the wire are rounded down, but not to zero.
    pub response_max: Duration,
    /// The fields that IGMPv3 and MLDv2 added.
    pub extended: Option<ExtendedQuery>,
}

/// The fields of a query that IGMPv3 and MLDv2 added (RFC 3376, 4.1.5 to 4.1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedQuery {
    /// Other routers must not shorten their timers (S).
    pub suppress: bool,
    /// The querier's robustness variable (QRV), up to 7; 0 if it states none.
    pub robustness: u8,
    /// The querier's query interval (QQI), in seconds; zero if it states none.
    pub interval: Duration,
    /// The number of sources that the query asks for. Their addresses are not kept.
    pub source_count: u16,
}

/// A group record (RFC 3376, 4.2.4; RFC 3810, 5.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kind of record.
    pub kind: RecordKind,
    /// The group.
    pub group: IpAddr,
    /// The number of sources. Their addresses are not kept.
    pub source_count: u16,
}

/// Kinds of group records (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// The host wants the sources listed only.
    IsInclude = 1,
    /// The host wants all sources but those listed.
    IsExclude = 2,
    /// The host now wants the sources listed only: with none it leaves.
    ToInclude = 3,
    /// The host now wants all sources but those listed.
    ToExclude = 4,
    /// The host also wants the sources listed.
    Allow = 5,
    /// The host no longer wants the sources listed.
    Block = 6,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [RecordKind; 6] = [
        RecordKind::IsInclude,
        RecordKind::IsExclude,
        RecordKind::ToInclude,
        RecordKind::ToExclude,
        RecordKind::Allow,
        RecordKind::Block,
    ];
}

/// Reason why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// A length does not fit the others, or the frame ends too soon.
    #[error("a length is wrong")]
    Length,
    /// A checksum is wrong.
    #[error("a checksum is wrong")]
    Checksum,
    /// The hop limit is not 1: the message may have passed a router.
    #[error("the hop limit is not 1")]
    HopLimit,
    /// The packet is a fragment.
    #[error("it is a fragment")]
    Fragment,
    /// The sender cannot have one of its addresses.
    #[error("the sender cannot have its address")]
    Source,
    /// The message was not sent to the hosts or routers that it is meant for.
    #[error("it went to another address")]
    Destination,
    /// A group's address is not a group address.
    #[error("a group's address is wrong")]
    Group,
    /// An MLD message has no router alert option (RFC 3810, 6.2 and 7.4), or has an option that
    /// makes hosts drop the packet.
    #[error("an option is missing or unknown")]
    Options,
}

/// Reads a frame with one 802.1Q tag or none. Returns `None` if the frame has no message about
/// membership, or one of a type not read here: RFC 4541 (2.1.1, 3) lets switches forward these.
///
/// IGMP messages need no router alert option, because IGMPv1 has none. Reports and leaves may go to
/// any group (RFC 3376, 4.2.14). Queries must go to all hosts that are to answer: if a query
/// reached a switch but not the hosts, members would seem to have left.
///
/// ```
/// use clock::Duration;
/// use openflow::packet::membership::{self, Message, Query, Refusal, Sender};
/// use openflow::MacAddr;
///
/// let query = Query {
///     group: "239.1.2.3".parse().unwrap(),
///     response_max: Duration::from_secs(1),
///     extended: None,
/// };
/// let us = Sender {
///     mac: MacAddr([2, 0, 0, 0, 0, 1]),
///     ipv4: "10.0.0.1".parse().unwrap(),
///     ipv6: "fe80::1".parse().unwrap(),
/// };
/// let mut frame = query.frame(us);
/// let heard = membership::read(&frame).unwrap().expect("a message");
/// assert_eq!((heard.from, heard.message), (us.ipv4.into(), Message::Query(query)));
/// frame[45] ^= 1;
/// assert_eq!(membership::read(&frame), Err(Refusal::Checksum));
/// ```
pub fn read(frame: &[u8]) -> Result<Option<Heard>, Refusal> {
    let ethernet = || {
        let eth_dst = MacAddr(*frame.first_chunk()?);
        let eth_src = MacAddr(*frame.get(6..)?.first_chunk()?);
        let tci = (number(frame, 12, 2)? == ETH_VLAN.into()).then(|| number(frame, 14, 2));
        let at = if tci.is_some() { 16 } else { 12 };
        let tag = match tci {
            Some(tci) => Some(tci? as u16 & 0xfff),
            None => None,
        };
        let eth_type = number(frame, at, 2)? as u16;
        Some((eth_dst, eth_src, tag, eth_type, frame.get(at + 2..)?))
    };
    let Some((eth_dst, eth_src, tag, eth_type, bytes)) = ethernet() else {
        return Ok(None);
    };
    let packet = match eth_type {
        ETH_IPV4 => Packet::ipv4(bytes)?,
        ETH_IPV6 => Packet::ipv6(bytes)?,
        _ => None,
    };
    let Some(packet) = packet else {
        return Ok(None);
    };
    let Some(kind) = packet.kind() else {
        return Ok(None);
    };
    packet.check(kind)?;
    if eth_dst != group_mac(packet.to) {
        return Err(Refusal::Destination);
    }
    if eth_src.0[0] & 1 == 1 {
        return Err(Refusal::Source);
    }
    Ok(Some(Heard {
        tag,
        eth_src,
        from: packet.from,
        message: packet.message(kind)?,
    }))
}

/// The Ethernet address of a group (RFC 1112, 6.4; RFC 2464, 7).
pub(crate) fn group_mac(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) => nd::group_mac(group),
    }
}

/// Types of messages, regardless of the address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Query,
    Join { is_igmp1: bool },
    Leave,
    Records,
    PimHello,
}

/// An IP packet whose protocol may be one of those read here.
struct Packet<'a> {
    from: IpAddr,
    to: IpAddr,
    hop_limit: u8,
    protocol: u8,
    /// Whether the packet has a router alert option for MLD; IPv6 only.
    is_alert: bool,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    fn ipv4(bytes: &'a [u8]) -> Result<Option<Packet<'a>>, Refusal> {
        let Some(header) = bytes.first_chunk::<20>() else {
            return Ok(None);
        };
        let header_len = usize::from(header[0] & 0xf) * 4;
        let protocol = header[9];
        if header[0] >> 4 != 4 || !matches!(protocol, IP_IGMP | IP_PIM) {
            return Ok(None);
        }
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let options_are_there = header_len >= 20 && header_len <= total_len;
        let Some(packet) = bytes.get(..total_len).filter(|_| options_are_there) else {
            return Err(Refusal::Length);
        };
        let (header_and_options, payload) = packet.split_at(header_len);
        if checksum(&[header_and_options]) != 0 {
            return Err(Refusal::Checksum);
        }
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(Refusal::Fragment);
        }
        let ip = |at| Ipv4Addr::from_bits(number(header, at, 4).unwrap_or_default() as u32).into();
        Ok(Some(Packet {
            from: ip(12),
            to: ip(16),
            hop_limit: header[8],
            protocol,
            is_alert: false,
            payload,
        }))
    }

    fn ipv6(bytes: &'a [u8]) -> Result<Option<Packet<'a>>, Refusal> {
        let Some((header, rest)) = bytes.split_first_chunk::<40>() else {
            return Ok(None);
        };
        if header[0] >> 4 != 6 {
            return Ok(None);
        }
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (mut protocol, mut payload) = (header[6], &rest[..len.min(rest.len())]);
        let mut options = None;
        if protocol == IP_HOP_BY_HOP {
            let Some([next, units, ..]) = payload.first_chunk::<8>().copied() else {
                return Ok(None);
            };
            let Some((extension, upper)) = payload.split_at_checked((usize::from(units) + 1) * 8)
            else {
                return Ok(None);
            };
            (protocol, payload) = (next, upper);
            options = Some(&extension[2..]);
        }
        let is_mld = |kind| matches!(kind, MLD_QUERY | MLD1_REPORT | MLD1_DONE | MLD2_REPORT);
        let is_membership = match (protocol, payload.first()) {
            (IP_ICMPV6, Some(kind)) => is_mld(*kind),
            (IP_PIM, Some(_)) => true,
            _ => false,
        };
        if !is_membership {
            return Ok(None);
        }
        if len > rest.len() {
            return Err(Refusal::Length);
        }
        let ip = |at| Ipv6Addr::from_bits(number(header, at, 16).unwrap_or_default()).into();
        Ok(Some(Packet {
            from: ip(8),
            to: ip(24),
            hop_limit: header[7],
            protocol,
            is_alert: match options {
                Some(options) => has_alert(options)?,
                None => false,
            },
            payload,
        }))
    }

    fn kind(&self) -> Option<Kind> {
        match (self.protocol, *self.payload.first()?) {
            (IP_IGMP, IGMP_QUERY) | (IP_ICMPV6, MLD_QUERY) => Some(Kind::Query),
            (IP_IGMP, IGMP1_REPORT) => Some(Kind::Join { is_igmp1: true }),
            (IP_IGMP, IGMP2_REPORT) | (IP_ICMPV6, MLD1_REPORT) => {
                Some(Kind::Join { is_igmp1: false })
            }
            (IP_IGMP, IGMP2_LEAVE) | (IP_ICMPV6, MLD1_DONE) => Some(Kind::Leave),
            (IP_IGMP, IGMP3_REPORT) | (IP_ICMPV6, MLD2_REPORT) => Some(Kind::Records),
            (IP_PIM, PIM_HELLO) => Some(Kind::PimHello),
            _ => None,
        }
    }

    /// Checks everything about the packet that does not depend on the rest of its message.
    fn check(&self, kind: Kind) -> Result<(), Refusal> {
        if self.hop_limit != 1 {
            return Err(Refusal::HopLimit);
        }
        let (is_sender, sum) = match (self.from, self.to) {
            (IpAddr::V4(from), _) => {
                let may_be = !from.is_multicast() && !from.is_broadcast() && !from.is_loopback();
                (may_be, checksum(&[self.payload]))
            }
            (IpAddr::V6(from), to) => {
                // RFC 3590: a host without an address joins the groups that it needs to get one.
                let is_host = matches!(kind, Kind::Join { .. } | Kind::Leave | Kind::Records);
                let may_be = from.is_unicast_link_local() || is_host && from.is_unspecified();
                let sum = ipv6_checksum(from, to, self.protocol, self.payload);
                (may_be, sum)
            }
        };
        if sum != 0 {
            return Err(Refusal::Checksum);
        }
        if !is_sender {
            return Err(Refusal::Source);
        }
        if !self.to.is_multicast() {
            return Err(Refusal::Destination);
        }
        if self.protocol == IP_ICMPV6 && !self.is_alert {
            return Err(Refusal::Options);
        }
        Ok(())
    }

    fn message(&self, kind: Kind) -> Result<Message, Refusal> {
        Ok(match kind {
            Kind::Query => Message::Query(self.query()?),
            Kind::Join { is_igmp1 } => Message::Join {
                group: self.group()?,
                is_igmp1,
            },
            Kind::Leave => Message::Leave {
                group: self.group()?,
            },
            Kind::Records => self.records()?,
            Kind::PimHello => self.pim_hello()?,
        })
    }

    /// The length of an address.
    fn width(&self) -> usize {
        match self.to {
            IpAddr::V4(_) => 4,
            IpAddr::V6(_) => 16,
        }
    }

    /// The address at an offset in the message.
    fn address(&self, at: usize) -> Result<IpAddr, Refusal> {
        let bits = number(self.payload, at, self.width()).ok_or(Refusal::Length)?;
        Ok(match self.to {
            IpAddr::V4(_) => Ipv4Addr::from_bits(bits as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        })
    }

    /// The offset of the group in all messages except reports with records.
    fn group_at(&self) -> usize {
        match self.to {
            IpAddr::V4(_) => 4,
            IpAddr::V6(_) => 8,
        }
    }

    fn group(&self) -> Result<IpAddr, Refusal> {
        let group = self.address(self.group_at())?;
        group.is_multicast().then_some(group).ok_or(Refusal::Group)
    }

    fn short(&self, at: usize) -> Result<u16, Refusal> {
        let value = number(self.payload, at, 2).ok_or(Refusal::Length)?;
        Ok(value as u16)
    }

    fn query(&self) -> Result<Query, Refusal> {
        let group = self.address(self.group_at())?;
        // RFC 3376, 7.1, and RFC 3810, 8.1: the length determines the version.
        let end = self.group_at() + self.width();
        let extended = match self.payload.get(end..) {
            Some([]) => None,
            Some([flags, interval, _, _, sources @ ..]) => {
                let source_count = self.short(end + 2)?;
                if sources.len() < usize::from(source_count) * self.width() {
                    return Err(Refusal::Length);
                }
                Some(ExtendedQuery {
                    suppress: flags & 8 != 0,
                    robustness: flags & 7,
                    interval: Duration::from_secs(floating::<4>(u16::from(*interval))),
                    source_count,
                })
            }
            _ => return Err(Refusal::Length),
        };
        let all_nodes = match self.to {
            IpAddr::V4(_) => IpAddr::from(ALL_NODES),
            IpAddr::V6(_) => ALL_NODES_IPV6.into(),
        };
        let is_general = group.is_unspecified();
        let asks_for_sources = extended.is_some_and(|it| it.source_count > 0);
        if !is_general && !group.is_multicast() || is_general && asks_for_sources {
            return Err(Refusal::Group);
        }
        if self.to != if is_general { all_nodes } else { group } {
            return Err(Refusal::Destination);
        }
        Ok(Query {
            group,
            response_max: self.response_max(extended.is_some())?,
            extended,
        })
    }

    fn response_max(&self, is_extended: bool) -> Result<Duration, Refusal> {
        Ok(match self.to {
            IpAddr::V4(_) => match (self.payload[1], is_extended) {
                (0, false) => IGMP1_RESPONSE,
                (code, false) => Duration::from_millis(u64::from(code) * 100),
                (code, true) => Duration::from_millis(floating::<4>(code.into()) * 100),
            },
            IpAddr::V6(_) => match (self.short(4)?, is_extended) {
                (code, false) => Duration::from_millis(code.into()),
                (code, true) => Duration::from_millis(floating::<12>(code)),
            },
        })
    }

    fn records(&self) -> Result<Message, Refusal> {
        let count = self.short(6)?;
        let read = usize::from(count).min(RECORDS_MAX);
        let mut records = Vec::with_capacity(read);
        let mut at = 8;
        for _ in 0..read {
            let Some([kind, aux_words, _, _]) = self.payload.get(at..at + 4) else {
                return Err(Refusal::Length);
            };
            let source_count = self.short(at + 2)?;
            let group = self.address(at + 4)?;
            at += 4 + self.width() * (1 + usize::from(source_count)) + 4 * usize::from(*aux_words);
            if at > self.payload.len() {
                return Err(Refusal::Length);
            }
            let Some(kind) = RecordKind::ALL.into_iter().find(|it| *it as u8 == *kind) else {
                continue;
            };
            if !group.is_multicast() {
                return Err(Refusal::Group);
            }
            records.push(Record {
                kind,
                group,
                source_count,
            });
        }
        Ok(Message::Records {
            records,
            beyond: count - read as u16,
        })
    }

    fn pim_hello(&self) -> Result<Message, Refusal> {
        let all_routers = match self.to {
            IpAddr::V4(_) => IpAddr::from([224, 0, 0, 13]),
            IpAddr::V6(_) => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xd).into(),
        };
        if self.to != all_routers {
            return Err(Refusal::Destination);
        }
        if self.from.is_unspecified() {
            return Err(Refusal::Source);
        }
        let mut at = 4;
        while at < self.payload.len() {
            let (option, len) = (self.short(at)?, self.short(at + 2)?);
            if option == PIM_HOLD {
                let seconds = if len == 2 { self.short(at + 4)? } else { 0 };
                let hold = match seconds {
                    _ if len != 2 => return Err(Refusal::Length),
                    u16::MAX => Duration::MAX,
                    seconds => Duration::from_secs(seconds.into()),
                };
                return Ok(Message::PimHello { hold });
            }
            at += 4 + usize::from(len);
        }
        Ok(Message::PimHello {
            hold: PIM_HOLD_DEFAULT,
        })
    }
}

/// Reports whether the options of a hop-by-hop header include the router alert of MLD.
fn has_alert(mut options: &[u8]) -> Result<bool, Refusal> {
    const PAD_ONE: u8 = 0;
    let mut is_found = false;
    while let [kind, rest @ ..] = options {
        options = rest;
        if *kind == PAD_ONE {
            continue;
        }
        let Some((len, rest)) = rest.split_first() else {
            return Err(Refusal::Length);
        };
        let Some((value, rest)) = rest.split_at_checked(usize::from(*len)) else {
            return Err(Refusal::Length);
        };
        // RFC 8200, 4.2: the highest bits say what to do with an unknown option.
        if kind >> 6 != 0 {
            return Err(Refusal::Options);
        }
        is_found |= *kind == ROUTER_ALERT && value == ROUTER_ALERT_MLD;
        options = rest;
    }
    Ok(is_found)
}

/// Returns the value of a code. If its highest bit is set, the code is a floating-point number with
/// a 3-bit exponent and `MANTISSA` bits (RFC 3376, 4.1.1 and 4.1.7; RFC 3810, 5.1.3).
fn floating<const MANTISSA: u32>(code: u16) -> u64 {
    let code = u64::from(code);
    let (exponent, mantissa) = (code >> MANTISSA & 7, code & ((1 << MANTISSA) - 1));
    match code >> (MANTISSA + 3) {
        0 => code,
        _ => (1 << MANTISSA | mantissa) << (exponent + 3),
    }
}

/// Computes the checksum of bytes whose checksum field is zero; 0 if the field is set and right
/// (RFC 1071). All parts except the last must have an even length.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or_default()))
        .sum();
    let folded = (0..3).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    !(folded as u16)
}

/// Computes the checksum including the addresses, the length and the protocol (RFC 8200, 8.1).
pub(crate) fn ipv6_checksum(from: Ipv6Addr, to: IpAddr, protocol: u8, payload: &[u8]) -> u16 {
    let to = match to {
        IpAddr::V6(to) => to.octets(),
        IpAddr::V4(_) => [0; 16],
    };
    let len = (payload.len() as u32).to_be_bytes();
    checksum(&[&from.octets(), &to, &len, &[0, protocol], payload])
}

#[cfg(test)]
mod tests;
