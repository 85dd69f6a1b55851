//! Clusters of controllers under directed faults, and under random ones by seed. Whatever happens,
//! a switch takes writes from one member at a time. In quiet times it has one master.
//!
//! `CLUSTER_SEEDS=0..10000 cargo test --profile checked -p auster-sim --test cluster random` runs
//! many seeds. `CLUSTER_SEEDS=17..18` runs one that has failed, with its log.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its environment and uses all cores"
)]

mod seeds;

use clock::{Duration, Instant, SplitMix64, ms};
use control::cluster::{Generation, ShardId};
use sim::cluster::{LEASE, World};

/// Seeds in `cargo test` without a range.
const SEEDS: std::ops::Range<u64> = 0..600;

fn is_clean(world: &mut World) {
    world.check_quiet();
    assert!(world.faults.is_empty(), "{:#?}", world.faults);
}

/// The member that serves all switches.
fn master(world: &World) -> usize {
    let masters: Vec<_> = world
        .switches
        .iter()
        .map(|switch| switch.master())
        .collect();
    let first = masters[0].expect("a master");
    assert!(masters.iter().all(|m| *m == Some(first)), "{masters:?}");
    first
}

/// The time from `since` to the last take-over after it.
fn taken_after(world: &World, since: Instant) -> Duration {
    let at = world.takeovers.iter().map(|takeover| takeover.at).max();
    at.expect("a take-over") - since
}

fn others(world: &World, member: usize) -> Vec<usize> {
    (0..world.members()).filter(|n| *n != member).collect()
}

#[test]
fn without_faults_nobody_takes_over() {
    for members in 1..=5 {
        let mut world = World::started(members as u64, members, 4, 1);
        is_clean(&mut world);
        let first = master(&world);
        world.reset_gap();
        world.run_for(ms(30_000));
        is_clean(&mut world);
        assert_eq!(master(&world), first);
        assert!(world.takeovers.is_empty());
        assert!(world.longest_gap < ms(60), "{:?}", world.longest_gap);
        assert_eq!(world.refused, 0);
    }
}

#[test]
fn a_killed_owner_is_replaced_at_once_and_its_order_renewed() {
    let mut world = World::started(1, 3, 5, 1);
    let (first, at) = (master(&world), world.now());
    world.kill(first);
    world.run_for(ms(2000));
    assert!(taken_after(&world, at) < ms(80));
    assert_ne!(master(&world), first);
    is_clean(&mut world);
    // The successor has written an order of its own, so the next one is as quick.
    let (second, at) = (master(&world), world.now());
    world.start(first);
    world.run_for(ms(3000));
    assert_eq!(master(&world), second, "nothing moves back");
    is_clean(&mut world);
    world.kill(second);
    world.run_for(ms(2000));
    assert!(taken_after(&world, at) < ms(3080));
    is_clean(&mut world);
}

#[test]
fn a_stopped_owner_is_replaced_and_yields_when_it_goes_on() {
    let mut world = World::started(2, 3, 5, 1);
    let (first, at) = (master(&world), world.now());
    world.set_stopped(first, true);
    world.run_for(ms(30_000));
    assert!(taken_after(&world, at) < ms(460));
    let second = master(&world);
    assert_ne!(second, first);
    world.set_stopped(first, false);
    world.run_for(ms(3000));
    assert_eq!((master(&world), world.takeovers.len()), (second, 1));
    assert!(
        !world
            .cluster(first)
            .expect("it runs")
            .serves(world.switches[0].dpid)
    );
    is_clean(&mut world);
}

#[test]
fn a_stalled_application_loses_its_switches() {
    let mut world = World::started(3, 3, 2, 1);
    let first = master(&world);
    world.set_stalled(first, true);
    world.run_for(ms(1000));
    assert_ne!(master(&world), first);
    world.set_stalled(first, false);
    world.run_for(ms(3000));
    is_clean(&mut world);
}

#[test]
fn an_owner_that_is_cut_from_its_peers_is_replaced_once() {
    for (seed, members) in [(1, 3), (2, 4), (3, 5)] {
        let mut world = World::started(seed, members, 3, 1);
        let first = master(&world);
        for other in others(&world, first) {
            world.set_cut(first, other, true);
        }
        world.run_for(ms(30_000));
        assert_ne!(master(&world), first);
        assert_eq!(world.takeovers.len(), 1);
        for other in others(&world, first) {
            world.set_cut(first, other, false);
        }
        world.run_for(ms(3000));
        assert_eq!(world.takeovers.len(), 1);
        is_clean(&mut world);
    }
}

#[test]
fn a_member_that_is_cut_from_its_peers_takes_nothing() {
    let mut world = World::started(4, 3, 3, 1);
    let first = master(&world);
    let [lonely, other] = others(&world, first)[..] else {
        panic!("three members");
    };
    world.set_cut(lonely, first, true);
    world.set_cut(lonely, other, true);
    world.run_for(ms(10_000));
    assert_eq!((master(&world), world.takeovers.len()), (first, 0));
    world.set_cut(lonely, first, false);
    world.set_cut(lonely, other, false);
    world.run_for(ms(2000));
    is_clean(&mut world);
}

#[test]
fn halves_do_not_fight() {
    for seed in 0..10 {
        let mut world = World::started(seed, 4, 3, 1);
        for (a, b) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
            world.set_cut(a, b, true);
        }
        world.run_for(ms(30_000));
        assert!(world.takeovers.len() <= 2, "{:?}", world.takeovers);
        world.mend();
        world.run_for(ms(5000));
        is_clean(&mut world);
    }
}

#[test]
fn every_cut_of_three_members_leaves_one_master_and_no_fight() {
    for shape in 1..64 {
        let mut world = World::started(shape, 3, 3, 1);
        let is_cut = |n: usize| shape >> n & 1 == 1;
        for (n, (a, b)) in [(0, 1), (0, 2), (1, 2)].into_iter().enumerate() {
            world.set_cut(a, b, is_cut(n));
        }
        for member in 0..3 {
            world.set_store_cut(member, is_cut(3 + member));
        }
        world.run_for(ms(30_000));
        master(&world);
        assert!(world.takeovers.len() <= 2, "{shape}: {:?}", world.takeovers);
        world.mend();
        world.run_for(ms(5000));
        is_clean(&mut world);
    }
}

#[test]
fn two_members_replace_each_other_and_do_not_fight_when_cut() {
    let mut world = World::started(5, 2, 3, 1);
    let (first, at) = (master(&world), world.now());
    world.kill(first);
    world.run_for(ms(1000));
    assert!(taken_after(&world, at) < ms(100));
    world.start(first);
    world.run_for(ms(3000));
    is_clean(&mut world);
    world.set_cut(0, 1, true);
    world.run_for(ms(20_000));
    assert_eq!(world.takeovers.len(), 2);
    world.set_cut(0, 1, false);
    world.run_for(ms(3000));
    is_clean(&mut world);
}

#[test]
fn take_overs_go_on_while_the_store_is_away() {
    let mut world = World::started(6, 3, 3, 1);
    world.set_store(false);
    world.run_for(ms(500));
    for round in 0..6 {
        let (first, at) = (master(&world), world.now());
        world.kill(first);
        world.run_for(ms(1000));
        assert!(taken_after(&world, at) < ms(200), "round {round}");
        world.start(first);
        // It serves as one that has been there all the time only once it has read the orders.
        world.set_store(true);
        world.run_for(ms(1500));
        world.set_store(false);
        world.run_for(ms(1500));
    }
    world.set_store(true);
    world.run_for(ms(5000));
    is_clean(&mut world);
}

/// A disk that takes two seconds for each write: the store carries out requests that nobody waits
/// for any more.
#[test]
fn a_slow_store_delays_no_take_over_and_is_in_sync_when_it_is_quick_again() {
    for delay in [100, 250, 290, 310, 600, 2000, 5000] {
        let mut world = World::started(delay, 3, 5, 1);
        world.set_store_delay(ms(delay));
        world.run_for(ms(4000));
        assert!(world.takeovers.is_empty(), "nobody dies of a slow store");
        let (first, at) = (master(&world), world.now());
        world.kill(first);
        world.run_for(ms(1000));
        assert!(taken_after(&world, at) < ms(80), "{delay} ms");
        // A stopped member that continues yields, as always.
        let (second, at) = (master(&world), world.now());
        world.set_stopped(second, true);
        world.start(first);
        world.run_for(ms(10_000));
        let taken = world.takeovers.iter().filter(|t| t.at > at).count();
        assert!(taken <= 1, "{delay} ms: {:?}", world.takeovers);
        world.set_stopped(second, false);
        world.run_for(ms(3000));
        assert!(world.faults.is_empty(), "{delay} ms: {:#?}", world.faults);
        world.set_store_delay(Duration::ZERO);
        world.run_for(ms(3000));
        is_clean(&mut world);
    }
}

/// Stops the serving member for a second, eight times.
fn owners_stand_still_in_turn(world: &mut World) {
    for round in 0..8 {
        let owner = master(world);
        world.set_stopped(owner, true);
        world.run_for(ms(1000));
        assert_ne!(master(world), owner, "round {round}");
        world.set_stopped(owner, false);
        world.run_for(ms(1000));
    }
}

#[test]
fn take_overs_go_on_while_the_store_is_full() {
    let mut world = World::started(24, 3, 3, 1);
    world.set_store_full(true);
    owners_stand_still_in_turn(&mut world);
    assert!(world.faults.is_empty(), "{:#?}", world.faults);
    world.set_store_full(false);
    world.run_for(ms(5000));
    is_clean(&mut world);
}

#[test]
fn a_stopped_owner_gets_its_switches_back_by_rank_while_the_store_is_away() {
    let mut world = World::started(7, 3, 3, 1);
    world.set_store(false);
    owners_stand_still_in_turn(&mut world);
    world.set_store(true);
    world.run_for(ms(5000));
    is_clean(&mut world);
}

#[test]
fn a_restored_store_raises_the_epoch_before_anything_is_written() {
    for has_new_id in [false, true] {
        let mut world = World::started(8, 3, 3, 1);
        world.back_up();
        let first = master(&world);
        world.kill(first);
        world.run_for(ms(2000));
        world.start(first);
        world.run_for(ms(3000));
        for _ in 0..100 {
            world.store.put_other();
        }
        // Members note the revision.
        world.lose_watches();
        world.run_for(ms(3000));
        world.restore(has_new_id);
        world.run_for(ms(6000));
        assert_eq!((world.store.epoch(), world.unfenced), (1, 0));
        is_clean(&mut world);
        let owner = master(&world);
        world.kill(owner);
        world.run_for(ms(3000));
        is_clean(&mut world);
    }
}

#[test]
fn a_restore_while_all_are_down_is_noticed() {
    let mut world = World::started(9, 3, 3, 1);
    world.back_up();
    for _ in 0..3 {
        let owner = master(&world);
        world.kill(owner);
        world.run_for(ms(2000));
        world.start(owner);
        world.run_for(ms(3000));
    }
    for member in 0..3 {
        world.kill(member);
    }
    world.run_for(ms(1000));
    world.restore(false);
    for member in 0..3 {
        world.start(member);
    }
    world.run_for(ms(8000));
    assert_eq!((world.store.epoch(), world.unfenced), (1, 0));
    is_clean(&mut world);
}

/// One member knows that the store was restored, and raises the epoch. The other one has read the
/// store a moment before, and its watch has just ended.
#[test]
fn no_order_is_written_by_a_member_that_has_not_heard_of_the_next_epoch() {
    run(11_985, false).unwrap();
}

#[test]
fn an_owner_that_leaves_hands_over_without_a_gap() {
    for members in [2, 3, 5] {
        let mut world = World::started(10, members, 5, 1);
        let first = master(&world);
        world.reset_gap();
        world.terminate(first);
        world.run_for(ms(2500));
        assert!(!world.is_running(first));
        assert_ne!(master(&world), first);
        assert!(world.takeovers.is_empty());
        assert!(world.longest_gap < ms(110), "{:?}", world.longest_gap);
        is_clean(&mut world);
    }
}

#[test]
fn all_are_restarted_in_turn_without_a_take_over() {
    let mut world = World::started(11, 3, 5, 1);
    world.reset_gap();
    for member in 0..3 {
        world.terminate(member);
        world.run_for(ms(2500));
        assert!(!world.is_running(member));
        world.start(member);
        world.run_for(ms(3000));
    }
    assert!(world.takeovers.is_empty());
    assert!(world.longest_gap < ms(110), "{:?}", world.longest_gap);
    is_clean(&mut world);
}

#[test]
fn an_operator_moves_all_switches_without_a_gap() {
    for members in [2, 3, 5] {
        let mut world = World::started(17, members, 5, 1);
        for to in 0..members {
            world.reset_gap();
            world.ask_move(ShardId(0), to);
            world.run_for(ms(1000));
            assert_eq!(master(&world), to);
            assert!(world.longest_gap < ms(110), "{:?}", world.longest_gap);
        }
        assert!(world.takeovers.is_empty());
        is_clean(&mut world);
    }
}

#[test]
fn a_move_to_one_who_is_not_there_waits_and_counts_for_one_order_only() {
    let mut world = World::started(18, 3, 3, 1);
    let first = master(&world);
    let [absent, other] = others(&world, first)[..] else {
        panic!("three members");
    };
    world.set_stopped(absent, true);
    world.run_for(ms(1000));
    let order = world.store.own.clone();
    world.ask_move(ShardId(0), absent);
    world.run_for(ms(1000));
    assert_eq!(master(&world), first);
    assert_eq!(
        world.store.own, order,
        "its entry is there, but nobody hears it"
    );
    // The next order is another one, which nobody wants to be replaced.
    world.ask_move(ShardId(0), other);
    world.run_for(ms(1000));
    assert_eq!(master(&world), other);
    world.ask_move(ShardId(0), absent);
    world.kill(other);
    world.run_for(ms(3000));
    world.set_stopped(absent, false);
    world.run_for(ms(5000));
    world.start(other);
    world.run_for(ms(3000));
    assert_eq!((master(&world), world.takeovers.len()), (first, 1));
    is_clean(&mut world);
}

#[test]
fn a_drained_member_hands_over_and_gets_nothing_until_it_is_undone() {
    let mut world = World::started(19, 3, 5, 1);
    let first = master(&world);
    world.reset_gap();
    world.set_drained(first, true);
    world.run_for(ms(3000));
    let second = master(&world);
    assert_ne!(second, first);
    assert!(world.longest_gap < ms(110), "{:?}", world.longest_gap);
    assert!(world.takeovers.is_empty());
    is_clean(&mut world);

    // The drained member gets no switch by a move, by a death, or after its own restart.
    world.ask_move(ShardId(0), first);
    world.run_for(ms(1000));
    assert_eq!(master(&world), second);
    world.kill(first);
    world.start(first);
    world.run_for(ms(3000));
    world.kill(second);
    world.run_for(ms(3000));
    let third = master(&world);
    assert!(third != first && third != second);

    // Where all live members are drained, the owner continues until an undrained one follows it.
    world.set_drained(third, true);
    world.run_for(ms(3000));
    assert_eq!(master(&world), third);
    world.set_drained(first, false);
    world.run_for(ms(3000));
    assert_eq!(master(&world), first);
    is_clean(&mut world);
}

#[test]
fn a_lone_member_that_leaves_has_nobody_to_hand_over_to() {
    let mut world = World::started(12, 1, 2, 1);
    world.terminate(0);
    world.run_for(ms(3000));
    assert!(!world.is_running(0));
    world.start(0);
    world.run_for(ms(3000));
    is_clean(&mut world);
}

#[test]
fn a_foreign_generation_is_exceeded_a_few_times_and_a_great_one_is_left() {
    let mut world = World::started(13, 3, 3, 1);
    world.claim(0, Generation::new(3, 1 << 40, 5));
    world.run_for(ms(3000));
    assert_eq!(world.store.epoch(), 4);
    is_clean(&mut world);
    world.claim(0, Generation::new(2040, 5, 5));
    world.run_for(ms(5000));
    assert_eq!(world.store.epoch(), 4);
    assert_eq!(world.switches[0].master(), None);
    assert!(world.faults.is_empty(), "{:#?}", world.faults);
}

#[test]
fn a_switch_that_lies_about_places_moves_only_itself() {
    let mut world = World::started(16, 3, 3, 1);
    let first = master(&world);
    for round in 0..12 {
        let shards = world.cluster(first).expect("it runs").shards();
        let used = shards[0].generation;
        let lie = Generation::new(used.epoch(), used.revision(), 1 + round % 15);
        world.claim(0, lie);
        world.run_for(ms(12_000));
        assert_eq!(world.switches[1].master(), Some(first));
        assert_eq!(world.switches[2].master(), Some(first));
        // The switch is served again by an order that exceeds its claim, but not for ever.
        let is_served = world.switches[0].master() == Some(first);
        assert_eq!(is_served, round < 8, "{round}");
    }
    assert!(world.takeovers.is_empty());
}

#[test]
fn a_switch_that_lost_its_power_is_served_again() {
    let mut world = World::started(14, 3, 3, 1);
    world.reboot(1);
    world.run_for(ms(1000));
    assert!(world.takeovers.is_empty());
    is_clean(&mut world);
}

#[test]
fn shards_of_a_dead_member_without_a_successor_are_assigned_anew() {
    let mut world = World::started(15, 5, 6, 16);
    for member in 0..3 {
        world.kill(member);
    }
    world.run_for(LEASE + ms(6000));
    is_clean(&mut world);
}

/// The member in place 1 is deaf, or has become so, when the serving member dies. A member that
/// learns of the death takes over, also while the store is away.
fn take_over_past_a_deaf_member(world: &mut World, first: usize, deaf: usize) {
    let at = world.now();
    world.kill(first);
    world.run_for(ms(1000));
    let taken = world.takeovers.iter().any(|takeover| takeover.at > at);
    assert!(taken, "nobody took over from {first}");
    assert_ne!(master(world), deaf);
    assert!(
        taken_after(world, at) < ms(800),
        "{:?}",
        taken_after(world, at)
    );
}

fn successor(world: &World) -> usize {
    let place = world.store.own[&ShardId(0)]
        .order
        .holder(1)
        .expect("a place");
    place.as_str()[1..].parse().expect("m0 and so on")
}

#[test]
fn a_member_that_becomes_deaf_is_passed_over() {
    for members in [3, 4, 5] {
        for (has_store, pause) in [(true, 100), (false, 100), (false, 2000), (true, 5000)] {
            let mut world = World::started(20, members, 3, 1);
            let (first, deaf) = (master(&world), successor(&world));
            world.set_store(has_store);
            world.set_deaf(deaf, true);
            world.run_for(ms(pause));
            assert!(world.takeovers.is_empty());
            take_over_past_a_deaf_member(&mut world, first, deaf);
            world.mend();
            world.run_for(ms(5000));
            is_clean(&mut world);
        }
    }
}

#[test]
fn a_deaf_member_gets_no_place_and_one_that_becomes_deaf_loses_it() {
    let mut world = World::new(21, 4, 3, 1);
    world.set_deaf(0, true);
    for member in 0..4 {
        world.start(member);
    }
    world.run_for(ms(5000));
    let places = |world: &World| {
        let order = &world.store.own[&ShardId(0)].order;
        (0..4)
            .filter(|n| order.places().iter().any(|p| p.as_str() == format!("m{n}")))
            .collect()
    };
    let placed: Vec<usize> = places(&world);
    assert_eq!(placed, [1, 2, 3]);
    let first = master(&world);
    world.set_deaf(0, false);
    world.run_for(ms(3000));
    let placed: Vec<usize> = places(&world);
    assert_eq!((placed, master(&world)), (vec![0, 1, 2, 3], first));

    let deaf = successor(&world);
    world.set_deaf(deaf, true);
    world.run_for(ms(5000));
    let placed: Vec<usize> = places(&world);
    assert_eq!((placed, master(&world)), (others(&world, deaf), first));
    assert!(world.takeovers.is_empty());
    // No switches are moved to the deaf member.
    world.ask_move(ShardId(0), deaf);
    world.run_for(ms(2000));
    assert_eq!(master(&world), first);
    world.mend();
    world.run_for(ms(5000));
    is_clean(&mut world);
}

#[test]
fn a_deaf_member_that_serves_hands_over_to_one_that_hears() {
    let mut world = World::started(22, 3, 3, 1);
    let first = master(&world);
    world.reset_gap();
    world.set_deaf(first, true);
    world.run_for(ms(5000));
    assert_ne!(master(&world), first);
    assert!(world.takeovers.is_empty());
    assert!(world.longest_gap < ms(110), "{:?}", world.longest_gap);
    world.mend();
    world.run_for(ms(5000));
    is_clean(&mut world);
}

#[test]
fn a_second_member_that_is_deaf_from_the_start_takes_nothing() {
    let mut world = World::new(23, 2, 3, 1);
    world.start(0);
    world.run_for(ms(3000));
    world.set_deaf(1, true);
    world.start(1);
    world.run_for(ms(10_000));
    assert_eq!((master(&world), world.takeovers.len()), (0, 0));
    world.mend();
    world.run_for(ms(5000));
    is_clean(&mut world);
}

/// The author of the order knows that its first owner did not act on it.
#[test]
fn an_owner_that_dies_as_it_is_named_is_replaced() {
    for case in 0..120 {
        let mut world = World::started(case, 3, 2, 1);
        let (first, second) = (master(&world), successor(&world));
        let third = (0..3).find(|n| ![first, second].contains(n));
        world.terminate(first);
        world.run_for(Duration::from_micros(100 * case));
        world.kill(second);
        world.run_for(ms(1000));
        assert_eq!(Some(master(&world)), third, "case {case}");
        world.mend();
        world.run_for(LEASE + ms(4000));
        is_clean(&mut world);
    }
}

/// Members whose entries in the store still mark them as deaf: each takes the other for one that is
/// about to leave.
#[test]
fn members_that_hear_again_while_the_store_is_away_do_not_fight() {
    for seed in 0..40 {
        let mut world = World::started(seed, 4, 3, 1);
        let cut = |world: &mut World, is_cut| {
            for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)] {
                world.set_cut(a, b, is_cut);
            }
        };
        cut(&mut world, true);
        world.run_for(ms(3000));
        world.set_store(false);
        cut(&mut world, false);
        world.run_for(ms(200 + 50 * (seed % 8)));
        world.set_store(true);
        world.kill(2);
        world.kill(3);
        world.run_for(LEASE + ms(4000));
        is_clean(&mut world);
    }
}

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end as u64) as usize
    }
}

fn fault(world: &mut World, random: &mut Random) {
    let members = world.members();
    let (a, b) = (random.below(members), random.below(members));
    let switch = random.below(world.switches.len());
    let is_on = random.below(2) == 0;
    match random.below(28) {
        0..3 => world.kill(a),
        3..5 => world.start(a),
        5..8 => {
            let is_stopped = world.is_stopped(a);
            world.set_stopped(a, !is_stopped);
        }
        8 | 9 if a != b => world.set_cut(a, b, is_on),
        8 | 9 => world.set_deaf(a, is_on),
        10 => {
            for other in others(world, a) {
                world.set_cut(a, other, is_on);
            }
        }
        11 => {
            for one in 0..members {
                for other in one + 1..members {
                    world.set_cut(one, other, is_on && (one + a) % 2 != (other + a) % 2);
                }
            }
        }
        12 => world.set_switch_cut(switch, a, is_on),
        13 => world.disconnect(switch, a),
        14 => world.set_store_cut(a, is_on),
        15 => world.set_store(is_on),
        16 => world.lose_watches(),
        17 => world.lose_watch(a),
        18 => world.back_up(),
        19 => world.restore(is_on),
        20 | 21 => world.terminate(a),
        22 => world.set_stalled(a, is_on),
        23 => world.reboot(switch),
        24 | 25 => {
            let shard = world.switches[switch].shard;
            world.ask_move(shard, a);
        }
        26 | 27 => world.set_drained(a, is_on),
        _ => {}
    }
}

/// A fault of the store itself, in some seeds: the others are as they were before.
fn store_fault(world: &mut World, random: &mut Random) {
    let delays = [0, 0, 40, 200, 290, 310, 500, 2000, 4000];
    match random.below(4) {
        0 => world.set_store_full(random.below(2) == 0),
        _ => world.set_store_delay(ms(delays[random.below(delays.len())])),
    }
}

/// After a quiet time one member becomes deaf, and a little later one that serves dies: the others
/// take over within a second, with and without the store.
fn one_dies_while_another_is_deaf(world: &mut World, random: &mut Random) {
    let deaf = random.below(world.members());
    let (pause, has_store) = (random.below(3000) as u64, random.below(2) == 0);
    let Some(dies) = world.switches[0].master() else {
        return;
    };
    let is_drained = |n: &usize| {
        world
            .store
            .drained
            .iter()
            .any(|id| id.as_str()[1..] == n.to_string())
    };
    let mut able = (0..world.members()).filter(|n| ![deaf, dies].contains(n) && !is_drained(n));
    if able.next().is_none() || deaf == dies {
        return;
    }
    world.set_store(has_store);
    world.set_deaf(deaf, true);
    world.run_for(ms(pause));
    if world
        .switches
        .iter()
        .all(|switch| switch.master() != Some(dies))
    {
        return;
    }
    world.kill(dies);
    world.run_for(ms(1000));
    for switch in 0..world.switches.len() {
        if world.switches[switch].master().is_none() {
            let fault = format!("switch {switch}: nobody follows {dies} while {deaf} is deaf");
            world.faults.push(fault);
        }
    }
    world.mend();
    world.run_for(LEASE + ms(4000));
    world.check_quiet();
}

/// Runs one seed, and returns its fault, if any.
fn run(seed: u64, has_log: bool) -> Result<(), String> {
    let mut random = Random(SplitMix64::new(seed ^ 0x636c_7573));
    let (members, switches) = (2 + random.below(4), 1 + random.below(5));
    let shards = if random.below(2) == 0 { 1 } else { 4 };
    let mut world = World::new(seed, members, switches, shards);
    world.log = has_log.then(Vec::new);
    for member in 0..members {
        world.start(member);
        world.run_for(ms(random.below(100) as u64));
    }
    world.run_for(ms(1500));
    if !world.takeovers.is_empty() {
        return Err("a take-over before any fault".to_owned());
    }
    world.back_up();
    for _ in 0..4 + random.below(8) {
        fault(&mut world, &mut random);
        if seed % 4 == 2 {
            store_fault(&mut world, &mut random);
        }
        let pause = [5, 100, 700, 2500][random.below(4)];
        world.run_for(ms(random.below(pause) as u64));
    }
    world.mend();
    world.run_for(ms(2500));
    // Mends again for members that have left meanwhile.
    world.mend();
    world.run_for(LEASE + ms(4000));
    let taken = (world.takeovers.len(), world.handovers);
    world.check_quiet();
    let (writes, refused) = (world.writes, world.refused);
    world.run_for(ms(1000));
    world.check_quiet();
    if taken != (world.takeovers.len(), world.handovers) {
        world.faults.push("a take-over in quiet time".to_owned());
    }
    if world.refused > refused || world.writes < writes + 15 * switches as u64 {
        world
            .faults
            .push("switches without writes in quiet time".to_owned());
    }
    one_dies_while_another_is_deaf(&mut world, &mut random);
    for line in world.log.iter().flatten() {
        println!("{line}");
    }
    match world.faults.is_empty() {
        true => Ok(()),
        false => Err(world.faults.join("; ")),
    }
}

#[test]
fn random_faults_leave_one_master_of_each_switch() {
    seeds::run_all("CLUSTER_SEEDS", SEEDS, run);
}
