//! Cells side by side where they do not disturb each other, alone where they would.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::tls::Security;
use serde::Serialize;

use super::cell::{self, CellResult};
use super::grid::Cell;
use cli::interrupt::Interrupt;
use cli::progress::Progress;

/// Set-up, the last acknowledgements, and taking apart.
const AROUND_A_CELL: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(100);

/// The results of all cells, in their order.
#[derive(Default)]
pub struct Outcomes {
    pub results: Vec<CellResult>,
    pub failures: Vec<CellFailure>,
}

/// A cell without figures.
#[derive(Clone, Debug, Serialize)]
pub struct CellFailure {
    pub method: &'static str,
    pub condition: String,
    pub seed: u64,
    pub problem: String,
}

/// Runs all cells, or as many as there is time for until the interrupt.
pub fn run(
    cells: &[Cell],
    places: usize,
    security: &Security,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Outcomes {
    let order = order(cells, places);
    let interrupted = Arc::new(AtomicBool::new(false));
    let (finished, results) = channel();
    let mut waiting = order.iter().copied().peekable();
    let mut running: Vec<(usize, JoinHandle<()>)> = Vec::new();
    let mut outcomes: Vec<(usize, Result<CellResult, String>)> = Vec::new();
    let start = Instant::now();
    loop {
        if interrupt.is_set() {
            interrupted.store(true, Ordering::Relaxed);
        }
        let stopping = interrupted.load(Ordering::Relaxed);
        let taken: usize = running.iter().map(|(n, _)| cells[*n].places(places)).sum();
        let next = waiting.next_if(|n| !stopping && taken + cells[*n].places(places) <= places);
        if let Some(number) = next {
            let cell = Arc::new(cells[number].clone());
            let (security, interrupted) = (security.clone(), interrupted.clone());
            let finished = finished.clone();
            let thread = std::thread::spawn(move || {
                let result = cell::run(&cell, &security, &interrupted);
                let _ = finished.send((number, result));
            });
            running.push((number, thread));
            continue;
        }
        if running.is_empty() {
            break;
        }
        match results.recv_timeout(POLL) {
            Ok((number, result)) => {
                outcomes.extend(result.transpose().map(|result| (number, result)));
                running.retain(|(running, _)| *running != number);
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Cannot happen: this thread has a sender.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let left = waiting.len() + running.len();
        let rest: Vec<usize> = waiting.clone().chain(running.iter().map(|r| r.0)).collect();
        progress.say(format_args!(
            "{} of {} cells, {} running, about {} left, {} s so far",
            cells.len() - left,
            cells.len(),
            running.len(),
            minutes(duration_of(&rest, cells, places)),
            start.elapsed().as_secs()
        ));
    }
    progress.clear();
    outcomes.sort_by_key(|(number, _)| *number);
    let mut all = Outcomes::default();
    for (number, outcome) in outcomes {
        match outcome {
            Ok(result) => all.results.push(result),
            Err(problem) => all.failures.push(CellFailure {
                method: cells[number].method.name,
                condition: cells[number].condition.to_string(),
                seed: cells[number].seed,
                problem,
            }),
        }
    }
    all
}

/// How long all cells take if no message is late.
pub fn duration(cells: &[Cell], places: usize) -> Duration {
    duration_of(&order(cells, places), cells, places)
}

/// `3 min` or `40 s`.
pub fn minutes(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Light cells first, so that those which need the machine follow each other and nothing waits
/// for them between.
fn order(cells: &[Cell], places: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|number| cells[*number].places(places));
    order
}

/// The work of all cells over the places: near enough, with many cells of like length.
fn duration_of(numbers: &[usize], cells: &[Cell], places: usize) -> Duration {
    let share = |number: &usize| {
        let cell = &cells[*number];
        // As many as fit at once: a cell of 3 of 8 places leaves 2 unused.
        let at_once = places / cell.places(places);
        (cell.nominal() + AROUND_A_CELL) / at_once as u32
    };
    numbers.iter().map(share).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::grid::{Choice, Table};

    /// The whole table must be a coffee break and not an afternoon.
    #[test]
    fn the_whole_table_takes_less_than_forty_minutes() {
        let all = Choice {
            tables: Table::PRESETS.to_vec(),
            seeds: 1,
            share: 1.0,
            seed: 1,
            ..Choice::default()
        };
        let cells = all.cells().unwrap();
        let took = duration(&cells, 8);
        assert!(took < Duration::from_secs(35 * 60), "{took:?}");
        assert!(took > Duration::from_secs(5 * 60), "{took:?}");
    }

    #[test]
    fn light_cells_come_first_and_times_are_told_shortly() {
        let choice = Choice {
            tables: vec![Table::Overhead],
            seeds: 1,
            share: 1.0,
            ..Choice::default()
        };
        let cells = choice.cells().unwrap();
        let order = order(&cells, 4);
        assert!(order.is_sorted_by_key(|n| cells[*n].places(4)));
        assert_eq!(order.len(), cells.len());
        assert_eq!(minutes(Duration::from_secs(99)), "99 s");
        assert_eq!(minutes(Duration::from_secs(121)), "3 min");
    }
}
