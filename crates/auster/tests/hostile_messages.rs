//! Every malformed or abusive message we know of, against the running commands: as the first bytes
//! of a connection and after a handshake. Each ends in the right OpenFlow error, in a close, or is
//! ignored where the protocol says so. Only the connection that sent it may end, and a switch
//! beside it notices nothing.
//!
//! `fixtures/hostile.txt` has one case a line: a name and the bytes. The outcome of each case is in
//! `fixtures/hostile_expected.txt`; `AUSTER_BLESS=1` writes that file again, for review.

mod common;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::ports::free_port;
use common::relays::{Relays, wait_for_port};
use common::running::{PATIENCE, Running};
use common::switch::{Came, Switch, VERSION};
use openflow::message::Hello;
use openflow::{Frame, Message, Xid, decode};

const CASES: &str = include_str!("fixtures/hostile.txt");
const EXPECTED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/hostile_expected.txt"
);

/// The largest growth of resident memory over all cases, the allocator's arenas included.
const MEMORY_GROWTH_MAX: u64 = 48 << 20;

/// The number of cases at a time. Most of a case is waiting: for a deadline, or for the controller
/// to be quiet.
const WORKERS: usize = 16;

/// Datapath ids of the attackers. Each case has its own, so that none meets its predecessor's.
const ATTACKER: u64 = 0xbad0_0000;

fn cases() -> impl Iterator<Item = (usize, &'static str, Vec<u8>)> {
    CASES.lines().enumerate().map(|(n, line)| {
        let (name, hex) = line.split_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (n, name, (0..hex.len()).step_by(2).map(byte).collect())
    })
}

/// The result of `bytes`: every distinct kind of answer, in order, until a last message after them
/// is refused or the connection closes.
fn outcome(attacker: &mut Switch, bytes: &[u8]) -> String {
    // Two last messages, the second sent when the first is answered: an echo, for which nothing
    // else waits in a relay, and a type that does not exist, which nothing overtakes in a relay.
    // When both are answered, all answers to the case have arrived.
    const ECHO: Xid = Xid(0x00e0_0001);
    const LAST: Xid = Xid(0x00e0_0002);
    let mut seen: Vec<String> = Vec::new();
    attacker.send_bytes(bytes);
    attacker.send_bytes(&[4, 2, 0, 8, 0, 0xe0, 0, 1]);
    loop {
        let frame = match attacker.serve(PATIENCE) {
            Came::Message(frame) => frame,
            Came::Closed => {
                seen.push("closed".into());
                break;
            }
            Came::Nothing => {
                seen.push("HANGS".into());
                break;
            }
        };
        match frame.xid() {
            ECHO => {
                attacker.send_bytes(&[4, 0x7f, 0, 8, 0, 0xe0, 0, 2]);
                continue;
            }
            LAST => break,
            _ => {}
        }
        let word = match decode(&frame) {
            Ok(Message::Error(error)) => error.kind.to_string(),
            // Opening messages of the handshake, and messages of the application meanwhile.
            Ok(
                Message::Hello(_)
                | Message::FeaturesRequest
                | Message::FlowMod(_)
                | Message::PacketOut(_)
                | Message::SetConfig(_)
                | Message::MultipartRequest(_)
                | Message::BundleControl(_)
                | Message::BundleAdd(_)
                | Message::EchoRequest(_),
            ) => continue,
            Ok(message) => format!("{:?}", message.kind()),
            Err(error) => format!("UNREADABLE {error}"),
        };
        if seen.last() != Some(&word) {
            seen.push(word);
        }
    }
    if seen.is_empty() {
        "ignored".into()
    } else {
        seen.join(", ")
    }
}

/// Sends the bytes first, and then a HELLO as if nothing had happened.
fn as_first_bytes(to: SocketAddr, n: usize, bytes: &[u8]) -> String {
    let mut attacker = Switch::connect(to, ATTACKER + n as u64);
    let mut with_hello = bytes.to_vec();
    let hello = Message::Hello(Hello::offering(&[VERSION]));
    with_hello.extend_from_slice(openflow::encode(VERSION, Xid(1), &hello).unwrap().bytes());
    outcome(&mut attacker, &with_hello)
}

fn after_handshake(to: SocketAddr, n: usize, bytes: &[u8]) -> String {
    let mut attacker = Switch::up(to, ATTACKER + 0x1000 + n as u64);
    outcome(&mut attacker, bytes)
}

/// One line per case. Cases run beside each other, each on connections of its own.
fn table(to: SocketAddr) -> String {
    let cases: Vec<_> = cases().collect();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let mine: Vec<_> = cases
                .iter()
                .skip(worker)
                .step_by(WORKERS)
                .cloned()
                .collect();
            std::thread::spawn(move || {
                let line = |(n, name, bytes): (usize, &str, Vec<u8>)| {
                    let first = as_first_bytes(to, n, &bytes);
                    let after = after_handshake(to, n, &bytes);
                    (n, format!("{name:32} first: {first:32} after: {after}"))
                };
                mine.into_iter().map(line).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut lines: Vec<_> = workers
        .into_iter()
        .flat_map(|w| w.join().unwrap())
        .collect();
    lines.sort();
    let mut table = String::new();
    for (_, line) in lines {
        writeln!(table, "{line}").unwrap();
    }
    table
}

/// Attacks `to` while `victim` stays connected, and returns the table of outcomes.
fn attack(to: SocketAddr, victim: &mut Switch) -> String {
    let attack = std::thread::spawn(move || table(to));
    let mut echo_count = 0;
    while !attack.is_finished() {
        assert!(
            victim.is_answered(PATIENCE),
            "the switch beside them lost its controller"
        );
        echo_count += 1;
        victim.serve_until_quiet(Duration::from_millis(50));
    }
    assert!(
        echo_count > 20,
        "the victim was there all the while: {echo_count} echoes"
    );
    attack.join().unwrap()
}

/// Runs `attack` and asserts that `processes` keep running, grow within the bound, and rest
/// afterwards.
fn outlive(processes: &mut [&mut Running], attack: impl FnOnce()) {
    let memory: Vec<u64> = processes.iter().map(|p| p.memory()).collect();
    attack();
    for (process, before) in processes.iter_mut().zip(memory) {
        assert!(process.is_running(), "{}", process.log.join("\n"));
        let grown = process.memory().saturating_sub(before);
        assert!(
            grown < MEMORY_GROWTH_MAX,
            "memory grew by {} KiB",
            grown >> 10
        );
    }
    let idle: Vec<_> = processes.iter().map(|p| p.cpu()).collect();
    std::thread::sleep(Duration::from_secs(1));
    for (process, before) in processes.iter().zip(idle) {
        let spent = process.cpu() - before;
        assert!(
            spent < Duration::from_millis(500),
            "something spins: {spent:?} of CPU in 1 s"
        );
    }
}

fn assert_as_expected(table: &str) {
    let expected = std::fs::read_to_string(EXPECTED).unwrap();
    for (got, expected) in table.lines().zip(expected.lines()) {
        assert_eq!(got, expected);
    }
    assert_eq!(table.lines().count(), expected.lines().count());
}

#[test]
fn every_hostile_message_ends_at_most_its_own_connection() {
    let mut auster = Running::start(&["run", "--listen", "ptcp:0:127.0.0.1"]);
    let to = auster.listening("ptcp");
    let mut victim = Switch::up(to, 1);
    assert!(victim.is_served());

    outlive(&mut [&mut auster], || {
        let table = attack(to, &mut victim);
        if std::env::var_os("AUSTER_BLESS").is_some() {
            std::fs::write(EXPECTED, &table).unwrap();
        }
        assert_as_expected(&table);
        assert!(
            victim.is_served(),
            "the application serves the switch beside them as before"
        );
    });
}

/// A relay carries messages that it does not understand. The controller behind it gives the same
/// answers as without it; where no answer is possible, that channel ends, and no other.
#[test]
fn the_relays_change_no_outcome_and_lose_no_other_channel() {
    let mut auster = Running::start(&["run", "--listen", "ptcp:0:127.0.0.1"]);
    let controller = auster.listening("ptcp");
    let port = free_port();
    let mut relays = Relays::start(port, controller.port(), "unix:/nonexistent/db.sock");
    let to = SocketAddr::new(controller.ip(), port);
    wait_for_port(port);
    let mut victim = Switch::up(to, 1);
    assert!(victim.is_served());

    let Relays {
        switch, controller, ..
    } = &mut relays;
    outlive(&mut [&mut auster, switch, controller], || {
        assert_as_expected(&attack(to, &mut victim));
        assert!(
            victim.is_served(),
            "the switch beside them is served as before"
        );
    });
}

/// The other way round: a controller that sends each case down, as its first bytes.
#[test]
fn a_hostile_controller_harms_its_own_channel_at_most() {
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    let to_controller = controller.local_addr().unwrap().port();
    let mut relays = Relays::start(port, to_controller, "unix:/nonexistent/db.sock");
    wait_for_port(port);
    let connect = || {
        let mut switch = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let hello = Message::Hello(Hello::offering(&[VERSION]));
        let hello = openflow::encode(VERSION, Xid(1), &hello).unwrap();
        switch.write_all(hello.bytes()).unwrap();
        switch.set_read_timeout(Some(PATIENCE)).unwrap();
        // The check whether the port answers was a connection too, and has ended.
        loop {
            let (mut end, _) = controller.accept().unwrap();
            end.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = vec![0; hello.len()];
            if end.read_exact(&mut got).is_ok() {
                assert_eq!(got[..], hello.bytes()[..]);
                return (switch, end);
            }
        }
    };
    // The tunnel may not be up yet when the port answers; the first channel waits for it.
    let (mut victim, mut victim_end) = connect();

    let Relays {
        switch, controller, ..
    } = &mut relays;
    outlive(&mut [switch, controller], || {
        for (_, name, bytes) in cases() {
            let (mut switch, mut end) = connect();
            let _ = end.write_all(&bytes);
            let whole = Frame::new(bytes.clone().into()).is_ok();
            let wait = if whole {
                PATIENCE
            } else {
                Duration::from_millis(200)
            };
            switch.set_read_timeout(Some(wait)).unwrap();
            let mut got = vec![0; bytes.len()];
            match switch.read_exact(&mut got) {
                Ok(()) => assert_eq!(got, bytes, "{name}: other bytes than were sent"),
                Err(error) => assert!(!whole, "{name}: a whole frame did not pass: {error}"),
            }
            victim_end.write_all(&[4, 2, 0, 8, 0, 0, 0, 9]).unwrap();
            let mut echo = [0; 8];
            victim
                .read_exact(&mut echo)
                .unwrap_or_else(|e| panic!("after {name}: {e}"));
            assert_eq!(echo, [4, 2, 0, 8, 0, 0, 0, 9]);
        }
    });
}
