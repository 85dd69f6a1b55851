//! Once warmed up, the scheduler allocates nothing.

#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use clock::Duration;
use common::{Line, flow, packet_in, scheduling};
use sched::policy::Algorithm;
use sched::{Binding, Direction, Tag};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bursts from many ports and flows of three switches, with fences and state between; more than
/// the queues take, so that there is shedding too.
fn round(line: &mut Line, seed: u64) {
    for n in 0..600 {
        let random = line.random(1 << 30);
        let channel = random % 3;
        let queue = (random >> 4) as u8 % 4;
        let key = random >> 8 & 0xff;
        let tag = match random >> 16 & 7 {
            0 => Tag {
                binding: Binding::State,
                ..flow(key, channel)
            },
            1 => Tag {
                binding: Binding::Fence,
                ..flow(key, channel)
            },
            2 => Tag {
                binding: Binding::Exchange,
                ..flow(key, channel)
            },
            _ => packet_in(channel, key as u32 & 31, key ^ seed),
        };
        line.push(Tag {
            queue,
            domain: (key & 1) as u8,
            ..tag
        });
        if n % 7 == 0 {
            line.pop();
        }
        while line.scheduler.poll_shed().is_some() {}
    }
    line.now += Duration::from_millis(900);
    while line.pop().is_some() {}
    while line.scheduler.poll_shed().is_some() {}
}

#[test]
fn steady_state_allocates_nothing() {
    for algorithm in Algorithm::ALL {
        let mut line = Line::new(Direction::ToController, &scheduling(algorithm));
        (0..50).for_each(|seed| round(&mut line, seed));
        let before = ALLOCATIONS.get();
        (50..80).for_each(|seed| round(&mut line, seed));
        assert_eq!(ALLOCATIONS.get() - before, 0, "{algorithm:?}");
        let shed: u64 = line
            .scheduler
            .counters()
            .iter()
            .map(|c| c.shed_full + c.shed_duplicate)
            .sum();
        assert!(shed > 100, "{algorithm:?} shed {shed}");
        assert!(line.scheduler.is_empty());
    }
}
