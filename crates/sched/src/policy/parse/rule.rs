//! `Rule #N: …`: the conditions of a rule, and its action.

use openflow::{Match, MessageKind};

use super::{Item, Line, Reader, clip};
use crate::class::TrafficType;
use crate::order::Direction;
use crate::policy::draft::RuleDraft;
use crate::policy::problem::{Code, Position};
use crate::policy::{Action, QUEUES_MAX, RULES_MAX, Rule, fields, text};

impl Reader {
    pub(super) fn rule(&mut self, line: Line<'_>, at: Position, id: Option<&str>, body: &str) {
        if self.draft.rules.len() == RULES_MAX {
            self.problem(
                Code::TooManyRules,
                at,
                "Rule",
                format!("more than {RULES_MAX} rules"),
                format!("at most {RULES_MAX}: several can often be one with a mask"),
            );
        }
        let id = self.rule_id(at, id);
        let (items, mut is_whole) = self.items(line, body);
        let mut rule = Rule {
            id: id.unwrap_or(0),
            traffic: None,
            message: None,
            direction: None,
            datapath: None,
            fields: Match::any(),
            xid: None,
            domain: 0,
            action: Action::Queue(0),
        };
        is_whole &= id.is_some();
        let mut fields_at = Vec::new();
        let mut actions = Vec::new();
        let protocol = protocol_of(&items);
        for item in &items {
            is_whole &= match item.key {
                "action" => {
                    actions.push(*item);
                    true
                }
                "traffic_type" => self.traffic(item, &mut rule),
                "msg" => self.message(item, &mut rule),
                "dir" => self.direction(item, &mut rule),
                "dpid" => self.datapath(item, &mut rule),
                "xid" => self.xid(item, &mut rule),
                "domain" => self.domain(item, &mut rule),
                _ => self.field(item, protocol, &mut rule, &mut fields_at),
            };
        }
        let action_at = actions.first().map_or(at, |item| item.at);
        match self.one_action("Rule", at, &actions) {
            Some(action) => rule.action = action,
            None => is_whole = false,
        }
        self.draft.rules.push(RuleDraft {
            at,
            rule,
            fields_at,
            action_at,
            is_whole,
        });
    }

    /// Returns the number of a rule. A rule without one gets the number after the last.
    fn rule_id(&mut self, at: Position, id: Option<&str>) -> Option<u16> {
        let Some(id) = id else {
            let last = self.draft.rules.iter().map(|draft| draft.rule.id).max();
            return last.unwrap_or(0).checked_add(1);
        };
        let id = id.parse::<u16>().ok().filter(|id| *id > 0);
        let Some(id) = id else {
            let wanted = "Rule #N: with N from 1 to 65535";
            self.problem(Code::Syntax, at, "Rule", "no number of a rule", wanted);
            return None;
        };
        if let Some(first) = self.draft.rules.iter().find(|draft| draft.rule.id == id) {
            let what = format!("#{id} is the rule of line {} already", first.at.line);
            let wanted = "a number of its own for each rule";
            self.problem(Code::DuplicateId, at, "Rule", what, wanted);
        }
        Some(id)
    }

    /// Returns the action if there is exactly one; reports anything else.
    pub(super) fn one_action(
        &mut self,
        word: &str,
        at: Position,
        actions: &[Item<'_>],
    ) -> Option<Action> {
        match actions {
            [] => {
                let wanted = "action=queue_id:N or action=dscp:CS6";
                self.problem(Code::Action, at, word, "no action", wanted);
                None
            }
            [item] => self.action(item),
            [_, second, ..] => {
                let wanted = "one; both a queue and a code point are action=queue_id:1+dscp:CS6";
                self.problem(Code::Action, second.at, "action", "a second action", wanted);
                None
            }
        }
    }

    fn action(&mut self, item: &Item<'_>) -> Option<Action> {
        let mut queue = None;
        let mut dscp = None;
        let mut copies = false;
        for part in item.value.split('+') {
            let (kind, value) = part.split_once(':').unwrap_or((part, ""));
            match (kind.trim(), value.trim()) {
                ("queue_id", value) if queue.is_none() => queue = Some(self.queue_id(item, value)?),
                ("dscp", "copy") if dscp.is_none() && !copies => copies = true,
                ("dscp", value) if dscp.is_none() && !copies => {
                    dscp = Some(self.code_point(item.value_at, "action", value)?);
                }
                _ => {
                    let what = format!("'{}' is no action", clip(item.value));
                    let wanted = "queue_id:N, dscp:CS6, dscp:copy or queue_id:N+dscp:CS6";
                    self.problem(Code::Action, item.value_at, "action", what, wanted);
                    return None;
                }
            }
        }
        match (queue, dscp, copies) {
            (Some(queue), None, false) => Some(Action::Queue(queue)),
            (None, Some(dscp), false) => Some(Action::Dscp(dscp)),
            (None, None, true) => Some(Action::DscpCopy),
            (Some(queue), Some(dscp), false) => Some(Action::Both(queue, dscp)),
            _ => {
                let wanted = "queue_id:N or dscp:copy, not both";
                let what = "the queue follows from the code point that is copied";
                self.problem(Code::Action, item.value_at, "action", what, wanted);
                None
            }
        }
    }

    pub(super) fn queue_id(&mut self, item: &Item<'_>, text: &str) -> Option<u8> {
        let queue = text.parse::<u8>().ok();
        let queue = queue.filter(|queue| usize::from(*queue) < QUEUES_MAX);
        if queue.is_none() {
            self.problem(
                Code::QueueId,
                item.value_at,
                "queue_id",
                format!("'{}' is no queue", clip(text)),
                format!("queue_id:0 to queue_id:{}", QUEUES_MAX - 1),
            );
        }
        queue
    }

    pub(super) fn code_point(&mut self, at: Position, field: &str, text: &str) -> Option<u8> {
        let found = text::code_point(text);
        if found.is_none() {
            let what = format!("'{}' is no code point", clip(text));
            let wanted = "CS0 to CS7, AF11 to AF43, EF, VA or 0 to 63";
            self.problem(Code::Dscp, at, field, what, wanted);
        }
        found
    }

    fn traffic(&mut self, item: &Item<'_>, rule: &mut Rule) -> bool {
        rule.traffic = match item.value {
            "1" => Some(TrafficType::Session),
            "2" => Some(TrafficType::FlowSetup),
            "3" => Some(TrafficType::Housekeeping),
            "4" => Some(TrafficType::Data),
            "any" => None,
            value => {
                let what = format!("'{}' is no traffic type", clip(value));
                let wanted = "1 (session), 2 (flow setup), 3 (housekeeping), 4 (data) or any";
                self.problem(Code::TrafficType, item.value_at, item.key, what, wanted);
                return false;
            }
        };
        true
    }

    /// Stores the value that was read, or reports that there is none.
    pub(super) fn take<T>(
        &mut self,
        item: &Item<'_>,
        read: Option<T>,
        wanted: &str,
        put: impl FnOnce(T),
    ) -> bool {
        match read {
            Some(value) => {
                put(value);
                true
            }
            None => {
                let what = format!("'{}' is not possible", clip(item.value));
                self.problem(Code::Value, item.value_at, item.key, what, wanted);
                false
            }
        }
    }

    fn message(&mut self, item: &Item<'_>, rule: &mut Rule) -> bool {
        let kind = MessageKind::from_name(item.value);
        let wanted = "the name of a message such as packet_in, flow_mod, barrier_request";
        self.take(item, kind, wanted, |kind| rule.message = Some(kind))
    }

    fn direction(&mut self, item: &Item<'_>, rule: &mut Rule) -> bool {
        let direction = match item.value {
            "up" => Some(Some(Direction::ToController)),
            "down" => Some(Some(Direction::ToSwitch)),
            "both" => Some(None),
            _ => None,
        };
        let wanted = "up (to the controller), down (to the switch) or both";
        self.take(item, direction, wanted, |direction| {
            rule.direction = direction;
        })
    }

    fn datapath(&mut self, item: &Item<'_>, rule: &mut Rule) -> bool {
        let datapath = item.value.parse().ok();
        let wanted = "a datapath id such as 0000000000000001";
        self.take(item, datapath, wanted, |id| rule.datapath = Some(id))
    }

    fn xid(&mut self, item: &Item<'_>, rule: &mut Rule) -> bool {
        let word = |text: &str| fields::number(text.trim()).and_then(|n| u32::try_from(n).ok());
        let read = match item.value.split_once('/') {
            Some((value, mask)) => word(value).zip(word(mask)),
            None => word(item.value).map(|value| (value, u32::MAX)),
        };
        let inside = read.filter(|(value, mask)| value & !mask == 0 && *mask != 0);
        let wanted = "an xid such as 0x7 or 0x80000000/0x80000000, no bit outside its mask";
        self.take(item, inside, wanted, |xid| rule.xid = Some(xid))
    }

    fn domain(&mut self, item: &Item<'_>, rule: &mut Rule) -> bool {
        let domain = item.value.parse::<u8>().ok();
        self.take(item, domain, "a domain from 0 to 255", |n| rule.domain = n)
    }

    fn field(
        &mut self,
        item: &Item<'_>,
        protocol: fields::Protocol,
        rule: &mut Rule,
        fields_at: &mut Vec<Position>,
    ) -> bool {
        let key = item.key;
        if !fields::is_field(key) {
            let wanted = fields::suggestion(key);
            self.problem(
                Code::UnknownField,
                item.at,
                clip(key),
                "no such field",
                wanted,
            );
            return false;
        }
        match fields::read(key, item.value, protocol) {
            Ok(field) if has(&rule.fields, &field) => {
                let what = "this field is given under another name too";
                self.problem(Code::Syntax, item.at, key, what, "each field once");
                false
            }
            Ok(field) => {
                rule.fields.fields.push(field);
                fields_at.push(item.at);
                true
            }
            Err(fields::Unread::Unknown { wanted }) => {
                let what = "this name alone does not say which field";
                self.problem(Code::UnknownField, item.at, key, what, wanted);
                false
            }
            Err(fields::Unread::Value { wanted }) => {
                let what = format!("'{}' is not possible", clip(item.value));
                self.problem(Code::Value, item.value_at, key, what, wanted);
                false
            }
        }
    }
}

fn has(fields: &Match, field: &openflow::MatchField) -> bool {
    let name = |field: &openflow::MatchField| match field {
        openflow::MatchField::Basic { field, .. } => Some(*field),
        openflow::MatchField::Other { .. } => None,
    };
    fields.fields.iter().any(|other| name(other) == name(field))
}

/// The protocols that the items of a rule name, in any position.
fn protocol_of(items: &[Item<'_>]) -> fields::Protocol {
    let value = |keys: [&str; 2]| {
        let item = items.iter().find(|item| keys.contains(&item.key))?;
        fields::number(item.value)
    };
    fields::Protocol {
        eth_type: value(["eth_type", "dl_type"]),
        ip_proto: value(["ip_proto", "nw_proto"]),
    }
}
