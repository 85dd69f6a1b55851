//! The controller's own processor.

use clock::{Duration, Instant};

/// The factor by which timeouts and leases are stretched while the controller's processor is
/// overloaded.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    factor: u8,
    samples_above: u8,
    below_since: Option<Instant>,
}

impl Overload {
    const FACTOR_MAX: u8 = 8;
    const HIGH_PERCENT: f64 = 75.0;
    const HIGH_SAMPLES: u8 = 2;
    const LOW_PERCENT: f64 = 60.0;
    const LOW_FOR: Duration = Duration::from_secs(10);

    pub fn new() -> Overload {
        Overload {
            factor: 1,
            samples_above: 0,
            below_since: None,
        }
    }

    /// Handles a sample of the processor's use, as a rule over one second.
    pub fn handle_sample(&mut self, now: Instant, cpu_percent: f64) {
        if cpu_percent > Self::HIGH_PERCENT {
            self.samples_above += 1;
            if self.samples_above == Self::HIGH_SAMPLES {
                self.samples_above = 0;
                self.factor = (self.factor * 2).min(Self::FACTOR_MAX);
            }
        } else {
            self.samples_above = 0;
        }
        if cpu_percent < Self::LOW_PERCENT {
            let since = *self.below_since.get_or_insert(now);
            if now.since(since) >= Self::LOW_FOR {
                self.below_since = Some(now);
                self.factor = (self.factor / 2).max(1);
            }
        } else {
            self.below_since = None;
        }
    }

    /// The factor: 1, 2, 4 or 8.
    pub fn factor(&self) -> u32 {
        u32::from(self.factor)
    }
}

impl Default for Overload {
    fn default() -> Overload {
        Overload::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(samples: &[f64]) -> Vec<u32> {
        let mut overload = Overload::new();
        let mut now = Instant::START;
        let sample = |percent: &f64| {
            now += Duration::from_secs(1);
            overload.handle_sample(now, *percent);
            overload.factor()
        };
        samples.iter().map(sample).collect()
    }

    #[test]
    fn it_doubles_after_two_samples_and_stops_at_eight() {
        assert_eq!(factors(&[76.0, 75.0, 76.0, 70.0]), [1, 1, 1, 1]);
        let high = factors(&[90.0; 10]);
        assert_eq!(high, [1, 2, 2, 4, 4, 8, 8, 8, 8, 8]);
    }

    #[test]
    fn it_halves_after_ten_calm_seconds_and_not_between() {
        let mut samples = vec![90.0; 4];
        samples.extend([59.0; 10]);
        samples.push(61.0);
        samples.extend([59.0; 22]);
        let factors = factors(&samples);
        assert_eq!(factors[13], 4, "nine seconds");
        assert_eq!(factors[14], 4, "60 % begins anew");
        assert_eq!(factors[24], 4);
        assert_eq!(factors[25], 2);
        assert_eq!(factors[35], 1);
    }
}
