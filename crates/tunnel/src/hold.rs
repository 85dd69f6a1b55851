//! Puts a [`Hold`] between a switch and the relay beside it.
//!
//! The relay gets an in-process connection in place of the switch's. Either kind of relay can use
//! it, and neither notices.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use openflow::Frame;
use relay::hold::{Hold, HoldCounters, HoldLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use net::clock::Clock;
use net::transport::{Connection, Reader, Writer, memory};

/// Maximum number of bytes read and not yet written, per direction. While there are more, nothing
/// is read.
const BUFFER_BYTES: usize = 64 * 1024;

/// Holds the first packets of flows on the connections that it is given.
#[derive(Debug, Default)]
pub struct Holder {
    counters: Mutex<HoldCounters>,
}

/// One direction, with the bytes read and the bytes to be written.
struct Direction {
    reader: Reader,
    writer: Writer,
    input: BytesMut,
    output: BytesMut,
    has_ended: bool,
    is_flushed: bool,
}

impl Holder {
    /// Returns the connection that the relay gets in place of this one.
    pub fn hold(self: &Arc<Self>, connection: Connection) -> Connection {
        let (near, far) = memory(BUFFER_BYTES);
        let Connection {
            reader,
            writer,
            peer,
            ticket,
            place,
            keeper: _,
        } = connection;
        let up = Direction::new(reader, near.writer);
        let down = Direction::new(near.reader, writer);
        let holder = self.clone();
        let address = peer.address.clone();
        tokio::spawn(async move {
            let reason = holder.run(up, down).await;
            drop((ticket, place));
            tracing::debug!(peer = address, "held no more: {reason}");
        });
        Connection {
            peer,
            ticket: None,
            place: None,
            ..far
        }
    }

    /// The counters of all connections.
    pub fn counters(&self) -> HoldCounters {
        *self.lock()
    }

    /// Runs until both directions have ended, or one has failed.
    async fn run(&self, mut up: Direction, mut down: Direction) -> String {
        let clock = Clock::start();
        let mut hold = Hold::new(HoldLimits::default());
        let mut counted = HoldCounters::default();
        loop {
            if let Err(error) = step(clock, &mut hold, &mut up, &mut down) {
                return format!("not OpenFlow: {error}");
            }
            let counters = hold.counters();
            if counters != counted {
                self.lock().add_since(&counted, &counters);
                counted = counters;
            }
            if up.is_done() && down.is_done() {
                return "closed".to_owned();
            }
            let due = hold.poll_timeout();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(clock.deadline(due)).await,
                    None => std::future::pending().await,
                }
            };
            let moved = tokio::select! {
                moved = up.carry() => moved,
                moved = down.carry() => moved,
                () = timer => Ok(()),
            };
            if let Err(error) = moved {
                return error.to_string();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HoldCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes the bytes that were read through `hold`; its output is then to be written.
fn step(
    clock: Clock,
    hold: &mut Hold,
    up: &mut Direction,
    down: &mut Direction,
) -> Result<(), openflow::FrameError> {
    let now = clock.now();
    hold.handle_timeout(now);
    while let Some(frame) = Frame::split_from(&mut up.input)? {
        hold.handle_up(now, frame);
    }
    let mut together = Vec::new();
    while let Some(frame) = Frame::split_from(&mut down.input)? {
        together.push(frame);
    }
    hold.handle_down(now, together);
    while let Some(frame) = hold.poll_up() {
        up.output.extend_from_slice(frame.bytes());
    }
    while let Some(frame) = hold.poll_down() {
        down.output.extend_from_slice(frame.bytes());
    }
    Ok(())
}

impl Direction {
    fn new(reader: Reader, writer: Writer) -> Direction {
        Direction {
            reader,
            writer,
            input: BytesMut::new(),
            output: BytesMut::new(),
            has_ended: false,
            is_flushed: true,
        }
    }

    fn is_done(&self) -> bool {
        self.has_ended && self.output.is_empty() && self.is_flushed
    }

    /// Reads or writes some bytes, whichever is possible. Cancel-safe. Never ready once the
    /// direction is done.
    async fn carry(&mut self) -> std::io::Result<()> {
        if self.is_done() {
            return std::future::pending().await;
        }
        let may_read = !self.has_ended && self.output.len() < BUFFER_BYTES;
        let has_output = !self.output.is_empty() || !self.is_flushed;
        self.input.reserve(BUFFER_BYTES);
        tokio::select! {
            read = self.reader.read_buf(&mut self.input), if may_read => {
                if read? == 0 {
                    self.has_ended = true;
                    self.is_flushed = false;
                }
            }
            written = write_some(&mut self.writer, &mut self.output, self.has_ended),
                if has_output => {
                self.is_flushed = written?;
            }
        }
        Ok(())
    }
}

/// Writes some bytes and returns whether all is out. The last write also ends the other side's
/// reading.
async fn write_some(
    writer: &mut Writer,
    output: &mut BytesMut,
    has_ended: bool,
) -> std::io::Result<bool> {
    if !output.is_empty() {
        return match writer.write_buf(output).await? {
            0 => Err(std::io::ErrorKind::WriteZero.into()),
            _ => Ok(false),
        };
    }
    if has_ended {
        writer.shutdown().await?;
    } else {
        writer.flush().await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use openflow::message::{FlowMod, PacketIn};
    use openflow::packet::build::{Host, udp};
    use openflow::{Action, Match, Message, MessageKind, PortNo, Version, Xid, encode};

    use super::*;

    fn packet_in(n: u8) -> Frame {
        let data = udp(Host::numbered(1), Host::numbered(2), (1, 2), &[n]);
        let message = PacketIn::new(PortNo(1), data.into());
        encode(Version::V13, Xid(0), &Message::PacketIn(message)).unwrap()
    }

    async fn frames(connection: &mut Connection, count: usize) -> Vec<Frame> {
        let mut input = BytesMut::new();
        let mut frames = Vec::new();
        while frames.len() < count {
            let read = connection.reader.read_buf(&mut input).await.unwrap();
            assert!(read > 0, "closed after {} of {count}", frames.len());
            while let Some(frame) = Frame::split_from(&mut input).unwrap() {
                frames.push(frame);
            }
        }
        assert!(input.is_empty());
        frames
    }

    #[tokio::test]
    async fn the_relay_sees_the_first_and_the_switch_gets_the_others_before_their_entry() {
        let holder = Arc::new(Holder::default());
        let (mut switch, accepted) = memory(1 << 20);
        let peer = accepted.peer.clone();
        let mut relay = holder.hold(accepted);
        assert_eq!(relay.peer, peer);

        let barrier = encode(Version::V13, Xid(3), &Message::BarrierReply).unwrap();
        for n in 0..4 {
            switch.writer.write_all(packet_in(n).bytes()).await.unwrap();
        }
        switch.writer.write_all(barrier.bytes()).await.unwrap();
        assert_eq!(frames(&mut relay, 2).await, [packet_in(0), barrier]);

        let entry = FlowMod::add(5, Match::any(), vec![Action::output(PortNo(2))]);
        let entry = encode(Version::V13, Xid(4), &Message::FlowMod(entry)).unwrap();
        relay.writer.write_all(entry.bytes()).await.unwrap();
        let got = frames(&mut switch, 4).await;
        let kinds: Vec<MessageKind> = got.iter().map(Frame::kind).collect();
        assert_eq!(kinds[..3], [MessageKind::PacketOut; 3]);
        assert_eq!(got[3], entry);
        assert_eq!((holder.counters().held, holder.counters().released), (3, 3));
    }

    #[tokio::test]
    async fn what_waits_too_long_goes_on() {
        let holder = Arc::new(Holder::default());
        let (mut switch, accepted) = memory(1 << 20);
        let mut relay = holder.hold(accepted);
        for n in 0..3 {
            switch.writer.write_all(packet_in(n).bytes()).await.unwrap();
        }
        let expected: Vec<Frame> = (0..3).map(packet_in).collect();
        assert_eq!(frames(&mut relay, 3).await, expected);
    }

    /// When either side ends, the other ends too, after receiving everything.
    #[tokio::test]
    async fn an_end_goes_through() {
        let holder = Arc::new(Holder::default());
        let barrier = encode(Version::V13, Xid(3), &Message::BarrierReply).unwrap();
        for is_switch in [true, false] {
            let (switch, accepted) = memory(1 << 20);
            let relay = holder.hold(accepted);
            let (mut from, mut to) = if is_switch {
                (switch, relay)
            } else {
                (relay, switch)
            };
            from.writer.write_all(barrier.bytes()).await.unwrap();
            from.writer.shutdown().await.unwrap();
            assert_eq!(frames(&mut to, 1).await, std::slice::from_ref(&barrier));
            assert_eq!(to.reader.read_buf(&mut BytesMut::new()).await.unwrap(), 0);
            drop(to);
            let mut rest = BytesMut::with_capacity(1);
            assert_eq!(from.reader.read_buf(&mut rest).await.unwrap(), 0);
        }
    }
}
