//! The model of the wire against what can be counted by hand.

use std::time::Duration;

use sim::link::LinkConfig;
use sim::overhead::wire::{
    Carrier, Congestion, Host, Message, Outcome, QUINN_ACK_DELAY, QuicCarrier, RELAY_ACK_DELAY,
    RELAY_LANES, RELAY_RECORDS, RELAY_RECORDS_1, Setup, Streams, TcpCarrier, poisson,
};

const TCP: TcpCarrier = TcpCarrier {
    is_tls: false,
    nodelay: true,
    is_shared: false,
    rto_min: Duration::from_millis(200),
};
const TLS: TcpCarrier = TcpCarrier {
    is_tls: true,
    ..TCP
};
const QUIC: QuicCarrier = QuicCarrier {
    streams: Streams::PerAgent,
    is_thin: false,
    ack_delay: QUINN_ACK_DELAY,
    congestion: Congestion::Cubic,
    window_floor_bytes: 0,
    records: None,
};
/// A machine without any delay of its own.
const IDEAL: Host = Host {
    wake: Duration::ZERO,
    tcp_item: Duration::ZERO,
    quic_item: Duration::ZERO,
    late: Duration::ZERO,
    timer: Duration::ZERO,
};
const ETHERNET_IP_TCP: u64 = 14 + 20 + 32;
const ETHERNET_IP_UDP: u64 = 14 + 20 + 8;

/// A link of 1 ms in each direction; messages of 220 bytes to the controller at these
/// milliseconds.
fn setup(carrier: Carrier, at_ms: &[u64]) -> Setup {
    let message = |ms: &u64| Message {
        due: ms * 1_000_000,
        agent: 0,
        lane: 0,
        bytes: 220,
    };
    Setup {
        carrier,
        window: Duration::ZERO,
        agents: 1,
        messages: [at_ms.iter().map(message).collect(), Vec::new()],
        link: LinkConfig {
            delay: Duration::from_millis(1),
            ..LinkConfig::default()
        },
        seeds: [1, 2],
        host: IDEAL,
    }
}

/// Frames and bytes besides the handshake and the messages.
fn beyond(outcome: &Outcome) -> (u64, u64) {
    let frames = outcome.frames - outcome.handshake_frames;
    let bytes = outcome.frame_bytes - outcome.handshake_bytes - outcome.application_bytes;
    (frames, bytes)
}

/// Two ends of two agents, each at 500 messages a second, as the bench has them.
fn both_ways(carrier: Carrier, messages: u32, loss: f64, seed: u64) -> Setup {
    let of = |seed| {
        let agent = |agent| poisson(agent, 500.0, messages, 220, seed);
        (0..2).flat_map(agent).collect()
    };
    Setup {
        agents: 2,
        messages: [of(seed), of(!seed)],
        link: LinkConfig {
            delay: Duration::from_micros(160),
            loss,
            spared_frames: 40,
            ..LinkConfig::default()
        },
        seeds: [seed, !seed],
        ..setup(carrier, &[])
    }
}

#[test]
fn a_lone_message_is_a_segment_and_an_acknowledgement() {
    let tcp = setup(Carrier::Tcp(TCP), &[0]).run();
    assert_eq!(beyond(&tcp), (2, 2 * ETHERNET_IP_TCP));
    // SYN, SYN and ACK with 20 bytes of options each, and ACK.
    assert_eq!(
        (tcp.handshake_frames, tcp.handshake_bytes),
        (3, 74 + 74 + 66)
    );
    let tls = setup(Carrier::Tcp(TLS), &[0]).run();
    assert_eq!(beyond(&tls), (2, 2 * ETHERNET_IP_TCP + 22));
    // Short headers with ids of 8 bytes and tags; STREAM of stream 2; ACK of packet 1 after 25 ms,
    // which is more than 64 units of 8 us, with three counts of ECN marks.
    let quic = setup(Carrier::Quic(QUIC), &[0]).run();
    let header = ETHERNET_IP_UDP + 1 + 8 + 1 + 16;
    let (stream, ack) = (1 + 1 + 2, 1 + 1 + 2 + 1 + 1 + 3);
    assert_eq!(beyond(&quic), (2, 2 * header + stream + ack));
    let thin = QuicCarrier {
        is_thin: true,
        ..QUIC
    };
    let thin = setup(Carrier::Quic(thin), &[0]).run();
    // Four bytes to the controller, none to the switch.
    assert_eq!(beyond(&thin), (2, 2 * header - 4 - 8 + stream + ack));
}

#[test]
fn what_a_window_holds_is_one_write_and_one_record() {
    let held = |carrier, window| Setup {
        window: Duration::from_millis(window),
        ..setup(carrier, &[0, 1, 2])
    };
    let (frames, bytes) = beyond(&held(Carrier::Tcp(TLS), 0).run());
    assert_eq!((frames, bytes), (6, 6 * ETHERNET_IP_TCP + 3 * 22));
    let (frames, bytes) = beyond(&held(Carrier::Tcp(TLS), 5).run());
    assert_eq!((frames, bytes), (2, 2 * ETHERNET_IP_TCP + 22));
    assert_eq!(beyond(&held(Carrier::Quic(QUIC), 5).run()).0, 2);
    // Only the first message opens the window; 6 opens the next one, which includes 10.
    let late = Setup {
        window: Duration::from_millis(5),
        ..setup(Carrier::Tcp(TCP), &[0, 4, 6, 10])
    };
    assert_eq!(beyond(&late.run()).0, 4);
}

#[test]
fn nagle_holds_what_is_short_while_something_is_out() {
    let nagle = Carrier::Tcp(TcpCarrier {
        nodelay: false,
        ..TCP
    });
    // The first is sent; the other two are sent together when it is acknowledged.
    assert_eq!(beyond(&setup(nagle, &[0, 1, 1]).run()).0, 4);
    assert_eq!(beyond(&setup(Carrier::Tcp(TCP), &[0, 1, 1]).run()).0, 6);
}

/// A message finds an acknowledgement pending or not, and is followed by one of either end: of a
/// Poisson process both ways, a third are acknowledged alone.
#[test]
fn acknowledgements_race_with_messages() {
    let frames = |carrier| both_ways(carrier, 5000, 0.0, 1).run().frames_per_message();
    for carrier in [Carrier::Tcp(TCP), Carrier::Quic(QUIC)] {
        let found = frames(carrier);
        assert!((found - 4.0 / 3.0).abs() < 0.02, "{carrier:?}: {found}");
    }
    // After ten packets, or 25 ms: hardly ever alone.
    let thin = Carrier::Quic(QuicCarrier {
        is_thin: true,
        ..QUIC
    });
    assert!(frames(thin) < 1.02, "{}", frames(thin));
}

/// A relay sends its data about a lane and a record with the record. A message takes along the
/// report of deliveries that are half a second old.
#[test]
fn a_relay_says_of_each_record_and_lane_and_reports_with_the_next_message() {
    for (records, lane, record) in [(RELAY_RECORDS_1, 4, 2), (RELAY_RECORDS, 4 + 3, 0)] {
        let relay = Carrier::Quic(QuicCarrier {
            streams: Streams::Lanes(RELAY_LANES),
            is_thin: true,
            ack_delay: RELAY_ACK_DELAY,
            congestion: Congestion::Westwood,
            records: Some(records),
            ..QUIC
        });
        let of = |to_controller: &[(u64, u16)], to_switch: &[(u64, u16)]| {
            let message = |(ms, lane): &(u64, u16)| Message {
                due: ms * 1_000_000,
                agent: 0,
                lane: *lane,
                bytes: 220,
            };
            let messages = [to_controller, to_switch].map(|all| all.iter().map(message).collect());
            let setup = Setup {
                messages,
                ..setup(relay, &[])
            };
            beyond(&setup.run())
        };
        let to_controller = ETHERNET_IP_UDP + 1 + 4 + 1 + 16;
        let to_switch = ETHERNET_IP_UDP + 1 + 1 + 16;
        let stream = 1 + 1 + 2;
        // A delay of 5 ms is 625 units of 8 us.
        let ack = 1 + 1 + 2 + 1 + 1 + 3;
        let one = to_controller + stream + lane + record + to_switch + ack;
        assert_eq!(of(&[(0, 0)], &[]), (2, one));
        // The same lane again: an offset, and no data about the lane.
        let again = to_controller + stream + 2 + record + to_switch + ack;
        assert_eq!(of(&[(0, 0), (100, 0)], &[]), (4, one + again));
        assert_eq!(of(&[(0, 0), (100, 1)], &[]), (4, 2 * one));
        // To the controller at 700 ms, on the control stream: the report of the delivery at 0.
        let report = (1 + 1 + 1) + 4 + 3;
        let back = to_switch + stream + lane + record + to_controller + ack;
        assert_eq!(of(&[(700, 0)], &[(0, 0)]), (4, one + back + report));
        assert_eq!(of(&[(300, 0)], &[(0, 0)]), (4, one + back));
    }
}

/// Over QUIC, a busy machine writes all messages together that have arrived meanwhile. With
/// TCP_NODELAY it does not.
#[test]
fn what_a_busy_machine_finds_goes_together() {
    let busy = |carrier| {
        let setup = Setup {
            host: Host {
                wake: Duration::from_millis(1),
                ..IDEAL
            },
            ..both_ways(carrier, 2000, 0.0, 1)
        };
        setup.run().frames_per_message()
    };
    assert!(busy(Carrier::Quic(QUIC)) < 0.9);
    assert!(busy(Carrier::Tcp(TCP)) > 1.0);
}

#[test]
fn losses_cost_bytes_and_no_message() {
    for carrier in [
        Carrier::Tcp(TCP),
        Carrier::Tcp(TLS),
        Carrier::Quic(QUIC),
        Carrier::Quic(QuicCarrier {
            streams: Streams::Lanes(16),
            records: Some(RELAY_RECORDS),
            ..QUIC
        }),
    ] {
        let whole = both_ways(carrier, 1000, 0.0, 3).run();
        let lossy = both_ways(carrier, 1000, 0.05, 3).run();
        for outcome in [whole, lossy] {
            let delivered = (
                outcome.messages,
                outcome.undelivered,
                outcome.application_bytes,
            );
            assert_eq!(delivered, (4000, 0, 880_000), "{carrier:?}");
        }
        // Retransmitted: at least most of the 5 % that were lost.
        let more = lossy.overhead_bytes() / whole.overhead_bytes();
        let frames = lossy.frames_per_message() / whole.frames_per_message();
        assert!(more > 1.03 * frames, "{carrier:?}: {more} {frames}");
    }
}

#[test]
fn a_link_that_loses_all_delivers_nothing_and_ends() {
    for carrier in [Carrier::Tcp(TCP), Carrier::Quic(QUIC)] {
        let mut dead = both_ways(carrier, 200, 1.0, 1);
        dead.link.spared_frames = 0;
        let outcome = dead.run();
        assert!(
            outcome.undelivered > 0 && outcome.frames > 0,
            "{carrier:?}: {outcome:?}"
        );
        assert!(outcome.overhead_bytes().is_finite());
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    for carrier in [Carrier::Tcp(TLS), Carrier::Quic(QUIC)] {
        let of = |seed| both_ways(carrier, 500, 0.02, seed).run();
        assert_eq!(of(5), of(5));
        assert_ne!(of(5), of(6));
    }
}

/// Connections multiply with agents over TCP, and do not over QUIC.
#[test]
fn only_tcp_sets_up_a_connection_for_each_agent() {
    let handshake = |carrier, agents| {
        let setup = Setup {
            agents,
            ..setup(carrier, &[0])
        };
        setup.run().handshake_frames
    };
    assert_eq!(handshake(Carrier::Tcp(TCP), 16), 48);
    let shared = TcpCarrier {
        is_shared: true,
        ..TCP
    };
    assert_eq!(handshake(Carrier::Tcp(shared), 16), 3);
    let quic = Carrier::Quic(QUIC);
    assert_eq!(handshake(quic, 16), handshake(quic, 1));
}
