//! Where hosts are, and who may say that one has moved.
//!
//! A host is where its frames enter the network. Once it has a place, a frame of its address from
//! elsewhere moves nothing: the old place is asked first (ARP, three times), and only its silence
//! makes the move. A host with no known IPv4 address cannot be asked; its claimant must persist
//! for [`HOLD_OFF`] while the old place is silent. When the old port has gone down there is
//! nobody to ask, and the next frame places the host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use openflow::MacAddr;
use openflow::time::{Duration, Instant};

use crate::mac_table::MacTable;
use crate::timeouts::Prefix;

use super::Location;

/// Asks before silence counts, and between two of them.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// For hosts that cannot be asked.
const HOLD_OFF: Duration = Duration::from_secs(3);
/// After the old place answered, claims are not even looked at for this long.
const REJECTED: Duration = Duration::from_secs(10);
/// One alarm per host in this time, however many frames.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);
/// Moves of one host in `MOVES_WINDOW` that are believed.
const MOVES_MAX: usize = 5;
const MOVES_WINDOW: Duration = Duration::from_secs(10);
/// Of IPv4, and as many of IPv6: a host that makes up new ones must not hide its others.
const IPS_MAX: usize = 8;
/// Hosts of which more is kept than their place. Of one more no IP address is noted, and a claim to
/// its address is refused.
const DETAILS_MAX: usize = 65_536;

/// A host is a slot of eleven bytes; the few of which there is more to say have a detail too.
pub(super) struct Hosts {
    places: MacTable<Place>,
    details: BTreeMap<MacAddr, Detail>,
    /// Who said last that this is its address.
    by_ip: BTreeMap<IpAddr, MacAddr>,
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
    ips: BTreeSet<IpAddr>,
    contest: Option<Contest>,
    rejected_until: Instant,
    alarmed_at: Option<Instant>,
    moves: VecDeque<Instant>,
}

struct Contest {
    claimant: Location,
    claimed_at: Instant,
    probes_left: u32,
    due: Instant,
}

/// What a frame said about its sender's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Ask the host at `home` whether it is alive, and come back at `due`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub home: Location,
    pub ip: Option<Ipv4Addr>,
    pub due: Instant,
}

/// What became of a question.
pub(super) enum Answer {
    Ask(Question),
    Moved { from: Location, to: Location },
}

impl Hosts {
    pub(super) fn new(count_max: usize, per_port_max: u32, seed: u64) -> Hosts {
        Hosts {
            places: MacTable::new(seed),
            details: BTreeMap::new(),
            by_ip: BTreeMap::new(),
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
        detail.is_some_and(|detail| detail.ips.iter().any(|ip| within.contains(*ip)))
    }

    pub(super) fn ips(&self, mac: MacAddr) -> Vec<IpAddr> {
        let detail = self.details.get(&mac);
        detail.map_or(Vec::new(), |detail| detail.ips.iter().copied().collect())
    }

    /// The host of this address, as far as a host may be believed.
    pub(super) fn by_ip(&self, ip: IpAddr) -> Option<MacAddr> {
        self.by_ip.get(&ip).copied()
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
        ip: Option<IpAddr>,
        home_gone: impl Fn(Location) -> bool,
    ) -> Observed {
        let Some(place) = self.places.get(mac) else {
            let observed = self.insert(mac, at, true);
            if observed == Observed::Placed {
                self.note_ip(mac, ip);
            }
            return observed;
        };
        match self.homes.at(place) {
            Some(home) if home == at => {
                self.settle(mac, at, true);
                self.note_ip(mac, ip);
                self.defended(now, mac)
            }
            Some(home) if !home_gone(home) => self.claim(now, mac, home, at),
            _ if self.homes.host_count(at) >= self.per_port_max => Observed::Full,
            _ => {
                self.settle(mac, at, true);
                self.note_ip(mac, ip);
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

    /// A question's time is over: ask again, or believe the claimant.
    pub(super) fn handle_timeout(&mut self, now: Instant, mac: MacAddr) -> Option<Answer> {
        let home = self.place(mac)?;
        let detail = self.details.get_mut(&mac)?;
        let ip = detail.ipv4();
        let contest = detail.contest.as_mut().filter(|c| c.due <= now)?;
        if contest.probes_left > 0 {
            contest.probes_left -= 1;
            contest.due = now + PROBE_INTERVAL;
            let due = contest.due;
            return Some(Answer::Ask(Question { home, ip, due }));
        }
        let to = contest.claimant;
        let persisted = ip.is_some() || now.since(contest.claimed_at) < HOLD_OFF;
        detail.contest = None;
        if !persisted {
            return None;
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

    fn note_ip(&mut self, mac: MacAddr, ip: Option<IpAddr>) {
        if let Some(ip) = ip
            && let Some(detail) = self.detail(mac)
            && (detail.ips_like(ip) < IPS_MAX || detail.ips.contains(&ip))
        {
            detail.ips.insert(ip);
            self.by_ip.insert(ip, mac);
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
        detail.rejected_until = now + REJECTED;
        let alarm = detail.may_alarm(now);
        let claimant = contest.claimant;
        Observed::Defended { claimant, alarm }
    }

    fn claim(&mut self, now: Instant, mac: MacAddr, home: Location, at: Location) -> Observed {
        match self.detail(mac) {
            Some(detail) => detail.claim(now, home, at),
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
    fn claim(&mut self, now: Instant, home: Location, at: Location) -> Observed {
        if let Some(contest) = &mut self.contest {
            if contest.claimant == at {
                contest.claimed_at = now;
            }
            return Observed::Contested { ask: None };
        }
        if now < self.rejected_until {
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
        let ip = self.ipv4();
        let (probes_left, wait) = match ip {
            Some(_) => (PROBES - 1, PROBE_INTERVAL),
            None => (0, HOLD_OFF),
        };
        let due = now + wait;
        self.contest = Some(Contest {
            claimant: at,
            claimed_at: now,
            probes_left,
            due,
        });
        Observed::Contested {
            ask: Some(Question { home, ip, due }),
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

    /// How many it has of this version.
    fn ips_like(&self, ip: IpAddr) -> usize {
        let like = |known: &&IpAddr| known.is_ipv4() == ip.is_ipv4();
        self.ips.iter().filter(like).count()
    }

    fn ipv4(&self) -> Option<Ipv4Addr> {
        self.ips.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        })
    }
}
