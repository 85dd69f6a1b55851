//! Packet-ins that await an answer, and the outcome of earlier ones.
//!
//! A packet-in has a tag: a slot, and the number of uses of that slot. An answered slot is reused
//! only after all others, so that a second answer still finds its packet-in.

use serde::Serialize;

/// The messages that count as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// The first correct FLOW_MOD or PACKET_OUT
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

/// The relation of a verified answer to its packet-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet-in had waited since `since_ns`.
    Answered { since_ns: u64 },
    /// An answer of the other kind, beside the one that counts.
    Companion,
    /// Another answer of the same kind.
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
    /// For each source, the packet-ins that a FLOW_MOD without a buffer may answer.
    by_source: Vec<Chain>,
    wanted: Wanted,
}

/// The slots of a source's packet-ins, linked by [`Slot::next`] in the order they were sent.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    since_ns: u64,
    generation: u32,
    /// The next packet-in of the same source.
    next: u32,
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
const NO_CHAIN: Chain = Chain {
    first: NO_SLOT,
    last: NO_SLOT,
};
const GOT_FLOW_MOD: u8 = 1;
const GOT_PACKET_OUT: u8 = 2;

impl Outstanding {
    /// Makes room for `in_flight_max` waiting packet-ins. A tag is below 2^31, so it is a buffer id
    /// too.
    pub fn new(in_flight_max: usize, source_count: u32, wanted: Wanted) -> Outstanding {
        let slot_count = (in_flight_max * 2).next_power_of_two().max(16);
        let unused = Slot {
            since_ns: 0,
            generation: 0,
            next: NO_SLOT,
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
            by_source: vec![NO_CHAIN; source_count as usize + 1],
            wanted,
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes a slot for a packet-in from `source` to `target` and returns its tag; `None` if all
    /// slots wait.
    pub fn open(&mut self, source: u32, target: u32, since_ns: u64) -> Option<u32> {
        if self.free_count == 0 {
            return None;
        }
        let at = self.free[self.free_at];
        self.free_at = (self.free_at + 1) & (self.free.len() - 1);
        self.free_count -= 1;
        self.in_flight += 1;
        self.unchain(at);
        let slot = &mut self.slots[at as usize];
        let generation_max = (1 << (31 - self.slot_bits)) - 1;
        *slot = Slot {
            since_ns,
            generation: (slot.generation + 1) & generation_max,
            next: NO_SLOT,
            source,
            target,
            state: State::Waiting,
            got: 0,
        };
        let tag = slot.generation << self.slot_bits | at;
        let chain = &mut self.by_source[source as usize];
        match self.slots.get_mut(chain.last as usize) {
            Some(last) if chain.last != at && last.source == source => last.next = at,
            _ => chain.first = at,
        }
        chain.last = at;
        Some(tag)
    }

    /// Takes a reused slot out of its old chain. Earlier slots of the chain, which have waited
    /// longer, leave with it.
    fn unchain(&mut self, at: u32) {
        let Slot { source, next, .. } = self.slots[at as usize];
        let Chain { last, .. } = self.by_source[source as usize];
        self.by_source[source as usize] = if last == at {
            NO_CHAIN
        } else {
            let first = if self.is_of(next, source) { next } else { last };
            Chain { first, last }
        };
    }

    fn is_of(&self, at: u32, source: u32) -> bool {
        let slot = self.slots.get(at as usize);
        slot.is_some_and(|slot| slot.source == source && slot.state != State::Unused)
    }

    /// Returns the slot of a tag, if the tag was issued and not too long ago.
    pub fn find(&self, tag: u32) -> Option<u32> {
        let at = tag & ((1 << self.slot_bits) - 1);
        let slot = &self.slots[at as usize];
        let is_it = slot.state != State::Unused && slot.generation == tag >> self.slot_bits;
        is_it.then_some(at)
    }

    /// Returns the packet-in of a source that a FLOW_MOD answers if nothing else identifies it.
    /// FLOW_MODs arrive in the order of packet-ins, so it is the oldest without a FLOW_MOD, given
    /// up or not. If all had one, it is the latest.
    pub fn find_source(&mut self, source: u32) -> Option<u32> {
        let Chain { mut first, last } = *self.by_source.get(source as usize)?;
        if last == NO_SLOT {
            return None;
        }
        while first != last && self.slots[first as usize].got & GOT_FLOW_MOD != 0 {
            let next = self.slots[first as usize].next;
            first = if self.is_of(next, source) { next } else { last };
        }
        self.by_source[source as usize].first = first;
        Some(first)
    }

    /// The slot of a source's latest packet-in.
    pub fn find_latest(&self, source: u32) -> Option<u32> {
        let last = self.by_source.get(source as usize)?.last;
        (last != NO_SLOT).then_some(last)
    }

    /// Returns the only waiting packet-in, if exactly one waits.
    pub fn find_only(&self) -> Option<u32> {
        if self.in_flight != 1 {
            return None;
        }
        let waiting = |slot: &Slot| slot.state == State::Waiting;
        self.slots.iter().position(waiting).map(|at| at as u32)
    }

    /// Returns the tag of a slot that [`Outstanding::find`] finds.
    pub fn tag(&self, at: u32) -> u32 {
        self.slots[at as usize].generation << self.slot_bits | at
    }

    pub fn is_waiting(&self, at: u32) -> bool {
        self.slots[at as usize].state == State::Waiting
    }

    /// Returns the number of slots; every slot is below it.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub fn source(&self, at: u32) -> u32 {
        self.slots[at as usize].source
    }

    pub fn target(&self, at: u32) -> u32 {
        self.slots[at as usize].target
    }

    /// Records a verified answer to a slot that was found.
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

    /// Gives up packet-ins that have waited since before `before_ns`, and returns their number.
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

    #[test]
    fn flow_mods_of_one_source_are_for_its_packet_ins_in_order() {
        let mut outstanding = Outstanding::new(8, 10, Wanted::Any);
        for since_ns in [100, 200, 300] {
            outstanding.open(3, 0, since_ns).unwrap();
        }
        outstanding.expire(150);
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            let at = outstanding.find_source(3).unwrap();
            outcomes.push(outstanding.answer(at, Kind::FlowMod));
        }
        let answered = |since_ns| Outcome::Answered { since_ns };
        let expected = [
            Outcome::Late,
            answered(200),
            answered(300),
            Outcome::Duplicate,
        ];
        assert_eq!(outcomes, expected);
    }

    proptest! {
        /// A source's FLOW_MOD is never for another source, however slots are used again.
        #[test]
        fn a_source_finds_its_own_packet_ins(
            steps in proptest::collection::vec((0u8..3, 1u32..5), 0..300),
        ) {
            let mut outstanding = Outstanding::new(4, 5, Wanted::Any);
            let mut opened = std::collections::BTreeSet::new();
            for (now, (what, source)) in steps.into_iter().enumerate() {
                let now_ns = now as u64;
                if what == 0 {
                    outstanding.expire(now_ns.saturating_sub(20));
                    if outstanding.open(source, 0, now_ns).is_some() {
                        opened.insert(source);
                        let latest = outstanding.find_latest(source).unwrap();
                        prop_assert_eq!(outstanding.source(latest), source);
                    }
                } else if let Some(at) = outstanding.find_source(source) {
                    prop_assert!(opened.contains(&source));
                    prop_assert_eq!(outstanding.source(at), source);
                    outstanding.answer(at, Kind::FlowMod);
                }
            }
        }

        /// However packet-ins, answers and expiry mix, an answer finds its own packet-in or none.
        #[test]
        fn a_tag_finds_its_own_packet_in(
            steps in proptest::collection::vec((0u8..4, 0usize..40), 0..400),
        ) {
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
                            let outcome = outstanding.answer(at, Kind::FlowMod);
                            if let Outcome::Answered { .. } = outcome {
                                waiting -= 1;
                            }
                        }
                    }
                    _ => {
                        let until = (now as u64).saturating_sub(which as u64);
                        waiting -= outstanding.expire(until) as usize;
                    }
                }
                prop_assert_eq!(outstanding.in_flight(), waiting);
            }
        }
    }
}
