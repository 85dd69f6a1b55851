//! The notation of a link's impairment, in TOML and on the command line.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use sim::link::{Burst, Jitter, LinkConfig};

/// An impairment of a link in both directions. By default a link is a plain wire: no delay, no
/// loss, no limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    pub delay_ms: Option<f64>,
    /// The largest difference from `delay_ms`, evenly distributed.
    pub jitter_ms: Option<f64>,
    /// `jitter_ms` is the standard deviation of a normal distribution.
    pub jitter_normal: Option<bool>,
    pub loss_percent: Option<f64>,
    /// The mean length, in frames, of the bad times in which frames are lost.
    pub burst_frames: Option<f64>,
    /// Loss of the frames in a bad time; all frames if not given.
    pub burst_loss_percent: Option<f64>,
    pub rate_mbps: Option<f64>,
    pub queue_bytes: Option<u64>,
    /// Whether jitter may reorder frames.
    pub reorder: Option<bool>,
}

impl Impairment {
    pub fn config(&self) -> Result<LinkConfig, String> {
        let spread = milliseconds("jitter_ms", self.jitter_ms)?;
        let loss_percent = self.loss_percent.unwrap_or(0.0);
        if !(0.0..=100.0).contains(&loss_percent) {
            return Err(format!(
                "loss_percent = {loss_percent} is not within 0 to 100"
            ));
        }
        let burst = self.burst(loss_percent)?;
        let rate_bps = match self.rate_mbps {
            None => None,
            Some(mbps) if mbps.is_finite() && mbps >= 0.001 => Some((mbps * 1e6) as u64),
            Some(mbps) => return Err(format!("rate_mbps = {mbps} is below 0.001")),
        };
        let default = LinkConfig::default();
        Ok(LinkConfig {
            delay: milliseconds("delay_ms", self.delay_ms)?,
            jitter: match self.jitter_normal {
                _ if spread.is_zero() => Jitter::None,
                Some(true) => Jitter::Normal(spread),
                _ => Jitter::Uniform(spread),
            },
            loss: loss_percent / 100.0,
            burst,
            rate_bps,
            queue_bytes_max: self.queue_bytes.unwrap_or(default.queue_bytes_max),
            reorder: self.reorder.unwrap_or(false),
            ..default
        })
    }

    fn burst(&self, loss_percent: f64) -> Result<Option<Burst>, String> {
        let Some(frames) = self.burst_frames else {
            return match self.burst_loss_percent {
                None => Ok(None),
                Some(_) => Err("burst_loss_percent needs burst_frames".to_owned()),
            };
        };
        if !(1.0..=1000.0).contains(&frames) {
            return Err(format!("burst_frames = {frames} is not within 1 to 1000"));
        }
        let in_bad = self.burst_loss_percent.unwrap_or(100.0);
        let burst = Burst {
            frames,
            loss: in_bad / 100.0,
        };
        if !(in_bad <= 100.0 && burst.can_lose(loss_percent / 100.0)) {
            return Err(format!(
                "burst_loss_percent = {in_bad} is above 100, or too little for loss_percent = \
                 {loss_percent}"
            ));
        }
        Ok(Some(burst))
    }
}

/// `delay_ms=5,loss_percent=1`: the TOML keys, joined by commas.
impl FromStr for Impairment {
    type Err = String;

    fn from_str(text: &str) -> Result<Impairment, String> {
        toml::from_str(&text.replace(',', "\n")).map_err(|e| {
            let problem = e.message().trim().replace('\n', " ");
            format!("link '{text}': {problem}; write such as delay_ms=5,loss_percent=1")
        })
    }
}

/// Formats a link's configuration as the words that [`Impairment::config`] reads back.
pub fn words(config: &LinkConfig) -> String {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (spread, normal) = match config.jitter {
        Jitter::None => (Duration::ZERO, false),
        Jitter::Uniform(spread) => (spread, false),
        Jitter::Normal(deviation) => (deviation, true),
    };
    let mut words = format!(
        "delay_ms={:?},jitter_ms={:?},jitter_normal={normal},loss_percent={:?},queue_bytes={},\
         reorder={}",
        ms(config.delay),
        ms(spread),
        config.loss * 100.0,
        config.queue_bytes_max,
        config.reorder
    );
    if let Some(Burst { frames, loss }) = config.burst {
        let percent = loss * 100.0;
        words += &format!(",burst_frames={frames:?},burst_loss_percent={percent:?}");
    }
    if let Some(rate_bps) = config.rate_bps {
        words += &format!(",rate_mbps={:?}", rate_bps as f64 / 1e6);
    }
    words
}

fn milliseconds(name: &str, value: Option<f64>) -> Result<Duration, String> {
    let value = value.unwrap_or(0.0);
    if !(0.0..=60_000.0).contains(&value) {
        return Err(format!("{name} = {value} is not within 0 to 60000"));
    }
    Ok(Duration::from_nanos((value * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<LinkConfig, String> {
        text.parse::<Impairment>()?.config()
    }

    #[test]
    fn what_is_written_is_what_the_link_does() {
        let text = "delay_ms=0.16,jitter_ms=2,jitter_normal=true,loss_percent=5,rate_mbps=100,\
                    queue_bytes=3000,reorder=true";
        let expected = LinkConfig {
            delay: Duration::from_micros(160),
            jitter: Jitter::Normal(Duration::from_millis(2)),
            loss: 0.05,
            rate_bps: Some(100_000_000),
            queue_bytes_max: 3000,
            reorder: true,
            ..LinkConfig::default()
        };
        assert_eq!(config(text), Ok(expected.clone()));
        assert_eq!(config(&words(&expected)), Ok(expected));
        assert!(config("").unwrap().is_wire());
        let bursts = LinkConfig {
            loss: 0.05,
            burst: Some(Burst {
                frames: 4.0,
                loss: 0.5,
            }),
            ..LinkConfig::default()
        };
        let text = "loss_percent=5,burst_frames=4,burst_loss_percent=50";
        assert_eq!(config(text), Ok(bursts.clone()));
        assert_eq!(config(&words(&bursts)), Ok(bursts));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        assert!(config("delay=5").unwrap_err().contains("delay"));
        assert!(config("delay_ms=fast").is_err());
        assert!(config("delay_ms=-1").unwrap_err().contains("delay_ms = -1"));
        assert!(config("delay_ms=nan").unwrap_err().contains("delay_ms"));
        assert!(config("loss_percent=101").unwrap_err().contains("0 to 100"));
        assert!(config("rate_mbps=0").unwrap_err().contains("rate_mbps"));
        for (text, problem) in [
            ("burst_frames=0.5", "burst_frames = 0.5"),
            ("burst_loss_percent=50", "needs burst_frames"),
            (
                "loss_percent=5,burst_frames=4,burst_loss_percent=5",
                "burst_loss_percent = 5",
            ),
            (
                "loss_percent=5,burst_frames=4,burst_loss_percent=101",
                "burst_loss_percent = 101",
            ),
        ] {
            assert!(config(text).unwrap_err().contains(problem), "{text}");
        }
    }
}
