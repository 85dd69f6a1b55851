//! Counts the packets that arrive at a host.

use crate::pso::packet::Label;
use testbed::capture::Listener;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub label: Label,
    pub at_ns: u64,
}

/// Listens at the host's interface.
#[derive(Debug, Default)]
pub struct SinkListener {
    pub arrivals: Vec<Arrival>,
}

impl Listener for SinkListener {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let arrival = Label::read(frame).map(|label| Arrival { label, at_ns });
        self.arrivals.extend(arrival);
        arrival.is_some()
    }
}
