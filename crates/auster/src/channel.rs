//! The controller's end of one OpenFlow channel, with only the functions that a measurement needs.
//!
//! Nothing is queued and nothing runs beside it, so the times that it reports are those of the
//! channel. A message's arrival time is taken when the call that read its last byte returns.

use bytes::BytesMut;
use cli::date::now_ns;
use net::transport::Connection;
use openflow::error::ErrorKind;
use openflow::hello::negotiate;
use openflow::message::{ErrorMessage, Hello, SwitchConfig};
use openflow::{Frame, Message, Version, Xid, decode, encode};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use cli::failure::Failure;

/// The longest wait for a switch's answer to any request; after it, the switch counts as absent.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A first guess at the bytes read at once.
const READ_BYTES: usize = 64 << 10;

pub struct Channel {
    connection: Connection,
    buffer: BytesMut,
    /// The time at which the bytes in `buffer` were read.
    read_ns: u64,
    xid: u32,
}

/// A message, with the time at which it was read.
pub struct Received {
    pub xid: Xid,
    pub message: Message,
    pub at_ns: u64,
}

impl Channel {
    /// Greets the switch, and waits until it has sent its features.
    pub async fn open(connection: Connection) -> Result<Channel, Failure> {
        let mut channel = Channel::greet(connection).await?;
        // Ask for whole packets in packet-ins. Open vSwitch sends no packet-ins to a controller
        // that dials it until this length is set.
        let whole = SwitchConfig {
            flags: 0,
            miss_send_len: u16::MAX,
        };
        let xid = channel
            .send(&[Message::SetConfig(whole), Message::FeaturesRequest])
            .await?;
        match channel.answer(xid).await? {
            Message::FeaturesReply(_) => Ok(channel),
            other => Err(unexpected("FEATURES_REQUEST", &other)),
        }
    }

    /// Greets the switch and sets nothing, for callers that only send requests.
    pub async fn greet(connection: Connection) -> Result<Channel, Failure> {
        let mut channel = Channel {
            connection,
            buffer: BytesMut::with_capacity(READ_BYTES),
            read_ns: 0,
            xid: 0,
        };
        let ours = [Version::V13];
        channel
            .send(&[Message::Hello(Hello::offering(&ours))])
            .await?;
        let frame = timeout(ANSWER_MAX, channel.frame())
            .await
            .map_err(|_| silent("a HELLO"))??;
        let version = match decode(&frame) {
            Ok(Message::Hello(hello)) => negotiate(&ours, frame.version_byte(), &hello),
            _ => None,
        };
        match version {
            Some(_) => Ok(channel),
            None => Err(Failure::network("the switch does not speak OpenFlow 1.3")),
        }
    }

    /// Writes messages with one call, and returns the xid of the last one.
    pub async fn send(&mut self, messages: &[Message]) -> Result<Xid, Failure> {
        let mut bytes = Vec::new();
        for message in messages {
            self.xid = self.xid.wrapping_add(1);
            let frame = encode(Version::V13, Xid(self.xid), message)
                .map_err(|e| Failure::negative(format!("cannot be said in OpenFlow 1.3: {e}")))?;
            bytes.extend_from_slice(frame.bytes());
        }
        let writer = &mut self.connection.writer;
        let write = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        match timeout(ANSWER_MAX, write).await {
            Ok(Ok(())) => Ok(Xid(self.xid)),
            Ok(Err(e)) => Err(gone(&e.to_string())),
            Err(_) => Err(Failure::network("the switch takes no more messages")),
        }
    }

    /// Returns the next message for the caller. Answers echo requests, and drops port and
    /// flow-removed messages.
    pub async fn next(&mut self) -> Result<Received, Failure> {
        loop {
            let frame = self.frame().await?;
            let (xid, at_ns) = (frame.xid(), self.read_ns);
            match decode(&frame) {
                Ok(Message::EchoRequest(data)) => {
                    let reply = encode(Version::V13, xid, &Message::EchoReply(data));
                    let reply = reply.map_err(|e| Failure::negative(e.to_string()))?;
                    let written = self.connection.writer.write_all(reply.bytes()).await;
                    written.map_err(|e| gone(&e.to_string()))?;
                }
                Ok(Message::PortStatus(_) | Message::FlowRemoved(_)) => {}
                Ok(message) => {
                    return Ok(Received {
                        xid,
                        message,
                        at_ns,
                    });
                }
                Err(e) => return Err(Failure::network(format!("the switch sent {e}"))),
            }
        }
    }

    /// Waits like `next`, but not beyond the given time.
    pub async fn next_within(&mut self, at_most: Duration) -> Result<Option<Received>, Failure> {
        match timeout(at_most, self.next()).await {
            Ok(received) => received.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether `next` would return a message from bytes already read.
    pub fn has_more(&self) -> bool {
        let announced = self
            .buffer
            .get(2..4)
            .map(|len| u16::from_be_bytes([len[0], len[1]]));
        announced.is_some_and(|len| self.buffer.len() >= usize::from(len))
    }

    /// Returns the message with this xid, and drops packet-ins in between. An error from the switch
    /// is a failure.
    pub async fn answer(&mut self, xid: Xid) -> Result<Message, Failure> {
        self.received(xid).await.map(|received| received.message)
    }

    /// Returns the answer to `xid` with the time at which it arrived.
    pub async fn received(&mut self, xid: Xid) -> Result<Received, Failure> {
        let wait = async {
            loop {
                let received = self.next().await?;
                match received.message {
                    Message::Error(error) => return Err(refused(&error)),
                    _ if received.xid == xid => return Ok(received),
                    _ => {}
                }
            }
        };
        match timeout(ANSWER_MAX, wait).await {
            Ok(received) => received,
            Err(_) => Err(silent("a request")),
        }
    }

    /// Sends messages that have no answer, and waits until the switch has processed them all.
    pub async fn carry_out(&mut self, mut messages: Vec<Message>) -> Result<(), Failure> {
        messages.push(Message::BarrierRequest);
        let xid = self.send(&messages).await?;
        self.answer(xid).await.map(drop)
    }

    /// Works like `carry_out`, but accepts an error as an answer.
    pub async fn try_carry_out(
        &mut self,
        mut messages: Vec<Message>,
    ) -> Result<Option<ErrorKind>, Failure> {
        messages.push(Message::BarrierRequest);
        let xid = self.send(&messages).await?;
        let mut first = None;
        loop {
            let received = timeout(ANSWER_MAX, self.next())
                .await
                .map_err(|_| silent("a barrier"))??;
            match received.message {
                Message::Error(error) => first = first.or(Some(error.kind)),
                Message::BarrierReply if received.xid == xid => return Ok(first),
                _ => {}
            }
        }
    }

    async fn frame(&mut self) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = self.split()? {
                return Ok(frame);
            }
            self.buffer.reserve(READ_BYTES);
            let read = self.connection.reader.read_buf(&mut self.buffer).await;
            self.read_ns = now_ns();
            match read {
                Ok(0) => return Err(gone("it closed the connection")),
                Ok(_) => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
        }
    }

    fn split(&mut self) -> Result<Option<Frame>, Failure> {
        let whole = Frame::split_from(&mut self.buffer);
        whole.map_err(|e| Failure::network(format!("the switch sends no OpenFlow: {e}")))
    }
}

fn gone(why: &str) -> Failure {
    Failure::network(format!("the switch is gone: {why}"))
}

fn silent(what: &str) -> Failure {
    Failure::network(format!(
        "the switch did not answer {what} within {} s",
        ANSWER_MAX.as_secs()
    ))
}

fn unexpected(asked: &str, answer: &Message) -> Failure {
    Failure::network(format!(
        "the switch answered {asked} with {:?}",
        answer.kind()
    ))
}

fn refused(error: &ErrorMessage) -> Failure {
    let kind = error.kind;
    let name = kind
        .name()
        .map_or(format!("error {}/{}", kind.ty, kind.code), str::to_owned);
    Failure::network(format!("the switch refused a message: {name}"))
}
