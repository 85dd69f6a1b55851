//! `auster trace`: explains a packet's path, as a running controller finds it from the entries of
//! its switches.

mod compare;

use std::fmt::Write as _;

use cli::failure::Failure;
use cli::output::say;
use cli::runtime::block_on;
use serde_json::Value;

use crate::qos::ApiArgs;

pub const EXAMPLE: &str = "\
Exit code 0 if the packet is delivered, 1 if not.
Example:
  auster trace 10.0.0.1 10.0.0.2 --proto udp --dport 5060
  10.0.0.1 (02:00:00:00:00:01) at 0000000000000001:3
  to 10.0.0.2 (02:00:00:00:00:02) at 0000000000000002:1
  access: passes: no access list concerns it
  switch 0000000000000001, in by port 3
    paths, priority 2000: the path of this pair of hosts (12 packets, 3 more in 2 s)
      in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02 actions=output:1
    out by port 1 to 0000000000000002:2
  switch 0000000000000002, in by port 2
    paths, priority 2000: the path of this pair of hosts (12 packets, 3 more in 2 s)
      in_port=2,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02 actions=output:1
    out by port 1: the destination
  delivered to 10.0.0.2 (02:00:00:00:00:02) at 0000000000000002:1

The entries are read from the switches now, hop by hop, and no packet is sent. The controller must
serve its API.";

#[derive(clap::Args)]
pub struct Args {
    /// The sender, by IP or Ethernet address
    src: String,

    /// The receiver
    dst: String,

    /// tcp, udp, sctp, icmp or a number; udp if not given
    #[arg(long)]
    proto: Option<String>,

    /// The source port
    #[arg(long, value_name = "PORT")]
    sport: Option<String>,

    /// The destination port
    #[arg(long, value_name = "PORT")]
    dport: Option<String>,

    /// The sender's VLAN, if the address is in several
    #[arg(long, value_name = "ID")]
    vlan: Option<String>,

    /// The packet's code point on entry
    #[arg(long)]
    dscp: Option<String>,

    /// The sender's Ethernet address, if not the known one
    #[arg(long, value_name = "MAC")]
    src_mac: Option<String>,

    /// The packet's destination Ethernet address, if not the known one
    #[arg(long, value_name = "MAC")]
    dst_mac: Option<String>,

    /// Where the packet enters, if not at the sender's place
    #[arg(long = "in", value_name = "SWITCH:PORT")]
    at: Option<String>,

    /// The time between two readings of the counters, 0 to 10; with 0 they are read once
    #[arg(long, value_name = "S", default_value = "2")]
    seconds: String,

    /// Ask Open vSwitch too (ofproto/trace), for the switches that are bridges of this machine;
    /// exit code 1 if it disagrees
    #[arg(long)]
    compare: bool,

    #[command(flatten)]
    api: ApiArgs,

    /// Print the API's answer
    #[arg(long)]
    json: bool,
}

/// The attempts at a trace: entries change between the two readings, so a trace that disagrees is
/// taken again.
const ATTEMPTS: usize = 3;

pub fn run(args: Args) -> Result<(), Failure> {
    let path = path(&args);
    let client = args.api.client()?;
    let bridges = args.compare.then(compare::bridges).transpose()?;
    let mut document = block_on(client.get(&path))?;
    let mut agrees = true;
    if let Some(bridges) = bridges {
        agrees = compare::compare(&mut document, &bridges);
        for _ in 1..ATTEMPTS {
            if agrees {
                break;
            }
            document = block_on(client.get(&path))?;
            agrees = compare::compare(&mut document, &bridges);
        }
    }
    match args.json {
        true => say!("{document:#}"),
        false => say!("{}", shown(&document).trim_end()),
    }
    if !agrees {
        return Err(Failure::negative("Open vSwitch and the trace disagree"));
    }
    if compare::has_problem(&document) {
        return Err(Failure::machine(
            "Open vSwitch could not be asked, see above",
        ));
    }
    match document["verdict"]["outcome"].as_str() {
        Some("delivered") => Ok(()),
        Some("controller") => Err(Failure::negative(
            "undecided: the controller gets the packet, and decides then",
        )),
        _ => Err(Failure::negative("the packet is not delivered")),
    }
}

fn path(args: &Args) -> String {
    let stated = [
        ("src", Some(&args.src)),
        ("dst", Some(&args.dst)),
        ("proto", args.proto.as_ref()),
        ("sport", args.sport.as_ref()),
        ("dport", args.dport.as_ref()),
        ("vlan", args.vlan.as_ref()),
        ("dscp", args.dscp.as_ref()),
        ("src_mac", args.src_mac.as_ref()),
        ("dst_mac", args.dst_mac.as_ref()),
        ("in", args.at.as_ref()),
        ("seconds", Some(&args.seconds)),
    ];
    let stated = stated
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let pairs: Vec<String> = stated
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    format!("/v1/trace?{}", pairs.join("&"))
}

/// Encodes a value for a query string.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || b".:-_".contains(&byte) {
            true => text.push(byte.into()),
            // Writing to a string does not fail.
            false => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], |list| list)
}

fn words(value: &Value) -> String {
    let words: Vec<String> = list(value).iter().map(text).collect();
    words.join(", ")
}

/// The document as text for people.
fn shown(document: &Value) -> String {
    let mut lines = vec![
        host(&document["src"]),
        format!("to {}", host(&document["dst"])),
        format!("packet: {}", text(&document["packet"]["text"])),
    ];
    if !document["route"].is_null() {
        lines.push(format!("gateway: {}", text(&document["route"]["text"])));
    }
    if !document["class"].is_null() {
        lines.push(format!("class: {}", text(&document["class"]["name"])));
    }
    for (field, word) in [
        ("services", "service"),
        ("policies", "policy"),
        ("circuits", "circuit"),
    ] {
        if !list(&document[field]).is_empty() {
            lines.push(format!("{word}: {}", words(&document[field])));
        }
    }
    lines.extend(
        list(&document["access"]["text"])
            .iter()
            .map(|it| format!("access: {}", text(it))),
    );
    let waited = &document["waited_s"];
    for hop in list(&document["hops"]) {
        let (dpid, port) = (text(&hop["dpid"]), text(&hop["in_port"]));
        lines.push(format!("switch {dpid}, in by port {port}"));
        if !hop["problem"].is_null() {
            lines.push(format!("  {}", text(&hop["problem"])));
        }
        for step in list(&hop["steps"]) {
            lines.extend(
                step_lines(step, waited)
                    .iter()
                    .map(|line| format!("  {line}")),
            );
        }
        lines.extend(compare::line(hop).map(|line| format!("  {line}")));
    }
    let verdict = &document["verdict"];
    lines.extend(
        list(&verdict["doubts"])
            .iter()
            .map(|doubt| format!("doubt: {}", text(doubt))),
    );
    lines.push(text(&verdict["text"]));
    if verdict["also_to_controller"] == true {
        lines.push("the controller gets a copy too".to_owned());
    }
    lines.join("\n")
}

/// The guest of a group or a meter, shown after its number in the switch.
fn of_guest(step: &Value) -> String {
    let guest = &step["guest"];
    match guest.is_null() {
        true => String::new(),
        false => format!(", {} of guest {}", guest["number"], text(&guest["name"])),
    }
}

fn host(host: &Value) -> String {
    let (ip, mac) = (text(&host["ip"]), text(&host["mac"]));
    let mut line = match (ip.is_empty(), mac.is_empty()) {
        (false, false) => format!("{ip} ({mac})"),
        _ => format!("{ip}{mac}"),
    };
    match host["at"].is_null() {
        true => line += ", at no known place",
        false => line += &format!(" at {}", text(&host["at"])),
    }
    if !host["vlan"].is_null() {
        line += &format!(", VLAN {}", host["vlan"]);
    }
    if !host["contested_by"].is_null() {
        line += &format!(", claimed from {}", text(&host["contested_by"]));
    }
    line
}

fn step_lines(step: &Value, waited: &Value) -> Vec<String> {
    let only_if: Vec<String> = list(&step["if"])
        .iter()
        .map(|choice| {
            format!(
                " if group {} chooses bucket {}",
                choice["group"], choice["bucket"]
            )
        })
        .collect();
    let only_if = only_if.concat();
    let table = match &step["table_name"] {
        Value::String(name) => name.clone(),
        _ => format!("table {}", step["table"]),
    };
    match step["kind"].as_str().unwrap_or_default() {
        "entry" => {
            let owner = &step["owner"];
            let name = match &owner["name"] {
                Value::String(name) => format!(", {name}"),
                _ => String::new(),
            };
            let more = step["packets_later"].as_u64().zip(step["packets"].as_u64());
            let more = more.map(|(later, before)| later.saturating_sub(before));
            let more = more.map(|more| format!(", {more} more in {waited} s"));
            vec![
                format!(
                    "{table}, priority {}: {}{name} ({} packets{})",
                    step["priority"],
                    text(&owner["text"]),
                    step["packets"],
                    more.unwrap_or_default()
                ),
                format!(
                    "  {} actions={}",
                    text(&step["match"]),
                    text(&step["actions"])
                ),
            ]
        }
        "miss" => vec![format!("{table}: no entry matches")],
        "meter" => vec![format!("meter {}{}", step["meter"], of_guest(step))],
        "set" => vec![format!(
            "{} becomes {}, was {}",
            text(&step["field"]),
            text(&step["to"]),
            match step["from"].is_null() {
                true => "absent".to_owned(),
                false => text(&step["from"]),
            }
        )],
        "rewrite" => vec![text(&step["action"])],
        "group" => vec![format!(
            "group {}{} ({}): bucket {}{}",
            step["group"],
            of_guest(step),
            text(&step["group_type"]),
            words(&step["buckets"]),
            match step["is_by_hash"] == true {
                true => ", as the switch's hash chooses",
                false => "",
            }
        )],
        "output" => {
            let queue = match step["queue"].is_null() {
                true => String::new(),
                false => format!(", queue {}", step["queue"]),
            };
            let to = &step["to"];
            let to = match to["kind"].as_str() {
                Some("switch") => format!(" to {}", text(&to["at"])),
                Some("host") if to["is_destination"] == true => ": the destination".to_owned(),
                Some("host") => ": no switch and not the destination".to_owned(),
                _ => format!(": {}", text(&to["text"])),
            };
            vec![format!(
                "out by port {}{queue}{to}{only_if}",
                text(&step["port"])
            )]
        }
        "controller" => vec![format!(
            "to the controller: {}{only_if}",
            text(&step["text"])
        )],
        "drop" => vec![format!("dropped: {}{only_if}", text(&step["text"]))],
        _ => vec![format!("{}{only_if}", text(&step["text"]))],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_step_is_a_line_for_people() {
        let document = json!({
            "src": {"ip": "10.0.0.1", "mac": "02:00:00:00:00:01", "at": "1:3", "vlan": 10,
                    "contested_by": null},
            "dst": {"ip": "10.0.0.2", "mac": null, "at": null, "vlan": null, "contested_by": null},
            "packet": {"text": "udp"},
            "route": {"text": "there is no route"},
            "class": null, "services": ["voice"], "policies": [], "circuits": [],
            "access": {"text": ["passes: no access list concerns it"]},
            "waited_s": 2,
            "hops": [{"dpid": "1", "in_port": "3", "problem": null, "steps": [
                {"kind": "entry", "table": 0, "table_name": "paths", "priority": 7, "packets": 3,
                 "packets_later": 5, "match": "", "actions": "group:7",
                 "owner": {"text": "a policy", "name": "first"}},
                {"kind": "set", "field": "dl_dst", "from": null, "to": "x"},
                {"kind": "group", "group": 7, "group_type": "select", "buckets": [0, 1],
                 "is_by_hash": true, "guest": null},
                {"kind": "meter", "meter": 40961, "guest": {"name": "ryu", "number": 2}},
                {"kind": "output", "port": "2", "queue": 1, "if": [{"group": 7, "bucket": 1}],
                 "to": {"kind": "switch", "hop": 1, "at": "2:1"}},
                {"kind": "drop", "text": "no reason", "if": []},
            ]}],
            "verdict": {"outcome": "dropped", "text": "dropped", "doubts": ["perhaps"],
                        "also_to_controller": true},
        });
        let expected = "\
10.0.0.1 (02:00:00:00:00:01) at 1:3, VLAN 10
to 10.0.0.2, at no known place
packet: udp
gateway: there is no route
service: voice
access: passes: no access list concerns it
switch 1, in by port 3
  paths, priority 7: a policy, first (3 packets, 2 more in 2 s)
     actions=group:7
  dl_dst becomes x, was absent
  group 7 (select): bucket 0, 1, as the switch's hash chooses
  meter 40961, 2 of guest ryu
  out by port 2, queue 1 to 2:1 if group 7 chooses bucket 1
  dropped: no reason
doubt: perhaps
dropped
the controller gets a copy too";
        assert_eq!(shown(&document), expected);
    }

    #[test]
    fn values_cannot_become_other_parameters() {
        assert_eq!(encoded("1:2&dst=x y"), "1:2%26dst%3Dx%20y");
    }
}
