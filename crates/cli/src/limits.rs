//! Limits the number of lines of one kind: peers cause most lines, and could fill a disk.
//!
//! A kind is an event of `auster run`, or a place in the code that logs. Each kind has its own
//! budget, so a noisy kind hides no other. Within a kind, each named peer has its own budget too,
//! so a noisy switch hides no other. Lines beyond the budgets are counted. The counts are reported,
//! at first a second later and then ever less often. A peer that does its worst for a day causes
//! some 100 KB of a kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
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
/// Lines of a kind by all named peers together, on average: some 10 MB a day.
pub const LINES_PER_S: u32 = 1;
/// Lines of a kind that one peer may cause at once.
pub const PEER_LINES_BURST: u32 = 100;
/// After that, a peer has one line in this time. So does a kind whose lines name no peer.
pub const LINE_EVERY: Duration = Duration::from_secs(120);
/// Time from the first line that is left out to the line that reports it.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);
/// While lines are left out again and again, that time doubles up to this value.
pub const REPORT_EVERY_MAX: Duration = Duration::from_secs(600);
/// Maximum number of peers with a budget of their own. Other peers share one for each kind.
pub const PEERS_MAX: usize = 4096;
/// The minimum time between two searches for peers that no longer need their budgets.
const SEARCH_EVERY: Duration = Duration::from_secs(60);

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// The number of lines that were left out since the start.
pub fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Some lines at once, and then one every [`LINE_EVERY`].
#[derive(Debug)]
struct Slow(Budget);

impl Slow {
    /// The cost of a line in a bucket that gains a token a second: the seconds from one line to the
    /// next.
    const COST: u32 = LINE_EVERY.as_secs() as u32;

    fn new(now: Instant, burst: u32) -> Slow {
        Slow(Budget::new(now, 1, burst * Slow::COST))
    }

    fn take(&mut self, now: Instant) -> bool {
        self.0.take_many(now, Slow::COST)
    }

    /// Whether this budget is in the same state as a new one.
    fn is_full(&mut self, now: Instant, burst: u32) -> bool {
        self.0.has(now, burst * Slow::COST)
    }
}

/// Lines of one kind.
#[derive(Debug)]
struct Line {
    /// For lines that name a peer.
    of_peers: Budget,
    /// For lines that name no peer.
    nameless: Slow,
    left_out: u64,
    /// The time at which the dropped lines are reported.
    due: Instant,
    reported_at: Option<Instant>,
    report_every: Duration,
}

impl Line {
    fn new(now: Instant) -> Line {
        Line {
            of_peers: Budget::new(now, LINES_PER_S, LINES_BURST),
            nameless: Slow::new(now, LINES_BURST),
            left_out: 0,
            due: now,
            reported_at: None,
            report_every: REPORT_EVERY,
        }
    }

    fn leave_out(&mut self, now: Instant, count: u64) {
        if self.left_out == 0 {
            let is_quiet = |reported: Instant| now.since(reported) >= REPORT_EVERY_MAX;
            if self.reported_at.is_some_and(is_quiet) {
                self.report_every = REPORT_EVERY;
            }
            self.due = now + self.report_every;
        }
        self.left_out += count;
        LEFT_OUT.fetch_add(count, Ordering::Relaxed);
    }

    fn poll_left_out(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.left_out > 0 && self.due <= now;
        if !is_due {
            return None;
        }
        self.reported_at = Some(now);
        self.report_every = (self.report_every * 2).min(REPORT_EVERY_MAX);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Lines by kind. Kinds are names or places in the code, so there are not many.
#[derive(Debug)]
pub struct Lines<K> {
    kinds: BTreeMap<K, Line>,
    /// The budgets of peers; the empty name stands for peers without one.
    peers: BTreeMap<(K, String), Slow>,
    searched_at: Option<Instant>,
}

impl<K> Default for Lines<K> {
    fn default() -> Lines<K> {
        Lines {
            kinds: BTreeMap::new(),
            peers: BTreeMap::new(),
            searched_at: None,
        }
    }
}

impl<K: Ord + Clone> Lines<K> {
    /// Whether one more line of `kind` is written; otherwise the line is counted. `peer` is the
    /// peer that caused it, if the line names one.
    pub fn take(&mut self, now: Instant, kind: &K, peer: Option<&str>) -> bool {
        let has_peers_line = match peer {
            Some(peer) => self.of_peer(now, kind, peer).take(now),
            None => true,
        };
        let line = self.of(now, kind);
        let is_written = has_peers_line
            && match peer {
                Some(_) => line.of_peers.take(now),
                None => line.nameless.take(now),
            };
        if !is_written {
            line.leave_out(now, 1);
        }
        is_written
    }

    /// Counts `count` more lines of `kind` that are left out without a call of [`Lines::take`].
    pub fn leave_out(&mut self, now: Instant, kind: &K, count: u64) {
        self.of(now, kind).leave_out(now, count);
    }

    /// The time at which [`Lines::poll_left_out`] has its next line.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lines = self.kinds.values().filter(|line| line.left_out > 0);
        lines.map(|line| line.due).min()
    }

    /// A kind, and the number of its lines dropped since the last report.
    pub fn poll_left_out(&mut self, now: Instant) -> Option<(K, u64)> {
        self.kinds.iter_mut().find_map(|(kind, line)| {
            let count = line.poll_left_out(now)?;
            Some((kind.clone(), count))
        })
    }

    fn of(&mut self, now: Instant, kind: &K) -> &mut Line {
        self.kinds
            .entry(kind.clone())
            .or_insert_with(|| Line::new(now))
    }

    fn of_peer(&mut self, now: Instant, kind: &K, peer: &str) -> &mut Slow {
        let mut key = (kind.clone(), peer.to_owned());
        if !self.peers.contains_key(&key) && self.peers.len() >= PEERS_MAX {
            self.forget_quiet_peers(now);
            if self.peers.len() >= PEERS_MAX {
                key.1.clear();
            }
        }
        let slow = self.peers.entry(key);
        slow.or_insert_with(|| Slow::new(now, PEER_LINES_BURST))
    }

    fn forget_quiet_peers(&mut self, now: Instant) {
        let is_recent = |at: Instant| now.since(at) < SEARCH_EVERY;
        if self.searched_at.is_some_and(is_recent) {
            return;
        }
        self.searched_at = Some(now);
        self.peers
            .retain(|_, slow| !slow.is_full(now, PEER_LINES_BURST));
    }
}

/// The limits of the log: each place that logs an error, a warning or information has its own
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
        let is_taken = state.lines.take(self.clock.now(), &place, None);
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
            std::thread::sleep(REPORT_EVERY);
            self.tell(self.clock.now());
        }
    }

    /// Writes the remaining reports at the end.
    pub fn finish(&self) {
        self.tell(self.clock.now() + REPORT_EVERY_MAX);
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
        let written = (0..burst + 900).filter(|_| lines.take(at_ms(5000), &"port_up", None));
        assert_eq!(written.count(), burst);
        assert!(lines.take(at_ms(5000), &"switch_up", None), "another kind");
        assert_eq!(lines.poll_timeout(), Some(at_ms(6000)));
        assert_eq!(lines.poll_left_out(at_ms(5999)), None);
        assert_eq!(lines.poll_left_out(at_ms(6000)), Some(("port_up", 900)));
        assert_eq!(lines.poll_timeout(), None);
        assert_eq!(lines.poll_left_out(at_ms(9000)), None);
        lines.leave_out(at_ms(9000), &"port_up", 5);
        lines.leave_out(at_ms(9001), &"port_up", 6);
        assert_eq!(lines.poll_left_out(at_ms(10_000)), None, "less often now");
        assert_eq!(lines.poll_left_out(at_ms(11_000)), Some(("port_up", 11)));
        // Ten minutes later it is reported soon again.
        lines.leave_out(at_ms(700_000), &"port_up", 1);
        assert_eq!(lines.poll_left_out(at_ms(701_000)), Some(("port_up", 1)));
    }

    #[test]
    fn a_noisy_peer_hides_no_other() {
        let mut lines = Lines::default();
        let burst = PEER_LINES_BURST as usize;
        let noisy = (0..5000).filter(|_| lines.take(at_ms(0), &"port_up", Some("7")));
        assert_eq!(noisy.count(), burst);
        assert!(lines.take(at_ms(0), &"port_up", Some("8")));
        assert!(!lines.take(at_ms(119_999), &"port_up", Some("7")));
        assert!(lines.take(at_ms(120_000), &"port_up", Some("7")));
    }

    #[test]
    fn the_peers_that_are_known_are_bounded_and_strangers_share_what_is_left() {
        let mut lines = Lines::default();
        for n in 0..20_000 {
            lines.take(at_ms(n), &"refused", Some(&n.to_string()));
        }
        assert!(lines.peers.len() <= PEERS_MAX + 1, "{}", lines.peers.len());
        // Quiet ones make room.
        assert!(lines.take(at_ms(1_000_000), &"refused", Some("new")));
        assert!(lines.peers.len() < 10, "{}", lines.peers.len());
    }

    /// 2,000 ports that flap wrote 46 GB a day, and a duplicate that is refused for ever 18 GB.
    #[test]
    fn a_day_of_a_peer_that_does_its_worst_is_less_than_a_megabyte() {
        let mut lines = Lines::default();
        let (mut bytes, mut written, mut counted) = (0, 0, 0);
        let day_s = 86_400;
        let kinds = ["port_up", "port_down", "refused"];
        for s in 0..day_s {
            for n in 0..10_u64 {
                let now = at_ms(s * 1000 + n * 100);
                for kind in kinds {
                    let port = (s * 10 + n) % 2000;
                    if lines.take(now, &kind, Some("0000000000000007")) {
                        let line =
                            format!(r#"{{"event":"{kind}","port":"0000000000000007:{port}","#,);
                        bytes += line.len() + r#""time_s":1793000000.1234567}"#.len() + 1;
                        written += 1;
                    }
                }
                while let Some((kind, count)) = lines.poll_left_out(now) {
                    let line = format!(
                        r#"{{"event":"left_out","kind":"{kind}","count":{count},"time_s":1.7e9}}"#
                    );
                    bytes += line.len() + 10;
                    counted += count;
                }
            }
        }
        let end = at_ms((day_s + 1000) * 1000);
        while let Some((_, count)) = lines.poll_left_out(end) {
            counted += count;
        }
        assert_eq!(written + counted, kinds.len() as u64 * day_s * 10);
        assert!(bytes < 400_000, "{bytes} bytes of {} kinds", kinds.len());
    }

    #[test]
    fn few_lines_are_all_written() {
        let mut lines = Lines::default();
        let every = LINE_EVERY.as_millis() as u64;
        for peer in [None, Some("7")] {
            assert!((0..10_000).all(|n| lines.take(at_ms(n * every), &"link_up", peer)));
        }
        assert_eq!(lines.poll_timeout(), None);
    }
}
