//! How fast this machine reads memory: what shares of a roofline are shares of.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Pool;

/// Bytes that are read: several times any last-level cache that is not of a large server.
const BYTES: usize = 512 << 20;
/// Bytes of one task.
const TASK: usize = 1 << 20;

/// Bytes per second of a plain read of half a gigabyte by all threads of a pool, the best of five. A machine with little
/// memory reads what it can get.
pub fn read_rate(pool: &Pool) -> u64 {
    let Ok(mut buffer) = crate::memory::Bytes::zeroed(BYTES) else { return 1 };
    buffer.as_mut_slice().fill(1);
    let words: &[u64] = bytemuck::cast_slice(buffer.as_slice());
    let total = AtomicU64::new(0);
    let mut best = u64::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        pool.run(BYTES / TASK, &|task| {
            let part = &words[task * (TASK / 8)..][..TASK / 8];
            // Several sums, so that the additions do not wait for each other.
            let mut sums = [0_u64; 32];
            for line in part.as_chunks::<32>().0 {
                for (sum, word) in sums.iter_mut().zip(line) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            let sum = sums.iter().fold(0_u64, |a, b| a.wrapping_add(*b));
            total.fetch_add(sum, Ordering::Relaxed);
        });
        best = best.min(began.elapsed().as_nanos() as u64);
    }
    std::hint::black_box(total.load(Ordering::Relaxed));
    (BYTES as u128 * 1_000_000_000 / u128::from(best.max(1))) as u64
}
