//! The append laid out for a host variant.

use half::f16;
use half::slice::HalfBitsSliceExt as _;
use memra_contract::{DType, Tensor, TensorSet};

use super::{ID, RopeAppendVariant, Rotation, Sizes, outputs, page_table_of, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::attention::pages::{PAGE, PagesMut};
use crate::ops::input;

pub(super) struct PreparedRopeAppend {
    variant: &'static RopeAppendVariant,
    sizes: Sizes,
    rotation: Rotation,
    copies: Vec<Vec<f32>>,
    page_table: Vec<u32>,
    q: Guarded<f32>,
    keys: Guarded<u16>,
    values: Guarded<u16>,
    /// What the outputs were filled with last.
    pattern: u32,
}

impl PreparedRopeAppend {
    pub(super) fn new(
        variant: &'static RopeAppendVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let cache = sizes.cache;
        let qkv = input(ID, inputs, "qkv", DType::F32, cache.m * cache.shape.qkv_elements())?.to_f32();
        let table = input(ID, inputs, "table", DType::F32, cache.m * sizes.n_rot)?.to_f32();
        let page_table = page_table_of(sizes, inputs)?;
        Ok(Self {
            variant,
            sizes,
            rotation: Rotation { kind: sizes.kind, n_rot: sizes.n_rot, table },
            copies: vec![qkv; copies.max(1)],
            page_table,
            q: Guarded::new(cache.m * cache.shape.q_elements()),
            keys: Guarded::new(cache.cache_elements()),
            values: Guarded::new(cache.cache_elements()),
            pattern: 0,
        })
    }

    /// Index of an element of the keys and of the values: row, head, dimension.
    fn index(&self, row: usize, kv_head: usize, d: usize) -> (usize, usize) {
        let cache = self.sizes.cache;
        let position = cache.depth + row % cache.rows();
        let page = self.page_table[row / cache.rows() * cache.sequence_pages() + position / PAGE] as usize;
        let head = page * cache.shape.page_elements() + kv_head * cache.shape.head_elements();
        let offset = position % PAGE;
        (head + d * PAGE + offset, head + offset * cache.shape.head_dim + d)
    }

    fn for_each_index(&self, mut body: impl FnMut(usize, usize)) {
        let cache = self.sizes.cache;
        for row in 0..cache.m {
            for kv_head in 0..cache.shape.kv_heads {
                for d in 0..cache.shape.head_dim {
                    let (key, value) = self.index(row, kv_head, d);
                    body(key, value);
                }
            }
        }
    }
}

impl Prepared for PreparedRopeAppend {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let qkv = &self.copies[copy % self.copies.len()];
        let groups = self.sizes.cache.groups(&self.page_table);
        let pages = PagesMut {
            keys: self.keys.as_mut_slice().reinterpret_cast_mut::<f16>(),
            values: self.values.as_mut_slice().reinterpret_cast_mut::<f16>(),
        };
        let shape = self.sizes.cache.shape;
        run(pool, self.variant, shape, &self.rotation, &groups, qkv, self.q.as_mut_slice(), pages);
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        self.for_each_index(|key, value| {
            keys.push(f16::from_bits(self.keys.as_slice()[key]));
            values.push(f16::from_bits(self.values.as_slice()[value]));
        });
        let shape = [self.sizes.cache.m, self.sizes.cache.shape.q_elements()];
        outputs(self.sizes, Tensor::f32("q", &shape, self.q.as_slice()), &keys, &values)
    }

    fn poison(&mut self, pattern: u32) {
        self.q.poison(pattern);
        self.keys.poison(pattern);
        self.values.poison(pattern);
        self.pattern = pattern;
    }

    /// Also whether the rest of the cache is untouched.
    fn guards_hold(&self) -> bool {
        let halves = [self.pattern as u16, (self.pattern >> 16) as u16];
        let is_filled =
            |slice: &[u16], own: &[bool]| slice.iter().enumerate().all(|(i, v)| own[i] || *v == halves[i % 2]);
        let mut own_keys = vec![false; self.keys.as_slice().len()];
        let mut own_values = own_keys.clone();
        self.for_each_index(|key, value| {
            own_keys[key] = true;
            own_values[value] = true;
        });
        self.q.guards_hold()
            && self.keys.guards_hold()
            && self.values.guards_hold()
            && is_filled(self.keys.as_slice(), &own_keys)
            && is_filled(self.values.as_slice(), &own_values)
    }

    fn copy_bytes(&self) -> usize {
        size_of_val(self.copies[0].as_slice())
    }
}
