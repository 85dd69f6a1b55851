//! The state that the connections' tasks and the application thread share: the inbox and the news
//! of connections. One lock covers both, so the application takes a connection's news before its
//! messages. Both sides take the lock once for many messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use clock::{Duration, Instant};
use control::ConnectionId;
use control::histogram::Histogram;
use control::inbox::{ClassCounters, Delivery, Inbox, InboxConfig, InboxCounters, Thinning};
use control::session::SwitchUp;
use openflow::{DatapathId, Frame, MessageKind};
use sched::policy::QUEUES_MAX;
use sched::{PolicyMap, Tag};
use tokio::sync::mpsc;

use super::line::Line;
use super::policy::PolicyInUse;
use super::{ConnectionView, Ended, Kept, Notice};
use net::clock::Clock;
use net::transport::Ticket;

pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) policy: PolicyInUse,
    state: Mutex<State>,
    /// The only datapaths that may connect; `None` for any.
    allowed: Mutex<Option<BTreeSet<DatapathId>>>,
    wake: Condvar,
    /// The time that a task may take to answer a probe.
    pub(super) probe_timeout: Duration,
    notices: mpsc::Sender<Notice>,
    notices_lost: AtomicU64,
    /// Connections whose switches another controller serves.
    aside: AtomicUsize,
    ends: Mutex<BTreeMap<&'static str, u64>>,
    /// Connections that stay open without this process.
    kept: Mutex<Vec<Kept>>,
    /// The round trips of echoes, of all connections.
    echoes: Mutex<Histogram>,
}

struct State {
    inbox: Inbox,
    /// At most one `Up`, one `Aside` and one `Down` for each connection. A connection keeps its
    /// place in its listener until its `Down` has been taken, so the listeners' limits also bound
    /// this queue.
    news: VecDeque<News>,
    connections: BTreeMap<ConnectionId, Arc<Line>>,
    asked: bool,
    stopping: bool,
    /// Whether the application thread waits for `wake`: only then does waking it cost a system
    /// call.
    is_asleep: bool,
}

pub(super) enum News {
    Up(Arc<Line>, Box<SwitchUp>),
    Aside(Arc<Line>),
    Down(Box<Down>),
}

/// A connection that has ended.
pub(super) struct Down {
    pub(super) line: Arc<Line>,
    pub(super) datapath_id: Option<DatapathId>,
    pub(super) reason: Ended,
    pub(super) ticket: Option<Ticket>,
    /// Whether the end is not reported yet: the thread that reports the admission of the connection
    /// reports its end afterwards.
    pub(super) is_untold: bool,
}

/// The next piece of work of the application thread.
pub(super) enum Work {
    News(News),
    Frame(Delivery),
    Asked,
    Timeout,
    Stop,
}

/// Messages that the application takes at a time. News and deadlines wait for at most this many.
const BATCH_MAX: usize = 32;

impl Shared {
    pub(super) fn new(
        clock: Clock,
        inbox: InboxConfig,
        policy: PolicyMap,
        probe_timeout: Duration,
        notices: mpsc::Sender<Notice>,
    ) -> Shared {
        Shared {
            clock,
            policy: PolicyInUse::new(policy),
            state: Mutex::new(State {
                inbox: Inbox::new(inbox),
                news: VecDeque::new(),
                connections: BTreeMap::new(),
                asked: false,
                stopping: false,
                is_asleep: false,
            }),
            allowed: Mutex::default(),
            wake: Condvar::new(),
            probe_timeout,
            notices,
            notices_lost: AtomicU64::new(0),
            aside: AtomicUsize::new(0),
            ends: Mutex::default(),
            kept: Mutex::default(),
            echoes: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        super::lock(&self.state)
    }

    /// Unlocks `state`, which has work for the application thread, and wakes the thread if needed.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let is_asleep = std::mem::take(&mut state.is_asleep);
        drop(state);
        if is_asleep {
            self.wake.notify_one();
        }
    }

    pub(super) fn add(&self, line: &Arc<Line>) {
        let mut state = self.state();
        state.connections.insert(line.id, line.clone());
        if state.stopping {
            line.end(Ended::Stopped);
        }
    }

    /// Reports to the application that `line` is up, before any of its frames.
    pub(super) fn up(&self, line: &Arc<Line>, up: Box<SwitchUp>) {
        let mut state = self.state();
        state.news.push_back(News::Up(line.clone(), up));
        self.wake(state);
    }

    /// Reports that another controller serves the switch of `line`. Drops the messages and news of
    /// `line` that the application has not yet taken.
    pub(super) fn aside(&self, line: &Arc<Line>) {
        let mut state = self.state();
        state.inbox.handle_down(line.id);
        let is_of_line = |news: &News| match news {
            News::Up(of, _) | News::Aside(of) => of.id == line.id,
            News::Down(_) => false,
        };
        state.news.retain(|news| !is_of_line(news));
        state.news.push_back(News::Aside(line.clone()));
        self.wake(state);
    }

    /// Whether another controller serves a switch of ours.
    pub(super) fn is_standing_by(&self) -> bool {
        self.aside.load(Ordering::Relaxed) > 0
    }

    /// Counts a connection that stands by from now on, or no longer.
    pub(super) fn count_aside(&self, was_aside: bool, is_aside: bool) {
        match (was_aside, is_aside) {
            (false, true) => drop(self.aside.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.aside.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Reports that the connection is closed. Its place is free when the application has taken the
    /// report.
    pub(super) fn down(&self, down: Box<Down>) {
        self.count_end(&down.reason);
        let mut state = self.state();
        state.news.push_back(News::Down(down));
        self.wake(state);
    }

    /// Forgets a connection whose task reports nothing any more. The task may still do so later.
    pub(super) fn forget(&self, id: ConnectionId) {
        let mut state = self.state();
        state.inbox.handle_down(id);
        state.connections.remove(&id);
    }

    pub(super) fn count_echo(&self, rtt: Duration) {
        super::lock(&self.echoes).handle(rtt);
    }

    pub(super) fn echoes(&self) -> Histogram {
        *super::lock(&self.echoes)
    }

    pub(super) fn count_end(&self, reason: &Ended) {
        *super::lock(&self.ends).entry(reason.name()).or_default() += 1;
    }

    pub(super) fn ends(&self) -> BTreeMap<&'static str, u64> {
        super::lock(&self.ends).clone()
    }

    /// Queues `frames` for the application. Frames that find no room stay in `frames`: the bell is
    /// rung when there is room.
    pub(super) fn deliver(
        &self,
        now: Instant,
        line: &Line,
        frames: &mut VecDeque<(Option<Tag>, Frame)>,
        thinning: &mut Thinning,
    ) {
        let mut state = self.state();
        state.inbox.thin(now, line.id, thinning, |inbox| {
            while let Some((tag, frame)) = frames.pop_front() {
                let taken = match &tag {
                    Some(tag) => inbox.handle_tagged(now, line.id, tag, frame),
                    None => inbox.handle_frame(now, line.id, frame),
                };
                if let Err(frame) = taken {
                    frames.push_front((tag, frame));
                    break;
                }
            }
        });
        line.waits_for_room
            .store(!frames.is_empty(), Ordering::Relaxed);
        self.wake(state);
    }

    pub(super) fn is_allowed(&self, id: DatapathId) -> bool {
        let allowed = super::lock(&self.allowed);
        allowed.as_ref().is_none_or(|allowed| allowed.contains(&id))
    }

    /// Ends the connections of datapaths that are not among these. A task publishes its datapath's
    /// id before it checks it, so a new connection is found here or there.
    pub(super) fn set_allowed(&self, allowed: Option<BTreeSet<DatapathId>>) {
        *super::lock(&self.allowed) = allowed;
        let state = self.state();
        for line in state.connections.values() {
            let id = line.facts().datapath_id;
            if let Some(id) = id.filter(|id| !self.is_allowed(*id)) {
                line.end(Ended::NotAllowed(id));
            }
        }
    }

    pub(super) fn set_inbox(&self, config: InboxConfig) {
        self.state().inbox.set_config(config);
    }

    /// Ends a connection, if it exists.
    pub(super) fn end(&self, id: ConnectionId) {
        if let Some(line) = self.state().connections.get(&id) {
            line.end(Ended::Stopped);
        }
    }

    pub(super) fn ask(&self) {
        let mut state = self.state();
        state.asked = true;
        self.wake(state);
    }

    /// Ends every connection; the application thread ends when no connection is left.
    pub(super) fn stop(&self, reason: &Ended) {
        let mut state = self.state();
        state.stopping = true;
        for line in state.connections.values() {
            line.end(reason.clone());
        }
        self.wake(state);
    }

    /// Orders every connection to read nothing more.
    pub(super) fn hold(&self) {
        for line in self.state().connections.values() {
            line.outbox.hold();
            line.bell.ring();
        }
    }

    /// Whether all connections have taken the order of [`Shared::hold`], and the application has
    /// taken all messages that they had read.
    pub(super) fn is_all_taken(&self) -> bool {
        let state = self.state();
        let has_more =
            |line: &Line| line.outbox.has_hold() || line.waits_for_room.load(Ordering::Relaxed);
        state.inbox.is_empty() && !state.connections.values().any(|line| has_more(line))
    }

    pub(super) fn keep(&self, kept: Kept) {
        super::lock(&self.kept).push(kept);
    }

    pub(super) fn kept(&self) -> Vec<Kept> {
        std::mem::take(&mut *super::lock(&self.kept))
    }

    /// Waits for something to do, at most until `due`, and puts it into `work`, which is empty.
    pub(super) fn next(&self, due: Option<Instant>, work: &mut VecDeque<Work>) {
        let mut state = self.state();
        loop {
            state.take_work(self.clock.now(), due, work);
            if !work.is_empty() {
                return;
            }
            state.is_asleep = true;
            state = match due {
                None => self.wake.wait(state),
                Some(due) => self
                    .wake
                    .wait_timeout(state, self.clock.until(due))
                    .map(|(state, _)| state)
                    .map_err(|poisoned| PoisonError::new(poisoned.into_inner().0)),
            }
            .unwrap_or_else(PoisonError::into_inner);
            state.is_asleep = false;
        }
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

    pub(super) fn inbox_class_counters(&self) -> [ClassCounters; QUEUES_MAX] {
        self.state().inbox.class_counters()
    }

    pub(super) fn inbox_counters(&self) -> InboxCounters {
        self.state().inbox.counters()
    }

    pub(super) fn views(&self) -> Vec<ConnectionView> {
        // This thread may be preempted at any step. It takes the lock that all messages go through
        // for one line at a time.
        let lines: Vec<Arc<Line>> = self.state().connections.values().cloned().collect();
        let views = lines.iter().map(|line| {
            let facts = *line.facts();
            let state = self.state();
            let inbox_backlog = state.inbox.backlog(line.id);
            let packet_ins_shed = state.inbox.shed(line.id);
            drop(state);
            ConnectionView {
                id: line.id,
                peer: line.peer.clone(),
                datapath_id: facts.datapath_id,
                version: facts.version,
                is_admitted: facts.is_admitted,
                is_aside: facts.is_aside,
                session: facts.session,
                edge: facts.edge,
                messages_sent: facts.messages_sent + facts.edge.flow_mods + facts.edge.packet_outs,
                echo_rtt: facts.echo_rtt,
                inbox_backlog,
                outbox_bytes: line.outbox.bytes(),
                packet_ins_shed,
                packet_ins_shed_unread: facts.packet_ins_shed_unread,
                rests: facts.rests,
                packet_outs_shed: line.outbox.packet_outs_shed(),
                replies_unasked: facts.replies_unasked,
            }
        });
        views.collect()
    }
}

impl State {
    fn take_work(&mut self, now: Instant, due: Option<Instant>, work: &mut VecDeque<Work>) {
        while let Some(news) = self.news.pop_front() {
            if let News::Down(down) = &news {
                self.inbox.handle_down(down.line.id);
                self.connections.remove(&down.line.id);
            }
            work.push_back(Work::News(news));
        }
        if due.is_some_and(|due| due <= now) {
            work.push_back(Work::Timeout);
        }
        if std::mem::take(&mut self.asked) {
            work.push_back(Work::Asked);
        }
        for _ in 0..BATCH_MAX {
            let Some(delivery) = self.inbox.poll_frame(now) else {
                break;
            };
            if delivery.frame.kind() != MessageKind::PacketIn {
                self.tell_of_room(delivery.connection);
            }
            work.push_back(Work::Frame(delivery));
        }
        if work.is_empty() && self.stopping && self.connections.is_empty() {
            work.push_back(Work::Stop);
        }
    }

    fn tell_of_room(&self, id: ConnectionId) {
        if let Some(line) = self.connections.get(&id)
            && line.waits_for_room.load(Ordering::Relaxed)
            && self.inbox.has_room(id)
        {
            line.bell.ring();
        }
    }
}
