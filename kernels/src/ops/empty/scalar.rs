//! The word, by the first of the tasks.

/// Work of one block.
pub(super) fn kernel(block: usize, word: u32, out: &mut [u32]) {
    if block == 0 {
        out.fill(word);
    }
}
