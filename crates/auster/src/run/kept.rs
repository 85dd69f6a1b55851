//! Connections of switches that survive a restart of auster: the service manager keeps their
//! sockets, and the next process takes them over.
//!
//! Each kept connection is at the end of a message in both directions. So the next process only has
//! to know the version, which is the name under which the socket is stored. It asks the switch for
//! everything else, as on a new connection.

use std::time::Duration;

use cli::service::{Manager, Stored};
use driver::Kept;
use openflow::Version;

use super::ControllerDriver;
use super::listeners::Bound;

/// The time that the controller has to process the messages already read.
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

/// Serves the connections that the previous process left if one of `bound` had accepted them and
/// their version is one of `versions`. Closes all others.
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
