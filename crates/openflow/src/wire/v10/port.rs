//! Ports and their queues.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::message::{
    Message, PacketQueue, Port, PortConfig, PortMod, PortName, PortState, QueueConfig,
    QueueProperty,
};
use crate::types::{MacAddr, PortNo, QueueId};
use crate::wire::reader::Reader;
use crate::wire::v13;
use crate::wire::writer::Writer;

use super::numbers::{
    features_from_wire, features_to_wire, port_from_wire, port_to_wire, speed_of,
};

const PROPERTIES: &str = "properties of a port";

/// LINK_DOWN, and the STP state in bits 8 and 9. Bits 1 and 2 belong to later versions.
const STATES: u32 = 1 | 3 << 8;

/// OFPQT_MIN_RATE, the only property of a queue, and one that Open vSwitch has in every version.
const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

/// ofp_phy_port.
pub(super) fn decode_port(r: &mut Reader) -> Result<Port, DecodeError> {
    let port_no = port_from_wire(r.u16()?);
    let hw_addr = MacAddr(r.array()?);
    let name = PortName(r.array()?);
    let config = PortConfig(r.u32()?);
    let state = PortState(r.u32()? & STATES);
    let curr = features_from_wire(r.u32()?);
    let advertised = features_from_wire(r.u32()?);
    let supported = features_from_wire(r.u32()?);
    let peer = features_from_wire(r.u32()?);
    Ok(Port {
        port_no,
        hw_addr,
        name,
        config,
        state,
        curr,
        advertised,
        supported,
        peer,
        curr_speed: speed_of(curr),
        max_speed: speed_of(supported),
        properties: Vec::new(),
    })
}

pub(super) fn encode_port(p: &Port, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!p.properties.is_empty(), PROPERTIES)?;
    let speeds = (p.curr_speed, p.max_speed);
    if speeds != (0, 0) && speeds != (speed_of(p.curr), speed_of(p.supported)) {
        return w.unsupported("port speed but by its features");
    }
    // A port that is not down is live: 1.0 implies LIVE instead of stating it.
    let state = p.state.0 & !PortState::LIVE.0;
    if state & !STATES != 0 {
        return w.unsupported("such port state");
    }
    w.u16(port_to_wire(p.port_no, w)?);
    w.bytes(&p.hw_addr.0);
    w.bytes(&p.name.0);
    w.u32(p.config.0);
    w.u32(state);
    for features in [p.curr, p.advertised, p.supported, p.peer] {
        w.u32(features_to_wire(features, w)?);
    }
    Ok(())
}

pub(super) fn decode_status(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "PORT_STATUS");
    let status = v13::port::decode_status(&mut r, decode_port)?;
    r.done()?;
    Ok(Message::PortStatus(status))
}

pub(super) fn decode_mod(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "PORT_MOD");
    let m = PortMod {
        port_no: port_from_wire(r.u16()?),
        hw_addr: MacAddr(r.array()?),
        config: PortConfig(r.u32()?),
        mask: PortConfig(r.u32()?),
        advertise: features_from_wire(r.u32()?),
        properties: Vec::new(),
    };
    r.skip(4)?;
    r.done()?;
    Ok(Message::PortMod(m))
}

pub(super) fn encode_mod(m: &PortMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!m.properties.is_empty(), PROPERTIES)?;
    w.u16(port_to_wire(m.port_no, w)?);
    w.bytes(&m.hw_addr.0);
    w.u32(m.config.0);
    w.u32(m.mask.0);
    w.u32(features_to_wire(m.advertise, w)?);
    w.zeros(4);
    Ok(())
}

pub(super) fn decode_queue_request(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "QUEUE_GET_CONFIG_REQUEST");
    let port = port_from_wire(r.u16()?);
    r.skip(2)?;
    r.done()?;
    Ok(Message::QueueGetConfigRequest { port })
}

pub(super) fn encode_queue_request(port: PortNo, w: &mut Writer) -> Result<(), EncodeError> {
    w.u16(port_to_wire(port, w)?);
    w.zeros(2);
    Ok(())
}

pub(super) fn decode_queue_reply(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "QUEUE_GET_CONFIG_REPLY");
    let port = port_from_wire(r.u16()?);
    r.skip(6)?;
    let queues = r.list(|r| decode_queue(port, r))?;
    Ok(Message::QueueGetConfigReply(QueueConfig { port, queues }))
}

pub(super) fn encode_queue_reply(m: &QueueConfig, w: &mut Writer) -> Result<(), EncodeError> {
    w.u16(port_to_wire(m.port, w)?);
    w.zeros(6);
    encode_queues(m, w)
}

/// Queues without their port, which the reply names once.
pub(in crate::wire) fn encode_queues(m: &QueueConfig, w: &mut Writer) -> Result<(), EncodeError> {
    for queue in &m.queues {
        if queue.port != m.port {
            return w.unsupported("queues of several ports in one reply");
        }
        let start = w.at();
        w.u32(queue.queue_id.0);
        w.zeros(4);
        for property in &queue.properties {
            encode_property(property, w)?;
        }
        w.close(start, 4, "queue")?;
    }
    Ok(())
}

pub(in crate::wire) fn decode_queue(
    port: PortNo,
    r: &mut Reader,
) -> Result<PacketQueue, DecodeError> {
    let len = usize::from(r.peek_u16(4)?);
    if len < 8 {
        return Err(r.error(ErrorKind::BAD_LEN));
    }
    let mut r = r.part(len, ErrorKind::BAD_LEN, "ofp_packet_queue")?;
    let queue_id = QueueId(r.u32()?);
    r.skip(4)?;
    Ok(PacketQueue {
        queue_id,
        port,
        properties: r.list(decode_property)?,
    })
}

fn decode_property(r: &mut Reader) -> Result<QueueProperty, DecodeError> {
    let len = usize::from(r.peek_u16(2)?);
    if len < 8 {
        return Err(r.error(ErrorKind::BAD_LEN));
    }
    let mut r = r.part(len, ErrorKind::BAD_LEN, "queue property")?;
    let property = r.u16()?;
    r.skip(6)?;
    let read = match property {
        MIN_RATE => QueueProperty::MinRate(r.u16()?),
        MAX_RATE => QueueProperty::MaxRate(r.u16()?),
        _ => {
            let data = r.rest();
            return Ok(QueueProperty::Other { property, data });
        }
    };
    r.skip(6)?;
    r.done()?;
    Ok(read)
}

fn encode_property(property: &QueueProperty, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    let head = |property: u16, w: &mut Writer| {
        w.u16(property);
        w.zeros(6);
    };
    match property {
        QueueProperty::MinRate(rate) | QueueProperty::MaxRate(rate) => {
            let is_min = matches!(property, QueueProperty::MinRate(_));
            head(if is_min { MIN_RATE } else { MAX_RATE }, w);
            w.u16(*rate);
            w.zeros(6);
        }
        QueueProperty::Other { property, data } if ![MIN_RATE, MAX_RATE].contains(property) => {
            head(*property, w);
            w.bytes(data);
        }
        _ => return w.unsupported("such queue property"),
    }
    w.close(start, 2, "queue property")
}
