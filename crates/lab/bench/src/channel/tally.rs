//! The messages that one end has received: their delays, and those that arrived out of order.

use std::time::Duration;

use super::source::{FLOWS, Stamp};

/// The tally of messages that arrived at one end.
pub struct Tally {
    pub arrivals: Vec<Arrival>,
    agents: Vec<Agent>,
    pub bytes: u64,
    /// Messages that are not ours, or that arrived a second time.
    pub wrong: u64,
}

/// A message that was delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Due time since the start of the measurement.
    pub due: Duration,
    /// Time from when it was due until the other end had the whole message.
    pub delay: Duration,
}

/// The messages of one agent.
struct Agent {
    seen: Vec<bool>,
    newest: Option<u32>,
    newest_of_flow: Vec<Option<u32>>,
    overtaken: u64,
    overtaken_in_flow: u64,
}

impl Tally {
    pub fn new(agents: usize, messages_per_agent: u32) -> Tally {
        let agent = || Agent {
            seen: vec![false; messages_per_agent as usize],
            newest: None,
            newest_of_flow: vec![None; usize::from(FLOWS)],
            overtaken: 0,
            overtaken_in_flow: 0,
        };
        Tally {
            // No vector grows while messages arrive.
            arrivals: Vec::with_capacity(agents * messages_per_agent as usize),
            agents: std::iter::repeat_with(agent).take(agents).collect(),
            bytes: 0,
            wrong: 0,
        }
    }

    /// Counts a message that arrived `now` after the start.
    pub fn handle(&mut self, stamp: Option<Stamp>, size_bytes: usize, now: Duration) {
        let Some((stamp, agent)) =
            stamp.and_then(|stamp| Some((stamp, self.agents.get_mut(usize::from(stamp.agent))?)))
        else {
            self.wrong += 1;
            return;
        };
        match agent.seen.get_mut(stamp.number as usize) {
            Some(seen @ false) => *seen = true,
            _ => {
                self.wrong += 1;
                return;
            }
        }
        agent.handle(&stamp);
        self.bytes += size_bytes as u64;
        self.arrivals.push(Arrival {
            due: stamp.due,
            delay: now.saturating_sub(stamp.due),
        });
    }

    /// Returns the number of messages that arrived after a later one of the same agent.
    pub fn overtaken(&self) -> u64 {
        self.agents.iter().map(|agent| agent.overtaken).sum()
    }

    /// Returns the number of messages that arrived after a later one of the same agent and flow,
    /// which OpenFlow forbids.
    pub fn overtaken_in_flow(&self) -> u64 {
        self.agents.iter().map(|a| a.overtaken_in_flow).sum()
    }
}

impl Agent {
    fn handle(&mut self, stamp: &Stamp) {
        let number = stamp.number;
        match self.newest {
            Some(newest) if newest > number => self.overtaken += 1,
            _ => self.newest = Some(number),
        }
        if let Some(newest) = self.newest_of_flow.get_mut(usize::from(stamp.flow)) {
            match *newest {
                Some(newest) if newest > number => self.overtaken_in_flow += 1,
                _ => *newest = Some(number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(agent: u16, number: u32, flow: u16) -> Option<Stamp> {
        Some(Stamp {
            due: Duration::from_millis(u64::from(number)),
            agent,
            flow,
            number,
        })
    }

    #[test]
    fn overtaking_is_counted_per_agent_and_per_flow() {
        let mut tally = Tally::new(2, 10);
        let now = Duration::from_millis(20);
        // Number 1 arrives after 2 and 3, which have overtaken it; only 3 is of its flow.
        for (number, flow) in [(0, 0), (2, 1), (3, 0), (1, 0), (4, 1)] {
            tally.handle(stamp(0, number, flow), 100, now);
        }
        // Each agent has its own numbers.
        tally.handle(stamp(1, 0, 0), 100, now);
        assert_eq!((tally.overtaken(), tally.overtaken_in_flow()), (1, 1));
        tally.handle(stamp(1, 5, 0), 100, now);
        tally.handle(stamp(1, 4, 1), 100, now);
        assert_eq!((tally.overtaken(), tally.overtaken_in_flow()), (2, 1));
        assert_eq!(
            (tally.arrivals.len(), tally.bytes, tally.wrong),
            (8, 800, 0)
        );
    }

    #[test]
    fn what_is_not_ours_or_comes_twice_is_wrong_and_no_delivery() {
        let mut tally = Tally::new(1, 2);
        tally.handle(stamp(0, 1, 0), 100, Duration::from_millis(51));
        for wrong in [stamp(0, 1, 0), stamp(0, 2, 0), stamp(1, 0, 0), None] {
            tally.handle(wrong, 100, Duration::from_secs(1));
        }
        let arrival = Arrival {
            due: Duration::from_millis(1),
            delay: Duration::from_millis(50),
        };
        assert_eq!(
            (tally.arrivals.as_slice(), tally.wrong),
            (&[arrival][..], 4)
        );
    }
}
