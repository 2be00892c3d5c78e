//! Errors as the OpenAI interface has them: one envelope, a status, string codes.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::schedule::SubmitError;

/// A way in which a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Invalid,
    Context,
    Model,
    Route,
    Method,
    SlowBody,
    TooLarge,
    MediaType,
    QueueFull,
    Server,
    NotSupported,
    Draining,
    Stopped,
}

impl Class {
    const fn status(self) -> StatusCode {
        match self {
            Self::Invalid | Self::Context => StatusCode::BAD_REQUEST,
            Self::Model | Self::Route => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            Self::Server => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotSupported => StatusCode::NOT_IMPLEMENTED,
            Self::Draining | Self::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// `error.type`.
    const fn kind(self) -> &'static str {
        match self {
            Self::Invalid | Self::Context | Self::Method | Self::SlowBody | Self::TooLarge | Self::MediaType => {
                "invalid_request_error"
            }
            Self::Model | Self::Route => "not_found_error",
            Self::QueueFull => "server_overloaded",
            Self::Server => "server_error",
            Self::NotSupported => "not_supported_error",
            Self::Draining | Self::Stopped => "unavailable_error",
        }
    }

    /// `error.code`.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Context => Some("context_length_exceeded"),
            Self::Model => Some("model_not_found"),
            Self::QueueFull => Some("server_overloaded"),
            _ => None,
        }
    }

    /// Label of `requests_rejected`.
    const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Context => "context_length",
            Self::Model => "model_not_found",
            Self::Route => "route",
            Self::Method => "method",
            Self::SlowBody => "slow_body",
            Self::TooLarge => "too_large",
            Self::MediaType => "media_type",
            Self::QueueFull => "queue_full",
            Self::Server => "fault",
            Self::NotSupported => "not_supported",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// A request that was not served, with everything that its answer says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiError {
    class: Class,
    message: String,
    param: Option<String>,
    /// Seconds after which it is worth trying again.
    retry_after: Option<u64>,
    /// Tokens of the prompt and positions of the context, where these do not fit.
    context: Option<(usize, usize)>,
}

impl ApiError {
    fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), param: None, retry_after: None, context: None }
    }

    /// 400: the request is not one.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Class::Invalid, message)
    }

    /// 400: a field is wrong.
    pub(super) fn field(field: &str, message: impl Into<String>) -> Self {
        Self::invalid(message).with_param(field)
    }

    /// 501: a field that would change the answer and is not implemented.
    pub(super) fn unsupported(field: &str) -> Self {
        Self::not_supported(format!("`{field}` is not supported by this server")).with_param(field)
    }

    /// 501: something that this model cannot do.
    pub(super) fn not_supported(message: impl Into<String>) -> Self {
        Self::new(Class::NotSupported, message)
    }

    /// 404: another model.
    pub(super) fn model(name: &str) -> Self {
        Self::new(Class::Model, format!("the model `{name}` does not exist")).with_param("model")
    }

    /// 404: no such route.
    pub(super) fn route() -> Self {
        Self::new(Class::Route, "there is no such route")
    }

    /// 405: the route takes other methods.
    pub(super) fn method() -> Self {
        Self::new(Class::Method, "the method is not allowed on this route")
    }

    /// 408: the body did not come.
    pub(super) fn slow_body() -> Self {
        Self::new(Class::SlowBody, "the body of the request did not come in time")
    }

    /// 413: the body is too large.
    pub(super) fn too_large(limit: usize) -> Self {
        Self::new(Class::TooLarge, format!("the body of the request is larger than {limit} bytes"))
    }

    /// 415: the body is no JSON by its header.
    pub(super) fn media_type(message: impl Into<String>) -> Self {
        Self::new(Class::MediaType, message)
    }

    /// 429: the queue is full.
    pub(super) fn overloaded(message: impl Into<String>, retry_after: u64) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(Class::QueueFull, message) }
    }

    /// 503: the server is going away.
    pub(super) fn draining() -> Self {
        Self { retry_after: Some(RETRY_AFTER_DRAIN), ..Self::new(Class::Draining, "Draining") }
    }

    /// 503: the executor is gone.
    pub(super) fn stopped() -> Self {
        Self { retry_after: Some(RETRY_AFTER_DRAIN), ..Self::new(Class::Stopped, "the engine has stopped") }
    }

    /// 500: a fault of the engine.
    pub(super) fn server(message: impl Into<String>) -> Self {
        Self::new(Class::Server, message)
    }

    /// 400: prompt and answer do not fit the context.
    pub(super) fn context(prompt: usize, max_tokens: usize, limit: usize, param: &str) -> Self {
        let message = format!(
            "this model's context length is {limit} tokens, and {prompt} tokens of the prompt with {max_tokens} of the \
             answer are more than that"
        );
        Self { context: Some((prompt, limit)), ..Self::new(Class::Context, message) }.with_param(param)
    }

    /// Of a request that the engine did not take. `retry_after` is an estimate for a full queue; `param` is the field that
    /// holds the prompt.
    pub(super) fn submit(error: &SubmitError, retry_after: u64, param: &str) -> Self {
        match error {
            SubmitError::QueueFull { .. } => Self::overloaded(error.to_string(), retry_after),
            SubmitError::TooLong { prompt, max_tokens, limit } => Self::context(*prompt, *max_tokens, *limit, param),
            SubmitError::EmptyPrompt | SubmitError::Token { .. } => Self::field(param, error.to_string()),
            SubmitError::Draining => Self::draining(),
            SubmitError::Stopped => Self::stopped(),
        }
    }

    fn with_param(self, param: &str) -> Self {
        Self { param: Some(param.to_owned()), ..self }
    }

    /// Label of `requests_rejected`.
    pub(super) fn reason(&self) -> &'static str {
        self.class.reason()
    }

    /// The envelope.
    pub(super) fn body(&self) -> Value {
        let mut error = Map::new();
        error.insert("message".to_owned(), json!(self.message));
        error.insert("type".to_owned(), json!(self.class.kind()));
        error.insert("param".to_owned(), json!(self.param));
        error.insert("code".to_owned(), json!(self.class.code()));
        if let Some((prompt, limit)) = self.context {
            error.insert("n_prompt_tokens".to_owned(), json!(prompt));
            error.insert("n_ctx".to_owned(), json!(limit));
        }
        json!({ "error": error })
    }
}

/// Seconds after which a server that goes away may be back.
const RETRY_AFTER_DRAIN: u64 = 5;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.class.status(), axum::Json(self.body())).into_response();
        if self.class == Class::NotSupported {
            // Official clients try again after every 5xx, unless they are told.
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
