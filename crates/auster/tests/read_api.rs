//! The read side of the API on real Open vSwitch: two bridges with a cable between them, and a host
//! at each.

mod common;

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::dummy::DummySwitch;
use common::run;
use common::running::{AUSTER, PATIENCE, Running};
use serde_json::{Value, json};

const A: &str = "02:00:00:00:00:01";
const B: &str = "02:00:00:00:00:02";

struct Net {
    switch: DummySwitch,
    running: Running,
    at: SocketAddr,
}

impl Net {
    fn start() -> Net {
        let mut running = Running::start(&["run", "ptcp:0:127.0.0.1", "--api", "0", "--json"]);
        let line = running.wait_for(r#""event":"listening""#);
        let method = line.split("ptcp:").nth(1).unwrap();
        let port = method.split(':').next().unwrap();
        let line = running.wait_for(r#""event":"serving""#);
        let serving: Value = serde_json::from_str(&line).unwrap();
        let at = serving["address"].as_str().unwrap().parse().unwrap();
        let switch = DummySwitch::start(2);
        let words = "add-br br1 -- set bridge br1 datapath_type=dummy protocols=OpenFlow13 \
             fail_mode=secure other-config:disable-in-band=true \
             other-config:datapath-id=0000000000000002 \
             -- add-port br0 c0 -- set interface c0 type=patch options:peer=c1 ofport_request=9 \
             -- add-port br1 c1 -- set interface c1 type=patch options:peer=c0 ofport_request=9 \
             -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1";
        let words: Vec<&str> = words.split_whitespace().collect();
        switch.vsctl(&words);
        for bridge in ["br0", "br1"] {
            switch.vsctl(&["set-controller", bridge, &format!("tcp:127.0.0.1:{port}")]);
        }
        Net {
            switch,
            running,
            at,
        }
    }

    fn get(&self, path: &str) -> Value {
        let answer = run("curl", &["-sg", &format!("http://{}{path}", self.at)]);
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{path}: {e}: {answer}"))
    }

    /// The answer, once `is_it` accepts it. The switch's clock advances meanwhile.
    fn wait(&self, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if is_it(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path}: {answer:#}");
            self.switch.warp(Duration::from_millis(100));
            sleep(Duration::from_millis(50));
        }
    }

    fn arp(&self, port: &str, mac: &str, from: &str, to: &str) {
        let flow = format!(
            "in_port(1),eth(src={mac},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),\
             arp(sip={from},tip={to},op=1,sha={mac},tha=00:00:00:00:00:00)"
        );
        self.switch.appctl("netdev-dummy/receive", &[port, &flow]);
    }

    fn udp(&self, port: &str, (src, from): (&str, &str), (dst, to): (&str, &str)) {
        let flow = format!(
            "in_port(1),eth(src={src},dst={dst}),eth_type(0x0800),\
             ipv4(src={from},dst={to},proto=17,tos=0,ttl=64,frag=no),udp(src=9,dst=9)"
        );
        self.switch.appctl("netdev-dummy/receive", &[port, &flow]);
    }
}

fn port<'a>(topology: &'a Value, dpid: &str, number: u64) -> &'a Value {
    let switches = topology["switches"].as_array().unwrap();
    let switch = switches.iter().find(|s| s["dpid"] == dpid).unwrap();
    let ports = switch["ports"].as_array().unwrap();
    ports.iter().find(|p| p["number"] == number).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_network_is_read_and_followed() {
    let mut net = Net::start();
    let [one, two] = ["0000000000000001", "0000000000000002"];
    let has_link = |topology: &Value| topology["links"][0]["is_usable"] == true;
    net.wait("/v1/topology", |t| {
        has_link(t) && port(t, one, 1)["role"] == "edge" && port(t, two, 1)["role"] == "edge"
    });
    net.wait("/v1/hosts", |hosts| {
        net.arp("p1", A, "10.0.0.1", "10.0.0.2");
        net.arp("q1", B, "10.0.0.2", "10.0.0.1");
        hosts["total"] == 2
    });
    let topology = net.wait("/v1/topology", |t| {
        net.udp("p1", (A, "10.0.0.1"), (B, "10.0.0.2"));
        !t["rates_age_s"].is_null() && !port(t, one, 1)["rates"].is_null()
    });
    let names: Vec<&Value> = topology["switches"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&names[0]["name"], &names[1]["name"]),
        (&json!("br0"), &json!("br1"))
    );
    assert_eq!(
        (&names[0]["role"], &names[0]["host_count"]),
        (&json!("serving"), &json!(1))
    );
    let cable = port(&topology, one, 9);
    assert_eq!(
        (&cable["role"], &cable["name"]),
        (&json!("link"), &json!("c0"))
    );
    let links = net.get("/v1/links");
    let link = &links["links"][0];
    assert_eq!(links["links"].as_array().unwrap().len(), 1);
    assert_eq!(link["from"], "0000000000000001:9");
    assert_eq!(
        (&link["to"], &link["is_stated"]),
        (&json!("0000000000000002:9"), &Value::Null)
    );

    // Hosts, page by page and by name.
    let first = net.get("/v1/hosts?limit=1");
    let host = json!({"mac": A, "vlan": 0, "at": "0000000000000001:1", "ips": ["10.0.0.1"],
        "is_heard": true, "claimed_at": null});
    assert_eq!((&first["total"], &first["hosts"][0]), (&json!(2), &host));
    let next = first["next"].as_str().unwrap();
    let second = net.get(&format!("/v1/hosts?limit=1&after={next}"));
    assert_eq!(
        (&second["hosts"][0]["mac"], &second["next"]),
        (&json!(B), &Value::Null)
    );
    for (query, mac) in [
        ("switch=1", A),
        ("q=10.0.0.2", B),
        ("q=10.0.0.0/31", A),
        ("q=02:00:00:00:00:02", B),
        ("q=02&switch=2", B),
    ] {
        let found = net.get(&format!("/v1/hosts?{query}"));
        assert_eq!(
            (&found["total"], &found["hosts"][0]["mac"]),
            (&json!(1), &json!(mac))
        );
    }
    assert_eq!(net.get("/v1/hosts?vlan=7")["total"], 0);
    assert_eq!(net.get(&format!("/v1/hosts/{A}"))["hosts"][0], host);

    // Ryu's shapes.
    let of = |topology: &Value, dpid: &str, number: u64| {
        let port = port(topology, dpid, number);
        json!({"dpid": dpid, "port_no": format!("{number:08x}"), "hw_addr": port["hw_addr"],
            "name": port["name"]})
    };
    let links = net.get(&format!("/v1.0/topology/links/{one}"));
    let expected = json!([{"src": of(&topology, one, 9), "dst": of(&topology, two, 9)}]);
    assert_eq!(links, expected);
    assert_eq!(net.get("/v1.0/topology/links").as_array().unwrap().len(), 2);
    let hosts = net.get(&format!("/v1.0/topology/hosts/{two}"));
    let expected = json!([{"mac": B, "ipv4": ["10.0.0.2"], "ipv6": [], "port":
        of(&topology, two, 1)}]);
    assert_eq!(hosts, expected);
    let switches = net.get("/v1.0/topology/switches");
    let ports: Vec<Value> = [1, 2, 9].map(|n| of(&topology, one, n)).to_vec();
    assert_eq!(switches[0], json!({"dpid": one, "ports": ports}));
    assert_eq!(
        net.get("/v1.0/topology/switches/00000000000000ff"),
        json!([])
    );

    // Changes after the document are in the events after its number.
    let seq = net.get("/v1/topology")["seq"].as_u64().unwrap();
    net.switch.vsctl(&["del-port", "br0", "c0"]);
    net.running.wait_for(r#""event":"link_down""#);
    net.wait("/v1/links", |links| links["links"] == json!([]));
    let api = net.at.to_string();
    let since = seq.to_string();
    let told = run(
        AUSTER,
        &["events", "--api", &api, "--since", &since, "--json"],
    );
    let events = lines(&told);
    let kinds: Vec<&str> = events
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    assert!(
        kinds.contains(&"port_down") && kinds.contains(&"link_down"),
        "{kinds:?}"
    );
    assert!(
        events
            .iter()
            .all(|event| event["seq"].as_u64().unwrap() > seq)
    );
    let text = run(
        AUSTER,
        &[
            "events",
            "--api",
            &api,
            "--kind",
            "link_down",
            "--switch",
            "2",
        ],
    );
    assert!(text.contains(" link_down from=0000000000000"), "{text}");

    // One source for both: whatever is printed is in the stream, with the same fields.
    let all = lines(&run(AUSTER, &["events", "--api", &api, "--json"]));
    let mut all: Vec<Value> = all;
    for event in &mut all {
        event.as_object_mut().unwrap().remove("seq");
    }
    let printed = net.running.log.iter();
    let printed = printed.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut count = 0;
    for event in printed.filter(|event| event["event"].is_string()) {
        assert!(all.contains(&event), "{event} is not among {all:#?}");
        count += 1;
    }
    assert!(count >= 8, "{count} events were printed");
}
