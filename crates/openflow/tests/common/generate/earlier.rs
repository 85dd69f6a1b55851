//! Arbitrary messages of 1.1 and 1.2 from a seed: those of 1.3, less what came with it, and what
//! only the earlier ones have.

use openflow::actions::{Action, Instruction};
use openflow::message::*;
use openflow::multipart::*;
use openflow::types::*;
use openflow::{Match, decode, encode};

use super::{Rng, v10, v13};

/// Any message of 1.2.
pub fn v12(g: &mut Rng) -> Message {
    said(Version::V12, g, v13::message)
}

/// Any message of 1.1, with the fields of its matches in the order in which they are read.
pub fn v11(g: &mut Rng) -> Message {
    let message = unordered_v11(g);
    let written = encode(Version::V11, Xid(0), &message).expect("it has been written");
    decode(&written).expect("it is read back")
}

/// The same, with the fields in any order.
pub fn unordered_v11(g: &mut Rng) -> Message {
    said(Version::V11, g, |g| match g.bool() {
        true => v10::message(g),
        false => v13::message(g),
    })
}

fn said(version: Version, g: &mut Rng, message: fn(&mut Rng) -> Message) -> Message {
    loop {
        let mut message = message(g);
        fit(version, &mut message, g);
        if encode(version, Xid(0), &message).is_ok() {
            return message;
        }
    }
}

fn fit(version: Version, message: &mut Message, g: &mut Rng) {
    match message {
        Message::FeaturesReply(features) => {
            features.auxiliary_id = 0;
            features.ports = g.list(4, v13::port);
        }
        Message::PacketIn(packet) => {
            packet.cookie = Cookie(u64::MAX);
            if version == Version::V11 {
                packet.r#match = Match::any().with_in_port(PortNo(g.u32()));
                let port = packet.r#match.in_port();
                let other = Some(PortNo(g.u32())).filter(|other| Some(*other) != port);
                if let Some(other) = other.filter(|_| g.bool()) {
                    let field = openflow::Field::InPhyPort;
                    packet.r#match = packet.r#match.clone().with(field, other.0);
                }
            }
        }
        Message::FlowMod(flow_mod) => {
            let known = if version == Version::V11 { 3 } else { 7 };
            flow_mod.flags = FlowModFlags(flow_mod.flags.0 & known);
            fit_instructions(&mut flow_mod.instructions);
        }
        Message::FlowRemoved(removed) if version == Version::V11 => removed.hard_timeout = 0,
        Message::QueueGetConfigReply(config) if version == Version::V11 => {
            config.queues.iter_mut().for_each(|queue| {
                queue.port = config.port;
                queue
                    .properties
                    .retain(|p| matches!(p, QueueProperty::MinRate(_)));
            });
        }
        Message::PacketOut(packet) => packet.actions.retain(is_earlier),
        Message::MultipartReply(reply) => fit_reply(version, &mut reply.body, g),
        _ => {}
    }
}

fn fit_reply(version: Version, body: &mut ReplyBody, g: &mut Rng) {
    match body {
        ReplyBody::Table(tables) => {
            let len = if version == Version::V11 { 24 } else { 64 };
            for table in tables {
                table.v10 = Some(TableStatsV10 {
                    name: g.text(32),
                    wildcards: 0,
                    features: (0..len).map(|_| g.u8()).collect(),
                    max_entries: g.u32(),
                });
            }
        }
        ReplyBody::Flow(flows) => flows.iter_mut().for_each(|flow| {
            flow.flags = FlowModFlags::empty();
            fit_instructions(&mut flow.instructions);
        }),
        ReplyBody::PortStats(ports) => ports.iter_mut().for_each(|stats| {
            (stats.duration_sec, stats.duration_nsec) = (0, 0);
        }),
        ReplyBody::Queue(queues) => queues.iter_mut().for_each(|stats| {
            (stats.duration_sec, stats.duration_nsec) = (0, 0);
        }),
        ReplyBody::Group(groups) => groups.iter_mut().for_each(|stats| {
            (stats.duration_sec, stats.duration_nsec) = (0, 0);
        }),
        _ => {}
    }
}

fn fit_instructions(instructions: &mut Vec<Instruction>) {
    instructions.retain(|i| !matches!(i, Instruction::Meter(_)));
    for instruction in instructions {
        if let Instruction::ApplyActions(list) | Instruction::WriteActions(list) = instruction {
            list.retain(is_earlier);
        }
    }
}

fn is_earlier(action: &Action) -> bool {
    !matches!(action, Action::PushPbb(_) | Action::PopPbb)
}
