//! Rates of ports, from counters that are read only while somebody watches.
//!
//! | what | bound |
//! | --- | --- |
//! | rounds | one each [`PERIOD`], or longer: [`PER_SECOND_MAX`] switches a second |
//! | questions at one time | [`BATCHES_MAX`] batches of [`AT_ONCE`] |
//! | time of a switch to answer | [`ANSWER_MAX`] |
//! | ports that are kept | [`PORTS_MAX`], none when nobody watches |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Instant;
use control::controller::Location;
use control::controller::questions::{Answered, QuestionId};
use openflow::multipart::{PortStats, ReplyBody, RequestBody};
use openflow::{DatapathId, PortNo};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use utoipa::ToSchema;

use super::Api;
use super::state::ASK_MAX;

const PERIOD: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 32;
/// Batches under way: a few switches that do not answer hold up no others.
const BATCHES_MAX: usize = 4;
const PER_SECOND_MAX: u32 = 1000;
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Between two looks for answers.
const LOOK: Duration = Duration::from_millis(20);
const PORTS_MAX: usize = 262_144;
/// How long after a question for the topology counters are read.
const WANTED_FOR: Duration = Duration::from_secs(10);
/// Rates of a port that was not read for so long, or for three rounds, are not known.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Two readings that are closer give no rate.
const APART_MIN: f64 = 0.1;

/// The traffic of a port.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct PortRates {
    /// Bits per second that come in from the port.
    pub rx_bps: f64,
    pub tx_bps: f64,
    /// Packets per second.
    pub rx_pps: f64,
    pub tx_pps: f64,
    /// Errors per second, of both directions.
    pub errors_ps: f64,
    /// Dropped packets per second, of both directions.
    pub drops_ps: f64,
}

/// Counters of a port at one time. `None`: the switch does not count that.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    at: Instant,
    /// The time that the port has been up, by its switch's clock.
    age_s: f64,
    counters: [Option<u64>; 6],
}

#[derive(Clone, Copy)]
struct Sample {
    last: Reading,
    rates: Option<PortRates>,
}

/// The rates of one moment.
#[derive(Default)]
pub struct Rated {
    rates: BTreeMap<Location, PortRates>,
    /// Seconds since the last reading.
    pub age_s: Option<f64>,
}

impl Rated {
    pub fn of(&self, at: Location) -> Option<PortRates> {
        self.rates.get(&at).copied()
    }
}

/// The watchers, and the readings.
#[derive(Default)]
pub struct Rates {
    watchers: AtomicUsize,
    is_running: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted_until: Option<Instant>,
    samples: BTreeMap<Location, Sample>,
    read_at: Option<Instant>,
    /// The time that the last round has taken.
    round: Duration,
}

/// Counters are read for as long as it is held.
pub struct Watcher(Arc<Rates>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Rates {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self, now: Instant) -> bool {
        let until = self.state().wanted_until;
        self.watchers.load(Ordering::Relaxed) > 0 || until.is_some_and(|until| now < until)
    }
}

impl Reading {
    fn new(now: Instant, row: &PortStats) -> Reading {
        let counted = |counter: u64| (counter != u64::MAX).then_some(counter);
        let both = |a: u64, b: u64| Some(counted(a)?.wrapping_add(counted(b)?));
        Reading {
            at: now,
            age_s: f64::from(row.duration_sec) + f64::from(row.duration_nsec) / 1e9,
            counters: [
                counted(row.rx_bytes),
                counted(row.tx_bytes),
                counted(row.rx_packets),
                counted(row.tx_packets),
                both(row.rx_errors, row.tx_errors),
                both(row.rx_dropped, row.tx_dropped),
            ],
        }
    }

    /// The rates since an earlier reading; `None` if they cannot be known.
    fn since(&self, before: &Reading) -> Option<PortRates> {
        // The switch's clock says when it counted; ours, when the answer came.
        let by_switch = self.age_s - before.age_s;
        let by_us = self.at.since(before.at).as_secs_f64();
        let seconds = match before.age_s > 0.0 && by_switch > 0.0 {
            true => by_switch,
            false => by_us,
        };
        if seconds < APART_MIN {
            return None;
        }
        let per_second = |n: usize| {
            let counted = self.counters[n]?.checked_sub(before.counters[n]?)?;
            Some(counted as f64 / seconds)
        };
        let tenths = |n: usize| per_second(n).map_or(0.0, |rate| (rate * 10.0).round() / 10.0);
        Some(PortRates {
            rx_bps: (per_second(0)? * 8.0).round(),
            tx_bps: (per_second(1)? * 8.0).round(),
            rx_pps: tenths(2),
            tx_pps: tenths(3),
            errors_ps: tenths(4),
            drops_ps: tenths(5),
        })
    }
}

impl State {
    fn note(&mut self, now: Instant, dpid: DatapathId, rows: &[PortStats]) {
        self.read_at = Some(now);
        for row in rows.iter().filter(|row| row.port_no.is_ordinary()) {
            let port = row.port_no;
            let at = Location { dpid, port };
            let last = Reading::new(now, row);
            let before = self.samples.get(&at);
            if before.is_none() && self.samples.len() >= PORTS_MAX {
                continue;
            }
            let rates = before.and_then(|before| last.since(&before.last));
            self.samples.insert(at, Sample { last, rates });
        }
    }

    fn rated(&self, now: Instant) -> Rated {
        let known = self.samples.iter();
        let known_for = self.known_for();
        let known = known.filter(|(_, sample)| now.since(sample.last.at) < known_for);
        Rated {
            rates: known.filter_map(|(at, s)| Some((*at, s.rates?))).collect(),
            age_s: self.read_at.map(|at| now.since(at).as_secs_f64()),
        }
    }

    fn known_for(&self) -> Duration {
        KNOWN_FOR.max(self.round * 3)
    }

    fn end_round(&mut self, begun: Instant, ended: Instant) {
        self.round = ended.since(begun);
        self.forget_old(ended);
    }

    fn forget_old(&mut self, now: Instant) {
        let known_for = self.known_for();
        self.samples
            .retain(|_, sample| now.since(sample.last.at) < known_for);
    }
}

impl Api {
    /// The rates that are known.
    pub fn rated(&self) -> Rated {
        self.reads.rates.state().rated(self.clock.now())
    }

    /// Has counters read for a while.
    pub fn want_rates(&self) {
        let until = self.clock.now() + WANTED_FOR;
        self.reads.rates.state().wanted_until = Some(until);
        self.read_counters();
    }

    /// Has counters read for as long as the answer is held.
    pub fn watch_rates(&self) -> Watcher {
        let rates = self.reads.rates.clone();
        rates.watchers.fetch_add(1, Ordering::Relaxed);
        self.read_counters();
        Watcher(rates)
    }

    /// Starts the task that reads them, unless there is one.
    fn read_counters(&self) {
        if self.reads.rates.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let api = self.clone();
        tokio::spawn(async move {
            let rates = api.reads.rates.clone();
            while rates.is_wanted(api.clock.now()) {
                let begun = api.clock.now();
                api.round().await;
                let ended = api.clock.now();
                rates.state().end_round(begun, ended);
                sleep((begun + PERIOD).since(api.clock.now())).await;
            }
            let mut state = rates.state();
            (state.samples, state.read_at) = (BTreeMap::new(), None);
            rates.is_running.store(false, Ordering::Release);
            drop(state);
            // Somebody may have come meanwhile, and seen it running.
            if rates.is_wanted(api.clock.now()) {
                api.read_counters();
            }
        });
    }

    /// Asks every switch once, some at a time, spread over the period.
    async fn round(&self) {
        let asked = self.driver.ask(|controller| controller.switches());
        let switches = timeout(ASK_MAX, asked).await.ok().flatten();
        let switches = switches.unwrap_or_default().into_iter();
        let up = switches.filter(|switch| switch.connection.is_some());
        let dpids: Vec<DatapathId> = up.map(|switch| switch.dpid).collect();
        let batches = dpids.len().div_ceil(AT_ONCE).max(1) as u32;
        let pause =
            (PERIOD / 2 / batches).max(Duration::from_secs(1) * AT_ONCE as u32 / PER_SECOND_MAX);
        let mut under_way = JoinSet::new();
        for batch in dpids.chunks(AT_ONCE) {
            if under_way.len() >= BATCHES_MAX {
                under_way.join_next().await;
            }
            let (api, batch) = (self.clone(), batch.to_vec());
            under_way.spawn(async move { api.read_ports(batch).await });
            if batches > 1 {
                sleep(pause).await;
            }
        }
        under_way.join_all().await;
    }

    async fn read_ports(&self, dpids: Vec<DatapathId>) {
        let begun = self.clock.now();
        let asked = self.driver.ask(move |controller| {
            let ask = |dpid: DatapathId| {
                let body = RequestBody::PortStats(PortNo::ANY);
                Some((dpid, controller.ask_switch(begun, dpid, body).ok()?))
            };
            dpids.into_iter().filter_map(ask).collect::<Vec<_>>()
        });
        let asked = timeout(ASK_MAX, asked).await.ok().flatten();
        let mut open: Vec<(DatapathId, QuestionId)> = asked.unwrap_or_default();
        while !open.is_empty() && self.clock.now().since(begun) < ANSWER_MAX {
            sleep(LOOK).await;
            let looked = open.clone();
            let replies = self.driver.ask(move |controller| {
                let replies = looked.iter().map(|(_, id)| controller.take_reply(*id));
                replies.collect::<Vec<_>>()
            });
            let Ok(Some(replies)) = timeout(ASK_MAX, replies).await else {
                continue;
            };
            let now = self.clock.now();
            let mut state = self.reads.rates.state();
            let mut replies = replies.into_iter();
            open.retain(|(dpid, _)| match replies.next().flatten() {
                None => true,
                Some(Answered::Whole(bodies)) => {
                    state.note(now, *dpid, &rows(bodies));
                    false
                }
                Some(_) => false,
            });
        }
        if !open.is_empty() {
            let dropped = self.driver.ask(move |controller| {
                open.iter()
                    .for_each(|(_, id)| controller.drop_question(*id));
            });
            let _ = timeout(ASK_MAX, dropped).await;
        }
    }
}

fn rows(bodies: Vec<ReplyBody>) -> Vec<PortStats> {
    let rows = bodies.into_iter().filter_map(|body| match body {
        ReplyBody::PortStats(rows) => Some(rows),
        _ => None,
    });
    rows.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, age_s: u32) -> PortStats {
        PortStats {
            port_no: PortNo(1),
            rx_packets: 0,
            tx_packets: 0,
            rx_bytes: bytes,
            tx_bytes: bytes.saturating_mul(2),
            rx_dropped: 0,
            tx_dropped: 0,
            rx_errors: 0,
            tx_errors: 0,
            rx_frame_err: 0,
            rx_over_err: 0,
            rx_crc_err: 0,
            collisions: 0,
            duration_sec: age_s,
            duration_nsec: 0,
        }
    }

    fn at_s(s: u64) -> Instant {
        Instant::START + Duration::from_secs(s)
    }

    const DPID: DatapathId = DatapathId(1);
    const AT: Location = Location {
        dpid: DPID,
        port: PortNo(1),
    };

    #[test]
    fn two_readings_make_a_rate_by_the_clock_of_the_switch() {
        let mut state = State::default();
        state.note(at_s(1), DPID, &[row(1000, 10)]);
        assert_eq!(state.rated(at_s(1)).of(AT), None, "one is none");
        // The second answer was late: the switch counted for two seconds.
        state.note(at_s(6), DPID, &[row(3000, 12)]);
        let rates = state.rated(at_s(6)).of(AT).unwrap();
        assert_eq!((rates.rx_bps, rates.tx_bps), (8000.0, 16_000.0));
        assert_eq!(state.rated(at_s(7)).age_s, Some(1.0));
        assert_eq!(state.rated(at_s(16)).of(AT), None, "too old");
    }

    #[test]
    fn rates_stay_known_for_three_rounds_however_long_those_are() {
        let mut state = State::default();
        state.note(at_s(1), DPID, &[row(1000, 10)]);
        state.end_round(at_s(0), at_s(12));
        state.note(at_s(13), DPID, &[row(3000, 22)]);
        assert!(state.rated(at_s(30)).of(AT).is_some());
        assert_eq!(state.rated(at_s(49)).of(AT), None);
    }

    #[test]
    fn what_began_anew_or_is_not_counted_has_no_rate() {
        for second in [row(10, 12), row(u64::MAX, 12)] {
            let mut state = State::default();
            state.note(at_s(1), DPID, &[row(1000, 10)]);
            state.note(at_s(3), DPID, &[second]);
            assert_eq!(state.rated(at_s(3)).of(AT), None);
        }
        // A switch without a clock of its own is measured by ours.
        let mut state = State::default();
        state.note(at_s(1), DPID, &[row(1000, 0)]);
        state.note(at_s(5), DPID, &[row(3000, 0)]);
        assert_eq!(state.rated(at_s(5)).of(AT).unwrap().rx_bps, 4000.0);
    }
}
