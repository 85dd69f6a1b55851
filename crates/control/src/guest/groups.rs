//! The groups of a guest, as the guest has stated them.
//!
//! A group has no cookie, so its number in the switch names its guest:
//!
//! ```text
//! 31       20 19    16 15     0
//! |  0x618  |  guest  | number |
//! ```
//!
//! Groups may lead to groups. The number of buckets that one packet meets this way is bounded.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{GroupMod, GroupModCommand, GroupType};
use openflow::{Action, Bucket, ErrorKind, GroupId};

use super::numbered::{Numbered, Stated};

/// Groups that a guest may have at one switch.
pub(super) const GROUPS_MAX: usize = 256;
pub(super) const BUCKETS_MAX: usize = 64;
/// Buckets that one packet may meet, through all groups that follow each other.
const MET_MAX: usize = 1024;

const FIRST: u32 = 0x6180_0000;
const MASK: u32 = 0xfff0_0000;

pub(super) fn switch_id(guest: u8, number: u16) -> GroupId {
    GroupId(FIRST | u32::from(guest) << 16 | u32::from(number))
}

/// The guest and the number of a group in a switch.
pub(crate) fn of_group(id: GroupId) -> Option<(u8, u16)> {
    let is_its = id.0 & MASK == FIRST;
    is_its.then_some(((id.0 >> 16 & 0xf) as u8, id.0 as u16))
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub group_type: GroupType,
    pub buckets: Vec<Bucket>,
    /// The groups that its buckets lead to.
    leads: Vec<GroupId>,
}

impl Stated for Group {
    const NONE: u16 = u16::MAX;
}

impl Group {
    pub fn new(group_type: GroupType, buckets: &[Bucket]) -> Group {
        Group {
            group_type,
            buckets: buckets.to_vec(),
            leads: led_to(buckets),
        }
    }
}

pub(super) type Groups = Numbered<GroupId, Group>;

impl Groups {
    /// The number of groups and buckets, which take room as entries do.
    pub fn size(&self) -> usize {
        self.iter().map(|(_, group)| 1 + group.buckets.len()).sum()
    }

    /// The number of a group in the switch.
    pub fn in_switch(&self, guest: u8, id: GroupId) -> GroupId {
        match id {
            GroupId::ANY => id,
            id => switch_id(guest, self.number(id)),
        }
    }

    /// Checks whether ADD and MODIFY fit among the groups that are there.
    ///
    /// # Errors
    /// The OFPGMFC_* or OFPBAC_* to answer.
    pub fn check(&self, asked: &GroupMod) -> Result<(), ErrorKind> {
        let is_there = self.get(asked.group_id).is_some();
        let leads = led_to(&asked.buckets);
        let new = (asked.group_id, asked.buckets.len(), &leads[..]);
        let mut met = BTreeMap::from([(asked.group_id, None)]);
        for next in &leads {
            if !(self.get(*next).is_some() || *next == asked.group_id) {
                return Err(ErrorKind::ACTION_BAD_OUT_GROUP);
            }
            self.met(*next, new, &mut met)?;
        }
        met.remove(&asked.group_id);
        let others = self.ids().into_iter().filter(|_| is_there);
        for id in others.chain([asked.group_id]) {
            if self.met(id, new, &mut met)? > MET_MAX {
                return Err(ErrorKind::GROUP_OUT_OF_BUCKETS);
            }
        }
        match asked.command {
            GroupModCommand::Add if is_there => Err(ErrorKind::GROUP_EXISTS),
            GroupModCommand::Add if self.len() >= GROUPS_MAX => Err(ErrorKind::GROUP_OUT_OF_GROUPS),
            GroupModCommand::Modify if !is_there => Err(ErrorKind::GROUP_UNKNOWN_GROUP),
            _ => Ok(()),
        }
    }

    /// The number of buckets that a packet may meet in a group and behind it, once the group in
    /// `new` is as stated.
    fn met(
        &self,
        id: GroupId,
        new: (GroupId, usize, &[GroupId]),
        known: &mut BTreeMap<GroupId, Option<usize>>,
    ) -> Result<usize, ErrorKind> {
        match known.get(&id) {
            Some(Some(met)) => return Ok(*met),
            Some(None) => return Err(ErrorKind::GROUP_LOOP),
            None => {}
        }
        let (buckets, leads) = match self.get(id) {
            _ if new.0 == id => (new.1, new.2),
            Some(group) => (group.buckets.len(), &group.leads[..]),
            None => (0, &[][..]),
        };
        known.insert(id, None);
        let mut sum = buckets;
        for next in leads {
            // The hop there counts as well: a packet takes it each time.
            sum = sum.saturating_add(1 + self.met(*next, new, known)?);
        }
        known.insert(id, Some(sum));
        Ok(sum)
    }

    pub fn is_led_to(&self, id: GroupId) -> bool {
        self.iter().any(|(_, group)| group.leads.contains(&id))
    }

    /// The groups that no longer fit among the others after the switch has refused a change of this
    /// one, and all groups that lead to them.
    pub fn unfit(&self, refused: GroupId) -> Vec<GroupId> {
        let leaders = |id: GroupId| {
            let leads = move |(_, group): &(GroupId, &Group)| group.leads.contains(&id);
            self.iter().filter(leads).map(|(leader, _)| leader)
        };
        let mut unfit: Vec<GroupId> = match self.get(refused) {
            Some(group) => {
                let (command, buckets) = (GroupModCommand::Modify, group.buckets.clone());
                let same = GroupMod::new(command, group.group_type, refused, buckets);
                match self.check(&same) {
                    Ok(()) => Vec::new(),
                    Err(_) => vec![refused],
                }
            }
            None => leaders(refused).collect(),
        };
        let mut at = 0;
        while let Some(id) = unfit.get(at).copied() {
            at += 1;
            let more: Vec<GroupId> = leaders(id).filter(|it| !unfit.contains(it)).collect();
            unfit.extend(more);
        }
        unfit
    }

    /// The number of groups that lead to each group.
    pub fn leaders(&self) -> BTreeMap<GroupId, u32> {
        let mut count = BTreeMap::new();
        for id in self.iter().flat_map(|(_, group)| &group.leads) {
            *count.entry(*id).or_default() += 1;
        }
        count
    }

    /// All groups, each before those that it leads to.
    pub fn in_order(&self) -> Vec<GroupId> {
        let mut leaders = self.leaders();
        let mut order = self.ids();
        order.retain(|id| !leaders.contains_key(id));
        let mut at = 0;
        while let Some(group) = order.get(at).and_then(|id| self.get(*id)) {
            at += 1;
            for next in &group.leads {
                if let Some(count) = leaders.get_mut(next) {
                    *count -= 1;
                    if *count == 0 {
                        order.push(*next);
                    }
                }
            }
        }
        order
    }

    /// These groups and all groups behind them, each after those that it leads to.
    pub fn behind(&self, ids: impl Iterator<Item = GroupId>) -> Vec<GroupId> {
        let mut wanted: BTreeSet<GroupId> = ids.collect();
        let mut order = Vec::new();
        for id in self.in_order() {
            if wanted.contains(&id) {
                order.push(id);
                wanted.extend(self.get(id).into_iter().flat_map(|it| &it.leads));
            }
        }
        order.reverse();
        order
    }
}

pub(super) fn groups_in(actions: &[Action]) -> impl Iterator<Item = GroupId> {
    actions.iter().filter_map(|action| match action {
        Action::Group(id) => Some(*id),
        _ => None,
    })
}

fn led_to(buckets: &[Bucket]) -> Vec<GroupId> {
    let all = buckets.iter().flat_map(|bucket| groups_in(&bucket.actions));
    all.collect()
}

#[cfg(test)]
mod tests {
    use clock::Instant;
    use openflow::PortNo;

    use super::*;
    use crate::fabric::form;

    fn put(groups: &mut Groups, asked: &GroupMod) {
        let group = Group::new(asked.group_type, &asked.buckets);
        let _ = groups.add(Instant::START, asked.group_id, group);
    }

    fn leading(command: GroupModCommand, id: u32, to: &[u32]) -> GroupMod {
        let bucket = |to: &u32| Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions: vec![Action::Group(GroupId(*to))],
            bucket_id: None,
            properties: Vec::new(),
        };
        let buckets = to.iter().map(bucket).collect();
        GroupMod::new(command, GroupType::All, GroupId(id), buckets)
    }

    #[test]
    fn a_number_names_its_guest_and_is_no_other_kinds() {
        for (guest, number) in [(0, 0), (15, 0xffff), (3, 7)] {
            let id = switch_id(guest, number);
            assert_eq!(of_group(id), Some((guest, number)));
            assert!(!form::is_group(id));
            assert!(!crate::mirror::is_group(id));
            assert!(!crate::flows::parts::PartId::Group(id).is_given());
        }
        for id in [0, 7, 0x6175_0001, 0x6176_0001, 0x6177_0001, 0x6190_0000] {
            assert_eq!(of_group(GroupId(id)), None);
        }
    }

    #[test]
    fn groups_follow_each_other_without_loops_and_within_bounds() {
        use GroupModCommand as C;
        let mut groups = Groups::default();
        for (id, to) in [(1, vec![]), (2, vec![1]), (3, vec![2, 1])] {
            let add = leading(C::Add, id, &to);
            assert_eq!(groups.check(&add), Ok(()));
            put(&mut groups, &add);
        }
        for (id, to, error) in [
            (1, vec![1], ErrorKind::GROUP_LOOP),
            (1, vec![3], ErrorKind::GROUP_LOOP),
            (2, vec![3], ErrorKind::GROUP_LOOP),
            (1, vec![9], ErrorKind::ACTION_BAD_OUT_GROUP),
        ] {
            let asked = leading(C::Modify, id, &to);
            assert_eq!(groups.check(&asked), Err(error), "{id} to {to:?}");
        }
        // The guest's own number may be another guest's in the switch.
        let others = switch_id(1, 0);
        assert_eq!(groups.in_switch(3, others), switch_id(3, Group::NONE));
        assert_eq!(groups.in_switch(3, GroupId::ANY), GroupId::ANY);
        let ids = |ids: &[u32]| ids.iter().copied().map(GroupId).collect::<Vec<_>>();
        assert_eq!(groups.in_order(), ids(&[3, 2, 1]));
        assert_eq!(groups.behind([GroupId(2)].into_iter()), ids(&[1, 2]));
        // Sixty-four buckets each, one behind the other: 64, 64 + 64 * 64.
        for (id, behind) in [(10, 1), (11, 10)] {
            let many = leading(C::Add, id, &[behind; 64]);
            let error = groups.check(&many).err();
            let wanted = (id == 11).then_some(ErrorKind::GROUP_OUT_OF_BUCKETS);
            assert_eq!(error, wanted);
            put(&mut groups, &many);
        }
        // A change far behind counts too.
        let mut groups = Groups::default();
        for (id, to) in [(1, vec![]), (2, vec![1; 64])] {
            put(&mut groups, &leading(C::Add, id, &to));
        }
        put(&mut groups, &leading(C::Add, 3, &[]));
        let far = leading(C::Modify, 1, &[3; 20]);
        assert_eq!(groups.check(&far), Err(ErrorKind::GROUP_OUT_OF_BUCKETS));
        for id in 100..100 + GROUPS_MAX as u32 - 3 {
            put(&mut groups, &leading(C::Add, id, &[]));
        }
        let more = leading(C::Add, 1000, &[]);
        assert_eq!(groups.check(&more), Err(ErrorKind::GROUP_OUT_OF_GROUPS));
    }
}
