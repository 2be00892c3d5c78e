//! The statistics of a session of 10^6 slots.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use memra_ledger::stats::{
    QuadOrder, SplitMix64, StatsError, balanced_orders, hodges_lehmann, interval, quad_difference,
};

const QUADS: usize = 250_000;

/// Slots of about a millisecond with noise of 2 %.
fn session() -> Result<(Vec<QuadOrder>, Vec<[u64; 4]>), StatsError> {
    let mut random = SplitMix64::new(1);
    let slots = (0..QUADS).map(|_| std::array::from_fn(|_| 1_000_000 + random.next_u64() % 20_000)).collect();
    Ok((balanced_orders(QUADS, 1)?, slots))
}

fn differences(orders: &[QuadOrder], slots: &[[u64; 4]]) -> Result<Vec<f64>, StatsError> {
    let quads = orders.iter().zip(slots);
    quads.map(|(&order, &elapsed_ns)| quad_difference(order, elapsed_ns)).collect()
}

fn million_slots(criterion: &mut Criterion) {
    let (orders, slots) = session().expect("the session has as many quads as allowed");
    let d = differences(&orders, &slots).expect("every slot has elapsed time");
    let mut group = criterion.benchmark_group("million_slots");
    group.sample_size(10);
    group.bench_function("differences", |bencher| {
        bencher.iter(|| differences(black_box(&orders), black_box(&slots)));
    });
    group.bench_function("hodges_lehmann", |bencher| {
        bencher.iter(|| hodges_lehmann(black_box(&d)));
    });
    group.bench_function("interval", |bencher| {
        bencher.iter(|| interval(black_box(&d), 0.95));
    });
    group.finish();
}

criterion_group!(benches, million_slots);
criterion_main!(benches);
