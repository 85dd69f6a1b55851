//! Text to a draft of a map: lines, keys and values, each with the place where it stands. Nothing
//! stops at the first mistake.

use openflow::{Match, MessageKind};

use super::draft::{self, Against, Draft, QueueDraft, RuleDraft};
use super::problem::{Code, Position, Problem};
use super::{Action, PolicyMap, Profile, QUEUES_MAX, RULES_MAX, Rule, check, fields, text};
use crate::class::TrafficType;
use crate::order::Direction;

/// Problems after which reading stops: whatever the text is, it is no policy map.
const PROBLEMS_MAX: usize = 1000;

pub(super) fn parse(
    text: &str,
    against: &Against,
) -> Result<(PolicyMap, Vec<Problem>), Vec<Problem>> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        reader.line(number + 1, line);
        if reader.problems.len() >= PROBLEMS_MAX {
            break;
        }
    }
    let Reader {
        draft,
        mut problems,
        ..
    } = reader;
    let map = draft::assemble(&draft);
    check::check(&draft, &map, &mut problems);
    draft::check_against(&draft, &map, against, &mut problems);
    problems.sort_by_key(|problem| (problem.at, problem.code));
    problems.dedup();
    if problems.iter().any(|problem| problem.code.is_error()) {
        Err(problems)
    } else {
        Ok((map, problems))
    }
}

/// `key=value` and where both stand.
#[derive(Clone, Copy)]
struct Item<'a> {
    key: &'a str,
    value: &'a str,
    at: Position,
    value_at: Position,
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    problems: Vec<Problem>,
    seen: Vec<&'static str>,
}

/// A line cut at its comment, with its number.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    /// The place of `part`, which is a piece of this line.
    fn place(&self, part: &str) -> Position {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.get(..offset).unwrap_or(self.text);
        Position {
            line: self.number,
            column: before.chars().count() + 1,
        }
    }
}

impl Reader {
    fn problem(
        &mut self,
        code: Code,
        at: Position,
        field: impl Into<String>,
        what: impl Into<String>,
        wanted: impl Into<String>,
    ) {
        let problem = Problem::new(code, at, field, what, wanted);
        self.problems.push(problem);
    }

    fn line(&mut self, number: usize, text: &str) {
        let line = Line { number, text };
        let content = text.trim();
        if content.is_empty() || content.starts_with('#') {
            return;
        }
        self.draft.end = line.place(content);
        let colon = content.find(':');
        let is_headless = match (colon, content.find('=')) {
            (Some(colon), Some(equals)) => equals < colon,
            (None, _) => true,
            _ => false,
        };
        if is_headless {
            return self.headless(line, content);
        }
        let (header, body) = content.split_at(colon.unwrap_or(0));
        let body = &body[1..];
        let body = body.split_once('#').map_or(body, |(body, _)| body).trim();
        let (word, id) = match header.split_once('#') {
            Some((word, id)) => (word.trim(), Some(id.trim())),
            None => (header.trim(), None),
        };
        let at = line.place(content);
        match (word.to_ascii_lowercase().as_str(), id) {
            ("rule", id) => self.rule(line, at, id, body),
            ("queue", Some(id)) => self.queue(line, at, id, body),
            ("profile", None) if self.once("Profile", at) => self.profile(line, body),
            ("generation", None) if self.once("Generation", at) => self.generation(line, body),
            ("default", None) if self.once("Default", at) => self.default_action(line, at, body),
            ("scheduler", None) if self.once("Scheduler", at) => self.scheduler(line, at, body),
            ("dscp", None) => self.dscp(line, body),
            ("profile" | "generation" | "default" | "scheduler", None) => {}
            _ => self.problem(
                Code::Syntax,
                at,
                clip(header),
                "no such line",
                "Rule #N:, Default:, Profile:, Generation:, Scheduler:, Queue #N: or Dscp:",
            ),
        }
    }

    fn headless(&mut self, line: Line<'_>, content: &str) {
        let body = content.split_once('#').map_or(content, |(body, _)| body);
        let at = line.place(content);
        if body.contains('=') {
            return self.rule(line, at, None, body.trim());
        }
        self.problem(
            Code::Syntax,
            at,
            clip(content),
            "neither a rule nor a setting",
            "Rule #N: traffic_type=…, action=queue_id:N",
        );
    }

    /// Whether this is the first line of its kind; says so if not.
    fn once(&mut self, word: &'static str, at: Position) -> bool {
        if self.seen.contains(&word) {
            self.problem(
                Code::Syntax,
                at,
                word,
                "said twice",
                format!("one {word}: line"),
            );
            return false;
        }
        self.seen.push(word);
        true
    }

    /// The `key=value` of a line, those that are none reported.
    fn items<'a>(&mut self, line: Line<'_>, body: &'a str) -> (Vec<Item<'a>>, bool) {
        let mut is_whole = true;
        let mut items: Vec<Item<'a>> = Vec::new();
        for piece in body.split(',') {
            let piece = piece.trim();
            let at = line.place(piece);
            let Some((key, value)) = piece.split_once('=') else {
                is_whole = false;
                let what = if piece.is_empty() {
                    "nothing stands here"
                } else {
                    "no value"
                };
                self.problem(Code::Syntax, at, clip(piece), what, "key=value");
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                is_whole = false;
                let wanted = format!("{}=…", clip(key));
                self.problem(Code::Syntax, at, clip(key), "no value", wanted);
                continue;
            }
            // Two actions are an error of their own.
            if key != "action" && items.iter().any(|item| item.key == key) {
                is_whole = false;
                let wanted = format!("{} once", clip(key));
                self.problem(Code::Syntax, at, clip(key), "given twice", wanted);
                continue;
            }
            items.push(Item {
                key,
                value,
                at,
                value_at: line.place(value),
            });
        }
        (items, is_whole)
    }

    fn rule(&mut self, line: Line<'_>, at: Position, id: Option<&str>, body: &str) {
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

    /// The number of a rule; without one it is the number after the last.
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

    /// The one action that is there; anything else is reported.
    fn one_action(&mut self, word: &str, at: Position, actions: &[Item<'_>]) -> Option<Action> {
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

    fn queue_id(&mut self, item: &Item<'_>, text: &str) -> Option<u8> {
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

    fn code_point(&mut self, at: Position, field: &str, text: &str) -> Option<u8> {
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

    /// Puts what was read where it belongs, or says that it was not.
    fn take<T>(
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

    fn profile(&mut self, line: Line<'_>, body: &str) {
        self.draft.profile = match body {
            "paper" => Some(Profile::Paper),
            "auster" => Some(Profile::Auster),
            other => {
                let what = format!("'{}' is no profile", clip(other));
                let at = line.place(body);
                self.problem(Code::Syntax, at, "Profile", what, "paper or auster");
                None
            }
        };
    }

    fn generation(&mut self, line: Line<'_>, body: &str) {
        let at = line.place(body);
        match body.parse() {
            Ok(generation) => self.draft.generation = Some((generation, at)),
            Err(_) => {
                let what = format!("'{}' is no generation", clip(body));
                let wanted = "a number that grows with every change of the map";
                self.problem(Code::Syntax, at, "Generation", what, wanted);
            }
        }
    }

    fn default_action(&mut self, line: Line<'_>, at: Position, body: &str) {
        let (items, _) = self.items(line, body);
        let mut actions = Vec::new();
        for item in items {
            if item.key == "action" {
                actions.push(item);
            } else {
                let what = "the default has an action alone";
                self.problem(Code::Syntax, item.at, clip(item.key), what, "action=…");
            }
        }
        if let Some(action) = self.one_action("Default", at, &actions) {
            self.draft.default = Some((action, actions[0].at));
        } else {
            // There is one, and what is wrong with it is said; its absence is not reported too.
            self.draft.default = Some((Action::Queue(0), at));
        }
    }

    fn scheduler(&mut self, line: Line<'_>, at: Position, body: &str) {
        let (items, _) = self.items(line, body);
        for item in &items {
            match item.key {
                "algo" => {
                    let found = text::ALGORITHMS
                        .iter()
                        .find(|(_, name)| *name == item.value);
                    let wanted = "fifo, strict, wfq, drr, min-rate, edf or hierarchy";
                    let mut algorithm = None;
                    self.take(item, found, wanted, |(found, _)| algorithm = Some(*found));
                    self.draft.algorithm = algorithm.map(|algorithm| (algorithm, item.at));
                }
                "queues" => {
                    let count = item.value.parse().ok();
                    let count = count.filter(|n| (1..=QUEUES_MAX).contains(n));
                    let mut read = None;
                    self.take(item, count, "1 to 16", |n| read = Some(n));
                    self.draft.queue_count = read;
                }
                "hard_bytes" => self.draft.bytes_hard = self.positive(item, text::bytes),
                "link_rate" => self.draft.link_rate = self.positive(item, text::rate),
                "packet_out" => {
                    let is_free = match item.value {
                        "free" => Some(true),
                        "ordered" => Some(false),
                        _ => None,
                    };
                    let mut read = false;
                    self.take(item, is_free, "free or ordered", |free| read = free);
                    self.draft.packet_out_free = read;
                }
                key => {
                    let wanted = "algo, queues, hard_bytes, link_rate or packet_out";
                    let what = "no such setting of the scheduler";
                    self.problem(Code::UnknownField, item.at, clip(key), what, wanted);
                }
            }
        }
        self.draft.algorithm = self.draft.algorithm.map(|(a, _)| (a, at));
    }

    fn queue(&mut self, line: Line<'_>, at: Position, id: &str, body: &str) {
        let id = id.parse::<u8>().ok();
        let Some(id) = id.filter(|id| usize::from(*id) < QUEUES_MAX) else {
            let wanted = format!("Queue #N: with N from 0 to {}", QUEUES_MAX - 1);
            self.problem(Code::QueueId, at, "Queue", "no number of a queue", wanted);
            return;
        };
        if let Some(first) = self.draft.queues.get(&id) {
            let what = format!("#{id} is the queue of line {} already", first.at.line);
            let wanted = "one line for each queue";
            self.problem(Code::DuplicateId, at, "Queue", what, wanted);
            return;
        }
        let mut queue = QueueDraft {
            at,
            ..QueueDraft::default()
        };
        let items = if body.is_empty() {
            Vec::new()
        } else {
            self.items(line, body).0
        };
        for item in &items {
            match item.key {
                "weight" => queue.weight = self.positive(item, |text| text.parse().ok()),
                "min_rate" => {
                    queue.min_rate = self.positive(item, text::rate);
                    queue.rate_at = Some(item.at);
                }
                "deadline" => queue.deadline = self.positive(item, text::duration),
                "limit_msgs" => queue.messages_max = self.positive(item, |text| text.parse().ok()),
                "limit_bytes" => queue.bytes_max = self.positive(item, text::bytes),
                "max_age" => queue.age_max = self.positive(item, text::duration),
                key => {
                    let wanted = "weight, min_rate, deadline, limit_msgs, limit_bytes or max_age";
                    let what = "no such setting of a queue";
                    self.problem(Code::UnknownField, item.at, clip(key), what, wanted);
                }
            }
        }
        self.draft.queues.insert(id, queue);
    }

    /// A number, size, rate or time above 0.
    fn positive<T: Default + PartialEq>(
        &mut self,
        item: &Item<'_>,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let is_negative = item.value.starts_with('-') && read(&item.value[1..]).is_some();
        match read(item.value) {
            Some(value) if value != T::default() => Some(value),
            None if !is_negative => {
                let what = format!("'{}' is not possible", clip(item.value));
                let wanted = text::example(item.key);
                self.problem(Code::Value, item.value_at, item.key, what, wanted);
                None
            }
            _ => {
                let what = format!("'{}' is not above 0", clip(item.value));
                let wanted = text::example(item.key);
                self.problem(Code::Rate, item.value_at, item.key, what, wanted);
                None
            }
        }
    }

    fn dscp(&mut self, line: Line<'_>, body: &str) {
        let (items, _) = self.items(line, body);
        for item in &items {
            let dscp = self.code_point(item.at, "Dscp", item.key);
            let queue = self.queue_id(item, item.value);
            if let Some((dscp, queue)) = dscp.zip(queue) {
                self.draft.dscp.push((dscp, queue, item.at));
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

/// The protocols that the items of a rule name, wherever they stand.
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

/// A piece of the text, short enough for a line.
fn clip(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
