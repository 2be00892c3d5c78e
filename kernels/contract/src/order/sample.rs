//! Sampling of a token: filters over a row of logits, then the Gumbel trick with random bits by counter.

use std::cmp::Ordering;

use super::{OrderClass, argmax, exp, pair_tree};

/// A token by its logit and random bits that depend on seed, position and token alone.
pub const SAMPLE_GUMBEL: OrderClass = OrderClass {
    id: "sample_gumbel",
    text: "temperature not above 0, or a largest logit that is not finite: argmax_lowest. Else, for every logit x that is \
           neither NaN nor -inf, z = (x - max) / temperature and e = exp(z). Candidates, in descending order of x with equal x \
           in order of their index: the first top_k; of these the shortest prefix, at least one long, whose running f32 sum of \
           e in that order is at least top_p * total, where chain[index mod 64] += e in order of index, and total is the pair \
           tree of the chains; of these the ones with e >= min(min_p, 1). The token is the candidate with the largest z + g, \
           the lowest index of equals, where g = f32(-ln(-ln u)) in f64 and u = (h + 1/2) / 2^24 from 24 random bits h",
};

/// Number of chains of the sum of weights.
pub const SAMPLE_CHAINS: usize = 64;

/// The largest value [`gumbel`] takes: that of `h = 2^24 - 1`.
pub const GUMBEL_HIGHEST: f32 = 17.328_68;

/// How one row is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowParams {
    /// Divides the logits; 0 chooses the largest logit.
    pub temperature: f32,
    /// Number of largest logits that are kept; 0 keeps all.
    pub top_k: u32,
    /// Share of the probability that the kept tokens reach; 1 keeps all.
    pub top_p: f32,
    /// Least probability of a kept token as a share of the largest; 0 keeps all.
    pub min_p: f32,
    /// Seed of the random bits.
    pub seed: u64,
    /// Position of the token in its sequence: the counter of the random bits.
    pub position: u64,
}

impl RowParams {
    /// The largest logit, without random bits.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, position: 0 };

    /// Whether the row is [`argmax`] by its parameters.
    pub fn is_greedy(&self) -> bool {
        // A NaN is not above zero.
        self.temperature.partial_cmp(&0.0) != Some(Ordering::Greater)
    }
}

/// The finaliser of SplitMix64 on `z` plus its increment.
const fn mix64(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// First factor of [`mix32`].
pub const MIX32_FIRST: u32 = 0x7FEB_352D;
/// Second factor of [`mix32`].
pub const MIX32_SECOND: u32 = 0x846C_A68B;

/// A bijection on 32 bits that mixes well (C. Wellons, "Prospecting for hash functions", 2018).
pub const fn mix32(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(MIX32_FIRST);
    let x = (x ^ (x >> 15)).wrapping_mul(MIX32_SECOND);
    x ^ (x >> 16)
}

/// The two keys of a row's random bits.
pub const fn sample_keys(seed: u64, position: u64) -> [u32; 2] {
    let key = mix64(mix64(seed) ^ position);
    [key as u32, (key >> 32) as u32]
}

/// 24 random bits of a token under the keys of its row.
pub const fn sample_bits(keys: [u32; 2], token: u32) -> u32 {
    mix32(mix32(token ^ keys[0]) ^ keys[1]) >> 8
}

/// `-ln(-ln u)` for `u = (bits + 1/2) / 2^24`: the logarithms are libm's in f64, rounded to f32 at the end.
pub fn gumbel(bits: u32) -> f32 {
    let u = (f64::from(bits) + 0.5) / 16_777_216.0;
    (-libm::log(-libm::log(u))) as f32
}

/// `(x - max) / temperature`.
pub fn sample_exponent(logit: f32, maximum: f32, temperature: f32) -> f32 {
    (logit - maximum) / temperature
}

/// [`SAMPLE_GUMBEL`] for one row.
pub fn sample(logits: &[f32], params: &RowParams) -> u32 {
    let first = argmax(logits);
    let maximum = logits.get(first as usize).copied().unwrap_or(f32::NAN);
    if params.is_greedy() || !maximum.is_finite() {
        return first;
    }
    let exponent = |token: u32| sample_exponent(logits[token as usize], maximum, params.temperature);
    let mut kept: Vec<u32> = (0..logits.len() as u32).filter(|i| logits[*i as usize] > f32::NEG_INFINITY).collect();
    // A stable sort keeps equal logits in order of their index; -0 and +0 compare equal.
    kept.sort_by(|a, b| logits[*b as usize].partial_cmp(&logits[*a as usize]).unwrap_or(Ordering::Equal));
    if params.top_k > 0 {
        kept.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let mut in_order = kept.clone();
        in_order.sort_unstable();
        let mut chains = [0.0_f32; SAMPLE_CHAINS];
        for token in in_order {
            chains[token as usize % SAMPLE_CHAINS] += exp(exponent(token));
        }
        let wanted = params.top_p * pair_tree(chains);
        let mut sum = 0.0_f32;
        let reached = kept.iter().position(|token| {
            sum += exp(exponent(*token));
            sum >= wanted
        });
        kept.truncate(reached.map_or(kept.len(), |last| last + 1));
    }
    let least = params.min_p.min(1.0);
    kept.retain(|token| exp(exponent(*token)) >= least);
    let keys = sample_keys(params.seed, params.position);
    kept.sort_unstable();
    let mut best = (first, f32::NEG_INFINITY);
    for token in kept {
        let value = exponent(token) + gumbel(sample_bits(keys, token));
        if value > best.1 {
            best = (token, value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests;
