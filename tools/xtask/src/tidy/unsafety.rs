//! Where `unsafe` may stand.

use super::Finding;
use crate::code;
use crate::tree::{Tree, name};

/// Single files with a documented reason: the host pool and its partition of outputs, and the mapping of model files.
const FILES: [&str; 3] =
    ["kernels/src/backend/host/pool.rs", "kernels/src/backend/host/partition.rs", "engine/artifact/src/mmap.rs"];

/// The device backend.
const FOLDER: &str = "kernels/src/backend/cuda/";

/// Below these folders, files whose name starts with an instruction set.
const SIMD_FOLDERS: [&str; 2] = ["kernels/src/ops/", "kernels/src/vector/"];

/// Instruction sets that SIMD modules are named after.
const INSTRUCTION_SETS: [&str; 3] = ["avx2", "avx512", "neon"];

/// Finds the keyword in the code of any other file. Lint names such as `unsafe_code` are other words.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| !is_allowed(path)) {
        let code = code::blank(text);
        findings.extend(code::words(&code, "unsafe").map(|offset| {
            let what = "`unsafe` stands outside the device backend, the SIMD modules and the listed files: \
                        use a safe interface of one of them";
            Finding::failure(path, code::line_of(&code, offset), what)
        }));
    }
    findings
}

fn is_allowed(path: &str) -> bool {
    let is_simd = || INSTRUCTION_SETS.iter().any(|set| name(path).starts_with(set));
    FILES.contains(&path)
        || path.starts_with(FOLDER)
        || (SIMD_FOLDERS.iter().any(|folder| path.starts_with(folder)) && is_simd())
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn unsafe_code_is_found_outside_its_places() {
        let block = "//! A\nfn f() {\n    unsafe { g() }\n}\n";
        let tree = Tree::of(&[
            ("kernels/src/backend/cuda/launch.rs", block),
            ("kernels/src/backend/host/pool.rs", block),
            ("kernels/src/backend/host/mod.rs", block),
            ("kernels/src/ops/matmul/avx2_row.rs", block),
            ("kernels/src/ops/matmul/neon_row.rs", block),
            ("kernels/src/ops/matmul/scalar.rs", block),
            ("kernels/src/avx2.rs", block),
            ("engine/artifact/src/mmap.rs", block),
        ]);
        let found = places(&check(&tree));
        assert_eq!(
            found,
            ["kernels/src/avx2.rs:3", "kernels/src/backend/host/mod.rs:3", "kernels/src/ops/matmul/scalar.rs:3"]
        );
    }

    #[test]
    fn the_word_in_text_and_the_lint_pass() {
        let source = "//! unsafe\n#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n/* unsafe */\n";
        assert_eq!(check(&Tree::of(&[("a/src/lib.rs", source), ("b.md", "unsafe")])), []);
    }
}
