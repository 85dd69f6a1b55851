//! Faults of a cluster of three members at one real Open vSwitch, with a real etcd: a member that
//! stands still, cuts between members, and an etcd that is slow, full, restored or compacted.
//!
//! The list is of what can happen to a cluster, and what tests it. `sim` has the same machines
//! under virtual time, and random faults by seed. An event is one of `scripts/cluster`, which
//! measures gaps and losses with traffic of 20 bridges; `scenarios/cluster.toml` has some of them.
//! `the_list_above_is_true` looks whether all of them are there.
//!
//! - a member is killed: `whoever_of_a_cluster_is_killed_one_member_serves_the_switch`,
//!   `a_killed_owner_is_replaced_at_once_and_its_order_renewed`; event `kill`;
//! - it stands still, and goes on: `a_member_that_stood_still_changes_nothing_when_it_goes_on`,
//!   `a_stopped_owner_is_replaced_and_yields_when_it_goes_on`; event `stop`;
//! - its application hangs: `a_stalled_application_loses_its_switches`;
//! - members are cut from each other, in 12 shapes:
//!   `cuts_between_members_leave_one_that_serves`,
//!   `every_cut_of_three_members_leaves_one_master_and_no_fight`; events `partition`,
//!   `partition-all`, `cut-1-2`, `cut-1-3`, `cut-2-3`, `cut-2`, `cut-3`, `cut-1-2-etcd`,
//!   `cut-1-3-etcd`, `cut-2-3-etcd`, `cut-2-etcd`, `cut-3-etcd`;
//! - halves, and one of two: `halves_do_not_fight`,
//!   `two_members_replace_each_other_and_do_not_fight_when_cut`;
//! - a member is not reached, and reaches the others:
//!   `a_member_that_nobody_can_dial_gets_no_switches`,
//!   `a_member_that_becomes_deaf_is_passed_over`;
//! - etcd's leader dies with a member: `calls_go_to_another_member_when_one_is_killed`; events
//!   `kill-etcd`, `stop-etcd`, `partition-etcd`;
//! - all of etcd is down: a take-over: `take_overs_go_on_while_the_store_is_away`; event
//!   `etcd-down`;
//! - the same: a link fails: `a_link_that_fails_while_etcd_is_down_has_another_way`;
//! - etcd is slow, or hangs: `a_slow_etcd_delays_no_take_over_and_loses_nothing`,
//!   `a_slow_store_delays_no_take_over_and_is_in_sync_when_it_is_quick_again`; events
//!   `etcd-slow`, `etcd-hang`;
//! - etcd's database is full: `a_full_etcd_is_reported_and_delays_no_take_over`,
//!   `take_overs_go_on_while_the_store_is_full`; event `full`;
//! - the disks of etcd are full: event `disk-full`;
//! - etcd is restored from a backup:
//!   `a_restored_etcd_takes_nothing_away_and_its_old_orders_are_not_obeyed`,
//!   `a_restored_store_raises_the_epoch_before_anything_is_written`; event `restore`;
//! - etcd is compacted while a member is cut off:
//!   `a_member_that_was_cut_from_etcd_while_it_was_compacted_knows_all`; event `compact`;
//! - a clock jumps by a day: `members_of_a_cluster_do_not_ask_for_the_time_of_day`;
//! - members are upgraded in turn: `the_next_schema_comes_when_all_members_read_it`,
//!   `all_are_restarted_in_turn_without_a_take_over`; events `leave`, `restart`;
//! - a member comes, or others take the places of all:
//!   `members_are_replaced_by_others_with_other_names`,
//!   `a_member_that_takes_over_knows_the_hosts`;
//! - all are started again: `all_members_that_are_started_again_take_over_what_the_switch_has`;
//!   event `all`;
//! - an operator moves the switches, or drains a member:
//!   `an_operator_moves_the_switches_and_drains_a_member`; events `move`, `drain`;
//! - two clusters have one etcd: `a_member_meets_another_cluster_and_other_schemas`;
//! - two controllers have one switch, and no cluster:
//!   `of_two_controllers_at_one_switch_one_serves_and_the_other_when_it_is_killed`;
//! - thousands of switches: `scripts/cluster-scale`.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::PATIENCE;
use super::cluster::{Members, Setup, ask as operate};
use super::etcd_server::Options;
use super::faults::ETCD;
use super::guard::broadcast;
use super::intent::{eventually, get, metric, put, service};
use super::ovs::Ovs;

/// Far more than a member waits for an answer of etcd.
const SLOW: Duration = Duration::from_secs(15);

fn with_faults() -> Members {
    Members::start_with(&Setup {
        has_faults: true,
        ..Setup::default()
    })
}

/// Waits until the members have an order and one of them serves. Returns that member.
fn settled(members: &Members) -> usize {
    let serves = broadcasts_come_once(members, 0);
    members.wait_for_order();
    serves
}

/// Adds a service and a policy that drops it. Then the switch has an entry for its port.
fn drop_service(members: &Members, at: usize, name: &str, port: u16) {
    let at = members.apis[at];
    let made = put(at, &format!("/v1/services/{name}"), service(port));
    assert_eq!(made.status, 201, "{made:?}");
    let policy = json!({"service": name, "drop": true});
    let made = put(at, &format!("/v1/policies/{name}"), policy);
    assert_eq!(made.status, 201, "{made:?}");
    eventually("the switch has it", || drops(&members.ovs, port));
}

fn drops(ovs: &Ovs, port: u16) -> bool {
    ovs.flows("br0").contains(&format!("tp_dst={port}"))
}

/// The documents of the API that a member has.
fn state(members: &Members, member: usize) -> Value {
    get(members.apis[member], "/v1/intent").body["documents"].clone()
}

/// The serving member, once one member serves and the others do not.
fn one_serves(members: &Members) -> usize {
    let give_up = Instant::now() + PATIENCE;
    let mut serving = members.serving();
    while serving.len() != 1 {
        if give_up < Instant::now() {
            let running = members.running.iter().flatten();
            let said: Vec<_> = running
                .map(|auster| auster.status()["cluster"].clone())
                .collect();
            panic!("{serving:?} serve by {:?}: {said:#?}", members.order());
        }
        std::thread::sleep(Duration::from_millis(50));
        serving = members.serving();
    }
    serving[0]
}

/// Counts broadcasts while one member serves: each arrives once. Returns that member. Unlike
/// [`Members::serve_once`] it does not wait for what Open vSwitch lists once in five seconds.
fn broadcasts_come_once(members: &Members, first: u16) -> usize {
    for first in (first..).step_by(100) {
        let serves = one_serves(members);
        let copies = members.ovs.copies(first);
        if members.serving() == [serves] {
            assert_eq!(copies, [1; 20]);
            return serves;
        }
    }
    unreachable!("numbers without end")
}

/// Broadcasts are on their way to a member when it is stopped, and others arrive when it continues.
/// The switch refuses its messages then, the member stands by, and the switch keeps all entries.
#[test]
fn a_member_that_stood_still_changes_nothing_when_it_goes_on() {
    let mut members = Members::start();
    let first = settled(&members);
    drop_service(&members, first, "voice", 5060);

    members.signal(first, Signal::SIGSTOP);
    let late = 20_000..20_010;
    for number in late.clone() {
        members.ovs.receive("p1", &broadcast(number));
    }
    eventually("another one serves", || {
        !members.serving().is_empty() && members.serving() != [first]
    });
    let heir = one_serves(&members);
    let name = members.names[heir];
    eventually("etcd has its order", || {
        members.order().first().is_some_and(|holder| holder == name)
    });
    assert_eq!(members.ovs.copies(21_000), [1; 20]);

    let before = members.ovs.flows("br0");
    members.signal(first, Signal::SIGCONT);
    eventually("it yields", || {
        metric(members.apis[first], "auster_cluster_yields_total") >= 1.0
    });
    assert_eq!(broadcasts_come_once(&members, 22_000), heir);
    for number in late {
        let copies = members.ovs.sent_by("p2", &broadcast(number));
        assert!(copies <= 1, "{number} came {copies} times");
    }
    assert_eq!(members.ovs.flows("br0"), before);
    // It has a place again, and takes over as before.
    assert_eq!(members.end(heir, Signal::SIGKILL), None);
    assert_ne!(broadcasts_come_once(&members, 23_000), heir);
    assert!(drops(&members.ovs, 5060));
}

/// Whichever members are cut from each other, one serves the switch, and nobody fights for it. The
/// member that is alone does not reach etcd either, as when its rack is cut.
#[test]
fn cuts_between_members_leave_one_that_serves() {
    let mut members = with_faults();
    broadcasts_come_once(&members, 0);
    let mut number = 1000;
    for shape in ["a pair", "one alone", "each alone"] {
        // Where the machine stands still for longer than members wait, they suspect each other too.
        let mut attempts = 1..=5;
        while !is_cut_without_a_fight(&members, shape, number) {
            number += 1000;
            assert!(attempts.next().is_some(), "{shape}: members fight");
        }
        number += 1000;
    }
    assert_eq!(members.end(one_serves(&members), Signal::SIGKILL), None);
    broadcasts_come_once(&members, number);
}

/// Cuts members, and mends the cut. Returns whether no member took over without a reason.
fn is_cut_without_a_fight(members: &Members, shape: &str, number: u16) -> bool {
    members.wait_for_order();
    let first = one_serves(members);
    let order = members.order();
    let place = |n: usize| order.iter().position(|name| name == members.names[n]);
    let others = (0..3).filter(|n| *n != first);
    let heir = others.min_by_key(|n| place(*n)).expect("two others");
    let [a, b, c] = [first, heir, 3 - first - heir].map(|n| members.names[n]);
    let takeovers = || -> f64 {
        let counts = members.apis.iter();
        counts
            .map(|api| metric(*api, "auster_cluster_takeovers_total"))
            .sum()
    };
    let before = takeovers();
    members.between.cut(a, b);
    if shape != "a pair" {
        members.between.cut(a, c);
        members.between.cut(a, ETCD);
    }
    if shape == "each alone" {
        members.between.cut(b, c);
    }
    if shape == "one alone" {
        eventually("only its heir serves", || members.serving() == [heir]);
    }
    let serves = one_serves(members);
    let mut is_steady = true;
    // The time of four suspicions.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1200) {
        is_steady &= members.serving() == [serves];
    }
    let copies = members.ovs.copies(number);
    let taken = takeovers() - before;
    members.between.mend();
    is_steady &= one_serves(members) == serves;
    is_steady &= broadcasts_come_once(members, number + 500) == serves;
    let is_right = match shape {
        "each alone" => serves == first && taken == 0.0,
        "a pair" => taken <= 1.0,
        _ => taken == 1.0,
    };
    let is_right = is_right && copies == [1; 20];
    is_steady && is_right
}

/// Each answer of etcd comes far too late: etcd has carried out the request, and nobody knows.
#[test]
fn a_slow_etcd_delays_no_take_over_and_loses_nothing() {
    let mut members = with_faults();
    let first = settled(&members);
    drop_service(&members, first, "voice", 5060);

    members.between.delay_etcd(SLOW);
    let asked = put(members.apis[first], "/v1/services/late", service(5061));
    assert_eq!(asked.status, 503, "{asked:?}");
    let since = Instant::now();
    assert_eq!(members.end(first, Signal::SIGKILL), None);
    let heir = one_serves(&members);
    let taken = since.elapsed();
    assert!(taken < SLOW, "it waits for etcd: {taken:?}");
    assert_eq!(members.ovs.copies(10_000), [1; 20]);
    assert!(drops(&members.ovs, 5060));
    members.restart(first);

    members.between.delay_etcd(Duration::ZERO);
    members.wait_for_order();
    assert_eq!(broadcasts_come_once(&members, 20_000), heir);
    assert_eq!(members.order()[0], members.names[heir]);
    // etcd had carried out the request.
    for member in 0..3 {
        eventually("each member has what was asked for late", || {
            get(members.apis[member], "/v1/services/late").status == 200
        });
    }
    drop_service(&members, first, "video", 5062);
}

/// The members go on, and one of them dies meanwhile. An operator frees etcd.
#[test]
fn a_full_etcd_is_reported_and_delays_no_take_over() {
    let mut members = Members::start_with(&Setup {
        etcd: Options {
            flags: vec!["--quota-backend-bytes=2097152".into()],
            ..Options::default()
        },
        ..Setup::default()
    });
    let first = settled(&members);
    let value = "x".repeat(100 << 10);
    let mut revision = 0;
    eventually("etcd is full", || {
        match members
            .etcd
            .asked(&["put", "/other/large", &value, "-w=json"])
        {
            Ok(answer) => {
                let answer: Value = serde_json::from_str(&answer).unwrap();
                revision = answer["header"]["revision"].as_u64().unwrap();
                false
            }
            Err(problem) => problem.contains("exceeded") || panic!("{problem}"),
        }
    });
    // Nobody has written since.
    for auster in members.running.iter().flatten() {
        auster.line("cluster: etcd's database is full");
    }
    let full = put(members.apis[first], "/v1/services/late", service(5061));
    assert_eq!(full.status, 507, "{full:?}");
    assert_eq!(members.end(first, Signal::SIGKILL), None);
    let heir = broadcasts_come_once(&members, 10_000);
    assert_eq!(
        members.order()[0],
        members.names[first],
        "it cannot be written"
    );

    members.etcd.ctl(&["compact", &revision.to_string()]);
    members.etcd.ctl(&["defrag"]);
    members.etcd.ctl(&["alarm", "disarm"]);
    eventually("etcd has the order in use", || {
        members.order()[0] == members.names[heir]
    });
    let auster = members.running[heir].as_ref().expect("it runs");
    auster.line("cluster: etcd's database has room again");
    drop_service(&members, heir, "late", 5061);
    members.restart(first);
    members.wait_for_order();
    assert_eq!(broadcasts_come_once(&members, 20_000), heir);
}

/// A backup, then changes of the order and of what the API was asked for, then the backup again.
#[test]
fn a_restored_etcd_takes_nothing_away_and_its_old_orders_are_not_obeyed() {
    let mut members = Members::start();
    let first = settled(&members);
    drop_service(&members, first, "voice", 5060);
    let backup = members.file(0).with_extension("backup");
    let file = backup.display().to_string();
    members.etcd.ctl(&["snapshot", "save", &file]);

    drop_service(&members, first, "video", 5061);
    let config = members.file_of(0);
    let second = (first + 1) % 3;
    for to in [second, first, second] {
        let (code, said) = operate(&config, &["move", members.names[to]]);
        assert_eq!(code, 0, "{said}");
    }
    for n in 0..20 {
        members.etcd.ctl(&["put", "/other/key", &n.to_string()]);
    }
    let mark = members
        .file(second)
        .with_file_name(format!("state/cluster-{}.json", members.names[second]));
    let noted = || -> Value {
        serde_json::from_slice(&std::fs::read(&mark).unwrap_or_default()).unwrap_or_default()
    };
    let of_etcd = |members: &Members| {
        let key = ["get", "/auster/v1/own/0", "-w=json"];
        let answer: Value = serde_json::from_str(&members.etcd.ctl(&key)).unwrap();
        answer["kvs"][0]["mod_revision"].as_u64().unwrap()
    };
    let last = of_etcd(&members);
    eventually("the member has noted the last order", || {
        noted()["revision"].as_u64() >= Some(last)
    });

    members.etcd.restore(0, &backup);
    assert!(of_etcd(&members) < last, "it has an earlier order");
    eventually("the epoch is raised", || {
        let key = ["get", "/auster/v1/epoch", "--print-value-only"];
        !members.etcd.ctl(&key).trim().is_empty()
    });
    let serves = broadcasts_come_once(&members, 10_000);
    assert!(
        drops(&members.ovs, 5060) && drops(&members.ovs, 5061),
        "{}",
        members.ovs.flows("br0")
    );
    for api in &members.apis {
        eventually("each member keeps what etcd has lost", || {
            metric(*api, "auster_intent_missing") == 2.0
        });
    }
    let auster = members.running[serves].as_ref().expect("it runs");
    auster.line("intent: ");

    members.wait_for_order();
    assert_eq!(members.end(serves, Signal::SIGKILL), None);
    assert_ne!(broadcasts_come_once(&members, 20_000), serves);
    assert!(drops(&members.ovs, 5061), "{}", members.ovs.flows("br0"));
}

/// A member reaches etcd again. etcd no longer has the changes that the member would have watched.
#[test]
fn a_member_that_was_cut_from_etcd_while_it_was_compacted_knows_all() {
    let members = with_faults();
    let first = settled(&members);
    drop_service(&members, first, "gone", 5059);
    let [second, third] = [1, 2].map(|n| (first + n) % 3);
    members.between.cut(members.names[third], ETCD);

    drop_service(&members, first, "voice", 5060);
    let gone =
        |path: &str| super::intent::ask(members.apis[first], "DELETE", path, "", None).status;
    assert_eq!(
        [gone("/v1/policies/gone"), gone("/v1/services/gone")],
        [204; 2]
    );
    let (code, said) = operate(&members.file_of(first), &["move", members.names[second]]);
    assert_eq!(code, 0, "{said}");
    let answer = members.etcd.ctl(&["put", "/other/last", "text", "-w=json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let revision = answer["header"]["revision"].to_string();
    members.etcd.ctl(&["compact", &revision]);
    assert_eq!(broadcasts_come_once(&members, 10_000), second);

    members.between.mend();
    eventually("all have the same", || {
        let states = [0, 1, 2].map(|n| state(&members, n));
        states[0].as_array().is_some_and(|all| all.len() == 2)
            && states.iter().all(|one| *one == states[0])
    });
    eventually("all know who serves", || {
        let running = members.running.iter().flatten();
        let mut served = running.map(|auster| auster.status()["cluster"]["served_by"].clone());
        served.all(|name| name == members.names[second])
    });
    members.wait_for_order();
    let (code, said) = operate(&members.file_of(first), &["move", members.names[third]]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(broadcasts_come_once(&members, 20_000), third);
    assert!(drops(&members.ovs, 5060) && !drops(&members.ovs, 5059));
}

/// A power failure of all machines but the switch's.
#[test]
fn all_members_that_are_started_again_take_over_what_the_switch_has() {
    let mut members = Members::start();
    let first = settled(&members);
    drop_service(&members, first, "voice", 5060);
    let age = |members: &Members| {
        let flows = members.ovs.flows_with_age("br0");
        let entry = flows.lines().find(|line| line.contains("tp_dst=5060"));
        let age = entry.and_then(|entry| entry.split("duration=").nth(1)?.split('s').next());
        age.and_then(|age| age.parse::<f64>().ok())
            .expect("an entry")
    };
    let since = Instant::now();
    for member in 0..3 {
        assert_eq!(members.end(member, Signal::SIGKILL), None);
    }
    members.etcd.kill(0);
    members.etcd.restart(0);
    for member in 0..3 {
        members.restart(member);
    }
    members.wait_for_order();
    broadcasts_come_once(&members, 10_000);
    eventually("they know it", || {
        let mut all = members.apis.iter();
        all.all(|api| get(*api, "/v1/policies/voice").status == 200)
    });
    assert!(
        age(&members) > since.elapsed().as_secs_f64(),
        "it was set anew"
    );
}

/// Other machines take the members' places, one after the other.
#[test]
fn members_are_replaced_by_others_with_other_names() {
    let mut members = Members::start();
    let first = settled(&members);
    drop_service(&members, first, "voice", 5060);
    for (member, name) in ["d", "e", "f"].into_iter().enumerate() {
        assert_eq!(members.end(member, Signal::SIGTERM), Some(0));
        // Two serve meanwhile.
        broadcasts_come_once(&members, 1000 + 3000 * u16::try_from(member).unwrap());
        members.names[member] = name;
        members.restart(member);
        members.wait_for_order();
    }
    let order = members.order();
    assert!(
        order
            .iter()
            .all(|name| ["d", "e", "f"].contains(&name.as_str())),
        "{order:?}"
    );
    let serves = broadcasts_come_once(&members, 20_000);
    assert_eq!(members.end(serves, Signal::SIGKILL), None);
    broadcasts_come_once(&members, 30_000);
    assert!(drops(&members.ovs, 5060));
    for (member, api) in members
        .apis
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != serves)
    {
        assert_eq!(get(*api, "/v1/policies/voice").status, 200, "{member}");
    }
}

/// Every name in this file's first comment is a test, an event of `scripts/cluster`, or a file.
#[test]
fn the_list_above_is_true() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |place: &Path| std::fs::read_to_string(place).unwrap();
    let script = read(&root.join("scripts/cluster"));
    let mut sources = String::new();
    for folder in [
        "crates/auster/tests",
        "crates/auster/tests/run",
        "crates/etcd/tests",
    ] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let place = entry.unwrap().path();
            if place.extension().is_some_and(|ending| ending == "rs") {
                sources.push_str(&read(&place));
            }
        }
    }
    for place in ["cluster.rs", "testsuite/upgrade.rs"] {
        sources.push_str(&read(&root.join("crates/sim/tests").join(place)));
    }
    let comment = include_str!("cluster_faults.rs").lines();
    let comment: Vec<&str> = comment.take_while(|line| line.starts_with("//!")).collect();
    let comment = comment.join("\n");
    let names: Vec<&str> = comment.split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let is_test = sources.contains(&format!("fn {name}("));
        let is_event = script.contains(&format!("\"{name}\": ")) || name.starts_with("cut-");
        let is_there = is_test || is_event || name == "sim" || root.join(name).exists();
        assert!(is_there, "nothing is named {name}");
    }
}
