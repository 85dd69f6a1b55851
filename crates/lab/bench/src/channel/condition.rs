//! The condition under which a method carries messages, and the messages themselves.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sched::Direction;
use sim::link::{Burst, Jitter, LinkConfig};

use super::method::Method;
use super::source::{MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, Source};

/// Frames at the start of each direction that are not lost, per agent: they set its connection up.
const SPARED_FRAMES_PER_AGENT: u64 = 20;

/// One measurement: a method under one condition, with one seed.
#[derive(Clone, Debug)]
pub struct Cell {
    pub method: &'static Method,
    pub condition: Condition,
    pub agents: usize,
    pub messages_per_agent: u32,
    pub seed: u64,
}

/// The condition that compared methods share.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Messages a second at each end: its agents share it.
    pub rate_per_s: f64,
    pub loss_percent: f64,
    pub bursts: Bursts,
    pub rtt: Rtt,
    pub sizes: Sizes,
}

/// Mean and standard deviation of the round trip without load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rtt {
    pub ms: f64,
    pub deviation_ms: f64,
}

/// The pattern of loss: each frame by itself, or in bad periods, as in the Gilbert-Elliott model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// The mean length of a bad period in frames; 0 for no such periods.
    pub frames: f64,
    /// Loss of the frames in a bad period.
    pub loss_percent: f64,
}

/// Sizes that messages have in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

impl Cell {
    pub fn link_config(&self) -> LinkConfig {
        let Condition {
            loss_percent,
            bursts,
            rtt,
            ..
        } = self.condition;
        // Two independent directions add up to the round trip's mean and deviation.
        let one_way = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let deviation = one_way(rtt.deviation_ms / 2f64.sqrt());
        LinkConfig {
            delay: one_way(rtt.ms / 2.0),
            jitter: match rtt.deviation_ms {
                0.0 => Jitter::None,
                _ => Jitter::Normal(deviation),
            },
            loss: loss_percent / 100.0,
            burst: bursts.model(),
            spared_frames: SPARED_FRAMES_PER_AGENT * self.agents as u64,
            ..LinkConfig::default()
        }
    }

    /// An end's agents.
    pub fn sources(&self, direction: Direction) -> Vec<Source> {
        let rate_per_s = self.condition.rate_per_s / self.agents as f64;
        let seed = match direction {
            Direction::ToController => self.seed,
            Direction::ToSwitch => !self.seed,
        };
        let source = |agent| {
            let sizes = &self.condition.sizes.0;
            Source::new(agent, rate_per_s, self.messages_per_agent, sizes, seed)
        };
        (0..self.agents as u16).map(source).collect()
    }

    /// Returns the time at which the last message is due.
    pub fn last_due(&self) -> Duration {
        [Direction::ToController, Direction::ToSwitch]
            .into_iter()
            .flat_map(|direction| self.sources(direction))
            .filter_map(|source| source.last())
            .map(|(stamp, _)| stamp.due)
            .max()
            .unwrap_or_default()
    }

    /// The number of messages of both ends.
    pub fn messages(&self) -> u64 {
        2 * self.agents as u64 * u64::from(self.messages_per_agent)
    }
}

impl FromStr for Rtt {
    type Err = String;

    /// Parses `0.32`, `150±50` or `150+-50`, in milliseconds.
    fn from_str(text: &str) -> Result<Rtt, String> {
        let split = text.split_once('±').or_else(|| text.split_once("+-"));
        let (mean, deviation) = split.unwrap_or((text, "0"));
        let wrong = || format!("'{text}' is no RTT; write milliseconds such as 0.32 or 150±50");
        let number = |text: &str| {
            let number = text.parse::<f64>().ok();
            number.filter(|n| (0.0..=10_000.0).contains(n))
        };
        let (ms, deviation_ms) = number(mean).zip(number(deviation)).ok_or_else(wrong)?;
        if deviation_ms > ms {
            return Err(format!(
                "'{text}': the deviation is more than the RTT itself"
            ));
        }
        Ok(Rtt { ms, deviation_ms })
    }
}

impl fmt::Display for Rtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ms)?;
        match self.deviation_ms {
            0.0 => Ok(()),
            deviation_ms => write!(f, "±{deviation_ms}"),
        }
    }
}

impl Bursts {
    pub const NONE: Bursts = Bursts {
        frames: 0.0,
        loss_percent: 100.0,
    };

    /// Checks that `loss_percent` of all frames can be lost in bad periods.
    pub fn check(self, loss_percent: f64) -> Result<(), String> {
        match self.model() {
            Some(burst) if !burst.can_lose(loss_percent / 100.0) => Err(format!(
                "bursts of {self}: their bad times cannot lose {loss_percent} % of all frames"
            )),
            _ => Ok(()),
        }
    }

    fn model(self) -> Option<Burst> {
        (self.frames > 0.0).then_some(Burst {
            frames: self.frames,
            loss: self.loss_percent / 100.0,
        })
    }
}

impl FromStr for Bursts {
    type Err = String;

    /// Parses `0`, `4` or `8:50`: frames, and the percentage of them that is lost.
    fn from_str(text: &str) -> Result<Bursts, String> {
        let (frames, percent) = text.split_once(':').unwrap_or((text, "100"));
        let wrong = || {
            format!(
                "'{text}' is no burst; write frames, 1 to 1000, such as 4, with the percent of \
                 them that are lost if not all, 8:50, or 0 for loss of each frame by itself"
            )
        };
        let frames = frames.parse::<f64>().ok();
        let frames = frames.filter(|n| *n == 0.0 || (1.0..=1000.0).contains(n));
        let percent = percent.parse::<f64>().ok();
        let percent = percent.filter(|n| *n >= 1.0 && *n <= 100.0);
        let (frames, loss_percent) = frames.zip(percent).ok_or_else(wrong)?;
        match frames {
            0.0 if text.contains(':') => Err(wrong()),
            _ => Ok(Bursts {
                frames,
                loss_percent,
            }),
        }
    }
}

impl fmt::Display for Bursts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.frames)?;
        match self.loss_percent {
            100.0 => Ok(()),
            percent => write!(f, ":{percent}"),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// Parses `220`, or `400/600` for two sizes in turn.
    fn from_str(text: &str) -> Result<Sizes, String> {
        let sizes = text
            .split('/')
            .map(|word| word.parse().ok())
            .collect::<Option<Vec<usize>>>()
            .ok_or_else(|| format!("'{text}' is no size; write bytes such as 220 or 400/600"))?;
        let fits = |size: &usize| (MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(size);
        if !sizes.iter().all(fits) {
            return Err(format!(
                "'{text}': a message has {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes"
            ));
        }
        Ok(Sizes(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&sizes.join("/"))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} B, RTT {} ms, {} msg/s, {} %",
            self.sizes, self.rtt, self.rate_per_s, self.loss_percent
        )?;
        match self.bursts {
            Bursts::NONE => Ok(()),
            bursts => write!(f, " in bursts of {bursts}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(rtt: &str, bursts: &str) -> Cell {
        Cell {
            method: Method::parse("tcp").unwrap(),
            condition: Condition {
                rate_per_s: 100.0,
                loss_percent: 5.0,
                bursts: bursts.parse().unwrap(),
                rtt: rtt.parse().unwrap(),
                sizes: "220".parse().unwrap(),
            },
            agents: 8,
            messages_per_agent: 25,
            seed: 1,
        }
    }

    #[test]
    fn bursts_are_of_some_frames_and_can_lose_what_is_lost() {
        for text in ["0", "1", "4", "8:50", "2.5:99.5"] {
            assert_eq!(text.parse::<Bursts>().unwrap().to_string(), text);
        }
        for wrong in [
            "", "0.5", "-4", "1001", "4:", "4:0", "4:101", "0:50", "nan", "4:nan", "a",
        ] {
            assert!(wrong.parse::<Bursts>().is_err(), "{wrong}");
        }
        let check = |text: &str| text.parse::<Bursts>().unwrap().check(5.0);
        let problem = check("8:5").unwrap_err();
        assert!(problem.contains("bursts of 8:5: "), "{problem}");
        assert_eq!(check("8:50"), Ok(()));
        let bursts = cell("100", "8:50");
        let link = bursts.link_config();
        let expected = Burst {
            frames: 8.0,
            loss: 0.5,
        };
        assert_eq!((link.loss, link.burst), (0.05, Some(expected)));
        let words = bursts.condition.to_string();
        assert!(words.ends_with("5 % in bursts of 8:50"), "{words}");
        assert_eq!(cell("100", "0").link_config().burst, None);
    }

    #[test]
    fn rtts_and_sizes_are_written_as_they_are_read() {
        for text in ["0.32", "100", "150±50"] {
            assert_eq!(text.parse::<Rtt>().unwrap().to_string(), text);
        }
        assert_eq!("150+-50".parse::<Rtt>(), "150±50".parse());
        for wrong in ["", "fast", "-1", "10±20", "nan", "1e9"] {
            assert!(wrong.parse::<Rtt>().is_err(), "{wrong}");
        }
        assert_eq!("400/600".parse::<Sizes>().unwrap().0, [400, 600]);
        for wrong in ["", "99", "70000", "220/", "a"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn both_directions_make_the_round_trip_and_agents_share_the_rate() {
        let cell = cell("150±50", "0");
        let link = cell.link_config();
        assert_eq!(link.delay, Duration::from_millis(75));
        let Jitter::Normal(deviation) = link.jitter else {
            panic!("{:?}", link.jitter);
        };
        assert!((deviation.as_secs_f64() * 1e3 * 2f64.sqrt() - 50.0).abs() < 1e-6);
        assert_eq!(link.spared_frames, 160);
        assert_eq!(cell.sources(Direction::ToSwitch).len(), 8);
        assert_eq!(cell.messages(), 400);
    }
}
