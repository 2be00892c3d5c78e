//! The paged cache of keys and values.
//!
//! A page holds 64 positions of one sequence in every layer. A sequence takes the pages of its whole request when it is
//! admitted, so that it can never run out of memory in the middle of an answer.

mod pages;

pub use pages::{PageAllocator, PageTable};

use bytemuck::zeroed_vec;
use half::f16;
use memra_kernels::ops::attention::{HeadShape, PAGE, Pages, PagesMut};

/// Keys and values of all layers, f16. Memory is touched when a page is first written.
pub struct KvCache {
    shape: HeadShape,
    layers: Vec<Layer>,
}

struct Layer {
    keys: Vec<f16>,
    values: Vec<f16>,
}

impl KvCache {
    /// Room for `pages` pages in each of `layers` layers.
    pub fn new(shape: HeadShape, layers: usize, pages: usize) -> Self {
        let elements = pages * shape.page_elements();
        let layer = |_| Layer { keys: zeroed_vec(elements), values: zeroed_vec(elements) };
        Self { shape, layers: (0..layers).map(layer).collect() }
    }

    /// Heads of the cache.
    pub const fn shape(&self) -> HeadShape {
        self.shape
    }

    /// One layer, to be read.
    pub fn layer(&self, layer: usize) -> Pages<'_> {
        let layer = &self.layers[layer];
        Pages { keys: &layer.keys, values: &layer.values }
    }

    /// One layer, to be written.
    pub fn layer_mut(&mut self, layer: usize) -> PagesMut<'_> {
        let layer = &mut self.layers[layer];
        PagesMut { keys: &mut layer.keys, values: &mut layer.values }
    }

    /// Bytes of one page over all layers.
    pub fn page_bytes(&self) -> usize {
        self.layers.len() * self.shape.page_elements() * 2 * size_of::<f16>()
    }
}

/// Pages that `positions` positions need.
pub const fn pages_for(positions: usize) -> usize {
    positions.div_ceil(PAGE)
}
