//! One switch as the bench sees it: a channel to it, and a host at either end of its data path.
//!
//! A switch may have a lane per transport. The lanes share its ports, hosts and flow table;
//! packet-ins go to one lane at a time ([`Lane::listen`]).

use std::rc::Rc;
use std::time::Duration;

use openflow::message::{AsyncConfig, FlowMod, FlowModCommand, PacketIn};
use openflow::multipart::{
    AggregateStats, Description, FlowStatsRequest, MultipartReply, MultipartRequest, ReplyBody,
    RequestBody,
};
use openflow::{Action, Cookie, Field, Match, Message, PortNo};

use super::tap::{ETH_TYPE, Probe, Tap};
use auster::channel::Channel;
use cli::failure::Failure;

/// Delay above which a probe counts as lost.
pub const LOST_AFTER: Duration = Duration::from_secs(1);
/// Time from the connection to the first packet-in of each interface; a new link may take seconds.
const PORT_SEARCH_MAX: Duration = Duration::from_secs(15);

/// The flow that has a rule of its own.
pub const MATCHED_FLOW: u32 = 1;
/// A flow that has a rule but is never sent: see [`Lane::prepare`].
const DECOY_FLOW: u32 = 0;
/// The first of the flows that are used temporarily.
const FIRST_FLOW: u32 = 0x0100_0000;
/// Flow numbers of each lane: more than any run takes.
const FLOWS_PER_LANE: u32 = 0x5000_0000;

/// The cookies of all entries that we install, so that no other entry is ever removed.
const COOKIE: u64 = 0x6175_7374_6572_0000;
const COOKIE_MASK: u64 = 0xffff_ffff_ffff_0000;

/// The kind of one of our entries: the last part of its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    Base = 1,
    Ballast = 2,
    Flow = 3,
}

impl Kind {
    fn cookie(self) -> Cookie {
        Cookie(COOKIE | self as u64)
    }
}

/// The treatment of probes that have no rule of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Probes become packet-ins.
    ToController,
    /// Probes go back out of the port they came in at.
    Back,
}

pub struct Lane {
    /// `tcp`, `ssl` or `quic`.
    pub transport: &'static str,
    pub channel: Channel,
    pub ends: Rc<Ends>,
    pub description: String,
    next_flow: u32,
}

/// The data path of a switch: two interfaces of this machine, and the switch ports that they are
/// connected to.
pub struct Ends {
    pub ingress: Tap,
    pub egress: Tap,
    pub ingress_port: PortNo,
    pub egress_port: PortNo,
    token: u32,
}

impl Ends {
    /// Finds the ports by sending a probe on each interface.
    pub async fn find(
        channel: &mut Channel,
        (ingress, egress): (Tap, Tap),
        names: (&str, &str),
        token: u32,
    ) -> Result<Ends, Failure> {
        let mut search = vec![Message::FlowMod(delete(
            Cookie(COOKIE),
            Cookie(COOKIE_MASK),
        ))];
        let any_probe = Match::any().with(Field::EthType, ETH_TYPE);
        let mut rule = FlowMod::add(1, any_probe, vec![Action::controller()]);
        rule.cookie = Kind::Base.cookie();
        search.push(Message::FlowMod(rule));
        channel.carry_out(search).await?;
        let ingress_port = find_port(channel, &ingress, names.0, token, 0).await?;
        let egress_port = find_port(channel, &egress, names.1, token, 1).await?;
        if ingress_port == egress_port {
            return Err(Failure::usage(format!(
                "{} and {} are at the same port of the switch; give two",
                names.0, names.1
            )));
        }
        Ok(Ends {
            ingress,
            egress,
            ingress_port,
            egress_port,
            token,
        })
    }
}

impl Lane {
    /// `number` is unique among the lanes of a switch, and keeps their flows apart.
    pub async fn new(
        transport: &'static str,
        mut channel: Channel,
        ends: Rc<Ends>,
        number: u32,
    ) -> Result<Lane, Failure> {
        let description = describe(&mut channel).await?;
        let next_flow = FIRST_FLOW + number * FLOWS_PER_LANE;
        Ok(Lane {
            transport,
            channel,
            ends,
            description,
            next_flow,
        })
    }

    /// Turns packet-ins on or off for this lane, if there are other lanes to this switch.
    pub async fn listen(&mut self, to_packet_ins: bool) -> Result<(), Failure> {
        self.channel.carry_out(vec![listening(to_packet_ins)]).await
    }

    /// Sets the table: the treatment of probes, and `ballast` entries that match nothing.
    ///
    /// The decoy matches the whole source address, which makes a switch with a flow cache (Open
    /// vSwitch) look at all of it: every new flow is then new to the cache too.
    pub async fn prepare(&mut self, otherwise: Otherwise, ballast: u32) -> Result<(), Failure> {
        self.clear_all().await?;
        let elsewhere = match otherwise {
            Otherwise::ToController => Action::controller(),
            Otherwise::Back => Action::output(PortNo::IN_PORT),
        };
        let any_probe = Match::any()
            .with_in_port(self.ends.ingress_port)
            .with(Field::EthType, ETH_TYPE);
        let mut base = FlowMod::add(10, any_probe, vec![elsewhere]);
        base.cookie = Kind::Base.cookie();
        let out = vec![Action::output(self.ends.egress_port)];
        let rules = [
            base,
            self.rule(Kind::Base, DECOY_FLOW, Vec::new()),
            self.rule(Kind::Base, MATCHED_FLOW, out),
        ];
        self.channel
            .carry_out(rules.map(Message::FlowMod).into())
            .await?;
        self.fill(Kind::Ballast, ballast).await
    }

    /// Adds entries of flows that are never sent.
    pub async fn fill(&mut self, kind: Kind, count: u32) -> Result<(), Failure> {
        const BATCH: u32 = 1000;
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            let rules = self.unused_rules(kind, batch);
            self.channel.carry_out(rules).await?;
            left -= batch;
        }
        Ok(())
    }

    /// Entries of flows that are never sent, not yet added.
    pub fn unused_rules(&mut self, kind: Kind, count: u32) -> Vec<Message> {
        let first = self.take_flows(count);
        let rule = |flow| Message::FlowMod(self.rule(kind, flow, Vec::new()));
        (first..first + count).map(rule).collect()
    }

    /// The entry of one flow.
    pub fn rule(&self, kind: Kind, flow: u32, actions: Vec<Action>) -> FlowMod {
        let own = Match::any()
            .with_in_port(self.ends.ingress_port)
            .with(Field::EthType, ETH_TYPE)
            .with_eth_src(Probe::source(flow));
        let mut rule = FlowMod::add(20, own, actions);
        rule.cookie = kind.cookie();
        rule
    }

    /// Reserves flow numbers that were never used before; returns the first.
    pub fn take_flows(&mut self, count: u32) -> u32 {
        let first = self.next_flow;
        self.next_flow += count;
        first
    }

    pub async fn clear(&mut self, kind: Kind) -> Result<(), Failure> {
        let all = delete(kind.cookie(), Cookie(u64::MAX));
        self.channel.carry_out(vec![Message::FlowMod(all)]).await
    }

    /// Removes the entries that we have installed, and no others.
    pub async fn clear_all(&mut self) -> Result<(), Failure> {
        let all = delete(Cookie(COOKIE), Cookie(COOKIE_MASK));
        self.channel.carry_out(vec![Message::FlowMod(all)]).await
    }

    /// The number of entries of a kind that the switch has.
    pub async fn count(&mut self, kind: Kind) -> Result<u32, Failure> {
        let request = RequestBody::Aggregate(of_kind(kind));
        let xid = self.channel.send(&[ask(request)]).await?;
        match self.channel.answer(xid).await? {
            Message::MultipartReply(MultipartReply {
                body: ReplyBody::Aggregate(AggregateStats { flow_count, .. }),
                ..
            }) => Ok(flow_count),
            other => Err(Failure::network(format!(
                "the switch answered an aggregate request with {:?}",
                other.kind()
            ))),
        }
    }

    /// The probe in a packet-in, if it is one of ours.
    pub fn probe_of(&self, packet: &PacketIn) -> Option<Probe> {
        Probe::read(&packet.data, self.ends.token)
    }
}

pub fn ask(body: RequestBody) -> Message {
    Message::MultipartRequest(MultipartRequest { more: false, body })
}

pub fn of_kind(kind: Kind) -> FlowStatsRequest {
    FlowStatsRequest {
        cookie: kind.cookie(),
        cookie_mask: Cookie(u64::MAX),
        ..FlowStatsRequest::all()
    }
}

fn delete(cookie: Cookie, cookie_mask: Cookie) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Delete,
        cookie,
        cookie_mask,
        table_id: openflow::TableId(0),
        ..FlowMod::add(0, Match::any(), Vec::new())
    }
}

/// SET_ASYNC for packet-ins by a miss or an action, or for no messages.
pub fn listening(to_packet_ins: bool) -> Message {
    let reasons = if to_packet_ins { 0b11 } else { 0 };
    Message::SetAsync(AsyncConfig::of_v13([reasons, 0], [0, 0], [0, 0]))
}

async fn describe(channel: &mut Channel) -> Result<String, Failure> {
    let xid = channel.send(&[ask(RequestBody::Desc)]).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(match channel.answer(xid).await? {
        Message::MultipartReply(MultipartReply {
            body:
                ReplyBody::Desc(Description {
                    manufacturer,
                    hardware,
                    software,
                    ..
                }),
            ..
        }) => [manufacturer, hardware, software]
            .map(|part| text(&part))
            .join(", "),
        _ => "a switch that does not describe itself".to_owned(),
    })
}

async fn find_port(
    channel: &mut Channel,
    tap: &Tap,
    name: &str,
    token: u32,
    sequence: u32,
) -> Result<PortNo, Failure> {
    const AGAIN: Duration = Duration::from_millis(200);
    let failed = |e: std::io::Error| Failure::machine(format!("{name}: {e}"));
    let probe = Probe {
        flow: FIRST_FLOW - 1,
        sequence,
    };
    let mut waited = Duration::ZERO;
    while waited < PORT_SEARCH_MAX {
        tap.try_send(probe).map_err(failed)?;
        while let Some(received) = channel.next_within(AGAIN).await? {
            if let Message::PacketIn(packet) = received.message
                && Probe::read(&packet.data, token) == Some(probe)
                && let Some(port) = packet.r#match.in_port()
            {
                return Ok(port);
            }
        }
        waited += AGAIN;
    }
    Err(Failure::network(format!(
        "the switch sends no packet-in for a probe on {name}: is it linked to a port of this \
         switch?"
    )))
}
