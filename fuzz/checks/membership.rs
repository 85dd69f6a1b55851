//! A frame with a message about membership in multicast groups is read without a panic, and nothing
//! that is read is beyond its bounds. Queries survive being written and read again.
//!
//! The first byte says whether the checksums of the frame, which is the rest, are made right.

use std::net::{Ipv4Addr, Ipv6Addr};

use openflow::MacAddr;
use openflow::packet::membership::{self, Heard, Message, RECORDS_MAX, Sender};

const SENDER: Sender = Sender {
    mac: MacAddr([2, 0, 0, 0, 0, 1]),
    ipv4: Ipv4Addr::new(10, 0, 0, 1),
    ipv6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
};

pub fn check(data: &[u8]) {
    let Some((mode, frame)) = data.split_first() else {
        return;
    };
    let mut frame = frame.to_vec();
    if mode & 1 == 1 {
        let _ = mend(&mut frame);
    }
    let read = membership::read(&frame);
    let Ok(Some(heard)) = read else {
        return;
    };
    check_bounds(&heard);
    // Padding after the packet changes nothing.
    frame.extend([0xaa; 7]);
    assert_eq!(membership::read(&frame), Ok(Some(heard)));
}

fn check_bounds(heard: &Heard) {
    assert!(heard.tag.is_none_or(|tag| tag < 4096));
    match &heard.message {
        Message::Query(query) => {
            assert!(query.group.is_multicast() || query.group.is_unspecified());
            let has_sources = query.extended.is_some_and(|it| it.source_count > 0);
            if has_sources || query.response_max.is_zero() {
                return;
            }
            let again = membership::read(&query.frame(SENDER)).expect("valid");
            let again = again.expect("about membership").message;
            assert_eq!(again, heard.message);
        }
        Message::Join { group, is_igmp1 } => {
            assert!(group.is_multicast());
            assert!(!is_igmp1 || group.is_ipv4());
        }
        Message::Leave { group } => assert!(group.is_multicast()),
        Message::Records { records, beyond } => {
            assert!(records.len() <= RECORDS_MAX);
            assert!(records.capacity() <= RECORDS_MAX);
            assert!(*beyond <= u16::MAX - RECORDS_MAX as u16);
            assert!(records.iter().all(|it| it.group.is_multicast()));
        }
        Message::PimHello { .. } => assert!(!heard.from.is_unspecified()),
    }
}

/// Makes the checksums of an IP packet and of its message right, where they are.
fn mend(frame: &mut [u8]) -> Option<()> {
    let at = match frame.get(12..14)? {
        [0x81, 0x00] => 18,
        _ => 14,
    };
    let packet = frame.get_mut(at..)?;
    let (start, end, pseudo) = match packet.first()? >> 4 {
        4 => {
            let header_len = usize::from(packet[0] & 0xf) * 4;
            let header = packet.get_mut(..header_len).filter(|it| it.len() >= 20)?;
            let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
            set(header, 10, 0);
            (header_len, end, 0)
        }
        _ => {
            let len = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            let (next, start) = match packet.get(6)? {
                0 => (*packet.get(40)?, 48 + usize::from(*packet.get(41)?) * 8),
                next => (*next, 40),
            };
            let upper_len = (40 + len).checked_sub(start)? as u64;
            let addresses = sum(packet.get(8..40)?);
            (start, 40 + len, addresses + upper_len + u64::from(next))
        }
    };
    set(packet.get_mut(start..end)?, 2, pseudo);
    Some(())
}

/// Sets the checksum at a place of some bytes, over these and what was summed before.
fn set(bytes: &mut [u8], at: usize, before: u64) {
    if bytes.len() < at + 2 {
        return;
    }
    bytes[at..at + 2].fill(0);
    let mut folded = before + sum(bytes);
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |it| u64::from(*it));
    bytes.chunks(2).map(word).sum()
}
