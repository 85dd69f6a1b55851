//! The events of `auster run`, for its API: one ring ([`super::ring`]) and its readers.
//!
//! Whoever has an event never waits for a reader: readers take from the ring what they can.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::watch;

use super::ring::{Missed, Numbered, Ring};

/// Numbers of one second, as far as the numbers of two processes are concerned: a process that
/// starts later begins with greater ones, unless there were more events in a second than that.
const PER_SECOND: u64 = 1 << 20;

#[derive(Clone)]
pub struct Feed(Arc<Shared>);

struct Shared {
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
}

/// Some events for a reader.
pub struct Batch {
    /// The events that follow, or the reason why they are not there.
    pub events: Result<Vec<Arc<Numbered>>, Missed>,
    /// The number of the last event of all.
    pub last: u64,
    /// A reader with this number gets every event that is kept.
    pub before_first: u64,
    /// The bytes of all events that there ever were.
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
    /// The first event gets the number behind this one, which is not 0.
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

    /// Changes with every event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.last.subscribe()
    }

    /// At most so many of the events behind `since`; all that are kept if that is 0.
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

    /// The bytes of all events that there ever were, and of those that are kept.
    pub fn bytes(&self) -> (u64, usize) {
        let ring = self.ring();
        (ring.end(), ring.bytes())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
