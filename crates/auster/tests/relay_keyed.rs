//! `--order keyed` on real Open vSwitch. A controller's messages through two relays over a link
//! that loses packets leave the switch in the same state as without relays, in each version and
//! with bundles. Every answer comes between its own two barriers. The tests make network namespaces
//! of their own, so they need root.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clock::SplitMix64;
use common::dummy::DummySwitch;
use common::run;
use common::running::{AUSTER, Running};
use openflow::hello::Hello;
use openflow::message::{BundleAdd, BundleCommand, BundleControl, BundleFlags, PacketOut};
use openflow::multipart::{FlowStatsRequest, MultipartRequest, RequestBody};
use openflow::text::{parse_actions, parse_flow_mod, parse_group_mod, print};
use openflow::{Frame, MacAddr, Message, MessageKind, PortNo, Version, Xid, encode};
use serde_json::Value;
use tempfile::TempDir;

/// Far beyond what anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const SEED: u64 = 7;
const STEPS: u32 = 4_000;
const PORTS: u32 = 4;
/// Pairs of Ethernet addresses, twice as many as there are lanes, and of IP addresses.
const MAC_KEYS: u64 = 64;
const IP_KEYS: u64 = 16;
const GROUPS: u64 = 4;
/// No step makes this group, so a message that names it is refused.
const NO_GROUP: u64 = 99;

/// A controller's messages, the same for each seed.
struct Script {
    version: Version,
    random: SplitMix64,
    frames: Vec<Frame>,
    groups: [bool; GROUPS as usize],
    /// The number of errors to expect.
    refused: usize,
    /// The number of bundles that are carried out.
    bundles: usize,
}

impl Script {
    fn new(version: Version, seed: u64) -> Script {
        let mut script = Script {
            version,
            random: SplitMix64::new(seed),
            frames: Vec::new(),
            groups: [false; GROUPS as usize],
            refused: 0,
            bundles: 0,
        };
        script.say(&Message::Hello(Hello::offering(&[version])));
        (0..STEPS).for_each(|_| script.step());
        script.say(&Message::BarrierRequest);
        script
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next() % n
    }

    fn say(&mut self, message: &Message) {
        let xid = Xid(self.frames.len() as u32 + 1);
        self.frames
            .push(encode(self.version, xid, message).unwrap());
    }

    fn flow(&mut self, text: &str) {
        let flow = parse_flow_mod(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        self.say(&Message::FlowMod(flow));
    }

    fn group(&mut self, text: &str) {
        let group = parse_group_mod(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        self.say(&Message::GroupMod(group));
    }

    /// An output, or a group that exists.
    fn actions(&mut self) -> String {
        let group = self.below(8 * GROUPS);
        match self.groups.get(group as usize) {
            Some(true) => format!("group:{group}"),
            _ => format!("output:{}", 1 + self.below(u64::from(PORTS))),
        }
    }

    /// Adds a step, mostly about one pair of Ethernet addresses. The other steps are about others
    /// too.
    fn step(&mut self) {
        let [key, table] = [self.below(MAC_KEYS), self.below(2)];
        let (src, dst) = macs(key);
        let macs = format!("table={table},priority=100,dl_src={src},dl_dst={dst}");
        match self.below(1_000) {
            0..720 => {
                let (cookie, actions) = (self.frames.len(), self.actions());
                self.flow(&format!("add,cookie={cookie},{macs},actions={actions}"));
            }
            720..840 => {
                let actions = self.actions();
                self.flow(&format!("modify_strict,{macs},actions={actions}"));
            }
            840..870 => {
                let actions = self.actions();
                let macs = macs.replace("priority=100,", "");
                self.flow(&format!("modify,{macs},actions={actions}"));
            }
            870..890 => {
                let (n, actions) = (self.below(IP_KEYS), self.actions());
                let (cookie, over) = (self.frames.len(), 50 + 100 * self.below(2));
                let pair = format!("nw_src=10.0.0.{n},nw_dst=10.0.1.{n}");
                self.flow(&format!(
                    "add,cookie={cookie},priority={over},ip,{pair},actions={actions}"
                ));
            }
            890..900 => self.flow(&format!("delete_strict,{macs}")),
            900..906 => self.flow(&format!("delete,dl_src={src}")),
            906..908 => self.flow("delete,table=1"),
            908..914 => {
                self.refused += 1;
                self.flow(&format!("add,{macs},actions=group:{NO_GROUP}"));
            }
            914..924 => self.change_group(),
            924..936 => self.say(&Message::BarrierRequest),
            936..948 => {
                let body = RequestBody::Aggregate(FlowStatsRequest::all());
                self.say(&Message::MultipartRequest(MultipartRequest {
                    more: false,
                    body,
                }));
            }
            948..960 => self.packet("output:TABLE", key),
            960..975 => self.bundle(),
            _ => {
                let actions = self.actions();
                self.packet(&actions, key);
            }
        }
    }

    /// Adds a bundle: changes that apply as one or not at all. Other changes are sent while the
    /// bundle is put together.
    fn bundle(&mut self) {
        let (bundle_id, flags) = (self.frames.len() as u32, BundleFlags::ATOMIC);
        let control = |command| {
            Message::BundleControl(BundleControl {
                bundle_id,
                command,
                flags,
                properties: Vec::new(),
            })
        };
        self.say(&control(BundleCommand::OpenRequest));
        let is_refused = self.below(4) == 0;
        for part in 0..3 + self.below(4) {
            let (src, dst) = macs(self.below(MAC_KEYS));
            let command = ["add,priority=100", "modify_strict,priority=100", "delete"];
            let command = command[self.below(3) as usize];
            let actions = match command {
                "delete" => String::new(),
                _ => format!(",actions=output:{}", 1 + self.below(u64::from(PORTS))),
            };
            let text = match is_refused && part == 2 {
                true => format!("add,priority=100,dl_src={src},actions=group:{NO_GROUP}"),
                false => format!("{command},dl_src={src},dl_dst={dst}{actions}"),
            };
            let flow = parse_flow_mod(&text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            self.say(&Message::BundleAdd(BundleAdd {
                bundle_id,
                flags,
                message: Box::new(Message::FlowMod(flow)),
                properties: Vec::new(),
            }));
            if self.below(3) == 0 {
                self.step();
            }
        }
        if self.below(5) == 0 {
            return self.say(&control(BundleCommand::DiscardRequest));
        }
        // One error for the refused part, and one for the whole.
        self.refused += 2 * usize::from(is_refused);
        self.bundles += usize::from(!is_refused);
        self.say(&control(BundleCommand::CommitRequest));
    }

    /// Changes a group. Deleting it also deletes the entries that name it.
    fn change_group(&mut self) {
        let id = self.below(GROUPS);
        let port = 1 + self.below(u64::from(PORTS));
        let rest = format!("group_id={id},type=all,bucket=output:{port}");
        match (self.groups[id as usize], self.below(3)) {
            (true, 0) => self.group(&format!("delete,group_id={id}")),
            (true, _) => return self.group(&format!("modify,{rest}")),
            (false, _) => self.group(&format!("add,{rest}")),
        }
        self.groups[id as usize] ^= true;
    }

    fn packet(&mut self, actions: &str, key: u64) {
        self.say(&Message::PacketOut(PacketOut::new(
            PortNo::CONTROLLER,
            parse_actions(actions).unwrap(),
            packet(key),
        )));
    }
}

/// Every fourth shares its source.
fn macs(key: u64) -> (MacAddr, MacAddr) {
    let mac = |kind, n| MacAddr([2, 0, 0, kind, 0, n as u8]);
    (mac(1, key % (MAC_KEYS / 4)), mac(2, key))
}

/// UDP between the addresses of `key`.
fn packet(key: u64) -> Bytes {
    let (src, dst) = macs(key % MAC_KEYS);
    let n = (key % IP_KEYS) as u8;
    let ip = [
        &[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0][..],
        &[10, 0, 0, n],
        &[10, 0, 1, n],
        &[0, 1, 0, 2, 0, 26, 0, 0],
    ];
    let mut bytes = [&dst.0[..], &src.0, &[8, 0], &ip.concat()].concat();
    bytes.resize(60, 0);
    bytes.into()
}

/// The answers of a switch between one barrier's reply and the next, whose xid ends them. Answers
/// of different kinds may overtake each other there, so they are sorted.
type Answers = Vec<(Vec<String>, u32)>;

/// Sends the whole script at once to the switch behind `stream`, and reads all answers.
fn drive(mut stream: &UnixStream, script: &Script) -> Answers {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let bytes: Vec<u8> = script
        .frames
        .iter()
        .flat_map(|f| f.bytes().to_vec())
        .collect();
    let writes = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    let last = script.frames.last().unwrap().xid();
    let (mut buffer, mut chunk) = (BytesMut::new(), [0; 65536]);
    let (mut answers, mut since) = (Answers::new(), Vec::new());
    loop {
        while let Some(frame) = Frame::split_from(&mut buffer).unwrap() {
            match frame.kind() {
                MessageKind::Hello => {}
                MessageKind::BarrierReply => {
                    let mut heard = std::mem::take(&mut since);
                    heard.sort();
                    answers.push((heard, frame.xid().0));
                    if frame.xid() == last {
                        writes.join().unwrap();
                        return answers;
                    }
                }
                _ => since.push(print(&frame)),
            }
        }
        match stream.read(&mut chunk) {
            Ok(len @ 1..) => buffer.extend_from_slice(&chunk[..len]),
            end => panic!("{end:?} after {} barriers and {since:?}", answers.len()),
        }
    }
}

/// Sets `path` as the switch's controller, which listens there or behind relays.
fn point(switch: &DummySwitch, path: &str) {
    let target = format!("unix:{path}");
    switch.vsctl(&["--no-wait", "set-controller", "br0", &target]);
}

/// Accepts the switch's connection, or the relay's connection for it.
fn accept(controller: &UnixListener) -> UnixStream {
    controller.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let stream = loop {
        match controller.accept() {
            Ok((stream, _)) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "nobody dials: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.set_nonblocking(false).unwrap();
    stream
}

/// The switch's entries, groups and packets, without their age.
fn state(switch: &DummySwitch) -> Vec<String> {
    let mut lines = Vec::new();
    for what in [
        "dump-flows",
        "dump-groups",
        "dump-group-stats",
        "dump-ports",
    ] {
        let text = switch.ofctl(what, &[]);
        let ageless = |line: &str| {
            let parts = line.split([',', ' ']);
            let kept = parts.filter(|part| !part.is_empty() && !part.starts_with("duration="));
            format!("{what} {}", kept.collect::<Vec<_>>().join(" "))
        };
        lines.extend(text.lines().map(ageless));
    }
    lines.sort();
    lines
}

/// Two machines with a link between them that delays and loses, and a relay on each.
struct Site {
    dir: TempDir,
    names: [String; 2],
    link: Option<Child>,
    relays: Vec<Running>,
}

impl Site {
    /// The switch's relay listens on `front`.
    fn start(front: &str) -> Site {
        let names = ["s", "c"].map(|side| format!("rk{}{side}", std::process::id()));
        let mut site = Site {
            dir: tempfile::tempdir().unwrap(),
            names,
            link: None,
            relays: Vec::new(),
        };
        for name in &site.names {
            run("ip", &["netns", "add", name]);
        }
        let [switch, controller] = &site.names;
        let mut link = Command::new(AUSTER)
            .args(["lab", "link", "--seed", "7"])
            .arg(format!(
                "{switch}:t0={controller}:t0,delay_ms=20,loss_percent=2"
            ))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let said = link.stdout.take().unwrap();
        site.link = Some(link);
        BufReader::new(said).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        for (n, name) in site.names.iter().enumerate() {
            let address = format!("10.94.0.{}/24", n + 1);
            run("ip", &["-n", name, "addr", "add", &address, "dev", "t0"]);
            run("ip", &["-n", name, "link", "set", "t0", "up"]);
        }
        for words in [&["init"][..], &["controller", "ctl"], &["switch", "s1"]] {
            let mut command = Command::new(AUSTER);
            let output = command
                .current_dir(&site.dir)
                .arg("pki")
                .args(words)
                .output();
            let output = output.unwrap();
            assert!(output.status.success(), "auster pki {words:?}: {output:?}");
        }
        let sides = [
            (
                "controller",
                1,
                "ctl",
                "switchca",
                ["--listen", "pquic:6654:10.94.0.2"],
            ),
            (
                "switch",
                0,
                "s1",
                "controllerca",
                ["--connect", "quic:10.94.0.2:6654"],
            ),
        ];
        for (side, at, certificate, ca, tunnel) in sides {
            let openflow = match side {
                "switch" => format!("punix:{front}"),
                _ => format!("unix:{}", site.path("controller.ofp")),
            };
            let [key, cert] =
                ["privkey", "cert"].map(|file| site.path(&format!("{certificate}-{file}.pem")));
            let ca = site.path(&format!("pki/{ca}/cacert.pem"));
            let status = format!("unix:{}", site.path(&format!("{side}.status")));
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &site.names[at], AUSTER, "relay", side]);
            command
                .args(tunnel)
                .args(["--order", "keyed", "--openflow", &openflow]);
            command.args(["--status", &status, "-p", &key, "-c", &cert, "-C", &ca]);
            let relay = Running::spawn(command);
            site.relays.push(relay);
        }
        let deadline = Instant::now() + PATIENCE;
        while site.status("switch")["up"] != true {
            assert!(Instant::now() < deadline, "the relays are not joined");
            std::thread::sleep(Duration::from_millis(20));
        }
        site
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The status of the one session of the relay at `side`.
    fn status(&self, side: &str) -> Value {
        let socket = UnixStream::connect(self.path(&format!("{side}.status")));
        let mut text = String::new();
        let read = socket.and_then(|mut socket| socket.read_to_string(&mut text));
        let status = read.ok().and_then(|_| serde_json::from_str(&text).ok());
        status.map_or(Value::Null, |status: Value| status["relays"][0].clone())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.relays.clear();
        if let Some(mut link) = self.link.take() {
            let _ = link.kill();
            let _ = link.wait();
        }
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn a_switch_behind_keyed_relays_ends_as_one_beside_the_controller() {
    for version in [Version::V13, Version::V14, Version::V15] {
        relay(version);
    }
}

fn relay(version: Version) {
    let [beside, behind] = [(); 2].map(|()| {
        let switch = DummySwitch::start(PORTS);
        let all = "protocols=OpenFlow13,OpenFlow14,OpenFlow15";
        switch.vsctl(&["--no-wait", "set", "bridge", "br0", all]);
        switch
    });
    let script = Script::new(version, SEED);
    let alone = {
        let path = beside.path("controller.ofp");
        let controller = UnixListener::bind(&path).unwrap();
        point(&beside, path.to_str().unwrap());
        let answers = drive(&accept(&controller), &script);
        (answers, state(&beside))
    };
    // The script tests enough: barriers, answers to each of them, and entries with packets.
    let (answers, entries) = &alone;
    let all = || answers.iter().flat_map(|(heard, _)| heard);
    let errors = all().filter(|text| text.starts_with("OFPT_ERROR"));
    // Errors for the refused part of a bundle, and for the whole; in 1.3 with the numbers of the
    // ONF.
    let foreseen = ["OFPBAC_BAD_OUT_GROUP", "OFPBFC_MSG_FAILED", "type 2313"];
    let is_foreseen = |text: &str| foreseen.iter().any(|name| text.contains(name));
    let unforeseen = errors.clone().find(|text| !is_foreseen(text));
    assert_eq!(unforeseen, None);
    assert_eq!(errors.count(), script.refused);
    let count = |name: &str| all().filter(|text| text.starts_with(name)).count();
    assert!(answers.len() > 30 && script.refused > 10 && count("OFPST_AGGREGATE") > 20);
    let commits = all().filter(|text| text.contains("COMMIT_REPLY"));
    assert_eq!(
        (commits.count(), script.bundles > 10),
        (script.bundles, true)
    );
    let with_packets = entries
        .iter()
        .filter(|line| line.starts_with("dump-flows cookie"));
    assert!(with_packets.clone().count() > 60, "{entries:#?}");
    assert!(
        with_packets
            .filter(|line| !line.contains("n_packets=0"))
            .count()
            > 5,
        "{entries:#?}"
    );

    // Open vSwitch dials no socket outside of its own directory.
    let front = behind.path("relay.ofp").display().to_string();
    let site = Site::start(&front);
    let controller = UnixListener::bind(PathBuf::from(site.path("controller.ofp"))).unwrap();
    point(&behind, &front);
    let stream = accept(&controller);
    let answers = drive(&stream, &script);
    for (relayed, alone) in answers.iter().zip(&alone.0) {
        assert_eq!(relayed, alone, "between two barriers");
    }
    assert_eq!(answers.len(), alone.0.len());
    let entries = state(&behind);
    let differing = entries
        .iter()
        .zip(&alone.1)
        .find(|(relayed, alone)| relayed != alone);
    assert_eq!(differing, None);
    assert_eq!(entries.len(), alone.1.len());

    // The order was keyed, on lanes, and the link lost packets.
    for side in ["switch", "controller"] {
        assert_eq!(site.status(side)["order"], "keyed");
    }
    let status = site.status("controller");
    assert!(status["lost_packets"].as_u64() > Some(0), "{status:#}");
    let lanes = status["channels"][0]["lanes_out"].as_object().unwrap();
    let keyed = lanes.keys().filter(|lane| lane.starts_with("state"));
    assert!(keyed.count() > 20, "{status:#}");
}
