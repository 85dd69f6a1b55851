//! Limits the number of lines of one kind: peers cause most of them, and could fill a disk.
//!
//! A kind is an event of `auster run`, or a place in the code that logs. Each kind has its own
//! budget of [`LINES_BURST`] lines at once and [`LINES_PER_S`] a second on average, so a noisy kind
//! hides no other. Lines beyond the budget are counted, and the count is reported a second later.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Budget;
use clock::Instant;
use net::clock::Clock;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::output;

/// A network of a thousand switches may come up at once.
pub const LINES_BURST: u32 = 1000;
/// Some 100 MB a day of a kind, at most.
pub const LINES_PER_S: u32 = 10;
/// Between two lines that say how many are left out.
pub const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Lines of one kind.
#[derive(Debug)]
struct Line {
    budget: Budget,
    left_out: u64,
    /// The time at which the dropped lines are reported.
    due: Instant,
}

impl Line {
    fn new(now: Instant) -> Line {
        Line {
            budget: Budget::new(now, LINES_PER_S, LINES_BURST),
            left_out: 0,
            due: now,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let is_written = self.budget.take(now);
        if !is_written {
            self.leave_out(now, 1);
        }
        is_written
    }

    fn leave_out(&mut self, now: Instant, count: u64) {
        if self.left_out == 0 {
            self.due = now + TOLD_EVERY;
        }
        self.left_out += count;
    }

    fn poll_left_out(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.left_out > 0 && self.due <= now;
        is_due.then(|| std::mem::take(&mut self.left_out))
    }
}

/// Lines by kind. Kinds are names or places in the code, so there are not many.
#[derive(Debug)]
pub struct Lines<K>(BTreeMap<K, Line>);

impl<K> Default for Lines<K> {
    fn default() -> Lines<K> {
        Lines(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Lines<K> {
    /// Whether one more line of `kind` is written; else it is counted.
    pub fn take(&mut self, now: Instant, kind: &K) -> bool {
        self.of(now, kind).take(now)
    }

    /// `count` more of `kind` have come that nobody will be asked to write.
    pub fn leave_out(&mut self, now: Instant, kind: &K, count: u64) {
        self.of(now, kind).leave_out(now, count);
    }

    /// The time at which [`Lines::poll_left_out`] has its next line.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lines = self.0.values().filter(|line| line.left_out > 0);
        lines.map(|line| line.due).min()
    }

    /// A kind, and the number of its lines dropped since the last report.
    pub fn poll_left_out(&mut self, now: Instant) -> Option<(K, u64)> {
        self.0.iter_mut().find_map(|(kind, line)| {
            let count = line.poll_left_out(now)?;
            Some((kind.clone(), count))
        })
    }

    fn of(&mut self, now: Instant, kind: &K) -> &mut Line {
        if !self.0.contains_key(kind) {
            self.0.insert(kind.clone(), Line::new(now));
        }
        self.0.get_mut(kind).expect("it is there")
    }
}

/// The same for the log: each place that logs an error, a warning or an information has its own
/// budget. The levels `debug` and `trace` have no limit.
#[derive(Clone)]
pub struct LogLimits {
    clock: Clock,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    left_out: Condvar,
}

#[derive(Default)]
struct State {
    lines: Lines<Place>,
    has_thread: bool,
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    level: Level,
    target: &'static str,
    line: Option<u32>,
}

impl LogLimits {
    pub fn start() -> LogLimits {
        LogLimits {
            clock: Clock::start(),
            shared: Arc::default(),
        }
    }

    fn takes(&self, metadata: &Metadata<'static>) -> bool {
        let place = Place {
            level: *metadata.level(),
            target: metadata.target(),
            line: metadata.line(),
        };
        let mut state = self.lock();
        let is_taken = state.lines.take(self.clock.now(), &place);
        if !is_taken && !state.has_thread {
            let limits = self.clone();
            let thread = std::thread::Builder::new().name("log-limits".to_owned());
            state.has_thread = thread.spawn(move || limits.keep_telling()).is_ok();
        }
        if !is_taken {
            self.shared.left_out.notify_all();
        }
        is_taken
    }

    /// Reports dropped lines from a thread: the next log line may be a long time away.
    fn keep_telling(&self) {
        loop {
            let mut state = self.lock();
            while state.lines.poll_timeout().is_none() {
                let woken = self.shared.left_out.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            std::thread::sleep(TOLD_EVERY);
            self.tell(self.clock.now());
        }
    }

    /// Writes the remaining reports at the end.
    pub fn finish(&self) {
        self.tell(self.clock.now() + TOLD_EVERY);
    }

    fn tell(&self, now: Instant) {
        let mut due = Vec::new();
        let mut state = self.lock();
        while let Some(left_out) = state.lines.poll_left_out(now) {
            due.push(left_out);
        }
        drop(state);
        for (place, count) in due {
            let Place {
                level,
                target,
                line,
            } = place;
            let line = line.unwrap_or_default();
            output::log(
                &level.to_string(),
                target,
                &format!("... and {count} more of this kind (line {line} of the code)"),
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for LogLimits {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() > Level::INFO || self.takes(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    #[test]
    fn of_many_lines_of_a_kind_a_burst_is_written_and_the_others_are_counted() {
        let mut lines = Lines::default();
        let burst = LINES_BURST as usize;
        let written = (0..burst + 900).filter(|_| lines.take(at_ms(5000), &"port_up"));
        assert_eq!(written.count(), burst);
        assert!(lines.take(at_ms(5000), &"switch_up"), "another kind");
        assert_eq!(lines.poll_timeout(), Some(at_ms(6000)));
        assert_eq!(lines.poll_left_out(at_ms(5999)), None);
        assert_eq!(lines.poll_left_out(at_ms(6000)), Some(("port_up", 900)));
        assert_eq!(lines.poll_timeout(), None);
        assert_eq!(lines.poll_left_out(at_ms(9000)), None);
        lines.leave_out(at_ms(9000), &"port_up", 5);
        lines.leave_out(at_ms(9001), &"port_up", 6);
        assert_eq!(lines.poll_left_out(at_ms(10_000)), Some(("port_up", 11)));
    }

    /// 2,000 ports that flap wrote 46 GB a day.
    #[test]
    fn a_flood_of_an_hour_writes_ten_lines_a_second() {
        let mut lines = Lines::default();
        let (mut written, mut told, mut counted) = (0, 0, 0);
        for ms in 0..3_600_000 {
            written += u64::from(lines.take(at_ms(ms), &"port_down"));
            while let Some((_, count)) = lines.poll_left_out(at_ms(ms)) {
                (told, counted) = (told + 1, counted + count);
            }
        }
        let rest = lines.poll_left_out(at_ms(3_700_000)).map_or(0, |(_, n)| n);
        assert_eq!(written + counted + rest, 3_600_000, "each one is told of");
        assert!(written <= 1000 + 36_000, "{written}");
        assert!(told <= 3_600, "{told}");
    }

    #[test]
    fn few_lines_are_all_written() {
        let mut lines = Lines::default();
        assert!((0..100_000).all(|n| lines.take(at_ms(n * 100), &"link_up")));
        assert_eq!(lines.poll_timeout(), None);
    }
}
