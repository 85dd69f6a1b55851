//! Commands that wait for sockets.

use std::future::Future;

use crate::failure::Failure;

/// Runs a command to its end on this thread.
///
/// # Errors
/// Returns the command's error, or one if the machine has no room for a poll of sockets.
pub fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::machine(format!("cannot wait for sockets: {error}")))?;
    runtime.block_on(command)
}
