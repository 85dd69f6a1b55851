//! Packets that switches keep: the packet of a PACKET_OUT that names a buffer.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::{DatapathId, Frame, MessageKind, PacketFields};

use crate::subject::{PacketIn, buffer_of};

/// Number of packets that are remembered, for all switches together.
pub const BUFFERS_MAX: usize = 4096;

/// Time after which a switch is assumed to have dropped a packet that no message named.
pub const BUFFER_TIME_MAX: Duration = Duration::from_secs(10);

/// Packets that switches keep, by switch and buffer, as PACKET_INs announced them. Open vSwitch
/// keeps no packets, and then this stays empty.
#[derive(Debug, Default)]
pub struct Buffers {
    /// In order of arrival.
    kept: VecDeque<Kept>,
    /// Number of packets before the first of `kept`.
    gone: u64,
    /// Places, counted from the first packet ever kept. The later of two packets with the same key.
    places: BTreeMap<BufferKey, u64>,
}

#[derive(Clone, Debug)]
struct Kept {
    key: BufferKey,
    until: Instant,
    fields: PacketFields,
}

/// The key of a buffered packet. Until the switch is known, the connection stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BufferKey {
    datapath: Option<DatapathId>,
    channel: u64,
    buffer: u32,
}

impl Buffers {
    /// Remembers the packet of a PACKET_IN that names a buffer. Ignores other messages.
    pub fn handle_packet_in(
        &mut self,
        now: Instant,
        channel: u64,
        datapath: Option<DatapathId>,
        frame: &Frame,
    ) {
        let Some(key) = key_of(MessageKind::PacketIn, channel, datapath, frame) else {
            return;
        };
        let Some(packet) = PacketIn::of(frame) else {
            return;
        };
        while self.kept.len() >= BUFFERS_MAX || self.kept.front().is_some_and(|k| k.until <= now) {
            self.forget_first();
        }
        let place = self.gone + self.kept.len() as u64;
        self.places.insert(key, place);
        self.kept.push_back(Kept {
            key,
            until: now + BUFFER_TIME_MAX,
            fields: packet.fields(),
        });
    }

    /// Returns the packet in the buffer that a PACKET_OUT names, if it is known.
    pub fn fields(
        &self,
        now: Instant,
        channel: u64,
        datapath: Option<DatapathId>,
        frame: &Frame,
    ) -> Option<&PacketFields> {
        if self.kept.is_empty() {
            return None;
        }
        let key = key_of(MessageKind::PacketOut, channel, datapath, frame)?;
        let place = self.places.get(&key)? - self.gone;
        let kept = self.kept.get(place as usize)?;
        (kept.until > now).then_some(&kept.fields)
    }

    /// Number of packets remembered.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Reports whether no packet is remembered.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn forget_first(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            if self.places.get(&kept.key) == Some(&self.gone) {
                self.places.remove(&kept.key);
            }
            self.gone += 1;
        }
    }
}

fn key_of(
    kind: MessageKind,
    channel: u64,
    datapath: Option<DatapathId>,
    frame: &Frame,
) -> Option<BufferKey> {
    let buffer = buffer_of(frame).filter(|_| frame.kind() == kind)?;
    Some(BufferKey {
        datapath,
        channel: if datapath.is_some() { 0 } else { channel },
        buffer,
    })
}
