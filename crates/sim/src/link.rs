//! One direction of an impaired link: loss, a rate with a byte-limited queue, delay, jitter.
//!
//! Frames enter through [`Link::handle_frame`] and leave through [`Link::poll_deliver`] when they
//! are due. The stages have the order of a real line: a frame is lost or not, waits for the line,
//! is sent at the line's rate, and travels. Randomness comes from the seed alone, and loss and
//! jitter draw from separate streams, so the same frames are lost whatever the delays are. The
//! arithmetic is integer throughout: the same seed gives the same drops on any machine.

use std::collections::BTreeMap;

use clock::{Duration, Instant, SplitMix64};

/// Ethernet bytes on the line that are not in a frame buffer: preamble 8, FCS 4, inter-frame gap 12
/// (IEEE 802.3). The rate includes them, so that 100 Mbit/s carries as much as a real 100 Mbit/s
/// line.
pub const LINE_OVERHEAD_BYTES: u64 = 24;

/// The effect of one direction of a link on frames. The default is a wire: no loss, no delay.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Propagation delay in one direction.
    pub delay: Duration,
    /// Variation around `delay`; a delay never falls below zero.
    pub jitter: Jitter,
    /// Chance that a frame is lost, 0 to 1. A lost frame takes no time on the line.
    pub loss: f64,
    /// The bursts in which frames are lost. With `None`, each frame is lost independently.
    pub burst: Option<Burst>,
    /// Frames at the start that are never lost, so that a measurement can begin with its
    /// connections up.
    pub spared_frames: u64,
    /// Line rate in bit/s; `None` sends in no time.
    pub rate_bps: Option<u64>,
    /// Maximum number of bytes that wait for the line, overhead included. A frame beyond it is
    /// dropped at the tail.
    pub queue_bytes_max: u64,
    /// Whether jitter may let a frame overtake an earlier one.
    pub reorder: bool,
    /// Maximum number of frames queued or travelling at once: the bound on memory when `rate_bps`
    /// gives none.
    pub frames_max: usize,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            delay: Duration::ZERO,
            jitter: Jitter::None,
            loss: 0.0,
            burst: None,
            spared_frames: 0,
            rate_bps: None,
            // 100 full-size Ethernet frames, the depth of a small switch's port queue.
            queue_bytes_max: 150_000,
            reorder: false,
            frames_max: 65_536,
        }
    }
}

impl LinkConfig {
    /// Whether the link has no effect on frames, so that a plain wire does the same.
    pub fn is_wire(&self) -> bool {
        self.delay.is_zero()
            && self.jitter == Jitter::None
            && self.loss == 0.0
            && self.rate_bps.is_none()
    }
}

/// How delays vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    None,
    /// Evenly distributed between `delay - this` and `delay + this`.
    Uniform(Duration),
    /// Around `delay` with this standard deviation, by at most six deviations: the sum of twelve
    /// uniform draws. It needs no logarithm, so it is the same on every machine.
    Normal(Duration),
}

/// The reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A random loss, as configured.
    Loss,
    /// The queue before the line held `queue_bytes_max`.
    QueueFull,
    /// A drop because `frames_max` frames were on the link.
    TooManyFrames,
}

/// Counts of the frames so far. `offered` is the sum of the other counts and the frames under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub offered: u64,
    pub delivered: u64,
    pub lost: u64,
    pub queue_full: u64,
    pub too_many_frames: u64,
}

/// The Gilbert-Elliott model: a link is either good, without loss, or bad, and its state may change
/// with each frame. Like netem's `loss gemodel P R 1-H`, but set by the length and loss of a bad
/// period, not by the chances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// The mean length of a bad period in frames, at least 1.
    pub frames: f64,
    /// Chance that a frame is lost in a bad period, 0 to 1. The total loss cannot exceed it.
    pub loss: f64,
}

impl Burst {
    /// Whether such bursts can lose `loss` of all frames: good frames separate the bad periods.
    pub fn can_lose(self, loss: f64) -> bool {
        let bad = loss / self.loss;
        (0.0..1.0).contains(&bad) && bad <= self.frames / (self.frames + 1.0)
    }

    /// The chances of turning bad and of turning good with which the link loses `loss` of all
    /// frames.
    pub fn chances(self, loss: f64) -> (f64, f64) {
        let to_good = 1.0 / self.frames.max(1.0);
        let bad = (loss / self.loss).clamp(0.0, 1.0);
        let to_bad = to_good * bad / (1.0 - bad);
        (to_bad.clamp(0.0, 1.0), to_good)
    }
}

/// One direction of a link. `F` is the type of a frame.
#[derive(Debug)]
pub struct Link<F> {
    config: LinkConfig,
    fate: Fate,
    loss_draws: SplitMix64,
    jitter_draws: SplitMix64,
    /// Time at which the line has sent all accepted frames.
    line_free_at: Instant,
    /// The latest delivery time so far. Frames kept in order are not due before it.
    last_due: Instant,
    /// Frames in order of due time, then of arrival: equal times keep their order.
    on_the_way: BTreeMap<(Instant, u64), F>,
    counters: LinkCounters,
}

impl<F> Link<F> {
    pub fn new(config: LinkConfig, seed: u64) -> Link<F> {
        let mut seeds = SplitMix64::new(seed);
        Link {
            fate: Fate::new(&config),
            loss_draws: SplitMix64::new(seeds.next()),
            jitter_draws: SplitMix64::new(seeds.next()),
            line_free_at: Instant::START,
            last_due: Instant::START,
            on_the_way: BTreeMap::new(),
            counters: LinkCounters::default(),
            config,
        }
    }

    /// Puts a frame of `len_bytes` (without preamble and FCS) on the link, or returns why it was
    /// dropped.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        len_bytes: usize,
        frame: F,
    ) -> Result<(), DropReason> {
        let order = self.counters.offered;
        self.counters.offered += 1;
        // A spared frame draws like any other, so the number of spared frames does not change which
        // of the rest are lost.
        let is_unlucky = self.fate.draw(&mut self.loss_draws);
        if is_unlucky && order >= self.config.spared_frames {
            self.counters.lost += 1;
            return Err(DropReason::Loss);
        }
        if self.on_the_way.len() >= self.config.frames_max {
            self.counters.too_many_frames += 1;
            return Err(DropReason::TooManyFrames);
        }
        let Some(sent_at) = self.send_on_line(now, len_bytes) else {
            self.counters.queue_full += 1;
            return Err(DropReason::QueueFull);
        };
        let mut due = sent_at + self.draw_delay();
        if !self.config.reorder {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        self.on_the_way.insert((due, order), frame);
        Ok(())
    }

    /// Returns the next frame that is due, and its due time.
    pub fn poll_deliver(&mut self, now: Instant) -> Option<(Instant, F)> {
        let (&(due, _), _) = self.on_the_way.first_key_value()?;
        if due > now {
            return None;
        }
        let (_, frame) = self.on_the_way.pop_first()?;
        self.counters.delivered += 1;
        Some((due, frame))
    }

    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let (&(due, _), _) = self.on_the_way.first_key_value()?;
        Some((due, "a frame reaches the end of the link"))
    }

    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Returns the time at which the line has sent the frame; `None` if the queue has no room for
    /// it.
    fn send_on_line(&mut self, now: Instant, len_bytes: usize) -> Option<Instant> {
        let Some(rate_bps) = self.config.rate_bps else {
            return Some(now);
        };
        let start = self.line_free_at.max(now);
        let waiting_bytes =
            start.since(now).as_nanos() * u128::from(rate_bps) / (8 * NANOS_PER_SECOND);
        let bytes = len_bytes as u128 + u128::from(LINE_OVERHEAD_BYTES);
        if waiting_bytes + bytes > u128::from(self.config.queue_bytes_max) {
            return None;
        }
        let sending_ns = bytes * 8 * NANOS_PER_SECOND / u128::from(rate_bps.max(1));
        self.line_free_at = start + saturating_nanos(sending_ns);
        Some(self.line_free_at)
    }

    fn draw_delay(&mut self) -> Duration {
        let delay = i128::try_from(self.config.delay.as_nanos()).unwrap_or(i128::MAX);
        let jitter = match self.config.jitter {
            Jitter::None => return self.config.delay,
            Jitter::Uniform(spread) => {
                let spread = spread.as_nanos() as i128;
                below(&mut self.jitter_draws, 2 * spread + 1) - spread
            }
            // A uniform draw from 0 to w has the variance w²/12, so twelve of them have the
            // deviation w.
            Jitter::Normal(deviation) => {
                let deviation = deviation.as_nanos() as i128;
                let sum: i128 = (0..12)
                    .map(|_| below(&mut self.jitter_draws, deviation + 1))
                    .sum();
                sum - 6 * deviation
            }
        };
        saturating_nanos(delay.saturating_add(jitter).max(0) as u128)
    }
}

/// Decides which frames are lost, by draws below thresholds.
#[derive(Clone, Copy, Debug)]
enum Fate {
    EachByItself {
        loss_below: u64,
    },
    InBursts {
        is_bad: bool,
        to_bad_below: u64,
        to_good_below: u64,
        loss_below: u64,
    },
}

impl Fate {
    fn new(config: &LinkConfig) -> Fate {
        match config.burst {
            None => Fate::EachByItself {
                loss_below: chance_to_threshold(config.loss),
            },
            Some(burst) => {
                let (to_bad, to_good) = burst.chances(config.loss);
                Fate::InBursts {
                    is_bad: false,
                    to_bad_below: chance_to_threshold(to_bad),
                    to_good_below: chance_to_threshold(to_good),
                    loss_below: chance_to_threshold(burst.loss),
                }
            }
        }
    }

    /// Whether the next frame is lost. In bursts each frame takes two draws, whatever the result.
    fn draw(&mut self, draws: &mut SplitMix64) -> bool {
        match self {
            Fate::EachByItself { loss_below } => draws.next() < *loss_below,
            Fate::InBursts {
                is_bad,
                to_bad_below,
                to_good_below,
                loss_below,
            } => {
                let changes_below = if *is_bad {
                    *to_good_below
                } else {
                    *to_bad_below
                };
                *is_bad ^= draws.next() < changes_below;
                draws.next() < *loss_below && *is_bad
            }
        }
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

fn saturating_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The value below which a uniform draw of 64 bits falls with this chance.
fn chance_to_threshold(chance: f64) -> u64 {
    // `as` saturates: 1 gives u64::MAX, one draw in 2^64 short of certain.
    (chance.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u64
}

/// Draws evenly from 0 to `bound - 1`; `bound` is positive and at most 2^63.
fn below(draws: &mut SplitMix64, bound: i128) -> i128 {
    (i128::from(draws.next() >> 1) * bound) >> 63
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME_BYTES: usize = 1000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Sends `count` frames `gap` apart and returns (number, delay) of each frame that arrived.
    fn send(config: LinkConfig, seed: u64, count: u64, gap: Duration) -> Vec<(u64, Duration)> {
        let mut link = Link::new(config, seed);
        let sent_at = |n: u64| Instant::START + gap * n as u32;
        for n in 0..count {
            let _ = link.handle_frame(sent_at(n), FRAME_BYTES, n);
        }
        std::iter::from_fn(|| link.poll_deliver(Instant(u64::MAX)))
            .map(|(due, n)| (n, due.since(sent_at(n))))
            .collect()
    }

    #[test]
    fn a_plain_wire_delivers_at_once_and_in_order() {
        let got = send(LinkConfig::default(), 1, 100, Duration::from_micros(1));
        assert!(LinkConfig::default().is_wire());
        assert_eq!(
            got,
            (0..100).map(|n| (n, Duration::ZERO)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn nothing_is_delivered_before_its_delay_has_passed() {
        let config = LinkConfig {
            delay: ms(5),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        link.handle_frame(Instant::START, FRAME_BYTES, ()).unwrap();
        let due = Instant::START + ms(5);
        assert_eq!(link.poll_timeout().map(|(at, _)| at), Some(due));
        assert_eq!(link.poll_deliver(Instant(due.0 - 1)), None);
        assert_eq!(link.poll_deliver(due), Some((due, ())));
        assert_eq!(link.poll_timeout(), None);
    }

    #[test]
    fn the_same_seed_loses_the_same_frames_whatever_the_jitter() {
        let lossy = LinkConfig {
            loss: 0.05,
            ..LinkConfig::default()
        };
        let late = LinkConfig {
            delay: ms(50),
            jitter: Jitter::Uniform(ms(20)),
            ..lossy.clone()
        };
        let numbers = |config, seed| -> Vec<u64> {
            send(config, seed, 5000, ms(1))
                .into_iter()
                .map(|(n, _)| n)
                .collect()
        };
        assert_eq!(numbers(lossy.clone(), 7), numbers(lossy.clone(), 7));
        assert_eq!(numbers(lossy.clone(), 7), numbers(late, 7));
        assert_ne!(numbers(lossy.clone(), 7), numbers(lossy, 8));
    }

    #[test]
    fn spared_frames_are_the_first_and_change_nothing_after() {
        let all = LinkConfig {
            loss: 0.2,
            ..LinkConfig::default()
        };
        let spared = LinkConfig {
            spared_frames: 40,
            ..all.clone()
        };
        let numbers = |config| -> Vec<u64> {
            let sent = send(config, 9, 1000, ms(1));
            sent.into_iter().map(|(n, _)| n).collect()
        };
        let (all, spared) = (numbers(all), numbers(spared));
        assert_eq!(&spared[..40], (0..40).collect::<Vec<_>>());
        let after = |numbers: &[u64]| numbers.iter().copied().filter(|n| *n >= 40).collect();
        let (of_all, of_spared): (Vec<u64>, Vec<u64>) = (after(&all), after(&spared));
        assert_eq!(of_all, of_spared);
        assert!(all.len() < 900, "{} of 1000 arrived", all.len());
    }

    /// 5 % of 20 000 is 1000 with a deviation of 31: five deviations either way.
    #[test]
    fn loss_is_as_frequent_as_configured() {
        let config = LinkConfig {
            loss: 0.05,
            ..LinkConfig::default()
        };
        let lost = 20_000 - send(config, 3, 20_000, ms(1)).len();
        assert!((845..=1155).contains(&lost), "{lost} of 20000 lost");
        let all = LinkConfig {
            loss: 1.0,
            ..LinkConfig::default()
        };
        assert_eq!(send(all, 3, 1000, ms(1)).len(), 0);
    }

    /// Bursts lose the same share of frames as single losses, in bad periods of the configured
    /// length.
    #[test]
    fn bursts_lose_as_many_frames_and_as_long_in_a_row_as_configured() {
        const FRAMES: u64 = 200_000;
        for (loss, frames, in_bad) in [(0.05, 4.0, 1.0), (0.01, 10.0, 1.0), (0.05, 8.0, 0.5)] {
            let burst = Burst {
                frames,
                loss: in_bad,
            };
            let config = LinkConfig {
                loss,
                burst: Some(burst),
                ..LinkConfig::default()
            };
            let mut link = Link::new(config, 3);
            let mut sent = Vec::new();
            for n in 0..FRAMES {
                let _ = link.handle_frame(Instant::START, FRAME_BYTES, n);
                sent.extend(link.poll_deliver(Instant::START).map(|(_, n)| n));
            }
            let lost = 1.0 - sent.len() as f64 / FRAMES as f64;
            assert!((lost / loss - 1.0).abs() < 0.1, "{lost} lost of {loss}");
            let gaps = sent.windows(2).map(|w| w[1] - w[0] - 1);
            let (count, sum) = gaps
                .filter(|gap| *gap > 0)
                .fold((0u64, 0), |(count, sum), gap| (count + 1, sum + gap));
            // A frame is lost with chance h, and the bad period ends with chance 1/L: the mean run
            // is 1 / (1 - h (1 - 1/L)).
            let expected = 1.0 / (1.0 - in_bad * (1.0 - 1.0 / frames));
            let mean = sum as f64 / count as f64;
            assert!(
                (mean / expected - 1.0).abs() < 0.1,
                "{mean} in a row, not {expected}"
            );
        }
    }

    /// The parameters of netem's model: P is the chance to turn bad, R the chance to turn good.
    #[test]
    fn a_bad_time_has_the_chances_of_the_model() {
        let (to_bad, to_good) = Burst {
            frames: 4.0,
            loss: 1.0,
        }
        .chances(0.05);
        assert_eq!(to_good, 0.25);
        assert!((to_bad - 0.25 * 0.05 / 0.95).abs() < 1e-12);
        let (to_bad, _) = Burst {
            frames: 4.0,
            loss: 0.5,
        }
        .chances(0.05);
        assert!(
            (to_bad - 0.25 / 9.0).abs() < 1e-12,
            "a tenth of the time is bad"
        );
        let all = Burst {
            frames: 4.0,
            loss: 1.0,
        };
        assert_eq!(all.chances(0.0).0, 0.0);
        // At least one good frame separates two bad periods: four of five is the limit.
        assert!(all.can_lose(0.8) && !all.can_lose(0.81));
        assert_eq!(all.chances(0.8).0, 1.0);
    }

    /// 1000 + 24 bytes take 81.92 µs at 100 Mbit/s. At twice that rate, half of the frames are
    /// dropped.
    #[test]
    fn a_rate_spaces_frames_exactly_and_its_queue_drops_the_rest() {
        let config = LinkConfig {
            rate_bps: Some(100_000_000),
            queue_bytes_max: 10_240,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        let gap = Duration::from_nanos(40_960);
        for n in 0..10_000u32 {
            let _ = link.handle_frame(Instant::START + gap * n, FRAME_BYTES, n);
        }
        let dues: Vec<Instant> = std::iter::from_fn(|| link.poll_deliver(Instant(u64::MAX)))
            .map(|(at, _)| at)
            .collect();
        assert!(
            dues.windows(2)
                .all(|w| w[1].since(w[0]) == Duration::from_nanos(81_920))
        );
        let counters = link.counters();
        assert!((4990..=5010).contains(&counters.queue_full), "{counters:?}");
        assert_eq!(counters.queue_full + counters.delivered, counters.offered);
    }

    #[test]
    fn the_queue_holds_its_bytes_and_not_one_frame_more() {
        let config = LinkConfig {
            rate_bps: Some(1_000_000),
            queue_bytes_max: 10 * (FRAME_BYTES as u64 + LINE_OVERHEAD_BYTES),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        for n in 0..10 {
            assert_eq!(link.handle_frame(Instant::START, FRAME_BYTES, n), Ok(()));
        }
        let full = link.handle_frame(Instant::START, FRAME_BYTES, 10);
        assert_eq!(full, Err(DropReason::QueueFull));
    }

    #[test]
    fn memory_is_bounded_even_without_a_rate() {
        let config = LinkConfig {
            delay: ms(1),
            frames_max: 3,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        let outcomes: Vec<_> = (0..4)
            .map(|n| link.handle_frame(Instant::START, FRAME_BYTES, n))
            .collect();
        assert_eq!(
            outcomes,
            [Ok(()), Ok(()), Ok(()), Err(DropReason::TooManyFrames)]
        );
    }

    /// The deviation of a uniform draw over ±20 ms is 11.5 ms; a normal draw has the configured
    /// one.
    #[test]
    fn jitter_has_the_mean_and_deviation_of_its_distribution() {
        let figures = |jitter| {
            let config = LinkConfig {
                delay: ms(150),
                jitter,
                reorder: true,
                ..LinkConfig::default()
            };
            let delays: Vec<f64> = send(config, 11, 20_000, ms(10))
                .iter()
                .map(|(_, delay)| delay.as_secs_f64() * 1e3)
                .collect();
            let mean = delays.iter().sum::<f64>() / delays.len() as f64;
            let square = |d: &f64| (d - mean) * (d - mean);
            (
                mean,
                (delays.iter().map(square).sum::<f64>() / delays.len() as f64).sqrt(),
            )
        };
        let (mean, deviation) = figures(Jitter::Uniform(ms(20)));
        assert!(
            (mean - 150.0).abs() < 0.5 && (deviation - 11.55).abs() < 0.3,
            "{mean} {deviation}"
        );
        let (mean, deviation) = figures(Jitter::Normal(ms(20)));
        assert!(
            (mean - 150.0).abs() < 0.8 && (deviation - 20.0).abs() < 0.5,
            "{mean} {deviation}"
        );
    }

    #[test]
    fn jitter_reorders_only_when_it_may() {
        let arrivals = |reorder| -> Vec<u64> {
            let jitter = Jitter::Uniform(ms(20));
            let config = LinkConfig {
                delay: ms(50),
                jitter,
                reorder,
                ..LinkConfig::default()
            };
            send(config, 5, 1000, ms(1))
                .into_iter()
                .map(|(n, _)| n)
                .collect()
        };
        assert!(arrivals(false).is_sorted());
        assert!(!arrivals(true).is_sorted());
    }

    proptest! {
        /// Whatever the configuration and the arrivals: nothing is duplicated or delivered early,
        /// every frame is accounted for, and without `reorder` order is kept.
        #[test]
        fn every_frame_is_delivered_once_or_counted(
            seed: u64,
            loss in 0.0..1.0f64,
            burst in proptest::option::of((1.0..50.0f64, 0.01..1.0f64)),
            (delay_us, jitter_us, normal) in (0..100_000u64, 0..200_000u64, any::<bool>()),
            rate_bps in proptest::option::of(1..10_000_000_000u64),
            (queue_bytes_max, frames_max) in (0..200_000u64, 1..300usize),
            reorder: bool,
            arrivals in proptest::collection::vec((0..1_000_000u64, 0..9000usize), 1..300),
        ) {
            let spread = Duration::from_micros(jitter_us);
            let config = LinkConfig {
                delay: Duration::from_micros(delay_us),
                jitter: if normal { Jitter::Normal(spread) } else { Jitter::Uniform(spread) },
                loss, burst: burst.map(|(frames, loss)| Burst { frames, loss }),
                spared_frames: 0, rate_bps, queue_bytes_max, reorder, frames_max,
            };
            let mut link = Link::new(config, seed);
            let (mut now, mut sent_at, mut out) = (Instant::START, Vec::new(), Vec::new());
            for (n, (gap_ns, len)) in arrivals.into_iter().enumerate() {
                now += Duration::from_nanos(gap_ns);
                sent_at.push(now);
                let _ = link.handle_frame(now, len, n);
                while let Some((due, n)) = link.poll_deliver(now) {
                    prop_assert!(due <= now);
                    out.push((due, n));
                }
            }
            while let Some((due, n)) = link.poll_deliver(Instant(u64::MAX)) {
                out.push((due, n));
            }
            prop_assert!(out.iter().all(|&(due, n)| due >= sent_at[n]));
            prop_assert!(out.is_sorted_by_key(|&(due, _)| due));
            let mut numbers: Vec<usize> = out.iter().map(|&(_, n)| n).collect();
            prop_assert!(reorder || numbers.is_sorted());
            numbers.sort_unstable();
            numbers.dedup();
            let c = link.counters();
            prop_assert_eq!(numbers.len() as u64, c.delivered);
            prop_assert_eq!(c.offered, c.delivered + c.lost + c.queue_full + c.too_many_frames);
        }
    }
}
