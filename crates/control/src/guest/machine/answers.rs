//! Requests for statistics, and their answers.

use bytes::Bytes;
use clock::Instant;
use openflow::message::{MultipartReply, MultipartRequest, PortMod};
use openflow::multipart::{
    AggregateStats, FeatureId, FlowStats, FlowStatsRequest, GroupFeatures, ReplyBody, RequestBody,
    TableFeatureProperty, TableFeatures, TableStats,
};
use openflow::table::Pattern;
use openflow::{ErrorKind, GroupId, Message, MeterId, TableId, Version, Xid, encode};

use super::super::ENTRIES_MAX;
use super::super::entries::{GUEST_MASK, Selection, cookie};
use super::super::groups::GROUPS_MAX;
use super::{ASKED_MAX, Machine, Origin, Output, Ticket, in_v13, is_visible};

/// Elements of a list in one message.
const PART: usize = 64;

/// OFPAT_* that entries may have: OUTPUT, TTLs, pushes and pops, SET_QUEUE, GROUP, SET_FIELD.
const ACTIONS: [u16; 12] = [0, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25];

/// A question that the machine asks the switch for the guest.
pub(super) struct Asked {
    pub xid: Xid,
    pub purpose: Purpose,
}

pub(super) enum Purpose {
    Stats(RequestBody),
    /// To judge a change of a port.
    Port(Origin, PortMod),
}

/// The outcome of a question.
pub(crate) enum Answer {
    Whole(Vec<ReplyBody>),
    Refused(ErrorKind),
    /// The switch has not answered in time, or its answer was too long.
    Lost,
}

impl Machine {
    pub(super) fn ask(
        &mut self,
        now: Instant,
        xid: Xid,
        request: MultipartRequest,
    ) -> Result<(), ErrorKind> {
        if request.more {
            return Err(ErrorKind::MULTIPART_BUFFER_OVERFLOW);
        }
        let of_switch = match &request.body {
            RequestBody::Flow(rows) | RequestBody::Aggregate(rows) => {
                Pattern::new(&rows.r#match)?;
                let is_known = usize::from(rows.table_id.0) < self.tables.len();
                if !is_known && rows.table_id != TableId::ALL {
                    return Err(ErrorKind::BAD_TABLE_ID);
                }
                if self.entries.len() == 0 {
                    self.answer_flows(now, xid, &request.body);
                    return Ok(());
                }
                RequestBody::Flow(FlowStatsRequest {
                    cookie: cookie(self.guest, 0),
                    cookie_mask: GUEST_MASK,
                    ..FlowStatsRequest::all()
                })
            }
            RequestBody::PortStats(port) if !is_visible(&self.slice, *port) => {
                return Err(ErrorKind::BAD_PORT);
            }
            RequestBody::Queue { port, .. } if !is_visible(&self.slice, *port) => {
                return Err(ErrorKind::QUEUE_BAD_PORT);
            }
            RequestBody::Group(_) if self.groups.is_empty() => {
                self.answer(xid, ReplyBody::Group(Vec::new()));
                return Ok(());
            }
            RequestBody::Group(_) => RequestBody::Group(GroupId::ALL),
            RequestBody::GroupDesc(_) => {
                self.answer_list(xid, self.group_descs(), ReplyBody::GroupDesc);
                return Ok(());
            }
            RequestBody::Meter(id) => {
                self.check_known(*id)?;
                if self.meters.is_empty() {
                    self.answer(xid, ReplyBody::Meter(Vec::new()));
                    return Ok(());
                }
                RequestBody::Meter(MeterId::ALL)
            }
            RequestBody::MeterConfig(id) => {
                let configs = self.meter_configs(*id)?;
                self.answer_list(xid, configs, ReplyBody::MeterConfig);
                return Ok(());
            }
            RequestBody::Desc
            | RequestBody::GroupFeatures
            | RequestBody::MeterFeatures
            | RequestBody::PortDesc(_)
            | RequestBody::Table
            | RequestBody::PortStats(_)
            | RequestBody::Queue { .. } => request.body.clone(),
            body => {
                let answer = self.answer_alone(body)?;
                self.answer(xid, answer);
                return Ok(());
            }
        };
        if self.asked.len() >= ASKED_MAX {
            return Err(ErrorKind::MULTIPART_BUFFER_OVERFLOW);
        }
        let ticket = self.next_ticket();
        let purpose = Purpose::Stats(request.body);
        self.asked.insert(ticket, Asked { xid, purpose });
        self.outputs.push_back(Output::Ask(ticket, of_switch));
        Ok(())
    }

    /// Answers a request without the switch.
    fn answer_alone(&self, body: &RequestBody) -> Result<ReplyBody, ErrorKind> {
        Ok(match body {
            RequestBody::TableFeatures(set) if set.is_empty() => {
                let tables = (0u8..).zip(&self.tables);
                ReplyBody::TableFeatures(tables.map(|(table, _)| features(table)).collect())
            }
            RequestBody::TableFeatures(_) => return Err(ErrorKind::TABLE_FEATURES_EPERM),
            RequestBody::Experimenter { .. } => return Err(ErrorKind::BAD_EXPERIMENTER),
            _ => return Err(ErrorKind::BAD_MULTIPART),
        })
    }

    /// Handles the outcome of a question.
    pub fn handle_answer(&mut self, now: Instant, ticket: Ticket, answer: Answer) {
        if self.parts_answered(now, ticket, &answer) {
            return;
        }
        let Some(Asked { xid, purpose }) = self.asked.remove(&ticket) else {
            return;
        };
        let body = match purpose {
            Purpose::Stats(body) => body,
            Purpose::Port(origin, asked) => {
                let set = match answer {
                    Answer::Whole(bodies) => self.set_port(&asked, bodies),
                    Answer::Refused(_) | Answer::Lost => Err(ErrorKind::PORT_MOD_EPERM),
                };
                return set.unwrap_or_else(|error| self.refuse(&origin, error));
            }
        };
        let error = match answer {
            Answer::Whole(bodies) => return self.answer_whole(now, xid, &body, bodies),
            // The switch has no meters.
            Answer::Refused(_) if body == RequestBody::MeterFeatures => {
                return self.answer_whole(now, xid, &body, Vec::new());
            }
            Answer::Refused(error) => error,
            Answer::Lost => ErrorKind::MULTIPART_BUFFER_OVERFLOW,
        };
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        if let Ok(frame) = encode(Version::V13, xid, &message) {
            let number = self.next_ticket();
            self.refuse(&Origin::of(number, self.sessions, &frame), error);
        }
    }

    fn answer_whole(
        &mut self,
        now: Instant,
        xid: Xid,
        asked: &RequestBody,
        bodies: Vec<ReplyBody>,
    ) {
        match asked {
            RequestBody::Flow(_) | RequestBody::Aggregate(_) => {
                for body in &bodies {
                    if let ReplyBody::Flow(rows) = body {
                        self.note_counts(rows);
                    }
                }
                self.answer_flows(now, xid, asked);
            }
            RequestBody::Desc => {
                if let Some(body @ ReplyBody::Desc(_)) = bodies.into_iter().next() {
                    self.answer(xid, body);
                }
            }
            RequestBody::Group(asked) => {
                let groups = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Group(groups) => groups,
                    _ => Vec::new(),
                });
                let own = self.group_stats(*asked, groups.collect());
                self.answer_list(xid, own, ReplyBody::Group);
            }
            RequestBody::GroupFeatures => {
                if let Some(ReplyBody::GroupFeatures(features)) = bodies.into_iter().next() {
                    let most = |groups: u32| groups.min(GROUPS_MAX as u32);
                    let max_groups = features.max_groups.map(most);
                    let features = GroupFeatures {
                        max_groups,
                        ..features
                    };
                    self.answer(xid, ReplyBody::GroupFeatures(features));
                }
            }
            RequestBody::Meter(asked) => {
                let meters = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Meter(meters) => meters,
                    _ => Vec::new(),
                });
                let own = self.meter_stats(*asked, meters.collect());
                self.answer_list(xid, own, ReplyBody::Meter);
            }
            RequestBody::MeterFeatures => {
                let features = bodies.into_iter().find_map(|body| match body {
                    ReplyBody::MeterFeatures(features) => Some(features),
                    _ => None,
                });
                let features = self.meter_features(features);
                self.answer(xid, ReplyBody::MeterFeatures(features));
            }
            RequestBody::PortDesc(_) => {
                let ports = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::PortDesc(ports) => ports,
                    _ => Vec::new(),
                });
                let own = ports.filter(|port| self.slice.has_port(port.port_no));
                let own = own.map(|port| self.shown(port)).collect();
                self.answer_list(xid, own, ReplyBody::PortDesc);
            }
            RequestBody::PortStats(_) => {
                let ports = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::PortStats(ports) => ports,
                    _ => Vec::new(),
                });
                let own = ports.filter(|port| self.slice.has_port(port.port_no));
                let own = own.map(in_v13::port_stats).collect();
                self.answer_list(xid, own, ReplyBody::PortStats);
            }
            RequestBody::Queue { .. } => {
                let queues = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Queue(queues) => queues,
                    _ => Vec::new(),
                });
                let own = queues.filter(|queue| self.slice.has_port(queue.port_no));
                let own = own.map(in_v13::queue_stats).collect();
                self.answer_list(xid, own, ReplyBody::Queue);
            }
            RequestBody::Table => {
                let tables = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Table(tables) => tables,
                    _ => Vec::new(),
                });
                let own = tables.filter_map(|stats| {
                    let table_id = self.guest_table(stats.table_id)?;
                    Some(TableStats {
                        table_id,
                        active_count: self.entries.count_in(table_id) as u32,
                        ..stats
                    })
                });
                let mut own: Vec<TableStats> = own.collect();
                own.sort_by_key(|stats| stats.table_id);
                self.answer_list(xid, own, ReplyBody::Table);
            }
            _ => {}
        }
    }

    /// Answers a request about entries with the values last read.
    fn answer_flows(&mut self, now: Instant, xid: Xid, asked: &RequestBody) {
        let (RequestBody::Flow(rows) | RequestBody::Aggregate(rows)) = asked else {
            return;
        };
        let Ok(pattern) = Pattern::new(&rows.r#match) else {
            return;
        };
        let keys = self
            .entries
            .selected(&Selection::of_request(rows, &pattern));
        let entries = keys
            .iter()
            .filter_map(|key| Some((key, self.entries.get(key)?)));
        if let RequestBody::Aggregate(_) = asked {
            let counts = entries.map(|(_, entry)| entry.counts());
            let sum = |sum: (u64, u64), (packets, bytes): (u64, u64)| {
                (sum.0.saturating_add(packets), sum.1.saturating_add(bytes))
            };
            let (packet_count, byte_count) = counts.fold((0, 0), sum);
            let body = ReplyBody::Aggregate(AggregateStats {
                packet_count,
                byte_count,
                flow_count: keys.len() as u32,
                stats: Vec::new(),
            });
            return self.answer(xid, body);
        }
        let rows: Vec<FlowStats> = entries.map(|(key, entry)| entry.stats(key, now)).collect();
        self.answer_list(xid, rows, ReplyBody::Flow);
    }

    fn answer(&mut self, xid: Xid, body: ReplyBody) {
        let message = Message::MultipartReply(MultipartReply { more: false, body });
        self.reply(xid, &message);
    }

    /// Answers with a list in as many messages as it needs, and with one even if the list is empty.
    fn answer_list<T: Clone>(
        &mut self,
        xid: Xid,
        list: Vec<T>,
        body: impl Fn(Vec<T>) -> ReplyBody,
    ) {
        let mut rest = &list[..];
        loop {
            let mut count = rest.len().min(PART);
            // Entries can have many actions.
            let message = loop {
                let more = count < rest.len();
                let body = body(rest[..count].to_vec());
                let message = Message::MultipartReply(MultipartReply { more, body });
                if count <= 1 || encode(Version::V13, xid, &message).is_ok() {
                    break message;
                }
                count /= 2;
            };
            self.reply(xid, &message);
            rest = &rest[count..];
            if rest.is_empty() {
                return;
            }
        }
    }
}

fn features(table: u8) -> TableFeatures {
    let id = |id: u16| FeatureId {
        id,
        experimenter: None,
    };
    let actions = |miss: bool| TableFeatureProperty::ApplyActions {
        miss,
        ids: ACTIONS.map(id).to_vec(),
    };
    TableFeatures {
        table_id: TableId(table),
        name: Bytes::from(format!("table{table}")),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        command: 0,
        features: 0,
        max_entries: ENTRIES_MAX as u32,
        properties: [false, true].map(actions).to_vec(),
    }
}
