//! A map from MAC addresses. Each slot has six bytes of key and the value.
//!
//! The controller knows every host of the network, and each edge knows the hosts of its switch: a
//! hundred thousand and more. The slots take most of that memory. The map uses open addressing with
//! linear probing, and at most four of five slots are taken. Deletion shifts entries back (so no
//! tombstones and no rebuilding). The order of iteration depends on the seed only.

use openflow::MacAddr;

use clock::mix;

/// A map from MAC addresses to a small `V`, for which all zeros is a valid value. The address
/// 00:00:00:00:00:00, which no host has, cannot be a key: it is never found, and inserting it
/// changes nothing.
#[derive(Clone)]
pub(crate) struct MacTable<V> {
    /// Empty, or a power of two.
    slots: Vec<Slot<V>>,
    len: usize,
    seed: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot<V> {
    key: [u8; 6],
    value: V,
}

const SLOTS_MIN: usize = 8;

impl<V: Copy + Default> MacTable<V> {
    /// Makes an empty map. With a secret `seed` nobody can choose addresses that collide.
    pub(crate) fn new(seed: u64) -> MacTable<V> {
        MacTable {
            slots: Vec::new(),
            len: 0,
            seed,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, mac: MacAddr) -> Option<V> {
        self.find(mac).map(|at| self.slots[at].value)
    }

    /// Prefetches into the cache the slot where the search for `mac` begins, without waiting.
    #[inline]
    pub(crate) fn prefetch(&self, mac: MacAddr) {
        if !self.slots.is_empty() {
            prefetch(&self.slots[self.place(mac.0)]);
        }
    }

    /// Sets a value, and returns the former one.
    pub(crate) fn insert(&mut self, mac: MacAddr, value: V) -> Option<V> {
        if mac == MacAddr::default() {
            return None;
        }
        if let Some(at) = self.find(mac) {
            return Some(std::mem::replace(&mut self.slots[at].value, value));
        }
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN));
        }
        self.put(Slot { key: mac.0, value });
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, mac: MacAddr) -> Option<V> {
        let mut hole = self.find(mac)?;
        let removed = self.slots[hole].value;
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.is_empty() {
                break;
            }
            // The slot may move into the hole if the hole is not before the slot's own place.
            let home = self.place(slot.key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
        self.len -= 1;
        Some(removed)
    }

    /// Keeps the hosts for which `keep` returns true, and frees memory if few are left.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(MacAddr, &V) -> bool) {
        let gone: Vec<MacAddr> = self
            .iter()
            .filter(|(mac, value)| !keep(*mac, value))
            .map(|(mac, _)| mac)
            .collect();
        for mac in gone {
            self.remove(mac);
        }
        if self.len * 8 < self.slots.len() {
            let wanted = (self.len * 2).next_power_of_two().max(SLOTS_MIN);
            self.resize(if self.len == 0 { 0 } else { wanted });
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MacAddr, V)> {
        let taken = self.slots.iter().filter(|slot| !slot.is_empty());
        taken.map(|slot| (MacAddr(slot.key), slot.value))
    }

    #[inline]
    fn find(&self, mac: MacAddr) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.place(mac.0);
        loop {
            let slot = &self.slots[at];
            if slot.key == mac.0 && !slot.is_empty() {
                return Some(at);
            }
            if slot.is_empty() {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    fn put(&mut self, new: Slot<V>) {
        let mask = self.slots.len() - 1;
        let mut at = self.place(new.key);
        while !self.slots[at].is_empty() {
            at = (at + 1) & mask;
        }
        self.slots[at] = new;
    }

    #[inline]
    fn place(&self, key: [u8; 6]) -> usize {
        let hash = mix(MacAddr(key).to_u64() ^ self.seed);
        hash as usize & (self.slots.len() - 1)
    }

    fn resize(&mut self, slots: usize) {
        let empty = vec![Slot::default(); slots];
        let old = std::mem::replace(&mut self.slots, empty);
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            self.put(slot);
        }
    }
}

impl<V> Slot<V> {
    fn is_empty(&self) -> bool {
        self.key == [0; 6]
    }
}

/// Does nothing where the processor has no prefetch instruction, or is not known.
#[inline]
fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // The instruction reads nothing and cannot fault; the reference proves that the address is
        // valid.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(u8, u16),
        Remove(u8),
        RetainEven,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            6 => (1..u8::MAX, any::<u16>()).prop_map(|(k, v)| Operation::Insert(k, v)),
            5 => (1..u8::MAX).prop_map(Operation::Remove),
            1 => Just(Operation::RetainEven),
        ]
    }

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, n, 0])
    }

    proptest! {
        #[test]
        fn it_is_a_map(seed: u64, operations in prop::collection::vec(operation(), 0..600)) {
            let mut table = MacTable::new(seed);
            let mut model = BTreeMap::new();
            for operation in operations {
                match operation {
                    Operation::Insert(k, v) => {
                        prop_assert_eq!(table.insert(mac(k), v), model.insert(mac(k), v));
                    }
                    Operation::Remove(k) => {
                        prop_assert_eq!(table.remove(mac(k)), model.remove(&mac(k)));
                    }
                    Operation::RetainEven => {
                        table.retain(|_, v| v % 2 == 0);
                        model.retain(|_, v| *v % 2 == 0);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for k in 1..u8::MAX {
                prop_assert_eq!(table.get(mac(k)), model.get(&mac(k)).copied());
            }
            let all: BTreeMap<_, _> = table.iter().collect();
            prop_assert_eq!(all, model);
        }
    }

    #[test]
    fn the_address_that_no_host_has_changes_nothing() {
        let mut table = MacTable::new(7);
        assert_eq!(table.insert(MacAddr::default(), 1), None);
        assert_eq!((table.len(), table.get(MacAddr::default())), (0, None));
        table.insert(mac(1), 2);
        assert_eq!(table.insert(MacAddr::default(), 1), None);
        assert_eq!(table.remove(MacAddr::default()), None);
        assert_eq!((table.len(), table.get(mac(1))), (1, Some(2)));
    }

    #[test]
    fn a_hundred_thousand_addresses_take_eight_bytes_and_a_fifth_more_each() {
        let mut table: MacTable<[u8; 2]> = MacTable::new(7);
        for n in 1..=100_000u64 {
            table.insert(MacAddr::from_u64(n), [0; 2]);
        }
        assert_eq!(size_of::<Slot<[u8; 2]>>(), 8);
        assert_eq!(table.slots.len(), 1 << 17);
    }
}
