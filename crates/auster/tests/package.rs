//! The Debian package `auster`, as `scripts/package` makes it of the program under test. Its test
//! in a Debian with systemd is `scripts/package-test`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const AUSTER: &str = env!("CARGO_BIN_EXE_auster");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {wrong}");
    String::from_utf8(output.stdout).unwrap()
}

fn package(programs: &Path, destination: &Path) -> PathBuf {
    let mut command = Command::new(format!("{ROOT}/scripts/package"));
    command.arg("--quick").arg("--programs").arg(programs);
    // A copy of the source without git has no commit to take the time from.
    command.env("SOURCE_DATE_EPOCH", "1795368673");
    let name = run(command.arg(destination));
    PathBuf::from(name.trim())
}

#[test]
fn the_package_has_what_the_manual_says_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A build beside the tests may replace this program by another.
    fs::copy(AUSTER, dir.path().join("auster")).unwrap();
    let [package, again] = ["one", "two"].map(|name| package(dir.path(), &dir.path().join(name)));
    let is_same = fs::read(&package).unwrap() == fs::read(again).unwrap();
    assert!(is_same, "the same sources gave another package");
    let root = dir.path().join("root");
    run(Command::new("dpkg-deb")
        .arg("--raw-extract")
        .arg(&package)
        .arg(&root));

    for file in [
        "etc/auster/run.toml",
        "lib/systemd/system/auster-run.service",
        "lib/systemd/system/auster-run.socket",
        "lib/systemd/system/auster-relay-switch@.service",
        "lib/systemd/system/auster-relay-controller.service",
        "lib/systemd/system/auster-queues-keep.service",
        "usr/lib/sysusers.d/auster.conf",
        "usr/lib/tmpfiles.d/auster.conf",
        "usr/share/man/man1/auster.1.gz",
        "usr/share/man/man1/auster-run.1.gz",
        "usr/share/man/man1/auster-relay-switch.1.gz",
        "usr/share/bash-completion/completions/auster",
        "usr/share/zsh/vendor-completions/_auster",
        "usr/share/fish/vendor_completions.d/auster.fish",
        "usr/share/doc/auster/manual/install.md",
        "usr/share/doc/auster/copyright",
    ] {
        assert!(root.join(file).is_file(), "{file} is missing");
    }
    // The laboratory's pages are in its own package, and two packages may not have the same file.
    assert!(!root.join("usr/share/man/man1/auster-lab.1.gz").exists());

    let conffiles = fs::read_to_string(root.join("DEBIAN/conffiles")).unwrap();
    assert_eq!(conffiles, "/etc/auster/run.toml\n");
    for script in ["postinst", "prerm", "postrm"] {
        let path = root.join("DEBIAN").join(script);
        run(Command::new("sh").arg("-n").arg(&path));
        let text = fs::read_to_string(&path).unwrap();
        for starting in ["systemctl start", "systemctl enable", "systemctl restart"] {
            assert!(!text.contains(starting), "{script}: {starting}");
        }
    }
    let depends = run(Command::new("dpkg-deb")
        .arg("--field")
        .arg(&package)
        .arg("Depends"));
    assert!(depends.contains("libc6 (>= "), "{depends}");
    let version = run(Command::new(root.join("usr/bin/auster")).arg("--version"));
    assert_eq!(version, concat!("auster ", env!("CARGO_PKG_VERSION"), "\n"));
}
