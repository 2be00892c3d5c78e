//! Answers as the OpenAI interface has them.

use std::ops::AddAssign;

use serde::Serialize;

use super::state::{State, now};
use crate::chat::Ending;

/// Which way text was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

impl Kind {
    /// The field of a request that holds the prompt.
    pub(super) const fn prompt_field(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completion => "prompt",
        }
    }
}

/// What is equal in all chunks of an answer.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    system_fingerprint: String,
}

impl Head {
    pub(super) fn new(state: &State, kind: Kind, is_stream: bool) -> Self {
        let (prefix, object) = match (kind, is_stream) {
            (Kind::Chat, false) => ("chatcmpl", "chat.completion"),
            (Kind::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Kind::Completion, _) => ("cmpl", "text_completion"),
        };
        Self {
            id: format!("{prefix}-{:016x}{:016x}", state.fresh(), state.fresh()),
            object,
            created: now(),
            model: state.model.name.clone(),
            system_fingerprint: state.fingerprint(),
        }
    }
}

/// Tokens that were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

impl Usage {
    /// Of so many tokens of prompts and no answer yet.
    pub(super) fn of_prompts(tokens: usize) -> Self {
        Self { prompt_tokens: tokens, total_tokens: tokens, ..Self::default() }
    }
}

impl AddAssign<&Ending> for Usage {
    fn add_assign(&mut self, ending: &Ending) {
        self.completion_tokens += ending.completion_tokens;
        self.total_tokens += ending.completion_tokens;
    }
}

/// What a reply says of its usage.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(untagged)]
pub(super) enum Used {
    /// Nothing: the key is left out.
    #[default]
    Unsaid,
    /// `null`: it comes in a later chunk.
    Later,
    /// This.
    Now(Usage),
}

impl Used {
    fn is_unsaid(&self) -> bool {
        matches!(self, Self::Unsaid)
    }
}

/// A whole answer, or a chunk of one.
#[derive(Debug, Serialize)]
pub(super) struct Reply<'a> {
    #[serde(flatten)]
    pub(super) head: &'a Head,
    pub(super) choices: Vec<Choice<'a>>,
    #[serde(skip_serializing_if = "Used::is_unsaid")]
    pub(super) usage: Used,
}

/// One choice of a reply.
#[derive(Debug, Serialize)]
pub(super) struct Choice<'a> {
    pub(super) index: usize,
    #[serde(flatten)]
    pub(super) content: Content<'a>,
    /// Not supported: always `null`.
    pub(super) logprobs: Option<()>,
    pub(super) finish_reason: Option<&'static str>,
}

/// Text, under the name that it has there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Content<'a> {
    /// A whole message.
    Message(Message<'a>),
    /// A part of a message.
    Delta(Delta<'a>),
    /// Text of a completion, whole or a part.
    Text(&'a str),
}

/// A message of the assistant.
#[derive(Debug, Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    pub(super) content: &'a str,
    /// Not supported: always `null`.
    pub(super) refusal: Option<()>,
}

/// A part of a message.
#[derive(Debug, Default, Serialize)]
pub(super) struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a str>,
}
