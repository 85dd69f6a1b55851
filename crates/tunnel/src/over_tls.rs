//! The link between two ends where UDP does not get through: one TLS connection, with the same
//! session in it.
//!
//! Frames of `kind (1 byte), length (4), body` carry whole control messages and whole records. No
//! frame waits for credit: a session admits no more than its window, and its other end accepts
//! everything. A lost TCP packet delays every lane, which QUIC avoids.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use relay::wire::{Control, LaneHeader};
use relay::{Carriers, ChannelId, Kind, Session, Settings, WireError};
use sched::Lane;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{self, Instant, timeout};

use super::end::End;
use super::link::{self, LinkError};
use net::quic::{IDLE_TIMEOUT, KEEP_ALIVE};
use net::transport::{Connection, Reader, Writer};

const CONTROL: u8 = 0;
/// A lane's header, then records from its place on.
const LANE: u8 = 1;
/// An empty frame: the sender is alive.
const ALIVE: u8 = 2;
/// The sender will not return to this session.
const STOPPED: u8 = 3;
/// A datagram of an agent.
const DATAGRAM: u8 = 4;

const HEADER_BYTES: usize = 5;
/// A control message, or one record beyond [`BATCH_BYTES`].
const FRAME_BYTES_MAX: usize = 256 << 10;
/// The bytes given to the connection at a time.
const BATCH_BYTES: usize = 16 << 10;
const READ_BYTES: usize = 64 << 10;

/// The present connection, as the session's events reach it.
pub(super) struct LiveTls {
    pub address: String,
    wants: Arc<Wants>,
}

/// The requests to the connection's task.
#[derive(Default)]
struct Wants {
    /// Lanes that have something to send, the most urgent first.
    lanes: Mutex<BTreeSet<(i32, ChannelId, Lane)>>,
    wake: Notify,
    breaks: Notify,
    stops: Notify,
}

impl LiveTls {
    pub fn transmit(&self, channel: ChannelId, kind: Kind, lane: Lane, flow_lanes: u16) {
        let urgency = -link::priority(lane, kind, flow_lanes);
        let mut lanes = self.wants.lanes.lock();
        let lanes = lanes.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        lanes.insert((urgency, channel, lane));
        self.wants.wake.notify_one();
    }

    /// Wakes the connection's task to send datagrams.
    pub fn wake(&self) {
        self.wants.wake.notify_one();
    }

    /// Ends the connection, to be dialled again.
    pub fn break_up(&self) {
        self.wants.breaks.notify_one();
    }

    /// Ends the session for good, and informs the other end.
    pub fn stop(&self) {
        self.wants.stops.notify_one();
    }
}

/// A connection whose settings have been exchanged.
pub(super) struct GreetedTls {
    pub connection: Connection,
    pub buf: BytesMut,
    pub peer: Settings,
    pub carriers: Carriers,
    pub resumed: bool,
}

/// The end of a connection.
pub(super) enum Ended {
    Broken(LinkError),
    /// The other relay will not return.
    Stopped,
}

/// Sends the first message, by itself.
pub(super) async fn say(connection: &mut Connection, settings: &Settings) -> Result<(), LinkError> {
    let mut out = BytesMut::new();
    put(
        &mut out,
        CONTROL,
        &[&Control::Settings(settings.clone()).encode()],
    );
    connection.writer.write_all(&out).await.map_err(stream)?;
    connection.writer.flush().await.map_err(stream)
}

/// Reads the first message.
pub(super) async fn hear(
    connection: &mut Connection,
    buf: &mut BytesMut,
) -> Result<Settings, LinkError> {
    loop {
        if let Some((kind, body)) = take(buf)? {
            let mut body = BytesMut::from(&body[..]);
            return match (kind, Control::take(&mut body)?) {
                (CONTROL, Some(Control::Settings(settings))) => Ok(settings),
                _ => Err(WireError("something before the settings").into()),
            };
        }
        read_more(&mut connection.reader, buf).await?;
    }
}

/// Carries the session over one connection until it breaks.
pub(super) async fn run(end: &Arc<End>, greeted: GreetedTls) -> Ended {
    let _turn = end.link_turn.lock().await;
    let GreetedTls {
        connection,
        buf,
        peer,
        carriers,
        resumed,
    } = greeted;
    let wants = Arc::new(Wants::default());
    end.connects.fetch_add(1, Ordering::Relaxed);
    end.fallbacks.fetch_add(1, Ordering::Relaxed);
    end.resumptions.fetch_add(resumed.into(), Ordering::Relaxed);
    end.with_state(|state| {
        state.tls = Some(LiveTls {
            address: connection.peer.address.clone(),
            wants: wants.clone(),
        });
        let first = carriers.code_points()[0];
        state.session.set_carriers(Carriers::one(first));
    });
    let ended = match end.with(|session| session.handle_connected(&peer, resumed)) {
        Err(error) => Ended::Broken(error.into()),
        Ok(()) => {
            if !resumed {
                end.datagrams.begin();
                end.begun.notify_one();
            }
            let Connection { reader, writer, .. } = connection;
            tokio::select! {
                error = write(end, &wants, writer) => error,
                ended = read(end, reader, buf) => ended,
                () = wants.breaks.notified() => broken("asked to"),
            }
        }
    };
    let now = end.now();
    end.with_state(|state| {
        state.tls = None;
        state.session.handle_disconnected(now);
        end.datagrams.handle_disconnected();
    });
    ended
}

async fn write(end: &Arc<End>, wants: &Wants, mut writer: Writer) -> Ended {
    let mut report_at = None;
    let mut alive_at = Instant::now() + KEEP_ALIVE;
    loop {
        let now = Instant::now();
        let due = report_at.is_some_and(|at| at <= now);
        let mut out = BytesMut::new();
        let has_report = end.with(|session| {
            while let Some(message) = session.poll_control(due) {
                put(&mut out, CONTROL, &[&message.encode()]);
            }
            take_lanes(end, session, wants, &mut out);
            session.has_report()
        });
        if out.is_empty() && alive_at <= now {
            put(&mut out, ALIVE, &[]);
        }
        report_at = match report_at {
            _ if !has_report => None,
            Some(at) if !due => Some(at),
            _ => Some(now + link::report_delay(end)),
        };
        if !out.is_empty() {
            alive_at = now + KEEP_ALIVE;
            let written = async {
                writer.write_all(&out).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return Ended::Broken(stream(error));
            }
            continue;
        }
        let until = report_at.map_or(alive_at, |at| at.min(alive_at));
        tokio::select! {
            () = wants.wake.notified() => {}
            () = end.control.notified() => {}
            () = time::sleep_until(until) => {}
            () = wants.stops.notified() => {
                put(&mut out, STOPPED, &[]);
                let _ = writer.write_all(&out).await;
                let _ = writer.shutdown().await;
                return broken("stopped");
            }
        }
    }
}

/// Appends about [`BATCH_BYTES`] of datagrams and lane records to `out`.
fn take_lanes(end: &End, session: &mut Session, wants: &Wants, out: &mut BytesMut) {
    let flow_lanes = end.config.session.flow_lanes;
    let mut lanes = wants.lanes.lock().unwrap_or_else(PoisonError::into_inner);
    while out.len() < BATCH_BYTES {
        let next = lanes.first().map(|(urgency, _, _)| *urgency);
        let goes_first = |kind| {
            let urgency = -link::priority(Lane::STATE, kind, flow_lanes);
            next.is_none_or(|next| urgency <= next)
        };
        if let Some((_, datagram)) = end.datagrams.pop(goes_first) {
            put(out, DATAGRAM, &[&datagram]);
            continue;
        }
        let Some((urgency, channel, lane)) = lanes.pop_first() else {
            return;
        };
        let first = session.lane_position(channel, lane);
        let chunks = session.poll_lane(channel, lane, BATCH_BYTES - out.len());
        // TCP loses nothing, so copies are not needed.
        let _ = session.take_copies();
        let Some(chunks) = chunks.filter(|chunks| !chunks.is_empty()) else {
            continue;
        };
        let header = LaneHeader {
            channel,
            lane,
            first,
        };
        let header = header.encode();
        let parts: Vec<&[u8]> = std::iter::once(&header)
            .chain(&chunks)
            .map(|p| &p[..])
            .collect();
        put(out, LANE, &parts);
        // Ask the lane again even if that was all, so that the session knows that the records are
        // taken.
        lanes.insert((urgency, channel, lane));
    }
    wants.wake.notify_one();
}

async fn read(end: &Arc<End>, mut reader: Reader, mut buf: BytesMut) -> Ended {
    loop {
        let handled = loop {
            match take(&mut buf) {
                Err(error) => break Err(error.into()),
                Ok(None) => break Ok(()),
                Ok(Some((STOPPED, _))) => return Ended::Stopped,
                Ok(Some((kind, body))) => {
                    if let Err(error) = handle(end, kind, body) {
                        break Err(LinkError::Wire(error));
                    }
                }
            }
        };
        if let Err(error) = handled {
            return Ended::Broken(error);
        }
        match timeout(IDLE_TIMEOUT, read_more(&mut reader, &mut buf)).await {
            Err(_) => return broken("silent for too long"),
            Ok(Err(error)) => return Ended::Broken(error),
            Ok(Ok(())) => {}
        }
    }
}

fn handle(end: &Arc<End>, kind: u8, body: Bytes) -> Result<(), WireError> {
    let mut body = BytesMut::from(&body[..]);
    match kind {
        CONTROL => {
            while let Some(message) = Control::take(&mut body)? {
                end.with(|session| session.handle_control(message))?;
            }
        }
        LANE => {
            let header = LaneHeader::take(&mut body)?;
            let LaneHeader {
                channel,
                lane,
                first,
            } = header.ok_or(WireError("a lane without its header"))?;
            end.with(|session| match session.admits(channel, lane, first)? {
                Some(true) => session.handle_lane(channel, lane, &mut body),
                Some(false) => {
                    body.clear();
                    Ok(())
                }
                None => Err(WireError("a lane ahead of where it stands")),
            })?;
        }
        DATAGRAM => end.take_datagram(body.split().freeze())?,
        // A later version may have more kinds.
        _ => body.clear(),
    }
    if body.is_empty() {
        Ok(())
    } else {
        Err(WireError("a frame with half a message"))
    }
}

fn put(out: &mut BytesMut, kind: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.put_u8(kind);
    out.put_u32(len as u32);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn take(buf: &mut BytesMut) -> Result<Option<(u8, Bytes)>, WireError> {
    let Some(header) = buf.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [kind, len @ ..] = *header;
    let len = u32::from_be_bytes(len) as usize;
    if len > FRAME_BYTES_MAX {
        return Err(WireError("a frame above 256 KiB"));
    }
    if buf.len() < HEADER_BYTES + len {
        return Ok(None);
    }
    buf.advance(HEADER_BYTES);
    Ok(Some((kind, buf.split_to(len).freeze())))
}

async fn read_more(reader: &mut Reader, buf: &mut BytesMut) -> Result<(), LinkError> {
    buf.reserve(READ_BYTES);
    match reader.read_buf(buf).await {
        Ok(0) => Err(LinkError::Stream("the other relay closed it".to_owned())),
        Ok(_) => Ok(()),
        Err(error) => Err(stream(error)),
    }
}

fn stream(error: std::io::Error) -> LinkError {
    LinkError::Stream(error.to_string())
}

fn broken(why: &str) -> Ended {
    Ended::Broken(LinkError::Stream(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_and_wait_at_every_cut() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, LANE, &[b"one", b"two"]);
        for cut in 0..bytes.len() {
            assert_eq!(take(&mut BytesMut::from(&bytes[..cut])), Ok(None), "{cut}");
        }
        bytes.extend_from_slice(b"more");
        assert_eq!(take(&mut bytes), Ok(Some((LANE, Bytes::from("onetwo")))));
        assert_eq!(&bytes[..], b"more");
        let long = [LANE, 0, 4, 0, 1];
        assert!(take(&mut BytesMut::from(&long[..])).is_err());
    }
}
