//! Compares a trace with Open vSwitch's own account of the same packet, `ofproto/trace`, where the
//! switch is a bridge of this machine.
//!
//! Both name the entries that match the packet, table by table, its output ports, and whether the
//! controller gets it. Where a hash chooses, Open vSwitch names its choice, and the trace names all
//! of them.

use std::collections::BTreeMap;
use std::process::Command;

use cli::failure::Failure;
use cli::program;
use serde_json::{Value, json};

use super::{list, text};

/// The time that a program of Open vSwitch has, in seconds.
const SECONDS_MAX: &str = "--timeout=10";
/// The maximum number of hexadecimal digits of a frame, which is a command-line argument.
const FRAME_MAX: usize = 2 * 10_000;

/// The treatment of a packet in one switch.
#[derive(Debug, Default, PartialEq)]
struct Account {
    /// Table and priority; no priority where no entry matches.
    entries: Vec<(u64, Option<u64>)>,
    /// The output ports, sorted.
    outputs: Vec<String>,
    is_to_controller: bool,
}

/// The names of this machine's bridges by datapath, as `ovs-vsctl` reports them.
pub fn bridges() -> Result<BTreeMap<String, String>, Failure> {
    let mut command = Command::new("ovs-vsctl");
    command.args([SECONDS_MAX, "--format=json", "--columns=name,datapath_id"]);
    command.args(["list", "Bridge"]);
    let rows = program::run(command)?;
    let rows: Value = serde_json::from_str(&rows)
        .map_err(|error| Failure::machine(format!("ovs-vsctl: its answer is no JSON: {error}")))?;
    let row = |row: &Value| Some((row[1].as_str()?.to_owned(), row[0].as_str()?.to_owned()));
    Ok(list(&rows["data"]).iter().filter_map(row).collect())
}

/// Adds to each hop of a trace the account of Open vSwitch. Returns whether there is no
/// disagreement.
pub fn compare(document: &mut Value, bridges: &BTreeMap<String, String>) -> bool {
    let hops = document["hops"].as_array_mut();
    let mut agrees = true;
    for hop in hops.into_iter().flatten() {
        let compared = match bridges.get(&text(&hop["dpid"])) {
            None => json!({ "bridge": null, "agrees": null }),
            Some(bridge) => match ask(bridge, hop) {
                Ok(said) => {
                    let theirs = account_of(&said, bridge, &text(&hop["in_port"]));
                    let differences = differences(hop, &theirs);
                    json!({ "bridge": bridge, "agrees": differences.is_empty(),
                            "differences": differences })
                }
                Err(why) => json!({ "bridge": bridge, "agrees": null, "problem": why }),
            },
        };
        agrees &= compared["agrees"] != false;
        hop["open_vswitch"] = compared;
    }
    agrees
}

/// Whether a bridge of this machine could not be queried.
pub fn has_problem(document: &Value) -> bool {
    let hops = list(&document["hops"]).iter();
    hops.map(|hop| &hop["open_vswitch"]["problem"])
        .any(|problem| !problem.is_null())
}

/// The comparison of a hop as text for people.
pub fn line(hop: &Value) -> Option<String> {
    let compared = hop.get("open_vswitch")?;
    Some(match (&compared["bridge"], &compared["agrees"]) {
        (Value::Null, _) => "Open vSwitch: not asked, no bridge of this machine".to_owned(),
        (bridge, Value::Null) => {
            format!(
                "Open vSwitch ({}): {}",
                text(bridge),
                text(&compared["problem"])
            )
        }
        (bridge, Value::Bool(true)) => format!("Open vSwitch ({}): the same", text(bridge)),
        (bridge, _) => {
            let differences = list(&compared["differences"]).iter().map(text);
            let differences = differences.collect::<Vec<_>>().join("; ");
            format!("Open vSwitch ({}): DIFFERS: {differences}", text(bridge))
        }
    })
}

/// Open vSwitch's account of a hop, as its program prints it.
fn ask(bridge: &str, hop: &Value) -> Result<String, String> {
    let (port, frame) = (text(&hop["in_port"]), text(&hop["frame"]));
    // Both are arguments of a command.
    let is_port = port == "LOCAL" || port.parse::<u32>().is_ok();
    let is_frame = frame.len() <= FRAME_MAX && frame.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_port || !is_frame || frame.is_empty() {
        return Err("the trace has no frame that can be compared".to_owned());
    }
    let mut command = Command::new("ovs-appctl");
    command.args([SECONDS_MAX, "ofproto/trace", bridge]);
    command.args([format!("in_port={port}"), frame]);
    program::run(command).map_err(|failure| failure.message().to_owned())
}

/// Reads the output of `ofproto/trace` for a packet from `in_port`, without the parts about bridges
/// behind patch ports.
fn account_of(said: &str, bridge: &str, in_port: &str) -> Account {
    let mut account = Account::default();
    // The indentation of another bridge's part.
    let mut other: Option<usize> = None;
    let own = format!("bridge(\"{bridge}\")");
    for row in said.lines() {
        let line = row.trim_start();
        let indent = row.len() - line.len();
        if line.starts_with("Final flow") {
            break;
        }
        if line.is_empty() || other.is_some_and(|from| indent >= from) {
            continue;
        }
        other = None;
        if line.starts_with("bridge(") {
            other = (line != own).then_some(indent);
            continue;
        }
        let output = line.strip_prefix("-> ").unwrap_or(line);
        if let Some((table, entry)) = numbered(line) {
            let priority = entry.split("priority ").nth(1);
            let priority = priority.and_then(|rest| rest.split([',', ' ']).next()?.parse().ok());
            account.entries.push((table, priority));
        } else if let Some(port) = output
            .strip_prefix("output:")
            .filter(|port| is_number(port))
        {
            account.outputs.push(port.to_owned());
        } else if line == "LOCAL" {
            account.outputs.push(line.to_owned());
        } else if line == "IN_PORT" {
            account.outputs.push(in_port.to_owned());
        } else if line.starts_with(">>") && (line.contains("skipping") || line.contains("port")) {
            // The output in the line above does not take place.
            account.outputs.pop();
        } else if line.contains("CONTROLLER:") {
            account.is_to_controller = true;
        }
    }
    account.outputs.sort();
    account
}

/// Reads ` 0. in_port=3, priority 2000, cookie 0x1`: a table's number, and its entry.
fn numbered(line: &str) -> Option<(u64, &str)> {
    let (number, rest) = line.split_once(". ")?;
    Some((number.parse().ok()?, rest))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The disagreements between a hop of a trace and Open vSwitch, as text.
fn differences(hop: &Value, theirs: &Account) -> Vec<String> {
    let steps = list(&hop["steps"]);
    let of = |kind: &'static str| steps.iter().filter(move |step| step["kind"] == kind);
    let taken = steps
        .iter()
        .filter(|step| step["kind"] == "entry" || step["kind"] == "miss");
    let taken = taken.filter_map(|step| Some((step["table"].as_u64()?, step["priority"].as_u64())));
    let entries: Vec<_> = taken.collect();
    let mut differences = Vec::new();
    if !hop["problem"].is_null() {
        differences.push(format!("the trace ends: {}", text(&hop["problem"])));
    }
    if entries != theirs.entries {
        differences.push(format!(
            "entries {}, there {}",
            entries_text(&entries),
            entries_text(&theirs.entries)
        ));
    }
    let is_sure = |step: &&Value| list(&step["if"]).is_empty();
    let ports = |steps: Vec<&Value>| {
        let mut ports: Vec<String> = steps.iter().map(|step| text(&step["port"])).collect();
        ports.sort();
        ports
    };
    let sure = ports(of("output").filter(is_sure).collect());
    let all = ports(of("output").collect());
    // A hash chooses some of the conditional outputs.
    if !is_within(&sure, &theirs.outputs) || !is_within(&theirs.outputs, &all) {
        let shown = |ports: &[String]| match ports {
            [] => "none".to_owned(),
            _ => ports.join(", "),
        };
        differences.push(format!(
            "outputs {}, there {}",
            shown(&all),
            shown(&theirs.outputs)
        ));
    }
    let is_to_controller = of("controller").next().is_some();
    if is_to_controller != theirs.is_to_controller {
        differences.push(match is_to_controller {
            true => "to the controller here, not there".to_owned(),
            false => "to the controller there, not here".to_owned(),
        });
    }
    differences
}

fn entries_text(entries: &[(u64, Option<u64>)]) -> String {
    let one = |(table, priority): &(u64, Option<u64>)| match priority {
        Some(priority) => format!("table {table} priority {priority}"),
        None => format!("table {table} none"),
    };
    let texts: Vec<String> = entries.iter().map(one).collect();
    match texts.is_empty() {
        true => "none".to_owned(),
        false => texts.join(" then "),
    }
}

/// Whether the sorted `many` has each of the sorted `few`, as often.
fn is_within(few: &[String], many: &[String]) -> bool {
    let mut many = many.iter();
    few.iter().all(|one| many.any(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of Open vSwitch 3.1, with a bridge behind a patch port.
    const SAID: &str = r#"Flow: udp,in_port=3,vlan_tci=0x0000,dl_src=02:00:00:00:00:01

bridge("s1")
------------
 0. in_port=3, priority 2000, cookie 0x61
    goto_table:1
 1. priority 0
    group:7
     -> using bucket 1
    bucket 1
            output:1

        bridge("other")
        ---------------
         0. priority 0
            output:9
            CONTROLLER:128
    output:2
     >> skipping output to input port
    output:4
    CONTROLLER:128
    
Final flow: unchanged
Megaflow: recirc_id=0,eth,udp,in_port=3
Datapath actions: 2,3
"#;

    fn ours() -> Value {
        let by_hash = json!([{"group": 7, "bucket": 0}]);
        json!({"dpid": "1", "in_port": "3", "frame": "00", "problem": null, "steps": [
            {"kind": "entry", "table": 0, "priority": 2000},
            {"kind": "entry", "table": 1, "priority": 0},
            {"kind": "output", "port": "1", "if": by_hash},
            {"kind": "output", "port": "5", "if": by_hash},
            {"kind": "output", "port": "4", "if": []},
            {"kind": "controller", "if": []},
        ]})
    }

    #[test]
    fn the_words_of_open_vswitch_are_read_without_those_of_other_bridges() {
        let account = account_of(SAID, "s1", "3");
        assert_eq!(account.entries, [(0, Some(2000)), (1, Some(0))]);
        assert_eq!(account.outputs, ["1", "4"]);
        assert!(account.is_to_controller);
        let miss = account_of("bridge(\"s1\")\n---\n 0. No match.\n    drop\n", "s1", "3");
        assert_eq!(miss.entries, [(0, None)]);
        assert!(!miss.is_to_controller && miss.outputs.is_empty());
        // A routed packet may leave by the port of its arrival.
        let back = account_of(" 0. priority 7\n    dec_ttl\n    IN_PORT\n", "s1", "3");
        assert_eq!(back.outputs, ["3"]);
    }

    #[test]
    fn a_hash_may_choose_and_everything_else_must_be_the_same() {
        let theirs = account_of(SAID, "s1", "3");
        assert_eq!(differences(&ours(), &theirs), Vec::<String>::new());
        let mut hop = ours();
        hop["steps"][4]["port"] = "6".into();
        assert_eq!(differences(&hop, &theirs), ["outputs 1, 5, 6, there 1, 4"]);
        let mut hop = ours();
        hop["steps"][2]["port"] = "7".into();
        assert_eq!(differences(&hop, &theirs), ["outputs 4, 5, 7, there 1, 4"]);
        let mut hop = ours();
        hop["steps"][1]["priority"] = 7.into();
        hop["steps"][5]["kind"] = "drop".into();
        assert_eq!(
            differences(&hop, &theirs),
            [
                "entries table 0 priority 2000 then table 1 priority 7, there table 0 priority \
                 2000 then table 1 priority 0",
                "to the controller there, not here"
            ]
        );
    }

    #[test]
    fn nothing_but_a_port_and_a_frame_is_given_to_a_program() {
        for (port, frame) in [
            ("3", "00; reboot"),
            ("3 -v", "00"),
            ("3", ""),
            ("--help", "00"),
            ("3", &"0".repeat(FRAME_MAX + 2)),
        ] {
            let hop = json!({"in_port": port, "frame": frame});
            let refused = ask("none", &hop).unwrap_err();
            assert!(refused.contains("no frame"), "{port} {frame}: {refused}");
        }
    }

    #[test]
    fn each_hop_says_whether_it_was_compared() {
        let of = |compared: Value| line(&json!({"open_vswitch": compared})).unwrap();
        assert_eq!(line(&json!({})), None);
        assert!(of(json!({"bridge": null})).contains("not asked"));
        assert!(of(json!({"bridge": "s1", "agrees": true})).ends_with("(s1): the same"));
        let differs = json!({"bridge": "s1", "agrees": false, "differences": ["a", "b"]});
        assert!(of(differs).ends_with("DIFFERS: a; b"));
        let problem = json!({"bridge": "s1", "agrees": null, "problem": "no answer"});
        assert!(of(problem).ends_with("no answer"));
    }
}
