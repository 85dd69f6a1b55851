//! Advice for an operator about an error of the system. It follows the path or method in a message.

use std::io::{Error, ErrorKind};

/// Returns the advice for a file that is read, written or made.
pub fn file_problem(error: &Error) -> String {
    let said = match error.kind() {
        ErrorKind::NotFound => "No such file or directory; check the path",
        ErrorKind::PermissionDenied => {
            "Permission denied; run as a user who may, or change its owner or mode"
        }
        ErrorKind::IsADirectory => "it is a directory; name a file",
        ErrorKind::NotADirectory => "a part of the path is no directory; check the path",
        ErrorKind::AlreadyExists | ErrorKind::AddrInUse => {
            "it is there already; remove it, or name another"
        }
        ErrorKind::InvalidData => "not text in UTF-8; is it the right file?",
        ErrorKind::StorageFull => "no space is left there; make some, or name another place",
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only; name another place",
        _ => return error.to_string(),
    };
    said.to_owned()
}

/// Returns the advice for an address or a Unix socket to listen on.
pub fn bind_problem(error: &Error) -> String {
    let said = match error.kind() {
        ErrorKind::AddrInUse => "the address is in use; stop what listens there, or take another",
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has the address; `ip address` shows those it has"
        }
        ErrorKind::PermissionDenied => {
            "no permission to listen there; take a port above 1023 or a path of your own, or use \
             sudo"
        }
        ErrorKind::NotFound => "the socket's directory is not there; make it, or name another",
        _ => return error.to_string(),
    };
    said.to_owned()
}
