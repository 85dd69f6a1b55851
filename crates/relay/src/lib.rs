//! A relay between unmodified switches and controllers, without its sockets.
//!
//! Two ends, one next to the switches and one next to the controllers, share one connection with
//! several streams. Every local connection becomes a *channel*. The relay deals an OpenFlow
//! channel's messages to *lanes*, one stream each, so that a lost packet delays one lane and not
//! all ([`sched::order`] defines which messages still wait for others). It never re-encodes bytes:
//! the far end hands over every message whole, once, and in an order that OpenFlow allows.
//!
//! Beside the switch, messages may first pass through [`hold`], which makes the packets of a flow
//! wait for their entry.
//!
//! With a policy map, messages of all channels first wait in the queues of one [`Line`]. Its
//! scheduler chooses the order in which they are dealt to lanes. They are dealt only as the
//! connection takes them.

mod carriers;
mod channel;
mod copies;
pub mod datagrams;
mod datapaths;
pub mod experimenter;
pub mod hold;
mod kind;
mod line;
mod place;
mod policy;
mod rivals;
mod session;
mod tally;
pub mod wire;

#[cfg(test)]
mod tests;

pub use carriers::{CARRIERS_MAX, Carriers, code_points, settle};
pub use channel::LocalWrite;
pub use copies::{CopiedRecord, CopyCounters};
pub use experimenter::{EXPERIMENTER_ID, PolicyTalk, TalkEvent};
pub use kind::{Kind, PerKind};
pub use line::{Item, Line, LineStatus};
pub use place::{place_of, queue_of_lane};
pub use policy::{Answer, PolicyEvent, PolicyExchange, PolicyMessage, PolicyStatus};
pub use rivals::{RivalCounters, Rivals, WINDOW as RIVALS_WINDOW};
pub use session::{
    CHANNELS_MAX, ChannelStatus, Config, Early, Event, LOWER_BYTES_MAX, OVSDB, SHARED_LANES,
    Session, datapath_of,
};
pub use tally::{Shed, Tally};
pub use wire::{Agent, ChannelId, OrderMode, SessionId, Settings, Side, WireError};
