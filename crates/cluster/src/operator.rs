//! The cluster as an operator sees it in etcd, and the requests that an operator writes there.

use std::collections::{BTreeMap, BTreeSet};

use cli::failure::Failure;
use control::cluster::{Member, MemberId, Move, Order, Own, ShardId, Snapshot};
use etcd::Client;
use serde_json::Value;

use super::documents::{self, Key};
use super::store;

/// All switches are one shard so far.
pub const SHARD: ShardId = ShardId(0);

/// The cluster as etcd has it.
#[derive(Debug, Default)]
pub struct View {
    pub snapshot: Snapshot,
    pub drained: BTreeSet<MemberId>,
    /// The members that each member reports hearing.
    pub hears: BTreeMap<MemberId, BTreeSet<MemberId>>,
}

impl View {
    pub async fn read(etcd: &Client) -> Result<View, Failure> {
        let read = store::read(etcd).await.map_err(failed)?;
        Ok(View {
            snapshot: documents::snapshot(&read),
            drained: documents::drained(&read),
            hears: documents::hears(&read),
        })
    }

    /// Reads the cluster as a member knows it, from the member's status document.
    pub fn of_status(status: &Value) -> Option<View> {
        let known = status["cluster"]["known"].as_object()?;
        let name = |value: &Value| MemberId::new(value.as_str()?);
        let names = |value: &Value| -> Option<Vec<MemberId>> {
            value.as_array()?.iter().map(name).collect()
        };
        let order = Order::new(known.get("order").and_then(names).unwrap_or_default())?;
        let mut view = View::default();
        view.snapshot.own.insert(SHARD, Own { order, revision: 0 });
        for member in known.get("members")?.as_array()? {
            let id = name(&member["name"])?;
            if let Some(hears) = names(&member["hears"]) {
                view.hears.insert(id.clone(), hears.into_iter().collect());
            }
            let member = Member {
                address: member["address"].as_str()?.to_owned(),
                is_ready: member["ready"].as_bool()?,
                reads: documents::SCHEMA,
            };
            view.snapshot.members.insert(id, member);
        }
        Some(view)
    }

    /// The order of the members that serve the switches.
    pub fn order(&self) -> &[MemberId] {
        let own = self.snapshot.own.get(&SHARD);
        own.map_or(&[], |own| own.order.places())
    }

    /// Returns the members of the order and the members with a key, by name.
    pub fn names(&self) -> BTreeSet<&MemberId> {
        self.snapshot.members.keys().chain(self.order()).collect()
    }

    /// Returns the members that hear the member `name`; `None` if no member reports whom it hears.
    pub fn heard_by(&self, name: &MemberId) -> Option<Vec<&str>> {
        let hears = |(_, hears): &(&MemberId, &BTreeSet<MemberId>)| hears.contains(name);
        let by = self.hears.iter().filter(hears).map(|(by, _)| by.as_str());
        (!self.hears.is_empty()).then(|| by.collect())
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

    /// Withdraws the request, if nobody has carried it out.
    pub async fn end(self, etcd: &Client) {
        let _ = etcd.lease_revoke(self.lease).await;
    }
}

/// Drains a member, or undoes the drain.
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
