//! Nanoseconds to queue one message and send one, by discipline, with 400 waiting.
//!
//!     cargo bench -p auster-sched --bench scheduler

mod load;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use sched::policy::Algorithm;

fn push_and_pop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push_and_pop");
    for algorithm in Algorithm::ALL {
        let mut load = load::Load::new(algorithm);
        group.bench_function(algorithm.name(), |bencher| {
            bencher.iter(|| black_box(load.step()))
        });
    }
    group.finish();
}

criterion_group!(benches, push_and_pop);
criterion_main!(benches);
