//! One connection as its task and the application thread both see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use control::ConnectionId;
use control::edge::EdgeCounters;
use control::session::SessionCounters;
use openflow::{DatapathId, Version};

use super::Ended;
use super::outbox::Outbox;
use net::transport::PeerIdentity;
use net::workers::Calls;

pub(super) struct Line {
    pub(super) id: ConnectionId,
    pub(super) peer: PeerIdentity,
    /// The queue of messages for the task. Ring the bell after adding to it.
    pub(super) outbox: Outbox,
    pub(super) bell: Bell,
    /// The calls of its worker, if it has one.
    calls: Option<Arc<Calls>>,
    /// Whether the task has messages for which the inbox had no room. The bell is rung when the
    /// inbox has room.
    pub(super) waits_for_room: AtomicBool,
    facts: Mutex<Facts>,
}

/// Written by the connection's task at the end of each turn, read for status.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) datapath_id: Option<DatapathId>,
    pub(super) version: Option<Version>,
    pub(super) is_admitted: bool,
    /// Another controller serves the switch.
    pub(super) is_aside: bool,
    /// Whether the application knows of the connection, or will.
    pub(super) has_been_up: bool,
    pub(super) session: SessionCounters,
    pub(super) edge: EdgeCounters,
    /// The messages sent, without those of the edge, which counts its own.
    pub(super) messages_sent: u64,
    pub(super) echo_rtt: Option<std::time::Duration>,
    pub(super) packet_ins_shed_unread: u64,
    pub(super) rests: u64,
    pub(super) replies_unasked: u64,
}

impl Line {
    pub(super) fn new(
        id: ConnectionId,
        peer: PeerIdentity,
        calls: Option<Arc<Calls>>,
    ) -> Arc<Line> {
        Arc::new(Line {
            id,
            peer,
            outbox: Outbox::default(),
            bell: Bell::default(),
            calls,
            waits_for_room: AtomicBool::new(false),
            facts: Mutex::default(),
        })
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        super::lock(&self.facts)
    }

    /// Ends the connection when all earlier messages have been written.
    pub(super) fn end(&self, reason: Ended) {
        self.outbox.end(reason);
        self.bell.ring();
    }

    /// Rings the bell, together with the bells of its worker's other connections if it has a
    /// worker. Make the calls that this adds to `calls` when all bells are rung.
    pub(super) fn ring_among(&self, calls: &mut Vec<Arc<Calls>>) {
        let Some(own) = &self.calls else {
            return self.bell.ring();
        };
        if let Some(waker) = self.bell.pull()
            && own.add(waker)
        {
            calls.push(own.clone());
        }
    }
}

/// Wakes the connection's task. Any number of rings before the task notices the first cause one
/// wake-up.
#[derive(Default)]
pub(super) struct Bell {
    is_rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(super) fn ring(&self) {
        if let Some(waker) = self.pull() {
            waker.wake();
        }
    }

    /// Rings the bell. Returns the waker to wake, if any.
    fn pull(&self) -> Option<Waker> {
        let was_rung = self.is_rung.swap(true, Ordering::AcqRel);
        (!was_rung).then(|| super::lock(&self.waker).clone())?
    }

    /// Sets the waker that the bell wakes from now on. Ask [`Bell::was_rung`] afterwards.
    pub(super) fn wakes(&self, waker: &Waker) {
        *super::lock(&self.waker) = Some(waker.clone());
    }

    pub(super) fn was_rung(&self) -> bool {
        self.is_rung.load(Ordering::Relaxed) && self.is_rung.swap(false, Ordering::AcqRel)
    }
}
