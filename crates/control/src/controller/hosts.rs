//! Where hosts are, and who may say that one has moved.
//!
//! A host is where its frames enter the network. Once it has a place, a frame of its address from
//! elsewhere moves nothing. The old place is asked first, three times, at every IP address the host
//! has announced (ARP and neighbour discovery), and only its silence makes the move. Any frame of
//! the host at the old place is an answer: its entries there are lifted while it is asked, so that
//! its own traffic is heard too. A host that has announced no address may not understand the
//! question; its claimant must persist for [`HOLD_OFF`] while the old place is silent. A claimant
//! that speaks too seldom for that persists by its next frame, after which the old place is asked
//! again. Silence counts for nothing unless the old place was heard all the time since it was
//! asked: its switch may have been away, or its port held. When the old port has gone down there is
//! nobody to ask, and the next frame places the host.
//!
//! IP addresses have owners in the same way ([`owners`]).
//!
//! Room is shared out to ports ([`FairTable`]), and what is not heard for long is forgotten
//! ([`age`]).

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

/// Asks before silence counts, and between two of them.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// Time that a host is asked at its place before it may be elsewhere, at least.
pub(super) const MOVE_MIN: Duration = PROBE_INTERVAL.saturating_mul(PROBES);
/// For hosts that have announced no address, and the questions in that time.
const HOLD_OFF: Duration = Duration::from_secs(3);
const HOLD_OFF_PROBES: u32 = 10;
/// A claim that lapsed because its claimant did not speak again counts for this long: the claimant
/// may be a host that speaks seldom.
const LAPSED_KEPT: Duration = Duration::from_secs(300);
/// After the old place answered, claims from that port are not even looked at for this long. Those
/// from another port are: the host may move while somebody claims to be it.
const REJECTED: Duration = Duration::from_secs(10);
/// Ports of which that is remembered for one host. While there are as many, no claim is looked at.
const REJECTED_MAX: usize = 8;
/// One alarm per host in this time, however many frames.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);
/// Moves of one host in `MOVES_WINDOW` that are believed.
const MOVES_MAX: usize = 5;
const MOVES_WINDOW: Duration = Duration::from_secs(10);
/// Hosts of which more is kept than their place: IP addresses and contests.
const DETAILS_MAX: usize = 65_536;
/// Shares of `DETAILS_MAX`, so that neither one switch nor one port can use all of it.
const DETAILS_PER_SWITCH_MAX: u32 = 32_768;
const DETAILS_PER_PORT_MAX: u32 = 16_384;
/// Hosts of one VLAN of which more is kept, however many VLANs there are.
const DETAILS_PER_VLAN_MIN: usize = 1024;

/// The hosts of one VLAN, or those outside of all.
///
/// A host is a slot of twenty bytes; the few of which there is more to say have a detail too.
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
    /// The one announced last is the last.
    ips: Vec<Owned>,
    contest: Option<Contest>,
    /// Claimant of the last contest that it did not persist in, and until when that counts. The
    /// host was not heard at home since.
    lapsed: Option<(Location, Instant)>,
    /// Where it was claimed in vain, and until when claims from there are refused.
    rejected: Vec<(Location, Instant)>,
    alarmed_at: Option<Instant>,
    moves: VecDeque<Instant>,
}

struct Contest {
    claimant: Location,
    claimed_at: Instant,
    /// The host has announced no address: silence is believed of it only if somebody wants its
    /// place, and this claimant has spoken only once.
    must_persist: bool,
    probes_left: u32,
    due: Instant,
}

/// The meaning of a frame for its sender's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// Where it was.
    Home,
    Placed,
    /// Under question: do not forward. `Some` when the question has just come up.
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
    /// At home, and somebody else had claimed its address.
    Defended {
        claimant: Location,
        alarm: bool,
    },
    Full,
}

/// Ask the host at `home` whether it is alive, at each of these addresses, and come back at `due`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub home: Location,
    /// The one announced last is the first.
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
    /// The hosts of one of so many VLANs, and `shares` of their room.
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

    /// Changes the room of these hosts: there are so many VLANs now.
    pub(super) fn set_room(&mut self, shares: Shares, vlan_count: usize) {
        self.places.set_shares(shares);
        self.details.set_count_max(details_max(vlan_count));
    }

    /// Ports that have got one more host, or one less, since this was last asked.
    pub(super) fn take_changes(&mut self) -> Vec<(Location, i32)> {
        self.places.take_changes()
    }

    /// Forgets a host of a port that has its share over all VLANs. False if none may go.
    pub(super) fn give_up(&mut self, now: Instant, at: Location) -> bool {
        self.now = now;
        let gone = self.places.give_up(now, at, |_, ()| false);
        self.give_way(gone.map(Some))
    }

    /// Notes that a port gets no further host.
    pub(super) fn refuse(&mut self, at: Location) {
        self.ageing.pressed_hosts = Some(at);
    }

    pub(super) fn is_known(&self, mac: MacAddr) -> bool {
        self.places.contains(mac)
    }

    pub(super) fn place(&self, mac: MacAddr) -> Option<Location> {
        self.places.place(mac)
    }

    /// Whether it has been heard at its place; otherwise only an entry says that it is there.
    pub(super) fn is_heard(&self, mac: MacAddr) -> bool {
        self.places.is_heard(mac)
    }

    /// Whether it has an address in the network.
    pub(super) fn has_ip(&self, mac: MacAddr, within: Prefix) -> bool {
        let detail = self.details.get(&mac);
        detail.is_some_and(|detail| detail.ips.iter().any(|ip| within.contains(ip.ip)))
    }

    /// The class of the packets that an entry of a pair, or of one of its rules, is for.
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

    /// Those it owns, in their order.
    pub(super) fn ips(&self, mac: MacAddr) -> Vec<IpAddr> {
        let ips = self.details.get(&mac).map_or(&[][..], |d| &d.ips);
        let mut ips: Vec<IpAddr> = ips.iter().map(|owned| owned.ip).collect();
        ips.sort();
        ips
    }

    /// Those that have a place, in no particular order.
    pub(super) fn placed(&self) -> impl Iterator<Item = (MacAddr, Location)> {
        self.places.placed()
    }

    /// Those that have a place at a switch.
    pub(super) fn placed_at(&self, dpid: DatapathId) -> impl Iterator<Item = (MacAddr, Location)> {
        self.places.placed_at(dpid)
    }

    /// Those of the hosts with these numbers that have a place. All have numbers below
    /// [`Hosts::len`], which change when others go.
    pub(super) fn placed_in(
        &self,
        numbers: Range<usize>,
    ) -> impl Iterator<Item = (MacAddr, Location)> {
        self.places.placed_in(numbers)
    }

    /// The number of those that have their place at each port of these switches; ports without any
    /// are left out.
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

    /// Takes note of a frame of `mac` at the edge port `at`. `home_gone` says whether a place
    /// can have nobody behind it any more, `is_active` whether a host does not give way to another.
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

    /// Places a host that nobody has placed yet, from what a flow entry says.
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

    /// A question's time is over: ask again, or believe the claimant. `heard_since` says since when
    /// frames of a host at a place have been heard without a break, if they are.
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
        // A port that has turned out to be a link since, or is down, is nobody's place.
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

    /// Nobody is behind this port any more; the hosts that were keep their addresses only, and
    /// for a while.
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

    /// A known host has been heard and is `at` this place now, if there is room.
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
            // They are about the place that it had.
            detail.contest = None;
            detail.lapsed = None;
        }
        // Where there is no room for it, what is known of the host counts to the port it left.
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

    /// Handles a frame of a host at home: whether another port had claimed its address.
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

    /// `None` when there is no room for it. Others that give way are those of the port that has
    /// most.
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

/// Whether what is known of a host does not give way to what is known of others.
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
    /// The address that many hosts make of their hardware address is one of them.
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

/// The link-local address that is made of a hardware address (RFC 4291, appendix A).
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
