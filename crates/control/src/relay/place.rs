//! Where an OpenFlow message belongs among the lanes of its channel.
//!
//! The type decides almost always. Of packets alone a few fixed fields are read, and whatever does
//! not look as expected goes where it cannot do harm: on the state lane, or on the first flow lane.

use openflow::{Frame, MessageKind, PortNo, Version};
use sched::{Direction, Order, Place, class_of};

/// The place of `frame`, with packets dealt to `flow_lanes` lanes.
pub fn place_of(frame: &Frame, direction: Direction, flow_lanes: u16) -> Place {
    let kind = frame.kind();
    match class_of(kind).order {
        Order::Fence => Place::Fence,
        Order::State => Place::State,
        Order::Exchange => Place::Exchange,
        Order::Free => Place::Free,
        Order::Flow => match (kind, direction) {
            (MessageKind::PacketIn, Direction::ToController) => {
                flow_place(packet_in_data(frame), flow_lanes)
            }
            (MessageKind::PacketOut, Direction::ToSwitch) => match packet_out_data(frame) {
                Some(data) => flow_place(Some(data), flow_lanes),
                None => Place::State,
            },
            // A packet that goes the wrong way is the far end's to refuse, in order.
            _ => Place::Fence,
        },
    }
}

fn flow_place(data: Option<&[u8]>, flow_lanes: u16) -> Place {
    let hash = data.map_or(0, flow_hash);
    Place::Flow((hash % u64::from(flow_lanes.max(1))) as u16)
}

/// The frame inside a packet-in.
fn packet_in_data(frame: &Frame) -> Option<&[u8]> {
    let body = frame.body();
    let match_at = match frame.version()? {
        Version::V10 => return body.get(10..),
        Version::V11 => return body.get(16..),
        Version::V12 => 8,
        _ => 16,
    };
    let match_len = body.get(match_at + 2..match_at + 4)?;
    let match_len = usize::from(u16::from_be_bytes([match_len[0], match_len[1]]));
    body.get(match_at + match_len.next_multiple_of(8) + 2..)
}

/// The frame inside a packet-out that depends on nothing but what is in it: it names no buffer and
/// does not go through the flow tables.
fn packet_out_data(frame: &Frame) -> Option<&[u8]> {
    const NO_BUFFER: [u8; 4] = [0xff; 4];
    let body = frame.body();
    if body.get(..4)? != NO_BUFFER {
        return None;
    }
    let (len_at, actions_at, table): (usize, usize, &[u8]) = match frame.version()? {
        Version::V10 => (6, 8, &[0xff, 0xf9]),
        Version::V11 | Version::V12 | Version::V13 | Version::V14 => {
            (8, 16, &const { PortNo::TABLE.0.to_be_bytes() })
        }
        Version::V15 => return None,
    };
    let len = body.get(len_at..len_at + 2)?;
    let data_at = actions_at + usize::from(u16::from_be_bytes([len[0], len[1]]));
    let mut actions = body.get(actions_at..data_at)?;
    while let Some(head) = actions.first_chunk::<4>() {
        let action_len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let action = actions.get(..action_len).filter(|a| a.len() >= 8)?;
        if head[..2] == [0, 0] && action[4..].starts_with(table) {
            return None;
        }
        actions = &actions[action_len..];
    }
    body.get(data_at..)
}

/// The same number for all packets of a flow: addresses, and what is said about ports.
fn flow_hash(data: &[u8]) -> u64 {
    openflow::packet::PacketFields::parse(PortNo(0), data).flow_key()
}
