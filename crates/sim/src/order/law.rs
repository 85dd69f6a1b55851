//! The judge: checks whether messages came out in an order that OpenFlow allows. It knows the
//! messages sent but not how they travelled, and needs constant time per message.

use clock::Fnv1a;
use openflow::Frame;
use sched::Direction;

use super::script::{DOMAIN_SHIFT, DOMAINS, FLOWS, Made, Rank};

/// Judges one channel in one direction.
#[derive(Debug)]
pub(super) struct Judge {
    direction: Direction,
    sent: Vec<Sent>,
    /// Scopes by domain of barriers.
    scopes: Vec<Scope>,
    last_free: Option<u32>,
    latest: u32,
    pub delivered: u64,
    /// The number of messages that came out after one that was sent later.
    pub overtaken: u64,
}

/// The messages that order a domain's messages: its own, and the fences of domain 0.
#[derive(Clone, Debug)]
struct Scope {
    /// Counts of the messages that were sent, and of those that have come out.
    before: Counts,
    out: Counts,
    /// Numbers of the state messages, and the number of these that have come out without a gap.
    states: Vec<u32>,
    states_done: u32,
    last_state: Option<u32>,
    last_exchange: Option<u32>,
    /// The last flow-mod of each kind of address, and of each address.
    last_of_kind: [Option<u32>; 2],
    last_of_key: [Vec<Option<u32>>; 2],
    last_of_flow: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    fences: u32,
    wides: u32,
    states: u32,
    exchanges: u32,
}

#[derive(Debug)]
struct Sent {
    rank: Rank,
    domain: u8,
    /// Counts of the messages sent before it.
    before: Counts,
    digest: u64,
    is_out: bool,
}

impl Judge {
    pub fn new(direction: Direction) -> Judge {
        Judge {
            direction,
            sent: Vec::new(),
            scopes: vec![Scope::default(); usize::from(DOMAINS)],
            last_free: None,
            latest: 0,
            delivered: 0,
            overtaken: 0,
        }
    }

    pub fn handle_sent(&mut self, made: &Made) {
        let Made {
            frame,
            rank,
            domain,
        } = made;
        let scope = &mut self.scopes[usize::from(*domain)];
        if matches!(rank, Rank::State | Rank::Keyed { .. }) {
            scope.states.push(self.sent.len() as u32);
        }
        self.sent.push(Sent {
            rank: *rank,
            domain: *domain,
            before: scope.before,
            digest: Fnv1a::of(frame.bytes()),
            is_out: false,
        });
        for scope in bound(&mut self.scopes, *rank, *domain) {
            scope.before.add(*rank);
        }
    }

    /// Judges a message that came out. The error names the part of the law that was broken.
    pub fn handle_delivered(&mut self, frame: &Frame) -> Result<(), String> {
        let number = frame.xid().0 & ((1 << DOMAIN_SHIFT) - 1);
        let Some(sent) = self.sent.get_mut(number as usize) else {
            return Err(format!("number {number} was never sent"));
        };
        if sent.digest != Fnv1a::of(frame.bytes()) {
            return Err(format!("number {number} is not what was sent"));
        }
        if std::mem::replace(&mut sent.is_out, true) {
            return Err(format!("number {number} came out twice"));
        }
        let (rank, domain, before) = (sent.rank, sent.domain, sent.before);
        let is_first = self.delivered == 0;
        self.delivered += 1;
        self.overtaken += u64::from(number < self.latest);
        self.latest = self.latest.max(number);
        let broken = match is_first {
            true => (number != 0).then_some("was before the first message"),
            false => self.broken(number, rank, domain, before),
        };
        self.count(number, rank, domain);
        match broken {
            None => Ok(()),
            Some(what) => Err(format!("number {number}, {rank:?}, {what}")),
        }
    }

    /// The number of messages sent that have not come out.
    pub fn missing(&self) -> u64 {
        self.sent.len() as u64 - self.delivered
    }

    /// The number of missing messages other than packet-ins: only packet-ins may be shed.
    pub fn lost(&self) -> u64 {
        let may_be_shed = |sent: &&Sent| {
            self.direction == Direction::ToController && matches!(sent.rank, Rank::Flow(_))
        };
        let missing = self.sent.iter().filter(|sent| !sent.is_out);
        missing.filter(|sent| !may_be_shed(sent)).count() as u64
    }

    /// Returns the part of the law that is broken if this message comes out now.
    fn broken(&self, number: u32, rank: Rank, domain: u8, before: Counts) -> Option<&'static str> {
        let scope = &self.scopes[usize::from(domain)];
        let to_switch = self.direction == Direction::ToSwitch;
        let is_behind = |last: Option<u32>| last.is_some_and(|last| last > number);
        if rank == Rank::Free {
            return is_behind(self.last_free).then_some("was overtaken by its like");
        }
        if before.fences != scope.out.fences {
            return Some("crossed a fence");
        }
        // Earlier packets need not have come out.
        let is_packet = matches!(rank, Rank::Flow(_));
        if scope.out.wides < before.wides || scope.out.wides > before.wides && !is_packet {
            return Some("crossed a change of more than one key");
        }
        match rank {
            Rank::State if is_behind(scope.last_state) => Some("was overtaken by state"),
            Rank::Keyed { is_ip, key }
                if is_behind(scope.last_of_key[usize::from(is_ip)][usize::from(key)]) =>
            {
                Some("was overtaken by one of its key")
            }
            Rank::Keyed { is_ip, .. } if is_behind(scope.last_of_kind[usize::from(!is_ip)]) => {
                Some("was overtaken by a key of the other kind")
            }
            Rank::State | Rank::Keyed { .. }
                if to_switch && scope.out.exchanges < before.exchanges =>
            {
                Some("overtook a request")
            }
            Rank::Exchange if is_behind(scope.last_exchange) => Some("was overtaken by its like"),
            Rank::Exchange if scope.states_done < before.states => Some("overtook state"),
            Rank::Flow(flow) if is_behind(scope.last_of_flow[usize::from(flow)]) => {
                Some("was overtaken by one of its flow")
            }
            Rank::Flow(_) if to_switch && scope.states_done < before.states => {
                Some("overtook state")
            }
            _ => None,
        }
    }

    fn count(&mut self, number: u32, rank: Rank, domain: u8) {
        let scope = &mut self.scopes[usize::from(domain)];
        let last = |of: &mut Option<u32>| *of = (*of).max(Some(number));
        match rank {
            Rank::Fence | Rank::Wide => {}
            Rank::State => last(&mut scope.last_state),
            Rank::Keyed { is_ip, key } => {
                last(&mut scope.last_of_kind[usize::from(is_ip)]);
                last(&mut scope.last_of_key[usize::from(is_ip)][usize::from(key)]);
            }
            Rank::Exchange => last(&mut scope.last_exchange),
            Rank::Free => last(&mut self.last_free),
            Rank::Flow(flow) => last(&mut scope.last_of_flow[usize::from(flow)]),
        }
        while let Some(next) = scope.states.get(scope.states_done as usize)
            && self.sent[*next as usize].is_out
        {
            scope.states_done += 1;
        }
        for scope in bound(&mut self.scopes, rank, domain) {
            scope.out.add(rank);
        }
    }
}

/// The scopes that a message counts in.
fn bound(scopes: &mut [Scope], rank: Rank, domain: u8) -> &mut [Scope] {
    match (rank, domain) {
        (Rank::Fence | Rank::Wide, 0) => scopes,
        _ => &mut scopes[usize::from(domain)..][..1],
    }
}

impl Default for Scope {
    fn default() -> Scope {
        let all = vec![None; usize::from(FLOWS)];
        Scope {
            before: Counts::default(),
            out: Counts::default(),
            states: Vec::new(),
            states_done: 0,
            last_state: None,
            last_exchange: None,
            last_of_kind: [None; 2],
            last_of_key: [all.clone(), all.clone()],
            last_of_flow: all,
        }
    }
}

impl Counts {
    fn add(&mut self, rank: Rank) {
        match rank {
            Rank::Fence => self.fences += 1,
            Rank::Wide => self.wides += 1,
            Rank::State | Rank::Keyed { .. } => self.states += 1,
            Rank::Exchange => self.exchanges += 1,
            Rank::Flow(_) | Rank::Free => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sched::order::{must_follow, must_follow_keyed};
    use sched::{Binding, Key, KeyKind, Place};

    use super::*;
    use crate::order::script::{Script, Traffic};

    fn binding(rank: Rank) -> Binding {
        match rank {
            Rank::Fence => Binding::Fence,
            Rank::State | Rank::Wide | Rank::Keyed { .. } => Binding::State,
            Rank::Exchange => Binding::Exchange,
            Rank::Free => Binding::Free,
            Rank::Flow(flow) => Binding::Flow {
                key: u64::from(flow),
                after_state: true,
            },
        }
    }

    fn place(rank: Rank) -> Place {
        match rank {
            Rank::Fence => Place::Fence,
            Rank::State | Rank::Wide => Place::State,
            Rank::Keyed { is_ip, key } => Place::Keyed(Key {
                kind: if is_ip { KeyKind::Ip } else { KeyKind::Mac },
                hash: u64::from(key),
            }),
            Rank::Exchange => Place::Exchange,
            Rank::Free => Place::Free,
            Rank::Flow(flow) => Place::Flow(flow),
        }
    }

    fn law(direction: Direction, traffic: Traffic, earlier: &Made, later: &Made) -> bool {
        if traffic == Traffic::Keyed && direction == Direction::ToSwitch {
            let of = |made: &Made| (place(made.rank), made.domain);
            return must_follow_keyed(of(earlier), of(later));
        }
        let of = |made: &Made| (binding(made.rank), 0);
        must_follow(direction, of(earlier), of(later))
    }

    proptest! {
        /// Judging pair by pair, as the law is written, and judging at once give the same answer
        /// for any order.
        #[test]
        fn the_judge_says_what_the_law_says_pair_by_pair(
            seed: u64,
            swaps in proptest::collection::vec((1usize..40, 1usize..6), 0..6),
            to_switch: bool,
            is_keyed: bool,
        ) {
            let direction = if to_switch { Direction::ToSwitch } else { Direction::ToController };
            let traffic = if is_keyed { Traffic::Keyed } else { Traffic::Strict };
            let mut script = Script::new(direction, openflow::Version::V13, traffic, seed);
            let sent: Vec<Made> = (0..40).map(|_| script.next()).collect();
            let mut order: Vec<usize> = (0..40).collect();
            for (at, distance) in swaps {
                order.swap(at, (at + distance).min(39));
            }
            let law = |a: usize, b: usize| law(direction, traffic, &sent[a], &sent[b]);
            let crossed = (0..40).any(|i| (i + 1..40).any(|j| {
                order[j] < order[i] && law(order[j], order[i])
            }));
            let mut judge = Judge::new(direction);
            sent.iter().for_each(|made| judge.handle_sent(made));
            let verdicts = order.iter().map(|n| judge.handle_delivered(&sent[*n].frame));
            let broken = verdicts.filter(Result::is_err).count();
            prop_assert_eq!(broken > 0, crossed, "{:?}", order);
            prop_assert_eq!((judge.missing(), judge.lost()), (0, 0));
        }
    }

    #[test]
    fn what_is_changed_doubled_or_lost_is_found() {
        let (direction, version) = (Direction::ToSwitch, openflow::Version::V13);
        let mut script = Script::new(direction, version, Traffic::Strict, 1);
        let mut judge = Judge::new(direction);
        let sent: Vec<Frame> = (0..3)
            .map(|_| {
                let made = script.next();
                judge.handle_sent(&made);
                made.frame
            })
            .collect();
        assert_eq!(judge.handle_delivered(&sent[0]), Ok(()));
        let twice = judge.handle_delivered(&sent[0]).unwrap_err();
        assert!(twice.contains("twice"));
        for changed in [9, 2] {
            let changed = sent[1].with_xid(openflow::Xid(changed));
            assert!(judge.handle_delivered(&changed).is_err());
        }
        assert_eq!((judge.missing(), judge.lost()), (2, 2));
    }
}
