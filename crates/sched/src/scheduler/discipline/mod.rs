//! Which queue is next: the disciplines, behind one trait.

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

/// Chooses among queues. It sees when a queue begins to wait and what is sent at whose expense,
/// and it allocates nothing.
pub trait Discipline: Debug + Send {
    /// `queue` had nothing to send and has now.
    fn backlogged(&mut self, queue: usize);

    /// `queue` had something to send and has nothing now, or may not.
    fn idle(&mut self, queue: usize);

    /// The queue whose turn it is, of those whose bit is set in `backlogged`: one at least. A
    /// queue that is held back is not among them, without having become idle. What is picked need
    /// not be served.
    fn pick(&mut self, now: Instant, backlogged: u16, head: &dyn Fn(usize) -> Head) -> usize;

    /// `bytes` were sent in the turn of `queue`, which was picked last. They may be of another
    /// queue, if something urgent had to follow them.
    fn served(&mut self, now: Instant, queue: usize, bytes: u32);
}

/// The discipline that `scheduling` names.
pub(super) fn discipline_of(scheduling: &Scheduling) -> Box<dyn Discipline> {
    match scheduling.algorithm {
        // All is one queue then.
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
