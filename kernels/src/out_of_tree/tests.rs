//! Files that are arms, and files that are none: headers, forms, refusals.

use memra_contract::device::{CudaArch, CudaClass, HostArch};
use memra_contract::{DType, IsaTier};
use proptest::prelude::*;

use super::*;
use crate::backend::Backend as _;
use crate::backend::null::NullBackend;
use crate::form::{Arg, LaunchMode};
use crate::registry;

const Q8_ROWS: &str = include_str!("../../../docs/examples/q8_rows.cu");
const QUANTISE_WARP: &str = include_str!("../../../docs/examples/quantise_warp.cu");

const KEY: DeviceKey =
    DeviceKey::Cuda(CudaClass { arch: CudaArch::Sm90a, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 });

fn text(name: &str, text: &str) -> ArmText {
    ArmText { name: name.to_owned(), text: text.to_owned() }
}

fn load(name: &str, body: &str) -> &'static ArmFile {
    ArmFile::load(&text(name, body), KEY).unwrap()
}

fn problem(arm: &ArmFile, text: &str) -> Problem {
    arm.normalise(&text.parse().unwrap()).unwrap()
}

fn form(arm: &ArmFile, text: &str) -> (DeviceForm, TensorSet) {
    let problem = problem(arm, text);
    let inputs = arm.inputs(&problem, arm.info().families[0].0, 1).unwrap();
    (arm.device_form(arm.variant(), &problem, &inputs).unwrap(), inputs)
}

fn refused(arm: &ArmFile, text: &str) -> String {
    let problem = problem(arm, text);
    arm.supports(arm.variant(), &problem).unwrap_err().to_string()
}

/// The error of a header that differs from the example's in one place.
fn fault(from: &str, to: &str) -> String {
    assert_eq!(Q8_ROWS.matches(from).count(), 1, "{from}");
    ArmFile::load(&text("edited.cu", &Q8_ROWS.replace(from, to)), KEY).unwrap_err().to_string()
}

#[test]
fn a_file_is_a_variant_of_its_contract() {
    let arm = load("q8_rows.cu", Q8_ROWS);
    let variant = arm.variant();
    assert_eq!((variant.name, variant.rows, variant.source.path), ("q8_rows", (1, 1), "q8_rows.cu"));
    assert_eq!((variant.order_class.id, variant.target.serves(KEY)), ("dot_i8_block32_chain8", true));
    assert_eq!(arm.info().id, "matmul");
    assert!(std::ptr::eq(arm.variants()[0], variant) && arm.arm_file().is_some());
    assert!(registry::contract("matmul").unwrap().arm_file().is_none());
    assert!(std::ptr::eq(arm, load("q8_rows.cu", Q8_ROWS)), "the same file is kept once");
    assert!(!std::ptr::eq(arm, load("q8_other.cu", Q8_ROWS)));
    // The text, its headers and its definitions are what it is.
    assert_ne!(variant.source_sha256(), load("q8_rows.cu", &format!("{Q8_ROWS}\n")).variant().source_sha256());
}

#[test]
fn a_product_is_launched_on_weights_that_a_launch_lays_out() {
    let (form, inputs) = form(load("q8_rows.cu", Q8_ROWS), "m=1,k=576,seg=q8_0:192");
    assert_eq!(form.fault(), None);
    let bytes = |name: &str| inputs.get(name).unwrap().bytes.clone();
    assert_eq!(form.fixed, [bytes("weight0"), bytes("quants"), bytes("scales")]);
    // Three groups of 272 bytes a row.
    assert_eq!(form.rotating, [vec![0; 192 * 3 * 272]]);
    assert_eq!(
        (form.outputs[0].name.as_str(), form.outputs[0].dtype, &form.outputs[0].shape[..]),
        ("out", DType::F32, &[1, 192][..])
    );
    let [pack] = form.prologue.as_slice() else { panic!("{:?}", form.prologue) };
    assert_eq!((pack.entry.as_str(), pack.grid, pack.block), ("q8_rows_pack", [18, 1, 1], [256, 1, 1]));
    assert_eq!(pack.args, [Arg::Fixed(0), Arg::Rotating(0), Arg::U32(192), Arg::U32(18)]);
    let [launch] = form.launches.as_slice() else { panic!("{:?}", form.launches) };
    assert_eq!((launch.entry.as_str(), launch.grid, launch.shared_bytes), ("q8_rows", [6, 1, 1], 0));
    let wanted =
        [Arg::Rotating(0), Arg::Fixed(1), Arg::Fixed(2), Arg::Null, Arg::Output(0), Arg::U32(192), Arg::U32(18)];
    assert_eq!(launch.args, wanted);
    let (form, inputs) = self::form(load("q8_rows.cu", Q8_ROWS), "m=1,k=1536,seg=q8_0:64,epi=residual");
    assert_eq!(form.launches[0].args[3], Arg::Fixed(3));
    assert_eq!(form.fixed[3], inputs.get("residual").unwrap().bytes);
}

#[test]
fn what_rotates_is_what_rotates_for_the_registered_variants() {
    let (form, inputs) = form(load("quantise_warp.cu", QUANTISE_WARP), "m=5,k=4096");
    assert_eq!((form.fixed.len(), form.prologue.len(), form.mode), (0, 0, LaunchMode::Graph));
    assert_eq!(form.rotating, [inputs.get("x").unwrap().bytes.clone()]);
    let launch = &form.launches[0];
    assert_eq!(launch.grid, [80, 1, 1]);
    assert_eq!(launch.args, [Arg::Rotating(0), Arg::Output(0), Arg::Output(1), Arg::Output(2), Arg::U32(640)]);
    let (form, _) = self::form(load("quantise_warp.cu", QUANTISE_WARP), "m=4096,k=4096");
    assert_eq!(form.launches[0].grid, [132 * 16, 1, 1]);
}

#[test]
fn floats_scratch_and_shared_memory_are_given() {
    let body = "// ---\n// schema = \"memra-arm/1\"\n// contract = \"rms_norm\"\n// entry = \"norm\"\n\
        // order_class = \"rms_chain128\"\n// archs = [\"sm_90a\"]\n// layout = \"stored\"\n// rows = [1, 8]\n\
        // defines = [\"ROWS=2\", \"FAST\"]\n// multiples = { hidden = 64 }\n//\n// [launch]\n// block = [128, 2]\n\
        // grid = [\"m\", 1, 1]\n// shared_bytes = \"hidden * 4\"\n\
        // args = [\"x\", \"weight\", \"out\", \"scratch:sums=m * 8\", \"u32:hidden\", \"f32:eps\", \"f32:-0.5\", \"f32:m\"]\n// ---\n";
    let arm = load("norm.cu", body);
    let (form, _) = form(arm, "m=3,hidden=192,eps=1e-6");
    assert_eq!((form.scratch.as_slice(), form.launches[0].shared_bytes), (&[24][..], 768));
    assert_eq!(form.launches[0].block, [128, 2, 1]);
    let wanted = [Arg::Scratch(0), Arg::U32(192), Arg::F32(1e-6), Arg::F32(-0.5), Arg::F32(3.0)];
    assert_eq!(form.launches[0].args[3..], wanted);
    let Target::Cuda(build) = arm.variant().target else { panic!() };
    assert_eq!(build.defines, [("ROWS", "2"), ("FAST", "1")]);
    assert!(refused(arm, "m=9,hidden=64").contains("it serves 1 to 8 rows"));
    assert!(refused(arm, "m=1,hidden=100").contains("multiples of 64 as hidden"));
    let edited = load("huge.cu", &body.replace("m * 8", "hidden * 34359738368"));
    let problem = problem(edited, "m=1,hidden=64");
    let inputs = edited.inputs(&problem, "normal", 1).unwrap();
    let error = edited.device_form(edited.variant(), &problem, &inputs).unwrap_err().to_string();
    assert!(error.contains("rms_norm/huge") && error.contains("scratch of 2199023255552 bytes"), "{error}");
}

#[test]
fn problems_that_it_does_not_serve_are_refused_with_the_reason() {
    let arm = load("q8_rows.cu", Q8_ROWS);
    for (text, wanted) in [
        ("m=2,k=64,seg=q8_0:7", "it serves 1 to 1 rows"),
        ("m=1,k=64,seg=q4_0:7", "it serves q8_0, and not q4_0"),
        ("m=1,k=64,seg=q8_0:7+q8_0:3", "its arguments name 1 weights, and there are 2 segments"),
        ("m=1,k=64,seg=q8_0:7,act=f32", "act is f32, and its arguments do not name `activation`"),
    ] {
        let error = refused(arm, text);
        assert!(error.contains(wanted) && error.contains("matmul/q8_rows"), "{text}: {error}");
    }
    let edited = load(
        "narrow.cu",
        &Q8_ROWS.replace("// rows = [1, 1]", "// rows = [1, 1]\n// axes = { epi = [\"none\"], k = [64] }"),
    );
    assert!(refused(edited, "m=1,k=64,seg=q8_0:7,epi=residual").contains("it serves epi = none"));
    assert!(refused(edited, "m=1,k=96,seg=q8_0:7").contains("it serves k = 64"));
    let edited = load("other.cu", &Q8_ROWS.replace("dot_i8_block32_chain8", "dot_f32_chain32"));
    assert!(refused(edited, "m=1,k=64,seg=q8_0:7").contains("no variant of the contract keeps dot_f32_chain32 for it"));
    let edited = load("device.cu", &Q8_ROWS.replace("dot_i8_block32_chain8", "device_mma_f16_chain8"));
    assert!(edited.supports(edited.variant(), &problem(edited, "m=1,k=64,seg=q8_0:7")).is_ok());
    let problem = problem(arm, "m=1,k=64,seg=q8_0:7");
    let inputs = arm.inputs(&problem, "normal", 1).unwrap();
    let error = arm.prepare_host(arm.variant(), &problem, &inputs, 1).err().unwrap().to_string();
    assert!(error.contains("runs on a CUDA device"), "{error}");
}

#[test]
fn only_committed_cases_that_it_serves_are_served() {
    let arm = load("q8_rows.cu", Q8_ROWS);
    let problems: Vec<_> = arm.cases().cases.iter().map(|case| problem(arm, &case.problem)).collect();
    let served: Vec<_> = problems.iter().filter(|problem| arm.supports(arm.variant(), problem).is_ok()).collect();
    assert!(served.len() >= 3 && served.len() < problems.len(), "{}", served.len());
    assert!(served.iter().all(|problem| problem.to_string().contains("m=1,seg=q8_0:")));
}

#[test]
fn a_backend_without_a_device_plans_it() {
    let arm = load("q8_rows.cu", Q8_ROWS);
    let problem = problem(arm, "m=1,k=576,seg=q8_0:192");
    let inputs = arm.inputs(&problem, "normal", 1).unwrap();
    let prepared = NullBackend::new(KEY).prepare(arm, arm.variant(), &problem, &inputs, 2).unwrap();
    assert_eq!((prepared.copy_bytes(), prepared.outputs().iter().count()), (192 * 3 * 272, 1));
    let sm80 = CudaClass { arch: CudaArch::Sm80, sms: 108, l2_mib: 40, memory_gib: 80, power_w: 400 };
    let hopper = ArmFile::load(&text("hopper.cu", &Q8_ROWS.replace("\"sm_80\", ", "")), DeviceKey::Cuda(sm80)).unwrap();
    let error = NullBackend::new(DeviceKey::Cuda(sm80)).prepare(hopper, hopper.variant(), &problem, &inputs, 1).err();
    assert!(error.unwrap().to_string().contains("`matmul/hopper` needs"));
    let host = DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Avx2 };
    let error = ArmFile::load(&text("q8_rows.cu", Q8_ROWS), host).unwrap_err().to_string();
    assert!(error.contains("q8_rows.cu: it runs on a CUDA card") && error.contains("--backend cuda"), "{error}");
}

#[test]
fn numbers_that_do_not_fit_a_launch_are_refused_when_it_is_made() {
    for (from, to, wanted) in [
        ("\"cdiv(n, 32)\"", "\"n - 192\"", "q8_rows: grid `n - 192` is 0 blocks"),
        ("\"cdiv(n, 32)\"", "\"n - 193\"", "192 - 193 is below 0"),
        ("\"cdiv(n, 32)\"", "1, 65536", "65536 blocks: 1 to 65535 are given"),
        ("\"cdiv(n, 32)\"", "2147483647, 65535", "more than 1099511627776 threads"),
        ("\"cdiv(n, 32)\"", "\"sms * k * k * k * k * k * k * k\"", "is too large"),
        ("grid = [\"cdiv(n, 32)\"]", "grid = [\"1\"]\n// shared_bytes = 300000", "300000 bytes of shared memory"),
        ("\"u32:n\", \"u32:k / 32\"]\n//\n", "\"u32:n * 67108864\"]\n//\n", "more than 32 bits hold"),
        ("* 272\"", "* 27200\"", "stored bytes: 1 to"),
        ("\"n * cdiv(k, 256) * 272\"", "9223372036854775807", "stored bytes: 1 to"),
        ("\"n * cdiv(k, 256) * 272\"", "0", "is 0 for"),
        ("\"residual\"", "\"scratch:a=4294967297\"", "scratch of 4294967297 bytes"),
        ("\"residual\"", "\"f32:seg\"", "the axis `seg` is no number here"),
    ] {
        assert_eq!(Q8_ROWS.matches(from).count(), 1, "{from}");
        let arm = load("numbers.cu", &Q8_ROWS.replace(from, to));
        let problem = problem(arm, "m=1,k=576,seg=q8_0:192");
        let inputs = arm.inputs(&problem, "zeros", 1).unwrap();
        let error = arm.device_form(arm.variant(), &problem, &inputs).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("matmul/numbers"), "{to}: {error}");
    }
}

#[test]
fn a_wrong_header_names_the_file_and_the_line_or_the_field() {
    for (from, to, wanted) in [
        ("memra-arm/1", "memra-arm/2", "edited.cu: schema: is `memra-arm/2`; `memra-arm/1` is read"),
        ("\"matmul\"", "\"matmull\"", "edited.cu: contract: no contract `matmull`, did you mean `matmul`?"),
        ("entry = \"q8_rows\"", "entry = \"q8 rows\"", "edited.cu: entry: `q8 rows` is no name of a function"),
        (
            "dot_i8_block32_chain8",
            "dot_i8_block32_chain4",
            "order_class: no class `dot_i8_block32_chain4` here, did you mean",
        ),
        ("dot_i8_block32_chain8", "swiglu", "order_class: no class `swiglu` here"),
        ("\"sm_80\", ", "\"sm_90\", ", "archs: no architecture `sm_90`, did you mean `sm_90a`?"),
        ("layout = \"a row", "layout = \"\\t", "layout: says in 1 to 120 bytes"),
        ("\"q8_0\"", "\"q8_00\"", "formats: no weight format `q8_00`"),
        ("[1, 1]", "[2, 1]", "rows: [2, 1] is no range"),
        ("[1, 1]", "[1, 1]\n// colour = 3", "edited.cu, line 12: unknown field `colour`"),
        ("[1, 1]", "[1, -1]", "edited.cu, line 11: "),
        ("// rows = [1, 1]\n", "", "edited.cu, line 4: missing field `rows`"),
        (
            "[1, 1]",
            "[1, 1]\n// axes = { ep = [\"none\"] }",
            "axes: contract `matmul` has no axis `ep`, did you mean `epi`?",
        ),
        ("[1, 1]", "[1, 1]\n// multiples = { k = 0 }", "multiples: `k = 0` is no multiple"),
        ("[1, 1]", "[1, 1]\n// defines = [\"1A=2\"]", "defines: `1A=2` is not NAME=VALUE"),
        ("\"quants\"", "\"quant\"", "launch.args[1]: no tensor `quant`, did you mean `quants`?"),
        ("\"weight0\"", "\"weight01\"", "launch.args[0]: no tensor `weight01`"),
        ("\"out\"", "\"f32:1e-5\"", "launch.args: name no output of the contract"),
        ("\"residual\"", "\"f32:x\"", "launch.args[3]: `x` is neither a finite number nor an axis"),
        ("\"residual\"", "\"f32:1e99\"", "launch.args[3]: `1e99` is neither a finite number nor an axis"),
        ("\"residual\"", "\"i64:1\"", "launch.args[3]: no argument of the kind `i64`"),
        ("\"residual\"", "\"scratch:1\"", "launch.args[3]: `scratch:1` is not scratch:NAME=BYTES"),
        ("\"cdiv(n, 32)\"", "\"cdiv(n, 32\"", "launch.grid[0]: `cdiv(n, 32`, byte 10: `)` is expected"),
        (
            "\"cdiv(n, 32)\"",
            "\"cdiv(rows, 32)\"",
            "launch.grid[0]: `cdiv(rows, 32)`: contract `matmul` has no axis `rows`",
        ),
        ("\"cdiv(n, 32)\"", "1, 1, 1, 1", "launch.grid: is not one to three expressions"),
        (
            "[256]\n// grid = [\"cdiv(n, 32)\"]",
            "[2048]\n// grid = [1]",
            "launch.block: [2048] is not one to three sizes",
        ),
        (
            "[256]\n// grid = [\"cdiv(n, 32)\"]",
            "[1, 1, 128]\n// grid = [1]",
            "launch.block: the third size is at most 64",
        ),
        ("[256]\n// grid = [\"cdiv(n, 32)\"]", "[0]\n// grid = [1]", "launch.block: [0]"),
        ("\"residual\"", "\"quants\"", "launch.args[3]: `quants` stands twice"),
        ("\"weight0\", ", "", "repack: the arguments of the launch name no weight"),
        (
            "args = [\"u32:n\", \"u32:k / 32\"]\n// ---",
            "args = [\"quants\"]\n// ---",
            "repack.args: are u32: and f32: alone",
        ),
        ("\"n * cdiv(k, 256) * 272\"", "\"n ** 2\"", "repack.bytes: `n ** 2`, byte 3: `*` begins no number"),
        ("// rows = [1, 1]", "rows = [1, 1]", "edited.cu, line 11: a line of the header begins with `// `"),
        (
            "#include \"memra.cuh\"",
            "#include \"memr.cuh\"",
            "edited.cu, line 25: no header `memr.cuh`, did you mean `memra.cuh`?",
        ),
        ("<cuda_fp16.h>", "</etc/passwd>", "edited.cu, line 26: an include is written"),
        ("<cuda_fp16.h>", "<../x.h>", "edited.cu, line 26: an include is written"),
        ("#include \"memra.cuh\"", "# include \"memra.cuh\"", "edited.cu, line 25: an include is written"),
    ] {
        let error = fault(from, to);
        assert!(error.contains(wanted) && error.starts_with("edited.cu"), "{to}: {error}");
    }
    for (body, wanted) in [
        ("", "line 1: the file has no header"),
        ("// text\n\n// more\n", "line 1: the file has no header"),
        ("// text\nint a;\n// ---\n", "line 2: the file begins with no header"),
        ("// text\n// ---\n// rows = 1\n", "line 2: the header that begins here has no end"),
        ("// ---\n// ---\n", "line 2: missing field `schema`"),
        ("// ---\n// = 3\n// ---\n", "line 2: "),
    ] {
        let error = ArmFile::load(&text("short.cu", body), KEY).unwrap_err().to_string();
        assert!(error.starts_with("short.cu, ") && error.contains(wanted), "{body}: {error}");
    }
    for (name, wanted) in
        [("Q8-rows.cu", "the name of the file names the arm"), ("cuda_stored_q8_0.cu", "is a registered variant")]
    {
        let error = ArmFile::load(&text(name, Q8_ROWS), KEY).unwrap_err().to_string();
        assert!(error.starts_with(name) && error.contains(wanted), "{error}");
    }
}

#[test]
fn files_are_read_by_name_and_others_are_refused() {
    let folder = std::env::temp_dir().join(format!("memra-arm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let read = ArmText::read(&put("idea.cu", Q8_ROWS.as_bytes()));
    let large = ArmText::read(&put("large.cu", &vec![b' '; (1 << 20) + 1])).unwrap_err().to_string();
    let binary = ArmText::read(&put("binary.cu", &[0xff, 0xfe])).unwrap_err().to_string();
    let no_file = ArmText::read(&folder).unwrap_err().to_string();
    let missing = ArmText::read(&folder.join("none.cu")).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(read, Ok(text("idea.cu", Q8_ROWS)));
    assert!(large.contains("large.cu: has more than 1048576 bytes"), "{large}");
    assert!(binary.contains("is no UTF-8 text") && no_file.contains("is no plain file"), "{binary} {no_file}");
    assert!(missing.contains("none.cu"), "{missing}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_header_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzzing::arm_header(&bytes);
    }

    #[test]
    fn any_edit_of_a_header_is_a_header_or_refused(
        is_quantise in any::<bool>(),
        at in any::<prop::sample::Index>(),
        cut in 0_usize..24,
        put in "([0-9]{1,20}|[-+*/(),\"=\\[\\]{}:\n# ]|// |cdiv|sms|weight0|scratch:a=|f32:|\\PC){0,6}",
    ) {
        let whole = if is_quantise { QUANTISE_WARP } else { Q8_ROWS };
        let end = whole.rfind("// ---").unwrap() + 7;
        let mut text = whole[..end].to_owned();
        let at = at.index(text.len());
        let to = (at + cut).min(text.len());
        text.replace_range(at..to, &put);
        crate::fuzzing::arm_header(text.as_bytes());
    }
}
