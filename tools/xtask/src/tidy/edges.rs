//! Edges between the packages of this repository.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::Finding;
use crate::code;
use crate::tree::{Tree, folder, name};

/// What each package may depend on. `ARCHITECTURE.md` gives the reasons.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("memra-contract", &[]),
    ("memra-kernels", &["memra-contract"]),
    ("memra-artifact", &["memra-contract"]),
    ("memra-ledger", &["memra-contract"]),
    ("memra-engine", &["memra-contract", "memra-kernels", "memra-artifact"]),
    ("memra-harness", &["memra-contract", "memra-kernels", "memra-artifact", "memra-ledger"]),
    ("memra-boards", &["memra-contract", "memra-ledger"]),
    (
        "memra-lab",
        &[
            "memra-contract",
            "memra-kernels",
            "memra-artifact",
            "memra-ledger",
            "memra-engine",
            "memra-harness",
            "memra-boards",
        ],
    ),
    ("memra-fuzz", &["memra-contract", "memra-kernels", "memra-artifact", "memra-engine"]),
    ("xtask", &[]),
];

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// A package: its name and the folder of its manifest.
struct Package<'a> {
    name: String,
    folder: &'a str,
    manifest: &'a str,
    text: &'a str,
    table: Table,
}

/// Finds dependencies, in manifests and in sources, that [`ALLOWED`] does not hold.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut packages = Vec::new();
    let mut workspace = Table::new();
    for (path, text) in tree.texts().filter(|(path, _)| name(path) == "Cargo.toml") {
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                findings.push(Finding::failure(path, 1, format!("is no TOML: {}", error_text(&error))));
                continue;
            }
        };
        if path == "Cargo.toml" {
            workspace = section(&table, "workspace")
                .and_then(|table| section(table, "dependencies"))
                .cloned()
                .unwrap_or_default();
        }
        let package = section(&table, "package").and_then(|package| package.get("name")).and_then(Value::as_str);
        if let Some(name) = package {
            packages.push(Package { name: name.to_owned(), folder: folder(path), manifest: path, text, table });
        }
    }
    for package in &packages {
        match allowed(&package.name) {
            Some(allowed) => findings.extend(manifest_edges(package, allowed, &packages, &workspace)),
            None => findings.push(Finding::failure(
                package.manifest,
                line_of_key(package.text, "name"),
                format!(
                    "package `{}` has no row in the table of allowed edges: add it to tidy and to ARCHITECTURE.md",
                    package.name
                ),
            )),
        }
    }
    findings.extend(source_edges(tree, &packages));
    findings
}

fn allowed(package: &str) -> Option<&'static [&'static str]> {
    ALLOWED.iter().find(|(name, _)| *name == package).map(|(_, allowed)| *allowed)
}

fn manifest_edges(package: &Package, allowed: &[&str], packages: &[Package], workspace: &Table) -> Vec<Finding> {
    let targets = section(&package.table, "target").into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let tables = std::iter::once(&package.table).chain(targets);
    let dependencies = tables.flat_map(|table| SECTIONS.iter().filter_map(|name| section(table, name))).flatten();
    let mut findings = Vec::new();
    for (key, specification) in dependencies {
        let target = real_name(key, specification, workspace);
        let is_ours = packages.iter().any(|package| package.name == target) || self::allowed(target).is_some();
        if is_ours && !allowed.contains(&target) {
            let line = line_of_key(package.text, key);
            findings.push(Finding::failure(package.manifest, line, refusal(&package.name, target)));
        }
    }
    findings
}

/// The name of the package that a dependency means: it may be renamed here or in the workspace's table.
fn real_name<'a>(key: &'a str, specification: &'a Value, workspace: &'a Table) -> &'a str {
    let renamed = |value: &'a Value| value.get("package").and_then(Value::as_str);
    let is_inherited = specification.get("workspace").and_then(Value::as_bool) == Some(true);
    let inherited = if is_inherited { workspace.get(key).and_then(renamed) } else { None };
    renamed(specification).or(inherited).unwrap_or(key)
}

fn source_edges(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let crates: BTreeMap<String, &str> =
        packages.iter().map(|package| (package.name.replace('-', "_"), package.name.as_str())).collect();
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let owner =
            packages.iter().filter(|package| contains(package.folder, path)).max_by_key(|package| package.folder.len());
        let Some((owner, allowed)) = owner.and_then(|owner| Some((owner.name.as_str(), allowed(&owner.name)?))) else {
            continue;
        };
        let code = code::blank(text);
        for (offset, word) in code::identifiers(&code) {
            let Some(target) = crates.get(word).copied() else { continue };
            if target != owner && !allowed.contains(&target) && is_path(&code, offset, word) {
                findings.push(Finding::failure(path, code::line_of(&code, offset), refusal(owner, target)));
            }
        }
    }
    findings
}

fn contains(folder: &str, path: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a crate's name is used as one: in front of `::`, or named by `use` or `extern crate`.
fn is_path(code: &str, offset: usize, word: &str) -> bool {
    let before = code.get(..offset).unwrap_or_default().trim_end();
    let after = code.get(offset + word.len()..).unwrap_or_default().trim_start();
    after.starts_with("::") || ["use", "crate"].iter().any(|keyword| before.ends_with(keyword))
}

fn refusal(package: &str, target: &str) -> String {
    let allowed = match allowed(package) {
        None | Some([]) => "nothing in this repository".to_owned(),
        Some(allowed) => allowed.join(", "),
    };
    format!("`{package}` may not depend on `{target}`, only on {allowed}: move the code, or pass values in")
}

fn section<'a>(table: &'a Table, key: &str) -> Option<&'a Table> {
    table.get(key).and_then(Value::as_table)
}

/// The first line that sets `key` or opens a table that ends in it.
fn line_of_key(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let rest = line.trim_start().trim_start_matches('"').strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with(['=', '.']))
            || line.trim_end().ends_with(&format!(".{key}]"))
    };
    text.lines().position(sets).map_or(1, |index| index + 1)
}

fn error_text(error: &toml::de::Error) -> String {
    error.message().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    const LEDGER: (&str, &str) = ("ledger/Cargo.toml", "[package]\nname = \"memra-ledger\"\n");
    const CONTRACT: (&str, &str) = ("kernels/contract/Cargo.toml", "[package]\nname = \"memra-contract\"\n");

    fn kernels(rest: &str) -> String {
        format!("[package]\nname = \"memra-kernels\"\n{rest}")
    }

    #[test]
    fn edges_of_the_table_pass() {
        let kernels = kernels("[dependencies]\nmemra-contract.workspace = true\ntoml = \"1\"\n");
        let tree = Tree::of(&[
            LEDGER,
            CONTRACT,
            ("kernels/Cargo.toml", &kernels),
            ("kernels/src/lib.rs", "//! A\nuse memra_contract::x;\n// use memra_ledger::x;\nlet memra_ledger = 1;"),
            ("kernels/tests/a.rs", "use memra_kernels::x;"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn other_edges_fail_wherever_they_are_declared() {
        for (rest, line) in [
            ("[dependencies]\nmemra-ledger.workspace = true\n", 4),
            ("[dependencies]\nmemra-ledger = { path = \"../ledger\" }\n", 4),
            ("[dev-dependencies]\nmemra-contract = \"1\"\n\"memra-ledger\" = \"1\"\n", 5),
            ("[build-dependencies.memra-ledger]\npath = \"../ledger\"\n", 3),
            ("[target.'cfg(unix)'.dependencies]\nmemra-ledger = \"1\"\n", 4),
            ("[dependencies]\nrecords = { package = \"memra-ledger\", path = \"../ledger\" }\n", 4),
            ("[dependencies]\nevidence.workspace = true\n", 4),
            ("[dependencies]\nmemra-boards = \"1\"\n", 4),
        ] {
            let root = "[workspace.dependencies]\nevidence = { package = \"memra-ledger\", path = \"ledger\" }\n";
            let kernels = kernels(rest);
            let tree = Tree::of(&[("Cargo.toml", root), LEDGER, ("kernels/Cargo.toml", &kernels)]);
            assert_eq!(places(&check(&tree)), [format!("kernels/Cargo.toml:{line}")], "{rest}");
        }
    }

    #[test]
    fn sources_are_held_to_the_same_table() {
        let kernels = kernels("");
        let tree = Tree::of(&[
            LEDGER,
            CONTRACT,
            ("kernels/Cargo.toml", &kernels),
            ("kernels/src/a.rs", "//! A\nuse memra_ledger;\n"),
            ("kernels/tests/b.rs", "//! B\n\nfn f() { memra_ledger::f() }\n"),
            ("kernels/contract/src/c.rs", "use memra_kernels::x;"),
        ]);
        let findings = check(&tree);
        assert_eq!(places(&findings), ["kernels/contract/src/c.rs:1", "kernels/src/a.rs:2", "kernels/tests/b.rs:3"]);
        assert!(
            findings[1].what.starts_with("`memra-kernels` may not depend on `memra-ledger`, only on memra-contract")
        );
    }

    #[test]
    fn unknown_packages_and_broken_manifests_fail() {
        let tree =
            Tree::of(&[("new/Cargo.toml", "[package]\n\nname = \"memra-new\"\n"), ("old/Cargo.toml", "[package")]);
        let findings = check(&tree);
        assert_eq!(places(&findings), ["old/Cargo.toml:1", "new/Cargo.toml:3"]);
        assert!(findings[1].what.contains("`memra-new`"), "{findings:?}");
    }
}
