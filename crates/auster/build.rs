//! Gives the program what `auster version` says of its build: commit, date, compiler and target.
//!
//! The same sources give the same program: the date is `SOURCE_DATE_EPOCH`, or the commit's. Builds
//! for development have neither, since each commit would build the crate again. A build without git
//! has no commit, unless `AUSTER_COMMIT` states it.
//!
//! The program for installing has functions of the same code once: a tenth of its size.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=AUSTER_COMMIT");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let git = |arguments: &[&str]| output("git", arguments).filter(|_| is_release);
    // A checkout, a commit on its branch, and a branch that was packed each change one of these.
    for name in ["HEAD", "logs/HEAD", "packed-refs"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let stated = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let commit = stated("AUSTER_COMMIT").or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let date = stated("SOURCE_DATE_EPOCH").or_else(|| git(&["show", "-s", "--format=%ct", "HEAD"]));
    let rustc = env::var("RUSTC")
        .ok()
        .and_then(|rustc| output(&rustc, &["--version"]));
    set("AUSTER_BUILD_COMMIT", commit);
    set(
        "AUSTER_BUILD_TIME",
        date.filter(|date| date.parse::<u64>().is_ok()),
    );
    set("AUSTER_BUILD_RUSTC", rustc);
    let target = env::var("TARGET").ok();
    // Only the profile `dist` optimises for size, and only there Rust's own linker is the default.
    let is_small = env::var("OPT_LEVEL").is_ok_and(|level| level == "z");
    if is_small && target.as_deref() == Some("x86_64-unknown-linux-gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    set("AUSTER_BUILD_TARGET", target);
}

/// One line of a program's output; `None` where there is no such program, or it fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty() && !line.contains('\n')).then_some(line)
}

fn set(name: &str, value: Option<String>) {
    println!("cargo:rustc-env={name}={}", value.unwrap_or_default());
}
