//! The priorities of a guest's first table, within the guest's band in the switch.
//!
//! A guest has 65,536 priorities and a band has few. So a priority gets a place when an entry needs
//! it, between the places of its neighbours. If no place is left between two neighbours, all places
//! are spread anew. Two priorities always have the same order in the switch as in the guest, also
//! while entries move from one place to the next.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The move of one of the guest's priorities to another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub stated: u16,
    pub from: u16,
    pub to: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Band {
    low: u16,
    high: u16,
    places: BTreeMap<u16, Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u16,
    entries: usize,
}

impl Band {
    pub fn new(band: &RangeInclusive<u16>) -> Band {
        Band {
            low: *band.start(),
            high: *band.end(),
            places: BTreeMap::new(),
        }
    }

    /// The place of a priority that has entries.
    pub fn place(&self, stated: u16) -> Option<u16> {
        self.places.get(&stated).map(|place| place.at)
    }

    /// Gives one more entry a place at this priority. Returns the necessary moves, in their order;
    /// `None` if the band is full.
    pub fn take(&mut self, stated: u16) -> Option<Vec<Move>> {
        if let Some(place) = self.places.get_mut(&stated) {
            place.entries += 1;
            return Some(Vec::new());
        }
        let mut moves = Vec::new();
        let at = match self.free_place(stated) {
            Some(at) => at,
            None => {
                moves = self.spread(stated)?;
                self.free_place(stated)?
            }
        };
        self.places.insert(stated, Place { at, entries: 1 });
        Some(moves)
    }

    /// Removes an entry. A priority without entries has no place.
    pub fn leave(&mut self, stated: u16) {
        if let Some(place) = self.places.get_mut(&stated) {
            place.entries = place.entries.saturating_sub(1);
            if place.entries == 0 {
                self.places.remove(&stated);
            }
        }
    }

    /// A free place between the neighbours, as near as possible to the place in the band that is
    /// proportional to the priority.
    fn free_place(&self, stated: u16) -> Option<u16> {
        let below = self.places.range(..stated).next_back();
        let above = self.places.range(stated..).next();
        let low = below.map_or(Some(self.low), |(_, place)| place.at.checked_add(1))?;
        let high = above.map_or(Some(self.high), |(_, place)| place.at.checked_sub(1))?;
        let width = u32::from(self.high - self.low);
        let share = width * u32::from(stated) / u32::from(u16::MAX);
        let wanted = self.low + share as u16;
        // At the ends of a gap there is no room for the next neighbour on that side.
        let margin = high.checked_sub(low)? / 4;
        Some(wanted.clamp(low + margin, high - margin))
    }

    /// Spreads all places evenly, with a free one for a new priority.
    fn spread(&mut self, new: u16) -> Option<Vec<Move>> {
        let width = u32::from(self.high - self.low) + 1;
        let count = self.places.len() as u32 + 1;
        if count > width {
            return None;
        }
        let low = u32::from(self.low);
        let mut moves = Vec::new();
        for (rank, (stated, place)) in (0u32..).zip(&mut self.places) {
            let behind = u32::from(*stated > new);
            let to = (low + (rank + behind) * width / count) as u16;
            let from = std::mem::replace(&mut place.at, to);
            moves.push(Move {
                stated: *stated,
                from,
                to,
            });
        }
        // Upward moves from the highest on, downward moves from the lowest on: nothing overtakes.
        let (mut up, down): (Vec<Move>, Vec<Move>) = moves
            .into_iter()
            .filter(|one| one.from != one.to)
            .partition(|one| one.to > one.from);
        up.reverse();
        up.extend(down);
        Some(up)
    }
}

#[cfg(test)]
mod tests {
    use clock::SplitMix64;

    use super::*;

    /// Whether the places in the switch are in order, between two moves.
    fn holds_order(places: &BTreeMap<u16, u16>) -> bool {
        places.values().is_sorted_by(|one, next| one < next)
    }

    #[test]
    fn priorities_keep_their_order_at_each_step_until_the_band_is_full() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let width = 1 + (random.next() % 40) as u16;
            let mut band = Band::new(&(3400..=3400 + width - 1));
            let mut held: BTreeMap<u16, u16> = BTreeMap::new();
            for _ in 0..400 {
                let stated = match random.next() % 4 {
                    0 => 0,
                    1 => u16::MAX,
                    2 => (random.next() % 8) as u16 + 9000,
                    _ => random.next() as u16,
                };
                if random.next().is_multiple_of(3) && held.remove(&stated).is_some() {
                    band.leave(stated);
                    continue;
                }
                if held.contains_key(&stated) {
                    continue;
                }
                let Some(moves) = band.take(stated) else {
                    assert_eq!(held.len(), usize::from(width), "full only when it is");
                    continue;
                };
                for one in moves {
                    assert_eq!(held.insert(one.stated, one.to), Some(one.from));
                    assert!(holds_order(&held), "seed {seed}: {one:?}");
                }
                let at = band.place(stated).expect("it has a place");
                held.insert(stated, at);
                assert!(holds_order(&held), "seed {seed}: {stated} at {at}");
                let band = 3400..=3400 + width - 1;
                assert!(held.values().all(|at| band.contains(at)));
            }
        }
    }

    #[test]
    fn a_priority_has_its_place_for_as_long_as_it_has_entries() {
        let mut band = Band::new(&(10..=10));
        assert_eq!(band.take(5), Some(Vec::new()));
        assert_eq!(band.take(5), Some(Vec::new()));
        assert_eq!(band.take(6), None);
        band.leave(5);
        assert_eq!(band.take(6), None);
        band.leave(5);
        assert_eq!(band.take(6), Some(Vec::new()));
        assert_eq!((band.place(5), band.place(6)), (None, Some(10)));
    }
}
