//! The store as this member knows it: read whole, then watched.
//!
//! Keys, below the cluster's prefix: `own/<shard>` ([`Order`]), `members/<id>` ([`Member`], on a
//! lease of the member), `move/<shard>` ([`Move`], on a lease of the operator), `epoch` and the
//! schema (numbers). Documents are values here; the I/O handles their text.

use std::collections::BTreeMap;

use clock::{Duration, Instant, SplitMix64};

use super::ClusterEvent;
use super::term::{EPOCH_MAX, MEMBERS_MAX, MemberId, Order, ShardId};

/// The maximum time for an answer.
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// The pause after a failure: doubled each time, and spread by a fifth.
const BACK_OFF: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Everything is read again after this time: servers can lose an event of a watch.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// The minimum time between two reads that peers' messages request.
const HINT_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of characters kept of an error's text.
const WHY_CHARS_MAX: usize = 300;
/// The time between two reports of the high-water mark, except for new terms.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// A request to the store. Each write is one transaction: compare, then put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// Read the whole prefix at one revision, linearizable. Answer [`StoreAnswer::Read`], and watch
    /// from the revision after it.
    Read,
    /// Put `own/<shard>` if its `mod_revision` is `expected` and that of `epoch` is `epoch_at`;
    /// `None` stands for an absent key. A restored store may give a term twice: a member that does
    /// not know the next epoch must not write an order.
    PutOwn {
        shard: ShardId,
        order: Order,
        expected: Option<u64>,
        epoch_at: Option<u64>,
    },
    /// Put `epoch` if its `mod_revision` is `expected`, or if it is absent for `None`.
    PutEpoch { epoch: u16, expected: Option<u64> },
    /// Put the schema if its `mod_revision` is `expected`, and no member's entry is later than
    /// `members_at`: each member with an entry then reports that it reads this schema.
    PutSchema {
        schema: u32,
        expected: u64,
        members_at: u64,
    },
}

/// The store's answer. `cluster_id` and `revision` are from the header of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// Everything, for [`StoreRequest::Read`].
    Read(Snapshot),
    /// The transaction has put the key: `revision` is its `mod_revision` now.
    Written { cluster_id: u64, revision: u64 },
    /// The comparison failed, and nothing was put.
    Conflict { cluster_id: u64, revision: u64 },
    /// No answer, or this error. Whether a write was done is unknown.
    Unreachable(String),
    /// The store has no room for writes, but answers reads. It may have done this write, but
    /// accepts no other.
    Full,
}

/// The whole prefix at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The number in the header of the response.
    pub cluster_id: u64,
    /// The revision in the header of the first page.
    pub revision: u64,
    pub own: BTreeMap<ShardId, Own>,
    pub members: BTreeMap<MemberId, Member>,
    pub moves: BTreeMap<ShardId, Move>,
    /// The key `epoch` and its `mod_revision`, if the key exists.
    pub epoch: Option<(u16, u64)>,
    /// The schema in use, which all documents have, and its `mod_revision`.
    pub schema: Option<(u32, u64)>,
}

/// `own/<shard>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Empty if the document cannot be read.
    pub order: Order,
    /// The key's `mod_revision`: the shard's term.
    pub revision: u64,
}

/// `members/<id>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Where its bell listens: `host:port`.
    pub address: String,
    /// Whether it can serve switches.
    pub is_ready: bool,
    /// The greatest schema that it reads; it reads all earlier ones too.
    pub reads: u32,
}

/// `move/<shard>`: an operator's request for another owner. The present owner writes the order,
/// because it hears whether the new owner is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub to: MemberId,
    /// The revision of the order to replace. The request does not apply to any later order.
    pub revision: u64,
}

/// One event of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreChange {
    /// The number in the header of the response.
    pub cluster_id: u64,
    /// The `mod_revision` of the key: when it was put or deleted.
    pub revision: u64,
    pub changed: Changed,
}

/// A key and its new document, `None` once it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Own(ShardId, Option<Order>),
    Member(MemberId, Option<Member>),
    Move(ShardId, Option<Move>),
    Epoch(Option<u16>),
    Schema(Option<u32>),
}

/// The latest state of the store that this member has seen. A store behind this state was restored
/// from a snapshot, or is another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighWater {
    pub cluster_id: u64,
    pub revision: u64,
    pub epoch: u16,
}

/// A change in this member's knowledge of the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Everything may have changed. After a restore, revisions start again.
    All {
        is_restored: bool,
    },
    /// A shard has another order, or none.
    Own(ShardId),
    /// The shard has the order that this member wrote.
    Written(ShardId),
    Members,
}

#[derive(Debug)]
pub(super) struct Store {
    random: SplitMix64,
    /// The greatest schema that this member reads.
    schema_max: u32,
    /// The schema in use, if this member cannot read it. Nothing in the store is believed then.
    too_new: Option<u32>,
    high_water: Option<HighWater>,
    reported: Option<(HighWater, Instant)>,
    view: Snapshot,
    has_view: bool,
    /// The revision of the last event of the watch, or of the view.
    applied: u64,
    /// The watch runs from the view's revision, and no restore is being handled.
    is_current: bool,
    asked: Option<Asked>,
    number: u32,
    wants_read: bool,
    read_at: Instant,
    hinted_at: Instant,
    /// The store was restored: put this epoch before anything else.
    restored_epoch: Option<Raise>,
    is_restore_reported: bool,
    retry_at: Instant,
    failures: u32,
    /// Writes refused for lack of room since the last successful write.
    refusals: u32,
    is_full: bool,
    is_lost: bool,
    /// Why the store does not answer, or does not take this member.
    problem: Option<String>,
    /// Reads sent.
    pub reads: u64,
    pub counts: Counts,
    pub events: Vec<ClusterEvent>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub requests: u64,
    pub timeouts: u64,
    pub repaired: u64,
    pub epochs_raised: u64,
}

#[derive(Clone, Copy, Debug)]
struct Raise {
    epoch: u16,
    expected: Option<u64>,
}

#[derive(Debug)]
struct Asked {
    number: u32,
    request: StoreRequest,
    until: Instant,
    /// The high-water mark when the request was sent: an answer below it comes from a restored
    /// store.
    floor: Option<HighWater>,
}

impl Store {
    pub(super) fn new(
        now: Instant,
        seed: u64,
        schema_max: u32,
        high_water: Option<HighWater>,
    ) -> Store {
        Store {
            random: SplitMix64::new(seed),
            schema_max,
            too_new: None,
            high_water,
            reported: high_water.map(|mark| (mark, now)),
            view: Snapshot::default(),
            has_view: false,
            applied: 0,
            is_current: false,
            asked: None,
            number: 0,
            wants_read: true,
            read_at: now,
            hinted_at: now,
            restored_epoch: None,
            is_restore_reported: false,
            retry_at: now,
            failures: 0,
            refusals: 0,
            is_full: false,
            is_lost: false,
            problem: None,
            reads: 0,
            counts: Counts::default(),
            events: Vec::new(),
        }
    }

    /// The store as far as it is known; nothing before the first read.
    pub(super) fn view(&self) -> Option<&Snapshot> {
        self.has_view.then_some(&self.view)
    }

    pub(super) fn epoch(&self) -> u16 {
        self.view.epoch.map_or(0, |(epoch, _)| epoch)
    }

    /// The schema in use, as far as it is known.
    pub(super) fn schema(&self) -> Option<u32> {
        let known = self.view.schema.map(|(schema, _)| schema);
        self.too_new.or(known)
    }

    /// Whether the store's documents may have a form that this member does not know.
    pub(super) fn is_too_new(&self) -> bool {
        self.too_new.is_some()
    }

    /// The revision up to which the view has every change.
    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether the view follows the store, and no restore is being handled.
    pub(super) fn is_current(&self) -> bool {
        self.is_current
    }

    /// The shards that have keys.
    pub(super) fn shards(&self) -> Vec<ShardId> {
        self.view.own.keys().copied().collect()
    }

    /// The first owner of a shard.
    pub(super) fn owner(&self, shard: ShardId) -> Option<MemberId> {
        self.view.own.get(&shard)?.order.holder(0).cloned()
    }

    /// Requests a read of everything, at most once a second. Returns when to try again.
    pub(super) fn hint(&mut self, now: Instant) -> Instant {
        if self.hinted_at + HINT_PAUSE <= now {
            self.hinted_at = now;
            self.wants_read = true;
        }
        self.hinted_at + HINT_PAUSE
    }

    pub(super) fn lose_watch(&mut self) {
        self.is_current = false;
        self.wants_read = true;
    }

    /// Returns the request to send now. Calls `write` for a write if there is nothing else to send.
    pub(super) fn poll_request(
        &mut self,
        now: Instant,
        write: impl FnOnce(&Snapshot) -> Option<StoreRequest>,
    ) -> Option<(u32, StoreRequest)> {
        if self.asked.as_ref().is_some_and(|asked| asked.until <= now) {
            self.counts.timeouts += 1;
            let late = || format!("no answer within {} ms", ANSWER_MAX.as_millis());
            self.problem.get_or_insert_with(late);
            self.fail(now);
        }
        self.wants_read |= self.read_at + READ_AGAIN <= now;
        if self.asked.is_some() || now < self.retry_at {
            return None;
        }
        let request = match self.restored_epoch.take() {
            Some(raise) => StoreRequest::PutEpoch {
                epoch: raise.epoch,
                expected: raise.expected,
            },
            None if self.wants_read => StoreRequest::Read,
            None if self.is_current => write(&self.view)?,
            None => return None,
        };
        if request == StoreRequest::Read {
            self.wants_read = false;
            self.reads += 1;
        }
        self.number = self.number.wrapping_add(1);
        self.counts.requests += 1;
        self.asked = Some(Asked {
            number: self.number,
            request: request.clone(),
            until: now + ANSWER_MAX,
            floor: self.high_water,
        });
        Some((self.number, request))
    }

    pub(super) fn note_problem(&mut self, why: &str) {
        self.problem = Some(why.chars().take(WHY_CHARS_MAX).collect());
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Handles a request without an answer: its effect is unknown.
    fn fail(&mut self, now: Instant) {
        self.asked = None;
        self.wants_read = true;
        if !self.is_lost {
            self.is_lost = true;
            let why = self.problem.clone().unwrap_or_default();
            self.events.push(ClusterEvent::StoreLost { why });
        }
        self.pause(now, self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    /// Sends no request for a while, which is longer after more failures.
    fn pause(&mut self, now: Instant, failures: u32) {
        let pause = (BACK_OFF * 2u32.pow(failures.min(6))).min(BACK_OFF_MAX);
        self.retry_at = now + pause.mul_f64(0.8 + 0.4 * self.random.uniform());
    }

    /// Sets whether the store has no room for writes, as the store itself reports.
    pub(super) fn set_full(&mut self, is_full: bool) {
        if std::mem::replace(&mut self.is_full, is_full) != is_full {
            self.events.push(match is_full {
                true => ClusterEvent::StoreFull,
                false => ClusterEvent::StoreRoom,
            });
        }
    }

    /// Handles a write refused for lack of room. The effect of the last write before it is unknown.
    fn refuse(&mut self, now: Instant) {
        self.wants_read = true;
        self.pause(now, self.refusals);
        self.refusals = self.refusals.saturating_add(1);
        self.set_full(true);
    }

    /// Notes that the store answers.
    fn recover(&mut self) {
        self.failures = 0;
        self.problem = None;
        if std::mem::take(&mut self.is_lost) {
            self.events.push(ClusterEvent::StoreBack);
        }
    }

    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        number: u32,
        answer: StoreAnswer,
    ) -> Option<News> {
        let asked = self.asked.take_if(|asked| asked.number == number)?;
        let (cluster_id, revision) = match &answer {
            StoreAnswer::Read(snapshot) => (snapshot.cluster_id, snapshot.revision),
            StoreAnswer::Written {
                cluster_id,
                revision,
            }
            | StoreAnswer::Conflict {
                cluster_id,
                revision,
            } => (*cluster_id, *revision),
            StoreAnswer::Unreachable(why) => {
                self.note_problem(why);
                self.fail(now);
                return None;
            }
            StoreAnswer::Full => {
                self.recover();
                self.refuse(now);
                return None;
            }
        };
        self.recover();
        let is_behind = asked
            .floor
            .is_some_and(|floor| floor.cluster_id != cluster_id || revision < floor.revision);
        let is_written = matches!(answer, StoreAnswer::Written { .. });
        if is_written {
            self.refusals = 0;
            self.set_full(false);
        }
        let is_epoch = matches!(asked.request, StoreRequest::PutEpoch { .. });
        self.counts.epochs_raised += u64::from(is_written && is_epoch);
        match (answer, asked.request) {
            (StoreAnswer::Read(snapshot), StoreRequest::Read) => {
                self.handle_read(now, snapshot, asked.floor, is_behind)
            }
            // The write went to a store that has lost data. Read that store first.
            _ if is_behind => {
                self.lose_watch();
                None
            }
            (StoreAnswer::Written { .. }, StoreRequest::PutOwn { shard, order, .. }) => {
                self.raise_revision(revision);
                self.view.own.insert(shard, Own { order, revision });
                Some(News::Written(shard))
            }
            _ => {
                self.wants_read = true;
                None
            }
        }
    }

    fn handle_read(
        &mut self,
        now: Instant,
        snapshot: Snapshot,
        floor: Option<HighWater>,
        is_behind: bool,
    ) -> Option<News> {
        let schema = snapshot.schema.map(|(schema, _)| schema);
        let too_new = schema.filter(|schema| *schema > self.schema_max);
        let schema_before = self.schema();
        self.too_new = too_new;
        if too_new.is_some() {
            (self.is_current, self.read_at) = (false, now);
            self.note_schema(schema_before);
            return Some(News::Members);
        }
        let epoch = snapshot.epoch.map_or(0, |(epoch, _)| epoch);
        // Includes a different order at the same revision.
        let is_lower = |(shard, own): (&ShardId, &Own)| {
            let known = self.view.own.get(shard);
            known.is_some_and(|known| own.revision <= known.revision && own != known)
        };
        let is_restored = is_behind
            || floor.is_some_and(|floor| epoch < floor.epoch)
            || snapshot.own.iter().any(is_lower);
        if let Some(floor) = floor.filter(|_| is_restored)
            && epoch <= floor.epoch
            && floor.epoch < EPOCH_MAX
        {
            if !std::mem::replace(&mut self.is_restore_reported, true) {
                self.events.push(ClusterEvent::Restored {
                    from: floor,
                    cluster_id: snapshot.cluster_id,
                });
            }
            self.restored_epoch = Some(Raise {
                epoch: floor.epoch + 1,
                expected: snapshot.epoch.map(|(_, revision)| revision),
            });
            self.lose_watch();
            return None;
        }
        if self.is_current && !is_restored {
            let is_missed = |(shard, own): (&ShardId, &Own)| {
                own.revision <= self.applied && self.view.own.get(shard) != Some(own)
            };
            self.counts.repaired += u64::from(snapshot.own.iter().any(is_missed));
        }
        self.is_restore_reported = false;
        self.high_water = Some(HighWater {
            cluster_id: snapshot.cluster_id,
            revision: snapshot.revision,
            epoch,
        });
        self.view = snapshot;
        self.note_schema(schema_before);
        while self.view.members.len() > MEMBERS_MAX {
            self.view.members.pop_last();
        }
        self.applied = self.view.revision;
        (self.has_view, self.is_current, self.read_at) = (true, true, now);
        Some(News::All { is_restored })
    }

    /// Reports a change of schema, and at the start also a schema that cannot be read.
    fn note_schema(&mut self, before: Option<u32>) {
        let is_news = before.is_some() || self.is_too_new();
        if let Some(in_use) = self.schema().filter(|now| is_news && Some(*now) != before) {
            let reads = self.schema_max;
            self.events.push(ClusterEvent::Schema { in_use, reads });
        }
    }

    pub(super) fn handle_change(&mut self, change: StoreChange) -> Option<News> {
        if self.is_too_new() && matches!(change.changed, Changed::Schema(_)) {
            self.lose_watch();
        }
        let is_reading = |asked: &Asked| asked.request == StoreRequest::Read;
        // The watch restarts with the snapshot that is outstanding.
        if !self.is_current || self.asked.as_ref().is_some_and(is_reading) {
            return None;
        }
        if change.cluster_id != self.view.cluster_id {
            self.lose_watch();
            return None;
        }
        if change.revision <= self.view.revision {
            return None;
        }
        let revision = change.revision;
        self.applied = self.applied.max(revision);
        match change.changed {
            Changed::Own(shard, order) => {
                let known = self.view.own.get(&shard);
                if known.is_some_and(|known| revision <= known.revision) {
                    return None;
                }
                match order {
                    Some(order) => self.view.own.insert(shard, Own { order, revision }),
                    None => self.view.own.remove(&shard),
                };
                self.raise_revision(revision);
                Some(News::Own(shard))
            }
            Changed::Member(id, member) => {
                let is_known = self.view.members.contains_key(&id);
                match member {
                    Some(member) if is_known || self.view.members.len() < MEMBERS_MAX => {
                        self.view.members.insert(id, member);
                    }
                    Some(_) => return None,
                    None => {
                        self.view.members.remove(&id);
                    }
                }
                self.raise_revision(revision);
                Some(News::Members)
            }
            Changed::Move(shard, asked) => {
                match asked {
                    Some(asked) => self.view.moves.insert(shard, asked),
                    None => self.view.moves.remove(&shard),
                };
                self.raise_revision(revision);
                None
            }
            // Another epoch: the store may have been restored unnoticed.
            Changed::Epoch(epoch) => {
                if epoch != self.view.epoch.map(|(epoch, _)| epoch) {
                    self.lose_watch();
                }
                None
            }
            // Later documents may have another form.
            Changed::Schema(schema) => {
                if schema != self.view.schema.map(|(schema, _)| schema) {
                    self.lose_watch();
                }
                None
            }
        }
    }

    fn raise_revision(&mut self, revision: u64) {
        if let Some(mark) = &mut self.high_water {
            mark.revision = mark.revision.max(revision);
        }
    }

    /// Returns the high-water mark if it is due to be written. `is_term` means that terms are new.
    pub(super) fn poll_high_water(&mut self, now: Instant, is_term: bool) -> Option<HighWater> {
        let mark = self.high_water?;
        let is_due = |(reported, at): (HighWater, Instant)| {
            mark != reported && (is_term || at + REPORT_PAUSE <= now)
        };
        if !self.reported.is_none_or(is_due) {
            return None;
        }
        self.reported = Some((mark, now));
        Some(mark)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.asked {
            Some(asked) => Some(asked.until),
            None => (self.wants_read || self.restored_epoch.is_some()).then_some(self.retry_at),
        }
    }
}
