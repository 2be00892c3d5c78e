//! Byte-level BPE built from the metadata of a GGUF file.

mod alphabet;
mod end;
mod error;
mod pretokenizer;
mod special;
mod vocabulary;

use memra_artifact::Metadata;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::{DecoderWrapper, PostProcessorWrapper, TokenizerImpl};

pub use self::error::TokenizerError;
use self::pretokenizer::{PRE_KEY, PreTokenizer, Steps};
use self::special::{Fragment, SpecialTokens};
use self::vocabulary::{TokenType, Vocabulary};

const MODEL_KEY: &str = "tokenizer.ggml.model";
const BOS_KEY: &str = "tokenizer.ggml.bos_token_id";
const EOS_KEY: &str = "tokenizer.ggml.eos_token_id";
const ADD_BOS_KEY: &str = "tokenizer.ggml.add_bos_token";

type Library = TokenizerImpl<BPE, NFC, Steps, PostProcessorWrapper, DecoderWrapper>;

/// Text to token ids and back.
///
/// The vocabulary, the merges and the special tokens come from a GGUF file with `tokenizer.ggml.model` of `gpt2`; the
/// merging is done by the `tokenizers` library. How a text is split first goes by `tokenizer.ggml.pre`; with `qwen2` and
/// `qwen35` it is brought into Unicode normalisation form C before that, as the models' own tokenizers do.
///
/// Texts of control tokens become these tokens only where the caller says so; user-defined tokens always do. Where
/// several overlap in a text the longest wins.
///
/// A vocabulary need not have a token for every byte. A byte that has none is left out of what [`Self::encode`] answers,
/// as the models' own tokenizers do; [`Self::missing_bytes`] names them.
pub struct Tokenizer {
    library: Library,
    vocabulary: Vocabulary,
    specials: SpecialTokens,
    end_of_generation: Vec<u32>,
    missing_bytes: Vec<u8>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Tokenizer")
            .field("tokens", &self.vocabulary.len())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .field("add_bos", &self.add_bos)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Of the metadata of a file, or of the first shard of a split model.
    ///
    /// # Errors
    ///
    /// A key is missing, has another type or names a kind of tokenizer that is not known; the vocabulary contradicts
    /// itself. The error names the key.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let model = metadata.get_str(MODEL_KEY)?;
        if model != "gpt2" {
            return Err(TokenizerError::Unknown { key: MODEL_KEY, value: model.to_owned(), known: "gpt2".to_owned() });
        }
        let pre = PreTokenizer::named(metadata.get_str(PRE_KEY)?)?;
        let mut vocabulary = Vocabulary::from_gguf(metadata)?;
        let (texts, merges) = vocabulary.merging(metadata)?;
        let missing_bytes =
            (0..=255).filter(|byte| !texts.contains_key(alphabet::char_of_byte(*byte).to_string().as_str())).collect();

        let build = |cause: tokenizers::Error| TokenizerError::Build(cause.to_string());
        let bpe = BPE::builder()
            .vocab_and_merges(texts, merges)
            .ignore_merges(pre.ignores_merges())
            .build()
            .map_err(build)?;
        let mut library = Library::new(bpe);
        if pre.composes() {
            library.with_normalizer(Some(NFC)).map_err(build)?;
        }
        library.with_pre_tokenizer(Some(pre.steps()?));

        let end_of_generation = vocabulary.ends(metadata)?;
        let specials = SpecialTokens::new(vocabulary.specials());
        let bos = vocabulary.id_of_key(metadata, BOS_KEY)?;
        let eos = vocabulary.id_of_key(metadata, EOS_KEY)?;
        let add_bos = metadata.optional_bool(ADD_BOS_KEY)?.unwrap_or_else(|| pre.adds_bos());
        if add_bos && bos.is_none() {
            return Err(TokenizerError::NoBos);
        }
        Ok(Self { library, vocabulary, specials, end_of_generation, missing_bytes, bos, eos, add_bos })
    }

    /// The token ids of `text`; no beginning-of-sequence token is added.
    ///
    /// With `parse_special` the texts of control tokens become these tokens: for a rendered prompt. Without it they are
    /// ordinary text: for text that a user wrote.
    ///
    /// # Errors
    ///
    /// The library gave up on the text.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        for fragment in self.specials.cut(text, parse_special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => {
                    let encoding = self
                        .library
                        .encode_fast(text, false)
                        .map_err(|cause| TokenizerError::Encode { bytes: text.len(), cause: cause.to_string() })?;
                    ids.extend_from_slice(encoding.get_ids());
                }
            }
        }
        Ok(ids)
    }

    /// The token ids of a whole prompt: as [`Self::encode`], with the beginning-of-sequence token in front where the
    /// vocabulary asks for one and the text does not start with it already.
    ///
    /// # Errors
    ///
    /// As [`Self::encode`].
    pub fn encode_prompt(&self, text: &str, parse_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text, parse_special)?;
        if let Some(bos) = self.bos.filter(|bos| self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The bytes of a token, if there is such a token; for special tokens, their text. Not always whole characters.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.vocabulary.piece(id)
    }

    /// The text of a token as it stands in the vocabulary, if there is such a token.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocabulary.text(id)
    }

    /// The bytes of all `ids` together as text; with `control`, also of control tokens.
    ///
    /// Ids that are not in the vocabulary give nothing; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], control: bool) -> String {
        let mut bytes = Vec::new();
        for id in ids {
            if control || !self.is_control(*id) {
                bytes.extend_from_slice(self.piece(*id).unwrap_or_default());
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether a token is a control token: no text for the reader.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocabulary.token_type(id) == Some(TokenType::Control)
    }

    /// The number of tokens; ids are less than this.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// The tokens that end a generation, ascending: those that the file names (end of sequence, turn and message) and
    /// those known by their text.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Whether a token ends a generation.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// The beginning-of-sequence token, if the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-sequence token, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether [`Self::encode_prompt`] puts the beginning-of-sequence token in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The bytes that no token stands for, ascending: text that holds them loses them.
    pub fn missing_bytes(&self) -> &[u8] {
        &self.missing_bytes
    }
}

#[cfg(test)]
mod tests;
