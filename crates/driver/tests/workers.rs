//! A connection lives on its worker, whatever the runtime that accepted it does.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::num::NonZeroUsize;

use common::dial_method;
use common::switch::PATIENCE;
use control::clustered::Clustered;
use control::controller::{Controller, ControllerConfig};
use driver::{Driver, DriverConfig};
use net::clock::Clock;
use net::method::{Host, Method};
use net::tls::Security;
use net::transport::{Limits, Listener};
use net::workers::Workers;
use openflow::hello::Hello;
use openflow::{Message, Version, Xid, encode};

async fn listen_over(workers: &Workers) -> Listener {
    let method: Method = "ptcp:0:127.0.0.1".parse().unwrap();
    let security = Security::plain();
    Listener::bind_over(Some(workers), &method, &security, Limits::default())
        .await
        .unwrap()
}

/// The runtime that accepts is stuck from here on; the connection's worker is not.
#[tokio::test]
async fn a_connection_is_served_while_the_runtime_that_accepted_it_is_stuck() {
    let workers = Workers::start(NonZeroUsize::MIN).unwrap();
    let controller = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
    let (driver, _notices) =
        Driver::start(controller, Clock::start(), DriverConfig::default()).unwrap();
    let mut listener = listen_over(&workers).await;
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
