//! A hash table from a pair of numbers to a place. Once warmed up it allocates nothing. It has no
//! random seed, so that the same input gives the same output on any machine.

use super::slab::{Id, NIL};

/// Slots of an empty table. A power of two.
const SLOTS_MIN: usize = 16;

/// Open addressing, linear probing, at most half full.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: (Id, u64),
    /// `NIL` where the slot is empty.
    id: Id,
}

const EMPTY: Slot = Slot {
    key: (NIL, 0),
    id: NIL,
};

impl Default for Table {
    fn default() -> Table {
        Table {
            slots: vec![EMPTY; SLOTS_MIN],
            len: 0,
        }
    }
}

impl Table {
    pub(super) fn get(&self, key: (Id, u64)) -> Option<Id> {
        let slot = &self.slots[self.find(key)];
        (slot.id != NIL).then_some(slot.id)
    }

    /// Inserts `id` under `key`, which was not in the table.
    pub(super) fn insert(&mut self, key: (Id, u64), id: Id) {
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow();
        }
        let at = self.find(key);
        debug_assert_eq!(self.slots[at].id, NIL, "a key is there once");
        self.slots[at] = Slot { key, id };
        self.len += 1;
    }

    /// Removes `key`, which is in the table, and closes the gap so that probing needs no
    /// tombstones.
    pub(super) fn remove(&mut self, key: (Id, u64)) {
        let mask = self.slots.len() - 1;
        let mut gap = self.find(key);
        debug_assert_ne!(self.slots[gap].id, NIL, "the key is there");
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            if self.slots[at].id == NIL {
                break;
            }
            let from_home = at.wrapping_sub(self.home(self.slots[at].key)) & mask;
            let from_gap = at.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
        }
        self.slots[gap] = EMPTY;
        self.len -= 1;
    }

    /// Returns the slot of `key`, or the empty slot where it would be.
    fn find(&self, key: (Id, u64)) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while self.slots[at].id != NIL && self.slots[at].key != key {
            at = (at + 1) & mask;
        }
        at
    }

    fn home(&self, (owner, key): (Id, u64)) -> usize {
        // The finalizer of a well-known 64-bit mixer: keys may be small numbers or hashes.
        let mut x = key ^ u64::from(owner).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (x ^ (x >> 32)) as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        let wider = vec![EMPTY; 2 * self.slots.len()];
        let slots = std::mem::replace(&mut self.slots, wider);
        for slot in slots.into_iter().filter(|slot| slot.id != NIL) {
            let at = self.find(slot.key);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(
            ops in proptest::collection::vec((0u32..3, 0u64..40, any::<bool>()), 1..400),
        ) {
            let mut table = Table::default();
            let mut map = BTreeMap::new();
            for (n, (owner, key, adds)) in ops.into_iter().enumerate() {
                let key = (owner, key);
                if adds && !map.contains_key(&key) {
                    table.insert(key, n as Id);
                    map.insert(key, n as Id);
                } else if !adds && map.remove(&key).is_some() {
                    table.remove(key);
                }
                for owner in 0..3 {
                    for k in 0..40 {
                        prop_assert_eq!(table.get((owner, k)), map.get(&(owner, k)).copied());
                    }
                }
            }
        }
    }
}
