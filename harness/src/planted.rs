//! Kernels that are wrong on purpose, to see that the check on a card finds them: not registered, and named by no cell.
//!
//! The contract is `argmax` in everything but its variants.

use memra_contract::device::CudaArch;
use memra_contract::{Cost, DType, Problem, ProblemError, TensorSet, Tolerance, order};
use memra_kernels::case::CaseFile;
use memra_kernels::contract::{
    ContractInfo, CudaBuild, InputError, PrepareError, Prepared, ProblemClass, Source, Target, Variant,
};
use memra_kernels::form::{Arg, DeviceForm, LaunchForm, LaunchMode, OutputForm};
use memra_kernels::ops::argmax::Argmax;
use memra_kernels::{Contract, Reference};

/// The contract's name.
pub const ID: &str = "planted";

/// The variant that is right.
pub const RIGHT: &str = "right";

/// Threads of a block.
const THREADS: u32 = 256;

static INFO: ContractInfo = ContractInfo {
    id: ID,
    revision: 1,
    summary: "argmax, by kernels that are wrong on purpose and one that is right",
    axes: &[],
    tensors: &[],
    scalars: &[],
    families: &[],
    rows_axis: "m",
};

macro_rules! planted {
    ($name:literal, $summary:literal) => {
        Variant {
            name: $name,
            summary: $summary,
            target: Target::Cuda(CudaBuild { archs: &CudaArch::ALL, defines: &[] }),
            layout: "rows",
            order_class: order::ARGMAX_LOWEST,
            rows: (1, 4096),
            source: Source {
                path: concat!("harness/testdata/planted/", $name, ".cu"),
                text: include_str!(concat!("../testdata/planted/", $name, ".cu")),
            },
        }
    };
}

static ILLEGAL: Variant = planted!("illegal", "writes where there is no memory");
static RACE: Variant = planted!("race", "reads partial results without waiting for them");
static HALF: Variant = planted!("half", "leaves the second half of its rows as they are");
static GOOD: Variant = planted!("right", "one block a row; right");

/// Faults first, then the right one, which must pass behind them.
static VARIANTS: [&Variant; 4] = [&ILLEGAL, &RACE, &HALF, &GOOD];

/// The contract.
#[derive(Debug)]
pub struct Planted;

impl Contract for Planted {
    fn info(&self) -> &'static ContractInfo {
        &INFO
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        Argmax.normalise(problem)
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        Argmax.cost(problem)
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        Argmax.tolerance(problem)
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        Argmax.class(problem)
    }

    fn cases(&self) -> &'static CaseFile {
        Argmax.cases()
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        Argmax.inputs(problem, family, seed)
    }

    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        Argmax.with_weights(problem, inputs, weights)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        Argmax.ordered_outputs(problem, inputs)
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        Argmax.reference(problem, inputs)
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        Argmax.output_values(outputs)
    }

    fn variants(&self) -> &'static [&'static Variant] {
        &VARIANTS
    }

    fn supports(&self, _: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        Ok(Argmax.normalise(problem).map(|_| ())?)
    }

    fn prepare_host(
        &self,
        variant: &Variant,
        problem: &Problem,
        _: &TensorSet,
        _: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        Err(PrepareError::Unsupported {
            contract: ID,
            variant: variant.name.to_owned(),
            problem: problem.to_string(),
            why: "it runs on a card only".to_owned(),
        })
    }

    fn device_form(&self, _: &Variant, problem: &Problem, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
        let size = |axis| problem.size(ID, axis, 1..=u64::from(u32::MAX)).map(|size| size as u32);
        let (m, n) = (size("m")?, size("n")?);
        let missing =
            || PrepareError::Input { contract: ID, tensor: "logits".to_owned(), why: "is missing".to_owned() };
        let logits = inputs.get("logits").ok_or_else(missing)?;
        let launch = LaunchForm {
            entry: "planted".to_owned(),
            grid: [m, 1, 1],
            block: [THREADS, 1, 1],
            shared_bytes: 0,
            args: vec![Arg::Rotating(0), Arg::Output(0), Arg::U32(n)],
            persistent: None,
        };
        Ok(DeviceForm {
            rotating: vec![logits.bytes.clone()],
            outputs: vec![OutputForm { name: "out".to_owned(), dtype: DType::I32, shape: vec![m as usize] }],
            launches: vec![launch],
            mode: LaunchMode::Graph,
            ..DeviceForm::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_contract::DeviceKey;
    use memra_contract::device::CudaClass;
    use memra_kernels::backend::null::NullBackend;

    #[test]
    fn every_case_has_a_form_and_its_outputs_are_the_contracts() {
        for variant in Planted.variants() {
            assert!(
                variant.source.text.contains("extern \"C\" __global__") && variant.source.text.contains("planted(")
            );
            for case in &Planted.cases().cases {
                let problem = Planted.normalise(&case.problem().unwrap()).unwrap();
                let inputs = Planted.inputs(&problem, &case.families[0], 1).unwrap();
                let form = Planted.device_form(variant, &problem, &inputs).unwrap();
                assert_eq!(form.fault(), None);
                let out = Planted.ordered_outputs(&problem, &inputs).unwrap();
                let out = out.get("out").unwrap();
                assert_eq!((&form.outputs[0].shape, form.outputs[0].dtype), (&out.shape, out.dtype));
            }
        }
    }

    #[test]
    fn on_a_card_that_computes_nothing_all_of_them_fail() {
        use crate::arm::KernelArm;
        use crate::check::{CheckPlan, Checker, JudgedCase};
        use std::sync::Arc;
        let class = CudaClass { arch: CudaArch::Sm90a, sms: 1, l2_mib: 1, memory_gib: 1, power_w: 1 };
        let backend = NullBackend::new(DeviceKey::Cuda(class));
        let checker = Checker::new(CheckPlan { threads: vec![1], ..CheckPlan::default() }).unwrap();
        let problem = Problem::new().with("m", 3).with("n", 65);
        let case = Arc::new(JudgedCase::generated(&Planted, &problem, "normal", 1).unwrap());
        for variant in Planted.variants() {
            let arm = KernelArm::explicit(&Planted, variant);
            let gate = checker.check_kernel(&backend, &arm, &[Arc::clone(&case)], 0).gate;
            assert_eq!((gate.is_passed, gate.failures[0].reason.as_str()), (false, "poison"), "{}", variant.name);
        }
    }

    #[test]
    fn it_is_not_registered() {
        assert!(memra_kernels::registry::contract(ID).is_err());
    }
}
