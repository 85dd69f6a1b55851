//! A cluster whose members are upgraded to a version with another schema of the store, one after
//! the other: the rules of `cluster.rs` hold, and no member meets a schema that it does not read.
//!
//! `UPGRADE_SEEDS=0..10000 cargo test --profile checked -p auster-sim --test testsuite upgrade::`
//! runs many.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its environment and uses all cores"
)]

use clock::{SplitMix64, ms};
use sim::cluster::{LEASE, World};

use crate::seeds;

/// Seeds in `cargo test` without a range.
const SEEDS: std::ops::Range<u64> = 0..100;

fn is_clean(world: &mut World) {
    world.check_quiet();
    assert!(world.faults.is_empty(), "{:#?}", world.faults);
}

/// Ends a member in order, and starts it with another program.
fn upgrade(world: &mut World, member: usize, reads: u32) {
    world.install(member, reads);
    world.terminate(member);
    world.run_for(ms(2500));
    world.start(member);
    world.run_for(ms(3000));
}

#[test]
fn the_next_schema_comes_when_all_members_read_it() {
    for members in [2, 3, 5] {
        let mut world = World::started(members as u64, members, 4, 1);
        world.reset_gap();
        for member in 0..members {
            assert_eq!(world.store.schema(), 1);
            upgrade(&mut world, member, 2);
            is_clean(&mut world);
        }
        world.run_for(ms(20_000));
        assert_eq!(
            world.store.schema(),
            1,
            "a rollback is possible for a while"
        );
        world.run_for(ms(20_000));
        assert_eq!(world.store.schema(), 2);
        is_clean(&mut world);
        assert!(world.takeovers.is_empty());
        assert!(world.longest_gap < ms(110), "{:?}", world.longest_gap);
    }
}

#[test]
fn one_member_of_the_earlier_version_holds_the_schema_back() {
    let mut world = World::started(4, 3, 3, 1);
    upgrade(&mut world, 0, 2);
    upgrade(&mut world, 1, 2);
    world.run_for(ms(60_000));
    assert_eq!(world.store.schema(), 1);

    // Also while its entry is gone, as long as it is heard, and it may even serve switches.
    world.set_store_cut(2, true);
    world.run_for(LEASE + ms(60_000));
    assert_eq!(world.store.schema(), 1);
    world.set_store_cut(2, false);
    world.run_for(ms(3000));
    is_clean(&mut world);

    upgrade(&mut world, 2, 2);
    world.run_for(ms(40_000));
    assert_eq!(world.store.schema(), 2);
    is_clean(&mut world);
}

#[test]
fn a_member_of_the_earlier_version_that_returns_serves_nothing() {
    let mut world = World::started(5, 3, 3, 1);
    for member in 0..3 {
        upgrade(&mut world, member, 2);
    }
    world.run_for(ms(40_000));
    assert_eq!(world.store.schema(), 2);
    upgrade(&mut world, 0, 1);
    is_clean(&mut world);

    // Not even when no other member is left.
    world.kill(1);
    world.kill(2);
    world.run_for(ms(10_000));
    assert!(
        world
            .switches
            .iter()
            .all(|switch| switch.master().is_none())
    );
    assert!(world.faults.is_empty(), "{:#?}", world.faults);
    world.start(1);
    world.start(2);
    world.run_for(LEASE + ms(4000));
    is_clean(&mut world);
    assert_eq!(world.store.schema(), 2);
}

#[test]
fn a_member_that_stood_still_while_the_schema_came_serves_nothing() {
    let mut world = World::started(6, 3, 3, 1);
    world.set_stopped(0, true);
    for member in 1..3 {
        upgrade(&mut world, member, 2);
    }
    world.run_for(ms(60_000));
    assert_eq!(world.store.schema(), 2);
    world.set_stopped(0, false);
    world.run_for(LEASE + ms(4000));
    is_clean(&mut world);
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
    let is_on = random.below(2) == 0;
    match random.below(16) {
        0 | 1 => world.kill(a),
        2 | 3 => world.start(a),
        4 | 5 => {
            let is_stopped = world.is_stopped(a);
            world.set_stopped(a, !is_stopped);
        }
        6 if a != b => world.set_cut(a, b, is_on),
        7 | 8 => world.set_store_cut(a, is_on),
        9 => world.set_store(is_on),
        10 => world.lose_watches(),
        11 => world.lose_watch(a),
        // An operator goes back to the earlier version.
        12 => world.install(a, 1),
        13 => world.set_drained(a, is_on),
        14 => world.terminate(a),
        _ => {}
    }
}

/// Runs one seed, and returns what went wrong, if anything.
fn run(seed: u64, has_log: bool) -> Result<(), String> {
    let mut random = Random(SplitMix64::new(seed ^ 0x7570_6772));
    let (members, switches) = (2 + random.below(4), 1 + random.below(4));
    let mut world = World::new(seed, members, switches, 1);
    world.log = has_log.then(Vec::new);
    for member in 0..members {
        world.start(member);
    }
    world.run_for(ms(1500));
    let first = random.below(members);
    for n in 0..members {
        let member = (first + n) % members;
        world.install(member, 2);
        match random.below(3) {
            0 => world.kill(member),
            _ => world.terminate(member),
        }
        for _ in 0..random.below(4) {
            let pause = [100, 3000, 20_000][random.below(3)];
            world.run_for(ms(random.below(pause) as u64));
            fault(&mut world, &mut random);
        }
        world.run_for(ms(random.below(40_000) as u64));
        world.start(member);
    }
    // Members that went back to the earlier version stay with it, or not.
    let is_finished = random.below(4) > 0;
    for member in 0..members {
        if is_finished {
            world.install(member, 2);
            world.kill(member);
        }
    }
    world.mend();
    world.run_for(ms(2500));
    world.mend();
    world.run_for(LEASE + ms(4000));
    world.check_quiet();
    world.run_for(ms(35_000));
    world.check_quiet();
    for line in world.log.iter().flatten() {
        println!("{line}");
    }
    if is_finished && world.store.schema() != 2 {
        return Err("all read the next schema, and it is not in use".to_owned());
    }
    match world.faults.is_empty() {
        true => Ok(()),
        false => Err(world.faults.join("; ")),
    }
}

#[test]
fn random_upgrades_leave_one_master_and_one_schema() {
    seeds::run_all("UPGRADE_SEEDS", SEEDS, run);
}
