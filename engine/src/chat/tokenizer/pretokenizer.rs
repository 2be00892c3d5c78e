//! How text is split before merging, by the name in `tokenizer.ggml.pre`.

use tokenizers::pattern::Pattern;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::utils::SysRegex;
use tokenizers::{Offsets, PreTokenizedString, PreTokenizer as Split, SplitDelimiterBehavior};

use super::error::TokenizerError;

/// The key that names the pre-tokeniser.
pub(super) const PRE_KEY: &str = "tokenizer.ggml.pre";

// The published patterns end in `\s+(?!\S)|\s+`: whitespace, but without its last character where something follows. A
// look-ahead needs a backtracking matcher, which gives up on long runs of whitespace, and the library takes that for the
// end of its matches. So the patterns here end in `\s+`, and `Splitter` gives the last character back.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// A way to split text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreTokenizer {
    /// GPT-2's pattern.
    Gpt2,
    /// Every digit apart, then GPT-2's pattern.
    Smollm,
    /// Llama 3's pattern; a piece that is a token is not merged from its bytes.
    Llama3,
    /// Qwen 2's pattern, on text in normalisation form C.
    Qwen2,
    /// Qwen 3.5's pattern, on text in normalisation form C.
    Qwen35,
}

const NAMES: [(&str, PreTokenizer); 7] = [
    ("gpt-2", PreTokenizer::Gpt2),
    ("smollm", PreTokenizer::Smollm),
    ("llama-bpe", PreTokenizer::Llama3),
    ("llama3", PreTokenizer::Llama3),
    ("llama-v3", PreTokenizer::Llama3),
    ("qwen2", PreTokenizer::Qwen2),
    ("qwen35", PreTokenizer::Qwen35),
];

impl PreTokenizer {
    /// Of this name.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, found)| *found).ok_or_else(|| TokenizerError::Unknown {
            key: PRE_KEY,
            value: name.to_owned(),
            known: NAMES.map(|(known, _)| known).join(", "),
        })
    }

    /// Whether text is brought into normalisation form C first.
    pub(super) fn composes(self) -> bool {
        matches!(self, Self::Qwen2 | Self::Qwen35)
    }

    /// Whether a piece that is a token is taken whole, without merging.
    pub(super) fn ignores_merges(self) -> bool {
        self == Self::Llama3
    }

    /// Whether a beginning-of-sequence token is added where the file does not say.
    pub(super) fn adds_bos(self) -> bool {
        self == Self::Llama3
    }

    /// The steps of splitting.
    pub(super) fn steps(self) -> Result<Steps, TokenizerError> {
        let (pattern, keeps_line_ends) = match self {
            Self::Gpt2 | Self::Smollm => (GPT2, false),
            Self::Llama3 => (LLAMA3, true),
            Self::Qwen2 => (QWEN2, true),
            Self::Qwen35 => (QWEN35, true),
        };
        let regex = SysRegex::new(pattern).map_err(|cause| TokenizerError::Build(cause.to_string()))?;
        Ok(Steps { digits: self == Self::Smollm, splitter: Splitter { regex, keeps_line_ends } })
    }
}

/// Splits text and brings the pieces into the printable alphabet.
#[derive(Debug)]
pub(super) struct Steps {
    digits: bool,
    splitter: Splitter,
}

impl Split for Steps {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        if self.digits {
            Digits::new(true).pre_tokenize(text)?;
        }
        text.split(|_, piece| piece.split(&self.splitter, SplitDelimiterBehavior::Isolated))?;
        ByteLevel::new(false, false, false).pre_tokenize(text)
    }
}

/// One pattern, whose last alternative is a run of whitespace.
#[derive(Debug)]
struct Splitter {
    regex: SysRegex,
    /// Whether whitespace up to the end of a line is matched by an alternative of its own, and is not cut.
    keeps_line_ends: bool,
}

impl Splitter {
    /// Bytes of the piece that `rest`, which is not empty, starts with.
    fn piece(&self, rest: &str) -> Option<usize> {
        let (start, end) = self.regex.find_iter(rest).next()?;
        let found = rest.get(..end).filter(|found| start == 0 && !found.is_empty())?;
        let last = found.chars().next_back()?;
        let kept = found.len() - last.len_utf8();
        let cut = kept > 0
            && end < rest.len()
            && found.chars().all(char::is_whitespace)
            && !(self.keeps_line_ends && matches!(last, '\r' | '\n'));
        Some(if cut { kept } else { end })
    }
}

impl Pattern for &Splitter {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let mut pieces = Vec::new();
        let mut from = 0;
        while let Some(rest) = inside.get(from..).filter(|rest| !rest.is_empty()) {
            let Some(length) = self.piece(rest) else {
                return Err(format!("the text at byte {from} is matched by no pattern").into());
            };
            pieces.push(((from, from + length), true));
            from += length;
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType};

    use super::*;

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let mut split = PreTokenizedString::from(text);
        PreTokenizer::named(name).unwrap().steps().unwrap().pre_tokenize(&mut split).unwrap();
        split
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(_, (from, to), _)| text[from..to].to_owned())
            .collect()
    }

    #[test]
    fn each_name_splits_its_way() {
        let text = "I'M it's 1234  x\r\n";
        assert_eq!(pieces("gpt-2", text), ["I", "'", "M", " it", "'s", " 1234", " ", " x", "\r\n"]);
        assert_eq!(pieces("smollm", text), ["I", "'", "M", " it", "'s", " ", "1", "2", "3", "4", " ", " x", "\r\n"]);
        assert_eq!(pieces("llama-bpe", text), ["I", "'M", " it", "'s", " ", "123", "4", " ", " x", "\r\n"]);
        assert_eq!(pieces("qwen2", text), ["I", "'M", " it", "'s", " ", "1", "2", "3", "4", " ", " x", "\r\n"]);
        assert_eq!(pieces("llama3", " \n  \n  x"), [" \n  \n", " ", " x"]);
        assert_eq!(pieces("gpt-2", " \n  \nx \n"), [" \n  ", "\n", "x", " \n"]);
        assert_eq!(pieces("qwen2", "\u{a0}\u{3000}x\t "), ["\u{a0}", "\u{3000}x", "\t "]);
        assert_eq!(pieces("qwen2", "e\u{301}t"), ["e", "\u{301}t"]);
        assert_eq!(pieces("qwen35", "e\u{301}t"), ["e\u{301}t"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert_eq!(
            PreTokenizer::named("default").unwrap_err().to_string(),
            "metadata \"tokenizer.ggml.pre\" is \"default\"; known are gpt-2, smollm, llama-bpe, llama3, llama-v3, \
             qwen2, qwen35"
        );
    }

    #[test]
    fn a_run_of_a_million_spaces_is_split_like_a_short_one() {
        for name in ["smollm", "llama-bpe"] {
            let text = format!("a{}b c", " ".repeat(1_000_001));
            let found: Vec<usize> = pieces(name, &text).iter().map(String::len).collect();
            assert_eq!(found, [1, 1_000_000, 2, 2], "{name}");
        }
    }
}
