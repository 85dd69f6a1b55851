//! Nanoseconds to classify one message.
//!
//!     cargo bench -p auster-sched --bench classify
//!
//! `message` is what a relay pays: each kind of message under a map of 5 rules and one of 64, all
//! of which are looked at. `model` is n rules of m fields, all of them looked at, beside the model
//! of the published scheme for a table in hardware: 20 µs × log2(n × m).

mod subjects;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sched::{Classifier, Direction};

fn message(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("message");
    for rules in [0, 5, 64] {
        let classifier = Classifier::new(&subjects::map(rules, 2));
        for (name, frame, direction) in subjects::messages() {
            group.bench_function(BenchmarkId::new(name, rules), |bencher| {
                bencher.iter(|| classifier.classify(black_box(&frame), direction, 1, None));
            });
        }
    }
    group.finish();
}

/// Up to the 512 entries and 64 fields of the published figure; a map that is read from a file
/// has at most 64 rules.
fn model(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("model");
    let packet = subjects::packet_in(subjects::udp(20000));
    for fields in [1, 4, 5, 64] {
        for rules in [1, 4, 16, 64, 256, 512] {
            let classifier = Classifier::new(&subjects::map(rules, fields));
            let micros = 20.0 * ((rules * fields) as f64).log2();
            let name = format!("{rules} x {fields} (model {micros:.1} us)");
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    classifier.classify(black_box(&packet), Direction::ToController, 1, None)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, message, model);
criterion_main!(benches);
