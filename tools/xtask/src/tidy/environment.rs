//! Reads of environment variables: only the command line does it.

use super::Finding;
use crate::code;
use crate::tree::{Tree, is_below, name};

const READS: [&str; 4] = ["var", "vars", "var_os", "vars_os"];

/// Finds reads outside `tools/` and outside tests. `env!` and `option_env!` are read by the compiler and pass.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_test = |path: &str| is_below(path, "tests") || name(path) == "tests.rs";
    for (path, text) in tree.rust().filter(|(path, _)| !path.starts_with("tools/") && !is_test(path)) {
        let code = code::without_tests(&code::blank(text));
        findings.extend(code::words(&code, "env").filter(|offset| is_read(&code, *offset)).map(|offset| {
            let what = "reads the environment below the command line: take the value as a parameter";
            Finding::failure(path, code::line_of(&code, offset), what)
        }));
    }
    findings
}

/// Whether the word `env` at `offset` leads to a read: `env::var`, `env::{self, var}` or `env::*`.
fn is_read(code: &str, offset: usize) -> bool {
    let after = code.get(offset + "env".len()..).unwrap_or_default().trim_start();
    let Some(member) = after.strip_prefix("::").map(str::trim_start) else { return false };
    let names = match member.strip_prefix('{') {
        Some(group) => group.split('}').next().unwrap_or_default(),
        None => {
            member.split(|character: char| !character.is_alphanumeric() && character != '_').next().unwrap_or_default()
        }
    };
    member.starts_with('*') || code::identifiers(names).any(|(_, word)| READS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn reads_in_libraries_fail() {
        for read in [
            "fn f() { std::env::var(\"A\"); }",
            "fn f() { env::var_os(\"A\"); }",
            "use std::env::{self, vars};",
            "use std::env::*;",
            "fn f() { std::env\n::vars_os(); }",
        ] {
            let source = format!("//! A\n{read}\n");
            let tree = Tree::of(&[
                ("ledger/src/a.rs", &source),
                ("tools/cli/src/a.rs", &source),
                ("ledger/tests/a.rs", &source),
                ("ledger/src/judge/tests.rs", &source),
            ]);
            assert_eq!(places(&check(&tree)), ["ledger/src/a.rs:2"], "{read}");
        }
    }

    #[test]
    fn other_uses_pass() {
        let source = "//! env::var\nuse std::env;\nconst A: Option<&str> = option_env!(\"A\");\n\
                      fn f() { env::args(); env!(\"B\"); env.var(); }\n\
                      #[cfg(test)]\nmod tests {\n    fn g() { std::env::var(\"A\"); }\n}\n";
        assert_eq!(check(&Tree::of(&[("ledger/src/a.rs", source)])), []);
    }
}
