//! The cells that are compiled in, and cells that are refused.

use super::*;

#[test]
fn every_file_of_the_folder_is_listed_and_parses() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cells");
    let mut present: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    present.sort();
    let listed: Vec<_> = FILES.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(present, listed);
    parse_all(FILES).unwrap();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn arms_of_every_cell_can_run_its_problem() {
    for cell in cells() {
        let contract = registry::contract(&cell.contract).unwrap();
        let problem = contract.normalise(&cell.problem.parse().unwrap()).unwrap();
        for text in [&cell.a, &cell.b] {
            if let ArmSpec::Variant(name) = text.parse().unwrap() {
                let variant = registry::variant(contract, &name).unwrap();
                let (arch, tier) = (memra_contract::device::HostArch::X86_64, memra_contract::IsaTier::Avx512Vnni);
                let key = memra_contract::DeviceKey::Host { arch, tier };
                registry::can_run(contract, variant, &problem, key).unwrap();
            }
        }
    }
}

#[test]
fn the_demo_is_there_and_cells_with_weights_name_a_file() {
    let demo = cell("demo").unwrap();
    assert_eq!((demo.a.as_str(), demo.b.as_str(), demo.threads), ("baseline", "avx2_q8_row", 1));
    let spec = cell("q8-embed-m1").unwrap().spec(Path::new("models"));
    let weights = spec.weights.clone().unwrap();
    assert_eq!(weights.file, Path::new("models").join("smollm2.gguf"));
    assert_eq!(weights.tensor, "token_embd.weight");
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<CellSpec>(&text).unwrap(), spec);
}

#[test]
fn a_wrong_name_gets_the_nearest_right_one() {
    let error = cell("f32-routr-m8").unwrap_err().to_string();
    assert!(error.contains("did you mean `f32-router-m8`"), "{error}");
}

const GOOD: &str = r#"
    [[cell]]
    name = "one"
    title = "a cell"
    contract = "quantise"
    problem = "m=1,k=64"
    a = "baseline"
    b = "default"
    family = "normal"
    input_seed = 1
    cache = "hot"
    threads = 1
    priority = 1
"#;

#[test]
fn broken_cells_are_refused_with_the_field() {
    assert_eq!(parse("x.toml", GOOD).unwrap().len(), 1);
    for (from, to, needle) in [
        ("\"one\"", "\"One\"", "cell `One`: name"),
        ("\"a cell\"", "\"\"", "title"),
        ("\"quantise\"", "\"quantize\"", "did you mean `quantise`"),
        ("m=1,k=64", "m=1,k=33", "`k`"),
        ("\"baseline\"", "\"Avx2\"", "cell `one`: a"),
        ("\"default\"", "\"process:\"", "cell `one`: b"),
        ("\"normal\"", "\"norml\"", "did you mean `normal`"),
        ("\"hot\"", "\"cold\"", "cells/x.toml"),
        ("threads = 1", "threads = 5000", "more than 1024"),
        ("priority = 1", "priority = 0", "priority"),
        ("priority = 1", "priority = 1\ncolour = 3", "unknown field `colour`"),
        ("priority = 1", "", "missing field `priority`"),
        ("priority = 1", "priority = 1\nweights = { model = \"../x\", tensor = \"t\" }", "weights.model"),
        ("priority = 1", "priority = 1\nweights = { model = \"x\", tensor = \"\" }", "weights.tensor"),
        ("priority = 1", "priority = 1\nweights = { model = \"x\", tensor = \"t\", at = 1 }", "unknown field `at`"),
    ] {
        let error = parse("x.toml", &GOOD.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(needle), "{to}: {error}");
    }
    let twice = parse_all(&[("x.toml", GOOD), ("y.toml", GOOD)]).unwrap_err().to_string();
    assert_eq!(twice, "cell `one` stands in x.toml and in y.toml");
}
