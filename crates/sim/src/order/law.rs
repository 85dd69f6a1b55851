//! The judge: whether what came out came in an order that OpenFlow allows. It knows what went in
//! and nothing of how it travelled, and needs a constant time per message.

use openflow::Frame;
use sched::Direction;

use super::script::{FLOWS, Rank};

/// Judges one channel in one direction.
#[derive(Debug)]
pub(super) struct Judge {
    direction: Direction,
    sent: Vec<Sent>,
    /// Of what was sent, and of what has come out.
    before: Counts,
    out: Counts,
    last_state: Option<u32>,
    last_exchange: Option<u32>,
    last_free: Option<u32>,
    last_of_flow: Vec<Option<u32>>,
    latest: u32,
    pub delivered: u64,
    /// Came out after one that was sent later.
    pub overtaken: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    fences: u32,
    states: u32,
    exchanges: u32,
}

#[derive(Debug)]
struct Sent {
    rank: Rank,
    /// What was sent before it.
    before: Counts,
    digest: u64,
    is_out: bool,
}

impl Judge {
    pub fn new(direction: Direction) -> Judge {
        Judge {
            direction,
            sent: Vec::new(),
            before: Counts::default(),
            out: Counts::default(),
            last_state: None,
            last_exchange: None,
            last_free: None,
            last_of_flow: vec![None; usize::from(FLOWS)],
            latest: 0,
            delivered: 0,
            overtaken: 0,
        }
    }

    pub fn handle_sent(&mut self, frame: &Frame, rank: Rank) {
        self.sent.push(Sent {
            rank,
            before: self.before,
            digest: digest(frame.bytes()),
            is_out: false,
        });
        self.before.add(rank);
    }

    /// A message came out. The error says which part of the law was broken.
    pub fn handle_delivered(&mut self, frame: &Frame) -> Result<(), String> {
        let number = frame.xid().0;
        let Some(sent) = self.sent.get_mut(number as usize) else {
            return Err(format!("number {number} was never sent"));
        };
        if sent.digest != digest(frame.bytes()) {
            return Err(format!("number {number} is not what was sent"));
        }
        if std::mem::replace(&mut sent.is_out, true) {
            return Err(format!("number {number} came out twice"));
        }
        let (rank, before) = (sent.rank, sent.before);
        let is_first = self.delivered == 0;
        self.delivered += 1;
        self.overtaken += u64::from(number < self.latest);
        self.latest = self.latest.max(number);
        let broken = match is_first {
            true => (number != 0).then_some("was before the first message"),
            false => self.broken(number, rank, before),
        };
        self.count(number, rank);
        match broken {
            None => Ok(()),
            Some(what) => Err(format!("number {number}, {rank:?}, {what}")),
        }
    }

    /// Sent and not come out.
    pub fn missing(&self) -> u64 {
        self.sent.len() as u64 - self.delivered
    }

    /// Of these, what is no packet-in: nothing else may be shed.
    pub fn lost(&self) -> u64 {
        let may_be_shed = |sent: &&Sent| {
            self.direction == Direction::ToController && matches!(sent.rank, Rank::Flow(_))
        };
        let missing = self.sent.iter().filter(|sent| !sent.is_out);
        missing.filter(|sent| !may_be_shed(sent)).count() as u64
    }

    /// Which part of the law is broken when this one comes now.
    fn broken(&self, number: u32, rank: Rank, before: Counts) -> Option<&'static str> {
        let to_switch = self.direction == Direction::ToSwitch;
        let is_behind = |last: Option<u32>| last.is_some_and(|last| last > number);
        if rank == Rank::Free {
            return is_behind(self.last_free).then_some("was overtaken by its like");
        }
        if before.fences != self.out.fences {
            return Some("crossed a fence");
        }
        match rank {
            Rank::State if is_behind(self.last_state) => Some("was overtaken by state"),
            Rank::State if to_switch && self.out.exchanges < before.exchanges => {
                Some("overtook a request")
            }
            Rank::Exchange if is_behind(self.last_exchange) => Some("was overtaken by its like"),
            Rank::Exchange if self.out.states < before.states => Some("overtook state"),
            Rank::Flow(flow) if is_behind(self.last_of_flow[usize::from(flow)]) => {
                Some("was overtaken by one of its flow")
            }
            Rank::Flow(_) if to_switch && self.out.states < before.states => Some("overtook state"),
            _ => None,
        }
    }

    fn count(&mut self, number: u32, rank: Rank) {
        let last = match rank {
            Rank::Fence => None,
            Rank::State => Some(&mut self.last_state),
            Rank::Exchange => Some(&mut self.last_exchange),
            Rank::Free => Some(&mut self.last_free),
            Rank::Flow(flow) => Some(&mut self.last_of_flow[usize::from(flow)]),
        };
        if let Some(last) = last {
            *last = Some(last.map_or(number, |last| last.max(number)));
        }
        self.out.add(rank);
    }
}

impl Counts {
    fn add(&mut self, rank: Rank) {
        match rank {
            Rank::Fence => self.fences += 1,
            Rank::State => self.states += 1,
            Rank::Exchange => self.exchanges += 1,
            Rank::Flow(_) | Rank::Free => {}
        }
    }
}

/// FNV-1a, 64 bits.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sched::Binding;
    use sched::order::must_follow;

    use super::*;
    use crate::order::script::Script;

    fn binding(rank: Rank) -> Binding {
        match rank {
            Rank::Fence => Binding::Fence,
            Rank::State => Binding::State,
            Rank::Exchange => Binding::Exchange,
            Rank::Free => Binding::Free,
            Rank::Flow(flow) => Binding::Flow {
                key: u64::from(flow),
                after_state: true,
            },
        }
    }

    proptest! {
        /// Pair by pair, as the law is written, and at once: the same answer for any order.
        #[test]
        fn the_judge_says_what_the_law_says_pair_by_pair(
            seed: u64,
            swaps in proptest::collection::vec((1usize..40, 1usize..6), 0..6),
            to_switch: bool,
        ) {
            let direction = if to_switch { Direction::ToSwitch } else { Direction::ToController };
            let mut script = Script::new(direction, openflow::Version::V13, seed);
            let sent: Vec<(Frame, Rank)> = (0..40).map(|_| script.next()).collect();
            let mut order: Vec<usize> = (0..40).collect();
            for (at, distance) in swaps {
                order.swap(at, (at + distance).min(39));
            }
            let law = |a: usize, b: usize| {
                must_follow(direction, (binding(sent[a].1), 0), (binding(sent[b].1), 0))
            };
            let crossed = (0..40).any(|i| (i + 1..40).any(|j| {
                order[j] < order[i] && law(order[j], order[i])
            }));
            let mut judge = Judge::new(direction);
            sent.iter().for_each(|(frame, rank)| judge.handle_sent(frame, *rank));
            let verdicts = order.iter().map(|n| judge.handle_delivered(&sent[*n].0));
            let broken = verdicts.filter(Result::is_err).count();
            prop_assert_eq!(broken > 0, crossed, "{:?}", order);
            prop_assert_eq!((judge.missing(), judge.lost()), (0, 0));
        }
    }

    #[test]
    fn what_is_changed_doubled_or_lost_is_found() {
        let mut script = Script::new(Direction::ToSwitch, openflow::Version::V13, 1);
        let mut judge = Judge::new(Direction::ToSwitch);
        let sent: Vec<Frame> = (0..3)
            .map(|_| {
                let (frame, rank) = script.next();
                judge.handle_sent(&frame, rank);
                frame
            })
            .collect();
        assert_eq!(judge.handle_delivered(&sent[0]), Ok(()));
        assert!(
            judge
                .handle_delivered(&sent[0])
                .unwrap_err()
                .contains("twice")
        );
        assert!(
            judge
                .handle_delivered(&sent[1].with_xid(openflow::Xid(9)))
                .is_err()
        );
        assert!(
            judge
                .handle_delivered(&sent[1].with_xid(openflow::Xid(2)))
                .is_err()
        );
        assert_eq!((judge.missing(), judge.lost()), (2, 2));
    }
}
