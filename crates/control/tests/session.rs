//! The session by transcripts: `cases/session/*.case` hold the input and, indented, the output.
//! `AUSTER_BLESS=1` rewrites the indented lines; review the difference.
#![allow(
    clippy::disallowed_methods,
    reason = "cases are files, and the switch is a variable"
)]

use std::fmt::Write;

use bytes::Bytes;
use clock::{Duration, Instant};
use control::session::{Session, SessionConfig, SessionOutput};
use openflow::hello::Hello;
use openflow::message::{
    ErrorMessage, MultipartReply, PacketIn, Port, PortConfig, PortName, PortReason, PortState,
    PortStatus, Role, RoleMessage, RoleReason, RoleStatus, SwitchFeatures, TableMod, TableReason,
    TableStatus,
};
use openflow::multipart::{Description, ReplyBody};
use openflow::{
    DatapathId, ErrorKind, Frame, MacAddr, Message, MessageKind, PortNo, TableId, Version, Xid,
    encode, text,
};
use proptest::prelude::*;

#[test]
fn every_transcript_is_repeated() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/session");
    let bless = std::env::var("AUSTER_BLESS").is_ok();
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("the case folder") {
        let path = file.expect("a readable folder").path();
        let wanted = std::fs::read_to_string(&path).expect("a readable case");
        let got = replay(&wanted);
        if bless {
            std::fs::write(&path, &got).expect("a writable case");
        }
        assert!(bless || got == wanted, "{}:\n{got}", path.display());
        count += 1;
    }
    assert!(count >= 10, "{count} cases");
}

/// Runs the lines of a case that are not indented, and writes down the output of each.
fn replay(case: &str) -> String {
    let mut got = String::new();
    let mut config = SessionConfig::default();
    let mut now = Instant::START;
    let mut session = None;
    for line in case.lines().filter(|line| !line.starts_with("  ")) {
        let _ = writeln!(got, "{line}");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "role" => {
                let generation_id = rest.parse().expect("a generation");
                config.role = Some(RoleMessage::new(Role::Primary, generation_id));
            }
            "guarded" => config.is_guarded = true,
            "start" => session = Some(Session::new(now, config.clone(), 0)),
            "resume" => {
                let version = Version::V13;
                session = Some(Session::resume(now, config.clone(), version, 0));
            }
            "" | "#" => continue,
            _ => {}
        }
        let Some(session) = &mut session else {
            continue;
        };
        match word {
            "at" => {
                let ms = rest.trim_end_matches("ms").parse().expect("milliseconds");
                let end = Instant::START + Duration::from_millis(ms);
                while let Some((due, reason)) = session.poll_timeout()
                    && due <= end
                {
                    now = due;
                    let ms = due.as_nanos() / 1_000_000;
                    let _ = writeln!(got, "  {ms}ms {reason}");
                    session.handle_timeout(now);
                    drain(session, &mut got);
                }
                now = end;
            }
            "say" => {
                let (name, xid) = rest.split_once(' ').unwrap_or((rest, "0"));
                let xid = Xid(u32::from_str_radix(xid, 16).expect("a hexadecimal xid"));
                session.handle_frame(now, said(name, xid));
            }
            "bytes" => session.handle_frame(now, Frame::new(unhex(rest)).expect("a frame")),
            "partial" => session.handle_partial(now, rest == "yes"),
            "paused" => session.handle_paused(now, rest == "yes"),
            "probe" => session.handle_probe(now),
            "start" | "resume" | "role" | "guarded" => {}
            _ => panic!("no such word: {line}"),
        }
        drain(session, &mut got);
    }
    got
}

fn drain(session: &mut Session, got: &mut String) {
    while let Some(output) = session.poll_output() {
        let _ = match output {
            SessionOutput::Transmit(frame) => {
                let text = text::print(&frame);
                writeln!(
                    got,
                    "  send {}",
                    text.lines().next().unwrap_or_default().trim_end()
                )
            }
            SessionOutput::Deliver(frame) => writeln!(got, "  deliver {:?}", frame.kind()),
            SessionOutput::Close(reason) => writeln!(got, "  close: {reason}"),
            SessionOutput::Aside(dpid) => writeln!(got, "  aside {dpid}"),
            SessionOutput::Up(up) => writeln!(
                got,
                "  up {} {} {:?} ports={:?} described={}",
                up.version,
                up.features.datapath_id,
                up.role,
                up.ports.iter().map(|p| p.port_no.0).collect::<Vec<_>>(),
                up.description.is_some()
            ),
        };
    }
}

fn said(name: &str, xid: Xid) -> Frame {
    let reply = |body| Message::MultipartReply(MultipartReply { more: false, body });
    let hello = |versions: &[Version]| Message::Hello(Hello::offering(versions));
    let (version, message) = match name {
        "hello" => (Version::V13, hello(&[Version::V13])),
        "hello-1.5" => (
            Version::V15,
            hello(&[Version::V13, Version::V14, Version::V15]),
        ),
        "hello-1.4-only" => (Version::V14, hello(&[Version::V14])),
        "features" => (Version::V13, Message::FeaturesReply(features())),
        "description" => (Version::V13, reply(ReplyBody::Desc(Description::default()))),
        "ports" => (
            Version::V13,
            reply(ReplyBody::PortDesc(vec![port(1), port(2)])),
        ),
        "echo-request" => (
            Version::V13,
            Message::EchoRequest(Bytes::from_static(b"ping")),
        ),
        "echo-reply" => (Version::V13, Message::EchoReply(Bytes::new())),
        "barrier-request" => (Version::V13, Message::BarrierRequest),
        "barrier-reply" => (Version::V13, Message::BarrierReply),
        "packet-in" => (Version::V13, Message::PacketIn(packet_in())),
        "role-primary" => {
            let role = RoleMessage::new(Role::Primary, 7);
            (Version::V13, Message::RoleReply(role))
        }
        "role-lost" => {
            let status = RoleStatus {
                role: Role::Secondary,
                reason: RoleReason::PRIMARY_REQUEST,
                generation_id: 8,
                properties: Vec::new(),
            };
            (Version::V13, Message::RoleStatus(status))
        }
        "role-unset" => {
            let role = RoleMessage::new(Role::Equal, u64::MAX);
            (Version::V13, Message::RoleReply(role))
        }
        "role-equal" => {
            let role = RoleMessage::new(Role::Equal, 6);
            (Version::V13, Message::RoleReply(role))
        }
        "role-secondary" => {
            let role = RoleMessage::new(Role::Secondary, 9);
            (Version::V13, Message::RoleReply(role))
        }
        "port-3" => {
            let status = PortStatus {
                reason: PortReason::ADD,
                port: port(3),
            };
            (Version::V13, Message::PortStatus(status))
        }
        "slave-error" => {
            let error = ErrorMessage::new(
                ErrorKind::IS_SLAVE,
                Bytes::from_static(&[4, 14, 0, 80, 0, 0, 0, 7]),
            );
            (Version::V13, Message::Error(error))
        }
        _ => panic!("nobody says {name}"),
    };
    encode(version, xid, &message).expect("sayable")
}

fn features() -> SwitchFeatures {
    SwitchFeatures {
        datapath_id: DatapathId(0xabc),
        n_buffers: 0,
        n_tables: 1,
        auxiliary_id: 0,
        capabilities: Default::default(),
        actions: 0,
        ports: Vec::new(),
    }
}

fn port(number: u32) -> Port {
    Port {
        port_no: PortNo(number),
        hw_addr: MacAddr([2, 0, 0, 0, 0, number as u8]),
        name: PortName::new("p"),
        config: PortConfig::empty(),
        state: PortState::empty(),
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: 0,
        max_speed: 0,
        properties: Vec::new(),
    }
}

fn packet_in() -> PacketIn {
    PacketIn {
        total_len: 60,
        ..PacketIn::new(PortNo(1), Bytes::from_static(&[0; 60]))
    }
}

fn unhex(hex: &str) -> Bytes {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// A session whose switch is up, outputs drained.
fn up(now: Instant) -> Session {
    let mut session = Session::new(now, SessionConfig::default(), 0);
    let says = [
        ("hello", 0),
        ("features", 2),
        ("description", 3),
        ("ports", 4),
    ];
    for (name, xid) in says {
        session.handle_frame(now, said(name, Xid(0x8000_0000 | xid)));
    }
    while session.poll_output().is_some() {}
    assert!(session.is_up());
    session
}

/// A switch may send the notices of later versions.
#[test]
fn notices_of_later_versions_are_no_mistakes() {
    let (now, role) = (Instant::START, said("role-lost", Xid(0)));
    let table = TableMod {
        table_id: TableId(0),
        config: 0,
        properties: Vec::new(),
    };
    let notices = [
        openflow::decode(&role).expect("a role status"),
        Message::TableStatus(TableStatus {
            reason: TableReason::VACANCY_DOWN,
            table,
        }),
    ];
    for version in [Version::V14, Version::V15] {
        let config = SessionConfig {
            versions: vec![version],
            ..SessionConfig::default()
        };
        let mut session = Session::new(now, config, 0);
        let mut say = |xid, message: &Message| {
            let frame = encode(version, Xid(xid), message).expect("sayable");
            session.handle_frame(now, frame);
        };
        let reply = |body| Message::MultipartReply(MultipartReply { more: false, body });
        say(0, &Message::Hello(Hello::offering(&[version])));
        say(0x8000_0002, &Message::FeaturesReply(features()));
        say(0x8000_0003, &reply(ReplyBody::Desc(Description::default())));
        say(0x8000_0004, &reply(ReplyBody::PortDesc(vec![port(1)])));
        notices.iter().for_each(|notice| say(0, notice));
        assert!(session.is_up(), "{version}");
        let delivered = std::iter::from_fn(|| session.poll_output())
            .filter(|output| matches!(output, SessionOutput::Deliver(_)));
        assert_eq!(delivered.count(), notices.len(), "{version}");
        assert_eq!(session.counters().malformed, 0, "{version}");
    }
}

/// The first 4 KiB of packet-ins wait for the switch to be up; the rest is counted.
#[test]
fn what_a_switch_sends_early_is_kept_within_a_bound() {
    let now = Instant::START;
    let mut session = Session::new(now, SessionConfig::default(), 0);
    session.handle_frame(now, said("hello", Xid(0)));
    for n in 0..100 {
        session.handle_frame(now, said("packet-in", Xid(n)));
    }
    let says = [("features", 2), ("description", 3), ("ports", 4)];
    for (name, xid) in says {
        session.handle_frame(now, said(name, Xid(0x8000_0000 | xid)));
    }
    let kept: Vec<u32> = std::iter::from_fn(|| session.poll_output())
        .filter_map(|output| match output {
            SessionOutput::Deliver(frame) => Some(frame.xid().0),
            _ => None,
        })
        .collect();
    let room = 4096 / said("packet-in", Xid(0)).len();
    assert_eq!(kept, (0..room as u32).collect::<Vec<_>>());
    assert_eq!(session.counters().early, 100 - room as u64);
    assert_eq!(session.counters().delivered, room as u64);
}

/// More packet-ins have arrived while no process was running: 16 KiB of them wait.
#[test]
fn more_is_kept_of_a_connection_that_goes_on() {
    let now = Instant::START;
    let mut session = Session::resume(now, SessionConfig::default(), Version::V13, 0);
    for n in 0..400 {
        session.handle_frame(now, said("packet-in", Xid(n)));
    }
    for (name, xid) in [("features", 1), ("description", 2), ("ports", 3)] {
        session.handle_frame(now, said(name, Xid(0x8000_0000 | xid)));
    }
    let room = (16 << 10) / said("packet-in", Xid(0)).len() as u64;
    assert!(session.is_up());
    assert_eq!(session.counters().delivered, room);
    assert_eq!(session.counters().early, 400 - room);
}

/// Sends each of the messages that wedge or crash other controllers on an established channel. Each
/// gets an answer or a decision, never a panic, and the echo after it is answered unless the
/// session was closed.
#[test]
fn hostile_messages_end_in_an_error_a_delivery_or_a_close() {
    let corpus = include_str!("../../openflow/tests/fixtures/malformed.txt");
    let (mut refused, mut count) = (0, 0);
    for line in corpus.lines().filter(|line| !line.is_empty()) {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        // Bytes that are no frame never reach a session.
        let Ok(frame) = Frame::new(unhex(hex.trim())) else {
            continue;
        };
        count += 1;
        let mut session = up(Instant::START);
        session.handle_frame(Instant::START, frame);
        refused += session.counters().malformed;
        while session.poll_output().is_some() {}
        session.handle_frame(Instant::START, said("echo-request", Xid(9)));
        match session.poll_output() {
            Some(SessionOutput::Transmit(reply)) => {
                assert_eq!(reply.kind(), MessageKind::EchoReply, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(count >= 40, "{count} frames");
    assert!(refused >= 20, "{refused} refused");
}

/// The same messages, each as the first of a connection: only a readable HELLO keeps it open.
#[test]
fn hostile_openings_are_closed() {
    let corpus = include_str!("../../openflow/tests/fixtures/malformed.txt");
    for line in corpus.lines().filter(|line| !line.is_empty()) {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        let Ok(frame) = Frame::new(unhex(hex.trim())) else {
            continue;
        };
        let is_hello = frame.type_byte() == 0;
        let mut session = Session::new(Instant::START, SessionConfig::default(), 0);
        session.handle_frame(Instant::START, frame);
        let outputs: Vec<_> = std::iter::from_fn(|| session.poll_output()).collect();
        let closed = matches!(outputs.last(), Some(SessionOutput::Close(_)));
        assert!(
            closed || (is_hello && session.version().is_some()),
            "{name}: {outputs:?}"
        );
    }
}

proptest! {
    /// Messages for another process arrive first, in any order and with any xid except the one of
    /// the features request. None of them ends the connection. Only packet-ins, up to a bound,
    /// reach the application.
    #[test]
    fn what_was_for_the_process_before_means_nothing(
        stale in prop::collection::vec(
            (prop::sample::select(vec![
                "description", "ports", "echo-request", "echo-reply", "barrier-reply",
                "packet-in", "role-primary", "role-equal", "port-3", "slave-error", "hello",
            ]), 2u32..20, any::<bool>()), 0..60),
    ) {
        let now = Instant::START;
        let mut session = Session::resume(now, SessionConfig::default(), Version::V13, 0);
        let (mut echoes, mut packet_ins) = (0, 0);
        let mut has_port = false;
        for (name, xid, is_session) in &stale {
            echoes += u32::from(*name == "echo-request");
            packet_ins += u32::from(*name == "packet-in");
            has_port |= *name == "port-3";
            let top = if *is_session { 0x8000_0000 } else { 0 };
            session.handle_frame(now, said(name, Xid(top | xid)));
        }
        prop_assert!(!session.is_up());
        for (name, xid) in [("features", 1), ("description", 2), ("ports", 3)] {
            session.handle_frame(now, said(name, Xid(0x8000_0000 | xid)));
        }
        prop_assert!(session.is_up());
        let outputs: Vec<_> = std::iter::from_fn(|| session.poll_output()).collect();
        let sent = |kind| {
            let is_sent = |output: &&SessionOutput| {
                matches!(output, SessionOutput::Transmit(frame) if frame.kind() == kind)
            };
            outputs.iter().filter(is_sent).count() as u32
        };
        prop_assert_eq!(sent(MessageKind::EchoReply), echoes);
        prop_assert_eq!(sent(MessageKind::Error) + sent(MessageKind::Hello), 0);
        let room = (16 << 10) / said("packet-in", Xid(0)).len() as u32;
        let mut delivered = 0;
        for output in &outputs {
            match output {
                SessionOutput::Deliver(frame) => {
                    prop_assert_eq!(frame.kind(), MessageKind::PacketIn);
                    delivered += 1;
                }
                SessionOutput::Up(up) => {
                    prop_assert_eq!(up.ports.len(), 2 + usize::from(has_port));
                    prop_assert_eq!(up.role, Role::Equal);
                }
                SessionOutput::Transmit(_) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(delivered, packet_ins.min(room));
    }

    /// A frame with the right length, and nothing else right.
    #[test]
    fn no_bytes_make_a_session_panic(
        opening in any::<bool>(),
        frames in prop::collection::vec(
            (prop_oneof![Just(4u8), Just(1), any::<u8>()], 0u8..32, any::<u32>(),
             prop::collection::vec(any::<u8>(), 0..120)), 1..12),
    ) {
        let mut session = match opening {
            true => Session::new(Instant::START, SessionConfig::default(), 0),
            false => up(Instant::START),
        };
        for (version, kind, xid, body) in frames {
            let len = (8 + body.len()) as u16;
            let header = [&[version, kind][..], &len.to_be_bytes(), &xid.to_be_bytes()].concat();
            let bytes = [header, body].concat();
            session.handle_frame(Instant::START, Frame::new(bytes.into()).expect("its length"));
        }
        let mut closed = false;
        while let Some(output) = session.poll_output() {
            prop_assert!(!closed, "nothing follows a close");
            closed = matches!(output, SessionOutput::Close(_));
        }
        if closed {
            prop_assert_eq!(session.poll_timeout(), None);
        }
    }
}
