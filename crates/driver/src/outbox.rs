//! Messages that the application has sent and the connection has not yet taken over.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use control::edge::EdgeUpdate;
use openflow::{Frame, MessageKind};

use super::Ended;

/// One connection's queue from the application thread to its task, bounded by the bytes in it. The
/// application itself bounds the messages that change a switch's state: it lets only so many wait
/// for its barriers. It sends packets whether or not a peer keeps up, so the queue drops them for a
/// slow peer, as a link would. A peer that lets the queue fill with anything else loses the
/// connection.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// The bytes that wait here, and those that the task has taken over but not put into its
    /// output.
    bytes: AtomicUsize,
    packet_outs_shed: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Outgoing>,
    orders: Orders,
}

/// An item in the application's order.
pub(super) enum Outgoing {
    Frame(Frame),
    Edge(EdgeUpdate),
}

/// Requests to the connection that write no message.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) probe: bool,
    /// Read nothing more.
    pub(super) hold: bool,
    /// Close when all messages pushed before have been written; at once for
    /// [`Ended::NotReading`].
    pub(super) end: Option<Ended>,
}

/// Bytes that may wait for one connection before packets are dropped.
const PACKETS_BYTES_MAX: usize = 2 << 20;

/// Bytes of messages that may wait for one connection.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;

impl Outgoing {
    /// The bytes that count against the bound: the contents, and the place in the queue. Updates
    /// for the edge other than packets are not messages, and there are no more of them than hosts.
    pub(super) fn bytes(&self) -> usize {
        let carried = match self {
            Outgoing::Frame(frame) => frame.len(),
            Outgoing::Edge(EdgeUpdate::Deliver(packet)) => packet.data.len(),
            Outgoing::Edge(_) => return 0,
        };
        carried + size_of::<Outgoing>()
    }
}

impl Outgoing {
    /// Whether this is only a packet that the switch is to forward.
    fn is_packet(&self) -> bool {
        match self {
            Outgoing::Frame(frame) => frame.kind() == MessageKind::PacketOut,
            Outgoing::Edge(update) => matches!(update, EdgeUpdate::Deliver(_)),
        }
    }
}

impl Outbox {
    pub(super) fn push(&self, outgoing: Outgoing) {
        let mut queue = self.queue();
        if queue.orders.end.is_some() {
            return;
        }
        if outgoing.is_packet() && self.bytes.load(Ordering::Relaxed) > PACKETS_BYTES_MAX {
            self.packet_outs_shed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let bytes = outgoing.bytes() + self.bytes.fetch_add(outgoing.bytes(), Ordering::Relaxed);
        queue.waiting.push_back(outgoing);
        if bytes > OUTBOX_BYTES_MAX {
            let dropped = queue.waiting.iter().map(Outgoing::bytes).sum();
            self.bytes.fetch_sub(dropped, Ordering::Relaxed);
            queue.waiting = VecDeque::new();
            queue.orders.end = Some(Ended::NotReading);
        }
    }

    pub(super) fn end(&self, reason: Ended) {
        self.queue().orders.end.get_or_insert(reason);
    }

    pub(super) fn probe(&self) {
        self.queue().orders.probe = true;
    }

    /// Whether a probe still waits for the task. The task takes it in its next turn.
    pub(super) fn has_probe(&self) -> bool {
        self.queue().orders.probe
    }

    pub(super) fn hold(&self) {
        self.queue().orders.hold = true;
    }

    /// Whether the order to read nothing more still waits for the task.
    pub(super) fn has_hold(&self) -> bool {
        self.queue().orders.hold
    }

    /// Moves everything to the end of `to`. The moved bytes count against the bound until
    /// [`Outbox::handle_sent`].
    pub(super) fn take(&self, to: &mut VecDeque<Outgoing>) -> Orders {
        let mut queue = self.queue();
        if to.is_empty() {
            std::mem::swap(to, &mut queue.waiting);
        } else {
            to.append(&mut queue.waiting);
        }
        Orders {
            probe: std::mem::take(&mut queue.orders.probe),
            hold: std::mem::take(&mut queue.orders.hold),
            end: queue.orders.end.clone(),
        }
    }

    /// Stops counting `bytes` of taken items, which are in the connection's output or carried out.
    pub(super) fn handle_sent(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` more: messages that follow from taken items.
    pub(super) fn handle_made(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn packet_outs_shed(&self) -> u64 {
        self.packet_outs_shed.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        super::lock(&self.queue)
    }
}
