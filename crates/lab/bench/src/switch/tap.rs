//! Probes on a host's interface: raw Ethernet frames, sent and received with their times.
//!
//! The time of sending is read just before the call that sends; the time of receiving is the
//! kernel's own (SO_TIMESTAMPNS), taken when the frame arrives and not when this process wakes up.
//! Both times are from the machine's one real-time clock, so their difference is a delay.
#![allow(unsafe_code)] // tokio cannot know that a descriptor stays open; see `Tap::open`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cli::date::now_ns;
use cli::failure::Failure;

use nix::sys::socket::{MsgFlags, send};
use openflow::MacAddr;
use tokio::io::unix::AsyncFd;

use testbed::{capture, netns};

/// IEEE 802's local experimental EtherType 1: no host answers it, no switch treats it specially.
pub const ETH_TYPE: u16 = 0x88b5;
/// The shortest Ethernet frame, less its checksum.
pub const FRAME_BYTES: usize = 60;

const DESTINATION: MacAddr = MacAddr([0x02, 0x75, 0xff, 0xff, 0xff, 0xff]);
const MARK: [u8; 6] = *b"auster";
/// Room for the answers of a whole step of the set-up rate.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// The number of overdue packets up to which a delayed sender catches up.
const CATCH_UP_PACKETS: u64 = 50;

/// The data in a probe. Every flow has a source address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub flow: u32,
    pub sequence: u32,
}

impl Probe {
    /// The Ethernet source address of a flow.
    pub fn source(flow: u32) -> MacAddr {
        let [a, b, c, d] = flow.to_be_bytes();
        MacAddr([0x02, 0x75, a, b, c, d])
    }

    /// The frame of a probe. `token` separates the probes of this run of the bench from those of
    /// another on the same wire.
    pub fn frame(self, token: u32) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&DESTINATION.0);
        frame[6..12].copy_from_slice(&Probe::source(self.flow).0);
        frame[12..14].copy_from_slice(&ETH_TYPE.to_be_bytes());
        frame[14..20].copy_from_slice(&MARK);
        frame[20..24].copy_from_slice(&token.to_be_bytes());
        frame[24..28].copy_from_slice(&self.flow.to_be_bytes());
        frame[28..32].copy_from_slice(&self.sequence.to_be_bytes());
        frame
    }

    /// Reads one of our own probes; anything else is `None`.
    pub fn read(frame: &[u8], token: u32) -> Option<Probe> {
        let word = |at: usize| {
            let bytes = frame.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let is_probe = frame.get(12..14)? == ETH_TYPE.to_be_bytes()
            && frame.get(14..20)? == MARK
            && word(20)? == token;
        is_probe.then_some(Probe {
            flow: word(24)?,
            sequence: word(28)?,
        })
    }
}

/// A probe that was seen, and when the kernel saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub probe: Probe,
    pub at_ns: u64,
}

/// One interface. It must be made within a runtime.
pub struct Tap {
    socket: AsyncFd<OwnedFd>,
    token: u32,
}

impl Tap {
    /// Opens an interface of a namespace, or of this process's own.
    pub fn open(namespace: Option<&str>, device: &str, token: u32) -> io::Result<Tap> {
        let socket = match namespace {
            Some(namespace) => netns::within(namespace, || open_socket(device))?,
            None => open_socket(device)?,
        };
        // SAFETY: the descriptor is the `OwnedFd`'s, which is not exchanged nor closed before the
        // `AsyncFd` is dropped.
        let socket = unsafe { AsyncFd::register(socket)? };
        Ok(Tap { socket, token })
    }

    /// Sends a probe; returns the time just before sending.
    pub fn send(&self, probe: Probe) -> Result<u64, Failure> {
        self.try_send(probe).map_err(Failure::machine)
    }

    pub fn try_send(&self, probe: Probe) -> io::Result<u64> {
        send_frame(self.socket.get_ref(), &probe.frame(self.token))
    }

    /// Returns the next received probe, if there is one.
    fn try_receive(&self) -> io::Result<Option<Seen>> {
        loop {
            let mut frame = [0; FRAME_BYTES];
            let Some((len, at_ns)) = capture::receive(self.socket.get_ref(), &mut frame)? else {
                return Ok(None);
            };
            if let Some(probe) = Probe::read(&frame[..len], self.token) {
                return Ok(Some(Seen { probe, at_ns }));
            }
        }
    }

    /// Returns all probes received so far.
    pub fn drain(&self) -> Result<Vec<Seen>, Failure> {
        let all = std::iter::from_fn(|| self.try_receive().transpose());
        all.collect::<io::Result<_>>().map_err(Failure::machine)
    }

    /// Waits for this very probe, at most `at_most`; other probes are discarded.
    pub async fn receive(&self, probe: Probe, at_most: Duration) -> Result<Option<u64>, Failure> {
        let wait = async {
            loop {
                let mut ready = self.socket.readable().await?;
                while let Some(seen) = self.try_receive()? {
                    if seen.probe == probe {
                        return Ok::<u64, io::Error>(seen.at_ns);
                    }
                }
                ready.clear_ready();
            }
        };
        match tokio::time::timeout(at_most, wait).await {
            Ok(found) => found.map(Some).map_err(Failure::machine),
            Err(_) => Ok(None),
        }
    }

    /// Sends packets from a separate thread, at even intervals, until stopped or all are sent.
    pub fn start_train(&self, cars: Cars) -> Result<Train, Failure> {
        let socket = self.socket.get_ref().try_clone();
        let socket = socket.map_err(Failure::machine)?;
        let (token, sent, stop) = (
            self.token,
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counter, stopped) = (sent.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("probes".to_owned())
            .spawn(move || run_train(&socket, token, cars, &counter, &stopped))
            .map_err(Failure::machine)?;
        Ok(Train {
            sent,
            stop,
            thread: Some(thread),
        })
    }
}

/// The packets of a train.
#[derive(Clone, Copy, Debug)]
pub struct Cars {
    /// The flow of all packets, with rising sequence numbers, or of the first packet if each is a
    /// flow of its own.
    pub flow: u32,
    pub each_a_flow: bool,
    pub spacing: Duration,
    pub count_max: u32,
}

impl Cars {
    pub fn probe(self, number: u32) -> Probe {
        if self.each_a_flow {
            Probe {
                flow: self.flow + number,
                sequence: 0,
            }
        } else {
            Probe {
                flow: self.flow,
                sequence: number,
            }
        }
    }
}

/// Packets that are being sent.
pub struct Train {
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Vec<u64>>>>,
}

impl Train {
    /// Packets sent so far.
    pub fn sent(&self) -> u32 {
        self.sent.load(Ordering::Acquire) as u32
    }

    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the train. Returns when each packet was sent, by number.
    pub fn stop(mut self) -> Result<Vec<u64>, Failure> {
        self.stop.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(sent)) => sent.map_err(Failure::machine),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for Train {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn run_train(
    socket: &OwnedFd,
    token: u32,
    cars: Cars,
    counter: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<Vec<u64>> {
    // The kernel may otherwise let a sleep last 50 us longer than asked.
    nix::sys::prctl::set_timerslack(1)?;
    let spacing_ns = cars.spacing.as_nanos() as u64;
    let mut sent = Vec::new();
    let mut due_ns = now_ns();
    while sent.len() < cars.count_max as usize && !stop.load(Ordering::Acquire) {
        let now = now_ns();
        if now < due_ns {
            std::thread::sleep(Duration::from_nanos(due_ns - now));
            continue;
        }
        let probe = cars.probe(sent.len() as u32);
        sent.push(send_frame(socket, &probe.frame(token))?);
        counter.store(sent.len() as u64, Ordering::Release);
        due_ns = (due_ns + spacing_ns).max(now.saturating_sub(CATCH_UP_PACKETS * spacing_ns));
    }
    Ok(sent)
}

fn send_frame(socket: &OwnedFd, frame: &[u8]) -> io::Result<u64> {
    let before_ns = now_ns();
    loop {
        match send(socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => return Ok(before_ns),
            // The interface's queue is full, and another processor empties it.
            Err(nix::Error::ENOBUFS | nix::Error::EAGAIN | nix::Error::EINTR) => {
                std::thread::yield_now();
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn open_socket(device: &str) -> io::Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(device).map_err(|e| {
        let right = format!("no interface {device}; `ip link` shows those there are");
        io::Error::new(io::Error::from(e).kind(), right)
    })?;
    let socket = netns::open_packet_listener_here(device, RECEIVE_BUFFER_BYTES)?;
    // SAFETY: all of `sockaddr_ll` is integers; zero is a value of each.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ETH_TYPE.to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address outlives the call and has the length given.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    nix::errno::Errno::result(done)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_read_back_from_its_frame_and_from_no_other() {
        let probe = Probe {
            flow: 0x0102_0304,
            sequence: 7,
        };
        let frame = probe.frame(99);
        assert_eq!(Probe::read(&frame, 99), Some(probe));
        assert_eq!(Probe::read(&frame, 98), None, "of another bench");
        assert_eq!(frame[6..12], Probe::source(probe.flow).0);
        for cut in 0..32 {
            assert_eq!(Probe::read(&frame[..cut], 99), None, "cut at {cut}");
        }
        assert_ne!(DESTINATION, Probe::source(u32::MAX - 1));
    }

    #[test]
    fn packets_of_a_train_are_of_one_flow_or_each_of_its_own() {
        let cars = Cars {
            flow: 5,
            each_a_flow: false,
            spacing: Duration::ZERO,
            count_max: 9,
        };
        assert_eq!(
            cars.probe(3),
            Probe {
                flow: 5,
                sequence: 3
            }
        );
        let flows = Cars {
            each_a_flow: true,
            ..cars
        };
        assert_eq!(
            flows.probe(3),
            Probe {
                flow: 8,
                sequence: 0
            }
        );
    }
}
