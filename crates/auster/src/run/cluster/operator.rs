//! The cluster as an operator sees it in etcd, and the requests that an operator writes there.

use std::collections::BTreeSet;

use cli::failure::Failure;
use control::cluster::{MemberId, Move, ShardId, Snapshot};
use etcd::Client;

use super::documents::{self, Key};
use super::store;

/// All switches are one shard so far.
pub const SHARD: ShardId = ShardId(0);

/// The cluster as etcd has it.
#[derive(Debug, Default)]
pub struct View {
    pub snapshot: Snapshot,
    pub drained: BTreeSet<MemberId>,
}

impl View {
    pub async fn read(etcd: &Client) -> Result<View, Failure> {
        let read = store::read(etcd).await.map_err(failed)?;
        Ok(View {
            snapshot: documents::snapshot(&read),
            drained: documents::drained(&read),
        })
    }

    /// The order of the members that serve the switches.
    pub fn order(&self) -> &[MemberId] {
        let own = self.snapshot.own.get(&SHARD);
        own.map_or(&[], |own| own.order.places())
    }

    /// The members of the order and those that have a key, by name.
    pub fn names(&self) -> BTreeSet<&MemberId> {
        self.snapshot.members.keys().chain(self.order()).collect()
    }

    /// Whether a member reaches switches, and may serve them.
    pub fn is_ready(&self, name: &MemberId) -> bool {
        let member = self.snapshot.members.get(name);
        member.is_some_and(|member| member.is_ready)
    }
}

/// A request to move all switches. It ends with its lease.
pub struct Asked {
    lease: i64,
    /// The order that is to be replaced.
    pub revision: u64,
}

impl Asked {
    pub async fn write(
        etcd: &Client,
        to: &MemberId,
        revision: u64,
        seconds: u32,
    ) -> Result<Asked, Failure> {
        let lease = etcd.lease_grant(seconds).await.map_err(failed)?.id;
        let asked = Move {
            to: to.clone(),
            revision,
        };
        let key = Key::Move(SHARD).text();
        let text = documents::move_text(&asked);
        let put = etcd.put(key.as_bytes(), &text, lease).await;
        put.map_err(failed)?;
        Ok(Asked { lease, revision })
    }

    /// Takes it back, if nobody has carried it out.
    pub async fn end(self, etcd: &Client) {
        let _ = etcd.lease_revoke(self.lease).await;
    }
}

/// Drains a member, or undoes it.
pub async fn set_drained(etcd: &Client, name: &MemberId, is_drained: bool) -> Result<(), Failure> {
    let key = Key::Drained(name.clone()).text();
    let done = match is_drained {
        true => etcd
            .put(key.as_bytes(), &documents::drained_text(), 0)
            .await
            .map(drop),
        false => etcd.delete(key.as_bytes()).await.map(drop),
    };
    done.map_err(failed)
}

fn failed(error: etcd::Error) -> Failure {
    Failure::network(format!("etcd: {error}"))
}
