//! Agents that speak UDP, through two relays over loopback: by QUIC's datagrams, by streams where
//! those are too short, and by TLS.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::Pki;
use net::method::{Method, UdpMethod};
use net::tls::Security;
use net::transport::TransportKind;
use relay::{Config, Kind, SessionId, Side};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel::{DatagramListener, DatagramStatus, End, EndConfig, Hub, Scheduling, Target, switch};

const PATIENCE: Duration = Duration::from_secs(180);

/// A relay pair whose controller's side listens for two agents. Its tasks end with it.
struct Pair {
    hub: Arc<Hub>,
    end: Arc<End>,
    /// Addresses to which clients send for `echo`, and for `nobody`, which the switch's side lacks.
    echo: SocketAddr,
    nobody: SocketAddr,
    _pki: Pki,
    _tasks: JoinSet<()>,
}

fn config(side: Side, target: Option<SocketAddr>) -> EndConfig {
    let target = target.map(|address| {
        let method = UdpMethod::parse(&format!("udp:{address}"));
        let method = method.expect("of UDP").expect("right");
        ("echo".to_owned(), Target::Datagrams(method))
    });
    EndConfig {
        session: Config {
            classes: [("echo".to_owned(), Kind::State)].into(),
            ..Config::new(side)
        },
        targets: target.into_iter().collect(),
        target_security: Security::plain(),
        scheduling: Scheduling::default(),
    }
}

fn port(method: &Method) -> u16 {
    let (Method::Dial(_, _, port) | Method::Listen(_, _, port)) = method else {
        panic!("{method} has no port");
    };
    *port
}

impl Pair {
    /// `front`: where the switch's relay dials, if not the hub itself.
    async fn new(front: Option<u16>) -> Pair {
        let pki = Pki::new();
        let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
        let (security, sides) = (pki.controller(), config(Side::Controller, None));
        let hub = Hub::bind(&any, &security, sides, Vec::new()).await.unwrap();
        let mut tasks = JoinSet::new();
        let runs = hub.clone();
        tasks.spawn(async move { runs.run().await });
        let echo = listen(&hub, "echo", &mut tasks).await;
        let nobody = listen(&hub, "nobody", &mut tasks).await;

        let agent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let sides = config(Side::Switch, Some(agent.local_addr().unwrap()));
        tasks.spawn(answer(agent));
        let end = End::new(sides, SessionId([7; 16]), "controller");
        let relay = format!("quic:127.0.0.1:{}", front.unwrap_or(port(hub.local())));
        let relay: Method = relay.parse().unwrap();
        let (dials, security) = (end.clone(), pki.switch());
        tasks.spawn(async move {
            panic!(
                "{}",
                switch(&dials, std::slice::from_ref(&relay), &security).await
            )
        });
        if let Some(front) = front {
            tasks.spawn(forward_tcp(front, port(hub.local())));
        }
        let pair = Pair {
            hub,
            end,
            echo,
            nobody,
            _pki: pki,
            _tasks: tasks,
        };
        pair.wait("connected", |pair| {
            pair.end.status().is_up && pair.hub.status().iter().any(|end| end.is_up)
        })
        .await;
        pair
    }

    async fn wait(&self, what: &str, is_so: impl Fn(&Pair) -> bool) {
        let waited = timeout(PATIENCE, async {
            while !is_so(self) {
                sleep(Duration::from_millis(10)).await;
            }
        });
        let late = waited.await.is_err();
        assert!(
            !late,
            "{what}: {:?} {:?}",
            self.end.status(),
            self.hub.status()
        );
    }

    fn of_hub(&self) -> DatagramStatus {
        self.hub.status()[0].datagrams
    }
}

/// Carries datagrams for `agent` that arrive at the controller's side. Returns the address there.
async fn listen(hub: &Arc<Hub>, agent: &'static str, tasks: &mut JoinSet<()>) -> SocketAddr {
    let any = UdpMethod::parse("pudp:0:127.0.0.1").unwrap().unwrap();
    let mut listener = DatagramListener::bind(&any).await.unwrap();
    let port = listener.local().port;
    let hub = hub.clone();
    tasks.spawn(async move {
        loop {
            let (datagram, from) = listener.recv().await;
            match hub.end(None) {
                Some(end) => end.carry_datagram(agent, datagram, from),
                None => hub.drop_datagram(),
            }
        }
    });
    ([127, 0, 0, 1], port).into()
}

/// The agent: returns each datagram reversed.
async fn answer(agent: UdpSocket) {
    let mut datagram = vec![0; 65_536];
    loop {
        let (len, from) = agent.recv_from(&mut datagram).await.unwrap();
        datagram[..len].reverse();
        agent.send_to(&datagram[..len], from).await.unwrap();
    }
}

async fn forward_tcp(from: u16, to: u16) {
    let listener = TcpListener::bind(("127.0.0.1", from)).await.unwrap();
    let mut tasks = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        tasks.spawn(async move {
            let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

/// A client that asks and waits for its own answer, several times.
async fn ask(number: u8, agent: SocketAddr, sizes: &[usize]) {
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(agent).await.unwrap();
    let mut answer = vec![0; 65_536];
    for size in sizes {
        let mut question = vec![number; *size];
        if let Some(last) = question.last_mut() {
            *last = 255;
        }
        client.send(&question).await.unwrap();
        let len = timeout(PATIENCE, client.recv(&mut answer)).await;
        let len = len
            .unwrap_or_else(|_| panic!("no answer to {size} bytes"))
            .unwrap();
        question.reverse();
        assert!(answer[..len] == question, "not the answer to {size} bytes");
    }
}

async fn ask_all(agent: SocketAddr, sizes: &'static [usize]) {
    let mut clients = JoinSet::new();
    for number in 0..10 {
        clients.spawn(ask(number, agent, sizes));
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}

/// Checks that every datagram taken is counted somewhere.
fn assert_all_counted(status: &DatagramStatus) {
    let dropped = &status.dropped;
    let lost = dropped.disconnected + dropped.unwanted + dropped.overflowed + dropped.too_long;
    let known = status.sent + status.waiting as u64 + lost;
    assert_eq!(status.taken, known, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_has_its_own_answers_whatever_their_length() {
    let pair = Pair::new(None).await;
    ask_all(pair.echo, &[1, 0, 100, 1000, 100, 1472, 4000, 1]).await;
    ask(10, pair.echo, &[65_000]).await;
    for status in [pair.end.status().datagrams, pair.of_hub()] {
        assert_eq!((status.taken, status.given), (81, 81), "{status:?}");
        assert_eq!(status.taken_bytes, status.given_bytes);
        // Datagrams longer than a packet of QUIC.
        assert_eq!(status.by_stream, 21, "{status:?}");
        assert_eq!(status.dropped, Default::default());
        assert_all_counted(&status);
    }
    assert_eq!((pair.of_hub().peers, pair.of_hub().sockets), (11, 0));
    let ours = pair.end.status().datagrams;
    assert_eq!((ours.peers, ours.sockets), (0, 11));
    assert!(pair.end.status().channels.is_empty(), "no stream is opened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_udp_does_not_get_through_datagrams_go_by_tls() {
    // Nobody answers UDP there, and TCP is forwarded.
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::new(Some(silent.local_addr().unwrap().port())).await;
    assert_eq!(pair.end.status().transport, Some(TransportKind::Tls));
    ask_all(pair.echo, &[1, 0, 1000, 4000]).await;
    ask(10, pair.echo, &[65_000]).await;
    for status in [pair.end.status().datagrams, pair.of_hub()] {
        assert_eq!((status.taken, status.given), (41, 41), "{status:?}");
        assert_eq!(status.dropped, Default::default());
        assert_all_counted(&status);
    }
}

/// Datagrams that cannot be sent are dropped and counted, by reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_drop_is_counted_under_its_reason() {
    let pair = Pair::new(None).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.send_to(b"?", pair.nobody).await.unwrap();
    pair.wait("no target", |pair| {
        pair.end.status().datagrams.dropped.no_target == 1
    })
    .await;

    // More datagrams at once than may wait; none is awaited.
    let any = UdpMethod::parse("pudp:0:127.0.0.1").unwrap().unwrap();
    let mut listener = DatagramListener::bind(&any).await.unwrap();
    let to = listener.local().port;
    client.send_to(&[1; 1000], ("127.0.0.1", to)).await.unwrap();
    let (datagram, from) = listener.recv().await;
    let end = pair.hub.end(None).unwrap();
    for _ in 0..20_000 {
        end.carry_datagram("echo", datagram.clone(), from.clone());
    }
    let status = pair.of_hub();
    assert!(status.dropped.overflowed > 0, "{status:?}");
    assert!(status.waiting <= 1024, "{status:?}");
    pair.wait("all have left", |pair| pair.of_hub().waiting == 0)
        .await;
    assert_all_counted(&pair.of_hub());

    let lost = pair.of_hub().dropped.disconnected;
    pair.end.close("the test is over");
    pair.wait("disconnected", |_| !end.status().is_up).await;
    end.carry_datagram("echo", datagram, from);
    assert_eq!(end.status().datagrams.dropped.disconnected, lost + 1);
    assert_all_counted(&end.status().datagrams);
}
