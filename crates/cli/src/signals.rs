//! Polling for Ctrl-C and SIGTERM, so that a lab ends in order at any point.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::failure::Failure;

/// SIGINT, SIGTERM and SIGHUP of this process. Create it before any thread is started: threads
/// inherit the mask that keeps the signals for it.
pub struct Signals {
    fd: SignalFd,
    seen: AtomicBool,
}

impl Signals {
    pub fn take() -> Result<Signals, Failure> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            mask.add(signal);
        }
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let fd = mask
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&mask, flags));
        Ok(Signals {
            fd: fd.map_err(|e| Failure::machine(format!("signals: {e}")))?,
            seen: AtomicBool::new(false),
        })
    }

    /// Whether a signal has arrived since the start.
    pub fn seen(&self) -> bool {
        if let Ok(Some(_)) = self.fd.read_signal() {
            self.seen.store(true, Ordering::Relaxed);
        }
        self.seen.load(Ordering::Relaxed)
    }

    /// Waits for a signal, but not longer than this. Returns whether one has arrived.
    pub fn wait(&self, at_most: Duration) -> bool {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        if !self.seen() {
            match poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => tracing::warn!("poll: {e}"),
            }
        }
        self.seen()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
