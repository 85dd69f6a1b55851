//! Mistakes in a policy map, with their places and corrections.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $text:literal, $error:literal, $about:literal;)*) => {
        /// The kinds of problems, by their numbers. Errors keep a map from being used.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $about] $name),* }

        impl Code {
            /// All codes, errors first.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// Number in messages, for example `E01`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => $text),* }
            }

            /// Reports whether a map with this problem cannot be used.
            pub fn is_error(self) -> bool {
                match self { $(Code::$name => $error),* }
            }

            /// Meaning of the code, in a few words.
            pub fn about(self) -> &'static str {
                match self { $(Code::$name => $about),* }
            }
        }
    };
}

codes! {
    Syntax = "E01", true, "the line does not read";
    UnknownField = "E02", true, "no such field";
    TrafficType = "E03", true, "no such traffic type";
    TooManyRules = "E04", true, "more rules than a map has room for";
    DuplicateId = "E05", true, "two rules or queues of one number";
    Value = "E06", true, "a value or mask that the field cannot have";
    Contradiction = "E07", true, "fields that no packet has together";
    NoPacket = "E08", true, "match fields for messages that carry no packet";
    QueueId = "E09", true, "no such queue";
    Dscp = "E10", true, "no such code point";
    NothingToCopy = "E11", true, "dscp:copy for messages that carry no packet";
    Action = "E12", true, "an action is missing, or there are two";
    Carrier = "E13", false, "a code point where the carrier cannot mark";
    Generation = "E14", true, "not newer than the map in use";
    Digest = "E15", true, "other bytes than were announced";
    Rate = "E16", true, "weights, rates and limits that cannot be kept";
    Unreachable = "E17", true, "a rule that nothing can reach";
    NoRule = "E18", true, "a traffic type without rule and default";
    DataOutranks = "W01", false, "data packets may outrank control messages";
    NetworkControl = "W02", false, "CS7 is reserved for the network itself";
    Starvation = "W03", false, "strict priority can starve the lower queues";
    SessionBelow = "W04", false, "what keeps the session alive waits behind flow setup";
    PartlyShadowed = "W05", false, "an earlier rule takes a part of what this one matches";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Default for Position {
    /// The beginning of the text, which an empty text has too.
    fn default() -> Position {
        Position { line: 1, column: 1 }
    }
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind of the problem.
    pub code: Code,
    /// Place in the text.
    pub at: Position,
    /// Key with the problem: `udp_dst`, `action`, `Rule`.
    pub field: String,
    /// The mistake, in words.
    pub what: String,
    /// Completes "write …".
    pub wanted: String,
}

impl Problem {
    pub(super) fn new(
        code: Code,
        at: Position,
        field: impl Into<String>,
        what: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Problem {
        Problem {
            code,
            at,
            field: field.into(),
            what: what.into(),
            wanted: wanted.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.at;
        let kind = if self.code.is_error() {
            "error"
        } else {
            "warning"
        };
        write!(
            f,
            "line {line}, column {column}: {kind} {}: {}: {}; write {}",
            self.code, self.field, self.what, self.wanted
        )
    }
}
