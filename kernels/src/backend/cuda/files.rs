//! Files that appear whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A file beside its target that is removed unless it was put in its place.
pub(super) struct Beside {
    path: PathBuf,
    is_placed: bool,
}

impl Beside {
    /// Writes and syncs bytes into a new file in the folder of the target.
    ///
    /// # Errors
    /// What the system says; nothing is left behind.
    pub(super) fn write(target: &Path, bytes: &[u8]) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no name of a file"))?;
        let (beside, mut file) = loop {
            let mut own = OsString::from(".");
            own.push(name);
            own.push(format!(".{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            let path = target.with_file_name(own);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (Self { path, is_placed: false }, file),
                // Left by a process of the same number that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(beside)
    }

    /// Puts it in the place of the target, in one step.
    ///
    /// # Errors
    /// What the system says; nothing is left behind.
    pub(super) fn place(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.is_placed = true;
        // The name is lost with the power where the folder was not written; some systems cannot sync a folder.
        if let Some(folder) = target.parent() {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn a_file_appears_whole_and_leaves_nothing_beside_it() {
        let scratch = Scratch::new();
        let target = scratch.path().join("a");
        Beside::write(&target, b"one").unwrap().place(&target).unwrap();
        drop(Beside::write(&target, b"two").unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"one");
        Beside::write(&target, b"three").unwrap().place(&target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"three");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        assert!(Beside::write(&scratch.path().join("none/a"), b"").is_err());
        let folder = scratch.path().join("folder");
        fs::create_dir_all(folder.join("full")).unwrap();
        assert!(Beside::write(&folder, b"").unwrap().place(&folder).is_err());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    }
}
