//! `auster sim fig10`: the cost of matching in the published model, beside the time that our
//! classifier takes.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use openflow::message::PacketIn;
use openflow::packet::build::{self, Host};
use openflow::{Frame, Message, PortNo, Version, Xid, encode};
use sched::policy::{PolicyMap, RULES_MAX};
use sched::{Classifier, Direction};
use serde::Serialize;
use serde_json::json;

use cli::failure::Failure;
use cli::flag::whole;
use cli::table::{Columns, table};
use measure::stats::Summary;
use report::output::OutputArgs;
use report::plot::{Plot, Series};

#[derive(clap::Args)]
pub struct Args {
    /// Runs for each number of rules
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = whole(2..=1000))]
    runs: u32,
    /// Classifications per run
    #[arg(
        long, value_name = "NUMBER", default_value_t = 100_000,
        value_parser = whole(100..=100_000_000)
    )]
    messages: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// Entries of the flow tables, and rules of the policy map.
const ENTRIES: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const RULES: [usize; 8] = [1, 2, 4, 5, 8, 16, 32, RULES_MAX];
/// One operation of the TCAM, as published.
const TCAM_US: f64 = 20.0;
/// The paper's limit for all of its Fig. 10.
const PUBLISHED_MAX_US: f64 = 300.0;

#[derive(Serialize)]
struct Model {
    entries: u32,
    rules: usize,
    us: f64,
}

/// The measured time of a packet-in that only the last rule matches.
#[derive(Serialize)]
struct Measured {
    rules: usize,
    ns: Summary,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let measurement = args.output.begin()?;
    let model = ENTRIES.into_iter().flat_map(|entries| {
        RULES.into_iter().map(move |rules| Model {
            entries,
            rules,
            us: model_us(entries, rules),
        })
    });
    let model: Vec<Model> = model.collect();
    let mut measured = Vec::new();
    for rules in RULES {
        measured.push(measure(rules, args)?);
    }
    let text = text(&model, &measured);
    let results = &measurement.results;
    results.plot("fig10", &plot(&model, &measured).lines())?;
    results.write("table.txt", text.as_bytes())?;
    let settings = json!({
        "tcam_us": TCAM_US,
        "runs": args.runs,
        "messages": args.messages,
    });
    let figures = json!({ "model": model, "measured": measured });
    measurement.conclude("fig10", settings, (figures, false), &text)
}

/// T = K log2(n m).
fn model_us(entries: u32, rules: usize) -> f64 {
    TCAM_US * (f64::from(entries) * rules as f64).log2()
}

fn measure(rules: usize, args: &Args) -> Result<Measured, Failure> {
    let classifier = Classifier::new(&map(rules)?);
    let frame = packet_in();
    let classify = || {
        let verdict = classifier.classify(black_box(&frame), Direction::ToController, 1, None);
        black_box(verdict).rule
    };
    assert_eq!(classify(), Some(rules - 1), "the last rule takes it");
    let run = |_| {
        let start = Instant::now();
        for _ in 0..args.messages {
            classify();
        }
        start.elapsed().as_nanos() as f64 / f64::from(args.messages)
    };
    run(0); // Warm.
    Ok(Measured {
        rules,
        ns: Summary::of((0..args.runs).map(run)),
    })
}

/// Builds a policy map with rules for other ports before the one that matches all packets.
fn map(rules: usize) -> Result<PolicyMap, Failure> {
    let mut text = String::new();
    for rule in 1..rules {
        let port = 20_000 + rule;
        text += &format!(
            "Rule #{rule}: traffic_type=2, ip_proto=17, udp_dst={port}, action=queue_id:1\n"
        );
    }
    text +=
        &format!("Rule #{rules}: traffic_type=2, action=queue_id:0\nDefault: action=queue_id:1\n");
    let parsed = PolicyMap::parse(&text).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::negative(problems.join("; "))
    });
    parsed.map(|(map, _)| map)
}

fn packet_in() -> Frame {
    let (from, to) = (Host::numbered(1), Host::numbered(2));
    let data = build::udp(from, to, (1024, 30_000), &[0; 96]);
    let message = Message::PacketIn(PacketIn::new(PortNo(1), Bytes::from(data)));
    encode(Version::V13, Xid(1), &message).expect("1.3 has packet-ins")
}

fn text(model: &[Model], measured: &[Measured]) -> String {
    let names = RULES.map(|rules| format!("m={rules}"));
    let header: Vec<&str> = std::iter::once("n")
        .chain(names.iter().map(String::as_str))
        .collect();
    let row = |entries: &u32| {
        let cells = model.iter().filter(|cell| cell.entries == *entries);
        let cells = cells.map(|cell| format!("{:.1}", cell.us));
        std::iter::once(entries.to_string()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = ENTRIES.iter().map(row).collect();
    let most = model.iter().map(|cell| cell.us).fold(0.0, f64::max);
    let measured = Columns::of(measured)
        .text("rules m", |found| found.rules)
        .text("ns a message", |found| {
            format!("{:.1} ± {:.1}", found.ns.mean, found.ns.ci95)
        })
        .number("ns a rule", 2, |found| found.ns.mean / found.rules as f64)
        .number("model at n=1, us", 1, |found| model_us(1, found.rules))
        .table();
    format!(
        "The model, us: 20 x log2(n m), n entries in the switch's tables, m rules\n{}  at most \
         {most:.1}; the paper says {PUBLISHED_MAX_US} at most\n\nOur classifier, a packet-in that \
         the last rule takes (the switch's n entries cost it nothing)\n{measured}",
        table(&header, &rows)
    )
}

fn plot(model: &[Model], measured: &[Measured]) -> Plot {
    let of_model = [1, 512].map(|entries| {
        let cells = model.iter().filter(|cell| cell.entries == entries);
        let points = cells.map(|cell| (cell.rules as f64, cell.us));
        Series::new(format!("model, n = {entries}"), points.collect())
    });
    let ours = Series {
        name: "our classifier".to_owned(),
        points: (measured.iter().map(|m| (m.rules as f64, m.ns.mean / 1e3))).collect(),
        error: Some(measured.iter().map(|m| m.ns.ci95 / 1e3).collect()),
    };
    let title = "Delay of matching by rules of the policy map (Fig. 10)";
    let lines = of_model.into_iter().chain([ours]).collect();
    let plot = Plot::new(title, ["rules m", "delay (us)"], lines);
    plot.log_x().log_y()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gives_the_paper_s_figures() {
        for (entries, rules, us) in [
            (1, 1, 0.0),
            (1, 5, 46.44),
            (1, 4, 40.0),
            (1, 64, 120.0),
            (512, 64, 300.0),
        ] {
            let found = model_us(entries, rules);
            assert!((found - us).abs() < 0.01, "n {entries}, m {rules}: {found}");
        }
    }

    #[test]
    fn only_the_last_rule_takes_the_message_that_is_measured() {
        for rules in RULES {
            let map = map(rules).unwrap();
            assert_eq!(map.rules.len(), rules);
            let verdict =
                Classifier::new(&map).classify(&packet_in(), Direction::ToController, 1, None);
            assert_eq!(verdict.rule, Some(rules - 1));
        }
    }
}
