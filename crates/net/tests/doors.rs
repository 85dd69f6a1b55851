//! Strangers from one network do not delay the TLS handshakes of others. The tests run on loopback,
//! where 127.0.1.0/24 is the strangers' network.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Pki, pair};
use net::method::{Host, Method};
use net::transport::{Limits, Listener, Refusal};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn port(method: &Method) -> u16 {
    let (Method::Dial(_, Host::V4(_), port) | Method::Listen(_, Host::V4(_), port)) = method else {
        panic!("{method} has no port");
    };
    *port
}

/// A connection from the strangers' network.
async fn strange(port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 1, 1], 0).into()).unwrap();
    let to = ([127, 0, 0, 1], port).into();
    socket.connect(to).await.unwrap()
}

async fn few_handshakes(pki: &Pki) -> Listener {
    let limits = Limits {
        handshakes_max: 8,
        ..Limits::default()
    };
    let method = "pssl:0:127.0.0.1".parse().unwrap();
    let listener = Listener::bind(&method, &pki.controller(), limits).await;
    listener.unwrap()
}

/// If handshakes were refused one by one, the connection of another network would be the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_one_network_keep_no_other_waiting() {
    const SILENT: usize = 200;
    let pki = Pki::new();
    let mut listener = few_handshakes(&pki).await;
    let port = port(listener.local());
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(strange(port).await);
    }
    let refusals = listener.refusals().clone();
    let security = pki.switch();
    let in_time = timeout(PATIENCE, pair(&mut listener, &security)).await;
    let _connection = in_time.expect("it is served");
    let refused = refusals.get(Refusal::Timeout);
    assert!(
        refused < SILENT as u64 / 2,
        "it waited for {refused} of them"
    );
}

/// These connections have cost a handshake, and the listener waits for them: each has a turn, for
/// three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_stop_half_way_keep_no_other_network_waiting() {
    const HALF: usize = 40;
    let pki = Pki::new();
    let mut listener = few_handshakes(&pki).await;
    let refusals = listener.refusals().clone();
    let config = Arc::new(pki.switch().client_config(&[]).unwrap());
    let mut half = Vec::new();
    for _ in 0..HALF {
        let mut stream = strange(port(listener.local())).await;
        let name = "localhost".try_into().unwrap();
        let mut hello = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let mut flight = Vec::new();
        hello.write_tls(&mut flight).unwrap();
        stream.write_all(&flight).await.unwrap();
        half.push(stream);
    }
    let security = pki.switch();
    let in_time = timeout(PATIENCE, pair(&mut listener, &security)).await;
    let _connection = in_time.expect("it is served");
    let refused = refusals.get(Refusal::Timeout);
    assert!(refused < HALF as u64 / 2, "it waited for {refused} of them");
}
