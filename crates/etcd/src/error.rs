//! The failures of a call, and the statuses of gRPC behind them.

use std::fmt;

use tonic::{Code, Status};

/// The reason why a call has no answer. A failed write was not done, unless this is
/// [`Error::Unknown`] or [`Error::Full`]; a write never fails with [`Error::Invalid`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No member answers, or none that has a leader. A later call may succeed.
    #[error("etcd is unreachable: {0}")]
    Unreachable(String),
    /// A write was sent, and no believable answer arrived: it may be done, or be done later.
    #[error("the outcome of a write to etcd is unknown: {0}")]
    Unknown(String),
    /// The database is at its quota (NOSPACE). Reads still work. The write that reaches the quota
    /// is often done all the same: etcd applies it, and then reports this error.
    #[error(
        "etcd's database is full; compact and defragment it, or raise its quota, and \
         disarm the alarm"
    )]
    Full,
    /// The requested revision is compacted. Read the present state instead.
    #[error("etcd has compacted this revision")]
    Compacted,
    /// The lease has expired or was revoked.
    #[error("etcd does not know this lease any more")]
    LeaseNotFound,
    /// TLS or etcd's access control refuses us, or we refuse the server's certificate.
    #[error("refused: {0}")]
    Refused(String),
    /// The request can never succeed: it is too large, or etcd rejects it as wrong.
    #[error("etcd cannot do this: {0}")]
    BadRequest(String),
    /// The answer is not believed: it is too large, malformed or contradicts itself.
    #[error("etcd's answer is not believed: {0}")]
    Invalid(String),
}

/// A failed call to one member.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: Error,
    /// The request reached a connection.
    pub was_sent: bool,
    /// The member may have done it, or do it later.
    pub may_be_done: bool,
}

impl Failure {
    /// Makes the failure of a connection that could not be made.
    pub fn before(error: Error) -> Failure {
        Failure {
            error,
            was_sent: false,
            may_be_done: false,
        }
    }

    pub fn after(error: Error, may_be_done: bool) -> Failure {
        Failure {
            error,
            was_sent: true,
            may_be_done,
        }
    }

    /// Returns the failure behind a status, from the server or from our side of the connection.
    pub fn of(member: &dyn fmt::Display, status: &Status) -> Failure {
        let said = status.message();
        let why = || format!("{member}: {}", cleaned(&described(status)));
        let not_done = |error| Failure::after(error, false);
        // etcd's texts are part of its interface: api/v3rpc/rpctypes/error.go. Those in `NOT_DONE`
        // are sent before a request is proposed to the members.
        match status.code() {
            _ if is_unsent(status) => Failure::before(Error::Unreachable(why())),
            Code::ResourceExhausted if said.ends_with("database space exceeded") => {
                Failure::after(Error::Full, true)
            }
            Code::OutOfRange if said.ends_with("has been compacted") => not_done(Error::Compacted),
            Code::NotFound if said.ends_with("requested lease not found") => {
                not_done(Error::LeaseNotFound)
            }
            _ if NOT_DONE.contains(&said) => not_done(Error::Unreachable(why())),
            Code::PermissionDenied | Code::Unauthenticated => not_done(Error::Refused(why())),
            Code::InvalidArgument if said == "etcdserver: user name is empty" => {
                not_done(Error::Refused(why()))
            }
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Unimplemented => not_done(Error::BadRequest(why())),
            // tonic's own statuses of an answer over its limit, or that is not protobuf.
            Code::OutOfRange | Code::Internal => Failure::after(Error::Invalid(why()), true),
            _ => Failure::after(Error::Unreachable(why()), true),
        }
    }
}

const NOT_DONE: [&str; 3] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: revision of auth store is old",
];

/// Whether hyper had no connection left to send the request on.
fn is_unsent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.downcast_ref().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        source = error.source();
    }
    false
}

/// Formats a status with all errors behind it.
fn described(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    match text.is_empty() {
        true => status.code().to_string(),
        false => text,
    }
}

/// Prepares foreign text for a log: bounded, and without control characters.
pub(crate) fn cleaned(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(CHARS_MAX).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, said: &str) -> Failure {
        Failure::of(&"m:2379", &Status::new(code, said))
    }

    #[test]
    fn only_a_refusal_before_the_proposal_counts_as_not_done() {
        for (code, said, is_done) in [
            (Code::Unavailable, "etcdserver: request timed out", true),
            (Code::Unavailable, "etcdserver: leader changed", true),
            (Code::Unavailable, "etcdserver: no leader", false),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                false,
            ),
            (
                Code::ResourceExhausted,
                "grpc: trying to send message larger",
                true,
            ),
            (Code::DeadlineExceeded, "context deadline exceeded", true),
            (Code::Cancelled, "", true),
            (Code::Unknown, "", true),
        ] {
            let failure = failure(code, said);
            assert_eq!(failure.may_be_done, is_done, "{said}");
            assert!(matches!(failure.error, Error::Unreachable(_)), "{said}");
        }
    }

    #[test]
    fn a_text_of_a_server_is_bounded_and_visible() {
        let failure = failure(Code::PermissionDenied, &"\x1b[31m\n".repeat(1000));
        let Error::Refused(why) = failure.error else {
            panic!("{failure:?}")
        };
        assert!(why.len() < 300 && !why.contains(char::is_control), "{why}");
    }
}
