//! The sizes of headers as Linux, rustls and quinn write them, in bytes.

pub const ETHERNET: u32 = 14;
pub const IPV4: u32 = 20;
pub const UDP: u32 = 8;
/// The TCP header with the timestamps that Linux negotiates.
pub const TCP: u32 = 20 + 12;
/// Ethernet, IP and TCP: a bare acknowledgement.
pub const TCP_FRAME: u32 = ETHERNET + IPV4 + TCP;
pub const UDP_FRAME: u32 = ETHERNET + IPV4 + UDP;
/// Payload of a full TCP segment in 1,500 bytes.
pub const MSS: u32 = 1500 - IPV4 - TCP;
/// Header 5, content type 1, tag 16 of a TLS 1.3 record.
pub const TLS_RECORD: u32 = 5 + 1 + 16;
pub const TLS_RECORD_MAX: u32 = 16 << 10;
/// The authentication tag of a QUIC packet.
pub const AEAD_TAG: u32 = 16;
/// UDP payload at which quinn's path MTU discovery ends, over Ethernet.
pub const QUIC_MTU: u32 = 1452;
/// quinn begins no STREAM frame with less room than its longest header.
pub const STREAM_HEADER_MAX: u32 = 1 + 8 + 8 + 8;

/// A SACK option in an acknowledgement that has timestamps: padding 2, kind and length 2, 8 a
/// block.
pub fn sack(blocks: usize) -> u32 {
    match blocks.min(3) as u32 {
        0 => 0,
        blocks => 4 + 8 * blocks,
    }
}

/// A QUIC variable-length integer (RFC 9000, 16).
pub fn varint(value: u64) -> u32 {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// A STREAM frame's header; quinn omits the length only in a frame that fills the packet.
pub fn stream_header(stream: u64, offset: u64, len: u32, has_length: bool) -> u32 {
    let offset = if offset == 0 { 0 } else { varint(offset) };
    let length = if has_length {
        varint(u64::from(len))
    } else {
        0
    };
    1 + varint(stream) + offset + length
}

/// A packet number that the peer can complete (RFC 9000, A.2).
pub fn packet_number(number: u64, largest_acknowledged: u64) -> u32 {
    match 2 * (number - largest_acknowledged) {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xff_ffff => 3,
        _ => 4,
    }
}

/// A short header up to the first frame, and the tag after the last.
pub fn short_header(connection_id: u32, packet_number: u32) -> u32 {
    1 + connection_id + packet_number + AEAD_TAG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_rfcs() {
        assert_eq!((TCP_FRAME, UDP_FRAME, MSS), (66, 42, 1448));
        assert_eq!([0, 1, 2, 3, 9].map(sack), [0, 12, 20, 28, 28]);
        assert_eq!([63, 64, 16_383, 16_384].map(varint), [1, 2, 2, 4]);
        // Type, stream 2, no offset, length 220; then an offset, and a frame that fills the packet.
        assert_eq!(stream_header(2, 0, 220, true), 1 + 1 + 2);
        assert_eq!(stream_header(2, 20_000, 220, true), 1 + 1 + 4 + 2);
        assert_eq!(stream_header(2, 220, 1400, false), 1 + 1 + 2);
        assert_eq!(packet_number(127, 0), 1);
        assert_eq!(packet_number(128, 0), 2);
        // quinn's defaults: an id of 8 bytes. 27 bytes and 20 at least, as in the specification.
        assert_eq!(short_header(8, 2), 27);
    }
}
