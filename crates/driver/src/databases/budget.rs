//! The memory that the databases may take in this process: all together, and those of one network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::transport::Network;

/// The memory budget that all connections share.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    network_bytes_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// The bytes of each network, beyond the free part of each connection.
    by_network: BTreeMap<Network, usize>,
}

/// The part of a connection's memory that counts against no network: many small switches may share
/// a network.
const FREE_BYTES: usize = 256 << 10;

/// The memory that one connection takes; returned when the charge is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    /// `None` if this end has dialled, or for a Unix socket: the operator has chosen the peer.
    network: Option<Network>,
    bytes: usize,
}

impl Budget {
    pub fn new(bytes_max: usize, network_bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            bytes_max,
            network_bytes_max,
            held: Mutex::default(),
        })
    }

    pub fn charge(self: &Arc<Budget>, network: Option<Network>) -> Charge {
        Charge {
            budget: self.clone(),
            network,
            bytes: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Charges `bytes` from now on, in place of the previous amount. Returns false, and changes
    /// nothing, if that is more than the budget has left.
    pub fn set(&mut self, bytes: usize) -> bool {
        let Budget {
            bytes_max,
            network_bytes_max,
            ..
        } = *self.budget;
        let mut held = self.budget.lock();
        let all = held.bytes - self.bytes + bytes;
        let (before, after) = (counted(self.bytes), counted(bytes));
        let of_network = |held: &Held| {
            let network = self.network.as_ref()?;
            Some(held.by_network.get(network).copied().unwrap_or(0) - before + after)
        };
        let of_network = of_network(&held);
        let is_more = bytes > self.bytes;
        let is_too_much = all > bytes_max || of_network.is_some_and(|n| n > network_bytes_max);
        if is_more && is_too_much {
            return false;
        }
        held.bytes = all;
        if let (Some(network), Some(of_network)) = (self.network, of_network) {
            match of_network {
                0 => drop(held.by_network.remove(&network)),
                _ => drop(held.by_network.insert(network, of_network)),
            }
        }
        self.bytes = bytes;
        true
    }
}

fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_part_and_everything_is_given_back() {
        let budget = Budget::new(64 << 20, 16 << 20);
        let network = |text: &str| Some(Network::of(text.parse().unwrap()));
        let mut greedy: Vec<Charge> = (0..64)
            .map(|n| budget.charge(network(&format!("192.0.2.{n}"))))
            .collect();
        let taken = greedy
            .iter_mut()
            .filter_map(|c| c.set(4 << 20).then_some(()));
        assert_eq!(taken.count(), 4, "of 4 MiB, with 256 KiB free each");
        let mut other = budget.charge(network("198.51.100.1"));
        assert!(other.set(16 << 20));
        assert!(!other.set(17 << 20));
        let mut chosen = budget.charge(None);
        assert!(chosen.set(30 << 20), "no network");
        assert!(!chosen.set(64 << 20), "not more than all");
        assert!(chosen.set(1 << 20), "less is always taken");
        drop((greedy, other, chosen));
        let held = budget.lock();
        assert_eq!((held.bytes, held.by_network.len()), (0, 0));
    }
}
