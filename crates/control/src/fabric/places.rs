//! The egress of every host that the fabric reaches, for the edges of all connections.
//!
//! One thread writes, any number read, and none waits: a host and its label fit into one word. An
//! edge that reads a label a moment too late sends a packet to the switch where the host was. This
//! switch sends the packet to the controller, which has the entry deleted.
//!
//! A larger table replaces a full one, and the edges receive the larger one. Until then an edge
//! reads the old table, which is as good as reading a moment too late.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::mix;
use openflow::MacAddr;

use super::Label;

/// A map from MAC addresses to labels, in one word each: the address in the upper bits, the label
/// in the lower.
pub struct Places {
    /// A power of two. Zero is an empty slot.
    slots: Box<[AtomicU64]>,
    seed: u64,
}

/// The label of a removed host; no switch has it. A reader may be passing the host's slot.
const REMOVED: u64 = 0xffff;

const SLOTS_MIN: usize = 64;

impl Places {
    /// A table that `count` hosts fill to at most a half.
    fn with_room(count: usize, seed: u64) -> Places {
        let len = (count * 2).next_power_of_two().max(SLOTS_MIN);
        let slots = (0..len).map(|_| AtomicU64::new(0)).collect();
        Places { slots, seed }
    }

    /// The egress of a host.
    #[inline]
    pub fn get(&self, mac: MacAddr) -> Option<Label> {
        let word = self.slots[self.find(mac)?].load(Ordering::Relaxed);
        let label = word & 0xffff;
        (word >> 16 == mac.to_u64() && label != REMOVED).then_some(Label(label as u16))
    }

    /// The slot of a host, also of a removed one.
    #[inline]
    fn find(&self, mac: MacAddr) -> Option<usize> {
        let key = mac.to_u64();
        let mut at = self.home(key);
        loop {
            let word = self.slots[at].load(Ordering::Relaxed);
            if word == 0 {
                return None;
            }
            if word >> 16 == key {
                return Some(at);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Writes a word whose host has no slot.
    fn put(&self, word: u64) {
        let mut at = self.home(word >> 16);
        while self.slots[at].load(Ordering::Relaxed) != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at].store(word, Ordering::Relaxed);
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        mix(key ^ self.seed) as usize & (self.slots.len() - 1)
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Places({} slots)", self.slots.len())
    }
}

/// The one writer of a table.
pub struct Writer {
    places: Arc<Places>,
    len: usize,
    /// Slots that are not empty, those of removed hosts included.
    taken: usize,
    is_new: bool,
}

impl Writer {
    /// Makes an empty table. With a secret `seed` nobody can choose addresses that collide.
    pub fn new(seed: u64) -> Writer {
        Writer {
            places: Arc::new(Places::with_room(0, seed)),
            len: 0,
            taken: 0,
            is_new: false,
        }
    }

    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Whether the table was replaced since the last call: the edges need the new one.
    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets a host's egress. The all-zero address, which no host has, changes nothing.
    pub fn set(&mut self, mac: MacAddr, label: Label) {
        let key = mac.to_u64();
        if key == 0 {
            return;
        }
        let word = key << 16 | u64::from(label.0);
        if let Some(at) = self.places.find(mac) {
            let old = self.places.slots[at].swap(word, Ordering::Relaxed);
            self.len += usize::from(old & 0xffff == REMOVED);
            return;
        }
        if (self.taken + 1) * 4 > self.places.slots.len() * 3 {
            self.rebuild();
        }
        self.places.put(word);
        (self.len, self.taken) = (self.len + 1, self.taken + 1);
    }

    /// Removes a host. Returns whether it was there.
    pub fn remove(&mut self, mac: MacAddr) -> bool {
        let Some(at) = self
            .places
            .find(mac)
            .filter(|_| self.places.get(mac).is_some())
        else {
            return false;
        };
        let gone = mac.to_u64() << 16 | REMOVED;
        self.places.slots[at].store(gone, Ordering::Relaxed);
        self.len -= 1;
        true
    }

    /// Makes a table with room, without the removed hosts.
    fn rebuild(&mut self) {
        let places = Places::with_room(self.len + self.len / 2 + 1, self.places.seed);
        let words = self.places.slots.iter().map(|s| s.load(Ordering::Relaxed));
        for word in words.filter(|word| *word != 0 && word & 0xffff != REMOVED) {
            places.put(word);
        }
        self.places = Arc::new(places);
        (self.taken, self.is_new) = (self.len, true);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The table answers as an ordered map does, through removals and sweeps.
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0u64..200, 0u16..4095, any::<bool>()), 0..600),
        ) {
            let mut writer = Writer::new(7);
            let mut model = BTreeMap::new();
            for (mac, label, is_set) in steps {
                let key = MacAddr::from_u64(mac);
                if is_set {
                    writer.set(key, Label(label));
                    if mac != 0 {
                        model.insert(mac, label);
                    }
                } else {
                    prop_assert_eq!(writer.remove(key), model.remove(&mac).is_some());
                }
                prop_assert_eq!(writer.len(), model.len());
                for mac in 0..200 {
                    let wanted = model.get(&mac).copied().map(Label);
                    prop_assert_eq!(writer.places().get(MacAddr::from_u64(mac)), wanted);
                }
            }
        }
    }

    /// Readers beside the writer see a host's label or none, never the label of another host.
    #[test]
    fn readers_see_whole_words() {
        let label = |mac: u64| Label((mac % 4000) as u16 + 1);
        let mut writer = Writer::new(3);
        for mac in 1..1000 {
            writer.set(MacAddr::from_u64(mac), label(mac));
        }
        let places = writer.places().clone();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                for round in 0..200u64 {
                    for mac in 1..1000 {
                        let found = places.get(MacAddr::from_u64(mac));
                        assert!(found.is_none_or(|l| l == label(mac)), "in round {round}");
                    }
                }
            });
            for round in 0..50u64 {
                for mac in 1..1000 {
                    if (mac + round) % 3 == 0 {
                        writer.remove(MacAddr::from_u64(mac));
                    } else {
                        writer.set(MacAddr::from_u64(mac), label(mac));
                    }
                }
            }
            reader.join().expect("the reader ends");
        });
    }
}
