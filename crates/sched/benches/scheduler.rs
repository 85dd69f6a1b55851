//! Nanoseconds to queue one message and send one, by discipline, with 400 waiting.
//!
//!     cargo bench -p auster-sched --bench scheduler

mod load;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

fn push_and_pop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push_and_pop");
    for (name, algorithm) in load::ALGORITHMS {
        let mut load = load::Load::new(algorithm);
        group.bench_function(name, |bencher| bencher.iter(|| black_box(load.step())));
    }
    group.finish();
}

criterion_group!(benches, push_and_pop);
criterion_main!(benches);
