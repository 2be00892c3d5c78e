//! Reading and verifying one file with many cells.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memra_ledger::chain::read_bytes;
use memra_ledger::synthetic::{Synthetic, SyntheticCell};
use memra_ledger::verify::verify_file;

fn verify(criterion: &mut Criterion) {
    let cells = (0..20).map(|index| SyntheticCell::named(&format!("cell-{index}"))).collect();
    let session = Synthetic { replicates: 5, quads: 20, aa_blocks: 3, cells, ..Synthetic::new(1) };
    let name = session.name().expect("the parts of the name have their form").relative_path();
    let text = session.text().expect("a synthetic session holds nothing private");
    let file = read_bytes(&name, text.as_bytes()).expect("a synthetic session reads");
    assert!(verify_file(&file).is_sound());

    let mut group = criterion.benchmark_group("verify");
    group.sample_size(20);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("read 100 cells", |bencher| bencher.iter(|| read_bytes(&name, black_box(text.as_bytes()))));
    group.bench_function("recompute 100 cells", |bencher| bencher.iter(|| verify_file(black_box(&file))));
    group.finish();
}

criterion_group!(benches, verify);
criterion_main!(benches);
