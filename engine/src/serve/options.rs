//! What is served and how.

use std::sync::Arc;
use std::time::Duration;

use memra_artifact::{GgufModel, Metadata};

use crate::LoadError;
use crate::arch::ModelConfig;
use crate::chat::{ChatTemplate, Tokenizer};
use crate::schedule::Engine;

/// A model with everything that a server needs of it.
pub struct ServeModel {
    /// The executor.
    pub engine: Arc<Engine>,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Messages to a prompt; without one, chat is answered with 501.
    pub template: Option<ChatTemplate>,
    /// The name it is served under.
    pub name: String,
    /// Further names that requests may use.
    pub aliases: Vec<String>,
    /// Whether requests may name any model.
    pub any_model: bool,
    /// The model's configuration.
    pub config: ModelConfig,
    /// Digest of the program ([`crate::plan::Plan::program`]): what `system_fingerprint` tells.
    pub program: String,
}

impl ServeModel {
    /// Of a model file, under the name that it gives itself.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`] where its tokenizer or its chat template cannot be used.
    pub fn read(
        model: &GgufModel,
        engine: Arc<Engine>,
        config: ModelConfig,
        program: String,
    ) -> Result<Self, LoadError> {
        let refuse = |why: String| LoadError::Tokenizer { file: model.path().display().to_string(), why };
        let tokenizer = Tokenizer::from_gguf(model.metadata()).map_err(|error| refuse(error.to_string()))?;
        let template = chat_template(model.metadata(), &tokenizer).map_err(refuse)?;
        let name = config.name.clone();
        let tokenizer = Arc::new(tokenizer);
        Ok(Self { engine, tokenizer, template, name, aliases: Vec::new(), any_model: false, config, program })
    }

    /// Whether a request that names `model` is for this one.
    pub(super) fn is_named(&self, model: &str) -> bool {
        self.any_model || self.name == model || self.aliases.iter().any(|alias| alias == model)
    }
}

/// The chat template of a model file; `None` where it has none.
///
/// # Errors
/// What is wrong with the template, in words.
pub fn chat_template(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, String> {
    let source = metadata.optional_str("tokenizer.chat_template").map_err(|error| error.to_string())?;
    let Some(source) = source.filter(|source| !source.trim().is_empty()) else { return Ok(None) };
    ChatTemplate::with_tokenizer(source, tokenizer).map(Some).map_err(|error| error.to_string())
}

/// How tokens are drawn where a request does not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingDefaults {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// 1 keeps all tokens.
    pub top_p: f32,
    /// 0 keeps all tokens.
    pub top_k: u32,
    /// 0 keeps all tokens.
    pub min_p: f32,
    /// 1 does nothing.
    pub repetition_penalty: f32,
}

impl Default for SamplingDefaults {
    /// Those of the OpenAI interface.
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, repetition_penalty: 1.0 }
    }
}

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServeOptions {
    /// Most bytes of a request's body.
    pub body_limit: usize,
    /// How long a body may take to come.
    pub body_timeout: Duration,
    /// How long running requests may take once the server is told to stop.
    pub drain_timeout: Duration,
    /// Time between the comments that keep a silent stream alive; `None` sends none.
    pub keep_alive: Option<Duration>,
    /// How tokens are drawn where a request does not say.
    pub defaults: SamplingDefaults,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            body_limit: 8 << 20,
            body_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            keep_alive: Some(Duration::from_secs(15)),
            defaults: SamplingDefaults::default(),
        }
    }
}
