//! Experiments on priority scheduling of the control channel, on real switches.
//!
//! Every packet that is offered bears a label, is a table miss, and is answered by the controller
//! with one PACKET_OUT. Its PACKET_IN and PACKET_OUT are seen beside the switch, where they pass
//! in plain TCP, so that their hop delay is that of relays, control link and controller together
//! and of nothing else.

mod channel;
mod ear;
mod packet;
mod sink;
mod source;
mod trial;
