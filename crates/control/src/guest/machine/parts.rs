//! Groups and meters alike: changes that a switch may refuse, and its reports of them.

use std::collections::BTreeMap;

use clock::Instant;
use openflow::multipart::RequestBody;
use openflow::{ErrorKind, GroupId, MeterId};

use super::super::numbered::{Numbered, Stated, Step};
use super::{Answer, Machine, Origin, Output, Ticket};
use crate::flows::parts::PartKind;

/// A change of a group or a meter by a message of the guest. `None`: the change mends a part that
/// was changed from outside, or deletes a part.
pub(super) type Change<I, T> = Option<(Origin, Step<I, T>)>;

/// The question about the switch's groups or meters.
#[derive(Default)]
pub(super) struct Reading {
    asked: Option<(Ticket, Instant)>,
    /// Whether the switch's groups or meters were compared since the switch connected.
    is_known: bool,
}

impl Reading {
    /// Whether it is unknown what an earlier process has left in the switch.
    pub fn is_first(&self) -> bool {
        self.asked.is_some() && !self.is_known
    }

    fn take(&mut self, ticket: Ticket) -> Option<Instant> {
        let (_, at) = self.asked.take_if(|(asked, _)| *asked == ticket)?;
        self.is_known = true;
        Some(at)
    }
}

/// Restores the state before a change that the switch has refused. `None`: the ticket belongs to no
/// such change; otherwise the message, if there is one, and the part that it changes.
fn take_back<I: Copy + Ord, T: Stated>(
    pending: &mut BTreeMap<Ticket, Change<I, T>>,
    parts: &mut Numbered<I, T>,
    ticket: Ticket,
) -> Option<Option<(Origin, I)>> {
    let Some((origin, step)) = pending.remove(&ticket)? else {
        return Some(None);
    };
    let later = pending.values_mut().flatten().map(|(_, step)| step);
    parts.take_back(&step, later);
    Some(Some((origin, step.id)))
}

impl Machine {
    /// Notes that the switch refuses a group or a meter. Returns whether the ticket belongs to one.
    pub(super) fn part_refused(&mut self, now: Instant, ticket: Ticket, error: ErrorKind) -> bool {
        if let Some(taken) = take_back(&mut self.pending_groups, &mut self.groups, ticket) {
            match taken {
                Some((origin, id)) => {
                    self.refuse(&origin, error);
                    self.delete_unfit(now, id);
                }
                // A part that cannot be mended now is read again.
                None => self.group_reading.is_known = false,
            }
            return true;
        }
        match take_back(&mut self.pending_meters, &mut self.meters, ticket) {
            Some(Some((origin, _))) => self.refuse(&origin, super::meter_table::refusal(error)),
            Some(None) => self.meter_reading.is_known = false,
            None => return false,
        }
        true
    }

    /// The guest's number for a group or a meter of the switch.
    pub fn own_number(&self, kind: PartKind, number: u16) -> Option<u32> {
        match kind {
            PartKind::Group => self.groups.numbered(number).map(|id| id.0),
            PartKind::Meter => self.meters.numbered(number).map(|id| id.0),
        }
    }

    /// Asks for the groups and meters that the switch has, if it may have some of this guest.
    pub(super) fn read_parts(&mut self, now: Instant) {
        let groups = (&self.group_reading, self.groups.is_empty());
        let meters = (&self.meter_reading, self.meters.is_empty());
        let is_due = |(reading, is_empty): (&Reading, bool)| {
            reading.asked.is_none() && !(reading.is_known && is_empty)
        };
        let (groups, meters) = (is_due(groups), is_due(meters));
        if groups {
            let ticket = self.ask_for(RequestBody::GroupDesc(GroupId::ALL));
            self.group_reading.asked = Some((ticket, now));
        }
        if meters {
            let ticket = self.ask_for(RequestBody::MeterConfig(MeterId::ALL));
            self.meter_reading.asked = Some((ticket, now));
        }
    }

    fn ask_for(&mut self, body: RequestBody) -> Ticket {
        let ticket = self.next_ticket();
        self.outputs.push_back(Output::Ask(ticket, body));
        ticket
    }

    /// Handles the outcome of the question about the switch's groups or meters. Returns whether the
    /// ticket belongs to that question.
    pub(super) fn parts_answered(&mut self, now: Instant, ticket: Ticket, answer: &Answer) -> bool {
        let bodies = match answer {
            Answer::Whole(bodies) => Some(bodies),
            Answer::Refused(_) | Answer::Lost => None,
        };
        if let Some(asked_at) = self.group_reading.take(ticket) {
            bodies
                .into_iter()
                .for_each(|it| self.compare_groups(now, asked_at, it));
        } else if let Some(asked_at) = self.meter_reading.take(ticket) {
            bodies
                .into_iter()
                .for_each(|it| self.compare_meters(now, asked_at, it));
        } else {
            return false;
        }
        let is_whole = self.group_reading.asked.is_none() && self.meter_reading.asked.is_none();
        if let Some((asked_at, rows)) = self.rows_waiting.take_if(|_| is_whole) {
            let _ = self.compare_rows(now, asked_at, rows);
        }
        true
    }
}
