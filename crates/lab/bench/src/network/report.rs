//! The tables and the plots.

use crate::network::figures::{By, Flow, TcpRun, UdpRun};
use crate::network::{Run, Settings};
use cli::failure::Failure;
use cli::table::table;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Bars, Plot, Series};

/// The heading: the network that is measured, and the controllers compared.
pub fn heading(settings: &Settings) -> String {
    let mut text = format!(
        "Between {} and {} of {} ({} switches of Open vSwitch, {} hosts): round trips of {} new \
         flows, TCP transfers, UDP streams,\nunder {}",
        settings.from,
        settings.to,
        settings.topology,
        settings.switches,
        settings.hosts,
        settings.pings,
        settings.controllers.join("; "),
    );
    text += &match settings.background_flows_per_s {
        0.0 => ", in an idle network".to_string(),
        rate => format!(
            ", idle and beside {rate} new flows/s from {} to {}",
            settings.background_from, settings.background_to
        ),
    };
    if settings.iperf.is_some() {
        text += "; iperf and iperf3 beside ours as a check";
    }
    for (what, impairment) in [
        ("links", &settings.link_impairment),
        ("control link", &settings.control_impairment),
    ] {
        if let Some(words) = impairment {
            text += &format!("\n{what}: {words}");
        }
    }
    text + "\n"
}

pub fn text(settings: &Settings, runs: &[Run], interrupted: bool) -> String {
    let mut text = String::new();
    if interrupted {
        text += "Interrupted: the figures so far.\n\n";
    }
    if runs.is_empty() {
        return text + "There are none.\n";
    }
    text += &format!("Round trips (ms)\n{}\n", icmp_table(runs));
    text += &format!(
        "TCP transfers (ms, median; Mbit/s of it)\n{}\n",
        tcp_table(runs)
    );
    text += &format!(
        "UDP, datagrams of {} bytes for {} s\n{}",
        settings.datagram_bytes,
        settings.udp_s,
        udp_table(runs)
    );
    if settings.background_flows_per_s > 0.0 {
        text += &format!("\nNew flows beside\n{}", background_table(runs));
    }
    text
}

fn icmp_table(runs: &[Run]) -> String {
    let header = [
        "controller",
        "beside",
        "flows",
        "first mean",
        "ci95",
        "p50",
        "p99",
        "lost",
        "later mean",
        "ci95",
        "p50",
        "p99",
        "lost",
    ];
    let figures = |s: &Summary| [s.mean, s.ci95, s.p50, s.p99].map(|ms| format!("{ms:.3}"));
    let row = |run: &Run| {
        let icmp = &run.icmp;
        let mut row = vec![run.controller.clone(), beside(run), icmp.flows.to_string()];
        row.extend(figures(&icmp.first_ms));
        row.push(icmp.first_lost.to_string());
        row.extend(figures(&icmp.later_ms));
        row.push(icmp.later_lost.to_string());
        row
    };
    table(&header, &runs.iter().map(row).collect::<Vec<_>>())
}

fn tcp_table(runs: &[Run]) -> String {
    let header = [
        "controller",
        "beside",
        "size",
        "by",
        "runs",
        "ms",
        "min",
        "max",
        "Mbit/s",
        "failed",
    ];
    let rows = runs.iter().flat_map(|run| {
        run.tcp.iter().map(|tcp| {
            vec![
                run.controller.clone(),
                beside(run),
                bytes(tcp.size_bytes),
                tcp.by.name().to_string(),
                tcp.time_ms.count.to_string(),
                format!("{:.2}", tcp.time_ms.p50),
                format!("{:.2}", tcp.time_ms.min),
                format!("{:.2}", tcp.time_ms.max),
                format!("{:.1}", tcp.mbps()),
                tcp.failed.to_string(),
            ]
        })
    });
    table(&header, &rows.collect::<Vec<_>>())
}

fn udp_table(runs: &[Run]) -> String {
    let header = [
        "controller",
        "beside",
        "Mbit/s",
        "by",
        "flow",
        "sent",
        "lost",
        "lost %",
        "jitter ms",
        "reordered",
        "%",
        "extent max",
        "late p50 ms",
        "max ms",
        "sender late ms",
    ];
    let maybe = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
    };
    let rows = runs.iter().flat_map(|run| {
        run.udp.iter().map(move |udp| {
            vec![
                run.controller.clone(),
                beside(run),
                udp.rate_mbps.to_string(),
                udp.by.name().to_string(),
                udp.flow.name().to_string(),
                udp.sent.to_string(),
                udp.lost.to_string(),
                format!("{:.2}", udp.lost_percent),
                format!("{:.3}", udp.jitter_ms),
                udp.reordered.to_string(),
                format!("{:.2}", udp.reordered_percent),
                maybe(udp.extent.map(|e| e.max), 0),
                maybe(udp.late_ms.map(|l| l.p50), 2),
                maybe(udp.late_ms.map(|l| l.max), 2),
                maybe(udp.sender_late_max_ms, 2),
            ]
        })
    });
    table(&header, &rows.collect::<Vec<_>>())
}

fn background_table(runs: &[Run]) -> String {
    let rows = runs.iter().filter(|run| run.background_flows_per_s > 0.0);
    let rows = rows.map(|run| {
        let background = &run.background;
        vec![
            run.controller.clone(),
            run.background_flows_per_s.to_string(),
            background.flows_sent.to_string(),
            background.flows_delivered.to_string(),
        ]
    });
    let header = ["controller", "flows/s", "sent", "delivered"];
    table(&header, &rows.collect::<Vec<_>>())
}

pub fn plots(results: &Results, settings: &Settings, runs: &[Run]) -> Result<(), Failure> {
    if !results.are_kept() || runs.is_empty() {
        return Ok(());
    }
    let place = format!(
        "{} to {}, {}",
        settings.from, settings.to, settings.topology
    );
    let first = |run: &Run| run.icmp.first_ms;
    let later = |run: &Run| run.icmp.later_ms;
    let title = format!("Round trip of a flow's first packet: {place}");
    results.plot("rtt-first", &rtt_bars(title, settings, runs, first).svg())?;
    let title = format!("Round trip of later packets: {place}");
    results.plot("rtt-later", &rtt_bars(title, settings, runs, later).svg())?;
    for rate in rates(runs) {
        let of: Vec<&Run> = (runs.iter().filter(|r| r.background_flows_per_s == rate)).collect();
        let suffix = if rate == 0.0 { "idle" } else { "beside" };
        let place = format!("{place}, {}", condition(rate));
        results.plot(
            &format!("tcp-time-{suffix}"),
            &tcp_plot(&place, &of).lines(),
        )?;
        for (name, what, y_label, value) in UDP_PLOTS {
            let plot = udp_plot(format!("{what}: {place}"), y_label, &of, value);
            results.plot(&format!("{name}-{suffix}"), &plot.lines())?;
        }
    }
    Ok(())
}

type UdpPlot = (&'static str, &'static str, &'static str, fn(&UdpRun) -> f64);

/// File, title, axis and value.
const UDP_PLOTS: [UdpPlot; 3] = [
    ("udp-loss", "UDP loss", "lost (%)", |udp| udp.lost_percent),
    (
        "udp-jitter",
        "UDP jitter (RFC 3550)",
        "jitter (ms)",
        |udp| udp.jitter_ms,
    ),
    (
        "udp-reordering",
        "UDP reordering (RFC 4737)",
        "reordered (%)",
        |udp| udp.reordered_percent,
    ),
];

/// Groups of controllers, a bar for each condition, means with their confidence intervals.
fn rtt_bars(
    title: String,
    settings: &Settings,
    runs: &[Run],
    value: impl Fn(&Run) -> Summary,
) -> Bars {
    let rates = rates(runs);
    let of = |rate: &f64| -> Vec<Summary> {
        let of_controller = |name: &String| {
            let run = runs
                .iter()
                .find(|run| run.controller == *name && run.background_flows_per_s == *rate);
            run.map(&value).unwrap_or_default()
        };
        settings.controllers.iter().map(of_controller).collect()
    };
    let part = |rate: &f64| (condition(*rate), of(rate).iter().map(|s| s.mean).collect());
    let error = |rate: &f64| of(rate).iter().map(|s| s.ci95).collect();
    Bars {
        title,
        y_label: "round trip (ms), mean with 95 % interval".to_string(),
        groups: settings.controllers.clone(),
        parts: rates.iter().map(part).collect(),
        stacked: false,
        error: Some(rates.iter().map(error).collect()),
    }
}

fn tcp_plot(place: &str, runs: &[&Run]) -> Plot {
    let mut series = Vec::new();
    for (run, by) in shown(runs) {
        let mut sizes: Vec<_> = run.tcp.iter().filter(|tcp| tcp.by == by).collect();
        sizes.sort_by_key(|tcp| tcp.size_bytes);
        let point = |tcp: &&TcpRun| (tcp.size_bytes as f64 / 1024.0, tcp.time_ms.mean);
        series.push(Series {
            name: name(run, by, None),
            points: sizes.iter().map(point).collect(),
            error: Some(sizes.iter().map(|tcp| tcp.time_ms.ci95).collect()),
        });
    }
    Plot {
        title: format!("TCP transfer time: {place}"),
        x_label: "size (KiB)".to_string(),
        y_label: "time (ms), mean with 95 % interval".to_string(),
        x_log: true,
        y_log: true,
        series,
    }
}

fn udp_plot(title: String, y_label: &str, runs: &[&Run], value: fn(&UdpRun) -> f64) -> Plot {
    let mut series = Vec::new();
    for (run, by) in shown(runs) {
        for flow in by.flows() {
            let of = run
                .udp
                .iter()
                .filter(|udp| udp.by == by && udp.flow == *flow);
            let mut points: Vec<_> = of.map(|udp| (udp.rate_mbps, value(udp))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            series.push(Series {
                name: name(run, by, Some(*flow)),
                points,
                error: None,
            });
        }
    }
    Plot {
        title,
        x_label: "rate (Mbit/s)".to_string(),
        y_label: y_label.to_string(),
        x_log: false,
        y_log: false,
        series,
    }
}

/// Whose lines a plot has: the tools' only where they do not crowd out a comparison.
fn shown<'a>(runs: &[&'a Run]) -> Vec<(&'a Run, By)> {
    let with_tools = runs.len() == 1 && runs[0].tcp.iter().any(|tcp| tcp.by != By::Auster);
    let of = |run: &&'a Run| {
        let run = *run;
        By::all(with_tools).map(move |by| (run, by))
    };
    runs.iter().flat_map(of).collect()
}

fn name(run: &Run, by: By, flow: Option<Flow>) -> String {
    match (by, flow) {
        (By::Auster, None) => run.controller.clone(),
        (By::Auster, Some(flow)) => format!("{}, {} flow", run.controller, flow.name()),
        (By::Tool(tool), _) => format!("{}, by {}", run.controller, tool.name()),
    }
}

/// The conditions, in the order they were measured.
fn rates(runs: &[Run]) -> Vec<f64> {
    let mut rates: Vec<f64> = runs.iter().map(|run| run.background_flows_per_s).collect();
    rates.dedup();
    rates
}

fn condition(rate: f64) -> String {
    match rate {
        0.0 => "idle".to_string(),
        rate => format!("beside {rate} new flows/s"),
    }
}

/// New flows a second, in a table.
fn beside(run: &Run) -> String {
    match run.background_flows_per_s {
        0.0 => "idle".to_string(),
        rate => format!("{rate} flows/s"),
    }
}

/// Formats a number of bytes in the syntax of `--sizes`.
fn bytes(count: u64) -> String {
    for (unit, letter) in [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")] {
        if count.is_multiple_of(unit) {
            return format!("{}{letter}", count / unit);
        }
    }
    count.to_string()
}
