//! Link aggregation: the messages by which the two ends of a link agree that the link belongs to a
//! bond (IEEE 802.1AX-2020, 6.4.2).
//!
//! A partner is not trusted: a message is read as a whole or not at all.

use crate::types::MacAddr;

/// The multicast group for LACP messages. No bridge forwards them.
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x02]);
/// The EtherType of slow protocols.
pub const ETH_TYPE: u16 = 0x8809;
/// The length of a frame with a message.
pub const FRAME_LEN: usize = 124;

/// The subtype of LACP among slow protocols.
const SUBTYPE: u8 = 1;
const VERSION: u8 = 1;
/// The types and lengths of a message's parts about each end, and about the receiver.
const ACTOR: [u8; 2] = [1, 20];
const PARTNER: [u8; 2] = [2, 20];
const COLLECTOR: [u8; 2] = [3, 16];

const AT_SUBTYPE: usize = 14;
const AT_ACTOR: usize = 16;
const AT_PARTNER: usize = 36;
const AT_COLLECTOR: usize = 56;
const AT_END: usize = 72;

/// The state of an end, as bits of one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(pub u8);

impl State {
    /// The end sends messages without being asked.
    pub const ACTIVITY: State = State(1);
    /// The end times out its partner after three seconds; without this bit, after ninety.
    pub const SHORT_TIMEOUT: State = State(1 << 1);
    /// The link may be one of several.
    pub const AGGREGATION: State = State(1 << 2);
    /// The end has chosen this link for its bond.
    pub const SYNCHRONIZATION: State = State(1 << 3);
    /// The end accepts packets from the link.
    pub const COLLECTING: State = State(1 << 4);
    /// The end sends packets over the link.
    pub const DISTRIBUTING: State = State(1 << 5);
    /// The end knows its partner by its configuration only.
    pub const DEFAULTED: State = State(1 << 6);
    /// The end has not received a message from its partner for long.
    pub const EXPIRED: State = State(1 << 7);

    /// Whether a bit is set.
    pub fn has(self, bit: State) -> bool {
        self.0 & bit.0 != 0
    }

    /// Sets or clears a bit.
    pub fn set(&mut self, bit: State, is_set: bool) {
        match is_set {
            true => self.0 |= bit.0,
            false => self.0 &= !bit.0,
        }
    }

    /// Returns the state with a bit set or cleared.
    pub fn with(mut self, bit: State, is_set: bool) -> State {
        self.set(bit, is_set);
        self
    }
}

/// One end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Priority of the system; the lower of two systems decides where their limits differ.
    pub system_priority: u16,
    /// The device, by its address.
    pub system: MacAddr,
    /// The number of the bond at this end.
    pub key: u16,
    /// The order in which ports of a bond are chosen.
    pub port_priority: u16,
    /// The number of the port in its system.
    pub port: u16,
    /// The end's use of the link.
    pub state: State,
}

impl End {
    /// Whether both are the same end, whatever its state.
    pub fn is_same(&self, other: &End) -> bool {
        let state = State::default();
        End { state, ..*self } == End { state, ..*other }
    }

    fn read(bytes: &[u8; 18]) -> Option<End> {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(End {
            system_priority: word(0),
            system: MacAddr(*bytes.get(2..)?.first_chunk()?),
            key: word(8),
            port_priority: word(10),
            port: word(12),
            state: State(bytes[14]),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.system_priority.to_be_bytes());
        out.extend(self.system.0);
        out.extend(self.key.to_be_bytes());
        out.extend(self.port_priority.to_be_bytes());
        out.extend(self.port.to_be_bytes());
        out.extend([self.state.0, 0, 0, 0]);
    }
}

/// An LACP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// The sender's end.
    pub actor: End,
    /// The receiver's end, as the sender knows it.
    pub partner: End,
}

/// Whether a frame is LACP, judged by its destination and EtherType.
pub fn is_lacp(frame: &[u8]) -> bool {
    frame.get(..6) == Some(&GROUP.0) && frame.get(12..14) == Some(&ETH_TYPE.to_be_bytes())
}

/// Reads an Ethernet frame; `None` if it is not a valid message. Versions later than this one begin
/// with the same fields (6.4.2.2).
pub fn read(frame: &[u8]) -> Option<Pdu> {
    let source = MacAddr(*frame.get(6..)?.first_chunk()?);
    let [subtype, version] = *frame.get(AT_SUBTYPE..)?.first_chunk()?;
    let is_known = is_lacp(frame) && subtype == SUBTYPE && version >= VERSION;
    let is_whole = frame.len() >= FRAME_LEN;
    let can_send = !source.is_multicast() && source != MacAddr::default();
    let parts = [
        (AT_ACTOR, ACTOR),
        (AT_PARTNER, PARTNER),
        (AT_COLLECTOR, COLLECTOR),
    ];
    let has_part = |(at, kind): (usize, [u8; 2])| frame.get(at..at + 2) == Some(&kind[..]);
    // A terminator of another length would end later versions elsewhere.
    let has_end = version > VERSION || frame.get(AT_END..AT_END + 2) == Some(&[0, 0]);
    if !is_known || !is_whole || !can_send || !parts.into_iter().all(has_part) || !has_end {
        return None;
    }
    let end = |at: usize| End::read(frame.get(at + 2..)?.first_chunk()?);
    let pdu = Pdu {
        actor: end(AT_ACTOR)?,
        partner: end(AT_PARTNER)?,
    };
    let is_host = !pdu.actor.system.is_multicast() && pdu.actor.system != MacAddr::default();
    is_host.then_some(pdu)
}

impl Pdu {
    /// Returns the frame of the message from a port with this hardware address.
    pub fn frame(&self, source: MacAddr) -> Vec<u8> {
        let mut frame = Vec::with_capacity(FRAME_LEN);
        frame.extend(GROUP.0);
        frame.extend(source.0);
        frame.extend(ETH_TYPE.to_be_bytes());
        frame.extend([SUBTYPE, VERSION]);
        frame.extend(ACTOR);
        self.actor.write(&mut frame);
        frame.extend(PARTNER);
        self.partner.write(&mut frame);
        frame.extend(COLLECTOR);
        frame.resize(FRAME_LEN, 0);
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn end() -> impl Strategy<Value = End> {
        let systems = any::<[u8; 5]>().prop_map(|[a, b, c, d, e]| MacAddr([2, a, b, c, d, e]));
        let numbers = any::<(u16, u16, u16, u16)>();
        let parts = (systems, numbers, any::<u8>());
        parts.prop_map(
            |(system, (system_priority, key, port_priority, port), state)| End {
                system_priority,
                system,
                key,
                port_priority,
                port,
                state: State(state),
            },
        )
    }

    fn pdu() -> impl Strategy<Value = Pdu> {
        (end(), end()).prop_map(|(actor, partner)| Pdu { actor, partner })
    }

    /// Laid out by hand: active, fast, and expired without a partner.
    #[test]
    fn the_fields_are_where_the_standard_has_them() {
        let mut frame = vec![0; 124];
        let head = [
            0x01, 0x80, 0xc2, 0, 0, 2, 0x5e, 0x11, 0x22, 0x33, 0x44, 0x55, 0x88, 0x09, 1, 1, 1, 20,
            0xff, 0xfe, 0x5e, 0x11, 0x22, 0x33, 0x44, 0x55, 0, 1, 0xff, 0xff, 0, 1, 0xc7, 0, 0, 0,
            2, 20,
        ];
        frame[..head.len()].copy_from_slice(&head);
        frame[56..58].copy_from_slice(&[3, 16]);
        let pdu = read(&frame).expect("a message");
        assert_eq!(
            pdu.actor.system,
            MacAddr([0x5e, 0x11, 0x22, 0x33, 0x44, 0x55])
        );
        assert_eq!((pdu.actor.key, pdu.actor.port), (1, 1));
        assert!(pdu.actor.state.has(State::SHORT_TIMEOUT));
        assert!(!pdu.actor.state.has(State::SYNCHRONIZATION));
        assert_eq!(pdu.partner, End::default());
    }

    #[test]
    fn what_is_not_lacp_or_not_whole_is_refused() {
        let pdu = Pdu {
            actor: End {
                system: SOURCE,
                ..End::default()
            },
            partner: End::default(),
        };
        let frame = pdu.frame(SOURCE);
        assert_eq!(read(&frame), Some(pdu));
        for len in 0..FRAME_LEN {
            assert_eq!(read(&frame[..len]), None, "{len} bytes");
        }
        let wrong = [
            (5, 3, "another group"),
            (6, 3, "a group as source"),
            (13, 8, "another EtherType"),
            (14, 2, "the marker protocol"),
            (15, 0, "no version"),
            (16, 4, "no actor"),
            (17, 19, "a short actor"),
            (37, 21, "a long partner"),
            (57, 0, "a collector without length"),
            (73, 4, "a terminator with length"),
            (20, 1, "a group as system"),
        ];
        for (at, byte, what) in wrong {
            let mut frame = frame.clone();
            frame[at] = byte;
            assert_eq!(read(&frame), None, "{what}");
        }
        assert_eq!(pdu.frame(MacAddr::default()).len(), FRAME_LEN);
        assert_eq!(read(&pdu.frame(MacAddr::default())), None);
    }

    proptest! {
        #[test]
        fn messages_survive_being_written_and_read(pdu in pdu(), more in 0usize..40) {
            let mut frame = pdu.frame(SOURCE);
            prop_assert_eq!(read(&frame), Some(pdu));
            frame.extend(vec![7; more]);
            prop_assert_eq!(read(&frame), Some(pdu));
        }

        /// A message with a wrong bit is refused, or is unchanged when written and read again.
        #[test]
        fn a_wrong_bit_is_refused_or_read_as_what_it_says(pdu in pdu(), bit in 0..FRAME_LEN * 8) {
            let mut frame = pdu.frame(SOURCE);
            frame[bit / 8] ^= 1 << (bit % 8);
            let Some(found) = read(&frame) else {
                return Ok(());
            };
            prop_assert_eq!(read(&found.frame(SOURCE)), Some(found));
            let is_said = (18..33).contains(&(bit / 8)) || (38..53).contains(&(bit / 8));
            prop_assert_eq!(found != pdu, is_said, "bit {}", bit);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
