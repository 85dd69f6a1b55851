//! The key of a flow-mod, if it has one. Flow-mods with different keys may be reordered.
//!
//! The key is the pair of addresses that the match names in full. No packet has two keys of one
//! kind, whatever else the matches contain. So no packet can observe the order in which two such
//! entries entered one table. The table is not part of the key: a flow's entries in several tables
//! stay in order.

use openflow::{Field, Frame, MessageKind, Version};

use crate::subject::FlowFields;

/// Kind of the addresses that make up a key. A packet has a key of either kind, so kinds do not
/// mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// Ethernet source and destination.
    Mac,
    /// IPv4 or IPv6 source and destination, of a match that does not name both Ethernet addresses.
    Ip,
}

/// A pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Kind of the addresses.
    pub kind: KeyKind,
    /// Hash of source and destination.
    pub hash: u64,
}

/// Returns the key of a FLOW_MOD that adds or modifies entries of one key, and neither examines
/// other entries nor sends a packet. Returns `None` for all other messages: deletions, which make
/// room in a table that may be full; FLOW_MODs that check for overlaps or name a buffer; matches
/// that leave an address open; groups, meters, and malformed messages.
pub fn key_of(frame: &Frame) -> Option<Key> {
    const ADD: u8 = 0;
    const MODIFY_STRICT: u8 = 2;
    const CHECK_OVERLAP: u8 = 1 << 1;
    const NO_BUFFER: &[u8] = &[0xff; 4];
    if frame.kind() != MessageKind::FlowMod {
        return None;
    }
    let (version, body) = (frame.version()?, frame.body());
    let (command, buffer, flags) = match version {
        Version::V10 => (body.get(48..50)?, body.get(56..60)?, body.get(62..64)?),
        _ => (body.get(16..18)?, body.get(24..28)?, body.get(36..38)?),
    };
    let is_simple = (ADD..=MODIFY_STRICT).contains(&command[1])
        && (version != Version::V10 || command[0] == 0)
        && buffer == NO_BUFFER
        && flags[1] & CHECK_OVERLAP == 0;
    if !is_simple {
        return None;
    }
    let fields = FlowFields::of_parts(version, MessageKind::FlowMod, body)?;
    let exact = |field: Field| {
        let (value, mask) = fields.get(field)?;
        (mask == field.ones()).then_some(value)
    };
    let pair = |src, dst| Some([exact(src)?, exact(dst)?]);
    let of = |kind| {
        move |pair: [u128; 2]| Key {
            kind,
            hash: hash(pair),
        }
    };
    pair(Field::EthSrc, Field::EthDst)
        .map(of(KeyKind::Mac))
        .or_else(|| pair(Field::Ipv4Src, Field::Ipv4Dst).map(of(KeyKind::Ip)))
        .or_else(|| pair(Field::Ipv6Src, Field::Ipv6Dst).map(of(KeyKind::Ip)))
}

/// FNV-1a over words, then mixed, since the hash is taken modulo a small number.
fn hash(words: [u128; 2]) -> u64 {
    let halves = words
        .into_iter()
        .flat_map(|word| [word as u64, (word >> 64) as u64]);
    let hash = halves.fold(0xcbf2_9ce4_8422_2325u64, |hash, word| {
        (hash ^ word).wrapping_mul(0x100_0000_01b3)
    });
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use openflow::message::{FlowMod, FlowModCommand, FlowModFlags};
    use openflow::{BufferId, Match, Message, Xid, encode};
    use proptest::prelude::*;

    use super::*;

    const VERSIONS: [Version; 2] = [Version::V10, Version::V13];

    fn key(version: Version, flow_mod: &FlowMod) -> Option<Key> {
        let message = Message::FlowMod(flow_mod.clone());
        key_of(&encode(version, Xid(1), &message).expect("both versions have it"))
    }

    fn macs(src: u64, dst: u64) -> Match {
        Match::any()
            .with(Field::EthDst, dst)
            .with(Field::EthSrc, src)
    }

    fn ips(src: u32, dst: u32) -> Match {
        Match::any()
            .with(Field::EthType, 0x0800u16)
            .with(Field::Ipv4Src, src)
            .with(Field::Ipv4Dst, dst)
    }

    fn add(r#match: Match) -> FlowMod {
        FlowMod::add(100, r#match, Vec::new())
    }

    #[test]
    fn the_pair_of_addresses_is_the_key_whatever_else_is_said() {
        for version in VERSIONS {
            let plain = key(version, &add(macs(1, 2)));
            assert!(plain.is_some(), "{version:?}");
            let mut more = add(macs(1, 2).with(Field::InPort, 3u32));
            more.priority = 7;
            more.command = FlowModCommand::ModifyStrict;
            assert_eq!(key(version, &more), plain, "{version:?}");
            assert_ne!(key(version, &add(macs(2, 1))), plain, "{version:?}");
            let by_ip = key(version, &add(ips(1, 2)));
            assert_eq!(by_ip.map(|key| key.kind), Some(KeyKind::Ip));
            let mut both = ips(1, 2);
            both = both.with(Field::EthDst, 2u64).with(Field::EthSrc, 1u64);
            assert_eq!(key(version, &add(both)), plain, "{version:?}");
        }
    }

    #[test]
    fn what_is_about_more_than_one_pair_has_no_key() {
        let with = |change: fn(&mut FlowMod)| {
            let mut flow_mod = add(macs(1, 2));
            change(&mut flow_mod);
            flow_mod
        };
        let wide = [
            add(Match::any()),
            add(Match::any().with(Field::EthDst, 2u64)),
            with(|m| m.command = FlowModCommand::Delete),
            with(|m| m.command = FlowModCommand::DeleteStrict),
            with(|m| m.flags = FlowModFlags::CHECK_OVERLAP),
            with(|m| m.buffer_id = Some(BufferId(9))),
        ];
        for flow_mod in wide {
            for version in VERSIONS {
                assert_eq!(key(version, &flow_mod), None, "{version:?} {flow_mod:?}");
            }
        }
        let open = ips(1, 0).with_masked(Field::Ipv4Dst, 0u32, 0xffff_ff00u32);
        assert_eq!(key(Version::V13, &add(open)), None);
    }

    /// A match of each field, in the versions that have it and in those that do not.
    #[test]
    fn no_field_is_too_new() {
        for number in 0..=u8::MAX {
            for version in 0..8 {
                let oxm = [0x80, 0, number << 1, 8];
                let r#match = [&[0, 1, 0, 16][..], &oxm, &[0; 8]].concat();
                let body = [&[0; 40][..], &r#match].concat();
                let len = (8 + body.len()) as u16;
                let head = [&[version, 14][..], &len.to_be_bytes(), &[0; 4]].concat();
                let frame = [head, body].concat();
                let _ = key_of(&Frame::new(frame.into()).expect("a header with its length"));
            }
        }
        let message = Match::any().with(Field::TcpFlags, 2u16);
        let flow_mod = FlowMod::add(1, message, Vec::new());
        let _ = key(Version::V15, &flow_mod);
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_controller_panic(
            version in 0u8..8,
            body in proptest::collection::vec(any::<u8>(), 0..160),
        ) {
            let len = (8 + body.len()) as u16;
            let mut bytes = vec![version, 14];
            bytes.extend(len.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(body);
            let _ = key_of(&Frame::new(bytes.into()).expect("a header with its length"));
        }
    }
}
