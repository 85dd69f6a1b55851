//! Hosts as another member of a cluster knows them.

use std::net::IpAddr;

use clock::Instant;
use openflow::MacAddr;

use crate::Location;

use super::Hosts;
use crate::controller::known::KnownHost;

impl Hosts {
    /// Records from now on which hosts change.
    pub(in crate::controller) fn want_news(&mut self) {
        self.news.want();
    }

    /// Passes the hosts that may have changed to `each`. Returns whether these are all.
    pub(in crate::controller) fn take_news(&mut self, each: impl FnMut(MacAddr)) -> bool {
        self.news.take(each)
    }

    pub(in crate::controller) fn known(&self, mac: MacAddr) -> Option<KnownHost> {
        let at = self.places.place(mac)?;
        let detail = self.details.get(&mac);
        let ips = detail.into_iter().flat_map(|detail| &detail.ips);
        let ips: Vec<IpAddr> = ips.map(|owned| owned.ip).collect();
        Some(KnownHost {
            at,
            // This flag is about the addresses.
            is_no_router: !ips.is_empty() && self.is_no_router(mac),
            ips,
        })
    }

    /// Whether any host has its place at this port.
    pub(in crate::controller) fn has_place(&self, at: Location) -> bool {
        self.places.has_place(at)
    }

    /// The host with this number, unless it is marked.
    pub(in crate::controller) fn unmarked(&self, number: usize) -> Option<MacAddr> {
        self.places.unmarked(number)
    }

    /// Takes the mark off the host with this number.
    pub(in crate::controller) fn unmark(&mut self, number: usize) {
        self.places.unmark(number);
    }

    /// Places a host where another member reports it, whatever was known before, and marks it.
    /// Returns false if there is no room for it.
    pub(in crate::controller) fn learn(
        &mut self,
        now: Instant,
        mac: MacAddr,
        known: &KnownHost,
    ) -> bool {
        self.now = now;
        let at = known.at;
        let is_placed = if self.places.place(mac) == Some(at) {
            self.places.renew(now, mac);
            if let Some(detail) = self.details.get_mut(&mac) {
                (detail.contest, detail.lapsed) = (None, None);
            }
            true
        } else if self.is_known(mac) {
            self.settle(mac, at, |_, ()| false)
        } else {
            self.insert(mac, at, false, |_, ()| false)
        };
        if !is_placed {
            return false;
        }
        self.places.set_heard(mac, false);
        self.places.mark(mac);
        for ip in self.ips(mac) {
            if !known.ips.contains(&ip) {
                self.disown(ip);
            }
        }
        for ip in &known.ips {
            let owner = self.by_ip(*ip);
            if owner.is_some_and(|owner| owner != mac) {
                self.disown(*ip);
            }
            if owner != Some(mac) {
                self.own(now, mac, *ip);
            }
        }
        self.note_router(mac, !known.is_no_router);
        true
    }

    /// Forgets a host that another member does not know.
    pub(in crate::controller) fn unlearn(&mut self, now: Instant, mac: MacAddr) {
        self.now = now;
        if self.is_known(mac) {
            self.forget(mac, self.place(mac));
        }
    }
}
