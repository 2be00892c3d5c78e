//! Rust source as tokens, as far as the rules need it.

use std::ops::Range;

/// The source with comments, and the content of string and character literals, replaced by spaces.
///
/// Line ends stay where they are, so offsets and line numbers hold for the original too.
pub(crate) fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (end, hidden) = token(bytes, at);
        erase(&mut out, hidden);
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The source without the items that only exist in tests: `#[cfg(test)]` or `#[cfg(all(test, ...))]` and what follows
/// it. Takes blanked source.
pub(crate) fn without_tests(blanked: &str) -> String {
    let mut out = blanked.as_bytes().to_vec();
    for marker in ["#[cfg(test)]", "#[cfg(all(test,"] {
        for (start, _) in blanked.match_indices(marker) {
            erase(&mut out, start..item_end(blanked.as_bytes(), start));
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Identifiers and keywords with their offsets.
pub(crate) fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + code.get(rest..)?.find(is_word)?;
        let tail = code.get(start..)?;
        let word = tail.get(..tail.find(|character| !is_word(character)).unwrap_or(tail.len()))?;
        rest = start + word.len();
        Some((start, word))
    })
}

/// The line of an offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The offsets at which `word` stands as a word of its own.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    identifiers(text).filter(move |(_, found)| *found == word).map(|(offset, _)| offset)
}

fn erase(out: &mut [u8], range: Range<usize>) {
    for byte in out.get_mut(range).into_iter().flatten().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The end of the token that starts at `at`, and the part of it that is to be hidden.
fn token(bytes: &[u8], at: usize) -> (usize, Range<usize>) {
    let rest = &bytes[at..];
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
    if rest.starts_with(b"//") {
        let end = at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        return (end, at..end);
    }
    if rest.starts_with(b"/*") {
        let end = at + comment_length(rest);
        return (end, at..end);
    }
    if rest[0] == b'"' {
        let end = at + quoted_length(rest, b'"');
        return (end, at + 1..end.saturating_sub(1).max(at + 1));
    }
    if rest[0] == b'\'' {
        let length = character_length(rest);
        return (at + length, at + 1..(at + length).saturating_sub(1).max(at + 1));
    }
    if is_word(rest[0]) {
        let length = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
        if let Some(raw) = raw_length(&rest[..length], &rest[length..]) {
            return (at + length + raw, at + length..at + length + raw);
        }
        return (at + length, at..at);
    }
    (at + 1, at..at)
}

/// Length of a block comment; comments nest.
fn comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of a literal with escapes, both quotes included.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a character literal, or 1 for the tick of a lifetime or label.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return quoted_length(rest, b'\'');
    }
    let width = match rest.get(1) {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 1 }
}

/// Length of a raw string after its prefix, quotes and hashes included.
fn raw_length(prefix: &[u8], rest: &[u8]) -> Option<usize> {
    if !matches!(prefix, b"r" | b"br" | b"cr") {
        return None;
    }
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let start = hashes + 1;
    let is_end =
        |tail: &[u8]| tail[0] == b'"' && tail[1..].iter().take(hashes).filter(|byte| **byte == b'#').count() == hashes;
    let body = (start..rest.len()).find(|at| is_end(&rest[*at..]));
    Some(body.map_or(rest.len(), |end| end + 1 + hashes))
}

/// The end of the item whose attribute starts at `start`: after its first block, or after a semicolon outside brackets.
fn item_end(code: &[u8], start: usize) -> usize {
    let (mut depth, mut braces) = (0_usize, 0_usize);
    for (at, byte) in code.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' => braces += 1,
            b'}' if braces <= 1 => return at + 1,
            b'}' => braces -= 1,
            b';' if depth == 0 && braces == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        for (source, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("f(\"x \\\" y\", z)", "f(\"      \", z)"),
            ("g(r#\"x \" y\"#, z)", "g(r         , z)"),
            ("b'x' + 'y' + '\\'' + '\u{e9}'", "b' ' + ' ' + '  ' + '  '"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("let r#type = r; \"", "let r#type = r; \""),
            ("'\"' x \"y\"", "' ' x \" \""),
            ("br\"x\\\" y", "br     y"),
            ("xr\"y\"", "xr\" \""),
            ("/* open", "       "),
        ] {
            assert_eq!(blank(source), expected, "{source}");
        }
    }

    #[test]
    fn identifiers_have_offsets() {
        let found: Vec<_> = identifiers("use a_b::c2; \u{e9}t\u{e9}").collect();
        assert_eq!(found, [(0, "use"), (4, "a_b"), (9, "c2"), (13, "\u{e9}t\u{e9}")]);
        assert_eq!(words("unsafe_code unsafe notunsafe\nunsafe", "unsafe").collect::<Vec<_>>(), [12, 29]);
        assert_eq!((line_of("a\nb\nc", 0), line_of("a\nb\nc", 4)), (1, 3));
    }

    #[test]
    fn items_of_tests_are_removed() {
        let source = "a();\n#[cfg(test)]\nmod tests {\n fn f() { b(); }\n}\nc();\n#[cfg(test)]\nmod more;\n\
                      #[cfg(all(test, unix))]\nfn g(x: [u8; 2]) { d(); }\ne();";
        let left: Vec<_> = identifiers(&without_tests(source)).map(|(_, word)| word.to_owned()).collect();
        assert_eq!(left, ["a", "c", "e"]);
    }
}
