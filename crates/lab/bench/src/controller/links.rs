//! The traffic from one emulated switch to another: frames over the links between them, and the
//! notice that a packet has arrived. The switches may belong to different threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The most crossings in flight at once for one thread: more than its switches may have waiting.
const UNDER_WAY_MAX: usize = 1 << 17;

pub struct Crossing {
    /// The switch that receives the crossing.
    pub to: u16,
    pub what: Crosses,
}

pub enum Crosses {
    /// A frame that arrives at this port.
    Frame { port: u32, data: Bytes },
    /// A packet of that switch has come out at its destination.
    Delivered {
        at_ns: u64,
        tag: u32,
        eth_src: u64,
        eth_dst: u64,
    },
}

/// A queue to each thread of a run.
pub struct Links {
    senders: Vec<Sender<Crossing>>,
    receivers: Vec<Mutex<Option<Receiver<Crossing>>>>,
    frames: AtomicU64,
    dropped: AtomicU64,
    unconnected: AtomicU64,
}

/// Counts over the whole run, setting up included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Carried {
    pub frames: u64,
    /// Frames and arrival notices that the bench had no place for.
    pub dropped: u64,
    /// Frames to a switch that was not connected yet, or no longer.
    pub unconnected: u64,
}

impl Links {
    pub fn new(thread_count: usize) -> Links {
        let (senders, receivers) = (0..thread_count)
            .map(|_| {
                let (sender, receiver) = channel(UNDER_WAY_MAX);
                (sender, Mutex::new(Some(receiver)))
            })
            .unzip();
        Links {
            senders,
            receivers,
            frames: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unconnected: AtomicU64::new(0),
        }
    }

    /// Sends a crossing to the thread of its switch.
    pub fn send(&self, crossing: Crossing) {
        let thread = usize::from(crossing.to) % self.senders.len();
        let is_frame = matches!(crossing.what, Crosses::Frame { .. });
        match self.senders[thread].try_send(crossing) {
            Ok(()) if is_frame => self.frames.fetch_add(1, Ordering::Relaxed),
            Ok(()) => 0,
            Err(TrySendError::Full(_)) => self.note_dropped(),
            // The threads of a run do not end at the same instant.
            Err(TrySendError::Closed(_)) => self.note_unconnected(),
        };
    }

    pub fn note_dropped(&self) -> u64 {
        self.dropped.fetch_add(1, Ordering::Relaxed)
    }

    pub fn note_unconnected(&self) -> u64 {
        self.unconnected.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the receiver of a thread's crossings, to its first caller only.
    pub fn receiver(&self, thread: usize) -> Option<Receiver<Crossing>> {
        let mut receiver = self.receivers[thread]
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        receiver.take()
    }

    pub fn carried(&self) -> Carried {
        Carried {
            frames: self.frames.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            unconnected: self.unconnected.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_comes_to_the_thread_of_its_switch_and_too_much_is_counted() {
        let links = Links::new(2);
        let frame = |to| Crossing {
            to,
            what: Crosses::Frame {
                port: 5,
                data: Bytes::new(),
            },
        };
        let mut receiver = links.receiver(1).unwrap();
        assert!(links.receiver(1).is_none());
        links.send(frame(4));
        links.send(frame(7));
        assert_eq!(
            receiver.try_recv().ok().map(|crossing| crossing.to),
            Some(7)
        );
        assert!(receiver.try_recv().is_err());
        for _ in 0..UNDER_WAY_MAX + 2 {
            links.send(frame(3));
        }
        let carried = links.carried();
        assert_eq!(carried.frames as usize, UNDER_WAY_MAX + 2);
        assert_eq!(carried.dropped, 2);
        drop(receiver);
        links.send(frame(3));
        let after = links.carried();
        assert_eq!((after.dropped, after.unconnected), (2, 1));
    }
}
