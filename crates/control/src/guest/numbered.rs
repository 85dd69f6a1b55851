//! Groups or meters of a guest, as the guest has stated them. In the switch each has a number
//! of its own, which names the guest.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;

/// A guest's statement of a group or a meter.
pub(super) trait Stated: Clone + PartialEq {
    /// The number that stands for none: all numbers are below it.
    const NONE: u16;
}

#[derive(Clone, Debug)]
pub(super) struct Held<T> {
    /// Its number in the switch.
    pub number: u16,
    pub stated: T,
    pub modified: u32,
    /// The form in which the switch has reported it since it was sent.
    pub form: Option<T>,
    pub sent_at: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct Numbered<I, T> {
    all: BTreeMap<I, Held<T>>,
    by_number: BTreeMap<u16, I>,
    next: u16,
}

/// A change that a switch may refuse.
#[derive(Clone, Debug)]
pub(super) struct Step<I, T> {
    pub id: I,
    number: u16,
    modified: u32,
    before: Option<Held<T>>,
}

impl<I, T> Default for Numbered<I, T> {
    fn default() -> Numbered<I, T> {
        Numbered {
            all: BTreeMap::new(),
            by_number: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<I: Copy + Ord, T: Stated> Numbered<I, T> {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, id: I) -> Option<&T> {
        self.all.get(&id).map(|held| &held.stated)
    }

    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.all.iter().map(|(id, held)| (*id, &held.stated))
    }

    pub fn ids(&self) -> Vec<I> {
        self.all.keys().copied().collect()
    }

    pub fn numbered(&self, number: u16) -> Option<I> {
        self.by_number.get(&number).copied()
    }

    /// The number in the switch. An unknown id gets a number that is never assigned: the guest's
    /// own number may be another guest's in the switch, or auster's.
    pub fn number(&self, id: I) -> u16 {
        self.all.get(&id).map_or(T::NONE, |held| held.number)
    }

    /// Adds a group or a meter. Its number is reused as late as possible.
    pub fn add(&mut self, now: Instant, id: I, stated: T) -> Step<I, T> {
        while self.by_number.contains_key(&self.next) || self.next >= T::NONE {
            self.next = (self.next + 1) % T::NONE;
        }
        let number = self.next;
        self.next = (number + 1) % T::NONE;
        self.by_number.insert(number, id);
        self.put((now, id, stated), (number, 0))
    }

    /// Modifies a group or a meter as stated.
    pub fn modify(&mut self, now: Instant, id: I, stated: T) -> Option<Step<I, T>> {
        let held = self.all.get(&id)?;
        let of = (held.number, held.modified.wrapping_add(1));
        Some(self.put((now, id, stated), of))
    }

    fn put(&mut self, (now, id, stated): (Instant, I, T), of: (u16, u32)) -> Step<I, T> {
        let (number, modified) = of;
        let held = Held {
            number,
            stated,
            modified,
            form: None,
            sent_at: now,
        };
        Step {
            id,
            number,
            modified,
            before: self.all.insert(id, held),
        }
    }

    pub fn remove(&mut self, id: I) -> Option<T> {
        let held = self.all.remove(&id)?;
        self.by_number.remove(&held.number);
        Some(held.stated)
    }

    /// Undoes a change that the switch has refused. `later`: changes that the switch has not
    /// judged. If it refuses one of these too, the state before `step` is restored.
    pub fn take_back<'a>(
        &mut self,
        step: &Step<I, T>,
        later: impl Iterator<Item = &'a mut Step<I, T>>,
    ) where
        I: 'a,
        T: 'a,
    {
        let is_it = |held: &Held<T>| (held.number, held.modified) == (step.number, step.modified);
        if self.all.get(&step.id).is_some_and(is_it) {
            match &step.before {
                Some(before) => drop(self.all.insert(step.id, before.clone())),
                None => drop(self.remove(step.id)),
            }
            return;
        }
        for later in later.filter(|later| later.id == step.id) {
            if later.before.as_ref().is_some_and(is_it) {
                later.before.clone_from(&step.before);
            }
        }
    }

    /// The time when a group or a meter was last sent.
    pub fn sent_at(&self, id: I) -> Option<Instant> {
        self.all.get(&id).map(|held| held.sent_at)
    }

    /// Notes that a group or a meter is sent again.
    pub fn note_sent(&mut self, now: Instant, id: I) {
        if let Some(held) = self.all.get_mut(&id) {
            (held.form, held.sent_at) = (None, now);
        }
    }

    /// Takes note of the switch's answer to the question asked at `asked_at`. Returns the numbers
    /// that belong to nothing here, and for the rest whether each is as it was sent. The first form
    /// that a switch reports is taken as the switch's own form.
    pub fn compare(
        &mut self,
        asked_at: Instant,
        found: impl Iterator<Item = (u16, T)>,
    ) -> (BTreeSet<u16>, BTreeMap<I, bool>) {
        let (mut strays, mut seen) = (BTreeSet::new(), BTreeMap::new());
        for (number, form) in found {
            let id = self.numbered(number);
            let Some((id, held)) = id.and_then(|id| Some((id, self.all.get_mut(&id)?))) else {
                strays.insert(number);
                continue;
            };
            let is_older = held.sent_at < asked_at;
            let is_right = !is_older || held.form.as_ref().is_none_or(|held| *held == form);
            if is_older && is_right {
                held.form = Some(form);
            }
            seen.insert(id, is_right);
        }
        (strays, seen)
    }
}
