//! Shows the API's answers to people.

use serde_json::{Value, json};

use super::client::Client;
use super::{print, write};
use cli::failure::Failure;

const KINDS: [(&str, &str, &str); 4] = [
    ("queues", "Queues", "at"),
    ("services", "Services", "name"),
    ("policies", "Policies", "name"),
    ("circuits", "Circuits", "name"),
];

pub async fn all(client: &Client, as_json: bool) -> Result<(), Failure> {
    let mut documents = json!({});
    for (kind, ..) in KINDS {
        documents[kind] = client.get(&format!("/v1/{kind}")).await?;
    }
    let state = client.get("/v1/state").await?;
    if as_json {
        documents["state"] = state;
        print(&documents);
        return Ok(());
    }
    for (kind, title, key) in KINDS {
        let lines = lines(&documents[kind], &state[kind], key);
        if !lines.is_empty() {
            write(&format!("{title}\n  {}", lines.join("\n  ")));
        }
    }
    Ok(())
}

pub async fn circuits(client: &Client, as_json: bool) -> Result<(), Failure> {
    let state = client.get("/v1/state").await?;
    let circuits = &state["circuits"];
    if as_json {
        print(circuits);
        return Ok(());
    }
    for (name, circuit) in circuits.as_object().into_iter().flatten() {
        write(&format!("{name}: {}", state_of(circuit)));
        for reason in list(&circuit["reasons"]) {
            write(&format!("  {}", text(reason)));
        }
        for hop in list(&circuit["hops"]) {
            let (dpid, input, output) = (&hop["dpid"], &hop["in_port"], &hop["out_port"]);
            write(&format!(
                "  {}: {} -> {}",
                text(dpid),
                text(input),
                text(output)
            ));
        }
        for (what, way) in [("sent", "sent"), ("answered", "answered")] {
            let count = &circuit[way];
            let (packets, bytes) = (text(&count["packets"]), text(&count["bytes"]));
            write(&format!("  {what} {packets} packets, {bytes} bytes"));
        }
    }
    Ok(())
}

pub fn print_document(document: &Value) {
    write(&fields(document));
}

/// One line for each requested document, with its origin, and its state if it has one.
fn lines(documents: &Value, state: &Value, key: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for layer in ["file", "api"] {
        for document in list(&documents[layer]) {
            let of = &state[document[key].as_str().unwrap_or_default()];
            let mut line = format!("{} ({layer})", fields(document));
            if of["state"].is_string() {
                line = format!("{line}: {}", state_of(of));
            }
            lines.push(line);
            for reason in list(&of["reasons"]) {
                lines.push(format!("  {}", text(reason)));
            }
        }
    }
    lines
}

/// The state, and the time since it was last seen, if known.
fn state_of(of: &Value) -> String {
    let state = text(&of["state"]);
    match of["seen_ago_s"].as_u64() {
        Some(seconds) => format!("{state}, seen {seconds} s ago"),
        None => state,
    }
}

/// The fields that `auster qos set` would take.
fn fields(document: &Value) -> String {
    let mut shown = Vec::new();
    for (key, value) in document.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("at" | "name", value) => shown.push(text(value)),
            ("queues", queues) => {
                for queue in list(queues) {
                    shown.extend(below(&format!("queue.{}", text(&queue["number"])), queue));
                }
            }
            ("meter", meter) => shown.extend(below("meter", meter)),
            (key, value) => shown.push(format!("{key}={}", text(value))),
        }
    }
    shown.join(" ")
}

fn below(start: &str, table: &Value) -> Vec<String> {
    let fields = table.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, value)| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        *key != "number" && !is_empty
    });
    fields
        .map(|(key, value)| format!("{start}.{key}={}", text(value)))
        .collect()
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            items.join(",")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    #[test]
    fn what_is_shown_is_what_is_set() {
        let words = [
            "rate=100mbit",
            "queue.1.class=gold",
            "queue.1.dscp=46,47",
            "queue.2.priority=1",
        ];
        let words = words.map(str::to_owned);
        let document = words::document(&words).unwrap();
        assert_eq!(fields(&document), words.join(" "));
    }

    #[test]
    fn a_line_says_who_has_made_it_and_how_far_it_is() {
        let documents = json!({"file": [{"name": "a", "service": "voice"}], "api": [
            {"name": "b", "service": "voice", "meter": {"rate": "5mbit"}, "drop": true}
        ]});
        let state = json!({
            "a": {"state": "active", "seen_ago_s": 3, "reasons": []},
            "b": {"state": "waiting", "seen_ago_s": null, "reasons": ["switch 7 is not connected"]},
        });
        let expected = [
            "a service=voice (file): active, seen 3 s ago",
            "b service=voice meter.rate=5mbit drop=true (api): waiting",
            "  switch 7 is not connected",
        ];
        assert_eq!(lines(&documents, &state, "name"), expected);
    }
}
