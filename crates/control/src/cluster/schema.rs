//! Decides when the store's next schema comes into use.
//!
//! While a cluster is upgraded member by member, two versions run together. The next schema waits
//! until every member that has an entry or a place, or is heard, reports that it reads that schema.
//! It waits a while longer, because a member of the earlier version that returns afterwards serves
//! nothing.

use clock::{Duration, Instant};

use super::ClusterConfig;
use super::store::Snapshot;
use super::term::{MEMBERS_MAX, MemberId};

/// How long all members must have been able to read the next schema.
const STEADY: Duration = Duration::from_secs(30);

/// The schema that all members read, and since when.
#[derive(Debug, Default)]
pub(super) struct Gate {
    next: Option<(u32, Instant)>,
}

impl Gate {
    /// Checks the members in the store, and those in `there`: members with a place in an order, and
    /// members that are heard.
    pub(super) fn look<'a>(
        &mut self,
        now: Instant,
        config: &ClusterConfig,
        view: Option<&Snapshot>,
        there: impl IntoIterator<Item = &'a MemberId>,
    ) {
        let next = view.and_then(|view| next(config, view, there));
        self.next = next.map(|next| match self.next {
            Some((known, since)) if known == next => (known, since),
            _ => (next, now),
        });
    }

    /// The schema that is to come into use.
    pub(super) fn due(&self, now: Instant) -> Option<u32> {
        let (next, since) = self.next?;
        (since + STEADY <= now).then_some(next)
    }
}

/// The greatest schema that all members read, if it is not in use yet.
fn next<'a>(
    config: &ClusterConfig,
    view: &Snapshot,
    there: impl IntoIterator<Item = &'a MemberId>,
) -> Option<u32> {
    let (in_use, _) = view.schema?;
    let own = view.members.get(&config.id)?;
    let least = view.members.values().map(|member| member.reads).min()?;
    if own.reads != config.reads || least <= in_use || view.members.len() >= MEMBERS_MAX {
        // With that many members, some are not in the view.
        return None;
    }
    let mut there = there.into_iter();
    let are_known = there.all(|id| view.members.contains_key(id));
    are_known.then_some(least)
}
