//! Sends packet-ins into the switch's relay, and counts them where they leave the controllers'
//! relay.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sched::Direction;
use tokio::io::AsyncReadExt;

use super::Args;
use super::processes::Relays;
use super::report::{Cell, Measured};
use crate::channel::source::{self, FLOWS, Stamp};
use cli::failure::Failure;

/// Time limit for the first message of every switch to arrive.
const SET_UP_MAX: Duration = Duration::from_secs(60);
/// Time limit from the last message written until it arrives.
const DRAIN_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_micros(200);
const READ_BYTES: usize = 256 << 10;
/// At a rate, the pause between two bursts of writes.
const TURN: Duration = Duration::from_millis(1);

/// The controller: it accepts connections and counts the bytes received.
struct Sink {
    port: u16,
    bytes: Arc<AtomicU64>,
    _runtime: tokio::runtime::Runtime,
}

pub struct Load {
    sink: Sink,
    cell: Cell,
    message_bytes: u64,
    duration: Duration,
    /// Messages of all flows in turn, grouped into writes.
    writes: Vec<Vec<u8>>,
}

impl Load {
    pub fn new(cell: &Cell, args: &Args) -> Result<Load, Failure> {
        let message = |number: u32| {
            let stamp = Stamp {
                due: Duration::ZERO,
                agent: 0,
                flow: (number % u32::from(FLOWS)) as u16,
                number,
            };
            let mut bytes = BytesMut::new();
            let size = args.size as usize;
            source::encode(&stamp, Direction::ToController, size, &mut bytes);
            bytes
        };
        let count = u32::from(FLOWS).max(cell.batch);
        let messages: Vec<BytesMut> = (0..count).map(message).collect();
        let writes = messages.chunks(cell.batch as usize);
        Ok(Load {
            sink: Sink::open().map_err(failed)?,
            cell: cell.clone(),
            message_bytes: args.size.into(),
            duration: Duration::from_secs_f64(args.duration),
            writes: writes.map(|messages| messages.concat()).collect(),
        })
    }

    pub fn sink_port(&self) -> u16 {
        self.sink.port
    }

    /// Connects the switches, sends for the duration, and waits for the last message.
    pub fn carry(&self, relays: &Relays) -> Result<Measured, Failure> {
        let started = Instant::now();
        let mut switches = Vec::new();
        for _ in 0..self.cell.switches {
            let switch =
                TcpStream::connect((Ipv4Addr::LOCALHOST, relays.switch_port)).map_err(failed)?;
            switch.set_nodelay(true).map_err(failed)?;
            switches.push(switch);
        }
        let mut sent = 0;
        for switch in &mut switches {
            switch.write_all(&self.writes[0]).map_err(failed)?;
            sent += self.writes[0].len() as u64;
        }
        self.wait_for(sent, SET_UP_MAX, "of the first messages of all switches")?;
        let set_up = started.elapsed();

        let (before, first) = (relays.used(), sent);
        let started = Instant::now();
        sent += match self.cell.rate_per_s {
            None => self.flood(&mut switches[0]),
            Some(rate) => self.pace(&mut switches, rate),
        }
        .map_err(failed)?;
        self.wait_for(sent, DRAIN_MAX, "of all messages")?;
        let elapsed = started.elapsed();
        Ok(Measured {
            messages: (sent - first) / self.message_bytes,
            elapsed,
            set_up,
            before,
            after: relays.used(),
        })
    }

    fn wait_for(&self, bytes: u64, limit: Duration, what: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        loop {
            let came = self.sink.bytes.load(Ordering::Acquire);
            if came == bytes {
                return Ok(());
            }
            if came > bytes || Instant::now() > deadline {
                return Err(Failure::negative(format!(
                    "{came} bytes {what} came out, of {bytes}, within {} s",
                    limit.as_secs()
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Writes back to back, as fast as the relay accepts data.
    fn flood(&self, switch: &mut TcpStream) -> io::Result<u64> {
        let until = Instant::now() + self.duration;
        let mut sent = 0;
        while Instant::now() < until {
            for write in &self.writes {
                switch.write_all(write)?;
                sent += write.len() as u64;
            }
        }
        Ok(sent)
    }

    /// Sends a message from each switch in turn, at `rate_per_s` for all together.
    fn pace(&self, switches: &mut [TcpStream], rate_per_s: u32) -> io::Result<u64> {
        let started = Instant::now();
        let (mut sent, mut count) = (0, 0);
        while started.elapsed() < self.duration {
            let due = (started.elapsed().as_secs_f64() * f64::from(rate_per_s)) as usize;
            while count < due {
                let write = &self.writes[count / switches.len() % self.writes.len()];
                let turn = count % switches.len();
                switches[turn].write_all(write)?;
                sent += write.len() as u64;
                count += 1;
            }
            std::thread::sleep(TURN);
        }
        Ok(sent)
    }
}

impl Sink {
    fn open() -> io::Result<Sink> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let bytes = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_io()
            .build()?;
        let counted = bytes.clone();
        runtime.spawn(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((mut stream, _)) = listener.accept().await {
                let counted = counted.clone();
                tokio::spawn(async move {
                    let mut buf = BytesMut::new();
                    // An end or an error shows as missing bytes.
                    loop {
                        buf.clear();
                        buf.reserve(READ_BYTES);
                        match stream.read_buf(&mut buf).await {
                            Ok(0) | Err(_) => return,
                            Ok(n) => counted.fetch_add(n as u64, Ordering::Release),
                        };
                    }
                });
            }
        });
        Ok(Sink {
            port,
            bytes,
            _runtime: runtime,
        })
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::machine(format!("the relays' load: {error}"))
}
