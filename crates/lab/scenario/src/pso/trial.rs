//! The fate of each packet of a run, put together from what was seen on the control channel and
//! at the receiving host.

use serde::Serialize;

use crate::pso::channel::{ChannelListener, Kind};
use crate::pso::packet::Stream;
use crate::pso::sink::SinkListener;

/// The fate of the packets of one kind. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fate {
    pub sent: u32,
    /// Packets of which a PACKET_IN was seen.
    pub asked: u32,
    /// Packets among these with a PACKET_OUT.
    pub answered: u32,
    /// Packets that came to the other host.
    pub arrived: u32,
    /// From PACKET_IN to PACKET_OUT, where the switch's relay meets the switch.
    #[serde(skip)]
    pub hop_ms: Vec<f64>,
    /// From host to host.
    #[serde(skip)]
    pub end_to_end_ms: Vec<f64>,
}

impl Fate {
    /// PACKET_INs that were never answered.
    pub fn lost(&self) -> u32 {
        self.asked - self.answered
    }
}

/// The fate of `sent` packets of one run and kind.
pub fn fate(
    run: u32,
    stream: Stream,
    sent: u32,
    channel: &ChannelListener,
    sink: &SinkListener,
) -> Fate {
    let mut asked_ns = vec![None; sent as usize];
    let mut answered = vec![false; sent as usize];
    let mut arrived = vec![false; sent as usize];
    let mut fate = Fate {
        sent,
        ..Fate::default()
    };
    for seen in &channel.seen {
        let number = seen.label.number as usize;
        if (seen.label.run, seen.label.stream) != (run, stream) || number >= asked_ns.len() {
            continue;
        }
        match (seen.kind, asked_ns[number]) {
            (Kind::PacketIn, None) => asked_ns[number] = Some(seen.at_ns),
            (Kind::PacketOut, Some(asked)) if !answered[number] => {
                answered[number] = true;
                fate.hop_ms.push(milliseconds(asked, seen.at_ns));
            }
            _ => {}
        }
    }
    for arrival in &sink.arrivals {
        let number = arrival.label.number as usize;
        if (arrival.label.run, arrival.label.stream) == (run, stream)
            && arrived.get(number) == Some(&false)
        {
            arrived[number] = true;
            let took = milliseconds(arrival.label.sent_ns, arrival.at_ns);
            fate.end_to_end_ms.push(took);
        }
    }
    fate.asked = asked_ns.iter().flatten().count() as u32;
    fate.answered = fate.hop_ms.len() as u32;
    fate.arrived = fate.end_to_end_ms.len() as u32;
    fate
}

fn milliseconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pso::channel::Seen;
    use crate::pso::packet::Label;
    use crate::pso::sink::Arrival;

    fn label(run: u32, number: u32) -> Label {
        Label {
            run,
            stream: Stream::Target,
            number,
            sent_ns: 1_000_000,
        }
    }

    #[test]
    fn each_packet_is_followed_from_host_to_host_and_counted_once() {
        let mut channel = ChannelListener::new(6653);
        let mut see = |kind, run, number, at_ms: u64| {
            channel.seen.push(Seen {
                kind,
                label: label(run, number),
                at_ns: at_ms * 1_000_000,
            });
        };
        see(Kind::PacketIn, 1, 0, 2);
        see(Kind::PacketIn, 1, 1, 3);
        see(Kind::PacketOut, 1, 0, 6);
        see(Kind::PacketOut, 1, 0, 9); // Twice.
        see(Kind::PacketOut, 2, 1, 9); // Of another run.
        see(Kind::PacketOut, 1, 2, 9); // Never asked.
        let arrival = |run, number| Arrival {
            label: label(run, number),
            at_ns: 8_000_000,
        };
        let sink = SinkListener {
            arrivals: vec![arrival(1, 0), arrival(1, 0), arrival(2, 1)],
        };
        let fate = fate(1, Stream::Target, 4, &channel, &sink);
        let counts = (
            fate.sent,
            fate.asked,
            fate.answered,
            fate.arrived,
            fate.lost(),
        );
        assert_eq!(counts, (4, 2, 1, 1, 1));
        assert_eq!((fate.hop_ms, fate.end_to_end_ms), (vec![4.0], vec![7.0]));
    }
}
