//! The simulator's trace as packets on a wire, each when it is due.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use cli::date::now_ns;
use nix::sys::socket::{MsgFlags, send};
use sim::table;

use super::judge::Packet;
use super::wire::{Pair, Template};

/// The sender does not sleep for packets due this soon.
const SLEEP_MIN: Duration = Duration::from_micros(50);

#[derive(Default)]
pub struct Sent {
    pub flows: u64,
    /// The packets, in order of their numbers.
    pub packets: Vec<Packet>,
    /// Addresses by flow.
    pub pairs: Vec<Pair>,
    /// Packets that the sender's own interface refused.
    pub refused: u64,
    pub late_max: Duration,
}

/// Sends the packets that the trace of a seed has within `lasts`.
pub fn send_trace(
    socket: &OwnedFd,
    traffic: table::Traffic,
    seed: u64,
    lasts: Duration,
) -> io::Result<Sent> {
    // The kernel may otherwise let a sleep last 50 us longer than asked.
    nix::sys::prctl::set_timerslack(1)?;
    let mut trace = table::Trace::new(traffic, seed, u32::MAX);
    let (mut template, mut addresses) = (Template::new(), Addresses::default());
    let mut sent = Sent::default();
    let start = Instant::now();
    while let Some(due) = trace.next_at() {
        let due = Duration::from_nanos(due.as_nanos());
        if due >= lasts {
            break;
        }
        let Some(packet) = trace.step() else {
            continue;
        };
        sleep_until(start + due);
        sent.late_max = sent.late_max.max(start.elapsed().saturating_sub(due));
        sent.flows += u64::from(packet.is_first);
        let pair = addresses.of(packet.flow, packet.destination);
        let number = u32::try_from(sent.packets.len()).map_err(io::Error::other)?;
        let at_ns = now_ns();
        let frame = template.packet(pair, number);
        match send(socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => sent.packets.push(Packet {
                flow: packet.flow,
                at_ns,
            }),
            Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => sent.refused += 1,
            Err(e) => return Err(e.into()),
        }
    }
    sent.pairs = addresses.pairs;
    Ok(sent)
}

fn sleep_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > SLEEP_MIN {
        std::thread::sleep(left);
    }
}

/// The addresses of each flow: its destination, and a source that no other flow to the destination
/// has. A source thus has flows to several destinations, as hosts do.
#[derive(Default)]
struct Addresses {
    /// Addresses by flow.
    pairs: Vec<Pair>,
    known: Vec<bool>,
    /// The next source for each destination.
    next: Vec<u32>,
}

impl Addresses {
    fn of(&mut self, flow: u32, destination: u16) -> Pair {
        let (flow, to) = (flow as usize, usize::from(destination));
        if flow >= self.pairs.len() {
            // The flows before this one have sent no packet yet; a look-up of such a flow finds
            // nothing.
            let none = Pair {
                source: u32::MAX,
                destination: u16::MAX,
            };
            self.pairs.resize(flow + 1, none);
            self.known.resize(flow + 1, false);
        }
        if !std::mem::replace(&mut self.known[flow], true) {
            if to >= self.next.len() {
                self.next.resize(to + 1, 0);
            }
            self.pairs[flow] = Pair {
                source: self.next[to],
                destination,
            };
            self.next[to] += 1;
        }
        self.pairs[flow]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_flows_have_the_same_addresses_and_sources_are_shared() {
        let mut addresses = Addresses::default();
        let flows = [(7, 0), (3, 0), (5, 1), (7, 0), (4, 1)];
        let pairs = flows.map(|(flow, destination)| addresses.of(flow, destination));
        assert_eq!(pairs[0], pairs[3]);
        let different: BTreeSet<Pair> = pairs.into_iter().collect();
        assert_eq!(different.len(), 4);
        let sources: BTreeSet<u32> = pairs.iter().map(|pair| pair.source).collect();
        assert_eq!(sources.len(), 2);
    }
}
