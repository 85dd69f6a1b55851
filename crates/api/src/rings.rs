//! Packets of taps for the readers of each owner: a ring of the last packets, each with its number.
//!
//! A packet over its tap's rate takes a number too. So a gap between two numbers shows a reader how
//! many packets were left out, for whatever reason. Nothing waits for a reader: a full ring drops
//! its oldest packets ([`PACKETS_MAX`], [`BYTES_MAX`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use control::Location;
use control::tap::{Sink, Tapped};
use tokio::sync::watch;

use super::exposition::{Family, Value};
use super::lock;

pub const PACKETS_MAX: usize = 4096;
pub const BYTES_MAX: usize = 4 << 20;
/// The bytes that a kept packet costs in addition to its data.
const PACKET_COST: usize = 128;

/// Numbers reserved for each second, to keep the numbers of two processes apart.
const PER_SECOND: u64 = 1 << 20;

/// The rings of all owners of taps.
#[derive(Default)]
pub struct Rings(Mutex<BTreeMap<Arc<str>, Arc<Ring>>>);

/// The packets of one owner.
pub struct Ring {
    kept: Mutex<Kept>,
    last: watch::Sender<u64>,
}

struct Kept {
    packets: VecDeque<Arc<Packet>>,
    bytes: usize,
    /// The number before the first packet of this ring.
    base: u64,
    last: u64,
    /// The last number given to any reader.
    read: u64,
    counts: Counts,
    over: Option<Over>,
    packets_max: usize,
    bytes_max: usize,
}

/// Packets of an owner since its first tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    /// Packets over a tap's rate, and packets dropped before any reader had them.
    pub shed: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    pub seq: u64,
    pub tap: Arc<str>,
    pub at: Location,
    pub total_len: u16,
    pub data: Bytes,
    pub time: SystemTime,
}

/// Some packets for a reader.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    pub packets: Vec<Arc<Packet>>,
    /// Every number up to this one is in `packets` or was left out.
    pub until: u64,
    /// Set if no more packets follow.
    pub over: Option<Over>,
}

/// The reason why an owner has no taps any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    Ended,
    /// Another member of the cluster receives the switches' packets; its name if known.
    Moved(Option<String>),
}

impl Rings {
    /// Returns a sink that takes packets of taps whose owners have rings.
    pub fn sink(self: &Arc<Rings>) -> Sink {
        let rings = self.clone();
        Box::new(move |tapped| rings.take(tapped))
    }

    fn take(&self, tapped: Tapped) {
        let owner = match &tapped {
            Tapped::Packet { tap, .. } | Tapped::Shed(tap) => &tap.owner,
        };
        let Some(ring) = self.of(owner) else {
            return;
        };
        ring.take(tapped);
    }

    /// Makes a ring for an owner, unless it has one.
    pub fn begin(&self, owner: &Arc<str>) {
        let mut rings = lock(&self.0);
        rings.entry(owner.clone()).or_insert_with(|| {
            let time = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = time.map_or(0, |time| time.as_secs()).max(1);
            Arc::new(Ring::new(seconds.saturating_mul(PER_SECOND)))
        });
    }

    /// Ends the ring of an owner that has no taps any more, and the ring's readers.
    pub fn end(&self, owner: &str) {
        if let Some(ring) = lock(&self.0).remove(owner) {
            ring.end(Over::Ended);
        }
    }

    /// Ends the rings of all owners: another cluster member has the packets of their taps now.
    pub fn end_all(&self, served_by: Option<&str>) {
        for ring in std::mem::take(&mut *lock(&self.0)).into_values() {
            ring.end(Over::Moved(served_by.map(str::to_owned)));
        }
    }

    pub fn of(&self, owner: &str) -> Option<Arc<Ring>> {
        lock(&self.0).get(owner).cloned()
    }

    /// Whether somebody reads the packets of an owner.
    pub fn is_read(&self, owner: &str) -> bool {
        let ring = self.of(owner);
        ring.is_some_and(|ring| ring.last.receiver_count() > 0)
    }

    pub fn families(&self) -> Vec<Family> {
        let rings = lock(&self.0).clone();
        let counts = rings
            .iter()
            .map(|(owner, ring)| (vec![("owner", owner.to_string())], ring.counts()));
        let counts: Vec<_> = counts.collect();
        let family = |name, help, value: &dyn Fn(&Counts) -> u64| {
            let samples = counts.iter();
            let samples = samples.map(|(labels, of)| (labels.clone(), Value::Count(value(of))));
            Family {
                name,
                help,
                samples: samples.collect(),
            }
        };
        vec![
            family(
                "auster_tap_packets",
                "Packets for the taps of an owner",
                &|counts| counts.packets,
            ),
            family(
                "auster_tap_shed",
                "Packets over the rate of a tap, and packets that went before they were read",
                &|counts| counts.shed,
            ),
        ]
    }
}

impl Ring {
    fn new(base: u64) -> Ring {
        Ring::with_bounds(base, PACKETS_MAX, BYTES_MAX)
    }

    fn with_bounds(base: u64, packets_max: usize, bytes_max: usize) -> Ring {
        Ring {
            kept: Mutex::new(Kept {
                packets: VecDeque::new(),
                bytes: 0,
                base,
                last: base,
                read: base,
                counts: Counts::default(),
                over: None,
                packets_max,
                bytes_max,
            }),
            last: watch::channel(base).0,
        }
    }

    fn end(&self, over: Over) {
        lock(&self.kept).over = Some(over);
        self.last.send_modify(|_| {});
    }

    fn take(&self, tapped: Tapped) {
        let last = lock(&self.kept).take(tapped, SystemTime::now());
        self.last.send_replace(last);
    }

    /// Changes with every packet.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The number of the last packet, and the one before the first packet of this ring.
    pub fn numbers(&self) -> (u64, u64) {
        let kept = lock(&self.kept);
        (kept.last, kept.base)
    }

    pub fn counts(&self) -> Counts {
        lock(&self.kept).counts
    }

    /// The packets after number `since`, at most `count_max` packets and `bytes_max` bytes, but at
    /// least one packet if there is any.
    pub fn after(&self, since: u64, count_max: usize, bytes_max: usize) -> Batch {
        lock(&self.kept).after(since, count_max, bytes_max)
    }
}

impl Kept {
    fn take(&mut self, tapped: Tapped, time: SystemTime) -> u64 {
        self.last += 1;
        self.counts.packets += 1;
        let Tapped::Packet {
            tap,
            at,
            total_len,
            data,
        } = tapped
        else {
            self.counts.shed += 1;
            return self.last;
        };
        self.bytes += data.len() + PACKET_COST;
        self.packets.push_back(Arc::new(Packet {
            seq: self.last,
            tap: tap.name,
            at,
            total_len,
            data,
            time,
        }));
        while (self.packets.len() > self.packets_max || self.bytes > self.bytes_max)
            && let Some(oldest) = self.packets.pop_front()
        {
            self.bytes -= oldest.data.len() + PACKET_COST;
            self.counts.shed += u64::from(oldest.seq > self.read);
        }
        self.last
    }

    fn after(&mut self, since: u64, count_max: usize, bytes_max: usize) -> Batch {
        let first = self.packets.partition_point(|packet| packet.seq <= since);
        let mut bytes = 0;
        let fits = |packet: &&Arc<Packet>| {
            let is_first = bytes == 0;
            bytes += packet.data.len() + PACKET_COST;
            is_first || bytes <= bytes_max
        };
        let behind = self.packets.range(first..);
        let packets: Vec<Arc<Packet>> = behind.take(count_max).take_while(fits).cloned().collect();
        let is_whole = first + packets.len() == self.packets.len();
        let last = packets.last().map_or(since, |packet| packet.seq);
        let until = if is_whole { self.last.max(last) } else { last };
        self.read = self.read.max(until);
        Batch {
            packets,
            until,
            over: self.over.clone().filter(|_| is_whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use control::tap::TapId;
    use openflow::{DatapathId, PortNo};

    use super::*;

    fn id() -> TapId {
        TapId {
            owner: "a".into(),
            name: "arp".into(),
        }
    }

    fn packet(len: usize) -> Tapped {
        Tapped::Packet {
            tap: id(),
            at: Location::new(DatapathId(1), PortNo(2)),
            total_len: 60,
            data: vec![0; len].into(),
        }
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        batch.packets.iter().map(|packet| packet.seq).collect()
    }

    #[test]
    fn what_is_left_out_is_a_gap_between_numbers() {
        let ring = Ring::with_bounds(10, 3, 1 << 20);
        ring.take(packet(60));
        ring.take(Tapped::Shed(id()));
        ring.take(packet(60));
        ring.take(Tapped::Shed(id()));
        let batch = ring.after(10, 100, 1 << 20);
        assert_eq!((numbers(&batch), batch.until), (vec![11, 13], 14));
        let batch = ring.after(10, 1, 1 << 20);
        assert_eq!((numbers(&batch), batch.until), (vec![11], 11));
        assert_eq!(ring.after(14, 100, 1 << 20).until, 14);
        // A reader gets all of these but two.
        for _ in 0..5 {
            ring.take(packet(60));
        }
        let batch = ring.after(14, 100, 1 << 20);
        assert_eq!((numbers(&batch), batch.until), (vec![17, 18, 19], 19));
        let counts = Counts {
            packets: 9,
            shed: 4,
        };
        assert_eq!(ring.counts(), counts);
    }

    #[test]
    fn a_ring_is_bounded_in_bytes_and_a_batch_has_one_packet_at_least() {
        let ring = Ring::with_bounds(0, 100, 5000);
        for _ in 0..10 {
            ring.take(packet(2000));
        }
        let batch = ring.after(0, 100, 1);
        assert_eq!((numbers(&batch), batch.until), (vec![9], 9));
        assert!(lock(&ring.kept).bytes <= 5000);
    }

    #[test]
    fn an_owner_has_a_ring_until_its_end_and_its_readers_are_given_the_rest() {
        let rings = Arc::new(Rings::default());
        let mut sink = rings.sink();
        sink(packet(60));
        assert!(rings.of("a").is_none());
        rings.begin(&"a".into());
        let ring = rings.of("a").expect("it has begun");
        let since = ring.numbers().0;
        sink(packet(60));
        rings.begin(&"a".into());
        rings.end("a");
        sink(packet(60));
        let batch = ring.after(since, 100, 1 << 20);
        assert_eq!((batch.packets.len(), batch.over), (1, Some(Over::Ended)));
        assert!(rings.of("a").is_none());
    }

    #[test]
    fn all_rings_end_when_another_member_has_the_packets() {
        let rings = Arc::new(Rings::default());
        let mut sink = rings.sink();
        let both = ["a", "b"].map(|owner| {
            rings.begin(&owner.into());
            rings.of(owner).expect("it has begun")
        });
        let since = both[0].numbers().0;
        sink(packet(60));
        rings.end_all(Some("c"));
        let moved = Some(Over::Moved(Some("c".to_owned())));
        let batch = both[0].after(since, 100, 1 << 20);
        assert_eq!((batch.packets.len(), &batch.over), (1, &moved));
        let rest = both[1].after(both[1].numbers().1, 100, 1 << 20);
        assert_eq!((rest.packets.len(), &rest.over), (0, &moved));
        assert!(rings.of("a").is_none() && rings.of("b").is_none());
    }
}
