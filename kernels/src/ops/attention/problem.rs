//! Problems over the paged cache: their axes, and a cache with a shuffled page table.

use memra_contract::{DType, Problem, ProblemError, Tensor};

use super::pages::{HeadShape, MAX_HEAD_DIM, PAGE, RowGroup};
use crate::input::Stream;

/// Sizes that attention and the append to its cache share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheSizes {
    pub(crate) m: usize,
    pub(crate) shape: HeadShape,
    /// Positions before the first row of each sequence.
    pub(crate) depth: usize,
    /// Sequences the rows are split over.
    pub(crate) seqs: usize,
}

impl CacheSizes {
    pub(crate) const AXES: [&'static str; 6] = ["m", "heads", "kv_heads", "head_dim", "depth", "seqs"];

    /// Reads the axes; the caller has refused foreign ones.
    pub(crate) fn parse(contract: &str, problem: &Problem) -> Result<Self, ProblemError> {
        let size = |axis: &str, range| problem.size(contract, axis, range).map(|n| n as usize);
        let or = |axis: &str, default: usize, range| match problem.get(axis) {
            None => Ok(default),
            Some(_) => size(axis, range),
        };
        let refuse = |axis: &str, value: usize, why: &str| ProblemError::Value {
            contract: contract.to_owned(),
            axis: axis.to_owned(),
            value: value.to_string(),
            why: why.to_owned(),
        };
        let m = size("m", 1..=4096)?;
        let heads = size("heads", 1..=256)?;
        let kv_heads = size("kv_heads", 1..=256)?;
        let head_dim = size("head_dim", 16..=MAX_HEAD_DIM as u64)?;
        let depth = or("depth", 0, 0..=131_072)?;
        let seqs = or("seqs", 1, 1..=4096)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(refuse("heads", heads, "it must be a multiple of kv_heads"));
        }
        if !head_dim.is_multiple_of(16) {
            return Err(refuse("head_dim", head_dim, "it must be a multiple of 16"));
        }
        if !m.is_multiple_of(seqs) {
            return Err(refuse("seqs", seqs, "it must divide m"));
        }
        Ok(Self { m, shape: HeadShape { heads, kv_heads, head_dim }, depth, seqs })
    }

    /// The problem with its defaults filled in.
    pub(crate) fn fill(self, problem: &Problem) -> Problem {
        problem.clone().with("depth", self.depth as u64).with("seqs", self.seqs as u64)
    }

    /// Rows of one sequence.
    pub(crate) fn rows(self) -> usize {
        self.m / self.seqs
    }

    /// Pages of one sequence.
    pub(crate) fn sequence_pages(self) -> usize {
        (self.depth + self.rows()).div_ceil(PAGE)
    }

    /// Pages of the cache; one is nobody's.
    pub(crate) fn cache_pages(self) -> usize {
        self.seqs * self.sequence_pages() + 1
    }

    /// Elements of the keys of the cache, and of its values.
    pub(crate) fn cache_elements(self) -> usize {
        self.cache_pages() * self.shape.page_elements()
    }

    /// What defaults are looked up by, beside the rows.
    pub(crate) fn class(self) -> String {
        format!("d^{}-g^{}", self.shape.head_dim, self.shape.group())
    }

    /// Pages in a random order, i32 `[seqs, pages of a sequence]`.
    pub(crate) fn page_table(self, seed: u64) -> Tensor {
        let stream = Stream::new(seed, "page_table");
        let mut pages: Vec<usize> = (0..self.cache_pages()).collect();
        pages.sort_by_key(|page| stream.bits(*page as u64));
        pages.truncate(self.seqs * self.sequence_pages());
        let bytes = pages.iter().flat_map(|page| (*page as i32).to_le_bytes()).collect();
        let shape = vec![self.seqs, self.sequence_pages()];
        Tensor { name: "page_table".to_owned(), dtype: DType::I32, shape, bytes }
    }

    /// The groups of a launch, one a sequence.
    pub(crate) fn groups(self, page_table: &[u32]) -> Vec<RowGroup<'_>> {
        page_table
            .chunks_exact(self.sequence_pages())
            .map(|pages| RowGroup { pages, first_position: self.depth, rows: self.rows() })
            .collect()
    }

    /// Shape of the tensor of keys.
    pub(crate) fn keys_shape(self) -> Vec<usize> {
        vec![self.cache_pages(), self.shape.kv_heads, self.shape.head_dim, PAGE]
    }

    /// Shape of the tensor of values.
    pub(crate) fn values_shape(self) -> Vec<usize> {
        vec![self.cache_pages(), self.shape.kv_heads, PAGE, self.shape.head_dim]
    }
}

/// Entries of a page table tensor.
pub(crate) fn pages_of(tensor: Option<&Tensor>) -> Vec<u32> {
    let bytes = tensor.map_or(&[][..], |tensor| tensor.bytes.as_slice());
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// Elements of an f16 tensor.
pub(crate) fn halves_of(tensor: Option<&Tensor>) -> Vec<half::f16> {
    let bytes = tensor.map_or(&[][..], |tensor| tensor.bytes.as_slice());
    bytes.as_chunks::<2>().0.iter().map(|b| half::f16::from_le_bytes(*b)).collect()
}

/// A tensor of f16 values.
pub(crate) fn half_tensor(name: &str, shape: Vec<usize>, values: &[half::f16]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { name: name.to_owned(), dtype: DType::F16, shape, bytes }
}
