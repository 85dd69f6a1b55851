//! The flow set-up rate: the number of new flows a second that are all set up.
//!
//! Every packet is a flow of its own. The bench answers its packet-in with a flow-mod and a
//! packet-out. A flow is set up when its packet arrives at the other host. A step holds when all
//! flows are set up and the switch itself counts all their entries. The rate doubles until a step
//! does not hold; then the interval is halved. A rate that the sender does not reach is not a
//! limit of the switch.

use std::time::{Duration, Instant};

use openflow::{Action, Message};
use serde::Serialize;

use super::lane::{Kind, Lane, Otherwise};
use super::packet_in::relayed;
use super::tap::{Cars, Train};
use cli::failure::Failure;

/// The least share of the offered rate that the sender must reach.
const SENDER_SHARE_MIN: f64 = 0.95;
/// Time after the last packet sent, or the last progress, at which waiting ends.
const PROGRESS_MAX: Duration = Duration::from_millis(500);
const HALVINGS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub first_per_s: u32,
    pub max_per_s: u32,
    pub step: Duration,
}

/// One offered rate and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub offered_per_s: u32,
    /// The rate at which packets were sent.
    pub sent_per_s: f64,
    pub flows: u32,
    pub packet_ins: u32,
    /// Packets that arrived at the other host.
    pub delivered: u32,
    /// Entries in the table.
    pub entries: u32,
    pub holds: bool,
    /// Time from the first packet sent to the last one delivered.
    pub took_s: f64,
}

impl Step {
    fn sender_kept_up(&self) -> bool {
        self.sent_per_s >= SENDER_SHARE_MIN * f64::from(self.offered_per_s)
    }
}

/// The figures of one transport.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The highest rate of the steps that hold; 0 if none does.
    pub highest_per_s: f64,
    pub limited_by: Limit,
    pub steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The channel, the switch or this controller fell behind.
    FlowsLost,
    /// The sender of packets did not reach the next rate.
    Sender,
    /// The highest rate asked for holds.
    RateMax,
    Interrupted,
}

/// The search for the highest rate of one lane. Pure: it takes steps and returns the next rate.
pub struct Ladder {
    settings: Settings,
    holds: u32,
    fails: Option<u32>,
    halvings: u32,
    sender_limit: bool,
    pub steps: Vec<Step>,
}

impl Ladder {
    pub fn new(settings: Settings) -> Ladder {
        Ladder {
            settings,
            holds: 0,
            fails: None,
            halvings: 0,
            sender_limit: false,
            steps: Vec::new(),
        }
    }

    /// The next rate to try; `None` when the search is over.
    pub fn next(&self) -> Option<u32> {
        let Settings {
            first_per_s,
            max_per_s,
            ..
        } = self.settings;
        match self.fails {
            None if self.holds >= max_per_s => None,
            None => Some((self.holds * 2).clamp(first_per_s, max_per_s)),
            Some(fails) => {
                let middle = self.holds + (fails - self.holds) / 2;
                (self.halvings < HALVINGS && middle > self.holds).then_some(middle)
            }
        }
    }

    pub fn tell(&mut self, step: Step) {
        if self.fails.is_some() {
            self.halvings += 1;
        }
        if !step.sender_kept_up() {
            self.sender_limit = true;
            self.fails = Some(step.offered_per_s);
        } else if step.holds {
            self.holds = step.offered_per_s;
        } else {
            self.sender_limit = false;
            self.fails = Some(step.offered_per_s);
        }
        self.steps.push(step);
    }

    pub fn figures(&self) -> Figures {
        let holding = self
            .steps
            .iter()
            .filter(|step| step.holds && step.sender_kept_up());
        let limited_by = match (self.next(), self.fails) {
            (Some(_), _) => Limit::Interrupted,
            (None, None) => Limit::RateMax,
            (None, Some(_)) if self.sender_limit => Limit::Sender,
            (None, Some(_)) => Limit::FlowsLost,
        };
        Figures {
            highest_per_s: holding.map(|step| step.sent_per_s).fold(0.0, f64::max),
            limited_by,
            steps: self.steps.clone(),
        }
    }
}

/// Offers one rate to a lane.
pub async fn step(lane: &mut Lane, rate_per_s: u32, settings: Settings) -> Result<Step, Failure> {
    lane.prepare(Otherwise::ToController, 0).await?;
    lane.ends.egress.drain()?;
    let count = ((f64::from(rate_per_s) * settings.step.as_secs_f64()) as u32).max(1);
    let cars = Cars {
        flow: lane.take_flows(count),
        each_a_flow: true,
        spacing: Duration::from_secs(1) / rate_per_s,
        count_max: count,
    };
    let began = Instant::now();
    let train = lane.ends.ingress.start_train(cars)?;
    let answered = answer(lane, &train, cars.flow, count, began).await?;
    let sent = train.stop()?;
    let entries = lane.count(Kind::Flow).await?;
    lane.clear(Kind::Flow).await?;
    let span_ns = sent
        .last()
        .zip(sent.first())
        .map_or(0, |(last, first)| last - first);
    let sent_per_s = match sent.len() {
        0 | 1 => f64::from(rate_per_s),
        n => (n - 1) as f64 * 1e9 / span_ns.max(1) as f64,
    };
    Ok(Step {
        offered_per_s: rate_per_s,
        sent_per_s,
        flows: count,
        packet_ins: answered.packet_ins,
        delivered: answered.delivered,
        entries,
        holds: answered.delivered == count && entries == count,
        took_s: answered.took.as_secs_f64(),
    })
}

struct Answered {
    packet_ins: u32,
    delivered: u32,
    took: Duration,
}

/// Sets flows up until all are set up, or progress ends.
async fn answer(
    lane: &mut Lane,
    train: &Train,
    first: u32,
    count: u32,
    began: Instant,
) -> Result<Answered, Failure> {
    const LOOK: Duration = Duration::from_millis(5);
    let mut done = Answered {
        packet_ins: 0,
        delivered: 0,
        took: Duration::ZERO,
    };
    let mut progress = Instant::now();
    let mut looked = Instant::now();
    let mut messages = Vec::new();
    while done.delivered < count {
        let mut next = lane.channel.next_within(LOOK).await?;
        while let Some(received) = next.take() {
            if let Message::PacketIn(packet) = received.message
                && let Some(probe) = lane.probe_of(&packet)
                && (first..first + count).contains(&probe.flow)
            {
                done.packet_ins += 1;
                let out = vec![Action::output(lane.ends.egress_port)];
                messages.push(Message::FlowMod(lane.rule(Kind::Flow, probe.flow, out)));
                messages.push(relayed(packet, lane.ends.egress_port));
                progress = Instant::now();
            }
            if lane.channel.has_more() {
                next = Some(lane.channel.next().await?);
            }
        }
        if !messages.is_empty() {
            lane.channel.send(&messages).await?;
            messages.clear();
        }
        if looked.elapsed() >= LOOK || done.packet_ins >= count {
            looked = Instant::now();
            let seen = lane.ends.egress.drain()?;
            if !seen.is_empty() {
                done.delivered += seen.len() as u32;
                done.took = began.elapsed();
                progress = Instant::now();
            }
        }
        if train.is_over() && progress.elapsed() > PROGRESS_MAX {
            break;
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        first_per_s: 1000,
        max_per_s: 64_000,
        step: Duration::from_secs(1),
    };

    fn stepped(rate: u32, switch_max: u32, sender_max: u32) -> Step {
        Step {
            offered_per_s: rate,
            sent_per_s: f64::from(rate.min(sender_max)),
            flows: rate,
            packet_ins: rate,
            delivered: rate.min(switch_max),
            entries: rate.min(switch_max),
            holds: rate.min(sender_max) <= switch_max,
            took_s: 1.0,
        }
    }

    fn climb(switch_max: u32, sender_max: u32) -> Figures {
        let mut ladder = Ladder::new(SETTINGS);
        while let Some(rate) = ladder.next() {
            ladder.tell(stepped(rate, switch_max, sender_max));
            assert!(ladder.steps.len() < 20, "it ends");
        }
        ladder.figures()
    }

    #[test]
    fn the_ladder_finds_the_rate_from_below() {
        for limit in [1500, 9000, 20_000, 33_333] {
            let figures = climb(limit, u32::MAX);
            assert_eq!(figures.limited_by, Limit::FlowsLost);
            let found = figures.highest_per_s;
            assert!(
                found <= f64::from(limit) && found > 0.85 * f64::from(limit),
                "{limit}: {found}"
            );
        }
    }

    #[test]
    fn what_holds_at_the_highest_rate_and_what_holds_nowhere() {
        let all = climb(1_000_000, u32::MAX);
        assert_eq!(
            (all.limited_by, all.highest_per_s),
            (Limit::RateMax, 64_000.0)
        );
        let none = climb(0, u32::MAX);
        assert_eq!(
            (none.limited_by, none.highest_per_s),
            (Limit::FlowsLost, 0.0)
        );
    }

    #[test]
    fn a_sender_that_falls_behind_is_told_and_not_blamed_on_the_switch() {
        let figures = climb(1_000_000, 10_000);
        assert_eq!(figures.limited_by, Limit::Sender);
        assert!(figures.highest_per_s <= 10_000.0 && figures.highest_per_s > 8000.0);
    }

    #[test]
    fn an_interrupted_search_says_so() {
        let mut ladder = Ladder::new(SETTINGS);
        ladder.tell(stepped(1000, u32::MAX, u32::MAX));
        assert_eq!(ladder.figures().limited_by, Limit::Interrupted);
    }
}
