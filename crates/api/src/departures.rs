//! Departed applications: their taps, static entries, groups and meters are removed, if they asked
//! for it.
//!
//! An application is present as long as a stream of its packets is read. An application that hangs
//! is cut off like any reader that reads nothing, and has departed then.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::flows::parts::PartKind;
use tokio::time::{Instant, sleep, sleep_until};

use super::Api;
use super::problem::Problem;
use crate::lock;

/// The time to reconnect: a network fails for a moment, or a program is restarted.
pub const BACK_WITHIN: Duration = Duration::from_secs(10);

/// For each owner, the time at which its last stream that asked for removal ended. One task waits
/// for each owner.
#[derive(Clone, Default)]
pub struct Departures(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Departures {
    /// Notes that a stream has ended. Returns whether no task waits for this owner yet.
    fn note(&self, owner: &str, now: Instant) -> bool {
        match lock(&self.0).entry(owner.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
            Entry::Occupied(mut entry) => {
                entry.insert(now);
                false
            }
        }
    }

    /// The time at which an owner departs unless it reconnects; `None` from that time on.
    fn due(&self, owner: &str, now: Instant) -> Option<Instant> {
        let mut all = lock(&self.0);
        let due = *all.get(owner)? + BACK_WITHIN;
        if due <= now {
            all.remove(owner);
            return None;
        }
        Some(due)
    }
}

impl Api {
    /// Handles the end of a packet stream that asked for the removal of all that its owner has.
    pub fn depart(&self, owner: String) {
        if !self.reads.departures.note(&owner, Instant::now()) {
            return;
        }
        let api = self.clone();
        tokio::spawn(async move {
            while let Some(due) = api.reads.departures.due(&owner, Instant::now()) {
                sleep_until(due).await;
            }
            while !api.reads.taps.is_read(&owner) {
                match api.remove_owner(&owner).await {
                    Ok((flows, taps)) => {
                        return tracing::info!(
                            "{owner} is gone: removed {flows} static entries and {taps} taps"
                        );
                    }
                    Err(problem) => tracing::warn!(
                        "{owner} is gone, and its static entries are still there: {}",
                        problem.detail
                    ),
                }
                sleep(BACK_WITHIN).await;
            }
        });
    }

    /// Removes all that an owner has. Returns the numbers of its static entries and taps.
    async fn remove_owner(&self, owner: &str) -> Result<(usize, usize), Problem> {
        let taps = self.remove_taps(owner).await?;
        let flows = self.flow_names(owner).await?;
        let count = flows.len();
        super::entries::delete_all(self, flows).await?;
        let mut parts = BTreeSet::new();
        for kind in [PartKind::Group, PartKind::Meter] {
            let of_kind = self.parts(kind).await?.into_iter().map(|part| part.name);
            parts.extend(of_kind.filter(|name| name.of.owner == owner));
        }
        self.delete_parts(parts).await?;
        Ok((count, taps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_gone_ten_seconds_after_its_last_stream_and_one_task_waits() {
        let (departures, begin) = (Departures::default(), Instant::now());
        let later = |seconds| begin + Duration::from_secs(seconds);
        assert!(departures.note("a", begin));
        assert!(!departures.note("a", later(4)), "somebody waits");
        assert!(departures.note("b", later(4)));
        assert_eq!(departures.due("a", later(10)), Some(later(14)));
        assert_eq!(departures.due("a", later(14)), None);
        assert!(departures.note("a", later(15)), "nobody waits any more");
    }
}
