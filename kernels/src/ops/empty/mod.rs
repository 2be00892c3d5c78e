//! A launch with nothing in it: the gap between launches.

mod prepared;
mod scalar;

use std::sync::LazyLock;

use memra_contract::device::CudaArch;
use memra_contract::{Cost, DType, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance, order};

use crate::case::CaseFile;
use crate::contract::{
    AxisInfo, Contract, ContractInfo, CudaBuild, InputError, PrepareError, Prepared, ProblemClass, Reference, Source,
    Target, TensorInfo, Variant,
};
use crate::form::{Arg, DeviceForm, LaunchForm, LaunchMode, OutputForm};
use crate::input::Stream;
use crate::ops::{input, shared};

/// The contract's name.
pub const ID: &str = "empty";

/// Threads of a block.
const THREADS: u32 = 128;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "out = a word, written by one thread: the time of a launch is the gap between launches",
    axes: &[
        AxisInfo { name: "mode", meaning: "eager, graph or overlapped: how launches reach a device" },
        AxisInfo { name: "blocks", meaning: "blocks of 128 threads, 1 to 65536" },
    ],
    tensors: &[
        TensorInfo { name: "word", role: "weight", meaning: "i32 [1], an argument of the launch" },
        TensorInfo { name: "out", role: "out", meaning: "i32 [1]" },
    ],
    scalars: &["word"],
    families: FAMILIES,
    rows_axis: "blocks",
};

const FAMILIES: &[(&str, &str)] = &[("word", "a random word")];

const MODES: [(LaunchMode, &str); 3] =
    [(LaunchMode::Eager, "eager"), (LaunchMode::Graph, "graph"), (LaunchMode::Overlapped, "overlapped")];

static CASES: LazyLock<CaseFile> = LazyLock::new(|| CaseFile::compiled_in(include_str!("cases.toml")));

/// The variants, baseline first.
pub static VARIANTS: &[Variant] = &[
    Variant {
        name: "scalar",
        summary: "a call of the thread pool with a task for each block; the baseline",
        target: Target::Host(IsaTier::Scalar),
        layout: "words",
        order_class: order::EXACT_U32,
        rows: (1, 1),
        source: Source { path: "kernels/src/ops/empty/scalar.rs", text: include_str!("scalar.rs") },
    },
    Variant {
        name: "cuda_gap",
        summary: "a launch that begins when the one before it has ended",
        target: Target::Cuda(CudaBuild { archs: &CudaArch::ALL, defines: &[("OVERLAPPED", "0")] }),
        layout: "words",
        order_class: order::EXACT_U32,
        rows: (1, 1),
        source: Source { path: "kernels/src/ops/empty/empty.cu", text: include_str!("empty.cu") },
    },
    Variant {
        name: "cuda_gap_wait",
        summary: "a launch that lets the next one begin at once and waits for the one before it (griddepcontrol)",
        target: Target::Cuda(CudaBuild {
            archs: &[CudaArch::Sm90a, CudaArch::Sm100a, CudaArch::Sm120a],
            defines: &[("OVERLAPPED", "1")],
        }),
        layout: "words",
        order_class: order::EXACT_U32,
        rows: (1, 1),
        source: Source { path: "kernels/src/ops/empty/empty.cu", text: include_str!("empty.cu") },
    },
];

static LISTED: LazyLock<Vec<&'static Variant>> = LazyLock::new(|| VARIANTS.iter().collect());

#[derive(Debug, Clone, Copy)]
struct Sizes {
    mode: LaunchMode,
    blocks: usize,
}

impl Sizes {
    fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["mode", "blocks"])?;
        let word = problem.word(ID, "mode")?;
        let Some((mode, _)) = MODES.into_iter().find(|(_, name)| *name == word) else {
            return Err(ProblemError::Value {
                contract: ID.to_owned(),
                axis: "mode".to_owned(),
                value: word,
                why: "it must be eager, graph or overlapped".to_owned(),
            });
        };
        Ok(Self { mode, blocks: problem.size(ID, "blocks", 1..=65536)? as usize })
    }
}

fn out_of(inputs: &TensorSet) -> u32 {
    let word = inputs.get("word").map(shared::to_integers).unwrap_or_default();
    word.first().copied().unwrap_or_default()
}

/// The contract.
#[derive(Debug)]
pub struct Empty;

impl Contract for Empty {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Sizes::parse(problem)?;
        Ok(problem.clone())
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Cost { flops: 0, read_bytes: 4, written_bytes: 4 })
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Tolerance { max_scaled_error: 0.0, reason: "a word is copied" })
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        let class = problem.word(ID, "mode")?;
        Sizes::parse(problem)?;
        Ok(ProblemClass { format: "none".to_owned(), class, m: 1 })
    }

    fn cases(&self) -> &'static CaseFile {
        &CASES
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        Sizes::parse(problem)?;
        if family != "word" {
            return Err(shared::no_family(ID, family, FAMILIES));
        }
        let word = Stream::new(seed, "word").bits(0) as u32;
        Ok(TensorSet::new(vec![shared::integers("word", &[1], &[word])]))
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        Sizes::parse(problem)?;
        Ok(TensorSet::new(vec![shared::integers("out", &[1], &[out_of(inputs)])]))
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Sizes::parse(problem)?;
        Ok(Reference { values: vec![f64::from(out_of(inputs))], scales: vec![1.0] })
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        outputs.get("out").map(shared::to_integers).unwrap_or_default().into_iter().map(f64::from).collect()
    }

    fn variants(&self) -> &'static [&'static Variant] {
        &LISTED
    }

    fn supports(&self, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        find(variant, problem).map(|_| ())
    }

    fn prepare_host(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        let sizes = find(variant, problem)?;
        if !matches!(variant.target, Target::Host(_)) {
            return Err(shared::unsupported(ID, variant.name, problem, "it does not run on a host".to_owned()));
        }
        Ok(Box::new(prepared::PreparedEmpty::new(sizes, inputs, copies)?))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        let sizes = find(variant, problem)?;
        let word: &Tensor = input(ID, inputs, "word", DType::I32, 1)?;
        Ok(DeviceForm {
            // No launch reads it: the word is an argument, so that nothing waits for memory.
            rotating: vec![word.bytes.clone()],
            outputs: vec![OutputForm { name: "out".to_owned(), dtype: DType::I32, shape: vec![1] }],
            launches: vec![LaunchForm {
                entry: "empty".to_owned(),
                grid: [sizes.blocks as u32, 1, 1],
                block: [THREADS, 1, 1],
                shared_bytes: 0,
                args: vec![Arg::Output(0), Arg::U32(out_of(inputs))],
                persistent: None,
            }],
            mode: sizes.mode,
            ..DeviceForm::default()
        })
    }
}

/// The sizes, where the variant is launched in the problem's mode.
fn find(variant: &Variant, problem: &Problem) -> Result<Sizes, PrepareError> {
    let sizes = Sizes::parse(problem)?;
    let is_overlapped = sizes.mode == LaunchMode::Overlapped;
    let serves = match variant.name {
        "scalar" => true,
        "cuda_gap" => !is_overlapped,
        "cuda_gap_wait" => is_overlapped,
        _ => return Err(shared::unregistered(ID, variant.name, problem)),
    };
    if serves {
        return Ok(sizes);
    }
    let why = if is_overlapped { "it does not wait for the launch before it" } else { "it serves mode=overlapped" };
    Err(shared::unsupported(ID, variant.name, problem, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_choose_the_variant_and_reach_the_form() {
        for (mode, name) in MODES {
            let problem: Problem = format!("mode={name},blocks=132").parse().unwrap();
            let inputs = Empty.inputs(&problem, "word", 4).unwrap();
            let cuda: Vec<_> = VARIANTS[1..].iter().filter(|v| Empty.supports(v, &problem).is_ok()).collect();
            assert_eq!(cuda.len(), 1, "{name}");
            assert_eq!(cuda[0].name == "cuda_gap_wait", mode == LaunchMode::Overlapped);
            let form = Empty.device_form(cuda[0], &problem, &inputs).unwrap();
            assert_eq!((form.mode, form.fault()), (mode, None));
            assert_eq!(form.launches[0].grid, [132, 1, 1]);
            assert_eq!(form.launches[0].args[1], Arg::U32(out_of(&inputs)));
            assert!(Empty.prepare_host(cuda[0], &problem, &inputs, 1).is_err());
        }
    }

    #[test]
    fn bad_problems_name_the_axis() {
        for (text, named) in
            [("mode=lazy,blocks=1", "`mode`"), ("mode=graph,blocks=0", "`blocks`"), ("blocks=1", "`mode`")]
        {
            let error = Empty.normalise(&text.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
