//! Cutting a text at special tokens.

use std::collections::BTreeMap;

/// A piece of a text: text to encode, or a special token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fragment<'a> {
    /// Text between special tokens; never empty.
    Text(&'a str),
    /// A special token.
    Token(u32),
}

/// The texts of special tokens, found by their first byte.
#[derive(Debug, Clone)]
pub(super) struct SpecialTokens {
    by_first_byte: Vec<Vec<Special>>,
}

#[derive(Debug, Clone)]
struct Special {
    text: String,
    id: u32,
    control: bool,
}

impl SpecialTokens {
    /// Of texts, ids and whether the token is a control token; empty texts are left out.
    pub(super) fn new(tokens: impl IntoIterator<Item = (String, u32, bool)>) -> Self {
        let mut by_first_byte = vec![Vec::new(); 256];
        for (text, id, control) in tokens {
            if let Some(bucket) = text.bytes().next().and_then(|first| by_first_byte.get_mut(usize::from(first))) {
                bucket.push(Special { text, id, control });
            }
        }
        Self { by_first_byte }
    }

    /// Cuts `text` at special tokens. Where occurrences overlap the longest text wins, then the lowest id, then the
    /// leftmost; control tokens count only with `parse_special`.
    pub(super) fn cut<'a>(&self, text: &'a str, parse_special: bool) -> Vec<Fragment<'a>> {
        let mut found = Vec::new();
        for (start, first) in text.bytes().enumerate() {
            let Some(bucket) = self.by_first_byte.get(usize::from(first)) else { continue };
            for special in bucket {
                let here = text.as_bytes().get(start..).unwrap_or_default();
                if (parse_special || !special.control) && here.starts_with(special.text.as_bytes()) {
                    found.push((special.text.len(), special.id, start));
                }
            }
        }
        found.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut taken: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
        for (length, id, start) in found {
            let end = start + length;
            // Only the last one that starts before this one's end can overlap it.
            let overlaps = taken.range(..end).next_back().is_some_and(|(_, (other_end, _))| *other_end > start);
            if !overlaps {
                taken.insert(start, (end, id));
            }
        }
        let mut fragments = Vec::new();
        let mut from = 0;
        for (start, (end, id)) in taken {
            if let Some(between) = text.get(from..start).filter(|between| !between.is_empty()) {
                fragments.push(Fragment::Text(between));
            }
            fragments.push(Fragment::Token(id));
            from = end;
        }
        if let Some(rest) = text.get(from..).filter(|rest| !rest.is_empty()) {
            fragments.push(Fragment::Text(rest));
        }
        fragments
    }
}

#[cfg(test)]
mod tests {
    use super::Fragment::{Text, Token};
    use super::*;

    fn specials() -> SpecialTokens {
        SpecialTokens::new([
            ("<|a|>".to_owned(), 1, true),
            ("<tool>".to_owned(), 2, false),
            ("<tool>s".to_owned(), 3, false),
            (String::new(), 4, false),
            ("xy".to_owned(), 5, false),
            ("yzz".to_owned(), 6, false),
        ])
    }

    #[test]
    fn control_tokens_are_cut_out_only_when_asked() {
        let specials = specials();
        assert_eq!(specials.cut("é<|a|>b", true), [Text("é"), Token(1), Text("b")]);
        assert_eq!(specials.cut("é<|a|>b", false), [Text("é<|a|>b")]);
        assert_eq!(specials.cut("<tool><|a|>", false), [Token(2), Text("<|a|>")]);
        assert_eq!(specials.cut("", true), []);
    }

    #[test]
    fn the_longest_text_wins_even_from_the_right() {
        let specials = specials();
        assert_eq!(specials.cut("<tool>s<tool>t", false), [Token(3), Token(2), Text("t")]);
        assert_eq!(specials.cut("xyzz", false), [Text("x"), Token(6)]);
        assert_eq!(specials.cut("xyxyz", false), [Token(5), Token(5), Text("z")]);
    }
}
