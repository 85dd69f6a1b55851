//! Helpers of the tests that call a real etcd.
#![allow(dead_code, reason = "each test uses its part of it")]

pub mod etcd;

use std::sync::Arc;
use std::time::Duration;

use ::etcd::{Client, Config, Error};
use net::tls::{CredentialFiles, Security};

use etcd::{Etcd, Files, PATIENCE};

/// A deadline that a busy machine keeps as well.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A client of all members, without TLS.
pub fn client(etcd: &Etcd) -> Client {
    client_of(&etcd.endpoints(), None, DEADLINE)
}

pub fn client_of(endpoints: &[String], files: Option<&Files>, deadline: Duration) -> Client {
    Client::new(config(endpoints, files, deadline)).unwrap()
}

pub fn config(endpoints: &[String], files: Option<&Files>, deadline: Duration) -> Config {
    let endpoints = endpoints.iter().map(|text| text.parse().unwrap()).collect();
    let tls = files.map(|files| {
        let files = CredentialFiles {
            private_key: files.key.clone(),
            certificate: files.certificate.clone(),
            ca: files.ca.clone(),
            crl: None,
        };
        Security::new(Arc::new(files.load().unwrap()))
    });
    Config {
        tls,
        deadline,
        ..Config::new(endpoints)
    }
}

/// Repeats a call that fails for a reason that passes with time: members without a leader, a
/// deadline on a busy machine.
pub async fn eventually<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let repeated = async {
        loop {
            match call().await {
                Err(Error::Unreachable(_) | Error::Unknown(_)) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                outcome => return outcome.unwrap(),
            }
        }
    };
    within(repeated).await
}

/// Waits for a future, and panics if it takes too long for any machine.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.expect("in time")
}
