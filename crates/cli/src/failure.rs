//! The failure of a command: one line that says what to do, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use crate::output::note;

/// Shown under `--help`. Scripts rely on the numbers: add, never renumber.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it ran, and the answer is no: packets lost, bytes that do not decode
  2  usage: wrong flags, configuration, policy, scenario or topology
  3  the machine lacks something: a program, a privilege, a kernel feature
  4  the network or its trust: address in use, peer unreachable, bad certificate
  5  a file that cannot be read or written";

/// The reason why a command ended, and its exit code.
#[derive(Clone, Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The failure of a command that ran and whose answer is no.
    pub fn negative(message: impl Display) -> Failure {
        Failure {
            code: 1,
            message: message.to_string(),
        }
    }

    /// A negative failure without a line, where nobody would miss the line.
    pub fn silent() -> Failure {
        Failure::negative("")
    }

    /// Flags, a configuration or a scenario that cannot be carried out.
    pub fn usage(message: impl Display) -> Failure {
        Failure {
            code: 2,
            message: message.to_string(),
        }
    }

    /// A program, privilege or kernel feature is missing.
    pub fn machine(message: impl Display) -> Failure {
        Failure {
            code: 3,
            message: message.to_string(),
        }
    }

    /// Addresses, peers and certificates.
    pub fn network(message: impl Display) -> Failure {
        Failure {
            code: 4,
            message: message.to_string(),
        }
    }

    /// A file that cannot be read or written.
    pub fn file(path: impl AsRef<std::path::Path>, problem: impl FileProblem) -> Failure {
        Failure {
            code: 5,
            message: format!("{}: {}", path.as_ref().display(), problem.say()),
        }
    }

    /// Combines failures that were found together, at least one: a line each, with the code of the
    /// first.
    pub fn all(failures: Vec<Failure>) -> Failure {
        let lines: Vec<&str> = failures.iter().map(Failure::message).collect();
        Failure {
            code: failures.first().map_or(1, |first| first.code),
            message: lines.join("\n"),
        }
    }

    /// Whether the operator's input is wrong, rather than the machine or a file.
    pub fn is_usage(&self) -> bool {
        self.code == 2
    }

    /// The line, for a caller that continues after the failure.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the line and returns the exit code.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            note!("auster: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

/// The text after a file's path in a message. A system error includes advice.
pub trait FileProblem {
    fn say(self) -> String;
}

impl FileProblem for std::io::Error {
    fn say(self) -> String {
        net::advice::file_problem(&self)
    }
}

impl FileProblem for serde_json::Error {
    fn say(self) -> String {
        self.to_string()
    }
}

impl FileProblem for &str {
    fn say(self) -> String {
        self.to_owned()
    }
}

impl FileProblem for String {
    fn say(self) -> String {
        self
    }
}

impl From<net::tls::CredentialsError> for Failure {
    /// Every fault in one line.
    fn from(error: net::tls::CredentialsError) -> Failure {
        Failure {
            code: if error.is_unreadable() { 5 } else { 4 },
            message: error.to_string(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    /// The whole chain in one line.
    fn from(error: anyhow::Error) -> Failure {
        Failure::negative(format!("{error:#}"))
    }
}
