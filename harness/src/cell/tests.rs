//! The cells that are compiled in, and cells that are refused.

use super::*;
use crate::engine_arm::Workload;

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
        if cell.workload.is_some() {
            continue;
        }
        let contract = registry::contract(&cell.contract).unwrap();
        let problem = contract.normalise(&cell.problem.parse().unwrap()).unwrap();
        for text in [&cell.a, &cell.b] {
            if let ArmSpec::Variant(name) = text.parse().unwrap() {
                let variant = registry::variant(contract, &name).unwrap();
                if cell.backend != BackendKind::Host {
                    contract.supports(variant, &problem).unwrap();
                    continue;
                }
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

#[test]
fn a_pattern_selects_a_group_in_catalogue_order() {
    let names = |pattern: &str| select(pattern).unwrap().iter().map(|cell| cell.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names("demo"), ["demo"]);
    assert_eq!(names("quantise-m*"), ["quantise-m1", "quantise-m8"]);
    assert_eq!(names("*"), cells().iter().map(|cell| cell.name.as_str()).collect::<Vec<_>>());
    let some = names("h200-q4-k-*-m8");
    assert!(some.len() == 5 && some.iter().all(|name| name.starts_with("h200-q4-k-") && name.ends_with("-m8")));
    let error = select("h201-*").unwrap_err().to_string();
    assert!(error.starts_with("no cell fits `h201-*`; there are demo, ") && error.contains(" `h200-*`"), "{error}");
    for (pattern, name, wanted) in [
        ("a*", "a", true),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("*a*b", "xaxb", true),
        ("*ab*ab", "xab", false),
        ("a**b", "ab", true),
        ("*b", "bab", true),
        ("a*c*", "abd", false),
    ] {
        assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
    }
}

#[test]
fn every_product_on_the_card_has_a_ceiling_of_its_bytes() {
    let read = |cell: &&Cell| cell.contract == "stream" && cell.cache == CacheMode::Rotate;
    let ceilings: Vec<(u64, u32)> = cells()
        .iter()
        .filter(read)
        .filter_map(|cell| Some((cell.problem.strip_prefix("op=read,bytes=")?.parse().ok()?, cell.priority)))
        .collect();
    let mut products = 0;
    for cell in cells().iter().filter(|cell| cell.name.starts_with("h200-")) {
        let problem = memra_kernels::ops::matmul::MatmulProblem::parse(&cell.problem.parse().unwrap()).unwrap();
        let bytes: usize = problem.segments.iter().map(|segment| segment.bytes(problem.k)).sum();
        let bytes = (bytes as u64).next_multiple_of(16 << 10);
        let ceiling = ceilings.iter().find(|(size, _)| *size == bytes);
        assert!(ceiling.is_some_and(|(_, priority)| *priority <= cell.priority), "{}: {bytes}", cell.name);
        products += 1;
    }
    assert!(products > 200);
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
fn a_cell_may_be_for_a_card() {
    let spec = |text: &str| parse("x.toml", text).unwrap()[0].spec(Path::new("models"));
    let card = spec(&GOOD.replace("threads = 1", "threads = 1\nbackend = \"cuda\""));
    assert_eq!((spec(GOOD).backend, card.backend), (BackendKind::Host, BackendKind::Cuda));
    let text = serde_json::to_string(&card).unwrap();
    assert_eq!(serde_json::from_str::<CellSpec>(&text).unwrap(), card);
    // A specification of before backends were named is the host's.
    let text = text.replace(",\"backend\":\"cuda\"", "");
    assert_eq!(serde_json::from_str::<CellSpec>(&text).unwrap().backend, BackendKind::Host);
}

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
        ("threads = 1", "threads = 1\nbackend = \"vulkan\"", "unknown variant `vulkan`"),
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

const WORKLOAD: &str = r#"
    [[workload]]
    name = "one"
    title = "a workload"
    model = "tiny"
    generated = 8
    depth = 4
    a = "engine:x"
    b = "engine:y"
    input_seed = 1
    threads = 0
    priority = 1
"#;

#[test]
fn workloads_stand_beside_cells_of_kernels() {
    let cells = parse("x.toml", &[WORKLOAD, &GOOD.replace("\"one\"", "\"two\"")].concat()).unwrap();
    let names: Vec<_> = cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["two", "one"]);
    let spec = cells[1].spec(Path::new("models"));
    assert_eq!((spec.contract.as_str(), spec.problem.as_str()), ("workload", "depth=4,generated=8,prompt=0"));
    let workload = Workload { prompt: 0, generated: 8, depth: 4 };
    let file = FileWorkload { model: Path::new("models").join("tiny.gguf"), workload };
    assert_eq!(spec.workload, Some(file.clone()));
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<CellSpec>(&text).unwrap(), spec);
    let given = CellSpec::given_workload(file.model, workload, "engine:x".to_owned(), "engine:y".to_owned());
    given.check().unwrap();
    assert!(CellSpec { problem: "depth=4".to_owned(), ..given }.check().is_err());
    for name in ["smollm2-pp512", "smollm2-tg128", "smollm2-tg64-d2048"] {
        let cell = cell(name).unwrap();
        assert_eq!((cell.a.as_str(), cell.b.as_str(), cell.threads), ("engine:llama-bench", "engine:memra", 0));
    }
}

#[test]
fn broken_workloads_are_refused_with_the_field() {
    for (from, to, needle) in [
        ("engine:x", "baseline", "cell `one`: a: arm `baseline`: a workload is run by engines"),
        ("engine:y", "process:y", "cell `one`: b: arm `process:y`: a workload is run by engines"),
        ("generated = 8", "generated = 8\nprompt = 3", "cell `one`: workload: a workload times either"),
        ("generated = 8", "", "cell `one`: workload: a workload times either"),
        ("depth = 4", "depth = 4000000", "workload: depth=4000000 is more than"),
        ("\"tiny\"", "\"a/b\"", "model: `a/b` is not the name of a model"),
        ("threads = 0", "threads = 5000", "more than 1024"),
        ("depth = 4", "depths = 4", "unknown field `depths`"),
    ] {
        let error = parse("x.toml", &WORKLOAD.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(needle), "{to}: {error}");
    }
    let kernel = GOOD.replace("\"baseline\"", "\"engine:x\"");
    let error = parse("x.toml", &kernel).unwrap_err().to_string();
    assert!(error.contains("a: arm `engine:x`: an engine runs workload cells"), "{error}");
    let error = parse("x.toml", &GOOD.replace("\"hot\"", "\"workload\"")).unwrap_err().to_string();
    assert!(error.contains("cache: is workload"), "{error}");
}
