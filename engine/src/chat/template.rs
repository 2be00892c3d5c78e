//! Messages to a prompt, by the Jinja template that comes with a model.

mod error;
mod functions;
mod generation;
mod python;
mod tojson;
mod value;

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

pub use self::error::TemplateError;
use super::Tokenizer;

const NAME: &str = "chat_template";

/// Instructions, or pieces of 64 bytes of data, that one rendering may take. Templates come from strangers.
const FUEL: u64 = 2_000_000;

/// Bytes of stack for one rendering, taken up only as far as they are used. A template can nest a list in a list for every
/// few steps, and dropping such a list goes as deep; this is enough for all the steps there are.
const STACK_BYTES: usize = 512 << 20;

/// Bytes of a template; those of models have up to some tens of thousands.
const MOST_BYTES: usize = 1 << 20;

/// A compiled chat template (`tokenizer.chat_template`).
///
/// Rendered as Hugging Face's `apply_chat_template` renders it: `trim_blocks` and `lstrip_blocks` on, nothing escaped,
/// `break` and `continue` in loops, Python's methods on strings, lists and maps, `tojson` as `json.dumps`,
/// `raise_exception` and `strftime_now`. `{% generation %}` blocks are rendered as if they were not there.
///
/// A template is untrusted: it reaches nothing but what it is given, and its work and memory are bounded.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts of the beginning- and end-of-sequence tokens, or empty.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`] with the line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > MOST_BYTES {
            let cause = format!("the template has {} bytes; at most {MOST_BYTES} are allowed", source.len());
            return Err(TemplateError::Syntax { line: 0, cause });
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| TemplateError::syntax(&error))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(python::method);
        environment.add_test("iterable", python::is_iterable);
        environment.add_filter("indent", python::indent);
        environment.add_filter("escape", python::escape);
        environment.add_filter("e", python::escape);
        environment.add_filter("tojson", tojson::tojson);
        environment.add_filter("fromjson", functions::fromjson);
        environment.add_filter("from_json", functions::fromjson);
        environment.add_function("raise_exception", functions::raise_exception);
        environment
            .add_template_owned(NAME, generation::without_generation_tags(source).into_owned())
            .map_err(|error| TemplateError::syntax(&error))?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Compiles `source` for a vocabulary, which has the texts of the beginning- and end-of-sequence tokens.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_tokenizer(source: &str, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let text = |token: Option<u32>| token.and_then(|token| tokenizer.token_text(token)).unwrap_or_default();
        Self::new(source, text(tokenizer.bos()), text(tokenizer.eos()))
    }

    /// The prompt.
    ///
    /// - `messages`: an array of objects, as [`super::normalise_messages`] makes them.
    /// - `tools`: an array of tool definitions; `none` in the template where there are none.
    /// - `extra`: further variables (`enable_thinking`, `documents` ...). They cannot replace the named ones.
    /// - `now`: what `strftime_now` tells.
    ///
    /// # Errors
    ///
    /// The template refuses the messages, does not fit them, takes too much work or is broken.
    pub fn render(
        &self,
        messages: &serde_json::Value,
        tools: Option<&serde_json::Value>,
        extra: &serde_json::Map<String, serde_json::Value>,
        add_generation_prompt: bool,
        now: DateTime<FixedOffset>,
    ) -> Result<String, TemplateError> {
        let work = || self.render_here(messages, tools, extra, add_generation_prompt, now);
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("chat-template".to_owned()).stack_size(STACK_BYTES);
            let thread = builder.spawn_scoped(scope, work).map_err(|cause| TemplateError::Thread { cause })?;
            thread
                .join()
                .unwrap_or_else(|_| Err(TemplateError::Broken { line: 0, cause: "rendering stopped".to_owned() }))
        })
    }

    fn render_here(
        &self,
        messages: &serde_json::Value,
        tools: Option<&serde_json::Value>,
        extra: &serde_json::Map<String, serde_json::Value>,
        add_generation_prompt: bool,
        now: DateTime<FixedOffset>,
    ) -> Result<String, TemplateError> {
        let mut context: BTreeMap<&str, Value> = BTreeMap::from([("documents", Value::from(()))]);
        context.extend(extra.iter().map(|(name, extra)| (name.as_str(), value::from_json(extra))));
        context.extend([
            ("messages", value::from_json(messages)),
            ("tools", tools.map_or(Value::from(()), value::from_json)),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("bos_token", Value::from(self.bos.as_str())),
            ("eos_token", Value::from(self.eos.as_str())),
            ("strftime_now", Value::from_function(move |format: &str| functions::strftime(&now, format))),
        ]);
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(&context))
            .map_err(|error| TemplateError::render(&error, FUEL))
    }
}

#[cfg(test)]
mod tests;
