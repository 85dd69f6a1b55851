//! Strict priority: the most urgent queue that has a message goes first. It can starve the queues
//! below.

use clock::Instant;

use super::{Discipline, Head};

#[derive(Debug)]
pub(super) struct Strict;

impl Discipline for Strict {
    fn backlogged(&mut self, _: usize) {}

    fn idle(&mut self, _: usize) {}

    fn pick(&mut self, _: Instant, backlogged: u16, _: &dyn Fn(usize) -> Head) -> usize {
        backlogged.trailing_zeros() as usize
    }

    fn served(&mut self, _: Instant, _: usize, _: u32) {}
}
