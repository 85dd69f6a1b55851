//! Wrong input to every command: the command soon prints one line that says what to do, exits with
//! the code that `--help` promises, and leaves nothing behind. The project's own scenarios are
//! right.
//!
//! Each command runs in a mount namespace with an empty `/run`, so that a test sees what a lab
//! would leave there, and sees no other labs.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The user who runs a command, and the tools in reach.
#[derive(Clone, Copy, Debug)]
enum As {
    Root,
    Nobody,
    /// Root, with nothing in `PATH`.
    RootWithoutTools,
}
use As::{Nobody, Root, RootWithoutTools};

/// Words, user, exit code, and the text that the line must contain. `{tcp}` and `{udp}` are ports
/// in use; `{c1}` and `{s1}` are the flags of a controller's and a switch's certificates.
type Case = (&'static str, As, i32, &'static str);

#[test]
#[rustfmt::skip]
fn run_says_what_is_wrong() {
    check(&[
        ("run udp:1.2.3.4", Root, 2, "'udp:' is no connection method"),
        ("run ptcp:66530", Root, 2, "66530"),
        ("run tcp:", Root, 2, "'tcp:'"),
        ("run --listen tcp:1.2.3.4", Root, 2, "put a 'p' before it to listen"),
        ("run --connect ptcp:0", Root, 2, "drop the 'p' to dial"),
        ("run ptcp:{tcp}:127.0.0.1", Root, 4, "in use; stop what listens there"),
        ("run pssl:{tcp}:127.0.0.1 {c1}", Root, 4, "in use; stop what listens there"),
        ("run pquic:{udp}:127.0.0.1 {c1}", Root, 4, "in use; stop what listens there"),
        ("run ptcp:0:192.0.2.1", Root, 4, "`ip address` shows those it has"),
        ("run ptcp:0:nowhere.invalid", Root, 4, "'nowhere.invalid' has no address"),
        ("run punix:missing/socket", Root, 4, "make it, or name another"),
        ("run punix:socket", Nobody, 4, "a path of your own, or use sudo"),
        ("run punix:notes.txt", Root, 4, "in use; stop what listens there"),
        ("run pssl:0", Root, 2, "give -p KEY -c CERT -C CA, or all three in [tls]"),
        ("run -p c1-privkey.pem", Root, 2, "-c CERT -C CA is missing"),
        ("run -p notes.txt -c notes.txt -C notes.txt", Root, 4, "no private key in it (PEM"),
        ("run -p c1-privkey.pem -c notes.txt -C notes.txt", Root, 4, "no certificate in it (PEM)"),
        ("run -p s1-privkey.pem -c c1-cert.pem -C c1-cert.pem",
            Root, 4, "key is not that of c1-cert"),
        ("run -p missing -c missing -C missing",
            Root, 5, "missing: No such file or directory; check"),
        ("run {c1}", Nobody, 5, "c1-privkey.pem: Permission denied; run as a user who may"),
        ("run --allow-dpid s1", Root, 2, "write 16 hex digits"),
        ("run --threads 0", Root, 2, "0 is not in 1..=256"),
        ("run --mode fast", Root, 2, "possible values: reactive"),
        ("run --config net.toml", Root, 2, "net.toml:1:8: mode: 'fast' is none of reactive"),
        ("run --config net.toml", Root, 2, "; net.toml:2:1: 'speed' is not known"),
        ("run --config broken.toml", Root, 2, "broken.toml:"),
        ("run --topology missing.toml", Root, 5, "missing.toml: No such file or directory"),
        ("run --topology cables.toml",
            Root, 2, "cables.toml:1:10: links: '1:2' is not two ports such as"),
        ("run --topology cables.toml",
            Root, 2, ": hosts: host 02:00:00:00:00:01 is at"),
        ("run --config missing.toml", Root, 5, "missing.toml: No such file or directory; check"),
        ("run --config folder", Root, 5, "folder: it is a directory; name a file"),
        ("run ptcp:0:127.0.0.1 --status missing/status", Root, 5, "check the path"),
        ("run ptcp:0:127.0.0.1 --status notes.txt",
            Root, 5, "notes.txt: it is there already; remove"),
        ("run --log =:=", Root, 2, "--log '=:=' is not a filter"),
    ]);
}

#[test]
#[rustfmt::skip]
fn relay_switch_says_what_is_wrong() {
    check(&[
        ("relay switch --openflow ptcp:0:127.0.0.1 --connect quic:127.0.0.1",
            Root, 2, "--private-key <FILE>"),
        ("relay switch {s1} --openflow ptcp:0:127.0.0.1 --connect ptcp:6654",
            Root, 2, "relays connect by quic:, tcp: or ssl:HOST[:PORT], or unix:FILE"),
        ("relay switch --openflow ptcp:0:127.0.0.1 --connect tcp:127.0.0.1 --ovsdb unix:db.sock",
            Root, 2, "a relay carries OpenFlow alone; use quic: for other agents"),
        ("relay switch {s1} --openflow ptcp:0:127.0.0.1 --connect quic:127.0.0.1 --connect \
         tcp:127.0.0.1",
            Root, 2, "--connect tcp:127.0.0.1: of several, each is a controller relay by \
            quic:HOST[:PORT]"),
        ("relay switch {s1} --openflow ptcp:0:127.0.0.1 --connect quic:127.0.0.1 --connect \
         quic:127.0.0.1",
            Root, 2, "--connect quic:127.0.0.1: given twice"),
        ("relay switch --openflow ptcp:0:127.0.0.1 --connect tcp:127.0.0.1 --rate 1mbit",
            Root, 2, "give --policy too"),
        ("relay switch --openflow ptcp:0:127.0.0.1 --connect tcp:127.0.0.1 --rate fast",
            Root, 2, "'fast' is no rate; write 10mbit, 500kbit or bits per second"),
        ("relay switch --openflow ptcp:0:127.0.0.1 --connect tcp:127.0.0.1 --policy none.policy",
            Root, 5, "none.policy"),
        ("relay switch {s1} --openflow ptcp:0:127.0.0.1 --connect quick:1",
            Root, 2, "no connection method"),
        ("relay switch {s1} --openflow tcp:127.0.0.1 --connect quic:127.0.0.1",
            Root, 2, "write ptcp:[PORT][:HOST]"),
        ("relay switch {s1} --openflow ptcp:{tcp}:127.0.0.1 --connect quic:127.0.0.1",
            Root, 4, "in use; stop what listens there"),
        ("relay switch {s1} --openflow ptcp:0:192.0.2.1 --connect quic:127.0.0.1",
            Root, 4, "`ip address` shows those it has"),
        ("relay switch {s1} --openflow punix:missing/s --connect quic:127.0.0.1",
            Root, 4, "make it, or name another"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --record missing/r",
            Root, 5, "check the path"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --status unix:missing/t",
            Root, 4, "make it, or name another"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --status tcp:1.2.3.4",
            Root, 2, "write unix:FILE"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --nudge",
            Root, 2, "--nudge needs --ovsdb"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --agent gnmi",
            Root, 2, "write NAME=METHOD"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --agent openflow=punix:t",
            Root, 2, "give it another name"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --agent snmp=udp:127.0.0.1",
            Root, 2, "the port is missing: udp:HOST:PORT"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --agent \
         snmp=udp:127.0.0.1:161,class=fast",
            Root, 2, "class: 'fast' is no kind of message"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1 --agent \
         snmp=udp:127.0.0.1:161,lane=3",
            Root, 2, "'lane=3' is no field of an agent"),
        ("relay switch --openflow punix:s --connect tcp:127.0.0.1 --agent snmp=udp:127.0.0.1:161",
            Root, 2, "a relay carries OpenFlow alone"),
        ("relay switch {s1} --openflow punix:s --connect quic:127.0.0.1",
            Nobody, 5, "s1-privkey.pem: Permission denied; run as"),
        ("relay switch -p s1-privkey.pem -c c1-cert.pem -C c1-cert.pem --openflow punix:s \
         --connect quic:127.0.0.1",
            Root, 4, "key is not that of c1-cert"),
        ("relay switch -p missing -c missing -C missing --openflow punix:s --connect \
         quic:127.0.0.1",
            Root, 5, "check the path"),
    ]);
}

#[test]
#[rustfmt::skip]
fn relay_controller_says_what_is_wrong() {
    check(&[
        ("relay controller {c1} --openflow tcp:127.0.0.1", Root, 2, "--listen <METHOD>"),
        ("relay controller {c1} --listen tcp:127.0.0.1 --openflow tcp:127.0.0.1",
            Root, 2, "relays listen on pquic:, ptcp: or pssl:[PORT][:HOST], or punix:FILE"),
        ("relay controller {c1} --listen pquic:0:127.0.0.1 --openflow ptcp:0",
            Root, 2, "write tcp:HOST[:PORT]"),
        ("relay controller {c1} --listen pquic:{udp}:127.0.0.1 --openflow tcp:127.0.0.1",
            Root, 4, "in use; stop what listens there"),
        ("relay controller {c1} --listen pquic:0:192.0.2.1 --openflow tcp:127.0.0.1",
            Root, 4, "`ip address` shows those it has"),
        ("relay controller {c1} --listen pquic:0:127.0.0.1 --openflow tcp:127.0.0.1 --ovsdb \
         ptcp:{tcp}:127.0.0.1",
            Root, 4, "in use; stop what listens there"),
        ("relay controller {c1} --listen pquic:0:127.0.0.1 --openflow tcp:127.0.0.1 --ovsdb \
         punix:s --record missing/r",
            Root, 5, "check the path"),
        ("relay controller {c1} --listen pquic:0:127.0.0.1 --openflow tcp:127.0.0.1 --status \
         unix:notes.txt",
            Root, 4, "in use"),
        ("relay controller {c1} --listen pquic:0:127.0.0.1 --openflow tcp:127.0.0.1",
            Nobody, 5, "c1-privkey.pem: Permission denied; run as"),
        ("relay controller -p notes.txt -c c1-cert.pem -C pki/switchca/cacert.pem --listen \
         pquic:0 --openflow tcp:127.0.0.1",
            Root, 4, "no private key in it (PEM"),
    ]);
}

#[test]
#[rustfmt::skip]
fn bench_controller_says_what_is_wrong() {
    check(&[
        ("bench controller", Root, 2, "give TARGET, such as tcp:127.0.0.1:6653, or --start CMD"),
        ("bench controller udp:1.2.3.4", Root, 2, "'udp:' is no connection method"),
        ("bench controller ptcp:0", Root, 2, "the switches dial; write such as tcp:"),
        ("bench controller tcp:127.0.0.1 -s 0", Root, 2, "--switches 0: write 1 to 10000"),
        ("bench controller tcp:127.0.0.1 -s 10001", Root, 2, "--switches 10001: write 1 to 10000"),
        ("bench controller tcp:127.0.0.1 --rate 5", Root, 2, "--rate is for --mode open"),
        ("bench controller tcp:127.0.0.1 --mode open", Root, 2, "--mode open needs --rate"),
        ("bench controller tcp:127.0.0.1 --mode open --rate 0", Root, 2, "above 0"),
        ("bench controller tcp:127.0.0.1 --window 0", Root, 2, "--window 0: write 1 to 1000"),
        ("bench controller tcp:127.0.0.1 --window 11 -M 10", Root, 2, "--window 11: write 1 to 10"),
        ("bench controller tcp:127.0.0.1 --mode latency --window 2",
            Root, 2, "latency mode has a window of 1"),
        ("bench controller tcp:127.0.0.1 -M 0", Root, 2, "--macs 0"),
        ("bench controller tcp:127.0.0.1 --ports 1", Root, 2, "--ports 1: write 2 to"),
        ("bench controller tcp:127.0.0.1 --workload mesh", Root, 2, "possible values: macs"),
        ("bench controller tcp:127.0.0.1 --workload hosts --ports 2",
            Root, 2, "--ports 3 and --macs 2 or more"),
        ("bench controller tcp:127.0.0.1 --workload storm",
            Root, 2, "give --mode latency, or --mode open and --rate"),
        ("bench controller tcp:127.0.0.1 --workload storm --mode latency -s 1",
            Root, 2, "--switches 2 or more"),
        ("bench controller tcp:127.0.0.1 --workload storm --mode latency --storm-rate 0",
            Root, 2, "--storm-rate 0"),
        ("bench controller tcp:127.0.0.1 --storm-rate 5",
            Root, 2, "--storm-rate is for --workload storm"),
        ("bench controller tcp:127.0.0.1 --workload paths -s 1", Root, 2, "--switches 2 or more"),
        ("bench controller tcp:127.0.0.1 --workload paths --answer flow-mod",
            Root, 2, "--answer any or packet-out"),
        ("bench controller tcp:127.0.0.1 --workload paths --buffered", Root, 2, "no --buffered"),
        ("bench controller tcp:127.0.0.1 --workload arp-ip --answer both",
            Root, 2, "--answer any or packet-out"),
        ("bench controller tcp:127.0.0.1 --workload arp-ip --ports 2",
            Root, 2, "--ports 3 and --macs 2 or more"),
        ("bench controller tcp:127.0.0.1 --workload arp-ip --announce arp",
            Root, 2, "there is none"),
        ("bench controller tcp:127.0.0.1 --workload arp-ip -M 10 --window 6",
            Root, 2, "--window 6: write 1 to 5"),
        ("bench controller tcp:127.0.0.1 --workload churn --mode latency",
            Root, 2, "it has no --mode"),
        ("bench controller tcp:127.0.0.1:1 --workload churn -w 0 -d 0.2",
            Root, 4, "nobody listens there"),
        ("bench controller tcp:127.0.0.1 --rounds 0", Root, 2, "--rounds 0"),
        ("bench controller tcp:127.0.0.1 --threads 0", Root, 2, "--threads 0"),
        ("bench controller tcp:127.0.0.1 -d 0", Root, 2, "--duration: 0 s"),
        ("bench controller tcp:127.0.0.1 --timeout 0", Root, 2, "--timeout: 0 s"),
        ("bench controller tcp:127.0.0.1 --of 1.2", Root, 2, "possible values: 1.0, 1.3, 1.4"),
        ("bench controller tcp:127.0.0.1 --answer all", Root, 2, "possible values: any"),
        ("bench controller tcp:127.0.0.1 --name a --name b", Root, 2, "2 times for 1 controllers"),
        ("bench controller --start true", Root, 2, "write {port} where the port goes"),
        ("bench controller tcp:127.0.0.1 --compare true",
            Root, 2, "write {port} where the port goes"),
        ("bench controller --start {port}true", Root, 4, "ended before it listened"),
        ("bench controller ssl:127.0.0.1", Root, 2, "give -p KEY -c CERT -C CA too"),
        ("bench controller tcp:127.0.0.1 -p c1-privkey.pem", Root, 2, "-c CERT -C CA is missing"),
        ("bench controller tcp:127.0.0.1:1", Root, 4, "nobody listens there"),
        ("bench controller tcp:127.0.0.1:{tcp} -s 1 --ready-max 0.2",
            Root, 4, "asks for no features; is it an OpenFlow"),
        ("bench controller tcp:127.0.0.1 -o notes.txt", Root, 5, "notes.txt"),
    ]);
}

#[test]
#[rustfmt::skip]
fn bench_cbench_says_what_is_wrong() {
    check(&[
        ("bench cbench -s 0", Root, 2, "-s 0: write 1 to 10000"),
        ("bench cbench -M 0", Root, 2, "-M 0: write 1 to"),
        ("bench cbench -m 1", Root, 2, "-m 1: write 10 to"),
        ("bench cbench -l 1 -w 1", Root, 2, "-w 1 and -C 0 leave nothing of -l 1 loops"),
        ("bench cbench -c 127.0.0.1 -p 1", Root, 4, "nobody listens there"),
        ("bench cbench -c 127.0.0.1 -p 0", Root, 2, "port '0'"),
    ]);
}

#[test]
#[rustfmt::skip]
fn bench_null_says_what_is_wrong() {
    check(&[
        ("bench null", Root, 2, "<METHOD>"),
        ("bench null pssl:0", Root, 2, "it listens on TCP only"),
        ("bench null tcp:127.0.0.1", Root, 2, "write ptcp:[PORT][:HOST]"),
        ("bench null ptcp:{tcp}:127.0.0.1", Root, 4, "in use; stop what listens there"),
        ("bench null ptcp:0 --threads 0", Root, 2, "--threads 0"),
        ("bench null ptcp:0 --delay-ms nan", Root, 2, "--delay-ms NaN: write 0 to"),
    ]);
}

#[test]
#[rustfmt::skip]
fn lab_says_what_is_wrong() {
    check(&[
        ("lab up triangle,3", Root, 2, "unknown topology 'triangle,3'; write single,N | linear,N"),
        ("lab up ring,2", Root, 2, "ring"),
        ("lab up linear,100000", Root, 2, "switches"),
        ("lab up missing.toml", Root, 5, "missing.toml: No such file or directory; check"),
        ("lab up broken.toml", Root, 2, "broken.toml: "),
        ("lab up ring,4 --controller ssl:1.2.3.4", Root, 2, "write auster, none or tcp:HOST:PORT"),
        ("lab up ring,4 --controller none", Root, 2, "give another --controller"),
        ("lab up ring,4 --links delay=5", Root, 2, "write such as delay_ms=5,loss_percent=1"),
        ("lab up ring,4 --links loss_percent=101", Root, 2, "0 to 100"),
        ("lab up ring,4", Nobody, 3, "needs root: run it with sudo"),
        ("lab up ring,4",
            RootWithoutTools, 3, "not found: apt-get install iproute2 openvswitch-switch"),
        ("lab check missing.toml", Root, 5, "missing.toml: No such file or directory; check"),
        ("lab check broken.toml", Root, 2, "broken.toml: line 1: "),
        ("lab check overhead.toml",
            Root, 2, "paper.message_bytes is 1 to 65535; wire.methods: 'sctp' is no method"),
        ("lab check list.toml",
            Root, 2, "list.toml:3:11: minutes is \"ten\"; it must be a number from 0.01 to 600"),
        ("lab run missing.toml", Root, 5, "missing.toml: No such file or directory; check"),
        ("lab run broken.toml", Root, 2, "broken.toml: "),
        ("lab run lab.toml --controller ssl:1.2.3.4",
            Root, 2, "write auster, none or tcp:HOST:PORT"),
        ("lab run lab.toml --out notes.txt", Root, 5, "notes.txt: it is there already; remove"),
        ("lab run lab.toml --quick",
            Root, 2, "the experiment has no quick part; leave --quick out, or write [quick]"),
        ("lab run lab.toml --force", Root, 2, "--out <DIR>"),
        ("lab run lab.toml --controller tcp:127.0.0.1:1",
            Root, 3, "tcp:127.0.0.1:1: nobody answers there (Connection refused"),
        ("sim run lab.toml",
            Root, 2, "this experiment is not simulated; run it by auster lab run lab.toml"),
        ("lab run own.toml --controller none", Root, 2, "has a [controller] of its own"),
        ("lab run channel.toml --only sctp", Root, 2, "--only: no cell is like that; cells are"),
        ("lab run channel.toml --controller none", Root, 2, "the scenario has no network"),
        ("lab run channel.toml", RootWithoutTools, 3, "ip not found: apt-get install iproute2"),
        ("lab run table.toml", Root, 2, "table.toml: line 3: tables: unknown key"),
        ("lab run lab.toml", Nobody, 3, "needs root: run it with sudo"),
        ("lab run lab.toml",
            RootWithoutTools, 3, "not found: apt-get install iproute2 openvswitch-switch"),
        ("lab down", Root, 2, "<NAME|--all>"),
        ("lab down nowhere", Root, 2, "see auster lab list"),
        ("lab down nowhere", Nobody, 3, "needs root: run it with sudo"),
        ("lab down nowhere", RootWithoutTools, 3, "not found: apt-get install iproute2"),
        ("lab exec nowhere h1", Root, 2, "<COMMAND>"),
        ("lab exec nowhere h1 -- true", Root, 2, "see auster lab list"),
        ("lab exec nowhere h1 -- true", Nobody, 3, "needs root: run it with sudo"),
        ("lab exec nowhere h1 -- true", RootWithoutTools, 3, "not found: apt-get install iproute2"),
    ]);
}

#[test]
#[rustfmt::skip]
fn bench_switch_says_what_is_wrong() {
    check(&[
        ("bench switch --runs 0", Root, 2, "0 is not in 1..=1000000"),
        ("bench switch --only speed", Root, 2, "possible values: packet-in, flow-mod"),
        ("bench switch --transports pigeon", Root, 2, "possible values: tcp, tls, quic"),
        ("bench switch --spacing-us 0", Root, 2, "0 is not in 10..=10000"),
        ("bench switch udp:1.2.3.4", Root, 2, "'udp:' is no connection method"),
        ("bench switch ptcp:0 --ingress lo --egress x", Root, 2, "write --listen ptcp:0"),
        ("bench switch --listen tcp:1.2.3.4 --ingress lo --egress x",
            Root, 2, "put a 'p' before it to listen"),
        ("bench switch tcp:1.2.3.4", Root, 2, "give --ingress IF and --egress IF"),
        ("bench switch tcp:1.2.3.4 --ingress lo", Root, 2, "give --ingress IF and --egress IF"),
        ("bench switch --ingress lo --egress x", Root, 2, "give TARGET or --listen METHOD"),
        ("bench switch tcp:1.2.3.4 --ingress lo --egress lo",
            Root, 2, "the same interface; give two"),
        ("bench switch --listen ptcp:0 --ingress nosuch0 --egress lo",
            Root, 2, "no interface nosuch0; `ip link` shows"),
        ("bench switch --listen ptcp:0 --ingress lo --egress nosuch0",
            Root, 2, "no interface nosuch0; `ip link` shows"),
        ("bench switch --listen ptcp:0 --ingress lo --egress x",
            Nobody, 3, "raw packets and need root: sudo"),
        ("bench switch --listen pssl:0 --ingress lo --egress x",
            Root, 2, "give -p KEY -c CERT -C CA"),
        ("bench switch ssl:h -p missing -c missing -C missing --ingress lo --egress x",
            Root, 5, "missing: No such file"),
        ("bench switch -o notes.txt", Root, 5, "notes.txt: "),
        ("bench switch", Nobody, 3, "needs root: run it with sudo"),
        ("bench switch",
            RootWithoutTools, 3, "not found: apt-get install iproute2 openvswitch-switch"),
    ]);
}

#[test]
fn every_scenario_of_the_project_is_right() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files
        .filter(|f| f.extension() == Some("toml".as_ref()))
        .collect();
    let mut words = vec!["lab", "check"];
    words.extend(files.iter().map(|file| file.to_str().unwrap()));
    let said = common::lab::auster(&words);
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said.matches(": ok\n").count(), files.len(), "{said}");
    assert!(files.len() > 40, "{said}");
}

#[test]
#[rustfmt::skip]
fn model_says_what_is_wrong() {
    check(&[
        ("model none.toml", Root, 5, "none.toml: "),
        ("model broken.toml", Root, 2, "broken.toml: line 1: "),
        ("model table.toml", Root, 2, "table.toml: "),
        ("model overhead.toml",
            Root, 2, "paper.message_bytes is 1 to 65535; wire.methods: 'sctp' is no method"),
        ("model --against none.json", Root, 5, "none.json: "),
        ("model --against notes.txt", Root, 2, "no result.json of a channel: "),
        ("model --paper -o notes.txt", Root, 5, "notes.txt: "),
        ("sim run overhead.toml",
            Root, 2, "overhead.toml: a file of auster model; run auster model overhead.toml"),
    ]);
}

#[test]
#[rustfmt::skip]
fn papers_says_what_is_wrong() {
    check(&[
        ("papers report .", Root, 5, "scenarios/papers.toml: it is not here; run this in auster's"),
        ("papers run --plan", Root, 5, "papers.toml: it is not here; run this in auster's source"),
        ("papers report", Root, 2, "DIR"),
        ("papers report . --list net.toml",
            Root, 2, "net.toml:1:1: 'mode' is not known here; known: title"),
        ("papers run --list net.toml", Root, 2, "net.toml:1:1: there is no [[paper]]"),
        ("papers run --quick --long", Root, 2, "cannot be used with"),
        ("papers run --minutes 0", Root, 2, "0 is not in 1..=10000"),
    ]);
}

#[test]
#[rustfmt::skip]
fn pki_says_what_is_wrong() {
    check(&[
        ("pki init", Root, 5, "it is there; --force overwrites it"),
        ("pki init --dir notes.txt", Root, 5, "a part of the path is no directory; check"),
        ("pki init --dir new", Nobody, 5, "Permission denied; run as a user who may"),
        ("pki init --dir new --key rsa", Root, 2, "take p256, or ovs-pki"),
        ("pki init --dir new --days 0", Root, 2, "1..=36500"),
        ("pki controller c1", Root, 5, "it is there; --force overwrites it"),
        ("pki controller ../c2", Root, 2, "use letters, digits"),
        ("pki controller c2 --host a/b", Root, 2, "neither a DNS name nor an IP address"),
        ("pki controller c2 --dir missing", Root, 5, "first run: auster pki init --dir missing"),
        ("pki controller c2 --dir garbage-pki", Root, 4, "garbage-pki: "),
        ("pki controller c2", Nobody, 5, "cakey.pem: Permission denied; run as a user who may"),
        ("pki controller c2 --out notes.txt", Root, 5, "check the path"),
        ("pki switch s1", Root, 5, "it is there; --force overwrites it"),
        ("pki switch s2 --dpid s2", Root, 2, "write 16 hex digits"),
        ("pki switch s2 --dir missing", Root, 5, "first run: auster pki init --dir missing"),
        ("pki show missing.pem", Root, 5, "missing.pem: No such file or directory; check"),
        ("pki show c1-privkey.pem", Nobody, 5, "Permission denied; run as a user who may"),
        ("pki show notes.txt", Root, 4, "no certificate in it (-----BEGIN CERTIFICATE-----)"),
        ("pki show folder", Root, 5, "folder: it is a directory; name a file"),
    ]);
}

#[test]
#[rustfmt::skip]
fn ofp_says_what_is_wrong() {
    check(&[
        ("ofp print", Root, 2, "<HEX>"),
        ("ofp print hello", Root, 2, "write messages such as 0414000800000001"),
        ("ofp print 041400080000001", Root, 2, "an even number makes whole bytes"),
        ("ofp print 0414", Root, 2, "a header has 8"),
        ("ofp print 0414000900000001", Root, 2, "its header announces 9 bytes, 8 are there"),
        ("ofp print 040e000800000001", Root, 1, "did not decode: see ***decode error*** above"),
        ("ofp pcap missing.pcap", Root, 5, "missing.pcap: No such file or directory; check"),
        ("ofp pcap folder", Root, 5, "folder: it is a directory; name a file"),
        ("ofp pcap notes.txt", Root, 5, "convert it with `editcap -F pcap IN OUT`"),
        ("ofp pcap empty.pcap", Root, 1, "name another with --port"),
        ("ofp pcap empty.pcap --port 70000", Root, 2, "70000"),
        ("ofp pcap c1-privkey.pem", Nobody, 5, "Permission denied; run as a user who may"),
    ]);
}

#[test]
#[rustfmt::skip]
fn completions_man_and_what_is_no_command_say_what_is_wrong() {
    check(&[
        ("completions", Root, 2, "<SHELL>"),
        ("completions tcsh", Root, 2, "possible values: bash, elvish, fish"),
        ("man", Root, 2, "<DIR>"),
        ("man notes.txt", Root, 5, "notes.txt: it is there already; remove"),
        ("man notes.txt/man1", Root, 5, "no directory; check the path"),
        ("man pages", Nobody, 5, "pages: Permission denied; run as a user who may"),
        ("controller", Root, 2, "unrecognized subcommand 'controller'"),
        ("bench nothing", Root, 2, "unrecognized subcommand 'nothing'"),
        ("run --port 6653", Root, 2, "unexpected argument '--port'"),
    ]);
}

/// Longer than any command takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Tries all cases, and fails with a list of every case that goes wrong.
fn check(cases: &[Case]) {
    let place = Place::new();
    let untouched = listing(place.dir.path());
    let mut problems = Vec::new();
    for (words, user, code, says) in cases {
        let mut ended = place.run(words, *user);
        ended.compare(*code, says);
        if listing(place.dir.path()) != untouched {
            ended.problems.push("files were left or changed".to_owned());
        }
        if !ended.problems.is_empty() {
            problems.push(format!("auster {words} ({user:?}): {ended:#?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// A directory with all files that the cases name, two ports in use, and the program.
struct Place {
    dir: TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    /// A directory with the program that the user `nobody` can run.
    program: TempDir,
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    said: String,
    problems: Vec<String>,
}

impl Place {
    fn new() -> Place {
        let [dir, program] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for open in [&dir, &program] {
            fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        common::lab::copy_programs(program.path());
        let place = Place {
            dir,
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            program,
        };
        for words in ["pki init", "pki controller c1", "pki switch s1"] {
            let made = place.run(words, Root);
            assert_eq!(made.code, Some(0), "{made:?}");
        }
        let scenario = "title = \"a line\"\n[topology]\ngraph = \"linear,2\"\n\
                        [ready]\nwithin = \"9s\"\nlater = 1\n";
        let no_packets = [
            0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
        ];
        place.write("notes.txt", b"nothing that any command reads\n");
        place.write("net.toml", b"mode = \"fast\"\nspeed = 1\n");
        place.write("broken.toml", b"title = [\n");
        let cables = "links = [\"1:2\", \"1:1 2:1\"]\nhosts = [\"02:00:00:00:00:01 2:1\"]\n";
        place.write("cables.toml", cables.as_bytes());
        place.write("lab.toml", scenario.as_bytes());
        place.write(
            "own.toml",
            b"title = 't'\n[topology]\ngraph = 'single,2'\n[controller]\nprogram = 'none'\n",
        );
        place.write(
            "table.toml",
            b"title = 't'\ntopology.graph = 'single,2'\n[tables]\nseconds = 60\n",
        );
        let channel = include_str!("../../../../scenarios/channel.toml");
        place.write("channel.toml", channel.as_bytes());
        let overhead = include_str!("../../../../scenarios/overhead.toml")
            .replace("message_bytes = 500", "message_bytes = 0")
            .replace("\"tcp-nagle\"", "\"sctp\"");
        place.write(
            "list.toml",
            b"[[measurement]]\nname = \"a\"\nminutes = \"ten\"\n",
        );
        place.write("overhead.toml", overhead.as_bytes());
        place.write("empty.pcap", &no_packets);
        place.write("folder/file", b"");
        for file in ["cacert.pem", "private/cakey.pem"] {
            place.write(&format!("garbage-pki/controllerca/{file}"), b"no PEM\n");
        }
        place
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn run(&self, words: &str, user: As) -> Ended {
        let outputs = tempfile::tempdir().unwrap();
        let output = |name: &str| outputs.path().join(name);
        let read = |name: &str| fs::read_to_string(output(name)).unwrap_or_default();
        let mark = outputs.path().to_str().unwrap();
        let mut child = self
            .command(words, user, &output("left-in-run"))
            .env(MARK, mark)
            .stdin(Stdio::null())
            .stdout(File::create(output("stdout")).unwrap())
            .stderr(File::create(output("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut problems = Vec::new();
        let code = wait(&mut child);
        if code.is_none() {
            problems.push(format!("did not end within {PATIENCE:?}"));
        }
        let left = read("left-in-run");
        if !left.is_empty() {
            problems.push(format!("left in /run: {left}"));
        }
        let processes = marked_processes(mark);
        if !processes.is_empty() {
            problems.push(format!("left processes: {processes:?}"));
        }
        Ended {
            code,
            said: read("stderr"),
            problems,
        }
    }

    fn command(&self, words: &str, user: As, left: &Path) -> Command {
        const SCRIPT: &str = r#"
            mount -t tmpfs -o mode=755 tmpfs /run || exit 99
            left=$1; shift
            "$@"
            code=$?
            find /run -mindepth 1 > "$left"
            exit $code"#;
        let words = words
            .replace("{tcp}", &self.tcp.local_addr().unwrap().port().to_string())
            .replace("{udp}", &self.udp.local_addr().unwrap().port().to_string())
            .replace(
                "{c1}",
                "-p c1-privkey.pem -c c1-cert.pem -C pki/switchca/cacert.pem",
            )
            .replace(
                "{s1}",
                "-p s1-privkey.pem -c s1-cert.pem -C pki/controllerca/cacert.pem",
            );
        let before: &[&str] = match user {
            Root => &[],
            Nobody => &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ],
            RootWithoutTools => &["env", "PATH=/nowhere"],
        };
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                SCRIPT,
                "sh",
            ])
            .arg(left)
            .args(before)
            .arg(self.program.path().join("auster"))
            .args(words.split(' '))
            .env_remove("AUSTER_LOG")
            .current_dir(self.dir.path());
        command
    }
}

/// The variable in the environment of every process that a case starts.
const MARK: &str = "AUSTER_WRONG_INPUT_TEST";

impl Ended {
    fn compare(&mut self, code: i32, says: &str) {
        if self.code != Some(code) {
            self.problems.push(format!("the exit code is not {code}"));
        }
        if !self.said.contains(says) {
            self.problems.push(format!("it does not say '{says}'"));
        }
        // The command line parser has its own form of error, with usage and a hint.
        let is_usage = self.said.starts_with("error: ") && code == 2;
        let is_one_line = self.said.lines().count() == 1 && self.said.starts_with("auster: ");
        if !is_usage && !is_one_line {
            self.problems.push("it is not one line".to_owned());
        }
    }
}

/// Returns the exit code; `None`, and no process left, when the command does not end.
fn wait(child: &mut Child) -> Option<i32> {
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    for pid in fs::read_to_string(children).unwrap().split_whitespace() {
        let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// Command lines of the processes that have `mark` in their environment.
fn marked_processes(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let is_marked = |process: &PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    processes
        .filter(is_marked)
        .map(|process| fs::read_to_string(process.join("cmdline")).unwrap_or_default())
        .collect()
}

/// Every file below `dir` with its bytes.
fn listing(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(listing(&path));
        }
        // A directory or a socket has no bytes.
        let bytes = fs::read(&path).unwrap_or_default();
        files.insert(path, bytes);
    }
    files
}
