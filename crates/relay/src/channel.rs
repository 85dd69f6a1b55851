//! The two directions of one channel: records sent and kept until they are delivered, and records
//! received that wait for their turn.
//!
//! The records kept for resumption serve as both send queue and credit. A sender admits a message
//! only while the window granted by its receiver has room. A record leaves the window when the
//! receiver has handed the record to its socket. So a receiver may read every stream at once, and
//! keeps at most one window of bytes. No stream can starve.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use openflow::Frame;
use sched::order::{FENCES_IN_FLIGHT_MAX, Stamp, scope_of};
use sched::{Direction, Gate, Lane, Place, Sequencer, Tag};

use super::copies::{Ahead, CopiedRecord, CopyCounters};
use super::place::{keyed_place, place_of, place_of_tag};
use super::tally::{Shed, Tally};
use super::wire::{
    Agent, BareRecords, ChannelId, Cursor, HEAD_FOLLOWS, RAW_CHUNK_BYTES_MAX, Record, WireError,
};

/// Bytes charged to the window for each record, whatever its length.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// Maximum bytes of a raw stream's record in a queue: the unit that an urgent message waits for.
const QUEUED_CHUNK_BYTES_MAX: usize = 2 * 1024;

/// Maximum excess of a window: a sender admits a message when the window has any room at all, so
/// one message may exceed it.
const WINDOW_SLACK_BYTES: usize = 128 * 1024;

/// Maximum length of a record's body that is copied together with others; a longer body is given to
/// the connection unchanged. For every packet, QUIC searches the pieces of a lane from the first
/// one on, which took 40 % of a relay's time for messages of 100 bytes.
const JOINED_BYTES_MAX: usize = 2 * 1024;

/// The usual length of a record's head: epoch, counts, and the length of a piece.
const HEAD_BYTES: usize = 10;

fn cost(body: Option<&Bytes>) -> usize {
    RECORD_OVERHEAD_BYTES + body.map_or(0, Bytes::len)
}

/// The direction from the local socket to the other end.
#[derive(Debug)]
pub(super) struct Outbound {
    agent: Agent,
    direction: Direction,
    flow_lanes: u16,
    /// The number of lanes to which packets of the local socket were dealt.
    dealt_lanes: Option<u16>,
    /// Whether the other end takes records without a head.
    is_bare: bool,
    sequencer: Sequencer,
    lanes: BTreeMap<Lane, SentRecords>,
    cost: usize,
    /// Kept bytes that the current connection has not taken yet.
    unsent_bytes: usize,
    /// The lane of each flow with records kept here. A flow keeps its lane until all its records
    /// are delivered, even if its next message belongs to another queue.
    flows: BTreeMap<FlowKey, FlowLane>,
    pub window_bytes: usize,
    fences: usize,
    /// Whether the local socket has ended.
    pub ended: bool,
    end_sent: bool,
    pub queued: Queued,
    pub shed: Shed,
    pub tally: Tally,
}

/// The messages of one channel in the session's queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queued {
    pub count: usize,
    pub bytes: usize,
}

/// A flow of a scope.
type FlowKey = (usize, u64);

#[derive(Debug)]
struct FlowLane {
    index: u16,
    records: usize,
}

/// The next message or piece from a local socket.
pub(super) enum Taken {
    Message(Frame),
    Piece(Bytes),
}

/// Records of one lane that the other end may still ask for.
#[derive(Debug, Default)]
struct SentRecords {
    records: VecDeque<KeptRecord>,
    /// The number of records before the first of `records`: all delivered.
    delivered: u64,
    /// The number of records given to the current connection.
    sent: u64,
    /// The number of records that the other end has reported as delivered. It exceeds `sent` if
    /// copies arrived before the other end's position was known. Such records are still sent, and
    /// kept until then, because the place of a record in its stream is implied.
    told: u64,
    /// The stamp of the last of the sent records in the current stream.
    stamp: Option<Stamp>,
    /// Bytes last given to the connection, which it may not have taken yet.
    in_hand_bytes: usize,
}

#[derive(Debug)]
struct KeptRecord {
    record: Record,
    flow: Option<FlowKey>,
}

impl KeptRecord {
    fn cost(&self) -> usize {
        cost(self.record.body.as_ref())
    }

    fn copy(
        &self,
        channel: ChannelId,
        lane: Lane,
        place: u64,
        agent: Agent,
    ) -> Option<CopiedRecord> {
        let body = self.record.body.clone()?;
        let mut head = BytesMut::with_capacity(HEAD_BYTES);
        self.record.encode_head(agent, &mut head);
        Some(CopiedRecord {
            channel,
            lane,
            place,
            head: head.freeze(),
            body,
        })
    }
}

impl Outbound {
    pub fn new(
        agent: Agent,
        direction: Direction,
        flow_lanes: u16,
        window_bytes: usize,
    ) -> Outbound {
        Outbound {
            agent,
            direction,
            flow_lanes,
            dealt_lanes: None,
            is_bare: false,
            sequencer: Sequencer::new(direction),
            lanes: BTreeMap::new(),
            cost: 0,
            unsent_bytes: 0,
            flows: BTreeMap::new(),
            window_bytes,
            fences: 0,
            ended: false,
            end_sent: false,
            queued: Queued::default(),
            shed: Shed::default(),
            tally: Tally::new(agent),
        }
    }

    /// Whether the lanes take another message.
    pub fn has_room(&self) -> bool {
        self.cost < self.window_bytes && self.fences < FENCES_IN_FLIGHT_MAX
    }

    /// Whether the queues take another message of this channel.
    pub fn has_queue_room(&self) -> bool {
        self.cost + self.queued.bytes < self.window_bytes
    }

    /// The number of lanes to which packets of the local socket are dealt, once a packet was dealt:
    /// a flow keeps its lane.
    pub fn dealt_lanes(&self) -> Option<u16> {
        self.dealt_lanes
    }

    /// Takes bytes from the local socket as far as there is room. Returns the lanes with something
    /// to send. Packets are dealt to `flow_lanes` lanes.
    pub fn handle_local(
        &mut self,
        buf: &mut BytesMut,
        flow_lanes: u16,
    ) -> Result<BTreeSet<Lane>, openflow::FrameError> {
        let mut lanes = BTreeSet::new();
        while self.has_room() && !self.ended {
            let (place, body) = match self.agent {
                Agent::Raw if buf.is_empty() => break,
                Agent::Raw => {
                    let len = buf.len().min(RAW_CHUNK_BYTES_MAX);
                    (Place::State, buf.split_to(len).freeze())
                }
                Agent::OpenFlow => match Frame::split_from(buf)? {
                    None => break,
                    Some(frame) => {
                        let place = match place_of(&frame, self.direction, flow_lanes) {
                            Place::State if self.is_keyed() => keyed_place(&frame),
                            place => place,
                        };
                        if let Place::Flow(_) = place {
                            self.dealt_lanes = Some(flow_lanes);
                        }
                        (place, frame.bytes().clone())
                    }
                },
            };
            self.tally.add(&body);
            lanes.insert(self.push(place, 0, Some(body)));
        }
        Ok(lanes)
    }

    /// Takes one message, or a piece of a raw stream, from the bytes of the local socket.
    pub fn take(&self, buf: &mut BytesMut) -> Result<Option<Taken>, openflow::FrameError> {
        match self.agent {
            _ if self.ended => Ok(None),
            Agent::OpenFlow => Ok(Frame::split_from(buf)?.map(Taken::Message)),
            Agent::Raw if buf.is_empty() => Ok(None),
            Agent::Raw => {
                let len = buf.len().min(QUEUED_CHUNK_BYTES_MAX);
                Ok(Some(Taken::Piece(buf.split_to(len).freeze())))
            }
        }
    }

    /// Takes a message that has left the queues; `None` is the channel's end.
    pub fn push_scheduled(&mut self, tag: &Tag, body: Option<Bytes>) -> Lane {
        let Some(body) = body else {
            return self.end();
        };
        self.tally.add(&body);
        let place = place_of_tag(tag, self.direction, self.flow_lanes);
        match (place, tag.binding) {
            (Place::Flow(index), sched::Binding::Flow { key, .. }) => {
                let flow = (scope_of(tag.domain), key);
                let lane = self.flows.entry(flow);
                let lane = lane.or_insert(FlowLane { index, records: 0 });
                lane.records += 1;
                let place = Place::Flow(lane.index);
                self.push_of(place, tag.domain, Some(body), Some(flow))
            }
            (Place::State, _) if self.is_keyed() => {
                let frame = Frame::new(body.clone());
                let place = frame.map_or(Place::State, |frame| keyed_place(&frame));
                self.push(place, tag.domain, Some(body))
            }
            _ => self.push(place, tag.domain, Some(body)),
        }
    }

    /// The lane on which [`Outbound::push_scheduled`] would put a message.
    pub fn lane_of(&self, tag: &Tag) -> Lane {
        let place = match (
            place_of_tag(tag, self.direction, self.flow_lanes),
            tag.binding,
        ) {
            (Place::Flow(index), sched::Binding::Flow { key, .. }) => {
                let flow = (scope_of(tag.domain), key);
                Place::Flow(self.flows.get(&flow).map_or(index, |lane| lane.index))
            }
            (place, _) => place,
        };
        self.sequencer.lane_of(place, tag.domain)
    }

    /// Sets whether the mode of order is keyed. Only OpenFlow has keys.
    pub fn set_keyed(&mut self, is_keyed: bool) {
        self.sequencer
            .set_keyed(is_keyed && self.agent == Agent::OpenFlow);
    }

    /// Sets whether the other end takes records without a head. Only OpenFlow has them.
    pub fn set_bare(&mut self, is_bare: bool) {
        self.is_bare = is_bare && self.agent == Agent::OpenFlow;
    }

    fn is_keyed(&self) -> bool {
        self.sequencer.is_keyed()
    }

    /// Ends the direction: the local socket has ended.
    pub fn end(&mut self) -> Lane {
        self.ended = true;
        self.end_sent = true;
        self.push(Place::Fence, 0, None)
    }

    fn push(&mut self, place: Place, domain: u8, body: Option<Bytes>) -> Lane {
        self.push_of(place, domain, body, None)
    }

    fn push_of(
        &mut self,
        place: Place,
        domain: u8,
        body: Option<Bytes>,
        flow: Option<FlowKey>,
    ) -> Lane {
        let (lane, stamp) = self.sequencer.stamp(place, domain);
        self.fences += usize::from(stamp.fence.is_some());
        let record = Record { stamp, body };
        let kept = KeptRecord { record, flow };
        self.cost += kept.cost();
        self.unsent_bytes += kept.cost();
        self.lanes.entry(lane).or_default().records.push_back(kept);
        lane
    }

    /// Lanes with records that the connection has not been given yet.
    pub fn unsent_lanes(&self) -> impl Iterator<Item = Lane> {
        self.lanes
            .iter()
            .filter(|(_, kept)| kept.unsent() > 0)
            .map(|(lane, _)| *lane)
    }

    /// The position at which a new stream for `lane` starts.
    pub fn sent(&self, lane: Lane) -> u64 {
        self.lanes.get(&lane).map_or(0, |kept| kept.sent)
    }

    /// The next records of `lane`, about `bytes_max` bytes; empty when all are sent.
    pub fn take_unsent(&mut self, lane: Lane, bytes_max: usize) -> Vec<Bytes> {
        let mut chunks = Vec::new();
        let Some(kept) = self.lanes.get_mut(&lane) else {
            return chunks;
        };
        self.unsent_bytes -= kept.in_hand_bytes;
        let at = (kept.sent - kept.delivered) as usize;
        let (mut taken, mut count, mut joined_bytes) = (0, 0, 0);
        for record in kept.records.range(at..) {
            if taken >= bytes_max {
                break;
            }
            taken += record.cost();
            count += 1;
            let joined = record.record.body.as_ref().map_or(0, Bytes::len);
            joined_bytes += HEAD_BYTES
                + if joined <= JOINED_BYTES_MAX {
                    joined
                } else {
                    0
                };
        }
        let mut joined = BytesMut::with_capacity(joined_bytes);
        for KeptRecord { record, .. } in kept.records.range(at..at + count) {
            if !self.is_bare {
                record.encode_head(self.agent, &mut joined);
            } else if !is_bare_after(record, kept.stamp.as_ref()) {
                joined.put_u8(HEAD_FOLLOWS);
                record.encode_head(self.agent, &mut joined);
                kept.stamp = Some(record.stamp.clone());
            }
            match &record.body {
                Some(body) if body.len() > JOINED_BYTES_MAX => {
                    if !joined.is_empty() {
                        chunks.push(joined.split().freeze());
                    }
                    chunks.push(body.clone());
                }
                Some(body) => joined.extend_from_slice(body),
                None => {}
            }
        }
        if !joined.is_empty() {
            chunks.push(joined.freeze());
        }
        kept.sent += count as u64;
        kept.in_hand_bytes = taken;
        if kept.told > kept.delivered {
            self.forget_delivered(lane);
        }
        chunks
    }

    /// Copies of the records of `lane`, from place `since` on, that [`Outbound::take_unsent`]
    /// returned. Ends are not copied: the records before them must have arrived anyway.
    pub fn copies(&self, id: ChannelId, lane: Lane, since: u64) -> Vec<CopiedRecord> {
        let Some(kept) = self.lanes.get(&lane) else {
            return Vec::new();
        };
        let copy = |place: u64| {
            let record = kept.records.get((place - kept.delivered) as usize)?;
            record.copy(id, lane, place, self.agent)
        };
        (since.max(kept.delivered)..kept.sent)
            .filter_map(copy)
            .collect()
    }

    /// Copies of all records that the other end is not known to have delivered. Ends are not
    /// copied.
    pub fn kept(&self, id: ChannelId) -> impl Iterator<Item = CopiedRecord> {
        self.lanes.iter().flat_map(move |(lane, kept)| {
            let records = kept.records.iter().enumerate();
            records.filter_map(move |(n, record)| {
                record.copy(id, *lane, kept.delivered + n as u64, self.agent)
            })
        })
    }

    /// Bytes that the connection has not taken yet. The bytes last given from a lane count until
    /// the connection asks for more.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Unsent bytes by lane.
    pub fn unsent_by_lane(&self) -> impl Iterator<Item = (Lane, usize)> {
        self.lanes.iter().map(|(lane, kept)| {
            let at = (kept.sent - kept.delivered) as usize;
            let unsent = kept.records.range(at..);
            let bytes: usize = unsent.map(KeptRecord::cost).sum();
            (*lane, bytes + kept.in_hand_bytes)
        })
    }

    /// Notes the positions up to which the other end has delivered everything.
    pub fn handle_delivered(&mut self, cursors: &[Cursor]) -> Result<(), WireError> {
        for (lane, count) in cursors {
            let kept = self.lanes.get_mut(lane);
            let kept = kept
                .filter(|kept| *count <= kept.delivered + kept.records.len() as u64)
                .ok_or(WireError("delivered what was never sent"))?;
            kept.told = kept.told.max(*count);
            self.forget_delivered(*lane);
        }
        Ok(())
    }

    /// Forgets the records of a lane that were both sent and delivered.
    fn forget_delivered(&mut self, lane: Lane) {
        let Some(kept) = self.lanes.get_mut(&lane) else {
            return;
        };
        while kept.delivered < kept.told.min(kept.sent) {
            let record = kept.records.pop_front().expect("sent records are kept");
            kept.delivered += 1;
            self.cost -= record.cost();
            self.fences -= usize::from(record.record.stamp.fence.is_some());
            if let Some(key) = record.flow {
                forget_record(&mut self.flows, key);
            }
        }
    }

    /// Starts on a new connection: on the old one, the other end received the records up to these
    /// positions.
    pub fn rewind(&mut self, received: &[Cursor]) -> Result<(), WireError> {
        for kept in self.lanes.values_mut() {
            kept.sent = kept.delivered;
            kept.stamp = None;
        }
        for (lane, count) in received {
            let kept = self.lanes.get_mut(lane);
            let kept = kept
                .filter(|k| k.delivered <= *count && *count <= k.delivered + k.records.len() as u64)
                .ok_or(WireError(
                    "received what was never sent, or lost what was delivered",
                ))?;
            kept.sent = *count;
        }
        let lanes = self.lanes.values_mut();
        self.unsent_bytes = lanes
            .map(|kept| {
                kept.in_hand_bytes = 0;
                let at = (kept.sent - kept.delivered) as usize;
                let unsent = kept.records.range(at..);
                unsent.map(KeptRecord::cost).sum::<usize>()
            })
            .sum();
        Ok(())
    }

    /// Whether the other end has delivered everything, including the end.
    pub fn is_done(&self) -> bool {
        self.end_sent && self.lanes.values().all(|kept| kept.records.is_empty())
    }

    /// Bytes kept because the other end has not delivered them.
    pub fn kept_bytes(&self) -> usize {
        self.cost
    }

    /// Records per lane that were sent.
    pub fn lane_counts(&self) -> Vec<Cursor> {
        self.lanes
            .iter()
            .map(|(lane, k)| (*lane, k.delivered + k.records.len() as u64))
            .collect()
    }
}

fn forget_record(flows: &mut BTreeMap<FlowKey, FlowLane>, key: FlowKey) {
    if let Some(flow) = flows.get_mut(&key) {
        flow.records -= 1;
        if flow.records == 0 {
            flows.remove(&key);
        }
    }
}

/// Whether `before`, the stamp of the previous record, implies the record's whole head, and the
/// record's message cannot be mistaken for a head.
fn is_bare_after(record: &Record, before: Option<&Stamp>) -> bool {
    let first = record.body.as_ref().and_then(|body| body.first());
    before == Some(&record.stamp) && first.is_some_and(|first| *first != HEAD_FOLLOWS)
}

impl SentRecords {
    fn unsent(&self) -> u64 {
        self.delivered + self.records.len() as u64 - self.sent
    }
}

/// The direction from the other end to the local socket.
#[derive(Debug)]
pub(super) struct Inbound {
    agent: Agent,
    gate: Gate<ReceivedRecord>,
    /// Records received, by stream or as copies.
    received: BTreeMap<Lane, u64>,
    /// Records received by stream.
    streamed: BTreeMap<Lane, u64>,
    /// Readers of records without heads, by lane, if both ends use such records.
    bare: Option<BTreeMap<Lane, BareRecords>>,
    ahead: Ahead,
    copies: CopyCounters,
    ready: VecDeque<(Lane, ReceivedRecord)>,
    /// Records given to the local socket, which has not confirmed them.
    writing: Vec<(Lane, usize, bool)>,
    delivered: BTreeMap<Lane, u64>,
    unreported: BTreeSet<Lane>,
    unreported_bytes: usize,
    unreported_fences: usize,
    cost: usize,
    window_bytes: usize,
    /// The window that the sender observes: its own, if that is smaller.
    sender_window_bytes: usize,
    /// Whether the end has been handed over.
    pub ended: bool,
    end_writing: bool,
    pub tally: Tally,
}

/// A received record without its position.
#[derive(Debug)]
struct ReceivedRecord {
    is_fence: bool,
    /// `None` for the end.
    body: Option<Bytes>,
}

/// Bytes for the local socket to write, and whether to close the socket for writing afterwards.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LocalWrite {
    pub chunks: Vec<Bytes>,
    pub end: bool,
}

impl Inbound {
    pub fn new(agent: Agent, window_bytes: usize) -> Inbound {
        Inbound {
            agent,
            gate: Gate::default(),
            received: BTreeMap::new(),
            streamed: BTreeMap::new(),
            bare: None,
            ahead: Ahead::default(),
            copies: CopyCounters::default(),
            ready: VecDeque::new(),
            writing: Vec::new(),
            delivered: BTreeMap::new(),
            unreported: BTreeSet::new(),
            unreported_bytes: 0,
            unreported_fences: 0,
            cost: 0,
            window_bytes,
            sender_window_bytes: window_bytes,
            ended: false,
            end_writing: false,
            tally: Tally::new(agent),
        }
    }

    /// The number of records of `lane` received so far.
    pub fn received(&self, lane: Lane) -> u64 {
        self.received.get(&lane).copied().unwrap_or(0)
    }

    pub fn cursors(&self) -> Vec<Cursor> {
        self.received.iter().map(|(lane, n)| (*lane, *n)).collect()
    }

    /// The number of records of `lane` received by stream so far. The lane's next stream starts
    /// there.
    pub fn streamed(&self, lane: Lane) -> u64 {
        self.streamed.get(&lane).copied().unwrap_or(0)
    }

    /// Sets the window that was announced to the other end.
    pub fn set_sender_window(&mut self, bytes: usize) {
        self.sender_window_bytes = bytes.min(self.window_bytes);
    }

    /// Takes whole records of `lane` off `buf`.
    pub fn handle_lane(&mut self, lane: Lane, buf: &mut BytesMut) -> Result<(), WireError> {
        while let Some(record) = self.take_record(lane, buf)? {
            let streamed = self.streamed.entry(lane).or_default();
            let place = *streamed;
            *streamed += 1;
            // The record may have arrived as a copy.
            if place == self.received(lane) {
                self.accept(lane, record)?;
            }
        }
        self.release();
        Ok(())
    }

    fn take_record(&mut self, lane: Lane, buf: &mut BytesMut) -> Result<Option<Record>, WireError> {
        match &mut self.bare {
            Some(bare) => bare.entry(lane).or_default().take(buf),
            None => Record::take(buf, self.agent),
        }
    }

    /// Handles a copy of a record that is still to arrive, has arrived or was lost on its lane.
    pub fn handle_copy(&mut self, lane: Lane, place: u64, record: Record) -> Result<(), WireError> {
        let next = self.received(lane);
        if place < next {
            self.copies.doubled += 1;
        } else if place > next {
            // Counted when it is taken, or when its record arrives first.
            if !self.ahead.keep(lane, place, record) {
                self.copies.refused += 1;
            }
        } else {
            self.copies.used += 1;
            self.accept(lane, record)?;
            self.release();
        }
        Ok(())
    }

    pub fn copies(&self) -> CopyCounters {
        self.copies
    }

    /// Takes the next record of `lane`, and the copies that waited for it.
    fn accept(&mut self, lane: Lane, record: Record) -> Result<(), WireError> {
        let mut next = Some(record);
        while let Some(record) = next {
            self.cost += cost(record.body.as_ref());
            if self.cost > self.window_bytes + WINDOW_SLACK_BYTES {
                return Err(WireError("more bytes than the window allows"));
            }
            let received = self.received.entry(lane).or_default();
            *received += 1;
            let held = ReceivedRecord {
                is_fence: record.stamp.fence.is_some(),
                body: record.body,
            };
            self.gate.handle_message(lane, record.stamp, held);
            next = self.ahead.take(lane, *received);
            self.copies.used += u64::from(next.is_some());
        }
        Ok(())
    }

    fn release(&mut self) {
        while let Some((lane, held)) = self.gate.poll_release() {
            self.ready.push_back((lane, held));
        }
    }

    /// Starts on a new connection, whose streams start after the records received. The other end
    /// sends the records ahead of that point again, and must not learn before then that they were
    /// delivered. `is_bare`: both ends take records without a head.
    pub fn rewind(&mut self, is_bare: bool) {
        self.bare = (is_bare && self.agent == Agent::OpenFlow).then(BTreeMap::new);
        self.streamed = self.received.clone();
        self.ahead = Ahead::default();
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next bytes to write, about `bytes_max`. Confirm them before taking more.
    pub fn take_ready(&mut self, bytes_max: usize) -> LocalWrite {
        assert!(self.writing.is_empty(), "one write at a time");
        let mut write = LocalWrite::default();
        let mut taken = 0;
        while taken < bytes_max && !write.end {
            let Some((lane, ReceivedRecord { is_fence, body })) = self.ready.pop_front() else {
                break;
            };
            taken += cost(body.as_ref());
            self.writing.push((lane, cost(body.as_ref()), is_fence));
            write.end = body.is_none();
            write.chunks.extend(body);
        }
        write.chunks.iter().for_each(|chunk| self.tally.add(chunk));
        self.end_writing = write.end;
        write
    }

    /// Confirms that the local socket has taken all bytes of [`Inbound::take_ready`].
    pub fn handle_written(&mut self) {
        for (lane, cost, is_fence) in self.writing.drain(..) {
            *self.delivered.entry(lane).or_default() += 1;
            self.unreported.insert(lane);
            self.unreported_bytes += cost;
            self.unreported_fences += usize::from(is_fence);
            self.cost -= cost;
        }
        self.ended |= self.end_writing;
    }

    /// Whether the sender may be waiting for a report.
    pub fn report_is_urgent(&self) -> bool {
        self.unreported_bytes > self.sender_window_bytes / 4
            || self.unreported_fences > FENCES_IN_FLIGHT_MAX / 4
            || self.ended
    }

    pub fn has_report(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Positions delivered since the last report.
    pub fn take_report(&mut self) -> Vec<Cursor> {
        self.unreported_bytes = 0;
        self.unreported_fences = 0;
        let lanes = std::mem::take(&mut self.unreported);
        lanes
            .into_iter()
            .map(|lane| (lane, self.delivered[&lane]))
            .collect()
    }

    /// Makes the next report complete: on a new connection the other end has lost the earlier ones.
    pub fn forget_reports(&mut self) {
        self.unreported = self.delivered.keys().copied().collect();
    }

    pub fn held_bytes(&self) -> usize {
        self.cost
    }

    pub fn held_count(&self) -> usize {
        self.gate.held()
    }
}
