//! One connection's task: bytes in, frames to the session, the session's answers out first, then
//! the application's messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use control::edge::Edge;
use control::session::{Session, SessionOutput, SwitchUp};
use openflow::time::Instant;
use openflow::{Frame, MessageKind, Xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::outbox::Outgoing;
use super::shared::{Facts, Line, Shared};
use super::{DriverConfig, Ended, Notice};
use crate::transport::{Connection, Reader, Writer};

/// The first read of a connection, and of one that was idle.
const READ_BYTES_MIN: usize = 512;
/// Reads double while they fill their buffer.
const READ_BYTES_MAX: usize = 32 << 10;
/// An empty read buffer above this is given back.
const IDLE_BUFFER_BYTES_MAX: usize = 2 << 10;
/// Answers of the session that may wait to be written before the peer is not read any further.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Small messages are written together, up to this.
const CHUNK_BYTES: usize = 8 << 10;
/// A frame that waits in the inbox holds its own bytes and not the read buffer it came in, unless
/// it is most of that buffer anyway.
const COPY_BYTES_MAX: usize = 4 << 10;
/// Above this much unwritten, packet-ins are shed: each would only add an answer to it.
const OUTBOX_BYTES_HIGH: usize = 1 << 20;
/// A peer that takes no byte for so long is gone or hostile.
const WRITE_STALL_MAX: Duration = Duration::from_secs(10);
/// For the last bytes, once the end is decided.
const CLOSING_MAX: Duration = Duration::from_secs(1);

/// Serves the connection until it ends, and then says so.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: Arc<DriverConfig>,
    line: Arc<Line>,
    connection: Connection,
) {
    let Connection {
        reader,
        writer,
        ticket,
        place: _place,
        peer: _,
    } = connection;
    let now = shared.clock.now();
    let session = Session::new(now, config.session.clone(), config.seed ^ line.id.0);
    let mut task = Box::new(Task {
        session,
        edge: Edge::default(),
        edge_out: BytesMut::new(),
        config,
        reader,
        writer,
        input: BytesMut::new(),
        read_bytes: READ_BYTES_MIN,
        answers: VecDeque::new(),
        answer_bytes: 0,
        chunk: Bytes::new(),
        must_flush: false,
        written_at: now,
        held: None,
        is_paused: false,
        echo_sent: None,
        ended: None,
        facts: Facts::default(),
        shared,
        line,
    });
    let reason = task.serve().await;
    let Task { shared, line, .. } = *task;
    let facts = *line.facts();
    // First: the driver has ended when the last connection is down, and then all is told.
    shared.notify(Notice::Down {
        connection: line.id,
        datapath_id: facts.datapath_id,
        was_up: facts.is_admitted,
        peer: line.peer.clone(),
        reason,
    });
    shared.down(line.id, ticket);
}

struct Task {
    shared: Arc<Shared>,
    config: Arc<DriverConfig>,
    line: Arc<Line>,
    session: Session,
    edge: Edge,
    /// Whole messages of the edge.
    edge_out: BytesMut,
    reader: Reader,
    writer: Writer,
    input: BytesMut,
    read_bytes: usize,
    /// Frames of the session: they go before anything of the application.
    answers: VecDeque<Frame>,
    answer_bytes: usize,
    /// What is being written.
    chunk: Bytes,
    must_flush: bool,
    /// When the peer last took a byte, or had none to take.
    written_at: Instant,
    /// A frame that the inbox had no room for.
    held: Option<Frame>,
    is_paused: bool,
    echo_sent: Option<(Xid, Instant)>,
    /// Once set nothing more is read; what is queued is written, then the connection closes.
    ended: Option<Ended>,
    facts: Facts,
}

impl Task {
    async fn serve(&mut self) -> Ended {
        let mut armed = self.deadline();
        let timer = tokio::time::sleep_until(self.shared.clock.deadline(armed));
        tokio::pin!(timer);
        loop {
            self.advance();
            self.fill_chunk();
            self.publish();
            if let Some(reason) = &self.ended {
                return self.close(reason.clone()).await;
            }
            let deadline = self.deadline();
            // A deadline that moved away is left to fire early: it moves with every message.
            if deadline < armed {
                armed = deadline;
                timer.as_mut().reset(self.shared.clock.deadline(armed));
            }
            let is_writing = self.is_writing();
            let may_read = !self.is_paused;
            if may_read {
                self.input.reserve(self.read_bytes);
            }
            tokio::select! {
                read = self.reader.read_buf(&mut self.input), if may_read => match read {
                    Ok(0) => self.ended = Some(Ended::Peer),
                    Ok(count) => self.adapt_reads(count),
                    Err(error) => return Ended::Io(error.kind()),
                },
                written = write_some(&mut self.writer, &self.chunk), if is_writing => match written {
                    Ok(0) if !self.chunk.is_empty() => return Ended::Peer,
                    Ok(count) => {
                        self.must_flush = !self.chunk.is_empty();
                        self.chunk.advance(count);
                        self.written_at = self.shared.clock.now();
                    }
                    Err(error) => return Ended::Io(error.kind()),
                },
                () = self.line.outbox.changed() => {
                    if self.line.outbox.has_overflowed() {
                        return Ended::NotReading;
                    }
                }
                () = self.line.room.notified(), if self.held.is_some() => {}
                () = &mut timer => {
                    self.handle_timeout();
                    armed = self.deadline();
                    timer.as_mut().reset(self.shared.clock.deadline(armed));
                }
            }
        }
    }

    /// Takes the input as far as the session, the inbox and the peer's reading allow.
    fn advance(&mut self) {
        if let Some(frame) = self.held.take() {
            self.deliver(frame);
        }
        loop {
            self.drain_session();
            if self.ended.is_some() {
                return;
            }
            let now = self.shared.clock.now();
            let must_pause = self.held.is_some() || self.answer_bytes > ANSWER_BYTES_MAX;
            if must_pause != self.is_paused {
                self.is_paused = must_pause;
                self.session.handle_paused(now, must_pause);
            }
            if must_pause {
                return;
            }
            match Frame::split_from(&mut self.input) {
                Ok(Some(frame)) => self.handle_frame(now, frame),
                Ok(None) => {
                    self.session.handle_partial(now, !self.input.is_empty());
                    return;
                }
                Err(error) => self.ended = Some(Ended::Framing(error)),
            }
        }
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame) {
        if let Some((xid, sent)) = self.echo_sent
            && frame.kind() == MessageKind::EchoReply
            && frame.xid() == xid
        {
            self.facts.echo_rtt = Some(now.since(sent));
            self.echo_sent = None;
        }
        let is_answered = frame.kind() == MessageKind::PacketIn
            && self.session.is_up()
            && self
                .edge
                .handle_packet_in(now, frame.bytes(), &mut self.edge_out);
        if !is_answered {
            self.session.handle_frame(now, frame);
        }
    }

    /// While a frame is held its successors stay in the session, in order.
    fn drain_session(&mut self) {
        while self.held.is_none()
            && self.ended.is_none()
            && let Some(output) = self.session.poll_output()
        {
            match output {
                SessionOutput::Transmit(frame) => self.answer(frame),
                SessionOutput::Up(up) => self.handle_up(up),
                SessionOutput::Deliver(frame) => self.deliver(frame),
                SessionOutput::Close(reason) => self.ended = Some(Ended::Session(reason)),
            }
        }
    }

    fn answer(&mut self, frame: Frame) {
        if frame.kind() == MessageKind::EchoRequest {
            self.echo_sent = Some((frame.xid(), self.shared.clock.now()));
        }
        self.answer_bytes += frame.len();
        self.answers.push_back(frame);
    }

    fn handle_up(&mut self, up: Box<SwitchUp>) {
        let id = up.features.datapath_id;
        self.facts.datapath_id = Some(id);
        self.facts.version = Some(up.version);
        let allowed = self.config.allowed.as_ref();
        if allowed.is_some_and(|allowed| !allowed.contains(&id)) {
            self.ended = Some(Ended::NotAllowed(id));
            return;
        }
        self.publish();
        self.shared.up(&self.line, up);
    }

    fn deliver(&mut self, frame: Frame) {
        let is_packet_in = frame.kind() == MessageKind::PacketIn;
        if is_packet_in && self.line.outbox.bytes() > OUTBOX_BYTES_HIGH {
            self.facts.packet_ins_shed_unread += 1;
            return;
        }
        let frame = if frame.len() < COPY_BYTES_MAX {
            let bytes = Bytes::copy_from_slice(frame.bytes());
            Frame::new(bytes).expect("as long as it was")
        } else {
            frame
        };
        self.held = self.shared.deliver(&self.line, frame).err();
    }

    /// Puts together what is written next: answers first, then messages of the application.
    fn fill_chunk(&mut self) {
        if !self.chunk.is_empty() {
            return;
        }
        let was_idle = !self.must_flush;
        let mut several = BytesMut::new();
        while several.len() < CHUNK_BYTES {
            let Some(frame) = self.next_frame() else {
                break;
            };
            self.facts.messages_sent += 1;
            if self.chunk.is_empty() {
                self.chunk = frame.bytes().clone();
            } else {
                if several.is_empty() {
                    several.extend_from_slice(&self.chunk);
                }
                several.extend_from_slice(frame.bytes());
            }
            if self.chunk.len() >= CHUNK_BYTES {
                break;
            }
        }
        if !several.is_empty() {
            self.chunk = several.freeze();
        }
        if was_idle && !self.chunk.is_empty() {
            self.written_at = self.shared.clock.now();
        }
    }

    fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.answers.pop_front() {
                self.answer_bytes -= frame.len();
                if self.answers.is_empty() {
                    self.answers = VecDeque::new();
                }
                return Some(frame);
            }
            if let Ok(Some(frame)) = Frame::split_from(&mut self.edge_out) {
                return Some(frame);
            }
            match self.line.outbox.pop()? {
                Outgoing::Frame(frame) => return Some(frame),
                Outgoing::Edge(update) => self.edge.handle_update(update, &mut self.edge_out),
                Outgoing::Probe => {
                    self.session.handle_probe(self.shared.clock.now());
                    self.drain_session();
                }
                Outgoing::End(reason) => {
                    self.ended.get_or_insert(reason);
                    return None;
                }
            }
        }
    }

    fn deadline(&self) -> Instant {
        let far = self.shared.clock.now() + Duration::from_secs(3600);
        let session = self.session.poll_timeout().map_or(far, |(due, _)| due);
        if self.is_writing() {
            session.min(self.written_at + WRITE_STALL_MAX)
        } else {
            session
        }
    }

    fn handle_timeout(&mut self) {
        let now = self.shared.clock.now();
        if self.is_writing() && now.since(self.written_at) >= WRITE_STALL_MAX {
            self.ended = Some(Ended::Stalled);
            return;
        }
        self.session.handle_timeout(now);
    }

    fn is_writing(&self) -> bool {
        !self.chunk.is_empty() || self.must_flush
    }

    fn adapt_reads(&mut self, count: usize) {
        if count >= self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if count < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }

    fn publish(&mut self) {
        if self.input.is_empty() && self.input.capacity() > IDLE_BUFFER_BYTES_MAX {
            self.input = BytesMut::new();
        }
        self.facts.session = self.session.counters();
        let mut facts = self.line.facts();
        let is_admitted = facts.is_admitted;
        *facts = self.facts;
        facts.is_admitted = is_admitted;
    }

    /// Writes what is still queued, as far as the peer takes it in time.
    async fn close(&mut self, reason: Ended) -> Ended {
        let last_words = async {
            loop {
                self.fill_chunk();
                if self.chunk.is_empty() {
                    break;
                }
                let chunk = std::mem::take(&mut self.chunk);
                self.writer.write_all(&chunk).await?;
            }
            self.writer.shutdown().await
        };
        if !matches!(reason, Ended::Peer | Ended::Stalled | Ended::NotReading) {
            let _ = tokio::time::timeout(CLOSING_MAX, last_words).await;
        }
        reason
    }
}

/// One write, or a flush when there is nothing to write. Cancel-safe.
async fn write_some(writer: &mut Writer, bytes: &[u8]) -> std::io::Result<usize> {
    if bytes.is_empty() {
        writer.flush().await?;
        return Ok(0);
    }
    writer.write(bytes).await
}
