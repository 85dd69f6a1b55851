//! The memory of packets that switches buffer, compared with a list of all of them.

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::{DatapathId, Field, Frame};
use proptest::prelude::*;
use sched::classify::{BUFFER_TIME_MAX, BUFFERS_MAX, Buffers};
use sched::{Classifier, Direction, PolicyMap};

const MAP: &str = "Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1
    Default: action=queue_id:2";
const NO_BUFFER: u32 = u32::MAX;

fn frame(type_byte: u8, parts: &[&[u8]]) -> Frame {
    let body = parts.concat();
    let mut bytes = vec![1, type_byte];
    bytes.extend_from_slice(&((8 + body.len()) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 7]);
    bytes.extend_from_slice(&body);
    Frame::new(Bytes::from(bytes)).expect("a frame")
}

fn udp(dst: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88]);
    packet.extend_from_slice(&dst.to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet
}

/// OpenFlow 1.0.
fn packet_in(buffer: u32, dst: u16) -> Frame {
    frame(
        10,
        &[&buffer.to_be_bytes(), &[0, 64, 0, 1, 0, 0], &udp(dst)],
    )
}

fn packet_out(buffer: u32) -> Frame {
    let output = [0, 0, 0, 8, 0, 2, 0, 0];
    frame(13, &[&buffer.to_be_bytes(), &[0, 1, 0, 8], &output])
}

#[test]
fn a_packet_out_that_names_a_buffer_is_classified_by_its_packet() {
    let classifier = Classifier::new(&PolicyMap::parse(MAP).expect("a map").0);
    let mut buffers = Buffers::default();
    let now = Instant::START;
    let switches = [Some(DatapathId(1)), Some(DatapathId(2)), None];
    buffers.handle_packet_in(now, 4, switches[0], &packet_in(7, 20000));
    buffers.handle_packet_in(now, 4, switches[1], &packet_in(7, 53));
    buffers.handle_packet_in(now, 4, switches[2], &packet_in(8, 20000));
    buffers.handle_packet_in(now, 4, switches[0], &packet_in(NO_BUFFER, 20000));
    buffers.handle_packet_in(now, 4, switches[0], &packet_out(9));
    assert_eq!(buffers.len(), 3);
    let queue = |now, channel, switch, frame: &Frame| {
        let kept = buffers.fields(now, channel, switch, frame);
        let down = Direction::ToSwitch;
        let verdict = classifier.classify_kept(frame, down, channel, switch, kept);
        verdict.tag.queue
    };
    let at = |queue_of: &dyn Fn(u64, Option<DatapathId>, u32) -> u8| {
        [
            queue_of(4, switches[0], 7),
            queue_of(4, switches[1], 7),
            queue_of(4, switches[2], 8),
            queue_of(5, switches[2], 8),
            queue_of(4, switches[0], 9),
            queue_of(4, switches[0], NO_BUFFER),
            // Another connection of the same switch.
            queue_of(6, switches[0], 7),
        ]
    };
    let early = at(&|c, s, b| queue(now, c, s, &packet_out(b)));
    assert_eq!(early, [1, 2, 1, 2, 2, 2, 1]);
    let later = now + BUFFER_TIME_MAX;
    let late = at(&|c, s, b| queue(later, c, s, &packet_out(b)));
    assert_eq!(late, [2; 7], "the switch has given them up");
}

#[derive(Clone, Debug)]
enum Step {
    /// The first buffer, and the number of PACKET_INs from it on.
    Kept(u32, u32),
    Wait(Duration),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u32..6000, 1u32..3000).prop_map(|(from, count)| Step::Kept(from, count)),
        1 => (0u64..12_000).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
    ];
    proptest::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_last_of_each_buffer_is_known_while_it_is_young_and_among_the_last(steps in steps()) {
        let mut buffers = Buffers::default();
        let mut now = Instant::START;
        let mut all: Vec<(u32, Instant, u16)> = Vec::new();
        for step in steps {
            match step {
                Step::Kept(from, count) => {
                    for n in 0..count {
                        let (buffer, dst) = (from + n, all.len() as u16);
                        buffers.handle_packet_in(now, 1, None, &packet_in(buffer, dst));
                        all.push((buffer, now, dst));
                        prop_assert!(buffers.len() <= BUFFERS_MAX);
                    }
                }
                Step::Wait(time) => now += time,
            }
            for buffer in (0..9000).step_by(7) {
                let last = all.iter().rposition(|(of, ..)| *of == buffer);
                let young = last.filter(|at| all[*at].1 + BUFFER_TIME_MAX > now);
                let known = young.filter(|at| all.len() - at <= BUFFERS_MAX);
                let expected = known.map(|at| u128::from(all[at].2));
                let fields = buffers.fields(now, 1, None, &packet_out(buffer));
                prop_assert_eq!(fields.and_then(|f| f.get(Field::UdpDst)), expected);
            }
        }
    }
}
