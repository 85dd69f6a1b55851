//! Messages that wait for a peer that does not take everything at once, in the policy map's queues:
//! an urgent message goes before one that has waited longer.
//!
//! The queues exist only as long as something waits. Messages are pushed in the order in which the
//! application and the edge sent them, and that is the order that the law is about:
//!
//! - A message of the application is pushed when the task takes it from the outbox.
//! - An update for the edge is not a message, and nothing waits for it: the task carries it out at
//!   its place in the outbox, and pushes the resulting messages right there. Its deletions
//!   therefore follow the entries sent before it, and precede the entries sent after it.
//! - An answer of the edge is pushed when it is made: behind all messages that the application had
//!   sent when the edge decided.

use std::sync::Arc;

use bytes::BytesMut;
use clock::Instant;
use openflow::{DatapathId, Frame};
use sched::classify::Buffers;
use sched::{Direction, Scheduler};

use super::policy::Policy;

/// The bytes handed to the transport at first, and again whenever it does not take everything. The
/// step doubles each time it takes everything. No message overtakes bytes already handed over.
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

    /// Pushes the whole messages of `bytes`, in their order. The outbox counts none of them.
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

    /// Appends one step of the next messages to `out`. Returns the bytes that the outbox counts.
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

    /// Adapts the step to whether the transport has taken everything.
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
