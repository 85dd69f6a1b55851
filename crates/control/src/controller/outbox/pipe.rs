//! The messages of one switch: those sent to it, those it has confirmed, and those that wait until
//! it has confirmed more.
//!
//! The controller sends a switch at most [`WINDOW_BYTES`] of unconfirmed messages. Further messages
//! wait here, in order, so that neither a hundred thousand entries nor a slow switch fill the
//! connection's queue. A barrier confirms everything before it, so many changes share one. It is
//! sent when the caller has no more to send ([`Outbox::flush`]), and at the latest after
//! [`PORTION_BYTES`]. Packet-outs do not wait here: they change nothing.
//! Several messages can be one change ([`bundle`](super::bundle)): later messages wait for its end.

use std::collections::VecDeque;

use clock::Instant;
use openflow::{DatapathId, Frame, Message, Xid, encode};

use super::bundle::{Ability, Bundle};
use super::{ControllerOutput, Outbox, Request, Timer};

/// Maximum number of unconfirmed bytes of a switch: a quarter of the bound that ends a connection
/// that accepts nothing.
pub(super) const WINDOW_BYTES: usize = 512 << 10;

/// Maximum number of bytes that one barrier confirms, as long as more follow.
const PORTION_BYTES: usize = WINDOW_BYTES / 4;

/// Maximum number of barriers under way to one channel. Changes after the last of them share the
/// next.
const BARRIERS_MAX: usize = 16;

/// One switch's messages. Positions count all messages since the first, and changes by others.
#[derive(Default)]
pub(super) struct Pipe {
    pub(super) queue: VecDeque<Item>,
    /// The number of messages in the queue and in the change under construction.
    pub(super) queued: usize,
    /// The messages of the change under construction.
    pub(super) change: Vec<Queued>,
    /// The bundle under way. The queue waits behind it.
    pub(super) bundle: Option<Bundle>,
    pub(super) ability: Ability,
    /// Whether a refusal of bundles was reported on this connection.
    pub(super) is_refusal_known: bool,
    pushed: u64,
    /// The position that the last barrier follows, and the position of the last answered barrier.
    fenced: u64,
    confirmed: u64,
    unfenced_bytes: usize,
    unconfirmed_bytes: usize,
    barriers: VecDeque<Barrier>,
    /// Updates, each with the position that it waits for, in order.
    waiting: VecDeque<(u64, u64)>,
    is_touched: bool,
    /// The time for which a timer is set.
    pub timer_at: Option<Instant>,
}

pub(super) enum Item {
    Message(Queued),
    /// Messages that take effect together, on a switch that supports bundles.
    Change(Vec<Queued>),
}

impl Item {
    fn position(&self) -> Option<u64> {
        match self {
            Item::Message(queued) => Some(queued.position),
            Item::Change(members) => members.first().map(|first| first.position),
        }
    }
}

pub(super) struct Queued {
    pub position: u64,
    pub frame: Frame,
    /// The request of this message. The wait for its reply begins when the message is written.
    request: Option<Xid>,
}

struct Barrier {
    xid: Xid,
    deadline: Instant,
    position: u64,
    bytes: usize,
}

impl Pipe {
    /// The position of the last message that was written and takes effect without further messages.
    fn written(&self) -> u64 {
        let bundle = self.bundle.as_ref().map(Bundle::position);
        let next = bundle.or_else(|| self.queue.front().and_then(Item::position));
        let next = next.or_else(|| self.change.first().map(|first| first.position));
        next.map_or(self.pushed, |next| next.saturating_sub(1))
    }

    /// The bytes that may be written now.
    pub(super) fn room(&self) -> usize {
        match self.unconfirmed_bytes {
            0 => usize::MAX,
            bytes => WINDOW_BYTES.saturating_sub(bytes),
        }
    }

    fn may_ask(&self) -> bool {
        self.barriers.len() < BARRIERS_MAX
    }

    /// Whether an update waits for written messages that have no barrier behind them.
    fn is_awaited(&self) -> bool {
        let covered = self.waiting.partition_point(|(at, _)| *at <= self.fenced);
        let next = self.waiting.get(covered);
        next.is_some_and(|(at, _)| *at <= self.written())
    }

    fn wants_barrier(&self) -> bool {
        let is_behind = self.backlog() > self.waiting.len() && self.barriers.is_empty();
        self.may_ask() && (self.is_awaited() || (is_behind && self.unfenced_bytes > 0))
    }

    /// The number of messages and updates that wait for the channel.
    pub(in crate::controller) fn backlog(&self) -> usize {
        let of_bundle = self.bundle.as_ref().map_or(0, Bundle::left);
        self.queued + of_bundle + self.waiting.len()
    }

    /// Ends the barrier of this xid and those before it. Returns the updates that waited for them;
    /// `None` if there is no such barrier.
    fn finish(&mut self, xid: Xid) -> Option<Vec<u64>> {
        let at = self.barriers.iter().position(|b| b.xid == xid)?;
        for barrier in self.barriers.drain(..=at) {
            self.confirmed = barrier.position;
            self.unconfirmed_bytes -= barrier.bytes;
        }
        let count = self.waiting.partition_point(|(p, _)| *p <= self.confirmed);
        let passed = self.waiting.drain(..count);
        Some(passed.map(|(_, update)| update).collect())
    }

    pub(in crate::controller) fn poll_timeout(&self) -> Option<Instant> {
        self.barriers.front().map(|barrier| barrier.deadline)
    }

    /// The first barrier that was not answered in time.
    fn late(&self, now: Instant) -> Option<Xid> {
        let oldest = self.barriers.front()?;
        (oldest.deadline <= now).then_some(oldest.xid)
    }
}

impl Outbox {
    /// Writes a message, or queues it behind those that wait. `is_member`: it is part of a change.
    pub(in crate::controller) fn push(
        &mut self,
        dpid: DatapathId,
        frame: Frame,
        (request, is_member): (Option<Xid>, bool),
    ) {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return;
        };
        let pipe = &mut channel.pipe;
        pipe.pushed += 1;
        pipe.queued += 1;
        let queued = Queued {
            position: pipe.pushed,
            frame,
            request,
        };
        if is_member {
            if pipe.change.is_empty() {
                self.changing.push(dpid);
            }
            pipe.take_member(queued);
        } else {
            let is_first = pipe.queue.is_empty();
            pipe.seal();
            pipe.queue.push_back(Item::Message(queued));
            if is_first {
                self.write(dpid);
            }
        }
        self.touch(dpid);
    }

    /// Writes the messages for which the window has room.
    fn write(&mut self, dpid: DatapathId) {
        while self.write_next(dpid) {}
    }

    /// Writes the next message. Returns whether another one may follow.
    fn write_next(&mut self, dpid: DatapathId) -> bool {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return false;
        };
        let pipe = &mut channel.pipe;
        if channel.connection.is_none() {
            return false;
        }
        if pipe.bundle.is_some() {
            return self.write_bundle(dpid);
        }
        match pipe.queue.pop_front() {
            Some(Item::Message(next)) if next.frame.len() <= pipe.room() => {
                pipe.queued -= 1;
                if let Some(xid) = next.request {
                    channel.requests.handle_written(self.now, xid);
                }
                self.put(dpid, next.frame);
                if next.request.is_some() {
                    self.watch_requests(dpid);
                }
                true
            }
            Some(Item::Change(members)) => {
                pipe.queued -= members.len();
                self.open_bundle(dpid, members);
                true
            }
            Some(item) => {
                pipe.queue.push_front(item);
                false
            }
            None => false,
        }
    }

    /// Writes a message, and a barrier after a full portion.
    pub(super) fn put(&mut self, dpid: DatapathId, frame: Frame) {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return;
        };
        let Some(connection) = channel.connection else {
            return;
        };
        let pipe = &mut channel.pipe;
        pipe.unconfirmed_bytes += frame.len();
        pipe.unfenced_bytes += frame.len();
        let is_portion = pipe.unfenced_bytes >= PORTION_BYTES && pipe.may_ask();
        self.outputs
            .push_back(ControllerOutput::Send { connection, frame });
        if is_portion {
            self.send_barrier(dpid);
        }
    }

    /// Sends a barrier. Returns its xid if it could be sent.
    pub(super) fn send_barrier(&mut self, dpid: DatapathId) -> Option<Xid> {
        let channel = self.channels.get_mut(&dpid)?;
        let connection = channel.connection?;
        let xid = channel.requests.next_xid();
        let frame = encode(channel.version, xid, &Message::BarrierRequest).ok()?;
        let pipe = &mut channel.pipe;
        pipe.fenced = pipe.written();
        pipe.barriers.push_back(Barrier {
            xid,
            deadline: self.now + self.request_timeout,
            position: pipe.fenced,
            bytes: std::mem::take(&mut pipe.unfenced_bytes),
        });
        self.outputs
            .push_back(ControllerOutput::Send { connection, frame });
        self.watch_requests(dpid);
        Some(xid)
    }

    /// Sets the one timer for all outstanding requests of a channel.
    pub(in crate::controller) fn watch_requests(&mut self, dpid: DatapathId) {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return;
        };
        let deadlines = [channel.requests.poll_timeout(), channel.pipe.poll_timeout()];
        let due = deadlines.into_iter().flatten().min();
        let pipe = &mut channel.pipe;
        if let Some(due) = due
            && pipe.timer_at.is_none_or(|set| due < set)
        {
            pipe.timer_at = Some(due);
            self.timer(due, Timer::Requests(dpid));
        }
    }

    /// Ends the late requests of a switch, and returns them.
    pub(in crate::controller) fn late_requests(
        &mut self,
        now: Instant,
        dpid: DatapathId,
    ) -> Vec<Request> {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return Vec::new();
        };
        if channel.pipe.timer_at.is_some_and(|set| set <= now) {
            channel.pipe.timer_at = None;
        }
        channel.requests.handle_timeout(now)
    }

    /// The first barrier of a switch that was not answered in time.
    pub(in crate::controller) fn late_barrier(
        &self,
        now: Instant,
        dpid: DatapathId,
    ) -> Option<Xid> {
        self.channels.get(&dpid)?.pipe.late(now)
    }

    pub(in crate::controller) fn touch(&mut self, dpid: DatapathId) {
        if let Some(channel) = self.channels.get_mut(&dpid)
            && !std::mem::replace(&mut channel.pipe.is_touched, true)
        {
            self.touched.push(dpid);
        }
    }

    /// Writes the messages that waited for more messages, and the barriers: the caller has no more
    /// to send for now.
    pub(in crate::controller) fn flush(&mut self) {
        self.seal_all();
        for dpid in std::mem::take(&mut self.touched) {
            self.write(dpid);
            let Some(channel) = self.channels.get_mut(&dpid) else {
                continue;
            };
            channel.pipe.is_touched = false;
            if channel.pipe.wants_barrier() {
                self.send_barrier(dpid);
            }
        }
    }

    /// Makes an update wait until the switch has confirmed all messages pushed before. Returns
    /// false if the switch has confirmed them, or is not connected. `anew`: someone else has
    /// changed it too.
    pub(in crate::controller) fn wait_for(
        &mut self,
        dpid: DatapathId,
        update: u64,
        anew: bool,
    ) -> bool {
        let channel = self.channels.get_mut(&dpid);
        let Some(channel) = channel.filter(|channel| channel.connection.is_some()) else {
            return false;
        };
        let pipe = &mut channel.pipe;
        pipe.pushed += u64::from(anew);
        if pipe.pushed == pipe.confirmed {
            return false;
        }
        pipe.waiting.push_back((pipe.pushed, update));
        self.touch(dpid);
        true
    }

    /// Ends the barrier `xid`. Returns the updates that waited for it; `None` if there is no such
    /// barrier.
    pub(in crate::controller) fn finish_barrier(
        &mut self,
        dpid: DatapathId,
        xid: Xid,
    ) -> Option<Vec<u64>> {
        self.channels.get_mut(&dpid)?.pipe.finish(xid)
    }

    /// Drops everything that waited for a connection that has ended: the switch's entries are
    /// compared when it reconnects. Returns the updates that waited; `None` if there is no channel.
    pub(in crate::controller) fn drop_pipe(&mut self, dpid: DatapathId) -> Option<Vec<u64>> {
        let channel = self.channels.get_mut(&dpid)?;
        let pipe = std::mem::take(&mut channel.pipe);
        channel.pipe.is_touched = pipe.is_touched;
        channel.pipe.timer_at = pipe.timer_at;
        channel.pipe.ability = match pipe.ability {
            Ability::Silent => Ability::Silent,
            // The switch may close whenever it receives a bundle: the next connection uses none.
            _ if pipe.bundle.is_some() => Ability::Unable,
            _ => Ability::Unknown,
        };
        Some(pipe.waiting.into_iter().map(|(_, update)| update).collect())
    }

    /// Whether `max` or more messages and updates wait for a switch to confirm others.
    pub(in crate::controller) fn is_behind(&self, dpid: DatapathId, max: usize) -> bool {
        let channel = self.channels.get(&dpid);
        channel.is_some_and(|channel| channel.pipe.backlog() >= max)
    }
}
