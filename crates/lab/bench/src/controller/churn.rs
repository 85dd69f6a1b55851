//! Switches that connect and leave: the number a controller accepts per second, and the wait of
//! each.
//!
//! A visit is a connection, HELLO, FEATURES and an answered echo; some controllers register a
//! switch only at the echo. Then the switch leaves and the next one connects.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::plan::{Control, Interval, Measured, Phase, Plan};
use super::switch::{Delays, Stage, Switch};
use crate::histogram::Histogram;
use crate::thread_cpu;

const READ_BYTES: usize = 64 << 10;
const TICK: Duration = Duration::from_millis(5);
/// Pause after a failed visit, so that visitors do not flood a controller that has stopped.
const PAUSE: Duration = Duration::from_millis(10);

/// The state that the visitors of a thread share.
struct Shared {
    control: Arc<Control>,
    is_measuring: Cell<bool>,
    is_over: Cell<bool>,
    tried: Cell<u64>,
    done: Cell<u64>,
    visits: RefCell<Histogram>,
}

/// Runs as many visitors at once as the plan has switches.
pub fn run(plan: &Plan, thread: usize, control: &Arc<Control>) -> Result<Measured, String> {
    let runtime = crate::runtime().map_err(|error| format!("cannot run a thread: {error}"))?;
    let shared = Rc::new(Shared {
        control: control.clone(),
        is_measuring: Cell::new(false),
        is_over: Cell::new(false),
        tried: Cell::new(0),
        done: Cell::new(0),
        visits: RefCell::default(),
    });
    let local = LocalSet::new();
    for number in plan.share(thread) {
        local.spawn_local(keep_visiting(plan.clone(), number, thread, shared.clone()));
    }
    let measured = local.block_on(&runtime, lead(plan, thread, &shared));
    control.threads[thread]
        .is_done
        .store(true, Ordering::Relaxed);
    Ok(measured)
}

/// Follows the conductor's phases, and takes the figures between two of them.
async fn lead(plan: &Plan, thread: usize, shared: &Shared) -> Measured {
    let mut measured = Measured::default();
    let mut begun = None;
    loop {
        tokio::time::sleep(TICK).await;
        let now_ns = shared.control.now_ns();
        let progress = &shared.control.threads[thread];
        progress
            .answered
            .store(shared.done.get(), Ordering::Relaxed);
        let phase = shared.control.phase();
        let Some((at_ns, cpu, tried, done)) = begun else {
            if phase == Phase::Measure {
                shared.is_measuring.set(true);
                begun = Some((now_ns, thread_cpu(), shared.tried.get(), shared.done.get()));
            } else if phase == Phase::Drain {
                return measured;
            }
            continue;
        };
        let elapsed = Duration::from_nanos(now_ns - at_ns);
        if elapsed < plan.measured() && phase == Phase::Measure {
            continue;
        }
        shared.is_over.set(true);
        measured.elapsed = elapsed;
        measured.answered = shared.done.get() - done;
        measured.tally.sent = shared.tried.get() - tried;
        measured.tally.answered = measured.answered;
        measured.tally.missing = measured.tally.sent.saturating_sub(measured.answered);
        measured.cpu = vec![thread_cpu().saturating_sub(cpu)];
        measured.intervals = vec![Interval {
            elapsed,
            answered: vec![(thread as u16, measured.answered)],
        }];
        measured.delays.answers = shared.visits.borrow().clone();
        return measured;
    }
}

async fn keep_visiting(plan: Plan, number: u16, thread: usize, shared: Rc<Shared>) {
    let mut delays = Delays::default();
    while !shared.is_over.get() {
        let start_ns = shared.control.now_ns();
        let visit = visit(&plan, number, &shared.control, &mut delays);
        let limit = Duration::from_nanos(plan.profile.ready_max_ns);
        let limit_s = limit.as_secs_f64();
        let late = |_| Err(format!("a switch was not taken in within {limit_s} s"));
        let visited = tokio::time::timeout(limit, visit)
            .await
            .unwrap_or_else(late);
        let is_done = visited.is_ok();
        if let Err(problem) = visited {
            shared.control.note_problem(problem);
        }
        if shared.is_over.get() {
            // The end of the run cut the visit short.
            return;
        }
        shared.tried.set(shared.tried.get() + 1);
        if is_done {
            shared.done.set(shared.done.get() + 1);
            if shared.is_measuring.get() {
                let taken_ns = shared.control.now_ns() - start_ns;
                shared.visits.borrow_mut().saturating_record(taken_ns);
            }
            let progress = &shared.control.threads[thread];
            progress.heard.fetch_add(1, Ordering::Relaxed);
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn visit(
    plan: &Plan,
    number: u16,
    control: &Control,
    delays: &mut Delays,
) -> Result<(), String> {
    let said = |error: std::io::Error| format!("a connection was lost: {error}");
    let written = |error: openflow::EncodeError| error.to_string();
    let connection = net::transport::connect(&plan.method, &plan.security).await;
    let mut connection = connection.map_err(|error| error.to_string())?;
    let profile = Rc::new(plan.profile.clone());
    let mut switch = Switch::new(profile, plan.layout(number)).map_err(written)?;
    switch.record_from(0);
    let echoed = delays.echoes.len();
    let mut has_asked = false;
    let mut out = Vec::new();
    let mut bytes = Vec::with_capacity(READ_BYTES);
    switch.handle_connected(&mut out).map_err(written)?;
    loop {
        connection.writer.write_all(&out).await.map_err(said)?;
        connection.writer.flush().await.map_err(said)?;
        out.clear();
        let read = connection.reader.read_buf(&mut bytes).await.map_err(said)?;
        if read == 0 {
            return Err("the controller closed a connection".to_string());
        }
        let now_ns = control.now_ns();
        let consumed = switch
            .handle_bytes(now_ns, &bytes, delays, &mut out)
            .map_err(|broken| broken.to_string())?;
        bytes.drain(..consumed);
        if delays.echoes.len() > echoed {
            return Ok(());
        }
        if !has_asked && switch.stage() != Stage::Handshake {
            has_asked = true;
            switch.send_echo(now_ns, &mut out).map_err(written)?;
        }
    }
}
