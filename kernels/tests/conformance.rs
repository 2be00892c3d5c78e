//! One body for every contract, variant and backend: a new contract or variant is covered the moment it is registered.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use memra_contract::device::{CudaArch, CudaClass, HostArch};
use memra_contract::{DType, DeviceKey, IsaTier, Problem, TensorSet};
use memra_kernels::backend::Backend;
use memra_kernels::backend::host::{HostBackend, Pool};
use memra_kernels::backend::null::NullBackend;
use memra_kernels::contract::Target;
use memra_kernels::ops::CONTRACTS;
use memra_kernels::{Contract, registry};

const THREADS: [usize; 4] = [1, 2, 3, 7];
const POISON: [u32; 2] = [0x7fc0_dead, 0x0102_0304];

/// Calls `body(contract, problem, family, inputs)` for every committed case.
fn for_each_case(mut body: impl FnMut(&'static dyn Contract, &Problem, &str, &TensorSet)) {
    for contract in CONTRACTS.iter().copied() {
        for case in &contract.cases().cases {
            let problem = contract.normalise(&case.problem().unwrap()).unwrap();
            for family in &case.families {
                let inputs = contract.inputs(&problem, family, 42).unwrap();
                body(contract, &problem, family, &inputs);
            }
        }
    }
}

#[test]
fn order_classes_meet_the_tolerance_of_their_contract() {
    for_each_case(|contract, problem, family, inputs| {
        let outputs = contract.ordered_outputs(problem, inputs).unwrap();
        let reference = contract.reference(problem, inputs).unwrap();
        let tolerance = contract.tolerance(problem).unwrap();
        let values = contract.output_values(&outputs);
        assert_eq!(values.len(), reference.values.len());
        for (i, value) in values.iter().enumerate() {
            let error = (value - reference.values[i]).abs() / reference.scales[i];
            assert!(
                error <= tolerance.max_scaled_error,
                "{} {problem} {family}: element {i} is {value}, the reference {}: {error} > {}",
                contract.info().id,
                reference.values[i],
                tolerance.max_scaled_error
            );
        }
    });
}

#[test]
fn host_variants_keep_the_bits_of_their_class_on_any_number_of_threads() {
    let backend = HostBackend::detect();
    let pools = THREADS.map(|threads| Pool::new(threads).unwrap());
    let mut pairs = 0;
    for_each_case(|contract, problem, family, inputs| {
        let wanted = contract.ordered_outputs(problem, inputs).unwrap();
        for variant in contract.variants() {
            if registry::can_run(contract, variant, problem, backend.device_key()).is_err() {
                continue;
            }
            let mut prepared = backend.prepare(contract, variant, problem, inputs, 2).unwrap();
            for (pool, poison) in pools.iter().zip(POISON.iter().cycle()) {
                for copy in 0..2 {
                    prepared.poison(*poison);
                    prepared.launch(pool, copy).unwrap();
                    let name = format!("{}/{} {problem} {family}", contract.info().id, variant.name);
                    assert!(prepared.guards_hold(), "{name}: wrote outside its output");
                    assert_same(&prepared.outputs(), &wanted, &format!("{name} on {} threads", pool.threads()));
                }
            }
            pairs += 1;
        }
    });
    assert!(pairs >= 100, "only {pairs} (variant, case) pairs were judged");
}

fn assert_same(outputs: &TensorSet, wanted: &TensorSet, name: &str) {
    for (got, wanted) in outputs.iter().zip(wanted.iter()) {
        assert_eq!((&got.name, got.dtype, &got.shape), (&wanted.name, wanted.dtype, &wanted.shape));
        if got.bytes == wanted.bytes {
            continue;
        }
        let size = got.dtype.bytes();
        let i = (0..got.bytes.len() / size).find(|i| got.bytes[i * size..][..size] != wanted.bytes[i * size..][..size]);
        let i = i.unwrap_or_default();
        let value = |tensor: &memra_contract::Tensor| match tensor.dtype {
            DType::F32 => format!("{:?}", tensor.to_f32()[i]),
            _ => format!("{:?}", &tensor.bytes[i * size..][..size]),
        };
        panic!("{name}: {} element {i} is {}, not {}", got.name, value(got), value(wanted));
    }
}

#[test]
fn every_variant_has_a_case_and_every_family_is_used() {
    for contract in CONTRACTS {
        for variant in contract.variants() {
            let covered =
                contract.cases().cases.iter().any(|case| {
                    contract.supports(variant, &contract.normalise(&case.problem().unwrap()).unwrap()).is_ok()
                });
            assert!(covered, "no case of {} is served by {}", contract.info().id, variant.name);
        }
        for (family, _) in contract.info().families {
            let used = contract.cases().cases.iter().any(|case| case.families.iter().any(|name| name == family));
            assert!(used, "no case of {} uses the family {family}", contract.info().id);
        }
    }
}

#[test]
fn the_null_backend_plans_counts_and_refuses_like_the_host() {
    let pool = Pool::new(1).unwrap();
    let scalar = NullBackend::new(DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Scalar });
    let full = NullBackend::new(DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Avx512Vnni });
    let cards = CudaArch::ALL.map(|arch| {
        NullBackend::new(DeviceKey::Cuda(CudaClass { arch, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 }))
    });
    let mut launches = 0;
    for_each_case(|contract, problem, _, inputs| {
        for variant in contract.variants() {
            let refused = scalar.prepare(contract, variant, problem, inputs, 1);
            assert!(
                refused.is_ok()
                    || !variant.target.is_within(IsaTier::Scalar)
                    || contract.supports(variant, problem).is_err()
            );
            let device = match variant.target {
                Target::Cuda(_) => cards.iter().find(|card| variant.target.serves(card.device_key())).unwrap(),
                Target::Host(_) => &full,
            };
            let Ok(mut prepared) = device.prepare(contract, variant, problem, inputs, 1) else {
                assert!(contract.supports(variant, problem).is_err());
                continue;
            };
            prepared.poison(POISON[0]);
            let before = prepared.outputs();
            prepared.launch(&pool, 0).unwrap();
            launches += 1;
            assert_eq!(prepared.outputs(), before, "the null backend computes nothing");
            assert!(prepared.copy_bytes() > 0);
        }
    });
    assert_eq!(full.launches() + cards.iter().map(NullBackend::launches).sum::<u64>(), launches);
    assert_eq!(scalar.launches(), 0);
}

#[test]
fn refusals_name_the_thing() {
    let backend = NullBackend::new(DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Scalar });
    let matmul = registry::contract("matmul").unwrap();
    let problem = matmul.normalise(&"m=1,k=64,seg=q8_0:4".parse().unwrap()).unwrap();
    let inputs = matmul.inputs(&problem, "normal", 1).unwrap();
    let refuse = |name: &str, inputs: &TensorSet| {
        let variant = registry::variant(matmul, name).unwrap();
        backend.prepare(matmul, variant, &problem, inputs, 1).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refuse("scalar_f32", &inputs).contains("serves f32 segments, and one is q8_0"));
    if cfg!(target_arch = "x86_64") {
        assert!(refuse("avx2_q8_row", &inputs).contains("needs avx2"));
    }
    assert!(refuse("scalar_q8", &TensorSet::default()).contains("`quants` is missing"));
    let other =
        matmul.inputs(&matmul.normalise(&"m=1,k=96,seg=q8_0:4".parse().unwrap()).unwrap(), "normal", 1).unwrap();
    assert!(refuse("scalar_q8", &other).contains("`quants` holds 96 bytes"));
    let error = matmul.inputs(&problem, "gaussian", 1).unwrap_err().to_string();
    assert!(error.contains("no input family `gaussian`") && error.contains("normal"), "{error}");
}

#[test]
fn weights_from_a_file_are_checked() {
    let matmul = registry::contract("matmul").unwrap();
    let problem = matmul.normalise(&"m=1,k=64,seg=q8_0:2".parse().unwrap()).unwrap();
    let inputs = matmul.inputs(&problem, "normal", 1).unwrap();
    let stored = inputs.get("weight0").unwrap().bytes.clone();
    let mut other = stored.clone();
    other[34 * 3 + 5] ^= 1;
    let replaced = matmul.with_weights(&problem, inputs.clone(), &other).unwrap();
    assert_eq!(replaced.get("weight0").unwrap().bytes, other);
    let error = matmul.with_weights(&problem, inputs.clone(), &stored[1..]).unwrap_err().to_string();
    assert!(error.contains("135 bytes, and 136 are needed"), "{error}");
    other[34 * 3..34 * 3 + 2].copy_from_slice(&0x7c00_u16.to_le_bytes());
    let error = matmul.with_weights(&problem, inputs, &other).unwrap_err().to_string();
    assert!(error.contains("row 1, block 1 is inf"), "{error}");
}
