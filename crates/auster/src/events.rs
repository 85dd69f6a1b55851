//! `auster events`: the events in the network of a running controller, through its API.

use std::fmt::Write;
use std::time::Duration;

use cli::date::utc;
use cli::failure::Failure;
use cli::output::{note, say};
use cli::runtime::block_on;
use openflow::DatapathId;
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::qos::ApiArgs;
use api::kinds::event_kind;

pub const EXAMPLE: &str = "\
Example:
  auster events --follow --kind link_down,switch_down
  auster events --since 1873456789012480 --json | jq .event

Without --since it prints the events that are kept; --follow alone, those that come. With --follow
it connects again when the controller is restarted, and goes on behind the last event. The event
reset says that some were missed: look at the network anew.";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,

    /// Keep printing new events
    #[arg(long, short)]
    follow: bool,

    /// Start after the event with this number; 0: with the oldest event kept
    #[arg(long, value_name = "N")]
    since: Option<u64>,

    /// Only events of this kind; separate several by commas, or repeat the option
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = event_kind)]
    kinds: Vec<String>,

    /// Only events that name this switch
    #[arg(long, value_name = "DPID")]
    switch: Option<DatapathId>,

    /// Print each event as a JSON document
    #[arg(long)]
    json: bool,
}

/// The pause between two attempts to reconnect.
const PAUSE: Duration = Duration::from_secs(1);

/// # Errors
/// The API does not answer, or refuses.
pub fn run(args: &Args) -> Result<(), Failure> {
    block_on(print(args))
}

async fn print(args: &Args) -> Result<(), Failure> {
    let client = args.api.client()?;
    let mut since = args.since;
    let mut has_begun = false;
    let mut is_lost = false;
    loop {
        let path = args.path(since);
        let lines = match client.open(&path).await {
            // The request is wrong or no longer permitted: another attempt would not help.
            Err(failure) if !has_begun || failure.is_usage() => return Err(failure),
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
            Ok(lines) => lines,
        };
        if std::mem::take(&mut is_lost) {
            note!("auster: the API answers again, events go on");
        }
        has_begun = true;
        let ended = lines.each(|line| {
            let event = serde_json::from_str::<Map<String, Value>>(line);
            let event = event.unwrap_or_default();
            since = event.get("seq").and_then(Value::as_u64).or(since);
            match args.json {
                true => say!("{line}"),
                false => say!("{} {}", time(&event), text(&event)),
            }
            true
        });
        let ended = ended.await;
        if !args.follow {
            return ended;
        }
        let why = ended.err();
        let why = why
            .as_ref()
            .map_or("the API ends the events", Failure::message);
        note!("auster: {why}; connecting again");
        is_lost = true;
        sleep(PAUSE).await;
    }
}

impl Args {
    fn path(&self, since: Option<u64>) -> String {
        let mut path = format!("/v1/events?follow={}", self.follow);
        if let Some(since) = since {
            let _ = write!(path, "&since={since}");
        }
        if !self.kinds.is_empty() {
            let _ = write!(path, "&kinds={}", self.kinds.join(","));
        }
        if let Some(switch) = self.switch {
            let _ = write!(path, "&switch={switch}");
        }
        path
    }
}

/// A value as text for people. Parts of it come from others, so nothing in it may move a terminal's
/// cursor.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => {
            let harmless = |c: char| {
                if c.is_control() {
                    char::REPLACEMENT_CHARACTER
                } else {
                    c
                }
            };
            text.chars().map(harmless).collect()
        }
        other => other.to_string(),
    }
}

/// The time of an event, in UTC.
fn time(event: &Map<String, Value>) -> String {
    let seconds = event.get("time_s").and_then(Value::as_f64);
    seconds.map_or_else(|| "-".to_owned(), |seconds| utc(seconds.max(0.0) as u64))
}

/// The number and the kind of an event, and its fields.
pub fn text(event: &Map<String, Value>) -> String {
    let of = |name: &str| event.get(name).map(plain).unwrap_or_default();
    let mut line = format!("{} {}", of("seq"), of("event"));
    let rest = event.iter();
    for (name, value) in rest.filter(|(name, _)| !matches!(&name[..], "seq" | "event" | "time_s")) {
        let _ = match &name[..] {
            "detail" => write!(line, ": {}", plain(value)),
            _ => write!(line, " {name}={}", plain(value)),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = json!({"seq": 7, "event": "switch_down", "dpid": "0000000000000001",
            "is_last": true, "detail": "it ended", "time_s": 1.5});
        let line = text(event.as_object().unwrap());
        assert_eq!(
            line,
            "7 switch_down dpid=0000000000000001 is_last=true: it ended"
        );
    }
}
