//! Messages that wait a moment for others, to leave in one packet.
//!
//! Lanes are woken together when the window closes. The first message opens the window. A message
//! that may not wait closes it, since a packet leaves then anyway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use relay::ChannelId;
use sched::Lane;
use tokio::sync::Notify;

use super::end::End;
use net::alarm::Alarm;

/// The waiting lanes of one connection.
#[derive(Default)]
pub(super) struct Window {
    lanes: BTreeMap<(ChannelId, Lane), Arc<Notify>>,
    /// Wakes the task that sends datagrams, if any wait.
    datagrams: Option<Arc<Notify>>,
    closes: Option<Instant>,
}

/// The counters of all windows so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounters {
    /// Times that a message found its lane asleep and waited.
    pub held: u64,
    /// Windows that were closed.
    pub windows: u64,
}

#[derive(Default)]
pub(super) struct Counting {
    held: AtomicU64,
    windows: AtomicU64,
}

impl Counting {
    pub fn counters(&self) -> WindowCounters {
        WindowCounters {
            held: self.held.load(Ordering::Relaxed),
            windows: self.windows.load(Ordering::Relaxed),
        }
    }
}

impl Window {
    /// Makes a lane wait. Returns whether the window now closes earlier than before.
    pub fn hold(
        &mut self,
        lane: (ChannelId, Lane),
        wake: &Arc<Notify>,
        wait: Duration,
        counting: &Counting,
    ) -> bool {
        self.lanes.insert(lane, wake.clone());
        self.open(wait, counting)
    }

    /// Holds a datagram, as [`Window::hold`] holds a record.
    pub fn hold_datagrams(
        &mut self,
        wake: &Arc<Notify>,
        wait: Duration,
        counting: &Counting,
    ) -> bool {
        self.datagrams = Some(wake.clone());
        self.open(wait, counting)
    }

    fn open(&mut self, wait: Duration, counting: &Counting) -> bool {
        counting.held.fetch_add(1, Ordering::Relaxed);
        let closes = Instant::now() + wait;
        let is_earlier = self.closes.is_none_or(|at| closes < at);
        if is_earlier {
            self.closes = Some(closes);
        }
        is_earlier
    }

    pub fn close(&mut self, counting: &Counting) {
        if self.closes.take().is_some() {
            counting.windows.fetch_add(1, Ordering::Relaxed);
            let lanes = std::mem::take(&mut self.lanes);
            lanes.values().for_each(|wake| wake.notify_one());
            if let Some(datagrams) = self.datagrams.take() {
                datagrams.notify_waiters();
            }
        }
    }

    fn close_if_due(&mut self, counting: &Counting) -> Option<Instant> {
        if self.closes.is_some_and(|at| at <= Instant::now()) {
            self.close(counting);
        }
        self.closes
    }
}

/// Closes windows when they are due, for as long as the end is used.
pub(super) async fn close_windows(end: Weak<End>, opened: Arc<Notify>) {
    let mut alarm = match Alarm::new() {
        Ok(alarm) => alarm,
        Err(error) => return tracing::error!("no timer for --coalesce: {error}"),
    };
    loop {
        let Some(now) = end.upgrade() else { return };
        let closes = now.with_state(|state| {
            let live = state.link.as_mut()?;
            live.window.close_if_due(&now.coalescing)
        });
        drop(now);
        let waited = async {
            match closes {
                None => std::future::pending().await,
                Some(at) => alarm.wait_until(at).await.map(drop),
            }
        };
        tokio::select! {
            () = opened.notified() => {}
            waited = waited => if let Err(error) = waited {
                return tracing::error!("no timer for --coalesce: {error}");
            },
        }
    }
}
