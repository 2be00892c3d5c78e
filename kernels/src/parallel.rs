//! Work over all CPUs for inputs and judges, whose results do not depend on how it is divided.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Pieces a thread, so that one that is held up does not hold up the others.
const PIECES_PER_THREAD: usize = 4;

/// Threads for so much work, of which every thread does at least `least`; one a CPU at most.
fn threads_for(work: usize, least: usize) -> usize {
    if work < 2 * least {
        return 1;
    }
    let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (work / least).min(cpus)
}

/// Runs `work` on so many threads, this one among them.
fn on_threads(threads: usize, work: &(impl Fn() + Sync)) {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|payload| resume_unwind(payload));
        }
    });
}

/// Fills bytes: `fill` gets the number of the first unit of a part, and the part, which is whole units.
pub(crate) fn fill(bytes: &mut [u8], unit: usize, fill: &(impl Fn(usize, &mut [u8]) + Sync)) {
    const LEAST_BYTES: usize = 64 << 10;
    let unit = unit.max(1);
    let threads = threads_for(bytes.len(), LEAST_BYTES);
    if threads == 1 {
        fill(0, bytes);
        return;
    }
    let units = (bytes.len() / unit).div_ceil(threads * PIECES_PER_THREAD).max(1);
    let parts = Mutex::new(bytes.chunks_mut(units * unit).enumerate());
    // A poisoned lock only says that another thread panicked between parts.
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    on_threads(threads, &|| {
        while let Some((part, bytes)) = next() {
            fill(part * units, bytes);
        }
    });
}

/// What `map` gives for ranges that make up `0..items`, one after another. An item is so much work: elements, or bytes.
pub(crate) fn map<T: Send>(
    items: usize,
    work_of_item: usize,
    map: &(impl Fn(Range<usize>) -> Vec<T> + Sync),
) -> Vec<T> {
    const LEAST_WORK: usize = 256 << 10;
    let threads = threads_for(items.saturating_mul(work_of_item), LEAST_WORK);
    if threads == 1 {
        return map(0..items);
    }
    let step = items.div_ceil(threads * PIECES_PER_THREAD).max(1);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    on_threads(threads, &|| {
        loop {
            let begin = next.fetch_add(step, Ordering::Relaxed);
            if begin >= items {
                break;
            }
            let mapped = map(begin..items.min(begin + step));
            done.lock().unwrap_or_else(PoisonError::into_inner).push((begin, mapped));
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(begin, _)| *begin);
    done.into_iter().flat_map(|(_, mapped)| mapped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_filled_once_with_its_number() {
        for units in [0, 1, 7, 100_003] {
            let mut bytes = vec![0xFF; units * 4];
            fill(&mut bytes, 4, &|first, part| {
                assert!(part.len().is_multiple_of(4));
                for (i, unit) in part.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    *unit = ((first + i) as u32).to_le_bytes();
                }
            });
            let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word) as usize);
            assert!(words.eq(0..units), "{units}");
        }
    }

    #[test]
    fn what_is_mapped_comes_in_order() {
        for items in [0, 1, 999, 40_000] {
            let squares = map(items, 1000, &|range| range.map(|i| i * i).collect());
            assert!(squares.into_iter().eq((0..items).map(|i| i * i)), "{items}");
        }
    }

    #[test]
    #[should_panic(expected = "the worker's own words")]
    fn a_panic_keeps_its_message() {
        map(1 << 20, 1 << 10, &|_| -> Vec<u8> { panic!("the worker's own words") });
    }
}
