//! The policy map: which queue or code point a message gets, and how the queues are served.
//!
//! A map is an ordered list of rules; the first match wins. It uses the notation of the published
//! priority scheme, with a few extra lines for settings that the scheme leaves open:
//!
//! ```text
//! Rule #1: traffic_type=1, action=queue_id:0
//! Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1
//! Default: action=queue_id:2
//! Scheduler: algo=hierarchy, hard_bytes=4m
//! Queue #0: weight=8, deadline=10ms
//! ```
//!
//! `parse` reads a map, `check` reports its problems, and `text` writes its canonical form, from
//! which the digest is computed.

mod check;
mod draft;
mod fields;
mod parse;
mod problem;
mod text;

pub use draft::Against;
pub use fields::{field_name, field_text};
pub use problem::{Code, Position, Problem};
pub use text::code_point_name;

use clock::Duration;
use openflow::{DatapathId, Match, MessageKind};
use sha2::{Digest as _, Sha256};

use crate::class::TrafficType;
use crate::order::Direction;

/// Rules of one map; the published scheme has the same number.
pub const RULES_MAX: usize = 64;
/// Queues of one map. Queue 0 is the most urgent.
pub const QUEUES_MAX: usize = 16;
/// Queues of a map that uses code points and does not set the number of queues: one for each class
/// selector.
pub const DSCP_QUEUES: usize = 8;

/// Table that assigns message types to traffic types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The table of the published priority scheme.
    Paper,
    /// The published table with corrections, for example barriers in the class of flow set-up.
    /// [`traffic_of`](crate::class::traffic_of) lists them.
    #[default]
    Auster,
}

/// Treatment of a message, or a data packet, that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Use this queue, from 0.
    Queue(u8),
    /// Set this code point, 0 to 63. [`PolicyMap::dscp_queue`] gives the queue.
    Dscp(u8),
    /// Copy the code point of the packet that the message is about.
    DscpCopy,
    /// Use this queue and set this code point.
    Both(u8, u8),
}

/// One rule. A field that is `None` matches every message.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Number of the rule in the text.
    pub id: u16,
    /// Traffic type of the message.
    pub traffic: Option<TrafficType>,
    /// Type of the message.
    pub message: Option<MessageKind>,
    /// Direction of the message.
    pub direction: Option<Direction>,
    /// Switch at the other end of the connection.
    pub datapath: Option<DatapathId>,
    /// Match fields of the packet inside the message, or of the flow that it names.
    pub fields: Match,
    /// Value and mask of the transaction id.
    pub xid: Option<(u32, u32)>,
    /// Domain of barriers, which bind messages of their own domain only; domain 0 is common to all.
    pub domain: u8,
    /// Queue or code point for a message that the rule matches.
    pub action: Action,
}

/// Service and limits of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// Share of the rate, for DRR, WFQ and the hierarchy. At least 1.
    pub weight: u16,
    /// Minimum rate in bytes per second, for [`Algorithm::MinRate`].
    pub min_rate: Option<u64>,
    /// Longest wait that [`Algorithm::Edf`] aims for, counted from the arrival of a message.
    pub deadline: Duration,
    /// Limit of waiting messages. Above it, packet-ins are shed.
    pub messages_max: usize,
    /// Limit of waiting bytes. Above it, packet-ins are shed.
    pub bytes_max: usize,
    /// Age above which a packet-in is shed.
    pub age_max: Duration,
}

/// Disciplines that choose the next queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One order of arrival for all queues.
    Fifo,
    /// Lowest queue number first, always.
    Strict,
    /// Weighted fair queueing, by `weight`.
    Wfq,
    /// Deficit round robin, by `weight`.
    Drr,
    /// Minimum rates first, by `min_rate`.
    MinRate,
    /// Earliest deadline first, by `deadline`.
    Edf,
    /// Strict for queue 0 up to a rate, DRR over the others, then switches and flows in turn.
    #[default]
    Hierarchy,
}

/// Service of a map's queues.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduling {
    /// Discipline that chooses the next queue.
    pub algorithm: Algorithm,
    /// Queues, the most urgent first; at least one, at most [`QUEUES_MAX`].
    pub queues: Vec<QueueConfig>,
    /// Limit of waiting bytes of all queues together. Above it, stop reading from the sources.
    pub bytes_hard: usize,
    /// Packet-outs that name no buffer and do not go through the tables may overtake flow-mods.
    pub packet_out_free: bool,
}

/// A policy map, valid by construction.
///
/// ```
/// use sched::policy::{Action, Code, PolicyMap};
///
/// let text = "Rule #1: traffic_type=1, action=dscp:CS6\nDefault: action=dscp:CS1\n";
/// let (map, _) = PolicyMap::parse(text).unwrap();
/// assert_eq!(map.rules[0].action, Action::Dscp(48));
/// assert_eq!(PolicyMap::parse(&map.to_text()).unwrap().0.digest(), map.digest());
///
/// let problems = PolicyMap::parse("Rule #1: udp_dst=70000, action=queue_id:0").unwrap_err();
/// assert_eq!((problems[0].code, problems[0].at.line), (Code::Value, 1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyMap {
    /// Number of the map's version. A newer map has a higher number.
    pub generation: u64,
    /// Table of traffic types that the rules refer to.
    pub profile: Profile,
    /// Rules, in the order in which they are tried.
    pub rules: Vec<Rule>,
    /// Action for messages that no rule matches.
    pub default: Action,
    /// Queue of each code point.
    pub dscp_queue: [u8; 64],
    /// Bytes per second of the link that the queues share, if its owner has stated it.
    pub link_rate: Option<u64>,
    /// Service of the queues.
    pub scheduling: Scheduling,
}

/// The digest of a map's canonical text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapDigest(pub [u8; 32]);

/// Unsent bytes of all queues together above which reading stops.
pub const BYTES_HARD_DEFAULT: usize = 4 << 20;

/// The map that is used unless another is given.
const AUSTER: &str = "\
Profile: auster
Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, action=queue_id:1
Rule #3: traffic_type=3, action=queue_id:2
Default: action=queue_id:2
Scheduler: algo=hierarchy
";

/// The first example of the published scheme, served as it was published.
const PAPER: &str = "\
Profile: paper
Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1
Rule #3: traffic_type=2, action=queue_id:2
Rule #4: traffic_type=3, action=queue_id:3
Scheduler: algo=strict
";

impl PolicyMap {
    /// Returns a map without rules: one queue, first in, first out, for all messages alike.
    pub fn none() -> PolicyMap {
        PolicyMap {
            generation: 0,
            profile: Profile::default(),
            rules: Vec::new(),
            default: Action::Queue(0),
            dscp_queue: [0; 64],
            link_rate: None,
            scheduling: Scheduling {
                algorithm: Algorithm::Fifo,
                queues: vec![QueueConfig::default()],
                bytes_hard: BYTES_HARD_DEFAULT,
                packet_out_free: false,
            },
        }
    }

    /// Returns a map with one queue each for session messages, flow setup and housekeeping, served
    /// by the hierarchy.
    pub fn auster() -> PolicyMap {
        shipped(AUSTER)
    }

    /// Returns the published scheme's first example, with its types and strict priority.
    pub fn paper() -> PolicyMap {
        shipped(PAPER)
    }

    /// Reads a map.
    ///
    /// # Errors
    /// Returns all errors and warnings, in the order of the text. A map that can be used is
    /// returned with its warnings alone.
    pub fn parse(text: &str) -> Result<(PolicyMap, Vec<Problem>), Vec<Problem>> {
        PolicyMap::parse_against(text, &Against::default())
    }

    /// Reads a map and checks it against its circumstances: the map in use, the carrier, the
    /// announced digest.
    ///
    /// # Errors
    /// Fails as [`PolicyMap::parse`] does.
    pub fn parse_against(
        text: &str,
        against: &Against,
    ) -> Result<(PolicyMap, Vec<Problem>), Vec<Problem>> {
        parse::parse(text, against)
    }

    /// The map in its canonical form, which [`PolicyMap::parse`] reads back.
    pub fn to_text(&self) -> String {
        text::write(self)
    }

    /// SHA-256 of the canonical form. Maps are equal when their digests are.
    pub fn digest(&self) -> MapDigest {
        MapDigest(Sha256::digest(self.to_text().as_bytes()).into())
    }

    /// Reports whether any action sets a code point, so that a network can distinguish the classes.
    pub fn marks(&self) -> bool {
        let actions = self.rules.iter().map(|rule| rule.action);
        actions.chain([self.default]).any(Action::marks)
    }

    /// Returns the queue that `action` selects; `dscp` is the code point of the packet concerned.
    pub fn queue_of(&self, action: Action, dscp: u8) -> u8 {
        match action {
            Action::Queue(queue) | Action::Both(queue, _) => queue,
            Action::Dscp(dscp) => self.dscp_queue[usize::from(dscp & 63)],
            Action::DscpCopy => self.dscp_queue[usize::from(dscp & 63)],
        }
    }
}

impl Action {
    /// Reports whether the action sets a code point.
    pub fn marks(self) -> bool {
        !matches!(self, Action::Queue(_))
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

impl QueueConfig {
    /// The defaults of queue `queue`. The weight of a queue of code points is its class selector's
    /// number plus one; the weights of other queues are 8, 4, 2 and 1.
    pub fn of(queue: usize, of_code_points: bool) -> QueueConfig {
        const DEADLINES_MS: [u64; 4] = [10, 20, 50, 200];
        let weight = if of_code_points {
            DSCP_QUEUES.saturating_sub(queue).max(1) as u16
        } else {
            (8u16 >> queue.min(3)).max(1)
        };
        QueueConfig {
            weight,
            deadline: Duration::from_millis(DEADLINES_MS[queue.min(3)]),
            ..QueueConfig::default()
        }
    }
}

impl std::fmt::Display for MapDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for MapDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for MapDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<MapDigest, String> {
        let wanted = || format!("'{text}' is no digest: write 64 hex digits");
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wanted());
        }
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wanted())?;
        }
        Ok(MapDigest(digest))
    }
}

/// Returns the queue of each code point, the most urgent class selector first. If there are fewer
/// queues, the last one takes the rest. EF and VOICE-ADMIT go with CS5, AF4x with CS4.
pub fn dscp_queues(queues: usize) -> [u8; 64] {
    let last = queues.clamp(1, QUEUES_MAX) - 1;
    std::array::from_fn(|dscp| (7 - dscp / 8).min(last) as u8)
}

fn shipped(text: &str) -> PolicyMap {
    match PolicyMap::parse(text) {
        Ok((map, _)) => map,
        Err(problems) => panic!("a shipped map reads: {problems:?}"),
    }
}

#[cfg(test)]
mod tests;
