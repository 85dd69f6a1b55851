//! The application's thread: takes the messages that the connections deliver, and carries out the
//! application's outputs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use clock::Budget;
use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::{
    Admission, Alarm, ControllerOutput, Event, PeerIdentity, PeerRole, RefusedReason,
};
use control::session::{CloseReason, SwitchUp};

use super::line::Line;
use super::outbox::Outgoing;
use super::shared::{Down, News, Shared, Work};
use super::{ASKS_MAX, Application, Ask, Ended, Notice};
use net::tls::Role;
use net::transport;
use net::workers::Calls;

pub(super) fn run<A: Application>(application: A, shared: &Shared, asked: &Receiver<Ask<A>>) {
    let mut thread = Thread {
        application,
        shared,
        admitted: HashMap::new(),
        touched: Vec::new(),
        calls: Vec::new(),
        hosts: HostNotices::new(shared.clock.now()),
        probes: VecDeque::new(),
        given_up: HashSet::new(),
        aside: HashSet::new(),
        unfinished: VecDeque::new(),
    };
    let mut work = VecDeque::new();
    loop {
        let due = thread.application.poll_timeout().map(|(due, _)| due);
        let probe = thread.probes.front().map(|probe| probe.due);
        let due = [due, thread.hosts.due, probe].into_iter().flatten().min();
        shared.next(due, &mut work);
        while let Some(next) = work.pop_front() {
            let now = shared.clock.now();
            if matches!(next, Work::Stop) {
                thread.tell_hosts(None);
                return;
            }
            // Frames are handled together, so that their results share barriers and wake-ups.
            let goes_on =
                matches!(next, Work::Frame(_)) && matches!(work.front(), Some(Work::Frame(_)));
            thread.perform(now, next, !goes_on, asked);
        }
    }
}

struct Thread<'a, A> {
    application: A,
    shared: &'a Shared,
    /// The connections that the application knows.
    admitted: HashMap<ConnectionId, Admitted>,
    /// Lines whose bell is to be rung.
    touched: Vec<Arc<Line>>,
    /// Workers with lines whose bells have been rung.
    calls: Vec<Arc<Calls>>,
    hosts: HostNotices,
    /// Probes whose tasks may not have taken them yet, oldest first.
    probes: VecDeque<Probe>,
    /// Connections given up because their tasks are dead.
    given_up: HashSet<ConnectionId>,
    /// Connections whose switches another controller serves.
    aside: HashSet<ConnectionId>,
    /// Questions that are put again. Each has an asker who waits, so there are no more questions
    /// than waiting askers.
    unfinished: VecDeque<Ask<A>>,
}

/// A question whether a connection is alive.
struct Probe {
    line: Arc<Line>,
    due: Instant,
    /// Whether this is the second look. The whole process may have stood still before the first.
    is_last: bool,
}

struct Admitted {
    line: Arc<Line>,
    is_touched: bool,
}

/// The notices of learned hosts. Each wakes the reader that prints it, which is worth the cost for
/// a few hosts, but not for a flood.
struct HostNotices {
    budget: Budget,
    untold: u64,
    /// The time at which the counted hosts are reported.
    due: Option<Instant>,
}

/// The number of learned hosts in a second that are reported one by one.
const HOST_NOTICES_MAX: u32 = 100;
/// A turn of questions ends with the first question that ends after this time.
const ASKS_TURN: Duration = Duration::from_micros(100);
/// The interval at which the other hosts are reported, as a number.
const HOSTS_PERIOD: Duration = Duration::from_secs(1);

impl HostNotices {
    fn new(now: Instant) -> HostNotices {
        HostNotices {
            budget: Budget::new(now, HOST_NOTICES_MAX, HOST_NOTICES_MAX),
            untold: 0,
            due: None,
        }
    }

    /// Whether one more host is reported by itself; otherwise it is counted.
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
    /// Does one piece of work and, if it is the last for now, carries out its results. If the work
    /// panics, this ends the work's connection and no other, and lets the application repair its
    /// state.
    fn perform(&mut self, now: Instant, work: Work, is_last: bool, asked: &Receiver<Ask<A>>) {
        let line = match &work {
            Work::News(News::Up(line, _)) => Some(line.clone()),
            _ => None,
        };
        let id = match &work {
            Work::Frame(delivery) => Some(delivery.connection),
            _ => None,
        };
        // Unwind safe: the application repairs itself in `handle_panicked` before it gets more
        // work, and this thread changes its own maps in single steps.
        let done = catch_unwind(AssertUnwindSafe(|| self.try_to(now, work, is_last, asked)));
        if done.is_err() {
            let line = line.or_else(|| Some(self.admitted.get(&id?)?.line.clone()));
            self.recover(now, line);
            // If the work was a question, other questions may wait.
            self.shared.ask();
        }
    }

    fn try_to(&mut self, now: Instant, work: Work, is_last: bool, asked: &Receiver<Ask<A>>) {
        match work {
            Work::News(News::Up(line, up)) => self.admit(now, line, *up),
            Work::News(News::Aside(line)) => self.stand_aside(now, &line),
            Work::News(News::Down(down)) => self.take_down(now, *down),
            Work::Frame(delivery) => {
                if self.admitted.contains_key(&delivery.connection) {
                    self.application
                        .handle_frame(now, delivery.connection, delivery.frame);
                }
            }
            Work::Asked => self.answer(now, asked),
            Work::Timeout => {
                self.look_after_probes(now);
                self.application.handle_timeout(now);
            }
            Work::Stop => {}
        }
        if is_last {
            self.carry_out(now);
            self.tell_hosts(Some(now));
        }
    }

    /// Puts questions, new ones and parts of long ones in turn. Endless questions must not keep
    /// switches waiting: the rest are put after the work that has arrived meanwhile.
    fn answer(&mut self, now: Instant, asked: &Receiver<Ask<A>>) {
        for _ in 0..ASKS_MAX {
            self.unfinished.extend(asked.try_recv());
            let Some(mut question) = self.unfinished.pop_front() else {
                return;
            };
            if !question(&mut self.application) {
                self.unfinished.push_back(question);
            }
            if self.shared.clock.now().since(now) >= ASKS_TURN {
                break;
            }
        }
        self.shared.ask();
    }

    /// Ends `line`, the connection whose work panicked, and repairs the application.
    fn recover(&mut self, now: Instant, line: Option<Arc<Line>>) {
        if let Some(line) = line {
            line.end(Ended::Refused(RefusedReason::Fault));
        }
        let recovered = catch_unwind(AssertUnwindSafe(|| {
            self.application.handle_panicked(now);
            self.carry_out(now);
        }));
        if recovered.is_err() {
            tracing::error!("a second panic, while the state after one was made good");
        }
    }

    /// Gives up connections whose tasks do not take a probe in time. Such a task is dead, and would
    /// keep its datapath id for ever.
    fn look_after_probes(&mut self, now: Instant) {
        while let Some(mut probe) = self.probes.pop_front_if(|probe| probe.due <= now) {
            if !probe.line.outbox.has_probe() {
                continue;
            }
            if probe.is_last {
                self.give_up(now, &probe.line);
            } else {
                probe.line.bell.ring();
                probe.due = now + self.shared.probe_timeout;
                probe.is_last = true;
                self.probes.push_back(probe);
            }
        }
    }

    fn give_up(&mut self, now: Instant, line: &Arc<Line>) {
        let reason = Ended::Session(CloseReason::ProbeTimeout);
        line.end(reason.clone());
        if self.admitted.remove(&line.id).is_none() {
            return;
        }
        self.given_up.insert(line.id);
        self.shared.forget(line.id);
        self.shared.count_end(&reason);
        self.application.handle_down(now, line.id);
        let down = Down {
            line: line.clone(),
            datapath_id: line.facts().datapath_id,
            reason,
            ticket: None,
            is_untold: true,
        };
        self.shared.notify(down.notice(true));
    }

    fn admit(&mut self, now: Instant, line: Arc<Line>, up: SwitchUp) {
        let (datapath_id, version) = (up.features.datapath_id, up.version);
        match self
            .application
            .handle_up(now, line.id, up, identity(&line.peer))
        {
            Admission::Admitted => {
                line.facts().is_admitted = true;
                let was_aside = self.aside.remove(&line.id);
                self.shared.notify(Notice::Up {
                    connection: line.id,
                    datapath_id,
                    version,
                    peer: line.peer.clone(),
                    was_aside,
                });
                let is_touched = false;
                self.admitted.insert(line.id, Admitted { line, is_touched });
            }
            Admission::Refused(reason) => line.end(Ended::Refused(reason)),
        }
    }

    fn stand_aside(&mut self, now: Instant, line: &Line) {
        if self.admitted.remove(&line.id).is_some() {
            line.facts().is_admitted = false;
            self.application.handle_down(now, line.id);
        }
        self.aside.insert(line.id);
        if let Some(datapath_id) = line.facts().datapath_id {
            self.shared.notify(Notice::Aside {
                connection: line.id,
                datapath_id,
            });
        }
    }

    fn take_down(&mut self, now: Instant, down: Down) {
        let id = down.line.id;
        let was_up = self.admitted.remove(&id).is_some();
        let is_told = self.given_up.remove(&id);
        self.aside.remove(&id);
        if was_up {
            self.application.handle_down(now, id);
        }
        if down.is_untold && !is_told {
            self.shared.notify(down.notice(was_up));
        }
        // Its task panicked. Only this thread can raise the alarm.
        if down.reason == Ended::Panicked {
            let dpid = down.datapath_id;
            let alarm = Event::Alarm(Alarm::Panicked { dpid });
            self.shared.notify(Notice::Event(alarm));
        }
        // Last: its place must not be free before its end is reported.
        drop(down.ticket);
    }

    /// Reports the counted hosts, when it is time, or at the end.
    fn tell_hosts(&mut self, now: Option<Instant>) {
        let is_due = |due: Instant| now.is_none_or(|now| now >= due);
        if self.hosts.due.is_some_and(is_due) {
            self.hosts.due = None;
            let count = std::mem::take(&mut self.hosts.untold);
            self.shared.notify(Notice::HostsLearned(count));
        }
    }

    fn carry_out(&mut self, now: Instant) {
        // Bells are rung after the last output, so that a task writes everything in one go.
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
                Order::Probe => {
                    line.outbox.probe();
                    let due = now + self.shared.probe_timeout;
                    await_turn(&mut self.probes, line, due);
                }
            }
            if line.outbox.bytes() > UNHEARD_BYTES_MAX {
                line.bell.ring();
            }
            if !std::mem::replace(&mut admitted.is_touched, true) {
                self.touched.push(line.clone());
            }
        }
        for line in self.touched.drain(..) {
            line.ring_among(&mut self.calls);
            if let Some(admitted) = self.admitted.get_mut(&line.id) {
                admitted.is_touched = false;
            }
        }
        self.calls.drain(..).for_each(|calls| calls.make());
    }
}

/// Schedules a look at the line's probe at `due`.
fn await_turn(probes: &mut VecDeque<Probe>, line: &Arc<Line>, due: Instant) {
    if !probes.iter().any(|probe| probe.line.id == line.id) {
        probes.push_back(Probe {
            line: line.clone(),
            due,
            is_last: false,
        });
    }
}

/// An order for one connection.
enum Order {
    Send(Outgoing),
    End(Ended),
    Probe,
}

/// The queued bytes above which a connection's task begins to write while more output follows.
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

#[cfg(test)]
mod tests {
    use control::inbox::InboxConfig;
    use openflow::{DatapathId, Frame};
    use sched::PolicyMap;
    use tokio::sync::mpsc;

    use super::*;
    use net::clock::Clock;

    const WAIT: Duration = Duration::from_secs(1);

    /// Records which connections went down.
    #[derive(Default)]
    struct Recorder {
        went: Vec<ConnectionId>,
        outputs: VecDeque<ControllerOutput>,
    }

    impl Application for Recorder {
        fn handle_up(
            &mut self,
            _now: Instant,
            _connection: ConnectionId,
            _up: SwitchUp,
            _peer: PeerIdentity,
        ) -> Admission {
            Admission::Admitted
        }

        fn handle_frame(&mut self, _now: Instant, _connection: ConnectionId, _frame: Frame) {}

        fn handle_down(&mut self, _now: Instant, connection: ConnectionId) {
            self.went.push(connection);
        }

        fn handle_timeout(&mut self, _now: Instant) {}

        fn poll_output(&mut self) -> Option<ControllerOutput> {
            self.outputs.pop_front()
        }

        fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
            None
        }
    }

    /// Another connection claims the datapath id of one whose task is dead, or takes the probe.
    #[test]
    fn a_connection_whose_task_hears_of_no_probe_is_given_up() {
        for hears in [false, true] {
            let (notices, mut noticed) = mpsc::channel(8);
            let clock = Clock::start();
            let shared = Shared::new(
                clock,
                InboxConfig::default(),
                PolicyMap::auster(),
                WAIT,
                notices,
            );
            let id = ConnectionId(3);
            let line = Line::new(id, transport::memory(1).0.peer, None);
            line.facts().datapath_id = Some(DatapathId(7));
            shared.add(&line);
            let mut thread = Thread {
                application: Recorder::default(),
                shared: &shared,
                admitted: HashMap::from([(
                    id,
                    Admitted {
                        line: line.clone(),
                        is_touched: false,
                    },
                )]),
                touched: Vec::new(),
                calls: Vec::new(),
                hosts: HostNotices::new(Instant::START),
                probes: VecDeque::new(),
                given_up: HashSet::new(),
                aside: HashSet::new(),
                unfinished: VecDeque::new(),
            };
            let probe = ControllerOutput::Probe { connection: id };
            thread.application.outputs.push_back(probe);
            let mut now = Instant::START;
            thread.carry_out(now);
            if hears {
                let _ = line.outbox.take(&mut VecDeque::new());
            }
            // One look is not enough: the whole process may have stood still.
            now += WAIT;
            thread.look_after_probes(now);
            assert_eq!(thread.application.went, []);
            now += WAIT;
            thread.look_after_probes(now);
            let went: &[ConnectionId] = if hears { &[] } else { &[id] };
            assert_eq!(thread.application.went, went);
            assert_eq!(shared.connection_count(), usize::from(hears));
            let notice = noticed.try_recv().ok();
            assert_eq!(matches!(notice, Some(Notice::Down { .. })), !hears);
            // Should its task end after all, that is no news.
            let down = Down {
                line: line.clone(),
                datapath_id: None,
                reason: Ended::Peer,
                ticket: None,
                is_untold: true,
            };
            thread.take_down(now, down);
            assert_eq!(thread.application.went, [id]);
            assert_eq!(noticed.try_recv().is_ok(), hears);
        }
    }
}
