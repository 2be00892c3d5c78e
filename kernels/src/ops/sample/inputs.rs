//! Seeded logits and parameters, and the judge that reads them.

use memra_contract::order::{self, RowParams};
use memra_contract::{DType, Tensor, TensorSet};

use super::{Filter, ID, Sizes};
use crate::contract::{InputError, PrepareError};
use crate::input::Stream;
use crate::ops::{input, shared};

pub(super) const FAMILIES: &[(&str, &str)] = &[
    ("normal", "what a model gives: normal values with a few likely tokens"),
    ("flat", "nearly equal logits, so that every token may win"),
    ("peaked", "one token far above the others"),
    ("ties", "few distinct logits, so that ranks are decided by index"),
    ("broken", "NaN and infinities among the logits, and temperatures at both ends of their range"),
];

fn logit(family: &str, stream: Stream, i: u64, row: u64) -> f32 {
    match family {
        "flat" => stream.normal(i) * 1e-3,
        "peaked" => stream.normal(i) + if stream.bits(i).is_multiple_of(1009) { 40.0 } else { 0.0 },
        "ties" => (stream.bits(i) % 4) as f32 - if stream.bits(i).is_multiple_of(8) { 0.0 } else { 1.0 },
        "broken" => match (row % 4, stream.bits(i) % 16) {
            (0, _) | (_, 1) => f32::NAN,
            (1, 0..12) | (_, 2) => f32::NEG_INFINITY,
            (2, 0) => f32::INFINITY,
            _ => stream.normal(i) * 3.0,
        },
        _ => stream.normal(i) * 3.0 + if stream.bits(i).is_multiple_of(97) { 6.0 } else { 0.0 },
    }
}

fn params(filter: Filter, family: &str, stream: Stream, row: u64) -> RowParams {
    let draw = |i: u64| stream.unit(row * 16 + i);
    let sampled = RowParams {
        temperature: 0.3 + 1.2 * draw(0),
        seed: stream.bits(row * 16 + 1),
        position: stream.bits(row * 16 + 2) % 4096,
        ..RowParams::GREEDY
    };
    let mut params = match filter {
        Filter::None => sampled,
        Filter::Greedy => RowParams { temperature: 0.0, ..sampled },
        Filter::TopK => RowParams { top_k: 1 + (draw(3) * 60.0) as u32, ..sampled },
        Filter::TopP => RowParams { top_p: 0.5 + 0.49 * draw(4), ..sampled },
        Filter::MinP => RowParams { min_p: 0.01 + 0.2 * draw(5), ..sampled },
        Filter::Mixed => RowParams {
            temperature: if row % 8 == 7 { 0.0 } else { sampled.temperature },
            top_k: if row.is_multiple_of(2) { 1 + (draw(3) * 500.0) as u32 } else { 0 },
            top_p: if row % 4 < 2 { 0.5 + 0.5 * draw(4) } else { 1.0 },
            min_p: if row.is_multiple_of(3) { 0.2 * draw(5) } else { 0.0 },
            ..sampled
        },
    };
    if family == "broken" {
        params.temperature *= [1.0, 1e-44, 1e38][(row / 4 % 3) as usize];
    }
    params
}

pub(super) fn generate(sizes: Sizes, family: &str, seed: u64) -> Result<TensorSet, InputError> {
    if !FAMILIES.iter().any(|(name, _)| *name == family) {
        return Err(shared::no_family(ID, family, FAMILIES));
    }
    let Sizes { m, n, filter } = sizes;
    let (stream, width) = (Stream::new(seed, "logits"), n as u64);
    let logits: Vec<f32> = (0..m as u64 * width).map(|i| logit(family, stream, i, i / width)).collect();
    let stream = Stream::new(seed, "params");
    let params: Vec<RowParams> = (0..m as u64).map(|row| params(filter, family, stream, row)).collect();
    let floats =
        |name: &str, of: fn(&RowParams) -> f32| Tensor::f32(name, &[m], &params.iter().map(of).collect::<Vec<_>>());
    let bytes = |name: &str, of: fn(&RowParams) -> u64| {
        Tensor::u8(name, &[m, 8], params.iter().flat_map(|params| of(params).to_le_bytes()).collect())
    };
    Ok(TensorSet::new(vec![
        Tensor::f32("logits", &[m, n], &logits),
        floats("temperature", |params| params.temperature),
        shared::integers("top_k", &[m], &params.iter().map(|params| params.top_k).collect::<Vec<_>>()),
        floats("top_p", |params| params.top_p),
        floats("min_p", |params| params.min_p),
        bytes("seed", |params| params.seed),
        bytes("position", |params| params.position),
    ]))
}

/// The rows' parameters.
pub(super) fn params_of(sizes: Sizes, inputs: &TensorSet) -> Result<Vec<RowParams>, PrepareError> {
    let m = sizes.m;
    let floats = |name: &str| input(ID, inputs, name, DType::F32, m).map(Tensor::to_f32);
    let longs = |name: &str| {
        let tensor = input(ID, inputs, name, DType::U8, m * 8)?;
        Ok::<Vec<u64>, PrepareError>(
            tensor.bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect(),
        )
    };
    let (temperature, top_p, min_p) = (floats("temperature")?, floats("top_p")?, floats("min_p")?);
    let top_k = shared::to_integers(input(ID, inputs, "top_k", DType::I32, m)?);
    let (seed, position) = (longs("seed")?, longs("position")?);
    let row = |i: usize| RowParams {
        temperature: temperature[i],
        top_k: top_k[i],
        top_p: top_p[i],
        min_p: min_p[i],
        seed: seed[i],
        position: position[i],
    };
    Ok((0..m).map(row).collect())
}

/// The tokens by the order class; a missing tensor reads as empty and fails the comparison.
pub(super) fn tokens(sizes: Sizes, inputs: &TensorSet) -> Vec<u32> {
    let logits = inputs.get("logits").map(Tensor::to_f32).unwrap_or_default();
    let params = params_of(sizes, inputs).unwrap_or_default();
    logits.chunks_exact(sizes.n).zip(&params).map(|(row, params)| order::sample(row, params)).collect()
}
