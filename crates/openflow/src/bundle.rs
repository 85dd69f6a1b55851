//! Bundles, and requests from other controllers: messages that contain a message.

use crate::message::Message;
use crate::property::Property;
use crate::types::{Xid, flags};

/// OFPBCT_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BundleCommand {
    /// OFPBCT_OPEN_REQUEST: opens a bundle.
    OpenRequest = 0,
    /// OFPBCT_OPEN_REPLY: the bundle is open.
    OpenReply = 1,
    /// OFPBCT_CLOSE_REQUEST: no more messages are added.
    CloseRequest = 2,
    /// OFPBCT_CLOSE_REPLY: the bundle is closed.
    CloseReply = 3,
    /// OFPBCT_COMMIT_REQUEST: carries out the messages.
    CommitRequest = 4,
    /// OFPBCT_COMMIT_REPLY: the messages have been carried out.
    CommitReply = 5,
    /// OFPBCT_DISCARD_REQUEST: discards the messages.
    DiscardRequest = 6,
    /// OFPBCT_DISCARD_REPLY: the messages have been discarded.
    DiscardReply = 7,
}

impl BundleCommand {
    /// All commands, by number.
    pub const ALL: [BundleCommand; 8] = [
        BundleCommand::OpenRequest,
        BundleCommand::OpenReply,
        BundleCommand::CloseRequest,
        BundleCommand::CloseReply,
        BundleCommand::CommitRequest,
        BundleCommand::CommitReply,
        BundleCommand::DiscardRequest,
        BundleCommand::DiscardReply,
    ];
}

flags! {
    /// OFPBF_*.
    BundleFlags(u16) {
        /// All messages are carried out, or none.
        ATOMIC = 1 << 0;
        /// The messages are carried out in their order.
        ORDERED = 1 << 1;
        /// The bundle is carried out at a given time; 1.5.
        TIME = 1 << 2;
    }
}

/// OFPT_BUNDLE_CONTROL (1.4, 7.3.9.1), which 1.3 has as an extension of the ONF (EXT-230).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// Number of the bundle, chosen by the controller.
    pub bundle_id: u32,
    /// Kind of the message.
    pub command: BundleCommand,
    /// Options of the bundle, the same in all its messages.
    pub flags: BundleFlags,
    /// Properties, in the order of the message.
    pub properties: Vec<BundleProperty>,
}

/// A property of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleProperty {
    /// OFPBPT_TIME: time at which to carry out the bundle; 1.5.
    Time(Time),
    /// A vendor's property, or one without a name here.
    Other(Property),
}

/// A time since 1970 (ofp_time, 1.5.1, 7.3.9.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Whole seconds.
    pub seconds: u64,
    /// Nanoseconds beyond the seconds.
    pub nanoseconds: u32,
}

/// OFPT_BUNDLE_ADD_MESSAGE (1.4, 7.3.9.6): adds a message with the same xid to the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle_id: u32,
    /// Options of the bundle.
    pub flags: BundleFlags,
    /// A message that changes a port, an entry, a group, a table or a meter, or that has a packet
    /// to send.
    pub message: Box<Message>,
    /// Properties, in the order of the message.
    pub properties: Vec<BundleProperty>,
}

/// OFPT_REQUESTFORWARD (1.4, 7.4.6): another controller has changed a group or a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestForward {
    /// Transaction id of the request.
    pub xid: Xid,
    /// A GROUP_MOD or a METER_MOD.
    pub request: Box<Message>,
}

/// OFPMP_BUNDLE_FEATURES of a request (1.5.1, 7.3.5.20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFeaturesRequest {
    /// OFPBMF_*: the features requested.
    pub flags: u32,
    /// Properties, in the order of the message.
    pub properties: Vec<BundleFeatureProperty>,
}

/// OFPMP_BUNDLE_FEATURES of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFeatures {
    /// [`BundleFlags`] supported.
    pub capabilities: BundleFlags,
    /// Properties, in the order of the message.
    pub properties: Vec<BundleFeatureProperty>,
}

/// A property of bundle features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleFeatureProperty {
    /// OFPTMPBF_TIME_CAPABILITY: how well the switch keeps to scheduled times.
    Time {
        /// Accuracy of scheduled bundles.
        accuracy: Time,
        /// How far in the future a bundle may be scheduled.
        future_max: Time,
        /// How far in the past a bundle may be scheduled.
        past_max: Time,
        /// The sender's clock.
        now: Time,
    },
    /// A vendor's property, or one without a name here.
    Other(Property),
}
