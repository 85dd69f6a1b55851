//! Guests in operation: a machine for each guest at each switch, and the handling of its outputs.
//!
//! A guest's connection to a switch begins when the switch's entries have been compared, and ends
//! with the switch's own connection. The guest's entries at the switch are compared when the
//! guest's connection begins, and every ten seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::{Duration, Instant};
use openflow::message::{FlowRemoved, MultipartRequest, PacketIn, PortStatus};
use openflow::multipart::{FlowStats, FlowStatsRequest, ReplyBody, RequestBody};
use openflow::{Cookie, DatapathId, ErrorKind, Frame, GroupId, Message, MeterId, Version, Xid};

use crate::Location;
use crate::entry::{COOKIE_PREFIX_MASK, EntryKind, in_version};
use crate::flows::parts::PartKind;
use crate::guest::{
    Answer, Counts, ENTRIES_OF_ALL_MAX, Guest, GuestView, Machine, News, Output, SeatView, Sink,
    Ticket, delete_row, of_cookie, of_group, of_meter,
};

use super::event::Event;
use super::outbox::{Outbox, Request, Timer};
use super::trace::GuestPart;
use super::{Alarm, Controller};

/// Time between two readings of the guests' entries.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of guests at switches that are away. Beyond it, all of these are forgotten.
const AWAY_MAX: usize = 1024;
/// Maximum number of switches named in alarms because guests cannot be shown them, or not all their
/// tables.
const UNSERVED_MAX: usize = 1024;
/// Number of messages and updates waiting for a switch that makes its guests wait too.
const BEHIND: usize = 4096;

/// A guest at a switch.
type SeatId = (DatapathId, u8);

#[derive(Default)]
pub(super) struct Guests {
    all: Vec<Arc<Guest>>,
    counts: Vec<Counts>,
    seats: BTreeMap<SeatId, Seat>,
    /// The tables of each connected switch that guests can be shown, whether or not it has been
    /// compared.
    switches: BTreeMap<DatapathId, Switch>,
    /// Entries, groups, meters and their parts at all seats.
    entries: usize,
    /// Switches named in alarms because guests were not shown them, or not all their tables.
    unserved: BTreeSet<DatapathId>,
    sink: Option<Sink>,
    read_at: Option<Instant>,
}

struct Switch {
    n_tables: u8,
    is_compared: bool,
    asked_at: Option<Instant>,
}

struct Seat {
    machine: Machine,
    /// Changes under way, by the xid of the message to the switch.
    sent: BTreeMap<Xid, Ticket>,
    /// Its part of [`Guests::entries`].
    counted: usize,
    /// Whether the guest is connected for the switch, as reported by events.
    is_connected: bool,
}

impl Seat {
    /// Sends a change of a group or a meter. Refuses the change with `error` if it cannot be sent.
    fn send(
        &mut self,
        ticket: Ticket,
        message: Message,
        (dpid, error): (DatapathId, ErrorKind),
        outbox: &mut Outbox,
    ) {
        match outbox.send(dpid, message) {
            Some(xid) => drop(self.sent.insert(xid, ticket)),
            None => self.machine.handle_refused(outbox.now, ticket, error),
        }
    }
}

impl Guests {
    pub(super) fn new(guests: &[Guest]) -> Guests {
        Guests {
            all: guests.iter().cloned().map(Arc::new).collect(),
            counts: vec![Counts::default(); guests.len()],
            ..Guests::default()
        }
    }

    /// Recounts the entries of a seat.
    fn count(&mut self, id: SeatId) {
        if let Some(seat) = self.seats.get_mut(&id) {
            let entries = seat.machine.size();
            let before = std::mem::replace(&mut seat.counted, entries);
            self.entries = (self.entries + entries).saturating_sub(before);
        }
    }

    fn seats_of(&self, dpid: DatapathId) -> Vec<SeatId> {
        let seats = self.seats.range((dpid, 0)..=(dpid, u8::MAX));
        seats.map(|(id, _)| *id).collect()
    }

    /// Notes a switch that has connected. Returns an alarm, once, for each guest that cannot be
    /// shown the switch, or has fewer tables there than it should have.
    pub(super) fn handle_up(
        &mut self,
        dpid: DatapathId,
        version: Version,
        n_tables: u8,
    ) -> Vec<Alarm> {
        if version < Version::V13 {
            return self.alarms(dpid, |guest| {
                Some(Alarm::GuestUnserved {
                    dpid,
                    guest: guest.name.clone(),
                    version,
                })
            });
        }
        if !self.all.is_empty() {
            let switch = Switch {
                n_tables,
                is_compared: false,
                asked_at: None,
            };
            self.switches.insert(dpid, switch);
        }
        self.alarms(dpid, |guest| {
            let (there, stated) = guest.table_counts(n_tables);
            (there < stated).then(|| Alarm::GuestTables {
                dpid,
                guest: guest.name.clone(),
                there,
                stated,
            })
        })
    }

    /// The alarms about guests at a switch, unless some were returned before.
    fn alarms(&mut self, dpid: DatapathId, alarm: impl Fn(&Guest) -> Option<Alarm>) -> Vec<Alarm> {
        let seeing = self.all.iter().filter(|guest| guest.sees(dpid));
        let alarms: Vec<Alarm> = seeing.filter_map(|guest| alarm(guest)).collect();
        let has_room = !alarms.is_empty() && self.unserved.len() < UNSERVED_MAX;
        match has_room && self.unserved.insert(dpid) {
            true => alarms,
            false => Vec::new(),
        }
    }

    /// Notes that a switch's connection has ended.
    pub(super) fn handle_down(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let Some(switch) = self.switches.remove(&dpid) else {
            return;
        };
        for id in self.seats_of(dpid) {
            if switch.is_compared {
                self.news(News::Down { guest: id.1, dpid });
            }
            self.set_connected(id, Some("the switch has gone"), outbox);
            let Some(seat) = self.seats.get_mut(&id) else {
                continue;
            };
            seat.sent.clear();
            seat.machine.handle_switch_down();
            // A peer that only claims to be a switch leaves nothing behind.
            let is_empty = seat.machine.size() == 0;
            self.count(id);
            if is_empty {
                self.seats.remove(&id);
            }
        }
        if self.seats.len() > self.switches.len() * self.all.len() + AWAY_MAX {
            self.drop_away();
        }
    }

    /// Notes that a guest has connected, or why its connection has ended, and reports it once.
    fn set_connected(&mut self, (dpid, guest): SeatId, ended: Option<&str>, outbox: &mut Outbox) {
        let Some(seat) = self.seats.get_mut(&(dpid, guest)) else {
            return;
        };
        let is_connected = ended.is_none();
        if std::mem::replace(&mut seat.is_connected, is_connected) == is_connected {
            return;
        }
        let guest = self.all[usize::from(guest)].name.clone();
        outbox.event(match ended {
            None => Event::GuestConnected { dpid, guest },
            Some(why) => Event::GuestDisconnected {
                dpid,
                guest,
                why: why.to_owned(),
            },
        });
    }

    /// Forgets the entries at switches that are away. When such a switch reconnects, its old
    /// entries are deleted and its guests set them again.
    fn drop_away(&mut self) {
        let switches = &self.switches;
        self.seats
            .retain(|(dpid, _), _| switches.contains_key(dpid));
        self.entries = self.seats.values().map(|seat| seat.counted).sum();
    }

    /// Whether all guests together may have one more entry.
    fn has_room(&mut self) -> bool {
        if self.entries >= ENTRIES_OF_ALL_MAX {
            self.drop_away();
        }
        self.entries < ENTRIES_OF_ALL_MAX
    }

    /// Corrects the guests' entries at a switch, and takes them out of its rows. Returns the
    /// numbers of entries kept, added and deleted.
    pub(super) fn reconcile(
        &mut self,
        dpid: DatapathId,
        is_known: bool,
        rows: &mut Vec<FlowStats>,
        outbox: &mut Outbox,
    ) -> [usize; 3] {
        let held = rows.extract_if(.., |row| of_cookie(row.cookie).is_some());
        let held: Vec<FlowStats> = held.collect();
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return delete_all(dpid, &held, outbox);
        };
        let is_first = !std::mem::replace(&mut switch.is_compared, true);
        let n_tables = switch.n_tables;
        for (guest, config) in (0u8..).zip(&self.all) {
            if config.sees(dpid) {
                self.seats.entry((dpid, guest)).or_insert_with(|| Seat {
                    machine: Machine::new(guest, dpid, n_tables, config.clone()),
                    sent: BTreeMap::new(),
                    counted: 0,
                    is_connected: false,
                });
            }
        }
        // Later rows may be older than changes sent since: the guests' own readings follow.
        let mut counts = [0; 3];
        if is_known && is_first {
            counts = self.compare(dpid, outbox.now, held, outbox);
        }
        if is_first {
            for (_, guest) in self.seats_of(dpid) {
                self.news(News::Up { guest, dpid });
            }
        }
        self.read_later(outbox);
        counts
    }

    fn compare(
        &mut self,
        dpid: DatapathId,
        asked_at: Instant,
        rows: Vec<FlowStats>,
        outbox: &mut Outbox,
    ) -> [usize; 3] {
        let mut by_guest: BTreeMap<u8, Vec<FlowStats>> = BTreeMap::new();
        for row in rows {
            if let Some((guest, _)) = of_cookie(row.cookie) {
                by_guest.entry(guest).or_default().push(row);
            }
        }
        let mut counts = [0; 3];
        for id in self.seats_of(dpid) {
            let rows = by_guest.remove(&id.1).unwrap_or_default();
            if let Some(seat) = self.seats.get_mut(&id) {
                let found = seat.machine.handle_rows(outbox.now, asked_at, rows);
                counts = [0, 1, 2].map(|at| counts[at] + found[at]);
            }
            self.run(id, outbox);
        }
        // Entries of guests that are no longer stated.
        let others: Vec<FlowStats> = by_guest.into_values().flatten().collect();
        counts[2] += delete_all(dpid, &others, outbox)[2];
        counts
    }

    fn read_later(&mut self, outbox: &mut Outbox) {
        if self.read_at.is_none() && !self.seats.is_empty() {
            let at = outbox.now + READ_INTERVAL;
            self.read_at = Some(at);
            outbox.timer(at, Timer::Guests);
        }
    }

    /// Asks all switches for the guests' entries.
    fn handle_due(&mut self, now: Instant, outbox: &mut Outbox) {
        if self.read_at.is_some_and(|at| now < at) {
            return;
        }
        self.read_at = None;
        let body = RequestBody::Flow(FlowStatsRequest {
            cookie: EntryKind::Guest.cookie(0),
            cookie_mask: Cookie(COOKIE_PREFIX_MASK.0 | 0xff00),
            ..FlowStatsRequest::all()
        });
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        let with_entries: BTreeSet<DatapathId> = self
            .seats
            .iter()
            .filter(|(_, seat)| seat.machine.has_rows())
            .map(|((dpid, _), _)| *dpid)
            .collect();
        for (dpid, switch) in &mut self.switches {
            if switch.is_compared && switch.asked_at.is_none() && with_entries.contains(dpid) {
                let asked = outbox.request(now, *dpid, Request::GuestRows, &message);
                switch.asked_at = asked.map(|_| now);
            }
        }
        self.read_later(outbox);
    }

    /// Handles the rows that a switch was asked for; `None` if it has not answered.
    pub(super) fn handle_rows(
        &mut self,
        dpid: DatapathId,
        bodies: Option<Vec<ReplyBody>>,
        outbox: &mut Outbox,
    ) {
        let switch = self.switches.get_mut(&dpid);
        let asked_at = switch.and_then(|switch| switch.asked_at.take());
        if let Some((asked_at, bodies)) = asked_at.zip(bodies) {
            let rows = bodies.into_iter().flat_map(|body| match body {
                ReplyBody::Flow(rows) => rows,
                _ => Vec::new(),
            });
            self.compare(dpid, asked_at, rows.collect(), outbox);
        }
    }

    /// Carries out the outputs of a seat's machine.
    fn run(&mut self, id: SeatId, outbox: &mut Outbox) {
        let (dpid, guest) = id;
        let now = outbox.now;
        loop {
            let Some(seat) = self.seats.get_mut(&id) else {
                return;
            };
            let Some(output) = seat.machine.poll_output() else {
                break;
            };
            match output {
                Output::Reply(frame) | Output::Packet(frame) if self.sink.is_none() => drop(frame),
                Output::Reply(frame) => self.send(id, frame, false),
                Output::Packet(frame) => self.send(id, frame, true),
                Output::Change(ticket, mut flow_mod) => {
                    if let Some(version) = outbox.version(dpid) {
                        in_version(version, &mut flow_mod.instructions);
                    }
                    let sent = outbox.flow_mod(dpid, *flow_mod);
                    match (ticket, sent) {
                        (Some(ticket), Some(xid)) => drop(seat.sent.insert(xid, ticket)),
                        (Some(ticket), None) => {
                            let error = ErrorKind::FLOW_MOD_UNKNOWN;
                            seat.machine.handle_refused(now, ticket, error);
                        }
                        (None, _) => {}
                    }
                }
                Output::Group(ticket, group) => {
                    let error = ErrorKind::GROUP_OUT_OF_GROUPS;
                    seat.send(ticket, Message::GroupMod(*group), (dpid, error), outbox);
                }
                Output::Meter(ticket, meter) => {
                    let error = ErrorKind::METER_OUT_OF_METERS;
                    seat.send(ticket, Message::MeterMod(*meter), (dpid, error), outbox);
                }
                Output::Ask(ticket, body) => {
                    let request = Request::Guest(guest, ticket);
                    let message = Message::MultipartRequest(MultipartRequest { more: false, body });
                    if outbox.request(now, dpid, request, &message).is_none() {
                        seat.machine.handle_answer(now, ticket, Answer::Lost);
                    }
                }
                Output::Fence(ticket) => {
                    let request = Request::Guest(guest, ticket);
                    let message = Message::BarrierRequest;
                    if outbox.request(now, dpid, request, &message).is_none() {
                        seat.machine.handle_unconfirmed(ticket);
                    }
                }
                Output::PacketOut(packet) => {
                    outbox.counters.packet_outs += 1;
                    outbox.send(dpid, Message::PacketOut(packet));
                }
                Output::End => self.news(News::End { guest, dpid }),
            }
        }
        self.count(id);
        let counts = self
            .seats
            .get_mut(&id)
            .map(|seat| seat.machine.take_counts());
        if let Some((all, new)) = self.counts.get_mut(usize::from(guest)).zip(counts) {
            all.add(new);
        }
    }

    fn send(&mut self, (dpid, guest): SeatId, frame: Frame, is_packet: bool) {
        self.news(News::Send {
            guest,
            dpid,
            frame,
            is_packet,
        });
    }

    fn news(&mut self, news: News) {
        if let Some(sink) = &mut self.sink {
            sink(news);
        }
    }

    /// Gives a seat's machine an input, and carries out its outputs.
    fn with(&mut self, id: SeatId, outbox: &mut Outbox, input: impl FnOnce(&mut Machine)) {
        if let Some(seat) = self.seats.get_mut(&id) {
            input(&mut seat.machine);
            self.run(id, outbox);
        }
    }

    fn handle_answer(
        &mut self,
        (dpid, guest): SeatId,
        ticket: Ticket,
        answer: Answer,
        outbox: &mut Outbox,
    ) {
        let now = outbox.now;
        if let Some(seat) = self.seats.get_mut(&(dpid, guest))
            && seat.machine.is_fence(ticket)
        {
            seat.sent.retain(|_, sent| *sent > ticket);
        }
        self.with((dpid, guest), outbox, |machine| {
            match machine.is_fence(ticket) {
                true if matches!(answer, Answer::Whole(_)) => machine.handle_confirmed(ticket),
                true => machine.handle_unconfirmed(ticket),
                false => machine.handle_answer(now, ticket, answer),
            }
        });
    }

    /// Handles an error of a switch. Returns whether it refuses a change of a guest.
    pub(super) fn handle_refused(
        &mut self,
        dpid: DatapathId,
        xid: Xid,
        error: ErrorKind,
        outbox: &mut Outbox,
    ) -> bool {
        let now = outbox.now;
        for id in self.seats_of(dpid) {
            let ticket = self.seats.get_mut(&id).and_then(|it| it.sent.remove(&xid));
            if let Some(ticket) = ticket {
                self.with(id, outbox, |machine| {
                    machine.handle_refused(now, ticket, error)
                });
                return true;
            }
        }
        false
    }

    pub(super) fn handle_removed(
        &mut self,
        dpid: DatapathId,
        removed: &FlowRemoved,
        outbox: &mut Outbox,
    ) {
        let now = outbox.now;
        if let Some((guest, number)) = of_cookie(removed.cookie) {
            self.with((dpid, guest), outbox, |machine| {
                machine.handle_removed(now, number, removed);
            });
        }
    }

    /// Hands a packet to the guest whose entry sent it to the controller.
    pub(super) fn handle_packet_in(
        &mut self,
        at: Location,
        packet_in: PacketIn,
        outbox: &mut Outbox,
    ) {
        let now = outbox.now;
        if let Some((guest, number)) = of_cookie(packet_in.cookie) {
            self.with((at.dpid, guest), outbox, |machine| {
                machine.handle_packet_in(now, number, packet_in);
            });
        }
    }

    pub(super) fn handle_port_status(
        &mut self,
        dpid: DatapathId,
        status: &PortStatus,
        outbox: &mut Outbox,
    ) {
        for id in self.seats_of(dpid) {
            self.with(id, outbox, |machine| machine.handle_port_status(status));
        }
    }

    /// The guest of an entry.
    pub(super) fn of(&self, cookie: Cookie) -> Option<&str> {
        let (guest, _) = of_cookie(cookie)?;
        self.all.get(usize::from(guest)).map(|guest| &*guest.name)
    }

    /// The guest of a group or a meter of a switch, by its number there.
    pub(super) fn of_part(&self, dpid: DatapathId, kind: PartKind, id: u32) -> Option<GuestPart> {
        let (guest, number) = match kind {
            PartKind::Group => of_group(GroupId(id)),
            PartKind::Meter => of_meter(MeterId(id)),
        }?;
        let machine = &self.seats.get(&(dpid, guest))?.machine;
        Some(GuestPart {
            guest: self.all.get(usize::from(guest))?.name.clone(),
            number: machine.own_number(kind, number)?,
        })
    }
}

fn delete_all(dpid: DatapathId, rows: &[FlowStats], outbox: &mut Outbox) -> [usize; 3] {
    for row in rows {
        outbox.send_flow_mod(dpid, delete_row(row));
    }
    [0, 0, rows.len()]
}

impl Controller {
    /// Sets the sink for messages to guests and for news of when to connect to them.
    pub fn set_guest_sink(&mut self, sink: Sink) {
        self.guests.sink = Some(sink);
    }

    /// Notes that a guest has connected for a switch.
    pub fn guest_connected(&mut self, now: Instant, guest: u8, dpid: DatapathId) {
        self.outbox.now = now;
        let guests = &mut self.guests;
        guests.set_connected((dpid, guest), None, &mut self.outbox);
        guests.with((dpid, guest), &mut self.outbox, Machine::handle_connected);
    }

    /// Notes that a guest's connection for a switch has ended, and why.
    pub fn guest_disconnected(&mut self, now: Instant, guest: u8, dpid: DatapathId, why: &str) {
        self.outbox.now = now;
        let guests = &mut self.guests;
        guests.set_connected((dpid, guest), Some(why), &mut self.outbox);
        guests.with(
            (dpid, guest),
            &mut self.outbox,
            Machine::handle_disconnected,
        );
    }

    /// Handles messages of a guest for a switch. Returns the number handled, and whether to read
    /// from the guest again only later because the switch has much to confirm. One message may be
    /// thousands of changes, so the messages behind it wait as well.
    pub fn guest_frames(
        &mut self,
        now: Instant,
        guest: u8,
        dpid: DatapathId,
        frames: &[Frame],
    ) -> (usize, bool) {
        self.outbox.now = now;
        let id = (dpid, guest);
        let mut taken = 0;
        for frame in frames {
            if self.is_behind(id) {
                break;
            }
            let has_room = self.guests.has_room();
            self.guests.with(id, &mut self.outbox, |machine| {
                machine.handle_frame(now, frame, has_room);
            });
            taken += 1;
        }
        self.guests
            .with(id, &mut self.outbox, Machine::advance_fence);
        (taken, self.is_behind(id))
    }

    fn is_behind(&self, id: SeatId) -> bool {
        let seat = self.guests.seats.get(&id);
        let is_behind = seat.is_some_and(|seat| seat.machine.is_behind());
        is_behind || self.outbox.is_behind(id.0, BEHIND)
    }

    /// The guests, in the order in which they are stated.
    pub fn guests(&self) -> Vec<GuestView> {
        let view = |(guest, config): (u8, &Arc<Guest>)| {
            let seats = self.guests.seats.iter();
            let seats = seats.filter(|((_, of), _)| *of == guest);
            let seat = |((dpid, _), seat): (&SeatId, &Seat)| SeatView {
                dpid: *dpid,
                is_connected: seat.machine.has_greeted(),
                entries: seat.machine.entry_count(),
            };
            GuestView {
                name: config.name.clone(),
                switches: seats.map(seat).collect(),
                counts: self.guests.counts[usize::from(guest)],
            }
        };
        (0u8..).zip(&self.guests.all).map(view).collect()
    }

    pub(super) fn guests_due(&mut self, now: Instant) {
        self.guests.handle_due(now, &mut self.outbox);
    }

    pub(super) fn guest_answered(
        &mut self,
        dpid: DatapathId,
        (guest, ticket): (u8, Ticket),
        answer: Answer,
    ) {
        let outbox = &mut self.outbox;
        self.guests
            .handle_answer((dpid, guest), ticket, answer, outbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(name: &str, switches: &[u64]) -> Guest {
        Guest {
            name: name.into(),
            priority: 0..=9,
            tables: None,
            matches: Vec::new(),
            switches: switches.iter().copied().map(DatapathId).collect(),
            packet_rate: 1000,
            is_kept: true,
        }
    }

    #[test]
    fn a_switch_that_a_guest_cannot_be_shown_is_said_once() {
        let mut guests = Guests::new(&[guest("a", &[]), guest("b", &[7])]);
        let mut names = |dpid, version| -> Vec<String> {
            let alarms = guests.handle_up(DatapathId(dpid), version, 254);
            let name = |alarm: Alarm| match alarm {
                Alarm::GuestUnserved {
                    dpid: of,
                    guest,
                    version: said,
                } => {
                    assert_eq!((of, said), (DatapathId(dpid), version));
                    guest.to_string()
                }
                other => panic!("{other:?}"),
            };
            alarms.into_iter().map(name).collect()
        };
        for (dpid, version, said) in [
            (7, Version::V10, &["a", "b"][..]),
            (7, Version::V10, &[]),
            (8, Version::V10, &["a"]),
            (9, Version::V13, &[]),
            (10, Version::V14, &[]),
            (11, Version::V15, &[]),
        ] {
            assert_eq!(names(dpid, version), said, "{dpid} {version}");
        }
        // A peer that claims to be many switches does not fill the log.
        for dpid in 0..2 * UNSERVED_MAX as u64 {
            let _ = guests.handle_up(DatapathId(dpid), Version::V10, 1);
        }
        assert_eq!(guests.unserved.len(), UNSERVED_MAX);
        let shown = [9, 10, 11].map(DatapathId);
        assert!(guests.switches.keys().copied().eq(shown));
    }

    #[test]
    fn a_switch_with_too_few_tables_for_a_guest_is_said_once() {
        let wide = Guest {
            tables: Some(4..=13),
            ..guest("wide", &[])
        };
        let mut guests = Guests::new(&[guest("a", &[]), wide]);
        let mut said = |dpid, n_tables| {
            let alarms = guests.handle_up(DatapathId(dpid), Version::V13, n_tables);
            let counts = |alarm: &Alarm| match alarm {
                Alarm::GuestTables {
                    guest,
                    there,
                    stated,
                    ..
                } => (guest.to_string(), *there, *stated),
                other => panic!("{other:?}"),
            };
            alarms.iter().map(counts).collect::<Vec<_>>()
        };
        assert_eq!(said(1, 14), []);
        assert_eq!(said(2, 12), [("wide".to_owned(), 9, 11)]);
        assert_eq!(said(2, 12), []);
        assert_eq!(said(3, 4), [("wide".to_owned(), 1, 11)]);
    }
}
