//! The append on a card.

use memra_contract::order;
use memra_contract::{DType, TensorSet};

use super::{ID, RotationKind, Sizes, page_table_of};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::input;

/// Threads of a block.
const THREADS: usize = 128;

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<()>] = &[cuda_variant!(
    "rope_append",
    "cuda_pairs",
    "a pair of dimensions a thread, straight to its page; the CUDA baseline",
    order::ROPE_F32,
    "cuda.cu",
    &[],
    ()
)];

/// `qkv` rotates; turns, page table and sizes are fixed, and the pages are scratch. A second launch reads the appended rows
/// out of their pages, because the outputs of the contract are what stands there.
pub(super) fn form(sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let cache = sizes.cache;
    let shape = cache.shape;
    let qkv = input(ID, inputs, "qkv", DType::F32, cache.m * shape.qkv_elements())?;
    let table = input(ID, inputs, "table", DType::F32, cache.m * sizes.n_rot)?;
    let pages: Vec<u8> = page_table_of(sizes, inputs)?.iter().flat_map(|page| page.to_le_bytes()).collect();
    let is_halves = usize::from(sizes.kind == RotationKind::Halves);
    // In the order of the text's `Sizes`.
    let numbers = [
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        sizes.n_rot,
        cache.depth,
        cache.rows(),
        cache.sequence_pages(),
        is_halves,
    ];
    let numbers = numbers.iter().flat_map(|number| (*number as u32).to_le_bytes()).collect();
    let kv_width = shape.kv_heads * shape.head_dim;
    let [table_arg, pages_arg, sizes_arg] = [0, 1, 2].map(Arg::Fixed);
    let [q, k, v] = device::PLANES;
    let [keys, values] = [0, 1].map(Arg::Scratch);
    let append = vec![Arg::Rotating(0), table_arg, pages_arg, q, keys, values, sizes_arg];
    let read = vec![pages_arg, keys, values, k, v, sizes_arg];
    let blocks = |threads: usize| [threads.div_ceil(THREADS), cache.m];
    Ok(DeviceForm {
        fixed: vec![table.bytes.clone(), pages, numbers],
        rotating: vec![qkv.bytes.clone()],
        outputs: vec![
            device::output("q", DType::F32, &[cache.m, shape.q_elements()]),
            device::output("k", DType::F16, &[cache.m, kv_width]),
            device::output("v", DType::F16, &[cache.m, kv_width]),
        ],
        scratch: vec![cache.cache_elements() * 2; 2],
        launches: vec![
            device::launch("rope_append_pairs", blocks(shape.qkv_elements() / 2), THREADS, 0, append),
            device::launch("rope_append_read", blocks(kv_width), THREADS, 0, read),
        ],
        ..DeviceForm::default()
    })
}
