//! The state that readers of the API share: the event stream, one answer about the network, the
//! rates of ports, the places of streams, the relays, and the packets of taps.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, Semaphore};

use super::departures::Departures;
use super::live::Hub;
use super::rates::Rates;
use super::relays::Relays;
use super::stream::STREAMS_MAX;
use super::topology::Snapshot;
use crate::feed::Feed;
use crate::rings::Rings;

pub struct Reads {
    pub feed: Feed,
    /// The last answer. A request holds the lock while it asks, so that there is one question at a
    /// time.
    pub snapshot: Mutex<Option<Arc<Snapshot>>>,
    pub rates: Arc<Rates>,
    pub streams: Arc<Semaphore>,
    pub hub: Arc<Hub>,
    pub relays: Relays,
    pub taps: Arc<Rings>,
    pub departures: Departures,
    is_ready: AtomicBool,
}

impl Reads {
    pub fn new(feed: Feed, relays: Vec<PathBuf>, taps: Arc<Rings>) -> Arc<Reads> {
        Arc::new(Reads {
            feed,
            snapshot: Mutex::new(None),
            rates: Arc::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            hub: Arc::default(),
            relays: Relays::at(relays),
            taps,
            departures: Departures::default(),
            is_ready: AtomicBool::new(false),
        })
    }

    /// Notes that switches can connect.
    pub fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }
}
