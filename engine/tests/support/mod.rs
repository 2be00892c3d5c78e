//! A server with a synthetic model on a local port, and a small HTTP client.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use memra_artifact::GgufModel;
use memra_contract::DeviceKey;
use memra_contract::device::HostArch;
use memra_engine::runner::{Runner, RunnerOptions};
use memra_engine::schedule::{Engine, EngineOptions};
use memra_engine::serve::{ServeModel, ServeOptions, serve};
use memra_engine::testing::SyntheticModel;
use memra_kernels::backend::host::this_tier;
use memra_kernels::select::Tables;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How the test server is set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) model: SyntheticModel,
    pub(crate) engine: EngineOptions,
    pub(crate) serve: ServeOptions,
    pub(crate) aliases: Vec<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            model: SyntheticModel { context: 512, ..SyntheticModel::default() },
            engine: EngineOptions { max_sequences: 8, max_queue: 16, max_positions: 512, mixed_rows: 16 },
            serve: ServeOptions::default(),
            aliases: vec!["alias".to_owned()],
        }
    }
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

/// Loads a synthetic model and starts an engine on it.
pub(crate) fn load(setup: &Setup) -> (ServeModel, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    setup.model.write(&path).unwrap();
    let file = GgufModel::open(&path).unwrap();
    let options = RunnerOptions {
        key: DeviceKey::Host { arch: HostArch::of_this_build(), tier: this_tier() },
        threads: Some(1),
        max_rows: 64,
        max_wanted: 8,
        cache_positions: setup.engine.max_positions * setup.engine.max_sequences,
    };
    let runner = Runner::load(&file, &Tables::default(), options).unwrap();
    let (config, program) = (runner.config().clone(), runner.plan().program.clone());
    let engine = Arc::new(Engine::start(runner, setup.engine).unwrap());
    let mut model = ServeModel::read(&file, engine, config, program).unwrap();
    model.aliases.clone_from(&setup.aliases);
    (model, folder)
}

impl TestServer {
    pub(crate) async fn start(setup: Setup) -> Self {
        let (model, folder) = load(&setup);
        let engine = model.engine.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, model, setup.serve, async {
            let _ = stopped.await;
        }));
        Self { address, engine, stop: Some(stop), task, _folder: folder }
    }

    /// Tells the server to stop.
    pub(crate) fn shut_down(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the server to end.
    pub(crate) async fn ended(mut self) {
        self.shut_down();
        self.task.await.unwrap().unwrap();
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
        let connection = self.open(method, path, headers, body).await;
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).await;
        Response::parse(&bytes)
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends a request and leaves the answer unread.
    pub(crate) async fn open(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Connection {
        let connection = self.connect().await;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses a body may close before all of it was sent.
        let _ = connection.write_all(body).await;
        connection
    }

    /// Sends bytes as they are.
    pub(crate) async fn raw(&self, request: &str) -> Response {
        let connection = self.connect().await;
        let _ = connection.write_all(request.as_bytes()).await;
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).await;
        Response::parse(&bytes)
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, JSON, body.to_string().as_bytes()).await
    }

    /// Waits until nothing runs and nothing waits.
    pub(crate) async fn wait_idle(&self) {
        for _ in 0..2000 {
            let status = self.engine.status();
            if (status.running, status.waiting, status.pages_used) == (0, 0, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("still busy: {:?}", self.engine.status());
    }
}

/// A connection of the client.
pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Sends bytes; an error says that the other end is gone.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends what comes next; whether there is more.
    pub(crate) async fn read(&self, bytes: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 4096];
        loop {
            self.0.readable().await.unwrap();
            match self.0.try_read(&mut buffer) {
                Ok(read) => {
                    bytes.extend_from_slice(&buffer[..read]);
                    return read > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) async fn read_to_end(&self, bytes: &mut Vec<u8>) {
        while self.read(bytes).await {}
    }

    /// Reads until some text was seen.
    pub(crate) async fn read_until(&self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            assert!(self.read(&mut bytes).await, "{}", String::from_utf8_lossy(&bytes));
        }
        bytes
    }
}

pub(crate) const JSON: &str = "content-type: application/json\r\n";

/// An HTTP response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// Takes a response apart. Panics where the body is no UTF-8.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("no end of headers");
        let head = std::str::from_utf8(&bytes[..at]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let mut rest = &bytes[at + 4..];
        let mut body = Vec::new();
        if is_chunked {
            loop {
                let end = rest.windows(2).position(|window| window == b"\r\n").expect("no end of chunk size");
                let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
                rest = &rest[end + 2..];
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&rest[..size]);
                rest = &rest[size + 2..];
            }
        } else {
            body.extend_from_slice(rest);
        }
        Self { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The chunks of a stream, which must be framed well and end with `[DONE]`.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let frames: Vec<&str> =
            self.body.strip_suffix("\n\n").expect("no blank line at the end").split("\n\n").collect();
        let (last, frames) = frames.split_last().unwrap();
        assert_eq!(*last, "data: [DONE]");
        let chunk = |frame: &&str| {
            assert!(!frame.contains('\n'), "{frame:?}");
            serde_json::from_str(frame.strip_prefix("data: ").expect("no data")).unwrap()
        };
        frames.iter().filter(|frame| !frame.starts_with(':')).map(chunk).collect()
    }

    /// Asserts an error in the envelope and returns it.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let body = self.json();
        let error = body["error"].as_object().expect("no envelope");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert!(error["type"].is_string(), "{body}");
        for key in ["param", "code"] {
            assert!(error[key].is_string() || error[key].is_null(), "{body}");
        }
        assert!(self.header("x-request-id").is_some());
        body["error"].clone()
    }
}

/// The text of one choice of a streamed answer, with its reasons to finish.
pub(crate) fn joined(chunks: &[Value], index: u64) -> (String, Vec<String>) {
    let (mut text, mut reasons) = (String::new(), Vec::new());
    for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
        if choice["index"] == index {
            text += choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default();
            reasons.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }
    (text, reasons)
}

/// The text of one choice of a whole answer.
pub(crate) fn whole(reply: &Value, index: usize) -> String {
    let choice = &reply["choices"][index];
    choice["message"]["content"].as_str().or(choice["text"].as_str()).expect("no text").to_owned()
}
