//! The packet inside a message, or the flow that the message names. Reads every version and
//! allocates nothing. A field that is not as expected is absent.

use openflow::match_fields::{OXM_CLASS_BASIC, VLAN_PRESENT};
use openflow::{Field, Frame, MessageKind, PacketFields, PortNo, Version};

const NO_BUFFER: [u8; 4] = [0xff; 4];
const FIELD_COUNT: usize = Field::COUNT;

/// Returns the switch's buffer that a PACKET_IN or PACKET_OUT names.
pub fn buffer_of(frame: &Frame) -> Option<u32> {
    if !matches!(frame.kind(), MessageKind::PacketIn | MessageKind::PacketOut) {
        return None;
    }
    let id = frame.body().first_chunk::<4>()?;
    (*id != NO_BUFFER).then(|| u32::from_be_bytes(*id))
}

/// The packet that a PACKET_IN carries.
#[derive(Clone, Copy, Debug)]
pub struct PacketIn<'a> {
    /// Ingress port.
    pub in_port: PortNo,
    /// The packet, perhaps cut to the switch's `miss_send_len`.
    pub data: &'a [u8],
    /// The other fields that the switch sent: OXM fields, empty before 1.2.
    oxm: &'a [u8],
}

impl<'a> PacketIn<'a> {
    /// Reads a PACKET_IN of any version; `None` for other messages and for a PACKET_IN that is cut
    /// short.
    pub fn of(frame: &'a Frame) -> Option<PacketIn<'a>> {
        if frame.kind() != MessageKind::PacketIn {
            return None;
        }
        let body = frame.body();
        let match_at = match frame.version()? {
            Version::V10 => {
                return Some(PacketIn {
                    in_port: PortNo(port_of_v10(u16_at(body, 6)?)),
                    data: body.get(10..)?,
                    oxm: &[],
                });
            }
            Version::V11 => {
                return Some(PacketIn {
                    in_port: PortNo(u32_at(body, 4)?),
                    data: body.get(16..)?,
                    oxm: &[],
                });
            }
            Version::V12 => 8,
            _ => 16,
        };
        let (oxm, end) = oxm_match(body, match_at)?;
        let in_port = Oxms(oxm).find(|oxm| oxm.field == Field::InPort);
        Some(PacketIn {
            in_port: PortNo(in_port.map_or(0, |oxm| oxm.value as u32)),
            data: body.get(end + 2..)?,
            oxm,
        })
    }

    /// The fields of the packet, and the fields about it that the switch sent.
    pub fn fields(&self) -> PacketFields {
        let mut fields = PacketFields::parse(self.in_port, self.data);
        for oxm in Oxms(self.oxm) {
            if matches!(
                oxm.field,
                Field::Metadata | Field::TunnelId | Field::InPhyPort
            ) {
                fields.set(oxm.field, oxm.value);
            }
        }
        fields
    }
}

/// The packet that a PACKET_OUT sends.
#[derive(Clone, Copy, Debug)]
pub struct PacketOut<'a> {
    /// Ingress port that the message names.
    pub in_port: PortNo,
    /// The packet; empty where the message names a buffer.
    pub data: &'a [u8],
    /// Whether the message depends on nothing outside it: it names no buffer, does not go through
    /// the flow tables or a group, and has no action that we do not know.
    pub stands_alone: bool,
}

impl<'a> PacketOut<'a> {
    /// Reads a PACKET_OUT of any version; `None` for other messages, and for wrong lengths, which
    /// the switch must refuse in its turn.
    pub fn of(frame: &'a Frame) -> Option<PacketOut<'a>> {
        if frame.kind() != MessageKind::PacketOut {
            return None;
        }
        let body = frame.body();
        let version = frame.version()?;
        let is_buffered = body.get(..4)? != NO_BUFFER;
        let (in_port, len_at, actions_at) = match version {
            Version::V10 => (port_of_v10(u16_at(body, 4)?), 6, 8),
            Version::V11 | Version::V12 | Version::V13 | Version::V14 => (u32_at(body, 4)?, 8, 16),
            Version::V15 => {
                let (oxm, end) = oxm_match(body, 8)?;
                let port = Oxms(oxm).find(|oxm| oxm.field == Field::InPort);
                (port.map_or(PortNo::ANY.0, |oxm| oxm.value as u32), 4, end)
            }
        };
        let data_at = actions_at + usize::from(u16_at(body, len_at)?);
        let actions = body.get(actions_at..data_at)?;
        let data = body.get(data_at..)?;
        Some(PacketOut {
            in_port: PortNo(in_port),
            data: if is_buffered { &[] } else { data },
            stands_alone: !is_buffered && stand_alone(version, actions)?,
        })
    }

    /// Fields of the packet, empty where a buffer is named.
    pub fn fields(&self) -> PacketFields {
        PacketFields::parse(self.in_port, self.data)
    }
}

/// Reports whether `actions` use nothing that other messages have set up.
fn stand_alone(version: Version, mut actions: &[u8]) -> Option<bool> {
    const OUTPUT: u16 = 0;
    const GROUP: u16 = 22;
    const EXPERIMENTER: u16 = 0xffff;
    let is_v10 = version == Version::V10;
    let mut alone = true;
    while !actions.is_empty() {
        let kind = u16_at(actions, 0)?;
        let len = usize::from(u16_at(actions, 2)?);
        let action = actions.get(..len).filter(|action| action.len() >= 8)?;
        alone &= match kind {
            OUTPUT if is_v10 => u16_at(action, 4)? != PortNo::TABLE.0 as u16,
            OUTPUT => u32_at(action, 4)? != PortNo::TABLE.0,
            GROUP => is_v10,
            // Open vSwitch's `resubmit` is one of them.
            EXPERIMENTER => false,
            _ => true,
        };
        actions = &actions[len..];
    }
    Some(alone)
}

/// The match of a flow, as values and masks by field.
#[derive(Clone)]
pub struct FlowFields {
    values: [u128; FIELD_COUNT],
    masks: [u128; FIELD_COUNT],
}

impl FlowFields {
    /// No field of the flow is known yet.
    pub(crate) const NONE: FlowFields = FlowFields {
        values: [0; FIELD_COUNT],
        masks: [0; FIELD_COUNT],
    };

    /// The flow that a FLOW_MOD sets or a FLOW_REMOVED reports.
    pub fn of(frame: &Frame) -> Option<FlowFields> {
        FlowFields::of_parts(frame.version()?, frame.kind(), frame.body())
    }

    pub(crate) fn of_parts(version: Version, kind: MessageKind, body: &[u8]) -> Option<FlowFields> {
        let mut fields = FlowFields::NONE;
        fields.read(version, kind, body)?;
        Some(fields)
    }

    /// Reads the match of a FLOW_MOD or FLOW_REMOVED into `self`, which has no field yet. `None` if
    /// the message is another, or cut short.
    pub(crate) fn read(&mut self, version: Version, kind: MessageKind, body: &[u8]) -> Option<()> {
        let match_at = match (kind, version) {
            (MessageKind::FlowMod | MessageKind::FlowRemoved, Version::V10) => {
                return self.read_v10(body);
            }
            (MessageKind::FlowMod | MessageKind::FlowRemoved, Version::V11) => {
                return self.read_v11(body.get(40..)?);
            }
            (MessageKind::FlowRemoved, Version::V15) => 16,
            (MessageKind::FlowMod | MessageKind::FlowRemoved, _) => 40,
            _ => return None,
        };
        for oxm in Oxms(oxm_match(body, match_at)?.0) {
            self.put(oxm.field, oxm.value, oxm.mask);
        }
        Some(())
    }

    /// Value and mask of `field`, if the flow matches on it.
    pub fn get(&self, field: Field) -> Option<(u128, u128)> {
        let mask = self.masks[field as usize];
        (mask != 0).then_some((self.values[field as usize], mask))
    }

    /// Reports whether every packet of the flow has `value` in the bits of `mask`.
    #[inline]
    pub fn implies(&self, field: Field, value: u128, mask: u128) -> bool {
        let at = field as usize;
        mask & !self.masks[at] == 0 && (self.values[at] ^ value) & mask == 0
    }

    fn put(&mut self, field: Field, value: impl Into<u128>, mask: impl Into<u128>) {
        let mask = mask.into() & field.ones();
        self.values[field as usize] = value.into() & mask;
        self.masks[field as usize] = mask;
    }

    fn exact(&mut self, field: Field, value: impl Into<u128>) {
        self.put(field, value, field.ones());
    }

    /// Reads the `ofp_match` of 1.0.
    fn read_v10(&mut self, body: &[u8]) -> Option<()> {
        let body = body.get(..40)?;
        let wild = u32_at(body, 0)?;
        let says = |bit: u32| wild >> bit & 1 == 0;
        if says(0) {
            self.exact(Field::InPort, port_of_v10(u16_at(body, 4)?));
        }
        if says(2) {
            self.exact(Field::EthSrc, uint_at(body, 6, 6)?);
        }
        if says(3) {
            self.exact(Field::EthDst, uint_at(body, 12, 6)?);
        }
        let vlan = Vlan {
            vid: says(1).then_some(u16_at(body, 18)?),
            pcp: says(20).then_some(body[20]),
        };
        self.vlan(vlan);
        let prefix = |shift: u32| {
            let bits = wild >> shift & 0x3f;
            if bits >= 32 { 0 } else { u32::MAX << bits }
        };
        let ip = Ip {
            eth_type: says(4).then_some(u16_at(body, 22)?),
            dscp: says(21).then_some(body[24] >> 2),
            proto: says(5).then_some(body[25]),
            src: (u32_at(body, 28)?, prefix(8)),
            dst: (u32_at(body, 32)?, prefix(14)),
            port_src: says(6).then_some(u16_at(body, 36)?),
            port_dst: says(7).then_some(u16_at(body, 38)?),
        };
        self.ip(&ip);
        Some(())
    }

    /// Reads the standard match of 1.1, whose masks have a one for each bit that is ignored.
    fn read_v11(&mut self, body: &[u8]) -> Option<()> {
        let body = body.get(..88)?;
        let wild = u32_at(body, 8)?;
        let says = |bit: u32| wild >> bit & 1 == 0;
        if says(0) {
            self.exact(Field::InPort, u32_at(body, 4)?);
        }
        self.put(Field::EthSrc, uint_at(body, 12, 6)?, !uint_at(body, 18, 6)?);
        self.put(Field::EthDst, uint_at(body, 24, 6)?, !uint_at(body, 30, 6)?);
        let vlan = Vlan {
            vid: says(1).then_some(u16_at(body, 36)?),
            pcp: says(2).then_some(body[38]),
        };
        self.vlan(vlan);
        let ip = Ip {
            eth_type: says(3).then_some(u16_at(body, 40)?),
            dscp: says(4).then_some(body[42] >> 2),
            proto: says(5).then_some(body[43]),
            src: (u32_at(body, 44)?, !u32_at(body, 48)?),
            dst: (u32_at(body, 52)?, !u32_at(body, 56)?),
            port_src: says(6).then_some(u16_at(body, 60)?),
            port_dst: says(7).then_some(u16_at(body, 62)?),
        };
        self.ip(&ip);
        if says(8) {
            self.exact(Field::MplsLabel, u32_at(body, 64)?);
        }
        if says(9) {
            self.exact(Field::MplsTc, body[68]);
        }
        self.put(
            Field::Metadata,
            uint_at(body, 72, 8)?,
            !uint_at(body, 80, 8)?,
        );
        Some(())
    }

    fn vlan(&mut self, vlan: Vlan) {
        const NONE: u16 = 0xffff;
        const ANY: u16 = 0xfffe;
        match vlan.vid {
            Some(NONE) => return self.exact(Field::VlanVid, 0u8),
            Some(ANY) => self.put(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT),
            Some(vid) => self.exact(Field::VlanVid, u128::from(vid & 0xfff) | VLAN_PRESENT),
            None if vlan.pcp.is_some() => self.put(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT),
            None => {}
        }
        if let Some(pcp) = vlan.pcp {
            self.exact(Field::VlanPcp, pcp);
        }
    }

    /// Reads the fields whose meaning depends on the Ethernet type. Without a type they mean
    /// nothing.
    fn ip(&mut self, ip: &Ip) {
        const IPV4: u16 = 0x0800;
        const ARP: u16 = 0x0806;
        const IPV6: u16 = 0x86dd;
        let Some(eth_type) = ip.eth_type else {
            return;
        };
        self.exact(Field::EthType, eth_type);
        match eth_type {
            ARP => {
                if let Some(op) = ip.proto {
                    self.exact(Field::ArpOp, op);
                }
                self.put(Field::ArpSpa, ip.src.0, ip.src.1);
                self.put(Field::ArpTpa, ip.dst.0, ip.dst.1);
            }
            IPV4 | IPV6 => {
                if let Some(dscp) = ip.dscp {
                    self.exact(Field::IpDscp, dscp);
                }
                if eth_type == IPV4 {
                    self.put(Field::Ipv4Src, ip.src.0, ip.src.1);
                    self.put(Field::Ipv4Dst, ip.dst.0, ip.dst.1);
                }
                if let Some(proto) = ip.proto {
                    self.exact(Field::IpProto, proto);
                    self.ports(eth_type == IPV4, proto, ip);
                }
            }
            _ => {}
        }
    }

    fn ports(&mut self, is_ipv4: bool, proto: u8, ip: &Ip) {
        let (src, dst) = match proto {
            6 => (Field::TcpSrc, Field::TcpDst),
            17 => (Field::UdpSrc, Field::UdpDst),
            132 => (Field::SctpSrc, Field::SctpDst),
            1 if is_ipv4 => (Field::Icmpv4Type, Field::Icmpv4Code),
            58 if !is_ipv4 => (Field::Icmpv6Type, Field::Icmpv6Code),
            _ => return,
        };
        for (field, value) in [(src, ip.port_src), (dst, ip.port_dst)] {
            if let Some(value) = value {
                self.exact(field, value);
            }
        }
    }
}

struct Vlan {
    vid: Option<u16>,
    pcp: Option<u8>,
}

/// The IP fields of a fixed match; addresses with their masks.
struct Ip {
    eth_type: Option<u16>,
    dscp: Option<u8>,
    proto: Option<u8>,
    src: (u32, u32),
    dst: (u32, u32),
    port_src: Option<u16>,
    port_dst: Option<u16>,
}

/// The message that a BUNDLE_ADD_MESSAGE carries: its type byte and its body.
pub fn bundled(frame: &Frame) -> Option<(MessageKind, &[u8])> {
    if frame.kind() != MessageKind::BundleAddMessage {
        return None;
    }
    let message = frame.body().get(8..)?;
    let len = usize::from(u16_at(message, 2)?);
    let body = message.get(8..len)?;
    let kind = MessageKind::from_wire(*message.first()?, *message.get(1)?);
    Some((kind, body))
}

/// Reports whether a message is a PORT_STATUS about a deleted port or a lost link.
pub fn is_link_down(frame: &Frame) -> bool {
    const REASON_DELETE: u8 = 1;
    const LINK_DOWN: u32 = 1;
    if frame.kind() != MessageKind::PortStatus {
        return false;
    }
    let body = frame.body();
    let state_at = match frame.version() {
        Some(Version::V10) => 36,
        _ => 44,
    };
    let state = u32_at(body, state_at).unwrap_or(0);
    body.first() == Some(&REASON_DELETE) || state & LINK_DOWN != 0
}

/// One basic OXM field.
#[derive(Clone, Copy, Debug)]
struct Oxm {
    field: Field,
    value: u128,
    mask: u128,
}

/// Iterator over the basic fields in a run of OXM. It skips other fields and ends at a malformed
/// one.
struct Oxms<'a>(&'a [u8]);

impl Iterator for Oxms<'_> {
    type Item = Oxm;

    fn next(&mut self) -> Option<Oxm> {
        loop {
            let header = u32_at(self.0, 0)?;
            let len = (header & 0xff) as usize;
            let payload = self.0.get(4..4 + len)?;
            self.0 = &self.0[4 + len..];
            let has_mask = header >> 8 & 1 == 1;
            let field = Field::from_number((header >> 9 & 0x7f) as u8)
                .filter(|_| (header >> 16) as u16 == OXM_CLASS_BASIC);
            let Some(field) = field else {
                continue;
            };
            let width = field.len();
            if len != width << u32::from(has_mask) {
                continue;
            }
            let value = uint_at(payload, 0, width)?;
            let mask = if has_mask {
                uint_at(payload, width, width)?
            } else {
                field.ones()
            };
            return Some(Oxm { field, value, mask });
        }
    }
}

/// The OXM fields of the match at `at`, and the end of the padding after it.
fn oxm_match(body: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = usize::from(u16_at(body, at + 2)?);
    let fields = body.get(at + 4..at + len)?;
    Some((fields, at + len.next_multiple_of(8)))
}

/// Widens a port of 1.0 to 32 bits. Reserved ports get the high half that they have in later
/// versions.
fn port_of_v10(port: u16) -> u32 {
    const RESERVED_MIN: u16 = 0xff00;
    if port >= RESERVED_MIN {
        0xffff_0000 | u32::from(port)
    } else {
        port.into()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

#[inline]
fn uint_at(bytes: &[u8], at: usize, len: usize) -> Option<u128> {
    let part = bytes.get(at..at + len)?;
    Some(match part {
        [byte] => u128::from(*byte),
        [a, b] => u128::from(u16::from_be_bytes([*a, *b])),
        [a, b, c, d] => u128::from(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => part.iter().fold(0, |n, byte| n << 8 | u128::from(*byte)),
    })
}
