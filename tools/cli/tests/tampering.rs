//! The tracked evidence, copied and tampered with: every change is noticed and the place is named.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const INTEGRITY: i32 = 15;

/// A copy of everything that verification reads.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for part in ["receipts", "ledger", "boards", "kernels/defaults", "kernels/src", "PERFORMANCE.md", "README.md"] {
            copy(&checkout.join(part), &folder.path().join(part));
        }
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_memra-lab"))
            .args(arguments)
            .args(["--root", "."])
            .current_dir(self.path())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .output()
            .unwrap()
    }

    /// Verification fails and names what was changed.
    fn fails(&self, named: &str) {
        let output = self.run(&["receipts", "verify"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(INTEGRITY), "{said}");
        assert!(said.contains(named), "`{named}` is not named in: {said}");
        assert_eq!(self.run(&["board", "regenerate", "--check"]).status.code(), Some(INTEGRITY));
    }

    /// The largest receipt file, with its path below the root.
    fn receipt(&self) -> (PathBuf, String) {
        let mut files = Vec::new();
        find(&self.path().join("receipts"), &mut files);
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        let file = files.into_iter().max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
        let name = file.strip_prefix(self.path()).unwrap().to_str().unwrap().to_owned();
        (file, name)
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { find(&path, files) } else { files.push(path) }
    }
}

/// Replaces one digit, not one of a leading zero, at or after a position.
fn change_digit(text: &str, from: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let at = (from..bytes.len()).find(|i| (b'1'..=b'8').contains(&bytes[*i])).unwrap();
    bytes[at] += 1;
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_untouched_evidence_is_sound_and_the_boards_agree() {
    let copy = Copy::new();
    let output = copy.run(&["receipts", "verify"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let output = copy.run(&["board", "regenerate", "--check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn one_digit_of_a_receipt() {
    let copy = Copy::new();
    let (file, name) = copy.receipt();
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().position(|line| line.contains("\"elapsed_ns\":[")).unwrap();
    let start: usize = text.lines().take(line).map(|line| line.len() + 1).sum();
    let slots = start + text[start..].find("\"elapsed_ns\":[").unwrap();
    fs::write(&file, change_digit(&text, slots)).unwrap();
    copy.fails(&format!("{name}:{}", line + 1));
}

#[test]
fn a_removed_receipt_file() {
    let copy = Copy::new();
    let (file, name) = copy.receipt();
    fs::remove_file(file).unwrap();
    copy.fails(&name);
}

#[test]
fn two_swapped_lines() {
    let copy = Copy::new();
    let (file, name) = copy.receipt();
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.swap(1, 2);
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    copy.fails(&format!("{name}:2"));
}

#[test]
fn an_appended_copy_of_a_line() {
    let copy = Copy::new();
    let (file, name) = copy.receipt();
    let text = fs::read_to_string(&file).unwrap();
    let count = text.lines().count();
    fs::write(&file, format!("{text}{}\n", text.lines().last().unwrap())).unwrap();
    copy.fails(&format!("{name}:{}", count + 1));
}

#[test]
fn a_copy_of_a_file_under_another_name() {
    let copy = Copy::new();
    let (file, name) = copy.receipt();
    let other = name.replace(".jsonl", "x.jsonl");
    fs::copy(file, copy.path().join(&other)).unwrap();
    copy.fails(&other);
}

#[test]
fn one_digit_of_the_page() {
    let copy = Copy::new();
    let page = copy.path().join("PERFORMANCE.md");
    let text = fs::read_to_string(&page).unwrap();
    let table = text.find("| ").unwrap();
    fs::write(&page, change_digit(&text, table)).unwrap();
    let output = copy.run(&["board", "regenerate", "--check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("PERFORMANCE.md"), "{said}");
}

#[test]
fn one_byte_of_a_promoted_source() {
    let copy = Copy::new();
    let mut tables = Vec::new();
    find(&copy.path().join("kernels/defaults"), &mut tables);
    let text: String = tables.iter().map(|table| fs::read_to_string(table).unwrap()).collect();
    let line = text.lines().find(|line| line.starts_with("variant = ")).unwrap();
    let variant = line.trim_start_matches("variant = ").trim_matches('"').to_owned();
    let mut sources = Vec::new();
    find(&copy.path().join("kernels/src/ops"), &mut sources);
    let source = sources.iter().find(|file| file.file_stem().is_some_and(|stem| *stem == *variant)).unwrap();
    let mut bytes = fs::read(source).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    fs::write(source, bytes).unwrap();
    copy.fails(source.strip_prefix(copy.path()).unwrap().to_str().unwrap());
}
