//! Files on disk, and drift.

use crate::evidence;
use memra_boards::{DriftKind, FoldOptions, Output, check_outputs, regenerate, write_outputs};
use std::fs;

const README: &str = "# x\n\n<!-- board:begin -->\n<!-- board:end -->\n";

fn outputs() -> Vec<Output> {
    regenerate(&evidence::inputs(), &evidence::ledger(), Some(README), FoldOptions::default()).unwrap()
}

#[test]
fn all_files_are_made() {
    let paths: Vec<String> = outputs().into_iter().map(|output| output.path).collect();
    for path in ["PERFORMANCE.md", "README.md", "boards/external.json", "boards/host-a.json", "boards/host-b.json"] {
        assert!(paths.iter().any(|made| made == path), "{path}");
    }
    assert!(paths.contains(&"boards/plots/host-a.forest.svg".to_owned()));
    assert_eq!(paths.iter().filter(|path| path.starts_with("boards/plots/host-a.slots-")).count(), 6);
    assert!(paths.is_sorted());
}

#[test]
fn every_plot_the_page_shows_is_made() {
    let outputs = outputs();
    let page = outputs.iter().find(|output| output.path == "PERFORMANCE.md").unwrap();
    let page = String::from_utf8(page.bytes.clone()).unwrap();
    let linked: Vec<&str> = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| link.strip_suffix(".svg").is_some())
        .collect();
    assert!(linked.len() >= 8, "{linked:?}");
    for link in linked {
        assert!(outputs.iter().any(|output| output.path == link), "{link}");
    }
}

#[test]
fn regeneration_is_a_fixed_point() {
    let first = outputs();
    let readme = first.iter().find(|output| output.path == "README.md").unwrap();
    let text = String::from_utf8(readme.bytes.clone()).unwrap();
    let again = regenerate(&evidence::inputs(), &evidence::ledger(), Some(&text), FoldOptions::default()).unwrap();
    assert_eq!(first, again);
}

#[test]
fn written_files_do_not_drift_and_are_not_touched_again() {
    let root = tempfile::tempdir().unwrap();
    let outputs = outputs();
    let report = write_outputs(root.path(), &outputs).unwrap();
    assert_eq!((report.written.len(), report.unchanged.len()), (outputs.len(), 0));
    assert_eq!(check_outputs(root.path(), &outputs).unwrap(), []);
    let report = write_outputs(root.path(), &outputs).unwrap();
    assert_eq!((report.written.len(), report.unchanged.len()), (0, outputs.len()));
    let left: Vec<_> = fs::read_dir(root.path().join("boards")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".board-")), "{left:?}");
}

#[test]
fn one_digit_is_drift() {
    let root = tempfile::tempdir().unwrap();
    let outputs = outputs();
    write_outputs(root.path(), &outputs).unwrap();
    for output in &outputs {
        let path = root.path().join(&output.path);
        let mut bytes = output.bytes.clone();
        let Some(at) = bytes.iter().rposition(u8::is_ascii_digit) else { panic!("{} has no digit", output.path) };
        bytes[at] = if bytes[at] == b'0' { b'1' } else { bytes[at] - 1 };
        fs::write(&path, &bytes).unwrap();
        let drifts = check_outputs(root.path(), &outputs).unwrap();
        assert_eq!(drifts.len(), 1);
        assert_eq!(drifts[0].path, output.path);
        let DriftKind::Differs { line, .. } = drifts[0].kind else { panic!("{:?}", drifts[0]) };
        assert_eq!(line, 1 + String::from_utf8_lossy(&bytes[..at]).matches('\n').count());
        fs::write(&path, &output.bytes).unwrap();
    }
}

#[test]
fn missing_and_stale_files_are_drift_and_are_repaired() {
    let root = tempfile::tempdir().unwrap();
    let outputs = outputs();
    write_outputs(root.path(), &outputs).unwrap();
    let stand = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
    fs::remove_file(root.path().join("PERFORMANCE.md")).unwrap();
    stand("boards/plots/host-a.slots-000000000000.svg", "<svg/>");
    stand("boards/gone.json", "{\n  \"schema\": \"memra-lab.board/1.0.0\"\n}\n");
    stand("boards/package.json", "{}\n");
    stand("boards/Cargo.toml", "[package]\n");
    let drifts: Vec<_> = check_outputs(root.path(), &outputs).unwrap().into_iter().map(|d| (d.path, d.kind)).collect();
    assert_eq!(
        drifts,
        [
            ("PERFORMANCE.md".to_owned(), DriftKind::Missing),
            ("boards/gone.json".to_owned(), DriftKind::Stale),
            ("boards/plots/host-a.slots-000000000000.svg".to_owned(), DriftKind::Stale),
        ]
    );
    let report = write_outputs(root.path(), &outputs).unwrap();
    assert_eq!(report.written, ["PERFORMANCE.md"]);
    assert_eq!(report.removed, ["boards/gone.json", "boards/plots/host-a.slots-000000000000.svg"]);
    assert_eq!(check_outputs(root.path(), &outputs).unwrap(), []);
    assert!(root.path().join("boards/package.json").exists() && root.path().join("boards/Cargo.toml").exists());
}

#[test]
fn drift_reads_well() {
    let root = tempfile::tempdir().unwrap();
    let output = Output { path: "boards/x.json".to_owned(), bytes: b"{\n  \"n\": 12\n}\n".to_vec() };
    fs::create_dir(root.path().join("boards")).unwrap();
    fs::write(root.path().join("boards/x.json"), "{\n  \"n\": 13\n}\n").unwrap();
    let drift = check_outputs(root.path(), &[output]).unwrap();
    assert_eq!(
        drift[0].to_string(),
        "boards/x.json differs from line 2\n  expected:   \"n\": 12\n  found:      \"n\": 13"
    );
}

#[test]
fn outputs_never_leave_the_root() {
    let root = tempfile::tempdir().unwrap();
    let output = Output { path: "../x".to_owned(), bytes: vec![] };
    assert!(write_outputs(root.path(), &[output]).is_err());
}

#[test]
fn an_unreadable_place_is_an_error_with_its_path() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("boards/x.json")).unwrap();
    let output = Output { path: "boards/x.json".to_owned(), bytes: vec![] };
    let error = check_outputs(root.path(), &[output]).unwrap_err().to_string();
    assert!(error.contains("cannot read `boards/x.json`"), "{error}");
}
