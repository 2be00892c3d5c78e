//! Answers as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::error::ApiError;
use super::job::Running;
use super::reply::{Choice, Content, Delta, Kind, Reply, Used};
use super::state::State;
use crate::chat::Piece;

/// Frames that wait for a slow reader before the answer waits too.
const FRAMES: usize = 64;

/// Time for the last frame to be sent once the server ends what still runs.
const LAST_FRAME: Duration = Duration::from_secs(1);

const DONE: &str = "data: [DONE]\n\n";

/// The reader is gone.
struct Gone;

/// Sends frames.
struct Frames {
    sender: mpsc::Sender<Result<String, Infallible>>,
}

impl Frames {
    async fn raw(&self, frame: String) -> Result<(), Gone> {
        self.sender.send(Ok(frame)).await.map_err(|_| Gone)
    }

    async fn data(&self, value: &impl Serialize) -> Result<(), Gone> {
        // JSON of one line; the types of this crate have no keys that could fail.
        let json = serde_json::to_string(value).map_err(|_| Gone)?;
        self.raw(format!("data: {json}\n\n")).await
    }

    /// An error after the headers were sent: one frame, then the end.
    async fn error(&self, error: &ApiError) -> Result<(), Gone> {
        self.data(&error.body()).await?;
        self.raw(DONE.to_owned()).await
    }
}

/// The response whose body is sent as the answers are made.
pub(super) fn respond(running: Running, state: &Arc<State>) -> Response {
    let (sender, receiver) = mpsc::channel(FRAMES);
    let task = Stream { running, state: state.clone(), frames: Frames { sender } };
    let state = state.clone();
    tokio::spawn(async move {
        // Dropping the answers cancels them: of a reader who is gone, and at the end of the server also of one who does not
        // read and so does not see the last frame.
        tokio::select! {
            _ = task.run() => {}
            () = async { state.stopped().await; tokio::time::sleep(LAST_FRAME).await } => {}
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(receiver)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Stream {
    running: Running,
    state: Arc<State>,
    frames: Frames,
}

/// What a stream waits for.
enum Next {
    Piece(Option<(usize, Piece)>),
    Silence,
    Stopped,
    Gone,
}

impl Stream {
    async fn run(mut self) -> Result<(), Gone> {
        let mut started = vec![false; self.running.answers.len()];
        let keep_alive = self.state.options.keep_alive;
        let state = self.state.clone();
        let mut stopped = std::pin::pin!(state.stopped());
        loop {
            let next = tokio::select! {
                piece = self.running.answers.next() => Next::Piece(piece),
                () = &mut stopped => Next::Stopped,
                () = self.frames.sender.closed() => Next::Gone,
                () = silence(keep_alive) => Next::Silence,
            };
            let (index, piece) = match next {
                Next::Piece(Some(piece)) => piece,
                Next::Piece(None) => break,
                Next::Silence => {
                    self.frames.raw(": ping\n\n".to_owned()).await?;
                    continue;
                }
                Next::Stopped => return self.frames.error(&ApiError::draining()).await,
                Next::Gone => return Err(Gone),
            };
            if let Piece::Failed(why) = piece {
                return self.frames.error(&ApiError::server(why)).await;
            }
            if let Some(is_started) = started.get_mut(index).filter(|is_started| !**is_started) {
                *is_started = true;
                if self.running.kind == Kind::Chat {
                    let delta = Delta { role: Some("assistant"), content: Some("") };
                    self.chunk(index, Content::Delta(delta), None).await?;
                }
            }
            match piece {
                Piece::Text(text) => {
                    let content = match self.running.kind {
                        Kind::Chat => Content::Delta(Delta { role: None, content: Some(&text) }),
                        Kind::Completion => Content::Text(&text),
                    };
                    self.chunk(index, content, None).await?;
                }
                Piece::Done(ending) => {
                    self.running.ended(&ending);
                    let content = match self.running.kind {
                        Kind::Chat => Content::Delta(Delta::default()),
                        Kind::Completion => Content::Text(""),
                    };
                    self.chunk(index, content, Some(ending.reason.text())).await?;
                }
                Piece::Failed(_) => {}
            }
        }
        if self.running.includes_usage {
            let reply = Reply { head: &self.running.head, choices: Vec::new(), usage: Used::Now(self.running.usage) };
            self.frames.data(&reply).await?;
        }
        self.frames.raw(DONE.to_owned()).await
    }

    async fn chunk(&self, index: usize, content: Content<'_>, reason: Option<&'static str>) -> Result<(), Gone> {
        let usage = if self.running.includes_usage { Used::Later } else { Used::Unsaid };
        let choices = vec![Choice { index, content, logprobs: None, finish_reason: reason }];
        self.frames.data(&Reply { head: &self.running.head, choices, usage }).await
    }
}

/// Ready after a time without anything to send; never, where no comments are sent.
async fn silence(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}
