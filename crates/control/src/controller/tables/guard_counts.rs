//! The packets that guards have dropped.

use openflow::Match;

use crate::controller::entries::FRESH_MAX;

/// Maximum number of guards of one switch whose packets are counted: a switch may report any
/// number.
const COUNTS_MAX: usize = 1024;

/// The packets that a switch's guards have dropped, by priority and match, in its last report.
#[derive(Default)]
pub(in crate::controller) struct GuardCounts(Vec<(u16, Match, u64)>);

impl GuardCounts {
    /// Notes that a guard has counted `count` packets. Returns the number of new packets.
    pub(in crate::controller) fn handle(&mut self, priority: u16, m: &Match, count: u64) -> u64 {
        let is_full = self.0.len() >= COUNTS_MAX;
        let mut known = self.0.iter_mut();
        let fresh = match known.find(|known| known.0 == priority && known.1 == *m) {
            Some(known) => {
                let before = std::mem::replace(&mut known.2, count);
                // The guard was set again, and its count restarted.
                if count < before {
                    count
                } else {
                    count - before
                }
            }
            None if is_full => 0,
            None => {
                self.0.push((priority, m.clone(), count));
                count
            }
        };
        fresh.min(FRESH_MAX)
    }

    /// Notes that a guard has ended with `count` packets. Returns the number of new packets.
    pub(in crate::controller) fn handle_end(
        &mut self,
        priority: u16,
        m: &Match,
        count: u64,
    ) -> u64 {
        let fresh = self.handle(priority, m, count);
        self.0.retain(|known| known.0 != priority || known.1 != *m);
        fresh
    }
}
