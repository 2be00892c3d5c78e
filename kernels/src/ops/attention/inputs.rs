//! Inputs: queries, and caches whose pages hold what a scheduler may leave in them.

use half::f16;
use memra_contract::{Tensor, TensorSet};

use super::ID;
use super::pages::PAGE;
use super::problem::{CacheSizes, half_tensor, pages_of};
use crate::contract::InputError;
use crate::input::Stream;

pub(super) const FAMILIES: &[(&str, &str)] = &[
    ("normal", "normal queries, keys and values; what lies past the last position is large"),
    ("peaked", "queries thirty times as large, so that a few positions take all and most exponentials are zero"),
    ("equal", "zero queries: every position has the same weight"),
    ("cancel", "values in pairs of opposite sign, and keys whose products cancel"),
    ("rising", "scores that rise with the position, so that every split has a larger maximum"),
    ("stale", "normal, and what lies past the last position of a sequence is not a number"),
];

pub(super) fn generate(sizes: CacheSizes, family: &str, seed: u64) -> Result<TensorSet, InputError> {
    if FAMILIES.iter().all(|(name, _)| *name != family) {
        return Err(InputError::Family {
            contract: ID,
            family: family.to_owned(),
            known: FAMILIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        });
    }
    let shape = sizes.shape;
    let (q, k, v) = (Stream::new(seed, "q"), Stream::new(seed, "keys"), Stream::new(seed, "values"));
    let query = |i: u64| match family {
        "peaked" => q.normal(i) * 30.0,
        "equal" => 0.0,
        "cancel" => q.plus_minus_one(i / 2) * 4.0,
        "rising" => 0.5 + q.unit(i),
        _ => q.normal(i),
    };
    let key = |i: u64, position: usize, d: usize| match family {
        // Dimensions 2i and 2i + 1 of a query are equal.
        "cancel" => {
            k.normal(i / (2 * PAGE as u64)) * if d.is_multiple_of(2) { 100.0 } else { -100.0 } + k.normal(i) * 0.1
        }
        "rising" => position as f32 / 512.0 + 0.1 * k.normal(i),
        _ => k.normal(i),
    };
    let value = |i: u64, position: usize| match family {
        "cancel" => v.normal(i) + if position.is_multiple_of(2) { 1000.0 } else { -1000.0 },
        _ => v.normal(i),
    };
    let past = |i: u64| match family {
        "stale" => f32::NAN,
        _ => v.plus_minus_one(i) * 60_000.0,
    };
    let table = sizes.page_table(seed);
    // Pages that no sequence has are past every sequence's end.
    let mut first_positions = vec![usize::MAX / 2; sizes.cache_pages()];
    for pages in pages_of(Some(&table)).chunks_exact(sizes.sequence_pages()) {
        for (i, page) in pages.iter().enumerate() {
            first_positions[*page as usize] = i * PAGE;
        }
    }
    let seen = sizes.depth + sizes.rows();
    let mut keys = vec![f16::ZERO; sizes.cache_elements()];
    let mut values = keys.clone();
    for (i, (k, v)) in keys.iter_mut().zip(&mut values).enumerate() {
        let first = first_positions[i / shape.page_elements()];
        let within = i % shape.head_elements();
        let (d, position) = (within / PAGE, first + within % PAGE);
        *k = f16::from_f32(if position < seen { key(i as u64, position, d) } else { past(i as u64) });
        let position = first + within / shape.head_dim;
        *v = f16::from_f32(if position < seen { value(i as u64, position) } else { past(i as u64) });
    }
    let queries: Vec<f32> = (0..(sizes.m * shape.q_elements()) as u64).map(query).collect();
    Ok(TensorSet::new(vec![
        Tensor::f32("q", &[sizes.m, shape.q_elements()], &queries),
        half_tensor("keys", sizes.keys_shape(), &keys),
        half_tensor("values", sizes.values_shape(), &values),
        table,
    ]))
}
