//! Connections are spread over threads.

mod common;

use std::num::NonZeroUsize;
use std::time::Duration;

use common::switch::PATIENCE;
use common::{Pki, dial_method, pair, passive};
use net::method::Method;
use net::tls::Security;
use net::transport::{Limits, Listener, connect_at};
use net::workers::Workers;

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
