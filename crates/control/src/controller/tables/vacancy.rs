//! Switches that watch the room in their own table: vacancy events of 1.4 and later.
//!
//! The controller sets two marks, and asks whether they apply. While they apply, and the switch
//! will report when its room passes the lower mark, the table needs few readings.

use clock::{Duration, Instant};
use openflow::message::{AsyncConfig, TableConfig, TableMod, TableProperty, TableReason};
use openflow::message::{FlowRemovedReason, TableStatus};
use openflow::multipart::RequestBody;
use openflow::{DatapathId, Message, Version};

use crate::pipeline::PATH_TABLE;
use crate::timeouts::budget::{POLL_MIN, calm_mark};

use super::super::Controller;
use super::super::outbox::Request;
use super::{Around, Tables};

/// Time between two readings of a table whose switch reports when it fills.
pub(super) const POLL_WATCHED: Duration = Duration::from_secs(30);

/// The additional room above the lower mark that ends a shortage, in percent of the table.
const SLACK: u8 = 10;

/// The room below which a switch reports, and above which it reports again, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    down: u8,
    up: u8,
}

impl Marks {
    /// The marks of a table of `places`, of which entries may take `limit`; `None` where whole
    /// percents cannot express them. The switch reports before the table counts as filling.
    pub(super) fn of(places: u32, limit: u32) -> Option<Marks> {
        let calm = calm_mark(limit.min(places));
        let room = u64::from(places - calm) * 100;
        let down = u8::try_from(room.div_ceil(u64::from(places.max(1)))).ok()?;
        let up = down.saturating_add(SLACK);
        (up < 100).then_some(Marks { down, up })
    }

    fn property(self) -> TableProperty {
        let Marks { down, up } = self;
        TableProperty::Vacancy { down, up, now: 0 }
    }

    /// The room in a table with these marks, in percent; `None` if it has other marks or reports
    /// nothing.
    fn room(self, table: &TableMod) -> Option<u8> {
        let is_watched = table.config & TableConfig::VACANCY_EVENTS.0 != 0;
        let room = table.properties.iter().find_map(|one| match *one {
            TableProperty::Vacancy { down, up, now } if (Marks { down, up }) == self => Some(now),
            _ => None,
        });
        room.filter(|_| is_watched)
    }
}

/// The state of the marks at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The switch was not asked, or has other marks.
    #[default]
    Off,
    /// The switch is asked for its configuration, so that others' settings of its table are kept.
    Asked,
    /// The switch was sent the marks, and is asked whether they apply.
    Sent,
    /// The switch reports. `is_armed`: the next report is that room is getting short.
    On { is_armed: bool },
}

/// The state of one switch's watch over its table.
#[derive(Debug, Default)]
pub(super) struct Vacancy {
    marks: Option<Marks>,
    state: State,
}

impl Vacancy {
    /// Whether the switch will report when its table fills.
    pub(super) fn is_armed(&self) -> bool {
        self.state == State::On { is_armed: true }
    }

    /// Sets the wanted marks. Returns whether to ask the switch.
    fn want(&mut self, marks: Option<Marks>) -> bool {
        if self.marks == marks {
            return false;
        }
        let is_asked = matches!(self.state, State::Asked | State::Sent);
        self.marks = marks;
        // An answer under way is judged by the new marks.
        self.state = match marks {
            Some(_) => State::Asked,
            None => State::Off,
        };
        marks.is_some() && !is_asked
    }

    /// Handles the switch's description of its table. Returns the messages to send before it is
    /// asked again.
    fn handle_desc(&mut self, table: &TableMod) -> Vec<TableMod> {
        let Some(marks) = self.marks else {
            return Vec::new();
        };
        match (marks.room(table), self.state) {
            (_, State::Off | State::On { .. }) => Vec::new(),
            (Some(room), _) => {
                let is_armed = room > marks.up;
                self.state = State::On { is_armed };
                Vec::new()
            }
            (None, State::Asked) => {
                self.state = State::Sent;
                let eviction = table.config & TableConfig::EVICTION.0;
                let change = |config: u32, properties| TableMod {
                    table_id: PATH_TABLE,
                    config,
                    properties,
                };
                // If only its marks change, a switch keeps waiting for the same report as before.
                vec![
                    change(eviction, Vec::new()),
                    change(
                        eviction | TableConfig::VACANCY_EVENTS.0,
                        vec![marks.property()],
                    ),
                ]
            }
            (None, State::Sent) => {
                self.state = State::Off;
                Vec::new()
            }
        }
    }

    /// Notes that the switch does not report its configuration.
    fn handle_unanswered(&mut self) {
        if matches!(self.state, State::Asked | State::Sent) {
            self.state = State::Off;
        }
    }

    /// Handles a report. Returns whether room is getting short. A report of other marks ends the
    /// watch: somebody else has set them.
    fn handle_status(&mut self, status: &TableStatus) -> bool {
        let (Some(marks), State::On { .. }) = (self.marks, self.state) else {
            return false;
        };
        let is_down = status.reason == TableReason::VACANCY_DOWN;
        self.state = match marks.room(&status.table) {
            Some(_) if is_down || status.reason == TableReason::VACANCY_UP => {
                State::On { is_armed: !is_down }
            }
            Some(_) => self.state,
            None => State::Off,
        };
        is_down
    }
}

impl Tables {
    /// Makes a switch watch its table, if it can and its number of places is known.
    pub(super) fn watch(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let has_events = around.net.version(dpid) >= Some(Version::V14);
        if !has_events || !around.net.is_connected(dpid) {
            return;
        }
        let said = self.limits.get(&dpid).copied();
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        let places = said.or(table.said_max).or(table.learnt_max);
        let limit = table.keeper.as_ref().map(|keeper| keeper.capacity());
        let marks = places
            .zip(limit)
            .and_then(|(places, limit)| Marks::of(places, limit));
        if !table.vacancy.want(marks) {
            return;
        }
        const BOTH: u32 = 1 << TableReason::VACANCY_DOWN.0 | 1 << TableReason::VACANCY_UP.0;
        let reports = AsyncConfig {
            table_status_mask: [Some(BOTH), None],
            ..AsyncConfig::default()
        };
        around.outbox.send(dpid, Message::SetAsync(reports));
        self.ask_for_table(around, now, dpid);
    }

    fn ask_for_table(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let asked = (Request::TableDesc, RequestBody::TableDesc);
        if !self.ask(around, now, dpid, asked) {
            self.watch_unanswered(dpid);
        }
    }

    pub(super) fn watch_unanswered(&mut self, dpid: DatapathId) {
        if let Some(table) = self.tables.get_mut(&dpid) {
            table.vacancy.handle_unanswered();
        }
    }

    /// Handles a switch's description of the table of paths; `None` if the switch does not describe
    /// it.
    pub(super) fn handle_desc(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        desc: Option<TableMod>,
    ) {
        let Some(desc) = desc else {
            return self.watch_unanswered(dpid);
        };
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        let changes = table.vacancy.handle_desc(&desc);
        let is_changed = !changes.is_empty();
        for change in changes {
            around.outbox.send(dpid, Message::TableMod(change));
        }
        if is_changed {
            self.ask_for_table(around, now, dpid);
        }
    }

    /// Reads a table as soon as a reading is allowed.
    fn read_soon(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let Some(table) = self.tables.get(&dpid) else {
            return;
        };
        // The next reading is planned when the one under way has ended.
        let soonest = table.read_at.map_or(now, |at| at + POLL_MIN);
        if table.asked_at.is_none() && table.poll_due.is_none_or(|due| soonest < due) {
            self.poll_at(around.outbox, now, dpid, soonest);
        }
    }
}

impl Controller {
    /// Handles a switch's report of the room in a table.
    pub(in crate::controller) fn handle_table_status(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        status: &TableStatus,
    ) {
        let (tables, mut around) = self.with_tables();
        let table = tables.get_mut(dpid);
        let Some(table) = table.filter(|_| status.table.table_id == PATH_TABLE) else {
            return;
        };
        table.counters.vacancy_events += 1;
        if table.vacancy.handle_status(status) {
            tables.read_soon(&mut around, now, dpid);
        }
    }

    /// Handles the end of an entry that the switch has evicted: its table is full, and the number
    /// of entries is its limit.
    pub(in crate::controller) fn handle_put_out(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        reason: FlowRemovedReason,
    ) {
        if reason != FlowRemovedReason::EVICTION {
            return;
        }
        let (tables, mut around) = self.with_tables();
        let Some(table) = tables.get_mut(dpid) else {
            return;
        };
        table.counters.put_out += 1;
        // An answer under way may be older.
        if table.asked_at.is_none() {
            table.asked_for_limit = true;
            tables.read_soon(&mut around, now, dpid);
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::SplitMix64;

    use super::*;

    /// A table as Open vSwitch watches it.
    struct Model {
        places: u32,
        entries: u32,
        has_events: bool,
        marks: Option<Marks>,
        /// Whether the next report is that room is getting short.
        is_armed: bool,
        /// Whether reports were requested before.
        is_waiting: bool,
        config: u32,
    }

    impl Model {
        fn room(&self) -> u8 {
            let free = u64::from(self.places.saturating_sub(self.entries)) * 100;
            (free / u64::from(self.places)) as u8
        }

        fn desc(&self) -> TableMod {
            let now = self.room();
            let property = |Marks { down, up }| TableProperty::Vacancy { down, up, now };
            TableMod {
                table_id: PATH_TABLE,
                config: self.config,
                properties: self.marks.map(property).into_iter().collect(),
            }
        }

        fn take(&mut self, change: &TableMod) {
            if !self.has_events {
                return;
            }
            self.config = change.config;
            let marks = change.properties.iter().find_map(|one| match *one {
                TableProperty::Vacancy { down, up, .. } => Some(Marks { down, up }),
                _ => None,
            });
            self.marks = marks;
            self.is_waiting &= marks.is_some();
            if marks.is_none() {
                return;
            }
            // It keeps waiting for the same report, if it waited for one.
            if !std::mem::replace(&mut self.is_waiting, true) {
                self.is_armed = marks.is_some_and(|marks| self.room() >= marks.up);
            }
        }

        fn set(&mut self, entries: u32) -> Option<TableStatus> {
            self.entries = entries.min(self.places);
            let (marks, room) = (self.marks?, self.room());
            let reason = match self.is_armed {
                true if room < marks.down => TableReason::VACANCY_DOWN,
                false if room > marks.up => TableReason::VACANCY_UP,
                _ => return None,
            };
            self.is_armed = !self.is_armed;
            let table = self.desc();
            Some(TableStatus { reason, table })
        }
    }

    #[test]
    fn a_switch_reports_when_its_table_counts_as_filling() {
        let mut random = SplitMix64::new(1);
        for _ in 0..10_000 {
            let places = 20 + (random.next() % 100_000) as u32;
            let limit = 1 + (random.next() % u64::from(places)) as u32;
            let Some(marks) = Marks::of(places, limit) else {
                // So low that the mark is below a ninth of the table.
                assert!(calm_mark(limit) * 9 <= places + 9, "{limit} of {places}");
                continue;
            };
            let mut model = Model {
                places,
                entries: calm_mark(limit) + 1,
                has_events: true,
                marks: Some(marks),
                is_armed: true,
                is_waiting: true,
                config: 0,
            };
            assert!(model.room() < marks.down, "{limit} of {places}: {marks:?}");
            let percent = places.div_ceil(100);
            model.entries = calm_mark(limit).saturating_sub(percent);
            assert!(model.room() >= marks.down, "{limit} of {places}: {marks:?}");
        }
    }

    /// In any order of events: while the controller expects a report of a shortage, it will get
    /// one.
    #[test]
    fn a_watch_that_is_armed_is_armed_at_the_switch() {
        let (mut armed, mut shortages) = (0, 0);
        for seed in 0..2_000 {
            let mut random = SplitMix64::new(seed);
            let mut model = Model {
                places: 20 + (random.next() % 1_000) as u32,
                entries: 0,
                has_events: !random.next().is_multiple_of(10),
                marks: None,
                is_armed: false,
                is_waiting: false,
                config: (random.next() % 8) as u32 & TableConfig::EVICTION.0,
            };
            let eviction = model.config;
            let mut vacancy = Vacancy::default();
            // Answers in the order of the messages, some of them late.
            let mut on_way: Vec<Result<Option<TableMod>, TableStatus>> = Vec::new();
            for _ in 0..100 {
                match random.next() % 12 {
                    0 => {
                        let limit = 1 + (random.next() % u64::from(model.places)) as u32;
                        let marks = Marks::of(model.places, limit);
                        if vacancy.want(marks.filter(|_| !random.next().is_multiple_of(8))) {
                            on_way.push(Ok(Some(model.desc())));
                        }
                    }
                    1..=5 if !on_way.is_empty() => match on_way.remove(0) {
                        Ok(Some(desc)) if !random.next().is_multiple_of(20) => {
                            let changes = vacancy.handle_desc(&desc);
                            changes.iter().for_each(|change| model.take(change));
                            if !changes.is_empty() {
                                on_way.push(Ok(Some(model.desc())));
                            }
                        }
                        Ok(_) => vacancy.handle_unanswered(),
                        Err(status) => shortages += u32::from(vacancy.handle_status(&status)),
                    },
                    _ => {
                        let entries = (random.next() % (u64::from(model.places) + 1)) as u32;
                        on_way.extend(model.set(entries).map(Err));
                    }
                }
                let reports = on_way.iter().any(Result::is_err);
                if vacancy.is_armed() && !reports {
                    armed += 1;
                    assert!(model.is_armed, "seed {seed}");
                    assert_eq!(vacancy.marks, model.marks, "seed {seed}");
                }
                assert_eq!(
                    model.config & TableConfig::EVICTION.0,
                    eviction,
                    "seed {seed}"
                );
            }
        }
        assert!(armed > 1_000 && shortages > 1_000, "{armed} {shortages}");
    }

    #[test]
    fn somebody_elses_marks_end_the_watch() {
        let marks = Marks::of(100, 100);
        let mut vacancy = Vacancy {
            marks,
            state: State::On { is_armed: true },
        };
        let report = |down, up, config: TableConfig| TableStatus {
            reason: TableReason::VACANCY_UP,
            table: TableMod {
                table_id: PATH_TABLE,
                config: config.0,
                properties: vec![TableProperty::Vacancy { down, up, now: 99 }],
            },
        };
        assert!(!vacancy.handle_status(&report(30, 40, TableConfig::VACANCY_EVENTS)));
        assert!(vacancy.is_armed());
        assert!(!vacancy.handle_status(&report(30, 41, TableConfig::VACANCY_EVENTS)));
        assert!(!vacancy.is_armed());
        vacancy.state = State::On { is_armed: true };
        assert!(!vacancy.handle_status(&report(30, 40, TableConfig::EVICTION)));
        assert!(!vacancy.is_armed());
    }
}
