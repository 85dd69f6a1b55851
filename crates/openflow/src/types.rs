//! Identifiers of the protocol as types of their own, so that a port is never passed for a queue.
//!
//! All have the widths of OpenFlow 1.3; the 1.0 codec maps its narrower identifiers.

use std::fmt;
use std::str::FromStr;

/// A protocol version, by its byte in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1.
    V11 = 2,
    /// OpenFlow 1.2.
    V12 = 3,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 6] = [
        Version::V10,
        Version::V11,
        Version::V12,
        Version::V13,
        Version::V14,
        Version::V15,
    ];

    /// Returns the version of a header's first byte; `None` if there is no such version.
    pub fn from_wire(byte: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|v| *v as u8 == byte)
    }

    /// First byte of a header in this version.
    pub fn wire(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", *self as u8 - 1)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);
        impl From<$int> for $name {
            fn from(v: $int) -> Self {
                Self(v)
            }
        }
    };
}

id!(/// Transaction id: a reply carries its request's.
    Xid(u32));
id!(/// A switch. Printed as `ovs-vsctl` does, as 16 hex digits.
    DatapathId(u64));
id!(/// A port, in the 32-bit numbering of OpenFlow 1.1 and later.
    PortNo(u32));
id!(/// A group.
    GroupId(u32));
id!(/// A bucket of a group, in 1.5.
    BucketId(u32));
id!(/// A meter.
    MeterId(u32));
id!(/// A queue of a port.
    QueueId(u32));
id!(/// A packet kept by the switch. `NO_BUFFER` on the wire is `None` in messages.
    BufferId(u32));
id!(/// The controller's mark on a flow entry.
    Cookie(u64));
id!(/// A flow table.
    TableId(u8));

impl PortNo {
    /// The largest number of a physical or logical port (OFPP_MAX).
    pub const MAX: PortNo = PortNo(0xffff_ff00);
    /// OFPP_UNSET: the output port of the action set is not set; 1.5.
    pub const UNSET: PortNo = PortNo(0xffff_fff7);
    /// OFPP_IN_PORT: the ingress port of the packet.
    pub const IN_PORT: PortNo = PortNo(0xffff_fff8);
    /// OFPP_TABLE: the flow tables, in a PACKET_OUT.
    pub const TABLE: PortNo = PortNo(0xffff_fff9);
    /// OFPP_NORMAL: the switch's own forwarding.
    pub const NORMAL: PortNo = PortNo(0xffff_fffa);
    /// OFPP_FLOOD: all ports but the ingress port and those set not to flood.
    pub const FLOOD: PortNo = PortNo(0xffff_fffb);
    /// OFPP_ALL: all ports but the ingress port.
    pub const ALL: PortNo = PortNo(0xffff_fffc);
    /// OFPP_CONTROLLER: the controller.
    pub const CONTROLLER: PortNo = PortNo(0xffff_fffd);
    /// OFPP_LOCAL: the switch's own network stack.
    pub const LOCAL: PortNo = PortNo(0xffff_fffe);
    /// OFPP_ANY; OFPP_NONE in OpenFlow 1.0.
    pub const ANY: PortNo = PortNo(0xffff_ffff);

    /// Reports whether this is a port of the switch rather than a reserved number.
    pub fn is_ordinary(self) -> bool {
        self.0 != 0 && self < PortNo::MAX
    }
}

impl GroupId {
    /// OFPG_MAX: the largest number of a group.
    pub const MAX: GroupId = GroupId(0xffff_ff00);
    /// OFPG_ALL: all groups, to delete them.
    pub const ALL: GroupId = GroupId(0xffff_fffc);
    /// OFPG_ANY: no restriction to a group.
    pub const ANY: GroupId = GroupId(0xffff_ffff);
}

impl BucketId {
    /// OFPG_BUCKET_MAX: the largest number of a bucket.
    pub const MAX: BucketId = BucketId(0xffff_ff00);
    /// OFPG_BUCKET_FIRST: the first bucket of a group.
    pub const FIRST: BucketId = BucketId(0xffff_fffd);
    /// OFPG_BUCKET_LAST: the last bucket of a group.
    pub const LAST: BucketId = BucketId(0xffff_fffe);
    /// OFPG_BUCKET_ALL: all buckets of a group.
    pub const ALL: BucketId = BucketId(0xffff_ffff);
}

impl MeterId {
    /// OFPM_MAX: the largest number of a meter.
    pub const MAX: MeterId = MeterId(0xffff_0000);
    /// OFPM_SLOWPATH: the meter of packets that the slow path processes.
    pub const SLOWPATH: MeterId = MeterId(0xffff_fffd);
    /// OFPM_CONTROLLER: the meter of packets to the controller.
    pub const CONTROLLER: MeterId = MeterId(0xffff_fffe);
    /// OFPM_ALL: all meters, in statistics and to delete them.
    pub const ALL: MeterId = MeterId(0xffff_ffff);
}

impl QueueId {
    /// OFPQ_ALL: all queues, in statistics.
    pub const ALL: QueueId = QueueId(0xffff_ffff);
}

impl TableId {
    /// OFPTT_MAX: the largest number of a table.
    pub const MAX: TableId = TableId(0xfe);
    /// OFPTT_ALL: all tables.
    pub const ALL: TableId = TableId(0xff);
}

/// An Ethernet address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address of all stations.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Reports whether the group bit is set; broadcast is a multicast address too.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns the address as a number of 48 bits.
    pub fn to_u64(self) -> u64 {
        self.0.iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// Makes an address from the low 48 bits of `n`.
    pub fn from_u64(n: u64) -> MacAddr {
        let b = n.to_be_bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = || format!("'{s}' is not an Ethernet address such as 52:54:00:12:34:56");
        let mut mac = [0u8; 6];
        let mut parts = s.split([':', '-']);
        for byte in &mut mac {
            let part = parts
                .next()
                .filter(|p| (1..=2).contains(&p.len()))
                .ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(MacAddr(mac))
    }
}

impl fmt::Display for DatapathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Accepts the usual forms: 16 hex digits (OVS), `0x…`, `of:…` and colons (ONOS, Floodlight). Bare
/// digits are decimal unless there are 16 of them, as in Ryu's REST paths.
impl FromStr for DatapathId {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let bare = s.strip_prefix("of:").unwrap_or(s);
        let parsed = if let Some(hex) = bare.strip_prefix("0x") {
            u64::from_str_radix(hex, 16).ok()
        } else if bare.contains(':') {
            let digits: String = bare.split(':').collect();
            (digits.len() == 16)
                .then(|| u64::from_str_radix(&digits, 16).ok())
                .flatten()
        } else if bare.len() == 16 {
            u64::from_str_radix(bare, 16).ok()
        } else {
            bare.parse().ok()
        };
        parsed.map(DatapathId).ok_or_else(|| {
            format!("'{s}' is not a datapath id: write 16 hex digits, 0x…, colons or a decimal")
        })
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            PortNo::UNSET => "UNSET",
            PortNo::IN_PORT => "IN_PORT",
            PortNo::TABLE => "TABLE",
            PortNo::NORMAL => "NORMAL",
            PortNo::FLOOD => "FLOOD",
            PortNo::ALL => "ALL",
            PortNo::CONTROLLER => "CONTROLLER",
            PortNo::LOCAL => "LOCAL",
            PortNo::ANY => "ANY",
            PortNo(n) => return write!(f, "{n}"),
        })
    }
}

impl FromStr for PortNo {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Ok(match s.to_ascii_uppercase().as_str() {
            "UNSET" => PortNo::UNSET,
            "IN_PORT" => PortNo::IN_PORT,
            "TABLE" => PortNo::TABLE,
            "NORMAL" => PortNo::NORMAL,
            "FLOOD" => PortNo::FLOOD,
            "ALL" => PortNo::ALL,
            "CONTROLLER" => PortNo::CONTROLLER,
            "LOCAL" => PortNo::LOCAL,
            "ANY" | "NONE" => PortNo::ANY,
            upper => {
                let number = match upper.strip_prefix("0X") {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => s.parse(),
                };
                PortNo(number.map_err(|_| {
                    format!("'{s}' is not a port: write a number or a reserved name such as LOCAL")
                })?)
            }
        })
    }
}

/// A set of bits with names, in the protocol's own numbering.
macro_rules! flags {
    (
        $(#[$doc:meta])* $name:ident($int:ty) {
            $($(#[$flag_doc:meta])* $flag:ident = $value:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);
        impl $name {
            $($(#[$flag_doc])* pub const $flag: $name = $name($value);)*
            /// Every named bit with its name, lowest first.
            pub const NAMES: &[($name, &str)] = &[$(($name::$flag, stringify!($flag))),*];
            /// No bit set.
            pub const fn empty() -> Self {
                Self(0)
            }
            /// Reports whether all bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
            /// Reports whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }
        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }
    };
}
pub(crate) use flags;
