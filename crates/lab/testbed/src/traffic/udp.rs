//! A UDP stream at a stated rate and its fate: loss, jitter, delay, reordering.
//!
//! Each datagram is due at a time that follows from the start and the rate alone, whatever happened
//! to earlier datagrams. It carries its number and its time of sending. The receiver takes the
//! kernel's time of arrival. Both times are from one clock, so the delay in one direction is known.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use openflow::packet::build::Host;

use crate::capture;
use crate::netns;
use crate::traffic::stranger::Door;
use crate::traffic::tcp::Ends;
use cli::date::now_ns;
use cli::failure::Failure;
use measure::order::Arrival;

/// Bytes of the header: stream, number and time.
pub const HEADER_BYTES: usize = 24;
/// Time that the receiver waits for a datagram after the last one received.
const SILENCE_MAX: Duration = Duration::from_millis(700);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 8 << 20;
const SOURCE_PORT: u16 = 9000;

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub rate_mbps: f64,
    /// Bytes of UDP payload, as iperf counts them.
    pub datagram_bytes: usize,
    pub duration: Duration,
}

impl Pace {
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.datagram_bytes as f64 * 8.0 / (self.rate_mbps * 1e6))
    }

    pub fn count(&self) -> u64 {
        (self.duration.as_secs_f64() / self.interval().as_secs_f64()).round() as u64
    }
}

/// The sender of a stream.
pub enum Sender<'a> {
    /// The host itself, which the network knows.
    Known(UdpSocket),
    /// A host that the network has never seen, behind a door of a host that it has seen.
    New {
        door: &'a Door,
        identity: Host,
        to: Host,
        port: u16,
    },
}

impl Sender<'_> {
    /// Sends one datagram. A datagram that the kernel has no room for is lost like any other.
    fn send(&self, payload: &[u8]) {
        match self {
            Sender::Known(socket) => {
                if let Err(e) = socket.send(payload) {
                    tracing::debug!("datagram not sent: {e}");
                }
            }
            Sender::New {
                door,
                identity,
                to,
                port,
            } => door.send_udp(*identity, *to, (SOURCE_PORT, *port), payload),
        }
    }
}

/// A stream that was sent, as both ends saw it.
#[derive(Debug, Default)]
pub struct Stream {
    /// When the first datagram was due, on the clock of the datagrams.
    pub began_ns: u64,
    pub sent: u64,
    /// The longest delay of a datagram's sending after it was due: the sender's own fault.
    pub sender_late_max: Duration,
    pub arrivals: Vec<Arrival>,
}

/// Sends a stream from the host itself.
pub fn stream_known(ends: &Ends, pace: &Pace) -> Result<Stream, Failure> {
    let receiver = open_receiver(ends).map_err(failed)?;
    let address = receiver.local_addr().map_err(failed)?;
    let sender = netns::within(&ends.from, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        setsockopt(&socket, sockopt::SndBuf, &BUFFER_BYTES)?;
        socket.connect(address).map(|()| socket)
    });
    let sender = Sender::Known(sender.map_err(failed)?);
    stream(&sender, receiver, pace)
}

/// Sends a stream from a stranger beside the host to `to`, the second host of `ends`.
pub fn stream_new(
    ends: &Ends,
    (door, identity, to): (&Door, Host, &Door),
    pace: &Pace,
) -> Result<Stream, Failure> {
    // So that a late datagram's refusal needs no ARP request for the stranger.
    to.introduce(identity)?;
    let receiver = open_receiver(ends).map_err(failed)?;
    let port = receiver.local_addr().map_err(failed)?.port();
    let sender = Sender::New {
        door,
        identity,
        to: to.host,
        port,
    };
    stream(&sender, receiver, pace)
}

fn failed(error: io::Error) -> Failure {
    Failure::machine(format!("UDP between the hosts: {error}"))
}

fn open_receiver(ends: &Ends) -> io::Result<UdpSocket> {
    let socket = netns::within(&ends.to, || UdpSocket::bind((ends.address, 0)))?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    Ok(socket)
}

fn stream(sender: &Sender, receiver: UdpSocket, pace: &Pace) -> Result<Stream, Failure> {
    let id = now_ns();
    let count = pace.count();
    let sent_all = Arc::new(AtomicBool::new(false));
    let ended = sent_all.clone();
    let receiver = std::thread::spawn(move || receive(&receiver, id, count, &ended));
    let mut payload = vec![0; pace.datagram_bytes];
    payload[..8].copy_from_slice(&id.to_be_bytes());
    let start = Instant::now();
    let mut stream = Stream {
        began_ns: now_ns(),
        ..Stream::default()
    };
    for number in 0..count {
        let due = start + pace.interval().mul_f64(number as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.sender_late_max = stream.sender_late_max.max(due.elapsed());
        payload[8..16].copy_from_slice(&number.to_be_bytes());
        payload[16..24].copy_from_slice(&now_ns().to_be_bytes());
        sender.send(&payload);
        stream.sent += 1;
    }
    sent_all.store(true, Ordering::Relaxed);
    let received = receiver.join();
    let received = received.map_err(|_| Failure::machine("the receiver died"))?;
    stream.arrivals = received.map_err(failed)?;
    Ok(stream)
}

/// Receives datagrams of a stream until all have arrived, or until none has arrived for long enough
/// after the last was sent.
fn receive(
    socket: &UdpSocket,
    id: u64,
    count: u64,
    sent_all: &AtomicBool,
) -> io::Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut buffer = [0; 2048];
    let mut last = Instant::now();
    let wait = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::MAX);
    while (arrivals.len() as u64) < count {
        poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], wait)?;
        while let Some((len, at_ns)) = capture::receive(socket, &mut buffer)? {
            if let Some(arrival) = read(&buffer[..len], id, at_ns) {
                arrivals.push(arrival);
                last = Instant::now();
            }
        }
        if sent_all.load(Ordering::Relaxed) && last.elapsed() > SILENCE_MAX {
            break;
        }
    }
    Ok(arrivals)
}

/// Reads a datagram of this stream.
fn read(payload: &[u8], id: u64, received_ns: u64) -> Option<Arrival> {
    let word = |at: usize| {
        let bytes = payload.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    };
    (word(0)? == id).then_some(())?;
    Some(Arrival {
        number: word(8)?,
        sent_ns: word(16)?,
        received_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_payload() {
        let pace = Pace {
            rate_mbps: 5.0,
            datagram_bytes: 1250,
            duration: Duration::from_secs(3),
        };
        assert_eq!(pace.interval(), Duration::from_millis(2));
        assert_eq!(pace.count(), 1500);
    }

    #[test]
    fn datagrams_of_another_stream_are_not_read() {
        let words = [7u64, 9, 1000].map(u64::to_be_bytes).concat();
        let arrival = Arrival {
            number: 9,
            sent_ns: 1000,
            received_ns: 1500,
        };
        assert_eq!(read(&words, 7, 1500), Some(arrival));
        assert_eq!(read(&words, 8, 1500), None);
        assert_eq!(read(&words[..23], 7, 1500), None);
    }
}
