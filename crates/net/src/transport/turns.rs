//! Unfinished handshakes, by network: one network cannot keep the others waiting.
//!
//! A network is a /24 of IPv4 or a /64 of IPv6. A connection passes two stages. At first it has
//! sent nothing ([`Turns::hear`]): it costs a socket, and a newer connection of its network
//! replaces it when there are too many. When its first flight has arrived it asks for a turn
//! ([`Turns::ask`]), since from then on it costs processor time.
//!
//! In either stage a network has at most its share, and at most as much as is left for all others,
//! so each greedy network leaves half of the free places. Loopback may bring a whole network of
//! switches through a relay or a lab: it has no share and may take fifteen times what is left.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// Handshakes of one network under way, unless a quarter of all turns is less than this.
const NETWORK_TURNS_MAX: usize = 32;
/// Connections of one network that have sent nothing yet.
const NETWORK_SILENT_MAX: usize = 128;
/// Connections of one network that wait for their turn.
const NETWORK_WAITING_MAX: usize = 1024;
/// The share of loopback, as a multiple of what is left for the others.
const LOOPBACK_FACTOR: usize = 15;

/// The network that a connection's share belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    prefix: IpAddr,
    is_loopback: bool,
}

impl Network {
    /// The /24 or /64 of `address`.
    pub fn of(address: IpAddr) -> Network {
        let address = address.to_canonical();
        let prefix = match address {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Ipv4Addr::new(a, b, c, 0).into()
            }
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        };
        Network {
            prefix,
            is_loopback: address.is_loopback(),
        }
    }

    /// Whether the network may have one more than `count`, given its `share` and the places `left`.
    fn has_room(self, count: usize, share: usize, left: usize) -> bool {
        match self.is_loopback {
            true if count > 0 => left > 1 && count < left.saturating_mul(LOOPBACK_FACTOR),
            true => left > 0,
            false => count < share && count < left,
        }
    }
}

/// The source that a connection counts against: an IPv4 address, or a /64 of IPv6, since one host
/// has a whole /64.
pub(super) fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(_) => Network::of(address).prefix,
        v4 => v4,
    }
}

/// Why a connection was given no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTurn {
    /// Too many connections of its network waited, and this one had waited longest.
    Crowded,
    /// No turn was given in time.
    TooLate,
}

/// The turns of one listener's handshakes.
#[derive(Debug)]
pub struct Turns {
    turns_max: usize,
    waiting_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    networks: BTreeMap<Network, Pending>,
    silent: usize,
    waiting: usize,
    under_way: usize,
    next_id: u64,
    /// The network that had the last turn: the next network in order is asked first.
    last: Option<Network>,
}

#[derive(Debug, Default)]
struct Pending {
    /// The oldest comes first. Dropping the sender ends the wait of its connection.
    silent: VecDeque<(u64, oneshot::Sender<()>)>,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    under_way: usize,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.silent.is_empty() && self.waiting.is_empty() && self.under_way == 0
    }
}

/// A handshake under way; dropping it gives the turn to another.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    network: Network,
}

/// A handshake that waits for its turn.
#[derive(Debug)]
pub struct Asked(oneshot::Receiver<Turn>);

impl Asked {
    pub async fn turn(self, at_most: Duration) -> Result<Turn, NoTurn> {
        match timeout(at_most, self.0).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) => Err(NoTurn::Crowded),
            Err(_) => Err(NoTurn::TooLate),
        }
    }
}

/// A connection that has sent nothing yet.
#[derive(Debug)]
pub struct Silent {
    turns: Arc<Turns>,
    network: Network,
    id: u64,
    given_up: oneshot::Receiver<()>,
}

impl Turns {
    /// Allows `turns_max` handshakes at a time; `waiting_max` more connections may be silent, and
    /// as many may wait.
    pub fn new(turns_max: usize, waiting_max: usize) -> Arc<Turns> {
        Arc::new(Turns {
            turns_max,
            waiting_max,
            state: Mutex::default(),
        })
    }

    /// Takes a connection that has sent nothing. If there is no room, gives up the oldest silent
    /// connection of its network, or this one if there is no other.
    pub fn hear(self: &Arc<Turns>, network: Network) -> Silent {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        let left = self.waiting_max.saturating_sub(state.silent);
        let (sender, given_up) = oneshot::channel();
        let pending = state.networks.entry(network).or_default();
        let has_room = network.has_room(pending.silent.len(), NETWORK_SILENT_MAX, left);
        let replaces = !has_room && pending.silent.pop_front().is_some();
        if has_room || replaces {
            pending.silent.push_back((id, sender));
        }
        state.silent += usize::from(has_room);
        state.forget_if_empty(network);
        drop(state);
        Silent {
            turns: self.clone(),
            network,
            id,
            given_up,
        }
    }

    /// Asks for a turn for a handshake of `network`, first come, first served within it.
    pub fn ask(self: &Arc<Turns>, network: Network) -> Asked {
        let (sender, turn) = oneshot::channel();
        let given_up = self.lock().enqueue(self, network, sender);
        drop(given_up);
        self.give();
        Asked(turn)
    }

    /// Whether so many handshakes are under way that an address must prove that it is genuine
    /// first.
    pub fn is_busy(&self, network: Network) -> bool {
        let state = self.lock();
        let pending = state.networks.get(&network);
        let count = pending.map_or(0, |p| p.under_way + p.waiting.len());
        let left = self.turns_max.saturating_sub(state.under_way);
        let has_half = network.has_room(count * 2, self.network_turns_max(), left);
        state.under_way * 2 > self.turns_max || !has_half
    }

    fn network_turns_max(&self) -> usize {
        NETWORK_TURNS_MAX.min((self.turns_max / 4).max(1))
    }

    /// Gives the free turns to the handshakes that wait for them.
    fn give(self: &Arc<Turns>) {
        loop {
            let Some((network, sender)) = self.lock().next(self) else {
                return;
            };
            let turn = Turn {
                turns: self.clone(),
                network,
            };
            // If the connection has ended meanwhile, this gives its turn back at once.
            let _ = sender.send(turn);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets `sender` wait for a turn. Returns the connection that loses its place for it: the
    /// oldest of the network, or `sender` itself.
    fn enqueue(
        &mut self,
        turns: &Turns,
        network: Network,
        sender: oneshot::Sender<Turn>,
    ) -> Option<oneshot::Sender<Turn>> {
        let left = turns.waiting_max.saturating_sub(self.waiting);
        let pending = self.networks.entry(network).or_default();
        if network.has_room(pending.waiting.len(), NETWORK_WAITING_MAX, left) {
            pending.waiting.push_back(sender);
            self.waiting += 1;
            return None;
        }
        let oldest = pending.waiting.pop_front();
        if oldest.is_none() {
            self.forget_if_empty(network);
            return Some(sender);
        }
        pending.waiting.push_back(sender);
        oldest
    }

    /// Counts a turn of the next network, in rotation, that has a handshake waiting and room.
    fn next(&mut self, turns: &Turns) -> Option<(Network, oneshot::Sender<Turn>)> {
        while self.waiting > 0 {
            let network = self.next_network(turns)?;
            self.last = Some(network);
            let pending = self.networks.get_mut(&network)?;
            while let Some(sender) = pending.waiting.pop_front() {
                self.waiting -= 1;
                // The other connections have ended, or their time is over.
                if !sender.is_closed() {
                    pending.under_way += 1;
                    self.under_way += 1;
                    return Some((network, sender));
                }
            }
            self.forget_if_empty(network);
        }
        None
    }

    fn next_network(&self, turns: &Turns) -> Option<Network> {
        let left = turns.turns_max.saturating_sub(self.under_way);
        let share = turns.network_turns_max();
        let may_begin = |(network, pending): &(&Network, &Pending)| {
            !pending.waiting.is_empty() && network.has_room(pending.under_way, share, left)
        };
        let found = match self.last {
            None => self.networks.iter().find(may_begin),
            Some(last) => {
                let behind = (Bound::Excluded(last), Bound::Unbounded);
                let found = self.networks.range(behind).find(may_begin);
                found.or_else(|| self.networks.range(..=last).find(may_begin))
            }
        };
        found.map(|(network, _)| *network)
    }

    fn forget_if_empty(&mut self, network: Network) {
        if self.networks.get(&network).is_some_and(Pending::is_empty) {
            self.networks.remove(&network);
        }
    }
}

impl Silent {
    /// Pends until the connection is given up for a newer one.
    pub async fn given_up(&mut self) {
        // Nobody ever sends: the sender is dropped.
        let _ = (&mut self.given_up).await;
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        let Some(pending) = state.networks.get_mut(&self.network) else {
            return;
        };
        let before = pending.silent.len();
        pending.silent.retain(|(id, _)| *id != self.id);
        let gone = before - pending.silent.len();
        state.silent -= gone;
        state.forget_if_empty(self.network);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut state = self.turns.lock();
            state.under_way -= 1;
            if let Some(pending) = state.networks.get_mut(&self.network) {
                pending.under_way -= 1;
            }
            state.forget_if_empty(self.network);
        }
        self.turns.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn network(address: &str) -> Network {
        Network::of(address.parse().unwrap())
    }

    /// The result of a wait that is already over; `None` while it is still pending.
    async fn now<T>(wait: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::select! {
            biased;
            done = wait => Some(done),
            () = tokio::task::yield_now() => None,
        }
    }

    #[test]
    fn a_network_is_a_24_or_a_64_and_a_source_an_address_or_a_64() {
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.200"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("127.0.1.1"), network("127.0.2.1"));
        let source = |text: &str| source_of(text.parse().unwrap());
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::2"));
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
    }

    #[tokio::test]
    async fn one_network_has_its_share_of_turns_and_others_have_theirs_at_once() {
        let turns = Turns::new(128, 1024);
        let greedy = network("192.0.2.1");
        let mut held = Vec::new();
        for _ in 0..NETWORK_TURNS_MAX {
            held.push(turns.wait(greedy, LONG).await.unwrap());
        }
        let mut waits = Box::pin(turns.wait(greedy, LONG));
        assert!(now(&mut waits).await.is_none());
        let mut other = Box::pin(turns.wait(network("198.51.100.1"), LONG));
        assert!(now(&mut other).await.is_some_and(|turn| turn.is_ok()));
        held.pop();
        assert!(now(&mut waits).await.is_some_and(|turn| turn.is_ok()));
    }

    /// Five greedy networks of a share of 32 would take 160 turns.
    #[tokio::test]
    async fn however_many_are_greedy_there_is_room_for_one_more() {
        let turns = Turns::new(128, 1024);
        let mut held = Vec::new();
        let mut waits = Vec::new();
        for number in 0..5 {
            let greedy = network(&format!("192.0.{number}.1"));
            for _ in 0..64 {
                let mut wait = Box::pin(turns.clone().wait_owned(greedy));
                match now(&mut wait).await {
                    Some(turn) => held.push(turn.unwrap()),
                    None => waits.push(wait),
                }
            }
        }
        assert!(held.len() > 96, "most of them are used: {}", held.len());
        let mut other = Box::pin(turns.wait(network("203.0.113.1"), LONG));
        assert!(now(&mut other).await.is_some_and(|turn| turn.is_ok()));
    }

    impl Turns {
        async fn wait(
            self: &Arc<Self>,
            network: Network,
            at_most: Duration,
        ) -> Result<Turn, NoTurn> {
            self.ask(network).turn(at_most).await
        }

        async fn wait_owned(self: Arc<Self>, network: Network) -> Result<Turn, NoTurn> {
            self.wait(network, LONG).await
        }
    }

    #[tokio::test]
    async fn the_oldest_of_a_crowded_network_gives_way() {
        let turns = Turns::new(4, 8);
        let greedy = network("192.0.2.1");
        let _held = turns.wait(greedy, LONG).await.unwrap();
        let mut waits = Vec::new();
        for _ in 0..6 {
            let mut wait = Box::pin(turns.clone().wait_owned(greedy));
            assert!(now(&mut wait).await.is_none());
            waits.push(wait);
        }
        // As many as are left for others: four of eight, and the last four.
        for (number, wait) in waits.iter_mut().enumerate() {
            let given_up = matches!(now(wait).await, Some(Err(NoTurn::Crowded)));
            assert_eq!(given_up, number < 2, "{number}");
        }
        let mut other = Box::pin(turns.wait(network("198.51.100.1"), LONG));
        assert!(now(&mut other).await.is_some_and(|turn| turn.is_ok()));
    }

    #[tokio::test]
    async fn those_who_say_nothing_take_no_turns_and_the_oldest_gives_way() {
        let turns = Turns::new(128, 1024);
        let greedy = network("192.0.2.1");
        let mut silent: Vec<Silent> = (0..6000).map(|_| turns.hear(greedy)).collect();
        let mut kept = 0;
        for one in &mut silent {
            kept += usize::from(now(&mut Box::pin(one.given_up())).await.is_none());
        }
        assert_eq!(kept, NETWORK_SILENT_MAX);
        let mut newest = silent.pop().unwrap();
        assert!(now(&mut Box::pin(newest.given_up())).await.is_none());
        assert!(turns.wait(greedy, LONG).await.is_ok());
        drop((silent, newest));
        assert!(turns.lock().networks.is_empty(), "nothing is left behind");
        assert_eq!(turns.lock().silent, 0);
    }

    #[tokio::test]
    async fn who_goes_while_it_waits_leaves_its_turn_to_the_next() {
        let turns = Turns::new(4, 8);
        let greedy = network("192.0.2.1");
        let held = turns.wait(greedy, LONG).await.unwrap();
        let mut gone = Box::pin(turns.clone().wait_owned(greedy));
        assert!(now(&mut gone).await.is_none());
        let mut waits = Box::pin(turns.clone().wait_owned(greedy));
        assert!(now(&mut waits).await.is_none());
        drop(gone);
        drop(held);
        let turn = now(&mut waits).await.unwrap().unwrap();
        drop(turn);
        assert!(turns.lock().networks.is_empty(), "nothing is left behind");
        let state = turns.lock();
        assert_eq!((state.under_way, state.waiting), (0, 0));
    }

    #[tokio::test]
    async fn loopback_may_bring_a_whole_network_but_not_take_everything() {
        let turns = Turns::new(128, 1024);
        let lab = network("127.0.0.1");
        let (mut held, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..256 {
            let mut wait = Box::pin(turns.clone().wait_owned(lab));
            match now(&mut wait).await {
                Some(turn) => held.push(turn.unwrap()),
                None => waits.push(wait),
            }
        }
        assert_eq!(held.len(), 120);
        let mut other = Box::pin(turns.wait(network("127.0.1.1"), LONG));
        assert!(now(&mut other).await.is_some_and(|turn| turn.is_ok()));
    }
}
