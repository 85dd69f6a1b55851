//! Messages that wait for a peer that does not take everything at once, in the policy map's queues:
//! an urgent message goes before one that has waited longer.
//!
//! It exists only as long as something waits. What is pushed here is in the order in which it was
//! said, by the application and the edge alike, and that is the order that the law is about:
//!
//! - A message of the application is pushed when the task takes it from the outbox.
//! - An update for the edge is no message, and nothing waits for it: it is carried out at its place
//!   in the outbox, and the messages that follow from it are pushed right there. So what it takes
//!   out, it takes out after the entries that were said before it, and before those said after it.
//! - An answer of the edge is pushed when it is made: behind all that the application had said when
//!   the edge decided so.

use std::sync::Arc;

use bytes::BytesMut;
use clock::Instant;
use openflow::{DatapathId, Frame};
use sched::classify::Buffers;
use sched::{Direction, Scheduler};

use super::policy::Policy;

/// The bytes handed to the transport at first, and again whenever it does not take everything. The
/// step doubles each time that it does. No message overtakes bytes that were handed over.
const STEP_BYTES_MIN: usize = 4 << 10;
const STEP_BYTES_MAX: usize = 64 << 10;

pub(super) struct Waiting {
    scheduler: Scheduler<Held>,
    /// The bytes of messages that the outbox does not count.
    uncounted_bytes: usize,
    step_bytes: usize,
}

struct Held {
    frame: Frame,
    /// The bytes that the outbox subtracts when the message is handed over.
    counted_bytes: usize,
}

impl Waiting {
    pub(super) fn new(policy: &Policy) -> Waiting {
        Waiting {
            scheduler: Scheduler::new(Direction::ToSwitch, policy.scheduling()),
            uncounted_bytes: 0,
            step_bytes: STEP_BYTES_MIN,
        }
    }

    pub(super) fn set_policy(&mut self, policy: &Policy) {
        self.scheduler.set_scheduling(policy.scheduling());
    }

    pub(super) fn push(
        &mut self,
        now: Instant,
        policy: &Arc<Policy>,
        place: Place,
        frame: Frame,
        counted_bytes: usize,
        buffers: &Buffers,
    ) {
        let kept = buffers.fields(now, place.channel, place.datapath, &frame);
        let to = Direction::ToSwitch;
        let tag = policy.classify(&frame, to, place.channel, place.datapath, kept);
        if counted_bytes == 0 {
            self.uncounted_bytes += frame.len();
        }
        let held = Held {
            frame,
            counted_bytes,
        };
        self.scheduler.push(now, tag, held);
    }

    /// The whole messages of `bytes`, in their order, none of which the outbox counts.
    pub(super) fn push_all(
        &mut self,
        now: Instant,
        policy: &Arc<Policy>,
        place: Place,
        bytes: &mut BytesMut,
        buffers: &Buffers,
    ) {
        while let Ok(Some(frame)) = Frame::split_from(bytes) {
            self.push(now, policy, place, frame, 0, buffers);
        }
    }

    /// Appends the next messages to `out`, one step of them; what of them the outbox counts.
    pub(super) fn pop_into(&mut self, now: Instant, out: &mut BytesMut) -> usize {
        let mut counted = 0;
        while out.len() < self.step_bytes
            && let Some((_, held)) = self.scheduler.pop(now)
        {
            counted += held.counted_bytes;
            if held.counted_bytes == 0 {
                self.uncounted_bytes -= held.frame.len();
            }
            out.extend_from_slice(held.frame.bytes());
        }
        counted
    }

    /// The transport has taken everything, or not.
    pub(super) fn handle_written(&mut self, everything: bool) {
        self.step_bytes = match everything {
            true => (self.step_bytes * 2).min(STEP_BYTES_MAX),
            false => STEP_BYTES_MIN,
        };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scheduler.is_empty()
    }

    pub(super) fn uncounted_bytes(&self) -> usize {
        self.uncounted_bytes
    }

    pub(super) fn counters(&self) -> &[sched::scheduler::QueueCounters] {
        self.scheduler.counters()
    }
}

/// The connection's place, for the classifier.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) channel: u64,
    pub(super) datapath: Option<DatapathId>,
}

/// The bytes that may stay in the transport's buffer when it is stuck.
pub(super) const STUCK_BYTES_MAX: usize = STEP_BYTES_MIN;
