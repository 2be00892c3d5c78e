//! Attention laid out for a host variant.

use half::f16;
use memra_contract::{DType, Tensor, TensorSet};

use super::pages::Pages;
use super::problem::{CacheSizes, halves_of, pages_of};
use super::{AttentionVariant, ID, Scratch, run, scale_of};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;

pub(super) struct PreparedAttention {
    variant: &'static AttentionVariant,
    sizes: CacheSizes,
    copies: Vec<Copy>,
    page_table: Vec<u32>,
    scratch: Scratch,
    out: Guarded<f32>,
}

#[derive(Clone)]
struct Copy {
    q: Vec<f32>,
    keys: Vec<f16>,
    values: Vec<f16>,
}

impl PreparedAttention {
    pub(super) fn new(
        variant: &'static AttentionVariant,
        sizes: CacheSizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let q = input(ID, inputs, "q", DType::F32, sizes.m * sizes.shape.q_elements())?.to_f32();
        let keys = halves_of(Some(input(ID, inputs, "keys", DType::F16, sizes.cache_elements())?));
        let values = halves_of(Some(input(ID, inputs, "values", DType::F16, sizes.cache_elements())?));
        let table = input(ID, inputs, "page_table", DType::I32, sizes.seqs * sizes.sequence_pages())?;
        let page_table = pages_of(Some(table));
        if page_table.iter().any(|page| *page as usize >= sizes.cache_pages()) {
            let why = format!("leads out of the cache of {} pages", sizes.cache_pages());
            return Err(PrepareError::Input { contract: ID, tensor: "page_table".to_owned(), why });
        }
        let out = Guarded::new(q.len());
        let copies = vec![Copy { q, keys, values }; copies.max(1)];
        Ok(Self { variant, sizes, copies, page_table, scratch: Scratch::new(), out })
    }
}

impl Prepared for PreparedAttention {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let copy = &self.copies[copy % self.copies.len()];
        let groups = self.sizes.groups(&self.page_table);
        let pages = Pages { keys: &copy.keys, values: &copy.values };
        let (shape, out) = (self.sizes.shape, self.out.as_mut_slice());
        run(pool, self.variant, shape, scale_of(shape.head_dim), &groups, &copy.q, pages, &mut self.scratch, out);
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let shape = [self.sizes.m, self.sizes.shape.q_elements()];
        TensorSet::new(vec![Tensor::f32("out", &shape, self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        let copy = &self.copies[0];
        size_of_val(copy.q.as_slice()) + size_of_val(copy.keys.as_slice()) + size_of_val(copy.values.as_slice())
    }
}
