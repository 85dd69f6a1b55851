//! When entries expire, and what restarts their timeouts.

use super::*;

#[test]
fn adding_again_restarts_the_clock_and_keeps_the_counters() {
    let mut s = Switch::with_ports(1..=2);
    let entry = || FlowMod {
        hard_timeout: 2,
        ..FlowMod::add(10, to_ip(2), vec![out(2)])
    };
    let stats = |s: &Switch| {
        let e = s.entries().next().expect("the entry");
        (e.packet_count, e.created_at)
    };
    add(&mut s, entry());
    let _ = s.process(at(500), P1, &udp(2, 1));
    apply(&mut s, 1_000, entry()).unwrap();
    assert_eq!(stats(&s), (1, at(1_000)));
    assert_eq!(
        s.handle_timeout(at(2_500)),
        [],
        "the first deadline is gone"
    );
    assert_eq!(s.entries().count(), 1);
    apply(
        &mut s,
        2_600,
        FlowMod {
            flags: FlowModFlags::RESET_COUNTS,
            ..entry()
        },
    )
    .unwrap();
    assert_eq!(stats(&s), (0, at(2_600)));
    assert_eq!(s.poll_timeout().map(|(t, _)| t), Some(at(4_600)));

    let mut v10 = Switch::new(SwitchOptions {
        version: Version::V10,
        ..Default::default()
    });
    let _ = v10.set_port(at(0), plain_port(P1));
    add(&mut v10, entry());
    let _ = v10.process(at(500), P1, &udp(2, 1));
    assert_eq!(stats(&v10).0, 1);
    add(&mut v10, entry());
    assert_eq!(stats(&v10).0, 0, "1.0 zeroes them");
}

#[test]
fn modify_leaves_the_hard_timeout_unless_told_as_ovs_does() {
    for (restarts, left) in [(false, 0), (true, 1)] {
        let options = SwitchOptions {
            modify_restarts_hard_timeout: restarts,
            ..Default::default()
        };
        let mut s = Switch::new(options);
        add(
            &mut s,
            FlowMod {
                hard_timeout: 2,
                ..FlowMod::add(10, to_ip(2), vec![out(2)])
            },
        );
        let modify = FlowMod {
            command: FlowModCommand::Modify,
            ..FlowMod::add(10, to_ip(2), vec![out(3)])
        };
        apply(&mut s, 1_000, modify).unwrap();
        let _ = s.handle_timeout(at(2_000));
        assert_eq!(s.entries().count(), left, "restarts: {restarts}");
        let _ = s.handle_timeout(at(3_000));
        assert_eq!(s.entries().count(), 0);
    }
}

#[test]
fn idle_entries_expire_from_their_last_packet_and_say_so_if_asked() {
    let mut s = Switch::with_ports(1..=2);
    let entry = FlowMod {
        idle_timeout: 1,
        flags: FlowModFlags::SEND_FLOW_REM,
        cookie: Cookie(9),
        ..FlowMod::add(10, to_ip(2), vec![out(2)])
    };
    add(&mut s, entry);
    add(
        &mut s,
        FlowMod {
            hard_timeout: 1,
            ..FlowMod::add(10, to_ip(3), vec![out(2)])
        },
    );
    let packet = udp(2, 53);
    let _ = s.process(at(900), P1, &packet);
    assert_eq!(
        s.handle_timeout(at(1_000)),
        [],
        "one used, the other silent"
    );
    assert_eq!(s.entries().count(), 1);
    assert_eq!(s.handle_timeout(at(1_899)), []);
    let messages = s.handle_timeout(at(1_900));
    let [r] = removed(&messages)[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(
        (r.reason, r.cookie),
        (FlowRemovedReason::IDLE_TIMEOUT, Cookie(9))
    );
    assert_eq!((r.duration_sec, r.duration_nsec), (1, 900_000_000));
    assert_eq!((r.packet_count, r.byte_count), (1, packet.len() as u64));
    assert_eq!(s.poll_timeout(), None);
}

#[test]
fn the_earlier_of_two_timeouts_expires_an_entry() {
    for (idle, hard, reason) in [
        (1, 3, FlowRemovedReason::IDLE_TIMEOUT),
        (3, 1, FlowRemovedReason::HARD_TIMEOUT),
        (1, 1, FlowRemovedReason::HARD_TIMEOUT),
    ] {
        let mut s = Switch::with_ports(1..=2);
        let entry = FlowMod {
            idle_timeout: idle,
            hard_timeout: hard,
            flags: FlowModFlags::SEND_FLOW_REM,
            ..FlowMod::add(10, to_ip(2), vec![out(2)])
        };
        add(&mut s, entry);
        assert_eq!(s.handle_timeout(at(999)), []);
        let messages = s.handle_timeout(at(1_000));
        assert_eq!(removed(&messages)[0].reason, reason, "{idle} {hard}");
    }
}
