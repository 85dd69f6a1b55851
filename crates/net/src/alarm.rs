//! Waits that are exact to the microsecond. Tokio's timers count in milliseconds, but a message's
//! delay on a short path is tenths of a millisecond.
#![allow(unsafe_code)] // tokio cannot know that a descriptor stays open; see `Alarm::new`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Instant;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel, for one task.
#[derive(Debug)]
pub struct Alarm(AsyncFd<Timer>);

#[derive(Debug)]
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Alarm {
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // SAFETY: the timer owns its descriptor, nobody else has it, and the `AsyncFd` owns the
        // timer: the descriptor is open, and the same, for as long as it is registered.
        let registered =
            unsafe { AsyncFd::register_with_interest(Timer(timer), Interest::READABLE) };
        Ok(Alarm(registered?))
    }

    /// Waits until `at`; returns `false` at once if `at` has passed. The wait may be dropped and
    /// started again.
    pub async fn wait_until(&mut self, at: Instant) -> io::Result<bool> {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let once = Expiration::OneShot(TimeSpec::from_duration(left));
        self.0.get_ref().0.set(once, TimerSetTimeFlags::empty())?;
        loop {
            let mut ready = self.0.readable().await?;
            // Not blocking, so an expiration that was taken back is an error and not a wait.
            let expired = ready.get_inner().0.wait().is_ok();
            ready.clear_ready();
            if expired {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_waits_as_long_as_it_is_told_and_not_less() {
        let mut alarm = Alarm::new().unwrap();
        let at = Instant::now() + Duration::from_micros(300);
        assert!(alarm.wait_until(at).await.unwrap());
        assert!(Instant::now() >= at);
        assert!(!alarm.wait_until(at).await.unwrap());
        let again = Instant::now() + Duration::from_millis(2);
        assert!(alarm.wait_until(again).await.unwrap());
        assert!(Instant::now() >= again);
    }
}
