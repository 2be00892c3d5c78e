//! The order class without a full sort: a bound or a selection in the place of the order, and random bits that are turned
//! into a value only where the token can win.
//!
//! Every shortcut is exact. `z + g` rises with `g` under rounding, so a token whose `z` plus the highest `g` is below the best
//! value cannot win. And `z + g >= best` means `-ln u <= e^(z - best)`, up to roundings below 1e-5, where `1 - u <= -ln u`;
//! so a token whose `1 - u` is above an upper bound of that power, with a thousandth to spare, cannot win either.

use std::cmp::Ordering;

use memra_contract::order::{self, GUMBEL_HIGHEST, RowParams};

use super::TaskScratch;

/// The passes over a row that a variant brings.
pub(super) struct Passes {
    /// Index and value of the largest logit, NaN aside.
    pub(super) largest: fn(logits: &[f32]) -> Option<(u32, f32)>,
    /// The pair tree of the 64 chains of `exp(z)`.
    pub(super) total: fn(logits: &[f32], maximum: f32, temperature: f32) -> f32,
    /// `exp` of every value.
    pub(super) exp: fn(values: &mut [f32]),
    /// Offers every token that may beat the best.
    pub(super) offer_all: fn(logits: &[f32], best: &mut Best),
}

/// The best token so far.
pub(super) struct Best {
    pub(super) keys: [u32; 2],
    pub(super) maximum: f32,
    pub(super) temperature: f32,
    /// Least weight of a candidate.
    least: f32,
    token: u32,
    pub(super) value: f32,
}

/// Upper bound of `(1 - u) * 2^24` for a token that can reach the best, from `z - best`.
///
/// A power of two that is not below the power of e, times 1.001, plus one.
pub(super) const SLACK: (f32, f32) = (1.001, 1.0);

impl Best {
    /// Takes a token if it beats the best.
    pub(super) fn offer(&mut self, token: u32, logit: f32) {
        let z = order::sample_exponent(logit, self.maximum, self.temperature);
        if z + GUMBEL_HIGHEST < self.value || logit.partial_cmp(&f32::NEG_INFINITY) != Some(Ordering::Greater) {
            return;
        }
        let bits = order::sample_bits(self.keys, token);
        let distance = ((z - self.value) * std::f32::consts::LOG2_E).ceil();
        if distance < 0.0 {
            // The first test leaves a distance of -26 at the least.
            let power = f32::from_bits(((distance as i32 + 24 + 127) as u32) << 23);
            if ((1 << 24) - bits) as f32 - 0.5 > power * SLACK.0 + SLACK.1 {
                return;
            }
        }
        if self.least > 0.0 && order::exp(z) < self.least {
            return;
        }
        let value = z + order::gumbel(bits);
        if value > self.value || (value == self.value && token < self.token) {
            (self.token, self.value) = (token, value);
        }
    }
}

/// Tokens are numbered by 32 bits; the upper half of a key falls as the logit rises, so that ascending keys are the
/// descending order of the logits, equal ones by index.
fn key(token: usize, logit: f32) -> u64 {
    // A sum with +0 turns -0 into +0 and leaves the rest.
    let bits = (logit + 0.0).to_bits();
    let rising = if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 };
    (u64::from(!rising) << 32) | token as u64
}

fn token(key: u64) -> usize {
    (key & 0xffff_ffff) as usize
}

/// One row by the order class.
pub(super) fn sample(passes: &Passes, logits: &[f32], params: &RowParams, scratch: &mut TaskScratch) -> u32 {
    let Some((first, maximum)) = (passes.largest)(logits) else { return 0 };
    if params.is_greedy() || !maximum.is_finite() {
        return first;
    }
    let mut best = Best {
        keys: order::sample_keys(params.seed, params.position),
        maximum,
        temperature: params.temperature,
        least: params.min_p.min(1.0),
        token: first,
        value: f32::NEG_INFINITY,
    };
    best.offer(first, maximum);
    let top_k = params.top_k as usize;
    let is_cut_by_rank = top_k > 0 && top_k < logits.len();
    let is_cut_by_sum = params.top_p < 1.0;
    if is_cut_by_rank {
        largest_k(logits, top_k, scratch);
        if is_cut_by_sum {
            let total = total_of(passes, logits, &best, scratch);
            let kept = prefix(passes, logits, &best, params.top_p * total, scratch);
            scratch.keys.truncate(kept.unwrap_or(scratch.keys.len()));
        }
    } else if is_cut_by_sum {
        let total = (passes.total)(logits, maximum, params.temperature);
        let wanted = params.top_p * total;
        // Tokens below this weight add up to less than what may be left out.
        let weight = f64::from(1.0 - params.top_p) * f64::from(total) / logits.len() as f64;
        let bound = f64::from(maximum) + f64::from(params.temperature) * (weight.ln() - 0.1);
        collect(logits, bound as f32, scratch);
        let kept = prefix(passes, logits, &best, wanted, scratch).or_else(|| {
            collect(logits, f32::NEG_INFINITY, scratch);
            prefix(passes, logits, &best, wanted, scratch)
        });
        scratch.keys.truncate(kept.unwrap_or(scratch.keys.len()));
    } else {
        (passes.offer_all)(logits, &mut best);
        return best.token;
    }
    for key in &scratch.keys {
        best.offer(token(*key) as u32, logits[token(*key)]);
    }
    best.token
}

/// Fills the keys with those of logits that are above -inf and not below a bound.
fn collect(logits: &[f32], bound: f32, scratch: &mut TaskScratch) {
    scratch.keys.clear();
    for (i, logit) in logits.iter().enumerate() {
        if *logit >= bound && *logit > f32::NEG_INFINITY {
            scratch.keys.push(key(i, *logit));
        }
    }
}

/// Fills the keys with those of the `k` largest logits, in no order.
fn largest_k(logits: &[f32], k: usize, scratch: &mut TaskScratch) {
    const LANES: usize = 16;
    const PIECE: usize = 4 * LANES;
    scratch.floats.clear();
    // Each piece's largest is another element, so the k-th largest of them is not above the k-th largest logit.
    for piece in logits.chunks(PIECE) {
        let mut largest = [f32::NEG_INFINITY; LANES];
        let (groups, rest) = piece.as_chunks::<LANES>();
        for group in groups {
            for (largest, logit) in largest.iter_mut().zip(group) {
                *largest = if *logit > *largest { *logit } else { *largest };
            }
        }
        for (largest, logit) in largest.iter_mut().zip(rest) {
            *largest = if *logit > *largest { *logit } else { *largest };
        }
        scratch.floats.push(largest.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a }));
    }
    let bound = if k <= scratch.floats.len() {
        *scratch.floats.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
    } else {
        f32::NEG_INFINITY
    };
    collect(logits, bound, scratch);
    if scratch.keys.len() > k {
        scratch.keys.select_nth_unstable(k - 1);
        scratch.keys.truncate(k);
    }
}

/// The sum of the weights of the tokens among the keys, in chains by index; sorts the keys by token.
fn total_of(passes: &Passes, logits: &[f32], best: &Best, scratch: &mut TaskScratch) -> f32 {
    scratch.keys.sort_unstable_by_key(|key| token(*key));
    weigh(passes, logits, best, 0, scratch.keys.len(), scratch);
    let mut chains = [0.0_f32; order::SAMPLE_CHAINS];
    for (key, weight) in scratch.keys.iter().zip(&scratch.floats) {
        chains[token(*key) % order::SAMPLE_CHAINS] += weight;
    }
    order::pair_tree(chains)
}

/// Weights of the keys from `start` to `end`, into the floats.
fn weigh(passes: &Passes, logits: &[f32], best: &Best, start: usize, end: usize, scratch: &mut TaskScratch) {
    scratch.floats.clear();
    let exponent = |key: &u64| order::sample_exponent(logits[token(*key)], best.maximum, best.temperature);
    scratch.floats.extend(scratch.keys[start..end].iter().map(exponent));
    (passes.exp)(&mut scratch.floats);
}

/// Length of the shortest prefix, in ascending order of keys, whose running sum is at least `wanted`; `None` where no prefix
/// is. Sorts the keys as far as it looks.
fn prefix(passes: &Passes, logits: &[f32], best: &Best, wanted: f32, scratch: &mut TaskScratch) -> Option<usize> {
    let (mut start, mut take) = (0, 128);
    let mut sum = 0.0_f32;
    while start < scratch.keys.len() {
        let rest = &mut scratch.keys[start..];
        let count = take.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable(count - 1);
        }
        rest[..count].sort_unstable();
        weigh(passes, logits, best, start, start + count, scratch);
        for (i, weight) in scratch.floats.iter().enumerate() {
            sum += weight;
            if sum >= wanted {
                return Some(start + i + 1);
            }
        }
        start += count;
        take *= 4;
    }
    None
}
