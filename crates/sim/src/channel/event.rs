//! A queue of events in one total order: by time, then by order of insertion.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use clock::Instant;

/// Future events. Events of equal time are returned in order of insertion, so a run is the same on
/// any machine.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    count: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    number: u64,
    event: E,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            heap: BinaryHeap::new(),
            count: 0,
        }
    }
}

impl<E> EventQueue<E> {
    pub fn push(&mut self, at: Instant, event: E) {
        let number = self.count;
        self.count += 1;
        self.heap.push(Entry { at, number, event });
    }

    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest entry is the greatest: the heap returns the greatest first.
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_equal_times_as_they_went_in() {
        let mut queue = EventQueue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (9, 'f'), (5, 'e'), (1, 'b')] {
            queue.push(Instant(at), event);
        }
        assert_eq!((queue.len(), queue.next_at()), (6, Some(Instant(1))));
        let out: String = std::iter::from_fn(|| queue.pop().map(|(_, e)| e)).collect();
        assert_eq!(out, "abcdef");
        assert!(queue.is_empty());
    }
}
