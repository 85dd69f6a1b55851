//! Applications at a real Open vSwitch: the packets that they see and send, alone or beside
//! auster's forwarding.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::cluster::{Members, ask as operate};
use super::guard::broadcast;
use super::intent::{ask, eventually, get, put};
use super::ovs::Ovs;
use super::{Auster, PATIENCE};

const DPID: &str = "00000000000000c0";
/// The priority of the first tap.
const TAPPED: &str = "priority=63100";
/// The number of questions in the test with a reader that reads nothing.
const QUESTIONS: u8 = 100;

/// An ARP request of host 9 at `p1` for an address.
fn arp(number: u8) -> Vec<u8> {
    let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6];
    let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 9, 0, 9];
    let asked = [0, 0, 0, 0, 0, 0, 10, 9, 1, number];
    [&head[..], &arp, &asked, &[0; 18]].concat()
}

/// A reader of the packets of an owner.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(at: SocketAddr, owner: &str) -> Stream {
        Stream::with(at, owner, "")
    }

    fn with(at: SocketAddr, owner: &str, query: &str) -> Stream {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let path = format!("/v1/taps/{owner}/packets{query}");
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("200"), "{line}");
        // After the head, the first bytes of the stream are a chunk of one empty line.
        while line != "1\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "it ends");
        }
        Stream(reader)
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            match line.trim() {
                "0" => return None,
                document if document.starts_with('{') => {
                    return Some(serde_json::from_str(document).unwrap());
                }
                _ => {}
            }
        }
    }

    /// Expects this packet as the next event, and returns its number.
    fn expect(&mut self, frame: &[u8], tap: &str) -> u64 {
        let event = self.next().expect("a packet");
        assert_eq!(event["event"], "packet_in", "{event}");
        assert_eq!(event["tap"], tap);
        assert_eq!(event["at"], format!("{DPID}:1"));
        assert_eq!(event["bytes"], 60);
        assert_eq!(event["data"], BASE64.encode(frame));
        event["seq"].as_u64().unwrap()
    }
}

fn start(arguments: &[&str]) -> (Auster, SocketAddr, Ovs) {
    let all = [&["ptcp:0:127.0.0.1", "--api", "0"], arguments].concat();
    let auster = Auster::start(&all);
    let controller = format!("tcp:127.0.0.1:{}", auster.port());
    let api = auster.api();
    let ovs = Ovs::start();
    ovs.add_bridge("br0", DPID, "OpenFlow13", &controller);
    for port in ["p1", "p2"] {
        ovs.add_captured_port(port);
    }
    auster.line(&format!("switch {DPID} up"));
    (auster, api, ovs)
}

fn delete(at: SocketAddr, path: &str) -> u16 {
    ask(at, "DELETE", path, "", None).status
}

fn send(at: SocketAddr, body: Value) -> (u16, Value) {
    let answer = ask(at, "POST", "/v1/packets", "", Some(body));
    (answer.status, answer.body)
}

fn pointers(body: &Value) -> Vec<&str> {
    let errors = body["errors"].as_array().unwrap();
    errors
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect()
}

#[test]
fn a_diverted_packet_comes_in_the_stream_alone_and_an_application_sends_it_on() {
    let (auster, api, ovs) = start(&[]);
    assert_eq!(ovs.copies(0), [1; 20]);
    let wrong = json!({"match": "in_port=1", "at": ["x"], "copy": 1, "rate_max": 0});
    let refused = put(api, "/v1/taps/lesson/arp", wrong);
    assert_eq!(refused.status, 422, "{refused:?}");
    let expected = ["/match", "/at/0", "/copy", "/rate_max"];
    assert_eq!(pointers(&refused.body), expected);
    let packets = "/v1/taps/lesson/packets";
    assert_eq!(ask(api, "GET", packets, "", None).status, 404, "no taps");

    let asked = json!({"match": "arp", "copy": false, "at": [DPID]});
    assert_eq!(put(api, "/v1/taps/lesson/arp", asked.clone()).status, 201);
    eventually("an entry", || ovs.flows("br0").contains(TAPPED));
    let mut stream = Stream::open(api, "lesson");
    // This client reads nothing.
    let _idle = Stream::open(api, "lesson");
    let mut last = 0;
    for number in 0..QUESTIONS {
        ovs.receive("p1", &arp(number));
        let seq = stream.expect(&arp(number), "arp");
        assert!(number == 0 || seq == last + 1, "{seq} after {last}");
        last = seq;
    }
    // Other packets are forwarded, and when they have arrived no question is under way.
    assert_eq!(ovs.copies(100), [1; 20]);
    let sent = |number: u8| ovs.sent_by("p2", &arp(number));
    assert_eq!((0..QUESTIONS).map(sent).sum::<usize>(), 0);

    // The entry is set again, whoever has deleted it.
    let management = format!("unix:{}", ovs.path("br0.mgmt").display());
    ovs.run(
        "ovs-ofctl",
        &["-O", "OpenFlow13", "del-flows", &management, "arp"],
    );
    eventually("its entry again", || ovs.flows("br0").contains(TAPPED));

    let data = BASE64.encode(&arp(1));
    let at = |port: u32| format!("{DPID}:{port}");
    let wrong = json!([
        {"at": [at(2), at(77)], "data": data},
        {"at": ["5:1"], "data": data},
        {"switch": DPID, "in_port": 78, "actions": "output:79", "data": data},
    ]);
    let (status, body) = send(api, wrong);
    let expected = ["/0/at/1", "/1/at/0", "/2/actions", "/2/in_port"];
    assert_eq!(
        (status, pointers(&body)),
        (422, expected.to_vec()),
        "{body}"
    );
    let right = json!([
        {"at": [at(2)], "data": data},
        {"switch": DPID, "in_port": 1, "actions": "flood", "data": BASE64.encode(&arp(2))},
    ]);
    assert_eq!(send(api, right), (202, json!({"sent": 2})));
    eventually("they leave", || sent(1) == 1 && sent(2) == 1);
    assert_eq!(ovs.sent_by("p1", &arp(2)), 0, "it came in there");
    // Only the switch knows that it has no such group, and it reports that afterwards.
    let odd = json!({"switch": DPID, "in_port": 1, "actions": "group:5", "data": data});
    assert_eq!(send(api, odd), (202, json!({"sent": 1})));
    auster.line(&format!(
        "{DPID} refused to send a packet of an application: "
    ));

    let view = ask(api, "GET", "/v1/taps/lesson/arp", "", None).body;
    assert_eq!(view["packets"], QUESTIONS, "{view}");
    assert_eq!(
        (&view["switches"], &view["unable"]),
        (&json!(1), &json!([]))
    );
    assert_eq!(delete(api, "/v1/taps/lesson/arp"), 204);
    assert_eq!(delete(api, "/v1/taps/lesson/arp"), 404);
    eventually("no entry", || !ovs.flows("br0").contains(TAPPED));
    assert_eq!(stream.next(), None, "it ends with the last tap");
    eventually("they go their way again", || {
        ovs.receive("p1", &arp(200));
        sent(200) > 0
    });
}

#[test]
fn a_copied_packet_goes_its_way_besides() {
    let (_auster, api, ovs) = start(&[]);
    assert_eq!(ovs.copies(0), [1; 20]);
    let asked = json!({"match": "dl_type=0x88b5", "at": [format!("{DPID}:1")]});
    assert_eq!(put(api, "/v1/taps/watch/all", asked).status, 201);
    eventually("an entry", || ovs.flows("br0").contains("priority=63101"));
    let mut stream = Stream::open(api, "watch");
    assert_eq!(ovs.copies(100), [1; 20]);
    let numbers = |event: Value| {
        let data = BASE64.decode(event["data"].as_str().unwrap().as_bytes());
        let data = data.unwrap();
        u16::from_be_bytes([data[26], data[27]])
    };
    let mut before = 0;
    // From the packets that wait for their port on, each comes once, in order.
    while before < 120 {
        let number = numbers(stream.next().expect("a packet"));
        assert!(
            before == 0 || number == before + 1,
            "{number} after {before}"
        );
        assert_eq!(ovs.sent_by("p1", &broadcast(number)), 0);
        before = number;
    }
}

/// Two bridges with a cable. Their only entries are for LLDP, which finds the cable.
#[test]
fn with_forwarding_off_links_are_found_and_an_application_forwards() {
    let (auster, api, ovs) = start(&["--forwarding", "off"]);
    let controller = ovs.asked(&["get-controller", "br0"]);
    ovs.add_bridge("br1", "00000000000000c1", "OpenFlow13", controller.trim());
    let cable = ovs.path("cable").display().to_string();
    for (bridge, port, way) in [("br0", "c0", "pstream=punix"), ("br1", "c1", "stream=unix")] {
        let options = format!("options:{way}:{cable}");
        let make = ["--", "set", "interface", port, "type=dummy", &options];
        ovs.vsctl(&[&["add-port", bridge, port], &make[..]].concat());
    }
    eventually("both directions of the link", || {
        let links = ask(api, "GET", "/v1/links", "", None).body;
        links["links"]
            .as_array()
            .is_some_and(|links| links.len() == 1)
    });
    for bridge in ["br0", "br1"] {
        let flows = ovs.flows(bridge);
        let entries: Vec<&str> = flows
            .lines()
            .filter(|line| line.contains("actions="))
            .collect();
        assert!(
            matches!(&entries[..], [one] if one.contains("dl_type=0x88cc")),
            "{flows}"
        );
    }
    ovs.receive("p1", &arp(1));
    let service = put(
        api,
        "/v1/services/voice",
        json!({"proto": "udp", "dst_port": 5060}),
    );
    assert_eq!(service.status, 409, "{service:?}");

    let asked = json!({"match": "arp", "copy": false, "at": [DPID]});
    assert_eq!(put(api, "/v1/taps/lesson/arp", asked).status, 201);
    eventually("an entry", || ovs.flows("br0").contains(TAPPED));
    let mut stream = Stream::open(api, "lesson");
    ovs.receive("p1", &arp(2));
    stream.expect(&arp(2), "arp");
    let data = BASE64.encode(&arp(2));
    let flood = json!({"switch": DPID, "in_port": 1, "actions": "flood", "data": data});
    assert_eq!(send(api, flood).0, 202);
    eventually("it leaves", || ovs.sent_by("p2", &arp(2)) == 1);
    assert_eq!(ovs.sent_by("p2", &arp(1)), 0, "nobody has forwarded that");
    // A port is held before it counts as a host's.
    eventually("the sender is learned", || {
        ovs.receive("p1", &arp(2));
        let hosts = ask(api, "GET", "/v1/hosts", "", None).body;
        hosts["hosts"][0]["mac"] == "02:00:00:00:00:09"
    });
    drop(auster);
}

/// The stream names the member that has the packets from then on, and a tap set there has them.
#[test]
fn taps_of_a_member_end_when_another_one_serves() {
    let members = Members::start();
    let first = members.serve_once(0);
    members.wait_for_order();
    let [api, other] = [first, (first + 1) % 3].map(|n| members.apis[n]);
    let next = members.names[(first + 1) % 3];
    let asked = json!({"match": "arp", "copy": false, "at": ["00000000000000c0"]});
    assert_eq!(put(api, "/v1/taps/lesson/arp", asked.clone()).status, 201);
    assert_eq!(put(other, "/v1/taps/lesson/arp", asked.clone()).status, 503);
    eventually("an entry", || members.ovs.flows("br0").contains(TAPPED));
    let mut stream = Stream::open(api, "lesson");
    members.ovs.receive("p1", &arp(1));
    stream.expect(&arp(1), "arp");

    let (code, said) = operate(&members.file_of(first), &["move", next]);
    assert_eq!(code, 0, "{said}");
    let moved = stream.next().expect("a last event");
    assert_eq!(
        (&moved["event"], &moved["served_by"]),
        (&json!("moved"), &json!(next))
    );
    assert_eq!(stream.next(), None);
    assert_eq!(get(api, "/v1/taps").body, json!({"taps": []}));
    eventually("the entry goes", || {
        !members.ovs.flows("br0").contains(TAPPED)
    });
    assert_eq!(put(other, "/v1/taps/lesson/arp", asked).status, 201);
    let mut stream = Stream::open(other, "lesson");
    eventually("an entry", || members.ovs.flows("br0").contains(TAPPED));
    members.ovs.receive("p1", &arp(2));
    stream.expect(&arp(2), "arp");
}

/// Two applications are killed. The entries and taps of one stay, as it has not asked for anything.
#[test]
fn what_an_application_has_set_goes_with_it_where_it_has_asked_for_that() {
    let (_auster, api, ovs) = start(&[]);
    let wrong = "/v1/taps/goes/packets?on_disconnect=never";
    for owner in ["goes", "stays"] {
        let tap = json!({"match": "arp", "at": [DPID]});
        let answer = put(api, &format!("/v1/taps/{owner}/arp"), tap);
        assert_eq!(answer.status, 201, "{answer:?}");
        let address = if owner == "goes" {
            "10.9.1.1"
        } else {
            "10.9.1.2"
        };
        let flow = json!({"switch": DPID, "match": format!("ip,nw_dst={address}"), "actions": ""});
        let answer = put(api, &format!("/v1/flows/{owner}/drop"), flow);
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    assert_eq!(ask(api, "GET", wrong, "", None).status, 400);
    let has = |address: &str| ovs.flows("br0").contains(&format!("nw_dst={address} "));
    eventually("both entries", || has("10.9.1.1") && has("10.9.1.2"));
    let stays = Stream::with(api, "stays", "?on_disconnect=keep");
    let goes = Stream::with(api, "goes", "?on_disconnect=remove");
    drop(goes);
    // The application is back in time, and its entry still exists when it leaves for good.
    let again = Stream::with(api, "goes", "?on_disconnect=remove");
    assert!(has("10.9.1.1"));
    drop((stays, again));
    eventually("the entry is gone", || !has("10.9.1.1"));
    for owner in ["goes", "stays"] {
        let status = |kind: &str| ask(api, "GET", &format!("/v1/{kind}"), "", None).status;
        let expected = if owner == "goes" { 404 } else { 200 };
        assert_eq!(status(&format!("flows/{owner}/drop")), expected);
        assert_eq!(status(&format!("taps/{owner}/arp")), expected);
    }
    assert!(has("10.9.1.2"));
}
