use super::*;

const CIRCUIT: &str = "cookie=0x61757374c21a11";
const POLICY: &str = "cookie=0x61757374c21a1000, table=1, priority=";

/// The entry at one place of a circuit; each place is at a switch of its own.
fn circuit(rank: u8) -> String {
    format!(
        "switch s{rank}\n {CIRCUIT}{rank:02x}, priority=3101,ip,in_port={rank},nw_src=10.0.0.1,\
         nw_dst=10.0.0.3 actions=set_queue:200,output:2\n"
    )
}

fn policy(priority: u16) -> String {
    format!("switch s1\n {POLICY}{priority} actions=drop\n")
}

fn path(leads: bool) -> String {
    let on = if leads { ",goto_table:1" } else { "" };
    format!("switch s1\ncookie=0x61757374c21a0200, priority=2000 actions=output:1{on}\n")
}

/// A database with one port that has these queues and this rate.
fn port(name: &str, queues: &[u32], rate: u32) -> String {
    let ours = json!([
        "map",
        [["auster", "run"], ["auster-kernel", format!("{name} made")]]
    ]);
    let id = |kind: &str, number: u32| json!(["uuid", format!("{name} {kind} {number}")]);
    let pairs: Vec<Value> = queues.iter().map(|n| json!([n, id("queue", *n)])).collect();
    let queues = queues
        .iter()
        .map(|n| json!([id("queue", *n), n, ["map", []], ours]));
    let queues: Vec<Value> = queues.collect();
    let table = |headings: &[&str], data: &[Value]| {
        json!({"headings": headings, "data": data}).to_string() + "\n"
    };
    let config = json!(["map", [["max-rate", rate.to_string()]]]);
    let row = json!([id("qos", 0), "linux-noop", ["map", pairs], config, ours]);
    table(&["name", "qos"], &[json!([name, id("qos", 0)])])
        + &table(
            &["_uuid", "type", "queues", "other_config", "external_ids"],
            &[row],
        )
        + &table(&["_uuid", "dscp", "other_config", "external_ids"], &queues)
}

/// A circuit over three switches, three policies at one of them, and a port of three queues.
fn lines() -> [String; 8] {
    [
        circuit(1),
        circuit(2),
        circuit(3),
        policy(0),
        policy(100),
        policy(102),
        path(true),
        port("p1", &[1, 2, 200], 100),
    ]
}

fn found(lines: &[String]) -> Found {
    Found::read(&lines.concat()).unwrap()
}

/// Judges only these lines of the whole, and further lines.
fn judged(kept: &[usize], more: &[String]) -> [Tally; 3] {
    let kept: Vec<String> = kept.iter().map(|n| lines()[*n].clone()).collect();
    found(&[&kept, more].concat()).judge(&found(&lines()))
}

#[test]
fn a_circuit_is_half_where_packets_are_let_in_and_not_on() {
    let judged = |kept: &[usize], more: &[String]| judged(kept, more)[1];
    assert_eq!(judged(&[0, 1, 2], &[]), [1, 0, 0, 0]);
    assert_eq!(judged(&[1, 2], &[]), [0, 1, 0, 0], "nobody is let in");
    assert_eq!(judged(&[], &[]), [0, 0, 1, 0]);
    assert_eq!(judged(&[0, 2], &[]), [0, 0, 0, 1]);
    let other = circuit(1).replace("10.0.0.3", "10.0.0.9");
    assert_eq!(
        judged(&[0, 1, 2], &[other]),
        [1, 0, 0, 1],
        "nobody has asked for it"
    );
}

#[test]
fn policies_are_half_where_a_path_leads_on_and_one_is_missing() {
    let judged = |kept: &[usize], leads| judged(kept, &[path(leads)])[2];
    assert_eq!(judged(&[3, 4, 5], true), [1, 0, 0, 0]);
    assert_eq!(judged(&[3, 4, 5], false), [1, 0, 0, 0]);
    assert_eq!(judged(&[3, 4], false), [0, 1, 0, 0], "no packet meets them");
    assert_eq!(judged(&[3, 4], true), [0, 0, 0, 1]);
    assert_eq!(judged(&[], true), [0, 0, 0, 1]);
    assert_eq!(judged(&[], false), [0, 0, 1, 0]);
}

#[test]
fn records_are_half_where_a_stated_queue_is_missing_or_other() {
    let judged = |ports: &[String]| judged(&[], ports)[0];
    assert_eq!(judged(&[port("p1", &[1, 2, 200], 100)]), [1, 0, 0, 0]);
    assert_eq!(
        judged(&[port("p1", &[1, 2], 100)]),
        [0, 1, 0, 0],
        "its circuit is to come"
    );
    for half in [
        port("p1", &[1, 200], 100),
        port("p1", &[1, 2, 3], 100),
        port("p1", &[1, 2, 200], 50),
    ] {
        assert_eq!(judged(&[half]), [0, 0, 0, 1]);
    }
    assert_eq!(judged(&[]), [0, 0, 1, 0]);
    let elsewhere = [port("p1", &[1, 2, 200], 100), port("p2", &[1], 100)];
    assert_eq!(judged(&elsewhere), [1, 0, 0, 1]);
}

#[test]
fn what_is_there_and_not_all_is_in_the_middle() {
    assert!(!is_in_the_middle(&judged(&[], &[])));
    assert!(!is_in_the_middle(&judged(&[0, 1, 2, 3, 4, 5, 6, 7], &[])));
    assert!(is_in_the_middle(&judged(&[7], &[])));
    assert!(is_in_the_middle(&judged(&[1], &[])));
    let (whole, nothing) = (found(&lines()), Found::default());
    assert!(whole.is_as(&whole) && !found(&lines()[1..]).is_as(&whole));
    assert!(!found(&lines()[..7]).is_as(&whole));
    assert!(found(&[path(false)]).is_as(&nothing) && !found(&[policy(0)]).is_as(&nothing));
    assert_eq!(whole.extent(), [1, 3, 3, 3, 0, 0]);
}

#[test]
fn meters_entries_and_rows_of_others_are_told_apart() {
    let text = "switch s1\nOFPST_FLOW reply (OF1.3) (xid=0x2):\n\
                cookie=0xbeef, priority=1 actions=drop\n table=3, priority=1 actions=drop\n\
                OFPST_METER_CONFIG reply (OF1.3) (xid=0x2):\nmeter=7 kbps bands=\n\
                type=drop rate=1\n\nmeter=24580 kbps bands=\ntype=drop rate=5000\nswitch s2\n";
    let foreign = port("p1", &[1], 9).replace("\"auster\",", "\"owner\",");
    let orphan = port("p2", &[1], 9).replace("[\"p2\",", "[\"p2\",[\"set\",[]],");
    let found = found(&[foreign, orphan, text.to_string()]);
    assert_eq!(
        found.meters["s1"].first().unwrap(),
        "meter=24580 kbps bands= type=drop rate=5000"
    );
    assert_eq!(found.foreign.len(), 5, "{:#?}", found.foreign);
    assert!(
        found
            .foreign
            .contains("s1: meter=7 kbps bands= type=drop rate=1")
    );
    assert_eq!(found.orphans, 1, "its port has no record");
    assert!(!found.ports["p1"].is_own);
    assert!(Found::read("{\"data\":").is_err());
}

#[test]
fn cookies_of_zero_are_not_printed() {
    assert_eq!(
        cookie("cookie=0x61757374c21a1103, x"),
        Cookie(0x6175_7374_c21a_1103)
    );
    assert_eq!(cookie("table=3, priority=1 actions=drop"), Cookie(0));
}
