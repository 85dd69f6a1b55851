//! The time from the end of an overload until delays are as low as before it.

use serde::Serialize;

/// Length of a slot whose p99 is compared.
const SLOT_NS: u64 = 100_000_000;
/// Slots in a row that must be no slower than before to count as recovered.
const SLOTS: usize = 3;

/// The due time of a first packet and its delay, in nanoseconds.
pub type Delay = (u64, u64);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recovery {
    /// The highest p99 of 100 ms of light load before the overload.
    pub calm_p99_ms: f64,
    /// Time from the end of the overload until three slots of 100 ms in a row have a p99 no higher.
    /// Null if that did not happen.
    pub recovered_ms: Option<f64>,
}

impl Recovery {
    /// Compares the delays before an overload with those after its end.
    pub fn of(before: &[Delay], after: &[Delay], end_ns: u64) -> Recovery {
        let from_ns = before.first().map_or(0, |(due_ns, _)| *due_ns);
        let calm = slots(before, from_ns).into_iter().flatten().max();
        let calm = calm.unwrap_or(0);
        let is_calm = |slot: &Option<u64>| slot.is_some_and(|p99| p99 <= calm);
        let after = slots(after, end_ns);
        let found = after
            .windows(SLOTS)
            .position(|slots| slots.iter().all(is_calm));
        Recovery {
            calm_p99_ms: calm as f64 * 1e-6,
            recovered_ms: found.map(|slot| (slot as u64 * SLOT_NS) as f64 * 1e-6),
        }
    }
}

/// The p99 of each slot; `None` for a slot without packets.
fn slots(delays: &[Delay], from_ns: u64) -> Vec<Option<u64>> {
    let mut slots: Vec<Vec<u64>> = Vec::new();
    for (due_ns, delay_ns) in delays {
        let slot = (due_ns.saturating_sub(from_ns) / SLOT_NS) as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, Vec::new());
        }
        slots[slot].push(*delay_ns);
    }
    let p99 = |mut delays: Vec<u64>| {
        delays.sort_unstable();
        let last = delays.len().checked_sub(1)?;
        Some(delays[last * 99 / 100])
    };
    slots.into_iter().map(p99).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten packets in each slot from a time on, with these delays in milliseconds.
    fn delays(from_ns: u64, slots: &[u64]) -> Vec<Delay> {
        let packets = |(slot, ms): (usize, &u64)| {
            let (start, delay_ns) = (from_ns + slot as u64 * SLOT_NS, ms * 1_000_000);
            (0..10).map(move |n| (start + n * SLOT_NS / 10, delay_ns))
        };
        slots.iter().enumerate().flat_map(packets).collect()
    }

    #[test]
    fn recovered_is_the_first_of_three_slots_as_before() {
        let before = delays(5, &[1, 3, 2]);
        let end_ns = 9_000_000_000;
        let back = |slots: &[u64]| Recovery::of(&before, &delays(end_ns, slots), end_ns);
        assert_eq!(back(&[1, 1, 1, 9]).recovered_ms, Some(0.0));
        assert_eq!(back(&[9, 9, 3, 9, 2, 3, 1]).recovered_ms, Some(400.0));
        assert_eq!(back(&[9, 1, 1]).recovered_ms, None);
        assert_eq!(back(&[]).recovered_ms, None);
        assert_eq!(back(&[]).calm_p99_ms, 3.0);
    }

    #[test]
    fn a_slot_in_which_nothing_was_sent_is_not_calm() {
        let before = delays(0, &[1]);
        let mut after = delays(0, &[1, 1]);
        after.extend(delays(3 * SLOT_NS, &[1, 1, 1]));
        let back = Recovery::of(&before, &after, 0);
        assert_eq!(back.recovered_ms, Some(300.0));
    }
}
