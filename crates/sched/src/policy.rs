//! The policy map: which queue or code point a message gets, and how the queues are served.
//!
//! A map is an ordered list of rules, the first that matches wins; it is written in the notation of
//! the published priority scheme, with a few lines more for what that leaves open.

use openflow::Match;
use openflow::time::Duration;

use crate::class::TrafficType;

/// Rules of one map; the published scheme has as many.
pub const RULES_MAX: usize = 64;
/// Queues of one map. Queue 0 is the most urgent.
pub const QUEUES_MAX: usize = 16;

/// Which column of the table of traffic types holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// As published, message by message.
    Paper,
    /// What experience asks for: a barrier is of the class of what it fences, and so on.
    #[default]
    Auster,
}

/// What is done with a message, or a data packet, that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Queue(u8),
    /// 0 to 63; the queue follows from the map of code points.
    Dscp(u8),
    /// The code point of the packet concerned.
    DscpCopy,
    /// An explicit queue, and a code point on the wire.
    Both(u8, u8),
}

/// One rule. A field that is `None` holds for every message.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub id: u16,
    pub traffic: Option<TrafficType>,
    /// Of the packet inside, or of the flow that is meant.
    pub fields: Match,
    /// Value and mask of the transaction id.
    pub xid: Option<(u32, u32)>,
    /// Barriers bind messages of their own domain only; 0 is everybody's.
    pub domain: u8,
    pub action: Action,
}

/// How one queue is served and what it may hold.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// Share of what is left, for DRR, WFQ and the hierarchy. Above 0.
    pub weight: u16,
    /// For min-rate: bytes per second.
    pub min_rate: Option<u64>,
    /// For EDF and its guard: what waits longer goes first.
    pub deadline: Duration,
    pub messages_max: usize,
    pub bytes_max: usize,
    /// Packet-ins that have waited longer are worthless.
    pub age_max: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Fifo,
    Strict,
    Wfq,
    Drr,
    MinRate,
    Edf,
    /// Strict for queue 0 up to a rate, DRR over the others, then switches and flows in turn.
    #[default]
    Hierarchy,
}

/// How the queues of a map are served.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduling {
    pub algorithm: Algorithm,
    pub queues: Vec<QueueConfig>,
    /// Of all queues together: above it, sources are not read.
    pub bytes_hard: usize,
    /// Packet-outs that name no buffer and do not go through the tables may overtake flow-mods.
    pub packet_out_free: bool,
}

/// A policy map, valid by construction.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyMap {
    pub generation: u64,
    pub profile: Profile,
    pub rules: Vec<Rule>,
    /// For what no rule matches.
    pub default: Action,
    /// Queue of each code point.
    pub dscp_queue: [u8; 64],
    pub scheduling: Scheduling,
}

impl PolicyMap {
    /// No map: one queue, first in, first out, everything treated alike.
    pub fn none() -> PolicyMap {
        PolicyMap {
            generation: 0,
            profile: Profile::default(),
            rules: Vec::new(),
            default: Action::Queue(0),
            dscp_queue: [0; 64],
            scheduling: Scheduling {
                algorithm: Algorithm::Fifo,
                queues: vec![QueueConfig::default()],
                bytes_hard: 4 << 20,
                packet_out_free: false,
            },
        }
    }
}

impl Default for QueueConfig {
    fn default() -> QueueConfig {
        QueueConfig {
            weight: 1,
            min_rate: None,
            deadline: Duration::from_millis(50),
            messages_max: 1000,
            bytes_max: 256 * 1024,
            age_max: Duration::from_secs(1),
        }
    }
}
