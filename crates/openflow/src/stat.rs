//! OXS: statistics of an entry as fields, in 1.5.

use bytes::Bytes;

/// OFPXSC_OPENFLOW_BASIC.
pub const OXS_CLASS_BASIC: u16 = 0x8002;

/// One statistic of an entry (1.5.1, 7.2.4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stat {
    /// OXS_OF_DURATION: age of the entry, in seconds and nanoseconds beyond.
    Duration(u32, u32),
    /// OXS_OF_IDLE_TIME: time without a packet, in seconds and nanoseconds beyond.
    IdleTime(u32, u32),
    /// OXS_OF_FLOW_COUNT: number of entries in an aggregate.
    FlowCount(u32),
    /// OXS_OF_PACKET_COUNT: packets that matched.
    PacketCount(u64),
    /// OXS_OF_BYTE_COUNT: bytes that matched.
    ByteCount(u64),
    /// A statistic without a name here: OXS header, and the bytes that it announces.
    Other {
        /// Class, field and length.
        header: u32,
        /// Bytes after the header, an experimenter id included.
        payload: Bytes,
    },
}
