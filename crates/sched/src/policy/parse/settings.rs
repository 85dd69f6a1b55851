//! The lines other than rules: profile, generation, default, scheduler, queues, code points.

use super::{Item, Line, Reader, clip};
use crate::policy::draft::QueueDraft;
use crate::policy::problem::{Code, Position};
use crate::policy::{Action, Algorithm, Profile, QUEUES_MAX, text};

impl Reader {
    pub(super) fn profile(&mut self, line: Line<'_>, body: &str) {
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

    pub(super) fn generation(&mut self, line: Line<'_>, body: &str) {
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

    pub(super) fn default_action(&mut self, line: Line<'_>, at: Position, body: &str) {
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
            // There is a default, and its mistake is reported; it is not reported as absent too.
            self.draft.default = Some((Action::Queue(0), at));
        }
    }

    pub(super) fn scheduler(&mut self, line: Line<'_>, at: Position, body: &str) {
        let (items, _) = self.items(line, body);
        for item in &items {
            match item.key {
                "algo" => {
                    let found = Algorithm::named(item.value);
                    let wanted = "fifo, strict, wfq, drr, min-rate, edf or hierarchy";
                    let mut algorithm = None;
                    self.take(item, found, wanted, |found| algorithm = Some(found));
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

    pub(super) fn queue(&mut self, line: Line<'_>, at: Position, id: &str, body: &str) {
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

    /// Reads a number, size, rate or time above 0.
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

    pub(super) fn dscp(&mut self, line: Line<'_>, body: &str) {
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
