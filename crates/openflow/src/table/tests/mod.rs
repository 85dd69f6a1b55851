//! The flow table by example: helpers that the tests share.

mod flow_mods;
mod groups;
mod lookup;
mod messages;
mod rewriting;
mod timeouts;

use super::*;
use crate::actions::{Action, Bucket, Instruction};
use crate::match_fields::{Field, Match, MatchField};
use crate::message::{
    FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, GroupMod, GroupModCommand, GroupType,
    MeterFlags, MeterMod, MeterModCommand, MultipartRequest, PacketInReason,
};
use crate::multipart::{FlowStatsRequest, ReplyBody, RequestBody, TableFeatureProperty};
use crate::packet::PacketFields;
use crate::packet::build::{self, Host};
use crate::types::{Cookie, GroupId};
use clock::Duration;

const P1: PortNo = PortNo(1);

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn udp(dst: u8, port: u16) -> Vec<u8> {
    build::udp(
        Host::numbered(1),
        Host::numbered(dst),
        (1000, port),
        b"payload",
    )
}

fn out(port: u32) -> Action {
    Action::output(PortNo(port))
}

fn to_ip(dst: u8) -> Match {
    let ip = u32::from(Host::numbered(dst).ip);
    Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::Ipv4Dst, ip)
}

fn set(field: Field, value: impl Into<u128>) -> Action {
    let value = value.into();
    Action::SetField(MatchField::exact(field, value))
}

fn add(switch: &mut Switch, m: FlowMod) {
    assert_eq!(apply(switch, 0, m), Ok(Vec::new()));
}

fn apply(switch: &mut Switch, ms: u64, m: FlowMod) -> Result<Vec<Message>, ErrorKind> {
    switch.apply(at(ms), &Message::FlowMod(m))
}

fn add_group(switch: &mut Switch, id: u32, group_type: GroupType, buckets: Vec<Bucket>) {
    let m = GroupMod::new(GroupModCommand::Add, group_type, GroupId(id), buckets);
    assert_eq!(switch.apply(at(0), &Message::GroupMod(m)), Ok(Vec::new()));
}

fn bucket(actions: Vec<Action>) -> Bucket {
    Bucket::new(0, actions)
}

/// The ports a packet to 10.0.0.`dst` reaches from port 1.
fn ports(switch: &Switch, dst: u8) -> Vec<u32> {
    let ports = switch.ports_of(P1, &udp(dst, 53));
    ports.into_iter().map(|p| p.0).collect()
}

fn only_packet(outputs: Vec<Output>) -> Bytes {
    match outputs.as_slice() {
        [Output::Port { packet, .. }] => packet.clone(),
        other => panic!("not one packet: {other:?}"),
    }
}

fn removed(messages: &[Message]) -> Vec<&FlowRemoved> {
    let mut list = Vec::new();
    for message in messages {
        match message {
            Message::FlowRemoved(r) => list.push(r),
            other => panic!("not a FLOW_REMOVED: {other:?}"),
        }
    }
    list
}

fn ask_one(s: &mut Switch, body: RequestBody) -> ReplyBody {
    let request = Message::MultipartRequest(MultipartRequest { more: false, body });
    let mut answers = s.apply(at(2_500), &request).expect("an answer");
    match (answers.pop(), answers.is_empty()) {
        (Some(Message::MultipartReply(reply)), true) => reply.body,
        other => panic!("not one reply: {other:?}"),
    }
}
