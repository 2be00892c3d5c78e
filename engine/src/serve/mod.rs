//! A server with the OpenAI interface.
//!
//! `POST /v1/chat/completions` and `/v1/completions`, `GET /v1/models`, `/health`, `/metrics`, `/version` and `/props`,
//! `POST /tokenize` and `/detokenize`.
//!
//! Everything about a request is checked, and the engine has taken it, before the first header is sent, so whatever is
//! wrong with it is an ordinary HTTP error. A field that would change the answer and is not implemented is refused by name,
//! and so is a field that nobody knows: nothing is dropped in silence.

mod chat;
mod completion;
mod error;
mod fields;
mod job;
mod metrics;
mod neutral;
mod options;
mod params;
mod reply;
mod routes;
mod state;
mod stream;
mod tokens;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use options::{SamplingDefaults, ServeModel, ServeOptions, chat_template};

pub(crate) use params::read_parameters;

use state::State;

/// Time for connections to take their last bytes once everything is answered or ended.
const GRACE: Duration = Duration::from_secs(2);

/// Serves a model until `shutdown` is ready; then no more requests are taken (503, `Retry-After`), those that run get
/// `drain_timeout` to finish, and what is left after that is ended with an error.
///
/// The engine is drained, not joined: it belongs to the caller.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    model: ServeModel,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let state = Arc::new(State::new(model, options));
    let router = routes::router(state.clone());
    // Tokens are small and must not wait for more of them. A socket that cannot be told works all the same.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let (close, closed) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        // An error says that the other end is gone, which is as good.
        let _ = closed.await;
    });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        ended = &mut server => return ended.unwrap_or_else(|error| Err(io::Error::other(error))),
        () = shutdown => {}
    }
    state.drain();
    if timeout(options.drain_timeout, state.idle()).await.is_err() {
        state.stop();
        // What is still not gone then belongs to readers who do not read.
        let _ = timeout(GRACE, state.idle()).await;
    }
    let _ = close.send(());
    if let Ok(ended) = timeout(GRACE, &mut server).await {
        ended.unwrap_or_else(|error| Err(io::Error::other(error)))
    } else {
        server.abort();
        Ok(())
    }
}
