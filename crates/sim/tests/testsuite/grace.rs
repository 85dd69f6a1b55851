//! A switch that disconnects is kept for a while if something would be lost with it, and not
//! otherwise.

use std::net::Ipv4Addr;

use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::{
    Admission, Controller, ControllerConfig, ControllerOutput, PeerIdentity, RefusedReason,
};
use control::session::SwitchUp;
use openflow::message::{PacketIn, Role};
use openflow::packet::build::{Host, udp};
use openflow::table::{Switch, SwitchOptions, plain_port};
use openflow::{DatapathId, MacAddr, Message, MessageKind, PortNo, Version, Xid, encode};

const PORT: PortNo = PortNo(1);

fn up(controller: &mut Controller, now: Instant, id: u64) -> Admission {
    let mut switch = Switch::new(SwitchOptions {
        datapath_id: DatapathId(id),
        ..SwitchOptions::default()
    });
    let _ = switch.set_port(now, plain_port(PORT));
    let up = SwitchUp {
        version: Version::V13,
        features: switch.features(),
        ports: switch.ports().cloned().collect(),
        description: None,
        role: Role::Equal,
    };
    let admission = controller.handle_up(now, ConnectionId(id), up, PeerIdentity::default());
    answer(controller, now);
    admission
}

/// Answers every barrier, as switches do.
fn answer(controller: &mut Controller, now: Instant) {
    while let Some(output) = controller.poll_output() {
        if let ControllerOutput::Send { connection, frame } = output
            && frame.kind() == MessageKind::BarrierRequest
        {
            let reply = encode(Version::V13, frame.xid(), &Message::BarrierReply).unwrap();
            controller.handle_frame(now, connection, reply);
        }
    }
}

#[test]
fn those_who_only_say_that_they_are_switches_do_not_fill_the_controller() {
    let config = ControllerConfig {
        switch_count_max: 3,
        ..ControllerConfig::default()
    };
    let mut controller = Controller::new(config, [3; 32]);
    let mut now = Instant::START;
    // A switch with a host.
    assert_eq!(up(&mut controller, now, 1), Admission::Admitted);
    let end = now + Duration::from_secs(30);
    while let Some((due, _)) = controller.poll_timeout()
        && due <= end
    {
        now = now.max(due);
        controller.handle_timeout(now);
        answer(&mut controller, now);
    }
    let host = |n| Host::new(MacAddr([2, 0, 0, 0, 0, n]), Ipv4Addr::new(10, 0, 0, n));
    let packet_in = Message::PacketIn(PacketIn {
        total_len: 0,
        ..PacketIn::new(PORT, udp(host(1), host(2), (9, 9), &[]).into())
    });
    let frame = encode(Version::V13, Xid(0), &packet_in).unwrap();
    controller.handle_frame(now, ConnectionId(1), frame);
    controller.handle_down(now, ConnectionId(1));
    // 2,000 connects a second filled 10,000 places in 5 s.
    for id in 2..100 {
        assert_eq!(up(&mut controller, now, id), Admission::Admitted, "{id}");
        controller.handle_down(now, ConnectionId(id));
        now += Duration::from_micros(500);
    }
    assert_eq!(controller.switches().len(), 1, "that with a host is kept");
    for id in 101..103 {
        assert_eq!(up(&mut controller, now, id), Admission::Admitted);
    }
    let refused = up(&mut controller, now, 103);
    assert_eq!(refused, Admission::Refused(RefusedReason::TooManySwitches));
}
