//! What both ways to ask for text have in common: how long, how drawn, how sent.

use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::{Bounds, Fields, kind};
use super::options::{SamplingDefaults, ServeModel};
use crate::schedule::Sampling;

/// Fields that [`Params::read`] reads, and `model`.
pub(super) const NAMES: &[&str] = &[
    "model",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "repeat_penalty",
    "logit_bias",
    "ignore_eos",
    "n",
];

/// Most stop strings of a request.
const MOST_STOPS: usize = 16;
/// Most answers to one prompt.
const MOST_ANSWERS: i64 = 128;

/// The common part of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Params {
    /// Most tokens of the answer; `None` leaves it to the kind of request.
    pub(super) max_tokens: Option<usize>,
    /// How tokens are drawn; the seed is that of `seed`.
    pub(super) sampling: Sampling,
    /// The seed, where the caller gave one.
    pub(super) seed: Option<u64>,
    /// Stop strings.
    pub(super) stops: Vec<String>,
    /// Whether the answer is sent as it is made.
    pub(super) is_stream: bool,
    /// Whether a stream ends with what was used.
    pub(super) includes_usage: bool,
    /// Answers to each prompt.
    pub(super) answers: usize,
    /// Whether end tokens do not end the answer.
    pub(super) ignores_end: bool,
}

impl Params {
    pub(super) fn read(fields: Fields<'_>, defaults: &SamplingDefaults, vocab: usize) -> Result<Self, ApiError> {
        let is_stream = fields.boolean("stream")?.unwrap_or(false);
        Ok(Self {
            max_tokens: max_tokens(fields)?,
            sampling: sampling(fields, defaults, vocab)?,
            seed: fields.integer("seed", i64::MIN, i64::MAX)?.map(|seed| seed as u64),
            stops: stops(fields)?,
            is_stream,
            includes_usage: includes_usage(fields, is_stream)?,
            answers: fields.integer("n", 1, MOST_ANSWERS)?.unwrap_or(1) as usize,
            ignores_end: fields.boolean("ignore_eos")?.unwrap_or(false),
        })
    }
}

/// Reads the parameters of a body, whatever it is, and forgets them.
pub(crate) fn read_parameters(body: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    if let Ok(fields) = Fields::of_body(&value) {
        let _ = Params::read(fields, &SamplingDefaults::default(), 1000);
    }
}

/// Refuses a request for another model.
pub(super) fn check_model(fields: Fields<'_>, model: &ServeModel) -> Result<(), ApiError> {
    match fields.text("model")?.filter(|name| !model.is_named(name)) {
        None => Ok(()),
        Some(other) => Err(ApiError::model(&other.chars().take(128).collect::<String>())),
    }
}

fn max_tokens(fields: Fields<'_>) -> Result<Option<usize>, ApiError> {
    let most = i64::from(i32::MAX);
    let read = |name| fields.integer(name, 0, most);
    let (old, new) = (read("max_tokens")?, read("max_completion_tokens")?);
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let message = format!("`max_tokens` is {old} and `max_completion_tokens` is {new}; one of them is enough");
        return Err(ApiError::field("max_completion_tokens", message));
    }
    Ok(new.or(old).map(|tokens| tokens as usize))
}

fn sampling(fields: Fields<'_>, defaults: &SamplingDefaults, vocab: usize) -> Result<Sampling, ApiError> {
    let repetition = fields.number("repetition_penalty", Bounds::above(0.0, 100.0))?;
    let repeat = fields.number("repeat_penalty", Bounds::above(0.0, 100.0))?;
    if let (Some(repetition), Some(repeat)) = (repetition, repeat)
        && repetition != repeat
    {
        let message =
            format!("`repetition_penalty` is {repetition} and `repeat_penalty` is {repeat}; they are the same");
        return Err(ApiError::field("repeat_penalty", message));
    }
    let top_k = fields.integer("top_k", -1, i64::from(i32::MAX))?.map(|top_k| top_k.max(0) as u32);
    let penalty = Bounds::closed(-2.0, 2.0);
    Ok(Sampling {
        temperature: fields.number("temperature", Bounds::closed(0.0, 100.0))?.unwrap_or(defaults.temperature),
        top_k: top_k.unwrap_or(defaults.top_k),
        top_p: fields.number("top_p", Bounds::above(0.0, 1.0))?.unwrap_or(defaults.top_p),
        min_p: fields.number("min_p", Bounds::closed(0.0, 1.0))?.unwrap_or(defaults.min_p),
        seed: 0,
        repetition_penalty: repetition.or(repeat).unwrap_or(defaults.repetition_penalty),
        presence_penalty: fields.number("presence_penalty", penalty)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", penalty)?.unwrap_or(0.0),
        logit_bias: fields.object("logit_bias")?.map_or_else(|| Ok(Vec::new()), |map| logit_bias(map, vocab))?,
    })
}

/// Keys are token ids as strings. Two spellings of one id are refused rather than added.
fn logit_bias(map: &Map<String, Value>, vocab: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    let refuse = |message: String| ApiError::field("logit_bias", message);
    let mut biases: Vec<(u32, f32)> = Vec::with_capacity(map.len());
    for (key, value) in map {
        let shown: String = key.chars().take(32).collect();
        let token =
            key.parse::<u32>().ok().filter(|token| (*token as usize) < vocab).ok_or_else(|| {
                refuse(format!("`logit_bias` has the key `{shown}`, which is no token id below {vocab}"))
            })?;
        let bias = value.as_f64().map(|bias| bias as f32).filter(|bias| (-100.0..=100.0).contains(bias));
        let shown_value = kind(value);
        let bias = bias.ok_or_else(|| {
            refuse(format!("`logit_bias` of `{shown}` is {shown_value}, not a number from -100 to 100"))
        })?;
        if biases.iter().any(|(other, _)| *other == token) {
            return Err(refuse(format!("`logit_bias` has the token {token} twice")));
        }
        biases.push((token, bias));
    }
    biases.sort_unstable_by_key(|(token, _)| *token);
    Ok(biases)
}

fn stops(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
    let stops = fields.texts("stop", MOST_STOPS)?;
    // The matcher has limits of its own.
    crate::chat::StopMatcher::new(&stops).map_err(|error| ApiError::field("stop", error.to_string()))?;
    Ok(stops)
}

fn includes_usage(fields: Fields<'_>, is_stream: bool) -> Result<bool, ApiError> {
    let Some(options) = fields.object("stream_options")? else { return Ok(false) };
    let options = Fields::new(options, "stream_options.");
    options.refuse_unknown(&[&["include_usage", "include_obfuscation"]])?;
    options.boolean("include_obfuscation")?;
    let includes = options.boolean("include_usage")?.unwrap_or(false);
    if !is_stream {
        let message = "`stream_options` is only for requests with `stream` set to true";
        return Err(ApiError::field("stream_options", message));
    }
    Ok(includes)
}
