//! The policy map in use, and what it has done so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use openflow::{DatapathId, Field, Frame, MessageKind, PacketFields};
use sched::policy::{Algorithm, PolicyMap, QUEUES_MAX, Rule, Scheduling};
use sched::scheduler::QueueCounters;
use sched::{Classifier, Direction, Tag};

/// EtherTypes whose packets do not pass between two hosts.
const ARP: u128 = 0x0806;
const LLDP: u128 = 0x88cc;

/// One map, made ready. The tasks keep it until they learn of another.
pub(super) struct Policy {
    map: PolicyMap,
    classifier: Classifier,
    reads_packet_outs: bool,
    sorts_flows: bool,
    /// Messages by rule; the last number is the default's.
    hits: Vec<AtomicU64>,
}

/// The map in use, for all connections.
pub(super) struct PolicyInUse {
    current: Mutex<Arc<Policy>>,
    /// Counts maps: a task whose map has an older number takes the new one.
    number: AtomicU64,
    /// The counters of connections' queues that have run empty.
    sent: Mutex<[QueueCounters; QUEUES_MAX]>,
}

/// The map in use, for status.
#[derive(Clone, Debug)]
pub struct PolicyView {
    pub map: PolicyMap,
    /// Messages that each rule matched, in both directions, since the map came into use.
    pub hits: Vec<u64>,
    /// Messages that no rule matched.
    pub hits_default: u64,
    /// The messages that had to wait for a peer that did not read, by queue, since the start.
    pub sent: Vec<QueueCounters>,
}

impl Policy {
    fn new(map: PolicyMap) -> Policy {
        let classifier = Classifier::new(&map);
        Policy {
            reads_packet_outs: classifier.reads_packet_outs(),
            sorts_flows: map.rules.iter().any(sorts_flows),
            classifier,
            hits: (0..=map.rules.len()).map(|_| AtomicU64::new(0)).collect(),
            map,
        }
    }

    /// Whether the map has one first-in, first-out queue: no message can overtake another, so
    /// nothing need be sorted.
    pub(super) fn is_trivial(&self) -> bool {
        let scheduling = &self.map.scheduling;
        scheduling.algorithm == Algorithm::Fifo && scheduling.queues.len() == 1
    }

    /// Whether it is useful to know which packets the switch keeps.
    pub(super) fn reads_packet_outs(&self) -> bool {
        self.reads_packet_outs
    }

    /// Whether packet-ins of one port may belong to different classes, depending on the packets
    /// between two hosts that they carry.
    pub(super) fn sorts_flows(&self) -> bool {
        self.sorts_flows
    }

    pub(super) fn scheduling(&self) -> &Scheduling {
        &self.map.scheduling
    }

    pub(super) fn classify(
        &self,
        frame: &Frame,
        direction: Direction,
        channel: u64,
        datapath: Option<DatapathId>,
        kept: Option<&PacketFields>,
    ) -> Tag {
        let verdict = self
            .classifier
            .classify_kept(frame, direction, channel, datapath, kept);
        let rule = verdict.rule.unwrap_or(self.map.rules.len());
        self.hits[rule].fetch_add(1, Ordering::Relaxed);
        verdict.tag
    }
}

/// Whether a rule may match some packet-ins of packets between two hosts and not others.
fn sorts_flows(rule: &Rule) -> bool {
    let is_about_them = rule
        .message
        .is_none_or(|kind| kind == MessageKind::PacketIn)
        && rule
            .direction
            .is_none_or(|to| to == Direction::ToController);
    let eth_type = rule.fields.exact(Field::EthType);
    let is_of_others = eth_type.is_some_and(|it| [ARP, LLDP].contains(&it));
    is_about_them && (rule.xid.is_some() || !rule.fields.fields.is_empty() && !is_of_others)
}

impl PolicyInUse {
    pub(super) fn new(map: PolicyMap) -> PolicyInUse {
        PolicyInUse {
            current: Mutex::new(Arc::new(Policy::new(map))),
            number: AtomicU64::new(0),
            sent: Mutex::default(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<Policy> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn replace(&self, map: PolicyMap) {
        let policy = Arc::new(Policy::new(map));
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = policy;
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    /// Adds the counters of a connection's queues.
    pub(super) fn note_sent(&self, counters: &[QueueCounters]) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, counters) in sent.iter_mut().zip(counters) {
            sum.messages_in += counters.messages_in;
            sum.bytes_in += counters.bytes_in;
            sum.messages_out += counters.messages_out;
            sum.bytes_out += counters.bytes_out;
            sum.promoted += counters.promoted;
            sum.forgotten += counters.forgotten + counters.messages_waiting as u64;
        }
    }

    pub(super) fn view(&self) -> PolicyView {
        let policy = self.current();
        let mut hits: Vec<u64> = policy
            .hits
            .iter()
            .map(|hits| hits.load(Ordering::Relaxed))
            .collect();
        let sent = *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        PolicyView {
            hits_default: hits.pop().unwrap_or(0),
            hits,
            sent: sent[..policy.map.scheduling.queues.len()].to_vec(),
            map: policy.map.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rule_about_packets_between_hosts_sorts_flows() {
        let sorts = |text: &str| {
            let (map, _) = PolicyMap::parse(text).expect("a map");
            Policy::new(map).sorts_flows()
        };
        let with = |rule: &str| {
            sorts(&format!(
                "Profile: auster\nRule #1: {rule}, action=queue_id:1\nScheduler: algo=hierarchy\n"
            ))
        };
        assert!(!Policy::new(PolicyMap::auster()).sorts_flows());
        assert!(Policy::new(PolicyMap::paper()).sorts_flows());
        assert!(with("ip_proto=17, udp_dst=53"));
        assert!(!with("eth_type=0x88cc") && !with("eth_type=0x0806"));
    }
}
