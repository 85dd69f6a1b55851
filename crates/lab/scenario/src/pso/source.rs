//! New flows and the target flow, offered at a stated rate by one thread.
//!
//! When each packet is due follows from the seed alone, whatever became of those before. Cross
//! packets come as a Poisson process; those of the target evenly, but for a seeded jitter of half
//! their spacing, so that they meet the cross packets at any phase.

use cli::date::now_ns;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clock::SplitMix64;
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};

use crate::pso::packet::{Label, Stream, TARGET_PORT, Template};
use testbed::netns;

/// The traffic that is offered in one run.
#[derive(Clone, Debug)]
pub struct Load {
    pub run: u32,
    pub target_per_s: f64,
    pub cross_per_s: f64,
    pub duration: Duration,
    pub seed: u64,
    /// The size of each Ethernet frame.
    pub frame_bytes: usize,
    /// The code points of target packets and of cross packets.
    pub dscp: [u8; 2],
    /// The destination port of all cross packets; each has one of its own if there is none.
    pub cross_port: Option<u16>,
}

/// The packets that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub target: u32,
    pub cross: u32,
    /// The most that a packet was sent after it was due: the sender's own fault.
    pub late_max: Duration,
    /// Refused by the interface, which was full.
    pub refused: u32,
}

/// Packets that are due so close to now are not slept for: the sleep would take longer.
const SLEEP_MIN: Duration = Duration::from_micros(30);
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Ports of cross packets start here.
const PORT_MIN: u16 = 1024;

pub struct Source {
    socket: OwnedFd,
}

impl Source {
    pub fn open(namespace: &str, device: &str) -> io::Result<Source> {
        let socket = netns::open_packet_sender(namespace, device)?;
        setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER_BYTES)?;
        Ok(Source { socket })
    }

    /// Sends all of it, or until `stop`. Takes as long as the load lasts.
    pub fn send(&self, load: &Load, stop: &AtomicBool) -> io::Result<Sent> {
        // The kernel may otherwise let a sleep last 50 us longer than asked.
        nix::sys::prctl::set_timerslack(1)?;
        let mut templates = load.dscp.map(|dscp| {
            let mut template = Template::new(load.frame_bytes);
            template.set_dscp(dscp);
            template
        });
        let mut sent = Sent::default();
        let start = Instant::now();
        for due in Dues::new(load) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let at = start + due.at;
            let left = at.saturating_duration_since(Instant::now());
            if left > SLEEP_MIN {
                std::thread::sleep(left);
            }
            sent.late_max = sent.late_max.max(at.elapsed());
            let label = Label {
                run: load.run,
                stream: due.stream,
                number: due.number,
                sent_ns: now_ns(),
            };
            let template = match due.stream {
                Stream::Target => &mut templates[0],
                Stream::Cross => &mut templates[1],
            };
            let frame = template.packet(ports(load, due.stream, due.number), label);
            match send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => sent.refused += 1,
                Err(e) => return Err(e.into()),
            }
            match due.stream {
                Stream::Target => sent.target = due.number + 1,
                Stream::Cross => sent.cross = due.number + 1,
            }
        }
        Ok(sent)
    }

    /// [`Source::send`] in a thread of its own.
    pub fn start(&self, load: Load) -> io::Result<Sending> {
        let source = Source {
            socket: self.socket.try_clone()?,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("packets".to_owned())
            .spawn(move || source.send(&load, &stopped))?;
        Ok(Sending {
            stop,
            thread: Some(thread),
        })
    }
}

/// Packets that are being sent.
pub struct Sending {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<io::Result<Sent>>>,
}

impl Sending {
    pub fn is_over(&self) -> bool {
        (self.thread.as_ref()).is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// Stops what is not yet sent.
    pub fn stop(mut self) -> io::Result<Sent> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(std::thread::JoinHandle::join) {
            Some(Ok(sent)) => sent,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(Sent::default()),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Source and destination. Every cross packet is of a flow of its own.
fn ports(load: &Load, stream: Stream, number: u32) -> (u16, u16) {
    if stream == Stream::Target {
        return (PORT_MIN, TARGET_PORT);
    }
    let count = u32::from(u16::MAX - PORT_MIN);
    let source = PORT_MIN + (number % count) as u16;
    let own = PORT_MIN + ((number.wrapping_mul(31) + number / count) % count) as u16;
    let destination = match load.cross_port {
        Some(port) => port,
        None if own == TARGET_PORT => TARGET_PORT + 1,
        None => own,
    };
    (source, destination)
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Due {
    at: Duration,
    stream: Stream,
    number: u32,
}

/// The packets to send and their times, in order of time.
struct Dues {
    target: Arrivals,
    cross: Arrivals,
    end_s: f64,
}

struct Arrivals {
    random: SplitMix64,
    mean_s: f64,
    is_poisson: bool,
    number: u32,
    /// The time of packet `number`. `grid_s` is its time in the even grid, if there is one.
    next_s: f64,
    grid_s: f64,
}

impl Arrivals {
    fn new(per_s: f64, seed: u64, is_poisson: bool) -> Arrivals {
        let mut arrivals = Arrivals {
            random: SplitMix64::new(seed),
            mean_s: 1.0 / per_s,
            is_poisson,
            number: 0,
            next_s: 0.0,
            grid_s: 0.0,
        };
        arrivals.advance();
        arrivals
    }

    fn advance(&mut self) {
        let uniform = self.uniform();
        if self.is_poisson {
            self.next_s -= self.mean_s * (1.0 - uniform).ln();
        } else {
            self.next_s = self.grid_s + self.mean_s * uniform / 2.0;
            self.grid_s += self.mean_s;
        }
    }

    fn take(&mut self, stream: Stream) -> Due {
        let due = Due {
            at: Duration::from_secs_f64(self.next_s),
            stream,
            number: self.number,
        };
        self.number += 1;
        self.advance();
        due
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        self.random.uniform()
    }
}

impl Dues {
    fn new(load: &Load) -> Dues {
        Dues {
            target: Arrivals::new(load.target_per_s, load.seed, false),
            cross: Arrivals::new(load.cross_per_s, !load.seed, true),
            end_s: load.duration.as_secs_f64(),
        }
    }
}

impl Iterator for Dues {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let due = if self.target.next_s <= self.cross.next_s {
            (self.target.next_s < self.end_s).then(|| self.target.take(Stream::Target))
        } else {
            (self.cross.next_s < self.end_s).then(|| self.cross.take(Stream::Cross))
        };
        due.filter(|due| due.at.as_secs_f64() < self.end_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cross_per_s: f64) -> Load {
        Load {
            run: 1,
            target_per_s: 200.0,
            cross_per_s,
            duration: Duration::from_secs(10),
            seed: 3,
            frame_bytes: 178,
            dscp: [0, 0],
            cross_port: None,
        }
    }

    #[test]
    fn packets_are_due_in_order_at_the_rates_asked_for() {
        let dues: Vec<Due> = Dues::new(&load(1000.0)).collect();
        assert!(dues.is_sorted_by_key(|due| due.at));
        let of = |stream| dues.iter().filter(move |due| due.stream == stream);
        assert_eq!(of(Stream::Target).count(), 2000);
        // 10 000 expected, sd 100.
        let cross: Vec<f64> = of(Stream::Cross).map(|due| due.at.as_secs_f64()).collect();
        assert!((9600..10_400).contains(&cross.len()), "{}", cross.len());
        // The gaps of a Poisson process are as wide as their mean.
        let gaps: Vec<f64> = cross.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
        assert_eq!(dues, Dues::new(&load(1000.0)).collect::<Vec<Due>>());
    }

    #[test]
    fn without_cross_packets_the_target_is_all_there_is() {
        let dues: Vec<Due> = Dues::new(&load(0.0)).collect();
        assert_eq!(dues.len(), 2000);
        assert!(dues.iter().all(|due| due.stream == Stream::Target));
    }

    #[test]
    fn cross_packets_are_flows_of_their_own_and_never_the_targets() {
        let load = load(1.0);
        let flows: std::collections::HashSet<(u16, u16)> = (0..200_000)
            .map(|n| ports(&load, Stream::Cross, n))
            .collect();
        assert_eq!(flows.len(), 200_000);
        assert!(flows.iter().all(|(_, to)| *to != TARGET_PORT));
        assert_eq!(ports(&load, Stream::Target, 9).1, TARGET_PORT);
    }
}
