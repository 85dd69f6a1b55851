//! One thread of the generator: its share of the switches, and the pacer that takes them through
//! the phases of a run and sends packet-ins when they are due.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use net::alarm::Alarm;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::Workload;
use super::plan::{Control, Interval, Measured, Mode, Phase, Plan};
use super::serve::{Emulated, End, Shared, UNSENT_BYTES_MAX, serve};
use super::switch::{Load, Stage, Switch};
use super::tally::Tally;
use crate::thread_cpu;

/// The longest time between two checks of the phase and the clock by the pacer.
const TICK_NS: u64 = 10_000_000;
/// Interval at which timeouts and set-up of each switch are handled.
const CARE_INTERVAL_NS: u64 = 50_000_000;
/// Scheduled packet-ins that are due within this time are sent together: a timer is no finer.
const SCHEDULE_STEP_NS: u64 = 50_000;
/// Unsent bytes on a connection at which a storm sends no further packet-ins.
const STORM_UNSENT_BYTES_MAX: usize = 256 << 10;
/// Connections that one thread opens at once.
const CONNECTING_MAX: usize = 64;
const CONNECT_TRIES: u32 = 3;
const CONNECT_PAUSE: Duration = Duration::from_millis(200);

/// Runs one thread to the end of the run.
pub fn run(plan: &Plan, thread: usize, control: &Arc<Control>) -> Result<Measured, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot run a thread: {error}");
    let runtime = crate::runtime().map_err(|error| failed(&error))?;
    let worker = Worker::new(plan, thread, control.clone()).map_err(|error| failed(&error))?;
    let local = LocalSet::new();
    let measured = local.block_on(&runtime, worker.run());
    control.threads[thread]
        .is_done
        .store(true, Ordering::Relaxed);
    measured.map_err(|error| failed(&error))
}

struct Worker<'a> {
    plan: &'a Plan,
    thread: usize,
    shared: Rc<Shared>,
    switches: Vec<Rc<RefCell<Emulated>>>,
    numbers: Vec<u16>,
    phase: Phase,
    cared_at_ns: u64,
    measured: Measured,
    schedule: Schedule,
    /// The storm, only on the thread with the first switch. It begins within the measured time.
    storm: Option<Schedule>,
    begun: Option<StartPoint>,
    echo_due_ns: u64,
    echo_next: usize,
}

/// State at the start of the measured time.
struct StartPoint {
    at_ns: u64,
    cpu: Duration,
    tallies: Vec<Tally>,
    interval_at_ns: u64,
    interval_answered: Vec<u64>,
}

/// The times at which this thread's packet-ins are to be sent.
struct Schedule {
    start_ns: u64,
    interval_ns: f64,
    sent: u64,
}

impl Schedule {
    fn due_ns(&self, number: u64) -> u64 {
        self.start_ns + (number as f64 * self.interval_ns) as u64
    }
}

impl<'a> Worker<'a> {
    fn new(
        plan: &'a Plan,
        thread: usize,
        control: Arc<Control>,
    ) -> Result<Worker<'a>, openflow::EncodeError> {
        let profile = Rc::new(plan.profile.clone());
        let numbers: Vec<u16> = plan.share(thread).collect();
        let mut switches = Vec::new();
        for number in &numbers {
            let switch = Switch::new(profile.clone(), plan.layout(*number))?;
            switches.push(Rc::new(RefCell::new(Emulated::new(switch))));
        }
        let interval_ns = match plan.mode {
            Mode::Open { rate } => {
                let share = numbers.len() as f64 / f64::from(plan.switch_count);
                1e9 / (rate * share)
            }
            _ => f64::INFINITY,
        };
        let shared = Shared::new(control);
        if plan.workload == Workload::Attack {
            shared.delays.borrow_mut().timeline = Some(Vec::new());
        }
        Ok(Worker {
            plan,
            thread,
            shared: Rc::new(shared),
            switches,
            numbers,
            phase: Phase::Connect,
            cared_at_ns: 0,
            measured: Measured::default(),
            schedule: Schedule {
                start_ns: 0,
                interval_ns,
                sent: 0,
            },
            storm: None,
            begun: None,
            echo_due_ns: 0,
            echo_next: 0,
        })
    }

    async fn run(mut self) -> Result<Measured, std::io::Error> {
        let mut alarm = Alarm::new()?;
        self.listen();
        self.connect();
        loop {
            let now_ns = self.shared.control.now_ns();
            self.enter(now_ns);
            self.send_due(now_ns);
            self.storm(now_ns);
            self.ask_echoes(now_ns);
            if now_ns >= self.cared_at_ns + CARE_INTERVAL_NS {
                self.care(now_ns);
            }
            self.close_interval(now_ns);
            if self.phase == Phase::Drain && self.is_drained(now_ns) {
                return Ok(self.conclude());
            }
            let due_ns = self.next_due_ns();
            let left_ns = due_ns.saturating_sub(self.shared.control.now_ns());
            let due = Instant::now() + Duration::from_nanos(left_ns);
            if !alarm.wait_until(due).await? {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Starts a task that delivers crossings to the switches of this thread.
    fn listen(&self) {
        let Some(mut receiver) = self.shared.control.links.receiver(self.thread) else {
            return;
        };
        let (switches, shared) = (self.switches.clone(), self.shared.clone());
        let step = self.plan.thread_count;
        tokio::task::spawn_local(async move {
            while let Some(crossing) = receiver.recv().await {
                let emulated = switches.get(usize::from(crossing.to) / step);
                let Some(mut emulated) = emulated.map(|emulated| emulated.borrow_mut()) else {
                    continue;
                };
                if !emulated.is_up {
                    shared.control.links.note_unconnected();
                    continue;
                }
                if emulated.out.len() > UNSENT_BYTES_MAX {
                    shared.control.links.note_dropped();
                    continue;
                }
                let Emulated { switch, out, .. } = &mut *emulated;
                let delays = &mut *shared.delays.borrow_mut();
                if switch.handle_crossing(crossing.what, delays, out).is_err() {
                    switch.tally.errors += 1;
                }
                emulated.wake();
            }
        });
    }

    /// Starts a task per switch, which ends with its connection.
    fn connect(&self) {
        let places = Rc::new(Semaphore::new(CONNECTING_MAX));
        for (emulated, number) in self.switches.iter().zip(&self.numbers) {
            let (emulated, shared) = (emulated.clone(), self.shared.clone());
            let group = u32::from(*number) / self.plan.connect_group;
            let pause = self.plan.connect_pause * group;
            let (method, security) = (self.plan.method.clone(), self.plan.security.clone());
            let (places, thread) = (places.clone(), self.thread);
            tokio::task::spawn_local(async move {
                let progress = &shared.control.threads[thread];
                let mut tries = 1;
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let connection = loop {
                    let _place = places.acquire().await;
                    match net::transport::connect(&method, &security).await {
                        Ok(connection) => break Some(connection),
                        Err(error) if tries == CONNECT_TRIES => {
                            shared.control.note_problem(error.to_string());
                            break None;
                        }
                        Err(_) => tries += 1,
                    }
                    tokio::time::sleep(CONNECT_PAUSE).await;
                };
                let Some(connection) = connection else {
                    progress.given_up.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                progress.connected.fetch_add(1, Ordering::Relaxed);
                {
                    let emulated = &mut *emulated.borrow_mut();
                    emulated.is_up = true;
                    let Emulated { switch, out, .. } = emulated;
                    // If our HELLO cannot be written, there is no connection either.
                    if switch.handle_connected(out).is_err() {
                        return;
                    }
                }
                let end = serve(emulated.clone(), connection, &shared).await;
                emulated.borrow_mut().is_up = false;
                shared.control.note_problem(match end {
                    End::Closed => "the controller closed a connection".to_string(),
                    End::Failed(error) => format!("a connection was lost: {error}"),
                    End::Broken(broken) => broken.to_string(),
                });
                progress.gone.fetch_add(1, Ordering::Relaxed);
            });
        }
    }

    /// Enters the conductor's current phase.
    fn enter(&mut self, now_ns: u64) {
        let phase = self.shared.control.phase();
        if phase <= self.phase {
            return;
        }
        let load = match phase {
            Phase::Connect | Phase::Drain => Load::Idle,
            Phase::Learn => Load::Learn,
            Phase::WarmUp | Phase::Measure => self.plan.mode.load(),
        };
        if load == Load::Open && self.schedule.start_ns == 0 {
            self.schedule.start_ns = now_ns;
        }
        for (emulated, number) in self.switches.iter().zip(&self.numbers) {
            let mut emulated = emulated.borrow_mut();
            let is_measured = phase < Phase::WarmUp || !self.plan.storms(*number);
            emulated
                .switch
                .set_load(if is_measured { load } else { Load::Idle });
            emulated.wake();
        }
        if phase == Phase::Measure {
            self.begin(now_ns);
        }
        self.phase = phase;
        if phase == Phase::Drain {
            self.finish(now_ns);
        }
    }

    fn begin(&mut self, now_ns: u64) {
        let mut tallies: Vec<Tally> = self.tallies().collect();
        for (emulated, tally) in self.switches.iter().zip(&mut tallies) {
            let switch = &mut emulated.borrow_mut().switch;
            switch.record_from(now_ns);
            // Packet-ins that wait now are answered or missed within the measured time.
            tally.sent -= switch.in_flight() as u64;
        }
        self.begun = Some(StartPoint {
            at_ns: now_ns,
            cpu: thread_cpu(),
            interval_at_ns: now_ns,
            interval_answered: tallies.iter().map(|tally| tally.answered).collect(),
            tallies,
        });
    }

    fn tallies(&self) -> impl Iterator<Item = Tally> + '_ {
        let each = self.switches.iter();
        each.map(|emulated| emulated.borrow().switch.tally)
    }

    /// Ends an interval when its time is over, and with the last one the measured time.
    fn close_interval(&mut self, now_ns: u64) {
        let interval_ns = self.plan.interval.as_nanos() as u64;
        let answered: Vec<u64> = match &self.begun {
            Some(begun)
                if self.phase == Phase::Measure && now_ns - begun.interval_at_ns >= interval_ns =>
            {
                self.tallies().map(|tally| tally.answered).collect()
            }
            _ => return,
        };
        let Some(begun) = &mut self.begun else {
            return;
        };
        let differences = answered.iter().zip(&begun.interval_answered);
        let counts = differences.map(|(after, before)| after - before);
        self.measured.intervals.push(Interval {
            elapsed: Duration::from_nanos(now_ns - begun.interval_at_ns),
            answered: self.numbers.iter().copied().zip(counts).collect(),
        });
        begun.interval_at_ns = now_ns;
        begun.interval_answered = answered;
        self.begin_storm(now_ns);
        if self.measured.intervals.len() >= self.plan.interval_count as usize {
            self.phase = Phase::Drain;
            for emulated in &self.switches {
                emulated.borrow_mut().switch.set_load(Load::Idle);
            }
            self.finish(now_ns);
        }
    }

    /// Begins the storm after the first interval: later delays are those of the storm.
    fn begin_storm(&mut self, now_ns: u64) {
        if self.plan.workload != Workload::Storm || self.measured.intervals.len() != 1 {
            return;
        }
        let answers = &mut self.shared.delays.borrow_mut().answers;
        self.measured.quiet = std::mem::take(answers);
        if self.numbers.iter().any(|number| self.plan.storms(*number)) {
            self.storm = Some(Schedule {
                start_ns: now_ns,
                interval_ns: 1e9 / self.plan.storm_rate,
                sent: 0,
            });
        }
    }

    fn storm(&mut self, now_ns: u64) {
        let Some(storm) = self.storm.as_mut().filter(|_| self.phase == Phase::Measure) else {
            return;
        };
        let stormed = (self.switches.iter().zip(&self.numbers))
            .find(|(_, number)| self.plan.storms(**number));
        let Some((emulated, _)) = stormed else {
            return;
        };
        let emulated = &mut *emulated.borrow_mut();
        while storm.due_ns(storm.sent) <= now_ns {
            storm.sent += 1;
            if emulated.is_up && emulated.out.len() < STORM_UNSENT_BYTES_MAX {
                emulated.switch.send_stray(&mut emulated.out);
                self.measured.strays += 1;
            } else {
                self.measured.strays_unsent += 1;
            }
        }
        emulated.wake();
    }

    /// Ends the measured time. Answers may still arrive.
    fn finish(&mut self, now_ns: u64) {
        let Some(begun) = &self.begun else {
            return;
        };
        let before: u64 = begun.tallies.iter().map(|tally| tally.answered).sum();
        let answered: u64 = self.tallies().map(|tally| tally.answered).sum();
        self.measured.elapsed = Duration::from_nanos(now_ns - begun.at_ns);
        self.measured.answered = answered - before;
        let cpu = thread_cpu().saturating_sub(begun.cpu);
        self.measured.cpu = vec![cpu];
    }

    /// Sends the packet-ins that are due.
    fn send_due(&mut self, now_ns: u64) {
        let is_open = matches!(self.plan.mode, Mode::Open { .. });
        if !is_open || !matches!(self.phase, Phase::WarmUp | Phase::Measure) {
            return;
        }
        loop {
            let due_ns = self.schedule.due_ns(self.schedule.sent);
            if due_ns > now_ns {
                return;
            }
            let at = (self.schedule.sent % self.switches.len() as u64) as usize;
            self.schedule.sent += 1;
            let emulated = &mut *self.switches[at].borrow_mut();
            if self.plan.storms(self.numbers[at]) {
                continue;
            }
            if !emulated.is_up {
                emulated.switch.tally.unsent += 1;
                continue;
            }
            let Emulated { switch, out, .. } = emulated;
            switch.send(due_ns, out);
            if self.phase == Phase::Measure {
                self.measured.lag.saturating_record(now_ns - due_ns);
            }
            emulated.wake();
        }
    }

    fn next_due_ns(&self) -> u64 {
        let now_ns = self.shared.control.now_ns();
        let tick_ns = now_ns + TICK_NS;
        if self.phase == Phase::Drain {
            return tick_ns;
        }
        let own = Some(&self.schedule).filter(|schedule| schedule.start_ns > 0);
        let schedules = own.into_iter().chain(&self.storm);
        let due_ns = schedules
            .map(|schedule| schedule.due_ns(schedule.sent))
            .min();
        let soonest_ns = now_ns + SCHEDULE_STEP_NS;
        due_ns.map_or(tick_ns, |due_ns| due_ns.max(soonest_ns).min(tick_ns))
    }

    /// Sends echo requests, spread over the time between two requests of one switch.
    fn ask_echoes(&mut self, now_ns: u64) {
        if !matches!(self.phase, Phase::WarmUp | Phase::Measure) {
            return;
        }
        let step_ns = self.plan.echo_interval.as_nanos() as u64 / self.switches.len() as u64;
        self.echo_due_ns = self.echo_due_ns.max(now_ns.saturating_sub(TICK_NS * 10));
        while self.echo_due_ns <= now_ns {
            self.echo_due_ns += step_ns.max(1);
            let emulated = &mut *self.switches[self.echo_next].borrow_mut();
            self.echo_next = (self.echo_next + 1) % self.switches.len();
            let Emulated { switch, out, .. } = emulated;
            // An echo request always fits.
            if emulated.is_up && switch.send_echo(now_ns, out).is_ok() {
                emulated.wake();
            }
        }
    }

    /// Handles timeouts and set-up of every switch, and stores their progress.
    fn care(&mut self, now_ns: u64) {
        self.cared_at_ns = now_ns;
        let (mut admitted, mut ready, mut not_learned, mut learned) = (0, 0, 0, 0);
        let (mut answered, mut heard) = (0, 0);
        for emulated in &self.switches {
            let emulated = &mut *emulated.borrow_mut();
            let Emulated { switch, out, .. } = emulated;
            let missing = switch.tally.missing;
            if switch.handle_tick(now_ns, out).is_err() {
                switch.tally.errors += 1;
            }
            let has_room = switch.tally.missing > missing;
            admitted += u32::from(switch.stage() != Stage::Handshake);
            ready += u32::from(switch.stage() == Stage::Ready);
            not_learned += u32::from(switch.stage() == Stage::NotLearned);
            learned += u32::from(switch.has_learned());
            answered += switch.tally.answered;
            heard += switch.tally.heard();
            if has_room || !emulated.out.is_empty() {
                emulated.wake();
            }
        }
        let progress = &self.shared.control.threads[self.thread];
        progress.admitted.store(admitted, Ordering::Relaxed);
        progress.ready.store(ready, Ordering::Relaxed);
        progress.not_learned.store(not_learned, Ordering::Relaxed);
        progress.learned.store(learned, Ordering::Relaxed);
        progress.answered.store(answered, Ordering::Relaxed);
        progress.heard.store(heard, Ordering::Relaxed);
    }

    fn is_drained(&self, now_ns: u64) -> bool {
        let Some(begun) = &self.begun else {
            return true;
        };
        let end_ns = begun.at_ns + self.measured.elapsed.as_nanos() as u64;
        let waits = |emulated: &Rc<RefCell<Emulated>>| emulated.borrow().switch.in_flight() > 0;
        // A packet-in is given up at the first care after its timeout.
        let grace_ns = self.plan.profile.timeout_ns + 3 * CARE_INTERVAL_NS;
        now_ns > end_ns + grace_ns || !self.switches.iter().any(waits)
    }

    fn conclude(mut self) -> Measured {
        if let Some(begun) = &self.begun {
            let mut tally = Tally::default();
            let before_and_after = self.tallies().zip(&begun.tallies).zip(&self.numbers);
            for ((after, before), number) in before_and_after {
                if !self.plan.storms(*number) {
                    tally.add(&after.since(before));
                }
            }
            self.measured.tally = tally;
        }
        let admitted = self.switches.iter().filter_map(|emulated| {
            let emulated = emulated.borrow();
            emulated.switch.admitted_ns()
        });
        self.measured.admitted_ns = admitted.collect();
        let delays = &mut *self.shared.delays.borrow_mut();
        std::mem::swap(&mut self.measured.delays, delays);
        self.measured
    }
}
