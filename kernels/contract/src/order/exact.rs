//! Whole numbers: arithmetic that no order changes.

use super::OrderClass;

/// Whole numbers modulo 2^32.
pub const EXACT_U32: OrderClass = OrderClass {
    id: "exact_u32",
    text: "whole numbers modulo 2^32, every partial result held exactly by the type it is computed in: any order gives these \
           bits",
};

/// Words of one chunk of a stream: 16 KiB.
pub const STREAM_CHUNK: usize = 4096;

/// Sum modulo 2^32 and exclusive or of the words of each part of a stream; chunk `c` belongs to part `c` modulo `parts`.
///
/// `words` are little-endian, four bytes each; `parts` is at least one.
pub fn stream_read(words: &[[u8; 4]], parts: usize) -> Vec<[u32; 2]> {
    let mut sums = vec![[0_u32, 0]; parts.max(1)];
    for (c, chunk) in words.chunks(STREAM_CHUNK).enumerate() {
        let [sum, xor] = &mut sums[c % parts.max(1)];
        for word in chunk {
            let word = u32::from_le_bytes(*word);
            *sum = sum.wrapping_add(word);
            *xor ^= word;
        }
    }
    sums
}

/// What the four words of a sixteen-byte vector of [`stream_pattern`] differ by.
pub const STREAM_SALT: [u32; 4] = [0, 0xA511_E9B3, 0x5BD1_E995, 0xC2B2_AE35];

/// The four words of vector `index` of a written stream: a multiplicative hash of the vector's number, salted by the place in
/// the vector.
pub const fn stream_pattern(index: u32, seed: u32) -> [u32; 4] {
    let hash = index.wrapping_add(seed).wrapping_mul(0x9E37_79B1);
    [hash ^ STREAM_SALT[0], hash ^ STREAM_SALT[1], hash ^ STREAM_SALT[2], hash ^ STREAM_SALT[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_take_chunks_in_turn() {
        let words: Vec<[u8; 4]> = (0..3 * STREAM_CHUNK as u32).map(u32::to_le_bytes).collect();
        let sums = stream_read(&words, 2);
        let by_hand = |chunks: &[u32]| {
            let words = chunks.iter().flat_map(|c| c * STREAM_CHUNK as u32..(c + 1) * STREAM_CHUNK as u32);
            words.fold([0_u32, 0], |[sum, xor], word| [sum.wrapping_add(word), xor ^ word])
        };
        assert_eq!(sums, [by_hand(&[0, 2]), by_hand(&[1])]);
    }

    #[test]
    fn patterns_of_neighbours_and_seeds_differ() {
        let all: std::collections::BTreeSet<u32> =
            (0..1000).flat_map(|i| stream_pattern(i, 7)).chain(stream_pattern(0, 5000)).collect();
        assert_eq!(all.len(), 4004);
    }
}
