//! Guests at a real Open vSwitch: other controllers that see it through `auster run`.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use bytes::BytesMut;
use common::dummy::DummySwitch;
use common::running::{PATIENCE, Running};
use common::{AUSTER, run, wait_until};
use openflow::hello::Hello;
use openflow::message::{
    FlowMod, GroupMod, GroupModCommand, GroupType, MeterBand, MeterBandKind, MeterFlags, MeterMod,
    MeterModCommand, PacketOut,
};
use openflow::multipart::{FlowStats, FlowStatsRequest, MultipartRequest, ReplyBody, RequestBody};
use openflow::text::{parse_actions, parse_match};
use openflow::{
    Cookie, ErrorKind, Frame, GroupId, Instruction, Match, Message, MeterId, PortNo, TableId,
    Version, Xid, decode, encode,
};
use serde_json::{Value, json};

/// The guest's end of its connection.
struct Guest {
    listener: TcpListener,
    stream: TcpStream,
    bytes: BytesMut,
    xid: u32,
}

impl Guest {
    fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("tcp:{}", listener.local_addr().unwrap());
        (listener, target)
    }

    /// Waits for a connection, and greets.
    fn accept(listener: TcpListener) -> Guest {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut guest = Guest {
            listener,
            stream,
            bytes: BytesMut::new(),
            xid: 100,
        };
        assert!(matches!(guest.receive(), Some((_, Message::Hello(_)))));
        guest.send(&Message::Hello(Hello::offering(&[Version::V13])));
        guest
    }

    fn again(self) -> Guest {
        Guest::accept(self.listener)
    }

    fn send(&mut self, message: &Message) -> Xid {
        self.xid += 1;
        let frame = encode(Version::V13, Xid(self.xid), message).unwrap();
        // A guest that was turned away cannot write.
        let _ = self.stream.write_all(frame.bytes());
        Xid(self.xid)
    }

    /// The next message; `None` at the end.
    fn receive(&mut self) -> Option<(Xid, Message)> {
        loop {
            if let Some(frame) = Frame::split_from(&mut self.bytes).unwrap() {
                match decode(&frame).unwrap() {
                    Message::EchoRequest(data) => {
                        let reply = Message::EchoReply(data);
                        let frame = encode(Version::V13, frame.xid(), &reply).unwrap();
                        let _ = self.stream.write_all(frame.bytes());
                    }
                    message => return Some((frame.xid(), message)),
                }
                continue;
            }
            let mut some = [0; 4096];
            match self.stream.read(&mut some) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.bytes.extend_from_slice(&some[..count]),
            }
        }
    }

    /// Sends a message and a barrier. Returns the messages before the barrier's reply.
    fn ask(&mut self, message: &Message) -> Vec<Message> {
        self.send(message);
        let barrier = self.send(&Message::BarrierRequest);
        let mut replies = Vec::new();
        loop {
            match self.receive().expect("the connection lives") {
                (xid, Message::BarrierReply) if xid == barrier => return replies,
                (_, message) => replies.push(message),
            }
        }
    }

    /// Sends a request, and returns the bodies of its replies.
    fn question(&mut self, body: RequestBody) -> Vec<ReplyBody> {
        let request = MultipartRequest { more: false, body };
        let asked = self.send(&Message::MultipartRequest(request));
        let mut bodies = Vec::new();
        loop {
            match self.receive().expect("the connection lives") {
                (xid, Message::MultipartReply(reply)) if xid == asked => {
                    bodies.push(reply.body);
                    if !reply.more {
                        return bodies;
                    }
                }
                (_, Message::PacketIn(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The entries that the guest reads back.
    fn rows(&mut self) -> Vec<FlowStats> {
        let bodies = self.question(RequestBody::Flow(FlowStatsRequest::all()));
        let rows = bodies.into_iter().flat_map(|body| match body {
            ReplyBody::Flow(rows) => rows,
            other => panic!("{other:?}"),
        });
        rows.collect()
    }

    fn add(&mut self, priority: u16, matching: &str, actions: &str) -> Option<ErrorKind> {
        let entry = FlowMod {
            cookie: Cookie(0xabc),
            ..FlowMod::add(
                priority,
                parse_match(matching).unwrap(),
                parse_actions(actions).unwrap(),
            )
        };
        let replies = self.ask(&Message::FlowMod(entry));
        replies.iter().find_map(|reply| match reply {
            Message::Error(error) => Some(error.kind),
            _ => None,
        })
    }
}

fn start(switch: &DummySwitch, guests: &[String]) -> Running {
    start_with(switch, &[], guests)
}

fn start_with(switch: &DummySwitch, more: &[&str], guests: &[String]) -> Running {
    let mut args = [&["run", "ptcp:0:127.0.0.1"], more].concat();
    for guest in guests {
        args.extend(["--guest", guest]);
    }
    let mut running = Running::start(&args);
    let at = running.listening("ptcp");
    switch.vsctl(&["set-controller", "br0", &format!("tcp:{at}")]);
    running
}

/// The switch's entries of a guest, without counts.
fn held(switch: &DummySwitch, guest: u8) -> Vec<String> {
    let dump = switch.ofctl("dump-flows", &["--no-stats"]);
    let mark = format!("14{guest:02x},");
    let lines = dump.lines().map(str::trim);
    let own = lines.filter(|line| line.contains("cookie=0x61757374") && line.contains(&mark));
    own.map(str::to_owned).collect()
}

/// Two guests with two ports each at one switch.
#[test]
fn two_guests_share_a_switch_with_auster_and_one_that_talks_nonsense_ends_alone() {
    let mut switch = DummySwitch::start(5);
    switch.restart();
    let ((one, to_one), (other, to_other)) = (Guest::listen(), Guest::listen());
    let words = [
        format!("one={to_one},priority=1000-1999,table=10,match=in_port=1"),
        format!(
            "other={to_other},priority=2000-2999,table=20,on_disconnect=remove,match=in_port=2"
        ),
    ];
    let mut running = start(&switch, &words);
    let (mut one, mut other) = (Guest::accept(one), Guest::accept(other));
    running.wait_for("guest other is connected for switch 0000000000000001");

    let features = one.ask(&Message::FeaturesRequest);
    let [Message::FeaturesReply(features)] = &features[..] else {
        panic!("{features:?}");
    };
    let said = (
        features.datapath_id.0,
        features.n_tables,
        features.n_buffers,
    );
    assert_eq!(said, (1, 11, 0));

    // Each guest sets the same entries, and has them at its own port.
    for guest in [&mut one, &mut other] {
        assert_eq!(guest.add(0, "", "controller"), None);
        assert_eq!(guest.add(7, "ip,nw_dst=10.0.0.2", "in_port"), None);
        let rows = guest.rows();
        let read = rows
            .iter()
            .map(|row| (row.priority, row.cookie.0, row.table_id.0));
        assert_eq!(read.collect::<Vec<_>>(), [(0, 0xabc, 0), (7, 0xabc, 0)]);
        assert_eq!(rows[1].r#match, parse_match("ip,nw_dst=10.0.0.2").unwrap());
    }
    for (guest, port) in [(0, "in_port=1"), (1, "in_port=2")] {
        let held = held(&switch, guest);
        assert_eq!(held.len(), 2, "{held:?}");
        assert!(held.iter().all(|line| line.contains(port)), "{held:?}");
    }
    // Requests for what belongs to another are refused, with the errors of the protocol.
    assert_eq!(
        one.add(1, "in_port=2", "drop"),
        Some(ErrorKind::MATCH_EPERM)
    );
    assert_eq!(
        one.add(1, "", "output:2"),
        Some(ErrorKind::ACTION_BAD_OUT_PORT)
    );
    let deep = FlowMod {
        table_id: TableId(1),
        ..FlowMod::add(1, Match::any(), Vec::new())
    };
    assert!(one.ask(&Message::FlowMod(deep)).is_empty());
    let deep = held(&switch, 0);
    assert!(
        deep.iter().any(|line| line.contains("table=18,")),
        "{deep:?}"
    );

    // A packet reaches the guest whose entry has taken it, and leaves by the guest's port.
    let arp = "in_port(1),eth(src=02:00:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),\
               arp(sip=10.0.0.1,tip=10.0.0.9,op=1,sha=02:00:00:00:00:01,tha=00:00:00:00:00:00)";
    switch.receive(1, arp);
    let Some((_, Message::PacketIn(packet))) = one.receive() else {
        panic!("a packet-in comes");
    };
    assert_eq!(
        (packet.cookie, packet.table_id),
        (Cookie(0xabc), TableId(0))
    );
    assert_eq!(packet.r#match.in_port(), Some(PortNo(1)));
    let out = |port| {
        Message::PacketOut(PacketOut::new(
            PortNo::CONTROLLER,
            parse_actions(&format!("output:{port}")).unwrap(),
            packet.data.clone(),
        ))
    };
    assert_eq!(one.ask(&out(1)), []);
    let refused = one.ask(&out(3));
    assert!(
        matches!(&refused[..], [Message::Error(error)]
            if error.kind == ErrorKind::ACTION_BAD_OUT_PORT),
        "{refused:?}"
    );
    wait_until("it has left the port", || {
        let ports = switch.ofctl("dump-ports", &["1"]);
        ports
            .split("tx pkts=")
            .nth(1)
            .is_some_and(|rest| !rest.starts_with('0'))
    });

    // Another program deletes all entries: the entries of both guests come back.
    let before = (held(&switch, 0), held(&switch, 1));
    switch.ofctl("del-flows", &[]);
    wait_until("all entries are back", || {
        (held(&switch, 0), held(&switch, 1)) == before
    });
    // auster's own entries are deleted too: the switch reconnects to get them, and the guests
    // reconnect.
    while one.receive().is_some() {}
    while other.receive().is_some() {}
    let (mut one, mut other) = (one.again(), other.again());
    assert_eq!(one.rows().len(), 3);
    assert_eq!(other.rows(), [], "on_disconnect=remove");
    assert_eq!(other.add(0, "", "controller"), None);

    // Nonsense ends a guest's connection, and its entries with it. The other guest's entries stay.
    other.stream.write_all(&[4, 14, 0, 3, 0, 0, 0, 1]).unwrap();
    while other.receive().is_some() {}
    wait_until("its entries have gone", || held(&switch, 1).is_empty());
    assert_eq!(held(&switch, 0), before.0);
    let mut other = other.again();
    assert_eq!(other.rows(), []);

    // A flood of one guest slows down that guest.
    let flood: Vec<u8> = {
        let echo = encode(Version::V13, Xid(1), &Message::FeaturesRequest).unwrap();
        echo.bytes().repeat(3000)
    };
    one.stream.write_all(&flood).unwrap();
    assert_eq!(other.add(9, "arp", "drop"), None);
    for _ in 0..3000 {
        assert!(one.receive().is_some());
    }

    // The switch ends, and so do the connections. It comes back without entries, and gets them
    // again.
    switch.restart();
    while one.receive().is_some() {}
    running.wait_for("guest one is no longer connected for switch 0000000000000001: the switch");
    let mut one = one.again();
    running.wait_for("guest one is connected for switch 0000000000000001");
    assert_eq!(one.rows().len(), 3);
    wait_until("its entries are there", || held(&switch, 0).len() == 3);

    // An entry stays after its guest has disconnected.
    drop(one);
    running.wait_for("guest one is no longer connected for switch 0000000000000001: closed by");
    assert_eq!(held(&switch, 0).len(), 3);
    assert!(running.is_running());
}

fn meter(command: MeterModCommand, id: u32) -> Message {
    Message::MeterMod(MeterMod {
        command,
        flags: MeterFlags::KBPS | MeterFlags::STATS,
        meter_id: MeterId(id),
        bands: vec![MeterBand {
            rate: 1000 + id,
            burst_size: 0,
            kind: MeterBandKind::Drop,
        }],
    })
}

/// The numbers of the meters that the switch has.
fn meters(switch: &DummySwitch) -> Vec<String> {
    let dump = switch.ofctl("dump-meters", &[]);
    let numbers = dump.split("meter=").skip(1);
    let number = |rest: &str| rest.split_whitespace().next().unwrap_or("").to_owned();
    let mut numbers: Vec<String> = numbers.map(number).collect();
    numbers.sort();
    numbers
}

/// The numbers of the groups that the switch has.
fn groups(switch: &DummySwitch) -> Vec<String> {
    let dump = switch.ofctl("dump-groups", &[]);
    let numbers = dump.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("group_id=")?;
        Some(rest.split(',').next()?.to_owned())
    });
    let mut numbers: Vec<String> = numbers.collect();
    numbers.sort();
    numbers
}

/// Groups of Open vSwitch have no owner, and go with the entries that lead to them.
#[test]
fn groups_of_guests_are_apart_and_outlive_deletion_and_the_switch_but_not_auster() {
    let mut switch = DummySwitch::start(5);
    switch.restart();
    let ((one, to_one), (other, to_other)) = (Guest::listen(), Guest::listen());
    let words = [
        format!("one={to_one},priority=1000-1999,table=10,match=in_port=1"),
        format!("other={to_other},priority=2000-2999,table=20,match=in_port=2"),
    ];
    let running = start(&switch, &words);
    let (mut one, mut other) = (Guest::accept(one), Guest::accept(other));
    let bucket = |actions: &str| openflow::Bucket {
        weight: 0,
        watch_port: PortNo::ANY,
        watch_group: GroupId::ANY,
        actions: parse_actions(actions).unwrap(),
        bucket_id: None,
        properties: Vec::new(),
    };
    let add = |id, actions: &str| {
        Message::GroupMod(GroupMod::new(
            GroupModCommand::Add,
            GroupType::All,
            GroupId(id),
            vec![bucket(actions)],
        ))
    };
    for guest in [&mut one, &mut other] {
        assert_eq!(guest.ask(&add(1, "in_port")), []);
        assert_eq!(guest.ask(&add(2, "group:1")), []);
        assert_eq!(guest.add(5, "ip", "group:2"), None);
        let rows = guest.rows();
        let actions = parse_actions("group:2").unwrap();
        assert_eq!(rows[0].instructions, [Instruction::ApplyActions(actions)]);
    }
    let of = |first: u32| (first..first + 2).map(|id| id.to_string());
    let all: Vec<String> = of(0x6180_0000).chain(of(0x6181_0000)).collect();
    assert_eq!(groups(&switch), all);
    let before = (held(&switch, 0), held(&switch, 1));
    assert_eq!((before.0.len(), before.1.len()), (1, 1));
    let are_back = || groups(&switch) == all && (held(&switch, 0), held(&switch, 1)) == before;

    switch.ofctl("del-groups", &[]);
    wait_until("groups and entries are back", are_back);
    switch.restart();
    while one.receive().is_some() {}
    let mut one = one.again();
    wait_until("groups and entries are there again", || {
        groups(&switch) == all && (held(&switch, 0), held(&switch, 1)) == before
    });
    let asked = one.ask(&add(1, "in_port"));
    assert!(
        matches!(&asked[..], [Message::Error(error)] if error.kind == ErrorKind::GROUP_EXISTS),
        "{asked:?}"
    );

    drop(running);
    let _running = start(&switch, &words);
    let mut one = one.again();
    assert_eq!(one.ask(&add(1, "in_port")), []);
    wait_until("what the last one has set has gone", || {
        groups(&switch).len() == 1 && held(&switch, 1).is_empty()
    });
}

/// A bridge that speaks only `version`, with one guest of port 1.
fn speaking(version: &str) -> (DummySwitch, Running, TcpListener, tempfile::TempDir) {
    let mut switch = DummySwitch::start(3);
    let protocols = format!("protocols=OpenFlow{}", version.replace('.', ""));
    switch.vsctl(&["set", "bridge", "br0", &protocols]);
    switch.restart();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    let text = format!("[session]\nversions = [\"{version}\"]\n");
    std::fs::write(&file, text).unwrap();
    let (listener, target) = Guest::listen();
    let words = format!("one={target},priority=1000-1999,table=10,match=in_port=1");
    let config = ["--config", file.to_str().unwrap(), "--api", "0"];
    let running = start_with(&switch, &config, &[words]);
    (switch, running, listener, dir)
}

/// A guest that speaks 1.3 sees the same with a switch that speaks 1.4 or 1.5.
#[test]
fn switches_of_1_4_and_1_5_are_shown_as_those_of_1_3_with_groups_and_meters() {
    for version in ["1.3", "1.4", "1.5"] {
        let (mut switch, mut running, listener, _dir) = speaking(version);
        switch.ofctl_version = version.replace('.', "");
        let mut one = Guest::accept(listener);
        assert_eq!(one.add(0, "", "controller"), None, "{version}");
        let bucket = openflow::Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions: parse_actions("in_port").unwrap(),
            bucket_id: None,
            properties: Vec::new(),
        };
        let group = GroupMod {
            command: GroupModCommand::Add,
            group_type: GroupType::Select,
            group_id: GroupId(1),
            buckets: vec![openflow::Bucket {
                weight: 7,
                ..bucket
            }],
            command_bucket: None,
            properties: Vec::new(),
        };
        assert_eq!(one.ask(&Message::GroupMod(group.clone())), []);
        assert_eq!(one.add(7, "tcp,tp_dst=80", "group:1"), None);
        let rows = one.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].r#match, parse_match("tcp,tp_dst=80").unwrap());
        let said = one.question(RequestBody::GroupDesc(GroupId::ALL));
        let ReplyBody::GroupDesc(descs) = &said[0] else {
            panic!("{said:?}");
        };
        assert_eq!(descs[0].buckets, group.buckets);
        for body in [
            RequestBody::Desc,
            RequestBody::Table,
            RequestBody::PortDesc(PortNo::ANY),
            RequestBody::PortStats(PortNo::ANY),
            RequestBody::Group(GroupId::ALL),
            RequestBody::GroupFeatures,
            RequestBody::Aggregate(FlowStatsRequest::all()),
        ] {
            assert_eq!(one.question(body.clone()).len(), 1, "{version} {body:?}");
        }

        // The guest has its own meters, with its own numbers; in 1.5 a meter is an action.
        for id in [1, 2] {
            assert_eq!(one.ask(&meter(MeterModCommand::Add, id)), [], "{version}");
        }
        let metered = FlowMod {
            instructions: vec![
                Instruction::Meter(MeterId(2)),
                Instruction::ApplyActions(parse_actions("in_port").unwrap()),
            ],
            ..FlowMod::add(3, parse_match("udp").unwrap(), Vec::new())
        };
        assert_eq!(one.ask(&Message::FlowMod(metered.clone())), []);
        assert_eq!(one.rows()[1].instructions, metered.instructions);
        let said = one.question(RequestBody::MeterConfig(MeterId(2)));
        let ReplyBody::MeterConfig(configs) = &said[0] else {
            panic!("{said:?}");
        };
        let config = (configs[0].meter_id, &configs[0].bands);
        let Message::MeterMod(stated) = meter(MeterModCommand::Add, 2) else {
            unreachable!();
        };
        assert_eq!(config, (MeterId(2), &stated.bands));
        let said = one.question(RequestBody::Meter(MeterId::ALL));
        let ReplyBody::Meter(stats) = &said[0] else {
            panic!("{said:?}");
        };
        let users: Vec<u32> = stats.iter().map(|it| it.flow_count).collect();
        assert_eq!(users, [0, 1], "{version}");
        let said = one.question(RequestBody::MeterFeatures);
        assert!(
            matches!(&said[..], [ReplyBody::MeterFeatures(it)] if it.max_meter == 64),
            "{said:?}"
        );
        assert_eq!(meters(&switch), ["40960", "40961"]);
        // A trace has both, with the guest's own numbers.
        let api = running.wait_for("API on http://");
        let api = api.split(['/', ' ']).find(|it| it.contains("127.0.0.1:"));
        for (packet, step) in [("tcp&dport=80", "group"), ("udp&dport=80", "meter")] {
            let macs = "src_mac=02:00:00:00:00:01&dst_mac=02:00:00:00:00:02&in=1:1&seconds=0";
            let from = "src=10.0.0.1&dst=10.0.0.2";
            let url = format!(
                "http://{}/v1/trace?{from}&{macs}&proto={packet}",
                api.unwrap()
            );
            let text = run("curl", &["-s", &url]);
            let trace: Value = serde_json::from_str(&text).unwrap();
            let steps = trace["hops"][0]["steps"]
                .as_array()
                .unwrap_or_else(|| panic!("{text}"));
            let its = steps.iter().find(|it| it["kind"] == step);
            let guest = its.unwrap_or_else(|| panic!("{text}"))["guest"].clone();
            let number = if step == "group" { 1 } else { 2 };
            assert_eq!(guest, json!({"name": "one", "number": number}), "{version}");
        }
        let before = held(&switch, 0);
        switch.ofctl("del-meters", &[]);
        wait_until("meters and entries are back", || {
            meters(&switch).len() == 2 && held(&switch, 0) == before
        });
        assert_eq!(one.ask(&meter(MeterModCommand::Delete, 2)), []);
        assert_eq!(one.rows().len(), 2);
        assert_eq!(meters(&switch), ["40960"]);

        // A packet comes up, and goes out.
        let arp = "in_port(1),eth(src=02:00:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),\
                   eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.9,op=1,\
                   sha=02:00:00:00:00:01,tha=00:00:00:00:00:00)";
        switch.receive(1, arp);
        let Some((_, Message::PacketIn(packet))) = one.receive() else {
            panic!("a packet-in comes");
        };
        assert_eq!(packet.r#match, Match::any().with_in_port(PortNo(1)));
        let out = PacketOut {
            buffer_id: None,
            in_port: PortNo::CONTROLLER,
            actions: parse_actions("output:1").unwrap(),
            data: packet.data,
            pipeline: Default::default(),
        };
        assert_eq!(one.ask(&Message::PacketOut(out)), []);

        // A refusal by the switch is an error for the guest's message.
        let bad = one.add(8, "ip", "set_queue:1,dec_ttl,group:1,pop_pbb,in_port");
        assert!(bad.is_some(), "{version}");
        assert_eq!(one.rows().len(), 2);

        let before = (held(&switch, 0), groups(&switch));
        assert_eq!((before.0.len(), before.1.len()), (2, 1), "{before:?}");
        switch.ofctl("del-groups", &[]);
        switch.ofctl("del-flows", &[]);
        wait_until("entries and group are back", || {
            (held(&switch, 0), groups(&switch)) == before
        });
        while one.receive().is_some() {}
        let mut one = one.again();
        // A port's change before the guest has greeted is in what it asks for.
        one.rows();
        switch.vsctl(&["set", "interface", "p1", "mtu_request=1400"]);
        switch.ofctl("mod-port", &["p1", "no-forward"]);
        let status = one.receive();
        assert!(
            matches!(status, Some((_, Message::PortStatus(_)))),
            "{status:?}"
        );
    }
}

/// A packet of a switch of 1.0 names no entry, and so no guest that could get it.
#[test]
fn a_switch_of_1_0_is_not_shown_and_a_line_says_so() {
    let (_switch, mut running, listener, _dir) = speaking("1.0");
    let line = running.wait_for("guest one is not shown 0000000000000001");
    assert!(line.contains("OpenFlow 1.0"), "{line}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn all_that_is_wrong_with_guests_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    let text = "[[guest]]\nname = \"a\"\ntarget = \"tcp:h:1\"\npriority = \"0-999\"\n\
                [[guest]]\nname = \"b\"\ntarget = \"tcp:h:2\"\npriority = \"500-1500\"\n\
                match = \"dl_vlan=5\"\n";
    std::fs::write(&file, text).unwrap();
    let check = |words: &[&str]| {
        let all = [&["run", "--check"], words].concat();
        let done = std::process::Command::new(AUSTER)
            .args(all)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), said)
    };
    let (code, said) = check(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{said}");
    for part in [
        "run.toml:8:12: guest 'b': priority: 'a' has 0 to 999",
        "run.toml:9:9: guest 'b': match: a VLAN needs forwarding",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = check(&["--guest", "a=tcp:h:1,priority=1-0,table=1"]);
    assert_eq!(code, Some(2), "{said}");
    for part in ["'1-0' is no band", "from 4 to 239"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = check(&[
        "--guest",
        "a=tcp:127.0.0.1:6633,priority=1000-1999,table=10",
    ]);
    assert_eq!(code, Some(0), "{said}");
}
