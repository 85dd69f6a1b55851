//! Requests that were refused because of who sent them: counted, and limited by source.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clock::{Budget, Instant};

use super::listener::Source;

/// The rate per second, and the burst, of wrong tokens from one source that are answered and
/// logged. Audit lines for requests without a user have the same limits.
const WRONG_RATE: u32 = 1;
const WRONG_BURST: u32 = 10;
/// The most sources; beyond these, the source that was wrong longest ago is forgotten.
const SOURCES_MAX: usize = 1024;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request does not identify its sender.
    Nobody,
    /// The token belongs to no user.
    Wrong,
    /// A wrong token, from a source that sends many.
    Limited,
    /// The sender's role does not permit the request.
    Role,
}

impl Reason {
    pub const ALL: [Reason; 4] = [Reason::Nobody, Reason::Wrong, Reason::Limited, Reason::Role];

    pub fn name(self) -> &'static str {
        match self {
            Reason::Nobody => "nobody",
            Reason::Wrong => "wrong",
            Reason::Limited => "limited",
            Reason::Role => "role",
        }
    }
}

#[derive(Default)]
pub struct Logins {
    refused: [AtomicU64; Reason::ALL.len()],
    by_source: Mutex<BTreeMap<Source, Wrong>>,
    audited: Mutex<BTreeMap<Source, Wrong>>,
}

struct Wrong {
    budget: Budget,
    last: Instant,
}

impl Logins {
    pub fn count(&self, reason: Reason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused(&self) -> [(Reason, u64); Reason::ALL.len()] {
        Reason::ALL.map(|reason| {
            let count = self.refused[reason as usize].load(Ordering::Relaxed);
            (reason, count)
        })
    }

    /// Notes a wrong token. Returns whether its source is over the limit. A good token always
    /// passes: nobody can lock out others who share the same address.
    pub fn is_limited(&self, now: Instant, source: Source) -> bool {
        is_beyond(&self.by_source, now, source)
    }

    /// Notes an audit line for a request without a user. Returns whether its source is over the
    /// limit.
    pub fn has_filled_audit(&self, now: Instant, source: Source) -> bool {
        is_beyond(&self.audited, now, source)
    }
}

fn is_beyond(by_source: &Mutex<BTreeMap<Source, Wrong>>, now: Instant, source: Source) -> bool {
    let mut by_source = by_source.lock().unwrap_or_else(PoisonError::into_inner);
    if !by_source.contains_key(&source) && by_source.len() >= SOURCES_MAX {
        let oldest = by_source.iter().min_by_key(|(_, wrong)| wrong.last);
        if let Some(oldest) = oldest.map(|(source, _)| *source) {
            by_source.remove(&oldest);
        }
    }
    let wrong = by_source.entry(source).or_insert_with(|| Wrong {
        budget: Budget::new(now, WRONG_RATE, WRONG_BURST),
        last: now,
    });
    wrong.last = now;
    !wrong.budget.take(now)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_source_has_ten_wrong_tokens_and_one_a_second() {
        let (logins, now) = (Logins::default(), Instant::START);
        let [one, other] = [1, 2].map(|n| Source::of(IpAddr::from([192, 0, 2, n])));
        assert!((0..10).all(|_| !logins.is_limited(now, one)));
        assert!(logins.is_limited(now, one));
        assert!(!logins.is_limited(now, other));
        assert!(!logins.is_limited(now + Duration::from_secs(1), one));
        assert!(logins.is_limited(now + Duration::from_secs(1), one));
        assert!(
            !logins.has_filled_audit(now, one),
            "lines of the audit have a budget of their own"
        );
    }

    #[test]
    fn the_sources_that_are_remembered_are_bounded() {
        let logins = Logins::default();
        for n in 0..10_000_u32 {
            let now = Instant::START + Duration::from_millis(n.into());
            logins.is_limited(now, Source::of(IpAddr::from(n.to_be_bytes())));
        }
        assert_eq!(logins.by_source.lock().unwrap().len(), SOURCES_MAX);
    }
}
