//! The controller's end of one OpenFlow connection.
//!
//! A session opens with HELLO, agrees on a version, asks the switch for its identity (features,
//! description, ports, role) and outputs [`SessionOutput::Up`]. From then on the session answers
//! echo requests, checks every message and delivers the messages for the application. With
//! [`SessionConfig::is_guarded`] it does so only while no other controller serves the switch. The
//! session never waits for the application, so the switch's keep-alive works however busy the
//! application is.
//!
//! Reactions to faulty peers:
//!
//! | the peer | the session |
//! | --- | --- |
//! | opens with anything but HELLO | closes |
//! | shares no version with us | HELLO_FAILED/INCOMPATIBLE, closes |
//! | is silent during set-up | closes at the deadline |
//! | sends an unreadable message | the decoder's error; closes after `malformed_max` |
//! | sends another version mid-channel | BAD_VERSION, counted as malformed |
//! | sends a controller's message or an unknown type | BAD_TYPE, counted as malformed |
//! | sends a second HELLO, HELLO_FAILED or an unsolicited reply | ignored, counted |
//! | stops in the middle of a message | closes after `message_timeout` |
//! | answers no echo | closes after `echo_unanswered_max` |
//! | answers the guard once, and never again | closes after `features_timeout` |
//!
//! Transaction ids with the top bit set are the session's; the application uses the others.

mod roles;
mod setup;

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use clock::{Duration, Instant};
use openflow::hello::{Hello, negotiate};
use openflow::message::Port;
use openflow::message::{ErrorMessage, Role, RoleMessage, SwitchFeatures};
use openflow::multipart::Description;
use openflow::{
    DatapathId, ErrorKind, Frame, Message, MessageKind, Version, Xid, decode, decode_rows, encode,
};

use crate::guard::{Guard, GuardCounters};
use roles::Roles;
use setup::{Progress, Setup};

/// Set in every xid of a session, clear in every xid of the application.
pub const SESSION_XID: u32 = 0x8000_0000;

/// Bytes of a refused message that its OFPT_ERROR quotes; the protocol asks for 64 at least.
const ERROR_DATA_LEN: usize = 128;

#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The versions to offer, out of 1.0, 1.3, 1.4 and 1.5. The session uses the highest that both
    /// sides know.
    pub versions: Vec<Version>,
    /// Time from the start of the connection to the peer's HELLO.
    pub hello_timeout: Duration,
    /// Time from the start of the connection to [`SessionOutput::Up`].
    pub features_timeout: Duration,
    /// Time from the first byte of a message to its last.
    pub message_timeout: Duration,
    /// Time between two echo requests, whatever other traffic the channel has: echoes measure its
    /// delay too.
    pub echo_interval: Duration,
    /// Echo requests without any sign of life before the connection counts as dead.
    pub echo_unanswered_max: u32,
    /// Time for the peer to answer [`Session::handle_probe`].
    pub probe_timeout: Duration,
    /// Maximum number of malformed messages within `malformed_window`; one more closes the
    /// connection.
    pub malformed_max: u32,
    pub malformed_window: Duration,
    /// Role to ask for (1.3); `None` leaves the switch's default, EQUAL.
    pub role: Option<RoleMessage>,
    /// Whether a [`Guard`] decides whether this controller serves the switch, for controllers that
    /// do not know of each other. The guard then chooses the role instead of `role`.
    pub is_guarded: bool,
    /// Whether the guard lets other controllers take the switch first, as at this process's other
    /// switches.
    pub is_patient: bool,
    /// Maximum number of ports of one switch; more close the connection.
    pub port_count_max: usize,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig {
            versions: vec![Version::V10, Version::V13],
            hello_timeout: Duration::from_secs(5),
            features_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(10),
            echo_interval: Duration::from_secs(5),
            echo_unanswered_max: 3,
            probe_timeout: Duration::from_secs(1),
            malformed_max: 8,
            malformed_window: Duration::from_secs(60),
            role: None,
            is_guarded: false,
            is_patient: false,
            port_count_max: 4096,
        }
    }
}

/// A switch that has reported everything needed to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchUp {
    pub version: Version,
    pub features: SwitchFeatures,
    /// The ports, by number. From the features reply in 1.0, from PORT_DESC later.
    pub ports: Vec<Port>,
    /// `None` when the switch refused to describe itself.
    pub description: Option<Description>,
    /// The role granted; EQUAL if none was requested or the switch knows no roles.
    pub role: Role,
}

#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionOutput {
    /// A frame to write before anything that is queued for this connection.
    Transmit(Frame),
    /// The switch may be used. Output once, and again after [`SessionOutput::Aside`].
    Up(Box<SwitchUp>),
    /// Another controller serves the switch. This ends the use that [`SessionOutput::Up`] began, if
    /// it was output. Needs [`SessionConfig::is_guarded`].
    Aside(DatapathId),
    /// A frame for the application. [`decode_rows`] reads it without error.
    Deliver(Frame),
    /// The end: write the frames transmitted before, then close. No output follows.
    Close(CloseReason),
}

/// The reason that a session ended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    NotHello(MessageKind),
    /// The peer began a handshake of TLS.
    Tls,
    /// Versions as bits, numbered as on the wire: bit n is version n.
    VersionMismatch {
        /// The version byte of its HELLO.
        theirs: u8,
        /// The bitmap of its HELLO, if it has one.
        offered: Option<u32>,
        ours: u32,
    },
    HelloTimeout,
    FeaturesTimeout,
    MessageTimeout,
    EchoTimeout,
    ProbeTimeout,
    Malformed {
        count: u32,
    },
    TooManyPorts,
    /// The peer refused our HELLO or our request for features.
    PeerRefused(ErrorKind),
    RoleRefused(ErrorKind),
    /// A switch that knows roles has not answered a role request.
    RoleTimeout,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Tls => f.write_str(
                "it speaks TLS, and nothing else listens here: use pssl: instead of ptcp:, or tcp: \
                 at the switch",
            ),
            CloseReason::NotHello(kind) => write!(f, "opened with {kind:?}, not HELLO"),
            CloseReason::VersionMismatch {
                theirs,
                offered,
                ours,
            } => {
                let theirs = offered.unwrap_or(1u32.checked_shl((*theirs).into()).unwrap_or(0));
                let (theirs, ours) = (version_names(theirs), version_names(*ours));
                write!(
                    f,
                    "no common version: it speaks OpenFlow {theirs}, and auster {ours}"
                )
            }
            CloseReason::HelloTimeout => f.write_str("no HELLO in time"),
            CloseReason::FeaturesTimeout => f.write_str("features or ports not told in time"),
            CloseReason::MessageTimeout => f.write_str("a message was begun and not ended in time"),
            CloseReason::EchoTimeout => f.write_str("no echo reply"),
            CloseReason::ProbeTimeout => f.write_str("no answer to a probe"),
            CloseReason::Malformed { count } => write!(f, "{count} malformed messages"),
            CloseReason::TooManyPorts => f.write_str("more ports than are allowed"),
            CloseReason::PeerRefused(kind) => write!(f, "the switch refused: {kind}"),
            CloseReason::RoleRefused(kind) => write!(f, "the switch refused the role: {kind}"),
            CloseReason::RoleTimeout => f.write_str("no answer to a role request"),
        }
    }
}

/// The versions of a HELLO's bitmap, for people.
pub fn version_names(bits: u32) -> String {
    let named = (0..u32::BITS).filter(|bit| bits >> bit & 1 == 1);
    let names: Vec<String> = named
        .map(|wire| match wire {
            0 => "0".to_owned(),
            wire => format!("1.{}", wire - 1),
        })
        .collect();
    match names.is_empty() {
        true => "of no version that is known".to_owned(),
        false => names.join(", "),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    pub received: u64,
    pub transmitted: u64,
    pub delivered: u64,
    /// Delivered packet-ins, without those that the edge has answered.
    pub packet_ins: u64,
    pub echo_requests_sent: u64,
    pub echo_requests_answered: u64,
    /// Messages that were answered by an error.
    pub malformed: u64,
    /// Unsolicited replies, second HELLOs and the like: ignored.
    pub unexpected: u64,
    /// Flow-removed before the switch was up, and packet-ins beyond the first few.
    pub early: u64,
    /// Counts of the session's guard.
    pub guard: GuardCounters,
}

pub struct Session {
    config: SessionConfig,
    state: State,
    started: Instant,
    outputs: VecDeque<SessionOutput>,
    next_xid: u32,
    /// When the next echo request is sent, or the connection counts as dead.
    echo_due: Instant,
    echo_unanswered: u32,
    probe_due: Option<Instant>,
    partial_since: Option<Instant>,
    paused: bool,
    resumed_at: Instant,
    /// Decides whether this controller serves the switch, once it is set up.
    roles: Option<Box<Roles>>,
    /// Whether another process opened the connection.
    is_resumed: bool,
    malformed_since: Instant,
    malformed_count: u32,
    counters: SessionCounters,
}

enum State {
    Hello,
    Setup(Version, Box<Setup>),
    Up(Version),
    Closed,
}

impl Session {
    /// Starts a session with our HELLO. `seed` only chooses the first xid.
    pub fn new(now: Instant, config: SessionConfig, seed: u64) -> Session {
        assert!(!config.versions.is_empty(), "a session without a version");
        let highest = config.versions.iter().copied().max();
        let mut session = Session::begun(now, config, seed);
        let hello = Message::Hello(Hello::offering(&session.config.versions));
        session.request(highest.unwrap_or(Version::V13), &hello);
        session
    }

    /// Starts a session on a connection that another process has used until now, in `version`.
    /// `seed` chooses the first xid.
    ///
    /// The request for features is the fence: a switch answers in order, so all messages before its
    /// answer were for the other process. Packet-ins and port changes among them count. Answers do
    /// not, whatever their xids.
    pub fn resume(now: Instant, config: SessionConfig, version: Version, seed: u64) -> Session {
        let mut session = Session::begun(now, config, seed);
        session.is_resumed = true;
        session.ask_features(version);
        session
    }

    fn begun(now: Instant, config: SessionConfig, seed: u64) -> Session {
        Session {
            echo_due: now + config.echo_interval,
            state: State::Hello,
            started: now,
            outputs: VecDeque::new(),
            next_xid: seed as u32 & !SESSION_XID,
            echo_unanswered: 0,
            probe_due: None,
            partial_since: None,
            paused: false,
            resumed_at: now,
            roles: None,
            is_resumed: false,
            malformed_since: now,
            malformed_count: 0,
            counters: SessionCounters::default(),
            config,
        }
    }

    /// Handles one message from the switch.
    pub fn handle_frame(&mut self, now: Instant, frame: Frame) {
        if matches!(self.state, State::Closed) {
            return;
        }
        self.counters.received += 1;
        self.heard();
        self.partial_since = None;
        match &self.state {
            State::Hello => self.handle_opening(frame),
            State::Setup(version, _) | State::Up(version) => {
                let version = *version;
                self.handle_spoken(now, version, frame);
            }
            State::Closed => {}
        }
    }

    /// Notes that `count` packet-ins were received and answered already: the peer is alive.
    pub fn handle_answered(&mut self, count: u64) {
        self.counters.received += count;
        self.heard();
        self.partial_since = None;
    }

    /// Notes whether the read buffer holds the beginning of a message.
    pub fn handle_partial(&mut self, now: Instant, partial: bool) {
        self.partial_since = match (partial, self.partial_since) {
            (false, _) => None,
            (true, since) => since.or(Some(now)),
        };
    }

    /// Notes whether the driver has stopped reading because the inbox is full. During the pause,
    /// silence is not the switch's fault, and no deadline that waits for the switch runs.
    pub fn handle_paused(&mut self, now: Instant, paused: bool) {
        if self.paused && !paused {
            self.heard();
            self.partial_since = self.partial_since.map(|_| now);
            self.resumed_at = now;
        }
        self.paused = paused;
    }

    /// Asks for a sign of life within `probe_timeout`: another connection claims to be this switch.
    pub fn handle_probe(&mut self, now: Instant) {
        if let State::Up(version) = self.state
            && self.probe_due.is_none()
        {
            self.probe_due = Some(now + self.config.probe_timeout);
            self.send_echo(version);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((due, _)) = self.poll_timeout()
            && due <= now
        {
            self.handle_due(now);
        }
    }

    pub fn poll_output(&mut self) -> Option<SessionOutput> {
        self.outputs.pop_front()
    }

    /// Whether [`Session::poll_output`] has an output.
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// The next deadline and its purpose.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let mut deadlines = [None; 5];
        match self.state {
            State::Closed => return None,
            State::Hello => {
                deadlines[0] = Some((self.started + self.config.hello_timeout, "hello"));
            }
            State::Setup(..) => {
                deadlines[0] = Some((self.started + self.config.features_timeout, "features"));
            }
            State::Up(_) if !self.paused => {
                deadlines[0] = Some((self.echo_due, "echo"));
                deadlines[1] = self.probe_due.map(|due| (due, "probe"));
                deadlines[3] = self.guard_due().map(|due| (due, "guard"));
                deadlines[4] = self.role_due().map(|due| (due, "role"));
            }
            State::Up(_) => {}
        }
        if !self.paused {
            let since = self.partial_since;
            deadlines[2] = since.map(|at| (at + self.config.message_timeout, "message"));
        }
        deadlines.into_iter().flatten().min_by_key(|(due, _)| *due)
    }

    /// The version agreed on, from the peer's HELLO to the end.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            State::Setup(version, _) | State::Up(version) => Some(version),
            State::Hello | State::Closed => None,
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether another controller serves the switch.
    pub fn is_aside(&self) -> bool {
        self.roles
            .as_ref()
            .is_some_and(|roles| roles.guard.is_aside())
    }

    pub fn counters(&self) -> SessionCounters {
        let mut counters = self.counters;
        if let Some(roles) = &self.roles {
            counters.guard = roles.guard.counters();
        }
        counters
    }

    /// Handles exactly one deadline, so that each deadline is examined in the state that the
    /// previous one left.
    fn handle_due(&mut self, now: Instant) {
        let due = |at: Instant| at <= now;
        if self
            .partial_since
            .is_some_and(|at| due(at + self.config.message_timeout))
            && !self.paused
        {
            return self.close(CloseReason::MessageTimeout);
        }
        match self.state {
            State::Hello => self.close(CloseReason::HelloTimeout),
            State::Setup(..) => self.close(CloseReason::FeaturesTimeout),
            State::Up(_) if self.probe_due.is_some_and(due) => {
                self.close(CloseReason::ProbeTimeout);
            }
            State::Up(_) if self.role_due().is_some_and(due) => {
                self.close(CloseReason::RoleTimeout);
            }
            State::Up(version) if self.guard_due().is_some_and(due) => {
                self.guard(now, version, |roles| roles.guard.handle_timeout(now));
            }
            State::Up(_) if self.echo_unanswered >= self.config.echo_unanswered_max => {
                self.close(CloseReason::EchoTimeout);
            }
            State::Up(version) => self.echo_in_turn(now, version),
            State::Closed => {}
        }
    }

    fn heard(&mut self) {
        self.echo_unanswered = 0;
        self.probe_due = None;
    }

    fn handle_opening(&mut self, frame: Frame) {
        // A HELLO of an unknown version is still a HELLO: type 0 and its elements never changed.
        let hello = match frame.type_byte() {
            0 => decode(&as_known_version(&frame)),
            1 => return self.close_refused(&frame),
            // A record of a handshake (RFC 8446, 5.1).
            3 if frame.version_byte() == 22 => return self.close(CloseReason::Tls),
            _ => return self.close(CloseReason::NotHello(frame.kind())),
        };
        let theirs = frame.version_byte();
        let answer_in = if theirs >= Version::V13.wire() {
            Version::V13
        } else {
            Version::V10
        };
        let hello = match hello {
            Ok(Message::Hello(hello)) => hello,
            Ok(_) => return self.close(CloseReason::NotHello(frame.kind())),
            Err(error) => {
                self.counters.malformed += 1;
                self.send_error(answer_in, &frame, error.kind);
                return self.close(CloseReason::Malformed { count: 1 });
            }
        };
        let Some(version) = negotiate(&self.config.versions, theirs, &hello) else {
            let spoken: Vec<String> = self
                .config
                .versions
                .iter()
                .map(Version::to_string)
                .collect();
            let text = Bytes::from(format!("auster speaks OpenFlow {}", spoken.join(", ")));
            self.send_error_data(answer_in, frame.xid(), ErrorKind::HELLO_INCOMPATIBLE, text);
            let ours = self.config.versions.iter();
            return self.close(CloseReason::VersionMismatch {
                theirs,
                offered: hello.bitmaps.and_then(|maps| maps.first().copied()),
                ours: ours.fold(0, |bits, version| bits | 1 << version.wire()),
            });
        };
        self.ask_features(version);
    }

    fn ask_features(&mut self, version: Version) {
        let xid = self.request(version, &Message::FeaturesRequest);
        let setup = Setup::new(xid, self.is_resumed);
        self.state = State::Setup(version, Box::new(setup));
    }

    fn close_refused(&mut self, frame: &Frame) {
        let kind = match decode(frame) {
            Ok(Message::Error(error)) => error.kind,
            _ => ErrorKind::HELLO_INCOMPATIBLE,
        };
        self.close(CloseReason::PeerRefused(kind));
    }

    fn handle_spoken(&mut self, now: Instant, version: Version, frame: Frame) {
        use MessageKind as K;
        let kind = frame.kind();
        if kind == K::Hello {
            self.counters.unexpected += 1;
            return;
        }
        if frame.version_byte() != version.wire() {
            return self.malformed(now, version, &frame, ErrorKind::BAD_VERSION);
        }
        match kind {
            K::EchoRequest => {
                self.counters.echo_requests_answered += 1;
                self.transmit(echo_reply(&frame));
                return;
            }
            K::EchoReply => return,
            kind if !is_sent_by_switches(kind) => {
                return self.malformed(now, version, &frame, ErrorKind::BAD_TYPE);
            }
            _ => {}
        }
        // An unreadable row must not hide the others from the application.
        let message = match decode_rows(&frame) {
            Ok((message, _)) => message,
            // Never answer an error with an error: two sides could do so for ever.
            Err(_) if kind == K::Error => return self.count_malformed(now),
            Err(error) => return self.malformed(now, version, &frame, error.kind),
        };
        if let Message::Error(error) = &message
            && error.kind.ty == ErrorKind::HELLO_INCOMPATIBLE.ty
        {
            self.counters.unexpected += 1;
            return;
        }
        match self.state {
            State::Setup(..) => self.handle_in_setup(now, version, frame, message),
            _ => {
                if !self.is_guards(now, version, &frame, &message) {
                    self.handle_up(frame, &message);
                }
            }
        }
    }

    fn handle_in_setup(&mut self, now: Instant, version: Version, frame: Frame, message: Message) {
        let State::Setup(_, setup) = &mut self.state else {
            return;
        };
        if matches!(message, Message::PacketIn(_)) && setup.early.keep(frame.clone()) {
            return;
        }
        let ports_max = self.config.port_count_max;
        match setup.handle_message(version, frame.xid(), message, ports_max) {
            Progress::Waiting => {}
            Progress::Early => self.counters.early += 1,
            Progress::Unexpected => self.counters.unexpected += 1,
            Progress::Close(reason) => self.close(reason),
            Progress::Ask => self.ask_the_rest(version),
            Progress::Done(up) => {
                let mut early = std::mem::take(&mut setup.early);
                self.state = State::Up(version);
                if self.config.is_guarded && version > Version::V10 {
                    let guard = match self.is_resumed {
                        true => Guard::resume(now, self.config.is_patient),
                        false => Guard::new(now, self.config.is_patient),
                    };
                    self.roles = Some(Box::new(Roles::new(guard, *up, early)));
                    self.echo_due = now + self.config.echo_interval;
                    self.guard(now, version, |_| ());
                } else {
                    self.start(up, early.take());
                    self.echo_in_turn(now, version);
                }
            }
        }
    }

    /// Hands the switch to the application, with the packet-ins received before.
    fn start(&mut self, up: Box<SwitchUp>, early: Vec<Frame>) {
        self.outputs.push_back(SessionOutput::Up(up));
        self.counters.delivered += early.len() as u64;
        let early = early.into_iter().map(SessionOutput::Deliver);
        self.outputs.extend(early);
    }

    /// Asks for description, ports and role, once the peer is known to be a switch. Pipelined: the
    /// three answers are independent.
    fn ask_the_rest(&mut self, version: Version) {
        let role = self.config.role.filter(|_| !self.config.is_guarded);
        let requests = setup::questions(version, role);
        let asked: Vec<Xid> = requests.iter().map(|m| self.request(version, m)).collect();
        if let State::Setup(_, setup) = &mut self.state {
            setup.asked(&asked, role);
        }
    }

    fn handle_up(&mut self, frame: Frame, message: &Message) {
        let ours = frame.xid().0 & SESSION_XID != 0;
        let is_reply = !matches!(
            message,
            Message::PacketIn(_)
                | Message::PortStatus(_)
                | Message::FlowRemoved(_)
                | Message::RoleStatus(_)
                | Message::TableStatus(_)
                | Message::ControllerStatus(_)
                | Message::Experimenter(_)
                | Message::RequestForward(_)
                | Message::BundleControl(_)
                | Message::BundleAdd(_)
        );
        if matches!(message, Message::FeaturesReply(_)) || (ours && is_reply) {
            self.counters.unexpected += 1;
            return;
        }
        self.counters.delivered += 1;
        self.counters.packet_ins += u64::from(matches!(message, Message::PacketIn(_)));
        self.outputs.push_back(SessionOutput::Deliver(frame));
    }

    fn malformed(&mut self, now: Instant, version: Version, frame: &Frame, kind: ErrorKind) {
        if frame.type_byte() != 1 {
            self.send_error(version, frame, kind);
        }
        self.count_malformed(now);
    }

    fn count_malformed(&mut self, now: Instant) {
        if now.since(self.malformed_since) > self.config.malformed_window {
            self.malformed_since = now;
            self.malformed_count = 0;
        }
        self.counters.malformed += 1;
        self.malformed_count += 1;
        if self.malformed_count > self.config.malformed_max {
            let count = self.malformed_count;
            self.close(CloseReason::Malformed { count });
        }
    }

    fn send_error(&mut self, version: Version, frame: &Frame, kind: ErrorKind) {
        let data = frame.bytes().slice(..frame.len().min(ERROR_DATA_LEN));
        self.send_error_data(version, frame.xid(), kind, data);
    }

    fn send_error_data(&mut self, version: Version, xid: Xid, kind: ErrorKind, data: Bytes) {
        let error = Message::Error(ErrorMessage::new(kind, data.clone()));
        // 1.0 has fewer codes: a missing code becomes the nearest one, a bad length.
        let frame = encode(version, xid, &error).or_else(|_| {
            let kind = ErrorKind::BAD_LEN;
            let error = ErrorMessage::new(kind, data);
            encode(version, xid, &Message::Error(error))
        });
        if let Ok(frame) = frame {
            self.transmit(frame);
        }
    }

    fn echo_in_turn(&mut self, now: Instant, version: Version) {
        self.echo_unanswered += 1;
        // Count from now, not from the deadline: after a stall of ours the switch gets its full
        // time.
        self.echo_due = now + self.config.echo_interval;
        self.send_echo(version);
    }

    fn send_echo(&mut self, version: Version) {
        self.counters.echo_requests_sent += 1;
        self.request(version, &Message::EchoRequest(Bytes::new()));
    }

    /// Sends a request of the session's own with a fresh xid.
    fn request(&mut self, version: Version, message: &Message) -> Xid {
        self.next_xid = self.next_xid.wrapping_add(1) & !SESSION_XID;
        let xid = Xid(self.next_xid | SESSION_XID);
        let frame = encode(version, xid, message);
        self.transmit(frame.expect("the session's own requests exist in every version spoken"));
        xid
    }

    fn transmit(&mut self, frame: Frame) {
        self.counters.transmitted += 1;
        self.outputs.push_back(SessionOutput::Transmit(frame));
    }

    fn close(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.outputs.push_back(SessionOutput::Close(reason));
    }
}

/// The reply to an echo request: the same bytes with another type.
fn echo_reply(request: &Frame) -> Frame {
    let mut bytes = BytesMut::from(&request.bytes()[..]);
    bytes[1] = 3;
    Frame::new(bytes.freeze()).expect("as long as the request was")
}

/// `frame` itself, or a copy with version 1.3 if its version byte is unknown.
fn as_known_version(frame: &Frame) -> Frame {
    if frame.version().is_some() {
        return frame.clone();
    }
    let mut bytes = BytesMut::from(&frame.bytes()[..]);
    bytes[0] = Version::V13.wire();
    Frame::new(bytes.freeze()).expect("as long as it was")
}

fn is_sent_by_switches(kind: MessageKind) -> bool {
    use MessageKind as K;
    matches!(
        kind,
        K::Error
            | K::Experimenter
            | K::FeaturesReply
            | K::GetConfigReply
            | K::PacketIn
            | K::FlowRemoved
            | K::PortStatus
            | K::MultipartReply
            | K::BarrierReply
            | K::QueueGetConfigReply
            | K::RoleReply
            | K::GetAsyncReply
            | K::BundleControl
            | K::RoleStatus
            | K::TableStatus
            | K::RequestForward
            | K::ControllerStatus
    )
}
