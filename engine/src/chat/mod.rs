//! Text in and out of a model: tokens, streams of text and chat templates.
//!
//! - [`Tokenizer`]: byte-level BPE built from the metadata of a GGUF file.
//! - [`Detokeniser`]: bytes of tokens to text that is complete UTF-8, as they come.
//! - [`StopMatcher`]: finds stop strings in a stream and never releases a part of one.
//! - [`Answer`]: a generation turned into text.
//! - [`ChatTemplate`] and [`normalise_messages`]: messages to the prompt that a model was trained on.

mod answer;
mod messages;
mod stop;
mod stream;
mod template;
mod tokenizer;

pub use answer::{Answer, Ending, Piece};
pub use messages::{MessageError, normalise_messages};
pub use stop::{StopDelta, StopError, StopMatcher};
pub use stream::Detokeniser;
pub use template::{ChatTemplate, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};
