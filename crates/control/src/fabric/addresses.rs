//! The owner of every IP address that edges answer questions for.
//!
//! One thread writes, any number read, and none waits, as with [`places`](super::places). A slot
//! belongs to one address for good, and its owner is one word. So a reader sees the owner of its
//! address, or the owner of a moment ago, or none.
//!
//! An address that two hosts claim has no owner here until the controller has decided.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::mix;
use openflow::MacAddr;

/// Maximum number of addresses with an owner here. Questions for further addresses are flooded.
const ADDRESSES_MAX: usize = 131_072;

const SLOTS_MIN: usize = 64;

/// Marks the word of a slot that belongs to an address. If the word has no MAC address, the IP
/// address has no owner any more.
const TAKEN: u64 = 1 << 63;

/// Marks an owner that answers questions for its addresses itself.
const ITSELF: u64 = 1 << 62;

/// The upper half that stands for IPv4: multicast in IPv6, which no host owns.
const IPV4: u64 = u64::MAX;

/// A map from IP addresses to the MAC addresses of their owners.
pub struct Addresses {
    /// A power of two.
    slots: Box<[Slot]>,
    seed: u64,
}

/// The host that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub mac: MacAddr,
    /// Whether nobody else may answer for it.
    pub answers_itself: bool,
}

impl Owner {
    fn to_word(self) -> u64 {
        let itself = if self.answers_itself { ITSELF } else { 0 };
        TAKEN | itself | self.mac.to_u64()
    }

    fn from_word(word: u64) -> Option<Owner> {
        (word & !TAKEN != 0).then(|| Owner {
            mac: MacAddr::from_u64(word & !(TAKEN | ITSELF)),
            answers_itself: word & ITSELF != 0,
        })
    }
}

#[derive(Default)]
struct Slot {
    /// Zero: the slot is empty. Written after the address.
    owner: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

type Key = (u64, u64);

fn key(ip: IpAddr) -> Key {
    match ip {
        IpAddr::V4(ip) => key_v4(ip),
        IpAddr::V6(ip) => key_v6(ip),
    }
}

fn key_v4(ip: Ipv4Addr) -> Key {
    (IPV4, u64::from(ip.to_bits()))
}

fn key_v6(ip: Ipv6Addr) -> Key {
    let bits = ip.to_bits();
    ((bits >> 64) as u64, bits as u64)
}

impl Addresses {
    /// A table that `count` addresses fill to at most a half.
    fn with_room(count: usize, seed: u64) -> Addresses {
        let len = (count * 2).next_power_of_two().max(SLOTS_MIN);
        let slots = (0..len).map(|_| Slot::default()).collect();
        Addresses { slots, seed }
    }

    /// The owner of an address.
    pub fn get(&self, ip: IpAddr) -> Option<Owner> {
        let at = self.find(key(ip)).ok()?;
        Owner::from_word(self.slots[at].owner.load(Ordering::Relaxed))
    }

    /// The slot of an address, or the one where it would be.
    fn find(&self, key: Key) -> Result<usize, usize> {
        let mut at = self.home(key);
        loop {
            let slot = &self.slots[at];
            if slot.owner.load(Ordering::Acquire) == 0 {
                return Err(at);
            }
            let (high, low) = (&slot.high, &slot.low);
            if (high.load(Ordering::Relaxed), low.load(Ordering::Relaxed)) == key {
                return Ok(at);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn home(&self, (high, low): Key) -> usize {
        mix(mix(high ^ self.seed) ^ low) as usize & (self.slots.len() - 1)
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addresses({} slots)", self.slots.len())
    }
}

/// The one writer of a table.
pub struct Writer {
    addresses: Arc<Addresses>,
    len: usize,
    /// Slots that are not empty, those of removed addresses included.
    taken: usize,
}

impl Writer {
    /// Makes an empty table. With a secret `seed` nobody can choose addresses that collide.
    pub fn new(seed: u64) -> Writer {
        Writer {
            addresses: Arc::new(Addresses::with_room(0, seed)),
            len: 0,
            taken: 0,
        }
    }

    /// The table. When it is full, a larger one replaces it, and the edges need the larger one.
    pub fn addresses(&self) -> &Arc<Addresses> {
        &self.addresses
    }

    /// Sets the owner of an address. Beyond the maximum, a new address gets no owner.
    pub fn set(&mut self, ip: IpAddr, owner: Owner) {
        let word = owner.to_word();
        let key = key(ip);
        match self.addresses.find(key) {
            Ok(at) => {
                let owner = &self.addresses.slots[at].owner;
                let is_back = owner.load(Ordering::Relaxed) == TAKEN;
                if !is_back || self.len < ADDRESSES_MAX {
                    owner.store(word, Ordering::Relaxed);
                    self.len += usize::from(is_back);
                }
            }
            Err(_) if self.len >= ADDRESSES_MAX => {}
            Err(_) => {
                if (self.taken + 1) * 4 > self.addresses.slots.len() * 3 {
                    self.rebuild();
                }
                put(&self.addresses, key, word);
                (self.len, self.taken) = (self.len + 1, self.taken + 1);
            }
        }
    }

    /// Removes the owner of an address.
    pub fn remove(&mut self, ip: IpAddr) {
        if let Ok(at) = self.addresses.find(key(ip)) {
            let old = self.addresses.slots[at]
                .owner
                .swap(TAKEN, Ordering::Relaxed);
            self.len -= usize::from(old != TAKEN);
        }
    }

    /// Makes a table with room, without the addresses that have no owner.
    fn rebuild(&mut self) {
        let addresses = Addresses::with_room(self.len + self.len / 2 + 1, self.addresses.seed);
        for slot in &self.addresses.slots {
            let word = slot.owner.load(Ordering::Relaxed);
            let (high, low) = (&slot.high, &slot.low);
            if word & !TAKEN != 0 {
                let key = (high.load(Ordering::Relaxed), low.load(Ordering::Relaxed));
                put(&addresses, key, word);
            }
        }
        self.addresses = Arc::new(addresses);
        self.taken = self.len;
    }
}

/// Writes an address that has no slot.
fn put(addresses: &Addresses, key: Key, word: u64) {
    if let Err(at) = addresses.find(key) {
        let slot = &addresses.slots[at];
        slot.high.store(key.0, Ordering::Relaxed);
        slot.low.store(key.1, Ordering::Relaxed);
        slot.owner.store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ip(n: u64) -> IpAddr {
        match n % 2 {
            0 => IpAddr::V4(Ipv4Addr::from_bits(n as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(u128::from(n))),
        }
    }

    fn owner(mac: u64) -> Owner {
        Owner {
            mac: MacAddr::from_u64(mac),
            answers_itself: mac.is_multiple_of(3),
        }
    }

    proptest! {
        /// The table answers as an ordered map does, through removals and growth.
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0u64..300, 1u64..9, any::<bool>()), 0..900),
        ) {
            let mut writer = Writer::new(7);
            let mut model = BTreeMap::new();
            for (n, mac, is_set) in steps {
                if is_set {
                    writer.set(ip(n), owner(mac));
                    model.insert(ip(n), owner(mac));
                } else {
                    writer.remove(ip(n));
                    model.remove(&ip(n));
                }
                prop_assert_eq!(writer.len, model.len());
                for n in 0..300 {
                    prop_assert_eq!(writer.addresses().get(ip(n)), model.get(&ip(n)).copied());
                }
            }
        }
    }

    /// Readers beside the writer see an owner of their address or none, never the owner of another.
    #[test]
    fn readers_see_owners_of_their_address() {
        let owner = |n: u64, round: u64| owner(n << 8 | (round + 1));
        let mut writer = Writer::new(3);
        for n in 0..1000 {
            writer.set(ip(n), owner(n, 0));
        }
        let addresses = writer.addresses().clone();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                for _ in 0..200 {
                    for n in 0..2000 {
                        let found = addresses.get(ip(n));
                        assert!(found.is_none_or(|owner| owner.mac.to_u64() >> 8 == n));
                    }
                }
            });
            for round in 0..50u64 {
                for n in 0..1500 {
                    match (n + round) % 3 {
                        0 => writer.remove(ip(n)),
                        _ => writer.set(ip(n), owner(n, round)),
                    }
                }
            }
            reader.join().expect("the reader ends");
        });
    }

    #[test]
    fn addresses_beyond_the_bound_have_no_owner() {
        let mut writer = Writer::new(1);
        let count = ADDRESSES_MAX as u64;
        for n in 0..count + 10 {
            writer.set(ip(n), owner(1));
        }
        assert_eq!(writer.len, ADDRESSES_MAX);
        assert_eq!(writer.addresses().get(ip(count)), None);
        writer.remove(ip(0));
        writer.set(ip(count), owner(2));
        assert!(writer.addresses().get(ip(count)).is_some());
        // Its slot is still there, but the table has no room.
        writer.set(ip(0), owner(1));
        assert_eq!(writer.addresses().get(ip(0)), None);
        assert_eq!(writer.len, ADDRESSES_MAX);
    }
}
