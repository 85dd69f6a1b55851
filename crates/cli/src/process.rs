//! Settings of the kernel and the C library that a process makes before it starts its work.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files. A connection is a file descriptor; the default soft limit of
/// 1024 is below the number of switches served.
pub fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
