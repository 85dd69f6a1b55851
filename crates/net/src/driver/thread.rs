//! The application's thread: takes what the connections deliver, and carries out what the
//! application says.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use control::ConnectionId;
use control::budget::Budget;
use control::controller::{Admission, ControllerOutput, Event, PeerIdentity, PeerRole};
use control::session::SwitchUp;
use openflow::time::{Duration, Instant};

use super::line::Line;
use super::outbox::Outgoing;
use super::shared::{Down, News, Shared, Work};
use super::{Application, Ask, Ended, Notice};
use crate::tls::Role;
use crate::transport;

pub(super) fn run<A: Application>(application: A, shared: &Shared, asked: &Receiver<Ask<A>>) {
    let mut thread = Thread {
        application,
        shared,
        admitted: HashMap::new(),
        touched: Vec::new(),
        hosts: HostNotices::new(shared.clock.now()),
    };
    let mut work = VecDeque::new();
    loop {
        let due = thread.application.poll_timeout().map(|(due, _)| due);
        let due = [due, thread.hosts.due].into_iter().flatten().min();
        shared.next(due, &mut work);
        while let Some(next) = work.pop_front() {
            let now = shared.clock.now();
            // Frames are worked through together: what they lead to shares barriers and wake-ups.
            let goes_on =
                matches!(next, Work::Frame(_)) && matches!(work.front(), Some(Work::Frame(_)));
            match next {
                Work::News(News::Up(line, up)) => thread.admit(now, line, *up),
                Work::News(News::Down(down)) => thread.take_down(now, *down),
                Work::Frame(delivery) => {
                    if thread.admitted.contains_key(&delivery.connection) {
                        thread
                            .application
                            .handle_frame(now, delivery.connection, delivery.frame);
                    }
                }
                Work::Asked => {
                    while let Ok(question) = asked.try_recv() {
                        question(&mut thread.application);
                    }
                }
                Work::Timeout => thread.application.handle_timeout(now),
                Work::Stop => {
                    thread.tell_hosts(None);
                    return;
                }
            }
            if goes_on {
                continue;
            }
            thread.carry_out(now);
            thread.tell_hosts(Some(now));
        }
    }
}

struct Thread<'a, A> {
    application: A,
    shared: &'a Shared,
    /// The connections that the application knows.
    admitted: HashMap<ConnectionId, Admitted>,
    /// Those whose bell is to be rung.
    touched: Vec<Arc<Line>>,
    hosts: HostNotices,
}

struct Admitted {
    line: Arc<Line>,
    is_touched: bool,
}

/// Each notice wakes who prints it, which is worth it for a few hosts, and not for a flood of them.
struct HostNotices {
    budget: Budget,
    untold: u64,
    /// When those are told of.
    due: Option<Instant>,
}

/// Learned hosts that are told of one by one, in a second.
const HOST_NOTICES_MAX: u32 = 100;
/// The others are told of by number, so often.
const HOSTS_PERIOD: Duration = Duration::from_secs(1);

impl HostNotices {
    fn new(now: Instant) -> HostNotices {
        HostNotices {
            budget: Budget::new(now, HOST_NOTICES_MAX, HOST_NOTICES_MAX),
            untold: 0,
            due: None,
        }
    }

    /// Whether one more is told of by itself; else it is counted.
    fn take(&mut self, now: Instant) -> bool {
        let is_told = self.budget.take(now);
        if !is_told {
            self.untold += 1;
            self.due.get_or_insert(now + HOSTS_PERIOD);
        }
        is_told
    }
}

impl<A: Application> Thread<'_, A> {
    fn admit(&mut self, now: Instant, line: Arc<Line>, up: SwitchUp) {
        let (datapath_id, version) = (up.features.datapath_id, up.version);
        match self
            .application
            .handle_up(now, line.id, up, identity(&line.peer))
        {
            Admission::Admitted => {
                line.facts().is_admitted = true;
                self.shared.notify(Notice::Up {
                    connection: line.id,
                    datapath_id,
                    version,
                    peer: line.peer.clone(),
                });
                let is_touched = false;
                self.admitted.insert(line.id, Admitted { line, is_touched });
            }
            Admission::Refused(reason) => line.end(Ended::Refused(reason)),
        }
    }

    fn take_down(&mut self, now: Instant, down: Down) {
        let id = down.line.id;
        let was_up = self.admitted.remove(&id).is_some();
        if was_up {
            self.application.handle_down(now, id);
        }
        if down.is_untold {
            self.shared.notify(down.notice(was_up));
        }
        // Last: when its place is free, its end is told.
        drop(down.ticket);
    }

    /// Those that were counted, when it is time, or at the end.
    fn tell_hosts(&mut self, now: Option<Instant>) {
        let is_due = |due: Instant| now.is_none_or(|now| now >= due);
        if self.hosts.due.is_some_and(is_due) {
            self.hosts.due = None;
            let count = std::mem::take(&mut self.hosts.untold);
            self.shared.notify(Notice::HostsLearned(count));
        }
    }

    fn carry_out(&mut self, now: Instant) {
        // Bells are rung when there is no more, so that a task writes all in one go.
        while let Some(output) = self.application.poll_output() {
            let (connection, order) = match output {
                ControllerOutput::Send { connection, frame } => {
                    (connection, Order::Send(Outgoing::Frame(frame)))
                }
                ControllerOutput::Edge { connection, update } => {
                    (connection, Order::Send(Outgoing::Edge(update)))
                }
                ControllerOutput::Close { connection, reason } => {
                    (connection, Order::End(Ended::Refused(reason)))
                }
                ControllerOutput::Probe { connection } => (connection, Order::Probe),
                ControllerOutput::Event(event) => {
                    let is_host = matches!(event, Event::HostLearned { .. });
                    if !is_host || self.hosts.take(now) {
                        self.shared.notify(Notice::Event(event));
                    }
                    continue;
                }
            };
            let Some(admitted) = self.admitted.get_mut(&connection) else {
                continue;
            };
            let line = &admitted.line;
            match order {
                Order::Send(outgoing) => line.outbox.push(outgoing),
                Order::End(reason) => line.outbox.end(reason),
                Order::Probe => line.outbox.probe(),
            }
            if line.outbox.bytes() > UNHEARD_BYTES_MAX {
                line.bell.ring();
            }
            if !std::mem::replace(&mut admitted.is_touched, true) {
                self.touched.push(line.clone());
            }
        }
        for line in self.touched.drain(..) {
            line.bell.ring();
            if let Some(admitted) = self.admitted.get_mut(&line.id) {
                admitted.is_touched = false;
            }
        }
    }
}

/// For one connection.
enum Order {
    Send(Outgoing),
    End(Ended),
    Probe,
}

/// Above this a connection's task begins to write while there is more for it.
const UNHEARD_BYTES_MAX: usize = 64 << 10;

impl Down {
    pub(super) fn notice(&self, was_up: bool) -> Notice {
        Notice::Down {
            connection: self.line.id,
            datapath_id: self.datapath_id,
            was_up,
            peer: self.line.peer.clone(),
            reason: self.reason.clone(),
        }
    }
}

fn identity(peer: &transport::PeerIdentity) -> PeerIdentity {
    PeerIdentity {
        dpid: peer.datapath_id,
        role: match peer.role {
            None => PeerRole::Unknown,
            Some(Role::Switch) => PeerRole::Switch,
            Some(Role::Controller) => PeerRole::Controller,
        },
    }
}
