//! The duration of a transfer, from before the connection request until the receiver has seen its
//! end and closed: the paper's transfer time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::netns;
use crate::network::Network;
use crate::traffic::stranger::Door;
use cli::failure::Failure;
use cli::parallel::joined;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{setsockopt, sockopt};
use openflow::packet::build::Host;

/// Time without a byte after which a transfer has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 64 * 1024;
/// Time between two checks of the deadline.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The number of bytes of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Bytes(u64),
    /// All bytes that the connection can carry until its deadline.
    Endless,
}

/// Two hosts of a network: their namespaces, the second host's address, and both hosts' addresses
/// in frames.
#[derive(Clone, Debug)]
pub struct Ends {
    pub from: String,
    pub to: String,
    pub address: Ipv4Addr,
    pub hosts: [Host; 2],
}

impl Ends {
    pub fn of(network: &Network, from: usize, to: usize) -> Ends {
        let hosts = &network.topology.hosts;
        Ends {
            from: network.namespace(&hosts[from].name),
            to: network.namespace(&hosts[to].name),
            address: hosts[to].address,
            hosts: [from, to].map(|n| Host::new(hosts[n].mac, hosts[n].address)),
        }
    }

    /// Opens a door at each of the hosts.
    pub fn doors(&self) -> Result<[Door; 2], Failure> {
        let [from, to] = self.hosts;
        let door = |namespace: &String, host| Door::at(namespace.clone(), host);
        Ok([door(&self.from, from)?, door(&self.to, to)?])
    }
}

/// Opens a connection, sends, and closes it. Returns the time until the receiver had everything.
/// `arrived` is called with the number of bytes whenever the receiver takes some. A connection
/// still open when no time is left is reset.
pub fn connection(
    ends: &Ends,
    amount: Amount,
    left: &(dyn Fn() -> Duration + Sync),
    arrived: impl FnMut(usize) + Send,
) -> io::Result<Duration> {
    let listen = || TcpListener::bind((ends.address, 0));
    let listener = netns::within(&ends.to, listen)?;
    let address = listener.local_addr()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&listener, &is_over, arrived));
        // The socket has to be made in the host's namespace, and connects from there.
        let sent = netns::within(&ends.from, || send(address, amount, left));
        // Bytes that have not arrived by now will not arrive.
        is_over.store(
            sent.is_err() || amount == Amount::Endless,
            Ordering::Relaxed,
        );
        let received = joined(receiver);
        let took = sent?;
        match amount {
            // The reset may or may not reach the receiver.
            Amount::Endless => Ok(took),
            Amount::Bytes(size) => match received? {
                received if received == size => Ok(took),
                received => Err(io::Error::other(format!("{received} of {size} bytes came"))),
            },
        }
    })
}

fn send(
    address: SocketAddr,
    amount: Amount,
    time_left: &dyn Fn() -> Duration,
) -> io::Result<Duration> {
    let chunk = vec![0x61; CHUNK_BYTES];
    let start = Instant::now();
    let patience = time_left().clamp(LOOK_INTERVAL, SILENCE_MAX);
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    // Closing early resets the connection: the rest must not arrive during the next measurement.
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &at_once)?;
    stream.set_write_timeout(Some(LOOK_INTERVAL))?;
    stream.set_read_timeout(Some(LOOK_INTERVAL))?;
    let mut left = match amount {
        Amount::Bytes(size) => size,
        Amount::Endless => u64::MAX,
    };
    let mut progress = Instant::now();
    while left > 0 {
        let count = left.min(CHUNK_BYTES as u64) as usize;
        match stream.write(&chunk[..count]) {
            Ok(count) => {
                left -= count as u64;
                progress = Instant::now();
            }
            Err(e) => wait_on(e, progress)?,
        }
        if time_left().is_zero() {
            return match amount {
                Amount::Bytes(_) => Err(ErrorKind::TimedOut.into()),
                Amount::Endless => Ok(start.elapsed()),
            };
        }
    }
    stream.shutdown(Shutdown::Write)?;
    loop {
        match stream.read(&mut [0]) {
            Ok(0) => return Ok(start.elapsed()),
            Ok(_) => return Err(io::Error::other("the receiver sent something")),
            Err(_) if time_left().is_zero() => return Err(ErrorKind::TimedOut.into()),
            Err(e) => wait_on(e, progress)?,
        }
    }
}

/// Returns the error, unless it only ends a check and the silence is not yet too long.
fn wait_on(error: io::Error, progress: Instant) -> io::Result<()> {
    let is_look = matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    );
    match is_look && progress.elapsed() < SILENCE_MAX {
        true => Ok(()),
        false => Err(error),
    }
}

/// Receives one connection to its end, or until the sender has given up.
fn receive(
    listener: &TcpListener,
    is_over: &AtomicBool,
    mut arrived: impl FnMut(usize),
) -> io::Result<u64> {
    listener.set_nonblocking(true)?;
    let look_ms = LOOK_INTERVAL.as_millis() as u16;
    let mut stream = loop {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, look_ms)?;
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            Err(_) if is_over.load(Ordering::Relaxed) => return Ok(0),
            Err(_) => {}
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK_INTERVAL))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut received, mut progress) = (0, Instant::now());
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(received),
            Ok(count) => {
                arrived(count);
                received += count as u64;
                progress = Instant::now();
            }
            Err(_) if is_over.load(Ordering::Relaxed) => return Ok(received),
            Err(e) => wait_on(e, progress)?,
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn the_receiver_counts_every_byte_of_a_transfer() {
        let (listener, address) = listener();
        let (is_over, mut seen) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&listener, &is_over, |count| seen += count));
            send(address, Amount::Bytes(300_001), &|| Duration::MAX).unwrap();
            assert_eq!(receiver.join().unwrap().unwrap(), 300_001);
        });
        assert_eq!(seen, 300_001);
    }

    #[test]
    fn a_deadline_ends_a_transfer_that_nobody_takes_and_one_without_end() {
        let (_listener, address) = listener();
        let until = |deadline: Instant| move || deadline.saturating_duration_since(Instant::now());
        let soon = || until(Instant::now() + Duration::from_millis(100));
        let failed = send(address, Amount::Bytes(1 << 30), &soon()).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
        let took = send(address, Amount::Endless, &soon()).unwrap();
        assert!(took >= Duration::from_millis(90), "{took:?}");
    }
}
