//! The report on a scenario with mistakes, as an operator reads it.

use std::path::Path;

use testbed::plane::{Controller, Transport};

use crate::engine::json_schema::tests::fits;
use crate::engine::reader::Problem;
use crate::engine::schema::{Cell, Circumstances, Scenario, absolute};

const GOOD: &str = r#"title = "test"
runs = 2
[topology]
graph = "ring,4"
hosts_per_edge = 2
arp = "static"
[control]
delay_ms = 1
[matrix]
down = ["200ms", "1s"]
[ready]
within = "60s"
pings = "streams"
[[traffic]]
id = "calm"
kind = "ping"
pairs = "ring"
interval = "10ms"
[[traffic]]
id = "new"
kind = "ping"
pairs = "new"
count = 2
interval = "20ms"
begins = "back"
[[probe]]
id = "auster"
kind = "status"
[[at]]
id = "gone"
time = "500ms"
kill = "controller"
[[at]]
id = "back"
after = "gone"
time = "$down"
start = "controller"
[[at]]
id = "end"
after = "back"
time = "3s"
[[row]]
name = "restarts"
lost = "calm.lost"
late = { value = "max(new.works_ms)", window = ["back", "end"] }
[[claim]]
of = "down=1*"
that = "max(lost) == 0 and late <= 2000"
"#;

fn read(text: &str, controller: &Controller) -> Result<Scenario, Vec<Problem>> {
    let around = Circumstances {
        beside: Path::new("."),
        controller,
        runs: None,
        seconds: None,
        seed: None,
        quick: false,
        only: &[],
    };
    Scenario::read(text, &around)
}

fn auster() -> Controller {
    Controller::parse("auster", Transport::Quic).unwrap()
}

fn refused(text: &str) -> Vec<Problem> {
    match read(text, &auster()) {
        Ok(_) => panic!("read without a mistake:\n{text}"),
        Err(found) => found,
    }
}

/// A part of the scenario, its replacement, the line, and words of the message.
const MISTAKES: [(&str, &str, usize, &str); 49] = [
    (
        "title = \"test\"",
        "",
        1,
        "title: missing; write such as title =",
    ),
    (
        "title = \"test\"",
        "title = 3",
        1,
        "title: 3 is not a string",
    ),
    (
        "title = \"test\"",
        "titel = \"test\"",
        1,
        "titel: unknown key; did you mean title?",
    ),
    (
        "title = \"test\"",
        "title = \"test",
        1,
        "invalid basic string",
    ),
    (
        "runs = 2",
        "runs = 0",
        2,
        "runs: 0 is not a whole number from 1 to 1000",
    ),
    (
        "runs = 2",
        "runs = 2.5",
        2,
        "runs: 2.5 is not a whole number",
    ),
    (
        "runs = 2",
        "runs = 2\nspeed = 3",
        3,
        "speed: unknown key; did you mean seed?",
    ),
    ("runs = 2", "runs = 50", 14, "new: ring,4 has too few pairs"),
    (
        "runs = 2",
        "stay = \"yes\"",
        2,
        "stay: 'yes' is not true or false",
    ),
    (
        "[topology]",
        "[topolgy]",
        3,
        "topolgy: unknown key; did you mean topology?",
    ),
    ("ring,4", "torus,4", 4, "topology.graph: "),
    ("ring,4", "nowhere.toml", 4, "nowhere.toml"),
    (
        "graph = \"ring,4\"",
        "",
        3,
        "topology.graph: missing; write such as graph = \"ring,4\"",
    ),
    (
        "hosts_per_edge = 2",
        "hosts_per_edge = \"2\"",
        5,
        "'2' is not a whole number from 0 to 1024",
    ),
    (
        "arp = \"static\"",
        "arp = \"statik\"",
        6,
        "'statik' is unknown; did you mean static?",
    ),
    (
        "delay_ms = 1",
        "delay = 1",
        7,
        "control: unknown key delay; known: burst_frames",
    ),
    (
        "delay_ms = 1",
        "delay_sm = 1",
        7,
        "control: unknown key delay_sm; did you mean delay_ms?",
    ),
    (
        "delay_ms = 1",
        "loss_percent = 101",
        7,
        "loss_percent = 101 is not within 0 to 100",
    ),
    (
        "down = [\"200ms\", \"1s\"]",
        "down = \"1s\"",
        10,
        "matrix.down: '1s' is not a list",
    ),
    (
        "down = [",
        "unused = [1]\ndown = [",
        10,
        "no field uses unused; write \"$unused\"",
    ),
    (
        "\"$down\"",
        "\"$donw\"",
        36,
        "[matrix] has no donw; did you mean down?",
    ),
    (
        "\"1s\"",
        "\"1 sec\"",
        36,
        "at.time: '1 sec' is not a time; write a number and us, ms, s",
    ),
    (
        "\"60s\"",
        "60",
        12,
        "ready.within: 60 is not a time with its unit",
    ),
    ("\"60s\"", "\"1h\"", 12, "'1h' is not a time"),
    ("\"60s\"", "\"20min\"", 12, "'20min' is outside 1s to 600s"),
    (
        "pings = \"streams\"",
        "pings = \"all\"",
        22,
        "every pair has talked before the run",
    ),
    (
        "pings = \"streams\"",
        "pings = \"streams\"\nlater = 3",
        14,
        "only pings = \"all\" takes it",
    ),
    (
        "kind = \"ping\"",
        "kind = \"pong\"",
        16,
        "traffic.kind: 'pong' is unknown; did you mean ping?",
    ),
    (
        "kind = \"ping\"",
        "",
        14,
        "traffic.kind: missing; write such as kind = \"ping\"",
    ),
    (
        "kind = \"status\"",
        "kind = \"power\"",
        28,
        "probe.kind: 'power' is unknown; known: channel, counter, cpu",
    ),
    (
        "pairs = \"ring\"",
        "",
        14,
        "missing; write such as pairs = \"all\"",
    ),
    (
        "pairs = \"ring\"",
        "between = [\"h1-h99\"]",
        17,
        "no host h99; known: h1, h2",
    ),
    (
        "pairs = \"ring\"",
        "pairs = \"ring\"\ncount = 2",
        18,
        "only pairs = \"new\" takes a count",
    ),
    (
        "interval = \"10ms\"",
        "interval = \"100us\"",
        18,
        "packets a second are more than 20000",
    ),
    (
        "begins = \"back\"",
        "begins = \"bakc\"",
        25,
        "no [[at]] before it has id = \"bakc\"; did you mean back?",
    ),
    (
        "id = \"new\"",
        "id = \"calm\"",
        20,
        "traffic.id: 'calm' is there twice",
    ),
    (
        "id = \"new\"",
        "id = \"New One\"",
        20,
        "'New One' is no name",
    ),
    (
        "kill = \"controller\"",
        "kill = \"controler\"",
        32,
        "did you mean controller?",
    ),
    (
        "kill = \"controller\"",
        "cut = \"s1-s9\"",
        32,
        "at.cut: ring,4 has no link s1-s9",
    ),
    (
        "kill = \"controller\"",
        "cut = \"s1\"",
        32,
        "'s1' is not a link; write two switches",
    ),
    (
        "kill = \"controller\"",
        "kill = \"controller\"\nmend = \"s1-s2\"",
        32,
        "one verb for each [[at]]",
    ),
    (
        "after = \"gone\"",
        "after = \"end\"",
        35,
        "no [[at]] before it has id = \"end\"",
    ),
    (
        "id = \"end\"",
        "id = \"done\"",
        29,
        "no [[at]] has id = \"end\"",
    ),
    (
        "calm.lost",
        "clam.lost",
        44,
        "row.lost: no clam.lost; did you mean calm.lost?",
    ),
    (
        "calm.lost",
        "calm.rtt_ms",
        44,
        "'calm.rtt_ms' has many values; write such as max(calm.rtt_ms)",
    ),
    (
        "calm.lost",
        "calm.lost == 0",
        44,
        "comparisons belong in [[claim]]",
    ),
    (
        "[\"back\", \"end\"]",
        "[\"end\", \"back\"]",
        45,
        "\"back\" does not come after \"end\"",
    ),
    (
        "max(lost) == 0 and",
        "max(last) == 0 and",
        48,
        "claim.that: no last; did you mean",
    ),
    (
        "max(lost) == 0 and",
        "max(lost) = 0 and",
        48,
        "cannot be read from '= 0 and late <= 2000' on",
    ),
];

#[test]
fn each_mistake_is_reported_with_its_line_its_field_and_what_would_be_right() {
    each_is_reported(GOOD, &auster(), &MISTAKES);
    each_is_reported(UDP, &auster(), &UDP_MISTAKES);
    each_is_reported(CHANGE, &auster(), &CHANGE_MISTAKES);
    each_is_reported(TCP, &auster(), &TCP_MISTAKES);
    each_is_reported(STORM, &auster(), &STORM_MISTAKES);
    each_is_reported(QOS, &auster(), &QOS_MISTAKES);
    each_is_reported(COMMANDS, &auster(), &COMMAND_MISTAKES);
    each_is_reported(TIMEOUTS, &auster(), &TIMEOUT_MISTAKES);
}

const UDP: &str = r#"title = "test"
[topology]
graph = "ring,3"
[[traffic]]
id = "stream"
kind = "udp"
from = "h1"
to = "h3"
rate_mbps = 5
payload_bytes = 1000
streams = 2
burst = "300ms"
pause = "2s"
[[at]]
id = "end"
time = "3s"
[[row]]
name = "all"
lost = "stream.lost"
"#;

const UDP_MISTAKES: [(&str, &str, usize, &str); 11] = [
    (
        "rate_mbps = 5",
        "new = 1\nrate_mbps = 5",
        9,
        "traffic.new: ",
    ),
    (
        "from = \"h1\"",
        "",
        4,
        "traffic.from: missing; write such as from = \"h1\"",
    ),
    (
        "from = \"h1\"",
        "from = \"h9\"",
        7,
        "no host h9; did you mean h1?",
    ),
    (
        "from = \"h1\"",
        "from = \"h3\"",
        7,
        "from and to are the same host",
    ),
    (
        "rate_mbps = 5",
        "",
        4,
        "rate_mbps: missing; write such as rate_mbps = 5",
    ),
    (
        "rate_mbps = 5",
        "rate_mbps = 0",
        9,
        "0 is not a number from 0.001 to below 10000",
    ),
    (
        "rate_mbps = 5",
        "rate_mbps = 500",
        9,
        "traffic.rate_mbps: 125000 packets a second are more than 20000",
    ),
    (
        "rate_mbps = 5",
        "rate_mbps = 5\npackets_per_s = 3",
        10,
        "rate_mbps says it already",
    ),
    (
        "payload_bytes = 1000",
        "payload_bytes = 9000",
        10,
        "9000 is not a whole number from 24 to 1472",
    ),
    (
        "streams = 2",
        "streams = 0",
        11,
        "0 is not a whole number from 1 to 1000",
    ),
    (
        "pause = \"2s\"",
        "",
        12,
        "traffic.burst: burst and pause need each other",
    ),
];

/// One of every key that the other scenarios lack.
const CHANGE: &str = r#"title = "test"
runs = 3
except = ["slow*, rate_mbps=5"]
valid = { that = "stream.sender_late_ms <= 25", retries = 2 }
[topology]
graph = "ring,3"
fresh = true
port_buffer_bytes = 1000000
link.s1-s3 = { delay_ms = "$from_ms" }
[controller.config]
drain_wait_s = "$wait_s"
[[matrix.change]]
name = "slow"
by = "drain"
from_ms = 2
wait_s = 0
[[matrix.change]]
name = "cable"
by = "cut"
from_ms = 5
wait_s = 4
[matrix]
rate_mbps = [5, 60]
[[traffic]]
id = "stream"
kind = "udp"
from = "h1"
to = "h3"
rate_mbps = "$rate_mbps"
[[probe]]
id = "path"
kind = "counter"
of = "s1-s3.tx_packets"
[[at]]
id = "there"
time = "1s"
"$by" = "s1-s3"
[[at]]
id = "end"
after = "there"
time = "1s"
[[row]]
name = "all"
lost = "stream.lost"
moved = "path.count"
[[plot]]
id = "loss"
bars = ["lost", "moved"]
by = "change"
error = "ci95"
[quick]
runs = 1
rate_mbps = [5]
[[claim]]
of = "slow*"
that = "max(lost) == 0"
"#;

const CHANGE_MISTAKES: [(&str, &str, usize, &str); 30] = [
    (
        "\"slow*, ",
        "\"slo, ",
        3,
        "no cell is like 'slo, rate_mbps=5'",
    ),
    (
        "retries = 2",
        "retries = 99",
        4,
        "99 is not a whole number from 0 to 10",
    ),
    (
        "late_ms <= 25",
        "late <= 25",
        4,
        "no stream.sender_late; known: path.count",
    ),
    (
        "late_ms <= 25",
        "late_ms",
        4,
        "valid.that: 'stream.sender_late_ms' compares",
    ),
    ("fresh = true", "fresh = 1", 7, "1 is not true or false"),
    ("= 1000000", "= 1", 8, "1 is not a whole number from 4096"),
    (
        "link.s1-s3",
        "link.s1-s9",
        9,
        "topology.link.s1-s9: ring,3 has no link s1-s9",
    ),
    (
        "link.s1-s3",
        "lnk.s1-s3",
        9,
        "topology.lnk: unknown key; did you mean link?",
    ),
    (
        "\"$from_ms\" }",
        "\"$form_ms\" }",
        9,
        "[matrix] has no form_ms; did you mean from_ms?",
    ),
    ("delay_ms = \"", "delay = \"", 9, "unknown key delay; known"),
    (
        "drain_wait_s = \"$wait_s\"",
        "",
        12,
        "matrix.change: no field uses wait_s",
    ),
    (
        "[controller.config]",
        "[controller.confg]",
        10,
        "controller.confg: unknown key; did you mean config?",
    ),
    ("name = \"slow\"", "", 12, "matrix.change.name: missing"),
    (
        "by = \"drain\"",
        "by = \"drian\"",
        37,
        "at.drian: unknown key; did you mean drain?",
    ),
    ("wait_s = 4", "", 10, "[matrix] has no wait_s"),
    (
        "wait_s = 4",
        "wait_s = 4\nrate_mbps = 3",
        24,
        "another axis has rate_mbps too",
    ),
    ("\"$by\"", "\"$bye\"", 37, "at.$bye: unknown key"),
    (
        "\"$by\" = \"s1-s3\"",
        "drain = \"$by\"",
        37,
        "'drain' is not a link; write two switches",
    ),
    (
        "\"$by\" = \"s1-s3\"",
        "\"$by\" = \"s1-s7\"",
        37,
        "at.drain: ring,3 has no link s1-s7",
    ),
    ("of = \"s1-s3.tx_packets\"", "", 30, "probe.of: missing"),
    (
        "s1-s3.tx_packets",
        "s1-s7.tx_packets",
        33,
        "ring,3 has no link s1-s7",
    ),
    (
        "s1-s3.tx_packets",
        "s1-s3.tx_packet",
        33,
        "no counter tx_packet; did you mean tx_packets?",
    ),
    (
        "s1-s3.tx_packets",
        "s1-s3",
        33,
        "'s1-s3' is no counter; write a link",
    ),
    (
        "\"lost\", \"moved\"]",
        "\"last\"]",
        48,
        "plot.bars: the row has no column last; did you mean lost?",
    ),
    (
        "bars = [",
        "points = [",
        49,
        "plot.by: change is no number; write bars",
    ),
    (
        "bars = [",
        "points = [\"lost\"]\nbars = [",
        49,
        "write one of bars, points and lists",
    ),
    (
        "by = \"change\"",
        "by = \"chance\"",
        49,
        "[matrix] has no chance; did you mean change?",
    ),
    (
        "\"ci95\"",
        "\"ci99\"",
        50,
        "'ci99' is unknown; did you mean ci95?",
    ),
    (
        "rate_mbps = [5]",
        "change = [\"fast\"]",
        53,
        "quick.change: [matrix] has no fast",
    ),
    (
        "rate_mbps = [5]",
        "rate_mbps = 5",
        53,
        "quick.rate_mbps: 5 is not a list of values",
    ),
];

#[test]
fn a_misspelt_key_of_traffic_or_a_probe_is_the_only_mistake() {
    let cases = [
        ("id = \"calm\"", "idd = \"calm\"", "did you mean id?"),
        ("kind = \"ping\"", "knid = \"ping\"", "did you mean kind?"),
        ("kind = \"ping\"", "kind = \"pnig\"", "did you mean ping?"),
        (
            "pairs = \"ring\"",
            "piars = \"ring\"",
            "did you mean pairs?",
        ),
        (
            "interval = \"10ms\"",
            "intervall = \"10ms\"",
            "did you mean interval?",
        ),
        (
            "kind = \"status\"",
            "knid = \"status\"",
            "did you mean kind?",
        ),
    ];
    for (right, wrong, words) in cases {
        let found = refused(&GOOD.replacen(right, wrong, 1));
        assert!(
            found.len() == 1 && found[0].text.contains(words),
            "{wrong}: {found:?}"
        );
    }
    let other = GOOD.replacen("id = \"calm\"", "idd = \"calm\"", 1);
    let other = other.replace("new.works_ms", "new.wroks_ms");
    assert_eq!(refused(&other).len(), 1, "nobody knows whose figure it is");
    let other = GOOD.replacen("interval = \"10ms\"", "intervall = \"10ms\"", 1);
    let other = other.replace("new.works_ms", "new.wroks_ms");
    assert_eq!(
        refused(&other).len(),
        2,
        "the figures of other traffic are known"
    );
}

#[test]
fn a_cell_has_the_name_of_a_command_and_not_its_words() {
    let text = GOOD.replace(
        "[ready]",
        "program = [\"mine=exec mine {port}\", \"exec other {port}\"]\n[ready]",
    );
    let text = text + "[controller]\nprogram = \"$program\"\n";
    let text = text.replace("kind = \"status\"", "kind = \"machine\"");
    let start = text.find("[[at]]\nid = \"gone\"").unwrap();
    let end = text.find("[[at]]\nid = \"back\"").unwrap();
    let text = text[..start].to_string() + &text[end..];
    let text = text
        .replace("after = \"gone\"\n", "")
        .replace("start = \"controller\"\n", "");
    let scenario = read(&text, &auster()).unwrap_or_else(|found| panic!("{found:?}"));
    let names: Vec<&str> = scenario
        .cells
        .iter()
        .map(|cell| cell.name.as_str())
        .collect();
    assert!(names.contains(&"down=1s, program=mine"), "{names:?}");
    assert!(
        names.contains(&"down=1s, program=exec other {port}"),
        "{names:?}"
    );
}

#[test]
fn the_quick_part_is_a_part_of_the_cells_and_runs() {
    let controller = auster();
    let around = |quick| Circumstances {
        beside: Path::new("."),
        controller: &controller,
        runs: None,
        seconds: None,
        seed: None,
        quick,
        only: &[],
    };
    let cells = |text: &str, quick| {
        let scenario = Scenario::read(text, &around(quick)).ok().unwrap();
        let names = scenario.cells.iter().map(|cell| cell.name.clone());
        (names.collect::<Vec<_>>(), scenario.networks.len())
    };
    let all = [
        "slow, rate_mbps=60",
        "cable, rate_mbps=5",
        "cable, rate_mbps=60",
    ];
    assert_eq!(cells(CHANGE, false), (all.map(str::to_string).to_vec(), 9));
    let one = vec!["cable, rate_mbps=5".to_string()];
    assert_eq!(cells(CHANGE, true), (one, 1));
    let shared = CHANGE.replace("fresh = true", "");
    assert_eq!(cells(&shared, false).1, 6, "cells of one network share it");
    let Err(found) = Scenario::read(GOOD, &around(true)) else {
        panic!("there is no quick part");
    };
    assert!(found[0].text.contains("write [quick]"), "{found:?}");
}

const TCP: &str = r#"title = "test"
[topology]
graph = "ring,3"
[matrix]
flapping = [true, false]
[[traffic]]
id = "files"
kind = "tcp"
from = "h1"
to = "h3"
bytes = 1000
interval = "2s"
[[at]]
id = "unrest"
time = "1s"
when = "$flapping"
flap = "s1-s2"
down = ["50ms", "1s"]
up = ["1s", "1s"]
until = "calm"
[[at]]
id = "calm"
time = "3s"
[[at]]
id = "end"
time = "4s"
[[row]]
name = "all"
failed = "files.failed"
"#;

const TCP_MISTAKES: [(&str, &str, usize, &str); 13] = [
    (
        "to = \"h3\"",
        "",
        6,
        "traffic.to: missing; write such as to = \"h2\"",
    ),
    (
        "to = \"h3\"",
        "to = \"h4\"",
        9,
        "no host h4; did you mean h",
    ),
    (
        "to = \"h3\"",
        "to = \"h1\"",
        9,
        "from and to are the same host",
    ),
    (
        "bytes = 1000",
        "bytes = 0",
        11,
        "traffic.bytes: 0 is not a whole number from 1 to",
    ),
    (
        "bytes = 1000",
        "",
        12,
        "traffic.interval: only transfers with bytes are repeated",
    ),
    (
        "files.failed",
        "files.transfer_ms",
        29,
        "has many values; write such as max(files.transfer_ms)",
    ),
    ("\"$flapping\"", "1", 16, "at.when: 1 is not true or false"),
    (
        "flap = \"s1-s2\"",
        "flap = \"s1-s9\"",
        17,
        "at.flap: ring,3 has no link s1-s9",
    ),
    (
        "down = [\"50ms\", \"1s\"]",
        "",
        13,
        "at.down: missing; write such as down = [\"100ms\", \"1s\"]",
    ),
    (
        "[\"50ms\", \"1s\"]",
        "[\"50ms\"]",
        18,
        "write the least and the most, such as",
    ),
    (
        "[\"50ms\", \"1s\"]",
        "[\"1s\", \"50ms\"]",
        18,
        "does not rise within 5ms to 60s",
    ),
    (
        "until = \"calm\"",
        "until = \"clam\"",
        20,
        "at.until: no [[at]] before it has id = \"clam\"; did you mean calm?",
    ),
    (
        "until = \"calm\"",
        "until = \"start\"",
        20,
        "\"start\" does not come after \"unrest\"",
    ),
];

const STORM: &str = r#"title = "test"
[topology]
graph = "linear,2"
[matrix]
program = ["auster", "own=sleep {port}"]
[controller]
program = "$program"
[[traffic]]
id = "storm"
kind = "storm"
from = "h1"
to = "h2"
flows_per_s = 100
[[at]]
id = "end"
time = "3s"
[[row]]
name = "all"
flows = "storm.flows"
"#;

const STORM_MISTAKES: [(&str, &str, usize, &str); 6] = [
    (
        "kind = \"storm\"",
        "kind = \"newcomers\"",
        8,
        "traffic.interval: missing; write such as interval = \"250ms\"",
    ),
    (
        "own=sleep {port}",
        "own=sleep",
        7,
        "controller.program: 'own=sleep' is unknown; write auster, none, tcp:HOST:PORT or a",
    ),
    (
        "program = \"$program\"",
        "program = \"$program\"\ntransport = \"tls\"",
        8,
        "controller.transport: only auster takes it",
    ),
    (
        "flows_per_s = 100",
        "flows_per_s = 9999",
        13,
        "traffic.flows_per_s: 9999 is not a whole number from 0 to 5000",
    ),
    (
        "flows_per_s = 100",
        "",
        8,
        "traffic.flows_per_s: missing; write such as flows_per_s = 100",
    ),
    (
        "[controller]",
        "[qos]\n[controller]",
        6,
        "qos: only auster takes it",
    ),
];

const QOS: &str = r#"title = "test"
[topology]
graph = "linear,2"
[matrix]
queues = [false, true]
[qos]
when = "$queues"
[[qos.port]]
at = "1:2"
rate = "10mbit"
"#;

const QOS_MISTAKES: [(&str, &str, usize, &str); 2] = [
    (
        "[[qos.port]]",
        "[[qos.prot]]",
        8,
        "qos.prot: unknown key; did you mean port?",
    ),
    (
        "\"$queues\"",
        "\"yes\"",
        7,
        "qos.when: 'yes' is not true or false",
    ),
];

const COMMANDS: &str = r#"title = "test"
[topology]
graph = "single,2"
[[at]]
id = "seen"
time = "1s"
in = "h1"
run = "ip addr"
[[at]]
id = "end"
time = "2s"
[[probe]]
id = "routes"
kind = "run"
run = "ip -json route"
in = "h2"
begins = "seen"
every = "50ms"
figures = { prefix = "/0/dst=10.0.0.0/24" }
[[row]]
name = "commands"
code = "routes.code"
prefix = "routes.prefix"
[ready]
in = "controller"
run = "true"
"#;

const COMMAND_MISTAKES: [(&str, &str, usize, &str); 11] = [
    ("\"ip addr\"", "3", 8, "at.run: 3 is not a string"),
    (
        "in = \"h1\"\nrun = \"ip addr\"",
        "reload = \"relay-switch\"",
        7,
        "at.reload: only a controller reads its configuration again",
    ),
    (
        "\"controller\"",
        "\"controler\"",
        25,
        "ready.in: in = \"controler\" is no place; did you mean controller?",
    ),
    (
        "\"50ms\"",
        "50",
        18,
        "probe.every: 50 is not a time with its unit",
    ),
    (
        "\"h1\"",
        "\"h3\"",
        8,
        "at.run: in = \"h3\" is no place; did you mean h1?",
    ),
    (
        "run = \"ip -json route\"\n",
        "",
        12,
        "probe.run: missing; write such as run = \"ovs-vsctl show\"",
    ),
    (
        "\"h2\"",
        "\"swiches\"",
        16,
        "probe.in: in = \"swiches\" is no place; did you mean switches?",
    ),
    (
        "begins = \"seen\"",
        "begins = \"sen\"",
        17,
        "probe.begins: no [[at]] before it has id = \"sen\"; did you mean seen?",
    ),
    (
        "\"/0/dst",
        "\"0/dst",
        19,
        "probe.figures.prefix: '0/dst=10.0.0.0/24' is not a JSON pointer; write a place",
    ),
    (
        "{ prefix =",
        "{ code =",
        19,
        "probe.figures.code: every command has this figure",
    ),
    (
        "routes.prefix",
        "routes.perfix",
        23,
        "row.prefix: no routes.perfix; did you mean routes.prefix?",
    ),
];

const TIMEOUTS: &str = r#"title = "test"
seconds = 3
runs = "$runs"
[topology]
graph = "single,2"
fresh = true
[controller]
core = "last"
config = "$config"
[[matrix.case]]
name = "hard"
runs = 2
config.timeouts = { policy = "fixed", idle_s = 0, hard_s = 1 }
[[matrix.case]]
name = "lease"
runs = 1
config.timeouts = { policy = "lease" }
[matrix.size]
"hard" = [64, 1472]
[[traffic]]
of = "*size=*"
id = "echo"
kind = "ping"
between = ["h1-h2"]
interval = "1s"
payload_bytes = "$size"
[[probe]]
id = "channel"
kind = "channel"
of = "h2"
[[probe]]
id = "cpu"
kind = "cpu"
[[at]]
id = "busy"
time = "0s"
load = { percent = 60, step = 10, every = "1s" }
until = "end"
[[at]]
id = "end"
time = "$seconds"
[[row]]
of = "*size=*"
name = "pings"
lost = "echo.lost"
by_second = { value = "mean(echo.rtt_ms)", each = "1s" }
[[row]]
name = "all"
predicted = "channel.detours * max(0, mean(channel.detour_ms) - 1)"
percent = "cpu.core_percent"
[[claim]]
row = "pings"
of = "hard, size=64"
against = { size = "1472" }
that = "max(lost) <= max(against.lost)"
[[plot]]
id = "by_second"
row = "pings"
lists = ["by_second"]
lines = "size"
[quick]
seconds = 1
runs = 1
size = [64]
"#;

const TIMEOUT_MISTAKES: [(&str, &str, usize, &str); 21] = [
    (
        "seconds = 3",
        "seconds = 0",
        2,
        "seconds: 0 is not a number from 0.01 to below 36000.1",
    ),
    (
        "seconds = 3\n",
        "",
        61,
        "quick.seconds: the scenario has no seconds = 30",
    ),
    (
        "\"$seconds\"",
        "\"3s\"",
        2,
        "seconds: no field uses it; write \"$seconds\"",
    ),
    (
        "runs = 2",
        "runs = 0",
        3,
        "runs: 0 is not a whole number from 1",
    ),
    ("hard_s = 1", "hard_s = -1", 9, "controller.config: "),
    (
        "core = \"last\"",
        "core = \"first\"",
        8,
        "'first' is unknown; known: last",
    ),
    (
        "core = \"last\"\n",
        "",
        36,
        "at.load: the controller has no core; write core =",
    ),
    (
        "[64, 1472]",
        "64",
        18,
        "matrix.size: a table is not a list of values",
    ),
    (
        "payload_bytes = \"$size\"",
        "payload_bytes = 8",
        26,
        "8 is not a whole number from 16 to 1472",
    ),
    (
        "of = \"*size=*\"",
        "of = \"*sizes=*\"",
        21,
        "traffic.of: no cell is like '*sizes=*'",
    ),
    ("of = \"h2\"", "of = \"h9\"", 30, "probe.of: no host h9"),
    (
        "core = \"last\"",
        "transport = \"tls\"",
        30,
        "auster over tls cannot be read from the wire",
    ),
    (
        "percent = 60",
        "percent = 160",
        37,
        "160 is not a whole number from 0 to 100",
    ),
    (
        ", every = \"1s\" }\nuntil",
        " }\nuntil",
        37,
        "at.load.every: missing",
    ),
    (
        "until = \"end\"",
        "until = \"and\"",
        38,
        "did you mean end?",
    ),
    (
        "each = \"1s\"",
        "each = \"1ms\"",
        46,
        "'1ms' is outside 100ms",
    ),
    (
        "\"channel.detours *",
        "\"chanel.detours *",
        49,
        "no chanel.detours; did you mean channel.detours?",
    ),
    (
        "\"1472\" }",
        "\"1473\" }",
        54,
        "claim.against.size: '1473' in place of 'hard, size=64': the matrix has no such cell",
    ),
    (
        "lists = [\"by_second\"]",
        "lists = [\"lost\"]",
        59,
        "the row has no column lost; known: by_second",
    ),
    (
        "lists = [\"by_second\"]",
        "lists = [\"by_second\"]\nby = \"size\"",
        60,
        "plot.by: bars and points are over an axis",
    ),
    (
        "max(against.lost)",
        "max(against.by_second)",
        55,
        "no against.by_second",
    ),
];

#[test]
fn axes_may_be_of_some_cells_and_seconds_and_runs_are_the_cells_or_the_quick_parts() {
    let controller = auster();
    let around = |seconds, quick| Circumstances {
        beside: Path::new("."),
        controller: &controller,
        runs: None,
        seconds,
        seed: None,
        quick,
        only: &[],
    };
    let scenario = |seconds, quick| match Scenario::read(TIMEOUTS, &around(seconds, quick)) {
        Ok(scenario) => scenario,
        Err(found) => panic!("{found:#?}"),
    };
    let whole = scenario(None, false);
    let names: Vec<&str> = whole.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["hard, size=64", "hard, size=1472", "lease"]);
    assert_eq!(whole.networks.len(), 2 + 2 + 1);
    let length = |s: &Scenario| s.cells[0].moments.last().map(|m| m.time.end().as_millis());
    assert_eq!((length(&whole), whole.seconds), (Some(3000), Some(3.0)));
    assert_eq!(length(&scenario(Some(2.5), true)), Some(2500));
    let quick = scenario(None, true);
    assert_eq!((length(&quick), quick.networks.len()), (Some(1000), 2));
    let Err(found) = Scenario::read(GOOD, &around(Some(2.5), false)) else {
        panic!("it takes no seconds");
    };
    assert!(found[0].text.contains("--seconds: the events"), "{found:?}");
}

type Mistake<'a> = (&'a str, &'a str, usize, &'a str);

/// A mistake that may be reported at any line.
fn anywhere<'a>((from, to, words): (&'a str, &'a str, &'a str)) -> Mistake<'a> {
    (from, to, 0, words)
}

/// Makes each mistake in a scenario that has none. Editors see misspelt keys, too.
fn each_is_reported(good: &str, controller: &Controller, mistakes: &[Mistake<'_>]) {
    assert!(read(good, controller).is_ok() && fits(good));
    let mut missed = Vec::new();
    for (from, to, line, words) in mistakes {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        let found = read(&text, controller).err().unwrap_or_default();
        let is_it = |p: &Problem| [0, p.line].contains(line) && p.text.contains(words);
        if !found.iter().any(is_it) {
            let shown: Vec<String> = found.iter().map(Problem::to_string).collect();
            missed.push(format!(
                "{to}: wanted line {line}: {words}; found {shown:#?}"
            ));
        }
        // The schema does not know the key that a cell puts in place of `$by`.
        if words.contains("unknown key") && !from.contains("by") && fits(&text) {
            missed.push(format!("{to}: the schema takes it"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn mistakes_of_claims_are_reported_too() {
    let mistakes = [
        (
            "of = \"down=1*\"",
            "of = \"down=9*\"",
            "no cell is like 'down=9*'; cells are such as 'down=200ms'",
        ),
        (
            "of = \"down=1*\"",
            "row = \"restart\"",
            "no [[row]] is named 'restart'; did you mean restarts?",
        ),
        (
            "that = \"max(lost)",
            "taht = \"max(lost)",
            "claim.taht: unknown key; did you mean that?",
        ),
        (
            "max(lost) == 0 and late <= 2000",
            "max(lost)",
            "compares nothing",
        ),
        (
            "name = \"restarts\"",
            "name = \"pairs\"",
            "'pairs' is a part of every result",
        ),
        (
            "lost = \"calm.lost\"",
            "down = \"calm.lost\"",
            "not run, repeats or an axis",
        ),
    ];
    each_is_reported(GOOD, &auster(), &mistakes.map(anywhere));
}

#[test]
fn all_mistakes_are_reported_at_once_and_each_once() {
    let text = GOOD
        .replace("runs = 2", "runs = 0")
        .replace("\"60s\"", "60")
        .replace("\"controller\"", "\"controler\"")
        .replace("calm.lost", "clam.lost");
    let lines: Vec<usize> = refused(&text).iter().map(|p| p.line).collect();
    assert_eq!(lines, [2, 12, 32, 37, 44]);
}

/// A network with its own control plane, and each kind of change to it and probe of it.
const CONTROLLED: &str = r#"title = "test"
[topology]
graph = "single,4"
fresh = true
[controller]
transport = "$way"
addresses = ["172.30.1.1", "172.30.2.1"]
standby = "$standby"
[[matrix.event]]
name = "moved"
standby = false
[[matrix.event]]
name = "rehome"
standby = true
[matrix]
way = ["quic-0rtt", "tls"]
[ready]
pings = "streams"
[[traffic]]
id = "new"
kind = "ping"
between = ["h1-h2"]
interval = "20ms"
begins = "broken"
[[probe]]
id = "heard"
kind = "host"
of = "h1"
[[probe]]
id = "session"
kind = "sessions"
[[probe]]
id = "table"
kind = "entries"
[[probe]]
id = "relay"
kind = "relay"
[[at]]
id = "broken"
time = "1s"
[[at]]
of = "moved*"
id = "elsewhere"
time = "1s"
address = { at = "switches", remove = "172.30.1.2/24", add = "172.30.1.3/24" }
[[at]]
of = "rehome, way=quic*"
id = "stopped"
time = "1s"
stop = "relay-controller"
[[at]]
of = ["rehome, way=tls", "rehome, way=ssl*", "rehome, way=tcp*"]
id = "rehomed"
time = "1s"
connect = "ssl:172.30.2.1:6663"
[[at]]
id = "end"
time = "9s"
[[row]]
name = "channel"
answered_ms = "max(new.answered_ms)"
heard_ms = "heard.known_ms"
kept = "session.kept"
lost = "table.lost"
resumed = "relay.resumptions"
[[claim]]
of = "*quic*"
against = "moved, way=tls"
that = "max(answered_ms) <= 0.5 * min(against.answered_ms)"
"#;

#[test]
fn mistakes_about_the_control_plane_are_reported_too() {
    let unknown = "of = [\"rehome, way=tls\", \"rehome, way=ssl*\"";
    let found = refused(CONTROLLED);
    let lines: Vec<String> = found.iter().map(Problem::to_string).collect();
    let example = "cells are such as 'moved, way=quic-0rtt'";
    assert_eq!(
        lines,
        ["ssl*", "tcp*"]
            .map(|way| format!("line 52: at.of: no cell is like 'rehome, way={way}'; {example}")),
    );
    let good = CONTROLLED.replace(
        &CONTROLLED
            [CONTROLLED.find(unknown).unwrap()..CONTROLLED.find("id = \"rehomed\"").unwrap()],
        "of = [\"rehome, way=tls\"]\n",
    );
    let scenario = read(&good, &auster()).unwrap_or_else(|found| panic!("{found:#?}"));
    assert!(scenario.own_controller);
    assert_eq!(scenario.networks.len(), scenario.cells.len(), "fresh ones");
    let ends = |cell: &Cell| {
        cell.moments
            .iter()
            .map(|m| m.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(&scenario.cells[0]), ["broken", "elsewhere", "end"]);
    assert_eq!(ends(&scenario.cells[2]), ["broken", "stopped", "end"]);
    let controller = auster();
    let around = Circumstances {
        beside: Path::new("."),
        controller: &controller,
        runs: None,
        seconds: None,
        seed: None,
        quick: true,
        only: &[],
    };
    let quick = format!("{good}[quick]\nevent = [\"rehome\"]\n");
    let quick = Scenario::read(&quick, &around).unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!((quick.cells.len(), quick.claims.len()), (2, 0));
    let mistakes = [
        (
            "fresh = true",
            "fresh = 1",
            "topology.fresh: 1 is not true or false",
        ),
        (
            "\"tls\"]\n[ready]",
            "\"tlss\"]\n[ready]",
            "controller.transport: 'tlss' is unknown; did you mean tls?",
        ),
        (
            "transport =",
            "trasport =",
            "controller.trasport: unknown key; did you mean transport?",
        ),
        (
            "\"172.30.2.1\"]",
            "\"172.30.2\"]",
            "controller.addresses: [\"172.30.1.1\", \"172.30.2\"] is not a list of IPv4",
        ),
        (
            ", \"172.30.2.1\"]",
            "]",
            "controller.standby: give two addresses",
        ),
        (
            "of = \"h1\"",
            "of = \"h9\"",
            "probe.of: no host h9; did you mean h1?",
        ),
        (
            "of = \"h1\"",
            "",
            "probe.of: missing; write such as of = \"h1\"",
        ),
        (
            "at = \"switches\"",
            "at = \"switch\"",
            "at.address.at: 'switch' is unknown; did you mean switches?",
        ),
        (
            "172.30.1.3/24",
            "172.30.1.3",
            "at.address.add: '172.30.1.3' is not an address; write",
        ),
        (
            ", remove = \"172.30.1.2/24\", add = \"172.30.1.3/24\"",
            "",
            "at.address.remove: missing",
        ),
        (
            "connect = \"ssl:",
            "connect = \"quic:",
            "at.connect: 'quic:172.30.2.1:6663' is not a controller",
        ),
        (
            "of = \"rehome, way=quic*\"",
            "of = \"rehome*\"",
            "at.stop: auster over tls has no relay-controller; relays are there with",
        ),
        (
            "stop = \"relay-controller\"",
            "kill = \"relay-stanby\"",
            "at.kill: 'relay-stanby' is unknown; did you mean relay-standby?",
        ),
        (
            "of = \"moved*\"",
            "of = \"moved*\"\nstop = \"standby\"",
            "at.stop: auster over tls has no standby; write standby = true",
        ),
        ("of = \"moved*\"", "of = 3", "at.of: 3 is not a string"),
        (
            "against = \"moved, way=tls\"",
            "against = \"*\"",
            "claim.against: 4 cells are like '*'; name one cell, such as 'moved, way=quic",
        ),
        (
            "against = \"moved, way=tls\"",
            "",
            "claim.that: no against.answered_ms; known: answered_ms",
        ),
        (
            "session.kept",
            "session.kpet",
            "row.kept: no session.kpet; did you mean session.kept?",
        ),
    ];
    each_is_reported(&good, &auster(), &mistakes.map(anywhere));
}

const PACKETS: &str = r#"title = "test"
[topology]
graph = "linear,2"
[controller]
program = "none"
[matrix]
load = [1, 2]
way = ["a", "b"]
[[setup]]
run = "echo $way > way"
[[setup]]
stays = "server"
listens = 6653
run = "exec server"
in = "h1"
[[traffic]]
id = "flows"
kind = "packets"
from = "h1"
to = "h2"
frame_bytes = 100
channel = "lo:6653"
begins = "offered"
ends = "sent"
[traffic.streams]
target = { packets_per_s = 10, port = 7, arrivals = "even" }
cross = { packets_per_s = "$load", dscp = 10 }
[[probe]]
id = "machine"
kind = "machine"
[[probe]]
id = "tunnel"
kind = "dscp"
of = "s1-s2"
port = 6654
figures = { cs6 = 48 }
[[probe]]
id = "echoes"
kind = "messages"
in = "h1"
to = "10.0.0.2:6653"
of = "echo"
count = 3
[[at]]
id = "offered"
time = "1s"
[[at]]
id = "sent"
time = "2s"
[[at]]
id = "end"
time = "3s"
[[row]]
name = "flows"
lost = "flows.cross.asked - flows.cross.answered"
in_time = "count(flows.target.answer_ms <= 20)"
cores = "machine.busy_cores"
others = "tunnel.packets - tunnel.cs6"
echoes = "echoes.sent"
[[claim]]
of = "load=2*"
against = { load = "1" }
that = "max(lost) <= max(against.lost)"
[[plot]]
id = "lost"
of = "load*"
points = ["lost"]
by = "load"
lines = "way"
log = true
"#;

#[test]
fn commands_find_the_folder_of_any_scenario() {
    let here = std::env::current_dir().unwrap();
    for folder in ["", ".", "a/b", "/tmp"] {
        let found = absolute(Path::new(folder));
        assert!(
            found.is_absolute() && found == here.join(folder),
            "{found:?}"
        );
    }
}

#[test]
fn mistakes_about_setup_packets_and_plots_are_found() {
    let none = Controller::parse("none", Transport::Tcp).unwrap();
    let scenario = read(PACKETS, &none).unwrap_or_else(|found| panic!("{found:?}"));
    let setup = |cell: usize| &scenario.cells[cell].network.setup;
    assert!(
        setup(0) == setup(2) && setup(0) != setup(1),
        "load is not in it"
    );
    let (name, others) = &scenario.claims[0].against[0];
    assert_eq!(name, "against");
    assert_eq!(others[2..], [Some(0), Some(1)]);
    let mistakes = [
        (
            "stays = \"server\"",
            "",
            "setup.listens: only a command that stays",
        ),
        (
            "\"server\"",
            "\"a server\"",
            "setup.stays: 'a server' is no name",
        ),
        (
            "in = \"h1\"",
            "in = \"h3\"",
            "setup.in: in = \"h3\" is no place",
        ),
        ("run = \"exec server\"", "", "setup.run: missing"),
        ("$way >", "$wya >", "matrix.way: no field uses way"),
        (
            "frame_bytes = 100",
            "frame_bytes = 10",
            "10 is not a whole number from 66",
        ),
        (
            "\"lo:6653\"",
            "\"lo\"",
            "traffic.channel: 'lo' is no channel; write a device",
        ),
        (
            "port = 7",
            "prot = 7",
            "traffic.streams.target.prot: unknown key; did you mean port?",
        ),
        (
            "packets_per_s = 10,",
            "",
            "traffic.streams.target.packets_per_s: missing",
        ),
        (
            "\"even\"",
            "\"evenly\"",
            "'evenly' is unknown; did you mean even?",
        ),
        (
            "dscp = 10",
            "dscp = 64",
            "64 is not a whole number from 0 to 63",
        ),
        (
            "packets_per_s = 10",
            "packets_per_s = 19999",
            "packets a second are more than",
        ),
        (
            "ends = \"sent\"",
            "ends = \"offered\"",
            "traffic.ends: \"offered\" does not come",
        ),
        ("channel = \"lo:6653\"", "", "no flows.cross.asked"),
        (
            "flows.cross.asked",
            "flows.corss.asked",
            "did you mean flows.cross.asked?",
        ),
        (
            "against = { load",
            "against = { laod",
            "claim.against.laod: [matrix] has no laod",
        ),
        (
            "against = { load = \"1\"",
            "against = { load = \"3\"",
            "'3' in place of 'load=2, way",
        ),
        (
            "lines = \"way\"",
            "lines = \"wya\"",
            "plot.lines: [matrix] has no wya",
        ),
        ("points = ", "bars = ", "plot.log: only points and lists"),
        (
            "kind = \"machine\"",
            "kind = \"machin\"",
            "did you mean machine?",
        ),
        ("s1-s2", "s1-s3", "probe.of: linear,2 has no link s1-s3"),
        (
            "s1-s2",
            "s1",
            "probe.of: 's1' is not a link; write a switch",
        ),
        ("port = 6654\n", "", "probe.port: missing"),
        (
            "cs6 = 48",
            "cs6 = 64",
            "probe.figures.cs6: 64 is not a whole number from 0 to 63",
        ),
        (
            "cs6 = 48",
            "unseen = 48",
            "probe.figures.unseen: every such probe has it",
        ),
        (
            "in = \"h1\"\nto",
            "in = \"h7\"\nto",
            "probe.in: no host h7; did you mean h1?",
        ),
        (
            "10.0.0.2:6653",
            "10.0.0.2",
            "probe.to: '10.0.0.2' is not an address with a port",
        ),
        (
            "of = \"echo\"",
            "of = \"echos\"",
            "probe.of: 'echos' is unknown; did you mean echo?",
        ),
        (
            "kind = \"packets\"\n",
            "kind = \"ping\"\ninterval = \"1s\"\n",
            "traffic.ends: pings go on until the end",
        ),
    ];
    each_is_reported(PACKETS, &none, &mistakes.map(anywhere));
}

const HOLDINGS: &str = r#"title = "test"
[topology]
graph = "single,2"
[[matrix.kill]]
name = "never"
[[matrix.kill]]
name = "soon"
moment = ["0ms", "300ms"]
[[at]]
of = "*soon"
id = "killed"
time = "$moment"
kill = "controller"
[[at]]
of = "*soon"
id = "seen"
after = "killed"
time = "0s"
waits = "found"
[[at]]
id = "end"
time = "1s"
[[probe]]
id = "found"
kind = "holdings"
begins = "killed"
run = "look"
reference = "whole"
within = "60s"
[[row]]
of = "*soon"
name = "killed"
half = "found.records_half"
killed_after_ms = { value = "window.length_ms", window = ["start", "killed"] }
[[claim]]
together = true
that = "sum(half) == 0"
"#;

#[test]
fn moments_that_are_random_or_wait_and_probes_of_some_cells_have_their_mistakes() {
    let scenario = read(HOLDINGS, &auster()).ok().unwrap();
    assert_eq!(scenario.cells[0].probes.len(), 0, "it lacks the moment");
    assert_eq!(scenario.cells[1].probes.len(), 1);
    for (from, to, words) in [
        (
            "waits = \"found\"",
            "waits = \"fuond\"",
            "at.waits: no [[traffic]] or [[probe]] has id = \"fuond\"; did you mean found?",
        ),
        (
            "after = \"killed\"\n",
            "",
            "at.waits: \"found\" has not begun; write a moment that comes after \"killed\"",
        ),
        (
            "[[row]]",
            "[[traffic]]\nid = \"calm\"\nkind = \"ping\"\npairs = \"all\"\n\
             interval = \"1s\"\n[[row]]",
            "traffic.kind: it has to know when \"seen\" happens, which waits; write ends = ",
        ),
        ("\"300ms\"]", "\"300\"]", "at.time: "),
        ("[\"0ms\"", "[\"400ms\"", "at.time: "),
        ("\"0ms\", ", "", "at.time: [\"300ms\"] is not two times"),
        (
            "begins = \"killed\"",
            "begins = \"kiled\"",
            "probe.begins: no [[at]] before it has id = \"kiled\"",
        ),
        ("reference = \"whole\"\n", "", "probe.reference: missing"),
        ("\"whole\"", "\"a/b\"", "probe.reference: 'a/b' is no name"),
        ("run = \"look\"\n", "", "probe.run: missing"),
        (
            "found.records_half",
            "found.records_haf",
            "no found.records_haf",
        ),
        (
            "together = true",
            "together = 1",
            "claim.together: 1 is not true",
        ),
        (
            "together = true",
            "together = true\nagainst = \"kill=soon\"",
            "claim.together: a claim with against",
        ),
    ] {
        assert!(HOLDINGS.contains(from), "{from}");
        let found = refused(&HOLDINGS.replacen(from, to, 1));
        let is_it = |p: &Problem| p.text.contains(words);
        assert!(found.iter().any(is_it), "{to}: {words}\n{found:#?}");
    }
    let none = Controller::parse("none", Transport::Tcp).unwrap();
    let text = HOLDINGS.replace("kill = \"controller\"", "");
    let found = read(&text, &none).err().unwrap_or_default();
    assert!(
        found[0].text.contains("none sets up nothing of this"),
        "{found:?}"
    );
}

#[test]
fn relays_are_killed_only_where_there_are_relays() {
    let text = GOOD.replace("\"controller\"", "\"relay-switch\"");
    assert!(read(&text, &auster()).is_ok());
    let tcp = Controller::parse("auster", Transport::Tcp).unwrap();
    let found = read(&text, &tcp).err().unwrap();
    assert!(found[0].text.contains("--transport quic"), "{found:?}");
}

#[test]
fn runs_share_a_network_while_it_stays_the_same() {
    let scenario = read(GOOD, &auster()).ok().unwrap();
    assert_eq!(scenario.networks.len(), 1);
    let runs = &scenario.networks[0].runs;
    let order: Vec<(u64, usize)> = runs.iter().map(|run| (run.number, run.cell)).collect();
    assert_eq!(order, [(1, 0), (1, 1), (2, 0), (2, 1)]);
    let graphs = "title = \"t\"\nruns = 2\n[topology]\ngraph = \"$graph\"\n\
                  [matrix]\ngraph = [\"ring,4\", \"linear,3\"]\n";
    let scenario = read(graphs, &auster()).ok().unwrap();
    assert_eq!(scenario.networks.len(), 4);
    assert_eq!(scenario.cells[1].name, "graph=linear,3");
}

#[test]
fn the_scenarios_of_the_project_are_read() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    for name in [
        "first-contact.toml",
        "ring-failure.toml",
        "controller-restart.toml",
        "relay-restart.toml",
        "path-change.toml",
        "tcp-flap.toml",
        "reconnect.toml",
        "controllers-storm.toml",
        "voice.toml",
        "network.toml",
        "qos-queues.toml",
        "qos-circuit.toml",
        "pso-out-of-band.toml",
        "pso-in-band.toml",
        "table-2.toml",
        "timeouts-1-to-5.toml",
        "timeouts-figures.toml",
        "qos-scale.toml",
        "qos-killed.toml",
        "table-pressure-ovs.toml",
        "pso-fig7-8.toml",
        "pso-fig9.toml",
        "pso-ns3.toml",
        "pso-disciplines.toml",
        "pso-flood-above.toml",
        "table-pressure.toml",
        "table-million.toml",
        "table-renewals.toml",
        "cluster.toml",
    ] {
        let text = std::fs::read_to_string(dir.join(name)).unwrap();
        let mistakes = read(&text, &auster()).err().unwrap_or_default();
        assert!(mistakes.is_empty() && fits(&text), "{name}: {mistakes:?}");
    }
}

const CHANNEL: &str = r#"title = "test"
[topology]
graph = "none"
[matrix]
agents = [2, 4]
method = ["tcp", "relay-5ms"]
[at_once]
"*relay*" = 8
[[traffic]]
id = "channel"
kind = "channel"
method = "$method"
agents = "$agents"
rate_per_s = 1000
size_bytes = "400/600"
rtt_ms = "150±50"
loss_percent = 5
burst = 4
[[at]]
time = "1s"
id = "end"
[[row]]
name = "channel"
bytes = "channel.overhead_bytes"
[[claim]]
of = "agents=4, method=relay-5ms"
against = { tcp = { method = "tcp" }, tcp_two = { method = "tcp", agents = "2" } }
that = "mean(bytes) / mean(tcp.bytes) <= mean(tcp_two.bytes)"
"#;

#[test]
fn traffic_with_ends_of_its_own_needs_no_network() {
    let controller = auster();
    let part = |only: &[&str]| {
        let only: Vec<String> = only.iter().map(|of| of.to_string()).collect();
        let around = Circumstances {
            beside: Path::new("."),
            controller: &controller,
            runs: None,
            seconds: None,
            seed: None,
            quick: false,
            only: &only,
        };
        Scenario::read(CHANNEL, &around)
    };
    let scenario = part(&[]).unwrap_or_else(|found| panic!("{found:?}"));
    let at_once = scenario.cells.iter().map(|cell| cell.at_once);
    assert_eq!(at_once.collect::<Vec<_>>(), [1, 8, 1, 8]);
    assert_eq!(scenario.networks.len(), 1, "all runs follow each other");
    let others = &scenario.claims[0].against;
    let others: Vec<(&str, Option<usize>)> = others
        .iter()
        .map(|(name, cells)| (name.as_str(), cells[3]))
        .collect();
    assert_eq!(others, [("tcp", Some(2)), ("tcp_two", Some(0))]);
    let one = part(&["*agents=4*", "*relay*"]).unwrap_or_else(|found| panic!("{found:?}"));
    let names: Vec<&str> = one.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "agents=2, method=relay-5ms",
            "agents=4, method=tcp",
            "agents=4, method=relay-5ms"
        ]
    );
    let Err(found) = part(&["*sctp"]) else {
        panic!("there is no such cell");
    };
    assert!(found[0].text.contains("--only: no cell is"), "{found:?}");
    let mistakes = [
        ("relay-5ms\"]", "pigeon\"]", "'pigeon' is unknown; known: "),
        ("rate_per_s = 1000", "", "traffic.rate_per_s: missing"),
        ("400/600", "99", "'99': a message has 100 to 65535 bytes"),
        ("150±50", "soon", "'soon' is no RTT"),
        ("burst = 4", "burst = 0.5", "'0.5' is no burst"),
        ("burst = 4", "burst = \"8:5\"", "cannot lose 5 %"),
        (
            "[2, 4]",
            "[2, 4, 17]",
            "17 is not a whole number from 1 to 16",
        ),
        (
            "\"none\"",
            "\"ring,4\"",
            "at_once: runs on a network follow",
        ),
        (
            "[topology]",
            "stay = true\n[topology]",
            "stay: runs of [at_once]",
        ),
        (
            "\"channel\"\nmethod",
            "\"storm\"\nfrom = \"h1\"\nto = \"h2\"\nflows_per_s = 1\nmethod",
            "kind: it needs hosts",
        ),
        (
            "id = \"end\"",
            "id = \"end\"\ncut = \"s1-s2\"",
            "no network to change",
        ),
        (
            "[[row]]",
            "[[probe]]\nid = \"m\"\nkind = \"machine\"\n[[row]]",
            "no network to observe",
        ),
        (
            "[[claim]]",
            "[[plot]]\nid = \"p\"\nbars = [\"bytes\"]\nby = \"agents\"\nlog_by = true\n[[claim]]",
            "plot.log_by: only points take it",
        ),
        ("tcp = {", "Tcp = {", "another cell is named in a-z"),
        ("tcp_two.bytes", "two.bytes", "claim.that: "),
        (
            "agents = \"2\"",
            "agents = \"3\"",
            "the matrix has no such cell",
        ),
    ];
    each_is_reported(CHANNEL, &controller, &mistakes.map(anywhere));
}

const SIMULATED: &str = r#"title = "test"
backend = "sim"
seconds = 2
[matrix]
load = [0.8, 1.2]
scheduler = ["fifo", "strict"]
[channel]
rate_mbit = 100
propagation = "0.5ms"
below_bytes = 3000
scheduler = "$scheduler"
queue_messages = 100
policy = "Default: action=queue_id:0"
retry = { after = "500ms" }
[channel.target]
udp_dst = 20000
kbit = 1000
packet_bytes = 512
[channel.cross]
traffic = "packets"
load = "$load"
[[row]]
name = "target"
loss_percent = "channel.loss_percent"
hop_ms = "mean(channel.hop_ns) / 1000000"
[[claim]]
of = "*scheduler=strict"
that = "abs(mean(hop_ms) - 2) <= ci95(hop_ms)"
"#;

const TABLE: &str = r#"title = "test"
backend = "sim"
seconds = 20
[[matrix.policy]]
name = "fixed"
timeouts = { policy = "fixed", idle_s = 1 }
[[matrix.policy]]
name = "lease"
timeouts = { policy = "lease", lease_s = 30, aggregate = true, entrances = 2 }
[table]
capacity = 1000
load = 1
delay = "1ms"
timeouts = "$timeouts"
[[row]]
name = "table"
misses = "table.misses"
entries = { value = "max(table.entries)", each = "1s" }
"#;

#[test]
fn mistakes_about_virtual_time_are_found() {
    let one = |text| read(text, &auster()).unwrap_or_else(|found| panic!("{found:?}"));
    let channel = one(SIMULATED);
    assert_eq!((channel.cells.len(), channel.networks.len()), (4, 1));
    let mistakes = [
        (
            "\"sim\"",
            "\"simm\"",
            2,
            "'simm' is unknown; did you mean sim?",
        ),
        (
            "backend = \"sim\"\n",
            "",
            6,
            "channel: only backend = \"sim\" takes it",
        ),
        (
            "seconds = 2\n",
            "",
            1,
            "seconds: missing; write such as seconds = 10",
        ),
        (
            "seconds = 2",
            "seconds = 0",
            3,
            "seconds: 0 is not a number from 0.01",
        ),
        (
            "[matrix]",
            "[topology]\ngraph = \"ring,4\"\n[matrix]",
            4,
            "topology: there is no network under virtual time",
        ),
        (
            "[[row]]",
            "[table]\ncapacity = 10\ndelay = \"1ms\"\nload = 1\n\
             timeouts = { policy = \"lru\" }\n[[row]]",
            22,
            "table: a simulation has one subject; write [channel] or [table]",
        ),
        (
            "rate_mbit = 100",
            "rate_mbits = 100",
            8,
            "rate_mbits: unknown key; did you mean",
        ),
        ("rate_mbit = 100", "", 7, "channel.rate_mbit: missing"),
        (
            "0.5ms",
            "0.5",
            9,
            "channel.propagation: '0.5' is not a time",
        ),
        (
            "\"strict\"]",
            "\"stict\"]",
            11,
            "'stict' is unknown; did you mean strict?",
        ),
        ("queue_id:0", "queue_id:x", 13, "channel.policy: "),
        (
            "500ms",
            "500min",
            14,
            "channel.retry.after: '500min' is outside",
        ),
        ("kbit = 1000\n", "", 15, "channel.target.kbit: missing"),
        (
            "\"packets\"",
            "\"data\"",
            19,
            "channel.cross.packet_bytes: missing",
        ),
        (
            "\"packets\"",
            "\"echo\"\npacket_bytes = 64",
            21,
            "packet_bytes: only traffic = \"data\" takes it",
        ),
        (
            "\"packets\"",
            "\"echo\"\nudp_dst = 9",
            21,
            "udp_dst: only traffic = \"packets\" takes it",
        ),
        (
            "[0.8, 1.2]",
            "[0.8, 12]",
            21,
            "channel.cross.load: 12 is not a number from 0",
        ),
        (
            "channel.hop_ns",
            "channel.hop_ms",
            25,
            "no channel.hop_ms; did you mean channel.hop_ns?",
        ),
        (
            "mean(hop_ms) -",
            "mean(hop_ms), -",
            28,
            "claim.that: abs(…) wants one value",
        ),
    ];
    each_is_reported(SIMULATED, &auster(), &mistakes);
    let table = one(TABLE);
    let lengths = table.cells.iter().flat_map(|cell| &cell.moments);
    assert!(lengths.map(|end| end.time.end().as_secs()).eq([20, 20]));
    let mistakes = [
        (
            "capacity = 1000",
            "capacity = 1",
            11,
            "1 is not a whole number from 10",
        ),
        (
            "load = 1",
            "load = 0",
            12,
            "table.load: 0 is not a number from 0.001",
        ),
        ("load = 1\n", "", 10, "table.load: write one of load"),
        (
            "load = 1",
            "load = 1\nsteady = { flows = 5, gap = \"1s\", over = \"1s\" }",
            12,
            "table.load: write one of load",
        ),
        (
            "load = 1",
            "steady = { flows = 5, gap = \"1s\", over = \"1s\" }\ndestinations = 9",
            13,
            "table.destinations: only load takes it",
        ),
        ("delay = \"1ms\"\n", "", 10, "table.delay: missing"),
        (
            "\"fixed\", idle_s",
            "\"fixd\", idle_s",
            6,
            "'fixd' is unknown; did you mean fixed?",
        ),
        (
            "idle_s = 1",
            "lease_s = 1",
            6,
            "lease_s: only policy = \"lease\" takes it",
        ),
        (
            "lease_s = 30",
            "idle_s = 30",
            9,
            "idle_s: only policy = \"fixed\" takes it",
        ),
        (
            "aggregate = true, ",
            "",
            9,
            "entrances: only aggregate = true takes it",
        ),
        (
            "timeouts = \"$timeouts\"\n",
            "",
            10,
            "table.timeouts: missing",
        ),
        (
            "table.misses",
            "table.missed",
            17,
            "no table.missed; did you mean table.misses?",
        ),
    ];
    each_is_reported(TABLE, &auster(), &mistakes);
}

#[test]
fn mistakes_about_traces_and_tables_are_found() {
    let good = include_str!("../../../../../scenarios/table-pressure-ovs.toml");
    let scenario = read(good, &auster()).unwrap_or_else(|found| panic!("{found:?}"));
    let alone = scenario.cells.iter().filter(|cell| cell.at_once == 1);
    assert_eq!((scenario.cells.len(), alone.count()), (32, 4));
    assert_eq!(scenario.networks.len(), 32, "each run has its own");
    let mistakes = [
        (
            "simulated = \"lru\"",
            "simulated = \"fifo\"",
            "traffic.simulated: 'fifo' is no policy; write lru",
        ),
        (
            "[1000, 10000]",
            "[10, 10000]",
            "traffic.entries: 10 is not a whole number from 20",
        ),
        ("load = \"$load\"", "", "traffic.load: missing"),
        ("\"evict\"", "\"evicts\"", "did you mean evict?"),
        (
            "fresh = true",
            "fresh = false",
            "at_once: runs on a network follow each other; write fresh",
        ),
        (
            "program = \"auster\"",
            "transport = \"tls\"",
            "traffic.kind: auster over tls cannot be read",
        ),
        (
            "\"occupancy\"\n",
            "\"occupancy\"\ntable = 254\n",
            "probe.table: 254 is not a whole number from 0 to 253",
        ),
        ("to = \"h2\"", "to = \"h3\"", "traffic.from: no host h3"),
        (
            "policy = \"lease\"",
            "policy = \"leese\"",
            "controller.config: ",
        ),
    ];
    each_is_reported(good, &auster(), &mistakes.map(anywhere));
}

const TRANSFERS: &str = r#"title = "test"
[topology]
graph = "single,4"
[controller]
program = "$program"
prepare = "$prepare"
[matrix]
program = ["none", "mine=exec mine {port}"]
prepare = ["true"]
[[traffic]]
id = "bulk"
kind = "tcp"
from = "h1"
to = "h2"
[[traffic]]
id = "file"
kind = "tcp"
from = "h3"
to = "h4"
bytes = 1000
count = 1
begins = "begun"
[[traffic]]
id = "stream"
kind = "udp"
from = "h3"
to = "h4"
rate_mbps = 1
begins = "sent"
[[at]]
id = "begun"
time = "500ms"
[[at]]
id = "sent"
after = "begun"
time = "0s"
waits = "file"
[[at]]
id = "end"
after = "sent"
time = "1s"
[[row]]
name = "transfers"
transfer_ms = "max(file.transfer_ms)"
[[row]]
of = "program=none*"
name = "streams"
lost = "stream.lost"
[[claim]]
row = "streams"
that = "max(lost) == 0"
[[plot]]
id = "lost"
row = "streams"
bars = ["lost"]
by = "program"
"#;

#[test]
fn moments_that_wait_for_streams_have_their_mistakes() {
    let scenario = read(TRANSFERS, &auster()).ok().unwrap();
    assert_eq!(scenario.cells.len(), 2);
    assert_eq!(
        scenario.cells[1].network.prepare.as_deref(),
        Some("true"),
        "any controller may take it"
    );
    let mistakes = [
        (
            "waits = \"file\"",
            "waits = \"fiel\"",
            "at.waits: no [[traffic]] or [[probe]] has id = \"fiel\"; did you mean file?",
        ),
        (
            "waits = \"file\"",
            "waits = \"stream\"",
            "at.waits: \"stream\" has not begun; write a moment that comes after \"sent\"",
        ),
        (
            "count = 1\n",
            "",
            "traffic.id: a moment waits for its end; write count = 1",
        ),
        (
            "count = 1\n",
            "count = 0\n",
            "traffic.count: 0 is not a whole number from 1",
        ),
        (
            "id = \"bulk\"\n",
            "id = \"bulk\"\ncount = 2\n",
            "traffic.count: only transfers with bytes are repeated",
        ),
        (
            "begins = \"sent\"",
            "begins = \"begun\"",
            "traffic.kind: it has to know when \"sent\" happens, which waits; write ends = ",
        ),
        (
            "kind = \"udp\"\nfrom = \"h3\"\nto = \"h4\"\nrate_mbps = 1",
            "kind = \"ping\"\nbetween = [\"h3-h4\"]\ninterval = \"1s\"",
            "traffic.kind: it has to know when \"sent\" happens",
        ),
        ("\"true\"", "1", "controller.prepare: "),
    ];
    each_is_reported(TRANSFERS, &auster(), &mistakes.map(anywhere));
}

#[test]
fn a_part_may_lack_the_rows_of_claims_and_plots() {
    let controller = auster();
    let around = Circumstances {
        beside: Path::new("."),
        controller: &controller,
        runs: None,
        seconds: None,
        seed: None,
        quick: false,
        only: &["program=mine*".to_string()],
    };
    let part = Scenario::read(TRANSFERS, &around).ok().unwrap();
    assert_eq!((part.claims.len(), part.plots.len()), (0, 0));
    let text = TRANSFERS.replace("row = \"streams\"", "row = \"stream\"");
    let found = Scenario::read(&text, &around).err().unwrap();
    assert!(found[0].text.contains("named 'stream'"), "{found:?}");
}
