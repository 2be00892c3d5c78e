//! Matrix product: activations of `m` rows times the weights of one or more segments that share them.

#[cfg(target_arch = "x86_64")]
mod avx2_block_panel8;
#[cfg(target_arch = "x86_64")]
mod avx2_f32_row;
#[cfg(target_arch = "x86_64")]
mod avx2_f32_tile4;
#[cfg(target_arch = "x86_64")]
mod avx2_float_tile;
#[cfg(target_arch = "x86_64")]
mod avx2_q4_1_panel8;
#[cfg(target_arch = "x86_64")]
mod avx2_q8_panel8;
#[cfg(target_arch = "x86_64")]
mod avx2_q8_row;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_block_panel16;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_float_tile;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_q4_1_panel16;
#[cfg(target_arch = "x86_64")]
mod avx512vnni_q8_panel16;
mod block_panel;
mod cuda;
mod fragment;
mod inputs;
mod judge;
mod layout;
mod prepared;
mod problem;
mod product;
mod row;
mod rows;
mod scalar;
mod stored_block;
mod variants;

pub(crate) use layout::panel_order;
pub use layout::{Layout, PackedSegment, StoredSegment};
pub use problem::{Activation, Epilogue, FORMATS, MatmulProblem, Segment, is_float, order_class};
pub use product::{BoundSegment, Product};
pub use variants::{HostKernel, MatmulVariant, Operands, Q8Rows, VARIANTS, by_name};

use std::sync::LazyLock;

use memra_contract::{Cost, Problem, ProblemError, TensorSet, Tolerance};

use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, InputError, PeerReference, PrepareError, Prepared, ProblemClass, Reference,
    Target, TensorInfo, Variant,
};
use crate::form::DeviceForm;

/// The contract's name.
pub const ID: &str = "matmul";

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out[m, n] = activation[m, k] * weight[n, k]^T, for a list of segments that share the activation",
    axes: &[
        AxisInfo { name: "m", meaning: "rows of the activation, 1 to 4096" },
        AxisInfo {
            name: "k",
            meaning: "length of a row, a multiple of 32 and of every segment's block, at most 131072",
        },
        AxisInfo {
            name: "seg",
            meaning: "segments as format:n joined by +, for example q8_0:576+q8_0:192; formats f32, f16, bf16, \
                      f8_e4m3 (one scale for 128 rows by 128 elements), q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k, \
                      iq4_xs, iq3_s and nvfp4; float formats and quantised ones are not mixed",
        },
        AxisInfo {
            name: "act",
            meaning: "activation type: q8 (int8 planes, for quantised segments), f32 (for float segments, and for quantised \
                      segments, where a launch quantises it first), f16 or bf16 (for float segments); by default what the \
                      segments multiply",
        },
        AxisInfo { name: "epi", meaning: "epilogue: none (the default) or residual (out = residual + product)" },
    ],
    tensors: &[
        TensorInfo { name: "quants", role: "in", meaning: "i8 [m, k], -127..=127, act=q8" },
        TensorInfo { name: "scales", role: "in", meaning: "f32 [m, k/32], act=q8" },
        TensorInfo { name: "sums", role: "in", meaning: "i16 [m, k/32], sums of the quants of a block, act=q8" },
        TensorInfo { name: "activation", role: "in", meaning: "f32, f16 or bf16 [m, k], act of the same name" },
        TensorInfo { name: "residual", role: "in", meaning: "f32 [m, sum n], epi=residual; does not alias out" },
        TensorInfo { name: "weight0, weight1, ...", role: "weight", meaning: "[n, k] in the segment's block format" },
        TensorInfo {
            name: "scale0, scale1, ...",
            role: "weight",
            meaning: "f32 [ceil(n/128), ceil(k/128)], one for 128 rows by 128 elements of an f8_e4m3 segment",
        },
        TensorInfo { name: "outer0, outer1, ...", role: "weight", meaning: "f32 [1], multiplies an nvfp4 segment" },
        TensorInfo { name: "out", role: "out", meaning: "f32 [m, sum n], segments side by side in a row" },
    ],
    scalars: &[],
    families: inputs::FAMILIES,
    rows_axis: "m",
};

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// The contract.
#[derive(Debug)]
pub struct Matmul;

impl Contract for Matmul {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Ok(MatmulProblem::parse(problem)?.to_problem())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        Ok(MatmulProblem::parse(problem)?.cost())
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Ok(judge::tolerance(&MatmulProblem::parse(problem)?))
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        Ok(MatmulProblem::parse(problem)?.class())
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        inputs::generate(&MatmulProblem::parse(problem)?, family, seed)
    }

    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        inputs::with_weights(&MatmulProblem::parse(problem)?, inputs, weights)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        Ok(judge::ordered_outputs(&MatmulProblem::parse(problem)?, inputs))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Ok(judge::reference(&MatmulProblem::parse(problem)?, inputs))
    }

    fn peer_reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Option<PeerReference>, ProblemError> {
        Ok(judge::peer_reference(&MatmulProblem::parse(problem)?, inputs))
    }

    fn picked_rows(&self, problem: &Problem, inputs: &TensorSet, rows: &[usize]) -> Option<(Problem, TensorSet)> {
        rows::pick(&MatmulProblem::parse(problem).ok()?, inputs, rows)
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(|out| out.to_f32().into_iter().map(f64::from).collect()).unwrap_or_default()
    }

    fn variants(&self) -> &'static [&'static Variant] {
        variants::listed()
    }

    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        let problem = MatmulProblem::parse(problem)?;
        match variant.target {
            Target::Host(_) => variants::find(variant, &problem).map(|_| ()),
            Target::Cuda(_) => variants::find_cuda(variant, &problem).map(|_| ()),
        }
    }

    fn prepare_host(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        let problem = MatmulProblem::parse(problem)?;
        let variant = variants::find(variant, &problem)?;
        Ok(Box::new(prepared::PreparedMatmul::new(variant, problem, inputs, copies)?))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        let problem = MatmulProblem::parse(problem)?;
        variants::find_cuda(variant, &problem)?.form(&problem, inputs)
    }
}
