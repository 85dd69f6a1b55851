//! Messages between two ends over TCP, TLS, QUIC or our relay pair, to compare the four.
//!
//! Two ends, each a thread in a network namespace of its own, are joined by the lab's link: fixed
//! delay, seeded loss, every frame counted. Each end has agents that send OpenFlow messages by a
//! Poisson process, in both directions at once and open loop. Delay counts from the time a message
//! was due, so it includes the time for which a sender was held up. The methods differ only in the
//! carrier of the bytes.

mod carrier;
mod cell;
pub mod condition;
mod end;
mod floor;
pub mod method;
mod outlet;
pub mod source;
mod tally;

use std::sync::{Arc, Mutex, PoisonError};

use cli::failure::Failure;
use net::tls::{Role, Security};

pub use cell::{CellResult, LinkFigures};
pub use tally::Arrival;

use self::condition::Cell;
use crate::certificates::{self, Certificates};

/// The certificates of all cells of this process.
static SECURITY: Mutex<Option<Security>> = Mutex::new(None);

/// Measures one cell, as root: the ends get network namespaces of their own.
pub fn measure(cell: Cell) -> Result<CellResult, String> {
    let security = {
        let mut known = SECURITY.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match known.take() {
            Some(made) => made,
            None => security().map_err(|failure| failure.message().to_owned())?,
        };
        known.insert(made).clone()
    };
    cell::run(&Arc::new(cell), &security)
}

/// Creates one certificate that serves both ends during the run: identity is not measured.
fn security() -> Result<Security, Failure> {
    let certificates = Certificates::new()?;
    let host = carrier::CONTROLLER_ADDRESS.to_string();
    certificates.issue("ca", Role::Controller, &["bench".to_owned()], &host, 2)?;
    let files = certificates::files(certificates.dir(), "bench", "ca");
    Ok(Security::new(Arc::new(files.load()?)))
}
