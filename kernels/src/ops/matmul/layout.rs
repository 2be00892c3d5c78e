//! Weight layouts and the load-time repack between them.

use std::ops::Range;

use half::f16;
use memra_contract::BlockFormat;
use memra_contract::order::QUANT_BLOCK;

use super::block_panel::Form;
use super::problem::Segment;
use crate::backend::host::{Partition, Pool};
use crate::memory::{Bytes, MemoryError, Shared};

/// The order in which panels hold the eight chains, so that the pair tree finishes with three partial sums at most.
pub(super) const CHAIN_ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// How a segment's weight lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// As stored: rows of blocks.
    Stored,
    /// Q8_0 in panels of `rows` rows. A panel holds its quants, then its scales, both in order of chains
    /// ([`CHAIN_ORDER`]) and of blocks inside a chain. The quants of a block are eight groups; group `g` holds elements
    /// `4g..4g+4` of every row. Scales are one f16 a row. Quants are stored as given, or with their top bit flipped
    /// (value + 128) where `is_offset`. Rows past the end have zero scales. Panels start at multiples of 64 bytes.
    Panel {
        /// Rows of a panel.
        rows: usize,
        /// Whether 128 was added to every quant.
        is_offset: bool,
    },
    /// Q4_1 in panels of `rows` rows: blocks in order of chains ([`CHAIN_ORDER`]) and of blocks inside a chain. A block is
    /// four groups, then the scales, then the minima, one f16 a row each. Group `g` holds four stored quant bytes of every
    /// row: elements `4g..4g+4` in the low and `16+4g..16+4g+4` in the high nibbles. Rows past the end are all zero.
    /// Panels start at multiples of 64 bytes.
    MinPanel {
        /// Rows of a panel.
        rows: usize,
    },
    /// Other quantised formats in panels of `rows` rows: blocks of 32 in order of chains ([`CHAIN_ORDER`]) and of blocks inside
    /// a chain, each its codes and then its scales, then the f16 scales of super-blocks (`block_panel.rs`). Rows past the end
    /// are all zero. Panels start at multiples of 64 bytes.
    BlockPanel {
        /// Rows of a panel.
        rows: usize,
    },
}

/// Bytes of a stored Q4_1 block.
const MIN_BLOCK: usize = BlockFormat::Q4_1.block_bytes as usize;

/// A segment in the layout of a variant.
#[derive(Debug)]
pub struct PackedSegment {
    /// The segment.
    pub segment: Segment,
    /// Length of a row.
    pub k: usize,
    /// The layout.
    pub layout: Layout,
    /// The bytes.
    pub bytes: Shared,
    /// Scales that are stored beside the weight ([`Segment::outer_tensor`]); ones unless they were given.
    pub outer: Vec<f32>,
}

/// Blocks of a row in panel order.
pub(crate) fn panel_order(blocks: usize) -> impl Iterator<Item = usize> {
    CHAIN_ORDER.into_iter().flat_map(move |chain| (chain..blocks).step_by(8))
}

impl Layout {
    /// Bytes from one panel to the next; the row size for [`Layout::Stored`].
    pub fn stride(self, segment: Segment, k: usize) -> usize {
        match self {
            Self::Stored => segment.row_bytes(k),
            Self::Panel { rows, .. } => (rows * k + rows * k / QUANT_BLOCK * 2).next_multiple_of(64),
            Self::MinPanel { rows } => (rows * k / QUANT_BLOCK * MIN_BLOCK).next_multiple_of(64),
            Self::BlockPanel { rows } => {
                Form::of(segment.format).map_or(0, |form| form.panel_bytes(rows, k)).next_multiple_of(64)
            }
        }
    }
}

/// Stored bytes that are laid out at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A weight as it is stored, and the layout it is wanted in.
#[derive(Debug, Clone, Copy)]
pub struct StoredSegment<'a> {
    /// The segment.
    pub segment: Segment,
    /// Length of a row.
    pub k: usize,
    /// The layout.
    pub layout: Layout,
    /// The stored bytes, `segment.bytes(k)` of them.
    pub stored: &'a [u8],
}

impl StoredSegment<'_> {
    /// Bytes in the wanted layout.
    fn packed_bytes(&self) -> usize {
        let rows = match self.layout {
            Layout::Stored => 1,
            Layout::Panel { rows, .. } | Layout::MinPanel { rows } | Layout::BlockPanel { rows } => rows,
        };
        self.segment.n.div_ceil(rows) * self.layout.stride(self.segment, self.k)
    }

    /// Some of the rows, from the start of a panel.
    fn rows(&self, rows: Range<usize>) -> Self {
        let row_bytes = self.segment.row_bytes(self.k);
        let stored = &self.stored[rows.start * row_bytes..rows.end * row_bytes];
        Self { segment: Segment { n: rows.len(), ..self.segment }, stored, ..*self }
    }

    /// Whole panels of about [`PIECE_BYTES`]: their rows, and where they end in the layout.
    fn pieces(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        let n = self.segment.n;
        let step = (PIECE_BYTES / self.segment.row_bytes(self.k).max(1)).next_multiple_of(16).max(16);
        (0..n).step_by(step).map(move |first| {
            let end = (first + step).min(n);
            (first..end, self.rows(0..end).packed_bytes())
        })
    }

    /// Lays the stored bytes out in zeroed ones.
    fn pack_into(&self, bytes: &mut [u8]) {
        let Self { segment, k, layout, stored } = *self;
        debug_assert_eq!(stored.len(), segment.bytes(k));
        let stride = layout.stride(segment, k);
        match layout {
            Layout::Stored => bytes.copy_from_slice(stored),
            Layout::Panel { rows, is_offset } => {
                debug_assert_eq!(segment.format, BlockFormat::Q8_0);
                let flip = if is_offset { 0x80 } else { 0 };
                for (p, panel) in bytes.chunks_exact_mut(stride).enumerate() {
                    pack_panel(segment, k, rows, flip, p * rows, stored, panel);
                }
            }
            Layout::MinPanel { rows } => {
                debug_assert_eq!(segment.format, BlockFormat::Q4_1);
                let row_bytes = segment.row_bytes(k);
                for (p, panel) in bytes.chunks_exact_mut(stride).enumerate() {
                    for lane in 0..rows.min(segment.n - p * rows) {
                        pack_min_row(rows, lane, &stored[(p * rows + lane) * row_bytes..][..row_bytes], panel);
                    }
                }
            }
            Layout::BlockPanel { rows } => {
                let Some(form) = Form::of(segment.format) else { return };
                let row_bytes = segment.row_bytes(k);
                for (panel, stored) in bytes.chunks_exact_mut(stride).zip(stored.chunks(rows * row_bytes)) {
                    form.pack(rows, stored, row_bytes, panel);
                }
            }
        }
    }
}

/// One stored row into its lane of a [`Layout::MinPanel`] panel.
fn pack_min_row(rows: usize, lane: usize, stored: &[u8], panel: &mut [u8]) {
    let blocks = stored.len() / MIN_BLOCK;
    for (target, block) in panel.chunks_exact_mut(rows * MIN_BLOCK).zip(panel_order(blocks)) {
        let source = &stored[block * MIN_BLOCK..][..MIN_BLOCK];
        for (g, group) in source[4..].as_chunks::<4>().0.iter().enumerate() {
            target[(g * rows + lane) * 4..][..4].copy_from_slice(group);
        }
        target[rows * 16 + lane * 2..][..2].copy_from_slice(&source[..2]);
        target[rows * 18 + lane * 2..][..2].copy_from_slice(&source[2..4]);
    }
}

impl PackedSegment {
    /// Lays stored bytes out. The bytes are those of `segment` for rows of `k`.
    ///
    /// # Errors
    /// [`MemoryError`] when the system has no memory.
    pub fn pack(segment: Segment, k: usize, layout: Layout, stored: &[u8]) -> Result<Self, MemoryError> {
        let source = StoredSegment { segment, k, layout, stored };
        let mut bytes = Bytes::zeroed(source.packed_bytes())?;
        source.pack_into(bytes.as_mut_slice());
        Ok(Self { segment, k, layout, bytes: Shared::whole(bytes), outer: vec![1.0; segment.outer_scales(k)] })
    }

    /// The same with the scales that are stored beside the weight, [`Segment::outer_scales`] of them.
    #[must_use]
    pub fn with_outer(self, outer: Vec<f32>) -> Self {
        debug_assert_eq!(outer.len(), self.segment.outer_scales(self.k));
        Self { outer, ..self }
    }

    /// Lays several weights out one after another in one buffer, each at a multiple of 64 bytes. `packed` is told the place of
    /// a source and the range of its stored bytes that are no longer needed, by the thread that laid them out.
    ///
    /// # Errors
    /// [`MemoryError`] when the system has no memory.
    pub fn pack_all(
        pool: &Pool,
        sources: &[StoredSegment<'_>],
        packed: &(dyn Fn(usize, Range<usize>) + Sync),
    ) -> Result<Vec<Self>, MemoryError> {
        let (mut starts, mut bounds, mut tasks) = (Vec::new(), vec![0], Vec::new());
        for (place, source) in sources.iter().enumerate() {
            let start = bounds[bounds.len() - 1];
            starts.push(start);
            for (rows, end) in source.pieces() {
                tasks.push((place, rows));
                bounds.push(start + end);
            }
            // What lies between two sources belongs to the last piece.
            let last = bounds.len() - 1;
            bounds[last] = bounds[last].next_multiple_of(64);
        }
        let mut bytes = Bytes::zeroed(bounds[bounds.len() - 1])?;
        if !tasks.is_empty() {
            let mut partition = Partition::new(bounds);
            let lent = partition.lend(bytes.as_mut_slice(), 1);
            pool.run(tasks.len(), &|task| {
                let (place, rows) = tasks[task].clone();
                let piece = sources[place].rows(rows.clone());
                let mut part = lent.take(task);
                piece.pack_into(&mut part.row(0)[..piece.packed_bytes()]);
                let row_bytes = piece.segment.row_bytes(piece.k);
                packed(place, rows.start * row_bytes..rows.end * row_bytes);
            });
        }
        let ranges = sources.iter().zip(starts).map(|(source, start)| start..start + source.packed_bytes());
        let segments = sources.iter().zip(Shared::parts(bytes, ranges)).map(|(source, bytes)| {
            let StoredSegment { segment, k, layout, .. } = *source;
            Self { segment, k, layout, bytes, outer: vec![1.0; segment.outer_scales(k)] }
        });
        Ok(segments.collect())
    }

    /// The stored bytes again.
    pub fn unpack(&self) -> Vec<u8> {
        let (row_bytes, blocks) = (self.segment.row_bytes(self.k), self.k / QUANT_BLOCK);
        let (rows, is_offset) = match self.layout {
            Layout::Stored => return self.bytes.as_slice().to_vec(),
            Layout::Panel { rows, is_offset } => (rows, is_offset),
            Layout::MinPanel { rows } => {
                let mut stored = vec![0; self.segment.bytes(self.k)];
                let stride = self.layout.stride(self.segment, self.k);
                for (row, stored) in stored.chunks_exact_mut(row_bytes).enumerate() {
                    let panel = &self.bytes.as_slice()[row / rows * stride..][..stride];
                    for (slot, block) in panel_order(blocks).enumerate() {
                        let target = &mut stored[block * MIN_BLOCK..][..MIN_BLOCK];
                        for (i, at) in min_places(rows, row % rows, slot).enumerate() {
                            target[i] = panel[at];
                        }
                    }
                }
                return stored;
            }
            Layout::BlockPanel { rows } => {
                let stride = self.layout.stride(self.segment, self.k);
                let form = Form::of(self.segment.format);
                return form.map_or_else(Vec::new, |form| {
                    form.unpack(rows, self.segment, self.k, stride, self.bytes.as_slice())
                });
            }
        };
        let flip = if is_offset { 0x80 } else { 0 };
        let mut stored = vec![0; self.segment.bytes(self.k)];
        let stride = self.layout.stride(self.segment, self.k);
        for (row, bytes) in stored.chunks_exact_mut(row_bytes).enumerate() {
            let panel = &self.bytes.as_slice()[row / rows * stride..][..stride];
            let (quants, scales) = panel.split_at(rows * self.k);
            let lane = row % rows;
            for (slot, block) in panel_order(blocks).enumerate() {
                let target = &mut bytes[block * 34..][..34];
                target[..2].copy_from_slice(&scales[(slot * rows + lane) * 2..][..2]);
                for (g, group) in target[2..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let at = ((slot * 8 + g) * rows + lane) * 4;
                    *group = std::array::from_fn(|i| quants[at + i] ^ flip);
                }
            }
        }
        stored
    }

    /// Scale of one block of one row, for tests and listings.
    pub fn stored_scale(stored: &[u8], block: usize) -> f16 {
        f16::from_le_bytes([stored[block * 34], stored[block * 34 + 1]])
    }
}

/// Where the bytes of a stored Q4_1 block lie in a [`Layout::MinPanel`], in their stored order: scale, minimum, quants.
fn min_places(rows: usize, lane: usize, slot: usize) -> impl Iterator<Item = usize> {
    let start = slot * rows * MIN_BLOCK;
    let (scales, minima) = (start + rows * 16, start + rows * 18);
    (0..MIN_BLOCK).map(move |i| match i {
        0 | 1 => scales + lane * 2 + i,
        2 | 3 => minima + lane * 2 + i - 2,
        _ => start + ((i - 4) / 4 * rows + lane) * 4 + (i - 4) % 4,
    })
}

fn pack_panel(segment: Segment, k: usize, rows: usize, flip: u8, first: usize, stored: &[u8], panel: &mut [u8]) {
    let (row_bytes, blocks) = (segment.row_bytes(k), k / QUANT_BLOCK);
    let (quants, scales) = panel.split_at_mut(rows * k);
    quants.fill(flip);
    for lane in 0..rows.min(segment.n - first) {
        let row = &stored[(first + lane) * row_bytes..][..row_bytes];
        for (slot, block) in panel_order(blocks).enumerate() {
            let source = &row[block * 34..][..34];
            scales[(slot * rows + lane) * 2..][..2].copy_from_slice(&source[..2]);
            for (g, group) in source[2..].as_chunks::<4>().0.iter().enumerate() {
                let at = ((slot * 8 + g) * rows + lane) * 4;
                quants[at..at + 4].copy_from_slice(&group.map(|q| q ^ flip));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn repack_round_trips(n in 1_usize..40, blocks in 1_usize..20, seed: u64, is_offset: bool, wide: bool) {
            let segment = Segment { format: BlockFormat::Q8_0, n };
            let k = blocks * QUANT_BLOCK;
            let stream = crate::input::Stream::new(seed, "bytes");
            let stored: Vec<u8> = (0..segment.bytes(k) as u64).map(|i| stream.bits(i) as u8).collect();
            let rows = if wide { 16 } else { 8 };
            for layout in [Layout::Stored, Layout::Panel { rows, is_offset }] {
                let packed = PackedSegment::pack(segment, k, layout, &stored).unwrap();
                prop_assert_eq!(&packed.unpack(), &stored);
            }
            let segment = Segment { format: BlockFormat::Q4_1, n };
            let stored: Vec<u8> = (0..segment.bytes(k) as u64).map(|i| stream.bits(i) as u8).collect();
            for layout in [Layout::Stored, Layout::MinPanel { rows }] {
                let packed = PackedSegment::pack(segment, k, layout, &stored).unwrap();
                prop_assert_eq!(&packed.unpack(), &stored);
                let source = StoredSegment { segment, k, layout, stored: &stored };
                let pool = Pool::new(2).unwrap();
                for packed in PackedSegment::pack_all(&pool, &[source, source, source], &|_, _| ()).unwrap() {
                    prop_assert_eq!(&packed.unpack(), &stored);
                    prop_assert!(packed.bytes.as_slice().as_ptr().addr().is_multiple_of(64));
                }
            }
        }
    }

    #[test]
    fn a_weight_of_several_pieces_is_laid_out_whole_and_every_byte_given_up_once() {
        let segment = Segment { format: BlockFormat::Q8_0, n: 3000 };
        let k = 1024;
        let stream = crate::input::Stream::new(7, "bytes");
        let stored: Vec<u8> = (0..segment.bytes(k) as u64).map(|i| stream.bits(i) as u8).collect();
        let pool = Pool::new(3).unwrap();
        for layout in
            [Layout::Stored, Layout::Panel { rows: 8, is_offset: false }, Layout::Panel { rows: 16, is_offset: true }]
        {
            let source = StoredSegment { segment, k, layout, stored: &stored };
            let given_up = std::sync::Mutex::new(Vec::new());
            let note =
                |place: usize, range: Range<usize>| given_up.lock().unwrap().push((place, range.start, range.end));
            for packed in PackedSegment::pack_all(&pool, &[source, source], &note).unwrap() {
                assert_eq!(packed.unpack(), stored);
                assert_eq!(
                    packed.bytes.as_slice(),
                    PackedSegment::pack(segment, k, layout, &stored).unwrap().bytes.as_slice()
                );
            }
            let mut given_up = given_up.into_inner().unwrap();
            given_up.sort_unstable();
            assert!(given_up.len() > 4, "several pieces");
            for place in 0..2 {
                let ranges: Vec<_> = given_up.iter().filter(|piece| piece.0 == place).collect();
                assert_eq!((ranges[0].1, ranges[ranges.len() - 1].2), (0, stored.len()));
                assert!(ranges.windows(2).all(|pair| pair[0].2 == pair[1].1));
            }
        }
    }

    #[test]
    fn panel_order_visits_every_block_once_chain_by_chain() {
        for blocks in 1..40 {
            let order: Vec<_> = panel_order(blocks).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..blocks).collect::<Vec<_>>());
        }
        assert_eq!(panel_order(11).collect::<Vec<_>>(), [0, 8, 4, 2, 10, 6, 1, 9, 5, 3, 7]);
    }
}
