//! The registered variants of the matrix product: one function and one entry each.

use std::ops::Range;
use std::sync::LazyLock;

use memra_contract::{BlockFormat, IsaTier, order};

#[cfg(target_arch = "x86_64")]
use super::block_panel::{self, Panelled as _};
use super::layout::{Layout, PackedSegment};
use super::problem::MatmulProblem;
use super::{ID, cuda, scalar};
#[cfg(target_arch = "x86_64")]
use super::{
    avx2_block_panel8, avx2_f32_row, avx2_f32_tile4, avx2_float_tile, avx2_q4_1_panel8, avx2_q8_panel8, avx2_q8_row,
    avx512vnni_block_panel16, avx512vnni_float_tile, avx512vnni_q4_1_panel16, avx512vnni_q8_panel16,
};
use crate::backend::host::Part;
use crate::contract::{PrepareError, Source, Target, Variant};

/// Activations in int8 planes.
#[derive(Debug, Clone, Copy)]
pub struct Q8Rows<'a> {
    /// Quants, i8 `[m, k]`, -127..=127.
    pub quants: &'a [i8],
    /// Scales, f32 `[m, k/32]`.
    pub scales: &'a [f32],
    /// Sums of the quants of a block, i16 `[m, k/32]`.
    pub sums: &'a [i16],
}

/// What a kernel reads beside the weight.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// Rows of the activation.
    pub m: usize,
    /// Length of a row.
    pub k: usize,
    /// Activations of an act=f32 problem, `[m, k]`; empty otherwise.
    pub floats: &'a [f32],
    /// Activations of an act=q8 problem; empty otherwise.
    pub planes: Q8Rows<'a>,
}

/// Multiplies the weight rows of a range with all rows of the activation.
///
/// Column `j` of the part is weight row `rows.start + j`. A range starts at a multiple of the variant's unit.
pub type HostKernel = fn(&Operands<'_>, &PackedSegment, Range<usize>, &mut Part<'_, f32>);

/// One variant with what only this contract knows of it.
#[derive(Debug)]
pub struct MatmulVariant {
    /// What every contract knows.
    pub listed: Variant,
    /// Format of the segments it serves.
    pub format: BlockFormat,
    /// Layout it reads.
    pub layout: Layout,
    /// Weight rows it works on together: ranges start at multiples of this.
    pub unit: usize,
    /// The kernel.
    pub kernel: HostKernel,
}

macro_rules! source {
    ($file:expr) => {
        Source { path: concat!("kernels/src/ops/matmul/", $file), text: include_str!($file) }
    };
}

macro_rules! scalar {
    ($name:literal, $format:expr, $text:literal, $class:expr) => {
        MatmulVariant {
            listed: Variant {
                name: $name,
                summary: concat!(
                    "the order class in plain loops, a stored row unpacked once for all rows of the activation; the baseline of ",
                    $text,
                    " segments"
                ),
                target: Target::Host(IsaTier::Scalar),
                layout: "stored",
                order_class: $class,
                rows: (1, 4096),
                source: source!("scalar.rs"),
            },
            format: $format,
            layout: Layout::Stored,
            unit: 1,
            kernel: scalar::unpacked,
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! block_panel {
    ($name:literal, $form:ident, $tier:ident, $rows:literal, $layout:literal, $module:ident, $text:literal) => {
        MatmulVariant {
            listed: Variant {
                name: $name,
                summary: $text,
                target: Target::Host(IsaTier::$tier),
                layout: $layout,
                order_class: block_panel::$form::FORM.class,
                rows: (1, 4096),
                source: source!(concat!(stringify!($module), ".rs")),
            },
            format: block_panel::$form::FORM.format,
            layout: Layout::BlockPanel { rows: $rows },
            unit: $rows,
            kernel: $module::kernel::<block_panel::$form>,
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! block_panel8 {
    ($name:literal, $form:ident) => {
        block_panel!(
            $name,
            $form,
            Avx2,
            8,
            "panel8_block",
            avx2_block_panel8,
            "panels of eight weight rows in chain order, blocks with their scales in one stream, codes unpacked once for four \
             activation rows"
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! block_panel16 {
    ($name:literal, $form:ident) => {
        block_panel!(
            $name,
            $form,
            Avx512Vnni,
            16,
            "panel16_block",
            avx512vnni_block_panel16,
            "panels of sixteen weight rows in chain order, blocks with their scales in one stream, codes unpacked once for \
             sixteen activation rows"
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! float_tile {
    ($name:literal, $format:ident, $class:ident, $tier:ident, $file:literal, $kernel:expr) => {
        MatmulVariant {
            listed: Variant {
                name: $name,
                summary: "a few weight rows with a few activation rows, weights widened as they are loaded",
                target: Target::Host(IsaTier::$tier),
                layout: "stored",
                order_class: order::$class,
                rows: (1, 4096),
                source: source!($file),
            },
            format: BlockFormat::$format,
            layout: Layout::Stored,
            unit: 1,
            kernel: $kernel,
        }
    };
}

/// The variants, baselines first.
pub static VARIANTS: &[MatmulVariant] = &[
    MatmulVariant {
        listed: Variant {
            name: "scalar_q8",
            summary: "the order class in plain loops over stored blocks; the baseline of act=q8",
            target: Target::Host(IsaTier::Scalar),
            layout: "stored",
            order_class: order::DOT_I8_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("scalar.rs"),
        },
        format: BlockFormat::Q8_0,
        layout: Layout::Stored,
        unit: 1,
        kernel: scalar::q8,
    },
    MatmulVariant {
        listed: Variant {
            name: "scalar_f32",
            summary: "the order class in plain loops; the baseline of act=f32",
            target: Target::Host(IsaTier::Scalar),
            layout: "stored",
            order_class: order::DOT_F32_CHAIN32,
            rows: (1, 4096),
            source: source!("scalar.rs"),
        },
        format: BlockFormat::F32,
        layout: Layout::Stored,
        unit: 1,
        kernel: scalar::f32,
    },
    MatmulVariant {
        listed: Variant {
            name: "scalar_q4_1",
            summary: "the order class in plain loops over stored blocks; the baseline of q4_1 segments",
            target: Target::Host(IsaTier::Scalar),
            layout: "stored",
            order_class: order::DOT_U4_MIN_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("scalar.rs"),
        },
        format: BlockFormat::Q4_1,
        layout: Layout::Stored,
        unit: 1,
        kernel: scalar::q4_1,
    },
    scalar!("scalar_f16", BlockFormat::F16, "f16", order::DOT_F32_CHAIN32),
    scalar!("scalar_bf16", BlockFormat::BF16, "bf16", order::DOT_F32_CHAIN32),
    scalar!("scalar_f8_e4m3", BlockFormat::F8_E4M3, "f8_e4m3", order::DOT_F8_BLOCK128_CHAIN32),
    scalar!("scalar_q4_0", BlockFormat::Q4_0, "q4_0", order::DOT_I8_BLOCK32_CHAIN8),
    scalar!("scalar_q5_0", BlockFormat::Q5_0, "q5_0", order::DOT_I8_BLOCK32_CHAIN8),
    scalar!("scalar_q5_1", BlockFormat::Q5_1, "q5_1", order::DOT_U_MIN_BLOCK32_CHAIN8),
    scalar!("scalar_q4_k", BlockFormat::Q4_K, "q4_k", order::DOT_U_MIN_BLOCK32_CHAIN8),
    scalar!("scalar_q5_k", BlockFormat::Q5_K, "q5_k", order::DOT_U_MIN_BLOCK32_CHAIN8),
    scalar!("scalar_q6_k", BlockFormat::Q6_K, "q6_k", order::DOT_I8_SUB16_BLOCK32_CHAIN8),
    scalar!("scalar_iq4_xs", BlockFormat::IQ4_XS, "iq4_xs", order::DOT_I8_BLOCK32_CHAIN8),
    scalar!("scalar_iq3_s", BlockFormat::IQ3_S, "iq3_s", order::DOT_I8_BLOCK32_CHAIN8),
    scalar!("scalar_nvfp4", BlockFormat::NVFP4, "nvfp4", order::DOT_E2M1_BLOCK16_CHAIN8),
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx2_q4_1_panel8",
            summary: "panels of eight weight rows in chain order, a lane a row, pair sums kept in sixteen bits over a block",
            target: Target::Host(IsaTier::Avx2),
            layout: "panel8_min",
            order_class: order::DOT_U4_MIN_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("avx2_q4_1_panel8.rs"),
        },
        format: BlockFormat::Q4_1,
        layout: Layout::MinPanel { rows: 8 },
        unit: 8,
        kernel: avx2_q4_1_panel8::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx512vnni_q4_1_panel16",
            summary: "panels of sixteen weight rows in chain order, a block with its scales and minima in one stream, weights \
                      unpacked once for eight activation rows",
            target: Target::Host(IsaTier::Avx512Vnni),
            layout: "panel16_min",
            order_class: order::DOT_U4_MIN_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("avx512vnni_q4_1_panel16.rs"),
        },
        format: BlockFormat::Q4_1,
        layout: Layout::MinPanel { rows: 16 },
        unit: 16,
        kernel: avx512vnni_q4_1_panel16::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx2_q8_row",
            summary: "one dot product at a time over stored blocks, eight blocks reduced together into the eight chains",
            target: Target::Host(IsaTier::Avx2),
            layout: "stored",
            order_class: order::DOT_I8_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("avx2_q8_row.rs"),
        },
        format: BlockFormat::Q8_0,
        layout: Layout::Stored,
        unit: 1,
        kernel: avx2_q8_row::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx2_q8_panel8",
            summary: "panels of eight weight rows in chain order, a lane a row, weights loaded once for four activation rows",
            target: Target::Host(IsaTier::Avx2),
            layout: "panel8",
            order_class: order::DOT_I8_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("avx2_q8_panel8.rs"),
        },
        format: BlockFormat::Q8_0,
        layout: Layout::Panel { rows: 8, is_offset: false },
        unit: 8,
        kernel: avx2_q8_panel8::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx512vnni_q8_panel16",
            summary: "panels of sixteen weight rows in chain order, four products an instruction and lane, weights loaded once \
                      for eight activation rows",
            target: Target::Host(IsaTier::Avx512Vnni),
            layout: "panel16_offset",
            order_class: order::DOT_I8_BLOCK32_CHAIN8,
            rows: (1, 4096),
            source: source!("avx512vnni_q8_panel16.rs"),
        },
        format: BlockFormat::Q8_0,
        layout: Layout::Panel { rows: 16, is_offset: true },
        unit: 16,
        kernel: avx512vnni_q8_panel16::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx2_f32_row",
            summary: "one dot product at a time, thirty-two chains in four vectors",
            target: Target::Host(IsaTier::Avx2),
            layout: "stored",
            order_class: order::DOT_F32_CHAIN32,
            rows: (1, 4096),
            source: source!("avx2_f32_row.rs"),
        },
        format: BlockFormat::F32,
        layout: Layout::Stored,
        unit: 1,
        kernel: avx2_f32_row::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    MatmulVariant {
        listed: Variant {
            name: "avx2_f32_tile4",
            summary: "a weight row with four activation rows, sixteen chains a pass, so that a loaded weight is used four times",
            target: Target::Host(IsaTier::Avx2),
            layout: "stored",
            order_class: order::DOT_F32_CHAIN32,
            rows: (1, 4096),
            source: source!("avx2_f32_tile4.rs"),
        },
        format: BlockFormat::F32,
        layout: Layout::Stored,
        unit: 1,
        kernel: avx2_f32_tile4::kernel,
    },
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_q4_0_panel8", Q4Zero),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_q4_0_panel16", Q4Zero),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_q5_0_panel8", Q5Zero),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_q5_0_panel16", Q5Zero),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_q5_1_panel8", Q5One),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_q5_1_panel16", Q5One),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_q4_k_panel8", Q4K),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_q4_k_panel16", Q4K),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_q5_k_panel8", Q5K),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_q5_k_panel16", Q5K),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_q6_k_panel8", Q6K),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_q6_k_panel16", Q6K),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_iq4_xs_panel8", Iq4Xs),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_iq4_xs_panel16", Iq4Xs),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_iq3_s_panel8", Iq3S),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_iq3_s_panel16", Iq3S),
    #[cfg(target_arch = "x86_64")]
    block_panel8!("avx2_nvfp4_panel8", Nvfp4),
    #[cfg(target_arch = "x86_64")]
    block_panel16!("avx512vnni_nvfp4_panel16", Nvfp4),
    #[cfg(target_arch = "x86_64")]
    float_tile!(
        "avx512vnni_f32_tile",
        F32,
        DOT_F32_CHAIN32,
        Avx512Vnni,
        "avx512vnni_float_tile.rs",
        avx512vnni_float_tile::kernel::<avx512vnni_float_tile::F32>
    ),
    #[cfg(target_arch = "x86_64")]
    float_tile!("avx2_f16_tile", F16, DOT_F32_CHAIN32, Avx2, "avx2_float_tile.rs", avx2_float_tile::f16),
    #[cfg(target_arch = "x86_64")]
    float_tile!(
        "avx512vnni_f16_tile",
        F16,
        DOT_F32_CHAIN32,
        Avx512Vnni,
        "avx512vnni_float_tile.rs",
        avx512vnni_float_tile::kernel::<avx512vnni_float_tile::F16>
    ),
    #[cfg(target_arch = "x86_64")]
    float_tile!("avx2_bf16_tile", BF16, DOT_F32_CHAIN32, Avx2, "avx2_float_tile.rs", avx2_float_tile::bf16),
    #[cfg(target_arch = "x86_64")]
    float_tile!(
        "avx512vnni_bf16_tile",
        BF16,
        DOT_F32_CHAIN32,
        Avx512Vnni,
        "avx512vnni_float_tile.rs",
        avx512vnni_float_tile::kernel::<avx512vnni_float_tile::Bf16>
    ),
    #[cfg(target_arch = "x86_64")]
    float_tile!(
        "avx2_f8_e4m3_tile",
        F8_E4M3,
        DOT_F8_BLOCK128_CHAIN32,
        Avx2,
        "avx2_float_tile.rs",
        avx2_float_tile::e4m3
    ),
    #[cfg(target_arch = "x86_64")]
    float_tile!(
        "avx512vnni_f8_e4m3_tile",
        F8_E4M3,
        DOT_F8_BLOCK128_CHAIN32,
        Avx512Vnni,
        "avx512vnni_float_tile.rs",
        avx512vnni_float_tile::kernel::<avx512vnni_float_tile::E4m3>
    ),
];

static LISTED: LazyLock<Vec<&'static Variant>> =
    LazyLock::new(|| VARIANTS.iter().map(|v| &v.listed).chain(cuda::VARIANTS.iter().map(|v| &v.listed)).collect());

/// The variant of a name.
pub fn by_name(name: &str) -> Option<&'static MatmulVariant> {
    VARIANTS.iter().find(|entry| entry.listed.name == name)
}

pub(super) fn listed() -> &'static [&'static Variant] {
    &LISTED
}

/// The entry of a CUDA variant, if it serves the problem.
pub(super) fn find_cuda(variant: &Variant, problem: &MatmulProblem) -> Result<&'static cuda::CudaMatmul, PrepareError> {
    let refuse = |why: String| PrepareError::Unsupported {
        contract: ID,
        variant: variant.name.to_owned(),
        problem: problem.to_problem().to_string(),
        why,
    };
    let entry = cuda::VARIANTS
        .iter()
        .find(|entry| entry.listed.name == variant.name)
        .ok_or_else(|| refuse("it is no CUDA variant".to_owned()))?;
    match entry.refusal(problem) {
        Some(why) => Err(refuse(why)),
        None => Ok(entry),
    }
}

/// The entry of a listed variant, if it serves the problem.
pub(super) fn find(variant: &Variant, problem: &MatmulProblem) -> Result<&'static MatmulVariant, PrepareError> {
    let refuse = |why: String| PrepareError::Unsupported {
        contract: ID,
        variant: variant.name.to_owned(),
        problem: problem.to_problem().to_string(),
        why,
    };
    let entry = VARIANTS
        .iter()
        .find(|entry| entry.listed.name == variant.name)
        .ok_or_else(|| refuse("it is not registered".to_owned()))?;
    if let Some(other) = problem.segments.iter().find(|segment| segment.format != entry.format) {
        return Err(refuse(format!("it serves {} segments, and one is {}", entry.format, other.format)));
    }
    let (fewest, most) = entry.listed.rows;
    if !(fewest..=most).contains(&(problem.m as u64)) {
        return Err(refuse(format!("it serves m = {fewest} to {most}")));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::super::problem::{FORMATS, order_class};
    use super::*;

    #[test]
    fn every_format_has_a_baseline_and_every_variant_the_class_of_its_format() {
        for format in FORMATS {
            let baseline = VARIANTS.iter().find(|variant| variant.format == *format);
            assert!(
                baseline.is_some_and(|variant| variant.listed.target.is_within(IsaTier::Scalar)),
                "{format} has no baseline"
            );
        }
        for variant in VARIANTS {
            assert_eq!(variant.listed.order_class, order_class(variant.format), "{}", variant.listed.name);
        }
    }
}
