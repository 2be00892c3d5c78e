//! Forms of every CUDA variant fit their text, their outputs and their problem.

use super::*;
use crate::contract::Contract;
use crate::form::DeviceForm;
use crate::ops::CONTRACTS;

/// Contracts whose variants are launched once for a row or a part of one.
const ROW_IDS: [&str; 6] = ["quantise", "rms_norm", "rms_norm_quantise", "swiglu", "swiglu_quantise", "argmax"];
const CONTRACT_IDS: [&str; 8] =
    ["quantise", "rms_norm", "rms_norm_quantise", "swiglu", "swiglu_quantise", "argmax", "rope_append", "embed"];

/// The parameters of an entry, as they stand in the text.
fn parameters<'a>(text: &'a str, entry: &str) -> Option<Vec<&'a str>> {
    let (before, after) = text.split_once(&format!("\n{entry}("))?;
    assert!(before.lines().last()?.starts_with("extern \"C\" __global__ void"), "{entry} is no entry");
    Some(after.split_once(')')?.0.split(',').map(str::trim).collect())
}

fn check_arguments(text: &str, launch: &LaunchForm, name: &str) {
    let parameters = parameters(text, &launch.entry).unwrap_or_else(|| panic!("{name}: no entry {}", launch.entry));
    assert_eq!(parameters.len(), launch.args.len(), "{name}: arguments of {}", launch.entry);
    for (parameter, arg) in parameters.iter().zip(&launch.args) {
        let fits = match arg {
            Arg::U32(_) => parameter.starts_with("u32 ") && !parameter.contains('*'),
            Arg::F32(_) => parameter.starts_with("float ") && !parameter.contains('*'),
            _ => parameter.contains('*'),
        };
        assert!(fits, "{name}: {arg:?} is passed as `{parameter}`");
    }
}

/// Calls `body(contract, variant, problem, form, name)` for every case of the contracts that have CUDA variants here.
fn for_each_form(mut body: impl FnMut(&dyn Contract, &Variant, &Problem, &DeviceForm, &str)) {
    for id in CONTRACT_IDS {
        let contract = CONTRACTS.iter().copied().find(|contract| contract.info().id == id).unwrap();
        let mut forms = 0;
        for case in &contract.cases().cases {
            let problem = contract.normalise(&case.problem().unwrap()).unwrap();
            let inputs = contract.inputs(&problem, &case.families[0], 1).unwrap();
            for variant in contract.variants().iter().filter(|variant| matches!(variant.target, Target::Cuda(_))) {
                let name = format!("{id}/{} {problem}", variant.name);
                assert!(contract.prepare_host(variant, &problem, &inputs, 1).is_err(), "{name} runs on the host");
                if contract.supports(variant, &problem).is_ok() {
                    let form = contract.device_form(variant, &problem, &inputs).unwrap();
                    body(contract, variant, &problem, &form, &name);
                    forms += 1;
                }
            }
        }
        assert!(forms >= 6, "only {forms} forms of {id}");
    }
}

#[test]
fn forms_fit_their_text_and_their_contract() {
    for_each_form(|contract, variant, problem, form, name| {
        assert_eq!(form.fault(), None, "{name}");
        assert_eq!(form.launches.len(), if contract.info().id == "rope_append" { 2 } else { 1 }, "{name}");
        for launch in &form.launches {
            check_arguments(variant.source.text, launch, name);
        }
        // 99 KiB is what the smallest of the architectures gives a block.
        assert!(form.launches[0].shared_bytes <= 99 << 10, "{name}");
        let outs = contract.info().tensors.iter().filter(|tensor| tensor.role == "out").map(|tensor| tensor.name);
        assert!(outs.eq(form.outputs.iter().map(|output| output.name.as_str())), "{name}");
        let cost = contract.cost(problem).unwrap();
        assert_eq!(form.outputs.iter().map(OutputForm::bytes).sum::<usize>() as u64, cost.written_bytes, "{name}");
        if !ROW_IDS.contains(&contract.info().id) {
            return;
        }
        assert_eq!((form.copy_bytes() + form.fixed.iter().map(Vec::len).sum::<usize>()) as u64, cost.read_bytes);
    });
}

#[test]
fn outputs_are_those_of_the_order_class() {
    for_each_form(|contract, variant, problem, form, name| {
        if !["cuda_row", "cuda_pairs", "cuda_stored"].contains(&variant.name) {
            return;
        }
        let wanted = contract.ordered_outputs(problem, &contract.inputs(problem, "normal", 1).unwrap()).unwrap();
        let wanted = wanted.iter().map(|tensor| output(&tensor.name, tensor.dtype, &tensor.shape));
        assert!(wanted.eq(form.outputs.iter().cloned()), "{name}");
    });
}

#[test]
fn threads_cover_what_they_count() {
    for_each_form(|contract, variant, problem, form, name| {
        if !ROW_IDS.contains(&contract.info().id) {
            return;
        }
        let launch = &form.launches[0];
        let Some(Arg::U32(count)) = launch.args.iter().rev().find(|arg| matches!(arg, Arg::U32(_))) else {
            panic!("{name}: nothing is counted");
        };
        let (count, m) = (u64::from(*count), problem.size("", "m", 1..=4096).unwrap());
        let [across, down, _] = launch.grid.map(u64::from);
        if variant.name.starts_with("cuda_row") {
            assert_eq!([across, down], [m, 1], "{name}");
            return;
        }
        let reach = match variant.name.strip_prefix("cuda_pieces") {
            Some(piece) => piece.parse().unwrap(),
            None => u64::from(launch.block[0]),
        };
        assert!((across - 1) * reach < count && count <= across * reach, "{name}: {across} blocks for {count}");
        assert!(down == m || down == 1 && count % m == 0, "{name}");
    });
}

#[test]
fn hosts_are_refused_in_words() {
    let contract = CONTRACTS[0];
    let problem = contract.normalise(&"m=1,k=32".parse().unwrap()).unwrap();
    let inputs = contract.inputs(&problem, "normal", 1).unwrap();
    let of = |name: &str| contract.variants().iter().copied().find(|variant| variant.name == name).unwrap();
    let error = contract.prepare_host(of("cuda_row"), &problem, &inputs, 1).err().unwrap().to_string();
    assert!(error.contains("quantise/cuda_row") && error.contains("runs on a CUDA device"), "{error}");
    let error = contract.device_form(of("scalar"), &problem, &inputs).unwrap_err().to_string();
    assert!(error.contains("quantise/scalar") && error.contains("it runs on the host"), "{error}");
}
