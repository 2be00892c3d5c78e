//! The lab's own lock on a device: one session measures at a time.
//!
//! It is an advisory lock on a file that the command line names, so it ends with its holder however that ends. The file
//! holds the holder's process id for whoever waits; the text is a courtesy, the lock is what counts.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two attempts to take a lock that somebody holds.
const PAUSE: Duration = Duration::from_millis(200);

/// Most bytes that are read as a process id.
const MAX_ID_BYTES: u64 = 32;

/// The name of the lock file of a device: `memra-lab-host.lock`, `memra-lab-cuda-<uuid or number>.lock`.
///
/// `device` is what tells the device from others of its machine; letters, digits and dashes of it are kept.
pub fn file_name(device: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let device: String = device.chars().map(|c| if is_kept(c) { c.to_ascii_lowercase() } else { '-' }).collect();
    format!("memra-lab-{device}.lock")
}

/// The right to measure on a device, until it is dropped.
#[derive(Debug)]
pub struct DeviceLock {
    file: File,
}

/// What a waiting process is told before each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Process id of the holder, where it has written it.
    pub holder: Option<u32>,
    /// Time spent waiting.
    pub waited: Duration,
}

/// Why a device could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file cannot be used.
    #[error("device lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody holds the lock, and the caller did not want to wait.
    #[error("device lock {path} is held by {holder}")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder, as a phrase.
        holder: String,
    },
}

impl DeviceLock {
    /// Takes the lock at `path`, making the file where there is none.
    ///
    /// While somebody else holds it, `on_wait` is called before each further attempt; it ends the waiting with `Break`.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] after `Break`, [`LockError::Io`] if the file cannot be opened, locked or written.
    pub fn acquire(path: &Path, on_wait: &mut dyn FnMut(&Waiting) -> ControlFlow<()>) -> Result<Self, LockError> {
        let io = |source| LockError::Io { path: path.to_owned(), source };
        let mut options = File::options();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let waiting = Waiting { holder: read_holder(&mut file), waited: started.elapsed() };
                    if on_wait(&waiting).is_break() {
                        let holder = waiting.holder.map_or("another process".to_owned(), |id| format!("process {id}"));
                        return Err(LockError::Held { path: path.to_owned(), holder });
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(source)) => return Err(io(source)),
            }
        }
        let mut lock = Self { file };
        lock.write_holder(&format!("{}\n", std::process::id())).map_err(io)?;
        Ok(lock)
    }

    fn write_holder(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for DeviceLock {
    fn drop(&mut self) {
        // Closing the file releases the lock in any case; an id that stays behind misleads nobody who holds it.
        let _ = self.write_holder("");
        let _ = self.file.unlock();
    }
}

fn read_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(MAX_ID_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give_up(path: &Path) -> Result<DeviceLock, LockError> {
        DeviceLock::acquire(path, &mut |_| ControlFlow::Break(()))
    }

    #[test]
    fn devices_have_locks_of_their_own() {
        assert_eq!(file_name("host"), "memra-lab-host.lock");
        assert_eq!(file_name("cuda:GPU-12ab"), "memra-lab-cuda-gpu-12ab.lock");
        assert_ne!(file_name("cuda:0"), file_name("cuda:1"));
        assert_eq!(file_name("../x/y"), "memra-lab----x-y.lock");
        let folder = tempfile::tempdir().unwrap();
        let _host = give_up(&folder.path().join(file_name("host"))).unwrap();
        let _card = give_up(&folder.path().join(file_name("cuda:0"))).unwrap();
        assert!(give_up(&folder.path().join(file_name("cuda:0"))).is_err());
    }

    #[test]
    fn one_holder_at_a_time_and_its_id_is_readable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device.lock");
        let lock = give_up(&path).unwrap();
        let mut seen = None;
        let error = DeviceLock::acquire(&path, &mut |waiting| {
            seen = waiting.holder;
            ControlFlow::Break(())
        })
        .unwrap_err();
        assert_eq!(seen, Some(std::process::id()));
        assert!(error.to_string().ends_with(&format!("is held by process {}", std::process::id())), "{error}");
        drop(lock);
        let lock = give_up(&path).unwrap();
        drop(lock);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_waiting_process_gets_the_lock_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device.lock");
        let mut first = Some(give_up(&path).unwrap());
        let mut calls = 0;
        let second = DeviceLock::acquire(&path, &mut |_| {
            calls += 1;
            first = None;
            ControlFlow::Continue(())
        });
        assert!(second.is_ok());
        assert_eq!(calls, 1);
    }

    #[test]
    fn a_file_left_behind_is_taken_over_and_nonsense_in_it_is_no_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device.lock");
        std::fs::write(&path, "not a number, and longer than any number of a process is\n").unwrap();
        let mut file = File::options().read(true).open(&path).unwrap();
        assert_eq!(read_holder(&mut file), None);
        let _lock = give_up(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
        let missing = folder.path().join("missing").join("device.lock");
        let error = give_up(&missing).unwrap_err().to_string();
        assert!(error.starts_with("device lock ") && error.contains("missing"), "{error}");
    }
}
