//! The places of hosts, and the evidence that moves them.
//!
//! A host's place is where its frames enter the network. Once it has a place, a frame with its
//! address from elsewhere does not move the host. The controller first asks at the old place, three
//! times, at every IP address the host has announced (ARP and neighbour discovery). Only silence
//! there moves the host. Any frame of the host at the old place is an answer: its entries there are
//! lifted while it is asked, so that its own traffic is heard too. A host that has announced no
//! address may not understand the question; its claimant must persist for [`HOLD_OFF`] while the
//! old place is silent. A claimant that sends too seldom for that persists by its next frame, after
//! which the old place is asked again. Silence counts only if the old place could be heard all the
//! time since the question: its switch may have been away, or its port held. When the old port has
//! gone down, no one can be asked, and the next frame places the host.
//!
//! IP addresses have owners in the same way ([`owners`]).
//!
//! Ports share the room ([`FairTable`]), and hosts not heard for long are forgotten ([`age`]).

mod age;
mod known;
#[cfg(test)]
mod model;
mod owners;
mod questions;
mod seen;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};

use clock::{Duration, Instant};
use openflow::{DatapathId, MacAddr};

use crate::Location;
use crate::entry::Rule;
use crate::fair_table::{FairTable, Full, Gone, Shares};
use crate::timeouts::{FlowClass, Prefix, Timeouts};
use crate::vlan::{HostKey, VlanId};

use super::known::News;
use super::links::Pair;
use age::Ageing;
pub use age::HostCounters;
pub(super) use age::{Patience, STEP_INTERVAL, Step};
pub(super) use owners::{AddressAnswer, AddressQuestion, AddressVerdict};
use owners::{Owned, Owners};
pub(super) use questions::{OWN_MAC, PressureAlarms};
pub use seen::Seen;

/// The number of questions before silence counts, and the time between two questions.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// Minimum time that a host is asked at its place before it may be elsewhere.
pub(super) const MOVE_MIN: Duration = PROBE_INTERVAL.saturating_mul(PROBES);
/// The same time for hosts that have announced no address, and the number of questions in it.
const HOLD_OFF: Duration = Duration::from_secs(3);
const HOLD_OFF_PROBES: u32 = 10;
/// How long a claim counts that lapsed because its claimant did not send again: the claimant may be
/// a host that sends seldom.
const LAPSED_KEPT: Duration = Duration::from_secs(300);
/// How long claims from a port are refused after the old place has answered. Claims from other
/// ports are still examined: the host may move while another host claims its address.
const REJECTED: Duration = Duration::from_secs(10);
/// Maximum number of such ports remembered for one host. While there are as many, every claim is
/// refused.
const REJECTED_MAX: usize = 8;
/// One alarm per host in this time, however many frames.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of moves of one host in `MOVES_WINDOW` that are believed.
const MOVES_MAX: usize = 5;
const MOVES_WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of hosts with details beyond their place: IP addresses and contests.
const DETAILS_MAX: usize = 65_536;
/// Shares of `DETAILS_MAX`, so that neither one switch nor one port can use all of it.
const DETAILS_PER_SWITCH_MAX: u32 = 32_768;
const DETAILS_PER_PORT_MAX: u32 = 16_384;
/// Minimum room for the details of hosts in one VLAN, however many VLANs there are.
const DETAILS_PER_VLAN_MIN: usize = 1024;

/// The hosts of one VLAN, or those outside of all.
///
/// A host takes a slot of twenty bytes. The few hosts with more to record also have a detail.
pub(super) struct Hosts {
    vlan: VlanId,
    places: FairTable<()>,
    /// Details of hosts in `places` only.
    details: FairTable<Detail>,
    owners: Owners,
    now: Instant,
    ageing: Ageing,
    news: News<MacAddr>,
}

#[derive(Default)]
struct Detail {
    /// Whether an entry that drops or forwards the host's packets depends on this detail. Such a
    /// detail is not evicted.
    is_kept: bool,
    /// The address announced last is the last.
    ips: Vec<Owned>,
    contest: Option<Contest>,
    /// The last claimant that did not persist in its contest, and until when this counts. The host
    /// has not been heard at home since.
    lapsed: Option<(Location, Instant)>,
    /// Ports that claimed the host in vain, and until when claims from them are refused.
    rejected: Vec<(Location, Instant)>,
    alarmed_at: Option<Instant>,
    moves: VecDeque<Instant>,
}

struct Contest {
    claimant: Location,
    claimed_at: Instant,
    /// Whether the claimant must persist: the host has announced no address, so its silence counts
    /// only if its place is still wanted, and this claimant has sent only once.
    must_persist: bool,
    probes_left: u32,
    due: Instant,
}

/// The meaning of a frame for its sender's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// The sender is where it was.
    Home,
    Placed,
    /// The sender's place is in question: do not forward. `Some` when the question is new.
    Contested {
        ask: Option<Question>,
    },
    /// Known to be elsewhere and alive.
    Rejected {
        alarm: bool,
    },
    TooManyMoves {
        alarm: bool,
    },
    /// The sender is at home, and another port had claimed its address.
    Defended {
        claimant: Location,
        alarm: bool,
    },
    Full,
}

/// A request to ask the host at `home`, at each of these addresses, whether it is alive, and to
/// check the outcome at `due`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub home: Location,
    /// The address announced last is the first.
    pub ips: Vec<IpAddr>,
    pub due: Instant,
}

/// The outcome of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ask(Question),
    Moved {
        from: Location,
        to: Location,
    },
    /// The claimant has not persisted, or its port has no room for it.
    Dropped {
        home: Location,
    },
}

impl Hosts {
    /// Makes the hosts of one of `vlan_count` VLANs, with `shares` of their room.
    pub(super) fn new(vlan: VlanId, shares: Shares, vlan_count: usize, seed: u64) -> Hosts {
        let of_details = Shares {
            count_max: details_max(vlan_count),
            per_switch_max: DETAILS_PER_SWITCH_MAX,
            per_port_max: DETAILS_PER_PORT_MAX,
        };
        Hosts {
            vlan,
            places: FairTable::with_changes(shares, seed),
            details: FairTable::new(of_details, seed),
            owners: Owners::new(seed),
            now: Instant::START,
            ageing: Ageing::default(),
            news: News::default(),
        }
    }

    fn key(&self, mac: MacAddr) -> HostKey {
        let vlan = self.vlan;
        HostKey { vlan, mac }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.places.is_full()
    }

    /// Changes the room of these hosts: there are now `vlan_count` VLANs.
    pub(super) fn set_room(&mut self, shares: Shares, vlan_count: usize) {
        self.places.set_shares(shares);
        self.details.set_count_max(details_max(vlan_count));
    }

    /// Returns the ports that have gained or lost a host since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<(Location, i32)> {
        self.places.take_changes()
    }

    /// Forgets a host of a port that has used its share over all VLANs. Returns false if no host
    /// may be forgotten.
    pub(super) fn give_up(&mut self, now: Instant, at: Location) -> bool {
        self.now = now;
        let gone = self.places.give_up(now, at, |_, ()| false);
        self.give_way(gone.map(Some))
    }

    /// Notes that a port was refused another host.
    pub(super) fn refuse(&mut self, at: Location) {
        self.ageing.pressed_hosts = Some(at);
    }

    pub(super) fn is_known(&self, mac: MacAddr) -> bool {
        self.places.contains(mac)
    }

    pub(super) fn place(&self, mac: MacAddr) -> Option<Location> {
        self.places.place(mac)
    }

    /// Whether a host has been heard at its place; otherwise only an entry names that place.
    pub(super) fn is_heard(&self, mac: MacAddr) -> bool {
        self.places.is_heard(mac)
    }

    /// Whether a host has an address in the network `within`.
    pub(super) fn has_ip(&self, mac: MacAddr, within: Prefix) -> bool {
        let detail = self.details.get(&mac);
        detail.is_some_and(|detail| detail.ips.iter().any(|ip| within.contains(ip.ip)))
    }

    /// The class of the packets that match an entry of a pair, or of one of its rules.
    pub(super) fn class_of<'a>(
        &self,
        timeouts: &'a Timeouts,
        (src, dst): Pair,
        rule: Option<Rule>,
    ) -> Option<&'a FlowClass> {
        match rule {
            Some(rule) => timeouts.class_of_rule(rule),
            None => timeouts.class_of(src, dst, |mac, within| self.has_ip(mac, within)),
        }
    }

    /// The IP addresses that a host owns, in ascending order.
    pub(super) fn ips(&self, mac: MacAddr) -> Vec<IpAddr> {
        let ips = self.details.get(&mac).map_or(&[][..], |d| &d.ips);
        let mut ips: Vec<IpAddr> = ips.iter().map(|owned| owned.ip).collect();
        ips.sort();
        ips
    }

    /// The hosts that have a place, in no particular order.
    pub(super) fn placed(&self) -> impl Iterator<Item = (MacAddr, Location)> {
        self.places.placed()
    }

    /// The hosts that have a place at a switch.
    pub(super) fn placed_at(&self, dpid: DatapathId) -> impl Iterator<Item = (MacAddr, Location)> {
        self.places.placed_at(dpid)
    }

    /// The hosts with these numbers that have a place. All hosts have numbers below [`Hosts::len`],
    /// which change when other hosts are removed.
    pub(super) fn placed_in(
        &self,
        numbers: Range<usize>,
    ) -> impl Iterator<Item = (MacAddr, Location)> {
        self.places.placed_in(numbers)
    }

    /// The number of hosts with their place at each port of these switches. Omits ports without
    /// hosts.
    pub(super) fn counts(
        &self,
        dpids: RangeInclusive<DatapathId>,
    ) -> impl Iterator<Item = (Location, usize)> {
        self.places.counts(dpids)
    }

    /// The port that claims the address of a host while the host is asked.
    pub(super) fn claimant(&self, mac: MacAddr) -> Option<Location> {
        let contest = self.details.get(&mac)?.contest.as_ref()?;
        Some(contest.claimant)
    }

    /// Notes a frame of `mac` at the edge port `at`. `home_gone` reports whether a place can no
    /// longer have a host behind it, `is_active` whether a host must not be evicted for another.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        mac: MacAddr,
        at: Location,
        home_gone: impl Fn(Location) -> bool,
        is_active: impl Fn(MacAddr) -> bool,
    ) -> Observed {
        self.now = now;
        let is_active = |mac, (): &()| is_active(mac);
        if !self.places.contains(mac) {
            return match self.insert(mac, at, true, is_active) {
                true => Observed::Placed,
                false => Observed::Full,
            };
        }
        match self.places.place(mac) {
            Some(home) if home == at => {
                self.places.touch(now, mac);
                self.places.set_heard(mac, true);
                self.defended(now, mac)
            }
            Some(home) if !home_gone(home) => self.claim(now, mac, home, at),
            _ => match self.settle(mac, at, is_active) {
                true => Observed::Placed,
                false => Observed::Full,
            },
        }
    }

    /// Places a host that has no place yet, on the evidence of a flow entry.
    pub(super) fn adopt(&mut self, now: Instant, mac: MacAddr, at: Location) -> bool {
        self.now = now;
        if !self.is_known(mac) {
            return self.insert(mac, at, false, |_, ()| false);
        }
        let adopts = self.place(mac).is_none() && self.settle(mac, at, |_, ()| false);
        if adopts {
            self.places.set_heard(mac, false);
        }
        adopts
    }

    /// Handles a question that is due: asks again, or believes the claimant. `heard_since` reports
    /// since when frames from a place have been heard without a break, if they are.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        mac: MacAddr,
        heard_since: impl Fn(Location) -> Option<Instant>,
    ) -> Option<Answer> {
        let home = self.place(mac)?;
        let detail = self.details.get_mut(&mac)?;
        let ips = detail.asked(mac);
        let contest = detail.contest.as_mut().filter(|c| c.due <= now)?;
        let counts = is_whole_silence(contest.due, heard_since(home));
        if contest.probes_left > 0 || !counts {
            contest.probes_left -= u32::from(counts);
            contest.due = now + PROBE_INTERVAL;
            let due = contest.due;
            return Some(Answer::Ask(Question { home, ips, due }));
        }
        let to = contest.claimant;
        let persisted = !contest.must_persist || now.since(contest.claimed_at) < HOLD_OFF;
        detail.contest = None;
        // A port that has turned out to be a link since, or is down, is no host's place.
        if heard_since(to).is_none() {
            return Some(Answer::Dropped { home });
        }
        if !persisted {
            detail.lapsed = Some((to, now + LAPSED_KEPT));
            return Some(Answer::Dropped { home });
        }
        detail.moves.push_back(now);
        self.now = now;
        match self.settle(mac, to, |_, ()| false) {
            true => Some(Answer::Moved { from: home, to }),
            false => Some(Answer::Dropped { home }),
        }
    }

    /// Notes that no host is behind a port any more. Its hosts keep only their addresses, for a
    /// while.
    pub(super) fn unplace(&mut self, now: Instant, at: Location) -> Vec<MacAddr> {
        let unplaced = self.places.unplace(now, at);
        unplaced.iter().for_each(|mac| self.news.note(*mac));
        for mac in self.details.unplace(now, at) {
            if let Some(detail) = self.details.get_mut(&mac) {
                detail.contest = None;
                detail.lapsed = None;
            }
        }
        unplaced
    }

    /// Whether a host's addresses name it in what is forbidden or asked for.
    pub(super) fn set_kept(&mut self, mac: MacAddr, is_kept: bool) {
        if let Some(detail) = self.details.get_mut(&mac) {
            detail.is_kept = is_kept;
        }
    }

    fn insert(
        &mut self,
        mac: MacAddr,
        at: Location,
        heard: bool,
        is_active: impl Fn(MacAddr, &()) -> bool,
    ) -> bool {
        let room = self.places.insert(self.now, (mac, ()), at, is_active);
        let is_placed = self.give_way(room);
        self.places.set_heard(mac, heard);
        self.news.note(mac);
        is_placed
    }

    /// Moves a known host that has been heard to the place `at`, if there is room.
    fn settle(
        &mut self,
        mac: MacAddr,
        at: Location,
        is_active: impl Fn(MacAddr, &()) -> bool,
    ) -> bool {
        let room = self.places.settle(self.now, mac, at, is_active);
        if !self.give_way(room) {
            return false;
        }
        self.places.set_heard(mac, true);
        self.news.note(mac);
        if let Some(detail) = self.details.get_mut(&mac) {
            // Both are about the place that the host had.
            detail.contest = None;
            detail.lapsed = None;
        }
        // If the new port has no room for the host's detail, it counts to the port the host left.
        if let Ok(Some(gone)) = self.details.settle(self.now, mac, at, spared) {
            self.forget_detail(gone.mac, &gone.value);
        }
        true
    }

    /// Forgets the host that was evicted for a new one, if any. Returns whether there is room.
    fn give_way(&mut self, room: Result<Option<Gone<()>>, Full>) -> bool {
        match room {
            Ok(None) => true,
            Ok(Some(gone)) => {
                self.forget(gone.mac, gone.was_placed.then_some(gone.of));
                if gone.was_placed {
                    self.ageing.counters.evicted += 1;
                    self.ageing.pressed_hosts = Some(gone.of);
                }
                true
            }
            Err(full) => {
                self.ageing.pressed_hosts = Some(full.of);
                false
            }
        }
    }

    /// Handles a frame of a host at home. Returns whether another port had claimed its address.
    fn defended(&mut self, now: Instant, mac: MacAddr) -> Observed {
        let Some(detail) = self.details.get_mut(&mac) else {
            return Observed::Home;
        };
        detail.lapsed = None;
        let Some(contest) = detail.contest.take() else {
            return Observed::Home;
        };
        let claimant = contest.claimant;
        detail.rejected.push((claimant, now + REJECTED));
        let alarm = detail.may_alarm(now);
        Observed::Defended { claimant, alarm }
    }

    fn claim(&mut self, now: Instant, mac: MacAddr, home: Location, at: Location) -> Observed {
        match self.detail(mac) {
            Some(detail) => detail.claim(now, mac, home, at),
            None => Observed::Rejected { alarm: false },
        }
    }

    /// Returns a host's detail, or `None` when there is no room for it. If a new detail evicts
    /// another, this is one of the port that has most.
    fn detail(&mut self, mac: MacAddr) -> Option<&mut Detail> {
        if self.details.contains(mac) {
            self.details.touch(self.now, mac);
            return self.details.get_mut(&mac);
        }
        let at = self.places.place(mac)?;
        let fresh = (mac, Detail::default());
        match self.details.insert(self.now, fresh, at, spared) {
            Ok(None) => {}
            Ok(Some(gone)) => {
                self.forget_detail(gone.mac, &gone.value);
                self.ageing.counters.details_evicted += u64::from(gone.was_placed);
                if gone.was_placed {
                    self.ageing.pressed_details = Some(gone.of);
                }
            }
            Err(full) => {
                self.ageing.counters.details_refused += 1;
                self.ageing.pressed_details = Some(full.of);
            }
        }
        self.details.get_mut(&mac)
    }

    fn forget_detail(&mut self, mac: MacAddr, detail: &Detail) {
        let ips = detail.ips.iter().map(|owned| owned.ip);
        self.owners.forget(mac, ips);
        self.news.note(mac);
    }
}

fn details_max(vlan_count: usize) -> usize {
    (DETAILS_MAX / vlan_count.max(1)).max(DETAILS_PER_VLAN_MIN)
}

/// Whether a host's detail must not be evicted for another host's.
fn spared(_: MacAddr, detail: &Detail) -> bool {
    detail.is_kept || detail.contest.is_some()
}

impl Detail {
    fn claim(&mut self, now: Instant, mac: MacAddr, home: Location, at: Location) -> Observed {
        if let Some(contest) = &mut self.contest {
            if contest.claimant == at {
                contest.claimed_at = now;
            }
            return Observed::Contested { ask: None };
        }
        self.rejected.retain(|(_, until)| now < *until);
        let is_rejected = self.rejected.iter().any(|(port, _)| *port == at);
        if is_rejected || self.rejected.len() >= REJECTED_MAX {
            let alarm = self.may_alarm(now);
            return Observed::Rejected { alarm };
        }
        while self
            .moves
            .front()
            .is_some_and(|at| now.since(*at) > MOVES_WINDOW)
        {
            self.moves.pop_front();
        }
        if self.moves.len() >= MOVES_MAX {
            let alarm = self.may_alarm(now);
            return Observed::TooManyMoves { alarm };
        }
        let has_lapsed = |(port, until)| port == at && now < until;
        let is_mute = self.ips.is_empty();
        let must_persist = is_mute && !self.lapsed.is_some_and(has_lapsed);
        let probes = match is_mute {
            true => HOLD_OFF_PROBES,
            false => PROBES,
        };
        let due = now + PROBE_INTERVAL;
        self.contest = Some(Contest {
            claimant: at,
            claimed_at: now,
            must_persist,
            probes_left: probes - 1,
            due,
        });
        let ips = self.asked(mac);
        Observed::Contested {
            ask: Some(Question { home, ips, due }),
        }
    }

    fn may_alarm(&mut self, now: Instant) -> bool {
        let may = self
            .alarmed_at
            .is_none_or(|at| now.since(at) >= ALARM_INTERVAL);
        if may {
            self.alarmed_at = Some(now);
        }
        may
    }

    /// The addresses at which the host is asked whether it is alive, the one announced last first.
    /// They include the address that many hosts derive from their hardware address.
    fn asked(&self, mac: MacAddr) -> Vec<IpAddr> {
        let told = self.ips.iter().rev().map(|owned| owned.ip);
        let mut asked: Vec<IpAddr> = told.collect();
        let made = IpAddr::V6(link_local(mac));
        if !asked.contains(&made) {
            asked.push(made);
        }
        asked
    }
}

/// Whether an answer to the question that is due at this time would have been heard.
fn is_whole_silence(due: Instant, heard_since: Option<Instant>) -> bool {
    heard_since.is_some_and(|since| since + PROBE_INTERVAL <= due)
}

/// The link-local address derived from a hardware address (RFC 4291, appendix A).
pub(super) fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}
