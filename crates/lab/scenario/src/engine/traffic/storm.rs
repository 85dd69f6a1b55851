//! `kind = "storm"`: new flows at a steady rate, each of which needs the controller.
//!
//! Hosts that the network has never seen send through one host's interface to others behind another
//! host's. Each packet belongs to a pair that has not communicated before.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use cli::failure::Failure;
use testbed::traffic::background::{Background, STRANGERS, Source};
use testbed::traffic::tcp::Ends;

use super::{Carried, Pair, Record, Stage, Traffic};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

pub struct Storm {
    flows_per_s: u64,
}

/// Figures of the whole run.
pub const FIGURES: [(&str, Shape); 3] = [
    ("flows", ONE),
    // Flows whose packet reached its host.
    ("delivered", ONE),
    ("delivered_percent", ONE),
];

const FLOWS_PER_S_MAX: u64 = 5000;
/// The lowest number of storms' strangers, above the numbers of other newcomers.
const STRANGER_FIRST: usize = 1 << 20;
/// Flows of all storms of this process: later runs on the same network have new flows.
static FLOWS: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

impl Storm {
    pub fn read(section: &Section<'_>) -> Option<Storm> {
        let flows_per_s = section.required_count("flows_per_s", 0..=FLOWS_PER_S_MAX);
        Some(Storm {
            flows_per_s: flows_per_s?,
        })
    }
}

/// The source of a storm. Storms from different hosts have different strangers.
fn source((place, _): Pair, ends: &Ends) -> Result<Source, Failure> {
    let [from, to] = ends.doors()?;
    let first = STRANGER_FIRST + place * 2 * STRANGERS;
    Ok(Source::new(FLOWS.clone(), from, to, first))
}

impl Traffic for Storm {
    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        (self.flows_per_s as f64, "flows_per_s")
    }

    fn ends_on_demand(&self) -> bool {
        true
    }

    /// Announces the strangers to the network, which takes two seconds.
    fn introduce(&self, pair: Pair, ends: &Ends) -> Result<bool, Failure> {
        if self.flows_per_s > 0 {
            source(pair, ends)?.introduce();
        }
        Ok(self.flows_per_s > 0)
    }

    fn carry(&self, stage: &Stage<'_>) -> Carried {
        if self.flows_per_s == 0 {
            return Ok(Box::new(Background::default()));
        }
        let source = source(stage.pairs[0], &stage.ends[0])?;
        std::thread::sleep(stage.from.saturating_sub(stage.epoch.elapsed()));
        let running = source.start(self.flows_per_s as f64);
        stage.wait_for_end();
        Ok(Box::new(running.stop()?))
    }
}

impl Record for Background {
    fn figure(&self, name: &str, _: &Window) -> Value {
        let (sent, delivered) = (self.flows_sent as f64, self.flows_delivered as f64);
        Value::One(match name {
            "flows" => sent,
            "delivered" => delivered,
            // Without flows, none is lost.
            _ if self.flows_sent == 0 => 100.0,
            _ => delivered * 100.0 / sent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn delivered_flows_are_a_share_of_all() {
        let window = Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to: Duration::MAX,
        };
        let figures = |sent, delivered| {
            let counts = Background {
                flows_sent: sent,
                flows_delivered: delivered,
            };
            FIGURES.map(|(name, _)| counts.figure(name, &window))
        };
        assert_eq!(figures(200, 150), [200.0, 150.0, 75.0].map(Value::One));
        assert_eq!(figures(0, 0), [0.0, 0.0, 100.0].map(Value::One));
    }
}
