//! Reassembled TCP streams, and the messages in them.
//!
//! One direction of a connection is one stream. Segments may arrive twice or out of order; up to
//! [`REORDER_BYTES_MAX`] of a stream wait for missing bytes. Beyond that, the stream continues
//! after the gap: bytes are dropped until messages follow each other again, and the gap is counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openflow::MessageKind;
use openflow::frame::{FRAME_LEN_MAX, Frame};

use super::pcap::Segment;

/// Bytes of one stream that wait for an earlier segment: four times the 64 KiB window of plain TCP,
/// since captures start when windows are already scaled.
pub const REORDER_BYTES_MAX: usize = 262_144;

/// Streams followed at once. In a capture with more, the oldest is forgotten and counted.
pub const STREAMS_MAX: usize = 4_096;

/// A message, with the capture time of its last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    pub time: Duration,
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub frame: Frame,
}

/// The errors of streams, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Gaps of missing bytes, after which the stream continued.
    pub gaps: u64,
    /// Places without a possible header, skipped until one was possible.
    pub resyncs: u64,
    pub streams_forgotten: u64,
    /// Streams that ended in the middle of a message.
    pub incomplete: u64,
}

#[derive(Default)]
pub struct Streams {
    streams: BTreeMap<(SocketAddr, SocketAddr), Stream>,
    counts: StreamCounts,
    opened: u64,
}

impl Streams {
    /// Takes one segment, and returns the messages that it completes.
    pub fn handle_segment(&mut self, segment: &Segment) -> Vec<Captured> {
        let key = (segment.src, segment.dst);
        if segment.is_syn || segment.is_reset {
            self.close(key);
        }
        if segment.data.is_empty() && !segment.is_syn {
            return Vec::new();
        }
        if !self.streams.contains_key(&key) {
            self.make_room();
            self.opened += 1;
            let next = segment.sequence.wrapping_add(u32::from(segment.is_syn));
            self.streams
                .insert(key, Stream::new(next, self.opened, !segment.is_syn));
        }
        let Some(stream) = self.streams.get_mut(&key) else {
            return Vec::new();
        };
        let at = segment.sequence.wrapping_add(u32::from(segment.is_syn));
        stream.take(at, &segment.data, &mut self.counts);
        let frames = stream.frames(&mut self.counts);
        let captured = |frame| Captured {
            time: segment.time,
            src: segment.src,
            dst: segment.dst,
            frame,
        };
        frames.into_iter().map(captured).collect()
    }

    /// Counts unfinished streams, and returns all counts.
    pub fn finish(mut self) -> StreamCounts {
        let keys: Vec<_> = self.streams.keys().copied().collect();
        keys.into_iter().for_each(|key| self.close(key));
        self.counts
    }

    fn close(&mut self, key: (SocketAddr, SocketAddr)) {
        if let Some(stream) = self.streams.remove(&key)
            && !(stream.ready.is_empty() && stream.waiting.is_empty())
        {
            self.counts.incomplete += 1;
        }
    }

    fn make_room(&mut self) {
        if self.streams.len() < STREAMS_MAX {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.opened);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.close(key);
            self.counts.streams_forgotten += 1;
        }
    }
}

/// One direction of a connection.
struct Stream {
    /// Sequence number of the byte after `ready`.
    next: u32,
    /// Bytes in order, from the start of a message on.
    ready: BytesMut,
    /// Segments behind a gap, by how far behind `next` they start when they came; see `take`.
    waiting: Vec<(u32, Bytes)>,
    waiting_len: usize,
    opened: u64,
    /// Whether the next byte may be inside a message: the capture began, or continued, in its
    /// middle.
    is_lost: bool,
}

impl Stream {
    fn new(next: u32, opened: u64, is_lost: bool) -> Stream {
        Stream {
            next,
            ready: BytesMut::new(),
            waiting: Vec::new(),
            waiting_len: 0,
            opened,
            is_lost,
        }
    }

    fn take(&mut self, sequence: u32, data: &Bytes, counts: &mut StreamCounts) {
        if data.is_empty() {
            return;
        }
        if !self.append(sequence, data) {
            self.waiting.push((sequence, data.clone()));
            self.waiting_len += data.len();
        }
        self.append_waiting();
        if self.waiting_len > REORDER_BYTES_MAX {
            self.skip_gap(counts);
        }
    }

    /// Appends the new part of `data`, if the data starts at or before `next`.
    fn append(&mut self, sequence: u32, data: &Bytes) -> bool {
        let behind = self.next.wrapping_sub(sequence);
        // Half the sequence space is "before" (RFC 9293, 3.4).
        if behind > u32::MAX / 2 {
            return false;
        }
        if let Some(new) = data.get(behind as usize..) {
            self.ready.extend_from_slice(new);
            self.next = self.next.wrapping_add(new.len() as u32);
        }
        true
    }

    fn append_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let next = self.next;
        self.waiting
            .sort_by_key(|(sequence, _)| sequence.wrapping_sub(next) as i32);
        for (sequence, data) in std::mem::take(&mut self.waiting) {
            self.waiting_len -= data.len();
            if !self.append(sequence, &data) {
                self.waiting_len += data.len();
                self.waiting.push((sequence, data));
            }
        }
    }

    /// Continues at the earliest waiting segment.
    fn skip_gap(&mut self, counts: &mut StreamCounts) {
        let next = self.next;
        let earliest = self
            .waiting
            .iter()
            .map(|(sequence, _)| sequence.wrapping_sub(next))
            .min();
        counts.gaps += 1;
        self.ready.clear();
        self.is_lost = true;
        self.next = next.wrapping_add(earliest.unwrap_or(0));
        self.append_waiting();
    }

    fn frames(&mut self, counts: &mut StreamCounts) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            if !self.find_header(counts) {
                return frames;
            }
            match Frame::split_from(&mut self.ready) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return frames,
                Err(_) => self.is_lost = true,
            }
        }
    }

    /// Drops bytes until a header starts. Returns `false` while none is certain.
    fn find_header(&mut self, counts: &mut StreamCounts) -> bool {
        if !self.is_lost {
            // In step: only bytes that cannot be framed at all need a search. A message with
            // version byte 0 cannot be read, but those after it can.
            let wrong =
                self.ready.len() >= 4 && u16::from_be_bytes([self.ready[2], self.ready[3]]) < 8;
            if !wrong {
                return true;
            }
            self.is_lost = true;
        }
        let found = match (0..self.ready.len()).find(|at| is_header(&self.ready[*at..])) {
            // No header is certain: more bytes may confirm one, but no more than a message has.
            None if self.ready.len() <= FRAME_LEN_MAX => return false,
            None => None,
            found => found,
        };
        let skip = found.unwrap_or_else(|| self.ready.len() - FRAME_LEN_MAX);
        let _ = self.ready.split_to(skip);
        counts.resyncs += u64::from(found.is_some() && skip > 0);
        self.is_lost = found.is_none();
        found.is_some()
    }
}

/// Messages in a row that confirm a header. Four bytes alone are too easily taken for one.
const CHAIN_LEN: usize = 3;

/// Whether messages follow each other from here to the end of `bytes`, or for [`CHAIN_LEN`]
/// messages.
fn is_header(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for _ in 0..CHAIN_LEN {
        let [version, ty, len_high, len_low, ..] = *rest else {
            return rest.is_empty() && !bytes.is_empty();
        };
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        if len < 8 || MessageKind::from_wire(version, ty) == MessageKind::Unknown {
            return false;
        }
        match rest.get(len..) {
            Some(next) => rest = next,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, data: &[u8]) -> Segment {
        Segment {
            time: Duration::ZERO,
            src: "10.0.0.1:40000".parse().unwrap(),
            dst: "10.0.0.2:6653".parse().unwrap(),
            sequence,
            is_syn: false,
            is_reset: false,
            data: Bytes::copy_from_slice(data),
        }
    }

    fn syn(sequence: u32) -> Segment {
        Segment {
            is_syn: true,
            ..segment(sequence, b"")
        }
    }

    /// Five barrier requests with xids 1 to 5.
    fn barriers() -> Vec<u8> {
        (1..=5)
            .flat_map(|xid| [4, 20, 0, 8, 0, 0, 0, xid])
            .collect()
    }

    fn xids(captured: &[Captured]) -> Vec<u32> {
        captured.iter().map(|c| c.frame.xid().0).collect()
    }

    #[test]
    fn segments_in_any_order_and_twice_give_each_message_once_in_order() {
        let bytes = barriers();
        let first = u32::MAX - 11;
        let at = |offset: u32| first.wrapping_add(1).wrapping_add(offset);
        let mut streams = Streams::default();
        streams.handle_segment(&syn(first));
        let mut seen = Vec::new();
        for (start, end) in [(8, 20), (30, 40), (20, 32), (0, 10), (0, 40), (32, 40)] {
            let one = segment(at(start as u32), &bytes[start..end]);
            seen.extend(streams.handle_segment(&one));
        }
        assert_eq!(xids(&seen), [1, 2, 3, 4, 5]);
        assert_eq!(streams.finish(), StreamCounts::default());
    }

    #[test]
    fn a_gap_is_passed_over_when_the_bound_is_reached_and_the_next_header_is_found() {
        let mut streams = Streams::default();
        streams.handle_segment(&syn(0));
        let mut seen = streams.handle_segment(&segment(1, &barriers()[..12]));
        assert_eq!(xids(&seen), [1]);
        // 28 bytes are lost; what follows starts inside an echo request of zeros.
        let mut tail = vec![0u8; 100];
        tail.extend(barriers());
        let mut echo = vec![4, 2, 0xff, 0xff];
        echo.resize(0xffff, 0);
        for _ in 0..5 {
            tail.extend(&echo);
        }
        for (n, chunk) in tail.chunks(1400).enumerate() {
            seen.extend(streams.handle_segment(&segment(41 + 1400 * n as u32, chunk)));
        }
        assert_eq!(xids(&seen)[1..6], [1, 2, 3, 4, 5]);
        assert_eq!(seen.len(), 1 + 5 + 5);
        let counts = streams.finish();
        assert_eq!((counts.gaps, counts.resyncs), (1, 1));
    }

    #[test]
    fn a_capture_that_begins_inside_a_message_starts_at_the_next_one() {
        let mut streams = Streams::default();
        let bytes = barriers();
        let seen = streams.handle_segment(&segment(1000, &bytes[5..]));
        assert_eq!(xids(&seen), [2, 3, 4, 5]);
    }

    #[test]
    fn more_streams_than_the_bound_forget_the_oldest() {
        let mut streams = Streams::default();
        for n in 0..STREAMS_MAX + 10 {
            let mut one = segment(0, &[4]);
            one.src.set_port(u16::try_from(n % 60_000).unwrap());
            streams.handle_segment(&one);
        }
        assert_eq!(streams.streams.len(), STREAMS_MAX);
        assert_eq!(streams.finish().streams_forgotten, 10);
    }

    /// The message cannot be read, but those after it can; Open vSwitch prints them too.
    #[test]
    fn a_version_byte_of_zero_ends_no_stream() {
        let mut data = barriers();
        let len = data.len();
        data.extend_from_slice(&[0, 18, 0, 8, 0, 0, 0, 9]);
        data.extend(barriers());
        let mut streams = Streams::default();
        streams.handle_segment(&syn(99));
        let captured = streams.handle_segment(&segment(100, &data));
        assert_eq!(captured.len(), 2 * (len / 8) + 1);
        assert_eq!(streams.finish(), StreamCounts::default());
    }
}
