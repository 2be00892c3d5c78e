//! The tokens of a GGUF file.

use std::collections::BTreeMap;

use memra_artifact::{Metadata, StringArray};
use tokenizers::models::bpe::{Merges, Vocab};

use super::alphabet;
use super::end::{END_KEYS, drop_ordinary, is_end_text};
use super::error::TokenizerError;

const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
const TYPES_KEY: &str = "tokenizer.ggml.token_type";
const MERGES_KEY: &str = "tokenizer.ggml.merges";

/// Ids are passed on as 32-bit signed numbers by file formats and peers alike.
const MOST_TOKENS: usize = i32::MAX as usize;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenType {
    /// Text.
    Normal,
    /// Stands for what the vocabulary cannot say.
    Unknown,
    /// Structure, not text.
    Control,
    /// Text that is never split.
    UserDefined,
    /// Padding.
    Unused,
    /// One byte.
    Byte,
}

impl TokenType {
    fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// Texts, bytes and types of tokens by id.
#[derive(Debug)]
pub(super) struct Vocabulary {
    texts: StringArray,
    types: Vec<TokenType>,
    pieces: Vec<u8>,
    piece_ends: Vec<usize>,
}

impl Vocabulary {
    /// The tokens of a file; where it gives no types, all are text.
    pub(super) fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let texts = metadata.get_strings(TOKENS_KEY)?.clone();
        let tokens = texts.len();
        if tokens == 0 || tokens > MOST_TOKENS {
            return Err(TokenizerError::VocabularySize { key: TOKENS_KEY, tokens, most: MOST_TOKENS });
        }
        let types = match metadata.optional_u64s(TYPES_KEY)? {
            None => vec![TokenType::Normal; tokens],
            Some(numbers) if numbers.len() != tokens => {
                return Err(TokenizerError::Length { key: TYPES_KEY, found: numbers.len(), tokens });
            }
            Some(numbers) => numbers
                .into_iter()
                .enumerate()
                .map(|(id, value)| {
                    TokenType::from_number(value).ok_or(TokenizerError::TokenType { key: TYPES_KEY, id, value })
                })
                .collect::<Result<_, _>>()?,
        };
        let mut pieces = Vec::with_capacity(texts.text_bytes());
        let mut piece_ends = Vec::with_capacity(tokens);
        for (text, token_type) in texts.iter().zip(&types) {
            match token_type {
                TokenType::Control | TokenType::UserDefined | TokenType::Unknown => {
                    pieces.extend_from_slice(text.as_bytes());
                }
                TokenType::Normal | TokenType::Unused | TokenType::Byte => alphabet::bytes_of_text(text, &mut pieces),
            }
            piece_ends.push(pieces.len());
        }
        Ok(Self { texts, types, pieces, piece_ends })
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.types.len()
    }

    /// The text of a token as the file has it.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)
    }

    /// The bytes of a token.
    pub(super) fn piece(&self, id: u32) -> Option<&[u8]> {
        let index = id as usize;
        let end = *self.piece_ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.piece_ends.get(before)).copied().unwrap_or(0);
        self.pieces.get(start..end)
    }

    /// What a token is.
    pub(super) fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    /// The token that `key` names, if the key is there.
    pub(super) fn id_of_key(&self, metadata: &Metadata, key: &'static str) -> Result<Option<u32>, TokenizerError> {
        let Some(id) = metadata.optional_u64(key)? else { return Ok(None) };
        match u32::try_from(id) {
            Ok(small) if (small as usize) < self.len() => Ok(Some(small)),
            _ => Err(TokenizerError::TokenId { key, id, tokens: self.len() }),
        }
    }

    /// What merging works on: the texts of tokens that text can become, with their ids, and the merges by rank.
    ///
    /// Control and unknown tokens are not among them, so that no ordinary text becomes one. Where two tokens have the
    /// same text the later one counts.
    pub(super) fn merging(&self, metadata: &Metadata) -> Result<(Vocab, Merges), TokenizerError> {
        let mut texts = Vocab::default();
        for ((id, text), token_type) in (0..).zip(self.texts.iter()).zip(&self.types) {
            if !matches!(token_type, TokenType::Control | TokenType::Unknown) {
                texts.insert(text.to_owned(), id);
            }
        }
        let mut merges = Merges::new();
        for (index, text) in metadata.get_strings(MERGES_KEY)?.iter().enumerate() {
            // A part may itself be a space, but not an empty text.
            let middle = text.bytes().skip(1).position(|byte| byte == b' ').map(|at| at + 1);
            let parts = middle.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?)));
            let Some((left, right)) = parts.filter(|(_, right)| !right.is_empty()) else {
                return Err(TokenizerError::Merge { key: MERGES_KEY, index, text: text.to_owned() });
            };
            for part in [left, right, format!("{left}{right}").as_str()] {
                if !texts.contains_key(part) {
                    return Err(TokenizerError::MergePart {
                        key: MERGES_KEY,
                        index,
                        text: text.to_owned(),
                        part: part.to_owned(),
                    });
                }
            }
            merges.push((left.to_owned(), right.to_owned()));
        }
        Ok((texts, merges))
    }

    /// The tokens that end a generation, ascending. Those known by their text are control tokens from here on.
    pub(super) fn ends(&mut self, metadata: &Metadata) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = BTreeMap::new();
        for key in END_KEYS {
            if let Some(id) = self.id_of_key(metadata, key)? {
                ids.insert(id, false);
            }
        }
        for (id, text) in (0..).zip(self.texts.iter()) {
            if is_end_text(text) {
                ids.insert(id, true);
            }
        }
        let mut ends: Vec<(String, u32)> =
            ids.keys().map(|id| (self.text(*id).unwrap_or_default().to_owned(), *id)).collect();
        drop_ordinary(&mut ends);
        for (_, id) in &ends {
            if ids.get(id) == Some(&true)
                && let Some(token_type) = self.types.get_mut(*id as usize)
            {
                *token_type = TokenType::Control;
            }
        }
        Ok(ends.into_iter().map(|(_, id)| id).collect())
    }

    /// Texts and ids of tokens that are cut out of a text before it is split, and whether only when asked.
    pub(super) fn specials(&self) -> impl Iterator<Item = (String, u32, bool)> {
        (0..).zip(self.texts.iter()).zip(&self.types).filter_map(|((id, text), token_type)| match token_type {
            TokenType::Control | TokenType::Unknown => Some((text.to_owned(), id, true)),
            TokenType::UserDefined => Some((text.to_owned(), id, false)),
            TokenType::Normal | TokenType::Unused | TokenType::Byte => None,
        })
    }
}
