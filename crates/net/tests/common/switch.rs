//! A scripted switch: it answers a controller's set-up requests, and nothing else by itself.
#![allow(dead_code, reason = "each test binary uses its part of it")]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openflow::hello::Hello;
use openflow::message::{Capabilities, MultipartReply, PacketIn, RoleMessage, SwitchFeatures};
use openflow::multipart::{Description, ReplyBody, RequestBody};
use openflow::{DatapathId, Frame, Message, PortNo, Version, Xid, decode, encode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A test that waits longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Switch<R, W> {
    pub reader: R,
    pub writer: W,
    pub datapath_id: DatapathId,
    input: BytesMut,
    /// Messages received while the switch was set up or asked for something else.
    pub kept: Vec<Frame>,
    pub features_requests: usize,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Switch<R, W> {
    pub fn new(reader: R, writer: W, datapath_id: u64) -> Switch<R, W> {
        Switch {
            reader,
            writer,
            datapath_id: DatapathId(datapath_id),
            input: BytesMut::new(),
            kept: Vec::new(),
            features_requests: 0,
        }
    }

    /// Sends HELLO and answers the controller up to its first echo request, which it sends once the
    /// switch is up. Returns `None` if the controller closed the connection instead.
    pub async fn set_up(&mut self) -> Option<()> {
        self.send(0, &Message::Hello(Hello::offering(&[Version::V13])))
            .await?;
        loop {
            let frame = self.receive().await?;
            if self.answer(&frame).await? {
                return Some(());
            }
        }
    }

    pub async fn send(&mut self, xid: u32, message: &Message) -> Option<()> {
        let frame = encode(Version::V13, Xid(xid), message).unwrap();
        self.send_bytes(frame.bytes()).await
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.writer.write_all(bytes).await.ok()?;
        self.writer.flush().await.ok()
    }

    /// The next message, or `None` at the end of the connection.
    pub async fn receive(&mut self) -> Option<Frame> {
        let read = async {
            loop {
                if let Some(frame) = Frame::split_from(&mut self.input).unwrap() {
                    return Some(frame);
                }
                match self.reader.read_buf(&mut self.input).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("neither a message nor the end")
    }

    /// Sends an echo request, waits for its reply, and returns the time that this took.
    pub async fn echo(&mut self, xid: u32) -> Option<Duration> {
        let since = std::time::Instant::now();
        let text = Bytes::from_static(b"are you there");
        self.send(xid, &Message::EchoRequest(text.clone())).await?;
        loop {
            let frame = self.receive().await?;
            if frame.xid() == Xid(xid) {
                assert_eq!(decode(&frame).unwrap(), Message::EchoReply(text));
                return Some(since.elapsed());
            }
            self.answer(&frame).await?;
        }
    }

    /// Answers one message of the controller. Returns whether it was an echo request.
    pub async fn answer(&mut self, frame: &Frame) -> Option<bool> {
        let is_echo = frame.kind() == openflow::MessageKind::EchoRequest;
        let reply = match decode(frame).unwrap() {
            Message::FeaturesRequest => {
                self.features_requests += 1;
                Message::FeaturesReply(SwitchFeatures {
                    datapath_id: self.datapath_id,
                    n_buffers: 0,
                    n_tables: 254,
                    auxiliary_id: 0,
                    capabilities: Capabilities(0),
                    actions: 0,
                    ports: vec![],
                })
            }
            Message::MultipartRequest(request) => {
                let body = match request.body {
                    RequestBody::Desc => ReplyBody::Desc(Description {
                        manufacturer: Bytes::from_static(b"auster"),
                        hardware: Bytes::new(),
                        software: Bytes::from_static(b"script"),
                        serial: Bytes::new(),
                        datapath: Bytes::new(),
                    }),
                    RequestBody::PortDesc(_) => ReplyBody::PortDesc(vec![]),
                    RequestBody::Flow(_) => ReplyBody::Flow(vec![]),
                    _ => {
                        self.kept.push(frame.clone());
                        return Some(false);
                    }
                };
                Message::MultipartReply(MultipartReply { more: false, body })
            }
            Message::RoleRequest(RoleMessage { role, .. }) => {
                Message::RoleReply(RoleMessage::new(role, u64::MAX))
            }
            Message::BarrierRequest => Message::BarrierReply,
            Message::EchoRequest(data) => Message::EchoReply(data),
            _ => {
                self.kept.push(frame.clone());
                return Some(false);
            }
        };
        self.send(frame.xid().0, &reply).await?;
        Some(is_echo)
    }
}

pub fn packet_in(port: u32, data: &'static [u8]) -> Message {
    Message::PacketIn(PacketIn::new(PortNo(port), Bytes::from_static(data)))
}
