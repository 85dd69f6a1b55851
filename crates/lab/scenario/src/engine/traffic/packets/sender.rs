//! Streams of packets, sent at their rates by one thread.
//!
//! The due time of each packet follows from the seed alone, whatever happened to earlier packets.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use cli::date::now_ns;
use clock::SplitMix64;
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use testbed::netns;

use super::frame::{Label, Template};

/// Packets at one rate.
#[derive(Clone, Debug)]
pub struct Stream {
    pub name: String,
    pub packets_per_s: f64,
    /// Packets form a Poisson process. Otherwise they are evenly spaced, except for a jitter of
    /// half their spacing, so that they meet packets of other streams at any phase.
    pub is_poisson: bool,
    /// The destination port of all packets; without one, each packet is a flow of its own.
    pub port: Option<u16>,
    pub dscp: u8,
}

/// When the packets of each stream were sent, in nanoseconds of the real-time clock.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pub at_ns: Vec<Vec<u64>>,
    /// The greatest delay in sending a packet after it was due: the sender's own fault.
    pub late_max: Duration,
}

/// The sender does not sleep for packets due this soon: the sleep would take longer.
const SLEEP_MIN: Duration = Duration::from_micros(30);
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Ports of packets start here.
const PORT_MIN: u16 = 1024;

/// The sender of whole frames at a host's interface.
pub struct Source(OwnedFd);

impl Source {
    pub fn open(namespace: &str) -> io::Result<Source> {
        let socket = netns::open_packet_sender(namespace, "eth0")?;
        setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER_BYTES)?;
        Ok(Source(socket))
    }

    /// Sends all packets that are due within this time from now on.
    pub fn send(
        &self,
        run: u32,
        streams: &[Stream],
        frame_bytes: usize,
        duration: Duration,
        random: &SplitMix64,
    ) -> io::Result<Sent> {
        // The kernel may otherwise let a sleep last 50 us longer than asked.
        nix::sys::prctl::set_timerslack(1)?;
        let templates = streams.iter().map(|s| Template::new(frame_bytes, s.dscp));
        let mut templates: Vec<Template> = templates.collect();
        let mut sent = Sent {
            at_ns: vec![Vec::new(); streams.len()],
            ..Sent::default()
        };
        let start = Instant::now();
        for (at, stream) in Dues::new(streams, duration, random) {
            let left = (start + at).saturating_duration_since(Instant::now());
            if left > SLEEP_MIN {
                std::thread::sleep(left);
            }
            sent.late_max = sent.late_max.max((start + at).elapsed());
            let label = Label {
                run,
                stream: stream as u32,
                number: sent.at_ns[stream].len() as u32,
                sent_ns: now_ns(),
            };
            let ports = ports(streams, stream, label.number);
            let frame = templates[stream].packet(ports, label);
            match send(self.0.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
                // A packet that a full interface refuses is lost like others.
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            sent.at_ns[stream].push(label.sent_ns);
        }
        Ok(sent)
    }
}

/// The source and destination port. No packet of a stream without a port belongs to a flow of
/// another stream.
fn ports(streams: &[Stream], stream: usize, number: u32) -> (u16, u16) {
    if let Some(port) = streams[stream].port {
        return (PORT_MIN, port);
    }
    let count = u32::from(u16::MAX - PORT_MIN);
    let source = PORT_MIN + (number % count) as u16;
    let mut own = PORT_MIN + ((number.wrapping_mul(31) + number / count) % count) as u16;
    while streams.iter().any(|other| other.port == Some(own)) {
        own = own.checked_add(1).unwrap_or(PORT_MIN);
    }
    (source, own)
}

/// The times of the packets of all streams, in order, each with its stream.
struct Dues {
    streams: Vec<Arrivals>,
    end_s: f64,
}

struct Arrivals {
    random: SplitMix64,
    mean_s: f64,
    is_poisson: bool,
    /// The time of the next packet. `grid_s` is its time in the even grid, if there is one.
    next_s: f64,
    grid_s: f64,
}

impl Arrivals {
    fn new(stream: &Stream, random: SplitMix64) -> Arrivals {
        let mut arrivals = Arrivals {
            random,
            mean_s: 1.0 / stream.packets_per_s,
            is_poisson: stream.is_poisson,
            next_s: 0.0,
            grid_s: 0.0,
        };
        arrivals.advance();
        arrivals
    }

    fn advance(&mut self) {
        let uniform = self.random.uniform();
        if self.is_poisson {
            self.next_s -= self.mean_s * (1.0 - uniform).ln();
        } else {
            self.next_s = self.grid_s + self.mean_s * uniform / 2.0;
            self.grid_s += self.mean_s;
        }
    }
}

impl Dues {
    fn new(streams: &[Stream], duration: Duration, random: &SplitMix64) -> Dues {
        // Each rate has its own packets.
        let arrivals = streams.iter().enumerate().map(|(n, stream)| {
            let rate = (stream.packets_per_s.to_bits() >> 32) as u32;
            Arrivals::new(stream, random.fork(n as u32).fork(rate))
        });
        Dues {
            streams: arrivals.collect(),
            end_s: duration.as_secs_f64(),
        }
    }
}

impl Iterator for Dues {
    type Item = (Duration, usize);

    fn next(&mut self) -> Option<(Duration, usize)> {
        let streams = self.streams.iter_mut().enumerate();
        // The next time of a stream without packets is infinite or not a number.
        let waiting = streams.filter(|(_, stream)| stream.next_s < self.end_s);
        let (n, first) = waiting.min_by(|(_, a), (_, b)| a.next_s.total_cmp(&b.next_s))?;
        let at = Duration::from_secs_f64(first.next_s);
        first.advance();
        Some((at, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(packets_per_s: f64, is_poisson: bool, port: Option<u16>) -> Stream {
        Stream {
            name: String::new(),
            packets_per_s,
            is_poisson,
            port,
            dscp: 0,
        }
    }

    fn dues(streams: &[Stream]) -> Vec<(Duration, usize)> {
        Dues::new(streams, Duration::from_secs(10), &SplitMix64::new(3)).collect()
    }

    #[test]
    fn packets_are_due_in_order_at_the_rates_asked_for() {
        let streams = [
            stream(200.0, false, Some(20_000)),
            stream(1000.0, true, None),
        ];
        let all = dues(&streams);
        assert!(all.is_sorted_by_key(|(at, _)| *at));
        let of = |wanted| all.iter().filter(move |(_, stream)| *stream == wanted);
        assert_eq!(of(0).count(), 2000);
        // 10 000 expected, sd 100.
        let cross: Vec<f64> = of(1).map(|(at, _)| at.as_secs_f64()).collect();
        assert!((9600..10_400).contains(&cross.len()), "{}", cross.len());
        // The standard deviation of a Poisson process's gaps equals their mean.
        let gaps: Vec<f64> = cross.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
        assert_eq!(all, dues(&streams));
    }

    #[test]
    fn a_stream_without_packets_holds_up_no_other() {
        for is_poisson in [true, false] {
            let streams = [stream(0.0, is_poisson, None), stream(200.0, false, None)];
            let all = dues(&streams);
            assert_eq!(all.len(), 2000);
            assert!(all.iter().all(|(_, n)| *n == 1));
            assert!(dues(&streams[..1]).is_empty());
        }
    }

    #[test]
    fn packets_without_a_port_are_flows_of_their_own_and_no_other_streams() {
        let streams = [stream(1.0, false, Some(20_000)), stream(1.0, true, None)];
        let flows = (0..200_000).map(|n| ports(&streams, 1, n));
        let flows: std::collections::HashSet<(u16, u16)> = flows.collect();
        assert_eq!(flows.len(), 200_000);
        assert!(flows.iter().all(|(_, to)| *to != 20_000));
        assert_eq!(ports(&streams, 0, 9).1, 20_000);
    }
}
