//! The paged cache of keys and values in f16, and the rows that read and write it.
//!
//! One layer's cache is two flat slices of pages of [`PAGE`] positions. A page of keys is `[kv_heads][head_dim][PAGE]`, so
//! that a vector of positions is contiguous; a page of values is `[kv_heads][PAGE][head_dim]`.

use half::f16;

/// Positions of one page.
pub const PAGE: usize = 64;

/// Sizes of the attention heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadShape {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Length of a head: a multiple of 16, at most 256.
    pub head_dim: usize,
}

impl HeadShape {
    /// Query heads that share a head of keys and values.
    pub const fn group(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Elements of one page of keys, and of one page of values.
    pub const fn page_elements(self) -> usize {
        self.kv_heads * self.head_elements()
    }

    /// Elements of one head in a page.
    pub const fn head_elements(self) -> usize {
        self.head_dim * PAGE
    }

    /// Elements of one row of query, key and value together.
    pub const fn qkv_elements(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Elements of one row of the query, and of the output.
    pub const fn q_elements(self) -> usize {
        self.heads * self.head_dim
    }

    /// Refuses sizes that no kernel takes.
    pub(crate) fn check(self) {
        assert!(
            self.kv_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.kv_heads),
            "{} query heads are no multiple of {} heads of keys",
            self.heads,
            self.kv_heads
        );
        assert!(
            self.head_dim.is_multiple_of(16) && (16..=MAX_HEAD_DIM).contains(&self.head_dim),
            "a head of {} elements: a multiple of 16 up to {MAX_HEAD_DIM} is needed",
            self.head_dim
        );
    }
}

/// Longest head.
pub const MAX_HEAD_DIM: usize = 256;

/// One layer's cache.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    /// Pages of keys, each `[kv_heads][head_dim][PAGE]`.
    pub keys: &'a [f16],
    /// Pages of values, each `[kv_heads][PAGE][head_dim]`.
    pub values: &'a [f16],
}

/// One layer's cache, writable.
#[derive(Debug)]
pub struct PagesMut<'a> {
    /// Pages of keys, each `[kv_heads][head_dim][PAGE]`.
    pub keys: &'a mut [f16],
    /// Pages of values, each `[kv_heads][PAGE][head_dim]`.
    pub values: &'a mut [f16],
}

impl<'a> Pages<'a> {
    /// Keys `[head_dim][PAGE]` and values `[PAGE][head_dim]` of one head in one page.
    pub(crate) fn head(self, shape: HeadShape, page: u32, kv_head: usize) -> (&'a [f16], &'a [f16]) {
        let first = page as usize * shape.page_elements() + kv_head * shape.head_elements();
        (&self.keys[first..][..shape.head_elements()], &self.values[first..][..shape.head_elements()])
    }
}

/// Rows of the activation that are consecutive positions of one sequence.
///
/// A launch takes several groups; their rows lie one after another in the activation.
#[derive(Debug, Clone, Copy)]
pub struct RowGroup<'a> {
    /// Page table of the sequence: page `i` holds the positions from `i * PAGE`.
    pub pages: &'a [u32],
    /// Position of the first row.
    pub first_position: usize,
    /// Number of rows.
    pub rows: usize,
}

impl RowGroup<'_> {
    /// Refuses a page table that is too short or leads out of a cache of `cache_pages` pages.
    pub(crate) fn check(&self, cache_pages: usize) {
        let needed = (self.first_position + self.rows).div_ceil(PAGE);
        assert!(
            self.pages.len() >= needed,
            "a page table of {} pages for {} positions",
            self.pages.len(),
            self.first_position + self.rows
        );
        for (i, page) in self.pages[..needed].iter().enumerate() {
            assert!((*page as usize) < cache_pages, "entry {i} of a page table is page {page} of {cache_pages}");
        }
    }
}

/// Checks a launch; returns the number of rows.
pub(crate) fn check_launch(shape: HeadShape, groups: &[RowGroup<'_>], keys: usize, values: usize) -> usize {
    shape.check();
    let elements = shape.page_elements();
    assert!(keys == values && keys.is_multiple_of(elements), "a cache of {keys} keys, {values} values");
    for group in groups {
        group.check(keys / elements);
    }
    groups.iter().map(|group| group.rows).sum()
}
