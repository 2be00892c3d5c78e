//! One word after another.

use memra_contract::order::{STREAM_CHUNK, stream_pattern};

/// Sum and exclusive or of the words of a part.
pub(super) fn read(words: &[[u8; 4]], parts: usize, part: usize) -> [u32; 2] {
    let mut sums = [0_u32; 2];
    for chunk in words.chunks(STREAM_CHUNK).skip(part).step_by(parts) {
        for word in chunk {
            let word = u32::from_le_bytes(*word);
            sums = [sums[0].wrapping_add(word), sums[1] ^ word];
        }
    }
    sums
}

/// Vectors from a number on.
pub(super) fn write(first_vector: usize, seed: u32, out: &mut [u32]) {
    for (vector, index) in out.as_chunks_mut::<4>().0.iter_mut().zip(first_vector..) {
        *vector = stream_pattern(index as u32, seed);
    }
}

/// The words.
pub(super) fn copy(words: &[[u8; 4]], out: &mut [u32]) {
    for (out, word) in out.iter_mut().zip(words) {
        *out = u32::from_le_bytes(*word);
    }
}
