//! Routes of circuits: the shortest route with room in each wanted direction.
//!
//! A circuit's reservation follows from its route; nothing else is recorded. When a link
//! disappears, [`Circuits::update`] recomputes the reservations of all routes, keeps the routes
//! that are still valid, and gives the other circuits a route through the remaining room. A circuit
//! is not moved to make room for another, and not moved back when a shorter route returns: packets
//! would be reordered for nothing.
//!
//! If two circuits want the same room, the circuit with the greater priority is first, then the
//! first by name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use openflow::{DatapathId, PortNo};

use super::{Circuit, Network, Qos, QueueName, QueuesBy, Rate};
use crate::Location;
use crate::timeouts::HostName;

/// One switch of a route, with its in-port and out-port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    pub dpid: DatapathId,
    pub in_port: PortNo,
    pub out_port: PortNo,
}

/// All circuits that have a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circuits {
    routes: BTreeMap<String, Route>,
    reserved: BTreeMap<Pool, Rate>,
}

/// A circuit that is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub circuit: Circuit,
    /// The hops, from the sender on.
    pub hops: Vec<Hop>,
}

/// The pool of a reservation: a queue of a port, or the rate that its queues leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pool {
    at: Location,
    queue: Option<u8>,
}

/// The outcome for a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Kept,
    Set,
    /// The circuit takes another route, or has another rate or queue.
    Changed,
    Removed,
    Refused(Refusal),
}

/// The reason that a circuit is not set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The host has not been seen.
    HostUnknown(HostName),
    /// No route exists, full or not.
    NoWay,
    /// The room that the shortest route lacks; no route has enough.
    Full(Vec<Shortage>),
}

/// One direction of a link, or a host's port, without the wanted room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub from: Location,
    /// The other end; `None` towards a host.
    pub to: Option<Location>,
    pub lack: Lack,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    Rate {
        asked: Rate,
        free: Rate,
        of: Rate,
    },
    /// The port has no such queue.
    Queue(QueueName),
    /// The port's queues cannot be made: the switch's database is out of reach.
    Queues,
    /// The port's rate is unknown.
    Unknown,
}

impl Hop {
    pub fn inlet(self) -> Location {
        Location::new(self.dpid, self.in_port)
    }

    pub fn outlet(self) -> Location {
        Location::new(self.dpid, self.out_port)
    }

    fn reversed(self) -> Hop {
        Hop {
            in_port: self.out_port,
            out_port: self.in_port,
            ..self
        }
    }
}

impl Route {
    /// The route of the return direction, if it has one.
    pub fn back(&self) -> Option<Vec<Hop>> {
        let back = self.hops.iter().rev().map(|hop| hop.reversed());
        self.circuit.both.then(|| back.collect())
    }

    /// Every port by which the circuit leaves a switch.
    pub fn outlets(&self) -> impl Iterator<Item = Location> + '_ {
        let back = self.hops.iter().filter(|_| self.circuit.both);
        let back = back.map(|hop| hop.inlet());
        self.hops.iter().map(|hop| hop.outlet()).chain(back)
    }
}

impl Circuits {
    /// The routes, by name.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Route)> {
        self.routes.iter().map(|(name, route)| (&name[..], route))
    }

    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.get(name)
    }

    /// The rate that circuits have reserved at a port.
    pub fn reserved(&self, at: Location) -> Rate {
        let pools = self.reserved.iter().filter(|(pool, _)| pool.at == at);
        pools.map(|(_, rate)| *rate).sum()
    }

    /// Brings the routes in line with demands and network. Returns the outcome for each circuit
    /// that was or is wanted, by name.
    pub fn update(&mut self, qos: &Qos, network: &Network) -> BTreeMap<String, Outcome> {
        let ground = Ground { qos, network };
        let old = std::mem::take(&mut self.routes);
        self.reserved.clear();
        let removed = old.keys().map(|name| (name.clone(), Outcome::Removed));
        let mut outcomes: BTreeMap<String, Outcome> = removed.collect();
        let mut wanted: Vec<&Circuit> = qos.circuits.iter().collect();
        wanted.sort_by_key(|circuit| (Reverse(circuit.priority), &circuit.name));
        let mut homeless = Vec::new();
        for circuit in wanted {
            let route = old.get(&circuit.name);
            let hops = route.map(|route| &route.hops);
            let stands = |hops: &&Vec<Hop>| {
                ground.is_sound(circuit, hops) && self.shortages(&ground, circuit, hops).is_empty()
            };
            match hops.filter(stands) {
                Some(hops) => {
                    let is_same = route.is_some_and(|route| route.circuit == *circuit);
                    let outcome = match is_same {
                        true => Outcome::Kept,
                        false => Outcome::Changed,
                    };
                    outcomes.insert(circuit.name.clone(), outcome);
                    self.take(&ground, circuit, hops.clone());
                }
                None => homeless.push(circuit),
            }
        }
        for circuit in homeless {
            let outcome = match self.find(&ground, circuit) {
                Ok(hops) => {
                    self.take(&ground, circuit, hops);
                    match old.contains_key(&circuit.name) {
                        true => Outcome::Changed,
                        false => Outcome::Set,
                    }
                }
                Err(refusal) => Outcome::Refused(refusal),
            };
            outcomes.insert(circuit.name.clone(), outcome);
        }
        outcomes
    }

    /// Returns the route by which a circuit would be set up, without setting it up.
    ///
    /// # Errors
    /// The reason that the circuit would not be set up.
    pub fn would_take(
        &self,
        qos: &Qos,
        network: &Network,
        circuit: &Circuit,
    ) -> Result<Vec<Hop>, Refusal> {
        self.find(&Ground { qos, network }, circuit)
    }

    /// Adopts a circuit that the switches already have. The circuit stays if it still reaches its
    /// host.
    pub fn adopt(&mut self, circuit: Circuit, hops: Vec<Hop>) {
        let name = circuit.name.clone();
        self.routes.entry(name).or_insert(Route { circuit, hops });
    }

    fn take(&mut self, ground: &Ground<'_>, circuit: &Circuit, hops: Vec<Hop>) {
        let circuit = circuit.clone();
        let route = Route { circuit, hops };
        if let Some(rate) = route.circuit.rate {
            for at in route.outlets() {
                let pool = ground.pool(at, &route.circuit);
                let reserved = self.reserved.entry(pool).or_default();
                *reserved = reserved.saturating_add(rate);
            }
        }
        self.routes.insert(route.circuit.name.clone(), route);
    }

    fn find(&self, ground: &Ground<'_>, circuit: &Circuit) -> Result<Vec<Hop>, Refusal> {
        let place = |host: HostName| {
            let place = ground.network.hosts.get(&host).copied();
            place.ok_or(Refusal::HostUnknown(host))
        };
        let (from, to) = (place(circuit.from)?, place(circuit.to)?);
        let has_room = |at: Location| self.lack(ground, circuit, at).is_none();
        if let Some(hops) = ground.shortest(circuit, from, to, has_room) {
            return Ok(hops);
        }
        let way = ground.shortest(circuit, from, to, |_| true);
        let way = way.ok_or(Refusal::NoWay)?;
        Err(Refusal::Full(self.shortages(ground, circuit, &way)))
    }

    fn shortages(&self, ground: &Ground<'_>, circuit: &Circuit, hops: &[Hop]) -> Vec<Shortage> {
        let route = Route {
            circuit: circuit.clone(),
            hops: hops.to_vec(),
        };
        let shortage = |from: Location| {
            let lack = self.lack(ground, circuit, from)?;
            let to = ground.network.links.get(&from).copied();
            Some(Shortage { from, to, lack })
        };
        route.outlets().filter_map(shortage).collect()
    }

    /// Returns the room that a circuit wants and a port lacks. Without admission, a circuit takes
    /// the room that there is.
    fn lack(&self, ground: &Ground<'_>, circuit: &Circuit, at: Location) -> Option<Lack> {
        if !circuit.admission {
            return None;
        }
        if ground.network.queues_by(at.dpid) == Some(QueuesBy::Nobody) {
            return Some(Lack::Queues);
        }
        let pool = ground.pool(at, circuit);
        if let (Some(name), None) = (&circuit.queue, pool.queue) {
            return Some(Lack::Queue(name.clone()));
        }
        let asked = circuit.rate?;
        let Some(of) = ground.capacity(pool) else {
            return Some(Lack::Unknown);
        };
        let reserved = self.reserved.get(&pool).copied().unwrap_or_default();
        let free = of.saturating_sub(reserved);
        (asked > free).then_some(Lack::Rate { asked, free, of })
    }
}

/// The facts for finding routes.
struct Ground<'a> {
    qos: &'a Qos,
    network: &'a Network,
}

impl Ground<'_> {
    fn pool(&self, at: Location, circuit: &Circuit) -> Pool {
        let queue = circuit.queue.as_ref();
        let queue = queue.and_then(|name| self.qos.queue_at(at, name));
        Pool { at, queue }
    }

    /// The reservable rate. A shared queue has its minimum; other pools have the rate that the
    /// minima leave.
    fn capacity(&self, pool: Pool) -> Option<Rate> {
        let stated = self.qos.ports.get(&pool.at);
        if let Some(number) = pool.queue {
            let queue = stated.and_then(|port| port.queues.get(&number));
            return queue.map(|queue| queue.min.unwrap_or_default());
        }
        match stated {
            Some(port) => Some(port.rate.saturating_sub(port.min_sum())),
            None => self.network.rate(pool.at),
        }
    }

    /// Whether the hops still connect the circuit's hosts.
    fn is_sound(&self, circuit: &Circuit, hops: &[Hop]) -> bool {
        let place = |host| self.network.hosts.get(host).copied();
        let (Some(first), Some(last)) = (hops.first(), hops.last()) else {
            return false;
        };
        let links = &self.network.links;
        let is_linked = |pair: &[Hop]| links.get(&pair[0].outlet()) == Some(&pair[1].inlet());
        place(&circuit.from) == Some(first.inlet())
            && place(&circuit.to) == Some(last.outlet())
            && hops.windows(2).all(is_linked)
    }

    /// The route with the fewest hops; among equal routes, the one that leaves by the lowest ports.
    fn shortest(
        &self,
        circuit: &Circuit,
        from: Location,
        to: Location,
        has_room: impl Fn(Location) -> bool,
    ) -> Option<Vec<Hop>> {
        let has_room_back = |at: Location| !circuit.both || has_room(at);
        if from == to || !has_room_back(from) || !has_room(to) {
            return None;
        }
        let mut came_by: BTreeMap<DatapathId, (Location, Location)> = BTreeMap::new();
        let mut seen = BTreeSet::from([from.dpid]);
        let mut queue = VecDeque::from([from.dpid]);
        while let Some(dpid) = queue.pop_front() {
            if dpid == to.dpid {
                return Some(hops(&came_by, from, to));
            }
            for (near, far) in self.network.links.range(ports_of(dpid)) {
                if !seen.contains(&far.dpid) && has_room(*near) && has_room_back(*far) {
                    seen.insert(far.dpid);
                    came_by.insert(far.dpid, (*near, *far));
                    queue.push_back(far.dpid);
                }
            }
        }
        None
    }
}

/// The hops, collected from the destination back to the source.
fn hops(
    came_by: &BTreeMap<DatapathId, (Location, Location)>,
    from: Location,
    to: Location,
) -> Vec<Hop> {
    let mut hops = Vec::new();
    let mut out = to;
    while let Some((near, far)) = came_by.get(&out.dpid).filter(|_| out.dpid != from.dpid) {
        hops.push(Hop {
            dpid: out.dpid,
            in_port: far.port,
            out_port: out.port,
        });
        out = *near;
    }
    hops.push(Hop {
        dpid: from.dpid,
        in_port: from.port,
        out_port: out.port,
    });
    hops.reverse();
    hops
}

fn ports_of(dpid: DatapathId) -> std::ops::RangeInclusive<Location> {
    let end = |port| Location::new(dpid, PortNo(port));
    end(0)..=end(u32::MAX)
}

impl Refusal {
    /// Whether the refusal may pass: the missing fact may only be unknown so far.
    pub fn may_pass(&self) -> bool {
        match self {
            Refusal::HostUnknown(_) | Refusal::NoWay => true,
            Refusal::Full(shortages) => shortages
                .iter()
                .any(|shortage| matches!(shortage.lack, Lack::Queues | Lack::Unknown)),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::HostUnknown(host) => write!(f, "host {host} has not been heard yet"),
            Refusal::NoWay => f.write_str("no way leads there"),
            Refusal::Full(shortages) => {
                for (n, shortage) in shortages.iter().enumerate() {
                    let separator = if n > 0 { "; " } else { "" };
                    write!(f, "{separator}{shortage}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "link {} -> {to} ", self.from)?,
            None => write!(f, "port {} ", self.from)?,
        }
        match &self.lack {
            Lack::Rate { asked, free, of } => {
                let short = asked.saturating_sub(*free);
                write!(
                    f,
                    "is full: {free} of {of} free, {asked} asked, {short} too little"
                )
            }
            Lack::Queue(name) => write!(f, "has no queue {name}"),
            Lack::Queues => f.write_str("has no queues: nobody reaches the switch's database"),
            Lack::Unknown => f.write_str("has a rate that nobody knows: state it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{at, circuit, class, cut, gold, host, link, ring};
    use super::*;

    fn qos(circuits: Vec<Circuit>) -> Qos {
        Qos {
            circuits,
            ..Qos::default()
        }
    }

    fn way(circuits: &Circuits, name: &str) -> Vec<u64> {
        let route = circuits.route(name).unwrap();
        route.hops.iter().map(|hop| hop.dpid.0).collect()
    }

    fn refusal(outcomes: &BTreeMap<String, Outcome>, name: &str) -> String {
        match &outcomes[name] {
            Outcome::Refused(refusal) => refusal.to_string(),
            other => panic!("{name} is {other:?}"),
        }
    }

    #[test]
    fn circuits_fill_the_shortest_way_and_then_the_next_and_the_last_is_refused() {
        let mut network = ring();
        // So that the hosts' ports are not the first to be full.
        for dpid in [1, 4] {
            let switch = network.switches.get_mut(&DatapathId(dpid)).unwrap();
            switch.ports.insert(PortNo(9), Some(Rate::mbit(1000)));
        }
        let asked = qos(vec![circuit("a", 60), circuit("b", 60), circuit("c", 60)]);
        let mut circuits = Circuits::default();
        let outcomes = circuits.update(&asked, &network);
        assert_eq!(way(&circuits, "a"), [1, 2, 4]);
        assert_eq!(way(&circuits, "b"), [1, 3, 4]);
        let text = refusal(&outcomes, "c");
        let port = |dpid, port| at(dpid, port).to_string();
        let link = format!("link {} -> {}", port(1, 2), port(2, 1));
        assert!(text.contains(&link), "{text}");
        assert!(text.contains("40mbit of 100mbit free, 60mbit asked, 20mbit too little"));
        assert_eq!(circuits.reserved(at(1, 2)), Rate::mbit(60));
        assert_eq!(circuits.reserved(at(2, 1)), Rate::mbit(60), "the answers'");
    }

    #[test]
    fn the_host_s_port_is_part_of_the_way() {
        let mut circuits = Circuits::default();
        let asked = qos(vec![circuit("a", 60), circuit("b", 60)]);
        let outcomes = circuits.update(&asked, &ring());
        let text = refusal(&outcomes, "b");
        assert!(
            text.contains(&format!("port {} is full", at(4, 9))),
            "{text}"
        );
    }

    #[test]
    fn when_a_link_goes_the_circuit_goes_round_and_stays_there() {
        let asked = qos(vec![circuit("a", 10)]);
        let (mut network, mut circuits) = (ring(), Circuits::default());
        let _ = circuits.update(&asked, &network);
        cut(&mut network, 2, 4);
        let outcomes = circuits.update(&asked, &network);
        assert_eq!(outcomes["a"], Outcome::Changed);
        assert_eq!(way(&circuits, "a"), [1, 3, 4]);
        assert_eq!(circuits.reserved(at(1, 2)), Rate::ZERO);
        assert_eq!(circuits.reserved(at(1, 3)), Rate::mbit(10));
        link(&mut network, 2, 4);
        assert_eq!(circuits.update(&asked, &network)["a"], Outcome::Kept);
        assert_eq!(way(&circuits, "a"), [1, 3, 4]);
    }

    #[test]
    fn of_two_that_must_move_the_more_important_one_has_the_room() {
        let mut asked = qos(vec![circuit("a", 40), circuit("b", 40), circuit("c", 30)]);
        asked.circuits[1].priority = 20;
        let (mut network, mut circuits) = (ring(), Circuits::default());
        for dpid in [1, 4] {
            let switch = network.switches.get_mut(&DatapathId(dpid)).unwrap();
            switch.ports.insert(PortNo(9), Some(Rate::mbit(1000)));
        }
        let _ = circuits.update(&asked, &network);
        assert_eq!(way(&circuits, "c"), [1, 3, 4], "a and b leave it 20");
        cut(&mut network, 2, 4);
        let outcomes = circuits.update(&asked, &network);
        assert_eq!(way(&circuits, "b"), [1, 3, 4]);
        assert_eq!(outcomes["c"], Outcome::Kept);
        assert!(refusal(&outcomes, "a").contains("30mbit of 100mbit free"));
    }

    #[test]
    fn a_named_queue_has_its_minimum_to_give_and_the_others_the_rest() {
        let mut asked = qos(vec![circuit("in gold", 15), circuit("own", 80)]);
        asked.circuits[0].queue = Some(class("gold"));
        for port in [at(1, 2), at(2, 4), at(4, 9), at(1, 9), at(2, 1), at(4, 2)] {
            asked.ports.insert(port, gold());
        }
        let mut circuits = Circuits::default();
        let outcomes = circuits.update(&asked, &ring());
        assert_eq!(outcomes["in gold"], Outcome::Set);
        assert_eq!(outcomes["own"], Outcome::Set, "100 less 20");
        asked.circuits[0].rate = Some(Rate::mbit(21));
        let outcomes = circuits.update(&asked, &ring());
        assert!(refusal(&outcomes, "in gold").contains("20mbit of 20mbit free"));
        asked.ports.remove(&at(4, 9));
        let outcomes = circuits.update(&asked, &ring());
        assert!(refusal(&outcomes, "in gold").contains("has no queue 'gold'"));
    }

    #[test]
    fn without_admission_nothing_is_refused_for_want_of_room() {
        let mut asked = qos(vec![circuit("a", 90), circuit("b", 90)]);
        asked.circuits[1].admission = false;
        let mut circuits = Circuits::default();
        let outcomes = circuits.update(&asked, &ring());
        assert_eq!(outcomes["b"], Outcome::Set);
        assert_eq!(circuits.reserved(at(1, 2)), Rate::mbit(180));
    }

    #[test]
    fn what_cannot_be_is_told_apart() {
        let asked = qos(vec![circuit("a", 10)]);
        let mut circuits = Circuits::default();
        let mut network = ring();
        cut(&mut network, 2, 4);
        cut(&mut network, 3, 4);
        let outcomes = circuits.update(&asked, &network);
        assert_eq!(outcomes["a"], Outcome::Refused(Refusal::NoWay));
        network.hosts.remove(&host("10.0.0.2"));
        let text = refusal(&circuits.update(&asked, &network), "a");
        assert!(text.contains("10.0.0.2"), "{text}");
        let mut network = ring();
        for switch in network.switches.values_mut() {
            switch.queues_by = QueuesBy::Nobody;
        }
        let text = refusal(&circuits.update(&asked, &network), "a");
        assert!(text.contains("nobody reaches"), "{text}");
        let mut network = ring();
        let switch = network.switches.get_mut(&DatapathId(4)).unwrap();
        switch.ports.insert(PortNo(9), None);
        let text = refusal(&circuits.update(&asked, &network), "a");
        assert!(text.contains("rate that nobody knows"), "{text}");
        assert_eq!(circuits, Circuits::default());
    }

    #[test]
    fn asking_takes_nothing() {
        let circuits = Circuits::default();
        let asked = qos(Vec::new());
        let hops = circuits.would_take(&asked, &ring(), &circuit("a", 10));
        assert_eq!(hops.unwrap().len(), 3);
        assert!(
            circuits
                .would_take(&asked, &ring(), &circuit("a", 101))
                .is_err()
        );
    }

    #[test]
    fn two_hosts_of_one_switch_have_a_way_of_one_hop() {
        let mut network = ring();
        network.hosts.insert(host("10.0.0.2"), at(1, 8));
        let switch = network.switches.get_mut(&DatapathId(1)).unwrap();
        switch.ports.insert(PortNo(8), Some(Rate::mbit(100)));
        let asked = qos(vec![circuit("a", 10)]);
        let mut circuits = Circuits::default();
        let _ = circuits.update(&asked, &network);
        let hop = Hop {
            dpid: DatapathId(1),
            in_port: PortNo(9),
            out_port: PortNo(8),
        };
        assert_eq!(circuits.route("a").unwrap().hops, [hop]);
        assert_eq!(
            circuits.route("a").unwrap().back(),
            Some(vec![hop.reversed()])
        );
    }

    /// A change between two updates.
    #[derive(Clone, Debug)]
    enum Turn {
        Ask {
            name: u8,
            rate: u64,
            priority: u16,
            both: bool,
        },
        Drop {
            name: u8,
        },
        Cut(usize),
        Mend(usize),
    }

    const LINKS: [(u64, u64); 4] = [(1, 2), (1, 3), (2, 4), (3, 4)];

    fn turn() -> impl Strategy<Value = Turn> {
        prop_oneof![
            4 => (0..12u8, 1..70u64, 0..3u16, any::<bool>()).prop_map(
                |(name, rate, priority, both)| Turn::Ask { name, rate, priority, both }
            ),
            2 => (0..12u8).prop_map(|name| Turn::Drop { name }),
            1 => (0..LINKS.len()).prop_map(Turn::Cut),
            1 => (0..LINKS.len()).prop_map(Turn::Mend),
        ]
    }

    fn take_turn(turn: &Turn, asked: &mut Qos, network: &mut Network) {
        match *turn {
            Turn::Ask {
                name,
                rate,
                priority,
                both,
            } => {
                let name = format!("c{name}");
                asked.circuits.retain(|circuit| circuit.name != name);
                asked.circuits.push(Circuit {
                    priority,
                    both,
                    ..circuit(&name, rate)
                });
            }
            Turn::Drop { name } => {
                let name = format!("c{name}");
                asked.circuits.retain(|circuit| circuit.name != name);
            }
            Turn::Cut(at) => cut(network, LINKS[at].0, LINKS[at].1),
            Turn::Mend(at) => link(network, LINKS[at].0, LINKS[at].1),
        }
    }

    proptest! {
        #[test]
        fn no_link_ever_carries_more_than_it_has_and_what_is_freed_is_used_again(
            turns in proptest::collection::vec(turn(), 1..40)
        ) {
            let (mut asked, mut network) = (qos(Vec::new()), ring());
            let mut circuits = Circuits::default();
            for turn in &turns {
                take_turn(turn, &mut asked, &mut network);
                let mut twin = circuits.clone();
                let outcomes = circuits.update(&asked, &network);
                prop_assert_eq!(twin.update(&asked, &network), outcomes.clone());
                prop_assert_eq!(&twin, &circuits);
                let mut used: BTreeMap<Location, Rate> = BTreeMap::new();
                for (_, route) in circuits.routes() {
                    for at in route.outlets() {
                        let sum = used.entry(at).or_default();
                        *sum = sum.saturating_add(route.circuit.rate.unwrap());
                    }
                }
                for (dpid, switch) in &network.switches {
                    for port in switch.ports.keys() {
                        let at = Location { dpid: *dpid, port: *port };
                        let sum = used.get(&at).copied().unwrap_or_default();
                        prop_assert_eq!(circuits.reserved(at), sum);
                        prop_assert!(sum <= Rate::mbit(100), "{} has {}", at, sum);
                    }
                }
                for circuit in &asked.circuits {
                    let is_set = circuits.route(&circuit.name).is_some();
                    let is_refused = matches!(outcomes[&circuit.name], Outcome::Refused(_));
                    prop_assert_eq!(is_set, !is_refused);
                    // Refused only if it would not fit now, either.
                    let would = circuits.would_take(&asked, &network, circuit);
                    prop_assert!(is_set || would.is_err());
                }
            }
            let _ = circuits.update(&qos(Vec::new()), &network);
            prop_assert_eq!(&circuits, &Circuits::default());
            let (mut one, mut other) = (circuits, Circuits::default());
            let network = ring();
            prop_assert_eq!(one.update(&asked, &network), other.update(&asked, &network));
        }
    }
}
