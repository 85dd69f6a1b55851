//! One member of a cluster of controllers: decides which switches it serves, and when it takes over
//! another member's switches.
//!
//! A key-value store (etcd) lists the members and, for each shard of switches, an [`Order`] of
//! owners. The store's revision of that order is the owner's term. The switches enforce the term:
//! [`Generation`] puts term and place in the order into `generation_id`, and a switch refuses an
//! older one. Members exchange heartbeats directly, ten times a second. The member at the next
//! place takes over as soon as the owner is suspected, even while the store is unreachable. It
//! writes the new order once the store allows it.
//!
//! [`Cluster`] is the state machine: its input is the time, the store's answers, and messages from
//! peers and switches. It returns messages, and the switches to serve. It is driven like the rest
//! of the crate: call one `handle_*` or `set_ready`, drain [`Cluster::poll_output`], then wait for
//! input or for [`Cluster::poll_timeout`].
//!
//! Three rules keep members from fighting. Each place is used once per revision. A place is used
//! only when the member at the place in use is suspected, and others confirm it; a member that does
//! not use its earlier place within a few heartbeats is passed over. A member that has taken over
//! since its last heartbeat is alive, so it is replaced only after its connection was reset, it was
//! heard again, or its entry in the store has expired.
//!
//! A standby member requests SLAVE with the generation *in use*, not with the generation of its own
//! place: a switch notes the generation of a SLAVE request too, and would then refuse the owner.
//!
//! The assigner writes orders for shards whose owner is about to leave or is gone for good. It is
//! the first member, by name, that is ready and heard. Two members may both take themselves for the
//! assigner for a while. Each write compares the revision that it replaces, so only one of them
//! succeeds, and no election key is needed. Shards are never moved for balance. An operator moves a
//! shard with a request in the store ([`Move`]). The shard's owner carries out the request once it
//! hears the new owner.
//!
//! Members of two versions may run together. All documents have the form of the *schema in use*,
//! and each member's entry names the greatest schema that it reads. The assigner raises the schema
//! once all members have been able to read the next one for a while; a member that cannot read it
//! serves nothing.

mod assign;
mod output;
mod roles;
mod schema;
mod store;
mod suspicion;
mod term;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Budget, Duration, Instant};
use openflow::DatapathId;
use openflow::message::{Role, RoleMessage};

use crate::ConnectionId;
use assign::Writer;
use roles::{Step, Switch, Want};
use store::{News, Store};
use suspicion::{HEARTBEAT, Peers};

pub use output::{ClusterCounts, ClusterEvent, ClusterOutput, ShardStatus, Standing};
pub use roles::RoleRefusal;
pub use store::{
    Changed, HighWater, Member, Move, Own, Snapshot, StoreAnswer, StoreChange, StoreRequest,
};
pub use suspicion::{Heartbeat, InUse, PeerMessage};
pub use term::{
    EPOCH_MAX, Generation, MEMBERS_MAX, MemberId, NAME_BYTES_MAX, Order, PLACES, Rank, SHARDS_MAX,
    ShardId,
};

/// The age of the application's last tick above which this member sends no heartbeat.
const TICK_MAX: Duration = Duration::from_millis(100);
/// The age of the application's last tick above which this member takes over no shard.
const STALLED: Duration = Duration::from_millis(300);
/// How long an owner keeps serving a switch that its successor has not requested yet. Open vSwitch
/// waits up to 8 s between two attempts to connect, even to a successor that has just started.
const HANDOVER_MAX: Duration = Duration::from_secs(10);
/// How long members must be present, or absent, before an owner renews its order.
const STEADY: Duration = Duration::from_secs(1);
/// The number of remembered switches that caused a raise, and the raises allowed for each.
const RAISED_SWITCHES_MAX: usize = 512;
const RAISES_MAX: u8 = 8;
/// The largest epoch that a switch can cause. The rest is reserved for restored stores: a hostile
/// switch cannot use it up.
const FOREIGN_EPOCH_MAX: u16 = 1024;
/// How long a later place reported by a switch may stay unclaimed by any member.
const UNEXPLAINED_MAX: Duration = Duration::from_secs(1);
/// Liveness probes to switches: per second, and in one burst.
const PROBES_PER_S: u32 = 50;
const PROBES_BURST: u32 = 8;

/// The settings of a member.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// This member.
    pub id: MemberId,
    /// The number of shards, 1 to 256; equal in all members.
    pub shards: u16,
    /// Seed of the spread of retries; different in each process.
    pub seed: u64,
    /// The greatest store schema that this member reads. It reads all earlier schemas too.
    pub reads: u32,
}

/// One member of a cluster.
#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    is_ready: bool,
    ticked_at: Option<Instant>,
    next_beat: Instant,
    peers: Peers,
    store: Store,
    shards: BTreeMap<ShardId, Shard>,
    switches: BTreeMap<DatapathId, Switch>,
    members: BTreeMap<MemberId, Member>,
    epoch: u16,
    /// The epoch to write: it exceeds the epoch that a switch has seen.
    raise: Option<u16>,
    raises: BTreeMap<DatapathId, u8>,
    gate: schema::Gate,
    probe_budget: Budget,
    number: u32,
    /// Whether roles may have to change; otherwise they are checked at `roles_due`.
    is_dirty: bool,
    /// Switches whose own state has changed: only their roles are checked.
    touched: BTreeSet<DatapathId>,
    roles_due: Option<Instant>,
    /// When this member may take a shard over.
    shards_due: Option<Instant>,
    has_new_terms: bool,
    outputs: VecDeque<ClusterOutput>,
    counts: ClusterCounts,
}

/// A shard with an order.
#[derive(Debug)]
struct Shard {
    own: Own,
    /// The place in use, as far as this member knows.
    in_use: Rank,
    is_held: bool,
    /// This member held the shard until now, and serves each switch until the successor requests
    /// it.
    handover_until: Option<Instant>,
    /// Since when the present members differ from those in the order.
    outdated_since: Option<Instant>,
    /// A switch refuses the place in use, because an earlier process used a later place.
    must_renew: bool,
}

impl Shard {
    fn holder(&self) -> Option<&MemberId> {
        self.own.order.holder(self.in_use)
    }

    fn generation(&self, epoch: u16) -> Generation {
        Generation::new(epoch, self.own.revision, self.in_use)
    }

    /// The greatest generation of the order.
    fn top(&self, epoch: u16) -> Generation {
        Generation::new(epoch, self.own.revision, PLACES as Rank - 1)
    }
}

impl Cluster {
    /// Creates a member that has just started and is not ready. `high_water` is the mark that an
    /// earlier process of this member wrote last.
    pub fn new(now: Instant, config: ClusterConfig, high_water: Option<HighWater>) -> Cluster {
        let store = Store::new(now, config.seed, config.reads, high_water);
        let peers = Peers::new(now, config.id.clone());
        Cluster {
            config,
            is_ready: false,
            ticked_at: None,
            next_beat: now,
            peers,
            store,
            shards: BTreeMap::new(),
            switches: BTreeMap::new(),
            members: BTreeMap::new(),
            epoch: 0,
            raise: None,
            raises: BTreeMap::new(),
            gate: schema::Gate::default(),
            probe_budget: Budget::new(now, PROBES_PER_S, PROBES_BURST),
            number: 0,
            is_dirty: false,
            touched: BTreeSet::new(),
            roles_due: None,
            shards_due: None,
            has_new_terms: false,
            outputs: VecDeque::new(),
            counts: ClusterCounts::default(),
        }
    }

    /// Sets whether this member can serve switches. A serving member that is no longer ready keeps
    /// serving until others have taken its shards: see [`Cluster::holds_nothing`]. Write the same
    /// value into the member's entry in the store.
    pub fn set_ready(&mut self, now: Instant, is_ready: bool) {
        self.advance(now);
        self.is_ready = is_ready;
        self.next_beat = self.next_beat.min(now);
        self.settle(now);
    }

    /// Notes that the application has ticked. Call this at least every 50 ms from the thread that
    /// serves switches: after 100 ms without a call, no heartbeat is sent, so a stalled controller
    /// does not keep its place.
    pub fn handle_application_tick(&mut self, now: Instant) {
        self.advance(now);
        self.ticked_at = Some(now);
        self.settle(now);
    }

    /// Handles the store's answer to the request with this number.
    pub fn handle_store_answer(&mut self, now: Instant, number: u32, answer: StoreAnswer) {
        self.advance(now);
        let news = self.store.handle_answer(now, number, answer);
        if let Some(News::Written(shard)) = &news
            && let Some(owner) = self.store.owner(*shard)
        {
            self.event(ClusterEvent::Assigned {
                shard: *shard,
                owner,
            });
        }
        self.handle_news(now, news);
        self.settle(now);
    }

    /// Handles a change reported by the watch: one call for each event, in order. The watch runs
    /// from the revision after the last [`Snapshot`]; each snapshot ends the previous watch.
    pub fn handle_store_change(&mut self, now: Instant, change: StoreChange) {
        self.advance(now);
        let news = self.store.handle_change(change);
        self.handle_news(now, news);
        self.settle(now);
    }

    /// Handles the end of the watch: it was compacted or closed, or its connection failed. The
    /// machine reads everything again. Do not resume a watch instead of calling this.
    pub fn handle_watch_lost(&mut self, now: Instant) {
        self.advance(now);
        self.store.lose_watch();
        self.settle(now);
    }

    /// Handles a message from a peer whose certificate or key has proven its name.
    pub fn handle_peer_message(&mut self, now: Instant, from: &MemberId, message: PeerMessage) {
        self.advance(now);
        if *from == self.config.id || !self.peers.accept(now, from) {
            self.counts.peer_messages_refused += 1;
            return;
        }
        match message {
            PeerMessage::Heartbeat(beat) => self.handle_heartbeat(now, from, beat),
            PeerMessage::Question { number, about } => {
                let is_heard = about == self.config.id || self.peers.hears(now, &about);
                let answer = PeerMessage::Answer { number, is_heard };
                self.send(from.clone(), answer);
            }
            PeerMessage::Answer { number, is_heard } => self.peers.answer(from, number, is_heard),
        }
        self.settle(now);
    }

    fn handle_heartbeat(&mut self, now: Instant, from: &MemberId, beat: Heartbeat) {
        let hears = beat.hears.as_ref().map_or(0, BTreeSet::len);
        if beat.in_use.len() > usize::from(SHARDS_MAX)
            || beat.epoch > EPOCH_MAX
            || hears > MEMBERS_MAX
        {
            self.counts.peer_messages_refused += 1;
            return;
        }
        self.peers.hear(now, from, beat.is_ready, beat.hears);
        match beat.epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Equal => {
                for used in beat.in_use {
                    self.note_in_use(used.shard, used.revision, used.rank);
                }
            }
            std::cmp::Ordering::Greater => {
                self.store.hint(now);
            }
            std::cmp::Ordering::Less => {}
        }
    }

    /// Notes that the store does not accept this member, which it must do before anything else, or
    /// does not answer. `why` is for the operator.
    pub fn note_store_problem(&mut self, why: &str) {
        self.store.note_problem(why);
    }

    /// Sets whether the store reports that it has no room for writes.
    pub fn set_store_full(&mut self, now: Instant, is_full: bool) {
        self.store.set_full(is_full);
        self.settle(now);
    }

    /// Handles a connection that a peer has closed or reset. Do not call this for a connection that
    /// could not be opened, nor while another connection to the same peer is open.
    pub fn handle_peer_reset(&mut self, now: Instant, peer: &MemberId) {
        self.advance(now);
        self.peers.reset(now, peer);
        self.settle(now);
    }

    /// Handles a switch that has completed its handshake, without a role request. Any earlier
    /// connection has ended. `shard` is [`ShardId::of`] or the operator's zone.
    pub fn handle_switch_up(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        shard: ShardId,
    ) {
        self.advance(now);
        let switch = Switch::new(now, connection, shard);
        self.switches.insert(dpid, switch);
        self.touched.insert(dpid);
        self.settle(now);
    }

    /// Handles the end of a switch's connection.
    pub fn handle_switch_down(&mut self, now: Instant, dpid: DatapathId, connection: ConnectionId) {
        self.advance(now);
        if self.switch(dpid, connection).is_some() {
            self.switches.remove(&dpid);
        }
        self.settle(now);
    }

    fn switch(&mut self, dpid: DatapathId, connection: ConnectionId) -> Option<&mut Switch> {
        let switch = self.switches.get_mut(&dpid)?;
        (switch.connection == connection).then_some(switch)
    }

    /// Handles OFPT_ROLE_REPLY to the request with this number.
    pub fn handle_role_reply(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        number: u32,
        reply: RoleMessage,
    ) {
        self.advance(now);
        if let Some(switch) = self.switch(dpid, connection)
            && switch.handle_reply(now, number, reply)
        {
            self.peers.handle_probe();
            self.learn(now, dpid);
        }
        self.settle(now);
    }

    /// Handles an error in answer to the role request with this number, or IS_SLAVE to any other
    /// message.
    pub fn handle_role_refused(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        refusal: RoleRefusal,
    ) {
        self.advance(now);
        let Some(switch) = self.switch(dpid, connection) else {
            return;
        };
        let is_stale = switch.handle_refused(now, refusal);
        self.counts.stale += u64::from(is_stale);
        self.counts.refused += u64::from(refusal == RoleRefusal::IsSlave);
        if is_stale || refusal == RoleRefusal::IsSlave {
            self.stop_serving(dpid);
        }
        self.touched.insert(dpid);
        self.settle(now);
    }

    /// Handles OFPT_ROLE_STATUS, or its ONF extension 1911 of OpenFlow 1.3.
    pub fn handle_role_status(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        status: RoleMessage,
    ) {
        self.advance(now);
        if let Some(switch) = self.switch(dpid, connection)
            && status.role == Role::Secondary
        {
            switch.handle_demotion(now, Generation(status.generation_id));
            self.stop_serving(dpid);
            self.learn(now, dpid);
        }
        self.settle(now);
    }

    /// Handles what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.settle(now);
    }

    /// The next output, until `None`.
    pub fn poll_output(&mut self) -> Option<ClusterOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`Cluster::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [
            Some(self.next_beat),
            self.peers.poll_timeout(),
            self.store.poll_timeout(),
            self.roles_due,
            self.shards_due,
        ];
        due.into_iter().flatten().min()
    }

    /// Whether this member serves a switch.
    pub fn serves(&self, dpid: DatapathId) -> bool {
        let switch = self.switches.get(&dpid);
        switch.is_some_and(|switch| switch.is_served)
    }

    /// Whether this member serves no shard and no switch: a leaving member may then exit.
    pub fn holds_nothing(&self) -> bool {
        !self.holds_any() && !self.switches.values().any(|switch| switch.is_served)
    }

    /// The current standing of this member.
    pub fn standing(&self) -> Standing {
        let me = &self.config.id;
        if self.store.view().is_none() {
            let why = self.store.problem().unwrap_or("no answer yet");
            return Standing::Unread {
                why: why.to_owned(),
            };
        }
        let is_gone = |holder| {
            let is_absent = !self.peers.is_heard(holder) && !self.members.contains_key(holder);
            holder == me || is_absent || self.peers.confirmed_at(holder).is_some()
        };
        let mut holders = self.shards.values().map(Shard::holder);
        match self.shards.values().next().and_then(Shard::holder) {
            _ if self.store.is_too_new() => Standing::TooOld,
            _ if self.holds_any() => Standing::Serves,
            _ if self.peers.is_deaf() => Standing::Deaf,
            _ if self.switches.is_empty() => Standing::NoSwitch,
            _ if !self.is_ready => Standing::NotReady,
            None => Standing::NobodyServes,
            Some(_) if holders.any(|holder| holder.is_none_or(is_gone)) => Standing::NobodyServes,
            Some(_)
                if !self
                    .shards
                    .values()
                    .any(|shard| shard.own.order.contains(me)) =>
            {
                Standing::NoPlace
            }
            Some(serves) => Standing::StandsBy {
                serves: serves.clone(),
            },
        }
    }

    /// Whether this member serves any switches by an order.
    pub fn holds_any(&self) -> bool {
        self.shards.values().any(|shard| shard.is_held)
    }

    /// Whether another member that can serve switches is heard.
    pub fn has_ready_peer(&self) -> bool {
        let mut peers = self.peers.heard();
        peers.any(|(id, _)| self.peers.is_ready(id))
    }

    /// The member that serves a shard, as far as this member knows.
    pub fn holder(&self, shard: ShardId) -> Option<&MemberId> {
        self.shards.get(&shard)?.holder()
    }

    /// All shards that have an order, by number.
    pub fn shards(&self) -> Vec<ShardStatus> {
        let status = |(id, shard): (&ShardId, &Shard)| ShardStatus {
            shard: *id,
            holder: shard.holder().cloned(),
            generation: shard.generation(self.epoch),
            is_held: shard.is_held,
        };
        self.shards.iter().map(status).collect()
    }

    /// The peers and whether each is heard now, by name.
    pub fn peers(&self) -> Vec<(MemberId, bool)> {
        let heard = self.peers.heard();
        heard.map(|(id, is_heard)| (id.clone(), is_heard)).collect()
    }

    /// The store as this member last read it.
    pub fn view(&self) -> Option<&Snapshot> {
        self.store.view()
    }

    /// The members that a peer hears, if the peer is heard and names them.
    pub fn heard_by(&self, peer: &MemberId) -> Option<&BTreeSet<MemberId>> {
        self.peers.heard_by(peer)
    }

    /// The schema in use, in which documents are written; `None` before the first read.
    pub fn schema(&self) -> Option<u32> {
        self.store.schema()
    }

    /// The settings.
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// The counters.
    pub fn counts(&self) -> ClusterCounts {
        let store = self.store.counts;
        ClusterCounts {
            suspicions: self.peers.suspicions,
            store_requests: store.requests,
            store_timeouts: store.timeouts,
            watch_repaired: store.repaired,
            epochs_raised: store.epochs_raised,
            ..self.counts
        }
    }

    /// Notes that time has passed. A member that was stopped reads the store before it writes.
    fn advance(&mut self, now: Instant) {
        if self.peers.advance(now) {
            self.store.lose_watch();
        }
    }

    fn event(&mut self, event: ClusterEvent) {
        self.outputs.push_back(ClusterOutput::Event(event));
    }

    fn send(&mut self, to: MemberId, message: PeerMessage) {
        self.counts.peer_messages += 1;
        self.outputs.push_back(ClusterOutput::Peer { to, message });
    }

    fn stop_serving(&mut self, dpid: DatapathId) {
        self.touched.insert(dpid);
        if let Some(switch) = self.switches.get_mut(&dpid)
            && std::mem::take(&mut switch.is_served)
        {
            let connection = switch.connection;
            self.outputs
                .push_back(ClusterOutput::Yield { dpid, connection });
        }
    }

    /// Takes note of the generation that a switch has.
    fn learn(&mut self, now: Instant, dpid: DatapathId) {
        self.touched.insert(dpid);
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        (switch.seen_reads, switch.seen_at) = (self.store.reads, now);
        let (id, Some(seen)) = (switch.shard, switch.seen) else {
            return;
        };
        if seen.epoch() == self.epoch && self.is_believed(id, seen) {
            self.note_in_use(id, seen.revision(), seen.rank());
        }
    }

    /// Applies the generations that switches reported earlier: the members at those places may no
    /// longer be heard, and then report nothing themselves.
    fn learn_again(&mut self) {
        let switches = self.switches.values();
        let seen = switches.filter_map(|switch| Some((switch.shard, switch.seen?.0)));
        for (id, seen) in seen.collect::<BTreeSet<_>>() {
            let seen = Generation(seen);
            if seen.epoch() == self.epoch && self.is_believed(id, seen) {
                self.note_in_use(id, seen.revision(), seen.rank());
            }
        }
    }

    /// Whether the place that a switch reports counts for the whole shard. A switch may lie, so if
    /// the member at that place is heard, only its own report counts. Otherwise a second switch
    /// must agree, if there is one.
    fn is_believed(&self, id: ShardId, seen: Generation) -> bool {
        // Thousands of switches report a place that is already known.
        let is_new =
            |shard: &&Shard| shard.own.revision == seen.revision() && shard.in_use < seen.rank();
        let shard = self.shards.get(&id).filter(is_new);
        let holder = shard.and_then(|shard| shard.own.order.holder(seen.rank()));
        if holder.is_none_or(|holder| *holder != self.config.id && self.peers.is_heard(holder)) {
            return false;
        }
        let switches = || self.switches.values().filter(|switch| switch.shard == id);
        let agrees = |switch: &&Switch| {
            let at = switch.seen.filter(|at| !at.is_stale_after(seen));
            at.is_some_and(|at| (at.epoch(), at.revision()) == (seen.epoch(), seen.revision()))
        };
        switches().filter(agrees).take(2).count() == switches().take(2).count()
    }

    /// Notes that a place of an order is in use, if it is a later one.
    fn note_in_use(&mut self, id: ShardId, revision: u64, rank: Rank) {
        let Some(shard) = self.shards.get_mut(&id) else {
            return;
        };
        let is_place = usize::from(rank) < shard.own.order.places().len();
        if shard.own.revision != revision || rank <= shard.in_use || !is_place {
            return;
        }
        shard.in_use = rank;
        shard.handover_until = None;
        self.is_dirty = true;
        let holder = shard.holder().cloned();
        if holder.as_ref() == Some(&self.config.id) {
            return;
        }
        if std::mem::take(&mut shard.is_held) {
            self.note_yield(id, holder.clone());
        }
        if let Some(holder) = holder {
            self.peers.note_action(&holder);
        }
    }

    fn note_yield(&mut self, shard: ShardId, to: Option<MemberId>) {
        self.counts.yields += 1;
        self.event(ClusterEvent::Yielded { shard, to });
    }

    fn handle_news(&mut self, now: Instant, news: Option<News>) {
        match news {
            None => return,
            Some(News::All { is_restored }) => {
                for id in self.store.shards() {
                    self.note_own(now, id, is_restored, false);
                }
            }
            Some(News::Own(id)) => self.note_own(now, id, false, false),
            Some(News::Written(id)) => self.note_own(now, id, false, true),
            Some(News::Members) => {}
        }
        self.is_dirty = true;
        let epoch = self.store.epoch();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.has_new_terms = true;
            self.event(ClusterEvent::Epoch(epoch));
        }
        self.raise = self.raise.filter(|raise| *raise > epoch);
        self.note_members(now);
    }

    /// Takes over a shard's order from the store. An order that this member wrote itself does not
    /// prove its first owner alive: that owner may have died a moment before.
    fn note_own(&mut self, now: Instant, id: ShardId, is_restored: bool, is_written: bool) {
        let own = self.store.view().and_then(|view| view.own.get(&id));
        let Some(own) = own.filter(|own| !own.order.places().is_empty()) else {
            return;
        };
        let known = self.shards.get(&id);
        if u16::from(id.0) >= self.config.shards
            || (!is_restored && known.is_some_and(|known| known.own == *own))
        {
            return;
        }
        let was_held = known.is_some_and(|known| known.is_held);
        let is_change = known.is_some() && !is_restored;
        let first = own.order.holder(0).cloned();
        let is_mine = first.as_ref() == Some(&self.config.id);
        let shard = Shard {
            own: own.clone(),
            in_use: 0,
            is_held: was_held && is_mine,
            handover_until: (was_held && !is_mine).then_some(now + HANDOVER_MAX),
            outdated_since: None,
            must_renew: false,
        };
        self.shards.insert(id, shard);
        self.has_new_terms = true;
        if is_mine {
            return;
        }
        if let Some(first) = first.as_ref().filter(|_| is_change && !is_written) {
            self.peers.note_action(first);
        }
        if was_held {
            self.note_yield(id, first);
        }
    }

    /// Updates the peers from the members in the store and in the orders.
    fn note_members(&mut self, now: Instant) {
        let Some(view) = self.store.view() else {
            return;
        };
        let me = &self.config.id;
        let others = view.members.iter().filter(|(id, _)| *id != me);
        let members: BTreeMap<MemberId, Member> =
            others.map(|(id, m)| (id.clone(), m.clone())).collect();
        let places = self.shards.values().flat_map(|s| s.own.order.places());
        let placed: BTreeSet<MemberId> = places.filter(|id| *id != me).cloned().collect();
        let ids = members.keys().cloned().collect();
        self.peers.set_members(now, &ids, &placed);
        if members != self.members {
            self.members.clone_from(&members);
            self.outputs.push_back(ClusterOutput::Members(members));
        }
    }

    /// Acts on the latest input and on everything that is due.
    fn settle(&mut self, now: Instant) {
        let has_new_terms = std::mem::take(&mut self.has_new_terms);
        if let Some(mark) = self.store.poll_high_water(now, has_new_terms) {
            self.outputs.push_back(ClusterOutput::HighWater(mark));
        }
        self.beat(now);
        self.peers.evaluate(now);
        let is_suspicion = |event: &ClusterEvent| matches!(event, ClusterEvent::Suspected(_));
        if self.peers.events.iter().any(is_suspicion) {
            self.learn_again();
        }
        self.evaluate_shards(now);
        let is_due = self.roles_due.is_some_and(|due| due <= now);
        let touched = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.is_dirty) || is_due || self.peers.wants_probe {
            self.roles_due = None;
            let all = self.switches.keys().copied().collect();
            self.evaluate_switches(now, all);
        } else if !touched.is_empty() {
            self.evaluate_switches(now, touched);
        }
        for event in std::mem::take(&mut self.peers.events) {
            self.event(event);
        }
        for (to, message) in std::mem::take(&mut self.peers.messages) {
            self.send(to, message);
        }
        let placed = self.shards.values().flat_map(|s| s.own.order.places());
        let heard = self.peers.heard().filter(|(_, is_heard)| *is_heard);
        let there = placed.chain(heard.map(|(id, _)| id));
        let view = self.store.view();
        self.gate.look(now, &self.config, view, there);
        let writer = Writer {
            now,
            config: &self.config,
            is_ready: self.can_serve(),
            is_deaf: self.peers.is_deaf(),
            peers: &self.peers,
            shards: &self.shards,
            raise: self.raise,
            schema: self.gate.due(now),
            applied: self.store.applied(),
        };
        if let Some((number, request)) = self.store.poll_request(now, |view| writer.next(view)) {
            self.outputs
                .push_back(ClusterOutput::Store { number, request });
        }
        for event in std::mem::take(&mut self.store.events) {
            self.event(event);
        }
    }

    /// Whether this member, for its own part, may serve switches.
    fn can_serve(&self) -> bool {
        self.is_ready && !self.store.is_too_new()
    }

    fn is_alive(&self, now: Instant, age_max: Duration) -> bool {
        self.ticked_at.is_some_and(|at| now - at <= age_max)
    }

    fn beat(&mut self, now: Instant) {
        if now < self.next_beat {
            return;
        }
        let next = self.next_beat + HEARTBEAT;
        self.next_beat = if next <= now { now + HEARTBEAT } else { next };
        if !self.is_alive(now, TICK_MAX) {
            return;
        }
        let used = |(id, shard): (&ShardId, &Shard)| InUse {
            shard: *id,
            revision: shard.own.revision,
            rank: shard.in_use,
        };
        let used = self.shards.iter().map(used).filter(|used| used.rank > 0);
        let beat = Heartbeat {
            is_ready: self.can_serve() && (!self.peers.is_deaf() || self.holds_any()),
            epoch: self.epoch,
            in_use: used.collect(),
            hears: Some(self.peers.names_heard().collect()),
        };
        let peers: Vec<MemberId> = self.peers.ids().cloned().collect();
        for peer in peers {
            self.send(peer, PeerMessage::Heartbeat(beat.clone()));
        }
    }

    /// Starts to serve this member's shards, and takes over the shards of suspected members.
    fn evaluate_shards(&mut self, now: Instant) {
        self.shards_due = None;
        let may_hold = self.can_serve() && self.is_alive(now, STALLED);
        let me = &self.config.id;
        let mut events = Vec::new();
        for (id, shard) in &mut self.shards {
            if shard.handover_until.is_some_and(|until| until <= now) {
                shard.handover_until = None;
                self.is_dirty = true;
            }
            let mut due = shard.handover_until;
            let holder = shard.own.order.holder(shard.in_use);
            if holder == Some(me) {
                if may_hold && !shard.is_held {
                    shard.is_held = true;
                    self.is_dirty = true;
                    events.push(ClusterEvent::Holds { shard: *id });
                }
                let order = &shard.own.order;
                let is_outdated =
                    |view: &Snapshot| assign::is_outdated(me, order, &self.peers, &view.members);
                let is_outdated = self.store.view().is_some_and(is_outdated);
                let since = shard.outdated_since.unwrap_or(now);
                shard.outdated_since = is_outdated.then_some(since);
            } else if let (true, Some(from)) = (may_hold, holder)
                && let Some(confirmed_at) = self.peers.confirmed_at(from)
                && let Some((rank, wait)) = assign::turn(me, shard, &self.peers)
            {
                let at = confirmed_at + wait;
                if now < at {
                    due = Some(due.map_or(at, |due| due.min(at)));
                } else {
                    events.push(ClusterEvent::TookOver {
                        shard: *id,
                        from: from.clone(),
                        rank,
                    });
                    self.counts.takeovers += 1;
                    self.is_dirty = true;
                    self.next_beat = now;
                    shard.in_use = rank;
                    (shard.is_held, shard.handover_until) = (true, None);
                    due = None;
                }
            }
            self.shards_due = self.shards_due.into_iter().chain(due).min();
        }
        for event in events {
            self.event(event);
        }
    }

    /// Asks switches for the roles that follow from the shards.
    fn evaluate_switches(&mut self, now: Instant, switches: BTreeSet<DatapathId>) {
        let mut hint = None;
        let (mut foreign, mut later, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        for dpid in switches {
            let Some(switch) = self.switches.get_mut(&dpid) else {
                continue;
            };
            let shard = self.shards.get(&switch.shard);
            let want = want(shard, switch, self.epoch);
            let connection = switch.connection;
            if let (Want::Slave(_) | Want::AnySlave, true) = (want, switch.is_served) {
                switch.is_served = false;
                self.outputs
                    .push_back(ClusterOutput::Yield { dpid, connection });
            }
            if let (Want::Master(g), Some(shard), Some(seen)) = (want, shard, switch.seen)
                && (g.is_stale_after(seen) || switch.has_rival(want))
                && !switch.is_exhausted
            {
                let is_later_place =
                    !switch.has_rival(want) && !shard.top(self.epoch).is_stale_after(seen);
                let explained_at = switch.seen_at + UNEXPLAINED_MAX;
                let is_read = switch.seen_reads < self.store.reads && self.store.is_current();
                match (is_later_place, is_read) {
                    (true, _) if now < explained_at => hint = Some(explained_at),
                    (true, _) => later.push((dpid, switch.shard)),
                    (false, true) => foreign.push((dpid, seen)),
                    (false, false) => hint = Some(self.store.hint(now)),
                }
            }
            let is_probed = self.peers.wants_probe && self.probe_budget.has(now, 1);
            let (step, is_late) = switch.step(now, want, is_probed);
            self.counts.role_timeouts += u64::from(is_late);
            match step {
                Step::Nothing => {}
                Step::Serve if switch.is_served => {}
                Step::Serve => {
                    switch.is_served = true;
                    self.outputs
                        .push_back(ClusterOutput::Serve { dpid, connection });
                }
                Step::Ask(request) => {
                    if is_probed {
                        self.probe_budget.take(now);
                    }
                    self.number = self.number.wrapping_add(1);
                    self.counts.role_requests += 1;
                    switch.note_asked(now, self.number, request);
                    self.outputs.push_back(ClusterOutput::Role {
                        dpid,
                        connection,
                        number: self.number,
                        request,
                    });
                }
                Step::Close => {
                    closed.push(dpid);
                    self.outputs
                        .push_back(ClusterOutput::Close { dpid, connection });
                }
            }
            let due = switch.poll_timeout(now);
            self.roles_due = self.roles_due.into_iter().chain(due).min();
        }
        self.roles_due = self.roles_due.into_iter().chain(hint).min();
        for dpid in closed {
            self.switches.remove(&dpid);
        }
        for (dpid, shard) in later {
            self.renew(dpid, shard);
        }
        for (dpid, generation) in foreign {
            self.note_foreign(dpid, generation);
        }
    }

    /// Handles a switch that has seen a generation greater than the cluster assigned: the epoch is
    /// raised to exceed it.
    fn note_foreign(&mut self, dpid: DatapathId, generation: Generation) {
        let epoch = generation.epoch().max(self.epoch) + 1;
        if self.raise.is_some_and(|raise| epoch <= raise) {
            return;
        }
        let may_raise = epoch <= FOREIGN_EPOCH_MAX && self.may_raise(dpid);
        self.counts.foreign += 1;
        if may_raise {
            self.raise = Some(epoch);
            self.event(ClusterEvent::Foreign { dpid, generation });
        } else {
            if let Some(switch) = self.switches.get_mut(&dpid) {
                switch.is_exhausted = true;
            }
            self.event(ClusterEvent::Exhausted { dpid, generation });
        }
    }

    /// Handles a switch that has seen a later place than the one in use, while no member claims
    /// that place: the members that used it have forgotten it. A new order exceeds it.
    fn renew(&mut self, dpid: DatapathId, shard: ShardId) {
        let shard = self.shards.get(&shard);
        if shard.is_none_or(|shard| shard.must_renew) {
            return;
        }
        let may_raise = self.may_raise(dpid);
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let (id, seen) = (switch.shard, switch.seen);
        switch.is_exhausted = !may_raise;
        if let (true, Some(shard)) = (may_raise, self.shards.get_mut(&id)) {
            shard.must_renew = true;
        } else if let Some(generation) = seen {
            self.event(ClusterEvent::Exhausted { dpid, generation });
        }
    }

    /// Whether a switch may make terms grow once more.
    fn may_raise(&mut self, dpid: DatapathId) -> bool {
        let has_room = self.raises.len() < RAISED_SWITCHES_MAX || self.raises.contains_key(&dpid);
        if !has_room {
            return false;
        }
        let times = self.raises.entry(dpid).or_default();
        *times = times.saturating_add(1);
        *times <= RAISES_MAX
    }
}

/// The role that follows from a switch's shard.
fn want(shard: Option<&Shard>, switch: &Switch, epoch: u16) -> Want {
    match shard {
        None => Want::AnySlave,
        Some(shard) if shard.is_held => Want::Master(shard.generation(epoch)),
        Some(shard) if switch.is_served && shard.handover_until.is_some() => Want::Keep,
        Some(shard) => Want::Slave(shard.generation(epoch)),
    }
}

#[cfg(test)]
mod tests;
