//! Relative links of pages.

use super::Finding;
use crate::tree::{Tree, extension, folder};

/// Finds relative links of Markdown pages to files that are not tracked.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in tree.texts().filter(|(path, _)| extension(path) == Some("md")) {
        for (line, target) in targets(text) {
            let is_held = resolve(folder(page), &target).is_some_and(|path| tree.holds(&path));
            if is_relative(&target) && !is_held {
                let what = format!("links to `{target}`, which git does not track: correct the link");
                findings.push(Finding::failure(page, line, what));
            }
        }
    }
    findings
}

/// Whether a link points into the repository and not at a heading of its own page.
fn is_relative(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    let has_scheme = scheme.is_some_and(|scheme| {
        scheme.chars().all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character))
    });
    !target.is_empty() && !target.starts_with('#') && !target.starts_with("//") && !has_scheme
}

/// The path that a link from a page in `folder` points at, or none above the root. A leading `/` means the root.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let path = target.split(['#', '?']).next().unwrap_or_default().replace("%20", " ");
    let base = if path.starts_with('/') { "" } else { folder };
    let mut parts = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The targets of inline links, images, reference definitions and HTML attributes, with their lines, outside code.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| start.starts_with(marker));
        match (fence, marker) {
            (None, Some(marker)) => fence = Some(marker),
            (Some(open), Some(marker)) if open == marker => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                let line = without_code(line);
                let mut add = |target: &str| found.push((index + 1, target.to_owned()));
                line.match_indices("](").filter_map(|(at, _)| inline_target(line.get(at + 2..)?)).for_each(&mut add);
                definition_target(&line).into_iter().for_each(&mut add);
                for attribute in ["src=\"", "href=\""] {
                    let values = line
                        .match_indices(attribute)
                        .filter_map(|(at, _)| line.get(at + attribute.len()..)?.split('"').next());
                    values.for_each(&mut add);
                }
            }
        }
    }
    found
}

/// The target at the start of `rest`, which follows `](`: up to a title or the closing parenthesis.
fn inline_target(rest: &str) -> Option<&str> {
    let rest = rest.trim_start();
    if let Some(bracketed) = rest.strip_prefix('<') {
        return bracketed.split_once('>').map(|(target, _)| target);
    }
    let mut depth = 0_usize;
    let end = rest.find(|character: char| match character {
        '(' => {
            depth += 1;
            false
        }
        ')' if depth > 0 => {
            depth -= 1;
            false
        }
        ')' => true,
        _ => character.is_whitespace(),
    });
    rest.get(..end?)
}

/// The target of a line `[label]: target`. Footnotes have text instead.
fn definition_target(line: &str) -> Option<&str> {
    let (label, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    let is_label = !label.starts_with('^') && !label.contains(['[', ']']);
    let target = target.split_whitespace().next().filter(|_| is_label)?;
    Some(target.trim_start_matches('<').trim_end_matches('>'))
}

/// The line with inline code replaced by spaces.
fn without_code(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let tail = &rest[start..];
        let ticks = tail.len() - tail.trim_start_matches('`').len();
        let (marker, body) = tail.split_at(ticks);
        out.push_str(&rest[..start]);
        if let Some(end) = body.find(marker) {
            out.extend(std::iter::repeat_n(' ', end + 2 * ticks));
            rest = &body[end + ticks..];
        } else {
            out.push_str(marker);
            rest = body;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    fn links(text: &str) -> Vec<String> {
        targets(text).into_iter().map(|(line, target)| format!("{line} {target}")).collect()
    }

    #[test]
    fn every_form_of_link_is_seen() {
        assert_eq!(links("[a](b.md) and ![c](d/e.svg \"title\")"), ["1 b.md", "1 d/e.svg"]);
        assert_eq!(links("\n[a `b`](c_(d).md#e) [f](<g h.md>)"), ["2 c_(d).md#e", "2 g h.md"]);
        assert_eq!(links("[a]: b.md \"title\"\n[^1]: text\n<img src=\"c.svg\">"), ["1 b.md", "3 c.svg"]);
        assert_eq!(links("`[a](b.md)` ``x`[c](d)`` [e](f) ` [g](h)"), ["1 f", "1 h"]);
        assert_eq!(links("```text\n[a](b.md)\n~~~\n```\n[c](d.md)"), ["5 d.md"]);
        assert_eq!(links("a[i](x"), [""; 0]);
    }

    #[test]
    fn relative_links_must_have_a_file() {
        let page = "[a](b.md) [c](../README.md#x) [d](/docs) [e](https://a/b) [f](#g) [h](mailto:a@b.c) [i](a%20b.md)\n\
                    [j](../docs/) [k](sub) [l](../receipts/r/f.jsonl#0123456789ab)\n\
                    [m](gone.md) [n](../../README.md)\n[o](/gone)\n";
        let tree = Tree::of(&[
            ("README.md", "[a](docs/b.md) [b](b.md)"),
            ("docs/a.md", page),
            ("docs/b.md", ""),
            ("docs/a b.md", ""),
            ("docs/sub/x.rs", ""),
            ("receipts/r/f.jsonl", ""),
        ]);
        assert_eq!(places(&check(&tree)), ["README.md:1", "docs/a.md:3", "docs/a.md:3", "docs/a.md:4"]);
    }
}
