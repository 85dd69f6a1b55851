//! Labs on the real machine: they carry packets, leave nothing behind, and report what is wrong. As
//! root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::lab::{AUSTER, Lab, auster, copy_programs, experiment, records, remains};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

const DEADLINE: Duration = Duration::from_secs(180);

/// Two controllers in turn, the first of which does not start.
const ONE_FAILS: &str = r#"
title = "one fails"
[topology]
graph = "linear,2"
[matrix]
program = ["mine=exit 3 {port}", "none"]
[controller]
program = "$program"
[ready]
pings = "streams"
[[traffic]]
id = "calm"
kind = "ping"
pairs = "all"
interval = "10ms"
[[at]]
id = "end"
time = "300ms"
[[row]]
name = "calm"
lost = "calm.lost"
"#;

#[test]
fn a_controller_that_fails_takes_no_rows_of_others_with_it() {
    let dir = TempDir::new().unwrap();
    let document = experiment(ONE_FAILS, dir.path(), &["--runs", "2"]);
    let networks = document["networks"].as_array().unwrap();
    let rows = networks
        .iter()
        .flat_map(|network| network["calm"].as_array().unwrap());
    let programs: Vec<&Value> = rows.map(|row| &row["program"]).collect();
    assert_eq!(programs, ["none", "none"]);
    let check = &document["checks"][0];
    assert_eq!(check["what"], "mine is measured to the end");
    assert_eq!(document["passed"], false);
    let found = check["found"].as_str().unwrap();
    assert!(
        found.contains("controller ended (exit status: 3)"),
        "{found}"
    );
}

#[test]
fn a_lab_carries_ping_and_tcp_and_goes_without_a_trace() {
    let lab = Lab::up(&["linear,2", "--controller", "none"]);
    let record = records()
        .into_iter()
        .find(|record| record["id"] == lab.id.as_str());
    assert_eq!(record.unwrap()["switch_count"], 2);
    assert!(remains(&lab.id).len() > 5, "{:?}", remains(&lab.id));

    let ping = lab.exec("h1", &["ping", "-c", "3", "-i", "0.2", "10.0.0.2"]);
    assert!(ping.status.success(), "{}", text(&ping.stdout));
    // With checksum offload on, ping works and this transfer hangs.
    let mut server = Command::new(AUSTER)
        .args([
            "lab", "exec", &lab.id, "h2", "--", "timeout", "20", "iperf3", "-s", "-1",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let transfer = [
        "sh",
        "-c",
        "for n in $(seq 50); do timeout 10 iperf3 -c 10.0.0.2 -n 1M && \
                     exit 0; sleep 0.1; done; exit 1",
    ];
    let tcp = lab.exec("h1", &transfer);
    let _ = server.kill();
    let _ = server.wait();
    assert!(tcp.status.success(), "{}", text(&tcp.stderr));

    assert!(lab.down().status.success());
    assert_eq!(remains(&lab.id), [] as [String; 0]);
}

#[test]
fn two_labs_stand_side_by_side() {
    let [a, b] = [(); 2].map(|()| Lab::up(&["single,2", "--controller", "none"]));
    assert_ne!(a.id, b.id);
    for lab in [&a, &b] {
        let ping = lab.exec("h1", &["ping", "-c", "1", "10.0.0.2"]);
        assert!(ping.status.success(), "{}", text(&ping.stdout));
    }
    assert!(a.down().status.success());
    let ping = b.exec("h1", &["ping", "-c", "1", "10.0.0.2"]);
    assert!(ping.status.success(), "taking one down harmed the other");
}

#[test]
fn a_killed_run_is_cleaned_up_by_the_next_command() {
    let scenario = scenario("stay = true", "", 3);
    let mut run = start_run(&scenario);
    let id = lab_of(&mut run);
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(
        !remains(&id).is_empty(),
        "SIGKILL leaves no time to clean up"
    );
    let list = auster(&["lab", "list"]);
    assert!(text(&list.stderr).contains(&id), "{}", text(&list.stderr));
    assert_eq!(remains(&id), [] as [String; 0]);
}

#[test]
fn an_interrupted_run_ends_in_order() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let scenario = scenario("stay = true", "", 3);
        let mut run = start_run(&scenario);
        let id = lab_of(&mut run);
        kill(Pid::from_raw(run.id() as i32), signal).unwrap();
        run.wait().unwrap();
        assert_eq!(remains(&id), [] as [String; 0], "{signal}");
    }
}

/// A run checks for signals neither during traffic nor while a controller fails to start.
#[test]
fn a_run_is_interrupted_wherever_it_is() {
    let traffic = "[[traffic]]\nid = \"pings\"\nkind = \"ping\"\nbetween = [\"h1-h2\"]\n\
                   interval = \"100ms\"\n[[at]]\ntime = \"500s\"\nid = \"end\"\n\
                   [[row]]\nname = \"pings\"\nlost = \"pings.lost\"\n";
    for (controller, more, until) in [
        ("none", traffic, "pairs pinged"),
        ("sleep 900 # {port}", "", "network up"),
    ] {
        let file = TempDir::new().unwrap();
        let path = file.path().join("long.toml");
        let head = "title = \"long\"\n[topology]\ngraph = \"linear,2\"\n";
        std::fs::write(&path, format!("{head}{more}")).unwrap();
        let mut run = Command::new(env!("CARGO_BIN_EXE_auster-lab"))
            .args(["lab", "run", "--controller", controller])
            .arg(&path)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
        while !said.contains(until) {
            said += &lines.next().expect("it is under way").unwrap();
        }
        let id = said.split("as lab ").nth(1).unwrap();
        let id = id[..id.find(' ').unwrap_or(id.len())].to_owned();
        kill(Pid::from_raw(run.id() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(1), "{controller}");
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let last = rest.last().expect("a line");
        assert!(last.contains("interrupted"), "{controller}: {rest:?}");
        assert!(!rest.iter().any(|line| line.contains("WARN")), "{rest:?}");
        assert_eq!(remains(&id), [] as [String; 0], "{controller}");
    }
}

#[test]
fn a_run_writes_its_figures_the_raw_pings_and_the_command() {
    let out = TempDir::new().unwrap();
    let dir = out.path().display().to_string();
    let scenario = scenario("", "", 2);
    let path = scenario.path().display().to_string();
    let run = auster(&[
        "lab",
        "run",
        &path,
        "--controller",
        "none",
        "--json",
        "--out",
        &dir,
    ]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let printed: Value = serde_json::from_slice(&run.stdout).unwrap();
    let written = std::fs::read(out.path().join("result.json")).unwrap();
    assert_eq!(printed, serde_json::from_slice::<Value>(&written).unwrap());
    assert_eq!(printed["passed"], true);
    assert_eq!(printed["networks"][0]["pairs"].as_array().unwrap().len(), 2);
    assert!(
        printed["machine"]["open_vswitch"]
            .as_str()
            .unwrap()
            .contains("Open vSwitch")
    );
    let pings = std::fs::read_to_string(out.path().join("pings.csv")).unwrap();
    let rounds = printed["networks"][0]["rounds"].as_u64().unwrap() as usize;
    assert_eq!(
        pings.lines().count(),
        1 + rounds * 2 * 3,
        "two pairs, three packets each"
    );
    let command = std::fs::read_to_string(out.path().join("command.txt")).unwrap();
    assert!(command.contains("lab run"), "{command}");
}

/// Our prober and ping(8) both measure a path of two 10 ms links.
#[test]
fn no_round_trip_is_shorter_than_its_links_for_ping_or_for_us() {
    let scenario = scenario("", "links = { delay_ms = 10 }", 10);
    let path = scenario.path().display().to_string();
    let run = auster(&["lab", "run", &path, "--controller", "none", "--json"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let ours: Value = serde_json::from_slice(&run.stdout).unwrap();
    let ours_ms = ours["networks"][0]["later_ms"]["p50"].as_f64().unwrap();

    let lab = Lab::up(&["linear,2", "--controller", "none", "--links", "delay_ms=10"]);
    let ping = lab.exec("h1", &["ping", "-c", "20", "-i", "0.05", "10.0.0.2"]);
    let mut theirs: Vec<f64> = text(&ping.stdout)
        .lines()
        .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    theirs.sort_by(f64::total_cmp);
    let theirs_ms = theirs[theirs.len() / 2];
    for ms in [ours_ms, theirs_ms] {
        assert!(
            (20.0..1000.0).contains(&ms),
            "ours {ours_ms} ms, ping's {theirs_ms} ms"
        );
    }
}

#[test]
fn mistakes_end_in_one_line_with_their_exit_code_and_leave_nothing() {
    let broken = NamedTempFile::with_suffix(".toml").unwrap();
    let mistake = "title = 3\n[topology]\ngraph = \"linear,2\"\n";
    std::fs::write(broken.path(), mistake).unwrap();
    let broken = broken.path().display().to_string();
    let before: Vec<String> = own_records();
    for (arguments, code, word) in [
        (&["lab", "up", "torus,4"][..], 2, "leaf-spine"),
        (&["lab", "up", "ring,4", "--controller", "none"], 2, "loops"),
        (
            &["lab", "up", "ring,4", "--controller", "quic:here"],
            2,
            "tcp:HOST:PORT",
        ),
        (&["lab", "up", "single,9999"], 2, "1024"),
        (&["lab", "up", "nowhere.toml"], 5, "nowhere.toml"),
        (&["lab", "run", "nowhere.toml"], 5, "nowhere.toml"),
        (&["lab", "run", &broken], 2, "line 1"),
        (&["lab", "down", "nolab"], 2, "lab list"),
        (&["lab", "exec", "nolab", "h1", "--", "true"], 2, "lab list"),
        (
            &["lab", "link", "nons:t0=nons:t1"],
            3,
            "network namespace nons",
        ),
    ] {
        let output = auster(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    }
    assert_eq!(own_records(), before);
}

/// The experiment of `docs/lab-experiment.md` is checked, and runs, as the page says.
#[test]
fn the_guides_experiment_runs() {
    let page = include_str!("../../../../docs/lab-experiment.md");
    let (_, block) = page.split_once("```toml\n").unwrap();
    let (text, _) = block.split_once("```").unwrap();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("flap.toml").display().to_string();
    std::fs::write(&file, text).unwrap();
    let checked = auster(&["lab", "check", &file]);
    assert!(checked.status.success(), "{}", self::text(&checked.stderr));
    let output = auster(&["lab", "run", &file, "--runs", "1", "--json"]);
    let document = common::lab::measured(&output);
    let rows = document["networks"][0]["flap"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{document}");
    assert!(
        rows.iter().all(|row| row["outage_ms"].is_number()),
        "{document}"
    );
}

#[test]
fn a_check_reports_every_mistake_of_every_file() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let wrong = "titel = \"t\"\n[topology]\ngraph = \"linear,2\"\n[ready]\nwithin = \"60\"\n";
    std::fs::write(path("a.toml"), wrong).unwrap();
    std::fs::write(path("b.toml"), wrong.replace("linear", "torus")).unwrap();
    std::fs::write(
        path("c.toml"),
        wrong.replace("titel", "title").replace("60", "60s"),
    )
    .unwrap();
    let output = auster(&[
        "lab",
        "check",
        &path("a.toml"),
        &path("b.toml"),
        &path("c.toml"),
    ]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text_of_lines(&output.stderr);
    let found: Vec<String> = stderr
        .iter()
        .filter_map(|line| {
            let (_, rest) = line.split_once(".toml: ")?;
            Some(rest.split(": ").take(2).collect::<Vec<_>>().join(": "))
        })
        .collect();
    // A misspelt key is not reported as missing as well.
    let a = ["line 1: titel", "line 5: ready.within"];
    let b = [
        "line 1: titel",
        "line 3: topology.graph",
        "line 5: ready.within",
    ];
    assert_eq!(found.len(), a.len() + b.len(), "{stderr:#?}");
    assert!(
        a.iter()
            .chain(&b)
            .all(|line| found.contains(&line.to_string())),
        "{stderr:#?}"
    );
    let good = auster(&["lab", "check", &path("c.toml")]);
    assert!(good.status.success(), "{}", text(&good.stderr));
}

#[test]
fn a_machine_without_open_vswitch_is_told_what_to_install() {
    let bin = TempDir::new().unwrap();
    std::os::unix::fs::symlink("/usr/sbin/ip", bin.path().join("ip")).unwrap();
    let output = Command::new(AUSTER)
        .args(["lab", "up", "single,2"])
        .env("PATH", bin.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("apt-get install openvswitch-switch\n"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn whoever_is_not_root_is_told_so() {
    let dir = TempDir::new().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = copy_programs(dir.path());
    let nobody = 65534;
    let output: Output = Command::new(&program)
        .args(["lab", "up", "single,2"])
        .current_dir(dir.path())
        .gid(nobody)
        .uid(nobody)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("root") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

fn text_of_lines(bytes: &[u8]) -> Vec<String> {
    text(bytes).lines().map(str::to_string).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scenario(first: &str, topology: &str, later: usize) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".toml").unwrap();
    let text = format!(
        "title = \"test\"\n{first}\n[topology]\ngraph = \"linear,2\"\n{topology}\n\
         [ready]\nwithin = \"180s\"\nlater = {later}\n"
    );
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn start_run(scenario: &NamedTempFile) -> Child {
    Command::new(AUSTER)
        .args(["lab", "run", "--controller", "none"])
        .arg(scenario.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The lab that this process owns, once its switch runs.
fn lab_of(run: &mut Child) -> String {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        assert!(run.try_wait().unwrap().is_none(), "the run ended by itself");
        let found = records().into_iter().find(|record| {
            record["owner"]["pid"] == run.id()
                && record["processes"].as_array().is_some_and(|p| p.len() >= 2)
        });
        if let Some(record) = found {
            return record["id"].as_str().unwrap().to_string();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no lab after {DEADLINE:?}");
}

/// Labs of the topologies that occur only in the mistakes.
fn own_records() -> Vec<String> {
    let mistaken = ["torus,4", "ring,4", "single,9999", "nowhere.toml"];
    records()
        .iter()
        .filter(|record| mistaken.contains(&record["topology"].as_str().unwrap()))
        .map(|record| record["id"].as_str().unwrap().to_string())
        .collect()
}
