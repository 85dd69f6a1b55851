//! The facts that a switch must report before it is used, gathered from its first answers.

use std::collections::BTreeMap;

use openflow::message::{
    MultipartReply, MultipartRequest, Port, PortReason, Role, RoleMessage, SwitchFeatures,
};
use openflow::multipart::{Description, ReplyBody, RequestBody};
use openflow::{ErrorKind, Frame, Message, PortNo, Version, Xid};

use super::{CloseReason, SwitchUp};

/// Bytes of packet-ins kept until the switch is up, the first to arrive. A host announces itself
/// once, and its switch may send that packet before it has answered.
const EARLY_BYTES_MAX: usize = 4096;
/// The same if they arrived while no process was running.
const RESUMED_BYTES_MAX: usize = 16 << 10;

pub(super) struct Setup {
    features_xid: Xid,
    features: Option<SwitchFeatures>,
    ports: BTreeMap<PortNo, Port>,
    description: Option<Description>,
    role: Role,
    /// Unanswered requests, each with its question.
    waiting: Vec<(Xid, Question)>,
    pub(super) early: Early,
}

/// The first packet-ins before the switch is up, in order.
#[derive(Default)]
pub(super) struct Early {
    frames: Vec<Frame>,
    bytes: usize,
    bytes_max: usize,
}

impl Early {
    pub(super) fn new(is_resumed: bool) -> Early {
        Early {
            frames: Vec::new(),
            bytes: 0,
            bytes_max: match is_resumed {
                true => RESUMED_BYTES_MAX,
                false => EARLY_BYTES_MAX,
            },
        }
    }

    /// Keeps a packet-in until the switch is up. Returns whether there was room.
    pub(super) fn keep(&mut self, frame: Frame) -> bool {
        let bytes = self.bytes + frame.len();
        let has_room = bytes <= self.bytes_max;
        if has_room {
            self.bytes = bytes;
            self.frames.push(frame);
        }
        has_room
    }

    pub(super) fn take(&mut self) -> Vec<Frame> {
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Description,
    Ports,
    Role(Role),
}

pub(super) enum Progress {
    Waiting,
    /// A packet-in or flow-removed that arrives too early.
    Early,
    Unexpected,
    /// Features are known: send [`questions`].
    Ask,
    Done(Box<SwitchUp>),
    Close(CloseReason),
}

/// The questions after the features. [`Setup::asked`] takes their xids in the same order.
pub(super) fn questions(version: Version, role: Option<RoleMessage>) -> Vec<Message> {
    let ask = |body| Message::MultipartRequest(MultipartRequest { more: false, body });
    let mut questions = vec![ask(RequestBody::Desc)];
    if version > Version::V10 {
        questions.push(ask(RequestBody::PortDesc(PortNo::ANY)));
        questions.extend(role.map(Message::RoleRequest));
    }
    questions
}

impl Setup {
    pub(super) fn new(features_xid: Xid, is_resumed: bool) -> Setup {
        Setup {
            features_xid,
            features: None,
            ports: BTreeMap::new(),
            description: None,
            role: Role::Equal,
            waiting: Vec::new(),
            early: Early::new(is_resumed),
        }
    }

    pub(super) fn asked(&mut self, xids: &[Xid], role: Option<RoleMessage>) {
        let asked = [
            Some(Question::Description),
            Some(Question::Ports),
            role.map(|r| Question::Role(r.role)),
        ];
        let asked = asked.into_iter().flatten();
        self.waiting = xids.iter().copied().zip(asked).collect();
    }

    pub(super) fn handle_message(
        &mut self,
        version: Version,
        xid: Xid,
        message: Message,
        port_count_max: usize,
    ) -> Progress {
        match message {
            Message::FeaturesReply(features) if self.features.is_none() => {
                if xid != self.features_xid {
                    return Progress::Unexpected;
                }
                for port in &features.ports {
                    self.ports.insert(port.port_no, port.clone());
                }
                self.features = Some(features);
                return self.bounded(port_count_max).unwrap_or(Progress::Ask);
            }
            Message::PortStatus(status) => {
                // The port description may be under way: the later report counts.
                let no = status.port.port_no;
                match status.reason {
                    PortReason::DELETE => drop(self.ports.remove(&no)),
                    _ => drop(self.ports.insert(no, status.port)),
                }
            }
            Message::MultipartReply(reply) => {
                if !self.handle_reply(xid, reply) {
                    return Progress::Unexpected;
                }
            }
            Message::RoleReply(reply) => match self.question(xid) {
                Some(Question::Role(asked)) => {
                    self.role = match reply.role {
                        Role::NoChange => asked,
                        role => role,
                    };
                    self.answered(xid);
                }
                _ => return Progress::Unexpected,
            },
            // The role may be lost again at once: the later report counts.
            Message::RoleStatus(status) => self.role = status.role,
            Message::Error(error) => match self.handle_error(xid, error.kind) {
                Some(progress) => return progress,
                None => self.answered(xid),
            },
            Message::PacketIn(_) | Message::FlowRemoved(_) => return Progress::Early,
            _ => return Progress::Unexpected,
        }
        if let Some(close) = self.bounded(port_count_max) {
            return close;
        }
        self.done(version)
    }

    fn handle_reply(&mut self, xid: Xid, reply: MultipartReply) -> bool {
        match (self.question(xid), reply.body) {
            (Some(Question::Description), ReplyBody::Desc(description)) => {
                self.description = Some(description);
            }
            (Some(Question::Ports), ReplyBody::PortDesc(ports)) => {
                self.ports.extend(ports.into_iter().map(|p| (p.port_no, p)));
            }
            _ => return false,
        }
        if !reply.more {
            self.answered(xid);
        }
        true
    }

    /// Handles an error. A switch may refuse to describe itself or to know roles; the rest is
    /// required.
    fn handle_error(&self, xid: Xid, kind: ErrorKind) -> Option<Progress> {
        if xid == self.features_xid {
            return Some(Progress::Close(CloseReason::PeerRefused(kind)));
        }
        match self.question(xid) {
            None => Some(Progress::Unexpected),
            Some(Question::Ports) => Some(Progress::Close(CloseReason::PeerRefused(kind))),
            Some(Question::Role(_)) if kind == ErrorKind::ROLE_STALE => {
                Some(Progress::Close(CloseReason::RoleRefused(kind)))
            }
            Some(Question::Role(_) | Question::Description) => None,
        }
    }

    fn question(&self, xid: Xid) -> Option<Question> {
        let found = self.waiting.iter().find(|(x, _)| *x == xid);
        found.map(|(_, question)| *question)
    }

    fn answered(&mut self, xid: Xid) {
        self.waiting.retain(|(x, _)| *x != xid);
    }

    fn bounded(&self, port_count_max: usize) -> Option<Progress> {
        (self.ports.len() > port_count_max).then_some(Progress::Close(CloseReason::TooManyPorts))
    }

    fn done(&mut self, version: Version) -> Progress {
        if !self.waiting.is_empty() {
            return Progress::Waiting;
        }
        let Some(features) = self.features.take() else {
            return Progress::Waiting;
        };
        Progress::Done(Box::new(SwitchUp {
            version,
            features,
            ports: std::mem::take(&mut self.ports).into_values().collect(),
            description: self.description.take(),
            role: self.role,
        }))
    }
}
