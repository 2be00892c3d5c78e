//! Weights in fragment order: the layout of `fragment.cu` and `fragment_float.cu`.
//!
//! Sixteen rows are a row tile. Of quantised formats a row tile holds, for every unit of 32 blocks, what all chains share (scales of
//! super-blocks); then for each of the eight chains its units: four blocks of 32, eight blocks apart. A block of 16 x 32 is one
//! operand of a tensor core: lane `4 g + t` has elements `8 t..8 t + 8` of rows `g` and `g + 8`, in four words: row `g` elements
//! 0..4, row `g + 8` the same, row `g` elements 4..8, row `g + 8` the same (of q6_k and nvfp4 elements `4 t..4 t + 4` of each half). Float formats have units of 64 elements (128 of e4m3) in
//! the order of the row, lane `4 g + t` with a run of a quarter of the unit.
//!
//! Rows and blocks past the end are all zero.

use memra_contract::BlockFormat;

use super::problem::Segment;
use super::stored_block::{Stored, StoredBlock};

/// Rows of a row tile.
pub(super) const TILE: usize = 16;

/// Blocks of 32 in a unit over all chains.
const UNIT_BLOCKS: usize = 32;

/// How a format lies in fragment order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    format: BlockFormat,
    /// Bytes of a unit of one chain.
    unit_bytes: usize,
    /// Bytes of a unit that all chains share.
    shared_bytes: usize,
    /// Words a column of the activation has in shared memory beside its bytes.
    pub(super) entry_words: usize,
    /// The definition that selects it in the text.
    pub(super) define: &'static str,
}

/// The quantised formats with this layout.
pub(super) static FRAGMENTS: &[Fragment] = &[
    Fragment::new(BlockFormat::Q8_0, 2176, 0, 1, "FORMAT_Q8_0"),
    Fragment::new(BlockFormat::Q4_0, 1152, 0, 2, "FORMAT_Q4_0"),
    Fragment::new(BlockFormat::Q4_1, 1280, 0, 2, "FORMAT_Q4_1"),
    Fragment::new(BlockFormat::Q5_0, 1408, 0, 2, "FORMAT_Q5_0"),
    Fragment::new(BlockFormat::Q5_1, 1536, 0, 2, "FORMAT_Q5_1"),
    Fragment::new(BlockFormat::Q4_K, 1120, 256, 2, "FORMAT_Q4_K"),
    Fragment::new(BlockFormat::Q5_K, 1376, 256, 2, "FORMAT_Q5_K"),
    Fragment::new(BlockFormat::Q6_K, 1664, 128, 4, "FORMAT_Q6_K"),
    Fragment::new(BlockFormat::IQ4_XS, 1072, 128, 1, "FORMAT_IQ4_XS"),
    Fragment::new(BlockFormat::NVFP4, 1152, 0, 1, "FORMAT_NVFP4"),
];

impl Fragment {
    const fn new(
        format: BlockFormat,
        unit_bytes: usize,
        shared_bytes: usize,
        entry_words: usize,
        define: &'static str,
    ) -> Self {
        Self { format, unit_bytes, shared_bytes, entry_words, define }
    }

    /// The format.
    pub(super) const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The layout of a format, if it has one.
    pub(super) fn of(format: BlockFormat) -> Option<&'static Self> {
        FRAGMENTS.iter().find(|fragment| fragment.format == format)
    }

    /// Units of a chain.
    pub(super) const fn units(k: usize) -> usize {
        (k / 32).div_ceil(UNIT_BLOCKS)
    }

    /// Bytes of a row tile.
    pub(super) const fn tile_bytes(&self, k: usize) -> usize {
        Self::units(k) * (self.shared_bytes + 8 * self.unit_bytes)
    }

    /// Lays a segment out: whole row tiles.
    pub(super) fn pack(&self, segment: Segment, k: usize, stored: &[u8]) -> Vec<u8> {
        debug_assert_eq!(segment.format, self.format);
        let (row_bytes, tile_bytes) = (segment.row_bytes(k), self.tile_bytes(k));
        let form = Stored::of(self.format);
        let mut packed = vec![0; segment.n.div_ceil(TILE) * tile_bytes];
        let rows: Vec<&[u8]> = stored.chunks_exact(row_bytes).collect();
        in_parallel(&mut packed, tile_bytes, |tile, bytes| {
            let rows = &rows[tile * TILE..rows.len().min((tile + 1) * TILE)];
            for (row, stored) in rows.iter().enumerate() {
                for block in 0..k / 32 {
                    self.put(bytes, Self::units(k), row, block, &form.read(stored, block));
                }
            }
        });
        packed
    }

    /// The element of a block that byte `byte` of word `word` of lane `t` of a row stands for. Halves with scales of their own are
    /// words of their own.
    fn element(&self, t: usize, word: usize, byte: usize) -> usize {
        match self.format {
            BlockFormat::Q6_K | BlockFormat::NVFP4 => 16 * word + 4 * t + byte,
            _ => 8 * t + 4 * word + byte,
        }
    }

    /// Puts a block of a row to its places.
    fn put(&self, tile: &mut [u8], units: usize, row: usize, block: usize, b: &StoredBlock) {
        let (chain, of_chain) = (block % 8, block / 8);
        let (unit, i) = (of_chain / 4, of_chain % 4);
        let (g, upper) = (row % 8, row / 8);
        let shared = unit * self.shared_bytes;
        let base = units * self.shared_bytes + (chain * units + unit) * self.unit_bytes;
        let codes = &b.codes;
        let is_codebook = matches!(self.format, BlockFormat::IQ4_XS | BlockFormat::NVFP4);
        for t in 0..4 {
            let lane = 4 * g + t;
            for e in 0..8 {
                let (word, byte) = (e / 4, e % 4);
                let code = codes[self.element(t, word, byte)];
                if self.format == BlockFormat::Q8_0 {
                    tile[base + i * 512 + lane * 16 + (2 * word + upper) * 4 + byte] = code;
                    continue;
                }
                let quants = base + i / 2 * 512 + lane * 16 + i % 2 * 8 + word * 4;
                if is_codebook {
                    // Four indices of a row in half a word.
                    tile[quants + 2 * upper + byte / 2] |= code << (4 * (byte % 2));
                } else {
                    tile[quants + byte] |= (code & 15) << (4 * upper);
                }
                let register = 2 * word + upper;
                match self.format {
                    BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5_K => {
                        tile[base + 1024 + lane * 8 + i / 2 * 4 + byte] |= (code >> 4) << (4 * (i % 2) + register);
                    }
                    BlockFormat::Q6_K => {
                        tile[base + 1024 + lane * 16 + i * 4 + byte] |= (code >> 4) << (2 * register);
                    }
                    _ => {}
                }
            }
        }
        // The lane that keeps the scales of this block.
        let lane = 4 * g + i;
        let mut half = |at: usize, value: u16| tile[at..at + 2].copy_from_slice(&value.to_le_bytes());
        match self.format {
            BlockFormat::Q8_0 => half(base + 2048 + lane * 4 + 2 * upper, b.halves[0]),
            BlockFormat::Q4_0 => half(base + 1024 + lane * 4 + 2 * upper, b.halves[0]),
            BlockFormat::Q5_0 => half(base + 1280 + lane * 4 + 2 * upper, b.halves[0]),
            BlockFormat::Q4_1 | BlockFormat::Q5_1 => {
                let at = base + if self.format == BlockFormat::Q5_1 { 1280 } else { 1024 } + lane * 8 + 2 * upper;
                half(at, b.halves[0]);
                half(at + 4, b.halves[1]);
            }
            BlockFormat::Q4_K | BlockFormat::Q5_K => {
                half(shared + lane * 8 + 4 * upper, b.halves[0]);
                half(shared + lane * 8 + 4 * upper + 2, b.halves[1]);
                let bits = (u32::from(b.small[0]) | u32::from(b.small[1]) << 6) << (12 * upper);
                let at = base + if self.format == BlockFormat::Q5_K { 1280 } else { 1024 };
                let bits = bits.to_le_bytes();
                tile[at + lane * 2] |= bits[0];
                tile[at + lane * 2 + 1] |= bits[1];
                tile[at + 64 + lane] |= bits[2];
            }
            BlockFormat::Q6_K => {
                half(shared + lane * 4 + 2 * upper, b.halves[0]);
                tile[base + 1536 + lane * 4 + 2 * upper..][..2].copy_from_slice(&b.small);
            }
            BlockFormat::IQ4_XS => {
                half(shared + lane * 4 + 2 * upper, b.halves[0]);
                tile[base + 1024 + lane] |= (b.small[0] & 15) << (4 * upper);
                tile[base + 1056 + lane / 2] |= (b.small[0] >> 4) << (4 * (lane % 2) + 2 * upper);
            }
            _ => {
                // The code of not-a-number stands for zero, and the device text knows only numbers.
                let scales = b.small.map(|byte| if byte == 0x7F { 0 } else { byte });
                tile[base + 1024 + lane * 4 + 2 * upper..][..2].copy_from_slice(&scales);
            }
        }
    }
}

/// Elements of a unit of a float format.
pub(super) const fn float_unit(format: BlockFormat) -> usize {
    if format.block_bytes == 1 { 128 } else { 64 }
}

/// Bytes of a unit of a float format in a row tile.
const FLOAT_UNIT_BYTES: usize = 2048;

/// Lays a segment of f16, bf16 or e4m3 out: whole row tiles.
pub(super) fn pack_float(segment: Segment, k: usize, stored: &[u8]) -> Vec<u8> {
    let unit = float_unit(segment.format);
    let (size, units) = (segment.format.block_bytes as usize, k.div_ceil(unit));
    let rows: Vec<&[u8]> = stored.chunks_exact(segment.row_bytes(k)).collect();
    let mut packed = vec![0; segment.n.div_ceil(TILE) * units * FLOAT_UNIT_BYTES];
    in_parallel(&mut packed, units * FLOAT_UNIT_BYTES, |tile, bytes| {
        let rows = &rows[tile * TILE..rows.len().min((tile + 1) * TILE)];
        for (row, stored) in rows.iter().enumerate() {
            let (g, upper) = (row % 8, row / 8);
            // Pairs of elements: two of them are the words of one step of sixteen elements over the four lanes.
            for (pair, value) in stored.chunks_exact(2 * size).enumerate() {
                let (of, at) = (2 * pair / unit, 2 * pair % unit);
                let (t, in_run) = (at / (unit / 4), at % (unit / 4));
                let (step, word) = (in_run / 4, in_run % 4 / 2);
                let (lane, register) = (4 * g + t, 2 * word + upper);
                let base = of * FLOAT_UNIT_BYTES + lane * 16;
                // Two steps of e4m3, or one of sixteen-bit elements, are sixteen bytes.
                let place = if size == 1 { step / 2 * 512 + step % 2 * 8 } else { step * 512 };
                bytes[base + place + register * 2 * size..][..2 * size].copy_from_slice(value);
            }
        }
    });
    packed
}

/// Runs `work` on the pieces of a buffer, over the CPUs there are.
fn in_parallel(bytes: &mut [u8], piece: usize, work: impl Fn(usize, &mut [u8]) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pieces = bytes.len() / piece.max(1);
    let share = pieces.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (index, part) in bytes.chunks_mut(share * piece.max(1)).enumerate() {
            let work = &work;
            scope.spawn(move || {
                for (offset, bytes) in part.chunks_mut(piece).enumerate() {
                    work(index * share + offset, bytes);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests;
