//! Where hosts are, and who may say that one has moved.
//!
//! A host is where its frames enter the network. Once it has a place, a frame of its address from
//! elsewhere moves nothing. The old place is asked first, three times, at every IP address the host
//! has told (ARP and neighbour discovery), and only its silence makes the move. Any frame of the host
//! at the old place is an answer: its entries there are lifted while it is asked, so that its own
//! traffic is heard too. A host that has told no address may not understand the question; its claimant
//! must persist for [`HOLD_OFF`] while the old place is silent. While the old place cannot be heard,
//! because its switch is away or its port is held, silence counts for nothing. When the old port has
//! gone down there is nobody to ask, and the next frame places the host.
//!
//! IP addresses have owners in the same way ([`owners`]).

mod owners;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use openflow::MacAddr;
use openflow::time::{Duration, Instant};

use crate::mac_table::MacTable;
use crate::timeouts::Prefix;

use super::Location;
pub(super) use owners::{AddressAnswer, AddressQuestion, Told};
use owners::{Owned, Owners};

/// Asks before silence counts, and between two of them.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// For hosts that have told no address, and the asks in that time.
const HOLD_OFF: Duration = Duration::from_secs(3);
const HOLD_OFF_PROBES: u32 = 10;
/// After the old place answered, claims from that port are not even looked at for this long. Those
/// from another port are: the host may move while somebody claims to be it.
const REJECTED: Duration = Duration::from_secs(10);
/// Ports of which that is remembered for one host. While there are as many, no claim is looked at.
const REJECTED_MAX: usize = 8;
/// One alarm per host in this time, however many frames.
pub(super) const ALARM_INTERVAL: Duration = Duration::from_secs(60);
/// Moves of one host in `MOVES_WINDOW` that are believed.
const MOVES_MAX: usize = 5;
const MOVES_WINDOW: Duration = Duration::from_secs(10);
/// Hosts of which more is kept than their place. Of one more no IP address is noted, and a claim to
/// its address is refused.
const DETAILS_MAX: usize = 65_536;

/// A host is a slot of eleven bytes; the few of which there is more to say have a detail too.
pub(super) struct Hosts {
    places: MacTable<Place>,
    details: BTreeMap<MacAddr, Detail>,
    owners: Owners,
    homes: Homes,
    count_max: usize,
    per_port_max: u32,
}

/// Four bytes of home and one flag, aligned to nothing so that slots are as small as can be.
#[derive(Clone, Copy, Default)]
struct Place {
    home: [u8; 4],
    /// It has been heard there; otherwise an entry says so.
    heard: bool,
}

/// Ports at which there are hosts, numbered.
#[derive(Default)]
struct Homes {
    numbers: BTreeMap<Location, u32>,
    homes: Vec<Home>,
    /// Numbers of those that were left by their last host.
    free: Vec<u32>,
}

struct Home {
    at: Location,
    hosts: u32,
}

/// Stands for no home.
const NOWHERE: u32 = u32::MAX;

#[derive(Default)]
struct Detail {
    /// The one told last is the last.
    ips: Vec<Owned>,
    contest: Option<Contest>,
    /// Where it was claimed in vain, and until when claims from there are refused.
    rejected: Vec<(Location, Instant)>,
    alarmed_at: Option<Instant>,
    moves: VecDeque<Instant>,
}

struct Contest {
    claimant: Location,
    claimed_at: Instant,
    /// The host has told no address: silence is believed of it only if somebody wants its place.
    must_persist: bool,
    probes_left: u32,
    due: Instant,
}

/// What a frame said about its sender's place.
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
    /// The one told last is the first.
    pub ips: Vec<IpAddr>,
    pub due: Instant,
}

/// What became of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ask(Question),
    Moved {
        from: Location,
        to: Location,
    },
    /// The claimant has not persisted.
    Dropped {
        home: Location,
    },
}

impl Hosts {
    pub(super) fn new(count_max: usize, per_port_max: u32, seed: u64) -> Hosts {
        Hosts {
            places: MacTable::new(seed),
            details: BTreeMap::new(),
            owners: Owners::default(),
            homes: Homes::default(),
            count_max,
            per_port_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_known(&self, mac: MacAddr) -> bool {
        self.places.get(mac).is_some()
    }

    pub(super) fn place(&self, mac: MacAddr) -> Option<Location> {
        self.homes.at(self.places.get(mac)?)
    }

    /// Whether it has been heard at its place; otherwise only an entry says that it is there.
    pub(super) fn is_heard(&self, mac: MacAddr) -> bool {
        self.places.get(mac).is_some_and(|place| place.heard)
    }

    /// Whether it has an address in the network.
    pub(super) fn has_ip(&self, mac: MacAddr, within: Prefix) -> bool {
        let detail = self.details.get(&mac);
        detail.is_some_and(|detail| detail.ips.iter().any(|ip| within.contains(ip.ip)))
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
        let places = self.places.iter();
        places.filter_map(|(mac, place)| Some((mac, self.homes.at(place)?)))
    }

    /// Takes note of a frame of `mac` at the edge port `at`. `home_gone` says whether a place
    /// can have nobody behind it any more.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        mac: MacAddr,
        at: Location,
        home_gone: impl Fn(Location) -> bool,
    ) -> Observed {
        let Some(place) = self.places.get(mac) else {
            return self.insert(mac, at, true);
        };
        match self.homes.at(place) {
            Some(home) if home == at => {
                self.settle(mac, at, true);
                self.defended(now, mac)
            }
            Some(home) if !home_gone(home) => self.claim(now, mac, home, at),
            _ if self.homes.host_count(at) >= self.per_port_max => Observed::Full,
            _ => {
                self.settle(mac, at, true);
                Observed::Placed
            }
        }
    }

    /// Places a host that nobody has placed yet, from what a flow entry says.
    pub(super) fn adopt(&mut self, mac: MacAddr, at: Location) -> bool {
        if !self.is_known(mac) {
            return self.insert(mac, at, false) == Observed::Placed;
        }
        let is_unplaced = self.place(mac).is_none();
        if is_unplaced {
            self.settle(mac, at, false);
        }
        is_unplaced
    }

    /// A question's time is over: ask again, or believe the claimant. `is_heard` says whether frames
    /// of a host at a place are heard at all.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        mac: MacAddr,
        is_heard: impl Fn(Location) -> bool,
    ) -> Option<Answer> {
        let home = self.place(mac)?;
        let detail = self.details.get_mut(&mac)?;
        let ips = detail.asked(mac);
        let contest = detail.contest.as_mut().filter(|c| c.due <= now)?;
        let is_heard = is_heard(home);
        if contest.probes_left > 0 || !is_heard {
            contest.probes_left -= u32::from(is_heard);
            contest.due = now + PROBE_INTERVAL;
            let due = contest.due;
            return Some(Answer::Ask(Question { home, ips, due }));
        }
        let to = contest.claimant;
        let persisted = !contest.must_persist || now.since(contest.claimed_at) < HOLD_OFF;
        detail.contest = None;
        if !persisted {
            return Some(Answer::Dropped { home });
        }
        detail.moves.push_back(now);
        self.settle(mac, to, true);
        Some(Answer::Moved { from: home, to })
    }

    /// Nobody is behind this port any more; the hosts that were keep their addresses only.
    pub(super) fn unplace(&mut self, at: Location) -> Vec<MacAddr> {
        if self.homes.host_count(at) == 0 {
            return Vec::new();
        }
        let here = self.placed().filter(|(_, place)| *place == at);
        let mut unplaced: Vec<MacAddr> = here.map(|(mac, _)| mac).collect();
        unplaced.sort();
        for mac in &unplaced {
            if let Some(place) = self.places.get_mut(*mac) {
                self.homes.leave(*place);
                place.home = NOWHERE.to_ne_bytes();
            }
            if let Some(detail) = self.details.get_mut(mac) {
                detail.contest = None;
            }
        }
        unplaced
    }

    fn insert(&mut self, mac: MacAddr, at: Location, heard: bool) -> Observed {
        let is_full = self.places.len() >= self.count_max;
        if is_full || self.homes.host_count(at) >= self.per_port_max {
            return Observed::Full;
        }
        let home = self.homes.enter(at);
        self.places.insert(mac, Place { home, heard });
        Observed::Placed
    }

    /// A known host is `at` this place now.
    fn settle(&mut self, mac: MacAddr, at: Location, heard: bool) {
        let Some(place) = self.places.get_mut(mac) else {
            return;
        };
        place.heard = heard;
        if self.homes.at(*place) != Some(at) {
            self.homes.leave(*place);
            place.home = self.homes.enter(at);
        }
    }

    /// Of a host at home: whether somebody had claimed its address.
    fn defended(&mut self, now: Instant, mac: MacAddr) -> Observed {
        let Some(detail) = self.details.get_mut(&mac) else {
            return Observed::Home;
        };
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

    /// `None` when there are too many.
    fn detail(&mut self, mac: MacAddr) -> Option<&mut Detail> {
        if self.details.len() >= DETAILS_MAX && !self.details.contains_key(&mac) {
            return None;
        }
        Some(self.details.entry(mac).or_default())
    }
}

impl Homes {
    fn at(&self, place: Place) -> Option<Location> {
        let home = u32::from_ne_bytes(place.home);
        self.homes.get(home as usize).map(|home| home.at)
    }

    fn host_count(&self, at: Location) -> u32 {
        let number = self.numbers.get(&at);
        number.map_or(0, |number| self.homes[*number as usize].hosts)
    }

    fn enter(&mut self, at: Location) -> [u8; 4] {
        let number = match self.numbers.get(&at) {
            Some(number) => *number,
            None => self.number(at),
        };
        self.homes[number as usize].hosts += 1;
        number.to_ne_bytes()
    }

    fn number(&mut self, at: Location) -> u32 {
        let home = Home { at, hosts: 0 };
        let number = self.free.pop().unwrap_or(self.homes.len() as u32);
        match self.homes.get_mut(number as usize) {
            Some(free) => *free = home,
            None => self.homes.push(home),
        }
        self.numbers.insert(at, number);
        number
    }

    fn leave(&mut self, place: Place) {
        let number = u32::from_ne_bytes(place.home);
        let Some(home) = self.homes.get_mut(number as usize) else {
            return;
        };
        home.hosts -= 1;
        if home.hosts == 0 {
            self.numbers.remove(&home.at);
            self.free.push(number);
        }
    }
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
        let must_persist = self.ips.is_empty();
        let probes = match must_persist {
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

    /// The addresses at which the host is asked whether it is alive, the one told last first. The
    /// address that many hosts make of their hardware address is one of them.
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

/// The link-local address that is made of a hardware address (RFC 4291, appendix A).
fn link_local(mac: MacAddr) -> Ipv6Addr {
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
