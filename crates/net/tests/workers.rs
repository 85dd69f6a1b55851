//! Connections are spread over threads and live there.

mod common;

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::time::Duration;

use common::switch::PATIENCE;
use common::{Pki, dial_method, pair, passive};
use control::controller::{Controller, ControllerConfig};
use net::clock::Clock;
use net::driver::{Driver, DriverConfig};
use net::method::{Host, Method};
use net::tls::Security;
use net::transport::{Limits, Listener, connect_at};
use net::workers::Workers;
use openflow::hello::Hello;
use openflow::{Message, Version, Xid, encode};

async fn listen_over(workers: &Workers, method: &str, security: &Security) -> Listener {
    let method: Method = method.parse().unwrap();
    Listener::bind_over(Some(workers), &method, security, Limits::default())
        .await
        .unwrap()
}

#[tokio::test]
async fn over_every_transport_connections_are_spread_evenly_and_leave_their_places() {
    let pki = Pki::new();
    let workers = Workers::start(NonZeroUsize::new(3).unwrap()).unwrap();
    for kind in ["tcp", "ssl", "quic", "unix"] {
        let method = passive(kind, pki.dir.path());
        let mut listener = listen_over(&workers, &method, &pki.controller()).await;
        let mut pairs = Vec::new();
        for _ in 0..6 {
            pairs.push(pair(&mut listener, &pki.switch()).await);
        }
        assert_eq!(workers.loads(), [2, 2, 2], "{kind}");
        let (method, security) = (dial_method(&listener), pki.switch());
        let dialled = connect_at(workers.place(), &method, &security)
            .await
            .unwrap();
        assert_eq!(dialled.place.as_ref().unwrap().worker(), 0);
        drop((pairs, dialled, listener));
        let emptied = async {
            while workers.loads() != [0, 0, 0] {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let left = tokio::time::timeout(PATIENCE, emptied).await;
        left.unwrap_or_else(|_| panic!("{kind}: {:?}", workers.loads()));
    }
}

/// The runtime that accepts is stuck from here on; the connection's worker is not.
#[tokio::test]
async fn a_connection_is_served_while_the_runtime_that_accepted_it_is_stuck() {
    let workers = Workers::start(NonZeroUsize::MIN).unwrap();
    let controller = Controller::new(ControllerConfig::default(), [7; 32]);
    let (driver, _notices) =
        Driver::start(controller, Clock::start(), DriverConfig::default()).unwrap();
    let mut listener = listen_over(&workers, "ptcp:0:127.0.0.1", &Security::plain()).await;
    let Method::Dial(_, Host::V4(address), port) = dial_method(&listener) else {
        panic!("not an address");
    };
    let mut peer = std::net::TcpStream::connect((address, port)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    driver.serve(listener.accept().await);

    let hello = Message::Hello(Hello::offering(&[Version::V13]));
    let hello = encode(Version::V13, Xid(1), &hello).unwrap();
    peer.write_all(hello.bytes()).unwrap();
    let mut answered = Vec::new();
    // HELLO and FEATURES_REQUEST.
    while answered.len() < 16 + 8 {
        let mut some = [0; 64];
        let count = peer.read(&mut some).expect("an answer");
        assert!(count > 0, "closed");
        answered.extend_from_slice(&some[..count]);
    }
}
