//! One run after the other, cells in turn.

use std::time::Instant;

use crate::timeouts::cell::{self, IperfRun, PingRun, StreamRun};
use crate::timeouts::settings::Settings;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::note;
use cli::progress::Progress;

/// One run of one cell. Rows by their place in the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Stream {
        row: usize,
        rate_mbps: f64,
        run: u32,
    },
    Iperf {
        row: usize,
        rate_mbps: f64,
        run: u32,
    },
    Ping {
        row: usize,
        size_bytes: u16,
        run: u32,
    },
}

/// The results until the end, or until the interrupt.
#[derive(Debug, Default)]
pub struct Found {
    pub streams: Vec<StreamRun>,
    pub iperf: Vec<IperfRun>,
    pub pings: Vec<PingRun>,
}

pub fn run_all(
    settings: &Settings,
    steps: &[Step],
    interrupt: &Interrupt,
) -> Result<Found, Failure> {
    let (progress, started) = (Progress::start(), Instant::now());
    let mut found = Found::default();
    for (number, step) in steps.iter().enumerate() {
        let of = step.name(settings);
        progress.say(format_args!(
            "{} of {} runs, {:.0} s: {of}",
            number + 1,
            steps.len(),
            started.elapsed().as_secs_f64()
        ));
        if interrupt.is_set() || !found.take(settings, step, interrupt)? {
            break;
        }
        progress.clear();
        note!(
            "  {:6.0} s  {}",
            started.elapsed().as_secs_f64(),
            found.last(step, &of)
        );
    }
    Ok(found)
}

impl Step {
    fn name(&self, settings: &Settings) -> String {
        match self {
            Step::Stream {
                row,
                rate_mbps,
                run,
            } => {
                let name = &settings.streams[*row].name;
                format!("{name}, {rate_mbps} Mbit/s, run {}", run + 1)
            }
            Step::Iperf {
                row,
                rate_mbps,
                run,
            } => {
                let name = &settings.streams[*row].name;
                format!("{name}, {rate_mbps} Mbit/s, by iperf, run {}", run + 1)
            }
            Step::Ping {
                row,
                size_bytes,
                run,
            } => {
                let name = &settings.pings[*row].name;
                format!("{name}, {size_bytes} bytes, run {}", run + 1)
            }
        }
    }
}

impl Found {
    /// Answers whether it came to its end.
    fn take(
        &mut self,
        settings: &Settings,
        step: &Step,
        interrupt: &Interrupt,
    ) -> Result<bool, Failure> {
        let before = self.streams.len() + self.iperf.len() + self.pings.len();
        match *step {
            Step::Stream {
                row,
                rate_mbps,
                run,
            } => {
                let streams = &settings.streams[row];
                let found = cell::stream(settings, streams, (rate_mbps, run), interrupt)?;
                self.streams.extend(found);
            }
            Step::Iperf {
                row,
                rate_mbps,
                run,
            } => {
                let streams = &settings.streams[row];
                let found = cell::iperf(settings, streams, (rate_mbps, run), interrupt)?;
                self.iperf.extend(found);
            }
            Step::Ping {
                row,
                size_bytes,
                run,
            } => {
                let pings = &settings.pings[row];
                let found = cell::ping(settings, pings, (size_bytes, run), interrupt)?;
                self.pings.extend(found);
            }
        }
        Ok(self.streams.len() + self.iperf.len() + self.pings.len() > before)
    }

    /// A line about the run that has just ended.
    fn last(&self, step: &Step, of: &str) -> String {
        match (
            step,
            self.streams.last(),
            self.iperf.last(),
            self.pings.last(),
        ) {
            (Step::Stream { .. }, Some(run), ..) => format!(
                "{of}: {} reordered, {} lost of {}; {} packet-ins in {} detours",
                run.reordered, run.lost, run.sent, run.channel.packet_ins, run.channel.detours
            ),
            (Step::Iperf { .. }, _, Some(run), _) => match run.said {
                Some(said) => format!(
                    "{of}: {} reordered, {} lost of {}",
                    said.reordered, said.lost, said.sent
                ),
                None => format!("{of}: it said nothing that can be read"),
            },
            (Step::Ping { .. }, .., Some(run)) => {
                let answered = run.rtts_ms.iter().flatten();
                let max = answered.clone().fold(0.0, |max: f64, ms| max.max(*ms));
                format!("{of}: {} answered, at most {max:.2} ms", answered.count())
            }
            _ => of.to_owned(),
        }
    }
}
