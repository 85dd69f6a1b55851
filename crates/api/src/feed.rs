//! The events of `auster run`, for its API: one ring ([`ring`]) and its readers.
//!
//! Writers of events never wait for readers: readers take from the ring as many events as they can.

pub mod ring;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::watch;

use ring::{Missed, Numbered, Ring};

/// Event numbers reserved for each second. A process that starts later begins with greater numbers,
/// unless more events than this occurred in a second.
const PER_SECOND: u64 = 1 << 20;

#[derive(Clone)]
pub struct Feed(Arc<Shared>);

struct Shared {
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
}

/// Some events for a reader.
pub struct Batch {
    /// The events that follow, or the reason why they are missing.
    pub events: Result<Vec<Arc<Numbered>>, Missed>,
    /// The number of the last event in the feed.
    pub last: u64,
    /// The number before the first kept event. A reader with this number receives every kept event.
    pub before_first: u64,
    /// The total bytes of all events so far.
    pub end: u64,
}

impl Default for Feed {
    fn default() -> Feed {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = time.map_or(0, |time| time.as_secs()).max(1);
        Feed::from(seconds.saturating_mul(PER_SECOND))
    }
}

impl From<u64> for Feed {
    /// Makes a feed whose first event has the number after `base`, which is not 0.
    fn from(base: u64) -> Feed {
        Feed(Arc::new(Shared {
            ring: Mutex::new(Ring::new(base)),
            last: watch::channel(base).0,
        }))
    }
}

impl Feed {
    /// Numbers an event: a JSON object with its kind as `event`.
    pub fn push(&self, document: &Value) {
        let seq = self.ring().push(document);
        self.0.last.send_replace(seq);
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        self.ring().last()
    }

    /// Returns a receiver that changes with every event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.last.subscribe()
    }

    /// Returns the events after `since`, within the two limits; all kept events if `since` is 0.
    pub fn after(&self, since: u64, events_max: usize, bytes_max: usize) -> Batch {
        let ring = self.ring();
        let before_first = ring.before_first();
        let since = if since == 0 { before_first } else { since };
        Batch {
            events: ring.after(since, events_max, bytes_max),
            last: ring.last(),
            before_first,
            end: ring.end(),
        }
    }

    /// Returns the total bytes of all events so far, and of the kept events.
    pub fn bytes(&self) -> (u64, usize) {
        let ring = self.ring();
        (ring.end(), ring.bytes())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
