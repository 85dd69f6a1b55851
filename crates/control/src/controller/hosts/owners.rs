//! The hosts that own IP addresses.
//!
//! The first host that announces an address as its own owns it. A claim by another host does not
//! move the address at once: the controller first asks the owner for it at the owner's place, three
//! times. The claimant gets the address only if the owner is silent or has no place. A host that
//! answers whenever it is asked keeps its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use clock::{Duration, Instant};
use openflow::MacAddr;

use crate::fabric::addresses::{Addresses, Owner, Writer};

use super::{ALARM_INTERVAL, Hosts, Location, PROBE_INTERVAL, PROBES, REJECTED, is_whole_silence};

/// Maximum number of IPv4 addresses, and of IPv6 addresses, that a host may own. A host that makes
/// up new ones must not hide its others.
const IPS_MAX: usize = 8;
/// An address that was not announced for this long gives way to a new one beyond [`IPS_MAX`].
const STALE: Duration = Duration::from_secs(600);
/// An address that was not announced for this long gives way to any new one.
const EXPIRED: Duration = Duration::from_secs(3600);

/// Maximum number of open claims, in all and by hosts of one port. Further claims are refused.
const DISPUTES_MAX: usize = 1024;
const DISPUTES_PER_PORT_MAX: usize = 64;

/// An address of a host, and the time when the host last announced it.
#[derive(Clone, Copy)]
pub(super) struct Owned {
    pub ip: IpAddr,
    told_at: Instant,
}

pub(super) struct Owners {
    by_ip: BTreeMap<IpAddr, MacAddr>,
    /// The undisputed owners, for the edges.
    undisputed: Writer,
    /// Hosts with details whose last report was that they are not routers.
    no_routers: BTreeSet<MacAddr>,
    disputes: BTreeMap<IpAddr, Dispute>,
    /// When the last alarm was raised for a claim from this port.
    alarmed_at: BTreeMap<Location, Instant>,
}

struct Dispute {
    claimant: MacAddr,
    at: Location,
    state: State,
    due: Instant,
}

enum State {
    Asking {
        home: Location,
        probes_left: u32,
    },
    /// The owner has answered: claims are refused until the dispute is due.
    Rejected,
}

/// The verdict on a host that announces an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) enum AddressVerdict {
    /// It owned the address before.
    Known,
    /// It owns the address now, and no host did before.
    New,
    /// It owns the address now; its owner has no place.
    Taken { from: MacAddr },
    /// It owned the address, and another host had claimed it.
    Defended {
        claimant: MacAddr,
        at: Location,
        alarm: bool,
    },
    /// Another host owns the address. `Some` when the question is new.
    Contested { ask: Option<AddressQuestion> },
    /// Another host owns the address and has confirmed it, or too many claims are open.
    Rejected { owner: MacAddr, alarm: bool },
    /// It owns as many addresses as it may: this one has no owner.
    TooMany,
    /// There is no room to note the address, so it is unknown whether it is forbidden.
    NoRoom,
}

/// A request to ask the owner of an address for it, and to check the outcome at `due`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct AddressQuestion {
    pub ip: IpAddr,
    pub owner: MacAddr,
    pub home: Location,
    pub due: Instant,
}

/// The outcome of a question for an address.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::controller) enum AddressAnswer {
    Ask(AddressQuestion),
    /// The owner was silent.
    Moved {
        from: MacAddr,
        to: MacAddr,
    },
}

impl Hosts {
    /// The host that owns this address.
    pub(in crate::controller) fn by_ip(&self, ip: IpAddr) -> Option<MacAddr> {
        self.owners.by_ip.get(&ip).copied()
    }

    /// The undisputed owners, as the edges read them.
    pub(in crate::controller) fn addresses(&self) -> &Arc<Addresses> {
        self.owners.undisputed.addresses()
    }

    /// Whether a host's last report was that it is not a router.
    pub(super) fn is_no_router(&self, mac: MacAddr) -> bool {
        self.owners.no_routers.contains(&mac)
    }

    /// The owner of an address, if it is undisputed.
    #[cfg(test)]
    pub(super) fn undisputed(&self, ip: IpAddr) -> Option<MacAddr> {
        let is_asked = |dispute: &&Dispute| matches!(dispute.state, State::Asking { .. });
        let is_disputed = self.owners.disputes.get(&ip).filter(is_asked).is_some();
        self.by_ip(ip).filter(|_| !is_disputed)
    }

    #[cfg(test)]
    pub(super) fn owned(&self) -> impl Iterator<Item = (IpAddr, MacAddr)> {
        self.owners.by_ip.iter().map(|(ip, mac)| (*ip, *mac))
    }

    /// Handles a host at its place `at` that announces an address as its own. A dispute needs
    /// [`Hosts::handle_address_timeout`] at its question's `due`, and after
    /// [`AddressVerdict::Defended`] at [`Hosts::dispute_due`].
    pub(in crate::controller) fn tell(
        &mut self,
        now: Instant,
        mac: MacAddr,
        at: Location,
        ip: IpAddr,
    ) -> AddressVerdict {
        self.now = now;
        if self.detail(mac).is_none() {
            return AddressVerdict::NoRoom;
        }
        match self.by_ip(ip) {
            Some(owner) if owner == mac => {
                self.own(now, mac, ip);
                self.owners.defended(now, ip)
            }
            Some(owner) => match self.place(owner) {
                Some(home) => self.claim_ip(now, (mac, at), ip, (owner, home)),
                None if self.give(now, ip, mac) => AddressVerdict::Taken { from: owner },
                None => AddressVerdict::TooMany,
            },
            None if self.own(now, mac, ip) => AddressVerdict::New,
            None => AddressVerdict::TooMany,
        }
    }

    /// Forgets a host with the Ethernet address of the gateway, and the hosts that own its IP
    /// addresses.
    pub(in crate::controller) fn reserve(&mut self, mac: MacAddr, ips: &[IpAddr]) {
        for ip in ips {
            self.owners.disputes.remove(ip);
            self.disown(*ip);
        }
        if self.is_known(mac) {
            self.forget(mac, self.place(mac));
        }
    }

    /// Notes whether a host reports that it is a router. Hosts stop using a router if an answer
    /// says that it is not one (RFC 4861, 7.2.5). So routers, and hosts that have not reported that
    /// they are none, answer questions for their IPv6 addresses themselves.
    pub(in crate::controller) fn note_router(&mut self, mac: MacAddr, is_router: bool) {
        let no_routers = &mut self.owners.no_routers;
        let is_news = match is_router {
            true => no_routers.remove(&mac),
            false => self.details.contains(mac) && no_routers.insert(mac),
        };
        if is_news {
            self.news.note(mac);
            for ip in self.ips(mac) {
                self.owners.publish(ip);
            }
        }
    }

    /// When the dispute over an address is examined next.
    pub(in crate::controller) fn dispute_due(&self, ip: IpAddr) -> Option<Instant> {
        self.owners.disputes.get(&ip).map(|dispute| dispute.due)
    }

    /// Handles a dispute over an address that is due. `heard_since` is as in
    /// [`Hosts::handle_timeout`].
    pub(in crate::controller) fn handle_address_timeout(
        &mut self,
        now: Instant,
        ip: IpAddr,
        heard_since: impl Fn(Location) -> Option<Instant>,
    ) -> Option<AddressAnswer> {
        self.now = now;
        let owner = self.by_ip(ip);
        let home = owner.and_then(|owner| self.place(owner));
        let dispute = self.owners.disputes.get_mut(&ip)?;
        if dispute.due > now {
            return None;
        }
        let (claimant, at) = (dispute.claimant, dispute.at);
        let state = &mut dispute.state;
        if let (
            State::Asking {
                home: asked,
                probes_left,
            },
            Some(owner),
        ) = (state, owner)
        {
            if let Some(home) = home.filter(|home| home != asked) {
                // The owner's silence at another place does not count.
                (*asked, *probes_left) = (home, PROBES);
            }
            let due = dispute.due;
            let counts = home.is_none_or(|home| is_whole_silence(due, heard_since(home)));
            if let Some(home) = home.filter(|_| *probes_left > 0 || !counts) {
                *probes_left -= u32::from(counts);
                dispute.due = now + PROBE_INTERVAL;
                return Some(AddressAnswer::Ask(AddressQuestion {
                    ip,
                    owner,
                    home,
                    due: dispute.due,
                }));
            }
            self.owners.end_dispute(ip);
            let is_there = self.place(claimant) == Some(at);
            return (is_there && self.give(now, ip, claimant)).then_some(AddressAnswer::Moved {
                from: owner,
                to: claimant,
            });
        }
        self.owners.end_dispute(ip);
        None
    }

    fn claim_ip(
        &mut self,
        now: Instant,
        (mac, at): (MacAddr, Location),
        ip: IpAddr,
        (owner, home): (MacAddr, Location),
    ) -> AddressVerdict {
        let owners = &mut self.owners;
        if let Some(dispute) = owners.disputes.get(&ip)
            && (dispute.due > now || matches!(dispute.state, State::Asking { .. }))
        {
            return match dispute.state {
                State::Asking { .. } => AddressVerdict::Contested { ask: None },
                State::Rejected => AddressVerdict::Rejected {
                    owner,
                    alarm: owners.may_alarm(now, at),
                },
            };
        }
        let by_port = owners.disputes.values().filter(|other| other.at == at);
        if owners.disputes.len() >= DISPUTES_MAX || by_port.count() >= DISPUTES_PER_PORT_MAX {
            let alarm = owners.may_alarm(now, at);
            return AddressVerdict::Rejected { owner, alarm };
        }
        let due = now + PROBE_INTERVAL;
        let dispute = Dispute {
            claimant: mac,
            at,
            state: State::Asking {
                home,
                probes_left: PROBES - 1,
            },
            due,
        };
        owners.disputes.insert(ip, dispute);
        owners.publish(ip);
        AddressVerdict::Contested {
            ask: Some(AddressQuestion {
                ip,
                owner,
                home,
                due,
            }),
        }
    }

    /// Moves an address to another host. Returns false if that host has no room for it; no host
    /// owns it then.
    fn give(&mut self, now: Instant, ip: IpAddr, to: MacAddr) -> bool {
        self.disown(ip);
        self.own(now, to, ip)
    }

    pub(super) fn disown(&mut self, ip: IpAddr) {
        let owner = self.owners.by_ip.remove(&ip);
        owner.into_iter().for_each(|mac| self.news.note(mac));
        self.owners.publish(ip);
        if let Some(detail) = owner.and_then(|owner| self.details.get_mut(&owner)) {
            detail.ips.retain(|owned| owned.ip != ip);
        }
    }

    /// Notes an address that this host has just announced. Returns false if there is no room for
    /// it.
    pub(super) fn own(&mut self, now: Instant, mac: MacAddr, ip: IpAddr) -> bool {
        let Some(detail) = self.detail(mac) else {
            return false;
        };
        let owned = Owned { ip, told_at: now };
        let known = detail.ips.iter().position(|owned| owned.ip == ip);
        if let Some(at) = known {
            detail.ips.remove(at);
            detail.ips.push(owned);
            return true;
        }
        let like = |owned: &&Owned| owned.ip.is_ipv4() == ip.is_ipv4();
        let is_full = detail.ips.iter().filter(like).count() >= IPS_MAX;
        let kept = if is_full { STALE } else { EXPIRED };
        // The first address was announced the longest ago.
        let oldest = detail.ips.iter().find(like);
        let gone = oldest.filter(|oldest| now.since(oldest.told_at) >= kept);
        let gone = gone.map(|oldest| oldest.ip);
        if is_full && gone.is_none() {
            return false;
        }
        detail.ips.push(owned);
        if let Some(gone) = gone {
            self.disown(gone);
        }
        // Claims are against the former owner of the address.
        self.owners.by_ip.insert(ip, mac);
        self.news.note(mac);
        self.owners.end_dispute(ip);
        true
    }
}

impl Owners {
    pub(super) fn new(seed: u64) -> Owners {
        Owners {
            by_ip: BTreeMap::new(),
            undisputed: Writer::new(seed),
            no_routers: BTreeSet::new(),
            disputes: BTreeMap::new(),
            alarmed_at: BTreeMap::new(),
        }
    }

    /// Forgets this host and its addresses.
    pub(super) fn forget(&mut self, mac: MacAddr, ips: impl Iterator<Item = IpAddr>) {
        self.no_routers.remove(&mac);
        for ip in ips {
            if self.by_ip.get(&ip) == Some(&mac) {
                self.by_ip.remove(&ip);
                self.publish(ip);
            }
        }
    }

    fn end_dispute(&mut self, ip: IpAddr) {
        self.disputes.remove(&ip);
        self.publish(ip);
    }

    /// Shows the edges the owner of an address, or no owner while the address is in question: then
    /// messages that name the address go to the controller.
    fn publish(&mut self, ip: IpAddr) {
        let dispute = self.disputes.get(&ip).map(|dispute| &dispute.state);
        let is_disputed = matches!(dispute, Some(State::Asking { .. }));
        match self.by_ip.get(&ip).filter(|_| !is_disputed) {
            Some(mac) => {
                let owner = Owner {
                    mac: *mac,
                    answers_itself: ip.is_ipv6() && !self.no_routers.contains(mac),
                };
                self.undisputed.set(ip, owner);
            }
            None => self.undisputed.remove(ip),
        }
    }

    /// Handles an address that its owner has just announced. Returns whether another host had
    /// claimed it.
    fn defended(&mut self, now: Instant, ip: IpAddr) -> AddressVerdict {
        let Some(dispute) = self.disputes.get_mut(&ip) else {
            return AddressVerdict::Known;
        };
        if matches!(dispute.state, State::Rejected) {
            return AddressVerdict::Known;
        }
        dispute.state = State::Rejected;
        dispute.due = now + REJECTED;
        let (claimant, at) = (dispute.claimant, dispute.at);
        self.publish(ip);
        let alarm = self.may_alarm(now, at);
        AddressVerdict::Defended {
            claimant,
            at,
            alarm,
        }
    }

    fn may_alarm(&mut self, now: Instant, at: Location) -> bool {
        let is_over = |since: &Instant| now.since(*since) >= ALARM_INTERVAL;
        let may = self.alarmed_at.get(&at).is_none_or(is_over);
        if may {
            // Keeps no more times than there are ports that claim within the interval.
            self.alarmed_at.retain(|_, since| !is_over(since));
            self.alarmed_at.insert(at, now);
        }
        may
    }
}
