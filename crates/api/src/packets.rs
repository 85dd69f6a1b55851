//! `/v1/packets`: packets that applications send out of ports of switches.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::Location;
use control::controller::Sending;
use control::tap::{Injected, NotSent};
use data_encoding::BASE64;
use openflow::text::parse_actions;
use openflow::{Action, DatapathId, PortNo};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::{FieldError, Problem};
use super::{Api, Body};
use config::qos::tree::{Node, Reader};
use config::topology::edge_port;

/// The most packets of one request, and the most places of one packet.
const PACKETS_MAX: usize = 256;
const PLACES_MAX: usize = 64;
/// The most bytes for all switches together.
const BYTES_MAX: usize = 8 << 20;
const PACKET_BYTES_MIN: usize = 14;
const PACKET_BYTES_MAX: usize = 32 << 10;
const ACTIONS_MAX: usize = 1024;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(send))
}

/// A packet to be sent: out of ports, or by actions of one switch.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of a body")]
pub struct PacketRequest {
    /// Ports; instead of `switch` and `actions`.
    #[schema(example = json!(["0000000000000001:2"]))]
    at: Option<Vec<String>>,
    #[schema(example = "0000000000000001")]
    switch: Option<String>,
    /// The port that it is to have come in by.
    in_port: Option<u32>,
    /// In the words of ovs-ofctl.
    #[schema(example = "flood")]
    actions: Option<String>,
    /// A frame, in base64.
    data: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SentPackets {
    /// The number of packets that were on their way to switches.
    pub sent: usize,
}

/// Packets for switches, and the fields that state them.
#[derive(Default)]
struct Asked {
    count: usize,
    packets: Vec<Injected>,
    /// The pointers to each packet's ports, and to its switch.
    pointers: Vec<(BTreeMap<PortNo, String>, String)>,
}

impl Asked {
    fn read(body: &Node) -> Result<Asked, Problem> {
        let mut reader = Reader::default();
        let mut asked = Asked::default();
        let all = match body.is_table() {
            true => vec![body],
            false => body.items().iter().collect(),
        };
        if all.is_empty() || all.len() > PACKETS_MAX {
            let text = format!("the body must be a packet, or a list of 1 to {PACKETS_MAX}");
            reader.wrong(&body.place, text);
        }
        asked.count = all.len();
        for node in all.into_iter().take(PACKETS_MAX) {
            asked.read_one(&mut reader, node);
        }
        if !reader.problems.is_empty() {
            return Err(Problem::of_fields(&reader.problems));
        }
        let bytes = asked.packets.iter().map(|packet| packet.data.len());
        if bytes.sum::<usize>() > BYTES_MAX {
            let detail = format!("more than {BYTES_MAX} bytes for all switches together");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        Ok(asked)
    }

    fn read_one(&mut self, reader: &mut Reader, node: &Node) {
        let known = ["at", "switch", "in_port", "actions", "data"];
        if !reader.only(node, "packet", &known) {
            return;
        }
        if node.get("data").is_none() {
            reader.wrong(&node.place, "data is missing: a frame in base64");
        }
        let data = reader.parsed(node, "data", "AAAA…", frame);
        let is_at = node.get("at").is_some();
        let others = ["switch", "in_port", "actions"].map(|key| node.get(key).map(|it| (key, it)));
        let is_other = others.iter().any(Option::is_some);
        if is_at == is_other {
            let text = "a packet has either at, or switch and actions";
            reader.wrong(&node.place, text);
        }
        let data = data.unwrap_or_default();
        match is_at {
            true => self.read_places(reader, node, &data),
            false => self.read_actions(reader, node, data),
        }
    }

    /// Adds one packet for each switch.
    fn read_places(&mut self, reader: &mut Reader, node: &Node, data: &Bytes) {
        let mut by_switch: BTreeMap<DatapathId, BTreeMap<PortNo, String>> = BTreeMap::new();
        let places = reader.items(node, "at");
        if let Some(node) = node.get("at")
            && !(1..=PLACES_MAX).contains(&places.len())
        {
            reader.wrong(&node.place, format!("at must name 1 to {PLACES_MAX} ports"));
        }
        for place in places.into_iter().take(PLACES_MAX) {
            let at = reader.parse(place, "at", "0000000000000001:2", &edge_port);
            if let Some(Location { dpid, port }) = at {
                let ports = by_switch.entry(dpid).or_default();
                ports.insert(port, place.place.pointer.clone());
            }
        }
        for (dpid, ports) in by_switch {
            let first = ports.values().next().cloned().unwrap_or_default();
            self.packets.push(Injected {
                dpid,
                in_port: None,
                actions: ports.keys().copied().map(Action::output).collect(),
                data: data.clone(),
            });
            self.pointers.push((ports, first));
        }
    }

    fn read_actions(&mut self, reader: &mut Reader, node: &Node, data: Bytes) {
        let dpid = reader.parsed(node, "switch", "0000000000000001", str::parse::<DatapathId>);
        let actions = reader.parsed(node, "actions", "flood", actions_of);
        for key in ["switch", "actions"] {
            if node.get(key).is_none() {
                reader.wrong(&node.place, format!("{key} is missing"));
            }
        }
        let in_port = node.get("in_port").is_some().then(|| {
            let number = reader.number(node, "in_port", 1..=0xffff_fefe);
            number.and_then(|number| u32::try_from(number).ok())
        });
        let in_port = in_port.flatten().map(PortNo);
        let (Some(dpid), Some(actions)) = (dpid, actions) else {
            return;
        };
        let pointer = |key: &str| {
            let node = node.get(key);
            node.map_or(String::new(), |node| node.place.pointer.clone())
        };
        let outputs = actions.iter().filter_map(|action| match action {
            Action::Output { port, .. } => Some((*port, pointer("actions"))),
            _ => None,
        });
        let in_ports = in_port.map(|port| (port, pointer("in_port")));
        let ports = in_ports.into_iter().chain(outputs).collect();
        self.pointers.push((ports, pointer("switch")));
        self.packets.push(Injected {
            dpid,
            in_port,
            actions,
            data,
        });
    }

    /// The problem of packets that were not sent.
    fn problem(
        wrong: &[(usize, NotSent)],
        packets: &[DatapathId],
        pointers: &[(BTreeMap<PortNo, String>, String)],
    ) -> Problem {
        let error = |(place, why): &(usize, NotSent)| {
            let dpid = packets.get(*place).copied().unwrap_or(DatapathId(0));
            let (ports, switch) = pointers.get(*place).cloned().unwrap_or_default();
            let of_port = |port: &PortNo| ports.get(port).cloned().unwrap_or_default();
            let (pointer, detail) = match why {
                NotSent::Away => (switch, format!("switch {dpid} is not connected")),
                NotSent::NoPort(port) => {
                    (of_port(port), format!("switch {dpid} has no port {port}"))
                }
                NotSent::NoInPort(port) => (
                    of_port(port),
                    format!("switch {dpid} has no port {port} to come in by"),
                ),
                NotSent::NotInVersion => (
                    switch,
                    format!("switch {dpid} speaks a version of OpenFlow that cannot say this"),
                ),
            };
            FieldError { pointer, detail }
        };
        let mut problem = Problem::of_fields(&[]);
        problem.detail = "nothing was sent".to_owned();
        problem.errors = wrong.iter().map(error).collect();
        problem
    }
}

fn frame(text: &str) -> Result<Bytes, String> {
    let frame = BASE64.decode(text.as_bytes());
    let frame = frame.map_err(|error| format!("is no base64: {error}"))?;
    match (PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&frame.len()) {
        true => Ok(frame.into()),
        false => Err(format!(
            "a frame of {} bytes; it must have {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX}",
            frame.len()
        )),
    }
}

fn actions_of(text: &str) -> Result<Vec<Action>, String> {
    if text.len() > ACTIONS_MAX {
        return Err(format!("more than {ACTIONS_MAX} bytes"));
    }
    let actions = parse_actions(text).map_err(|error| error.to_string())?;
    let comes_back = |action: &Action| match action {
        Action::Output { port, .. } => *port == PortNo::CONTROLLER,
        _ => false,
    };
    if actions.is_empty() {
        return Err("drops it; send it nowhere instead".to_owned());
    }
    if actions.iter().any(comes_back) {
        return Err("CONTROLLER is where it comes from".to_owned());
    }
    Ok(actions)
}

/// The number of ports by which a packet leaves: one if its actions name none.
fn leaving_of(packet: &Injected) -> usize {
    let outputs = packet.actions.iter();
    let outputs = outputs.filter(|action| matches!(action, Action::Output { .. }));
    outputs.count().max(1)
}

/// Send packets out of ports of switches, all or none.
#[utoipa::path(post, path = "/v1/packets", tag = "applications", operation_id = "send_packets",
    request_body(content = PacketRequest, description = "A packet, or a list of at most 256"),
    responses(
        (status = 202, description = "They are on their way to the switches", body = SentPackets),
        (status = 413, description = "It is too much at once"),
        (status = 422, description = "What is wrong, by field; nothing was sent"),
        (status = 429, description = "Applications send too many"),
    ))]
async fn send(State(api): State<Api>, Body(body): Body) -> Result<Response, Problem> {
    let asked = Asked::read(&body)?;
    let Asked {
        count,
        packets,
        pointers,
    } = asked;
    let leaving = packets.iter().map(leaving_of).sum();
    api.paces.packets.take(api.clock.now(), leaving).await?;
    let clock = api.clock;
    let switches: Vec<DatapathId> = packets.iter().map(|packet| packet.dpid).collect();
    let mut sending = Sending::new(packets);
    let sent = api
        .ask_in_parts(move |controller| controller.send_packets(clock.now(), &mut sending))
        .await?;
    sent.map_err(|wrong| Asked::problem(&wrong, &switches, &pointers))?;
    Ok((StatusCode::ACCEPTED, Json(SentPackets { sent: count })).into_response())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pointers(body: Value) -> Vec<String> {
        let problem = Asked::read(&Node::of_json(&body)).err();
        let errors = problem.unwrap_or_else(|| panic!("it is taken")).errors;
        errors.into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn a_packet_is_for_ports_or_by_actions_and_everything_wrong_is_said_by_field() {
        let data = BASE64.encode(&[0; 60]);
        let asked = json!([
            {"at": ["1:2", "2:3", "1:4"], "data": data},
            {"switch": "1", "in_port": 3, "actions": "flood", "data": data},
        ]);
        let asked = Asked::read(&Node::of_json(&asked)).unwrap_or_else(|it| panic!("{it:?}"));
        let shapes = asked.packets.iter();
        let shapes: Vec<(u64, usize)> = shapes.map(|it| (it.dpid.0, it.actions.len())).collect();
        assert_eq!((asked.count, shapes), (2, vec![(1, 2), (2, 1), (1, 1)]));
        let wrong = json!([
            {"at": ["1:x", "1:2"], "data": "?"},
            {"switch": "1", "in_port": 0, "actions": "controller", "data": "AAAA"},
            {"at": [], "actions": "flood", "data": data, "more": 1},
            {"switch": "1", "data": data},
        ]);
        let expected = [
            "/0/data",
            "/0/at/0",
            "/1/data",
            "/1/actions",
            "/1/in_port",
            "/2/more",
            "/2",
            "/2/at",
            "/3",
        ];
        assert_eq!(pointers(wrong), expected);
        let one = json!({"at": ["1:2"], "data": data});
        assert_eq!(
            pointers(Value::from(vec![one.clone(); PACKETS_MAX + 1])),
            [""]
        );
        assert_eq!(pointers(json!([])), [""]);
        let long = json!({"at": ["1:2"], "data": BASE64.encode(&[0; PACKET_BYTES_MAX + 1])});
        assert_eq!(pointers(long), ["/data"]);
    }
}
