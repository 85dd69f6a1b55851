//! One controller serves a switch. The generation ids of OpenFlow's roles decide which.
//!
//! Controllers that share a switch do not know of each other. Each has a [`Guard`] for its
//! connection. The controller that serves the switch is master and claims the role again every two
//! seconds, under the next generation id (OpenFlow 1.3.5, 6.3.6). The switch reports the id to any
//! controller that asks, and a lost role to the controller that lost it (ROLE_STATUS).
//!
//! - A newcomer reads the id, claims the role with the next id, and serves after 250 ms without an
//!   objection. So a restart costs no more than these 250 ms.
//! - A process that takes over a connection of its predecessor, with the role of master, serves
//!   without a claim.
//! - A newcomer that stands by at other switches stands by here too at first: one controller should
//!   serve all switches.
//! - A controller that serves and loses the role to a newcomer claims the role again at once,
//!   unless its last confirmation as master is over four seconds old: then it was stopped, and
//!   another controller serves now.
//! - A controller that stands by is slave, gets no packets, and reads the id each second. It claims
//!   the role when the id has not moved for five seconds.
//! - A claim far from the last id is not a guard's. Such a controller gives no sign of life, so
//!   guards leave it alone until the id moves in a guard's steps, or the switch connects again.
//!
//! A switch that refuses role requests, or does not answer the first within a second, has no roles:
//! every controller serves it.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use openflow::ErrorKind;
use openflow::message::{Role, RoleMessage, RoleStatus};

/// The time that the switch has to answer the first request.
pub const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);
/// The time from a newcomer's claim to its service.
pub const PROBATION: Duration = Duration::from_millis(250);
/// The interval at which the serving controller raises the generation id.
const TICK: Duration = Duration::from_secs(2);
/// The interval at which a controller that stands by reads the generation id.
const POLL: Duration = Duration::from_secs(1);
/// An id that has not moved for this long has lost its owner.
const STAGNANT: Duration = Duration::from_secs(5);
/// A controller not confirmed as master for this long may have been replaced for good.
const BLIND: Duration = Duration::from_secs(4);
/// A controller that loses the role again so soon after it claimed it yields.
const RECLAIM_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of claims against newcomers within [`RECLAIM_WINDOW`]; then the guard yields.
const RECLAIMS_MAX: u32 = 5;
const RECLAIM_WINDOW: Duration = Duration::from_secs(60);
/// The largest step of the id that can be a guard's.
const STEP_MAX: u64 = 4;

/// A decision of a guard.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardOutput {
    /// Send this role request. At most one request is unanswered at a time.
    Request(RoleMessage),
    /// Serve the switch from now on.
    Serve,
    /// Another controller serves the switch.
    Aside,
}

/// Counts of one guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardCounters {
    /// Times that the guard asked to be master of a switch that it did not serve.
    pub claims: u64,
    /// Times that the guard took the role back from a newcomer.
    pub reclaims: u64,
    /// Times that another controller got or kept the switch.
    pub asides: u64,
}

/// The decision about one connection.
#[derive(Debug)]
pub struct Guard {
    state: State,
    asked: Option<Asked>,
    /// The last generation id that the switch reported; all ones if it has none.
    generation: u64,
    /// The id of the last claim.
    own: u64,
    /// The id under which the role was lost, until the guard has acted on the loss.
    lost: Option<u64>,
    is_serving: bool,
    /// Whether [`GuardOutput::Aside`] was the last decision.
    is_aside: bool,
    /// Whether the switch may have refused messages of the application meanwhile.
    has_refused: bool,
    /// Whether the guard lets others claim first.
    is_patient: bool,
    /// Whether the connection may have the role of master already.
    is_resumed: bool,
    reclaimed_at: Option<Instant>,
    window_since: Instant,
    window_count: u32,
    outputs: VecDeque<GuardOutput>,
    counters: GuardCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first request has no answer yet.
    New,
    /// The switch has no roles, as far as is known.
    WithoutRoles,
    /// The role is claimed. The time after which the guard serves, once the claim is granted.
    Probation(Option<Instant>),
    Serving {
        tick: Instant,
        /// The time of the last request whose answer confirmed the role of master.
        confirmed_at: Instant,
        /// Whether the pending request takes the role back.
        is_reclaiming: bool,
    },
    Aside {
        poll: Instant,
        moved_at: Instant,
        /// Whether the serving controller raises the id, so the guard notices when that one stops.
        may_claim: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    role: Role,
    at: Instant,
}

impl Guard {
    /// Starts with a question to the switch, in [`Guard::poll_output`]. If `is_patient`, the guard
    /// stands by at first and claims the switch only if nobody serves it: another controller serves
    /// other switches, and should serve all.
    pub fn new(now: Instant, is_patient: bool) -> Guard {
        let mut guard = Guard {
            state: State::New,
            asked: None,
            generation: u64::MAX,
            own: u64::MAX,
            lost: None,
            is_serving: false,
            is_aside: false,
            has_refused: false,
            is_patient,
            is_resumed: false,
            reclaimed_at: None,
            window_since: now,
            window_count: 0,
            outputs: VecDeque::new(),
            counters: GuardCounters::default(),
        };
        guard.ask(now, Role::NoChange);
        guard
    }

    /// Starts like [`Guard::new`], on a connection that another process of this controller has
    /// opened. If the switch reports that the connection is still master, nobody has claimed the
    /// role since. Then the guard serves at once.
    pub fn resume(now: Instant, is_patient: bool) -> Guard {
        Guard {
            is_resumed: true,
            ..Guard::new(now, is_patient)
        }
    }

    /// Handles the answer to the last request.
    pub fn handle_reply(&mut self, now: Instant, reply: RoleMessage) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let is_master = !matches!(reply.role, Role::Secondary);
        let id = reply.generation_id;
        let step = id.wrapping_sub(self.generation);
        self.generation = id;
        if is_master {
            self.lost = None;
        }
        match self.state {
            State::New if self.is_resumed && reply.role == Role::Primary => {
                self.own = id;
                self.serve(now, asked.at);
            }
            State::New if self.is_patient => self.stand_aside(now, true),
            State::New | State::WithoutRoles => self.claim(now),
            State::Probation(_) if !is_master => self.lose(now),
            State::Probation(_) if asked.role == Role::Primary => {
                self.state = State::Probation(Some(now + PROBATION));
            }
            State::Probation(_) => self.serve(now, asked.at),
            State::Serving { .. } if !is_master => self.lose(now),
            State::Serving { .. } if asked.role == Role::Primary => self.confirm(now, asked.at),
            State::Serving { .. } => self.ask(now, Role::Primary),
            State::Aside {
                mut moved_at,
                mut may_claim,
                ..
            } => {
                if step != 0 {
                    moved_at = asked.at;
                    may_claim |= step <= STEP_MAX;
                }
                // This connection is master, so there is no other.
                may_claim |= reply.role == Role::Primary;
                self.state = State::Aside {
                    poll: now + POLL,
                    moved_at,
                    may_claim,
                };
                if is_master && asked.role == Role::NoChange {
                    self.ask(now, Role::Secondary);
                } else if may_claim && asked.at.since(moved_at) >= STAGNANT {
                    self.claim(now);
                }
            }
        }
    }

    /// Handles an error instead of the answer to the last request.
    pub fn handle_refused(&mut self, now: Instant, kind: ErrorKind) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let is_stale = kind == ErrorKind::ROLE_STALE;
        match &mut self.state {
            State::New | State::WithoutRoles => self.serve_without_roles(),
            State::Probation(_) if asked.role == Role::NoChange => self.serve(now, asked.at),
            State::Probation(_) if is_stale => self.stand_aside(now, true),
            State::Probation(_) => self.serve_without_roles(),
            State::Serving {
                is_reclaiming: true,
                ..
            } => self.stand_aside(now, true),
            State::Serving { tick: next, .. } | State::Aside { poll: next, .. } => {
                *next = now + POLL;
                if self.lost.is_some() {
                    self.lose(now);
                }
            }
        }
    }

    /// Handles a notice of the switch that the role has changed.
    pub fn handle_status(&mut self, now: Instant, status: RoleStatus) {
        let has_role = matches!(self.state, State::Probation(_) | State::Serving { .. });
        if status.role == Role::Secondary && has_role {
            self.lost = Some(status.generation_id);
            self.generation = status.generation_id;
            // The answer to a pending request has a later role.
            if self.asked.is_none() {
                self.lose(now);
            }
        }
    }

    /// Notes that the switch has refused a message of the application because the role was slave.
    /// Once the guard has the role again, the application starts over: it cannot know which message
    /// was refused.
    pub fn handle_slave_error(&mut self) {
        let is_lost = match self.state {
            State::Serving { is_reclaiming, .. } => is_reclaiming || self.lost.is_some(),
            _ => false,
        };
        self.has_refused |= is_lost;
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self.due() {
            Some(due) if due <= now => {}
            _ => return,
        }
        match self.state {
            State::New => self.serve_without_roles(),
            _ => self.ask(now, Role::NoChange),
        }
    }

    pub fn poll_output(&mut self) -> Option<GuardOutput> {
        self.outputs.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due()
    }

    /// The time of the request that has no answer yet, if the switch has answered one before.
    pub fn waits_since(&self) -> Option<Instant> {
        self.asked
            .filter(|_| self.has_roles())
            .map(|asked| asked.at)
    }

    /// Whether the switch has answered a role request.
    pub fn has_roles(&self) -> bool {
        !matches!(self.state, State::New | State::WithoutRoles)
    }

    pub fn is_serving(&self) -> bool {
        self.is_serving
    }

    /// Whether the guard asks for the role, or is about to.
    pub fn is_undecided(&self) -> bool {
        !self.is_serving && !matches!(self.state, State::Aside { .. })
    }

    /// Whether another controller serves the switch.
    pub fn is_aside(&self) -> bool {
        self.is_aside
    }

    pub fn counters(&self) -> GuardCounters {
        self.counters
    }

    fn due(&self) -> Option<Instant> {
        match (self.state, self.asked) {
            (State::New, Some(asked)) => Some(asked.at + FIRST_ANSWER_MAX),
            (_, Some(_)) => None,
            (State::Probation(due), None) => due,
            (State::Serving { tick, .. }, None) => Some(tick),
            (State::Aside { poll, .. }, None) => Some(poll),
            (State::New | State::WithoutRoles, None) => None,
        }
    }

    fn ask(&mut self, now: Instant, role: Role) {
        let generation_id = match role {
            Role::Primary => self.generation.wrapping_add(1),
            _ => self.generation,
        };
        if role == Role::Primary {
            self.own = generation_id;
        }
        self.asked = Some(Asked { role, at: now });
        self.outputs
            .push_back(GuardOutput::Request(RoleMessage::new(role, generation_id)));
    }

    fn claim(&mut self, now: Instant) {
        self.counters.claims += 1;
        self.lost = None;
        self.state = State::Probation(None);
        self.ask(now, Role::Primary);
    }

    /// Handles the loss of the role, or a claim that was not granted.
    fn lose(&mut self, now: Instant) {
        let lost = self.lost.take();
        // A newcomer's claim, or one that was made at the same time as ours.
        let by_guard = lost.is_none_or(|id| id.wrapping_sub(self.own) <= 1);
        if let State::Serving { confirmed_at, .. } = self.state
            && lost.is_some()
            && by_guard
            && now.since(confirmed_at) <= BLIND
            && self.may_reclaim(now)
        {
            self.counters.reclaims += 1;
            self.state = State::Serving {
                tick: now,
                confirmed_at,
                is_reclaiming: true,
            };
            return self.ask(now, Role::Primary);
        }
        // A guard that stands by already makes only one claim without a sign that the id is raised.
        let is_second = self.is_aside && matches!(self.state, State::Probation(_));
        self.stand_aside(now, by_guard && !is_second);
    }

    fn may_reclaim(&mut self, now: Instant) -> bool {
        if now.since(self.window_since) > RECLAIM_WINDOW {
            self.window_since = now;
            self.window_count = 0;
        }
        let is_first = self
            .reclaimed_at
            .is_none_or(|at| now.since(at) > RECLAIM_PAUSE);
        let may_reclaim = is_first && self.window_count < RECLAIMS_MAX;
        if may_reclaim {
            self.window_count += 1;
            self.reclaimed_at = Some(now);
        }
        may_reclaim
    }

    fn confirm(&mut self, now: Instant, asked_at: Instant) {
        self.state = State::Serving {
            tick: now + TICK,
            confirmed_at: asked_at,
            is_reclaiming: false,
        };
        if std::mem::take(&mut self.has_refused) {
            self.outputs
                .extend([GuardOutput::Aside, GuardOutput::Serve]);
        }
    }

    fn serve(&mut self, now: Instant, asked_at: Instant) {
        self.has_refused = false;
        self.confirm(now, asked_at);
        self.start_serving();
    }

    fn serve_without_roles(&mut self) {
        self.state = State::WithoutRoles;
        self.start_serving();
    }

    fn start_serving(&mut self) {
        self.is_aside = false;
        if !std::mem::replace(&mut self.is_serving, true) {
            self.outputs.push_back(GuardOutput::Serve);
        }
    }

    fn stand_aside(&mut self, now: Instant, may_claim: bool) {
        self.state = State::Aside {
            poll: now,
            moved_at: now,
            may_claim,
        };
        self.is_serving = false;
        if !std::mem::replace(&mut self.is_aside, true) {
            self.counters.asides += 1;
            self.outputs.push_back(GuardOutput::Aside);
        }
    }
}
