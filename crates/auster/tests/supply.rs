//! Checks `Cargo.lock` against `deny.toml` as `cargo deny check` would, without network and without
//! a tool that takes minutes to build: advisories, licences, duplicates and sources. The advisories
//! are a copy, `supply/advisories.tsv`; `scripts/advisories` renews it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use semver::{Version, VersionReq};
use toml::{Table, Value};

const ADVISORIES: &str = include_str!("supply/advisories.tsv");

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(name: &str) -> Table {
    let text = std::fs::read_to_string(root().join(name)).unwrap();
    text.parse().unwrap()
}

/// The strings of a list in `deny.toml`, or one field of each of its tables.
fn listed(section: &str, list: &str, field: &str) -> Vec<String> {
    let entries = read("deny.toml")[section][list].as_array().unwrap().clone();
    let name = |entry: &Value| {
        entry
            .get(field)
            .unwrap_or(entry)
            .as_str()
            .unwrap()
            .to_owned()
    };
    entries.iter().map(name).collect()
}

/// Name, version and source of each package in `Cargo.lock`; ours have no source.
fn locked() -> Vec<(String, Version, Option<String>)> {
    let lock = read("Cargo.lock");
    let text = |package: &Value, field| Some(package.get(field)?.as_str()?.to_owned());
    let package = |package: &Value| {
        let version = text(package, "version").unwrap().parse().unwrap();
        (
            text(package, "name").unwrap(),
            version,
            text(package, "source"),
        )
    };
    let packages = lock["package"].as_array().unwrap();
    assert!(packages.len() > 100, "{} packages", packages.len());
    packages.iter().map(package).collect()
}

/// Whether one of `versions`, which ` | ` separates, includes `version`.
fn any_takes(versions: &str, version: &Version) -> bool {
    let mut versions = versions.split(" | ").filter(|text| !text.is_empty());
    versions.any(|text| VersionReq::parse(text).unwrap().matches(version))
}

/// The advisories that concern a version of a crate.
fn concerning<'a>(name: &str, version: &Version) -> Vec<&'a str> {
    let rows = ADVISORIES.lines().filter(|line| !line.starts_with('#'));
    let rows =
        rows.map(|line| <[&str; 5]>::try_from(line.split('\t').collect::<Vec<_>>()).unwrap());
    let concerns = |row: &[&str; 5]| {
        row[0] == name && !any_takes(row[3], version) && !any_takes(row[4], version)
    };
    rows.filter(concerns).map(|row| row[1]).collect()
}

/// Whether the `allowed` licences satisfy an SPDX expression. `/` is the old form of OR.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    fn any(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
        let mut holds = all(words, allowed);
        while let ["OR", rest @ ..] = words {
            *words = rest;
            holds |= all(words, allowed);
        }
        holds
    }
    fn all(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
        let mut holds = one(words, allowed);
        while let ["AND", rest @ ..] = words {
            *words = rest;
            holds &= one(words, allowed);
        }
        holds
    }
    fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
        let (first, rest) = words.split_first().expect("a licence");
        *words = rest;
        match (*first, *words) {
            ("(", _) => {
                let holds = any(words, allowed);
                *words = words.strip_prefix(&[")"]).expect("a closing parenthesis");
                holds
            }
            (licence, ["WITH", exception, rest @ ..]) => {
                *words = rest;
                allowed.contains(&format!("{licence} WITH {exception}"))
            }
            (licence, _) => allowed.contains(licence),
        }
    }
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', "( ")
        .replace(')', " )");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = &words[..];
    any(&mut words, allowed) && words.is_empty()
}

#[test]
fn no_locked_crate_has_an_advisory() {
    let ignored = listed("advisories", "ignore", "id");
    let mut wrong = Vec::new();
    for (name, version, _) in locked() {
        let advisories = concerning(&name, &version);
        let advisories = advisories
            .iter()
            .filter(|id| !ignored.iter().any(|i| i == *id));
        wrong.extend(
            advisories.map(|id| format!("{name} {version}: https://rustsec.org/advisories/{id}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "update them, or ignore them in deny.toml: {wrong:#?}"
    );
    assert!(
        ADVISORIES.lines().count() > 1000,
        "a list without advisories finds none"
    );
}

#[test]
fn an_advisory_concerns_the_versions_that_it_names() {
    let is_named =
        |name, version: &str, id| concerning(name, &version.parse().unwrap()).contains(&id);
    assert!(is_named("tokio", "1.18.3", "RUSTSEC-2023-0001"));
    assert!(!is_named("tokio", "1.18.4", "RUSTSEC-2023-0001"), "patched");
    assert!(
        is_named("tokio", "1.19.0", "RUSTSEC-2023-0001"),
        "not patched in its series"
    );
    assert!(
        !is_named("tokio", "1.6.3", "RUSTSEC-2023-0001"),
        "unaffected"
    );
    assert!(
        is_named("ring", "0.16.20", "RUSTSEC-2025-0010"),
        "unmaintained"
    );
}

#[test]
fn every_crate_may_be_used_under_an_allowed_licence() {
    let allowed: BTreeSet<String> = listed("licenses", "allow", "id").into_iter().collect();
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("none");
        if !permits(licence, &allowed) {
            wrong.push(format!("{}: {licence}", package["id"]));
        }
    }
    assert!(
        wrong.is_empty(),
        "not under a licence of deny.toml: {wrong:#?}"
    );
}

#[test]
fn a_licence_is_read_as_spdx_says() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]
        .map(str::to_owned)
        .into();
    for (expression, holds) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only/MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("MIT AND ISC OR GPL-3.0-only", true),
        ("MIT AND (ISC OR GPL-3.0-only)", true),
        ("(MIT OR ISC) AND GPL-3.0-only", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("none", false),
    ] {
        assert_eq!(permits(expression, &allowed), holds, "{expression}");
    }
}

#[test]
fn a_crate_is_there_once_or_deny_toml_says_why() {
    let mut versions = BTreeMap::<String, BTreeSet<Version>>::new();
    for (name, version, _) in locked() {
        versions.entry(name).or_default().insert(version);
    }
    for skipped in listed("bans", "skip", "crate") {
        let (name, req) = skipped.split_once('@').unwrap();
        let req: VersionReq = req.parse().unwrap();
        let all = versions
            .get_mut(name)
            .unwrap_or_else(|| panic!("{skipped} is gone: no skip"));
        let known = all.len();
        all.retain(|version| !req.matches(version));
        assert!(
            known > 1 && all.len() + 1 == known,
            "{skipped} is no duplicate any more"
        );
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(
        versions.is_empty(),
        "more than once, and not in deny.toml: {versions:?}"
    );
}

#[test]
fn every_crate_is_of_the_project_or_of_the_registry() {
    let allowed = listed("sources", "allow-registry", "url");
    for (name, version, source) in locked() {
        let is_allowed = match &source {
            None => name == "auster" || name.starts_with("auster-"),
            Some(source) => allowed
                .iter()
                .any(|url| *source == format!("registry+{url}")),
        };
        assert!(is_allowed, "{name} {version} comes from {source:?}");
    }
}

/// The packages that cargo would build, with their features.
fn built(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--format", "{p} [{f}]"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.replace(" (*)", "")).collect()
}

/// Otherwise `make run` builds for minutes what the tests have built already.
#[test]
fn the_programs_and_the_tests_share_one_build() {
    let programs = ["--package", "auster", "--package", "auster-lab"];
    let programs = built(&[&programs[..], &["--edges", "normal,build"]].concat());
    let tests = built(&["--workspace", "--edges", "normal,build,dev"]);
    assert!(programs.len() > 100, "{} packages", programs.len());
    let apart: Vec<&String> = programs.difference(&tests).collect();
    assert!(
        apart.is_empty(),
        "built again, as the tests need other features: name these in auster-lab's \
         Cargo.toml too: {apart:#?}"
    );
}
