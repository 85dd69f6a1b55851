//! Proof that every byte in equals every byte out: counts and a digest per channel and direction.
//!
//! Lanes may overtake each other, so the digest of OpenFlow does not depend on the order: it is the
//! sum, modulo 2²⁵⁶, of the SHA-256 of each message. Raw bytes keep their order, and their digest
//! is the SHA-256 of all bytes.

use sha2::{Digest, Sha256};

use super::wire::Agent;

/// The traffic in one direction through one end of a channel.
#[derive(Clone, Debug)]
pub struct Tally {
    pub messages: u64,
    pub bytes: u64,
    digest: Running,
}

#[derive(Clone, Debug)]
enum Running {
    Sum([u64; 4]),
    Stream(Sha256),
}

/// Packet-ins that were taken from the local socket and not carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    pub messages: u64,
    pub bytes: u64,
}

impl Shed {
    pub fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

impl Tally {
    pub fn new(agent: Agent) -> Tally {
        let digest = match agent {
            Agent::OpenFlow => Running::Sum([0; 4]),
            Agent::Raw => Running::Stream(Sha256::new()),
        };
        Tally {
            messages: 0,
            bytes: 0,
            digest,
        }
    }

    /// Adds a message, or a piece of a raw stream, that has passed.
    pub fn add(&mut self, bytes: &[u8]) {
        self.messages += 1;
        self.bytes += bytes.len() as u64;
        match &mut self.digest {
            Running::Stream(hash) => hash.update(bytes),
            Running::Sum(sum) => add(sum, &Sha256::digest(bytes)),
        }
    }

    /// The digest of everything so far, as 64 hex digits.
    pub fn digest(&self) -> String {
        match &self.digest {
            Running::Sum(sum) => sum
                .iter()
                .rev()
                .map(|word| format!("{word:016x}"))
                .collect(),
            Running::Stream(hash) => hash
                .clone()
                .finalize()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect(),
        }
    }
}

/// `sum += hash`, both 256 bits; the words of `sum` least significant first.
fn add(sum: &mut [u64; 4], hash: &[u8]) {
    let mut carry = false;
    for (word, bytes) in sum.iter_mut().zip(hash.as_rchunks::<8>().1.iter().rev()) {
        (*word, carry) = word.carrying_add(u64::from_be_bytes(*bytes), carry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(agent: Agent, messages: &[&[u8]]) -> String {
        let mut tally = Tally::new(agent);
        messages.iter().for_each(|m| tally.add(m));
        tally.digest()
    }

    #[test]
    fn order_does_not_matter_to_openflow_and_cuts_do_not_matter_to_raw_bytes() {
        let hash_of_ab = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603";
        assert_eq!(of(Agent::Raw, &[b"a", b"b"]), hash_of_ab);
        assert_eq!(of(Agent::Raw, &[b"ab"]), hash_of_ab);
        assert_ne!(of(Agent::Raw, &[b"ba"]), hash_of_ab);
        assert_eq!(of(Agent::OpenFlow, &[b"ab"]), hash_of_ab);
        let sum = of(Agent::OpenFlow, &[b"a", b"b", b"b"]);
        assert_eq!(of(Agent::OpenFlow, &[b"b", b"a", b"b"]), sum);
        assert_ne!(of(Agent::OpenFlow, &[b"b", b"a"]), sum);
        assert_ne!(of(Agent::OpenFlow, &[b"b", b"a", b"a"]), sum);
    }
}
