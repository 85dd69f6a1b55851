//! The requests of the API, kept in a store: in etcd for all members of a cluster, in a folder, or
//! in memory. The store comes first: a change is checked, stored, and then carried out. Stored
//! documents that the network cannot use are left out, reported once and counted.
//!
//! [`known`] is the copy of the store, and [`config::qos`] chooses the documents that fit
//! together.

mod disk;
mod document;
pub mod etcd;
mod import;
mod known;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Instant;
use net::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify, Semaphore, mpsc, watch};
use tokio::time::timeout;

use cli::failure::Failure;
use config::layout::Layout;
use config::qos::held::{Op, Put};
use config::qos::{Held, Item, Refused};
use disk::Disk;
use document::{Document, Stored};
use etcd::Etcd;
pub use import::imported;
use known::{Doc, Read};
use seen::Seen;

/// The key that every write of a member also writes. It is not a document.
const ORDER: &str = "order";
/// The most documents that the store keeps.
const DOCUMENTS_MAX: usize = 20_000;
/// The most documents in one write: etcd accepts 128 steps in a transaction.
const WRITES_MAX: usize = 100;
/// Changes that are running or wait for their turn. Further ones wait inside their requests.
const UNDER_WAY_MAX: usize = 64;
/// Attempts at a write that others overtake.
const ATTEMPTS_MAX: usize = 20;
/// The time for writes of other members to arrive here.
const ARRIVE_MAX: Duration = Duration::from_secs(2);
/// The time between two attempts to fit all documents.
const FIT_PAUSE: clock::Duration = clock::Duration::from_secs(5);
/// The answer to a change that may or may not be done.
const UNKNOWN: &str = "it is unknown whether this is kept; GET it, and try again";
/// Events that may wait to be printed; more are lost.
const EVENTS_MAX: usize = 256;

/// The place where documents are kept.
pub enum Store {
    /// Nowhere: they end with this process.
    Memory,
    Disk(Mutex<Disk>),
    Etcd(Etcd),
}

impl Store {
    /// Opens a store in a folder. The second value is a line about an unusable file in the folder.
    pub fn disk(dir: &Path) -> Result<(Store, Option<String>), Failure> {
        let (disk, line) = Disk::open(dir)?;
        Ok((Store::Disk(Mutex::new(disk)), line))
    }
}

/// A write of a document, or a deletion if the value is `None`. It applies only if the store has
/// the revision `expected`; 0 stands for no document.
#[derive(Clone, Debug)]
struct Write {
    key: String,
    expected: u64,
    value: Option<Stored>,
}

/// The outcome of a write that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// The write is done, in this revision.
    Done(u64),
    /// Another write came first. The value is the greatest revision among the documents found in
    /// the store.
    Lost(u64),
}

/// Conditions of a request, by revisions (RFC 9110, 13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// The document's revision must be one of these.
    pub is: Option<Tags>,
    /// The document's revision must be none of these.
    pub is_not: Option<Tags>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    Any,
    Revisions(Vec<u64>),
}

impl Tags {
    fn have(&self, revision: Option<u64>) -> bool {
        match self {
            Tags::Any => revision.is_some(),
            Tags::Revisions(tags) => revision.is_some_and(|revision| tags.contains(&revision)),
        }
    }
}

impl When {
    fn holds(&self, revision: Option<u64>) -> bool {
        self.is.as_ref().is_none_or(|tags| tags.have(revision))
            && !self.is_not.as_ref().is_some_and(|tags| tags.have(revision))
    }
}

/// A request to change something.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The operations. All of them are carried out, or none.
    pub ops: Vec<Op>,
    /// Whether none of the items may exist yet.
    pub is_new: bool,
    /// The condition for each of `ops`.
    pub when: When,
}

impl Change {
    /// Makes a change whose items may exist or not.
    pub fn new(ops: Vec<Op>, when: When) -> Change {
        let is_new = false;
        Change { ops, is_new, when }
    }
}

/// A change that was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub revision: u64,
    /// The number of items that did not exist before.
    pub created: usize,
    pub replaced: usize,
    /// Whether the change is in use too. Otherwise it is stored, and takes effect once the
    /// controller has time.
    pub is_in_use: bool,
}

/// Documents that a change has put back into the store, each with its new and its earlier revision.
/// A condition is checked against the earlier revision: the client has seen no other.
type PutBack = BTreeMap<String, (u64, u64)>;

/// An event that no request has caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentEvent {
    /// A document is left out, with the reason.
    LeftOut { key: String, why: String },
    /// The store was restored, and has lost documents that stay for ten minutes.
    Missing(Vec<String>),
    /// Documents that the store had lost are not in use any more.
    Dropped(Vec<String>),
    /// Somebody has saved this number of places on the map, or deleted all.
    Layout(usize),
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub documents: usize,
    pub left_out: usize,
    pub missing: usize,
    pub writes: u64,
    pub writes_refused: u64,
    pub repaired: u64,
}

/// The requests that the API has accepted.
pub struct Intent {
    held: Arc<Held>,
    clock: Clock,
    /// The writer, as documents name it.
    by: String,
    store: Store,
    seen: Lock<Seen>,
    /// The lock for changes of the API's layer.
    turn: Mutex<Turn>,
    /// Permits for changes, which may outlive their requests.
    under_way: Arc<Semaphore>,
    /// The known revision, and the number of full reads.
    progress: watch::Sender<(u64, u64)>,
    reread: Notify,
    events: mpsc::Sender<IntentEvent>,
}

#[derive(Default)]
struct Turn {
    /// Whether the API's layer lags behind the store, for lack of time.
    is_behind: bool,
    fitted_at: Option<Instant>,
}

impl Intent {
    pub fn new(
        held: Arc<Held>,
        clock: Clock,
        by: &str,
        store: Store,
    ) -> (Arc<Intent>, mpsc::Receiver<IntentEvent>) {
        let (events, to_print) = mpsc::channel(EVENTS_MAX);
        let intent = Intent {
            held,
            clock,
            by: by.to_owned(),
            store,
            seen: Lock::default(),
            turn: Mutex::default(),
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            progress: watch::channel((0, 0)).0,
            reread: Notify::new(),
            events,
        };
        (Arc::new(intent), to_print)
    }

    /// Loads the documents of a store on this machine. Documents in etcd arrive through
    /// [`etcd::follow`].
    pub async fn load(&self) {
        let (revision, docs) = match &self.store {
            Store::Memory => (disk::first_revision(), BTreeMap::new()),
            Store::Disk(disk) => {
                let disk = disk.lock().await;
                (disk.revision(), disk.documents())
            }
            Store::Etcd(_) => return,
        };
        let read = Read {
            cluster_id: 0,
            revision,
            floor: 0,
            docs,
        };
        self.take_read(read).await;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> Counts {
        let seen = self.seen();
        Counts {
            documents: seen.documents(),
            left_out: seen.left_out.len(),
            missing: seen.known.missing().filter(|key| *key != ORDER).count(),
            writes: seen.writes,
            writes_refused: seen.writes_refused,
            repaired: seen.known.repaired,
        }
    }

    /// The revision of an item, if it is in use.
    pub fn revision(&self, item: &Item) -> Option<u64> {
        self.seen().applied.get(&document::key(item)).copied()
    }

    /// The places on the map, and their revision; `None` if nobody has saved any.
    pub fn layout(&self) -> Result<Option<(u64, Layout)>, Refused> {
        let seen = self.seen();
        seen.check_loaded()?;
        let doc = seen.known.wanted(&document::key(&Item::Layout));
        Ok(doc.and_then(|doc| match &doc.value.content {
            Ok(Put::Layout(layout)) => Some((doc.revision, layout.clone())),
            _ => None,
        }))
    }

    /// Whether an item is kept, in use or not.
    pub fn has(&self, item: &Item) -> bool {
        self.seen().known.wanted(&document::key(item)).is_some()
    }

    /// Returns the kept items whose keys begin with `prefix`.
    pub fn items(&self, prefix: &str) -> Vec<Item> {
        let seen = self.seen();
        let keys = seen.known.all_wanted().map(|(key, _)| key);
        let its = keys.filter(|key| key.starts_with(prefix));
        its.filter_map(|key| document::item(key).ok()).collect()
    }

    /// The greatest number of items that one change may have.
    pub fn changes_max(&self) -> usize {
        match self.store {
            Store::Etcd(_) => WRITES_MAX,
            Store::Memory | Store::Disk(_) => usize::MAX,
        }
    }

    fn is_loaded(&self) -> bool {
        self.seen().is_loaded
    }

    fn revision_known(&self) -> u64 {
        self.seen().known.revision()
    }

    fn note_away(&self, why: &str) {
        self.seen().away = Some(why.to_owned());
    }

    fn note_too_old(&self, why: String) {
        self.seen().too_old = Some(why);
    }

    /// Returns all documents: in use, left out, or lost by the store.
    pub fn document(&self) -> Result<Value, Refused> {
        let seen = self.seen();
        seen.check_loaded()?;
        let documents = seen.known.all_wanted().filter(|(key, _)| *key != ORDER);
        let documents = documents.map(|(key, doc)| {
            let (kind, name) = key.split_once('/').unwrap_or(("", key));
            let left_out = seen.left_out.get(key);
            let state = match (left_out, seen.known.is_missing(key)) {
                (Some(_), _) => "left out",
                (None, true) => "missing",
                (None, false) => "in use",
            };
            json!({
                "kind": document::shown(kind),
                "name": document::shown(name),
                "by": doc.value.by,
                "at": doc.value.at,
                "revision": doc.revision,
                "state": state,
                "reason": left_out.map(|(_, why)| why),
                "document": doc.value.content.as_ref().ok().map(document::body),
            })
        });
        let documents: Vec<Value> = documents.collect();
        Ok(json!({"auster_intent": 1, "documents": documents}))
    }

    /// Carries out a change: first in the store, then here. Returns when both are done. The change
    /// continues if the caller goes away: half of it would be lost otherwise.
    pub async fn change(self: &Arc<Intent>, change: Change) -> Result<Changed, Refused> {
        let intent = self.clone();
        let change = async move { intent.change_counted(&change).await };
        self.to_its_end(change).await
    }

    async fn change_counted(&self, change: &Change) -> Result<Changed, Refused> {
        let changed = self.change_in_turn(change).await;
        self.seen().writes_refused += u64::from(changed.is_err());
        changed
    }

    async fn change_in_turn(&self, change: &Change) -> Result<Changed, Refused> {
        let mut put_back = PutBack::new();
        for _ in 0..ATTEMPTS_MAX {
            let mut turn = self.turn.lock().await;
            let (mut writes, applies, mut changed) = self.prepare(change, &put_back)?;
            self.held.check(&applies).await?;
            // First put lost documents back: other members that keep them learn of a deletion only
            // if the document exists in the store.
            let lost = self.lost_of(&writes);
            let is_whole = lost.is_empty();
            if !is_whole {
                writes = lost;
            }
            let before = self.revisions(&writes);
            let order = self.seen().known.get(ORDER).map_or(0, |doc| doc.revision);
            // No change arrives while this task has its turn.
            let known = (self.revision_known(), self.progress.borrow().1);
            let written = match &self.store {
                Store::Memory => Ok(Written::Done(self.revision_known() + 1)),
                Store::Disk(disk) => disk.lock().await.write(&writes).await.map(Written::Done),
                Store::Etcd(etcd) => etcd.write(&writes, order).await,
            };
            match written? {
                Written::Done(revision) => {
                    changed.revision = revision;
                    self.finish(&mut turn, writes, revision).await;
                    if is_whole {
                        changed.is_in_use = self.is_in_use(change, revision);
                        return Ok(changed);
                    }
                    let before = before.into_iter();
                    put_back.extend(before.map(|(key, before)| (key, (revision, before))));
                }
                Written::Lost(seen) => {
                    drop(turn);
                    self.wait_for(seen, known).await;
                }
            }
        }
        Err(Refused::Away("others change it all the time".to_owned()))
    }

    /// Returns the writes of a change, and its steps that concern the API's layer.
    fn prepare(
        &self,
        change: &Change,
        put_back: &PutBack,
    ) -> Result<(Vec<Write>, Vec<Op>, Changed), Refused> {
        let seen = self.seen();
        seen.check_loaded()?;
        seen.check_schema()?;
        let count = change.ops.len();
        if matches!(self.store, Store::Etcd(_)) && count > WRITES_MAX {
            return Err(Refused::TooLarge(format!(
                "this changes {count} documents at once, and a cluster at most {WRITES_MAX}; \
                 change fewer at a time"
            )));
        }
        let (mut writes, mut applies) = (Vec::new(), Vec::new());
        let mut changed = Changed::default();
        for op in &change.ops {
            let item = op.item();
            let key = document::key(&item);
            let there = seen.known.wanted(&key);
            let revision = there.map(|doc| match put_back.get(&key) {
                Some((written, before)) if *written == doc.revision => *before,
                _ => doc.revision,
            });
            if !change.when.holds(revision) {
                return Err(Refused::Stale(item));
            }
            let value = match op {
                Op::Put(..) if change.is_new && there.is_some() => {
                    return Err(Refused::Exists(item));
                }
                Op::Put(put, _) => Some(Stored::new(put, &self.by)),
                // No other check reports a missing layout.
                Op::Delete(Item::Layout) if there.is_none() => {
                    return Err(Refused::Unknown(item));
                }
                Op::Delete(_) => None,
            };
            match there {
                Some(_) => changed.replaced += 1,
                None => changed.created += 1,
            }
            let is_left_out = there.is_some() && !seen.applied.contains_key(&key);
            if value.is_some() || !is_left_out {
                applies.push(op.clone());
            }
            if let Some(stored) = value.as_ref().map(Stored::text)
                && stored.len() > document::bytes_max(&key)
            {
                let why = format!("{item} has {} bytes as a document", stored.len());
                return Err(Refused::TooLarge(why));
            }
            writes.push(Write {
                expected: seen.known.get(&key).map_or(0, |doc| doc.revision),
                key,
                value,
            });
        }
        if seen.documents() + changed.created > DOCUMENTS_MAX && changed.created > 0 {
            let why = format!("there are {DOCUMENTS_MAX} documents, and no more are kept");
            return Err(Refused::Full(why));
        }
        Ok((writes, applies, changed))
    }

    /// Whether a stored change is in use too. The change was checked, so only lack of time can
    /// delay its use.
    fn is_in_use(&self, change: &Change, revision: u64) -> bool {
        let seen = self.seen();
        let is_done = |op: &Op| {
            let applied = seen.applied.get(&document::key(&op.item()));
            applied.copied() == matches!(op, Op::Put(..)).then_some(revision)
        };
        change.ops.iter().all(is_done)
    }

    /// Returns the revisions of the documents that these writes replace.
    fn revisions(&self, writes: &[Write]) -> Vec<(String, u64)> {
        let seen = self.seen();
        let revision = |write: &Write| {
            let doc = seen.known.wanted(&write.key)?;
            Some((write.key.clone(), doc.revision))
        };
        writes.iter().filter_map(revision).collect()
    }

    /// Returns writes that put lost documents back into the store before they are deleted.
    fn lost_of(&self, writes: &[Write]) -> Vec<Write> {
        let seen = self.seen();
        let put_back = |write: &Write| {
            let is_lost = write.value.is_none() && seen.known.is_missing(&write.key);
            let doc = seen.known.wanted(&write.key).filter(|_| is_lost)?;
            let put = doc.value.content.as_ref().ok()?;
            Some(Write {
                value: Some(Stored::new(put, &self.by)),
                ..write.clone()
            })
        };
        writes.iter().filter_map(put_back).collect()
    }

    /// Records a completed write, and has it carried out.
    async fn finish(&self, turn: &mut Turn, writes: Vec<Write>, revision: u64) {
        let mut keys = BTreeSet::new();
        {
            let mut seen = self.seen();
            seen.writes += 1;
            for Write { key, value, .. } in writes {
                let document = value.map(|stored| stored.read(&key));
                seen.known.wrote(&key, revision, document);
                keys.insert(key);
            }
            if matches!(self.store, Store::Etcd(_)) {
                seen.known.wrote(ORDER, revision, Some(Document::order()));
            }
        }
        self.settle(turn, keys).await;
    }

    /// Waits until `revision` has arrived here, if it is newer than `known`. If it is not newer or
    /// does not arrive, has everything read.
    async fn wait_for(&self, revision: u64, (known, reads): (u64, u64)) {
        let mut progress = self.progress.subscribe();
        if revision > known {
            let arrived = progress.wait_for(|(known, _)| *known >= revision);
            if timeout(ARRIVE_MAX, arrived).await.is_ok() {
                return;
            }
        }
        self.reread.notify_one();
        let read = progress.wait_for(|(_, now)| *now > reads);
        let _ = timeout(ARRIVE_MAX, read).await;
    }

    /// Applies a full read.
    async fn take_read(&self, mut read: Read<Document>) {
        let mut turn = self.turn.lock().await;
        let now = self.clock.now();
        let (keys, is_first, lost) = {
            let mut seen = self.seen();
            seen.bound(&mut read.docs, DOCUMENTS_MAX);
            let before: BTreeSet<String> = seen.known.missing().cloned().collect();
            let keys = seen.known.read(now, read);
            let lost = seen.known.missing().filter(|key| !before.contains(*key));
            let lost: Vec<String> = lost.filter(|key| *key != ORDER).cloned().collect();
            let is_first = !std::mem::replace(&mut seen.is_loaded, true);
            (seen.away, seen.too_old) = (None, None);
            (keys, is_first, lost)
        };
        if !lost.is_empty() {
            self.event(IntentEvent::Missing(lost));
        }
        match is_first && !keys.is_empty() {
            true => self.fit(&mut turn).await,
            false => self.settle(&mut turn, keys).await,
        }
        self.progress.send_modify(|(_, reads)| *reads += 1);
    }

    /// Applies changes in their order; a document of `None` is a deletion.
    async fn take_changes(&self, changes: Vec<(String, u64, Option<Document>)>) {
        let mut turn = self.turn.lock().await;
        let keys = {
            let mut seen = self.seen();
            let mut keys = BTreeSet::new();
            let mut left = DOCUMENTS_MAX.saturating_sub(seen.documents());
            for (key, revision, value) in changes {
                let is_new = value.is_some() && key != ORDER && seen.known.wanted(&key).is_none();
                if is_new && left == 0 {
                    continue;
                }
                left -= usize::from(is_new);
                if seen.known.change(&key, revision, value) {
                    keys.insert(key);
                }
            }
            keys
        };
        self.settle(&mut turn, keys).await;
    }

    /// Brings the API's layer in line with the known documents of these keys.
    async fn settle(&self, turn: &mut Turn, keys: BTreeSet<String>) {
        let ops = {
            let mut seen = self.seen();
            keys.iter()
                .filter_map(|key| seen.op(key))
                .collect::<Vec<_>>()
        };
        // Set until the change is done: however this task ends, the layer is then rebuilt.
        let was_behind = std::mem::replace(&mut turn.is_behind, true);
        let done = match ops.is_empty() {
            true => Ok(()),
            false => self.held.change(&ops).await,
        };
        match done {
            Ok(()) => {
                let mut seen = self.seen();
                for op in &ops {
                    let key = document::key(&op.item());
                    let revision = seen.known.wanted(&key).map(|doc| doc.revision);
                    match (op, revision) {
                        (Op::Put(..), Some(revision)) => {
                            seen.left_out.remove(&key);
                            seen.applied.insert(key, revision);
                        }
                        _ => drop(seen.applied.remove(&key)),
                    }
                }
                // Documents that were left out may fit now.
                let may_fit = !ops.is_empty() && seen.left_out_for_others() > 0;
                turn.is_behind = was_behind || may_fit;
            }
            Err(Refused::Busy) => {}
            Err(_) if turn.may_fit(self.clock.now()) => self.fit(turn).await,
            Err(_) => {}
        }
        self.report();
    }

    /// Chooses again which of the known documents are in use.
    async fn fit(&self, turn: &mut Turn) {
        turn.fitted_at = Some(self.clock.now());
        turn.is_behind = true;
        let wanted: BTreeMap<String, (u64, Option<Put>)> = {
            let seen = self.seen();
            let wanted = seen.known.all_wanted().filter(|(key, _)| *key != ORDER);
            let put = |doc: &Doc<Document>| doc.value.content.as_ref().ok().cloned();
            wanted
                .map(|(key, doc)| (key.clone(), (doc.revision, put(doc))))
                .collect()
        };
        let puts = wanted.values().filter_map(|(_, put)| put.clone()).collect();
        match self.held.fit(puts).await {
            Ok(left_out) => {
                turn.is_behind = false;
                let left_out = left_out.into_iter();
                let mut left_out: BTreeMap<String, String> = left_out
                    .map(|(item, why)| (document::key(&item), why))
                    .collect();
                let mut seen = self.seen();
                seen.applied.clear();
                for (key, (revision, put)) in wanted {
                    match (left_out.remove(&key), put) {
                        (Some(why), _) => seen.leave_out(key, revision, why),
                        (None, Some(_)) => {
                            seen.left_out.remove(&key);
                            seen.applied.insert(key, revision);
                        }
                        (None, None) => drop(seen.op(&key)),
                    }
                }
            }
            Err(refused) => tracing::debug!("intent: not in use yet: {refused:?}"),
        }
        self.report();
    }

    /// Reports the known revision, and the documents left out since the last report.
    fn report(&self) {
        let (revision, lines, layout) = {
            let mut seen = self.seen();
            let known: BTreeSet<String> = seen.left_out.keys().cloned().collect();
            for key in known {
                if seen.known.wanted(&key).is_none() {
                    seen.left_out.remove(&key);
                }
            }
            let lines = std::mem::take(&mut seen.unreported);
            (seen.known.revision(), lines, seen.take_layout())
        };
        for (key, why) in lines {
            self.event(IntentEvent::LeftOut { key, why });
        }
        if let Some(count) = layout {
            self.event(IntentEvent::Layout(count));
        }
        self.progress.send_modify(|(known, _)| *known = revision);
    }

    fn event(&self, event: IntentEvent) {
        let _ = self.events.try_send(event);
    }

    /// Fits the documents again, after a change elsewhere that may let more of them fit.
    pub async fn refit(&self) {
        let mut turn = self.turn.lock().await;
        if self.seen().left_out_for_others() > 0 {
            self.fit(&mut turn).await;
        }
    }

    /// Does the work that is due by time, until the task is aborted.
    pub async fn keep(self: Arc<Intent>) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut turn = self.turn.lock().await;
            let now = self.clock.now();
            let over = self.seen().known.expire(now);
            if !over.is_empty() {
                self.event(IntentEvent::Dropped(over.iter().cloned().collect()));
                self.settle(&mut turn, over).await;
            }
            if turn.is_behind && turn.may_fit(now) {
                self.fit(&mut turn).await;
            }
        }
    }

    /// Carries `work` out even if nobody waits for it any more.
    async fn to_its_end(
        &self,
        work: impl Future<Output = Result<Changed, Refused>> + Send + 'static,
    ) -> Result<Changed, Refused> {
        let Ok(place) = self.under_way.clone().acquire_owned().await else {
            return Err(Refused::Busy);
        };
        let task = tokio::spawn(async move {
            let done = work.await;
            drop(place);
            done
        });
        match task.await {
            Ok(done) => done,
            Err(_) => Err(Refused::Away(UNKNOWN.to_owned())),
        }
    }
}

impl Turn {
    fn may_fit(&self, now: Instant) -> bool {
        self.fitted_at.is_none_or(|at| at + FIT_PAUSE <= now)
    }
}

#[cfg(test)]
mod tests;
