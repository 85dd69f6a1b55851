//! Metrics and alerts under a real Prometheus: it scrapes `auster run` with a token and both
//! relays, and every metric that `contrib/` asks for exists.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::ports::free_port;
use common::relays::Relays;
use common::run;
use common::running::{AUSTER, PATIENCE, Running};
use common::switch::{Switch, VERSION};
use openflow::hello::Hello;
use openflow::{Message, Xid};
use serde_json::Value;

fn contrib(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    root.join(file)
}

fn get(url: &str) -> Value {
    let output = Command::new("curl")
        .args(["-s", "--max-time", "10", url])
        .output();
    serde_json::from_slice(&output.unwrap().stdout).unwrap_or_default()
}

/// The value of a query, once it has one.
fn query(at: &str, text: &str) -> f64 {
    let deadline = Instant::now() + PATIENCE;
    let url = format!("http://{at}/api/v1/query?query={text}");
    loop {
        let answer = get(&url);
        let value = answer["data"]["result"][0]["value"][1].as_str();
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            return value;
        }
        assert!(Instant::now() < deadline, "{text}: {answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until the value of a query is as wanted.
fn wait_for(at: &str, text: &str, is_wanted: impl Fn(f64) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_wanted(query(at, text)) {
        assert!(Instant::now() < deadline, "{text} is {}", query(at, text));
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_prometheus_scrapes_the_controller_and_both_relays() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let add = [
        "api",
        "token",
        "add",
        "prometheus",
        "--role",
        "read",
        "--file",
    ];
    let token = run(AUSTER, &[&add[..], &[&file("tokens")]].concat());
    fs::write(file("token"), token).unwrap();
    let config = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\ntokens = \"{}\"\n",
        file("tokens")
    );
    fs::write(file("net.toml"), config).unwrap();
    let args = ["run", "ptcp:0:127.0.0.1", "--config", &file("net.toml")];
    let mut controller = Running::start(&args);
    let port = controller.listening("ptcp").port();
    let line = controller.wait_for("API on http://");
    let of_run = line
        .split("://")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let mut relays = Relays::start(free_port(), port, "unix:/nowhere");
    let metrics = |running: &mut Running| {
        let line = running.wait_for("metrics on ");
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let of_switch = metrics(&mut relays.switch);
    let of_controller = metrics(&mut relays.controller);
    let scrape = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [ {} ]\n\
         scrape_configs:\n\
         - job_name: auster\n  \
           authorization: {{ credentials_file: {} }}\n  \
           static_configs: [ {{ targets: [ \"{of_run}\" ] }} ]\n\
         - job_name: auster-relay\n  \
           static_configs: [ {{ targets: [ \"{of_switch}\", \"{of_controller}\" ] }} ]\n\
         - job_name: stranger\n  \
           static_configs: [ {{ targets: [ \"{of_run}\" ] }} ]\n",
        contrib("prometheus/auster.rules.yml").display(),
        file("token"),
    );
    fs::write(file("prometheus.yml"), scrape).unwrap();
    run("promtool", &["check", "config", &file("prometheus.yml")]);
    let at = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file("prometheus.yml")));
    command.arg(format!("--storage.tsdb.path={}", file("data")));
    command.arg(format!("--web.listen-address={at}"));
    command.stdout(Stdio::null());
    let mut prometheus = Running::spawn(command);
    let deadline = Instant::now() + PATIENCE;
    while query(&at, "sum(up%7Bjob%3D~%22auster.*%22%7D)") < 3.0 {
        let targets = get(&format!("http://{at}/api/v1/targets"));
        assert!(
            Instant::now() < deadline && prometheus.is_running(),
            "{targets:#}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(
        query(&at, "up%7Bjob%3D%22stranger%22%7D"),
        0.0,
        "without a token"
    );
    assert_eq!(query(&at, "count(auster_build_info)"), 3.0);
    assert_eq!(query(&at, "count(process_resident_memory_bytes)"), 3.0);
    assert_eq!(query(&at, "count(auster_config_info)"), 1.0);
    // A scrape counts the requests that were answered before it.
    wait_for(&at, "sum(auster_api_request_seconds_count)", |value| {
        value >= 1.0
    });
    let expiries = "count(count%20by%20(instance)(auster_certificate_expiry_seconds))";
    assert_eq!(query(&at, expiries), 2.0, "of both relays");
    // The relays find each other.
    wait_for(&at, "sum(auster_relay_sessions)", |value| value >= 2.0);
    let rules = get(&format!("http://{at}/api/v1/rules"));
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(
        rules.iter().all(|rule| rule["health"] != "err"),
        "{rules:#?}"
    );
    // The token is removed, and Prometheus counts as an unknown client.
    let remove = [
        "api",
        "token",
        "remove",
        "prometheus",
        "--file",
        &file("tokens"),
    ];
    run(AUSTER, &remove);
    let pid = controller.child.id().to_string();
    run("kill", &["-HUP", &pid]);
    wait_for(&at, "up%7Bjob%3D%22auster%22%7D", |value| value == 0.0);
}

#[test]
fn each_alert_fires_once_in_the_unit_tests_of_promtool() {
    let rules = contrib("prometheus/auster.rules.yml");
    let tests = contrib("prometheus/auster.tests.yml");
    run("promtool", &["check", "rules", rules.to_str().unwrap()]);
    run("promtool", &["test", "rules", tests.to_str().unwrap()]);
    let (rules, tests) = (
        fs::read_to_string(rules).unwrap(),
        fs::read_to_string(tests).unwrap(),
    );
    for line in rules.lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            let fires = format!("alertname=\"{alert}\", alertstate=\"firing\"");
            assert!(tests.contains(&fires), "no test brings about {alert}");
        }
    }
}

/// The exposition of a controller with two switches of two ports each, and a section of its file.
fn exposition(section: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("net.toml");
    fs::write(&file, format!("api = \"0\"\n{section}")).unwrap();
    let file = file.to_str().unwrap();
    let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", file]);
    let at = controller.listening("ptcp");
    let api = controller.wait_for("API on http://");
    let api = api.split("http://").nth(1).unwrap();
    let api = api.split('/').next().unwrap().to_owned();
    let is_done = Arc::new(AtomicBool::new(false));
    let serve = |datapath| {
        let is_done = is_done.clone();
        std::thread::spawn(move || {
            let mut switch = Switch::connect(at, datapath);
            switch.send(Xid(1), &Message::Hello(Hello::offering(&[VERSION])));
            while !is_done.load(Ordering::Relaxed) {
                switch.serve(Duration::from_millis(20));
            }
        })
    };
    let switches = [1, 2].map(serve);
    let deadline = Instant::now() + PATIENCE;
    let url = format!("http://{api}/metrics");
    loop {
        let text = run("curl", &["-sf", "--max-time", "60", &url]);
        let is_up = |line: &str| line == "auster_of_connections_up 2.0";
        // Echo times have a series once there was an echo.
        if text.lines().any(is_up) && text.matches("auster_of_echo_rtt_seconds{").count() == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "two switches are not up: {text}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // A reading of counters is served for a second.
    std::thread::sleep(Duration::from_millis(1200));
    let text = run("curl", &["-sf", "--max-time", "60", &url]);
    is_done.store(true, Ordering::Relaxed);
    for switch in switches {
        switch.join().unwrap();
    }
    text
}

/// Series of the first switch without those of its ports, and of its first port.
fn series(text: &str) -> (usize, usize) {
    let is_of_first =
        |line: &&str| line.contains("dp_id=\"0000000000000001\"") || line.contains("dp_id=\"0x1\"");
    let of_first = text.lines().filter(is_of_first);
    let of_ports = of_first.clone().filter(|line| line.contains("port=\"1\""));
    let of_switch = of_first.filter(|line| !line.contains("port=\""));
    (of_switch.count(), of_ports.count())
}

#[test]
fn a_switch_and_a_port_have_as_many_series_as_the_manual_says() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run-metrics.md");
    let manual = fs::read_to_string(manual).unwrap();
    let sections = [
        ("without `[metrics]`", ""),
        ("`ports = true`", "[metrics]\nports = true\n"),
        (
            "`ports = true`, `faucet = true`",
            "[metrics]\nports = true\nfaucet = true\n",
        ),
    ];
    for (named, section) in sections {
        let text = exposition(section);
        let (of_switch, of_port) = series(&text);
        let row = format!("| {named} | {of_switch} | {of_port} |");
        assert!(manual.contains(&row), "{row} is not in the manual:\n{text}");
    }
    let text = exposition("[metrics]\nports = true\nports_max = 3\n");
    let is_of_ports = |line: &&str| line.starts_with("auster_port_receive_bytes_total{");
    assert_eq!(text.lines().filter(is_of_ports).count(), 3, "{text}");
    for line in [
        "auster_port_transmit_drops_total{dp_id=\"0000000000000001\",port=\"2\"} 2",
        "auster_ports_left_out 1.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let text = exposition("[metrics]\nqueues = true\n");
    let of_queues = text.lines().filter(|line| line.contains("queue=\"5\""));
    assert_eq!(of_queues.count(), 2 * 2 * 3, "{text}");
    let line =
        "auster_queue_transmit_packets_total{dp_id=\"0000000000000002\",port=\"2\",queue=\"5\"} 20";
    assert!(text.lines().any(|found| found == line), "{text}");
    assert!(!text.contains("auster_port_"), "{text}");
}

/// The names of our own metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    let words = words.filter(|word| word.starts_with("auster_"));
    let base = |word: &str| {
        let ends = ["_total", "_bucket", "_count", "_sum"];
        let end = ends.iter().find_map(|end| word.strip_suffix(end));
        end.unwrap_or(word).to_owned()
    };
    words.map(base).collect()
}

#[test]
fn what_dashboards_and_alerts_ask_for_is_served() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = [
        "api/src/metrics.rs",
        "api/src/metrics/ports.rs",
        "api/src/metrics/qos.rs",
        "api/src/exposition.rs",
        "auster/src/relay/metrics.rs",
    ];
    let sources = files.map(|file| fs::read_to_string(crates.join(file)).unwrap());
    let served = names(&sources.concat());
    let mut asked = 0;
    for folder in ["prometheus", "grafana"] {
        for entry in fs::read_dir(contrib(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let dashboard: Value = serde_json::from_str(&text).unwrap();
                assert!(!dashboard["panels"].as_array().unwrap().is_empty());
            }
            for name in names(&text) {
                assert!(served.contains(&name), "{}: {name}", path.display());
                asked += 1;
            }
        }
    }
    assert!(asked > 40, "{asked}");
}
