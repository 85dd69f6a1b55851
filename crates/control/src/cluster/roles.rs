//! The role of this member at each switch: requested, answered, taken away.

use clock::{Duration, Instant};
use openflow::message::{Role, RoleMessage};

use super::term::{Generation, ShardId};
use crate::ConnectionId;

/// The maximum time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The pause after a request without an answer, or one that was refused again: doubled each time.
const BACK_OFF: Duration = Duration::from_millis(25);
const BACK_OFF_MAX: Duration = Duration::from_secs(8);
/// A switch that was kept for this long is requested again at once when it is lost.
const KEPT: Duration = Duration::from_secs(10);

/// An error that concerns roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleRefusal {
    /// OFPRRFC_STALE to the role request with this number.
    Stale { number: u32 },
    /// Another error to the role request with this number, or the switch speaks OpenFlow 1.0 and
    /// has no roles. Only the owner of its shard keeps its connection.
    Other { number: u32 },
    /// OFPBRC_IS_SLAVE to any message.
    IsSlave,
}

/// The role that this member wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Master(Generation),
    Slave(Generation),
    /// SLAVE with the generation that the switch reports: the shard's order is not known.
    AnySlave,
    /// The present role, until another member takes over.
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Unknown,
    Slave,
    Master(Generation),
    /// The switch does not support roles.
    NoRoles,
}

/// A connected switch.
#[derive(Debug)]
pub(super) struct Switch {
    pub connection: ConnectionId,
    pub shard: ShardId,
    held: Held,
    pub is_served: bool,
    /// The generation that the switch has, as far as this member knows.
    pub seen: Option<Generation>,
    /// The number of store reads that had begun when `seen` was learned.
    pub seen_reads: u64,
    /// When `seen` was last learned.
    pub seen_at: Instant,
    /// The generation with which another controller has become master, though this member had it:
    /// the store has assigned it twice.
    rival: Option<Generation>,
    asked: Option<Asked>,
    must_ask: bool,
    not_before: Instant,
    failures: u32,
    master_since: Instant,
    /// The switch was given up because the foreign generation is too great.
    pub is_exhausted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u32,
    request: RoleMessage,
    until: Instant,
}

/// The next step at a switch: a message, or the end of a connection that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Ask(RoleMessage),
    /// This member has the wanted role at the switch: serve the switch if the role is master.
    Serve,
    /// A switch without roles that another member serves.
    Close,
}

impl Switch {
    pub(super) fn new(now: Instant, connection: ConnectionId, shard: ShardId) -> Switch {
        Switch {
            connection,
            shard,
            held: Held::Unknown,
            is_served: false,
            seen: None,
            seen_reads: 0,
            seen_at: now,
            rival: None,
            asked: None,
            must_ask: false,
            not_before: now,
            failures: 0,
            master_since: now,
            is_exhausted: false,
        }
    }

    /// Decides the next step. Also returns whether a request has just timed out.
    pub(super) fn step(&mut self, now: Instant, want: Want, is_probed: bool) -> (Step, bool) {
        let mut is_late = false;
        if let Some(asked) = self.asked {
            if now < asked.until {
                return (Step::Nothing, false);
            }
            is_late = true;
            self.asked = None;
            self.must_ask |= asked.request.role == Role::NoChange;
            self.fail(now);
        }
        if now < self.not_before {
            return (Step::Nothing, is_late);
        }
        (self.next(want, is_probed), is_late)
    }

    fn next(&self, want: Want, is_probed: bool) -> Step {
        let ask = |role, generation: Generation| Step::Ask(RoleMessage::new(role, generation.0));
        if self.held == Held::NoRoles {
            return match want {
                Want::Master(_) => Step::Serve,
                Want::Keep => Step::Nothing,
                Want::Slave(_) | Want::AnySlave => Step::Close,
            };
        }
        let is_fresh = |g: Generation| self.seen.is_none_or(|seen| !g.is_stale_after(seen));
        match want {
            _ if self.must_ask || is_probed => ask(Role::NoChange, Generation(0)),
            Want::Master(g) if self.held == Held::Master(g) => Step::Serve,
            Want::Master(g) if is_fresh(g) && self.rival != Some(g) => ask(Role::Primary, g),
            Want::Keep => Step::Nothing,
            _ if self.held == Held::Slave => Step::Nothing,
            Want::AnySlave if self.held == Held::Unknown && self.seen.is_none() => {
                ask(Role::NoChange, Generation(0))
            }
            // A slave's generation never exceeds the master's.
            Want::Master(g) | Want::Slave(g) => {
                let seen = self.seen.filter(|_| !is_fresh(g));
                ask(Role::Secondary, seen.unwrap_or(g))
            }
            Want::AnySlave => ask(Role::Secondary, self.seen.unwrap_or(Generation(0))),
        }
    }

    pub(super) fn note_asked(&mut self, now: Instant, number: u32, request: RoleMessage) {
        self.must_ask &= request.role != Role::NoChange;
        self.asked = Some(Asked {
            number,
            request,
            until: now + ANSWER_MAX,
        });
    }

    fn fail(&mut self, now: Instant) {
        let pause = BACK_OFF * 2u32.pow(self.failures.min(9));
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause.min(BACK_OFF_MAX);
    }

    /// Returns whether the reply answers the outstanding request.
    pub(super) fn handle_reply(&mut self, now: Instant, number: u32, reply: RoleMessage) -> bool {
        let Some(asked) = self.asked.take_if(|asked| asked.number == number) else {
            return false;
        };
        let generation = Generation(reply.generation_id);
        match (asked.request.role, reply.role) {
            (Role::Primary, Role::Primary) => {
                let generation = Generation(asked.request.generation_id);
                self.become_master(now, generation);
                self.seen = Some(generation);
            }
            (Role::Secondary, Role::Secondary) => {
                self.held = Held::Slave;
                self.failures = 0;
                self.seen = Some(Generation(asked.request.generation_id));
            }
            (_, role) => {
                match role {
                    Role::Secondary => self.held = Held::Slave,
                    Role::Primary => self.become_master(now, generation),
                    Role::Equal | Role::NoChange => self.held = Held::Unknown,
                }
                // Open vSwitch reports NONE before it has a generation. Zero asserts nothing.
                self.seen = Some(generation).filter(|g| *g != Generation::NONE);
                if self.seen.is_none() && self.held == Held::Unknown {
                    self.seen = Some(Generation(0));
                }
            }
        }
        true
    }

    fn become_master(&mut self, now: Instant, generation: Generation) {
        if !matches!(self.held, Held::Master(_)) {
            self.master_since = now;
        }
        self.held = Held::Master(generation);
    }

    /// Returns whether the outstanding request was refused as stale.
    pub(super) fn handle_refused(&mut self, now: Instant, refusal: RoleRefusal) -> bool {
        let is_asked = |number| self.asked.is_some_and(|asked| asked.number == number);
        match refusal {
            RoleRefusal::Stale { number } if is_asked(number) => {
                self.asked = None;
                self.must_ask = true;
                // After the first refusal, ask at once.
                match self.failures {
                    0 => self.failures = 1,
                    _ => self.fail(now),
                }
                return true;
            }
            RoleRefusal::Other { number } if is_asked(number) => {
                self.asked = None;
                self.held = Held::NoRoles;
            }
            RoleRefusal::IsSlave if self.is_served && self.held != Held::NoRoles => {
                self.lose(now);
                self.must_ask = true;
            }
            _ => {}
        }
        false
    }

    /// Notes that another controller has become master.
    pub(super) fn handle_demotion(&mut self, now: Instant, generation: Generation) {
        if self.held == Held::Master(generation) {
            self.rival = Some(generation);
        }
        self.lose(now);
        self.held = Held::Slave;
        self.seen = Some(generation).filter(|g| *g != Generation::NONE);
    }

    /// Whether another member uses the generation that this member wants to use.
    pub(super) fn has_rival(&self, want: Want) -> bool {
        matches!(want, Want::Master(g) if self.rival == Some(g))
    }

    fn lose(&mut self, now: Instant) {
        if matches!(self.held, Held::Master(_)) {
            match now - self.master_since < KEPT {
                true => self.fail(now),
                false => self.failures = 0,
            }
        }
        self.held = Held::Unknown;
    }

    /// When to call [`Switch::step`] again.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self.asked {
            Some(asked) => Some(asked.until),
            None => (now < self.not_before).then_some(self.not_before),
        }
    }
}
