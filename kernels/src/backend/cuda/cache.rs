//! A folder of cubins, `<key>.cubin` each: machine code and behind it a trailer, which tools that read machine code ignore.
//!
//! Trailer: sha256 of the machine code (32 bytes), the key as text (64), length of the machine code (u64, little-endian), magic
//! (8).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use memra_contract::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::files::Beside;

const MAGIC: &[u8; 8] = b"memracub";
const TRAILER: usize = 32 + 64 + 8 + 8;

/// The file of a key.
pub(super) fn file(folder: &Path, key: &Digest) -> PathBuf {
    folder.join(format!("{key}.cubin"))
}

/// The cubin of a key, if a whole one is there.
///
/// # Errors
/// A sentence naming a file that is damaged or cannot be read; the cubin is to be compiled again.
pub(super) fn load(folder: &Path, key: &Digest) -> Result<Option<Vec<u8>>, String> {
    let path = file(folder, key);
    match fs::read(&path) {
        Ok(bytes) => unsealed(bytes, key).map(Some).map_err(|why| format!("{}: {why}", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Puts a cubin in its place. Where another process was first, its file stays.
///
/// # Errors
/// What the system says; a part of a file never appears under the name.
pub(super) fn store(folder: &Path, key: &Digest, cubin: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let target = file(folder, key);
    let beside = Beside::write(&target, &sealed(cubin, key))?;
    if matches!(load(folder, key), Ok(Some(_))) {
        return Ok(());
    }
    beside.place(&target)
}

fn sealed(cubin: &[u8], key: &Digest) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(cubin.len() + TRAILER);
    bytes.extend_from_slice(cubin);
    bytes.extend_from_slice(&Sha256::digest(cubin));
    bytes.extend_from_slice(key.as_str().as_bytes());
    bytes.extend_from_slice(&(cubin.len() as u64).to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    bytes
}

fn unsealed(mut bytes: Vec<u8>, key: &Digest) -> Result<Vec<u8>, &'static str> {
    let length = bytes.len().checked_sub(TRAILER).ok_or("is too short")?;
    let (cubin, trailer) = bytes.split_at(length);
    let (digest, rest) = trailer.split_at(32);
    let (name, rest) = rest.split_at(64);
    let (said, magic) = rest.split_at(8);
    if magic != MAGIC {
        return Err("has no trailer");
    }
    if said != (length as u64).to_le_bytes() {
        return Err("has another length than its trailer says");
    }
    if name != key.as_str().as_bytes() {
        return Err("is the cubin of another key");
    }
    if digest != Sha256::digest(cubin).as_slice() {
        return Err("has another digest than its trailer says");
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> Digest {
        Digest::from_bytes(&[byte; 32])
    }

    #[test]
    fn what_was_stored_is_loaded_and_a_damaged_file_is_replaced() {
        let scratch = Scratch::new();
        let folder = scratch.path().join("a/b");
        assert_eq!(load(&folder, &key(1)), Ok(None));
        store(&folder, &key(1), b"code").unwrap();
        assert_eq!(load(&folder, &key(1)), Ok(Some(b"code".to_vec())));
        // The loser of a race leaves the winner's file and nothing of its own.
        store(&folder, &key(1), b"other").unwrap();
        assert_eq!(load(&folder, &key(1)), Ok(Some(b"code".to_vec())));
        fs::copy(file(&folder, &key(1)), file(&folder, &key(2))).unwrap();
        assert!(load(&folder, &key(2)).unwrap_err().contains("another key"));
        fs::write(file(&folder, &key(1)), b"code").unwrap();
        assert!(load(&folder, &key(1)).unwrap_err().contains("too short"));
        store(&folder, &key(1), b"new").unwrap();
        assert_eq!(load(&folder, &key(1)), Ok(Some(b"new".to_vec())));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        assert!(store(&file(&folder, &key(1)), &key(1), b"code").is_err(), "the folder is a file");
    }

    #[test]
    fn many_writers_of_one_key_leave_one_file() {
        let scratch = Scratch::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| store(scratch.path(), &key(3), &[7; 5000]).unwrap());
            }
        });
        assert_eq!(load(scratch.path(), &key(3)), Ok(Some(vec![7; 5000])));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn no_damaged_file_gives_a_cubin(
            cubin in proptest::collection::vec(any::<u8>(), 0..200), at in any::<usize>(), bit in 0..8, cut in any::<usize>()
        ) {
            let whole = sealed(&cubin, &key(4));
            prop_assert_eq!(unsealed(whole.clone(), &key(4)).unwrap(), cubin);
            let mut flipped = whole.clone();
            flipped[at % whole.len()] ^= 1_u8 << bit;
            prop_assert!(unsealed(flipped, &key(4)).is_err());
            prop_assert!(unsealed(whole[..cut % whole.len()].to_vec(), &key(4)).is_err());
        }
    }
}
