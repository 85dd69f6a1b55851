//! Packet-ins that wait for their answer, and what became of those that waited.
//!
//! A packet-in has a tag: a slot, and how often the slot was used. An answered slot is used again
//! only when all others have been, so that a second answer still finds what it answers.

use serde::Serialize;

/// What counts as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// The first FLOW_MOD or PACKET_OUT that verifies
    Any,
    FlowMod,
    PacketOut,
    /// A FLOW_MOD and a PACKET_OUT; the later one is the answer
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    FlowMod,
    PacketOut,
}

/// What a verified answer is to its packet-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waited since then.
    Answered { since_ns: u64 },
    /// The other kind beside the one that counts.
    Companion,
    /// The same kind again.
    Duplicate,
    /// The packet-in was given up as missing.
    Late,
}

pub struct Outstanding {
    slots: Vec<Slot>,
    slot_bits: u32,
    /// A ring of the slots to use next.
    free: Vec<u32>,
    free_at: usize,
    free_count: usize,
    in_flight: usize,
    /// The slot that each source's latest packet-in has.
    by_source: Vec<u32>,
    wanted: Wanted,
}

#[derive(Clone, Copy)]
struct Slot {
    since_ns: u64,
    generation: u32,
    source: u32,
    target: u32,
    state: State,
    got: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unused,
    Waiting,
    Answered,
    GivenUp,
}

const NO_SLOT: u32 = u32::MAX;
const GOT_FLOW_MOD: u8 = 1;
const GOT_PACKET_OUT: u8 = 2;

impl Outstanding {
    /// For `in_flight_max` at once. A tag is below 2^31, so it is a buffer id too.
    pub fn new(in_flight_max: usize, source_count: u32, wanted: Wanted) -> Outstanding {
        let slot_count = (in_flight_max * 2).next_power_of_two().max(16);
        let unused = Slot {
            since_ns: 0,
            generation: 0,
            source: 0,
            target: 0,
            state: State::Unused,
            got: 0,
        };
        Outstanding {
            slots: vec![unused; slot_count],
            slot_bits: slot_count.trailing_zeros(),
            free: (0..slot_count as u32).collect(),
            free_at: 0,
            free_count: slot_count,
            in_flight: 0,
            by_source: vec![NO_SLOT; source_count as usize + 1],
            wanted,
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes a slot for a packet-in from `source` to `target` and gives its tag; `None` when all
    /// wait.
    pub fn open(&mut self, source: u32, target: u32, since_ns: u64) -> Option<u32> {
        if self.free_count == 0 {
            return None;
        }
        let at = self.free[self.free_at];
        self.free_at = (self.free_at + 1) & (self.free.len() - 1);
        self.free_count -= 1;
        self.in_flight += 1;
        let slot = &mut self.slots[at as usize];
        let generation_max = (1 << (31 - self.slot_bits)) - 1;
        *slot = Slot {
            since_ns,
            generation: (slot.generation + 1) & generation_max,
            source,
            target,
            state: State::Waiting,
            got: 0,
        };
        self.by_source[source as usize] = at;
        Some(slot.generation << self.slot_bits | at)
    }

    /// The slot of a tag that was given out and not too long ago.
    pub fn find(&self, tag: u32) -> Option<u32> {
        let at = tag & ((1 << self.slot_bits) - 1);
        let slot = &self.slots[at as usize];
        let is_it = slot.state != State::Unused && slot.generation == tag >> self.slot_bits;
        is_it.then_some(at)
    }

    /// The slot of a source's latest packet-in.
    pub fn find_source(&self, source: u32) -> Option<u32> {
        let at = *self.by_source.get(source as usize)?;
        let slot = self.slots.get(at as usize)?;
        (slot.source == source && slot.state != State::Unused).then_some(at)
    }

    /// The only one that waits, if there is only one.
    pub fn find_only(&self) -> Option<u32> {
        if self.in_flight != 1 {
            return None;
        }
        let waiting = |slot: &Slot| slot.state == State::Waiting;
        self.slots.iter().position(waiting).map(|at| at as u32)
    }

    pub fn source(&self, at: u32) -> u32 {
        self.slots[at as usize].source
    }

    pub fn target(&self, at: u32) -> u32 {
        self.slots[at as usize].target
    }

    /// Takes note of a verified answer to a slot that was found.
    pub fn answer(&mut self, at: u32, kind: Kind) -> Outcome {
        let bit = match kind {
            Kind::FlowMod => GOT_FLOW_MOD,
            Kind::PacketOut => GOT_PACKET_OUT,
        };
        let slot = &mut self.slots[at as usize];
        let again = slot.got & bit != 0;
        slot.got |= bit;
        let enough = match self.wanted {
            Wanted::Any => true,
            Wanted::FlowMod => slot.got & GOT_FLOW_MOD != 0,
            Wanted::PacketOut => slot.got & GOT_PACKET_OUT != 0,
            Wanted::Both => slot.got == GOT_FLOW_MOD | GOT_PACKET_OUT,
        };
        match slot.state {
            State::GivenUp => Outcome::Late,
            _ if again => Outcome::Duplicate,
            State::Waiting if enough => {
                slot.state = State::Answered;
                let since_ns = slot.since_ns;
                self.release(at);
                Outcome::Answered { since_ns }
            }
            _ => Outcome::Companion,
        }
    }

    /// Gives up what has waited since before `before_ns`, and says how many that were.
    pub fn expire(&mut self, before_ns: u64) -> u64 {
        if self.in_flight == 0 {
            return 0;
        }
        let mut count = 0;
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if slot.state == State::Waiting && slot.since_ns < before_ns {
                slot.state = State::GivenUp;
                self.release(at as u32);
                count += 1;
            }
        }
        count
    }

    fn release(&mut self, at: u32) {
        let end = (self.free_at + self.free_count) & (self.free.len() - 1);
        self.free[end] = at;
        self.free_count += 1;
        self.in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_answer_counts_once_however_often_it_comes() {
        let mut outstanding = Outstanding::new(4, 10, Wanted::Any);
        let tag = outstanding.open(3, 0, 100).unwrap();
        let at = outstanding.find(tag).unwrap();
        assert_eq!(
            outstanding.answer(at, Kind::PacketOut),
            Outcome::Answered { since_ns: 100 }
        );
        assert_eq!(outstanding.answer(at, Kind::PacketOut), Outcome::Duplicate);
        assert_eq!(outstanding.answer(at, Kind::FlowMod), Outcome::Companion);
        assert_eq!(outstanding.answer(at, Kind::FlowMod), Outcome::Duplicate);
        assert_eq!(outstanding.in_flight(), 0);
    }

    #[test]
    fn both_means_both() {
        let mut outstanding = Outstanding::new(4, 10, Wanted::Both);
        let tag = outstanding.open(3, 0, 100).unwrap();
        let at = outstanding.find(tag).unwrap();
        assert_eq!(outstanding.answer(at, Kind::FlowMod), Outcome::Companion);
        assert_eq!(outstanding.answer(at, Kind::FlowMod), Outcome::Duplicate);
        assert_eq!(
            outstanding.answer(at, Kind::PacketOut),
            Outcome::Answered { since_ns: 100 }
        );
    }

    #[test]
    fn what_is_given_up_is_missing_and_its_answer_late() {
        let mut outstanding = Outstanding::new(4, 10, Wanted::Any);
        let old = outstanding.open(1, 0, 100).unwrap();
        outstanding.open(2, 0, 200).unwrap();
        assert_eq!(outstanding.expire(150), 1);
        assert_eq!(outstanding.in_flight(), 1);
        let at = outstanding.find(old).unwrap();
        assert_eq!(outstanding.answer(at, Kind::FlowMod), Outcome::Late);
        assert_eq!(
            outstanding.find_only().map(|at| outstanding.source(at)),
            Some(2)
        );
    }

    proptest! {
        /// However packet-ins, answers and expiry mix, an answer finds its own packet-in or none.
        #[test]
        fn a_tag_finds_its_own_packet_in(steps in proptest::collection::vec((0u8..4, 0usize..40), 0..400)) {
            let mut outstanding = Outstanding::new(8, 1000, Wanted::Any);
            let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
            let mut waiting = 0usize;
            let mut source = 0;
            for (now, (what, which)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        source = source % 1000 + 1;
                        if let Some(tag) = outstanding.open(source, 0, now as u64) {
                            prop_assert!(tag < 1 << 31);
                            sent.insert(tag, source);
                            waiting += 1;
                        }
                    }
                    2 if !sent.is_empty() => {
                        let (tag, source) = sent.iter().nth(which % sent.len()).unwrap();
                        if let Some(at) = outstanding.find(*tag) {
                            prop_assert_eq!(outstanding.source(at), *source);
                            if let Outcome::Answered { .. } = outstanding.answer(at, Kind::FlowMod) {
                                waiting -= 1;
                            }
                        }
                    }
                    _ => waiting -= outstanding.expire((now as u64).saturating_sub(which as u64)) as usize,
                }
                prop_assert_eq!(outstanding.in_flight(), waiting);
            }
        }
    }
}
