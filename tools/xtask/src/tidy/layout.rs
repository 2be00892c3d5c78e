//! Files that must stand where they are looked for: defaults, folders of contracts, cells.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use crate::tree::{Tree, extension, folder, name};

const DEFAULTS: &str = "kernels/defaults";
const OPERATIONS: &str = "kernels/src/ops/";

/// Finds tables of defaults whose file is not named after the device key inside.
pub(super) fn check_defaults(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| folder(path) == DEFAULTS && extension(path) == Some("toml")) {
        let what = match text.parse::<Table>() {
            Err(error) => format!("is no TOML: {}", error.message()),
            Ok(table) => match table.get("device_key").and_then(Value::as_str) {
                None => "has no `device_key`: add it".to_owned(),
                Some(key) if name(path) == format!("{key}.toml") => continue,
                Some(key) => format!("holds the defaults of `{key}`: name the file {key}.toml"),
            },
        };
        let line =
            text.lines().position(|line| line.trim_start().starts_with("device_key")).map_or(1, |index| index + 1);
        findings.push(Finding::failure(path, line, what));
    }
    findings
}

/// Finds folders of contracts without `mod.rs` or `cases.toml`, and cell files that are no TOML.
pub(super) fn check_folders(tree: &Tree) -> Vec<Finding> {
    let contracts: BTreeSet<&str> = tree
        .files()
        .filter_map(|(path, _)| path.strip_prefix(OPERATIONS)?.split_once('/').map(|(contract, _)| contract))
        .collect();
    let mut findings = Vec::new();
    for contract in contracts {
        for file in ["mod.rs", "cases.toml"] {
            let path = format!("{OPERATIONS}{contract}/{file}");
            if tree.text(&path).is_none() {
                findings.push(Finding::failure(&path, 1, format!("contract `{contract}` has no {file}: add it")));
            }
        }
    }
    let is_cell = |path: &str| name(folder(path)) == "cells" && extension(path) == Some("toml");
    for (path, text) in tree.texts().filter(|(path, _)| is_cell(path)) {
        if let Err(error) = text.parse::<Table>() {
            let line = error.span().map_or(1, |span| crate::code::line_of(text, span.start));
            findings.push(Finding::failure(path, line, format!("is no TOML: {}", error.message())));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn defaults_are_named_after_their_key() {
        let tree = Tree::of(&[
            ("kernels/defaults/host-a.toml", "schema = \"x/1\"\ndevice_key = \"host-a\"\n"),
            ("kernels/defaults/host-b.toml", "schema = \"x/1\"\ndevice_key = \"host-a\"\n"),
            ("kernels/defaults/host-c.toml", "schema = \"x/1\"\n"),
            ("kernels/defaults/host-d.toml", "device_key = \n"),
            ("kernels/defaults/notes.md", "text"),
        ]);
        let findings = check_defaults(&tree);
        let path = |file: &str| format!("kernels/defaults/{file}");
        assert_eq!(places(&findings), [path("host-b.toml:2"), path("host-c.toml:1"), path("host-d.toml:1")]);
        assert!(findings[0].what.ends_with("name the file host-a.toml"), "{findings:?}");
    }

    #[test]
    fn contracts_have_their_files() {
        let tree = Tree::of(&[
            ("kernels/src/ops/mod.rs", ""),
            ("kernels/src/ops/a/mod.rs", ""),
            ("kernels/src/ops/a/cases.toml", ""),
            ("kernels/src/ops/b/scalar.rs", ""),
            ("kernels/src/ops/c/deep/mod.rs", ""),
            ("kernels/src/ops/c/cases.toml", ""),
        ]);
        let path = |file: &str| format!("kernels/src/ops/{file}:1");
        assert_eq!(places(&check_folders(&tree)), [path("b/mod.rs"), path("b/cases.toml"), path("c/mod.rs")]);
    }

    #[test]
    fn cells_parse() {
        let tree =
            Tree::of(&[("harness/cells/a.toml", "x = 1\n"), ("harness/cells/b.toml", "x = 1\ny =\n"), ("b.toml", "=")]);
        assert_eq!(places(&check_folders(&tree)), ["harness/cells/b.toml:2"]);
    }
}
