//! Records that are sent a second time, by datagram and a little later. One lost packet, or a few
//! lost together, then delay nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quinn::SendDatagramError;
use relay::{CopiedRecord, CopyCounters};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The delay of a copy. Sent at once, it would be in the same packet as the original.
const COPY_DELAY: Duration = Duration::from_millis(2);
/// Maximum number of copies that wait to be sent.
const WAITING_MAX: usize = 1024;

/// Copy counters of one end, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStatus {
    pub sent: u64,
    /// Copies longer than a datagram may be.
    pub too_long: u64,
    /// Copies dropped because too many waited, or because the path takes no more: its room is for
    /// the originals.
    pub overflowed: u64,
    /// Copies dropped because the other relay accepts none, or is disconnected.
    pub unwanted: u64,
    /// Copies from the other relay.
    pub came: CopyCounters,
}

/// Sends copies when they are due.
pub(super) struct Copier {
    queue: mpsc::Sender<Later>,
    counting: Arc<Counting>,
}

#[derive(Default)]
struct Counting {
    sent: AtomicU64,
    too_long: AtomicU64,
    overflowed: AtomicU64,
    unwanted: AtomicU64,
}

struct Later {
    at: Instant,
    connection: quinn::Connection,
    datagram: Bytes,
}

impl Copier {
    pub fn new() -> Copier {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let counting = Arc::new(Counting::default());
        tokio::spawn(send(waiting, counting.clone()));
        Copier { queue, counting }
    }

    pub fn copy(&self, connection: &quinn::Connection, copies: Vec<CopiedRecord>) {
        let at = Instant::now() + COPY_DELAY;
        for copy in copies {
            let later = Later {
                at,
                connection: connection.clone(),
                datagram: copy.encode(),
            };
            if self.queue.try_send(later).is_err() {
                self.counting.overflowed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub fn status(&self, came: CopyCounters) -> CopyStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CopyStatus {
            sent: read(&self.counting.sent),
            too_long: read(&self.counting.too_long),
            overflowed: read(&self.counting.overflowed),
            unwanted: read(&self.counting.unwanted),
            came,
        }
    }
}

/// Sends as many of `records` as may go at once, the first ones first, and returns how many. The
/// rest go by their lanes.
pub(super) fn send_early(connection: &quinn::Connection, records: &[CopiedRecord]) -> usize {
    for (sent, record) in records.iter().enumerate() {
        let datagram = record.encode();
        let len = datagram.len();
        // quinn would drop an earlier datagram for it.
        if connection.datagram_send_buffer_space() < len {
            return sent;
        }
        // A record that is too long makes the records behind it in its lane wait for it.
        let _ = connection.send_datagram(datagram);
    }
    records.len()
}

async fn send(mut waiting: mpsc::Receiver<Later>, counting: Arc<Counting>) {
    while let Some(later) = waiting.recv().await {
        sleep_until(later.at).await;
        let Later {
            connection,
            datagram,
            ..
        } = later;
        let len = datagram.len();
        let counter = match connection.max_datagram_size() {
            None => &counting.unwanted,
            Some(len_max) if len > len_max => &counting.too_long,
            // quinn would drop an earlier datagram for it without an error.
            _ if connection.datagram_send_buffer_space() < len => &counting.overflowed,
            _ => match connection.send_datagram(datagram) {
                Ok(()) => &counting.sent,
                Err(SendDatagramError::TooLarge) => &counting.too_long,
                Err(_) => continue,
            },
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
