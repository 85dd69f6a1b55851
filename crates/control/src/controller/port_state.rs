//! The role of a port in forwarding: one rule, from a few facts.
//!
//! | role | facts | learns hosts, is flooded to | carries paths |
//! | --- | --- | --- | --- |
//! | `Gone` | down, or absent | no | no |
//! | `Held` | up, and LLDP may still be answered | no | no |
//! | `Edge` | LLDP was certainly sent out of it, without an answer | yes | no |
//! | `Claimed` | LLDP of ours passes, but does not prove a link yet | no | no |
//! | `Link` | the end of a proven link | no | yes |
//! | `Silent` | it was an end of a link since it came up, and LLDP no longer arrives | no | no |
//!
//! ```text
//! Gone ─ up ─> Held ─ settled ─> Edge
//!               │                 │
//!               └──> Claimed <────┘      LLDP of ours passes: from here on it is no edge
//!                       │
//!                       v
//!         Silent <──> Link               LLDP stops, and comes again
//! ```
//!
//! A port changes from `Link` or `Silent` to `Edge` only by going down. So packets are not flooded
//! to a former link, whatever is lost or late. Two ends of one cable are never both edges once a
//! single LLDP frame has passed between them.

use std::collections::BTreeMap;

use clock::{Duration, Instant};

use crate::Location;

/// How long a port's last accepted host is remembered.
pub(super) const MEMORY: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortRole {
    Gone,
    Held,
    Edge,
    Claimed,
    Link,
    Silent,
}

/// The administrator's statement about a port, if it is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stated {
    #[default]
    Nothing,
    /// The port is never a link.
    Edge,
    /// The port is an end of a link, and so never an edge.
    LinkEnd,
}

/// Links and claims that a port is an end of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub links: u32,
    pub claims: u32,
}

#[derive(Clone, Debug)]
pub(super) struct PortState {
    up: bool,
    is_settled: bool,
    was_link: bool,
    /// Whether its switch has reported it as live.
    was_live: bool,
    past: Past,
    /// Counts changes of the above that may change the role.
    changes: u64,
}

/// Facts about a port that outlive its going down and its removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// When the port was first known to have no switch behind it, since it was last a link.
    pub no_link: Option<Instant>,
    /// When a host was last accepted here, since it was last a link.
    pub host: Option<Instant>,
    /// Whether entries of an earlier process name a host here.
    pub is_told: bool,
}

impl PortState {
    /// Makes a port that is down as far as is known.
    pub(super) fn new(past: Past) -> PortState {
        PortState {
            up: false,
            is_settled: false,
            was_link: false,
            was_live: false,
            past,
            changes: 0,
        }
    }

    /// The number of changes that may have changed the role.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Whether discovery has not had its chance yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.up && !self.is_settled
    }

    pub(super) fn was_link(&self) -> bool {
        self.was_link
    }

    pub(super) fn was_live(&self) -> bool {
        self.was_live
    }

    pub(super) fn past(&self) -> Past {
        self.past
    }

    pub(super) fn handle_up(&mut self) {
        self.changes += 1;
        self.up = true;
        self.is_settled = false;
        self.was_link = false;
    }

    pub(super) fn handle_down(&mut self, now: Instant) {
        self.changes += 1;
        self.up = false;
        self.past.no_link.get_or_insert(now);
    }

    pub(super) fn handle_live(&mut self) {
        self.was_live = true;
    }

    /// Notes that LLDP was certainly sent out of the port without an answer in time.
    pub(super) fn settle(&mut self, now: Instant) {
        self.changes += 1;
        self.is_settled = true;
        self.past.no_link.get_or_insert(now);
    }

    /// Notes that the port is an end of a link from now on.
    pub(super) fn handle_link(&mut self) {
        self.changes += 1;
        self.is_settled = true;
        self.was_link = true;
        self.past = Past::default();
    }

    /// Notes that the claim's LLDP no longer passes: discovery has another chance.
    pub(super) fn handle_claim_lost(&mut self) {
        self.changes += 1;
        self.is_settled = false;
    }

    pub(super) fn handle_host(&mut self, now: Instant) {
        self.past.host = Some(now);
    }

    pub(super) fn handle_told(&mut self) {
        self.past.is_told = true;
    }

    pub(super) fn role(&self, ends: Ends, stated: Stated) -> PortRole {
        match (stated, ends) {
            _ if !self.up => PortRole::Gone,
            (Stated::Edge, _) => PortRole::Edge,
            (_, Ends { links: 1.., .. }) => PortRole::Link,
            _ if self.was_link => PortRole::Silent,
            (_, Ends { claims: 1.., .. }) => PortRole::Claimed,
            (Stated::LinkEnd, _) => PortRole::Held,
            _ if self.is_settled => PortRole::Edge,
            _ => PortRole::Held,
        }
    }
}

impl Past {
    /// Whether hosts here are evidence against a link to `there`. A host heard before `there` was
    /// known to have no switch behind it may have been heard through `there`.
    pub(super) fn speaks_against(&self, now: Instant, there: &Past) -> bool {
        let is_late = |host: Instant| {
            let since = there.no_link.is_some_and(|since| host >= since);
            since && now.since(host) < MEMORY
        };
        self.is_told || self.host.is_some_and(is_late)
    }
}

/// Facts about removed ports.
#[derive(Default)]
pub(super) struct Pasts(BTreeMap<Location, (Instant, Past)>);

/// Maximum number of remembered ports. One more replaces those that were removed first.
const PASTS_MAX: usize = 65_536;

impl Pasts {
    pub(super) fn note(&mut self, now: Instant, at: Location, past: Past) {
        if past == Past::default() {
            return;
        }
        if self.0.len() >= PASTS_MAX {
            let mut gone: Vec<Instant> = self.0.values().map(|(gone, _)| *gone).collect();
            gone.sort();
            let middle = gone[gone.len() / 2];
            self.0.retain(|_, (gone, _)| *gone > middle);
        }
        self.0.insert(at, (now, past));
    }

    pub(super) fn recall(&mut self, at: Location) -> Past {
        self.0.remove(&at).map_or(Past::default(), |(_, past)| past)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Up,
        Down,
        Settle,
        Claim,
        ClaimLost,
        Link,
        LinkLost,
        Host,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            1 => Just(Step::Up),
            1 => Just(Step::Down),
            3 => Just(Step::Settle),
            3 => Just(Step::Claim),
            2 => Just(Step::ClaimLost),
            3 => Just(Step::Link),
            3 => Just(Step::LinkLost),
            3 => Just(Step::Host),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// In any order of events, an end of a link is an edge again only after it has been down,
        /// and after LLDP was sent once more.
        #[test]
        fn an_end_of_a_link_is_no_edge_until_it_was_down(steps in steps()) {
            let mut port = PortState::new(Past::default());
            let mut ends = Ends::default();
            let (mut was_link, mut is_settled, mut now) = (false, false, Instant::START);
            for step in steps {
                now += Duration::from_secs(1);
                match step {
                    Step::Up if !port.is_up() => {
                        port.handle_up();
                        (was_link, is_settled) = (false, false);
                    }
                    Step::Down => {
                        port.handle_down(now);
                        ends = Ends::default();
                    }
                    Step::Settle if port.is_fresh() => {
                        port.settle(now);
                        is_settled = true;
                    }
                    Step::Claim => ends.claims += 1,
                    Step::ClaimLost if ends.claims > 0 => {
                        ends.claims -= 1;
                        port.handle_claim_lost();
                        is_settled = false;
                    }
                    Step::Link if port.is_up() => {
                        ends.links += 1;
                        port.handle_link();
                        (was_link, is_settled) = (true, true);
                    }
                    Step::LinkLost => ends.links = ends.links.saturating_sub(1),
                    Step::Host => port.handle_host(now),
                    _ => {}
                }
                let role = port.role(ends, Stated::Nothing);
                if role == PortRole::Edge {
                    let has_ended = ends == Ends::default();
                    prop_assert!(port.is_up() && !was_link && is_settled && has_ended);
                }
                prop_assert_eq!(role == PortRole::Link, port.is_up() && ends.links > 0);
                prop_assert_ne!(port.role(ends, Stated::LinkEnd), PortRole::Edge);
            }
        }
    }

    fn at(n: u64) -> Instant {
        Instant::START + Duration::from_secs(n)
    }

    #[test]
    fn a_host_speaks_against_a_link_that_it_cannot_have_come_through() {
        let mut here = PortState::new(Past::default());
        let mut there = PortState::new(Past::default());
        here.handle_up();
        here.settle(at(1));
        here.handle_host(at(5));
        there.handle_up();
        assert!(
            !here.past().speaks_against(at(6), &there.past()),
            "it may have"
        );
        there.settle(at(4));
        assert!(here.past().speaks_against(at(6), &there.past()));
        here.handle_down(at(7));
        here.handle_up();
        assert!(
            here.past().speaks_against(at(8), &there.past()),
            "port amnesia"
        );
        assert!(!here.past().speaks_against(at(6 + 24 * 3600), &there.past()));
        here.handle_link();
        assert!(!here.past().speaks_against(at(8), &there.past()));
    }
}
