//! A map from MAC addresses that shares its room among ports: addresses of one port never keep
//! another port's address out.
//!
//! Each port has its addresses in the order in which they were last heard. An address that needs
//! room takes that of another one: of its own port if that has its share, of the greediest port of
//! its switch if the switch has its share, or of the greediest port of the greediest switch if the
//! table is full. That port's address unheard for the longest time is evicted. Addresses that have
//! answered a question at their place are *proven*, and are evicted after all others of their port.
//! A port that goes down leaves its addresses behind: they still count to it, and are evicted
//! first.
//!
//! The slots lie close together, and only the index and their neighbours in a port's list point at
//! them, so that a host takes 20 bytes, and 5 to 10 in the index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use clock::{Duration, Instant, mix};
use openflow::{DatapathId, MacAddr, PortNo};

use crate::Location;
use clock::Budget;

/// The limits of the table: in all, for a switch and for a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// Addresses in all.
    pub count_max: usize,
    pub per_switch_max: u32,
    pub per_port_max: u32,
}

/// Addresses that a port may put in the place of others, per second and at once. Each costs the
/// switch of the replaced address two messages.
const REPLACED_PER_S: u32 = 100;
const REPLACED_BURST: u32 = 1000;

/// Addresses that are examined to find one that may be evicted.
const SPARED_MAX: usize = 8;

/// The unit of `Slot::heard`, whose sixteen bits cover three days.
const TICK_S: u64 = 4;

pub(crate) struct FairTable<V> {
    shares: Shares,
    slots: Vec<Slot<V>>,
    /// Open addressing with linear probing; empty, or a power of two. Zero is free; otherwise the
    /// low three bytes are one more than the slot, and the high byte is part of its hash.
    index: Vec<u32>,
    seed: u64,
    owners: Vec<Owner>,
    /// Numbers of owners without an address.
    free: Vec<u32>,
    by_place: BTreeMap<Location, u32>,
    switches: BTreeMap<DatapathId, Switch>,
    /// Switches by the number of their addresses.
    greediest: BTreeSet<(u32, DatapathId)>,
    /// Ports that have gained or lost an address, if changes are recorded.
    changes: Option<Vec<(Location, i32)>>,
}

/// Aligned to nothing, so that slots are as small as can be.
#[derive(Clone)]
struct Slot<V> {
    mac: [u8; 6],
    /// Three bytes of owner, one of flags.
    owner: [u8; 4],
    prev: [u8; 4],
    next: [u8; 4],
    /// The time when it was last heard, in `TICK_S`; wraps around after three days.
    heard: [u8; 2],
    value: V,
}

/// The address has been heard at its place; otherwise its place comes from an entry.
const HEARD: u8 = 1;
/// Its port has gone since.
const LEFT: u8 = 2;
/// The address was asked whether it is alive, and has not been heard since.
const ASKED: u8 = 4;
/// The address has answered at its place.
const PROVEN: u8 = 8;
/// A mark of the caller's.
const MARKED: u8 = 16;

/// A port.
struct Owner {
    at: Location,
    unproven: List,
    proven: List,
    left: List,
    replaced: Budget,
}

/// The addresses from the one heard longest ago to the latest.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Default)]
struct Switch {
    count: u32,
    /// Owners by their addresses.
    greediest: BTreeSet<(u32, u32)>,
}

/// An evicted address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone<V> {
    pub mac: MacAddr,
    pub value: V,
    /// The port that gave it up.
    pub of: Location,
    /// Whether it still had its place there.
    pub was_placed: bool,
}

/// The port has its share, or replaces others' addresses too fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The port that has too many addresses.
    pub of: Location,
}

impl<V> FairTable<V> {
    /// Makes an empty table. With a secret `seed` nobody can choose addresses that all collide.
    pub(crate) fn new(shares: Shares, seed: u64) -> FairTable<V> {
        FairTable {
            shares: Shares {
                count_max: shares.count_max.min(SLOT_MASK as usize - 1),
                ..shares
            },
            slots: Vec::new(),
            index: Vec::new(),
            seed,
            owners: Vec::new(),
            free: Vec::new(),
            by_place: BTreeMap::new(),
            switches: BTreeMap::new(),
            greediest: BTreeSet::new(),
            changes: None,
        }
    }

    /// Makes an empty table that records changes for [`FairTable::take_changes`].
    pub(crate) fn with_changes(shares: Shares, seed: u64) -> FairTable<V> {
        FairTable {
            changes: Some(Vec::new()),
            ..FairTable::new(shares, seed)
        }
    }

    /// Changes the shares. Addresses beyond them stay until they go by themselves.
    pub(crate) fn set_shares(&mut self, shares: Shares) {
        self.shares = shares;
        self.set_count_max(shares.count_max);
    }

    /// Changes the maximum number of addresses. Addresses beyond it stay until they go by
    /// themselves.
    pub(crate) fn set_count_max(&mut self, count_max: usize) {
        self.shares.count_max = count_max.min(SLOT_MASK as usize - 1);
    }

    /// Ports that have gained or lost an address since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<(Location, i32)> {
        self.changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= self.shares.count_max
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn contains(&self, mac: MacAddr) -> bool {
        self.find(mac).is_some()
    }

    pub(crate) fn get(&self, mac: &MacAddr) -> Option<&V> {
        self.find(*mac).map(|(_, at)| &self.slots[at].value)
    }

    pub(crate) fn get_mut(&mut self, mac: &MacAddr) -> Option<&mut V> {
        let (_, at) = self.find(*mac)?;
        Some(&mut self.slots[at].value)
    }

    /// The place of an address, unless its port has gone.
    pub(crate) fn place(&self, mac: MacAddr) -> Option<Location> {
        let (_, at) = self.find(mac)?;
        let slot = &self.slots[at];
        (!slot.has(LEFT)).then(|| self.owners[slot.owner()].at)
    }

    pub(crate) fn is_heard(&self, mac: MacAddr) -> bool {
        self.find(mac)
            .is_some_and(|(_, at)| self.slots[at].has(HEARD))
    }

    /// The addresses that have a place, in no particular order.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (MacAddr, Location)> {
        self.placed_in(0..self.slots.len())
    }

    /// The addresses that have a place, in some of the slots.
    pub(crate) fn placed_in(
        &self,
        slots: Range<usize>,
    ) -> impl Iterator<Item = (MacAddr, Location)> {
        let slots = self.slots.get(slots).unwrap_or_default().iter();
        let placed = slots.filter(|slot| !slot.has(LEFT));
        placed.map(|slot| (MacAddr(slot.mac), self.owners[slot.owner()].at))
    }

    /// The addresses that have a place at a switch.
    pub(crate) fn placed_at(&self, dpid: DatapathId) -> impl Iterator<Item = (MacAddr, Location)> {
        let port = |port| Location { dpid, port };
        let owners = self
            .by_place
            .range(port(PortNo(0))..=port(PortNo(u32::MAX)));
        owners.flat_map(|(at, owner)| {
            let owner = &self.owners[*owner as usize];
            let next = |slot: &u32| {
                let next = u32::from_ne_bytes(self.slots[*slot as usize].next);
                (next != NONE).then_some(next)
            };
            let lists = [owner.unproven, owner.proven].into_iter();
            let slots = lists.flat_map(move |list| std::iter::successors(list.first(), next));
            slots.map(|slot| (MacAddr(self.slots[slot as usize].mac), *at))
        })
    }

    /// The time since an address was last heard at its place, in whole ticks. It wraps around after
    /// three days.
    pub(crate) fn heard_ago(&self, now: Instant, mac: MacAddr) -> Option<Duration> {
        let slot = &self.slots[self.find(mac)?.1];
        let age = u16::from_ne_bytes(tick(now)).wrapping_sub(u16::from_ne_bytes(slot.heard));
        let age = Duration::from_secs(u64::from(age) * TICK_S);
        slot.has(HEARD).then_some(age)
    }

    /// The number of addresses that have their place at each port of these switches; ports without
    /// any are left out.
    pub(crate) fn counts(
        &self,
        dpids: RangeInclusive<DatapathId>,
    ) -> impl Iterator<Item = (Location, usize)> {
        let port = |dpid, number| Location::new(dpid, PortNo(number));
        let ports = port(*dpids.start(), 0)..=port(*dpids.end(), u32::MAX);
        let owners = self.by_place.range(ports).map(|(at, owner)| {
            let owner = &self.owners[*owner as usize];
            (*at, (owner.unproven.len + owner.proven.len) as usize)
        });
        owners.filter(|(_, count)| *count > 0)
    }

    /// Adds an unknown address, and returns the address evicted for it. A few `spared` addresses
    /// are passed over; after these, one is evicted all the same, but only of another port.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        (mac, value): (MacAddr, V),
        at: Location,
        spared: impl Fn(MacAddr, &V) -> bool,
    ) -> Result<Option<Gone<V>>, Full> {
        if mac == MacAddr::default() {
            return Err(Full { of: at });
        }
        if self.contains(mac) {
            return Ok(None);
        }
        let gone = self.make_room(now, at, None, spared)?;
        self.grow();
        let owner = self.owner(now, at);
        let slot = self.slots.len() as u32;
        self.slots.push(Slot {
            mac: mac.0,
            owner: [0; 4],
            prev: NONE.to_ne_bytes(),
            next: NONE.to_ne_bytes(),
            heard: tick(now),
            value,
        });
        self.index_slot(slot);
        self.slots[slot as usize].set_owner(owner);
        self.link(slot);
        self.count(owner, 1);
        Ok(gone)
    }

    /// Moves an address to this place.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        mac: MacAddr,
        at: Location,
        spared: impl Fn(MacAddr, &V) -> bool,
    ) -> Result<Option<Gone<V>>, Full> {
        let Some((_, slot)) = self.find(mac) else {
            return Ok(None);
        };
        let old = self.owners[self.slots[slot].owner()].at;
        let gone = match old == at {
            true => None,
            false => self.make_room(now, at, Some(old), spared)?,
        };
        // The eviction may have moved the address to another slot.
        let Some((_, slot)) = self.find(mac) else {
            return Ok(gone);
        };
        let owner = self.owner(now, at);
        let before = self.slots[slot].owner() as u32;
        self.unlink(slot as u32);
        self.slots[slot].set_owner(owner);
        for flag in [LEFT, ASKED, PROVEN] {
            self.slots[slot].set(flag, false);
        }
        self.slots[slot].heard = tick(now);
        self.link(slot as u32);
        if before != owner {
            self.count(owner, 1);
            self.count(before, -1);
        }
        Ok(gone)
    }

    /// Notes that an address is alive. If it was asked at its place, it is proven from now on.
    pub(crate) fn touch(&mut self, now: Instant, mac: MacAddr) {
        let Some((_, at)) = self.find(mac) else {
            return;
        };
        let slot = at as u32;
        if self.slots[at].has(ASKED) && !self.slots[at].has(LEFT | PROVEN) {
            self.unlink(slot);
            self.slots[at].set(PROVEN, true);
            self.link(slot);
        }
        self.refresh(now, slot);
    }

    pub(crate) fn set_heard(&mut self, mac: MacAddr, heard: bool) {
        if let Some((_, at)) = self.find(mac) {
            self.slots[at].set(HEARD, heard);
        }
    }

    /// Moves an address behind the others of its port, as if it were new.
    pub(crate) fn renew(&mut self, now: Instant, mac: MacAddr) {
        if let Some((_, at)) = self.find(mac) {
            self.refresh(now, at as u32);
        }
    }

    pub(crate) fn mark(&mut self, mac: MacAddr) {
        if let Some((_, at)) = self.find(mac) {
            self.slots[at].set(MARKED, true);
        }
    }

    /// Removes the mark from the address in a slot.
    pub(crate) fn unmark(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.set(MARKED, false);
        }
    }

    /// The address in a slot, unless it is marked.
    pub(crate) fn unmarked(&self, slot: usize) -> Option<MacAddr> {
        let slot = self.slots.get(slot)?;
        (!slot.has(MARKED)).then_some(MacAddr(slot.mac))
    }

    /// Whether any address has its place at this port.
    pub(crate) fn has_place(&self, at: Location) -> bool {
        let owner = self.by_place.get(&at);
        owner.is_some_and(|owner| self.owners[*owner as usize].first_placed().is_some())
    }

    /// Notes that an address was asked, and moves it behind the others of its port.
    pub(crate) fn set_asked(&mut self, now: Instant, mac: MacAddr) {
        if let Some((_, at)) = self.find(mac) {
            self.refresh(now, at as u32);
            self.slots[at].set(ASKED, true);
        }
    }

    /// Whether an address has a place and was not heard since it was asked.
    pub(crate) fn is_asked(&self, mac: MacAddr) -> bool {
        let at = self.find(mac);
        at.is_some_and(|(_, at)| self.slots[at].has(ASKED) && !self.slots[at].has(LEFT))
    }

    pub(crate) fn remove(&mut self, mac: MacAddr) -> Option<V> {
        let (_, at) = self.find(mac)?;
        Some(self.take(at as u32).value)
    }

    /// Removes the place of all addresses at a port that nobody is behind any more. Returns them in
    /// order; they are kept, without a place, until their room is wanted.
    pub(crate) fn unplace(&mut self, now: Instant, at: Location) -> Vec<MacAddr> {
        let Some(owner) = self.by_place.get(&at).copied() else {
            return Vec::new();
        };
        let mut unplaced = Vec::new();
        while let Some(slot) = self.owners[owner as usize].first_placed() {
            self.unlink(slot);
            let it = &mut self.slots[slot as usize];
            it.set(LEFT, true);
            it.heard = tick(now);
            unplaced.push(MacAddr(it.mac));
            self.link(slot);
        }
        unplaced.sort();
        unplaced
    }

    /// The first port with addresses behind `after`.
    pub(crate) fn next_place(&self, after: Option<Location>) -> Option<Location> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let next = self.by_place.range((from, Unbounded)).next();
        next.map(|(at, _)| *at)
    }

    /// The address of a port that was not heard for the longest time: first among those not proven,
    /// if for at least `unproven`, and then among the proven ones, if for at least `proven`.
    pub(crate) fn oldest_here(
        &self,
        now: Instant,
        at: Location,
        (unproven, proven): (Duration, Duration),
    ) -> Option<MacAddr> {
        let owner = &self.owners[*self.by_place.get(&at)? as usize];
        let first = self.if_idle(now, owner.unproven, unproven);
        first.or_else(|| self.if_idle(now, owner.proven, proven))
    }

    /// Among the addresses without a place, the one that lost its place first, if that is `idle`
    /// ago.
    pub(crate) fn oldest_left(
        &self,
        now: Instant,
        at: Location,
        idle: Duration,
    ) -> Option<MacAddr> {
        let owner = &self.owners[*self.by_place.get(&at)? as usize];
        self.if_idle(now, owner.left, idle)
    }

    fn if_idle(&self, now: Instant, list: List, idle: Duration) -> Option<MacAddr> {
        let slot = &self.slots[list.first()? as usize];
        let age = u16::from_ne_bytes(tick(now)).wrapping_sub(u16::from_ne_bytes(slot.heard));
        (u64::from(age) * TICK_S >= idle.as_secs()).then_some(MacAddr(slot.mac))
    }

    /// Makes room for one more address at `at`, which comes from `from` if it is known already.
    fn make_room(
        &mut self,
        now: Instant,
        at: Location,
        from: Option<Location>,
        spared: impl Fn(MacAddr, &V) -> bool,
    ) -> Result<Option<Gone<V>>, Full> {
        let own = self.by_place.get(&at).copied();
        let of_port = own.map_or(0, |own| self.owners[own as usize].count());
        let of_switch = self.switches.get(&at.dpid).map_or(0, |s| s.count);
        let stays_in_switch = from.is_some_and(|from| from.dpid == at.dpid);
        let victim = if of_port >= self.shares.per_port_max {
            own
        } else if of_switch >= self.shares.per_switch_max && !stays_in_switch {
            self.greediest_of(at.dpid)
        } else if self.slots.len() >= self.shares.count_max && from.is_none() {
            let switch = self.greediest.last().map(|(_, dpid)| *dpid);
            switch.and_then(|dpid| self.greediest_of(dpid))
        } else {
            return Ok(None);
        };
        let victim = victim.ok_or(Full { of: at })?;
        self.evict(now, victim, own, spared).map(Some)
    }

    /// Evicts an address of a port that has too many over several tables.
    pub(crate) fn give_up(
        &mut self,
        now: Instant,
        at: Location,
        spared: impl Fn(MacAddr, &V) -> bool,
    ) -> Result<Gone<V>, Full> {
        let victim = self.by_place.get(&at).copied();
        self.evict(now, victim.ok_or(Full { of: at })?, victim, spared)
    }

    /// Evicts the first address in line at the port `victim`, for another one of the port `own`.
    fn evict(
        &mut self,
        now: Instant,
        victim: u32,
        own: Option<u32>,
        spared: impl Fn(MacAddr, &V) -> bool,
    ) -> Result<Gone<V>, Full> {
        let of = self.owners[victim as usize].at;
        let gone = |slot: Slot<V>| {
            let (mac, was_placed) = (MacAddr(slot.mac), !slot.has(LEFT));
            let value = slot.value;
            Gone {
                mac,
                value,
                of,
                was_placed,
            }
        };
        if let Some(slot) = self.owners[victim as usize].left.first() {
            return Ok(gone(self.take(slot)));
        }
        let within = |owner: u32| self.owners[owner as usize].replaced.take(now);
        if !own.is_none_or(within) {
            return Err(Full { of });
        }
        for _ in 0..SPARED_MAX {
            let oldest = self.owners[victim as usize].first_placed();
            let oldest = oldest.ok_or(Full { of })?;
            let slot = &self.slots[oldest as usize];
            if !spared(MacAddr(slot.mac), &slot.value) {
                return Ok(gone(self.take(oldest)));
            }
            self.refresh(now, oldest);
        }
        let oldest = self.owners[victim as usize].first_placed();
        match oldest.filter(|_| own != Some(victim)) {
            Some(oldest) => Ok(gone(self.take(oldest))),
            None => Err(Full { of }),
        }
    }

    fn greediest_of(&self, dpid: DatapathId) -> Option<u32> {
        let ports = &self.switches.get(&dpid)?.greediest;
        ports.last().map(|(_, owner)| *owner)
    }

    /// Moves a slot to the end of its list.
    fn refresh(&mut self, now: Instant, slot: u32) {
        let it = &mut self.slots[slot as usize];
        it.set(ASKED, false);
        if it.heard != tick(now) {
            it.heard = tick(now);
            self.unlink(slot);
            self.link(slot);
        }
    }

    fn owner(&mut self, now: Instant, at: Location) -> u32 {
        if let Some(owner) = self.by_place.get(&at) {
            return *owner;
        }
        let owner = Owner {
            at,
            unproven: List::EMPTY,
            proven: List::EMPTY,
            left: List::EMPTY,
            replaced: Budget::new(now, REPLACED_PER_S, REPLACED_BURST),
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.owners[number as usize] = owner;
                number
            }
            None => {
                self.owners.push(owner);
                self.owners.len() as u32 - 1
            }
        };
        self.by_place.insert(at, number);
        number
    }

    /// Counts one more address of an owner, or one less.
    fn count(&mut self, owner: u32, change: i32) {
        let at = self.owners[owner as usize].at;
        if let Some(changes) = &mut self.changes {
            changes.push((at, change));
        }
        // The slot is linked or unlinked by now.
        let count = self.owners[owner as usize].count();
        let before = count.wrapping_add_signed(-change);
        let switch = self.switches.entry(at.dpid).or_default();
        switch.greediest.remove(&(before, owner));
        self.greediest.remove(&(switch.count, at.dpid));
        switch.count = switch.count.wrapping_add_signed(change);
        if count > 0 {
            switch.greediest.insert((count, owner));
        } else {
            self.by_place.remove(&at);
            self.free.push(owner);
        }
        if switch.count > 0 {
            self.greediest.insert((switch.count, at.dpid));
        } else {
            self.switches.remove(&at.dpid);
        }
    }

    fn list_of(&mut self, slot: u32) -> &mut List {
        let slot = &self.slots[slot as usize];
        let owner = &mut self.owners[slot.owner()];
        match (slot.has(LEFT), slot.has(PROVEN)) {
            (true, _) => &mut owner.left,
            (false, true) => &mut owner.proven,
            (false, false) => &mut owner.unproven,
        }
    }

    /// Appends a slot to the list that its owner and flags name.
    fn link(&mut self, slot: u32) {
        let list = self.list_of(slot);
        let last = std::mem::replace(&mut list.tail, slot);
        list.len += 1;
        if last == NONE {
            list.head = slot;
        } else {
            self.slots[last as usize].next = slot.to_ne_bytes();
        }
        let it = &mut self.slots[slot as usize];
        it.prev = last.to_ne_bytes();
        it.next = NONE.to_ne_bytes();
    }

    fn unlink(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let (prev, next) = (u32::from_ne_bytes(it.prev), u32::from_ne_bytes(it.next));
        self.point(slot, prev, next, (next, prev));
        self.list_of(slot).len -= 1;
    }

    /// Points the neighbours of a slot, or its list's ends, at others: the one before at the first
    /// of `to`, the one after at the second.
    fn point(&mut self, slot: u32, prev: u32, next: u32, to: (u32, u32)) {
        match prev {
            NONE => self.list_of(slot).head = to.0,
            prev => self.slots[prev as usize].next = to.0.to_ne_bytes(),
        }
        match next {
            NONE => self.list_of(slot).tail = to.1,
            next => self.slots[next as usize].prev = to.1.to_ne_bytes(),
        }
    }

    /// Takes a slot out. The last slot moves into its place.
    fn take(&mut self, slot: u32) -> Slot<V> {
        let owner = self.slots[slot as usize].owner() as u32;
        self.unlink(slot);
        self.unindex(MacAddr(self.slots[slot as usize].mac));
        let last = self.slots.len() as u32 - 1;
        if slot != last {
            let (hash, at) = self.entry_of(last);
            let it = &self.slots[last as usize];
            let (prev, next) = (u32::from_ne_bytes(it.prev), u32::from_ne_bytes(it.next));
            self.point(last, prev, next, (slot, slot));
            self.index[at] = entry(slot, hash);
        }
        let taken = self.slots.swap_remove(slot as usize);
        self.count(owner, -1);
        self.shrink();
        taken
    }

    /// The position of an address in the index, and its slot.
    fn find(&self, mac: MacAddr) -> Option<(usize, usize)> {
        if self.index.is_empty() {
            return None;
        }
        let mask = self.index.len() - 1;
        let hash = self.hash(mac);
        let mut at = hash as usize & mask;
        loop {
            match self.index[at] {
                0 => return None,
                found if found >> 24 == tag(hash) => {
                    let slot = (found & SLOT_MASK) as usize - 1;
                    if self.slots[slot].mac == mac.0 {
                        return Some((at, slot));
                    }
                }
                _ => {}
            }
            at = (at + 1) & mask;
        }
    }

    /// The hash of a slot's address, and the slot's position in the index.
    fn entry_of(&self, slot: u32) -> (u64, usize) {
        let hash = self.hash(MacAddr(self.slots[slot as usize].mac));
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while self.index[at] & SLOT_MASK != slot + 1 {
            at = (at + 1) & mask;
        }
        (hash, at)
    }

    fn index_slot(&mut self, slot: u32) {
        let hash = self.hash(MacAddr(self.slots[slot as usize].mac));
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while self.index[at] != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = entry(slot, hash);
    }

    /// Removes an address from the index. Later entries shift back, so that there are no
    /// tombstones.
    fn unindex(&mut self, mac: MacAddr) {
        let Some((mut hole, _)) = self.find(mac) else {
            return;
        };
        let mask = self.index.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let found = self.index[at];
            if found == 0 {
                break;
            }
            let slot = (found & SLOT_MASK) as usize - 1;
            let home = self.hash(MacAddr(self.slots[slot].mac)) as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = found;
                hole = at;
            }
        }
        self.index[hole] = 0;
    }

    fn hash(&self, mac: MacAddr) -> u64 {
        mix(mac.to_u64() ^ self.seed)
    }

    /// Makes room for one more slot; at most four of five places of the index are taken.
    fn grow(&mut self) {
        let len = self.slots.len();
        if len == self.slots.capacity() {
            // An eighth more, so that little of the memory is unused.
            self.slots.reserve_exact((len / 8).max(8));
        }
        if (len + 1) * 5 > self.index.len() * 4 {
            self.rebuild((self.index.len() * 2).max(16));
        }
    }

    /// Gives memory back when little is left.
    fn shrink(&mut self) {
        let len = self.slots.len();
        if len * 4 < self.slots.capacity() && self.slots.capacity() > 64 {
            self.slots.shrink_to(len * 2);
        }
        if len * 8 < self.index.len() && self.index.len() > 64 {
            self.rebuild(self.index.len() / 4);
        }
    }

    fn rebuild(&mut self, places: usize) {
        self.index = vec![0; places];
        for slot in 0..self.slots.len() as u32 {
            self.index_slot(slot);
        }
    }
}

const SLOT_MASK: u32 = 0x00ff_ffff;

fn entry(slot: u32, hash: u64) -> u32 {
    tag(hash) << 24 | (slot + 1)
}

/// Bits of the hash that do not choose the place in the index.
fn tag(hash: u64) -> u32 {
    (hash >> 56) as u32
}

fn tick(now: Instant) -> [u8; 2] {
    let seconds = now.as_nanos() / 1_000_000_000;
    ((seconds / TICK_S) as u16).to_ne_bytes()
}

impl<V> Slot<V> {
    fn owner(&self) -> usize {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        (u32::from_ne_bytes(self.owner) & SLOT_MASK) as usize
    }

    fn set_owner(&mut self, owner: u32) {
        let flags = u32::from_ne_bytes(self.owner) & !SLOT_MASK;
        self.owner = (owner | flags).to_ne_bytes();
    }

    fn has(&self, flag: u8) -> bool {
        u32::from_ne_bytes(self.owner) >> 24 & u32::from(flag) != 0
    }

    fn set(&mut self, flag: u8, on: bool) {
        let flag = u32::from(flag) << 24;
        let word = u32::from_ne_bytes(self.owner);
        self.owner = if on { word | flag } else { word & !flag }.to_ne_bytes();
    }
}

impl Owner {
    fn count(&self) -> u32 {
        self.unproven.len + self.proven.len + self.left.len
    }

    /// The first address to evict of those that have their place here.
    fn first_placed(&self) -> Option<u32> {
        self.unproven.first().or(self.proven.first())
    }
}

impl List {
    const EMPTY: List = List {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    fn first(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

#[cfg(test)]
impl<V> FairTable<V> {
    /// Checks the counts of a port and its switch, and the lists.
    pub(crate) fn check(&self, at: Location, of_port: usize, of_switch: usize) {
        let switch = self.switches.get(&at.dpid);
        assert_eq!(switch.map_or(0, |s| s.count as usize), of_switch);
        let Some(number) = self.by_place.get(&at).copied() else {
            return assert_eq!(of_port, 0);
        };
        let owner = &self.owners[number as usize];
        assert_eq!(owner.count() as usize, of_port);
        assert!(switch.unwrap().greediest.contains(&(owner.count(), number)));
        let lists = [
            (owner.unproven, false, Some(false)),
            (owner.proven, false, Some(true)),
            (owner.left, true, None),
        ];
        for (list, is_left, is_proven) in lists {
            let (mut next, mut before, mut count) = (list.head, NONE, 0);
            while next != NONE {
                let slot = &self.slots[next as usize];
                assert_eq!(slot.has(LEFT), is_left);
                assert!(is_proven.is_none_or(|is| is == slot.has(PROVEN)));
                assert_eq!(u32::from_ne_bytes(slot.prev), before);
                (before, next) = (next, u32::from_ne_bytes(slot.next));
                count += 1;
            }
            assert_eq!((list.tail, list.len), (before, count));
        }
    }

    pub(crate) fn is_proven(&self, mac: MacAddr) -> bool {
        self.find(mac)
            .is_some_and(|(_, at)| self.slots[at].has(PROVEN))
    }

    /// Bytes that are allocated for slots and index.
    fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<V>>() + self.index.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The number of times that this thread has looked up the port of a slot.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    fn mac(n: u64) -> MacAddr {
        MacAddr::from_u64(n)
    }

    fn at(dpid: u64, port: u32) -> Location {
        let (dpid, port) = (DatapathId(dpid), PortNo(port));
        Location { dpid, port }
    }

    const SHARES: Shares = Shares {
        count_max: 2_097_152,
        per_switch_max: 524_288,
        per_port_max: 131_072,
    };

    fn insert(table: &mut FairTable<()>, now: Instant, n: u64, at: Location) -> bool {
        table.insert(now, (mac(n), ()), at, |_, ()| false).is_ok()
    }

    /// 42 MB in slots, an eighth of them not used yet at most, and 17 MB in the index.
    #[test]
    fn two_million_hosts_stay_within_their_bound_of_memory() {
        let mut table = FairTable::new(SHARES, 7);
        for n in 1..=2_200_000u64 {
            let port = (n % 64) as u32;
            insert(&mut table, Instant::START, n, at(n % 8, port));
        }
        assert_eq!(size_of::<Slot<()>>(), 20);
        assert_eq!(table.len(), SHARES.count_max);
        assert!(
            table.bytes() <= SHARES.count_max * 31,
            "{} bytes",
            table.bytes()
        );
        for n in 1..=2_200_000u64 {
            table.remove(mac(n));
        }
        assert!(
            table.bytes() < 4096,
            "{} bytes of an empty table",
            table.bytes()
        );
    }

    /// Finding 4 b: the port goes down and up, and its addresses stay its own.
    #[test]
    fn a_port_that_bounces_fills_its_share_and_nothing_else() {
        let mut table = FairTable::new(SHARES, 7);
        let (attacker, honest) = (at(1, 1), at(2, 1));
        let mut n = 0;
        for _ in 0..16 {
            for _ in 0..131_072 {
                n += 1;
                assert!(insert(&mut table, Instant::START, n, attacker));
            }
            table.unplace(Instant::START, attacker);
        }
        assert_eq!(n, 2_097_152);
        assert_eq!(table.len(), 131_072);
        assert!(insert(&mut table, Instant::START, n + 1, honest));
        assert_eq!(table.place(mac(n + 1)), Some(honest));
    }

    /// Finding F4: 64 ports of one switch.
    #[test]
    fn one_switch_fills_its_share_and_nothing_else() {
        let mut table = FairTable::new(SHARES, 7);
        for n in 1..=2_097_152u64 {
            insert(&mut table, Instant::START, n, at(1, (n % 64) as u32));
        }
        assert_eq!(table.len(), 524_288);
        assert!(insert(&mut table, Instant::START, 3_000_000, at(2, 1)));
    }

    /// Four hostile switches fill the table together; new hosts elsewhere still find room, taken
    /// from these switches.
    #[test]
    fn in_a_full_table_the_greediest_gives_way() {
        let mut table = FairTable::new(SHARES, 7);
        for n in 1..=2_097_152u64 {
            insert(&mut table, Instant::START, n, at(n % 4, (n % 64) as u32));
        }
        assert_eq!(table.len(), SHARES.count_max);
        for n in 1..=500u64 {
            let new = 3_000_000 + n;
            let gone = table.insert(Instant::START, (mac(new), ()), at(9, 1), |_, ()| false);
            let gone = gone.unwrap().expect("somebody gives way");
            assert!(gone.of.dpid.0 < 4 && gone.was_placed);
        }
        assert!((1..=500).all(|n| table.place(mac(3_000_000 + n)) == Some(at(9, 1))));
        assert_eq!(table.len(), SHARES.count_max);
    }

    /// Finding 23: the work grows with the hosts of the port that goes down, not with all hosts.
    #[test]
    fn a_port_that_goes_down_costs_no_look_at_the_hosts_of_others() {
        let looks = |others: u64, own: u64| {
            let mut table = FairTable::new(SHARES, 7);
            for n in 1..=others {
                insert(&mut table, Instant::START, n, at(n % 8, (n % 64) as u32));
            }
            let down = at(1, 100);
            for n in 1..=own {
                insert(&mut table, Instant::START, others + n, down);
            }
            let before = LOOKS.get();
            assert_eq!(table.unplace(Instant::START, down).len(), own as usize);
            LOOKS.get() - before
        };
        assert_eq!(looks(100_000, 10), looks(100, 10));
        assert_eq!(looks(100_000, 0), 0);
    }

    #[test]
    fn the_hosts_of_a_switch_are_those_that_have_their_place_there() {
        let mut random = clock::SplitMix64::new(3);
        let mut table = FairTable::new(SHARES, 7);
        for _ in 0..2000 {
            let n = 1 + random.next() % 300;
            let place = at(random.next() % 4, (random.next() % 8) as u32);
            match random.next() % 8 {
                0 => drop(table.unplace(Instant::START, place)),
                1 => drop(table.remove(mac(n))),
                2 => drop(table.settle(Instant::START, mac(n), place, |_, ()| false)),
                _ => drop(table.insert(Instant::START, (mac(n), ()), place, |_, ()| false)),
            }
            for dpid in (0..4).map(DatapathId) {
                let there: BTreeSet<_> = table.placed_at(dpid).collect();
                let placed = table.placed().filter(|(_, at)| at.dpid == dpid);
                assert_eq!(there, placed.collect());
            }
            let dpids = DatapathId(1)..=DatapathId(2);
            let mut counts = BTreeMap::new();
            for (_, at) in table.placed().filter(|(_, at)| dpids.contains(&at.dpid)) {
                *counts.entry(at).or_insert(0) += 1;
            }
            assert!(table.counts(dpids).eq(counts));
        }
    }

    /// A port that has its share replaces a thousand at once and then a hundred a second.
    #[test]
    fn a_port_with_its_share_takes_others_places_slowly() {
        let shares = Shares {
            per_port_max: 2000,
            ..SHARES
        };
        let mut table = FairTable::new(shares, 7);
        let mut now = Instant::START;
        for n in 1..=2000 {
            assert!(insert(&mut table, now, n, at(1, 1)));
        }
        let tries = |table: &mut FairTable<()>, now, from: u64| {
            let tried = from..from + 10_000;
            tried.filter(|n| insert(table, now, *n, at(1, 1))).count()
        };
        assert_eq!(tries(&mut table, now, 10_000), 1000);
        now += Duration::from_secs(2);
        assert_eq!(tries(&mut table, now, 30_000), 200);
        assert_eq!(table.len(), 2000);
    }

    #[test]
    fn what_has_answered_at_its_place_goes_last() {
        let shares = Shares {
            per_port_max: 4,
            ..SHARES
        };
        let (here, mut now) = (at(1, 1), Instant::START);
        let mut table = FairTable::with_changes(shares, 7);
        for n in 1..=4 {
            insert(&mut table, now, n, here);
        }
        // Two are asked, and one of them answers. The third speaks without being asked.
        table.set_asked(now, mac(1));
        table.set_asked(now, mac(2));
        now += Duration::from_secs(8);
        table.touch(now, mac(1));
        table.touch(now, mac(3));
        table.check(here, 4, 4);
        now += Duration::from_secs(100);
        let idle = |table: &FairTable<()>, unproven, proven| {
            let idle = (Duration::from_secs(unproven), Duration::from_secs(proven));
            table.oldest_here(now, here, idle)
        };
        assert_eq!(idle(&table, 60, 600), Some(mac(2)));
        for (n, gone) in (5..=8).zip([2, 4, 3, 5]) {
            insert(&mut table, now, n, here);
            assert!(!table.contains(mac(gone)), "{gone}");
        }
        assert_eq!(idle(&table, 60, 600), None);
        assert_eq!(idle(&table, 60, 60), Some(mac(1)));
        // At another place the address has proved nothing.
        let _ = table.settle(now, mac(1), at(1, 2), |_, ()| false);
        let _ = table.settle(now, mac(1), here, |_, ()| false);
        table.check(here, 4, 4);
        let changes: i32 = table.take_changes().iter().map(|(_, change)| change).sum();
        assert_eq!(changes, 4);
        // The port gives up the address that would be evicted first.
        let gone = table.give_up(now, here, |_, ()| false);
        assert_eq!(gone.map(|gone| gone.mac), Ok(mac(6)));
        table.check(here, 3, 3);
    }

    #[test]
    fn what_is_spared_stays_as_long_as_something_else_can_go() {
        let shares = Shares {
            per_port_max: 10,
            ..SHARES
        };
        let mut table = FairTable::new(shares, 7);
        for n in 1..=10 {
            insert(&mut table, Instant::START, n, at(1, 1));
        }
        let odd = |mac: MacAddr, (): &()| mac.to_u64() % 2 == 1;
        let now = Instant::START + Duration::from_secs(10);
        for n in 11..=15 {
            let n = n * 2;
            table.insert(now, (mac(n), ()), at(1, 1), odd).unwrap();
        }
        assert!((1..=9).step_by(2).all(|n| table.contains(mac(n))));
        let all = |_: MacAddr, (): &()| true;
        let refused = table.insert(now, (mac(99), ()), at(1, 1), all);
        assert_eq!(refused, Err(Full { of: at(1, 1) }));
    }
}
