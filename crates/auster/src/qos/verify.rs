//! `auster qos verify`: whether packets get what policies and circuits name, hop by hop.
//!
//! The controller reads and judges the counters. This command asks it four times to read them:
//! before, when the time begins, when it ends, and when the late counters have arrived too.

use std::time::Duration;

use control::qos::verify::{FLOWS_LATE, KEPT_LATE};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::show::{list, text};
use super::{ApiArgs, print, write};
use cli::failure::Failure;
use cli::table::table;

/// The time that a switch has to answer, after the delay of its counters.
const ANSWER: Duration = Duration::from_millis(500);

const KINDS: [(&str, &str); 2] = [("policies", "policy"), ("circuits", "circuit")];

#[derive(clap::Args)]
pub struct Args {
    /// Policies and circuits; all if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Time to watch counters; late counters take 8 s more
    #[arg(long, value_name = "S", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    api: ApiArgs,

    /// Print the API's answer for the named ones only
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let client = args.api.client()?;
    let asked = chosen(&client.get("/v1/verify").await?, &args.names)?;
    let from = &asked["at_ms"];
    sleep(FLOWS_LATE + ANSWER).await;
    client.get("/v1/verify").await?;
    sleep(Duration::from_secs(args.seconds)).await;
    client.get("/v1/verify").await?;
    sleep(KEPT_LATE + ANSWER).await;
    let found = client.get(&format!("/v1/verify?from_ms={from}")).await?;
    let found = chosen(&found, &args.names)?;
    match args.json {
        true => print(&found),
        false => write(shown(&found).trim_end()),
    }
    match problem(&found) {
        Some(problem) => Err(Failure::negative(problem)),
        None => Ok(()),
    }
}

/// Selects the results for these names; without names, all of them.
fn chosen(document: &Value, names: &[String]) -> Result<Value, Failure> {
    let mut chosen = json!({ "at_ms": document["at_ms"] });
    for (kind, _) in KINDS {
        let all = document[kind].as_object().cloned().unwrap_or_default();
        let of: Map<String, Value> = all
            .into_iter()
            .filter(|(name, _)| names.is_empty() || names.contains(name))
            .collect();
        chosen[kind] = Value::Object(of);
    }
    let is_there = |name: &&String| {
        KINDS
            .iter()
            .any(|(kind, _)| !chosen[*kind][*name].is_null())
    };
    let unknown: Vec<String> = names
        .iter()
        .filter(|name| !is_there(name))
        .map(|name| format!("there is no policy or circuit '{name}'"))
        .collect();
    match unknown.is_empty() {
        true => Ok(chosen),
        false => Err(Failure::usage(unknown.join("; "))),
    }
}

/// Each policy and circuit, with its state and hops.
fn each(document: &Value) -> impl Iterator<Item = (&'static str, &String, &Value)> {
    KINDS.into_iter().flat_map(move |(kind, word)| {
        let of = document[kind].as_object().into_iter().flatten();
        of.map(move |(name, verified)| (word, name, verified))
    })
}

fn shown(document: &Value) -> String {
    let mut lines = String::new();
    let header = [
        "at",
        "s",
        "counted",
        "queue",
        "expected",
        "got",
        "meter",
        "mark",
        "took effect",
    ];
    for (word, name, verified) in each(document) {
        lines += &format!("{word} {name}: {}\n", text(&verified["state"]));
        let hops = list(&verified["hops"]);
        let why = |hop: &Value| Some(format!("    {}: {}\n", at(hop), hop["why"].as_str()?));
        match hops.is_empty() {
            true => list(&verified["reasons"])
                .iter()
                .for_each(|reason| lines += &format!("  {}\n", text(reason))),
            false => lines += &table(&header, &hops.iter().map(row).collect::<Vec<_>>()),
        }
        lines.extend(hops.iter().filter_map(why));
    }
    lines
}

fn row(hop: &Value) -> Vec<String> {
    let (queue, meter, mark) = (&hop["queue"], &hop["meter"], &hop["mark"]);
    let or_none = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        value => text(value),
    };
    let meter = match (&meter["packets"], &meter["dropped"]) {
        (Value::Null, _) => or_none(&meter["number"]),
        (packets, dropped) => format!("{}, {} dropped", text(packets), text(dropped)),
    };
    let mark = match mark["proved_by"].as_str() {
        None => or_none(&mark["dscp"]),
        Some(by) => format!("dscp {} by {by}", text(&mark["dscp"])),
    };
    let effect = match (text(&hop["effect"]).as_str(), &hop["drops"]) {
        ("no", _) => "NO".to_owned(),
        ("yes", Value::Bool(true)) => "yes, dropped".to_owned(),
        (other, _) => other.to_owned(),
    };
    vec![
        at(hop),
        format!("{:.1}", hop["seconds"].as_f64().unwrap_or(0.0)),
        text(&hop["counted"]),
        or_none(&queue["numbers"]),
        or_none(&queue["expected"]),
        or_none(&queue["got"]),
        meter,
        mark,
        effect,
    ]
}

fn at(hop: &Value) -> String {
    let (dpid, ports) = (text(&hop["dpid"]), text(&hop["ports"]));
    let answers = if hop["answers"] == true {
        ", answers"
    } else {
        ""
    };
    match ports.is_empty() {
        true => format!("{dpid}{answers}"),
        false => format!("{dpid}:{ports}{answers}"),
    }
}

/// The reason why some policy or circuit may not take effect.
fn problem(document: &Value) -> Option<String> {
    let mut problems = Vec::new();
    let mut is_any = false;
    for (word, name, verified) in each(document) {
        if ["waiting", "installing"].contains(&text(&verified["state"]).as_str()) {
            problems.push(format!("{word} {name} is {}", text(&verified["state"])));
        }
        for hop in list(&verified["hops"]) {
            match hop["effect"].as_str() {
                Some("yes") => is_any = true,
                Some("no traffic") => {}
                _ => {
                    let (at, why) = (at(hop), text(&hop["why"]));
                    problems.push(format!("{word} {name} at {at}: {why}"));
                }
            }
        }
    }
    if problems.is_empty() && !is_any {
        return Some(
            "nothing that is asked for met a packet, so there is nothing to judge by; verify it \
             under traffic, or longer with --seconds"
                .to_owned(),
        );
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(effect: &str, why: Value) -> Value {
        json!({
            "dpid": "0000000000000001", "ports": [2], "answers": false, "effect": effect,
            "why": why,
            "counted": 512, "seconds": 10.04, "drops": false, "meter": null,
            "queue": {"numbers": [1], "expected": 512, "got": 500, "dropped": 0},
            "mark": {"dscp": 46, "proved_by": "queue"},
        })
    }

    fn found(state: &str, hops: &[Value]) -> Value {
        let verified =
            json!({"state": state, "reasons": ["why"], "seen_ago_s": null, "hops": hops});
        json!({"at_ms": 5, "policies": {"voice": verified}, "circuits": {}})
    }

    #[test]
    fn all_yes_is_well_and_anything_else_is_told_by_place() {
        let (yes, quiet) = (hop("yes", Value::Null), hop("no traffic", Value::Null));
        assert_eq!(
            problem(&found("active", &[yes.clone(), quiet.clone()])),
            None
        );
        for effect in ["no", "partly", "unknown"] {
            let doubtful = hop(effect, json!("queue 1 got 0 of 512 packets"));
            let told = problem(&found("installed", &[yes.clone(), doubtful])).unwrap();
            let expected = "policy voice at 0000000000000001:2: queue 1 got 0 of 512 packets";
            assert_eq!(told, expected, "{effect}");
        }
        let told = problem(&found("installed", &[quiet])).unwrap();
        assert!(told.contains("under traffic"), "{told}");
        let told = problem(&found("waiting", &[])).unwrap();
        assert_eq!(told, "policy voice is waiting");
    }

    #[test]
    fn the_table_has_a_row_for_each_hop_and_says_why() {
        let doubtful = hop("no", json!("nobody beside the switch"));
        let text = shown(&found(
            "not in effect",
            &[hop("yes", Value::Null), doubtful],
        ));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "policy voice: not in effect");
        let cells = "0000000000000001:2 10.0 512 1 512 500 - dscp 46 by queue yes";
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[2]), cells);
        assert!(lines[3].ends_with("NO"), "{}", lines[3]);
        assert_eq!(lines[4], "    0000000000000001:2: nobody beside the switch");
        let text = shown(&found("waiting", &[]));
        assert_eq!(text, "policy voice: waiting\n  why\n");
    }

    #[test]
    fn names_that_are_not_there_are_told_together() {
        let document = found("active", &[]);
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen(&document, &names(&["voice"])).unwrap(), document);
        let told = chosen(&document, &names(&["a", "voice", "b"])).unwrap_err();
        assert_eq!(
            told.message(),
            "there is no policy or circuit 'a'; there is no policy or circuit 'b'"
        );
    }
}
