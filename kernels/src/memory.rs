//! Buffers: page-aligned memory for weights, and outputs between guard zones.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use memmap2::{Advice, MmapMut};

/// Zeroed, page-aligned bytes; large ones ask for huge pages.
#[derive(Debug)]
pub struct Bytes {
    map: Option<MmapMut>,
}

/// Memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("no memory for a buffer of {bytes} bytes: {source}")]
pub struct MemoryError {
    /// Bytes asked for.
    pub bytes: usize,
    /// What the system said.
    pub source: std::io::Error,
}

impl Bytes {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// [`MemoryError`] when the system refuses.
    pub fn zeroed(len: usize) -> Result<Self, MemoryError> {
        if len == 0 {
            return Ok(Self { map: None });
        }
        let map = MmapMut::map_anon(len).map_err(|source| MemoryError { bytes: len, source })?;
        // Huge pages are a wish: a system without them serves the same bytes in small pages.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        Ok(Self { map: Some(map) })
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    /// [`MemoryError`] when the system refuses.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, MemoryError> {
        let mut copy = Self::zeroed(bytes.len())?;
        copy.as_mut_slice().copy_from_slice(bytes);
        Ok(copy)
    }

    /// The contents.
    pub fn as_slice(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// The contents, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

/// A part of a buffer that others have parts of, too: weights of a model lie in one buffer in the order they are read, so
/// that huge pages and prefetches reach across them.
#[derive(Debug, Clone)]
pub struct Shared {
    buffer: Arc<Bytes>,
    range: Range<usize>,
}

impl Shared {
    /// All of a buffer.
    pub fn whole(bytes: Bytes) -> Self {
        let range = 0..bytes.as_slice().len();
        Self { buffer: Arc::new(bytes), range }
    }

    /// Parts of a buffer.
    ///
    /// # Panics
    /// When a range lies outside of the buffer.
    pub fn parts(bytes: Bytes, ranges: impl IntoIterator<Item = Range<usize>>) -> Vec<Self> {
        let buffer = Arc::new(bytes);
        let part = |range: Range<usize>| {
            assert!(range.start <= range.end && range.end <= buffer.as_slice().len(), "{range:?} is no part");
            Self { buffer: buffer.clone(), range }
        };
        ranges.into_iter().map(part).collect()
    }

    /// The contents.
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer.as_slice()[self.range.clone()]
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An output buffer between two guard zones, so that a kernel that writes past its end is noticed.
///
/// The first element is aligned to 64 bytes.
pub struct Guarded<T> {
    lines: Vec<Line>,
    len: usize,
    element: std::marker::PhantomData<T>,
}

const GUARD_LINES: usize = 2;
const GUARD: Line = Line([0xA5; 64]);

impl<T: Pod> Guarded<T> {
    /// `len` zero elements between guards.
    pub fn new(len: usize) -> Self {
        let body = (len * size_of::<T>()).div_ceil(64);
        let mut lines = vec![GUARD; GUARD_LINES * 2 + body];
        lines[GUARD_LINES..GUARD_LINES + body].fill(Line([0; 64]));
        let mut buffer = Self { lines, len, element: std::marker::PhantomData };
        buffer.fill_tail();
        buffer
    }

    fn body(&self) -> std::ops::Range<usize> {
        GUARD_LINES * 64..GUARD_LINES * 64 + self.len * size_of::<T>()
    }

    fn fill_tail(&mut self) {
        let end = self.body().end;
        bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)[end..].fill(0xA5);
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        let body = self.body();
        bytemuck::cast_slice(&bytemuck::cast_slice::<Line, u8>(&self.lines)[body])
    }

    /// The elements, writable.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let body = self.body();
        bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)[body])
    }

    /// Fills the elements with a repeated pattern.
    pub fn poison(&mut self, pattern: u32) {
        let body = self.body();
        let bytes = &mut bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)[body];
        for (byte, pattern) in bytes.iter_mut().zip(pattern.to_le_bytes().iter().cycle()) {
            *byte = *pattern;
        }
    }

    /// Whether the bytes before and after the elements are untouched.
    pub fn guards_hold(&self) -> bool {
        let body = self.body();
        let bytes = bytemuck::cast_slice::<Line, u8>(&self.lines);
        bytes[..body.start].iter().chain(&bytes[body.end..]).all(|b| *b == 0xA5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_notice_writes_around_the_elements() {
        for len in [0_usize, 1, 16, 17, 100] {
            let mut buffer = Guarded::<f32>::new(len);
            assert!(buffer.guards_hold());
            buffer.poison(0x7fc0_dead);
            buffer.as_mut_slice().fill(1.0);
            assert!(buffer.guards_hold());
            let end = buffer.body().end;
            bytemuck::cast_slice_mut::<Line, u8>(&mut buffer.lines)[end] = 0;
            assert!(!buffer.guards_hold());
        }
    }

    #[test]
    fn bytes_hold_what_was_copied() {
        assert_eq!(Bytes::copy_of(&[1, 2, 3]).unwrap().as_slice(), [1, 2, 3]);
        assert!(Bytes::zeroed(0).unwrap().as_slice().is_empty());
        assert!(Bytes::zeroed(usize::MAX / 2).is_err());
    }
}
