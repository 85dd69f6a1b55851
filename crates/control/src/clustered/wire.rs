//! The format in which members of a cluster write hosts and links to each other.
//!
//! A frame is its length in four bytes, one byte of flags, and records. All numbers have the most
//! significant byte first.
//!
//! | record | its first byte, and what follows |
//! | --- | --- |
//! | a link exists | 1, twice a datapath id (8) and a port (4): where LLDP left, and arrived |
//! | it does not | 2, the same |
//! | a host exists | 3, VLAN (2), MAC address (6), datapath id (8), port (4), then IP addresses |
//! | it does not | 4, VLAN (2), MAC address (6) |
//!
//! IP addresses are one byte, then each address: 4 or 6, and its bytes. The lowest bits of the
//! first byte count the addresses, and its highest bit means that the host is not a router.
//!
//! All input is checked: a reader accepts exactly the frames that a writer can write.

use std::net::IpAddr;

use openflow::{DatapathId, MacAddr, PortNo};

use crate::Location;
use crate::controller::known::{KnownHost, Link};
use crate::vlan::{HostKey, VlanId};

/// The maximum size of a frame without its length.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// A frame of this many bytes takes no further record.
const FULL: usize = 32 << 10;
/// The number of bytes of the length.
pub const LENGTH_BYTES: usize = 4;

/// The maximum number of IP addresses of one host.
const IPS_MAX: usize = 16;

const BEGINS: u8 = 1;
const ENDS: u8 = 2;
const NO_ROUTER: u8 = 0x80;

const LINK: u8 = 1;
const NO_LINK: u8 = 2;
const HOST: u8 = 3;
const NO_HOST: u8 = 4;

/// A host or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Host(HostKey),
    Link(Link),
}

/// The state of a host or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Link { link: Link, is_there: bool },
    Host(HostKey, Option<KnownHost>),
}

/// The contents of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Whether a whole copy begins: anything not in the copy is unknown to the sender.
    pub(super) begins: bool,
    /// Whether the copy is complete.
    pub(super) ends: bool,
    pub(super) records: Vec<Record>,
}

/// A frame that is being written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Writer {
        Writer(vec![0; LENGTH_BYTES + 1])
    }

    pub(super) fn set_begins(&mut self) {
        self.0[LENGTH_BYTES] |= BEGINS;
    }

    pub(super) fn set_ends(&mut self) {
        self.0[LENGTH_BYTES] |= ENDS;
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= FULL
    }

    /// Whether it has neither flags nor records.
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == LENGTH_BYTES + 1 && self.0[LENGTH_BYTES] == 0
    }

    pub(super) fn record(&mut self, record: &Record) {
        match record {
            Record::Link { link, is_there } => {
                self.0.push(if *is_there { LINK } else { NO_LINK });
                self.place(link.0);
                self.place(link.1);
            }
            Record::Host(host, None) => {
                self.0.push(NO_HOST);
                self.host(*host);
            }
            Record::Host(host, Some(known)) => {
                self.0.push(HOST);
                self.host(*host);
                self.place(known.at);
                let ips = &known.ips[..known.ips.len().min(IPS_MAX)];
                let no_router = if known.is_no_router { NO_ROUTER } else { 0 };
                self.0.push(ips.len() as u8 | no_router);
                for ip in ips {
                    match ip {
                        IpAddr::V4(ip) => {
                            self.0.push(4);
                            self.0.extend(ip.octets());
                        }
                        IpAddr::V6(ip) => {
                            self.0.push(6);
                            self.0.extend(ip.octets());
                        }
                    }
                }
            }
        }
    }

    fn host(&mut self, host: HostKey) {
        self.0.extend(host.vlan.number().to_be_bytes());
        self.0.extend(host.mac.0);
    }

    fn place(&mut self, at: Location) {
        self.0.extend(at.dpid.0.to_be_bytes());
        self.0.extend(at.port.0.to_be_bytes());
    }

    /// The frame, with its length.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() - LENGTH_BYTES) as u32;
        self.0[..LENGTH_BYTES].copy_from_slice(&len.to_be_bytes());
        self.0
    }
}

impl Batch {
    /// Reads a frame without its length. Returns `None` if anything in it is wrong.
    pub fn read(frame: &[u8]) -> Option<Batch> {
        if frame.len() > FRAME_BYTES_MAX {
            return None;
        }
        let mut left = Left(frame);
        let [flags] = left.take::<1>()?;
        if flags & !(BEGINS | ENDS) != 0 {
            return None;
        }
        let mut records = Vec::new();
        while !left.0.is_empty() {
            records.push(left.record()?);
        }
        Some(Batch {
            begins: flags & BEGINS != 0,
            ends: flags & ENDS != 0,
            records,
        })
    }

    /// Its share of the receiver's budget, in records: at the beginning and the end of a copy, the
    /// receiver looks at everything that it knows.
    pub fn cost(&self) -> usize {
        let looks_at_all = self.begins || self.ends;
        1 + self.records.len() + if looks_at_all { 20_000 } else { 0 }
    }

    /// The number of hosts and links in it.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has no hosts or links.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Bytes that are not read yet.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk::<N>()?;
        self.0 = left;
        Some(*taken)
    }

    fn record(&mut self) -> Option<Record> {
        let [kind] = self.take::<1>()?;
        match kind {
            LINK | NO_LINK => {
                let link = (self.place()?, self.place()?);
                let is_there = kind == LINK;
                (link.0 != link.1).then_some(Record::Link { link, is_there })
            }
            HOST => {
                let (host, at) = (self.host()?, self.place()?);
                let [about] = self.take::<1>()?;
                let count = usize::from(about & !NO_ROUTER);
                let is_no_router = about & NO_ROUTER != 0;
                if count > IPS_MAX {
                    return None;
                }
                let ips: Option<Vec<IpAddr>> = (0..count).map(|_| self.ip()).collect();
                let ips = ips?;
                let known = KnownHost {
                    at,
                    is_no_router,
                    ips,
                };
                Some(Record::Host(host, Some(known)))
            }
            NO_HOST => Some(Record::Host(self.host()?, None)),
            _ => None,
        }
    }

    fn host(&mut self) -> Option<HostKey> {
        let vlan = match u16::from_be_bytes(self.take()?) {
            0 => VlanId::NONE,
            id => VlanId::new(id)?,
        };
        let mac = MacAddr(self.take()?);
        let is_a_hosts = !mac.is_multicast() && mac != MacAddr::default();
        is_a_hosts.then_some(HostKey { vlan, mac })
    }

    fn place(&mut self) -> Option<Location> {
        let dpid = DatapathId(u64::from_be_bytes(self.take()?));
        let port = PortNo(u32::from_be_bytes(self.take()?));
        port.is_ordinary().then_some(Location { dpid, port })
    }

    fn ip(&mut self) -> Option<IpAddr> {
        let ip = match self.take::<1>()? {
            [4] => IpAddr::from(self.take::<4>()?),
            [6] => IpAddr::from(self.take::<16>()?),
            _ => return None,
        };
        (!ip.is_unspecified() && !ip.is_multicast()).then_some(ip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places() -> impl Strategy<Value = Location> {
        (any::<u64>(), 1..PortNo::MAX.0)
            .prop_map(|(dpid, port)| Location::new(DatapathId(dpid), PortNo(port)))
    }

    fn hosts() -> impl Strategy<Value = HostKey> {
        (0..=4094u16, 1..1u64 << 40).prop_map(|(vlan, mac)| HostKey {
            vlan: VlanId::new(vlan).unwrap_or_default(),
            mac: MacAddr::from_u64(mac),
        })
    }

    fn ips() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (1..0xe000_0000u32).prop_map(|ip| IpAddr::V4(ip.into())),
            (1..(0xff00u128 << 112)).prop_map(|ip| IpAddr::V6(ip.into())),
        ]
    }

    fn known() -> impl Strategy<Value = KnownHost> {
        let ips = proptest::collection::vec(ips(), 0..=IPS_MAX);
        (places(), any::<bool>(), ips).prop_map(|(at, is_no_router, ips)| KnownHost {
            at,
            is_no_router,
            ips,
        })
    }

    fn records() -> impl Strategy<Value = Record> {
        let of_link = (places(), places(), any::<bool>());
        let of_link = of_link.prop_filter("two ports", |(from, to, _)| from != to);
        prop_oneof![
            of_link.prop_map(|(from, to, is_there)| Record::Link {
                link: (from, to),
                is_there
            }),
            (hosts(), proptest::option::of(known()))
                .prop_map(|(host, known)| Record::Host(host, known)),
        ]
    }

    fn batches() -> impl Strategy<Value = Batch> {
        let records = proptest::collection::vec(records(), 0..20);
        (any::<bool>(), any::<bool>(), records).prop_map(|(begins, ends, records)| Batch {
            begins,
            ends,
            records,
        })
    }

    fn written(batch: &Batch) -> Vec<u8> {
        let mut writer = Writer::new();
        if batch.begins {
            writer.set_begins();
        }
        if batch.ends {
            writer.set_ends();
        }
        batch
            .records
            .iter()
            .for_each(|record| writer.record(record));
        writer.finish()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(batch in batches()) {
            let bytes = written(&batch);
            let (len, frame) = bytes.split_first_chunk::<LENGTH_BYTES>().unwrap();
            prop_assert_eq!(u32::from_be_bytes(*len) as usize, frame.len());
            prop_assert_eq!(Batch::read(frame), Some(batch));
        }

        /// Truncated frames, frames with changed bytes, and arbitrary bytes are refused, or are
        /// frames that a writer writes.
        #[test]
        fn what_is_read_was_checked(
            batch in batches(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = written(&batch)[LENGTH_BYTES..].to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let cut = &bytes[..cut.index(bytes.len())];
            for frame in [&bytes[..], cut, &noise] {
                let Some(read) = Batch::read(frame) else {
                    continue;
                };
                prop_assert_eq!(&written(&read)[LENGTH_BYTES..], frame);
                for record in &read.records {
                    if let Record::Host(host, known) = record {
                        prop_assert!(!host.mac.is_multicast() && host.vlan <= VlanId::MAX);
                        let is_ordinary = |known: &KnownHost| known.at.port.is_ordinary();
                        prop_assert!(known.as_ref().is_none_or(is_ordinary));
                    }
                }
            }
        }
    }

    #[test]
    fn hosts_that_cannot_be_are_refused() {
        let place = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
        let frame = |vlan: u16, mac: [u8; 6], place: &[u8], ips: &[u8]| {
            let vlan = vlan.to_be_bytes();
            Batch::read(&[&[0, HOST][..], &vlan, &mac, place, ips].concat())
        };
        let mac = [2, 0, 0, 0, 0, 1];
        assert!(frame(4094, mac, &place, &[1, 4, 10, 0, 0, 1]).is_some());
        assert_eq!(frame(4095, mac, &place, &[0]), None, "VLAN");
        assert_eq!(frame(0, [3, 0, 0, 0, 0, 1], &place, &[0]), None, "a group");
        assert_eq!(frame(0, [0; 6], &place, &[0]), None, "no address");
        let flood = [&place[..8], &PortNo::FLOOD.0.to_be_bytes()[..]].concat();
        assert_eq!(frame(0, mac, &flood, &[0]), None, "port");
        assert_eq!(frame(0, mac, &place, &[17]), None, "too many addresses");
        assert_eq!(frame(0, mac, &place, &[1, 4, 224, 0, 0, 1]), None, "group");
        assert_eq!(frame(0, mac, &place, &[1, 5, 10, 0, 0, 1]), None, "kind");
        assert_eq!(frame(0, mac, &place, &[0, 9]), None, "another record");
        let long = vec![0; FRAME_BYTES_MAX + 1];
        assert_eq!(Batch::read(&long), None);
    }
}
