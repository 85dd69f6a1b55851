//! Finds entries by the hash of their values.

/// The entries of a shape by the hash of their values: a probe costs no comparison of values until
/// a hash is found, and allocates nothing. The order of what it returns is that of the insertions.
#[derive(Clone, Debug)]
pub(super) struct Index<T> {
    /// A power of two of them, or none.
    buckets: Vec<Vec<(u64, T)>>,
    pub(super) len: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index {
            buckets: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Copy + Eq> Index<T> {
    /// Entries for each bucket, on average, at which there are more.
    const FULL: usize = 2;

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & self.buckets.len().wrapping_sub(1)
    }

    pub(super) fn get(&self, hash: u64) -> impl Iterator<Item = T> {
        let bucket = self.buckets.get(self.bucket(hash));
        let same = bucket.into_iter().flatten().filter(move |of| of.0 == hash);
        same.map(|(_, id)| *id)
    }

    pub(super) fn insert(&mut self, hash: u64, id: T) {
        if self.len >= self.buckets.len() * Self::FULL {
            let count = (self.buckets.len() * 4).max(1);
            let before =
                std::mem::replace(&mut self.buckets, (0..count).map(|_| Vec::new()).collect());
            for (hash, id) in before.into_iter().flatten() {
                let bucket = self.bucket(hash);
                self.buckets[bucket].push((hash, id));
            }
        }
        let bucket = self.bucket(hash);
        self.buckets[bucket].push((hash, id));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, hash: u64, id: T) {
        let bucket = self.bucket(hash);
        if let Some(bucket) = self.buckets.get_mut(bucket)
            && let Some(at) = bucket.iter().position(|of| *of == (hash, id))
        {
            bucket.remove(at);
            self.len -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clock::mix;

    use super::*;

    /// Few hashes, so that many entries share one and many buckets are shared by several.
    #[test]
    fn an_index_finds_what_is_in_it_in_the_order_of_insertion() {
        let (mut index, mut model) = (Index::default(), BTreeSet::new());
        let mut random = 1_u64;
        for n in 0..20_000_u64 {
            random = mix(random.wrapping_add(n));
            let hash = random % 700 * 64;
            match random >> 60 {
                0..=8 => {
                    index.insert(hash, n);
                    model.insert((hash, n));
                }
                _ => {
                    let one = model.range((hash, 0)..).next().copied();
                    if let Some((hash, id)) = one {
                        index.remove(hash, id);
                        model.remove(&(hash, id));
                    }
                }
            }
            let same = (hash, 0)..=(hash, u64::MAX);
            let wanted: Vec<u64> = model.range(same).map(|(_, id)| *id).collect();
            assert_eq!(index.get(hash).collect::<Vec<_>>(), wanted);
            assert_eq!(index.len, model.len());
        }
        assert!(index.buckets.len() >= 64, "{}", index.buckets.len());
    }
}
