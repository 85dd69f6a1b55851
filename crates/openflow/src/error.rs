//! Protocol errors: the errors in an OFPT_ERROR, and the errors that the codec returns.

use std::fmt;

use crate::types::Version;

/// Type and code of an OFPT_ERROR in the numbering of OpenFlow 1.3; the 1.0 codec maps them.
///
/// Kept as numbers, so that codes without a name pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorKind {
    /// OFPET_* number.
    pub ty: u16,
    /// Code within the type.
    pub code: u16,
}

/// Declares the named errors once: constants and the name table.
macro_rules! errors {
    ($($name:ident = $ty:expr, $code:expr, $about:literal;)*) => {
        impl ErrorKind {
            $(#[doc = $about] pub const $name: ErrorKind = ErrorKind { ty: $ty, code: $code };)*
            /// Every named error, with its name in `ovs-ofctl` without the OFP prefix.
            pub const NAMES: &[(ErrorKind, &str)] = &[$((ErrorKind::$name, stringify!($name))),*];
        }
    };
}

errors! {
    HELLO_INCOMPATIBLE = 0, 0, "No version in common.";
    HELLO_EPERM = 0, 1, "The peer may not connect.";
    BAD_VERSION = 1, 0, "The version in the header is not supported.";
    BAD_TYPE = 1, 1, "The message type is not supported.";
    BAD_MULTIPART = 1, 2, "The multipart type is not supported.";
    BAD_EXPERIMENTER = 1, 3, "The experimenter id is not supported.";
    BAD_EXPERIMENTER_TYPE = 1, 4, "The experimenter's message type is not supported.";
    REQUEST_EPERM = 1, 5, "The request is not permitted.";
    BAD_LEN = 1, 6, "The length is wrong for the message type.";
    BUFFER_EMPTY = 1, 7, "The buffer has been used already.";
    BUFFER_UNKNOWN = 1, 8, "The buffer does not exist.";
    BAD_TABLE_ID = 1, 9, "The table does not exist.";
    IS_SLAVE = 1, 10, "The controller's role does not permit the request.";
    BAD_PORT = 1, 11, "The port does not exist.";
    BAD_PACKET = 1, 12, "The packet in a PACKET_OUT is not valid.";
    MULTIPART_BUFFER_OVERFLOW = 1, 13, "A multipart request exceeds the switch's buffer.";
    ACTION_BAD_TYPE = 2, 0, "The action type is not supported.";
    ACTION_BAD_LEN = 2, 1, "The length of an action is wrong.";
    ACTION_BAD_EXPERIMENTER = 2, 2, "The action's experimenter id is not supported.";
    ACTION_BAD_EXP_TYPE = 2, 3, "The experimenter's action type is not supported.";
    ACTION_BAD_OUT_PORT = 2, 4, "The output port is not valid.";
    ACTION_BAD_ARGUMENT = 2, 5, "An action's argument is not valid.";
    ACTION_EPERM = 2, 6, "The action is not permitted.";
    ACTION_TOO_MANY = 2, 7, "The switch cannot handle as many actions.";
    ACTION_BAD_QUEUE = 2, 8, "The queue does not exist.";
    ACTION_BAD_OUT_GROUP = 2, 9, "The group does not exist.";
    ACTION_MATCH_INCONSISTENT = 2, 10, "The action cannot apply to packets of this match.";
    ACTION_UNSUPPORTED_ORDER = 2, 11, "The order of the actions is not supported.";
    ACTION_BAD_TAG = 2, 12, "The tag is not supported.";
    ACTION_BAD_SET_TYPE = 2, 13, "The field of SET_FIELD is not supported.";
    ACTION_BAD_SET_LEN = 2, 14, "The length of SET_FIELD is wrong.";
    ACTION_BAD_SET_ARGUMENT = 2, 15, "The value of SET_FIELD is not valid.";
    UNKNOWN_INST = 3, 0, "The instruction type is not known.";
    UNSUP_INST = 3, 1, "The table does not support the instruction.";
    INST_BAD_TABLE_ID = 3, 2, "The table of GOTO_TABLE is not valid.";
    INST_UNSUP_METADATA = 3, 3, "The metadata value is not supported.";
    INST_UNSUP_METADATA_MASK = 3, 4, "The metadata mask is not supported.";
    INST_BAD_EXPERIMENTER = 3, 5, "The instruction's experimenter id is not supported.";
    INST_BAD_EXP_TYPE = 3, 6, "The experimenter's instruction type is not supported.";
    INST_BAD_LEN = 3, 7, "The length of an instruction is wrong.";
    INST_EPERM = 3, 8, "The instruction is not permitted.";
    INST_DUP_INST = 3, 9, "An instruction is there twice; 1.4 and later.";
    MATCH_BAD_TYPE = 4, 0, "The match type is not supported.";
    MATCH_BAD_LEN = 4, 1, "The length of the match is wrong.";
    MATCH_BAD_TAG = 4, 2, "The match uses a tag that is not supported.";
    MATCH_BAD_DL_ADDR_MASK = 4, 3, "The mask of an Ethernet address is not supported.";
    MATCH_BAD_NW_ADDR_MASK = 4, 4, "The mask of a network address is not supported.";
    MATCH_BAD_WILDCARDS = 4, 5, "The combination of wildcards is not supported.";
    MATCH_BAD_FIELD = 4, 6, "The field is not supported.";
    MATCH_BAD_VALUE = 4, 7, "The value of a field is not supported.";
    MATCH_BAD_MASK = 4, 8, "The mask of a field is not supported.";
    MATCH_BAD_PREREQ = 4, 9, "The match lacks a field that another one requires.";
    MATCH_DUP_FIELD = 4, 10, "The match names a field twice.";
    MATCH_EPERM = 4, 11, "The match is not permitted.";
    FLOW_MOD_UNKNOWN = 5, 0, "An error without a code of its own.";
    FLOW_MOD_TABLE_FULL = 5, 1, "The table is full.";
    FLOW_MOD_BAD_TABLE_ID = 5, 2, "The table does not exist.";
    FLOW_MOD_OVERLAP = 5, 3, "The entry overlaps another one, and CHECK_OVERLAP is set.";
    FLOW_MOD_EPERM = 5, 4, "The change is not permitted.";
    FLOW_MOD_BAD_TIMEOUT = 5, 5, "The time-out is not supported.";
    FLOW_MOD_BAD_COMMAND = 5, 6, "The command is not known.";
    FLOW_MOD_BAD_FLAGS = 5, 7, "The flags are not supported.";
    GROUP_EXISTS = 6, 0, "The group exists already.";
    GROUP_INVALID = 6, 1, "The group is not valid.";
    GROUP_WEIGHT_UNSUPPORTED = 6, 2, "Buckets of different weight are not supported.";
    GROUP_OUT_OF_GROUPS = 6, 3, "The group table is full.";
    GROUP_OUT_OF_BUCKETS = 6, 4, "The group has too many buckets.";
    GROUP_CHAINING_UNSUPPORTED = 6, 5, "Groups that refer to groups are not supported.";
    GROUP_WATCH_UNSUPPORTED = 6, 6, "The switch cannot watch what the bucket names.";
    GROUP_LOOP = 6, 7, "The group would refer to itself.";
    GROUP_UNKNOWN_GROUP = 6, 8, "The group does not exist.";
    GROUP_CHAINED_GROUP = 6, 9, "Another group refers to the group.";
    GROUP_BAD_TYPE = 6, 10, "The group type is not supported.";
    GROUP_BAD_COMMAND = 6, 11, "The command is not known.";
    GROUP_BAD_BUCKET = 6, 12, "A bucket is not valid.";
    GROUP_BAD_WATCH = 6, 13, "A watched port or group is not valid.";
    GROUP_EPERM = 6, 14, "The change is not permitted.";
    PORT_MOD_BAD_PORT = 7, 0, "The port does not exist.";
    PORT_MOD_BAD_HW_ADDR = 7, 1, "The hardware address is not the port's.";
    PORT_MOD_BAD_CONFIG = 7, 2, "The configuration is not valid.";
    PORT_MOD_BAD_ADVERTISE = 7, 3, "The port cannot advertise these features.";
    PORT_MOD_EPERM = 7, 4, "The change is not permitted.";
    TABLE_MOD_BAD_TABLE = 8, 0, "The table does not exist.";
    TABLE_MOD_BAD_CONFIG = 8, 1, "The configuration is not valid.";
    TABLE_MOD_EPERM = 8, 2, "The change is not permitted.";
    QUEUE_BAD_PORT = 9, 0, "The port does not exist.";
    QUEUE_BAD_QUEUE = 9, 1, "The queue does not exist.";
    QUEUE_EPERM = 9, 2, "The request is not permitted.";
    SWITCH_CONFIG_BAD_FLAGS = 10, 0, "The flags are not valid.";
    SWITCH_CONFIG_BAD_LEN = 10, 1, "`miss_send_len` is not valid.";
    SWITCH_CONFIG_EPERM = 10, 2, "The change is not permitted.";
    ROLE_STALE = 11, 0, "The generation id is older than one seen before.";
    ROLE_UNSUP = 11, 1, "The switch cannot change the role.";
    ROLE_BAD_ROLE = 11, 2, "The role does not exist.";
    METER_UNKNOWN = 12, 0, "An error without a code of its own.";
    METER_EXISTS = 12, 1, "The meter exists already.";
    METER_INVALID = 12, 2, "The meter is not valid.";
    METER_UNKNOWN_METER = 12, 3, "The meter does not exist.";
    METER_BAD_COMMAND = 12, 4, "The command is not known.";
    METER_BAD_FLAGS = 12, 5, "The flags are not supported.";
    METER_BAD_RATE = 12, 6, "The rate is not supported.";
    METER_BAD_BURST = 12, 7, "The burst is not supported.";
    METER_BAD_BAND = 12, 8, "The band type is not supported.";
    METER_BAD_BAND_VALUE = 12, 9, "A value of a band is not supported.";
    METER_OUT_OF_METERS = 12, 10, "The meter table is full.";
    METER_OUT_OF_BANDS = 12, 11, "The meter has too many bands.";
    TABLE_FEATURES_BAD_TABLE = 13, 0, "The table does not exist.";
    TABLE_FEATURES_BAD_METADATA = 13, 1, "The metadata mask is not valid.";
    TABLE_FEATURES_BAD_TYPE = 13, 2, "The property type is not known.";
    TABLE_FEATURES_BAD_LEN = 13, 3, "The length of a property is wrong.";
    TABLE_FEATURES_BAD_ARGUMENT = 13, 4, "A property's value is not supported.";
    TABLE_FEATURES_EPERM = 13, 5, "The change is not permitted.";
    PROPERTY_BAD_TYPE = 14, 0, "The property type is not known.";
    PROPERTY_BAD_LEN = 14, 1, "The length of a property is wrong.";
    PROPERTY_BAD_VALUE = 14, 2, "A property's value is not supported.";
    PROPERTY_TOO_MANY = 14, 3, "The switch cannot handle as many properties.";
    PROPERTY_DUP_TYPE = 14, 4, "A property is there twice.";
    PROPERTY_BAD_EXPERIMENTER = 14, 5, "The property's experimenter id is not supported.";
    PROPERTY_BAD_EXP_TYPE = 14, 6, "The experimenter's property type is not supported.";
    PROPERTY_BAD_EXP_VALUE = 14, 7, "The value of an experimenter's property is not supported.";
    PROPERTY_EPERM = 14, 8, "The property is not permitted.";
    ASYNC_CONFIG_INVALID = 15, 0, "A mask is not valid.";
    ASYNC_CONFIG_UNSUPPORTED = 15, 1, "The filter of notices is not supported.";
    ASYNC_CONFIG_EPERM = 15, 2, "The change is not permitted.";
    FLOW_MONITOR_UNKNOWN = 16, 0, "An error without a code of its own.";
    FLOW_MONITOR_MONITOR_EXISTS = 16, 1, "The monitor exists already.";
    FLOW_MONITOR_INVALID_MONITOR = 16, 2, "The monitor is not valid.";
    FLOW_MONITOR_UNKNOWN_MONITOR = 16, 3, "The monitor does not exist.";
    FLOW_MONITOR_BAD_COMMAND = 16, 4, "The command is not known.";
    FLOW_MONITOR_BAD_FLAGS = 16, 5, "The flags are not supported.";
    FLOW_MONITOR_BAD_TABLE_ID = 16, 6, "The table does not exist.";
    FLOW_MONITOR_BAD_OUT = 16, 7, "The output port or group is not valid.";
    BUNDLE_UNKNOWN = 17, 0, "An error without a code of its own.";
    BUNDLE_EPERM = 17, 1, "The request is not permitted.";
    BUNDLE_BAD_ID = 17, 2, "The bundle does not exist.";
    BUNDLE_BUNDLE_EXIST = 17, 3, "The bundle exists already.";
    BUNDLE_BUNDLE_CLOSED = 17, 4, "The bundle is closed.";
    BUNDLE_OUT_OF_BUNDLES = 17, 5, "There are too many bundles.";
    BUNDLE_BAD_TYPE = 17, 6, "The type of a BUNDLE_CONTROL is not known.";
    BUNDLE_BAD_FLAGS = 17, 7, "The flags are not supported, or not those of the bundle.";
    BUNDLE_MSG_BAD_LEN = 17, 8, "The length of the message in it is wrong.";
    BUNDLE_MSG_BAD_XID = 17, 9, "The message in it has another xid.";
    BUNDLE_MSG_UNSUP = 17, 10, "Such a message cannot be in a bundle.";
    BUNDLE_MSG_CONFLICT = 17, 11, "The message conflicts with another one of the bundle.";
    BUNDLE_MSG_TOO_MANY = 17, 12, "The bundle has too many messages.";
    BUNDLE_MSG_FAILED = 17, 13, "A message of the bundle failed.";
    BUNDLE_TIMEOUT = 17, 14, "The bundle was open too long.";
    BUNDLE_IN_PROGRESS = 17, 15, "The bundle's resources are in use.";
    BUNDLE_SCHED_NOT_SUPPORTED = 17, 16, "Bundles at a time are not supported.";
    BUNDLE_SCHED_FUTURE = 17, 17, "The bundle's time is too far in the future.";
    BUNDLE_SCHED_PAST = 17, 18, "The bundle's time is too far in the past.";
    // OpenFlow 1.0 only, where their type and code are 3, 3 and 3, 5.
    FLOW_MOD_BAD_EMERG_TIMEOUT = 0x1003, 3, "An emergency entry has a time-out; 1.0 only.";
    FLOW_MOD_UNSUPPORTED = 0x1003, 5, "The list of actions is not supported; 1.0 only.";
}

impl ErrorKind {
    /// Reports whether the error refuses a FLOW_MOD.
    pub fn is_of_flow_mod(self) -> bool {
        self.ty == ErrorKind::FLOW_MOD_UNKNOWN.ty || self.ty == ErrorKind::FLOW_MOD_UNSUPPORTED.ty
    }

    /// Reports whether the error refuses a GROUP_MOD.
    pub fn is_of_group_mod(self) -> bool {
        self.ty == ErrorKind::GROUP_EXISTS.ty
    }

    /// Name, as in [`ErrorKind::NAMES`]; `None` if the error has no name here.
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

/// The peer's fault: bytes that are not a valid message of their version. Answer with `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {what} at byte {offset}")]
pub struct DecodeError {
    /// Error to answer with.
    pub kind: ErrorKind,
    /// Part of the message that was being read, in the words of the specification.
    pub what: &'static str,
    /// Offset of the mistake, in bytes from the start of the message.
    pub offset: usize,
}

/// Reason why a message cannot be written. Never the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// This version cannot express `what`.
    #[error("OpenFlow {version} has no {what}")]
    Unsupported {
        /// Version requested.
        version: Version,
        /// Part of the message that the version lacks.
        what: &'static str,
    },
    /// The message is too long for the 16-bit length field, or a part for its own length field.
    #[error("{what} is too long for one message")]
    TooLong {
        /// Part of the message that is too long.
        what: &'static str,
    },
}
