//! What the connections' tasks and the application thread have in common: the inbox and the news
//! of connections, under one lock so that a connection's news comes before its messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use control::ConnectionId;
use control::inbox::{Delivery, Inbox, InboxConfig, InboxCounters};
use control::session::{SessionCounters, SwitchUp};
use openflow::time::Instant;
use openflow::{DatapathId, Frame, Version};
use tokio::sync::{Notify, mpsc};

use super::outbox::Outbox;
use super::{ConnectionView, Ended, Notice};
use crate::clock::Clock;
use crate::transport::PeerIdentity;
use crate::transport::Ticket;

pub(super) struct Shared {
    pub(super) clock: Clock,
    state: Mutex<State>,
    wake: Condvar,
    notices: mpsc::Sender<Notice>,
    notices_lost: AtomicU64,
}

struct State {
    inbox: Inbox,
    /// At most one `Up` and one `Down` for each connection, and a connection keeps its place in
    /// its listener until its `Down` has been taken: so the listeners' limits bound this too.
    news: VecDeque<News>,
    connections: BTreeMap<ConnectionId, Arc<Line>>,
    asked: bool,
    stopping: bool,
}

pub(super) enum News {
    Up(Arc<Line>, Box<SwitchUp>),
    Down(ConnectionId, Option<Ticket>),
}

/// What the application thread does next.
pub(super) enum Work {
    News(News),
    Frame(Delivery),
    Asked,
    Timeout,
    Stop,
}

/// One connection as both sides see it.
pub(super) struct Line {
    pub(super) id: ConnectionId,
    pub(super) peer: PeerIdentity,
    pub(super) outbox: Outbox,
    /// Signalled when the inbox has room again for a connection that waits for it.
    pub(super) room: Notify,
    pub(super) waits_for_room: AtomicBool,
    facts: Mutex<Facts>,
}

/// Written by the connection's task now and then, read for status.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) datapath_id: Option<DatapathId>,
    pub(super) version: Option<Version>,
    pub(super) is_admitted: bool,
    pub(super) session: SessionCounters,
    pub(super) messages_sent: u64,
    pub(super) echo_rtt: Option<std::time::Duration>,
    pub(super) packet_ins_shed_unread: u64,
}

impl Line {
    pub(super) fn new(id: ConnectionId, peer: PeerIdentity) -> Arc<Line> {
        Arc::new(Line {
            id,
            peer,
            outbox: Outbox::default(),
            room: Notify::new(),
            waits_for_room: AtomicBool::new(false),
            facts: Mutex::default(),
        })
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().expect("no panic while it is held")
    }
}

impl Shared {
    pub(super) fn new(clock: Clock, inbox: InboxConfig, notices: mpsc::Sender<Notice>) -> Shared {
        Shared {
            clock,
            state: Mutex::new(State {
                inbox: Inbox::new(inbox),
                news: VecDeque::new(),
                connections: BTreeMap::new(),
                asked: false,
                stopping: false,
            }),
            wake: Condvar::new(),
            notices,
            notices_lost: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    pub(super) fn add(&self, line: &Arc<Line>) {
        let mut state = self.state();
        state.connections.insert(line.id, line.clone());
        if state.stopping {
            line.outbox.end(Ended::Stopped);
        }
    }

    /// `line` is up: the application hears of it before any of its frames.
    pub(super) fn up(&self, line: &Arc<Line>, up: Box<SwitchUp>) {
        self.state().news.push_back(News::Up(line.clone(), up));
        self.wake.notify_one();
    }

    /// The connection is closed. Its place is free when the application has heard of it.
    pub(super) fn down(&self, id: ConnectionId, ticket: Option<Ticket>) {
        self.state().news.push_back(News::Down(id, ticket));
        self.wake.notify_one();
    }

    /// Queues `frame` for the application, or gives it back: then wait for `line.room`.
    pub(super) fn deliver(&self, line: &Line, frame: Frame) -> Result<(), Frame> {
        let mut state = self.state();
        let queued = state.inbox.handle_frame(self.clock.now(), line.id, frame);
        line.waits_for_room
            .store(queued.is_err(), Ordering::Relaxed);
        drop(state);
        self.wake.notify_one();
        queued
    }

    pub(super) fn ask(&self) {
        self.state().asked = true;
        self.wake.notify_one();
    }

    /// Ends every connection; the application thread ends when they are gone.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        for line in state.connections.values() {
            line.outbox.end(Ended::Stopped);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for something to do, at most until `due`.
    pub(super) fn next(&self, due: Option<Instant>) -> Work {
        let mut state = self.state();
        loop {
            let now = self.clock.now();
            if let Some(news) = state.news.pop_front() {
                if let News::Down(id, _) = &news {
                    state.inbox.handle_down(*id);
                    state.connections.remove(id);
                }
                return Work::News(news);
            }
            if due.is_some_and(|due| due <= now) {
                return Work::Timeout;
            }
            if std::mem::take(&mut state.asked) {
                return Work::Asked;
            }
            if let Some(delivery) = state.inbox.poll_frame(now) {
                let Some(line) = state.connections.get(&delivery.connection) else {
                    continue;
                };
                if line.waits_for_room.load(Ordering::Relaxed) && state.inbox.has_room(line.id) {
                    line.room.notify_one();
                }
                return Work::Frame(delivery);
            }
            if state.stopping && state.connections.is_empty() {
                return Work::Stop;
            }
            state = match due {
                None => self.wake.wait(state),
                Some(due) => self
                    .wake
                    .wait_timeout(state, self.clock.until(due))
                    .map(|(state, _)| state)
                    .map_err(|poisoned| std::sync::PoisonError::new(poisoned.into_inner().0)),
            }
            .expect("no panic while it is held");
        }
    }

    pub(super) fn line(&self, id: ConnectionId) -> Option<Arc<Line>> {
        self.state().connections.get(&id).cloned()
    }

    pub(super) fn connection_count(&self) -> usize {
        self.state().connections.len()
    }

    pub(super) fn notify(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            self.notices_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn notices_lost(&self) -> u64 {
        self.notices_lost.load(Ordering::Relaxed)
    }

    pub(super) fn inbox_counters(&self) -> InboxCounters {
        self.state().inbox.counters()
    }

    pub(super) fn views(&self) -> Vec<ConnectionView> {
        let state = self.state();
        let views = state.connections.values().map(|line| {
            let facts = *line.facts();
            ConnectionView {
                id: line.id,
                peer: line.peer.clone(),
                datapath_id: facts.datapath_id,
                version: facts.version,
                is_admitted: facts.is_admitted,
                session: facts.session,
                messages_sent: facts.messages_sent,
                echo_rtt: facts.echo_rtt,
                inbox_backlog: state.inbox.backlog(line.id),
                outbox_bytes: line.outbox.bytes(),
                packet_ins_shed: state.inbox.shed(line.id),
                packet_ins_shed_unread: facts.packet_ins_shed_unread,
            }
        });
        views.collect()
    }
}
