//! Nanoseconds per entry of a table under `lease`, with 50,000 entries: to read the statistics, to
//! renew leases, and to set an entry for which another goes.
//!
//!     cargo bench -p auster-control --bench keeper

use std::hint::black_box;

use clock::{Duration, Instant};
use control::entry::{Entry, EntryKind};
use control::timeouts::keeper::Keeper;
use control::timeouts::leases::{Leases, Margin, RowKey};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use openflow::{MacAddr, PortNo};

const ENTRIES: u32 = 50_000;
const LEASE_S: u16 = 300;

fn key(n: u32) -> RowKey {
    RowKey {
        in_port: PortNo(1),
        // Spread, as addresses are, and never 0.
        src: MacAddr::from_u64(1 << 40 | u64::from(n.wrapping_mul(0x9e37_79b9))),
        dst: MacAddr::from_u64(1 << 40 | u64::from(n % 256)),
        rule: None,
    }
}

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn read(keeper: &mut Keeper<RowKey>, ms: u64, packets: impl Fn(u32) -> u64) {
    keeper.handle_poll_sent();
    (0..ENTRIES).for_each(|n| keeper.handle_row(at(ms), key(n), packets(n)));
    black_box(keeper.handle_poll_end(at(ms), ENTRIES));
}

/// With so many places, of which 50,000 are taken; a third of the flows sends.
fn filled(capacity: u32) -> Keeper<RowKey> {
    let mut keeper = Keeper::new(at(0), capacity);
    for n in 0..ENTRIES {
        keeper.install(at(u64::from(n) / 100), key(n), false);
    }
    read(&mut keeper, 60_000, |n| u64::from(n % 3 == 0));
    read(&mut keeper, 61_000, |n| 2 * u64::from(n % 3 == 0));
    keeper
}

fn keeper(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("50000 entries");
    group.throughput(Throughput::Elements(ENTRIES.into()));
    let (mut polled, mut ms) = (filled(ENTRIES * 10 / 8), 61_000);
    group.bench_function("poll", |bencher| {
        bencher.iter(|| {
            ms += 1000;
            read(&mut polled, ms, |n| ms * u64::from(n % 3 == 0));
        });
    });
    // Nothing is free: each new entry takes the place of one.
    const COUNT: u32 = 1000;
    let full = filled(ENTRIES * 51 / 50);
    group.throughput(Throughput::Elements(COUNT.into()));
    group.bench_function("install and evict", |bencher| {
        let add = |mut keeper: Keeper<RowKey>| {
            for n in 0..COUNT {
                black_box(keeper.install(at(61_100), key(ENTRIES + n), false));
            }
            keeper
        };
        bencher.iter_batched(|| full.clone(), add, BatchSize::LargeInput);
    });
    group.finish();
}

fn entry(n: u32) -> Entry {
    Entry {
        key: key(n).entry_key(),
        kind: EntryKind::Pair,
        out: PortNo(2),
        idle_timeout_s: 60,
        hard_timeout_s: LEASE_S,
        notify: true,
    }
}

fn leases(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("50000 leases");
    group.throughput(Throughput::Elements(ENTRIES.into()));
    let read = |leases: &mut Leases, ms: u64| {
        leases.handle_reading_start();
        for n in 0..ENTRIES {
            let age = Duration::from_millis(ms % (u64::from(LEASE_S) * 1000));
            leases.handle_row(at(ms), &entry(n), ms, age, None);
        }
        leases.handle_reading_end();
    };
    let (mut held, mut ms) = (Leases::default(), 1000);
    read(&mut held, ms);
    group.bench_function("poll", |bencher| {
        bencher.iter(|| {
            ms += 1;
            read(&mut held, ms);
        });
    });
    let margin = Margin {
        late: Duration::from_secs(5),
        per_s: 1000.0,
    };
    group.bench_function("find those due", |bencher| {
        bencher.iter(|| black_box(held.due(at(ms), margin)));
    });
    group.bench_function("renew", |bencher| {
        bencher.iter(|| {
            for n in 0..ENTRIES {
                let renewed = held.entry(key(n)).expect("it is held");
                held.handle_renewed(at(ms), black_box(&renewed), false);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, keeper, leases);
criterion_main!(benches);
