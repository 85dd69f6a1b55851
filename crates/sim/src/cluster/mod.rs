//! A cluster of controllers under virtual time: the real [`Cluster`] machines, a model store, model
//! switches with roles, and the network between them.
//!
//! Every 50 ms, each member writes to every switch that it serves. [`World`] checks the run and
//! keeps the errors that it finds in [`World::faults`].

mod store;
mod switch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant, SplitMix64};
use control::ConnectionId;
use control::cluster::{
    Cluster, ClusterConfig, ClusterEvent, ClusterOutput, Generation, HighWater, Member, MemberId,
    PeerMessage, RoleRefusal, ShardId, StoreAnswer, StoreChange, StoreRequest,
};
use openflow::DatapathId;
use openflow::message::{Role, RoleMessage};

use crate::channel::EventQueue;

pub use store::{LEASE, ModelStore};
pub use switch::{Connection, ModelSwitch, RoleAnswer};

const TICK: Duration = Duration::from_millis(50);
const KEEPALIVE: Duration = Duration::from_secs(1);
const EXPIRY_STEP: Duration = Duration::from_millis(500);
/// The time within which members notice that the store was restored, and agree on a new epoch.
/// Terms may be given twice until then.
const UNNOTICED_MAX: Duration = Duration::from_secs(2);
/// The time within which every member receives a change in the store: its watch may have broken
/// without notice.
const NEWS_MAX: Duration = Duration::from_millis(450);
/// Maximum number of timers of a member at one time.
const TIMERS_MAX: u32 = 8;
/// Maximum number of faults that are kept.
const FAULTS_MAX: usize = 8;
/// Maximum number of messages of one member a second: to each peer, to the store, and to each
/// switch.
const PEER_MESSAGES_MAX: u64 = 60;
const STORE_REQUESTS_MAX: u64 = 40;
const ROLE_REQUESTS_MAX: u64 = 60;

/// A message or an event at a member.
#[derive(Clone, Debug)]
enum Input {
    Timer,
    Tick,
    Keepalive,
    Ready(bool),
    Drained(bool),
    Store(u32, StoreAnswer),
    Change(u32, StoreChange),
    WatchLost(u32),
    Peer(usize, PeerMessage),
    Reset(usize),
    SwitchUp(usize, ConnectionId),
    SwitchDown(usize, ConnectionId),
    Role(usize, ConnectionId, u32, RoleAnswer),
    Demoted(usize, ConnectionId, RoleMessage),
    IsSlave(usize, ConnectionId),
}

#[derive(Clone, Debug)]
enum ToStore {
    Request(Request),
    /// A keepalive with the entry, and whether the watch runs.
    Register(bool),
    Revoke,
}

/// A request to the store, with the member's knowledge at the time it was sent.
#[derive(Clone, Debug)]
struct Request {
    number: u32,
    request: StoreRequest,
    /// The schema in use.
    form: u32,
    /// Whether there was a reason to move a shard, if the request moves one.
    has_reason: bool,
}

#[derive(Clone, Debug)]
enum ToSwitch {
    Role(u32, RoleMessage),
    Write,
}

#[derive(Clone, Debug)]
enum Event {
    /// For a member, if it is still the same process.
    Node(usize, u32, Input),
    /// For the store's process to which it was sent, from a member's process.
    Store(u32, usize, u32, ToStore),
    Switch(usize, usize, ConnectionId, ToSwitch),
    Connect(usize, usize, u32),
    Expiry,
    Exit(usize, u32),
}

/// A member's process, and the state that its host keeps of it.
#[derive(Debug)]
struct Node {
    id: MemberId,
    cluster: Option<Cluster>,
    /// Counts the member's processes.
    process: u32,
    /// The greatest schema that the process reads, and that the installed program reads.
    reads: u32,
    installed: u32,
    is_ready: bool,
    is_leaving: bool,
    /// Whether the member has read that it is drained, and so is not ready.
    is_drained: bool,
    /// Whether the member has reported that it is deaf, and so its entry is not ready.
    says_deaf: bool,
    is_stopped: bool,
    /// Whether the application does not tick.
    is_stalled: bool,
    /// Whether others do not reach the member, although it reaches them.
    is_deaf: bool,
    held: VecDeque<Input>,
    timer_at: Option<Instant>,
    /// The time of the last timer, and the number of timers at that time.
    timers: (Instant, u32),
    high_water: Option<HighWater>,
    /// The number of the latest request to the store.
    asked: u32,
    /// The watch: its number, and whether the store serves it.
    watch: u32,
    is_watching: bool,
    /// Connections on which the member was notified that it is no longer master.
    demoted: BTreeSet<ConnectionId>,
    /// Time of the last heartbeat from each peer; `None` once its connection was reset.
    heard: Vec<Option<Instant>>,
    sent: Sent,
}

/// Messages sent within the present second.
#[derive(Debug, Default)]
struct Sent {
    second: u64,
    peer: u64,
    store: u64,
    role: u64,
}

/// A take-over from a suspected member.
#[derive(Clone, Debug)]
pub struct Takeover {
    pub at: Instant,
    pub by: usize,
    pub shard: ShardId,
}

/// The whole model: members, store, switches and the network between them.
#[derive(Debug)]
pub struct World {
    now: Instant,
    random: SplitMix64,
    events: EventQueue<Event>,
    nodes: Vec<Node>,
    pub store: ModelStore,
    backup: Option<ModelStore>,
    /// Counts the store's processes: a request is lost with the process that has it.
    store_process: u32,
    /// The time that the store takes for each request.
    store_delay: Duration,
    /// The time until which members may not have noticed a restore.
    unnoticed_until: Instant,
    /// The greatest epoch of the store before its last restore.
    lost_epoch: Option<u16>,
    /// Orders that were written into a restored store whose epoch was not raised yet.
    pub unfenced: u64,
    pub switches: Vec<ModelSwitch>,
    shards: u16,
    /// Cut connections: pairs of members, pairs of a switch and a member, and members cut from the
    /// store.
    cut_peers: BTreeSet<(usize, usize)>,
    cut_switches: BTreeSet<(usize, usize)>,
    cut_store: BTreeSet<usize>,
    /// The last arrival between two places: messages on a connection do not overtake each other.
    last: BTreeMap<(Place, Place), Instant>,
    connections: u64,
    /// The member that first claimed each generation.
    claims: BTreeMap<u64, usize>,
    /// Orders that came into use because of a suspicion.
    taken: BTreeSet<(ShardId, u64)>,
    pub takeovers: Vec<Takeover>,
    /// Changes of the first owner in the store.
    pub handovers: u64,
    /// Time of each switch's last accepted write, and the longest time without one since the last
    /// reset.
    written_at: Vec<Option<Instant>>,
    pub longest_gap: Duration,
    /// Writes that a switch refused.
    pub refused: u64,
    pub writes: u64,
    pub faults: Vec<String>,
    pub log: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Node(usize),
    Switch(usize),
    Store,
}

impl World {
    /// Creates a world whose members are not started.
    pub fn new(seed: u64, members: usize, switches: usize, shards: u16) -> World {
        let node = |n: usize| Node {
            id: MemberId::new(&format!("m{n}")).expect("a name"),
            cluster: None,
            process: 0,
            reads: 1,
            installed: 1,
            is_ready: false,
            is_leaving: false,
            is_drained: false,
            says_deaf: false,
            is_stopped: false,
            is_stalled: false,
            is_deaf: false,
            held: VecDeque::new(),
            timer_at: None,
            timers: (Instant::START, 0),
            high_water: None,
            asked: 0,
            watch: 0,
            is_watching: false,
            demoted: BTreeSet::new(),
            heard: vec![None; members],
            sent: Sent::default(),
        };
        let switch = |n: usize| {
            let dpid = DatapathId(n as u64 + 1);
            ModelSwitch::new(dpid, ShardId::of(dpid, shards), members)
        };
        let mut world = World {
            now: Instant::START,
            random: SplitMix64::new(seed),
            events: EventQueue::default(),
            nodes: (0..members).map(node).collect(),
            store: ModelStore::new(1),
            backup: None,
            store_process: 0,
            store_delay: Duration::ZERO,
            unnoticed_until: Instant::START,
            lost_epoch: None,
            unfenced: 0,
            switches: (0..switches).map(switch).collect(),
            shards,
            cut_peers: BTreeSet::new(),
            cut_switches: BTreeSet::new(),
            cut_store: BTreeSet::new(),
            last: BTreeMap::new(),
            connections: 0,
            claims: BTreeMap::new(),
            taken: BTreeSet::new(),
            takeovers: Vec::new(),
            handovers: 0,
            written_at: vec![None; switches],
            longest_gap: Duration::ZERO,
            refused: 0,
            writes: 0,
            faults: Vec::new(),
            log: None,
        };
        world.events.push(Instant::START, Event::Expiry);
        world
    }

    /// Creates a world whose members have all been ready for three seconds.
    pub fn started(seed: u64, members: usize, switches: usize, shards: u16) -> World {
        let mut world = World::new(seed, members, switches, shards);
        for member in 0..members {
            world.start(member);
        }
        world.run_for(Duration::from_secs(3));
        world
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn members(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_running(&self, member: usize) -> bool {
        self.nodes[member].cluster.is_some()
    }

    pub fn is_stopped(&self, member: usize) -> bool {
        self.nodes[member].is_stopped
    }

    pub fn cluster(&self, member: usize) -> Option<&Cluster> {
        self.nodes[member].cluster.as_ref()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next() % end.max(1)
    }

    /// Returns the arrival time of a message: 0.2 to 2.2 ms from now, and not before earlier
    /// messages.
    fn arrival(&mut self, from: Place, to: Place) -> Instant {
        let delay = Duration::from_micros(200 + self.below(2000));
        let last = self.last.entry((from, to)).or_default();
        *last = (self.now + delay).max(*last);
        *last
    }

    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_MAX {
            let at = self.now.as_nanos() / 1_000;
            self.faults.push(format!("{at} us: {fault}"));
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let at = self.now.as_nanos() / 1_000;
        if let Some(log) = &mut self.log {
            log.push(format!("{at} {}", text()));
        }
    }

    fn deliver(&mut self, at: Instant, member: usize, input: Input) {
        let process = self.nodes[member].process;
        self.events.push(at, Event::Node(member, process, input));
    }

    /// Installs a program that reads up to this schema. The member runs it once it starts again.
    pub fn install(&mut self, member: usize, reads: u32) {
        self.note(|| format!("install {member}: {reads}"));
        self.nodes[member].installed = reads;
    }

    /// Whether the store has a schema that a member's process does not read.
    fn is_too_old(&self, member: usize) -> bool {
        self.nodes[member].reads < self.store.schema()
    }

    /// Starts a member's process. It is ready within half a second.
    pub fn start(&mut self, member: usize) {
        if self.is_running(member) {
            return;
        }
        self.note(|| format!("start {member}"));
        let seed = self.random.next();
        let members = self.nodes.len();
        let node = &mut self.nodes[member];
        node.process += 1;
        node.reads = node.installed;
        let config = ClusterConfig {
            id: node.id.clone(),
            shards: self.shards,
            seed,
            reads: node.reads,
        };
        node.cluster = Some(Cluster::new(self.now, config, node.high_water));
        (node.is_ready, node.is_leaving, node.is_stalled) = (false, false, false);
        (node.timer_at, node.is_watching, node.says_deaf) = (None, false, false);
        node.heard = vec![None; members];
        let process = node.process;
        let now = self.now;
        let ready_at = now + Duration::from_millis(50 + self.below(450));
        for input in [Input::Timer, Input::Tick, Input::Keepalive] {
            self.deliver(now, member, input);
        }
        self.deliver(ready_at, member, Input::Ready(true));
        for switch in 0..self.switches.len() {
            let at = now + Duration::from_millis(1 + self.below(50));
            self.events
                .push(at, Event::Connect(switch, member, process));
        }
    }

    /// Kills a process: its connections are reset within a few milliseconds.
    pub fn kill(&mut self, member: usize) {
        if self.nodes[member].cluster.take().is_none() {
            return;
        }
        self.note(|| format!("kill {member}"));
        let node = &mut self.nodes[member];
        node.process += 1;
        (node.is_stopped, node.is_leaving) = (false, false);
        node.held.clear();
        for other in 0..self.nodes.len() {
            if other != member && self.is_running(other) && self.reaches(member, other) {
                let at = self.now + Duration::from_millis(3 + self.below(11));
                self.deliver(at, other, Input::Reset(member));
            }
        }
        for switch in &mut self.switches {
            switch.connections[member] = None;
        }
    }

    /// Has a member leave in order: others take its shards, then it exits.
    pub fn terminate(&mut self, member: usize) {
        if self.is_running(member) && !self.nodes[member].is_leaving {
            self.note(|| format!("terminate {member}"));
            let node = &mut self.nodes[member];
            node.is_leaving = true;
            let process = node.process;
            self.deliver(self.now, member, Input::Ready(false));
            let last = self.now + Duration::from_secs(2);
            self.events.push(last, Event::Exit(member, process));
        }
    }

    /// Has an operator move a shard to a member.
    pub fn ask_move(&mut self, shard: ShardId, to: usize) {
        if self.store.is_up {
            self.note(|| format!("move {shard} to {to}"));
            let to = self.nodes[to].id.clone();
            self.store.ask_move(shard, &to);
            self.publish();
        }
    }

    /// Has an operator drain a member, or undo the drain.
    pub fn set_drained(&mut self, member: usize, is_drained: bool) {
        if self.store.is_up {
            self.note(|| format!("drained {member}: {is_drained}"));
            let id = self.nodes[member].id.clone();
            match is_drained {
                true => self.store.drained.insert(id),
                false => self.store.drained.remove(&id),
            };
        }
    }

    /// Stops or continues a member's process, as by SIGSTOP and SIGCONT.
    pub fn set_stopped(&mut self, member: usize, is_stopped: bool) {
        if !self.is_running(member) {
            return;
        }
        self.note(|| format!("stopped {member}: {is_stopped}"));
        self.nodes[member].is_stopped = is_stopped;
        while !self.nodes[member].is_stopped
            && let Some(input) = self.nodes[member].held.pop_front()
        {
            self.handle(member, input);
        }
    }

    /// Stalls the application of a member, or lets it continue.
    pub fn set_stalled(&mut self, member: usize, is_stalled: bool) {
        self.note(|| format!("stalled {member}: {is_stalled}"));
        self.nodes[member].is_stalled = is_stalled;
    }

    /// Sets whether a member receives nothing from its peers while they receive its messages, as
    /// when a firewall drops packets for its port.
    pub fn set_deaf(&mut self, member: usize, is_deaf: bool) {
        self.note(|| format!("deaf {member}: {is_deaf}"));
        self.nodes[member].is_deaf = is_deaf;
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let is_cut = self.cut_peers.contains(&(from.min(to), from.max(to)));
        !is_cut && !self.nodes[to].is_deaf
    }

    /// Cuts two members from each other, or reconnects them.
    pub fn set_cut(&mut self, a: usize, b: usize, is_cut: bool) {
        self.note(|| format!("cut {a} {b}: {is_cut}"));
        let pair = (a.min(b), a.max(b));
        match is_cut {
            true => self.cut_peers.insert(pair),
            false => self.cut_peers.remove(&pair),
        };
    }

    /// Cuts a member from a switch, or reconnects them.
    pub fn set_switch_cut(&mut self, switch: usize, member: usize, is_cut: bool) {
        self.note(|| format!("cut switch {switch} {member}: {is_cut}"));
        match is_cut {
            true => {
                self.cut_switches.insert((switch, member));
                self.disconnect(switch, member);
            }
            false => {
                self.cut_switches.remove(&(switch, member));
            }
        }
    }

    /// Cuts a member from the store, or reconnects it.
    pub fn set_store_cut(&mut self, member: usize, is_cut: bool) {
        self.note(|| format!("cut store {member}: {is_cut}"));
        match is_cut {
            true => {
                self.cut_store.insert(member);
                self.lose_watch(member);
            }
            false => {
                self.cut_store.remove(&member);
            }
        }
    }

    /// Stops the store, or starts it again.
    pub fn set_store(&mut self, is_up: bool) {
        self.note(|| format!("store {is_up}"));
        self.store.is_up = is_up;
        if self.unnoticed_until > self.now {
            self.unnoticed_until = self.noticed_at();
        }
        self.store.extend_leases(self.now);
        if !is_up {
            self.store_process += 1;
            self.lose_watches();
        }
    }

    /// Sets the time that the store takes for each request, as with a slow disk. Members have given
    /// up by then, but the store still carries out their requests.
    pub fn set_store_delay(&mut self, delay: Duration) {
        self.note(|| format!("store takes {delay:?}"));
        self.store_delay = delay;
    }

    /// Fills the store, or empties it: a full store refuses requests that need room, and answers
    /// reads.
    pub fn set_store_full(&mut self, is_full: bool) {
        self.note(|| format!("store full: {is_full}"));
        self.store.is_full = is_full;
    }

    /// Ends all watches, as when the store is compacted.
    pub fn lose_watches(&mut self) {
        for member in 0..self.nodes.len() {
            self.lose_watch(member);
        }
    }

    /// Ends the watch of a member; changes under way on it are lost.
    pub fn lose_watch(&mut self, member: usize) {
        if std::mem::take(&mut self.nodes[member].is_watching) {
            let watch = self.nodes[member].watch;
            let at = self.now + Duration::from_millis(1 + self.below(400));
            self.deliver(at, member, Input::WatchLost(watch));
        }
    }

    /// Saves the store's state for [`World::restore`].
    pub fn back_up(&mut self) {
        self.note(|| "back up".to_owned());
        self.backup = Some(self.store.clone());
    }

    /// Restores the store from the last backup, if there is one.
    pub fn restore(&mut self, has_new_id: bool) {
        if let Some(backup) = self.backup.clone() {
            self.note(|| "restore".to_owned());
            let id = self.store.cluster_id + u64::from(has_new_id);
            self.lost_epoch = self.lost_epoch.max(Some(self.store.epoch()));
            self.store.restore(self.now, &backup, id);
            self.store_process += 1;
            self.unnoticed_until = self.noticed_at();
            self.lose_watches();
        }
    }

    /// The time by which all members have noticed that the store was restored: no member does while
    /// the store is down.
    fn noticed_at(&self) -> Instant {
        match self.store.is_up {
            true => self.now + UNNOTICED_MAX,
            false => Instant::START + Duration::MAX,
        }
    }

    /// Breaks a switch's connection; the switch reconnects a little later.
    pub fn disconnect(&mut self, switch: usize, member: usize) {
        if let Some(connection) = self.switches[switch].connections[member].take() {
            self.note(|| format!("disconnect switch {switch} {member}"));
            let at = self.arrival(Place::Switch(switch), Place::Node(member));
            self.deliver(at, member, Input::SwitchDown(switch, connection.id));
        }
        self.connect_later(switch, member);
    }

    fn connect_later(&mut self, switch: usize, member: usize) {
        let at = self.now + Duration::from_millis(20 + self.below(300));
        let process = self.nodes[member].process;
        self.events
            .push(at, Event::Connect(switch, member, process));
    }

    /// Has a switch lose its power and its generation.
    pub fn reboot(&mut self, switch: usize) {
        for member in 0..self.nodes.len() {
            self.disconnect(switch, member);
        }
        self.switches[switch].reboot();
    }

    /// Has a foreign controller ask for the role of master at a switch, with this generation.
    pub fn claim(&mut self, switch: usize, generation: Generation) {
        self.note(|| format!("foreign claim at {switch}: {generation}"));
        let Some(member) = self.switches[switch].master() else {
            return;
        };
        // The foreign controller has no connection in the model, so the master only loses its role.
        let request = RoleMessage::new(Role::Secondary, generation.0);
        let (answer, _) = self.switches[switch].handle(member, request);
        if let RoleAnswer::Reply(status) = answer {
            self.demote(switch, member, status);
        }
    }

    fn demote(&mut self, switch: usize, member: usize, status: RoleMessage) {
        if let Some(connection) = self.switches[switch].connections[member] {
            let at = self.arrival(Place::Switch(switch), Place::Node(member));
            self.deliver(at, member, Input::Demoted(switch, connection.id, status));
        }
    }

    /// Mends everything, and starts or continues every member.
    pub fn mend(&mut self) {
        self.note(|| "mend".to_owned());
        self.cut_peers.clear();
        self.cut_switches.clear();
        self.cut_store.clear();
        if !self.store.is_up {
            self.set_store(true);
        }
        self.store_delay = Duration::ZERO;
        self.store.is_full = false;
        if self.store.drained.len() == self.nodes.len() {
            self.store.drained.pop_last();
        }
        for member in 0..self.nodes.len() {
            self.set_stopped(member, false);
            self.set_stalled(member, false);
            self.set_deaf(member, false);
            if !self.nodes[member].is_leaving {
                self.start(member);
            }
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.events.next_at().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.events.pop() else {
                break;
            };
            self.now = at;
            self.handle_event(event);
        }
        self.now = until;
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Node(member, process, input) => {
                let node = &mut self.nodes[member];
                if node.process != process || node.cluster.is_none() {
                    return;
                }
                match node.is_stopped {
                    true => node.held.push_back(input),
                    false => self.handle(member, input),
                }
            }
            Event::Store(at, member, process, message) => {
                if at == self.store_process {
                    self.handle_store(member, process, message);
                }
            }
            Event::Switch(switch, member, connection, message) => {
                let at = self.switches[switch].connections[member];
                if at.is_some_and(|at| at.id == connection) {
                    self.handle_switch(switch, member, connection, message);
                }
            }
            Event::Connect(switch, member, process) => self.connect(switch, member, process),
            Event::Expiry => {
                if self.store.is_up {
                    self.store.expire(self.now);
                    self.publish();
                }
                self.events.push(self.now + EXPIRY_STEP, Event::Expiry);
            }
            Event::Exit(member, process) => {
                if self.nodes[member].process == process {
                    self.kill(member);
                }
            }
        }
    }

    fn connect(&mut self, switch: usize, member: usize, process: u32) {
        let node = &self.nodes[member];
        if node.process != process
            || node.cluster.is_none()
            || self.switches[switch].connections[member].is_some()
        {
            return;
        }
        if node.is_stopped || self.cut_switches.contains(&(switch, member)) {
            self.connect_later(switch, member);
            return;
        }
        self.connections += 1;
        let id = ConnectionId(self.connections);
        let role = Role::Equal;
        self.switches[switch].connections[member] = Some(Connection { id, role });
        let at = self.arrival(Place::Switch(switch), Place::Node(member));
        self.deliver(at, member, Input::SwitchUp(switch, id));
    }

    fn handle_store(&mut self, member: usize, process: u32, message: ToStore) {
        if !self.store.is_up || self.cut_store.contains(&member) {
            return;
        }
        let id = self.nodes[member].id.clone();
        match message {
            ToStore::Register(is_ready) => {
                let entry = Member {
                    address: String::new(),
                    is_ready,
                    reads: self.nodes[member].reads,
                };
                // A member without an entry compares the schema first.
                if !self.is_too_old(member) || self.store.members().contains_key(&id) {
                    self.store.register(self.now, &id, entry);
                }
                let is_drained = self.store.drained.contains(&id);
                if self.nodes[member].process == process {
                    let at = self.arrival(Place::Store, Place::Node(member));
                    self.deliver(at, member, Input::Drained(is_drained));
                }
            }
            ToStore::Revoke => self.store.revoke(&id),
            ToStore::Request(sent) => {
                let (number, request) = (sent.number, &sent.request);
                let reason = self.reason(member, request);
                let is_too_old = self.is_too_old(member);
                let answer = self.store.handle(request);
                if matches!(answer, StoreAnswer::Written { .. }) {
                    self.check_form(member, is_too_old, &sent);
                    self.check_write(member, reason, &sent);
                    let is_order = matches!(request, StoreRequest::PutOwn { .. });
                    let is_fenced = self
                        .lost_epoch
                        .is_none_or(|epoch| self.store.epoch() > epoch);
                    self.unfenced += u64::from(is_order && !is_fenced);
                }
                if self.nodes[member].process == process {
                    let at = self.arrival(Place::Store, Place::Node(member));
                    self.deliver(at, member, Input::Store(number, answer));
                }
            }
        }
        self.publish();
    }

    /// Whether this write may give a shard to another owner: the owner was suspected, has no entry,
    /// or is to leave, or an operator asked for the change. `None` if the owner stays.
    fn reason(&self, member: usize, request: &StoreRequest) -> Option<bool> {
        let StoreRequest::PutOwn { shard, order, .. } = request else {
            return None;
        };
        let own = self.store.own.get(shard)?;
        let owner = own.order.holder(0)?;
        if order.holder(0) == Some(owner) {
            return None;
        }
        let entry = self.store.members().get(owner);
        // Other members learn of a new entry a little later.
        let is_leaving = entry.is_none_or(|entry| !entry.is_ready)
            || self.now - self.store.changed_at(owner) < NEWS_MAX;
        let is_taken = self.taken.contains(&(*shard, own.revision));
        let next = order.holder(0);
        let is_asked = next.is_some_and(|next| self.store.is_asked_for(*shard, next));
        Some(is_leaving || is_taken || is_asked || !self.hears(member, owner))
    }

    /// Checks that every member with an entry reads the schema in use, and that all writes use this
    /// schema.
    fn check_form(&mut self, member: usize, is_too_old: bool, sent: &Request) {
        let (form, request, in_use) = (sent.form, &sent.request, self.store.schema());
        if let StoreRequest::PutSchema { schema, .. } = request {
            self.note(|| format!("{member} writes {request:?}"));
            let mut there = self.store.members().iter();
            if let Some((id, _)) = there.find(|(_, entry)| entry.reads < *schema) {
                self.fault(format!("{id} does not read schema {schema}"));
            }
        } else if is_too_old || (form > in_use && self.unnoticed_until < self.now) {
            self.fault(format!(
                "member {member} writes in schema {form}, in use is {in_use}: {request:?}"
            ));
        }
    }

    fn check_write(&mut self, member: usize, reason: Option<bool>, sent: &Request) {
        let Some(has_reason) = reason else {
            return;
        };
        let request = &sent.request;
        self.note(|| format!("{member} writes {request:?}"));
        self.handovers += 1;
        let is_noticed = self.unnoticed_until < self.now;
        if is_noticed && !has_reason && !sent.has_reason {
            self.fault(format!(
                "member {member} moves a shard without a suspicion: {request:?}"
            ));
        }
    }

    /// Sends the store's changes to the watches.
    fn publish(&mut self) {
        for change in std::mem::take(&mut self.store.changes) {
            for member in 0..self.nodes.len() {
                if self.nodes[member].is_watching && !self.cut_store.contains(&member) {
                    let watch = self.nodes[member].watch;
                    let at = self.arrival(Place::Store, Place::Node(member));
                    self.deliver(at, member, Input::Change(watch, change.clone()));
                }
            }
        }
    }

    fn handle_switch(
        &mut self,
        switch: usize,
        member: usize,
        connection: ConnectionId,
        message: ToSwitch,
    ) {
        match message {
            ToSwitch::Role(number, request) => {
                let (answer, demoted) = self.switches[switch].handle(member, request);
                let at = self.arrival(Place::Switch(switch), Place::Node(member));
                self.deliver(at, member, Input::Role(switch, connection, number, answer));
                let status = RoleMessage {
                    role: Role::Secondary,
                    ..request
                };
                for other in demoted {
                    self.demote(switch, other, status);
                }
            }
            ToSwitch::Write => match self.switches[switch].write(member) {
                Ok(true) => {
                    self.writes += 1;
                    if let Some(before) = self.written_at[switch].replace(self.now) {
                        self.longest_gap = self.longest_gap.max(self.now - before);
                    }
                }
                Ok(false) => {
                    self.refused += 1;
                    let at = self.arrival(Place::Switch(switch), Place::Node(member));
                    self.deliver(at, member, Input::IsSlave(switch, connection));
                }
                Err(fault) => self.fault(fault),
            },
        }
    }

    fn handle(&mut self, member: usize, input: Input) {
        let now = self.now;
        let node = &mut self.nodes[member];
        let Some(cluster) = &mut node.cluster else {
            return;
        };
        match input {
            // Another timer for the same time was handled already.
            Input::Timer if node.timer_at.is_none_or(|at| now < at) => return,
            Input::Timer => {
                node.timer_at = None;
                cluster.handle_timeout(now);
                let (at, count) = node.timers;
                node.timers = (now, if at == now { count + 1 } else { 1 });
                if node.timers.1 > TIMERS_MAX {
                    self.fault(format!("member {member} is due again and again"));
                    self.kill(member);
                    return;
                }
            }
            Input::Tick => {
                if !node.is_stalled {
                    cluster.handle_application_tick(now);
                    self.write(member);
                }
                self.deliver(now + TICK, member, Input::Tick);
            }
            Input::Keepalive => {
                self.register(member);
                self.deliver(now + KEEPALIVE, member, Input::Keepalive);
            }
            Input::Ready(is_ready) => {
                if !node.is_leaving || !is_ready {
                    let is_ready = is_ready && !node.is_drained;
                    node.is_ready = is_ready;
                    cluster.set_ready(now, is_ready);
                    self.register(member);
                }
            }
            Input::Drained(is_drained) => {
                if std::mem::replace(&mut node.is_drained, is_drained) != is_drained {
                    self.deliver(now, member, Input::Ready(!is_drained));
                }
            }
            Input::Store(number, answer) => {
                // A member's requests are carried out one after the other: the answer to an earlier
                // request begins no watch.
                if number == node.asked {
                    self.watch(member, &answer);
                }
                if let Some(cluster) = &mut self.nodes[member].cluster {
                    cluster.handle_store_answer(now, number, answer);
                }
            }
            Input::Change(watch, change) => {
                if watch == node.watch {
                    cluster.handle_store_change(now, change);
                }
            }
            Input::WatchLost(watch) => {
                if watch == node.watch {
                    cluster.handle_watch_lost(now);
                }
            }
            Input::Peer(from, message) => {
                if matches!(message, PeerMessage::Heartbeat(_)) {
                    node.heard[from] = Some(now);
                }
                let from = self.nodes[from].id.clone();
                if let Some(cluster) = &mut self.nodes[member].cluster {
                    cluster.handle_peer_message(now, &from, message);
                }
            }
            Input::Reset(from) => {
                node.heard[from] = None;
                let from = self.nodes[from].id.clone();
                if let Some(cluster) = &mut self.nodes[member].cluster {
                    cluster.handle_peer_reset(now, &from);
                }
            }
            Input::SwitchUp(switch, id) => {
                let ModelSwitch { dpid, shard, .. } = self.switches[switch];
                cluster.handle_switch_up(now, dpid, id, shard);
            }
            Input::SwitchDown(switch, id) => {
                cluster.handle_switch_down(now, self.switches[switch].dpid, id);
            }
            Input::Role(switch, id, number, answer) => {
                let dpid = self.switches[switch].dpid;
                match answer {
                    RoleAnswer::Reply(reply) => {
                        if reply.role == Role::Primary {
                            node.demoted.remove(&id);
                        }
                        cluster.handle_role_reply(now, dpid, id, number, reply);
                    }
                    RoleAnswer::Stale => {
                        let stale = RoleRefusal::Stale { number };
                        cluster.handle_role_refused(now, dpid, id, stale);
                    }
                }
            }
            Input::Demoted(switch, id, status) => {
                node.demoted.insert(id);
                let dpid = self.switches[switch].dpid;
                cluster.handle_role_status(now, dpid, id, status);
            }
            Input::IsSlave(switch, id) => {
                let dpid = self.switches[switch].dpid;
                cluster.handle_role_refused(now, dpid, id, RoleRefusal::IsSlave);
            }
        }
        self.drain(member);
    }

    /// Starts a watch from the revision of a read that the store has answered. Changes meanwhile
    /// follow.
    fn watch(&mut self, member: usize, answer: &StoreAnswer) {
        let StoreAnswer::Read(snapshot) = answer else {
            return;
        };
        let is_reached = self.store.is_up && !self.cut_store.contains(&member);
        let node = &mut self.nodes[member];
        node.watch += 1;
        node.is_watching = is_reached;
        let is_same = snapshot.cluster_id == self.store.cluster_id
            && snapshot.revision == self.store.revision;
        // The model does not keep the changes since then: the watch is compacted.
        if !is_reached || !is_same {
            node.is_watching = true;
            self.lose_watch(member);
        }
    }

    /// Keeps the member's entry alive, and reports whether the member is ready.
    fn register(&mut self, member: usize) {
        let node = &self.nodes[member];
        let is_ready = node.is_ready && !node.says_deaf;
        self.send_to_store(member, ToStore::Register(is_ready));
    }

    fn send_to_store(&mut self, member: usize, message: ToStore) {
        let process = self.nodes[member].process;
        let at = self.arrival(Place::Node(member), Place::Store) + self.store_delay;
        let event = Event::Store(self.store_process, member, process, message);
        self.events.push(at, event);
    }

    fn send_to_switch(&mut self, dpid: DatapathId, member: usize, id: ConnectionId, to: ToSwitch) {
        let switch = dpid.0 as usize - 1;
        let at = self.arrival(Place::Node(member), Place::Switch(switch));
        self.events.push(at, Event::Switch(switch, member, id, to));
    }

    /// Has the application write to each switch that it serves.
    fn write(&mut self, member: usize) {
        // The outputs of earlier input are drained first, as the driver does.
        self.drain(member);
        for switch in 0..self.switches.len() {
            let dpid = self.switches[switch].dpid;
            let cluster = self.nodes[member].cluster.as_ref();
            let connection = self.switches[switch].connections[member];
            if let Some(connection) = connection
                && cluster.is_some_and(|cluster| cluster.serves(dpid))
            {
                if self.nodes[member].demoted.contains(&connection.id) {
                    self.fault(format!("{member} writes to {dpid} though it was replaced"));
                }
                self.send_to_switch(dpid, member, connection.id, ToSwitch::Write);
            }
        }
    }

    fn drain(&mut self, member: usize) {
        while let Some(output) = self.nodes[member]
            .cluster
            .as_mut()
            .and_then(|c| c.poll_output())
        {
            self.handle_output(member, output);
        }
        let node = &mut self.nodes[member];
        let Some(cluster) = &node.cluster else {
            return;
        };
        if node.is_leaving && cluster.holds_nothing() {
            self.send_to_store(member, ToStore::Revoke);
            self.kill(member);
            return;
        }
        if let Some(due) = cluster.poll_timeout()
            && node.timer_at.is_none_or(|at| due < at)
        {
            let due = due.max(self.now);
            node.timer_at = Some(due);
            self.deliver(due, member, Input::Timer);
        }
    }

    fn handle_output(&mut self, member: usize, output: ClusterOutput) {
        self.count(member, &output);
        match output {
            ClusterOutput::Store { number, request } => {
                self.nodes[member].asked = number;
                let cluster = self.nodes[member].cluster.as_ref();
                let sent = Request {
                    number,
                    form: cluster.and_then(Cluster::schema).unwrap_or(1),
                    has_reason: self.reason(member, &request) == Some(true),
                    request,
                };
                self.send_to_store(member, ToStore::Request(sent));
            }
            ClusterOutput::Peer { to, message } => {
                let Some(other) = self.nodes.iter().position(|node| node.id == to) else {
                    return;
                };
                if self.is_running(other) && self.reaches(member, other) {
                    let at = self.arrival(Place::Node(member), Place::Node(other));
                    self.deliver(at, other, Input::Peer(member, message));
                }
            }
            ClusterOutput::Role {
                dpid,
                connection,
                number,
                request,
            } => {
                self.note(|| {
                    format!(
                        "{member} asks {dpid}: {:?} {}",
                        request.role,
                        Generation(request.generation_id)
                    )
                });
                if request.role == Role::Primary {
                    let first = *self.claims.entry(request.generation_id).or_insert(member);
                    if first != member && self.unnoticed_until < self.now {
                        let generation = Generation(request.generation_id);
                        self.fault(format!("{first} and {member} both claim {generation}"));
                    }
                }
                self.send_to_switch(dpid, member, connection, ToSwitch::Role(number, request));
            }
            ClusterOutput::HighWater(mark) => self.nodes[member].high_water = Some(mark),
            ClusterOutput::Event(event) => {
                self.note(|| format!("{member}: {event:?}"));
                match event {
                    ClusterEvent::TookOver { shard, from, .. } => {
                        self.check_takeover(member, shard, &from);
                    }
                    ClusterEvent::Deaf { .. } | ClusterEvent::HearsAgain => {
                        self.nodes[member].says_deaf = event != ClusterEvent::HearsAgain;
                        self.register(member);
                    }
                    _ => {}
                }
            }
            ClusterOutput::Close { dpid, connection } => {
                let switch = dpid.0 as usize - 1;
                let at = self.switches[switch].connections[member];
                if at.is_some_and(|at| at.id == connection) {
                    self.disconnect(switch, member);
                }
            }
            ClusterOutput::Serve { .. }
            | ClusterOutput::Yield { .. }
            | ClusterOutput::Members(_) => {}
        }
    }

    /// Whether a member has received a heartbeat of another within three heartbeat intervals.
    fn hears(&self, member: usize, other: &MemberId) -> bool {
        let silence = Duration::from_millis(300);
        let other = self.nodes.iter().position(|node| node.id == *other);
        let heard = other.and_then(|other| self.nodes[member].heard[other]);
        heard.is_some_and(|heard| self.now - heard < silence)
    }

    /// Checks that a member takes over only from a member that has been silent for a while.
    fn check_takeover(&mut self, member: usize, shard: ShardId, from: &MemberId) {
        if self.hears(member, from) {
            self.fault(format!(
                "{member} takes over {shard} from {from}, which it hears"
            ));
        }
        let status = self
            .cluster(member)
            .map(Cluster::shards)
            .unwrap_or_default();
        for status in status.iter().filter(|status| status.shard == shard) {
            self.taken.insert((shard, status.generation.revision()));
        }
        let (at, by) = (self.now, member);
        self.takeovers.push(Takeover { at, by, shard });
    }

    fn count(&mut self, member: usize, output: &ClusterOutput) {
        let (peers, switches) = (self.nodes.len() as u64, self.switches.len() as u64);
        let second = self.now.as_nanos() / 1_000_000_000;
        let sent = &mut self.nodes[member].sent;
        if sent.second != second {
            *sent = Sent {
                second,
                ..Sent::default()
            };
        }
        let (count, max) = match output {
            ClusterOutput::Peer { .. } => (&mut sent.peer, PEER_MESSAGES_MAX * peers),
            ClusterOutput::Store { .. } => (&mut sent.store, STORE_REQUESTS_MAX),
            ClusterOutput::Role { .. } => (&mut sent.role, ROLE_REQUESTS_MAX * switches),
            _ => return,
        };
        *count += 1;
        if *count == max + 1 {
            self.fault(format!(
                "member {member} sends over {max} a second: {output:?}"
            ));
        }
    }

    /// Forgets the longest time without a write.
    pub fn reset_gap(&mut self) {
        self.longest_gap = Duration::ZERO;
        self.written_at.fill(None);
    }

    /// Checks the conditions of quiet times: every switch has one master, which knows its role, and
    /// all members know the store's orders.
    pub fn check_quiet(&mut self) {
        for switch in 0..self.switches.len() {
            let ModelSwitch { dpid, .. } = self.switches[switch];
            let serving = |(n, node): (usize, &Node)| {
                let cluster = node.cluster.as_ref()?;
                cluster.serves(dpid).then_some(n)
            };
            let serving: Vec<usize> = self.nodes.iter().enumerate().filter_map(serving).collect();
            let master = self.switches[switch].master();
            if serving.len() != 1 || serving.first().copied() != master {
                self.fault(format!("{dpid}: master {master:?}, served by {serving:?}"));
            }
            if master.is_some_and(|n| self.is_too_old(n)) {
                self.fault(format!("{dpid}: its master {master:?} is too old"));
            }
            if master.is_some_and(|n| self.store.drained.contains(&self.nodes[n].id)) {
                self.fault(format!("{dpid}: its master {master:?} is drained"));
            }
        }
        for member in 0..self.nodes.len() {
            let Some(cluster) = self.cluster(member) else {
                continue;
            };
            let (schema, shards) = (cluster.schema(), cluster.shards());
            let in_use = self.store.schema();
            if schema != Some(in_use) {
                self.fault(format!(
                    "member {member} knows schema {schema:?}, the store has {in_use}"
                ));
            }
            if self.is_too_old(member) {
                continue;
            }
            for shard in shards {
                let known = (shard.generation.revision(), shard.generation.epoch());
                let own = self.store.own.get(&shard.shard);
                let kept = own.map(|own| (own.revision, self.store.epoch()));
                if kept != Some(known) {
                    self.fault(format!(
                        "member {member} knows {known:?} of shard {}, the store has {kept:?}",
                        shard.shard
                    ));
                }
            }
        }
    }
}
