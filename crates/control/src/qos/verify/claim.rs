//! Claims: the treatment that an entry promises to the packets it counts.

use std::collections::{BTreeMap, BTreeSet};

use openflow::{DatapathId, Field, MeterId, PortNo};

use crate::qos::QueuesBy;
use crate::qos::flow::{FlowKey, Then};
use crate::qos::plan::{Owner, Planned, PortPlan};

/// The treatment of packets by entries of a policy or circuit at a switch. Entries with the same
/// treatment make one claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub owner: Owner,
    /// Whether the claim is for the return direction of a circuit.
    pub is_back: bool,
    /// The port by which packets leave; `None` for any.
    pub port: Option<PortNo>,
    /// The queues, one of which takes the packets.
    pub queues: BTreeSet<(PortNo, u32)>,
    /// Whether the mark chooses among the queues.
    pub is_by_mark: bool,
    /// Whether the claim should have a queue and has none.
    pub lacks_queue: bool,
    /// Whether packets may leave by ports without any of the queues.
    pub is_open: bool,
    pub meter: Option<MeterId>,
    pub mark: Option<u8>,
    pub drops: bool,
}

/// Facts about an entry apart from the entry itself.
pub struct Wants<'a> {
    /// The wanted queues of its switch's ports.
    pub queues: &'a BTreeMap<PortNo, PortPlan>,
    pub ports: &'a BTreeSet<PortNo>,
    pub is_back: bool,
    /// Whether the entry's owner named a queue, or reserves room that needs one.
    pub queue: bool,
}

impl Claim {
    pub fn of(key: &FlowKey, planned: &Planned, wants: &Wants) -> Claim {
        let does = planned.does;
        let port = match does.then {
            Then::Output(port) => Some(port),
            Then::Leave | Then::Drop => key
                .matching
                .exact(Field::Metadata)
                .map(|m| PortNo(m as u32)),
        };
        let here = wants.queues.iter();
        let here = here.filter(|(at, _)| port.is_none_or(|port| port == **at));
        let queues: BTreeSet<(PortNo, u32)> = match (does.queue, does.mark) {
            (Some(queue), _) => {
                let has = |plan: &PortPlan| {
                    u8::try_from(queue.0).is_ok_and(|n| plan.queues.queues.contains_key(&n))
                };
                let with = here.filter(|(_, plan)| has(plan)).map(|(at, _)| *at);
                // A queue that is named and absent cannot be found there.
                with.chain(port).map(|at| (at, queue.0)).collect()
            }
            (None, Some(mark)) => here
                .filter(|(_, plan)| plan.by == QueuesBy::CodePoint)
                .flat_map(|(at, plan)| {
                    let chosen = plan.queues.queues.iter();
                    let chosen = chosen.filter(|(_, queue)| queue.dscp.contains(&mark));
                    chosen.map(|(number, _)| (*at, u32::from(*number)))
                })
                .collect(),
            (None, None) => BTreeSet::new(),
        };
        let has_queue = |port: &PortNo| queues.iter().any(|(at, _)| at == port);
        let is_open = port.is_none() && !wants.ports.iter().all(has_queue);
        Claim {
            owner: planned.owner.clone(),
            is_back: wants.is_back,
            port,
            is_by_mark: does.queue.is_none() && !queues.is_empty(),
            lacks_queue: wants.queue && queues.is_empty(),
            is_open: is_open && !queues.is_empty(),
            queues,
            meter: does.meter,
            mark: does.mark,
            drops: does.then == Then::Drop,
        }
    }
}

impl Claim {
    /// The place in words: the switch, and the ports if they are known.
    pub fn place(&self, dpid: DatapathId) -> String {
        let ports: Vec<String> = self.ports().iter().map(ToString::to_string).collect();
        match ports.is_empty() {
            true => dpid.to_string(),
            false => format!("{dpid}:{}", ports.join(",")),
        }
    }

    /// The numbers of its queues.
    pub fn numbers(&self) -> BTreeSet<u32> {
        self.queues.iter().map(|(_, queue)| *queue).collect()
    }

    pub fn ports(&self) -> BTreeSet<PortNo> {
        let of_queues = self.queues.iter().map(|(port, _)| *port);
        of_queues.chain(self.port).collect()
    }
}

/// A number for each claim: claims that share a queue, directly or through others, have the same
/// number.
pub(super) fn groups(claims: &[Claim]) -> Vec<usize> {
    let mut of_queue: BTreeMap<(PortNo, u32), usize> = BTreeMap::new();
    for (place, claim) in claims.iter().enumerate() {
        let known = claim.queues.iter().filter_map(|queue| of_queue.get(queue));
        let met: BTreeSet<usize> = known.copied().collect();
        let group = met.first().copied().unwrap_or(place);
        if met.len() > 1 {
            let joined = of_queue.values_mut().filter(|of| met.contains(of));
            joined.for_each(|of| *of = group);
        }
        of_queue.extend(claim.queues.iter().map(|queue| (*queue, group)));
    }
    let of = |(place, claim): (usize, &Claim)| {
        let queue = claim.queues.first();
        queue
            .and_then(|queue| of_queue.get(queue))
            .copied()
            .unwrap_or(place)
    };
    claims.iter().enumerate().map(of).collect()
}
