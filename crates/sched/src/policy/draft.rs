//! A map as it was read, with the positions of its parts, and the map made from it.
//!
//! A rule with a mistake stays in the draft, so that numbers and positions of the other rules are
//! right, but it is not compared with them.

use std::collections::BTreeMap;

use clock::Duration;

use super::problem::{Code, Position, Problem};
use super::{
    Action, Algorithm, BYTES_HARD_DEFAULT, DSCP_QUEUES, MapDigest, PolicyMap, Profile, QUEUES_MAX,
    QueueConfig, Rule, Scheduling, dscp_queues,
};
/// Circumstances that a map is checked against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Against {
    /// The generation in use: a new one must be greater.
    pub generation: Option<u64>,
    /// The digest that was announced.
    pub digest: Option<MapDigest>,
    /// Whether the carrier has queues only and cannot set code points.
    pub queues_only: bool,
}

/// A rule as it was read.
pub(super) struct RuleDraft {
    pub at: Position,
    pub rule: Rule,
    /// The position of each of `rule.fields`.
    pub fields_at: Vec<Position>,
    pub action_at: Position,
    /// Whether the whole rule was understood.
    pub is_whole: bool,
}

/// The settings of one `Queue` line.
#[derive(Default)]
pub(super) struct QueueDraft {
    pub at: Position,
    pub rate_at: Option<Position>,
    pub weight: Option<u16>,
    pub min_rate: Option<u64>,
    pub deadline: Option<Duration>,
    pub messages_max: Option<usize>,
    pub bytes_max: Option<usize>,
    pub age_max: Option<Duration>,
}

/// A text as it was read.
#[derive(Default)]
pub(super) struct Draft {
    pub generation: Option<(u64, Position)>,
    pub profile: Option<Profile>,
    pub rules: Vec<RuleDraft>,
    pub default: Option<(Action, Position)>,
    pub algorithm: Option<(Algorithm, Position)>,
    pub queue_count: Option<usize>,
    pub bytes_hard: Option<usize>,
    pub packet_out_free: bool,
    pub link_rate: Option<u64>,
    pub queues: BTreeMap<u8, QueueDraft>,
    pub dscp: Vec<(u8, u8, Position)>,
    /// Position of the last line with content.
    pub end: Position,
}

impl Draft {
    /// Every queue that the text names outside of its actions, with its position.
    pub fn queues_named(&self) -> impl Iterator<Item = (u8, Position)> {
        let of_dscp = self.dscp.iter().map(|(_, queue, at)| (*queue, *at));
        of_dscp.chain(self.queues.iter().map(|(id, queue)| (*id, queue.at)))
    }

    pub fn algorithm_at(&self) -> Position {
        self.algorithm.map_or(self.end, |(_, at)| at)
    }

    /// Position of the last rate of a queue.
    pub fn rate_at(&self) -> Position {
        let places = self.queues.values().filter_map(|queue| queue.rate_at);
        places.max().unwrap_or(self.end)
    }

    /// Number of queues, and whether the text states it.
    pub fn queue_count(&self) -> (usize, bool) {
        if let Some(count) = self.queue_count {
            return (count, true);
        }
        if let Some(last) = self.queues.keys().next_back() {
            return (usize::from(*last) + 1, true);
        }
        let actions = self.rules.iter().map(|draft| draft.rule.action);
        let actions = actions.chain(self.default.map(|(action, _)| action));
        let used = actions.map(|action| match action {
            Action::Queue(queue) | Action::Both(queue, _) => usize::from(queue) + 1,
            Action::Dscp(_) | Action::DscpCopy => DSCP_QUEUES,
        });
        (used.max().unwrap_or(1).min(QUEUES_MAX), false)
    }
}

pub(super) fn assemble(draft: &Draft) -> PolicyMap {
    let (count, _) = draft.queue_count();
    let count = count.clamp(1, QUEUES_MAX);
    let has_code_points = draft
        .rules
        .iter()
        .any(|draft| matches!(draft.rule.action, Action::Dscp(_) | Action::DscpCopy));
    let default = match draft.default {
        Some((action, _)) => action,
        None if has_code_points => Action::Dscp(0),
        None => Action::Queue((count - 1) as u8),
    };
    let queues = (0..count).map(|at| {
        let implied = if draft.rules.is_empty() {
            QueueConfig::default()
        } else {
            QueueConfig::of(at, has_code_points)
        };
        let Some(said) = draft.queues.get(&(at as u8)) else {
            return implied;
        };
        QueueConfig {
            weight: said.weight.unwrap_or(implied.weight),
            min_rate: said.min_rate,
            deadline: said.deadline.unwrap_or(implied.deadline),
            messages_max: said.messages_max.unwrap_or(implied.messages_max),
            bytes_max: said.bytes_max.unwrap_or(implied.bytes_max),
            age_max: said.age_max.unwrap_or(implied.age_max),
        }
    });
    let mut dscp_queue = dscp_queues(count);
    for (dscp, queue, _) in &draft.dscp {
        dscp_queue[usize::from(*dscp)] = (*queue).min(count as u8 - 1);
    }
    // Without rules all messages are alike and wait in one queue.
    let algorithm = match draft.algorithm {
        Some((algorithm, _)) => algorithm,
        None if draft.rules.is_empty() => Algorithm::Fifo,
        None => Algorithm::default(),
    };
    PolicyMap {
        generation: draft.generation.map_or(0, |(generation, _)| generation),
        profile: draft.profile.unwrap_or_default(),
        rules: draft.rules.iter().map(|d| d.rule.clone()).collect(),
        default,
        dscp_queue,
        link_rate: draft.link_rate,
        scheduling: Scheduling {
            algorithm,
            queues: queues.collect(),
            bytes_hard: draft.bytes_hard.unwrap_or(BYTES_HARD_DEFAULT),
            packet_out_free: draft.packet_out_free,
        },
    }
}

pub(super) fn check_against(
    draft: &Draft,
    map: &PolicyMap,
    against: &Against,
    problems: &mut Vec<Problem>,
) {
    if let Some(active) = against.generation
        && map.generation <= active
    {
        let at = draft.generation.map_or(draft.end, |(_, at)| at);
        problems.push(Problem::new(
            Code::Generation,
            at,
            "Generation",
            format!("{} is not above {active}, which is in use", map.generation),
            format!("Generation: {}", active.saturating_add(1)),
        ));
    }
    // A map with errors has no canonical form to compute a digest of.
    let is_sound = !problems.iter().any(|problem| problem.code.is_error());
    if let Some(announced) = against.digest
        && is_sound
        && map.digest() != announced
    {
        problems.push(Problem::new(
            Code::Digest,
            Position::default(),
            "digest",
            format!("{} is not {announced}, which was announced", map.digest()),
            "the map that the digest was taken of",
        ));
    }
    if against.queues_only {
        for rule in draft.rules.iter().filter(|d| d.rule.action.marks()) {
            problems.push(Problem::new(
                Code::Carrier,
                rule.action_at,
                "action",
                "the carrier cannot mark, so only the order of its queues holds",
                "queue_id:N, or use a carrier that marks (a QUIC relay)",
            ));
        }
    }
}
