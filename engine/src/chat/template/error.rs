//! What can go wrong with a chat template.

use std::error::Error as _;

use minijinja::{Error, ErrorKind};

/// A template that cannot be rendered. [`Self::blames_messages`] tells whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is no template.
    #[error("chat template, line {line}: {cause}")]
    Syntax {
        /// The line, counted from 1; 0 where it is not known.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// The template says that it does not take these messages (`raise_exception`).
    #[error("the chat template refuses the messages: {message}")]
    Refused {
        /// What the template says.
        message: String,
    },
    /// The template reads something that the messages, tools or variables do not have, or cannot work on what they have.
    #[error("chat template, line {line}: the messages do not fit: {cause}")]
    Unfit {
        /// The line, counted from 1; 0 where it is not known.
        line: usize,
        /// What is missing or of the wrong kind.
        cause: String,
    },
    /// The template does more work, or makes more text, than is allowed.
    #[error("chat template, line {line}: more than {limit} steps (each an instruction or 64 bytes of data)")]
    TooMuch {
        /// The line, counted from 1; 0 where it is not known.
        line: usize,
        /// The limit.
        limit: u64,
    },
    /// The template uses something that there is not, such as an unknown filter.
    #[error("chat template, line {line}: {cause}")]
    Broken {
        /// The line, counted from 1; 0 where it is not known.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// There is no thread to render on.
    #[error("starting a thread for the chat template: {cause}")]
    Thread {
        /// What the system says.
        cause: std::io::Error,
    },
}

impl TemplateError {
    /// Whether other messages could be rendered: the caller's fault rather than the template's.
    pub fn blames_messages(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unfit { .. })
    }

    /// Of a template that did not compile.
    pub(super) fn syntax(error: &Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(0), cause: cause(error) }
    }

    /// Of a template that did not render.
    pub(super) fn render(error: &Error, limit: u64) -> Self {
        let mut source = error.source();
        while let Some(inner) = source {
            if let Some(refusal) = inner.downcast_ref::<Refusal>() {
                return Self::Refused { message: refusal.0.clone() };
            }
            source = inner.source();
        }
        let line = error.line().unwrap_or(0);
        match error.kind() {
            ErrorKind::OutOfFuel => Self::TooMuch { line, limit },
            ErrorKind::UndefinedError
            | ErrorKind::InvalidOperation
            | ErrorKind::CannotUnpack
            | ErrorKind::NonPrimitive
            | ErrorKind::NonKey
            | ErrorKind::BadSerialization => Self::Unfit { line, cause: cause(error) },
            _ => Self::Broken { line, cause: cause(error) },
        }
    }
}

fn cause(error: &Error) -> String {
    let kind = error.kind();
    match error.detail() {
        Some(detail) => format!("{kind}: {detail}"),
        None => kind.to_string(),
    }
}

/// What a template said with `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);
