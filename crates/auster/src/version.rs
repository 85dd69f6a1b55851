//! `auster version`: prints which build this is.

use cli::date;
use cli::failure::Failure;
use cli::output::say;
use serde_json::{Value, json};

pub const EXAMPLE: &str = "\
Example:
  auster version --json";

#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The facts about a build; unknown facts are `None`.
struct Build {
    version: &'static str,
    commit: Option<&'static str>,
    /// The time of the build, in seconds since 1970.
    time: Option<u64>,
    rustc: Option<&'static str>,
    target: Option<&'static str>,
}

/// The build of this program, as `build.rs` saw it.
const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: known(env!("AUSTER_BUILD_COMMIT")),
    time: None,
    rustc: known(env!("AUSTER_BUILD_RUSTC")),
    target: known(env!("AUSTER_BUILD_TARGET")),
};

const fn known(value: &'static str) -> Option<&'static str> {
    match value.is_empty() {
        true => None,
        false => Some(value),
    }
}

/// The commit that this program was built from, if the build knew it.
pub fn commit() -> Option<&'static str> {
    BUILD.commit
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let build = Build {
        time: env!("AUSTER_BUILD_TIME").parse().ok(),
        ..BUILD
    };
    match args.json {
        true => say!("{}", document(&build)),
        false => text(&build).iter().for_each(|line| say!("{line}")),
    }
    Ok(())
}

fn text(build: &Build) -> Vec<String> {
    let of = |name: &str, value: Option<String>| format!("{name:8}{}", value.unwrap_or("-".into()));
    vec![
        format!("auster {}", build.version),
        of("commit", build.commit.map(str::to_owned)),
        of("built", build.time.map(date::day)),
        of("rustc", build.rustc.map(str::to_owned)),
        of("target", build.target.map(str::to_owned)),
    ]
}

fn document(build: &Build) -> Value {
    json!({
        "version": build.version,
        "commit": build.commit,
        "built": build.time.map(date::day),
        "built_unix_s": build.time,
        "rustc": build.rustc,
        "target": build.target,
        // The crate has no optional features. Builds that get some state them here.
        "features": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Build = Build {
        version: "1.2.3",
        commit: Some("0123456789ab"),
        time: Some(1_795_368_673),
        rustc: Some("rustc 1.95.0"),
        target: Some("x86_64-unknown-linux-gnu"),
    };

    #[test]
    fn both_forms_say_the_same() {
        let lines = text(&FULL);
        let expected = [
            "auster 1.2.3",
            "commit  0123456789ab",
            "built   2026-11-22",
            "rustc   rustc 1.95.0",
            "target  x86_64-unknown-linux-gnu",
        ];
        assert_eq!(lines, expected);
        let document = document(&FULL);
        assert_eq!(document["built"], "2026-11-22");
        assert_eq!(document["built_unix_s"], 1_795_368_673);
        assert_eq!(document["commit"], "0123456789ab");
    }

    #[test]
    fn a_build_outside_git_says_so() {
        let bare = Build {
            commit: None,
            time: None,
            ..FULL
        };
        assert_eq!(text(&bare)[1..3], ["commit  -", "built   -"]);
        assert!(document(&bare)["commit"].is_null());
        assert!(document(&bare)["built"].is_null());
    }
}
