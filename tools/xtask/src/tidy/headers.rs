//! The first line of every Rust source says what the file is for.

use super::Finding;
use crate::tree::{Tree, folder, is_below, name};

/// Finds crate roots and files below `src` that do not start with a `//!` line that has text.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust().filter(|(path, _)| is_below(path, "src") || is_crate_root(path));
    let silent = sources.filter(|(_, text)| {
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|rest| rest.trim().is_empty())
    });
    silent.map(|(path, _)| Finding::failure(path, 1, "starts without a `//!` line: say what the file is for")).collect()
}

/// Whether cargo takes the file as a crate of its own: a test, bench, example, fuzz target or build script.
fn is_crate_root(path: &str) -> bool {
    let is_home = |folder: &str| matches!(name(folder), "tests" | "benches" | "examples" | "fuzz_targets");
    let parent = folder(path);
    name(path) == "build.rs" || is_home(parent) || (name(path) == "main.rs" && is_home(folder(parent)))
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn files_without_a_first_line_fail() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "//! What it is.\n"),
            ("a/src/x/y.rs", "use a;\n"),
            ("a/src/empty.rs", ""),
            ("a/src/bare.rs", "//!\n//! Too late.\n"),
            ("a/src/attribute.rs", "#![expect(x)]\n//! Too late.\n"),
            ("a/tests/it.rs", "use a;\n"),
            ("a/tests/it/main.rs", "use a;\n"),
            ("a/tests/it/helper.rs", "use a;\n"),
            ("a/build.rs", "use a;\n"),
            ("a/src/x/kernel.cu", "int a;\n"),
        ]);
        let expected = ["attribute.rs", "bare.rs", "empty.rs", "x/y.rs"].map(|path| format!("a/src/{path}:1"));
        let expected: Vec<String> = ["a/build.rs:1".to_owned()]
            .into_iter()
            .chain(expected)
            .chain(["a/tests/it.rs:1".to_owned(), "a/tests/it/main.rs:1".to_owned()])
            .collect();
        assert_eq!(places(&check(&tree)), expected);
    }
}
