//! The number of connections that a listener may have, in all and from one address, and the
//! refusals by reason.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::turns::{Network, source_of};

/// The limits of a listener. It closes a connection beyond them at once, and counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections_max: usize,
    /// Connections from one IPv4 address or one /64 of IPv6. An address of loopback may have three
    /// quarters of `connections_max`: a relay or a lab brings a whole network.
    pub connections_per_source_max: usize,
    /// Handshakes in flight, at most 32 of one network (/24 or /64). Other handshakes wait for
    /// their turn; each takes at most [`super::HANDSHAKE_TIMEOUT`].
    pub handshakes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 16_384,
            connections_per_source_max: 1024,
            handshakes_max: 1024,
        }
    }
}

/// Why an incoming connection was not handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// `connections_max` is reached.
    Total,
    /// `connections_per_source_max` is reached.
    Source,
    /// The handshake failed: version, no certificate, or not TLS at all.
    Handshake,
    /// The peer's certificate is not accepted here.
    Certificate,
    /// The handshake was not done in time, or had not begun after [`super::FIRST_FLIGHT_TIMEOUT`].
    Timeout,
    /// Too many connections of its network had unfinished handshakes, and this one was the oldest.
    Crowded,
    /// The system gave no socket, mostly for lack of file descriptors.
    System,
}

impl Refusal {
    pub const ALL: [Refusal; 7] = [
        Refusal::Total,
        Refusal::Source,
        Refusal::Handshake,
        Refusal::Certificate,
        Refusal::Timeout,
        Refusal::Crowded,
        Refusal::System,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Refusal::Total => "connections_max",
            Refusal::Source => "connections_per_source_max",
            Refusal::Handshake => "handshake_failed",
            Refusal::Certificate => "certificate",
            Refusal::Timeout => "handshake_timeout",
            Refusal::Crowded => "handshakes_per_network_max",
            Refusal::System => "system",
        }
    }
}

/// Refused connections by reason.
#[derive(Debug, Default)]
pub struct Refusals {
    counts: [AtomicU64; Refusal::ALL.len()],
}

impl Refusals {
    pub fn get(&self, reason: Refusal) -> u64 {
        self.counts[reason as usize].load(Ordering::Relaxed)
    }

    /// The reasons that have occurred.
    pub fn all(&self) -> BTreeMap<Refusal, u64> {
        let counts = Refusal::ALL.map(|reason| (reason, self.get(reason)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    pub fn count(&self, reason: Refusal) {
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Admits connections up to the limits.
#[derive(Debug)]
pub(super) struct Gate {
    limits: Limits,
    held: Mutex<Occupancy>,
    pub(super) refusals: Arc<Refusals>,
}

#[derive(Debug, Default)]
struct Occupancy {
    total: usize,
    by_source: BTreeMap<IpAddr, usize>,
}

/// One admitted connection; dropping it makes room for another.
#[derive(Debug)]
pub struct Ticket {
    gate: Arc<Gate>,
    source: Option<IpAddr>,
    network: Option<Network>,
}

impl Ticket {
    /// The network that the connection comes from; `None` for a Unix socket.
    pub fn network(&self) -> Option<Network> {
        self.network
    }
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Arc<Gate> {
        Arc::new(Gate {
            limits,
            held: Mutex::default(),
            refusals: Arc::default(),
        })
    }

    /// Admits a connection from `source`, or counts the refusal and returns its reason.
    pub(super) fn admit(self: &Arc<Gate>, source: Option<IpAddr>) -> Result<Ticket, Refusal> {
        let per_source_max = match source {
            Some(address) if address.to_canonical().is_loopback() => {
                self.limits.connections_max - self.limits.connections_max / 4
            }
            _ => self.limits.connections_per_source_max,
        };
        let network = source.map(Network::of);
        let source = source.map(source_of);
        let mut held = self.held.lock().expect("no panic while it is held");
        let refusal = if held.total >= self.limits.connections_max {
            Some(Refusal::Total)
        } else if source.is_some_and(|source| {
            held.by_source.get(&source).copied().unwrap_or(0) >= per_source_max
        }) {
            Some(Refusal::Source)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.refusals.count(refusal);
            return Err(refusal);
        }
        held.total += 1;
        if let Some(source) = source {
            *held.by_source.entry(source).or_default() += 1;
        }
        Ok(Ticket {
            gate: self.clone(),
            source,
            network,
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut held = self.gate.held.lock().expect("no panic while it is held");
        held.total -= 1;
        if let Some(source) = self.source
            && let Some(count) = held.by_source.get_mut(&source)
        {
            *count -= 1;
            if *count == 0 {
                held.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_every_place_and_gives_them_back() {
        let gate = Gate::new(Limits {
            connections_max: 4,
            connections_per_source_max: 2,
            handshakes_max: 1,
        });
        let greedy = Some("192.0.2.1".parse().unwrap());
        let mapped = Some("::ffff:192.0.2.1".parse().unwrap());
        let other = Some("192.0.2.2".parse().unwrap());
        let loopback = Some("127.0.0.1".parse().unwrap());

        let first = gate.admit(greedy).unwrap();
        let _second = gate.admit(mapped).unwrap();
        assert_eq!(gate.admit(greedy).unwrap_err(), Refusal::Source);
        let _third = gate.admit(other).unwrap();
        let _fourth = gate.admit(loopback).unwrap();
        assert_eq!(gate.admit(loopback).unwrap_err(), Refusal::Total);
        drop(first);
        let _fifth = gate.admit(greedy).unwrap();
        assert_eq!(gate.refusals.get(Refusal::Source), 1);
        assert_eq!(gate.refusals.get(Refusal::Total), 1);
    }

    #[test]
    fn the_addresses_of_one_64_are_one_source_and_loopback_has_three_quarters() {
        let gate = Gate::new(Limits {
            connections_max: 8,
            connections_per_source_max: 2,
            handshakes_max: 1,
        });
        let admit = |text: &str| gate.admit(Some(text.parse().unwrap()));
        let held = [admit("2001:db8::1").unwrap(), admit("2001:db8::2").unwrap()];
        assert_eq!(admit("2001:db8::3").unwrap_err(), Refusal::Source);
        let _other = admit("2001:db8:0:1::1").unwrap();
        drop(held);
        let lab: Vec<Ticket> = (0..6).map(|_| admit("127.0.0.1").unwrap()).collect();
        assert_eq!(admit("127.0.0.1").unwrap_err(), Refusal::Source);
        assert_eq!(lab.len(), 6);
        let _switch = admit("192.0.2.1").unwrap();
    }
}
