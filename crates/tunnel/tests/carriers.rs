//! Two relays over loopback whose policy map marks packets: the bytes on the wire, by code point.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Pki;
use net::method::{Method, Transport, UdpMethod};
use net::tls::Security;
use net::transport::{Connection, Reader, Writer, memory};
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use relay::{Config, Kind, SessionId, Side};
use sched::PolicyMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tunnel::{DatagramListener, End, EndConfig, Hub, OPENFLOW, Scheduling, Target, switch};

/// Example 2 of the published policy maps.
const MAP: &str = "Rule #1: traffic_type=1, action=dscp:CS7
    Rule #2: traffic_type=2, action=dscp:CS6
    Rule #3: traffic_type=3, action=dscp:CS5
    Rule #4: traffic_type=4, action=dscp:copy";
const QUEUES: &str = "Rule #1: traffic_type=1, action=queue_id:0
    Default: action=queue_id:1";

const MESSAGES: usize = 40;
const BODY_BYTES: usize = 1000;

/// Bytes by code point.
type Counts = Arc<Mutex<BTreeMap<u8, usize>>>;

fn marked_socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    setsockopt(&socket, sockopt::IpRecvTos, &true).expect("it can tell");
    socket
}

/// Takes datagrams of `socket` for as long as the test runs, and counts them.
fn take_each(
    socket: UdpSocket,
    counts: Counts,
    mut give: impl FnMut(SocketAddr, &[u8]) + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        loop {
            let mut control = cmsg_space!(i32);
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            let fd = socket.as_raw_fd();
            let flags = MsgFlags::empty();
            let Ok(got) = recvmsg::<SockaddrIn>(fd, &mut buffers, Some(&mut control), flags) else {
                continue;
            };
            let tos = got
                .cmsgs()
                .expect("whole")
                .find_map(|message| match message {
                    ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
                    _ => None,
                });
            let (len, from) = (got.bytes, got.address.expect("a sender"));
            let dscp = tos.expect("a type of service") >> 2;
            *counts.lock().unwrap().entry(dscp).or_default() += len;
            give((from.ip(), from.port()).into(), &bytes[..len]);
        }
    });
}

/// Makes a path to `hub` that counts bytes. Returns its address, and the counts to the hub and
/// back.
fn path(hub: SocketAddr) -> (SocketAddr, [Counts; 2]) {
    let counts = [Counts::default(), Counts::default()];
    let back_counts = counts[1].clone();
    let front = marked_socket();
    let at = front.local_addr().expect("an address");
    let replies = front.try_clone().expect("another handle");
    let mut backs: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
    take_each(front, counts[0].clone(), move |from, bytes| {
        let back = backs.entry(from).or_insert_with(|| {
            let back = marked_socket();
            let (takes, to) = (
                back.try_clone().expect("another handle"),
                replies.try_clone(),
            );
            let to = to.expect("another handle");
            take_each(takes, back_counts.clone(), move |_, bytes| {
                let _ = to.send_to(bytes, from);
            });
            back
        });
        let _ = back.send_to(bytes, hub);
    });
    (at, counts)
}

fn config(side: Side, policy: &str, targets: &[(&str, Target)]) -> EndConfig {
    let (policy, _) = PolicyMap::parse(policy).expect("a map");
    let target = |(name, target): &(&str, Target)| ((*name).to_owned(), target.clone());
    EndConfig {
        session: Config {
            classes: Kind::ALL.map(|kind| (kind.name().to_owned(), kind)).into(),
            ..Config::new(side)
        },
        targets: targets.iter().map(target).collect(),
        target_security: Security::plain(),
        scheduling: Scheduling {
            policy: Some(Arc::new(policy)),
            ..Scheduling::default()
        },
    }
}

/// Both ends of a channel, the bytes on the wire so far, and the relays that keep it up.
struct Pair {
    switch: Connection,
    controller: Connection,
    /// Streams of other agents, at the controller's side.
    streams: mpsc::Receiver<Connection>,
    counts: [Counts; 2],
    end: Arc<End>,
    hub: Arc<Hub>,
    _tasks: JoinSet<()>,
    _pki: Pki,
}

impl Pair {
    async fn new(hub_policy: &str, end_policy: &str) -> Pair {
        let pki = Pki::new();
        let (hand, mut handed) = mpsc::channel(1);
        let any: Method = "pquic:0:127.0.0.1".parse().expect("a method");
        let (hand_streams, streams) = mpsc::channel(1);
        let others = Kind::ALL.map(|kind| (kind.name(), Target::Hand(hand_streams.clone())));
        let mut targets = vec![(OPENFLOW, Target::Hand(hand))];
        targets.extend(others);
        let hub_config = config(Side::Controller, hub_policy, &targets);
        let security = pki.controller();
        let hub = Hub::bind(&any, &security, hub_config, Vec::new());
        let hub = hub.await.expect("it listens");
        let local = hub.local().clone();
        let Method::Listen(Transport::Quic, _, port) = local else {
            panic!("a hub listens on QUIC");
        };
        let (front, counts) = path(([127, 0, 0, 1], port).into());
        let relay: Method = format!("quic:127.0.0.1:{}", front.port())
            .parse()
            .expect("one");
        let end = End::new(
            config(Side::Switch, end_policy, &[]),
            SessionId([1; 16]),
            "controller",
        );
        let mut tasks = JoinSet::new();
        let runs = hub.clone();
        tasks.spawn(async move { runs.run().await });
        let (dials, security) = (end.clone(), pki.switch());
        tasks.spawn(async move { panic!("{}", switch(&dials, &[relay], &security).await) });
        let (ours, switch) = memory(1 << 20);
        end.adopt(OPENFLOW, ours);
        let controller = timeout(Duration::from_secs(20), handed.recv()).await;
        let mut pair = Pair {
            switch,
            controller: controller.expect("in time").expect("a connection"),
            streams,
            counts,
            end,
            hub,
            _tasks: tasks,
            _pki: pki,
        };
        // The first message of a channel is followed by all others, whatever it is.
        for to_switch in [false, true] {
            pair.carry(to_switch, 0, 1, 0).await;
        }
        pair
    }

    /// Sends messages of type `kind` one way. Returns the bytes by which each code point has grown
    /// there.
    async fn carry(
        &mut self,
        to_switch: bool,
        kind: u8,
        count: usize,
        body: usize,
    ) -> BTreeMap<u8, usize> {
        let counts = &self.counts[usize::from(to_switch)];
        let before = counts.lock().unwrap().clone();
        let (from, to) = match to_switch {
            true => (&mut self.controller, &mut self.switch),
            false => (&mut self.switch, &mut self.controller),
        };
        let len = 8 + body;
        let mut message = vec![4, kind, (len >> 8) as u8, len as u8, 0, 0, 0, 9];
        message.resize(len, 0);
        let mut got = vec![0; len * count];
        let arrives = async {
            from.writer
                .write_all(&message.repeat(count))
                .await
                .expect("it takes");
            to.reader.read_exact(&mut got).await.expect("it gives");
        };
        timeout(Duration::from_secs(20), arrives)
            .await
            .expect("in time");
        assert_eq!(got, message.repeat(count), "type {kind}");
        let after = counts.lock().unwrap().clone();
        let grown = |(dscp, n): (u8, usize)| (dscp, n - before.get(&dscp).copied().unwrap_or(0));
        after.into_iter().map(grown).collect()
    }

    async fn wait(&self, is_so: impl Fn(&Pair) -> bool) {
        let waited = timeout(Duration::from_secs(20), async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("{:?}", self.end.status()));
    }

    /// The bytes that went to the hub since, by code point.
    fn grown(&self, before: &BTreeMap<u8, usize>) -> BTreeMap<u8, usize> {
        let after = self.counts[0].lock().unwrap().clone();
        let grown = |(dscp, n): (u8, usize)| (dscp, n - before.get(&dscp).copied().unwrap_or(0));
        after.into_iter().map(grown).collect()
    }

    fn most_grown(&self, before: &BTreeMap<u8, usize>) -> u8 {
        let grown = self.grown(before);
        let most = grown.iter().max_by_key(|(_, bytes)| **bytes);
        *most.expect("something").0
    }

    /// The code point that messages of type `kind` leave by.
    async fn code_point(&mut self, to_switch: bool, kind: u8) -> u8 {
        let grown = self.carry(to_switch, kind, MESSAGES, BODY_BYTES).await;
        let most = grown
            .iter()
            .max_by_key(|(_, bytes)| **bytes)
            .expect("something");
        assert!(*most.1 >= MESSAGES * BODY_BYTES, "{kind}: {grown:?}");
        let others: usize = grown.values().sum::<usize>() - most.1;
        assert!(others < MESSAGES * BODY_BYTES / 4, "{kind}: {grown:?}");
        *most.0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_type_leaves_by_its_code_point_and_again_after_a_break() {
    let mut pair = Pair::new(MAP, MAP).await;
    for _ in 0..2 {
        // Echo requests; flow-mods and FLOW_REMOVED; multipart requests and replies.
        assert_eq!(pair.code_point(false, 2).await, 56);
        assert_eq!(pair.code_point(false, 11).await, 48);
        assert_eq!(pair.code_point(false, 19).await, 40);
        assert_eq!(pair.code_point(true, 2).await, 56);
        assert_eq!(pair.code_point(true, 14).await, 48);
        assert_eq!(pair.code_point(true, 18).await, 40);
        for counts in &pair.counts {
            let points: Vec<u8> = counts.lock().unwrap().keys().copied().collect();
            assert_eq!(points, [40, 48, 56]);
        }
        pair.end.break_link();
        pair.carry(false, 2, 1, 0).await;
    }
    // A message may arrive by datagram before the connection counts.
    pair.wait(|pair| pair.end.status().reconnects == 2).await;
}

/// Code points of the wire each way: of echo requests, of state, of requests and replies.
async fn code_points_of(pair: &mut Pair) -> [[u8; 3]; 2] {
    let mut points = [[0; 3]; 2];
    for (of, (to_switch, kinds)) in points
        .iter_mut()
        .zip([(false, [2, 11, 19]), (true, [2, 14, 18])])
    {
        for (point, kind) in of.iter_mut().zip(kinds) {
            *point = pair.code_point(to_switch, kind).await;
        }
    }
    points
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_one_generation_both_ends_use_the_code_points_of_the_controller_side() {
    let other = MAP.replace("CS7", "60").replace("CS5", "CS1");
    for (hub, settled) in [(other.as_str(), [60, 48, 8]), (QUEUES, [0; 3])] {
        let mut pair = Pair::new(hub, MAP).await;
        let points = code_points_of(&mut pair).await;
        assert_eq!(points, [settled; 2]);
        assert_eq!(pair.end.status().reconnects, 0, "refused by nobody");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_use_the_code_points_of_the_greater_generation() {
    let other = format!("Generation: 7\n{}", MAP.replace("CS5", "CS1"));
    let mut pair = Pair::new(MAP, &other).await;
    assert_eq!(code_points_of(&mut pair).await, [[56, 48, 8]; 2]);
    assert_eq!(pair.end.status().reconnects, 0);
}

/// Streams and datagrams of other agents use the map's code point for their class.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_agents_leave_by_the_code_point_of_their_class() {
    let mut pair = Pair::new(MAP, MAP).await;
    let any = UdpMethod::parse("pudp:0:127.0.0.1").expect("of UDP");
    let mut listener = DatagramListener::bind(&any.expect("right"))
        .await
        .expect("it listens");
    let client = tokio::net::UdpSocket::bind("127.0.0.1:0")
        .await
        .expect("a socket");
    let to = ("127.0.0.1", listener.local().port);
    client.send_to(&[7; BODY_BYTES], to).await.expect("sent");
    let (datagram, from) = listener.recv().await;
    // Datagrams that nobody takes at the other end cross the wire all the same.
    for (kind, expected) in Kind::ALL.into_iter().zip([56, 48, 48, 40, 40]) {
        let before = pair.counts[0].lock().unwrap().clone();
        for n in 1..=MESSAGES as u64 {
            pair.end
                .carry_datagram(kind.name(), datagram.clone(), from.clone());
            pair.wait(|pair| pair.end.status().datagrams.waiting == 0)
                .await;
            let all = kind as u64 * MESSAGES as u64 + n;
            pair.wait(|pair| pair.hub.status()[0].datagrams.dropped.no_target == all)
                .await;
        }
        assert_eq!(pair.most_grown(&before), expected, "{kind:?} by datagram");

        let before = pair.counts[0].lock().unwrap().clone();
        let (ours, mut agent) = memory(1 << 20);
        pair.end.adopt(kind.name(), ours);
        let bytes = [7; MESSAGES * BODY_BYTES];
        agent.writer.write_all(&bytes).await.expect("it takes");
        let taken = timeout(Duration::from_secs(20), pair.streams.recv()).await;
        let mut taken = taken.expect("in time").expect("a connection");
        let mut got = [0; MESSAGES * BODY_BYTES];
        taken.reader.read_exact(&mut got).await.expect("it gives");
        assert_eq!(pair.most_grown(&before), expected, "{kind:?} by stream");
    }
}

/// Sends messages of `kinds` in turn, numbered from 1 on each, until the end. Returns the number of
/// each that arrived, in their order.
async fn flow(
    from: &mut Writer,
    to: &mut Reader,
    kinds: [u8; 3],
    is_over: &AtomicBool,
) -> [u32; 3] {
    let total = AtomicUsize::new(usize::MAX);
    let sends = async {
        for n in 0.. {
            let is_last = is_over.load(Ordering::Relaxed) && n % 3 == 2;
            if is_last {
                total.store(n + 1, Ordering::Relaxed);
            }
            let mut message = vec![4, kinds[n % 3], 0, 200];
            message.extend_from_slice(&(n as u32 / 3 + 1).to_be_bytes());
            message.resize(200, 0);
            from.write_all(&message).await.expect("it takes");
            if is_last {
                break;
            }
            if n % 8 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let mut counts = [0u32; 3];
    let takes = async {
        let mut message = [0; 200];
        for n in 0.. {
            if n == total.load(Ordering::Relaxed) {
                break;
            }
            to.read_exact(&mut message).await.expect("it gives");
            let kind = kinds.iter().position(|kind| *kind == message[1]);
            let count = &mut counts[kind.expect("one of them")];
            *count += 1;
            assert_eq!(message[4..8], count.to_be_bytes(), "type {}", message[1]);
        }
    };
    tokio::join!(sends, takes);
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_map_has_its_connections_at_once_and_no_message_is_lost() {
    let mut pair = Pair::new(MAP, MAP).await;
    // Each map with the code points of echoes, of state, and of requests and replies.
    let maps = [
        (MAP.replace("CS7", "60").replace("CS5", "CS1"), [60, 48, 8]),
        (QUEUES.to_owned(), [0; 3]),
        (MAP.to_owned(), [56, 48, 40]),
        (MAP.replace("CS7", "CS6").replace("CS5", "CS6"), [48; 3]),
        (MAP.replace("CS6", "AF11"), [56, 10, 40]),
    ];
    for (generation, (map, points)) in (1..).zip(maps) {
        let map = format!("Generation: {generation}\n{map}");
        let ends = [pair.end.clone(), pair.hub.end(None).expect("one relay")];
        let is_over = AtomicBool::new(false);
        let (switch, controller) = (&mut pair.switch, &mut pair.controller);
        let up = flow(
            &mut switch.writer,
            &mut controller.reader,
            [2, 11, 19],
            &is_over,
        );
        let down = flow(
            &mut controller.writer,
            &mut switch.reader,
            [2, 14, 18],
            &is_over,
        );
        let pushes = async {
            // From either end in turn.
            let pushed = ends[generation % 2].push_policy(&map).await;
            pushed.expect("both take it");
            let wanted = BTreeSet::from(points);
            let is_so = |end: &Arc<End>| {
                let connections = end.status().connections;
                let there: Vec<u8> = connections.iter().map(|c| c.code_point).collect();
                there.len() == wanted.len() && there.into_iter().collect::<BTreeSet<_>>() == wanted
            };
            while !ends.iter().all(is_so) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            is_over.store(true, Ordering::Relaxed);
        };
        let all = async { tokio::join!(up, down, pushes) };
        let (up, down, ()) = timeout(Duration::from_secs(20), all)
            .await
            .expect("in time");
        for counts in [up, down] {
            assert!(counts[0] > 0 && counts == [counts[0]; 3], "{counts:?}");
        }
        assert_eq!(code_points_of(&mut pair).await, [points; 2], "{map}");
        assert_eq!(pair.end.status().reconnects, 0, "the session goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_out_that_names_a_buffer_is_of_the_rule_of_the_packet_in_it() {
    let map = "Rule #1: traffic_type=2, msg=packet_out, udp_dst=20000, action=queue_id:0
        Default: action=queue_id:1";
    let mut pair = Pair::new(map, map).await;
    let mut packet = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88]);
    packet.extend_from_slice(&20000u16.to_be_bytes());
    packet.resize(60, 0);
    // OpenFlow 1.0, buffer 7.
    let mut packet_in = vec![1, 10, 0, 78, 0, 0, 0, 9, 0, 0, 0, 7, 0, 60, 0, 1, 0, 0];
    packet_in.extend_from_slice(&packet);
    let output = [0, 1, 0, 8, 0, 0, 0, 8, 0, 2, 0, 0];
    let packet_out = |buffer| {
        let head = [1, 13, 0, 24, 0, 0, 0, 9, 0, 0, 0, buffer];
        [&head[..], &output].concat()
    };
    let write = pair.switch.writer.write_all(&packet_in);
    write.await.expect("it takes");
    let mut got = vec![0; packet_in.len()];
    let read = pair.controller.reader.read_exact(&mut got);
    read.await.expect("it gives");
    let packet_outs = [packet_out(7), packet_out(8)].concat();
    let write = pair.controller.writer.write_all(&packet_outs);
    write.await.expect("it takes");
    let mut got = vec![0; packet_outs.len()];
    let read = pair.switch.reader.read_exact(&mut got);
    read.await.expect("it gives");
    assert_eq!(got, packet_outs);
    let line = pair.hub.end(None).expect("one relay").status().line;
    assert_eq!(line.expect("it schedules").rules, [(1, 1)]);
}
