//! `auster papers`: the report has what is in the results and in the list, and nothing else; a run
//! continues after a failed measurement, and reports it.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const LIST: &str = r#"
title = "A paper"

[[measurement]]
name = "delay"
command = "lab run scenarios/delay.toml"
minutes = 1
long = "lab run scenarios/delay.toml"
long_minutes = 10

[[measurement]]
name = "missing"
command = "bench switch"
minutes = 1

[[paper]]
id = "p"
title = "On <delay> & loss"
authors = "A"
source = "J"
drawings = ["Fig. 1: the network"]

[[paper.entry]]
place = "Fig. 2"
title = "Delay"
claim = "83 ms without and 22 ms with."
sentence = "\"a lower hop delay\" (5.3)"
measurement = "delay"
found = "{ours:±} ms, and {lost} lost."
why = "The second one says {ours}."
plots = ["delay/earlier.svg|delay.svg"]

[[paper.entry.value]]
name = "ours"
label = "with the scheme | 1.2 times the load"
from = 'cells[algorithm="ours, strict", load=1.2].delay_ms'
unit = "ms"
paper = 22
within_percent = 25
exceeded_at_most = 11

[[paper.entry.value]]
name = "lost"
label = "lost"
from = ['rows[*].lost', 'cells[*].lost']
several = "sum"
unit = "messages"
at_most = 0

[[paper.entry.value]]
name = "fifo"
label = "without the scheme"
from = 'cells[algorithm=fifo, load=1.2].delay_ms'
unit = "ms"

[[paper.entry.value]]
label = "the scheme's delay"
from = 'cells[algorithm="ours, strict", load=1.2].delay_ms'
unit = "ms"
paper = "lower"
less_than = "fifo"

[[paper.entry.value]]
label = "what the scenario demands"
checks = "t*: no message"

[[paper.entry]]
place = "Fig. 3"
title = "Not measured"
claim = "1 ms."
sentence = "\"1 ms\" (2)"
measurement = "missing"
found = "{none} ms."

[[paper.entry.value]]
name = "none"
label = "something"
from = 'runs[*].ms'
at_most = 1
"#;

struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("papers.toml"), LIST).unwrap();
        let fixture = Fixture { dir };
        fixture.put(&Fixture::document());
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>delay by load</title></svg>";
        fs::write(fixture.results().join("delay.svg"), svg).unwrap();
        fixture
    }

    fn results(&self) -> PathBuf {
        self.dir.path().join("results/2026-11-22-delay")
    }

    fn put(&self, document: &Value) {
        fs::create_dir_all(self.results()).unwrap();
        fs::write(self.results().join("result.json"), document.to_string()).unwrap();
    }

    fn document() -> Value {
        json!({
            "scenario": "scenarios/delay.toml",
            "command": ["target/release/auster", "lab", "run", "scenarios/delay.toml"],
            "started_unix_s": 1_795_368_673,
            "machine": { "kernel": "Linux 6", "cpu": "<fast>", "cpu_count": 2, "auster": "0.1.0",
                "open_vswitch": "ovs-vswitchd (Open vSwitch) 3.1.0" },
            "interrupted": false,
            "checks": [
                { "what": "tcp: no message is lost", "passed": true, "found": "0 of 100" },
                { "what": "tls: no message is lost", "passed": true, "found": "0 of 100" },
            ],
            "cells": [
                { "algorithm": "ours, strict", "load": 1.2, "lost": 0,
                    "delay_ms": { "count": 10, "mean": 20.5, "ci95": 1.25 } },
                {
                    "algorithm": "fifo", "load": 1.2, "lost": 0,
                    "delay_ms": { "mean": 84.0, "ci95": 3.0 },
                },
            ],
        })
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(common::AUSTER)
            .arg("papers")
            .args(words)
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }

    /// The page and the table from the current results.
    fn report(&self) -> (String, String) {
        let marks = "# Papers\n<!-- what follows is written by `auster papers report` -->\nold\n\
                     <!-- and ends here -->\nthe end\n";
        fs::write(self.dir.path().join("papers.md"), marks).unwrap();
        let output = self.run(&[
            "report",
            "results",
            "--list",
            "papers.toml",
            "-o",
            "report.html",
            "--markdown",
            "papers.md",
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let read = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap();
        (read("report.html"), read("papers.md"))
    }
}

/// The text of the page that a reader sees, without its pictures.
fn text(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1;
    let mut text = String::new();
    let mut rest = body;
    while let Some((before, tag)) = rest.split_once('<') {
        text += before;
        text.push(' ');
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for words in words {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
}

#[test]
fn the_report_says_what_the_results_say() {
    let fixture = Fixture::new();
    let (page, table) = fixture.report();
    let told = text(&page);
    has(
        &told,
        &[
            "On &lt;delay&gt; &amp; loss",
            "Fig. 2 Delay ✓ reproduced",
            "Here 20.5 ± 1.2 ms, and 0 lost.",
            "with the scheme | 1.2 times the load 22 ms 20.5 ± 1.2 ms within 25 %; exceeded: at \
             most 11 ✓ reproduced",
            "Its words &quot;a lower hop delay&quot; (5.3)",
            "the scheme's delay lower 20.5 ± 1.2 ms less than: without the scheme ✓ reproduced",
            "what the scenario demands 2 of 2 hold all hold ✓ reproduced",
            "Fig. 3 Not measured – not measured",
            "something not measured (no result) at most 1 – not measured",
            "Fig. 1 the network",
            "auster lab run scenarios/delay.toml 2026-11-22",
            "results/2026-11-22-delay",
            "auster 0.1.0, Open vSwitch 3.1.0, Linux 6, 2 cores of &lt;fast&gt;",
        ],
    );
    has(
        &page,
        &["alt=\"delay by load\"", "data:image/svg+xml;base64,"],
    );
    has(
        &table,
        &[
            "# Papers\n",
            "1 reproduced, 1 not measured.",
            "| Fig. 2. Delay | 83 ms without and 22 ms with.<br>\"a lower hop delay\" (5.3) | 20.5 \
             ± 1.2 ms, and 0 lost. | **reproduced** | `auster lab run scenarios/delay.toml` \
             ([2026-11-22](../results/2026-11-22-delay)) |",
            "| Fig. 3. Not measured | 1 ms.<br>\"1 ms\" (2) |  | **not measured** | `auster bench \
             switch` (no result) |",
            "Without a result: Fig. 1 (the network).",
            "\nthe end\n",
        ],
    );
    assert!(!table.contains("old"), "{table}");
}

/// Everything in the report comes from the results.
#[test]
fn a_raw_value_that_changes_changes_the_report() {
    let fixture = Fixture::new();
    let (page, table) = fixture.report();
    let mut document = Fixture::document();

    document["cells"][0]["delay_ms"]["mean"] = json!(9.25);
    fixture.put(&document);
    let (better, better_table) = fixture.report();
    has(
        &text(&better),
        &["9.25 ± 1.25 ms", "Fig. 2 Delay ▲ exceeded"],
    );
    has(
        &better_table,
        &[
            "9.25 ± 1.25 ms, and 0 lost",
            "**exceeded**",
            "1 exceeded, 1 not measured.",
        ],
    );

    document["cells"][0]["delay_ms"]["mean"] = json!(40.0);
    fixture.put(&document);
    let (worse, _) = fixture.report();
    has(
        &text(&worse),
        &[
            "40.0 ± 1.2 ms",
            "✕ not reproduced",
            "Fig. 2 Delay ◐ in part",
        ],
    );

    // Slower than without the scheme.
    document["cells"][0]["delay_ms"]["mean"] = json!(100.0);
    document["cells"][1]["lost"] = json!(3);
    document["checks"][1]["passed"] = json!(false);
    fixture.put(&document);
    let (worst, _) = fixture.report();
    has(
        &text(&worst),
        &[
            "and 3 lost.",
            "1 of 2 hold",
            "Fig. 2 Delay ✕ not reproduced",
        ],
    );

    // The first of two places counts.
    document["rows"] = json!([{ "lost": 4 }, { "lost": 3 }]);
    fixture.put(&document);
    has(&text(&fixture.report().0), &["and 7 lost."]);

    document["started_unix_s"] = json!(1_795_368_673 + 86_400);
    document["machine"]["cpu"] = json!("slow");
    fixture.put(&document);
    let (later, later_table) = fixture.report();
    has(&text(&later), &["2026-11-23", "2 cores of slow"]);
    has(&later_table, &["[2026-11-23]"]);

    // The original document gives the original report again.
    fixture.put(&Fixture::document());
    assert_eq!(fixture.report(), (page, table));
}

#[test]
fn what_is_not_in_a_result_is_no_pass() {
    let fixture = Fixture::new();
    let mut document = Fixture::document();
    document["cells"].as_array_mut().unwrap().remove(0);
    document["checks"] = json!([]);
    fixture.put(&document);
    let (page, table) = fixture.report();
    has(
        &text(&page),
        &[
            "Fig. 2 Delay ✓ reproduced, 1 of 4 measured",
            "(not measured) ms, and 0 lost",
        ],
    );
    has(&table, &["1 reproduced, partly measured, 1 not measured."]);

    // A summary of nothing, and a value that is null.
    let mut document = Fixture::document();
    document["cells"][0]["delay_ms"] = json!({ "count": 0, "mean": 0.0, "ci95": 0.0 });
    document["cells"][1]["lost"] = Value::Null;
    fixture.put(&document);
    has(&text(&fixture.report().0), &["reproduced, 1 of 4 measured"]);

    // A result of a different command.
    fixture.put(&json!({ "bench": "channel" }));
    let output = fixture.run(&["report", "results", "--list", "papers.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    has(&stderr, &["there is no result of papers.toml in results"]);
}

#[test]
fn the_page_needs_nothing_else() {
    let fixture = Fixture::new();
    let (page, _) = fixture.report();
    for foreign in ["<script", "src=\"http", "href=\"http", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    has(
        &page,
        &[
            "prefers-color-scheme: dark",
            "<meta charset=\"utf-8\">",
            "name=\"viewport\"",
        ],
    );
}

#[test]
fn a_run_goes_on_after_what_fails_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let list = r#"
title = "x"
[[measurement]]
name = "no/scenario"
command = "lab run missing.toml"
minutes = 1
[[measurement]]
name = "fig10"
command = "sim fig10 --runs 3"
minutes = 1
quick = "sim fig10 --runs 2"
quick_minutes = 1
[[paper]]
id = "p"
title = "P"
authors = "A"
source = "J"
[[paper.entry]]
place = "Fig. 10"
title = "Matching"
claim = "46 µs"
sentence = "46 µs (5.5)"
measurement = "fig10"
[[paper.entry.value]]
label = "by the formula"
from = 'runs.model[entries=1, rules=5].us'
unit = "µs"
paper = 46
within_percent = 2
[[paper.entry]]
place = "Fig. 11"
title = "Gone"
claim = "1"
sentence = "1 (5.5)"
measurement = "no/scenario"
[[paper.entry.value]]
label = "gone"
from = 'gone'
at_most = 1
"#;
    fs::write(dir.path().join("papers.toml"), list).unwrap();
    let run = |words: &[&str]| {
        Command::new(common::AUSTER)
            .args(["papers", "run", "--list", "papers.toml"])
            .args(words)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let read = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap();

    let output = run(&["-o", "all"]);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    has(
        &stdout,
        &[
            "[1/2] no/scenario: FAILED",
            "[2/2] fig10: done",
            "all/report.html: 1 reproduced, 1 not measured",
        ],
    );
    has(
        &stderr,
        &[
            "there is no result of no/scenario (exit code",
            "missing.toml",
        ],
    );
    let told = text(&read("all/report.html"));
    has(
        &told,
        &[
            "Run of",
            "(whole): 1 ran, 1 failed",
            "not measured (failed: exit code",
            "46.4 µs",
        ],
    );
    assert!(Path::new(&dir.path().join("all/fig10/fig10.svg")).is_file());
    let record: Value = serde_json::from_str(&read("all/run.json")).unwrap();
    assert_eq!(record["measurements"][1]["outcome"], "ran");

    // No quick command fails, and an earlier result is no result of this run.
    let output = run(&["-o", "all", "--quick"]);
    assert_eq!(output.status.code(), Some(5), "results are not overwritten");
    let output = run(&["-o", "all", "--quick", "--force"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    has(
        &text(&read("all/report.html")),
        &[
            "(quick): 1 ran, 1 not part of it",
            "not measured (not part of this run)",
        ],
    );
    fs::write(
        dir.path().join("all/no/scenario/result.json"),
        "{\"scenario\":\"missing.toml\",\"gone\":0}",
    )
    .unwrap();
    let output = run(&["-o", "all", "--force", "--only", "no/scenario"]);
    assert_eq!(output.status.code(), Some(1));
    has(&text(&read("all/report.html")), &["not measured (failed"]);

    let plan = run(&["--plan", "--quick"]);
    has(
        &String::from_utf8_lossy(&plan.stdout),
        &["fig10", "auster sim fig10 --runs 2", "all"],
    );
    let unknown = run(&["--only", "fig9"]);
    assert_eq!(unknown.status.code(), Some(2));
    has(
        &String::from_utf8_lossy(&unknown.stderr),
        &["there is no measurement fig9; there are no/scenario, fig10"],
    );
}

#[test]
fn a_wrong_list_is_told_by_line_all_at_once() {
    let fixture = Fixture::new();
    let wrong = LIST
        .replace("minutes = 1\nlong", "minutes = 0\nlong")
        .replace("load=1.2].delay_ms", "load].delay_ms")
        .replace("at_most = 0", "at_mots = 0");
    fs::write(fixture.dir.path().join("papers.toml"), wrong).unwrap();
    let output = fixture.run(&["report", "results", "--list", "papers.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    has(
        &stderr,
        &[
            "papers.toml:7:11: minutes is 0; it must be a number from 0.01 to 600",
            ": from: 'cells[algorithm=\"ours, strict\", load].delay_ms' is no path",
            "papers.toml:48:1: 'at_mots' is not known in [[paper.entry.value]]",
        ],
    );
}
