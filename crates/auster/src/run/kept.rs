//! Connections of switches that go on while auster restarts: the service manager keeps their
//! sockets, and the next process takes them over.
//!
//! They are at the end of a message in both directions. So the version is all that the next process
//! has to know, and it is the name under which a socket is stored. Everything else is asked of the
//! switch, as on a new connection.

use std::time::Duration;

use cli::service::{Manager, Stored};
use driver::Kept;
use openflow::Version;

use super::ControllerDriver;
use super::listeners::Bound;

/// The time that the controller has to work off what was read.
pub const HOLD_MAX: Duration = Duration::from_millis(300);

/// Leaves connections for the next process.
pub fn leave(manager: &Manager, kept: Vec<Kept>) {
    if kept.is_empty() {
        return;
    }
    let named = kept.into_iter();
    let named = named.map(|kept| (kept.version.to_string(), kept.socket));
    let named: Vec<_> = named.collect();
    manager.store(&named);
    let count = named.len();
    tracing::info!("{count} connections of switches are left for the next auster");
}

/// Serves what the process before has left, if it came to one of `bound` in one of these versions.
/// Everything else is closed.
pub fn take_over(
    manager: &Manager,
    driver: &ControllerDriver,
    bound: &[Bound],
    versions: &[Version],
) {
    let Stored {
        connections,
        broken: mut closed,
        ..
    } = manager.take_stored();
    let mut taken = 0;
    for (name, socket) in connections {
        let spoken = |version: &&Version| version.to_string() == name;
        let version = versions.iter().find(spoken);
        let listener = bound.iter().find(|bound| bound.has_accepted(&socket));
        let connection = listener.and_then(|bound| bound.adopt(socket));
        match version.zip(connection) {
            Some((version, connection)) => {
                driver.serve_kept(connection, *version);
                taken += 1;
            }
            None => closed += 1,
        }
    }
    if taken > 0 {
        tracing::info!("{taken} connections of switches go on");
    }
    if closed > 0 {
        tracing::warn!(
            "{closed} connections that the last auster had left do not fit or are broken: closed"
        );
    }
}
