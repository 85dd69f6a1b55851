//! METER_MOD: the meters of the guest, and the changes of the switch's meters that follow.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::message::{FlowRemovedReason, MeterFlags, MeterMod, MeterModCommand};
use openflow::multipart::{MeterConfig, MeterFeatures, MeterStats, ReplyBody};
use openflow::{ErrorKind, MeterId};

use super::super::entries::Key;
use super::super::meters::{BANDS_MAX, Meter, count_up_to, of_meter, switch_id};
use super::parts::Change;
use super::{Machine, Origin, Output};

/// The bits of OFPMBT_DROP and OFPMBT_DSCP_REMARK.
const BAND_TYPES: u32 = 1 << 1 | 1 << 2;

/// The error for the guest when a switch refuses its meter. The switch has no meters, or none with
/// such numbers, which the guest has not chosen.
pub(super) fn refusal(error: ErrorKind) -> ErrorKind {
    match error {
        ErrorKind::METER_INVALID | ErrorKind::BAD_TYPE => ErrorKind::METER_OUT_OF_METERS,
        error => error,
    }
}

impl Machine {
    pub(super) fn meter_mod(
        &mut self,
        now: Instant,
        origin: &Origin,
        asked: MeterMod,
        has_room: bool,
    ) -> Result<(), ErrorKind> {
        use MeterModCommand as C;
        let (id, command) = (asked.meter_id, asked.command);
        if command == C::Delete && id == MeterId::ALL {
            self.delete_meters(now, self.meters.ids());
            return Ok(());
        }
        if id == MeterId(0) || id > MeterId::MAX {
            return Err(ErrorKind::METER_INVALID);
        }
        if command == C::Delete {
            self.delete_meters(now, vec![id]);
            return Ok(());
        }
        self.meters.check(&asked)?;
        if !has_room {
            return Err(ErrorKind::METER_OUT_OF_METERS);
        }
        let meter = Meter {
            flags: asked.flags,
            bands: asked.bands,
        };
        let step = match command {
            C::Add => Some(self.meters.add(now, id, meter)),
            _ => self.meters.modify(now, id, meter),
        };
        self.send_meter(command, id, step.map(|step| (origin.clone(), step)));
        Ok(())
    }

    /// Sends a meter as it is now.
    fn send_meter(
        &mut self,
        command: MeterModCommand,
        id: MeterId,
        change: Change<MeterId, Meter>,
    ) {
        let Some(meter) = self.meters.get(id) else {
            return;
        };
        let message = MeterMod {
            command,
            flags: meter.flags,
            meter_id: self.meters.in_switch(self.guest, id),
            bands: meter.bands.clone(),
        };
        self.change_meter(message, change);
    }

    fn change_meter(&mut self, message: MeterMod, change: Change<MeterId, Meter>) {
        let ticket = self.next_ticket();
        self.pending_meters.insert(ticket, change);
        let output = Output::Meter(ticket, Box::new(message));
        self.outputs.push_back(output);
    }

    /// Deletes meters, and before them the entries that use them.
    fn delete_meters(&mut self, now: Instant, gone: Vec<MeterId>) {
        let users = self.entries.iter();
        let users = users.filter(|(_, entry)| entry.meters().any(|id| gone.contains(&id)));
        let users: Vec<Key> = users.map(|(key, _)| key.clone()).collect();
        for key in users {
            self.delete(now, &key, FlowRemovedReason::DELETE);
        }
        for id in gone {
            let in_switch = self.meters.in_switch(self.guest, id);
            if self.meters.remove(id).is_some() {
                self.delete_meter_in_switch(in_switch);
            }
        }
    }

    fn delete_meter_in_switch(&mut self, meter_id: MeterId) {
        let delete = MeterMod {
            command: MeterModCommand::Delete,
            flags: MeterFlags::empty(),
            meter_id,
            bands: Vec::new(),
        };
        self.change_meter(delete, None);
    }

    /// Deletes all meters. No entry uses them any more.
    pub(super) fn clear_meters(&mut self) {
        self.delete_meters(Instant::START, self.meters.ids());
        self.pending_meters.clear();
    }

    /// Sends the meter of an entry again if it was not sent since the entry was: the meter was
    /// deleted from outside, and the entry with it.
    pub(super) fn mend_meters_of(&mut self, now: Instant, key: &Key, since: Instant) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        for id in entry.meters().collect::<Vec<_>>() {
            if self.meters.sent_at(id).is_some_and(|at| at <= since) {
                self.mend_meter(now, MeterModCommand::Add, id);
            }
        }
    }

    pub(super) fn compare_meters(&mut self, now: Instant, asked_at: Instant, bodies: &[ReplyBody]) {
        let found = bodies.iter().flat_map(|body| match body {
            ReplyBody::MeterConfig(meters) => meters.as_slice(),
            _ => &[],
        });
        let own = found.filter_map(|config| {
            let (guest, number) = of_meter(config.meter_id)?;
            let meter = Meter {
                flags: config.flags,
                bands: config.bands.clone(),
            };
            (guest == self.guest).then_some((number, meter))
        });
        let (strays, seen) = self.meters.compare(asked_at, own);
        for number in strays {
            self.delete_meter_in_switch(switch_id(self.guest, number));
        }
        for id in self.meters.ids() {
            let command = match seen.get(&id) {
                Some(true) => continue,
                Some(false) => MeterModCommand::Modify,
                None => MeterModCommand::Add,
            };
            if self.meters.sent_at(id).is_some_and(|at| at < asked_at) && self.may_mend(now) {
                self.mend_meter(now, command, id);
            }
        }
    }

    fn mend_meter(&mut self, now: Instant, command: MeterModCommand, id: MeterId) {
        self.counts.mended = self.counts.mended.saturating_add(1);
        self.meters.note_sent(now, id);
        self.send_meter(command, id, None);
    }

    /// Meters as the guest has stated them.
    ///
    /// # Errors
    /// OFPMMFC_UNKNOWN_METER.
    pub(super) fn meter_configs(&self, asked: MeterId) -> Result<Vec<MeterConfig>, ErrorKind> {
        self.check_known(asked)?;
        let is_asked = |id| asked == MeterId::ALL || id == asked;
        let own = self.meters.iter().filter(|(id, _)| is_asked(*id));
        let config = |(meter_id, meter): (MeterId, &Meter)| MeterConfig {
            flags: meter.flags,
            meter_id,
            bands: meter.bands.clone(),
        };
        Ok(own.map(config).collect())
    }

    /// Checks that the requested meter exists.
    pub(super) fn check_known(&self, asked: MeterId) -> Result<(), ErrorKind> {
        match asked == MeterId::ALL || self.meters.get(asked).is_some() {
            true => Ok(()),
            false => Err(ErrorKind::METER_UNKNOWN_METER),
        }
    }

    /// The switch's statistics of the guest's meters, in the guest's numbers.
    pub(super) fn meter_stats(&self, asked: MeterId, stats: Vec<MeterStats>) -> Vec<MeterStats> {
        let mut users: BTreeMap<MeterId, u32> = BTreeMap::new();
        for (_, entry) in self.entries.iter() {
            for id in entry.meters().collect::<BTreeSet<_>>() {
                *users.entry(id).or_default() += 1;
            }
        }
        let own = stats.into_iter().filter_map(|stats| {
            let (guest, number) = of_meter(stats.meter_id)?;
            let id = self
                .meters
                .numbered(number)
                .filter(|_| guest == self.guest)?;
            let is_asked = asked == MeterId::ALL || asked == id;
            is_asked.then(|| MeterStats {
                meter_id: id,
                flow_count: users.get(&id).copied().unwrap_or(0),
                ..stats
            })
        });
        own.collect()
    }

    /// The part of the switch's meters that the guest can have. `None`: the switch has none.
    pub(super) fn meter_features(&self, features: Option<MeterFeatures>) -> MeterFeatures {
        let count = features.map_or(0, |of| count_up_to(self.guest, of.max_meter));
        let none = MeterFeatures {
            max_meter: 0,
            band_types: 0,
            capabilities: 0,
            max_bands: 0,
            max_color: 0,
            features: None,
        };
        match features {
            Some(of) if count > 0 => MeterFeatures {
                max_meter: count,
                band_types: of.band_types & BAND_TYPES,
                max_bands: of.max_bands.min(BANDS_MAX as u8),
                features: None,
                ..of
            },
            _ => none,
        }
    }
}
