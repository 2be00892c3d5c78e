//! Words that no tracked file may hold: paths of one machine, hosts of one network, and unfinished work.

use super::Finding;
use crate::code::{line_of, words};
use crate::tree::{Tree, is_code};

/// Roots of paths that exist on one machine. Written in parts, so that this file passes.
const MACHINE_ROOTS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

/// Package registries of one network, in lower case.
const REGISTRY_HOSTS: [&str; 3] =
    [concat!(".jf", "rog.io"), concat!("arti", "factory"), concat!("index.crates", ".io:")];

/// The one registry that a lock file may name.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Unfinished work, as text.
const STUBS: [&str; 3] = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ign", "ore")];

/// Unfinished work, as words.
const MARKS: [&str; 3] = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

/// The lint that must not be switched off.
const DEAD_CODE: &str = concat!("dead", "_code");

/// Files that keep paths of machines out of receipts, and so must name some.
const PATH_LINTS: [&str; 2] = ["ledger/src/chain/privacy.rs", "harness/src/check/failures.rs"];

/// Finds such words.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let mut fail = |offset: usize, what: String| findings.push(Finding::failure(path, line_of(text, offset), what));
        if !PATH_LINTS.contains(&path) {
            for (offset, root) in MACHINE_ROOTS.iter().flat_map(|root| text.match_indices(root)) {
                if starts_path(text, offset) {
                    fail(offset, format!("`{root}` is a path of one machine: use a relative path or a placeholder"));
                }
            }
        }
        let lower = text.to_ascii_lowercase();
        for (offset, host) in REGISTRY_HOSTS.iter().flat_map(|host| lower.match_indices(host)) {
            fail(offset, format!("`{host}` is a registry of one network: name the public registry"));
        }
        if path.ends_with("Cargo.lock") {
            for offset in foreign_sources(text) {
                fail(offset, format!("the source of this package is not `{PUBLIC_REGISTRY}`"));
            }
        }
        if is_code(path, text) {
            for (offset, stub) in STUBS.iter().flat_map(|stub| text.match_indices(stub)) {
                fail(offset, format!("`{stub}` marks unfinished work: finish it or leave it out"));
            }
            for (offset, mark) in MARKS.iter().flat_map(|mark| words(text, mark).map(move |offset| (offset, mark))) {
                fail(offset, format!("`{mark}` marks unfinished work: finish it or leave it out"));
            }
            for offset in words(text, DEAD_CODE).filter(|offset| line_at(text, *offset).contains("allow")) {
                fail(offset, format!("allows `{DEAD_CODE}`: remove the code"));
            }
        }
    }
    findings
}

/// Whether the slash at `offset` starts a path: what stands before it is no part of one.
fn starts_path(text: &str, offset: usize) -> bool {
    let before = text.get(..offset).and_then(|head| head.chars().next_back());
    !before.is_some_and(|character| character.is_alphanumeric() || "_.-})]>*/".contains(character))
}

/// The offsets of the `source` lines of a lock file that name anything but the public registry.
fn foreign_sources(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("\nsource = \"").map(|(offset, _)| offset + 1).filter(|offset| {
        line_at(text, *offset).trim_end().strip_prefix("source = \"").and_then(|rest| rest.strip_suffix('"'))
            != Some(PUBLIC_REGISTRY)
    })
}

fn line_at(text: &str, offset: usize) -> &str {
    let start = text.get(..offset).and_then(|head| head.rfind('\n')).map_or(0, |end| end + 1);
    text.get(start..).unwrap_or_default().lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    fn finds(path: &str, text: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn paths_of_machines_fail() {
        for root in MACHINE_ROOTS {
            for line in [format!("see {root}x"), format!("\"{root}\""), format!("--root={root}a"), format!("{root}a")] {
                assert_eq!(finds("docs/a.md", &format!("\n{line}\n")), ["docs/a.md:2"], "{line}");
            }
            for line in [format!("a{root}b"), format!("$dir{root}b"), format!("{{root}}{root}b"), format!("..{root}b")]
            {
                assert_eq!(finds("docs/a.md", &line), [""; 0], "{line}");
            }
            assert_eq!(finds(PATH_LINTS[0], root), [""; 0]);
        }
    }

    #[test]
    fn registries_of_one_network_fail() {
        for host in REGISTRY_HOSTS {
            assert_eq!(finds(".cargo/config.toml", &format!("url = \"https://a{}8\"", host.to_uppercase())).len(), 1);
        }
        let lock =
            format!("[[package]]\nsource = \"{PUBLIC_REGISTRY}\"\n\n[[package]]\nsource = \"sparse+https://a/\"\n");
        assert_eq!(finds("fuzz/Cargo.lock", &lock), ["fuzz/Cargo.lock:5"]);
    }

    #[test]
    fn unfinished_work_fails_in_code_only() {
        let attribute = format!("{}]", STUBS[2]);
        let reasoned = format!("{} = \"slow\"]", STUBS[2]);
        let allowed = format!("#![allow(unused, {DEAD_CODE})]");
        let lint = format!("{DEAD_CODE} = \"allow\"");
        let lines = [STUBS[0], STUBS[1], &attribute, &reasoned, MARKS[0], MARKS[1], MARKS[2], &allowed, &lint];
        for line in lines {
            for path in ["a.rs", "a.toml", "a.sh", "a.cu"] {
                assert_eq!(finds(path, &format!("a\n{line}\n")), [format!("{path}:2")], "{line}");
            }
            assert_eq!(finds("a.md", line), [""; 0], "{line}");
        }
        let denied = format!("#![deny({DEAD_CODE})]\nlet work = \".{}{}\";\n", MARKS[1], MARKS[1]);
        assert_eq!(finds("a.rs", &denied), [""; 0]);
    }
}
