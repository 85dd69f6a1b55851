use clock::Duration;
use openflow::message::{FlowMod, GroupMod, GroupModCommand, GroupType, PacketOut};
use openflow::packet::build::{self, udp};
use openflow::{
    Action, Bucket, Field, GroupId, Instruction, MacAddr, Match, MatchField, Message, PortNo,
    TableId, Version, Xid, encode,
};

use super::*;

const NOW: Instant = Instant::START;
const TAG: u16 = 0x88a8;

fn fabric(words: &str) -> Fabric {
    let mut fabric = Fabric::new(Net::generate(words, 2, 2).unwrap());
    for switch in &mut fabric.switches {
        switch.handle_connected();
        switch.out.clear();
    }
    fabric
}

fn send(fabric: &mut Fabric, switch: usize, messages: &[Message]) -> Vec<Arrival> {
    let mut bytes = BytesMut::new();
    for message in messages {
        bytes.extend_from_slice(encode(Version::V13, Xid(9), message).unwrap().bytes());
    }
    let mut arrivals = Vec::new();
    let handled = fabric.handle_bytes(NOW, switch, &mut bytes, &mut arrivals, |_| {});
    assert_eq!(handled, Ok(()));
    assert_eq!(fabric.switches[switch].counts.refused, 0, "{messages:?}");
    arrivals
}

fn entry(r#match: Match, actions: Vec<Action>) -> Message {
    Message::FlowMod(FlowMod::add(10, r#match, actions))
}

fn out(port: u32) -> Action {
    Action::output(PortNo(port))
}

fn label(egress: usize) -> u16 {
    0x1000 | (egress as u16 + 1)
}

/// A group of a switch towards a label.
fn group(kind: GroupType, id: u32, ports: &[u32]) -> Message {
    let bucket = |port: &u32| Bucket {
        weight: 1,
        watch_port: PortNo(*port),
        watch_group: GroupId::ANY,
        actions: vec![out(*port)],
        bucket_id: None,
        properties: Vec::new(),
    };
    Message::GroupMod(GroupMod::new(
        GroupModCommand::Add,
        kind,
        GroupId(id),
        ports.iter().map(bucket).collect(),
    ))
}

/// The entry of a pair at its first switch: push the label of the egress switch, then send to the
/// group.
fn ingress(fabric: &Fabric, from: u32, to: u32, egress: usize, group: u32) -> Message {
    let (source, destination) = (fabric.net.host(from).mac, fabric.net.host(to).mac);
    let pair = Match::any()
        .with_in_port(fabric.net.place(from).port)
        .with_eth_src(source)
        .with_eth_dst(destination);
    let set = Action::SetField(MatchField::exact(Field::VlanVid, label(egress).into()));
    entry(
        pair,
        vec![Action::PushVlan(TAG), set, Action::Group(GroupId(group))],
    )
}

fn transit(egress: usize, group: u32) -> Message {
    let labelled = Match::any().with(Field::VlanVid, label(egress));
    entry(labelled, vec![Action::Group(GroupId(group))])
}

/// Entries of the egress switch: it pops its label, then looks up its hosts in another table.
fn egress(fabric: &Fabric, egress: usize) -> Vec<Message> {
    let labelled = Match::any().with(Field::VlanVid, label(egress));
    let mut pop = FlowMod::add(10, labelled, vec![Action::PopVlan]);
    pop.instructions.push(Instruction::GotoTable(TableId(1)));
    let hosts = fabric.net.home(egress).map(|host| {
        let to = Match::any().with_eth_dst(fabric.net.host(host).mac);
        let port = fabric.net.place(host).port.0;
        let add = FlowMod::add(10, to, vec![out(port)]);
        let table_id = TableId(1);
        Message::FlowMod(FlowMod { table_id, ..add })
    });
    std::iter::once(Message::FlowMod(pop))
        .chain(hosts)
        .collect()
}

/// A ring of four: port 3 of switches 0 to 2, and port 4 of switch 3, link to the next switch.
fn ring() -> (Fabric, u32, u32) {
    let mut fabric = fabric("ring,4");
    let (from, to) = (fabric.net.home(0).start, fabric.net.home(2).start + 1);
    let ports = |fabric: &Fabric, switch: usize, towards: usize| -> u32 {
        let ports = fabric.net.ports(switch);
        let leads = |port: &PortNo| {
            let at = Attachment {
                switch,
                port: *port,
            };
            matches!(fabric.net.behind(at), Some(Behind::Link { far, .. }) if far.switch == towards)
        };
        ports.into_iter().find(leads).unwrap().0
    };
    let first = [ports(&fabric, 0, 1), ports(&fabric, 0, 3)];
    let messages = [
        group(GroupType::FastFailover, 7, &first),
        ingress(&fabric, from, to, 2, 7),
    ];
    send(&mut fabric, 0, &messages);
    for (switch, next) in [(1, 2), (3, 2)] {
        let port = ports(&fabric, switch, next);
        let messages = [group(GroupType::Select, 8, &[port]), transit(2, 8)];
        send(&mut fabric, switch, &messages);
    }
    let messages = egress(&fabric, 2);
    send(&mut fabric, 2, &messages);
    (fabric, from, to)
}

fn packet(fabric: &Fabric, from: u32, to: u32) -> Bytes {
    let (from, to) = (fabric.net.host(from), fabric.net.host(to));
    Bytes::from(udp(from, to, (1, 2), b"x"))
}

fn trace(fabric: &Fabric, from: u32, to: u32) -> (Verdict, Vec<u32>) {
    let mut visited = Vec::new();
    let (start, end) = (fabric.net.place(from), fabric.net.place(to));
    let verdict = fabric.trace(start, end, packet(fabric, from, to), &mut visited);
    (verdict, visited)
}

#[test]
fn a_packet_arrives_without_its_label_through_entries_made_by_hand() {
    let (mut fabric, from, to) = ring();
    let sent = packet(&fabric, from, to);
    let mut arrivals = Vec::new();
    let (start, end) = (fabric.net.place(from), fabric.net.place(to));
    fabric.carry(NOW, start, sent.clone(), &mut arrivals);
    let expected = Arrival {
        at: end,
        packet: sent,
    };
    assert_eq!(arrivals, [expected]);
    assert_eq!(trace(&fabric, from, to).0, Verdict::Arrives);
    // No reverse path has been set.
    assert_eq!(trace(&fabric, to, from), (Verdict::Stops, vec![2]));
    let used = |switch: usize| -> Vec<u64> {
        let entries = fabric.switches[switch].tables.entries();
        entries.map(|e| e.packet_count).collect()
    };
    let used = [used(0), used(1), used(2), used(3)];
    assert_eq!(used, [vec![1], vec![1], vec![1, 0, 1], vec![0]]);
}

#[test]
fn a_fast_failover_group_takes_the_port_that_is_live() {
    let (mut fabric, from, to) = ring();
    let link = |fabric: &Fabric, a: usize, b: usize| {
        let joins = |l: &super::super::net::Link| {
            let ends = l.ends.map(|end| end.switch);
            ends == [a, b] || ends == [b, a]
        };
        fabric.net.links.iter().position(joins).unwrap()
    };
    let first = link(&fabric, 0, 1);
    fabric.set_link(first, false);
    assert!(!fabric.switches[0].out.is_empty(), "a PORT_STATUS is sent");
    let mut arrivals = Vec::new();
    let sent = packet(&fabric, from, to);
    fabric.carry(NOW, fabric.net.place(from), sent, &mut arrivals);
    assert_eq!(arrivals.len(), 1);
    assert_eq!(trace(&fabric, from, to).0, Verdict::Arrives);
    let last = link(&fabric, 2, 3);
    fabric.set_link(last, false);
    assert_eq!(trace(&fabric, from, to), (Verdict::Stops, vec![0, 3]));
    fabric.set_link(first, true);
    assert_eq!(trace(&fabric, from, to).0, Verdict::Arrives);
}

#[test]
fn a_loop_is_found_and_reported() {
    let mut fabric = fabric("ring,4");
    // Each switch forwards to the next, and none to a host.
    for switch in 0..4 {
        let ports = fabric.net.ports(switch);
        let next = ports.into_iter().find(|port| {
            let at = Attachment {
                switch,
                port: *port,
            };
            matches!(fabric.net.behind(at),
                Some(Behind::Link { far, .. }) if far.switch == (switch + 1) % 4)
        });
        let on = entry(Match::any(), vec![out(next.unwrap().0)]);
        send(&mut fabric, switch, &[on]);
    }
    let (from, to) = (fabric.net.home(0).start, fabric.net.home(2).start);
    assert_eq!(trace(&fabric, from, to), (Verdict::Loops, vec![0, 1, 2, 3]));
    let mut arrivals = Vec::new();
    let sent = packet(&fabric, from, to);
    fabric.carry(NOW, fabric.net.place(from), sent, &mut arrivals);
    assert_eq!((arrivals.len(), fabric.looped), (0, 1));
}

#[test]
fn a_flood_in_a_ring_ends_and_is_reported() {
    let mut fabric = fabric("ring,4");
    for switch in 0..4 {
        let flood = entry(Match::any(), vec![out(PortNo::FLOOD.0)]);
        send(&mut fabric, switch, &[flood]);
    }
    let host = fabric.net.host(0);
    let asks = Bytes::from(build::arp_request(host, host.ip));
    let mut arrivals = Vec::new();
    fabric.carry(NOW, fabric.net.place(0), asks, &mut arrivals);
    assert!(fabric.looped > 0);
    assert!(arrivals.len() >= 7, "all other ports with hosts got it");
}

#[test]
fn lldp_of_the_controller_passes_the_links_and_is_sent_up_there() {
    let mut fabric = fabric("linear,3");
    let up = Message::FlowMod(FlowMod::add(0, Match::any(), vec![Action::controller()]));
    for switch in 0..3 {
        send(&mut fabric, switch, std::slice::from_ref(&up));
    }
    for switch in 0..3 {
        let [a, b] = [MacAddr([2; 6]), MacAddr([1, 0x80, 0xc2, 0, 0, 0xe])];
        let data = Bytes::from(build::ethernet(a, b, 0x88cc, &[0; 46]));
        let messages: Vec<Message> = fabric
            .net
            .ports(switch)
            .map(|port| {
                Message::PacketOut(PacketOut::new(
                    PortNo::CONTROLLER,
                    vec![out(port.0)],
                    data.clone(),
                ))
            })
            .collect();
        assert!(!fabric.net.is_heard());
        let arrivals = send(&mut fabric, switch, &messages);
        assert_eq!(arrivals.len(), 2, "one for each port with hosts");
    }
    assert!(fabric.net.is_heard());
    let counts: Vec<_> = fabric.switches.iter().map(|s| s.counts.discovery).collect();
    assert_eq!(counts, [3 + 1, 4 + 2, 3 + 1]);
    assert!(fabric.switches.iter().all(|s| s.counts.packet_ins == 0));
}

#[test]
fn entries_expire_and_report_it() {
    let mut fabric = fabric("linear,2");
    let mut add = FlowMod::add(1, Match::any(), vec![out(1)]);
    add.idle_timeout = 5;
    add.flags = openflow::message::FlowModFlags::SEND_FLOW_REM;
    send(&mut fabric, 1, &[Message::FlowMod(add)]);
    let switch = &mut fabric.switches[1];
    switch.handle_timeout(NOW + Duration::from_secs(4));
    assert_eq!((switch.tables.entry_count(), switch.out.len()), (1, 0));
    switch.handle_timeout(NOW + Duration::from_secs(6));
    assert_eq!(switch.tables.entry_count(), 0);
    assert_eq!(switch.counts.flow_removed, 1);
    assert!(!switch.out.is_empty());
}

#[test]
fn hostile_bytes_end_the_connection_of_their_switch_only() {
    let (mut fabric, from, to) = ring();
    let mut handle = |switch: usize, bytes: &[u8]| {
        let mut bytes = BytesMut::from(bytes);
        fabric.handle_bytes(NOW, switch, &mut bytes, &mut Vec::new(), |_| {})
    };
    assert_eq!(handle(3, &[4, 0, 0, 7, 0, 0, 0, 0]), Err(Broken::Framing));
    let hello = [1, 0, 0, 8, 0, 0, 0, 0];
    assert_eq!(handle(3, &hello), Err(Broken::Version { theirs: 1 }));
    // A partial message waits for the rest; an invalid message is refused.
    assert_eq!(handle(3, &[4, 14, 0, 80, 0, 0, 0, 0, 1]), Ok(()));
    let mut random = clock::SplitMix64::new(7);
    for ty in 0..40 {
        let mut message = vec![4, ty, 0, 120, 0, 0, 0, 1];
        message.extend((0..14).flat_map(|_| random.next().to_be_bytes()));
        assert_eq!(handle(3, &message), Ok(()), "type {ty}");
    }
    assert!(fabric.switches[3].counts.refused > 10);
    assert_eq!(trace(&fabric, from, to).0, Verdict::Arrives);
    let others = fabric.switches[..3].iter();
    assert!(others.into_iter().all(|s| s.out.is_empty()));
}
