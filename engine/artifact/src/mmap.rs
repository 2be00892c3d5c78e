//! The one place that maps a file into memory.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps the whole of `file` read-only.
///
/// # Errors
///
/// Whatever the operating system answers, for example for a file on a file system without mappings.
#[expect(unsafe_code, reason = "a file mapping has no safe constructor")]
pub(crate) fn map_read_only(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is read-only and private to the returned value, which keeps it alive for every slice taken
    // from it. What the language cannot promise is that no other process changes the file meanwhile; as with every
    // engine that maps its weights, whoever runs the program keeps model files unchanged while they are open. Nothing
    // here relies on bytes staying equal for memory safety: the header is copied out when it is parsed, tensor ranges
    // are checked against the mapping's length, and tensor bytes are only ever read as plain `u8`.
    unsafe { Mmap::map(file) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::map_read_only;

    #[test]
    fn the_mapping_shows_the_bytes_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"some bytes").unwrap();
        assert_eq!(&map_read_only(&file).unwrap()[..], b"some bytes");
    }

    #[test]
    fn an_empty_file_maps_to_an_empty_slice() {
        let file = tempfile::tempfile().unwrap();
        assert!(map_read_only(&file).unwrap().is_empty());
    }
}
