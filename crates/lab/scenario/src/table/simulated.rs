//! The same traces through the simulator's table, under the same policies.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clock::Duration;
use sim::table::Setup;

use crate::table::settings::Settings;
use crate::table::stage::Place;

/// One way between switch and controller, as in the simulator's own scenarios.
const DELAY: Duration = Duration::from_millis(1);
const FLOWS_MAX: u32 = 100_000_000;

/// Misses per flow, for each of the places.
pub fn misses_per_flow(settings: &Settings, places: &[Place]) -> Vec<f64> {
    // Networks differ and the simulator's one switch does not.
    let key = |place: &Place| {
        let entries = settings.cells[place.cells].entries;
        (entries, place.load.to_bits(), place.policy, place.round)
    };
    let jobs: BTreeMap<_, Place> = places.iter().map(|place| (key(place), *place)).collect();
    let jobs: Vec<_> = jobs.into_iter().collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some((key, place)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let misses = one(settings, place);
            done.lock()
                .expect("no thread has panicked")
                .insert(*key, misses);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let done = done.into_inner().expect("likewise");
    places.iter().map(|place| done[&key(place)]).collect()
}

fn one(settings: &Settings, place: &Place) -> f64 {
    let (cells, policy) = (
        &settings.cells[place.cells],
        &settings.policies[place.policy],
    );
    let setup = Setup {
        policy: policy.simulated.policy(),
        capacity: cells.entries,
        traffic: settings.traffic(cells, place.load),
        delay: DELAY,
        duration: Duration::from_secs_f64(settings.seconds),
        flows_max: FLOWS_MAX,
    };
    let outcome = setup.run(settings.seed_of(place.round));
    outcome.misses as f64 / outcome.flows.max(1) as f64
}
