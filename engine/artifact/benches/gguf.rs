//! Parsing the header of a model with a large vocabulary.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memra_artifact::{Array, GgufHeader, GgufWriter, StringArray, Value};
use memra_contract::BlockFormat;

const VOCABULARY: usize = 250_000;
const TENSORS: usize = 700;

/// The header of a file with 250,000 tokens, scores, types and merges, and 700 tensors; and the length of the file.
fn header() -> (Vec<u8>, u64) {
    let tokens = (0..VOCABULARY).map(|token| format!("t{token:x}"));
    let merges = (0..VOCABULARY).map(|merge| format!("{merge:x} {merge:x}"));
    let strings = |texts| Value::Array(Array::String(texts));
    let mut writer = GgufWriter::new();
    for (key, value) in [
        ("general.architecture", Value::String("llama".to_owned())),
        ("llama.block_count", Value::U32(78)),
        ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
        ("tokenizer.ggml.tokens", strings(StringArray::from_texts(tokens).expect("short"))),
        ("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; VOCABULARY]))),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; VOCABULARY]))),
        ("tokenizer.ggml.merges", strings(StringArray::from_texts(merges).expect("short"))),
    ] {
        writer.set(key, value).expect("the entry is well-formed");
    }
    for tensor in 0..TENSORS {
        let name = format!("blk.{}.part_{}.weight", tensor / 9, tensor % 9);
        writer.declare(&name, &[4096, 4096], BlockFormat::Q8_0).expect("the tensor is well-formed");
    }
    writer.header().expect("the header is not too long")
}

fn parse(criterion: &mut Criterion) {
    let (bytes, total_len) = header();
    let mut group = criterion.benchmark_group("gguf_header");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.sample_size(20);
    group.bench_function("vocabulary_250k", |bencher| {
        bencher.iter(|| GgufHeader::parse(black_box(&bytes), total_len, "bench.gguf"));
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
