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
/// So that one port cannot fill the table.
const HOSTS_PER_PORT_MAX: u32 = 1024;
const IPS_MAX: usize = 8;

pub(super) struct Hosts {
    hosts: BTreeMap<MacAddr, Host>,
    per_port: BTreeMap<Location, u32>,
    count_max: usize,
}

pub(super) struct Host {
    pub at: Option<Location>,
    /// It has been heard there; otherwise an entry says so.
    pub heard: bool,
    pub ips: BTreeSet<IpAddr>,
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
    pub(super) fn new(count_max: usize) -> Hosts {
        Hosts {
            hosts: BTreeMap::new(),
            per_port: BTreeMap::new(),
            count_max,
        }
    }

    pub(super) fn get(&self, mac: MacAddr) -> Option<&Host> {
        self.hosts.get(&mac)
    }

    pub(super) fn place(&self, mac: MacAddr) -> Option<Location> {
        self.hosts.get(&mac)?.at
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MacAddr, &Host)> {
        self.hosts.iter().map(|(mac, host)| (*mac, host))
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
        let Some(host) = self.hosts.get_mut(&mac) else {
            return self.insert(mac, at, ip);
        };
        match host.at {
            Some(home) if home == at => {
                host.heard = true;
                host.add_ip(ip);
                let Some(contest) = host.contest.take() else {
                    return Observed::Home;
                };
                host.rejected_until = now + REJECTED;
                let alarm = host.may_alarm(now);
                Observed::Defended {
                    claimant: contest.claimant,
                    alarm,
                }
            }
            Some(home) if !home_gone(home) => host.claim(now, home, at),
            _ if *self.per_port.get(&at).unwrap_or(&0) >= HOSTS_PER_PORT_MAX => Observed::Full,
            home => {
                host.at = Some(at);
                host.heard = true;
                host.add_ip(ip);
                if let Some(home) = home {
                    leave(&mut self.per_port, home);
                }
                *self.per_port.entry(at).or_default() += 1;
                Observed::Placed
            }
        }
    }

    /// Places a host that nobody has placed yet, from what a flow entry says.
    pub(super) fn adopt(&mut self, mac: MacAddr, at: Location) -> bool {
        let placed = self.place(mac).is_none() && self.place_unplaced(mac, at);
        if let Some(host) = self.hosts.get_mut(&mac).filter(|_| placed) {
            host.heard = false;
        }
        placed
    }

    fn place_unplaced(&mut self, mac: MacAddr, at: Location) -> bool {
        match self.hosts.get_mut(&mac) {
            None => self.insert(mac, at, None) == Observed::Placed,
            Some(host) => {
                host.at = Some(at);
                *self.per_port.entry(at).or_default() += 1;
                true
            }
        }
    }

    /// A question's time is over: ask again, or believe the claimant.
    pub(super) fn handle_timeout(&mut self, now: Instant, mac: MacAddr) -> Option<Answer> {
        let host = self.hosts.get_mut(&mac)?;
        let home = host.at?;
        let ip = host.ipv4();
        let contest = host.contest.as_mut().filter(|c| c.due <= now)?;
        if contest.probes_left > 0 {
            contest.probes_left -= 1;
            contest.due = now + PROBE_INTERVAL;
            let due = contest.due;
            return Some(Answer::Ask(Question { home, ip, due }));
        }
        let to = contest.claimant;
        let persisted = ip.is_some() || now.since(contest.claimed_at) < HOLD_OFF;
        host.contest = None;
        if !persisted {
            return None;
        }
        host.at = Some(to);
        host.heard = true;
        host.moves.push_back(now);
        leave(&mut self.per_port, home);
        *self.per_port.entry(to).or_default() += 1;
        Some(Answer::Moved { from: home, to })
    }

    /// Nobody is behind these ports any more; the hosts that were keep their addresses only.
    pub(super) fn unplace(&mut self, gone: impl Fn(Location) -> bool) -> Vec<MacAddr> {
        let mut unplaced = Vec::new();
        for (mac, host) in &mut self.hosts {
            if let Some(at) = host.at.filter(|at| gone(*at)) {
                host.at = None;
                host.contest = None;
                leave(&mut self.per_port, at);
                unplaced.push(*mac);
            }
        }
        unplaced
    }

    fn insert(&mut self, mac: MacAddr, at: Location, ip: Option<IpAddr>) -> Observed {
        let here = self.per_port.entry(at).or_default();
        if self.hosts.len() >= self.count_max || *here >= HOSTS_PER_PORT_MAX {
            return Observed::Full;
        }
        *here += 1;
        let host = Host {
            at: Some(at),
            heard: true,
            ips: ip.into_iter().collect(),
            contest: None,
            rejected_until: Instant::START,
            alarmed_at: None,
            moves: VecDeque::new(),
        };
        self.hosts.insert(mac, host);
        Observed::Placed
    }
}

impl Host {
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

    fn ipv4(&self) -> Option<Ipv4Addr> {
        self.ips.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        })
    }

    fn add_ip(&mut self, ip: Option<IpAddr>) {
        if let Some(ip) = ip.filter(|_| self.ips.len() < IPS_MAX) {
            self.ips.insert(ip);
        }
    }
}

fn leave(per_port: &mut BTreeMap<Location, u32>, at: Location) {
    if let Some(count) = per_port.get_mut(&at) {
        *count -= 1;
        if *count == 0 {
            per_port.remove(&at);
        }
    }
}
