//! The command line as a user meets it: help texts, listings, and errors that name the nearest right thing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn lab(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memra-lab"));
    // A data folder of its own keeps this user's local defaults out.
    command.args(arguments).current_dir(folder).env("XDG_DATA_HOME", folder).env("COLUMNS", "100");
    command.output().unwrap()
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for command in [
        &[][..],
        &["ab"],
        &["ab", "run"],
        &["ab", "compare"],
        &["check"],
        &["kernels"],
        &["kernels", "list"],
        &["kernels", "show"],
        &["kernels", "compile"],
        &["kernels", "bundle"],
        &["rig"],
        &["rig", "measure"],
        &["receipts"],
        &["receipts", "verify"],
        &["receipts", "schema"],
        &["board"],
        &["board", "regenerate"],
        &["promote"],
        &["ledger"],
        &["ledger", "list"],
        &["ledger", "refute"],
        &["ledger", "gap"],
        &["doctor"],
    ] {
        let output = lab(&[command, &["--help"]].concat(), folder.path());
        assert!(output.status.success());
        let line = ["memra-lab"].iter().chain(command).copied().collect::<Vec<_>>().join(" ");
        text.push_str(&["$ ", &line, " --help\n", &stdout(&output), "\n"].concat());
    }
    insta::assert_snapshot!(text);
}

#[test]
fn listings() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout(&lab(&["kernels", "show", "matmul/scalar_q8"], folder.path()));
    // The digest changes with the source; everything else is a promise.
    let text: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("sha256")).collect();
    insta::assert_snapshot!(text.join("\n"));
    insta::assert_snapshot!(stdout(&lab(&["ab", "run", "--list"], folder.path())));
    let listed: serde_json::Value =
        serde_json::from_str(&stdout(&lab(&["kernels", "list", "--json"], folder.path()))).unwrap();
    let listed = listed.as_array().unwrap();
    assert!(listed.len() >= 10);
    for variant in listed {
        for field in ["contract", "revision", "variant", "isa", "layout", "order_class", "source", "source_sha256"] {
            assert!(!variant[field].is_null(), "{variant} has no {field}");
        }
    }
}

#[test]
fn wrong_names_are_answered_with_the_nearest_right_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("smollm2.gguf"), "not read").unwrap();
    for (arguments, wanted) in [
        (&["ab", "run", "demmo"][..], "did you mean `demo`"),
        (&["ab", "run", "h201-*"], "no cell fits `h201-*`"),
        (&["ab", "run", "quantise-*", "--priority", "1"], "has a priority of 1"),
        (&["ab", "run", "quantise-*", "quantise-m1"], "`quantise-m1` is named twice"),
        (&["check", "matmull"], "did you mean `matmul`"),
        (&["check", "matmul/avx2_row"], "did you mean `avx2_q8_row`"),
        (&["kernels", "show", "rmsnorm"], "did you mean `rms_norm`"),
        (&["kernels", "compile", "--arch", "sm_90"], "did you mean `sm_90a`"),
        (&["kernels", "compile", "--contract", "matmul", "--variant", "scalar_q8"], "is not CUDA text"),
        (&["kernels", "compile", "--variant", "scalar_q8"], "--contract"),
        (&["kernels", "show", "matmul", "--problem", "m=1,k=33,seg=q8_0:4"], "multiple of 32"),
        (&["ab", "run", "demo", "--arm", "baseline", "--arm", "scalar_q9"], "did you mean `scalar_q8`"),
        (&["ab", "run", "demo", "--arm", "baseline"], "two arms"),
        (
            &["ab", "run", "--contract", "matmul", "--arm", "a", "--arm", "b", "--problem", "m=1,k=32"],
            "needs the axis `seg`",
        ),
        (&["ab", "run", "demo", "--smallest", "0"], "percentage above 0"),
        (&["ab", "run", "demo", "--arm", "engine:x", "--arm", "baseline"], "an engine runs workload cells"),
        (&["ab", "run", "demo", "--model", "smollm2.gguf"], "`demo` is no workload"),
        (&["ab", "run", "smollm2-pp512", "--models", "nowhere"], "needs the model file nowhere"),
        (
            &["ab", "run", "--workload", "depth=3", "--model", "m", "--arm", "engine:a", "--arm", "engine:b"],
            "either a prompt or generated tokens",
        ),
        (&["check", "matmul", "--weights", "nowhere.gguf"], "no model file nowhere.gguf"),
        (&["check", "matmul", "--weights", "smolm2.gguf"], "did you mean `smollm2.gguf`"),
        (&["ab", "compare", "x", "y"], "FILE#RECORD"),
        (&["promote", "x", "--rows", "1", "--local"], "`x`"),
        (&["promote", "receipts/a/b.jsonl#000000000000", "--rows", "0", "--local"], "MIN-MAX"),
    ] {
        let output = lab(arguments, folder.path());
        let said = stderr(&output);
        assert!(said.contains(wanted), "{arguments:?} says {said}");
        assert!(!output.status.success());
    }
}

#[test]
fn an_empty_root_is_sound_and_has_an_empty_board() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let output = lab(&["receipts", "verify", "--root", root], folder.path());
    assert!(output.status.success() && stdout(&output).contains("0 files"), "{output:?}");
    assert!(lab(&["board", "regenerate", "--root", root], folder.path()).status.success());
    assert!(lab(&["board", "regenerate", "--check", "--root", root], folder.path()).status.success());
    let page = std::fs::read_to_string(folder.path().join("PERFORMANCE.md")).unwrap();
    assert!(page.contains("not measured"), "{page}");
}

#[test]
fn check_ends_with_passed_and_failed() {
    let folder = tempfile::tempdir().unwrap();
    let output = lab(&["check", "quantise", "--json", "--seeds", "1", "--threads", "1,2"], folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(object["passed"].as_u64().unwrap() >= 40);
    assert_eq!(object["failed"], 0);
    let end: Vec<_> = text.lines().rev().take(3).collect();
    assert!(end[1].contains("\"failed\"") && end[2].contains("\"passed\""), "{end:?}");
}

#[test]
fn a_session_prints_one_object_and_leaves_a_receipt_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let arguments =
        ["ab", "run", "demo", "--arm", "baseline", "--arm", "scalar_q8", "--quads", "6", "--aa-blocks", "1"];
    let output =
        lab(&[&arguments[..], &["--attempts", "1", "--json", "--seed", "7", "--root", root]].concat(), folder.path());
    let object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    for field in ["arms", "medians_ns", "delta", "interval", "band", "mde", "verdict", "receipt"] {
        assert!(object.get(field).is_some(), "no {field} in {object}");
    }
    assert_eq!(object["arms"]["a"]["variant"], "scalar_q8");
    // What the machine was doing decides the verdict; that the code follows from it does not depend on the machine.
    let code = match object["verdict"].as_str().unwrap() {
        "FASTER" | "EQUIVALENT" => 0,
        "SLOWER" => 10,
        "UNDECIDED" => 11,
        "VOID" => 12,
        other => panic!("verdict {other}"),
    };
    assert_eq!((output.status.code(), object["exit_code"].as_i64()), (Some(code), Some(i64::from(code))));
    let verified = lab(&["receipts", "verify", "--root", root], folder.path());
    assert!(verified.status.success(), "{}", stdout(&verified));
    assert!(lab(&["board", "regenerate", "--check", "--root", root], folder.path()).status.success());
    let receipt = object["receipt"].as_str().unwrap();
    let compared = lab(&["ab", "compare", receipt, receipt, "--root", root], folder.path());
    assert!(compared.status.success(), "{}", stderr(&compared));
}

#[test]
fn cells_of_two_sessions_or_of_two_kinds_are_incomparable() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let session = |threads: &str| {
        let cell = ["--contract", "quantise", "--problem", "m=1,k=64", "--cache", "hot", "--threads", threads];
        let arms = [
            "--arm",
            "scalar",
            "--arm",
            "scalar",
            "--quads",
            "6",
            "--aa-blocks",
            "1",
            "--attempts",
            "1",
            "--json",
            "--root",
            root,
        ];
        let output = lab(&[&["ab", "run"][..], &cell, &arms].concat(), folder.path());
        let object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        object["receipt"].as_str().unwrap().to_owned()
    };
    let (a, b) = (session("1"), session("1"));
    let output = lab(&["ab", "compare", &a, &b, "--root", root], folder.path());
    assert_eq!(output.status.code(), Some(13), "{}", stderr(&output));
    assert!(stdout(&output).contains("two sessions"));
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let output = lab(&["ab", "compare", &a, &session("2"), "--root", root], folder.path());
        assert_eq!(output.status.code(), Some(13));
        assert!(stdout(&output).contains("threads differs: 1, 2"), "{}", stdout(&output));
    }
}

#[test]
fn the_schema_is_the_published_one() {
    let published = std::fs::read_to_string(checkout().join("ledger/schema/receipt.schema.json")).unwrap();
    assert_eq!(stdout(&lab(&["receipts", "schema"], checkout())), published);
}

#[test]
fn a_compiler_that_is_not_there_is_named_with_what_fetches_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memra-lab"));
        command.args(arguments).current_dir(folder.path()).env("XDG_DATA_HOME", folder.path());
        command.env("MEMRA_NVRTC", folder.path().join("nowhere")).output().unwrap()
    };
    let bundle = folder.path().join("a.cubins");
    for arguments in [&["kernels", "compile"][..], &["kernels", "bundle", "-o", bundle.to_str().unwrap()]] {
        let refused = output(arguments);
        assert_eq!(refused.status.code(), Some(1));
        for wanted in ["nowhere holds no libnvrtc", "tools/fetch-nvrtc.sh", "MEMRA_NVRTC"] {
            assert!(stderr(&refused).contains(wanted), "{}", stderr(&refused));
        }
    }
    assert!(!bundle.exists());
    // Nothing is broken where there is no compiler and a bundle is none.
    std::fs::create_dir(folder.path().join("memra-lab")).unwrap();
    std::fs::create_dir(folder.path().join("memra-lab/cubins")).unwrap();
    std::fs::write(folder.path().join("memra-lab/cubins/b.cubins"), "no bundle").unwrap();
    let doctor = output(&["doctor", "--json"]);
    assert!(doctor.status.success(), "{}", stderr(&doctor));
    let object: serde_json::Value = serde_json::from_str(&stdout(&doctor)).unwrap();
    assert!(object["cuda"]["nvrtc"]["missing"].as_str().unwrap().contains("nowhere"), "{object}");
    assert!(object["findings"].to_string().contains("b.cubins"), "{object}");
}

#[test]
fn doctor_knows_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let output = lab(&["doctor", "--json"], folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(object["device_key"].as_str().unwrap().starts_with("host-"));
    assert!(object["variants_here"].as_u64().unwrap() >= 4);
    for part in ["nvrtc", "device"] {
        let part = &object["cuda"][part];
        assert!(part["here"].is_object() || part["missing"].is_string(), "{object}");
    }
    assert!(lab(&["doctor"], folder.path()).status.success());
}
