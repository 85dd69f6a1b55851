//! A map with all values in one vector, found by a hash of their keys.
//!
//! The controller keeps a record of every path and of every entry: hundreds of thousands, each read
//! several times while it is set. Values are in the order of their insertion, but the last one
//! takes the place of one that is removed. So the order does not depend on the hash, and the hash
//! can have a secret seed, with which nobody can choose keys that collide.

use clock::mix;

/// A value that has its own key.
pub(crate) trait Keyed {
    type Key: Copy + Eq;

    fn key(&self) -> Self::Key;

    /// All of a key in few words, the same for equal keys.
    fn words(key: Self::Key) -> [u64; 2];
}

pub(crate) struct Indexed<V> {
    values: Vec<V>,
    /// Open addressing with linear probing, at most half full. Empty, or a power of two. Zero is
    /// free; otherwise one more than the place of a value.
    index: Vec<u32>,
    seed: u64,
}

const INDEX_MIN: usize = 8;

impl<V: Keyed> Indexed<V> {
    pub(crate) fn new(seed: u64) -> Indexed<V> {
        Indexed {
            values: Vec::new(),
            index: Vec::new(),
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

    /// Sets a value. Returns the former one of its key.
    pub(crate) fn insert(&mut self, value: V) -> Option<V> {
        let key = value.key();
        if let Some(at) = self.place(key) {
            return Some(std::mem::replace(&mut self.values[at], value));
        }
        if 2 * (self.values.len() + 1) > self.index.len() {
            self.resize((2 * self.index.len()).max(INDEX_MIN));
        }
        let slot = self.free_slot(key);
        self.values.push(value);
        self.index[slot] = self.values.len() as u32;
        None
    }

    pub(crate) fn remove(&mut self, key: V::Key) -> Option<V> {
        let mut gap = self.slot(key)?;
        let at = self.index[gap] as usize - 1;
        let last = self.values.len();
        let moved = self.slot(self.values[last - 1].key())?;
        self.index[moved] = at as u32 + 1;
        // What stands behind the gap moves into it, unless that is before its own place.
        let mask = self.index.len() - 1;
        let mut next = gap;
        loop {
            next = (next + 1) & mask;
            let number = self.index[next] as usize;
            if number == 0 {
                break;
            }
            let home = match number == at + 1 {
                true => self.home(self.values[last - 1].key()),
                false => self.home(self.values[number - 1].key()),
            };
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(gap) & mask) {
                self.index[gap] = self.index[next];
                gap = next;
            }
        }
        self.index[gap] = 0;
        let removed = self.values.swap_remove(at);
        if self.index.len() > INDEX_MIN && 16 * self.values.len() < self.index.len() {
            self.values.shrink_to(2 * self.values.len());
            self.resize(self.index.len() / 4);
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

    fn home(&self, key: V::Key) -> usize {
        let [first, second] = V::words(key);
        mix(mix(self.seed ^ first) ^ second) as usize & (self.index.len() - 1)
    }

    /// The place of a key's number in the index.
    fn slot(&self, key: V::Key) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        loop {
            let number = self.index[at] as usize;
            if number == 0 {
                return None;
            }
            if self.values[number - 1].key() == key {
                return Some(at);
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    fn place(&self, key: V::Key) -> Option<usize> {
        let slot = self.slot(key)?;
        Some(self.index[slot] as usize - 1)
    }

    fn free_slot(&self, key: V::Key) -> usize {
        let mut at = self.home(key);
        while self.index[at] != 0 {
            at = (at + 1) & (self.index.len() - 1);
        }
        at
    }

    fn resize(&mut self, len: usize) {
        self.index = vec![0; len];
        for at in 0..self.values.len() {
            let slot = self.free_slot(self.values[at].key());
            self.index[slot] = at as u32 + 1;
        }
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
                // It grows, and becomes almost empty again.
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

    /// Its order shows what came and went, and not where the hash has put it.
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
