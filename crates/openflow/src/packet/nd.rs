//! Neighbour solicitations for IPv6 addresses and their answers (RFC 4861) as hosts send them:
//! untagged, with the link-layer address as the only option. Reading and writing do not allocate.

use std::net::Ipv6Addr;

use crate::types::MacAddr;

use super::{ETH_IPV6, IP_ICMPV6};

/// Length of the frame of a solicitation, and of an answer.
pub const LEN: usize = 86;

pub(crate) const NEIGHBOUR_SOLICITATION: u8 = 135;
pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Hop limit of these messages; a packet with another hop limit has passed a router.
pub(crate) const HOP_LIMIT: u8 = 255;

/// Flags of an advertisement: its sender is a router; it answers a solicitation; its link-layer
/// address replaces the one known before.
pub(crate) const ROUTER: u8 = 0x80;
pub(crate) const SOLICITED: u8 = 0x40;
pub(crate) const OVERRIDE: u8 = 0x20;

/// Options: the link-layer address of the sender, and of the target.
pub(crate) const SOURCE_ADDRESS: u8 = 1;
pub(crate) const TARGET_ADDRESS: u8 = 2;

/// Offsets of the fields in a frame.
const PAYLOAD: usize = 18;
const NEXT_HEADER: usize = 20;
const FROM: usize = 22;
const TO: usize = 38;
const ICMP: usize = 54;
const CHECKSUM: usize = 56;
const FLAGS: usize = 58;
const TARGET: usize = 62;
const OPTION: usize = 78;

/// A neighbour solicitation to all hosts that may have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// Ethernet address of the host that asks.
    pub asker: MacAddr,
    /// IPv6 address of the host that asks.
    pub from: Ipv6Addr,
    /// The address that the host asks for.
    pub target: Ipv6Addr,
}

impl Solicitation {
    /// Reads a solicitation; `None` if the frame differs from [`Solicitation::frame`] in any byte.
    ///
    /// ```
    /// use openflow::packet::nd::Solicitation;
    /// use openflow::MacAddr;
    ///
    /// let question = Solicitation {
    ///     asker: MacAddr([2, 0, 0, 0, 0, 1]),
    ///     from: "fe80::1".parse().unwrap(),
    ///     target: "fe80::2".parse().unwrap(),
    /// };
    /// let mut frame = question.frame();
    /// assert_eq!(Solicitation::read(&frame), Some(question));
    /// frame[21] = 64;
    /// assert_eq!(Solicitation::read(&frame), None, "it has come over a router");
    /// ```
    pub fn read(frame: &[u8]) -> Option<Solicitation> {
        let frame: &[u8; LEN] = frame.try_into().ok()?;
        let ip = |at: usize| Some(Ipv6Addr::from(*frame[at..].first_chunk::<16>()?));
        let question = Solicitation {
            asker: MacAddr(*frame[6..].first_chunk()?),
            from: ip(FROM)?,
            target: ip(TARGET)?,
        };
        (frame[ICMP] == NEIGHBOUR_SOLICITATION && *frame == question.frame()).then_some(question)
    }

    /// Returns the frame of the solicitation.
    pub fn frame(&self) -> [u8; LEN] {
        let to = group(self.target);
        message(
            (NEIGHBOUR_SOLICITATION, 0),
            (self.asker, self.from),
            (group_mac(to), to),
            self.target,
            (SOURCE_ADDRESS, self.asker),
        )
    }

    /// Returns the frame with which `owner`, which is not a router, answers. The answer overrides
    /// the address that the asker knows, like every answer of a host for its own address: the
    /// hardware address is the host's, not a proxy's (RFC 4861, 7.2.4 and 7.2.8).
    pub fn answer(&self, owner: MacAddr) -> [u8; LEN] {
        message(
            (NEIGHBOUR_ADVERTISEMENT, SOLICITED | OVERRIDE),
            (owner, self.target),
            (self.asker, self.from),
            self.target,
            (TARGET_ADDRESS, owner),
        )
    }
}

/// The multicast group of the hosts that may have an address.
pub(crate) fn group(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The Ethernet address of a multicast group.
pub(crate) fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

fn message(
    (kind, flags): (u8, u8),
    from: (MacAddr, Ipv6Addr),
    to: (MacAddr, Ipv6Addr),
    target: Ipv6Addr,
    (option, address): (u8, MacAddr),
) -> [u8; LEN] {
    let mut frame = [0; LEN];
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &to.0.0);
    put(6, &from.0.0);
    put(12, &ETH_IPV6.to_be_bytes());
    put(14, &[0x60]);
    put(PAYLOAD, &((LEN - ICMP) as u16).to_be_bytes());
    put(NEXT_HEADER, &[IP_ICMPV6, HOP_LIMIT]);
    put(FROM, &from.1.octets());
    put(TO, &to.1.octets());
    put(ICMP, &[kind]);
    put(FLAGS, &[flags]);
    put(TARGET, &target.octets());
    put(OPTION, &[option, 1]);
    put(OPTION + 2, &address.0);
    let sum = checksum(&frame);
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Computes the checksum of a message whose checksum field is zero, over both addresses, the
/// message, its length and its protocol.
fn checksum(frame: &[u8; LEN]) -> u16 {
    let words = frame[FROM..].chunks_exact(2);
    let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>() + (LEN - ICMP) as u32 + u32::from(IP_ICMPV6);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::packet::build;

    use super::*;

    /// Frames of two Linux hosts on a cable, the second one's answer included.
    #[test]
    fn linux_asks_and_answers_like_this() {
        let question = hex("3333ff000002 020000000001 86dd 60000000 0020 3a ff \
             fe800000000000000000000000000001 ff0200000000000000000001ff000002 \
             8700 7a97 00000000 fe800000000000000000000000000002 0101020000000001");
        let answer = hex("020000000001 020000000002 86dd 60000000 0020 3a ff \
             fe800000000000000000000000000002 fe800000000000000000000000000001 \
             8800 181a 60000000 fe800000000000000000000000000002 0201020000000002");
        let read = Solicitation::read(&question).expect("a question");
        assert_eq!(read.answer(MacAddr([2, 0, 0, 0, 0, 2]))[..], answer);
    }

    proptest! {
        /// Another packet builder makes the same frames, and a frame with a flipped bit is not
        /// read.
        #[test]
        fn frames_are_what_hosts_send(
            asker: [u8; 6],
            owner: [u8; 6],
            from: u128,
            target: u128,
            bit in 0..LEN * 8,
        ) {
            let (asker, owner) = (MacAddr(asker), MacAddr(owner));
            let (from, target) = (Ipv6Addr::from(from), Ipv6Addr::from(target));
            let question = Solicitation { asker, from, target };
            let mut frame = build::neighbour_solicitation((asker, from), target);
            prop_assert_eq!(&question.frame()[..], &frame);
            prop_assert_eq!(Solicitation::read(&frame), Some(question));
            let answer = build::neighbour_answer((owner, target), (asker, from), false);
            prop_assert_eq!(&question.answer(owner)[..], &answer);
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Solicitation::read(&frame), None);
            // Nor with a corrected checksum, except from another sender, and for another address of
            // the same group.
            let mut frame: [u8; LEN] = frame.try_into().expect("as long as it was");
            frame[CHECKSUM..CHECKSUM + 2].fill(0);
            let sum = checksum(&frame);
            frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
            let others = [FROM..TO, TARGET..TARGET + 13, CHECKSUM..FLAGS];
            let is_other = others.iter().any(|place| place.contains(&(bit / 8)));
            prop_assert_eq!(Solicitation::read(&frame).is_some(), is_other);
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|it| !it.is_ascii_whitespace())
            .collect();
        let digit = |it: u8| char::from(it).to_digit(16).expect("a digit") as u8;
        digits
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }
}
