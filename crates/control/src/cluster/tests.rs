//! Bounds and answers of one member by itself; clusters are simulated in `sim`.

use super::*;

const CLUSTER_ID: u64 = 7;

fn id(name: &str) -> MemberId {
    MemberId::new(name).expect("a name")
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A member with a store that answers at once, or not at all.
struct Fixture {
    now: Instant,
    cluster: Cluster,
    has_store: bool,
    is_full: bool,
    revision: u64,
    own: BTreeMap<ShardId, Own>,
    members: BTreeMap<MemberId, Member>,
    outputs: Vec<ClusterOutput>,
    requests: u64,
}

/// The entry of a member that is ready.
fn entry() -> Member {
    Member {
        address: String::new(),
        is_ready: true,
        reads: 1,
    }
}

impl Fixture {
    fn new(shards: u16, high_water: Option<HighWater>) -> Fixture {
        let config = ClusterConfig {
            id: id("a"),
            shards,
            seed: 1,
            reads: 1,
        };
        Fixture {
            now: Instant::START,
            cluster: Cluster::new(Instant::START, config, high_water),
            has_store: true,
            is_full: false,
            revision: 10,
            own: BTreeMap::new(),
            members: BTreeMap::from([(id("a"), entry())]),
            outputs: Vec::new(),
            requests: 0,
        }
    }

    fn answer(&mut self, request: StoreRequest) -> StoreAnswer {
        let written = |revision| StoreAnswer::Written {
            cluster_id: CLUSTER_ID,
            revision,
        };
        match request {
            request if self.is_full && request != StoreRequest::Read => StoreAnswer::Full,
            StoreRequest::Read => StoreAnswer::Read(Snapshot {
                cluster_id: CLUSTER_ID,
                revision: self.revision,
                own: self.own.clone(),
                members: self.members.clone(),
                ..Snapshot::default()
            }),
            StoreRequest::PutOwn {
                shard,
                order,
                expected,
                ..
            } => {
                let known = self.own.get(&shard).map(|own| own.revision);
                assert_eq!(known, expected);
                self.revision += 1;
                let revision = self.revision;
                self.own.insert(shard, Own { order, revision });
                written(revision)
            }
            StoreRequest::PutEpoch { .. } | StoreRequest::PutSchema { .. } => {
                self.revision += 1;
                written(self.revision)
            }
        }
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            while let Some(output) = self.cluster.poll_output() {
                if let ClusterOutput::Store { number, request } = output {
                    self.requests += 1;
                    if self.has_store {
                        let answer = self.answer(request);
                        self.cluster.handle_store_answer(self.now, number, answer);
                    }
                } else {
                    self.outputs.push(output);
                }
            }
            let due = self.cluster.poll_timeout().expect("it beats");
            if due > until {
                break;
            }
            self.now = self.now.max(due);
            self.cluster.handle_application_tick(self.now);
            self.cluster.handle_timeout(self.now);
        }
        self.now = until;
    }

    fn role_request(&mut self, dpid: DatapathId) -> Option<(u32, RoleMessage)> {
        let outputs = std::mem::take(&mut self.outputs);
        outputs.into_iter().rev().find_map(|output| match output {
            ClusterOutput::Role {
                dpid: to,
                number,
                request,
                ..
            } if to == dpid => Some((number, request)),
            _ => None,
        })
    }
}

#[test]
fn a_member_alone_claims_all_shards() {
    let mut alone = Fixture::new(SHARDS_MAX, None);
    alone.cluster.set_ready(alone.now, true);
    alone.run_for(ms(500));
    let shards = alone.cluster.shards();
    assert_eq!(shards.len(), usize::from(SHARDS_MAX));
    assert!(shards.iter().all(|shard| shard.is_held));
    assert!(!alone.cluster.holds_nothing());
    // The mark includes the last term.
    let marks = alone.outputs.iter().rev();
    let mut marks = marks.filter_map(|output| match output {
        ClusterOutput::HighWater(mark) => Some(*mark),
        _ => None,
    });
    assert_eq!(marks.next().map(|mark| mark.revision), Some(alone.revision));
}

#[test]
fn a_store_that_is_silent_is_asked_at_a_slowing_rate() {
    let mut alone = Fixture::new(1, None);
    alone.has_store = false;
    alone.cluster.set_ready(alone.now, true);
    alone.run_for(ms(60_000));
    assert!((25..45).contains(&alone.requests), "{}", alone.requests);
    assert_eq!(alone.cluster.counts().store_requests, alone.requests);
    let why = "no answer within 300 ms".to_owned();
    let lost = ClusterOutput::Event(ClusterEvent::StoreLost { why: why.clone() });
    let lost = alone.outputs.iter().filter(|output| **output == lost);
    assert_eq!(lost.count(), 1);
    assert_eq!(alone.cluster.standing(), Standing::Unread { why });
    alone.cluster.note_store_problem("the name is taken");
    let said = alone.cluster.standing().to_string();
    assert_eq!(said, "has not read etcd: the name is taken");
}

/// A full store answers reads, so it does not count as a store that does not answer.
#[test]
fn a_store_without_room_is_asked_at_a_slowing_rate_and_reported_once() {
    let mut alone = Fixture::new(1, None);
    alone.is_full = true;
    alone.cluster.set_ready(alone.now, true);
    alone.run_for(ms(60_000));
    // A read and a write each time.
    assert!((50..90).contains(&alone.requests), "{}", alone.requests);
    let counted = |alone: &Fixture| {
        let of = |event| {
            let wanted = ClusterOutput::Event(event);
            alone
                .outputs
                .iter()
                .filter(|output| **output == wanted)
                .count()
        };
        [
            of(ClusterEvent::StoreFull),
            of(ClusterEvent::StoreRoom),
            of(ClusterEvent::StoreBack),
        ]
    };
    assert_eq!(counted(&alone), [1, 0, 0]);
    assert!(alone.own.is_empty());
    alone.is_full = false;
    alone.run_for(ms(3000));
    assert_eq!(counted(&alone), [1, 1, 0]);
    assert!(!alone.cluster.holds_nothing());

    // Without a write for days, the store itself reports whether it is full.
    for (is_full, expected) in [(false, [1, 1, 0]), (true, [2, 1, 0]), (true, [2, 1, 0])] {
        alone.cluster.set_store_full(alone.now, is_full);
        alone.run_for(ms(100));
        assert_eq!(counted(&alone), expected);
    }
    alone.cluster.set_store_full(alone.now, false);
    alone.run_for(ms(100));
    assert_eq!(counted(&alone), [2, 2, 0]);
}

/// Covers the states in which a member could take over, and those in which it could not.
#[test]
fn a_member_says_how_it_stands() {
    let (dpid, connection) = (DatapathId(5), ConnectionId(1));
    let mut member = Fixture::new(1, None);
    let stands = |member: &Fixture| {
        (
            member.cluster.standing().is_able(),
            member.cluster.standing(),
        )
    };
    let beat = |member: &mut Fixture, is_ready| {
        let beat = Heartbeat {
            is_ready,
            ..Heartbeat::default()
        };
        let beat = PeerMessage::Heartbeat(beat);
        member
            .cluster
            .handle_peer_message(member.now, &id("b"), beat);
    };
    member.members.insert(id("b"), entry());
    member.run_for(ms(100));
    assert_eq!(stands(&member), (false, Standing::Deaf));
    beat(&mut member, true);
    assert_eq!(stands(&member), (true, Standing::NoSwitch));
    member
        .cluster
        .handle_switch_up(member.now, dpid, connection, ShardId(0));
    assert_eq!(stands(&member), (false, Standing::NotReady));
    let set = |member: &mut Fixture, places: &[MemberId]| {
        let order = Order::repeating(places);
        member.revision += 1;
        let revision = member.revision;
        member.own.insert(ShardId(0), Own { order, revision });
        beat(member, true);
        member.cluster.handle_watch_lost(member.now);
        member.run_for(ms(100));
    };
    set(&mut member, &[id("b")]);
    member.cluster.set_ready(member.now, true);
    assert_eq!(stands(&member), (false, Standing::NoPlace));
    set(&mut member, &[id("b"), id("a")]);
    let serves = id("b");
    assert_eq!(stands(&member), (true, Standing::StandsBy { serves }));
    set(&mut member, &[id("gone"), id("b"), id("a")]);
    assert_eq!(stands(&member), (false, Standing::NobodyServes));
    set(&mut member, &[id("a"), id("b")]);
    assert_eq!(stands(&member), (true, Standing::Serves));
    // It keeps serving without the store.
    member.has_store = false;
    member.run_for(ms(60_000));
    assert_eq!(stands(&member), (true, Standing::Serves));
}

/// The member is heard and ready, and agrees that the serving member is silent, but does nothing.
#[test]
fn a_member_that_does_not_use_its_place_is_passed_over() {
    let mut member = Fixture::new(1, None);
    for other in ["b", "c"] {
        member.members.insert(id(other), entry());
    }
    let order = Order::repeating(&[id("c"), id("b"), id("a")]);
    member.own.insert(ShardId(0), Own { order, revision: 4 });
    member.cluster.set_ready(member.now, true);
    let beat = |member: &mut Fixture, from: &str| {
        let beat = Heartbeat {
            is_ready: true,
            ..Heartbeat::default()
        };
        let beat = PeerMessage::Heartbeat(beat);
        member
            .cluster
            .handle_peer_message(member.now, &id(from), beat);
    };
    for _ in 0..10 {
        beat(&mut member, "b");
        beat(&mut member, "c");
        member.run_for(ms(100));
    }
    member.outputs.clear();
    let at = member.now;
    member.cluster.handle_peer_reset(at, &id("c"));
    let mut used = None;
    let taken = loop {
        assert!(member.now - at < ms(1000), "nobody takes over");
        beat(&mut member, "b");
        member.run_for(ms(10));
        for output in std::mem::take(&mut member.outputs) {
            if let ClusterOutput::Event(ClusterEvent::TookOver { rank, .. }) = output {
                used = Some(rank);
            } else if let ClusterOutput::Peer {
                message: PeerMessage::Question { number, .. },
                ..
            } = output
            {
                let answer = PeerMessage::Answer {
                    number,
                    is_heard: false,
                };
                member
                    .cluster
                    .handle_peer_message(member.now, &id("b"), answer);
            }
        }
        if used.is_some() {
            break member.now - at;
        }
    };
    assert_eq!(used, Some(2));
    assert!((ms(300)..ms(400)).contains(&taken), "{taken:?}");
}

#[test]
fn a_late_answer_of_the_store_is_passed_over() {
    let mut alone = Fixture::new(1, None);
    alone.cluster.set_ready(alone.now, true);
    let number = match alone.cluster.poll_output() {
        Some(ClusterOutput::Store { number, .. }) => number,
        output => panic!("{output:?}"),
    };
    alone.has_store = false;
    alone.run_for(ms(310));
    let answer = alone.answer(StoreRequest::Read);
    alone.cluster.handle_store_answer(alone.now, number, answer);
    alone.run_for(ms(10));
    assert!(alone.cluster.shards().is_empty());
    assert_eq!(alone.own.len(), 0);
}

#[test]
fn an_order_that_cannot_be_read_is_replaced() {
    let mut alone = Fixture::new(1, None);
    let order = Order::default();
    alone.own.insert(ShardId(0), Own { order, revision: 4 });
    alone.cluster.set_ready(alone.now, true);
    alone.run_for(ms(200));
    let own = &alone.own[&ShardId(0)];
    assert_eq!(own.order.holder(0), Some(&id("a")));
    assert!(alone.cluster.shards()[0].is_held);
}

#[test]
fn strangers_are_few_and_send_little() {
    let mut alone = Fixture::new(1, None);
    alone.run_for(ms(100));
    for n in 0..1000 {
        let beat = PeerMessage::Heartbeat(Heartbeat::default());
        let from = id(&format!("m{n}"));
        alone.cluster.handle_peer_message(alone.now, &from, beat);
    }
    assert_eq!(alone.cluster.peers().len(), MEMBERS_MAX);
    for _ in 0..10_000 {
        let question = PeerMessage::Question {
            number: 1,
            about: id("x"),
        };
        alone
            .cluster
            .handle_peer_message(alone.now, &id("m0"), question);
    }
    let counts = alone.cluster.counts();
    assert!(counts.peer_messages < 300, "{counts:?}");
    assert!(counts.peer_messages_refused > 10_000, "{counts:?}");
}

#[test]
fn a_heartbeat_out_of_bounds_is_refused() {
    let mut alone = Fixture::new(1, None);
    alone.run_for(ms(100));
    let used = InUse {
        shard: ShardId(0),
        revision: 11,
        rank: 200,
    };
    for beat in [
        Heartbeat {
            in_use: vec![used; 257],
            ..Heartbeat::default()
        },
        Heartbeat {
            epoch: EPOCH_MAX + 1,
            ..Heartbeat::default()
        },
        Heartbeat {
            hears: Some((0..=MEMBERS_MAX).map(|n| id(&format!("m{n}"))).collect()),
            ..Heartbeat::default()
        },
    ] {
        let beat = PeerMessage::Heartbeat(beat);
        alone.cluster.handle_peer_message(alone.now, &id("b"), beat);
    }
    assert_eq!(alone.cluster.counts().peer_messages_refused, 3);
    // A place that does not exist is ignored.
    alone.cluster.set_ready(alone.now, true);
    alone.run_for(ms(100));
    let beat = Heartbeat {
        in_use: vec![used],
        ..Heartbeat::default()
    };
    let beat = PeerMessage::Heartbeat(beat);
    alone.cluster.handle_peer_message(alone.now, &id("b"), beat);
    assert!(alone.cluster.shards()[0].is_held);
}

#[test]
fn a_switch_without_roles_is_served_by_the_owner_and_closed_by_others() {
    let (dpid, connection) = (DatapathId(5), ConnectionId(1));
    for is_owner in [true, false] {
        let mut member = Fixture::new(1, None);
        let owner = if is_owner { id("a") } else { id("b") };
        let order = Order::repeating(&[owner]);
        member.own.insert(ShardId(0), Own { order, revision: 4 });
        member.members.insert(id("b"), entry());
        member.cluster.set_ready(member.now, true);
        member.run_for(ms(200));
        member
            .cluster
            .handle_switch_up(member.now, dpid, connection, ShardId(0));
        member.run_for(ms(1));
        let (number, _) = member.role_request(dpid).expect("a request");
        let refusal = RoleRefusal::Other { number };
        member
            .cluster
            .handle_role_refused(member.now, dpid, connection, refusal);
        member.run_for(ms(1));
        let expected = match is_owner {
            true => ClusterOutput::Serve { dpid, connection },
            false => ClusterOutput::Close { dpid, connection },
        };
        assert!(member.outputs.contains(&expected), "{:?}", member.outputs);
        assert_eq!(member.cluster.serves(dpid), is_owner);
    }
}

/// The member is cut off from the others, and its switch reports the next place while the others
/// still count as heard.
#[test]
fn a_member_cut_off_learns_from_its_switch_that_another_serves() {
    let (dpid, connection) = (DatapathId(5), ConnectionId(1));
    let mut member = Fixture::new(1, None);
    member.members.insert(id("b"), entry());
    let order = Order::repeating(&[id("a"), id("b")]);
    member.own.insert(ShardId(0), Own { order, revision: 4 });
    member.cluster.set_ready(member.now, true);
    let beat = PeerMessage::Heartbeat(Heartbeat {
        is_ready: true,
        ..Heartbeat::default()
    });
    for _ in 0..10 {
        let (now, beat) = (member.now, beat.clone());
        member.cluster.handle_peer_message(now, &id("b"), beat);
        member.run_for(ms(100));
    }
    let now = member.now;
    member
        .cluster
        .handle_switch_up(now, dpid, connection, ShardId(0));
    member.run_for(ms(1));
    let (number, request) = member.role_request(dpid).expect("a request");
    member
        .cluster
        .handle_role_reply(member.now, dpid, connection, number, request);
    assert!(member.cluster.serves(dpid) && member.cluster.holds_any());

    member.has_store = false;
    let status = RoleMessage {
        role: Role::Secondary,
        generation_id: Generation::new(0, 4, 1).0,
        ..request
    };
    member
        .cluster
        .handle_role_status(member.now, dpid, connection, status);
    assert!(!member.cluster.serves(dpid));
    member.run_for(ms(1000));
    assert!(!member.cluster.holds_any(), "it still says that it serves");
    let next = id("b");
    assert_eq!(member.cluster.holder(ShardId(0)), Some(&next));
}

#[test]
fn a_request_without_an_answer_is_repeated_at_a_slowing_rate() {
    let (dpid, connection) = (DatapathId(5), ConnectionId(1));
    let mut alone = Fixture::new(1, None);
    alone.cluster.set_ready(alone.now, true);
    alone.run_for(ms(200));
    alone
        .cluster
        .handle_switch_up(alone.now, dpid, connection, ShardId(0));
    alone.run_for(ms(60_000));
    let counts = alone.cluster.counts();
    assert!((8..25).contains(&counts.role_requests), "{counts:?}");
    // Answers on an earlier connection, or with another number, are ignored.
    let (number, request) = alone.role_request(dpid).expect("a request");
    for (connection, number) in [(ConnectionId(0), number), (connection, number - 1)] {
        alone
            .cluster
            .handle_role_reply(alone.now, dpid, connection, number, request);
        assert!(!alone.cluster.serves(dpid));
    }
}
