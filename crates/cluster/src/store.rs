//! The cluster's store: etcd. A task carries out the requests of the cluster, one watches the
//! cluster's keys, and one keeps this member's own key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use control::cluster::{Cluster, Member, MemberId, StoreAnswer, StoreChange, StoreRequest};
use etcd::{Cas, Client, Compare, Endpoint, Error, Notice, Op, Txn};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Handle;
use super::documents::{self, Identity, Key, PREFIX, revision};

/// Seconds that the key of a member outlives the member.
const LEASE_S: u32 = 10;
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// The shortest time that a watch takes.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// The time between two reads of all keys. Servers before 3.4.36 and 3.5.18 can lose a deletion in
/// a watch.
const REPAIR: Duration = Duration::from_secs(300);

/// The time between two checks of etcd's alarms.
const LOOK_AT_ROOM: Duration = Duration::from_secs(10);
/// etcd's word for a full database.
const NO_ROOM: &str = "NOSPACE";

/// Warns once of members of etcd whose watches can lose a deletion.
pub async fn warn_if_old(client: Client, members: Vec<Endpoint>, mut named: watch::Receiver<bool>) {
    if named.wait_for(|is_named| *is_named).await.is_err() {
        return;
    }
    let mut old = Vec::new();
    for (n, member) in members.iter().enumerate() {
        let status = client.status(n).await.ok();
        let version = status.map(|status| status.version);
        if let Some(version) = version.filter(|version| is_old(version)) {
            old.push(format!("{member} is {version}"));
        }
    }
    if !old.is_empty() {
        tracing::warn!(
            "cluster: etcd: {}: a watch of versions before 3.5.18 (3.4.36) can lose a deletion, \
             which members then notice up to {} s later: upgrade etcd",
            old.join(", "),
            REPAIR.as_secs(),
        );
    }
}

/// Checks whether etcd's database is full. Members write so little that they would not notice for
/// days.
pub async fn watch_room(
    client: Client,
    members: usize,
    mut named: watch::Receiver<bool>,
    handle: Handle,
) {
    if named.wait_for(|is_named| *is_named).await.is_err() {
        return;
    }
    loop {
        let mut is_full = None;
        for n in 0..members {
            if let Ok(status) = client.status(n).await {
                let full = status.alarms.iter().any(|alarm| alarm.contains(NO_ROOM));
                is_full = Some(full || is_full == Some(true));
            }
        }
        if let Some(is_full) = is_full {
            handle
                .cluster(move |cluster, now| cluster.set_store_full(now, is_full))
                .await;
        }
        sleep(LOOK_AT_ROOM).await;
    }
}

/// Whether a version is older than 3.5.18, or a 3.4 older than 3.4.36. An unreadable version does
/// not count as old.
fn is_old(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u32>);
    let mut part = || parts.next().and_then(Result::ok);
    match (part(), part(), part()) {
        (Some(3), Some(4), Some(patch)) => patch < 36,
        (Some(3), Some(5), Some(patch)) => patch < 18,
        (Some(major), Some(minor), Some(_)) => (major, minor) < (3, 4),
        _ => false,
    }
}

/// Carries out requests until the task is aborted.
pub async fn carry_out(
    client: Client,
    cluster: Identity,
    mut requests: mpsc::UnboundedReceiver<(u32, StoreRequest)>,
    mut named: watch::Receiver<bool>,
    keeper: Keeper,
    handle: Handle,
) {
    // Until then another process has the name, or the prefix is another cluster's.
    if named.wait_for(|is_named| *is_named).await.is_err() {
        return;
    }
    let mut watching: Option<Watching> = None;
    loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            () = sleep(REPAIR) => {
                handle.cluster(|cluster, now| cluster.handle_watch_lost(now)).await;
                continue;
            }
        };
        let Some(mut latest) = request else {
            return;
        };
        // The cluster has given up the earlier requests.
        while let Ok(later) = requests.try_recv() {
            latest = later;
        }
        let (number, request) = latest;
        let answer = match request {
            StoreRequest::Read => match read(&client).await {
                Ok(read) => {
                    drop(watching.take());
                    let snapshot = documents::snapshot(&read);
                    handle
                        .cluster(move |cluster, now| {
                            cluster.handle_store_answer(now, number, StoreAnswer::Read(snapshot));
                        })
                        .await;
                    let from = read.header.revision + 1;
                    let followed = follow(client.clone(), from, keeper.clone(), handle.clone());
                    let task = tokio::spawn(followed);
                    watching = Some(Watching(task.abort_handle()));
                    continue;
                }
                Err(error) => failed(&error),
            },
            StoreRequest::PutOwn {
                shard,
                order,
                expected,
                epoch_at,
            } => {
                let key = Key::Own(shard);
                let compares = vec![is_at(&key, expected), is_at(&Key::Epoch, epoch_at)];
                put(&client, compares, &key, documents::order_text(&order)).await
            }
            StoreRequest::PutEpoch { epoch, expected } => {
                let compares = vec![is_at(&Key::Epoch, expected)];
                let text = documents::epoch_text(epoch);
                put(&client, compares, &Key::Epoch, text).await
            }
            // A member that joined or changed since may read only older schemas.
            StoreRequest::PutSchema {
                schema,
                expected,
                members_at,
            } => {
                let id = cluster.id.clone();
                let text = documents::identity_text(&Identity { id, schema });
                let members = Compare::PrefixUntil(documents::members(), of_etcd(members_at));
                let compares = vec![is_at(&Key::Cluster, Some(expected)), members];
                put(&client, compares, &Key::Cluster, text).await
            }
        };
        handle
            .cluster(move |cluster, now| cluster.handle_store_answer(now, number, answer))
            .await;
    }
}

/// Reads the cluster's own keys. Documents of the API, which are many, are read separately: an
/// answer about members must not wait for them.
///
/// The answers may have different revisions. The result has the earliest, and a watch from there
/// reports whatever the other answers lack.
pub async fn read(client: &Client) -> Result<etcd::Snapshot, Error> {
    let [own, members, moves, drained] =
        documents::FOLDERS.map(|folder| [PREFIX, folder].concat().into_bytes());
    let [epoch, cluster] = [Key::Epoch, Key::Cluster].map(|key| key.text());
    let (mut whole, members, moves, drained, epoch, cluster) = tokio::try_join!(
        client.read_all(&own),
        client.read_all(&members),
        client.read_all(&moves),
        client.read_all(&drained),
        client.get(epoch.as_bytes()),
        client.get(cluster.as_bytes()),
    )?;
    let lists = [members.header, moves.header, drained.header];
    for header in lists.into_iter().chain([epoch.header, cluster.header]) {
        if header.cluster_id != whole.header.cluster_id {
            return Err(Error::Invalid("answers of different clusters".to_owned()));
        }
        whole.header.revision = whole.header.revision.min(header.revision);
    }
    whole.kvs.extend(members.kvs);
    whole.kvs.extend(moves.kvs);
    whole.kvs.extend(drained.kvs);
    whole.kvs.extend(epoch.value);
    whole.kvs.extend(cluster.value);
    Ok(whole)
}

/// A watch that ends with its owner.
struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn of_etcd(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(0)
}

/// Requires that a key has not changed since this revision, or does not exist for `None`.
fn is_at(key: &Key, revision: Option<u64>) -> Compare {
    Compare::ModRevision(key.text().into_bytes(), of_etcd(revision.unwrap_or(0)))
}

/// Writes a key if all comparisons hold.
async fn put(client: &Client, compares: Vec<Compare>, key: &Key, value: Vec<u8>) -> StoreAnswer {
    let key = key.text().into_bytes();
    let txn = Txn {
        compares,
        then: vec![Op::Put {
            key,
            value,
            lease: 0,
        }],
        otherwise: Vec::new(),
    };
    let answer = match client.txn(&txn).await {
        Ok(answer) => answer,
        Err(error) => return failed(&error),
    };
    let cluster_id = answer.header.cluster_id;
    let revision = revision(answer.header.revision);
    match answer.succeeded {
        true => StoreAnswer::Written {
            cluster_id,
            revision,
        },
        false => StoreAnswer::Conflict {
            cluster_id,
            revision,
        },
    }
}

fn failed(error: &Error) -> StoreAnswer {
    tracing::debug!("cluster: etcd: {error}");
    match error {
        Error::Full => StoreAnswer::Full,
        error => StoreAnswer::Unreachable(error.to_string()),
    }
}

/// The state of this member that its key follows.
#[derive(Clone)]
pub struct Keeper {
    pub id: MemberId,
    pub presence: Arc<watch::Sender<Presence>>,
}

impl Keeper {
    fn drain(&self, is_drained: bool) {
        let has_changed = self.presence.send_if_modified(|presence| {
            std::mem::replace(&mut presence.is_drained, is_drained) != is_drained
        });
        match (has_changed, is_drained) {
            (true, true) => tracing::info!(
                "cluster: drained: this member serves nothing until auster cluster drain --undo"
            ),
            (true, false) => tracing::info!("cluster: no longer drained"),
            (false, _) => {}
        }
    }
}

/// Reports the changes from a revision on, until the watch ends.
async fn follow(client: Client, from: i64, keeper: Keeper, handle: Handle) {
    let began = tokio::time::Instant::now();
    if let Ok(mut watch) = client.watch(PREFIX.as_bytes(), from).await {
        loop {
            match watch.next().await {
                Notice::Changes(header, changes) => {
                    let cluster_id = header.cluster_id;
                    let drains = |change| documents::drains(change, &keeper.id);
                    if let Some(is_drained) = changes.iter().filter_map(drains).next_back() {
                        keeper.drain(is_drained);
                    }
                    let changes: Vec<StoreChange> = changes
                        .iter()
                        .filter_map(documents::change)
                        .map(|(revision, changed)| StoreChange {
                            cluster_id,
                            revision,
                            changed,
                        })
                        .collect();
                    handle
                        .cluster(move |cluster, now| {
                            for change in changes {
                                cluster.handle_store_change(now, change);
                            }
                        })
                        .await;
                }
                Notice::Progress(_) => {}
                Notice::ReadAnew(lost) => {
                    tracing::info!("cluster: reading etcd anew: {lost:?}");
                    break;
                }
            }
        }
    }
    // Without this pause, a watch that ends at once would cause one full read after another.
    if began.elapsed() < WATCH_MIN {
        sleep(WATCH_MIN).await;
    }
    handle
        .cluster(|cluster, now| cluster.handle_watch_lost(now))
        .await;
}

/// This member, as it registers itself in etcd.
pub struct Own {
    pub cluster: Identity,
    pub id: MemberId,
    /// The address that the other members dial.
    pub address: String,
}

/// The state that this member's key shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// It reaches switches.
    pub reaches: bool,
    /// It hands its switches over, and takes no more.
    pub is_leaving: bool,
    /// It does the same until the operator undoes the drain.
    pub is_drained: bool,
    /// It no longer serves any switches: its key and lease are removed.
    pub is_gone: bool,
    /// It knows the requests of the API; a member without them would undo them on the switches.
    pub has_intent: bool,
    /// etcd has a schema that it does not read.
    pub is_too_old: bool,
    /// It hears no majority of the members. Its key reports it as not ready. If it serves, it
    /// continues until another member has the switches.
    pub is_deaf: bool,
}

impl Presence {
    pub fn is_ready(self) -> bool {
        let may_serve = !self.is_leaving && !self.is_drained && !self.is_too_old;
        self.reaches && self.has_intent && may_serve
    }
}

/// Maintains this member's key on a lease, until the task is aborted or the member has left. The
/// cluster learns that the member is ready once the key says so.
pub async fn keep_member(
    client: Client,
    member: Own,
    keeper: Keeper,
    named: watch::Sender<bool>,
    handle: Handle,
) {
    let mut presence = keeper.presence.subscribe();
    let mut problems = Problems::default();
    let mut lease = None;
    loop {
        let now = *presence.borrow_and_update();
        if now.is_gone {
            if let Some(lease) = lease {
                let _ = client.lease_revoke(lease).await;
            }
            return;
        }
        let kept = keep(&client, &member, lease, &keeper, &handle).await;
        let pause = match kept {
            Ok(kept) => {
                problems.over();
                lease = Some(kept);
                named.send_replace(true);
                let now = *presence.borrow();
                handle
                    .cluster(move |cluster, at| cluster.set_ready(at, now.is_ready()))
                    .await;
                KEEP_ALIVE
            }
            Err(problem) => {
                if problem.is_lease_gone {
                    lease = None;
                }
                problems.tell(&problem.text);
                handle
                    .cluster(move |cluster, _| cluster.note_store_problem(&problem.text))
                    .await;
                AGAIN
            }
        };
        let _ = timeout(pause, presence.changed()).await;
    }
}

/// The reason why a key could not be written or renewed.
struct Problem {
    is_lease_gone: bool,
    text: String,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem {
            is_lease_gone: matches!(error, Error::LeaseNotFound),
            text: format!("etcd: {error}"),
        }
    }
}

/// Takes the key or renews it. Reads the operator's drain request first: a drained member is never
/// ready.
async fn keep(
    client: &Client,
    member: &Own,
    lease: Option<i64>,
    keeper: &Keeper,
    handle: &Handle,
) -> Result<i64, Problem> {
    let drained = Key::Drained(keeper.id.clone()).text();
    keeper.drain(client.get(drained.as_bytes()).await?.value.is_some());
    let heard = handle.application(|application, _| {
        let peers = application
            .cluster()
            .map(Cluster::peers)
            .unwrap_or_default();
        let heard = peers.into_iter().filter(|(_, is_heard)| *is_heard);
        heard.map(|(name, _)| name).collect()
    });
    let heard: BTreeSet<MemberId> = heard.await.unwrap_or_default();
    let text = member_text(&member.address, *keeper.presence.borrow(), &heard);
    match lease {
        None => begin(client, member, &text).await,
        Some(lease) => renew(client, member, lease, &text).await,
    }
}

/// Takes the key, unless another process has it: one with a different address.
async fn begin(client: &Client, member: &Own, text: &[u8]) -> Result<i64, Problem> {
    let Own { id, address, .. } = member;
    identify(client, &member.cluster).await?;
    let key = Key::Member(id.clone()).text();
    let there = client.get(key.as_bytes()).await?.value;
    let (expected, holder) = match &there {
        None => (0, None),
        Some(pair) => (pair.mod_revision, documents::member(&pair.value)),
    };
    if let Some(other) = holder.filter(|holder| holder.address != *address) {
        let text = format!(
            "another member is named {id} too, at {}: give one of them another name in [cluster]; \
             standing by until its key is gone",
            other.address
        );
        return Err(Problem {
            is_lease_gone: false,
            text,
        });
    }
    let lease = client.lease_grant(LEASE_S).await?;
    match client.cas(key.as_bytes(), expected, text, lease.id).await? {
        // From now on the schema cannot be raised past this member, but another member may have
        // raised it before.
        Cas::Won(_) => match identify(client, &member.cluster).await {
            Ok(()) => Ok(lease.id),
            Err(problem) => {
                let _ = client.lease_revoke(lease.id).await;
                Err(problem)
            }
        },
        Cas::LostTo(..) => {
            let _ = client.lease_revoke(lease.id).await;
            Err(Problem {
                is_lease_gone: true,
                text: format!("the key of member {id} changes meanwhile"),
            })
        }
    }
}

/// Checks that the prefix belongs to this cluster, and claims it if it belongs to none.
async fn identify(client: &Client, ours: &Identity) -> Result<(), Problem> {
    let key = documents::IDENTITY.as_bytes();
    let there = match client.get(key).await?.value {
        Some(pair) => Some(pair),
        None => match client
            .cas(key, 0, &documents::identity_text(ours), 0)
            .await?
        {
            Cas::Won(_) => None,
            Cas::LostTo(_, pair) => pair,
        },
    };
    let compared = there.map_or(Ok(()), |pair| documents::compare(ours, &pair.value));
    compared.map_err(|text| Problem {
        is_lease_gone: false,
        text,
    })
}

async fn renew(client: &Client, member: &Own, lease: i64, text: &[u8]) -> Result<i64, Problem> {
    let Own { id, .. } = member;
    client.lease_keep_alive(lease).await?;
    let key = Key::Member(id.clone()).text();
    let there = client.get(key.as_bytes()).await?.value;
    if there.is_none_or(|pair| pair.value != text || pair.lease != lease) {
        client.put(key.as_bytes(), text, lease).await?;
    }
    Ok(lease)
}

fn member_text(address: &str, presence: Presence, hears: &BTreeSet<MemberId>) -> Vec<u8> {
    let member = Member {
        address: address.to_owned(),
        is_ready: presence.is_ready() && !presence.is_deaf,
        reads: documents::SCHEMA,
    };
    documents::member_text(&member, hears)
}

/// Logs each problem once, and when etcd answers again.
#[derive(Default)]
struct Problems {
    told: Option<String>,
}

impl Problems {
    fn tell(&mut self, problem: &str) {
        // The rest of the text names a different etcd member each time.
        let kind = problem.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
        if self.told.as_ref() != Some(&kind) {
            tracing::warn!("cluster: {problem}; trying again");
        }
        self.told = Some(kind);
    }

    fn over(&mut self) {
        if self.told.take().is_some() {
            tracing::info!("cluster: etcd answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_lose_deletions_are_old() {
        for old in [
            "2.3.8",
            "3.3.25",
            "3.4.23",
            "3.4.35",
            "3.5.0",
            "3.5.17",
            "3.5.9-pre",
        ] {
            assert!(is_old(old), "{old}");
        }
        for good in [
            "3.4.36",
            "3.5.18",
            "3.5.21+git",
            "3.6.0",
            "3.6.0-rc.1",
            "4.0.0",
            "",
            "x",
        ] {
            assert!(!is_old(good), "{good}");
        }
    }
}
