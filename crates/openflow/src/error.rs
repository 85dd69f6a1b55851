//! The errors of the protocol: what OFPT_ERROR carries, and what the codec answers with.

use std::fmt;

use crate::types::Version;

/// Type and code of an OFPT_ERROR in the numbering of OpenFlow 1.3; the 1.0 codec maps them.
///
/// Kept as numbers, so that codes nobody has named yet pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorKind {
    pub ty: u16,
    pub code: u16,
}

/// Declares the named errors once: constants and the name table.
macro_rules! errors {
    ($($name:ident = $ty:expr, $code:expr;)*) => {
        impl ErrorKind {
            $(pub const $name: ErrorKind = ErrorKind { ty: $ty, code: $code };)*
            /// Every named error, in the names of `ovs-ofctl` less their OFP prefixes.
            pub const NAMES: &[(ErrorKind, &str)] = &[$((ErrorKind::$name, stringify!($name))),*];
        }
    };
}

errors! {
    HELLO_INCOMPATIBLE = 0, 0;
    HELLO_EPERM = 0, 1;
    BAD_VERSION = 1, 0;
    BAD_TYPE = 1, 1;
    BAD_MULTIPART = 1, 2;
    BAD_EXPERIMENTER = 1, 3;
    BAD_EXPERIMENTER_TYPE = 1, 4;
    REQUEST_EPERM = 1, 5;
    BAD_LEN = 1, 6;
    BUFFER_EMPTY = 1, 7;
    BUFFER_UNKNOWN = 1, 8;
    BAD_TABLE_ID = 1, 9;
    IS_SLAVE = 1, 10;
    BAD_PORT = 1, 11;
    BAD_PACKET = 1, 12;
    MULTIPART_BUFFER_OVERFLOW = 1, 13;
    ACTION_BAD_TYPE = 2, 0;
    ACTION_BAD_LEN = 2, 1;
    ACTION_BAD_EXPERIMENTER = 2, 2;
    ACTION_BAD_EXP_TYPE = 2, 3;
    ACTION_BAD_OUT_PORT = 2, 4;
    ACTION_BAD_ARGUMENT = 2, 5;
    ACTION_EPERM = 2, 6;
    ACTION_TOO_MANY = 2, 7;
    ACTION_BAD_QUEUE = 2, 8;
    ACTION_BAD_OUT_GROUP = 2, 9;
    ACTION_MATCH_INCONSISTENT = 2, 10;
    ACTION_UNSUPPORTED_ORDER = 2, 11;
    ACTION_BAD_TAG = 2, 12;
    ACTION_BAD_SET_TYPE = 2, 13;
    ACTION_BAD_SET_LEN = 2, 14;
    ACTION_BAD_SET_ARGUMENT = 2, 15;
    UNKNOWN_INST = 3, 0;
    UNSUP_INST = 3, 1;
    INST_BAD_TABLE_ID = 3, 2;
    INST_UNSUP_METADATA = 3, 3;
    INST_UNSUP_METADATA_MASK = 3, 4;
    INST_BAD_EXPERIMENTER = 3, 5;
    INST_BAD_EXP_TYPE = 3, 6;
    INST_BAD_LEN = 3, 7;
    INST_EPERM = 3, 8;
    MATCH_BAD_TYPE = 4, 0;
    MATCH_BAD_LEN = 4, 1;
    MATCH_BAD_TAG = 4, 2;
    MATCH_BAD_DL_ADDR_MASK = 4, 3;
    MATCH_BAD_NW_ADDR_MASK = 4, 4;
    MATCH_BAD_WILDCARDS = 4, 5;
    MATCH_BAD_FIELD = 4, 6;
    MATCH_BAD_VALUE = 4, 7;
    MATCH_BAD_MASK = 4, 8;
    MATCH_BAD_PREREQ = 4, 9;
    MATCH_DUP_FIELD = 4, 10;
    MATCH_EPERM = 4, 11;
    FLOW_MOD_UNKNOWN = 5, 0;
    FLOW_MOD_TABLE_FULL = 5, 1;
    FLOW_MOD_BAD_TABLE_ID = 5, 2;
    FLOW_MOD_OVERLAP = 5, 3;
    FLOW_MOD_EPERM = 5, 4;
    FLOW_MOD_BAD_TIMEOUT = 5, 5;
    FLOW_MOD_BAD_COMMAND = 5, 6;
    FLOW_MOD_BAD_FLAGS = 5, 7;
    GROUP_EXISTS = 6, 0;
    GROUP_INVALID = 6, 1;
    GROUP_WEIGHT_UNSUPPORTED = 6, 2;
    GROUP_OUT_OF_GROUPS = 6, 3;
    GROUP_OUT_OF_BUCKETS = 6, 4;
    GROUP_CHAINING_UNSUPPORTED = 6, 5;
    GROUP_WATCH_UNSUPPORTED = 6, 6;
    GROUP_LOOP = 6, 7;
    GROUP_UNKNOWN_GROUP = 6, 8;
    GROUP_CHAINED_GROUP = 6, 9;
    GROUP_BAD_TYPE = 6, 10;
    GROUP_BAD_COMMAND = 6, 11;
    GROUP_BAD_BUCKET = 6, 12;
    GROUP_BAD_WATCH = 6, 13;
    GROUP_EPERM = 6, 14;
    PORT_MOD_BAD_PORT = 7, 0;
    PORT_MOD_BAD_HW_ADDR = 7, 1;
    PORT_MOD_BAD_CONFIG = 7, 2;
    PORT_MOD_BAD_ADVERTISE = 7, 3;
    PORT_MOD_EPERM = 7, 4;
    TABLE_MOD_BAD_TABLE = 8, 0;
    TABLE_MOD_BAD_CONFIG = 8, 1;
    TABLE_MOD_EPERM = 8, 2;
    QUEUE_BAD_PORT = 9, 0;
    QUEUE_BAD_QUEUE = 9, 1;
    QUEUE_EPERM = 9, 2;
    SWITCH_CONFIG_BAD_FLAGS = 10, 0;
    SWITCH_CONFIG_BAD_LEN = 10, 1;
    SWITCH_CONFIG_EPERM = 10, 2;
    ROLE_STALE = 11, 0;
    ROLE_UNSUP = 11, 1;
    ROLE_BAD_ROLE = 11, 2;
    METER_UNKNOWN = 12, 0;
    METER_EXISTS = 12, 1;
    METER_INVALID = 12, 2;
    METER_UNKNOWN_METER = 12, 3;
    METER_BAD_COMMAND = 12, 4;
    METER_BAD_FLAGS = 12, 5;
    METER_BAD_RATE = 12, 6;
    METER_BAD_BURST = 12, 7;
    METER_BAD_BAND = 12, 8;
    METER_BAD_BAND_VALUE = 12, 9;
    METER_OUT_OF_METERS = 12, 10;
    METER_OUT_OF_BANDS = 12, 11;
    TABLE_FEATURES_BAD_TABLE = 13, 0;
    TABLE_FEATURES_BAD_METADATA = 13, 1;
    TABLE_FEATURES_BAD_TYPE = 13, 2;
    TABLE_FEATURES_BAD_LEN = 13, 3;
    TABLE_FEATURES_BAD_ARGUMENT = 13, 4;
    TABLE_FEATURES_EPERM = 13, 5;
    // OpenFlow 1.0 only, where they are 3, 3 and 3, 5.
    FLOW_MOD_BAD_EMERG_TIMEOUT = 0x1003, 3;
    FLOW_MOD_UNSUPPORTED = 0x1003, 5;
}

impl ErrorKind {
    /// Whether it is about a FLOW_MOD.
    pub fn is_of_flow_mod(self) -> bool {
        self.ty == ErrorKind::FLOW_MOD_UNKNOWN.ty || self.ty == ErrorKind::FLOW_MOD_UNSUPPORTED.ty
    }

    pub fn name(self) -> Option<&'static str> {
        ErrorKind::NAMES
            .iter()
            .find(|(kind, _)| *kind == self)
            .map(|(_, name)| *name)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {} code {}", self.ty, self.code),
        }
    }
}

/// The peer's fault: bytes that are no message of their version. `kind` is what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    pub kind: ErrorKind,
    /// What was being read, in the words of the specification.
    pub what: &'static str,
    /// Where, in bytes from the start of the message.
    pub offset: usize,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at byte {}", self.kind, self.what, self.offset)
    }
}

impl std::error::Error for DecodeError {}

/// Why a message cannot be written. Never the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// This version has no words for `what`.
    Unsupported {
        version: Version,
        what: &'static str,
    },
    /// Longer than the 16-bit length field, or a part longer than its own length field.
    TooLong { what: &'static str },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::Unsupported { version, what } => {
                write!(f, "OpenFlow {version} has no {what}")
            }
            EncodeError::TooLong { what } => write!(f, "{what} is too long for one message"),
        }
    }
}

impl std::error::Error for EncodeError {}
