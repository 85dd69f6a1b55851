//! A controller process: sessions, inbox and application as the driver combines them. The time that
//! the application takes for a message is an argument.

use std::collections::{BTreeMap, VecDeque};

use bytes::BytesMut;
use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::{
    Admission, Controller, ControllerConfig, ControllerOutput, Event, PeerIdentity, RefusedReason,
};
use control::edge::{Edge, Verdict, shown};
use control::inbox::{Inbox, InboxConfig};
use control::session::{Session, SessionConfig, SessionOutput};
use openflow::{DatapathId, Frame, MessageKind};
use sched::{Classifier, Direction, PolicyMap};

#[derive(Clone, Debug)]
pub struct ProcessConfig {
    pub controller: ControllerConfig,
    pub session: SessionConfig,
    pub inbox: InboxConfig,
    /// The policy by which the inbox sorts.
    pub policy: PolicyMap,
    /// The time that one message costs the application.
    pub service_time: Duration,
}

impl Default for ProcessConfig {
    /// The configuration of a controller that runs without flags.
    fn default() -> ProcessConfig {
        ProcessConfig {
            controller: ControllerConfig::default(),
            session: SessionConfig::default(),
            inbox: InboxConfig::default(),
            policy: PolicyMap::auster(),
            service_time: Duration::ZERO,
        }
    }
}

pub struct Process {
    config: ProcessConfig,
    pub controller: Controller,
    pub inbox: Inbox,
    classifier: Classifier,
    lines: BTreeMap<ConnectionId, Line>,
    /// Time at which the application is done with its present message.
    busy_until: Instant,
    outputs: VecDeque<ProcessOutput>,
    /// Every event of the controller, in order.
    pub events: Vec<(Instant, Event)>,
    /// The reasons for which the controller has closed connections, in order.
    pub closed: Vec<RefusedReason>,
}

struct Line {
    session: Session,
    edge: Edge,
    datapath: Option<DatapathId>,
    /// Frames read but not accepted by the inbox: it is full, so nothing more is read.
    unread: VecDeque<Frame>,
    is_paused: bool,
}

pub enum ProcessOutput {
    Send(ConnectionId, Frame),
    Close(ConnectionId),
}

impl Process {
    pub fn new(config: ProcessConfig, seed: u64) -> Process {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_be_bytes());
        Process {
            controller: Controller::new(config.controller.clone(), key),
            inbox: Inbox::new(config.inbox),
            classifier: Classifier::new(&config.policy),
            lines: BTreeMap::new(),
            busy_until: Instant::START,
            outputs: VecDeque::new(),
            events: Vec::new(),
            closed: Vec::new(),
            config,
        }
    }

    pub fn handle_accept(&mut self, now: Instant, id: ConnectionId) {
        let session = Session::new(now, self.config.session.clone(), id.0);
        self.lines.insert(
            id,
            Line {
                session,
                edge: Edge::default(),
                datapath: None,
                unread: VecDeque::new(),
                is_paused: false,
            },
        );
        self.drain(now);
    }

    pub fn handle_frame(&mut self, now: Instant, id: ConnectionId, frame: Frame) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.unread.push_back(frame);
        }
        self.drain(now);
    }

    pub fn handle_down(&mut self, now: Instant, id: ConnectionId) {
        self.forget(now, id);
        self.drain(now);
    }

    /// Runs an operator's question on the controller, like `driver::Driver::ask`.
    pub fn ask<R>(&mut self, now: Instant, question: impl FnOnce(&mut Controller) -> R) -> R {
        let answer = question(&mut self.controller);
        self.drain(now);
        answer
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for line in self.lines.values_mut() {
            line.session.handle_timeout(now);
        }
        self.controller.handle_timeout(now);
        self.serve(now);
        self.drain(now);
    }

    pub fn poll_output(&mut self) -> Option<ProcessOutput> {
        self.outputs.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self
            .lines
            .values()
            .filter_map(|line| line.session.poll_timeout());
        let due = sessions
            .chain(self.controller.poll_timeout())
            .map(|(at, _)| at);
        let work = (!self.inbox.is_empty()).then_some(self.busy_until);
        due.chain(work).min()
    }

    pub fn edge(&self, id: ConnectionId) -> Option<&Edge> {
        self.lines.get(&id).map(|line| &line.edge)
    }

    pub fn session(&self, id: ConnectionId) -> Option<&Session> {
        self.lines.get(&id).map(|line| &line.session)
    }

    /// Gives the application its next message, if it is done with the last.
    fn serve(&mut self, now: Instant) {
        while self.busy_until <= now
            && let Some(delivery) = self.inbox.poll_frame(now)
        {
            self.controller
                .handle_frame(now, delivery.connection, delivery.frame);
            self.busy_until = now + self.config.service_time;
        }
    }

    /// Runs until nothing moves any more. The controller may have new input of its own.
    pub(crate) fn drain(&mut self, now: Instant) {
        loop {
            let ready = |line: &Line| {
                !line.unread.is_empty() || line.session.has_output() || line.is_paused
            };
            let lines = self.lines.iter().filter(|(_, line)| ready(line));
            let ids: Vec<ConnectionId> = lines.map(|(id, _)| *id).collect();
            let read = ids
                .into_iter()
                .map(|id| self.read(now, id))
                .fold(false, |a, b| a | b);
            self.serve(now);
            let said = self.drain_controller(now);
            if !read && !said {
                return;
            }
        }
    }

    /// Passes one connection's unread frames through its session, as long as the inbox has room.
    fn read(&mut self, now: Instant, id: ConnectionId) -> bool {
        let mut moved = false;
        loop {
            let Some(line) = self.lines.get_mut(&id) else {
                return moved;
            };
            let room = self.inbox.has_room(id);
            line.is_paused = !room;
            line.session.handle_paused(now, !room);
            if room && let Some(frame) = line.unread.pop_front() {
                let mut answers = BytesMut::new();
                let mut verdict = Verdict::Left;
                if line.session.is_up() && frame.kind() == MessageKind::PacketIn {
                    verdict = line.edge.handle_packet_in(now, frame.bytes(), &mut answers);
                }
                match verdict {
                    Verdict::Left => line.session.handle_frame(now, frame),
                    Verdict::Show => line.session.handle_frame(now, shown(frame.bytes())),
                    Verdict::Answered => {}
                }
                if verdict != Verdict::Left {
                    self.send_all(id, answers);
                    moved = true;
                    continue;
                }
            }
            let Some(output) = line.session.poll_output() else {
                return moved;
            };
            moved = true;
            let mut next = Some(output);
            while let Some(output) = next {
                self.carry_out(now, id, output);
                next = self
                    .lines
                    .get_mut(&id)
                    .and_then(|line| line.session.poll_output());
            }
        }
    }

    fn carry_out(&mut self, now: Instant, id: ConnectionId, output: SessionOutput) {
        match output {
            SessionOutput::Transmit(frame) => {
                self.outputs.push_back(ProcessOutput::Send(id, frame))
            }
            SessionOutput::Deliver(frame) => {
                let datapath = self.lines.get(&id).and_then(|line| line.datapath);
                let to = Direction::ToController;
                let verdict = self.classifier.classify(&frame, to, id.0, datapath);
                let taken = self.inbox.handle_tagged(now, id, &verdict.tag, frame);
                assert!(taken.is_ok(), "read only when there was room");
            }
            SessionOutput::Up(up) => {
                if let Some(line) = self.lines.get_mut(&id) {
                    line.datapath = Some(up.features.datapath_id);
                }
                let peer = PeerIdentity::default();
                if let Admission::Refused(_) = self.controller.handle_up(now, id, *up, peer) {
                    self.outputs.push_back(ProcessOutput::Close(id));
                    self.forget(now, id);
                }
            }
            SessionOutput::Aside(_) => self.controller.handle_down(now, id),
            SessionOutput::Close(_) => {
                self.outputs.push_back(ProcessOutput::Close(id));
                self.forget(now, id);
            }
        }
    }

    fn drain_controller(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(output) = self.controller.poll_output() {
            moved = true;
            match output {
                ControllerOutput::Send { connection, frame } => {
                    self.outputs
                        .push_back(ProcessOutput::Send(connection, frame));
                }
                ControllerOutput::Close { connection, reason } => {
                    self.closed.push(reason);
                    self.outputs.push_back(ProcessOutput::Close(connection));
                    self.forget(now, connection);
                }
                ControllerOutput::Probe { connection } => {
                    if let Some(line) = self.lines.get_mut(&connection) {
                        line.session.handle_probe(now);
                    }
                }
                ControllerOutput::Edge { connection, update } => {
                    let mut messages = BytesMut::new();
                    if let Some(line) = self.lines.get_mut(&connection) {
                        line.edge.handle_update(update, &mut messages);
                    }
                    self.send_all(connection, messages);
                }
                ControllerOutput::Event(event) => self.events.push((now, event)),
            }
        }
        moved
    }

    fn send_all(&mut self, id: ConnectionId, mut messages: BytesMut) {
        while let Ok(Some(frame)) = Frame::split_from(&mut messages) {
            self.outputs.push_back(ProcessOutput::Send(id, frame));
        }
    }

    fn forget(&mut self, now: Instant, id: ConnectionId) {
        self.lines.remove(&id);
        self.inbox.handle_down(id);
        self.controller.handle_down(now, id);
    }
}
