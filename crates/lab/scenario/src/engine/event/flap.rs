//! `flap = "s1-s2"`: a link goes down and up for random times until a moment. Several links take
//! turns, so that no two are down at once.

use std::ops::RangeInclusive;
use std::time::Duration;

use cli::failure::Failure;
use clock::SplitMix64;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::topology::Topology;

use super::{Event, link};
use crate::engine::reader::Section;

pub struct Flap {
    links: Vec<[String; 2]>,
    down: RangeInclusive<Duration>,
    up: RangeInclusive<Duration>,
    until: String,
}

const TIMES: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(60);

impl Flap {
    pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
        if !section.has("flap") {
            return None;
        }
        let down = section.required_durations("down", TIMES);
        let up = section.required_durations("up", TIMES);
        let until = section.required_text("until", "\"calm\"");
        let links = section.one_or_more("flap")?;
        if links.is_empty() {
            return section.refuse("flap", "name a link, such as \"s1-s2\"");
        }
        let links: Option<Vec<_>> = links
            .iter()
            .map(|words| link::switches(section, "flap", words))
            .collect();
        Some(Box::new(Flap {
            links: links?,
            down: down?,
            up: up?,
            until: until?,
        }))
    }

    /// The link whose turn it is.
    fn link(&self, turn: usize, up: bool) -> link::Link {
        let switches = self.links[turn % self.links.len()].clone();
        link::Link { switches, up }
    }

    /// The times of the changes after the first link goes down. Every other change brings a link
    /// up, including the last one.
    fn changes(&self, lasts: Duration, mut random: SplitMix64) -> Vec<Duration> {
        let mut within = |range: &RangeInclusive<Duration>| {
            let spread = range.end().saturating_sub(*range.start());
            *range.start() + spread.mul_f64(random.uniform())
        };
        let mut times = Vec::new();
        let mut now = Duration::ZERO;
        while now < lasts {
            let up = now + within(&self.down);
            times.push(up.min(lasts));
            now = up + within(&self.up);
            if now < lasts {
                times.push(now);
            }
        }
        times
    }
}

impl Event for Flap {
    fn check(&self, topology: &Topology, controller: &Controller) -> Result<(), String> {
        let links = 0..self.links.len();
        links
            .map(|turn| self.link(turn, false))
            .try_for_each(|link| link.check(topology, controller))
    }

    fn apply(&self, network: &mut Network, plane: &Plane) -> Result<(), Failure> {
        self.link(0, false).apply(network, plane)
    }

    fn until(&self) -> Option<&str> {
        Some(&self.until)
    }

    fn later(&self, lasts: Duration, random: SplitMix64) -> Vec<(Duration, Box<dyn Event>)> {
        let changes = self.changes(lasts, random).into_iter().enumerate();
        let link = |(n, time)| {
            let link: Box<dyn Event> = match n % 2 {
                0 => Box::new(self.link(n / 2, true)),
                _ => Box::new(self.link(n / 2 + 1, false)),
            };
            (time, link)
        };
        changes.map(link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_link_is_down_and_up_for_random_times_and_ends_up() {
        let flap = Flap {
            links: vec![["s1", "s2"].map(str::to_string)],
            down: MS(100)..=MS(200),
            up: MS(300)..=MS(600),
            until: "calm".to_string(),
        };
        let changes = |seed| flap.changes(MS(10_000), SplitMix64::new(seed));
        for seed in 0..100 {
            let times = changes(seed);
            assert_eq!(times.len() % 2, 1, "seed {seed}: the last change is up");
            assert!(*times.last().unwrap() <= MS(10_000));
            let mut edges = vec![Duration::ZERO];
            edges.extend(&times);
            let states: Vec<Duration> = edges.windows(2).map(|w| w[1] - w[0]).collect();
            for (n, state) in states.iter().enumerate() {
                let is_cut_short = n + 1 == states.len() && *state <= MS(200);
                let range = if n % 2 == 0 { &flap.down } else { &flap.up };
                assert!(range.contains(state) || is_cut_short, "{n}: {state:?}");
            }
            assert!((25..=51).contains(&times.len()), "{}", times.len());
        }
        assert_eq!(changes(1), changes(1));
        assert_ne!(changes(1), changes(2));
    }
}
