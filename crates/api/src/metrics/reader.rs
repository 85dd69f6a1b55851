//! Counters that switches are asked for at a scrape.
//!
//! | what | bound |
//! | --- | --- |
//! | rows of a reading | [`ROWS_MAX`] |
//! | readings at one time | one of a kind; a scrape within [`FRESH_FOR`] gets the last one |
//! | time of a reading | [`READ_MAX`]; rows not read by then are missing in this scrape |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::Instant;
use control::clustered::Clustered;
use driver::Driver;
use net::clock::Clock;
use openflow::DatapathId;
use tokio::time::timeout;

use crate::{counters, lock};

/// Prometheus waits 10 s for a scrape, unless it is configured otherwise.
const READ_MAX: Duration = Duration::from_secs(5);
const FRESH_FOR: Duration = Duration::from_secs(1);
/// The limit, whatever is configured.
const ROWS_MAX: usize = 262_144;

/// A row that is kept.
pub trait Counted: counters::Row {
    /// The place that the row counts for.
    type Key: Ord + Send + Sync + 'static;
    type Counts: Send + Sync + 'static;

    /// `None` for a row that is left out.
    fn count(&self, dpid: DatapathId) -> Option<(Self::Key, Self::Counts)>;
}

/// All rows of a reading.
pub type Counters<R> = BTreeMap<<R as Counted>::Key, <R as Counted>::Counts>;

/// A reading, and when it ended.
type Reading<R> = (Instant, Arc<Counters<R>>);

/// The last reading. A caller holds the lock while it asks, so there is one question at a time.
pub struct Reader<R: Counted>(Arc<tokio::sync::Mutex<Option<Reading<R>>>>);

impl<R: Counted> Default for Reader<R> {
    fn default() -> Reader<R> {
        Reader(Arc::default())
    }
}

impl<R: Counted> Clone for Reader<R> {
    fn clone(&self) -> Reader<R> {
        Reader(self.0.clone())
    }
}

impl<R: Counted> Reader<R> {
    pub async fn read(&self, driver: &Arc<Driver<Clustered>>, clock: Clock) -> Arc<Counters<R>> {
        let mut last = self.0.lock().await;
        if let Some((at, counters)) = &*last
            && clock.now().since(*at) < FRESH_FOR
        {
            return counters.clone();
        }
        let found: Arc<Mutex<Counters<R>>> = Arc::default();
        let notes = found.clone();
        let note = move |_: Instant, dpid: DatapathId, rows: &[R]| {
            let mut found = lock(&notes);
            let room = ROWS_MAX.saturating_sub(found.len());
            let counted = rows.iter().filter_map(|row| row.count(dpid));
            found.extend(counted.take(room));
        };
        let _ = timeout(READ_MAX, counters::read_all(driver, clock, note)).await;
        let counters = Arc::new(std::mem::take(&mut *lock(&found)));
        *last = Some((clock.now(), counters.clone()));
        counters
    }
}
