//! Groups and meters: what entries may refer to.

use std::collections::{BTreeMap, BTreeSet};

use crate::actions::{Action, Bucket};
use crate::error::ErrorKind;
use crate::message::{GroupMod, GroupModCommand, GroupType, MeterMod, MeterModCommand};
use crate::multipart::GroupDesc;
use crate::types::{GroupId, MeterId, PortNo};
use clock::Instant;

use super::actions;

/// Maximum number of groups in a chain. Loops are refused when a group is set.
pub(super) const GROUP_DEPTH_MAX: usize = 16;

/// Maximum number of buckets in a group.
const BUCKETS_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub group_type: GroupType,
    pub buckets: Vec<Bucket>,
    pub created_at: Instant,
    pub packet_count: u64,
    pub byte_count: u64,
    /// Packets and bytes by bucket.
    pub bucket_counts: Vec<(u64, u64)>,
}

impl Group {
    /// Returns the indices of the SELECT group's buckets that some packet takes.
    pub fn choices(&self, is_live: impl Fn(&Bucket) -> bool) -> Vec<usize> {
        let is_choice = |(_, bucket): &(usize, &Bucket)| bucket.weight > 0 && is_live(bucket);
        let buckets = self.buckets.iter().enumerate().filter(is_choice);
        buckets.map(|(at, _)| at).collect()
    }

    /// Returns the indices of the buckets that a packet takes.
    pub fn choose(&self, flow_key: u64, is_live: impl Fn(&Bucket) -> bool) -> Vec<usize> {
        let all = 0..self.buckets.len();
        let live = |i: &usize| is_live(&self.buckets[*i]);
        match self.group_type {
            GroupType::All => all.collect(),
            GroupType::Indirect => all.take(1).collect(),
            GroupType::FastFailover => all.into_iter().find(live).into_iter().collect(),
            GroupType::Select => {
                let live: Vec<usize> = all.filter(live).collect();
                let weight = |i: &usize| u64::from(self.buckets[*i].weight);
                let total: u64 = live.iter().map(weight).sum();
                let mut at = flow_key.checked_rem(total).unwrap_or(0);
                let chosen = live.into_iter().find(|i| {
                    let here = at < weight(i);
                    at = at.saturating_sub(weight(i));
                    here
                });
                chosen.into_iter().collect()
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    map: BTreeMap<GroupId, Group>,
}

impl Groups {
    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.map.get(&id)
    }

    /// Adds a group as a switch describes it.
    pub fn put(&mut self, description: GroupDesc) {
        let group = Group {
            group_type: description.group_type,
            created_at: Instant::START,
            packet_count: 0,
            byte_count: 0,
            bucket_counts: vec![(0, 0); description.buckets.len()],
            buckets: description.buckets,
        };
        self.map.insert(description.group_id, group);
    }

    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.map.iter().map(|(id, group)| (*id, group))
    }

    /// Carries out `m` and returns the deleted groups.
    pub fn apply(
        &mut self,
        now: Instant,
        m: &GroupMod,
        groups_max: usize,
    ) -> Result<Vec<GroupId>, ErrorKind> {
        let group = || Group {
            group_type: m.group_type,
            bucket_counts: vec![(0, 0); m.buckets.len()],
            buckets: m.buckets.clone(),
            created_at: now,
            packet_count: 0,
            byte_count: 0,
        };
        match m.command {
            GroupModCommand::Add => {
                self.check(m)?;
                if self.map.contains_key(&m.group_id) {
                    return Err(ErrorKind::GROUP_EXISTS);
                }
                if self.map.len() >= groups_max {
                    return Err(ErrorKind::GROUP_OUT_OF_GROUPS);
                }
                self.map.insert(m.group_id, group());
                Ok(Vec::new())
            }
            GroupModCommand::Modify => {
                self.check(m)?;
                let Some(old) = self.map.get_mut(&m.group_id) else {
                    return Err(ErrorKind::GROUP_UNKNOWN_GROUP);
                };
                *old = Group {
                    created_at: old.created_at,
                    packet_count: old.packet_count,
                    byte_count: old.byte_count,
                    ..group()
                };
                Ok(Vec::new())
            }
            GroupModCommand::Delete if m.group_id == GroupId::ALL => {
                Ok(std::mem::take(&mut self.map).into_keys().collect())
            }
            GroupModCommand::Delete => {
                let chained = |g: &Group| references(&g.buckets).any(|id| id == m.group_id);
                if self.map.values().any(chained) {
                    return Err(ErrorKind::GROUP_CHAINED_GROUP);
                }
                let removed = self.map.remove(&m.group_id);
                Ok(removed.map(|_| m.group_id).into_iter().collect())
            }
            GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket => {
                Err(ErrorKind::GROUP_BAD_COMMAND)
            }
        }
    }

    /// Returns the live groups. A bucket that watches nothing is live; otherwise it is live if the
    /// port and group that it watches are. A group is live if one of its buckets is. Groups that
    /// watch nothing but each other are not live. Each bucket is examined once.
    pub fn live(&self, port_is_live: impl Fn(PortNo) -> bool) -> BTreeSet<GroupId> {
        let mut live = Vec::new();
        let mut watchers: BTreeMap<GroupId, Vec<GroupId>> = BTreeMap::new();
        for (id, group) in &self.map {
            let with_port = |b: &&Bucket| b.watch_port == PortNo::ANY || port_is_live(b.watch_port);
            for bucket in group.buckets.iter().filter(with_port) {
                match bucket.watch_group {
                    GroupId::ANY => live.push(*id),
                    watched => watchers.entry(watched).or_default().push(*id),
                }
            }
        }
        let mut all = BTreeSet::new();
        while let Some(id) = live.pop() {
            if all.insert(id) {
                live.extend(watchers.remove(&id).unwrap_or_default());
            }
        }
        all
    }

    pub fn count(&mut self, id: GroupId, buckets: &[usize], len: usize) {
        let Some(group) = self.map.get_mut(&id) else {
            return;
        };
        group.packet_count += 1;
        group.byte_count += len as u64;
        for bucket in buckets {
            group.bucket_counts[*bucket].0 += 1;
            group.bucket_counts[*bucket].1 += len as u64;
        }
    }

    fn check(&self, m: &GroupMod) -> Result<(), ErrorKind> {
        if m.group_id > GroupId::MAX || m.group_type == GroupType::Indirect && m.buckets.len() != 1
        {
            return Err(ErrorKind::GROUP_INVALID);
        }
        if m.buckets.len() > BUCKETS_MAX {
            return Err(ErrorKind::GROUP_OUT_OF_BUCKETS);
        }
        for bucket in &m.buckets {
            let watches = bucket.watch_port != PortNo::ANY || bucket.watch_group != GroupId::ANY;
            if m.group_type == GroupType::FastFailover && !watches {
                return Err(ErrorKind::GROUP_BAD_WATCH);
            }
            actions::check(&bucket.actions, None)?;
        }
        for next in references(&m.buckets) {
            if next != m.group_id && self.get(next).is_none() {
                return Err(ErrorKind::ACTION_BAD_OUT_GROUP);
            }
            if self.reaches(next, m.group_id, 0) {
                return Err(ErrorKind::GROUP_LOOP);
            }
        }
        Ok(())
    }

    /// Reports whether `wanted` is `from` or is reached from it, or the chain is too long to
    /// decide.
    fn reaches(&self, from: GroupId, wanted: GroupId, depth: usize) -> bool {
        from == wanted
            || depth >= GROUP_DEPTH_MAX
            || self.get(from).is_some_and(|g| {
                references(&g.buckets).any(|next| self.reaches(next, wanted, depth + 1))
            })
    }
}

fn references(buckets: &[Bucket]) -> impl Iterator<Item = GroupId> {
    buckets
        .iter()
        .flat_map(|b| &b.actions)
        .filter_map(|a| match a {
            Action::Group(id) => Some(*id),
            _ => None,
        })
}

/// A meter. It counts packets and lets all of them pass: rates are for a model with queues.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    pub config: MeterMod,
    pub created_at: Instant,
    pub packet_count: u64,
    pub byte_count: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Meters {
    map: BTreeMap<MeterId, Meter>,
}

impl Meters {
    pub fn get(&self, id: MeterId) -> Option<&Meter> {
        self.map.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (MeterId, &Meter)> {
        self.map.iter().map(|(id, meter)| (*id, meter))
    }

    /// Carries out `m` and returns the deleted meters.
    pub fn apply(
        &mut self,
        now: Instant,
        m: &MeterMod,
        meters_max: usize,
    ) -> Result<Vec<MeterId>, ErrorKind> {
        let ordinary = m.meter_id != MeterId(0) && m.meter_id <= MeterId::MAX;
        match m.command {
            MeterModCommand::Delete if m.meter_id == MeterId::ALL => {
                return Ok(std::mem::take(&mut self.map).into_keys().collect());
            }
            _ if !ordinary => return Err(ErrorKind::METER_INVALID),
            MeterModCommand::Delete => {
                let removed = self.map.remove(&m.meter_id);
                return Ok(removed.map(|_| m.meter_id).into_iter().collect());
            }
            MeterModCommand::Add => {
                if self.map.contains_key(&m.meter_id) {
                    return Err(ErrorKind::METER_EXISTS);
                }
                if self.map.len() >= meters_max {
                    return Err(ErrorKind::METER_OUT_OF_METERS);
                }
                let meter = Meter {
                    config: m.clone(),
                    created_at: now,
                    packet_count: 0,
                    byte_count: 0,
                };
                self.map.insert(m.meter_id, meter);
            }
            MeterModCommand::Modify => match self.map.get_mut(&m.meter_id) {
                Some(meter) => meter.config = m.clone(),
                None => return Err(ErrorKind::METER_UNKNOWN_METER),
            },
        }
        Ok(Vec::new())
    }

    pub fn count(&mut self, id: MeterId, len: usize) {
        if let Some(meter) = self.map.get_mut(&id) {
            meter.packet_count += 1;
            meter.byte_count += len as u64;
        }
    }
}
