//! Stored blocks of 32 elements of a row, taken apart and put together again.

use memra_contract::BlockFormat;

/// One block of 32 of one row as it is stored: codes and what belongs to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredBlock {
    /// Quants as they are stored: signed bytes, unsigned codes, or indices of a codebook. Of iq3_s: the low bytes of eight
    /// places in the grid, a byte of their ninth bits, four bytes of signs, then nothing.
    pub(super) codes: [u8; 32],
    /// The f16 scale and minimum of the block or of its super-block.
    pub(super) halves: [u16; 2],
    /// Integer scales: q4_k and q5_k scale and minimum; q6_k and nvfp4 those of both halves; iq4_xs the six bits of its scale,
    /// iq3_s the four.
    pub(super) small: [u8; 2],
}

/// How the codes of a stored block lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Bytes,
    Grid,
    /// Halves of 16, low nibbles first.
    Nibbles,
    /// The same with fifth bits in a word before them.
    Fifths,
    /// Pairs of blocks in low and high nibbles.
    Super,
    /// The same with fifth bits, bit `s` for block `s`.
    SuperFifths,
    /// Upper pairs of bits after the nibbles of a half of the super-block.
    Pairs,
    /// Groups of 16, elements `j` and `j + 8` of one in a byte.
    Groups,
}

/// How the stored blocks of a format lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    packing: Packing,
    /// Bytes of a stored block.
    bytes: usize,
    /// Blocks of 32 in it.
    blocks: usize,
    /// Where its f16 scales stand.
    halves: &'static [usize],
    /// Where its quants begin.
    quants: usize,
}

/// Where a code of a block lies: byte and shift of its low four bits, then byte, shift and mask of the bits above them.
type Place = (usize, u8, (usize, u8, u8));

/// Where an integer scale's bits lie: byte, shift there, how many, and their place in the scale.
type Piece = (usize, u8, u8, u8);

/// No bits.
const NO_PIECE: Piece = (0, 0, 0, 0);

/// The place of element `i` of block `s`, for packed codes that begin at `quants`.
#[inline(always)]
fn place(packing: Packing, quants: usize, s: usize, i: usize) -> Place {
    let nibble = |half: usize| 4 * half as u8;
    match packing {
        Packing::Fifths => (quants + i % 16, nibble(i / 16), (quants - 4 + i / 8, (i % 8) as u8, 1)),
        Packing::Super => (quants + s / 2 * 32 + i, nibble(s % 2), (0, 0, 0)),
        Packing::SuperFifths => (quants + s / 2 * 32 + i, nibble(s % 2), (16 + i, s as u8, 1)),
        Packing::Pairs => {
            let (h, part) = (s / 4, s % 4);
            (64 * h + i + 32 * (part % 2), nibble(part / 2), (128 + 32 * h + i, 2 * part as u8, 3))
        }
        Packing::Groups => (quants + 8 * (s * 2 + i / 16) + i % 8, nibble(i % 16 / 8), (0, 0, 0)),
        Packing::Nibbles | Packing::Bytes | Packing::Grid => (quants + s * 16 + i % 16, nibble(i / 16), (0, 0, 0)),
    }
}

/// Calls `work` with the packing as a constant, so that its loop is compiled for it.
macro_rules! for_packing {
    ($packing:expr, $work:expr) => {
        match $packing {
            Packing::Nibbles => $work(Packing::Nibbles),
            Packing::Fifths => $work(Packing::Fifths),
            Packing::Super => $work(Packing::Super),
            Packing::SuperFifths => $work(Packing::SuperFifths),
            Packing::Pairs => $work(Packing::Pairs),
            Packing::Groups | Packing::Bytes | Packing::Grid => $work(Packing::Groups),
        }
    };
}

/// Reads the codes of block `s`.
#[inline(always)]
fn read_codes(packing: Packing, quants: usize, s: usize, bytes: &[u8], codes: &mut [u8; 32]) {
    for (i, code) in codes.iter_mut().enumerate() {
        let (at, shift, (above, above_shift, mask)) = place(packing, quants, s, i);
        *code = bytes[at] >> shift & 15 | (bytes[above] >> above_shift & mask) << 4;
    }
}

/// Adds the codes of block `s` to zeroed bytes.
#[inline(always)]
fn write_codes(packing: Packing, quants: usize, s: usize, bytes: &mut [u8], codes: &[u8; 32]) {
    for (i, code) in codes.iter().enumerate() {
        let (at, shift, (above, above_shift, mask)) = place(packing, quants, s, i);
        bytes[at] |= (code & 15) << shift;
        bytes[above] |= (code >> 4 & mask) << above_shift;
    }
}

/// The bytes of block `s` of an IQ3_S block in the order of [`StoredBlock::codes`].
fn grid_bytes(s: usize) -> impl Iterator<Item = usize> {
    (2 + 8 * s..10 + 8 * s).chain([66 + s]).chain(74 + 4 * s..78 + 4 * s)
}

/// The lowest `bits` bits.
const fn ones(bits: u8) -> u8 {
    ((1_u16 << bits) - 1) as u8
}

impl Stored {
    /// That of a quantised format.
    pub(super) fn of(format: BlockFormat) -> Self {
        let (packing, blocks, halves, quants): (_, _, &[usize], _) = match format {
            BlockFormat::Q8_0 => (Packing::Bytes, 1, &[0], 2),
            BlockFormat::Q4_0 => (Packing::Nibbles, 1, &[0], 2),
            BlockFormat::Q4_1 => (Packing::Nibbles, 1, &[0, 2], 4),
            BlockFormat::Q5_0 => (Packing::Fifths, 1, &[0], 6),
            BlockFormat::Q5_1 => (Packing::Fifths, 1, &[0, 2], 8),
            BlockFormat::Q4_K => (Packing::Super, 8, &[0, 2], 16),
            BlockFormat::Q5_K => (Packing::SuperFifths, 8, &[0, 2], 48),
            BlockFormat::Q6_K => (Packing::Pairs, 8, &[208], 0),
            BlockFormat::IQ4_XS => (Packing::Nibbles, 8, &[0], 8),
            BlockFormat::IQ3_S => (Packing::Grid, 8, &[0], 2),
            _ => (Packing::Groups, 2, &[], 4),
        };
        Self { packing, bytes: format.block_bytes as usize, blocks, halves, quants }
    }

    /// Blocks of 32 in a stored row.
    pub(super) fn blocks(self, row: &[u8]) -> usize {
        row.len() / self.bytes * self.blocks
    }

    /// The pieces of both integer scales of block `s`.
    fn pieces(self, s: usize) -> [[Piece; 2]; 2] {
        let whole = |at: usize| [(at, 0, 8, 0), NO_PIECE];
        match self.packing {
            Packing::Super | Packing::SuperFifths if s < 4 => {
                [[(4 + s, 0, 6, 0), NO_PIECE], [(8 + s, 0, 6, 0), NO_PIECE]]
            }
            Packing::Super | Packing::SuperFifths => {
                [[(8 + s, 0, 4, 0), (s, 6, 2, 4)], [(8 + s, 4, 4, 0), (4 + s, 6, 2, 4)]]
            }
            Packing::Pairs => [whole(192 + 2 * s), whole(193 + 2 * s)],
            Packing::Groups => [whole(2 * s), whole(2 * s + 1)],
            Packing::Nibbles if self.blocks == 8 => {
                let low = (4 + s / 2, 4 * (s % 2) as u8, 4, 0);
                [[low, (2 + s / 4, 2 * (s % 4) as u8, 2, 4)], [NO_PIECE; 2]]
            }
            Packing::Grid => [[(106 + s / 2, 4 * (s % 2) as u8, 4, 0), NO_PIECE], [NO_PIECE; 2]],
            _ => [[NO_PIECE; 2]; 2],
        }
    }

    /// Reads block `block` of a stored row.
    pub(super) fn read(self, row: &[u8], block: usize) -> StoredBlock {
        let bytes = &row[block / self.blocks * self.bytes..][..self.bytes];
        let s = block % self.blocks;
        let mut read = StoredBlock { codes: [0; 32], halves: [0; 2], small: [0; 2] };
        match self.packing {
            Packing::Bytes => read.codes.copy_from_slice(&bytes[self.quants..]),
            Packing::Grid => read.codes.iter_mut().zip(grid_bytes(s)).for_each(|(code, at)| *code = bytes[at]),
            packing => for_packing!(packing, |packing| read_codes(packing, self.quants, s, bytes, &mut read.codes)),
        }
        for (half, at) in read.halves.iter_mut().zip(self.halves) {
            *half = u16::from_le_bytes([bytes[*at], bytes[at + 1]]);
        }
        for (small, pieces) in read.small.iter_mut().zip(self.pieces(s)) {
            for (at, shift, bits, place) in pieces {
                *small |= (bytes[at] >> shift & ones(bits)) << place;
            }
        }
        read
    }

    /// Puts a block back into a stored row that was all zero before its blocks were written.
    pub(super) fn write(self, row: &mut [u8], block: usize, written: &StoredBlock) {
        let bytes = &mut row[block / self.blocks * self.bytes..][..self.bytes];
        let s = block % self.blocks;
        let codes = &written.codes;
        match self.packing {
            Packing::Bytes => bytes[self.quants..].copy_from_slice(codes),
            Packing::Grid => codes.iter().zip(grid_bytes(s)).for_each(|(code, at)| bytes[at] = *code),
            packing => for_packing!(packing, |packing| write_codes(packing, self.quants, s, bytes, codes)),
        }
        for (half, at) in written.halves.iter().zip(self.halves) {
            bytes[*at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        for (small, pieces) in written.small.iter().zip(self.pieces(s)) {
            for (at, shift, bits, place) in pieces {
                bytes[at] |= (small >> place & ones(bits)) << shift;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_quantised_format_are_written_back_as_they_were_read() {
        for format in super::super::FORMATS.iter().filter(|format| !super::super::is_float(**format)) {
            let stored = Stored::of(*format);
            let stream = crate::input::Stream::new(3, format.name);
            let row: Vec<u8> = (0..5 * format.block_bytes).map(|i| stream.bits(i) as u8).collect();
            let mut written = vec![0; row.len()];
            assert_eq!(stored.blocks(&row), 5 * format.block_elems as usize / 32);
            for block in 0..stored.blocks(&row) {
                stored.write(&mut written, block, &stored.read(&row, block));
            }
            assert_eq!(written, row, "{format}");
        }
    }
}
