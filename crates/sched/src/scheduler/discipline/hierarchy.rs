//! The default: queue 0 first, up to a share of the line; the others by deficit round robin.
//!
//! Messages that keep a session alive are small and go at once. Queue 0 has a credit that grows by
//! a nineteenth of the bytes that the others send. Only bytes sent while others wait are charged to
//! the credit. A flood in queue 0 uses up the credit and then gets its twentieth. Within a queue
//! channels take turns, and within a channel ports.

use clock::Instant;

use super::drr::Drr;
use super::{Discipline, Head};
use crate::policy::Scheduling;

/// Bytes of the other queues for each byte of queue 0 while others wait: queue 0 gets one of
/// twenty.
const OTHERS_PER_BYTE: i64 = 19;

/// The most that queue 0 may send at once before the others: about a hundred echo requests, or the
/// handshakes of as many switches.
const CREDIT_BYTES_MAX: i64 = 4096;

#[derive(Debug)]
pub(super) struct Hierarchy {
    others: Drr,
    /// Credit of queue 0, in bytes of the other queues.
    credit: i64,
    /// Whether another queue waited when the last message was picked.
    is_contended: bool,
}

impl Hierarchy {
    pub(super) fn new(scheduling: &Scheduling) -> Hierarchy {
        Hierarchy {
            others: Drr::new(scheduling),
            credit: CREDIT_BYTES_MAX * OTHERS_PER_BYTE,
            is_contended: false,
        }
    }
}

impl Discipline for Hierarchy {
    fn backlogged(&mut self, queue: usize) {
        if queue > 0 {
            self.others.backlogged(queue);
        }
    }

    fn idle(&mut self, queue: usize) {
        if queue > 0 {
            self.others.idle(queue);
        }
    }

    fn pick(&mut self, now: Instant, backlogged: u16, head: &dyn Fn(usize) -> Head) -> usize {
        let others = backlogged & !1;
        self.is_contended = others != 0;
        if backlogged & 1 != 0 && (self.credit > 0 || others == 0) {
            return 0;
        }
        self.others.pick(now, others, head)
    }

    fn served(&mut self, now: Instant, queue: usize, bytes: u32) {
        let bytes_signed = i64::from(bytes);
        if queue > 0 {
            let more = self.credit + bytes_signed;
            self.credit = more.min(CREDIT_BYTES_MAX * OTHERS_PER_BYTE);
            self.others.served(now, queue, bytes);
        } else if self.is_contended {
            self.credit -= bytes_signed * OTHERS_PER_BYTE;
        }
    }
}
