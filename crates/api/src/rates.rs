//! Rates of ports, from counters that are read only while a client watches.
//!
//! | what | bound |
//! | --- | --- |
//! | rounds | one each [`PERIOD`], or as long as reading takes ([`counters`]) |
//! | ports that are kept | [`PORTS_MAX`], none when nobody watches |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Instant;
use control::controller::Location;
use openflow::DatapathId;
use openflow::multipart::PortStats;
use serde::Serialize;
use tokio::time::sleep;
use utoipa::ToSchema;

use super::Api;
use crate::counters;

const PERIOD: Duration = Duration::from_secs(2);
const PORTS_MAX: usize = 262_144;
/// The time for which counters are read after a question for the topology.
const WANTED_FOR: Duration = Duration::from_secs(10);
/// Rates of a port are unknown if it was not read for this long, or for three rounds.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Two readings closer than this give no rate.
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

/// Counters of a port at one time; `None` if the switch does not count that.
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

/// A watcher: counters are read for as long as it is held.
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
        // The switch's clock shows when it counted; ours shows when the answer arrived.
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

    /// Makes sure that counters are read for a while.
    pub fn want_rates(&self) {
        let until = self.clock.now() + WANTED_FOR;
        self.reads.rates.state().wanted_until = Some(until);
        self.read_counters();
    }

    /// Makes sure that counters are read for as long as the returned watcher is held.
    pub fn watch_rates(&self) -> Watcher {
        let rates = self.reads.rates.clone();
        rates.watchers.fetch_add(1, Ordering::Relaxed);
        self.read_counters();
        Watcher(rates)
    }

    /// Starts the task that reads the counters, unless it runs already.
    fn read_counters(&self) {
        if self.reads.rates.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let api = self.clone();
        tokio::spawn(async move {
            let rates = api.reads.rates.clone();
            while rates.is_wanted(api.clock.now()) {
                let begun = api.clock.now();
                let read = rates.clone();
                let note = move |now: Instant, dpid: DatapathId, rows: &[PortStats]| {
                    read.state().note(now, dpid, rows);
                };
                counters::read_all(&api.driver, api.clock, note).await;
                let ended = api.clock.now();
                rates.state().end_round(begun, ended);
                sleep((begun + PERIOD).since(api.clock.now())).await;
            }
            let mut state = rates.state();
            (state.samples, state.read_at) = (BTreeMap::new(), None);
            rates.is_running.store(false, Ordering::Release);
            drop(state);
            // A watcher may have been added meanwhile, and seen the task running.
            if rates.is_wanted(api.clock.now()) {
                api.read_counters();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;

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
            properties: Vec::new(),
        }
    }

    fn at_s(s: u64) -> Instant {
        Instant::START + Duration::from_secs(s)
    }

    const DPID: DatapathId = DatapathId(1);
    const AT: Location = Location::new(DPID, PortNo(1));

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
