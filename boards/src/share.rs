//! What part of a read ceiling a matrix product reaches: the time of the ceiling over that of the product, on the same bytes and
//! in the same session.

use crate::board::RowShare;
use crate::collect::{Entry, citation};
use crate::product::{Product, read_ceiling};
use crate::row::counts;
use memra_ledger::record::{CellBody, CellResult};
use std::collections::BTreeMap;

/// A median of one arm.
type PickMedian = fn(&CellResult) -> Option<u64>;

/// Medians of A and of B.
const A: PickMedian = |result| result.median_a_ps;
const B: PickMedian = |result| result.median_b_ps;

/// The faster arm of a read ceiling.
#[derive(Debug, Clone, Copy)]
struct Ceiling<'a> {
    entry: &'a Entry<'a>,
    variant: &'a str,
    median: PickMedian,
    median_ps: u64,
}

/// The read ceilings of all sessions, by file, cache mode and bytes: the fastest of each.
#[derive(Debug, Default)]
pub(crate) struct Ceilings<'a>(BTreeMap<(&'a str, &'a str, u64), Ceiling<'a>>);

impl<'a> Ceilings<'a> {
    /// Those that count and were not withdrawn.
    pub(crate) fn of(entries: &'a [Entry<'a>], is_withdrawn: &[bool]) -> Self {
        let mut fastest = BTreeMap::<_, Ceiling<'a>>::new();
        for (entry, _) in entries.iter().zip(is_withdrawn).filter(|(entry, withdrawn)| !**withdrawn && counts(entry)) {
            let Some(bytes) = read_ceiling(&entry.verdict.key) else { continue };
            let (verdict, key) = (entry.verdict, (entry.file.path, entry.verdict.key.cache.as_str(), bytes));
            for (variant, median) in [(&verdict.a, A), (&verdict.b, B)] {
                let Some(median_ps) = median(&verdict.result).filter(|ps| *ps > 0) else { continue };
                let ceiling = Ceiling { entry, variant, median, median_ps };
                let order = |one: &Ceiling<'a>| (one.median_ps, &one.entry.verdict.cell, &one.entry.record.id);
                if fastest.get(&key).is_none_or(|known| order(&ceiling) < order(known)) {
                    fastest.insert(key, ceiling);
                }
            }
        }
        Self(fastest)
    }

    /// What part of its ceiling each arm of a product reaches; `None` where the session has no such ceiling.
    pub(crate) fn share(&self, entry: &Entry<'_>) -> Option<RowShare> {
        if !counts(entry) {
            return None;
        }
        let key = &entry.verdict.key;
        let bytes = Product::of(key)?.ceiling_bytes()?;
        let ceiling = self.0.get(&(entry.file.path, key.cache.as_str(), bytes))?;
        let complete = |(above, below): &(&CellBody, &CellBody)| {
            let medians = [(ceiling.median)(&above.result), A(&below.result), B(&below.result)];
            medians.iter().all(|median| median.is_some_and(|ps| ps > 0))
        };
        let pairs: Vec<_> = pairs(&ceiling.entry.replicates, &entry.replicates).filter(complete).collect();
        let whole = |median: PickMedian| part_ppm(ceiling.median_ps, median(&entry.verdict.result)?);
        let worse = |median: PickMedian| {
            let parts = pairs.iter().map(|(above, below)| {
                let (above, below) = ((ceiling.median)(&above.result)?, median(&below.result)?);
                part_ppm(above, below)
            });
            let mut parts: Vec<u64> = parts.collect::<Option<_>>()?;
            parts.sort_unstable();
            parts.get(rank(parts.len()) - 1).copied()
        };
        Some(RowShare {
            ceiling: ceiling.entry.verdict.cell.clone(),
            variant: ceiling.variant.to_owned(),
            bytes,
            median_ps: ceiling.median_ps,
            receipt: citation(ceiling.entry.file.path, &ceiling.entry.record.id),
            a_ppm: whole(A),
            a_low_ppm: worse(A),
            b_ppm: whole(B),
            b_low_ppm: worse(B),
            p: pairs.len() as u32,
            rank: rank(pairs.len()) as u32,
        })
    }
}

/// The cells of both that one process measured.
fn pairs<'a>(
    ceiling: &'a [&'a CellBody],
    product: &'a [&'a CellBody],
) -> impl Iterator<Item = (&'a CellBody, &'a CellBody)> {
    product.iter().filter_map(|below| {
        let above = ceiling.iter().find(|above| above.replicate == below.replicate)?;
        Some((*above, *below))
    })
}

/// One time over another, in parts per million, rounded down.
fn part_ppm(part_ps: u64, whole_ps: u64) -> Option<u64> {
    let scaled = (u128::from(part_ps) * 1_000_000).checked_div(u128::from(whole_ps))?;
    u64::try_from(scaled).ok()
}

/// Which of `p` sorted values is the worse end, from 1: the largest that lies at or below the median with 95 %, by the binomial
/// distribution of values below it. Under 5 values, where there is none, the lowest.
fn rank(p: usize) -> usize {
    // Beyond this the sum does not fit, and the lowest is below the median all the more.
    if p > 100 {
        return 1;
    }
    let all = 1_u128 << p;
    let (mut rank, mut ways, mut below) = (0, 1_u128, 0_u128);
    loop {
        below += ways;
        if below * 20 > all || rank == p {
            return rank.max(1);
        }
        ways = ways * (p - rank) as u128 / (rank as u128 + 1);
        rank += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_end_is_below_the_median_with_95_percent() {
        let ranks: Vec<usize> = (0..=13).map(rank).collect();
        assert_eq!(ranks, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4]);
        assert_eq!((rank(100), rank(101), rank(usize::MAX)), (42, 1, 1));
    }

    #[test]
    fn parts_are_rounded_down_and_never_overflow() {
        assert_eq!(part_ppm(2, 3), Some(666_666));
        assert_eq!(part_ppm(3, 2), Some(1_500_000));
        assert_eq!((part_ppm(1, 0), part_ppm(u64::MAX, 1)), (None, None));
    }
}
