//! A product of a device class, by a kernel that adds in an order of its own.

use std::sync::Arc;

use memra_contract::device::HostArch;
use memra_contract::{Cost, DeviceKey, IsaTier, Problem, ProblemError, Tensor, TensorSet, Tolerance};
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::Pool;
use memra_kernels::case::CaseFile;
use memra_kernels::contract::{
    ContractInfo, InputError, LaunchError, PrepareError, Prepared, ProblemClass, Source, Target, Variant,
};
use memra_kernels::{Contract, Reference, registry};

use super::*;
use crate::arm::KernelArm;
use memra_contract::order::DEVICE_EXAMPLE;

const M: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// A right answer that is not that of the executable class.
    Own,
    /// Rows behind the given one are computed in another way.
    ByPlace(usize),
    /// A problem of few rows is computed in another way.
    ByCount,
    /// Differs from run to run.
    Racy,
    /// Leaves the last row.
    Half,
    /// Beyond the tolerance.
    Wrong,
}

static VARIANT: Variant = Variant {
    name: "example",
    summary: "a float product in an order of its own",
    target: Target::Host(IsaTier::Scalar),
    layout: "stored",
    order_class: DEVICE_EXAMPLE,
    rows: (1, 4096),
    source: Source { path: "example.rs", text: "" },
};

struct Rows {
    order: Order,
    right: Vec<f32>,
    out: Vec<f32>,
    m: usize,
    launches: u32,
}

impl Prepared for Rows {
    fn launch(&mut self, _: &Pool, _: usize) -> Result<(), LaunchError> {
        let width = self.right.len() / self.m;
        self.launches += 1;
        for (i, (out, right)) in self.out.iter_mut().zip(&self.right).enumerate() {
            let row = i / width;
            // A unit in the last place is another order of the same terms.
            let other = match self.order {
                Order::Own | Order::Half => 1,
                Order::ByPlace(from) => u32::from(row >= from),
                Order::ByCount => u32::from(self.m < M),
                Order::Racy => self.launches % 2,
                Order::Wrong => 1 << 20,
            };
            if self.order != Order::Half || row + 1 < self.m {
                *out = f32::from_bits(right.to_bits() ^ other);
            }
        }
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        TensorSet::new(vec![Tensor::f32("out", &[self.m, self.out.len() / self.m], &self.out)])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.fill(f32::from_bits(pattern));
    }

    fn guards_hold(&self) -> bool {
        true
    }

    fn copy_bytes(&self) -> usize {
        1
    }
}

impl Backend for Order {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn device_key(&self) -> DeviceKey {
        DeviceKey::Host { arch: HostArch::Other, tier: IsaTier::Scalar }
    }

    fn prepare(
        &self,
        contract: &dyn Contract,
        _: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
        _: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        let right = contract.ordered_outputs(problem, inputs).unwrap().get("out").unwrap().to_f32();
        let m = problem.size("matmul", "m", 1..=4096)? as usize;
        Ok(Box::new(Rows { order: *self, out: vec![0.0; right.len()], right, m, launches: 0 }))
    }
}

/// The matrix product, whose own list does not know the variant.
struct Product(&'static dyn Contract);

impl Contract for Product {
    fn info(&self) -> &'static ContractInfo {
        self.0.info()
    }
    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        self.0.normalise(problem)
    }
    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        self.0.cost(problem)
    }
    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        self.0.tolerance(problem)
    }
    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        self.0.class(problem)
    }
    fn cases(&self) -> &'static CaseFile {
        self.0.cases()
    }
    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        self.0.inputs(problem, family, seed)
    }
    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        self.0.with_weights(problem, inputs, weights)
    }
    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        self.0.ordered_outputs(problem, inputs)
    }
    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        self.0.reference(problem, inputs)
    }
    fn picked_rows(&self, problem: &Problem, inputs: &TensorSet, rows: &[usize]) -> Option<(Problem, TensorSet)> {
        self.0.picked_rows(problem, inputs, rows)
    }
    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        self.0.output_values(outputs)
    }
    fn variants(&self) -> &'static [&'static Variant] {
        self.0.variants()
    }
    fn supports(&self, _: &Variant, _: &Problem) -> Result<(), PrepareError> {
        Ok(())
    }
    fn prepare_host(
        &self,
        _: &Variant,
        _: &Problem,
        _: &TensorSet,
        _: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        unreachable!("the backend prepares")
    }
}

static PRODUCT: std::sync::LazyLock<Product> =
    std::sync::LazyLock::new(|| Product(registry::contract("matmul").unwrap()));

fn check(order: Order) -> Checked {
    let contract: &'static Product = &PRODUCT;
    let problem = Problem::new().with("m", M as u64).with("k", 64).with_word("seg", "f32:3");
    let case = Arc::new(JudgedCase::generated(contract, &problem, "uniform", 1).unwrap());
    let plan = CheckPlan { threads: vec![1], repeats: 4, ..CheckPlan::default() };
    Checker::new(plan).unwrap().check_kernel(&order, &KernelArm::explicit(contract, &VARIANT), &[case], 0)
}

#[test]
fn bits_are_its_own_and_every_row_must_be_the_same_everywhere() {
    let checked = check(Order::Own);
    assert!(checked.passed.is_some(), "{:?}", checked.gate.failures);
    let gate = checked.gate;
    assert_eq!((gate.rule.as_str(), gate.order_class.as_deref()), ("rows", Some("device_example")));
    assert!(gate.max_error_ppb > 0 && gate.max_error_ppb <= gate.allowed_error_ppb);
    for (order, reasons, detail) in [
        (Order::ByPlace(2), vec!["rows"], "row 3 of 6 differs when it is alone: out[0, 0] is"),
        (Order::ByPlace(5), vec!["rows"], "row 5 of 6 differs when it is alone"),
        (Order::ByCount, vec!["rows"], "row 0 of 6 differs when it is alone"),
        (Order::Racy, vec!["repeat"], "run 2 differs from run 1"),
        (Order::Half, vec!["poison"], "out[5, 0] was not written"),
        (Order::Wrong, vec!["error"], "of the scale"),
    ] {
        let gate = check(order).gate;
        let found: Vec<_> = gate.failures.iter().map(|failure| failure.reason.as_str()).collect();
        assert!(found.starts_with(&reasons), "{order:?}: {:?}", gate.failures);
        assert!(gate.failures[0].detail.contains(detail), "{order:?}: {:?}", gate.failures);
        assert!(!gate.is_passed);
    }
}
