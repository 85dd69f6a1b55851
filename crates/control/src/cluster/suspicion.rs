//! Tracks which peers are heard, and which are suspected by more than this member.
//!
//! A peer is suspected after three missed heartbeats, or at once when its connection is reset. This
//! member asks the others whether they hear the peer: a majority of those that answer within 50 ms
//! confirms the suspicion. Without others, a switch that still answers confirms that this member is
//! not the one that is cut off.
//!
//! Only the member that dials a connection sends on it. A member may therefore be heard and hear
//! nobody itself, for example if a firewall drops packets to its port. Each heartbeat names the
//! members that its sender hears. A member that does not hear this one is not asked, unless it
//! hears the suspected member. A *deaf* member, which is without a majority of the members even
//! with itself, learns of no death and confirms none, so it stands for nothing.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Budget, Duration, Instant};

use super::ClusterEvent;
use super::term::{MEMBERS_MAX, MemberId, Rank, ShardId};

/// The time between two heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(100);
/// The silence after which a peer is suspected: three heartbeats are missed.
const SILENCE_MAX: Duration = Duration::from_millis(300);
/// The silence after which a peer no longer counts as heard in an answer: the asking member
/// received the last heartbeat a little earlier or later.
const SILENCE_ANSWERED: Duration = Duration::from_millis(250);
/// The maximum time for a known peer to connect, and for a member to be deaf unreported.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The time for answers to a question.
const ANSWER_MAX: Duration = Duration::from_millis(50);
/// The time for a switch's answer, where a switch confirms.
const PROBE_MAX: Duration = Duration::from_millis(200);
/// The first rounds of questions follow at once: others may notice a reset a little later.
const ROUNDS_AT_ONCE: u32 = 4;
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// A member that was not called for this long was stopped: a heartbeat is due more often.
const STOPPED: Duration = Duration::from_millis(250);
/// The number of messages that a peer may send per second.
const PER_S: u32 = 200;

/// A message between two members. All are small; at most a few dozen per second and peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// "I am alive", every 100 ms.
    Heartbeat(Heartbeat),
    /// "Do you hear `about`?"
    Question { number: u32, about: MemberId },
    /// The answer to the question with this number.
    Answer { number: u32, is_heard: bool },
}

/// The state of the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whether it can serve switches.
    pub is_ready: bool,
    pub epoch: u16,
    /// The shards whose place in use is not the first, by number; at most 256.
    pub in_use: Vec<InUse>,
    /// The members that the sender hears, at most 16; `None` if the sender's version does not
    /// report them.
    pub hears: Option<BTreeSet<MemberId>>,
}

/// The place of an order that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub shard: ShardId,
    /// The revision of the order.
    pub revision: u64,
    /// 1 to 15.
    pub rank: Rank,
}

/// The other members.
#[derive(Debug)]
pub(super) struct Peers {
    own: MemberId,
    peers: BTreeMap<MemberId, Peer>,
    number: u32,
    called_at: Instant,
    pub events: Vec<ClusterEvent>,
    /// Messages to send.
    pub messages: Vec<(MemberId, PeerMessage)>,
    /// Switches must be asked: there is no member to confirm a suspicion.
    pub wants_probe: bool,
    pub suspicions: u64,
    /// Since when this member has been deaf, and whether that was reported.
    deaf_since: Option<Instant>,
    is_deaf_reported: bool,
}

#[derive(Debug)]
struct Peer {
    /// It has an entry in the store.
    is_member: bool,
    was_heard: bool,
    /// When it becomes suspected, if no heartbeat arrives.
    deadline: Instant,
    is_ready: bool,
    /// The members that it hears, if it names them.
    hears: Option<BTreeSet<MemberId>>,
    /// It has taken over since its last heartbeat.
    has_acted: bool,
    suspicion: Option<Suspicion>,
    budget: Budget,
}

#[derive(Debug)]
struct Suspicion {
    confirmed_at: Option<Instant>,
    round: Option<Round>,
    next_round: Instant,
    rounds: u32,
}

#[derive(Debug)]
struct Round {
    number: u32,
    until: Instant,
    /// Empty if a switch is asked.
    waiting: BTreeSet<MemberId>,
    is_probe: bool,
    hears: u32,
    hears_not: u32,
}

impl Peer {
    fn new(now: Instant) -> Peer {
        Peer {
            is_member: false,
            was_heard: false,
            deadline: now + CONNECT_MAX,
            is_ready: false,
            hears: None,
            has_acted: false,
            suspicion: None,
            budget: Budget::new(now, PER_S, PER_S),
        }
    }

    fn is_heard(&self) -> bool {
        self.was_heard && self.suspicion.is_none()
    }

    fn is_confirmed(&self) -> bool {
        let suspicion = self.suspicion.as_ref();
        suspicion.is_some_and(|suspicion| suspicion.confirmed_at.is_some())
    }

    /// Whether it is suspected, and nothing has confirmed or refuted the suspicion.
    fn is_questioned(&self) -> bool {
        self.suspicion.is_some() && !self.is_confirmed() && !self.has_acted
    }

    /// Whether it is heard, and reports that it does not hear this member.
    fn is_deaf_to(&self, member: &MemberId) -> bool {
        self.is_heard()
            && self
                .hears
                .as_ref()
                .is_some_and(|them| !them.contains(member))
    }
}

impl Peers {
    pub(super) fn new(now: Instant, own: MemberId) -> Peers {
        Peers {
            own,
            peers: BTreeMap::new(),
            number: 0,
            called_at: now,
            events: Vec::new(),
            messages: Vec::new(),
            wants_probe: false,
            suspicions: 0,
            deaf_since: None,
            is_deaf_reported: false,
        }
    }

    /// Notes that time has passed. After a stop of this member, the messages that peers sent
    /// meanwhile are still unread, so their silence does not count. Returns whether it was stopped.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let gap = now - self.called_at;
        self.called_at = self.called_at.max(now);
        if gap <= STOPPED {
            return false;
        }
        for peer in self.peers.values_mut() {
            peer.deadline += gap;
            if let Some(suspicion) = &mut peer.suspicion {
                suspicion.next_round += gap;
                suspicion.round = None;
            }
        }
        true
    }

    /// Sets the members with entries in the store, and the others with places in orders.
    pub(super) fn set_members(
        &mut self,
        now: Instant,
        members: &BTreeSet<MemberId>,
        placed: &BTreeSet<MemberId>,
    ) {
        for id in members.iter().chain(placed) {
            if self.peers.len() < MEMBERS_MAX && !self.peers.contains_key(id) {
                self.peers.insert(id.clone(), Peer::new(now));
            }
        }
        for (id, peer) in &mut self.peers {
            peer.is_member = members.contains(id);
            peer.has_acted &= peer.is_member;
        }
        let is_kept = |id: &MemberId, peer: &mut Peer| {
            peer.is_member || peer.is_heard() || placed.contains(id)
        };
        self.peers.retain(is_kept);
    }

    /// Notes a message. Returns whether it counts: neither the peers nor the messages of this one
    /// are too many.
    pub(super) fn accept(&mut self, now: Instant, from: &MemberId) -> bool {
        if self.peers.len() < MEMBERS_MAX && !self.peers.contains_key(from) {
            self.peers.insert(from.clone(), Peer::new(now));
        }
        let peer = self.peers.get_mut(from);
        peer.is_some_and(|peer| peer.budget.take(now))
    }

    /// Notes a heartbeat.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        from: &MemberId,
        is_ready: bool,
        hears: Option<BTreeSet<MemberId>>,
    ) {
        let Some(peer) = self.peers.get_mut(from) else {
            return;
        };
        peer.was_heard = true;
        peer.is_ready = is_ready;
        let has_news = peer.hears != hears;
        peer.hears = hears;
        peer.has_acted = false;
        peer.deadline = now + SILENCE_MAX;
        if peer.suspicion.take().is_some() {
            self.events.push(ClusterEvent::Heard(from.clone()));
        }
        // The peer may now answer differently, or no longer count.
        let suspicions = self.peers.values_mut().filter_map(|p| p.suspicion.as_mut());
        for suspicion in suspicions.filter(|_| has_news) {
            suspicion.next_round = suspicion.next_round.min(now);
        }
    }

    pub(super) fn reset(&mut self, now: Instant, peer: &MemberId) {
        if let Some(peer) = self.peers.get_mut(peer)
            && peer.was_heard
        {
            peer.deadline = peer.deadline.min(now);
            // A process that ended resets its connections; a cut does not.
            peer.has_acted = false;
        }
    }

    /// The answer to another member's question.
    pub(super) fn hears(&self, now: Instant, about: &MemberId) -> bool {
        self.peers.get(about).is_some_and(|peer| {
            peer.is_heard() && now + (SILENCE_MAX - SILENCE_ANSWERED) < peer.deadline
        })
    }

    pub(super) fn answer(&mut self, from: &MemberId, number: u32, is_heard: bool) {
        for peer in self.peers.values_mut() {
            let round = peer.suspicion.as_mut().and_then(|s| s.round.as_mut());
            if let Some(round) = round
                && round.number == number
                && round.waiting.remove(from)
            {
                round.hears += u32::from(is_heard);
                round.hears_not += u32::from(!is_heard);
            }
        }
    }

    /// Notes that a switch of this member has answered a probe.
    pub(super) fn handle_probe(&mut self) {
        for peer in self.peers.values_mut() {
            if let Some(suspicion) = &mut peer.suspicion
                && let Some(round) = &mut suspicion.round
                && round.is_probe
            {
                round.hears_not = 1;
            }
        }
    }

    /// Notes that a member has taken over: it is alive, even if it is not heard.
    pub(super) fn note_action(&mut self, member: &MemberId) {
        if let Some(peer) = self.peers.get_mut(member)
            && peer.is_member
        {
            peer.has_acted = true;
            if let Some(suspicion) = &mut peer.suspicion {
                suspicion.confirmed_at = None;
                suspicion.round = None;
            }
        }
    }

    /// Handles what is due.
    pub(super) fn evaluate(&mut self, now: Instant) {
        self.wants_probe = false;
        for (id, peer) in &mut self.peers {
            if peer.suspicion.is_none() && peer.deadline <= now {
                self.suspicions += 1;
                self.events.push(ClusterEvent::Suspected(id.clone()));
                peer.suspicion = Some(Suspicion {
                    confirmed_at: None,
                    round: None,
                    next_round: now,
                    rounds: 0,
                });
            }
        }
        if self.peers.values().any(Peer::is_questioned) {
            self.question(now);
        }
        self.evaluate_deafness(now);
    }

    /// Asks the other members about suspected peers, and confirms a suspicion if most answers do.
    fn question(&mut self, now: Instant) {
        let is_voter = |peer: &Peer| (peer.is_member || peer.is_heard()) && !peer.is_confirmed();
        let voters = self.peers.iter().filter(|(_, peer)| is_voter(peer));
        let voters = voters.map(|(id, peer)| {
            let deaf = peer.hears.clone().filter(|_| peer.is_deaf_to(&self.own));
            (id.clone(), peer.is_heard(), deaf)
        });
        let voters: Vec<_> = voters.collect();
        for (id, peer) in &mut self.peers {
            let Some(suspicion) = &mut peer.suspicion else {
                continue;
            };
            if suspicion.confirmed_at.is_some() || peer.has_acted {
                continue;
            }
            if let Some(round) = &suspicion.round {
                let is_over = match round.is_probe {
                    true => round.hears_not > 0,
                    false => round.waiting.is_empty(),
                };
                if !is_over && now < round.until {
                    self.wants_probe |= round.is_probe;
                    continue;
                }
                if round.hears_not > round.hears {
                    suspicion.confirmed_at = Some(now);
                    self.events.push(ClusterEvent::Confirmed(id.clone()));
                    continue;
                }
                suspicion.round = None;
            }
            if now < suspicion.next_round {
                continue;
            }
            let counts = |(voter, _, deaf): &&(MemberId, bool, Option<BTreeSet<MemberId>>)| {
                voter != id && deaf.as_ref().is_none_or(|hears| hears.contains(id))
            };
            let mut others = voters.iter().filter(counts).peekable();
            let is_probe = others.peek().is_none();
            let asked = others.filter(|(_, is_heard, _)| *is_heard);
            let waiting: BTreeSet<_> = asked.map(|(voter, ..)| voter.clone()).collect();
            suspicion.rounds += 1;
            let is_first = suspicion.rounds <= ROUNDS_AT_ONCE && !is_probe;
            suspicion.next_round = now + if is_first { ANSWER_MAX } else { ROUND_PAUSE };
            if waiting.is_empty() && !is_probe {
                continue;
            }
            self.number = self.number.wrapping_add(1);
            for voter in &waiting {
                let question = PeerMessage::Question {
                    number: self.number,
                    about: id.clone(),
                };
                self.messages.push((voter.clone(), question));
            }
            self.wants_probe |= is_probe;
            suspicion.round = Some(Round {
                number: self.number,
                until: now + if is_probe { PROBE_MAX } else { ANSWER_MAX },
                waiting,
                is_probe,
                hears: 0,
                hears_not: 0,
            });
        }
    }

    /// Reports that this member is deaf once it has been for a while, and when it no longer is.
    fn evaluate_deafness(&mut self, now: Instant) {
        let since = self.deaf_since.unwrap_or(now);
        self.deaf_since = self.is_deaf().then_some(since);
        let is_deaf = self
            .deaf_since
            .is_some_and(|since| since + CONNECT_MAX <= now);
        if is_deaf && !self.is_deaf_reported {
            self.is_deaf_reported = true;
            self.events.push(ClusterEvent::Deaf {
                hears: self.names_heard().collect(),
                members: self.peers.values().filter(|peer| peer.is_member).count(),
            });
        } else if self.deaf_since.is_none() && std::mem::take(&mut self.is_deaf_reported) {
            self.events.push(ClusterEvent::HearsAgain);
        }
    }

    /// Whether this member and the peers that it hears are no majority of the members. A member
    /// that was heard once and is confirmed as gone does not count.
    pub(super) fn is_deaf(&self) -> bool {
        let is_gone = |peer: &Peer| peer.was_heard && peer.is_confirmed();
        let members = self.peers.values().filter(|p| p.is_member && !is_gone(p));
        let (heard, silent): (Vec<_>, Vec<_>) = members.partition(|peer| peer.is_heard());
        heard.len() < silent.len()
    }

    /// The peers that are heard.
    pub(super) fn names_heard(&self) -> impl Iterator<Item = MemberId> {
        let heard = self.heard().filter(|(_, is_heard)| *is_heard);
        heard.map(|(id, _)| id.clone())
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = |peer: &Peer| match &peer.suspicion {
            None => Some(peer.deadline),
            Some(s) if s.confirmed_at.is_some() || peer.has_acted => None,
            Some(s) => Some(s.round.as_ref().map_or(s.next_round, |round| round.until)),
        };
        let deaf = self.deaf_since.filter(|_| !self.is_deaf_reported);
        let deaf = deaf.map(|since| since + CONNECT_MAX);
        self.peers.values().filter_map(due).chain(deaf).min()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &MemberId> {
        self.peers.keys()
    }

    /// The peers, and whether each is heard.
    pub(super) fn heard(&self) -> impl Iterator<Item = (&MemberId, bool)> {
        self.peers.iter().map(|(id, peer)| (id, peer.is_heard()))
    }

    /// The members that a peer hears, if the peer is heard and names them.
    pub(super) fn heard_by(&self, peer: &MemberId) -> Option<&BTreeSet<MemberId>> {
        let peer = self.peers.get(peer).filter(|peer| peer.is_heard());
        peer?.hears.as_ref()
    }

    /// Whether a peer is heard and can serve switches.
    pub(super) fn is_ready(&self, id: &MemberId) -> bool {
        let peer = self.peers.get(id);
        peer.is_some_and(|peer| peer.is_heard() && peer.is_ready)
    }

    pub(super) fn is_heard(&self, id: &MemberId) -> bool {
        self.peers.get(id).is_some_and(Peer::is_heard)
    }

    /// Whether this member suspects a peer. A new peer is not suspected yet.
    pub(super) fn is_suspected(&self, id: &MemberId) -> bool {
        self.peers.get(id).is_none_or(|p| p.suspicion.is_some())
    }

    /// When a peer became suspected by enough members to be replaced.
    pub(super) fn confirmed_at(&self, id: &MemberId) -> Option<Instant> {
        let suspicion = self.peers.get(id)?.suspicion.as_ref()?;
        suspicion.confirmed_at
    }
}
