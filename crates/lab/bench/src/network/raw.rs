//! Every single measurement, for the directory of `--results`.

use std::fmt::Write;

use crate::network::Run;
use crate::network::figures::Flow;
use crate::network::udp::{Pace, Stream};
use cli::failure::Failure;
use report::output::Results;

/// Lines of CSV; none are made when they are not kept.
pub struct Raw {
    is_kept: bool,
    pings: String,
    transfers: String,
    datagrams: String,
}

impl Raw {
    pub fn new(is_kept: bool) -> Raw {
        let pings = "controller,background_flows_per_s,flow,packet,rtt_ms\n";
        let transfers = "controller,background_flows_per_s,by,size_bytes,time_ms\n";
        let datagrams =
            "controller,background_flows_per_s,flow,rate_mbps,number,sent_ns,received_ns\n";
        Raw {
            is_kept,
            pings: pings.to_string(),
            transfers: transfers.to_string(),
            datagrams: datagrams.to_string(),
        }
    }

    /// Times of arrival in their order, from when the first datagram was sent.
    pub fn stream(
        &mut self,
        controller: &str,
        background: f64,
        flow: Flow,
        pace: &Pace,
        stream: &Stream,
    ) {
        let start_ns = stream.arrivals.iter().map(|a| a.sent_ns).min().unwrap_or(0);
        for arrival in stream.arrivals.iter().filter(|_| self.is_kept) {
            let _ = writeln!(
                self.datagrams,
                "\"{controller}\",{background},{},{},{},{},{}",
                flow.name(),
                pace.rate_mbps,
                arrival.number,
                arrival.sent_ns - start_ns,
                arrival.received_ns.saturating_sub(start_ns),
            );
        }
    }

    /// Pings and transfers; nothing where one was lost.
    pub fn runs(&mut self, runs: &[Run]) {
        for run in runs.iter().filter(|_| self.is_kept) {
            let of = format!("\"{}\",{}", run.controller, run.background_flows_per_s);
            for (flow, trial) in run.trials.iter().enumerate() {
                let rtts = std::iter::once(&trial.first_ms).chain(&trial.later_ms);
                for (packet, rtt) in rtts.enumerate() {
                    let rtt = rtt.map_or(String::new(), |ms| format!("{ms:.4}"));
                    let _ = writeln!(self.pings, "{of},{flow},{packet},{rtt}");
                }
            }
            for size in &run.tcp {
                let (by, bytes) = (size.by.name(), size.size_bytes);
                for ms in &size.times_ms {
                    let _ = writeln!(self.transfers, "{of},{by},{bytes},{ms:.4}");
                }
            }
        }
    }

    pub fn write(&self, results: &Results) -> Result<(), Failure> {
        results.write("pings.csv", self.pings.as_bytes())?;
        results.write("transfers.csv", self.transfers.as_bytes())?;
        results.write("datagrams.csv", self.datagrams.as_bytes())
    }
}
