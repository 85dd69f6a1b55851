//! What the application has sent and the connection has not yet written.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use control::edge::EdgeUpdate;
use openflow::Frame;
use tokio::sync::Notify;

use super::Ended;

/// One connection's queue from the application thread to its task. Bounded by the bytes in it: a
/// peer that lets it fill does not read, and loses the connection.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    bytes: AtomicUsize,
    changed: Notify,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    probe: bool,
    ended: Option<Ended>,
}

/// In one queue, so that what an edge says keeps its place among what the application says.
enum Item {
    Frame(Frame),
    Edge(EdgeUpdate),
}

impl Item {
    fn bytes(&self) -> usize {
        let carried = match self {
            Item::Frame(frame) => frame.len(),
            Item::Edge(EdgeUpdate::Deliver(packet)) => packet.data.len(),
            Item::Edge(_) => 0,
        };
        carried + size_of::<Item>()
    }
}

/// What the connection's task finds.
pub(super) enum Outgoing {
    Frame(Frame),
    Edge(EdgeUpdate),
    Probe,
    End(Ended),
}

/// Bytes of frames that may wait for one connection.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;

impl Outbox {
    pub(super) fn push(&self, frame: Frame) {
        self.push_item(Item::Frame(frame));
    }

    pub(super) fn tell_edge(&self, update: EdgeUpdate) {
        self.push_item(Item::Edge(update));
    }

    fn push_item(&self, item: Item) {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        if queue.ended.is_some() {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed) + item.bytes();
        if bytes > OUTBOX_BYTES_MAX {
            queue.items = VecDeque::new();
            queue.ended = Some(Ended::NotReading);
            self.bytes.store(0, Ordering::Relaxed);
        } else {
            queue.items.push_back(item);
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Ends the connection when what was pushed before has been written.
    pub(super) fn end(&self, reason: Ended) {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        queue.ended.get_or_insert(reason);
        drop(queue);
        self.changed.notify_one();
    }

    pub(super) fn probe(&self) {
        self.queue.lock().expect("no panic while it is held").probe = true;
        self.changed.notify_one();
    }

    pub(super) fn pop(&self) -> Option<Outgoing> {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        if std::mem::take(&mut queue.probe) {
            return Some(Outgoing::Probe);
        }
        if let Some(item) = queue.items.pop_front() {
            self.bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
            if queue.items.is_empty() {
                // A burst must not leave its room behind in every connection.
                queue.items = VecDeque::new();
            }
            return Some(match item {
                Item::Frame(frame) => Outgoing::Frame(frame),
                Item::Edge(update) => Outgoing::Edge(update),
            });
        }
        queue.ended.clone().map(Outgoing::End)
    }

    /// The peer has let it fill: nothing that waits will be written.
    pub(super) fn has_overflowed(&self) -> bool {
        let queue = self.queue.lock().expect("no panic while it is held");
        queue.ended == Some(Ended::NotReading)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Resolves when there is something new to pop. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
