//! Datagrams of agents that speak UDP, such as SNMP: each is carried by itself, unchanged, or lost.
//!
//! At the listening end, every local peer has a number, under which its datagrams go to the other
//! end. The other end has a separate socket for each number, so that the agent's answers return
//! under the same number to the peer that asked. The number's parity identifies the peer's end. No
//! prior agreement is needed: each datagram names its agent, so no datagram waits for another.
//!
//! On the wire, with the integers of [`super::wire`]: `peer, 0x3fff, length of the name, name`,
//! then the payload up to the datagram's end. No lane has the second number, so the datagram cannot
//! be mistaken for a copy of a record. An answer has an empty name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Buf, Bytes, BytesMut};
use clock::{Duration, Instant};

use super::kind::{Kind, PerKind};
use super::wire::{Side, TEXT_BYTES_MAX, WireError, cut, put, take, text};

/// Maximum number of peers of one end, and of peers of the other end. A further peer replaces the
/// one that has been silent for the longest.
pub const PEERS_MAX: usize = 1024;
/// How long a peer may be silent in both directions before it is forgotten.
pub const PEER_IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum payload of UDP over IPv4: 65,535 less both headers.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;
/// Maximum number of datagrams that wait for the connection; beyond, the newest is dropped.
pub const WAITING_MAX: usize = 1024;
pub const WAITING_BYTES_MAX: usize = 256 * 1024;

/// The number in place of a lane's number.
const NO_LANE: u64 = 0x3fff;

/// One datagram of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDatagram {
    pub peer: PeerId,
    /// The agent that receives it; `None` for an answer, which goes to the peer.
    pub agent: Option<String>,
    pub payload: Bytes,
}

/// A local peer of one of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

impl AgentDatagram {
    pub fn encode(&self) -> Bytes {
        let name = cut(self.agent.as_deref().unwrap_or_default());
        let mut out = BytesMut::with_capacity(16 + name.len() + self.payload.len());
        put(&mut out, self.peer.0);
        put(&mut out, NO_LANE);
        put(&mut out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&self.payload);
        out.freeze()
    }

    /// Reads `datagram`, or returns `None` when it is the copy of a record.
    pub fn take(mut datagram: Bytes) -> Result<Option<AgentDatagram>, WireError> {
        let short = WireError("a datagram that ends early");
        let mut at = &datagram[..];
        let peer = PeerId(take(&mut at).ok_or(short)?);
        if take(&mut at).ok_or(short)? != NO_LANE {
            return Ok(None);
        }
        let len = take(&mut at).ok_or(short)?;
        if len > TEXT_BYTES_MAX as u64 {
            return Err(WireError("an agent's name above 255 bytes"));
        }
        let (name, rest) = at.split_at_checked(len as usize).ok_or(short)?;
        if rest.len() > PAYLOAD_BYTES_MAX {
            return Err(WireError("a datagram longer than UDP's"));
        }
        let agent = (!name.is_empty()).then(|| text(name));
        let head = datagram.len() - rest.len();
        datagram.advance(head);
        Ok(Some(AgentDatagram {
            peer,
            agent,
            payload: datagram,
        }))
    }
}

/// Numbers for the local peers of one end.
#[derive(Debug)]
pub struct Numbers<L> {
    next: u64,
    of: BTreeMap<L, PeerId>,
    locals: Recent<PeerId, L>,
}

impl<L: Clone + Ord> Numbers<L> {
    pub fn new(side: Side) -> Numbers<L> {
        Numbers {
            next: u64::from(side == Side::Controller),
            of: BTreeMap::new(),
            locals: Recent::new(PEERS_MAX),
        }
    }

    /// The number assigned to `local`, which has sent a datagram, and the count of peers evicted
    /// for it.
    pub fn number_of(&mut self, now: Instant, local: L) -> (PeerId, usize) {
        if let Some(id) = self.of.get(&local).copied() {
            self.locals.touch(now, &id);
            return (id, 0);
        }
        let id = PeerId(self.next);
        self.next += 2;
        self.of.insert(local.clone(), id);
        let evicted = self.locals.insert(now, id, local);
        (id, self.forget(evicted))
    }

    /// The peer with that number, to which a datagram is sent now.
    pub fn local_of(&mut self, now: Instant, id: PeerId) -> Option<L> {
        self.locals.touch(now, &id).map(|local| local.clone())
    }

    pub fn is_own(&self, id: PeerId) -> bool {
        id.0 % 2 == self.next % 2
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        let silent = self.locals.take_silent(now);
        self.forget(silent);
    }

    pub fn len(&self) -> usize {
        self.of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    fn forget(&mut self, gone: impl IntoIterator<Item = (PeerId, L)>) -> usize {
        let gone = gone.into_iter();
        gone.map(|(_, local)| self.of.remove(&local)).count()
    }
}

/// A bounded table that evicts the entry untouched for the longest.
#[derive(Debug)]
pub struct Recent<K, V> {
    entries_max: usize,
    entries: BTreeMap<K, (Instant, V)>,
    by_time: BTreeSet<(Instant, K)>,
}

impl<K: Copy + Ord, V> Recent<K, V> {
    pub fn new(entries_max: usize) -> Recent<K, V> {
        Recent {
            entries_max,
            entries: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// Returns the value of `key`, and marks it as used now.
    pub fn touch(&mut self, now: Instant, key: &K) -> Option<&mut V> {
        let (at, value) = self.entries.get_mut(key)?;
        self.by_time.remove(&(*at, *key));
        *at = now;
        self.by_time.insert((now, *key));
        Some(value)
    }

    /// Inserts a value. Returns the entry that was evicted for it.
    pub fn insert(&mut self, now: Instant, key: K, value: V) -> Option<(K, V)> {
        let before = self.remove(&key).map(|value| (key, value));
        let is_full = self.entries.len() >= self.entries_max;
        let oldest = self.by_time.first().filter(|_| is_full).copied();
        let evicted = oldest.and_then(|(_, key)| Some((key, self.remove(&key)?)));
        self.by_time.insert((now, key));
        self.entries.insert(key, (now, value));
        before.or(evicted)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (at, value) = self.entries.remove(key)?;
        self.by_time.remove(&(at, *key));
        Some(value)
    }

    /// Removes and returns the entries that were not touched for [`PEER_IDLE_MAX`].
    pub fn take_silent(&mut self, now: Instant) -> Vec<(K, V)> {
        let mut silent = Vec::new();
        while let Some((at, key)) = self.by_time.first().copied()
            && at + PEER_IDLE_MAX <= now
        {
            silent.extend(self.remove(&key).map(|value| (key, value)));
        }
        silent
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Datagrams that wait for the connection, by class.
#[derive(Debug, Default)]
pub struct Waiting {
    queues: PerKind<VecDeque<Bytes>>,
    count: usize,
    bytes: usize,
}

impl Waiting {
    /// Queues a datagram. Returns false when there is no room.
    pub fn push(&mut self, kind: Kind, datagram: Bytes) -> bool {
        if self.count >= WAITING_MAX || self.bytes + datagram.len() > WAITING_BYTES_MAX {
            return false;
        }
        self.count += 1;
        self.bytes += datagram.len();
        self.queues.get_mut(kind).push_back(datagram);
        true
    }

    /// Takes the next datagram of the most urgent class that `is_wanted`.
    pub fn pop(&mut self, is_wanted: impl Fn(Kind) -> bool) -> Option<(Kind, Bytes)> {
        let wanted = Kind::ALL.into_iter().filter(|kind| is_wanted(*kind));
        let has_some = |kind: &Kind| !self.queues.get(*kind).is_empty();
        let kind = wanted.into_iter().find(has_some)?;
        let datagram = self.queues.get_mut(kind).pop_front()?;
        self.count -= 1;
        self.bytes -= datagram.len();
        Some((kind, datagram))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all datagrams. Returns their number.
    pub fn clear(&mut self) -> usize {
        std::mem::take(self).count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::copies::CopiedRecord;
    use super::super::wire::ChannelId;
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    fn datagram(agent: Option<&str>, payload: &'static [u8]) -> AgentDatagram {
        AgentDatagram {
            peer: PeerId(70_001),
            agent: agent.map(str::to_owned),
            payload: Bytes::from_static(payload),
        }
    }

    #[test]
    fn datagrams_come_back_whole_and_are_no_copies() {
        for sent in [
            datagram(Some("snmp"), b"get"),
            datagram(None, b"response"),
            datagram(Some("syslog"), b""),
        ] {
            let bytes = sent.encode();
            assert_eq!(AgentDatagram::take(bytes.clone()), Ok(Some(sent.clone())));
            let head = bytes.len() - sent.payload.len();
            for cut in 0..head {
                assert!(AgentDatagram::take(bytes.slice(..cut)).is_err(), "{cut}");
            }
        }
        let copy = CopiedRecord {
            channel: ChannelId(4),
            lane: sched::Lane::flow(255),
            place: 9,
            head: Bytes::from_static(b"\0\0"),
            body: Bytes::from_static(b"body"),
        };
        assert_eq!(AgentDatagram::take(copy.encode()), Ok(None));
    }

    #[test]
    fn what_udp_could_not_carry_is_refused() {
        let long = |len| AgentDatagram {
            payload: vec![0; len].into(),
            ..datagram(None, b"")
        };
        assert!(AgentDatagram::take(long(PAYLOAD_BYTES_MAX).encode()).is_ok());
        assert!(AgentDatagram::take(long(PAYLOAD_BYTES_MAX + 1).encode()).is_err());
    }

    #[test]
    fn silent_peers_are_forgotten_and_an_answer_keeps_one() {
        let mut numbers = Numbers::new(Side::Controller);
        let (silent, _) = numbers.number_of(at(0), "silent");
        let (answered, _) = numbers.number_of(at(0), "answered");
        assert!(numbers.is_own(silent) && !numbers.is_own(PeerId(silent.0 + 1)));
        assert_eq!(numbers.local_of(at(30), answered), Some("answered"));
        numbers.handle_timeout(at(60));
        assert_eq!(numbers.local_of(at(60), silent), None);
        assert_eq!(numbers.local_of(at(60), answered), Some("answered"));
        // A number is never reused: a late answer reaches no other peer.
        assert_ne!(numbers.number_of(at(61), "silent").0, silent);
    }

    #[test]
    fn the_urgent_class_leaves_first_and_what_is_too_much_is_refused() {
        let mut waiting = Waiting::default();
        assert!(waiting.push(Kind::Other, Bytes::from_static(b"log")));
        assert!(waiting.push(Kind::State, Bytes::from_static(b"trap")));
        let log = Some((Kind::Other, Bytes::from_static(b"log")));
        assert_eq!(waiting.pop(|kind| kind != Kind::State), log);
        let trap = Some((Kind::State, Bytes::from_static(b"trap")));
        assert_eq!(waiting.pop(|_| true), trap);
        assert_eq!(waiting.pop(|_| true), None);
        let long = Bytes::from(vec![0; WAITING_BYTES_MAX]);
        assert!(waiting.push(Kind::Echo, long));
        assert!(!waiting.push(Kind::Echo, Bytes::from_static(b"x")));
        assert_eq!(waiting.clear(), 1);
        for n in 0..=WAITING_MAX {
            assert_eq!(waiting.push(Kind::Echo, Bytes::new()), n < WAITING_MAX);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_peer_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = AgentDatagram::take(bytes.into());
        }

        /// Any peer may speak and be answered: an answer goes to the peer with the number, or to
        /// nobody.
        #[test]
        fn numbers_belong_to_one_peer_each_and_are_bounded(
            steps in proptest::collection::vec((0u64..20, 0u16..3000), 1..3000)
        ) {
            let mut numbers = Numbers::new(Side::Switch);
            let mut given = BTreeMap::new();
            let mut now = Instant::START;
            for (passed, local) in steps {
                now += Duration::from_millis(passed);
                let (id, evicted) = numbers.number_of(now, local);
                prop_assert!(numbers.is_own(id) && evicted <= 1);
                let before = given.insert(id, local);
                prop_assert!(before.is_none_or(|before| before == local));
                prop_assert!(numbers.len() <= PEERS_MAX);
                prop_assert_eq!(numbers.len(), numbers.locals.len());
                prop_assert_eq!(numbers.local_of(now, id), Some(local));
            }
            for (id, local) in given {
                let found = numbers.local_of(now, id);
                prop_assert!(found.is_none_or(|found| found == local));
            }
        }
    }
}
