//! How long a transfer takes, from before the connection is asked for until the receiver has seen
//! its end and closed: what the paper calls transfer time.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use cli::failure::Failure;
use testbed::netns;
use testbed::network::Network;

/// No byte for this long, and the transfer has failed.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 64 * 1024;

/// Two hosts of a network, by namespace, and the second one's address.
#[derive(Clone, Debug)]
pub struct Ends {
    pub from: String,
    pub to: String,
    pub address: Ipv4Addr,
}

impl Ends {
    pub fn of(network: &Network, from: usize, to: usize) -> Ends {
        let hosts = &network.topology.hosts;
        Ends {
            from: network.namespace(&hosts[from].name),
            to: network.namespace(&hosts[to].name),
            address: hosts[to].address,
        }
    }
}

/// Sends this many bytes; the time it took, or why it failed.
pub fn transfer(ends: &Ends, size_bytes: u64) -> Result<Duration, Failure> {
    let failed = |e: io::Error| Failure::machine(format!("TCP between the hosts: {e}"));
    let listen = || TcpListener::bind((ends.address, 0));
    let listener = netns::within(&ends.to, listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let receiver = std::thread::spawn(move || receive(&listener));
    // The socket has to be made in the host's namespace, and connects from there.
    let sent = netns::within(&ends.from, || send(address, size_bytes));
    let took = match sent {
        Ok(took) => took,
        Err(error) => return Err(failed(error)),
    };
    let received = receiver
        .join()
        .map_err(|_| Failure::machine("the receiver died"))?
        .map_err(failed)?;
    if received != size_bytes {
        return Err(Failure::machine(format!(
            "TCP between the hosts: {received} of {size_bytes} bytes came"
        )));
    }
    Ok(took)
}

fn send(address: SocketAddr, size_bytes: u64) -> io::Result<Duration> {
    let chunk = vec![0x61; CHUNK_BYTES];
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut left = size_bytes;
    while left > 0 {
        let count = left.min(CHUNK_BYTES as u64) as usize;
        stream.write_all(&chunk[..count])?;
        left -= count as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    match stream.read(&mut [0])? {
        0 => Ok(start.elapsed()),
        _ => Err(io::Error::other("the receiver sent something")),
    }
}

/// Takes one connection to its end. One that never comes is the sender's to report: this waits a
/// little longer than it does.
fn receive(listener: &TcpListener) -> io::Result<u64> {
    let deadline = Instant::now() + SILENCE_MAX + Duration::from_secs(1);
    listener.set_nonblocking(true)?;
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            Err(e) if Instant::now() > deadline => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(received),
            count => received += count as u64,
        }
    }
}
