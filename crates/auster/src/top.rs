//! `auster top`: the present state of a running controller's network, in a terminal.

mod talkers;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::runtime::block_on;
use hyper::Method;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, interval, sleep};

use crate::events::{plain, text};
use crate::qos::ApiArgs;
use crate::qos::client::Client;
use talkers::Talkers;

pub const EXAMPLE: &str = "\
Example:
  auster top
  auster top --once --json | jq '.links | to_entries | max_by(.value.there.load)'
  auster top --once --json | jq '.talkers[0]'";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,

    /// Print the tables once, with rates if they are known within a few seconds
    #[arg(long)]
    once: bool,

    /// With --once: print a JSON document
    #[arg(long, requires = "once")]
    json: bool,

    /// Rows of each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    rows: usize,
}

const LIVE: &str = "/v1/live?views=links,ports,tables,channels";
const EVENTS_KEPT: usize = 100;
/// The time between two pictures.
const PERIOD: Duration = Duration::from_secs(1);
/// The time between two readings of entries.
const ENTRIES_PERIOD: Duration = Duration::from_secs(3);
/// The time within which counters are read twice.
const RATES_MAX: Duration = Duration::from_secs(6);
/// The codes that switch to another screen, switch back, and empty the screen from its top.
const SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const SCREEN_BEFORE: &str = "\x1b[?25h\x1b[?1049l";
const EMPTY: &str = "\x1b[H\x1b[2J";

/// The figures and events read so far.
#[derive(Default)]
struct Known {
    /// Whether everything was read once.
    is_whole: bool,
    views: BTreeMap<&'static str, Map<String, Value>>,
    names: BTreeMap<String, String>,
    events: VecDeque<Map<String, Value>>,
    talkers: Talkers,
    /// The reason why no lines are received at present.
    problem: Option<String>,
}

const VIEWS: [&str; 4] = ["links", "ports", "tables", "channels"];

type Shared = Arc<Mutex<Known>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Known> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Errors
/// The API does not answer, or refuses the request.
pub fn run(args: &Args) -> Result<(), Failure> {
    block_on(async {
        match args.once {
            true => once(args).await,
            false => follow(args).await,
        }
    })
}

async fn once(args: &Args) -> Result<(), Failure> {
    let client = args.api.client()?;
    let shared = Shared::default();
    read_names(&client, &shared).await?;
    let until = Instant::now() + RATES_MAX;
    let read = client.lines(LIVE, |line| {
        let mut known = lock(&shared);
        known.take(line);
        let has_rates = known.has_rates() || Instant::now() > until;
        !known.is_whole || !has_rates
    });
    tokio::select! {
        read = read => read?,
        () = sleep(RATES_MAX) => {}
    }
    if !lock(&shared).is_whole {
        let detail = "the controller is too busy to say what its network does; try again";
        return Err(Failure::negative(detail));
    }
    read_entries(&client, &shared).await;
    sleep(PERIOD).await;
    read_entries(&client, &shared).await;
    let events = client.lines("/v1/events", |line| {
        lock(&shared).note(line);
        true
    });
    events.await?;
    let known = lock(&shared);
    match args.json {
        true => say!("{:#}", known.document()),
        false => say!("{}", known.picture(args.rows).trim_end()),
    }
    Ok(())
}

async fn follow(args: &Args) -> Result<(), Failure> {
    let shared = Shared::default();
    let client = args.api.client()?;
    read_names(&client, &shared).await?;
    let failed = |error| Failure::machine(format!("cannot handle signals: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let mut tick = interval(PERIOD);
    say_part!("{SCREEN}");
    let draw = async {
        loop {
            tick.tick().await;
            let picture = lock(&shared).picture(args.rows);
            say_part!("{EMPTY}{picture}");
        }
    };
    tokio::select! {
        () = draw => {}
        () = keep_reading(&client, &shared, LIVE, Known::take) => {}
        () = keep_reading_entries(&client, &shared) => {}
        () = keep_reading(&client, &shared, "/v1/events?follow=true", Known::note) => {}
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    say_part!("{SCREEN_BEFORE}");
    Ok(())
}

/// Reads lines, and connects again when they end.
async fn keep_reading(client: &Client, shared: &Shared, path: &str, take: fn(&mut Known, &str)) {
    loop {
        let read = client.lines(path, |line| {
            let mut known = lock(shared);
            known.problem = None;
            take(&mut known, line);
            true
        });
        let ended = read.await;
        let problem = ended.err().map(|failure| failure.message().to_owned());
        lock(shared).problem = Some(problem.unwrap_or_else(|| "the stream has ended".to_owned()));
        sleep(PERIOD).await;
        let _ = read_names(client, shared).await;
    }
}

async fn keep_reading_entries(client: &Client, shared: &Shared) {
    loop {
        read_entries(client, shared).await;
        sleep(ENTRIES_PERIOD).await;
    }
}

/// Reads the entries of the switches with the busiest ports. A switch that does not answer has
/// none.
async fn read_entries(client: &Client, shared: &Shared) {
    let dpids = match lock(shared).views.get("ports") {
        Some(ports) => talkers::switches(ports),
        None => Vec::new(),
    };
    lock(shared).talkers.keep(&dpids);
    for dpid in dpids {
        let question = talkers::question(&dpid);
        if let Ok(answer) = client.ask(Method::GET, &question, None).await {
            lock(shared).talkers.take(Instant::now(), &dpid, &answer);
        }
    }
}

async fn read_names(client: &Client, shared: &Shared) -> Result<(), Failure> {
    let topology = client.ask(Method::GET, "/v1/topology", None).await?;
    let switches = topology["switches"].as_array().into_iter().flatten();
    let names = switches.filter_map(|switch| {
        let name = plain(&switch["name"]);
        let dpid = switch["dpid"].as_str()?.to_owned();
        (!switch["name"].is_null()).then_some((dpid, name))
    });
    lock(shared).names = names.collect();
    Ok(())
}

impl Known {
    /// Takes a line of `/v1/live`.
    fn take(&mut self, line: &str) {
        let message = line
            .strip_prefix("data: ")
            .map(serde_json::from_str::<Value>);
        let Some(Ok(message)) = message else {
            return;
        };
        if message["is_snapshot"] == true && self.is_whole {
            // A new connection sends everything again.
            self.views.clear();
            self.is_whole = false;
        }
        for view in VIEWS {
            let rows = self.views.entry(view).or_default();
            for (name, row) in message[view].as_object().into_iter().flatten() {
                match row.is_null() {
                    true => rows.remove(name),
                    false => rows.insert(name.clone(), row.clone()),
                };
            }
        }
        self.is_whole |= message["is_last"] == true;
    }

    /// Takes a line of `/v1/events`.
    fn note(&mut self, line: &str) {
        if let Ok(event) = serde_json::from_str(line) {
            self.events.push_back(event);
        }
        while self.events.len() > EVENTS_KEPT {
            self.events.pop_front();
        }
    }

    fn rows(&self, view: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.views.get(view).into_iter().flatten()
    }

    /// Whether the load of a link and the rates of a port are known, or there are no links or
    /// ports.
    fn has_rates(&self) -> bool {
        let has = |view: &str, field: &str| {
            let mut rows = self.rows(view).peekable();
            rows.peek().is_none() || rows.any(|(_, row)| !row[field].is_null())
        };
        has("links", "there") && has("ports", "rates")
    }

    fn document(&self) -> Value {
        let mut document: Map<String, Value> = VIEWS
            .into_iter()
            .map(|view| (view.to_owned(), json!(self.views.get(view))))
            .collect();
        document.insert("names".to_owned(), json!(self.names));
        document.insert("talkers".to_owned(), self.talkers.document());
        document.insert("events".to_owned(), json!(self.events));
        Value::Object(document)
    }

    fn name(&self, dpid: &str) -> String {
        let name = self.names.get(dpid);
        name.cloned().unwrap_or_else(|| plain(&json!(dpid)))
    }

    fn picture(&self, rows_max: usize) -> String {
        let mut picture = String::new();
        if let Some(problem) = &self.problem {
            let _ = writeln!(picture, "{}\n", plain(&json!(problem)));
        }
        picture.push_str(&self.switches(rows_max));
        picture.push_str(&self.links(rows_max));
        picture.push_str(&self.ports(rows_max));
        let _ = writeln!(picture, "EVENTS");
        for event in self.events.iter().rev().take(rows_max) {
            let _ = writeln!(picture, "{}", text(event));
        }
        picture
    }

    /// The table of switches, the slowest channels first.
    fn switches(&self, rows_max: usize) -> String {
        let count = self.rows("channels").count();
        let mut switches: Vec<(&String, &Value)> = self.rows("channels").collect();
        let rtt = |row: &Value| row["echo_rtt_ms"].as_f64().unwrap_or(f64::INFINITY);
        switches.sort_by(|(_, a), (_, b)| rtt(b).total_cmp(&rtt(a)));
        let titles = [
            "SWITCH",
            "ROLE",
            "OVER",
            "ECHO ms",
            "WAITING B",
            "SHED",
            "ENTRIES",
            "MISSES",
        ];
        let tables = self.views.get("tables");
        let row = |(dpid, row): &(&String, &Value)| {
            let table = tables.and_then(|tables| tables.get(*dpid));
            let table = table.unwrap_or(&Value::Null);
            let entries = match table["entries"].is_null() {
                true => &table["flow_count"],
                false => &table["entries"],
            };
            [
                self.name(dpid),
                plain(&row["role"]),
                plain(&row["transport"]),
                plain(&row["echo_rtt_ms"]),
                plain(&row["outbox_bytes"]),
                plain(&row["packet_ins_shed"]),
                plain(entries),
                plain(&table["misses"]),
            ]
        };
        let rows: Vec<_> = switches.iter().take(rows_max).map(row).collect();
        table(&titles, &rows, count)
    }

    /// The table of links, the fullest first.
    fn links(&self, rows_max: usize) -> String {
        let count = self.rows("links").count();
        let load = |way: &Value| (way["load"].as_f64(), way["bps"].as_f64());
        let most = |row: &Value| {
            let (there, back) = (load(&row["there"]), load(&row["back"]));
            let by_load = there.0.unwrap_or(-1.0).max(back.0.unwrap_or(-1.0));
            (by_load, there.1.unwrap_or(0.0).max(back.1.unwrap_or(0.0)))
        };
        let mut links: Vec<(&String, &Value)> = self.rows("links").collect();
        links.sort_by(|(_, a), (_, b)| {
            let (a, b) = (most(a), most(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        let titles = ["LINK", "THERE", "BACK", "SPEED", "STATE"];
        let row = |(name, row): &(&String, &Value)| {
            let state = match (&row["is_usable"], &row["is_drained"], &row["is_doubted"]) {
                (Value::Bool(false), ..) => "one way",
                (_, Value::Bool(true), _) => "drained",
                (.., Value::Bool(true)) => "doubted",
                _ => "up",
            };
            [
                self.link(name),
                way(&row["there"]),
                way(&row["back"]),
                row["speed_bps"].as_f64().map_or("-".to_owned(), rate),
                state.to_owned(),
            ]
        };
        let rows: Vec<_> = links.iter().take(rows_max).map(row).collect();
        table(&titles, &rows, count)
    }

    /// The tables of ports and entries, the busiest first.
    fn ports(&self, rows_max: usize) -> String {
        let empty = Map::new();
        let ports = self.views.get("ports").unwrap_or(&empty);
        self.talkers
            .picture(ports, rows_max, |dpid| self.name(dpid))
    }

    fn link(&self, name: &str) -> String {
        let ends = name.split(' ').map(|end| match end.split_once(':') {
            Some((dpid, port)) => format!("{}:{}", self.name(dpid), plain(&json!(port))),
            None => plain(&json!(end)),
        });
        ends.collect::<Vec<_>>().join(" - ")
    }
}

fn way(row: &Value) -> String {
    let Some(bps) = row["bps"].as_f64() else {
        return "-".to_owned();
    };
    match row["load"].as_f64() {
        Some(load) => format!("{} {:.1} %", rate(bps), load * 100.0),
        None => rate(bps),
    }
}

/// Bits per second, as `tc` writes them.
fn rate(bps: f64) -> String {
    let units = [(1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")];
    let unit = units.into_iter().find(|(unit, _)| bps >= *unit);
    match unit {
        Some((unit, name)) => format!("{:.1}{name}", bps / unit),
        None => format!("{bps:.0}bit"),
    }
}

fn table<const N: usize>(titles: &[&str; N], rows: &[[String; N]], count: usize) -> String {
    let titles = titles.map(str::to_owned);
    let all = || std::iter::once(&titles).chain(rows);
    let width = |n: usize| all().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in all() {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if count > rows.len() {
        let _ = writeln!(text, "... and {} more", count - rows.len());
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(messages: &[Value]) -> Known {
        let mut known = Known::default();
        known
            .names
            .insert("0000000000000001".to_owned(), "s1".to_owned());
        for message in messages {
            known.take(&format!("data: {message}"));
        }
        known
    }

    #[test]
    fn links_are_sorted_by_load_and_switches_by_the_time_of_an_echo() {
        let link = |load: f64| {
            json!({"is_usable": true, "speed_bps": 1e9, "is_drained": false,
            "is_doubted": false, "there": {"bps": load * 1e9, "load": load}, "back": null})
        };
        let channel = |ms: f64| {
            json!({"role": "serving", "transport": "tcp", "echo_rtt_ms": ms,
            "outbox_bytes": 0, "packet_ins_shed": 3})
        };
        let first = json!({"is_snapshot": true, "is_last": false, "links": {
            "0000000000000001:2 0000000000000002:1": link(0.1),
            "0000000000000001:3 0000000000000003:1": link(0.7),
            "0000000000000001:4 0000000000000004:1": link(0.2)}});
        let last = json!({"is_snapshot": true, "is_last": true,
            "tables": {"0000000000000001": {"entries": 7, "misses": 5}},
            "channels": {"0000000000000001": channel(0.5), "0000000000000002": channel(2.25)}});
        let change = json!({"is_snapshot": false, "is_last": true, "links":
            {"0000000000000001:4 0000000000000004:1": null}});
        let mut known = known(&[first]);
        assert!(!known.is_whole);
        known.take(&format!("data: {last}"));
        assert!(known.is_whole && known.has_rates());
        known.take(&format!("data: {change}"));
        known.note(r#"{"seq":7,"event":"port_up","port":"1:2"}"#);
        let expected = "\
SWITCH            ROLE     OVER  ECHO ms  WAITING B  SHED  ENTRIES  MISSES
0000000000000002  serving  tcp   2.25     0          3     -        -
s1                serving  tcp   0.5      0          3     7        5

LINK                         THERE             BACK  SPEED    STATE
s1:3 - 0000000000000003:1    700.0Mbit 70.0 %  -     1.0Gbit  up
s1:2 - 0000000000000002:1    100.0Mbit 10.0 %  -     1.0Gbit  up

PORT  IN  OUT  IN/s  OUT/s  HOSTS

ENTRY AT  RATE  PACKETS/s  MATCH

EVENTS
7 port_up port=1:2
";
        let picture = known.picture(10);
        let squeezed = |text: &str| text.replace("    ", "  ").replace("   ", "  ");
        assert_eq!(squeezed(&picture), squeezed(expected), "{picture}");
        assert!(known.picture(1).contains("... and 1 more"));
    }

    #[test]
    fn nothing_that_a_switch_says_moves_the_cursor() {
        let mut known = known(&[]);
        known
            .names
            .insert("0000000000000001".to_owned(), plain(&json!("a\u{1b}[2Jb")));
        known.note(r#"{"seq":1,"event":"refused","detail":"\u001b]0;x\u0007"}"#);
        known.take(
            r#"data: {"is_snapshot":true,"is_last":true,"channels":{"0000000000000001":{}}}"#,
        );
        let picture = known.picture(10);
        let is_plain = |c: char| c == '\n' || !c.is_control();
        assert!(picture.chars().all(is_plain), "{picture:?}");
    }
}
