//! The arithmetic of a flow table of C entries, without switches or messages.
//!
//! A table holds, by Little's law, `N = λ·(d + T)` entries, where λ is the rate of new flows, d the
//! time that a flow sends and T the time that its entry outlives it. Only T can be chosen:
//! [`idle_cap`]. An entry whose flow is known to send every few milliseconds needs less:
//! [`Tracked::idle`]. As the table fills, the controller reads it more often ([`poll_interval`]).
//! Above nine tenths it evicts the least recently used entries ([`victims`]), and if all are in use
//! it replaces some by a coarse one ([`coarsen`]). [`Overload`] stretches all timeouts while the
//! controller's processor is overloaded.
//!
//! Only sums, products and quotients are used: the same input gives the same bits on any machine.

mod overload;
mod tracked;

use clock::{Duration, Instant};

pub use overload::Overload;
pub use tracked::{Evict, Returns, Tracked, coarsen, victims};

/// The shortest idle timeout, whatever the table requires.
pub const IDLE_MIN: Duration = Duration::from_millis(500);
/// The longest idle timeout, however empty the table is.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Minimum time between two readings of statistics: a read of a full table costs the switch
/// milliseconds.
pub const POLL_MIN: Duration = Duration::from_millis(250);
pub const POLL_MAX: Duration = Duration::from_secs(5);

/// N*, the target of timeouts: eight tenths of the capacity.
pub fn target(capacity: u32) -> u32 {
    share(capacity, 8)
}

/// The level above which entries are evicted: nine tenths of the capacity.
pub fn high_mark(capacity: u32) -> u32 {
    share(capacity, 9)
}

/// The level below which the table counts as calm: seven tenths of the capacity.
pub fn calm_mark(capacity: u32) -> u32 {
    share(capacity, 7)
}

fn share(capacity: u32, tenths: u64) -> u32 {
    (u64::from(capacity) * tenths / 10) as u32
}

/// T*: the longest idle timeout with which the table stays at its target.
pub fn idle_cap(capacity: u32, new_flows_per_s: f64, active: Duration) -> Duration {
    let fits_s = f64::from(target(capacity)) / new_flows_per_s;
    let idle_s = (fits_s - active.as_secs_f64()).max(0.0);
    // Without new flows the table does not fill.
    match idle_s < IDLE_MAX.as_secs_f64() {
        true => Duration::from_secs_f64(idle_s).max(IDLE_MIN),
        false => IDLE_MAX,
    }
}

/// The time until the next reading of statistics: the time in which a quarter of the free places
/// fills.
pub fn poll_interval(capacity: u32, entries: u32, new_flows_per_s: f64) -> Duration {
    let free = f64::from(capacity.saturating_sub(entries));
    let interval_s = free / (4.0 * new_flows_per_s);
    match interval_s < POLL_MAX.as_secs_f64() {
        true => Duration::from_secs_f64(interval_s).max(POLL_MIN),
        false => POLL_MAX,
    }
}

/// The timeout in OpenFlow's unit, whole seconds. The flow's need is rounded up, and the table's
/// limit to the nearest second. Neither becomes 0, which would mean no timeout: half a second
/// becomes one. The surplus fits between 0.8 and 0.9 of the table.
pub fn whole_seconds(idle: Duration, cap: Duration) -> u16 {
    let needed = idle.as_nanos().div_ceil(1_000_000_000) as u64;
    let allowed = (cap + Duration::from_millis(500)).as_secs().max(1);
    u16::try_from(needed.clamp(1, allowed)).unwrap_or(u16::MAX)
}

/// New flows per second: counted in windows, with a mean in which older windows fade.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalRate {
    window_since: Instant,
    counted: u32,
    per_s: f64,
    /// The number of windows so far, until the mean is settled.
    windows: u8,
}

impl ArrivalRate {
    const WINDOW: Duration = Duration::from_millis(500);
    /// Weight of the newest window. The mean covers about the last 3.5 s.
    const WEIGHT: f64 = 0.25;
    /// The number of first windows for which a plain mean is used.
    const SETTLED_WINDOWS: u8 = 4;
    /// The number of empty windows after which an earlier rate is forgotten.
    const FORGOTTEN_WINDOWS: u64 = 120;

    pub fn new(now: Instant) -> ArrivalRate {
        ArrivalRate {
            window_since: now,
            counted: 0,
            per_s: 0.0,
            windows: 0,
        }
    }

    pub fn handle_new_flow(&mut self, now: Instant) {
        self.advance(now);
        self.counted = self.counted.saturating_add(1);
    }

    /// The rate. A rise counts at once: the current window counts as a whole one if it already
    /// exceeds the mean.
    pub fn per_s(&mut self, now: Instant) -> f64 {
        self.advance(now);
        let under_way = f64::from(self.counted) / Self::WINDOW.as_secs_f64();
        match under_way > self.per_s {
            true => self.with(under_way),
            false => self.per_s,
        }
    }

    fn with(&self, newest_per_s: f64) -> f64 {
        let weight = match self.windows < Self::SETTLED_WINDOWS {
            true => 1.0 / f64::from(self.windows + 1),
            false => Self::WEIGHT,
        };
        self.per_s + weight * (newest_per_s - self.per_s)
    }

    fn advance(&mut self, now: Instant) {
        let passed =
            now.since(self.window_since).as_nanos() as u64 / Self::WINDOW.as_nanos() as u64;
        if passed > Self::FORGOTTEN_WINDOWS {
            *self = ArrivalRate::new(now);
            return;
        }
        for _ in 0..passed {
            self.per_s = self.with(f64::from(self.counted) / Self::WINDOW.as_secs_f64());
            self.counted = 0;
            self.windows = self.windows.saturating_add(1);
            self.window_since += Self::WINDOW;
        }
    }
}

/// One table: its capacity, the rate of new flows, and the number of its entries in use.
#[derive(Clone, Debug)]
pub struct TableBudget {
    capacity: u32,
    arrivals: ArrivalRate,
    /// The known number of entries: the last reading, with the entries set and removed since.
    entries: u32,
    /// The entries in use at the last reading ([`Tracked::is_active`]).
    active: u32,
    /// Entries set since the last read.
    fresh: u32,
    polled_at: Instant,
}

impl TableBudget {
    pub fn new(now: Instant, capacity: u32) -> TableBudget {
        TableBudget {
            capacity,
            arrivals: ArrivalRate::new(now),
            entries: 0,
            active: 0,
            fresh: 0,
            polled_at: now,
        }
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Sets the capacity, from a TABLE_FULL error or the switch's table features.
    pub fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// Notes that an entry was set. The number is never too small: an entry that ended unnoticed
    /// still counts until the next reading.
    pub fn handle_install(&mut self, now: Instant) {
        self.arrivals.handle_new_flow(now);
        self.entries = self.entries.saturating_add(1);
        self.fresh = self.fresh.saturating_add(1);
    }

    pub fn handle_removed(&mut self) {
        self.entries = self.entries.saturating_sub(1);
    }

    /// Handles a reading: the number of entries, and of entries in use.
    pub fn handle_poll(&mut self, now: Instant, entries: u32, active: u32) {
        self.entries = entries;
        self.active = active;
        self.fresh = 0;
        self.polled_at = now;
    }

    /// Whether the last reading was so long ago that new entries do not show the current rate.
    pub fn is_stale(&self, now: Instant) -> bool {
        now.since(self.polled_at) > POLL_MAX + POLL_MAX
    }

    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The entries in use at the last reading.
    pub fn active(&self) -> u32 {
        self.active
    }

    pub fn new_flows_per_s(&mut self, now: Instant) -> f64 {
        self.arrivals.per_s(now)
    }

    /// T*. By Little's law, d is the number of sending flows divided by the rate of new ones.
    /// Counted this way, d includes flows that have not ended yet.
    pub fn idle_cap(&mut self, now: Instant) -> Duration {
        let per_s = self.arrivals.per_s(now);
        if per_s <= 0.0 {
            return IDLE_MAX;
        }
        let active_s = (f64::from(self.active) / per_s).min(IDLE_MAX.as_secs_f64());
        idle_cap(self.capacity, per_s, Duration::from_secs_f64(active_s))
    }

    /// The time of the next reading. A quarter of the free places may fill sooner than the rate
    /// predicts: then the reading is due at once, though never before [`POLL_MIN`].
    pub fn next_poll(&mut self, now: Instant) -> Instant {
        let per_s = self.arrivals.per_s(now);
        let was_free = self
            .capacity
            .saturating_sub(self.entries)
            .saturating_add(self.fresh);
        let interval = match self.fresh > was_free / 4 {
            true => POLL_MIN,
            false => poll_interval(self.capacity, self.entries, per_s),
        };
        self.polled_at + interval
    }

    /// The number of entries above nine tenths, which must be evicted or replaced.
    pub fn excess(&self) -> u32 {
        self.entries.saturating_sub(high_mark(self.capacity))
    }

    /// The number of entries that may be set before others must be evicted or replaced.
    pub fn room(&self) -> u32 {
        high_mark(self.capacity).saturating_sub(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn the_idle_timeout_is_what_littles_law_leaves() {
        // 800 entries at 100 flows/s: 8 s, of which the flow itself takes two.
        let active = Duration::from_secs(2);
        assert_eq!(idle_cap(1000, 100.0, active), Duration::from_secs(6));
        assert_eq!(idle_cap(1000, 1000.0, active), IDLE_MIN);
        assert_eq!(idle_cap(1000, 1.0, active), IDLE_MAX);
        assert_eq!(idle_cap(1000, 0.0, active), IDLE_MAX);
        assert_eq!(idle_cap(0, 1.0, active), IDLE_MIN);
    }

    #[test]
    fn a_table_is_read_more_often_as_it_fills() {
        let at = |entries| poll_interval(1000, entries, 100.0).as_millis();
        assert_eq!([at(0), at(600), at(800)], [2500, 1000, 500]);
        assert_eq!([at(900), at(1000), at(2000)], [250, 250, 250]);
        assert_eq!(poll_interval(1000, 0, 0.0), POLL_MAX);
        assert_eq!(poll_interval(1000, 1000, 0.0), POLL_MAX, "nothing comes");
    }

    #[test]
    fn whole_seconds_are_never_none() {
        let s = |idle_ms, cap_ms| {
            let [idle, cap] = [idle_ms, cap_ms].map(Duration::from_millis);
            whole_seconds(idle, cap)
        };
        assert_eq!(s(500, 500), 1, "0 would never expire");
        assert_eq!(s(1100, 60_000), 2, "what the flow needs is rounded up");
        assert_eq!(
            s(1400, 1400),
            1,
            "what the table allows goes to the nearest"
        );
        assert_eq!(s(1500, 1500), 2);
        assert_eq!(s(90_000_000, 90_000_000), u16::MAX);
    }

    #[test]
    fn a_rate_is_followed_and_forgotten() {
        let mut rate = ArrivalRate::new(ms(0));
        assert_eq!(rate.per_s(ms(0)), 0.0);
        for n in 0..1000 {
            rate.handle_new_flow(ms(n * 10));
        }
        assert!((rate.per_s(ms(10_000)) - 100.0).abs() < 1.0);
        for n in 0..250 {
            rate.handle_new_flow(ms(10_000 + n * 2));
        }
        let soon = rate.per_s(ms(10_499));
        assert!(soon > 190.0, "a surge shows within its window: {soon}");
        for n in 250..2000 {
            rate.handle_new_flow(ms(10_000 + n * 2));
        }
        assert!((rate.per_s(ms(14_000)) - 500.0).abs() < 50.0);
        assert!(rate.per_s(ms(24_000)) < 5.0);
        assert_eq!(rate.per_s(ms(200_000)), 0.0);
    }

    #[test]
    fn a_surge_brings_the_next_read_forward() {
        let mut table = TableBudget::new(ms(0), 1000);
        assert_eq!(table.next_poll(ms(0)), ms(5000));
        table.handle_poll(ms(1000), 100, 10);
        for _ in 0..225 {
            table.handle_install(ms(1010));
        }
        let by_rate = table.next_poll(ms(1010));
        assert!(
            by_rate > ms(1250),
            "a quarter of 900 and no more: {by_rate:?}"
        );
        table.handle_install(ms(1010));
        assert_eq!(table.next_poll(ms(1010)), ms(1250));
    }

    #[test]
    fn entries_are_counted_up_until_the_next_read() {
        let mut table = TableBudget::new(ms(0), 10);
        (0..10).for_each(|_| table.handle_install(ms(1)));
        assert_eq!((table.entries(), table.room(), table.excess()), (10, 0, 1));
        table.handle_removed();
        assert_eq!((table.entries(), table.room(), table.excess()), (9, 0, 0));
        table.handle_poll(ms(2), 4, 4);
        assert_eq!((table.entries(), table.room(), table.excess()), (4, 5, 0));
    }

    /// Flows that send without end are never reported as ended; they still take room.
    #[test]
    fn flows_that_do_not_end_shorten_the_timeout_of_others() {
        let cap = |active| {
            let mut table = TableBudget::new(ms(0), 1000);
            for n in 0..1000 {
                table.handle_install(ms(n * 10));
            }
            table.handle_poll(ms(10_000), 900, active);
            table.idle_cap(ms(10_000)).as_secs_f64()
        };
        assert!((cap(0) - 8.0).abs() < 0.2, "{}", cap(0));
        assert!((cap(600) - 2.0).abs() < 0.2, "{}", cap(600));
        assert_eq!(cap(900), IDLE_MIN.as_secs_f64());
    }

    #[test]
    fn an_entry_costs_sixteen_bytes() {
        assert_eq!(size_of::<Tracked>(), 16);
    }
}
