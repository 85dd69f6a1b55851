//! The place of an OpenFlow message among the lanes of its channel.
//!
//! The message type almost always decides. Only for packets does the relay also read a few fixed
//! fields. An unexpected message goes to a lane where it cannot do harm: the state lane, or the
//! first flow lane.

use openflow::{Frame, MessageKind, PortNo};
use sched::Lane;
use sched::order::LANE_INDEX_MAX;
use sched::policy::QUEUES_MAX;
use sched::subject::{PacketIn, PacketOut};
use sched::{Binding, Direction, Order, Place, Tag, class_of, key_of};

/// The place of `frame`, with packets dealt to `flow_lanes` lanes.
pub fn place_of(frame: &Frame, direction: Direction, flow_lanes: u16) -> Place {
    let kind = frame.meaning();
    match class_of(kind).order {
        Order::Fence => Place::Fence,
        Order::State => Place::State,
        Order::Exchange => Place::Exchange,
        Order::Free => Place::Free,
        Order::Flow => match (kind, direction) {
            (MessageKind::PacketIn, Direction::ToController) => {
                flow_place(PacketIn::of(frame).map(|packet| packet.data), flow_lanes)
            }
            (MessageKind::PacketOut, Direction::ToSwitch) => match PacketOut::of(frame) {
                Some(packet) if packet.stands_alone => flow_place(Some(packet.data), flow_lanes),
                _ => Place::State,
            },
            // The far end refuses a packet in the wrong direction, in order.
            _ => Place::Fence,
        },
    }
}

/// The place of a state message in keyed mode: by its key, if it has one.
pub(super) fn keyed_place(frame: &Frame) -> Place {
    key_of(frame).map_or(Place::State, Place::Keyed)
}

/// The place of a message that was scheduled: different queues have different lanes, so that no
/// message waits for a lost packet of a less urgent queue.
pub(super) fn place_of_tag(tag: &Tag, direction: Direction, flow_lanes: u16) -> Place {
    match tag.binding {
        Binding::Fence => Place::Fence,
        Binding::State => Place::State,
        Binding::Exchange => Place::Exchange,
        Binding::Free => Place::Free,
        // Towards the controller, lanes have no packets that follow state.
        Binding::Flow { after_state, .. }
            if after_state && direction == Direction::ToController =>
        {
            Place::State
        }
        Binding::Flow { key, .. } => {
            let lanes = lanes_of_queue(flow_lanes);
            let groups = (LANE_INDEX_MAX + 1) / lanes;
            let group = u16::from(tag.queue).min(groups - 1);
            Place::Flow(group * lanes + (key % u64::from(lanes)) as u16)
        }
    }
}

/// The queue that `place_of_tag` deals to the flow lane `lane`.
pub fn queue_of_lane(lane: Lane, flow_lanes: u16) -> usize {
    usize::from(lane.of_scope() / lanes_of_queue(flow_lanes)).min(QUEUES_MAX - 1)
}

fn lanes_of_queue(flow_lanes: u16) -> u16 {
    flow_lanes.clamp(1, LANE_INDEX_MAX + 1)
}

fn flow_place(data: Option<&[u8]>, flow_lanes: u16) -> Place {
    let hash = data.map_or(0, flow_hash);
    Place::Flow((hash % u64::from(flow_lanes.max(1))) as u16)
}

/// A hash of a packet's addresses and port fields: the same for all packets of a flow.
fn flow_hash(data: &[u8]) -> u64 {
    openflow::packet::PacketFields::parse(PortNo(0), data).flow_key()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const UDP: &[u8] = &[
        2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0,
        0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0,
    ];
    const LANES: u16 = 16;

    fn frame(version: u8, type_byte: u8, parts: &[&[u8]]) -> Frame {
        let body = parts.concat();
        let len = (8 + body.len()) as u16;
        let mut bytes = vec![version, type_byte];
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 1]);
        bytes.extend_from_slice(&body);
        Frame::new(Bytes::from(bytes)).unwrap()
    }

    fn packet_out13(buffer: [u8; 4], port: u32, data: &[u8]) -> Frame {
        let actions = [&[0, 0, 0, 16][..], &port.to_be_bytes(), &[0; 8]].concat();
        frame(
            4,
            13,
            &[
                &buffer,
                &[0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0],
                &actions,
                data,
            ],
        )
    }

    fn packet_in13(data: &[u8]) -> Frame {
        let oxm = [0x80, 0, 0, 4, 0, 0, 0, 7];
        let head = [
            &[0xff; 4][..],
            &[0, 42, 0, 0],
            &[0; 8],
            &[0, 1, 0, 12],
            &oxm,
            &[0; 4],
            &[0; 2],
        ];
        frame(4, 10, &[&head.concat(), data])
    }

    #[test]
    fn a_packet_has_the_lane_of_its_flow_in_every_version_and_direction() {
        let flow = flow_place(Some(UDP), LANES);
        let in10 = frame(1, 10, &[&[0; 10], UDP]);
        let out10 = [&[0xff; 4][..], &[0, 1, 0, 8], &[0, 0, 0, 8, 0, 2, 0, 0]].concat();
        let out10 = frame(1, 13, &[&out10, UDP]);
        assert_ne!(flow, Place::Flow(0), "or the test could not tell");
        assert_eq!(place_of(&in10, Direction::ToController, LANES), flow);
        assert_eq!(
            place_of(&packet_in13(UDP), Direction::ToController, LANES),
            flow
        );
        assert_eq!(place_of(&out10, Direction::ToSwitch, LANES), flow);
        assert_eq!(
            place_of(&packet_out13([0xff; 4], 2, UDP), Direction::ToSwitch, LANES),
            flow
        );
    }

    #[test]
    fn a_packet_out_that_depends_on_the_switch_keeps_the_order_of_state() {
        let buffered = packet_out13([0, 0, 0, 9], 2, &[]);
        let through_tables = packet_out13([0xff; 4], PortNo::TABLE.0, UDP);
        let of_1_5 = frame(6, 13, &[&[0xff; 4], &[0; 40]]);
        let mut lying = packet_out13([0xff; 4], 2, UDP).bytes().to_vec();
        lying[16..18].copy_from_slice(&[0xff, 0]);
        let lying = Frame::new(lying.into()).unwrap();
        for message in [buffered, through_tables, of_1_5, lying] {
            assert_eq!(
                place_of(&message, Direction::ToSwitch, LANES),
                Place::State,
                "{message:?}"
            );
        }
    }

    #[test]
    fn a_bundle_of_the_onf_is_a_fence_and_its_parts_are_state() {
        let onf = |ty: u32| {
            let ids = [0x4f4e_4600, ty].map(u32::to_be_bytes);
            frame(4, 4, &[ids.as_flattened(), &[0, 0, 0, 1, 0, 4, 0, 1]])
        };
        let place = |frame: &Frame| place_of(frame, Direction::ToSwitch, LANES);
        assert_eq!(place(&onf(2300)), Place::Fence, "BUNDLE_CONTROL");
        assert_eq!(place(&onf(2301)), Place::State, "BUNDLE_ADD_MESSAGE");
        assert_eq!(place(&onf(2302)), Place::State, "any other");
    }

    #[test]
    fn a_message_of_the_wrong_direction_or_no_known_type_is_a_fence() {
        let to_switch = place_of(&packet_in13(UDP), Direction::ToSwitch, LANES);
        assert_eq!(to_switch, Place::Fence);
        let unknown = frame(4, 200, &[]);
        assert_eq!(
            place_of(&unknown, Direction::ToController, LANES),
            Place::Fence
        );
        let no_version = frame(0x77, 10, &[]);
        assert_eq!(
            place_of(&no_version, Direction::ToController, LANES),
            Place::Fence
        );
    }

    #[test]
    fn packets_cut_short_are_placed_all_the_same() {
        let whole = packet_out13([0xff; 4], 2, UDP);
        for message in [whole, packet_in13(UDP)] {
            for len in 8..message.len() {
                for version in 1..=6 {
                    let mut bytes = message.bytes()[..len].to_vec();
                    bytes[0] = version;
                    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                    let cut = Frame::new(bytes.into()).unwrap();
                    for direction in [Direction::ToSwitch, Direction::ToController] {
                        let _ = place_of(&cut, direction, LANES);
                    }
                }
            }
        }
    }
}
