//! Strangers of one network do not delay the QUIC handshakes of others. On loopback, 127.0.1.0/24
//! is the strangers' network.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Leaf, Pki};
use net::method::{Host, Method};
use net::quic;
use net::tls::{Role, Security};
use relay::{Config, SessionId, Side};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tunnel::{End, EndConfig, Hub, Scheduling, switch};

const PATIENCE: Duration = Duration::from_secs(60);

fn port(method: &Method) -> u16 {
    let (Method::Dial(_, Host::V4(_), port) | Method::Listen(_, Host::V4(_), port)) = method else {
        panic!("{method} has no port");
    };
    *port
}

/// Stands between strangers and the relay. It lets a Retry pass, by which a stranger can prove its
/// address, and drops every other answer, so that no handshake is ever done.
struct Lossy {
    at: SocketAddr,
    /// The last flight of each stranger, by its address.
    flights: Mutex<BTreeMap<SocketAddr, Flight>>,
}

/// A stranger's last datagram. It carries the proof of its address once there is one.
#[derive(Clone)]
struct Flight {
    from: Arc<UdpSocket>,
    datagram: Vec<u8>,
}

impl Lossy {
    async fn start(to: SocketAddr) -> Arc<Lossy> {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let at = front.local_addr().unwrap();
        let lossy = Arc::new(Lossy {
            at,
            flights: Mutex::default(),
        });
        let ours = lossy.clone();
        tokio::spawn(async move {
            let mut datagram = vec![0; 65_536];
            loop {
                let (len, from) = front.recv_from(&mut datagram).await.unwrap();
                let known = ours.flights.lock().unwrap().get(&from).cloned();
                let back = match known {
                    Some(flight) => flight.from,
                    None => retries_only(front.clone(), from).await,
                };
                let _ = back.send_to(&datagram[..len], to).await;
                let flight = Flight {
                    from: back,
                    datagram: datagram[..len].to_vec(),
                };
                ours.flights.lock().unwrap().insert(from, flight);
            }
        });
        lossy
    }

    /// Sends the flights again, one after the other, `per_s` a second, and counts them in `sent`.
    async fn replay(&self, to: SocketAddr, per_s: u64, sent: &AtomicU64) {
        let mut tick = interval(Duration::from_millis(10));
        for turn in 0.. {
            tick.tick().await;
            let flights: Vec<_> = self.flights.lock().unwrap().values().cloned().collect();
            let some = flights
                .iter()
                .cycle()
                .skip(turn * per_s as usize / 100 % flights.len());
            for flight in some.take(per_s as usize / 100) {
                let _ = flight.from.send_to(&flight.datagram, to).await;
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A socket in the strangers' network. Only a Retry among its answers reaches `stranger`.
async fn retries_only(front: Arc<UdpSocket>, stranger: SocketAddr) -> Arc<UdpSocket> {
    let back = Arc::new(UdpSocket::bind("127.0.1.1:0").await.unwrap());
    let ours = back.clone();
    tokio::spawn(async move {
        let mut datagram = vec![0; 65_536];
        loop {
            let (len, _) = back.recv_from(&mut datagram).await.unwrap();
            let is_retry = datagram[0] & 0xf0 == 0xf0;
            if is_retry {
                let _ = front.send_to(&datagram[..len], stranger).await;
            }
        }
    });
    ours
}

/// A controller's relay and, before it, strangers whose handshakes are never done.
struct Siege {
    hub: Arc<Hub>,
    to: SocketAddr,
    lossy: Arc<Lossy>,
    pki: Pki,
    tasks: JoinSet<()>,
    strangers: Vec<(quinn::Endpoint, quinn::Connecting)>,
}

impl Siege {
    async fn start() -> Siege {
        let pki = Pki::new();
        let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
        let config = end_config(Side::Controller);
        let hub = Hub::bind(&any, &pki.controller(), config, vec![]).await;
        let hub = hub.unwrap();
        let mut tasks = JoinSet::new();
        let runs = hub.clone();
        tasks.spawn(async move { runs.run().await });
        let to: SocketAddr = ([127, 0, 0, 1], port(hub.local())).into();
        Siege {
            lossy: Lossy::start(to).await,
            hub,
            to,
            pki,
            tasks,
            strangers: Vec::new(),
        }
    }

    /// Starts `count` strangers, and waits until half of them had to prove their address.
    async fn besiege(&mut self, count: u64) {
        let client = quic::client_config(&self.pki.switch(), &[quic::ALPN_RELAY]).unwrap();
        for _ in 0..count {
            let endpoint = quic::endpoint(([127, 0, 0, 1], 0).into(), None).unwrap();
            let connecting = endpoint.connect_with(client.clone(), self.lossy.at, "localhost");
            self.strangers.push((endpoint, connecting.unwrap()));
        }
        let crowded = async {
            while self.hub.turns().told_to_wait < count / 2 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, crowded).await.expect("they come");
    }

    /// An honest switch's relay connects from another network, and completes its handshake.
    async fn serve(&mut self) {
        let credentials = self.pki.credentials("s1", &Leaf::of(Role::Switch));
        let security = Security::new(credentials).expecting(Role::Controller);
        let relay: Method = format!("quic:{}", self.to).parse().unwrap();
        let end = End::new(end_config(Side::Switch), SessionId([1; 16]), "controller");
        let dials = end.clone();
        let dialling = self
            .tasks
            .spawn(async move { panic!("{}", switch(&dials, &[relay], &security).await) });
        timeout(PATIENCE, end.fresh()).await.expect("it is served");
        dialling.abort();
    }

    fn turns(&self) -> u64 {
        let turns = self.hub.turns();
        turns.begun + turns.too_late + turns.crowded
    }
}

fn end_config(side: Side) -> EndConfig {
    EndConfig {
        session: Config::new(side),
        targets: BTreeMap::new(),
        target_security: Security::plain(),
        scheduling: Scheduling::default(),
    }
}

/// Each stranger has proved its address, and its first flight is sent again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_quic_handshakes_of_one_network_keep_no_other_waiting() {
    const REPLAYED: u64 = 300;
    let mut besieged = Siege::start().await;
    besieged.besiege(REPLAYED).await;
    let before = besieged.turns();
    besieged.serve().await;
    let passed = besieged.turns() - before;
    assert!(
        passed < REPLAYED / 4,
        "{passed} others had their turn before it"
    );
}

/// A measurement: how long a switch's relay takes to be served, without strangers and beside 1,000
/// replayed handshakes a second. A Retry is good for 15 s, so each round brings strangers anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of times: run it alone, in a release build, with --nocapture"]
async fn how_long_a_relay_waits_beside_replayed_handshakes() {
    const ROUNDS: u64 = 3;
    const STRANGERS: u64 = 700;
    const SERVED: usize = 150;
    for round in 0..ROUNDS {
        let mut besieged = Siege::start().await;
        let idle = times(&mut besieged, SERVED).await;
        besieged.besiege(STRANGERS).await;
        let lossy = besieged.lossy.clone();
        let (to, sent) = (besieged.to, Arc::new(AtomicU64::new(0)));
        let counted = sent.clone();
        let replay = tokio::spawn(async move { lossy.replay(to, 1_000, &counted).await });
        let since = Instant::now();
        let beside = times(&mut besieged, SERVED).await;
        let rate = sent.load(Ordering::Relaxed) as f64 / since.elapsed().as_secs_f64();
        replay.abort();
        println!(
            "round {round}: alone {idle}; beside {rate:.0} replayed a second {beside}; {:?}",
            besieged.hub.turns()
        );
    }
}

async fn times(besieged: &mut Siege, count: usize) -> String {
    let mut times = Vec::new();
    for _ in 0..count {
        let since = Instant::now();
        besieged.serve().await;
        times.push(since.elapsed().as_secs_f64() * 1000.0);
        sleep(Duration::from_millis(50)).await;
    }
    times.sort_by(f64::total_cmp);
    let [median, p99, most] =
        [0.5, 0.99, 1.0].map(|part| times[(count - 1).min((count as f64 * part) as usize)]);
    format!("p50 {median:.1} ms, p99 {p99:.1} ms, most {most:.1} ms of {count}")
}
