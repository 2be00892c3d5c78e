//! Panels of blocks: the layout that the SIMD variants of most quantised formats share.
//!
//! A panel holds its blocks of 32 in order of chains and of blocks inside a chain, then the f16 scales that super-blocks
//! share. A block is its codes, then the scales that are its own. The codes of a row are words of four bytes, and word `w`
//! of all rows lies together, so that a load is one word of every row.

use std::ops::Range;

use memra_contract::weights::{E2M1_DOUBLED, IQ4_VALUES};
use memra_contract::{BlockFormat, OrderClass, order};

use super::layout::panel_order;
use super::problem::Segment;
use super::stored_block::{Stored, StoredBlock};
use super::variants::Q8Rows;

/// How the codes of a block lie, `rows` words a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codes {
    /// Four lines of nibbles: line `g` holds elements `4g..4g+4` in the low and `16+4g..16+4g+4` in the high nibbles.
    Nibbles,
    /// Nibbles, then a line of fifth bits: bit `v` of byte `j` belongs to element `4v+j`.
    Fifths,
    /// Nibbles, then two lines of upper pairs of bits, one a half of the block: pair `g` of byte `j` of line `h` belongs to
    /// element `16h+4g+j`.
    Pairs,
    /// Places in the grid: eight lines of low bytes, one byte a row, the one of elements `4v..4v+4` in line `v`; a line of
    /// ninth bits, bit `v` for line `v`, one byte a row; a line of signs, bit `v` of byte `j` for element `4v+j`.
    Grid,
}

/// What scales the codes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scales {
    /// An f16 a block.
    Half,
    /// An f16 scale and an f16 minimum a block.
    HalfMinimum,
    /// The scale of the super-block times `factor * s + offset` of the block's byte `s`.
    Super {
        /// Multiplies the byte.
        factor: f32,
        /// Added to the product.
        offset: f32,
    },
    /// Scale and minimum of the super-block, each times a byte of the block; the minimum is taken off.
    SuperMinimum,
    /// The scale of the super-block, and a signed byte for each half of the block.
    SuperHalves,
    /// An unsigned E4M3 for each half of the block.
    Micro,
}

/// A format in panels of blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// The format.
    pub(super) format: BlockFormat,
    /// Its order class.
    pub(super) class: OrderClass,
    /// Its codes.
    pub(super) codes: Codes,
    /// Its scales.
    pub(super) scales: Scales,
    /// Values of the codes, where they are places in a table.
    pub(super) values: Option<[i8; 16]>,
    /// What a kernel adds to values to make them unsigned bytes; what packed codes hold already has it.
    pub(super) zero: u8,
}

/// A format, as a type, so that kernels are compiled for it.
pub(super) trait Panelled {
    /// How it lies.
    const FORM: Form;
}

/// What the kernels take from the activation for a block beside its quants and scale.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside {
    /// Sum of the quants times their scale, for minima.
    pub(super) offset: f32,
    /// What the code of zero adds to the integer sums, negative: of the block, or of both halves where they have scales.
    pub(super) zeros: [i32; 2],
}

impl Beside {
    /// Fills in what a format needs for some of the blocks of an activation.
    pub(super) fn fill<F: Panelled>(beside: &mut Vec<Self>, planes: Q8Rows<'_>, blocks: Range<usize>, zero: i32) {
        beside.clear();
        if F::FORM.has_halves() {
            let quants = planes.quants[blocks.start * 32..blocks.end * 32].as_chunks::<16>().0;
            let sum = |quants: &[i8; 16]| quants.iter().map(|q| i32::from(*q)).sum::<i32>();
            let halves = quants.as_chunks::<2>().0.iter();
            beside.extend(halves.map(|[a, b]| Self { offset: 0.0, zeros: [-zero * sum(a), -zero * sum(b)] }));
        } else {
            let sums = planes.sums[blocks.clone()].iter().zip(&planes.scales[blocks]);
            beside.extend(
                sums.map(|(sum, scale)| Self { offset: f32::from(*sum) * scale, zeros: [-zero * i32::from(*sum), 0] }),
            );
        }
    }
}

macro_rules! panelled {
    ($($name:ident, $format:ident, $codes:ident, $class:ident, $scales:expr, $values:expr, $zero:literal;)*) => {
        $(
            #[doc = concat!("[`BlockFormat::", stringify!($format), "`].")]
            #[derive(Debug)]
            pub(super) struct $name;

            impl Panelled for $name {
                const FORM: Form = Form {
                    format: BlockFormat::$format,
                    class: order::$class,
                    codes: Codes::$codes,
                    scales: $scales,
                    values: $values,
                    zero: $zero,
                };
            }
        )*

        /// Every format with this layout.
        pub(super) static FORMS: &[Form] = &[$($name::FORM),*];
    };
}

panelled! {
    Q4Zero, Q4_0, Nibbles, DOT_I8_BLOCK32_CHAIN8, Scales::Half, None, 8;
    Q5Zero, Q5_0, Fifths, DOT_I8_BLOCK32_CHAIN8, Scales::Half, None, 16;
    Q5One, Q5_1, Fifths, DOT_U_MIN_BLOCK32_CHAIN8, Scales::HalfMinimum, None, 0;
    Q4K, Q4_K, Nibbles, DOT_U_MIN_BLOCK32_CHAIN8, Scales::SuperMinimum, None, 0;
    Q5K, Q5_K, Fifths, DOT_U_MIN_BLOCK32_CHAIN8, Scales::SuperMinimum, None, 0;
    Q6K, Q6_K, Pairs, DOT_I8_SUB16_BLOCK32_CHAIN8, Scales::SuperHalves, None, 32;
    Iq4Xs, IQ4_XS, Nibbles, DOT_I8_BLOCK32_CHAIN8, Scales::Super { factor: 1.0, offset: -32.0 }, Some(IQ4_VALUES), 128;
    Iq3S, IQ3_S, Grid, DOT_I8_BLOCK32_CHAIN8, Scales::Super { factor: 2.0, offset: 1.0 }, None, 16;
    Nvfp4, NVFP4, Nibbles, DOT_E2M1_BLOCK16_CHAIN8, Scales::Micro, Some(E2M1_DOUBLED), 12;
}

impl Form {
    /// The form of a format, if it has one.
    pub(super) fn of(format: BlockFormat) -> Option<Self> {
        FORMS.iter().find(|form| form.format == format).copied()
    }

    /// Whether each half of a block has a scale of its own.
    pub(super) const fn has_halves(self) -> bool {
        matches!(self.scales, Scales::SuperHalves | Scales::Micro)
    }

    /// The values of a table as unsigned bytes.
    pub(super) const fn table(self) -> [u8; 16] {
        let mut table = [0; 16];
        if let Some(values) = self.values {
            let mut i = 0;
            while i < 16 {
                table[i] = self.zero.wrapping_add(values[i].cast_unsigned());
                i += 1;
            }
        }
        table
    }

    /// Bytes of the codes of a block and row.
    pub(super) const fn code_bytes(self) -> usize {
        match self.codes {
            Codes::Nibbles => 16,
            Codes::Fifths => 20,
            Codes::Pairs => 24,
            Codes::Grid => 13,
        }
    }

    /// Bytes of a block and row.
    pub(super) const fn block_bytes(self) -> usize {
        let scales = match self.scales {
            Scales::Super { .. } => 1,
            Scales::Half | Scales::SuperMinimum | Scales::SuperHalves | Scales::Micro => 2,
            Scales::HalfMinimum => 4,
        };
        self.code_bytes() + scales
    }

    /// f16 scales of a super-block and row.
    pub(super) const fn heads(self) -> usize {
        match self.scales {
            Scales::Super { .. } | Scales::SuperHalves => 1,
            Scales::SuperMinimum => 2,
            _ => 0,
        }
    }

    /// f16 scales of a block and row.
    const fn halves(self) -> usize {
        match self.scales {
            Scales::Half => 1,
            Scales::HalfMinimum => 2,
            _ => 0,
        }
    }

    /// Bytes of a panel of `rows` rows.
    pub(super) const fn panel_bytes(self, rows: usize, k: usize) -> usize {
        let blocks = k / 32;
        rows * (blocks * self.block_bytes() + blocks / 8 * self.heads() * 2)
    }

    /// Lays the rows of one panel out in zeroed bytes.
    pub(super) fn pack(self, rows: usize, stored: &[u8], row_bytes: usize, panel: &mut [u8]) {
        let form = Stored::of(self.format);
        for (lane, row) in stored.chunks_exact(row_bytes).enumerate() {
            let blocks = form.blocks(row);
            for (slot, block) in panel_order(blocks).enumerate() {
                let read = form.read(row, block);
                let at = slot * rows * self.block_bytes();
                self.put(rows, lane, &read, &mut panel[at..at + rows * self.block_bytes()]);
                if self.heads() > 0 && block % 8 == 0 {
                    let heads = self.head_places(rows, lane, blocks, block / 8);
                    for (half, at) in read.halves.iter().zip(heads) {
                        panel[at..at + 2].copy_from_slice(&half.to_le_bytes());
                    }
                }
            }
        }
    }

    /// The stored bytes of a segment in these panels.
    pub(super) fn unpack(self, rows: usize, segment: Segment, k: usize, stride: usize, bytes: &[u8]) -> Vec<u8> {
        let (blocks, row_bytes) = (k / 32, segment.row_bytes(k));
        let form = Stored::of(self.format);
        let mut stored = vec![0; segment.bytes(k)];
        for (row, stored) in stored.chunks_exact_mut(row_bytes).enumerate() {
            let panel = &bytes[row / rows * stride..][..stride];
            let lane = row % rows;
            for (slot, block) in panel_order(blocks).enumerate() {
                let at = slot * rows * self.block_bytes();
                let mut read = self.get(rows, lane, &panel[at..at + rows * self.block_bytes()]);
                if self.heads() > 0 {
                    let heads = self.head_places(rows, lane, blocks, block / 8);
                    for (half, at) in read.halves.iter_mut().zip(heads) {
                        *half = u16::from_le_bytes([panel[at], panel[at + 1]]);
                    }
                }
                // Super-blocks are written once a block; their shared scales are the same each time.
                form.write(stored, block, &read);
            }
        }
        stored
    }

    fn head_places(self, rows: usize, lane: usize, blocks: usize, of: usize) -> impl Iterator<Item = usize> {
        let start = rows * (blocks * self.block_bytes() + of * self.heads() * 2);
        (0..self.heads()).map(move |head| start + (head * rows + lane) * 2)
    }

    /// Puts a block of a row into its lane.
    fn put(self, rows: usize, lane: usize, block: &StoredBlock, target: &mut [u8]) {
        let codes = &block.codes;
        if self.codes == Codes::Grid {
            for (line, code) in codes[..9].iter().enumerate() {
                target[line * rows + lane] = *code;
            }
            for element in 0..32 {
                let (v, j) = (element / 4, element % 4);
                target[rows * 9 + lane * 4 + j] |= (codes[9 + element / 8] >> (element % 8) & 1) << v;
            }
        } else {
            for g in 0..4 {
                let word: [u8; 4] = std::array::from_fn(|j| codes[4 * g + j] & 15 | codes[16 + 4 * g + j] << 4);
                target[(g * rows + lane) * 4..][..4].copy_from_slice(&word);
            }
            let above = &mut target[rows * 16..];
            if self.codes == Codes::Fifths {
                let word: [u8; 4] =
                    std::array::from_fn(|j| (0..8).fold(0, |word, v| word | (codes[4 * v + j] >> 4 & 1) << v));
                above[lane * 4..][..4].copy_from_slice(&word);
            } else if self.codes == Codes::Pairs {
                for (half, codes) in codes.as_chunks::<16>().0.iter().enumerate() {
                    let pairs = |j: usize| (0..4).fold(0, |word, g| word | (codes[4 * g + j] >> 4 & 3) << (2 * g));
                    above[(half * rows + lane) * 4..][..4].copy_from_slice(&std::array::from_fn::<u8, 4, _>(pairs));
                }
            }
        }
        let scales = &mut target[rows * self.code_bytes()..];
        for (i, half) in block.halves[..self.halves()].iter().enumerate() {
            scales[(i * rows + lane) * 2..][..2].copy_from_slice(&half.to_le_bytes());
        }
        for (i, small) in block.small[..self.small()].iter().enumerate() {
            scales[i * rows + lane] = *small;
        }
    }

    /// Reads a block of a row from its lane, without what super-blocks share.
    fn get(self, rows: usize, lane: usize, source: &[u8]) -> StoredBlock {
        let mut block = StoredBlock { codes: [0; 32], halves: [0; 2], small: [0; 2] };
        if self.codes == Codes::Grid {
            for (line, code) in block.codes[..9].iter_mut().enumerate() {
                *code = source[line * rows + lane];
            }
            for element in 0..32 {
                let (v, j) = (element / 4, element % 4);
                block.codes[9 + element / 8] |= (source[rows * 9 + lane * 4 + j] >> v & 1) << (element % 8);
            }
        } else {
            for (element, code) in block.codes.iter_mut().enumerate() {
                let (half, g, j) = (element / 16, element % 16 / 4, element % 4);
                *code = source[(g * rows + lane) * 4 + j] >> (4 * half) & 15;
                *code |= match self.codes {
                    Codes::Fifths => (source[(4 * rows + lane) * 4 + j] >> (4 * half + g) & 1) << 4,
                    Codes::Pairs => (source[((4 + half) * rows + lane) * 4 + j] >> (2 * g) & 3) << 4,
                    _ => 0,
                };
            }
        }
        let scales = &source[rows * self.code_bytes()..];
        for (i, half) in block.halves[..self.halves()].iter_mut().enumerate() {
            let at = (i * rows + lane) * 2;
            *half = u16::from_le_bytes([scales[at], scales[at + 1]]);
        }
        for (i, small) in block.small[..self.small()].iter_mut().enumerate() {
            *small = scales[i * rows + lane];
        }
        block
    }

    /// Integer scales of a block and row.
    const fn small(self) -> usize {
        match self.scales {
            Scales::Super { .. } => 1,
            Scales::SuperMinimum | Scales::SuperHalves | Scales::Micro => 2,
            Scales::Half | Scales::HalfMinimum => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Layout, PackedSegment, StoredSegment};
    use super::*;
    use crate::backend::host::Pool;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn panels_round_trip_any_bytes(form in 0..FORMS.len(), n in 1_usize..40, blocks in 1_usize..4, wide: bool, seed: u64) {
            let format = FORMS[form].format;
            let (segment, k) = (Segment { format, n }, blocks * (format.block_elems as usize).max(64));
            let stream = crate::input::Stream::new(seed, "bytes");
            let stored: Vec<u8> = (0..segment.bytes(k) as u64).map(|i| stream.bits(i) as u8).collect();
            let layout = Layout::BlockPanel { rows: if wide { 16 } else { 8 } };
            let packed = PackedSegment::pack(segment, k, layout, &stored).unwrap();
            prop_assert_eq!(&packed.unpack(), &stored);
            let source = StoredSegment { segment, k, layout, stored: &stored };
            for packed in PackedSegment::pack_all(&Pool::new(2).unwrap(), &[source, source], &|_, _| ()).unwrap() {
                prop_assert_eq!(&packed.unpack(), &stored);
            }
        }
    }

    #[test]
    fn panels_are_about_as_large_as_what_is_stored() {
        for form in FORMS {
            let segment = Segment { format: form.format, n: 16 };
            let ratio = form.panel_bytes(16, 2048) as f64 / segment.bytes(2048) as f64;
            assert!((1.0..1.05).contains(&ratio), "{}: {ratio}", form.format);
        }
    }
}
