//! One connection's task: bytes in, packet-ins to the edge, other messages to the session, answers
//! out first, then the application's messages.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use clock::Instant;
use control::edge::{Edge, Verdict, shown};
use control::inbox::Thinning;
use control::session::{Session, SessionOutput, SwitchUp};
use openflow::frame::HEADER_LEN;
use openflow::{DatapathId, Frame, FrameError, MessageKind, Version, Xid};
use sched::classify::Buffers;
use sched::{Direction, Tag};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::time::Sleep;

use super::line::{Facts, Line};
use super::outbox::Outgoing;
use super::output::Output;
use super::policy::Policy;
use super::share::Share;
use super::shared::{Down, Shared};
use super::waiting::{Place, STUCK_BYTES_MAX, Waiting};
use super::{DriverConfig, Ended, Kept};
use net::tls::Revoked;
use net::transport::{Connection, Keeper, Reader, Ticket, Writer};

/// The bytes that one turn reads at most.
const READ_BYTES_MAX: usize = 64 << 10;
/// Up to this length, the beginning of a message is copied in front of the next read. A longer one
/// grows in place.
const HEAD_BYTES_MAX: usize = 4 << 10;
/// The greatest number of items that one refill takes from the outbox. Most updates for the edge
/// write no bytes.
const REFILL_MAX: usize = 512;
/// The same limit where each message has to be classified.
const SCHEDULED_MAX: usize = 64;
/// An empty queue with room for more than this is freed: a burst must not leave unused memory in
/// every connection.
const IDLE_QUEUE_LEN_MAX: usize = 16;
/// The unwritten bytes above which packet-ins are shed: each would only add an answer.
const OUTBOX_BYTES_HIGH: usize = 1 << 20;
/// Above this number of unwritten bytes, a stuck peer is read slowly ([`Share`]): it sends requests
/// and does not read the answers. Do not stop reading entirely: a slow peer's echo request must
/// still be answered in time.
const UNREAD_BYTES_MAX: usize = 256 << 10;
/// Bytes of messages that are read ahead while the inbox has no room for them. An echo request
/// behind that many bytes is still found and answered.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// A peer that takes no byte for this long is dead or hostile.
const WRITE_STALL_MAX: Duration = Duration::from_secs(10);
/// The time to write the last bytes, once the connection is to end.
const CLOSING_MAX: Duration = Duration::from_secs(1);
/// The number of messages ahead in which the edge looks for packet-ins: about the number of memory
/// reads that a core can have outstanding.
const LOOK_AHEAD: usize = 16;
/// The type byte of PACKET_IN, in every version.
const PACKET_IN: u8 = 10;

/// Serves the connection until it ends, and then reports its end. With `resumed`, the connection
/// already speaks that version: another process served it until now.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: Arc<DriverConfig>,
    line: Arc<Line>,
    resumed: Option<Version>,
    connection: Connection,
) {
    let Connection {
        reader,
        writer,
        ticket,
        place: _place,
        peer: _,
        keeper,
    } = connection;
    let mut farewell = Farewell {
        shared: shared.clone(),
        line: line.clone(),
        ticket,
        reason: None,
    };
    let halves = (reader, writer, keeper.clone());
    let mut task = Box::new(Task::new(shared.clone(), &config, line, resumed, halves));
    let mut reason = task.serve().await;
    let version = task.session.version();
    // This also drops the halves.
    drop(task);
    if reason == Ended::Kept {
        let socket = keeper.and_then(|keeper| keeper.take());
        match socket.zip(version) {
            Some((socket, version)) => shared.keep(Kept { version, socket }),
            None => reason = Ended::Stopped,
        }
    }
    farewell.reason = Some(reason);
}

/// Reports the end of a connection when it is dropped, even if the task panics or its runtime drops
/// it. An end that nobody reports would lock the datapath id out.
struct Farewell {
    shared: Arc<Shared>,
    line: Arc<Line>,
    ticket: Option<Ticket>,
    /// Set when the task has reached its end.
    reason: Option<Ended>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let facts = *self.line.facts();
        self.shared.count_aside(facts.is_aside, false);
        let unforeseen = || match std::thread::panicking() {
            true => Ended::Panicked,
            false => Ended::Stopped,
        };
        let mut down = Box::new(Down {
            line: self.line.clone(),
            datapath_id: facts.datapath_id,
            reason: self.reason.take().unwrap_or_else(unforeseen),
            ticket: self.ticket.take(),
            is_untold: true,
        });
        // If the application does not know the connection, report its end here. Otherwise the
        // application's thread reports the end, after its earlier reports of the connection.
        if !facts.has_been_up {
            self.shared.notify(down.notice(false));
            down.is_untold = false;
        }
        self.shared.down(down);
    }
}

struct Task {
    shared: Arc<Shared>,
    line: Arc<Line>,
    session: Session,
    edge: Edge,
    /// The version byte of packet-ins for the edge; 0 until the switch is up.
    edge_version: u8,
    reader: Reader,
    writer: Writer,
    keeper: Option<Keeper>,
    winding_up_max: Duration,
    /// Whether reading has stopped because the process is about to end.
    is_held: bool,
    /// Bytes read and not yet taken: the beginning of a message, or messages left by a pause.
    rest: BytesMut,
    /// Whether the first message of `rest` is whole.
    has_whole: bool,
    output: Output,
    /// Whether the peer did not take all of the last write.
    is_stuck: bool,
    /// The time when the peer last took a byte, or had none to take.
    written_at: Instant,
    /// Items taken from the outbox, not yet in the output or in `waiting`.
    sending: VecDeque<Outgoing>,
    /// Messages that wait for a slow peer. If `None`, all messages go straight to the output.
    waiting: Option<Box<Waiting>>,
    /// Packets that the switch keeps, where the policy map asks for them.
    buffers: Buffers,
    policy: Arc<Policy>,
    policy_number: u64,
    /// The reason that ends the connection when `sending` and `waiting` are in the output.
    ending: Option<Ended>,
    /// Messages for the application. Those left after a turn had no room in the inbox.
    undelivered: VecDeque<(Option<Tag>, Frame)>,
    undelivered_bytes: usize,
    thinning: Thinning,
    /// The number of barriers sent to the peer and not yet answered.
    barriers: u64,
    is_paused: bool,
    share: Share,
    /// The first echo request since a reply: the slowest replies arrive after the next request.
    echo_sent: Option<(Xid, Instant)>,
    /// The reason of the end. Once it is set nothing more is read; queued messages are written,
    /// then the connection closes.
    ended: Option<Ended>,
    facts: Facts,
    timer: Pin<Box<Sleep>>,
    /// The time at which `timer` fires.
    armed: Instant,
    /// The waker that the bell wakes.
    waker: Option<Waker>,
}

/// A thread's buffers, lent to whichever connection has its turn.
struct Scratch {
    input: Box<[u8]>,
    output: BytesMut,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; HEAD_BYTES_MAX + READ_BYTES_MAX].into(),
        output: BytesMut::new(),
    });
}

/// The part of the input that the edge has already looked at.
#[derive(Default)]
struct Ahead {
    /// The length from the beginning of the input.
    bytes: usize,
    messages: usize,
}

/// The end of a turn that does not wait.
enum Turn {
    /// There is more to do, after the thread's other connections.
    More,
    Ended(Ended),
}

impl Task {
    fn new(
        shared: Arc<Shared>,
        config: &DriverConfig,
        line: Arc<Line>,
        resumed: Option<Version>,
        (reader, writer, keeper): (Reader, Writer, Option<Keeper>),
    ) -> Task {
        let now = shared.clock.now();
        let mut session = config.session.clone();
        session.is_patient = shared.is_standing_by();
        let seed = config.seed ^ line.id.0;
        let session = match resumed {
            None => Session::new(now, session, seed),
            Some(version) => Session::resume(now, session, version, seed),
        };
        Task {
            session,
            edge: Edge::default(),
            edge_version: 0,
            reader,
            writer,
            keeper,
            winding_up_max: config.winding_up_max,
            is_held: false,
            rest: BytesMut::new(),
            has_whole: false,
            output: Output::default(),
            is_stuck: false,
            written_at: now,
            sending: VecDeque::new(),
            waiting: None,
            buffers: Buffers::default(),
            policy_number: shared.policy.number(),
            policy: shared.policy.current(),
            ending: None,
            undelivered: VecDeque::new(),
            undelivered_bytes: 0,
            thinning: Thinning::default(),
            barriers: 0,
            is_paused: false,
            share: Share::new(now, config.packet_in_rate_max),
            echo_sent: None,
            ended: None,
            facts: Facts::default(),
            timer: Box::pin(tokio::time::sleep_until(shared.clock.deadline(now))),
            // The first turn arms it.
            armed: now,
            waker: None,
            shared,
            line,
        }
    }

    async fn serve(&mut self) -> Ended {
        loop {
            let turn = poll_fn(|context| SCRATCH.with_borrow_mut(|s| self.poll_turn(context, s)));
            match turn.await {
                Turn::More => tokio::task::yield_now().await,
                Turn::Ended(reason) => return self.close(reason).await,
            }
        }
    }

    fn poll_turn(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Turn> {
        let now = self.shared.clock.now();
        self.hear_bell(context, now);
        self.hear_of_policy();
        if now >= self.armed {
            self.handle_timeout(now);
        }
        self.output.borrow(&mut scratch.output);
        let turn = self.work(context, now, &mut scratch.input);
        self.output.give_back(&mut scratch.output);
        self.publish();
        if let Some(reason) = &self.ended {
            return Poll::Ready(Turn::Ended(reason.clone()));
        }
        self.arm(context, now);
        turn.map(|()| Turn::More)
    }

    /// Pending when there is nothing to do before the next event; ready when there is, or when
    /// `ended` is set.
    fn work(&mut self, context: &mut Context<'_>, now: Instant, input: &mut [u8]) -> Poll<()> {
        self.share.begin(now, self.is_unread());
        let mut read = None;
        // Messages that the session sends unasked: at the start, and when a deadline has passed.
        self.drain_session(now);
        self.take_rest(now);
        loop {
            let sent = self.write(context, now);
            self.deliver(now);
            if let Some(Read::End(reason)) = &read
                && !self.has_whole
                && self.undelivered.is_empty()
            {
                self.ended.get_or_insert_with(|| reason.clone());
            }
            if self.ended.is_some() || sent == SendProgress::Some {
                return Poll::Ready(());
            }
            if self.must_pause(now) {
                return Poll::Pending;
            }
            if self.share.is_spent() {
                return match self.share.due() {
                    Some(due) if now < due => Poll::Pending,
                    _ => Poll::Ready(()),
                };
            }
            if self.has_whole {
                self.take_rest(now);
                continue;
            }
            match read {
                None if self.is_held => return Poll::Pending,
                None => read = Some(self.read(context, now, input)),
                Some(Read::All) => return Poll::Pending,
                Some(Read::Some | Read::End(_)) => return Poll::Ready(()),
            }
        }
    }

    fn hear_bell(&mut self, context: &Context<'_>, now: Instant) {
        let waker = context.waker();
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.line.bell.wakes(waker);
            self.waker = Some(waker.clone());
        }
        if !self.line.bell.was_rung() {
            return;
        }
        let orders = self.line.outbox.take(&mut self.sending);
        if orders.probe {
            self.session.handle_probe(now);
        }
        self.is_held |= orders.hold;
        match orders.end {
            Some(Ended::NotReading) => self.ended = Some(Ended::NotReading),
            end => self.ending = end,
        }
    }

    fn hear_of_policy(&mut self) {
        let number = self.shared.policy.number();
        if number != self.policy_number {
            self.policy_number = number;
            self.policy = self.shared.policy.current();
            if let Some(waiting) = &mut self.waiting {
                waiting.set_policy(&self.policy);
            }
        }
    }

    /// Whether too much is unwritten: the driver then reads nothing that would add to it.
    fn is_full(&self) -> bool {
        let waiting = self.waiting.as_ref().map_or(0, |w| w.uncounted_bytes());
        self.output.is_full_with(waiting)
    }

    /// Whether the peer leaves so many bytes unread that answers to more messages would only add to
    /// them.
    fn is_unread(&self) -> bool {
        let waiting = self.waiting.as_ref().map_or(0, |w| w.uncounted_bytes());
        let unread = || waiting + self.output.bulk.len() + self.line.outbox.bytes();
        self.is_stuck && unread() > UNREAD_BYTES_MAX
    }

    fn must_pause(&mut self, now: Instant) -> bool {
        let must_pause = self.undelivered_bytes > AHEAD_BYTES_MAX || self.is_full();
        if must_pause != self.is_paused {
            self.is_paused = must_pause;
            self.session.handle_paused(now, must_pause);
        }
        must_pause
    }

    /// Reads the bytes that have arrived, up to one turn's share, and takes their messages.
    fn read(&mut self, context: &mut Context<'_>, now: Instant, input: &mut [u8]) -> Read {
        let is_long = self.rest.len() > HEAD_BYTES_MAX;
        let (begin, end) = if is_long {
            (0, announced(&self.rest).saturating_sub(self.rest.len()))
        } else {
            input[..self.rest.len()].copy_from_slice(&self.rest);
            (self.rest.len(), input.len())
        };
        let mut filled = begin;
        let mut read = Read::Some;
        while filled < end {
            let mut buffer = ReadBuf::new(&mut input[filled..end]);
            let polled = Pin::new(&mut self.reader).poll_read(context, &mut buffer);
            let count = buffer.filled().len();
            filled += count;
            read = match polled {
                Poll::Ready(Ok(())) if count > 0 => continue,
                Poll::Ready(Ok(())) => Read::End(Ended::Peer),
                Poll::Ready(Err(error)) => Read::End(read_error(&error)),
                Poll::Pending => Read::All,
            };
            break;
        }
        if filled == begin {
            return read;
        }
        if is_long {
            self.rest.extend_from_slice(&input[..filled]);
            self.has_whole = true;
            self.take_rest(now);
        } else {
            let used = self.take(now, &input[..filled]);
            self.rest = BytesMut::from(&input[used..filled]);
        }
        read
    }

    /// Takes the messages that a pause has left.
    fn take_rest(&mut self, now: Instant) {
        if !self.has_whole {
            return;
        }
        let mut rest = std::mem::take(&mut self.rest);
        let used = self.take(now, &rest);
        rest.advance(used);
        self.rest = if self.has_whole {
            rest
        } else {
            BytesMut::from(&rest[..])
        };
    }

    /// Takes whole messages off the front of `input`, as far as the connection's share and the
    /// output allow. Returns the number of bytes taken.
    fn take(&mut self, now: Instant, input: &[u8]) -> usize {
        let mut used = 0;
        let mut answered = 0;
        let mut ahead = Ahead::default();
        // While messages wait, answers of the edge wait behind them.
        let mut held_back = BytesMut::new();
        self.has_whole = true;
        while !(self.share.is_spent() || self.is_full() || held_back.len() > STUCK_BYTES_MAX)
            && self.ended.is_none()
        {
            let rest = &input[used..];
            let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
                self.has_whole = false;
                break;
            };
            let len = announced(header);
            if len < HEADER_LEN {
                let error = FrameError::LengthBelowHeader { len };
                self.ended = Some(Ended::Framing(error));
                break;
            }
            let Some(message) = rest.get(..len) else {
                self.has_whole = false;
                break;
            };
            if header[0] == self.edge_version {
                self.look_ahead(input, used, &mut ahead);
            }
            let mut verdict = Verdict::Left;
            if header[0] == self.edge_version && header[1] == PACKET_IN {
                let out = match self.waiting {
                    None => &mut self.output.bulk,
                    Some(_) => &mut held_back,
                };
                verdict = self.edge.handle_packet_in(now, message, out);
            }
            let is_packet_in = header[1] == PACKET_IN && verdict == Verdict::Left;
            if verdict == Verdict::Answered || is_packet_in && self.is_thinned(now, message) {
                used += len;
                answered += 1;
                self.share.note_answered();
                continue;
            }
            if !self.share.takes(now, is_packet_in) {
                break;
            }
            used += len;
            self.handle_answered(&mut answered);
            let frame = match verdict {
                Verdict::Show => shown(message),
                // A copy: the message may outlive the buffer that it arrived in.
                _ => Frame::new(Bytes::copy_from_slice(message)).expect("one whole message"),
            };
            self.handle_message(now, frame);
        }
        self.handle_answered(&mut answered);
        self.hold_back(now, &mut held_back);
        if !self.has_whole {
            self.session.handle_partial(now, used < input.len());
        }
        used
    }

    /// Whether to drop a packet-in that the edge has not answered, because the inbox would shed it.
    /// If the port's packet-ins belong to several classes, only classifying them shows which ones.
    #[inline]
    fn is_thinned(&mut self, now: Instant, packet_in: &[u8]) -> bool {
        if self.policy.sorts_flows() {
            return false;
        }
        let version = self.facts.version;
        let version = version.filter(|version| version.wire() == packet_in[0]);
        version.is_some_and(|version| self.thinning.drops(now, version, packet_in))
    }

    /// Lets the edge look at messages before their turn. The current message begins at
    /// `used`.
    #[inline]
    fn look_ahead(&self, input: &[u8], used: usize, ahead: &mut Ahead) {
        ahead.messages = ahead.messages.saturating_sub(1);
        ahead.bytes = ahead.bytes.max(used);
        while ahead.messages < LOOK_AHEAD
            && let rest = &input[ahead.bytes..]
            && let Some(header) = rest.first_chunk::<HEADER_LEN>()
            && let Some(message) = rest.get(..announced(header))
            // A length below the header's is an error. The message's own turn reports it.
            && message.len() >= HEADER_LEN
        {
            if header[1] == PACKET_IN {
                self.edge.look_ahead(message);
            }
            ahead.bytes += message.len();
            ahead.messages += 1;
        }
    }

    fn handle_answered(&mut self, answered: &mut u64) {
        if *answered > 0 {
            self.session.handle_answered(std::mem::take(answered));
        }
    }

    fn handle_message(&mut self, now: Instant, frame: Frame) {
        if frame.kind() == MessageKind::EchoReply
            && let Some((xid, sent)) = self.echo_sent.take()
            && frame.xid() == xid
        {
            let rtt = now.since(sent);
            self.facts.echo_rtt = Some(rtt);
            self.shared.count_echo(rtt);
        }
        self.session.handle_frame(now, frame);
        self.drain_session(now);
    }

    fn drain_session(&mut self, now: Instant) {
        while self.ended.is_none()
            && let Some(output) = self.session.poll_output()
        {
            match output {
                SessionOutput::Transmit(frame) => {
                    if frame.kind() == MessageKind::EchoRequest {
                        self.echo_sent.get_or_insert((frame.xid(), now));
                    }
                    self.facts.messages_sent += 1;
                    self.output.answer(&frame);
                }
                SessionOutput::Up(up) => self.handle_up(up),
                SessionOutput::Aside(id) => self.handle_aside(id),
                SessionOutput::Deliver(frame) => self.keep(now, frame),
                SessionOutput::Close(reason) => self.ended = Some(Ended::Session(reason)),
            }
        }
    }

    fn handle_up(&mut self, up: Box<SwitchUp>) {
        if self.is_named(up.features.datapath_id) {
            self.edge_version = up.version.wire();
            self.shared.up(&self.line, up);
        }
    }

    /// Handles a switch that another controller serves: none of its messages are for the edge or
    /// the application.
    fn handle_aside(&mut self, id: DatapathId) {
        self.edge = Edge::default();
        self.edge_version = 0;
        self.undelivered = VecDeque::new();
        self.undelivered_bytes = 0;
        if self.is_named(id) {
            self.shared.aside(&self.line);
        }
    }

    /// Notes the connection's datapath id before the application learns of the connection. Returns
    /// whether that switch may connect.
    fn is_named(&mut self, id: DatapathId) -> bool {
        self.facts.datapath_id = Some(id);
        self.facts.version = self.session.version();
        // From here on, a change of the allowed datapaths finds this connection.
        self.publish();
        if !self.shared.is_allowed(id) {
            self.ended = Some(Ended::NotAllowed(id));
            return false;
        }
        self.facts.has_been_up = true;
        self.publish();
        true
    }

    /// Keeps `frame` for [`Task::deliver`].
    fn keep(&mut self, now: Instant, frame: Frame) {
        let is_packet_in = frame.kind() == MessageKind::PacketIn;
        if frame.kind() == MessageKind::BarrierReply {
            // Replies overtake other messages, so there must be no more replies than requests.
            let Some(left) = self.barriers.checked_sub(1) else {
                self.facts.replies_unasked += 1;
                return;
            };
            self.barriers = left;
        }
        if is_packet_in && self.line.outbox.bytes() > OUTBOX_BYTES_HIGH {
            self.facts.packet_ins_shed_unread += 1;
            return;
        }
        // Without classes, the inbox already knows everything to sort by.
        let tag = (!self.policy.is_trivial()).then(|| {
            let place = self.place();
            let to = Direction::ToController;
            (self.policy).classify(&frame, to, place.channel, place.datapath, None)
        });
        if is_packet_in && self.policy.reads_packet_outs() {
            let place = self.place();
            self.buffers
                .handle_packet_in(now, place.channel, place.datapath, &frame);
        }
        self.undelivered_bytes += counted(&frame);
        self.undelivered.push_back((tag, frame));
    }

    fn deliver(&mut self, now: Instant) {
        if self.undelivered.is_empty() {
            return;
        }
        let (frames, thinning) = (&mut self.undelivered, &mut self.thinning);
        self.shared.deliver(now, &self.line, frames, thinning);
        self.undelivered_bytes = self.undelivered.iter().map(|(_, f)| counted(f)).sum();
        if self.undelivered.is_empty() && self.undelivered.capacity() > IDLE_QUEUE_LEN_MAX {
            self.undelivered = VecDeque::new();
        }
    }

    /// Writes as much as the peer takes: the session's answers, then messages of the edge and the
    /// application. These keep their order or, once they have to wait, follow the policy map's.
    fn write(&mut self, context: &mut Context<'_>, now: Instant) -> SendProgress {
        self.refill(now);
        let sent = match self.sending.is_empty() && self.waiting.is_none() {
            true => SendProgress::All,
            false => SendProgress::Some,
        };
        if !self.output.is_waiting() {
            return sent;
        }
        if !self.is_stuck {
            self.written_at = now;
        }
        let mut written = 0;
        let polled = self
            .output
            .poll_write(context, &mut self.writer, &mut written);
        if written > 0 {
            self.written_at = now;
        }
        self.is_stuck = polled.is_pending();
        if let Some(waiting) = &mut self.waiting {
            waiting.handle_written(!self.is_stuck);
        }
        match polled {
            Poll::Ready(Ok(())) => sent,
            Poll::Pending => {
                self.give_way(now);
                // Messages not yet scheduled may be more urgent than scheduled ones.
                match self.sending.is_empty() || !self.must_schedule() {
                    true => SendProgress::All,
                    false => SendProgress::Some,
                }
            }
            Poll::Ready(Err(error)) => {
                self.ended.get_or_insert(write_error(&error));
                SendProgress::All
            }
        }
    }

    fn refill(&mut self, now: Instant) {
        if self.waiting.is_none() && !(self.is_stuck && self.must_schedule()) {
            self.refill_in_order();
        } else if self.waiting.is_some() || !self.sending.is_empty() {
            self.refill_by_policy(now);
        }
        if self.sending.is_empty() && self.waiting.is_none() {
            if self.sending.capacity() > IDLE_QUEUE_LEN_MAX {
                self.sending = VecDeque::new();
            }
            if let Some(reason) = self.ending.take() {
                self.ended.get_or_insert(reason);
            }
        }
    }

    /// Whether messages must go through the scheduler. If no message could overtake another, none
    /// is held back.
    fn must_schedule(&self) -> bool {
        !self.policy.is_trivial()
    }

    fn refill_in_order(&mut self) {
        for _ in 0..REFILL_MAX {
            if !self.output.has_room() {
                break;
            }
            let Some(outgoing) = self.sending.pop_front() else {
                break;
            };
            self.line.outbox.handle_sent(outgoing.bytes());
            match outgoing {
                Outgoing::Frame(frame) => {
                    self.facts.messages_sent += 1;
                    self.barriers += u64::from(frame.kind() == MessageKind::BarrierRequest);
                    self.output.bulk.extend_from_slice(frame.bytes());
                }
                Outgoing::Edge(update) => self.edge.handle_update(update, &mut self.output.bulk),
            }
        }
    }

    fn refill_by_policy(&mut self, now: Instant) {
        self.schedule(now);
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let counted = waiting.pop_into(now, &mut self.output.bulk);
        self.line.outbox.handle_sent(counted);
        if waiting.is_empty() {
            self.shared.policy.note_sent(waiting.counters());
            self.waiting = None;
        }
    }

    /// Queues the messages that are neither begun nor next: the peer is stuck, so others may
    /// overtake them from now on.
    fn give_way(&mut self, now: Instant) {
        if self.waiting.is_none() && self.must_schedule() {
            let mut later = self.output.split_off(STUCK_BYTES_MAX);
            self.hold_back(now, &mut later);
        }
    }

    /// Queues messages that the outbox does not count.
    fn hold_back(&mut self, now: Instant, messages: &mut BytesMut) {
        if messages.is_empty() {
            return;
        }
        let place = self.place();
        let waiting = (self.waiting).get_or_insert_with(|| Box::new(Waiting::new(&self.policy)));
        waiting.push_all(now, &self.policy, place, messages, &self.buffers);
    }

    /// Queues a refill from the outbox. The outbox still counts it.
    fn schedule(&mut self, now: Instant) {
        let place = self.place();
        let waiting = (self.waiting).get_or_insert_with(|| Box::new(Waiting::new(&self.policy)));
        let outbox = &self.line.outbox;
        for _ in 0..SCHEDULED_MAX {
            let Some(outgoing) = self.sending.pop_front() else {
                break;
            };
            let bytes = outgoing.bytes();
            match outgoing {
                Outgoing::Frame(frame) => {
                    self.facts.messages_sent += 1;
                    self.barriers += u64::from(frame.kind() == MessageKind::BarrierRequest);
                    waiting.push(now, &self.policy, place, frame, bytes, &self.buffers);
                }
                Outgoing::Edge(update) => {
                    let mut messages = BytesMut::new();
                    self.edge.handle_update(update, &mut messages);
                    outbox.handle_sent(bytes);
                    while let Ok(Some(frame)) = Frame::split_from(&mut messages) {
                        let bytes = frame.len() + size_of::<Outgoing>();
                        outbox.handle_made(bytes);
                        waiting.push(now, &self.policy, place, frame, bytes, &self.buffers);
                    }
                }
            }
        }
    }

    fn place(&self) -> Place {
        Place {
            channel: self.line.id.0,
            datapath: self.facts.datapath_id,
        }
    }

    fn deadline(&self, now: Instant) -> Instant {
        let far = now + Duration::from_secs(3600);
        let session = self.session.poll_timeout().map_or(far, |(due, _)| due);
        let session = self.share.due().map_or(session, |due| session.min(due));
        if self.is_stuck {
            session.min(self.written_at + WRITE_STALL_MAX)
        } else {
            session
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.is_stuck && now.since(self.written_at) >= WRITE_STALL_MAX {
            self.ended.get_or_insert(Ended::Stalled);
            return;
        }
        self.session.handle_timeout(now);
    }

    /// Arms the timer. If the deadline has moved later, the timer fires early: the deadline moves
    /// with every message.
    fn arm(&mut self, context: &mut Context<'_>, now: Instant) {
        let due = self.deadline(now);
        if due < self.armed || self.armed <= now {
            self.armed = due;
            self.timer.as_mut().reset(self.shared.clock.deadline(due));
            if self.timer.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
    }

    fn publish(&mut self) {
        self.facts.session = self.session.counters();
        let was_aside = std::mem::replace(&mut self.facts.is_aside, self.session.is_aside());
        self.shared.count_aside(was_aside, self.facts.is_aside);
        self.facts.edge = self.edge.counters();
        self.facts.rests = self.share.rests();
        let mut facts = self.line.facts();
        let is_admitted = facts.is_admitted;
        *facts = self.facts;
        facts.is_admitted = is_admitted;
    }

    /// Brings both directions to the end of a message. Returns whether that succeeded, so that the
    /// connection can stay open without this process.
    async fn wind_up(&mut self) -> bool {
        let is_served = self.session.is_up() && self.line.facts().is_admitted;
        if !is_served || self.keeper.is_none() {
            return false;
        }
        self.ended = None;
        let wait = self.winding_up_max;
        let wound_up = poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| self.poll_wound_up(context, &mut scratch.input))
        });
        tokio::time::timeout(wait, wound_up).await == Ok(true)
    }

    fn poll_wound_up(&mut self, context: &mut Context<'_>, input: &mut [u8]) -> Poll<bool> {
        let now = self.shared.clock.now();
        loop {
            // Requests are answered. The application receives nothing more.
            loop {
                match Frame::split_from(&mut self.rest) {
                    Ok(Some(frame)) => self.handle_message(now, frame),
                    Ok(None) => break,
                    Err(_) => return Poll::Ready(false),
                }
            }
            self.undelivered.clear();
            self.refill(now);
            let written = self.output.poll_write(context, &mut self.writer, &mut 0);
            if ready!(written).is_err() || self.ended.is_some() {
                return Poll::Ready(false);
            }
            if !self.sending.is_empty() || self.waiting.is_some() {
                continue;
            }
            if self.rest.is_empty() {
                return Poll::Ready(true);
            }
            if !ready!(self.poll_missing(context, input)) {
                return Poll::Ready(false);
            }
        }
    }

    /// Reads only the missing bytes of the message that `rest` begins with. Returns whether any
    /// arrived.
    fn poll_missing(&mut self, context: &mut Context<'_>, input: &mut [u8]) -> Poll<bool> {
        let len = self.rest.len();
        let missing = match len < HEADER_LEN {
            true => HEADER_LEN - len,
            false => announced(&self.rest).saturating_sub(len),
        };
        let Some(input) = input.get_mut(..missing) else {
            return Poll::Ready(false);
        };
        let mut buffer = ReadBuf::new(input);
        let read = ready!(Pin::new(&mut self.reader).poll_read(context, &mut buffer));
        self.rest.extend_from_slice(buffer.filled());
        Poll::Ready(read.is_ok() && !buffer.filled().is_empty())
    }

    /// Writes the queued messages, as far as the peer takes them in time.
    async fn close(&mut self, mut reason: Ended) -> Ended {
        if reason == Ended::Kept {
            if self.wind_up().await
                && let Some(keeper) = &self.keeper
            {
                keeper.keep();
                return reason;
            }
            reason = Ended::Stopped;
        }
        let last_words = async {
            loop {
                self.refill(self.shared.clock.now());
                if !self.output.is_waiting() && self.sending.is_empty() {
                    break;
                }
                let (output, writer) = (&mut self.output, &mut self.writer);
                poll_fn(|context| output.poll_write(context, writer, &mut 0)).await?;
            }
            self.writer.shutdown().await
        };
        let is_deaf = matches!(
            reason,
            Ended::Peer | Ended::Io(_) | Ended::Stalled | Ended::NotReading | Ended::Revoked
        );
        if !is_deaf {
            let _ = tokio::time::timeout(CLOSING_MAX, last_words).await;
        }
        reason
    }
}

/// The result of [`Task::read`].
enum Read {
    /// The turn's share; there may be more.
    Some,
    /// Everything that has arrived: the reader will wake the task.
    All,
    /// Everything that will ever arrive.
    End(Ended),
}

#[derive(PartialEq, Eq)]
enum SendProgress {
    /// The turn's share; there is more.
    Some,
    /// Everything, or as much as the peer takes: the writer will wake the task.
    All,
}

/// The bytes that a waiting message counts for: short messages cost more than their bytes.
fn counted(frame: &Frame) -> usize {
    frame.len() + size_of::<(Option<Tag>, Frame)>()
}

/// The length that a message's header announces.
fn announced(header: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([header[2], header[3]]))
}

fn write_error(error: &io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::WriteZero => Ended::Peer,
        _ => read_error(error),
    }
}

fn read_error(error: &io::Error) -> Ended {
    match Revoked::is_in(error) {
        true => Ended::Revoked,
        false => Ended::Io(error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use control::ConnectionId;
    use control::inbox::InboxConfig;
    use openflow::DatapathId;
    use sched::PolicyMap;
    use tokio::sync::mpsc;

    use super::*;
    use crate::Notice;
    use crate::shared::{News, Work};
    use net::clock::Clock;
    use net::transport::memory;

    /// A panic frees the connection's place and its datapath id.
    #[tokio::test]
    async fn a_task_that_panics_says_that_its_connection_has_ended() {
        for has_been_up in [true, false] {
            let (notices, mut noticed) = mpsc::channel(8);
            let clock = Clock::start();
            let config = InboxConfig::default();
            let wait = Duration::from_secs(1);
            let policy = PolicyMap::auster();
            let shared = Arc::new(Shared::new(clock, config, policy, wait, notices));
            let line = Line::new(ConnectionId(3), memory(1).0.peer, None);
            shared.add(&line);
            line.facts().datapath_id = Some(DatapathId(7));
            line.facts().has_been_up = has_been_up;
            let farewell = Farewell {
                shared: shared.clone(),
                line: line.clone(),
                ticket: None,
                reason: None,
            };
            let task = tokio::spawn(async move {
                let _farewell = farewell;
                panic!("as a fault of ours would");
            });
            assert!(task.await.is_err());
            let mut work = VecDeque::new();
            let now = clock.now();
            shared.next(Some(now), &mut work);
            let Some(Work::News(News::Down(down))) = work.pop_front() else {
                panic!("nobody was told");
            };
            assert_eq!(down.reason, Ended::Panicked);
            assert_eq!(down.datapath_id, Some(DatapathId(7)));
            assert_eq!(down.is_untold, has_been_up);
            assert_eq!(shared.connection_count(), 0);
            assert_eq!(shared.ends().get("panicked"), Some(&1));
            let notice = noticed.try_recv().ok();
            assert_eq!(matches!(notice, Some(Notice::Down { .. })), !has_been_up);
        }
    }
}
