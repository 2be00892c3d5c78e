//! Routes, and what every response gets.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::error::ApiError;
use super::job::Job;
use super::state::State;
use super::{chat, completion, neutral, stream, tokens};

type Result<T> = std::result::Result<T, ApiError>;

/// Everything that is served.
pub(super) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/version", get(version))
        .route("/props", get(props))
        .fallback(async || ApiError::route())
        .method_not_allowed_fallback(async || ApiError::method())
        .layer(from_fn_with_state(state.clone(), around))
        .with_state(state)
}

/// The matched route of a path, for metrics.
fn handler(path: &str) -> &'static str {
    const ROUTES: [&str; 9] = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/metrics",
        "/version",
        "/props",
    ];
    match ROUTES.iter().find(|route| **route == path) {
        Some(route) => route,
        None if path.starts_with("/v1/models/") => "/v1/models/{id}",
        None => "unmatched",
    }
}

fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "HEAD" => "HEAD",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        _ => "other",
    }
}

/// The caller's request id where it is short and plain, or one of ours.
fn request_id(state: &State, headers: &HeaderMap) -> HeaderValue {
    let is_plain = |id: &HeaderValue| {
        let bytes = id.as_bytes();
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
        (1..=128).contains(&bytes.len()) && bytes.iter().all(is_allowed)
    };
    match headers.get(REQUEST_ID).filter(|id| is_plain(id)) {
        Some(id) => id.clone(),
        None => HeaderValue::try_from(format!("req_{:016x}", state.fresh()))
            .unwrap_or_else(|_| HeaderValue::from_static("req_0")),
    }
}

const REQUEST_ID: &str = "x-request-id";

/// Headers and counters of every response.
async fn around(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let since = Instant::now();
    let id = request_id(&state, request.headers());
    let (method, handler) = (method_label(request.method()), handler(request.uri().path()));
    let mut response = next.run(request).await;
    state.metrics.count_http(method, handler, response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert("openai-processing-ms", HeaderValue::from(since.elapsed().as_millis() as u64));
    response
}

/// The body as JSON.
async fn body(state: &State, request: Request) -> Result<Value> {
    let headers = request.headers();
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable").trim().to_lowercase());
    let media = text(header::CONTENT_TYPE);
    let essence = media.as_deref().map(|media| media.split(';').next().unwrap_or_default().trim());
    if !essence.is_some_and(|media| media == "application/json" || media.ends_with("+json")) {
        return Err(ApiError::media_type("the content type must be application/json"));
    }
    if text(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(ApiError::media_type("the body must not have a content encoding"));
    }
    let limit = state.options.body_limit;
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    let bytes = tokio::time::timeout(state.options.body_timeout, axum::body::to_bytes(request.into_body(), limit))
        .await
        .map_err(|_| ApiError::slow_body())?
        // The other way for this to fail is that the caller is gone, who does not see the answer.
        .map_err(|_| ApiError::too_large(limit))?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::invalid(format!("the body is no JSON: {error}")))
}

/// Work on text that may take long, away from the threads that serve connections. A panic of it is a fault of the server.
async fn prepare<T: Send + 'static>(
    state: &Arc<State>,
    request: Request,
    work: fn(&State, &Value) -> Result<T>,
) -> Result<T> {
    let body = body(state, request).await?;
    let state = state.clone();
    tokio::task::spawn_blocking(move || work(&state, &body))
        .await
        .map_err(|_| ApiError::server("the request could not be prepared"))?
}

async fn generate(state: Arc<State>, request: Request, work: fn(&State, &Value) -> Result<Job>) -> Result<Response> {
    let taken = async {
        state.check_open()?;
        let job = prepare(&state, request, work).await?;
        let is_stream = job.params.is_stream;
        Ok((job.admit(&state)?, is_stream))
    };
    let (running, is_stream) =
        taken.await.inspect_err(|error: &ApiError| state.metrics.count_rejected(error.reason()))?;
    if is_stream {
        return Ok(stream::respond(running, &state));
    }
    let json = running.whole().await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

async fn chat_completions(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    generate(state, request, chat::prepare).await
}

async fn completions(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    generate(state, request, completion::prepare).await
}

async fn tokenize(Shared(state): Shared<Arc<State>>, request: Request) -> Result<axum::Json<Value>> {
    prepare(&state, request, tokens::tokenize).await.map(axum::Json)
}

async fn detokenize(Shared(state): Shared<Arc<State>>, request: Request) -> Result<axum::Json<Value>> {
    prepare(&state, request, tokens::detokenize).await.map(axum::Json)
}

fn model_card(state: &State, id: &str) -> Value {
    json!({
        "id": id,
        "object": "model",
        "created": state.created,
        "owned_by": "memra",
        "root": state.model.name,
        "max_model_len": state.model.engine.options().max_positions,
    })
}

async fn models(Shared(state): Shared<Arc<State>>) -> axum::Json<Value> {
    let names = std::iter::once(&state.model.name).chain(&state.model.aliases);
    let cards: Vec<Value> = names.map(|name| model_card(&state, name)).collect();
    axum::Json(json!({ "object": "list", "data": cards }))
}

async fn model(
    Shared(state): Shared<Arc<State>>,
    id: std::result::Result<Path<String>, PathRejection>,
) -> Result<axum::Json<Value>> {
    let Path(id) = id.map_err(|error| ApiError::invalid(error.body_text()))?;
    if state.model.is_named(&id) {
        Ok(axum::Json(model_card(&state, &id)))
    } else {
        Err(ApiError::model(&id.chars().take(128).collect::<String>()))
    }
}

async fn health(Shared(state): Shared<Arc<State>>) -> Result<axum::Json<Value>> {
    state.check_open()?;
    Ok(axum::Json(json!({ "status": "ok" })))
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> Response {
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (StatusCode::OK, [(header::CONTENT_TYPE, media)], Body::from(state.metrics.text())).into_response()
}

async fn version() -> axum::Json<Value> {
    axum::Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn props(Shared(state): Shared<Arc<State>>) -> axum::Json<Value> {
    let (model, defaults) = (&state.model, state.options.defaults);
    let options = model.engine.options();
    axum::Json(json!({
        "model": model.name,
        "aliases": model.aliases,
        "architecture": model.config.architecture,
        "system_fingerprint": state.fingerprint(),
        "n_ctx": options.max_positions,
        "n_ctx_train": model.config.context,
        "n_vocab": model.config.vocab,
        "total_slots": options.max_sequences,
        "max_queue": options.max_queue,
        "has_chat_template": model.template.is_some(),
        "default_generation_settings": {
            "temperature": defaults.temperature,
            "top_p": defaults.top_p,
            "top_k": defaults.top_k,
            "min_p": defaults.min_p,
            "repetition_penalty": defaults.repetition_penalty,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        },
        "not_supported": neutral::refused(),
    }))
}
