//! The same work for many items, on several threads, and the results of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::ScopedJoinHandle;

/// Does `work` for each item, on at most this many threads, and returns the results in the order of
/// the items. `told` receives each result as soon as it is ready, with the number of results so
/// far. No item is started once `is_over` is true; such an item has no result.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    is_over: impl Fn() -> bool + Sync,
    work: impl Fn(&T) -> R + Sync,
    mut told: impl FnMut(usize, &R),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let (results_in, finished) = mpsc::channel();
        for _ in 0..threads.min(items.len()) {
            let (results_in, next, is_over, work) = (results_in.clone(), &next, &is_over, &work);
            scope.spawn(move || {
                while !is_over() {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { return };
                    // The receiver exists until all threads have ended.
                    let _ = results_in.send((place, work(item)));
                }
            });
        }
        drop(results_in);
        for (count, (place, result)) in (1..).zip(finished) {
            told(count, &result);
            results[place] = Some(result);
        }
    });
    results.into_iter().flatten().collect()
}

/// Does `work` for all items at once, each on a thread of its own.
pub fn at_once<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let begin = |item| scope.spawn(move || work(item));
        // All have begun before the first is waited for.
        let threads: Vec<_> = items.into_iter().map(begin).collect();
        threads.into_iter().map(joined).collect()
    })
}

/// The result of a thread; its panic continues in this one.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let result = thread.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_whoever_was_first() {
        let items: Vec<usize> = (0..100).collect();
        let mut counts = Vec::new();
        let squares = each(
            &items,
            3,
            || false,
            |n| n * n,
            |count, _| counts.push(count),
        );
        assert!(
            squares
                .iter()
                .enumerate()
                .all(|(n, square)| n * n == *square)
        );
        assert_eq!(counts, (1..=100).collect::<Vec<_>>());
        assert_eq!(each(&items, 3, || true, |n| *n, |_, _| ()), [0; 0]);
    }

    #[test]
    fn threads_of_their_own_wait_for_each_other() {
        let all = Barrier::new(5);
        let leaders = at_once(0..5, |_| all.wait().is_leader());
        assert_eq!(leaders.iter().filter(|is_leader| **is_leader).count(), 1);
    }
}
