//! Early data between two relays, on a path that records packets, delays them and repeats them.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use common::{Leaf, Pki};
use net::method::Method;
use net::quic;
use net::tls::{Role, Security};
use net::transport::{Limits, Listener};
use openflow::Frame;
use relay::wire::Control;
use relay::{Config, SessionId, Side};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel::{
    EarlyStatus, End, EndConfig, EndStatus, Hub, OPENFLOW, Scheduling, StrayStatus, Target, switch,
};

/// The number of tickets that the listening relay keeps.
const TICKETS_REMEMBERED: usize = 4096;
const TICKETS_GIVEN: usize = 4;

/// The network between the relays: loopback UDP, a socket for each that dials.
#[derive(Default)]
struct Path(Mutex<State>);

#[derive(Default)]
struct State {
    target: Option<SocketAddr>,
    rule: Rule,
    /// The packets of each dialler until it was answered, in the order in which they came.
    came: Vec<(SocketAddr, Vec<Bytes>)>,
    answered: BTreeSet<SocketAddr>,
    /// Diallers whose packets were lost at first, and will always be.
    lost: BTreeSet<SocketAddr>,
}

/// The treatment of packets to the target, and of its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rule {
    #[default]
    Passes,
    /// The dialler's packets pass until it has been answered.
    FirstFlightPasses,
    /// The dialler's packets pass but it gets no answer, so all that it sends is early.
    NotAnswered,
    /// None of the dialler's packets pass, and who dials now is not heard later either.
    Lost,
}

impl Path {
    async fn new(port: u16) -> (Arc<Path>, u16) {
        let path = Arc::new(Path::default());
        path.lead_to(port);
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let port = front.local_addr().unwrap().port();
        // Ends with the test's runtime.
        tokio::spawn(path.clone().carry(front));
        (path, port)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn lead_to(&self, port: u16) {
        self.lock().target = Some(([127, 0, 0, 1], port).into());
    }

    /// Applies the rule from now on.
    fn set(&self, rule: Rule) {
        self.lock().rule = rule;
    }

    /// The number of diallers.
    fn dialled(&self) -> usize {
        self.lock().came.len()
    }

    /// The first packets of the dialler with this number.
    fn first_flight(&self, number: usize) -> Vec<Bytes> {
        self.lock().came[number].1.clone()
    }

    /// Sends the flight again, from another port.
    async fn replay(&self, flight: &[Bytes]) {
        let target = self.lock().target.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for datagram in flight {
            socket.send_to(datagram, target).await.unwrap();
        }
    }

    /// Whether a datagram of `from` passes, and where to.
    fn pass(&self, from: SocketAddr, datagram: &[u8]) -> Option<SocketAddr> {
        let mut state = self.lock();
        let is_answered = state.answered.contains(&from);
        if !is_answered {
            let datagram = Bytes::copy_from_slice(datagram);
            match state.came.iter_mut().find(|(who, _)| *who == from) {
                Some((_, flight)) => flight.push(datagram),
                None => state.came.push((from, vec![datagram])),
            }
            if state.rule == Rule::Lost {
                state.lost.insert(from);
            }
        }
        let passes = match state.rule {
            Rule::Passes => !state.lost.contains(&from),
            Rule::FirstFlightPasses => !is_answered,
            Rule::NotAnswered => true,
            Rule::Lost => false,
        };
        state.target.filter(|_| passes)
    }

    async fn carry(self: Arc<Self>, front: Arc<UdpSocket>) {
        let mut backs: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
        let mut datagram = vec![0; 65_536];
        loop {
            let (len, client) = front.recv_from(&mut datagram).await.unwrap();
            if let Entry::Vacant(vacant) = backs.entry(client) {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
                vacant.insert(back.clone());
                let (path, front) = (self.clone(), front.clone());
                tokio::spawn(async move {
                    let mut datagram = vec![0; 65_536];
                    loop {
                        let (len, _) = back.recv_from(&mut datagram).await.unwrap();
                        if path.lock().rule == Rule::NotAnswered {
                            continue;
                        }
                        path.lock().answered.insert(client);
                        let _ = front.send_to(&datagram[..len], client).await;
                    }
                });
            }
            if let Some(target) = self.pass(client, &datagram[..len]) {
                let _ = backs[&client].send_to(&datagram[..len], target).await;
            }
        }
    }
}

/// A relay pair with one connection of a switch through it.
struct Pair {
    pki: Pki,
    hub: Arc<Hub>,
    hub_task: JoinSet<()>,
    path: Arc<Path>,
    /// The path's port towards diallers.
    front: u16,
    end: Arc<End>,
    listener: TcpListener,
    switch: TcpStream,
    controller: TcpStream,
    tasks: JoinSet<()>,
}

fn config(side: Side, targets: &[Method]) -> EndConfig {
    let target = |method: &Method| (OPENFLOW.to_owned(), Target::Dial(method.clone()));
    EndConfig {
        session: Config::new(side),
        targets: targets.iter().map(target).collect(),
        target_security: Security::plain(),
        scheduling: Scheduling::default(),
    }
}

async fn start_hub(security: &Security, controller: &TcpListener) -> (Arc<Hub>, JoinSet<()>) {
    let port = controller.local_addr().unwrap().port();
    let target = format!("tcp:127.0.0.1:{port}").parse().unwrap();
    let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
    let config = config(Side::Controller, &[target]);
    let hub = Hub::bind(&any, security, config, vec![]).await.unwrap();
    let mut tasks = JoinSet::new();
    let runs = hub.clone();
    tasks.spawn(async move { runs.run().await });
    (hub, tasks)
}

fn port(method: &Method) -> u16 {
    let (Method::Dial(_, _, port) | Method::Listen(_, _, port)) = method else {
        panic!("{method} has no port");
    };
    *port
}

impl Pair {
    /// Makes a pair of relays. The arguments are whether the dialling and the listening end ask for
    /// early data.
    async fn new(dials: bool, listens: bool) -> Pair {
        let pki = Pki::new();
        let switch = pki.switch();
        Pair::of(pki, switch.early_data(dials), listens).await
    }

    async fn of(pki: Pki, security: Security, listens: bool) -> Pair {
        let controller = pki.controller().early_data(listens);
        Pair::between(pki, security, controller).await
    }

    async fn between(pki: Pki, security: Security, controller: Security) -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (hub, hub_task) = start_hub(&controller, &listener).await;
        let (path, front) = Path::new(port(hub.local())).await;
        let relay: Method = format!("quic:127.0.0.1:{front}").parse().unwrap();
        let end = End::new(config(Side::Switch, &[]), SessionId([7; 16]), "controller");
        let mut tasks = JoinSet::new();
        let runs = end.clone();
        tasks.spawn(async move { panic!("{}", switch(&runs, &[relay], &security).await) });
        let any = "ptcp:0:127.0.0.1".parse().unwrap();
        let ours = Listener::bind(&any, &Security::plain(), Limits::default()).await;
        let mut ours = ours.unwrap();
        let openflow = port(ours.local());
        let adopts = end.clone();
        tasks.spawn(async move {
            loop {
                let connection = ours.accept().await;
                adopts.adopt(OPENFLOW, connection);
            }
        });
        let switch = TcpStream::connect(("127.0.0.1", openflow)).await.unwrap();
        let (controller, _) = within(listener.accept()).await.unwrap();
        let mut pair = Pair {
            pki,
            hub,
            hub_task,
            path,
            front,
            end,
            listener,
            switch,
            controller,
            tasks,
        };
        // Both ways, so that the packets after the handshake have arrived.
        pair.say(0, 1).await;
        pair.hear(0, 1).await;
        pair.answer(0).await;
        pair.answered(0).await;
        pair
    }

    /// PACKET_INs of these numbers.
    async fn say(&mut self, first: u32, count: u32) {
        let all: Vec<u8> = (first..first + count)
            .flat_map(|n| message(10, n))
            .collect();
        self.switch.write_all(&all).await.unwrap();
        let taken = u64::from(first + count);
        until(|| self.end.status().channels[0].taken.messages == taken).await;
    }

    /// Checks that the controller receives these, each once and in order, and nothing else.
    async fn hear(&mut self, first: u32, count: u32) {
        let got = read(&mut self.controller, count as usize).await;
        assert!(got.into_iter().eq(first..first + count));
    }

    /// A FLOW_MOD of that number.
    async fn answer(&mut self, number: u32) {
        let all = message(14, number);
        self.controller.write_all(&all).await.unwrap();
    }

    async fn answered(&mut self, number: u32) {
        assert_eq!(read(&mut self.switch, 1).await, [number]);
    }

    /// Breaks the connection while `count` PACKET_INs are lost with it; then `rule` applies.
    async fn break_with(&mut self, first: u32, count: u32, rule: Rule) {
        self.path.set(Rule::Lost);
        self.say(first, count).await;
        self.path.set(rule);
        self.end.break_link();
    }

    async fn is_resumed(&self, times: u64) {
        until(|| {
            let ours = self.end.status();
            ours.is_up && ours.resumptions == times && self.theirs().is_some_and(|end| end.is_up)
        })
        .await;
    }

    fn theirs(&self) -> Option<EndStatus> {
        self.hub.status().pop()
    }

    /// The settings that the switch's relay announces for its session.
    fn end_settings(&self) -> relay::Settings {
        let session = relay::Session::new(
            clock::Instant::START,
            Config::new(Side::Switch),
            SessionId([7; 16]),
        );
        session.settings(true)
    }

    fn taken(&self) -> EarlyStatus {
        self.theirs().unwrap().early
    }

    fn strays(&self) -> StrayStatus {
        self.hub.strays().unwrap()
    }
}

fn message(type_byte: u8, xid: u32) -> Vec<u8> {
    let mut bytes = vec![4, type_byte, 0, 64];
    bytes.extend(xid.to_be_bytes());
    bytes.resize(64, 0);
    bytes
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    let done = timeout(Duration::from_secs(20), what).await;
    done.expect("it happens within 20 s")
}

async fn until(is_so: impl Fn() -> bool) {
    within(async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Reads this many messages, and returns their numbers.
async fn read(stream: &mut TcpStream, count: usize) -> Vec<u32> {
    let (mut buf, mut numbers) = (BytesMut::new(), Vec::new());
    while numbers.len() < count {
        assert_ne!(within(stream.read_buf(&mut buf)).await.unwrap(), 0);
        while let Some(frame) = Frame::split_from(&mut buf).unwrap() {
            numbers.push(frame.xid().0);
        }
    }
    assert!(buf.is_empty(), "and nothing more");
    numbers
}

fn has_nothing(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_are_heard_before_the_handshake_is_confirmed_and_not_answered() {
    let mut pair = Pair::new(true, true).await;
    pair.break_with(1, 20, Rule::FirstFlightPasses).await;
    pair.hear(1, 20).await;
    let taken = pair.taken();
    assert_eq!((taken.taken, taken.refused), (20, 0));
    pair.answer(20).await;
    until(|| pair.theirs().unwrap().channels[0].taken.messages == 2).await;
    // Long enough for it to come if it were sent.
    sleep(Duration::from_millis(100)).await;
    assert!(has_nothing(&pair.switch), "who is there is not sure");
    assert_eq!(
        pair.theirs().unwrap().resumptions,
        0,
        "nothing is taken over"
    );
    pair.path.set(Rule::Passes);
    pair.answered(20).await;
    pair.is_resumed(1).await;
    pair.say(21, 1).await;
    pair.hear(21, 1).await;
    assert_eq!(pair.strays(), StrayStatus::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_flight_that_is_said_again_changes_nothing() {
    let mut pair = Pair::new(true, true).await;
    let before = pair.path.dialled();
    pair.break_with(1, 5, Rule::Passes).await;
    pair.hear(1, 5).await;
    pair.is_resumed(1).await;
    assert_eq!(pair.end.status().early.accepted, 1);
    let flight = pair.path.first_flight(before);
    // While its connection exists, and over another one.
    pair.path.replay(&flight).await;
    pair.break_with(6, 5, Rule::Passes).await;
    pair.hear(6, 5).await;
    pair.is_resumed(2).await;
    let taken = pair.taken();
    while pair.strays().tickets == 0 {
        // The old connection is forgotten a moment after its end.
        pair.path.replay(&flight).await;
        sleep(Duration::from_millis(50)).await;
    }
    pair.say(11, 1).await;
    pair.hear(11, 1).await;
    pair.answer(11).await;
    pair.answered(11).await;
    assert_eq!(pair.end.status().reconnects, 2, "nobody took over");
    assert_eq!(pair.taken(), taken);

    // After the end of the session.
    pair.tasks.shutdown().await;
    pair.end.close("the test is over");
    until(|| pair.theirs().is_none()).await;
    let tickets = pair.strays().tickets;
    while pair.strays().tickets == tickets {
        pair.path.replay(&flight).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert!(pair.theirs().is_none(), "no session begins by it");
    assert!(
        timeout(Duration::from_millis(100), pair.listener.accept())
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_flight_that_comes_late_repeats_what_is_there_and_takes_nothing_over() {
    let mut pair = Pair::new(true, true).await;
    let before = pair.path.dialled();
    pair.break_with(1, 5, Rule::Lost).await;
    until(|| pair.path.dialled() > before).await;
    pair.path.set(Rule::Passes);
    pair.hear(1, 5).await;
    pair.is_resumed(1).await;
    let early = pair.end.status().early;
    assert_eq!((early.sent, early.accepted), (2, 1), "the second dial");
    let late = pair.path.first_flight(before);
    let reconnects = pair.end.status().reconnects;
    let taken = pair.taken();
    pair.path.replay(&late).await;
    until(|| pair.taken().repeated >= taken.repeated + 5).await;
    assert_eq!(pair.taken().taken, taken.taken, "nothing is new");
    pair.say(6, 1).await;
    pair.hear(6, 1).await;
    pair.answer(6).await;
    pair.answered(6).await;
    assert_eq!(pair.end.status().reconnects, reconnects);
    assert_eq!(pair.hub.status().len(), 1);
}

/// The session is known, the ticket is not: a thousand others have come since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_taken_early_is_said_again_behind_the_same_handshake() {
    let mut pair = Pair::new(true, true).await;
    let config = quic::client_config(&pair.pki.switch(), &[quic::ALPN_RELAY]).unwrap();
    let to: SocketAddr = ([127, 0, 0, 1], port(pair.hub.local())).into();
    let mut others = JoinSet::new();
    for _ in 0..TICKETS_REMEMBERED / TICKETS_GIVEN {
        if others.len() == 16 {
            others.join_next().await.unwrap().unwrap();
        }
        let config = config.clone();
        others.spawn(async move {
            let endpoint = quic::endpoint(([127, 0, 0, 1], 0).into(), None).unwrap();
            let connecting = endpoint.connect_with(config, to, "localhost").unwrap();
            let connection = within(connecting).await.unwrap();
            // Behind the end of the handshake, by which its tickets are made.
            connection.close(0u32.into(), b"");
            endpoint.wait_idle().await;
        });
    }
    while let Some(done) = others.join_next().await {
        done.unwrap();
    }
    pair.break_with(1, 20, Rule::Passes).await;
    pair.hear(1, 20).await;
    pair.is_resumed(1).await;
    pair.answer(20).await;
    pair.answered(20).await;
    let early = pair.end.status().early;
    assert_eq!((early.sent, early.accepted, early.rejected), (1, 0, 1));
    assert_eq!((pair.strays().tickets, pair.taken().taken), (1, 0));
    // The tickets of that handshake are good again.
    pair.break_with(21, 1, Rule::Passes).await;
    pair.hear(21, 1).await;
    pair.is_resumed(2).await;
    assert_eq!(pair.end.status().early.accepted, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_relay_at_the_address_takes_no_early_data_and_begins_anew() {
    let mut pair = Pair::new(true, true).await;
    let security = pair.pki.controller().early_data(true);
    let (hub, task) = start_hub(&security, &pair.listener).await;
    pair.path.lead_to(port(hub.local()));
    (pair.hub, pair.hub_task) = (hub, task);
    pair.end.break_link();
    until(|| pair.end.status().sessions == 2).await;
    let early = pair.end.status().early;
    assert_eq!((early.accepted, early.rejected), (0, 1));
    assert_eq!(pair.strays().tickets, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_early_data_unless_both_ends_ask_for_it() {
    for (dials, listens) in [(false, true), (true, false)] {
        let mut pair = Pair::new(dials, listens).await;
        pair.break_with(1, 5, Rule::Passes).await;
        pair.hear(1, 5).await;
        pair.is_resumed(1).await;
        assert_eq!(pair.end.status().early, EarlyStatus::default());
        assert_eq!(pair.taken(), EarlyStatus::default());
    }
}

/// rustls takes a ticket as long as it is fresh, whatever has become of the certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_is_worth_no_more_than_its_certificate() {
    const LASTS: Duration = Duration::from_secs(5);
    let pki = Pki::new();
    let leaf = Leaf {
        lasts: Some(LASTS),
        ..Leaf::datapath(7)
    };
    let made = Instant::now();
    let security = Security::new(pki.credentials("sc", &leaf)).expecting(Role::Controller);
    let mut pair = Pair::of(pki, security.early_data(true), true).await;
    sleep((LASTS + Duration::from_secs(1)).saturating_sub(made.elapsed())).await;
    assert!(pair.theirs().unwrap().is_up, "it was good at the handshake");
    pair.break_with(1, 5, Rule::Passes).await;
    until(|| pair.end.status().early.sent >= 2).await;
    assert!(has_nothing(&pair.controller));
    assert_eq!(pair.taken(), EarlyStatus::default());
    assert_eq!(pair.strays(), StrayStatus::default(), "the ticket is known");
    assert!(!pair.theirs().unwrap().is_up);
}

/// A dialler made by hand: it keeps its tickets, and sends whatever the test asks for.
struct ByHand {
    config: quinn::ClientConfig,
    to: SocketAddr,
}

impl ByHand {
    /// Completes one handshake over the path, and keeps its tickets.
    async fn new(pair: &Pair, security: &Security) -> ByHand {
        let mut tls = security.client_config(&[quic::ALPN_RELAY]).unwrap();
        tls.resumption = rustls::client::Resumption::in_memory_sessions(16);
        tls.enable_early_data = true;
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        let mut transport = quinn::TransportConfig::default();
        transport.datagram_receive_buffer_size(Some(1 << 16));
        config.transport_config(Arc::new(transport));
        let to = ([127, 0, 0, 1], pair.front).into();
        let by_hand = ByHand { config, to };
        let first = within(by_hand.dial()).await.unwrap();
        // Its tickets have arrived once it learns that nobody awaits it.
        let (mut send, mut recv) = first.open_bi().await.unwrap();
        let join = Control::Join {
            session: SessionId([0; 16]),
            dscp: 0,
        };
        send.write_all(&join.encode()).await.unwrap();
        let _ = within(recv.read(&mut [0; 64])).await;
        by_hand
    }

    fn dial(&self) -> quinn::Connecting {
        let endpoint = quic::endpoint(([127, 0, 0, 1], 0).into(), None).unwrap();
        endpoint
            .connect_with(self.config.clone(), self.to, "localhost")
            .unwrap()
    }
}

/// Without early data a ticket is as good as a certificate, and stands for one that has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_alone_opens_nothing_when_its_certificate_is_over() {
    const LASTS: Duration = Duration::from_secs(5);
    let pair = Pair::new(true, true).await;
    let leaf = Leaf {
        lasts: Some(LASTS),
        ..Leaf::datapath(7)
    };
    let made = Instant::now();
    let credentials = pair.pki.credentials("short", &leaf);
    let security = Security::new(credentials).expecting(Role::Controller);
    let by_hand = ByHand::new(&pair, &security).await;
    sleep((LASTS + Duration::from_secs(1)).saturating_sub(made.elapsed())).await;
    let connection = within(by_hand.dial()).await.expect("the ticket is taken");
    match within(connection.closed()).await {
        quinn::ConnectionError::ApplicationClosed(close) => {
            assert_eq!(&close.reason[..], b"no certificate that is good now");
        }
        other => panic!("{other}"),
    }
}

/// Such data would be for any session of that id, also one that has begun since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_data_for_a_session_of_any_life_is_for_none() {
    let pair = Pair::new(true, true).await;
    let security = Security::new(pair.pki.credentials("sc", &Leaf::datapath(7)));
    let by_hand = ByHand::new(&pair, &security.expecting(Role::Controller)).await;
    // Confirmed, it would be judged by what a handshake is worth.
    pair.path.set(Rule::NotAnswered);
    let Ok((connection, _accepted)) = by_hand.dial().into_0rtt() else {
        panic!("it has a ticket");
    };
    let settings = relay::Settings {
        resumed: true,
        early: true,
        life: 0,
        ..pair.end_settings()
    };
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(&Control::Settings(settings).encode())
        .await
        .unwrap();
    let record = Bytes::from_static(&[0xff]);
    connection.send_datagram(record).unwrap();
    let is_judged = || pair.strays().sessions == 1 || pair.taken() != EarlyStatus::default();
    until(is_judged).await;
    assert_eq!(pair.taken(), EarlyStatus::default());
}

/// Early data is for the relay whose certificate the ticket stands for, and that certificate has
/// expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_early_to_a_relay_whose_certificate_is_over() {
    const LASTS: Duration = Duration::from_secs(5);
    let pki = Pki::new();
    let leaf = Leaf {
        lasts: Some(LASTS),
        ..Leaf::of(Role::Controller)
    };
    let made = Instant::now();
    let controller = Security::new(pki.credentials("short", &leaf)).expecting(Role::Switch);
    let security = pki.switch().early_data(true);
    let mut pair = Pair::between(pki, security, controller.early_data(true)).await;
    sleep((LASTS + Duration::from_secs(1)).saturating_sub(made.elapsed())).await;
    let dialled = pair.path.dialled();
    pair.break_with(1, 5, Rule::Passes).await;
    // Two dials, as the first may have begun before.
    let early = || pair.end.status().early;
    until(|| pair.path.dialled() >= dialled + 2 || early() != EarlyStatus::default()).await;
    assert_eq!(early(), EarlyStatus::default());
    assert!(has_nothing(&pair.controller));
    assert!(!pair.theirs().unwrap().is_up);
}
