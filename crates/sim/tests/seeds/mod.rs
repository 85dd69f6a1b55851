//! Random cases by seed, on all cores.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `case` for each seed of the range in the environment's `variable`, such as `0..1000`, or
/// else of `otherwise`. The second argument of the case is whether its seed is the only one. Panics
/// with all failed seeds; each prints its reason when it fails.
pub fn run_all<E: Display>(
    variable: &str,
    otherwise: impl Iterator<Item = u64>,
    case: impl Fn(u64, bool) -> Result<(), E> + Sync,
) {
    let range = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some((from.parse().ok()?..to.parse().ok()?).collect())
    };
    let seeds: Vec<u64> = match std::env::var(variable) {
        Ok(text) => range(text).unwrap_or_else(|| panic!("{variable} is like 0..1000")),
        Err(_) => otherwise.collect(),
    };
    let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism());
    let work = || {
        let mut failed = Vec::new();
        loop {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() else {
                return failed;
            };
            if let Err(why) = case(seed, seeds.len() == 1) {
                println!("{variable}={seed}..{}: {why}", seed + 1);
                failed.push(seed);
            }
        }
    };
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.map_or(1, usize::from))
            .map(|_| scope.spawn(work))
            .collect();
        let failed = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"));
        failed.flatten().collect::<Vec<u64>>()
    });
    assert!(
        failed.is_empty(),
        "{} of {} seeds failed: {failed:?}",
        failed.len(),
        seeds.len()
    );
}
