//! Random messages of guests, compared with the switch that each guest believes in.

use std::collections::{BTreeMap, BTreeSet};

use openflow::PacketFields;
use openflow::message::{
    FlowModFlags, GroupMod, GroupModCommand, GroupType, MeterFlags, MeterMod, MeterModCommand,
};
use openflow::multipart::{GroupDesc, MeterConfig};
use openflow::table::Output as Packets;
use openflow::{Bucket, BufferId, MeterId};

use super::meters::band;
use super::*;

/// A FLOW_MOD that a switch could be sent, good or bad.
fn any_flow_mod(random: &mut SplitMix64, port: Option<u32>) -> FlowMod {
    let mut pick = |count: u64| random.next() % count;
    let matches = [
        "",
        "arp",
        "ip",
        "ip,nw_dst=10.0.0.0/8",
        "ip,nw_dst=10.1.2.3",
        "tcp,tp_dst=80",
    ];
    let words = matches[pick(6) as usize];
    let words = match port {
        Some(port) if pick(2) == 0 => format!("in_port={port},{words}"),
        _ => words.to_owned(),
    };
    let actions = [
        "output:1",
        "output:2,output:3",
        "controller",
        "drop",
        "set_field:1->tcp_dst",
        "output:1,group:1",
        "group:2",
    ];
    let actions = parse_actions(actions[pick(7) as usize]).unwrap();
    let table = match pick(3) {
        0 => pick(14) as u8,
        _ => pick(2) as u8,
    };
    let mut instructions = vec![Instruction::ApplyActions(actions)];
    match pick(6) {
        0 => instructions.push(Instruction::GotoTable(TableId(pick(13) as u8))),
        1 => instructions.push(instructions[0].clone()),
        2 => instructions = vec![Instruction::ClearActions],
        _ => {}
    }
    if pick(4) == 0 {
        let at = pick(instructions.len() as u64 + 1) as usize;
        instructions.insert(at, Instruction::Meter(MeterId(pick(4) as u32)));
    }
    use FlowModCommand as C;
    let commands = [
        C::Add,
        C::Add,
        C::Add,
        C::Modify,
        C::ModifyStrict,
        C::Delete,
        C::DeleteStrict,
    ];
    let command = commands[pick(7) as usize];
    let is_delete = [C::Delete, C::DeleteStrict].contains(&command);
    FlowMod {
        cookie: Cookie(pick(3)),
        cookie_mask: Cookie(if pick(4) == 0 { u64::MAX } else { 0 }),
        table_id: if is_delete && pick(6) == 0 {
            TableId::ALL
        } else {
            TableId(table)
        },
        command,
        idle_timeout: if pick(5) == 0 { 60 } else { 0 },
        hard_timeout: if pick(5) == 0 { 90 } else { 0 },
        buffer_id: (pick(30) == 0).then_some(BufferId(3)),
        out_port: match pick(4) {
            0 if is_delete => PortNo(1),
            _ => PortNo::ANY,
        },
        out_group: GroupId::ANY,
        flags: FlowModFlags(pick(40) as u16 & 0x1f),
        instructions,
        ..FlowMod::add(
            [0, 1, 5, 100, 32_768, 40_000, u16::MAX][pick(7) as usize],
            parse_match(words.trim_end_matches(',')).unwrap(),
            Vec::new(),
        )
    }
}

/// A GROUP_MOD that a switch could be sent, good or bad.
fn any_group_mod(random: &mut SplitMix64, port: u32) -> GroupMod {
    let mut pick = |count: u64| random.next() % count;
    use GroupModCommand as C;
    let command = [C::Add, C::Add, C::Modify, C::Delete][pick(4) as usize];
    let id = match pick(12) {
        0 => GroupId::ALL,
        id => GroupId(id as u32 % 4),
    };
    let own = format!("output:{port}");
    let actions = [&own, "controller", "group:1", "group:2", "in_port", "drop"];
    let bucket = |actions: &str| super::groups::bucket(actions);
    let buckets = (0..pick(3)).map(|_| bucket(actions[pick(6) as usize]));
    let buckets: Vec<Bucket> = buckets.collect();
    let kind = match pick(4) {
        0 if buckets.len() == 1 => GroupType::Indirect,
        _ => GroupType::All,
    };
    GroupMod::new(command, kind, id, buckets)
}

/// A METER_MOD that a switch could be sent, good or bad.
fn any_meter_mod(random: &mut SplitMix64) -> MeterMod {
    let mut pick = |count: u64| random.next() % count;
    use MeterModCommand as C;
    MeterMod {
        command: [C::Add, C::Add, C::Modify, C::Delete][pick(4) as usize],
        flags: MeterFlags(pick(16) as u16),
        meter_id: match pick(16) {
            0 => MeterId::ALL,
            id => MeterId(id as u32 % 4),
        },
        bands: (0..pick(3)).map(|rate| band(rate as u32)).collect(),
    }
}

/// The ports that a packet leaves by, and whether it goes to the controller.
fn outputs(switch: &Switch, port: u32, packet: &Bytes) -> Vec<PortNo> {
    let port_of = |output| match output {
        Packets::Port { port, .. } => port,
        Packets::Controller(_) => PortNo::CONTROLLER,
    };
    let outputs = switch.output_of(PortNo(port), packet);
    outputs.into_iter().map(port_of).collect()
}

fn has_tie(switch: &Switch, port: u32, packet: &Bytes) -> bool {
    let fields = PacketFields::parse(PortNo(port), packet);
    let matching = switch
        .entries()
        .filter(|entry| fields.matches(&entry.r#match));
    let places: Vec<_> = matching
        .map(|entry| (entry.table_id, entry.priority))
        .collect();
    let different: BTreeSet<_> = places.iter().collect();
    different.len() < places.len()
}

/// Two guests with a port each, at one switch. Beside the real switch, each guest has the switch
/// that it believes in. The guest reads back its own entries, gets the same errors, and its packets
/// take the same path; all other entries stay. This holds in every version that the switch may
/// speak, while the guests speak 1.3.
#[test]
fn a_guest_has_a_switch_of_its_own() {
    let mut compared = 0;
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let config = [guest(0, &["in_port=1"]), guest(1, &["in_port=2"])];
        let versions = [Version::V13, Version::V14, Version::V15];
        let version = versions[seed as usize % versions.len()];
        let mut bench = Bench::speaking(version, &config);
        let believed = || {
            let mut switch = Switch::new(SwitchOptions {
                n_tables: 11,
                modify_restarts_hard_timeout: true,
                ..SwitchOptions::default()
            });
            for number in 1..=PORTS {
                let _ = switch.set_port(Instant::START, plain_port(PortNo(number)));
            }
            switch
        };
        let mut models = [believed(), believed()];
        for step in 0..60 {
            let of = (random.next() % 2) as usize;
            let port = of as u32 + 1;
            let mut flow_mod = any_flow_mod(&mut random, Some(port));
            // An entry of another port would be refused; a guest has no other.
            for action in flow_mod.instructions.iter_mut() {
                if let Instruction::ApplyActions(actions) = action {
                    for action in actions {
                        if let Action::Output { port: to, .. } = action
                            && to.is_ordinary()
                        {
                            *to = PortNo(port);
                        }
                    }
                }
            }
            let other = sorted(&bench.held(Some(1 - of as u8)));
            let other_groups = bench.descs(1 - of);
            let other_meters = bench.meters(1 - of);
            let message = match random.next() % 6 {
                0 => Message::GroupMod(any_group_mod(&mut random, port)),
                1 => Message::MeterMod(any_meter_mod(&mut random)),
                _ => Message::FlowMod(flow_mod),
            };
            let wanted = models[of].apply(bench.now, &message);
            let replies = bench.send(of, &message);
            let context = format!("seed {seed} step {step} guest {of}: {message:?}");
            assert_eq!(
                error_of(&replies),
                wanted.as_ref().err().copied(),
                "{context}"
            );
            let removed = |messages: &[Message]| {
                let is_removed = |one: &&Message| matches!(one, Message::FlowRemoved(_));
                messages.iter().filter(is_removed).count()
            };
            assert_eq!(
                removed(&replies),
                removed(&wanted.unwrap_or_default()),
                "{context}"
            );
            let model: Vec<FlowStats> = models[of]
                .entries()
                .map(|entry| entry.stats(bench.now))
                .collect();
            assert_eq!(sorted(&bench.read(of)), sorted(&model), "{context}");
            assert_eq!(sorted(&bench.held(Some(1 - of as u8))), other, "{context}");
            let groups: Vec<GroupDesc> = models[of].groups().collect();
            assert_eq!(bench.descs(of), groups, "{context}");
            assert_eq!(bench.descs(1 - of), other_groups, "{context}");
            let meters: Vec<MeterConfig> = models[of].meters().collect();
            assert_eq!(bench.meters(of), meters, "{context}");
            assert_eq!(bench.meters(1 - of), other_meters, "{context}");
            let wanted: usize = models.iter().map(|model| model.meters().count()).sum();
            assert_eq!(bench.switch.meters().count(), wanted, "{context}");
            let wanted: usize = models.iter().map(Switch::group_count).sum();
            assert_eq!(bench.switch.group_count(), wanted, "{context}");
            bench.check_places();
            for tcp_port in [80, 22] {
                let packet = tcp(tcp_port);
                // OpenFlow leaves open which entry of one priority takes a packet.
                if has_tie(&models[of], port, &packet) {
                    continue;
                }
                compared += 1;
                let wanted = outputs(&models[of], port, &packet);
                assert_eq!(outputs(&bench.switch, port, &packet), wanted, "{context}");
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

/// Bytes that are no message, or half of one, cause neither panics nor changes of others' entries.
#[test]
fn garbage_ends_in_errors() {
    let mut kinds: BTreeMap<ErrorKind, usize> = BTreeMap::new();
    for seed in 0..3000 {
        let mut random = SplitMix64::new(seed);
        let guests = [guest(0, &["in_port=1"]), guest(1, &["in_port=2"])];
        let version = [Version::V13, Version::V15][seed as usize % 2];
        let mut bench = Bench::speaking(version, &guests);
        bench.add(1, 7, "ip", "output:2");
        let others = sorted(&bench.held(Some(1)));
        for _ in 0..8 {
            let message = match random.next() % 6 {
                4 => Message::MeterMod(any_meter_mod(&mut random)),
                0 => ask(RequestBody::Flow(FlowStatsRequest::all())),
                1 => Message::PacketOut(PacketOut {
                    buffer_id: None,
                    in_port: PortNo(1),
                    actions: parse_actions("output:1").unwrap(),
                    data: tcp(80),
                    pipeline: Match::default(),
                }),
                _ => Message::FlowMod(any_flow_mod(&mut random, Some(1))),
            };
            let frame = encode(Version::V13, Xid(1), &message).unwrap();
            let mut bytes = frame.bytes().to_vec();
            for _ in 0..random.next() % 4 {
                let at = (random.next() as usize) % bytes.len();
                bytes[at] = random.next() as u8;
            }
            if random.next().is_multiple_of(3) {
                bytes.truncate(8 + (random.next() as usize) % bytes.len());
            }
            let len = u16::try_from(bytes.len()).unwrap();
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            let frame = Frame::new(bytes.into()).unwrap();
            let replies = bench.take(0, &frame);
            if let Some(kind) = error_of(&replies) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        assert_eq!(sorted(&bench.held(Some(1))), others, "seed {seed}");
        bench.check_places();
    }
    assert!(kinds.len() > 20, "{kinds:?}");
}
