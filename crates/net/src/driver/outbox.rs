//! What the application has sent and the connection has not yet written.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    frames: VecDeque<Frame>,
    probe: bool,
    ended: Option<Ended>,
}

/// What the connection's task finds.
pub(super) enum Outgoing {
    Frame(Frame),
    Probe,
    End(Ended),
}

/// Bytes of frames that may wait for one connection.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;

impl Outbox {
    pub(super) fn push(&self, frame: Frame) {
        let mut queue = self.queue.lock().expect("no panic while it is held");
        if queue.ended.is_some() {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed) + frame.len();
        if bytes > OUTBOX_BYTES_MAX {
            queue.frames = VecDeque::new();
            queue.ended = Some(Ended::NotReading);
            self.bytes.store(0, Ordering::Relaxed);
        } else {
            queue.frames.push_back(frame);
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
        if let Some(frame) = queue.frames.pop_front() {
            self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
            if queue.frames.is_empty() {
                // A burst must not leave its room behind in every connection.
                queue.frames = VecDeque::new();
            }
            return Some(Outgoing::Frame(frame));
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
