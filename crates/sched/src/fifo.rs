//! A first-in first-out queue with a bound in messages and one in bytes.

use std::collections::VecDeque;

/// Messages that wait, each with its size.
#[derive(Debug)]
pub struct Fifo<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    len_max: usize,
    bytes_max: usize,
}

impl<T> Fifo<T> {
    /// A queue that takes `len_max` messages of `bytes_max` bytes together.
    pub fn new(len_max: usize, bytes_max: usize) -> Fifo<T> {
        Fifo {
            items: VecDeque::new(),
            bytes: 0,
            len_max,
            bytes_max,
        }
    }

    /// Queues `item`, or gives it back when it does not fit.
    ///
    /// An empty queue takes any item: one message larger than the bound must still pass.
    pub fn push(&mut self, bytes: usize, item: T) -> Result<(), T> {
        let fits = self.items.len() < self.len_max && self.bytes + bytes <= self.bytes_max;
        if !fits && !self.items.is_empty() {
            return Err(item);
        }
        self.bytes += bytes;
        self.items.push_back((bytes, item));
        Ok(())
    }

    pub fn pop(&mut self) -> Option<T> {
        let (bytes, item) = self.items.pop_front()?;
        self.bytes -= bytes;
        Some(item)
    }

    pub fn front(&self) -> Option<&T> {
        self.items.front().map(|(_, item)| item)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of everything that waits.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_the_message_back_and_an_empty_one_takes_any() {
        let mut fifo = Fifo::new(2, 10);
        assert_eq!(
            fifo.push(64, 'a'),
            Ok(()),
            "larger than the bound, but alone"
        );
        assert_eq!(fifo.push(1, 'b'), Err('b'));
        assert_eq!(fifo.pop(), Some('a'));
        assert_eq!(fifo.push(5, 'c'), Ok(()));
        assert_eq!(fifo.push(5, 'd'), Ok(()));
        assert_eq!(fifo.push(0, 'e'), Err('e'), "two messages are the bound");
        assert_eq!((fifo.len(), fifo.bytes()), (2, 10));
        assert_eq!(
            (fifo.pop(), fifo.pop(), fifo.pop()),
            (Some('c'), Some('d'), None)
        );
        assert_eq!(fifo.bytes(), 0);
    }
}
