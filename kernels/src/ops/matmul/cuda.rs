//! Matrix products on a card: the variants, and what each of them launches.

use std::sync::LazyLock;

use memra_contract::device::CudaArch;
use memra_contract::{BlockFormat, DType, OrderClass, TensorSet, order};

use super::ID;
use super::fragment::{FRAGMENTS, Fragment, TILE, float_unit, pack_float};
use super::problem::{Activation, Epilogue, MatmulProblem, Segment, order_class};
use crate::contract::{CudaBuild, PrepareError, Source, Target, Variant};
use crate::form::{Arg, DeviceForm, LaunchForm};
use crate::ops::device::output;
use crate::ops::input;

/// What a variant launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// `stored.cu`.
    Stored,
    /// `fragment.cu` or, for one row of the activation, `fragment_one.cu`.
    Fragment(Shape),
    /// `fragment_float.cu`, eight chains a block or a cluster of eight blocks.
    FragmentFloat { is_cluster: bool },
    /// `fragment_direct.cu`.
    FragmentDirect,
}

/// A variant with what only this contract knows of it.
#[derive(Debug)]
pub(super) struct CudaMatmul {
    pub(super) listed: Variant,
    format: BlockFormat,
    kernel: Kernel,
}

/// Architectures with clusters.
const WITH_CLUSTERS: &[CudaArch] = &[CudaArch::Sm90a, CudaArch::Sm100a, CudaArch::Sm120a];

/// Architectures that widen e4m3 in one instruction.
const WITH_E4M3: &[CudaArch] = &[CudaArch::Sm89, CudaArch::Sm90a, CudaArch::Sm100a, CudaArch::Sm120a];

/// Shared memory that a block may ask for on Hopper and on Blackwell of the data centre.
const MOST_SHARED: usize = 227 << 10;

macro_rules! text {
    ($file:literal) => {
        Source { path: concat!("kernels/src/ops/matmul/", $file), text: include_str!($file) }
    };
}

/// Formats with the definition that selects them in `stored.cu`.
const STORED: &[(BlockFormat, &str)] = &[
    (BlockFormat::F32, "FORMAT_F32"),
    (BlockFormat::F16, "FORMAT_F16"),
    (BlockFormat::BF16, "FORMAT_BF16"),
    (BlockFormat::F8_E4M3, "FORMAT_F8"),
    (BlockFormat::Q8_0, "FORMAT_Q8_0"),
    (BlockFormat::Q4_0, "FORMAT_Q4_0"),
    (BlockFormat::Q4_1, "FORMAT_Q4_1"),
    (BlockFormat::Q5_0, "FORMAT_Q5_0"),
    (BlockFormat::Q5_1, "FORMAT_Q5_1"),
    (BlockFormat::Q4_K, "FORMAT_Q4_K"),
    (BlockFormat::Q5_K, "FORMAT_Q5_K"),
    (BlockFormat::Q6_K, "FORMAT_Q6_K"),
    (BlockFormat::IQ4_XS, "FORMAT_IQ4_XS"),
    (BlockFormat::NVFP4, "FORMAT_NVFP4"),
];

/// One form of the products in fragment order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    name: &'static str,
    /// Whether it is `fragment_one.cu`.
    is_one: bool,
    /// Whether the eight chains are those of a cluster of eight blocks, and not of a block.
    is_cluster: bool,
    /// Row tiles of a warp.
    row_tiles: usize,
    /// The same, for the text.
    tiles_text: &'static str,
    /// Units in registers.
    depth: &'static str,
    /// Blocks of a multiprocessor that the compiler leaves registers for.
    blocks: &'static str,
}

impl Shape {
    const fn new(
        name: &'static str,
        kind: (bool, bool),
        tiles: (usize, &'static str),
        depth: &'static str,
        blocks: &'static str,
    ) -> Self {
        Self { name, is_one: kind.0, is_cluster: kind.1, row_tiles: tiles.0, tiles_text: tiles.1, depth, blocks }
    }

    /// Row tiles that a block, or a cluster, has in hand at a time.
    const fn group(&self) -> usize {
        if self.is_cluster { 8 * self.row_tiles } else { self.row_tiles }
    }

    /// Dynamic shared memory for so many columns of `units` units: the staged activation, and two buffers of chains.
    const fn shared(&self, fragment: &Fragment, units: usize, columns: usize) -> usize {
        let (tiles, chains) = (4 * units, if self.is_cluster { 1 } else { 8 });
        let staged = chains * tiles * columns * (32 + 4 * fragment.entry_words);
        let zeros = if self.is_one { tiles * 32 } else { 0 };
        staged + zeros + 2 * chains * columns * TILE * self.group() * 4
    }

    /// Entries with their columns, fewest first.
    const fn entries(&self) -> &'static [(&'static str, usize)] {
        match (self.is_one, self.is_cluster) {
            (true, _) => &[("product1", 1)],
            (false, false) => &[("product1", 1), ("product8", 8)],
            (false, true) => {
                &[("product1", 1), ("product8", 8), ("product16", 16), ("product32", 32), ("product64", 64)]
            }
        }
    }
}

/// The forms that are registered for every format.
const SHAPES: &[Shape] = &[
    Shape::new("rows", (false, false), (1, "1"), "2", "3"),
    Shape::new("cluster", (false, true), (1, "1"), "1", "3"),
    Shape::new("cluster_deep", (false, true), (1, "1"), "2", "2"),
    Shape::new("cluster_tiles2", (false, true), (2, "2"), "1", "2"),
    Shape::new("one_tiles2", (true, false), (2, "2"), "2", "2"),
    Shape::new("one_tiles4", (true, false), (4, "4"), "1", "2"),
];

/// The registry lives as long as the program, so its texts are never given back.
fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The variants, baselines first.
pub(super) static VARIANTS: LazyLock<Vec<CudaMatmul>> = LazyLock::new(|| {
    let variant =
        |name: String, summary: String, archs, defines: Vec<(&'static str, &'static str)>, layout, class, source| {
            Variant {
                name: keep(name).as_str(),
                summary: keep(summary).as_str(),
                target: Target::Cuda(CudaBuild { archs, defines: keep(defines).as_slice() }),
                layout,
                order_class: class,
                rows: (1, 4096),
                source,
            }
        };
    let mut all = Vec::new();
    for (format, define) in STORED {
        all.push(CudaMatmul {
            listed: variant(
                format!("cuda_stored_{format}"),
                format!("stored {format} weights in the chains of the order class, a lane a chain; the CUDA baseline"),
                &CudaArch::ALL,
                vec![(define, "1")],
                "stored",
                order_class(*format),
                text!("stored.cu"),
            ),
            format: *format,
            kernel: Kernel::Stored,
        });
    }
    for fragment in FRAGMENTS {
        for shape in SHAPES {
            let format = fragment.format();
            let how = match (shape.is_one, shape.is_cluster) {
                (true, _) => "one column of the activation over several row tiles, so that every lane folds",
                (false, true) => "a chain a block of a cluster, the activation staged an eighth a block",
                (false, false) => "a chain a warp, the activation staged a block",
            };
            let mut defines = vec![(fragment.define, "1")];
            if shape.is_one {
                defines.push(("TILES", shape.tiles_text));
            } else {
                defines
                    .extend([("CLUSTER", if shape.is_cluster { "1" } else { "0" }), ("ROW_TILES", shape.tiles_text)]);
            }
            defines.extend([("DEPTH", shape.depth), ("MIN_BLOCKS", shape.blocks)]);
            let mut listed = variant(
                format!("cuda_{}_{format}", shape.name),
                format!(
                    "{format} in tensor-core operand order, integer tiles folded into the eight chains; {how}; {} rows a warp",
                    TILE * shape.row_tiles
                ),
                if shape.is_cluster { WITH_CLUSTERS } else { &CudaArch::ALL },
                defines,
                "fragment16",
                order_class(format),
                if shape.is_one { text!("fragment_one.cu") } else { text!("fragment.cu") },
            );
            if shape.is_one {
                listed.rows = (1, 1);
            }
            all.push(CudaMatmul { listed, format, kernel: Kernel::Fragment(*shape) });
        }
    }
    for (format, define, class, archs) in FLOATS {
        let mut direct = variant(
            format!("cuda_direct_{format}"),
            format!(
                "{format} in tensor-core operand order, f32 accumulation in eight chains; a chain a warp, the activation read \
                 through the first-level cache"
            ),
            archs,
            vec![(define, "1"), ("ROW_TILES", "1"), ("DEPTH", "2"), ("MIN_BLOCKS", "2")],
            "fragment16",
            *class,
            text!("fragment_direct.cu"),
        );
        direct.rows = (9, 4096);
        for is_cluster in [false, true] {
            let (name, how) = if is_cluster {
                ("cluster", "a chain a block of a cluster, the activation staged an eighth a block")
            } else {
                ("rows", "a chain a warp, the activation staged a block")
            };
            let shape = if is_cluster { [("CLUSTER", "1"), ("DEPTH", "1"), ("MIN_BLOCKS", "3")] } else { ROWS_SHAPE };
            let mut defines = vec![(*define, "1")];
            defines.extend(shape);
            all.push(CudaMatmul {
                listed: variant(
                    format!("cuda_{name}_{format}"),
                    format!("{format} in tensor-core operand order, f32 accumulation in eight chains; {how}"),
                    if is_cluster { WITH_CLUSTERS } else { archs },
                    defines,
                    "fragment16",
                    *class,
                    text!("fragment_float.cu"),
                ),
                format: *format,
                kernel: Kernel::FragmentFloat { is_cluster },
            });
        }
        all.push(CudaMatmul { listed: direct, format: *format, kernel: Kernel::FragmentDirect });
    }
    all
});

/// Definitions of the form with a chain a warp.
const ROWS_SHAPE: [(&str, &str); 3] = [("CLUSTER", "0"), ("DEPTH", "1"), ("MIN_BLOCKS", "4")];

/// Float formats of `fragment_float.cu` with their definition, device class and architectures.
const FLOATS: &[(BlockFormat, &str, OrderClass, &[CudaArch])] = &[
    (BlockFormat::F16, "FORMAT_F16", order::DEVICE_MMA_F16, &CudaArch::ALL),
    (BlockFormat::BF16, "FORMAT_BF16", order::DEVICE_MMA_BF16, &CudaArch::ALL),
    (BlockFormat::F8_E4M3, "FORMAT_F8", order::DEVICE_MMA_F8_BLOCK128, WITH_E4M3),
];

impl CudaMatmul {
    /// Why it does not serve a problem.
    pub(super) fn refusal(&self, problem: &MatmulProblem) -> Option<String> {
        if let Some(other) = problem.segments.iter().find(|segment| segment.format != self.format) {
            return Some(format!("it serves {} segments, and one is {}", self.format, other.format));
        }
        if problem.quantises() {
            return Some("it takes int8 planes, and the activation is to be quantised first".to_owned());
        }
        match self.kernel {
            Kernel::Fragment(shape) if shape.is_one && problem.m > 1 => Some("it serves m = 1".to_owned()),
            Kernel::Fragment(shape) if self.entry(shape, problem).is_none() => {
                Some(format!("its blocks have no room for {} columns of k = {}", problem.m.min(8), problem.k))
            }
            Kernel::Stored | Kernel::Fragment(_) => None,
            Kernel::FragmentFloat { .. } | Kernel::FragmentDirect => {
                let wanted = if self.format == BlockFormat::BF16 { Activation::Bf16 } else { Activation::F16 };
                if problem.activation != wanted {
                    return Some(format!("it takes act={wanted}"));
                }
                let (fewest, most) = self.listed.rows;
                if !(fewest..=most).contains(&(problem.m as u64)) {
                    return Some(format!("it serves m = {fewest} to {most}"));
                }
                let fits = self.float_entry(problem).is_some();
                (!fits)
                    .then(|| format!("its blocks have no room for {} columns of k = {}", problem.m.min(8), problem.k))
            }
        }
    }

    /// Entry, dynamic shared memory and columns of a block: the fewest columns that hold all, or else the most that fit.
    fn entry(&self, shape: Shape, problem: &MatmulProblem) -> Option<(&'static str, usize, usize)> {
        let fragment = Fragment::of(self.format)?;
        let units = Fragment::units(problem.k);
        let mut fitting =
            shape.entries().iter().filter(|(_, columns)| shape.shared(fragment, units, *columns) <= MOST_SHARED);
        let enough = fitting.clone().find(|(_, columns)| *columns >= problem.m);
        let (entry, columns) = enough.or_else(|| fitting.next_back())?;
        // One column serves nothing but m = 1.
        (*columns > 1 || problem.m == 1).then(|| (*entry, shape.shared(fragment, units, *columns), *columns))
    }

    /// The same of the float forms.
    fn float_entry(&self, problem: &MatmulProblem) -> Option<(&'static str, usize, usize)> {
        let is_cluster = self.kernel == Kernel::FragmentFloat { is_cluster: true };
        let is_direct = self.kernel == Kernel::FragmentDirect;
        let ladder: &[(&str, usize)] = match (is_direct, is_cluster) {
            (true, _) => &[("product16", 16), ("product32", 32), ("product64", 64)],
            (false, false) => &[("product1", 1), ("product8", 8)],
            (false, true) => {
                &[("product1", 1), ("product8", 8), ("product16", 16), ("product32", 32), ("product64", 64)]
            }
        };
        let unit = float_unit(self.format);
        let (chains, group) = if is_cluster { (1, 8) } else { (8, 1) };
        let shared = |columns: usize| {
            if is_direct {
                return chains * columns * TILE * group * 4;
            }
            // A unit of one column is two bytes an element; the accumulators have eight columns also where one is stored.
            let staged = chains * problem.k.div_ceil(unit).div_ceil(8) * columns * unit * 2;
            staged + 2 * chains * columns.max(8) * TILE * group * 4
        };
        let mut fitting = ladder.iter().filter(|(_, columns)| shared(*columns) <= MOST_SHARED);
        let enough = fitting.clone().find(|(_, columns)| *columns >= problem.m);
        let (entry, columns) = enough.or_else(|| fitting.next_back())?;
        (*columns > 1 || problem.m == 1).then(|| (*entry, shared(*columns), *columns))
    }

    /// What is launched for a problem that it serves.
    pub(super) fn form(&self, problem: &MatmulProblem, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
        let (m, k, width) = (problem.m, problem.k, problem.width());
        let mut form = DeviceForm { outputs: vec![output("out", DType::F32, &[m, width])], ..DeviceForm::default() };
        let mut fixed = |bytes: Vec<u8>| {
            form.fixed.push(bytes);
            Arg::Fixed(form.fixed.len() - 1)
        };
        let activation = match problem.activation.dtype() {
            Some(dtype) => {
                let x = fixed(input(ID, inputs, "activation", dtype, m * k)?.bytes.clone());
                (x, Arg::Null)
            }
            None => (
                fixed(input(ID, inputs, "quants", DType::I8, m * k)?.bytes.clone()),
                fixed(input(ID, inputs, "scales", DType::F32, m * problem.blocks())?.bytes.clone()),
            ),
        };
        let residual = match problem.epilogue {
            Epilogue::None => Arg::Null,
            Epilogue::Residual => fixed(input(ID, inputs, "residual", DType::F32, m * width)?.bytes.clone()),
        };
        let (mut weights, mut outer) = (Vec::new(), Vec::new());
        for (index, segment) in problem.segments.iter().enumerate() {
            let stored = input(ID, inputs, &format!("weight{index}"), DType::U8, segment.bytes(k))?;
            weights.push((*segment, stored.bytes.as_slice()));
            outer.push(match segment.outer_tensor(k) {
                Some((name, shape)) => {
                    let elements = shape.iter().product();
                    input(ID, inputs, &format!("{name}{index}"), DType::F32, elements)?.to_f32()
                }
                None => Vec::new(),
            });
        }
        match self.kernel {
            Kernel::Stored => stored(&mut form, problem, &weights, &outer, activation, residual),
            Kernel::Fragment(shape) => {
                let (entry, shared, columns) = self.entry(shape, problem).unwrap_or(("product1", 0, 1));
                let fragment = Fragment::of(self.format).unwrap_or(&FRAGMENTS[0]);
                let packed: Vec<Vec<u8>> =
                    weights.iter().map(|(segment, stored)| fragment.pack(*segment, k, stored)).collect();
                form.rotating = vec![packed.concat()];
                let (places, tiles) = places(problem);
                let scales: Vec<f32> = weights
                    .iter()
                    .zip(&outer)
                    .flat_map(|((segment, _), outer)| {
                        let scale = outer.first().copied().unwrap_or(1.0);
                        std::iter::repeat_n(scale, segment.n.div_ceil(TILE))
                    })
                    .collect();
                form.fixed.push(places);
                form.fixed.push(bytemuck::cast_slice(&scales).to_vec());
                let (places, scales) = (Arg::Fixed(form.fixed.len() - 2), Arg::Fixed(form.fixed.len() - 1));
                let blocks = tiles.div_ceil(shape.group()) * if shape.is_cluster { 8 } else { 1 };
                form.launches = vec![LaunchForm {
                    entry: entry.to_owned(),
                    grid: [blocks as u32, m.div_ceil(columns) as u32, 1],
                    block: [256, 1, 1],
                    shared_bytes: shared as u32,
                    args: vec![
                        Arg::Rotating(0),
                        places,
                        activation.0,
                        activation.1,
                        residual,
                        scales,
                        Arg::Output(0),
                        Arg::U32(m as u32),
                        Arg::U32(problem.blocks() as u32),
                        Arg::U32(tiles as u32),
                        Arg::U32(width as u32),
                    ],
                    persistent: Some(if shape.is_cluster { 8 } else { 1 }),
                }];
            }
            Kernel::FragmentFloat { .. } | Kernel::FragmentDirect => {
                let is_cluster = self.kernel == Kernel::FragmentFloat { is_cluster: true };
                let packed: Vec<Vec<u8>> =
                    weights.iter().map(|(segment, stored)| pack_float(*segment, k, stored)).collect();
                let scales: Vec<f32> = weights
                    .iter()
                    .zip(&outer)
                    .flat_map(|((segment, _), outer)| {
                        (0..segment.n.div_ceil(TILE))
                            .flat_map(|tile| segment.row_scales(k, outer, tile * TILE).to_vec())
                    })
                    .collect();
                form.rotating = vec![packed.concat(), bytemuck::cast_slice(&scales).to_vec()];
                let (places, tiles) = places(problem);
                form.fixed.push(places);
                let places = Arg::Fixed(form.fixed.len() - 1);
                let (entry, shared, columns) = self.float_entry(problem).unwrap_or(("product1", 0, 1));
                let blocks = if is_cluster { tiles.div_ceil(8) * 8 } else { tiles };
                form.launches = vec![LaunchForm {
                    entry: entry.to_owned(),
                    grid: [blocks as u32, m.div_ceil(columns) as u32, 1],
                    block: [256, 1, 1],
                    shared_bytes: shared as u32,
                    args: vec![
                        Arg::Rotating(0),
                        Arg::Rotating(1),
                        places,
                        activation.0,
                        residual,
                        Arg::Output(0),
                        Arg::U32(m as u32),
                        Arg::U32(k as u32),
                        Arg::U32(tiles as u32),
                        Arg::U32(width as u32),
                    ],
                    persistent: (self.kernel != Kernel::FragmentDirect).then_some(if is_cluster { 8 } else { 1 }),
                }];
            }
        }
        Ok(form)
    }
}

/// Column of the output and rows of every row tile, as pairs of words; and how many there are.
fn places(problem: &MatmulProblem) -> (Vec<u8>, usize) {
    let (mut words, mut column) = (Vec::<u32>::new(), 0);
    for segment in &problem.segments {
        for first in (0..segment.n).step_by(TILE) {
            words.extend([(column + first) as u32, (segment.n - first).min(TILE) as u32]);
        }
        column += segment.n;
    }
    let tiles = words.len() / 2;
    (bytemuck::cast_slice(&words).to_vec(), tiles)
}

/// One launch a segment over the stored bytes.
fn stored(
    form: &mut DeviceForm,
    problem: &MatmulProblem,
    weights: &[(Segment, &[u8])],
    outer: &[Vec<f32>],
    activation: (Arg, Arg),
    residual: Arg,
) {
    let mut column = 0;
    for ((segment, bytes), outer) in weights.iter().zip(outer) {
        form.rotating.push(bytes.to_vec());
        let weight = Arg::Rotating(form.rotating.len() - 1);
        let scales = if outer.is_empty() {
            Arg::Null
        } else {
            form.fixed.push(bytemuck::cast_slice(outer).to_vec());
            Arg::Fixed(form.fixed.len() - 1)
        };
        let second = match problem.activation {
            Activation::Q8 => activation.1,
            Activation::F32 => Arg::U32(0),
            Activation::F16 => Arg::U32(1),
            Activation::Bf16 => Arg::U32(2),
        };
        let rows_of_block = if problem.activation == Activation::Q8 { 32 } else { 8 };
        form.launches.push(LaunchForm {
            entry: "product_stored".to_owned(),
            grid: [segment.n.div_ceil(rows_of_block) as u32, problem.m as u32, 1],
            block: [256, 1, 1],
            shared_bytes: 0,
            args: vec![
                weight,
                scales,
                activation.0,
                second,
                residual,
                Arg::Output(0),
                Arg::U32(problem.m as u32),
                Arg::U32(problem.k as u32),
                Arg::U32(segment.n as u32),
                Arg::U32(column as u32),
                Arg::U32(problem.width() as u32),
            ],
            persistent: None,
        });
        column += segment.n;
    }
}
