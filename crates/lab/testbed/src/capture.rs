//! Captures every frame that an interface receives, with the kernel's time of arrival.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;

use crate::netns;

/// A receiver of captured frames.
pub trait Listener: Send + 'static {
    /// Handles a frame. Returns whether the frame counts as an awaited one.
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool;
}

/// Room for some seconds: a frame of 200 bytes takes about 1 KiB of it.
const BUFFER_BYTES: usize = 64 << 20;
/// The largest frame of a loopback.
const FRAME_BYTES_MAX: usize = 65_600;
/// The kernel records the time of arrival, so waking for each frame would gain nothing.
const REST: Duration = Duration::from_millis(5);

/// A thread that listens until [`Capture::close`].
pub struct Capture<L> {
    heard: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<(L, u64)>>>,
}

impl<L: Listener> Capture<L> {
    /// Captures every frame that the interface receives from now on.
    pub fn open(namespace: &str, device: &str, listener: L) -> io::Result<Capture<L>> {
        Capture::start(
            netns::open_packet_listener(namespace, device, BUFFER_BYTES)?,
            listener,
        )
    }

    /// Captures the frames that the interface sends, too. On a loopback each frame would be
    /// captured twice.
    pub fn open_both_ways(namespace: &str, device: &str, listener: L) -> io::Result<Capture<L>> {
        Capture::start(
            netns::open_packet_listener_both_ways(namespace, device, BUFFER_BYTES)?,
            listener,
        )
    }

    fn start(socket: OwnedFd, listener: L) -> io::Result<Capture<L>> {
        let heard = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopped) = (heard.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || listen(&socket, listener, &counter, &stopped))?;
        Ok(Capture {
            heard,
            stop,
            thread: Some(thread),
        })
    }

    /// The number of frames so far that the listener counted.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Stops the capture. Returns the listener with its results, and the number of frames missed.
    pub fn close(mut self) -> io::Result<(L, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(heard)) => heard,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(io::Error::other("closed twice")),
        }
    }
}

impl<L> Drop for Capture<L> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn listen<L: Listener>(
    socket: &OwnedFd,
    mut listener: L,
    heard: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<(L, u64)> {
    let mut frame = vec![0; FRAME_BYTES_MAX];
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        while let Some((len, at_ns)) = receive(socket, &mut frame)? {
            let counts = listener.hear(&frame[..len], at_ns);
            heard.fetch_add(counts.into(), Ordering::Relaxed);
        }
        if is_last {
            return Ok((listener, netns::packet_drops(socket)?));
        }
        std::thread::sleep(REST);
    }
}

/// Takes the next packet of a socket with [`sockopt::ReceiveTimestampns`], if there is one: its
/// length and when the kernel saw it.
///
/// [`sockopt::ReceiveTimestampns`]: nix::sys::socket::sockopt::ReceiveTimestampns
pub fn receive(socket: &impl AsRawFd, frame: &mut [u8]) -> io::Result<Option<(usize, u64)>> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(frame)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
        Ok(message) => message,
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
        // The interface went down; frames may follow when it is up again.
        Err(nix::Error::ENETDOWN) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let stamp = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmTimestampns(time) => Some(time),
        _ => None,
    });
    let time = stamp.ok_or_else(|| io::Error::other("the kernel gives frames no timestamp"))?;
    let at_ns = time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64;
    Ok(Some((message.bytes, at_ns)))
}
