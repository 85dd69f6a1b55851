//! A map with all values in one vector, found by a hash of their keys.
//!
//! The controller keeps a record of every path and of every entry: hundreds of thousands, each read
//! several times while it is set. Values are in the order of their insertion, but the last value
//! takes the place of a removed value. So the order does not depend on the hash, and the hash can
//! have a secret seed, so that nobody can choose keys that collide.

use clock::mix;
use hashbrown::HashTable;

/// A value that has its own key.
pub(crate) trait Keyed {
    type Key: Copy + Eq;

    fn key(&self) -> Self::Key;

    /// Returns the whole key in few words, the same for equal keys.
    fn words(key: Self::Key) -> [u64; 2];
}

pub(crate) struct Indexed<V> {
    values: Vec<V>,
    /// The place of each value.
    places: HashTable<u32>,
    seed: u64,
}

/// The map shrinks when it has room for more than this many times its values.
const ROOM_MAX: usize = 8;
const ROOM_MIN: usize = 64;

fn hash<V: Keyed>(seed: u64, key: V::Key) -> u64 {
    let [first, second] = V::words(key);
    mix(mix(seed ^ first) ^ second)
}

impl<V: Keyed> Indexed<V> {
    pub(crate) fn new(seed: u64) -> Indexed<V> {
        Indexed {
            values: Vec::new(),
            places: HashTable::new(),
            seed,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, key: V::Key) -> Option<&V> {
        self.place(key).map(|at| &self.values[at])
    }

    pub(crate) fn get_mut(&mut self, key: V::Key) -> Option<&mut V> {
        self.place(key).map(|at| &mut self.values[at])
    }

    pub(crate) fn contains(&self, key: V::Key) -> bool {
        self.place(key).is_some()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter()
    }

    /// Sets a value. Returns the former value of its key.
    pub(crate) fn insert(&mut self, value: V) -> Option<V> {
        let key = value.key();
        if let Some(at) = self.place(key) {
            return Some(std::mem::replace(&mut self.values[at], value));
        }
        let at = self.values.len() as u32;
        self.values.push(value);
        let (seed, values) = (self.seed, &self.values);
        let hash_of = |at: &u32| hash::<V>(seed, values[*at as usize].key());
        self.places.insert_unique(hash::<V>(seed, key), at, hash_of);
        None
    }

    pub(crate) fn remove(&mut self, key: V::Key) -> Option<V> {
        let (seed, values) = (self.seed, &self.values);
        let is_it = |at: &u32| values[*at as usize].key() == key;
        let found = self.places.find_entry(hash::<V>(seed, key), is_it);
        let (at, _) = found.ok()?.remove();
        let last = values.len() as u32 - 1;
        let moved = hash::<V>(seed, values[last as usize].key());
        if let Some(place) = self.places.find_mut(moved, |at| *at == last) {
            *place = at;
        }
        let removed = self.values.swap_remove(at as usize);
        let len = self.values.len();
        if self.places.capacity() > (ROOM_MAX * len).max(ROOM_MIN) {
            self.values.shrink_to(2 * len);
            let values = &self.values;
            let hash_of = |at: &u32| hash::<V>(seed, values[*at as usize].key());
            self.places.shrink_to(2 * len, hash_of);
        }
        Some(removed)
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(&V) -> bool) {
        let gone = self.values.iter().filter(|value| !is_kept(value));
        let gone: Vec<V::Key> = gone.map(V::key).collect();
        for key in gone {
            self.remove(key);
        }
    }

    fn place(&self, key: V::Key) -> Option<usize> {
        let is_it = |at: &u32| self.values[*at as usize].key() == key;
        let place = self.places.find(hash::<V>(self.seed, key), is_it);
        place.map(|at| *at as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clock::SplitMix64;

    use super::*;

    impl Keyed for (u16, u32) {
        type Key = u16;

        fn key(&self) -> u16 {
            self.0
        }

        /// Half of the keys collide.
        fn words(key: u16) -> [u64; 2] {
            [u64::from(key / 2), 0]
        }
    }

    fn check(map: &Indexed<(u16, u32)>, model: &BTreeMap<u16, u32>) {
        assert_eq!(map.len(), model.len());
        let values: BTreeMap<u16, u32> = map.values().copied().collect();
        assert_eq!(values, *model);
        for key in 0..200 {
            assert_eq!(map.get(key).map(|value| value.1), model.get(&key).copied());
        }
    }

    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let mut map: Indexed<(u16, u32)> = Indexed::new(seed);
            let mut model = BTreeMap::new();
            for n in 0..2000 {
                // The map grows, and becomes almost empty again.
                let key = (random.next() % 200) as u16;
                if random.next() % 1000 < n % 1000 {
                    assert_eq!(map.remove(key).map(|value| value.1), model.remove(&key));
                } else {
                    let old = map.insert((key, n as u32));
                    assert_eq!(old.map(|value| value.1), model.insert(key, n as u32));
                }
                if let (Some(value), Some(of_model)) = (map.get_mut(key), model.get_mut(&key)) {
                    (value.1, *of_model) = (value.1 + 1, *of_model + 1);
                }
                assert_eq!(map.contains(key), model.contains_key(&key));
                if n % 50 == 0 {
                    check(&map, &model);
                }
            }
            map.retain(|value| value.1 % 3 > 0);
            model.retain(|_, value| *value % 3 > 0);
            check(&map, &model);
        }
    }

    /// The order depends on insertions and removals, not on the hash.
    #[test]
    fn its_order_does_not_depend_on_the_seed() {
        let order = |seed| {
            let mut map = Indexed::new(seed);
            for key in 0..100 {
                map.insert((key, 0));
            }
            for key in 20..90 {
                map.remove(key);
            }
            map.values().copied().collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(2));
    }
}
