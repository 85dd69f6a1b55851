//! Disciplines that choose the next queue, behind one trait.

mod drr;
mod edf;
mod hierarchy;
mod min_rate;
mod strict;
mod wfq;

use std::fmt::Debug;

use clock::Instant;

pub use super::classes::Head;
use crate::policy::{Algorithm, QUEUES_MAX, Scheduling};

/// Chooses among queues. A discipline sees when a queue begins to wait, and which queue each
/// message is charged to. It allocates nothing.
pub trait Discipline: Debug + Send {
    /// Notes that `queue` had nothing to send and has a message now.
    fn backlogged(&mut self, queue: usize);

    /// Notes that `queue` had something to send and has nothing now, or may not send.
    fn idle(&mut self, queue: usize);

    /// Returns the queue whose turn it is, among those whose bit is set in `backlogged`: at least
    /// one. The bit of a queue that is held back is not set, although the queue has not become
    /// idle. The queue picked need not be served.
    fn pick(&mut self, now: Instant, backlogged: u16, head: &dyn Fn(usize) -> Head) -> usize;

    /// Charges `queue`, which was picked last, for `bytes` sent in its turn. They may be from
    /// another queue, if an urgent message had to follow them.
    fn served(&mut self, now: Instant, queue: usize, bytes: u32);
}

/// The discipline that `scheduling` names.
pub(super) fn discipline_of(scheduling: &Scheduling) -> Box<dyn Discipline> {
    match scheduling.algorithm {
        // FIFO has only one queue.
        Algorithm::Fifo | Algorithm::Strict => Box::new(strict::Strict),
        Algorithm::Wfq => Box::new(wfq::Wfq::new(scheduling)),
        Algorithm::Drr => Box::new(drr::Drr::new(scheduling)),
        Algorithm::MinRate => Box::new(min_rate::MinRate::new(scheduling)),
        Algorithm::Edf => Box::new(edf::Edf::new(scheduling)),
        Algorithm::Hierarchy => Box::new(hierarchy::Hierarchy::new(scheduling)),
    }
}

/// One figure of each queue, for a discipline's state.
fn by_queue<V: Copy + Default>(
    scheduling: &Scheduling,
    figure: impl Fn(&crate::policy::QueueConfig) -> V,
) -> [V; QUEUES_MAX] {
    let mut figures = [V::default(); QUEUES_MAX];
    for (at, queue) in figures.iter_mut().zip(&scheduling.queues) {
        *at = figure(queue);
    }
    figures
}

/// The queues whose bit is set, most urgent first.
pub(super) fn queues_in(mut bits: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let queue = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (queue < QUEUES_MAX).then_some(queue)
    })
}
