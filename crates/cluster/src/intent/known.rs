//! A copy of the store's documents, without I/O. It follows full reads, single changes, and the
//! writes of this process, which may be ahead of both.
//!
//! Revisions of the store order all changes. Documents that a restored store has lost stay for a
//! while: see [`Known::read`].

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};

/// How long documents stay after a restored store has lost them.
pub const MISSING_MAX: Duration = Duration::from_secs(600);

/// A document, and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doc<T> {
    pub revision: u64,
    pub value: T,
}

/// Everything that the store has at one revision.
#[derive(Clone, Debug)]
pub struct Read<T> {
    pub cluster_id: u64,
    pub revision: u64,
    /// [`Known::revision`] when the read was sent. A store that answers with an earlier revision
    /// has lost data.
    pub floor: u64,
    pub docs: BTreeMap<String, Doc<T>>,
}

/// Documents by key. Keys are any text.
#[derive(Clone, Debug)]
pub struct Known<T> {
    docs: BTreeMap<String, Doc<T>>,
    /// Documents that a restored store has lost, with the time until which they stay.
    missing: BTreeMap<String, (Doc<T>, Instant)>,
    /// Keys that this process has deleted, with the revisions: a read may be older.
    deleted: BTreeMap<String, u64>,
    cluster_id: Option<u64>,
    revision: u64,
    /// The number of full reads that found a difference no change had reported.
    pub repaired: u64,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known {
            docs: BTreeMap::new(),
            missing: BTreeMap::new(),
            deleted: BTreeMap::new(),
            cluster_id: None,
            revision: 0,
            repaired: 0,
        }
    }
}

impl<T> Known<T> {
    /// Returns the latest revision that this copy has received.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A document as the store has it.
    pub fn get(&self, key: &str) -> Option<&Doc<T>> {
        self.docs.get(key)
    }

    /// A document of the store, or one that it has lost and that stays.
    pub fn wanted(&self, key: &str) -> Option<&Doc<T>> {
        let missing = self.missing.get(key).map(|(doc, _)| doc);
        self.docs.get(key).or(missing)
    }

    /// Iterates over all documents that [`Known::wanted`] finds.
    pub fn all_wanted(&self) -> impl Iterator<Item = (&String, &Doc<T>)> {
        let missing = self.missing.iter().map(|(key, (doc, _))| (key, doc));
        self.docs.iter().chain(missing)
    }

    pub fn is_missing(&self, key: &str) -> bool {
        self.missing.contains_key(key)
    }

    pub fn missing(&self) -> impl Iterator<Item = &String> {
        self.missing.keys()
    }

    /// Applies a full read. Returns the keys whose documents changed.
    ///
    /// A different store, or one behind its earlier revision, was restored from a backup. Its lost
    /// documents are not removed at once: they stay for [`MISSING_MAX`] as missing, unless somebody
    /// writes or deletes them.
    pub fn read(&mut self, now: Instant, read: Read<T>) -> BTreeSet<String> {
        let is_first = self.cluster_id.is_none();
        let is_other = self.cluster_id.is_some_and(|id| id != read.cluster_id);
        let is_restored = !is_first && (is_other || read.revision < read.floor);
        let mut changed = BTreeSet::new();
        let mut is_repaired = false;
        if is_restored {
            self.deleted.clear();
            self.revision = read.revision;
        }
        let known: Vec<String> = self.docs.keys().cloned().collect();
        for key in known {
            let is_newer = self.docs[&key].revision > read.revision;
            if read.docs.contains_key(&key) || (is_newer && !is_restored) {
                continue;
            }
            if let Some(doc) = self.docs.remove(&key) {
                match is_restored {
                    // The document stays, so nothing changed.
                    true => drop(self.missing.insert(key, (doc, now + MISSING_MAX))),
                    false => {
                        is_repaired = true;
                        changed.insert(key);
                    }
                }
            }
        }
        for (key, doc) in read.docs {
            let known = self.docs.get(&key).map_or(0, |known| known.revision);
            let deleted = self.deleted.get(&key).copied().unwrap_or(0);
            let is_new = known < doc.revision && deleted < doc.revision;
            // A restored store counts its revisions anew.
            if is_new || is_restored {
                is_repaired = true;
                self.missing.remove(&key);
                self.docs.insert(key.clone(), doc);
                changed.insert(key);
            }
        }
        self.deleted.retain(|_, revision| *revision > read.revision);
        self.repaired += u64::from(is_repaired && !is_first && !is_restored);
        self.revision = self.revision.max(read.revision);
        self.cluster_id = Some(read.cluster_id);
        changed
    }

    /// Applies one change of the store; a `value` of `None` is a deletion. Returns whether the
    /// document changed.
    pub fn change(&mut self, key: &str, revision: u64, value: Option<T>) -> bool {
        self.revision = self.revision.max(revision);
        let known = self.docs.get(key).map_or(0, |doc| doc.revision);
        let deleted = self.deleted.get(key).copied().unwrap_or(0);
        if revision <= known.max(deleted) {
            return false;
        }
        let was_missing = self.missing.remove(key).is_some();
        match value {
            Some(value) => {
                self.docs.insert(key.to_owned(), Doc { revision, value });
                true
            }
            None => self.docs.remove(key).is_some() || was_missing,
        }
    }

    /// Applies a write of this process, which the store has confirmed.
    pub fn wrote(&mut self, key: &str, revision: u64, value: Option<T>) {
        let is_deleted = value.is_none();
        self.change(key, revision, value);
        match is_deleted {
            true => self.deleted.insert(key.to_owned(), revision),
            false => self.deleted.remove(key),
        };
    }

    /// Gives up missing documents whose time is over, and returns their keys.
    pub fn expire(&mut self, now: Instant) -> BTreeSet<String> {
        let over = self.missing.iter().filter(|(_, (_, until))| *until <= now);
        let over: BTreeSet<String> = over.map(|(key, _)| key.clone()).collect();
        self.missing.retain(|key, _| !over.contains(key));
        over
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEYS: [&str; 3] = ["a", "b", "c"];
    const NOW: Instant = Instant::START;

    /// A store as a list of its changes. The revision of a change is its place, from 1.
    type History = Vec<(usize, Option<u8>)>;

    fn state(history: &History, revision: usize) -> BTreeMap<String, Doc<u8>> {
        let mut docs = BTreeMap::new();
        for (n, (key, value)) in history[..revision].iter().enumerate() {
            let key = KEYS[*key].to_owned();
            match value {
                Some(value) => drop(docs.insert(
                    key,
                    Doc {
                        revision: n as u64 + 1,
                        value: *value,
                    },
                )),
                None => drop(docs.remove(&key)),
            }
        }
        docs
    }

    fn read(history: &History, revision: usize, floor: u64) -> Read<u8> {
        Read {
            cluster_id: 1,
            revision: revision as u64,
            floor,
            docs: state(history, revision),
        }
    }

    fn histories() -> impl Strategy<Value = History> {
        proptest::collection::vec((0..KEYS.len(), any::<Option<u8>>()), 1..40)
    }

    proptest! {
        /// Reads, changes that arrive twice or after a newer read, and own writes ahead of both: in
        /// the end the copy equals the store, and no document counts as lost.
        #[test]
        fn whatever_comes_first_the_copy_is_the_store(
            history in histories(),
            steps in proptest::collection::vec((0..4u8, 0..4usize), 0..80),
        ) {
            let mut known = Known::default();
            // The revision up to which the watch has reported, and that of the store.
            let (mut watched, mut written) = (0_usize, 0_usize);
            let take = |known: &mut Known<u8>, n: usize| {
                let (key, value) = history[n];
                known.change(KEYS[key], n as u64 + 1, value);
            };
            known.read(NOW, read(&history, 0, 0));
            for (step, by) in steps {
                match step {
                    // Others write.
                    0 => written = (written + by).min(history.len()),
                    // This process writes, once it knows all of the store.
                    1 if written < history.len() && known.revision() == written as u64 => {
                        let (key, value) = history[written];
                        written += 1;
                        known.wrote(KEYS[key], written as u64, value);
                    }
                    // The watch, which may repeat itself.
                    2 => {
                        let from = watched.saturating_sub(by);
                        let to = (watched + by).min(written);
                        (from..to).for_each(|n| take(&mut known, n));
                        watched = watched.max(to);
                    }
                    // A read that was sent at some time and answered at or after that time.
                    3 => {
                        let floor = known.revision().min(written as u64);
                        let at = (floor as usize + by).min(written);
                        known.read(NOW, read(&history, at, floor));
                        watched = watched.max(at);
                    }
                    _ => {}
                }
                prop_assert_eq!(known.missing().count(), 0);
            }
            (watched..history.len()).for_each(|n| take(&mut known, n));
            let found: BTreeMap<_, _> =
                known.all_wanted().map(|(key, doc)| (key.clone(), doc.clone())).collect();
            prop_assert_eq!(found, state(&history, history.len()));
        }

        /// A read that is older than an own write does not undo the write.
        #[test]
        fn a_reading_that_was_under_way_undoes_no_own_write(history in histories()) {
            let last = history.len() - 1;
            let mut known = Known::default();
            known.read(NOW, read(&history, last, 0));
            let floor = known.revision();
            let (key, value) = history[last];
            known.wrote(KEYS[key], last as u64 + 1, value);
            known.read(NOW, read(&history, last, floor));
            let found = known.get(KEYS[key]).map(|doc| doc.value);
            prop_assert_eq!(found, value);
            prop_assert_eq!(known.missing().count(), 0);
        }

        /// A restore removes nothing at once, and expiry removes nothing that the store still has.
        #[test]
        fn a_restored_store_takes_nothing_away_at_once(history in histories(), cut in 0..40usize) {
            let cut = cut.min(history.len() - 1);
            let mut known = Known::default();
            known.read(NOW, read(&history, history.len(), 0));
            let before = state(&history, history.len());
            let kept = state(&history, cut);
            let floor = known.revision();
            known.read(NOW, read(&history, cut, floor));
            for key in before.keys().chain(kept.keys()) {
                prop_assert!(known.wanted(key).is_some(), "{}", key);
                prop_assert_eq!(known.is_missing(key), !kept.contains_key(key));
            }
            // The next read of the same store finds nothing new.
            let floor = known.revision();
            prop_assert!(known.read(NOW, read(&history, cut, floor)).is_empty());
            let gone = known.expire(NOW + MISSING_MAX);
            let found: BTreeMap<_, _> =
                known.all_wanted().map(|(key, doc)| (key.clone(), doc.clone())).collect();
            prop_assert_eq!(&found, &kept);
            prop_assert!(gone.iter().all(|key| !kept.contains_key(key)));
        }
    }

    #[test]
    fn what_is_missing_can_be_written_or_deleted() {
        let mut known = Known::default();
        let docs = KEYS.map(|key| {
            let doc = Doc {
                revision: 7,
                value: 1_u8,
            };
            (key.to_owned(), doc)
        });
        let whole = |cluster_id, docs| Read {
            cluster_id,
            revision: 9,
            floor: 0,
            docs,
        };
        known.read(NOW, whole(1, docs.into()));
        // Another cluster, though it is not behind.
        known.read(NOW, whole(2, BTreeMap::new()));
        assert_eq!(known.missing().count(), 3);
        assert!(known.change("a", 10, Some(2)));
        assert!(known.change("b", 11, None));
        assert_eq!(known.missing().collect::<Vec<_>>(), ["c"]);
        assert_eq!(known.repaired, 0);
    }

    #[test]
    fn what_no_change_has_reported_is_counted_once() {
        let mut known = Known::default();
        let history = vec![(0, Some(1)), (1, Some(2)), (0, None)];
        known.read(NOW, read(&history, 2, 0));
        let changed = known.read(NOW, read(&history, 3, 2));
        assert_eq!(changed, BTreeSet::from(["a".to_owned()]));
        known.read(NOW, read(&history, 3, 3));
        assert_eq!(known.repaired, 1);
    }
}
