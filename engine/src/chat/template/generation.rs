//! `{% generation %}` blocks, which mark what a model said for training, read as blocks that are always there.

use std::borrow::Cow;

/// The template with every `generation` tag replaced by a condition that holds.
///
/// Only tags are looked at: not comments, raw blocks or strings.
pub(super) fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(open) = rest.find('{') {
        let (before, tag) = rest.split_at(open);
        out.push_str(before);
        let length = match tag.as_bytes().get(1) {
            Some(b'#') if !raw => tag.find("#}").map_or(tag.len(), |at| at + 2),
            Some(b'{') if !raw => end_of_tag(tag, "}}"),
            Some(b'%') => {
                let word_at = 2 + leading_blank(tag.get(2..).unwrap_or_default());
                let word: &str = tag.get(word_at..).unwrap_or_default();
                let word = word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                let length = if raw { 2 } else { end_of_tag(tag, "%}") };
                match word {
                    "endraw" => raw = false,
                    "raw" => raw = true,
                    "generation" | "endgeneration" if !raw => {
                        let after = tag.get(word_at + word.len()..length).unwrap_or_default();
                        if after.trim_start_matches([' ', '\t', '\r', '\n', '-', '+']) == "%}" {
                            out.push_str(tag.get(..word_at).unwrap_or_default());
                            out.push_str(if word == "generation" { "if true" } else { "endif" });
                            out.push_str(after);
                            rest = tag.get(length..).unwrap_or_default();
                            continue;
                        }
                    }
                    _ => {}
                }
                length
            }
            _ => 1,
        };
        let (tag, after) = tag.split_at(length);
        out.push_str(tag);
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Bytes of the whitespace control and the whitespace that a tag starts with.
fn leading_blank(text: &str) -> usize {
    let control = usize::from(text.starts_with(['-', '+']));
    let rest = text.get(control..).unwrap_or_default();
    control + rest.len() - rest.trim_start().len()
}

/// Bytes of a tag up to and with its end, which is not in a string.
fn end_of_tag(tag: &str, end: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, byte) in tag.bytes().enumerate().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if byte == b'\\' => escaped = true,
            Some(open) if byte == open => quote = None,
            None if byte == b'\'' || byte == b'"' => quote = Some(byte),
            None if tag.as_bytes().get(at..).is_some_and(|rest| rest.starts_with(end.as_bytes())) => {
                return at + end.len();
            }
            _ => {}
        }
    }
    tag.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_replaced() {
        let source = "{%- generation -%}{{ '{% generation %}' }}{# {% generation %} #}{% endgeneration %}\
                      {% raw %}{% generation %}{% endraw %}{% set generation = 1 %}{% if generation %}{ {";
        assert_eq!(
            without_generation_tags(source),
            "{%- if true -%}{{ '{% generation %}' }}{# {% generation %} #}{% endif %}\
             {% raw %}{% generation %}{% endraw %}{% set generation = 1 %}{% if generation %}{ {"
        );
        assert!(matches!(without_generation_tags("{% if x %}"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_cut_off_is_kept() {
        for source in
            ["generation {%", "{% generation", "{{ 'generation", "{# generation", "generation {", "{%generation'é"]
        {
            assert_eq!(without_generation_tags(source), source);
        }
    }
}
