//! What can be wrong with a vocabulary.

use memra_artifact::GgufError;

/// A vocabulary that cannot be used, or a text that cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A key is missing or holds a value of another type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// A key names a kind of tokenizer that is not known.
    #[error("metadata \"{key}\" is \"{value}\"; known are {known}")]
    Unknown {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The values that are known.
        known: String,
    },
    /// The vocabulary holds no tokens, or more than an id can name.
    #[error("metadata \"{key}\" holds {tokens} tokens; a vocabulary has 1 to {most}")]
    VocabularySize {
        /// The key.
        key: &'static str,
        /// How many tokens are there.
        tokens: usize,
        /// How many are allowed.
        most: usize,
    },
    /// An array that goes with the tokens has another length.
    #[error("metadata \"{key}\" holds {found} values for {tokens} tokens")]
    Length {
        /// The key.
        key: &'static str,
        /// How many values are there.
        found: usize,
        /// How many tokens are there.
        tokens: usize,
    },
    /// A token has a type that GGUF does not define.
    #[error("metadata \"{key}\": token {id} has type {value}; types are 1 to 6")]
    TokenType {
        /// The key.
        key: &'static str,
        /// The token.
        id: usize,
        /// The type in the file.
        value: u64,
    },
    /// A merge is no two parts with a space between them.
    #[error("metadata \"{key}\": merge {index} is {text:?}, not two parts with a space between them")]
    Merge {
        /// The key.
        key: &'static str,
        /// The merge, counted from 0.
        index: usize,
        /// The merge in the file.
        text: String,
    },
    /// A part of a merge, or what it makes, is no token that text can become.
    #[error("metadata \"{key}\": merge {index} ({text:?}) needs {part:?}, which is no token of text")]
    MergePart {
        /// The key.
        key: &'static str,
        /// The merge, counted from 0.
        index: usize,
        /// The merge in the file.
        text: String,
        /// What is missing.
        part: String,
    },
    /// A key names a token that is not in the vocabulary.
    #[error("metadata \"{key}\" is token {id}, but there are {tokens} tokens")]
    TokenId {
        /// The key.
        key: &'static str,
        /// The token named.
        id: u64,
        /// How many tokens are there.
        tokens: usize,
    },
    /// A beginning-of-sequence token is to be added but none is named.
    #[error(
        "metadata \"tokenizer.ggml.add_bos_token\" asks for a token that \"tokenizer.ggml.bos_token_id\" does not name"
    )]
    NoBos,
    /// The tokenizers library refused the vocabulary.
    #[error("building the tokenizer: {0}")]
    Build(String),
    /// The tokenizers library refused a text.
    #[error("encoding {bytes} bytes of text: {cause}")]
    Encode {
        /// Bytes of the text.
        bytes: usize,
        /// What the library said.
        cause: String,
    },
}
