//! The two ends of a child that are read: answers line by line, and the last lines of its messages.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest line of an answer in bytes.
const MAX_LINE: u64 = 1 << 16;
/// Lines that may wait to be read.
const WAITING: usize = 64;
/// Lines of standard error that are kept.
const KEPT: usize = 8;
/// Longest of them in bytes.
const MAX_KEPT: u64 = 300;

/// A line, or why there are no more.
#[derive(Debug)]
pub(crate) enum Said {
    /// A line without its end.
    Line(String),
    /// A line that is too long or no UTF-8; the start of it.
    Unreadable(String),
}

/// Reads lines on a thread of its own; the channel closes at the end of the stream.
pub(crate) fn read_lines(stream: impl Read + Send + 'static) -> std::io::Result<Receiver<Said>> {
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::Builder::new()
        .name("memra-arm-out".to_owned())
        .spawn(move || forward_lines(BufReader::new(stream), &sender))?;
    Ok(receiver)
}

fn forward_lines(mut stream: impl BufRead, sender: &SyncSender<Said>) {
    loop {
        let mut line = Vec::new();
        match stream.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_whole = line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE;
        while line.last().is_some_and(|end| matches!(end, b'\n' | b'\r')) {
            line.pop();
        }
        let said = match String::from_utf8(line) {
            Ok(line) if is_whole => Said::Line(line),
            Ok(line) => Said::Unreadable(line),
            Err(error) => Said::Unreadable(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        };
        let is_end = matches!(said, Said::Unreadable(_));
        if sender.send(said).is_err() || is_end {
            return;
        }
    }
}

/// The last lines of standard error.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords {
    lines: Arc<Mutex<VecDeque<String>>>,
    is_over: Arc<AtomicBool>,
}

impl LastWords {
    /// Reads a stream on a thread of its own.
    pub(crate) fn listen(stream: impl Read + Send + 'static) -> std::io::Result<Self> {
        let words = Self::default();
        let own = words.clone();
        std::thread::Builder::new().name("memra-arm-err".to_owned()).spawn(move || {
            words.collect(BufReader::new(stream));
            words.is_over.store(true, Ordering::Release);
        })?;
        Ok(own)
    }

    fn collect(&self, mut stream: impl BufRead) {
        loop {
            let mut line = Vec::new();
            match stream.by_ref().take(MAX_KEPT).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == KEPT {
                lines.pop_front();
            }
            lines.push_back(text.to_owned());
        }
    }

    /// What was said last. Waits a moment for the stream to end, so that the reason of a death is among it.
    pub(crate) fn read(&self) -> Vec<String> {
        let start = Instant::now();
        while !self.is_over.load(Ordering::Acquire) && start.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn lines_come_without_their_end_and_long_ones_are_cut() {
        let mut text = b"one\r\n\ntwo".to_vec();
        text.extend(b"\n");
        text.extend(vec![b'x'; MAX_LINE as usize + 5]);
        let said: Vec<Said> = read_lines(Cursor::new(text)).unwrap().iter().collect();
        assert!(matches!(&said[0], Said::Line(line) if line == "one"));
        assert!(matches!(&said[1], Said::Line(line) if line.is_empty()));
        assert!(matches!(&said[2], Said::Line(line) if line == "two"));
        assert!(matches!(&said[3], Said::Unreadable(line) if line.len() == MAX_LINE as usize));
        assert_eq!(said.len(), 4);
        let said: Vec<Said> = read_lines(Cursor::new(b"\xff\n{}\n".to_vec())).unwrap().iter().collect();
        assert!(matches!(said.as_slice(), [Said::Unreadable(_)]));
    }

    #[test]
    fn the_last_words_are_kept() {
        let text: String = (0..20).map(|i| ["line ", &i.to_string(), "\n"].concat()).collect();
        let words = LastWords::listen(Cursor::new(text.into_bytes())).unwrap().read();
        assert_eq!(words.len(), KEPT);
        assert_eq!((words[0].as_str(), words[KEPT - 1].as_str()), ("line 12", "line 19"));
    }
}
