//! Traffic beside the measured traffic. Each of its packets is a flow for which no switch has an
//! entry: work for the controller.
//!
//! Strangers at one host send to strangers at another. A flow is a pair of them, so that few
//! addresses make many flows. The rate is steady, whatever happens to the packets.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use openflow::packet::build::{self, Host};

use crate::traffic::stranger::{Door, ipv4_to, stranger};
use cli::failure::Failure;

/// The number of strangers on either side; their pairs are new for an hour at 10 flows a second
/// and a minute at 1,000.
pub const STRANGERS: usize = 256;
const UDP: u8 = 17;
const PORT_FIRST: u16 = 20_000;
/// Time between introductions, which are new flows too.
const INTRODUCTION_INTERVAL: Duration = Duration::from_millis(4);
/// Time that the network may take to deliver the last packets.
const LAST_PACKETS_TIME: Duration = Duration::from_millis(300);
const MARK: &[u8; 16] = b"auster: new flow";

#[derive(Clone, Copy, Debug, Default)]
pub struct Background {
    pub flows_sent: u64,
    /// Flows whose packet arrived at its destination host.
    pub flows_delivered: u64,
}

/// The two doors and the strangers behind them.
pub struct Source {
    from: Arc<Door>,
    to: Arc<Door>,
    /// Numbers of the strangers at `from`; the strangers at `to` have the numbers after these.
    numbers: Range<usize>,
    /// The number of flows so far, so that a pair is not used again in the next step.
    flows: Arc<AtomicU64>,
}

/// Traffic that runs until it is stopped.
pub struct Running {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<io::Result<u64>>,
}

impl Source {
    /// Makes a source whose next flow is the one after those already counted.
    pub fn new(flows: Arc<AtomicU64>, from: Door, to: Door, first_number: usize) -> Source {
        Source {
            from: Arc::new(from),
            to: Arc::new(to),
            numbers: first_number..first_number + STRANGERS,
            flows,
        }
    }

    /// Has every stranger send once, so that the network knows where they are.
    pub fn introduce(&self) {
        for number in self.numbers.clone() {
            let [here, there] = [stranger(number), stranger(number + STRANGERS)];
            self.from.send(&introduction(here, self.to.host));
            self.to.send(&introduction(there, self.from.host));
            std::thread::sleep(INTRODUCTION_INTERVAL);
        }
    }

    /// Starts sending `rate` new flows a second.
    pub fn start(&self, rate: f64) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let first = self.numbers.start;
        let (door, stopped, flows) = (self.from.clone(), stop.clone(), self.flows.clone());
        let sender = std::thread::spawn(move || {
            let start = Instant::now();
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                let due = start + Duration::from_secs_f64(sent as f64 / rate);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let (a, b) = pair(flows.fetch_add(1, Ordering::Relaxed));
                let (from, to) = (stranger(first + a), stranger(first + STRANGERS + b));
                let port = PORT_FIRST + a as u16;
                door.send_udp(from, to, (port, PORT_FIRST + b as u16), MARK);
                sent += 1;
            }
            sent
        });
        let (door, stopped) = (self.to.clone(), stop.clone());
        let receiver = std::thread::spawn(move || count(&door, first + STRANGERS, &stopped));
        Running {
            stop,
            sender,
            receiver,
        }
    }
}

impl Running {
    pub fn stop(self) -> Result<Background, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let died = |_| Failure::machine("the background traffic died");
        let flows_sent = self.sender.join().map_err(died)?;
        let delivered = self.receiver.join().map_err(died)?;
        let failed = |e: io::Error| Failure::machine(format!("background traffic: {e}"));
        Ok(Background {
            flows_sent,
            flows_delivered: delivered.map_err(failed)?,
        })
    }
}

/// A frame that the other host's kernel drops silently: IEEE's EtherType for local experiments.
fn introduction(from: Host, to: Host) -> Vec<u8> {
    build::ethernet(from.mac, to.mac, 0x88b5, &[0; 46])
}

/// The pair of flow `n`: all pairs are used before one repeats.
fn pair(n: u64) -> (usize, usize) {
    let count = STRANGERS as u64;
    ((n % count) as usize, ((n / count + n) % count) as usize)
}

fn count(door: &Door, first: usize, stopped: &AtomicBool) -> io::Result<u64> {
    let mut buffer = [0; 2048];
    let mut delivered = 0;
    let mut end = None;
    loop {
        let now = Instant::now();
        if end.is_none() && stopped.load(Ordering::Relaxed) {
            end = Some(now + LAST_PACKETS_TIME);
        }
        if end.is_some_and(|end| now >= end) {
            return Ok(delivered);
        }
        let until = end.unwrap_or(now + LAST_PACKETS_TIME);
        let Some(frame) = door.receive(&mut buffer, until)? else {
            continue;
        };
        delivered += u64::from(is_background(frame, first));
    }
}

/// Whether a frame is one of ours, to one of the strangers from `first` on.
fn is_background(frame: &[u8], first: usize) -> bool {
    let port = frame
        .get(36..38)
        .map(|port| u16::from_be_bytes([port[0], port[1]]));
    let Some(place) = port.and_then(|port| port.checked_sub(PORT_FIRST)) else {
        return false;
    };
    let mac = stranger(first + usize::from(place)).mac;
    let datagram = ipv4_to(frame, mac, UDP);
    usize::from(place) < STRANGERS && datagram.and_then(|d| d.get(8..)) == Some(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pair_comes_again_before_all_have_come() {
        let count = (STRANGERS * STRANGERS) as u64;
        let pairs: std::collections::BTreeSet<_> = (0..count).map(pair).collect();
        assert_eq!(pairs.len() as u64, count);
        assert_eq!(pair(count), pair(0));
    }

    #[test]
    fn only_delivered_flows_are_counted() {
        let (first, place) = (1000, 7);
        let ports = (PORT_FIRST + 3, PORT_FIRST + place);
        let to = stranger(first + usize::from(place));
        let frame = build::udp(stranger(3), to, ports, MARK);
        assert!(is_background(&frame, first));
        assert!(
            !is_background(&frame, first + 1),
            "another stranger's address"
        );
        assert!(!is_background(
            &build::udp(stranger(3), to, ports, b"x"),
            first
        ));
        assert!(!is_background(&frame[..40], first));
    }
}
