//! Documents in etcd, for the members of a cluster. Each has its own key.
//!
//! Every write also writes [`ORDER`], in one transaction that compares both. So the writes of all
//! members have one order, and each was checked against all earlier ones. A write is never sent
//! twice: if its outcome is unknown, this member asks etcd whether the write is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd::{Change, Client, Compare, Error, Notice, Op, OpResult, Txn};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::document::{self, Document};
use super::known::{Doc, Read};
use super::{Intent, ORDER, UNKNOWN, Write, Written};
use crate::documents;
use config::qos::Refused;

/// The prefix of each document's key.
pub const PREFIX: &str = "/auster/v1/intent/";

/// The time between two reads of all documents; see [`Known::read`](super::known::Known::read).
const REPAIR: Duration = Duration::from_secs(300);
/// The pause after a failure, doubled each time.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// The time that a member waits for the first read before it may serve without one.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// The shortest time that a watch takes: a watch that ends at once must not cause one full read
/// after another.
const WATCH_MIN: Duration = Duration::from_millis(500);

/// A writer to etcd, for one member.
pub struct Etcd {
    client: Client,
    /// The name of the member.
    by: String,
    /// The seed that makes the mark of each write unique.
    seed: u64,
    writes: AtomicU64,
}

fn full_key(key: &str) -> Vec<u8> {
    format!("{PREFIX}{key}").into_bytes()
}

/// Converts a revision of etcd, which the client has checked to be positive.
fn revision(of_etcd: i64) -> u64 {
    u64::try_from(of_etcd).unwrap_or(0)
}

fn expected(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

impl Etcd {
    pub fn new(client: Client, by: String, seed: u64) -> Etcd {
        Etcd {
            client,
            by,
            seed,
            writes: AtomicU64::new(0),
        }
    }

    /// Carries out all of `writes` if nothing has changed since `order`, the revision of [`ORDER`].
    pub(super) async fn write(&self, writes: &[Write], order: u64) -> Result<Written, Refused> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let mark = json!({"by": self.by, "write": format!("{:016x}-{number}", self.seed)});
        let mark = mark.to_string().into_bytes();
        let mut txn = Txn {
            compares: vec![Compare::ModRevision(full_key(ORDER), expected(order))],
            then: vec![Op::Put {
                key: full_key(ORDER),
                value: mark.clone(),
                lease: 0,
            }],
            otherwise: vec![Op::Get(full_key(ORDER))],
        };
        for write in writes {
            let key = full_key(&write.key);
            let compare = Compare::ModRevision(key.clone(), expected(write.expected));
            txn.compares.push(compare);
            txn.otherwise.push(Op::Get(key.clone()));
            txn.then.push(match &write.value {
                Some(stored) => Op::Put {
                    key,
                    value: stored.text(),
                    lease: 0,
                },
                None => Op::Delete(key),
            });
        }
        match self.client.txn(&txn).await {
            Ok(answer) if answer.succeeded => Ok(Written::Done(revision(answer.header.revision))),
            Ok(answer) => {
                let seen = answer.results.iter().map(|result| match result {
                    OpResult::Got(Some(pair)) => revision(pair.mod_revision),
                    _ => 0,
                });
                Ok(Written::Lost(seen.max().unwrap_or(0)))
            }
            // The write may have been done all the same.
            Err(error @ (Error::Unknown(_) | Error::Full)) => {
                let written = self.outcome(writes, order, &mark).await;
                match (written, error) {
                    (Some(written), _) => Ok(written),
                    (None, error @ Error::Full) => Err(refused(&error)),
                    (None, error) => Err(Refused::Away(format!("{UNKNOWN}: {error}"))),
                }
            }
            Err(error) => Err(refused(&error)),
        }
    }

    /// Returns the outcome of a write that was sent; `None` if etcd does not show it.
    async fn outcome(&self, writes: &[Write], order: u64, mark: &[u8]) -> Option<Written> {
        let last = self.client.get(&full_key(ORDER)).await.ok()?.value?;
        let last_revision = revision(last.mod_revision);
        if last.value == mark {
            return Some(Written::Done(last_revision));
        }
        if last_revision == order {
            // The write may still arrive.
            return None;
        }
        // Others have written since, so the write is done already or never will be. One of its
        // documents shows which, unless others have written that document too.
        let has_text = |write: &&Write| write.value.is_some();
        let write = writes.iter().find(has_text).or(writes.first())?;
        let there = self.client.get(&full_key(&write.key)).await.ok()?.value;
        let there = there.map(|pair| (revision(pair.mod_revision), pair.value));
        read_outcome(write, last_revision, there)
    }
}

/// Returns the outcome of a write, once others have written in `last`, from the value `there` of
/// its key.
pub(super) fn read_outcome(
    write: &Write,
    last: u64,
    there: Option<(u64, Vec<u8>)>,
) -> Option<Written> {
    match (&write.value, there) {
        (None, None) => Some(Written::Done(last)),
        (Some(_), None) if write.expected == 0 => Some(Written::Lost(last)),
        (_, Some((at, _))) if at == write.expected => Some(Written::Lost(last)),
        (Some(stored), Some((at, text))) if text == stored.text() => Some(Written::Done(at)),
        _ => None,
    }
}

fn refused(error: &Error) -> Refused {
    match error {
        Error::Full => Refused::Full(error.to_string()),
        Error::BadRequest(_) => Refused::TooLarge(error.to_string()),
        error => Refused::Away(error.to_string()),
    }
}

/// Copies etcd's documents to this member, until the task is aborted: first all, then each change,
/// and all again after each gap. Begins once `named` says that etcd has this member, and so is its
/// cluster's. `loaded` is called after the first read. Without one it is called after `wait`, once
/// no other member `is_ready_elsewhere`: this member would remove unread documents from switches.
pub async fn follow<F: Future<Output = bool>>(
    intent: Arc<Intent>,
    client: Client,
    mut named: watch::Receiver<bool>,
    wait: Duration,
    loaded: impl Fn(),
    is_ready_elsewhere: impl Fn() -> F,
) {
    if named.wait_for(|is_named| *is_named).await.is_err() {
        return;
    }
    let (began, mut pause) = (Instant::now(), AGAIN);
    loop {
        let floor = intent.revision_known();
        let from = match read(&client).await {
            Ok((_, Some(in_use))) => {
                intent.note_too_old(documents::too_old(in_use, documents::SCHEMA));
                sleep(AGAIN_MAX).await;
                continue;
            }
            Ok((read, None)) => {
                let revision_read = revision(read.header.revision);
                let docs = read.kvs.iter().filter_map(|pair| {
                    let (key, value) = parsed(&pair.key, &pair.value)?;
                    let revision = revision(pair.mod_revision);
                    Some((key, Doc { revision, value }))
                });
                let read = Read {
                    cluster_id: read.header.cluster_id,
                    revision: revision_read,
                    floor,
                    docs: docs.collect::<BTreeMap<_, _>>(),
                };
                intent.take_read(read).await;
                loaded();
                pause = AGAIN;
                expected(revision_read) + 1
            }
            Err(error) => {
                intent.note_away(&error.to_string());
                // Neither unreadable data nor its amount may keep this member from serving the
                // network.
                let is_over = began.elapsed() > wait;
                if is_over && !intent.is_loaded() && !is_ready_elsewhere().await {
                    loaded();
                }
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
                continue;
            }
        };
        let began = Instant::now();
        watch(&intent, &client, from, began + REPAIR).await;
        if began.elapsed() < WATCH_MIN {
            sleep(WATCH_MIN).await;
        }
    }
}

/// Reads all documents, and then the schema in use, if it is newer than this auster's.
async fn read(client: &Client) -> Result<(etcd::Snapshot, Option<u32>), Error> {
    let read = client.read_all(PREFIX.as_bytes()).await?;
    let cluster = client.get(documents::IDENTITY.as_bytes()).await?.value;
    let in_use = cluster.and_then(|pair| documents::schema_in_use(&pair.value));
    Ok((read, in_use.filter(|in_use| *in_use > documents::SCHEMA)))
}

/// Applies changes until some may be missing, somebody asks for a full read, or `until` has come.
async fn watch(intent: &Intent, client: &Client, from: i64, until: Instant) {
    // Watch the key of the schema too: it changes before documents of the next schema arrive.
    let Ok(mut watch) = client.watch(documents::PREFIX.as_bytes(), from).await else {
        return;
    };
    loop {
        let notice = tokio::select! {
            notice = watch.next() => notice,
            () = intent.reread.notified() => return,
            () = sleep_until(until) => return,
        };
        match notice {
            Notice::Changes(_, changes) => {
                if changes.iter().any(is_of_cluster) {
                    return;
                }
                let changes = changes.iter().filter_map(|change| match change {
                    Change::Put(pair) => {
                        let (key, value) = parsed(&pair.key, &pair.value)?;
                        Some((key, revision(pair.mod_revision), Some(value)))
                    }
                    Change::Delete { key, mod_revision } => {
                        let key = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
                        Some((key.to_owned(), revision(*mod_revision), None))
                    }
                });
                intent.take_changes(changes.collect()).await;
            }
            Notice::Progress(_) => {}
            Notice::ReadAnew(lost) => {
                tracing::debug!("intent: reading etcd anew: {lost:?}");
                return;
            }
        }
    }
}

fn is_of_cluster(change: &Change) -> bool {
    change.key() == documents::IDENTITY.as_bytes()
}

/// Reads a pair of etcd as a document; `None` if its key is not text.
fn parsed(key: &[u8], value: &[u8]) -> Option<(String, Document)> {
    let key = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
    Some((key.to_owned(), document::read(key, value)))
}
