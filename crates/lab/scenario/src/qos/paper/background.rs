//! The background traffic from h5 to h7 and from h6 to h8: a TCP connection each that takes all it
//! can get, like the paper's iperf, and packets of new flows. So the controller has work as well as
//! the links.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;

use crate::qos::paper::settings;
use cli::failure::Failure;
use testbed::netns;
use testbed::network::Network;
use testbed::traffic::background as flows;
use testbed::traffic::stranger::Door;
use testbed::traffic::tcp::Ends;

/// Numbers of the strangers that new flows are of, apart from those that are pinged.
const STRANGER_FIRST: usize = 10_000;
const STRANGERS_APART: usize = 1_000;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Neither end waits longer before it looks whether it is to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const CHUNK_BYTES: usize = 64 * 1024;
/// Little, so that little of it is under way when it stops.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// The background traffic that arrived.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Heard {
    pub tcp_mbps: f64,
    pub flows_sent: u64,
    pub flows_delivered: u64,
    #[serde(skip)]
    bytes: u64,
    #[serde(skip)]
    time: Duration,
}

impl Heard {
    pub fn add(&mut self, more: Heard) {
        self.flows_sent += more.flows_sent;
        self.flows_delivered += more.flows_delivered;
        self.bytes += more.bytes;
        self.time += more.time;
        self.tcp_mbps = self.bytes as f64 * 8.0 / 1e6 / self.time.as_secs_f64().max(1e-9);
    }
}

/// The pairs of hosts, ready to begin.
pub struct Background {
    pairs: Vec<(flows::Source, Ends)>,
}

pub struct Running {
    flows: Vec<flows::Running>,
    bulks: Vec<Bulk>,
    started: Instant,
}

impl Background {
    /// `pairs` are hosts by their place in the topology.
    pub fn open(network: &Network, pairs: &[(usize, usize)]) -> Result<Background, Failure> {
        let open = |(number, (from, to)): (usize, &(usize, usize))| -> Result<_, Failure> {
            let doors = (Door::open(network, *from)?, Door::open(network, *to)?);
            let first = STRANGER_FIRST + number * STRANGERS_APART;
            let source = flows::Source::open(doors.0, doors.1, first);
            Ok((source, Ends::of(network, *from, *to)))
        };
        let pairs: Result<Vec<_>, Failure> = pairs.iter().enumerate().map(open).collect();
        Ok(Background { pairs: pairs? })
    }

    pub fn start(&self, settings: &settings::Background) -> Result<Running, Failure> {
        let failed = |e: io::Error| Failure::machine(format!("background traffic: {e}"));
        let bulks: io::Result<Vec<Bulk>> = self
            .pairs
            .iter()
            .map(|(_, ends)| Bulk::start(ends))
            .collect();
        let bulks = bulks.map_err(failed)?;
        let sources = self.pairs.iter().filter(|_| settings.flows_per_s > 0.0);
        Ok(Running {
            flows: sources
                .map(|(source, _)| source.start(settings.flows_per_s))
                .collect(),
            bulks,
            started: Instant::now(),
        })
    }
}

impl Running {
    pub fn stop(self) -> Result<Heard, Failure> {
        let mut sum = flows::Background::default();
        let time = self.started.elapsed();
        let bytes: Vec<u64> = self.bulks.into_iter().map(Bulk::stop).collect();
        for running in self.flows {
            sum.add(running.stop()?);
        }
        let mut heard = Heard::default();
        heard.add(Heard {
            flows_sent: sum.flows_sent,
            flows_delivered: sum.flows_delivered,
            bytes: bytes.iter().sum(),
            time,
            tcp_mbps: 0.0,
        });
        Ok(heard)
    }
}

/// One TCP connection, until it is stopped.
struct Bulk {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<u64>,
}

impl Bulk {
    fn start(ends: &Ends) -> io::Result<Bulk> {
        let listener = netns::within(&ends.to, || TcpListener::bind((ends.address, 0)))?;
        let address = listener.local_addr()?;
        let sending = netns::within(&ends.from, || connect(&address))?;
        let (receiving, _) = listener.accept()?;
        receiving.set_read_timeout(Some(LOOK_INTERVAL))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stop_sending, stop_receiving) = (stop.clone(), stop.clone());
        Ok(Bulk {
            stop,
            sender: std::thread::spawn(move || send(sending, &stop_sending)),
            receiver: std::thread::spawn(move || receive(receiving, &stop_receiving)),
        })
    }

    /// Bytes that came.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.sender.join();
        self.receiver.join().unwrap_or_default()
    }
}

fn connect(address: &SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, CONNECT_TIME_MAX)?;
    stream.set_write_timeout(Some(LOOK_INTERVAL))?;
    setsockopt(&stream, sockopt::SndBuf, &SEND_BUFFER_BYTES)?;
    // What is left when it is closed is not sent: it would be in the way of what comes next.
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &at_once)?;
    Ok(stream)
}

fn send(mut stream: TcpStream, stop: &AtomicBool) {
    let chunk = vec![0x62; CHUNK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(e) if is_timeout(&e) => {}
            Err(e) => {
                tracing::debug!("background traffic: {e}");
                return;
            }
        }
    }
}

fn receive(mut stream: TcpStream, stop: &AtomicBool) -> u64 {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(e) if is_timeout(&e) => {}
            Err(_) => break,
        }
    }
    bytes
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_all_bytes_in_all_the_time() {
        let part = |bytes, seconds| Heard {
            bytes,
            time: Duration::from_secs(seconds),
            flows_sent: 5,
            flows_delivered: 4,
            ..Heard::default()
        };
        let mut heard = Heard::default();
        heard.add(part(3_000_000, 1));
        heard.add(part(1_000_000, 3));
        assert_eq!((heard.tcp_mbps, heard.flows_sent), (8.0, 10));
        assert_eq!(heard.flows_delivered, 8);
    }
}
